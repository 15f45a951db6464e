//! Entries that need more memory than the budget has. What was committed gets where it belongs, at once, behind a crash, and in a
//! structure that is built of it. Every test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;

use crate::support::*;
use trefoil::{
    ColumnType, Database, Durability, IndexOptions, IndexSchema, KeyPart, Options, Schema, Structure, Value,
};

const STRUCTURES: [Structure; 3] = [Structure::Btree, Structure::Betree, Structure::Lsm];

fn of(structure: Structure) -> IndexOptions {
    IndexOptions { structure, ..IndexOptions::default() }
}

/// Nothing that compresses.
fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = vfs::random::Rng::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| rng.u64().to_le_bytes()).take(len).collect()
}

/// Values of most of the budget, and of four times as much: settled, overwritten, and found by the next opening. Guards: a run's one
/// entry passes the limit where it is drained; so does what is replayed.
#[test]
fn what_was_committed_is_placed_however_long_it_is() {
    for structure in STRUCTURES {
        for len in [200 << 10, 1 << 20] {
            simulate(move |_| {
                let disk = disk();
                let options = Options { budget_bytes: 256 << 10, ..options(&disk) };
                let db = Database::open("/db", options.clone()).unwrap();
                let index = db.create_index("i", of(structure)).unwrap();
                let put_all = |seed: u64| {
                    for n in 0..3 {
                        put(&db, &index, &[n], &value(seed + u64::from(n), len), Durability::Sync).unwrap();
                    }
                };
                put_all(0);
                db.settle().unwrap();
                assert_eq!(run_files(&disk), 0);
                put_all(10);
                drop(index);
                let disk = cut(&disk, db);
                let db = Database::open("/db", Options { vfs: Arc::new(disk), ..options }).unwrap();
                let found = all(&db, &db.index("i").unwrap());
                assert!(found == (0..3).map(|n| (vec![n], value(10 + u64::from(n), len))).collect::<Vec<_>>());
                sound(&db);
            });
        }
    }
}

/// The pages of a piece of a run may be more than the budget. Guard: such a piece is cut.
#[test]
fn a_run_is_drained_in_pieces_that_the_budget_has_room_for() {
    for structure in STRUCTURES {
        simulate(move |_| {
            let options = Options { budget_bytes: 256 << 10, ..options(&disk()) };
            let db = Database::open("/db", options).unwrap();
            let index = db.create_index("i", of(structure)).unwrap();
            fill(&db, &index, 0, 400, 800).unwrap();
            db.settle().unwrap();
            assert_eq!(all(&db, &index).len(), 400);
            sound(&db);
        });
    }
}

/// A log that was written with a larger budget is replayed with a small one. Guards: what is replayed passes the limit, in place and as
/// a run.
#[test]
fn a_log_is_replayed_whose_entries_are_longer_than_the_budget() {
    for structure in STRUCTURES {
        simulate(move |_| {
            let disk = disk();
            let log = Options { log_capacity_bytes: 64 << 20, log_segment_bytes: 8 << 20, ..options(&disk) };
            let options = Options { budget_bytes: 256 << 20, ..log };
            let db = Database::open("/db", options.clone()).unwrap();
            let index = db.create_index("i", of(structure)).unwrap();
            for n in 0..3 {
                put(&db, &index, &[n], &value(u64::from(n), 400 << 10), Durability::Sync).unwrap();
            }
            drop(index);
            let disk = cut(&disk, db);
            assert_eq!(run_files(&disk), 0);
            let small = Options { vfs: Arc::new(disk), budget_bytes: 256 << 10, ..options };
            let db = Database::open("/db", small).unwrap();
            let found = all(&db, &db.index("i").unwrap());
            assert!(found == (0..3).map(|n| (vec![n], value(u64::from(n), 400 << 10))).collect::<Vec<_>>());
            sound(&db);
        });
    }
}

/// Rows made anew, and an index of a front, with a value of twice the budget. Guard: one entry of a build passes the limit.
#[test]
fn a_build_has_a_value_that_is_longer_than_the_budget() {
    let ways = [(Structure::Btree, Structure::Lsm), (Structure::Lsm, Structure::Betree)];
    for (from, to) in ways {
        simulate(move |_| {
            let options = Options { budget_bytes: 1 << 20, ..options(&disk()) };
            let db = Database::open("/db", options).unwrap();
            let schema = Schema::builder().column("id", ColumnType::U64).column("text", ColumnType::Bytes);
            let schema = schema.primary_key(&["id"]).primary_options(of(from)).build().unwrap();
            let t = db.create_table("t", schema).unwrap();
            for id in 0..3 {
                let mut tx = db.begin().unwrap();
                tx.insert(&t, &[Value::U64(id), Value::Bytes(value(id, 2 << 20).into())]).unwrap();
                tx.commit().unwrap();
            }
            db.change_table_rows(&t, of(to)).unwrap();
            let begins = IndexSchema::of_parts("begins", vec![KeyPart::new("text").front(3)]).with_options(of(from));
            db.create_table_indexes(&t, vec![begins]).unwrap();
            agrees(&db, &t, "begins");
            sound(&db);
        });
    }
}

/// A range that is deleted over a large value whose block cannot be read, which is an error with its key until then. Guards: its drain asks for keys only,
/// in each structure; who reads the value says the key.
#[test]
fn a_damaged_value_does_not_keep_a_deleted_range_from_being_drained() {
    for structure in STRUCTURES {
        simulate(move |_| {
            let disk = disk();
            let quiet = Options { background: false, inline_batch_bytes: 1000, ..options(&disk) };
            let db = Database::open("/db", quiet.clone()).unwrap();
            let index = db.create_index("i", of(structure)).unwrap();
            for n in 0..9 {
                put(&db, &index, &[n], &value(u64::from(n), 40 << 10), Durability::Sync).unwrap();
            }
            db.settle().unwrap();
            db.close().unwrap();
            drop((index, db));
            let file = std::path::Path::new("/db/data.trefoil");
            let (bytes, probe) = (disk.contents(file).unwrap(), &value(4, 40 << 10)[20 << 10..][..16]);
            let at = bytes.windows(16).position(|bytes| bytes == probe).unwrap();
            disk.damage(file, at as u64, &[8]).unwrap();
            let db = Database::open("/db", quiet).unwrap();
            let index = db.index("i").unwrap();
            let tx = db.begin().unwrap();
            for met in [tx.get(&index, &[4]).map(drop), tx.range(&index, ..).unwrap().collect().map(drop)] {
                let Err(trefoil::Error::Corrupt(met)) = met else { panic!("{structure:?}: {met:?}") };
                assert!(met.key_range.is_some(), "{met}");
            }
            drop(tx);
            put(&db, &index, &[5], &value(50, 40 << 10), Durability::Sync).unwrap();
            let mut tx = db.begin().unwrap();
            tx.delete_range(&index, &[2][..]..&[7][..]).unwrap();
            tx.commit().unwrap();
            db.settle().unwrap();
            assert!(db.stats().damaged.is_empty() && index.stats().deleted_ranges == 0, "{structure:?}");
            for n in 0..9 {
                let left = (!(2..7).contains(&n)).then(|| value(u64::from(n), 40 << 10));
                assert!(get(&db, &index, &[n]) == left, "{structure:?}: {n}");
            }
        });
    }
}
