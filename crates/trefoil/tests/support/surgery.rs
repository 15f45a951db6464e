//! Damages a closed database so that every checksum is right: the nodes of an index are written anew with the real
//! codec, changed on the way, and named by a new manifest whose accounts are those of the blocks it reaches.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use base::bytes::{put_bytes, put_varint};
use base::{IndexId, Poison};
use store::{Block, BlockKind, BlockRef, Compression, NewBlock, Space, SpaceOptions, UpdateGroup};
use tree::node::{ChildDescriptor, Inner, InnerImage, NodeDescriptor, NodeKind};
use trefoil::fuzzing::Manifest;
use vfs::sim::SimDisk;
use vfs::{OpenHow, Vfs};

pub const DIR: &str = "/db";

/// What may be changed. Nodes of a level are numbered from the left; leaves are level 0.
pub enum Part<'a> {
    /// The payload of a node.
    Node { level: u8, n: usize, low: &'a [u8], bytes: &'a mut Vec<u8> },
    /// What the parent, or the state, says of it.
    Says { level: u8, n: usize, says: &'a mut NodeDescriptor },
}

pub type Edit<'a> = dyn FnMut(Part<'_>, &Surgeon) + 'a;

pub struct Surgeon {
    vfs: Arc<dyn Vfs>,
    pub space: Space,
    pub manifest: Manifest,
    pub id: IndexId,
    /// Blocks to be published: those that are named in the end.
    written: RefCell<Vec<Arc<Block>>>,
    named: RefCell<BTreeSet<u64>>,
    seen: Vec<usize>,
}

impl Surgeon {
    pub fn new(disk: &SimDisk, index: u32) -> Self {
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let manifest = Manifest::newest(&vfs, Path::new(DIR)).unwrap().unwrap();
        let options =
            SpaceOptions { extent_bytes: 64 << 10, direct: false, reserve_bytes: 0, max_bytes: None, budget: None };
        let space = Space::open(vfs.clone(), Path::new(DIR), options, Some(&manifest.space), Poison::new()).unwrap();
        let written = Default::default();
        Self { vfs, space, manifest, id: IndexId(index), written, named: Default::default(), seen: Vec::new() }
    }

    fn state(&mut self) -> &mut Vec<u8> {
        let id = self.id;
        &mut self.manifest.indexes.iter_mut().find(|entry| entry.id == id).unwrap().state
    }

    /// Writes the whole index anew; `edit` sees each part before it is written.
    pub fn operate(&mut self, edit: &mut Edit<'_>) -> &mut Self {
        let root = tree::root_of(self.state()).unwrap();
        let root = self.node(root, &[], edit);
        *self.state() = tree::with_root(self.state(), root).unwrap();
        self
    }

    fn node(&mut self, mut says: NodeDescriptor, low: &[u8], edit: &mut Edit<'_>) -> NodeDescriptor {
        let mut bytes = self.read(says.block, says.kind);
        let mut level = 0;
        if says.kind == NodeKind::Inner {
            let image = InnerImage::decode(&bytes, b"", None).unwrap();
            level = image.level;
            let separators: Vec<_> = (1..image.node.len()).map(|i| image.node.fence_of(i).0).collect();
            let mut children = image.node.children().to_vec();
            for (i, child) in children.iter_mut().enumerate() {
                if let ChildDescriptor::Node(node) = child {
                    *node = self.node(*node, &image.node.fence_of(i).0, edit);
                }
            }
            add_up(&mut says, &children);
            let node = Inner::new(b"", None, &separators, children).unwrap();
            bytes.clear();
            InnerImage { level, segments: image.segments, node }.encode(&mut bytes);
        }
        self.seen.resize(self.seen.len().max(usize::from(level) + 1), 0);
        let n = self.seen[usize::from(level)];
        self.seen[usize::from(level)] += 1;
        edit(Part::Node { level, n, low, bytes: &mut bytes }, self);
        drop(self.space.adopt(says.block));
        let kind = if says.kind == NodeKind::Inner { BlockKind::Inner } else { BlockKind::Leaf };
        says.block = self.write(kind, bytes);
        edit(Part::Says { level, n, says: &mut says }, self);
        self.name(says.block);
        says
    }

    pub fn read(&self, at: BlockRef, kind: NodeKind) -> Vec<u8> {
        let kind = if kind == NodeKind::Inner { BlockKind::Inner } else { BlockKind::Leaf };
        let mut bytes = Vec::new();
        self.space.read(at, kind, self.id, &mut bytes).unwrap();
        bytes
    }

    /// Writes a block; it counts if a node names it, or if `name` is called.
    pub fn write(&self, kind: BlockKind, payload: Vec<u8>) -> BlockRef {
        let (index, compression, group) = (self.id, Compression::None, UpdateGroup::Cold);
        let block = NewBlock { kind, index, compression, group, payload, cuts: Vec::new() };
        let block = self.space.write(vec![block]).unwrap().remove(0);
        let at = block.at();
        self.written.borrow_mut().push(block);
        at
    }

    pub fn name(&self, at: BlockRef) {
        self.named.borrow_mut().insert(at.offset);
    }

    /// Makes the damage part of the database.
    pub fn close(&mut self) {
        let written = self.written.take();
        let named = self.named.take();
        written.iter().filter(|block| named.contains(&block.at().offset)).for_each(|block| {
            block.publish();
        });
        self.space.sync().unwrap();
        self.manifest.space = self.space.save();
        self.space.close();
        self.publish();
    }

    pub fn publish(&mut self) {
        self.manifest.generation += 1;
        self.manifest.publish(&self.vfs, Path::new(DIR)).unwrap();
    }
}

/// What the parent of an inner node says of it.
fn add_up(says: &mut NodeDescriptor, children: &[ChildDescriptor]) {
    let nodes = || {
        children.iter().filter_map(|child| match child {
            ChildDescriptor::Node(node) => Some(node),
            ChildDescriptor::Empty { .. } => None,
        })
    };
    says.entries = nodes().map(|node| node.entries).sum();
    says.live = nodes().map(|node| node.live).sum();
    says.dead_from = nodes().try_fold(base::CommitTs::ZERO, |all, node| node.dead_from.map(|ts| all.max(ts)));
    says.max_ts = nodes().map(|node| node.max_ts).max().unwrap_or(base::CommitTs::ZERO);
}

/// What an entry of a leaf image is, after its key.
pub enum Content<'a> {
    Put(&'a [u8]),
    Large(u64, BlockRef),
    Chain(u32, u64, BlockRef),
}

/// A leaf image by hand (docs/formats/node.md), as wrong as one likes: (key, or none for an older version; ts; content).
pub fn leaf_image(max_ts: u64, entries: &[(Option<&[u8]>, u64, Content<'_>)], counts: (u64, u64)) -> Vec<u8> {
    let mut out = vec![1];
    put_varint(&mut out, max_ts);
    put_varint(&mut out, 0);
    out.push(0);
    put_bytes(&mut out, b"");
    put_varint(&mut out, entries.len() as u64);
    put_varint(&mut out, counts.0);
    put_varint(&mut out, counts.1);
    let mut last: &[u8] = b"";
    for (key, ts, content) in entries {
        let kind = match content {
            Content::Put(_) => 0,
            Content::Large(..) => 1,
            Content::Chain(..) => 3,
        };
        out.push(kind | if key.is_none() { 4 } else { 0 });
        if let Some(key) = key {
            let shared = last.iter().zip(*key).take_while(|(a, b)| a == b).count();
            put_varint(&mut out, shared as u64);
            put_bytes(&mut out, &key[shared..]);
            last = key;
        }
        if !matches!(content, Content::Chain(..)) {
            put_varint(&mut out, *ts);
        }
        match content {
            Content::Put(value) => put_bytes(&mut out, value),
            Content::Large(bytes, at) => {
                put_varint(&mut out, *bytes);
                put_varint(&mut out, 1);
                at.encode(&mut out);
            }
            Content::Chain(members, bytes, at) => {
                put_varint(&mut out, u64::from(*members));
                put_varint(&mut out, *bytes);
                put_varint(&mut out, 1);
                at.encode(&mut out);
            }
        }
    }
    out
}

/// Changes bytes of a file in place.
pub fn rot(disk: &SimDisk, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let file = disk.open(path, OpenHow { write: true, ..OpenHow::default() }).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    edit(&mut bytes);
    file.write_at(&bytes, 0).unwrap();
    file.sync().unwrap();
}
