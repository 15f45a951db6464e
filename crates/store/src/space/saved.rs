//! The allocator's state in the manifest (P9): which extents hold how many bytes that the manifest reaches.
//! Drawn in `docs/formats/block.md`.

use base::bytes::{Reader, put_varint};
use base::checksum::crc32c;
use base::{Fault, Result};

use super::allocator::ExtentId;

const FORMAT_VERSION: u8 = 1;

/// Decoded state. Invariant: `live` ascends by extent, ids lie in `1..extent_count`, bytes in
/// `1..=extent_bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) database_id: u64,
    pub(crate) extent_bytes: u64,
    pub(crate) extent_count: u32,
    pub(crate) live: Vec<(ExtentId, u64)>,
}

impl Saved {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT_VERSION];
        out.extend_from_slice(&self.database_id.to_le_bytes());
        put_varint(&mut out, self.extent_bytes);
        put_varint(&mut out, u64::from(self.extent_count));
        put_varint(&mut out, self.live.len() as u64);
        let mut last = 0;
        for &(id, bytes) in &self.live {
            put_varint(&mut out, u64::from(id - last));
            put_varint(&mut out, bytes);
            last = id;
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let wrong = |what, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
            Fault::corrupt("the manifest's space state", 0, what, expected, found)
        };
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(wrong("length", &"at least 4", &bytes.len()));
        };
        let (stored, computed) = (u32::from_le_bytes(*crc), crc32c(body));
        if stored != computed {
            return Err(wrong("checksum", &format!("{stored:08x}"), &format!("{computed:08x}")));
        }
        if let Some(&version) = body.first().filter(|version| **version != FORMAT_VERSION) {
            return Err(Fault::Format {
                path: "the manifest's space state".to_owned(),
                found: u32::from(version),
                supported: u32::from(FORMAT_VERSION),
                remedy: "open the database with the release that wrote it".to_owned(),
            });
        }
        Self::parse(body).ok_or_else(|| wrong("contents", &"ascending extents with live bytes", &"something else"))
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let mut r = Reader::new(body);
        let _version = r.u8()?;
        let database_id = r.u64()?;
        let extent_bytes = r.varint()?;
        let extent_count = u32::try_from(r.varint()?).ok().filter(|n| *n >= 1)?;
        let entries = r.length()?;
        // An entry takes at least two bytes: what is not there is not allocated for.
        if entries > r.rest().len() / 2 {
            return None;
        }
        let mut live = Vec::with_capacity(entries);
        let mut last: ExtentId = 0;
        for _ in 0..entries {
            let step = u32::try_from(r.varint()?).ok().filter(|n| *n >= 1)?;
            let id = last.checked_add(step).filter(|id| *id < extent_count)?;
            let bytes = r.varint().filter(|n| (1..=extent_bytes).contains(n))?;
            live.push((id, bytes));
            last = id;
        }
        r.is_empty().then_some(Self { database_id, extent_bytes, extent_count, live })
    }
}
