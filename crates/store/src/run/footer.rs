//! The last sector of a run file. Drawn in `docs/formats/run.md`.

use base::bytes::Reader;
use base::checksum::crc32c;
use base::limits::SECTOR_BYTES;
use base::{Fault, Result};

use super::RunMeta;
use crate::BlockRef;

const MAGIC: [u8; 8] = *b"TREFOILR";
const FORMAT_VERSION: u32 = 1;
const FIELDS_END: usize = 56;

pub(super) fn encode(meta: &RunMeta) -> [u8; SECTOR_BYTES] {
    let mut fields = Vec::with_capacity(FIELDS_END);
    fields.extend_from_slice(&MAGIC);
    fields.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    fields.extend_from_slice(&u32::from(meta.height).to_le_bytes());
    fields.extend_from_slice(&meta.id.to_le_bytes());
    fields.extend_from_slice(&meta.bytes.to_le_bytes());
    fields.extend_from_slice(&meta.entries.to_le_bytes());
    meta.root.encode(&mut fields);
    let mut sector = [0; SECTOR_BYTES];
    sector[..FIELDS_END].copy_from_slice(&fields);
    let crc = crc32c(&sector[..SECTOR_BYTES - 4]);
    sector[SECTOR_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    sector
}

/// Checks that `sector` is the footer of the run that `meta` names.
pub(super) fn check(name: &str, sector: &[u8], meta: &RunMeta) -> Result<()> {
    let offset = meta.bytes.saturating_sub(SECTOR_BYTES as u64);
    let corrupt = |what, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
        Fault::corrupt(name, offset, what, expected, found)
    };
    if sector.len() != SECTOR_BYTES {
        return Err(corrupt("footer length", &SECTOR_BYTES, &sector.len()));
    }
    if sector[0..8] != MAGIC {
        return Err(corrupt("footer magic", &"a Trefoil run file", &base::bytes::printable(&sector[0..8])));
    }
    let mut r = Reader::new(&sector[8..FIELDS_END]);
    let fields = (r.u32(), r.u32(), r.u64(), r.u64(), r.u64(), BlockRef::decode(&mut r));
    let (Some(version), Some(height), Some(id), Some(bytes), Some(entries), Some(root)) = fields else {
        return Err(corrupt("footer", &"all fields", &"fewer"));
    };
    let stored = u32::from_le_bytes(sector[SECTOR_BYTES - 4..].try_into().expect("four bytes"));
    let computed = crc32c(&sector[..SECTOR_BYTES - 4]);
    if stored != computed {
        return Err(corrupt("footer checksum", &format!("{stored:08x}"), &format!("{computed:08x}")));
    }
    if version != FORMAT_VERSION {
        return Err(Fault::Format {
            path: name.to_owned(),
            found: version,
            supported: FORMAT_VERSION,
            remedy: "open the database with the release that wrote it".to_owned(),
        });
    }
    let found = (id, bytes, entries, height, root);
    let expected = (meta.id, meta.bytes, meta.entries, u32::from(meta.height), meta.root);
    if found != expected {
        return Err(corrupt("footer", &format!("{expected:?}"), &format!("{found:?}")));
    }
    Ok(())
}
