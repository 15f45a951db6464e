use base::GcView;
use index::Op;
use store::{BlockRef, Compression};
use vfs::random::Rng;

use super::super::fuzzing::point::Sealed;
use super::super::leaf::{Insert, Leaf};
use super::super::page::Kind;
use super::*;

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

/// Keys with fronts in common, some of them long, ascending.
fn some_keys(rng: &mut Rng, node_bytes: usize) -> Vec<Vec<u8>> {
    let longest = super::super::max_key_bytes(node_bytes);
    let front = vec![b'm'; [0, 3, 40][rng.index(3)]];
    let most = [3, 30, 1000][rng.index(3)];
    let count = 1 + rng.index(most);
    let key = |rng: &mut Rng| {
        let most = if rng.below(20) == 0 { longest / [1, 4, 20][rng.index(3)] } else { 20 };
        let bytes = rng.index(most);
        let most = [2, 4, 256][rng.index(3)];
        let mut key = front.clone();
        key.extend((0..bytes).map(|_| rng.below(most) as u8));
        key.truncate(longest);
        key
    };
    let mut keys: Vec<_> = (0..count).map(|_| key(rng)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// As full of versions, tombstones, large values and chains as it gets.
fn some_leaf(rng: &mut Rng, node_bytes: usize, keys: &[Vec<u8>]) -> Leaf {
    let mut leaf = Leaf::new(node_bytes, b"", None);
    let (deletes, large, value_bytes) = (rng.below(4), rng.below(4), 1 + rng.below(60));
    for i in 1..=3 * keys.len() as u64 + 60 {
        let key = &keys[rng.index(keys.len())];
        let bytes = if rng.below(100) < large { node_bytes as u64 } else { rng.below(value_bytes) };
        let value: Vec<u8> = (0..bytes).map(|n| (n * i) as u8).collect();
        let op = if rng.below(10) < deletes { Op::Delete } else { Op::Put(&value) };
        let _ = leaf.insert(key, CommitTs(16 * i), op, &GcView::keep_all(), None);
    }
    store_beside(&mut leaf);
    leaf
}

fn store_beside(leaf: &mut Leaf) {
    while let parts @ [_, ..] = &leaf.unwritten()[..] {
        for part in parts {
            let at = BlockRef { offset: part.edition, stored_bytes: 9, crc: 9 };
            assert!(leaf.set_stored(part.id, part.edition, vec![at]));
        }
    }
}

/// The keys, and what lies just beside each of them.
fn with_gaps(keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(), vec![255; 50], b"m".to_vec(), b"l".to_vec(), b"n".to_vec()];
    for key in keys {
        all.extend([key.clone(), [key, &[0][..]].concat(), key[..key.len() / 2].to_vec()]);
        if let Some((last, rest)) = key.split_last() {
            all.extend([rest.to_vec(), [rest, &[last.wrapping_sub(1)], &[255; 3]].concat()]);
        }
    }
    all
}

fn plain(leaf: &Leaf) -> Vec<u8> {
    let mut image = Vec::new();
    leaf.encode_image(&mut image);
    image
}

fn basements(image: &[u8]) -> usize {
    Front::read(image).expect("it is sound").directory.count()
}

/// Every version of every key, every gap between keys, in whole images and in those whose fences got narrower: what a leaf
/// made of the image says.
#[test]
fn a_point_read_is_what_the_leaf_says() {
    let mut rng = Rng::new(7);
    let mut cut = 0;
    for round in 0..400 {
        let node_bytes = [512, 1024, 4096, 64 << 10][(round % 33).min(3)];
        let keys = some_keys(&mut rng, node_bytes);
        let leaf = some_leaf(&mut rng, node_bytes, &keys);
        let mut image = vec![1, 2, 3];
        let most = node_bytes / [1, 4, 20][rng.index(3)];
        let cuts = leaf.encode_basements(1 + rng.index(most), &mut image);
        let image = &image[3..];
        cut += cuts.len();
        assert_eq!(cuts.is_empty(), image == plain(&leaf));
        assert_eq!(basements(image), cuts.len().saturating_sub(1));
        let whole = Leaf::decode_image(image, b"", None, node_bytes).expect("what was encoded");
        assert!(plain(&whole) == plain(&leaf), "basements hold the same");
        let sealed = Sealed::new(image, &cuts, COMPRESSIONS[rng.index(3)]);
        let sample = if node_bytes > 4096 { 9 } else { 1 };
        with_gaps(&keys).iter().skip(rng.index(sample)).step_by(sample).for_each(|key| sealed.check_key(&leaf, key));
        // A splitting of the leaf makes its fences narrower, and the image is what it was.
        let mut fences = [&keys[rng.index(keys.len())][..], &keys[rng.index(keys.len())][..]];
        fences.sort_unstable();
        let (lo, hi) = (fences[0], Some(fences[1]).filter(|hi| *hi > fences[0]));
        let part = Leaf::decode_image(image, lo, hi, node_bytes).expect("a part of what was encoded");
        let covered = |key: &&Vec<u8>| part.covers(key);
        with_gaps(&keys).iter().filter(covered).step_by(sample).for_each(|key| sealed.check_key(&part, key));
        assert!(plain(&part) == plain(&Leaf::decode_image(&plain(&leaf), lo, hi, node_bytes).expect("the same")));
    }
    assert!(cut > 1000, "{cut}");
}

/// Rows as tables have them: a read decompresses a quarter.
#[test]
fn a_point_read_decompresses_one_basement() {
    let node_bytes = 64 << 10;
    let mut leaf = Leaf::new(node_bytes, b"", None);
    let key = |n: u64| format!("customer {:011}", n * 3).into_bytes();
    let value = |n: u64| format!("{:060}", n * n).into_bytes();
    let put =
        |leaf: &mut Leaf, n| leaf.insert(&key(n), CommitTs(n * 160), Op::Put(&value(n)), &GcView::keep_all(), None);
    let count = (0..).take_while(|n| matches!(put(&mut leaf, *n), Insert::Done(_))).count() as u64;
    let mut image = Vec::new();
    let cuts = leaf.encode_basements(super::super::basement_bytes(node_bytes), &mut image);
    assert_eq!(cuts.len(), 4, "{} bytes: the front, and four basements", image.len());
    assert!(cuts[0] < 200, "the front is small");
    let sealed = Sealed::new(&image, &cuts, Compression::Lz4);
    let read = |n| sealed.check(&leaf, &key(n), CommitTs::MAX).iter().map(Vec::len).sum::<usize>();
    let most = (0..count).map(read).max().expect("there are keys");
    assert!(most < (16 << 10) + 400, "{most} bytes for one key");
    // A smaller leaf has none.
    let mut small = Leaf::new(16 << 10, b"", None);
    (0..).take_while(|n| matches!(put(&mut small, *n), Insert::Done(_))).count();
    let mut image = Vec::new();
    assert!(small.encode_basements(super::super::basement_bytes(16 << 10), &mut image).is_empty());
    assert_eq!(image, plain(&small));
}

/// However many versions a key has, they and its chain are in the basement in which it begins.
#[test]
fn a_key_is_in_one_basement() {
    let mut leaf = Leaf::new(4096, b"", None);
    let held = GcView::keep_all();
    // The versions of `b` stay in the page; most of the others are in chains.
    for (key, versions) in [(b"a", 90), (b"b", 30), (b"c", 90)] {
        for n in 1..versions {
            let (ts, value) = (CommitTs(16 * n), [n as u8; 9]);
            assert!(matches!(leaf.insert(key, ts, Op::Put(&value), &held, None), Insert::Done(_)));
        }
    }
    store_beside(&mut leaf);
    let mut image = Vec::new();
    let cuts = leaf.encode_basements(1, &mut image);
    let front = Front::read(&image).expect("it is sound");
    let keys: Vec<_> = front.directory.map(|basement| basement.key).collect();
    assert_eq!(keys, [b"b", b"c"]);
    let chains = (0..leaf.slots()).filter(|i| leaf.page.slot(*i).kind() == Kind::Chain).count();
    assert_eq!((chains, front.slots), (2, leaf.slots() as u64));
    let sealed = Sealed::new(&image, &cuts, Compression::Lz4);
    [&b"a"[..], b"b", b"c", b"", b"aa", b"bb", b"d"].iter().for_each(|key| sealed.check_key(&leaf, key));
}

#[test]
fn keys_as_long_as_they_may_be() {
    let node_bytes = 64 << 10;
    for bytes in [48 << 10, 30_000, 20_000, 8191, 8190] {
        let mut leaf = Leaf::new(node_bytes, b"", None);
        let key = |own: u8| [vec![b'k'; bytes - 2], vec![own; 2]].concat();
        let put =
            |leaf: &mut Leaf, key: &[u8]| leaf.insert(key, CommitTs(16), Op::Put(b"v"), &GcView::keep_all(), None);
        let mut keys: Vec<_> = (b'b'..=b'y').map(key).filter(|key| put(&mut leaf, key) != Insert::Full).collect();
        for own in [b"a", b"z"] {
            if put(&mut leaf, own) != Insert::Full {
                keys.push(own.to_vec());
            }
        }
        let mut image = Vec::new();
        let cuts = leaf.encode_basements(super::super::basement_bytes(node_bytes), &mut image);
        let whole = Leaf::decode_image(&image, b"", None, node_bytes).expect("what was encoded");
        assert!(plain(&whole) == plain(&leaf));
        let sealed = Sealed::new(&image, &cuts, Compression::Lz4);
        with_gaps(&keys).iter().for_each(|key| sealed.check_key(&leaf, key));
    }
}

fn just_below(key: &[u8]) -> Vec<u8> {
    let (last, rest) = key.split_last().expect("it is not empty");
    [rest, &[last - 1, 255]].concat()
}

type Row = (u64, u64, Vec<u8>);

/// The image with another directory.
fn with_directory(leaf: &Leaf, image: &[u8], edit: impl FnOnce(&mut Vec<Row>)) -> Vec<u8> {
    let header_bytes = Front::read(&plain(leaf)).expect("it is sound").bytes;
    let front = Front::read(image).expect("it is sound");
    let mut before = (0, 0);
    let rows = front.directory.map(|basement| {
        let row = (basement.slot - before.0, (basement.offset - before.1) as u64, basement.key.to_vec());
        before = (basement.slot, basement.offset);
        row
    });
    let mut rows: Vec<Row> = rows.collect();
    edit(&mut rows);
    let mut out = image[..header_bytes].to_vec();
    put_varint(&mut out, rows.len() as u64);
    for (slots, bytes, key) in rows {
        put_varint(&mut out, slots);
        put_varint(&mut out, bytes);
        put_bytes(&mut out, &key);
    }
    out.extend_from_slice(&image[front.bytes..]);
    out
}

/// A directory that the entries do not agree with is damage.
#[test]
fn a_directory_that_does_not_fit_is_refused() {
    let mut leaf = Leaf::new(4096, b"", None);
    for n in 0..60u64 {
        for ts in [16, 32 * (n % 2)] {
            let _ = leaf.insert(
                format!("k{:03}", n * 5).as_bytes(),
                CommitTs(ts),
                Op::Put(b"v"),
                &GcView::keep_all(),
                None,
            );
        }
    }
    let mut image = Vec::new();
    let _ = leaf.encode_basements(150, &mut image);
    assert!(basements(&image) >= 3, "{}", basements(&image));
    assert!(with_directory(&leaf, &image, |_| {}) == image);
    let decode = |image: &[u8]| Leaf::decode_image(image, b"", None, 4096);
    type Edit = fn(&mut Vec<Row>);
    let edits: [(&str, Edit); 14] = [
        ("no basements", |rows| rows.clear()),
        ("one less", |rows| drop(rows.pop())),
        ("one more", |rows| rows.push((1, 1, b"zzz".to_vec()))),
        ("an empty one", |rows| rows[1].0 = 0),
        ("one without bytes", |rows| rows[1].1 = 0),
        ("another slot", |rows| rows[1].0 += 1),
        ("an earlier slot", |rows| rows[1].0 -= 1),
        ("a slot behind all", |rows| rows[2].0 = 1000),
        ("a slot beyond numbers", |rows| rows[2].0 = u64::MAX),
        ("another byte", |rows| rows[1].1 += 1),
        ("a byte beyond numbers", |rows| rows[2].1 = u64::MAX),
        ("a key below the one before", |rows| rows[0].2 = b"000".to_vec()),
        ("a key above the one behind", |rows| rows[0].2 = just_below(&rows[1].2)),
        ("keys that do not ascend", |rows| rows[2].2 = rows[1].2.clone()),
    ];
    for (what, edit) in edits {
        let bad = with_directory(&leaf, &image, edit);
        assert!(decode(&bad).is_err(), "{what}");
        for key in [&b"k000"[..], b"k100", b"k290", b"zzzz"] {
            Sealed::new(&bad, &[], Compression::None).read(key);
        }
    }
    // One more at the last slot, which is an older version; and one behind it, where there is nothing.
    let front = Front::read(&image).expect("it is sound");
    let last = front.directory.last().expect("there are basements");
    assert!(leaf.page.slot(leaf.slots() - 1).is_older());
    let entries_bytes = image.len() - front.bytes;
    for (slot, offset) in [(front.slots - 1, entries_bytes - 4), (front.slots, entries_bytes)] {
        let row = (slot - last.slot, (offset - last.offset) as u64, b"k295".to_vec());
        assert!(decode(&with_directory(&leaf, &image, |rows| rows.push(row))).is_err(), "a basement at slot {slot}");
    }
}
