//! Which entries of secondary indexes are fresh puts, whose deletes go with them [A15]: with the guard that a test names removed, it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;

use crate::support::collation::{NOCASE, collating};
use crate::support::sound;
use trefoil::{ALL, ColumnType, Database, IndexOptions, IndexSchema, Options, Schema, Structure, Table, Transaction};
use vfs::random::Rng;

fn lsm() -> IndexOptions {
    IndexOptions { structure: Structure::Lsm, ..IndexOptions::default() }
}

fn items(db: &Database) -> Table {
    let schema = Schema::builder().column("id", ColumnType::I64).column("k", ColumnType::I32);
    let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_k", &["k"]).with_options(lsm()));
    db.create_table("items", schema.build().unwrap()).unwrap()
}

/// Nothing happens but by what a test does.
fn quiet() -> Options {
    Options { background: false, budget_bytes: 16 << 20, ..Options::default() }
}

fn commit(db: &Database, work: impl FnOnce(&mut Transaction)) {
    let mut tx = db.begin().unwrap();
    work(&mut tx);
    tx.commit().unwrap();
}

fn entries(db: &Database, table: &Table) -> Vec<(i32, i64)> {
    let tx = db.begin().unwrap();
    let mut all = tx.scan_index(table, "by_k", ALL).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = all.next().unwrap() {
        let (trefoil::Value::I32(k), trefoil::Value::I64(id)) = (&entry[0], &entry[1]) else { panic!("{entry:?}") };
        found.push((*k, *id));
    }
    found
}

fn tombstones(db: &Database) -> u64 {
    let stats = db.stats();
    let (_, stats) = stats.indexes.iter().find(|(name, _)| name.ends_with("by_k")).unwrap();
    stats.levels.iter().map(|level| level.deleted_keys).sum()
}

/// Rows that stay, of which the runs below all else are.
fn with_rows(db: &Database) -> Table {
    let table = items(db);
    commit(db, |tx| {
        (0..1000i64).for_each(|n| tx.insert(&table, &[(2 * n).into(), (n as i32 % 50).into()]).unwrap());
    });
    db.checkpoint().unwrap();
    db.settle().unwrap();
    table
}

/// Two puts under one delete: whichever way one transaction deletes and inserts the same entry, its put stands over a live one. Guard:
/// `previous == NONE` in `WriteSet::put_fresh`.
#[test]
fn a15_a_put_over_what_the_transaction_deleted_is_not_fresh() {
    type Way = fn(&mut Transaction, &Table);
    let ways: [Way; 4] = [
        |tx, table| {
            assert!(tx.delete_row(table, &[1i64.into()]).unwrap());
            tx.insert(table, &[1i64.into(), 7.into()]).unwrap();
        },
        |tx, table| assert_eq!(tx.replace(table, &[1i64.into(), 7.into()]).unwrap(), 1),
        |tx, table| {
            assert!(tx.update(table, &[1i64.into(), 8.into()]).unwrap());
            assert!(tx.update(table, &[1i64.into(), 7.into()]).unwrap());
        },
        |tx, table| {
            assert!(tx.move_row(table, &[1i64.into()], &[3i64.into(), 7.into()]).unwrap());
            assert!(tx.move_row(table, &[3i64.into()], &[1i64.into(), 7.into()]).unwrap());
        },
    ];
    for (n, way) in ways.iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), quiet()).unwrap();
        let table = items(&db);
        commit(&db, |tx| tx.insert(&table, &[1i64.into(), 7.into()]).unwrap());
        db.checkpoint().unwrap();
        commit(&db, |tx| way(tx, &table));
        commit(&db, |tx| assert!(tx.delete_row(&table, &[1i64.into()]).unwrap()));
        db.checkpoint().unwrap();
        assert_eq!(entries(&db, &table), [], "way {n}");
        db.settle().unwrap();
        assert_eq!(entries(&db, &table), [], "way {n}");
        sound(&db);
    }
}

/// Another spelling of a text that is the same to its collation is a put over a live entry with the same key. Guard: the keys are compared in
/// `write_over`.
#[test]
fn a15_another_spelling_is_not_fresh() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), collating()).unwrap();
    let schema =
        Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text).collate("name", NOCASE);
    let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"]).with_options(lsm()));
    let table = db.create_table("people", schema.build().unwrap()).unwrap();
    for name in ["a", "A", "a"] {
        commit(&db, |tx| {
            tx.replace(&table, &[1i64.into(), name.into()]).unwrap();
        });
        db.checkpoint().unwrap();
    }
    commit(&db, |tx| assert!(tx.update(&table, &[1i64.into(), "A".into()]).unwrap()));
    commit(&db, |tx| assert!(tx.delete_row(&table, &[1i64.into()]).unwrap()));
    db.checkpoint().unwrap();
    db.settle().unwrap();
    let tx = db.begin().unwrap();
    assert!(tx.scan_index(&table, "by_name", ALL).unwrap().next().unwrap().is_none());
    drop(tx);
    sound(&db);
}

/// Rows come, change and go between others: their entries leave no tombstones. What the log brings back, a spilled or attached transaction, or one that was
/// prepared before a crash is not fresh, and leaves them. Guards: `write_new_entry`, `push_fresh` in `Transaction::changes`, `is_fresh` in `Lsm::apply`.
#[test]
fn a15_entries_that_come_and_go_leave_no_tombstones() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = Database::open(dir.path(), quiet()).unwrap();
    let mut table = with_rows(&db);
    let expected = entries(&db, &table);
    let rows = || (0..200i64).map(|n| 2 * n + 1);
    for prepared in [false, true] {
        for crash in [false, true] {
            let mut tx = db.begin().unwrap();
            rows().for_each(|n| tx.insert(&table, &[n.into(), (n as i32 % 50).into()]).unwrap());
            if prepared {
                tx.prepare(b"these").unwrap();
            } else {
                tx.commit().unwrap();
            }
            if crash {
                drop((table, db));
                db = Database::open(dir.path(), quiet()).unwrap();
                table = db.table("items").unwrap();
            }
            if prepared {
                db.commit_prepared(b"these").unwrap();
            }
            db.checkpoint().unwrap();
            let before = tombstones(&db);
            commit(&db, |tx| {
                rows().for_each(|n| assert!(tx.update(&table, &[n.into(), (50 + n as i32 % 50).into()]).unwrap()));
            });
            commit(&db, |tx| rows().for_each(|n| assert!(tx.delete_row(&table, &[n.into()]).unwrap())));
            db.checkpoint().unwrap();
            let flushed = tombstones(&db) - before;
            // The entries of the update came and went in memory; those of the insert lie in a run. What was prepared may be attached, and while it is,
            // nothing newer is known to have nothing older beside it.
            let most = if prepared { 400 } else { 200 };
            assert!((200..=most).contains(&flushed), "{flushed}, prepared: {prepared}, crash: {crash}");
            assert_eq!(entries(&db, &table), expected);
            db.settle().unwrap();
            assert_eq!(entries(&db, &table), expected);
            sound(&db);
        }
    }
}

/// Random work of a table against a map, with checkpoints, merges, old snapshots, savepoints, reopenings without a close: the index has what the rows say.
#[test]
fn a15_random_tables() {
    for seed in 0..12 {
        let (dir, mut rng) = (tempfile::tempdir().unwrap(), Rng::new(seed));
        let mut db = Database::open(dir.path(), quiet()).unwrap();
        let mut table = items(&db);
        let (mut rows, mut snapshots) = (BTreeMap::<i64, i32>::new(), Vec::new());
        for step in 0..250 {
            let mut tx = db.begin().unwrap();
            let mut inside = rows.clone();
            for _ in 0..1 + rng.index(4) {
                let (id, k) = (rng.below(12) as i64, rng.below(3) as i32);
                let (savepoint, was) = (tx.savepoint(), inside.clone());
                match rng.index(4) {
                    0 => {
                        tx.replace(&table, &[id.into(), k.into()]).unwrap();
                        inside.insert(id, k);
                    }
                    1 => {
                        let there = tx.update(&table, &[id.into(), k.into()]).unwrap();
                        assert_eq!(there, inside.contains_key(&id));
                        inside.entry(id).and_modify(|old| *old = k);
                    }
                    _ => assert_eq!(tx.delete_row(&table, &[id.into()]).unwrap(), inside.remove(&id).is_some()),
                }
                if rng.chance(0.2) {
                    tx.rollback_to(savepoint).unwrap();
                    inside = was;
                }
            }
            tx.commit().unwrap();
            rows = inside;
            match rng.index(12) {
                0..4 => db.checkpoint().unwrap(),
                4 => db.settle().unwrap(),
                5 => snapshots.push(db.snapshot().unwrap()),
                6 => drop(snapshots.pop()),
                7 if step % 3 == 0 => {
                    snapshots.clear();
                    drop((table, db));
                    db = Database::open(dir.path(), quiet()).unwrap();
                    table = db.table("items").unwrap();
                }
                _ => {}
            }
            let mut expected: Vec<_> = rows.iter().map(|(id, k)| (*k, *id)).collect();
            expected.sort_unstable();
            assert_eq!(entries(&db, &table), expected, "seed {seed}, step {step}");
        }
        sound(&db);
    }
}

/// A commit of many rows that was prepared, as with a server's log of changes all are, goes where any other goes: its entries come and go without a trace.
/// Guard: what waits is counted by what is held for it (`Reserved::held_bytes`), not by a leaf for each key.
#[test]
fn a15_many_rows_prepared_at_once_are_fresh() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), quiet()).unwrap();
    let table = with_rows(&db);
    let expected = entries(&db, &table);
    let before = tombstones(&db);
    let rows = || (0..1500i64).map(|n| 2 * n + 1);
    let mut tx = db.begin().unwrap();
    rows().for_each(|n| tx.insert(&table, &[n.into(), (n as i32 % 50).into()]).unwrap());
    tx.prepare(b"these").unwrap();
    db.commit_prepared(b"these").unwrap();
    let runs = |name: &str| db.stats().indexes.iter().find(|(other, _)| other.ends_with(name)).unwrap().1.runs;
    assert_eq!((runs("primary"), runs("by_k")), (0, 0), "nothing is attached");
    db.checkpoint().unwrap();
    commit(&db, |tx| rows().for_each(|n| assert!(tx.delete_row(&table, &[n.into()]).unwrap())));
    db.checkpoint().unwrap();
    db.settle().unwrap();
    assert_eq!((entries(&db, &table), tombstones(&db)), (expected, before));
    sound(&db);
}

/// One transaction deletes rows and inserts them again with the same columns, part of it in files, or all of it attached: its puts stand over live entries.
/// Guard: what is attached is not fresh (`Input::with_value`).
#[test]
fn a15_a_put_of_a_spilled_or_attached_transaction_is_not_fresh() {
    let filler = vec![7u8; 2000];
    // Behind the deletes; behind the puts, too; nothing, but too much for the record.
    for way in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let options =
            Options { budget_bytes: 2 << 20, inline_batch_bytes: if way == 2 { 1 } else { 1 << 20 }, ..quiet() };
        let db = Database::open(dir.path(), options).unwrap();
        let table = items(&db);
        let plain = db.create_index("plain", IndexOptions::default()).unwrap();
        commit(&db, |tx| (0..300i64).for_each(|n| tx.insert(&table, &[n.into(), 7.into()]).unwrap()));
        db.checkpoint().unwrap();
        let mut tx = db.begin().unwrap();
        let fill = |tx: &mut Transaction, from: u32| {
            (from..from + 400).for_each(|n| tx.put(&plain, &n.to_be_bytes(), &filler).unwrap());
        };
        (0..300i64).for_each(|n| assert!(tx.delete_row(&table, &[n.into()]).unwrap()));
        if way < 2 {
            fill(&mut tx, 0);
        }
        (0..300i64).for_each(|n| tx.insert(&table, &[n.into(), 7.into()]).unwrap());
        if way == 1 {
            fill(&mut tx, 400);
        }
        assert_eq!(db.stats().spills > 0, way < 2, "the way that is meant");
        tx.commit().unwrap();
        sound(&db);
        db.settle().unwrap();
        sound(&db);
        commit(&db, |tx| (0..300i64).for_each(|n| assert!(tx.delete_row(&table, &[n.into()]).unwrap())));
        db.checkpoint().unwrap();
        db.settle().unwrap();
        assert_eq!(entries(&db, &table), [], "way {way}");
        sound(&db);
    }
}
