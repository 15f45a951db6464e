//! Dead marks [A25].

use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, GcView};
use index::{Direction, Index, ReadAt};

use super::{filled, in_thread, simulated, small};
use crate::common::{self, Rig, key, scan};

/// Four hundred rows under several inner nodes, of which the last one is left. (Nobody looks at the root's mark.)
fn desert() -> Rig {
    let rig = filled(small(), 400);
    assert!(rig.tree.stats().height >= 3);
    rig.commit((0..399).map(|n| (key(n * 2), None)).collect());
    rig
}

fn come_alive(rig: &Rig, n: u64) {
    common::apply(&rig.tree, &[(key(n), Some(b"alive".to_vec()))], CommitTs(1 << 20), &GcView::keep_all());
}

/// A row put into a dead leaf under marked inner nodes.
#[test]
fn a25_a_row_under_marked_nodes_is_seen() {
    for n in [1, 201, 401, 601, 797] {
        let rig = desert();
        rig.delete(key(798));
        assert_eq!(rig.keys().len(), 0);
        come_alive(&rig, n);
        assert_eq!(rig.keys(), [key(n)]);
        rig.verify();
    }
}

/// Between the marker's two looks at a node's children, before and after it sets the mark, a put brings one of them to
/// life. Whoever reads then sees it, wherever the marker stands.
#[test]
fn a25_a_put_between_the_markers_looks() {
    simulated(|sim| {
        for point in ["tree.inner_judging", "tree.inner_judged", "tree.inner_marked"] {
            let rig = Arc::new(desert());
            // The last delete makes the last leaf die: its parent is marked.
            let gate = sim.hold(point);
            let marker = in_thread(&rig, |rig| {
                rig.delete(key(798));
            });
            gate.wait_reached();
            // It cannot take the structure latch, and needs none.
            in_thread(&rig, |rig| come_alive(rig, 781)).join().unwrap();
            let last = sim.hold("tree.inner_marked");
            gate.open();
            if point != "tree.inner_marked" {
                last.wait_reached();
                assert_eq!(rig.keys(), [key(781)], "{point}");
            }
            last.open();
            marker.join().unwrap();
            assert_eq!(rig.keys(), [key(781)], "{point}");
            rig.verify();
        }
    });
}

/// A put has cleared its leaf's mark but not yet those above, when the marker comes.
#[test]
fn a25_marks_are_cleared_before_the_put_is_applied() {
    simulated(|sim| {
        let rig = Arc::new(desert());
        let gate = sim.hold("tree.mark_cleared");
        let put = in_thread(&rig, |rig| come_alive(rig, 781));
        gate.wait_reached();
        rig.delete(key(798));
        gate.open();
        put.join().unwrap();
        assert_eq!(rig.keys(), [key(781)]);
        rig.verify();
    });
}

/// A cursor has chosen an inner node by the root; the node is split before it is loaded, and what is left of it dies:
/// the marks in it are not about the place sought.
#[test]
fn a25_a_hop_by_an_old_grandparent() {
    simulated(|sim| {
        for sought in [60, 150, 250, 330, 399] {
            let rig = Arc::new(filled(small(), 400));
            let gate = sim.hold("tree.before_hop");
            let reader = in_thread(&rig, move |rig| {
                let end = key(sought * 2);
                let range = (Bound::Unbounded, Bound::Included(end.as_slice()));
                let found = scan(&rig.tree, ReadAt::Newest, range, Direction::Backward, 3);
                assert_eq!(found.first().map(|entry| entry.0.clone()), Some(end));
            });
            gate.wait_reached();
            for n in 0..400 {
                rig.put(key(n * 2 + 1), [b'x'; 100]);
            }
            rig.commit((0..800).filter(|n| *n != sought * 2).map(|n| (key(n), None)).collect());
            gate.open();
            reader.join().unwrap();
        }
    });
}

/// Every row of a leaf is deleted, and a run that is not drained holds one of them: a scan that merges runs must not hop.
#[test]
fn a25_a_dead_leaf_hides_what_a_run_holds() {
    let rig = filled(small(), 10);
    rig.attach(vec![(key(4), Some(b"from the run".to_vec()))]);
    rig.commit((0..10).map(|n| (key(n * 2), None)).collect());
    assert_eq!(rig.keys().len(), 0);
    assert_eq!(rig.newest(key(4)), None);
    assert!(rig.tree.stats().run_bytes > 0, "not drained");
}

/// A reader stands on a parent in which a leaf spans [a, z). The leaf is split, and what is left of it dies: the mark
/// that the reader finds is not about [m, z).
#[test]
fn a25_a_hop_by_an_old_parent() {
    simulated(|sim| {
        let rig = Arc::new(filled(small(), 12));
        let gate = sim.hold("tree.before_hop");
        let reader = in_thread(&rig, |rig| {
            let keys = rig.keys();
            assert!((0..5).all(|n| keys.contains(&key(n + 100))), "{keys:?}");
        });
        gate.wait_reached();
        let leaves = rig.tree.stats().leaves;
        rig.commit((0..12).map(|n| (key(n + 100), Some(vec![b'x'; 60]))).collect());
        assert!(rig.tree.stats().leaves > leaves);
        rig.commit((0..24).map(|n| (key(n), None)).collect());
        gate.open();
        reader.join().unwrap();
    });
}

/// Under marked inner nodes, the first row of a commit comes into a dead leaf, the second one splits it, and takes the
/// first one along: the left half is as dead as before, and the right half was never anything but alive, so neither climbs.
#[test]
fn a25_a_split_of_a_dead_leaf_clears_the_marks_above() {
    for (row, size) in (0..40).flat_map(|row| [20, 50, 80].map(|size| (row, size))) {
        let rig = filled(small(), 400);
        // The deleted rows stay in the leaves.
        rig.snapshots.lock().push(rig.now());
        rig.commit((0..400).map(|n| (key(n * 2), None)).collect());
        assert_eq!(rig.keys().len(), 0);
        let rows = [0, 1].map(|n| [key(row), vec![b'/', n]].concat());
        rig.commit(rows.iter().map(|row| (row.clone(), Some(vec![b'x'; size]))).collect());
        assert_eq!(rig.keys(), rows, "at row {row}, {size} bytes");
    }
}

/// An inner node that is dead, though not for the oldest snapshot, absorbs its neighbour, in which rows are alive.
#[test]
fn a25_a_dead_inner_node_that_absorbs_rows_is_alive() {
    let rig = filled(small(), 1200);
    let inner_nodes = |rig: &Rig| -> Vec<Vec<u8>> {
        let low = |line: &str| Some(line.trim_start().strip_prefix("inner ")?.split(' ').next()?.as_bytes().to_vec());
        rig.tree.draw().lines().filter_map(low).collect()
    };
    // Room for tombstones: no leaf is split by a delete.
    for n in (0..800).filter(|n| n % 2 == 1) {
        rig.delete(key(n * 2));
    }
    let before = inner_nodes(&rig);
    // Of the first and the second one under the root, the first leaf of each is left, and all the rest.
    let (second, third) = (&before[2], &before[3]);
    let rows = |from: &[u8], to: &[u8]| rig.keys().into_iter().filter(|key| **key >= *from && **key < *to).collect();
    let (first, second): (Vec<_>, Vec<_>) = (rows(b"", second), rows(second, third));
    for key in first[5..].iter().chain(&second[5..]) {
        rig.delete(key);
    }
    rig.put("z", "moves the floor");
    rig.snapshots.lock().push(rig.now());
    for key in &first[..5] {
        rig.delete(key);
    }
    let expected = rig.keys();
    assert!(expected.starts_with(&second[..5]));
    rig.maintain_fully();
    assert_eq!(inner_nodes(&rig).len(), before.len() - 1, "{}", rig.tree.draw());
    assert_eq!(rig.keys(), expected);
    rig.verify();
}
