//! Index builds, drops and changes beside writers of all kinds, at random, and beside locks of ranges (rules A16, A22).

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::*;
use trefoil::{Database, Error, IndexOptions, IndexSchema, Options, Structure, Table, Value};
use vfs::sim::{Config, SimDisk, Simulation};
use vfs::thread::JoinHandle;
use vfs::time::Instant;

/// Writers of all kinds beside builds, drops and changes of two indexes, one of them unique, and of the rows themselves: in the end
/// the indexes are those of the rows, after a crash too. The longest wait of a writer is told.
#[test]
fn builds_and_writers_side_by_side() {
    let config = || Config { steps_max: 20_000_000, ..Config::default() }.bias("build.", 0.3).bias("commit.", 0.2);
    let longest = Arc::new(AtomicU64::new(0));
    for seed in 0..40 {
        let longest = longest.clone();
        Simulation::new(seed, config()).run(move |_| {
            let disk = SimDisk::new(vfs::sim::DiskConfig::seed(seed));
            let inline = if seed % 3 == 0 { 200 } else { 1 << 20 };
            let db = Database::open("/db", Options { inline_batch_bytes: inline, ..options(&disk) }).unwrap();
            let t = distinct_of(&db, small_nodes_of(seed));
            let done = Arc::new(AtomicBool::new(false));
            let writers: Vec<_> = (0..3).map(|n| writer(&db, &t, seed * 7 + n, &done, &longest)).collect();
            let mut rng = vfs::random::Rng::new(seed);
            for step in 0..8 {
                // One structure after the other, so that changes are made from each to each.
                let options = small_nodes_of(seed + step);
                let new = |name: &str| match name {
                    "plain" => IndexSchema::new(name, &["colour"]).clustering().with_options(options),
                    _ => by_colour().unique().with_options(options),
                };
                let name = if rng.chance(0.5) { "plain" } else { "by_colour" };
                let there = t.schema().index_number(name).is_some();
                let rows = [Structure::Btree, Structure::Betree, Structure::Lsm][rng.below(3) as usize];
                let outcome = match (there, rng.below(4)) {
                    (_, 3) => db.change_table_rows(&t, IndexOptions { structure: rows, ..small_nodes() }),
                    (false, _) => db.create_table_indexes(&t, vec![new(name)]),
                    (true, 0) => db.drop_table_index(&t, name),
                    (true, 1) => db.rebuild_index(&t, name),
                    (true, _) => db.change_table_index(&t, name, options),
                };
                match outcome {
                    Ok(()) | Err(Error::DuplicateKey(_) | Error::LockTimeout { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                let schema = t.schema();
                schema.indexes().iter().for_each(|index| agrees(&db, &t, index.name()));
            }
            done.store(true, Ordering::Relaxed);
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            drop(t);
            let db = open(&cut(&disk, db));
            let t = db.table("t").unwrap();
            t.schema().indexes().iter().for_each(|index| agrees(&db, &t, index.name()));
            sound(&db);
        });
    }
    // Of simulated time, without the locks of other writers and with the checkpoints of builds beside them.
    let longest = longest.load(Ordering::Relaxed);
    assert!(longest < 400_000, "a statement or commit took {longest} us");
}

fn writer(db: &Database, t: &Table, seed: u64, done: &Arc<AtomicBool>, longest: &Arc<AtomicU64>) -> JoinHandle<()> {
    let (db, t, done, longest) = (db.clone(), t.clone(), done.clone(), longest.clone());
    spawn("writer", move || {
        let mut rng = vfs::random::Rng::new(seed);
        while !done.load(Ordering::Relaxed) {
            let began = Instant::now();
            let mut work = || {
                let mut tx = db.begin()?;
                let most = if rng.chance(0.1) { 30 } else { 3 };
                for _ in 0..1 + rng.below(most) {
                    let (id, colour) = (rng.below(500), rng.below(2000) as u32);
                    let new = [Value::U64(id), Value::U32(colour)];
                    match rng.below(4) {
                        0 => drop(tx.insert_if_absent(&t, &new)?),
                        1 => drop(tx.update(&t, &new)?),
                        2 => drop(tx.replace(&t, &new)?),
                        _ => drop(tx.delete_row(&t, &new[..1])?),
                    }
                }
                tx.commit().map(|_| ())
            };
            match work() {
                Ok(()) | Err(Error::DuplicateKey(_) | Error::Deadlock { .. } | Error::LockTimeout { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            longest.fetch_max((Instant::now() - began).as_micros() as u64, Ordering::Relaxed);
            sleep(1);
        }
    })
}

/// What was read under locks in an index stays free of new entries when another index takes its place. Guard: they share the
/// ranges.
#[test]
fn a22_ranges_outlive_the_index_they_were_locked_in() {
    simulate(|_| {
        let db = open(&disk());
        let t = distinct(&db);
        db.create_table_indexes(&t, vec![by_colour()]).unwrap();
        let reader = db.begin().unwrap();
        let bounds = ([Value::U32(1000)], [Value::U32(2000)]);
        let range = (std::ops::Bound::Included(&bounds.0[..]), std::ops::Bound::Included(&bounds.1[..]));
        assert!(
            reader
                .scan_index_locked(&t, "by_colour", range, trefoil::LockMode::Shared)
                .unwrap()
                .next()
                .unwrap()
                .is_none()
        );
        db.rebuild_index(&t, "by_colour").unwrap();
        let mut writer = db.begin().unwrap();
        let add =
            |tx: &mut trefoil::Transaction, id: u64, colour: u32| tx.insert(&t, &[Value::U64(id), Value::U32(colour)]);
        assert!(matches!(add(&mut writer, 700, 1500), Err(Error::LockTimeout { .. })));
        add(&mut writer, 700, 900).unwrap();
        reader.rollback();
        add(&mut writer, 701, 1500).unwrap();
        writer.commit().unwrap();
        agrees(&db, &t, "by_colour");
    });
}
