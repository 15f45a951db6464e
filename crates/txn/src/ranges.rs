//! Range locks of one index (rule A22): where no key may come to be while a transaction that read there runs.
//!
//! A range lock stands against inserters alone. Readers do not wait for each other's ranges, and what is there already is
//! guarded by row locks; so the lock of a row and the ranges beside it are InnoDB's next-key lock, taken apart.
//!
//! Steps of a reader, for a piece of its range:
//! 1. publish the piece ([`Ranges::lock`]);
//! 2. probe the pending keys in it: what running transactions have written and not yet applied ([`crate::Writers`]);
//! 3. read the newest applied, and lock the rows of both; who waits for one of them is an ordinary waiter.
//!
//! Steps of an inserter ([`Ranges::write`]): under its write set's mutex it looks whether the index has ranges at all, and
//! if not adds the key to its write set; one load of a line that is read-mostly. If there are, it looks under the mutex of
//! the ranges whether somebody else's covers the key, and adds the key under it, or learns whom to wait for.
//! It is in the list of writers before its first write, and leaves it after its commit was applied.
//!
//! Why nothing slips through: the reader takes the mutex of every write set after it has published. If the inserter was there
//! before it, the key is found in step 2, or is applied and found in step 3. If it comes after, it sees the count of ranges,
//! and the mutex of the ranges orders the rest. The mutexes are the fences.
//!
//! Why the key is added only when nothing covers it, and not before waiting: a reader that comes back to its own range must not
//! wait for somebody who waits for it.
//!
//! The wait itself is for the end of the transaction that has the range ([`crate::Locks::wait_for_end`]): a lock that the
//! transaction holds from its first range on. So it is a node of the same deadlock graph as waits for rows (P2).
//!
//! Invariants: the spans of an owner are disjoint and do not touch; `owners` counts the owners in `table`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::TxnId;
use vfs::sync::RwLock;

use crate::write_set::{SharedWriteSet, WriteSet};

/// From a key on, below another or up to the end.
type Spans = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Memory of a span beside its keys, in bytes: about its share of a node.
const SPAN_BYTES: usize = 64;

#[derive(Debug)]
struct Owner {
    txn: TxnId,
    spans: Spans,
}

/// The range locks of one index.
#[derive(Debug, Default)]
pub struct Ranges {
    /// Owners in `table`. Relaxed: the mutexes named above order it.
    owners: AtomicUsize,
    table: RwLock<Vec<Owner>>,
}

impl Ranges {
    /// No ranges.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks a range for `txn`, together with those it has. Returns bytes of memory that came with it.
    pub fn lock(&self, txn: TxnId, (low, high): (Bound<&[u8]>, Bound<&[u8]>)) -> usize {
        let low = match low {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => just_above(key),
        };
        let high = match high {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(just_above(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
        };
        if high.as_ref().is_some_and(|high| *high <= low) {
            return 0;
        }
        let mut table = self.table.write();
        let at = table.iter().position(|owner| owner.txn == txn).unwrap_or_else(|| {
            table.push(Owner { txn, spans: Spans::new() });
            self.owners.store(table.len(), Ordering::Relaxed);
            table.len() - 1
        });
        let spans = &mut table[at].spans;
        let before = spans.len();
        let bytes = SPAN_BYTES + low.len() + high.as_ref().map_or(0, Vec::len);
        add(spans, low, high);
        if spans.len() > before { bytes } else { 0 }
    }

    /// Memory of the ranges of `txn`, in bytes.
    #[must_use]
    pub fn bytes_of(&self, txn: TxnId) -> usize {
        let bytes = |low: &Vec<u8>, high: &Option<Vec<u8>>| SPAN_BYTES + low.len() + high.as_ref().map_or(0, Vec::len);
        let table = self.table.read();
        table.iter().filter(|owner| owner.txn == txn).flat_map(|owner| &owner.spans).map(|(l, h)| bytes(l, h)).sum()
    }

    /// All ranges: whose, from which key on, below which one or up to the end.
    #[must_use]
    pub fn list(&self) -> Vec<(TxnId, Vec<u8>, Option<Vec<u8>>)> {
        let table = self.table.read();
        let all = table.iter().flat_map(|owner| owner.spans.iter().map(|(low, high)| (owner.txn, low, high)));
        all.map(|(txn, low, high)| (txn, low.clone(), high.clone())).collect()
    }

    /// Ends all ranges of `txn`.
    pub fn unlock(&self, txn: TxnId) {
        let mut table = self.table.write();
        table.retain(|owner| owner.txn != txn);
        self.owners.store(table.len(), Ordering::Relaxed);
    }

    /// True if nobody has a range; only a hint without a mutex.
    #[must_use]
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.owners.load(Ordering::Relaxed) == 0
    }

    /// Another transaction whose range covers `key`.
    #[must_use]
    pub fn covers(&self, txn: TxnId, key: &[u8]) -> Option<TxnId> {
        if self.is_quiet() { None } else { find(&self.table.read(), txn, key) }
    }

    /// Lets `write` add `key` to the write set of `txn`, unless it comes to be in a range that another transaction has:
    /// that one is named then.
    ///
    /// # Errors
    /// The transaction whose end is to be waited for.
    pub fn write<T>(
        &self,
        txn: TxnId,
        key: &[u8],
        set: &SharedWriteSet,
        write: impl FnOnce(&mut WriteSet) -> T,
    ) -> Result<T, TxnId> {
        let mut write = Some(write);
        let mut add = |writes: &mut WriteSet| write.take().map(|write| write(writes));
        if let Some(done) = set.write(|writes| if self.is_quiet() { add(writes) } else { None }) {
            return Ok(done);
        }
        vfs::thread::point("ranges.write");
        let table = self.table.read();
        match find(&table, txn, key) {
            Some(other) => Err(other),
            None => Ok(set.write(add).expect("not added yet")),
        }
    }
}

fn find(table: &[Owner], txn: TxnId, key: &[u8]) -> Option<TxnId> {
    table.iter().find(|owner| owner.txn != txn && covers(&owner.spans, key)).map(|owner| owner.txn)
}

fn covers(spans: &Spans, key: &[u8]) -> bool {
    let below = spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
    below.is_some_and(|(_, high)| high.as_ref().is_none_or(|high| key < high.as_slice()))
}

/// Adds a span and folds those that it touches into it.
fn add(spans: &mut Spans, mut low: Vec<u8>, mut high: Option<Vec<u8>>) {
    let below = spans.range::<[u8], _>((Bound::Unbounded, Bound::Included(low.as_slice()))).next_back();
    if let Some((start, end)) = below
        && end.as_ref().is_none_or(|end| *end >= low)
    {
        low.clone_from(start);
    }
    loop {
        let next = spans.range::<[u8], _>((Bound::Included(low.as_slice()), Bound::Unbounded)).next();
        let Some((start, end)) = next else { break };
        if high.as_ref().is_some_and(|high| start > high) {
            break;
        }
        let start = start.clone();
        high = match (high, end) {
            (Some(high), Some(end)) => Some(high.max(end.clone())),
            _ => None,
        };
        spans.remove(&start);
    }
    spans.insert(low, high);
}

/// The lowest key above `key`.
fn just_above(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_agree_with_a_naive_set() {
        let mut rng = vfs::random::Rng::new(7);
        for _ in 0..2000 {
            let ranges = Ranges::new();
            let mut naive = [false; 40];
            for _ in 0..1 + rng.below(8) {
                let (a, b) = (rng.below(20) as u8, rng.below(20) as u8);
                let bound = |key: u8, kind: u64, keys: &'static [[u8; 1]]| match kind {
                    0 => Bound::Included(&keys[usize::from(key)][..]),
                    1 => Bound::Excluded(&keys[usize::from(key)][..]),
                    _ => Bound::Unbounded,
                };
                static KEYS: [[u8; 1]; 20] = {
                    let mut keys = [[0]; 20];
                    let mut n = 0;
                    while n < 20 {
                        keys[n] = [n as u8];
                        n += 1;
                    }
                    keys
                };
                let range =
                    (bound(a.min(b), rng.below(6).min(2) % 3, &KEYS), bound(a.max(b), rng.below(6).min(2) % 3, &KEYS));
                let (low, high) = (range.0, range.1);
                ranges.lock(TxnId(1), (low, high));
                for (n, covered) in naive.iter_mut().enumerate() {
                    *covered |= std::ops::RangeBounds::<[u8]>::contains(&(low, high), probe(n).as_slice());
                }
            }
            for (n, covered) in naive.iter().enumerate() {
                assert_eq!(ranges.covers(TxnId(2), &probe(n)).is_some(), *covered, "{:?} in {ranges:?}", probe(n));
                assert_eq!(ranges.covers(TxnId(1), &probe(n)), None, "one's own");
            }
            let table = ranges.table.read();
            let mut ends = table.iter().flat_map(|owner| owner.spans.iter());
            let mut last: Option<Option<Vec<u8>>> = None;
            assert!(ends.all(|(low, high)| {
                let apart = last.as_ref().is_none_or(|last| last.as_ref().is_some_and(|last| last < low));
                last = Some(high.clone());
                apart
            }));
        }
    }

    /// Keys and what lies between them.
    fn probe(n: usize) -> Vec<u8> {
        if n.is_multiple_of(2) { vec![n as u8 / 2] } else { vec![n as u8 / 2, 7] }
    }

    #[test]
    fn ranges_end_with_their_owner() {
        let ranges = Ranges::new();
        assert!(ranges.is_quiet());
        assert!(ranges.lock(TxnId(1), (Bound::Included(b"b"), Bound::Excluded(b"d"))) > 0);
        assert_eq!(ranges.lock(TxnId(1), (Bound::Included(b"d"), Bound::Included(b"e"))), 0, "one span");
        assert_eq!(ranges.lock(TxnId(2), (Bound::Included(b"z"), Bound::Excluded(b"a"))), 0, "nothing");
        let set = SharedWriteSet::new();
        let put = |txn, key: &[u8]| {
            ranges.write(TxnId(txn), key, &set, |writes| writes.put(base::IndexId(1), key, b"").expect("put"))
        };
        assert_eq!(put(2, b"e").err(), Some(TxnId(1)));
        assert!(put(1, b"c").is_ok() && put(2, b"a").is_ok());
        ranges.unlock(TxnId(1));
        assert!(ranges.is_quiet() && put(2, b"e").is_ok());
    }
}
