//! Which keys a run file cannot have: a Bloom filter whose bits of one key lie in one word (Putze, Sanders, Singler:
//! "Cache-, Hash- and Space-Efficient Bloom Filters", 2007).
//!
//! With twelve bits a key about one absent key in thirty looks as if it were there. A filter that gets fewer bits than
//! that says yes more often, never wrongly no; one without words always says yes.

/// Bits of one key within its word.
const BITS: u32 = 4;
/// Words for so many keys make the filter as good as it is worth.
const KEYS_PER_WORD: u64 = 5;

#[derive(Debug, Default)]
pub(super) struct Filter {
    words: Vec<u64>,
}

impl Filter {
    /// For `keys` keys, in at most `bytes` bytes.
    pub(super) fn new(keys: u64, bytes: usize) -> Self {
        let words = (keys.div_ceil(KEYS_PER_WORD) as usize).min(bytes / size_of::<u64>());
        Self { words: vec![0; words] }
    }

    pub(super) fn add(&mut self, key: &[u8]) {
        if let Some((word, bits)) = self.place(key) {
            self.words[word] |= bits;
        }
    }

    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        self.place(key).is_none_or(|(word, bits)| self.words[word] & bits == bits)
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    fn place(&self, key: &[u8]) -> Option<(usize, u64)> {
        if self.words.is_empty() {
            return None;
        }
        let hash = hash(key);
        let word = ((u128::from(hash) * self.words.len() as u128) >> 64) as usize;
        // The low bits, which hardly matter for the word.
        let bits = (0..BITS).fold(0, |bits, i| bits | 1 << (hash >> (6 * i) & 63));
        Some((word, bits))
    }
}

/// Multiply and fold, eight bytes at a time, ended by the mixer of SplitMix64 (Steele, Lea, Flood 2014): every bit of the
/// result depends on all of the key.
fn hash(key: &[u8]) -> u64 {
    const A: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = (key.len() as u64).wrapping_mul(A);
    let mut words = key.chunks_exact(8);
    for word in &mut words {
        let product = u128::from(h ^ u64::from_le_bytes(word.try_into().expect("eight bytes"))) * u128::from(A);
        h = product as u64 ^ (product >> 64) as u64;
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    h ^= u64::from_le_bytes(last);
    h = (h ^ h >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ h >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ h >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_may_be_there_and_little_else() {
        for (bytes, wrong_max) in [(usize::MAX, 0.06), (1 << 12, 0.35), (0, 1.0)] {
            let mut filter = Filter::new(10_000, bytes);
            let key = |i: u32| [b"a common front ".as_slice(), &i.to_be_bytes()].concat();
            (0..10_000).for_each(|i| filter.add(&key(i)));
            assert!((0..10_000).all(|i| filter.may_have(&key(i))));
            let wrong = (10_000..30_000).filter(|i| filter.may_have(&key(*i))).count();
            assert!((wrong as f64) <= wrong_max * 20_000.0, "{bytes} bytes: {wrong} of 20000");
            assert!(filter.bytes() <= bytes);
        }
    }
}
