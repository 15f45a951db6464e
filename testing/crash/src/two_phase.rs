//! Two-phase commit under kills: a coordinator that keeps its decisions in a file of its own, what it reports, and what must
//! be true of its transactions after each kill.
//!
//! The coordinator prepares, writes its decision down and syncs it, and only then commits or rolls back by name; now and then it
//! forgets to decide. Transactions have their number as their name. After a kill:
//!
//! 1. what was reported as prepared is listed, or a decision stands in the file;
//! 2. what is listed shows no row, and its rows are locked;
//! 3. what was decided and is not listed is whole, if it was committed, or not there;
//! 4. what was reported as ended durably is listed no more.
//!
//! Whoever comes next, the parent or the next child, carries out the decisions of the file, decides some of the rest, and leaves
//! some for later lives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use trefoil::{Database, Durability, Error, Locking, Table, Transaction, Value};
use vfs::random::Rng;

use crate::child::{insert, report};

/// The decisions of a coordinator: lines of a number and a word.
pub struct Decisions(Mutex<File>);

impl Decisions {
    fn path(database: &Path) -> PathBuf {
        database.with_extension("decisions")
    }

    /// Opens the file beside a database, to decide more.
    pub fn open(database: &Path) -> std::io::Result<Self> {
        let mut file = File::options().create(true).append(true).open(Self::path(database))?;
        // Ends a line that was torn.
        file.write_all(b"\n")?;
        Ok(Self(Mutex::new(file)))
    }

    /// Durable on return.
    fn decide(&self, id: u64, commits: bool) -> std::io::Result<()> {
        let mut file = self.0.lock().expect("nobody panics with it");
        file.write_all(format!("{id} {} .\n", if commits { "commit" } else { "abort" }).as_bytes())?;
        file.sync_data()
    }

    /// All of them: true for those that commit.
    fn read(database: &Path) -> BTreeMap<u64, bool> {
        let text = std::fs::read_to_string(Self::path(database)).unwrap_or_default();
        let one = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            [id, word @ ("commit" | "abort"), "."] => Some((id.parse().ok()?, word == "commit")),
            _ => None,
        };
        text.lines().filter_map(one).collect()
    }
}

fn listed(db: &Database) -> Result<BTreeSet<u64>, Error> {
    let number = |xid: &[u8]| String::from_utf8_lossy(xid).parse().expect("names are numbers");
    Ok(db.prepared()?.iter().map(|set| number(&set.xid)).collect())
}

/// Works until the process is killed.
pub fn coordinate(db: &Database, table: &Table, next: &AtomicU64, decisions: &Decisions, numbers: &mut Rng) {
    let mut prepared = Vec::new();
    loop {
        let id = next.fetch_add(1, Ordering::Relaxed);
        report(format_args!("begun {id}"));
        let mut tx: Transaction = db.begin().expect("open");
        insert(&mut tx, table, id, numbers);
        tx.prepare(id.to_string().as_bytes()).expect("prepares");
        report(format_args!("prepared {id}"));
        if numbers.below(20) > 0 {
            prepared.push(id);
        }
        if prepared.len() as u64 > numbers.below(4) {
            end_all(db, std::mem::take(&mut prepared), decisions, numbers);
        }
    }
}

/// Decides, writes it down, and ends them: one by one, or committed in an order and finished in another.
fn end_all(db: &Database, ids: Vec<u64>, decisions: &Decisions, numbers: &mut Rng) {
    let mut ordered = Vec::new();
    for id in ids {
        let commits = numbers.below(4) > 0;
        decisions.decide(id, commits).expect("the file is written");
        if commits && numbers.below(2) == 0 {
            let ready = db.ready_prepared(id.to_string().as_bytes()).expect("gets ready");
            ordered.push((id, ready.order()));
        } else {
            end(db, id, commits);
        }
    }
    while !ordered.is_empty() {
        let (id, commit) = ordered.swap_remove(numbers.index(ordered.len()));
        // What is not durable is found prepared after a crash, and the file has the decision.
        let durability = [Durability::Sync, Durability::Write, Durability::Buffered][numbers.index(3)];
        commit.finish(durability).expect("finishes");
        if durability != Durability::Buffered {
            report(format_args!("ended {id}"));
        }
    }
}

fn end(db: &Database, id: u64, commits: bool) {
    let xid = id.to_string();
    match commits {
        true => drop(db.commit_prepared(xid.as_bytes()).expect("commits")),
        false => db.rollback_prepared(xid.as_bytes()).expect("rolls back"),
    }
    report(format_args!("ended {id}"));
}

/// Ends what earlier lives have left, by the file, and some of what that does not know; the rest stays prepared.
pub fn end_old(db: &Database, path: &Path, decisions: &Decisions, numbers: &mut Rng) {
    let decided = Decisions::read(path);
    for id in listed(db).expect("open") {
        match decided.get(&id) {
            Some(commits) => end(db, id, *commits),
            None if numbers.below(2) == 0 => end_all(db, vec![id], decisions, numbers),
            None => {}
        }
    }
}

/// What the parent knows by the reports.
#[derive(Default)]
pub struct Sets {
    prepared: BTreeSet<u64>,
    ended: BTreeSet<u64>,
}

impl Sets {
    /// Takes a report in.
    pub fn take(&mut self, word: &str, id: u64) {
        match word {
            "prepared" => drop(self.prepared.insert(id)),
            "ended" => drop(self.ended.insert(id)),
            _ => unreachable!("{word} is not about a prepared transaction"),
        }
    }

    /// How many were prepared, as far as reported.
    pub fn len(&self) -> usize {
        self.prepared.len()
    }

    /// The rules above; `rows` says how many rows of each transaction are there, which are all of them.
    pub fn check(&self, db: &Database, path: &Path, table: &Table, rows: &BTreeMap<u64, u32>) -> Result<(), String> {
        let (decided, listed) = (Decisions::read(path), listed(db).map_err(|e| e.to_string())?);
        for id in &self.prepared {
            let (is_listed, there) = (listed.contains(id), rows.contains_key(id));
            let why = match decided.get(id) {
                None if !is_listed => "was prepared, never decided, and is not listed",
                _ if is_listed && self.ended.contains(id) => "has ended durably and is listed",
                Some(true) if !is_listed && !there => "was committed and is lost",
                Some(false) if there => "was rolled back and is there",
                _ => continue,
            };
            return Err(format!("transaction {id} {why}"));
        }
        for id in &listed {
            if rows.contains_key(id) {
                return Err(format!("transaction {id} is only prepared and shows"));
            }
            let tx = db.begin().map_err(|e| e.to_string())?;
            let key = [Value::U64(*id), Value::U32(0)];
            match tx.get_row_locked(table, &key, Locking::SHARED.no_wait()) {
                Err(Error::LockBusy { .. }) => {}
                other => return Err(format!("a row of the prepared transaction {id} is not locked: {other:?}")),
            }
        }
        Ok(())
    }

    /// Ends some of what is prepared, as the next coordinator would; then the rules hold for it too.
    pub fn end_some(&mut self, db: &Database, path: &Path) -> Result<(), String> {
        let decided = Decisions::read(path);
        for id in listed(db).map_err(|e| e.to_string())? {
            let Some(commits) = decided.get(&id) else { continue };
            let xid = id.to_string();
            let done = match commits {
                true => db.commit_prepared(xid.as_bytes()).map(drop),
                false => db.rollback_prepared(xid.as_bytes()),
            };
            done.map_err(|e| format!("the end of transaction {id}: {e}"))?;
            self.prepared.insert(id);
            self.ended.insert(id);
        }
        Ok(())
    }
}
