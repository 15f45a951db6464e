//! About how many keys lie in a range, and keys that cut the index: from the counts of leaves and blocks.
//!
//! Source by source, the oldest first: what is deleted takes away from what older sources have, what lives adds to it. A key that two
//! sources have counts twice. Of a run of which a part has expired as much counts as lies above the cut, if its versions lie evenly in the log.

use std::ops::Bound;

use base::{CommitTs, Result};
use index::damaged::just_above;
use index::expiry::has_expired;
use index::{KeyRange, ReadAt};
use store::KeyHash;

use crate::block::DataBlock;
use crate::choose::share_at_or_below;
use crate::index_block::IndexBlock;
use crate::lsm::Core;
use crate::run::Run;
use crate::slot::Slot;

/// Partitions whose counts are added up one by one; of more, the share of the run's that they are.
const COUNTED_MAX: usize = 1024;
/// So many partitions for each cut, and nobody looks into them.
const PARTITIONS_PER_CUT: usize = 4;
/// Keys that are looked at for each cut, about.
const KEYS_PER_CUT: usize = 16;

impl Core {
    pub(crate) fn estimate(&self, range: &KeyRange) -> Result<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        let sources = self.sources();
        // Somebody may see a value that is not its key's newest version.
        let (mut sum, mut has_value) = (0u64, false);
        let mut add = |(live, deleted, has): (u64, u64, bool)| {
            sum = sum.saturating_sub(deleted) + live;
            has_value |= has;
        };
        let cuts = (self.cut(ReadAt::Newest), self.env.expiry.as_ref().map_or(CommitTs::ZERO, |expiry| expiry.least()));
        for run in sources.runs.iter().rev().filter(|run| !has_expired(run.info.newest, cuts.1)) {
            let (live, deleted, has) = self.count_in_run(run, range)?;
            let alive = 1.0 - share_at_or_below(cuts.0, run.info.oldest, run.info.newest);
            add(((live as f64 * alive) as u64, (deleted as f64 * alive) as u64, has));
        }
        let (low, high) = range.bounds();
        for attached in sources.attached.iter().filter(|attached| !has_expired(attached.ts, cuts.1)) {
            let estimate = attached.run.estimate(low, high)?;
            let puts = if has_expired(attached.ts, cuts.0) { 0 } else { estimate.puts };
            add((puts, estimate.deletes, estimate.puts > 0));
        }
        for table in sources.sealed.iter().chain([&sources.active]).filter(|table| !has_expired(table.newest(), cuts.1))
        {
            add(table.count(range));
        }
        Ok(if has_value { sum.max(1) } else { 0 })
    }

    /// (Keys with a value, deleted keys, whether any version may be a value) of a run in a range; what lies at its ends is read.
    fn count_in_run(&self, run: &Run, range: &KeyRange) -> Result<(u64, u64, bool)> {
        if range.is_above(&run.info.min_key) || range.is_below(&run.info.max_key) {
            return Ok((0, 0, false));
        }
        let parts = &run.top(&self.env)?.partitions;
        let low = low_end(range);
        // A key may go on in the next partition.
        let first = parts.partition_point(|part| *part.info.key < *low).saturating_sub(1);
        let past = parts.partition_point(|part| !range.is_above(&part.info.key)).max(first + 1).min(parts.len());
        let mut sum = (0, 0, false);
        let mut add = |(live, deleted, has): (u64, u64, bool)| sum = (sum.0 + live, sum.1 + deleted, sum.2 || has);
        if past - first > COUNTED_MAX {
            // All but those at the ends, as far as they are like the others of the run.
            let share = |of: u64| (of as f64 * (past - first - 2) as f64 / parts.len() as f64) as u64;
            add((share(run.info.live), share(run.info.deleted), run.info.entries > run.info.deleted));
        }
        let is_counted = |i: &usize| past - first <= COUNTED_MAX || *i == first || i + 1 == past;
        for i in (first..past).filter(is_counted) {
            let info = &parts[i].info;
            let next = parts.get(i + 1).map(|next| &*next.info.key);
            // Below the next one's first key, whatever it is.
            let is_inside = !range.is_below(&info.key) && next.is_some_and(|next| !range.is_above(next));
            if is_inside {
                add((info.live, info.deleted, info.entries > info.deleted));
            } else {
                add(self.count_in_partition(&*parts[i].share(&self.env)?, next, range)?);
            }
        }
        Ok(sum)
    }

    /// The same of a partition; `end` is the first key behind it.
    fn count_in_partition(&self, index: &IndexBlock, end: Option<&[u8]>, range: &KeyRange) -> Result<(u64, u64, bool)> {
        let low = low_end(range);
        let mut sum = (0, 0, false);
        let mut add = |(live, deleted, has): (u64, u64, bool)| sum = (sum.0 + live, sum.1 + deleted, sum.2 || has);
        for at in 0..index.len() {
            let named = index.get(at);
            let next = if at + 1 < index.len() { Some(index.first_version(at + 1).0) } else { end };
            let is_below = |next: &[u8]| *next < *low || (*next == *low && !named.may_have(KeyHash::of(next)));
            if next.is_some_and(is_below) || range.is_above(named.key) {
                continue;
            }
            let is_inside = !range.is_below(named.key) && next.is_some_and(|next| !range.is_above(next));
            if is_inside {
                add((u64::from(named.live), u64::from(named.deleted), named.entries > named.deleted));
            } else {
                add(count_in_block(&*Slot { index, at }.load(&self.env, || self.counters.count_load())?, range));
            }
        }
        Ok(sum)
    }

    pub(crate) fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let sources = self.sources();
        let leaves: Vec<Vec<u8>> = sources.memtables().flat_map(|table| table.leaf_keys()).collect();
        let tops = sources.runs.iter().map(|run| run.top(&self.env)).collect::<Result<Vec<_>>>()?;
        let parts: usize = tops.iter().map(|top| top.partitions.len()).sum();
        // Where partitions are enough to cut between, nothing is read.
        let are_enough = parts >= PARTITIONS_PER_CUT * count.max(1);
        let slots: u64 = sources.runs.iter().map(|run| run.info.slots).sum();
        let blocks = if are_enough { parts } else { slots as usize } + leaves.len();
        // Of all sources one in as many, so that a small one counts for little.
        let step = blocks / (KEYS_PER_CUT * count.max(1)) + 1;
        let mut keys: Vec<Vec<u8>> = leaves.into_iter().step_by(step).collect();
        for part in tops.iter().flat_map(|top| &top.partitions) {
            if are_enough {
                keys.push(part.info.key.to_vec());
            } else {
                let index = part.share(&self.env)?;
                keys.extend((0..index.len()).step_by(step).map(|at| index.first_version(at).0.to_vec()));
            }
        }
        for attached in &sources.attached {
            keys.extend(attached.run.split_keys(count)?);
        }
        keys.sort_unstable();
        keys.dedup();
        let wanted = count.clamp(1, keys.len().max(1));
        let mut cuts: Vec<Vec<u8>> = (0..wanted).filter_map(|i| keys.get(i * keys.len() / wanted).cloned()).collect();
        // At or below everything.
        if let Some(first) = cuts.first_mut() {
            first.clear();
        }
        Ok(cuts)
    }
}

/// No key of the range is below.
fn low_end(range: &KeyRange) -> Vec<u8> {
    match &range.low {
        Bound::Included(low) => low.clone(),
        Bound::Excluded(low) => just_above(low),
        Bound::Unbounded => Vec::new(),
    }
}

fn count_in_block(block: &DataBlock, range: &KeyRange) -> (u64, u64, bool) {
    let mut sum = (0, 0, false);
    let mut key = Vec::new();
    for i in 0..block.len() {
        let is_newest = i == 0 || !block.same_key(i, i - 1);
        block.key_into(i, &mut key);
        if range.contains(&key) {
            let is_delete = block.version(i).1.value.is_delete();
            sum.0 += u64::from(is_newest && !is_delete);
            sum.1 += u64::from(is_newest && is_delete);
            sum.2 |= !is_delete;
        }
    }
    sum
}
