//! The leaf in memory: a page, its fences, its counts, and what is kept beside the page.
//!
//! A leaf holds versions of the keys in `[lo, hi)`. All of them share a prefix, which the page does not store: at
//! least the longest common prefix of the fences, and more where the keys have more (module `insert` says when
//! it gets longer and shorter). The parts of its duty are in the modules `read`, `insert`, `collect`,
//! `split` and `image`; this one owns the fields, the facts and the invariants.
//!
//! Invariants ([`Leaf::check`] recomputes them):
//! 1. Every key is in `[lo, hi)` and starts with `prefix`, which starts with the fences' common prefix; keys ascend
//!    strictly; versions of one key descend strictly by timestamp.
//! 2. The newest version of a key is in the page; a chain is the last slot of its key, and all its members are
//!    older than the key's versions in the page.
//! 3. `entries` = versions in the page + chain members; `live` = keys whose newest version is a put.
//! 4. `highest_delete` >= the timestamp of every tombstone in the page; `max_ts` >= every timestamp.
//! 5. Each row of the side tables is named exactly once.
//!
//! No latch is taken here; the handle that owns the leaf has it.

use base::CommitTs;
use store::{BlockRef, Frame, Owed};

use super::key::{Key, fence_prefix_bytes};
use super::page::{Kind, Page, long_bytes_max};
use super::side::{OverflowValue, Side, SideId, Unwritten};

/// A leaf: all versions of the keys in `[lo, hi)`, sorted by key ascending and timestamp descending.
#[derive(Debug, Clone)]
pub struct Leaf {
    pub(super) page: Page,
    pub(super) side: Side,
    lo: Box<[u8]>,
    hi: Option<Box<[u8]>>,
    /// What all keys start with.
    pub(super) prefix: Box<[u8]>,
    pub(super) entries: u32,
    pub(super) live: u32,
    pub(super) highest_delete: CommitTs,
    pub(super) max_ts: CommitTs,
    pub(super) sequence: Sequence,
    /// Its values are counters: [`super::counters`].
    pub(super) of_counters: bool,
}

/// Whether inserts come one after the other: what the split goes by besides the right edge.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sequence {
    /// Slot after the last new key.
    pub next: u32,
    /// How many new keys in a row landed at `next`.
    pub length: u32,
}

/// Counts of a leaf, all exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeafStats {
    /// Versions, tombstones and chain members included.
    pub entries: u32,
    /// Keys whose newest version is a put.
    pub live: u32,
    /// Highest timestamp among the tombstones present; zero if there is none. With `live == 0`, snapshots at or above
    /// it see nothing here [A25].
    pub highest_delete_ts: CommitTs,
    /// Highest timestamp ever applied, dropped versions included: the leaf's share of `log_need` [A6]. Survives
    /// splits and merges as the maximum.
    pub max_ts: CommitTs,
}

/// What collection dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// Versions, tombstones included.
    pub versions: u32,
    /// Tombstones that hid nothing any more: such a leaf must be written, never demoted [A5].
    pub tombstones: u32,
}

/// What an insert changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// Where the key is: the hint for the next, higher key of a batch.
    pub hint: usize,
    /// False if this (key, ts) was already there, or was dropped at once because nobody may see it.
    pub stored: bool,
    /// Change of [`LeafStats::live`].
    pub live_delta: i32,
    /// Change of [`LeafStats::entries`].
    pub entries_delta: i32,
    /// Versions of this key collected on the way.
    pub dropped: Dropped,
}

/// Outcome of [`Leaf::insert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insert {
    /// The leaf holds it.
    Done(Applied),
    /// No room; the leaf's content is unchanged. Collect or split, then try again.
    Full,
}

/// A value found.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// In the page.
    Inline(&'a [u8]),
    /// Beside it; perhaps on disk only.
    Overflow(&'a OverflowValue),
}

/// Outcome of [`Leaf::get`].
#[derive(Debug, Clone, Copy)]
pub enum Lookup<'a> {
    /// The newest visible version is this value.
    Found {
        /// Its timestamp.
        ts: CommitTs,
        /// Its value.
        value: Value<'a>,
    },
    /// The newest visible version is a delete.
    Tombstone {
        /// Its timestamp.
        ts: CommitTs,
    },
    /// No visible version.
    Absent,
}

/// A key in iteration, with its newest visible version.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The key.
    pub key: Key<'a>,
    /// The version's timestamp.
    pub ts: CommitTs,
    /// The value; `None` for a tombstone.
    pub value: Option<Value<'a>>,
    /// First slot of this key: where a backward iteration goes on.
    pub first: usize,
    /// Slot past this key: where a forward iteration goes on.
    pub next: usize,
}

/// Where a leaf will be cut. Never inside a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitPoint {
    /// First slot of the right half; may be 0 or the number of slots.
    pub slot: usize,
    /// Lower fence of the right half: above everything left, at or below everything right.
    pub separator: Vec<u8>,
}

impl Leaf {
    /// An empty leaf for keys in `[lo, hi)`, in `frame`: a node of that many bytes.
    ///
    /// # Panics
    /// If the frame has not the size of a node, or the fences are not in order.
    #[must_use]
    pub fn new(frame: impl Into<Frame>, lo: &[u8], hi: Option<&[u8]>) -> Self {
        assert!(hi.is_none_or(|hi| lo < hi), "fences are in order");
        Leaf {
            page: Page::new(frame.into()),
            side: Side::new(),
            lo: lo.into(),
            hi: hi.map(Into::into),
            prefix: lo[..fence_prefix_bytes(lo, hi)].into(),
            entries: 0,
            live: 0,
            highest_delete: CommitTs::ZERO,
            max_ts: CommitTs::ZERO,
            sequence: Sequence::default(),
            of_counters: false,
        }
    }

    /// Lower fence, inclusive.
    #[must_use]
    pub fn lo(&self) -> &[u8] {
        &self.lo
    }

    /// Upper fence, exclusive; `None` for the last leaf.
    #[must_use]
    pub fn hi(&self) -> Option<&[u8]> {
        self.hi.as_deref()
    }

    /// True if `key` is within the fences.
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        *self.lo <= *key && self.hi.as_ref().is_none_or(|hi| *key < **hi)
    }

    /// Counts.
    #[must_use]
    pub fn stats(&self) -> LeafStats {
        LeafStats {
            entries: self.entries,
            live: self.live,
            highest_delete_ts: self.highest_delete,
            max_ts: self.max_ts,
        }
    }

    /// Versions that are not a key's newest put: what collection could at best remove.
    #[must_use]
    pub fn dead(&self) -> u32 {
        self.entries - self.live
    }

    /// True if there is no entry at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.page.len() == 0
    }

    /// Slots in use; a position is below it.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.page.len()
    }

    /// Bytes of the page in use, garbage not counted.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.page.used_bytes()
    }

    /// Page size.
    #[must_use]
    pub fn node_bytes(&self) -> usize {
        self.page.size_bytes()
    }

    /// Bytes of memory: page, fences and what is resident beside the page.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let fences = self.lo.len() + self.prefix.len() + self.hi.as_ref().map_or(0, |hi| hi.len());
        size_of::<Self>() + self.page.size_bytes() + fences + self.side.memory_bytes()
    }

    /// Bytes that are free whatever keys come: as if only the fences' common prefix were stripped. A new entry needs
    /// at most [`super::entry_bytes_max`] of them.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        let longer = match self.prefix.len() - self.fence_prefix_bytes() {
            0 => 0,
            bytes => bytes * self.keys() + long_bytes_max(self.node_bytes()),
        };
        self.page.free_bytes().saturating_sub(longer)
    }

    /// True if a put of this size surely fits without a split.
    #[must_use]
    pub fn has_room_for(&self, key_bytes: usize, value_bytes: usize) -> bool {
        self.free_bytes() >= super::entry_bytes_max(self.node_bytes(), key_bytes, value_bytes)
    }

    /// The key at `slot`.
    #[must_use]
    pub fn key_at(&self, slot: usize) -> Key<'_> {
        let first = self.page.slot(self.page.group_start(slot));
        Key { prefix: &self.prefix, suffix: self.page.suffix(first) }
    }

    /// Length of the shortest prefix that this leaf may have.
    pub(super) fn fence_prefix_bytes(&self) -> usize {
        fence_prefix_bytes(&self.lo, self.hi())
    }

    /// Takes the page out and puts in an empty one for other fences. All keys to come start with `prefix` and with
    /// the fences' common prefix; the longer one becomes the leaf's.
    pub(super) fn replace_page(&mut self, lo: Box<[u8]>, hi: Option<Box<[u8]>>, prefix: &[u8]) -> Page {
        let fences = &lo[..fence_prefix_bytes(&lo, hi.as_deref())];
        self.prefix = if prefix.len() > fences.len() { prefix.into() } else { fences.into() };
        self.lo = lo;
        self.hi = hi;
        self.sequence = Sequence::default();
        let empty = Page::new(self.page.another_frame());
        std::mem::replace(&mut self.page, empty)
    }

    /// Keys, dead ones included.
    pub(super) fn keys(&self) -> usize {
        (0..self.page.len()).filter(|i| !self.page.slot(*i).is_older()).count()
    }

    /// Recomputes `entries`, `live` and `highest_delete` from the page and the chains.
    pub(super) fn recount(&mut self) {
        (self.entries, self.live, self.highest_delete) = self.counts();
    }

    pub(super) fn counts(&self) -> (u32, u32, CommitTs) {
        let (mut entries, mut live, mut highest_delete) = (0, 0, CommitTs::ZERO);
        for i in 0..self.page.len() {
            let slot = self.page.slot(i);
            match slot.kind() {
                Kind::Chain => entries += self.side.chain(self.page.side_id(slot)).len(),
                Kind::Tombstone => {
                    entries += 1;
                    highest_delete = highest_delete.max(self.page.ts(slot));
                }
                Kind::Put | Kind::Overflow => {
                    entries += 1;
                    live += u32::from(!slot.is_older());
                }
            }
        }
        (entries, live, highest_delete)
    }

    // ---- beside the page -----------------------------------------------------------------------------------

    /// True if large values or chains exist: the image then names further blocks.
    #[must_use]
    pub fn has_side(&self) -> bool {
        !self.side.is_empty()
    }

    /// `owed` is told of large values that no block holds yet, here and in what is split off.
    #[must_use]
    pub fn owing_to(mut self, owed: &Owed) -> Self {
        self.side.owe_to(owed);
        self
    }

    /// What must be written before the leaf can be encoded. Large values come first; chains, which name the
    /// blocks of large values, only when no large value is left: write these, [`Self::set_stored`], ask again
    /// until empty.
    #[must_use]
    pub fn unwritten(&self) -> Vec<Unwritten> {
        self.side.unwritten()
    }

    /// Notes where something is stored. False if it was replaced or moved in the meantime (the blocks are not
    /// needed).
    pub fn set_stored(&mut self, id: SideId, edition: u64, refs: Vec<BlockRef>) -> bool {
        self.side.set_stored(id, edition, refs)
    }

    /// Chains that a decoded leaf still lacks: (id, blocks in order, length in bytes). They are read and
    /// installed before the leaf is published; a published leaf lacks none.
    #[must_use]
    pub fn missing_chains(&self) -> Vec<(SideId, std::sync::Arc<[BlockRef]>, u64)> {
        let missing = self.side.chains().filter(|(_, chain)| !chain.is_resident());
        missing
            .map(|(id, chain)| {
                let refs = chain.stored.clone().expect("a chain is resident or stored");
                (SideId::Chain(id), refs, chain.stored_bytes)
            })
            .collect()
    }

    /// Installs a chain's bytes. Installing one twice changes nothing.
    ///
    /// # Errors
    /// A sentence, if the bytes are not this chain; the leaf is then not to be used.
    pub fn install_chain(&mut self, id: SideId, bytes: &[u8]) -> Result<(), String> {
        let SideId::Chain(id) = id else { return Err("not a chain".into()) };
        let newer = self.oldest_in_page_before_chain(id)?;
        self.side.install_chain(id, bytes, self.node_bytes() / 4)?;
        let newest = self.side.chain(id).versions().first().map_or(CommitTs::ZERO, |v| v.ts);
        if newest >= newer {
            return Err(format!("version chain: newest member {newest} is not older than {newer} in the page"));
        }
        Ok(())
    }

    /// Every block named beside the page (large values, chains and the large values inside chains), for ownership.
    pub fn for_each_block(&self, visit: &mut dyn FnMut(BlockRef)) {
        let values = self.side.values().filter_map(|(_, v)| v.stored());
        let chains = self.side.chains().filter_map(|(_, c)| c.stored.as_ref());
        for refs in values.chain(chains) {
            refs.iter().for_each(|at| visit(*at));
        }
    }

    /// The blocks and the length in bytes of every large value that is stored, those of chain members included.
    pub fn for_each_stored_value(&self, visit: &mut dyn FnMut(&[BlockRef], u64)) {
        for (_, value) in self.side.values() {
            if let Some(blocks) = value.stored() {
                visit(blocks, value.len_bytes());
            }
        }
    }

    /// Keeps the bytes of a large value that was read from its blocks, if the leaf still has it
    /// ([`OverflowValue::edition`]).
    pub fn set_resident(&mut self, edition: u64, bytes: std::sync::Arc<[u8]>) -> bool {
        self.side.set_resident(edition, bytes)
    }

    /// Gives back the memory of large values that are stored. Returns the bytes.
    pub fn release_stored_values(&mut self) -> usize {
        self.side.release_stored_values()
    }

    pub(super) fn overflow(&self, id: u32) -> &OverflowValue {
        self.side.value(id)
    }

    fn oldest_in_page_before_chain(&self, id: u32) -> Result<CommitTs, String> {
        let is_it = |i: &usize| {
            let slot = self.page.slot(*i);
            slot.kind() == Kind::Chain && self.page.side_id(slot) == id
        };
        let at = (1..self.page.len()).find(is_it).ok_or_else(|| format!("no slot names chain {id}"))?;
        Ok(self.page.ts(self.page.slot(at - 1)))
    }

    // ---- the whole -----------------------------------------------------------------------------------------

    /// Recomputes everything that can be recomputed and compares.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.page.check()?;
        self.check_keys()?;
        self.check_versions()?;
        let counted = self.counts();
        if (self.entries, self.live) != (counted.0, counted.1) || self.highest_delete < counted.2 {
            return Err(format!("leaf: counts {:?}, counted {counted:?}", self.stats()));
        }
        Ok(())
    }

    fn check_keys(&self) -> Result<(), String> {
        if !self.prefix.starts_with(&self.lo[..self.fence_prefix_bytes()]) {
            return Err(format!("leaf: prefix of {} bytes", self.prefix.len()));
        }
        let mut last: Option<Vec<u8>> = None;
        let mut i = 0;
        while i < self.page.len() {
            let key = self.key_at(i).to_vec();
            if !self.covers(&key) || last.as_ref().is_some_and(|last| *last >= key) {
                return Err(format!("leaf: key {} is out of order", base::bytes::printable(&key)));
            }
            last = Some(key);
            i = self.page.group_end(i);
        }
        Ok(())
    }

    fn check_versions(&self) -> Result<(), String> {
        let mut named = Vec::new();
        let mut last = CommitTs::MAX;
        for i in 0..self.page.len() {
            let slot = self.page.slot(i);
            if slot.kind() == Kind::Chain {
                let id = self.page.side_id(slot);
                let chain = self.side.chains().find(|(n, _)| *n == id).ok_or("leaf: a chain does not exist")?.1;
                named.push(SideId::Chain(id));
                if !slot.is_older() || self.page.group_end(i) != i + 1 || chain.len() == 0 {
                    return Err(format!("leaf: chain at slot {i}"));
                }
                for v in if chain.is_resident() { chain.versions() } else { &[] } {
                    if v.ts >= last || v.ts > self.max_ts {
                        return Err(format!("leaf: chain member {} after {last}", v.ts));
                    }
                    last = v.ts;
                    if let super::chain::ChainValue::Overflow(id) = v.value {
                        named.push(SideId::Value(id));
                    }
                }
                continue;
            }
            let ts = self.page.ts(slot);
            if (slot.is_older() && ts >= last) || ts > self.max_ts {
                return Err(format!("leaf: version {ts} at slot {i} after {last}"));
            }
            last = ts;
            if slot.kind() == Kind::Overflow {
                named.push(SideId::Value(self.page.side_id(slot)));
            }
        }
        let rows = self.side.values().map(|(id, _)| SideId::Value(id));
        let mut rows: Vec<_> = rows.chain(self.side.chains().map(|(id, _)| SideId::Chain(id))).collect();
        let order = |id: &SideId| match *id {
            SideId::Value(n) => (0, n),
            SideId::Chain(n) => (1, n),
        };
        rows.sort_by_key(order);
        named.sort_by_key(order);
        if rows != named {
            return Err(format!("leaf: entries name {named:?}, the side tables have {rows:?}"));
        }
        Ok(())
    }
}
