//! `verify` names each kind of damage: one is seeded, with right checksums where they are not the damage, and one
//! problem is reported, with its place. A sound database of the same shape reports nothing. Here: bytes, files, accounts,
//! rows; nodes are in `damage_nodes.rs`.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::path::Path;

use crate::support::damage::*;
use crate::support::surgery::{DIR, Part, Surgeon, rot};
use crate::support::*;
use store::BlockKind;
use trefoil::Database;
use trefoil::fuzzing::write_raw;
use vfs::Vfs;
use vfs::sim::SimDisk;

#[test]
fn a_sound_database_reports_nothing() {
    simulate(|_| {
        let disk = disk();
        patient(&disk);
        assert_eq!(examine(&disk, &|_, _| {}), []);
        // Nor does one whose indexes were written anew by the tools of these tests.
        for index in [NOTES, ROWS, BY_COLOUR, DESERT] {
            Surgeon::new(&disk, index).operate(&mut |_, _| {}).close();
        }
        assert_eq!(examine(&disk, &|_, _| {}), []);
    });
}

// ---- bytes that rot ---------------------------------------------------------------------------------------------

#[test]
fn a_flipped_bit_in_a_leaf() {
    rotted(
        |disk| flip(disk, DATA, block_of(disk, NOTES, (0, 20)).offset + 60),
        said("notes", "block checksum", "keys [").of(NOTES),
    );
}

#[test]
fn a_flipped_bit_in_an_inner_node() {
    let closed = |disk: &SimDisk| flip(disk, DATA, block_of(disk, NOTES, (1, 3)).offset + 60);
    simulate(move |_| {
        let disk = disk();
        patient(&disk);
        closed(&disk);
        let problems = examine(&disk, &|_, _| {});
        // By the walk over keys, and by the one over images.
        let names: Vec<_> = problems.iter().map(|(name, p)| (name.as_str(), p.what, p.offset.is_some())).collect();
        assert_eq!(names, [("notes", "block checksum", true), ("data file", "block checksum", true)]);
        assert_eq!(problems[0].1.key_range, problems[1].1.key_range);
    });
}

#[test]
fn a_lost_write() {
    // What lies there is a whole block of the right kind, owner and length: of another time.
    rotted(
        |disk| {
            let at = block_of(disk, NOTES, (0, 20));
            rot(disk, &Path::new(DIR).join(DATA), |bytes| {
                let block = &mut bytes[at.offset as usize..at.end() as usize];
                let last = block.len() - 1;
                block[last] ^= 1;
                store::codec::stamp(block, at.offset);
            });
        },
        said("notes", "block checksum named by its parent", "").of(NOTES),
    );
}

#[test]
fn a_misdirected_write() {
    rotted(
        |disk| {
            let (from, to) = (block_of(disk, NOTES, (0, 20)), block_of(disk, NOTES, (0, 21)));
            let common = from.stored_bytes.min(to.stored_bytes) as usize;
            rot(disk, &Path::new(DIR).join(DATA), |bytes| {
                let block = bytes[from.offset as usize..from.offset as usize + common].to_vec();
                bytes[to.offset as usize..to.offset as usize + common].copy_from_slice(&block);
            });
        },
        said("notes", "block checksum", "").of(NOTES),
    );
}

#[test]
fn a_flipped_bit_in_a_large_value() {
    // It is the only block of overflow kind that begins with this payload.
    rotted(
        |disk| {
            rot(disk, &Path::new(DIR).join(DATA), |bytes| {
                let at = bytes.windows(4).position(|w| w[..2] == *b"BL" && w[3] == BlockKind::Overflow as u8).unwrap();
                bytes[at + 50] ^= 1;
            });
        },
        said("notes", "block checksum", "").of(NOTES),
    );
}

#[test]
fn a_flipped_bit_in_the_manifest() {
    rotted(|disk| flip(disk, &manifest_name(disk), 100), said("open", "manifest checksum", "").file("MANIFEST-"));
}

#[test]
fn a_flipped_bit_in_a_header() {
    rotted(|disk| flip(disk, "TREFOIL", 100), said("open", "header checksum", "").file("TREFOIL"));
    rotted(|disk| flip(disk, DATA, 100), said("open", "header checksum", "").file(DATA));
    meanwhile(|disk, _| flip(disk, "TREFOIL", 100), said("files", "header checksum", "").file("TREFOIL"));
    meanwhile(|disk, _| flip(disk, DATA, 100), said("files", "header checksum", "").file(DATA));
}

fn manifest_name(disk: &SimDisk) -> String {
    let names = disk.list(Path::new(DIR)).unwrap();
    names.into_iter().filter(|name| name.starts_with("MANIFEST-")).max().unwrap()
}

#[test]
fn a_manifest_that_rots_while_the_database_is_open() {
    meanwhile(
        |disk, _| flip(disk, &manifest_name(disk), 100),
        said("files", "manifest checksum", "").file("MANIFEST-"),
    );
    let remove = |disk: &SimDisk, _: &Database| disk.remove(&Path::new(DIR).join(manifest_name(disk))).unwrap();
    meanwhile(remove, said("files", "manifest", "none").file(DIR));
}

#[test]
fn a_flipped_bit_in_the_log() {
    let tail = |disk: &SimDisk, db: &Database| {
        let notes = db.index("notes").unwrap();
        (0..5).for_each(|n| fill(db, &notes, n * 10, n * 10 + 10, 30).unwrap());
        let segment = disk.list(&Path::new(DIR).join("wal")).unwrap().into_iter().max().unwrap();
        // In the second frame: the segment's header and the first one are a block each.
        flip(disk, &format!("wal/{segment}"), 8192 + 100);
    };
    meanwhile(tail, said("files", "end of the log", "").file("wal"));
}

#[test]
fn a_flipped_bit_in_a_run_file() {
    let commit = |disk: &SimDisk, db: &Database| {
        fill(db, &db.index("notes").unwrap(), 20_000, 21_000, 60).unwrap();
        let run = disk.list(&Path::new(DIR).join("runs")).unwrap().remove(0);
        flip(disk, &format!("runs/{run}"), 100);
    };
    meanwhile(commit, said("notes", "block checksum", "").between(NOTES).file("run-"));
}

#[test]
fn run_files_that_nobody_names_or_that_are_gone() {
    let stray = |disk: &SimDisk, _: &Database| {
        let how = vfs::OpenHow { write: true, create: true, ..Default::default() };
        drop(disk.open(&Path::new(DIR).join("runs/run-00000000000000ff"), how).unwrap());
    };
    meanwhile(stray, said("files", "run file", "run 255").file("runs"));
    let gone = |disk: &SimDisk, db: &Database| {
        fill(db, &db.index("notes").unwrap(), 20_000, 21_000, 60).unwrap();
        db.checkpoint().unwrap();
        let run = disk.list(&Path::new(DIR).join("runs")).unwrap().remove(0);
        disk.remove(&Path::new(DIR).join("runs").join(run)).unwrap();
    };
    meanwhile(gone, Said { index: None, ..said("files", "run file", "index 1") });
}

// ---- accounts of the data file ----------------------------------------------------------------------------------

#[test]
fn leaked_bytes() {
    let closed = |disk: &SimDisk| {
        let mut surgeon = Surgeon::new(disk, NOTES);
        let at = surgeon.write(BlockKind::Overflow, vec![1; 5000]);
        surgeon.name(at);
        surgeon.close();
    };
    rotted(
        closed,
        said("data file", "leaked bytes of an extent", "0 that indexes name, found 5040 counted").file(DATA),
    );
}

#[test]
fn bytes_that_are_not_counted() {
    let closed = |disk: &SimDisk| {
        let at = block_of(disk, NOTES, (0, 20));
        let mut surgeon = Surgeon::new(disk, NOTES);
        drop(surgeon.space.adopt(at));
        surgeon.close();
    };
    rotted(closed, said("data file", "bytes of an extent", "that indexes name").file(DATA));
}

#[test]
fn a_block_of_two_slots() {
    let closed = |disk: &SimDisk| {
        let mut first = None;
        let mut edit = move |part: Part<'_>, _: &Surgeon| {
            if let Part::Says { level: 0, n, says } = part {
                match n {
                    20 => first = Some(*says),
                    21 => *says = first.unwrap(),
                    _ => {}
                }
            }
        };
        Surgeon::new(disk, NOTES).operate(&mut edit).close();
    };
    // The second slot holds none of its keys besides.
    let found = among(closed, "owners of a block");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].1.found.matches("of notes").count(), 2, "{found:#?}");
    assert!(found[0].1.offset.is_some() && found[0].1.file.contains(DATA));
    assert_eq!(among(closed, "fences of a leaf").len(), 1);
}

#[test]
fn a_block_of_two_indexes() {
    let closed = |disk: &SimDisk| {
        let at = block_of(disk, ROWS, (0, 1));
        let edit = move |part: Part<'_>, _: &Surgeon| says(part, (0, 20), |says| says.block = at);
        Surgeon::new(disk, NOTES).operate(&mut { edit }).close();
    };
    let found = among(closed, "owners of a block");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].1.found.contains("of notes") && found[0].1.found.contains("of rows.primary"), "{found:#?}");
    assert_eq!(among(closed, "block owner").len(), 1);
}

#[test]
fn states_in_the_manifest() {
    let of_tree = |disk: &SimDisk| {
        let mut surgeon = Surgeon::new(disk, NOTES);
        surgeon.manifest.indexes[1].state[5] ^= 1;
        surgeon.publish();
    };
    rotted(of_tree, said("open", "checksum", "the state of a tree in the manifest"));
    let of_space = |disk: &SimDisk| {
        let mut surgeon = Surgeon::new(disk, NOTES);
        surgeon.manifest.space[5] ^= 1;
        surgeon.publish();
    };
    rotted(of_space, said("open", "checksum", "the manifest's space state"));
    let generation = |disk: &SimDisk| {
        let (vfs, dir) = (std::sync::Arc::new(disk.clone()) as std::sync::Arc<dyn Vfs>, Path::new(DIR));
        let manifest = trefoil::fuzzing::Manifest::newest(&vfs, dir).unwrap().unwrap();
        let name = |generation| dir.join(format!("MANIFEST-{generation:020}"));
        disk.rename(&name(manifest.generation), &name(manifest.generation + 5)).unwrap();
    };
    rotted(generation, said("open", "manifest generation", "").file("MANIFEST-"));
}

// ---- rows and entries -------------------------------------------------------------------------------------------

/// Key of row `id`, and of its entry.
fn row_keys(id: u64, colour: u32) -> (Vec<u8>, Vec<u8>) {
    let row = id.to_be_bytes().to_vec();
    let entry = [&colour.to_be_bytes()[..], &row].concat();
    (row, entry)
}

const AGAINST: &str = "rows.by_colour against its rows";

#[test]
fn a_missing_entry() {
    let remove = |_: &SimDisk, db: &Database| {
        write_raw(db, "rows.by_colour", &row_keys(15, 1).1, None).unwrap();
    };
    meanwhile(remove, said(AGAINST, "missing index entry", "").between(BY_COLOUR));
}

/// One table alone, and not if another one is damaged; ended when somebody wants it.
#[test]
fn a_missing_entry_of_one_table() {
    simulate(|_| {
        let disk = disk();
        patient(&disk);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let (rows, other) = (db.table("rows").unwrap(), table(&db, "other"));
        write_raw(&db, "rows.by_colour", &row_keys(15, 1).1, None).unwrap();
        let problems = |table, against_rows| {
            let reports = db.verify_table(table, against_rows, &|| true).unwrap();
            reports.into_iter().flat_map(|(name, report)| report.problems.into_iter().map(move |_| name.clone()))
        };
        assert_eq!(problems(&rows, true).collect::<Vec<_>>(), [AGAINST]);
        assert_eq!(problems(&rows, false).count(), 0, "each index by itself is sound");
        assert_eq!(problems(&other, true).count(), 0);
        let looks = std::cell::Cell::new(0);
        let twice = || looks.replace(looks.get() + 1) < 2;
        assert!(matches!(db.verify_table(&rows, true, &twice), Err(trefoil::Error::Cancelled)));
    });
}

#[test]
fn an_extra_entry() {
    let add = |_: &SimDisk, db: &Database| {
        write_raw(db, "rows.by_colour", &row_keys(7000, 0).1, Some(b"")).unwrap();
    };
    meanwhile(add, said(AGAINST, "index entry without its row", "no row").between(BY_COLOUR));
    let wrong_colour = |_: &SimDisk, db: &Database| {
        write_raw(db, "rows.by_colour", &row_keys(15, 2).1, Some(b"")).unwrap();
    };
    meanwhile(wrong_colour, said(AGAINST, "index entry without its row", "of other values").between(BY_COLOUR));
}

#[test]
fn an_entry_with_a_value() {
    let change = |_: &SimDisk, db: &Database| {
        write_raw(db, "rows.by_colour", &row_keys(15, 1).1, Some(b"x")).unwrap();
    };
    meanwhile(change, said(AGAINST, "value of an index entry", "found x").between(BY_COLOUR));
}

#[test]
fn a_row_that_is_none() {
    let change = |_: &SimDisk, db: &Database| {
        write_raw(db, "rows.primary", &row_keys(15, 1).0, Some(b"\x01\x09")).unwrap();
    };
    meanwhile(change, said("rows rows", "row", "").between(ROWS));
}

#[test]
fn definitions() {
    let open_and = |change: fn(&Database)| {
        move |disk: &SimDisk| {
            let db = Database::open(DIR, quiet(disk)).unwrap();
            change(&db);
        }
    };
    let missing = |db: &Database| write_raw(db, "catalog", b"i\0\0\0\x03", None).unwrap();
    seed(open_and(missing), |_, _| {}, said("open", "index of a table", "none with number 3"));
    let malformed = |db: &Database| write_raw(db, "catalog", b"i\0\0\0\x09", Some(b"\x01\x09")).unwrap();
    seed(open_and(malformed), |_, _| {}, said("open", "catalog row", ""));
}
