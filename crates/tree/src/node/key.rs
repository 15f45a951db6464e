//! Prefix, head and separator arithmetic on byte keys.

/// A key in two pieces: the prefix its node strips, and the rest.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Common to all keys of the node.
    pub prefix: &'a [u8],
    /// What follows.
    pub suffix: &'a [u8],
}

impl Key<'_> {
    /// Length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    /// Appends the whole key.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(self.suffix);
    }

    /// The whole key.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.append_to(&mut out);
        out
    }

    /// Order against a whole key.
    #[must_use]
    pub fn cmp_bytes(&self, other: &[u8]) -> std::cmp::Ordering {
        let n = self.prefix.len();
        if other.len() >= n {
            self.prefix.cmp(&other[..n]).then_with(|| self.suffix.cmp(&other[n..]))
        } else {
            // A prefix of equal bytes is longer than `other`, so this cannot say Equal.
            self.prefix.cmp(other)
        }
    }
}

/// Bytes that `a` and `b` have in common at the front.
#[must_use]
pub fn common_prefix_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Length of the prefix that all keys in `[lo, hi)` share.
#[must_use]
pub fn fence_prefix_bytes(lo: &[u8], hi: Option<&[u8]>) -> usize {
    hi.map_or(0, |hi| common_prefix_bytes(lo, hi))
}

/// First four bytes of a suffix, big-endian, zeros after its end: orders like the suffix as far as it goes.
#[must_use]
#[inline]
pub fn head(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<4>() {
        Some(four) => u32::from_be_bytes(*four),
        None => {
            let mut four = [0; 4];
            four[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(four)
        }
    }
}

/// Below so many heads a guess costs more than it saves.
const GUESSED_FROM: usize = 32;
/// First step away from the guess: the slots of a cache line.
const GUESS_STEP: usize = 8;

/// The first of `count` ascending heads that is not below `wanted`; `count` if all are.
///
/// A leaf is seldom in a near cache, and a binary search meets a new cache line with each of its first steps, one
/// after the other. So the place is guessed between the first and the last head, which are fetched at the same time
/// (interpolation: Peterson, "Addressing for random-access storage", 1957). From the guess, steps that double
/// enclose the place, so that heads in clumps cost a few steps more, and a binary search ends it.
#[inline]
pub fn lower_bound(count: usize, wanted: u32, head_at: impl Fn(usize) -> u32) -> usize {
    // Heads before `low` are below `wanted`; that at `high`, if there is one, is not.
    let (mut low, mut high) = (0, count);
    if count >= GUESSED_FROM {
        let (first, last) = (head_at(0), head_at(count - 1));
        if wanted <= first {
            return 0;
        }
        if wanted > last {
            return count;
        }
        let share = u64::from(wanted - first) * (count - 1) as u64 / u64::from(last - first);
        let mut step = GUESS_STEP;
        if head_at(share as usize) < wanted {
            low = share as usize + 1;
            while low + step < count {
                if head_at(low + step) >= wanted {
                    high = low + step;
                    break;
                }
                low += step + 1;
                step *= 2;
            }
        } else {
            high = share as usize;
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

/// The shortest key `s` with `left < s <= right`: a prefix of `right` (Bayer and Unterauer, "Prefix
/// B-trees", ACM TODS 1977).
#[must_use]
pub fn shortest_separator<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    debug_assert!(left < right);
    &right[..right.len().min(common_prefix_bytes(left, right) + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heads that are spread, in clumps, all equal, at the ends of the range: for every wanted one.
    #[test]
    fn a_guess_changes_no_answer() {
        for count in [0usize, 1, 2, 31, 32, 33, 40, 100, 1000] {
            let spread: Vec<u32> = (0..count).map(|i| (i as u32).wrapping_mul(4_294_967)).collect();
            let clumps: Vec<u32> = (0..count).map(|i| (i / 17 * i / 17) as u32).collect();
            let steep: Vec<u32> = (0..count).map(|i| u32::MAX >> (count - i).min(31)).collect();
            let ends: Vec<u32> = (0..count).map(|i| if i < count / 2 { 0 } else { u32::MAX }).collect();
            for mut heads in [spread, clumps, steep, ends, vec![7; count]] {
                heads.sort_unstable();
                let around = |h: &u32| [h.saturating_sub(1), *h, h.saturating_add(1)];
                let wanted = heads.iter().flat_map(around).chain([0, 1, 8, u32::MAX / 2, u32::MAX]);
                for wanted in wanted {
                    let found = lower_bound(heads.len(), wanted, |i| heads[i]);
                    assert_eq!(found, heads.partition_point(|h| *h < wanted), "{wanted} among {heads:?}");
                }
            }
        }
    }
}
