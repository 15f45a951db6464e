//! Deletes that go with the fresh puts that they delete [A15]: what churn leaves behind, and what of the flag outlives flushes, merges, reopenings.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;

use crate::support::{env, env_of, flush, key, keys, put, settle, upkeep};
use base::{CommitTs, GcView};
use index::{BatchBuilder, Direction, Index, Op, ReadAt, Reservation};
use trefoil_lsm::Lsm;

/// Rows that were always there, the even ones: all of the index lies above them.
const ROWS: u32 = 20_000;
const CHURN: u32 = 500;

fn apply(index: &Lsm, ts: u64, rows: impl Iterator<Item = u32>, op: impl Fn(&mut BatchBuilder, &[u8])) {
    let mut builder = BatchBuilder::new();
    rows.for_each(|n| op(&mut builder, &key(n)));
    let batch = builder.finish();
    let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("small") };
    index.apply(&batch, room, CommitTs(ts), &GcView::keep_all());
}

fn odd(round: u32) -> impl Iterator<Item = u32> {
    (0..CHURN)
        .map(move |n| ((n * 37 + round * 11) * 2 + 1) % ROWS)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
}

/// Entries come and go between rows that stay; each round's entries are deleted in the next one, when the first are in a run.
fn churned(is_fresh: bool) -> (tempfile::TempDir, Arc<Lsm>) {
    let dir = tempfile::tempdir().unwrap();
    let index = Lsm::open(env(dir.path(), 1024, 64 << 20), None).unwrap();
    put(&index, 16, (0..ROWS).step_by(2), |n| vec![n as u8; 20]);
    flush(&index);
    settle(&index);
    for round in 0..40 {
        let ts = 1024 + 64 * u64::from(round);
        apply(&index, ts, odd(round), |builder, key| {
            if is_fresh { builder.push_fresh(key, b"") } else { builder.push(key, Op::Put(b"")) }
        });
        flush(&index);
        apply(&index, ts + 16, odd(round), |builder, key| builder.push(key, Op::Delete));
        flush(&index);
        while index.maintain(&upkeep()).unwrap().more {}
    }
    (dir, index)
}

/// Guards: `push_fresh` is heard of in `Lsm::apply`, `Leaf::insert`, `Input::with_value`, `Writer::push`, `BlockBuilder::push`; `judge`.
#[test]
fn a15_churn_leaves_no_tombstones() {
    let left = |is_fresh| {
        let (_dir, index) = churned(is_fresh);
        let expected: Vec<u32> = (0..ROWS).step_by(2).collect();
        assert_eq!(keys(&index, ReadAt::Newest, Direction::Forward), expected);
        assert!(index.verify().unwrap().problems.is_empty());
        let stats = index.stats();
        let levels = || stats.levels.iter();
        let deleted: u64 = levels().map(|level| level.deleted_keys).sum();
        (deleted, levels().map(|level| level.merged_bytes).sum::<u64>())
    };
    let ((with, with_bytes), (without, without_bytes)) = (left(true), left(false));
    eprintln!("tombstones {with} of {without}, bytes merged {with_bytes} of {without_bytes}");
    assert!(with == 0 && without >= u64::from(CHURN), "{with} tombstones with, {without} without");
    assert!(with_bytes < without_bytes);
}

/// A fresh put comes back from a checkpoint as one, and what is replayed over it is plain: then the delete stays. A run that is attached has none.
#[test]
fn a15_fresh_puts_outlive_a_reopening() {
    for replayed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let surroundings = env(dir.path(), 1024, 64 << 20);
        let index = Lsm::open(surroundings.clone(), None).unwrap();
        put(&index, 16, (0..ROWS).step_by(2), |n| vec![n as u8; 20]);
        flush(&index);
        settle(&index);
        apply(&index, 1024, odd(0), |builder, key| builder.push_fresh(key, b""));
        let state = index.checkpoint(&upkeep()).unwrap();
        let saved = surroundings.space.save();
        surroundings.space.checkpoint_durable();
        drop((index, surroundings));
        let index = Lsm::open(env_of(dir.path(), 1024, 64 << 20, Some(&saved)), Some(&state.bytes)).unwrap();
        if replayed {
            apply(&index, 1024, odd(0), |builder, key| builder.push(key, Op::Put(b"")));
        }
        apply(&index, 2048, odd(0), |builder, key| builder.push(key, Op::Delete));
        flush(&index);
        // Enough to be merged with the run that has the puts.
        for n in 0..5 {
            put(&index, 4096 + n, (0..ROWS).step_by(400), |n| vec![n as u8; 20]);
            flush(&index);
        }
        settle(&index);
        let deleted: u64 = index.stats().levels.iter().map(|level| level.deleted_keys).sum();
        assert!(deleted == 0 || replayed, "{deleted} tombstones: {}", index.draw());
        assert_eq!(keys(&index, ReadAt::Newest, Direction::Forward).len(), (ROWS / 2) as usize);
        assert!(index.verify().unwrap().problems.is_empty());
    }
}

fn one(index: &Lsm, ts: u64, op: impl Fn(&mut BatchBuilder, &[u8])) {
    apply(index, ts, [7].into_iter(), op);
}

/// A mark that is wrong brings a value back once a delete takes its put: `verify` says so, wherever the two lie. Guard: `verify_fresh` in `verify`.
#[test]
fn a15_verify_finds_a_fresh_put_over_a_value() {
    let places = (0..3).flat_map(|below| [false, true].map(|flushed| (below, flushed)));
    for ((below, is_flushed), is_deleted) in places.flat_map(|place| [(place, false), (place, true)]) {
        let dir = tempfile::tempdir().unwrap();
        let index = Lsm::open(env(dir.path(), 1024, 64 << 20), None).unwrap();
        put(&index, 8, 0..20, |_| b"around".to_vec());
        match below {
            0 => one(&index, 16, |builder, key| builder.push(key, Op::Put(b"old"))),
            1 => {
                one(&index, 16, |builder, key| builder.push(key, Op::Put(b"old")));
                flush(&index);
            }
            _ => index.attach(store::Run::from_sorted([(key(7), Some(b"old"))]), CommitTs(16)),
        }
        if is_deleted {
            one(&index, 32, |builder, key| builder.push(key, Op::Delete));
        }
        one(&index, 48, |builder, key| builder.push_fresh(key, b"new"));
        if is_flushed {
            flush(&index);
        }
        let problems = index.verify().unwrap().problems;
        let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), usize::from(!is_deleted), "{below} {is_flushed}: {found:?}");
        assert!(found.iter().all(|problem| problem.contains("fresh put")), "{found:?}");
    }
}
