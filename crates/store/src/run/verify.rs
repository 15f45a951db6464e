//! Reads a whole run and checks what no single block can tell: order over block boundaries, count, lowest and highest
//! key.

use base::bytes::printable;
use base::{Corruption, Fault, Result};

use super::meta::{lower_bound, upper_bound};
use super::{Repr, Run};

impl Run {
    /// Reads everything, values included. Returns the number of entries.
    ///
    /// # Errors
    /// The first damage found; faults of reading.
    pub fn verify(&self) -> Result<u64> {
        let mut cursor = self.cursor();
        let (mut first, mut last) = (None, None::<Vec<u8>>);
        let mut entries = 0;
        let mut there = cursor.seek_first()?;
        while there {
            let key = cursor.key();
            if let Some(before) = last.as_deref().filter(|before| *before >= key) {
                return Err(self.wrong(
                    "order of keys in a run",
                    format!("above {}", printable(before)),
                    printable(key),
                ));
            }
            cursor.value()?;
            first.get_or_insert_with(|| cursor.key().to_vec());
            last = Some(cursor.key().to_vec());
            entries += 1;
            there = cursor.next()?;
        }
        let found = (entries, first, last);
        let range = self.key_range().map_or((None, None), |(min, max)| (Some(min.to_vec()), Some(max.to_vec())));
        let said = (self.len(), range.0, range.1);
        // Long keys were cut when the description was stored.
        let stored = |(n, min, max): &(u64, Option<Vec<u8>>, Option<Vec<u8>>)| {
            let min = min.as_deref().map(|key| lower_bound(key).to_vec());
            (*n, min, max.as_deref().map(|key| upper_bound(key).into_owned()))
        };
        if stored(&found) != stored(&said) {
            let show = |(n, min, max): &(u64, Option<Vec<u8>>, Option<Vec<u8>>)| {
                let key = |key: &Option<Vec<u8>>| key.as_deref().map_or("none".to_owned(), printable);
                format!("{n} entries from {} to {}", key(min), key(max))
            };
            return Err(self.wrong("entries of a run", show(&said), show(&found)));
        }
        Ok(entries)
    }

    fn wrong(&self, what: &'static str, expected: String, found: String) -> Fault {
        let file = match &self.0 {
            Repr::Memory(_) => "memory",
            Repr::File(run) => run.name(),
            Repr::Lost(_) => "lost",
        };
        let (file, key_range) = (file.to_owned(), None);
        Corruption { file, offset: None, index: None, key_range, what, expected, found }.into()
    }
}
