//! [`Wal`]: from a grant to durable bytes. The steps are in the crate's header; this is where they meet.
//!
//! Latches, in the order in which one thread may hold them: leadership of the sync stage → leadership of the
//! write stage → the writer's mutex (free whenever the write stage has no leader) → the pool's mutexes. Nobody
//! who holds a grant waits for another grant.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::link_buffer::LinkBuffer;
use base::{Fault, Lsn, Poison, Result};
use crossbeam_utils::CachePadded;
use vfs::Vfs;
use vfs::sync::Mutex;
use vfs::time::Instant;

use crate::format::Incarnation;
use crate::gathering::Gathering;
use crate::options::{WalOptions, WalStart};
use crate::record::{RecordKind, record_bytes};
use crate::ring::Ring;
use crate::room::{Room, Signal};
use crate::segment::Pool;
use crate::stage::{Lead, Stage, Turn};
use crate::stats::{Counters, WalStats};
use crate::writer::Writer;

/// A thread that is about to wait for a sync first writes the next group if so many bytes wait for it: worth
/// doing beside the sync. Smaller groups are written by the next sync's leader, all in one frame.
const OVERLAP_BYTES: u64 = 64 * 1024;
/// Turns to spin for an appender that is in the middle of its copy before sleeping.
const COPY_SPINS: u32 = 64;
/// With what makes it longer, and what it may be made of that is shorter.
const TOO_LONG_A_RECORD: &str = "log record (long keys and many indexes take its room, a larger Options::budget_bytes and \
                                 Options::log_segment_bytes give more), in bytes,";

/// The log. A handle: clones are the same log.
///
/// ```
/// use std::{path::Path, sync::Arc};
/// use trefoil_wal::{DatabaseId, ManifestMark, RecordKind, Wal, WalOptions, WalStart, recover};
/// use vfs::sim::{DiskConfig, SimDisk};
/// use vfs::Vfs;
///
/// let disk = Arc::new(SimDisk::new(DiskConfig::default()));
/// let (dir, database) = (Path::new("/log"), DatabaseId(*b"random, 16 bytes"));
/// disk.create_dir_all(dir).expect("a new disk");
///
/// let start = WalStart::fresh(database);
/// let wal = Wal::open(disk.clone(), dir, WalOptions::default(), start, base::Poison::new())?;
/// let grant = wal.reserve_space(5)?; // may wait, may fail, has no position yet
/// let (_, end) = wal.append(grant, RecordKind(1), b"hello"); // neither
/// wal.sync_to(end)?;
///
/// let (mut found, from) = (Vec::new(), wal.first_lsn());
/// let log_end = recover(&*disk, dir, database, from, ManifestMark::default(), &mut |record| {
///     found.extend_from_slice(record.payload);
///     Ok(())
/// })?;
/// assert_eq!((found.as_slice(), log_end.end), (&b"hello"[..], end));
/// let next_life = WalStart::after(database, &log_end);
/// assert!(next_life.first_lsn > end);
/// # Ok::<(), base::Fault>(())
/// ```
#[derive(Clone)]
pub struct Wal(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) options: WalOptions,
    pub(crate) start: WalStart,
    pub(crate) seed: u32,
    pub(crate) ring: Ring,
    pub(crate) room: Room,
    pub(crate) pool: Pool,
    pub(crate) counters: Counters,
    poison: Poison,
    /// Where the next record goes. `fetch_add` with AcqRel: an appender inherits what earlier ones acquired
    /// with their grants, which makes the ring's words below its range free to use.
    tail: CachePadded<AtomicU64>,
    copied: LinkBuffer,
    /// Told when a record is copied.
    copied_more: Signal,
    write_stage: Stage,
    writer: Mutex<Writer>,
    sync_stage: Stage,
    gathering: Mutex<Gathering>,
}

/// Room for one record, in the ring and on disk: the append that uses it does not wait and cannot fail.
/// Dropping it gives the room back.
#[must_use = "dropping a grant gives its room back"]
pub struct SpaceGrant<'w> {
    pub(crate) log: &'w Inner,
    pub(crate) bytes: u64,
}

impl Drop for SpaceGrant<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.log.room.release(self.bytes, 1);
        }
    }
}

impl std::fmt::Debug for SpaceGrant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SpaceGrant({} bytes)", self.bytes)
    }
}

impl Wal {
    /// Starts a new life of the log in `dir`, in a new segment that is durable on return. Earlier segments stay
    /// until they are trimmed; [`crate::recover`] must have accepted the directory.
    ///
    /// # Errors
    /// Options out of range, a directory that belongs to another database or a later life, no space, I/O.
    pub fn open(vfs: Arc<dyn Vfs>, dir: &Path, options: WalOptions, start: WalStart, poison: Poison) -> Result<Self> {
        options.check()?;
        let (pool, spare, frames) = Pool::open(vfs, dir, &options, &start, poison.clone())?;
        let log = Self::assemble(pool, Writer::new(spare, start.first_lsn, frames), options, start, poison);
        log.0.room.add_space(log.0.options.usable_bytes());
        Ok(log)
    }

    /// The log of a database that is only read: nothing is appended to it, and the directory stays as it is. `start` is
    /// where it ends ([`WalStart::end_of`]).
    ///
    /// # Errors
    /// Options out of range; faults of reading the directory.
    pub fn read_only(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        options: WalOptions,
        start: WalStart,
        poison: Poison,
    ) -> Result<Self> {
        options.check()?;
        let (pool, spare) = Pool::read_only(vfs, dir, &options, poison.clone())?;
        Ok(Self::assemble(pool, Writer::new(spare, start.first_lsn, 0), options, start, poison))
    }

    fn assemble(pool: Pool, writer: Writer, options: WalOptions, start: WalStart, poison: Poison) -> Self {
        Self(Arc::new(Inner {
            seed: start.database.checksum_seed(),
            ring: Ring::new(options.ring_bytes),
            room: Room::new(&options),
            pool,
            counters: Counters::default(),
            tail: CachePadded::new(AtomicU64::new(start.first_lsn.0)),
            copied: LinkBuffer::new(start.first_lsn, options.ring_bytes),
            copied_more: Signal::default(),
            write_stage: Stage::short(start.first_lsn, poison.clone()),
            writer: Mutex::new(writer),
            sync_stage: Stage::long(start.first_lsn, poison.clone()),
            gathering: Mutex::default(),
            poison,
            options,
            start,
        }))
    }

    /// Gets room for one record with a payload of at most `payload_bytes`: waits for the ring, makes a segment
    /// if none is ready. Call it with row locks held if need be, but before the record has a position, and as
    /// the last thing that may wait.
    ///
    /// # Errors
    /// [`Fault::NoSpace`] if the disk is full: an ordinary error, nothing has happened. [`Fault::Limit`] if
    /// no record can be that long. [`Fault::Poisoned`].
    pub fn reserve_space(&self, payload_bytes: usize) -> Result<SpaceGrant<'_>> {
        self.0.reserve(payload_bytes, false)
    }

    /// As [`Wal::reserve_space`], and may use the reserve that is kept for when the disk is full: for commits
    /// of prepared transactions, drops, and other records that must not be refused.
    ///
    /// # Errors
    /// As [`Wal::reserve_space`].
    pub fn reserve_space_privileged(&self, payload_bytes: usize) -> Result<SpaceGrant<'_>> {
        self.0.reserve(payload_bytes, true)
    }

    /// Longest payload of a record.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        self.0.options.record_bytes_max() as usize - crate::record::RECORD_HEADER_BYTES
    }

    /// Appends a record; its position and the position just past it. Neither waits nor fails.
    ///
    /// # Panics
    /// If the grant is too small or of another log.
    pub fn append(&self, grant: SpaceGrant<'_>, kind: RecordKind, payload: &[u8]) -> (Lsn, Lsn) {
        self.append_slices(grant, kind, &[payload])
    }

    /// Appends a record whose payload is these slices, one after the other.
    ///
    /// # Panics
    /// As [`Wal::append`].
    pub fn append_slices(&self, grant: SpaceGrant<'_>, kind: RecordKind, slices: &[&[u8]]) -> (Lsn, Lsn) {
        assert!(std::ptr::eq(grant.log, &*self.0), "a grant of this log");
        self.0.append(grant, kind, slices)
    }

    /// Hands the log up to at least `lsn` to the system: those records survive the process, not the machine.
    ///
    /// # Errors
    /// The first fault of the log: it poisons the database.
    pub fn write_to(&self, lsn: Lsn) -> Result<()> {
        self.0.write_to(lsn)
    }

    /// Makes the log durable up to at least `lsn`.
    ///
    /// # Errors
    /// The first fault of the log: it poisons the database, and whether the record will be found at the next
    /// open is not known.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        self.0.sync_to(lsn)
    }

    /// Makes everything appended so far durable: what the engine's background does for `Buffered` commits.
    ///
    /// # Errors
    /// As [`Wal::sync_to`].
    pub fn sync_all(&self) -> Result<()> {
        self.sync_to(self.end())
    }

    /// Writes a group out if the ring is more than half full and nobody else is writing. For commits that do
    /// not wait for the log, after their locks are released, so that [`Wal::reserve_space`] seldom has to.
    ///
    /// # Errors
    /// As [`Wal::write_to`].
    pub fn relieve(&self) -> Result<()> {
        self.0.relieve()
    }

    /// One bounded step of making segments ahead of their use, at most 1 MiB of writing; true if there is more
    /// to do now. For a background thread. Without one, [`Wal::reserve_space`] makes segments when it must.
    ///
    /// # Errors
    /// [`Fault::NoSpace`] if the disk is full; what else goes wrong poisons the database.
    pub fn prepare(&self) -> Result<bool> {
        self.0.prepare()
    }

    /// Waits until a write leaves [`Wal::prepare`] something to do, [`Wal::end_wait`], or for so long; not if there was one of them since the last
    /// wait. One waits at a time.
    pub fn wait_until_wanted(&self, timeout: Duration) {
        self.0.room.wanted.wait(timeout);
    }

    /// Ends [`Wal::wait_until_wanted`], or the next one.
    pub fn end_wait(&self) {
        self.0.room.wanted.tell();
    }

    /// Gives up the segments whose records all lie below `floor`: nobody will ask recovery for them again.
    ///
    /// # Errors
    /// A file that cannot be removed poisons the database.
    pub fn trim(&self, floor: Lsn) -> Result<()> {
        self.0.pool.trim(floor)
    }

    /// Gives the file system what was trimmed and is kept to be used again, and a segment that is half made: for a log that is at rest.
    /// What is ready for the next records stays. True if there was any.
    ///
    /// # Errors
    /// A file that cannot be removed poisons the database.
    pub fn give_back(&self) -> Result<bool> {
        self.0.pool.give_back()
    }

    /// Written up to here.
    #[must_use]
    pub fn written(&self) -> Lsn {
        self.0.written()
    }

    /// Durable up to here.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.0.durable()
    }

    /// Where the next record goes.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.0.end()
    }

    /// Position of the first record of this life.
    #[must_use]
    pub fn first_lsn(&self) -> Lsn {
        self.0.start.first_lsn
    }

    /// Where the segment in use continues the log: whoever trims up to here keeps no earlier one.
    #[must_use]
    pub fn segment_start(&self) -> Lsn {
        self.0.pool.newest_start()
    }

    /// Number of this life.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.0.start.incarnation
    }

    /// Counts since open, sizes now.
    #[must_use]
    pub fn stats(&self) -> WalStats {
        let sizes = self.0.pool.sizes();
        let counted = self.0.counters.read();
        WalStats {
            appended_bytes: self.end().0 - self.first_lsn().0,
            segments: sizes.live,
            spare_segments: sizes.spares,
            segment_files: sizes.files,
            disk_bytes: sizes.files * self.0.options.segment_bytes,
            recycled_segments: sizes.recycled,
            filled_bytes: counted.filled_bytes + sizes.filled_bytes,
            company_wait_time: self.0.write_stage.waited() + self.0.sync_stage.waited(),
            ..counted
        }
    }
}

impl Inner {
    pub(crate) fn durable(&self) -> Lsn {
        self.sync_stage.reached()
    }

    fn written(&self) -> Lsn {
        self.write_stage.reached()
    }

    fn end(&self) -> Lsn {
        // Acquire pairs with the AcqRel `fetch_add` in `append`.
        Lsn(self.tail.load(Ordering::Acquire))
    }

    /// Bytes that wait to be written. What is written is loaded first: others append and write between the two loads, and it
    /// may lie beyond an end that was loaded before it.
    fn unwritten_bytes(&self) -> u64 {
        let written = self.written();
        vfs::thread::point("wal.unwritten");
        self.end().0 - written.0
    }

    fn grant(&self, bytes: u64) -> SpaceGrant<'_> {
        SpaceGrant { log: self, bytes }
    }

    fn reserve(&self, payload_bytes: usize, privileged: bool) -> Result<SpaceGrant<'_>> {
        self.poison.check()?;
        let limit = self.options.record_bytes_max();
        if payload_bytes as u64 > limit - crate::record::RECORD_HEADER_BYTES as u64 {
            return Err(Fault::Limit { what: TOO_LONG_A_RECORD, limit, got: payload_bytes as u64 });
        }
        let bytes = record_bytes(payload_bytes);
        // Those who wait come first: a long record would otherwise never find room between short ones.
        if !self.room.changed.has_waiters() && self.room.take(bytes, privileged).is_some() {
            return Ok(self.grant(bytes));
        }
        let began = Instant::now();
        let grant = self.reserve_slowly(bytes, privileged);
        self.counters.room_wait(began.elapsed());
        grant
    }

    /// Gets room when there is none: one thread at a time, which is the log while it waits.
    fn reserve_slowly(&self, bytes: u64, privileged: bool) -> Result<SpaceGrant<'_>> {
        let _turn = self.room.turn.lock();
        loop {
            self.poison.check()?;
            if self.room.take_quietly(bytes, privileged).is_some() {
                return Ok(self.grant(bytes));
            }
            if self.copied.advance() > self.written() {
                self.write_to(self.copied.prefix())?;
            } else if self.room.lacks_space_for(bytes, privileged) {
                self.make_segment()?;
            } else {
                // What is outstanding is granted and not appended, or in the middle of its copy.
                vfs::thread::point("wal.room");
                let taken = self.room.changed.wait_until(|| {
                    let taken = self.room.take_quietly(bytes, privileged).is_some();
                    // Who was granted room since the look above may have taken the last space, and be done.
                    let work = self.copied.advance() > self.written()
                        || self.room.lacks_space_for(bytes, privileged)
                        || self.poison.cause().is_some();
                    (taken || work).then_some(taken)
                });
                if taken {
                    return Ok(self.grant(bytes));
                }
            }
        }
    }

    fn append(&self, mut grant: SpaceGrant<'_>, kind: RecordKind, slices: &[&[u8]]) -> (Lsn, Lsn) {
        let payload_bytes = slices.iter().map(|slice| slice.len()).sum();
        let bytes = record_bytes(payload_bytes);
        let granted = std::mem::take(&mut grant.bytes);
        assert!(bytes <= granted, "a grant of {granted} bytes for a record of {bytes}");
        let start = Lsn(self.tail.fetch_add(bytes, Ordering::AcqRel));
        let end = Lsn(start.0 + bytes);
        // From here to the mark the range is a gap that holds the written prefix back (rule A12).
        vfs::thread::point("wal.reserved");
        self.ring.put(start, kind, payload_bytes, slices);
        vfs::thread::point("wal.copied");
        self.copied.mark(start, end);
        vfs::thread::point("wal.marked");
        if bytes < granted {
            self.room.release(granted - bytes, 0);
        }
        self.copied_more.wake();
        self.room.changed.wake();
        (start, end)
    }

    fn write_to(&self, lsn: Lsn) -> Result<()> {
        self.check_position(lsn);
        while self.written() < lsn {
            self.poison.check()?;
            if let Turn::Lead(lead) = self.write_stage.enter(lsn) {
                self.write_out(&lead, lsn)?;
            }
        }
        Ok(())
    }

    /// As leader of the write stage: writes everything that is copied, at least up to `lsn`.
    fn write_out(&self, lead: &Lead<'_>, lsn: Lsn) -> Result<()> {
        let prefix = self.await_copied(lsn);
        let mut writer = self.writer.lock();
        while writer.taken() < prefix {
            writer.write_frame(self, prefix).map_err(|fault| self.fail(fault))?;
            lead.reach(writer.taken());
            vfs::thread::point("wal.written");
        }
        Ok(())
    }

    /// Waits until everything below `lsn` is copied: appenders between their reservation and their mark are
    /// never waiting for anything themselves.
    fn await_copied(&self, lsn: Lsn) -> Lsn {
        for _ in 0..COPY_SPINS {
            let prefix = self.copied.advance();
            if prefix >= lsn {
                return prefix;
            }
            vfs::thread::spin();
        }
        self.copied_more.wait_until(|| {
            let prefix = self.copied.advance();
            (prefix >= lsn).then_some(prefix)
        })
    }

    fn sync_to(&self, lsn: Lsn) -> Result<()> {
        self.check_position(lsn);
        while self.durable() < lsn {
            self.poison.check()?;
            if self.unwritten_bytes() >= OVERLAP_BYTES {
                self.write_if_free()?;
            }
            if let Turn::Lead(lead) = self.sync_stage.enter(lsn) {
                self.sync_out(&lead, lsn)?;
            }
        }
        Ok(())
    }

    /// As leader of the sync stage: writes what is there, closes the block, syncs.
    ///
    /// The block is closed under the writer's mutex, which a write holds from taking its place to its end. Otherwise:
    /// W takes its place behind a written frame f, in f's block; S starts a sync that is to cover f; the sync
    /// ends and f is acknowledged; W's write now overwrites the block that holds f, and a power cut tears it.
    fn sync_out(&self, lead: &Lead<'_>, lsn: Lsn) -> Result<()> {
        self.gathering.lock().wait(&self.sync_stage, lead, self.counters.last_sync());
        let (target, files) = {
            let Turn::Lead(write_lead) = self.write_stage.enter(Lsn::MAX) else {
                return self.poison.check();
            };
            self.write_out(&write_lead, lsn)?;
            (self.written(), self.writer.lock().seal())
        };
        vfs::thread::point("wal.sealed");
        for segment in files {
            let began = Instant::now();
            segment.file.sync().map_err(|e| self.fail(Fault::io("sync", segment.path.display(), &e)))?;
            self.counters.sync(began.elapsed());
        }
        vfs::thread::point("wal.synced");
        self.gathering.lock().synced();
        lead.reach(target);
        Ok(())
    }

    fn relieve(&self) -> Result<()> {
        let load = self.room.load();
        if load.bytes > self.options.ring_bytes / 2 || load.charge > self.room.ready() / 2 {
            self.poison.check()?;
            vfs::thread::point("wal.relieve");
            self.write_if_free()?;
        }
        Ok(())
    }

    /// Writes what is copied, unless somebody is at it.
    fn write_if_free(&self) -> Result<()> {
        match self.write_stage.try_lead() {
            Some(lead) => self.write_out(&lead, Lsn::ZERO),
            None => Ok(()),
        }
    }

    fn prepare(&self) -> Result<bool> {
        if !self.room.wants_segment() {
            return Ok(false);
        }
        if self.pool.prepare(false)? {
            self.room.add_space(self.options.usable_bytes());
        }
        Ok(true)
    }

    /// Makes a segment now, for whoever needs its space.
    fn make_segment(&self) -> Result<()> {
        while !self.pool.prepare(true)? {}
        self.room.add_space(self.options.usable_bytes());
        Ok(())
    }

    /// The fault poisons the database; whoever waits for anything of the log is woken to find that out.
    fn fail(&self, fault: Fault) -> Fault {
        let fault = self.poison.set(fault);
        self.room.changed.wake();
        fault
    }

    fn check_position(&self, lsn: Lsn) {
        debug_assert!(lsn <= self.end(), "position {lsn} is beyond the end {}", self.end());
    }
}
