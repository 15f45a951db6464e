//! Where a leaf splits, and how; merging.
//!
//! A cut lies between two keys, never inside one [A27]: all versions of a key, its chain and its large values
//! stay together. The cut is chosen for the key that found the leaf full:
//!
//! 1. *Append* [C8]: the key goes among the last 8 % of one of the index's last two leaves. If all inserts came in
//!    order, cut right before it: leaves are filled to the brim. Otherwise leave 8 % free on the left, if that
//!    much is above the cut: stragglers belong there, and must not split it again.
//! 2. *Sequence*: the last inserts came one right after the other, somewhere in the middle: one client fills its
//!    range of keys while another one is ahead. Cut right after the key and let it have the left half; if hardly
//!    anything lies above it, right before it.
//! 3. Otherwise in the middle by bytes.
//!
//! A cut may leave one half empty, when the leaf holds a single key: the new key then gets the empty half.

use super::NODE_BYTES_MIN;
use super::key::{common_prefix_bytes, shortest_separator};
use super::leaf::{Leaf, SplitPoint};
use super::page::{Kind, Page};

/// An insert among this share of the last leaf, in percent of its bytes, counts as an append [C8].
const EDGE_PERCENT: usize = 8;
/// This many inserts, one right after the other, make a sequence.
const SEQUENCE_INSERTS: u32 = 8;

const _: () = assert!(100 - EDGE_PERCENT >= 90, "C8: the left half stays at least 90 % full");

impl Leaf {
    /// Where to cut so that `key`, which found the leaf full, gets room. `edge` = one of the last two
    /// leaves of the index: an insert among the last 8 % is then an append and cuts at the insertion point [C8].
    ///
    /// After the cut the key goes to the half that covers it; if it finds that one full as well (entries of
    /// unequal size), the half is cut again. A key alone in a leaf always fits.
    #[must_use]
    pub fn choose_split(&self, key: &[u8], edge: bool) -> SplitPoint {
        debug_assert!(!self.is_empty(), "an empty leaf has room");
        let found = self.search(key);
        let at = found.unwrap_or_else(|at| at);
        let used = self.used_bytes();
        let above = self.bytes_from(at);
        let at_end = above * 100 <= used * EDGE_PERCENT;
        if edge && at_end && at > 0 {
            return self.cut_for_append(at, key, found.is_err());
        }
        let sequential =
            found.is_err() && self.sequence.length >= SEQUENCE_INSERTS && self.sequence.next as usize == at && at > 0;
        if sequential && at_end {
            return self.cut_before(at, key);
        }
        if sequential {
            let next = self.key_at(at).to_vec();
            return SplitPoint { slot: at, separator: shortest_separator(key, &next).to_vec() };
        }
        self.cut_in_the_middle(at, key, found.is_err())
    }

    /// Rule 1, for a key whose place is `at`.
    fn cut_for_append(&self, at: usize, key: &[u8], is_new: bool) -> SplitPoint {
        let in_order = is_new && self.sequence.next as usize == at && self.sequence.length as usize * 2 > at;
        if in_order {
            return self.cut_before(at, key);
        }
        let free_goal = self.node_bytes() * EDGE_PERCENT / 100;
        let (mut slot, mut free) = (self.page.len(), self.page.free_bytes());
        while slot > 1 && free < free_goal {
            let first = self.page.group_start(slot - 1);
            free += (first..slot).map(|i| self.page.entry_bytes(self.page.slot(i))).sum::<usize>();
            slot = first;
        }
        if slot == 0 || slot >= at {
            return self.cut_before(at, key);
        }
        let (below, above) = (self.key_at(slot - 1).to_vec(), self.key_at(slot).to_vec());
        SplitPoint { slot, separator: shortest_separator(&below, &above).to_vec() }
    }

    /// Cuts between slot `at - 1` and `key`, whose place is `at`.
    fn cut_before(&self, at: usize, key: &[u8]) -> SplitPoint {
        let below = self.key_at(at - 1).to_vec();
        SplitPoint { slot: at, separator: shortest_separator(&below, key).to_vec() }
    }

    fn cut_in_the_middle(&self, at: usize, key: &[u8], is_new: bool) -> SplitPoint {
        let used = self.used_bytes();
        let (mut best, mut best_distance) = (None, usize::MAX);
        let (mut left, mut first) = (0, 0);
        while first < self.page.len() {
            let past = self.page.group_end(first);
            left += (first..past).map(|i| self.page.entry_bytes(self.page.slot(i))).sum::<usize>();
            let distance = left.abs_diff(used - left);
            if past < self.page.len() && distance < best_distance {
                (best, best_distance) = (Some(past), distance);
            }
            first = past;
        }
        match best {
            Some(slot) => {
                let (below, above) = (self.key_at(slot - 1).to_vec(), self.key_at(slot).to_vec());
                SplitPoint { slot, separator: shortest_separator(&below, &above).to_vec() }
            }
            None => {
                assert!(is_new, "a key alone in a leaf has room for its newest versions and a chain");
                if at > 0 {
                    return self.cut_before(at, key);
                }
                let only = self.key_at(0).to_vec();
                SplitPoint { slot: 0, separator: shortest_separator(key, &only).to_vec() }
            }
        }
    }

    /// Bytes of the entries at or after slot `at`.
    fn bytes_from(&self, at: usize) -> usize {
        (at..self.page.len()).map(|i| self.page.entry_bytes(self.page.slot(i))).sum()
    }

    /// Cuts; `self` keeps the left half, the right half is returned. `at` is from [`Self::choose_split`] on the
    /// same content.
    #[must_use]
    pub fn split(&mut self, at: &SplitPoint) -> Leaf {
        let mut right = Leaf::new(self.page.another_frame(), &at.separator, self.hi()).of_counters(self.of_counters);
        right.side = self.side.sibling();
        right.max_ts = self.max_ts;
        let prefix = self.prefix.clone();
        let _ = right.replace_page(right.lo().into(), right.hi().map(Into::into), &prefix);
        let lo = self.lo().into();
        let old = self.replace_page(lo, Some(at.separator.as_slice().into()), &prefix);
        self.copy_slots(&old, 0..at.slot, &[], self.prefix.len() - prefix.len());
        right.adopt_slots(&old, at.slot..old.len(), &[], right.prefix.len() - prefix.len(), self);
        self.recount();
        right.recount();
        right
    }

    /// Appends slots of a page that belonged to `owner`, with what they name beside it.
    fn adopt_slots(
        &mut self,
        from: &Page,
        slots: std::ops::Range<usize>,
        front: &[u8],
        strip: usize,
        owner: &mut Leaf,
    ) {
        let mut suffix: &[u8] = &[];
        for i in slots {
            let slot = from.slot(i);
            if !slot.is_older() {
                suffix = from.suffix(slot);
            }
            let number = match slot.kind() {
                Kind::Put | Kind::Tombstone => None,
                Kind::Overflow => Some(self.side.add_value(owner.side.remove_value(from.side_id(slot)))),
                Kind::Chain => {
                    let mut chain = owner.side.remove_chain(from.side_id(slot));
                    chain.move_values(&mut owner.side, &mut self.side);
                    Some(self.side.add_chain(chain))
                }
            };
            let number = number.map(u32::to_le_bytes);
            let value = number.as_ref().map(|n| &n[..]);
            let fits = self.page.push_from(from, i, front, strip, suffix, value);
            assert!(fits, "room was counted before");
        }
    }

    /// Bytes the page would use after [`Self::merge`].
    #[must_use]
    pub fn merged_bytes(&self, right: &Leaf) -> usize {
        let prefix = common_prefix_bytes(&self.prefix, &right.prefix);
        let longer = |leaf: &Leaf| {
            let more = leaf.prefix.len() - prefix;
            more * leaf.keys() + leaf.page.newly_long_bytes(more)
        };
        self.used_bytes() + longer(self) + right.used_bytes() + longer(right)
    }

    /// True if both fit one page with a quarter to spare.
    #[must_use]
    pub fn can_merge(&self, right: &Leaf) -> bool {
        // Quick: keys only get longer.
        let spared = self.node_bytes() / 4 * 3;
        self.used_bytes() + right.used_bytes() <= spared && self.merged_bytes(right) <= spared
    }

    /// Takes everything from `right` and its upper fence. `right` is a later leaf; only EMPTY slots lie between.
    ///
    /// # Panics
    /// If [`Self::merged_bytes`] is more than a page.
    pub fn merge(&mut self, mut right: Leaf) {
        assert!(self.hi().is_some_and(|hi| hi <= right.lo()), "leaves merge with a later one");
        assert!(self.merged_bytes(&right) <= self.node_bytes(), "the caller asked can_merge");
        let left_prefix = self.prefix.clone();
        let common = common_prefix_bytes(&self.prefix, &right.prefix);
        let lo = self.lo().into();
        let hi = right.hi().map(Into::into);
        let old = self.replace_page(lo, hi, &left_prefix[..common]);
        self.copy_slots(&old, 0..old.len(), &left_prefix[self.prefix.len()..], 0);
        let old = std::mem::replace(&mut right.page, Page::new(NODE_BYTES_MIN.into()));
        let front = right.prefix[self.prefix.len()..].to_vec();
        self.adopt_slots(&old, 0..old.len(), &front, 0, &mut right);
        self.max_ts = self.max_ts.max(right.max_ts);
        self.recount();
    }
}
