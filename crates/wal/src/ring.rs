//! The ring: the bytes between append and write.
//!
//! A power-of-two number of 8-byte words; position `p` of the stream lies in word `p / 8` modulo the size.
//! Words are relaxed atomics: many appenders copy into disjoint ranges at the same time, without a latch and
//! without `unsafe`. What orders them is outside: an appender's mark in the link buffer releases its words to
//! the writer that advances over it, and the writer's release of room (`room.rs`) releases the words to the
//! appender that is granted it. Why not byte slices under sharded mutexes: a record would take one or two of
//! them, and a preempted holder would stop its neighbours.

use std::sync::atomic::{AtomicU64, Ordering};

use base::Lsn;

use crate::record::{RecordKind, header_word, record_bytes};

/// Bytes of the log that are not framed yet.
pub(crate) struct Ring {
    words: Box<[AtomicU64]>,
}

impl Ring {
    /// A ring of `bytes`, a power of two.
    pub(crate) fn new(bytes: u64) -> Self {
        assert!(bytes.is_power_of_two() && bytes >= 64, "ring size");
        Self { words: (0..bytes / 8).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Copies a record in: its header, the slices one after the other, zeroes up to its end.
    /// The caller owns the range that starts at `start`.
    pub(crate) fn put(&self, start: Lsn, kind: RecordKind, payload_bytes: usize, slices: &[&[u8]]) {
        let end = start.0 + record_bytes(payload_bytes);
        let mut cursor = Cursor { ring: self, word: start.0 / 8, carry: 0, carry_bytes: 0 };
        cursor.put_word(header_word(kind, payload_bytes as u32));
        for slice in slices {
            cursor.put(slice);
        }
        cursor.finish(end / 8);
    }

    /// Copies `out.len()` bytes from `start` out. Positions and lengths are multiples of 8.
    pub(crate) fn read(&self, start: Lsn, out: &mut [u8]) {
        let first = self.index(start.0 / 8);
        let front = ((self.words.len() - first) * 8).min(out.len());
        let (front, back) = out.split_at_mut(front);
        copy_out(&self.words[first..], front);
        copy_out(&self.words, back);
    }

    fn index(&self, word: u64) -> usize {
        (word & (self.words.len() as u64 - 1)) as usize
    }
}

fn copy_out(words: &[AtomicU64], out: &mut [u8]) {
    for (word, out) in words.iter().zip(out.chunks_exact_mut(8)) {
        out.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
}

/// Writes bytes at word granularity: what does not fill a word is carried to the next slice.
struct Cursor<'a> {
    ring: &'a Ring,
    word: u64,
    carry: u64,
    carry_bytes: usize,
}

impl Cursor<'_> {
    fn put_word(&mut self, value: u64) {
        self.ring.words[self.ring.index(self.word)].store(value, Ordering::Relaxed);
        self.word += 1;
    }

    fn put(&mut self, mut bytes: &[u8]) {
        while self.carry_bytes != 0 && !bytes.is_empty() {
            self.carry |= u64::from(bytes[0]) << (8 * self.carry_bytes);
            self.carry_bytes += 1;
            bytes = &bytes[1..];
            if self.carry_bytes == 8 {
                let word = self.carry;
                (self.carry, self.carry_bytes) = (0, 0);
                self.put_word(word);
            }
        }
        let whole = bytes.len() / 8;
        let first = self.ring.index(self.word);
        let front = whole.min(self.ring.words.len() - first);
        let (words, tail) = bytes.split_at(whole * 8);
        let (front, back) = words.split_at(front * 8);
        copy_in(&self.ring.words[first..], front);
        copy_in(&self.ring.words, back);
        self.word += whole as u64;
        for &byte in tail {
            self.carry |= u64::from(byte) << (8 * self.carry_bytes);
            self.carry_bytes += 1;
        }
    }

    fn finish(mut self, end_word: u64) {
        if self.carry_bytes != 0 {
            self.put_word(self.carry);
        }
        while self.word < end_word {
            self.put_word(0);
        }
        debug_assert_eq!(self.word, end_word, "a record fills its range");
    }
}

fn copy_in(words: &[AtomicU64], bytes: &[u8]) {
    for (word, bytes) in words.iter().zip(bytes.as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Records;

    #[test]
    fn slices_of_every_length_come_back_across_the_seam() {
        let ring = Ring::new(256);
        let payload: Vec<u8> = (1..=200).collect();
        let mut at = Lsn(4096);
        for len in 0..200 {
            for cut in [0, len.min(1), len / 3, len / 2, len] {
                let (a, b) = payload[..len].split_at(cut);
                ring.put(at, RecordKind(9), len, &[a, b]);
                let mut out = vec![0xee; record_bytes(len) as usize];
                ring.read(at, &mut out);
                let mut records = Records::new(&out, at);
                let record = records.next().expect("one record");
                assert_eq!((record.payload, record.kind), (&payload[..len], RecordKind(9)));
                assert!(out[8 + len..].iter().all(|&b| b == 0), "padding is zero");
                at = record.end;
            }
        }
    }
}
