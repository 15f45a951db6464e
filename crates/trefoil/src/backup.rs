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
//!    a torn tail. Then what the backup is made of ([`described`]). Last comes the header file: without it the directory is not a
//!    database.
//!
//! **An increment** ([`Backup::since`]) has in step 2 only the extents that its base, and what that is an increment to, do not have; all
//! else as a full one, but neither manifest nor header: step 4 ends with the description, and [`Database::restore`] makes a database
//! of all of them. The base is not read but for its description.
//!
//! | file | owns |
//! |---|---|
//! | `backup.rs` | the public face, the steps |
//! | `backup/pace.rs` | how fast it goes |
//! | `backup/moment.rs` | the moment, for who lets it come |
//! | `backup/described.rs` | the file `BACKUP` |
//! | `backup/target.rs` | the directory that it goes to |
//! | `backup/restore.rs` | a database made of backups |
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

use base::sum::Sum;
use base::{CommitTs, Fault, Lsn};
use store::{CopiedExtent, Earlier, SpacePin};
use vfs::OpenHow;

use crate::database::Database;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::held_log::Hold;
use crate::manifest::{self, Manifest};

mod described;
mod moment;
mod pace;
mod restore;
mod target;

use described::{Described, DescribedFile};
pub use moment::BackupMoment;
use pace::{LOOK_EVERY, Pace, Watch};
pub use target::is_copy;
use target::{finish, make_target, remove_copy, sync_dirs, there};

/// Bytes of the log that are copied in one go while blocks are copied; less if that is an eighth of what it may keep.
const LOG_EVERY_BYTES: u64 = 64 << 20;
/// Holds run files, and nothing of the log.
const RUNS_ONLY: Lsn = Lsn(u64::MAX - 1);
/// Bytes of a run file copied at once.
const PIECE_BYTES: usize = 1 << 20;
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
    since: Option<&'a Path>,
}

type Moment<'a> = &'a dyn Fn(&mut BackupMoment<'_>) -> ControlFlow<()>;

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
    /// Bytes of blocks done with so far: copied, or left out of an increment.
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
        Backup { engine: self.engine(), rate_bytes: None, watch: None, moment: None, since: None }
    }

    /// Copies the database to `dir`, which is empty or not there yet, while readers and writers go on; changes of
    /// definitions wait until it is done. Returns the moment the copy shows: it holds every commit at or below, and
    /// none above. The copy is a database of its own: open it, there or elsewhere. Short for [`Database::backup`] at its
    /// usual pace.
    ///
    /// # Errors
    /// `InvalidArgument` if `dir` holds something; `Io`, `DiskFull`, `Poisoned`. What was copied until then is removed, but
    /// for directories, which are in nobody's way; if that fails as well, what is left does not open as a database.
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

    /// Calls `look` after each piece, and while the backup rests or waits for another one, some twenty times a second. Once it answers `Break` the backup
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

    /// Makes an increment to the backup in `base`, a full one or another increment: of the blocks only what was written since. It is
    /// no database by itself: [`Database::restore`] makes one of the full backup and of all increments to it, in their order. In
    /// the life of the database in which the base was made nothing is read that is not copied; in a later one all blocks are read,
    /// and those left out that are the same. Of the base one small file is read, `BACKUP`; to restore all of it is needed, as it
    /// was made.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use trefoil::{Database, Options};
    ///
    /// let [monday, tuesday] = ["monday", "tuesday"].map(|day| dir.path().join(day));
    /// db.backup().to(&monday)?;
    /// let mut tx = db.begin()?;
    /// tx.put(&fruit, b"apple", b"12")?;
    /// tx.commit()?;
    /// db.backup().since(&monday).to(&tuesday)?;
    /// let restored = dir.path().join("restored.db");
    /// Database::restore(&[monday, tuesday], &restored, Options::default())?;
    /// let copy = Database::open(&restored, Options::default())?;
    /// assert_eq!(copy.begin()?.get(&copy.index("fruit")?, b"apple")?.as_deref(), Some(&b"12"[..]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn since(self, base: &'a (impl AsRef<Path> + ?Sized)) -> Self {
        Backup { since: Some(base.as_ref()), ..self }
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
    /// let around = |moment: &mut trefoil::BackupMoment<'_>| {
    ///     let place = order.lock().expect("nobody panics"); // nobody moves on
    ///     moment.come();
    ///     std::fs::write(monday.join("place"), place.to_string()).expect("the directory is there");
    ///     ControlFlow::Continue(())
    /// };
    /// db.backup().moment(&around).to(&monday)?;
    /// assert_eq!(std::fs::read_to_string(monday.join("place")).expect("it was written"), "7");
    /// trefoil::Database::open(&monday, trefoil::Options::default())?; // files of others do not matter
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn moment(self, around: &'a dyn Fn(&mut BackupMoment<'_>) -> ControlFlow<()>) -> Self {
        Backup { moment: Some(around), ..self }
    }

    /// Makes the backup in `dir`, which is empty or not there yet, and returns the moment it shows.
    ///
    /// # Errors
    /// As [`Database::checkpoint_to`]; of an increment `InvalidArgument` if its base is no backup of this database, or was opened
    /// since it was made, and `Corrupt` if it is damaged.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// db.backup().to(dir.path().join("monday"))?;
    /// assert!(db.backup().to(dir.path().join("monday")).is_err()); // not empty any more
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn to(self, dir: impl AsRef<Path>) -> Result<CommitTs> {
        self.engine.backup_to(dir.as_ref(), &self, &mut Pace::new(self.rate_bytes, self.watch))
    }
}

/// The log's copy so far.
struct LogCopy {
    segments: u64,
    end: Lsn,
    /// The log that is not copied yet, and the run files, stay until the backup is over, however it ends.
    hold: Hold,
}

impl Engine {
    /// Copies the database to `dir`, which is empty or not there, or what of it the base does not have. Returns the moment the copy
    /// shows: it holds every commit at or below, and none above.
    fn backup_to(&self, dir: &Path, how: &Backup<'_>, pace: &mut Pace<'_>) -> Result<CommitTs> {
        self.check_writable()?;
        let cancelled = |error: Error, pace: &Pace<'_>| if pace.cancelled { Error::Cancelled } else { error };
        // One backup at a time, and no change of definitions beside it. Another one may take hours.
        let goes_on = || {
            self.check_not_closing()?;
            pace.ask()?;
            Ok(LOOK_EVERY)
        };
        let _kept = self.steps.keep_if(goes_on).map_err(|error| cancelled(error, pace))?;
        // The log that a damaged index needs reaches back over lives, which a copy does not.
        let upkept = self.upkept_indexes();
        upkept.iter().filter(|entry| !entry.is_replaced()).try_for_each(|entry| self.check_undamaged(entry))?;
        let base = how.since.map(|base| self.base_in(base)).transpose()?;
        let vfs = &self.layout.vfs;
        make_target(vfs, dir)?;
        self.copy_all(dir, how.moment, base.as_ref(), pace).map_err(|error| {
            remove_copy(vfs, dir);
            cancelled(error, pace)
        })
    }

    /// The backup to which an increment is to be made.
    fn base_in(&self, dir: &Path) -> Result<Described> {
        let vfs = &self.layout.vfs;
        let base = Described::read(vfs, dir)?;
        if base.manifest.database_id != self.layout.database_id {
            let why = format!("{} holds a backup of another database; make a full backup first", dir.display());
            return Err(Error::InvalidArgument(why));
        }
        // Whoever opens it to write begins a life of the log, in a segment of its own, before he writes anything else; and closed, or at
        // its first checkpoint, it has another manifest.
        let is_as_made = || {
            Ok::<_, Error>(
                manifest::generations(vfs, dir)? == [base.manifest.generation] && base.has_its_log(vfs, dir)?,
            )
        };
        if base.is_full() && !is_as_made()? {
            let why = format!(
                "the backup in {} was opened as a database since it was made; make a full backup",
                dir.display()
            );
            return Err(Error::InvalidArgument(why));
        }
        Ok(base)
    }

    fn copy_all(
        &self,
        dir: &Path,
        moment: Option<Moment<'_>>,
        base: Option<&Described>,
        pace: &mut Pace<'_>,
    ) -> Result<CommitTs> {
        let vfs = &self.layout.vfs;
        let (manifest, pin, hold) = self.begin_backup()?;
        vfs::thread::point("backup.begun");
        let mut log = LogCopy { segments: 0, end: manifest.log_floor, hold };
        let extents = self.copy_data(dir, (&manifest, &pin), base, &mut log, pace)?;
        // What it reaches is copied: its room may be used again.
        let generation = pin.generation();
        drop(pin);
        let (moment, beside) = self.moment(dir, &mut log, moment, pace)?;
        self.copy_log(dir, &mut log, moment)?;
        log.hold.move_to(RUNS_ONLY);
        vfs::thread::point("backup.log_copied");
        self.copy_runs(dir, pace)?;
        sync_dirs(vfs, dir)?;
        let end = log.end.max(manifest.log_durable);
        let described = Described {
            id: vfs::random::u64().max(1),
            base: base.map_or(0, |base| base.id),
            format: self.layout.format,
            life: self.space.life(),
            generation,
            extent_bytes: self.space.extent_bytes(),
            moment: end.as_commit_ts(),
            manifest: Manifest { log_durable: end, ..manifest },
            extents,
            files: self.describe_files(dir, &beside, pace)?,
        };
        if base.is_none() {
            described.manifest.publish(vfs, dir).map_err(there(dir))?;
        }
        described.publish(vfs, dir)?;
        if base.is_none() {
            self.layout.seal_copy(dir).map_err(there(dir))?;
        }
        finish(vfs, dir)?;
        Ok(end.as_commit_ts())
    }

    /// Step 1.
    fn begin_backup(&self) -> Result<(Manifest, SpacePin, Hold)> {
        let awaited = self.await_checkpoint();
        let mut published = self.checkpoint.lock();
        let manifest = self.publish_checkpoint(&mut published)?;
        let pin = self.space.pin();
        let hold = self.held_log.hold(manifest.log_floor);
        drop((published, awaited));
        self.after_checkpoint(&manifest)?;
        Ok((manifest, pin, hold))
    }

    /// Step 2.
    fn copy_data(
        &self,
        dir: &Path,
        (manifest, pin): (&Manifest, &SpacePin),
        base: Option<&Described>,
        log: &mut LogCopy,
        pace: &mut Pace<'_>,
    ) -> Result<Vec<CopiedExtent>> {
        let sums = base.map(Described::sums).unwrap_or_default();
        let earlier = base.map(|base| Earlier {
            generation: (base.life == self.space.life()).then_some(base.generation),
            sums: &sums,
        });
        let mut before = 0;
        pace.start();
        let copied = self.space.copy_to(pin, &manifest.space, dir, earlier.as_ref(), &mut |at| {
            pace.progress = BackupProgress { copied_bytes: at.done, total_bytes: at.total };
            pace.rest(at.read - before, &mut || self.look(dir, log))?;
            before = at.read;
            vfs::thread::point("backup.copying");
            Ok(())
        });
        Ok(copied.map_err(there(dir))?)
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

    /// The end of the log as of now, between what somebody does before and behind it; and the files that he has put into the directory.
    fn moment(
        &self,
        dir: &Path,
        log: &mut LogCopy,
        around: Option<Moment<'_>>,
        pace: &mut Pace<'_>,
    ) -> Result<(Lsn, Vec<String>)> {
        let Some(around) = around else { return Ok((self.wal.settle()?, Vec::new())) };
        // It may wait for commits, which may wait for room in the log, and then hold them up: so little of the log is held from here
        // on, and little is left to be synced within.
        self.copy_log(dir, log, self.wal.settle()?)?;
        let names = || self.layout.vfs.list(dir).map_err(|e| Fault::io("list", dir.display(), &e));
        let before = names()?;
        let ask = &mut || pace.ask();
        let mut moment = BackupMoment::new(self, dir, log, ask);
        let goes_on = around(&mut moment);
        match (moment.end()?, goes_on) {
            (_, ControlFlow::Break(())) => Err(Error::Cancelled),
            (Some(end), ControlFlow::Continue(())) => {
                Ok((end, names()?.into_iter().filter(|name| !before.contains(name)).collect()))
            }
            (None, ControlFlow::Continue(())) => {
                Err(Error::InvalidArgument("whoever goes around a backup's moment has to let it come".into()))
            }
        }
    }

    fn copy_log(&self, dir: &Path, log: &mut LogCopy, end: Lsn) -> base::Result<()> {
        if end > log.end {
            log.segments += self.wal.copy_to(&dir.join("wal"), log.end, end, log.segments + 1).map_err(there(dir))?;
            log.end = end;
            log.hold.move_to(end);
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
            let unread = |e: std::io::Error| Fault::io("copy", path.display(), &e);
            let failed = |e: std::io::Error| there(dir)(Fault::io("copy to", target.display(), &e));
            let copy = vfs.open(&target, how).map_err(failed)?;
            let len = file.len().map_err(unread)?;
            let mut piece = Vec::new();
            for at in (0..len).step_by(PIECE_BYTES) {
                piece.resize(PIECE_BYTES.min((len - at) as usize), 0);
                match file.read_at(&mut piece, at) {
                    // It is cut to its length once it is written, and then stays: nothing copied names it yet.
                    Err(e) if e.kind() == ErrorKind::UnexpectedEof && file.len().is_ok_and(|now| now < len) => break,
                    read => read.map_err(unread)?,
                }
                copy.write_at(&piece, at).map_err(failed)?;
                pace.rest(piece.len() as u64, &mut || self.check_not_closing())?;
            }
            copy.sync().map_err(failed)?;
        }
        Ok(())
    }

    /// The log and run files, and what else belongs to the backup: files `beside` them, which whoever let the moment come has written.
    /// What others do in the directory does not matter.
    fn describe_files(&self, dir: &Path, beside: &[String], pace: &mut Pace<'_>) -> Result<Vec<DescribedFile>> {
        let mut paths = beside.to_vec();
        for below in ["wal", "runs"] {
            let dir = dir.join(below);
            let names = self.layout.vfs.list(&dir).map_err(|e| Fault::io("list", dir.display(), &e))?;
            paths.extend(names.iter().map(|name| format!("{below}/{name}")));
        }
        let mut files = Vec::new();
        for path in paths {
            let at = dir.join(&path);
            // As the log is copied: no rate bounds it.
            match self.sum_of_file(&at, path.starts_with("runs/"), pace) {
                Ok((bytes, sum)) => files.push(DescribedFile { path, bytes, sum }),
                // Somebody's temporary file, or a directory of his.
                Err(Summing::Read(e)) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {}
                Err(Summing::Read(e)) => return Err(there(dir)(Fault::io("read back", at.display(), &e)).into()),
                Err(Summing::Ended(fault)) => return Err(fault.into()),
            }
        }
        Ok(files)
    }

    fn sum_of_file(
        &self,
        path: &Path,
        is_paced: bool,
        pace: &mut Pace<'_>,
    ) -> std::result::Result<(u64, Sum), Summing> {
        let file = self.layout.vfs.open(path, OpenHow::default()).map_err(Summing::Read)?;
        let bytes = file.len().map_err(Summing::Read)?;
        let (mut sum, mut piece) = (Sum::default(), Vec::new());
        for at in (0..bytes).step_by(PIECE_BYTES) {
            piece.resize(PIECE_BYTES.min((bytes - at) as usize), 0);
            file.read_at(&mut piece, at).map_err(Summing::Read)?;
            sum.add(&piece);
            pace.rest(if is_paced { piece.len() as u64 } else { 0 }, &mut || self.check_not_closing())
                .map_err(Summing::Ended)?;
        }
        Ok((bytes, sum))
    }
}

/// Why a file has no sum.
enum Summing {
    Read(std::io::Error),
    Ended(Fault),
}
