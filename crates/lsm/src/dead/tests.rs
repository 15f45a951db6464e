use std::collections::BTreeSet;

use store::{Budget, Class};
use vfs::random::Rng;

use super::*;

const KEYS: u64 = 200;

fn spans() -> DeadSpans {
    DeadSpans::new(Budget::new(1 << 30).charge(Class::Inner, 0), Vec::new(), 0)
}

fn key(n: u64) -> Vec<u8> {
    (n as u16).to_be_bytes().to_vec()
}

fn span(low: u64, high: Option<u64>, from: u64, worth: u64) -> Span {
    Span { low: key(low), high: high.map(key), from: CommitTs(from), worth }
}

fn learn(dead: &DeadSpans, span: Span) {
    let watch = dead.watch(&span.low);
    learn_bare(dead, watch, span);
}

/// Without anything behind its deletes.
fn learn_bare(dead: &DeadSpans, watch: Watch<'_>, span: Span) {
    let bare = span.high.clone().unwrap_or_else(|| vec![u8::MAX; 3]);
    dead.learn(watch, span, &bare);
}

fn put(dead: &DeadSpans, keys: &[u64]) {
    let keys: Vec<_> = keys.iter().map(|n| key(*n)).collect();
    dead.note_puts(keys.iter().map(Vec::as_slice));
}

/// The first of the keys at or above `place`.
fn at_or_above(place: &[u8]) -> u64 {
    u64::from(u16::from_be_bytes(place[..2].try_into().expect("two bytes"))) + u64::from(place.len() > 2)
}

/// The next key that a reader at `at` looks at who comes to `n`.
fn up(dead: &DeadSpans, mut n: u64, at: u64) -> Option<u64> {
    while n < KEYS {
        match dead.behind(&key(n), CommitTs(at)) {
            None => return Some(n),
            Some(behind) => n = behind.map_or(KEYS, |behind| at_or_above(&behind)),
        }
    }
    None
}

/// The same downwards.
fn down(dead: &DeadSpans, n: u64, at: u64) -> Option<u64> {
    let mut below = Bound::Included(key(n));
    loop {
        if let Some(low) = dead.below(&below, CommitTs(at)) {
            below = Bound::Excluded(low);
        }
        let next = match &below {
            Bound::Included(key) => at_or_above(key),
            Bound::Excluded(key) => at_or_above(key).checked_sub(1)?,
            Bound::Unbounded => KEYS - 1,
        };
        below = Bound::Included(key(next));
        if dead.below(&below, CommitTs(at)).is_none() {
            return Some(next);
        }
    }
}

/// Against a map from each key to the moment from which on it is dead.
#[test]
fn spans_say_what_was_learned_and_not_put_since() {
    for seed in 0..200 {
        let (mut rng, dead) = (Rng::new(seed), spans());
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for step in 0..60 {
            let (a, b) = (rng.below(KEYS), rng.below(KEYS));
            let (low, high) = (a.min(b), a.max(b) + 1);
            match rng.below(4) {
                0 | 1 => {
                    // A learner, and whoever puts beside him; a span without an end reaches over all keys.
                    let (from, ends) = (1 + rng.below(50), rng.chance(0.9));
                    let watch = dead.watch(&key(low));
                    let puts: BTreeSet<u64> = (0..rng.below(3)).map(|_| rng.below(KEYS)).collect();
                    put(&dead, &puts.iter().copied().collect::<Vec<_>>());
                    model.retain(|n, _| !puts.contains(n));
                    dead.learn(watch, span(low, ends.then_some(high), from, 10), &key(rng.below(KEYS)));
                    let end = if ends { high } else { KEYS };
                    let end = puts.range(low..end).next().copied().unwrap_or(end);
                    (low..end).for_each(|n| {
                        model.entry(n).or_insert(from);
                    });
                }
                2 => {
                    put(&dead, &[a]);
                    model.remove(&a);
                }
                _ if rng.chance(0.2) => {
                    dead.note_range(&key(low), &key(high - 1));
                    model.retain(|n, _| !(low..high).contains(n));
                }
                _ => {}
            }
            for n in 0..KEYS {
                let at = rng.below(60);
                let is_dead = |n: &u64| model.get(n).is_some_and(|from| *from <= at);
                assert_eq!(up(&dead, n, at), (n..KEYS).find(|n| !is_dead(n)), "seed {seed} step {step}: {dead:?}");
                let below = (0..=n).rev().find(|n| !is_dead(n));
                assert_eq!(down(&dead, n, at), below, "seed {seed} step {step}: {dead:?}");
            }
            // What the manifest keeps says the same.
            let again = DeadSpans::new(Budget::new(1 << 30).charge(Class::Inner, 0), dead.copy(), 0);
            for n in 0..KEYS {
                assert_eq!(again.behind(&key(n), CommitTs(n % 60)), dead.behind(&key(n), CommitTs(n % 60)));
            }
        }
    }
}

#[test]
fn they_are_few_and_those_go_that_spare_least() {
    let budget = Budget::new(1 << 30);
    let dead = DeadSpans::new(budget.charge(Class::Inner, 0), Vec::new(), 0);
    // All of it dead, learned in pieces of one moment each: beyond the bound they are one.
    (0..3000).for_each(|n| learn(&dead, span(n, Some(n + 1), n, 5)));
    assert!(dead.len() <= SPANS_MAX, "{}", dead.len());
    assert_eq!(dead.behind(&key(0), CommitTs::MAX), Some(Some(key(3000))));
    // Rows are put back all over it. The largest part stays known.
    (0..2500).for_each(|n| put(&dead, &[n]));
    assert!(dead.len() <= SPANS_MAX, "{}", dead.len());
    assert_eq!(dead.behind(&key(2500), CommitTs::MAX), Some(Some(key(3000))));
    assert_eq!(dead.behind(&key(2499), CommitTs::MAX), None);
    assert!(budget.total() > 0);
    dead.clear();
    assert_eq!((dead.len(), budget.total()), (0, 0));
}

#[test]
fn a_put_splits_what_a_span_spares() {
    let dead = spans();
    learn(&dead, span(0, Some(1000), 7, 10_000));
    put(&dead, &[100]);
    let worths: Vec<u64> = dead.copy().iter().map(|span| span.worth).collect();
    assert!((900..1100).contains(&worths[0]) && (8900..9100).contains(&worths[1]), "{worths:?}");
}

/// Guard: both bounds in `hint` and `hint_again`.
#[test]
fn hints_are_few_however_they_come() {
    let dead = spans();
    let hint = |n: u64| Hint { low: key(n), last: key(n + 1), ts: CommitTs(n), deletes: 2 };
    // Who follows one has it out while others come, and gives it back.
    for n in 0..3 * HINTS_MAX as u64 {
        let taken = dead.take_hint();
        dead.hint(hint(n));
        dead.hint(hint(n));
        taken.into_iter().for_each(|hint| dead.hint_again(hint));
    }
    assert_eq!(std::iter::from_fn(|| dead.take_hint()).count(), HINTS_MAX);
}

/// Commits that append beside a learner take no latch of their own. Guard: what the watch was told, in `Spans::is_met`.
#[test]
fn a_watch_is_told_once_of_what_comes_behind_a_put() {
    let dead = spans();
    let watch = dead.watch(&key(10));
    let is_met = |n: u64| dead.spans.read().is_met(&key(n));
    assert!(!is_met(9) && is_met(10) && is_met(50));
    put(&dead, &[50]);
    assert!(is_met(10) && is_met(49) && !is_met(50) && !is_met(51));
    put(&dead, &[40]);
    assert!(is_met(39) && !is_met(40));
    learn_bare(&dead, watch, span(10, None, 7, 100));
    assert_eq!(dead.behind(&key(10), CommitTs(7)), Some(Some(key(40))));
}

/// Guard: `bound` inside the loop of `note_puts`.
#[test]
fn one_batch_leaves_few_at_every_moment() {
    let dead = spans();
    learn(&dead, span(0, Some(60_000), 7, 60_000));
    put(&dead, &(0..60_000).step_by(7).collect::<Vec<_>>());
    let most = dead.spans.read().most;
    assert!(dead.len() <= SPANS_MAX && most <= SPANS_MAX + 4, "{most}");
}

/// Guards: `keep`; the share of a span without an end.
#[test]
fn what_is_appended_leaves_the_worth_where_the_deletes_are() {
    let dead = DeadSpans::new(Budget::new(1 << 30).charge(Class::Inner, 0), Vec::new(), 17);
    // A span of a state, without an end; of a learner, with one far behind the last delete.
    let known = DeadSpans::new(Budget::new(1 << 30).charge(Class::Inner, 0), vec![span(0, None, 7, 10_000)], 17);
    (1000..3000).for_each(|n| put(&known, &[n]));
    assert_eq!(known.copy(), [span(0, Some(1000), 7, 10_000)]);
    dead.learn(dead.watch(&key(0)), span(0, Some(60_000), 7, 10_000), &key(1000));
    assert_eq!(dead.behind(&key(0), CommitTs(7)), Some(Some(key(60_000))));
    (1000..3000).for_each(|n| put(&dead, &[n]));
    assert_eq!(dead.copy(), [span(0, Some(1000), 7, 10_000)]);
    // Both parts are kept if they are worth it, and none of two that are not.
    put(&dead, &[500]);
    assert_eq!(dead.len(), 2);
    learn(&dead, span(4000, Some(4020), 7, 20));
    put(&dead, &[4010]);
    assert_eq!(dead.len(), 2);
}
