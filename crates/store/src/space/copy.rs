//! A copy of the data file as one manifest has it, for a backup.
//!
//! Extents that hold live bytes of that manifest are copied whole, to the same offsets of a new file; the rest of it is
//! a hole. A pin taken while the manifest was the newest durable one keeps them as they were: what is appended to an
//! open extent meanwhile lies behind what the manifest names.

use std::path::Path;

use base::{Fault, Result};
use vfs::AlignedBuf;

use super::datafile::DataFile;
use super::{Saved, Space, SpacePin};

/// Bytes read at once.
const STEP_BYTES: u64 = 1 << 20;

impl Space {
    /// Makes the data file in directory `to`, synced. `saved` is [`Space::save`] of the manifest that `pin` holds. Calls
    /// `each` with the bytes copied and the bytes in all, about once a MiB.
    ///
    /// # Errors
    /// Of reading and writing, which do not poison; whatever `each` returns.
    pub fn copy_to(
        &self,
        _pin: &SpacePin,
        saved: &[u8],
        to: &Path,
        each: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let saved = Saved::decode(saved)?;
        let copy = DataFile::open(&*self.0.vfs, to, true, self.0.options.direct)?;
        copy.write_header(saved.extent_bytes, saved.database_id)?;
        let total = saved.live.len() as u64 * saved.extent_bytes;
        let step = STEP_BYTES.min(saved.extent_bytes);
        let mut buffer = AlignedBuf::zeroed(step as usize);
        let mut done = 0;
        for (extent, _) in &saved.live {
            let start = u64::from(*extent) * saved.extent_bytes;
            for offset in (start..start + saved.extent_bytes).step_by(step as usize) {
                let read = self.0.data.file().read_at(&mut buffer, offset);
                read.map_err(|e| Fault::io("read", &self.0.data.name, &e))?;
                copy.file().write_at(&buffer, offset).map_err(|e| match e.kind() {
                    std::io::ErrorKind::StorageFull => Fault::NoSpace {
                        what: format!("the backup in {}", to.display()),
                        remedy: "free space there, or choose another place".to_owned(),
                    },
                    _ => Fault::io("write", &copy.name, &e),
                })?;
                done += step;
                each(done, total)?;
            }
        }
        copy.file().sync().map_err(|e| Fault::io("sync", &copy.name, &e))
    }
}
