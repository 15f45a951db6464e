//! What every transaction did and what every reader saw.

use std::collections::BTreeMap;

use base::CommitTs;
use model::Model;

/// Which ordered map: plain index 0, 1, … or a part of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Map {
    /// A plain index, by number.
    Plain(usize),
    /// The table: primary key (big-endian) to the other columns as bytes.
    Table,
    /// One row per transaction that ever committed: its number. Tells after a crash who is there.
    Journal,
}

/// Writes of one transaction: the last on each key.
pub type Writes = BTreeMap<(Map, Vec<u8>), Option<Vec<u8>>>;

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

/// A commit that got a timestamp.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Number of the transaction: its row in the journal.
    pub id: u64,
    /// Its timestamp.
    pub ts: CommitTs,
    /// What it wrote.
    pub writes: Writes,
    /// Values it read under row locks before it wrote: they are the newest before `ts`.
    pub current_reads: Vec<(Map, Vec<u8>, Option<Vec<u8>>)>,
    /// What its owner was told.
    pub acknowledged: Acknowledged,
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

/// Everything that happened so far.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Commits, in no order.
    pub commits: Vec<Commit>,
    /// Observations of the present life.
    pub observations: Vec<Observation>,
    /// Plain indexes made and dropped by definition changes: name to "must be there", or unknown.
    pub extra: BTreeMap<String, Option<bool>>,
    /// The next transaction's number.
    pub next_id: u64,
}

impl History {
    /// The maps at every moment, from the commits.
    #[must_use]
    pub fn models(&self) -> BTreeMap<Map, Model> {
        let mut models: BTreeMap<Map, Model> = BTreeMap::new();
        for commit in &self.commits {
            for ((map, key), value) in &commit.writes {
                models.entry(*map).or_default().put(commit.ts, key, value.as_deref());
            }
        }
        models
    }
}
