//! A range of keys with bounds of its own, for cursors that outlive the caller's.

use std::ops::Bound;

/// A range of keys.
///
/// ```
/// use std::ops::Bound;
/// use trefoil_index::KeyRange;
/// let range = KeyRange::new((Bound::Included(b"b"), Bound::Excluded(b"d")));
/// assert!(range.contains(b"b") && range.contains(b"czzz") && !range.contains(b"d"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// Lower bound.
    pub low: Bound<Vec<u8>>,
    /// Upper bound.
    pub high: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Copies the bounds.
    #[must_use]
    pub fn new((low, high): (Bound<&[u8]>, Bound<&[u8]>)) -> Self {
        Self { low: low.map(<[u8]>::to_vec), high: high.map(<[u8]>::to_vec) }
    }

    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        Self { low: Bound::Unbounded, high: Bound::Unbounded }
    }

    /// The bounds, borrowed.
    #[must_use]
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.low.as_ref().map(Vec::as_slice), self.high.as_ref().map(Vec::as_slice))
    }

    /// True if `key` lies within both bounds.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.is_below(key) && !self.is_above(key)
    }

    /// True if `key` lies below the lower bound.
    #[must_use]
    pub fn is_below(&self, key: &[u8]) -> bool {
        match &self.low {
            Bound::Included(low) => key < low.as_slice(),
            Bound::Excluded(low) => key <= low.as_slice(),
            Bound::Unbounded => false,
        }
    }

    /// True if `key` lies above the upper bound.
    #[must_use]
    pub fn is_above(&self, key: &[u8]) -> bool {
        match &self.high {
            Bound::Included(high) => key > high.as_slice(),
            Bound::Excluded(high) => key >= high.as_slice(),
            Bound::Unbounded => false,
        }
    }

    /// Leaves out the keys below `key`.
    pub fn raise_low(&mut self, key: &[u8]) {
        if !key.is_empty() && !self.is_below(key) {
            self.low = Bound::Included(key.to_vec());
        }
    }

    /// True if no key can lie within the bounds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (&self.low, &self.high) {
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low), Bound::Excluded(high)) => low >= high,
            (Bound::Excluded(low), Bound::Included(high)) => low >= high,
            // The key just above `low` is `low` and a zero byte.
            (Bound::Excluded(low), Bound::Excluded(high)) => {
                low >= high || high.strip_prefix(low.as_slice()) == Some([0].as_slice())
            }
            (_, Bound::Excluded(high)) => high.is_empty(),
            (_, Bound::Included(_) | Bound::Unbounded) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All strings of at most `longest` bytes over two letters, the smallest byte among them.
    fn strings(longest: u32) -> Vec<Vec<u8>> {
        let of_length = |n: u32| (0..1u32 << n).map(move |bits| (0..n).map(|i| (bits >> i & 1) as u8).collect());
        (0..=longest).flat_map(of_length).collect()
    }

    #[test]
    fn empty_is_what_contains_nothing() {
        // Between bounds of two bytes lies a key of three, if any.
        let (bounds, keys) = (strings(2), strings(3));
        let bounds: Vec<Bound<&[u8]>> = bounds
            .iter()
            .flat_map(|b| [Bound::Included(b.as_slice()), Bound::Excluded(b.as_slice())])
            .chain([Bound::Unbounded])
            .collect();
        for low in &bounds {
            for high in &bounds {
                let range = KeyRange::new((*low, *high));
                assert_eq!(range.is_empty(), !keys.iter().any(|k| range.contains(k)), "{range:?}");
            }
        }
    }
}
