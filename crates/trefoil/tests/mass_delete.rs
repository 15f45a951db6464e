//! The first key behind a mass delete [C7]: who asks for it next has it at once, with an old snapshot open, and each time after; in every structure.
//!
//! `TREFOIL_DESERT_ROWS=1000000` for that many; then LSM indexes alone, since of one transaction trees clear away 2^18 deletes before the reply, and
//! leave the rest to upkeep.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::time::Duration;

use trefoil::{Database, Durability, Index, IndexOptions, Options, Structure};
use vfs::time::Instant;

fn rows() -> u64 {
    std::env::var("TREFOIL_DESERT_ROWS").map_or(40_000, |rows| rows.parse().expect("a number of rows"))
}

fn structures() -> Vec<Structure> {
    let mut all = vec![Structure::Btree, Structure::Betree, Structure::Lsm];
    all.retain(|structure| *structure == Structure::Lsm || rows() <= 1 << 18);
    all
}

/// Deletes of one transaction.
const AT_ONCE: usize = 4000;
/// What a read may take that is not the first one: the least of five, since others use the machine, too. What the first one takes is counted, for
/// an LSM index, and for a tree judged by the time of its thread elsewhere (`crates/tree/tests`).
const LATER: Duration = Duration::from_millis(1);
/// Entries of an LSM index that a read may pass over: its first steps, before it comes to what it can hop over.
const PASSED_MAX: u64 = 3000;

fn options() -> Options {
    Options {
        budget_bytes: 256 << 20,
        durability: Durability::Buffered,
        lock_timeout: Duration::from_secs(60),
        ..Options::default()
    }
}

/// The first key, and what it took.
fn min_key(db: &Database, index: &Index) -> (u64, Duration) {
    let began = Instant::now();
    let snapshot = db.snapshot().unwrap();
    let key = snapshot.range(index, ..).unwrap().next().unwrap().unwrap().0.to_vec();
    (u64::from_be_bytes(key.try_into().unwrap()), began.elapsed())
}

struct Took {
    first: Duration,
    later: Duration,
    passed: u64,
}

fn look(db: &Database, index: &Index, expected: u64) -> Took {
    let before = index.stats().passed;
    let (found, first) = min_key(db, index);
    assert_eq!(found, expected);
    let later = (0..5).map(|_| min_key(db, index)).inspect(|(found, _)| assert_eq!(*found, expected));
    let later = later.map(|(_, took)| took).min().unwrap();
    Took { first, later, passed: index.stats().passed - before }
}

fn check(structure: Structure, deletes: usize) {
    let (rows, left) = (rows(), rows() / 100);
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let index = db.create_index("rows", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
    let all: Vec<u64> = (0..rows).collect();
    for some in all.chunks(10_000) {
        let mut tx = db.begin().unwrap();
        some.iter().for_each(|n| tx.put(&index, &n.to_be_bytes(), &[*n as u8; 60]).unwrap());
        tx.commit().unwrap();
    }
    let old = db.snapshot().unwrap();
    for some in all[..(rows - left) as usize].chunks(deletes) {
        let mut tx = db.begin().unwrap();
        some.iter().for_each(|n| assert!(tx.delete(&index, &n.to_be_bytes()).unwrap()));
        tx.commit().unwrap();
    }
    let judge = |took: &Took, when: &str| {
        let way = format!("{structure:?}, {deletes} a transaction, {when}");
        eprintln!("{way}: first {:?}, later {:?}, passed over in six reads {}", took.first, took.later, took.passed);
        assert!(took.passed <= 6 * PASSED_MAX, "{} passed over: {way}", took.passed);
        assert!(took.later <= LATER, "{way}: {:?} {:?}", took.first, took.later);
    };
    judge(&look(&db, &index, rows - left), "at once");
    let kept = old.range(&index, ..).unwrap().next().unwrap().unwrap().0.to_vec();
    assert_eq!(kept, 0u64.to_be_bytes(), "the old snapshot has them all");
    // While others put rows back, and once it is in runs and leaves.
    for n in (0..rows - left).rev().step_by((rows / 20) as usize) {
        let mut tx = db.begin().unwrap();
        tx.put(&index, &n.to_be_bytes(), b"again").unwrap();
        tx.commit().unwrap();
        judge(&look(&db, &index, n), "a row was put back");
        let mut tx = db.begin().unwrap();
        tx.delete(&index, &n.to_be_bytes()).unwrap();
        tx.commit().unwrap();
    }
    db.settle().unwrap();
    judge(&look(&db, &index, rows - left), "in shape");
    drop((old, index));
    db.close().unwrap();
    drop(db);
    let db = Database::open(dir.path(), options()).unwrap();
    let index = db.index("rows").unwrap();
    judge(&look(&db, &index, rows - left), "after a reopening");
    for (name, report) in db.verify().unwrap() {
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
    }
}

#[test]
fn c7_min_key_behind_deletes_of_some_thousand() {
    for structure in structures() {
        check(structure, AT_ONCE);
    }
}

#[test]
fn c7_min_key_behind_one_delete() {
    for structure in structures() {
        check(structure, usize::MAX);
    }
}
