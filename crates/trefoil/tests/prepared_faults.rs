//! Each operation on the disk fails once while transactions are prepared, forgotten over checkpoints and decided, and while
//! they are found again: what was told is true, and what was prepared is committed, rolled back or prepared, whole.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::damage::block_of;
use crate::support::surgery::{DIR, rot};
use crate::support::*;
use trefoil::{Database, Durability, Error, Index, Locking, Options};
use vfs::fault::{Action, Rule};
use vfs::sim::{Config, SimDisk, explore};

/// What is known of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Prepared,
    Committed,
    RolledBack,
    /// A prepare or a rollback of unknown outcome.
    PreparedOrNot,
    /// A commit of unknown outcome, or one that a server's log would repeat.
    CommittedOrPrepared,
}

const NAMES: [u8; 6] = [0, 1, 2, 3, 4, 5];
const ENTRIES: u32 = 12;

fn small(disk: &SimDisk) -> Options {
    Options { inline_batch_bytes: 400, ..options(disk) }
}

/// Of every second one the writes are a run file.
fn prepare(db: &Database, index: &Index, name: u8) -> Result<(), Error> {
    let mut tx = db.begin()?;
    for n in 0..ENTRIES {
        let key = [&[name][..], &n.to_be_bytes()].concat();
        tx.put(index, &key, &vec![name; if name.is_multiple_of(2) { 2 } else { 60 }])?;
    }
    tx.prepare(&[name])
}

/// A life; what it was told of each.
fn live(disk: &SimDisk) -> BTreeMap<u8, Told> {
    let mut told = BTreeMap::new();
    let Ok(db) = Database::open("/db", small(disk)) else { return told };
    let Ok(i) = db.create_index("i", small_nodes()) else { return told };
    for name in NAMES {
        match prepare(&db, &i, name) {
            Ok(()) => drop(told.insert(name, Told::Prepared)),
            Err(Error::CommitOutcomeUnknown { .. }) => drop(told.insert(name, Told::PreparedOrNot)),
            Err(_) => {}
        }
    }
    (0..3).for_each(|_| drop(db.checkpoint()));
    for name in NAMES.into_iter().filter(|name| told.get(name) == Some(&Told::Prepared)).collect::<Vec<_>>() {
        let (before, unknown) = (told[&name], Told::CommittedOrPrepared);
        let now = match name {
            0 | 1 => match db.commit_prepared(&[name]) {
                Ok(_) => Told::Committed,
                Err(Error::CommitOutcomeUnknown { .. }) => unknown,
                Err(_) => before,
            },
            2 | 3 => match db.rollback_prepared(&[name]) {
                Ok(()) => Told::RolledBack,
                Err(Error::CommitOutcomeUnknown { .. }) => Told::PreparedOrNot,
                Err(_) => before,
            },
            4 => db.ready_prepared(&[name]).map(|ready| drop(ready.order())).map_or(before, |()| unknown),
            _ => before,
        };
        told.insert(name, now);
        let _ = put(&db, &i, &[100 + name], b"", Durability::Buffered);
        let _ = db.checkpoint();
    }
    told
}

/// What is found is what was told, and what is prepared can be decided.
fn judge(db: &Database, told: &BTreeMap<u8, Told>, what: &str) {
    let Ok(i) = db.index("i") else {
        assert!(told.is_empty(), "{what}");
        return;
    };
    let listed: Vec<u8> = db.prepared().unwrap().iter().map(|waiting| waiting.xid[0]).collect();
    let entries = |name: u8| all(db, &i).into_iter().filter(|(key, _)| key[0] == name && key.len() == 5).count() as u32;
    for name in NAMES {
        let (is_prepared, count) = (listed.contains(&name), entries(name));
        assert!(
            count == 0 || (count == ENTRIES && !is_prepared),
            "{what}: {name} has {count}, prepared: {is_prepared}"
        );
        let is_there = count > 0;
        let fits = match told.get(&name) {
            None | Some(Told::RolledBack) => !is_prepared && !is_there,
            Some(Told::Prepared) => is_prepared,
            Some(Told::Committed) => is_there,
            Some(Told::PreparedOrNot) => !is_there,
            Some(Told::CommittedOrPrepared) => is_there || is_prepared,
        };
        assert!(fits, "{what}: {name} was {:?}; there: {is_there}, prepared: {is_prepared}", told.get(&name));
    }
    for name in listed {
        let key = [&[name][..], &3u32.to_be_bytes()].concat();
        let locked = db.begin().unwrap().get_locked(&i, &key, Locking::SHARED.no_wait());
        assert!(matches!(locked, Err(Error::LockBusy { .. })), "{what}: {locked:?}");
        db.commit_prepared(&[name]).unwrap();
        assert_eq!(entries(name), ENTRIES, "{what}");
    }
    sound(db);
}

#[test]
fn every_operation_of_two_phases_fails_once() {
    let explored = explore(0..3, &Config { steps_max: 200_000_000, ..Config::default() }, |_| {
        for nth in 0.. {
            let disk = disk();
            disk.faults().add(Rule::new(Action::Eio).nth(nth));
            let told = live(&disk);
            let fired = disk.faults().fired() > 0;
            disk.faults().clear();
            disk.power_cut(nth);
            let disk = disk.reboot();
            let what = format!("operation {nth}");
            let db = Database::open("/db", small(&disk)).unwrap_or_else(|error| panic!("{what}: {error}"));
            judge(&db, &told, &what);
            if !fired {
                assert!(nth > 60, "{nth} operations in a life");
                return;
            }
        }
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
}

/// The same for the opening that finds them, which leaves no lock behind if it fails.
#[test]
fn every_operation_of_finding_what_is_prepared_fails_once() {
    let explored = explore(0..2, &Config { steps_max: 200_000_000, ..Config::default() }, |_| {
        for nth in 0.. {
            let disk = disk();
            let told = live(&disk);
            disk.power_cut(nth);
            let disk = disk.reboot();
            disk.faults().add(Rule::new(Action::Eio).nth(nth));
            let opened = Database::open("/db", small(&disk));
            let fired = disk.faults().fired() > 0;
            disk.faults().clear();
            assert!(fired || opened.is_ok());
            drop(opened);
            disk.power_cut(nth);
            let disk = disk.reboot();
            let what = format!("operation {nth}");
            let db = Database::open("/db", small(&disk)).unwrap_or_else(|error| panic!("{what}: {error}"));
            judge(&db, &told, &what);
            if !fired {
                assert!(nth > 30, "{nth} operations in an opening");
                return;
            }
        }
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
}

/// An index that damage keeps from taking a commit in needs the log from there; of a commit by name that is its prepare record.
/// So it does over every opening until the damage is gone. Guard: recovery tells of the sets that were committed.
#[test]
fn a7_the_prepare_record_stays_for_an_index_that_is_only_read() {
    simulate(|_| {
        let disk = disk();
        let quiet = |disk: &SimDisk| Options { background: false, ..options(disk) };
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let (other, damaged) = (index(&db, "other"), index(&db, "damaged"));
        (0..1500).step_by(300).for_each(|from| fill(&db, &damaged, from, from + 300, 20).unwrap());
        db.close().unwrap();
        drop((db, other, damaged));
        let at = Path::new(DIR).join("data.trefoil");
        let block = block_of(&disk, 2, (0, 3)).offset as usize;
        // The commit comes behind the last checkpoint, and meets a sound leaf.
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let (other, damaged) = (db.index("other").unwrap(), db.index("damaged").unwrap());
        let mut tx = db.begin().unwrap();
        (0..1500u32).step_by(10).for_each(|n| tx.put(&damaged, &n.to_be_bytes(), b"new").unwrap());
        tx.prepare(b"one").unwrap();
        put(&db, &other, b"between", b"", Durability::Sync).unwrap();
        db.commit_prepared(b"one").unwrap();
        drop((other, damaged));
        let disk = cut(&disk, db);
        rot(&disk, &at, |bytes| bytes[block + 70] ^= 8);
        let mut disk = disk;
        for opening in 0..3 {
            let db = Database::open(DIR, quiet(&disk)).unwrap();
            assert_eq!(db.stats().damaged, ["damaged"], "opening {opening}");
            let other = db.index("other").unwrap();
            put(&db, &other, b"k", b"v", Durability::Sync).unwrap();
            db.checkpoint().unwrap();
            drop(other);
            disk = cut(&disk, db);
        }
        rot(&disk, &at, |bytes| bytes[block + 70] ^= 8);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let damaged = db.index("damaged").unwrap();
        (0..1500u32).step_by(10).for_each(|n| assert_eq!(get(&db, &damaged, &n.to_be_bytes()).unwrap(), b"new"));
        sound(&db);
    });
}
