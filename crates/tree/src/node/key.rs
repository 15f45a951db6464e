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

/// The first eight bytes of a suffix as [`head`] has four: what leads to few children has room for them, and keys whose first column has few
/// values differ in these.
#[must_use]
#[inline]
pub fn long_head(suffix: &[u8]) -> u64 {
    match suffix.first_chunk::<8>() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => (short_bytes(suffix) >> 64) as u64,
    }
}

/// Fewer than sixteen bytes, big-endian, zeros after their end. Read in two pieces that overlap: a copy of so few bytes is a call.
#[inline]
pub(super) fn short_bytes(bytes: &[u8]) -> u128 {
    let n = bytes.len();
    debug_assert!(n < 16, "{n} bytes");
    // The bytes of `last` that `first` does not have come behind it.
    let join = |first: u64, last: u64, width: usize| {
        let behind = u128::from(last) << (128 - 8 * n);
        u128::from(first) << (128 - 8 * width) | behind
    };
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        join(u64::from_be_bytes(*first), u64::from_be_bytes(*last), 8)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        join(u32::from_be_bytes(*first).into(), u32::from_be_bytes(*last).into(), 4)
    } else {
        bytes.iter().enumerate().fold(0, |sum, (i, byte)| sum | u128::from(*byte) << (120 - 8 * i))
    }
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

    #[test]
    fn heads_are_the_first_bytes_with_zeros_behind() {
        let bytes: Vec<u8> = (0..16).map(|i| 0xf1 - 7 * i).collect();
        for n in 0..16 {
            let padded = |width: usize| {
                let mut padded = vec![0; width.max(n)];
                padded[..n].copy_from_slice(&bytes[..n]);
                padded[..width].iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte))
            };
            assert_eq!(short_bytes(&bytes[..n]), padded(16), "{n} bytes");
            assert_eq!(u128::from(long_head(&bytes[..n])), padded(8), "{n} bytes");
            assert_eq!(u128::from(head(&bytes[..n])), padded(4), "{n} bytes");
        }
    }
}
