//! What does not fit a leaf's page: large values and long version chains, kept beside it [A27].
//!
//! Numbers in the page name rows of two tables. A row belongs to exactly one entry of the page (or, for a
//! large value, to one member of a chain) and moves with it when the leaf splits.
//!
//! Every content carries an *edition*, a number that the leaf never gives twice. A write in flight remembers
//! it; what came in between (the row freed, given to another value, moved to a right sibling) has another one:
//!
//! ```text
//! write-back: takes chain 3 edition 7, starts writing
//! commit:     adds a version to chain 3          edition 8
//! write-back: set_stored(chain 3, edition 7)     refused: blocks dropped, chain is written again
//! ```

use std::sync::Arc;

use store::{BlockRef, Owed, Owing};

use super::chain::Chain;

/// A value too long for the page. Invariant: resident or stored, or both.
#[derive(Debug, Clone)]
pub struct OverflowValue {
    bytes: u64,
    edition: u64,
    resident: Option<Arc<[u8]>>,
    stored: Option<Arc<[BlockRef]>>,
    /// Counts it as long as no block holds it.
    owing: Option<Arc<Owing>>,
}

impl OverflowValue {
    /// A value that is in memory only.
    pub(super) fn resident_only(value: Arc<[u8]>) -> Self {
        OverflowValue { bytes: value.len() as u64, edition: 0, resident: Some(value), stored: None, owing: None }
    }

    /// A value that is on disk only.
    pub(super) fn stored_only(bytes: u64, refs: Arc<[BlockRef]>) -> Self {
        OverflowValue { bytes, edition: 0, resident: None, stored: Some(refs), owing: None }
    }

    /// Length of the value, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// Which value of its leaf this is, for [`super::Leaf::set_resident`].
    #[must_use]
    pub fn edition(&self) -> u64 {
        self.edition
    }

    /// The value, if it is in memory.
    #[must_use]
    pub fn resident(&self) -> Option<&Arc<[u8]>> {
        self.resident.as_ref()
    }

    /// The blocks that hold it, in order, if it was written.
    #[must_use]
    pub fn stored(&self) -> Option<&Arc<[BlockRef]>> {
        self.stored.as_ref()
    }
}

/// Names a large value or a chain within one leaf. Changes when the leaf splits or merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SideId {
    /// A large value.
    Value(u32),
    /// A version chain.
    Chain(u32),
}

/// Something beside the page that no block holds yet.
#[derive(Debug, Clone)]
pub struct Unwritten {
    /// What it is.
    pub id: SideId,
    /// Which content of `id` this is; [`super::Leaf::set_stored`] refuses another one.
    pub edition: u64,
    /// The bytes to store, to be cut into blocks as the caller likes.
    pub payload: Arc<[u8]>,
}

/// A table whose row numbers are stable until the row is removed.
#[derive(Debug, Clone)]
struct Table<T> {
    rows: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    const fn new() -> Self {
        Table { rows: Vec::new(), free: Vec::new() }
    }

    fn add(&mut self, row: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self.rows[id as usize] = Some(row);
            return id;
        }
        self.rows.push(Some(row));
        u32::try_from(self.rows.len() - 1).expect("a page has fewer entries than 2^32")
    }

    fn remove(&mut self, id: u32) -> T {
        self.free.push(id);
        let row = self.rows[id as usize].take().expect("an entry names a row that exists");
        if self.free.len() == self.rows.len() {
            self.rows.clear();
            self.free.clear();
        }
        row
    }

    fn get(&self, id: u32) -> Option<&T> {
        self.rows.get(id as usize).and_then(Option::as_ref)
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.rows.get_mut(id as usize).and_then(Option::as_mut)
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..).zip(&self.rows).filter_map(|(id, row)| row.as_ref().map(|row| (id, row)))
    }
}

/// The tables of one leaf.
#[derive(Debug, Clone)]
pub(super) struct Side {
    values: Table<OverflowValue>,
    chains: Table<Chain>,
    /// The last edition given.
    edition: u64,
    /// Told of large values that no block holds yet.
    owed: Option<Owed>,
}

impl Side {
    pub(super) const fn new() -> Self {
        Side { values: Table::new(), chains: Table::new(), edition: 0, owed: None }
    }

    /// A table for a right sibling: its editions go on where these stand.
    pub(super) fn sibling(&self) -> Self {
        Side { edition: self.edition, owed: self.owed.clone(), ..Side::new() }
    }

    /// From now on `owed` is told of large values that no block holds yet.
    pub(super) fn owe_to(&mut self, owed: &Owed) {
        self.owed = Some(owed.clone());
    }

    fn next_edition(&mut self) -> u64 {
        self.edition += 1;
        self.edition
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.rows.is_empty() && self.chains.rows.is_empty()
    }

    pub(super) fn add_value(&mut self, mut value: OverflowValue) -> u32 {
        value.edition = self.next_edition();
        if value.stored.is_none() && value.owing.is_none() {
            value.owing = self.owed.as_ref().map(|owed| Arc::new(owed.owe(value.bytes)));
        }
        self.values.add(value)
    }

    pub(super) fn value(&self, id: u32) -> &OverflowValue {
        self.values.get(id).expect("an entry names a large value that exists")
    }

    pub(super) fn remove_value(&mut self, id: u32) -> OverflowValue {
        self.values.remove(id)
    }

    pub(super) fn add_chain(&mut self, mut chain: Chain) -> u32 {
        chain.edition = self.next_edition();
        self.chains.add(chain)
    }

    pub(super) fn chain(&self, id: u32) -> &Chain {
        self.chains.get(id).expect("an entry names a chain that exists")
    }

    /// Takes a chain out to change or move it; it comes back with [`Self::put_back`] or [`Self::add_chain`].
    pub(super) fn remove_chain(&mut self, id: u32) -> Chain {
        self.chains.remove(id)
    }

    /// Puts a changed chain in its row: what is stored is no longer it.
    pub(super) fn replace_chain(&mut self, id: u32, mut chain: Chain) {
        chain.edition = self.next_edition();
        chain.stored = None;
        *self.chains.get_mut(id).expect("an entry names a chain that exists") = chain;
    }

    /// Lends a chain's content, leaving an empty one in its row until [`Self::replace_chain`] or
    /// [`Self::restore_chain`].
    pub(super) fn lend_chain(&mut self, id: u32) -> Chain {
        std::mem::take(self.chains.get_mut(id).expect("an entry names a chain that exists"))
    }

    /// Gives a lent chain back unchanged.
    pub(super) fn restore_chain(&mut self, id: u32, chain: Chain) {
        *self.chains.get_mut(id).expect("an entry names a chain that exists") = chain;
    }

    pub(super) fn chains(&self) -> impl Iterator<Item = (u32, &Chain)> {
        self.chains.iter()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = (u32, &OverflowValue)> {
        self.values.iter()
    }

    /// Bytes of memory beside the page.
    pub(super) fn memory_bytes(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let refs = |stored: &Option<Arc<[BlockRef]>>| stored.as_ref().map_or(0, |r| size_of_val(&r[..]));
        let values = self.values.iter().map(|(_, v)| v.resident.as_ref().map_or(0, |r| r.len()) + refs(&v.stored));
        let chains = self.chains.iter().map(|(_, c)| c.memory_bytes() + refs(&c.stored));
        values.sum::<usize>()
            + chains.sum::<usize>()
            + self.values.rows.len() * size_of::<Option<OverflowValue>>()
            + self.chains.rows.len() * size_of::<Option<Chain>>()
    }

    /// See [`super::Leaf::unwritten`].
    pub(super) fn unwritten(&self) -> Vec<Unwritten> {
        let mut out: Vec<_> = self
            .values
            .iter()
            .filter(|(_, v)| v.stored.is_none())
            .map(|(id, v)| {
                let payload = v.resident.clone().expect("a value is resident or stored");
                Unwritten { id: SideId::Value(id), edition: v.edition, payload }
            })
            .collect();
        if out.is_empty() {
            out.extend(self.chains.iter().filter(|(_, c)| c.stored.is_none()).map(|(id, c)| Unwritten {
                id: SideId::Chain(id),
                edition: c.edition,
                payload: c.encode(self).into(),
            }));
        }
        out
    }

    /// True if everything has its blocks.
    pub(super) fn is_stored(&self) -> bool {
        self.values.iter().all(|(_, v)| v.stored.is_some()) && self.chains.iter().all(|(_, c)| c.stored.is_some())
    }

    /// See [`super::Leaf::set_stored`].
    pub(super) fn set_stored(&mut self, id: SideId, edition: u64, refs: Vec<BlockRef>) -> bool {
        match id {
            SideId::Value(id) => {
                let Some(value) = self.values.get_mut(id).filter(|v| v.edition == edition) else { return false };
                value.stored = Some(refs.into());
                value.owing = None;
                true
            }
            SideId::Chain(id) => {
                let Some(chain) = self.chains.get(id).filter(|c| c.edition == edition) else { return false };
                let bytes = chain.encode(self).len() as u64;
                let chain = self.chains.get_mut(id).expect("it was there");
                chain.stored = Some(refs.into());
                chain.stored_bytes = bytes;
                true
            }
        }
    }

    /// See [`super::Leaf::set_resident`].
    pub(super) fn set_resident(&mut self, edition: u64, bytes: Arc<[u8]>) -> bool {
        let rows = self.values.rows.iter_mut().flatten();
        match rows.into_iter().find(|v| v.edition == edition) {
            Some(v) if v.bytes == bytes.len() as u64 => {
                v.resident = Some(bytes);
                true
            }
            _ => false,
        }
    }

    /// See [`super::Leaf::install_chain`].
    pub(super) fn install_chain(&mut self, id: u32, bytes: &[u8], inline_max: usize) -> Result<(), String> {
        let Some(cold) = self.chains.get(id).cloned() else { return Err(format!("chain {id} does not exist")) };
        if cold.is_resident() {
            return Ok(());
        }
        let chain = cold.decode(bytes, inline_max, self)?;
        self.restore_chain(id, chain);
        Ok(())
    }

    /// See [`super::Leaf::release_stored_values`].
    pub(super) fn release_stored_values(&mut self) -> usize {
        let mut bytes = 0;
        for value in self.values.rows.iter_mut().flatten().filter(|v| v.stored.is_some()) {
            bytes += value.resident.take().map_or(0, |r| r.len());
        }
        bytes
    }
}
