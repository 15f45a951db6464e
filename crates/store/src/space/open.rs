//! Creating the data file, and finding it again.

use std::path::Path;

use base::limits::SECTOR_BYTES;
use base::{Fault, Result};
use vfs::Vfs;

use super::allocator::Allocator;
use super::datafile::DataFile;
use super::saved::Saved;
use super::{EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, SpaceOptions};

pub(super) fn check_options(options: &SpaceOptions) -> Result<()> {
    let extent_bytes = options.extent_bytes;
    if !extent_bytes.is_power_of_two() || !(EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&extent_bytes) {
        return Err(Fault::Limit {
            what: "the extent size (a power of two from 16 KiB), in bytes",
            limit: EXTENT_BYTES_MAX,
            got: extent_bytes,
        });
    }
    Ok(())
}

pub(super) fn create(vfs: &dyn Vfs, dir: &Path, options: &SpaceOptions) -> Result<(DataFile, u64, Allocator)> {
    let data = DataFile::open(vfs, dir, true, options.direct)?;
    let len = data.len()?;
    if len > SECTOR_BYTES as u64 {
        let expected = "no extents, since there is no manifest";
        return Err(Fault::corrupt(&data.name, 0, "length", expected, format!("{len} bytes")));
    }
    let database_id = vfs::random::u64();
    data.write_header(options.extent_bytes, database_id)?;
    data.file().sync().map_err(|e| Fault::io("sync", &data.name, &e))?;
    vfs.sync_dir(dir).map_err(|e| Fault::io("sync directory", dir.display(), &e))?;
    Ok((data, database_id, Allocator::new(options.extent_bytes, 1, &[])))
}

pub(super) fn reopen(
    vfs: &dyn Vfs,
    dir: &Path,
    options: &SpaceOptions,
    saved: &Saved,
) -> Result<(DataFile, u64, Allocator)> {
    let data = DataFile::open(vfs, dir, false, options.direct)?;
    let (extent_bytes, database_id) = data.read_header()?;
    let named = (saved.extent_bytes, saved.database_id);
    if (extent_bytes, database_id) != named {
        let (expected, found) = (format!("{named:x?}"), format!("{:x?}", (extent_bytes, database_id)));
        return Err(Fault::corrupt(&data.name, 0, "extent size and database id", expected, found));
    }
    let len = data.len()?;
    let last_live = saved.live.last().map_or(0, |(id, _)| *id);
    let needed = if last_live == 0 { SECTOR_BYTES as u64 } else { (u64::from(last_live) + 1) * extent_bytes };
    if len < needed {
        return Err(Fault::corrupt(&data.name, len, "length", format!("at least {needed} bytes"), len));
    }
    // The file may be longer (grown after the manifest) or shorter (cut after it) than the manifest knew; extents
    // without live bytes are free either way.
    let extents = u32::try_from(len.div_ceil(extent_bytes)).unwrap_or(u32::MAX).max(1);
    Ok((data, database_id, Allocator::new(extent_bytes, extents, &saved.live)))
}
