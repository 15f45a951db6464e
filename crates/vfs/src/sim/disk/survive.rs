//! What a power cut leaves: pure, by seed.
//!
//! Every unsynced page, length and name may survive or not. If each were decided alone by a coin, the interesting
//! images (all but one, a prefix, nothing) would never come up once there are many; so the seed first draws a mood
//! for the whole cut.

use std::sync::Arc;

use base::limits::SECTOR_BYTES;

use super::inode::Page;
use crate::random::Rng;

/// A torn sector is a mix of pieces of this size.
const PIECE_BYTES: usize = 512;

/// Decides for one cut.
#[derive(Debug)]
pub(super) struct Fate {
    rng: Rng,
    mood: Mood,
    torn_odds: f64,
    /// Sectors decided so far.
    decided: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mood {
    Nothing,
    Everything,
    /// Each with these odds.
    Each(f64),
    /// In order of writing, up to this number.
    Until(u64),
    /// All the same but one sector.
    OddOneOut {
        odd: usize,
        rest_kept: bool,
    },
}

impl Fate {
    /// `unsynced`: the numbers of all unsynced writes; `sectors`: how many sectors have some.
    pub(super) fn new(seed: u64, unsynced: &[u64], sectors: usize, torn_writes: bool) -> Self {
        let mut rng = Rng::new(seed);
        let odds = [0.05, 0.5, 0.95][rng.index(3)];
        let mood = match rng.below(10) {
            0 => Mood::Nothing,
            1 => Mood::Everything,
            2..=4 => Mood::Each(odds),
            5..=7 if !unsynced.is_empty() => Mood::Until(unsynced[rng.index(unsynced.len())]),
            _ if sectors > 0 => Mood::OddOneOut { odd: rng.index(sectors), rest_kept: rng.chance(0.5) },
            _ => Mood::Each(odds),
        };
        Self { rng, mood, torn_odds: if torn_writes { 0.15 } else { 0.0 }, decided: 0 }
    }

    /// The page that is found in a sector.
    pub(super) fn page(&mut self, durable: &Page, unsynced: &[(u64, Page)]) -> Page {
        if unsynced.is_empty() {
            return durable.clone();
        }
        let nth = self.decided;
        self.decided += 1;
        // State 0 is the durable one, state n the n-th unsynced.
        let numbers: Vec<_> = unsynced.iter().map(|(number, _)| *number).collect();
        let state_of = |state: usize| if state == 0 { durable } else { &unsynced[state - 1].1 };
        let chosen = self.state(&numbers, Some(nth));
        let may_tear = match self.mood {
            Mood::Nothing | Mood::Everything => false,
            Mood::OddOneOut { odd, .. } => odd == nth,
            // The write at the edge was going on when the power went.
            Mood::Until(number) => numbers.contains(&number),
            Mood::Each(_) => true,
        };
        if !may_tear || !self.rng.chance(self.torn_odds) {
            return state_of(chosen).clone();
        }
        let other = self.rng.index(unsynced.len() + 1);
        self.torn(state_of(chosen), state_of(if other == chosen { 0 } else { other }))
    }

    /// The length that is found.
    pub(super) fn len(&mut self, durable: u64, unsynced: &[(u64, u64)]) -> u64 {
        let numbers: Vec<_> = unsynced.iter().map(|(number, _)| *number).collect();
        match self.state(&numbers, None) {
            0 => durable,
            state => unsynced[state - 1].1,
        }
    }

    /// How many of these changes of names, in order, are found done.
    pub(super) fn names(&mut self, unsynced: &[u64]) -> usize {
        match self.mood {
            Mood::Each(_) => self.rng.index(unsynced.len() + 1),
            _ => self.state(unsynced, None),
        }
    }

    /// How many of the changes with these numbers, ascending, the result has gone through.
    fn state(&mut self, numbers: &[u64], nth_sector: Option<usize>) -> usize {
        let all = numbers.len();
        match self.mood {
            Mood::Nothing => 0,
            Mood::Everything => all,
            Mood::Until(last) => numbers.partition_point(|number| *number <= last),
            Mood::OddOneOut { odd, rest_kept } => {
                if (nth_sector == Some(odd)) == rest_kept {
                    0
                } else {
                    all
                }
            }
            Mood::Each(odds) if self.rng.chance(odds) => {
                // Mostly the last, now and then one that was overwritten since.
                if self.rng.chance(0.75) { all } else { self.rng.index(all + 1) }
            }
            Mood::Each(_) => 0,
        }
    }

    /// A mix of two pages; in some tears, pieces of neither.
    fn torn(&mut self, one: &Page, other: &Page) -> Page {
        const ZEROES: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
        let mut mixed = one.as_ref().map_or(ZEROES, |page| **page);
        let other = other.as_ref().map_or(ZEROES, |page| **page);
        let damage_odds = if self.rng.chance(0.3) { 0.4 } else { 0.0 };
        for at in (0..SECTOR_BYTES).step_by(PIECE_BYTES) {
            let piece = &mut mixed[at..at + PIECE_BYTES];
            if self.rng.chance(damage_odds) {
                piece.chunks_mut(8).for_each(|bytes| bytes.copy_from_slice(&self.rng.u64().to_le_bytes()));
            } else if self.rng.chance(0.5) {
                piece.copy_from_slice(&other[at..at + PIECE_BYTES]);
            }
        }
        Some(Arc::new(mixed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn page(byte: u8) -> Page {
        Some(Arc::new([byte; SECTOR_BYTES]))
    }

    fn whole(page: &Page) -> Option<u8> {
        let bytes = page.as_ref().expect("no page is zeroes here");
        bytes.iter().all(|b| *b == bytes[0]).then_some(bytes[0])
    }

    #[test]
    fn every_state_of_a_sector_comes_up_and_tears_too() {
        let unsynced = [(5, page(1)), (6, page(2)), (9, page(3))];
        let (mut states, mut mixes, mut damaged) = (BTreeSet::new(), 0, 0);
        for seed in 0..2_000 {
            let found = Fate::new(seed, &[5, 6, 9], 1, true).page(&page(0), &unsynced);
            match whole(&found) {
                Some(byte) => drop(states.insert(byte)),
                None if found.expect("torn").iter().all(|b| *b <= 3) => mixes += 1,
                None => damaged += 1,
            }
        }
        assert_eq!(states.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(mixes > 20 && damaged > 5, "{mixes} {damaged}");
    }

    #[test]
    fn what_is_durable_stays() {
        for seed in 0..200 {
            assert_eq!(whole(&Fate::new(seed, &[1], 1, true).page(&page(7), &[])), Some(7));
            assert_eq!(Fate::new(seed, &[], 0, true).len(42, &[]), 42);
            assert_eq!(Fate::new(seed, &[], 0, true).names(&[]), 0);
        }
    }

    /// Among many sectors: all but one in the middle, and what was written up to some moment.
    #[test]
    fn all_but_one_and_prefixes_come_up() {
        const SECTORS: u64 = 400;
        let numbers: Vec<u64> = (1..=SECTORS).collect();
        let (mut all_but_one, mut prefix) = (0, 0);
        for seed in 0..300 {
            let mut fate = Fate::new(seed, &numbers, SECTORS as usize, false);
            let kept = |n: &u64| whole(&fate.page(&page(0), &[(*n, page(1))])) == Some(1);
            let kept: Vec<_> = numbers.iter().map(kept).collect();
            let runs: Vec<_> = kept.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
            all_but_one += u32::from(matches!(runs[..], [(true, 10..), (false, 1), (true, 10..)]));
            prefix += u32::from(matches!(runs[..], [(true, 10..), (false, 10..)]));
        }
        assert!(all_but_one > 10 && prefix > 30, "{all_but_one} {prefix}");
    }
}
