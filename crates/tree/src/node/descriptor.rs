//! What a parent's image says about a child, and the image of an inner node.
//!
//! Layout in `docs/formats/node.md`. As with leaves, an image stays valid while splits shrink the fences of its
//! node: children wholly outside today's fences are trimmed at load and never counted [A8].

use std::sync::Arc;

use base::bytes::{Reader, printable, put_bytes, put_varint};
use base::limits::KEY_BYTES_MAX;
use base::{CommitTs, Lsn};
use store::BlockRef;

use super::Inner;
use super::key::common_prefix_bytes;

/// Format of an inner image.
const INNER_FORMAT: u8 = 1;
/// Bytes of a block's address and checksum.
const REF_BYTES: usize = 16;

const TAG_EMPTY: u8 = 0;
const TAG_LEAF: u8 = 1;
const TAG_INNER: u8 = 2;
const TAG_MASK: u8 = 3;
const DEAD_BIT: u8 = 4;
const OVERFLOW_BIT: u8 = 8;
const EXACT_BIT: u8 = 16;

/// What kind of node a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A leaf.
    Leaf,
    /// An inner node.
    Inner,
}

/// A child with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeDescriptor {
    /// Leaf or inner.
    pub kind: NodeKind,
    /// Where its image is.
    pub block: BlockRef,
    /// Versions below it.
    pub entries: u64,
    /// Keys below it whose newest version is a put.
    pub live: u64,
    /// Snapshots at or above this see nothing below it [A25].
    pub dead_from: Option<CommitTs>,
    /// The log had to be durable to this for the image [A6].
    pub log_need: CommitTs,
    /// Highest timestamp in the image.
    pub max_ts: CommitTs,
    /// Applied prefix when the image was encoded.
    pub write_lsn: Lsn,
    /// The image names further blocks.
    pub has_overflow: bool,
    /// The image was written for the range of its slot: nothing in it lies outside. Otherwise the range was split since,
    /// and the image is trimmed when it is read [A8].
    pub is_exact: bool,
}

/// A child, as its parent's image has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildDescriptor {
    /// No node: the range holds nothing [A8].
    Empty {
        /// Inherited from what was unlinked here.
        log_need: CommitTs,
    },
    /// A node.
    Node(NodeDescriptor),
}

impl ChildDescriptor {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ChildDescriptor::Empty { log_need } => {
                out.push(TAG_EMPTY);
                put_varint(out, log_need.0);
            }
            ChildDescriptor::Node(node) => {
                let tag = match node.kind {
                    NodeKind::Leaf => TAG_LEAF,
                    NodeKind::Inner => TAG_INNER,
                };
                let dead = if node.dead_from.is_some() { DEAD_BIT } else { 0 };
                let overflow = if node.has_overflow { OVERFLOW_BIT } else { 0 };
                let exact = if node.is_exact { EXACT_BIT } else { 0 };
                out.push(tag | dead | overflow | exact);
                put_ref(out, node.block);
                put_varint(out, node.entries);
                put_varint(out, node.live);
                if let Some(ts) = node.dead_from {
                    put_varint(out, ts.0);
                }
                put_varint(out, node.log_need.0);
                put_varint(out, node.max_ts.0);
                put_varint(out, node.write_lsn.0);
            }
        }
    }

    /// Reads one; `None` if the bytes are not one.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let tag = r.u8()?;
        let kind = match tag & TAG_MASK {
            TAG_EMPTY if tag == TAG_EMPTY => return Some(ChildDescriptor::Empty { log_need: CommitTs(r.varint()?) }),
            TAG_LEAF => NodeKind::Leaf,
            TAG_INNER => NodeKind::Inner,
            _ => return None,
        };
        if tag & !(TAG_MASK | DEAD_BIT | OVERFLOW_BIT | EXACT_BIT) != 0 {
            return None;
        }
        let block = read_ref(r)?;
        let (entries, live) = (r.varint()?, r.varint()?);
        let dead_from = if tag & DEAD_BIT != 0 { Some(CommitTs(r.varint()?)) } else { None };
        let node = NodeDescriptor {
            kind,
            block,
            entries,
            live,
            dead_from,
            log_need: CommitTs(r.varint()?),
            max_ts: CommitTs(r.varint()?),
            write_lsn: Lsn(r.varint()?),
            has_overflow: tag & OVERFLOW_BIT != 0,
            is_exact: tag & EXACT_BIT != 0,
        };
        let sound = node.live <= node.entries && (node.dead_from.is_none() || node.live == 0);
        sound.then_some(ChildDescriptor::Node(node))
    }
}

/// A block of messages for leaves below, as the image of the inner node has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentDescriptor {
    /// Where it is.
    pub block: BlockRef,
    /// The first key in it.
    pub first: Vec<u8>,
    /// The last one.
    pub last: Vec<u8>,
    /// Messages.
    pub count: u64,
    /// Of those, deletes.
    pub deletes: u64,
    /// Bytes before compression.
    pub bytes: u64,
    /// Highest timestamp in it.
    pub newest: CommitTs,
}

impl SegmentDescriptor {
    /// Its keys, printable.
    pub(crate) fn keys(&self) -> String {
        format!("[{}, {}]", printable(&self.first), printable(&self.last))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_ref(out, self.block);
        put_bytes(out, &self.first);
        put_bytes(out, &self.last);
        for n in [self.count, self.deletes, self.bytes, self.newest.0] {
            put_varint(out, n);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let block = read_ref(r)?;
        let mut key = || r.bytes().filter(|key| key.len() <= KEY_BYTES_MAX).map(<[u8]>::to_vec);
        let (first, last) = (key()?, key()?);
        let mut next = || r.varint();
        let this =
            Self { block, first, last, count: next()?, deletes: next()?, bytes: next()?, newest: CommitTs(next()?) };
        (this.first <= this.last && this.deletes <= this.count).then_some(this)
    }
}

/// A decoded inner image.
#[derive(Debug, Clone)]
pub struct InnerImage {
    /// Height above the leaves, at least 1.
    pub level: u8,
    /// Messages for leaves below; at level 1 only.
    pub segments: Vec<SegmentDescriptor>,
    /// The node.
    pub node: Inner<ChildDescriptor>,
}

impl InnerImage {
    /// Appends the portable image.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(INNER_FORMAT);
        out.push(self.level);
        put_varint(out, self.segments.len() as u64);
        self.segments.iter().for_each(|segment| segment.encode(out));
        put_varint(out, self.node.len() as u64);
        let (mut last, mut separator) = (Vec::new(), Vec::new());
        for (i, child) in self.node.children().iter().enumerate() {
            if i > 0 {
                separator.clear();
                self.node.separator(i - 1).append_to(&mut separator);
                let shared = common_prefix_bytes(&last, &separator);
                put_varint(out, shared as u64);
                put_bytes(out, &separator[shared..]);
                std::mem::swap(&mut last, &mut separator);
            }
            child.encode(out);
        }
    }

    /// The first and the last slot may be narrower than when the image was encoded.
    pub fn forget_outer_ranges(&mut self) {
        let last = self.node.len() - 1;
        self.node = self.node.map(|i, child| match *child {
            ChildDescriptor::Node(node) if i == 0 || i == last => {
                ChildDescriptor::Node(NodeDescriptor { is_exact: false, ..node })
            }
            child => child,
        });
    }

    /// An inner node for `[lo, hi)` from an image whose fences were these or wider; children outside are trimmed
    /// [A8].
    ///
    /// # Errors
    /// A sentence that says what is wrong with the bytes.
    pub fn decode(bytes: &[u8], lo: &[u8], hi: Option<&[u8]>) -> Result<Self, String> {
        let Parts { level, segments, separators, children } =
            read_inner(bytes).ok_or("inner image: the bytes do not hold")?;
        if separators.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err("inner image: separators do not ascend".into());
        }
        let kind = if level == 1 { NodeKind::Leaf } else { NodeKind::Inner };
        let strange = |c: &ChildDescriptor| matches!(c, ChildDescriptor::Node(node) if node.kind != kind);
        if level > 1 && !segments.is_empty() {
            return Err(format!("inner image: messages at level {level}"));
        }
        if level == 0 || children.iter().any(strange) {
            return Err(format!("inner image: a child is of another kind than level {level} has"));
        }
        // Child i ends at separator i and begins at separator i - 1.
        let first = separators.partition_point(|s| **s <= *lo);
        let past = hi.map_or(separators.len(), |hi| separators.partition_point(|s| **s < *hi));
        if first > past {
            return Err("inner image: fences are out of order".into());
        }
        let node = Inner::new(lo, hi, &separators[first..past], children[first..=past].to_vec())?;
        let mut segments = segments;
        segments.retain(|s| *s.last >= *lo && hi.is_none_or(|hi| *s.first < *hi));
        Ok(InnerImage { level, segments, node })
    }
}

/// What an image says, before it is cut to fences.
struct Parts {
    level: u8,
    segments: Vec<SegmentDescriptor>,
    separators: Vec<Vec<u8>>,
    children: Vec<ChildDescriptor>,
}

fn read_inner(bytes: &[u8]) -> Option<Parts> {
    let mut r = Reader::new(bytes);
    if r.u8()? != INNER_FORMAT {
        return None;
    }
    let level = r.u8()?;
    let count = r.varint()?;
    let segments = (0..count).map(|_| SegmentDescriptor::decode(&mut r)).collect::<Option<_>>()?;
    let count = r.varint()?;
    let (mut separators, mut children) = (Vec::<Vec<u8>>::new(), Vec::new());
    for i in 0..count {
        if i > 0 {
            let shared = r.length()?;
            let rest = r.bytes()?;
            let mut separator = match separators.last() {
                Some(last) => last.get(..shared)?.to_vec(),
                None if shared == 0 => Vec::new(),
                None => return None,
            };
            separator.extend_from_slice(rest);
            if separator.is_empty() || separator.len() > KEY_BYTES_MAX {
                return None;
            }
            separators.push(separator);
        }
        children.push(ChildDescriptor::decode(&mut r)?);
    }
    (count > 0 && r.is_empty()).then_some(Parts { level, segments, separators, children })
}

fn put_ref(out: &mut Vec<u8>, at: BlockRef) {
    out.extend_from_slice(&at.offset.to_le_bytes());
    out.extend_from_slice(&at.stored_bytes.to_le_bytes());
    out.extend_from_slice(&at.crc.to_le_bytes());
}

fn read_ref(r: &mut Reader<'_>) -> Option<BlockRef> {
    Some(BlockRef { offset: r.u64()?, stored_bytes: r.u32()?, crc: r.u32()? })
}

/// Appends a list of blocks.
pub(super) fn put_refs(out: &mut Vec<u8>, refs: &[BlockRef]) {
    put_varint(out, refs.len() as u64);
    refs.iter().for_each(|at| put_ref(out, *at));
}

/// Reads a list of blocks, at least one.
pub(super) fn read_refs(r: &mut Reader<'_>) -> Option<Arc<[BlockRef]>> {
    let n = r.length().filter(|n| *n > 0 && *n <= r.rest().len() / REF_BYTES)?;
    (0..n).map(|_| read_ref(r)).collect()
}
