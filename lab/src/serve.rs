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
//! | [`secrets`] | passwords of targets, which no answer has |
//! | [`http`] | connections, requests and their limits |
//!
//! Who may read: by default this machine alone. A page of another site in the same browser could still ask under a name of its
//! own that leads here; so on a loopback address only requests for a loopback name are answered, on others only those for an
//! address in numbers, and none that a browser says another site asked for. No answer lets a browser load anything from
//! elsewhere, and what a run wrote is shown without its scripts.

mod answer;
mod history;
mod http;
mod live;
mod pages;
mod place;
mod secrets;

use std::io::{ErrorKind, Write};
use std::net::TcpListener;

use crate::cli::Serve;
use crate::outcome::Failure;
use answer::Site;

/// Runs the command.
pub fn serve(options: &Serve) -> Result<(), Failure> {
    let site = Site { root: root_of(options)?, is_loopback: options.listen.is_loopback() };
    let listener = TcpListener::bind((options.listen, options.port)).map_err(|error| refused(options, &error))?;
    let address = listener.local_addr().map_err(|error| refused(options, &error))?;
    let interrupt = crate::run::interrupt_flag()?;
    println!("{} is served on http://{address}/, Ctrl-C ends it", options.dir.display());
    let _ = std::io::stdout().flush();
    if !site.is_loopback {
        eprintln!("note: every machine that reaches {address} can read all runs: no password is asked for");
    }
    http::answer_all(&listener, &interrupt, &|head| site.answer(head));
    eprintln!("ended");
    Ok(())
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
