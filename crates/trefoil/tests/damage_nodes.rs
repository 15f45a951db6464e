//! `verify` names each kind of damage: one is seeded, with right checksums where they are not the damage, and one
//! problem is reported, with its place. A sound database of the same shape reports nothing. Here: nodes that are wrong under
//! right checksums.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::damage::*;
use crate::support::surgery::{Content, Part, Surgeon, leaf_image};
use crate::support::*;
use base::CommitTs;
use store::{BlockKind, BlockRef};
use tree::node::{ChildDescriptor, Inner, InnerImage};

/// What keys leaf 20 may hold: its lower fence and behind it.
fn keys(low: &[u8]) -> [Vec<u8>; 2] {
    [low.to_vec(), [low, b"x"].concat()]
}

#[test]
fn order_of_keys() {
    let edit = |part: Part<'_>, _: &Surgeon| {
        leaf_20(part, |low, bytes| {
            let [a, b] = keys(low);
            let put = || Content::Put(b"v");
            *bytes = leaf_image(32, &[(Some(&b), 16, put()), (Some(&a), 16, put())], (2, 2));
        });
    };
    operated(NOTES, edit, said("notes", "leaf image", "keys do not ascend").of(NOTES));
}

#[test]
fn order_of_versions() {
    let edit = |part: Part<'_>, _: &Surgeon| {
        leaf_20(part, |low, bytes| {
            let put = || Content::Put(b"v");
            *bytes = leaf_image(32, &[(Some(low), 16, put()), (None, 32, put())], (2, 1));
        });
    };
    operated(NOTES, edit, said("notes", "leaf image", "versions do not descend").of(NOTES));
}

#[test]
fn counts_in_a_leaf() {
    let edit = |part: Part<'_>, _: &Surgeon| {
        leaf_20(part, |low, bytes| *bytes = leaf_image(32, &[(Some(low), 16, Content::Put(b"v"))], (2, 1)));
    };
    operated(NOTES, edit, said("notes", "leaf image", "expected 2 and 1").of(NOTES));
}

#[test]
fn counts_of_a_leaf() {
    let entries = |part: Part<'_>, _: &Surgeon| says(part, (0, 20), |says| says.entries += 1);
    operated(NOTES, entries, said("notes", "counts of a leaf", "entries").of(NOTES));
    let live = |part: Part<'_>, _: &Surgeon| says(part, (0, 20), |says| says.live -= 1);
    operated(NOTES, live, said("notes", "counts of a leaf", "live").of(NOTES));
}

#[test]
fn counts_of_an_inner_node() {
    let edit = |part: Part<'_>, _: &Surgeon| says(part, (1, 3), |says| says.live -= 1);
    operated(NOTES, edit, said("data file", "counts of an inner node", "live").of(NOTES));
}

#[test]
fn dead_marks() {
    let none = |part: Part<'_>, _: &Surgeon| says(part, (0, 1), |says| says.dead_from = None);
    operated(DESERT, none, said("desert", "dead mark of a leaf", "None").of(DESERT));
    let early = |part: Part<'_>, _: &Surgeon| says(part, (0, 1), |says| says.dead_from = Some(CommitTs(16)));
    operated(DESERT, early, said("desert", "dead mark of a leaf", "").of(DESERT));
    let inner = |part: Part<'_>, _: &Surgeon| says(part, (1, 1), |says| says.dead_from = None);
    operated(DESERT, inner, said("data file", "dead mark of an inner node", "").of(DESERT));
}

#[test]
fn highest_timestamps() {
    let leaf = |part: Part<'_>, _: &Surgeon| says(part, (0, 20), |says| says.max_ts.0 += 16);
    operated(NOTES, leaf, said("notes", "highest timestamp of a leaf", "").of(NOTES));
    let inner = |part: Part<'_>, _: &Surgeon| says(part, (1, 3), |says| says.max_ts.0 += 16);
    operated(NOTES, inner, said("data file", "highest timestamp of an inner node", "").of(NOTES));
}

/// The image of inner node `wanted`, taken apart and put together.
fn inner_image(
    part: Part<'_>,
    wanted: (u8, usize),
    edit: impl FnOnce(&mut Vec<Vec<u8>>, &mut Vec<ChildDescriptor>, &mut u8),
) {
    if let Part::Node { level, n, bytes, .. } = part
        && (level, n) == wanted
    {
        let image = InnerImage::decode(bytes, b"", None).unwrap();
        let mut separators = (1..image.node.len()).map(|i| image.node.fence_of(i).0).collect();
        let (mut children, mut level) = (image.node.children().to_vec(), level);
        edit(&mut separators, &mut children, &mut level);
        let node = Inner::new(b"", None, &separators, children).unwrap();
        bytes.clear();
        InnerImage { level, segments: image.segments, node }.encode(bytes);
    }
}

#[test]
fn fences_of_a_leaf() {
    let edit = |part: Part<'_>, _: &Surgeon| {
        // The third child begins where the second one did, but for a byte: its left neighbour's keys are beyond it.
        inner_image(part, (1, 3), |separators, _, _| separators[1] = [&separators[0][..], b"\0"].concat());
    };
    operated(NOTES, edit, said("notes", "fences of a leaf", "").of(NOTES));
}

#[test]
fn fences_of_an_inner_node() {
    let edit = |part: Part<'_>, _: &Surgeon| {
        inner_image(part, (1, 3), |separators, children, _| {
            separators.insert(0, vec![0]);
            children.insert(0, ChildDescriptor::Empty { log_need: CommitTs(0) });
        });
    };
    operated(NOTES, edit, said("data file", "fences of an inner node", "").of(NOTES));
}

#[test]
fn order_of_separators() {
    let edit = |part: Part<'_>, _: &Surgeon| {
        if let Part::Node { level: 1, n: 3, bytes, .. } = part {
            // By hand: two EMPTY children, and a separator in between that repeats.
            *bytes = vec![1, 1, 0, 3, 0, 0, 0, 1, b'm', 0, 0, 0, 1, b'a', 0, 0];
        }
    };
    simulate(move |_| {
        let disk = disk();
        patient(&disk);
        Surgeon::new(&disk, NOTES).operate(&mut { edit }).close();
        let problems = examine(&disk, &|_, _| {});
        assert_eq!(problems.len(), 2, "by the walk over keys and the one over images: {problems:#?}");
        for (_, problem) in problems {
            assert!(
                problem.what == "inner node image" && problem.found.contains("separators do not ascend"),
                "{problem}"
            );
            assert!(problem.key_range.is_some() && problem.index == Some(base::IndexId(NOTES)));
        }
    });
}

#[test]
fn level_of_an_inner_node() {
    let edit = |part: Part<'_>, _: &Surgeon| inner_image(part, (2, 1), |_, _, level| *level = 7);
    operated(NOTES, edit, said("data file", "level of an inner node", "expected 2, found 7").of(NOTES));
}

#[test]
fn kind_of_a_block() {
    // A leaf's slot names a block of another kind.
    let edit = |part: Part<'_>, surgeon: &Surgeon| {
        let mut wrong = None;
        if let Part::Node { level: 0, n: 20, bytes, .. } = &part {
            wrong = Some(bytes.to_vec());
        }
        if let Some(bytes) = wrong {
            KEPT.set(Some(surgeon.write(BlockKind::Overflow, bytes)));
        }
        says(part, (0, 20), |says| says.block = KEPT.take().unwrap());
    };
    operated(NOTES, edit, said("notes", "block kind", "").of(NOTES));
}

thread_local! {
    /// A block that one step of an edit writes for another.
    static KEPT: std::cell::Cell<Option<BlockRef>> = const { std::cell::Cell::new(None) };
}

#[test]
fn address_of_a_block() {
    let far = |part: Part<'_>, _: &Surgeon| says(part, (0, 20), |says| says.block.offset += 1 << 40);
    operated(NOTES, far, said("notes", "block", "the end of the file").of(NOTES));
    let over_the_end = |part: Part<'_>, _: &Surgeon| says(part, (0, 20), |says| says.block.stored_bytes = 1 << 20);
    operated(NOTES, over_the_end, said("notes", "block address", "a block within an extent").of(NOTES));
}

#[test]
fn a_version_chain() {
    let edit = |part: Part<'_>, surgeon: &Surgeon| {
        leaf_20(part, |low, bytes| {
            // Two members where the leaf says three.
            let mut chain = vec![1, 2];
            chain.extend([0xf7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, b'a', 4, 0, 1, b'b']);
            let at = surgeon.write(BlockKind::Overflow, chain.clone());
            let entries = [(Some(low), 32, Content::Put(b"v")), (None, 0, Content::Chain(3, chain.len() as u64, at))];
            *bytes = leaf_image(32, &entries, (4, 1));
        });
    };
    operated(NOTES, edit, said("notes", "version chain", "").of(NOTES));
}

#[test]
fn length_of_a_large_value() {
    let edit = |part: Part<'_>, surgeon: &Surgeon| match part {
        Part::Node { level: 0, n: 20, low, bytes } => {
            let at = surgeon.write(BlockKind::Overflow, vec![7; 1000]);
            *bytes = leaf_image(32, &[(Some(low), 32, Content::Large(1001, at))], (1, 1));
            surgeon.name(at);
        }
        Part::Says { level: 0, n: 20, says } => {
            (says.entries, says.live, says.max_ts, says.has_overflow) = (1, 1, CommitTs(32), true);
        }
        _ => {}
    };
    operated(NOTES, edit, said("notes", "length of a large value, in bytes", "1000 of 1001").of(NOTES));
}
