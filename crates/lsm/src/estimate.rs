//! About how many keys lie in a range, and keys that cut the index: from the counts of leaves and blocks.
//!
//! Source by source, the oldest first: what is deleted takes away from what older sources have, what lives adds to it. A key that two
//! sources have counts twice. Of a run of which a part has expired as much counts as lies above the cut, if its versions lie evenly in the log.
//!
//! A query planner asks before each query, so what it takes hangs on the number of sources and not on what lies in the range: of what lies in it whole some
//! stand for all ([`of_some`]), and blocks at its ends are looked into only where they may matter ([`ENOUGH`]).

use std::ops::{Bound, Range};

use base::{CommitTs, Result};
use index::damaged::just_above;
use index::expiry::has_expired;
use index::{KeyRange, ReadAt};
use store::KeyHash;

use crate::block::DataBlock;
use crate::choose::share_at_or_below;
use crate::index_block::{IndexBlock, Named};
use crate::lsm::Core;
use crate::run::Run;
use crate::slot::Slot;

/// Partitions whose counts are added up one by one; of more, the share of the run's that they are.
const COUNTED_MAX: usize = 1024;
/// Blocks or leaves that are looked at; if there are more, in as many equal parts of them one.
const LOOKS: usize = 8;
/// Where so many blocks, or partitions, lie in the range whole, half of each of the two at its ends is taken, unread.
const ENOUGH: usize = 16;
/// Versions at an end of the range that are looked at one by one; of more, as many of their keys live as in all of the block.
const COUNTED_VERSIONS: usize = 64;
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
    /// Some version is a value: somebody may see one that is not its key's newest.
    pub has_value: bool,
}

impl Counts {
    fn new(live: u64, deleted: u64, entries: u64) -> Self {
        Self { live, deleted, has_value: entries > deleted }
    }

    fn of_block(named: &Named<'_>) -> Self {
        Self::new(named.live.into(), named.deleted.into(), named.entries.into())
    }

    pub fn add(&mut self, other: Self) {
        self.live += other.live;
        self.deleted += other.deleted;
        self.has_value |= other.has_value;
    }

    /// A share of it, or a multiple.
    fn times(self, share: f64) -> Self {
        let of = |n: u64| (n as f64 * share).round() as u64;
        Self { live: of(self.live), deleted: of(self.deleted), ..self }
    }
}

/// The counts of many neighbours: of all if they are few, otherwise of the middle ones of equal parts, which stand for the others.
pub(crate) fn of_some(of: Range<usize>, mut count: impl FnMut(usize) -> Counts) -> Counts {
    let looks = of.len().min(LOOKS);
    let mut sum = Counts::default();
    (0..looks).for_each(|n| sum.add(count(of.start + of.len() * (2 * n + 1) / (2 * looks))));
    if looks == of.len() {
        return sum;
    }
    // That there is no value is only said of all.
    Counts { has_value: true, ..sum.times(of.len() as f64 / looks as f64) }
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
            has_value |= counts.has_value;
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
            add(Counts { live, deleted: estimate.deletes, has_value: estimate.puts > 0 });
        }
        for table in sources.sealed.iter().chain([&sources.active]).filter(|table| !has_expired(table.newest(), cuts.1))
        {
            add(table.count(range));
        }
        Ok(if has_value { sum.max(1) } else { 0 })
    }

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
        let whole = whole(first..past, !range.is_below(&parts[first].info.key), end(past - 1).is_within(range));
        let mut counts = Counts::default();
        if whole.len() > COUNTED_MAX {
            // As far as they are like the others of the run.
            let all = Counts::new(run.info.live, run.info.deleted, run.info.entries);
            counts.add(all.times(whole.len() as f64 / parts.len() as f64));
        } else {
            for part in &parts[whole.clone()] {
                counts.add(Counts::new(part.info.live, part.info.deleted, part.info.entries));
            }
        }
        for i in at_the_ends(first..past, &whole) {
            let info = &parts[i].info;
            counts.add(if whole.len() >= ENOUGH {
                Counts::new(info.live, info.deleted, info.entries).times(0.5)
            } else {
                self.count_in_partition(&*parts[i].share(&self.env)?, end(i), whole.len(), range)?
            });
        }
        Ok(counts)
    }

    /// The same of a partition that ends there, where beside it so many lie in the range whole.
    fn count_in_partition(&self, index: &IndexBlock, end: End<'_>, beside: usize, range: &KeyRange) -> Result<Counts> {
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
        let end = |i: usize| if i + 1 < index.len() { End::Before(index.first_version(i + 1).0) } else { end };
        let whole = whole(first..past, !range.is_below(index.first_version(first).0), end(past - 1).is_within(range));
        let mut counts = of_some(whole.clone(), |i| Counts::of_block(&index.get(i)));
        for i in at_the_ends(first..past, &whole) {
            let named = index.get(i);
            let may_reach = match end(i) {
                End::Before(next) => *next > *low || (*next == *low && named.may_have(KeyHash::of(next))),
                End::At(last) => *last >= *low,
            };
            if !may_reach {
                continue;
            }
            counts.add(if beside > 0 || whole.len() >= ENOUGH {
                Counts::of_block(&named).times(0.5)
            } else {
                count_in_block(&*Slot { index, at: i }.load(&self.env, || self.counters.count_load())?, &named, range)
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

/// Where a part of a run ends: before the next one's first key, or at its own last one.
#[derive(Clone, Copy)]
enum End<'a> {
    Before(&'a [u8]),
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
fn whole(of: Range<usize>, is_first: bool, is_last: bool) -> Range<usize> {
    let start = of.start + usize::from(!is_first);
    start..(of.end - usize::from(!is_last)).max(start)
}

/// The others.
fn at_the_ends(of: Range<usize>, whole: &Range<usize>) -> impl Iterator<Item = usize> + use<> {
    (of.start..whole.start.min(of.end)).chain(whole.end.min(of.end)..of.end)
}

/// No key of the range is below.
fn low_end(range: &KeyRange) -> Vec<u8> {
    match &range.low {
        Bound::Included(low) => low.clone(),
        Bound::Excluded(low) => just_above(low),
        Bound::Unbounded => Vec::new(),
    }
}

fn count_in_block(block: &DataBlock, named: &Named<'_>, range: &KeyRange) -> Counts {
    let start = block.seek(&low_end(range), CommitTs::MAX);
    let past = match &range.high {
        Bound::Included(high) => block.seek(&just_above(high), CommitTs::MAX),
        Bound::Excluded(high) => block.seek(high, CommitTs::MAX),
        Bound::Unbounded => block.len(),
    };
    if past.saturating_sub(start) > COUNTED_VERSIONS {
        return Counts::of_block(named).times((past - start) as f64 / block.len() as f64);
    }
    let mut counts = Counts::default();
    for i in start..past {
        let is_newest = i == 0 || !block.same_key(i, i - 1);
        let is_delete = block.version(i).1.value.is_delete();
        counts.live += u64::from(is_newest && !is_delete);
        counts.deleted += u64::from(is_newest && is_delete);
        counts.has_value |= !is_delete;
    }
    counts
}
