//! GC views: who may still read what (decision D4, rule A11).
//!
//! Steps of a refresh, under the builder's latch, so that views are made one after another:
//! 1. floor := `visible`, fence, read all slots (`slots::scan`);
//! 2. a slot that says PENDING is given a few turns; if it stays, the floor is the floor of the view before: its
//!    reader loaded `visible` after the scan of the last view that did not see it, so it holds at least that floor;
//! 3. publish: one `Arc` per shard.
//!
//! Invariants: floors never go back; every snapshot that exists or is being taken while a view is the newest is in
//! it or at or above its floor. Threads may hold views of different age at the same time; each is sound by itself.
//!
//! Why a copy per shard and not one shared `Arc`: its count would be written by every commit on every core (C9).
//! Latch order: builder, then a shard's.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{CommitTs, GcView};
use crossbeam_utils::CachePadded;
use vfs::sync::Mutex;

use crate::slots;

const SHARDS: usize = 32;
/// Turns a PENDING slot is given: its reader is a few instructions from done, unless it was preempted.
const PENDING_TURNS: u32 = 8;

/// Builds and publishes GC views.
#[derive(Debug)]
pub(crate) struct GcViews {
    /// The newest view. Held while one is made.
    builder: Mutex<Arc<GcView>>,
    published: Box<[CachePadded<Mutex<Arc<GcView>>>]>,
}

impl GcViews {
    /// The first view: no snapshot is older than `floor`.
    pub(crate) fn new(floor: CommitTs) -> Self {
        let first = GcView::new(floor, Vec::new());
        Self {
            published: (0..SHARDS).map(|_| CachePadded::new(Mutex::new(Arc::new(first.clone())))).collect(),
            builder: Mutex::new(Arc::new(first)),
        }
    }

    /// The published view.
    pub(crate) fn current(&self) -> Arc<GcView> {
        self.published[vfs::thread::number() % SHARDS].lock().clone()
    }

    /// Makes and publishes a view. `all_slots` is asked anew for each scan.
    pub(crate) fn refresh<'a, I: Iterator<Item = &'a AtomicU64>>(
        &self,
        visible: impl Fn() -> u64,
        all_slots: impl Fn() -> I,
    ) -> Arc<GcView> {
        let mut newest = self.builder.lock();
        let mut found = slots::scan(&visible, all_slots());
        for _ in 0..PENDING_TURNS {
            if !found.pending {
                break;
            }
            vfs::thread::spin();
            found = slots::scan(&visible, all_slots());
        }
        let before = newest.floor();
        let floor = if found.pending { before } else { CommitTs(found.floor) };
        debug_assert!(floor >= before, "`visible` never goes back");
        let view = GcView::new(floor, found.snapshots.into_iter().map(CommitTs).collect());
        if view != **newest {
            *newest = Arc::new(view);
            for shard in &self.published {
                // A copy of its own for each shard: they share the list of snapshots, not the count.
                *shard.lock() = Arc::new(GcView::clone(&newest));
            }
        }
        newest.clone()
    }

    /// Runs `body` with the newest view while none is being made.
    pub(crate) fn while_unchanged<R>(&self, body: impl FnOnce(&GcView) -> R) -> R {
        body(&self.builder.lock())
    }
}
