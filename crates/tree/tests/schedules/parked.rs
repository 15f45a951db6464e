//! Leaves that are parked, with changes beside them that they lack, and loaded again.

use base::CommitTs;
use index::Index;

use super::{filled, small};
use crate::common::{Rig, Setup, key};

/// A leaf with an image is parked, and has by then the changes of four commits; those of six more, of keys before these, are beside it and
/// do not fit into it. Returns the moments of the ten.
fn parked() -> (Rig, Vec<CommitTs>) {
    let rig = filled(Setup { buffered: true, ..small() }, 4);
    rig.checkpoint();
    let few = (0..4u64).map(|n| rig.put(key(200 + n), [n as u8; 2]));
    let mut moments: Vec<_> = few.collect();
    moments.extend((4..10u64).map(|n| rig.put(key(100 + n), [n as u8; 50])));
    assert_eq!((rig.tree.stats().splits, rig.tree.stats().leaves), (0, 1), "they are beside the leaf");
    (rig, moments)
}

/// Whoever reads a parked leaf puts into it what it has missed, and may have to split it. The right half has nothing pending then, and its
/// image, the old one, has none of the changes in it: neither those that came before the leaf was parked nor those that came behind. So a
/// checkpoint up to any of them writes both halves, or the log behind it has all that they lack. Guards: what the halves lack begins with
/// the oldest of all that is pending: not with what the leaf has missed, nor is it nothing that a checkpoint asks for.
#[test]
fn a9_what_is_pending_beside_a_parked_leaf_is_unwritten_in_both_halves() {
    for n in 0..10 {
        let (rig, moments) = parked();
        assert_eq!(rig.newest(key(109)).as_deref(), Some(&[9; 50][..]));
        assert!(rig.tree.stats().splits > 0, "it was split when it was read");
        let state = rig.checkpoint_as_of(moments[n]).unwrap();
        assert_eq!(state.skip, moments[n].as_lsn());
        let rig = rig.reopen(true);
        let keys: Vec<_> = (0..4).map(|n| key(n * 2)).chain((104..110).chain(200..204).map(key)).collect();
        assert_eq!(rig.keys(), keys, "the checkpoint is of change {n}");
        rig.verify();
    }
}
