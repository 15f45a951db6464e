//! A set of sector numbers as ranges: which sectors of a file have space of their own.

use std::collections::BTreeMap;

/// Ranges `start..end`, not empty, not touching.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// How many sectors are in the set.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// How many of `start..end` are not in the set.
    pub(super) fn missing(&self, start: u64, end: u64) -> u64 {
        let held: u64 = self.overlapping(start, end).map(|(s, e)| e.min(end) - s.max(start)).sum();
        end.saturating_sub(start) - held
    }

    /// Adds `start..end`.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        // Ranges that only touch are joined too, hence one further on both sides.
        let joined: Vec<_> = self.overlapping(start.saturating_sub(1), end + 1).collect();
        let first = joined.first().map_or(start, |range| range.0.min(start));
        let last = joined.last().map_or(end, |range| range.1.max(end));
        for (s, _) in joined {
            self.0.remove(&s);
        }
        self.0.insert(first, last);
    }

    /// Takes `start..end` out.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let hit: Vec<_> = self.overlapping(start, end).collect();
        for (s, e) in hit {
            self.0.remove(&s);
            if s < start {
                self.0.insert(s, start);
            }
            if end < e {
                self.0.insert(end, e);
            }
        }
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.0.range(..=start).next_back().map_or(start, |(s, _)| *s);
        self.0.range(before..end.max(before)).map(|(s, e)| (*s, *e)).filter(move |(_, e)| *e > start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    #[test]
    fn agrees_with_a_plain_set() {
        const SECTORS: u64 = 40;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut ranges, mut plain) = (Ranges::default(), [false; SECTORS as usize]);
            for _ in 0..30 {
                let (a, b) = (rng.below(SECTORS), rng.below(SECTORS + 1));
                let (start, end) = (a.min(b), a.max(b));
                let span = &mut plain[start as usize..end as usize];
                assert_eq!(ranges.missing(start, end), span.iter().filter(|held| !**held).count() as u64);
                let add = rng.chance(0.6);
                span.fill(add);
                if add {
                    ranges.insert(start, end)
                } else {
                    ranges.remove(start, end)
                }
                assert_eq!(ranges.count(), plain.iter().filter(|held| **held).count() as u64);
                let runs = plain.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
                assert_eq!(ranges.0.len(), runs, "joined where they touch: {ranges:?}");
            }
        }
    }
}
