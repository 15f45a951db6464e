//! Runs parts. Each part writes its log to `target/logs/PART.log` and one line here, with its seconds; the
//! lines of its tests are shown as they pass. A failed part shows its whole log. The last lines repeat the
//! parts, then the result of each test program, then why parts failed, in few words, then one line with the sum.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::parts::{Lane, Part, Tool, Work};
use crate::tidy;
use crate::watchdog::{ENDED, LIMITS, Watchdog};

/// What came of a part.
#[derive(Debug, Default)]
struct Outcome {
    verdict: Verdict,
    passed: u64,
    failed: u64,
    /// `test result` lines with the name of their program.
    programs: Vec<String>,
    /// Tests that failed, or else the last words of the part.
    why: Vec<String>,
    took: Duration,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    #[default]
    Ok,
    Failed,
    Skipped,
}

/// Runs the parts, each lane in order, all of them, whatever fails. True if none failed.
pub fn run(root: &Path, parts: &[Part]) -> bool {
    let scratch = root.join("target/tmp");
    if let Err(error) = std::fs::create_dir_all(&scratch).and(std::fs::create_dir_all(root.join("target/logs"))) {
        eprintln!("{}: {error}", scratch.display());
        return false;
    }
    let outcomes = in_lanes(parts, |part| timed(root, part));
    // Test programs clean up behind themselves; what a killed one left goes here.
    let _ = std::fs::remove_dir_all(&scratch);
    close(&outcomes)
}

/// What came of each part, in the order of the parts. Of those of either lane the one that has ended its own takes the next.
fn in_lanes<T: Send>(parts: &[Part], work: impl Fn(&Part) -> T + Sync) -> Vec<(&str, T)> {
    let next = AtomicUsize::new(0);
    let of = |lane: Lane| parts.iter().enumerate().filter(move |(_, part)| part.lane == lane);
    let all = |own| -> Vec<(usize, T)> {
        let rest = std::iter::from_fn(|| of(Lane::Either).nth(next.fetch_add(1, Ordering::Relaxed)));
        of(own).chain(rest).map(|(at, part)| (at, work(part))).collect()
    };
    let mut outcomes: Vec<(usize, T)> = of(Lane::Alone).map(|(at, part)| (at, work(part))).collect();
    let (tests, processes) = std::thread::scope(|scope| {
        let processes = scope.spawn(|| all(Lane::Processes));
        (all(Lane::Tests), processes.join().expect("a part ends with an outcome"))
    });
    outcomes.extend(tests.into_iter().chain(processes));
    outcomes.sort_by_key(|(at, _)| *at);
    outcomes.into_iter().map(|(at, outcome)| (parts[at].name, outcome)).collect()
}

fn timed(root: &Path, part: &Part) -> Outcome {
    let start = Instant::now();
    println!("== {}", part.name);
    let mut outcome = run_part(root, part);
    outcome.took = start.elapsed();
    println!("{}", line(part.name, &outcome));
    outcome
}

fn line(name: &str, outcome: &Outcome) -> String {
    let verdict = match outcome.verdict {
        Verdict::Ok => "ok",
        Verdict::Failed => "FAILED",
        Verdict::Skipped => "skipped",
    };
    let counts = format!("{} passed, {} failed", outcome.passed, outcome.failed);
    format!("part {name:<12} {:>7.1} s  {counts:<24} {verdict}", outcome.took.as_secs_f64())
}

/// Prints the end of the run; true if nothing failed.
fn close(outcomes: &[(&str, Outcome)]) -> bool {
    println!();
    for (name, outcome) in outcomes {
        println!("{}", line(name, outcome));
    }
    println!();
    for program in outcomes.iter().flat_map(|(_, o)| &o.programs) {
        println!("{program}");
    }
    // Whoever sees the end of it alone sees these.
    for (name, outcome) in outcomes.iter().filter(|(_, o)| o.failed > 0) {
        outcome.why.iter().for_each(|why| println!("{name}: {why}"));
        println!("{}", line(name, outcome));
    }
    let passed: u64 = outcomes.iter().map(|(_, o)| o.passed).sum();
    let failed: u64 = outcomes.iter().map(|(_, o)| o.failed).sum();
    println!("{passed} passed, {failed} failed");
    failed == 0
}

fn run_part(root: &Path, part: &Part) -> Outcome {
    if let Some(tool) = part.needs.as_ref().filter(|t| !present(root, t)) {
        println!("skipped: {}, install {}", part.name, tool.install);
        let required = std::env::var("TREFOIL_REQUIRE").unwrap_or_default();
        if required.split(',').any(|name| name.trim() == tool.name) {
            println!("{} is required here (TREFOIL_REQUIRE)", tool.name);
            return failed();
        }
        return Outcome { verdict: Verdict::Skipped, ..Outcome::default() };
    }
    match &part.work {
        Work::Tidy if tidy::report(root) => Outcome { passed: 1, ..Outcome::default() },
        Work::Tidy => failed(),
        Work::Cargo(args) => run_command(root, part, cargo(args)),
        Work::Docs(args) => {
            let outcome = run_command(root, part, cargo(args));
            let log = std::fs::read_to_string(root.join(log_path(part.name))).unwrap_or_default();
            let warnings: Vec<&str> = doc_warnings(&log).collect();
            warnings.iter().for_each(|warning| println!("{warning}"));
            if warnings.is_empty() { outcome } else { failed() }
        }
        Work::Script(path, args) => {
            let mut command = Command::new(root.join(path));
            command.args(*args);
            run_command(root, part, command)
        }
        Work::Program(name, args) => {
            let mut command = Command::new(of_the_house(root, name));
            command.args(*args);
            run_command(root, part, command)
        }
    }
}

/// A cargo that knows nothing of the one that runs this program: the build script of `ring` runs again when what that says of its package
/// changes, and then all crates behind it are compiled again.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(says_the_package) {
            command.env_remove(name);
        }
    }
    command
}

/// A variable by which cargo tells a program of its package.
fn says_the_package(name: &str) -> bool {
    name == "OUT_DIR" || ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.starts_with(of))
}

/// What rustdoc complains about, with its place, but for links to the tags of rules and cargo's sums.
fn doc_warnings(log: &str) -> impl Iterator<Item = &str> {
    let mut show = false;
    log.lines().filter(move |line| {
        if let Some(what) = line.strip_prefix("warning: ") {
            let tag = what.strip_prefix("unresolved link to `").is_some_and(is_tag);
            show = !tag && !what.contains(" generated ");
            return show;
        }
        show && line.trim_start().starts_with("--> ")
    })
}

/// `A12`, `P9`, `A7b` and the closing quote.
fn is_tag(text: &str) -> bool {
    let name = text.trim_end_matches('`');
    let number =
        name.trim_start_matches(|c: char| c.is_ascii_uppercase()).trim_end_matches(|c: char| c.is_ascii_lowercase());
    name.len() <= 5 && number.len() < name.len() && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

fn failed() -> Outcome {
    Outcome { verdict: Verdict::Failed, failed: 1, ..Outcome::default() }
}

/// A program that the part `programs` has built.
fn of_the_house(root: &Path, name: &str) -> std::path::PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    root.join(target).join("sim").join(name)
}

fn present(root: &Path, tool: &Tool) -> bool {
    let [program, args @ ..] = tool.probe else { return false };
    let mut probe = match *program {
        "lab" => Command::new(of_the_house(root, program)),
        _ => Command::new(program),
    };
    probe.args(args).current_dir(root).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|s| s.success())
}

fn run_command(root: &Path, part: &Part, mut command: Command) -> Outcome {
    command.envs(part.env.iter().copied());
    let shown = format!("{command:?}");
    let mut outcome = match follow(root, part.name, command) {
        Ok((outcome, true)) => outcome,
        Ok((mut outcome, false)) => {
            outcome.verdict = Verdict::Failed;
            outcome.failed = outcome.failed.max(1);
            let log = std::fs::read_to_string(root.join(log_path(part.name))).unwrap_or_default();
            println!("---- log of {}: {shown}", part.name);
            print!("{log}");
            println!("---- end of the log of {}", part.name);
            outcome.why = why(&log);
            outcome
        }
        Err(error) => {
            println!("{shown}: {error}");
            failed()
        }
    };
    if outcome.passed + outcome.failed == 0 {
        // A part without tests of its own counts as one.
        outcome.passed = 1;
    }
    outcome
}

fn log_path(name: &str) -> String {
    format!("target/logs/{name}.log")
}

/// Runs the command, logs and counts what it prints; false if it failed.
fn follow(root: &Path, name: &str, mut command: Command) -> std::io::Result<(Outcome, bool)> {
    let (reader, writer) = std::io::pipe()?;
    command.current_dir(root).stdin(Stdio::null());
    command.stdout(writer.try_clone()?).stderr(writer);
    command.env("CARGO_TERM_COLOR", "never").env("TMPDIR", root.join("target/tmp"));
    // Of the package that runs this. Some build scripts look at them, and what they built would be built anew by a cargo that has others.
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    let mut child = command.spawn()?;
    // The command holds the writing ends: without this the pipe would never end.
    drop(command);
    let watchdog = Watchdog::new(child.id(), LIMITS);
    let mut log = std::fs::File::create(root.join(log_path(name)))?;
    let mut outcome = Outcome::default();
    let mut counter = Counter::default();
    for line in BufReader::new(reader).lines() {
        let line = line.unwrap_or_else(|_| "(a line that is not UTF-8)".to_owned());
        watchdog.hear();
        writeln!(log, "{line}")?;
        if counter.take(&line, &mut outcome) {
            println!("{line}");
        }
    }
    let success = child.wait()?.success();
    if let Some(why) = watchdog.close() {
        writeln!(log, "{why}")?;
    }
    Ok((outcome, success))
}

/// Of a log that ends in failure: the tests that failed, or what it said last; and of a part that was ended what ran.
fn why(log: &str) -> Vec<String> {
    let short = |line: &str| line.chars().take(200).collect::<String>();
    let (log, ended) = log.find(ENDED).map_or((log, ""), |at| log.split_at(log[..at].rfind('\n').map_or(0, |n| n + 1)));
    let is_failed = |line: &&str| line.starts_with("test ") && line.ends_with("FAILED");
    let failed: Vec<&str> = log.lines().filter(is_failed).take(12).collect();
    let last = log.lines().skip(log.lines().count().saturating_sub(16));
    let told = if failed.is_empty() { last.collect() } else { failed };
    told.into_iter().chain(ended.lines().take(24)).map(short).collect()
}

/// Understands the output of test programs.
#[derive(Debug, Default)]
struct Counter {
    program: String,
}

impl Counter {
    /// Counts `line`; true if it is worth showing.
    fn take(&mut self, line: &str, outcome: &mut Outcome) -> bool {
        let words = line.trim_start();
        if let Some(rest) = words.strip_prefix("Running ").or(words.strip_prefix("Doc-tests ")) {
            self.program = program_name(rest);
            return true;
        }
        if words.starts_with("test result: ") {
            outcome.passed += count_before(words, " passed");
            outcome.failed += count_before(words, " failed");
            outcome.programs.push(format!("{}: {words}", self.program));
            return true;
        }
        let plain = words.split_once(" passed, ").filter(|(n, _)| n.parse::<u64>().is_ok());
        if plain.is_some_and(|(_, rest)| rest.ends_with(" failed")) {
            outcome.passed += count_before(words, " passed");
            outcome.failed += count_before(words, " failed");
            return true;
        }
        words.starts_with("test ") || words.starts_with("progress: ")
    }
}

/// The program in `unittests src/lib.rs (target/debug/deps/trefoil_base-0123456789abcdef)`.
fn program_name(rest: &str) -> String {
    let (what, path) = rest.split_once(" (").unwrap_or((rest, ""));
    let file = path.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
    let krate = file.rsplit_once('-').map_or(file, |(name, _)| name);
    if krate.is_empty() { format!("doc tests of {what}") } else { format!("{krate} ({what})") }
}

fn count_before(line: &str, word: &str) -> u64 {
    let before = line.split(word).next().unwrap_or_default();
    before.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards: the loop in `cargo`, and each name. This test is run by a cargo, of a package without a build script.
    #[test]
    fn a_cargo_within_another_knows_nothing_of_it() {
        let command = cargo(&["version"]);
        let removed = |name: &str| command.get_envs().any(|(of, value)| of == name && value.is_none());
        assert!(removed("CARGO_PKG_NAME") && removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_VERSION_MAJOR"));
        assert!(!removed("CARGO_HOME") && !removed("CARGO_TARGET_DIR"));
        assert!(says_the_package("OUT_DIR") && !says_the_package("OUT_DIRECTORY"));
    }

    /// Guards: the lane that ends first takes the next of those of either; none is taken twice; results are in the order of the parts.
    #[test]
    fn parts_of_either_lane_run_once_where_there_is_time() {
        let lanes = [Lane::Either, Lane::Tests, Lane::Alone, Lane::Either, Lane::Processes, Lane::Either];
        let parts: Vec<Part> = ["e1", "long", "first", "e2", "short", "e3"]
            .into_iter()
            .zip(lanes)
            .map(|(name, lane)| Part { name, needs: None, work: Work::Tidy, env: &[], lane })
            .collect();
        let begun = std::sync::Mutex::new(Vec::new());
        let of_either = || begun.lock().expect("no part panics").iter().filter(|n: &&&str| n.starts_with('e')).count();
        let outcomes = in_lanes(&parts, |part| {
            begun.lock().expect("no part panics").push(part.name);
            let start = Instant::now();
            // Until the other lane has begun all three.
            while part.name == "long" && of_either() < 3 && start.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(10));
            }
            part.name != "long" || of_either() == 3
        });
        assert_eq!(outcomes, parts.iter().map(|part| (part.name, true)).collect::<Vec<_>>());
        let mut begun = begun.into_inner().expect("no part panics");
        assert_eq!(begun[0], "first");
        begun.sort_unstable();
        assert_eq!(begun, ["e1", "e2", "e3", "first", "long", "short"]);
    }

    #[test]
    fn tags_of_rules_are_no_broken_links() {
        let log = "warning: unresolved link to `A12`\n --> a.rs:1:2\nwarning: unresolved link to `Gone`\n  --> b.rs:3:4\n\
            warning: `x` (lib doc) generated 2 warnings";
        assert_eq!(doc_warnings(log).collect::<Vec<_>>(), ["warning: unresolved link to `Gone`", "  --> b.rs:3:4"]);
    }

    #[test]
    fn why_a_part_failed_are_its_failed_tests_or_its_last_words() {
        let log = "test a ... ok\ntest b ... FAILED\nmuch\n1 passed, 1 failed";
        assert_eq!(why(log), ["test b ... FAILED"]);
        let log: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        assert_eq!(why(&log.join("\n")), log[4..]);
        let hung = format!("test b ... FAILED\nmuch\n5 minutes: {ENDED}\n  1 of 0 S");
        assert_eq!(why(&hung), ["test b ... FAILED", &format!("5 minutes: {ENDED}"), "  1 of 0 S"]);
    }

    #[test]
    fn test_programs_are_counted() {
        let (mut counter, mut outcome) = (Counter::default(), Outcome::default());
        let lines = [
            "   Compiling trefoil-base v0.1.0",
            "     Running unittests src/lib.rs (target/debug/deps/trefoil_base-0123)",
            "test gc::tests::all_see ... ok",
            "test result: ok. 12 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.05s",
            "   Doc-tests trefoil_base",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.05s",
            "2000 passed, 0 failed",
        ];
        let shown: Vec<bool> = lines.iter().map(|l| counter.take(l, &mut outcome)).collect();
        assert_eq!(shown, [false, true, true, true, true, true, true]);
        assert_eq!((outcome.passed, outcome.failed), (2015, 1));
        assert!(outcome.programs[0].starts_with("trefoil_base (unittests src/lib.rs): test result: ok"));
        assert!(outcome.programs[1].starts_with("doc tests of trefoil_base"));
    }
}
