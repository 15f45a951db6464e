//! Filters of prefixes ([`IndexOptions::prefix_bytes`](index::IndexOptions::prefix_bytes)): the filter of each data block knows what its keys begin with, beside
//! the keys. A range of which all keys begin alike passes over blocks that have nothing of the kind, unread.
//!
//! Sound for such ranges only: what a range's keys have in common follows from its bounds, never from one of them ([`common_prefix`]). A key that is
//! shorter than the prefix is in no such range, and in no filter as a prefix.

use std::ops::Bound;

use index::KeyRange;
use store::KeyHash;

/// What all keys begin with that a range can have, if that is `bytes` long at least: so many bytes of it.
///
/// Between two strings that begin alike all do. And below the next string of the same length, or a shorter one, that no string with the prefix
/// reaches: who reads all of a prefix says so.
pub(crate) fn common_prefix(range: &KeyRange, bytes: usize) -> Option<&[u8]> {
    let (Bound::Included(low) | Bound::Excluded(low)) = &range.low else { return None };
    let prefix = low.get(..bytes).filter(|prefix| !prefix.is_empty())?;
    match &range.high {
        Bound::Included(high) | Bound::Excluded(high) if high.starts_with(prefix) => Some(prefix),
        Bound::Excluded(high) if is_behind_all_of(prefix, high) => Some(prefix),
        _ => None,
    }
}

/// True if `high` is the least string above all that begin with `prefix`: the prefix, without the 0xff at its end, its last byte one more.
fn is_behind_all_of(prefix: &[u8], high: &[u8]) -> bool {
    let kept = prefix.iter().rposition(|byte| *byte != 0xff).map_or(0, |last| last + 1);
    let Some((last, front)) = prefix[..kept].split_last() else { return false };
    high.split_last() == Some((&(last + 1), front))
}

/// The prefix of a key, as filters know it; none of a key that is shorter, or where no prefixes are kept.
pub(crate) fn hash_of(key: &[u8], bytes: usize) -> Option<KeyHash> {
    key.get(..bytes).filter(|prefix| !prefix.is_empty()).map(KeyHash::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All strings of up to three letters, and all ranges of such: whenever a prefix is given every key in the range begins with it. Guards: both bounds
    /// are asked; `is_behind_all_of`.
    #[test]
    fn a_range_has_a_prefix_only_if_all_its_keys_have() {
        let letters = [0u8, 1, 0xfe, 0xff];
        let mut all: Vec<Vec<u8>> = vec![Vec::new()];
        for len in 1..=3 {
            let before: Vec<_> = all.iter().filter(|key| key.len() == len - 1).cloned().collect();
            all.extend(before.iter().flat_map(|key| letters.map(|letter| [key.as_slice(), &[letter]].concat())));
        }
        let mut given = 0;
        for low in &all {
            for high in &all {
                for (low, high) in [
                    (Bound::Included(low), Bound::Included(high)),
                    (Bound::Included(low), Bound::Excluded(high)),
                    (Bound::Excluded(low), Bound::Excluded(high)),
                ] {
                    let range = KeyRange { low: low.cloned(), high: high.cloned() };
                    for bytes in 1..=2 {
                        let Some(prefix) = common_prefix(&range, bytes) else { continue };
                        given += 1;
                        assert_eq!(prefix.len(), bytes);
                        let outside = all.iter().find(|key| range.contains(key) && !key.starts_with(prefix));
                        assert_eq!(outside, None, "{range:?}");
                    }
                }
            }
        }
        assert!(given > 1000, "{given}");
        let of = |low: &[u8], high: Bound<Vec<u8>>| {
            common_prefix(&KeyRange { low: Bound::Included(low.to_vec()), high }, 2).map(<[u8]>::to_vec)
        };
        assert_eq!(of(b"ab", Bound::Excluded(b"ac".to_vec())), Some(b"ab".to_vec()), "all of a prefix");
        assert_eq!(of(b"a\xff", Bound::Excluded(b"b".to_vec())), Some(b"a\xff".to_vec()));
        assert_eq!(of(b"ab", Bound::Included(b"ac".to_vec())), None, "ac is in it");
        assert_eq!(of(b"ab", Bound::Excluded(b"ad".to_vec())), None);
        assert_eq!(of(b"ab", Bound::Unbounded), None);
        assert_eq!(of(b"\xff\xff", Bound::Unbounded), None);
    }
}
