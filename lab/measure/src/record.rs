//! One step as it is kept in the run folder: the result, and everything a report draws.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::formula::Columns;
use crate::histogram::KeptLatency;
use crate::recorder::{KeptKind, Kind};
use crate::result::StepResult;
use crate::series::Series;
use crate::snapshot::Difference;
use crate::stall::Span;
use crate::thread_time::ThreadTimes;

/// What one client did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// Seconds until its last insert and delete.
    pub secs: f64,
    /// Rows inserted.
    pub inserted: u64,
    /// Rows deleted.
    pub deleted: u64,
    /// Queries.
    pub queries: u64,
    /// Rows that queries fetched.
    pub fetched: u64,
}

/// Look-ups of the smallest key by all clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MinKeyRecord {
    /// The slowest first look-up of a client, in milliseconds.
    pub first_ms: Option<f64>,
    /// The slowest later one.
    pub later_max_ms: Option<f64>,
    /// How many there were.
    pub count: u64,
    /// All of them together, in milliseconds.
    pub total_ms: f64,
}

/// Levels of log-structured merge trees at one moment, of all of an engine's added up; level 0, to which memory is flushed, first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelsAt {
    /// Seconds since the step began.
    pub secs: f64,
    /// Bytes on disk.
    pub bytes: Vec<u64>,
    /// Sorted runs of which each may have any key: a look-up may have to look at all of them.
    pub strands: Vec<u64>,
}

/// What one index of an engine has cost since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexCosts {
    /// Keys and values that came in.
    pub ingested_bytes: u64,
    /// Blocks written for them, in bytes on disk.
    pub written_bytes: u64,
    /// Keys that were looked up.
    pub point_reads: u64,
    /// Blocks read for them.
    pub point_blocks: u64,
    /// Keys that live, now; 0 where the engine does not know.
    pub live_keys: u64,
    /// Versions that are kept, now.
    pub versions: u64,
}

impl IndexCosts {
    /// What came since `before`; what lives is as it is.
    #[must_use]
    pub fn since(&self, before: &IndexCosts) -> IndexCosts {
        IndexCosts {
            ingested_bytes: self.ingested_bytes.saturating_sub(before.ingested_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            point_reads: self.point_reads.saturating_sub(before.point_reads),
            point_blocks: self.point_blocks.saturating_sub(before.point_blocks),
            ..*self
        }
    }

    /// Bytes written for one that came in, blocks read for one key, versions kept for one key that lives; none of what there is nothing of.
    #[must_use]
    pub fn amplification(&self) -> [Option<f64>; 3] {
        let ratio = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        [
            ratio(self.written_bytes, self.ingested_bytes),
            ratio(self.point_blocks, self.point_reads),
            ratio(self.versions, self.live_keys),
        ]
    }
}

/// What each index has cost by one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostsAt {
    /// Seconds since the step began.
    pub secs: f64,
    /// By the index's name.
    pub indexes: BTreeMap<String, IndexCosts>,
}

/// A step with everything it measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepRecord {
    /// The layout of this file.
    pub schema: String,
    /// The line of results.
    pub result: StepResult,
    /// The 21 columns.
    pub columns: Columns,
    /// Rate every client was paced at, in rows a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paced_at: Option<u64>,
    /// Per-second series by kind, all clients.
    pub series: BTreeMap<String, Series>,
    /// The same of each client. Records from before this was kept have none.
    #[serde(default)]
    pub by_client: Vec<BTreeMap<String, Series>>,
    /// Histograms by kind, all clients.
    pub histograms: BTreeMap<String, KeptKind>,
    /// Histograms by kind of transaction, where a workload has several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub transactions: BTreeMap<String, KeptLatency>,
    /// Stalls of 50 ms and more, the longest first, at most a hundred.
    pub stalls: Vec<Span>,
    /// What each client did.
    pub clients: Vec<ClientRecord>,
    /// Look-ups of the smallest key.
    pub min_key: MinKeyRecord,
    /// Resident memory of this process before the target was opened: what the engine took is the peak less this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_before_open_bytes: Option<u64>,
    /// Where the time of the driver's threads went, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub threads: BTreeMap<String, ThreadTimes>,
    /// The kernel's counters over the step.
    pub kernel: Difference,
    /// The kernel's counters over the settle after the step, which the costs of a load include.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<Difference>,
    /// The engine's counters before the step.
    pub counters_before: BTreeMap<String, u64>,
    /// The engine's counters after it.
    pub counters_after: BTreeMap<String, u64>,
    /// Bytes on disk by class, at the end.
    pub size_classes: BTreeMap<String, u64>,
    /// Once a second, of engines that have levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelsAt>,
    /// From its beginning to its end about once a second, of a long step less often; of engines that tell it by index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<CostsAt>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

impl StepRecord {
    /// The series of one kind, if it has any count.
    #[must_use]
    pub fn series_of(&self, kind: Kind) -> Option<&Series> {
        self.series.get(kind.name()).filter(|series| series.counts.iter().any(|count| *count > 0))
    }
}
