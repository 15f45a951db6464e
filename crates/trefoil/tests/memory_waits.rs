//! Commits that wait for memory.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use trefoil::{Database, Error, IndexOptions, Structure};
use vfs::sim::SimDisk;

use crate::support::{Entries, all, disk, open, simulate, sleep, sound, spawn};

const ROWS: u64 = 6000;
const VALUE_BYTES: usize = 1000;
const NODE_BYTES: usize = 64 << 10;

/// Two B-trees, `a` and `b`, of which no leaf is in memory; and how many rows are in one.
fn on_disk(disk: &SimDisk) -> (Database, u64) {
    let db = open(disk);
    let make = |name| {
        let of = IndexOptions { structure: Structure::Btree, node_bytes: NODE_BYTES, ..IndexOptions::default() };
        db.create_index(name, of).unwrap()
    };
    let filled = [make("a"), make("b")];
    for first in (0..ROWS).step_by(200) {
        let mut tx = db.begin().unwrap();
        for n in first..first + 200 {
            filled.iter().for_each(|index| tx.put(index, &n.to_be_bytes(), &[1; VALUE_BYTES]).unwrap());
        }
        tx.commit().unwrap();
    }
    // Large commits are runs at first.
    db.settle().unwrap();
    let rows = ROWS / filled[0].stats().leaves;
    drop(filled);
    db.close().unwrap();
    drop(db);
    (open(disk), rows)
}

/// Pages that are free.
fn free(db: &Database) -> u64 {
    let stats = db.stats();
    (stats.budget_bytes - stats.memory.iter().map(|(_, bytes)| bytes).sum::<u64>()) / NODE_BYTES as u64
}

/// Changes a row in every other leaf, so many of each index.
fn commit(db: &Database, first: u64, rows_of_a_leaf: u64, leaves: [u64; 2]) -> Result<(), Error> {
    let mut tx = db.begin()?;
    for (name, leaves) in ["a", "b"].into_iter().zip(leaves) {
        let index = db.index(name)?;
        for n in 0..leaves {
            tx.put(&index, &(first + n * rows_of_a_leaf * 2).to_be_bytes(), &[2; 100])?;
        }
    }
    tx.commit().map(|_| ())
}

fn check_changed(db: &Database, of_each: [u64; 2]) {
    let changed = |entries: Entries| entries.iter().filter(|(_, value)| value[0] == 2).count() as u64;
    assert_eq!(["a", "b"].map(|name| changed(all(db, &db.index(name).unwrap()))), of_each);
    sound(db);
}

/// Three commits of leaves on disk, in two indexes each. Memory is enough for one, and for what all need in their first index, but not for one of
/// them beside what the others have of their first. Guard: a commit gives back what it has of other indexes before it waits.
#[test]
fn a1_commits_do_not_wait_for_memory_that_others_hold_and_wait_with() {
    simulate(|sim| {
        let (db, rows) = on_disk(&disk());
        // Each leaf may take a page for itself and one for a half that is split off.
        let (leaves, free) = (15, free(&db));
        assert!(3 * 2 * leaves < free && free < 4 * 2 * leaves, "{free} pages");
        let commit = |first: u64| {
            let db = db.clone();
            move || commit(&db, first, rows, [leaves; 2])
        };
        let mut held = Vec::new();
        for first in [0, rows] {
            let gate = sim.hold("commit.reserved");
            let thread = spawn("held", commit(first));
            gate.wait_reached();
            held.push((gate, thread));
        }
        let waits = sim.hold("cache.funds_wait");
        let third = spawn("third", commit(40 * rows));
        waits.wait_reached();
        waits.open();
        sleep(5);
        for (gate, thread) in held {
            gate.open();
            sleep(5);
            thread.join().unwrap().unwrap();
        }
        third.join().unwrap().unwrap();
        check_changed(&db, [3 * leaves; 2]);
        db.close().unwrap();
    });
}

/// A commit needs more memory than there is, although each of its indexes would find enough. Guard: it does not wait for it.
#[test]
fn a1_what_is_too_much_to_wait_for_is_attached() {
    simulate(|_| {
        let (db, rows) = on_disk(&disk());
        let leaves = [40, 30];
        assert!((80..140).contains(&free(&db)), "{} pages", free(&db));
        commit(&db, 0, rows, leaves).unwrap();
        assert_eq!(db.stats().cache.waits, 0);
        check_changed(&db, leaves);
        db.close().unwrap();
    });
}
