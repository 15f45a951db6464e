//! A database made of a full backup and of increments to it.
//!
//! 1. The descriptions are read: the first is of a full backup, each other one of an increment to the one before it.
//! 2. Each extent of the last one's manifest is copied from the newest backup that has it, to its place in a new data file, and its sum
//!    held against what the last one says of it. So are the log and the other files, all of the last one.
//! 3. The manifest, then the header, which makes the directory a database.
//!
//! What fails leaves no database behind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::sum::Sum;
use base::{CommitTs, Fault};
use store::{ExtentId, space};
use vfs::{File, OpenHow, Vfs};

use super::PIECE_BYTES;
use super::described::Described;
use super::target::{finish, make_target, remove_copy, sync_dirs, there};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::layout::{self, FORMAT};
use crate::options::Options;

impl Database {
    /// Makes a database in directory `to`, empty or not there yet, of a full backup and of the increments to it
    /// ([`Backup::since`](crate::Backup::since)), given in the order in which they were made; of a full one alone too. Every
    /// byte is held against the sums that were written down with the backups. Returns the moment that it shows, which is the last
    /// one's. Nothing is changed in the backups. Of `options` the file system counts.
    ///
    /// # Errors
    /// `InvalidArgument` if something is no backup, if one is missing between two, belongs to another database, or `to` holds
    /// something; `Corrupt` if a part of a backup is damaged or missing, and names it; `NewerFormat`, `Io`, `DiskFull`. What was
    /// made until then is removed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// use trefoil::{Database, Options};
    ///
    /// let [monday, tuesday] = ["monday", "tuesday"].map(|day| dir.path().join(day));
    /// db.backup().to(&monday)?;
    /// db.backup().since(&monday).to(&tuesday)?;
    /// Database::restore(&[&monday, &tuesday], dir.path().join("restored.db"), Options::default())?;
    /// let missing = Database::restore(&[&tuesday], dir.path().join("half.db"), Options::default());
    /// assert!(matches!(missing, Err(trefoil::Error::InvalidArgument(_))));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn restore(backups: &[impl AsRef<Path>], to: impl AsRef<Path>, options: Options) -> Result<CommitTs> {
        let (vfs, to) = (options.vfs, to.as_ref());
        let chain = Chain::read(&vfs, backups.iter().map(|dir| dir.as_ref().to_owned()).collect())?;
        make_target(&vfs, to)?;
        chain.restore(to).inspect_err(|_| remove_copy(&vfs, to))?;
        Ok(chain.last().moment)
    }
}

/// A full backup and increments to it.
struct Chain<'a> {
    vfs: &'a Arc<dyn Vfs>,
    all: Vec<(PathBuf, Described)>,
}

impl<'a> Chain<'a> {
    fn read(vfs: &'a Arc<dyn Vfs>, dirs: Vec<PathBuf>) -> Result<Self> {
        let mut all: Vec<(PathBuf, Described)> = Vec::new();
        for dir in dirs {
            let of = Described::read(vfs, &dir)?;
            check_link(all.last(), &dir, &of)?;
            all.push((dir, of));
        }
        let Some((dir, last)) = all.last() else {
            return Err(Error::InvalidArgument("a restore needs a backup".into()));
        };
        if last.format > FORMAT {
            return Err(Error::NewerFormat { path: dir.display().to_string(), found: last.format, supported: FORMAT });
        }
        Ok(Self { vfs, all })
    }

    fn last(&self) -> &Described {
        &self.all.last().expect("there is one").1
    }

    fn restore(&self, to: &Path) -> Result<()> {
        let (dir, last) = self.all.last().expect("there is one");
        self.restore_blocks(last, to)?;
        for file in &last.files {
            let from = dir.join(&file.path);
            copy_checked(self.vfs, &from, &to.join(&file.path), file.bytes, file.sum)?;
        }
        sync_dirs(self.vfs, to)?;
        last.manifest.publish(self.vfs, to).map_err(there(to))?;
        layout::seal(self.vfs, to, last.manifest.database_id, last.format).map_err(there(to))?;
        finish(self.vfs, to)
    }

    fn restore_blocks(&self, last: &Described, to: &Path) -> Result<()> {
        let mut sources = Vec::new();
        for (dir, of) in &self.all {
            sources.push(Source::open(self.vfs, dir, of)?);
        }
        let sums = last.sums();
        let mut at_hand: Option<(ExtentId, usize, u64)> = None;
        let mut sum = Sum::default();
        let fill = &mut |extent: ExtentId, at: u64, piece: &mut [u8]| {
            let known = sums.get(&extent).ok_or_else(|| undescribed(extent))?;
            if at == 0 {
                sum = Sum::default();
                at_hand = find(&sources, extent).map(|(source, place)| (extent, source, place));
            }
            let (_, source, place) = at_hand.ok_or_else(|| undescribed(extent))?;
            let (source, offset) = (&sources[source], place * last.extent_bytes);
            source.read(piece, offset + at)?;
            sum.add(piece);
            if at + piece.len() as u64 == last.extent_bytes && sum != *known {
                return Err(source.damaged(offset, *known, sum));
            }
            Ok(())
        };
        Ok(space::restore_extents(&**self.vfs, &last.manifest.space, to, fill).map_err(there(to))?)
    }
}

/// What a manifest reaches and no description knows: only bytes that were made up have that.
fn undescribed(extent: ExtentId) -> Fault {
    Fault::corrupt("the description of a backup", 0, "extents", format!("extent {extent}"), "none")
}

fn check_link(before: Option<&(PathBuf, Described)>, dir: &Path, of: &Described) -> Result<()> {
    let order = "name all of them, from the full one on, in the order in which they were made";
    let why = match before {
        None if of.is_full() => return Ok(()),
        None => format!("{} holds an increment to backup {:016x}, and no full backup; {order}", dir.display(), of.base),
        Some((_, before)) if before.manifest.database_id != of.manifest.database_id => {
            format!("{} holds a backup of another database", dir.display())
        }
        Some((path, _)) if of.is_full() => {
            format!("{} holds a full backup: {} is not needed beside it", dir.display(), path.display())
        }
        Some((path, before)) if before.id != of.base => format!(
            "{} holds an increment to backup {:016x}, and {} is backup {:016x}: one is missing between them, or they are of \
             different backups; {order}",
            dir.display(),
            of.base,
            path.display(),
            before.id
        ),
        Some(_) => return Ok(()),
    };
    Err(Error::InvalidArgument(why))
}

/// The newest backup that has an extent, and the place there.
fn find(sources: &[Source], extent: ExtentId) -> Option<(usize, u64)> {
    sources.iter().enumerate().rev().find_map(|(i, source)| Some((i, source.place(extent)?)))
}

/// The extents of one backup.
struct Source {
    file: Arc<dyn File>,
    name: String,
    here: Vec<ExtentId>,
    is_full: bool,
}

impl Source {
    fn open(vfs: &Arc<dyn Vfs>, dir: &Path, of: &Described) -> Result<Self> {
        let path = dir.join(if of.is_full() { space::DATA_FILE } else { space::EXTENTS_FILE });
        let file = open(vfs, &path)?;
        let here = of.extents.iter().filter(|of| of.is_here).map(|of| of.extent).collect();
        Ok(Self { file, name: path.display().to_string(), here, is_full: of.is_full() })
    }

    /// Where it has an extent, counted in extents.
    fn place(&self, extent: ExtentId) -> Option<u64> {
        let place = self.here.binary_search(&extent).ok()?;
        Some(if self.is_full { u64::from(extent) } else { place as u64 })
    }

    fn read(&self, piece: &mut [u8], offset: u64) -> base::Result<()> {
        self.file.read_at(piece, offset).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Fault::corrupt(&self.name, offset, "length", format!("{} bytes from here", piece.len()), "fewer")
            }
            _ => Fault::io("read", &self.name, &e),
        })
    }

    fn damaged(&self, offset: u64, known: Sum, found: Sum) -> Fault {
        let what = "sum of an extent of the backup, which is damaged, or was opened since it was made";
        Fault::corrupt(&self.name, offset, what, known, found)
    }
}

fn open(vfs: &Arc<dyn Vfs>, path: &Path) -> Result<Arc<dyn File>> {
    vfs.open(path, OpenHow::default()).map_err(|e| {
        Error::from(match e.kind() {
            std::io::ErrorKind::NotFound => {
                Fault::corrupt(path.display(), 0, "file of a backup", "the file that it describes", "no file")
            }
            _ => Fault::io("open", path.display(), &e),
        })
    })
}

/// Copies a file that is `bytes` long and has this sum.
fn copy_checked(vfs: &Arc<dyn Vfs>, from: &Path, to: &Path, bytes: u64, known: Sum) -> Result<()> {
    let name = from.display().to_string();
    let file = open(vfs, from)?;
    let len = file.len().map_err(|e| Fault::io("size", &name, &e))?;
    if len != bytes {
        return Err(Fault::corrupt(&name, 0, "length", bytes, len).into());
    }
    let how = OpenHow { write: true, create: true, ..OpenHow::default() };
    let failed = |e: &std::io::Error| there(to)(Fault::io("copy to", to.display(), e));
    let copy = vfs.open(to, how).map_err(|e| failed(&e))?;
    let (mut sum, mut piece) = (Sum::default(), Vec::new());
    for at in (0..bytes).step_by(PIECE_BYTES) {
        piece.resize(PIECE_BYTES.min((bytes - at) as usize), 0);
        file.read_at(&mut piece, at).map_err(|e| Fault::io("read", &name, &e))?;
        sum.add(&piece);
        copy.write_at(&piece, at).map_err(|e| failed(&e))?;
    }
    if sum != known {
        return Err(Fault::corrupt(&name, 0, "sum of a file of a backup", known, sum).into());
    }
    Ok(copy.sync().map_err(|e| failed(&e))?)
}
