//! Foreign keys, one transaction at a time: rows of children have their parents, whatever is done to either. Those that stand
//! beside each other are in `foreign_keys_apart.rs`. Every test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::*;
use trefoil::ForeignKeyFailureKind::{HasChildren, NoParent, TooDeep};
use trefoil::ReferenceAction::{Cascade, NoAction, Restrict, SetNull};
use trefoil::{
    ALL, ChangeOptions, ColumnType, Database, Error, ForeignKey, ForeignKeyFailureKind, IndexOptions, IndexSchema,
    Isolation, ReferenceAction, Schema, Structure, Table, TableChanges, Transaction, Value,
};

type Row = Vec<Option<i64>>;

/// Parents (id, code, kind, weight): `id` is the primary key, `code` is unique, `kind` is not.
fn parents(options: IndexOptions) -> Schema {
    let columns = Schema::builder().column("id", ColumnType::I64).nullable("code", ColumnType::I64);
    let columns = columns.nullable("kind", ColumnType::I64).nullable("weight", ColumnType::I64).primary_key(&["id"]);
    let indexes = [IndexSchema::new("by_code", &["code"]).unique(), IndexSchema::new("by_kind", &["kind", "weight"])];
    let columns = columns.primary_options(options);
    indexes.into_iter().fold(columns, |schema, index| schema.index(index.with_options(options))).build().unwrap()
}

/// Children (id, parent) of a column of the parents.
fn children(options: IndexOptions, of: &str, (delete, update): (ReferenceAction, ReferenceAction)) -> Schema {
    let foreign = ForeignKey::new("of", &["parent"], "parents", &[of]).on_delete(delete).on_update(update);
    let columns = Schema::builder().column("id", ColumnType::I64).nullable("parent", ColumnType::I64);
    let columns = columns.primary_key(&["id"]).primary_options(options);
    columns
        .index(IndexSchema::new("by_parent", &["parent"]).with_options(options))
        .foreign_key(foreign)
        .build()
        .unwrap()
}

/// Rows (id, boss) of one table.
fn tree(delete: ReferenceAction, update: ReferenceAction) -> Schema {
    let foreign = ForeignKey::new("boss", &["boss"], "people", &["id"]).on_delete(delete).on_update(update);
    let columns = Schema::builder().column("id", ColumnType::I64).nullable("boss", ColumnType::I64);
    columns.primary_key(&["id"]).index(IndexSchema::new("by_boss", &["boss"])).foreign_key(foreign).build().unwrap()
}

fn values(row: &[Option<i64>]) -> Vec<Value<'static>> {
    row.iter().map(|&n| n.into()).collect()
}

fn row(numbers: impl IntoIterator<Item = i64>) -> Vec<Value<'static>> {
    numbers.into_iter().map(Value::from).collect()
}

fn insert(tx: &mut Transaction, t: &Table, rows: &[&[i64]]) {
    rows.iter().for_each(|numbers| tx.insert(t, &row(numbers.iter().copied())).unwrap());
}

fn rows(tx: &Transaction, t: &Table) -> Vec<Row> {
    let (mut found, mut all) = (Vec::new(), tx.scan(t, ALL).unwrap());
    let number = |value: &Value<'_>| if let Value::I64(n) = value { Some(*n) } else { None };
    while let Some(row) = all.next().unwrap() {
        found.push(row.iter().map(number).collect());
    }
    found
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ForeignKeyFailureKind {
    match result {
        Err(Error::ForeignKey(failure)) => failure.kind,
        other => panic!("{other:?}"),
    }
}

fn needed<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::NeededByForeignKey { constraint, table, .. }) => format!("{table}.{constraint}"),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was let go"),
    }
}

fn structures() -> [IndexOptions; 3] {
    [Structure::Btree, Structure::Betree, Structure::Lsm]
        .map(|s| IndexOptions { structure: s, ..IndexOptions::default() })
}

fn unchecked(db: &Database) -> Database {
    db.changing(ChangeOptions { unchecked_foreign_keys: true, ..ChangeOptions::default() })
}

/// A database with parents 1 to 3 (code 10 to 30, kind 7, 7, 8) and children of them.
fn family(options: IndexOptions, of: &str, actions: (ReferenceAction, ReferenceAction)) -> (Database, Table, Table) {
    let db = open(&disk());
    let p = db.create_table("parents", parents(options)).unwrap();
    let c = db.create_table("children", children(options, of, actions)).unwrap();
    let mut tx = db.begin().unwrap();
    insert(&mut tx, &p, &[&[1, 10, 7, 0], &[2, 20, 7, 1], &[3, 30, 8, 0]]);
    tx.commit().unwrap();
    (db, p, c)
}

/// Guards: `check_parents` in `write_row` and `write_over`; that NULL needs no parent; that what stays is not looked at.
#[test]
fn a_child_needs_a_parent_on_every_structure() {
    for options in structures() {
        for (of, there) in [("id", 1), ("code", 10), ("kind", 7)] {
            simulate(move |_| {
                let (db, p, c) = family(options, of, (Restrict, Restrict));
                let mut tx = db.begin().unwrap();
                assert_eq!(kind(tx.insert(&c, &row([1, 99]))), NoParent);
                tx.insert(&c, &row([1, there])).unwrap();
                tx.insert(&c, &values(&[Some(2), None])).unwrap();
                assert_eq!(kind(tx.update(&c, &row([2, 99]))), NoParent);
                assert!(tx.update(&c, &row([2, there])).unwrap());
                assert_eq!(rows(&tx, &c), [[Some(1), Some(there)], [Some(2), Some(there)]]);
                // An orphan that was let in is not looked at as long as it stays one.
                tx.set_foreign_key_checks(false);
                tx.insert(&c, &row([3, 99])).unwrap();
                tx.set_foreign_key_checks(true);
                assert_eq!(kind(tx.move_row(&c, &[3i64.into()], &row([4, 99]))), NoParent);
                assert_eq!(kind(tx.insert_if_absent(&c, &row([5, 99]))), NoParent);
                assert_eq!(kind(tx.replace(&c, &row([1, 99]))), NoParent);
                assert_eq!(rows(&tx, &c).len(), 3);
                tx.commit().unwrap();
                drop(p);
            });
        }
    }
}

/// Guards: `act_on_children` in `delete_keys`, `write_over` and `write_moved`.
#[test]
fn a_parent_with_children_stays_on_every_structure() {
    for options in structures() {
        for (of, there) in [("id", 1), ("code", 10), ("kind", 7)] {
            for action in [Restrict, NoAction] {
                simulate(move |_| {
                    let (db, p, c) = family(options, of, (action, action));
                    let mut tx = db.begin().unwrap();
                    tx.insert(&c, &row([1, there])).unwrap();
                    tx.commit().unwrap();
                    let mut tx = db.begin().unwrap();
                    assert_eq!(kind(tx.delete_row(&p, &[1i64.into()])), HasChildren);
                    let changed = match of {
                        "id" => tx.move_row(&p, &[1i64.into()], &row([4, 10, 7, 0])),
                        "code" => tx.update(&p, &row([1, 11, 7, 0])),
                        _ => tx.update(&p, &row([1, 10, 9, 0])),
                    };
                    assert_eq!(kind(changed), HasChildren);
                    assert_eq!(kind(tx.delete_first(&p, ALL, 9)), HasChildren);
                    assert_eq!(rows(&tx, &p).len(), 3, "a statement that fails is undone as a whole");
                    // What is not referred to may change, and go.
                    assert!(tx.update(&p, &row([1, if of == "code" { 10 } else { 11 }, 7, 5])).unwrap());
                    assert!(tx.delete_row(&p, &[3i64.into()]).unwrap());
                    assert!(tx.delete_row(&c, &[1i64.into()]).unwrap());
                    assert!(tx.delete_row(&p, &[1i64.into()]).unwrap());
                    tx.commit().unwrap();
                });
            }
        }
    }
}

/// Guards: the actions in `act_on_row`; that children's indexes go with them.
#[test]
fn children_follow_their_parent_on_every_structure() {
    for options in structures() {
        for (of, there) in [("id", 1), ("code", 10), ("kind", 8)] {
            let owner = if of == "kind" { 3 } else { 1 };
            for (action, left) in [(Cascade, None), (SetNull, Some(None))] {
                simulate(move |_| {
                    let (db, p, c) = family(options, of, (action, action));
                    let mut tx = db.begin().unwrap();
                    // More than are looked for at a time.
                    (0..600).for_each(|n| tx.insert(&c, &row([n, there])).unwrap());
                    tx.insert(&c, &values(&[Some(1000), None])).unwrap();
                    tx.commit().unwrap();
                    let mut tx = db.begin().unwrap();
                    let before = tx.savepoint();
                    let moved = [if of == "id" { 9 } else { owner }, if of == "code" { 19 } else { 90 }, 9, 0];
                    assert!(tx.move_row(&p, &[owner.into()], &row(moved)).unwrap());
                    let now = match (of, action) {
                        (_, SetNull) => None,
                        ("id", _) | ("kind", _) => Some(9),
                        _ => Some(19),
                    };
                    assert!(rows(&tx, &c)[..600].iter().all(|row| row[1] == now));
                    tx.rollback_to(before).unwrap();
                    assert!(rows(&tx, &c)[..600].iter().all(|row| row[1] == Some(there)));
                    assert!(tx.delete_row(&p, &[owner.into()]).unwrap());
                    let gone = rows(&tx, &c);
                    match left {
                        None => assert_eq!(gone, [[Some(1000), None]]),
                        Some(left) => assert!(gone.len() == 601 && gone.iter().all(|row| row[1] == left)),
                    }
                    tx.commit().unwrap();
                    let reports = db.verify().unwrap();
                    assert!(reports.iter().all(|(_, report)| report.problems.is_empty()), "{reports:?}");
                });
            }
        }
    }
}

/// Guards: `DEPTH_MAX`; that a chain ends where nothing is left.
#[test]
fn cascades_are_fifteen_deep_and_no_deeper() {
    simulate(|_| {
        let db = open(&disk());
        let t = db.create_table("people", tree(Cascade, Restrict)).unwrap();
        let chain = |length: i64| {
            let mut tx = db.begin().unwrap();
            tx.insert(&t, &values(&[Some(0), None])).unwrap();
            (1..length).for_each(|n| tx.insert(&t, &row([n, n - 1])).unwrap());
            tx
        };
        let mut tx = chain(15);
        assert!(tx.delete_row(&t, &[0i64.into()]).unwrap());
        assert_eq!(rows(&tx, &t), [] as [Row; 0]);
        drop(tx);
        let mut tx = chain(16);
        assert_eq!(kind(tx.delete_row(&t, &[0i64.into()])), TooDeep);
        assert_eq!(rows(&tx, &t).len(), 16);
        tx.insert(&t, &row([16, 15])).unwrap();
    });
}

/// Guards: rows are written before their parents are looked for; a cascade that comes back to a table it updates is refused.
#[test]
fn a_table_may_refer_to_itself() {
    simulate(|_| {
        let db = open(&disk());
        let t = db.create_table("people", tree(SetNull, Cascade)).unwrap();
        let mut tx = db.begin().unwrap();
        insert(&mut tx, &t, &[&[1, 1], &[2, 1]]);
        assert_eq!(kind(tx.insert(&t, &row([3, 4]))), NoParent);
        assert_eq!(kind(tx.insert_many(&t, &[row([3, 4]), row([4, 4])])), NoParent, "row by row");
        tx.insert_many(&t, &[row([4, 4]), row([3, 4])]).unwrap();
        assert_eq!(kind(tx.move_row(&t, &[1i64.into()], &row([9, 1]))), HasChildren);
        assert_eq!(kind(tx.move_row(&t, &[1i64.into()], &row([9, 9]))), HasChildren);
        assert!(tx.delete_row(&t, &[1i64.into()]).unwrap());
        assert_eq!(rows(&tx, &t), [[Some(2), None], [Some(3), Some(4)], [Some(4), Some(4)]]);
        tx.commit().unwrap();
        let db = open(&disk());
        let t = db.create_table("people", tree(Restrict, Restrict)).unwrap();
        let mut tx = db.begin().unwrap();
        insert(&mut tx, &t, &[&[1, 1]]);
        assert_eq!(kind(tx.delete_row(&t, &[1i64.into()])), HasChildren, "it is its own child");
        assert_eq!(kind(tx.move_row(&t, &[1i64.into()], &row([2, 2]))), HasChildren);
    });
}

/// Guard: `ForeignKey::has_room`.
#[test]
fn a_cascade_puts_nothing_where_it_has_no_room() {
    simulate(|_| {
        let db = open(&disk());
        let p = db.create_table("parents", parents(small_nodes())).unwrap();
        let foreign = ForeignKey::new("of", &["parent"], "parents", &["id"]).on_update(Cascade).room(&[1]);
        let c = Schema::builder().column("parent", ColumnType::I64).primary_key(&["parent"]).foreign_key(foreign);
        let c = db.create_table("children", c.build().unwrap()).unwrap();
        let mut tx = db.begin().unwrap();
        insert(&mut tx, &p, &[&[1, 1, 1, 1]]);
        insert(&mut tx, &c, &[&[1]]);
        assert_eq!(kind(tx.move_row(&p, &[1i64.into()], &row([128, 1, 1, 1]))), HasChildren);
        assert!(tx.move_row(&p, &[1i64.into()], &row([127, 1, 1, 1])).unwrap());
        assert_eq!(rows(&tx, &c), [[Some(127)]]);
    });
}

/// Guards: characters are counted, and kept with the definition. Without the first four letters of a byte each get in, without
/// the second everything does behind a restart.
#[test]
fn a_cascade_measures_text_in_characters() {
    let dir = tempfile::tempdir().unwrap();
    let db = crate::support::collation::open_collating(dir.path());
    let text = |columns: &[&str]| {
        let all = columns.iter().fold(Schema::builder(), |all, &name| all.column(name, ColumnType::Text));
        columns
            .iter()
            .fold(all, |all, name| all.collate(name, crate::support::collation::NOCASE))
            .primary_key(&[columns[0]])
    };
    let p = db.create_table("parents", text(&["code"]).build().unwrap()).unwrap();
    let foreign = ForeignKey::new("of", &["code"], "parents", &["code"]).on_update(Cascade);
    let schema = text(&["code"]).foreign_key(foreign.room(&[12]).room_in_characters(&[3])).build().unwrap();
    let c = db.create_table("children", schema).unwrap();
    let mut tx = db.begin().unwrap();
    tx.insert(&p, &["a".into()]).unwrap();
    tx.insert(&c, &["a".into()]).unwrap();
    tx.commit().unwrap();
    drop((p, c, db));
    let db = crate::support::collation::open_collating(dir.path());
    let (p, c) = (db.table("parents").unwrap(), db.table("children").unwrap());
    let mut tx = db.begin().unwrap();
    assert_eq!(kind(tx.move_row(&p, &["a".into()], &["abcd".into()])), HasChildren);
    assert!(tx.move_row(&p, &["a".into()], &["äöü".into()]).unwrap());
    assert!(tx.get_row(&c, &["äöü".into()]).unwrap().is_some());
    assert_eq!(kind(tx.move_row(&p, &["äöü".into()], &["äöüß".into()])), HasChildren);
}

/// What rows get in an added column no foreign key is held against; so none is of such a column: it has no index yet. Guard: a
/// foreign key needs an index in the definition that it comes into.
#[test]
fn no_foreign_key_comes_with_its_column() {
    simulate(|_| {
        let (db, _, c) = family(small_nodes(), "id", (Restrict, Restrict));
        let foreign = || ForeignKey::new("late", &["late"], "parents", &["id"]);
        let add = TableChanges::new().add_column("late", ColumnType::I64, 7i64.into());
        for db in [db.clone(), unchecked(&db)] {
            let refused = db.alter_table(&c, &add.clone().add_foreign_key(foreign()));
            assert!(matches!(&refused, Err(Error::InvalidArgument(why)) if why.contains("index")), "{refused:?}");
        }
        let mut tx = db.begin().unwrap();
        tx.insert(&c, &[1i64.into(), Value::Null]).unwrap();
        tx.commit().unwrap();
        db.alter_table(&c, &add).unwrap();
        db.create_table_indexes(&c, vec![IndexSchema::new("by_late", &["late"])]).unwrap();
        assert_eq!(kind(db.alter_table(&c, &TableChanges::new().add_foreign_key(foreign()))), NoParent);
    });
}

/// Guards: `check_unreferenced`, `check_index_unneeded`, `check_parent`; that others may go.
#[test]
fn what_a_foreign_key_needs_stays() {
    simulate(|_| {
        let (db, p, c) = family(small_nodes(), "code", (Restrict, Restrict));
        assert_eq!(needed(db.drop_table("parents")), "children.of");
        assert_eq!(needed(db.truncate_table("parents")), "children.of");
        assert_eq!(needed(db.drop_table_index(&p, "by_code")), "children.of");
        assert_eq!(needed(db.alter_table(&p, &TableChanges::new().drop_index("by_code"))), "children.of");
        assert_eq!(needed(db.drop_table_index(&c, "by_parent")), "children.of");
        assert!(db.alter_table(&c, &TableChanges::new().drop_index("by_parent")).is_err());
        db.drop_table_index(&p, "by_kind").unwrap();
        // Another index does as well.
        let new = vec![IndexSchema::new("codes", &["code"])];
        db.create_table_indexes(&p, new).unwrap();
        db.drop_table_index(&p, "by_code").unwrap();
        assert_eq!(needed(db.drop_table_index(&p, "codes")), "children.of");
        // A child may be emptied, and is a child then.
        let c = db.truncate_table("children").unwrap();
        assert_eq!(kind(db.begin().unwrap().insert(&c, &row([1, 99]))), NoParent);
        assert_eq!(needed(db.drop_table("parents")), "children.of");
        unchecked(&db).drop_table("parents").unwrap();
        assert_eq!(kind(db.begin().unwrap().insert(&c, &row([1, 10]))), NoParent);
        // It is bound again when it comes, if it can be.
        let other = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build().unwrap();
        assert_eq!(needed(db.create_table("parents", other)), "children.of");
        let p = db.create_table("parents", parents(small_nodes())).unwrap();
        let mut tx = db.begin().unwrap();
        insert(&mut tx, &p, &[&[1, 10, 7, 0]]);
        insert(&mut tx, &c, &[&[1, 10]]);
        tx.commit().unwrap();
        db.drop_table("children").unwrap();
        db.drop_table("parents").unwrap();
    });
}

/// Guards: `followers` in `rename_table` and `alter_table`, in memory and in the catalog.
#[test]
fn foreign_keys_follow_names_and_outlive_the_database() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let p = db.create_table("parents", parents(small_nodes())).unwrap();
        let c = db.create_table("children", children(small_nodes(), "code", (Cascade, SetNull))).unwrap();
        let t = db.create_table("people", tree(Restrict, Restrict)).unwrap();
        db.rename_table("parents", "elders").unwrap();
        db.rename_table("people", "persons").unwrap();
        db.alter_table(&p, &TableChanges::new().rename_column("code", "x").rename_column("kind", "code")).unwrap();
        db.alter_table(&t, &TableChanges::new().rename_column("id", "number")).unwrap();
        db.alter_table(&c, &TableChanges::new().rename_column("parent", "elder")).unwrap();
        let look = |db: &Database| {
            let of = db.references_to("elders").pop().unwrap();
            let expected = ForeignKey::new("of", &["elder"], "elders", &["x"]).on_delete(Cascade).on_update(SetNull);
            assert_eq!(of, ("children".to_owned(), expected));
            assert_eq!(db.references_to("persons")[0].1.parent_columns(), ["number"]);
            assert!(db.references_to("parents").is_empty());
            let (p, c) = (db.table("elders").unwrap(), db.table("children").unwrap());
            let mut tx = db.begin().unwrap();
            insert(&mut tx, &p, &[&[1, 10, 7, 0]]);
            insert(&mut tx, &c, &[&[1, 10]]);
            assert_eq!(kind(tx.insert(&c, &row([2, 7]))), NoParent);
            assert!(tx.delete_row(&p, &[1i64.into()]).unwrap());
            assert!(rows(&tx, &c).is_empty());
        };
        look(&db);
        drop((p, c, t));
        let disk = cut(&disk, db);
        look(&open(&disk));
    });
}

/// Guards: `first_orphan`; a foreign key that goes is not looked at any more.
#[test]
fn foreign_keys_come_and_go() {
    simulate(|_| {
        let db = open(&disk());
        let p = db.create_table("parents", parents(small_nodes())).unwrap();
        let c = children(small_nodes(), "id", (Restrict, Restrict));
        let plain = c.with_changes(&TableChanges::new().drop_foreign_key("of")).unwrap();
        let c = db.create_table("children", plain).unwrap();
        let mut tx = db.begin().unwrap();
        insert(&mut tx, &c, &[&[1, 5]]);
        tx.commit().unwrap();
        let add = TableChanges::new().add_foreign_key(ForeignKey::new("of", &["parent"], "parents", &["id"]));
        assert_eq!(kind(db.alter_table(&c, &add)), NoParent);
        assert!(c.schema().foreign_keys().is_empty());
        let mut tx = db.begin().unwrap();
        insert(&mut tx, &p, &[&[5, 0, 0, 0]]);
        tx.commit().unwrap();
        db.alter_table(&c, &add).unwrap();
        assert!(db.alter_table(&c, &add).is_err(), "two of one name");
        assert_eq!(kind(db.begin().unwrap().delete_row(&p, &[5i64.into()])), HasChildren);
        db.alter_table(&c, &TableChanges::new().drop_foreign_key("of")).unwrap();
        let mut tx = db.begin().unwrap();
        assert!(tx.delete_row(&p, &[5i64.into()]).unwrap());
        tx.commit().unwrap();
        unchecked(&db).alter_table(&c, &add).unwrap();
        let mut tx = db.begin().unwrap();
        assert_eq!(kind(tx.insert(&c, &row([2, 5]))), NoParent);
        assert!(tx.delete_row(&c, &[1i64.into()]).unwrap());
    });
}

/// Guard: `bind`, and the checks of a schema.
#[test]
fn foreign_keys_that_refer_to_nothing_are_refused() {
    simulate(|_| {
        let db = open(&disk());
        let refused = |foreign: ForeignKey| -> Result<bool, Error> {
            let columns = Schema::builder().column("id", ColumnType::I64).column("word", ColumnType::Text);
            let columns = columns.column("n", ColumnType::I64).primary_key(&["id"]);
            let indexes = ["word", "n"].map(|name| IndexSchema::new(name, &[name]));
            let schema = indexes.into_iter().fold(columns, |schema, index| schema.index(index)).foreign_key(foreign);
            match db.create_table("children", schema.build()?) {
                Err(Error::ForeignKeyRefused { .. }) => Ok(true),
                Err(error) => Err(error),
                Ok(_) => Ok(false),
            }
        };
        let to = |columns: &[&str], parent_columns: &[&str]| ForeignKey::new("of", columns, "parents", parent_columns);
        assert!(refused(to(&["n"], &["id"])).unwrap(), "no parent");
        db.create_table("parents", parents(small_nodes())).unwrap();
        assert!(refused(to(&["n"], &["height"])).unwrap(), "no such column");
        assert!(refused(to(&["word"], &["id"])).unwrap(), "another type");
        assert!(refused(to(&["n"], &["weight"])).unwrap(), "not the first column of an index");
        let invalid = |foreign| matches!(refused(foreign), Err(Error::InvalidArgument(_)));
        assert!(invalid(to(&["n", "word"], &["id", "code"])), "no index of its own");
        assert!(invalid(to(&["m"], &["id"])) && invalid(to(&["n"], &[])) && invalid(to(&[], &[])));
        assert!(invalid(to(&["n"], &["id"]).on_delete(SetNull)), "never NULL");
        assert!(!refused(to(&["n"], &["kind"])).unwrap());
    });
}

/// Guards: that a parent which is there has to be fit without checks too, in `check_foreign_keys`, and of a table that is given its
/// name, in `rename_table`.
#[test]
fn without_checks_a_parent_may_be_missing_and_not_unfit() {
    simulate(|_| {
        let db = open(&disk());
        let schema = |of: &str| children(small_nodes(), of, (Restrict, Restrict));
        let is_refused = |result: Result<(), Error>| matches!(result, Err(Error::ForeignKeyRefused { .. }));
        let create = |name: &str, schema: Schema| unchecked(&db).create_table(name, schema).map(|_| ());
        db.create_table("parents", parents(small_nodes())).unwrap();
        assert!(is_refused(create("children", schema("weight"))), "no index");
        assert!(is_refused(create("children", schema("height"))), "no column");
        let word =
            Schema::builder().column("id", ColumnType::I64).column("word", ColumnType::Text).primary_key(&["id"]);
        let word = word.index(IndexSchema::new("by_word", &["word"]));
        assert!(is_refused(create(
            "children",
            word.foreign_key(ForeignKey::new("of", &["word"], "parents", &["id"])).build().unwrap()
        )));
        // Of a table itself, too.
        let own = TableChanges::new().drop_foreign_key("boss").add_foreign_key(ForeignKey::new(
            "boss",
            &["boss"],
            "people",
            &["age"],
        ));
        let people = tree(Restrict, Restrict).with_changes(&TableChanges::new().add_nullable(
            "age",
            ColumnType::I64,
            Value::Null,
        ));
        assert!(is_refused(create("people", people.unwrap().with_changes(&own).unwrap())));
        let free = schema("id").with_changes(&TableChanges::new().drop_foreign_key("of")).unwrap();
        let c = db.create_table("children", free).unwrap();
        let add = |of: &str| TableChanges::new().add_foreign_key(ForeignKey::new("of", &["parent"], "parents", &[of]));
        assert!(is_refused(unchecked(&db).alter_table(&c, &add("weight"))));
        assert!(is_refused(unchecked(&db).alter_table(&c, &add("height"))));
        // Under another name it was not there.
        db.rename_table("parents", "elders").unwrap();
        assert!(is_refused(db.alter_table(&c, &add("weight"))));
        unchecked(&db).alter_table(&c, &add("weight")).unwrap();
        for db in [db.clone(), unchecked(&db)] {
            assert_eq!(needed(db.rename_table("elders", "parents")), "children.of");
        }
        // One that comes may get its index later.
        assert_eq!(needed(db.create_table("parents", parents(small_nodes()))), "children.of");
        let p = unchecked(&db).create_table("parents", parents(small_nodes())).unwrap();
        assert_eq!(kind(db.begin().unwrap().insert(&c, &row([1, 5]))), NoParent);
        db.create_table_indexes(&p, vec![IndexSchema::new("by_weight", &["weight"])]).unwrap();
        let mut tx = db.begin().unwrap();
        insert(&mut tx, &p, &[&[1, 10, 7, 5]]);
        insert(&mut tx, &c, &[&[1, 5]]);
        assert_eq!(kind(tx.delete_row(&p, &[1i64.into()])), HasChildren);
    });
}

/// Guards: that who found nothing before need not find it, in `check_foreign_keys` and `check_parent`; `loses_column`; that an added
/// foreign key is not taken for one of before.
#[test]
fn what_has_no_parent_goes_on_without_it() {
    simulate(|_| {
        let (db, p, c) = family(small_nodes(), "code", (Restrict, Restrict));
        let column = |name: &str| TableChanges::new().add_nullable(name, ColumnType::I64, Value::Null);
        let copy = |of: &str, name: &str, schema: Schema| {
            let place = ChangeOptions { takes_place_of: Some(of.to_owned()), ..ChangeOptions::default() };
            db.changing(place).create_table(name, schema).map(|_| ())
        };
        let bare = p.schema().with_changes(&TableChanges::new().drop_index("by_code")).unwrap();
        assert_eq!(needed(copy("parents", "copy", bare.clone())), "children.of");
        // The index may go without checks, not the column.
        assert_eq!(needed(db.alter_table(&p, &TableChanges::new().drop_index("by_code"))), "children.of");
        let both = TableChanges::new().drop_index("by_code").drop_column("code");
        assert_eq!(needed(unchecked(&db).alter_table(&p, &both)), "children.of");
        unchecked(&db)
            .alter_table(&p, &TableChanges::new().drop_index("by_code").rename_column("code", "mark"))
            .unwrap();
        assert_eq!(needed(unchecked(&db).alter_table(&p, &TableChanges::new().drop_column("mark"))), "children.of");
        // Both are changed, and copied, as others are.
        db.alter_table(&p, &column("more").rename_column("mark", "code")).unwrap();
        db.alter_table(&c, &column("more").rename_column("parent", "elder").rename_foreign_key("of", "by")).unwrap();
        assert_eq!(c.schema().foreign_keys()[0], ForeignKey::new("by", &["elder"], "parents", &["code"]));
        db.drop_table_index(&p, "by_kind").unwrap();
        copy("parents", "copy of parents", p.schema()).unwrap();
        copy("children", "copy of children", c.schema()).unwrap();
        let again = || ForeignKey::new("again", &["elder"], "parents", &["code"]);
        let add = TableChanges::new().add_foreign_key(again());
        for db in [db.clone(), unchecked(&db)] {
            assert!(matches!(db.alter_table(&c, &add), Err(Error::ForeignKeyRefused { .. })));
        }
        let added = c.schema().with_changes(&add).unwrap();
        assert!(matches!(copy("children", "another copy", added), Err(Error::ForeignKeyRefused { .. })));
        assert_eq!(kind(db.begin().unwrap().insert(&c, &[1i64.into(), 10i64.into(), Value::Null])), NoParent);
        // The same without any parent.
        db.drop_table("copy of children").unwrap();
        unchecked(&db).drop_table("parents").unwrap();
        db.alter_table(&c, &column("most")).unwrap();
        copy("children", "copy of children", c.schema()).unwrap();
        assert!(matches!(db.alter_table(&c, &add), Err(Error::ForeignKeyRefused { .. })));
    });
}

/// Guard: what isolation says of reads is not asked of foreign keys: they look at what is newest.
#[test]
fn parents_are_looked_for_in_what_is_newest() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        simulate(move |_| {
            let (db, p, c) = family(small_nodes(), "id", (Restrict, Restrict));
            let mut old = db.begin_with(isolation).unwrap();
            old.snapshot_after_reserved().unwrap();
            let mut tx = db.begin().unwrap();
            insert(&mut tx, &p, &[&[5, 50, 0, 0]]);
            tx.delete_row(&p, &[1i64.into()]).unwrap();
            tx.commit().unwrap();
            insert(&mut old, &c, &[&[1, 5]]);
            assert_eq!(kind(old.insert(&c, &row([2, 1]))), NoParent);
            old.commit().unwrap();
        });
    }
}
