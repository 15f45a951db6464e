//! Which keys a block may have: of messages beside a leaf, or of a sorted run. In memory, so that who looks for one key reads few of
//! the blocks that it could be in.
//!
//! A blocked Bloom filter (Putze, Sanders and Singler, "Cache-, hash- and space-efficient Bloom filters", 2007): all bits of a key
//! are in one line of 512. With ten bits a key and six probes about one look-up of a hundred finds what is not there (decision 0020 says why these).
//!
//! Of a block of messages it is made when the block is read for the first time, not when it is written: who only loads does not
//! pay for it. Of a run's block it is made with the block, and kept in the run's index.

use base::bytes::{Reader, put_varint};
use base::checksum::crc32c;

use crate::budget::allocated;

const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 6;
const LINE_WORDS: usize = 8;
const LINE_BYTES: usize = LINE_WORDS * 8;

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

    /// Bytes of memory behind it.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        allocated(size_of_val(&*self.0))
    }

    fn line_of(&self, key: KeyHash) -> usize {
        line_of(key, self.0.len())
    }
}

fn line_of(key: KeyHash, lines: usize) -> usize {
    ((u64::from(key.line) * lines as u64) >> 32) as usize
}

/// A filter where it lies among other bytes.
#[derive(Debug, Clone, Copy)]
pub struct FilterRef<'a>(&'a [u8]);

impl<'a> FilterRef<'a> {
    /// Reads what [`Filter::encode`] gave. Any bytes of the right length are a filter; `None` if they are too few, or it has no line.
    #[must_use]
    pub fn decode(r: &mut Reader<'a>) -> Option<Self> {
        let lines = r.length().filter(|lines| *lines > 0)?;
        r.take(lines.checked_mul(LINE_BYTES)?).map(Self)
    }

    /// Appends it, as it was read.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, (self.0.len() / LINE_BYTES) as u64);
        out.extend_from_slice(self.0);
    }

    /// As [`Filter::may_have`].
    #[must_use]
    pub fn may_have(&self, key: KeyHash) -> bool {
        let line = line_of(key, self.0.len() / LINE_BYTES) * LINE_BYTES;
        key.places().all(|(word, bit)| {
            let at = line + word * 8;
            let word = u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"));
            word & bit != 0
        })
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
        for count in [0, 1, 50, 51, 135, 400, 631, 5000] {
            let filter = Filter::of(&hashes(0..count));
            assert!(hashes(0..count).into_iter().all(|key| filter.may_have(key)));
            let others = 20_000;
            let wrong = hashes(1_000_000..1_000_000 + others).into_iter().filter(|key| filter.may_have(*key)).count();
            eprintln!("beside {count} keys it errs for {wrong} of {others}, with {} bits", filter.0.len() * 512);
            assert!(wrong * 60 < others as usize, "{wrong} of {others} beside {count}");
        }
    }

    #[test]
    fn where_it_lies_it_says_the_same() {
        let filter = Filter::of(&hashes(0..300));
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        let back = FilterRef::decode(&mut Reader::new(&bytes)).expect("whole");
        assert!(hashes(0..20_000).into_iter().all(|key| back.may_have(key) == filter.may_have(key)));
        assert!((0..bytes.len()).all(|n| FilterRef::decode(&mut Reader::new(&bytes[..n])).is_none()));
        assert!(FilterRef::decode(&mut Reader::new(&[0])).is_none(), "no line");
    }

    #[test]
    fn it_takes_ten_bits_for_each_key_in_whole_lines() {
        let bytes = |count| Filter::of(&hashes(0..count)).0.len() * 64;
        assert_eq!([0, 1, 51, 52, 1000].map(bytes), [64, 64, 64, 128, 1280]);
    }
}
