//! Rows written without a look at what is there: that nothing is read, that the table is whole whatever was there, that the row is locked,
//! and that it is not done where more than the row depends on what was there.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::*;
use trefoil::{
    ALL, ColumnType, Database, Error, ForeignKey, IndexOptions, Isolation, Locking, Schema, Structure, Table, Value,
};

const STRUCTURES: [Structure; 3] = [Structure::Btree, Structure::Betree, Structure::Lsm];

fn of(structure: Structure) -> IndexOptions {
    IndexOptions { structure, ..small_nodes() }
}

fn coloured(id: u64, colour: u32) -> [Value<'static>; 2] {
    [Value::U64(id), Value::U32(colour)]
}

fn content(db: &Database, table: &Table) -> Vec<(u64, u32)> {
    let tx = db.begin().unwrap();
    let mut rows = tx.scan(table, ALL).unwrap();
    let mut found = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let [Value::U64(id), Value::U32(colour)] = row[..] else { panic!("{row:?}") };
        found.push((id, colour));
    }
    found
}

fn point_reads(table: &Table) -> u64 {
    table.stats().primary.traffic.point_reads
}

/// Rows that are there and rows that are not, put and removed; some of it taken back; through a checkpoint and a kill. Guards: no read;
/// a tombstone of a key that was never there; what is put is not taken for fresh.
#[test]
fn a_row_is_put_or_removed_whatever_was_there() {
    for structure in STRUCTURES {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let t = table_of(&db, "t", of(structure));
            insert(&db, &t, 0..400).unwrap();
            db.checkpoint().unwrap();
            let before = point_reads(&t);
            let mut tx = db.begin().unwrap();
            for id in (0..600).step_by(3) {
                assert!(tx.put_row(&t, &coloured(id, 77)).unwrap());
                assert!(tx.remove_row(&t, &[Value::U64(id + 1)]).unwrap());
            }
            let kept = tx.savepoint();
            assert!(tx.put_row(&t, &coloured(1000, 1)).unwrap());
            tx.rollback_to(kept).unwrap();
            assert!(tx.put_row(&t, &["1".into(), 1u32.into()]).is_err(), "no row of this table");
            tx.commit().unwrap();
            assert_eq!(point_reads(&t), before, "{structure:?}");
            let expected: Vec<(u64, u32)> = (0..600)
                .filter(|id| id % 3 == 0 || (id % 3 == 2 && *id < 400))
                .map(|id| (id, if id % 3 == 0 { 77 } else { id as u32 % 7 }))
                .collect();
            assert_eq!(content(&db, &t), expected, "{structure:?}");
            // Removed again, of which some are not there any more.
            let mut tx = db.begin().unwrap();
            (0..600).for_each(|id| assert!(tx.remove_row(&t, &[Value::U64(id)]).unwrap()));
            assert!(tx.put_row(&t, &coloured(5, 5)).unwrap());
            tx.commit().unwrap();
            disk.process_kill();
            drop((t, db));
            let db = open(&disk.reboot());
            let t = db.table("t").unwrap();
            db.settle().unwrap();
            assert_eq!(content(&db, &t), [(5, 5)], "{structure:?}");
            sound(&db);
        });
    }
}

/// The row is locked as by any write, and a range that is locked keeps out a row that may be new. Guard: the lock.
#[test]
fn it_waits_for_locks_of_rows_and_ranges() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let t = table(&db, "t");
        insert(&db, &t, 0..10).unwrap();
        let mut first = db.begin().unwrap();
        first.put_row(&t, &coloured(3, 9)).unwrap();
        let busy = db.begin().unwrap().get_row_locked(&t, &[3u64.into()], Locking::SHARED.no_wait());
        assert!(matches!(busy, Err(Error::LockBusy { .. })));
        let mut second = db.begin().unwrap();
        let waited = second.remove_row(&t, &[3u64.into()]);
        assert!(matches!(waited, Err(Error::LockTimeout { .. })), "{waited:?}");
        first.commit().unwrap();
        let reader = db.begin_with(Isolation::Serializable).unwrap();
        let mut rows = reader.scan(&t, ALL).unwrap();
        while rows.next().unwrap().is_some() {}
        let waited = second.put_row(&t, &coloured(20, 1));
        assert!(matches!(waited, Err(Error::LockTimeout { .. })), "{waited:?}");
        drop(rows);
        drop(reader);
        assert!(second.put_row(&t, &coloured(20, 1)).unwrap());
    });
}

/// What has an index, even one that is being built, a parent or children is left to who looks. Guards: each of the three.
#[test]
fn tables_that_keep_more_than_rows_are_left_alone() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let parent = table(&db, "parent");
        insert(&db, &parent, 0..4).unwrap();
        let untouched = |t: &Table, what: &str| {
            let mut tx = db.begin().unwrap();
            assert!(!tx.put_row(t, &coloured(1, 77)).unwrap(), "{what}");
            assert!(!tx.remove_row(t, &[Value::U64(2)]).unwrap(), "{what}");
            tx.commit().unwrap();
        };
        let child =
            Schema::builder().column("id", ColumnType::U64).column("colour", ColumnType::U32).primary_key(&["id"]);
        let child = child.foreign_key(ForeignKey::new("up", &["id"], "parent", &["id"])).build().unwrap();
        let child = db.create_table("child", child).unwrap();
        insert(&db, &child, 0..4).unwrap();
        let before = (content(&db, &parent), content(&db, &child));
        untouched(&child, "it has a parent");
        untouched(&parent, "it has children");
        assert_eq!((content(&db, &parent), content(&db, &child)), before);
        db.drop_table("child").unwrap();
        let mut tx = db.begin().unwrap();
        assert!(tx.put_row(&parent, &coloured(1, 77)).unwrap(), "it has neither any more");
        tx.rollback();
        db.create_table_indexes(&parent, vec![by_colour()]).unwrap();
        untouched(&db.table("parent").unwrap(), "it has an index");
        agrees(&db, &db.table("parent").unwrap(), "by_colour");
    });
}
