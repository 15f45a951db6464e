//! Live snapshots: a sharded pool of padded slots. A slot belongs to a snapshot, not to a thread: a snapshot may
//! move between threads and a thread may hold many (A11).
//!
//! The pool is a fixed number of shards, each a chain of chunks that grows and never shrinks; the number of
//! snapshots is not limited. A thread starts at its own shard, so at 48 threads taking a snapshot writes only lines
//! the thread's own core wrote last: the slot, and the chunk's reference count, which keeps a snapshot's slot
//! alive without a count that all snapshots share (C9).
//!
//! Steps of [`Snapshots::take`] are in `slots`, those of a GC view in [`crate::views`].
//!
//! Invariant: a slot is FREE, or owned by exactly one caller of `take` (PENDING) or one [`SnapshotSlot`] (its
//! timestamp). No latch but the view builder's, which only [`Snapshots::take_at`] takes.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use base::{CommitTs, GcView};
use crossbeam_utils::CachePadded;

use crate::slots;
use crate::views::GcViews;
use crate::visible::Visible;

const SHARDS: usize = 64;
const CHUNK_SLOTS: usize = 8;
const _: () = assert!(SHARDS.is_power_of_two() && CHUNK_SLOTS.is_power_of_two());

#[derive(Debug)]
struct Chunk {
    slots: [CachePadded<AtomicU64>; CHUNK_SLOTS],
    next: OnceLock<Arc<Chunk>>,
}

impl Chunk {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: std::array::from_fn(|_| CachePadded::new(AtomicU64::new(slots::FREE))),
            next: OnceLock::new(),
        })
    }
}

/// The slots of all snapshots.
#[derive(Debug)]
pub(crate) struct SlotPool {
    shards: Box<[CachePadded<Arc<Chunk>>]>,
}

impl SlotPool {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| CachePadded::new(Chunk::new())).collect() }
    }

    /// A slot that says PENDING and belongs to the caller.
    fn claim(&self) -> (Arc<Chunk>, usize) {
        let hint = vfs::thread::number();
        let mut chunk: &Arc<Chunk> = &self.shards[hint % SHARDS];
        loop {
            for turn in 0..CHUNK_SLOTS {
                let at = (hint / SHARDS + turn) % CHUNK_SLOTS;
                if slots::claim(&*chunk.slots[at]) {
                    return (chunk.clone(), at);
                }
            }
            chunk = chunk.next.get_or_init(Chunk::new);
        }
    }

    /// All slots there are. A chunk added meanwhile may be missed: whoever takes a slot in it published the chunk
    /// before the fence of `slots::announce`, so it counts as "taken after the scan" like a slot that was FREE.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AtomicU64> {
        self.shards
            .iter()
            .flat_map(|first| std::iter::successors(Some(&**first), |chunk| chunk.next.get()))
            .flat_map(|chunk| chunk.slots.iter().map(|slot| &**slot))
    }
}

/// What one reader sees: exactly the versions with `ts <=` [`SnapshotSlot::ts`]. While it lives, no version it can see
/// is dropped. Freely moved between threads; not to be shared by clones, see [`Snapshots::take_at`].
pub struct SnapshotSlot {
    chunk: Arc<Chunk>,
    slot: usize,
    ts: CommitTs,
}

impl SnapshotSlot {
    /// The moment it shows.
    #[must_use]
    pub fn ts(&self) -> CommitTs {
        self.ts
    }
}

impl fmt::Debug for SnapshotSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SnapshotSlot({})", self.ts)
    }
}

impl Drop for SnapshotSlot {
    fn drop(&mut self) {
        slots::release(&*self.chunk.slots[self.slot]);
    }
}

/// Takes snapshots and builds GC views.
#[derive(Debug)]
pub struct Snapshots {
    visible: Arc<Visible>,
    pool: SlotPool,
    views: GcViews,
}

impl Snapshots {
    /// A pool without snapshots. Made before the first commit of this life: the first view's floor is the prefix
    /// as it is now.
    #[must_use]
    pub fn new(visible: Arc<Visible>) -> Self {
        let views = GcViews::new(visible.visible());
        Self { visible, pool: SlotPool::new(), views }
    }

    /// A snapshot of everything visible now. Lock-free; writes no line that other threads' snapshots write.
    #[must_use]
    pub fn take(&self) -> SnapshotSlot {
        let (chunk, slot) = self.pool.claim();
        vfs::thread::point("snapshot.pending");
        let ts = slots::announce(&*chunk.slots[slot], || self.visible.visible().0);
        SnapshotSlot { chunk, slot, ts: CommitTs(ts) }
    }

    /// A snapshot of a moment that is not visible yet: `end` is at or above the prefix whenever it is asked. Nothing that it
    /// will see is dropped: views keep what a snapshot at or above their floor may see. Whoever reads by it waits for the
    /// prefix first.
    #[must_use]
    pub fn take_ahead(&self, end: impl FnOnce() -> CommitTs) -> SnapshotSlot {
        let (chunk, slot) = self.pool.claim();
        vfs::thread::point("snapshot.pending");
        let ts = slots::announce(&*chunk.slots[slot], || end().0);
        SnapshotSlot { chunk, slot, ts: CommitTs(ts) }
    }

    /// A snapshot at `ts`, if every version it needs is certainly still there: `ts` is a live snapshot of the
    /// newest GC view, or at or above its floor and visible. So a live snapshot can always be doubled.
    ///
    /// Takes the view builder's latch. A reader that only stored `ts` in a slot could be passed by a scan that had
    /// already looked at that slot and finds the original gone.
    #[must_use]
    pub fn take_at(&self, ts: CommitTs) -> Option<SnapshotSlot> {
        self.views.while_unchanged(|newest| {
            let kept = ts >= newest.floor() || newest.snapshots().binary_search(&ts).is_ok();
            if !kept || ts > self.visible.visible() {
                return None;
            }
            let (chunk, slot) = self.pool.claim();
            slots::announce(&*chunk.slots[slot], || ts.0);
            Some(SnapshotSlot { chunk, slot, ts })
        })
    }

    /// Builds and publishes a new GC view, and returns it. Called by the engine about every millisecond, and when
    /// a key has more versions than it should.
    pub fn refresh_view(&self) -> Arc<GcView> {
        self.views.refresh(|| self.visible.visible().0, || self.pool.iter())
    }

    /// The published GC view. Cheap: a latch and a count that few other threads touch.
    #[must_use]
    pub fn view(&self) -> Arc<GcView> {
        self.views.current()
    }

    /// The tracker of the applied prefix.
    #[must_use]
    pub fn visible(&self) -> &Arc<Visible> {
        &self.visible
    }

    /// Timestamps of the live snapshots, ascending, for statistics.
    #[must_use]
    pub fn live(&self) -> Vec<CommitTs> {
        let mut live: Vec<_> =
            slots::scan(|| self.visible.visible().0, self.pool.iter()).snapshots.into_iter().map(CommitTs).collect();
        live.sort_unstable();
        live
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use base::Lsn;

    use super::*;

    fn pool_at(position: u64) -> Snapshots {
        Snapshots::new(Arc::new(Visible::new(Lsn(position), 1 << 16)))
    }

    fn advance(s: &Snapshots, to: u64) {
        s.visible.mark_applied(s.visible.visible().as_lsn(), Lsn(to));
    }

    #[test]
    fn a_view_holds_what_snapshots_see() {
        let s = pool_at(16);
        let old = s.take();
        advance(&s, 64);
        let newer = s.take();
        advance(&s, 96);
        let view = s.refresh_view();
        assert_eq!((view.floor(), view.snapshots()), (CommitTs(96), &[CommitTs(16), CommitTs(64)][..]));
        assert!(view.keeps(CommitTs(16), Some(CommitTs(32))));
        drop(old);
        assert!(s.view().keeps(CommitTs(16), Some(CommitTs(32))), "until the view is made anew");
        assert_eq!(s.refresh_view().snapshots(), &[CommitTs(64)]);
        assert_eq!(s.live(), vec![newer.ts()]);
    }

    #[test]
    fn one_thread_holds_more_snapshots_than_a_chunk_has_slots() {
        let s = pool_at(0);
        let held: Vec<_> = (0..100u64)
            .map(|i| {
                advance(&s, (i + 1) * 16);
                s.take()
            })
            .collect();
        advance(&s, 4096);
        assert_eq!(s.refresh_view().snapshots().len(), 100, "the second does not overwrite the first");
        drop(held);
        assert_eq!(s.refresh_view().snapshots(), &[]);
    }

    #[test]
    fn a_snapshot_is_doubled_only_while_its_versions_are_kept() {
        let s = pool_at(16);
        let a = s.take();
        advance(&s, 64);
        s.refresh_view();
        let b = s.take_at(a.ts()).expect("live in the view");
        drop(a);
        assert_eq!(s.refresh_view().snapshots(), &[CommitTs(16)]);
        drop(b);
        s.refresh_view();
        assert!(s.take_at(CommitTs(16)).is_none(), "its versions may be gone");
        assert!(s.take_at(CommitTs(64)).is_some());
        assert!(s.take_at(CommitTs(80)).is_none(), "not visible yet");
    }

    #[test]
    fn a11_pending_holds_the_floor_back() {
        let s = pool_at(16);
        advance(&s, 32);
        s.refresh_view();
        let (chunk, slot) = s.pool.claim();
        // The reader has loaded 32 and sleeps before it stores it.
        advance(&s, 208);
        assert_eq!(s.refresh_view().floor(), CommitTs(32));
        advance(&s, 304);
        assert_eq!(s.refresh_view().floor(), CommitTs(32), "as long as it sleeps");
        slots::announce(&*chunk.slots[slot], || 32);
        let view = s.refresh_view();
        assert_eq!((view.floor(), view.snapshots()), (CommitTs(304), &[CommitTs(32)][..]));
    }

    /// Readers on many threads against a stream of commits and views: whatever a reader took is kept by every view
    /// made while it held it.
    #[test]
    fn no_view_drops_what_a_reader_holds() {
        let s = Arc::new(pool_at(0));
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (s, stop) = (s.clone(), stop.clone());
                let body = move || {
                    let mut taken = 0u32;
                    loop {
                        let mine = s.take();
                        let view = s.view();
                        let held = mine.ts() >= view.floor() || view.snapshots().contains(&mine.ts());
                        assert!(held, "{mine:?} against {view:?}");
                        taken += 1;
                        if stop.load(Ordering::Relaxed) {
                            return taken;
                        }
                    }
                };
                vfs::thread::spawn("reader", body).expect("thread")
            })
            .collect();
        for i in 0..20_000u64 {
            advance(&s, (i + 1) * 16);
            s.refresh_view();
        }
        stop.store(true, Ordering::Relaxed);
        for r in readers {
            assert!(r.join().expect("no panic") > 0);
        }
    }
}
