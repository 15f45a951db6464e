//! A row that was read for its change and is not looked for again (`transaction/last_row.rs`): what is changed is what is there. Every test says
//! which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::*;
use trefoil::{ALL, Database, Error, Isolation, LockMode, Locking, Table, Transaction, Value};

const X: LockMode = LockMode::Exclusive;

/// Rows 0 to 399 with an index of their colours, of which row 1 has 1.
fn coloured(db: &Database) -> Table {
    let t = made(db);
    db.create_table_indexes(&t, vec![by_colour()]).unwrap();
    t
}

fn id(n: u64) -> [Value<'static>; 1] {
    [Value::U64(n)]
}

fn colour(tx: &mut Transaction, t: &Table, n: u64, colour: u32) {
    assert!(tx.update(t, &[Value::U64(n), Value::U32(colour)]).unwrap());
}

/// Row 1 has another colour, whatever its reader thinks.
fn changed_by_another(db: &Database, t: &Table) {
    let mut other = db.begin().unwrap();
    colour(&mut other, t, 1, 100);
    other.commit().unwrap();
}

/// Row 1 has colour 200 at the end, and the index says the same.
fn ends_well(db: &Database, t: &Table, mut tx: Transaction) {
    colour(&mut tx, t, 1, 200);
    tx.commit().unwrap();
    assert_eq!(db.begin().unwrap().get_row(t, &id(1)).unwrap().unwrap()[1], Value::U32(200));
    agrees(db, t, "by_colour");
}

/// The row went and came between. Guard: `take_kept` compares the place of the writes.
#[test]
fn what_the_transaction_has_written_since_counts() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db);
        let mut tx = db.begin().unwrap();
        tx.get_row_locked(&t, &id(1), X).unwrap().unwrap();
        assert_eq!(tx.delete_first(&t, ALL, 2).unwrap(), 2);
        tx.insert(&t, &[Value::U64(1), Value::U32(100)]).unwrap();
        ends_well(&db, &t, tx);
    });
}

/// What was read is taken back, and as much is written of another row. Guard: `take_back` forgets the row.
#[test]
fn what_is_taken_back_is_not_kept() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db);
        let mut tx = db.begin().unwrap();
        let start = tx.savepoint();
        colour(&mut tx, &t, 1, 100);
        assert_eq!(tx.get_row_locked(&t, &id(1), X).unwrap().unwrap()[1], Value::U32(100));
        tx.rollback_to(start).unwrap();
        colour(&mut tx, &t, 5, 100);
        ends_well(&db, &t, tx);
    });
}

/// The lock is given back, and another changes the row. Guard: `unlock_row` forgets the row.
#[test]
fn what_is_unlocked_is_not_kept() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db);
        let tx = db.begin_with(Isolation::ReadCommitted).unwrap();
        tx.get_row_locked(&t, &id(1), X).unwrap().unwrap();
        assert!(tx.unlock_row());
        changed_by_another(&db, &t);
        ends_well(&db, &t, tx);
    });
}

/// The same while the row is looked at. Guard: `keep` compares the turn.
#[test]
fn what_is_unlocked_while_it_is_looked_at_is_not_kept() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db);
        let tx = db.begin_with(Isolation::ReadCommitted).unwrap();
        assert_eq!(tx.get_row_locked_with(&t, &id(1), X, |_| Ok(tx.unlock_row())).unwrap(), Some(true));
        changed_by_another(&db, &t);
        ends_well(&db, &t, tx);
    });
}

/// A shared lock does not do for a change. Guard: `get_row_locked_with` keeps what is locked exclusively alone.
#[test]
fn a_row_that_others_may_read_under_locks_is_locked_again() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db);
        let (mut first, second) = (db.begin().unwrap(), db.begin().unwrap());
        for tx in [&first, &second] {
            tx.get_row_locked(&t, &id(1), LockMode::Shared).unwrap().unwrap();
        }
        first.set_lock_timeout(std::time::Duration::from_millis(20));
        let refused = first.update(&t, &[Value::U64(1), Value::U32(100)]);
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
    });
}

/// The lock of a row that was changed is not given back. Guard: `take_kept` says that it is no read's any more.
#[test]
fn the_lock_of_what_was_changed_stays() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db);
        let mut tx = db.begin_with(Isolation::ReadCommitted).unwrap();
        tx.get_row_locked(&t, &id(1), X).unwrap().unwrap();
        colour(&mut tx, &t, 1, 100);
        assert!(!tx.unlock_row());
        let busy = db.begin().unwrap().get_row_locked(&t, &id(1), Locking::SHARED.no_wait());
        assert!(matches!(busy, Err(Error::LockBusy { .. })), "{busy:?}");
    });
}

/// Another table has a row of the same key. Guard: `take_kept` compares the index.
#[test]
fn a_row_of_another_table_is_another() {
    simulate(|_| {
        let db = open(&disk());
        let (t, other) = (coloured(&db), table(&db, "other"));
        let mut tx = db.begin().unwrap();
        tx.insert(&other, &[Value::U64(1), Value::U32(100)]).unwrap();
        tx.get_row_locked(&other, &id(1), X).unwrap().unwrap();
        ends_well(&db, &t, tx);
    });
}

/// Guard: `take_kept` compares the key.
#[test]
fn another_row_is_another() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db);
        let tx = db.begin().unwrap();
        tx.get_row_locked(&t, &id(2), X).unwrap().unwrap();
        ends_well(&db, &t, tx);
    });
}
