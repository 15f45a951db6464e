//! Moments between two steps of one thread at which another one must find everything, under the simulator.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;

use crate::support::{Durable, env, flush, key, keys, put, settle, upkeep};
use base::{CommitTs, GcView, Lsn};
use index::{Batch, BatchBuilder, Direction, Index, Op, ReadAt, Reservation, Upkeep};
use trefoil_lsm::Lsm;
use vfs::sim::{Config, Handle, Simulation};

fn simulated(body: impl FnOnce(&Handle, Arc<Lsm>) + Send + 'static) {
    Simulation::new(1, Config::default()).run(|sim| {
        let dir = tempfile::tempdir().unwrap();
        let env = env(dir.path(), 1024, 64 << 20);
        body(sim, Lsm::open(env, None).unwrap());
    });
}

fn in_thread(index: &Arc<Lsm>, body: impl FnOnce(&Lsm) + Send + 'static) -> vfs::thread::JoinHandle<()> {
    let index = index.clone();
    vfs::thread::spawn("other", move || body(&index)).unwrap()
}

fn assert_has(index: &Lsm, rows: &[u32]) {
    for n in rows {
        let mut is_found = false;
        index.get_many(ReadAt::Newest, &[&key(*n)], &mut |_, _, _| is_found = true).unwrap();
        assert!(is_found, "{n}");
    }
    assert_eq!(keys(index, ReadAt::Newest, Direction::Forward), rows);
    assert_eq!(keys(index, ReadAt::Snapshot(CommitTs(1 << 30)), Direction::Backward).len(), rows.len());
}

/// As complete as the last checkpoint: what is in memory only lies above that, and is not written. Guard: `checkpoint_written` flushes nothing.
#[test]
fn p4_a_checkpoint_of_what_is_written_flushes_nothing() {
    simulated(|_, index| {
        put(&index, 16, 0..20, |_| b"flushed".to_vec());
        let first = index.checkpoint(&Upkeep { applied: Lsn(16), ..upkeep() }).unwrap();
        put(&index, 32, 20..40, |_| b"in memory".to_vec());
        let (runs, bytes) = (index.stats().disk_bytes, index.stats().memory_bytes);
        let written = index.checkpoint_written(&Upkeep { applied: Lsn(16), ..upkeep() }).unwrap();
        assert_eq!((index.stats().disk_bytes, index.stats().memory_bytes), (runs, bytes));
        assert_eq!((written.skip, written.bytes), (first.skip, first.bytes));
        assert_has(&index, &(0..40).collect::<Vec<_>>());
    });
}

/// A commit has found the memtable that takes versions; that is sealed and flushed before its versions are in it.
#[test]
fn a_seal_waits_for_who_applies() {
    simulated(|sim, index| {
        put(&index, 16, [1].into_iter(), |_| b"before".to_vec());
        let gate = sim.hold("lsm.applying");
        let committer = in_thread(&index, |index| put(index, 32, [2].into_iter(), |_| b"under way".to_vec()));
        gate.wait_reached();
        let flusher = in_thread(&index, flush);
        vfs::thread::sleep(std::time::Duration::from_millis(50));
        gate.open();
        committer.join().unwrap();
        flusher.join().unwrap();
        flush(&index);
        assert_has(&index, &[1, 2]);
    });
}

/// A memtable is flushed, runs are merged, and attached ones become runs: until the run is there, and behind that, what it is made of is read.
#[test]
fn sources_are_read_until_their_run_is_there() {
    simulated(|sim, index| {
        put(&index, 16, 0..20, |_| b"a memtable".to_vec());
        let gate = sim.hold("lsm.flushed");
        let flusher = in_thread(&index, flush);
        gate.wait_reached();
        let mut rows: Vec<u32> = (0..20).collect();
        assert_has(&index, &rows);
        gate.open();
        flusher.join().unwrap();
        assert_has(&index, &rows);
        for n in 0..5 {
            put(&index, 32 + u64::from(n) * 16, [20 + n].into_iter(), |_| b"a run".to_vec());
            flush(&index);
        }
        rows.extend(20..25);
        index.attach(store::Run::from_sorted([(key(25), Some(b"attached"))]), CommitTs(160));
        rows.push(25);
        for _ in 0..2 {
            // First what is attached, then a merge of runs.
            let gate = sim.hold("lsm.merged");
            let merger = in_thread(&index, settle);
            gate.wait_reached();
            assert_has(&index, &rows);
            gate.open();
            merger.join().unwrap();
            assert_has(&index, &rows);
            for n in 0..5 {
                put(&index, 320 + u64::from(n) * 16, [n].into_iter(), |_| b"a run".to_vec());
                flush(&index);
            }
        }
    });
}

/// A merge asks what may come late, then what there is. What comes late in between was still announced: its tombstone stays.
#[test]
fn a4_what_came_late_is_in_the_list() {
    simulated(|sim, index| {
        index.expect_late(Some(CommitTs(160)));
        let batch: Batch = [(key(1).as_slice(), Op::Delete)].into_iter().collect();
        let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("small") };
        index.apply(&batch, room, CommitTs(320), &GcView::keep_all());
        index.relieve(&Durable).unwrap();
        // The flush asks first.
        let gate = sim.hold_nth("lsm.late_read", 1);
        let merger = in_thread(&index, |index| {
            let view = GcView::new(CommitTs(400), Vec::new());
            while index.maintain(&Upkeep { view: view.clone(), ..upkeep() }).unwrap().more {}
        });
        gate.wait_reached();
        // Into a memtable that no list had before.
        put(&index, 336, [9].into_iter(), |_| b"another".to_vec());
        flush(&index);
        put(&index, 160, [1].into_iter(), |_| b"late".to_vec());
        index.expect_late(None);
        gate.open();
        merger.join().unwrap();
        assert_has(&index, &[9]);
        flush(&index);
        assert_has(&index, &[9]);
    });
}

/// `verify` has its list; the delete of a row comes as a run, which is not in that, and the row comes back into the memtable, which is. Guard: the
/// second look in `verify_fresh`.
#[test]
fn a15_verify_beside_writers_takes_no_put_for_wrong() {
    simulated(|sim, index| {
        put(&index, 16, 0..20, |_| b"a row".to_vec());
        flush(&index);
        put(&index, 32, 20..40, |_| b"others".to_vec());
        let gate = sim.hold("lsm.fresh_listed");
        let verifier = in_thread(&index, |index| {
            let problems = index.verify().unwrap().problems;
            assert!(problems.is_empty(), "{problems:?}");
        });
        gate.wait_reached();
        index.attach(store::Run::from_sorted([(key(7), None::<&[u8]>)]), CommitTs(160));
        let mut builder = BatchBuilder::new();
        builder.push_fresh(&key(7), b"again");
        let batch = builder.finish();
        let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("small") };
        index.apply(&batch, room, CommitTs(320), &GcView::keep_all());
        gate.open();
        verifier.join().unwrap();
    });
}
