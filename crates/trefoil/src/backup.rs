//! A hot backup: a copy of the database as of one moment, while readers and writers go on.
//!
//! 1. A checkpoint runs. While it is the newest one, the space is pinned and the log held at its floor: from now on
//!    neither a block that its manifest reaches nor a record behind its floor goes away.
//! 2. The extents that the manifest reaches are copied. In between, the log is copied as it grows and the hold moves
//!    on, so that a long backup does not keep the log.
//! 3. The log is made durable and the rest of it copied: its end is the moment that the backup shows. Who keeps an order of
//!    commits beside the database holds them up for just that, and knows its place there ([`Backup::moment`]). Then the run
//!    files, which are durable before the records that name them.
//! 4. The manifest is written, with that end as its durable mark: a damaged end of the copy's log is corruption, not
//!    a torn tail. Last comes the header file: without it the directory is not a database.
//!
//! Opening the backup is an ordinary recovery. What the manifest's blocks hold above its F is in the copied log too,
//! because no block is written before its records are durable (rule A6).
//!
//! **Pace.** Who writes beside a backup shares processors and disk with it, and a copy that runs as fast as it can takes its
//! half of a small machine. So the copy rests after each piece three times as long as the piece took: whatever the disk
//! and the machine, it is at work a quarter of the time, and what is asked of it in the meantime finds it idle. A rate can
//! be named instead. The log is copied without pauses: slower than commits write it, it would never end.
//!
//! Definitions do not change meanwhile: the rows of an index built beside the backup would be in neither the blocks nor
//! the log that are copied (rule A16f).

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{CommitTs, Fault, Lsn};
use store::SpacePin;
use vfs::OpenHow;
use vfs::time::Instant;

use crate::database::Database;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::layout::create_durably;
use crate::manifest::Manifest;

/// Bytes of the log that are copied in one go while blocks are copied; less if that is an eighth of what it may keep.
const LOG_EVERY_BYTES: u64 = 64 << 20;
/// Holds run files, and nothing of the log.
const RUNS_ONLY: Lsn = Lsn(u64::MAX - 1);
/// Bytes of a run file copied at once.
const PIECE_BYTES: usize = 1 << 20;
/// Pause for each unit of time that a piece took.
const REST: u32 = 3;
/// The longest pause after a piece: a disk that hung for a moment is not left alone for long.
const REST_MAX: Duration = Duration::from_secs(1);
/// A close is seen, and the log is looked at, after so long.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a rate that was not used up may catch up with.
const CREDIT: Duration = Duration::from_millis(100);

/// A hot backup about to be made: [`Database::backup`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
/// db.backup().rate_bytes(100 << 20).to(dir.path().join("monday"))?; // at most 100 MiB a second
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Clone, Copy)]
#[must_use = "nothing is copied before `to`"]
pub struct Backup<'a> {
    engine: &'a Engine,
    rate_bytes: Option<u64>,
    watch: Option<Watch<'a>>,
    moment: Option<Moment<'a>>,
}

type Watch<'a> = &'a dyn Fn(BackupProgress) -> ControlFlow<()>;
type Moment<'a> = &'a dyn Fn(&mut dyn FnMut()) -> ControlFlow<()>;

/// How far a backup is: [`Backup::watch`].
///
/// ```
/// use trefoil::BackupProgress;
///
/// fn percent(of: BackupProgress) -> u64 {
///     of.copied_bytes * 100 / of.total_bytes.max(1)
/// }
/// # let _ = percent;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Bytes of blocks copied so far.
    pub copied_bytes: u64,
    /// Bytes of all blocks. The log and run files come on top.
    pub total_bytes: u64,
}

impl Database {
    /// A backup to be made while readers and writers go on. It leaves them their share: it is at work a quarter of the
    /// time, unless it is given a rate.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// let moment = db.backup().to(dir.path().join("monday"))?;
    /// assert!(moment > trefoil::CommitTs(0));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn backup(&self) -> Backup<'_> {
        Backup { engine: self.engine(), rate_bytes: None, watch: None, moment: None }
    }

    /// Copies the database to `dir`, which is empty or not there yet, while readers and writers go on; changes of
    /// definitions wait until it is done. Returns the moment the copy shows: it holds every commit at or below, and
    /// none above. The copy is a database of its own: open it, there or elsewhere. Short for [`Database::backup`] at its
    /// usual pace.
    ///
    /// # Errors
    /// `InvalidArgument` if `dir` holds something; `Io`, `DiskFull`, `Poisoned`. What was copied until then is removed, but
    /// for directories; if that fails as well, what is left does not open as a database.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # tx.put(&fruit, b"apple", b"12")?;
    /// # tx.commit()?;
    /// let backup = dir.path().join("monday");
    /// db.checkpoint_to(&backup)?; // hot: writers go on
    /// # let mut tx = db.begin()?;
    /// # tx.delete(&fruit, b"apple")?;
    /// # tx.commit()?;
    /// let copy = trefoil::Database::open(&backup, trefoil::Options::default())?;
    /// assert_eq!(copy.begin()?.get(&copy.index("fruit")?, b"apple")?.as_deref(), Some(&b"12"[..]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn checkpoint_to(&self, dir: impl AsRef<Path>) -> Result<CommitTs> {
        self.backup().to(dir)
    }
}

impl<'a> Backup<'a> {
    /// Copies at most so many bytes a second of blocks and run files, and reads as many. `u64::MAX` is as fast as it goes:
    /// for a database that nobody uses. What commits add to the log meanwhile is copied beside that.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// db.backup().rate_bytes(u64::MAX).to(dir.path().join("monday"))?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn rate_bytes(self, bytes_per_second: u64) -> Self {
        Backup { rate_bytes: Some(bytes_per_second.max(1)), ..self }
    }

    /// Calls `look` after each piece, and while the backup rests, some twenty times a second. Once it answers `Break` the backup
    /// ends with [`Error::Cancelled`], and what was copied is removed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// use std::ops::ControlFlow;
    /// use trefoil::Error;
    ///
    /// let too_late = |_| ControlFlow::Break(());
    /// let ended = db.backup().watch(&too_late).to(dir.path().join("monday"));
    /// assert!(matches!(ended, Err(Error::Cancelled)));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn watch(self, look: &'a dyn Fn(BackupProgress) -> ControlFlow<()>) -> Self {
        Backup { watch: Some(look), ..self }
    }

    /// Calls `around` when the moment comes that the backup shows: between what that does before and behind it. For who keeps
    /// an order of commits beside the database and knows its place there while nobody moves on; what is ordered by
    /// [`ReadyCommit::order`](crate::ReadyCommit::order) before the moment is in the backup, what is ordered behind it is not. It
    /// may write files of its own into the directory. Once it answers `Break` the backup ends with [`Error::Cancelled`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// use std::ops::ControlFlow;
    ///
    /// let (monday, order) = (dir.path().join("monday"), std::sync::Mutex::new(7));
    /// let around = |moment: &mut dyn FnMut()| {
    ///     let place = order.lock().expect("nobody panics"); // nobody moves on
    ///     moment();
    ///     std::fs::write(monday.join("place"), place.to_string()).expect("the directory is there");
    ///     ControlFlow::Continue(())
    /// };
    /// db.backup().moment(&around).to(&monday)?;
    /// assert_eq!(std::fs::read_to_string(monday.join("place")).expect("it was written"), "7");
    /// trefoil::Database::open(&monday, trefoil::Options::default())?; // files of others do not matter
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn moment(self, around: &'a dyn Fn(&mut dyn FnMut()) -> ControlFlow<()>) -> Self {
        Backup { moment: Some(around), ..self }
    }

    /// Makes the backup in `dir`, which is empty or not there yet, and returns the moment it shows.
    ///
    /// # Errors
    /// As [`Database::checkpoint_to`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// db.backup().to(dir.path().join("monday"))?;
    /// assert!(db.backup().to(dir.path().join("monday")).is_err()); // not empty any more
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn to(self, dir: impl AsRef<Path>) -> Result<CommitTs> {
        self.engine.backup_to(dir.as_ref(), &mut Pace::new(&self))
    }
}

/// When the next piece may be copied.
struct Pace<'a> {
    rate_bytes: Option<u64>,
    watch: Option<Watch<'a>>,
    moment: Option<Moment<'a>>,
    progress: BackupProgress,
    /// The watcher has ended it.
    cancelled: bool,
    /// When the piece now being copied began.
    began: Instant,
    /// When all pieces so far are paid for, at the rate.
    paid: Instant,
}

impl<'a> Pace<'a> {
    fn new(of: &Backup<'a>) -> Self {
        let now = Instant::now();
        let Backup { rate_bytes, watch, moment, .. } = *of;
        Pace { rate_bytes, watch, moment, progress: BackupProgress::default(), cancelled: false, began: now, paid: now }
    }

    fn ask(&mut self) -> base::Result<()> {
        self.cancelled |= self.watch.is_some_and(|watch| watch(self.progress).is_break());
        if self.cancelled { Err(Fault::Unsupported("a backup that was cancelled".into())) } else { Ok(()) }
    }

    /// The piece begins now; what was done before is not counted.
    fn start(&mut self) {
        self.began = Instant::now();
    }

    /// Waits as long as a piece of so many bytes asks for, and calls `look` in between; the next one begins then.
    fn rest(&mut self, bytes: u64, look: &mut dyn FnMut() -> base::Result<()>) -> base::Result<()> {
        let now = Instant::now();
        let until = match self.rate_bytes {
            None => now + (now - self.began).saturating_mul(REST).min(REST_MAX),
            Some(rate) => {
                // The clock may be younger than the credit.
                let idle = now - self.paid;
                let from = if idle > CREDIT { self.paid + (idle - CREDIT) } else { self.paid };
                self.paid = from + Duration::from_secs_f64(bytes as f64 / rate as f64);
                self.paid
            }
        };
        loop {
            look()?;
            self.ask()?;
            let left = until - Instant::now();
            if left.is_zero() {
                break;
            }
            vfs::thread::sleep(left.min(LOOK_EVERY));
        }
        self.start();
        Ok(())
    }
}

/// The log's copy so far.
struct LogCopy {
    segments: u64,
    end: Lsn,
}

/// Lets the log go when the backup is over, however it ends.
struct Held<'a>(&'a Engine);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.held_log.lock() = None;
    }
}

impl Engine {
    /// Copies the database to `dir`, which is empty or not there. Returns the moment the copy shows: it holds every
    /// commit at or below, and none above.
    fn backup_to(&self, dir: &Path, pace: &mut Pace<'_>) -> Result<CommitTs> {
        self.check_writable()?;
        // One backup at a time, and no change of definitions beside it.
        let _kept = self.steps.keep();
        // The log that a damaged index needs reaches back over lives, which a copy does not.
        self.upkept_indexes().iter().try_for_each(|entry| self.check_undamaged(entry))?;
        self.make_target(dir)?;
        self.copy_all(dir, pace).map_err(|error| {
            self.remove_copy(dir);
            if pace.cancelled { Error::Cancelled } else { error }
        })
    }

    /// What of a backup that failed can be removed.
    fn remove_copy(&self, dir: &Path) {
        for dir in [dir.to_owned(), dir.join("wal"), dir.join("runs")] {
            for name in self.layout.vfs.list(&dir).unwrap_or_default() {
                // Of a directory it fails; what else is left is no database without its header.
                let _ = self.layout.vfs.remove(&dir.join(name));
            }
        }
    }

    fn copy_all(&self, dir: &Path, pace: &mut Pace<'_>) -> Result<CommitTs> {
        let (manifest, pin) = self.begin_backup()?;
        let _held = Held(self);
        vfs::thread::point("backup.begun");
        let mut log = LogCopy { segments: 0, end: manifest.log_floor };
        self.copy_data(dir, &manifest, &pin, &mut log, pace)?;
        let moment = self.moment(dir, &mut log, pace)?;
        self.copy_log(dir, &mut log, moment)?;
        *self.held_log.lock() = Some(RUNS_ONLY);
        vfs::thread::point("backup.log_copied");
        self.copy_runs(dir, pace)?;
        self.sync_dirs(dir)?;
        let end = log.end.max(manifest.log_durable);
        Manifest { log_durable: end, ..manifest }.publish(&self.layout.vfs, dir)?;
        self.layout.seal_copy(dir)?;
        Ok(end.as_commit_ts())
    }

    fn make_target(&self, dir: &Path) -> Result<()> {
        let vfs = &self.layout.vfs;
        let io = |op, e: &std::io::Error| Error::from(Fault::io(op, dir.display(), e));
        if vfs.exists(dir).map_err(|e| io("look at", &e))?
            && let Some(name) = vfs.list(dir).map_err(|e| io("list", &e))?.first()
        {
            let why = format!("{} holds {name:?}; a backup goes to an empty or new directory", dir.display());
            return Err(Error::InvalidArgument(why));
        }
        [dir.to_owned(), dir.join("wal"), dir.join("runs")].iter().try_for_each(|dir| create_durably(vfs, dir))
    }

    /// Step 1.
    fn begin_backup(&self) -> Result<(Manifest, SpacePin)> {
        let awaited = self.await_checkpoint();
        let mut published = self.checkpoint.lock();
        let manifest = self.publish_checkpoint(&mut published)?;
        let pin = self.space.pin();
        *self.held_log.lock() = Some(manifest.log_floor);
        drop((published, awaited));
        self.after_checkpoint(&manifest)?;
        Ok((manifest, pin))
    }

    /// Step 2.
    fn copy_data(
        &self,
        dir: &Path,
        manifest: &Manifest,
        pin: &SpacePin,
        log: &mut LogCopy,
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        let mut before = 0;
        pace.start();
        self.space.copy_to(pin, &manifest.space, dir, &mut |done, total| {
            pace.progress = BackupProgress { copied_bytes: done, total_bytes: total };
            pace.rest(done - before, &mut || self.look(dir, log))?;
            before = done;
            vfs::thread::point("backup.copying");
            Ok(())
        })?;
        Ok(())
    }

    /// Ends the backup if the database is being closed, and copies the log if enough of it is held.
    fn look(&self, dir: &Path, log: &mut LogCopy) -> base::Result<()> {
        self.check_not_closing()?;
        let held = self.wal.end().0.saturating_sub(log.end.0);
        if held < LOG_EVERY_BYTES.min(self.options.log_capacity_bytes / 8) {
            Ok(())
        } else {
            self.copy_log(dir, log, self.wal.settle()?)
        }
    }

    fn check_not_closing(&self) -> base::Result<()> {
        match self.closed.load(Ordering::Relaxed) {
            true => Err(Fault::Unsupported("a backup while the database is being closed".into())),
            false => Ok(()),
        }
    }

    /// The end of the log as of now, between what somebody does before and behind it.
    fn moment(&self, dir: &Path, log: &mut LogCopy, pace: &Pace<'_>) -> Result<Lsn> {
        let Some(around) = pace.moment else { return Ok(self.wal.settle()?) };
        // It may wait for commits, which may wait for room in the log, and then hold them up: so little of the log is held from here
        // on, and little is left to be synced within.
        self.copy_log(dir, log, self.wal.settle()?)?;
        let mut end = None;
        let goes_on = around(&mut || end = Some(self.wal.settle()));
        match (goes_on, end) {
            (ControlFlow::Break(()), _) => Err(Error::Cancelled),
            (ControlFlow::Continue(()), Some(end)) => Ok(end?),
            (ControlFlow::Continue(()), None) => {
                Err(Error::InvalidArgument("whoever goes around a backup's moment has to let it come".into()))
            }
        }
    }

    fn copy_log(&self, dir: &Path, log: &mut LogCopy, end: Lsn) -> base::Result<()> {
        if end > log.end {
            self.wal.copy_to(&dir.join("wal"), log.end, end, log.segments + 1)?;
            *log = LogCopy { segments: log.segments + 1, end };
            *self.held_log.lock() = Some(end);
        }
        Ok(())
    }

    /// All that are there: a file that nothing copied names is removed when the backup is opened.
    fn copy_runs(&self, dir: &Path, pace: &mut Pace<'_>) -> Result<()> {
        pace.start();
        let vfs = &self.layout.vfs;
        let (from, to) = (self.layout.runs(), dir.join("runs"));
        for name in vfs.list(&from).map_err(|e| Fault::io("list", from.display(), &e))? {
            let path = from.join(&name);
            let file = match vfs.open(&path, OpenHow::default()) {
                Ok(file) => file,
                // Of a commit that came to nothing.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(Fault::io("open", path.display(), &e).into()),
            };
            let how = OpenHow { write: true, create: true, ..OpenHow::default() };
            let target = to.join(&name);
            let failed = |e: &std::io::Error| Error::from(Fault::io("copy", target.display(), e));
            let copy = vfs.open(&target, how).map_err(|e| failed(&e))?;
            let len = file.len().map_err(|e| failed(&e))?;
            let mut piece = Vec::new();
            for at in (0..len).step_by(PIECE_BYTES) {
                piece.resize(PIECE_BYTES.min((len - at) as usize), 0);
                file.read_at(&mut piece, at).and_then(|()| copy.write_at(&piece, at)).map_err(|e| failed(&e))?;
                pace.rest(piece.len() as u64, &mut || self.check_not_closing())?;
            }
            copy.sync().map_err(|e| failed(&e))?;
        }
        Ok(())
    }

    fn sync_dirs(&self, dir: &Path) -> Result<()> {
        for dir in [dir.to_owned(), dir.join("wal"), dir.join("runs")] {
            self.layout.vfs.sync_dir(&dir).map_err(|e| Fault::io("sync directory", dir.display(), &e))?;
        }
        Ok(())
    }
}
