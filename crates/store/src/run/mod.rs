//! Immutable sorted runs: operations of one commit on one index, ascending keys, each once, put or delete; the
//! commit timestamp is given when the run is attached (rule A3).
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | [`Run`]: in memory or in a file, one face |
//! | `memory.rs` | a run in memory |
//! | `writer.rs` | a run file from sorted entries, durable at the end |
//! | `reader.rs` | look-ups in a run file |
//! | `cursor.rs`, `window.rs` | moving over either, both ways; reading ahead |
//! | `estimate.rs` | how many entries lie in a range |
//! | `block.rs` | the inside of a run file's blocks |
//! | `verify.rs` | reading all of it |
//! | `footer.rs`, `meta.rs` | what the file's last sector, and a durable record, say of it |
//!
//! A run file is a static B-tree: data blocks of 16 KiB, index blocks above them, one root, all through the block
//! codec. Every block is named by its parent with its checksum and the root by [`RunMeta`], which stands in the
//! record that makes the run part of the database: so a file that is not exactly the one written is found out.
//! Why not one flat index block: a run of a large transaction would hold an index of tens of megabytes in memory.
//!
//! A run file is durable before a log record or manifest names it; files that nothing names after recovery are
//! removed ([`list`], [`remove`]).

mod block;
mod cursor;
mod estimate;
mod footer;
mod memory;
mod meta;
mod reader;
mod verify;
mod window;
mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::bytes::printable;
use base::{Fault, IndexId, Result};
use vfs::Vfs;

use crate::Charge;
use crate::codec::PAYLOAD_BYTES_MAX;

pub(crate) use block::fuzz as fuzz_block;
pub use cursor::RunCursor;
pub use estimate::RunEstimate;
pub use meta::RunMeta;
pub use writer::RunWriter;

/// Blocks are closed at this size, before compression.
const BLOCK_BYTES: usize = 16 << 10;
/// Longer values get blocks of their own.
const INLINE_BYTES_MAX: usize = BLOCK_BYTES / 4;
/// Bytes of a large value in one block.
const PIECE_BYTES: usize = 1 << 20;
/// Longest key of a run: user keys, and what indexes add to them.
const KEY_BYTES_MAX: usize = 64 << 10;
/// Highest root; far more than any file needs.
const HEIGHT_MAX: u8 = 64;
const NAME_FRONT: &str = "run-";

const _: () = assert!(KEY_BYTES_MAX >= base::limits::KEY_BYTES_MAX);
const _: () = assert!(PIECE_BYTES < PAYLOAD_BYTES_MAX);
// The list of a value's pieces is one block, read as a piece is.
const _: () = assert!(base::limits::VALUE_BYTES_MAX as usize / PIECE_BYTES * crate::BlockRef::BYTES < PIECE_BYTES);

/// An immutable sorted run of operations: in memory or in a file. Cheap to clone.
///
/// ```
/// use trefoil_store::Run;
///
/// let run = Run::from_sorted([("ant", Some("1")), ("bee", None), ("cat", Some("3"))]);
/// assert_eq!(run.get(b"ant")?, Some(Some(b"1".to_vec())));
/// assert_eq!(run.get(b"bee")?, Some(None), "a delete");
/// assert_eq!(run.get(b"dog")?, None);
/// let mut cursor = run.cursor();
/// assert!(cursor.seek(b"b")? && cursor.key() == b"bee" && cursor.is_delete());
/// assert!(cursor.next()? && cursor.value()?.as_deref() == Some(b"3"));
/// # Ok::<(), base::Fault>(())
/// ```
#[derive(Clone)]
pub struct Run(Repr);

#[derive(Clone)]
enum Repr {
    Memory(Arc<memory::MemoryRun>),
    File(Arc<reader::FileRun>),
    /// A file that cannot be opened, and why.
    Lost(Arc<(RunMeta, Fault)>),
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Memory(run) => write!(f, "Run(memory, {} entries)", run.len()),
            Repr::File(run) => write!(f, "Run({:?})", run.meta),
            Repr::Lost(lost) => write!(f, "Run(lost, {:?})", lost.0),
        }
    }
}

impl Run {
    /// A run in memory from ascending entries: a key and its value, or `None` for a delete.
    ///
    /// # Panics
    /// If the keys do not strictly ascend.
    #[must_use]
    pub fn from_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(entries: impl IntoIterator<Item = (K, Option<V>)>) -> Self {
        let mut run = memory::MemoryRun::default();
        for (key, value) in entries {
            run.push(key.as_ref(), value.as_ref().map(AsRef::as_ref));
        }
        run.shrink();
        Self(Repr::Memory(Arc::new(run)))
    }

    /// Lets the run hold the charge for its memory; given back with the last clone. To be called before the run is
    /// cloned; a run that is shared, or in a file, drops the charge at once.
    #[must_use]
    pub fn with_charge(mut self, charge: Charge) -> Self {
        if let Repr::Memory(run) = &mut self.0
            && let Some(run) = Arc::get_mut(run)
        {
            run.charge = Some(charge);
        }
        self
    }

    /// Opens the run file that a durable record names.
    ///
    /// # Errors
    /// [`Fault::Io`], [`Fault::Corrupt`] if the file is not the one `meta` was written for.
    pub fn open(vfs: &dyn Vfs, dir: &Path, meta: &RunMeta) -> Result<Self> {
        Ok(Self(Repr::File(Arc::new(reader::FileRun::open(vfs, dir, meta)?))))
    }

    /// The same; a file that is missing or damaged is a run of which every read is that fault.
    ///
    /// # Errors
    /// Faults that are no damage.
    pub fn open_or_lost(vfs: &dyn Vfs, dir: &Path, meta: &RunMeta) -> Result<Self> {
        Self::open(vfs, dir, meta).or_else(|fault| {
            let mut damage = fault.into_damage()?;
            damage.key_range = Some(format!("[{}, {}]", printable(&meta.min_key), printable(&meta.max_key)));
            Ok(Self(Repr::Lost(Arc::new((meta.clone(), Fault::Corrupt(damage))))))
        })
    }

    /// What a durable record says of the run; `None` for a run in memory.
    #[must_use]
    pub fn meta(&self) -> Option<&RunMeta> {
        match &self.0 {
            Repr::Memory(_) => None,
            Repr::File(run) => Some(&run.meta),
            Repr::Lost(lost) => Some(&lost.0),
        }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Repr::Memory(run) => run.len() as u64,
            Repr::File(run) => run.meta.entries,
            Repr::Lost(lost) => lost.0.entries,
        }
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if there is no put in it. Of a file that is known in the life that wrote it ([`Run::note_only_deletes`]).
    ///
    /// ```
    /// use trefoil_store::Run;
    ///
    /// assert!(Run::from_sorted([("ant", None::<&str>), ("bee", None)]).has_only_deletes());
    /// assert!(!Run::from_sorted([("ant", Some("1")), ("bee", None)]).has_only_deletes());
    /// ```
    #[must_use]
    pub fn has_only_deletes(&self) -> bool {
        match &self.0 {
            Repr::Memory(run) => run.puts == 0,
            Repr::File(run) => run.only_deletes.load(Ordering::Relaxed),
            Repr::Lost(_) => false,
        }
    }

    /// To be called before the run is shared: no put was written to its file.
    pub fn note_only_deletes(&self) {
        if let Repr::File(run) = &self.0 {
            run.only_deletes.store(true, Ordering::Relaxed);
        }
    }

    /// Bytes of memory, or of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Repr::Memory(run) => run.memory_bytes(),
            Repr::File(run) => run.meta.bytes,
            Repr::Lost(lost) => lost.0.bytes,
        }
    }

    /// Bytes of its keys and values. Of a file that is known in the life that wrote it ([`Run::note_content_bytes`]); else it is what the file takes.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        let known = match &self.0 {
            Repr::Memory(run) => run.content_bytes(),
            Repr::File(run) => run.content_bytes.load(Ordering::Relaxed),
            Repr::Lost(_) => 0,
        };
        if known == 0 { self.bytes() } else { known }
    }

    /// To be called before the run is shared: keys and values of so many bytes were written to its file.
    pub fn note_content_bytes(&self, bytes: u64) {
        if let Repr::File(run) = &self.0 {
            run.content_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes of memory it takes now.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match &self.0 {
            Repr::Memory(run) => run.memory_bytes(),
            Repr::File(run) => run.memory_bytes(),
            Repr::Lost(_) => 0,
        }
    }

    /// Lowest and highest key; `None` if there are no entries.
    #[must_use]
    pub fn key_range(&self) -> Option<(&[u8], &[u8])> {
        match &self.0 {
            _ if self.is_empty() => None,
            Repr::Memory(run) => Some((run.key(0), run.key(run.len() - 1))),
            Repr::File(run) => Some((&run.meta.min_key, &run.meta.max_key)),
            Repr::Lost(lost) => Some((&lost.0.min_key, &lost.0.max_key)),
        }
    }

    /// The entry of `key`: `None` if there is none, `Some(None)` for a delete.
    ///
    /// # Errors
    /// Faults of reading the file.
    pub fn get(&self, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        if self.key_range().is_none_or(|(min, max)| key < min || key > max) {
            return Ok(None);
        }
        match &self.0 {
            Repr::Memory(run) => {
                let i = run.seek(key);
                Ok((i < run.len() && run.key(i) == key).then(|| run.value(i).map(<[u8]>::to_vec)))
            }
            Repr::File(run) => run.get(key),
            Repr::Lost(lost) => Err(lost.1.clone()),
        }
    }

    /// A cursor that stands nowhere yet.
    #[must_use]
    pub fn cursor(&self) -> RunCursor {
        RunCursor::new(self)
    }
}

/// Removes the file of run `id`; it is gone for good once the directory is synced. No error if it is not there.
///
/// # Errors
/// [`Fault::Io`].
pub fn remove(vfs: &dyn Vfs, dir: &Path, id: u64) -> Result<()> {
    let path = file_path(dir, id);
    match vfs.remove(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Fault::io("remove", path.display(), &e)),
        _ => Ok(()),
    }
}

/// Numbers of the run files in `dir`, ascending.
///
/// # Errors
/// [`Fault::Io`].
pub fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<u64>> {
    let names = vfs.list(dir).map_err(|e| Fault::io("list", dir.display(), &e))?;
    let mut ids: Vec<u64> = names.iter().filter_map(|name| id_of(name)).collect();
    ids.sort_unstable();
    Ok(ids)
}

fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME_FRONT).filter(|d| d.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

fn file_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{NAME_FRONT}{id:016x}"))
}

/// The owner written into the blocks of run `id`: a block of another run at the same place is told apart.
fn owner(id: u64) -> IndexId {
    IndexId(id as u32)
}
