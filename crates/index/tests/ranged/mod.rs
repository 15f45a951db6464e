//! What lies around a structure, at moments that a structure by itself does not come to: another one around the reference says when.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base::{CommitTs, Fault, GcView, Result};
use store::Funds;
use store::run::Run;
use trefoil_index::conformance::checks::{key, puts};
use trefoil_index::conformance::{Bench, World};
use trefoil_index::{
    Batch, Cursor, Direction, EntryBatch, Index, IndexState, IndexStats, Progress, ReadAt, Reservation, Reserved,
    Skips, Upkeep, VerifyReport, VisitBlock,
};
use vfs::sync::Mutex;

use crate::reference::{self, Bug};

type Step = Box<dyn FnOnce(&Upkeep<'_>) + Send>;

/// What is done beside calls of the structure, once each, and what is counted.
#[derive(Default)]
struct Beside {
    /// When its state is taken, and the checkpoint goes on.
    behind_state: Mutex<Option<Step>>,
    cursors: AtomicUsize,
    /// Its cursors read only with what takes damage.
    is_damaged: AtomicBool,
}

struct Watched {
    inner: Arc<dyn Index>,
    beside: Arc<Beside>,
}

fn bench(beside: &Arc<Beside>) -> Bench {
    let beside = beside.clone();
    Bench::new(move |env, state| {
        let inner = reference::open(env, state, Bug::None)?;
        Ok(Arc::new(Watched { inner, beside: beside.clone() }))
    })
}

impl Index for Watched {
    fn reserve_from(&self, batch: &Batch, funds: &mut Funds) -> Result<Option<Reservation>> {
        self.inner.reserve_from(batch, funds)
    }
    fn apply(&self, batch: &Batch, reserved: Box<dyn Reserved>, ts: CommitTs, view: &GcView) {
        self.inner.apply(batch, reserved, ts, view);
    }
    fn attach(&self, run: Run, ts: CommitTs) {
        self.inner.attach(run, ts);
    }
    fn expect_late(&self, ts: Option<CommitTs>) {
        self.inner.expect_late(ts);
    }
    fn get_many(&self, at: ReadAt, keys: &[&[u8]], found: &mut dyn FnMut(usize, CommitTs, &[u8])) -> Result<()> {
        self.inner.get_many(at, keys, found)
    }
    fn cursor(&self, at: ReadAt, range: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) -> Box<dyn Cursor> {
        self.beside.cursors.fetch_add(1, Ordering::Relaxed);
        let inner = self.inner.cursor(at, range, direction);
        Box::new(Skipping { inner, beside: self.beside.clone(), skips: false })
    }
    fn maintain(&self, upkeep: &Upkeep<'_>) -> Result<Progress> {
        self.inner.maintain(upkeep)
    }
    fn checkpoint(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        let state = self.inner.checkpoint(upkeep)?;
        if let Some(behind) = self.beside.behind_state.lock().take() {
            behind(upkeep);
        }
        Ok(state)
    }
    fn stats(&self) -> IndexStats {
        self.inner.stats()
    }
    fn estimate(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<u64> {
        self.inner.estimate(range)
    }
    fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        self.inner.split_keys(count)
    }
    fn verify(&self) -> Result<VerifyReport> {
        self.inner.verify()
    }
    fn reach(&self, visit: &mut VisitBlock<'_>) -> Result<Vec<base::Corruption>> {
        self.inner.reach(visit)
    }
    fn destroy(&self) -> Result<()> {
        self.inner.destroy()
    }
}

struct Skipping {
    inner: Box<dyn Cursor>,
    beside: Arc<Beside>,
    skips: bool,
}

impl Cursor for Skipping {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        if self.beside.is_damaged.load(Ordering::Relaxed) && !self.skips {
            return Err(Fault::corrupt("a node", 0, "checksum", "another one", "this one"));
        }
        self.inner.fill(out, max)
    }
    fn skip_damaged(&mut self, _: Skips) {
        self.skips = true;
    }
}

/// 100 keys, of which 20 to 79 are deleted.
fn deleted(bench: &Bench) -> World<'_> {
    let mut world = World::new(bench).expect("opens");
    world.commit(&puts(0..100, 0)).expect("commits");
    world.delete_range((Bound::Included(&key(20)), Bound::Excluded(&key(80)))).expect("commits");
    world
}

/// Guard: a checkpoint takes the list before the structure's state.
#[test]
fn a_range_that_is_drained_beside_a_checkpoint_is_in_it() {
    let beside = Arc::new(Beside::default());
    let bench = bench(&beside);
    let mut world = deleted(&bench);
    world.sync_log().expect("it becomes durable");
    let outer = world.index().clone();
    *beside.behind_state.lock() = Some(Box::new(move |upkeep| {
        while outer.maintain(upkeep).expect("maintains").more {}
        assert_eq!(outer.stats().deleted_ranges, 0, "it is drained, and names no range");
    }));
    world.checkpoint().expect("it goes through");
    world.crash_durably().expect("opens again");
    world.check().unwrap_or_else(|complaint| panic!("{complaint}"));
}

/// Guard: `is_ready`, taken back by who destroys and asked for under the latch of the drain.
#[test]
fn an_index_that_is_destroyed_is_not_drained() {
    let beside = Arc::new(Beside::default());
    let bench = bench(&beside);
    let mut world = deleted(&bench);
    world.sync_log().expect("it becomes durable");
    world.index().destroy().expect("goes");
    let before = beside.cursors.load(Ordering::Relaxed);
    for _ in 0..4 {
        world.maintain().expect("nothing is done");
    }
    assert_eq!(beside.cursors.load(Ordering::Relaxed), before, "nobody reads what is gone");
}

/// Who reads around damage does so behind each hop, whether he has said so before his first entry or behind it. Guards: what is skipped is kept by `skip_damaged`, and said to
/// the structure's cursor where one begins and where one is there.
#[test]
fn who_hops_passes_over_damage_behind_it() {
    for is_late in [false, true] {
        let beside = Arc::new(Beside::default());
        let bench = bench(&beside);
        let world = deleted(&bench);
        let mut cursor = world.index().cursor(ReadAt::Newest, (Bound::Unbounded, Bound::Unbounded), Direction::Forward);
        let (mut out, mut found) = (EntryBatch::new(), 0);
        if is_late {
            cursor.fill(&mut out, 5).expect("nothing is damaged yet");
            found += out.len();
        }
        cursor.skip_damaged(Skips::default());
        beside.is_damaged.store(true, Ordering::Relaxed);
        let cursors = beside.cursors.load(Ordering::Relaxed);
        while cursor.fill(&mut out, 5).expect("damage is passed over") {
            found += out.len();
        }
        assert_eq!(found + out.len(), 40);
        assert!(beside.cursors.load(Ordering::Relaxed) > cursors, "it hopped");
    }
}
