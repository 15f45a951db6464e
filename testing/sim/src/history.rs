//! What every transaction did and what every reader saw.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::CommitTs;
use index::counter::Counter;
use model::Model;

/// Which ordered map: a plain index or a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Map {
    /// A plain index, by number.
    Plain(usize),
    /// The plain index of more leaves than a commit loads.
    Wide,
    /// The table: primary key (big-endian) to the other columns as bytes.
    Table,
    /// One row per transaction that ever committed: its number. Tells after a crash who is there.
    Journal,
    /// The index of counters: what commits add is summed up by [`History::models`].
    Counters,
    /// An index or table that comes and goes, by the number of its creation: never the same twice.
    Extra(u64),
}

/// Writes of one transaction: the last on each key; of a counter, as versions are stored.
pub type Writes = BTreeMap<(Map, Vec<u8>), Option<Vec<u8>>>;

/// A range that a transaction deleted: from this key on, up to that one, not included. What it wrote there is among its writes.
pub type Range = (Map, Vec<u8>, Vec<u8>);

/// True if one of the ranges has the key.
#[must_use]
pub fn has(ranges: &[Range], map: Map, key: &[u8]) -> bool {
    ranges.iter().any(|(of, low, high)| *of == map && low.as_slice() <= key && key < high.as_slice())
}

/// How sure its owner is that a commit happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledged {
    /// Told that it is on disk.
    Synced,
    /// Told that the system has it.
    Written,
    /// Told that it is committed, no more.
    Buffered,
    /// Told that the outcome is not known.
    Unknown,
}

/// What a read under a row lock said of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Current {
    /// Its value, or that it has none.
    Is(Option<Vec<u8>>),
    /// Only whether it is there.
    Exists(bool),
    /// It is there, and its value begins so.
    Begins(Vec<u8>),
}

/// A commit that got a timestamp.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Number of the transaction: its row in the journal.
    pub id: u64,
    /// Its timestamp.
    pub ts: CommitTs,
    /// What it deleted whole, before all that it wrote.
    pub ranges: Vec<Range>,
    /// What it wrote.
    pub writes: Writes,
    /// What it read under row locks before it wrote: the newest before `ts`.
    pub current_reads: Vec<(Map, Vec<u8>, Current)>,
    /// What its owner was told.
    pub acknowledged: Acknowledged,
    /// It was prepared before: if the commit is lost, that is not.
    pub prepared: bool,
}

/// How far a transaction in two phases is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is prepared.
    Prepared,
    /// Somebody decides it.
    Deciding,
    /// Prepared or not at all: a prepare or a rollback of which nobody knows what came.
    Unknown,
}

/// A transaction that is prepared and not decided.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What it writes.
    pub writes: Writes,
    /// What it read under row locks before it wrote.
    pub current_reads: Vec<(Map, Vec<u8>, Current)>,
    /// How far it is.
    pub stage: Stage,
}

/// What a reader saw at one moment.
#[derive(Debug, Clone)]
pub struct Observation {
    /// The moment.
    pub ts: CommitTs,
    /// Where.
    pub map: Map,
    /// From this key on (ascending) or down from it (descending).
    pub low: Vec<u8>,
    /// Up to, not including; empty: to the end.
    pub high: Vec<u8>,
    /// Entries in ascending order.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What is known of an index or table that comes and goes.
#[derive(Debug, Clone, Copy)]
pub struct ExtraState {
    /// Number of its last creation.
    pub creation: u64,
    /// It must be there, must not, or nobody knows.
    pub there: Option<bool>,
}

/// Everything that happened so far.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Commits, in no order.
    pub commits: Vec<Commit>,
    /// What is prepared, by number.
    pub prepared: BTreeMap<u64, Prepared>,
    /// Observations of the present life.
    pub observations: Vec<Observation>,
    /// What definition changes made and dropped, by name.
    pub extra: BTreeMap<String, ExtraState>,
    /// Secondary indexes added to the table, by name: it has them, or nobody knows.
    pub added: BTreeMap<String, Option<bool>>,
    /// The next transaction's number.
    pub next_id: u64,
}

impl History {
    /// A number for a transaction or a creation.
    pub fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The maps at every moment, from the commits.
    #[must_use]
    pub fn models(&self) -> BTreeMap<Map, Model> {
        let mut models: BTreeMap<Map, Model> = BTreeMap::new();
        let mut sums: BTreeMap<&[u8], i64> = BTreeMap::new();
        let mut commits: Vec<_> = self.commits.iter().collect();
        commits.sort_unstable_by_key(|commit| commit.ts);
        for commit in commits {
            for (map, low, high) in &commit.ranges {
                let model = models.entry(*map).or_default();
                let range = (Bound::Included(low.as_slice()), Bound::Excluded(high.as_slice()));
                let there: Vec<_> = model.range(CommitTs::MAX, range).map(|entry| entry.key).collect();
                let untouched = |key: &&Vec<u8>| !commit.writes.contains_key(&(*map, (*key).clone()));
                there.iter().filter(untouched).for_each(|key| model.put(commit.ts, key, None));
            }
            for ((map, key), value) in &commit.writes {
                let model = models.entry(*map).or_default();
                if *map == Map::Counters {
                    let sum = sums.entry(key).or_default();
                    let is_there = value.is_some();
                    *sum = value.as_deref().map_or(0, |change| changed(*sum, change));
                    model.put(commit.ts, key, is_there.then_some(&sum.to_le_bytes()[..]));
                } else {
                    model.put(commit.ts, key, value.as_deref());
                }
            }
        }
        models
    }
}

/// A counter behind a change.
fn changed(before: i64, change: &[u8]) -> i64 {
    Counter::decode(change).expect("a change of a counter").over(before)
}
