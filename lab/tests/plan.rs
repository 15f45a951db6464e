//! Plans from outside: mistakes with their line, what cannot be had, going on, and the five plans of the studies.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn lab(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap()
}

const PLAN: &str = r#"name = "small"
title = "a small plan"

[defaults]
rows = "2k"
seconds = 1
settle_seconds = 0
steps = ["l.i0", "l.x", "l.i1", "qr100"]

[[target]]
name = "first"
use = "model"

[[target]]
name = "gone"
use = "postgres://nobody@localhost/nowhere?engine=heap"

[[target]]
name = "second"
use = "trefoil"
configs = ["base", "log"]

[[config]]
name = "base"
about = "nothing"

[[config]]
name = "log"
about = "a log of 32 G"
[config.model]
no_op = "it has no log"
[config.trefoil]
parameters = { log_capacity = "8m" }
[config.postgres]
no_op = "for the test"

[[run]]
name = "one"
title = "One"
workload = "ibench"

[[run]]
name = "two"
workload = "ibench"
targets = ["first"]
repeat = 2
[run.scale.less]
repeat = 1
rows = "1k"

[[table]]
title = "rates"
columns = ["load = ips.av@l.i0", "QPS = qps.av@qr100", "min(s)@qr100"]
"#;

/// The plan in a directory of its own, with a piece of text replaced.
fn written(dir: &Path, what: &str, by: &str) {
    assert!(PLAN.contains(what), "{what}");
    std::fs::write(dir.join("small.toml"), PLAN.replacen(what, by, 1)).unwrap();
}

#[test]
fn a_mistake_is_named_with_its_line_and_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    // What is replaced, by what, the text in whose line the mistake is, and the remedy.
    for (what, by, place, words) in [
        ("seconds = 1\n", "secnds = 1\n", "secnds", "did you mean `seconds`?"),
        ("\"l.x\"", "\"lx\"", "\"lx\"", "has no step `lx`; did you mean `l.x`?"),
        ("use = \"model\"", "use = \"modle\"", "modle", "no engine is called `modle`; did you mean `model`?"),
        ("workload = \"ibench\"", "workload = \"ibnech\"", "ibnech", "did you mean `ibench`?"),
        ("targets = [\"first\"]", "targets = [\"frist\"]", "frist", "has no target `frist`; did you mean `first`?"),
        ("configs = [\"base\", \"log\"]", "configs = [\"base\", \"lag\"]", "lag", "did you mean `log`?"),
        ("rows = \"2k\"", "rows = \"2x\"", "2x", "`x` is not a unit"),
        ("qps.av@qr100", "qps.avg@qr100", "qps.avg", "did you mean `qps.av`?"),
        ("ips.av@l.i0", "ips.av@l.i00", "l.i00", "did you mean `l.i0`?"),
        ("about = \"nothing\"", "abuot = \"nothing\"", "abuot", "did you mean `about`?"),
        ("[[table]]", "[[tabel]]", "tabel", "did you mean `table`?"),
        ("title = \"One\"", "title = ", "title = \nworkload", ""),
        ("name = \"two\"", "name = \"one\"", "[[run]]\nname = \"one\"\nworkload", "two runs `one`"),
        ("no_op = \"it has no log\"", "no_op = \"none\"\ncnf = { a = 1 }", "[config.model]", "changes nothing"),
        (
            "[config.model]\nno_op = \"it has no log\"\n",
            "",
            "[[config]]\nname = \"log\"",
            "what it becomes for `model`",
        ),
        ("\"qr100\"]", "\"l.i0\"]", "\"l.i0\"]", "given twice"),
    ] {
        written(dir.path(), what, by);
        let plan = std::fs::read_to_string(dir.path().join("small.toml")).unwrap();
        let line = 1 + plan[..plan.find(place).unwrap()].matches('\n').count();
        let output = lab(dir.path(), &["run", "small.toml", "--dry-run"]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{by}: {told}");
        assert!(told.contains(&format!("small.toml:{line}: ")) && told.contains(words), "{by}: {line} {told}");
    }
    written(dir.path(), "name", "name");
    for (arguments, words) in [
        (&["run", "small.toml", "--scale", "les"][..], "did you mean `less`?"),
        (&["run", "ibensh"], "did you mean `ibench`?"),
        (&["run", "nowhere.toml"], "does not exist"),
        (&["run"], "needs a workload"),
        (&["run", "--resume", "."], "not the folder of a plan"),
    ] {
        let output = lab(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
    assert!(!dir.path().join("bench-results").exists(), "a mistake leaves nothing");
}

#[test]
fn a_dry_run_tells_turns_and_time_and_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), "name", "name");
    let output = lab(dir.path(), &["run", "small.toml", "--dry-run", "--scale", "less"]);
    let told = text(&output.stdout);
    assert!(output.status.success() && told.contains("4 turns, about "), "{told}");
    assert!(told.contains("gone.base") && told.contains("not to be had: "), "{told}");
    assert!(told.contains("model      no-op: it has no log"), "{told}");
    assert!(told.contains("two: first.base, 1 clients, 1 tables, repetition 1 of 1"), "{told}");
    assert!(!dir.path().join("bench-results").exists());
}

#[test]
fn an_interrupted_plan_goes_on_and_what_is_done_is_not_run_again() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), "name", "name");
    let mut child = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["run", "small.toml", "--out", "run"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let part = dir.path().join("run/parts/one");
    let done = |part: &Path| -> usize {
        let read =
            std::fs::read(part.join("run.json")).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        read.and_then(|run| run["turns_done"].as_array().map(Vec::len)).unwrap_or(0)
    };
    let until = Instant::now() + Duration::from_secs(120);
    while done(&part) == 0 {
        assert!(Instant::now() < until && child.try_wait().unwrap().is_none(), "no turn was done");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("lab run small.toml --resume run"), "{}", text(&output.stderr));
    let kept = done(&part);
    assert!(kept >= 1 && json(dir.path().join("run/plan.json"))["state"] == "interrupted");
    let first = part.join("steps/t01-c01-r01-00-li0.json");
    let before = std::fs::metadata(&first).unwrap().modified().unwrap();

    written(dir.path(), "rows = \"2k\"", "rows = \"3k\"");
    let other = lab(dir.path(), &["run", "small.toml", "--resume", "run"]);
    assert!(other.status.code() == Some(2) && text(&other.stderr).contains("another plan"), "{}", text(&other.stderr));

    written(dir.path(), "name", "name");
    let output = lab(dir.path(), &["run", "small.toml", "--resume", "run"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(std::fs::metadata(&first).unwrap().modified().unwrap(), before, "a turn that was done was run again");
    assert_eq!(json(dir.path().join("run/plan.json"))["state"], "done");
    assert_eq!((done(&part), done(&dir.path().join("run/parts/two"))), (3, 2));
    for arguments in [&["verify", "run"][..], &["show", "run"], &["report", "run"], &["compare", "run"]] {
        let output = lab(dir.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    }
    parts_are_compared_within_themselves(dir.path());
    // Again there is nothing left to do.
    let again = lab(dir.path(), &["run", "--resume", "run", "--format", "json", "--quiet"]);
    let results: Value = serde_json::from_slice(&again.stdout).unwrap();
    let of = |run: &str, name: &str| {
        let is_it = |result: &&Value| result["run"] == run && result["target"] == name && result["repeat"] == 1;
        results.as_array().unwrap().iter().filter(is_it).count()
    };
    assert_eq!((of("one", "first.base"), of("one", "second.log"), of("two", "first.base")), (4, 4, 4));
    assert_eq!(std::fs::metadata(&first).unwrap().modified().unwrap(), before);
}

/// Parts of a plan are other workloads: nothing is set beside what does not belong to it.
fn parts_are_compared_within_themselves(dir: &Path) {
    let compared = |arguments: &[&str]| {
        let output = lab(dir, &[&["compare", "--metrics", "ips_av", "--format", "json"], arguments].concat());
        let lines: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let mut pairs: Vec<(String, String)> = Vec::new();
        for line in lines.as_array().into_iter().flatten() {
            let pair = ["base", "target"].map(|side| line[side].as_str().unwrap().to_owned());
            pairs.extend((!pairs.contains(&pair.clone().into())).then_some(pair.into()));
        }
        (output.status.code(), pairs, text(&output.stderr))
    };
    let pair = |base: &str, target: &str| (base.to_owned(), target.to_owned());
    let of_one = ["second.base [one]", "second.log [one]"].map(|target| pair("first.base [one]", target));
    // Part two has one target alone: nothing stands beside it, and part one's base has nothing to do with it.
    assert_eq!(compared(&["run"]).1, of_one);
    assert_eq!(compared(&["run", "--base", "first.base"]).1, of_one);
    let (code, _, told) = compared(&["run/parts/two"]);
    assert!(code == Some(2) && told.contains("parts of a plan are compared within themselves"), "{told}");
    // The same plan again: part by part, and only where both are of one size.
    assert!(Command::new("cp").args(["-r", "run", "later"]).current_dir(dir).status().unwrap().success());
    let names = ["first.base", "second.base", "second.log"];
    let mut both: Vec<_> = names
        .iter()
        .map(|name| pair(&format!("{name} [run/parts/one]"), &format!("{name} [later/parts/one]")))
        .collect();
    let two = pair("first.base [run/parts/two]", "first.base [later/parts/two]");
    both.push(two.clone());
    assert_eq!(compared(&["run", "later"]).1, both);
    let explained = lab(dir, &["explain", "run", "later", "--target", "first.base [two]"]);
    assert!(text(&explained.stdout).contains("l.i0, first.base [two], 1 clients"), "{}", text(&explained.stderr));
    let path = dir.join("later/parts/two/run.json");
    let mut smaller = json(path.clone());
    smaller["plan"]["rows"] = 1_000.into();
    std::fs::write(&path, smaller.to_string()).unwrap();
    let (_, pairs, told) = compared(&["run", "later"]);
    assert!(!pairs.contains(&two) && pairs.len() == 3, "{pairs:?}");
    assert!(told.contains("later/parts/two has nothing beside it: two has 2000 rows here and 1000 there"), "{told}");
    // Whoever names a part as the base means it.
    assert_eq!(compared(&["later/parts/two", "--base", "run/parts/one"]).1.len(), 1);
}

#[test]
fn what_cannot_be_had_is_one_line_and_a_violation_is_code_4() {
    let dir = tempfile::tempdir().unwrap();
    written(
        dir.path(),
        "name = \"first\"\nuse = \"model\"",
        "name = \"first\"\nuse = \"model:fault=lose-delete\"\nfamily = \"model\"",
    );
    let output = lab(dir.path(), &["run", "small.toml", "--scale", "less", "--out", "run"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert_eq!(told.lines().filter(|line| line.contains("gone.base not to be had")).count(), 1, "{told}");
    // What was sound goes on behind it, and has its numbers.
    assert!(text(&output.stdout).contains("second.log"), "{}", text(&output.stdout));
    assert!(lab(dir.path(), &["verify", "run"]).status.success());
    let list = text(&lab(dir.path(), &["list", "."]).stdout);
    assert!(list.contains("failed") && list.contains("small at less"), "{list}");
    let shown = text(&lab(dir.path(), &["show", "run"]).stdout);
    assert!(shown.contains("left out  one: first.base failed: violated: "), "{shown}");

    written(dir.path(), "use = \"model\"", "use = \"model\"");
    let wanted = lab(dir.path(), &["run", "small.toml", "--scale", "less", "--out", "strict", "--require-targets"]);
    assert_eq!(wanted.status.code(), Some(1), "{}", text(&wanted.stderr));
    written(dir.path(), "targets = [\"first\"]", "targets = [\"gone\"]");
    let only = std::fs::read_to_string(dir.path().join("small.toml")).unwrap();
    let only = only.replacen("[[run]]\nname = \"one\"\ntitle = \"One\"\nworkload = \"ibench\"\n", "", 1);
    std::fs::write(dir.path().join("small.toml"), only).unwrap();
    let none = lab(dir.path(), &["run", "small.toml", "--out", "none"]);
    assert!(
        none.status.code() == Some(1) && text(&none.stderr).contains("no target of the plan"),
        "{}",
        text(&none.stderr)
    );
}

/// Runs a study in miniature, without servers.
fn in_miniature(number: usize, rows: &[&str]) {
    let (said, took) = at_scale(number, "test", rows, None);
    assert!(!said.contains("not to be had"), "{said}");
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// The same on two engines of one MariaDB, whose rows are `engines` in every table that has servers' rows at all: the part
/// `lab-servers` asks for it.
fn on_servers(number: usize, engines: [&str; 2], rows: &[&str]) {
    if std::env::var_os("TREFOIL_SERVERS").is_none() {
        return;
    }
    let rows: Vec<&str> = rows.iter().copied().chain(engines).collect();
    plugin_is_built();
    let (said, took) = at_scale(number, "servers", &rows, Some(engines));
    assert!(!said.contains("not to be had"), "{said}");
    let _ = writeln!(std::io::stderr(), "seed-{number:03} on two engines of a server: {:.0} s", took.as_secs_f64());
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// What a compiler takes is no plan's time: those that want the engine in a server would wait for it.
fn plugin_is_built() {
    static BUILT: std::sync::Once = std::sync::Once::new();
    BUILT.call_once(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mariadb/mariadb.sh");
        assert!(Command::new(script).arg("build").status().unwrap().success(), "mariadb/mariadb.sh build failed");
    });
}

/// At `mini`, which is for a machine that has everything: `rows` are those of the pinned packages; of `others`, each a version and its
/// row, what cannot be had is skipped. They are fetched, for minutes: with TREFOIL_VERSIONS only.
fn with_versions(number: usize, rows: &[&str], others: &[(&str, &str)]) {
    if ["TREFOIL_SERVERS", "TREFOIL_VERSIONS"].iter().any(|name| std::env::var_os(name).is_none()) {
        return;
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut rows = rows.to_vec();
    for (version, row) in others {
        let output = lab(repository, &["fetch", version]);
        match output.status.success() {
            true => rows.push(row),
            false => {
                let why = text(&output.stderr);
                let why = why.lines().last().unwrap_or_default();
                let _ = writeln!(std::io::stderr(), "skipped: {version} in the plan seed-{number:03}: {why}");
            }
        }
    }
    let (_, took) = at_scale(number, "mini", &rows, None);
    let _ = writeln!(std::io::stderr(), "seed-{number:03} at mini, on servers: {:.0} s", took.as_secs_f64());
    // A minute on a machine that does nothing else; here other parts are beside it.
    assert!(took < Duration::from_secs(120), "{took:?}");
}

/// Runs a study: every table is there, with every column and every cell; the page is written. A table that has one of two engines has
/// the other, and each column of the study is in such a table. Returns what was said, and the time.
fn at_scale(number: usize, scale: &str, rows: &[&str], engines: Option<[&str; 2]>) -> (String, Duration) {
    let dir = tempfile::tempdir().unwrap();
    // PostgreSQL is started for another user, who has to be able to enter.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let begun = Instant::now();
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../plans/seed-{number:03}.toml"));
    let plan = plan.to_str().unwrap();
    let output = lab(dir.path(), &["run", plan, "--scale", scale, "--out", "run", "--dir", ".", "--format", "md"]);
    let took = begun.elapsed();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let tables = json(dir.path().join("run/plan.json"))["tables"].as_array().unwrap().clone();
    for table in tables {
        let title = table["title"].as_str().unwrap();
        let columns = table["columns"].as_array().unwrap().len();
        let found: Vec<&str> = printed.lines().skip_while(|line| !line.ends_with(title)).skip(2).collect();
        assert!(found.len() > 3, "{title} is not there: {printed}");
        let of_table = found.iter().take_while(|line| line.starts_with('|'));
        for line in of_table.clone() {
            let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
            assert_eq!(cells.len(), columns + 1, "{title}: {line}");
            assert!(cells.iter().all(|cell| !cell.trim().is_empty()), "{title}: {line}");
        }
        assert!(of_table.clone().count() > 2, "{title} has no row: {printed}");
        if let Some(engines) = engines {
            let has = engines.map(|engine| of_table.clone().any(|line| line.contains(engine)));
            assert!(has == [true; 2] || title.contains("Slow SSD"), "{title}: {has:?} of {engines:?}: {printed}");
        }
    }
    let said = format!("{printed}{}", text(&output.stderr));
    rows.iter().for_each(|row| assert!(said.contains(row), "{row}: {said}"));
    let verified = lab(dir.path(), &["verify", "run"]);
    assert!(verified.status.success(), "{}", text(&verified.stdout));
    let page = std::fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    assert!(page.contains("The study's tables") && page.contains("<svg"), "the page has its tables and charts");
    (text(&output.stderr), took)
}

#[test]
fn versions_and_scans_in_miniature() {
    in_miniature(0, &["trefoil.btree", "trefoil.lsm", "2+3+4", "Mcpu/o"]);
}

#[test]
fn contention_in_miniature() {
    in_miniature(1, &["QPS ratio: 1 table by 8 tables", "hot-points"]);
}

#[test]
fn engines_memory_and_disks_in_miniature() {
    in_miniature(
        2,
        &["Trefoil.btree.redo4", "Trefoil.btree.redo32", "Trefoil.betree.zlib", "IO-bound load metrics, Slow SSD"],
    );
}

#[test]
fn orders_by_cores_in_miniature() {
    in_miniature(3, &["trefoil.btree 2c 1w 1 cores", "the best number of sessions for each number of processors"]);
}

#[test]
fn fourteen_configurations_in_miniature() {
    in_miniature(4, &["trefoil.a12", "no-op: free pages are kept to a target"]);
}

#[test]
fn versions_and_scans_on_servers() {
    on_servers(0, ["| mariadb ", "| mariadb-trefoil "], &["2+3+4", "Mcpu/o"]);
    with_versions(
        0,
        &["mariadb ", "mariadb-trefoil ", "trefoil.btree", "trefoil.betree", "8.0.3 not to be had: no source of"],
        &[
            ("mysql@5.5", "mysql-5.5 "),
            ("mysql@9.7", "mysql-9.7 "),
            ("mariadb@10.2", "mariadb-10.2 "),
            ("mariadb@11.4", "mariadb-11.4 "),
            ("mariadb@11.8", "mariadb-11.8 "),
            ("postgres@17", "postgres-17 "),
        ],
    );
}

#[test]
fn contention_on_servers() {
    on_servers(1, ["myrocks", "inno-mariadb"], &["QPS ratio: 1 table by 8 tables", "hot-points"]);
    with_versions(1, &["QPS ratio: 1 table by 8 tables", "hot-points", "myrocks", "inno-mariadb"], &[]);
}

#[test]
fn engines_and_redo_logs_on_servers() {
    on_servers(2, ["Rocks.def10.kmin.apr", "InnoDB-MariaDB.redo4"], &["Trefoil.lsm.kmin.apr"]);
    with_versions(
        2,
        &["InnoDB-MariaDB.redo4", "InnoDB-MariaDB.redo32", "Trefoil.lsm.nokmin.apr", "Trefoil.betree.zlib"],
        &[],
    );
}

#[test]
fn orders_by_cores_on_servers() {
    on_servers(3, ["| mariadb 2c", "| mariadb-trefoil 2c"], &["the best number of sessions"]);
    with_versions(
        3,
        &["mariadb 2c 1w 2 cores", "mariadb-trefoil 2c 1w 2 cores", "rocksdb not to be had: "],
        &[("mysql@9.7", "mysql-9.7 2c 1w 1 cores"), ("postgres", "postgres 2c 1w 1 cores")],
    );
}

#[test]
fn configurations_on_servers() {
    on_servers(4, ["maria.base", "trefoil-maria.base"], &["no-op: one buffer pool and one page cleaner since 10.5"]);
    with_versions(
        4,
        &["maria.base", "maria.a13", "trefoil-maria.base", "innodb_log_file_size=32M"],
        &[("mysql@9.7", "my9.7.a13"), ("postgres", "postgres.base")],
    );
}

#[test]
fn every_configuration_is_named_and_says_what_it_becomes() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans/seed-004.toml");
    let output = lab(dir.path(), &["run", plan.to_str().unwrap(), "--dry-run"]);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for config in "base a2 a7 a10 a12 a13 a17 a18 a19 a20 a21 a22 ps1 ps2".split(' ') {
        for family in ["mysql", "mariadb", "postgres", "trefoil"] {
            let begin = format!("config {config:<6} {family:<10} ");
            assert!(told.lines().any(|line| line.starts_with(&begin)), "{config} for {family}: {told}");
        }
    }
}
