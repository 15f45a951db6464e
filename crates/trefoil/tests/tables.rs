//! Tables renamed, and emptied as a whole.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::support::*;
use trefoil::{ALL, ColumnType, Database, Error, IndexSchema, OwnedValue, Schema, Table, TableChanges, Value};
use vfs::sim::SimDisk;

fn people(db: &Database, name: &str) -> Table {
    let schema = Schema::builder().column("id", ColumnType::U32).column("name", ColumnType::Text).primary_key(&["id"]);
    let by_name = IndexSchema::new("by_name", &["name"]).unique().with_options(small_nodes());
    db.create_table(name, schema.primary_options(small_nodes()).index(by_name).build().unwrap()).unwrap()
}

fn insert(db: &Database, table: &Table, id: u32, name: &'static str) {
    let mut tx = db.begin().unwrap();
    tx.insert(table, &[id.into(), name.into()]).unwrap();
    tx.commit().unwrap();
}

fn ids(db: &Database, table: &Table) -> Vec<OwnedValue> {
    let tx = db.begin().unwrap();
    let (mut rows, mut all) = (tx.scan(table, ALL).unwrap(), Vec::new());
    while let Some(row) = rows.next().unwrap() {
        all.push(row[0].clone().into_owned());
    }
    let mut entries = tx.scan_index(table, "by_name", ALL).unwrap();
    let count = std::iter::from_fn(|| entries.next().unwrap().map(drop)).count();
    assert_eq!(count, all.len(), "rows and entries");
    all
}

fn tables(db: &Database) -> Vec<String> {
    db.names().1
}

fn sound(db: &Database) {
    assert!(db.verify().unwrap().iter().all(|(_, report)| report.problems.is_empty()));
}

// ---- renamed ----------------------------------------------------------------------------------------------------

#[test]
fn a_renamed_table_is_the_same_table() {
    let disk = disk();
    let db = open(&disk);
    let table = people(&db, "people");
    insert(&db, &table, 1, "Ada");
    let (was, snapshot) = (table.name(), db.snapshot().unwrap());
    let mut writer = db.begin().unwrap();
    writer.insert(&table, &[2u32.into(), "Grace".into()]).unwrap();
    // Nobody is waited for, and what is under way goes on.
    db.rename_table("people", "users").unwrap();
    writer.insert(&table, &[3u32.into(), "Edith".into()]).unwrap();
    writer.commit().unwrap();
    assert_eq!((was, table.name(), tables(&db)), ("people", "users", vec!["users".to_owned()]));
    assert!(snapshot.get_row(&table, &[1u32.into()]).unwrap().is_some());
    assert!(matches!(db.table("people"), Err(Error::NotFound { .. })));
    // Another one may have the name now, and errors say the new one.
    let other = people(&db, "people");
    insert(&db, &other, 9, "Nobody");
    let again = db.begin().unwrap().insert(&table, &[1u32.into(), "x".into()]).unwrap_err();
    assert!(matches!(&again, Error::DuplicateKey(taken) if taken.table == "users"), "{again}");
    for (from, to, refused) in [
        ("people", "users", "AlreadyExists"),
        ("nobody", "x", "NotFound"),
        ("users", "", "InvalidArgument"),
        ("users", &*"x".repeat(641), "Limit"),
    ] {
        let error = db.rename_table(from, to).unwrap_err();
        assert!(format!("{error:?}").starts_with(refused), "{error:?}");
    }
    db.rename_table("users", "users").unwrap();
    // What changes the definition later says the new name too.
    db.alter_table(&table, &TableChanges::new().add_column("age", ColumnType::U32, 7u32.into())).unwrap();
    let db = open(&cut(&disk, db));
    assert_eq!(tables(&db), ["people", "users"]);
    assert_eq!(ids(&db, &db.table("users").unwrap()), [1u32.into(), 2u32.into(), 3u32.into()]);
    assert_eq!(ids(&db, &db.table("people").unwrap()), [9u32.into()]);
    sound(&db);
}

#[test]
fn a_prepared_transaction_does_not_mind_the_name() {
    let disk = disk();
    let db = open(&disk);
    let table = people(&db, "people");
    let mut tx = db.begin().unwrap();
    tx.insert(&table, &[1u32.into(), "Ada".into()]).unwrap();
    tx.prepare(b"x").unwrap();
    db.rename_table("people", "users").unwrap();
    assert!(matches!(db.truncate_table("users"), Err(Error::HeldByPrepared { .. })));
    drop(table);
    let db = open(&cut(&disk, db));
    assert!(matches!(db.truncate_table("users"), Err(Error::HeldByPrepared { .. })));
    db.commit_prepared(b"x").unwrap();
    assert_eq!(ids(&db, &db.table("users").unwrap()), [1u32.into()]);
}

// ---- emptied ----------------------------------------------------------------------------------------------------

#[test]
fn an_emptied_table_has_its_definition_and_no_rows() {
    let disk = disk();
    let db = open(&disk);
    let table = people(&db, "people");
    insert(&db, &table, 1, "Ada");
    db.alter_table(&table, &TableChanges::new().add_column("age", ColumnType::U32, 7u32.into())).unwrap();
    let new = db.truncate_table("people").unwrap();
    assert_eq!(new.schema().columns(), table.schema().columns());
    assert!(ids(&db, &new).is_empty());
    // Handles from before say so, to readers and writers.
    let mut tx = db.begin().unwrap();
    assert!(matches!(tx.insert(&table, &[2u32.into(), "x".into(), 1u32.into()]), Err(Error::Dropped { .. })));
    assert!(matches!(tx.get_row(&table, &[1u32.into()]), Err(Error::Dropped { .. })));
    let ada = [1u32.into(), "Ada".into(), 36u32.into()];
    tx.insert(&new, &ada).unwrap();
    tx.commit().unwrap();
    let twice = db.begin().unwrap().insert(&new, &[2u32.into(), "Ada".into(), 1u32.into()]);
    assert!(matches!(twice, Err(Error::DuplicateKey(_))), "its index is unique as before");
    drop((table, new));
    let db = open(&cut(&disk, db));
    assert_eq!(ids(&db, &db.table("people").unwrap()), [1u32.into()]);
    assert!(matches!(db.truncate_table("nobody"), Err(Error::NotFound { .. })));
    sound(&db);
}

/// What was copied, or made, later than a snapshot is not found empty by it. Guard: the moment goes to all indexes.
#[test]
fn a_table_is_hidden_from_older_snapshots() {
    let disk = disk();
    let db = open(&disk);
    let before = db.snapshot().unwrap();
    let table = people(&db, "people");
    insert(&db, &table, 1, "Ada");
    assert!(before.get_row(&table, &[1u32.into()]).unwrap().is_none());
    db.hide_from_older_snapshots(&table).unwrap();
    let row = before.get_row(&table, &[1u32.into()]);
    assert!(matches!(row, Err(Error::DefinitionChanged { .. })), "{row:?}");
    let entries = before.scan_index(&table, "by_name", ALL).map(|_| true);
    assert!(matches!(entries, Err(Error::DefinitionChanged { .. })), "{entries:?}");
    let (now, tx) = (db.snapshot().unwrap(), db.begin().unwrap());
    assert!(now.get_row(&table, &[1u32.into()]).unwrap().is_some());
    assert!(tx.get_row(&table, &[1u32.into()]).unwrap().is_some());
    drop(db.truncate_table("people").unwrap());
    assert!(matches!(db.hide_from_older_snapshots(&table), Err(Error::Dropped { .. })));
}

/// Who sees the rows of before does not see a table that was always empty. Guard: the new indexes know of their beginning.
#[test]
fn a_snapshot_from_before_does_not_find_the_table_empty() {
    let disk = disk();
    let db = open(&disk);
    let table = people(&db, "people");
    insert(&db, &table, 1, "Ada");
    let (snapshot, tx) = (db.snapshot().unwrap(), db.begin().unwrap());
    assert!(tx.get_row(&table, &[1u32.into()]).unwrap().is_some());
    let new = db.truncate_table("people").unwrap();
    let changed =
        |refused: Result<bool, Error>| assert!(matches!(refused, Err(Error::DefinitionChanged { .. })), "{refused:?}");
    changed(snapshot.get_row(&new, &[1u32.into()]).map(|row| row.is_some()));
    changed(snapshot.scan(&new, ALL).map(|_| true));
    changed(snapshot.scan_index(&new, "by_name", ALL).map(|_| true));
    changed(tx.get_row(&new, &[1u32.into()]).map(|row| row.is_some()));
    changed(tx.scan_index(&new, "by_name", ALL).map(|_| true));
    assert!(ids(&db, &new).is_empty());
}

#[test]
fn writers_are_waited_for_and_space_comes_back() {
    let disk = disk();
    let db = open(&disk);
    let table = people(&db, "people");
    for some in (0..4000u32).collect::<Vec<_>>().chunks(500) {
        let mut tx = db.begin().unwrap();
        let rows: Vec<[Value<'_>; 2]> = some.iter().map(|&n| [n.into(), format!("name {n:08}").into()]).collect();
        tx.insert_many(&table, &rows).unwrap();
        tx.commit().unwrap();
    }
    db.settle().unwrap();
    let before = db.stats().space.live_bytes;
    let mut writer = db.begin().unwrap();
    assert!(writer.delete_row(&table, &[7u32.into()]).unwrap());
    assert!(matches!(db.truncate_table("people"), Err(Error::LockTimeout { .. })));
    writer.rollback();
    assert_eq!(ids(&db, &table).len(), 4000, "as it was");
    drop((table, db.truncate_table("people").unwrap()));
    db.settle().unwrap();
    db.checkpoint().unwrap();
    db.settle().unwrap();
    let after = db.stats().space.live_bytes;
    assert!(after < before / 4, "{before} bytes before, {after} after");
    sound(&db);
}

/// A table has the one name or the other, and its rows or none, as the call said.
#[test]
fn a_new_name_or_an_empty_table_is_all_or_none_whatever_operation_fails() {
    let prepare = |disk: &SimDisk| {
        let db = open(disk);
        insert(&db, &people(&db, "people"), 1, "Ada");
        db.close().unwrap();
    };
    let seen = RefCell::new(BTreeSet::new());
    each_fails_once(
        prepare,
        |disk| {
            let Ok(db) = Database::open("/db", options(disk)) else { return false };
            db.rename_table("people", "users").is_ok() && db.truncate_table("users").is_ok()
        },
        |disk, told| {
            let db = open(disk);
            let name = tables(&db).remove(0);
            let rows = ids(&db, &db.table(&name).unwrap()).len();
            assert_eq!((tables(&db).len(), db.stats().quarantined.len()), (1, 0));
            assert!(name == "users" || rows == 1, "emptied under its old name");
            assert!(!told || (name == "users" && rows == 0), "it was told to be done: {name}, {rows} rows");
            seen.borrow_mut().insert((name, rows));
            sound(&db);
        },
    );
    let all = [("people", 1), ("users", 0), ("users", 1)].map(|(name, rows)| (name.to_owned(), rows));
    assert_eq!(*seen.borrow(), BTreeSet::from(all), "each was met");
}
