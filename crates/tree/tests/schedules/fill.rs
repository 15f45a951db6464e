//! How full leaves get, and one key larger than a leaf [A27, C8].

use index::{Index, ReadAt};

use super::{filled, small};
use crate::common::{self, Rig, Setup, key};

/// A thousand snapshots over one hot row.
#[test]
fn a27_one_key_larger_than_a_leaf() {
    let rig = filled(small(), 20);
    let mut expected = Vec::new();
    for n in 0..1_000 {
        let ts = rig.put(key(10), format!("value {n}"));
        rig.snapshots.lock().push(ts);
        expected.push((ts, format!("value {n}")));
    }
    let check = |rig: &Rig| {
        for (ts, value) in expected.iter().step_by(37) {
            assert_eq!(rig.get(ReadAt::Snapshot(*ts), key(10)).as_deref(), Some(value.as_bytes()));
        }
        assert_eq!(rig.keys().len(), 20);
    };
    check(&rig);
    rig.evict_all();
    check(&rig);
    rig.checkpoint();
    rig.verify();
    let snapshots = rig.snapshots.lock().clone();
    let rig = rig.reopen(false);
    *rig.snapshots.lock() = snapshots;
    check(&rig);
    // Without the snapshots, one version remains.
    rig.snapshots.lock().clear();
    rig.put(key(10), "last");
    rig.checkpoint();
    assert!(rig.tree.stats().dead_versions < 5, "{:?}", rig.tree.stats());
    rig.verify();
}

/// Keys of many threads that draw numbers and commit a little out of order fill leaves as well as one thread.
#[test]
fn c8_slightly_disordered_appends_fill_leaves() {
    let rows = 40_000;
    let fill = |order: &mut dyn Iterator<Item = u64>| {
        let rig = Rig::new(Setup { node_bytes: 16 << 10, ..Setup::default() });
        order.for_each(|n| {
            rig.put(key(n), [b'v'; 60]);
        });
        assert_eq!(rig.tree.stats().live_keys, rows);
        rig.tree.stats().leaves
    };
    let ordered = fill(&mut (0..rows));
    // Eight threads: each draws the next number when its last row is in.
    let mut numbers = common::Numbers(5);
    let mut waiting: Vec<u64> = (0..8).collect();
    let mut next = 8;
    let disordered = fill(&mut (0..rows).map(|_| {
        let i = numbers.below(waiting.len() as u64) as usize;
        let row = if next < rows { std::mem::replace(&mut waiting[i], next) } else { waiting.swap_remove(i) };
        next += 1;
        row
    }));
    // Sixty bytes of value, four of key, about ten of bookkeeping.
    assert!(ordered * (16 << 10) * 9 / 10 <= rows * 74, "{ordered} leaves in order");
    assert!(disordered * 9 <= ordered * 10, "{disordered} leaves, {ordered} in order");
}
