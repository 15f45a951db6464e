//! Which keys a block may have: of messages beside a leaf, or of a sorted run. In memory, so that who looks for one key reads few of
//! the blocks that it could be in.
//!
//! A blocked Bloom filter (Putze, Sanders and Singler, "Cache-, hash- and space-efficient Bloom filters", 2007): all bits of a key
//! are in one line of 512. With ten bits a key and six probes about one look-up of fifty finds what is not there.
//!
//! Of a block of messages it is made when the block is read for the first time, not when it is written: who only loads does not
//! pay for it. Of a run's block it is made with the block, and kept in the run's index.

use base::bytes::{Reader, put_varint};
use base::checksum::crc32c;

use crate::budget::allocated;

const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 6;
const LINE_WORDS: usize = 8;

/// A key, as filters know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash {
    line: u32,
    probes: u64,
}

impl KeyHash {
    /// Of a key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        // The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): the checksum alone is linear in the key.
        let mut mixed = u64::from(crc32c(key)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The highest bits choose the line, the lowest 54 the bits in it.
        Self { line: (mixed >> 32) as u32, probes: mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    /// Word and bit of each probe.
    fn places(self) -> impl Iterator<Item = (usize, u64)> {
        (0..PROBES).map(move |i| {
            let place = self.probes >> (10 + 9 * i);
            ((place >> 6) as usize % LINE_WORDS, 1 << (place % 64))
        })
    }
}

/// Never says no to a key that it was made of.
#[derive(Debug)]
pub struct Filter(Box<[[u64; LINE_WORDS]]>);

impl Filter {
    /// A filter of these keys.
    #[must_use]
    pub fn of(keys: &[KeyHash]) -> Self {
        let lines = (keys.len() * BITS_PER_KEY).div_ceil(LINE_WORDS * 64).max(1);
        let mut filter = Self(vec![[0; LINE_WORDS]; lines].into());
        for key in keys {
            let line = filter.line_of(*key);
            key.places().for_each(|(word, bit)| filter.0[line][word] |= bit);
        }
        filter
    }

    /// False if the filter was not made of this key.
    #[must_use]
    pub fn may_have(&self, key: KeyHash) -> bool {
        let line = &self.0[self.line_of(key)];
        key.places().all(|(word, bit)| line[word] & bit != 0)
    }

    /// Appends the filter: the number of its lines, and they, little-endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        self.0.as_flattened().iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }

    /// Reads one. Any bytes of the right length are a filter; `None` if they are too few, or it has no line.
    #[must_use]
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let lines = r.length().filter(|lines| *lines > 0)?;
        let bytes = r.take(lines.checked_mul(LINE_WORDS * 8)?)?;
        let mut filter = Self(vec![[0; LINE_WORDS]; lines].into());
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        filter.0.as_flattened_mut().iter_mut().zip(words).for_each(|(to, from)| *to = from);
        Some(filter)
    }

    /// Bytes of memory behind it.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        allocated(size_of_val(&*self.0))
    }

    fn line_of(&self, key: KeyHash) -> usize {
        ((u64::from(key.line) * self.0.len() as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(keys: std::ops::Range<u64>) -> Vec<KeyHash> {
        keys.map(|n| KeyHash::of(&n.to_be_bytes())).collect()
    }

    #[test]
    fn it_knows_all_of_its_keys_and_few_others() {
        for count in [0, 1, 50, 51, 400, 5000] {
            let filter = Filter::of(&hashes(0..count));
            assert!(hashes(0..count).into_iter().all(|key| filter.may_have(key)));
            let others = 20_000;
            let wrong = hashes(1_000_000..1_000_000 + others).into_iter().filter(|key| filter.may_have(*key)).count();
            assert!(wrong * 25 < others as usize, "{wrong} of {others} beside {count}");
        }
    }

    #[test]
    fn it_comes_back() {
        let filter = Filter::of(&hashes(0..300));
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        let back = Filter::decode(&mut Reader::new(&bytes)).expect("whole");
        assert_eq!(back.0, filter.0);
        assert!((0..bytes.len()).all(|n| Filter::decode(&mut Reader::new(&bytes[..n])).is_none()));
        assert!(Filter::decode(&mut Reader::new(&[0])).is_none(), "no line");
    }

    #[test]
    fn it_takes_ten_bits_for_each_key_in_whole_lines() {
        let bytes = |count| Filter::of(&hashes(0..count)).0.len() * 64;
        assert_eq!([0, 1, 51, 52, 1000].map(bytes), [64, 64, 64, 128, 1280]);
    }
}
