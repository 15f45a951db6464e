//! Foreign keys beside changes of definitions: who waits at a parent, and for how long; a parent whose name goes from one table to
//! another. Every test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{disk, open, simulate, sleep, small_nodes, spawn};
use trefoil::{
    ChangeOptions, ColumnType, Database, Error, ForeignKey, ForeignKeyFailureKind, IndexSchema, Schema, Table,
    TableChanges, Transaction, TransactionOptions, Value,
};
use vfs::thread::JoinHandle;
use vfs::time::Instant;

/// Parents (id, kind).
fn parents() -> Schema {
    let columns = Schema::builder().column("id", ColumnType::I64).column("kind", ColumnType::I64);
    let columns = columns.primary_key(&["id"]).primary_options(small_nodes());
    columns.index(IndexSchema::new("by_kind", &["kind"]).with_options(small_nodes())).build().unwrap()
}

/// Children (id, parent) of a column of the parents.
fn children(column: &str) -> Schema {
    let columns = Schema::builder().column("id", ColumnType::I64).column("parent", ColumnType::I64);
    let columns = columns.primary_key(&["id"]).primary_options(small_nodes());
    let columns = columns.index(IndexSchema::new("by_parent", &["parent"]).with_options(small_nodes()));
    columns.foreign_key(ForeignKey::new("of", &["parent"], "parents", &[column])).build().unwrap()
}

fn row(numbers: [i64; 2]) -> [Value<'static>; 2] {
    numbers.map(Value::from)
}

fn add(db: &Database, table: &Table, numbers: [i64; 2]) -> Result<(), Error> {
    let mut tx = db.begin()?;
    tx.insert(table, &row(numbers))?;
    tx.commit().map(drop)
}

/// Parents with the row (1, 1), and their children.
fn family(db: &Database, column: &str) -> (Table, Table) {
    let p = db.create_table("parents", parents()).unwrap();
    add(db, &p, [1, 1]).unwrap();
    (p, db.create_table("children", children(column)).unwrap())
}

fn is_orphan<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::ForeignKey(failure)) if failure.kind == ForeignKeyFailureKind::NoParent)
}

fn patient(db: &Database, timeout: Duration) -> Transaction {
    db.begin_with(TransactionOptions { lock_timeout: Some(timeout), ..TransactionOptions::default() }).unwrap()
}

/// For changes that wait longer than any transaction here.
fn changing(db: &Database) -> Database {
    db.changing(ChangeOptions { lock_timeout: Some(Duration::from_secs(60)), ..ChangeOptions::default() })
}

/// As ALTER TABLE by a copy gives names.
fn swapping(db: &Database) -> Database {
    db.changing(ChangeOptions { leave_references: true, unchecked_foreign_keys: true, ..ChangeOptions::default() })
}

/// A wait that is longer than it may be, and one that is cancelled, both by statements after which their transaction goes on.
fn ends_in_time_and_when_cancelled(db: &Database, c: &Table) {
    let mut tx = patient(db, Duration::from_millis(200));
    let refused = tx.insert(c, &row([2, 1]));
    assert!(matches!(&refused, Err(Error::LockTimeout { index, .. }) if index == "parents"), "{refused:?}");
    let mut tx = patient(db, Duration::from_secs(30));
    let (canceller, table) = (tx.canceller(), c.clone());
    let waits = spawn("waits", move || (tx.insert(&table, &row([3, 1])), tx));
    sleep(100);
    canceller.cancel();
    let (refused, tx) = waits.join().unwrap();
    assert!(matches!(refused, Err(Error::Cancelled)), "{refused:?}");
    tx.clear_cancelled();
    assert_eq!(tx.get_row(c, &[3i64.into()]).unwrap(), None);
    tx.commit().unwrap();
}

/// Guard: `WaitForChange::look`, its time limit and its look at the cancellation.
#[test]
fn a_wait_at_a_parents_gate_ends_in_time_and_when_cancelled() {
    simulate(|_| {
        let db = open(&disk());
        let (p, c) = family(&db, "id");
        let mut first = db.begin().unwrap();
        first.insert(&c, &row([1, 1])).unwrap();
        let (other, table) = (db.clone(), p.clone());
        let changes = TableChanges::new().add_nullable("more", ColumnType::I64, Value::Null);
        let change = spawn("changes", move || changing(&other).alter_table(&table, &changes));
        sleep(10);
        ends_in_time_and_when_cancelled(&db, &c);
        let (other, table) = (db.clone(), c.clone());
        let waits = spawn("waits", move || {
            let mut tx = patient(&other, Duration::from_secs(30));
            tx.insert(&table, &row([4, 1])).and_then(|()| tx.commit())
        });
        sleep(100);
        first.commit().unwrap();
        change.join().unwrap().unwrap();
        waits.join().unwrap().unwrap();
    });
}

/// Guard: `check_unreferenced` before the gate is closed. Without it a drop that cannot be waits for a child's writer first.
#[test]
fn a_parent_that_may_not_go_is_refused_at_once() {
    simulate(|_| {
        let db = open(&disk());
        let (_, c) = family(&db, "id");
        let mut first = db.begin().unwrap();
        first.insert(&c, &row([1, 1])).unwrap();
        let refused = db.drop_table("parents");
        assert!(matches!(refused, Err(Error::NeededByForeignKey { .. })), "{refused:?}");
        let refused = db.truncate_table("parents").map(drop);
        assert!(matches!(refused, Err(Error::NeededByForeignKey { .. })), "{refused:?}");
        first.commit().unwrap();
    });
}

/// Guard: foreign keys are looked up again behind the gate of a parent. Without it the parent's column is looked for by its name
/// of before.
#[test]
fn a_child_that_waited_at_its_parent_knows_its_columns_new_name() {
    simulate(|_| {
        let db = open(&disk());
        let (p, c) = family(&db, "kind");
        let mut first = db.begin().unwrap();
        first.insert(&c, &row([1, 1])).unwrap();
        let (other, table) = (db.clone(), p.clone());
        let changes = TableChanges::new().rename_column("kind", "sort");
        let change = spawn("changes", move || changing(&other).alter_table(&table, &changes));
        sleep(10);
        let (other, table) = (db.clone(), c.clone());
        let waits = spawn("waits", move || {
            let mut tx = patient(&other, Duration::from_secs(30));
            tx.insert(&table, &row([2, 1])).and_then(|()| tx.commit())
        });
        sleep(100);
        first.commit().unwrap();
        change.join().unwrap().unwrap();
        waits.join().unwrap().unwrap();
    });
}

/// Guard: `Names::left`. Without it the child finds no parent while the name is nobody's.
#[test]
fn a_child_waits_while_its_parents_name_goes_to_another_table() {
    simulate(|_| {
        let db = open(&disk());
        let (_, c) = family(&db, "id");
        let copy = db.create_table("copy", parents()).unwrap();
        add(&db, &copy, [1, 1]).unwrap();
        swapping(&db).rename_table("parents", "before").unwrap();
        ends_in_time_and_when_cancelled(&db, &c);
        // Who has it not to do with the parent goes on.
        let mut tx = patient(&db, Duration::ZERO);
        tx.set_foreign_key_checks(false);
        tx.insert(&c, &row([5, 1])).unwrap();
        tx.rollback();
        let (other, table) = (db.clone(), c.clone());
        let waits = spawn("waits", move || {
            let mut tx = patient(&other, Duration::from_secs(30));
            tx.insert(&table, &row([1, 1])).and_then(|()| tx.commit())
        });
        sleep(100);
        swapping(&db).rename_table("copy", "parents").unwrap();
        waits.join().unwrap().unwrap();
        db.drop_table("before").unwrap();
        assert!(is_orphan(&add(&db, &c, [2, 7])));
    });
}

/// Guards: who has left the name is known, so that it can come back, and cannot once it is dropped.
#[test]
fn a_parents_name_is_waited_for_as_long_as_it_may_come_back() {
    simulate(|_| {
        let db = open(&disk());
        let (_, c) = family(&db, "id");
        swapping(&db).rename_table("parents", "before").unwrap();
        swapping(&db).rename_table("before", "parents").unwrap();
        add(&db, &c, [1, 1]).unwrap();
        swapping(&db).rename_table("parents", "before").unwrap();
        swapping(&db).drop_table("before").unwrap();
        assert!(is_orphan(&add(&db, &c, [2, 1])));
        let p = db.create_table("parents", parents()).unwrap();
        add(&db, &p, [1, 1]).unwrap();
        swapping(&db).rename_table("parents", "before").unwrap();
        // Another name: it is not to come back.
        db.rename_table("before", "elsewhere").unwrap();
        assert!(is_orphan(&add(&db, &c, [2, 1])));
        swapping(&db).rename_table("elsewhere", "parents").unwrap();
        swapping(&db).rename_table("parents", "before").unwrap();
        db.create_table("parents", parents()).unwrap();
        assert!(is_orphan(&add(&db, &c, [2, 1])));
        swapping(&db).drop_table("parents").unwrap();
        assert!(is_orphan(&add(&db, &c, [2, 1])), "the new one was there, and left nothing to come back");
    });
}

/// Guard: `step_of_rename`. Without it the row of the table that becomes the parent is found, and then goes without a look for
/// children.
#[test]
fn a_table_that_becomes_a_parent_by_its_name_waits_for_who_does_not_know() {
    simulate(|_| {
        let db = open(&disk());
        let unchecked = ChangeOptions { unchecked_foreign_keys: true, ..ChangeOptions::default() };
        let c = db.changing(unchecked).create_table("children", children("kind")).unwrap();
        let p = db.create_table("others", parents()).unwrap();
        add(&db, &p, [1, 1]).unwrap();
        let mut first = db.begin().unwrap();
        assert!(first.delete_row(&p, &[1i64.into()]).unwrap());
        let refused = db.rename_table("others", "parents");
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
        assert!(db.table("others").is_ok());
        let (other, table) = (db.clone(), c.clone());
        let second = spawn("second", move || {
            changing(&other).rename_table("others", "parents").unwrap();
            add(&other, &table, [1, 1])
        });
        sleep(10);
        first.commit().unwrap();
        assert!(is_orphan(&second.join().unwrap()));
        // Behind the name writers know.
        add(&db, &p, [2, 2]).unwrap();
        add(&db, &c, [2, 2]).unwrap();
        assert!(db.begin().unwrap().delete_row(&p, &[2i64.into()]).is_err());
    });
}

/// Starts somebody who writes children of the parent 1 without pause, each transaction as long as that, until `enough`.
fn writes_children(db: &Database, c: &Table, from: i64, takes_ms: u64, enough: &Arc<AtomicBool>) -> JoinHandle<i64> {
    let (db, c, enough) = (db.clone(), c.clone(), enough.clone());
    spawn("writes", move || {
        let mut next = from;
        while !enough.load(Ordering::Relaxed) {
            let mut tx = patient(&db, Duration::from_secs(60));
            tx.insert(&c, &row([next, 1])).unwrap();
            sleep(takes_ms);
            tx.commit().unwrap();
            next += 1;
        }
        next - from
    })
}

/// A parent whose children are written all the time leaves its name once, with none of their writers inside; these go on with the
/// table that gets the name. Guard: the gate stays closed over the name's change, `without_writers` in `step_of_rename`.
#[test]
fn a_parent_of_busy_children_leaves_its_name_with_nobody_inside() {
    simulate(|_| {
        let db = open(&disk());
        let (_, c) = family(&db, "id");
        let copy = db.create_table("copy", parents()).unwrap();
        add(&db, &copy, [1, 1]).unwrap();
        let leaving = |timeout| {
            let names =
                ChangeOptions { leave_references: true, unchecked_foreign_keys: true, ..ChangeOptions::default() };
            db.changing(ChangeOptions { without_writers: true, lock_timeout: Some(timeout), ..names })
        };
        let mut first = db.begin().unwrap();
        first.insert(&c, &row([1, 1])).unwrap();
        let refused = leaving(Duration::ZERO).rename_table("parents", "before");
        assert!(matches!(&refused, Err(Error::LockTimeout { index, .. }) if index == "parents"), "{refused:?}");
        first.commit().unwrap();
        let enough = Arc::new(AtomicBool::new(false));
        let writers = [100, 200].map(|from| {
            sleep(15);
            writes_children(&db, &c, from, 30, &enough)
        });
        sleep(100);
        let began = Instant::now();
        leaving(Duration::from_secs(60)).rename_table("parents", "before").unwrap();
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
        // Of those who came meanwhile none has a key of the table of before.
        let before = db.table("before").unwrap();
        assert!(patient(&db, Duration::ZERO).delete_row(&before, &[1i64.into()]).unwrap());
        swapping(&db).rename_table("copy", "parents").unwrap();
        sleep(100);
        enough.store(true, Ordering::Relaxed);
        let written: i64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        let (tx, mut found) = (db.begin().unwrap(), 0);
        let mut rows = tx.scan(&c, (Bound::<&[Value<'_>]>::Unbounded, Bound::Unbounded)).unwrap();
        while rows.next().unwrap().is_some() {
            found += 1;
        }
        assert_eq!(found, written + 1);
    });
}

/// T1 is inside the gate, waits for T2's row, and T2 waits at the gate: nobody sees that ring. Guard: `close_gates` opens it for a
/// moment.
#[test]
fn a_ring_through_a_gate_that_is_closed_ends() {
    simulate(|_| {
        let db = open(&disk());
        let (p, c) = family(&db, "id");
        let others = db.create_table("others", parents()).unwrap();
        add(&db, &others, [1, 1]).unwrap();
        let mut first = patient(&db, Duration::from_secs(60));
        first.insert(&c, &row([1, 1])).unwrap();
        let mut second = patient(&db, Duration::from_secs(60));
        assert!(second.delete_row(&others, &[1i64.into()]).unwrap());
        let (other, table) = (db.clone(), p.clone());
        let changes = TableChanges::new().add_nullable("more", ColumnType::I64, Value::Null);
        let change = spawn("changes", move || changing(&other).alter_table(&table, &changes));
        sleep(10);
        let child = c.clone();
        let second = spawn("second", move || second.insert(&child, &row([2, 1])).and_then(|()| second.commit()));
        sleep(10);
        let began = Instant::now();
        assert!(!first.delete_row(&others, &[1i64.into()]).unwrap(), "it waits for the second one");
        first.commit().unwrap();
        second.join().unwrap().unwrap();
        change.join().unwrap().unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

/// Transactions that last longer than a gate is closed at first, one of them inside at any time, do not keep a change out for good.
/// Guard: `close_gates` closes it for longer each time.
#[test]
fn a_gate_is_closed_for_as_long_as_its_writers_take() {
    simulate(|_| {
        let db = open(&disk());
        let (p, c) = family(&db, "id");
        let enough = Arc::new(AtomicBool::new(false));
        let writers = [100, 200].map(|from| {
            sleep(1000);
            writes_children(&db, &c, from, 1500, &enough)
        });
        sleep(700);
        let changes = TableChanges::new().add_nullable("more", ColumnType::I64, Value::Null);
        changing(&db).alter_table(&p, &changes).unwrap();
        enough.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| assert!(writer.join().unwrap() > 0));
    });
}

/// Who waited at the gate of a parent that left its name meanwhile is inside that table no more: it can be dropped beside the open
/// transaction. Guard: `enter_parent` leaves a table whose name it has no more.
#[test]
fn a_parent_that_left_its_name_is_dropped_beside_who_waited_for_it() {
    simulate(|_| {
        let db = open(&disk());
        let (_, c) = family(&db, "id");
        let copy = db.create_table("copy", parents()).unwrap();
        add(&db, &copy, [1, 1]).unwrap();
        let mut first = db.begin().unwrap();
        first.insert(&c, &row([1, 1])).unwrap();
        let other = db.clone();
        let leaves = spawn("leaves", move || {
            let names =
                ChangeOptions { leave_references: true, unchecked_foreign_keys: true, ..ChangeOptions::default() };
            let names = ChangeOptions { without_writers: true, lock_timeout: Some(Duration::from_secs(60)), ..names };
            other.changing(names).rename_table("parents", "before")
        });
        sleep(10);
        let (other, table) = (db.clone(), c.clone());
        let waits = spawn("waits", move || {
            let mut tx = patient(&other, Duration::from_secs(60));
            tx.insert(&table, &row([2, 1])).map(|()| tx)
        });
        sleep(10);
        first.commit().unwrap();
        leaves.join().unwrap().unwrap();
        sleep(100);
        let names = ChangeOptions { leave_references: true, unchecked_foreign_keys: true, ..ChangeOptions::default() };
        let at_once = ChangeOptions { lock_timeout: Some(Duration::from_secs(1)), ..names };
        swapping(&db).rename_table("copy", "parents").unwrap();
        let second = waits.join().unwrap().unwrap();
        db.changing(at_once).drop_table("before").unwrap();
        assert!(matches!(db.table("before"), Err(Error::NotFound { .. })));
        // It is inside the table that has the name.
        let parents = db.table("parents").unwrap();
        assert!(matches!(
            patient(&db, Duration::ZERO).delete_row(&parents, &[1i64.into()]),
            Err(Error::LockTimeout { .. })
        ));
        second.commit().unwrap();
    });
}

/// Children (id, parent) without a foreign key, and the change that adds it.
fn plain_children() -> (Schema, TableChanges) {
    let columns = Schema::builder().column("id", ColumnType::I64).column("parent", ColumnType::I64);
    let columns = columns.primary_key(&["id"]);
    let plain = columns.index(IndexSchema::new("by_parent", &["parent"]).with_options(small_nodes())).build().unwrap();
    (plain, TableChanges::new().add_foreign_key(ForeignKey::new("of", &["parent"], "parents", &["id"])))
}

/// A foreign key is added: T1 is inside the child, waits for T2's row, and T2 waits at the parent. Guard: `close_gates` opens all
/// of them together.
#[test]
fn a_ring_through_a_parent_of_a_new_foreign_key_ends() {
    simulate(|_| {
        let db = open(&disk());
        let p = db.create_table("parents", parents()).unwrap();
        let (plain, adding) = plain_children();
        let c = db.create_table("children", plain).unwrap();
        let others = db.create_table("others", parents()).unwrap();
        [&p, &others].into_iter().for_each(|table| add(&db, table, [1, 1]).unwrap());
        let mut first = patient(&db, Duration::from_secs(60));
        first.insert(&c, &row([1, 1])).unwrap();
        let mut second = patient(&db, Duration::from_secs(60));
        assert!(second.delete_row(&others, &[1i64.into()]).unwrap());
        let (other, table) = (db.clone(), c.clone());
        let change = spawn("changes", move || changing(&other).alter_table(&table, &adding));
        sleep(10);
        let parent = p.clone();
        let second = spawn("second", move || second.insert(&parent, &row([2, 1])).and_then(|()| second.commit()));
        sleep(10);
        let began = Instant::now();
        assert!(!first.delete_row(&others, &[1i64.into()]).unwrap(), "it waits for the second one");
        first.commit().unwrap();
        second.join().unwrap().unwrap();
        change.join().unwrap().unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

/// While a backup keeps the catalog, who adds a foreign key keeps nobody out of its tables. Guard: `step_alone_in` opens all gates
/// before it waits for the step.
#[test]
fn parents_are_open_while_a_backup_keeps_the_catalog() {
    simulate(|_| {
        let db = open(&disk());
        let p = db.create_table("parents", parents()).unwrap();
        let (plain, adding) = plain_children();
        let c = db.create_table("children", plain).unwrap();
        add(&db, &p, [1, 1]).unwrap();
        let change = std::cell::Cell::new(None);
        let around = |moment: &mut trefoil::BackupMoment<'_>| {
            let (other, table, adding) = (db.clone(), c.clone(), adding.clone());
            change.set(Some(spawn("changes", move || changing(&other).alter_table(&table, &adding))));
            sleep(100);
            for (table, numbers) in [(&p, [2, 1]), (&c, [1, 1])] {
                let mut tx = patient(&db, Duration::ZERO);
                tx.insert(table, &row(numbers)).unwrap();
                tx.commit().unwrap();
            }
            moment.come();
            std::ops::ControlFlow::Continue(())
        };
        db.backup().moment(&around).to("/backup").unwrap();
        change.take().unwrap().join().unwrap().unwrap();
    });
}

/// Transactions that take two fifths of what a change may wait, one of them inside at any time, do not make it fail. Guard: the last
/// time a gate is closed for all that is left.
#[test]
fn the_last_time_a_gate_is_closed_for_all_that_is_left() {
    simulate(|_| {
        let db = open(&disk());
        let (p, c) = family(&db, "id");
        let enough = Arc::new(AtomicBool::new(false));
        let writers = [(100, 10_000), (200, 5_000)].map(|(from, then)| {
            let writer = writes_children(&db, &c, from, 20_000, &enough);
            sleep(then);
            writer
        });
        let changes = TableChanges::new().add_nullable("more", ColumnType::I64, Value::Null);
        let wait = ChangeOptions { lock_timeout: Some(Duration::from_secs(50)), ..ChangeOptions::default() };
        db.changing(wait).alter_table(&p, &changes).unwrap();
        enough.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| assert!(writer.join().unwrap() > 0));
    });
}
