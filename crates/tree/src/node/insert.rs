//! One operation into a leaf.
//!
//! 1. Find the key: after the hint of an ascending batch, at the right end, or by search.
//! 2. New key: reserve room, place the entry.
//! 3. Known key, this timestamp there already: nothing changes (decision D3).
//! 4. Known key: a counter's versions are summed up ([`super::counters`]); *plan* which of its versions go by the interval rule
//!    once the new one is there, and whether the key has to give versions to a chain [A27]; if there is no room even then,
//!    `Full`, and nothing was changed but for sums.
//! 5. Carry the plan out: drop, move to the chain, place the new version.
//!
//! The prefix that the page strips follows the keys: a key that does not share it makes it shorter, and a full page
//! is first asked whether its keys share more. Both rebuild the page and happen a few times in its life.
//!
//! Collecting at write time touches the written key only, so its cost is bounded by that key's versions; the rest
//! of the leaf is `collect`'s. What was dropped is reported [A5]; `max_ts` covers the timestamp that justified
//! it, because it was applied to this leaf [A6].

use std::cmp::Ordering;

use base::{CommitTs, GcView};
use index::Op;

use super::chain::{Chain, ChainValue, ChainVersion};
use super::key::common_prefix_bytes;
use super::leaf::{Applied, Dropped, Insert, Leaf, Sequence};
use super::max_inline_bytes;
use super::page::{HEADER_BYTES, Kind, NewEntry, SIDE_BYTES, SLOT_BYTES, key_bytes_of, long_bytes_max};
use super::side::OverflowValue;

/// Bytes of page that a chain's slot uses.
const CHAIN_SLOT_BYTES: usize = SLOT_BYTES + HEADER_BYTES + SIDE_BYTES;

/// The versions of one key and a newcomer among them.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// The key's first slot.
    first: usize,
    /// Slot past its versions in the page; its chain, if it has one.
    end: usize,
    /// Slot that the newcomer takes.
    at: usize,
    /// Row of its chain.
    chain: Option<u32>,
}

/// What the newcomer will look like.
#[derive(Debug, Clone, Copy)]
struct Newcomer<'a> {
    suffix: &'a [u8],
    ts: CommitTs,
    kind: Kind,
    value: &'a [u8],
    /// Bytes that its value uses in the page.
    value_bytes: usize,
}

/// What step 5 does.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Some version of the key goes.
    drops: bool,
    /// All but the newest two go to the chain.
    spills: bool,
}

impl Leaf {
    /// Applies one operation. Idempotent: the same (key, ts) again changes nothing. Collects the key's
    /// versions by `view`, which the caller has capped below undrained runs [A4]. `hint` is
    /// [`Applied::hint`] of the previous, lower key of an ascending batch.
    ///
    /// The key is within the fences and no longer than [`super::max_key_bytes`].
    pub fn insert(&mut self, key: &[u8], ts: CommitTs, op: Op<'_>, view: &GcView, hint: Option<usize>) -> Insert {
        debug_assert!(self.covers(key), "the caller checked the fences");
        debug_assert!(key.len() <= super::max_key_bytes(self.node_bytes()), "the engine checks key lengths");
        if !key.starts_with(&self.prefix) && !self.shorten_prefix(key) {
            return Insert::Full;
        }
        let inline_max = max_inline_bytes(self.node_bytes(), key.len());
        let (kind, value): (_, &[u8]) = match op {
            Op::Delete => (Kind::Tombstone, &[]),
            Op::Put(value) if value.len() <= inline_max => (Kind::Put, value),
            Op::Put(value) => (Kind::Overflow, value),
        };
        let value_bytes = if kind == Kind::Overflow { SIDE_BYTES } else { value.len() };
        let mut new = Newcomer { suffix: &key[self.prefix.len()..], ts, kind, value, value_bytes };
        match self.find(new.suffix, hint) {
            Err(at) => {
                let inserted = self.insert_key(at, &new, view);
                if inserted == Insert::Full && self.lengthen_prefix(key) {
                    new.suffix = &key[self.prefix.len()..];
                    return self.insert_key(at, &new, view);
                }
                inserted
            }
            Ok(first) => self.insert_version(first, &new, view),
        }
    }

    /// A key came that does not start with the prefix. False: with a shorter one the page would overflow.
    #[cold]
    fn shorten_prefix(&mut self, key: &[u8]) -> bool {
        let common = common_prefix_bytes(&self.prefix, key);
        let longer = (self.prefix.len() - common) * self.keys() + long_bytes_max(self.node_bytes());
        if self.page.free_bytes() < longer {
            return false;
        }
        self.set_prefix(&key[..common]);
        true
    }

    /// The page is full: if all keys, the new one included, share more than the prefix, taking that off makes room.
    /// This is what fills the last leaf, whose fences have nothing in common. Versions have no share in it, so
    /// only new keys ask.
    #[cold]
    fn lengthen_prefix(&mut self, key: &[u8]) -> bool {
        let (first, last) = (self.key_at(0), self.key_at(self.page.len() - 1));
        let rest = &key[self.prefix.len()..];
        let more = common_prefix_bytes(first.suffix, rest).min(common_prefix_bytes(last.suffix, rest));
        if more == 0 {
            return false;
        }
        self.set_prefix(&key[..self.prefix.len() + more]);
        true
    }

    /// Rebuilds the page with another prefix of its keys.
    fn set_prefix(&mut self, prefix: &[u8]) {
        let old_prefix = self.prefix.clone();
        let sequence = self.sequence;
        let (lo, hi) = (self.lo().into(), self.hi().map(Into::into));
        let old = self.replace_page(lo, hi, prefix);
        let front = old_prefix.get(self.prefix.len()..).unwrap_or_default();
        let strip = self.prefix.len().saturating_sub(old_prefix.len());
        self.copy_slots(&old, 0..old.len(), front, strip);
        self.sequence = sequence;
    }

    /// Step 1.
    #[inline]
    fn find(&self, suffix: &[u8], hint: Option<usize>) -> Result<usize, usize> {
        let n = self.page.len();
        if n == 0 {
            return Err(0);
        }
        if let Some(from) = hint {
            let usable = from == n || (from < n && !self.page.slot(from).is_older());
            let above =
                usable && (from == 0 || self.page.compare(self.page.group_start(from - 1), suffix) == Ordering::Less);
            if above {
                return self.find_from(from, suffix);
            }
        }
        if self.page.compare(self.page.group_start(n - 1), suffix) == Ordering::Less {
            return Err(n);
        }
        self.page.search_from(0, suffix)
    }

    #[inline]
    fn find_from(&self, from: usize, suffix: &[u8]) -> Result<usize, usize> {
        if from == self.page.len() {
            return Err(from);
        }
        match self.page.compare(from, suffix) {
            Ordering::Greater => Err(from),
            Ordering::Equal => Ok(from),
            Ordering::Less => self.page.search_from(from, suffix),
        }
    }

    /// Step 2.
    fn insert_key(&mut self, at: usize, new: &Newcomer<'_>, view: &GcView) -> Insert {
        if new.kind == Kind::Tombstone && view.all_see(new.ts) {
            return self.dropped_at_once(at, new, 1);
        }
        if !self.page.reserve(SLOT_BYTES + key_bytes_of(new.suffix.len()) + HEADER_BYTES + new.value_bytes) {
            return Insert::Full;
        }
        self.place(at, false, new);
        let place = at as u32;
        let length = if place == self.sequence.next { self.sequence.length + 1 } else { 1 };
        self.sequence = Sequence { next: place + 1, length };
        let live = i32::from(new.kind != Kind::Tombstone);
        self.done(at + 1, true, live, Dropped::default())
    }

    /// Places the newcomer as an entry of its own. Room was reserved.
    fn place(&mut self, at: usize, older: bool, new: &Newcomer<'_>) {
        let number;
        let value = if new.kind == Kind::Overflow {
            number = self.side.add_value(OverflowValue::resident_only(new.value.into())).to_le_bytes();
            &number[..]
        } else {
            new.value
        };
        let entry = NewEntry { kind: new.kind, older, front: &[], suffix: new.suffix, ts: new.ts, value };
        self.page.insert(at, &entry);
        self.note(new);
    }

    fn note(&mut self, new: &Newcomer<'_>) {
        self.max_ts = self.max_ts.max(new.ts);
        if new.kind == Kind::Tombstone {
            self.highest_delete = self.highest_delete.max(new.ts);
        }
    }

    /// Adds the changes to the leaf's counts.
    fn done(&mut self, hint: usize, stored: bool, live_delta: i32, dropped: Dropped) -> Insert {
        let entries_delta = i32::from(stored) - dropped.versions as i32;
        self.entries = self.entries.wrapping_add_signed(entries_delta);
        self.live = self.live.wrapping_add_signed(live_delta);
        Insert::Done(Applied { hint, stored, live_delta, entries_delta, dropped })
    }

    /// Nobody may ever see the newcomer.
    fn dropped_at_once(&mut self, hint: usize, new: &Newcomer<'_>, tombstones: u32) -> Insert {
        self.max_ts = self.max_ts.max(new.ts);
        let dropped = Dropped { versions: 0, tombstones };
        Insert::Done(Applied { hint, stored: false, live_delta: 0, entries_delta: 0, dropped })
    }

    // ---- steps 3 to 5 --------------------------------------------------------------------------------------

    fn insert_version(&mut self, first: usize, new: &Newcomer<'_>, view: &GcView) -> Insert {
        let past = self.page.group_end(first);
        self.sum_up(first, past, view);
        let last = self.page.slot(past - 1);
        let chain = (last.kind() == Kind::Chain).then(|| self.page.side_id(last));
        let end = past - usize::from(chain.is_some());
        let at = (first..end).find(|i| self.page.ts(self.page.slot(*i)) <= new.ts).unwrap_or(end);
        let group = Group { first, end, at, chain };
        if at < end && self.page.ts(self.page.slot(at)) == new.ts {
            return self.done(past, false, 0, Dropped::default());
        }
        let newer = (at > first).then(|| self.page.ts(self.page.slot(at - 1)));
        if at == end
            && let Some(id) = chain
        {
            let older_than_chain = self.side.chain(id).versions().first().is_some_and(|v| v.ts >= new.ts);
            if older_than_chain {
                return self.insert_into_chain(&group, id, new, view);
            }
        }
        if !view.keeps(new.ts, newer) {
            return self.dropped_at_once(past, new, 0);
        }
        if at == end && chain.is_none() && new.kind == Kind::Tombstone && view.all_see(new.ts) {
            return self.dropped_at_once(past, new, 1);
        }
        match self.plan(&group, new, view) {
            Some(plan) => self.carry_out(group, new, plan, view),
            None => Insert::Full,
        }
    }

    /// Step 4. `None`: no room.
    fn plan(&self, group: &Group, new: &Newcomer<'_>, view: &GcView) -> Option<Plan> {
        let needed = SLOT_BYTES + HEADER_BYTES + new.value_bytes;
        // Bytes of the page that go with dropped versions, that stay, and that stay with the newest two.
        let (mut dropped, mut kept, mut kept_two) = (0, 0, 0);
        let mut newest = 0;
        self.for_each_planned(group, new.ts, view, |i, drops| {
            let bytes = match i {
                Some(i) => SLOT_BYTES + HEADER_BYTES + self.page.value(self.page.slot(i)).len(),
                None => needed,
            };
            if drops {
                dropped += bytes;
                return;
            }
            kept += bytes;
            newest += 1;
            if newest <= 2 {
                kept_two += bytes;
            }
        });
        let free = self.page.free_bytes() + dropped;
        let quarter = self.node_bytes() / 4;
        let drops = dropped > 0;
        if kept <= quarter && needed <= free {
            return Some(Plan { drops, spills: false });
        }
        // `kept` counts the newcomer, which is not in the page yet.
        let chain_slot = if group.chain.is_some() { 0 } else { CHAIN_SLOT_BYTES };
        if newest > 2 && kept_two + chain_slot <= free + kept - needed {
            return Some(Plan { drops, spills: true });
        }
        (needed <= free).then_some(Plan { drops, spills: false })
    }

    /// Calls `visit(slot, drops)` for the key's versions in the page, newest first; the newcomer, in its place, has
    /// no slot and stays. A tombstone at the end that everybody sees and that hides nothing goes as well.
    fn for_each_planned(
        &self,
        group: &Group,
        new_ts: CommitTs,
        view: &GcView,
        mut visit: impl FnMut(Option<usize>, bool),
    ) {
        let hides_nothing_from = self.hides_nothing_from(group, view);
        for i in group.first..=group.end {
            if i == group.at {
                visit(None, false);
            }
            if i < group.end {
                let goes = self.goes(group.first, group.at, new_ts, i, view);
                visit(Some(i), goes || i >= hides_nothing_from);
            }
        }
    }

    /// The first of the slots at the key's end that are tombstones everybody sees, with nothing older left below
    /// the newcomer.
    fn hides_nothing_from(&self, group: &Group, view: &GcView) -> usize {
        let mut from = group.end;
        if group.chain.is_some() {
            return from;
        }
        while from > group.at {
            let slot = self.page.slot(from - 1);
            let ts = self.page.ts(slot);
            let newer = if from - 1 == group.at { None } else { Some(self.page.ts(self.page.slot(from - 2))) };
            let goes = match slot.kind() {
                Kind::Tombstone => view.all_see(ts),
                // A put that the interval rule drops leaves nothing older either.
                _ => newer.is_some_and(|newer| !view.keeps(ts, Some(newer))),
            };
            if !goes {
                break;
            }
            from -= 1;
        }
        from
    }

    /// Step 5.
    fn carry_out(&mut self, mut group: Group, new: &Newcomer<'_>, plan: Plan, view: &GcView) -> Insert {
        let was_live = matches!(self.page.slot(group.first).kind(), Kind::Put | Kind::Overflow);
        let is_newest = group.at == group.first;
        let live_delta = if is_newest { i32::from(new.kind != Kind::Tombstone) - i32::from(was_live) } else { 0 };
        let mut dropped = Dropped::default();
        if plan.drops && !plan.spills && self.recycle(&group, new, view, &mut dropped) {
            self.note(new);
            let hint = self.page.group_end(group.first);
            return self.done(hint, true, live_delta, dropped);
        }
        if plan.drops {
            self.drop_planned(&mut group, new.ts, view, &mut dropped);
        }
        if plan.spills {
            let goes_to_chain = self.spill(&mut group, new, view, &mut dropped);
            if goes_to_chain {
                self.note(new);
                let hint = self.page.group_end(group.first);
                return self.done(hint, true, live_delta, dropped);
            }
        }
        self.add_version(&group, new);
        let hint = self.page.group_end(group.first);
        self.shift_sequence(group.first);
        self.done(hint, true, live_delta, dropped)
    }

    /// A second version of a key moves the slots above it.
    fn shift_sequence(&mut self, first: usize) {
        if (first as u32) < self.sequence.next {
            self.sequence = Sequence::default();
        }
    }

    /// The common case of a hot row: the newcomer is the newest, one older version goes, and all three are equally
    /// long. No byte moves but theirs. False: not this case, nothing was done.
    fn recycle(&mut self, group: &Group, new: &Newcomer<'_>, view: &GcView, dropped: &mut Dropped) -> bool {
        if group.at != group.first || new.kind == Kind::Overflow {
            return false;
        }
        let mut goes = None;
        let mut several = false;
        self.for_each_planned(group, new.ts, view, |i, drops| {
            if drops {
                several |= goes.is_some();
                goes = i;
            }
        });
        let Some(goes) = goes.filter(|i| !several && *i > group.first) else { return false };
        let (head, slot) = (self.page.slot(group.first), self.page.slot(goes));
        let same = self.page.value(head).len() == new.value.len() && self.page.value(slot).len() == new.value.len();
        if !same || slot.kind() == Kind::Overflow {
            return false;
        }
        dropped.versions = 1;
        dropped.tombstones = u32::from(slot.kind() == Kind::Tombstone);
        self.page.supersede(group.first, new.kind, new.ts, new.value, Some(goes));
        true
    }

    fn drop_planned(&mut self, group: &mut Group, new_ts: CommitTs, view: &GcView, dropped: &mut Dropped) {
        let hides_nothing_from = self.hides_nothing_from(group, view);
        let at = group.at;
        // Downwards: what a version is judged by, its next newer one, is still in its place.
        for i in (group.first..group.end).rev() {
            if self.goes(group.first, at, new_ts, i, view) || i >= hides_nothing_from {
                self.drop_slot(i, dropped);
                group.end -= 1;
                group.at -= usize::from(i < at);
            }
        }
    }

    /// The interval rule for slot `i` of the key at `first`, with the newcomer before slot `at`.
    #[inline]
    fn goes(&self, first: usize, at: usize, new_ts: CommitTs, i: usize, view: &GcView) -> bool {
        let newer = if i == at {
            Some(new_ts)
        } else if i > first {
            Some(self.page.ts(self.page.slot(i - 1)))
        } else {
            None
        };
        !view.keeps(self.page.ts(self.page.slot(i)), newer)
    }

    /// Removes a version from the page and what it names from the side table.
    fn drop_slot(&mut self, i: usize, dropped: &mut Dropped) {
        let slot = self.page.slot(i);
        match slot.kind() {
            Kind::Overflow => drop(self.side.remove_value(self.page.side_id(slot))),
            Kind::Tombstone => dropped.tombstones += 1,
            Kind::Put | Kind::Chain => {}
        }
        dropped.versions += 1;
        if !slot.is_older() {
            self.page.demote(i);
        }
        self.page.remove(i);
    }

    /// Places the newcomer among the key's other versions. If all of them went, it becomes the key's first slot.
    fn add_version(&mut self, group: &Group, new: &Newcomer<'_>) {
        let needed = SLOT_BYTES + HEADER_BYTES + new.value_bytes;
        if group.at > group.first {
            let room = self.page.reserve(needed);
            assert!(room, "the plan counted the room");
            self.place(group.at, true, new);
            return;
        }
        let others = group.end > group.first || group.chain.is_some();
        if others {
            let head = self.page.slot(group.first);
            let equal = !head.is_older() && self.page.value(head).len() == new.value_bytes;
            if equal && new.kind != Kind::Overflow {
                let room = self.page.reserve(needed);
                assert!(room, "the plan counted the room");
                self.page.supersede(group.first, new.kind, new.ts, new.value, None);
                self.note(new);
                return;
            }
            if !head.is_older() {
                self.page.demote(group.first);
            }
        }
        // The key bytes of the old first slot are garbage now, so the new ones fit.
        let room = self.page.reserve(needed + key_bytes_of(new.suffix.len()));
        assert!(room, "the plan counted the room");
        self.place(group.first, false, new);
    }

    // ---- the chain -----------------------------------------------------------------------------------------

    /// Moves all but the newest two versions, the newcomer counted, to the chain, and prunes it. True: the
    /// newcomer went with them.
    fn spill(&mut self, group: &mut Group, new: &Newcomer<'_>, view: &GcView, dropped: &mut Dropped) -> bool {
        let new_is_kept = group.at < group.first + 2;
        let keep = if new_is_kept { 1 } else { 2 };
        let from = group.first + keep;
        let mut moved: Vec<_> = (from..group.end).map(|i| self.to_chain_version(i)).collect();
        if !new_is_kept {
            let value = match new.kind {
                Kind::Put => ChainValue::Inline(new.value.into()),
                Kind::Overflow => {
                    ChainValue::Overflow(self.side.add_value(OverflowValue::resident_only(new.value.into())))
                }
                Kind::Tombstone | Kind::Chain => ChainValue::Tombstone,
            };
            moved.insert(group.at - from, ChainVersion { ts: new.ts, value });
        }
        for i in (from..group.end).rev() {
            self.page.remove(i);
        }
        group.end = from;
        let mut chain = group.chain.map_or_else(Chain::default, |id| self.side.lend_chain(id));
        chain.prepend(moved);
        let oldest_in_page = self.page.ts(self.page.slot(from - 1));
        let newer = if new_is_kept { oldest_in_page.min(new.ts) } else { oldest_in_page };
        let mut values = Vec::new();
        let pruned = chain.prune(newer, view, &mut values);
        values.into_iter().for_each(|id| drop(self.side.remove_value(id)));
        dropped.versions += pruned.versions;
        dropped.tombstones += pruned.tombstones;
        self.settle_chain(group, chain, new.suffix);
        !new_is_kept
    }

    /// Puts a chain that changed in its row and slot, or takes both away if nothing is left.
    fn settle_chain(&mut self, group: &mut Group, chain: Chain, suffix: &[u8]) {
        match (group.chain, chain.len()) {
            (Some(id), 0) => {
                self.side.remove_chain(id);
                self.page.remove(group.end);
                group.chain = None;
            }
            (Some(id), _) => self.side.replace_chain(id, chain),
            (None, 0) => {}
            (None, _) => {
                let id = self.side.add_chain(chain);
                let value = id.to_le_bytes();
                let room = self.page.reserve(CHAIN_SLOT_BYTES);
                assert!(room, "the plan counted the room");
                let ts = CommitTs::ZERO;
                let entry = NewEntry { kind: Kind::Chain, older: true, front: &[], suffix, ts, value: &value };
                self.page.insert(group.end, &entry);
                group.chain = Some(id);
            }
        }
    }

    fn to_chain_version(&self, i: usize) -> ChainVersion {
        let slot = self.page.slot(i);
        let value = match slot.kind() {
            Kind::Put => ChainValue::Inline(self.page.value(slot).into()),
            Kind::Overflow => ChainValue::Overflow(self.page.side_id(slot)),
            Kind::Tombstone | Kind::Chain => ChainValue::Tombstone,
        };
        ChainVersion { ts: self.page.ts(slot), value }
    }

    /// The newcomer is older than the chain's newest member.
    fn insert_into_chain(&mut self, group: &Group, id: u32, new: &Newcomer<'_>, view: &GcView) -> Insert {
        let hint = group.end + 1;
        let at = match self.side.chain(id).position(new.ts) {
            Ok(_) => return self.done(hint, false, 0, Dropped::default()),
            Err(at) => at,
        };
        let versions = self.side.chain(id).versions();
        let newer = versions[at - 1].ts;
        let is_last = at == versions.len();
        if !view.keeps(new.ts, Some(newer)) {
            return self.dropped_at_once(hint, new, 0);
        }
        if is_last && new.kind == Kind::Tombstone && view.all_see(new.ts) {
            return self.dropped_at_once(hint, new, 1);
        }
        let value = match new.kind {
            Kind::Put => ChainValue::Inline(new.value.into()),
            Kind::Overflow => ChainValue::Overflow(self.side.add_value(OverflowValue::resident_only(new.value.into()))),
            Kind::Tombstone | Kind::Chain => ChainValue::Tombstone,
        };
        let mut chain = self.side.lend_chain(id);
        chain.insert(at, ChainVersion { ts: new.ts, value });
        self.side.replace_chain(id, chain);
        self.note(new);
        self.done(hint, true, 0, Dropped::default())
    }
}
