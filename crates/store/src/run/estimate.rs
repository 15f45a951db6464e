//! How many entries of a run lie in a range, and where to look for a sample of it.
//!
//! From the lower bound on some entries are walked over. If the range ends there, the count is exact. Otherwise both ends
//! are placed by descent — in memory exactly, in a file by the bytes before them — and the
//! share of deletes is that of the entries walked over.

use std::ops::Bound;

use base::Result;

use super::block::{RunBlock, Spot};
use super::reader::child;
use super::{Repr, Run, RunCursor};

/// Entries walked over, at most.
const WALK: u64 = 64;

/// What lies in a range of a run, about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunEstimate {
    /// Keys with a value.
    pub puts: u64,
    /// Keys deleted.
    pub deletes: u64,
}

impl Run {
    /// Counts the entries between two bounds, about; exactly if they are few. Reads what two descents read.
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
        let start = cursor.fraction();
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
        let end = if behind == Bound::Unbounded || !seek_low(&mut cursor, behind)? { 1.0 } else { cursor.fraction() };
        let entries = (((end - start) * self.len() as f64).round() as u64).clamp(WALK, self.len());
        let deletes = entries * deletes / walked;
        Ok(RunEstimate { puts: entries - deletes, deletes })
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
