//! What the manifest and log records say of a run file.

use std::borrow::Cow;
use std::fmt;

use base::bytes::{Reader, printable, put_bytes, put_varint};
use base::limits::SHORT_KEY_BYTES_MAX;

use crate::BlockRef;

const FORMAT_VERSION: u8 = 1;

/// Names a run file and everything needed to trust it. The file is durable before a record that holds this is
/// written.
#[derive(Clone, PartialEq, Eq)]
pub struct RunMeta {
    /// Number of the run, part of the file's name.
    pub id: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Entries in it.
    pub entries: u64,
    /// Levels of index blocks above the data blocks.
    pub height: u8,
    /// The root: the only block above all others. Its checksum vouches, block by block, for the whole file.
    pub root: BlockRef,
    /// Lowest key; empty if there are no entries. Once it was stored, a key below it if it is longer than 3 KiB; the other
    /// one above it.
    pub min_key: Vec<u8>,
    /// Highest key; empty if there are no entries.
    pub max_key: Vec<u8>,
}

impl fmt::Debug for RunMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, bytes, entries, height, root, .. } = self;
        let (min, max) = (printable(&self.min_key), printable(&self.max_key));
        write!(f, "run {id}: {entries} entries, {bytes} bytes, height {height}, root {root:?}, keys {min}..={max}")
    }
}

impl RunMeta {
    /// Appends the stored form. Records that name many runs have a limit: long keys are cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(FORMAT_VERSION);
        put_varint(out, self.id);
        put_varint(out, self.bytes);
        put_varint(out, self.entries);
        out.push(self.height);
        self.root.encode(out);
        put_bytes(out, lower_bound(&self.min_key));
        put_bytes(out, &upper_bound(&self.max_key));
    }

    /// Reads the stored form; `None` if it is none. The bytes around it carry the checksum.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        if r.u8()? != FORMAT_VERSION {
            return None;
        }
        let meta = Self {
            id: r.varint()?,
            bytes: r.varint()?,
            entries: r.varint()?,
            height: r.u8()?,
            root: BlockRef::decode(r)?,
            min_key: r.bytes()?.to_vec(),
            max_key: r.bytes()?.to_vec(),
        };
        // Keys that would have been cut are of no description that was stored.
        let is_stored = lower_bound(&meta.min_key) == meta.min_key && *upper_bound(&meta.max_key) == *meta.max_key;
        (is_stored && meta.min_key <= meta.max_key && meta.height <= super::HEIGHT_MAX).then_some(meta)
    }
}

/// What is stored for the lowest key: itself, or its front.
pub(super) fn lower_bound(key: &[u8]) -> &[u8] {
    &key[..key.len().min(SHORT_KEY_BYTES_MAX)]
}

/// What is stored for the highest key: itself, or what is above all keys with its front.
pub(super) fn upper_bound(key: &[u8]) -> Cow<'_, [u8]> {
    let front = lower_bound(key);
    match front.iter().rposition(|&byte| byte < u8::MAX) {
        Some(last) if front.len() < key.len() => {
            let mut above = front[..=last].to_vec();
            above[last] += 1;
            above.into()
        }
        _ => key.into(),
    }
}
