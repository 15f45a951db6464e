//! The first key of a log-structured merge tree of which nearly all is gone [C7]: by single deletes, as a range, by time; with an old snapshot open and without.
//! What is looked at is counted: for the first one who asks it is bounded, and for all others it is the same few whatever is gone. So is the disk's time, 10 ms
//! for the first one and 1 ms for all others. The processor's: `first_key_in_time.rs`.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::time::Duration;

use crate::support::*;
use trefoil::{Database, Index, IndexOptions, Options, Snapshot, Structure};
use vfs::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Singly,
    InOne,
    AsARange,
    ByTime,
}

const TTL: u64 = 64;
const LEFT: u32 = 50;
/// Entries passed over and blocks read by the first one who asks, and by all others.
const FIRST_MAX: u64 = 3000;
const LATER_MAX: u64 = 300;
/// The same in time.
const FIRST_TIME: Duration = Duration::from_millis(10);
const LATER_TIME: Duration = Duration::from_millis(1);

/// What was looked at for the first key: entries that were passed over, and blocks read. And how long that took.
#[derive(Debug, Clone, Copy)]
struct Looked {
    at: u64,
    took: Duration,
}

/// The first key, and what was looked at for it.
fn first(index: &Index, snapshot: &Snapshot) -> (Option<u32>, Looked) {
    let looked = || {
        let stats = index.stats();
        stats.passed + stats.loads
    };
    let (before, began) = (looked(), Instant::now());
    let key = snapshot.range(index, ..).unwrap().next().unwrap().map(|(key, _)| key.to_vec());
    let took = began.elapsed();
    (key.map(|key| u32::from_be_bytes(key.try_into().unwrap())), Looked { at: looked() - before, took })
}

/// Of so many rows all but the last ones go.
fn empty(db: &Database, index: &Index, rows: u32, way: Way) {
    let all: Vec<u32> = (0..rows - LEFT).collect();
    match way {
        Way::Singly | Way::InOne => {
            for some in all.chunks(if way == Way::Singly { 500 } else { all.len() }) {
                let mut tx = db.begin().unwrap();
                some.iter().for_each(|n| assert!(tx.delete(index, &n.to_be_bytes()).unwrap()));
                tx.commit().unwrap();
            }
        }
        Way::AsARange => {
            let mut tx = db.begin().unwrap();
            let (from, to) = (0u32.to_be_bytes(), (rows - LEFT).to_be_bytes());
            tx.delete_range(index, from.as_slice()..to.as_slice()).unwrap();
            tx.commit().unwrap();
        }
        Way::ByTime => {
            vfs::thread::sleep(Duration::from_secs(TTL / 2));
            fill(db, index, rows - LEFT, rows, 30).unwrap();
            vfs::thread::sleep(Duration::from_secs(TTL / 2 + TTL / 8));
        }
    }
}

/// What the first one looked at, and each of some others.
fn looked(rows: u32, way: Way, is_pinned: bool) -> (Looked, Vec<Looked>) {
    let disk = disk();
    let options = Options { log_capacity_bytes: 16 << 20, budget_bytes: 16 << 20, ..options(&disk) };
    let db = Database::open("/db", options).unwrap();
    let ttl_seconds = (way == Way::ByTime).then_some(TTL);
    let structure = Structure::Lsm;
    let index = db.create_index("rows", IndexOptions { structure, ttl_seconds, ..IndexOptions::default() }).unwrap();
    (0..rows).step_by(250).for_each(|n| fill(&db, &index, n, n + 250, 30).unwrap());
    db.checkpoint().unwrap();
    let old = is_pinned.then(|| db.snapshot().unwrap());
    empty(&db, &index, rows, way);
    let ask = |when: &str| {
        let (key, looked) = first(&index, &db.snapshot().unwrap());
        assert_eq!(key, Some(rows - LEFT), "{way:?} {when}");
        looked
    };
    let at_first = ask("at first");
    let mut later: Vec<Looked> = (0..3).map(|_| ask("later")).collect();
    // In runs, and once merges have come through.
    db.checkpoint().unwrap();
    later.push(ask("in runs"));
    db.settle().unwrap();
    later.push(ask("in shape"));
    if let Some(old) = old {
        assert_eq!(first(&index, &old).0, Some(0), "{way:?}: the old snapshot keeps its moment");
        assert_eq!(old.range(&index, ..).unwrap().collect().unwrap().len(), rows as usize);
        later.push(ask("behind a reader of before"));
    }
    sound(&db);
    (at_first, later)
}

fn check(way: Way) {
    for is_pinned in [false, true] {
        simulate(move |_| {
            for rows in [5_000, 20_000] {
                let (at_first, later) = looked(rows, way, is_pinned);
                println!("{way:?}, old snapshot {is_pinned}, of {rows}: {at_first:?}, then {later:?}");
                let is_near = at_first.at <= FIRST_MAX && at_first.took <= FIRST_TIME;
                assert!(is_near, "{way:?}, {is_pinned}, of {rows}: {at_first:?}");
                let all_near = later.iter().all(|looked| looked.at <= LATER_MAX && looked.took <= LATER_TIME);
                assert!(all_near, "{way:?}, {is_pinned}, of {rows}: {later:?}");
            }
        });
    }
}

/// Guard: what is known to be dead is hopped over.
#[test]
fn c7_the_first_key_behind_single_deletes_is_near() {
    check(Way::Singly);
}

/// Guard: who deletes clears away, before the reply.
#[test]
fn c7_the_first_key_behind_one_commit_of_deletes_is_near() {
    check(Way::InOne);
}

/// Guard: the tree's cursor hops. That of the ranges alone is not: without its hop as little is looked at.
#[test]
fn c7_the_first_key_behind_a_range_is_near_in_runs_too() {
    check(Way::AsARange);
}

/// Guard: runs of which all has expired are not looked at.
#[test]
fn c7_the_first_key_behind_what_expired_is_near() {
    check(Way::ByTime);
}
