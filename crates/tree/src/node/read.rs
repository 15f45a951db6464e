//! Reading a leaf: search, look-up, iteration over visible versions both ways. No allocation.

use std::ops::Range;

use base::CommitTs;
use index::{Direction, EntryBatch, Prefix, ReadAt};
use store::prefetch_at;

use super::chain::ChainValue;
use super::key::Key;
use super::leaf::{Item, Leaf, Lookup, Value};
use super::page::{Kind, SLOT_BYTES, Slot, side_id};

/// The highest timestamp that `at` sees.
#[inline]
fn limit(at: ReadAt) -> CommitTs {
    match at {
        ReadAt::Snapshot(s) => s,
        ReadAt::Newest => CommitTs::MAX,
    }
}

impl Leaf {
    /// Asks for what a search begins with: step 1 of three, each of several leaves before the next.
    pub fn prefetch_ends(&self) {
        prefetch_at(self.prefix.as_ptr().addr());
        self.page.prefetch_ends();
    }

    /// Step 2.
    pub fn prefetch_guess(&self, key: &[u8]) {
        if let Some(suffix) = key.strip_prefix(&*self.prefix) {
            self.page.prefetch_guess(suffix);
        }
    }

    /// Step 3.
    pub fn prefetch_entries(&self, key: &[u8]) {
        if let Some(suffix) = key.strip_prefix(&*self.prefix) {
            self.page.prefetch_entries(suffix);
        }
    }

    /// `Ok(slot)` of the newest version of `key`, or `Err(slot)` of the first entry above it. Works for keys outside
    /// the fences.
    ///
    /// # Errors
    /// The key is not in the leaf.
    #[inline]
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        match key.strip_prefix(&*self.prefix) {
            Some(suffix) => self.page.search_from(0, suffix),
            None => Err(if *key < *self.prefix { 0 } else { self.page.len() }),
        }
    }

    /// The first slot whose key is at or above `key`; works for keys outside the fences.
    #[must_use]
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        self.search(key).unwrap_or_else(|above| above)
    }

    /// The first slot whose key is above `key`; works for keys outside the fences.
    #[must_use]
    pub fn upper_bound(&self, key: &[u8]) -> usize {
        self.search(key).map_or_else(|above| above, |first| self.page.group_end(first))
    }

    /// The newest version of `key` at or below `at`.
    #[must_use]
    pub fn get(&self, key: &[u8], at: ReadAt) -> Lookup<'_> {
        match self.search(key) {
            Ok(first) => match self.visible(first, limit(at)) {
                Some((ts, Some(value))) => Lookup::Found { ts, value },
                Some((ts, None)) => Lookup::Tombstone { ts },
                None => Lookup::Absent,
            },
            Err(_) => Lookup::Absent,
        }
    }

    /// The newest version at or below `limit` of the key whose first slot is `first`.
    #[inline]
    fn visible(&self, first: usize, limit: CommitTs) -> Option<(CommitTs, Option<Value<'_>>)> {
        let slot = self.page.slot(first);
        let (ts, value) = self.page.version(slot);
        if ts <= limit { Some((ts, self.value_of(slot.kind(), value))) } else { self.visible_older(first, limit) }
    }

    /// Goes on where the newest version is too new.
    fn visible_older(&self, first: usize, limit: CommitTs) -> Option<(CommitTs, Option<Value<'_>>)> {
        let mut i = first + 1;
        while i < self.page.len() {
            let slot = self.page.slot(i);
            if !slot.is_older() {
                return None;
            }
            if slot.kind() == Kind::Chain {
                return self.visible_in_chain(slot, limit);
            }
            let (ts, value) = self.page.version(slot);
            if ts <= limit {
                return Some((ts, self.value_of(slot.kind(), value)));
            }
            i += 1;
        }
        None
    }

    #[cold]
    fn visible_in_chain(&self, slot: Slot, limit: CommitTs) -> Option<(CommitTs, Option<Value<'_>>)> {
        let version = self.side.chain(self.page.side_id(slot)).visible(limit)?;
        Some((version.ts, self.chain_value(&version.value)))
    }

    fn chain_value<'a>(&'a self, value: &'a ChainValue) -> Option<Value<'a>> {
        match value {
            ChainValue::Tombstone => None,
            ChainValue::Inline(bytes) => Some(Value::Inline(bytes)),
            ChainValue::Overflow(id) => Some(Value::Overflow(self.overflow(*id))),
        }
    }

    #[inline]
    fn value_of<'a>(&'a self, kind: Kind, value: &'a [u8]) -> Option<Value<'a>> {
        match kind {
            Kind::Put => Some(Value::Inline(value)),
            Kind::Overflow => Some(Value::Overflow(self.overflow(side_id(value)))),
            Kind::Tombstone | Kind::Chain => None,
        }
    }

    /// The key in slots `first..next`, as `limit` sees it. `None` as well for a tombstone, unless they are wanted.
    #[inline(always)]
    fn item(&self, first: usize, next: usize, limit: CommitTs, tombstones: bool) -> Option<Item<'_>> {
        let slot = self.page.slot(first);
        let (suffix, ts, value) = self.page.entry(slot);
        let (ts, value) = if ts <= limit && slot.kind() == Kind::Put {
            (ts, Some(Value::Inline(value)))
        } else {
            self.visible(first, limit).filter(|(_, value)| tombstones || value.is_some())?
        };
        Some(Item { key: Key { prefix: &self.prefix, suffix }, ts, value, first, next })
    }

    #[inline(always)]
    fn forward(&self, slots: Range<usize>, at: ReadAt, tombstones: bool) -> Option<Item<'_>> {
        let limit = limit(at);
        let mut first = slots.start;
        while first < slots.end {
            let next = self.page.group_end(first);
            if let Some(item) = self.item(first, next, limit, tombstones) {
                return Some(item);
            }
            first = next;
        }
        None
    }

    #[inline(always)]
    fn backward(&self, slots: Range<usize>, at: ReadAt, tombstones: bool) -> Option<Item<'_>> {
        let limit = limit(at);
        let mut end = slots.end;
        while end > slots.start {
            let first = self.page.group_start(end - 1);
            if let Some(item) = self.item(first, end, limit, tombstones) {
                return Some(item);
            }
            end = first;
        }
        None
    }

    /// Keys in `slots`, bounds between keys, whose newest version is a put.
    #[must_use]
    pub fn live_in(&self, slots: Range<usize>) -> usize {
        let live = |slot: &&[u8; SLOT_BYTES]| {
            let slot = Slot::from_bytes(**slot);
            !slot.is_older() && matches!(slot.kind(), Kind::Put | Kind::Overflow)
        };
        self.page.slots()[slots].iter().filter(live).count()
    }

    /// Copies keys of `slots`, bounds between keys, to `out` until there are `max` or one comes that is not simply a put
    /// which `at` sees; returns the slots that are left: bounds between keys, unless there are `max`.
    pub fn copy_puts(
        &self,
        slots: Range<usize>,
        at: ReadAt,
        direction: Direction,
        out: &mut EntryBatch,
        max: usize,
    ) -> Range<usize> {
        let (limit, prefix) = (limit(at), Prefix::new(&self.prefix));
        let wanted = slots.len().min(max.saturating_sub(out.len()));
        let entry_bytes = self.page.used_bytes() / self.page.len().max(1) + self.prefix.len();
        out.reserve(wanted, wanted * entry_bytes);
        let mut copy = |slot: Slot| {
            if !slot.is_newest_put() || out.len() >= max {
                return false;
            }
            let (ts, piece) = self.page.piece(slot);
            if ts <= limit {
                out.push_piece(&prefix, piece, ts);
            }
            ts <= limit
        };
        let all = self.page.slots()[slots.clone()].iter().map(|slot| Slot::from_bytes(*slot));
        match direction {
            // Older versions are of a key that was copied.
            Direction::Forward => {
                slots.start + all.take_while(|slot| slot.is_older() || copy(*slot)).count()..slots.end
            }
            Direction::Backward => slots.start..slots.end - all.rev().take_while(|slot| copy(*slot)).count(),
        }
    }

    /// The first key in `slots`, bounds between keys, that has a version at `at`, tombstones included: what a merge with
    /// attached runs needs.
    #[must_use]
    #[inline]
    pub fn next_item(&self, slots: Range<usize>, at: ReadAt) -> Option<Item<'_>> {
        self.forward(slots, at, true)
    }

    /// Like [`Self::next_item`], hopping over tombstones.
    #[must_use]
    #[inline]
    pub fn next_live(&self, slots: Range<usize>, at: ReadAt) -> Option<Item<'_>> {
        self.forward(slots, at, false)
    }

    /// The last key in `slots`, bounds between keys, that has a version at `at`, tombstones included.
    #[must_use]
    #[inline]
    pub fn previous_item(&self, slots: Range<usize>, at: ReadAt) -> Option<Item<'_>> {
        self.backward(slots, at, true)
    }

    /// Like [`Self::previous_item`], hopping over tombstones.
    #[must_use]
    #[inline]
    pub fn previous_live(&self, slots: Range<usize>, at: ReadAt) -> Option<Item<'_>> {
        self.backward(slots, at, false)
    }

    /// Every version, key ascending and timestamp descending, chains included: for verify and tests.
    pub fn for_each_version(&self, visit: &mut dyn FnMut(Key<'_>, CommitTs, Option<Value<'_>>)) {
        let mut suffix: &[u8] = &[];
        for i in 0..self.page.len() {
            let slot = self.page.slot(i);
            if !slot.is_older() {
                suffix = self.page.suffix(slot);
            }
            let key = Key { prefix: &self.prefix, suffix };
            if slot.kind() == Kind::Chain {
                for v in self.side.chain(self.page.side_id(slot)).versions() {
                    visit(key, v.ts, self.chain_value(&v.value));
                }
            } else {
                let (ts, value) = self.page.version(slot);
                visit(key, ts, self.value_of(slot.kind(), value));
            }
        }
    }
}
