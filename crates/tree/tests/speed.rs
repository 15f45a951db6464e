//! What an operation costs on one core with everything in memory: small in the tests, so that it never rots;
//! `TREFOIL_ROWS=1000000 cargo test --release -p trefoil-tree --test speed -- --nocapture` measures.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]
#![allow(clippy::disallowed_methods)]

mod common;

use std::ops::Bound;
use std::time::Duration;

use base::{CommitTs, GcView};
use common::{Numbers, Rig, Setup, processor_time};
use index::{Batch, BatchBuilder, Direction, EntryBatch, Index, Op, ReadAt, Reservation};

/// Rows; `TREFOIL_ROWS` says otherwise.
fn rows() -> u64 {
    std::env::var("TREFOIL_ROWS").map_or(10_000, |rows| rows.parse().unwrap())
}

fn batch(keys: impl Iterator<Item = u64>) -> Batch {
    let mut builder = BatchBuilder::new();
    for n in keys {
        builder.push(&n.to_be_bytes(), Op::Put(&[b'v'; 60]));
    }
    builder.finish()
}

fn apply(rig: &Rig, batch: &Batch, ts: u64) {
    match rig.tree.reserve(batch).unwrap() {
        Reservation::Direct(reserved) => {
            rig.tree.apply(batch, reserved, CommitTs(ts), &GcView::new(CommitTs(ts - 16), Vec::new()));
        }
        Reservation::TooCold => panic!("everything is in memory"),
    }
}

fn per(what: &str, started: Duration, operations: u64) {
    println!("{what:<32} {:8.0} ns", (processor_time() - started).as_nanos() as f64 / operations as f64);
}

#[test]
fn operations() {
    let rig =
        Rig::new(Setup { node_bytes: 16 << 10, budget_bytes: 1 << 30, extent_bytes: 4 << 20, ..Setup::default() });
    let rows = rows();
    let mut ts = 16;
    let started = processor_time();
    for from in (0..rows).step_by(100) {
        ts += 16;
        apply(&rig, &batch((from..from + 100).map(|n| n * 16)), ts);
    }
    per("append, batches of 100", started, rows);
    println!("{:?}", rig.tree.stats());

    let mut numbers = Numbers(1);
    let keys: Vec<_> = (0..rows).map(|_| (numbers.below(rows) * 16).to_be_bytes()).collect();
    let started = processor_time();
    let mut found = 0;
    for key in &keys {
        rig.tree.get_many(ReadAt::Snapshot(CommitTs(ts)), &[key], &mut |_, _, _| found += 1).unwrap();
    }
    assert_eq!(found, rows);
    per("get", started, rows);

    let started = processor_time();
    let mut out = EntryBatch::new();
    for key in keys.iter().cycle().take((rows / 5) as usize) {
        let range = (Bound::Included(key.as_slice()), Bound::Unbounded);
        rig.tree.cursor(ReadAt::Snapshot(CommitTs(ts)), range, Direction::Forward).fill(&mut out, 10).unwrap();
    }
    per("range of 10, forward", started, rows / 5);
    let started = processor_time();
    for key in keys.iter().cycle().take((rows / 5) as usize) {
        let range = (Bound::Unbounded, Bound::Excluded(key.as_slice()));
        rig.tree.cursor(ReadAt::Snapshot(CommitTs(ts)), range, Direction::Backward).fill(&mut out, 10).unwrap();
    }
    per("range of 10, backward", started, rows / 5);

    let batches: Vec<_> = (0..rows / 5).map(|_| batch(std::iter::once(numbers.below(rows * 16)))).collect();
    let started = processor_time();
    for batch in &batches {
        ts += 16;
        apply(&rig, batch, ts);
    }
    per("random insert, batches of 1", started, rows / 5);
    let batches: Vec<_> = (0..rows / 500)
        .map(|_| {
            let mut keys: Vec<_> = (0..100).map(|_| numbers.below(rows * 16)).collect();
            keys.sort_unstable();
            keys.dedup();
            batch(keys.into_iter())
        })
        .collect();
    let started = processor_time();
    for batch in &batches {
        ts += 16;
        apply(&rig, batch, ts);
    }
    per("random insert, batches of 100", started, rows / 5);
    let started = processor_time();
    rig.now.store(ts, std::sync::atomic::Ordering::SeqCst);
    rig.checkpoint();
    println!("checkpoint {:?}, {:?}", processor_time() - started, rig.tree.stats());
    let started = processor_time();
    rig.checkpoint();
    println!("checkpoint of nothing {:?}", processor_time() - started);
}
