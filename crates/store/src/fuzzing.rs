//! Bodies of the fuzz targets: every decoder of this crate on hostile bytes. A body returns; it does not panic,
//! hang, or allocate much more than it was given (a decompressed block: at most [`PAYLOAD_BYTES_MAX`]). Plain
//! functions, so that the tests run them too.

use std::ops::Range;

use base::IndexId;
use base::bytes::Reader;

use crate::codec::{self, OpenBlock, PAYLOAD_BYTES_MAX, Want};
use crate::space::Saved;
use crate::{BlockKind, BlockRef, Compression, RunMeta};

const KINDS: [BlockKind; 5] =
    [BlockKind::Leaf, BlockKind::Inner, BlockKind::Overflow, BlockKind::Run, BlockKind::Segment];

/// A block as read from a file. Also with its checksum put right, so that what is behind it is reached.
pub fn block(data: &[u8]) {
    let Some((&choice, block)) = data.split_first() else { return };
    let index = IndexId(u32::from(choice >> 4));
    let want = Want { kind: KINDS[usize::from(choice) % KINDS.len()], index, crc: None };
    let mut out = Vec::new();
    let _ = codec::open(&"fuzz", 4096, block, &want, &mut out);
    let mut block = block.to_vec();
    if block.len() >= codec::HEADER_BYTES {
        codec::stamp(&mut block, 4096);
        let is_whole = codec::open(&"fuzz", 4096, &block, &want, &mut out).is_ok();
        assert!(out.len() <= PAYLOAD_BYTES_MAX);
        if let Ok(opened) = codec::open_block(&"fuzz", 4096, &block, &want) {
            let at = usize::from(choice).wrapping_mul(97) % (opened.payload_bytes() + 9);
            part(&opened, at..at + 20, is_whole.then_some(&out));
        }
    }
}

/// What is read of a range, compared with the whole payload if there is one.
#[allow(clippy::reversed_empty_ranges, reason = "what a caller may ask for by mistake")]
fn part(opened: &OpenBlock<'_>, range: Range<usize>, whole: Option<&Vec<u8>>) {
    let mut out = Vec::new();
    let _ = opened.read(range.end..range.start, &mut out);
    let read = opened.read(range.clone(), &mut out);
    assert!(out.len() <= opened.payload_bytes());
    let Some(whole) = whole else { return };
    let begin = read.expect("each part of a whole payload is whole");
    assert_eq!(out, whole.get(begin..begin + out.len()).unwrap_or_default());
    let end = range.end.min(whole.len());
    assert!(range.start >= end || begin <= range.start && begin + out.len() >= end, "the range is there");
}

/// A payload sealed, stamped and opened again; then with a byte changed.
pub fn block_round_trip(data: &[u8]) {
    let Some((&[choice, at, change], payload)) = data.split_first_chunk::<3>() else { return };
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd][usize::from(choice) % 3];
    let kind = KINDS[usize::from(choice >> 2) % KINDS.len()];
    let want = Want { kind, index: IndexId(3), crc: None };
    let mut block = vec![0xaa; 5];
    // Often none, often some where the payload says.
    let cuts = payload.iter().take(usize::from(choice >> 5) * usize::from(change & 1)).scan(0, |at, byte| {
        *at += usize::from(*byte) + 1;
        (*at < payload.len()).then_some(*at)
    });
    let cuts: Vec<usize> = cuts.collect();
    let Ok(bytes) = codec::seal(kind, IndexId(3), compression, payload, &cuts, &mut block) else { return };
    assert_eq!(block.len(), 5 + bytes);
    assert!(bytes <= codec::HEADER_BYTES + payload.len(), "never longer than without compression");
    let block = &mut block[5..];
    let crc = codec::stamp(block, 777);
    let mut out = vec![1, 2, 3];
    codec::open(&"fuzz", 777, block, &Want { crc: Some(crc), ..want }, &mut out).expect("it is whole");
    assert_eq!(out, payload);
    {
        let opened = codec::open_block(&"fuzz", 777, block, &want).expect("it is whole");
        part(&opened, usize::from(at)..usize::from(at) + usize::from(change), Some(&out));
        for range in cuts.windows(2).map(|cuts| cuts[0]..cuts[1]).filter(|_| block[2] == codec::FORMAT_VERSION) {
            let mut alone = Vec::new();
            assert_eq!(opened.read(range.clone(), &mut alone).expect("it is whole"), range.start);
            assert_eq!(alone, &payload[range], "a part, and no more");
        }
    }
    assert!(codec::open(&"fuzz", 778, block, &want, &mut out).is_err(), "another address");
    if change != 0 {
        let at = usize::from(at) % block.len();
        block[at] ^= change;
        assert!(codec::open(&"fuzz", 777, block, &want, &mut out).is_err(), "a changed byte");
    }
}

/// The allocator's state in a manifest.
pub fn saved_state(data: &[u8]) {
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(&base::checksum::crc32c(data).to_le_bytes());
    for bytes in [data, &sealed] {
        if let Ok(saved) = Saved::decode(bytes) {
            assert_eq!(Saved::decode(&saved.encode()).expect("what was decoded is whole"), saved);
        }
    }
}

/// References and run descriptions, as nodes, manifests and log records hold them.
pub fn references(data: &[u8]) {
    if let Some(at) = BlockRef::decode(&mut Reader::new(data)) {
        let mut out = Vec::new();
        at.encode(&mut out);
        assert_eq!(out, &data[..BlockRef::BYTES]);
    }
    if let Some(meta) = RunMeta::decode(&mut Reader::new(data)) {
        let mut out = Vec::new();
        meta.encode(&mut out);
        assert_eq!(RunMeta::decode(&mut Reader::new(&out)), Some(meta));
    }
}

/// The inside of a run file's block: parsed, and if it holds, walked both ways and searched.
pub fn run_block(data: &[u8]) {
    crate::run::fuzz_block(data);
}

/// A fuzz target's body.
pub type Body = fn(&[u8]);

/// All bodies, by the name of their target.
pub const BODIES: [(&str, Body); 5] = [
    ("store_block", block),
    ("store_block_round_trip", block_round_trip),
    ("store_saved_state", saved_state),
    ("store_references", references),
    ("store_run_block", run_block),
];
