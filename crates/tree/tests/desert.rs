//! The first key behind a mass delete, at a million rows [C7].

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use std::ops::Bound;
use std::time::Duration;

use base::CommitTs;
use common::{Rig, Setup, apply, processor_time};
use index::{Direction, EntryBatch, Index, ReadAt};

const ROWS: u64 = 1_000_000;
const LEFT: u64 = 1_000;
const LIMIT: Duration = Duration::from_millis(10);

/// The first key, the time it took, and the leaves read for it.
fn first_key(rig: &Rig) -> (u64, Duration, u64) {
    let (started, loads) = (processor_time(), rig.tree.stats().loads);
    let mut out = EntryBatch::new();
    let mut cursor = rig.tree.cursor(ReadAt::Newest, (Bound::Unbounded, Bound::Unbounded), Direction::Forward);
    while cursor.fill(&mut out, 1).unwrap() && out.is_empty() {}
    let key = u64::from_be_bytes(out.key(0).try_into().unwrap());
    (key, processor_time() - started, rig.tree.stats().loads - loads)
}

fn commit(rig: &Rig, rows: std::ops::Range<u64>, value: Option<&[u8]>) {
    let writes: Vec<_> = rows.map(|n| (n.to_be_bytes().to_vec(), value.map(<[u8]>::to_vec))).collect();
    let ts = CommitTs(rig.now().0 + 16);
    assert!(apply(&rig.tree, &writes, ts, &rig.view()), "everything is in memory");
    rig.now.store(ts.0, std::sync::atomic::Ordering::SeqCst);
}

fn check(rig: &Rig, what: &str, loads_max: u64) {
    let (key, time, loads) = first_key(rig);
    println!("{what}: first {time:?} with {loads} leaves read; {:?}", rig.tree.stats());
    assert_eq!(key, ROWS - LEFT);
    assert!(time <= LIMIT, "{what}: {time:?}");
    assert!(loads <= loads_max, "{what}: {loads} leaves read");
    let (_, time, _) = first_key(rig);
    assert!(time <= LIMIT / 10, "{what}, again: {time:?}");
}

#[test]
fn c7_the_first_key_behind_a_million_deletes() {
    let rig = Rig::new(Setup {
        node_bytes: 16 << 10,
        budget_bytes: 1 << 30,
        extent_bytes: 4 << 20,
        compression: store::Compression::Lz4,
        buffered: false,
        counters: false,
        read_only: false,
        max_bytes: None,
    });
    for from in (0..ROWS).step_by(500) {
        commit(&rig, from..from + 500, Some(b"a value of thirty-two bytes, or so"));
    }
    rig.checkpoint();
    // An old snapshot is open: nothing of it may be unlinked.
    rig.snapshots.lock().push(rig.now());
    for from in (0..ROWS - LEFT).step_by(500) {
        commit(&rig, from..from + 500, None);
    }
    check(&rig, "with an old snapshot", 0);
    rig.checkpoint();
    let rig = rig.reopen(false);
    check(&rig, "after a reopen", 1);
    commit(&rig, ROWS..ROWS + 1, Some(b"moves the floor"));
    for _ in 0..10 {
        rig.maintain();
    }
    check(&rig, "while it is purged", 1);
    rig.maintain_fully();
    check(&rig, "purged", 0);
    let stats = rig.tree.stats();
    assert!(stats.leaves < 50 && stats.unlinks > 1_000, "{stats:?}");
}
