use index::{EntryBatch, Prefix};

use super::*;

fn parse(bytes: Vec<u8>) -> Result<DataBlock, String> {
    DataBlock::parse(bytes, &FramePool::new(1 << 20, 0))
}

fn block(entries: &[(&[u8], u64, Value<'_>)]) -> DataBlock {
    let mut builder = BlockBuilder::default();
    entries.iter().for_each(|(key, ts, value)| builder.push(key, CommitTs(*ts), *value));
    parse(builder.finish()).expect("what was built is sound")
}

fn refs() -> Vec<u8> {
    encode_pieces([
        BlockRef { offset: 1 << 20, stored_bytes: 99, crc: 7 },
        BlockRef { offset: 5, stored_bytes: 1, crc: 0 },
    ])
}

#[test]
fn versions_come_back() {
    let refs = refs();
    let large = Value::Large(Pieces::new(300, &refs));
    let entries: [(&[u8], u64, Value<'_>); 5] = [
        (b"row/a", 64, Value::Inline(b"")),
        (b"row/a", 48, Value::Delete),
        (b"row/b", 16, large),
        (b"row/b\0", 80, Value::Inline(b"x")),
        (b"row/c", 32, Value::Inline(&[7; 300])),
    ];
    let block = block(&entries);
    assert_eq!((block.len(), block.prefix()), (5, b"row/".as_slice()));
    let mut key = Vec::new();
    for (i, (expected, ts, value)) in entries.iter().enumerate() {
        block.key_into(i, &mut key);
        assert_eq!((key.as_slice(), block.version(i).1), (*expected, Version { ts: CommitTs(*ts), value: *value }));
        assert!(block.is_of(i, expected) && !block.is_of(i, b"row") && !block.is_of(i, b"row/d"));
    }
    assert_eq!(Pieces::new(1, &refs).iter().map(|at| at.offset).collect::<Vec<_>>(), [1 << 20, 5]);
}

/// Only a block that has fresh puts is of the format that says so, and both kinds of values come back from it.
#[test]
fn fresh_puts_come_back() {
    let entries: [(&[u8], u64, Value<'_>); 4] = [
        (b"row/a", 64, Value::Fresh(b"")),
        (b"row/a", 48, Value::Delete),
        (b"row/b", 16, Value::Inline(b"some value")),
        (b"row/c", 32, Value::Fresh(&[7; 300])),
    ];
    for (of, format) in [(&entries[..], FRESH_FORMAT), (&entries[1..3], DATA_FORMAT)] {
        let block = block(of);
        assert_eq!((block.versions()[0], block.len()), (format, of.len()));
        for (i, (_, ts, value)) in of.iter().enumerate() {
            assert_eq!(block.version(i).1, Version { ts: CommitTs(*ts), value: *value });
        }
    }
    let mut builder = BlockBuilder::default();
    entries.iter().for_each(|(key, ts, value)| builder.push(key, CommitTs(*ts), *value));
    assert_eq!(builder.finish()[0], FRESH_FORMAT);
    builder.push(b"row", CommitTs(1), Value::Inline(b""));
    assert_eq!(builder.finish()[0], DATA_FORMAT, "the builder is empty in between");
}

/// One after the other they are those at their places; what lies in the block comes in one piece, however long the numbers before it are.
#[test]
fn versions_come_one_after_the_other() {
    let refs = refs();
    let large = Value::Large(Pieces::new(300, &refs));
    let entries: [(&[u8], u64, Value<'_>); 6] = [
        (b"row/", u64::MAX, Value::Inline(b"")),
        (b"row/a", 1 << 62, Value::Fresh(b"some value")),
        (b"row/a", 48, Value::Delete),
        (b"row/b", 16, large),
        (b"row/b", 2, Value::Inline(&[7; 300])),
        (b"row/c", 3, Value::Fresh(b"")),
    ];
    let block = block(&entries);
    for from in 0..=entries.len() {
        let all: Vec<_> = block.entries_from(from).collect();
        assert_eq!(all.len(), entries.len() - from);
        for (entry, (key, ts, value)) in all.iter().zip(&entries[from..]) {
            assert_eq!((entry.suffix, entry.version), (&key[4..], Version { ts: CommitTs(*ts), value: *value }));
            let piece = entry.piece();
            let (Value::Inline(value) | Value::Fresh(value)) = value else {
                assert!(piece.is_none());
                continue;
            };
            let mut batch = EntryBatch::new();
            batch.push_piece(&Prefix::new(block.prefix()), piece.expect("in one piece"), entry.version.ts);
            assert_eq!((batch.key(0), batch.value(0), batch.ts(0)), (*key, *value, CommitTs(*ts)));
        }
    }
}

/// Blocks of before are read; of one whose table names another place nothing is.
#[test]
fn a_block_with_offsets_is_read() {
    let entries: [(&[u8], u64, Value<'_>); 3] = [
        (b"row/a", 64, Value::Fresh(b"new")),
        (b"row/a", 48, Value::Delete),
        (b"row/b", 16, Value::Inline(b"some value")),
    ];
    for (of, format) in [(&entries[..], 3), (&entries[1..], 1)] {
        let new = block(of);
        let mut old = new.versions().to_vec();
        old[0] = format;
        (0..new.len()).for_each(|i| old.extend_from_slice(&(new.offset(i) as u32).to_le_bytes()));
        let read = parse(old.clone()).expect("it is sound");
        assert!((0..of.len()).all(|i| read.version(i) == new.version(i)), "{format}");
        assert_eq!((read.len(), read.memory_bytes()), (of.len(), new.memory_bytes()));
        *old.last_mut().expect("it has a table") ^= 1;
        assert!(parse(old).is_err());
    }
    assert!(parse([&[2], &block(&entries).versions()[1..]].concat()).is_err(), "an index block");
}

#[test]
fn it_finds_the_first_that_is_not_before() {
    let entries: [(&[u8], u64, Value<'_>); 4] = [
        (b"ka", 64, Value::Delete),
        (b"ka", 32, Value::Delete),
        (b"kc", 64, Value::Delete),
        (b"kc", 16, Value::Delete),
    ];
    let block = block(&entries);
    for key in [b"".as_slice(), b"j", b"k", b"ka", b"kb", b"kc", b"kc\0", b"l", b"kaa"] {
        for ts in [0, 16, 17, 32, 64, 65] {
            let before = |(k, t, _): &&(&[u8], u64, Value<'_>)| *k < key || (*k == key && *t > ts);
            let expected = entries.iter().take_while(before).count();
            assert_eq!(block.seek(key, CommitTs(ts)), expected, "{key:?} at {ts}");
        }
    }
}

#[test]
fn damaged_bytes_are_found_or_are_other_versions() {
    let refs = refs();
    let entries: [(&[u8], u64, Value<'_>); 3] = [
        (b"row/a", 64, Value::Inline(b"some value")),
        (b"row/a", 48, Value::Delete),
        (b"row/b", 16, Value::Large(Pieces::new(300, &refs))),
    ];
    let mut builder = BlockBuilder::default();
    entries.iter().for_each(|(key, ts, value)| builder.push(key, CommitTs(*ts), *value));
    let bytes = builder.finish();
    for i in 0..bytes.len() {
        assert!(parse(bytes[..i].to_vec()).is_err(), "cut at {i}");
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[i] ^= 1 << bit;
            if let Ok(block) = parse(bad) {
                assert!((0..block.len()).all(|i| block.version(i).1.ts <= CommitTs::MAX));
                block.seek(b"row/b", CommitTs(20));
            }
        }
    }
}

/// What a builder says of a block's memory is at least what that takes, and not much more: a frame is filled, and no block needs a larger one.
#[test]
fn a_builder_knows_what_its_block_takes_in_memory() {
    const MOST: usize = 8 << 10;
    let mut rng = vfs::random::Rng::new(5);
    for round in 0..200u64 {
        let front = vec![b'k'; rng.index(40)];
        let (values, commits) = ([0, 8, 100, 700][rng.index(4)], [1, 300, 1 << 40][rng.index(3)]);
        let (mut builder, mut n) = (BlockBuilder::default(), rng.below(1 << 20));
        loop {
            n += 1 + rng.below(500);
            let key = [&front[..], &n.to_be_bytes()[4..], &vec![1; rng.index(9)]].concat();
            // Few are young, or all.
            let ts = if rng.chance(0.1) || commits > 1 << 30 { 1 + rng.below(commits) } else { 1 };
            let (ts, bytes) = (CommitTs((1 << 50) + ts), vec![3; rng.index(values + 1)]);
            let value = [Value::Inline(&bytes), Value::Fresh(&bytes), Value::Delete][rng.index(3)];
            if !builder.fits(&key, ts, value.block_bytes(), MOST) {
                break;
            }
            builder.push(&key, ts, value);
        }
        let (most, payload_most) = (builder.sums.memory_bytes(), builder.payload_bytes());
        let payload = builder.finish();
        assert!(payload.len() <= payload_most, "{round}: {} of {payload_most}", payload.len());
        let block = parse(payload).expect("sound");
        let taken = block.end as usize + (block.len() + block.len().div_ceil(POST_STEP)) * OFFSET_BYTES;
        assert!(
            (taken..=taken + taken / 16).contains(&most),
            "{round}: {most} for {taken} of {} versions",
            block.len()
        );
        assert_eq!(block.memory_bytes(), MOST, "{round}: one frame, and no half");
    }
    assert!([0, 1, 127, 128, 16383, 16384, u64::MAX].iter().all(|n| {
        let mut out = Vec::new();
        put_varint(&mut out, *n);
        out.len() == varint_bytes(*n)
    }));
}

/// What a look-up in a block costs, in keys that are looked at: what a table of hashes would have to win against (decision 0016).
#[test]
fn a_search_looks_at_few_keys() {
    let mut rng = vfs::random::Rng::new(11);
    let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    type Key<'a> = &'a dyn Fn(u64) -> Vec<u8>;
    let kinds: [(&str, Key<'_>, usize, f64); 4] = [
        ("numbers, spread", &spread, 100, 2.5),
        ("numbers in a row", &|n| n.to_be_bytes().to_vec(), 100, 2.5),
        ("words and numbers", &|n| format!("user{:012}", n * 7919 % 1_000_000_007).into_bytes(), 100, 2.5),
        ("short entries, three columns", &|n| [spread(n % 50)[..4].to_vec(), spread(n)].concat(), 0, 9.0),
    ];
    for (what, key, value_bytes, most) in kinds {
        let mut keys: Vec<_> = (0..1_000_000u64).step_by(37).map(key).collect();
        keys.sort();
        keys.dedup();
        let (mut builder, mut blocks, mut first) = (BlockBuilder::default(), Vec::new(), 0);
        for (i, key) in keys.iter().enumerate() {
            let ts = CommitTs(1000 + i as u64);
            if !builder.fits(key, ts, value_bytes, 16 << 10) {
                blocks.push((first..i, parse(builder.finish()).expect("sound")));
                first = i;
            }
            builder.push(key, ts, Value::Inline(&vec![7; value_bytes]));
        }
        let (mut looks, mut compared, mut versions, mut bytes) = (0u32, 0u32, 0, 0);
        for (range, block) in &blocks {
            (versions, bytes) = (versions + block.len(), bytes + block.memory_bytes());
            for _ in 0..50 {
                let i = range.start + rng.index(range.len());
                let found = block.seek_noting(&keys[i], CommitTs::MAX, || compared += 1);
                assert_eq!(found, i - range.start);
                looks += 1;
            }
        }
        let mean = f64::from(compared) / f64::from(looks);
        println!(
            "{what:<30} {} versions a block, {:.1} bytes of memory each; {mean:.2} keys looked at",
            versions / blocks.len(),
            bytes as f64 / versions as f64
        );
        assert!(mean < most, "{what}: {mean}");
    }
}
