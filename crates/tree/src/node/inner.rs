//! The inner node: an immutable array of separators, and the children between them.
//!
//! `n` children have `n - 1` separators; child `i` holds the keys in `[separator i-1, separator i)`, the first one
//! from `lo`, the last one up to `hi`. Every change makes a new node that shares the children (`C` is a counted
//! pointer [A2]) and, where it can, the keys.
//!
//! Keys: a common prefix is stripped, eight-byte heads are searched first, and what follows the prefix lies in
//! one piece. Why immutable: readers walk without a latch, so a node is never seen half changed; splits are rare
//! enough to copy a few kilobytes.
//!
//! Invariants: separators ascend strictly; `lo <` all separators `< hi`; `children.len() == separators + 1`.

use std::ops::Range;
use std::sync::Arc;

use super::key::{Key, common_prefix_bytes, long_head};
use super::search::lower_bound;

/// Bytes of a node besides suffix and child, about: its end, and room for the child's descriptor in the image.
const CHILD_BYTES: usize = 24;
/// A split at the right edge leaves this share on the left, in percent.
const EDGE_LEFT_PERCENT: usize = 90;

/// Separators and children of an inner node with fences `[lo, hi)`.
#[derive(Debug, Clone)]
pub struct Inner<C> {
    keys: Arc<Separators>,
    children: Vec<C>,
}

/// Separators with their fences.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Separators {
    lo: Box<[u8]>,
    hi: Option<Box<[u8]>>,
    /// All separators start with this.
    prefix: Box<[u8]>,
    heads: Vec<u64>,
    /// Where each suffix ends in `suffixes`.
    ends: Vec<u32>,
    suffixes: Vec<u8>,
}

impl Separators {
    /// Separators in order; the caller made sure of that.
    fn build<'a>(lo: &[u8], hi: Option<&[u8]>, keys: impl Iterator<Item = Key<'a>> + Clone) -> Self {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        if let Some(key) = keys.clone().next() {
            key.append_to(&mut first);
        }
        if let Some(key) = keys.clone().last() {
            key.append_to(&mut last);
        }
        let prefix: Box<[u8]> = first[..common_prefix_bytes(&first, &last)].into();
        let mut out = Separators {
            lo: lo.into(),
            hi: hi.map(Into::into),
            prefix,
            heads: Vec::new(),
            ends: Vec::new(),
            suffixes: Vec::new(),
        };
        for key in keys {
            let start = out.suffixes.len();
            let n = out.prefix.len();
            out.suffixes.extend_from_slice(&key.prefix[n.min(key.prefix.len())..]);
            out.suffixes.extend_from_slice(&key.suffix[n.saturating_sub(key.prefix.len())..]);
            out.heads.push(long_head(&out.suffixes[start..]));
            out.ends.push(end_of(&out.suffixes));
        }
        out
    }

    fn len(&self) -> usize {
        self.heads.len()
    }

    fn start(&self, i: usize) -> usize {
        if i == 0 { 0 } else { self.ends[i - 1] as usize }
    }

    fn suffix(&self, i: usize) -> &[u8] {
        &self.suffixes[self.start(i)..self.ends[i] as usize]
    }

    fn key(&self, i: usize) -> Key<'_> {
        Key { prefix: &self.prefix, suffix: self.suffix(i) }
    }

    fn keys(&self, range: Range<usize>) -> impl Iterator<Item = Key<'_>> + Clone {
        range.map(|i| self.key(i))
    }

    /// `Ok`: the separator equals `key`. `Err`: the number of separators below it.
    fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(suffix) = key.strip_prefix(&*self.prefix) else {
            return Err(if *key < *self.prefix { 0 } else { self.len() });
        };
        let wanted = long_head(suffix);
        let heads = &self.heads[..];
        let mut base = lower_bound(heads.len(), wanted, |i| heads[i]);
        if base == heads.len() || heads[base] != wanted {
            return Err(base);
        }
        let mut end = base + heads[base..].partition_point(|h| *h <= wanted);
        while base < end {
            let middle = base + (end - base) / 2;
            match self.suffix(middle).cmp(suffix) {
                std::cmp::Ordering::Less => base = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => end = middle,
            }
        }
        Err(base)
    }

    /// Is separator `i` above `key`?
    fn is_above(&self, i: usize, key: &[u8]) -> bool {
        match key.strip_prefix(&*self.prefix) {
            Some(suffix) => {
                let head = long_head(suffix);
                self.heads[i] > head || self.heads[i] == head && self.suffix(i) > suffix
            }
            None => *key < *self.prefix,
        }
    }

    /// The same separators and one more at place `i`.
    fn with(&self, i: usize, separator: &[u8]) -> Self {
        let Some(suffix) = separator.strip_prefix(&*self.prefix).filter(|_| self.len() > 0) else {
            let new = Key { prefix: &[], suffix: separator };
            let keys = self.keys(0..i).chain(std::iter::once(new)).chain(self.keys(i..self.len()));
            return Self::build(&self.lo, self.hi.as_deref(), keys);
        };
        let at = self.start(i);
        let added = end_of(suffix);
        let mut heads = Vec::with_capacity(self.len() + 1);
        heads.extend_from_slice(&self.heads[..i]);
        heads.push(long_head(suffix));
        heads.extend_from_slice(&self.heads[i..]);
        let mut ends = Vec::with_capacity(self.len() + 1);
        ends.extend_from_slice(&self.ends[..i]);
        ends.push(at as u32 + added);
        ends.extend(self.ends[i..].iter().map(|end| end + added));
        let mut suffixes = Vec::with_capacity(self.suffixes.len() + suffix.len());
        suffixes.extend_from_slice(&self.suffixes[..at]);
        suffixes.extend_from_slice(suffix);
        suffixes.extend_from_slice(&self.suffixes[at..]);
        Separators { lo: self.lo.clone(), hi: self.hi.clone(), prefix: self.prefix.clone(), heads, ends, suffixes }
    }

    fn bytes(&self) -> usize {
        self.lo.len()
            + self.hi.as_ref().map_or(0, |hi| hi.len())
            + self.prefix.len()
            + self.suffixes.capacity()
            + size_of::<u64>() * self.heads.capacity()
            + size_of::<u32>() * self.ends.capacity()
    }
}

/// Length of a key area, which the format keeps far below 4 GiB.
fn end_of(suffixes: &[u8]) -> u32 {
    u32::try_from(suffixes.len()).expect("a node is split long before its keys fill 4 GiB")
}

impl<C: Clone> Inner<C> {
    /// A node from its parts.
    ///
    /// # Errors
    /// A sentence, unless the separators ascend strictly, above `lo` and below `hi`, one fewer than the children.
    pub fn new(
        lo: &[u8],
        hi: Option<&[u8]>,
        separators: &[impl AsRef<[u8]>],
        children: Vec<C>,
    ) -> Result<Self, String> {
        if separators.len() + 1 != children.len() {
            return Err(format!("inner node: {} separators for {} children", separators.len(), children.len()));
        }
        let mut last = lo;
        for separator in separators.iter().map(AsRef::as_ref) {
            if separator <= last || hi.is_some_and(|hi| separator >= hi) {
                return Err(format!("inner node: separator {} is out of order", base::bytes::printable(separator)));
            }
            last = separator;
        }
        if hi.is_some_and(|hi| lo >= hi) {
            return Err("inner node: fences are out of order".into());
        }
        let keys = separators.iter().map(|s| Key { prefix: &[], suffix: s.as_ref() });
        Ok(Inner { keys: Arc::new(Separators::build(lo, hi, keys)), children })
    }

    /// A root over the whole key space with one child.
    #[must_use]
    pub fn single(child: C) -> Self {
        Inner { keys: Arc::new(Separators::build(&[], None, std::iter::empty())), children: vec![child] }
    }

    /// A root over two halves of a split root.
    #[must_use]
    pub fn root(left: C, separator: &[u8], right: C) -> Self {
        Self::single(left).with_split(0, separator, right)
    }

    /// Lower fence, inclusive.
    #[must_use]
    pub fn lo(&self) -> &[u8] {
        &self.keys.lo
    }

    /// Upper fence, exclusive.
    #[must_use]
    pub fn hi(&self) -> Option<&[u8]> {
        self.keys.hi.as_deref()
    }

    /// Number of children, at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// The children, in key order.
    #[must_use]
    pub fn children(&self) -> &[C] {
        &self.children
    }

    /// The `i`-th child.
    #[must_use]
    pub fn child(&self, i: usize) -> &C {
        &self.children[i]
    }

    /// The child whose range has `key`; the first or last one for keys outside the fences.
    #[must_use]
    pub fn child_for(&self, key: &[u8]) -> usize {
        match self.keys.search(key) {
            Ok(equal) => equal + 1,
            Err(below) => below,
        }
    }

    /// The last child whose lower fence is below `key`: where a backward cursor that stands before `key` goes on. The
    /// first child if there is none.
    #[must_use]
    pub fn child_before(&self, key: &[u8]) -> usize {
        self.keys.search(key).unwrap_or_else(|below| below)
    }

    /// True if `key`, at or above the lower fence of child `i`, is below the upper one.
    #[must_use]
    pub fn is_in(&self, i: usize, key: &[u8]) -> bool {
        if i + 1 == self.len() { self.hi().is_none_or(|hi| key < hi) } else { self.keys.is_above(i, key) }
    }

    /// Fences of child `i`.
    #[must_use]
    pub fn fence_of(&self, i: usize) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut lo = Vec::new();
        self.append_lo_of(i, &mut lo);
        let hi = if i + 1 < self.len() { Some(self.keys.key(i).to_vec()) } else { self.hi().map(<[u8]>::to_vec) };
        (lo, hi)
    }

    /// Appends the lower fence of child `i`.
    pub fn append_lo_of(&self, i: usize, out: &mut Vec<u8>) {
        if i == 0 {
            out.extend_from_slice(self.lo());
        } else {
            self.keys.key(i - 1).append_to(out);
        }
    }

    /// The separator between child `i` and the next one.
    #[must_use]
    pub fn separator(&self, i: usize) -> Key<'_> {
        self.keys.key(i)
    }

    /// Child `i` was cut at `separator`: `right` follows it.
    ///
    /// # Panics
    /// If `separator` is not within the fences of child `i`.
    #[must_use]
    pub fn with_split(&self, i: usize, separator: &[u8], right: C) -> Self {
        let above = if i == 0 { self.lo() < separator } else { self.keys.key(i - 1).cmp_bytes(separator).is_lt() };
        let below = if i < self.keys.len() {
            self.keys.key(i).cmp_bytes(separator).is_gt()
        } else {
            self.hi().is_none_or(|hi| separator < hi)
        };
        assert!(above && below, "a separator lies within the child it cuts");
        let mut children = Vec::with_capacity(self.len() + 1);
        children.extend_from_slice(&self.children[..=i]);
        children.push(right);
        children.extend_from_slice(&self.children[i + 1..]);
        Inner { keys: Arc::new(self.keys.with(i, separator)), children }
    }

    /// `child` takes the place of the children in `range` (not empty) and all their keys.
    ///
    /// # Panics
    /// If the range is empty or reaches past the last child.
    #[must_use]
    pub fn with_folded(&self, range: Range<usize>, child: C) -> Self {
        assert!(!range.is_empty() && range.end <= self.len(), "a fold replaces at least one child");
        let keys = if range.len() == 1 {
            self.keys.clone()
        } else {
            let kept = self.keys.keys(0..range.start).chain(self.keys.keys(range.end - 1..self.keys.len()));
            Arc::new(Separators::build(self.lo(), self.hi(), kept))
        };
        let mut children = self.children.clone();
        children.splice(range, [child]);
        Inner { keys, children }
    }

    /// Cuts the node: left, separator, right. In the middle by bytes, or with nine tenths left if `edge`.
    ///
    /// # Panics
    /// If there are fewer than two children.
    #[must_use]
    pub fn split(&self, edge: bool) -> (Self, Vec<u8>, Self) {
        assert!(self.len() >= 2, "a node with one child is not split");
        let percent = if edge { EDGE_LEFT_PERCENT } else { 50 };
        let goal = self.bytes_before(self.len() - 1) * percent / 100;
        let mut middle = 1;
        while middle + 1 < self.len() && self.bytes_before(middle) < goal {
            middle += 1;
        }
        let separator = self.keys.key(middle - 1).to_vec();
        let left = Separators::build(self.lo(), Some(&separator), self.keys.keys(0..middle - 1));
        let right = Separators::build(&separator, self.hi(), self.keys.keys(middle..self.keys.len()));
        (
            Inner { keys: Arc::new(left), children: self.children[..middle].to_vec() },
            separator,
            Inner { keys: Arc::new(right), children: self.children[middle..].to_vec() },
        )
    }

    /// Bytes of the first `i` separators and their children.
    fn bytes_before(&self, i: usize) -> usize {
        self.keys.start(i) + i * CHILD_BYTES
    }

    /// This node and the next one as one.
    ///
    /// # Panics
    /// If `right` does not begin where this node ends.
    #[must_use]
    pub fn merged(&self, right: &Self) -> Self {
        assert_eq!(self.hi(), Some(right.lo()), "inner nodes merge with the next one");
        let between = Key { prefix: &[], suffix: right.lo() };
        let keys = self.keys.keys(0..self.keys.len()).chain(std::iter::once(between));
        let keys = keys.chain(right.keys.keys(0..right.keys.len()));
        let children = self.children.iter().chain(&right.children).cloned().collect();
        Inner { keys: Arc::new(Separators::build(self.lo(), right.hi(), keys)), children }
    }

    /// The same node with other children.
    #[must_use]
    pub fn map<D: Clone>(&self, mut f: impl FnMut(usize, &C) -> D) -> Inner<D> {
        let children = self.children.iter().enumerate().map(|(i, child)| f(i, child)).collect();
        Inner { keys: self.keys.clone(), children }
    }

    /// Bytes of memory: keys, heads and child pointers.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Separators>() + self.keys.bytes() + self.children.capacity() * size_of::<C>()
    }

    /// True if the node should be split.
    #[must_use]
    pub fn is_overfull(&self, node_bytes: usize) -> bool {
        self.len() > 3 && self.bytes_before(self.keys.len()) + CHILD_BYTES > node_bytes
    }

    /// True if the node should be merged with a neighbour: one child, or a quarter full.
    #[must_use]
    pub fn is_thin(&self, node_bytes: usize) -> bool {
        self.len() == 1 || self.bytes_before(self.keys.len()) + CHILD_BYTES <= node_bytes / 4
    }

    /// True if this node and the next one together fill at most three quarters of a node.
    #[must_use]
    pub fn can_merge(&self, right: &Self, node_bytes: usize) -> bool {
        let longer = |node: &Self| node.keys.prefix.len() * node.keys.len();
        let keys = self.keys.suffixes.len() + right.keys.suffixes.len() + longer(self) + longer(right);
        keys + right.lo().len() + (self.len() + right.len()) * CHILD_BYTES <= node_bytes / 4 * 3
    }
}
