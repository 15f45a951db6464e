//! Which buffer is drained when, by what it holds.

use index::Index;

use super::{filled, small};
use crate::common::{Rig, Setup, Write, key};

/// How many messages come to leaves on disk, eight with each checkpoint, before a drain brings some to them.
fn until_drained(message: impl Fn(u64) -> Write) -> u64 {
    let rig: Rig = filled(Setup { buffered: true, ..small() }, 800);
    rig.checkpoint();
    let rig = rig.reopen(false);
    assert_eq!(rig.keys().len(), 800);
    for round in 0..400 {
        rig.evict_all();
        rig.commit((0..8).map(|n| message(round * 8 + n)).collect());
        rig.checkpoint();
        rig.maintain_fully();
        if rig.tree.stats().drained_bytes > 0 {
            rig.verify();
            return round * 8;
        }
    }
    panic!("nothing was drained");
}

/// What a delete is for takes as much again in a leaf: of messages of which each second one deletes two thirds make a buffer as full.
#[test]
fn a_delete_in_a_buffer_counts_twice() {
    // Between the rows, each key twice.
    let place = |n: u64| key(n / 2 * 7 % 800 * 2 + 1);
    let puts = until_drained(|n| (place(n), Some(Vec::new())));
    let mixed = until_drained(|n| (place(n), n.is_multiple_of(2).then(Vec::new)));
    assert!((puts / 2..puts * 4 / 5).contains(&mixed), "{mixed} messages, and {puts} without deletes");
}
