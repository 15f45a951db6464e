//! Runs of deletes that readers need not pass over: hops beside runs, what is drained of a run, clearing away [C7, A3, A25].
//!
//! Work is counted, not timed: everything is on disk when a reader comes, so a leaf visited is a leaf read, and a cursor that
//! gives nothing out looks at a bounded number of entries in a call.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::common::{Commit, Numbers, Rig, Setup, Write, key, scan};
use base::CommitTs;
use index::{Direction, EntryBatch, Index, ReadAt};
use vfs::sim::{Config, Simulation};

const ROWS: u64 = 6_000;
const LEFT: u64 = 50;

fn small() -> Setup {
    Setup { node_bytes: 512, extent_bytes: 64 << 10, ..Setup::default() }
}

fn filled(rows: u64) -> Rig {
    let rig = Rig::new(small());
    for from in (0..rows).step_by(100) {
        rig.commit(
            (from..(from + 100).min(rows)).map(|n| (key(n), Some(b"a value of some length".to_vec()))).collect(),
        );
    }
    rig
}

fn deletes(rows: std::ops::Range<u64>) -> Vec<Write> {
    rows.map(|n| (key(n), None)).collect()
}

/// All leaves are on disk afterwards, all inner nodes in memory.
fn to_disk(rig: &Rig) {
    rig.checkpoint();
    rig.evict_all();
}

/// The first entry, the leaves visited for it, and the calls it took: in a call at most 64 entries are passed over.
fn first(rig: &Rig, at: ReadAt, direction: Direction) -> (Option<Vec<u8>>, u64, u64) {
    let loads = rig.tree.stats().loads;
    let mut cursor = rig.tree.cursor(at, (Bound::Unbounded, Bound::Unbounded), direction);
    let (mut out, mut calls) = (EntryBatch::new(), 0);
    loop {
        let more = cursor.fill(&mut out, 1).unwrap();
        calls += 1;
        if !out.is_empty() || !more {
            let key = (!out.is_empty()).then(|| out.key(0).to_vec());
            return (key, rig.tree.stats().loads - loads, calls);
        }
    }
}

/// What was deleted by a run is cleared away: nobody passes over it, not one leaf of it is visited.
#[test]
fn c7_a_cleared_run_of_deletes_is_hopped_over() {
    for (direction, gone) in [(Direction::Forward, 0..ROWS - LEFT), (Direction::Backward, LEFT..ROWS)] {
        let rig = filled(ROWS);
        let old = ReadAt::Snapshot(rig.now());
        rig.snapshots.lock().push(rig.now());
        rig.attach(deletes(gone.clone()));
        assert_eq!(rig.tree.clear_away(&rig.upkeep(), CommitTs::MAX, u64::MAX).unwrap(), ROWS - LEFT);
        assert_eq!(rig.tree.stats().runs, 0);
        to_disk(&rig);
        let left = if direction == Direction::Forward { key(gone.end) } else { key(gone.start - 1) };
        let (found, leaves, calls) = first(&rig, ReadAt::Newest, direction);
        assert_eq!(found, Some(left));
        assert!(leaves <= 2 && calls <= 2, "{direction:?}: {leaves} leaves, {calls} calls");
        // Who reads as of before finds it all.
        assert_eq!(rig.all(old, direction).len(), ROWS as usize);
        rig.verify();
    }
}

/// The same where a run could be drained in part only: it is read from there on, and hopped over until there.
#[test]
fn c7_what_is_drained_of_a_run_is_hopped_over() {
    let rig = filled(ROWS);
    rig.attach_file(1, deletes(0..ROWS - LEFT));
    let undrained = ROWS - LEFT - rig.tree.clear_away(&rig.upkeep(), CommitTs::MAX, ROWS - 600).unwrap();
    assert!((1..600).contains(&undrained), "{undrained}");
    assert_eq!(rig.tree.stats().runs, 1);
    to_disk(&rig);
    let (found, leaves, calls) = first(&rig, ReadAt::Newest, Direction::Forward);
    assert_eq!(found, Some(key(ROWS - LEFT)));
    // At least four rows are in a leaf; each is looked at there and in the run.
    let most = (undrained / 4 + 3, undrained / 32 + 3);
    assert!(leaves <= most.0 && calls <= most.1, "{leaves} leaves, {calls} calls for {undrained} entries");
}

/// Beside a run with puts, leaves whose deletes are older than it are hopped over, too.
#[test]
fn c7_deletes_older_than_a_run_are_hopped_over() {
    let rig = filled(ROWS);
    // The deletes stay.
    rig.snapshots.lock().push(rig.now());
    rig.commit(deletes(0..ROWS - LEFT));
    rig.attach(vec![(key(1), None), (key(ROWS - 1), Some(b"newer".to_vec()))]);
    to_disk(&rig);
    let (found, leaves, calls) = first(&rig, ReadAt::Newest, Direction::Forward);
    assert_eq!(found, Some(key(ROWS - LEFT)));
    assert!(leaves <= 3 && calls <= 3, "{leaves} leaves, {calls} calls");
}

/// What a look for the first row takes: leaves loaded, and reads of the file.
fn look(rig: &Rig) -> (u64, u64) {
    let reads = rig.vfs.reads();
    let (found, leaves, _) = first(rig, ReadAt::Newest, Direction::Forward);
    assert_eq!(found, Some(key(ROWS - LEFT)));
    (leaves, rig.vfs.reads() - reads)
}

/// Rows of a Bε-tree, on disk.
fn buffered(node_bytes: usize, value_bytes: usize) -> Rig {
    let rig = Rig::new(Setup { buffered: true, node_bytes, ..small() });
    for from in (0..ROWS).step_by(100) {
        rig.commit((from..from + 100).map(|n| (key(n), Some(vec![b'v'; value_bytes]))).collect());
    }
    to_disk(&rig);
    rig
}

/// All but the last rows, so many in a commit.
fn delete_most(rig: &Rig, at_once: u64) {
    for from in (0..ROWS - LEFT).step_by(at_once as usize) {
        rig.commit(deletes(from..(from + at_once).min(ROWS - LEFT)));
    }
    rig.put(key(ROWS), b"moves the floor");
}

/// What was deleted while its leaves were on disk is passed over leaf by leaf by who comes first, and by nobody behind him, nor behind
/// upkeep, before the deletes are drained or after them. Guards: `seem_dead.offer` in `buffer` (upkeep looks at no leaf);
/// `keep_mark` in `publish_leaf` and in `settle` (behind an opening all is passed over again).
#[test]
fn c7_leaves_that_messages_delete_are_hopped_over() {
    for (with_snapshot, in_segments) in [(false, false), (false, true), (true, false), (true, true)] {
        for with_upkeep in [false, true] {
            let rig = buffered(512, 22);
            if with_snapshot {
                rig.snapshots.lock().push(rig.now());
            }
            let (loads, leaves) = (rig.tree.stats().loads, rig.tree.stats().leaves);
            delete_most(&rig, 50);
            assert_eq!((rig.tree.stats().loads, rig.tree.stats().runs), (loads, 0), "nothing but messages");
            if in_segments {
                to_disk(&rig);
            }
            let what = format!("snapshot {with_snapshot}, in segments {in_segments}, upkeep {with_upkeep}");
            let reads = rig.vfs.reads();
            if with_upkeep {
                rig.maintain_fully();
                let (loads, reads) = (rig.tree.stats().loads - loads, rig.vfs.reads() - reads);
                println!("{what}: {leaves} leaves, upkeep {loads}, {reads} reads");
                assert!(loads <= leaves && reads <= 2 * leaves, "{what}: {loads} leaves, {reads} reads by upkeep");
            }
            let (first, second) = (look(&rig), look(&rig));
            to_disk(&rig);
            let third = look(&rig);
            let rig = rig.reopen(false);
            let reopened = look(&rig);
            println!("{what}: {leaves} leaves, {first:?} {second:?} {third:?}, opened again {reopened:?}");
            // Reads of neighbours are one read.
            let most = if with_upkeep { (2, 4) } else { (leaves, leaves / 4) };
            assert!(first.0 <= most.0 && first.1 <= most.1, "{what}: {first:?}");
            for later in [second, third, reopened] {
                assert!(later.0 <= 2 && later.1 <= 8, "{what}: {later:?}");
            }
            rig.verify();
        }
    }
}

/// What was deleted while its leaves were in memory is known behind an opening, too, whether it was a message beside a leaf or one
/// beside a leaf that nobody reads (`park`). Guards: `after_apply` gives up what is pending beside a dead leaf; `keep_mark` in `unpark`.
#[test]
fn c7_leaves_that_died_in_memory_are_hopped_over_behind_an_opening() {
    for at_once in [50, 1] {
        // Some seven rows in a leaf: their deletes are little beside it, and find room, so that nothing else has it written.
        let rig = buffered(4096, 500);
        rig.snapshots.lock().push(rig.now());
        assert_eq!(rig.keys().len(), ROWS as usize);
        delete_most(&rig, at_once);
        rig.maintain_fully();
        to_disk(&rig);
        let now = look(&rig);
        let rig = rig.reopen(false);
        let reopened = look(&rig);
        println!("{at_once} at once: {now:?}, opened again {reopened:?}");
        assert!(now.0 <= 2 && reopened.0 <= 2, "{at_once} at once: {now:?} {reopened:?}");
        rig.verify();
    }
}

/// Upkeep that has leaves to look at, which seem dead, and nodes to drain does both in turns: neither waits until nothing is left of the
/// other. Guard: `looked_at_dead` in `move_messages`.
#[test]
fn c7_looks_at_dead_leaves_and_drains_take_turns() {
    let rig = buffered(512, 22);
    for third in 0..3 {
        for from in (ROWS / 2..ROWS).step_by(100) {
            let rows = (from..from + 100).filter(|n| n % 3 == third);
            rig.commit(rows.map(|n| (key(n), Some(b"another value, as long".to_vec()))).collect());
        }
        to_disk(&rig);
    }
    for from in (0..ROWS / 2).step_by(50) {
        rig.commit(deletes(from..from + 50));
    }
    // Whoever drains writes; who looks only reads.
    let mut steps = Vec::new();
    loop {
        let before = rig.tree.stats();
        let more = rig.maintain().more;
        let (loads, writes) = (rig.tree.stats().loads - before.loads, rig.tree.stats().writes - before.writes);
        steps.extend((loads > 0).then_some(if writes > 0 { 'd' } else { 'l' }));
        if !more {
            break;
        }
    }
    let steps: String = steps.into_iter().collect();
    println!("{steps}");
    let count = |of: char| steps.matches(of).count();
    assert!(count('d') > 10 && count('l') > 10, "{steps}");
    assert!(steps.starts_with("ldldldldldldldldldld"), "{steps}");
    rig.verify();
}

/// Upkeep is not through before it has looked at each leaf that seems dead, alive or not. Guard: a step that has nothing to drain looks at
/// leaves again.
#[test]
fn c7_each_leaf_that_seems_dead_is_looked_at() {
    let rig = buffered(512, 22);
    rig.snapshots.lock().push(rig.now());
    let (leaves, loads) = (rig.tree.stats().leaves, rig.tree.stats().loads);
    for from in (0..ROWS - LEFT).step_by(50) {
        // By the counts of leaves these might be the rows.
        rig.commit((from..from + 50).map(|n| ([key(n), vec![0]].concat(), None)).collect());
    }
    rig.maintain_fully();
    let looked_at = rig.tree.stats().loads - loads;
    assert!(looked_at > leaves * 9 / 10, "{looked_at} of {leaves}");
    assert_eq!(rig.keys().len(), ROWS as usize);
}

/// Who has read them has seen for upkeep that they are dead. Guard: `look_at_dead` passes over leaves that are marked.
#[test]
fn c7_leaves_that_a_reader_found_dead_are_not_looked_at() {
    let rig = buffered(512, 22);
    rig.snapshots.lock().push(rig.now());
    delete_most(&rig, 50);
    assert!(look(&rig).0 > 400, "a reader was there first");
    to_disk(&rig);
    let loads = rig.tree.stats().loads;
    rig.maintain_fully();
    assert_eq!(rig.tree.stats().loads, loads);
}

/// Rows that come back and go again, while their leaves are on disk, or in memory, dead by their images. Guards: a leaf that has a mark
/// which a message takes from it is offered to upkeep (`seems_dead`); a leaf that is dead by its image and by messages that this lacks is
/// written, in `after_apply` and `publish_leaf`.
#[test]
fn c7_leaves_that_died_twice_are_hopped_over() {
    for in_memory in [false, true] {
        for and_back in [false, true] {
            let rig = buffered(4096, 500);
            let old = rig.now();
            rig.snapshots.lock().push(old);
            delete_most(&rig, 50);
            rig.maintain_fully();
            to_disk(&rig);
            if in_memory {
                assert_eq!(rig.all(ReadAt::Snapshot(old), Direction::Forward).len(), ROWS as usize);
            }
            for from in (0..ROWS - LEFT).step_by(50).filter(|_| and_back) {
                let rows = (from..from + 50).filter(|n| n % 5 == 0);
                rig.commit(rows.map(|n| (key(n), Some(b"back".to_vec()))).collect());
            }
            delete_most(&rig, 50);
            rig.maintain_fully();
            let first = look(&rig);
            to_disk(&rig);
            let rig = rig.reopen(false);
            let reopened = look(&rig);
            println!("in memory {in_memory}, and back {and_back}: {first:?}, opened again {reopened:?}");
            assert!(first.0 <= 2 && reopened.0 <= 2, "{in_memory} {and_back}: {first:?} {reopened:?}");
            rig.verify();
        }
    }
}

/// Changed pages that a read of everything leaves in memory, as of the first snapshot.
fn dirtied(rig: &Rig) -> u64 {
    let dirty = rig.cache.stats().dirty_bytes;
    let at = ReadAt::Snapshot(CommitTs(16 * ROWS / 100));
    assert_eq!(rig.all(at, Direction::Forward).len(), ROWS as usize);
    rig.cache.stats().dirty_bytes - dirty
}

/// A leaf that is found dead is written for that once, and only where it can be: what nobody writes any more would stay in memory for good.
/// Guards: in `wants_mark` the image's `dead_from`; `may_write`, also of the leaf in which a range begins.
#[test]
fn c7_a_dead_leaf_is_written_once_and_where_anything_is_written() {
    let dead_on_disk = || {
        let rig = buffered(4096, 500);
        rig.snapshots.lock().push(rig.now());
        delete_most(&rig, 50);
        to_disk(&rig);
        rig
    };
    let rig = dead_on_disk();
    assert!(dirtied(&rig) > ROWS / 10 * 4096, "few were found dead");
    to_disk(&rig);
    assert_eq!(dirtied(&rig), 0, "its image says that it is dead");

    let mut rig = dead_on_disk();
    rig.setup.read_only = true;
    let rig = rig.reopen(false);
    assert_eq!(dirtied(&rig), 0, "nothing is written in a database that is only read");

    let rig = dead_on_disk();
    rig.vfs.fail_writes(true);
    // In memory, its leaf is changed before all are read.
    let last = key(ROWS - 1);
    let alive = (Bound::Included(last.as_slice()), Bound::Unbounded);
    assert_eq!(scan(&rig.tree, ReadAt::Newest, alive, Direction::Forward, 9).len(), 2);
    rig.put(key(ROWS), b"cannot be written");
    assert!(rig.try_checkpoint().is_err() && rig.space.is_poisoned());
    assert_eq!(dirtied(&rig), 0, "nothing is written any more");
}

/// Clearing away reads nothing from disk: that is the background's.
#[test]
fn clearing_away_reads_no_leaf() {
    let rig = filled(ROWS);
    to_disk(&rig);
    rig.attach(deletes(0..ROWS - LEFT));
    let loads = rig.tree.stats().loads;
    assert_eq!(rig.tree.clear_away(&rig.upkeep(), CommitTs::MAX, u64::MAX).unwrap(), 0);
    assert_eq!((rig.tree.stats().loads, rig.tree.stats().runs), (loads, 1));
    assert_eq!(rig.keys().len(), LEFT as usize);
}

/// A row is put into the middle of a run of deletes while that is cleared away: before its piece is copied, and behind it.
#[test]
fn a_row_put_into_a_desert_that_is_cleared_is_seen() {
    Simulation::new(1, Config::default()).run(|sim| {
        for point in ["tree.drain_reserved", "tree.drain_copied"] {
            for n in [0, 100, 399] {
                let rig = Arc::new(filled(400));
                rig.attach(deletes(0..400));
                let before = ReadAt::Snapshot(rig.now());
                let gate = sim.hold(point);
                let clearing = {
                    let rig = rig.clone();
                    vfs::thread::spawn("clearing", move || {
                        rig.tree.clear_away(&rig.upkeep(), CommitTs::MAX, u64::MAX).unwrap();
                    })
                    .unwrap()
                };
                gate.wait_reached();
                let put = rig.put(key(n), "alive");
                assert_eq!(rig.keys(), [key(n)], "{point}");
                gate.open();
                clearing.join().unwrap();
                for direction in [Direction::Forward, Direction::Backward] {
                    for at in [ReadAt::Newest, ReadAt::Snapshot(put)] {
                        let found = rig.all(at, direction);
                        assert_eq!(found.len(), 1, "{point}, {at:?}, {direction:?}");
                        assert_eq!(found[0].0, key(n));
                    }
                    assert!(rig.all(before, direction).is_empty());
                }
                rig.verify();
            }
        }
    });
}

/// What a reader at `at` sees of a range, from the commits alone.
fn expected(commits: &[Commit], at: CommitTs, low: &[u8], high: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = BTreeMap::new();
    for commit in commits.iter().filter(|commit| commit.ts <= at) {
        for (key, value) in commit.writes.iter().filter(|(key, _)| low <= key.as_slice() && key.as_slice() < high) {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
    }
    rows.into_iter().collect()
}

fn check(rig: &Rig, numbers: &mut Numbers, keys: u64, what: &str) {
    let commits = rig.commits.lock().clone();
    let (a, b) = (numbers.below(keys), numbers.below(keys + 1));
    let (low, high) = if numbers.one_in(3) { (key(0), key(keys)) } else { (key(a.min(b)), key(a.max(b))) };
    let range = (Bound::Included(low.as_slice()), Bound::Excluded(high.as_slice()));
    let mut moments: Vec<_> = rig.snapshots.lock().iter().map(|at| (ReadAt::Snapshot(*at), *at)).collect();
    moments.extend([(ReadAt::Newest, rig.now()), (ReadAt::Snapshot(rig.now()), rig.now())]);
    for (at, ts) in moments {
        let mut rows = expected(&commits, ts, &low, &high);
        for direction in [Direction::Forward, Direction::Backward] {
            let max = 1 + numbers.below(9) as usize;
            let found: Vec<_> =
                scan(&rig.tree, at, range, direction, max).into_iter().map(|(key, _, value)| (key, value)).collect();
            assert_eq!(found, rows, "{what}: {at:?}, {direction:?}");
            rows.reverse();
        }
    }
}

/// Ranges deleted by runs, rows put into them by commits and runs, pieces drained, written, evicted, purged: each reader sees
/// what the commits say.
#[test]
fn readers_beside_runs_of_deletes_see_what_the_commits_say() {
    const KEYS: u64 = 250;
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let mut rig = filled(KEYS);
        for step in 0..40 {
            let (a, b) = (numbers.below(KEYS), numbers.below(KEYS + 1));
            let span = a.min(b)..a.max(b);
            let (before, what) = (rig.now(), format!("seed {seed}, step {step}"));
            match numbers.below(12) {
                0..=2 => assert!(rig.attach(deletes(span)) > before),
                3 => assert!(rig.attach_file(step + 1, deletes(span)) > before),
                4 => {
                    let put = |n: u64| n.is_multiple_of(3).then(|| what.clone().into_bytes());
                    rig.attach(span.map(|n| (key(n), put(n))).collect());
                }
                5..=6 => assert!(rig.put(key(a), &what) > before),
                7 => assert!(rig.delete(key(a)) > before),
                8 => assert!(
                    rig.tree.clear_away(&rig.upkeep(), CommitTs::MAX, 1 + numbers.below(300)).unwrap() < 1 << 20
                ),
                9 => (0..numbers.below(6)).for_each(|_| assert!(rig.maintain().entries < 1 << 20)),
                10 => match numbers.below(4) {
                    0 => to_disk(&rig),
                    1 => rig.snapshots.lock().clear(),
                    2 => {
                        rig.checkpoint();
                        rig = rig.reopen(true);
                    }
                    _ => rig.maintain_fully(),
                },
                _ => {
                    let now = rig.now();
                    rig.snapshots.lock().push(now);
                }
            }
            check(&rig, &mut numbers, KEYS, &what);
        }
        rig.snapshots.lock().clear();
        rig.maintain_fully();
        rig.verify();
    }
}
