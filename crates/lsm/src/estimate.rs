//! About how many keys lie in a range, and keys that cut the index: from the counts of leaves and blocks.
//!
//! Source by source, the oldest first: what is deleted takes away from what older sources have, what lives adds to it. A key that two
//! sources have counts twice. Of a run of which a part has expired as much counts as lies above the cut, if its versions lie evenly in the log.
//!
//! A query planner asks before each query, so little of what lies in the range is looked at: runs know sums of what lies in it whole, memtables know what a
//! leaf has, and blocks at its ends are read where they matter.

use std::ops::{Bound, Range};

use base::{CommitTs, Result};
use index::damaged::just_above;
use index::expiry::has_expired;
use index::{KeyRange, ReadAt};
use store::KeyHash;

use crate::block::DataBlock;
use crate::choose::share_at_or_below;
use crate::index_block::IndexBlock;
use crate::lsm::Core;
use crate::partition::Partition;
use crate::run::Run;
use crate::slot::Slot;

/// Partitions whose counts are added up one by one; of more, the share of the run's that they are.
const COUNTED_MAX: usize = 1024;
/// Of a block, or a partition, at an end of the range half is taken, unread, if so many times as many keys live in what lies in it whole.
const ENOUGH: u64 = 8;
/// Versions of a block at an end of the range that are looked at; of more, as many that lie evenly among them.
const VERSIONS_LOOKED_AT: usize = 64;
/// So many partitions for each cut, and nobody looks into them.
const PARTITIONS_PER_CUT: usize = 4;
/// Keys that are looked at for each cut, about.
const KEYS_PER_CUT: usize = 16;

/// What lies in a part of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Keys whose newest version there is a value, and keys of which it is a delete.
    pub live: u64,
    pub deleted: u64,
    /// All versions.
    pub entries: u64,
}

impl Counts {
    pub fn new(live: u64, deleted: u64, entries: u64) -> Self {
        Self { live, deleted, entries }
    }

    pub fn add(&mut self, other: Self) {
        self.live += other.live;
        self.deleted += other.deleted;
        self.entries += other.entries;
    }

    /// Without what is part of it.
    pub fn less(self, part: Self) -> Self {
        Self::new(self.live - part.live, self.deleted - part.deleted, self.entries - part.entries)
    }

    /// A share of it, or a multiple.
    pub fn times(self, share: f64) -> Self {
        let of = |n: u64| (n as f64 * share).round() as u64;
        // That there is no value is said of nothing that may have one.
        let more = u64::from(self.may_have_value());
        let (live, deleted) = (of(self.live), of(self.deleted));
        Self::new(live, deleted, of(self.entries).max(live + deleted).max(deleted + more))
    }

    /// Somebody may see a value, of a key's newest version or an older one.
    pub fn may_have_value(self) -> bool {
        self.live > 0 || self.entries > self.deleted
    }

    /// Half of it may be wrong by as much again, beside what is known.
    fn is_little_beside(self, known: Self) -> bool {
        (self.live + self.deleted) * ENOUGH <= known.live
    }
}

impl Core {
    pub(crate) fn estimate(&self, range: &KeyRange) -> Result<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        let sources = self.sources();
        let (mut sum, mut has_value) = (0u64, false);
        let mut add = |counts: Counts| {
            sum = sum.saturating_sub(counts.deleted) + counts.live;
            has_value |= counts.may_have_value();
        };
        let cuts = (self.cut(ReadAt::Newest), self.env.expiry.as_ref().map_or(CommitTs::ZERO, |expiry| expiry.least()));
        for run in sources.runs.iter().rev().filter(|run| !has_expired(run.info.newest, cuts.1)) {
            let counts = self.count_in_run(run, range)?;
            add(counts.times(1.0 - share_at_or_below(cuts.0, run.info.oldest, run.info.newest)));
        }
        let (low, high) = range.bounds();
        for attached in sources.attached.iter().filter(|attached| !has_expired(attached.ts, cuts.1)) {
            let estimate = attached.run.estimate(low, high)?;
            let live = if has_expired(attached.ts, cuts.0) { 0 } else { estimate.puts };
            add(Counts::new(live, estimate.deletes, estimate.puts + estimate.deletes));
        }
        for table in sources.sealed.iter().chain([&sources.active]).filter(|table| !has_expired(table.newest(), cuts.1))
        {
            add(table.count(range));
        }
        Ok(if has_value { sum.max(1) } else { 0 })
    }

    /// What a run has in a range.
    fn count_in_run(&self, run: &Run, range: &KeyRange) -> Result<Counts> {
        if range.is_above(&run.info.min_key) || range.is_below(&run.info.max_key) {
            return Ok(Counts::default());
        }
        let parts = &run.top(&self.env)?.partitions;
        let low = low_end(range);
        // A key may go on in the next partition.
        let first = parts.partition_point(|part| *part.info.key < *low).saturating_sub(1);
        let past = parts.partition_point(|part| !range.is_above(&part.info.key)).max(first + 1).min(parts.len());
        let end = |i: usize| parts.get(i + 1).map_or(End::At(&run.info.max_key), |next| End::Before(&next.info.key));
        let inside = inside(first..past, !range.is_below(&parts[first].info.key), end(past - 1).is_within(range));
        let counts_of = |part: &Partition| Counts::new(part.info.live, part.info.deleted, part.info.entries);
        let mut counts = Counts::default();
        if inside.len() > COUNTED_MAX {
            // As far as they are like the others of the run.
            let all = Counts::new(run.info.live, run.info.deleted, run.info.entries);
            counts.add(all.times(inside.len() as f64 / parts.len() as f64));
        } else {
            parts[inside.clone()].iter().for_each(|part| counts.add(counts_of(part)));
        }
        for i in at_the_ends(first..past, &inside) {
            let all = counts_of(&parts[i]);
            counts.add(if all.is_little_beside(counts) {
                all.times(0.5)
            } else {
                self.count_in_partition(&*parts[i].share(&self.env)?, end(i), counts, range)?
            });
        }
        Ok(counts)
    }

    /// What a partition has in it, that ends there; so much is known to lie in it beside.
    fn count_in_partition(
        &self,
        index: &IndexBlock,
        last: End<'_>,
        beside: Counts,
        range: &KeyRange,
    ) -> Result<Counts> {
        let low = low_end(range);
        let first = index.first_behind(&low, CommitTs::MAX).saturating_sub(1);
        let past = match &range.high {
            Bound::Included(high) => index.first_behind(high, CommitTs::ZERO),
            Bound::Excluded(high) => index.first_behind(high, CommitTs::MAX),
            Bound::Unbounded => index.len(),
        };
        if past <= first {
            return Ok(Counts::default());
        }
        let end = |i: usize| if i + 1 < index.len() { End::Before(index.first_version(i + 1).0) } else { last };
        let is_first = !range.is_below(index.first_version(first).0);
        let inside = inside(first..past, is_first, end(past - 1).is_within(range));
        let mut counts = index.counts(inside.clone());
        let mut known = beside;
        known.add(counts);
        for i in at_the_ends(first..past, &inside) {
            let named = index.get(i);
            let may_reach = match end(i) {
                End::Before(next) => *next > *low || (*next == *low && named.may_have(KeyHash::of(next))),
                End::At(last) => *last >= *low,
            };
            if !may_reach {
                continue;
            }
            counts.add(if named.counts().is_little_beside(known) {
                named.counts().times(0.5)
            } else {
                count_in_block(&*Slot { index, at: i }.load(&self.env, || self.counters.count_load())?, range)
            });
        }
        Ok(counts)
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

/// Where a part of a run ends: before the next one's first key, or where the run does.
#[derive(Clone, Copy)]
enum End<'a> {
    Before(&'a [u8]),
    /// No key is above.
    At(&'a [u8]),
}

impl End<'_> {
    /// What lies before it does not lie above the range.
    fn is_within(self, range: &KeyRange) -> bool {
        let (Self::Before(key) | Self::At(key)) = self;
        !range.is_above(key)
    }
}

/// Of the parts of which something may lie in the range, those that lie in it whole, if the first one does and the last one does.
fn inside(of: Range<usize>, is_first: bool, is_last: bool) -> Range<usize> {
    let start = of.start + usize::from(!is_first);
    start..(of.end - usize::from(!is_last)).max(start)
}

/// The others.
fn at_the_ends(of: Range<usize>, inside: &Range<usize>) -> impl Iterator<Item = usize> + use<> {
    (of.start..inside.start).chain(inside.end..of.end)
}

/// No key of the range is below.
fn low_end(range: &KeyRange) -> Vec<u8> {
    match &range.low {
        Bound::Included(low) => low.clone(),
        Bound::Excluded(low) => just_above(low),
        Bound::Unbounded => Vec::new(),
    }
}

fn count_in_block(block: &DataBlock, range: &KeyRange) -> Counts {
    let start = block.seek(&low_end(range), CommitTs::MAX);
    let past = match &range.high {
        Bound::Included(high) => block.seek(&just_above(high), CommitTs::MAX),
        Bound::Excluded(high) => block.seek(high, CommitTs::MAX),
        Bound::Unbounded => block.len(),
    };
    let all = past.saturating_sub(start);
    let looks = all.min(VERSIONS_LOOKED_AT);
    let mut counts = Counts::default();
    for i in (0..looks).map(|n| start + all * n / looks) {
        let is_newest = i == 0 || !block.same_key(i, i - 1);
        let is_delete = block.version(i).1.value.is_delete();
        // What is an older version's is no key's: it counts for a value, unless it is a delete.
        let entries = u64::from(is_newest || !is_delete);
        counts.add(Counts::new(u64::from(is_newest && !is_delete), u64::from(is_newest && is_delete), entries));
    }
    if looks < all {
        counts.entries += 1;
        counts = counts.times(all as f64 / looks as f64);
    }
    counts
}
