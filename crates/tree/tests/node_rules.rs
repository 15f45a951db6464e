//! One test for each rule of the schedules page that a leaf or an inner node keeps; each fails without its guard.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;

use base::{CommitTs, GcView, Lsn};
use index::{Op, ReadAt};
use store::BlockRef;
use trefoil_tree::node::{
    Applied, ChildDescriptor, Dropped, Inner, InnerImage, Insert, Leaf, Lookup, NodeDescriptor, NodeKind, SideId, Value,
};

const NODE_BYTES: usize = 16 * 1024;

fn ts(n: u64) -> CommitTs {
    CommitTs(n)
}

fn view(floor: u64, snapshots: &[u64]) -> GcView {
    GcView::new(ts(floor), snapshots.iter().map(|s| ts(*s)).collect())
}

fn put(leaf: &mut Leaf, key: &[u8], at: u64, value: &[u8], view: &GcView) -> Applied {
    match leaf.insert(key, ts(at), Op::Put(value), view, None) {
        Insert::Done(applied) => applied,
        Insert::Full => panic!("no room for a put at {at}"),
    }
}

fn delete(leaf: &mut Leaf, key: &[u8], at: u64, view: &GcView) -> Applied {
    match leaf.insert(key, ts(at), Op::Delete, view, None) {
        Insert::Done(applied) => applied,
        Insert::Full => panic!("no room for a delete at {at}"),
    }
}

/// The value of `key` at `s`, large values included.
fn read(leaf: &Leaf, key: &[u8], s: u64) -> Option<(u64, Vec<u8>)> {
    match leaf.get(key, ReadAt::Snapshot(ts(s))) {
        Lookup::Found { ts, value: Value::Inline(bytes) } => Some((ts.0, bytes.to_vec())),
        Lookup::Found { ts, value: Value::Overflow(value) } => {
            Some((ts.0, value.resident().map_or_else(Vec::new, |bytes| bytes.to_vec())))
        }
        Lookup::Tombstone { .. } | Lookup::Absent => None,
    }
}

fn timestamps(leaf: &Leaf) -> Vec<u64> {
    let mut out = Vec::new();
    leaf.for_each_version(&mut |_, ts, _| out.push(ts.0));
    out
}

/// A disk for what is beside the page.
#[derive(Default)]
struct Disk(BTreeMap<u64, Vec<u8>>);

impl Disk {
    fn block(&mut self, bytes: &[u8]) -> BlockRef {
        let offset = self.0.len() as u64;
        self.0.insert(offset, bytes.to_vec());
        BlockRef { offset, stored_bytes: bytes.len() as u32, crc: 7 }
    }

    /// Writes until the leaf can be encoded; the number of rounds.
    fn store(&mut self, leaf: &mut Leaf) -> usize {
        let mut rounds = 0;
        while let parts @ [_, ..] = &leaf.unwritten()[..] {
            for part in parts {
                let at = self.block(&part.payload);
                assert!(leaf.set_stored(part.id, part.edition, vec![at]));
            }
            rounds += 1;
        }
        rounds
    }

    fn load(&self, image: &[u8], lo: &[u8], hi: Option<&[u8]>, node_bytes: usize) -> Leaf {
        let mut leaf = Leaf::decode_image(image, lo, hi, node_bytes).expect("the image is sound");
        for (id, refs, _) in leaf.missing_chains() {
            let bytes: Vec<u8> = refs.iter().flat_map(|at| self.0[&at.offset].clone()).collect();
            leaf.install_chain(id, &bytes).expect("the chain is sound");
        }
        leaf.check().expect("a loaded leaf is sound");
        leaf
    }
}

// ---- decision D3, D4 -------------------------------------------------------------------------------------------

#[test]
fn d3_the_same_version_twice_changes_nothing() {
    let mut leaf = Leaf::new(512, b"", None);
    let keep = GcView::keep_all();
    put(&mut leaf, b"k", 20, b"new", &keep);
    put(&mut leaf, b"k", 10, b"old", &keep);
    let again = put(&mut leaf, b"k", 10, b"other", &keep);
    assert_eq!((again.stored, again.entries_delta), (false, 0));
    assert_eq!(read(&leaf, b"k", 15), Some((10, b"old".to_vec())));
    assert_eq!(timestamps(&leaf), [20, 10]);
}

#[test]
fn d4_a_hot_row_keeps_what_snapshots_and_the_floor_need() {
    let mut leaf = Leaf::new(NODE_BYTES, b"", None);
    for n in 1..=1000 {
        // The floor trails by three commits; two snapshots stay.
        put(&mut leaf, b"hot", n * 16, &n.to_le_bytes(), &view((n * 16).saturating_sub(48), &[160, 320]));
    }
    // Two snapshots, the floor's version and what is newer.
    assert_eq!(timestamps(&leaf), [16000, 15984, 15968, 15952, 320, 160]);
    leaf.check().expect("sound");
}

#[test]
fn a_place_taken_over_from_a_large_value_frees_the_value() {
    let mut leaf = Leaf::new(512, b"", None);
    put(&mut leaf, b"k", 10, &[1; 600], &GcView::keep_all());
    put(&mut leaf, b"k", 20, b"four", &GcView::keep_all());
    let applied = put(&mut leaf, b"k", 30, b"FOUR", &view(20, &[]));
    assert_eq!(applied.dropped.versions, 1);
    assert!(!leaf.has_side(), "nothing names the large value");
    leaf.check().expect("sound");
}

#[test]
fn any_hint_is_only_advice() {
    let mut full = Leaf::new(4096, b"", None);
    for n in 0..40u8 {
        for version in 0..1 + u64::from(n % 3) {
            put(&mut full, &[n * 2], 10 + version, b"v", &GcView::keep_all());
        }
    }
    for key in 0..82u8 {
        for hint in 0..full.slots() + 3 {
            let mut leaf = full.clone();
            let done = leaf.insert(&[key], ts(50), Op::Put(b"w"), &GcView::keep_all(), Some(hint));
            assert!(matches!(done, Insert::Done(applied) if applied.stored));
            leaf.check().expect("sound");
            assert_eq!(read(&leaf, &[key], 50), Some((50, b"w".to_vec())));
        }
    }
}

// ---- A4, A5, A6 ------------------------------------------------------------------------------------------------

#[test]
fn a4_a_tombstone_above_the_cap_stays() {
    let mut leaf = Leaf::new(512, b"", None);
    let all_gone = view(100, &[]);
    put(&mut leaf, b"k", 10, b"v", &GcView::keep_all());
    delete(&mut leaf, b"k", 50, &GcView::keep_all());
    // A run with timestamp 40 is not drained: K@40 may arrive below the tombstone.
    assert_eq!(leaf.collect(&all_gone.capped(ts(39))), Dropped::default());
    put(&mut leaf, b"k", 40, b"late", &all_gone.capped(ts(39)));
    assert_eq!(read(&leaf, b"k", 100), None, "the late put is below the delete");
    assert_eq!(leaf.collect(&all_gone), Dropped { versions: 3, tombstones: 1 });
    assert!(leaf.is_empty());
    // Nothing older is in the leaf: what K@40 will find is the tombstone alone.
    let capped = all_gone.capped(ts(39));
    delete(&mut leaf, b"k", 50, &capped);
    put(&mut leaf, b"other", 45, b"v", &capped);
    assert_eq!(leaf.collect(&capped), Dropped::default());
    put(&mut leaf, b"k", 40, b"late", &capped);
    assert_eq!(read(&leaf, b"k", 100), None, "the late put is below the delete");
}

#[test]
fn a5_a_dropped_tombstone_is_reported() {
    // By whole-leaf collection.
    let mut leaf = Leaf::new(512, b"", None);
    put(&mut leaf, b"k", 5, b"v", &GcView::keep_all());
    delete(&mut leaf, b"k", 30, &GcView::keep_all());
    assert_eq!(leaf.collect(&view(29, &[])), Dropped::default(), "snapshot 29 sees the put");
    assert_eq!(leaf.collect(&view(30, &[5])), Dropped::default(), "snapshot 5 sees the put");
    assert_eq!(leaf.collect(&view(30, &[3])), Dropped { versions: 1, tombstones: 0 }, "not all see the delete");
    assert_eq!(leaf.collect(&view(30, &[])), Dropped { versions: 1, tombstones: 1 });
    // At write time, of the written key.
    let mut leaf = Leaf::new(512, b"", None);
    put(&mut leaf, b"k", 5, b"v", &GcView::keep_all());
    delete(&mut leaf, b"k", 30, &GcView::keep_all());
    let applied = put(&mut leaf, b"k", 60, b"again", &view(45, &[]));
    assert_eq!(applied.dropped, Dropped { versions: 2, tombstones: 1 });
    assert_eq!((applied.entries_delta, applied.live_delta), (-1, 1));
    assert_eq!(timestamps(&leaf), [60]);
    // A tombstone alone below a new put.
    let mut leaf = Leaf::new(512, b"", None);
    delete(&mut leaf, b"k", 30, &GcView::keep_all());
    let applied = put(&mut leaf, b"k", 60, b"again", &view(45, &[]));
    assert_eq!(applied.dropped, Dropped { versions: 1, tombstones: 1 });
    assert_eq!(timestamps(&leaf), [60]);
    // A delete that everybody sees of a key that is not there leaves no trace but the report.
    let applied = delete(&mut leaf, b"other", 40, &view(45, &[]));
    assert_eq!((applied.stored, applied.dropped.tombstones), (false, 1));
}

#[test]
fn a6_the_highest_timestamp_survives_what_it_dropped() {
    let mut leaf = Leaf::new(NODE_BYTES, b"", None);
    for n in 0..100u32 {
        put(&mut leaf, &n.to_be_bytes(), 5, b"v", &GcView::keep_all());
    }
    delete(&mut leaf, &7u32.to_be_bytes(), 150, &GcView::keep_all());
    leaf.collect(&view(200, &[]));
    assert_eq!(timestamps(&leaf), [5; 99], "the delete and its victim are gone");
    assert_eq!(leaf.stats().max_ts, ts(150));
    // A delete that was dropped at once counts as well.
    delete(&mut leaf, &[9; 9], 160, &view(200, &[]));
    assert_eq!(leaf.stats().max_ts, ts(160));
    let cut = leaf.choose_split(&[9; 9], false);
    let right = leaf.split(&cut);
    assert_eq!((leaf.stats().max_ts, right.stats().max_ts), (ts(160), ts(160)), "both halves inherit");
    let mut image = Vec::new();
    right.encode_image(&mut image);
    let loaded = Leaf::decode_image(&image, right.lo(), right.hi(), NODE_BYTES).expect("sound");
    assert_eq!(loaded.stats().max_ts, ts(160), "the image keeps it");
    let mut fresh = Leaf::new(NODE_BYTES, b"", Some(right.lo()));
    put(&mut fresh, b"\0", 20, b"v", &GcView::keep_all());
    fresh.merge(right);
    assert_eq!(fresh.stats().max_ts, ts(160), "the absorber inherits");
}

// ---- A8 --------------------------------------------------------------------------------------------------------

#[test]
fn a8_a_leaf_image_is_trimmed_to_the_fences_of_today() {
    let mut leaf = Leaf::new(NODE_BYTES, b"a", Some(b"z"));
    for key in [&b"b"[..], b"m", b"ma", b"n", b"y"] {
        put(&mut leaf, key, 10, key, &GcView::keep_all());
        put(&mut leaf, key, 20, key, &GcView::keep_all());
    }
    let mut image = Vec::new();
    leaf.encode_image(&mut image);
    let part = Leaf::decode_image(&image, b"m", Some(b"n"), NODE_BYTES).expect("sound");
    let mut keys = Vec::new();
    part.for_each_version(&mut |key, ts, _| keys.push((key.to_vec(), ts.0)));
    assert_eq!(keys, [(b"m".to_vec(), 20), (b"m".to_vec(), 10), (b"ma".to_vec(), 20), (b"ma".to_vec(), 10)]);
    assert_eq!((part.stats().entries, part.stats().live), (4, 2));
    part.check().expect("sound");
    let none = Leaf::decode_image(&image, b"na", Some(b"x"), NODE_BYTES).expect("sound");
    assert!(none.is_empty());
}

fn node(kind: NodeKind, n: u64) -> ChildDescriptor {
    ChildDescriptor::Node(NodeDescriptor {
        kind,
        block: BlockRef { offset: n << 20, stored_bytes: 4000 + n as u32, crc: 0xdead_0000 | n as u32 },
        entries: 100 + n,
        live: if n == 3 { 0 } else { 90 },
        dead_from: (n == 3).then_some(ts(77)),
        log_need: ts(1000 + n),
        max_ts: ts(900 + n),
        write_lsn: Lsn(1600 * n),
        has_overflow: n == 2,
        is_exact: n < 4,
    })
}

#[test]
fn a8_an_inner_image_is_trimmed_to_the_fences_of_today() {
    let children: Vec<_> = (0..5)
        .map(|n| if n == 1 { ChildDescriptor::Empty { log_need: ts(5) } } else { node(NodeKind::Leaf, n) })
        .collect();
    let inner = Inner::new(b"a", None, &["c", "g", "m", "ma"], children.clone()).expect("in order");
    let mut image = Vec::new();
    InnerImage { level: 1, segments: Vec::new(), node: inner }.encode(&mut image);
    let whole = InnerImage::decode(&image, b"a", None).expect("sound");
    assert_eq!(whole.node.children(), children);
    let part = InnerImage::decode(&image, b"g", Some(b"ma")).expect("sound");
    assert_eq!(part.node.children(), &children[2..4]);
    assert_eq!((part.node.lo(), part.node.hi()), (&b"g"[..], Some(&b"ma"[..])));
    // A child that straddles a fence stays, within it.
    let part = InnerImage::decode(&image, b"d", Some(b"h")).expect("sound");
    assert_eq!(part.node.children(), &children[1..3]);
    assert_eq!(part.node.fence_of(0), (b"d".to_vec(), Some(b"g".to_vec())));
    assert!(InnerImage::decode(&image, b"h", Some(b"d")).is_err());
}

#[test]
fn an_inner_image_with_children_of_the_wrong_kind_is_refused() {
    for (level, kind) in [(1, NodeKind::Inner), (2, NodeKind::Leaf), (0, NodeKind::Leaf)] {
        let mut image = Vec::new();
        InnerImage { level, segments: Vec::new(), node: Inner::single(node(kind, 1)) }.encode(&mut image);
        assert!(InnerImage::decode(&image, b"", None).is_err());
    }
}

#[test]
fn a_child_with_impossible_counts_is_refused() {
    let ChildDescriptor::Node(sound) = node(NodeKind::Leaf, 2) else { panic!("a node") };
    let more_live = NodeDescriptor { live: sound.entries + 1, ..sound };
    let dead_and_live = NodeDescriptor { dead_from: Some(ts(5)), ..sound };
    for (node, is_sound) in [(sound, true), (more_live, false), (dead_and_live, false)] {
        let mut image = Vec::new();
        InnerImage { level: 1, segments: Vec::new(), node: Inner::single(ChildDescriptor::Node(node)) }
            .encode(&mut image);
        assert_eq!(InnerImage::decode(&image, b"", None).is_ok(), is_sound);
    }
}

// ---- A25 -------------------------------------------------------------------------------------------------------

#[test]
fn a25_counts_tell_from_when_a_leaf_is_dead() {
    let mut leaf = Leaf::new(NODE_BYTES, b"", None);
    let keep = GcView::keep_all();
    for n in 0..50u8 {
        put(&mut leaf, &[n], 10 + u64::from(n), b"v", &keep);
    }
    for n in 0..50u8 {
        assert_eq!(leaf.stats().live, 50 - u32::from(n));
        assert_eq!(delete(&mut leaf, &[n], 200 - u64::from(n), &keep).live_delta, -1);
    }
    assert_eq!((leaf.stats().live, leaf.stats().highest_delete_ts), (0, ts(200)));
    assert!(leaf.next_live(0..leaf.slots(), ReadAt::Snapshot(ts(200))).is_none());
    assert!(leaf.next_live(0..leaf.slots(), ReadAt::Snapshot(ts(199))).is_some());
    let mut image = Vec::new();
    leaf.encode_image(&mut image);
    let loaded = Leaf::decode_image(&image, b"", None, NODE_BYTES).expect("sound");
    assert_eq!(loaded.stats(), leaf.stats(), "the knowledge survives");
    assert_eq!(put(&mut leaf, &[3], 210, b"v", &keep).live_delta, 1);
}

// ---- A27 -------------------------------------------------------------------------------------------------------

/// A leaf in which `hot` has `count` versions that snapshots hold, between two quiet keys.
fn leaf_with_a_hot_key(node_bytes: usize, count: u64, value_bytes: usize) -> (Leaf, GcView) {
    let mut leaf = Leaf::new(node_bytes, b"", None);
    let snapshots: Vec<u64> = (1..=count).map(|n| n * 16).collect();
    let held = view(count * 16, &snapshots);
    for n in 1..=count {
        put(&mut leaf, b"hot", n * 16, &vec![n as u8; value_bytes], &held);
    }
    for quiet in [b"a", b"z"] {
        put(&mut leaf, quiet, 8, b"quiet", &held);
    }
    leaf.check().expect("sound");
    (leaf, held)
}

#[test]
fn a27_versions_past_a_quarter_node_move_to_a_chain() {
    for node_bytes in [512, 4096, NODE_BYTES] {
        let (leaf, _) = leaf_with_a_hot_key(node_bytes, 1000, 30);
        assert!(leaf.used_bytes() <= node_bytes / 4 + 200, "{} bytes of {node_bytes}", leaf.used_bytes());
        assert_eq!(leaf.stats().entries, 1002);
        for n in 1..=1000 {
            assert_eq!(read(&leaf, b"hot", n * 16 + 5), Some((n * 16, vec![n as u8; 30])));
        }
        assert_eq!(read(&leaf, b"hot", 15), None);
        assert!(leaf.has_side());
    }
}

#[test]
fn a27_a_leaf_never_splits_inside_a_key() {
    let (mut leaf, _) = leaf_with_a_hot_key(512, 40, 20);
    for key in [&b"b"[..], b"i", b"zz"] {
        let mut left = leaf.clone();
        let cut = left.choose_split(key, false);
        let right = left.split(&cut);
        left.check().and(right.check()).expect("sound");
        let hot = [&left, &right].map(|half| {
            let mut n = 0;
            half.for_each_version(&mut |key, _, _| n += usize::from(key.to_vec() == b"hot"));
            n
        });
        assert!(hot == [40, 0] || hot == [0, 40], "{hot:?}");
        assert_eq!(left.stats().entries + right.stats().entries, 42);
        let holder = if left.covers(b"hot") { &left } else { &right };
        assert_eq!(read(holder, b"hot", 100), Some((96, vec![6; 20])), "the chain moved with its key");
        let mut back = left.clone();
        back.merge(right);
        back.check().expect("sound");
        assert_eq!(read(&back, b"hot", 100), Some((96, vec![6; 20])));
    }
    // A single key in a leaf of its own: the newcomer gets the other half.
    let mut only = Leaf::new(512, b"", None);
    put(&mut only, b"m", 10, &[1; 100], &GcView::keep_all());
    for (key, slot) in [(b"a", 0), (b"z", 1)] {
        let cut = only.choose_split(key, false);
        assert_eq!((cut.slot, &cut.separator[..]), (slot, &[b"m", b"z"][slot][..]));
    }
    assert_eq!(leaf.collect(&view(10_000, &[])).versions, 39);
}

#[test]
fn a27_a_chain_is_pruned_by_the_same_rule() {
    let (mut leaf, _) = leaf_with_a_hot_key(4096, 1000, 30);
    let held = view(20_000, &[16, 160, 8000]);
    assert_eq!(leaf.collect(&held).versions, 1000 - 4);
    let mut hot = timestamps(&leaf);
    hot.retain(|ts| *ts != 8);
    assert_eq!(hot, [16000, 8000, 160, 16]);
    leaf.check().expect("sound");
    assert!(leaf.has_side(), "the old ones are still in the chain");
    leaf.collect(&view(20_000, &[]));
    assert!(!leaf.has_side(), "an empty chain goes");
    leaf.check().expect("sound");
    // And at write time, when more move to it.
    let (mut leaf, _) = leaf_with_a_hot_key(512, 100, 30);
    for n in 101..200 {
        put(&mut leaf, b"hot", n * 16, &[1; 31], &view(n * 16 - 100, &[]));
    }
    assert!(leaf.stats().entries < 20, "{:?}", leaf.stats());
}

#[test]
fn a27_a_chain_that_spilling_empties_goes() {
    let mut leaf = Leaf::new(512, b"", None);
    for n in 1..=30 {
        put(&mut leaf, b"k", n * 16, &[1; 30], &GcView::keep_all());
    }
    assert!(leaf.has_side());
    delete(&mut leaf, b"k", 600, &GcView::keep_all());
    put(&mut leaf, b"k", 700, &[2; 60], &GcView::keep_all());
    // Nobody sees what is below the delete any more, and the delete moves to the chain.
    let applied = put(&mut leaf, b"k", 800, &[3; 60], &view(650, &[]));
    assert_eq!((applied.entries_delta, applied.dropped.tombstones), (1 - 31, 1));
    assert_eq!(timestamps(&leaf), [800, 700]);
    assert!(!leaf.has_side());
    leaf.check().expect("sound");
}

#[test]
fn a27_a_late_version_finds_its_place_in_the_chain() {
    let (mut leaf, held) = leaf_with_a_hot_key(512, 100, 30);
    let cap = held.capped(ts(39));
    let applied = put(&mut leaf, b"hot", 40, b"late", &cap);
    assert!(applied.stored);
    assert!(!put(&mut leaf, b"hot", 40, b"late", &cap).stored, "and only once");
    assert_eq!(read(&leaf, b"hot", 47), Some((40, b"late".to_vec())));
    assert_eq!(read(&leaf, b"hot", 39), Some((32, vec![2; 30])));
    // A late delete below everything hides nothing.
    let early = view(1600, &[10, 20]).capped(ts(1000));
    let applied = delete(&mut leaf, b"hot", 8, &early);
    assert_eq!((applied.stored, applied.dropped.tombstones), (false, 1));
    leaf.check().expect("sound");
}

#[test]
fn a27_chains_and_large_values_go_through_blocks() {
    let mut disk = Disk::default();
    // Every third version is large: a chain with large values inside.
    let mut leaf = Leaf::new(4096, b"", None);
    let snapshots: Vec<u64> = (1..=300).map(|n| n * 16).collect();
    let held = view(4800, &snapshots);
    let value = |n: u64| vec![n as u8; if n.is_multiple_of(3) { 5000 } else { 40 }];
    for n in 1..=300 {
        put(&mut leaf, b"hot", n * 16, &value(n), &held);
    }
    let phases: Vec<_> = leaf.unwritten();
    assert!(phases.iter().all(|part| matches!(part.id, SideId::Value(_))), "large values first");
    assert_eq!(disk.store(&mut leaf), 2, "then the chain, which names their blocks");
    let mut image = Vec::new();
    leaf.encode_image(&mut image);
    assert!(image.len() < 4096);
    let mut loaded = disk.load(&image, b"", None, 4096);
    assert_eq!(timestamps(&loaded), timestamps(&leaf));
    assert_eq!(loaded.stats().entries, 300);
    let mut blocks = [0; 2];
    for (leaf, n) in [&leaf, &loaded].into_iter().zip(&mut blocks) {
        leaf.for_each_block(&mut |_| *n += 1);
    }
    assert_eq!(blocks, [101, 101], "100 large values and the chain");
    // What is clean stays clean, and one more version makes only the chain new.
    assert!(loaded.unwritten().is_empty());
    while loaded.unwritten().is_empty() {
        let n = loaded.stats().max_ts.0 / 16 + 1;
        put(&mut loaded, b"hot", n * 16, &[1; 40], &held);
    }
    assert!(matches!(loaded.unwritten()[..], [ref part] if matches!(part.id, SideId::Chain(_))));
}

#[test]
fn a27_the_wrong_chain_is_refused() {
    let mut disk = Disk::default();
    let chain_of = |first: u64, disk: &mut Disk| {
        let mut leaf = Leaf::new(512, b"", None);
        for n in 0..30 {
            put(&mut leaf, b"hot", first + n * 16, &[1; 30], &GcView::keep_all());
        }
        disk.store(&mut leaf);
        leaf
    };
    let (leaf, later) = (chain_of(16, &mut disk), chain_of(16_000, &mut disk));
    let mut image = Vec::new();
    leaf.encode_image(&mut image);
    let mut other = Vec::new();
    later.encode_image(&mut other);
    let other = Leaf::decode_image(&other, b"", None, 512).expect("sound");
    let mut loaded = Leaf::decode_image(&image, b"", None, 512).expect("sound");
    let (id, refs, bytes) = loaded.missing_chains().remove(0);
    let chain = disk.0[&refs[0].offset].clone();
    assert_eq!(chain.len() as u64, bytes);
    let newer = disk.0[&other.missing_chains()[0].1[0].offset].clone();
    assert!(loaded.clone().install_chain(id, &newer).is_err(), "newer than the page");
    assert!(loaded.clone().install_chain(id, &chain[..chain.len() - 1]).is_err());
    assert!(loaded.clone().install_chain(SideId::Chain(9), &chain).is_err());
    assert!(loaded.clone().install_chain(SideId::Value(0), &chain).is_err());
    for at in 0..chain.len() {
        let mut damaged = chain.clone();
        damaged[at] ^= 0x41;
        // Refused, or another sound chain; the checksum of the block tells those apart.
        let mut other = loaded.clone();
        if other.install_chain(id, &damaged).is_ok() {
            other.check().expect("an accepted chain is sound");
        }
        damaged[at] = 0;
        let mut other = loaded.clone();
        if other.install_chain(id, &damaged).is_ok() {
            other.check().expect("an accepted chain is sound");
        }
    }
    loaded.install_chain(id, &chain).expect("the right one");
    assert_eq!(timestamps(&loaded), timestamps(&leaf));
}

#[test]
fn a27_a_write_in_flight_does_not_mark_newer_content() {
    let mut disk = Disk::default();
    let (mut leaf, held) = leaf_with_a_hot_key(512, 100, 30);
    let in_flight = leaf.unwritten().remove(0);
    put(&mut leaf, b"hot", 40, b"late", &held.capped(ts(39)));
    let at = disk.block(&in_flight.payload);
    assert!(!leaf.set_stored(in_flight.id, in_flight.edition, vec![at]), "the chain changed in the meantime");
    assert_eq!(leaf.unwritten().len(), 1, "and is still unwritten");
    // A large value that moved to the right half in the meantime.
    let mut leaf = Leaf::new(512, b"", None);
    for key in [b"a", b"b", b"c", b"d"] {
        put(&mut leaf, key, 10, &[key[0]; 600], &held);
    }
    let in_flight = leaf.unwritten();
    let cut = leaf.choose_split(b"bb", false);
    let mut right = leaf.split(&cut);
    assert_eq!((leaf.slots(), right.slots()), (2, 2));
    assert!(in_flight.iter().all(|part| !right.set_stored(part.id, part.edition, vec![at])), "not the right half's");
    let taken = in_flight.into_iter().filter(|part| leaf.set_stored(part.id, part.edition, vec![at])).count();
    assert_eq!(taken, 2, "only what stayed");
    assert!(leaf.unwritten().is_empty());
    assert_eq!(right.unwritten().len(), 2);
    assert_eq!(disk.store(&mut right), 1);
    assert_eq!(read(&right, b"d", 10), Some((10, vec![b'd'; 600])));
}

#[test]
fn a27_the_longest_keys_and_values_find_room() {
    // Two versions and a chain of the longest key fit the smallest node a user may choose.
    for node_bytes in [512, 4096, 16 * 1024, 32 * 1024, 64 * 1024] {
        let long = trefoil_tree::node::max_key_bytes(node_bytes);
        let mut leaf = Leaf::new(node_bytes, b"", None);
        let snapshots: Vec<u64> = (1..=60).map(|n| n * 16).collect();
        let held = view(960, &snapshots);
        let key = vec![5; long];
        let inline = trefoil_tree::node::max_inline_bytes(node_bytes, long);
        for n in 1..=60u64 {
            let bytes = if n.is_multiple_of(2) { inline } else { inline + 1 };
            put(&mut leaf, &key, n * 16, &vec![n as u8; bytes], &held);
            leaf.check().expect("sound");
        }
        // Another one as long needs a split, and then fits.
        let other = vec![6; long];
        let mut right = None;
        if leaf.insert(&other, ts(2000), Op::Put(&vec![1; inline]), &held, None) == Insert::Full {
            let cut = leaf.choose_split(&other, false);
            right = Some(leaf.split(&cut));
        }
        let home = right.as_mut().unwrap_or(&mut leaf);
        assert!(home.covers(&other));
        put(home, &other, 2000, &vec![1; inline], &held);
    }
}
