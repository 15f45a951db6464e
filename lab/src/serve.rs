//! `lab serve`: runs in a browser. What is on the disk is all there is: nothing is kept in memory between two requests and
//! nothing is written, so any number of runs may go on beside it.
//!
//! | module | owns |
//! |---|---|
//! | [`place`] | from the name in an address to a file below the folder, and to none outside |
//! | [`history`] | the runs there are, and the search |
//! | [`live`] | a run under way: `progress.tsv` and `metrics.prom` |
//! | [`pages`] | HTML |
//! | [`answer`] | which address gets what |
//!
//! Who may read: by default this machine alone. A page of another site in the same browser could still ask under a name of its
//! own that leads here; so on a loopback address only requests for a loopback name are answered. No answer lets a browser
//! load anything from elsewhere.

mod answer;
mod history;
mod live;
mod pages;
mod place;

use std::io::{ErrorKind, Write};
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tiny_http::{Header, Method, Request, Response, Server};

use crate::cli::Serve;
use crate::outcome::Failure;
use answer::{Answer, Site};

/// Requests answered at a time.
const WORKERS: usize = 4;
/// How often a worker without a request looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the command.
pub fn serve(options: &Serve) -> Result<(), Failure> {
    let site = Site { root: root_of(options)?, is_loopback: options.listen.is_loopback() };
    let listener = TcpListener::bind((options.listen, options.port)).map_err(|error| refused(options, &error))?;
    let address = listener.local_addr().map_err(|error| refused(options, &error))?;
    let server = Server::from_listener(listener, None)
        .map_err(|error| Failure::Failed(format!("cannot listen on {address}: {error}")))?;
    let interrupt = crate::run::interrupt_flag()?;
    println!("{} is served on http://{address}/, Ctrl-C ends it", options.dir.display());
    let _ = std::io::stdout().flush();
    if !site.is_loopback {
        eprintln!("note: every machine that reaches {address} can read all runs: no password is asked for");
    }
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while !interrupt.load(Ordering::Relaxed) {
                    match server.recv_timeout(LOOK) {
                        Ok(Some(request)) => respond(&site, request),
                        Ok(None) => {}
                        Err(error) => {
                            *failed.lock().expect("no worker panics here") = Some(error);
                            interrupt.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner().expect("no worker panics here") {
        Some(error) => Err(Failure::Failed(format!("{address} takes no more connections: {error}"))),
        None => {
            eprintln!("ended");
            Ok(())
        }
    }
}

/// The folder, which has to be one of runs.
fn root_of(options: &Serve) -> Result<std::path::PathBuf, Failure> {
    let dir = &options.dir;
    if dir.join("run.json").exists() || crate::run::plan::is_plan(dir) {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.map_or_else(|| ".".to_owned(), |parent| parent.display().to_string());
        return Err(Failure::Usage(format!(
            "{} is one run: lab serve {parent} shows it among the others",
            dir.display()
        )));
    }
    dir.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::Usage(format!(
            "{} does not exist: name the folder of runs, or make one with lab run ibench --rows 100k --seconds 2",
            dir.display()
        )),
        _ => Failure::io("open", dir, &error),
    })
}

fn refused(options: &Serve, error: &std::io::Error) -> Failure {
    let Serve { port, listen, .. } = options;
    match error.kind() {
        ErrorKind::AddrInUse => Failure::Failed(format!(
            "port {port} of {listen} is taken: end what listens there, or choose another with --port (0 = any that is free)"
        )),
        ErrorKind::PermissionDenied => {
            Failure::Failed(format!("port {port} of {listen} is not permitted: choose one from 1024 on with --port"))
        }
        ErrorKind::AddrNotAvailable => Failure::Usage(format!("--listen {listen}: this machine has no such address")),
        _ => Failure::Failed(format!("cannot listen on port {port} of {listen}: {error}")),
    }
}

/// Answers one request; whoever does not wait for the answer is nobody's trouble.
fn respond(site: &Site, request: Request) {
    let host = request.headers().iter().find(|header| header.field.equiv("Host"));
    let host = host.map(|header| header.value.as_str().to_owned());
    let answer = match request.method() {
        Method::Get | Method::Head => site.answer(request.url(), host.as_deref()),
        _ => Answer::refused(405, "only GET and HEAD: nothing can be changed here"),
    };
    let header = |name: &str, value: &str| {
        Header::from_bytes(name, value).expect("names and values of headers are constants in ASCII")
    };
    let mut response = Response::from_data(answer.body).with_status_code(answer.status);
    response.add_header(header("Content-Type", answer.kind));
    // Scripts are the pages' own; nothing comes from elsewhere, and nobody frames it.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                  img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    response.add_header(header("Content-Security-Policy", policy));
    response.add_header(header("X-Content-Type-Options", "nosniff"));
    response.add_header(header("Cache-Control", "no-store"));
    if answer.status == 405 {
        response.add_header(header("Allow", "GET, HEAD"));
    }
    let _ = request.respond(response);
}
