//! The first key of a log-structured merge tree behind a mass delete [C7], in the processor's time: 10 ms for the first one who asks, 1 ms for all others. What
//! is looked at for it: `first_key.rs`.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::time::Duration;

use trefoil::{Database, Durability, Index, IndexOptions, Options, Structure};

const ROWS: u32 = 60_000;
const LEFT: u32 = 50;
const FIRST_TIME: Duration = Duration::from_millis(10);
const LATER_TIME: Duration = Duration::from_millis(1);

/// Time this thread spent on the processor: other processes of a busy machine do not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// In commits of so many.
fn each(db: &Database, rows: u32, some: usize, mut change: impl FnMut(&mut trefoil::Transaction, [u8; 4])) {
    let all: Vec<u32> = (0..rows).collect();
    for some in all.chunks(some) {
        let mut tx = db.begin().unwrap();
        some.iter().for_each(|n| change(&mut tx, n.to_be_bytes()));
        tx.commit().unwrap();
    }
}

/// How long it takes to find the first key.
fn asked(db: &Database, index: &Index) -> Duration {
    let snapshot = db.snapshot().unwrap();
    let began = processor_time();
    let key = snapshot.range(index, ..).unwrap().next().unwrap().map(|(key, _)| key.to_vec());
    let took = processor_time() - began;
    assert_eq!(key, Some((ROWS - LEFT).to_be_bytes().to_vec()));
    took
}

/// Guard: what is known to be dead is hopped over.
#[test]
fn c7_the_first_key_behind_single_deletes_is_there_in_time() {
    for is_pinned in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { budget_bytes: 64 << 20, durability: Durability::Buffered, ..Options::default() };
        let db = Database::open(dir.path(), options).unwrap();
        let structure = Structure::Lsm;
        let index = db.create_index("rows", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
        each(&db, ROWS, 250, |tx, key| tx.put(&index, &key, &[7; 30]).unwrap());
        db.checkpoint().unwrap();
        let old = is_pinned.then(|| db.snapshot().unwrap());
        each(&db, ROWS - LEFT, 500, |tx, key| assert!(tx.delete(&index, &key).unwrap()));
        let at_first = asked(&db, &index);
        let mut later: Vec<Duration> = (0..20).map(|_| asked(&db, &index)).collect();
        later.sort_unstable();
        println!("old snapshot {is_pinned}: {at_first:?} at first, then {later:?}");
        assert!(at_first <= FIRST_TIME, "{is_pinned}: {at_first:?}");
        assert!(later[later.len() - 1] <= LATER_TIME, "{is_pinned}: {later:?}");
        drop(old);
        db.close().unwrap();
    }
}
