//! Real processes killed with SIGKILL at random moments: of load, checkpoint, definition changes and recovery.
//!
//! `trefoil-crash kills N [SEED]`: the parent starts a child that works on a database and reports each commit through
//! a pipe *after* it was acknowledged; the parent kills it after a random time, opens the database itself and checks:
//!
//! 1. every transaction reported as committed under `Sync` or `Write` is there (the machine survived, only the
//!    process did not);
//! 2. every transaction is there whole or not at all: its rows name how many they are;
//! 3. an index reported as created is there, one reported as dropped is not;
//! 4. `verify` finds nothing, secondary indexes agree with their rows, those too that are built and dropped meanwhile;
//! 5. an index that is emptied and filled by each transaction holds what one of them left, and none before the last acknowledged ([`rounds`]);
//! 6. each counter is the sum of what the transactions that are there say they added to it, once each ([`adds`]);
//! 7. what was prepared is there until it is decided, and is decided as the coordinator's own file says ([`two_phase`]).

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "not part of the engine, never simulated")]

mod adds;
mod child;
mod rounds;
mod two_phase;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use trefoil::{ALL, Database, Error, Value};
use vfs::random::Rng;

/// What the child has been told so far.
#[derive(Default)]
struct Reported {
    /// Transactions acknowledged as `Sync` or `Write`.
    committed: BTreeSet<u64>,
    /// Indexes made and dropped: name to "must be there"; unknown while a change is under way.
    definitions: BTreeMap<String, Option<bool>>,
    /// Transactions of two phases.
    sets: two_phase::Sets,
    /// The last round acknowledged ([`rounds`]).
    round: Option<u64>,
    /// What was added to counters and acknowledged, by the numbers of its rows ([`adds`]).
    added: BTreeSet<u64>,
    /// Where the next child starts to count.
    next: u64,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok());
    match args.first().map(String::as_str) {
        Some("child") => {
            let path = args.get(1).expect("the parent names the database");
            child::work(Path::new(path), number(2).unwrap_or(0), number(3).unwrap_or(0));
            ExitCode::SUCCESS
        }
        Some("kills") => {
            let kills = number(1).unwrap_or(100);
            let seed = number(2).unwrap_or_else(|| u64::from(std::process::id()));
            match run(kills, seed) {
                Ok([transactions, added, prepared]) => {
                    println!(
                        "crash: {kills} kills, {transactions} acknowledged, {added} of counters and {prepared} prepared transactions, none lost \
                         (seed {seed})"
                    );
                    println!("{kills} passed, 0 failed");
                    ExitCode::SUCCESS
                }
                Err(why) => {
                    eprintln!("crash test failed: {why}\nagain: trefoil-crash kills {kills} {seed}");
                    println!("0 passed, 1 failed");
                    ExitCode::FAILURE
                }
            }
        }
        _ => {
            eprintln!("usage: trefoil-crash kills COUNT [SEED]");
            ExitCode::from(2)
        }
    }
}

fn run(kills: u64, seed: u64) -> Result<[usize; 3], String> {
    // On a real file system, so that direct I/O is what is tested; the build directory is on one.
    let base = std::env::current_exe().map_err(|e| e.to_string())?;
    let base = base.parent().expect("a program lies in a directory");
    let dir = tempfile::tempdir_in(base).map_err(|e| e.to_string())?;
    let mut numbers = Rng::new(seed);
    let mut total = [0; 3];
    let mut path = dir.path().join("db0");
    let mut reported = Reported::default();
    for kill in 0..kills {
        // A new database now and then, so that creation is killed too and files stay small.
        if kill % 20 == 19 {
            total = reported.added_to(total);
            let _ = std::fs::remove_dir_all(&path);
            path = dir.path().join(format!("db{kill}"));
            reported = Reported::default();
        }
        // Short lives hit creation and recovery, long ones checkpoints and purging.
        let millis = [5, 30, 120, 500][numbers.index(4)];
        let life = Duration::from_micros(1000 + numbers.below(millis * 1000));
        live(&path, numbers.u64(), life, &mut reported).map_err(|e| format!("kill {kill}: {e}"))?;
        if numbers.below(3) > 0 {
            check(&path, &mut reported, numbers.below(4) == 0).map_err(|e| format!("after kill {kill}: {e}"))?;
        }
    }
    check(&path, &mut reported, true).map_err(|e| format!("at the end: {e}"))?;
    Ok(reported.added_to(total))
}

/// Starts a child, lets it live for a while, kills it and takes its reports.
fn live(path: &Path, seed: u64, life: Duration, reported: &mut Reported) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new(program)
        .arg("child")
        .arg(path)
        .args([seed.to_string(), reported.next.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let pipe = BufReader::new(child.stdout.take().expect("the pipe was asked for"));
    let reader = std::thread::spawn(move || pipe.lines().map_while(Result::ok).collect::<Vec<_>>());
    let start = Instant::now();
    while start.elapsed() < life {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Err(format!("the child ended by itself: {status}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().map_err(|e| e.to_string())?;
    child.wait().map_err(|e| e.to_string())?;
    for line in reader.join().expect("the reader only collects") {
        reported.take(&line);
    }
    Ok(())
}

impl Reported {
    /// Transactions of rows, of counters, of two phases.
    fn added_to(&self, total: [usize; 3]) -> [usize; 3] {
        [total[0] + self.committed.len(), total[1] + self.added.len(), total[2] + self.sets.len()]
    }

    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            // The last line may be torn: the process died while writing it. A torn line has no end mark.
            ["begun", id, "."] => self.next = self.next.max(id.parse::<u64>().expect("a number") + 1),
            ["committed", id, "."] => drop(self.committed.insert(id.parse().expect("a number"))),
            [word @ ("prepared" | "ended"), id, "."] => self.sets.take(word, id.parse().expect("a number")),
            ["added", id, "."] => drop(self.added.insert(id.parse().expect("a number"))),
            ["round", round, "."] => self.round = Some(round.parse().expect("a number")),
            ["changing", name, "."] => drop(self.definitions.insert(name.to_owned(), None)),
            ["created", name, "."] => drop(self.definitions.insert(name.to_owned(), Some(true))),
            ["dropped", name, "."] => drop(self.definitions.insert(name.to_owned(), Some(false))),
            _ => {}
        }
    }
}

fn check(path: &Path, reported: &mut Reported, close: bool) -> Result<(), String> {
    let db = match Database::open(path, child::options()) {
        Ok(db) => db,
        Err(error) => return Err(format!("open: {error}")),
    };
    rounds::check(&db, reported.round)?;
    adds::check(&db, &reported.added)?;
    // A child that was killed early may not have made its table yet.
    match db.table("rows") {
        Err(Error::NotFound { .. }) if reported.committed.is_empty() && reported.sets.len() == 0 => return Ok(()),
        Err(error) => return Err(error.to_string()),
        Ok(_) => {}
    }
    let table = db.table("rows").map_err(|e| e.to_string())?;
    let mut found: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
    let tx = db.begin().map_err(|e| e.to_string())?;
    let mut rows = tx.scan(&table, ALL).map_err(|e| e.to_string())?;
    while let Some(row) = rows.next().map_err(|e| e.to_string())? {
        let (Value::U64(id), Value::U32(of)) = (&row[0], &row[2]) else { return Err(format!("a row {row:?}")) };
        found.entry(*id).or_insert((0, *of)).0 += 1;
    }
    for (id, (there, of)) in &found {
        if there != of {
            return Err(format!("transaction {id} has {there} of {of} rows"));
        }
    }
    if let Some(lost) = reported.committed.iter().find(|id| !found.contains_key(id)) {
        return Err(format!("transaction {lost} was acknowledged and is lost"));
    }
    for (name, state) in &mut reported.definitions {
        let there = db.index(name).is_ok();
        if state.is_some_and(|must| must != there) {
            return Err(format!("index {name}: there: {there}, must be: {state:?}"));
        }
        *state = Some(there);
    }
    drop(rows);
    drop(tx);
    let whole = found.into_iter().map(|(id, (there, _))| (id, there)).collect();
    reported.sets.check(&db, path, &table, &whole)?;
    if close {
        reported.sets.end_some(&db, path)?;
    }
    for (name, report) in db.verify().map_err(|e| e.to_string())? {
        if !report.problems.is_empty() {
            return Err(format!("verify of {name}: {:?}", report.problems));
        }
    }
    if close { db.close().map_err(|e| e.to_string()) } else { Ok(()) }
}
