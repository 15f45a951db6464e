//! The directory of a database: what lies where, how it is recognised, and who has it open.
//!
//! | name | what |
//! |---|---|
//! | `TREFOIL` | 4 KiB header: magic, format, database id, checksum; written once |
//! | `LOCK` | held while open |
//! | `MANIFEST-<n>` | what the newest checkpoint published |
//! | `data.trefoil` | blocks |
//! | `wal/` | log segments |
//! | `runs/` | sorted run files |

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Fault;
use base::checksum::crc32c;
use vfs::{FileLock, OpenHow, Vfs};

use crate::error::{Error, Result};

const MAGIC: &[u8; 16] = b"Trefoil database";
/// Newest database format: what a new database has.
pub const FORMAT: u32 = 10;
/// From this on rows may be of several versions.
pub const FORMAT_VERSIONS: u32 = 2;
/// From this on indexes may be Bε-trees: inner images with message segments.
pub const FORMAT_BETREE: u32 = 5;
/// From this on keys may be longer than 3 KiB.
pub const FORMAT_LONG_KEYS: u32 = 5;
/// From this on leaves may be written in basements: blocks of several parts.
pub const FORMAT_BASEMENTS: u32 = 6;
/// From this on indexes may be of counters.
pub const FORMAT_COUNTERS: u32 = 7;
/// From this on indexes may be log-structured merge trees.
pub const FORMAT_LSM: u32 = 8;
/// From this on ranges may be deleted whole: commit records with ranges, and states of indexes with some before them.
pub const FORMAT_RANGES: u32 = 10;
/// From this on versions of an index may expire.
pub const FORMAT_TTL: u32 = 10;
/// Oldest database format that is opened.
pub const FORMAT_OLDEST: u32 = 1;
const HEADER_BYTES: usize = 4096;

/// An open directory.
pub struct Layout {
    /// The directory.
    pub dir: PathBuf,
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// Drawn at creation, in every file.
    pub database_id: u64,
    /// What it had when it was opened.
    pub format: u32,
    /// True if this call created the database.
    pub created: bool,
    _lock: Box<dyn FileLock>,
}

impl Layout {
    /// Opens or creates the directory and takes its lock.
    pub fn open(vfs: Arc<dyn Vfs>, dir: &Path, create: bool) -> Result<Self> {
        let shown = dir.display().to_string();
        let io = |op, e: &std::io::Error| Error::from(Fault::io(op, dir.display(), e));
        if !vfs.exists(dir).map_err(|e| io("look at", &e))? {
            if !create {
                return Err(Error::NotADatabase { path: shown, why: "it does not exist".into() });
            }
            create_durably(&vfs, dir)?;
        }
        let names = vfs.list(dir).map_err(|e| io("list", &e))?;
        let has_header = names.iter().any(|n| n == "TREFOIL");
        let ours = |n: &String| {
            matches!(n.as_str(), "LOCK" | "TREFOIL.tmp" | "wal" | "runs" | "data.trefoil") || n.starts_with("MANIFEST-")
        };
        if !has_header {
            if crate::backup::is_copy(&names) {
                let why = "it holds an incremental backup, or a copy that did not come to its end; `trefoil restore` makes a database of a \
                           full backup and the increments to it";
                return Err(Error::NotADatabase { path: shown, why: why.into() });
            }
            // Generation 1 belongs to a creation that did not finish: nothing was ever committed to it.
            if crate::manifest::generations(&vfs, dir)?.into_iter().any(|generation| generation > 1) {
                let why = "it has a manifest but the header file TREFOIL is missing; restore it from a backup";
                return Err(Error::NotADatabase { path: shown, why: why.into() });
            }
            if let Some(other) = names.iter().find(|n| !ours(n)) {
                return Err(Error::NotADatabase { path: shown, why: format!("it holds {other:?} and no TREFOIL") });
            }
            if !create {
                return Err(Error::NotADatabase { path: shown, why: "it has no TREFOIL header".into() });
            }
        }
        let lock = vfs.lock(&dir.join("LOCK")).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => Error::Locked { path: shown.clone() },
            _ => io("lock", &e),
        })?;
        // Looked at again under the lock: another process may have created it meanwhile.
        let has_header = vfs.exists(&dir.join("TREFOIL")).map_err(|e| io("look at", &e))?;
        let (database_id, format) = if has_header { read_header(&vfs, dir)? } else { (vfs::random::u64(), FORMAT) };
        Ok(Self { dir: dir.to_owned(), vfs, database_id, format, created: !has_header, _lock: lock })
    }

    /// Reads the header again.
    pub fn check_header(&self) -> Result<()> {
        let (found, _) = read_header(&self.vfs, &self.dir)?;
        if found != self.database_id {
            let name = self.dir.join("TREFOIL").display().to_string();
            return Err(Fault::corrupt(name, 24, "database id", self.database_id, found).into());
        }
        Ok(())
    }

    /// Clears what an unfinished creation left behind.
    pub fn clear_unfinished(&self) -> Result<()> {
        let io = |op, path: &Path, e: &std::io::Error| Error::from(Fault::io(op, path.display(), e));
        for dir in [self.dir.clone(), self.wal(), self.runs()] {
            if !self.vfs.exists(&dir).map_err(|e| io("look at", &dir, &e))? {
                continue;
            }
            for name in self.vfs.list(&dir).map_err(|e| io("list", &dir, &e))? {
                let path = dir.join(&name);
                if dir != self.dir || !matches!(name.as_str(), "LOCK" | "wal" | "runs") {
                    self.vfs.remove(&path).map_err(|e| io("remove", &path, &e))?;
                }
            }
        }
        Ok(())
    }

    /// Makes a new database recognisable: called when its first manifest is durable, before its second one and
    /// before any commit, so that a crash in between leaves nothing that looks like a database with data.
    pub fn seal(&self) -> Result<()> {
        Ok(self.seal_copy(&self.dir)?)
    }

    /// Makes `dir` recognisable as this database: called when a copy of everything else is there.
    pub fn seal_copy(&self, dir: &Path) -> base::Result<()> {
        self.seal_as(dir, self.format)
    }

    /// Says from now on that it has the newest format: all at once.
    pub fn seal_newest(&self) -> Result<()> {
        Ok(self.seal_as(&self.dir, FORMAT)?)
    }

    fn seal_as(&self, dir: &Path, format: u32) -> base::Result<()> {
        seal(&self.vfs, dir, self.database_id, format)
    }

    /// Directory of log segments.
    #[must_use]
    pub fn wal(&self) -> PathBuf {
        self.dir.join("wal")
    }

    /// Directory of run files.
    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.dir.join("runs")
    }
}

/// Makes `dir` recognisable as the database of this number and format: all at once.
pub(crate) fn seal(vfs: &Arc<dyn Vfs>, dir: &Path, database_id: u64, format: u32) -> base::Result<()> {
    let mut bytes = vec![0u8; HEADER_BYTES];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..20].copy_from_slice(&format.to_le_bytes());
    bytes[24..32].copy_from_slice(&database_id.to_le_bytes());
    let crc = crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    publish(vfs, dir, "TREFOIL", &bytes, |op, e| Fault::io(op, dir.join("TREFOIL").display(), e))
}

/// Puts a file into `dir`, whole or not at all, whatever happens meanwhile: written under another name, synced, renamed, and the
/// name made durable. `fault` says what an error of one of these steps is.
pub(crate) fn publish(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    name: &str,
    bytes: &[u8],
    fault: impl Fn(&'static str, &std::io::Error) -> Fault,
) -> base::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let how = OpenHow { write: true, create: true, ..OpenHow::default() };
    let file = vfs.open(&temporary, how).map_err(|e| fault("create", &e))?;
    // What a try before this one has left may be longer.
    file.set_len(0).map_err(|e| fault("truncate", &e))?;
    file.write_at(bytes, 0).map_err(|e| fault("write", &e))?;
    file.sync().map_err(|e| fault("sync", &e))?;
    vfs.rename(&temporary, &dir.join(name)).map_err(|e| fault("rename", &e))?;
    vfs.sync_dir(dir).map_err(|e| fault("sync directory", &e))
}

/// Creates a directory and its parents so that a power cut does not take them away with all that is in them: the
/// name of each is made durable in its own parent.
pub(crate) fn create_durably(vfs: &Arc<dyn Vfs>, dir: &Path) -> base::Result<()> {
    let io = |op, path: &Path, e: &std::io::Error| Fault::io(op, path.display(), e);
    let mut missing = Vec::new();
    for path in dir.ancestors().filter(|path| !path.as_os_str().is_empty()) {
        if vfs.exists(path).map_err(|e| io("look at", path, &e))? {
            break;
        }
        missing.push(path);
    }
    vfs.create_dir_all(dir).map_err(|e| io("create", dir, &e))?;
    for path in missing {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        vfs.sync_dir(parent).map_err(|e| io("sync directory", parent, &e))?;
    }
    Ok(())
}

/// The database's number and its format.
fn read_header(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<(u64, u32)> {
    let path = dir.join("TREFOIL");
    let shown = path.display().to_string();
    let io = |op, e: &std::io::Error| Error::from(Fault::io(op, path.display(), e));
    let file = vfs.open(&path, OpenHow::default()).map_err(|e| io("open", &e))?;
    let len = file.len().map_err(|e| io("size", &e))?;
    if len != HEADER_BYTES as u64 {
        let why = format!("its header has {len} bytes instead of {HEADER_BYTES}");
        return Err(Error::NotADatabase { path: shown, why });
    }
    let mut bytes = vec![0u8; HEADER_BYTES];
    file.read_at(&mut bytes, 0).map_err(|e| io("read", &e))?;
    if &bytes[..16] != MAGIC {
        return Err(Error::NotADatabase { path: shown, why: "its header has another magic".into() });
    }
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (format, crc) = (word(16), word(HEADER_BYTES - 4));
    if crc32c(&bytes[..HEADER_BYTES - 4]) != crc {
        let found = crc32c(&bytes[..HEADER_BYTES - 4]);
        return Err(Fault::corrupt(shown, 0, "header checksum", format!("{crc:08x}"), format!("{found:08x}")).into());
    }
    if format > FORMAT {
        return Err(Error::NewerFormat { path: shown, found: format, supported: FORMAT });
    }
    if format < FORMAT_OLDEST {
        return Err(Error::UpgradeRequired { path: shown, found: format, supported: FORMAT });
    }
    Ok((u64::from(word(24)) | u64::from(word(28)) << 32, format))
}
