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

/// The shortest key `s` with `left < s <= right`: a prefix of `right` (Bayer and Unterauer, "Prefix
/// B-trees", ACM TODS 1977).
#[must_use]
pub fn shortest_separator<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    debug_assert!(left < right);
    &right[..right.len().min(common_prefix_bytes(left, right) + 1)]
}
