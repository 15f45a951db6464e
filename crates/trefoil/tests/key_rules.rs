//! Keys of parts and collations, one rule at a time.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test on real files panics on what it does not expect"
)]

use std::ops::Bound;

use crate::support::collation::{NOCASE, PADDED, collating, open_collating};
use trefoil::{
    ALL, ColumnType, Database, Error, IndexSchema, KeyPart, Locking, Options, OwnedValue, Schema, Table, TableChanges,
    Value,
};

type Row = Vec<OwnedValue>;

/// Names in any case are one name; the table has them as they were written.
fn users(db: &Database) -> Table {
    let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    let by_name = IndexSchema::new("by_name", &["name"]).unique();
    db.create_table("users", schema.collate("name", NOCASE).primary_key(&["id"]).index(by_name).build().unwrap())
        .unwrap()
}

fn put(db: &Database, table: &Table, row: &[Value<'_>]) {
    let mut tx = db.begin().unwrap();
    tx.insert(table, row).unwrap();
    tx.commit().unwrap();
}

fn names(db: &Database, table: &Table) -> Vec<Row> {
    let tx = db.begin().unwrap();
    let (mut entries, mut found) = (tx.scan_index(table, "by_name", ALL).unwrap(), Vec::new());
    while let Some(entry) = entries.next().unwrap() {
        found.push(entry.into_iter().map(Value::into_owned).collect());
    }
    found
}

/// Guard: `write_over` looks at what is stored with an entry, not at its key alone.
#[test]
fn a_text_changed_to_one_with_the_same_key_is_changed_in_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_collating(dir.path());
    let table = users(&db);
    put(&db, &table, &[1i64.into(), "ada".into()]);
    put(&db, &table, &[2i64.into(), "Grace".into()]);
    let before = db.snapshot().unwrap();
    let mut tx = db.begin().unwrap();
    assert!(tx.update(&table, &[1i64.into(), "Ada ".into()]).unwrap());
    tx.commit().unwrap();
    assert_eq!(names(&db, &table), [vec!["Ada ".into(), 1i64.into()], vec!["Grace".into(), 2i64.into()]]);
    let mut entries = before.scan_index(&table, "by_name", ALL).unwrap();
    assert_eq!(entries.next().unwrap(), Some(vec!["ada".into(), 1i64.into()]), "a snapshot from before");
    // As tuples, and what is said of a duplicate: as it is written now.
    let mut tx = db.begin().unwrap();
    let mut entries = tx.scan_index(&table, "by_name", ALL).unwrap();
    assert_eq!(entries.next_as::<(std::borrow::Cow<'_, str>, i64)>().unwrap(), Some(("Ada ".into(), 1)));
    drop(entries);
    let Err(Error::DuplicateKey(taken)) = tx.insert(&table, &[3i64.into(), "ADA".into()]) else {
        panic!("it is taken")
    };
    assert_eq!((taken.key.clone(), taken.row.clone()), (vec!["Ada ".into()], vec![1i64.into()]));
    let twice = tx.insert_many(&table, &[[3i64.into(), "x".into()], [4i64.into(), "X".into()]]);
    assert!(
        matches!(twice, Err(Error::DuplicateKey(taken)) if taken.key == ["x".into()] && taken.row == [3i64.into()])
    );
}

/// Who reads a range to lock it keeps out what falls between its ends by the collation, not by the bytes.
#[test]
fn locks_follow_the_collation() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_collating(dir.path());
    let table = users(&db);
    put(&db, &table, &[1i64.into(), "Ada".into()]);
    let (from, to) = (["b".into()], ["d".into()]);
    let reader = db.begin().unwrap();
    let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
    assert!(reader.scan_index_locked(&table, "by_name", range, Locking::SHARED).unwrap().next().unwrap().is_none());
    let mut tx = db.begin().unwrap();
    let refused = tx.insert(&table, &[2i64.into(), "CHARLES".into()]);
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    tx.insert(&table, &[2i64.into(), "Edith".into()]).unwrap();
    drop(reader);
    tx.insert(&table, &[3i64.into(), "CHARLES".into()]).unwrap();
    // The value is locked, whichever way it is written.
    let mut other = db.begin().unwrap();
    let refused = other.insert(&table, &[4i64.into(), "charles ".into()]);
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
}

/// What needs no sort key goes on without collations; what does says what is missing.
#[test]
fn a_database_without_its_collations_is_opened_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_collating(dir.path());
    let table = users(&db);
    put(&db, &table, &[1i64.into(), "Grace".into()]);
    db.checkpoint().unwrap();
    put(&db, &table, &[2i64.into(), "ada".into()]);
    drop(table);
    drop(db);
    let db = Database::open(dir.path(), Options { collations: None, ..collating() }).unwrap();
    assert!(db.stats().replayed_operations > 0, "a log to replay");
    let table = db.table("users").unwrap();
    assert_eq!(names(&db, &table), [vec!["ada".into(), 2i64.into()], vec!["Grace".into(), 1i64.into()]]);
    assert!(db.verify().unwrap().iter().all(|(_, report)| report.problems.is_empty()));
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.get_row(&table, &[1i64.into()]).unwrap(), Some(vec![1i64.into(), "Grace".into()]));
    for refused in [
        tx.insert(&table, &[3i64.into(), "Edith".into()]),
        tx.delete_row(&table, &[1i64.into()]).map(drop),
        tx.scan_index(&table, "by_name", (Bound::Included(&["a".into()]), Bound::Unbounded)).map(drop),
    ] {
        let Err(Error::InvalidArgument(why)) = refused else { panic!("{refused:?}") };
        assert!(
            why.contains("\"name\"") && why.contains("collation 7") && why.contains("Options::collations"),
            "{why}"
        );
    }
    tx.rollback();
    // A collation that the program does not know, or a text that the collation does not.
    drop((table, db));
    let db = open_collating(dir.path());
    let mut tx = db.begin().unwrap();
    let refused = tx.insert(&db.table("users").unwrap(), &[3i64.into(), "x".repeat(PADDED + 1).into()]);
    assert!(matches!(&refused, Err(Error::InvalidArgument(why)) if why.contains("not known here")), "{refused:?}");
    drop(tx);
    assert_eq!(names(&db, &db.table("users").unwrap()).len(), 2);
}

/// Text in the primary key that the key does not give back.
#[test]
fn a_primary_key_says_less_than_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_collating(dir.path());
    let schema =
        Schema::builder().column("word", ColumnType::Bytes).column("n", ColumnType::I64).collate("word", NOCASE);
    let schema = schema.primary_key(&["word"]).index(IndexSchema::of_parts("by_n", [KeyPart::new("n").descending()]));
    let table = db.create_table("words", schema.build().unwrap()).unwrap();
    let word = |word: &'static str| Value::Bytes(word.as_bytes().into());
    put(&db, &table, &[word("Tree"), 1i64.into()]);
    let mut tx = db.begin().unwrap();
    let again = tx.insert(&table, &[word("tree  "), 2i64.into()]);
    assert!(
        matches!(again, Err(Error::DuplicateKey(taken)) if taken.key == [word("Tree")] && taken.row == [word("Tree")])
    );
    let both = tx.insert_many(&table, &[[word("Leaf"), 2i64.into()], [word("leaf"), 2i64.into()]]);
    assert!(
        matches!(both, Err(Error::DuplicateKey(taken)) if taken.row[0] == word("Leaf") || taken.row[0] == word("leaf"))
    );
    // The row is found, and changed, whichever way its key is written.
    assert!(tx.update_with(&table, &[word("TREE")], |row| row[0] = word("tREE")).unwrap());
    assert!(tx.update_with(&table, &[word("TREE")], |row| row[0] = word("other")).is_err());
    tx.commit().unwrap();
    let tx = db.begin().unwrap();
    assert_eq!(tx.get_row(&table, &[word("tree")]).unwrap(), Some(vec![word("tREE"), 1i64.into()]));
    assert_eq!(tx.scan(&table, ALL).unwrap().next_key().unwrap(), Some(vec![word("tREE")]));
    assert_eq!(tx.scan_index(&table, "by_n", ALL).unwrap().next().unwrap(), Some(vec![1i64.into(), word("tREE")]));
    let mut rows = tx.scan(&table, ALL).unwrap();
    let row = rows.next_row().unwrap().unwrap();
    assert_eq!(&*row.column_as::<std::borrow::Cow<'_, [u8]>>(0).unwrap(), b"tREE");
}

/// What does not go together is refused when the schema is made.
#[test]
fn parts_that_do_not_fit_are_refused() {
    let columns = || Schema::builder().column("n", ColumnType::I32).column("t", ColumnType::Text);
    let index = |part: KeyPart| columns().primary_key(&["n"]).index(IndexSchema::of_parts("i", [part])).build();
    assert!(index(KeyPart::new("t").front(3).descending()).is_ok());
    for (refused, why) in [
        (index(KeyPart::new("n").front(3)), "front of column \"n\""),
        (index(KeyPart::new("t").front(0)), "front of column \"t\""),
        (columns().primary_key_of([KeyPart::new("n").front(1)]).build(), "the primary key"),
        (columns().collate("n", NOCASE).primary_key(&["n"]).build(), "no collation"),
        (columns().collate("x", NOCASE).primary_key(&["n"]).build(), "\"x\""),
        (columns().column("f", ColumnType::Fixed(0)).primary_key(&["n"]).build(), "0 bytes"),
    ] {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }
    let collated = TableChanges::new().collate("t", NOCASE);
    let free = columns().primary_key(&["n"]).build().unwrap();
    assert_eq!(free.with_changes(&collated).unwrap().columns()[1].collation, Some(NOCASE));
    let indexed = free.with_index(IndexSchema::new("by_t", &["t"])).unwrap();
    assert!(indexed.with_changes(&collated).is_err(), "its entries are in the order of the bytes");
}
