//! What was applied and is in no run yet: an ordered map of versions in memory.
//!
//! Leaves of a few dozen versions, each under a latch of its own, below one map from their lowest keys. A writer holds the map's latch
//! shared and one leaf's; only a split takes the map's alone, for the time it takes to cut one leaf. No latch is held over I/O.
//!
//! A superseded version that nobody may see any more goes when its key is written next, so that a hot row stays small. The newest stays whatever it is:
//! what a tombstone hides lies in runs.

use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::CommitTs;
use index::{KeyRange, Op};
use store::{Arena, Cache, Charge, Class, Sealed};
use vfs::random::Rng;
use vfs::sync::{Mutex, RwLock};

use crate::estimate::Counts;
use directory::{At, Directory, Place};
use leaf::{Change, Leaf, Memory};
pub(crate) use leaf::{Prune, cost};

mod directory;
mod leaf;

/// A memtable. Once it is sealed nobody writes to it.
#[derive(Debug)]
pub(crate) struct Memtable {
    leaves: RwLock<Directory>,
    /// What the leaves lie in: it is charged for itself.
    arena: Arena,
    /// Bytes of memory beside it. Relaxed, as are the next two, which are exact once nobody writes: who seals holds the list's latch alone.
    beside: AtomicU64,
    oldest: AtomicU64,
    newest: AtomicU64,
    /// Relaxed: statistics; that a range is empty is said of it when all three say so.
    entries: AtomicI64,
    live: AtomicI64,
    deleted: AtomicI64,
    /// Of what lies beside the arena.
    charge: Mutex<Charge>,
    /// Once nobody writes to it.
    sealed: OnceLock<Sealed>,
}

type Latched = Arc<RwLock<Leaf>>;

/// Leaves that are looked at for a count, at most, between the two at its ends.
const LOOKS: usize = 32;

/// What a leaf takes beside its part of the arena, about, with its place in the map.
const LEAF_OVERHEAD_BYTES: u64 = 256;

impl Memtable {
    /// An empty one in memory of this cache.
    pub fn new(cache: &Cache) -> Self {
        Self {
            leaves: RwLock::new(Directory::new()),
            arena: Arena::new(cache, Class::Buffers),
            beside: AtomicU64::new(0),
            oldest: AtomicU64::new(u64::MAX),
            newest: AtomicU64::new(0),
            entries: AtomicI64::new(0),
            live: AtomicI64::new(0),
            deleted: AtomicI64::new(0),
            charge: Mutex::new(cache.budget().charge(Class::Buffers, 0)),
            sealed: OnceLock::new(),
        }
    }

    /// Nothing was ever put in.
    pub fn is_empty(&self) -> bool {
        self.newest() == CommitTs::ZERO
    }

    pub fn memory_bytes(&self) -> u64 {
        self.arena.bytes() + self.beside.load(Ordering::Relaxed)
    }

    /// The lowest timestamp that was put in; MAX if none was.
    pub fn oldest(&self) -> CommitTs {
        CommitTs(self.oldest.load(Ordering::Relaxed))
    }

    /// The highest.
    pub fn newest(&self) -> CommitTs {
        CommitTs(self.newest.load(Ordering::Relaxed))
    }

    /// Says what will be put in, before it is.
    pub fn announce(&self, ts: CommitTs) {
        self.oldest.fetch_min(ts.0, Ordering::Relaxed);
        self.newest.fetch_max(ts.0, Ordering::Relaxed);
    }

    /// Of its memory, what leaves have.
    pub fn used_bytes(&self) -> u64 {
        self.arena.used_bytes() + self.beside.load(Ordering::Relaxed)
    }

    /// What is to be granted for the next frame of the arena beside what operations cost: one of those who ask brings it.
    pub fn wants_frame(&self) -> Option<u64> {
        self.arena.wants_frame()
    }

    /// Brings it.
    pub fn bring(&self, charge: Charge) {
        self.arena.bring(charge);
    }

    /// Nobody will write to it any more.
    pub fn close(&self, cache: &Cache) {
        self.arena.close();
        self.sealed.get_or_init(|| cache.balance().seal(self.memory_bytes()));
    }

    /// Its flush has been through so many of its versions.
    pub fn note_flushed(&self, entries: u64) {
        if let Some(sealed) = self.sealed.get() {
            let share = entries as f64 / self.entries().max(1) as f64;
            sealed.note_written((share * self.memory_bytes() as f64) as u64);
        }
    }

    /// Adds a version, said to be a fresh put or not. Its memory is charged from `room` as long as that lasts.
    pub fn insert(&self, key: &[u8], ts: CommitTs, op: (Op<'_>, bool), prune: &Prune<'_>, room: &mut Charge) {
        let mut memory = Memory { arena: &self.arena, room };
        let full = {
            let leaves = self.leaves.read();
            let Place { low, leaf } = &leaves[leaves.at(key)];
            let mut leaf = leaf.write();
            let change = leaf.insert(key, ts, op, prune, &mut memory);
            self.count_change(change);
            leaf.is_full().then(|| low.clone())
        };
        if let Some(low) = full {
            vfs::thread::point("lsm.before_split");
            self.split(&low, &mut memory);
        }
    }

    fn count_change(&self, change: Change) {
        for (to, n) in [(&self.entries, change.entries), (&self.live, change.live), (&self.deleted, change.deleted)] {
            if n != 0 {
                to.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    fn split(&self, low: &[u8], memory: &mut Memory<'_>) {
        let mut leaves = self.leaves.write();
        let Some(at) = leaves.get(low) else { return };
        let high = leaves.behind(at, 1).map(|behind| leaves[behind].low.clone());
        let cell = leaves[at].leaf.clone();
        let Some((separator, right)) = cell.write().split(low, high.as_deref(), memory) else { return };
        self.beside.fetch_add(LEAF_OVERHEAD_BYTES + separator.len() as u64, Ordering::Relaxed);
        leaves.insert(separator, Arc::new(RwLock::new(right)));
    }

    /// Takes over what is left of a reservation: what lies beside the arena is charged.
    pub fn settle(&self, reserved: Charge) {
        let beside = self.beside.load(Ordering::Relaxed);
        let mut charge = self.charge.lock();
        if charge.bytes() < beside {
            charge.merge(reserved);
            charge.set(beside);
        }
    }

    /// Calls `found` with the newest version of `key` at or below `at`, if there is one.
    pub fn get<T>(&self, key: &[u8], at: CommitTs, found: impl FnOnce(CommitTs, Option<&[u8]>) -> T) -> Option<T> {
        let leaves = self.leaves.read();
        let leaf = leaves[leaves.at(key)].leaf.read();
        let of = leaf.view();
        let entry = of.find(key, at)?;
        Some(found(entry.ts, of.value(&entry)))
    }

    /// Calls `each` for the versions of the leaf that has the keys from `from` on, ascending, the newest of a key first, with whether it is a fresh put.
    /// Returns where the next leaf begins. Keys of a leaf are in no other one. `each` says whether to go on.
    pub fn leaf_from(
        &self,
        from: &Bound<Vec<u8>>,
        mut each: impl FnMut(&[u8], CommitTs, Option<&[u8]>, bool) -> bool,
    ) -> Option<Vec<u8>> {
        let leaves = self.leaves.read();
        let at = match from {
            Bound::Unbounded => leaves.at(&[]),
            Bound::Included(key) | Bound::Excluded(key) => leaves.at(key),
        };
        let next = leaves.behind(at, 1).map(|behind| leaves[behind].low.to_vec());
        let leaf = leaves[at].leaf.read();
        let of = leaf.view();
        let start = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) => of.place(key, |_| false),
            Bound::Excluded(key) => of.place(key, |_| true),
        };
        of.newest_first(start..of.len(), |e| each(of.key(&e), e.ts, of.value(&e), e.is_fresh));
        next
    }

    /// The same backwards: the versions of the leaf that has the keys below `below` (of all keys, without), ascending all the same. Returns
    /// the leaf's lowest key, below which the next call goes on; none at the beginning.
    pub fn leaf_below(
        &self,
        below: &Bound<Vec<u8>>,
        mut each: impl FnMut(&[u8], CommitTs, Option<&[u8]>),
    ) -> Option<Vec<u8>> {
        let leaves = self.leaves.read();
        let Place { low, leaf } = &leaves[leaves.below(below.as_ref().map(Vec::as_slice))?];
        let leaf = leaf.read();
        let of = leaf.view();
        let past = match below {
            Bound::Unbounded => of.len(),
            Bound::Included(key) => of.place(key, |_| true),
            Bound::Excluded(key) => of.place(key, |_| false),
        };
        of.newest_first(0..past, |e| {
            each(of.key(&e), e.ts, of.value(&e));
            true
        });
        (!low.is_empty()).then(|| low.to_vec())
    }

    /// What lies in a range, about: what leaves at its ends have of it is counted, what lies between them by a few of the leaves.
    pub fn count(&self, range: &KeyRange) -> Counts {
        if *range == KeyRange::all() {
            let (live, deleted) = self.keys();
            return Counts::new(live, deleted, self.entries());
        }
        let leaves = self.leaves.read();
        let first = match &range.low {
            Bound::Included(low) | Bound::Excluded(low) => leaves.at(low),
            Bound::Unbounded => leaves.at(&[]),
        };
        let last = leaves.below(range.bounds().1).filter(|last| *last >= first);
        let Some(last) = last else { return Counts::default() };
        let mut counts = Counts::default();
        let part = |at: At| {
            let leaf = leaves[at].leaf.read();
            let of = leaf.view();
            let start = match &range.low {
                Bound::Included(low) if at == first => of.place(low, |_| false),
                Bound::Excluded(low) if at == first => of.place(low, |_| true),
                _ => 0,
            };
            let past = match &range.high {
                Bound::Included(high) if at == last => of.place(high, |_| true),
                Bound::Excluded(high) if at == last => of.place(high, |_| false),
                _ => of.len(),
            };
            of.count(start..past.max(start))
        };
        counts.add(part(first));
        if first < last {
            counts.add(part(last));
            let mut at = leaves.behind(first, 1);
            let mut passed = 1;
            counts.add(of_some(1..leaves.steps(first, last), |n| {
                at = at.and_then(|at| leaves.behind(at, n - passed));
                passed = n;
                at.map_or(Counts::default(), |at| leaves[at].leaf.read().counts())
            }));
        }
        counts
    }

    /// Lowest keys of the leaves.
    pub fn leaf_keys(&self) -> Vec<Vec<u8>> {
        self.leaves.read().iter().map(|place| place.low.to_vec()).collect()
    }

    /// Number of versions.
    pub fn entries(&self) -> u64 {
        u64::try_from(self.entries.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// (Keys with a value, deleted keys) by their newest versions.
    pub fn keys(&self) -> (u64, u64) {
        let load = |of: &AtomicI64| u64::try_from(of.load(Ordering::Relaxed)).unwrap_or(0);
        (load(&self.live), load(&self.deleted))
    }
}

/// The counts of many neighbours: of all if they are few, otherwise of one in each of equal parts, somewhere in it, which stand for the others.
fn of_some(of: Range<usize>, mut count: impl FnMut(usize) -> Counts) -> Counts {
    let looks = of.len().min(LOOKS);
    // Not at equal distances: leaves may take turns in what they hold.
    let mut random = Rng::new(of.len() as u64);
    let mut sum = Counts::default();
    for n in 0..looks {
        let part = of.len() * n / looks..of.len() * (n + 1) / looks;
        sum.add(count(of.start + part.start + random.index(part.len())));
    }
    if looks == of.len() {
        return sum;
    }
    // That there is no value is only said of all.
    sum.entries += 1;
    sum.times(of.len() as f64 / looks as f64)
}

#[cfg(test)]
mod tests;
