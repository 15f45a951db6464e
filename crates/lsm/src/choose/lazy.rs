//! The shape `lazy`: a bottom that is one strand, above it levels of up to three.
//!
//! What is ingested is written once for each level and, with the bottom, about as often as the bottom is larger than what lies above it
//! may be; and there are few runs to look at for one key. In this order:
//!
//! 1. What lies above the bottom, if that is four runs and a third of what the bottom has: what overlaps nothing moves there, the rest is
//!    merged with what it overlaps.
//! 2. Four strands of one level: they become one of the next. The highest level first: it fills fastest.

use super::{BOTTOM, Choice, LEVEL_STRANDS, Situation};

/// What lies above the bottom may have one in so many bytes of what the bottom has.
const UPPER_SHARE: u64 = 3;

pub(super) fn choose(now: &Situation<'_>) -> Option<Choice> {
    let to_bottom = || if now.limit.is_none() { all_to_bottom(now) } else { None };
    to_bottom().or_else(|| (0..BOTTOM).find_map(|level| to_next(now, level)))
}

fn all_to_bottom(now: &Situation<'_>) -> Option<Choice> {
    let upper: Vec<usize> = now.places().filter(|i| now.run(*i).level < BOTTOM).collect();
    let is_large = now.bytes(&upper).saturating_mul(UPPER_SHARE) >= now.bytes(&now.of_level(BOTTOM));
    let is_due = upper.len() >= LEVEL_STRANDS && is_large;
    if !is_due || upper.iter().any(|i| now.run(*i).is_busy) {
        return None;
    }
    if let Some(&input) = upper.iter().find(|i| now.is_movable(**i, BOTTOM) && is_apart(now, **i, &upper)) {
        return Some(Choice::Move { input, level: BOTTOM });
    }
    Some(Choice::merge(now.with_level(upper, BOTTOM)?, BOTTOM))
}

/// True if none of the others above the bottom overlaps it.
fn is_apart(now: &Situation<'_>, i: usize, upper: &[usize]) -> bool {
    upper.iter().all(|j| i == *j || !now.run(i).overlaps(now.run(*j)))
}

fn to_next(now: &Situation<'_>, level: u8) -> Option<Choice> {
    let inputs = now.free_of_level(level);
    // The last level above the bottom has nowhere to go but itself.
    let next = (level + 1).min(BOTTOM - 1);
    (now.strand_count(&inputs) >= LEVEL_STRANDS && now.limit.is_none_or(|limit| next < limit))
        .then(|| Choice::merge(inputs, next))
}
