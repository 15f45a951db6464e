//! P4: a full disk, or a full data file, is told at the statement; what was let in goes on.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::*;
use trefoil::{Database, Durability, Error, Index, IndexOptions, Options, Structure};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::SimDisk;
use vfs::time::Instant;

/// Fills an index until the engine says that the disk is full; returns the next key.
fn fill_up(db: &Database, index: &Index) -> u32 {
    fill_up_from(db, index, 0)
}

/// As [`fill_up`], from a key on.
fn fill_up_from(db: &Database, index: &Index, first: u32) -> u32 {
    for n in first / 8..20_000 {
        let mut tx = db.begin().unwrap();
        for key in 8 * n..8 * n + 8 {
            let value = vfs::random::Rng::new(u64::from(key)).u64().to_be_bytes().repeat(30);
            match tx.put(index, &key.to_be_bytes(), &value) {
                Ok(()) => {}
                Err(Error::DiskFull { .. }) => return 8 * n,
                Err(error) => panic!("{error}"),
            }
        }
        match tx.commit_with(Durability::Write) {
            Ok(_) => {}
            Err(Error::DiskFull { .. }) => return 8 * n,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the disk never was full");
}

/// P4, B7: a full disk is an ordinary error; reads and drops go on, nothing is poisoned, and writes resume by
/// themselves. Guards: the reserve of the log for drops; a manifest that finds no space is tried again.
#[test]
fn p4_b7_a_full_disk_is_an_ordinary_error() {
    simulate(|_| {
        let disk = SimDisk::new(vfs::sim::DiskConfig { capacity_bytes: 4 << 20, ..vfs::sim::DiskConfig::seed(7) });
        let small = Options { budget_bytes: 2 << 20, ..options(&disk) };
        let db = Database::open("/db", small.clone()).unwrap();
        let (big, spare) = (index(&db, "big"), index(&db, "spare"));
        fill(&db, &spare, 0, 100, 10).unwrap();
        let written = fill_up(&db, &big);
        // Background work meets the full disk as well.
        sleep(500);
        assert_eq!(all(&db, &spare).len(), 100, "reads go on");
        db.drop_index("spare").expect("drops go on");
        drop(spare);
        match db.checkpoint() {
            Ok(()) | Err(Error::DiskFull { .. }) => {}
            Err(error) => panic!("a full disk is an ordinary error: {error}"),
        }
        disk.set_capacity(u64::MAX / 2);
        sleep(500);
        put(&db, &big, b"again", b"1", Durability::Sync).expect("resumes by itself");
        db.checkpoint().unwrap();
        assert_eq!(all(&db, &big).len(), written as usize + 1);
        let disk = cut(&disk, db);
        let db = Database::open("/db", Options { vfs: std::sync::Arc::new(disk), ..small }).unwrap();
        assert_eq!(all(&db, &db.index("big").unwrap()).len(), written as usize + 1);
        assert_eq!(db.names().0, ["big"]);
        sound(&db);
    });
}

/// P4: with the data file at its limit, writes are refused, drops go on, and what they give back is written to again.
/// Guards: `check_room` counts what was admitted and is not written yet; cleaning stops on a tight disk; threads that
/// replace inner nodes hand the old ones on at once. Not that `free_dropped` runs a checkpoint: another one comes in time.
#[test]
fn p4_a_full_data_file_refuses_statements_until_a_drop() {
    simulate(|_| {
        let disk = disk();
        let limited = Options { budget_bytes: 1 << 20, data_bytes_max: Some(4 << 20), ..options(&disk) };
        let db = Database::open("/db", limited.clone()).unwrap();
        let index = |name| db.create_index(name, IndexOptions { node_bytes: 4096, ..IndexOptions::default() }).unwrap();
        let (big, kept) = (index("big"), index("kept"));
        fill(&db, &kept, 0, 100, 10).unwrap();
        // A checkpoint pays what is owed and gives some room back, until there is none.
        let mut from = 0;
        while put(&db, &kept, b"k", b"v", Durability::Sync).is_ok() {
            from = fill_up_from(&db, &big, from);
            sleep(500);
        }
        assert!(db.stats().space.file_bytes <= 4 << 20);
        assert_eq!(all(&db, &kept).len(), 101, "reads go on");
        db.checkpoint().expect("what was admitted can be written");
        db.drop_index("big").expect("drops go on");
        drop(big);
        sleep(500);
        put(&db, &kept, b"k", b"again", Durability::Sync).expect("resumes by itself");
        let (next, mut rows) = (index("next"), 0);
        // Some of it with the next checkpoint.
        for _ in 0..4 {
            rows = fill_up_from(&db, &next, rows);
            sleep(500);
        }
        assert!(rows > 1000, "all of it is usable again: {rows}");
        db.checkpoint().unwrap();
        let disk = cut(&disk, db);
        let db = Database::open("/db", Options { vfs: std::sync::Arc::new(disk), ..limited }).unwrap();
        assert_eq!(all(&db, &db.index("kept").unwrap()).len(), 101);
        sound(&db);
    });
}

/// P4: the same where memtables hold most of what is admitted and not written, in whatever schedule: what is let in is committed. Guards:
/// `owed_bytes` counts them, and what transactions were let in for; a commit does not ask for room again.
#[test]
fn p4_what_memtables_hold_has_room_on_disk() {
    for seed in 1..=30 {
        simulate_by(seed, move |_| memtables_beside_a_full_data_file(seed));
    }
}

fn memtables_beside_a_full_data_file(seed: u64) {
    let disk = disk();
    let limited = Options { budget_bytes: 16 << 20, data_bytes_max: Some(8 << 20), ..options(&disk) };
    let db = Database::open("/db", limited.clone()).unwrap();
    let lsm = IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() };
    let big = db.create_index("big", lsm).unwrap();
    let mut rng = vfs::random::Rng::new(3);
    let mut rows = 0u32;
    for round in 0..10 {
        let refused = loop {
            let mut tx = db.begin().unwrap();
            let value: Vec<u8> = (0..2000).map(|_| rng.below(256) as u8).collect();
            if let Err(error) = tx.put(&big, &rows.wrapping_mul(2_654_435_761).to_be_bytes(), &value) {
                break error;
            }
            tx.commit().unwrap_or_else(|error| panic!("seed {seed}, round {round}, {rows} rows: {error}"));
            rows += 1;
        };
        assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
        db.checkpoint().unwrap_or_else(|error| panic!("seed {seed}, round {round}, {rows} rows: {error}"));
    }
    assert_eq!(all(&db, &big).len(), rows as usize);
    let disk = cut(&disk, db);
    let db = Database::open("/db", Options { vfs: std::sync::Arc::new(disk), ..limited }).unwrap();
    assert_eq!(all(&db, &db.index("big").unwrap()).len(), rows as usize);
    sound(&db);
}

/// P4: the same of values that lie beside a leaf, which is dirty as long as memory has room, put anew again and again: what is let in is
/// written, and the next opening finds room, too. Guard: `owed_bytes` counts large values that no block holds yet, twice.
#[test]
fn p4_large_values_beside_a_leaf_have_room_on_disk() {
    for structure in [Structure::Btree, Structure::Betree] {
        for lengths in [[100 << 10, 20 << 10, 40 << 10], [3 << 20, 100, 20 << 20]] {
            simulate(move |_| large_values_beside_a_full_data_file(structure, lengths));
        }
    }
}

fn large_values_beside_a_full_data_file(structure: Structure, lengths: [usize; 3]) {
    let disk = disk();
    let limited = Options { budget_bytes: 16 << 20, data_bytes_max: Some(8 << 20), ..options(&disk) };
    let db = Database::open("/db", limited.clone()).unwrap();
    let big = db.create_index("big", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
    let mut rng = vfs::random::Rng::new(3);
    let (mut kept, mut refused) = (std::collections::BTreeMap::new(), 0);
    let count = if lengths[0] > 1 << 20 { 12 } else { 300 };
    for n in 0..count {
        let key = vec![(n % (count / 2)) as u8];
        let value: Vec<u8> = (0..lengths[n % 3] / 8).flat_map(|_| rng.u64().to_be_bytes()).collect();
        match put(&db, &big, &key, &value, Durability::Sync) {
            Ok(()) => _ = kept.insert(key, value),
            Err(Error::DiskFull { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0, "the disk never was full");
    db.settle().unwrap_or_else(|error| panic!("{structure:?}, {lengths:?}: {error}"));
    let disk = cut(&disk, db);
    let db = Database::open("/db", Options { vfs: std::sync::Arc::new(disk), ..limited }).unwrap();
    let found = all(&db, &db.index("big").unwrap());
    assert!(found == kept.into_iter().collect::<Vec<_>>());
    sound(&db);
}

/// P4: of large values that are deleted only memory knows, in a few bytes: whoever is refused then calls for the checkpoint that brings their space back.
/// So does what upkeep did behind a checkpoint that has the deletes, in a tenth of the schedules: leaves that died are named by it. Guards: `is_refused_long` in `space_is_due`,
/// `upkept`.
#[test]
fn p4_large_values_that_were_deleted_make_room() {
    for seed in 0..24 {
        for structure in [Structure::Btree, Structure::Betree, Structure::Lsm] {
            simulate_by(seed, move |_| large_values_that_were_deleted_make_room(structure));
        }
    }
}

fn large_values_that_were_deleted_make_room(structure: Structure) {
    let limited = Options { budget_bytes: 4 << 20, data_bytes_max: Some(8 << 20), ..options(&disk()) };
    let db = Database::open("/db", limited).unwrap();
    let index = db.create_index("i", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
    let mut rng = vfs::random::Rng::new(3);
    let mut put_one = |key: u8| {
        let value: Vec<u8> = (0..1 << 17).flat_map(|_| rng.u64().to_be_bytes()).collect();
        put(&db, &index, &[key], &value, Durability::Sync)
    };
    let count = (0..100).take_while(|n| put_one(*n).is_ok()).count();
    assert!((3..8).contains(&count), "{count}");
    for n in 0..count {
        // A file that is full lets deletes in once something has come back.
        let deleted = (0..100).any(|_| {
            let mut tx = db.begin().unwrap();
            let is_let_in = tx.delete(&index, &[n as u8]).is_ok_and(|was_there| was_there);
            tx.commit().unwrap();
            if !is_let_in {
                sleep(20);
            }
            is_let_in
        });
        assert!(deleted, "{structure:?}: {n}");
    }
    let waited = (0..100)
        .take_while(|_| {
            put_one(100).is_err_and(|_| {
                sleep(50);
                true
            })
        })
        .count();
    assert!(waited < 100, "{structure:?}: nothing comes back of {count} values");
}

/// P4: rows can be deleted, though the data file is so full that not one comes in, whatever their order and the schedule, and so many at a
/// time, with a power cut half-way; then there is room again. Guards: a delete from a tree may take a part of the reserve; it waits for what
/// those before it bring back; for one that waits extents are emptied.
#[test]
fn p4_rows_are_deleted_from_a_full_data_file() {
    let all_refused = Arc::new(AtomicU32::new(0));
    for seed in 0..8 {
        for structure in [Structure::Btree, Structure::Betree] {
            let refused = all_refused.clone();
            simulate_by(seed, move |_| {
                refused.fetch_add(rows_deleted_from_a_full_data_file(seed, structure), Ordering::Relaxed);
            });
        }
    }
    let refused = all_refused.load(Ordering::Relaxed);
    assert!(refused > 100, "writes beside the deletes that were refused: {refused}");
}

fn rows_deleted_from_a_full_data_file(seed: u64, structure: Structure) -> u32 {
    let disk = disk();
    let limited = Options { budget_bytes: 4 << 20, data_bytes_max: Some(4 << 20), ..options(&disk) };
    let db = Database::open("/db", limited.clone()).unwrap();
    let own = IndexOptions { structure, node_bytes: 16 << 10, ..IndexOptions::default() };
    let (big, other) = (db.create_index("big", own).unwrap(), db.create_index("other", own).unwrap());
    let mut rng = vfs::random::Rng::new(seed);
    // A checkpoint brings some room back, until there is none.
    let (mut rows, mut at_rest) = (0u32, 0);
    while at_rest < 3 {
        let value: Vec<u8> = (0..1000).map(|_| rng.below(256) as u8).collect();
        match put(&db, &big, &rows.to_be_bytes(), &value, Durability::Write) {
            Ok(()) => (rows, at_rest) = (rows + 1, 0),
            Err(Error::DiskFull { .. }) => {
                at_rest += 1;
                sleep(500);
            }
            Err(error) => panic!("{error}"),
        }
    }
    let mut keys: Vec<u32> = (0..rows).collect();
    if seed.is_multiple_of(2) {
        keys.sort_by_cached_key(|_| rng.u64());
    }
    let delete = |db: &Database, keys: &[u32]| {
        let (big, other) = (db.index("big").unwrap(), db.index("other").unwrap());
        let mut refused = 0;
        for (n, some) in keys.chunks(1 + seed as usize % 4 * 8).enumerate() {
            let mut tx = db.begin().unwrap();
            for key in some {
                let deleted = tx.delete(&big, &key.to_be_bytes());
                assert!(matches!(deleted, Ok(true)), "{structure:?}, seed {seed}, {n}, {key} of {rows}: {deleted:?}");
            }
            tx.commit_with(Durability::Write).unwrap();
            if n.is_multiple_of(16) {
                let value = [7; 500];
                refused += u32::from(put(db, &other, &(n as u32).to_be_bytes(), &value, Durability::Sync).is_err());
            }
        }
        db.sync().unwrap();
        refused
    };
    let (before, behind) = keys.split_at(keys.len() / 2);
    let mut refused = delete(&db, before);
    drop((big, other));
    let disk = cut(&disk, db);
    let db = Database::open("/db", Options { vfs: Arc::new(disk), ..limited }).unwrap();
    let big = db.index("big").unwrap();
    let mut left: Vec<Vec<u8>> = behind.iter().map(|key| key.to_be_bytes().to_vec()).collect();
    left.sort_unstable();
    assert!(all(&db, &big).into_iter().map(|(key, _)| key).eq(left), "{structure:?}, seed {seed}");
    refused += delete(&db, behind);
    assert!(all(&db, &big).is_empty());
    let waited = (0..100).take_while(|_| {
        let is_refused = put(&db, &big, b"again", b"1", Durability::Sync).is_err();
        if is_refused {
            sleep(50);
        }
        is_refused
    });
    assert!(waited.count() < 100, "{structure:?}, seed {seed}: nothing comes back of {rows} rows");
    sound(&db);
    refused
}

/// P4: in a log-structured merge tree a delete takes room until a merge has dropped it, so it is refused where another write is.
#[test]
fn p4_a_delete_that_needs_a_merge_needs_room() {
    let all_refused = Arc::new(AtomicU32::new(0));
    for seed in 0..4 {
        let refused = all_refused.clone();
        simulate_by(seed, move |_| {
            let limited = Options { data_bytes_max: Some(4 << 20), ..options(&disk()) };
            let db = Database::open("/db", limited).unwrap();
            let lsm = IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() };
            let index = db.create_index("i", lsm).unwrap();
            let rows = fill_densely(&db, &index, &mut vfs::random::Rng::new(seed));
            let is_refused = |tx: &mut trefoil::Transaction, key: &[u8], value: Option<&[u8]>| {
                let done = match value {
                    Some(value) => tx.put(&index, key, value),
                    None => tx.delete(&index, key).map(|_| ()),
                };
                matches!(done, Err(Error::DiskFull { .. }))
            };
            let keys: Vec<_> = all(&db, &index).into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys.len(), rows);
            let mut tx = db.begin().unwrap();
            for key in &keys {
                let before = is_refused(&mut tx, b"more", Some(b"1"));
                let delete = is_refused(&mut tx, key, None);
                let behind = is_refused(&mut tx, b"more", Some(b"1"));
                // What is refused may come back between two of them.
                assert!(delete || !(before && behind), "seed {seed}");
                refused.fetch_add(u32::from(delete), Ordering::Relaxed);
            }
            tx.rollback();
        });
    }
    assert!(all_refused.load(Ordering::Relaxed) > 0, "none was refused");
}

/// Rows that do not compress, until one is refused; how many there are then.
fn fill_densely(db: &Database, index: &Index, rng: &mut vfs::random::Rng) -> usize {
    for rows in 0.. {
        let value: Vec<u8> = (0..2000).map(|_| rng.below(256) as u8).collect();
        match put(db, index, &rng.u64().to_be_bytes(), &value, Durability::Write) {
            Ok(()) => {}
            Err(Error::DiskFull { .. }) => return rows,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the disk never was full")
}

/// P4: a statement that was let in is committed, or prepared, however full the disk is by then; the next one of the same transaction is refused. Guards: neither
/// asks for room again.
#[test]
fn p4_what_was_let_in_is_committed() {
    for structure in [Structure::Lsm, Structure::Btree] {
        simulate(move |_| {
            let disk = disk();
            let limited = Options { budget_bytes: 1 << 20, data_bytes_max: Some(4 << 20), ..options(&disk) };
            let db = Database::open("/db", limited.clone()).unwrap();
            let options = IndexOptions { structure, node_bytes: 4096, ..IndexOptions::default() };
            let (early, big) = (db.create_index("early", options).unwrap(), db.create_index("big", options).unwrap());
            let mut let_in: Vec<_> = (0..3).map(|_| db.begin().unwrap()).collect();
            for (n, tx) in let_in.iter_mut().enumerate() {
                (0..10u8).for_each(|m| tx.put(&early, &[n as u8, m], &[m; 500]).unwrap());
            }
            // Until neither a checkpoint nor upkeep gives anything back.
            let mut rng = vfs::random::Rng::new(5);
            while fill_densely(&db, &big, &mut rng) > 0 {
                db.checkpoint().unwrap();
                sleep(500);
            }
            let mut third = let_in.pop().unwrap();
            let refused = third.put(&early, &[9, 9], &[0; 500]).unwrap_err();
            assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
            let_in.pop().unwrap().prepare(b"second").unwrap();
            third.commit().unwrap();
            let_in.pop().unwrap().commit().unwrap();
            db.commit_prepared(b"second").unwrap();
            db.checkpoint().expect("what was let in can be written");
            assert_eq!(all(&db, &early).len(), 30);
            let disk = cut(&disk, db);
            let db = Database::open("/db", Options { vfs: std::sync::Arc::new(disk), ..limited }).unwrap();
            assert_eq!(all(&db, &db.index("early").unwrap()).len(), 30);
            sound(&db);
        });
    }
}

/// P4: transactions that are let in beside each other have room together, and what one of them takes back is another's. Guards: `owed_bytes` counts what was
/// promised; going back gives it back, so does the end.
#[test]
fn p4_transactions_share_the_room() {
    simulate(|_| {
        let disk = disk();
        let limited = Options { budget_bytes: 32 << 20, data_bytes_max: Some(8 << 20), ..options(&disk) };
        let db = Database::open("/db", limited).unwrap();
        let lsm = IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() };
        let index = db.create_index("i", lsm).unwrap();
        let mut rng = vfs::random::Rng::new(7);
        let mut several: Vec<_> = (0..10).map(|_| db.begin().unwrap()).collect();
        let starts: Vec<_> = several.iter().map(|tx| tx.savepoint()).collect();
        // Who is refused keeps the lock of the row: each try is of another one.
        let mut next = 0u32;
        let mut put_all = |several: &mut [trefoil::Transaction]| {
            for rows in 0.. {
                next += 1;
                let value: Vec<u8> = (0..4000).map(|_| rng.below(256) as u8).collect();
                let refused = several[rows % several.len()].put(&index, &next.to_be_bytes(), &value).err();
                if let Some(error) = refused {
                    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
                    return rows;
                }
            }
            unreachable!("the disk never was full")
        };
        let first = put_all(&mut several);
        assert!((1000..2000).contains(&first), "{first} rows of 4 kB in 8 MiB");
        // Half of it is taken back, by half of them: as much fits again.
        several[..5].iter_mut().zip(&starts).for_each(|(tx, start)| tx.rollback_to(*start).unwrap());
        let second = put_all(&mut several[5..]);
        assert!(second > first / 3, "{first} rows, then {second}");
        for tx in several.drain(5..) {
            tx.commit().unwrap();
        }
        db.checkpoint().expect("what was let in can be written");
        let of_the_others = (0..first).filter(|row| row % 10 >= 5).count();
        assert_eq!(all(&db, &index).len(), of_the_others + second);
        drop(several);
        db.drop_index("i").unwrap();
        drop(index);
        sleep(500);
        let again = db.create_index("again", lsm).unwrap();
        assert!(fill_densely(&db, &again, &mut rng) > 2000, "nothing is promised any more");
    });
}

/// P4: a drop does not wait at the wall of the runs, also where the disk is full: it is what brings both back. Guard:
/// `commit_batches` waits at the wall for ordinary commits only.
#[test]
fn p4_a_drop_passes_the_wall_on_a_full_disk() {
    simulate(|sim| {
        let disk = disk();
        let small = Options { budget_bytes: 1 << 20, ..options(&disk) };
        let db = Database::open("/db", small.clone()).unwrap();
        let (kept, gone) = (index(&db, "kept"), index(&db, "gone"));
        for from in (0..6000).step_by(500) {
            fill(&db, &kept, from, from + 500, 40).unwrap();
        }
        fill(&db, &gone, 0, 100, 40).unwrap();
        drop((kept, gone));
        db.close().unwrap();
        drop(db);
        // Cold, and nothing drains what is attached.
        let db = Database::open("/db", small).unwrap();
        let kept = db.index("kept").unwrap();
        let gate = sim.hold("tree.drain_reserved");
        let refused = (0..300u32).find_map(|turn| {
            let mut tx = db.begin().unwrap();
            for n in (turn % 60..6000).step_by(60) {
                tx.put(&kept, &n.to_be_bytes(), &[turn as u8; 20]).unwrap();
            }
            tx.commit_with(Durability::Write).err()
        });
        assert!(matches!(refused, Some(Error::Limit { .. })), "the wall was not reached: {refused:?}");
        disk.faults().add(Rule::new(Action::StorageFull).on(Class::Allocate).forever());
        let asked = Instant::now();
        db.drop_index("gone").expect("drops go on");
        assert!(asked.elapsed() < Duration::from_secs(1), "the drop took {:?}", asked.elapsed());
        disk.faults().clear();
        gate.open();
        put(&db, &kept, b"again", b"1", Durability::Sync).expect("the drain goes on");
        sound(&db);
    });
}
