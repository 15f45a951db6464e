//! Where in a sorted block a search goes on: numbers from some of its keys, next to each other in memory.
//!
//! A number is four bytes of a key behind what all keys of the block start with. So most of a search compares numbers, and looks at two
//! or three keys at its end.
//!
//! Invariant: numbers ascend, as keys do; one that is lower is a lower key's, of equal ones nothing is known.

use std::cmp::Ordering;
use std::ops::Range;

/// The four bytes of a key behind those that are `common`, in its order. Zeros stand behind a shorter one.
pub(crate) fn front(key: &[u8], common: usize) -> u32 {
    match key.get(common..common + 4) {
        Some(bytes) => u32::from_be_bytes(bytes.try_into().expect("four bytes")),
        None => key.iter().skip(common).zip([24, 16, 8, 0]).fold(0, |front, (byte, at)| front | u32::from(*byte) << at),
    }
}

/// Of every `step`-th entry, from the first one on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signposts<'a> {
    step: usize,
    /// As [`Signposts::put`] writes them.
    fronts: &'a [[u8; 4]],
}

impl<'a> Signposts<'a> {
    pub fn new(step: usize, fronts: &'a [[u8; 4]]) -> Self {
        Self { step, fronts }
    }

    /// How many there are of so many entries, each of four bytes.
    pub fn count(step: usize, entries: usize) -> usize {
        entries.div_ceil(step)
    }

    /// Appends those of a block whose `i`-th key is the common start and `rest(i)`.
    pub fn put<'k>(step: usize, count: usize, rest: impl Fn(usize) -> &'k [u8], out: &mut Vec<u8>) {
        (0..count).step_by(step).for_each(|i| out.extend_from_slice(&front(rest(i), 0).to_le_bytes()));
    }

    /// What is left of a search for `key` in a block of `count` entries that all start with `prefix`: `key` behind that, and the entries
    /// of which it is not known that they lie below it, or above.
    pub fn narrow<'k>(self, prefix: &[u8], key: &'k [u8], count: usize) -> (&'k [u8], Range<usize>) {
        let cut = prefix.len().min(key.len());
        match key[..cut].cmp(&prefix[..cut]) {
            Ordering::Less => return (&[], 0..0),
            Ordering::Greater => return (&[], count..count),
            Ordering::Equal if key.len() < prefix.len() => return (&[], 0..0),
            Ordering::Equal => {}
        }
        let rest = &key[prefix.len()..];
        let front = front(rest, 0);
        let from = self.fronts.partition_point(|other| u32::from_le_bytes(*other) < front);
        let past = from + self.fronts[from..].partition_point(|other| u32::from_le_bytes(*other) == front);
        let start = from.checked_sub(1).map_or(0, |below| below * self.step + 1);
        (rest, start..(past * self.step).min(count))
    }
}

#[cfg(test)]
mod tests {
    use vfs::random::Rng;

    use super::*;

    #[test]
    fn what_is_left_has_the_place() {
        let mut rng = Rng::new(3);
        let suffix = |rng: &mut Rng| (0..rng.index(7)).map(|_| [0, 1, 128, 255][rng.index(4)]).collect::<Vec<u8>>();
        for round in 0..300 {
            let prefix = &b"prefix"[..rng.index(7)];
            let mut rests: Vec<_> = (0..1 + rng.index(60)).map(|_| suffix(&mut rng)).collect();
            rests.sort();
            let step = 1 + rng.index(5);
            let mut fronts = Vec::new();
            Signposts::put(step, rests.len(), |i| &rests[i], &mut fronts);
            let posts = Signposts::new(step, fronts.as_chunks().0);
            assert_eq!(posts.fronts.len(), Signposts::count(step, rests.len()));
            for _ in 0..100 {
                let front = if rng.chance(0.8) { prefix } else { &b"prefy"[..rng.index(6)] };
                let key: Vec<u8> = front.iter().copied().chain(suffix(&mut rng)).collect();
                let whole = |rest: &Vec<u8>| [prefix, rest].concat();
                let (below, upto) =
                    (rests.partition_point(|rest| whole(rest) < key), rests.partition_point(|rest| whole(rest) <= key));
                let (rest, range) = posts.narrow(prefix, &key, rests.len());
                assert!(range.start <= below && upto <= range.end, "{round}: {range:?} without {below}..{upto}");
                assert!(range.is_empty() || [prefix, rest].concat() == key);
            }
        }
    }
}
