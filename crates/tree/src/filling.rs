//! How full the buffers of inner nodes are, and which of them is drained next.
//!
//! A buffer may hold a share of what the leaves below it take on disk; of its messages a delete counts twice, for what it deletes
//! takes as much in a leaf, and both are there for nobody. Keys that come at random fill all nodes at one pace: if each
//! waited for its limit, all would come to it at once, and one after the other would be drained while nothing else is, behind a
//! time in which nothing was. So the fullest node is drained as soon as all of them together hold what they would hold on
//! average if one after the other came to its limit: of `n` nodes `(n + 1) / 2n` of what they may. From then on a node is drained
//! for each node's worth of messages that comes, at nearly its limit, and never many at once. The first time, when all are alike,
//! the last one comes to e/2 of its limit until it is its turn; one that holds more than that is drained in any case, however
//! empty the others are.
//!
//! Invariants: a node's entry is what its buffer held when it was last flushed to, drained or loaded; one that lies where no node
//! begins any more is forgotten with the merge that made it so. `is_new` entries have got messages since they were last taken:
//! what a drain has to leave, beside damage or an undrained run, is not taken again before that.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfs::sync::Mutex;

use crate::handle::Child;
use crate::image::Fence;
use crate::node::Inner;
use crate::segment::SegmentBlock;
use crate::tree::Core;

/// Messages on disk may take one in so many bytes of what the images of the leaves below take.
const DISK_SHARE: u64 = 2;
/// More than this share of its limit, in eighths, no node may hold: a little more than e/2.
const OVERFULL_EIGHTHS: u64 = 11;
/// What an inner node's image says of them may take one in so many bytes of a block. At twice as much a checkpoint drains the node
/// itself: upkeep did not come to it, and more might not fit into a block.
const NAMED_SHARE: usize = 4;
/// Of one block of them, besides its first key and its last one, about.
const DESCRIPTOR_BYTES: usize = 48;

/// The buffer of one inner node above leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filling {
    /// Messages on disk, as they are stored, deletes twice.
    pub bytes: u64,
    /// As many as may be there.
    pub limit: u64,
    /// The node's image could hardly name more blocks.
    pub is_named_full: bool,
}

impl Filling {
    fn is_overfull(&self) -> bool {
        self.is_named_full || (self.bytes > 0 && 8 * self.bytes > OVERFULL_EIGHTHS * self.limit)
    }

    /// Draining it would write each leaf for half as many messages as it may, at least.
    pub fn is_worth_draining(&self) -> bool {
        self.is_overfull() || (self.bytes > 0 && 2 * self.bytes >= self.limit)
    }

    fn share(&self) -> f64 {
        if self.is_named_full { f64::INFINITY } else { self.bytes as f64 / self.limit.max(1) as f64 }
    }
}

/// What all buffers of a tree hold.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Filled {
    /// Messages on disk, as in [`Filling`].
    pub bytes: u64,
    /// Those of them that a drain would be begun for.
    pub new_bytes: u64,
    /// As many as are there while one node after the other is drained at its limit.
    pub aim: u64,
}

/// The buffers of all nodes that are known, by where they begin.
#[derive(Debug, Default)]
pub(crate) struct Fillings(Mutex<BTreeMap<Fence, Entry>>);

#[derive(Debug, Clone, Copy)]
struct Entry {
    filling: Filling,
    is_new: bool,
}

impl Fillings {
    /// The node at `low` holds so much; `is_new`: something came.
    pub fn note(&self, low: &[u8], filling: Filling, is_new: bool) {
        let mut nodes = self.0.lock();
        match nodes.get_mut(low) {
            Some(entry) => *entry = Entry { filling, is_new: entry.is_new || is_new },
            None => drop(nodes.insert(low.into(), Entry { filling, is_new })),
        }
    }

    /// A drain left so much in the node at `low`.
    pub fn note_drained(&self, low: &[u8], bytes: u64) {
        if let Some(entry) = self.0.lock().get_mut(low) {
            entry.filling.bytes = bytes;
        }
    }

    /// The node at `low` was merged away.
    pub fn forget(&self, low: &[u8]) {
        self.0.lock().remove(low);
    }

    /// The node that is to be drained now.
    pub fn take(&self) -> Option<Fence> {
        let mut nodes = self.0.lock();
        let filled = sum(nodes.values());
        let fuller =
            |a: &(&Fence, &mut Entry), b: &(&Fence, &mut Entry)| a.1.filling.share().total_cmp(&b.1.filling.share());
        let (low, entry) = nodes.iter_mut().filter(|(_, entry)| entry.is_new).max_by(fuller)?;
        let is_due = entry.filling.is_overfull() || (filled.bytes > filled.aim && entry.filling.is_worth_draining());
        is_due.then(|| {
            entry.is_new = false;
            low.clone()
        })
    }

    pub fn filled(&self) -> Filled {
        sum(self.0.lock().values())
    }
}

fn sum<'a>(nodes: impl Iterator<Item = &'a Entry>) -> Filled {
    let (mut n, mut limit, mut filled) = (0, 0, Filled::default());
    for Entry { filling, is_new } in nodes {
        (n, limit) = (n + u64::from(filling.limit > 0), limit + filling.limit);
        filled.bytes += filling.bytes;
        filled.new_bytes += if *is_new { filling.bytes } else { 0 };
    }
    filled.aim = limit / 2 + limit / (2 * n.max(1));
    filled
}

impl Core {
    pub(crate) fn filling(&self, segments: &[Arc<SegmentBlock>], keys: &Inner<Child>) -> Filling {
        let image = |child: &Child| match child {
            Child::Leaf(leaf) => leaf.record.lock().image.as_ref().map_or(0, |image| image.block.stored_bytes()),
            Child::Inner(_) => 0,
        };
        Filling {
            bytes: filled_bytes(segments),
            limit: keys.children().iter().map(image).sum::<u64>() / DISK_SHARE,
            is_named_full: self.are_too_many_to_name(segments, NAMED_SHARE),
        }
    }

    /// The next image of a node with these blocks might not fit into a block.
    pub(crate) fn may_outgrow_its_image(&self, segments: &[Arc<SegmentBlock>]) -> bool {
        self.are_too_many_to_name(segments, NAMED_SHARE / 2)
    }

    fn are_too_many_to_name(&self, segments: &[Arc<SegmentBlock>], share: usize) -> bool {
        let named: usize = segments.iter().map(|block| block.first.len() + block.last.len() + DESCRIPTOR_BYTES).sum();
        named > self.env.space.payload_bytes_max() / share
    }
}

/// As a [`Filling`] counts them.
pub(crate) fn filled_bytes(segments: &[Arc<SegmentBlock>]) -> u64 {
    let of_deletes = |block: &SegmentBlock| block.block.stored_bytes() * block.deletes / block.count.max(1);
    stored_bytes(segments) + segments.iter().map(|block| of_deletes(block)).sum::<u64>()
}

/// Of messages on disk.
pub(crate) fn stored_bytes(segments: &[Arc<SegmentBlock>]) -> u64 {
    segments.iter().map(|block| block.block.stored_bytes()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half_of(limit: u64, bytes: u64) -> Filling {
        Filling { bytes, limit, is_named_full: false }
    }

    /// Messages come to all nodes alike; what is due is drained at once. Returns each drain: when, of which node, how full.
    fn fill(nodes: u64, rounds: u64) -> Vec<(u64, u8, u64)> {
        const LIMIT: u64 = 1000;
        let (fillings, mut held, mut drains) = (Fillings::default(), vec![0; nodes as usize], Vec::new());
        for round in 0..rounds {
            for (node, bytes) in held.iter_mut().enumerate() {
                *bytes += 1;
                fillings.note(&[node as u8], half_of(LIMIT, *bytes), true);
            }
            while let Some(low) = fillings.take() {
                drains.push((round, low[0], std::mem::take(&mut held[usize::from(low[0])])));
                fillings.note(&low, half_of(LIMIT, 0), false);
            }
        }
        drains
    }

    #[test]
    fn nodes_that_fill_alike_are_drained_one_after_the_other() {
        let drains = fill(40, 8000);
        let most_at_once = drains.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).max();
        assert_eq!(most_at_once, Some(1), "in one round, of 40");
        let settled: Vec<_> = drains.iter().filter(|(round, ..)| *round > 4000).collect();
        let mean = settled.iter().map(|(.., bytes)| bytes).sum::<u64>() / settled.len() as u64;
        assert!((930..=1000).contains(&mean), "{mean} of 1000");
        let gaps = settled.windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert!(gaps.clone().max() < Some(60), "a node in 25 rounds on average: {:?}", gaps.max());
    }

    #[test]
    fn a_single_node_is_drained_at_its_limit() {
        assert_eq!(fill(1, 2500), [(1000, 0, 1001), (2001, 0, 1001)]);
    }

    #[test]
    fn a_node_at_its_limit_is_drained_beside_empty_ones() {
        let fillings = Fillings::default();
        for node in 0..10 {
            fillings.note(&[node], half_of(1000, 0), true);
        }
        fillings.note(&[3], half_of(1000, 1375), true);
        assert_eq!(fillings.take(), None);
        fillings.note(&[3], half_of(1000, 1376), true);
        assert_eq!(fillings.take().as_deref(), Some([3].as_slice()));
        assert_eq!(fillings.take(), None, "what a drain has to leave waits for more");
        fillings.note(&[3], half_of(1000, 1377), true);
        assert_eq!(fillings.take().as_deref(), Some([3].as_slice()));
        fillings.note(&[4], Filling { is_named_full: true, ..half_of(1000, 1) }, true);
        assert_eq!(fillings.take().as_deref(), Some([4].as_slice()), "more might not fit into its image");
    }

    #[test]
    fn nothing_is_drained_for_few_messages_because_others_are_stuck() {
        let fillings = Fillings::default();
        fillings.note(&[1], half_of(1000, 5000), false);
        fillings.note(&[2], half_of(1000, 499), true);
        assert_eq!(fillings.take(), None);
        fillings.note(&[2], half_of(1000, 500), true);
        assert_eq!(fillings.take().as_deref(), Some([2].as_slice()));
    }

    #[test]
    fn a_node_that_fills_fast_starves_nobody() {
        let fillings = Fillings::default();
        let mut slow = 1001;
        fillings.note(&[2], half_of(1000, slow), true);
        for drains in 0.. {
            fillings.note(&[1], half_of(1000, 3000), true);
            slow += 100;
            fillings.note(&[2], half_of(1000, slow), true);
            if fillings.take().as_deref() == Some([2].as_slice()) {
                assert!((1..=20).contains(&drains), "{drains}");
                return;
            }
        }
    }
}
