//! The seam between the engine and its index structures.
//!
//! Byte keys, no inner types: what a leaf, level or memtable is does not pass here. The GC view, the applied
//! prefix and the log's durability come in as values or through [`LogGate`].
//!
//! Rules that every structure keeps, and the conformance suite checks:
//! 1. An index is a map from (user key ascending, commit timestamp descending) to put or delete; applying the
//!    same (key, ts) again changes nothing (decision D3).
//! 2. `apply` after `reserve` does no I/O and cannot fail (rule A1).
//! 3. A read at snapshot `s` returns for each key the newest version with `ts <= s`; a read of the newest
//!    returns the newest applied one. Attached runs not yet drained are merged into every read (rule A3).
//! 4. A version is dropped only by the interval rule of one GC view, capped below the oldest undrained run and below what
//!    is expected late; of a counter, as [`counter`] says.
//!    What an index's [`expiry`] says nobody sees any more may be dropped, too.
//! 5. The state returned by `checkpoint` with skip position `F` contains every version with `ts <= F` that the
//!    interval rule keeps, and nothing that the log is not durable to: no version, no collection (rule A6), no run
//!    file whose record could be lost.

use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, Corruption, Fault, GcView, IndexId, Lsn, Result};
use store::{BlockRef, Cache, Compression, ExtentId, Funds, Space, Weights};

pub mod batch;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod counter;
pub mod damaged;
pub mod expiry;
pub mod loser_tree;
pub mod merge;
pub mod range;
pub mod ranged;
pub mod shape;
mod thread_batch;
pub mod traffic;

pub use batch::{Batch, BatchBuilder, EntryBatch, Op, Piece, Prefix};
pub use damaged::{DamagedRange, Skips};
pub use expiry::{Expiry, Tick};
pub use range::{KeyRange, Span};
pub use ranged::Ranged;
pub use shape::{LEVELS, LevelCompression, LevelStats, MergePolicy, Shape, Subcompactions};
pub use store::LogGate;
pub use thread_batch::ThreadBatch;
pub use traffic::{IndexShape, IndexTraffic};

/// Which version of each key a read returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadAt {
    /// The newest with `ts <=` this.
    Snapshot(CommitTs),
    /// The newest applied, visible yet or not: what current reads under a row lock see.
    Newest,
}

/// Which way a cursor runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// Settings of one index, as the catalog keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexOptions {
    /// Compression of leaves and runs.
    pub compression: Compression,
    /// Node size in memory, in bytes, 4–64 KiB (smaller in tests).
    pub node_bytes: usize,
    /// Messages for leaves that are not in memory wait in buffers above them: a Bε-tree.
    pub buffered: bool,
    /// Its values are [`counter`]s.
    pub counters: bool,
    /// Puts may say that nothing of their key was alive ([`BatchBuilder::push_fresh`]). Where none does, a superseded delete need not be kept for
    /// their sake.
    pub single_deletes: bool,
    /// Of a log-structured merge tree: its filters know the first so many bytes of keys, too; 0: they do not.
    pub prefix_bytes: usize,
    /// Of a log-structured merge tree.
    pub shape: Shape,
    /// Of a log-structured merge tree.
    pub policy: MergePolicy,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            compression: Compression::Lz4,
            node_bytes: 16 * 1024,
            buffered: false,
            counters: false,
            single_deletes: true,
            prefix_bytes: 0,
            shape: Shape::default(),
            policy: MergePolicy::default(),
        }
    }
}

/// What an index is opened with.
#[derive(Clone)]
pub struct IndexEnv {
    /// Its number.
    pub id: IndexId,
    /// Its settings.
    pub options: IndexOptions,
    /// Where its blocks go.
    pub space: Space,
    /// Where its pages live.
    pub cache: Arc<Cache>,
    /// Where the run files are that its state names.
    pub runs: RunFiles,
    /// Leaves may be written in basements: older builds do not read them.
    pub basements: bool,
    /// Nothing is committed once the log is replayed. So what is attached is newer than all that lies on disk, and a run
    /// file that its state names may be unreadable.
    pub read_only: bool,
    /// Since when which of its versions have expired; none: they never do.
    pub expiry: Option<Arc<Expiry>>,
}

/// Where run files lie: a structure opens those its state names with `Run::open`; it never removes one (the
/// engine does, once no manifest and no log record names it).
#[derive(Clone)]
pub struct RunFiles {
    /// The file system.
    pub vfs: Arc<dyn vfs::Vfs>,
    /// The directory.
    pub dir: std::path::PathBuf,
}

/// What a maintenance or checkpoint step may rely on.
#[derive(Clone)]
pub struct Upkeep<'a> {
    /// One GC view for the step.
    pub view: GcView,
    /// The applied prefix, read before the view's floor; both are read before the step looks at anything.
    pub applied: Lsn,
    /// The log.
    pub log: &'a dyn LogGate,
    /// The disk is full but for what must go on, or somebody waits for the end of recovery: nothing is begun that takes
    /// space or time to win some, as cleaning does.
    pub tight: bool,
}

/// Bytes of memory that an index has in memtables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memtables {
    /// In the one that takes writes; 0 if that is too little for a run of its own, or the one before is not on disk yet.
    pub active: u64,
    /// In those that take none any more.
    pub sealed: u64,
}

/// Room for one batch: leaves loaded and held, frames for splits. Opaque to the engine; dropping it gives
/// everything back.
pub trait Reserved: Send {
    /// For the structure that made it.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send>;
    /// Bytes of memory that others lack while it is held.
    fn held_bytes(&self) -> u64;
}

/// What [`Index::reserve_from`] found.
pub enum Reservation {
    /// `apply` may follow.
    Direct(Box<dyn Reserved>),
    /// More cold leaves, or more memory, than a commit may wait for: attach the batch as a run instead. Never one entry from
    /// funds that are [`Funds::in_place`].
    TooCold,
}

/// A checkpoint of one index.
#[derive(Debug, Clone)]
pub struct IndexState {
    /// Opaque to the engine; goes into the manifest.
    pub bytes: Vec<u8>,
    /// F: replay skips commits with `ts <=` this.
    pub skip: Lsn,
    /// Numbers of the run files that `bytes` names (attached, not drained completely).
    pub runs: Vec<u64>,
}

/// What a bounded maintenance step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries moved, dropped or merged.
    pub entries: u64,
    /// True if there is more to do now.
    pub more: bool,
}

/// What [`Index::assist`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Assisted {
    /// Nothing to do, and nothing to divide.
    #[default]
    Nothing,
    /// All that is under way is in hand; whoever has it was asked to divide it.
    Asked,
    /// A step was done.
    Step,
}

/// A cursor over one index.
pub trait Cursor: Send {
    /// Clears `out` and appends up to `max` live entries in cursor order. Returns false at the end. May return
    /// fewer than `max`, even none, with more to come.
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool>;
    /// From now on what cannot be read is passed over and added to `skips`. In such a range only versions that are known
    /// to be the newest of their key are given out. Nothing to do for what lies in memory.
    fn skip_damaged(&mut self, _skips: Skips) {}
    /// From now on large values are not read, and others need not be: whoever asks only what is there is given some value, or an empty one.
    fn keys_only(&mut self) {}
}

/// Counts and sizes of one index.
#[derive(Debug, Clone, Copy, Default)]
pub struct IndexStats {
    /// Live keys, as of the leaves' counts (estimate).
    pub live_keys: u64,
    /// Versions that are not a key's newest put, tombstones included (estimate), whether anybody still sees them or not.
    pub dead_versions: u64,
    /// Bytes of blocks on disk.
    pub disk_bytes: u64,
    /// Bytes of pages in memory.
    pub memory_bytes: u64,
    /// Leaves, in memory or not.
    pub leaves: u64,
    /// Size of one of them in memory.
    pub node_bytes: u64,
    /// Levels, leaves included; of a log-structured merge tree the strands of its runs: how many may have one key.
    pub height: u32,
    /// Attached runs not drained yet: each read merges them.
    pub runs: u64,
    /// Their bytes.
    pub run_bytes: u64,
    /// What they add to the live keys (estimate): their puts less their deletes.
    pub run_keys: i64,
    /// Puts and deletes applied or attached since open.
    pub changes: u64,
    /// Leaf splits since open.
    pub splits: u64,
    /// Leaves unlinked or merged away since open.
    pub unlinks: u64,
    /// Leaves brought into memory from disk since open.
    pub loads: u64,
    /// Blocks read together with their neighbours, ahead of leaves that were about to be loaded, since open.
    pub read_ahead: u64,
    /// Point reads of leaves that stayed on disk since open.
    pub uncached_reads: u64,
    /// Leaves written back since open.
    pub writes: u64,
    /// GC debt: pages that the background has to collect, merge or unlink, in bytes. What an open snapshot still needs is
    /// not in it.
    pub gc_debt_bytes: u64,
    /// The same, paid since open.
    pub gc_paid_bytes: u64,
    /// Of a Bε-tree, messages on disk that the background has to bring into leaves, as they are stored, deletes twice.
    pub message_bytes: u64,
    /// As many as are there while it keeps up, counted so.
    pub message_aim_bytes: u64,
    /// Messages that it brought into leaves since open.
    pub drained_bytes: u64,
    /// Leaves in memory.
    pub resident_leaves: u64,
    /// Ranges that were deleted whole and whose entries are not each marked deleted yet: each read looks at them.
    pub deleted_ranges: u64,
    /// What was taken in, written and read since open.
    pub traffic: IndexTraffic,
    /// Of a log-structured merge tree: merges that were cut in two for another thread, since open.
    pub split_merges: u64,
    /// Of a log-structured merge tree: ranges that cursors hop over, since nothing is visible there.
    pub dead_spans: u64,
    /// Of a log-structured merge tree: entries of its sources that cursors came to and did not give out, since open.
    pub passed: u64,
    /// Of a log-structured merge tree with filters of prefixes: runs that ranges passed over without reading a data block of theirs, since open.
    pub prefix_skipped_runs: u64,
    /// The same: data blocks, of those runs and others.
    pub prefix_skipped_blocks: u64,
    /// Of an index whose versions expire, how long they live, in seconds; else 0.
    pub ttl_seconds: u64,
    /// What lies at or below this timestamp has expired for who reads the newest.
    pub expired_through: CommitTs,
    /// Of a log-structured merge tree: versions in runs that have expired and are still on disk (estimate).
    pub expired_versions: u64,
    /// The same, dropped by flushes and merges since open, runs that went as a whole included.
    pub expired_dropped: u64,
    /// Runs of which everything had expired, and which went without being read or written, since open.
    pub expired_runs: u64,
    /// Of a log-structured merge tree, the level that flushes write to first.
    pub levels: [LevelStats; LEVELS],
}

/// What `verify` counted.
#[derive(Debug, Clone, Default)]
pub struct VerifyReport {
    /// Nodes visited.
    pub nodes: u64,
    /// Entries visited.
    pub entries: u64,
    /// Everything wrong, at most 100.
    pub problems: Vec<Corruption>,
}

impl VerifyReport {
    const PROBLEMS_MAX: usize = 100;

    /// Adds a problem, unless there are enough.
    pub fn add(&mut self, what: impl FnOnce() -> Corruption) {
        if self.problems.len() < Self::PROBLEMS_MAX {
            self.problems.push(what());
        }
    }

    /// Adds a corruption; any other fault comes back.
    ///
    /// # Errors
    /// The fault that is no corruption.
    pub fn note(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Corrupt(corruption) => {
                self.add(|| *corruption);
                Ok(())
            }
            other => Err(other),
        }
    }
}

/// Is told of a block, and asked for the block's name only if it matters.
pub type VisitBlock<'a> = dyn FnMut(BlockRef, &dyn Fn() -> String) + 'a;

/// One ordered map of versions.
pub trait Index: Send + Sync {
    /// The part of it that takes deletes of ranges; none if it takes none.
    fn as_ranged(&self) -> Option<&Ranged> {
        None
    }
    /// Step 1b of a commit: everything `apply` can need, all or nothing, with memory from `funds`. `None` if that is too little: then the caller
    /// drops his other reservations, waits ([`Funds::wait`]) and tries again.
    fn reserve_from(&self, batch: &Batch, funds: &mut Funds) -> Result<Option<Reservation>>;
    /// The same for who has no other reservation: waits for memory.
    fn reserve(&self, batch: &Batch) -> Result<Reservation> {
        self.reserve_with(batch, Funds::default())
    }
    /// The same, with these.
    fn reserve_with(&self, batch: &Batch, mut funds: Funds) -> Result<Reservation> {
        loop {
            match self.reserve_from(batch, &mut funds)? {
                Some(reservation) => return Ok(reservation),
                None if batch.len() == 1 && funds.are_in_place() => funds.wait_or_pass()?,
                None => funds.wait()?,
            }
        }
    }
    /// Step 3: applies a sorted batch at `ts`. No I/O, cannot fail.
    fn apply(&self, batch: &Batch, reserved: Box<dyn Reserved>, ts: CommitTs, view: &GcView);
    /// Attaches an immutable sorted run at `ts`, O(1): large or cold batches, index builds.
    fn attach(&self, run: store::run::Run, ts: CommitTs);
    /// Since when which of its versions have expired, if they do.
    fn expiry(&self) -> Option<&Arc<Expiry>> {
        None
    }
    /// True if anything in it has not expired yet.
    fn has_unexpired(&self) -> bool {
        false
    }
    /// From now on entries may come late, with this timestamp though newer ones are there: nothing above the one below it is
    /// collected, whatever the views say. `None`: no more of them. For the build of an index beside its writers.
    fn expect_late(&self, ts: Option<CommitTs>);
    /// Point reads: `keys` ascending; `found(i, ts, value)` for each key with a live version. Called under a
    /// leaf latch: it copies and returns.
    fn get_many(&self, at: ReadAt, keys: &[&[u8]], found: &mut dyn FnMut(usize, CommitTs, &[u8])) -> Result<()>;
    /// Range reads.
    fn cursor(&self, at: ReadAt, range: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) -> Box<dyn Cursor>;
    /// Brings about `entries` entries of attached runs to where readers need not pass over them, as far as memory has all that
    /// it takes, or finds out where those are that the commit at `ts` deleted; the rest is [`Index::maintain`]'s. Returns how many. For who has
    /// deleted much, before his reply.
    fn clear_away(&self, _upkeep: &Upkeep<'_>, _ts: CommitTs, _entries: u64) -> Result<u64> {
        Ok(0)
    }
    /// True if [`Index::clear_away`] has something to do behind a batch that was applied in place.
    fn clears_behind(&self, _batch: &Batch) -> bool {
        false
    }
    /// One bounded step (≤ about 1 ms of CPU) of draining, purging, merging, cleaning.
    fn maintain(&self, upkeep: &Upkeep<'_>) -> Result<Progress>;
    /// One such step of work that [`Index::maintain`] has begun, beside other threads, for one that has nothing else to do. It waits for no memory, and for no step of
    /// another thread. If there is none and `may_split`, what is under way is divided if it is large enough, so that there is some before long.
    fn assist(&self, _upkeep: &Upkeep<'_>, _may_split: bool) -> Result<Assisted> {
        Ok(Assisted::Nothing)
    }
    /// Brings to disk some of what holds memory and is in no page of the cache, for whoever waits for memory. Waits for no memory,
    /// and not for [`Index::maintain`], which may be what waits. Returns how much that was: 0 if there is none.
    fn relieve(&self, _log: &dyn LogGate) -> Result<u64> {
        Ok(0)
    }
    /// What it has in memtables.
    fn memtables(&self) -> Memtables {
        Memtables::default()
    }
    /// The memtable takes no more writes, if [`Memtables::active`] counts it: [`Index::maintain`] flushes it. Returns its bytes.
    fn seal(&self) -> u64 {
        0
    }
    /// About how much [`Index::relieve`] could bring to disk, in bytes of memory; 0 if that is not known.
    fn relievable_bytes(&self) -> u64 {
        0
    }
    /// Bytes of blocks that are kept for nothing but the last manifest: what a checkpoint would set free.
    fn superseded_bytes(&self) -> u64 {
        0
    }
    /// Writes what the next manifest needs.
    fn checkpoint(&self, upkeep: &Upkeep<'_>) -> Result<IndexState>;
    /// The same of what is on disk, complete to `upkeep.applied`, which is the F of an earlier checkpoint: nothing need be written for it
    /// but what names what was written since. May take the last of the reserve.
    fn checkpoint_written(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.checkpoint(upkeep)
    }
    /// Adds what of each extent [`Index::evacuate`] would write elsewhere.
    fn weigh(&self, _weights: &mut Weights) -> Result<()> {
        Ok(())
    }
    /// Writes elsewhere what lies in these extents, ascending, as far as it can be moved. May take the last of the reserve, but what
    /// the nodes are left that are to name it.
    fn evacuate(&self, _extents: &[ExtentId], _upkeep: &Upkeep<'_>) -> Result<()> {
        Ok(())
    }
    /// Counts and sizes.
    fn stats(&self) -> IndexStats;
    /// What its blocks on disk are. Reads all inner nodes.
    fn shape(&self) -> Result<IndexShape> {
        Ok(IndexShape::default())
    }
    /// About how many keys of the range have a newest version that is a put. It reads what a look-up of each end reads, and
    /// takes no longer than some such. 0 only if no reader can find anything in the range.
    fn estimate(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<u64>;
    /// Ascending keys, about `count` of them, that cut the index in parts of like size: where samples are taken. They need not
    /// be keys of entries; the first is at or below all entries.
    fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>>;
    /// Checks everything that can be checked, reading all blocks.
    fn verify(&self) -> Result<VerifyReport>;
    /// Visits every block that the last checkpoint's images name, once for each slot that names it, and reports what is
    /// wrong with the way there. The caller keeps checkpoints away.
    fn reach(&self, visit: &mut VisitBlock<'_>) -> Result<Vec<Corruption>>;
    /// Frees every block; the index is not used afterwards. What cannot be read is left where it is: then the fault is
    /// `Corrupt` or `Io`, and everything else is freed. After any other fault nothing is.
    fn destroy(&self) -> Result<()>;
}
