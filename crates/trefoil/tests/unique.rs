//! Unique secondary indexes (rule A24), and what is made of their conflicts. Every test says which guard it stands for: with
//! that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;
use std::time::Duration;

use crate::support::*;
use trefoil::{
    ALL, ColumnType, Database, Duplicate, Error, IndexOptions, IndexSchema, LockMode, Options, OwnedValue, Schema,
    Table, Transaction, TransactionOptions, Upserted, Value,
};
use vfs::sim::{Config, Simulation};

/// Rows (id, a, b), unique in `a` and in `b`, which may be NULL.
fn schema(options: IndexOptions) -> Schema {
    let columns = Schema::builder().column("id", ColumnType::U64).nullable("a", ColumnType::I64);
    let columns = columns.nullable("b", ColumnType::Text).primary_key(&["id"]).primary_options(options);
    let indexes = [one_a(), IndexSchema::new("by_b", &["b"]), IndexSchema::new("one_b", &["b"]).unique()];
    indexes.into_iter().fold(columns, |schema, i| schema.index(i.with_options(options))).build().unwrap()
}

fn one_a() -> IndexSchema {
    IndexSchema::new("one_a", &["a"]).unique().with_options(small_nodes())
}

fn made(db: &Database) -> Table {
    made_of(db, small_nodes())
}

fn made_of(db: &Database, options: IndexOptions) -> Table {
    db.create_table("t", schema(options)).unwrap()
}

type Row = [Value<'static>; 3];

fn row(id: u64, a: impl Into<Option<i64>>, b: impl Into<Option<&'static str>>) -> Row {
    [id.into(), a.into().into(), b.into().into()]
}

fn put_rows(db: &Database, t: &Table, rows: &[Row]) {
    let mut tx = db.begin().unwrap();
    tx.insert_many(t, rows).unwrap();
    tx.commit().unwrap();
}

fn id(id: u64) -> [OwnedValue; 1] {
    [id.into()]
}

fn taken<T: std::fmt::Debug>(result: Result<T, Error>) -> Duplicate {
    match result {
        Err(Error::DuplicateKey(duplicate)) => *duplicate,
        other => panic!("{other:?}"),
    }
}

/// Which index refuses, and whose row is in the way.
fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> (String, u64) {
    let duplicate = taken(result);
    let [Value::U64(row)] = duplicate.row[..] else { panic!("{duplicate}") };
    (duplicate.index, row)
}

fn by(index: &str, row: u64) -> (String, u64) {
    (index.to_owned(), row)
}

fn rows(tx: &Transaction, t: &Table) -> Vec<Vec<OwnedValue>> {
    let (mut found, mut all) = (Vec::new(), tx.scan(t, ALL).unwrap());
    while let Some(row) = all.next().unwrap() {
        found.push(row.into_iter().map(Value::into_owned).collect());
    }
    found
}

fn ids(db: &Database, t: &Table) -> Vec<u64> {
    let number = |row: &Vec<OwnedValue>| if let Value::U64(id) = row[0] { id } else { panic!("{row:?}") };
    rows(&db.begin().unwrap(), t).iter().map(number).collect()
}

fn impatient(db: &Database) -> Transaction {
    let options = TransactionOptions { lock_timeout: Some(Duration::from_millis(20)), ..Default::default() };
    db.begin_with(options).unwrap()
}

/// A value is had once, whichever statement would give it a second time; the first index in order says so, with the values
/// and the row that is in the way; the statement is taken back, the transaction goes on. Guard: `claim` in `insert_rows`
/// and in `write_over`.
#[test]
fn a24_a_value_is_had_once() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let t = made(&db);
        put_rows(&db, &t, &[row(1, 10, "x"), row(2, 20, "y")]);
        let mut tx = db.begin().unwrap();
        tx.insert(&t, &row(3, 30, "z")).unwrap();
        let error = tx.insert(&t, &row(4, 20, "w")).unwrap_err();
        assert_eq!(error.to_string(), "duplicate key (20) in t.one_a: row (2) has it");
        assert!(!error.is_retryable());
        let duplicate = taken(tx.insert(&t, &row(4, 40, "y")));
        assert_eq!((duplicate.table.as_str(), duplicate.index.as_str()), ("t", "one_b"));
        assert_eq!((duplicate.key, duplicate.row), (vec!["y".into()], id(2).to_vec()));
        assert_eq!(refused(tx.insert(&t, &row(1, 20, "y"))), by("primary", 1), "the primary key comes first");
        assert_eq!(refused(tx.insert(&t, &row(4, 20, "x"))), by("one_a", 2), "then the indexes in order");
        let many = [row(7, 70, "g"), row(5, 50, "e"), row(6, 50, "f")];
        assert_eq!(refused(tx.insert_many(&t, &many)), by("one_a", 5), "two rows of one statement");
        assert_eq!(refused(tx.insert_many(&t, &[row(5, 50, "e"), row(6, 30, "f")])), by("one_a", 3), "its own row");
        assert_eq!(refused(tx.update(&t, &row(1, 20, "x"))), by("one_a", 2));
        assert_eq!(refused(tx.update(&t, &row(3, 31, "x"))), by("one_b", 1));
        let change = |row: &mut [Value<'_>]| row[1] = 10i64.into();
        assert_eq!(refused(tx.update_with(&t, &id(2), change)), by("one_a", 1));
        assert!(tx.update(&t, &row(1, 11, "x")).unwrap(), "it keeps one value and takes a free one");
        assert!(tx.update(&t, &row(2, 10, "y")).unwrap(), "which freed the other");
        tx.commit().unwrap();
        assert_eq!(ids(&db, &t), [1, 2, 3]);
        sound(&db);
        let db = open(&cut(&disk, db));
        let t = db.table("t").unwrap();
        assert!(t.schema().indexes()[0].is_unique() && !t.schema().indexes()[1].is_unique());
        assert_eq!(refused(db.begin().unwrap().insert(&t, &row(9, 11, "q"))), by("one_a", 1), "after recovery");
        sound(&db);
    });
}

/// A value with a NULL in it is nobody's. Guard: `unique_value` looks for NULL.
#[test]
fn a24_nulls_are_distinct() {
    simulate(|_| {
        let db = open(&disk());
        let t = made(&db);
        put_rows(&db, &t, &[row(1, None, "a"), row(2, None, None), row(3, 1, None), row(4, None, None)]);
        let mut tx = db.begin().unwrap();
        assert!(tx.update(&t, &row(3, None, None)).unwrap());
        assert_eq!(tx.replace(&t, &row(5, None, None)).unwrap(), 0);
        assert!(tx.insert(&t, &row(6, 1, None)).is_ok(), "NULL gave it free");
        // Others are not kept waiting.
        impatient(&db).insert(&t, &row(7, None, None)).unwrap();
        tx.commit().unwrap();
        let two = IndexSchema::new("two", &["a", "b"]).unique().with_options(small_nodes());
        db.create_table_indexes(&t, vec![two]).unwrap();
        let mut tx = db.begin().unwrap();
        tx.insert(&t, &row(8, None, "b")).unwrap();
        assert!(tx.insert(&t, &row(9, None, "a")).is_err(), "one_b alone has no NULL");
        sound(&db);
    });
}

/// Deletes of the same transaction count as done. Guard: `holder` reads with the own writes on top.
#[test]
fn a24_what_the_transaction_deleted_is_free() {
    simulate(|_| {
        let db = open(&disk());
        let t = made(&db);
        put_rows(&db, &t, &[row(1, 10, "x"), row(2, 20, "y")]);
        let mut tx = db.begin().unwrap();
        assert!(tx.delete_row(&t, &id(1)).unwrap());
        tx.insert(&t, &row(3, 10, "x")).unwrap();
        assert_eq!(refused(tx.insert(&t, &row(4, 10, "w"))), by("one_a", 3));
        let before = tx.savepoint();
        assert_eq!(tx.delete_first(&t, ALL, 9).unwrap(), 2);
        tx.insert(&t, &row(5, 20, "x")).unwrap();
        tx.rollback_to(before).unwrap();
        assert_eq!(refused(tx.insert(&t, &row(5, 20, "w"))), by("one_a", 2), "taken back");
        tx.commit().unwrap();
        assert_eq!(ids(&db, &t), [2, 3]);
        sound(&db);
    });
}

/// A run that is attached and not drained yet counts. Guard: `holder` asks the index, not the leaves alone [A3].
#[test]
fn a24_attached_runs_count() {
    simulate(|_| {
        let disk = disk();
        let options = Options { background: false, inline_batch_bytes: 300, ..options(&disk) };
        let db = Database::open("/db", options).unwrap();
        let t = made(&db);
        let many: Vec<Row> = (0..200).map(|n| row(n, n as i64, None)).collect();
        put_rows(&db, &t, &many);
        assert!(db.stats().indexes.iter().any(|(name, stats)| name == "t.one_a" && stats.runs > 0));
        assert_eq!(refused(db.begin().unwrap().insert(&t, &row(900, 150, None))), by("one_a", 150));
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.delete_first(&t, ALL, 150).unwrap(), 150);
        tx.commit().unwrap();
        let mut tx = db.begin().unwrap();
        tx.insert(&t, &row(900, 149, None)).unwrap();
        assert_eq!(refused(tx.insert(&t, &row(901, 150, None))), by("one_a", 150));
        tx.commit().unwrap();
        sound(&db);
    });
}

/// Whoever takes a value from its row locks it, so that others wait for the outcome instead of calling it a duplicate or free.
/// Guard: `claim` of what goes: in `delete_keys`, and in `write_over`.
#[test]
fn a24_a_value_that_goes_is_waited_for() {
    type Way = fn(&mut Transaction, &Table);
    let ways: [Way; 4] = [
        |tx, t| assert!(tx.delete_row(t, &id(1)).unwrap()),
        |tx, t| assert!(tx.update(t, &row(1, 11, "x")).unwrap()),
        |tx, t| assert_eq!(tx.replace(t, &row(1, None, None)).unwrap(), 1),
        |tx, t| assert_eq!(tx.delete_first(t, ALL, 1).unwrap(), 1),
    ];
    for way in ways {
        for commits in [true, false] {
            simulate(move |_| {
                let db = open(&disk());
                let t = made(&db);
                put_rows(&db, &t, &[row(1, 10, "x")]);
                let mut first = db.begin().unwrap();
                way(&mut first, &t);
                let (d, handle) = (db.clone(), t.clone());
                let second = spawn("second", move || {
                    let mut tx = d.begin().unwrap();
                    tx.insert(&handle, &row(2, 10, "y")).map(|()| tx.commit().unwrap())
                });
                sleep(50);
                let waits = db.lock_waits();
                assert_eq!((waits.len(), waits[0].index.as_str()), (1, "t.one_a"), "{waits:?}");
                assert_eq!(waits[0].key, [&[1, 0x80][..], &[0; 6], &[10]].concat(), "the value, without a primary key");
                if commits {
                    first.commit().unwrap();
                    second.join().unwrap().unwrap();
                } else {
                    first.rollback();
                    assert_eq!(refused(second.join().unwrap()), by("one_a", 1));
                }
                sound(&db);
            });
        }
    }
}

/// Two transactions that want each other's value are a deadlock like any other; who waits too long is told.
#[test]
fn a24_waits_for_values_end() {
    simulate(|_| {
        let db = open(&disk());
        let t = made(&db);
        let mut first = db.begin().unwrap();
        first.insert(&t, &row(1, 10, None)).unwrap();
        let late = impatient(&db).insert(&t, &row(2, 10, None)).unwrap_err();
        assert!(matches!(&late, Error::LockTimeout { index, .. } if index == "one_a"), "{late}");
        let (d, handle) = (db.clone(), t.clone());
        let second = spawn("second", move || {
            let mut tx = d.begin().unwrap();
            tx.insert(&handle, &row(3, 30, None)).unwrap();
            tx.insert(&handle, &row(4, 10, None)).map(|()| tx.commit().unwrap())
        });
        sleep(50);
        let outcomes = [first.insert(&t, &row(5, 30, None)).map(|()| first.commit().unwrap()), second.join().unwrap()];
        let ended = |outcome: &Result<_, Error>| matches!(outcome, Err(Error::Deadlock { .. }));
        assert_eq!(outcomes.iter().filter(|outcome| ended(outcome)).count(), 1, "{outcomes:?}");
        assert_eq!(db.deadlocks()[0].edges[0].index, "t.one_a");
        sound(&db);
    });
}

/// Of threads that race for one value exactly one gets it, by whichever statement. Guards: the lock in `claim` comes before
/// the look, and lasts to the end.
#[test]
fn a24_of_those_who_race_for_a_value_one_wins() {
    let config = || Config { steps_max: 20_000_000, ..Config::default() }.bias("locks.", 0.3).bias("commit.", 0.3);
    for seed in 0..150 {
        Simulation::new(seed, config()).run(move |_| {
            let db = open(&disk());
            let t = made_of(&db, small_nodes_of(seed));
            put_rows(&db, &t, &(0..4).map(|n| row(n, 100 + n as i64, None)).collect::<Vec<_>>());
            let race = |n: u64| {
                let (d, handle) = (db.clone(), t.clone());
                spawn("racer", move || {
                    let mut tx = d.begin()?;
                    match n % 3 {
                        0 => tx.insert(&handle, &row(10 + n, 7, None))?,
                        1 => assert!(tx.update(&handle, &row(n, 7, None))?),
                        _ => {
                            if tx.insert_if_absent(&handle, &row(10 + n, 7, None))?.is_some() {
                                return Ok(false);
                            }
                        }
                    }
                    tx.commit().map(|_| true)
                })
            };
            let racers: Vec<_> = (0..4).map(race).collect();
            let won = racers.into_iter().map(|racer| match racer.join().unwrap() {
                Ok(won) => usize::from(won),
                Err(Error::DuplicateKey(_)) => 0,
                Err(error) => panic!("{error}"),
            });
            assert_eq!(won.sum::<usize>(), 1);
            sound(&db);
        });
    }
}

/// A value comes into a range of the index that another transaction has locked: whoever would add it waits before he locks
/// it, so the other one can add it himself. Guard: `lock_value` waits for ranges first.
#[test]
fn a24_the_owner_of_a_range_adds_a_value_into_it() {
    simulate(|_| {
        let db = open(&disk());
        let t = made(&db);
        put_rows(&db, &t, &[row(1, 10, None), row(2, 20, None)]);
        let mut first = db.begin().unwrap();
        let bounds = ([Value::I64(10)], [Value::I64(20)]);
        let range = (Bound::Included(&bounds.0[..]), Bound::Included(&bounds.1[..]));
        let mut entries = first.scan_index_locked(&t, "one_a", range, LockMode::Exclusive).unwrap();
        while entries.next().unwrap().is_some() {}
        drop(entries);
        let (d, handle) = (db.clone(), t.clone());
        let second = spawn("second", move || d.begin().unwrap().insert(&handle, &row(3, 15, None)));
        sleep(50);
        first.insert(&t, &row(4, 15, None)).unwrap();
        first.commit().unwrap();
        assert_eq!(refused(second.join().unwrap()), by("one_a", 4));
        assert!(db.deadlocks().is_empty());
    });
}

/// `INSERT IGNORE`, `REPLACE` and `INSERT … ON DUPLICATE KEY UPDATE` in one transaction. Guards: `replace` asks every index;
/// `first_conflict` begins with the primary key.
#[test]
fn conflicts_are_passed_over_replaced_or_updated() {
    simulate(|_| {
        let db = open(&disk());
        let t = made(&db);
        put_rows(&db, &t, &[row(1, 10, "x"), row(2, 20, "y"), row(3, 30, "z")]);
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.insert_if_absent(&t, &row(4, 40, "w")).unwrap(), None);
        let stays = tx.insert_if_absent(&t, &row(5, 10, "y")).unwrap().unwrap();
        assert_eq!((stays.index.as_str(), stays.key, stays.row), ("one_a", vec![10i64.into()], id(1).to_vec()));
        assert_eq!(tx.insert_if_absent(&t, &row(2, 10, "z")).unwrap().unwrap().index, "primary");
        assert_eq!(tx.replace(&t, &row(5, 10, "y")).unwrap(), 2);
        assert_eq!(tx.replace(&t, &row(3, 40, "z")).unwrap(), 2, "itself, and number 4");
        assert_eq!(tx.replace(&t, &row(3, 40, "z")).unwrap(), 1, "itself");
        assert_eq!(rows(&tx, &t), [row(3, 40, "z").to_vec(), row(5, 10, "y").to_vec()]);
        let set = |b: &'static str| move |row: &mut [Value<'_>]| row[2] = b.into();
        assert_eq!(tx.insert_or_update(&t, &row(3, 10, "q"), set("p")).unwrap(), Upserted::Updated, "number 3");
        assert_eq!(tx.insert_or_update(&t, &row(8, 10, "p"), set("v")).unwrap(), Upserted::Updated, "one_a: number 5");
        assert_eq!(tx.insert_or_update(&t, &row(8, 80, "v"), set("v")).unwrap(), Upserted::Unchanged, "number 5");
        assert_eq!(tx.insert_or_update(&t, &row(8, 80, None), set("w")).unwrap(), Upserted::Inserted);
        assert_eq!(refused(tx.insert_or_update(&t, &row(9, 80, None), set("p"))), by("one_b", 3), "not free");
        let moved = tx.insert_or_update(&t, &row(9, 80, None), |row| row[0] = 9u64.into());
        assert!(matches!(moved, Err(Error::InvalidArgument(_))), "{moved:?}");
        assert_eq!(rows(&tx, &t), [row(3, 40, "p").to_vec(), row(5, 10, "v").to_vec(), row(8, 80, None).to_vec()]);
        tx.commit().unwrap();
        sound(&db);
    });
}

/// A row on its way out is waited for: it is neither updated nor removed by those statements before it is certain. Guard:
/// `claim` in `delete_keys`.
#[test]
fn a24_what_goes_away_is_not_updated() {
    for commits in [true, false] {
        simulate(move |_| {
            let db = open(&disk());
            let t = made(&db);
            put_rows(&db, &t, &[row(1, 10, "x"), row(2, 20, "y")]);
            let mut first = db.begin().unwrap();
            assert_eq!(first.delete_first(&t, ALL, 2).unwrap(), 2);
            let run = |statement: fn(&mut Transaction, &Table) -> Result<String, Error>| {
                let (d, handle) = (db.clone(), t.clone());
                spawn("second", move || {
                    let mut tx = d.begin().unwrap();
                    let done = statement(&mut tx, &handle)?;
                    tx.commit().map(|_| done)
                })
            };
            let updated = run(|tx, t| {
                let upserted = tx.insert_or_update(t, &row(3, 10, "z"), |row| row[2] = "u".into())?;
                Ok(format!("{upserted:?}"))
            });
            let replaced = run(|tx, t| tx.replace(t, &row(4, 20, "w")).map(|n| n.to_string()));
            sleep(50);
            assert_eq!(db.lock_waits().len(), 2);
            let expected = if commits { ["Inserted", "0"] } else { ["Updated", "1"] };
            if commits {
                first.commit().map(|_| ()).unwrap()
            } else {
                first.rollback()
            }
            assert_eq!([updated, replaced].map(|thread| thread.join().unwrap().unwrap()), expected);
            assert_eq!(ids(&db, &t), if commits { [3, 4] } else { [1, 4] });
            sound(&db);
        });
    }
}

/// A unique index over rows that agree is refused by name, in memory and spilled, and nothing of it stays. Guard: `Distinct`
/// in the build.
#[test]
fn a24_a_unique_index_over_equal_rows_is_refused() {
    for rows in [300u64, 60_000] {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let t = table(&db, "t");
            for from in (0..rows).step_by(2000) {
                let some = from..(from + 2000).min(rows);
                let mut tx = db.begin().unwrap();
                let colour = |id| if id == 299 { 42 } else { id as u32 };
                let some: Vec<_> = some.map(|id| [Value::U64(id), Value::U32(colour(id))]).collect();
                tx.insert_many(&t, &some).unwrap();
                tx.commit().unwrap();
            }
            db.settle().unwrap();
            let before = db.stats().space.live_bytes;
            let unique = || by_colour().unique();
            let both = vec![IndexSchema::new("other", &["colour"]).with_options(small_nodes()), unique()];
            let duplicate = taken(db.create_table_indexes(&t, both));
            assert_eq!(duplicate.to_string(), "duplicate key (42) in t.by_colour: row (42) has it");
            assert!(t.schema().indexes().is_empty() && run_files(&disk) == 0);
            // What a worker just looks at is freed the next time.
            let is_gone = || db.stats().space.live_bytes <= before + (64 << 10);
            let settled = (0..10).any(|_| db.settle().is_ok() && is_gone());
            assert!(settled, "{before}: {:?}", db.stats().space);
            let mut tx = db.begin().unwrap();
            assert!(tx.delete_row(&t, &[Value::U64(42)]).unwrap());
            tx.commit().unwrap();
            db.create_table_indexes(&t, vec![unique()]).unwrap();
            let again = db.begin().unwrap().insert(&t, &[Value::U64(rows), Value::U32(42)]);
            assert_eq!(refused(again), by("by_colour", 299));
            sound(&db);
        });
    }
}

/// While a unique index is set aside nothing is added to it, and everything else goes on; then it is made anew. Guard:
/// `lock_value` tells what comes from what goes.
#[test]
fn a24_nothing_is_added_while_the_index_is_set_aside() {
    simulate(|_| {
        let db = open(&disk());
        let t = made(&db);
        put_rows(&db, &t, &[row(1, 10, "x"), row(2, 20, "y"), row(3, 30, "z")]);
        let mut before = db.begin().unwrap();
        before.insert(&t, &row(4, 40, "w")).unwrap();
        trefoil::fuzzing::note_damage(&db, 2);
        db.settle().unwrap();
        assert_eq!(db.stats().quarantined, ["t.one_a"]);
        before.commit().unwrap();
        let mut tx = db.begin().unwrap();
        assert!(matches!(tx.insert(&t, &row(5, 50, "v")), Err(Error::Quarantined { index }) if index == "one_a"));
        assert!(matches!(tx.update(&t, &row(1, 11, "x")), Err(Error::Quarantined { .. })));
        assert!(tx.update(&t, &row(1, 10, "u")).unwrap(), "the value stays");
        assert!(tx.update(&t, &row(2, None, "y")).unwrap(), "it goes");
        assert!(tx.delete_row(&t, &id(3)).unwrap());
        tx.insert(&t, &row(5, None, "v")).unwrap();
        tx.commit().unwrap();
        db.rebuild_index(&t, "one_a").unwrap();
        let mut tx = db.begin().unwrap();
        assert_eq!(refused(tx.insert(&t, &row(6, 40, None))), by("one_a", 4));
        tx.insert(&t, &row(6, 30, None)).unwrap();
        sound(&db);
    });
}

/// `verify` names two rows with one value. Guard: `doubled`.
#[test]
fn two_rows_with_one_value_are_damage_of_the_index() {
    simulate(|_| {
        let db = open(&disk());
        let t = made(&db);
        put_rows(&db, &t, &[row(1, 10, None), row(2, 20, None)]);
        let (schema, forged) = (t.schema().clone(), row(3, 10, None));
        let (mut key, mut bytes) = (Vec::new(), Vec::new());
        schema.primary_key_of_row(&forged, &mut key).unwrap();
        schema.row_value(&forged, &mut bytes).unwrap();
        trefoil::fuzzing::write_raw(&db, "t.primary", &key, Some(&bytes)).unwrap();
        for (n, index) in schema.indexes().iter().enumerate() {
            schema.index_key_of_row(n, &key, &forged, &mut bytes).unwrap();
            trefoil::fuzzing::write_raw(&db, &format!("t.{}", index.name()), &bytes, Some(b"")).unwrap();
        }
        let problems: Vec<_> = db.verify().unwrap().into_iter().flat_map(|(_, report)| report.problems).collect();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert_eq!((problems[0].what, problems[0].index.map(|id| id.0)), ("value of a unique index", Some(2)));
        assert_eq!(taken(db.rebuild_index(&t, "one_a")).row, id(1));
    });
}

/// Random statements of one transaction after the other, against the model.
#[test]
fn random_statements_agree_with_the_model() {
    use model::{Conflict, Secondary, Shape, Tables, Transaction as Model};
    const T: u32 = 1;
    for seed in 0..40 {
        simulate(move |_| {
            let mut rng = vfs::random::Rng::new(seed);
            let db = open(&disk());
            let t = made_of(&db, small_nodes_of(seed));
            let mut tables = Tables::with_nulls(Value::is_null);
            let unique = |column, unique| Secondary { columns: vec![column], unique };
            let secondaries = vec![unique(1, true), unique(2, false), unique(2, true)];
            tables.create(T, Shape { primary: vec![0], secondaries });
            for _ in 0..30 {
                let (mut tx, mut model) = (db.begin().unwrap(), Model::new());
                for _ in 0..1 + rng.below(8) {
                    let words = ["a", "b", "c", "d", "e", "f"];
                    let a = rng.chance(0.8).then(|| rng.below(8) as i64);
                    let b = rng.chance(0.6).then(|| words[rng.index(words.len())]);
                    let new = row(rng.below(8), a, b);
                    let conflicts = model.conflicts(&tables, T, &new);
                    let said = |duplicate: Duplicate| {
                        let conflict = match duplicate.index.as_str() {
                            "primary" => Conflict::DuplicatePrimary,
                            name => Conflict::DuplicateUnique(t.schema().index_number(name).unwrap()),
                        };
                        (conflict, duplicate.row)
                    };
                    match rng.below(6) {
                        0 => match tx.insert(&t, &new) {
                            Ok(()) => model.insert(&tables, T, new.to_vec()).unwrap(),
                            other => assert_eq!(Some(&said(taken(other))), conflicts.first()),
                        },
                        1 => match tx.insert_if_absent(&t, &new).unwrap() {
                            None => model.insert(&tables, T, new.to_vec()).unwrap(),
                            Some(duplicate) => assert_eq!(Some(&said(duplicate)), conflicts.first()),
                        },
                        2 => match (tx.update(&t, &new), model.update(&tables, T, new.to_vec())) {
                            (Ok(there), found) => assert_eq!(there, found != Err(Conflict::NotFound)),
                            (refused, found) => assert_eq!(Err(said(taken(refused)).0), found),
                        },
                        3 => {
                            let removed = tx.replace(&t, &new).unwrap();
                            assert_eq!(removed, model.replace(&tables, T, new.to_vec()));
                        }
                        4 => {
                            let change = |row: &mut [Value<'_>]| row[1] = a.map(|a| a + 1).into();
                            let outcome = tx.insert_or_update(&t, &new, change);
                            match conflicts.first() {
                                None => model.insert(&tables, T, new.to_vec()).unwrap(),
                                Some((_, key)) => {
                                    let old = tables.get(model.current(), T, key).unwrap();
                                    let mut changed = old.clone();
                                    change(&mut changed);
                                    match (outcome, model.update(&tables, T, changed.clone())) {
                                        (Ok(Upserted::Unchanged), Ok(())) => assert_eq!(old, changed),
                                        (Ok(upserted), Ok(())) => assert_eq!(upserted, Upserted::Updated),
                                        (refused, found) => assert_eq!(Err(said(taken(refused)).0), found),
                                    }
                                }
                            }
                        }
                        _ => {
                            let there = tx.delete_row(&t, &new[..1]).unwrap();
                            assert_eq!(there, model.delete(&tables, T, &new[..1]).is_ok());
                        }
                    }
                    assert_eq!(rows(&tx, &t), tables.rows(model.current(), T), "seed {seed}");
                }
                if rng.chance(0.7) {
                    tables.commit(tx.commit().unwrap(), model);
                }
            }
            sound(&db);
        });
    }
}

/// B1: an index was made anew; a large transaction has folded the locks of values there. Whoever wants one waits for its end, as long as the statement
/// may. Guard: the end that is waited for is announced under that index, not under the one whose ranges it has.
#[test]
fn b1_values_of_an_index_made_anew_are_waited_for() {
    simulate(|_| {
        let db = Database::open("/db", Options { budget_bytes: 1 << 20, ..options(&disk()) }).unwrap();
        let t = made(&db);
        put_rows(&db, &t, &[row(9_999, 9_999, None)]);
        db.rebuild_index(&t, "one_a").unwrap();
        let t = db.table("t").unwrap();
        let mut large = db.begin().unwrap();
        for n in 0..4000u64 {
            large.insert_many(&t, &[row(n, n as i64, None)]).unwrap();
        }
        let mut other = db.begin().unwrap();
        let refused = other.insert_many(&t, &[row(10_000, 5, None)]);
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
        large.rollback();
        other.insert_many(&t, &[row(10_000, 5, None)]).unwrap();
        other.commit().unwrap();
    });
}
