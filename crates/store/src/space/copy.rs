//! A copy of the data file as one manifest has it, for a backup; and the file made of copies again.
//!
//! Extents that hold live bytes of that manifest are copied whole, to the same offsets of a new file; the rest of it is
//! a hole. A pin taken while the manifest was the newest durable one keeps them as they were: what is appended to an
//! open extent meanwhile lies behind what the manifest names.
//!
//! **Of a later copy** only extents that an earlier one does not have are written, one behind the other, into [`EXTENTS_FILE`]. Which
//! these are: in the same life of the space the allocator knows it ([`Earlier::generation`]), and nothing else is read; in a later life
//! each is read, and left out if its sum is that of the earlier copy. So what is left out is there in the earlier copy, whatever
//! happened in between: other lives, restored copies, an upgrade.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use base::sum::Sum;
use base::{Fault, Result};
use vfs::{AlignedBuf, File, OpenHow, Vfs};

use super::allocator::ExtentId;
use super::datafile::DataFile;
use super::{Saved, Space, SpacePin};

/// The file of a copy that has only some of the extents.
pub const EXTENTS_FILE: &str = "extents.trefoil";
/// Bytes read at once.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes that may wait in the page cache: written back all at once at the end they would hold up everybody's writes.
const CACHED_BYTES_MAX: u64 = 16 << 20;

/// An extent as of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedExtent {
    /// Which.
    pub extent: ExtentId,
    /// What it holds.
    pub sum: Sum,
    /// False if it is in an earlier copy.
    pub is_here: bool,
}

/// How far a copy is, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyProgress {
    /// Of extents that are done with.
    pub done: u64,
    /// Of all.
    pub total: u64,
    /// Read so far: less if extents are left out unread, more if some are read twice.
    pub read: u64,
}

/// What a copy may leave out.
#[derive(Debug)]
pub struct Earlier<'a> {
    /// That of the earlier copy's pin, if it was taken in this life ([`Space::life`]).
    pub generation: Option<u64>,
    /// What the earlier copy, and those before it, hold.
    pub sums: &'a BTreeMap<ExtentId, Sum>,
}

type Each<'a> = &'a mut dyn FnMut(CopyProgress) -> Result<()>;
type Fill<'a> = &'a mut dyn FnMut(ExtentId, u64, &mut [u8]) -> Result<()>;

impl Space {
    /// A number for what generations count in: since the file was opened.
    #[must_use]
    pub fn life(&self) -> u64 {
        *self.0.life.get_or_init(vfs::random::u64)
    }

    /// Copies the extents of the manifest that `pin` holds into directory `to`, synced: all of them, as a data file; or those that
    /// the earlier copy does not have. `saved` is [`Space::save`] of that manifest. Calls `each` about once a MiB. Tells
    /// what each extent holds, ascending.
    ///
    /// # Errors
    /// Of reading and writing, which do not poison; whatever `each` returns.
    pub fn copy_to(
        &self,
        pin: &SpacePin,
        saved: &[u8],
        to: &Path,
        earlier: Option<&Earlier<'_>>,
        each: Each<'_>,
    ) -> Result<Vec<CopiedExtent>> {
        debug_assert!(Arc::ptr_eq(&pin.space.0, &self.0), "the pin is of this space");
        let saved = Saved::decode(saved)?;
        let mut copy = Copy::create(self, &saved, to, earlier.is_none())?;
        let mut made = Vec::with_capacity(saved.live.len());
        for (extent, _) in &saved.live {
            let left_out = match earlier {
                Some(earlier) => copy.find_in(earlier, *extent, each)?,
                None => None,
            };
            let (sum, is_here) = match left_out {
                Some(sum) => (sum, false),
                None => (copy.add(*extent, each)?, true),
            };
            made.push(CopiedExtent { extent: *extent, sum, is_here });
            copy.progress.done = made.len() as u64 * saved.extent_bytes;
            each(copy.progress)?;
        }
        copy.target.sync().map_err(|e| Fault::io("sync", &copy.name, &e))?;
        Ok(made)
    }
}

/// A copy being made.
struct Copy<'a> {
    space: &'a Space,
    target: Arc<dyn File>,
    name: String,
    extent_bytes: u64,
    /// Extents lie where they lie in the data file; otherwise one behind the other, and so many are there.
    next: Option<u64>,
    buffer: AlignedBuf,
    unsynced: u64,
    progress: CopyProgress,
}

impl<'a> Copy<'a> {
    fn create(space: &'a Space, saved: &Saved, to: &Path, whole: bool) -> Result<Self> {
        let (vfs, direct) = (&*space.0.vfs, space.0.options.direct);
        let path = to.join(EXTENTS_FILE);
        let (target, name) = if whole {
            let copy = DataFile::open(vfs, to, true, direct)?;
            copy.write_header(saved.extent_bytes, saved.database_id)?;
            (copy.shared(), copy.name.clone())
        } else {
            let how = OpenHow { write: true, create: true, create_new: false, direct };
            let file = vfs.open(&path, how).map_err(|e| failed("create", &path.display().to_string(), &e))?;
            (file, path.display().to_string())
        };
        let progress = CopyProgress { total: saved.live.len() as u64 * saved.extent_bytes, ..CopyProgress::default() };
        let buffer = AlignedBuf::zeroed(STEP_BYTES.min(saved.extent_bytes) as usize);
        let (extent_bytes, next) = (saved.extent_bytes, (!whole).then_some(0));
        Ok(Self { space, target, name, extent_bytes, next, buffer, unsynced: 0, progress })
    }

    /// The sum of an extent that the earlier copy has.
    fn find_in(&mut self, earlier: &Earlier<'_>, extent: ExtentId, each: Each<'_>) -> Result<Option<Sum>> {
        let Some(known) = earlier.sums.get(&extent) else { return Ok(None) };
        if let Some(generation) = earlier.generation {
            let is_changed = self.space.0.allocator.lock().is_changed_since(extent, generation);
            return Ok((!is_changed).then_some(*known));
        }
        let found = self.read(extent, &mut |_, _| Ok(()), each)?;
        Ok((found == *known).then_some(found))
    }

    /// Copies an extent.
    fn add(&mut self, extent: ExtentId, each: Each<'_>) -> Result<Sum> {
        let place = self.next.unwrap_or(u64::from(extent)) * self.extent_bytes;
        let (target, name) = (self.target.clone(), self.name.clone());
        let sum = self.read(
            extent,
            &mut |at, bytes| target.write_at(bytes, place + at).map_err(|e| failed("write", &name, &e)),
            each,
        )?;
        self.next = self.next.map(|next| next + 1);
        self.unsynced += self.extent_bytes;
        if self.unsynced >= CACHED_BYTES_MAX && !self.target.is_direct() {
            self.target.sync().map_err(|e| Fault::io("sync", &self.name, &e))?;
            self.unsynced = 0;
        }
        Ok(sum)
    }

    fn read(
        &mut self,
        extent: ExtentId,
        with: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
        each: Each<'_>,
    ) -> Result<Sum> {
        let data = &self.space.0.data;
        let start = u64::from(extent) * self.extent_bytes;
        let mut sum = Sum::default();
        for at in (0..self.extent_bytes).step_by(self.buffer.len()) {
            data.file().read_at(&mut self.buffer, start + at).map_err(|e| Fault::io("read", &data.name, &e))?;
            sum.add(&self.buffer);
            with(at, &self.buffer)?;
            self.progress.read += self.buffer.len() as u64;
            each(self.progress)?;
        }
        Ok(sum)
    }
}

/// Makes the data file in directory `to`, synced, for the manifest whose [`Space::save`] is `saved`: `fill` is asked for the bytes of each
/// extent, piece by piece, with where in the extent the piece begins.
///
/// # Errors
/// Of writing; whatever `fill` returns.
pub fn restore_extents(vfs: &dyn Vfs, saved: &[u8], to: &Path, fill: Fill<'_>) -> Result<()> {
    let saved = Saved::decode(saved)?;
    let file = DataFile::open(vfs, to, true, false)?;
    file.write_header(saved.extent_bytes, saved.database_id)?;
    let mut buffer = AlignedBuf::zeroed(STEP_BYTES.min(saved.extent_bytes) as usize);
    let mut unsynced = 0;
    for (extent, _) in &saved.live {
        unsynced += saved.extent_bytes;
        if unsynced >= CACHED_BYTES_MAX {
            file.file().sync().map_err(|e| failed("sync", &file.name, &e))?;
            unsynced = 0;
        }
        for at in (0..saved.extent_bytes).step_by(buffer.len()) {
            fill(*extent, at, &mut buffer)?;
            let place = u64::from(*extent) * saved.extent_bytes + at;
            file.file().write_at(&buffer, place).map_err(|e| failed("write", &file.name, &e))?;
        }
    }
    file.file().sync().map_err(|e| failed("sync", &file.name, &e))
}

fn failed(what: &'static str, name: &str, error: &io::Error) -> Fault {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Fault::NoSpace {
            what: format!("the copy in {name}"),
            remedy: "free space there, or choose another place".to_owned(),
        },
        _ => Fault::io(what, name, error),
    }
}
