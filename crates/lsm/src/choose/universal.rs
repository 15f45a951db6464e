//! The shape `universal`: strands of about doubling size, each level below the first at most one.
//!
//! When level 0 has four strands, or as many bytes as four flushes, it is merged, together with each lower level, from above, that has hardly more than what is merged
//! already. So a byte is written about once each time that all there is doubles. If what lies above the bottom comes to twice as much as the bottom
//! (what was deleted may have left little of that), everything is merged.

use super::{BOTTOM, Choice, LEVEL_STRANDS, Situation};

/// A level that is larger than what is merged by one in so many bytes is still merged with it.
const SLACK_SHARE: u64 = 4;
/// What lies above the bottom may have so many times its bytes.
const UPPER_TIMES: u64 = 2;

pub(super) fn choose(now: &Situation<'_>) -> Option<Choice> {
    let top = now.of_level(0);
    let is_large = now.bytes(&top) >= now.flush_bytes.saturating_mul(LEVEL_STRANDS as u64);
    if now.strand_count(&top) < LEVEL_STRANDS && !(is_large && top.len() >= LEVEL_STRANDS) {
        return None;
    }
    let (inputs, level) = whole(now, &top);
    if inputs.iter().any(|i| now.run(*i).is_busy) || now.limit.is_some_and(|limit| level >= limit) {
        return among_top(now);
    }
    if let Some(&input) = top.iter().find(|i| now.is_movable(**i, level)) {
        return Some(Choice::Move { input, level });
    }
    Some(Choice::merge(inputs, level))
}

/// What is merged, and to which level.
fn whole(now: &Situation<'_>, top: &[usize]) -> (Vec<usize>, u8) {
    let upper: u64 = now.runs.iter().filter(|run| run.level < BOTTOM).map(|run| run.bytes).sum();
    let is_all = upper >= now.bytes(&now.of_level(BOTTOM)).saturating_mul(UPPER_TIMES);
    let mut inputs = top.to_vec();
    let mut bytes = now.bytes(top);
    for level in 1..=BOTTOM {
        let more = now.of_level(level);
        let more_bytes = now.bytes(&more);
        // With level 1 taken there is no other place.
        if !more.is_empty() && more_bytes > bytes + bytes / SLACK_SHARE && level > 1 && !is_all {
            return (inputs, level - 1);
        }
        bytes += more_bytes;
        inputs.extend(more);
    }
    (inputs, BOTTOM)
}

/// While what it would be merged with is being merged.
fn among_top(now: &Situation<'_>) -> Option<Choice> {
    let free = now.free_of_level(0);
    let is_due = now.policy.merges_at_top && now.strand_count(&free) >= LEVEL_STRANDS;
    is_due.then(|| Choice::merge(free, 0))
}
