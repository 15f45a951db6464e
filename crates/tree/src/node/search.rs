//! Searching a page: few cache lines that wait for each other.
//!
//! A leaf is seldom in a near cache, and each step of a binary search meets another line and cannot be begun before the
//! last one has arrived. So (1) the place among the heads is guessed from the two ends; (2) among slots of equal head,
//! the sixteen bytes behind the head are looked at in several entries at once, whose lines are fetched at the same time;
//! (3) keys that agree in these as well are compared whole, by a binary search.

use std::cmp::Ordering;

use store::prefetch;

use super::key::{head, short_bytes};
use super::page::{Page, Slot};

/// Entries looked at together.
const TOGETHER: usize = 8;
/// Up to so many, all are.
const ALL_TOGETHER: usize = 12;

impl Page {
    /// `Ok` = first slot of the key, `Err` = where it would be. Only slots at or after `from`, a key's first
    /// slot, are looked at.
    pub(super) fn search_from(&self, from: usize, suffix: &[u8]) -> Result<usize, usize> {
        let (low, high) = self.equal_heads(from, head(suffix));
        if low == high { Err(low) } else { self.search_equal_heads(low, high, suffix) }
    }

    /// Step 1: the slots of this head, at or after `from`; nothing, but where they would be, if there are none.
    fn equal_heads(&self, from: usize, wanted: u32) -> (usize, usize) {
        let slots = &self.slots()[from..];
        let head_at = |i: usize| Slot::from_bytes(slots[i]).head();
        let base = lower_bound(slots.len(), wanted.into(), |i| head_at(i).into());
        if base == slots.len() || head_at(base) != wanted {
            return (from + base, from + base);
        }
        let (mut end, mut step) = (base + 1, 1);
        while end + step <= slots.len() && head_at(end + step - 1) == wanted {
            end += step;
            step *= 2;
        }
        let unsure = &slots[end..(end + step).min(slots.len())];
        end += unsure.partition_point(|slot| Slot::from_bytes(*slot).head() == wanted);
        (from + base, from + end)
    }

    /// Steps 2 and 3, in `low..high`, bounds between keys.
    fn search_equal_heads(&self, low: usize, high: usize, suffix: &[u8]) -> Result<usize, usize> {
        let wanted = tail(suffix);
        let first = if high - low == 1 { low } else { self.lower_bound_of_tails(low, high, wanted) };
        // Most often the first is the key, or the one above it.
        if first == high || self.tail_at(first) > wanted {
            return Err(first);
        }
        match self.suffix(self.slot(first)).cmp(suffix) {
            Ordering::Equal => Ok(first),
            Ordering::Greater => Err(first),
            Ordering::Less => self.search_whole(self.group_end(first), high, suffix),
        }
    }

    /// The first slot in `low..high`, bounds between keys of equal head, of a key whose tail is not below `wanted`.
    fn lower_bound_of_tails(&self, mut low: usize, mut high: usize, wanted: u128) -> usize {
        while high - low > ALL_TOGETHER {
            let pivot = |i: usize| self.group_start(pivot(low, high, i));
            let below = (1..=TOGETHER).map(|i| usize::from(self.tail_at(pivot(i)) < wanted)).sum();
            let above = if below == TOGETHER { high } else { pivot(below + 1) };
            low = if below == 0 { low } else { self.group_end(pivot(below)) };
            // A key with many versions holds several pivots.
            high = above.max(low);
        }
        let (mut below, mut is_below) = (0, false);
        for i in low..high {
            is_below = if self.slot(i).is_older() { is_below } else { self.tail_at(i) < wanted };
            below += usize::from(is_below);
        }
        low + below
    }

    fn search_whole(&self, mut low: usize, mut high: usize, suffix: &[u8]) -> Result<usize, usize> {
        while low < high {
            let middle = self.group_start(low + (high - low) / 2);
            match self.suffix(self.slot(middle)).cmp(suffix) {
                Ordering::Less => low = self.group_end(middle),
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Step 1 of a search to come, in two: its two ends are asked for, and what is written next to.
    pub(super) fn prefetch_ends(&self) {
        if let [first, .., last] = self.slots() {
            prefetch(first);
            prefetch(last);
        }
        self.prefetch_heap();
    }

    /// And the place that is guessed between them.
    pub(super) fn prefetch_guess(&self, suffix: &[u8]) {
        let slots = self.slots();
        if slots.len() >= GUESSED_FROM {
            let head_at = |i: usize| u64::from(Slot::from_bytes(slots[i]).head());
            if let Some(guess) = guess(slots.len(), head(suffix).into(), head_at) {
                prefetch(&slots[guess]);
            }
        }
    }

    /// Step 2, too: the entries that are looked at together first.
    pub(super) fn prefetch_entries(&self, suffix: &[u8]) {
        let (low, high) = self.equal_heads(0, head(suffix));
        if high - low > ALL_TOGETHER {
            (1..=TOGETHER).for_each(|i| self.prefetch_entry(self.slot(pivot(low, high, i))));
        } else {
            (low..high).for_each(|i| self.prefetch_entry(self.slot(i)));
        }
    }

    #[inline]
    fn tail_at(&self, i: usize) -> u128 {
        tail(self.suffix(self.slot(i)))
    }
}

/// One of the entries that are looked at together, the first being number 1.
#[inline]
fn pivot(low: usize, high: usize, i: usize) -> usize {
    low + (high - low) * i / (TOGETHER + 1)
}

/// The sixteen bytes behind the head, big-endian, zeros after the suffix's end: orders suffixes of equal head like the
/// suffix as far as it goes.
#[inline]
fn tail(suffix: &[u8]) -> u128 {
    let rest = suffix.get(size_of::<u32>()..).unwrap_or_default();
    match rest.first_chunk::<16>() {
        Some(tail) => u128::from_be_bytes(*tail),
        None => short_bytes(rest),
    }
}

/// Below so many heads a guess costs more than it saves.
const GUESSED_FROM: usize = 32;
/// First step away from the guess: the slots of a cache line.
const GUESS_STEP: usize = 8;

/// The first of `count` ascending heads that is not below `wanted`; `count` if all are.
///
/// The place is guessed between the first and the last head, which are fetched at the same time (interpolation:
/// Peterson, "Addressing for random-access storage", 1957). From the guess, steps that double enclose the place, so that
/// heads in clumps cost a few steps more, and a binary search ends it.
#[inline]
pub fn lower_bound(count: usize, wanted: u64, head_at: impl Fn(usize) -> u64) -> usize {
    // Heads before `low` are below `wanted`; that at `high`, if there is one, is not.
    let (mut low, mut high) = (0, count);
    if count >= GUESSED_FROM {
        let Some(share) = guess(count, wanted, &head_at) else { return if wanted <= head_at(0) { 0 } else { count } };
        let mut step = GUESS_STEP;
        if head_at(share) < wanted {
            low = share + 1;
            while low + step < count {
                if head_at(low + step) >= wanted {
                    high = low + step;
                    break;
                }
                low += step + 1;
                step *= 2;
            }
        } else {
            high = share;
            while high > step {
                if head_at(high - step) < wanted {
                    low = high - step + 1;
                    break;
                }
                high -= step;
                step *= 2;
            }
        }
    }
    // Without branches on the data: `base + size` never passes `high`.
    let (mut base, mut size) = (low, high - low);
    while size > 1 {
        let half = size / 2;
        base = if head_at(base + half) < wanted { base + half } else { base };
        size -= half;
    }
    base + usize::from(size == 1 && head_at(base) < wanted)
}

/// Where among `count` ascending heads, two at least, one is by its distance from the first and the last; none if it is not above the
/// first, or above the last.
#[inline]
fn guess(count: usize, wanted: u64, head_at: impl Fn(usize) -> u64) -> Option<usize> {
    let (first, last) = (head_at(0), head_at(count - 1));
    if wanted <= first || wanted > last {
        return None;
    }
    // As exact as 32 bits are, so that their product is a word.
    let less = 32 - (last - first).leading_zeros().min(32);
    Some((((wanted - first) >> less) * (count - 1) as u64 / ((last - first) >> less)) as usize)
}

#[cfg(test)]
mod tests {
    use base::CommitTs;
    use store::Frame;

    use super::super::page::{Kind, NewEntry};
    use super::*;

    /// Heads that are spread, in clumps, all equal, at the ends of the range: for every wanted one.
    #[test]
    fn a_guess_changes_no_answer() {
        for count in [0usize, 1, 2, 31, 32, 33, 40, 100, 1000] {
            let spread: Vec<u64> = (0..count).map(|i| (i as u64).wrapping_mul(4_294_967)).collect();
            let wide: Vec<u64> = spread.iter().map(|head| head << 32 | head).collect();
            let clumps: Vec<u64> = (0..count).map(|i| (i / 17 * i / 17) as u64).collect();
            let steep: Vec<u64> = (0..count).map(|i| u64::MAX >> (count - i).min(63)).collect();
            let ends: Vec<u64> = (0..count).map(|i| if i < count / 2 { 0 } else { u64::MAX }).collect();
            for mut heads in [spread, wide, clumps, steep, ends, vec![7; count]] {
                heads.sort_unstable();
                let around = |h: &u64| [h.saturating_sub(1), *h, h.saturating_add(1)];
                let wanted = heads.iter().flat_map(around).chain([0, 1, 8, u64::MAX / 2, u64::MAX]);
                for wanted in wanted {
                    let found = lower_bound(heads.len(), wanted, |i| heads[i]);
                    assert_eq!(found, heads.partition_point(|h| *h < wanted), "{wanted} among {heads:?}");
                }
            }
        }
    }

    /// Keys that agree in head and tail for as long as can be, some with many versions: every key, and what lies between.
    #[test]
    fn every_key_is_found_among_equal_heads() {
        let key = |n: usize, long: usize| {
            [&b"head"[..], &vec![b't'; long], &[b'a' + (n / 26) as u8, b'a' + (n % 26) as u8]].concat()
        };
        for long in [0, 5, 7, 13, 14, 15, 16, 30] {
            for versions in [1, 2, 30] {
                let mut page = Page::new(Frame::from(16 * 1024));
                let keys: Vec<Vec<u8>> = (0..100).map(|n| key(n, long)).collect();
                for (n, suffix) in keys.iter().enumerate() {
                    for version in 0..if n % 7 == 3 { versions } else { 1 } {
                        let (older, ts) = (version > 0, CommitTs(1000 - 16 * version));
                        let new = NewEntry { kind: Kind::Put, older, front: &[], suffix, ts, value: &[] };
                        assert!(page.reserve(256), "it has room");
                        page.insert(page.len(), &new);
                    }
                }
                for suffix in &keys {
                    let at = page.search_from(0, suffix).expect("it is there");
                    assert_eq!((page.suffix(page.slot(at)), page.slot(at).is_older()), (&suffix[..], false));
                    let longer = [&suffix[..], &[0]].concat();
                    assert_eq!(page.search_from(0, &longer), Err(page.group_end(at)));
                    assert!(page.search_from(0, &suffix[..suffix.len() - 1]).is_err());
                    assert_eq!(page.search_from(at, suffix), Ok(at));
                }
                assert_eq!(page.search_from(0, b"head"), Err(0));
                assert_eq!(page.search_from(0, b"heae"), Err(page.len()));
            }
        }
    }
}
