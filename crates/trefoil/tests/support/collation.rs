//! A collation, as a server brings it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trefoil::{Collations, Database, Durability, Error, Options};

/// Number 7: letters of ASCII in either case are alike, and spaces at the end do not count.
pub struct PadSpace;

/// Its number.
pub const NOCASE: u32 = 7;
/// Longer texts do not come here.
pub const PADDED: usize = 24;

impl Collations for PadSpace {
    fn sort_key(&self, collation: u32, text: &[u8], characters: Option<u32>, out: &mut Vec<u8>) -> trefoil::Result<()> {
        if collation != NOCASE || text.len() > PADDED {
            return Err(Error::InvalidArgument(format!("collation {collation} is not known here")));
        }
        let length = characters.map_or(text.len(), |n| text.len().min(n as usize));
        let start = out.len();
        out.extend(text[..length].to_ascii_uppercase());
        out.resize(start + PADDED, b' ');
        Ok(())
    }

    fn characters(&self, _: u32, text: &[u8]) -> trefoil::Result<usize> {
        Ok(String::from_utf8_lossy(text).chars().count())
    }
}

/// In a directory, with the collation.
pub fn collating() -> Options {
    Options {
        background: false,
        durability: Durability::Buffered,
        lock_timeout: Duration::from_millis(50),
        collations: Some(Arc::new(PadSpace)),
        budget_bytes: 16 << 20,
        ..Options::default()
    }
}

/// Opens it.
pub fn open_collating(path: &Path) -> Database {
    Database::open(path, collating()).unwrap()
}
