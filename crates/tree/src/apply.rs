//! Step 3 of a commit: a sorted batch into its leaves [A1].
//!
//! Steps, leaf by leaf in key order: (1) latch exclusively, once per leaf, the one that the reservation found; descend if it is not
//! the right one any more, or must be split; (2) an EMPTY slot gets a fresh
//! leaf; (3) each operation is inserted, and the versions of its key are collected by the view, capped below
//! undrained runs [A4]; (4) a full leaf is collected as a whole if that may help, else split, the right half becoming
//! a neighbour under the structure latch; (5) what the leaf lacks on disk is noted in its record and upwards
//! (only when it was clean), its dead mark follows its counts; (6) the latch is let go.
//!
//! In a Bε-tree a change is a message, too, as long as all that came since image and segments is little (`pending`): then the leaf is
//! not dirty, and may leave memory without being written.
//!
//! No I/O and no way to fail: the reservation has everything in memory, nothing of it can be evicted, and memory
//! for splits was granted. Where the grant is too small after all (many commits split one leaf), the budget is
//! charged past its limit, which it counts.
//!
//! A split marks BOTH halves as lacking this commit, although it may change one only: so halves that share an old
//! image are dirty, hence in memory, until each has its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, GcView};
use index::Batch;
use store::{Charge, Class, Grant, Page, epoch};

use crate::abreast::look_into;
use crate::descent::Seek;
use crate::handle::{LeafHandle, LeafRecord, LeafSlot, LeafState, Resident};
use crate::image::Fence;
use crate::messages::{Message, Pending, may_be_message};
use crate::node::{Insert, Leaf};
use crate::reserve::Room;
use crate::tree::Core;

/// A full leaf with at least one collectable version in so many is collected before it is split.
const COLLECT_SHARE: u32 = 8;

/// What one visit of a leaf changed.
#[derive(Default)]
struct Visit {
    /// Operations done, from the first.
    done: usize,
    /// Changes become messages.
    light: bool,
    /// One did not.
    changed: bool,
    /// Some did.
    pending: bool,
    /// A key had a version that counted, or a delete none to hide.
    overwrote: bool,
    live: i64,
    entries: i64,
}

/// What a commit brings to this index, and what it has for it.
struct Commit<'a> {
    batch: &'a Batch,
    ts: CommitTs,
    view: &'a GcView,
    grant: &'a mut Option<Grant>,
}

impl Core {
    pub(crate) fn apply(&self, batch: &Batch, room: &mut Room, ts: CommitTs, view: &GcView) {
        let (mut known, mut asked) = (room.leaves.iter().enumerate().peekable(), 0);
        let capped;
        let view = if self.runs.is_quiet() {
            view
        } else {
            capped = self.capped(view);
            &capped
        };
        let mut commit = Commit { batch, ts, view, grant: &mut room.grant };
        let mut next = 0;
        while next < batch.len() {
            vfs::thread::point("tree.before_leaf");
            while known.next_if(|(_, known)| known.first < next).is_some() {}
            if let Some((place, known)) = known.next_if(|(_, known)| known.first == next) {
                if place >= asked {
                    asked = look_into(&room.leaves, place, batch);
                }
                vfs::thread::point("tree.before_latch");
                let mut slot = known.leaf.latch.write();
                // A leaf in use keeps its low fence.
                if !matches!(slot.state, LeafState::Obsolete) && slot.is_below_high(batch.key(next)) {
                    next += self.apply_to_leaf(&mut commit, next, &known.leaf, &mut slot, None);
                    continue;
                }
            }
            next += self.write_leaf(batch.key(next), |place, slot| {
                let is_last = place.keys.hi().is_none() && place.index + 2 >= place.keys.len();
                self.apply_to_leaf(&mut commit, next, place.leaf, slot, Some(is_last))
            });
        }
    }

    /// Steps 2 to 5, from the operation `first` on. Returns how many are done: none if the leaf was split and the first one is in
    /// the right half now, or if it has to be split first. `is_last`: whether it is one of the last two of the tree; unless that is
    /// known it is not split.
    fn apply_to_leaf(
        &self,
        commit: &mut Commit<'_>,
        first: usize,
        handle: &Arc<LeafHandle>,
        slot: &mut LeafSlot,
        is_last: Option<bool>,
    ) -> usize {
        let Commit { batch, ts, view, .. } = *commit;
        if let LeafState::Parked(resident) = &slot.state
            && (ts <= resident.through || self.has_none_for_messages(slot, batch, first))
        {
            // A late message beside a leaf is lost with the leaf: a run was drained, or the log trimmed.
            self.unpark(handle, slot);
        }
        if matches!(slot.state, LeafState::Cold | LeafState::Loading(_) | LeafState::Parked(_)) {
            return self.buffer(commit, first, handle, slot);
        }
        let fresh = matches!(slot.state, LeafState::Empty);
        if fresh {
            self.fill_empty(handle, slot, commit.grant);
        }
        let used_before = slot.resident().map_or(0, |resident| resident.leaf.used_bytes());
        let mut visit = Visit { light: self.is_light(slot, ts), ..Visit::default() };
        let (mut hint, mut collected, mut was_split) = (None, false, false);
        while let Some(key) = (first + visit.done < batch.len()).then(|| batch.key(first + visit.done)) {
            // The first one is why the leaf was latched; a split may have moved it.
            if (visit.done > 0 || was_split) && !slot.is_below_high(key) {
                break;
            }
            let Some(resident) = slot.resident_mut() else { unreachable!("a reserved leaf is in memory") };
            let op = batch.op(first + visit.done);
            match resident.leaf.insert(key, ts, op, view, hint) {
                Insert::Done(applied) => {
                    hint = Some(applied.hint);
                    if applied.dropped.versions > 0 {
                        resident.note_collected(view.floor());
                    }
                    if applied.stored || applied.entries_delta != 0 || applied.dropped.versions > 0 {
                        self.note_change(handle, slot, Message { key, ts, op }, &mut visit, commit.grant);
                    }
                    visit.overwrote |= applied.live_delta == 0;
                    visit.live += i64::from(applied.live_delta);
                    visit.entries += i64::from(applied.entries_delta);
                    visit.done += 1;
                }
                Insert::Full => {
                    hint = None;
                    let stats = resident.leaf.stats();
                    if !collected && resident.leaf.dead() >= stats.entries / COLLECT_SHARE {
                        collected = true;
                        self.collect_leaf(handle, resident, view);
                        continue;
                    }
                    let Some(is_last) = is_last else { break };
                    self.give_up_pending(handle, slot);
                    self.split_leaf(handle, slot, key, is_last, ts, commit.grant);
                    (was_split, visit.light) = (true, false);
                }
            }
        }
        self.counters.add(handle, visit.live, visit.entries);
        self.after_apply(handle, slot, fresh, &visit, ts);
        self.note_thin(handle, used_before, slot);
        visit.done
    }

    /// Some operation of the leaf cannot be a message.
    fn has_none_for_messages(&self, slot: &LeafSlot, batch: &Batch, first: usize) -> bool {
        (first..batch.len())
            .take_while(|i| *i == first || slot.is_below_high(batch.key(*i)))
            .any(|i| !may_be_message(self.env.options.node_bytes, batch.key(i), batch.op(i)))
    }

    /// The leaf is not in memory, or parked: its operations wait beside it. Returns how many there are.
    fn buffer(&self, commit: &mut Commit<'_>, first: usize, handle: &Arc<LeafHandle>, slot: &mut LeafSlot) -> usize {
        let Commit { batch, ts, .. } = *commit;
        assert!(self.env.options.buffered, "a reserved leaf is in memory");
        if !matches!(slot.state, LeafState::Parked(_)) {
            self.counters.count_cold_visit(handle);
        }
        let is_here = |i: &usize| *i == first || slot.is_below_high(batch.key(*i));
        let end = (first..batch.len()).take_while(is_here).last().map_or(first, |last| last + 1);
        let pending = slot.pending.get_or_insert_with(|| self.no_messages(handle));
        let (surplus, count) = (pending.surplus(), pending.count());
        for i in first..end {
            pending.push(Message { key: batch.key(i), ts, op: batch.op(i) }, commit.grant);
        }
        let lost = surplus - pending.surplus();
        self.counters.add(handle, -lost, (pending.count() - count) as i64);
        if lost > 0 && self.seems_dead(handle, &slot.state, pending) {
            self.seem_dead.offer(handle.low.clone(), CommitTs::ZERO);
        }
        if self.is_worth_loading(pending.bytes()) {
            self.full.offer(handle.low.clone(), CommitTs::ZERO);
        }
        // Deletes as well: what they hide may be in a run that is not drained.
        let came_alive = handle.mark.get().is_some();
        if came_alive {
            handle.mark.set(None);
        }
        self.note_pending(handle, ts, came_alive);
        end - first
    }

    /// For the first message since a flush, in memory of the node above.
    fn no_messages(&self, handle: &LeafHandle) -> Box<Pending> {
        let guard = epoch::pin();
        let parent = self.seek(&guard, Seek::At(&handle.low)).map_or(&*self.root, |place| place.parent);
        Box::new(Pending::new(parent.slabs(self), self.env.cache.budget()))
    }

    /// Something of `ts` is pending now.
    fn note_pending(&self, handle: &LeafHandle, ts: CommitTs, came_alive: bool) {
        let was_complete = {
            let mut record = handle.record.lock();
            let before = record.oldest_pending;
            record.oldest_pending = before.min(ts);
            before == CommitTs::MAX
        };
        if was_complete || came_alive {
            vfs::thread::point("tree.before_climb");
            self.climb(&handle.low, came_alive);
        }
    }

    /// What comes to the leaf in memory becomes messages, unless it is late. If the leaf is dirty and this is not seen, messages do
    /// no harm.
    fn is_light(&self, slot: &LeafSlot, ts: CommitTs) -> bool {
        let is_clean = |resident: &Resident| resident.has_image && resident.oldest_unwritten == CommitTs::MAX;
        self.env.options.buffered && slot.resident().is_some_and(|leaf| is_clean(leaf) && ts > leaf.through)
    }

    /// A change that the leaf in memory has already.
    fn note_change(
        &self,
        handle: &LeafHandle,
        slot: &mut LeafSlot,
        message: Message<'_>,
        visit: &mut Visit,
        grant: &mut Option<Grant>,
    ) {
        visit.light &= may_be_message(self.env.options.node_bytes, message.key, message.op);
        if visit.light {
            let pending = slot.pending.get_or_insert_with(|| self.no_messages(handle));
            pending.push(message, grant);
            visit.pending = true;
        } else {
            visit.changed = true;
        }
    }

    /// The leaf in memory is dirty instead of having messages.
    pub(crate) fn give_up_pending(&self, handle: &LeafHandle, slot: &mut LeafSlot) {
        let LeafSlot { state: LeafState::Resident(resident), pending, .. } = slot else { return };
        if let Some(pending) = pending.take() {
            self.note_applied(handle, resident, pending.oldest());
            handle.record.lock().oldest_pending = CommitTs::MAX;
        }
    }

    /// Step 2.
    fn fill_empty(&self, handle: &Arc<LeafHandle>, slot: &mut LeafSlot, grant: &mut Option<Grant>) {
        let leaf = Leaf::new(self.page_frame(), &handle.low, slot.high.as_deref());
        let leaf = leaf.of_counters(self.env.options.counters).owing_to(self.env.cache.owed());
        let mut resident = self.resident(leaf, BTreeMap::new(), grant);
        if self.env.options.buffered {
            // What segments hold for the range is void, and stays so when there is an image; also what is on its way into
            // one, looked at first.
            let under_way = CommitTs(self.flushing_newest.load(Ordering::Acquire));
            let segments = self.segments_over(&handle.low, slot.high.as_deref());
            resident.through = segments.iter().map(|block| block.newest).fold(under_way, CommitTs::max);
        }
        slot.state = LeafState::Resident(Box::new(resident));
        self.enter_cache(handle);
    }

    /// Step 5.
    fn after_apply(&self, handle: &Arc<LeafHandle>, slot: &mut LeafSlot, fresh: bool, visit: &Visit, ts: CommitTs) {
        let resident = slot.resident_mut().expect("it was just written");
        if fresh && resident.leaf.is_empty() && resident.oldest_unwritten == CommitTs::MAX {
            // Nothing stayed (a delete of nothing that everybody sees): the slot is what it was.
            slot.state = LeafState::Empty;
            self.counters.add_resident(-1);
            return;
        }
        if fresh {
            self.counters.add_leaves(1);
        }
        resident.note_counted(visit.live, visit.entries);
        if visit.changed {
            self.note_applied(handle, resident, ts);
        }
        let memory = resident.leaf.memory_bytes() as u64;
        if resident.charge.bytes() < memory || resident.charge.bytes() > 2 * memory.max(self.page_bytes()) {
            resident.charge.set(memory);
        }
        self.refresh_mark(handle, &resident.leaf);
        if visit.changed || !visit.light {
            handle.touch();
        }
        if let Some(bytes) = slot.pending.as_ref().map(|pending| pending.bytes()) {
            if visit.pending {
                self.note_pending(handle, ts, false);
            }
            // One that died is to be written, if it is not unlinked before: messages do not say so.
            if visit.changed || self.is_heavy(bytes) || self.wants_mark(handle, true) {
                self.give_up_pending(handle, slot);
            } else if visit.pending && !visit.overwrote {
                self.park_if_unread(handle, slot);
            }
        }
    }

    /// A leaf that fell under a quarter is to be merged.
    pub(crate) fn note_thin(&self, handle: &LeafHandle, used_before: usize, slot: &LeafSlot) {
        let quarter = self.env.options.node_bytes / 4;
        if used_before >= quarter && slot.resident().is_some_and(|resident| resident.leaf.used_bytes() < quarter) {
            self.thin.offer(handle.low.clone(), CommitTs::ZERO);
        }
    }

    /// The leaf now has something of `ts` that its image lacks.
    pub(crate) fn note_applied(&self, handle: &LeafHandle, resident: &mut Resident, ts: CommitTs) {
        if ts >= resident.oldest_unwritten {
            return;
        }
        let was_clean = {
            let mut record = handle.record.lock();
            let was_clean = record.oldest_unwritten == CommitTs::MAX;
            record.oldest_unwritten = record.oldest_unwritten.min(ts);
            resident.oldest_unwritten = record.oldest_unwritten;
            was_clean
        };
        if was_clean {
            self.env.cache.note_dirty(self.page_bytes());
            vfs::thread::point("tree.before_climb");
            self.climb(&handle.low, false);
        }
    }

    /// Step 4. `handle` keeps the left half.
    fn split_leaf(
        &self,
        handle: &Arc<LeafHandle>,
        slot: &mut LeafSlot,
        key: &[u8],
        edge: bool,
        ts: CommitTs,
        grant: &mut Option<Grant>,
    ) {
        let right = self.split_off(handle, slot, key, edge, ts, grant);
        self.link_right(handle, &right);
    }

    /// The right half, which nobody can find yet. The left one lacks `ts` on disk from now on; nothing, if that is MAX: then both
    /// halves are what image and segments say, each of its range.
    pub(crate) fn split_off(
        &self,
        handle: &Arc<LeafHandle>,
        slot: &mut LeafSlot,
        key: &[u8],
        edge: bool,
        ts: CommitTs,
        grant: &mut Option<Grant>,
    ) -> Arc<LeafHandle> {
        let high = slot.high.clone();
        let resident = slot.resident_mut().expect("a leaf that is split is in memory");
        let point = resident.leaf.choose_split(key, edge);
        let right = resident.leaf.split(&point);
        let separator: Fence = point.separator.as_slice().into();
        self.note_applied(handle, resident, ts);
        let mut right = self.resident(right, resident.beside.clone(), grant);
        (right.through, right.has_image) = (resident.through, resident.has_image);
        // Its copy stays at MAX, at least whatever the record will say: that is written under the structure latch, and a
        // write in flight may land before, after which the left half lacks less than it does now.
        debug_assert_eq!(right.oldest_unwritten, CommitTs::MAX);
        if ts != CommitTs::MAX {
            self.env.cache.note_dirty(self.page_bytes());
        }
        resident.charge.set(resident.leaf.memory_bytes() as u64);
        slot.high = Some(separator.clone());
        let dead = (right.leaf.stats().live == 0).then(|| right.leaf.stats().highest_delete_ts);
        let state = LeafState::Resident(Box::new(right));
        let right = Arc::new(LeafHandle::new(self.me.clone(), separator, high, state, LeafRecord::clean(None)));
        right.mark.set(dead);
        right.reserve_for(handle.last_reserved());
        right
    }

    /// Makes the right half the neighbour of the left one.
    pub(crate) fn link_right(&self, left: &Arc<LeafHandle>, right: &Arc<LeafHandle>) {
        self.insert_right(left, &right.low, right.clone());
        // Not before its record says what it lacks: the clock would take it for clean and throw it out.
        self.enter_cache(right);
        self.counters.count_split();
        self.counters.add_leaves(1);
    }

    /// A leaf in memory with its charge, from the grant as long as it lasts.
    fn resident(&self, leaf: Leaf, beside: BTreeMap<u64, Arc<store::Block>>, grant: &mut Option<Grant>) -> Resident {
        let memory = leaf.memory_bytes() as u64;
        let granted: Option<Charge> = grant.as_mut().and_then(|grant| grant.try_take(memory));
        let charge = granted.unwrap_or_else(|| self.env.cache.budget().charge(Class::Frames, memory));
        Resident { beside, ..Resident::new(leaf, CommitTs::ZERO, charge) }
    }

    pub(crate) fn enter_cache(&self, handle: &Arc<LeafHandle>) {
        let page: std::sync::Weak<dyn Page> = Arc::<LeafHandle>::downgrade(handle);
        self.env.cache.insert(page, self.page_bytes());
        self.counters.add_resident(1);
    }

    /// Whole-leaf collection. The leaf's meaning stays, so nothing new is unwritten.
    pub(crate) fn collect_leaf(&self, handle: &LeafHandle, resident: &mut Resident, view: &GcView) {
        let before = resident.leaf.stats();
        resident.leaf.collect(view);
        if resident.leaf.stats() != before {
            resident.note_collected(view.floor());
        }
        let after = resident.leaf.stats();
        let live = i64::from(after.live) - i64::from(before.live);
        let entries = i64::from(after.entries) - i64::from(before.entries);
        self.counters.add(handle, live, entries);
        resident.note_counted(live, entries);
        resident.charge.set(resident.leaf.memory_bytes() as u64);
    }
}
