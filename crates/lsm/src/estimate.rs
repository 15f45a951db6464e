//! About how many keys lie in a range, and keys that cut the index: from the counts of leaves and blocks.
//!
//! Source by source, the oldest first: what is deleted takes away from what older sources have, what lives adds to it. A key that two
//! sources have counts twice.

use std::ops::Bound;

use base::{CommitTs, Result};
use index::KeyRange;
use index::damaged::just_above;

use crate::block::DataBlock;
use crate::lsm::Core;
use crate::run::Run;

/// Blocks whose counts are added up one by one; of more, the share of the run's that they are.
const COUNTED_MAX: usize = 256;
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
        for run in sources.runs.iter().rev() {
            add(self.count_in_run(run, range)?);
        }
        let (low, high) = range.bounds();
        for attached in &sources.attached {
            let estimate = attached.run.estimate(low, high)?;
            add((estimate.puts, estimate.deletes, estimate.puts > 0));
        }
        for table in sources.sealed.iter().chain([&sources.active]) {
            add(table.count(range));
        }
        Ok(if has_value { sum.max(1) } else { 0 })
    }

    /// (Keys with a value, deleted keys, whether any version may be a value) of a run in a range; the blocks at its ends are read.
    fn count_in_run(&self, run: &Run, range: &KeyRange) -> Result<(u64, u64, bool)> {
        if range.is_above(&run.info.min_key) || range.is_below(&run.info.max_key) {
            return Ok((0, 0, false));
        }
        let index = run.index(&self.env)?;
        let first = match &range.low {
            Bound::Included(low) => index.slot_of(low, CommitTs::MAX),
            Bound::Excluded(low) => index.slot_of(&just_above(low), CommitTs::MAX),
            Bound::Unbounded => None,
        };
        let first = first.unwrap_or(0);
        let past = index.slots.partition_point(|slot| !range.is_above(&slot.key)).max(first);
        let mut sum = (0, 0, false);
        let mut add = |(live, deleted, has): (u64, u64, bool)| sum = (sum.0 + live, sum.1 + deleted, sum.2 || has);
        if past - first > COUNTED_MAX {
            // All but those at the ends, as far as they are like the others of the run.
            let share = |of: u64| (of as f64 * (past - first - 2) as f64 / index.slots.len() as f64) as u64;
            add((share(run.info.live), share(run.info.deleted), run.info.entries > run.info.deleted));
        }
        let is_counted = |i: &usize| past - first <= COUNTED_MAX || *i == first || i + 1 == past;
        for i in (first..past).filter(is_counted) {
            let slot = &index.slots[i];
            let next = index.slots.get(i + 1);
            // Below the next block's first key, whatever it is.
            let is_inside = !range.is_below(&slot.key) && next.is_some_and(|next| !range.is_above(&next.key));
            if is_inside {
                add((u64::from(slot.live), u64::from(slot.deleted), slot.entries > slot.deleted));
            } else {
                add(count_in_block(&*slot.load(&self.env, || self.counters.count_load())?, range));
            }
        }
        Ok(sum)
    }

    pub(crate) fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let sources = self.sources();
        let leaves: Vec<Vec<u8>> = sources.memtables().flat_map(|table| table.leaf_keys()).collect();
        let blocks = sources.runs.iter().map(|run| run.info.slots as usize).sum::<usize>() + leaves.len();
        // Of all sources one in as many, so that a small one counts for little.
        let step = blocks / (KEYS_PER_CUT * count.max(1)) + 1;
        let mut keys: Vec<Vec<u8>> = leaves.into_iter().step_by(step).collect();
        for run in &sources.runs {
            let slots = &run.index(&self.env)?.slots;
            keys.extend(slots.iter().step_by(step).map(|slot| slot.key.to_vec()));
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
