//! Columns added, dropped, renamed and moved: rows written with any definition are read right with each later one.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::*;
use trefoil::{ALL, ColumnType, Database, Error, IndexSchema, Locking, OwnedValue, Schema, Table, TableChanges, Value};
use vfs::random::Rng;
use vfs::sim::SimDisk;
use vfs::{OpenHow, Vfs};

type Row = Vec<OwnedValue>;

fn people(db: &Database) -> Table {
    let schema = Schema::builder().column("id", ColumnType::U32).column("name", ColumnType::Text);
    let schema = schema.column("age", ColumnType::U32).primary_key(&["id"]);
    db.create_table("people", schema.index(IndexSchema::new("by_name", &["name"])).build().unwrap()).unwrap()
}

fn insert(db: &Database, table: &Table, row: &[Value<'_>]) {
    let mut tx = db.begin().unwrap();
    tx.insert(table, row).unwrap();
    tx.commit().unwrap();
}

fn rows(db: &Database, table: &Table) -> Vec<Row> {
    let tx = db.begin().unwrap();
    let (mut rows, mut all) = (tx.scan(table, ALL).unwrap(), Vec::new());
    while let Some(row) = rows.next().unwrap() {
        all.push(row.into_iter().map(Value::into_owned).collect());
    }
    all
}

/// A table of two rows, and its disk.
fn two() -> (SimDisk, Database, Table) {
    let disk = disk();
    let db = open(&disk);
    let table = people(&db);
    insert(&db, &table, &[1u32.into(), "Ada".into(), 36u32.into()]);
    insert(&db, &table, &[2u32.into(), "Grace".into(), 85u32.into()]);
    (disk, db, table)
}

fn add_city() -> TableChanges {
    TableChanges::new().add_column("city", ColumnType::Text, "London".into()).move_after("city", "id")
}

/// A transaction that went back to where it held nothing keeps no change from being made, and finds the table as it is by then.
/// Guard: the rollback leaves the tables.
#[test]
fn who_went_back_to_nothing_finds_the_table_as_it_is() {
    let (_disk, db, table) = two();
    let mut tx = db.begin().unwrap();
    let start = tx.savepoint();
    tx.insert(&table, &[3u32.into()]).unwrap_err();
    assert!(tx.holds_nothing());
    tx.rollback_to(start).unwrap();
    db.alter_table(&table, &add_city()).unwrap();
    tx.insert(&table, &[3u32.into(), "Paris".into(), "Edith".into(), 47u32.into()]).unwrap();
    assert!(!tx.holds_nothing());
    tx.rollback_to(start).unwrap();
    assert!(!tx.holds_nothing(), "locks are kept");
    let refused = db.alter_table(&table, &TableChanges::new().drop_column("city"));
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    tx.commit().unwrap();
    assert_eq!(rows(&db, &table).len(), 2);
}

/// In one commit with the columns: all or none, and so it is found when the database is opened again.
#[test]
fn indexes_are_dropped_and_renamed_along_with_columns() {
    let (disk, db, table) = two();
    let more = vec![IndexSchema::new("by_age", &["age"]), IndexSchema::new("by_both", &["age", "name"]).unique()];
    db.create_table_indexes(&table, more).unwrap();
    let reader = db.begin().unwrap();
    assert_eq!(reader.scan_index(&table, "by_name", ALL).unwrap().next().unwrap().unwrap()[0], "Ada".into());
    let changes =
        TableChanges::new().drop_index("by_age").rename_index("by_name", "x").rename_index("by_both", "by_name");
    let refused = db.alter_table(&table, &changes.clone().drop_index("by_age")).unwrap_err();
    assert!(refused.to_string().contains("no index \"by_age\""), "{refused}");
    assert_eq!(table.schema().indexes().len(), 3);
    let changes = changes.rename_index("x", "names").rename_column("age", "years").move_first("years");
    db.alter_table(&table, &changes).unwrap();
    let first = |db: &Database, index| -> Result<Row, Error> {
        let (tx, table) = (db.begin()?, db.table("people")?);
        let mut entries = tx.scan_index(&table, index, ALL)?;
        Ok(entries.next()?.unwrap().into_iter().map(Value::into_owned).collect())
    };
    let check = |db: &Database| {
        assert_eq!(first(db, "names").unwrap(), ["Ada".into(), 1u32.into()]);
        assert_eq!(first(db, "by_name").unwrap(), [36u32.into(), "Ada".into(), 1u32.into()]);
        assert!(matches!(first(db, "by_age"), Err(Error::NotFound { .. })));
        let names = db.stats().indexes.into_iter().map(|(name, _)| name).filter(|name| name.starts_with("people"));
        assert_eq!(
            names.collect::<BTreeSet<_>>(),
            ["people.by_name", "people.names", "people.primary"].map(String::from).into()
        );
        let mut tx = db.begin().unwrap();
        let twice = tx.insert(&db.table("people").unwrap(), &[36u32.into(), 3u32.into(), "Ada".into()]).unwrap_err();
        assert!(matches!(&twice, Error::DuplicateKey(taken) if taken.index == "by_name"), "{twice}");
        assert!(db.verify().unwrap().iter().all(|(_, report)| report.problems.is_empty()));
    };
    check(&db);
    drop((reader, table));
    db.close().unwrap();
    drop(db);
    check(&open(&disk));
}

#[test]
fn what_is_in_the_primary_key_or_an_index_is_not_dropped() {
    let (_disk, db, table) = two();
    let refused = |changes: TableChanges, why: &str| {
        let before = table.schema();
        let error = db.alter_table(&table, &changes).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(table.schema(), before, "all or none");
    };
    refused(add_city().drop_column("id"), "primary key");
    refused(add_city().drop_column("name"), "\"by_name\"; drop the index first");
    refused(add_city().drop_column("nobody"), "nobody");
    refused(add_city().rename_column("age", "city"), "city");
    refused(TableChanges::new().add_column("x", ColumnType::U32, Value::Null), "NULL");
    refused(TableChanges::new().add_nullable("x", ColumnType::U32, "one".into()), "U32");
    refused(TableChanges::new().add_nullable("x", ColumnType::Text, "x".repeat(9000).into()), "8192");
    db.drop_table_index(&table, "by_name").unwrap();
    db.alter_table(&table, &TableChanges::new().drop_column("name")).unwrap();
    assert_eq!(rows(&db, &table), [[1u32, 36].map(Value::from), [2u32, 85].map(Value::from)]);
}

/// The definition is durable when the call returns, and rows of before are found again with it after a power cut.
/// A name stands for one column behind each change, not in the end alone: an index keeps its column, and a column its values.
/// Guard: `check_free`.
#[test]
fn no_two_columns_have_one_name_meanwhile() {
    let (_disk, db, table) = two();
    let before = table.schema();
    for changes in [
        TableChanges::new().rename_column("age", "name").rename_column("name", "surname"),
        TableChanges::new().rename_column("id", "name").rename_column("name", "id"),
        TableChanges::new().add_column("age", ColumnType::U32, 0u32.into()).drop_column("age"),
    ] {
        let error = db.alter_table(&table, &changes).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert_eq!(table.schema(), before, "{changes:?}");
    }
    let swapped = TableChanges::new().rename_column("age", "x").rename_column("name", "age").rename_column("x", "name");
    db.alter_table(&table, &swapped.rename_column("name", "name")).unwrap();
    assert_eq!(table.schema().indexes()[0].columns(), ["age"]);
    assert_eq!(rows(&db, &table)[0], [1u32.into(), "Ada".into(), 36u32.into()]);
    sound(&db);
}

#[test]
fn a_power_cut_behind_the_change_keeps_it() {
    let (disk, db, table) = two();
    db.checkpoint().unwrap();
    db.alter_table(&table, &add_city().rename_column("name", "first").drop_column("age")).unwrap();
    insert(&db, &table, &[3u32.into(), "Zurich".into(), "Edith".into()]);
    let db = open(&cut(&disk, db));
    let table = db.table("people").unwrap();
    let expected = [(1u32, "London", "Ada"), (2, "London", "Grace"), (3, "Zurich", "Edith")];
    let expected = expected.map(|(id, city, first)| vec![id.into(), city.into(), first.into()]);
    assert_eq!(rows(&db, &table), expected);
    assert_eq!(table.schema().indexes()[0].columns(), ["first"]);
    sound(&db);
}

/// An update that changes nothing writes nothing, in whatever version the row is; another one writes the newest.
#[test]
fn a_row_that_stays_as_it_is_is_not_rewritten() {
    let (_disk, db, table) = two();
    db.alter_table(&table, &add_city()).unwrap();
    let written = |city: &str| {
        let before = table_writes(&db);
        let mut tx = db.begin().unwrap();
        assert!(tx.update(&table, &[1u32.into(), city.to_owned().into(), "Ada".into(), 36u32.into()]).unwrap());
        tx.commit().unwrap();
        table_writes(&db) - before
    };
    assert_eq!(written("London"), 0, "the value that it has from the change");
    assert_ne!(written("Paris"), 0);
    assert_eq!(written("Paris"), 0);
}

/// Bytes of the log.
fn table_writes(db: &Database) -> u64 {
    db.stats().log.appended_bytes
}

/// Who has written to the table keeps its definition until the end.
#[test]
fn writers_and_prepared_transactions_are_waited_for() {
    let (_disk, db, table) = two();
    let mut tx = db.begin().unwrap();
    tx.insert(&table, &[3u32.into(), "Edith".into(), 1u32.into()]).unwrap();
    assert!(matches!(db.alter_table(&table, &add_city()), Err(Error::LockTimeout { .. })));
    tx.insert(&table, &[4u32.into(), "Alan".into(), 41u32.into()]).unwrap();
    tx.prepare(b"x").unwrap();
    assert!(matches!(db.alter_table(&table, &add_city()), Err(Error::HeldByPrepared { .. })));
    db.commit_prepared(b"x").unwrap();
    db.alter_table(&table, &add_city()).unwrap();
    assert_eq!(rows(&db, &table).len(), 4);
}

/// A snapshot from before is read with the definition of its reading; a cursor keeps the one of its opening.
#[test]
fn snapshots_and_cursors_from_before_are_read_right() {
    let (_disk, db, table) = two();
    let (snapshot, tx) = (db.snapshot().unwrap(), db.begin().unwrap());
    let mut cursor = tx.scan(&table, ALL).unwrap();
    assert_eq!(cursor.next().unwrap().unwrap().len(), 3);
    db.alter_table(&table, &add_city().drop_column("age")).unwrap();
    let mut writer = db.begin().unwrap();
    writer.update(&table, &[2u32.into(), "Arlington".into(), "Grace".into()]).unwrap();
    writer.commit().unwrap();
    assert_eq!(cursor.next().unwrap().unwrap(), [2u32.into(), "Grace".into(), 85u32.into()]);
    assert_eq!(
        snapshot.get_row(&table, &[2u32.into()]).unwrap().unwrap(),
        [2u32.into(), "London".into(), "Grace".into()],
        "the row of then, the columns of now"
    );
}

/// A row of a version that came behind a cursor's definition is never taken for another one.
#[test]
fn a_cursor_over_the_newest_rows_says_that_the_definition_changed() {
    let (_disk, db, table) = two();
    let tx = db.begin().unwrap();
    let mut cursor = tx.scan_locked(&table, ALL, Locking::EXCLUSIVE.skip_locked()).unwrap();
    assert!(cursor.next().unwrap().is_some());
    db.alter_table(&table, &TableChanges::new().move_after("name", "age")).unwrap();
    let mut writer = db.begin().unwrap();
    writer.update(&table, &[2u32.into(), 86u32.into(), "Grace".into()]).unwrap();
    writer.commit().unwrap();
    let error = loop {
        match cursor.next() {
            Ok(Some(row)) => assert_eq!(row[1], "Grace".into(), "{row:?}"),
            Ok(None) => panic!("a row is missing"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::DefinitionChanged { .. }) && error.is_retryable(), "{error}");
}

#[test]
fn versions_are_limited_and_a_new_table_begins_anew() {
    let (_disk, db, table) = two();
    let add = || TableChanges::new().add_nullable("x", ColumnType::Bool, true.into());
    let error = (0..1000).find_map(|n| {
        let changes = if n % 2 == 0 { add() } else { TableChanges::new().drop_column("x") };
        db.alter_table(&table, &changes).err().map(|error| (n, error))
    });
    let (n, error) = error.unwrap();
    assert_eq!(n, 239, "{error}");
    assert!(error.to_string().contains("copy the rows into a new table"), "{error}");
    // What needs no version goes on.
    db.alter_table(&table, &TableChanges::new().move_after("name", "age")).unwrap_err();
    db.alter_table(&table, &TableChanges::new().rename_column("age", "years").move_after("id", "name")).unwrap();
    assert_eq!(rows(&db, &table)[0], ["Ada".into(), 1u32.into(), 36u32.into(), true.into()]);
    let copy = db.create_table("copy", table.schema()).unwrap();
    db.alter_table(&copy, &TableChanges::new().drop_column("x")).unwrap();
}

// ---- against a model --------------------------------------------------------------------------------------------

/// What the model knows of a column: its number in the rows of the model.
#[derive(Clone)]
struct Known {
    id: u32,
    name: String,
    column_type: ColumnType,
    nullable: bool,
}

/// Rows as maps from the number of a column to its value.
#[derive(Default)]
struct Model {
    columns: Vec<Known>,
    next: u32,
    rows: BTreeMap<u64, BTreeMap<u32, OwnedValue>>,
    indexed: Option<u32>,
}

const TYPES: [ColumnType; 5] = [ColumnType::I64, ColumnType::U32, ColumnType::Text, ColumnType::F64, ColumnType::Bool];

fn value(rng: &mut Rng, column_type: ColumnType, nullable: bool) -> OwnedValue {
    if nullable && rng.chance(0.3) {
        return Value::Null;
    }
    let n = rng.below(300);
    match column_type {
        ColumnType::I64 => Value::I64(n as i64 - 150),
        ColumnType::U32 => Value::U32(n as u32),
        ColumnType::Text => Value::Text("x".repeat(n as usize % 20).into()),
        ColumnType::F64 => Value::F64(n as f64),
        _ => Value::Bool(n.is_multiple_of(2)),
    }
}

impl Model {
    fn values(&self, key: u64) -> Row {
        let row = &self.rows[&key];
        self.columns.iter().map(|column| row[&column.id].clone()).collect()
    }

    fn random(&self, rng: &mut Rng, key: u64) -> Row {
        let one = |c: &Known| if c.id == 0 { Value::U64(key) } else { value(rng, c.column_type, c.nullable) };
        self.columns.iter().map(one).collect()
    }

    fn put(&mut self, key: u64, row: &Row) {
        self.rows.insert(key, self.columns.iter().map(|c| c.id).zip(row.iter().cloned()).collect());
    }

    fn change(&mut self, rng: &mut Rng, changes: TableChanges) -> TableChanges {
        let at = rng.index(self.columns.len());
        let (id, name) = (self.columns[at].id, self.columns[at].name.clone());
        match rng.below(6) {
            0..=1 if self.columns.len() < 12 => {
                let (column_type, nullable) = (TYPES[rng.index(TYPES.len())], rng.chance(0.5));
                self.next += 1;
                // Names come back.
                let free = (0..).map(|n| format!("c{n}")).find(|name| self.columns.iter().all(|c| c.name != *name));
                let known = Known { id: self.next, name: free.unwrap(), column_type, nullable };
                let value = value(rng, column_type, nullable);
                self.rows.values_mut().for_each(|row| drop(row.insert(known.id, value.clone())));
                let name = known.name.clone();
                self.columns.push(known);
                match nullable {
                    true => changes.add_nullable(&name, column_type, value),
                    false => changes.add_column(&name, column_type, value),
                }
            }
            2..=3 if id != 0 && Some(id) != self.indexed => {
                self.columns.remove(at);
                changes.drop_column(&name)
            }
            4 => {
                self.next += 1;
                self.columns[at].name = format!("renamed{}", self.next);
                changes.rename_column(&name, &self.columns[at].name)
            }
            _ => {
                let column = self.columns.remove(at);
                let to = rng.index(self.columns.len() + 1);
                let changes = match to.checked_sub(1) {
                    None => changes.move_first(&name),
                    Some(before) => changes.move_after(&name, &self.columns[before].name),
                };
                self.columns.insert(to, column);
                changes
            }
        }
    }

    fn judge(&self, db: &Database, table: &Table, seed: u64) {
        let expected: Vec<Row> = self.rows.keys().map(|key| self.values(*key)).collect();
        assert_eq!(rows(db, table), expected, "seed {seed}");
        let tx = db.begin().unwrap();
        for (n, column) in self.columns.iter().enumerate().filter(|(_, c)| c.column_type == ColumnType::U32) {
            let mut cursor = tx.scan(table, ALL).unwrap();
            for row in &expected {
                let read = cursor.next_row().unwrap().unwrap();
                let value = match column.nullable {
                    true => read.column_as::<Option<u32>>(n).unwrap().map_or(Value::Null, Value::U32),
                    false => Value::U32(read.column_as::<u32>(n).unwrap()),
                };
                assert_eq!(value, row[n], "seed {seed}, {}", column.name);
            }
        }
    }
}

fn history(seed: u64) {
    let mut rng = Rng::new(seed);
    let disk = disk();
    let mut db = open(&disk);
    let schema = Schema::builder().column("id", ColumnType::U64).nullable("a", ColumnType::U32);
    let by_a = IndexSchema::new("by_a", &["a"]).with_options(small_nodes_of(seed));
    let schema = schema.column("b", ColumnType::Text).primary_key(&["id"]).primary_options(small_nodes_of(seed));
    let schema = schema.index(by_a);
    let mut table = db.create_table("t", schema.build().unwrap()).unwrap();
    let known = |id, name: &str, column_type, nullable| Known { id, name: name.into(), column_type, nullable };
    let columns = vec![
        known(0, "id", ColumnType::U64, false),
        known(1, "a", ColumnType::U32, true),
        known(2, "b", ColumnType::Text, false),
    ];
    let mut model = Model { columns, next: 2, indexed: Some(1), ..Model::default() };
    for _ in 0..60 {
        let key = rng.below(20);
        match rng.below(10) {
            0..=1 => {
                let mut changes = TableChanges::new();
                for _ in 0..1 + rng.below(2) {
                    changes = model.change(&mut rng, changes);
                }
                db.alter_table(&table, &changes).unwrap();
            }
            2..=6 => {
                let row = model.random(&mut rng, key);
                let mut tx = db.begin().unwrap();
                match model.rows.contains_key(&key) {
                    true => assert!(tx.update(&table, &row).unwrap()),
                    false => tx.insert(&table, &row).unwrap(),
                }
                tx.commit().unwrap();
                model.put(key, &row);
            }
            7 => {
                let mut tx = db.begin().unwrap();
                let there = tx.delete_row(&table, &[Value::U64(key)]).unwrap();
                assert_eq!(there, model.rows.remove(&key).is_some(), "seed {seed}");
                tx.commit().unwrap();
            }
            8 => match rng.below(3) {
                0 => db.checkpoint().unwrap(),
                1 => db.rebuild_index(&table, "by_a").unwrap(),
                _ => {
                    db.close().unwrap();
                    drop((db, table));
                    db = open(&disk);
                    table = db.table("t").unwrap();
                }
            },
            _ => model.judge(&db, &table, seed),
        }
    }
    model.judge(&db, &table, seed);
    sound(&db);
}

#[test]
fn any_changes_and_writes_are_as_in_the_model() {
    (0..150).for_each(history);
}

// ---- interrupted ------------------------------------------------------------------------------------------------

/// A change is there or not, as the call said, and the rows are.
#[test]
fn a_change_is_all_or_none_whatever_operation_fails() {
    let prepare = |disk: &SimDisk| {
        let db = open(disk);
        let table = people(&db);
        // One that could not be read would be set aside, which is another matter.
        db.drop_table_index(&table, "by_name").unwrap();
        insert(&db, &table, &[1u32.into(), "Ada".into(), 36u32.into()]);
        db.close().unwrap();
    };
    let act = |disk: &SimDisk| {
        let Ok(db) = Database::open("/db", options(disk)) else { return false };
        db.table("people").and_then(|table| db.alter_table(&table, &add_city())).is_ok()
    };
    each_fails_once(prepare, act, |disk, told| {
        let db = open(disk);
        let table = db.table("people").unwrap();
        let columns = table.schema().columns().len();
        assert!(columns == 4 || (columns == 3 && !told), "{columns} columns, told {told}");
        assert!(rows(&db, &table).iter().all(|row| row.len() == columns && row.contains(&"Ada".into())));
        sound(&db);
    });
}

/// An index that has columns of the primary key alone needs nothing of a row, of whatever version that is. Guard: `pick` looks at
/// no row when it has all.
#[test]
fn an_index_on_the_key_alone_has_rows_of_any_version() {
    let disk = disk();
    let db = open(&disk);
    let schema = Schema::builder().column("a", ColumnType::U32).column("b", ColumnType::U32).primary_key(&["a", "b"]);
    let table = db.create_table("t", schema.index(IndexSchema::new("by_b", &["b"])).build().unwrap()).unwrap();
    insert(&db, &table, &[1u32.into(), 2u32.into()]);
    let add = TableChanges::new().add_column("c", ColumnType::U32, 3u32.into());
    db.alter_table(&table, &add).unwrap();
    sound(&db);
    let mut tx = db.begin().unwrap();
    assert!(tx.delete_row(&table, &[1u32.into(), 2u32.into()]).unwrap());
    tx.commit().unwrap();
    sound(&db);
}

/// A clustering index has rows of the versions that the table has, whichever was newest when it was made: columns come and go,
/// rows are written in between, before and after a reopening. Guard: `secondary_value` takes the row as it is stored.
#[test]
fn a_clustering_index_has_rows_of_any_version() {
    let disk = disk();
    let db = open(&disk);
    let table = people(&db);
    insert(&db, &table, &[1u32.into(), "Ada".into(), 36u32.into()]);
    let clustering = |name: &str| vec![IndexSchema::new(name, &["name"]).clustering()];
    db.create_table_indexes(&table, clustering("first")).unwrap();
    db.alter_table(&table, &add_city()).unwrap();
    insert(&db, &table, &[2u32.into(), "New York".into(), "Grace".into(), 85u32.into()]);
    db.create_table_indexes(&table, clustering("second")).unwrap();
    let change = TableChanges::new().drop_column("age").add_nullable("late", ColumnType::Text, Value::Null);
    db.alter_table(&table, &change).unwrap();
    insert(&db, &table, &[3u32.into(), "Wien".into(), "Edith".into(), "x".into()]);
    let judge = |db: &Database| {
        let table = db.table("people").unwrap();
        let mut expected = rows(db, &table);
        expected.sort_by(|a, b| a[2].cmp(&b[2]));
        let tx = db.begin().unwrap();
        for index in ["first", "second"] {
            let mut along = tx.scan_index_rows(&table, index, trefoil::ALL).unwrap();
            for row in &expected {
                assert_eq!(&along.next_row().unwrap().unwrap().values().unwrap(), row, "{index}");
            }
            assert!(along.next_row().unwrap().is_none());
        }
        sound(db);
    };
    judge(&db);
    let mut tx = db.begin().unwrap();
    assert!(tx.update(&table, &[1u32.into(), "London".into(), "Ada".into(), Value::Null]).unwrap());
    tx.commit().unwrap();
    judge(&db);
    drop((table, db));
    judge(&open(&disk));
}

/// Writes the header of format 1 under a database: one that was not altered is the same in both formats.
fn make_older(disk: &SimDisk) {
    let how = OpenHow { write: true, ..OpenHow::default() };
    let file = disk.open(Path::new("/db/TREFOIL"), how).unwrap();
    let mut bytes = vec![0; 4096];
    file.read_at(&mut bytes, 0).unwrap();
    bytes[16..20].copy_from_slice(&1u32.to_le_bytes());
    let crc = base::checksum::crc32c(&bytes[..4092]);
    bytes[4092..].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&bytes, 0).unwrap();
    file.sync().unwrap();
}

#[test]
fn an_upgrade_leaves_the_old_format_or_the_new_one_whatever_operation_fails() {
    let prepare = |disk: &SimDisk| {
        let db = open(disk);
        insert(&db, &people(&db), &[1u32.into(), "Ada".into(), 36u32.into()]);
        drop(db);
        make_older(disk);
    };
    let seen = RefCell::new(BTreeSet::new());
    each_fails_once(
        prepare,
        |disk| Database::upgrade("/db", options(disk)).is_ok(),
        |disk, told| {
            let upgraded = Database::upgrade("/db", options(disk)).unwrap();
            assert!(!told || upgraded.from == upgraded.to, "it was told to be upgraded");
            seen.borrow_mut().insert(upgraded.from);
            let db = open(disk);
            let table = db.table("people").unwrap();
            db.alter_table(&table, &add_city()).unwrap();
            assert_eq!(rows(&db, &table).len(), 1);
            sound(&db);
        },
    );
    assert_eq!(*seen.borrow(), BTreeSet::from([1, 10]), "both were met");
}
