//! P4: who waits to delete on a full disk is not kept longer than he wants, and takes nothing from anybody else.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::time::Duration;

use crate::support::*;
use trefoil::{Canceller, Database, Durability, Error, Index, IndexOptions, Options, Structure, Transaction};
use vfs::fault::{Action, Class, Rule};
use vfs::random::Rng;
use vfs::sim::SimDisk;
use vfs::thread::JoinHandle;
use vfs::time::Instant;

/// A data file that is full of rows which do not compress, and a transaction that has deleted as many of them as it may: until it ends the
/// next delete waits in vain.
struct Full {
    db: Database,
    index: Index,
    rows: u32,
    _held: Transaction,
}

fn full(disk: &SimDisk) -> Full {
    let (db, index) = open_limited(disk);
    let (rows, mut tx) = (fill_up(&db, &index), db.begin().unwrap());
    let refused = (0..rows - 1).find_map(|key| tx.delete(&index, &key.to_be_bytes()).err());
    assert!(matches!(refused, Some(Error::DiskFull { .. })), "{refused:?} of {rows}");
    // Whoever comes right behind one that was refused does not wait.
    sleep(1500);
    Full { db, index, rows, _held: tx }
}

fn open_limited(disk: &SimDisk) -> (Database, Index) {
    let limited = Options { budget_bytes: 4 << 20, data_bytes_max: Some(4 << 20), ..options(disk) };
    let db = Database::open("/db", limited).unwrap();
    let own = IndexOptions { structure: Structure::Btree, node_bytes: 16 << 10, ..IndexOptions::default() };
    let index = db.create_index("i", own).unwrap();
    (db, index)
}

/// Until no checkpoint brings room back; how many rows.
fn fill_up(db: &Database, index: &Index) -> u32 {
    let mut rng = Rng::new(1);
    let (mut rows, mut at_rest) = (0u32, 0);
    while at_rest < 3 {
        let mut tx = db.begin().unwrap();
        let put = (rows..rows + 64).try_for_each(|key| {
            let value: Vec<u8> = (0..25).flat_map(|_| rng.u64().to_be_bytes()).collect();
            tx.put(index, &key.to_be_bytes(), &value)
        });
        match put {
            Ok(()) => {
                tx.commit_with(Durability::Write).unwrap();
                (rows, at_rest) = (rows + 64, 0);
            }
            Err(Error::DiskFull { .. }) => {
                at_rest += 1;
                sleep(500);
            }
            Err(error) => panic!("{error}"),
        }
    }
    rows
}

/// Another transaction deletes a row, and waits: how that ends, and when.
fn waits(full: &Full) -> (Canceller, JoinHandle<(Error, Duration)>) {
    let (mut tx, index, key) = (full.db.begin().unwrap(), full.index.clone(), full.rows - 1);
    let (canceller, began) = (tx.canceller(), Instant::now());
    let thread = spawn("waits", move || (tx.delete(&index, &key.to_be_bytes()).unwrap_err(), began.elapsed()));
    sleep(300);
    assert!(!thread.is_finished(), "it waits");
    (canceller, thread)
}

/// Who waits ends when he is told to, and when the database closes. Guards: both are looked at.
#[test]
fn p4_a_delete_that_waits_for_room_can_be_ended() {
    simulate(|_| {
        let disk = disk();
        let full = full(&disk);
        let (canceller, thread) = waits(&full);
        canceller.cancel();
        let (error, took) = thread.join().unwrap();
        assert!(matches!(error, Error::Cancelled) && took < Duration::from_millis(600), "{error:?} after {took:?}");
        let (_, thread) = waits(&full);
        full.db.close().unwrap();
        let (error, took) = thread.join().unwrap();
        assert!(matches!(error, Error::Closed) && took < Duration::from_millis(1000), "{error:?} after {took:?}");
    });
}

/// What deletes here and there took from cleaning comes back, though nobody deletes any more, so that other writes are let in. Guard:
/// extents are emptied for what was taken.
#[test]
fn p4_what_deletes_took_is_brought_back() {
    simulate(|_| {
        let disk = disk();
        let (db, index) = open_limited(&disk);
        let rows = fill_up(&db, &index);
        for n in 0..rows / 20 {
            let mut tx = db.begin().unwrap();
            let key = n.wrapping_mul(2_654_435_761) % rows;
            tx.delete(&index, &key.to_be_bytes()).unwrap();
            tx.commit_with(Durability::Write).unwrap();
        }
        let waited = (0..100).take_while(|_| {
            let is_refused = put(&db, &index, b"again", b"1", Durability::Sync).is_err();
            if is_refused {
                sleep(100);
            }
            is_refused
        });
        assert!(waited.count() < 100, "nothing comes back of {} rows", rows / 20);
        sound(&db);
    });
}

/// While a backup holds back what is freed, a delete needs as much room as another write. Guard: it is asked whether somebody does.
#[test]
fn p4_a_delete_beside_a_backup_needs_room() {
    simulate(|sim| {
        let disk = disk();
        let (db, index) = open_limited(&disk);
        let rows = fill_up(&db, &index);
        let gate = sim.hold("backup.copying");
        let copied = db.clone();
        let backup = spawn("backup", move || copied.checkpoint_to("/copy/of"));
        gate.wait_reached();
        let mut tx = db.begin().unwrap();
        let is_full = |done: Result<bool, Error>| matches!(done, Err(Error::DiskFull { .. }));
        let let_in =
            (0..1000u32).take_while(|n| !is_full(tx.put(&index, &n.to_le_bytes(), b"1").map(|()| true))).count();
        assert!(let_in < 1000, "a write is refused");
        let refused = tx.delete(&index, &(rows - 1).to_be_bytes());
        assert!(is_full(refused), "and a delete is");
        tx.rollback();
        gate.open();
        backup.join().unwrap().unwrap();
    });
}

/// A checkpoint that is done is not undone by one for those who wait. Guard: a full disk behind it is not its error.
#[test]
fn p4_a_checkpoint_does_not_fail_for_those_who_wait() {
    simulate(|sim| {
        let disk = disk();
        let (db, index) = open_limited(&disk);
        let rows = fill_up(&db, &index);
        let gate = sim.hold("checkpoint.makes_room");
        for n in (0..rows).take_while(|_| !gate.is_reached()) {
            let mut tx = db.begin().unwrap();
            let key = n.wrapping_mul(2_654_435_761) % rows;
            // In vain once the checkpoint is held up.
            if tx.delete(&index, &key.to_be_bytes()).is_ok() {
                tx.commit_with(Durability::Write).unwrap();
            }
        }
        gate.wait_reached();
        disk.faults().add(Rule::new(Action::StorageFull).path("MANIFEST").on(Class::Write));
        let before = db.stats().disk_full;
        gate.open();
        sleep(500);
        assert_eq!((disk.faults().fired(), db.stats().disk_full - before), (1, 0));
    });
}
