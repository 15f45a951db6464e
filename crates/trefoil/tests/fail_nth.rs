//! Each operation on the disk fails once, one after the other, until a whole life goes through without meeting the
//! fault: nothing acknowledged is lost, nothing is half there, and the next open finds everything sound.
//!
//! A life: creation, definitions, small and large commits, checkpoints, background work, a drop, a backup, a close. Then
//! the same for recovery after a power cut, for cleaning, for a backup and for the rebuild of an index; and a full disk
//! instead of a fault.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test panics on what it does not expect")]

use std::collections::BTreeSet;

use crate::support::*;
use trefoil::{Database, Durability, Error, Options};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::{Config, SimDisk, explore};

/// What a life was told.
#[derive(Default)]
struct Told {
    /// Transactions that are there.
    done: BTreeSet<u32>,
    /// A backup that is whole.
    backup: bool,
    /// The database was closed without an error.
    closed: bool,
}

const ENTRIES: u32 = 6;

fn small(disk: &SimDisk) -> Options {
    Options { budget_bytes: 1 << 20, inline_batch_bytes: 1000, ..options(disk) }
}

/// Transaction `n` in both indexes.
fn commit(db: &Database, told: &mut Told, n: u32) {
    let done = (|| {
        let (a, b) = (db.index("a")?, db.index("b")?);
        let mut tx = db.begin()?;
        // Every third one is a run file.
        let len = if n.is_multiple_of(3) { 400 } else { 20 };
        for i in 0..ENTRIES {
            let key = [n.to_be_bytes(), i.to_be_bytes()].concat();
            tx.put(&a, &key, &vec![n as u8; len])?;
            tx.put(&b, &key, b"")?;
        }
        tx.commit_with(Durability::Sync)
    })();
    if done.is_ok() {
        told.done.insert(n);
    }
}

/// One life. Whatever fails, it goes on, as a program would that only logs its errors.
fn live(disk: &SimDisk) -> Told {
    let mut told = Told::default();
    let Ok(db) = Database::open("/db", small(disk)) else { return told };
    for name in ["a", "b", "c"] {
        let _ = db.create_index(name, small_nodes());
    }
    (0..6).for_each(|n| commit(&db, &mut told, n));
    let _ = db.checkpoint();
    if let Ok(c) = db.index("c") {
        let _ = fill(&db, &c, 0, 100, 50);
    }
    (6..12).for_each(|n| commit(&db, &mut told, n));
    sleep(50);
    let _ = db.settle();
    let _ = db.drop_index("c");
    told.backup = db.checkpoint_to("/copy").is_ok();
    (12..15).for_each(|n| commit(&db, &mut told, n));
    sleep(50);
    told.closed = db.close().is_ok();
    told
}

/// Everything that was told is there, and transactions are whole.
fn judge(db: &Database, told: &BTreeSet<u32>, what: &str) {
    let (indexes, _) = db.names();
    assert!(told.is_empty() || ["a", "b"].iter().all(|name| indexes.iter().any(|n| n == name)), "{what}: {indexes:?}");
    let entries = |name| db.index(name).map(|index| all(db, &index)).unwrap_or_default();
    let (a, b) = (entries("a"), entries("b"));
    let keys = |entries: &Entries| entries.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&a), keys(&b), "{what}: half a transaction");
    let numbers: Vec<u32> = a.iter().map(|(key, _)| u32::from_be_bytes(key[..4].try_into().unwrap())).collect();
    for n in 0..15 {
        let count = numbers.iter().filter(|number| **number == n).count() as u32;
        assert!(count == ENTRIES || (count == 0 && !told.contains(&n)), "{what}: {count} entries of transaction {n}");
    }
    sound(db);
}

/// Seeds of the scheduler: the background meets the fault at other moments. Two, or as many as `TREFOIL_FAULT_SEEDS` says.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("TREFOIL_FAULT_SEEDS").map_or(2, |seeds| seeds.parse().expect("TREFOIL_FAULT_SEEDS is a number"))
}

/// Fails operation `nth` of a life for each `nth`, of which there are `at_least` so many.
fn fail_each(rule: impl Fn(u64) -> Rule + Send + Sync + 'static, power_cut: bool, at_least: u64) {
    let explored = explore(seeds(), &Config { steps_max: 200_000_000, ..Config::default() }, move |_| {
        for nth in 0.. {
            let disk = disk();
            disk.faults().add(rule(nth));
            let told = live(&disk);
            let fired = disk.faults().fired() > 0;
            disk.faults().clear();
            let what = format!("operation {nth}");
            assert!(fired || (told.closed && told.backup && told.done.len() == 15), "{what}: an error without a fault");
            if power_cut {
                disk.power_cut(nth)
            } else {
                disk.process_kill()
            }
            let disk = disk.reboot();
            let db = Database::open("/db", small(&disk)).unwrap_or_else(|error| panic!("{what}: {error}"));
            judge(&db, &told.done, &what);
            if told.backup {
                let copy = Database::open("/copy", Options { create: false, ..small(&disk) }).unwrap();
                judge(&copy, &told.done.iter().copied().filter(|n| *n < 12).collect(), &format!("{what}, backup"));
            }
            if !fired {
                assert!(nth >= at_least, "{nth} operations in a life");
                return;
            }
        }
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
}

#[test]
fn every_operation_fails_once() {
    fail_each(|nth| Rule::new(Action::Eio).nth(nth), true, 200);
}

/// Also for the next two: a full disk stays full for a moment. Nothing is poisoned by it.
#[test]
fn every_allocation_meets_a_full_disk() {
    fail_each(|nth| Rule::new(Action::StorageFull).on(Class::Allocate).nth(nth).times(3), false, 5);
}

/// Recovery after a power cut in the middle meets a fault once, at each place in turn, and the next one succeeds.
fn fail_recovery(rule: impl Fn(u64) -> Rule + Send + Sync + 'static, at_least: u64) {
    let explored = explore(seeds(), &Config { steps_max: 200_000_000, ..Config::default() }, move |_| {
        for nth in 0.. {
            let disk = disk();
            let mut told = Told::default();
            let db = Database::open("/db", small(&disk)).unwrap();
            for name in ["a", "b"] {
                db.create_index(name, small_nodes()).unwrap();
            }
            (0..5).for_each(|n| commit(&db, &mut told, n));
            db.checkpoint().unwrap();
            (5..11).for_each(|n| commit(&db, &mut told, n));
            let disk = cut(&disk, db);
            disk.faults().add(rule(nth));
            let opened = Database::open("/db", small(&disk));
            let fired = disk.faults().fired() > 0;
            disk.faults().clear();
            if let Ok(db) = opened {
                let poisoned = matches!(db.checkpoint(), Err(Error::Poisoned { .. }));
                assert!(fired || !poisoned);
                judge(&db, &told.done, &format!("operation {nth}, opened all the same"));
            } else {
                assert!(fired, "operation {nth}: {:?}", opened.err());
            }
            disk.power_cut(nth);
            let disk = disk.reboot();
            let db = Database::open("/db", small(&disk)).unwrap_or_else(|error| panic!("operation {nth}: {error}"));
            judge(&db, &told.done, &format!("operation {nth}"));
            if !fired {
                assert!(nth > at_least, "{nth} operations in a recovery");
                return;
            }
        }
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
}

#[test]
fn every_operation_of_recovery_fails_once() {
    fail_recovery(|nth| Rule::new(Action::Eio).nth(nth), 30);
}

#[test]
fn every_allocation_of_recovery_meets_a_full_disk() {
    fail_recovery(|nth| Rule::new(Action::StorageFull).on(Class::Allocate).nth(nth).times(2), 1);
}

const ROWS: u64 = 200;
const ALL_ROWS: u64 = 1500;

/// A table whose index is set aside.
fn set_aside(disk: &SimDisk) -> Database {
    let db = Database::open("/db", small(disk)).unwrap();
    let rows = table(&db, "rows");
    db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
    (0..ROWS).step_by(50).for_each(|id| insert(&db, &rows, id..id + 50).unwrap());
    trefoil::fuzzing::note_damage(&db, 2);
    db.settle().unwrap();
    assert_eq!(db.stats().quarantined, ["rows.by_colour"]);
    // What was freed is not enough for what follows.
    (ROWS..ALL_ROWS).step_by(50).for_each(|id| insert(&db, &rows, id..id + 50).unwrap());
    db
}

/// A rebuild meets a fault once, at each place in turn: the index is set aside or made, and can be made then.
fn fail_rebuild(rule: impl Fn(u64) -> Rule + Send + Sync + 'static, poisons: bool, at_least: u64) {
    let explored = explore(0..2, &Config { steps_max: 200_000_000, ..Config::default() }, move |_| {
        for nth in 0.. {
            let disk = disk();
            let db = set_aside(&disk);
            let rows = db.table("rows").unwrap();
            disk.faults().add(rule(nth));
            let rebuilt = db.rebuild_index(&rows, "by_colour");
            let fired = disk.faults().fired() > 0;
            disk.faults().clear();
            let what = format!("operation {nth}: {rebuilt:?}");
            assert!(fired || rebuilt.is_ok(), "{what}: an error without a fault");
            if !poisons {
                // It goes on by itself, once it has looked at the disk again.
                sleep(100);
                insert(&db, &rows, 5000 + nth..5001 + nth).unwrap();
                db.rebuild_index(&rows, "by_colour").unwrap_or_else(|error| panic!("{what}, then {error}"));
                assert_eq!(indexed(&db, &rows) as u64, ALL_ROWS + 1, "{what}");
                db.settle().unwrap();
                sound(&db);
            }
            drop(rows);
            let disk = cut(&disk, db);
            let db = Database::open("/db", small(&disk)).unwrap_or_else(|error| panic!("{what}: {error}"));
            let rows = db.table("rows").unwrap();
            let is_made = db.stats().quarantined.is_empty();
            // A commit whose outcome is not known may be there.
            assert!(is_made || rebuilt.is_err(), "{what}: told and lost");
            if !is_made {
                db.rebuild_index(&rows, "by_colour").unwrap();
            }
            assert_eq!(indexed(&db, &rows) as u64, ALL_ROWS + u64::from(!poisons), "{what}");
            db.settle().unwrap();
            sound(&db);
            if !fired {
                assert!(nth >= at_least, "{nth} operations of a rebuild");
                return;
            }
        }
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
}

#[test]
fn every_operation_of_a_rebuild_fails_once() {
    fail_rebuild(|nth| Rule::new(Action::Eio).nth(nth), true, 8);
}

#[test]
fn every_allocation_of_a_rebuild_meets_a_full_disk() {
    fail_rebuild(|nth| Rule::new(Action::StorageFull).on(Class::Allocate).nth(nth).times(2), false, 1);
}

/// The disk is full for each allocation in turn while a backup runs, in the source or in the copy: it is refused or whole,
/// and the next one succeeds.
#[test]
fn every_allocation_beside_a_backup_meets_a_full_disk() {
    let explored = explore(seeds(), &Config { steps_max: 200_000_000, ..Config::default() }, |_| {
        for nth in 0.. {
            let disk = disk();
            let db = Database::open("/db", small(&disk)).unwrap();
            let mut told = Told::default();
            for name in ["a", "b"] {
                db.create_index(name, small_nodes()).unwrap();
            }
            (0..15).for_each(|n| commit(&db, &mut told, n));
            disk.faults().add(Rule::new(Action::StorageFull).on(Class::Allocate).nth(nth).times(2));
            let done = db.checkpoint_to("/first");
            let fired = disk.faults().fired() > 0;
            disk.faults().clear();
            let what = format!("allocation {nth}: {done:?}");
            assert!(fired || done.is_ok(), "{what}");
            db.checkpoint_to("/second").unwrap_or_else(|error| panic!("{what}, then {error}"));
            judge(&db, &told.done, &what);
            for path in ["/first", "/second"] {
                match Database::open(path, Options { create: false, ..small(&disk) }) {
                    Ok(copy) => judge(&copy, &told.done, &what),
                    Err(Error::NotADatabase { .. }) if path == "/first" && done.is_err() => {}
                    Err(error) => panic!("{what}: {error}"),
                }
            }
            if !fired {
                assert!(nth >= 1, "{nth} allocations beside a backup");
                return;
            }
        }
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
}

/// An index of which little is left in each extent, opened anew, and what is in it.
fn sparse(disk: &SimDisk) -> (Database, Entries) {
    let quiet = Options { background: false, ..small(disk) };
    let db = Database::open("/db", quiet.clone()).unwrap();
    let i = index(&db, "i");
    (0..6).for_each(|n| fill(&db, &i, n * 50, n * 50 + 50, 100).unwrap());
    db.settle().unwrap();
    (0..6).for_each(|n| fill(&db, &i, n * 50, n * 50 + 40, 90).unwrap());
    db.checkpoint().unwrap();
    let entries = all(&db, &i);
    (db, entries)
}

/// Settles until cleaning has nothing to do, or an error.
fn clean(db: &Database) -> Result<(), Error> {
    for _ in 0..3 {
        db.settle()?;
        sleep(40);
    }
    Ok(())
}

fn fail_cleaning(rule: impl Fn(u64) -> Rule + Send + Sync + 'static, poisons: bool, at_least: u64) {
    let explored = explore(0..1, &Config { steps_max: 200_000_000, ..Config::default() }, move |_| {
        for nth in 0.. {
            let disk = disk();
            let (db, entries) = sparse(&disk);
            let leaves_written = || db.index("i").unwrap().stats().writes;
            let before = leaves_written();
            disk.faults().add(rule(nth));
            let cleaned = clean(&db);
            let fired = disk.faults().fired() > 0;
            disk.faults().clear();
            let what = format!("operation {nth}: {cleaned:?}");
            assert!(fired || cleaned.is_ok(), "{what}: an error without a fault");
            let i = db.index("i").unwrap();
            assert_eq!(all(&db, &i), entries, "{what}");
            if !poisons {
                // It goes on by itself.
                clean(&db).unwrap();
                fill(&db, &i, 5000, 5001, 10).unwrap();
                sound(&db);
            }
            // Nothing changed but where leaves lie.
            assert!(leaves_written() > before || cleaned.is_err(), "{what}: nothing was cleaned");
            drop(i);
            let disk = cut(&disk, db);
            let db = Database::open("/db", small(&disk)).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = all(&db, &db.index("i").unwrap());
            assert!(found.len() >= entries.len() && entries.iter().all(|entry| found.contains(entry)), "{what}");
            sound(&db);
            if !fired {
                assert!(nth >= at_least, "{nth} operations of cleaning");
                return;
            }
        }
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
}

#[test]
fn every_operation_of_cleaning_fails_once() {
    fail_cleaning(|nth| Rule::new(Action::Eio).nth(nth), true, 20);
}

#[test]
fn every_allocation_of_cleaning_meets_a_full_disk() {
    fail_cleaning(|nth| Rule::new(Action::StorageFull).on(Class::Allocate).nth(nth).times(2), false, 1);
}

/// Each operation in the place of the copy fails, or finds the disk full: the copy is no database, the source none the
/// worse, and the next backup succeeds.
#[test]
fn every_operation_of_a_backup_fails_once() {
    for action in [Action::Eio, Action::StorageFull] {
        let explored = explore(0..1, &Config { steps_max: 200_000_000, ..Config::default() }, move |_| {
            let disk = disk();
            let db = Database::open("/db", small(&disk)).unwrap();
            let mut told = Told::default();
            for name in ["a", "b"] {
                db.create_index(name, small_nodes()).unwrap();
            }
            (0..15).for_each(|n| commit(&db, &mut told, n));
            for nth in 0.. {
                let path = format!("/copy-{nth}/of");
                let fired = disk.faults().fired();
                disk.faults().add(Rule::new(action).path(&path).nth(nth));
                let done = db.checkpoint_to(&path);
                let fired = disk.faults().fired() > fired;
                disk.faults().clear();
                let what = format!("operation {nth}: {done:?}");
                assert!(fired == done.is_err(), "{what}");
                let copy = Database::open(&path, Options { create: false, ..small(&disk) });
                match copy {
                    Ok(copy) => judge(&copy, &told.done, &what),
                    Err(Error::NotADatabase { .. }) if done.is_err() => {}
                    Err(error) => panic!("{what}: {error}"),
                }
                judge(&db, &told.done, &what);
                db.checkpoint().unwrap();
                if !fired {
                    assert!(nth > 20, "{nth} operations of a backup");
                    return;
                }
            }
        });
        if let Err(failure) = explored {
            panic!("{failure}");
        }
    }
}
