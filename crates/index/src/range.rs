//! A range of keys with bounds of its own, for cursors that outlive the caller's.

use std::ops::Bound;

use base::bytes::{Reader, put_bytes};

use crate::damaged::just_above;

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

/// From a key on, below another one or up to the end: a [`KeyRange`] in one form.
///
/// ```
/// use std::ops::Bound;
/// use trefoil_index::{KeyRange, Span};
/// let span = Span::of(&KeyRange::new((Bound::Excluded(b"b"), Bound::Included(b"d"))));
/// assert!(span.contains(b"b\0") && span.contains(b"d") && !span.contains(b"b") && !span.contains(b"d\0"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The lowest key of it.
    pub low: Vec<u8>,
    /// The lowest key above it; none if nothing is.
    pub high: Option<Vec<u8>>,
}

impl Span {
    /// The keys of a range.
    #[must_use]
    pub fn of(range: &KeyRange) -> Self {
        let low = match &range.low {
            Bound::Included(low) => low.clone(),
            Bound::Excluded(low) => just_above(low),
            Bound::Unbounded => Vec::new(),
        };
        let high = match &range.high {
            Bound::Included(high) => Some(just_above(high)),
            Bound::Excluded(high) => Some(high.clone()),
            Bound::Unbounded => None,
        };
        Self { low, high }
    }

    /// True if `key` lies in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.low.as_slice() <= key && self.high.as_ref().is_none_or(|high| key < high.as_slice())
    }

    /// True if some key may lie in both.
    #[must_use]
    pub fn meets(&self, other: &Span) -> bool {
        let ends_above = |a: &Span, b: &Span| a.high.as_ref().is_none_or(|high| *high > b.low);
        ends_above(self, other) && ends_above(other, self)
    }

    /// True if no key lies in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    /// The bounds, borrowed.
    #[must_use]
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let high = self.high.as_ref().map_or(Bound::Unbounded, |high| Bound::Excluded(high.as_slice()));
        (Bound::Included(&self.low), high)
    }

    /// Appends it: low key, 1 and the high key or 0.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.low);
        out.push(u8::from(self.high.is_some()));
        self.high.iter().for_each(|high| put_bytes(out, high));
    }

    /// Reads it; `None` if it is not one, or has no keys.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let low = r.bytes()?.to_vec();
        let high = match r.u8()? {
            0 => None,
            1 => Some(r.bytes()?.to_vec()),
            _ => return None,
        };
        Some(Self { low, high }).filter(|span| !span.is_empty())
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
