//! GC debt: leaves that are at least half dead are collected when nobody needs what is dead in them, not before; until then
//! they are nobody's debt.

#![allow(clippy::unwrap_used)]

use crate::common::{Rig, Setup, Write, key};
use index::{Index, IndexStats, ReadAt};

const ROWS: u64 = 2_000;

fn all_rows(value: u8) -> Vec<Write> {
    (0..ROWS).map(|n| (key(n), Some(vec![value; 20]))).collect()
}

fn stats(rig: &Rig) -> IndexStats {
    rig.tree.stats()
}

/// Every row overwritten under an open snapshot, all leaves on disk.
fn pinned() -> Rig {
    let rig = Rig::new(Setup::default());
    rig.commit(all_rows(1));
    let snapshot = rig.now();
    rig.snapshots.lock().push(snapshot);
    rig.commit(all_rows(2));
    rig.checkpoint();
    rig.evict_all();
    rig
}

/// Twice: what is collected is dirty, and a checkpoint writes it.
fn settle(rig: &Rig) {
    for _ in 0..2 {
        rig.maintain_fully();
        rig.checkpoint();
    }
}

fn assert_collected(rig: &Rig) {
    assert_eq!((stats(rig).dead_versions, stats(rig).gc_debt_bytes), (0, 0), "{:?}", stats(rig));
    assert!((0..ROWS).all(|n| rig.newest(key(n)) == Some(vec![2; 20])));
    rig.verify();
}

#[test]
fn what_a_snapshot_pins_is_no_debt_and_is_collected_when_it_ends() {
    let rig = pinned();
    let loads = stats(&rig).loads;
    settle(&rig);
    assert_eq!((stats(&rig).dead_versions, stats(&rig).gc_debt_bytes), (ROWS, 0), "{:?}", stats(&rig));
    assert_eq!(stats(&rig).loads, loads, "nothing is read for what cannot be collected");
    let snapshot = rig.snapshots.lock()[0];
    assert_eq!(rig.get(ReadAt::Snapshot(snapshot), key(7)), Some(vec![1; 20]));
    rig.snapshots.lock().clear();
    // The first step finds that it is due; the debt falls with every step.
    rig.maintain();
    let (owed, paid) = (stats(&rig).gc_debt_bytes, stats(&rig).gc_paid_bytes);
    assert!(owed > 50 << 10, "{owed} bytes");
    rig.maintain();
    assert!(stats(&rig).gc_debt_bytes < owed && stats(&rig).gc_paid_bytes > paid, "{:?}", stats(&rig));
    settle(&rig);
    assert_collected(&rig);
    assert_collected(&rig.reopen(true));
}

#[test]
fn what_an_undrained_run_holds_back_is_no_debt() {
    let rig = Rig::new(Setup::default());
    rig.commit(all_rows(1));
    rig.maintain_fully();
    rig.attach((0..ROWS).step_by(2).map(|n| (key(n), Some(vec![3; 20]))).collect());
    // Newer than the run: until it is drained, neither of the two versions of a row may go.
    rig.commit(all_rows(2));
    rig.evict_all();
    assert_eq!(stats(&rig).gc_debt_bytes, 0, "{:?}", stats(&rig));
    settle(&rig);
    assert_collected(&rig);
}

#[test]
fn a_leaf_that_was_mostly_dead_on_disk_is_found_again() {
    let rig = pinned().reopen(true);
    rig.snapshots.lock().clear();
    // Inner nodes are loaded when they are needed.
    assert_eq!(rig.keys().len() as u64, ROWS);
    rig.evict_all();
    settle(&rig);
    assert_collected(&rig);
    assert!(stats(&rig).gc_paid_bytes > 50 << 10, "moved by cleaning: {:?}", stats(&rig));
}
