//! Changes of definitions beside each other: whoever waits keeps those of its own table waiting, and nobody else. Every test
//! says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::*;
use trefoil::{ChangeOptions, ColumnType, Database, Error, IndexOptions, TableChanges, Value};
use vfs::time::Instant;

type Change = fn(&Database) -> Result<(), Error>;

const XID: &[u8] = b"order 7";
const LONG: Duration = Duration::from_secs(60);

fn within(db: &Database, ms: u64) -> Database {
    db.changing(ChangeOptions { lock_timeout: Some(Duration::from_millis(ms)), ..ChangeOptions::default() })
}

/// Every kind of change, of other tables and indexes. At once.
fn change_others(db: &Database, what: &str) {
    let began = Instant::now();
    let other = table(db, "other");
    insert(db, &other, 0..50).unwrap();
    db.create_table_indexes(&other, vec![by_colour()]).unwrap();
    db.rebuild_index(&other, "by_colour").unwrap();
    db.alter_table(&other, &TableChanges::new().add_nullable("more", ColumnType::Text, Value::Null)).unwrap();
    db.drop_table_index(&other, "by_colour").unwrap();
    db.rename_table("other", "another").unwrap();
    db.truncate_table("another").unwrap();
    db.drop_table("another").unwrap();
    db.create_index("plain", IndexOptions::default()).unwrap();
    db.drop_index("plain").unwrap();
    assert!(began.elapsed() < Duration::from_millis(500), "{what}: {:?}", began.elapsed());
}

fn writes_at_once(db: &Database, t: &trefoil::Table, id: u64) {
    let began = Instant::now();
    insert(db, t, id..id + 1).unwrap();
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
}

/// While an index of one table is built, whatever the build does then, others are changed at once. Guard: a build holds the turn
/// of its table, and the step of the catalog only for its commits.
#[test]
fn changes_of_others_do_not_wait_for_a_build() {
    for point in ["build.registered", "build.numbered", "build.read", "build.verifying", "ddl.built"] {
        simulate(move |sim| {
            let db = open(&disk());
            let t = distinct(&db);
            let gate = sim.hold(point);
            let building = build(&db, &t, unique());
            gate.wait_reached();
            let d = db.clone();
            let others = spawn("others", move || change_others(&d, point));
            sleep(1000);
            assert!(others.is_finished(), "{point}");
            gate.open();
            building.join().unwrap().unwrap();
            others.join().unwrap();
            agrees(&db, &t, "by_colour");
            sound(&db);
        });
    }
}

/// A second change of the table that an index is built on waits for the build, as long as it may. What comes of it then is what
/// comes behind a build that has ended. Guard: the turn of the table.
#[test]
fn a_second_change_of_a_table_waits_for_the_build() {
    let changes: [Change; 5] = [
        |db| db.drop_table("t"),
        |db| db.rename_table("t", "u"),
        |db| db.truncate_table("t").map(|_| ()),
        |db| db.alter_table(&db.table("t")?, &TableChanges::new().add_nullable("m", ColumnType::Text, Value::Null)),
        |db| db.drop_table_index(&db.table("t")?, "by_colour"),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        simulate(move |sim| {
            let disk = disk();
            let db = open(&disk);
            let t = made(&db);
            let gate = sim.hold("build.read");
            let building = build(&db, &t, by_colour());
            gate.wait_reached();
            let refused = change(&within(&db, 300));
            assert!(matches!(refused, Err(Error::LockTimeout { waited_ms: 300, .. })), "{n}: {refused:?}");
            let waiting = {
                let db = within(&db, 60_000);
                spawn("second", move || change(&db))
            };
            sleep(100);
            assert!(!waiting.is_finished(), "{n}");
            gate.open();
            building.join().unwrap().unwrap();
            waiting.join().unwrap().unwrap();
            sound(&db);
            let (_, names) = db.names();
            assert_eq!(names, [vec![], vec!["u"], vec!["t"], vec!["t"], vec!["t"]][n]);
            let indexes = |db: &Database| {
                let (_, names) = db.names();
                names.first().map(|name| db.table(name).unwrap().schema().indexes().len())
            };
            let left = indexes(&db);
            assert_eq!(left, [None, Some(1), Some(1), Some(1), Some(0)][n]);
            drop(t);
            let db = open(&cut(&disk, db));
            assert_eq!((indexes(&db), db.names().1), (left, names));
            sound(&db);
        });
    }
}

/// Two that empty or drop the same table, or one that finds it renamed: they find what is there by then. Guard: the name is
/// looked up again once it is their turn.
#[test]
fn who_waited_finds_the_table_that_has_the_name_then() {
    simulate(|sim| {
        let db = open(&disk());
        let t = made(&db);
        let gate = sim.hold("build.read");
        let building = build(&db, &t, by_colour());
        gate.wait_reached();
        let all: Vec<_> = ["truncate", "truncate", "drop", "drop"]
            .into_iter()
            .map(|what| {
                let db = within(&db, 60_000);
                let one = spawn(what, move || match what {
                    "truncate" => db.truncate_table("t").map(|_| ()),
                    _ => db.drop_table("t"),
                });
                sleep(10);
                one
            })
            .collect();
        gate.open();
        building.join().unwrap().unwrap();
        let outcomes: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
        let gone = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::NotFound { .. }))).count();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count() + gone, 4, "{outcomes:?}");
        assert!(gone >= 1 && db.names().1.is_empty(), "{outcomes:?}");
        sound(&db);
    });
}

/// A table that a prepared transaction has written to: who would drop, empty or alter it waits as long as he may, and neither
/// changes of other tables nor other writers wait for him. Guards: the session's timeout; the gate is closed before the step
/// is taken; it is opened again while a prepared transaction is inside.
#[test]
fn a_change_beside_a_prepared_transaction_keeps_nobody_else() {
    let changes: [Change; 4] = [
        |db| db.drop_table("t"),
        |db| db.truncate_table("t").map(|_| ()),
        |db| db.alter_table(&db.table("t")?, &TableChanges::new().add_nullable("m", ColumnType::Text, Value::Null)),
        |db| db.create_table_indexes(&db.table("t")?, vec![by_colour()]),
    ];
    for change in changes {
        simulate(move |_| {
            let db = open(&disk());
            let t = made(&db);
            let mut tx = db.begin().unwrap();
            tx.insert(&t, &row(900)).unwrap();
            tx.prepare(XID).unwrap();
            let waiting = {
                let db = within(&db, 3000);
                spawn("waiting", move || (Instant::now(), change(&db), Instant::now()))
            };
            sleep(200);
            for id in 1000..1020 {
                change_others(&db, "beside a prepared transaction");
                writes_at_once(&db, &t, id);
                sleep(50);
            }
            assert!(!waiting.is_finished());
            let (began, outcome, ended) = waiting.join().unwrap();
            assert!(matches!(outcome, Err(Error::HeldByPrepared { .. })), "{outcome:?}");
            let waited = ended - began;
            assert!(waited >= Duration::from_secs(3) && waited < Duration::from_millis(3200), "{waited:?}");
            // Decided in time, it goes on.
            let waiting = {
                let db = within(&db, 3000);
                spawn("waiting", move || change(&db))
            };
            sleep(1500);
            db.commit_prepared(XID).unwrap();
            waiting.join().unwrap().unwrap();
            sound(&db);
        });
    }
}

/// Who waits, for writers, for what is prepared, or for a build, is told to stop, and so is a build. Guard:
/// `ChangeOptions::check` in each wait and in `Progress::check`.
#[test]
fn a_change_that_is_not_wanted_any_more_ends() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Behind {
        Writer,
        Prepared,
        Build,
        Backup,
    }
    for behind in [Behind::Writer, Behind::Prepared, Behind::Build, Behind::Backup] {
        for builds in [false, true] {
            simulate(move |sim| {
                let db = open(&disk());
                let t = made(&db);
                let mut tx = Some(db.begin().unwrap());
                let (mut gate, mut other) = (None, None);
                match behind {
                    Behind::Writer => tx.as_mut().unwrap().insert(&t, &row(900)).unwrap(),
                    Behind::Prepared => {
                        tx.as_mut().unwrap().insert(&t, &row(900)).unwrap();
                        tx.take().unwrap().prepare(XID).unwrap();
                    }
                    Behind::Build => {
                        gate = Some(sim.hold("build.read"));
                        other = Some(build(&db, &t, by_colour()));
                    }
                    Behind::Backup => {
                        gate = Some(sim.hold("backup.begun"));
                        let db = db.clone();
                        other = Some(spawn("backup", move || db.checkpoint_to("/copy").map(|_| ())));
                    }
                }
                gate.iter().for_each(vfs::sim::Gate::wait_reached);
                let wanted = Arc::new(AtomicBool::new(true));
                let asked = wanted.clone();
                let goes_on = move || asked.load(Ordering::Relaxed);
                let options = ChangeOptions {
                    goes_on: Some(Arc::new(goes_on)),
                    lock_timeout: Some(LONG),
                    ..ChangeOptions::default()
                };
                let (changing, handle) = (db.changing(options), t.clone());
                let waiting = spawn("waiting", move || match builds {
                    true => changing.create_table_indexes(&handle, vec![by_colour()]),
                    false => changing.drop_table("t"),
                });
                sleep(500);
                assert!(!waiting.is_finished(), "{behind:?}");
                if (behind, builds) != (Behind::Writer, false) {
                    writes_at_once(&db, &t, 1000);
                }
                wanted.store(false, Ordering::Relaxed);
                sleep(200);
                assert!(waiting.is_finished(), "{behind:?}");
                let outcome = waiting.join().unwrap();
                assert!(matches!(outcome, Err(Error::Cancelled)), "{behind:?}: {outcome:?}");
                drop(tx);
                gate.iter().for_each(vfs::sim::Gate::open);
                other.into_iter().for_each(|other| other.join().unwrap().unwrap());
                if behind == Behind::Prepared {
                    db.rollback_prepared(XID).unwrap();
                }
                assert_eq!(t.schema().indexes().len(), usize::from(behind == Behind::Build));
                sound(&db);
                db.drop_table("t").unwrap();
            });
        }
    }
}

/// A backup in the middle of a build has the table without the index, and the build goes on behind it. Guard: what names the
/// index waits until definitions may be changed again.
#[test]
fn a_backup_in_the_middle_of_a_build() {
    for point in ["build.registered", "build.read", "build.batch", "ddl.built"] {
        simulate(move |sim| {
            let disk = disk();
            let db = open(&disk);
            let t = made(&db);
            let gate = sim.hold(point);
            let building = build(&db, &t, by_colour());
            gate.wait_reached();
            let copying = sim.hold("backup.begun");
            let backup = {
                let db = db.clone();
                spawn("backup", move || db.checkpoint_to("/copy").unwrap())
            };
            copying.wait_reached();
            insert(&db, &t, 1000..1020).unwrap();
            gate.open();
            sleep(1000);
            assert!(!building.is_finished(), "{point}");
            writes_at_once(&db, &t, 1020);
            copying.open();
            backup.join().unwrap();
            building.join().unwrap().unwrap();
            agrees(&db, &t, "by_colour");
            sound(&db);
            let copy = Database::open("/copy", options(&disk)).unwrap();
            sound(&copy);
            let t = copy.table("t").unwrap();
            assert!(t.schema().indexes().is_empty());
            copy.create_table_indexes(&t, vec![by_colour()]).unwrap();
            agrees(&copy, &t, "by_colour");
        });
    }
}
