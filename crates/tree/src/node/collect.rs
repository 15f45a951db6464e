//! Collection of a whole leaf by one GC view.
//!
//! 0. Counters are summed up ([`super::counters`]).
//! 1. Chains: members by the interval rule, then tombstones at the end that everybody sees.
//! 2. Versions in the page by the interval rule. The newest of a key has no newer one and stays.
//! 3. A key's last version, if nothing older is left and it is a tombstone that everybody sees, goes; then the one
//!    above it is the last, and so on: a key may vanish.
//! 4. If anything goes, the page is rebuilt without it.
//!
//! The caller makes two promises: the view is capped below what may still arrive late [A4], and `log_need` of the
//! leaf is kept: every timestamp that justified a drop was applied to this leaf, so `max_ts`, which never falls,
//! covers it [A6].

use base::{CommitTs, GcView};

use super::leaf::{Dropped, Leaf};
use super::page::{Kind, Page};

impl Leaf {
    /// Collects the whole leaf by one view: versions by the interval rule; a tombstone when everybody sees it and
    /// nothing older of its key is left. Leaves the page compact if anything was dropped.
    pub fn collect(&mut self, view: &GcView) -> Dropped {
        let mut dropped = Dropped::default();
        if self.of_counters {
            let mut first = 0;
            while first < self.page.len() {
                let past = self.page.group_end(first);
                self.sum_up(first, past, view);
                first = past;
            }
        }
        if self.dead() == 0 {
            return dropped;
        }
        let mut keep = vec![true; self.page.len()];
        let mut first = 0;
        while first < self.page.len() {
            let past = self.page.group_end(first);
            if past > first + 1 || self.page.slot(first).kind() == Kind::Tombstone {
                self.judge_key(first, past, view, &mut keep, &mut dropped);
            }
            first = past;
        }
        if keep.contains(&false) {
            for (i, _) in keep.iter().enumerate().filter(|(_, keep)| !**keep) {
                self.forget_slot(i);
            }
            let lo = self.lo().into();
            let hi = self.hi().map(Into::into);
            let prefix = self.prefix.clone();
            let old = self.replace_page(lo, hi, &prefix);
            self.copy_slots(&old, (0..old.len()).filter(|i| keep[*i]), &[], 0);
        }
        self.recount();
        dropped
    }

    /// Removes garbage from the page.
    pub fn compact(&mut self) {
        if self.page.garbage() > 0 {
            self.page.compact();
        }
    }

    fn judge_key(&mut self, first: usize, past: usize, view: &GcView, keep: &mut [bool], dropped: &mut Dropped) {
        let mut end = past;
        let mut has_chain = false;
        if self.page.slot(past - 1).kind() == Kind::Chain {
            end -= 1;
            has_chain = self.prune_chain(end, view, dropped);
            keep[end] = has_chain;
        }
        let mut newer: Option<CommitTs> = None;
        for (i, keep) in keep.iter_mut().enumerate().take(end).skip(first) {
            let slot = self.page.slot(i);
            let ts = self.page.ts(slot);
            *keep = view.keeps(ts, newer);
            if !*keep {
                dropped.versions += 1;
                dropped.tombstones += u32::from(slot.kind() == Kind::Tombstone);
            }
            newer = Some(ts);
        }
        if has_chain {
            return;
        }
        for i in (first..end).rev().filter(|i| keep[*i]).collect::<Vec<_>>() {
            let slot = self.page.slot(i);
            if slot.kind() != Kind::Tombstone || !view.all_see(self.page.ts(slot)) {
                break;
            }
            keep[i] = false;
            dropped.versions += 1;
            dropped.tombstones += 1;
        }
    }

    /// Prunes the chain that slot `at` names; false if nothing is left of it.
    fn prune_chain(&mut self, at: usize, view: &GcView, dropped: &mut Dropped) -> bool {
        let id = self.page.side_id(self.page.slot(at));
        let newer = self.page.ts(self.page.slot(at - 1));
        if !self.side.chain(id).is_prunable(newer, view) {
            return true;
        }
        let mut chain = self.side.lend_chain(id);
        let mut values = Vec::new();
        let pruned = chain.prune(newer, view, &mut values);
        values.into_iter().for_each(|value| drop(self.side.remove_value(value)));
        dropped.versions += pruned.versions;
        dropped.tombstones += pruned.tombstones;
        let left = chain.len() > 0;
        if left {
            self.side.replace_chain(id, chain);
        } else {
            // The empty chain stays in its row until its slot is forgotten.
            self.side.restore_chain(id, chain);
        }
        left
    }

    /// Takes what slot `i` names out of the side tables.
    fn forget_slot(&mut self, i: usize) {
        let slot = self.page.slot(i);
        match slot.kind() {
            Kind::Overflow => drop(self.side.remove_value(self.page.side_id(slot))),
            Kind::Chain => drop(self.side.remove_chain(self.page.side_id(slot))),
            Kind::Put | Kind::Tombstone => {}
        }
    }

    /// Appends slots of another page, whose side rows stay as they are, with `front` before and without the first
    /// `strip` bytes of every key suffix.
    pub(super) fn copy_slots(&mut self, from: &Page, slots: impl Iterator<Item = usize>, front: &[u8], strip: usize) {
        let mut suffix: &[u8] = &[];
        for i in slots {
            let slot = from.slot(i);
            if !slot.is_older() {
                suffix = from.suffix(slot);
            }
            let fits = self.page.push_from(from, i, front, strip, suffix, None);
            assert!(fits, "a part of a page fits a page");
        }
    }
}
