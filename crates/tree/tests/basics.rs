//! The first things a tree must do, one at a time.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;

use crate::common::{Rig, Setup, key, scan};
use index::{Direction, Index, ReadAt};
use store::Class;

#[test]
fn an_empty_tree_answers() {
    let rig = Rig::new(Setup::default());
    assert_eq!(rig.newest("a"), None);
    assert!(rig.all(ReadAt::Newest, Direction::Forward).is_empty());
    assert!(rig.all(ReadAt::Newest, Direction::Backward).is_empty());
}

#[test]
fn what_was_put_is_found_in_order() {
    let rig = Rig::new(Setup::default());
    for i in 0..2_000 {
        rig.put(key(i * 7919 % 2_000), format!("value {i}"));
    }
    let keys: Vec<_> = (0..2_000).map(key).collect();
    assert_eq!(rig.keys(), keys);
    let mut backward: Vec<_> = rig.all(ReadAt::Newest, Direction::Backward).into_iter().map(|(key, ..)| key).collect();
    backward.reverse();
    assert_eq!(backward, keys);
    for key in &keys {
        assert!(rig.newest(key).is_some());
    }
    let stats = rig.tree.stats();
    assert_eq!(stats.live_keys, 2_000);
    assert!(stats.height >= 3, "{stats:?}");
}

/// A scan of leaves on disk reads them a few at a time, once it has come by some; who looks up, or reads a short range, does not.
#[test]
fn a_scan_reads_ahead() {
    for buffered in [false, true] {
        let rig = Rig::new(Setup { buffered, node_bytes: 4096, ..Setup::default() });
        for i in 0..20_000 {
            rig.put(key(i), format!("value {i}"));
        }
        rig.checkpoint();
        let rig = rig.reopen(false);
        assert!(rig.newest(key(9_000)).is_some());
        let (low, high) = (key(500), key(600));
        let range = (Bound::Included(&*low), Bound::Excluded(&*high));
        assert_eq!(scan(&rig.tree, ReadAt::Newest, range, Direction::Forward, 7).len(), 100);
        assert_eq!(rig.tree.stats().read_ahead, 0, "nobody passed by many leaves");
        for (from, to) in [(2_000, 5_000), (0, 20_000)] {
            let before = rig.tree.stats();
            let (low, high) = (key(from), key(to));
            let found = scan(
                &rig.tree,
                ReadAt::Newest,
                (Bound::Included(&*low), Bound::Excluded(&*high)),
                Direction::Forward,
                7,
            );
            assert!(found.into_iter().map(|(key, ..)| key).eq((from..to).map(key)));
            let stats = rig.tree.stats();
            let (ahead, loads) = (stats.read_ahead - before.read_ahead, stats.loads - before.loads);
            assert!(loads > 20 && ahead > loads / 2 && ahead <= loads, "{ahead} of {loads} leaves");
        }
    }
}

#[test]
fn a_tree_that_is_dropped_lets_its_pages_go_at_once() {
    let rig = Rig::new(Setup::default());
    for i in 0..2_000 {
        rig.put(key(i * 7919 % 2_000), format!("value {i}"));
    }
    let cache = rig.cache.clone();
    assert!(rig.tree.stats().height >= 3 && cache.budget().used(Class::Frames) > 0);
    drop(rig);
    assert_eq!(cache.budget().used(Class::Frames), 0, "pages of a tree that is gone");
}

#[test]
fn a_checkpoint_comes_back() {
    let rig = Rig::new(Setup::default());
    for i in 0..1_000 {
        rig.put(key(i * 7919 % 1_000), format!("value {i}"));
    }
    let before = rig.all(ReadAt::Newest, Direction::Forward);
    rig.checkpoint();
    for i in 0..500 {
        rig.put(key(i), "newer");
    }
    let newer = rig.all(ReadAt::Newest, Direction::Forward);
    let rig = rig.reopen(false);
    assert_eq!(rig.all(ReadAt::Newest, Direction::Forward), before);
    assert!(rig.tree.stats().loads > 0);
    // Replayed, everything is there.
    let mut rig = rig;
    rig.now = std::sync::atomic::AtomicU64::new(rig.commits.lock().last().unwrap().ts.0);
    let rig = rig.reopen(true);
    assert_eq!(rig.all(ReadAt::Newest, Direction::Forward), newer);
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.all(ReadAt::Newest, Direction::Forward), newer);
}
