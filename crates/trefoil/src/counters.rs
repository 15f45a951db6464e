//! Reads of counters [A21]: what a version adds is summed up with what lies below it.
//!
//! The structure gives out versions, one of each key. This one stands around it and goes on, version by version, down to one that
//! says what the counter is, or to nothing, which is 0. All else goes through.
//!
//! Between two looks the structure may sum up, and drop what lies below (rule 2 of [`index::counter`]). So after each look below a
//! version that version is looked at again: while it still adds, nothing below it was dropped, nor was it when the look below was
//! taken. If it is a sum by now, it is the rest; if it is gone, a newer one that was passed is a sum, and all is read again. Each
//! time that happens the structure has summed up further, so it comes to an end.

use std::ops::Bound;
use std::sync::Arc;

use base::bytes::printable;
use base::{CommitTs, Fault, GcView, IndexId, Result};
use index::counter::Counter;
use index::damaged::just_above;
use index::{
    Assisted, Batch, Cursor, DamagedRange, Direction, EntryBatch, Index, IndexShape, IndexState, IndexStats, LogGate,
    Progress, ReadAt, Reservation, Reserved, Skips, Upkeep, VerifyReport, VisitBlock,
};
use store::run::Run;
use store::{ExtentId, Funds, Weights};

/// An index whose values are counters: of eight bytes, little-endian, for whoever reads.
#[derive(Clone)]
pub struct Counters {
    id: IndexId,
    versions: Arc<dyn Index>,
}

impl Counters {
    /// Around the structure that has the versions.
    pub fn around(id: IndexId, versions: Arc<dyn Index>) -> Arc<Self> {
        Arc::new(Self { id, versions })
    }

    /// The version that a read finds.
    fn version(&self, at: ReadAt, key: &[u8]) -> Result<Option<(CommitTs, Counter)>> {
        let mut found = None;
        self.versions.get_many(at, &[key], &mut |_, ts, value| found = Some((ts, Counter::decode(value))))?;
        found.map(|(ts, version)| Ok((ts, self.checked(key, version)?))).transpose()
    }

    /// What is written is encoded, and what is read stood under a checksum.
    fn checked(&self, key: &[u8], version: Option<Counter>) -> Result<Counter> {
        version.ok_or_else(|| {
            Fault::corrupt("data.trefoil", 0, "value of a counter", "nine bytes of a known form", "others".to_owned())
                .in_index(self.id, || printable(key))
        })
    }

    /// What the counter is, and the timestamp of the version that the read finds; `None` if there is none.
    fn sum(&self, at: ReadAt, key: &[u8]) -> Result<Option<(CommitTs, i64)>> {
        loop {
            let Some((newest, version)) = self.version(at, key)? else { return Ok(None) };
            if let Some(sum) = self.sum_from(key, newest, version)? {
                return Ok(Some((newest, sum)));
            }
        }
    }

    /// What the counter is as of this version; `None` if a version that was passed is gone.
    fn sum_from(&self, key: &[u8], mut ts: CommitTs, version: Counter) -> Result<Option<i64>> {
        let (mut above, mut version) = (0i64, version);
        loop {
            let delta = match version {
                Counter::Sum(sum) => return Ok(Some(above.wrapping_add(sum))),
                Counter::Delta(delta) => delta,
            };
            vfs::thread::point("counters.look");
            let below = self.version(ReadAt::Snapshot(CommitTs(ts.0 - 1)), key)?;
            match self.version(ReadAt::Snapshot(ts), key)? {
                Some((again, Counter::Sum(sum))) if again == ts => return Ok(Some(above.wrapping_add(sum))),
                Some((again, Counter::Delta(_))) if again == ts => {}
                _ => return Ok(None),
            }
            above = above.wrapping_add(delta);
            match below {
                Some(next) => (ts, version) = next,
                None => return Ok(Some(above)),
            }
        }
    }
}

/// A cursor over sums.
struct Sums {
    counters: Counters,
    at: ReadAt,
    versions: Box<dyn Cursor>,
    batch: EntryBatch,
    skips: Option<Skips>,
}

impl Cursor for Sums {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        let more = self.versions.fill(&mut self.batch, max)?;
        for i in 0..self.batch.len() {
            let (key, value) = self.batch.entry(i);
            let summed = match self.counters.checked(key, Counter::decode(value)) {
                Ok(Counter::Sum(sum)) => Ok(Some((self.batch.ts(i), sum))),
                Ok(Counter::Delta(_)) => self.counters.sum(self.at, key),
                Err(fault) => Err(fault),
            };
            match (summed, &self.skips) {
                (Ok(Some((ts, sum))), _) => out.push(key, &sum.to_le_bytes(), ts),
                // It was deleted: the newest is read.
                (Ok(None), _) => {}
                (Err(fault), Some(skips)) => {
                    let range = DamagedRange::met(fault, self.counters.id, key, Some(&just_above(key)))?;
                    skips.add(range, CommitTs::MAX);
                }
                (Err(fault), None) => return Err(fault),
            }
        }
        Ok(more)
    }

    fn skip_damaged(&mut self, skips: Skips) {
        self.versions.skip_damaged(skips.clone());
        self.skips = Some(skips);
    }
}

impl Index for Counters {
    fn get_many(&self, at: ReadAt, keys: &[&[u8]], found: &mut dyn FnMut(usize, CommitTs, &[u8])) -> Result<()> {
        let mut versions = Vec::with_capacity(keys.len());
        self.versions.get_many(at, keys, &mut |i, ts, value| versions.push((i, ts, Counter::decode(value))))?;
        for (i, ts, version) in versions {
            let version = self.checked(keys[i], version)?;
            let summed = match version {
                Counter::Sum(sum) => Some((ts, sum)),
                Counter::Delta(_) => match self.sum_from(keys[i], ts, version)? {
                    Some(sum) => Some((ts, sum)),
                    None => self.sum(at, keys[i])?,
                },
            };
            if let Some((ts, sum)) = summed {
                found(i, ts, &sum.to_le_bytes());
            }
        }
        Ok(())
    }

    fn cursor(&self, at: ReadAt, range: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) -> Box<dyn Cursor> {
        let versions = self.versions.cursor(at, range, direction);
        Box::new(Sums { counters: self.clone(), at, versions, batch: EntryBatch::new(), skips: None })
    }

    fn reserve_from(&self, batch: &Batch, funds: &mut Funds) -> Result<Option<Reservation>> {
        self.versions.reserve_from(batch, funds)
    }

    fn apply(&self, batch: &Batch, reserved: Box<dyn Reserved>, ts: CommitTs, view: &GcView) {
        self.versions.apply(batch, reserved, ts, view);
    }

    fn attach(&self, run: Run, ts: CommitTs) {
        self.versions.attach(run, ts);
    }

    fn expect_late(&self, ts: Option<CommitTs>) {
        self.versions.expect_late(ts);
    }

    fn clear_away(&self, upkeep: &Upkeep<'_>, ts: CommitTs, entries: u64) -> Result<u64> {
        self.versions.clear_away(upkeep, ts, entries)
    }

    fn maintain(&self, upkeep: &Upkeep<'_>) -> Result<Progress> {
        self.versions.maintain(upkeep)
    }

    fn assist(&self, upkeep: &Upkeep<'_>, may_split: bool) -> Result<Assisted> {
        self.versions.assist(upkeep, may_split)
    }

    fn relieve(&self, log: &dyn LogGate) -> Result<u64> {
        self.versions.relieve(log)
    }

    fn clears_behind(&self, batch: &Batch) -> bool {
        self.versions.clears_behind(batch)
    }

    fn superseded_bytes(&self) -> u64 {
        self.versions.superseded_bytes()
    }

    fn checkpoint(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.versions.checkpoint(upkeep)
    }

    fn checkpoint_written(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.versions.checkpoint_written(upkeep)
    }

    fn weigh(&self, weights: &mut Weights) -> Result<()> {
        self.versions.weigh(weights)
    }

    fn evacuate(&self, extents: &[ExtentId], upkeep: &Upkeep<'_>) -> Result<()> {
        self.versions.evacuate(extents, upkeep)
    }

    fn stats(&self) -> IndexStats {
        self.versions.stats()
    }

    fn shape(&self) -> Result<IndexShape> {
        self.versions.shape()
    }

    fn estimate(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<u64> {
        self.versions.estimate(range)
    }

    fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        self.versions.split_keys(count)
    }

    fn verify(&self) -> Result<VerifyReport> {
        self.versions.verify()
    }

    fn reach(&self, visit: &mut VisitBlock<'_>) -> Result<Vec<base::Corruption>> {
        self.versions.reach(visit)
    }

    fn destroy(&self) -> Result<()> {
        self.versions.destroy()
    }
}
