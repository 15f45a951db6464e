//! An ordered map from key to operation number, for one index of a write set: a B+tree in memory whose entries are
//! an 8-byte key head and the number; the key itself stays in the arena and is looked at only when heads are equal.
//!
//! Invariants:
//! 1. leaves are linked both ways in key order; no leaf is empty except the only one of an empty map;
//! 2. child `i > 0` of an inner node holds keys `>=` the node's bound `i`; bound 0 is never compared;
//! 3. a bound names an operation that still exists. Operations go away newest first; the one that goes may be
//!    named by bounds on the path to its key and nowhere else, because a bound equal to a key lies on its path.
//!    So `replace_newest` and `remove` repair exactly that path.
//!
//! Why not `BTreeMap`: its keys would have to own their bytes or reach the arena behind the map's back.
//! No rebalancing after removals: they come from rollbacks, which undo the insertions that made the nodes.

const LEAF_ENTRIES: usize = 64;
const INNER_CHILDREN: usize = 64;
const NONE: u32 = u32::MAX;
/// More levels than `u32::MAX` nodes of at least 32 children can have.
const LEVELS_MAX: usize = 12;

/// Gives the key of an operation.
pub(super) trait Keys {
    fn key(&self, op: u32) -> &[u8];
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    head: u64,
    op: u32,
}

#[derive(Debug)]
struct Leaf {
    entries: Vec<Entry>,
    previous: u32,
    next: u32,
}

#[derive(Debug, Default)]
struct Inner {
    bounds: Vec<Entry>,
    children: Vec<u32>,
}

/// A place between or at entries: leaf and entry number; `leaf == NONE` is behind the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    leaf: u32,
    entry: u32,
}

#[derive(Debug, Clone, Copy)]
struct Path {
    /// Inner node and child number, root first.
    steps: [(u32, u32); LEVELS_MAX],
    depth: usize,
    leaf: u32,
}

#[derive(Debug)]
pub(super) struct Ordered {
    leaves: Vec<Leaf>,
    inners: Vec<Inner>,
    free_leaves: Vec<u32>,
    free_inners: Vec<u32>,
    /// Inner levels above the leaves.
    height: usize,
    root: u32,
    last_leaf: u32,
    len: usize,
}

/// The first eight bytes, big-endian, padded with zeroes: order of heads never contradicts order of keys.
fn head(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0u8; 8];
    padded[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(padded)
}

/// Number of entries whose key is below `key` (or not above it, with `or_equal`).
fn count_below(entries: &[Entry], head: u64, key: &[u8], or_equal: bool, keys: &impl Keys) -> usize {
    entries.partition_point(|e| {
        if e.head != head {
            return e.head < head;
        }
        match keys.key(e.op).cmp(key) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => or_equal,
            std::cmp::Ordering::Greater => false,
        }
    })
}

impl Ordered {
    /// An empty map; allocates nothing.
    pub(super) const fn new() -> Self {
        Self {
            leaves: Vec::new(),
            inners: Vec::new(),
            free_leaves: Vec::new(),
            free_inners: Vec::new(),
            height: 0,
            root: 0,
            last_leaf: 0,
            len: 0,
        }
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Memory held, in bytes. Nodes are counted full: they become so.
    pub(super) fn reserved_bytes(&self) -> usize {
        let leaf = LEAF_ENTRIES * size_of::<Entry>();
        let inner = INNER_CHILDREN * (size_of::<Entry>() + 4);
        match self.leaves.len() {
            0 | 1 => self.leaves.first().map_or(0, |l| l.entries.capacity() * size_of::<Entry>()),
            n => n * (leaf + size_of::<Leaf>()) + self.inners.len() * (inner + size_of::<Inner>()),
        }
    }

    /// The operation of `key`.
    pub(super) fn get(&self, key: &[u8], keys: &impl Keys) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let head = head(key);
        let leaf = self.descend(head, key, keys).leaf;
        self.find_in_leaf(leaf, head, key, keys).ok().map(|at| self.leaves[leaf as usize].entries[at].op)
    }

    /// Makes `op` the operation of its key; returns the one it replaces.
    pub(super) fn insert(&mut self, op: u32, keys: &impl Keys) -> Option<u32> {
        let key = keys.key(op);
        let entry = Entry { head: head(key), op };
        if self.leaves.is_empty() {
            let leaf = self.new_leaf(Vec::with_capacity(4), NONE, NONE);
            (self.root, self.last_leaf, self.height) = (leaf, leaf, 0);
        }
        if self.append_fast(entry, key, keys) {
            return None;
        }
        let path = self.descend(entry.head, key, keys);
        match self.find_in_leaf(path.leaf, entry.head, key, keys) {
            Ok(at) => {
                let place = &mut self.leaves[path.leaf as usize].entries[at].op;
                Some(std::mem::replace(place, op))
            }
            Err(at) => {
                self.len += 1;
                let leaf = &mut self.leaves[path.leaf as usize];
                leaf.entries.insert(at, entry);
                if leaf.entries.len() > LEAF_ENTRIES {
                    self.split_leaf(&path, at);
                }
                None
            }
        }
    }

    /// Takes back the newest operation `op`: its key has `previous` again, or is gone.
    pub(super) fn take_back(&mut self, op: u32, previous: Option<u32>, keys: &impl Keys) {
        let key = keys.key(op);
        let head = head(key);
        let path = self.descend(head, key, keys);
        let at = self.find_in_leaf(path.leaf, head, key, keys).expect("an operation's key is in its map");
        match previous {
            Some(previous) => {
                self.leaves[path.leaf as usize].entries[at].op = previous;
                self.repair_bounds(&path, path.depth, op, Entry { head, op: previous });
            }
            None => self.remove(&path, at, op),
        }
    }

    /// Before the first entry whose key is `>= key` (or `> key`, with `or_equal`).
    pub(super) fn seek(&self, key: &[u8], or_equal: bool, keys: &impl Keys) -> Position {
        if self.len == 0 {
            return self.end();
        }
        let head = head(key);
        let leaf = self.descend(head, key, keys).leaf;
        let node = &self.leaves[leaf as usize];
        let entry = count_below(&node.entries, head, key, or_equal, keys);
        if entry == node.entries.len() {
            return Position { leaf: node.next, entry: 0 };
        }
        Position { leaf, entry: entry as u32 }
    }

    /// Before the first entry.
    pub(super) fn start(&self) -> Position {
        if self.len == 0 {
            return self.end();
        }
        let mut node = self.root;
        for _ in 0..self.height {
            node = self.inners[node as usize].children[0];
        }
        Position { leaf: node, entry: 0 }
    }

    /// Behind the last entry.
    pub(super) fn end(&self) -> Position {
        Position { leaf: NONE, entry: 0 }
    }

    /// The operation at `at`, which is not the end, and the position behind it.
    pub(super) fn step(&self, at: Position) -> (u32, Position) {
        let leaf = &self.leaves[at.leaf as usize];
        let op = leaf.entries[at.entry as usize].op;
        if at.entry as usize + 1 < leaf.entries.len() {
            return (op, Position { entry: at.entry + 1, ..at });
        }
        (op, Position { leaf: leaf.next, entry: 0 })
    }

    /// The operation before `at`, which is not the start, and its position.
    pub(super) fn step_back(&self, at: Position) -> (u32, Position) {
        let at = if at.leaf == NONE {
            self.last_of(self.last_leaf)
        } else if at.entry == 0 {
            self.last_of(self.leaves[at.leaf as usize].previous)
        } else {
            Position { entry: at.entry - 1, ..at }
        };
        (self.leaves[at.leaf as usize].entries[at.entry as usize].op, at)
    }

    fn last_of(&self, leaf: u32) -> Position {
        Position { leaf, entry: self.leaves[leaf as usize].entries.len() as u32 - 1 }
    }

    /// Right-edge path: no descent while keys ascend and the last leaf has room.
    fn append_fast(&mut self, entry: Entry, key: &[u8], keys: &impl Keys) -> bool {
        let leaf = &mut self.leaves[self.last_leaf as usize];
        let above = leaf
            .entries
            .last()
            .is_none_or(|last| last.head < entry.head || (last.head == entry.head && keys.key(last.op) < key));
        if !above || leaf.entries.len() >= LEAF_ENTRIES {
            return false;
        }
        leaf.entries.push(entry);
        self.len += 1;
        true
    }

    fn descend(&self, head: u64, key: &[u8], keys: &impl Keys) -> Path {
        let mut path = Path { steps: [(0, 0); LEVELS_MAX], depth: self.height, leaf: self.root };
        for level in 0..self.height {
            let inner = &self.inners[path.leaf as usize];
            let child = count_below(&inner.bounds[1..], head, key, true, keys);
            path.steps[level] = (path.leaf, child as u32);
            path.leaf = inner.children[child];
        }
        path
    }

    fn find_in_leaf(&self, leaf: u32, head: u64, key: &[u8], keys: &impl Keys) -> Result<usize, usize> {
        let entries = &self.leaves[leaf as usize].entries;
        let at = count_below(entries, head, key, false, keys);
        match entries.get(at) {
            Some(e) if e.head == head && keys.key(e.op) == key => Ok(at),
            _ => Err(at),
        }
    }

    /// Splits the leaf at the end of `path`, which has one entry too many since an insertion at `at`: in the middle,
    /// or before the new entry if that is the last (keys ascend: the left half stays full).
    fn split_leaf(&mut self, path: &Path, at: usize) {
        let left = path.leaf;
        let node = &mut self.leaves[left as usize];
        let cut = if at + 1 == node.entries.len() { at } else { node.entries.len() / 2 };
        let mut entries = Vec::with_capacity(LEAF_ENTRIES + 1);
        entries.extend(node.entries.drain(cut..));
        let (bound, next) = (entries[0], node.next);
        let right = self.new_leaf(entries, left, next);
        self.leaves[left as usize].next = right;
        match next {
            NONE => self.last_leaf = right,
            next => self.leaves[next as usize].previous = right,
        }
        self.add_child(path, path.depth, bound, right);
    }

    /// Puts `child` with `bound` to the right of the node that `path` reaches at `level`.
    fn add_child(&mut self, path: &Path, level: usize, bound: Entry, child: u32) {
        let Some(above) = level.checked_sub(1) else {
            assert!(self.height < LEVELS_MAX, "a map has fewer than 32^12 nodes");
            let root = Inner { bounds: vec![bound, bound], children: vec![self.root, child] };
            self.root = self.new_inner(root);
            self.height += 1;
            return;
        };
        let (number, at) = path.steps[above];
        let inner = &mut self.inners[number as usize];
        inner.bounds.insert(at as usize + 1, bound);
        inner.children.insert(at as usize + 1, child);
        if inner.children.len() <= INNER_CHILDREN {
            return;
        }
        let cut = if at as usize + 2 == inner.children.len() { at as usize + 1 } else { INNER_CHILDREN / 2 };
        let right = Inner { bounds: inner.bounds.split_off(cut), children: inner.children.split_off(cut) };
        let bound = right.bounds[0];
        let right = self.new_inner(right);
        self.add_child(path, above, bound, right);
    }

    fn remove(&mut self, path: &Path, at: usize, op: u32) {
        self.len -= 1;
        let leaf = &mut self.leaves[path.leaf as usize];
        leaf.entries.remove(at);
        if let Some(&first) = leaf.entries.first() {
            self.repair_bounds(path, path.depth, op, first);
            return;
        }
        if self.len == 0 {
            *self = Self::new();
            return;
        }
        self.unlink_leaf(path.leaf);
        // Take the empty node out of its parent, and the parent out of its own if that leaves it empty.
        for level in (0..path.depth).rev() {
            let (number, child) = path.steps[level];
            let inner = &mut self.inners[number as usize];
            inner.bounds.remove(child as usize);
            inner.children.remove(child as usize);
            if let Some(&first) = inner.bounds.first() {
                if child == 0 {
                    self.repair_bounds(path, level, op, first);
                }
                break;
            }
            self.free_inners.push(number);
        }
        while self.height > 0 && self.inners[self.root as usize].children.len() == 1 {
            self.free_inners.push(self.root);
            self.root = self.inners[self.root as usize].children[0];
            self.height -= 1;
        }
    }

    fn unlink_leaf(&mut self, number: u32) {
        let Leaf { previous, next, .. } = self.leaves[number as usize];
        match previous {
            NONE => {}
            previous => self.leaves[previous as usize].next = next,
        }
        match next {
            NONE => self.last_leaf = previous,
            next => self.leaves[next as usize].previous = previous,
        }
        self.free_leaves.push(number);
    }

    /// Bounds above `level` on the path that name `op` name `instead`.
    fn repair_bounds(&mut self, path: &Path, level: usize, op: u32, instead: Entry) {
        for &(number, child) in path.steps[..level].iter().rev() {
            let bound = &mut self.inners[number as usize].bounds[child as usize];
            if bound.op == op {
                *bound = instead;
            }
        }
    }

    fn new_leaf(&mut self, entries: Vec<Entry>, previous: u32, next: u32) -> u32 {
        let leaf = Leaf { entries, previous, next };
        if let Some(number) = self.free_leaves.pop() {
            self.leaves[number as usize] = leaf;
            return number;
        }
        self.leaves.push(leaf);
        self.leaves.len() as u32 - 1
    }

    fn new_inner(&mut self, inner: Inner) -> u32 {
        if let Some(number) = self.free_inners.pop() {
            self.inners[number as usize] = inner;
            return number;
        }
        self.inners.push(inner);
        self.inners.len() as u32 - 1
    }
}
