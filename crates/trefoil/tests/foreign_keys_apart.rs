//! Foreign keys between transactions that stand beside each other, and across a restart: whoever comes second waits, and sees. The
//! schedules are those of `crates/trefoil/src/rows/foreign.rs`. Every test says which guard it stands for: with that guard removed
//! it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use trefoil::{
    ChangeOptions, ColumnType, Database, Error, ForeignKey, ForeignKeyFailureKind, IndexOptions, IndexSchema,
    Isolation, ReferenceAction, Schema, Structure, Table, TableChanges, Transaction, TransactionOptions, Value,
};

const LEVELS: [Isolation; 4] =
    [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
/// A column of the parents that is referred to: the primary key, a unique one, the first of a key that is neither.
const COLUMNS: [&str; 3] = ["id", "code", "kind"];

fn of(structure: Structure) -> IndexOptions {
    IndexOptions { structure, ..IndexOptions::default() }
}

/// Parents (id, code, kind) and children (id, parent).
fn family(db: &Database, column: &str, options: IndexOptions, action: ReferenceAction) -> (Table, Table) {
    let columns = Schema::builder().column("id", ColumnType::I64).nullable("code", ColumnType::I64);
    let columns = columns.nullable("kind", ColumnType::I64).primary_key(&["id"]).primary_options(options);
    let columns = columns.index(IndexSchema::new("by_code", &["code"]).unique().with_options(options));
    let parents = columns.index(IndexSchema::new("by_kind", &["kind", "id"]).with_options(options)).build().unwrap();
    let foreign = ForeignKey::new("of", &["parent"], "parents", &[column]).on_delete(action);
    let columns = Schema::builder().column("id", ColumnType::I64).nullable("parent", ColumnType::I64);
    let columns = columns.primary_key(&["id"]).primary_options(options);
    let columns = columns.index(IndexSchema::new("by_parent", &["parent"]).with_options(options));
    let p = db.create_table("parents", parents).unwrap();
    let c = db.create_table("children", columns.foreign_key(foreign).build().unwrap()).unwrap();
    let mut tx = db.begin().unwrap();
    tx.insert(&p, &row([1, 1, 1])).unwrap();
    tx.commit().unwrap();
    (p, c)
}

fn row<const N: usize>(numbers: [i64; N]) -> Vec<Value<'static>> {
    numbers.into_iter().map(Value::from).collect()
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ForeignKeyFailureKind {
    match result {
        Err(Error::ForeignKey(failure)) => failure.kind,
        other => panic!("{other:?}"),
    }
}

fn at(isolation: Isolation) -> TransactionOptions {
    TransactionOptions { isolation: Some(isolation), ..TransactionOptions::default() }
}

fn at_once(isolation: Isolation) -> TransactionOptions {
    TransactionOptions { lock_timeout: Some(Duration::ZERO), ..at(isolation) }
}

fn end(tx: Transaction, commits: bool) {
    match commits {
        true => assert!(tx.commit().is_ok()),
        false => tx.rollback(),
    }
}

fn waits<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::LockTimeout { .. })), "{result:?}");
}

fn each(mut body: impl FnMut(Isolation, &'static str, Structure)) {
    for isolation in LEVELS {
        COLUMNS.into_iter().for_each(|column| body(isolation, column, Structure::Btree));
    }
    [Structure::Betree, Structure::Lsm].into_iter().for_each(|s| body(Isolation::RepeatableRead, "kind", s));
}

/// Guard: F2, the exclusive lock before the write. Without it the child is let in and its parent goes.
#[test]
fn a_child_waits_for_a_parent_that_is_going() {
    each(|isolation, column, structure| {
        for commits in [true, false] {
            simulate(move |_| {
                let db = open(&disk());
                let (p, c) = family(&db, column, of(structure), ReferenceAction::Restrict);
                let mut first = db.begin_with(at(isolation)).unwrap();
                assert!(first.delete_row(&p, &[1i64.into()]).unwrap());
                waits(db.begin_with(at_once(isolation)).unwrap().insert(&c, &row([1, 1])));
                let (other, table) = (db.clone(), c.clone());
                let second = vfs::thread::spawn("second", move || {
                    let mut tx = other.begin_with(at(isolation)).unwrap();
                    tx.insert(&table, &row([1, 1])).and_then(|()| tx.commit())
                });
                vfs::thread::sleep(Duration::from_millis(5));
                end(first, commits);
                let second = second.unwrap().join().unwrap();
                match commits {
                    true => assert_eq!(kind(second), ForeignKeyFailureKind::NoParent),
                    false => drop(second.unwrap()),
                }
            });
        }
    });
}

/// Guard: F1, the shared lock that is kept. Without it the parent goes under the child.
#[test]
fn a_parent_waits_for_a_child_that_is_coming() {
    each(|isolation, column, structure| {
        for commits in [true, false] {
            simulate(move |_| {
                let db = open(&disk());
                let (p, c) = family(&db, column, of(structure), ReferenceAction::Restrict);
                let mut first = db.begin_with(at(isolation)).unwrap();
                first.insert(&c, &row([1, 1])).unwrap();
                // Others may have children of the same parent.
                db.begin_with(at_once(isolation)).unwrap().insert(&c, &row([2, 1])).unwrap();
                waits(db.begin_with(at_once(isolation)).unwrap().delete_row(&p, &[1i64.into()]));
                let (other, table) = (db.clone(), p.clone());
                let second = vfs::thread::spawn("second", move || {
                    let mut tx = other.begin_with(at(isolation)).unwrap();
                    tx.delete_row(&table, &[1i64.into()]).and_then(|_| tx.commit())
                });
                vfs::thread::sleep(Duration::from_millis(5));
                end(first, commits);
                let second = second.unwrap().join().unwrap();
                match commits {
                    true => assert_eq!(kind(second), ForeignKeyFailureKind::HasChildren),
                    false => drop(second.unwrap()),
                }
            });
        }
    });
}

/// Guard: children are locked and looked at again. Without it a cascade deletes a child that has gone to another parent, or
/// misses that one stays.
#[test]
fn children_that_others_change_are_waited_for() {
    for (action, commits) in [
        (ReferenceAction::Restrict, true),
        (ReferenceAction::Restrict, false),
        (ReferenceAction::Cascade, true),
        (ReferenceAction::Cascade, false),
    ] {
        simulate(move |_| {
            let db = open(&disk());
            let (p, c) = family(&db, "id", small_nodes(), action);
            let mut tx = db.begin().unwrap();
            tx.insert(&p, &row([2, 2, 2])).unwrap();
            tx.insert(&c, &row([1, 1])).unwrap();
            tx.commit().unwrap();
            let mut first = db.begin().unwrap();
            assert!(first.update(&c, &row([1, 2])).unwrap());
            let (other, table) = (db.clone(), p.clone());
            let second = vfs::thread::spawn("second", move || {
                let mut tx = other.begin().unwrap();
                tx.delete_row(&table, &[1i64.into()]).and_then(|_| tx.commit())
            });
            vfs::thread::sleep(Duration::from_millis(5));
            end(first, commits);
            let second = second.unwrap().join().unwrap();
            let child = db.begin().unwrap().get_row(&c, &[1i64.into()]).unwrap();
            match (action, commits) {
                (ReferenceAction::Restrict, false) => assert_eq!(kind(second), ForeignKeyFailureKind::HasChildren),
                (_, true) => assert_eq!((second.is_ok(), child), (true, Some(row([1, 2])))),
                (_, false) => assert_eq!((second.is_ok(), child), (true, None)),
            }
        });
    }
}

/// Children of which more than one scan's piece is there, in an index that has another column behind theirs; one of the last moves
/// to the front, without another parent. Guard: children are found at one moment. Without it that one stays, without a parent.
#[test]
fn a_child_that_moves_within_its_key_is_found() {
    for (action, updates) in [
        (ReferenceAction::Cascade, false),
        (ReferenceAction::SetNull, false),
        (ReferenceAction::Cascade, true),
        (ReferenceAction::SetNull, true),
    ] {
        simulate(move |_| {
            let db = open(&disk());
            let columns = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]);
            let p = db.create_table("p", columns.build().unwrap()).unwrap();
            let columns = Schema::builder().column("id", ColumnType::I64).nullable("parent", ColumnType::I64);
            let columns = columns.column("o", ColumnType::I64).primary_key(&["id"]);
            let columns = columns.index(IndexSchema::new("by_parent", &["parent", "o"]));
            let foreign = ForeignKey::new("of", &["parent"], "p", &["id"]).on_delete(action).on_update(action);
            let c = db.create_table("c", columns.foreign_key(foreign).build().unwrap()).unwrap();
            let mut tx = db.begin().unwrap();
            tx.insert(&p, &row([1])).unwrap();
            (100..400).for_each(|n| tx.insert(&c, &row([n, 1, n])).unwrap());
            tx.commit().unwrap();
            let mut first = db.begin().unwrap();
            assert!(first.update(&c, &row([399, 1, 1])).unwrap());
            assert!(first.update(&c, &row([150, 1, 500])).unwrap()); // of the first piece: there the second waits
            let (other, table) = (db.clone(), p.clone());
            let second = vfs::thread::spawn("second", move || {
                let mut tx = other.begin().unwrap();
                match updates {
                    true => tx.move_row(&table, &[1i64.into()], &row([2])).unwrap(),
                    false => tx.delete_row(&table, &[1i64.into()]).unwrap(),
                };
                tx.commit().unwrap();
            });
            vfs::thread::sleep(Duration::from_millis(5));
            first.commit().unwrap();
            second.unwrap().join().unwrap();
            let (tx, one) = (db.begin().unwrap(), Value::I64(1));
            let mut rows = tx.scan(&c, trefoil::ALL).unwrap();
            while let Some(row) = rows.next().unwrap() {
                assert_ne!(row[1], one, "{row:?} has no parent");
            }
        });
    }
}

/// A table that waits to be made follows a parent that gets another name, and leaves nothing behind if it is not made. Guards:
/// `rows_of` passes it, else the database does not open any more; its definition is taken behind the wait.
#[test]
fn a_child_that_is_announced_follows_its_parents() {
    for made in [true, false] {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let (p, _) = family(&db, "id", small_nodes(), ReferenceAction::Restrict);
            let columns = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]);
            db.create_table("others", columns.build().unwrap()).unwrap();
            let mut first = db.begin().unwrap();
            assert!(first.delete_row(&p, &[1i64.into()]).unwrap());
            let columns = Schema::builder().column("kind", ColumnType::I64).primary_key(&["kind"]);
            let columns = columns.foreign_key(ForeignKey::new("k", &["kind"], "parents", &["kind"]));
            let schema = columns.foreign_key(ForeignKey::new("o", &["kind"], "others", &["id"])).build().unwrap();
            let other = db.clone();
            let second = vfs::thread::spawn("second", move || other.create_table("kinds", schema).map(drop));
            vfs::thread::sleep(Duration::from_millis(5));
            assert_eq!(db.references_to("others").len(), 1, "it is announced");
            db.rename_table("others", "renamed").unwrap();
            assert_eq!(db.references_to("renamed").len(), 1, "it follows");
            if made {
                first.commit().unwrap();
                second.unwrap().join().unwrap().unwrap();
            } else {
                let refused = second.unwrap().join().unwrap();
                assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
                first.rollback();
            }
            drop(p);
            let db = open(&cut(&disk, db));
            assert_eq!(db.table("kinds").is_ok(), made);
            assert_eq!(db.references_to("renamed").len(), usize::from(made));
        });
    }
}

/// Guard: `wait_for_unaware`. Without it the parent is removed without its key's lock, and the new table's row finds it.
#[test]
fn a_new_child_waits_for_who_does_not_know_of_it() {
    simulate(|_| {
        let db = open(&disk());
        let (p, _) = family(&db, "id", small_nodes(), ReferenceAction::Restrict);
        let mut first = db.begin().unwrap();
        assert!(first.delete_row(&p, &[1i64.into()]).unwrap());
        let columns = Schema::builder().column("kind", ColumnType::I64).primary_key(&["kind"]);
        let schema = columns.foreign_key(ForeignKey::new("k", &["kind"], "parents", &["kind"])).build().unwrap();
        let refused = db.create_table("kinds", schema.clone());
        assert!(matches!(refused, Err(Error::LockTimeout { .. })));
        assert!(db.table("kinds").is_err() && db.references_to("parents").len() == 1, "nothing is left of it");
        let other = db.clone();
        let second = vfs::thread::spawn("second", move || {
            let table = other.create_table("kinds", schema).unwrap();
            let mut tx = other.begin().unwrap();
            tx.insert(&table, &row([1])).and_then(|()| tx.commit())
        });
        vfs::thread::sleep(Duration::from_millis(5));
        first.commit().unwrap();
        assert_eq!(kind(second.unwrap().join().unwrap()), ForeignKeyFailureKind::NoParent);
    });
}

/// The same for a foreign key that is added, with its rows unchecked. Guard: `unaware_parents_of` in `parents_of_change`.
#[test]
fn a_foreign_key_added_unchecked_waits_for_who_does_not_know_of_it() {
    simulate(|_| {
        let db = open(&disk());
        let (p, _) = family(&db, "id", small_nodes(), ReferenceAction::Restrict);
        let columns = Schema::builder().column("kind", ColumnType::I64).primary_key(&["kind"]);
        let kinds = db.create_table("kinds", columns.build().unwrap()).unwrap();
        let mut first = db.begin().unwrap();
        assert!(first.delete_row(&p, &[1i64.into()]).unwrap());
        let other = db.clone();
        let second = vfs::thread::spawn("second", move || {
            let foreign = ForeignKey::new("k", &["kind"], "parents", &["kind"]);
            let options = ChangeOptions { unchecked_foreign_keys: true, ..ChangeOptions::default() };
            other.changing(options).alter_table(&kinds, &TableChanges::new().add_foreign_key(foreign)).unwrap();
            let mut tx = other.begin().unwrap();
            tx.insert(&kinds, &row([1])).and_then(|()| tx.commit())
        });
        vfs::thread::sleep(Duration::from_millis(5));
        first.commit().unwrap();
        assert_eq!(kind(second.unwrap().join().unwrap()), ForeignKeyFailureKind::NoParent);
    });
}

/// Guard: the turns of parents. Without them the second meets the gate that the first has closed, and opens it.
#[test]
fn foreign_keys_added_to_one_parent_take_turns() {
    simulate(|_| {
        let db = open(&disk());
        let (p, _) = family(&db, "id", small_nodes(), ReferenceAction::Restrict);
        let mut first = db.begin().unwrap();
        assert!(first.update(&p, &row([1, 2, 2])).unwrap());
        let add = |n: usize| {
            let columns = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]);
            let t = db.create_table(&format!("t{n}"), columns.build().unwrap()).unwrap();
            let (db, foreign) = (db.clone(), ForeignKey::new("f", &["id"], "parents", &["id"]));
            let body = move || db.alter_table(&t, &TableChanges::new().add_foreign_key(foreign)).unwrap();
            vfs::thread::spawn("adds", body).unwrap()
        };
        let both = [add(1), add(2)];
        vfs::thread::sleep(Duration::from_millis(5));
        first.commit().unwrap();
        both.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(db.references_to("parents").len(), 3);
    });
}

/// Guard: a foreign key is looked up again behind its table's gate. Without it the cascade has a column's name of before.
#[test]
fn a_cascade_meets_a_child_whose_column_got_another_name() {
    simulate(|_| {
        let db = open(&disk());
        let (p, c) = family(&db, "id", small_nodes(), ReferenceAction::Cascade);
        let mut first = db.begin().unwrap();
        first.insert(&c, &row([1, 1])).unwrap();
        first.commit().unwrap();
        let mut first = db.begin().unwrap();
        first.set_foreign_key_checks(false);
        first.insert(&c, &row([2, 7])).unwrap();
        let (other, table) = (db.clone(), c.clone());
        let body = move || other.alter_table(&table, &TableChanges::new().rename_column("parent", "of")).unwrap();
        let renames = vfs::thread::spawn("renames", body).unwrap();
        vfs::thread::sleep(Duration::from_millis(2));
        let (other, table) = (db.clone(), p.clone());
        let deletes = vfs::thread::spawn("deletes", move || {
            let mut tx = other.begin().unwrap();
            tx.delete_row(&table, &[1i64.into()]).and_then(|_| tx.commit())
        });
        vfs::thread::sleep(Duration::from_millis(2));
        first.commit().unwrap();
        renames.join().unwrap();
        deletes.unwrap().join().unwrap().unwrap();
        assert_eq!(db.begin().unwrap().get_row(&c, &[1i64.into()]).unwrap(), None);
    });
}

/// Guard: `foreign_key_before`. Without it rows are not looked at by a foreign key of a column that gets its name with it.
#[test]
fn rows_are_checked_when_a_column_gets_its_name_with_the_foreign_key() {
    simulate(|_| {
        let db = open(&disk());
        family(&db, "id", small_nodes(), ReferenceAction::Restrict);
        let columns = Schema::builder().column("a", ColumnType::I64).primary_key(&["a"]);
        let t = db.create_table("t", columns.build().unwrap()).unwrap();
        let mut tx = db.begin().unwrap();
        tx.insert(&t, &row([7])).unwrap();
        tx.commit().unwrap();
        let foreign = ForeignKey::new("f", &["b"], "parents", &["id"]);
        let both = TableChanges::new().rename_column("a", "b").add_foreign_key(foreign);
        assert_eq!(kind(db.alter_table(&t, &both)), ForeignKeyFailureKind::NoParent);
    });
}

/// Guards: `references::retake`, each of its two steps, in memory and from run files.
#[test]
fn what_is_prepared_keeps_its_keys_across_a_restart() {
    for column in COLUMNS {
        for (child_first, through_runs) in [(true, false), (true, true), (false, false), (false, true)] {
            simulate(move |_| {
                let disk = disk();
                let db = open(&disk);
                let (p, c) = family(&db, column, small_nodes(), ReferenceAction::Restrict);
                let mut tx = db.begin().unwrap();
                match child_first {
                    true => tx.insert(&c, &row([1, 1])).unwrap(),
                    false => assert!(tx.delete_row(&p, &[1i64.into()]).unwrap()),
                }
                tx.prepare(b"x").unwrap();
                if through_runs {
                    db.checkpoint().unwrap();
                }
                drop((p, c));
                let disk = cut(&disk, db);
                let db = open(&disk);
                let (p, c) = (db.table("parents").unwrap(), db.table("children").unwrap());
                let mut second = db.begin_with(at_once(Isolation::ReadCommitted)).unwrap();
                match child_first {
                    true => waits(second.delete_row(&p, &[1i64.into()])),
                    false => waits(second.insert(&c, &row([1, 1]))),
                }
                drop(second);
                db.commit_prepared(b"x").unwrap();
                let mut second = db.begin().unwrap();
                match child_first {
                    true => {
                        assert_eq!(kind(second.delete_row(&p, &[1i64.into()])), ForeignKeyFailureKind::HasChildren);
                    }
                    false => assert_eq!(kind(second.insert(&c, &row([1, 1]))), ForeignKeyFailureKind::NoParent),
                }
            });
        }
    }
}

/// Two that each want what the other has: one is rolled back, and no child is without a parent. Guard: these are locks like any
/// other, with their place in the search for deadlocks.
#[test]
fn deadlocks_over_parents_end() {
    simulate(|_| {
        let db = open(&disk());
        let (p, c) = family(&db, "id", small_nodes(), ReferenceAction::Restrict);
        let barrier = Arc::new(vfs::sync::Mutex::new(0));
        let both: Vec<_> = (0..2)
            .map(|n| {
                let (db, p, c, barrier) = (db.clone(), p.clone(), c.clone(), barrier.clone());
                let body = move || {
                    let mut tx = db.begin().unwrap();
                    tx.insert(&c, &row([n, 1])).unwrap();
                    *barrier.lock() += 1;
                    while *barrier.lock() < 2 {
                        vfs::thread::sleep(Duration::from_millis(1));
                    }
                    tx.delete_row(&p, &[1i64.into()]).and_then(|_| tx.commit())
                };
                vfs::thread::spawn("one of two", body).unwrap()
            })
            .collect();
        let outcomes: Vec<_> = both.into_iter().map(|one| one.join().unwrap()).collect();
        assert!(outcomes.iter().any(|one| matches!(one, Err(Error::Deadlock { .. }))), "{outcomes:?}");
        let refused = |one: &Result<_, Error>| matches!(one, Err(Error::ForeignKey(_)));
        assert_eq!(outcomes.iter().filter(|one| refused(one)).count(), 1, "{outcomes:?}");
    });
}
