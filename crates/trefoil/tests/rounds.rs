//! P4: more is dirty than there is space for. The checkpoint comes to its end in rounds, whatever is cut off in between.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;

use crate::support::*;
use trefoil::{Database, Durability, Error, Index, IndexOptions, Options, Structure};
use vfs::sim::SimDisk;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const ROW_BYTES: usize = 400;
/// Of so many rows one is short: next to every leaf has one, which can be changed for a few bytes.
const ROWS_PER_SHORT: u32 = 7;
const SHORT_BYTES: usize = 8;

fn limited(disk: &SimDisk) -> Options {
    Options { budget_bytes: 16 << 20, data_bytes_max: Some(4 << 20), ..options(disk) }
}

fn value(rng: &mut vfs::random::Rng, len: usize) -> Vec<u8> {
    (0..len / 8).flat_map(|_| rng.u64().to_be_bytes()).collect()
}

/// Rows until the disk is full, in order of their keys or all over them.
fn fill_up(db: &Database, index: &Index, in_order: bool, rows: &mut Rows, rng: &mut vfs::random::Rng) {
    let mut number = 0u32;
    loop {
        let (mut tx, mut some) = (db.begin().unwrap(), Rows::new());
        for _ in 0..50 {
            number += 1;
            let key = if in_order { number } else { number.wrapping_mul(2_654_435_761) };
            let len = if number.is_multiple_of(ROWS_PER_SHORT) { SHORT_BYTES } else { ROW_BYTES };
            let (key, value) = (key.to_be_bytes().to_vec(), value(rng, len));
            match tx.put(index, &key, &value) {
                Ok(()) => _ = some.insert(key, value),
                Err(Error::DiskFull { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
        tx.commit_with(Durability::Write).unwrap();
        rows.append(&mut some);
    }
}

/// A full database with a little room, and what is in it.
fn nearly_full(disk: &SimDisk, structure: Structure, in_order: bool) -> (Database, Index, Rows) {
    let db = Database::open("/db", limited(disk)).unwrap();
    let options = IndexOptions { structure, node_bytes: 4096, ..IndexOptions::default() };
    let (big, spare) = (db.create_index("big", options).unwrap(), db.create_index("spare", options).unwrap());
    let (mut rows, mut rng) = (Rows::new(), vfs::random::Rng::new(3));
    for n in 0..150u32 {
        put(&db, &spare, &n.to_be_bytes(), &value(&mut rng, 2000), Durability::Write).unwrap();
    }
    drop(spare);
    fill_up(&db, &big, in_order, &mut rows, &mut rng);
    db.checkpoint().unwrap();
    db.drop_index("spare").unwrap();
    sleep(500);
    db.checkpoint().unwrap();
    (db, big, rows)
}

/// One transaction makes next to every leaf dirty, with a few bytes for each.
fn touch_every_leaf(db: &Database, big: &Index, rows: &mut Rows, turn: u8) {
    let mut tx = db.begin().unwrap();
    for (key, value) in rows.iter_mut().filter(|(_, value)| value.len() == SHORT_BYTES) {
        *value = vec![turn; SHORT_BYTES];
        tx.put(big, key, value).unwrap();
    }
    tx.commit().unwrap();
}

fn is_whole(db: &Database, rows: &Rows) {
    let found = all(db, &db.index("big").unwrap());
    assert!(found.into_iter().eq(rows.clone()), "other rows than were committed");
    sound(db);
}

/// Guard: `make_way`.
#[test]
fn p4_more_dirty_leaves_than_space_are_written_in_rounds() {
    for (structure, in_order) in [(Structure::Btree, true), (Structure::Btree, false), (Structure::Betree, true)] {
        simulate(move |_| {
            let disk = disk();
            let (db, big, mut rows) = nearly_full(&disk, structure, in_order);
            touch_every_leaf(&db, &big, &mut rows, 1);
            db.settle().unwrap_or_else(|error| panic!("{structure:?}, in order {in_order}: {error}"));
            assert!(db.stats().space.file_bytes <= 4 << 20);
            is_whole(&db, &rows);
            let disk = cut(&disk, db);
            let db = Database::open("/db", limited(&disk)).unwrap();
            is_whole(&db, &rows);
        });
    }
}

/// A checkpoint that ends in its middle leaves counts of what it would have named: that is no damage. Guard: `is_behind`.
#[test]
fn a_checkpoint_that_found_no_space_is_no_damage() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open("/db", Options { background: false, ..options(&disk) }).unwrap();
        let index = db.create_index("i", small_nodes()).unwrap();
        fill(&db, &index, 0, 1000, 10).unwrap();
        let refused = (0..200u32).any(|n| {
            put(&db, &index, &n.to_be_bytes(), b"second", Durability::Sync).unwrap();
            disk.set_capacity(0);
            let refused = db.checkpoint().is_err();
            if refused {
                sound(&db);
            }
            disk.set_capacity(u64::MAX / 2);
            refused
        });
        assert!(refused);
        db.checkpoint().unwrap();
        sound(&db);
    });
}

/// The power is cut between the rounds of a checkpoint: what was committed is there, and what replay makes dirty again the checkpoint that ends
/// recovery writes. Guards: a checkpoint of what is written names runs as the last one did, and the log stays.
#[test]
fn p4_a_power_cut_between_rounds_loses_nothing() {
    for (point, n) in [("between_rounds", 0), ("evacuates", 0), ("between_rounds", 1)] {
        simulate(move |sim| {
            let disk = disk();
            let (db, big, mut rows) = nearly_full(&disk, Structure::Btree, true);
            let gate = sim.hold_nth(&format!("checkpoint.{point}"), n);
            touch_every_leaf(&db, &big, &mut rows, 1);
            let checkpoint = spawn("checkpoint", move || drop(db.settle()));
            while !gate.is_reached() {
                assert!(!checkpoint.is_finished(), "it did not come to {point} {n}");
                sleep(1);
            }
            disk.power_cut(5);
            gate.open();
            checkpoint.join().unwrap();
            drop(big);
            let disk = disk.reboot();
            let db = Database::open("/db", limited(&disk)).unwrap();
            is_whole(&db, &rows);
            let disk = cut(&disk, db);
            is_whole(&Database::open("/db", limited(&disk)).unwrap(), &rows);
        });
    }
}
