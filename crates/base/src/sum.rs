//! What a long piece of bytes is known by, where it is to be told whether another one is the same: a CRC32C, and a number of 64 bits
//! that has nothing to do with it. That two different pieces have both in common is a matter of 2^-96; not against somebody who wants it.

use crate::bytes::Reader;
use crate::checksum::crc32c_append;

/// Odd, so that multiplying loses nothing.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The sum of the bytes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    crc: u32,
    mixed: u64,
}

impl Sum {
    /// Bytes of [`Sum::encode`].
    pub const BYTES: usize = 12;

    /// Adds the bytes that follow. All but the last piece have a multiple of eight bytes: where pieces end does not count then.
    pub fn add(&mut self, bytes: &[u8]) {
        self.crc = crc32c_append(self.crc, bytes);
        let (words, rest) = bytes.as_chunks::<8>();
        let mut mixed = self.mixed;
        for word in words {
            mixed = mix(mixed, u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            mixed = mix(mix(mixed, u64::from_le_bytes(word)), rest.len() as u64);
        }
        self.mixed = mixed;
    }

    /// Appends it.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(&self.mixed.to_le_bytes());
    }

    /// Reads what [`Sum::encode`] wrote.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self { crc: r.u32()?, mixed: r.u64()? })
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}{:016x}", self.crc, self.mixed)
    }
}

/// One to one in either of both.
fn mix(mixed: u64, word: u64) -> u64 {
    (mixed ^ word).wrapping_mul(FACTOR).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&[u8]]) -> Sum {
        let mut sum = Sum::default();
        pieces.iter().for_each(|piece| sum.add(piece));
        sum
    }

    #[test]
    fn pieces_do_not_count_and_every_byte_does() {
        let bytes: Vec<u8> = (0..100).collect();
        let whole = of(&[&bytes]);
        assert_eq!(of(&[&bytes[..8], &bytes[8..64], &bytes[64..]]), whole);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            let other = of(&[&other]);
            assert!(other.crc != whole.crc && other.mixed != whole.mixed, "byte {at}");
        }
        assert_ne!(of(&[b"a"]).mixed, of(&[b"a\0"]).mixed, "zeroes at the end count");
        let mut stored = Vec::new();
        whole.encode(&mut stored);
        assert_eq!((stored.len(), Sum::decode(&mut Reader::new(&stored))), (Sum::BYTES, Some(whole)));
    }
}
