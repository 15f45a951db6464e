//! What a transaction sees, keeps and undoes, through the public API.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test panics on what it does not expect, and races threads of the machine"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use trefoil::{
    ALL, ColumnType, Database, Durability, Entries, Error, Index, IndexOptions, IndexSchema, Isolation, LockMode,
    Locking, Options, Schema, Structure, Table, Transaction, Value,
};
use vfs::random::Rng;

fn open() -> (tempfile::TempDir, Database, Index) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Write, ..Options::default() };
    let db = Database::open(dir.path().join("db"), options).unwrap();
    let index = db.create_index("i", IndexOptions::default()).unwrap();
    (dir, db, index)
}

fn set(db: &Database, index: &Index, key: &[u8], value: &[u8]) {
    let mut tx = db.begin().unwrap();
    tx.put(index, key, value).unwrap();
    tx.commit().unwrap();
}

#[test]
fn own_writes_are_seen_and_rollback_undoes_them() {
    let (_dir, db, i) = open();
    set(&db, &i, b"a", b"1");
    let mut tx = db.begin().unwrap();
    tx.put(&i, b"b", b"2").unwrap();
    assert!(tx.delete(&i, b"a").unwrap());
    assert!(!tx.delete(&i, b"nothing").unwrap());
    assert_eq!(tx.get(&i, b"a").unwrap(), None);
    assert_eq!(tx.get(&i, b"b").unwrap().unwrap(), b"2");
    assert_eq!(tx.range(&i, ..).unwrap().collect().unwrap(), [(b"b".to_vec(), b"2".to_vec())]);
    tx.rollback();
    assert_eq!(db.begin().unwrap().get(&i, b"a").unwrap().unwrap(), b"1");
    assert_eq!(db.begin().unwrap().get(&i, b"b").unwrap(), None);
}

#[test]
fn cursors_merge_own_writes_both_ways() {
    let (_dir, db, i) = open();
    for n in (0..100u8).step_by(2) {
        set(&db, &i, &[n], b"stored");
    }
    let mut tx = db.begin().unwrap();
    for n in (0..100u8).step_by(3) {
        tx.put(&i, &[n], b"own").unwrap();
    }
    for n in (0..100u8).step_by(5) {
        tx.delete(&i, &[n]).unwrap();
    }
    let expect: Vec<(Vec<u8>, Vec<u8>)> = (0..100u8)
        .filter(|n| n % 5 != 0 && (n % 2 == 0 || n % 3 == 0))
        .map(|n| (vec![n], if n % 3 == 0 { b"own".to_vec() } else { b"stored".to_vec() }))
        .collect();
    assert_eq!(tx.range(&i, ..).unwrap().collect().unwrap(), expect);
    let mut back = tx.range_back(&i, ..).unwrap().collect().unwrap();
    back.reverse();
    assert_eq!(back, expect);
    let (low, high): (&[u8], &[u8]) = (&[10], &[21]);
    let some: Vec<_> = expect.iter().filter(|(k, _)| (10..21).contains(&k[0])).cloned().collect();
    assert_eq!(tx.range(&i, low..high).unwrap().collect().unwrap(), some);
}

#[test]
fn savepoints_undo_what_came_after() {
    let (_dir, db, i) = open();
    let mut tx = db.begin().unwrap();
    tx.put(&i, b"a", b"1").unwrap();
    let save = tx.savepoint();
    tx.put(&i, b"a", b"2").unwrap();
    tx.put(&i, b"b", b"2").unwrap();
    tx.rollback_to(save).unwrap();
    assert_eq!(tx.get(&i, b"a").unwrap().unwrap(), b"1");
    tx.commit().unwrap();
    let all = db.begin().unwrap().range(&i, ..).unwrap().collect().unwrap();
    assert_eq!(all, [(b"a".to_vec(), b"1".to_vec())]);
}

#[test]
fn isolation_levels_differ_in_when_they_look() {
    let (_dir, db, i) = open();
    set(&db, &i, b"a", b"1");
    let repeatable = db.begin_with(Isolation::RepeatableRead).unwrap();
    let committed = db.begin_with(Isolation::ReadCommitted).unwrap();
    assert_eq!(repeatable.get(&i, b"a").unwrap().unwrap(), b"1");
    assert_eq!(committed.get(&i, b"a").unwrap().unwrap(), b"1");
    set(&db, &i, b"a", b"2");
    assert_eq!(repeatable.get(&i, b"a").unwrap().unwrap(), b"1");
    assert_eq!(committed.get(&i, b"a").unwrap().unwrap(), b"2");
}

#[test]
fn writes_see_the_newest_committed_version() {
    let (_dir, db, i) = open();
    set(&db, &i, b"n", b"1");
    let tx = db.begin().unwrap();
    assert_eq!(tx.get(&i, b"n").unwrap().unwrap(), b"1");
    set(&db, &i, b"n", b"2");
    assert_eq!(tx.get(&i, b"n").unwrap().unwrap(), b"1");
    assert_eq!(tx.get_locked(&i, b"n", LockMode::Exclusive).unwrap().unwrap(), b"2");
}

#[test]
fn a_snapshot_does_not_move_while_rows_come_and_go() {
    let (_dir, db, i) = open();
    for n in 0..500u32 {
        set(&db, &i, &n.to_be_bytes(), b"old");
    }
    let snapshot = db.snapshot().unwrap();
    for n in 0..500u32 {
        let mut tx = db.begin().unwrap();
        match n % 3 {
            0 => tx.put(&i, &n.to_be_bytes(), b"new").unwrap(),
            1 => drop(tx.delete(&i, &n.to_be_bytes()).unwrap()),
            _ => tx.put(&i, &(n + 1000).to_be_bytes(), b"more").unwrap(),
        }
        tx.commit().unwrap();
    }
    db.settle().unwrap();
    let all = snapshot.range(&i, ..).unwrap().collect().unwrap();
    assert_eq!(all.len(), 500);
    assert!(all.iter().all(|(_, v)| v == b"old"));
}

#[test]
fn no_lost_update_among_threads() {
    let (_dir, db, i) = open();
    set(&db, &i, b"n", &0u64.to_le_bytes());
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..250 {
                    let mut tx = db.begin().unwrap();
                    let n = tx.get_locked(&i, b"n", LockMode::Exclusive).unwrap().unwrap();
                    let n = u64::from_le_bytes(n.try_into().unwrap());
                    tx.put(&i, b"n", &(n + 1).to_le_bytes()).unwrap();
                    tx.commit().unwrap();
                }
            });
        }
    });
    let n = db.begin().unwrap().get(&i, b"n").unwrap().unwrap();
    assert_eq!(u64::from_le_bytes(n.try_into().unwrap()), 1000);
}

/// Each transaction has looked before, so its snapshot is old when it gets the lock. Guard: `update_with` reads the
/// newest version under the lock.
#[test]
fn a_change_starts_from_the_newest_row_and_keeps_its_entry_and_its_key() {
    let (_dir, db, _) = open();
    let schema = Schema::builder().column("id", ColumnType::I32).column("k", ColumnType::I32);
    let schema = schema.primary_key(&["id"]).index(IndexSchema::new("k", &["k"])).build().unwrap();
    let t = db.create_table("t", schema).unwrap();
    let mut tx = db.begin().unwrap();
    tx.insert(&t, &[1.into(), 0.into()]).unwrap();
    tx.commit().unwrap();
    let raise = |row: &mut [Value<'_>]| {
        if let Value::I32(k) = &mut row[1] {
            *k += 1;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut tx = db.begin().unwrap();
                    assert!(tx.get_row(&t, &[1.into()]).unwrap().is_some());
                    assert!(tx.update_with(&t, &[1.into()], raise).unwrap());
                    tx.commit().unwrap();
                }
            });
        }
    });
    let mut tx = db.begin().unwrap();
    let entries = |tx: &trefoil::Transaction| -> Vec<(i32, i32)> {
        let mut entries = tx.scan_index(&t, "k", ALL).unwrap();
        std::iter::from_fn(|| entries.next_as().unwrap()).collect()
    };
    assert_eq!(entries(&tx), [(800, 1)]);
    assert!(!tx.update_with(&t, &[2.into()], raise).unwrap(), "there is no such row");
    let moved = tx.update_with(&t, &[1.into()], |row| row[0] = 2.into());
    assert!(matches!(moved, Err(Error::InvalidArgument(_))), "{moved:?}");
    assert_eq!(entries(&tx), [(800, 1)]);
}

#[test]
fn a_deadlock_ends_one_of_the_two() {
    let (_dir, db, i) = open();
    let barrier = std::sync::Barrier::new(2);
    let run = |first: &'static [u8], second: &'static [u8]| {
        let mut tx = db.begin().unwrap();
        tx.put(&i, first, b"x").unwrap();
        barrier.wait();
        tx.put(&i, second, b"x").and_then(|()| tx.commit())
    };
    let (one, two) = std::thread::scope(|s| {
        let one = s.spawn(|| run(b"a", b"b"));
        let two = s.spawn(|| run(b"b", b"a"));
        (one.join().unwrap(), two.join().unwrap())
    });
    assert!(one.is_ok() ^ two.is_ok(), "{one:?} {two:?}");
    let error = one.err().or(two.err()).unwrap();
    assert!(matches!(error, Error::Deadlock { .. }) && error.is_retryable(), "{error}");
}

#[test]
fn large_values_and_large_transactions_come_back() {
    let (_dir, db, i) = open();
    let big: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7) as u8).collect();
    set(&db, &i, b"big", &big);
    let middle = vec![7u8; 40_000];
    set(&db, &i, b"middle", &middle);
    let mut tx = db.begin().unwrap();
    for n in 0..50_000u32 {
        tx.put(&i, &n.to_be_bytes(), &[n as u8; 40]).unwrap();
    }
    tx.commit().unwrap();
    let check = |db: &Database, i: &Index| {
        let tx = db.begin().unwrap();
        assert!(tx.get(i, b"big").unwrap().unwrap() == big);
        assert!(tx.get(i, b"middle").unwrap().unwrap() == middle);
        let end: &[u8] = &50_000u32.to_be_bytes();
        assert_eq!(tx.range(i, ..end).unwrap().collect().unwrap().len(), 50_000);
    };
    check(&db, &i);
    db.settle().unwrap();
    check(&db, &i);
}

#[test]
fn use_after_close_and_after_drop_is_an_error() {
    let (_dir, db, i) = open();
    set(&db, &i, b"a", b"1");
    db.drop_index("i").unwrap();
    let mut tx = db.begin().unwrap();
    assert!(matches!(tx.put(&i, b"a", b"2"), Err(Error::Dropped { .. })));
    assert!(matches!(tx.get(&i, b"a"), Err(Error::Dropped { .. })));
    assert!(matches!(db.index("i"), Err(Error::NotFound { .. })));
    drop(tx);
    db.close().unwrap();
    assert!(matches!(db.begin(), Err(Error::Closed)));
    assert!(matches!(db.checkpoint(), Err(Error::Closed)));
}

#[test]
fn limits_are_errors_that_name_the_limit() {
    let (_dir, db, i) = open();
    let mut tx = db.begin().unwrap();
    let (auto, btree) = (Structure::Auto, Structure::Btree);
    for (structure, node_bytes, limit) in
        [(auto, 4096, 3072), (auto, 0, 49152), (btree, 0, 12288), (btree, 64 << 10, 49152)]
    {
        let options = IndexOptions { structure, node_bytes, ..IndexOptions::default() };
        let of_nodes = db.create_index(&format!("{structure:?} {node_bytes}"), options).unwrap();
        let error = tx.put(&of_nodes, &vec![1; limit + 1], b"").unwrap_err();
        assert_eq!(error.to_string(), format!("length of a key in bytes is {}, the limit is {limit}", limit + 1));
        tx.put(&of_nodes, &vec![1; limit], b"x").unwrap();
    }
    tx.put(&i, b"", b"the empty key").unwrap();
    tx.commit().unwrap();
    assert_eq!(db.begin().unwrap().get(&i, b"").unwrap().unwrap(), b"the empty key");
    let options = IndexOptions { structure: Structure::Lsm, counters: true, ..IndexOptions::default() };
    assert!(matches!(db.create_index("x", options), Err(Error::Unsupported(_))));
}

/// Rows of a table with an index of two columns, and the same as a map.
type Rows = BTreeMap<i32, (i32, i32)>;

/// Inserts, updates or deletes a row.
fn change(tx: &mut Transaction, t: &Table, rows: &mut Rows, rng: &mut Rng) {
    let (id, a, b) = (rng.below(600) as i32, rng.below(8) as i32 - 4, rng.below(20) as i32);
    let row = [id.into(), a.into(), b.into()];
    match rows.insert(id, (a, b)) {
        None => tx.insert(t, &row).unwrap(),
        Some(_) if a > 0 => assert!(tx.update(t, &row).unwrap()),
        Some(_) => {
            rows.remove(&id);
            assert!(tx.delete_row(t, &row[..1]).unwrap());
        }
    }
}

/// Values of one side of a range, and whether they belong to it; without values it is open.
type Side = (Vec<i32>, bool);

fn drawn(rng: &mut Rng) -> Side {
    let values = [rng.below(8) as i32 - 4, rng.below(20) as i32];
    (values[..rng.index(3)].to_vec(), rng.chance(0.5))
}

/// Entries of the rows in a range, ascending.
fn entries_of(rows: &Rows, low: &Side, high: &Side) -> Vec<(i32, i32, i32)> {
    let within = |(a, b, _): &(i32, i32, i32)| {
        let against = |side: &Side| [*a, *b][..side.0.len()].cmp(&side.0);
        let is_above = low.0.is_empty() || against(low).is_gt() || low.1 && against(low).is_eq();
        is_above && (high.0.is_empty() || against(high).is_lt() || high.1 && against(high).is_eq())
    };
    let all: BTreeSet<_> = rows.iter().map(|(id, (a, b))| (*a, *b, *id)).collect();
    all.into_iter().filter(within).collect()
}

fn bound<'v>(values: &'v [Value<'v>], is_included: bool) -> Bound<&'v [Value<'v>]> {
    match (values.is_empty(), is_included) {
        (true, _) => Bound::Unbounded,
        (false, true) => Bound::Included(values),
        (false, false) => Bound::Excluded(values),
    }
}

/// Entries of a secondary index are read both ways in any range of its columns: what a snapshot saw, and the newest with the
/// own writes on top, with and without locks, all as a map has them. Guard: the direction that `scan_index_towards` (of a
/// transaction and of a snapshot) and `scan_index_locked_towards` are given, and that the latter is asked where plain reads lock.
#[test]
fn entries_come_both_ways_as_a_snapshot_and_own_writes_have_them() {
    [Structure::Btree, Structure::Betree].into_iter().for_each(entries_come_both_ways);
}

fn entries_come_both_ways(structure: Structure) {
    let (_dir, db, _) = open();
    trefoil::fuzzing::small_nodes();
    let small = IndexOptions { structure, node_bytes: 512, ..IndexOptions::default() };
    let columns = ["id", "a", "b"];
    let schema = columns.iter().fold(Schema::builder(), |schema, name| schema.column(name, ColumnType::I32));
    let by_both = IndexSchema::new("by_both", &columns[1..]).with_options(small);
    let schema = schema.primary_key(&columns[..1]).primary_options(small).index(by_both).build().unwrap();
    let t = db.create_table("t", schema).unwrap();
    let (mut rng, mut rows) = (Rng::new(11), Rows::new());
    let mut tx = db.begin().unwrap();
    (0..900).for_each(|_| change(&mut tx, &t, &mut rows, &mut rng));
    tx.commit().unwrap();
    let (then, snapshot) = (rows.clone(), db.snapshot().unwrap());
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let mut tx = db.begin_with(isolation).unwrap();
        (0..150).for_each(|_| change(&mut tx, &t, &mut rows, &mut rng));
        for _ in 0..100 {
            let (low, high) = (drawn(&mut rng), drawn(&mut rng));
            let values = |side: &Side| side.0.iter().map(|n| Value::from(*n)).collect::<Vec<_>>();
            let (from, to) = (values(&low), values(&high));
            let range = (bound(&from, low.1), bound(&to, high.1));
            let all = |entries: Result<Entries<'_>, Error>| -> Vec<(i32, i32, i32)> {
                let mut entries = entries.unwrap();
                std::iter::from_fn(|| entries.next_as().unwrap()).collect()
            };
            let mut seen = entries_of(&then, &low, &high);
            assert_eq!(all(snapshot.scan_index(&t, "by_both", range)), seen);
            seen.reverse();
            assert_eq!(all(snapshot.scan_index_back(&t, "by_both", range)), seen);
            let mut own = entries_of(&rows, &low, &high);
            assert_eq!(all(tx.scan_index(&t, "by_both", range)), own);
            own.reverse();
            assert_eq!(all(tx.scan_index_back(&t, "by_both", range)), own);
            assert_eq!(all(tx.scan_index_back_locked(&t, "by_both", range, LockMode::Shared)), own);
        }
        tx.commit().unwrap();
    }
    type Read = for<'t> fn(&'t Transaction, &Table) -> Result<Entries<'t>, Error>;
    let reads: [Read; 2] = [|tx, t| tx.scan_index(t, "by_both", ALL), |tx, t| tx.scan_index_back(t, "by_both", ALL)];
    for read in reads {
        let reader = db.begin_with(Isolation::Serializable).unwrap();
        let (_, _, id) = read(&reader, &t).unwrap().next_as::<(i32, i32, i32)>().unwrap().unwrap();
        let busy = db.begin().unwrap().get_row_locked(&t, &[id.into()], Locking::EXCLUSIVE.no_wait());
        assert!(matches!(busy, Err(Error::LockBusy { .. })), "row {id} is locked, not its entry alone: {busy:?}");
    }
}
