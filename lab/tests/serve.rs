//! `lab serve` from outside: by HTTP, while a run goes on, and in a browser.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;

fn lab(dir: &Path, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments.split_whitespace()).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A target with a password that is written otherwise in HTML and in an address.
const URL: &str = "mysql://root:s'e&cr@t@h/d?engine=innodb";

/// Two finished runs of one workload, and one of another, made once; `old` has a password in a target's name.
fn runs() -> &'static Path {
    static RUNS: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = || {
        let dir = tempfile::tempdir().unwrap();
        let common = "--settle-seconds 0 --quiet";
        for (name, more) in [("old", "--seconds 1 --target model"), ("new", "--seconds 2 --target model --target null")]
        {
            let run =
                format!("run ibench --rows 2k --steps l.i0,l.x,l.i1,settle,qr100 {common} {more} --out runs/{name}");
            let output = lab(dir.path(), &run);
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        }
        let file = dir.path().join("runs/old/run.json");
        let record = std::fs::read_to_string(&file).unwrap();
        let record = record.replacen("\"command\": [", "\"command\": [\n \"mysql://root:hunter2@h/d\",", 1);
        std::fs::write(&file, record).unwrap();
        std::fs::write(dir.path().join("secret.txt"), "hunter2").unwrap();
        std::os::unix::fs::symlink("../../secret.txt", dir.path().join("runs/old/link.txt")).unwrap();
        let copied = |from: &str, to: &str| {
            let ran = Command::new("cp").args(["-r", from, to]).current_dir(dir.path()).status().unwrap();
            assert!(ran.success());
        };
        // A run that lies outside, one with a file that does, and one whose target is an address with a hard password.
        copied("runs/old", "outside");
        copied("runs/old", "runs/linked");
        std::fs::remove_file(dir.path().join("runs/linked/report.html")).unwrap();
        std::os::unix::fs::symlink("../../secret.txt", dir.path().join("runs/linked/report.html")).unwrap();
        copied("runs/new", "runs/urls");
        std::fs::remove_file(dir.path().join("runs/urls/report.html")).unwrap();
        let steps = std::fs::read_dir(dir.path().join("runs/urls/steps")).unwrap();
        let records = ["run.json", "results.json"].map(|name| dir.path().join("runs/urls").join(name));
        for file in steps.map(|entry| entry.unwrap().path()).chain(records) {
            let record = std::fs::read_to_string(&file).unwrap().replace("\"model\"", &format!("\"{URL}\""));
            std::fs::write(&file, record).unwrap();
        }
        std::fs::write(dir.path().join("runs/old/large.txt"), vec![b'x'; 16 << 20]).unwrap();
        std::fs::create_dir(dir.path().join("runs/broken")).unwrap();
        std::fs::write(dir.path().join("runs/broken/run.json"), "{\"schema\": \"trefoil-lab/0\"}").unwrap();
        dir
    };
    RUNS.get_or_init(made).path()
}

struct Served {
    process: Child,
    address: String,
}

impl Served {
    fn of(dir: &Path, arguments: &str) -> Served {
        let mut process = Command::new(env!("CARGO_BIN_EXE_lab"))
            .args(["serve"].into_iter().chain(arguments.split_whitespace()))
            .current_dir(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).unwrap_or_else(|| panic!("no address: {line}"));
        Served { process, address: address.split('/').next().unwrap().to_owned() }
    }

    fn asked(&self, request: &str) -> (u16, String) {
        let (head, body) = self.answered(request);
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
    }

    fn answered(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
        assert!(head.contains("default-src 'none'"), "{head}");
        (head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.asked(&format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"))
    }

    /// Ends it as a person does.
    fn ended(mut self) -> (Option<i32>, String) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let began = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < Duration::from_secs(10), "Ctrl-C does not end it");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut said = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.process.wait().unwrap().code(), said)
    }
}

/// A test that fails leaves no server behind.
impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn runs_are_listed_searched_shown_compared_and_explained() {
    let served = Served::of(runs(), "runs --port 0");
    let page = |path: &str| {
        let (status, body) = served.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        body
    };
    let list = page("/");
    let (new, old) = (list.find("value=\"new\"").unwrap(), list.find("value=\"old\"").unwrap());
    assert!(new < old, "newest first");
    assert!(list.contains("model, null") && list.contains("runs/broken has schema trefoil-lab/0"), "{list}");
    let found = page("/?q=null+IBENCH");
    assert!(found.contains("value=\"new\"") && !found.contains("value=\"old\""), "{found}");
    assert!(page("/?q=%3Cscript%3E").contains("value=\"&lt;script&gt;\""), "a search is escaped");
    let run = page("/run/new");
    assert!(run.contains("<td>qr100</td>") || run.contains(">qr100<"), "{run}");
    assert!(run.contains("href=\"/file/new/results.json\""), "{run}");
    assert_eq!(page("/report/new"), std::fs::read_to_string(runs().join("runs/new/report.html")).unwrap());
    let results: Value = serde_json::from_str(&page("/file/new/results.json")).unwrap();
    assert!(!results.as_array().unwrap().is_empty());
    // As the form sends it: the newer run first, the older one is the base.
    let compared = page("/compare?run=new&run=old");
    assert!(compared.contains("model [new] against model [old]"), "{compared}");
    assert!(compared.contains("unclear") && compared.contains("did not take turns"), "{compared}");
    let own = page("/compare?run=new");
    assert!(own.contains("null against model") && own.contains("/compare?run=new&amp;target=2\">null<"), "{own}");
    assert!(page("/compare?run=new&target=2").contains("model against null"));
    assert!(page("/compare?run=new&base=null").contains("model against null"));
    let explained = page("/explain?run=new&run=old");
    assert!(explained.contains("l.i1, model") && explained.contains("foreground processor"), "{explained}");
    assert!(page("/metrics").contains("\nlab_runs 0\n"));
    assert!(!runs().join("runs/new/metrics.prom").exists(), "what is done has no running numbers");
    assert!(page("/live").contains("No run is under way"));
    let live: Value = serde_json::from_str(&page("/live.json?run=new")).unwrap();
    assert_eq!((live["running"].clone(), live["step"].clone()), (false.into(), "qr100".into()));
    assert_eq!(served.ended(), (Some(0), "ended\n".into()));
}

#[test]
fn nothing_outside_is_read_and_nobody_else_is_answered() {
    let served = Served::of(runs(), "runs --port 0");
    let outside = [
        "/file/../secret.txt",
        "/file/old/../../secret.txt",
        "/file/%2e%2e/secret.txt",
        "/file/old%2F..%2F..%2Fsecret.txt",
        "/file/%2Fetc%2Fpasswd",
        "/file//etc/passwd",
        "/file/old/link.txt",
        "/run/..",
        "/report/../..",
        "/live/..",
        "/live.json?run=..%2F..",
        "/compare?run=..&run=old",
        "/explain?run=old&run=%2F",
    ];
    for path in outside {
        let (status, body) = served.get(path);
        assert_eq!(status, 403, "{path}: {body}");
        assert!(!body.contains("hunter2") && !body.contains("root:x"), "{path}: {body}");
    }
    for path in ["/run/absent", "/file/old/steps", "/nothing", "/file/old/log.bin", "/run/old/steps"] {
        assert_eq!(served.get(path).0, 404, "{path}");
    }
    assert_eq!((served.get("/%ff").0, served.get("/?q=%4").0), (400, 400));
    // What a run's files lead to, and what a base that is no run here leads to.
    for path in ["/report/linked", "/run/linked", "/file/linked/report.html", "/compare?run=new&base=linked"] {
        let (status, body) = served.get(path);
        assert!(status == 403 && body.contains("outside") && !body.contains("hunter2"), "{path}: {status} {body}");
    }
    assert!(served.get("/").1.contains("linked/report.html leads outside of the folder of runs"));
    let absolute = format!("/compare?run=new&base={}", runs().join("outside").display());
    for path in ["/compare?run=new&base=outside", "/compare?run=new&base=..%2Foutside", absolute.as_str()] {
        let (status, body) = served.get(path);
        assert!(status == 422 && body.contains("neither a run folder nor a target"), "{path}: {status} {body}");
    }
    assert_eq!(served.get("/compare?run=new&target=3").0, 422);
    assert_eq!((served.get("/compare").0, served.get("/explain?run=old").0), (422, 422));
    assert_eq!(served.get("/run/broken").0, 500);
    // A password in a target's address stays on the disk.
    for path in ["/run/old", "/file/old/run.json", "/"] {
        let (status, body) = served.get(path);
        assert!(status == 200 && !body.contains("hunter2"), "{path}: {body}");
    }
    assert!(served.get("/file/old/run.json").1.contains("mysql://root:***@h/d"));
    // A page of another site that leads its name here.
    for (host, status) in [("example.invalid", 403), ("127.0.0.1:1", 200), ("[::1]", 200)] {
        assert_eq!(served.asked(&format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n")).0, status, "{host}");
    }
    for (site, status) in [("cross-site", 403), ("same-origin", 200), ("none", 200)] {
        let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: {site}\r\n\r\n");
        assert_eq!(served.asked(&request).0, status, "{site}");
    }
    // What a run wrote is no page of this server.
    for (path, is_of_run) in [("/report/new", true), ("/file/new/report.html", true), ("/run/new", false)] {
        let (head, _) = served.answered(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!((head.contains("sandbox"), head.contains("script-src 'none'")), (is_of_run, is_of_run), "{head}");
    }
    let posted = served.asked("POST / HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(posted.0, 405);
    assert!(served.address.starts_with("127.0.0.1:"), "{}", served.address);
}

#[test]
fn passwords_of_targets_are_on_no_page() {
    let served = Served::of(runs(), "runs --port 0");
    let pages = [
        "/",
        "/run/urls",
        "/report/urls",
        "/compare?run=urls",
        "/compare?run=urls&target=1",
        "/compare?run=urls&target=2",
        "/compare?run=new&run=urls&base=null",
        "/explain?run=urls&run=urls",
        "/live/urls",
        "/live.json?run=urls",
        "/file/urls/run.json",
        "/file/urls/results.json",
    ];
    for path in pages {
        let (status, body) = served.get(path);
        assert!(status == 200 && body.contains("root:***@h/d"), "{path}: {status} {body}");
        for piece in ["s'e", "s&#39;e", "s%27e", "cr@t", "cr%40t"] {
            assert!(!body.contains(piece), "{path}: {piece} in {body}");
        }
    }
    assert!(served.get("/compare?run=urls&target=1").1.contains("null against mysql://root:***@h/d"));
}

#[test]
fn nobody_holds_the_server_and_no_claim_is_believed() {
    let served = Served::of(runs(), "runs --port 0");
    // Some never end their request, some never read their answer.
    let slow: Vec<TcpStream> = (0..20)
        .map(|number| {
            let mut stream = TcpStream::connect(&served.address).unwrap();
            let end = if number % 2 == 0 { "" } else { "\r\n\r\n" };
            stream.write_all(format!("GET /file/old/large.txt HTTP/1.1\r\nHost: localhost{end}").as_bytes()).unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    assert_eq!(served.get("/run/new").0, 200);
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    for length in ["4611686018427387904", "99999999999999999999999999", "-1"] {
        let request =
            |method: &str| format!("{method} /run/new HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!((served.asked(&request("POST")).0, served.asked(&request("GET")).0), (405, 200), "{length}");
    }
    let mut endless = TcpStream::connect(&served.address).unwrap();
    let taken = (0..1_000).take_while(|_| endless.write_all(&[b'x'; 64 << 10]).is_ok()).count();
    assert!(taken < 1_000, "64 MB of a head were taken");
    let nonsense = TcpStream::connect(&served.address).unwrap().write_all(b"\xff\xfe\r\n\r\n");
    assert!(nonsense.is_ok() && served.asked("GET x HTTP/1.1\r\n\r\n").0 == 400);
    let again: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&served.address).unwrap()).collect();
    assert_eq!(served.ended(), (Some(0), "ended\n".into()), "Ctrl-C waits for no client");
    drop((slow, again));
}

#[test]
fn a_run_under_way_is_watched_and_a_killed_one_is_none() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("bench-results")).unwrap();
    let served = Served::of(dir.path(), "--port 0");
    let run = "run ibench --target model --rows 2k --seconds 60 --settle-seconds 0 --quiet --steps l.i0,l.x,qr100 \
               --out bench-results/now --metrics beside.prom";
    let mut child = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(run.split_whitespace())
        .current_dir(dir.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let live = loop {
        let (status, body) = served.get("/live.json?run=now");
        let live: Value = if status == 200 { serde_json::from_str(&body).unwrap() } else { Value::Null };
        if live["points"].as_array().is_some_and(|points| points.len() > 1) {
            break live;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{status} {body}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!((live["running"].clone(), live["step"].clone()), (true.into(), "qr100".into()), "{live}");
    assert!(live["points"][1][3].as_f64().unwrap() > 0.0 && live["p99_us"].is_number(), "{live}");
    assert_eq!(live["finished"][0][1], "l.x", "{live}");
    assert!(served.get("/live").1.contains("id=\"rates\""), "the only run under way is shown at once");
    assert!(served.get("/").1.contains("href=\"/live/now\""));
    // Both come of one text: what the server adds is the run, and how many there are.
    let (_, metrics) = served.get("/metrics");
    let beside = std::fs::read_to_string(dir.path().join("beside.prom")).unwrap();
    let names = |text: &str| -> Vec<String> {
        let samples = text.lines().filter(|line| !line.starts_with("lab_runs") && !line.contains("lab_runs"));
        samples.map(|line| line.replace("run=\"now\",", "").rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    assert_eq!(names(&metrics), names(&beside), "{metrics}");
    assert!(metrics.contains("lab_runs 1\n") && metrics.contains("lab_operations_total{run=\"now\",target=\"model\""));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(served.get("/").1.contains("interrupted"));
    let (_, metrics) = served.get("/metrics");
    assert!(metrics.contains("lab_runs 0\n") && !metrics.contains("lab_operations_total"), "{metrics}");
}

#[test]
fn what_cannot_be_served_is_said_with_its_remedy() {
    let dir = runs();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (arguments, code, words) in [
        (format!("runs --port {port}"), 1, "is taken: end what listens there, or choose another with --port"),
        ("runs --port 0 --listen 192.0.2.1".into(), 2, "this machine has no such address"),
        ("runs --port 0 --listen nowhere".into(), 2, "invalid value 'nowhere'"),
        ("absent --port 0".into(), 2, "does not exist"),
        ("runs/new --port 0".into(), 2, "is one run: lab serve runs shows it"),
    ] {
        let output = lab(dir, &format!("serve {arguments}"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
        assert!(said.contains(words), "{arguments}: {said}");
    }
}

/// The browser, or a line that says that there is none.
fn browser() -> Option<&'static str> {
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works);
    if found.is_none() {
        let required = std::env::var("TREFOIL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|part| part == "chromium"), "TREFOIL_REQUIRE asks for chromium");
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            let _ = writeln!(std::io::stderr(), "skipped: lab serve in a browser, install chromium");
        });
    }
    found
}

#[test]
fn in_a_browser_the_numbers_are_drawn_and_nothing_is_asked_of_others() {
    let Some(browser) = browser() else { return };
    let served = Served::of(runs(), "runs --port 0");
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--enable-logging=stderr",
            "--virtual-time-budget=3000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("http://{}/live/new", served.address))
        .output()
        .unwrap();
    let (log, page) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{log}");
    // Mistakes of the script and what the policy refuses are on the console.
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert_eq!(console, Vec::<&str>::new());
    let drawn = |id: &str| {
        let svg = page.split(&format!("<svg id=\"{id}\"")).nth(1).and_then(|rest| rest.split("</svg>").next());
        svg.unwrap_or_else(|| panic!("no chart {id}: {page}")).matches("<polyline").count()
    };
    assert!(drawn("rates") >= 1 && drawn("worst") >= 1, "{page}");
    assert!(page.contains("<b>qr100</b>step") && page.contains("This run is not under way: done."), "{page}");
    assert!(page.contains("<th>model</th><td>l.i0</td>"), "{page}");
}
