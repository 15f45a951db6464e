//! The shape `leveled`: every level below the first is one strand, and has a tenth of the next.
//!
//! Sizes are set from below ([`Targets`]): the bottom has what there is, each level above it a tenth, up to the base, into which four flushes
//! go at once. So nine tenths lie at the bottom, whatever the size, and levels above the base are empty.
//!
//! Of the levels that are fuller than they should be the fullest, by its share, gives: level 0 all it has, another one a run, with what they
//! overlap in the level that takes it. Which run: (1) the one below which the least lies for each byte, in quarters of what it has itself; of
//! those (2) the one with the most dead for its size, (3) the oldest. If level 0 cannot give, since a merge has what lies below it, its
//! runs are merged among themselves, so that readers do not find ever more of them.

use std::cmp::Reverse;

use super::{BOTTOM, Choice, LEVEL_STRANDS, Situation};

/// A level has one in so many bytes of the next one.
const RATIO: u64 = 10;
/// Shares of what a level should have, in thousandths.
const FULL: u64 = 1000;

/// What levels should have.
pub(super) struct Targets {
    /// The first level below level 0 that is in use.
    pub base: u8,
    bytes: [u64; BOTTOM as usize + 1],
}

impl Targets {
    /// For a largest level of so many bytes, and flushes of so many.
    pub fn of(size_bytes: u64, flush_bytes: u64) -> Self {
        let base_max = flush_bytes.saturating_mul(LEVEL_STRANDS as u64).max(1);
        let mut targets = Self { base: BOTTOM, bytes: [0; BOTTOM as usize + 1] };
        targets.bytes[usize::from(BOTTOM)] = u64::MAX;
        let mut bytes = size_bytes;
        while bytes > base_max && targets.base > 1 {
            bytes /= RATIO;
            targets.base -= 1;
            // A base much smaller than what is put into it at once would be passed through, not used.
            targets.bytes[usize::from(targets.base)] = bytes.max(base_max / 2);
        }
        targets
    }

    pub fn bytes(&self, level: u8) -> u64 {
        self.bytes[usize::from(level)]
    }

    /// How full it is, in thousandths.
    fn share(&self, level: u8, bytes: u64) -> u64 {
        bytes.saturating_mul(FULL) / self.bytes(level).max(1)
    }
}

pub(super) fn choose(now: &Situation<'_>) -> Option<Choice> {
    let targets = Targets::of(now.size_bytes, now.flush_bytes);
    let top = now.of_level(0);
    let top_bytes = now.flush_bytes.saturating_mul(LEVEL_STRANDS as u64).max(1);
    let top_share = (now.strand_count(&top) as u64 * FULL / LEVEL_STRANDS as u64)
        .max(now.bytes(&top).saturating_mul(FULL) / top_bytes);
    let share = |level: u8| if level == 0 { top_share } else { targets.share(level, now.bytes(&now.of_level(level))) };
    let mut levels: Vec<(u64, u8)> = (0..BOTTOM).map(|level| (share(level), level)).collect();
    levels.retain(|(share, _)| *share >= FULL);
    // Of equals the upper one.
    levels.sort_by_key(|(share, level)| (Reverse(*share), *level));
    let is_allowed = |choice: &Choice| now.limit.is_none_or(|limit| choice.level() < limit);
    levels.into_iter().find_map(|(_, level)| {
        let choice = if level == 0 { from_top(now, &targets) } else { from_level(now, &targets, level) };
        choice.filter(is_allowed).or_else(|| if level == 0 { among_top(now) } else { None })
    })
}

/// All of level 0 to the base, with what lies between, which is nothing unless the base has moved down.
fn from_top(now: &Situation<'_>, targets: &Targets) -> Option<Choice> {
    let upper: Vec<usize> = now.places().filter(|i| now.run(*i).level < targets.base).collect();
    if upper.iter().any(|i| now.run(*i).is_busy) {
        return None;
    }
    if let Some(&input) = upper.iter().find(|i| now.is_movable(**i, targets.base)) {
        return Some(Choice::Move { input, level: targets.base });
    }
    let inputs = now.with_level(upper, targets.base)?;
    Some(Choice::merge(inputs, targets.base))
}

/// What no merge has of level 0 becomes one run of it, if that is worth it.
fn among_top(now: &Situation<'_>) -> Option<Choice> {
    let free = now.free_of_level(0);
    let is_due = now.policy.merges_at_top && now.strand_count(&free) >= LEVEL_STRANDS;
    is_due.then(|| Choice::merge(free, 0))
}

/// One run of a level to the next, with what it overlaps.
fn from_level(now: &Situation<'_>, targets: &Targets, level: u8) -> Option<Choice> {
    let next = (level + 1).max(targets.base);
    let whole = |i: usize| {
        // More than itself only after another shape was left.
        let own = now.with_level(vec![i], level)?;
        now.with_level(own, next)
    };
    let candidates = now.free_of_level(level).into_iter().filter_map(|i| Some((i, whole(i)?)));
    let (input, inputs) = candidates.min_by_key(|(i, inputs)| {
        let run = now.run(*i);
        let size = run.bytes.max(1);
        let below = if now.policy.least_overlap { (now.bytes(inputs) - run.bytes).saturating_mul(4) / size } else { 0 };
        let dead = if now.policy.least_overlap { run.dead().saturating_mul(8) / run.entries.max(1) } else { run.bytes };
        (below, Reverse(dead), run.oldest, *i)
    })?;
    if inputs.len() == 1 && now.is_movable(input, next) {
        return Some(Choice::Move { input, level: next });
    }
    Some(Choice::merge(inputs, next))
}
