//! Replacing inner nodes: a leaf's split on its way up, folding, merging, the root's growth and shrinking.
//!
//! All of it happens under ONE latch per tree. Splits of leaves are rare (once per half a leaf of inserts) and a
//! replacement takes a few microseconds; latching level by level would buy little and cost the proof below.
//!
//! Steps of a replacement: (1) the caller holds the latches of the leaves concerned; (2) it takes the structure
//! latch; (3) the path from the root is looked up anew; (4) new nodes are built and published, upper ones first: a
//! reader that comes between finds the right half by the new parent or the whole by the old cell; (5) every handle
//! on the path is noted as changed and loses its dead mark, lowest first.
//!
//! # Images and splits of inner nodes
//!
//! A split gives both halves the old image, trimmed at load [A9]. What a durable parent names twice would have two
//! owners after a reopen, so two rules keep every durable block named by one slot:
//! - R1 (in `compose`): neighbours that share an image are written as one slot over both ranges.
//! - R2 (here): an inner node is cut where no image is shared across the cut, and where its own last image has a
//!   cut too; only if there is no such place, the right half drops its image and is composed anew before its
//!   parent is, and its leaves that share an image with the left half are written first.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::CommitTs;
use store::epoch::{self, Guard};
use store::{Class, allocated};
use vfs::sync::MutexGuard;

use crate::descent::{Step, loaded};
use crate::handle::{Child, INNER_BYTES, InnerHandle, InnerNode, InnerRecord, InnerState, LEAF_BYTES, LeafHandle};
use crate::image::{Fence, Image};
use crate::node::Inner;
use crate::segment::SegmentBlock;
use crate::tree::Core;

/// What the structure latch protects besides the cells: proof of holding it.
#[derive(Debug, Default)]
pub(crate) struct Structure(());

/// Holds the structure latch.
pub(crate) type Latched<'a> = MutexGuard<'a, Structure>;

/// An inner node cut in two.
struct Cut {
    left: Inner<Child>,
    separator: Vec<u8>,
    right: Inner<Child>,
    /// The cut breaks R2: the right half needs a new image before its parent gets one.
    needs_image: bool,
}

impl Core {
    pub(crate) fn latch_structure(&self) -> Latched<'_> {
        vfs::thread::point("tree.before_structure");
        self.structure.lock()
    }

    /// `left` was split at `separator`; makes `right` its neighbour, with its image and what is unwritten. The caller holds
    /// the latch of `left`.
    ///
    /// The record is copied under the structure latch, not before:
    ///
    /// > L shares an image with leaves before it. A thread splits L and has copied its record for the right half R. Another
    /// > split cuts the parent before L by force: L must be written first. R, inserted then, shares the image across the
    /// > cut and nobody has told it so.
    pub(crate) fn insert_right(&self, left: &Arc<LeafHandle>, separator: &[u8], right: Arc<LeafHandle>) {
        let latched = self.latch_structure();
        {
            let (left, mut right) = (left.record.lock(), right.record.lock());
            right.image.clone_from(&left.image);
            right.oldest_unwritten = left.oldest();
        }
        let guard = epoch::pin();
        let path = self.path(&guard, &left.low);
        let bottom = path.last().expect("a path has a root");
        debug_assert!(
            matches!(bottom.keys.child(bottom.index), Child::Leaf(leaf) if Arc::ptr_eq(leaf, left)),
            "a latched leaf that is not obsolete is where the root leads"
        );
        let keys = bottom.keys.with_split(bottom.index, separator, Child::Leaf(right));
        self.publish(&latched, &path, keys);
        note_structure_change(&path);
    }

    /// Puts `keys` in the place of the last node of `path`, splitting upwards as far as needed.
    pub(crate) fn publish(&self, latched: &Latched<'_>, path: &[Step<'_>], keys: Inner<Child>) {
        let (step, above) = path.split_last().expect("a path has a root");
        if !keys.is_overfull(self.env.options.node_bytes) {
            self.replace(latched, step.handle, step.level, keys);
            return;
        }
        let own_image = step.handle.record.lock().image.is_some();
        let cut = self.cut(keys, own_image);
        let Some(up) = above.last() else {
            self.grow_root(latched, step, cut);
            return;
        };
        let right = self.half(step.handle, step.level, cut.right, cut.needs_image);
        {
            let (mut left, mut right) = (step.handle.record.lock(), right.record.lock());
            right.retired = left.retired.extract_if(.., |r| *r.low >= *cut.separator).collect();
            (left.segments, right.segments) = cut_segments(&left.segments, &cut.separator);
            // Both have the image that names these: each half takes back what lies in its part, and what reaches into both
            // is named by both.
            let composed = cut_segments(&left.composed_segments, &cut.separator);
            (left.composed_segments, right.composed_segments) = composed;
            let twice = right.composed_segments.iter().filter(|block| *block.first < *cut.separator);
            twice.for_each(|block| self.counters.publish(&block.block));
        }
        let parent = up.keys.with_split(up.index, &cut.separator, Child::Inner(right));
        self.publish(latched, above, parent);
        vfs::thread::point("tree.split_inner");
        self.replace(latched, step.handle, step.level, cut.left);
    }

    /// The root handle stays; what it held goes into two new ones below it. Its image stays, too, of a lower tree: nobody
    /// names it before the root, now changed, is composed anew.
    fn grow_root(&self, latched: &Latched<'_>, root: &Step<'_>, cut: Cut) {
        let left = self.half(root.handle, root.level, cut.left, false);
        let right = self.half(root.handle, root.level, cut.right, cut.needs_image);
        // What its image names it names until it has another one.
        let segments = std::mem::take(&mut root.handle.record.lock().segments);
        (left.record.lock().segments, right.record.lock().segments) = cut_segments(&segments, &cut.separator);
        let keys = Inner::root(Child::Inner(left), &cut.separator, Child::Inner(right));
        self.replace(latched, root.handle, root.level + 1, keys);
    }

    /// Cuts an overfull node by R2. At the right edge of the index nine tenths stay left.
    fn cut(&self, keys: Inner<Child>, own_image: bool) -> Cut {
        let edge = keys.hi().is_none();
        let (left, separator, right) = keys.split(edge);
        let wanted = left.len();
        let forbidden = forbidden_cuts(&keys, own_image);
        if !forbidden[wanted] {
            return Cut { left, separator, right, needs_image: false };
        }
        let (least, most) = (keys.len() / 4, keys.len() - 1);
        let near = (1..keys.len()).flat_map(|d| [wanted.checked_sub(d), wanted.checked_add(d)]).flatten();
        if let Some(at) = near.filter(|at| (least.max(1)..=most).contains(at)).find(|at| !forbidden[*at]) {
            let (left, separator, right) = cut_at(&keys, at);
            return Cut { left, separator, right, needs_image: false };
        }
        self.separate_images(&left, &right);
        Cut { left, separator, right, needs_image: true }
    }

    /// Children right of a cut that share an image with one left of it must get their own before they are composed.
    fn separate_images(&self, left: &Inner<Child>, right: &Inner<Child>) {
        let on_the_left: Vec<_> = left.children().iter().filter_map(|c| image_of(c).0).collect();
        for child in right.children() {
            let Some(image) = image_of(child).0 else { continue };
            if !on_the_left.iter().any(|other| Arc::ptr_eq(other, &image)) {
                continue;
            }
            match child {
                // A leaf that shares an image was split since and not written: it is dirty, hence in memory.
                // Its last change may be in flight: then it was clean so far as the cache knows.
                Child::Leaf(leaf) => {
                    let before = std::mem::replace(&mut leaf.record.lock().oldest_unwritten, CommitTs::ZERO);
                    if before == CommitTs::MAX {
                        self.env.cache.note_dirty(self.page_bytes());
                    }
                }
                Child::Inner(inner) => {
                    inner.record.lock().image = None;
                    inner.note_change();
                }
            }
        }
    }

    /// A handle for one half of what `origin` held, with its image and its debts.
    fn half(&self, origin: &InnerHandle, level: u8, keys: Inner<Child>, needs_image: bool) -> Arc<InnerHandle> {
        let record = {
            let origin = origin.record.lock();
            let image = if needs_image { None } else { origin.image.clone() };
            InnerRecord { image, seen: origin.seen, ..InnerRecord::default() }
        };
        let half = InnerHandle::new(InnerState::Loaded(self.inner_node(level, keys)), None, record);
        half.raise_log_need(origin.log_need());
        half.note_change();
        Arc::new(half)
    }

    pub(crate) fn replace(&self, _latched: &Latched<'_>, handle: &InnerHandle, level: u8, keys: Inner<Child>) {
        handle.cell.replace(InnerState::Loaded(self.inner_node(level, keys)));
        handle.record.lock().edition += 1;
    }

    pub(crate) fn inner_node(&self, level: u8, keys: Inner<Child>) -> InnerNode {
        let charge = self.env.cache.budget().charge(Class::Inner, self.inner_bytes(&keys));
        InnerNode { level, keys, _charge: charge }
    }

    /// Memory of an inner node with the handles below it.
    fn inner_bytes(&self, keys: &Inner<Child>) -> u64 {
        let handle = match keys.child(0) {
            Child::Leaf(_) => LEAF_BYTES,
            Child::Inner(_) => INNER_BYTES,
        };
        allocated(keys.bytes()) + keys.len() as u64 * handle
    }

    /// The children in `range` of the last node of `path` become one: `child` (the first of them), which the caller
    /// has given the range and the debts of all. Then thin inner nodes above are merged.
    pub(crate) fn fold(&self, latched: &Latched<'_>, guard: &Guard, path: &[Step<'_>], range: std::ops::Range<usize>) {
        let bottom = path.last().expect("a path has a root");
        let child = bottom.keys.child(range.start).clone();
        let low = bottom.keys.fence_of(range.start).0;
        self.replace(latched, bottom.handle, bottom.level, bottom.keys.with_folded(range, child));
        note_structure_change(path);
        self.merge_thin(latched, guard, &low);
    }

    /// Merges inner nodes on the way to `key` with a neighbour where both fit one node, and lets the root shrink.
    fn merge_thin(&self, latched: &Latched<'_>, guard: &Guard, key: &[u8]) {
        loop {
            let path = self.path(guard, key);
            let merged = (1..path.len()).rev().any(|depth| self.merge_with_neighbour(latched, guard, &path[..=depth]));
            if !merged && !self.shrink_root(latched, guard) {
                return;
            }
        }
    }

    fn merge_with_neighbour(&self, latched: &Latched<'_>, guard: &Guard, path: &[Step<'_>]) -> bool {
        let [.., up, step] = path else { return false };
        let n = up.keys.len();
        if !step.keys.is_thin(self.env.options.node_bytes) {
            return false;
        }
        let pairs = [(up.index + 1 < n).then_some(up.index), up.index.checked_sub(1)];
        for left in pairs.into_iter().flatten() {
            let (Child::Inner(a), Child::Inner(b)) = (up.keys.child(left), up.keys.child(left + 1)) else { continue };
            let (Some(left_keys), Some(right_keys)) = (loaded(a, guard), loaded(b, guard)) else { continue };
            if !left_keys.can_merge(right_keys, self.env.options.node_bytes) {
                continue;
            }
            let keys = left_keys.merged(right_keys);
            absorb(a, b, &right_keys.lo().into(), up.handle);
            self.fillings.forget(right_keys.lo());
            let above = &path[..path.len() - 1];
            self.replace(latched, a, step.level, keys);
            self.replace(latched, up.handle, up.level, up.keys.with_folded(left..left + 2, Child::Inner(a.clone())));
            // A reader in the old right node finds that it may not hop there any more, a new one never comes.
            b.cell.replace(InnerState::Obsolete);
            a.note_change();
            a.mark.set(None);
            note_structure_change(above);
            // EMPTY slots that were the last and the first are neighbours now.
            self.purge.offer(right_keys.lo().into(), CommitTs::ZERO);
            return true;
        }
        false
    }

    /// A root over a single inner node takes its place. As with `grow_root`, its image waits to be replaced.
    fn shrink_root(&self, latched: &Latched<'_>, guard: &Guard) -> bool {
        let Some(keys) = loaded(&self.root, guard) else { return false };
        if keys.len() > 1 {
            return false;
        }
        let Child::Inner(only) = keys.child(0) else { return false };
        let InnerState::Loaded(node) = only.cell.load(guard) else { return false };
        {
            let mut root = self.root.record.lock();
            let mut child = only.record.lock();
            root.retire(&Fence::from([]), child.composed.take());
            root.retired.append(&mut child.retired);
            root.segments.append(&mut child.segments);
            root.composed_segments.append(&mut child.composed_segments);
        }
        self.root.raise_log_need(only.log_need());
        self.replace(latched, &self.root, node.level, node.keys.clone());
        only.cell.replace(InnerState::Obsolete);
        self.root.note_change();
        true
    }
}

/// `left` takes over the records of its right neighbour, whose parent is `parent`. It loses its image: no
/// absorbed range is in it [A8].
fn absorb(left: &InnerHandle, right: &InnerHandle, right_low: &Fence, parent: &InnerHandle) {
    let mut right_record = {
        let mut record = right.record.lock();
        let image = record.image.clone();
        std::mem::replace(&mut *record, InnerRecord { image, ..InnerRecord::default() })
    };
    let composed = right_record.composed.take();
    parent.record.lock().retire(right_low, composed);
    let mut record = left.record.lock();
    record.image = None;
    record.absorptions += 1;
    record.retired.append(&mut right_record.retired);
    let (before, mut after) = (std::mem::take(&mut record.segments), right_record.segments);
    // What reached into both.
    after.retain(|block| !before.iter().any(|other| Arc::ptr_eq(other, block)));
    record.segments = [before, after].concat();
    record.composed_segments.append(&mut right_record.composed_segments);
    drop(record);
    left.raise_log_need(right.log_need());
}

/// A buffer in two. What reaches into both halves is in both, until the next checkpoint makes two of it.
fn cut_segments(segments: &[Arc<SegmentBlock>], separator: &[u8]) -> (Vec<Arc<SegmentBlock>>, Vec<Arc<SegmentBlock>>) {
    let left = segments.iter().filter(|block| *block.first < *separator).cloned().collect();
    let right = segments.iter().filter(|block| *block.last >= *separator).cloned().collect();
    (left, right)
}

/// Step 5. Whoever climbs from a leaf at the same time may have an outdated path: see `Core::climb`.
pub(crate) fn note_structure_change(path: &[Step<'_>]) {
    for step in path.iter().rev() {
        step.handle.note_change();
        step.handle.mark.set(None);
    }
}

/// For each child: may the node not be cut before it? Index 0 is never asked for.
fn forbidden_cuts(keys: &Inner<Child>, own_image: bool) -> Vec<bool> {
    let n = keys.len();
    let mut forbidden = vec![false; n];
    let mut first_use: BTreeMap<*const Image, usize> = BTreeMap::new();
    for (i, child) in keys.children().iter().enumerate() {
        let (image, in_parent_image) = image_of(child);
        if own_image && !in_parent_image {
            forbidden[i] = true;
        }
        if let Some(image) = image {
            let first = *first_use.entry(Arc::as_ptr(&image)).or_insert(i);
            for between in &mut forbidden[first + 1..=i] {
                *between = true;
            }
        }
    }
    forbidden
}

fn image_of(child: &Child) -> (Option<Arc<Image>>, bool) {
    match child {
        Child::Leaf(leaf) => {
            let record = leaf.record.lock();
            (record.image.clone(), record.in_parent_image)
        }
        Child::Inner(inner) => {
            let record = inner.record.lock();
            (record.image.clone(), record.in_parent_image)
        }
    }
}

/// Cuts before child `at`.
fn cut_at(keys: &Inner<Child>, at: usize) -> (Inner<Child>, Vec<u8>, Inner<Child>) {
    let low_of = |i: usize| keys.fence_of(i).0;
    let separators = |range: std::ops::Range<usize>| range.map(low_of).collect::<Vec<_>>();
    let separator = low_of(at);
    let part = |lo: &[u8], hi: Option<&[u8]>, range: std::ops::Range<usize>| {
        Inner::new(lo, hi, &separators(range.start + 1..range.end), keys.children()[range].to_vec())
            .expect("parts of an ordered node are ordered")
    };
    let left = part(keys.lo(), Some(&separator), 0..at);
    let right = part(&separator, keys.hi(), at..keys.len());
    (left, separator, right)
}
