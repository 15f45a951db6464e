//! What a running transaction has written: an append-only log of operations and, per index, an ordered map from key
//! to the newest of them (decision D1, rule A14).
//!
//! | file | owns |
//! |---|---|
//! | this one | [`WriteSet`]: the part in memory |
//! | `ordered.rs`, `arena.rs` | its maps, and the bytes of keys and values |
//! | `shared.rs` | [`SharedWriteSet`]: all of it, for the transaction and for those who probe it |
//! | `layers.rs`, `merged.rs` | parts that were moved to run files, and reading them together with the rest |
//! | `filter.rs` | which keys a run file cannot have |
//!
//! * An operation's number is its position in the log, over all indexes: a savepoint is one number. Each operation
//!   links the one it replaced.
//! * [`WriteSet::rollback_to`] takes operations back newest first, restoring what each replaced: its cost follows
//!   what was written since, not what the transaction holds.
//! * The net effect, the newest operation of each key in key order, is what commits.
//! * A view before a position ([`Seq`]) shows the set as it was then: what a statement may see of its own writes (P8).
//!
//! Memory: 24 bytes an operation, 16 a key and the bytes themselves; vectors grow by doubling, bytes in chunks.
//!
//! Invariants: `maps[m]` holds exactly the keys of operations with `map == m`; the map's number for a key is the
//! newest such operation; `previous` of an operation is an older one of the same key and map, or none.
//!
//! Latches: none here.

mod arena;
mod filter;
mod layers;
mod merged;
mod ordered;
mod shared;

use std::ops::Bound;

use base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use base::{Fault, IndexId, Result};
use smallvec::SmallVec;

use self::arena::{Arena, Place};
pub use self::layers::SpillFiles;
use self::ordered::{Keys, Ordered, Position};
pub use self::shared::{Copied, SharedWriteSet};

const NONE: u32 = u32::MAX;
/// Of so many operations the bytes of all stand for those of one index.
const FEW_OPERATIONS: usize = 8;

/// A position in the operation log: between two operations. Operations before it have a smaller number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// Behind every operation: the view that sees all.
    pub const LATEST: Self = Self(u64::MAX);
}

/// What a transaction did to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written<'a> {
    /// It has this value.
    Put(&'a [u8]),
    /// It is gone.
    Delete,
}

impl<'a> Written<'a> {
    /// The value; none if the key is gone.
    #[must_use]
    pub fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Put(value) => Some(value),
            Self::Delete => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    place: Place,
    value_bytes: u32,
    /// The operation this one replaced, `NONE` for the first on its key.
    previous: u32,
    map: u32,
    key_bytes: u16,
    delete: bool,
    fresh: bool,
}
const _: () = assert!(size_of::<Operation>() == 24 && KEY_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(VALUE_BYTES_MAX <= u32::MAX as u64);

#[derive(Debug, Default)]
struct Log {
    /// Position of the first operation: what came before it lies elsewhere.
    base: u64,
    operations: Vec<Operation>,
    arena: Arena,
}

impl Log {
    fn written(&self, op: u32) -> Written<'_> {
        let o = &self.operations[op as usize];
        if o.delete {
            return Written::Delete;
        }
        Written::Put(self.arena.get(o.place, o.key_bytes.into(), o.value_bytes as usize))
    }

    /// The newest operation of `op`'s key that comes before `view`.
    fn seen(&self, mut op: u32, view: Seq) -> Option<u32> {
        while op != NONE && self.base + u64::from(op) >= view.0 {
            op = self.operations[op as usize].previous;
        }
        (op != NONE).then_some(op)
    }
}

impl Keys for Log {
    fn key(&self, op: u32) -> &[u8] {
        let o = &self.operations[op as usize];
        self.arena.get(o.place, 0, o.key_bytes.into())
    }
}

#[derive(Debug)]
struct Map {
    index: IndexId,
    ordered: Ordered,
}

/// The writes of one transaction.
#[derive(Debug, Default)]
pub struct WriteSet {
    log: Log,
    /// In the order in which the indexes were first written; operations name them by number.
    maps: SmallVec<[Map; 2]>,
    /// Numbers of `maps`, by index.
    by_index: SmallVec<[u32; 4]>,
}

impl WriteSet {
    /// An empty set; allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty set whose first operation is at `base`.
    pub(crate) fn starting_at(base: Seq) -> Self {
        Self { log: Log { base: base.0, ..Log::default() }, ..Self::default() }
    }

    /// Position of the first operation.
    pub(crate) fn base(&self) -> Seq {
        Seq(self.log.base)
    }

    /// Writes a value. Returns the position before the operation.
    ///
    /// # Errors
    /// `Fault::Limit` if key, value or set is too large.
    pub fn put(&mut self, index: IndexId, key: &[u8], value: &[u8]) -> Result<Seq> {
        self.append(index, key, value, false)
    }

    /// Writes a value of a key of which the newest committed state with the own writes on top has nothing: a fresh put, unless this set has an
    /// operation on the key. If it has, something committed may be alive that only that one deletes.
    ///
    /// # Errors
    /// As [`WriteSet::put`].
    pub fn put_fresh(&mut self, index: IndexId, key: &[u8], value: &[u8]) -> Result<Seq> {
        let at = self.append(index, key, value, false)?;
        let operation = self.log.operations.last_mut().expect("just appended");
        operation.fresh = operation.previous == NONE;
        Ok(at)
    }

    /// Deletes a key, whether there is something to delete or not. Returns the position before the operation.
    ///
    /// # Errors
    /// `Fault::Limit` if key or set is too large.
    pub fn delete(&mut self, index: IndexId, key: &[u8]) -> Result<Seq> {
        self.append(index, key, &[], true)
    }

    /// The position behind the last operation: a savepoint, or the start of a statement.
    #[must_use]
    pub fn position(&self) -> Seq {
        Seq(self.log.base + self.log.operations.len() as u64)
    }

    /// Takes back everything written since `savepoint`.
    ///
    /// # Panics
    /// If `savepoint` lies beyond the current position, or before the first.
    pub fn rollback_to(&mut self, savepoint: Seq) {
        assert!(savepoint <= self.position(), "a savepoint that was already rolled back");
        let keep = savepoint.0.checked_sub(self.log.base).expect("a position of this set") as usize;
        let Some(first) = self.log.operations.get(keep).map(|o| o.place) else { return };
        for number in (keep..self.log.operations.len()).rev() {
            let operation = self.log.operations[number];
            let previous = (operation.previous != NONE).then_some(operation.previous);
            self.maps[operation.map as usize].ordered.take_back(number as u32, previous, &self.log);
            self.log.operations.pop();
        }
        self.log.arena.cut(first);
    }

    /// Keys that were written since `savepoint`, some twice.
    pub(crate) fn keys_since(&self, savepoint: Seq) -> Vec<(IndexId, Vec<u8>)> {
        let first = savepoint.0.saturating_sub(self.log.base) as usize;
        let name = |op: usize| {
            let index = self.maps[self.log.operations[op].map as usize].index;
            (index, self.log.key(op as u32).to_vec())
        };
        (first..self.log.operations.len()).map(name).collect()
    }

    /// What was written to `key` before `view`.
    #[must_use]
    pub fn get(&self, index: IndexId, key: &[u8], view: Seq) -> Option<Written<'_>> {
        let op = self.map(index)?.ordered.get(key, &self.log)?;
        self.log.seen(op, view).map(|op| self.log.written(op))
    }

    /// Keys in `range` and what was written to them before `view`, from either end.
    #[must_use]
    pub fn range(&self, index: IndexId, range: (Bound<&[u8]>, Bound<&[u8]>), view: Seq) -> Range<'_> {
        static EMPTY: Ordered = Ordered::new();
        let ordered = self.map(index).map_or(&EMPTY, |map| &map.ordered);
        let front = match range.0 {
            Bound::Unbounded => ordered.start(),
            Bound::Included(key) => ordered.seek(key, false, &self.log),
            Bound::Excluded(key) => ordered.seek(key, true, &self.log),
        };
        let back = match range.1 {
            Bound::Unbounded => ordered.end(),
            Bound::Included(key) => ordered.seek(key, true, &self.log),
            Bound::Excluded(key) => ordered.seek(key, false, &self.log),
        };
        let back = if is_inverted(range) { front } else { back };
        Range { log: &self.log, ordered, front, back, view }
    }

    /// The net effect on an index, in key order.
    #[must_use]
    pub fn net(&self, index: IndexId) -> Range<'_> {
        self.range(index, (Bound::Unbounded, Bound::Unbounded), Seq::LATEST)
    }

    /// The same, each with whether it is a fresh put.
    pub(crate) fn net_fresh(&self, index: IndexId) -> impl Iterator<Item = (&[u8], Written<'_>, bool)> {
        let mut range = self.net(index);
        std::iter::from_fn(move || range.next_op())
            .map(move |op| (self.log.key(op), self.log.written(op), self.log.operations[op as usize].fresh))
    }

    /// How many keys an index's net effect has, and about how many bytes with the values, of few.
    pub(crate) fn room_of_net(&self, index: IndexId) -> (usize, usize) {
        let keys = self.map(index).map_or(0, |map| map.ordered.len());
        (keys, if self.log.operations.len() <= FEW_OPERATIONS { self.log.arena.first_bytes() } else { 0 })
    }

    /// Indexes with a net effect, ascending, with the number of keys written in each.
    pub fn indexes(&self) -> impl Iterator<Item = (IndexId, usize)> {
        let maps = self.by_index.iter().map(|&number| &self.maps[number as usize]);
        maps.filter(|map| map.ordered.len() > 0).map(|map| (map.index, map.ordered.len()))
    }

    /// Number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.log.operations.len()
    }

    /// True if nothing was written, or all of it taken back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.log.operations.is_empty()
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.log.arena.reserved_bytes()
            + self.log.operations.capacity() * size_of::<Operation>()
            + self.maps.iter().map(|map| map.ordered.reserved_bytes()).sum::<usize>()
            + if self.maps.spilled() { self.maps.capacity() * (size_of::<Map>() + 4) } else { 0 }
    }

    /// Keys of an index in order, each with every operation on it before `view`, newest first, with its position.
    pub(crate) fn histories<'a>(
        &'a self,
        index: IndexId,
        view: Seq,
    ) -> impl Iterator<Item = (&'a [u8], impl Iterator<Item = (Seq, Written<'a>)> + use<'a>)> + use<'a> {
        let mut range = self.range(index, (Bound::Unbounded, Bound::Unbounded), view);
        std::iter::from_fn(move || range.next_op()).map(move |newest| {
            let older = |op: &u32| Some(self.log.operations[*op as usize].previous).filter(|op| *op != NONE);
            let written = |op: u32| (Seq(self.log.base + u64::from(op)), self.log.written(op));
            (self.log.key(newest), std::iter::successors(Some(newest), older).map(written))
        })
    }

    /// Forgets everything; keeps a little memory for the next transaction.
    pub fn clear(&mut self) {
        self.log.base = 0;
        self.log.operations.clear();
        self.log.operations.shrink_to(1024);
        self.log.arena.clear();
        self.maps.clear();
        self.by_index.clear();
    }

    fn append(&mut self, index: IndexId, key: &[u8], value: &[u8], delete: bool) -> Result<Seq> {
        let limit = |what, limit, got: usize| Err(Fault::Limit { what, limit, got: got as u64 });
        if key.len() > KEY_BYTES_MAX {
            return limit("bytes of a key", KEY_BYTES_MAX as u64, key.len());
        }
        if value.len() as u64 > VALUE_BYTES_MAX {
            return limit("bytes of a value", VALUE_BYTES_MAX, value.len());
        }
        let number = self.log.operations.len();
        if number >= NONE as usize {
            return limit("operations of a transaction in memory", NONE.into(), number + 1);
        }
        let map = self.map_number(index);
        self.log.operations.push(Operation {
            place: self.log.arena.append(key, value),
            value_bytes: value.len() as u32,
            previous: NONE,
            map,
            key_bytes: key.len() as u16,
            delete,
            fresh: false,
        });
        let replaced = self.maps[map as usize].ordered.insert(number as u32, &self.log);
        if let Some(replaced) = replaced {
            self.log.operations[number].previous = replaced;
        }
        Ok(Seq(self.log.base + number as u64))
    }

    fn map(&self, index: IndexId) -> Option<&Map> {
        let at = self.by_index.binary_search_by_key(&index, |&number| self.maps[number as usize].index).ok()?;
        Some(&self.maps[self.by_index[at] as usize])
    }

    fn map_number(&mut self, index: IndexId) -> u32 {
        match self.by_index.binary_search_by_key(&index, |&number| self.maps[number as usize].index) {
            Ok(at) => self.by_index[at],
            Err(at) => {
                let number = self.maps.len() as u32;
                self.maps.push(Map { index, ordered: Ordered::new() });
                self.by_index.insert(at, number);
                number
            }
        }
    }
}

/// True if the lower bound lies above the upper one.
fn is_inverted(range: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match range {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => low >= high,
        _ => false,
    }
}

/// Keys of one index in order; see [`WriteSet::range`].
#[derive(Debug, Clone)]
pub struct Range<'a> {
    log: &'a Log,
    ordered: &'a Ordered,
    front: Position,
    back: Position,
    view: Seq,
}

impl<'a> Range<'a> {
    fn next_op(&mut self) -> Option<u32> {
        while self.front != self.back {
            let (op, behind) = self.ordered.step(self.front);
            self.front = behind;
            let seen = self.log.seen(op, self.view);
            if seen.is_some() {
                return seen;
            }
        }
        None
    }

    fn item(&self, op: u32) -> (&'a [u8], Written<'a>) {
        (self.log.key(op), self.log.written(op))
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = (&'a [u8], Written<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_op().map(|op| self.item(op))
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        while self.front != self.back {
            let (op, at) = self.ordered.step_back(self.back);
            self.back = at;
            if let Some(op) = self.log.seen(op, self.view) {
                return Some(self.item(op));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIMARY: IndexId = IndexId(7);
    const SECONDARY: IndexId = IndexId(3);

    fn all(w: &WriteSet, index: IndexId, view: Seq) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let forward: Vec<_> = w
            .range(index, (Bound::Unbounded, Bound::Unbounded), view)
            .map(|(k, v)| (k.to_vec(), if let Written::Put(v) = v { Some(v.to_vec()) } else { None }))
            .collect();
        let keys = w.range(index, (Bound::Unbounded, Bound::Unbounded), view).rev().map(|(k, _)| k.to_vec());
        assert!(keys.eq(forward.iter().rev().map(|(k, _)| k.clone())), "backward is forward reversed");
        forward
    }

    #[test]
    fn newest_wins_and_savepoints_give_back() {
        let mut w = WriteSet::new();
        w.put(PRIMARY, b"b", b"1").expect("put");
        w.put(SECONDARY, b"x", b"").expect("put");
        let savepoint = w.position();
        w.put(PRIMARY, b"b", b"2").expect("put");
        w.delete(PRIMARY, b"a").expect("delete");
        w.delete(SECONDARY, b"x").expect("delete");
        let a = (b"a".to_vec(), None);
        assert_eq!(all(&w, PRIMARY, Seq::LATEST), vec![a, (b"b".to_vec(), Some(b"2".to_vec()))]);
        assert_eq!(w.get(PRIMARY, b"b", savepoint), Some(Written::Put(b"1")));
        assert_eq!(w.get(PRIMARY, b"a", savepoint), None, "not seen by a statement that started before");
        assert_eq!(all(&w, PRIMARY, savepoint), vec![(b"b".to_vec(), Some(b"1".to_vec()))]);
        assert_eq!(w.indexes().collect::<Vec<_>>(), vec![(SECONDARY, 1), (PRIMARY, 2)]);
        w.rollback_to(savepoint);
        assert_eq!(all(&w, PRIMARY, Seq::LATEST), vec![(b"b".to_vec(), Some(b"1".to_vec()))]);
        assert_eq!(w.get(SECONDARY, b"x", Seq::LATEST), Some(Written::Put(b"")));
        w.rollback_to(Seq(0));
        assert!(w.is_empty() && w.indexes().next().is_none());
    }

    #[test]
    fn a14_rolled_back_work_leaves_no_trace() {
        let mut w = WriteSet::new();
        w.put(PRIMARY, b"k", b"kept").expect("put");
        let savepoint = w.position();
        for round in 0..3 {
            for i in 0..1000u32 {
                w.put(PRIMARY, &(i * 7919 % 1000).to_be_bytes(), &[round; 20]).expect("put");
            }
            w.put(PRIMARY, b"k", b"dropped").expect("put");
            w.rollback_to(savepoint);
        }
        assert_eq!(all(&w, PRIMARY, Seq::LATEST), vec![(b"k".to_vec(), Some(b"kept".to_vec()))]);
        assert_eq!(w.len(), 1, "each key commits once");
        assert!(w.log.arena.reserved_bytes() <= 4096, "bytes are given back");
    }

    #[test]
    fn limits_are_faults() {
        let mut w = WriteSet::new();
        let fault = w.put(PRIMARY, &[0; KEY_BYTES_MAX + 1], b"").expect_err("too long");
        assert_eq!(fault.to_string(), "bytes of a key is 49153, the limit is 49152");
        assert!(w.put(PRIMARY, &[0; KEY_BYTES_MAX], &vec![1; 1 << 20]).is_ok());
        assert_eq!(w.get(PRIMARY, &[0; KEY_BYTES_MAX], Seq::LATEST), Some(Written::Put(&vec![1; 1 << 20])));
    }
}
