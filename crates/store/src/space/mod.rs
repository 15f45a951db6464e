//! The data file: extents, packed writes, live-byte accounting, space given back.
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | the public face: open, checkpoints, pins |
//! | `read.rs` | reads: a block, neighbours, a part of one |
//! | `open.rs` | creating the file, finding it again |
//! | `write.rs` | packed writes |
//! | `allocator.rs` | which bytes hold what, as pure state; rules A19, A20, P9 |
//! | `growth.rs` | extents from the file system; the reserve (P4), a full disk (B7) |
//! | `evacuate.rs` | which extents are emptied where there is no space to write what is dirty |
//! | `give_back.rs` | extents back to the file system |
//! | `census.rs` | what all indexes name, against the allocator's accounts |
//! | `copy.rs` | a copy of the file as one manifest has it, whole or what an earlier one lacks; the file made of copies |
//! | `pin.rs` | what a copy holds back from reuse |
//! | `saved.rs` | the allocator's state in the manifest |
//! | `datafile.rs` | the file's header, aligned reads and writes |
//!
//! Latches, outermost first: `giving_back` (never waited for) → `under_way` (some holes are being punched) → `growth` (one thread changes the file's size, with I/O) → `allocator` (short, never
//! with I/O; nothing that may drop a [`Block`] happens under it).
//!
//! Publish order of a checkpoint: blocks written, parents composed (publish, unpublish) → [`Space::save`] into the manifest → [`Space::sync`] → manifest
//! durable → [`Space::checkpoint_durable`].

mod allocator;
#[cfg(test)]
mod allocator_model;
mod census;
mod copy;
mod datafile;
mod evacuate;
mod give_back;
mod growth;
mod open;
mod pin;
mod read;
mod saved;
mod write;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::limits::SECTOR_BYTES;
use base::{Fault, IndexId, Poison, Result};
use vfs::Vfs;
use vfs::sync::Mutex;

use crate::codec::{HEADER_BYTES, PAYLOAD_BYTES_MAX};
use crate::{Block, BlockKind, BlockRef, Budget, Class, Compression};

use allocator::{Allocator, State};
use datafile::DataFile;
use open::{check_options, create, reopen};

pub use allocator::ExtentId;
pub use census::{Census, Miscount, Tally};
pub use copy::{CopiedExtent, CopyProgress, EXTENTS_FILE, Earlier, restore_extents};
pub use datafile::DATA_FILE;
pub use evacuate::{Weight, Weights};
pub use give_back::GivenBack;
pub use pin::SpacePin;
pub(crate) use saved::Saved;

/// Smallest extent: header block and a few sectors, for tests.
const EXTENT_BYTES_MIN: u64 = 16 << 10;
/// Largest extent.
const EXTENT_BYTES_MAX: u64 = 4 << 20;

const _: () = assert!(PAYLOAD_BYTES_MAX + HEADER_BYTES == EXTENT_BYTES_MAX as usize);

/// Blocks that are rewritten, or given up, at about the same time share extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpdateGroup {
    /// Inner nodes and leaves rewritten at every checkpoint.
    Hot,
    /// Leaves of random writes.
    Warm,
    /// Leaves filled once (append), overflow values, blocks moved by cleaning.
    Cold,
    /// Runs of some indexes, as [`UpdateGroup::of_runs`] says.
    Runs(RunGroup),
}

/// Which indexes' runs, and how deep they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunGroup(u8);

/// How long a run lives, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunDepth {
    /// As it was flushed.
    Top,
    /// Merged, and to be merged again soon.
    Middle,
    /// Of the deepest level.
    Bottom,
}

/// Indexes with the same number modulo this share extents for their runs: not those of a table with up to three secondary indexes, if they were made together.
/// Each group has an extent that is being filled, so there are not many.
const RUN_INDEXES: u32 = 4;
const RUN_DEPTHS: u8 = 3;

impl UpdateGroup {
    const COUNT: usize = 3 + RUN_INDEXES as usize * RUN_DEPTHS as usize;
    /// Groups of what memtables become.
    const FLUSHED: u64 = RUN_INDEXES as u64;

    /// Runs of one index at about one depth are given up at about one time, those of another index at another: an index that is written in key order keeps
    /// its own, and beside the others' would hold their extents for good.
    #[must_use]
    pub fn of_runs(index: IndexId, depth: RunDepth) -> Self {
        Self::Runs(RunGroup((index.0 % RUN_INDEXES) as u8 * RUN_DEPTHS + depth as u8))
    }

    #[cfg(test)]
    fn all() -> impl Iterator<Item = Self> {
        let runs = (0..(Self::COUNT - 3) as u8).map(|n| Self::Runs(RunGroup(n)));
        [Self::Hot, Self::Warm, Self::Cold].into_iter().chain(runs)
    }

    /// Its place among all.
    fn place(self) -> usize {
        match self {
            Self::Hot => 0,
            Self::Warm => 1,
            Self::Cold => 2,
            Self::Runs(RunGroup(n)) => 3 + usize::from(n),
        }
    }
}

/// A block to write.
#[derive(Debug, Clone)]
pub struct NewBlock {
    /// What it holds.
    pub kind: BlockKind,
    /// Whose it is.
    pub index: IndexId,
    /// How to compress it.
    pub compression: Compression,
    /// Where to put it.
    pub group: UpdateGroup,
    /// The bytes, uncompressed.
    pub payload: Vec<u8>,
    /// Where the payload is cut into parts that are compressed, and can be read, each alone: ascending, inside the payload.
    /// With none the block is of the format that all builds read.
    pub cuts: Vec<usize>,
}

/// Settings of the data file.
#[derive(Debug, Clone)]
pub struct SpaceOptions {
    /// Extent size in bytes, a power of two, 1–4 MiB (smaller in tests).
    pub extent_bytes: u64,
    /// Bypass the page cache where the file system can.
    pub direct: bool,
    /// Bytes kept free for commits of prepared transactions, checkpoints and DROP.
    pub reserve_bytes: u64,
    /// Upper bound of the data file, if any.
    pub max_bytes: Option<u64>,
    /// What blocks in memory are charged to, if to anything.
    pub budget: Option<Budget>,
}

impl Default for SpaceOptions {
    fn default() -> Self {
        Self { extent_bytes: 4 << 20, direct: true, reserve_bytes: 64 << 20, max_bytes: None, budget: None }
    }
}

/// For whom space is allocated (rule P4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocScope {
    /// Work that may be refused, as bulk loads and merges: leaves the reserve alone.
    Ordinary,
    /// Pages that were admitted. If more of them are owed than is left, they leave the last of the reserve to checkpoints that bring space
    /// back ([`Space::to_evacuate`]).
    Pages,
    /// What those move: it leaves a part of that for the nodes which are to name it.
    Moved,
    /// Work that must go on: checkpoints, commits of prepared transactions, DROP.
    Reserve,
}

/// Space of one database, by meaning, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpaceStats {
    /// Length of the data file less what was punched out.
    pub file_bytes: u64,
    /// Named by the newest durable manifest.
    pub live_bytes: u64,
    /// Freed, not reusable yet.
    pub pending_bytes: u64,
    /// Free extents kept for reuse.
    pub free_bytes: u64,
    /// Written since open.
    pub written_bytes: u64,
    /// Read since open.
    pub read_bytes: u64,
    /// Named by anybody: the newest durable manifest, the next one, or memory.
    pub held_bytes: u64,
    /// Freed or padding, in extents that hold other blocks: what cleaning would win.
    pub dead_bytes: u64,
    /// Not written yet, in extents being filled.
    pub open_bytes: u64,
    /// What cleaning has to move: blocks in extents that are mostly free. What it has been through and waits for a
    /// checkpoint, or cannot be moved, is not in it.
    pub cleaning_bytes: u64,
    /// Moved by cleaning since open.
    pub moved_bytes: u64,
    /// True if the page cache is bypassed.
    pub direct: bool,
}

/// What cleaning owes, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleaningDebt {
    /// To move: blocks in extents that are mostly free.
    pub to_move: u64,
    /// Dead in these extents: what moving wins.
    pub dead: u64,
    /// Moved since open.
    pub moved: u64,
}

/// The data file of one database. Cheap to clone.
#[derive(Clone)]
pub struct Space(Arc<Inner>);

struct Inner {
    data: DataFile,
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    options: SpaceOptions,
    poison: Poison,
    database_id: u64,
    allocator: Mutex<Allocator>,
    growth: Mutex<growth::Growth>,
    /// Whoever gives space back, until he has.
    giving_back: Mutex<()>,
    /// The extents of it that the file system is just taking.
    under_way: Mutex<()>,
    /// Bytes that may still be taken, the reserve included; a hint (relaxed: a moment late is no harm).
    left: AtomicU64,
    /// What was admitted and is not written ([`Space::note_owed`]).
    owed: AtomicU64,
    /// Of it, pages.
    owed_pages: AtomicU64,
    /// Live bytes of the manifest last saved, and of the newest durable one; under no other latch.
    saved_live: Mutex<(u64, u64)>,
    /// Indexes that clean, each in passes of its own; what they moved. Relaxed: statistics.
    cleaners: AtomicU32,
    moved: AtomicU64,
    /// Drops free nothing any more.
    closed: AtomicBool,
    /// Somebody was refused space since it was last asked. Relaxed: a hint.
    refused: AtomicBool,
    /// Drawn when the first copy is made: generations count from the opening.
    life: OnceLock<u64>,
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Space({})", self.0.data.name)
    }
}

impl Space {
    /// Opens the data file in `dir`. With `saved`, the state from the manifest, the file must be there and be the
    /// manifest's; blocks that the manifest does not reach are free (P9). Without, the file is created; one that
    /// already holds extents is refused, since its manifest is missing. So the first manifest of a database must
    /// be durable before the first block is written.
    ///
    /// # Errors
    /// [`Fault::Io`], [`Fault::Corrupt`], [`Fault::Format`], [`Fault::Limit`] for bad options.
    pub fn open(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        mut options: SpaceOptions,
        saved: Option<&[u8]>,
        poison: Poison,
    ) -> Result<Space> {
        check_options(&options)?;
        let (data, database_id, allocator) = match saved {
            None => create(&*vfs, dir, &options)?,
            Some(saved) => {
                let saved = Saved::decode(saved)?;
                // The extent size is the file's for life; the option counts at creation.
                options.extent_bytes = saved.extent_bytes;
                check_options(&options)?;
                reopen(&*vfs, dir, &options, &saved)?
            }
        };
        let live = allocator.published_bytes();
        Ok(Space(Arc::new(Inner {
            data,
            vfs,
            dir: dir.to_owned(),
            options,
            poison,
            database_id,
            allocator: Mutex::new(allocator),
            growth: Mutex::new(growth::Growth::default()),
            giving_back: Mutex::new(()),
            under_way: Mutex::new(()),
            // Not examined yet: the first growth does.
            left: AtomicU64::new(u64::MAX),
            owed: AtomicU64::new(0),
            owed_pages: AtomicU64::new(0),
            saved_live: Mutex::new((live, live)),
            cleaners: AtomicU32::new(1),
            moved: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            life: OnceLock::new(),
        })))
    }

    /// Number of the database, drawn at its creation; in the file's header and in [`Space::save`].
    #[must_use]
    pub fn database_id(&self) -> u64 {
        self.0.database_id
    }

    /// Longest payload a block may have here, in bytes: a block lies within one extent.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        self.0.options.extent_bytes as usize - HEADER_BYTES
    }

    /// The extent size in bytes.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        self.0.options.extent_bytes
    }

    /// The data file's path, for messages.
    #[must_use]
    pub fn file_name(&self) -> &str {
        &self.0.data.name
    }

    /// Reads the file's header again.
    ///
    /// # Errors
    /// [`Fault::Corrupt`] if it is another; faults of reading.
    pub fn check_header(&self) -> Result<()> {
        let (found, expected) = (self.0.data.read_header()?, (self.0.options.extent_bytes, self.0.database_id));
        if found != expected {
            let (expected, found) = (format!("{expected:x?}"), format!("{found:x?}"));
            return Err(Fault::corrupt(self.file_name(), 0, "extent size and database id", expected, found));
        }
        Ok(())
    }

    /// A block that the manifest the database was opened from names: `published` is 1. To be called once for
    /// each such block before it is dropped or replaced; a block that nobody adopts stays.
    #[must_use]
    pub fn adopt(&self, at: BlockRef) -> Arc<Block> {
        Block::new(self, at, 1)
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// The fault of the file system, which poisons.
    pub fn sync(&self) -> Result<()> {
        self.0.poison.check()?;
        let data = &self.0.data;
        data.file().sync().map_err(|e| self.0.poison.set(Fault::io("sync", &data.name, &e)))
    }

    /// True if nothing is written any more.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.0.poison.check().is_err()
    }

    /// The allocator's state for the manifest: live bytes by extent, from published blocks (P9). Taken after the
    /// last parent of the checkpoint was composed.
    ///
    /// It is exact only if the published blocks are those that the manifest's states reach. So whoever drops blocks
    /// without composing a parent (the end of a dropped index) does so while no checkpoint is between composing and
    /// this; and an index whose blocks still live is named in the manifest, dropped or not.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let saved = {
            let mut allocator = self.0.allocator.lock();
            Saved {
                database_id: self.0.database_id,
                extent_bytes: self.0.options.extent_bytes,
                extent_count: allocator.extent_count(),
                live: allocator.save(),
            }
        };
        self.0.saved_live.lock().0 = saved.live.iter().map(|(_, bytes)| bytes).sum();
        saved.encode()
    }

    /// The manifest that the last [`Space::save`] was for is durable: what it does not name is reusable, as far as no pin is older (rule A20).
    pub fn checkpoint_durable(&self) {
        {
            let mut live = self.0.saved_live.lock();
            live.1 = live.0;
        }
        let released = self.0.allocator.lock().note_durable();
        if released > 0 {
            self.space_returned();
        }
    }

    /// Bytes of empty extents that the next durable checkpoint makes usable: without those that a pin holds back.
    #[must_use]
    pub fn releasable_bytes(&self) -> u64 {
        self.0.allocator.lock().releasable_count() * self.0.options.extent_bytes
    }

    /// True if somebody was refused space since the last call.
    #[must_use]
    pub fn take_refused(&self) -> bool {
        self.0.refused.swap(false, Ordering::Relaxed)
    }

    /// Sealed extents less than half live that `wanted` has: the emptiest, as many as hold `bytes` together. Ascending.
    #[must_use]
    pub fn cleaning_candidates(&self, bytes: u64, wanted: impl Fn(ExtentId) -> bool) -> Vec<ExtentId> {
        self.0.allocator.lock().cleaning_candidates(bytes, wanted)
    }

    /// So many indexes clean: an extent is in shape, or as good as it gets, when each has been through it.
    pub fn expect_cleaners(&self, count: usize) {
        self.0.cleaners.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// An index has moved so many bytes.
    pub fn note_moved(&self, bytes: u64) {
        self.0.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Moved by all indexes since open.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        self.0.moved.load(Ordering::Relaxed)
    }

    /// An index's pass of cleaning through these extents has ended.
    pub fn note_passed(&self, extents: &[ExtentId]) {
        self.0.allocator.lock().note_passed(extents);
    }

    /// What cleaning owes. Looks at every extent.
    #[must_use]
    pub fn cleaning_debt(&self) -> CleaningDebt {
        let passes = self.0.cleaners.load(Ordering::Relaxed).try_into().unwrap_or(u16::MAX);
        let (to_move, dead) = self.0.allocator.lock().cleaning_debt(passes);
        CleaningDebt { to_move, dead, moved: self.moved_bytes() }
    }

    /// The extent a block lies in.
    #[must_use]
    pub fn extent_of(&self, at: BlockRef) -> ExtentId {
        (at.offset / self.0.options.extent_bytes) as ExtentId
    }

    /// Bytes written since open, and bytes that the newest durable manifest names: what a checkpoint by space goes by.
    #[must_use]
    pub fn written_and_live(&self) -> (u64, u64) {
        (self.0.data.written_bytes.load(Ordering::Relaxed), self.0.saved_live.lock().1)
    }

    /// Counts and sizes.
    #[must_use]
    pub fn stats(&self) -> SpaceStats {
        let data = &self.0.data;
        let extent_bytes = self.0.options.extent_bytes;
        let mut stats = SpaceStats {
            live_bytes: self.0.saved_live.lock().1,
            written_bytes: data.written_bytes.load(Ordering::Relaxed),
            read_bytes: data.read_bytes.load(Ordering::Relaxed),
            direct: data.file().is_direct(),
            ..SpaceStats::default()
        };
        let debt = self.cleaning_debt();
        (stats.cleaning_bytes, stats.moved_bytes) = (debt.to_move, debt.moved);
        let allocator = self.0.allocator.lock();
        stats.file_bytes = SECTOR_BYTES as u64 + allocator.backed_count() * extent_bytes;
        stats.held_bytes = allocator.held_bytes();
        for (_, extent) in allocator.extents().filter(|(_, e)| e.backed) {
            match extent.state {
                State::Free | State::Moving => stats.free_bytes += extent_bytes,
                State::Pending => stats.pending_bytes += extent_bytes,
                State::Open | State::Sealed => {
                    let written = if extent.state == State::Open { extent.fill } else { extent_bytes };
                    stats.open_bytes += extent_bytes - written;
                    stats.dead_bytes += written - extent.held;
                }
            }
        }
        stats
    }

    /// The database closes: from now on dropping a block frees nothing, so that tearing down the structures does
    /// not walk the accounting.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    /// Charges for a small thing that lives with the blocks, until [`Space::release`]; see [`Budget::hold`].
    pub fn hold(&self, class: Class, bytes: u64) {
        self.0.options.budget.iter().for_each(|budget| budget.hold(class, bytes));
    }

    /// Gives back what [`Space::hold`] charged.
    pub fn release(&self, class: Class, bytes: u64) {
        self.0.options.budget.iter().for_each(|budget| budget.release(class, bytes));
    }

    pub(crate) fn note_published(&self, at: BlockRef) {
        self.0.allocator.lock().publish(at, 1);
    }

    pub(crate) fn note_unpublished(&self, at: BlockRef) {
        self.0.allocator.lock().publish(at, -1);
    }

    /// A lot is published, or not any more.
    pub(crate) fn note_lot(&self, bytes: &[(ExtentId, u32)], by: i64) {
        let mut allocator = self.0.allocator.lock();
        bytes.iter().for_each(|(extent, bytes)| allocator.publish(self.first_of(*extent, *bytes), by));
    }

    /// Many blocks of one extent, as the allocator sees them: as one.
    fn first_of(&self, extent: ExtentId, stored_bytes: u32) -> BlockRef {
        BlockRef { offset: u64::from(extent) * self.0.options.extent_bytes, stored_bytes, crc: 0 }
    }

    pub(crate) fn free_lot(&self, bytes: &[(ExtentId, u32)], published: bool) {
        bytes.iter().for_each(|(extent, bytes)| self.free(self.first_of(*extent, *bytes), published));
    }

    pub(crate) fn free(&self, at: BlockRef, published: bool) {
        // Acquire, with `close`.
        if self.0.closed.load(Ordering::Acquire) {
            return;
        }
        let usable = {
            let mut allocator = self.0.allocator.lock();
            if published {
                allocator.publish(at, -1);
            }
            allocator.free(at.offset, u64::from(at.stored_bytes))
        };
        if usable {
            self.note_returned(1);
        }
    }
}
