//! How many entries of a run lie in a range, and where to look for a sample of it.
//!
//! From the lower bound on some entries are walked over. If the range ends there, the count is exact. Otherwise both ends
//! are placed by descent, in memory exactly. In a file they are exact within their blocks; of what lies between these the bytes are known, and
//! some blocks are looked at for how many entries those hold: keys that are like their neighbours take few. The share of deletes is that of
//! the entries walked over.

use std::ops::Bound;

use base::Result;

use super::block::{RunBlock, Spot};
use super::cursor::Place;
use super::reader::child;
use super::{Repr, Run, RunCursor};

/// Entries walked over, at most.
const WALK: u64 = 64;
/// Blocks between both ends that are looked at.
const SAMPLES: u64 = 4;

/// What lies in a range of a run, about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunEstimate {
    /// Keys with a value.
    pub puts: u64,
    /// Keys deleted.
    pub deletes: u64,
}

impl Run {
    /// Counts the entries between two bounds, about; exactly if they are few. Reads what six descents read.
    ///
    /// ```
    /// use std::ops::Bound::{Excluded, Unbounded};
    /// use trefoil_store::Run;
    ///
    /// let run = Run::from_sorted([("ant", Some("1")), ("bee", None), ("cat", Some("3"))]);
    /// let behind_the_ant = run.estimate(Excluded(b"ant"), Unbounded)?;
    /// assert_eq!((behind_the_ant.puts, behind_the_ant.deletes), (1, 1));
    /// # Ok::<(), base::Fault>(())
    /// ```
    ///
    /// # Errors
    /// Faults of reading the file.
    pub fn estimate(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Result<RunEstimate> {
        let mut cursor = self.cursor();
        let mut stands = seek_low(&mut cursor, low)?;
        let start = stands.then(|| cursor.place());
        let (mut walked, mut deletes) = (0, 0);
        while stands && walked < WALK && is_below(cursor.key(), high) {
            deletes += u64::from(cursor.is_delete());
            walked += 1;
            stands = cursor.next()?;
        }
        if walked < WALK {
            return Ok(RunEstimate { puts: walked - deletes, deletes });
        }
        // The first entry behind the range.
        let behind = match high {
            Bound::Included(key) => Bound::Excluded(key),
            Bound::Excluded(key) => Bound::Included(key),
            Bound::Unbounded => Bound::Unbounded,
        };
        let (start, end) = match (start, behind != Bound::Unbounded && seek_low(&mut cursor, behind)?) {
            (Some(start), true) => (start, cursor.place()),
            // The last entry is inside.
            (Some(start), false) if cursor.seek_last()? => (start, cursor.place().next()),
            _ => return Ok(RunEstimate { puts: walked - deletes, deletes }),
        };
        let entries = self.between(start, end)?.clamp(WALK, self.len());
        let deletes = entries * deletes / walked;
        Ok(RunEstimate { puts: entries - deletes, deletes })
    }

    /// The entries from one place to another behind it, about.
    fn between(&self, start: Place, end: Place) -> Result<u64> {
        match (start, end) {
            (Place::Entry(start), Place::Entry(end)) => Ok(end.saturating_sub(start)),
            (Place::InBlock { at: first, entries, before: start }, Place::InBlock { at: last, before: end, .. }) => {
                match (first, last) {
                    (Some(first), Some(last)) if first != last => {
                        let behind = first.offset + u64::from(first.stored_bytes);
                        Ok(entries.saturating_sub(start) + self.entries_of(behind, last.offset)? + end)
                    }
                    _ => Ok(end.saturating_sub(start)),
                }
            }
            _ => unreachable!("both are places of this run"),
        }
    }

    /// The entries of what lies between two offsets of a file, about: as many a byte as some of its blocks have.
    fn entries_of(&self, start: u64, end: u64) -> Result<u64> {
        let Repr::File(run) = &self.0 else { return Ok(0) };
        let bytes = end.saturating_sub(start);
        let (mut entries, mut sampled) = (0, 0);
        for i in (0..SAMPLES).filter(|_| bytes > 0) {
            let Some((block, apart)) = run.data_block_at(start + bytes / SAMPLES * i + bytes / SAMPLES / 2)? else {
                break;
            };
            entries += block.entries();
            sampled += apart;
        }
        Ok(u64::try_from(u128::from(bytes) * u128::from(entries) / u128::from(sampled.max(1))).unwrap_or(u64::MAX))
    }

    /// About `count` keys at most, ascending, that cut the run in parts of about the same size: of a file the first keys of
    /// index blocks, read as far as needed.
    ///
    /// # Errors
    /// Faults of reading the file.
    pub fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        Ok(match &self.0 {
            Repr::Memory(run) => {
                let count = count.min(run.len());
                (0..count).map(|i| run.key(i * run.len() / count).to_vec()).collect()
            }
            Repr::File(run) => {
                let mut spots = spots(&run.root);
                let mut level = run.meta.height;
                while spots.len() < count && level > 1 {
                    level -= 1;
                    let below = spots.iter().map(|spot| Ok(self::spots(&*run.block(child(spot), level)?)));
                    spots = below.collect::<Result<Vec<_>>>()?.concat();
                }
                let keys: Vec<Vec<u8>> = spots.into_iter().map(|spot| spot.key).collect();
                let step = keys.len().div_ceil(count.max(1)).max(1);
                keys.into_iter().step_by(step).collect()
            }
            Repr::Lost(_) => Vec::new(),
        })
    }
}

/// The entries of a block.
fn spots(block: &RunBlock) -> Vec<Spot> {
    let (mut spots, mut spot) = (Vec::new(), Spot::default());
    let mut stands = block.first(&mut spot);
    while stands {
        spots.push(spot.clone());
        stands = block.next(&mut spot);
    }
    spots
}

fn seek_low(cursor: &mut RunCursor, low: Bound<&[u8]>) -> Result<bool> {
    match low {
        Bound::Unbounded => cursor.seek_first(),
        Bound::Included(key) => cursor.seek(key),
        Bound::Excluded(key) => Ok(cursor.seek(key)? && (cursor.key() != key || cursor.next()?)),
    }
}

fn is_below(key: &[u8], high: Bound<&[u8]>) -> bool {
    match high {
        Bound::Unbounded => true,
        Bound::Included(high) => key <= high,
        Bound::Excluded(high) => key < high,
    }
}
