//! Blocks in one part and in several.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use base::{Fault, IndexId};
use trefoil_store::codec::{self, HEADER_BYTES, PAYLOAD_BYTES_MAX, Want};
use trefoil_store::{BlockKind, Compression};
use vfs::random::Rng;

const INDEX: IndexId = IndexId(7);
const OFFSET: u64 = 8192;
const WANT: Want = Want { kind: BlockKind::Leaf, index: INDEX, crc: None };
/// Where the version, the number of parts and their rows are.
const VERSION_AT: usize = 2;
const COUNT_AT: usize = HEADER_BYTES;
const ROWS_AT: usize = COUNT_AT + 4;

fn sealed(compression: Compression, payload: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut block = Vec::new();
    let bytes = codec::seal(BlockKind::Leaf, INDEX, compression, payload, cuts, &mut block).unwrap();
    assert_eq!(block.len(), bytes);
    codec::stamp(&mut block, OFFSET);
    block
}

fn opened(block: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut out = vec![1, 2, 3];
    codec::open(&"a file", OFFSET, block, &WANT, &mut out).map(|()| out)
}

/// What is read of a range, and where it begins.
fn part(block: &[u8], range: std::ops::Range<usize>) -> (usize, Vec<u8>) {
    let mut out = vec![9];
    let begin = codec::open_block(&"a file", OFFSET, block, &WANT).unwrap().read(range, &mut out).unwrap();
    (begin, out)
}

/// Pieces that compress, and pieces that do not.
fn made_up(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    while payload.len() < bytes {
        let most = [1, 4, 256][rng.index(3)];
        payload.extend((0..rng.below(bytes as u64 / 2 + 2)).map(|_| rng.below(most) as u8));
    }
    payload.truncate(bytes);
    payload
}

fn some_cuts(rng: &mut Rng, bytes: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = (0..rng.below(6)).map(|_| 1 + rng.index(bytes - 1)).collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

#[test]
fn parts_are_the_payload() {
    let mut rng = Rng::new(11);
    let mut in_parts = 0;
    for round in 0..3000 {
        let bytes = 2 + rng.index([30, 300, 6000][round % 3]);
        let (payload, cuts) = (made_up(&mut rng, bytes), some_cuts(&mut rng, bytes));
        let compression = [Compression::None, Compression::Lz4, Compression::Zstd][rng.index(3)];
        let block = sealed(compression, &payload, &cuts);
        assert!(block.len() <= HEADER_BYTES + payload.len(), "never longer than without compression");
        assert!(opened(&block).unwrap() == payload);
        // The parts, if they were worth it, or one.
        let mut ends = if block[VERSION_AT] == 2 { cuts } else { Vec::new() };
        in_parts += usize::from(!ends.is_empty());
        ends.push(bytes);
        let begins = || [0].into_iter().chain(ends.iter().copied());
        for (begin, &end) in begins().zip(&ends) {
            assert!(part(&block, begin..end) == (begin, payload[begin..end].to_vec()), "a part alone");
        }
        let (from, to) = (rng.index(bytes), rng.index(bytes + 20));
        let (begin, out) = part(&block, from..to);
        if from < to {
            assert_eq!(begin, begins().filter(|begin| *begin <= from).max().unwrap());
            let end = ends.iter().copied().find(|end| *end >= to.min(bytes)).unwrap();
            assert!(out == payload[begin..end], "the parts that have some of it");
        }
        assert_eq!(part(&block, bytes..bytes + 9), (bytes, Vec::new()), "there is nothing behind the end");
    }
    assert!(in_parts > 500, "{in_parts}");
}

/// Without cuts, and where parts would shrink nothing, a block is what builds before them wrote.
#[test]
fn one_part_is_of_the_old_version() {
    let mut rng = Rng::new(12);
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let payload: Vec<u8> = (0..5000u32).map(|n| (n / 50) as u8).collect();
        let block = sealed(compression, &payload, &[]);
        assert_eq!(block[VERSION_AT], 1);
        assert!(opened(&block).unwrap() == payload);
        assert_eq!(part(&block, 4000..4001), (0, payload));
    }
    let noise: Vec<u8> = (0..5000).map(|_| rng.u64() as u8).collect();
    for (compression, cuts) in [(Compression::Lz4, vec![2000]), (Compression::None, vec![1, 2])] {
        let block = sealed(compression, &noise, &cuts);
        assert!(block == sealed(compression, &noise, &[]), "compression that does not shrink is dropped");
        assert_eq!((block[VERSION_AT], block.len()), (1, HEADER_BYTES + noise.len()));
    }
    // As an older build sealed it.
    let mut old = vec![b'B', b'L', 1, 1, 0, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0];
    old.resize(HEADER_BYTES, 0);
    old.extend_from_slice(b"hello");
    codec::stamp(&mut old, OFFSET);
    assert_eq!(sealed(Compression::Lz4, b"hello", &[]), old);
    assert_eq!(opened(&old).unwrap(), b"hello");
}

fn in_parts() -> Vec<u8> {
    let payload: Vec<u8> = (0..900u32).map(|n| (n / 30) as u8).collect();
    let block = sealed(Compression::Lz4, &payload, &[300, 310, 700]);
    assert_eq!(block[VERSION_AT], 2);
    block
}

#[test]
fn every_byte_counts() {
    let block = in_parts();
    assert!(opened(&block).is_ok());
    for at in 0..block.len() {
        assert!(opened(&block[..at]).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut bad = block.clone();
            bad[at] ^= 1 << bit;
            assert!(opened(&bad).is_err(), "bit {bit} of byte {at}");
        }
    }
    let elsewhere = codec::open_block(&"a file", OFFSET + 1, &block, &WANT);
    assert!(matches!(elsewhere.err().unwrap(), Fault::Corrupt(c) if c.what == "block checksum"));
}

/// A table that nobody wrote, under a checksum that holds.
#[test]
fn a_table_that_does_not_fit_is_refused() {
    let good = in_parts();
    let word = |at: usize| u32::from_le_bytes(good[at..at + 4].try_into().unwrap());
    let count = word(COUNT_AT);
    assert_eq!(count, 4);
    let row = |n: usize| ROWS_AT + 8 * n;
    let max = PAYLOAD_BYTES_MAX as u32;
    let tables: [(&str, Vec<(usize, u32)>); 11] = [
        ("no parts", vec![(COUNT_AT, 0)]),
        ("more rows than there are", vec![(COUNT_AT, count + 1)]),
        ("fewer rows than there are", vec![(COUNT_AT, count - 1)]),
        ("rows beyond all numbers", vec![(COUNT_AT, u32::MAX)]),
        ("a payload longer than the block's", vec![(row(0), word(row(0)) + 1)]),
        ("a payload shorter than the block's", vec![(row(0), word(row(0)) - 1)]),
        ("payloads that overflow", vec![(row(0), u32::MAX), (row(2), u32::MAX)]),
        ("a part longer than stored", vec![(row(0) + 4, word(row(0) + 4) + 1)]),
        ("a part longer than its payload", vec![(row(1) + 4, 11), (row(0) + 4, word(row(0) + 4) - 1)]),
        ("an empty part", vec![(row(1), 0), (row(1) + 4, 0), (row(0), 310), (row(0) + 4, word(row(0) + 4) + 10)]),
        ("a block longer than any", vec![(12, max + 1), (row(0), word(row(0)) + max + 1 - 900)]),
    ];
    for (what, words) in tables {
        let mut bad = good.clone();
        words.iter().for_each(|(at, word)| bad[*at..*at + 4].copy_from_slice(&word.to_le_bytes()));
        codec::stamp(&mut bad, OFFSET);
        assert!(matches!(codec::open_block(&"a file", OFFSET, &bad, &WANT), Err(Fault::Corrupt(_))), "{what}");
    }
    // No part is compressed, says the header.
    let mut bad = good.clone();
    bad[4] = 0;
    codec::stamp(&mut bad, OFFSET);
    assert!(matches!(opened(&bad), Err(Fault::Corrupt(c)) if c.what == "stored payload length"));
    // A payload that is as long as it can be, and is not there.
    let mut bad = good.clone();
    let longest = word(row(0)) + max - 900;
    bad[12..16].copy_from_slice(&max.to_le_bytes());
    bad[row(0)..row(0) + 4].copy_from_slice(&longest.to_le_bytes());
    codec::stamp(&mut bad, OFFSET);
    assert!(matches!(opened(&bad), Err(Fault::Corrupt(c)) if c.what.contains("payload")));
}
