//! Messages on disk that are damaged: `verify` names them, and nobody else suffers.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::damage::block_of;
use crate::support::surgery::{DIR, Part, Surgeon, rot};
use crate::support::*;
use base::{CommitTs, Corruption};
use store::BlockRef;
use tree::node::{ChildDescriptor, InnerImage, NodeKind, SegmentDescriptor};
use trefoil::{DamagedRange, Database, Durability, IndexOptions, Options, Structure, Value};
use vfs::sim::SimDisk;

const NOTES: u32 = 1;
const BY_COLOUR: u32 = 3;

fn quiet(disk: &SimDisk) -> Options {
    Options { background: false, inline_batch_bytes: 30_000, ..options(disk) }
}

fn open_quiet(disk: &SimDisk) -> Database {
    Database::open(DIR, quiet(disk)).unwrap()
}

/// A Bε-tree of two levels and more, with messages on disk. Closed behind a checkpoint.
fn made(disk: &SimDisk) {
    let db = open_quiet(disk);
    let notes = db.create_index("notes", IndexOptions { structure: Structure::Betree, ..small_nodes() }).unwrap();
    for from in (0..800).step_by(200) {
        fill(&db, &notes, from, from + 200, 12).unwrap();
    }
    db.checkpoint().unwrap();
    db.close().unwrap();
    drop((notes, db));
    let db = open_quiet(disk);
    let notes = db.index("notes").unwrap();
    for n in (0..800u32).step_by(20) {
        put(&db, &notes, &n.to_be_bytes(), b"buffered", Durability::Buffered).unwrap();
    }
    db.checkpoint().unwrap();
}

/// Blocks of messages, as the newest manifest has them.
fn segments(disk: &SimDisk) -> Vec<SegmentDescriptor> {
    let surgeon = Surgeon::new(disk, NOTES);
    let state = &surgeon.manifest.indexes.iter().find(|entry| entry.id.0 == NOTES).unwrap().state;
    let (mut walk, mut found) = (vec![tree::root_of(state).unwrap()], Vec::new());
    while let Some(says) = walk.pop().filter(|says| says.kind == NodeKind::Inner) {
        let image = InnerImage::decode(&surgeon.read(says.block, says.kind), b"", None).unwrap();
        let inner = |child: &ChildDescriptor| match child {
            ChildDescriptor::Node(node) if node.kind == NodeKind::Inner => Some(*node),
            _ => None,
        };
        walk.extend(image.node.children().iter().filter_map(inner));
        found.extend(image.segments);
    }
    surgeon.space.close();
    found
}

fn rot_at(disk: &SimDisk, at: BlockRef) {
    rot(disk, &Path::new(DIR).join("data.trefoil"), |bytes| bytes[at.offset as usize + 50] ^= 8);
}

fn examine(disk: &SimDisk) -> Vec<(String, Corruption)> {
    let reports = open_quiet(disk).verify().unwrap();
    reports.into_iter().flat_map(|(name, r)| r.problems.into_iter().map(move |p| (name.clone(), p))).collect()
}

/// What is reported is said of this block, and where its keys are.
fn assert_named(problem: &(String, Corruption), says: &SegmentDescriptor) {
    let (name, problem) = problem;
    assert_eq!((name.as_str(), problem.index.map(|id| id.0)), ("notes", Some(NOTES)), "{problem}");
    assert!(problem.file.contains("data.trefoil") && problem.offset == Some(says.block.offset), "{problem}");
    assert!(problem.key_range.as_ref().is_some_and(|keys| keys.contains(&base::bytes::printable(&says.last))));
}

#[test]
fn a_flipped_bit_in_a_segment() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        assert_eq!(examine(&disk), []);
        let says = segments(&disk).remove(0);
        rot_at(&disk, says.block);
        let problems = examine(&disk);
        assert!(problems.len() == 1 && problems[0].1.what == "block checksum", "{problems:#?}");
        assert_named(&problems[0], &says);
    });
}

/// Each thing that an inner node says of its messages.
#[test]
fn what_a_node_says_of_its_messages() {
    let edits: [fn(&mut SegmentDescriptor); 6] = [
        |says| says.count += 1,
        |says| says.deletes += 1,
        |says| says.bytes += 1,
        |says| says.newest = CommitTs(says.newest.0 + 16),
        |says| says.first.push(0),
        |says| says.last.push(0),
    ];
    for edit in edits {
        simulate(move |_| {
            let disk = disk();
            made(&disk);
            operate(&disk, edit);
            let problems = examine(&disk);
            assert!(problems.len() == 1 && problems[0].1.what == "segment of messages", "{problems:#?}");
            let said = segments(&disk);
            assert_named(&problems[0], said.iter().find(|s| Some(s.block.offset) == problems[0].1.offset).unwrap());
        });
    }
}

#[test]
fn messages_for_leaves_of_another_node() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        operate(&disk, |says| says.last = vec![0xff; 4]);
        let what: Vec<_> = examine(&disk).into_iter().map(|(name, problem)| (name, problem.what)).collect();
        assert!(what.contains(&("data file".to_owned(), "keys of messages")), "{what:?}");
        assert!(what.contains(&("notes".to_owned(), "segment of messages")), "{what:?}");
    });
}

/// Changes what the first inner node with messages says of the first block of them.
fn operate(disk: &SimDisk, edit: fn(&mut SegmentDescriptor)) {
    let mut edit = Some(edit);
    let mut on_node = |part: Part<'_>, _: &Surgeon| {
        let Part::Node { level: 1, bytes, .. } = part else { return };
        let mut image = InnerImage::decode(bytes, b"", None).unwrap();
        if let Some(edit) = edit.take_if(|_| !image.segments.is_empty()) {
            edit(&mut image.segments[0]);
            bytes.clear();
            image.encode(bytes);
        }
    };
    Surgeon::new(disk, NOTES).operate(&mut on_node).close();
}

fn entries(db: &Database) -> BTreeMap<Vec<u8>, Vec<u8>> {
    all(db, &db.index("notes").unwrap()).into_iter().collect()
}

fn salvaged(db: &Database, back: bool) -> (BTreeMap<Vec<u8>, Vec<u8>>, Vec<DamagedRange>) {
    let (notes, snapshot) = (db.index("notes").unwrap(), db.snapshot().unwrap());
    let cursor = if back { snapshot.range_back(&notes, ..) } else { snapshot.range(&notes, ..) };
    let (mut cursor, mut found) = (cursor.unwrap().skip_damaged(), BTreeMap::new());
    while let Some((key, value)) = cursor.next().unwrap() {
        assert!(found.insert(key.to_vec(), value.to_vec()).is_none(), "each key once");
    }
    (found, cursor.skipped().to_vec())
}

/// Where messages cannot be read, keys are given out as they were, and said to be so; around them, and where something newer is
/// known, as they are.
#[test]
fn p10_damaged_messages_cost_what_they_changed() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let says = segments(&disk).remove(0);
        let db = open_quiet(&disk);
        let notes = db.index("notes").unwrap();
        let within = |key: &[u8]| *says.first <= *key && *key <= *says.last;
        // Newer than the block: beside the leaves, and more than fits.
        let newer: Vec<u32> = (0..800u32).filter(|n| n % 20 > 14 && within(&n.to_be_bytes())).collect();
        for n in &newer {
            put(&db, &notes, &n.to_be_bytes(), &[7; 60], Durability::Sync).unwrap();
        }
        drop(notes);
        let disk = cut(&disk, db);
        let truth = entries(&Database::open(DIR, Options { read_only: true, ..quiet(&disk) }).unwrap());
        rot_at(&disk, says.block);
        for read_only in [true, false] {
            let db = Database::open(DIR, Options { read_only, ..quiet(&disk) }).unwrap();
            let (found, ranges) = salvaged(&db, false);
            let (back, mut ranges_back) = salvaged(&db, true);
            ranges_back.reverse();
            assert!(found == back && ranges == ranges_back, "both ways alike");
            assert_eq!(found.len(), truth.len(), "no key is hidden");
            let (mut old, mut in_ranges) = (0, 0);
            for (key, value) in &found {
                let marked = ranges.iter().any(|range| range.contains(key));
                in_ranges += usize::from(marked);
                assert!(!marked || within(key), "{key:?} has no part in it");
                if truth[key] != *value {
                    assert!(marked && truth[key] == b"buffered", "{key:?} is old, and not said to be");
                    old += 1;
                }
            }
            assert!(old > 0 && in_ranges > old, "{old} of {in_ranges}");
            assert!(ranges.iter().all(|range| range.is_incomplete && range.damage.offset == Some(says.block.offset)));
            assert!(newer.iter().all(|n| found[&n.to_be_bytes()[..]] == [7; 60]), "what is newer is known");
        }
    });
}

/// Damaged messages are in nobody's way: not in upkeep's, nor when blocks of another index are looked for that nothing names.
#[test]
fn p10_blocks_of_a_quarantined_index_come_back_beside_damaged_messages() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let db = open_quiet(&disk);
        let rows = table(&db, "rows");
        db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
        (0..1500).step_by(100).for_each(|id| insert(&db, &rows, id..id + 100).unwrap());
        db.settle().unwrap();
        db.close().unwrap();
        drop((rows, db));
        rot_at(&disk, block_of(&disk, BY_COLOUR, (1, 1)));
        rot_at(&disk, segments(&disk).remove(0).block);
        let db = open_quiet(&disk);
        let rows = db.table("rows").unwrap();
        for id in 0..1500 {
            let mut tx = db.begin().unwrap();
            assert!(tx.delete_row(&rows, &[Value::U64(id)]).unwrap());
            tx.commit_with(Durability::Sync).unwrap();
            if !db.stats().quarantined.is_empty() {
                break;
            }
        }
        assert_eq!(db.stats().quarantined, ["rows.by_colour"]);
        db.settle().unwrap();
        db.checkpoint().unwrap();
        assert!(db.stats().damaged.is_empty(), "nobody needs the messages");
        let problems: Vec<_> = db.verify().unwrap().into_iter().flat_map(|(_, report)| report.problems).collect();
        let what: Vec<_> = problems.iter().map(|problem| problem.what).collect();
        assert_eq!(what, ["block checksum", "quarantined index"], "nothing leaks: {problems:#?}");
    });
}

/// What an inner node knows of its messages is charged.
#[test]
fn d10_blocks_of_messages_are_charged() {
    simulate(|_| {
        let disk = disk();
        let options = IndexOptions { structure: Structure::Betree, node_bytes: 4096, ..small_nodes() };
        let key = |n: u32| [vec![b'k'; 600], n.to_be_bytes().to_vec()].concat();
        let db = open_quiet(&disk);
        let notes = db.create_index("notes", options).unwrap();
        for n in 0..30 {
            put(&db, &notes, &key(n), b"first", Durability::Buffered).unwrap();
        }
        db.checkpoint().unwrap();
        db.close().unwrap();
        drop((notes, db));
        let db = open_quiet(&disk);
        let notes = db.index("notes").unwrap();
        put(&db, &notes, &key(0), b"buffered", Durability::Buffered).unwrap();
        db.checkpoint().unwrap();
        let before = charged(&db, "inner");
        for n in 1..11 {
            put(&db, &notes, &key(n), b"buffered", Durability::Buffered).unwrap();
            db.checkpoint().unwrap();
        }
        assert!(segments(&disk).len() >= 11, "a block for each");
        let (more, keys) = (charged(&db, "inner") - before, 10 * 2 * 604);
        assert!(more > keys, "{more} bytes for {keys} bytes of keys");
    });
}
