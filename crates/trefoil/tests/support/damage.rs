//! Seeds one damage in a database of a known shape, and looks at what is reported.

use std::path::Path;
use std::sync::Arc;

use base::Corruption;
use index::{Index as _, IndexEnv, RunFiles};
use store::{BlockRef, Budget, Cache, CacheOptions};
use tree::node::{ChildDescriptor, InnerImage, NodeDescriptor};
use trefoil::{Database, Durability, Error, Options};
use vfs::sim::SimDisk;

use super::surgery::{DIR, Edit, Part, Surgeon, rot};
use super::{by_colour, disk, fill, index, insert, options, put, simulate, table};

/// Numbers of the indexes, in order of creation.
pub const NOTES: u32 = 1;
pub const ROWS: u32 = 2;
pub const BY_COLOUR: u32 = 3;
pub const DESERT: u32 = 4;

pub fn quiet(disk: &SimDisk) -> Options {
    Options { background: false, inline_batch_bytes: 30_000, ..options(disk) }
}

/// A plain index of three levels with large values and a version chain, a table with a secondary index, an index of
/// deleted keys; checkpointed, so that a next open replays nothing.
pub fn patient(disk: &SimDisk) {
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let notes = index(&db, "notes");
    for from in (0..12_000).step_by(400) {
        fill(&db, &notes, from, from + 400, 12).unwrap();
    }
    put(&db, &notes, b"large", &[7; 3000], Durability::Sync).unwrap();
    let rows = table(&db, "rows");
    db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
    insert(&db, &rows, 0..200).unwrap();
    let desert = index(&db, "desert");
    fill(&db, &desert, 0, 300, 12).unwrap();
    let mut snapshots = vec![db.snapshot().unwrap()];
    let mut tx = db.begin().unwrap();
    (0..300u32).for_each(|n| assert!(tx.delete(&desert, &n.to_be_bytes()).unwrap()));
    tx.commit().unwrap();
    for n in 0..30u8 {
        put(&db, &notes, b"hot", &[n; 40], Durability::Sync).unwrap();
        snapshots.push(db.snapshot().unwrap());
    }
    db.checkpoint().unwrap();
}

/// Every problem that opening or `verify` reports, with the report's name.
pub fn examine(disk: &SimDisk, meanwhile: &dyn Fn(&SimDisk, &Database)) -> Vec<(String, Corruption)> {
    let db = match Database::open(DIR, quiet(disk)) {
        Ok(db) => db,
        Err(Error::Corrupt(corruption)) => return vec![("open".to_owned(), *corruption)],
        Err(other) => panic!("{other}"),
    };
    meanwhile(disk, &db);
    let reports = db.verify().unwrap();
    reports.into_iter().flat_map(|(name, r)| r.problems.into_iter().map(move |p| (name.clone(), p))).collect()
}

/// Seeds a damage and returns the one problem.
pub fn seed(
    closed: impl Fn(&SimDisk) + Send + 'static,
    open: impl Fn(&SimDisk, &Database) + Send + 'static,
    expected: Said,
) {
    simulate(move |_| {
        let disk = disk();
        patient(&disk);
        closed(&disk);
        let problems = examine(&disk, &open);
        let shown: Vec<String> = problems.iter().map(|(name, problem)| format!("{name}: {problem}")).collect();
        assert_eq!(problems.len(), 1, "{shown:#?}");
        let (report, problem) = &problems[0];
        assert_eq!((report.as_str(), problem.what), (expected.report, expected.what), "{shown:#?}");
        assert!(problem.to_string().contains(expected.says), "{shown:#?}");
        if let Some(index) = expected.index {
            assert_eq!(problem.index.map(|id| id.0), Some(index), "{shown:#?}");
            assert!(problem.key_range.is_some(), "{shown:#?}");
        }
        if !expected.file.is_empty() {
            assert!(problem.file.contains(expected.file), "{shown:#?}");
            assert!(problem.offset.is_some(), "{shown:#?}");
        }
    });
}

/// What is reported: by which report, what, words that are in it; the index, with a key range; the file, with an offset.
#[derive(Clone, Copy)]
pub struct Said {
    pub report: &'static str,
    pub what: &'static str,
    pub says: &'static str,
    pub index: Option<u32>,
    pub file: &'static str,
}

pub const DATA: &str = "data.trefoil";

pub const fn said(report: &'static str, what: &'static str, says: &'static str) -> Said {
    Said { report, what, says, index: None, file: "" }
}

impl Said {
    /// In a node of an index.
    pub const fn of(self, index: u32) -> Self {
        Self { index: Some(index), file: DATA, ..self }
    }

    /// Between entries.
    pub const fn between(self, index: u32) -> Self {
        Self { index: Some(index), ..self }
    }

    pub const fn file(self, file: &'static str) -> Self {
        Self { file, ..self }
    }
}

/// With right checksums, in an index.
pub fn operated(index: u32, edit: fn(Part<'_>, &Surgeon), expected: Said) {
    let closed = move |disk: &SimDisk| {
        let mut edit = edit;
        let edit: &mut Edit<'_> = &mut edit;
        Surgeon::new(disk, index).operate(edit).close();
    };
    seed(closed, |_, _| {}, expected);
}

/// While the database is open.
pub fn meanwhile(open: fn(&SimDisk, &Database), expected: Said) {
    seed(|_| {}, open, expected);
}

/// In bytes of a file that is closed.
pub fn rotted(closed: fn(&SimDisk), expected: Said) {
    seed(closed, |_, _| {}, expected);
}

/// Leaf 20 of NOTES.
pub fn leaf_20(part: Part<'_>, edit: impl FnOnce(&[u8], &mut Vec<u8>)) {
    if let Part::Node { level: 0, n: 20, low, bytes } = part {
        edit(low, bytes);
    }
}

pub fn says(part: Part<'_>, wanted: (u8, usize), edit: impl FnOnce(&mut NodeDescriptor)) {
    if let Part::Says { level, n, says } = part
        && (level, n) == wanted
    {
        edit(says);
    }
}

pub fn flip(disk: &SimDisk, path: &str, at: u64) {
    rot(disk, &Path::new(DIR).join(path), |bytes| bytes[at as usize] ^= 16);
}

/// The first node of a level of an index.
pub fn block_of(disk: &SimDisk, index: u32, wanted: (u8, usize)) -> BlockRef {
    block_beside(disk, index, index, wanted)
}

/// The same of what the manifest has under another number.
pub fn block_beside(disk: &SimDisk, index: u32, number: u32, wanted: (u8, usize)) -> BlockRef {
    let found = std::cell::Cell::new(None);
    let surgeon = Surgeon::new(disk, index);
    let saved = surgeon.manifest.indexes.iter().find(|e| e.id.0 == number).unwrap();
    let root = tree::root_of(trefoil::fuzzing::state_of_structure(&saved.state)).unwrap();
    let mut seen = [0; 10];
    let mut walk = vec![root];
    while let Some(says) = walk.pop() {
        let image = (says.kind == tree::node::NodeKind::Inner)
            .then(|| InnerImage::decode(&surgeon.read(says.block, says.kind), b"", None).unwrap());
        let level = image.as_ref().map_or(0, |image| image.level);
        if (level, seen[usize::from(level)]) == wanted {
            found.set(Some(says.block));
        }
        seen[usize::from(level)] += 1;
        for child in image.iter().flat_map(|image| image.node.children()).rev() {
            if let ChildDescriptor::Node(node) = child {
                walk.push(*node);
            }
        }
    }
    surgeon.space.close();
    found.get().unwrap()
}

/// The blocks of a log-structured merge tree that the newest manifest names, with what they are called.
pub fn blocks_of_lsm(disk: &SimDisk, number: u32) -> Vec<(BlockRef, String)> {
    let surgeon = Surgeon::new(disk, number);
    let state = &surgeon.manifest.indexes.iter().find(|entry| entry.id == surgeon.id).unwrap().state;
    let env = IndexEnv {
        id: surgeon.id,
        options: index::IndexOptions::default(),
        space: surgeon.space.clone(),
        cache: Arc::new(Cache::new(Budget::new(8 << 20), CacheOptions::default())),
        runs: RunFiles { vfs: Arc::new(disk.clone()), dir: Path::new(DIR).join("runs") },
        basements: true,
        read_only: true,
        expiry: None,
    };
    let (lsm, mut blocks) = (lsm::Lsm::open(env, Some(state)).unwrap(), Vec::new());
    assert!(lsm.reach(&mut |at, name| blocks.push((at, name()))).unwrap().is_empty());
    // Nothing of it is let go of.
    surgeon.space.close();
    blocks
}

/// The problems whose `what` is this one.
pub fn among(closed: impl Fn(&SimDisk) + Send + 'static, what: &'static str) -> Vec<(String, Corruption)> {
    let (tell, told) = std::sync::mpsc::channel();
    simulate(move |_| {
        let disk = disk();
        patient(&disk);
        closed(&disk);
        tell.send(examine(&disk, &|_, _| {})).unwrap();
    });
    told.recv().unwrap().into_iter().filter(|(_, problem)| problem.what == what).collect()
}
