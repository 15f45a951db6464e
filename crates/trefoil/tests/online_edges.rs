//! Index builds beside writers where something is in the way (rule A16): cold leaves, damage, runs in memory, statements that
//! replace rows, readers that come late. Every test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use trefoil::{ALL, Database, Error, Isolation, Options, Table, TransactionOptions, Value};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::{Gate, Handle, SimDisk};
use vfs::thread::JoinHandle;

/// A table whose index is under construction, with a row for every thirtieth entry; writers have made leaves all over it, more
/// than memory holds.
fn cold(disk: &SimDisk, sim: &Handle) -> (Database, Table, JoinHandle<Result<(), Error>>, Gate) {
    let options = Options { budget_bytes: 576 << 10, background: false, ..options(disk) };
    let db = Database::open("/db", options).unwrap();
    let t = table(&db, "t");
    let insert = |ids: Vec<u64>, colour: fn(u64) -> u64| {
        for some in ids.chunks(200) {
            let mut tx = db.begin().unwrap();
            let some: Vec<_> = some.iter().map(|id| [Value::U64(*id), Value::U32(colour(*id) as u32)]).collect();
            tx.insert_many(&t, &some).unwrap();
            tx.commit().unwrap();
            db.settle().unwrap();
        }
    };
    insert((0..200).collect(), |id| id * 30);
    let gate = sim.hold("build.read");
    let building = build(&db, &t, by_colour());
    gate.wait_reached();
    insert((1000..7000).collect(), |id| (id - 1000) * 7919 % 6000);
    db.checkpoint().unwrap();
    (db, t, building, gate)
}

/// Entries are added between those of writers, a batch of them over more cold leaves than a commit waits for. Guard: it is cut.
#[test]
fn a16e_a_build_meets_cold_leaves() {
    simulate(|sim| {
        let (db, t, building, gate) = cold(&disk(), sim);
        gate.open();
        building.join().unwrap().unwrap();
        agrees(&db, &t, "by_colour");
    });
}

/// What a build has added is durable before it is public also where a large commit, which lies in memory as a run, holds the
/// checkpoint's F below the moment of the build. Guard: the look at F in `make_durable`.
#[test]
fn a16f_a_build_is_durable_beside_a_run_in_memory() {
    simulate(|sim| {
        let disk = disk();
        let options =
            Options { log_capacity_bytes: 8 << 20, log_segment_bytes: 2 << 20, background: false, ..options(&disk) };
        let db = Database::open("/db", options).unwrap();
        let t = made(&db);
        let mut older = db.begin().unwrap();
        older.insert(&t, &row(900)).unwrap();
        let building = build(&db, &t, by_colour());
        sleep(50);
        let mut tx = db.begin().unwrap();
        tx.insert_many(&t, &(1000..2200).map(row).collect::<Vec<_>>()).unwrap();
        tx.prepare(b"large").unwrap();
        db.commit_prepared(b"large").unwrap();
        let gate = sim.hold("ddl.built");
        older.commit().unwrap();
        gate.wait_reached();
        let runs = db.stats().indexes.into_iter().find(|(name, _)| name == "t.by_colour").map(|(_, stats)| stats.runs);
        assert_eq!((runs, run_files(&disk)), (Some(1), 0), "it lies in memory");
        gate.open();
        building.join().unwrap().unwrap();
        drop(t);
        let db = open(&cut(&disk, db));
        agrees(&db, &db.table("t").unwrap(), "by_colour");
    });
}

/// A commit goes on without a build that has failed, also where its damage stays. Guard: `is_written` leaves out what is
/// abandoned.
#[test]
fn a16e_a_commit_goes_on_without_a_build_that_failed() {
    let met = Arc::new(AtomicU64::new(0));
    for n in (0..20).step_by(5) {
        let met = met.clone();
        simulate(move |sim| {
            let disk = disk();
            let (db, t, building, gate) = cold(&disk, sim);
            let mut tx = db.begin().unwrap();
            assert!(tx.delete_row(&t, &[Value::U64(2000 + n * 97)]).unwrap());
            disk.faults().add(Rule::new(Action::Eio).on(Class::Read).path("data.trefoil").forever());
            let committed = tx.commit();
            disk.faults().clear();
            gate.open();
            if let (Ok(_), Err(Error::Corrupt(_))) = (committed, building.join().unwrap()) {
                met.fetch_add(1, Ordering::Relaxed);
                no_trace(&db, &t);
            }
        });
    }
    assert!(met.load(Ordering::Relaxed) > 0);
}

/// A writer's commit meets damage in an index under construction: it goes on without, and the build fails. Guard: `set_aside`.
#[test]
fn a16e_damage_fails_the_build_and_not_the_writer() {
    let met = Arc::new(AtomicU64::new(0));
    for nth in (0..30).step_by(6) {
        let met = met.clone();
        simulate(move |sim| {
            let disk = disk();
            let (db, t, building, gate) = cold(&disk, sim);
            disk.faults().add(Rule::new(Action::Eio).on(Class::Read).path("data.trefoil").nth(nth));
            let mut tx = db.begin().unwrap();
            let rows = (0..40).try_for_each(|n| tx.delete_row(&t, &[Value::U64(2000 + n)]).map(|_| ()));
            let written = rows.and_then(|()| tx.commit().map(|_| ()));
            disk.faults().clear();
            gate.open();
            match (written, building.join().unwrap()) {
                (Ok(()), Err(Error::Corrupt(damage))) => {
                    assert_eq!(damage.index.map(|id| id.0), Some(2), "{damage}");
                    met.fetch_add(1, Ordering::Relaxed);
                    no_trace(&db, &t);
                }
                // It was met elsewhere, or nowhere.
                (_, built) => drop(built),
            }
        });
    }
    assert!(met.load(Ordering::Relaxed) > 0);
}

/// A row that is put in place of itself, or of one that an index in use knows, has no value twice: neither a build nor a rebuild
/// under verification fails of it. Guard: `leaving`, in `claim`.
#[test]
fn a16b_what_a_statement_replaces_does_not_fail_the_build() {
    for is_rebuilt in [false, true] {
        simulate(move |sim| {
            let db = open(&disk());
            let t = distinct(&db);
            if is_rebuilt {
                db.create_table_indexes(&t, vec![unique()]).unwrap();
            }
            let gate = sim.hold("build.verifying");
            let (d, handle) = (db.clone(), t.clone());
            let building = spawn("build", move || match is_rebuilt {
                true => d.rebuild_index(&handle, "by_colour"),
                false => d.create_table_indexes(&handle, vec![unique()]),
            });
            gate.wait_reached();
            let mut tx = db.begin().unwrap();
            assert_eq!(tx.replace(&t, &[Value::U64(3), Value::U32(3)]).unwrap(), 1, "by itself");
            if is_rebuilt {
                assert_eq!(tx.replace(&t, &[Value::U64(900), Value::U32(7)]).unwrap(), 1, "the row of that colour");
                assert_eq!(tx.replace(&t, &[Value::U64(8), Value::U32(9)]).unwrap(), 2, "both");
            }
            tx.commit().unwrap();
            gate.open();
            building.join().unwrap().unwrap();
            agrees(&db, &t, "by_colour");
        });
    }
}

/// A reader that has found the index which is replaced, or dropped, just before, and takes its snapshot behind that: it sees a row
/// that is in the successor alone, or is told. Guards: `check_snapshot` looks at the mark behind the snapshot; the mark stands
/// before anybody has the new shape.
#[test]
fn a16_no_reader_misses_a_row_in_an_index_that_is_left() {
    for (held, drops) in [(None, false), (Some("build.public"), false), (None, true)] {
        simulate(move |sim| {
            let db = open(&disk());
            let t = made(&db);
            db.create_table_indexes(&t, vec![by_colour()]).unwrap();
            let gate = sim.hold("read.shape");
            let (d, handle) = (db.clone(), t.clone());
            let reader = spawn("reader", move || {
                let tx = d.begin().unwrap();
                let mut entries = match tx.scan_index(&handle, "by_colour", ALL) {
                    Err(Error::Dropped { .. }) => return None,
                    entries => entries.unwrap(),
                };
                let mut count = 0;
                while entries.next().unwrap().is_some() {
                    count += 1;
                }
                Some(count)
            });
            gate.wait_reached();
            let public = held.map(|point| sim.hold(point));
            let (d, handle) = (db.clone(), t.clone());
            let changing = spawn("changing", move || match drops {
                true => d.drop_table_index(&handle, "by_colour"),
                false => d.rebuild_index(&handle, "by_colour"),
            });
            match &public {
                Some(public) => public.wait_reached(),
                None => {
                    while !changing.is_finished() {
                        sleep(10);
                    }
                }
            }
            insert(&db, &t, TABLE_ROWS..TABLE_ROWS + 1).unwrap();
            gate.open();
            assert_eq!(reader.join().unwrap(), None);
            public.iter().for_each(Gate::open);
            changing.join().unwrap().unwrap();
        });
    }
}

/// Who is told of a row that has a value keeps it there until his end, also if the index that told him is replaced meanwhile: who
/// takes the row away comes by the successor alone. Guard: `lock_in_successor`, in `claim`. Seed 4025 of the simulator found it.
#[test]
fn a24_a_row_that_was_told_of_stays_while_its_index_is_replaced() {
    simulate(|sim| {
        let db = open(&disk());
        let t = distinct(&db);
        db.create_table_indexes(&t, vec![unique()]).unwrap();
        let gate = sim.hold("ddl.registered");
        let (d, handle) = (db.clone(), t.clone());
        let building = spawn("build", move || d.rebuild_index(&handle, "by_colour"));
        gate.wait_reached();
        let mut told = db.begin_with(Isolation::ReadCommitted).unwrap();
        let refused = told.insert(&t, &[Value::U64(900), Value::U32(7)]);
        assert!(matches!(refused, Err(Error::DuplicateKey(_))), "{refused:?}");
        gate.open();
        building.join().unwrap().unwrap();
        let short = TransactionOptions { lock_timeout: Some(Duration::from_millis(20)), ..Default::default() };
        let mut other = db.begin_with(short).unwrap();
        let waited = other.delete_row(&t, &[Value::U64(7)]);
        assert!(matches!(waited, Err(Error::LockTimeout { .. })), "{waited:?}");
        told.commit().unwrap();
        assert!(other.delete_row(&t, &[Value::U64(7)]).unwrap());
        other.commit().unwrap();
        agrees(&db, &t, "by_colour");
    });
}
