//! Rows read along a secondary index, and locked ahead. Every test says which guard it stands for: with that guard removed it
//! fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;

use crate::support::*;
use trefoil::{
    ALL, Database, EntryRef, Error, IndexRows, IndexSchema, Isolation, Judged, LockMode, Locking, Table, Transaction,
    Value,
};

const NOW: Locking = Locking::EXCLUSIVE.no_wait();

fn coloured(db: &Database, rows: u64) -> Table {
    let t = table(db, "t");
    db.create_table_indexes(&t, vec![by_colour()]).unwrap();
    insert(db, &t, 0..rows).unwrap();
    t
}

fn id(row: &[Value<'_>]) -> u64 {
    match row[0] {
        Value::U64(id) => id,
        _ => panic!("an id"),
    }
}

fn ids(mut rows: IndexRows<'_>) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(row) = rows.next_row().unwrap() {
        all.push(id(&row.values().unwrap()));
    }
    all
}

fn is_free(db: &Database, t: &Table, id: u64) -> bool {
    match db.begin().unwrap().get_row_locked(t, &[Value::U64(id)], NOW) {
        Ok(_) => true,
        Err(Error::LockBusy { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

fn change(db: &Database, t: &Table, id: u64, colour: u32) {
    let mut tx = db.begin().unwrap();
    assert!(tx.update(t, &[Value::U64(id), Value::U32(colour)]).unwrap());
    tx.commit().unwrap();
}

/// Rows come in the order of the entries, with the own writes on top, whatever is expected, both ways, and under locks the
/// same. Guard: `read` puts rows back in the order of the entries.
#[test]
fn rows_come_in_the_order_of_the_entries() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db, 100);
        let mut tx = db.begin().unwrap();
        tx.delete_row(&t, &[Value::U64(14)]).unwrap();
        tx.update(&t, &[Value::U64(50), Value::U32(3)]).unwrap();
        tx.insert(&t, &[Value::U64(500), Value::U32(2)]).unwrap();
        let mut expected = Vec::new();
        let mut entries = tx.scan_index(&t, "by_colour", ALL).unwrap();
        while let Some(entry) = entries.next().unwrap() {
            expected.push(id(&entry[1..]));
        }
        assert_eq!(expected.len(), 100);
        let back: Vec<u64> = expected.iter().rev().copied().collect();
        for n in [1, 3, 64, 1024] {
            assert_eq!(ids(tx.scan_index_rows(&t, "by_colour", ALL).unwrap().expect(n)), expected);
            assert_eq!(ids(tx.scan_index_rows_back(&t, "by_colour", ALL).unwrap().expect(n)), back);
            let locked = tx.scan_index_rows_locked(&t, "by_colour", ALL, LockMode::Shared).unwrap().expect(n);
            assert_eq!(ids(locked), expected);
            let locked = tx.scan_index_rows_back_locked(&t, "by_colour", ALL, LockMode::Shared).unwrap().expect(n);
            assert_eq!(ids(locked), back);
        }
        let threes = [Value::U32(3)];
        let range = (Bound::Included(&threes[..]), Bound::Included(&threes[..]));
        let rows = tx.scan_index_rows(&t, "by_colour", range).unwrap();
        assert_eq!(ids(rows).len(), 15);
    });
}

/// What is read along a clustering index is in its entries: of the rows no leaf is read, under locks neither. Guard: `fill` leaves
/// out `read`.
#[test]
fn rows_of_a_clustering_index_are_in_its_entries() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let t = table(&db, "t");
        let whole = IndexSchema::new("whole", &["colour"]).clustering().with_options(small_nodes());
        db.create_table_indexes(&t, vec![by_colour(), whole]).unwrap();
        insert(&db, &t, 0..2000).unwrap();
        change(&db, &t, 5, 3);
        db.checkpoint().unwrap();
        drop((t, db));
        // What recovery has read is not counted.
        drop(open(&disk));
        let threes = [Value::U32(3)];
        let range = (Bound::Included(&threes[..]), Bound::Included(&threes[..]));
        let pages = |index: &str, locked: bool| {
            let db = open(&disk);
            let t = db.table("t").unwrap();
            let before = db.stats().cache.pages;
            let tx = db.begin().unwrap();
            let rows = match locked {
                true => tx.scan_index_rows_locked(&t, index, range, LockMode::Exclusive).unwrap(),
                false => tx.scan_index_rows(&t, index, range).unwrap(),
            };
            let ids = ids(rows);
            assert!(ids.len() == 287 && ids.contains(&5) && ids.iter().all(|id| *id == 5 || id % 7 == 3));
            db.stats().cache.pages - before
        };
        let looked_up = pages("by_colour", false);
        for locked in [false, true] {
            let own = pages("whole", locked);
            assert!(own < looked_up / 2, "{own} of {looked_up}");
        }
    });
}

/// Under READ COMMITTED too entries and rows are of the moment at which the scan began. Guard: `read` asks at the cursor's
/// moment.
#[test]
fn entries_and_rows_are_of_one_moment() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db, 40);
        let tx = db.begin_with(Isolation::ReadCommitted).unwrap();
        let mut rows = tx.scan_index_rows(&t, "by_colour", ALL).unwrap().expect(2);
        rows.next_row().unwrap().unwrap();
        (0..40).for_each(|id| change(&db, &t, id, 99));
        let mut count = 1;
        while let Some(row) = rows.next_row().unwrap() {
            let values = row.values().unwrap();
            assert_eq!(values[1], Value::U32(id(&values) as u32 % 7), "a row as it was");
            count += 1;
        }
        assert_eq!(count, 40);
    });
}

/// Rows of many ranges come range by range, whatever batches they are read in, and all are of the moment of the first; under
/// SERIALIZABLE, and with own writes, as of one range. Guards: `open` counts ranges and goes on to the next; the cursor of
/// each has the moment of the first.
#[test]
fn rows_of_many_ranges_come_range_by_range() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db, 40);
        for (isolation, changed) in [(Isolation::ReadCommitted, true), (Isolation::Serializable, false)] {
            for batch in [1, 3, 100] {
                let tx = db.begin_with(isolation).unwrap();
                let colours = [[Value::U32(5)], [Value::U32(30)], [Value::U32(2)], [Value::U32(5)]];
                let ranges = colours.each_ref().map(|c| (Bound::Included(&c[..]), Bound::Included(&c[..])));
                let mut rows = tx.scan_index_ranges(&t, "by_colour", &ranges).unwrap().expect(batch);
                let mut found = Vec::new();
                while let Some(row) = rows.next_row().unwrap() {
                    let id = id(&row.values().unwrap());
                    found.push((rows.range(), id));
                    if changed && found.len() == 1 {
                        (0..40).for_each(|id| change(&db, &t, id, 77));
                    }
                }
                let of = |range, colour| (0..40).filter(move |id| id % 7 == colour).map(move |id| (range, id));
                assert_eq!(found, of(0, 5).chain(of(2, 2)).chain(of(3, 5)).collect::<Vec<_>>());
                drop(rows);
                drop(tx);
                (0..40).for_each(|id| change(&db, &t, id, id as u32 % 7));
            }
        }
        let tx = db.begin().unwrap();
        assert!(tx.scan_index_ranges(&t, "by_colour", &[]).unwrap().next_row().unwrap().is_none());
    });
}

/// The reads of a statement are of one moment under READ COMMITTED; the next statement has another; outside of statements
/// each read has its own. Guards: `read_at` keeps the statement's snapshot; `end_statement` drops it.
#[test]
fn a_statement_reads_one_moment() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db, 3);
        let colour = |tx: &Transaction| tx.get_row(&t, &[Value::U64(1)]).unwrap().unwrap()[1].clone();
        let mut tx = db.begin_with(Isolation::ReadCommitted).unwrap();
        tx.begin_statement();
        assert_eq!(colour(&tx), Value::U32(1));
        change(&db, &t, 1, 50);
        assert_eq!(colour(&tx), Value::U32(1));
        assert_eq!(ids(tx.scan_index_rows(&t, "by_colour", ALL).unwrap()), [0, 1, 2]);
        tx.begin_statement();
        assert_eq!(colour(&tx), Value::U32(50));
        tx.end_statement();
        change(&db, &t, 1, 51);
        assert_eq!(colour(&tx), Value::U32(51));
        change(&db, &t, 1, 52);
        assert_eq!(colour(&tx), Value::U32(52));
        let mut repeatable = db.begin().unwrap();
        repeatable.begin_statement();
        assert_eq!(colour(&repeatable), Value::U32(52));
        change(&db, &t, 1, 53);
        repeatable.begin_statement();
        assert_eq!(colour(&repeatable), Value::U32(52));
    });
}

/// What a filter passes over is not read, and under READ COMMITTED not kept locked; behind an end nothing is looked at.
/// Guards: `fill` unlocks what is passed over; it stops at an end.
#[test]
fn a_filter_judges_entries_before_their_rows() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db, 30);
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let tx = db.begin_with(isolation).unwrap();
            let mut seen = 0;
            let judge = |entry: EntryRef<'_>| {
                seen += 1;
                let entry = entry.values()?;
                Ok(match (&entry[0], id(&entry[1..]) % 2) {
                    (Value::U32(3..), _) => Judged::End,
                    (_, 0) => Judged::Take,
                    _ => Judged::Pass,
                })
            };
            let rows = tx.scan_index_rows_locked(&t, "by_colour", ALL, LockMode::Exclusive).unwrap();
            assert_eq!(ids(rows.filter(judge)), [0, 14, 28, 8, 22, 2, 16]);
            assert_eq!(seen, 15);
            assert!(!is_free(&db, &t, 8));
            assert_eq!(is_free(&db, &t, 1), isolation == Isolation::ReadCommitted);
            assert!(is_free(&db, &t, 5));
        }
    });
}

/// A row found along an index is locked once, so that it can be given back. Guard: `of_rows`, and no lock by `read`.
#[test]
fn a_row_found_along_an_index_can_be_unlocked() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db, 10);
        let tx = db.begin_with(Isolation::ReadCommitted).unwrap();
        let mut rows = tx.scan_index_rows_locked(&t, "by_colour", ALL, LockMode::Exclusive).unwrap().expect(8);
        assert_eq!(id(&rows.next_row().unwrap().unwrap().values().unwrap()), 0);
        assert!(!is_free(&db, &t, 0) && is_free(&db, &t, 7), "no row is locked ahead");
        assert!(tx.unlock_row());
        assert!(is_free(&db, &t, 0));
    });
}

/// Where nothing is given back, as many rows as are expected are locked at once, up to the first that would have to be waited
/// for: it is waited for when it is reached. Guards: `lock_some` asks for the first row alone with patience; it stops at a
/// row that is busy.
#[test]
fn rows_that_are_expected_are_locked_ahead() {
    simulate(|_| {
        let db = open(&disk());
        let t = coloured(&db, 12);
        let mut holder = db.begin().unwrap();
        holder.update(&t, &[Value::U64(4), Value::U32(4)]).unwrap();
        let tx = db.begin().unwrap();
        let mut rows = tx.scan_locked(&t, ALL, Locking::EXCLUSIVE).unwrap().expect(8);
        assert_eq!(id(&rows.next().unwrap().unwrap()), 0);
        assert!(!is_free(&db, &t, 3), "locked ahead");
        assert!(is_free(&db, &t, 5), "behind the one that is busy");
        for expected in 1..4 {
            assert_eq!(id(&rows.next().unwrap().unwrap()), expected);
        }
        let committer = spawn("committer", move || {
            sleep(50);
            holder.commit().unwrap();
        });
        for expected in 4..12 {
            assert_eq!(id(&rows.next().unwrap().unwrap()), expected);
        }
        committer.join().unwrap();
        drop(rows);
        drop(tx);
        let tx = db.begin().unwrap();
        let mut back = tx.scan_back_locked(&t, ALL, Locking::EXCLUSIVE).unwrap().expect(3);
        assert_eq!(id(&back.next().unwrap().unwrap()), 11);
        assert!(!is_free(&db, &t, 9) && is_free(&db, &t, 8), "as many as are expected");
    });
}
