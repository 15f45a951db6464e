//! Which runs are merged next: a pure function of what is known of them.
//!
//! A level is a list of runs ordered by key, [`strand`](crate::strand)s of it where they overlap. Flushes and attached runs make runs of
//! level 0, the bottom is [`BOTTOM`]; what lies between them, and when a level is too full, is the shape's ([`Shape`]):
//!
//! | | level 0 | between | bottom |
//! |---|---|---|---|
//! | [`lazy`] | four strands become one of level 1 | the same, to the next level | takes everything above it that comes to a third of it |
//! | [`leveled`] | four strands go to the base | one strand each, a tenth of the next; of one that is larger a run goes down | takes what comes |
//! | [`universal`] | four strands, with every lower level no larger than what is merged already | one strand each | the same |
//!
//! Before that, in every shape: what has expired ([`index::expiry`]). A run of which nothing is left goes without being read, whoever is busy (`jobs.rs`); one of which half
//! has, by its lowest and highest timestamp, is written anew for itself: no key of it need meet another version, and each version is on disk for half
//! as long again as it lives, at most. Then deletes. Where what is dead is much of what lives, and everybody sees it, all that lies there is merged, and both
//! are gone. After that: small runs that lie side by side become larger ones. Last, whatever lies above the bottom goes there once ranges that were
//! read in more than one strand have cost as much as that merge will: so what is read much is in one strand, what is only written is not written more
//! often for readers that do not come, and both together cost at most twice what would have been best had it been known before
//! (the ski rental problem; Karlin, Manasse, Rudolph, Sleator, 1988).
//!
//! A run that would be merged with nothing is moved: its blocks stay where they are. That, and how a merge goes on piece by piece, is the
//! worker's (`maintenance.rs`). Order among versions is by timestamp, so no choice can be wrong, only dear.
//!
//! Runs of a merge under way are left out, and while there is one only merges to a lower level are chosen: so they never meet, and what
//! readers wait for goes on beside a long one.

use base::CommitTs;
use index::{LevelCompression, MergePolicy, Shape};
use store::Compression;

use crate::strand::lay_apart;

mod lazy;
mod leveled;
mod split;
#[cfg(test)]
mod tests;
mod universal;

pub(crate) use split::split_key;

/// The lowest level, whatever lies above it.
pub(crate) const BOTTOM: u8 = 7;
/// Strands of level 0, and of the levels of `lazy`, that are merged.
const LEVEL_STRANDS: usize = 4;
/// Deleted keys, or versions beside the newest, for one live one: one in so many.
const DEAD_SHARE: u64 = 4;
/// A run is written anew once so much of it has expired.
const EXPIRED_SHARE: f64 = 0.5;
/// A strand more for a range to begin in takes about as long as merging so many bytes.
pub(crate) const STRAND_BYTES: u64 = 64;
/// So many runs side by side that are less than half of what a merge writes become one.
const SMALL_RUNS: usize = 8;

/// What the choice goes by, of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub level: u8,
    pub bytes: u64,
    pub entries: u64,
    pub live: u64,
    /// Its first key and its last one.
    pub keys: (&'a [u8], &'a [u8]),
    pub oldest: CommitTs,
    pub newest: CommitTs,
    /// A merge has it.
    pub is_busy: bool,
    /// A merge for the sake of what is dead could not drop it.
    pub is_unpurged: bool,
}

impl Candidate<'_> {
    fn dead(&self) -> u64 {
        self.entries - self.live
    }

    fn overlaps(&self, other: &Candidate<'_>) -> bool {
        self.keys.0 <= other.keys.1 && other.keys.0 <= self.keys.1
    }

    /// About how much of it has expired if all at or below the cut has.
    fn expired_share(&self, cut: CommitTs) -> f64 {
        share_at_or_below(cut, self.oldest, self.newest)
    }

    /// Where so little is live that it may pay to look closer.
    fn is_dense(&self) -> bool {
        self.dead() > 0 && self.dead().saturating_mul(DEAD_SHARE) >= self.live
    }
}

/// What the choice goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub runs: &'a [Candidate<'a>],
    pub shape: Shape,
    pub policy: MergePolicy,
    pub compression: LevelCompression,
    /// Bytes that a flush writes, about; and of a run that a merge writes.
    pub flush_bytes: u64,
    pub run_bytes: u64,
    /// Of the largest level below the first: moves slowly ([`damped`]).
    pub size_bytes: u64,
    /// What ranges have cost beside what they would in one strand, since the last merge for their sake, as bytes merged.
    pub range_bytes: u64,
    /// For everybody all at or below has expired.
    pub expired: CommitTs,
    /// Everybody sees what is at or below this, and all of it lies in runs.
    pub settled: CommitTs,
    /// The lowest level that a merge under way writes to.
    pub limit: Option<u8>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// These of the candidates, ascending, become runs of a level.
    Merge {
        inputs: Vec<usize>,
        level: u8,
        /// For the sake of what is dead.
        is_purge: bool,
        /// For the sake of ranges.
        is_for_ranges: bool,
    },
    /// It becomes one of another level as it is.
    Move { input: usize, level: u8 },
}

impl Choice {
    fn merge(mut inputs: Vec<usize>, level: u8) -> Self {
        inputs.sort_unstable();
        Choice::Merge { inputs, level, is_purge: false, is_for_ranges: false }
    }

    fn level(&self) -> u8 {
        match self {
            Choice::Merge { level, .. } | Choice::Move { level, .. } => *level,
        }
    }
}

/// About how many of the versions between two timestamps lie at or below a cut: as if they lay evenly in the log.
pub(crate) fn share_at_or_below(cut: CommitTs, oldest: CommitTs, newest: CommitTs) -> f64 {
    if cut < oldest || cut == CommitTs::ZERO {
        return 0.0;
    }
    ((cut.0 - oldest.0 + 1) as f64 / (newest.0 - oldest.0 + 1) as f64).min(1.0)
}

/// The next merge or move; none if everything is in shape.
pub(crate) fn choose(now: &Situation<'_>) -> Option<Choice> {
    let is_idle = now.limit.is_none();
    let shaped = || match now.shape {
        Shape::Lazy => lazy::choose(now),
        Shape::Leveled => leveled::choose(now),
        Shape::Universal => universal::choose(now),
    };
    let purge = || if is_idle { now.purge() } else { None };
    let small = || if is_idle { now.join_small() } else { None };
    let for_ranges = || if is_idle { now.merge_for_ranges() } else { None };
    let expired = || if is_idle { now.expire() } else { None };
    let choice = expired().or_else(purge).or_else(shaped).or_else(small).or_else(for_ranges)?;
    now.limit.is_none_or(|limit| choice.level() < limit).then_some(choice)
}

/// The size that targets go by: towards the real one, a tenth a step at most, so that they do not jump when a level does.
pub(crate) fn damped(before: u64, actual: u64) -> u64 {
    if before == 0 { actual } else { actual.clamp(before - before / 10, before + before / 10 + 1) }
}

/// The compression of runs of a level.
pub(crate) fn compression_of(levels: LevelCompression, level: u8) -> Compression {
    match level {
        0 => levels.top,
        BOTTOM.. => levels.bottom,
        _ => levels.middle,
    }
}

/// What has to be written before everything is in shape, of (level, bytes of each strand): strands beyond twice as many as are
/// merged, and of a shape that gives levels sizes, what lies beyond twice of these.
pub(crate) fn debt(strands: &[(u8, u64)], shape: Shape, flush_bytes: u64) -> u64 {
    let mut sum = 0;
    for level in 0..=BOTTOM {
        let of_level: Vec<u64> = strands.iter().filter(|(l, _)| *l == level).map(|(_, bytes)| *bytes).collect();
        sum += of_level.iter().skip(2 * LEVEL_STRANDS).sum::<u64>();
    }
    if shape == Shape::Leveled {
        let bytes = |level| strands.iter().filter(|(l, _)| *l == level).map(|(_, bytes)| *bytes).sum::<u64>();
        let targets = leveled::Targets::of((1..=BOTTOM).map(bytes).max().unwrap_or(0), flush_bytes);
        let beyond = |level| bytes(level).saturating_sub(targets.bytes(level).saturating_mul(2));
        sum += (targets.base..BOTTOM).map(beyond).sum::<u64>();
    }
    sum
}

impl<'a> Situation<'a> {
    fn run(&self, i: usize) -> &Candidate<'a> {
        &self.runs[i]
    }

    fn places(&self) -> impl Iterator<Item = usize> + use<'a> {
        0..self.runs.len()
    }

    fn of_level(&self, level: u8) -> Vec<usize> {
        self.places().filter(|i| self.runs[*i].level == level).collect()
    }

    /// Those that no merge has.
    fn free_of_level(&self, level: u8) -> Vec<usize> {
        self.places().filter(|i| self.runs[*i].level == level && !self.runs[*i].is_busy).collect()
    }

    fn bytes(&self, of: &[usize]) -> u64 {
        of.iter().map(|i| self.runs[*i].bytes).sum()
    }

    /// How many strands these of one level make.
    fn strand_count(&self, of: &[usize]) -> usize {
        lay_apart(&of.iter().map(|i| self.runs[*i].keys).collect::<Vec<_>>()).len()
    }

    /// With the runs of `level` that any of them overlaps; none if a merge has one of these.
    fn with_level(&self, mut inputs: Vec<usize>, level: u8) -> Option<Vec<usize>> {
        let is_met = |i: &usize| inputs.iter().any(|input| self.run(*input).overlaps(self.run(*i)));
        let met: Vec<usize> = self.of_level(level).into_iter().filter(|i| !inputs.contains(i) && is_met(i)).collect();
        if met.iter().any(|i| self.run(*i).is_busy) {
            return None;
        }
        inputs.extend(met);
        Some(inputs)
    }

    /// True if the run can become one of `level` as it is: its blocks are what they would be there, and nothing overlaps it on its own
    /// level and below it down to there.
    fn is_movable(&self, i: usize, level: u8) -> bool {
        let run = self.run(i);
        let is_between = |other: &Candidate<'_>| (run.level..=level).contains(&other.level);
        let is_alone = self.places().all(|j| i == j || !is_between(self.run(j)) || !run.overlaps(self.run(j)));
        let is_as_there = compression_of(self.compression, run.level) == compression_of(self.compression, level);
        run.level < level && !run.is_busy && is_as_there && is_alone
    }

    /// The run of which most has expired, if that is half of it.
    fn expire(&self) -> Option<Choice> {
        let expired = |i: &usize| self.run(*i).expired_share(self.expired);
        let due = self.places().filter(|i| !self.run(*i).is_busy && expired(i) >= EXPIRED_SHARE);
        let most = due.max_by(|a, b| expired(a).total_cmp(&expired(b)))?;
        Some(Choice::merge(vec![most], self.run(most).level))
    }

    /// Where what is dead is much: a run, and all that everybody sees of what overlaps it.
    fn purge(&self) -> Option<Choice> {
        let is_due = |i: &usize| {
            let run = self.run(*i);
            run.is_dense() && !run.is_busy && !run.is_unpurged && run.newest <= self.settled
        };
        self.places().filter(is_due).find_map(|i| self.purge_of(i))
    }

    fn purge_of(&self, i: usize) -> Option<Choice> {
        let run = self.run(i);
        let over: Vec<usize> = self.places().filter(|j| self.run(*j).overlaps(run)).collect();
        // Of what is left out nothing may be older than anything in it.
        let mut below = self.settled;
        loop {
            let out = over.iter().map(|j| self.run(*j)).filter(|other| other.newest > below);
            let oldest = out.map(|other| other.oldest).min().unwrap_or(CommitTs::MAX);
            if oldest > below {
                break;
            }
            below = CommitTs(oldest.0.saturating_sub(1));
        }
        let inputs: Vec<usize> = over.into_iter().filter(|j| self.run(*j).newest <= below).collect();
        if !inputs.contains(&i) || inputs.iter().any(|j| self.run(*j).is_busy) {
            return None;
        }
        let level = inputs.iter().map(|j| self.run(*j).level).max()?;
        let mut inputs = if level == 0 { inputs } else { self.with_level(inputs, level)? };
        // Of all that is rewritten: a small run over many others brings these along.
        let sum = |of: fn(&Candidate<'_>) -> u64| inputs.iter().map(|j| of(self.run(*j))).sum::<u64>();
        if sum(|run| run.dead()).saturating_mul(DEAD_SHARE) < sum(|run| run.live) {
            return None;
        }
        inputs.sort_unstable();
        Some(Choice::Merge { inputs, level, is_purge: true, is_for_ranges: false })
    }

    /// All that lies above the bottom, with what it overlaps there, if ranges have paid for it.
    fn merge_for_ranges(&self) -> Option<Choice> {
        let all: Vec<usize> = self.places().collect();
        let upper: Vec<usize> = all.iter().copied().filter(|i| self.run(*i).level < BOTTOM).collect();
        if self.range_bytes == 0 || self.strand_count(&all) < 2 || upper.iter().any(|i| self.run(*i).is_busy) {
            return None;
        }
        let mut inputs = self.with_level(upper, BOTTOM)?;
        if self.range_bytes < self.bytes(&inputs) {
            return None;
        }
        inputs.sort_unstable();
        Some(Choice::Merge { inputs, level: BOTTOM, is_purge: false, is_for_ranges: true })
    }

    /// Small runs that lie side by side in a strand.
    fn join_small(&self) -> Option<Choice> {
        let is_small = |i: &usize| self.run(*i).bytes * 2 < self.run_bytes;
        for level in 0..=BOTTOM {
            let of_level = self.free_of_level(level);
            if of_level.iter().filter(|i| is_small(i)).count() < SMALL_RUNS {
                continue;
            }
            let keys: Vec<_> = of_level.iter().map(|i| self.run(*i).keys).collect();
            for strand in lay_apart(&keys) {
                let strand: Vec<usize> = strand.into_iter().map(|i| of_level[i]).collect();
                let longest = strand.split(|i| !is_small(i)).max_by_key(|small| small.len());
                if let Some(small) = longest.filter(|small| small.len() >= SMALL_RUNS) {
                    return Some(Choice::merge(small.to_vec(), level));
                }
            }
        }
        None
    }
}
