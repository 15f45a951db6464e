//! Ranges deleted whole, and who reads beside the drain.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::*;
use trefoil::{Database, Durability, Index, IndexOptions, Isolation, LockMode, Options, Structure, Transaction};
use vfs::sim::Handle;

/// More keys than are noted for those who hop.
const TOO_MANY: u32 = 7000;

/// 100 keys, of which 20 to 79 are deleted; on disk before that. Where what is written is not known the range is not kept for those who hop once it is drained.
fn deleted(db: &Database, structure: Structure, is_known: bool) -> Index {
    let index = db.create_index("i", IndexOptions { structure, node_bytes: 4096, ..IndexOptions::default() }).unwrap();
    for n in 0..100u8 {
        put(db, &index, &[n], b"old", Durability::Write).unwrap();
    }
    db.checkpoint().unwrap();
    let mut tx = db.begin().unwrap();
    tx.delete_range(&index, [20u8].as_slice()..[80u8].as_slice()).unwrap();
    if !is_known {
        tx.delete_range(&index, [200u8].as_slice()..).unwrap();
        (0..TOO_MANY).for_each(|n| tx.put(&index, &[&[200], &n.to_be_bytes()[..]].concat(), b"").unwrap());
    }
    tx.commit().unwrap();
    index
}

/// By every way of reading.
fn nothing_of_it(db: &Database, index: &Index, at: &str) {
    let expected: Vec<u8> = (0..20).chain(80..100).collect();
    let first = |entries: Entries| {
        entries.into_iter().filter(|(key, _)| key.len() == 1).map(|(key, _)| key[0]).collect::<Vec<_>>()
    };
    let mut tx = db.begin().unwrap();
    assert_eq!(first(tx.range(index, ..).unwrap().collect().unwrap()), expected, "{at}");
    let mut back = first(tx.range_back(index, ..).unwrap().collect().unwrap());
    back.reverse();
    assert_eq!(back, expected, "{at}, from behind");
    assert!((20..80u8).all(|n| tx.get(index, &[n]).unwrap().is_none()), "{at}, one by one");
    assert_eq!(tx.get_locked(index, &[50], LockMode::Shared).unwrap(), None, "{at}, the newest");
    assert_eq!(first(tx.range_locked(index, .., LockMode::Shared).unwrap().collect().unwrap()), expected, "{at}");
    assert!(!tx.delete(index, &[60]).unwrap(), "{at}, who deletes");
}

/// Before the deletes of the range are in the structure it is listed, and until they are. Guard: a range leaves the list behind its run.
#[test]
fn who_reads_beside_the_drain_sees_nothing_of_it() {
    for structure in [Structure::Btree, Structure::Betree, Structure::Lsm] {
        for (point, is_known) in [("ranged.drained", false), ("ranged.drained", true), ("ranged.attached", false)] {
            simulate(move |sim| {
                let db = open(&disk());
                let gate = sim.hold(point);
                let index = deleted(&db, structure, is_known);
                gate.wait_reached();
                nothing_of_it(&db, &index, point);
                gate.open();
                db.settle().unwrap();
                nothing_of_it(&db, &index, "drained");
                sound(&db);
            });
        }
    }
}

/// A reader has taken the list of sources, and sleeps; the range is drained, and listed no more. Guard: a reader takes the list of ranges before the structure.
#[test]
fn a_reader_from_before_the_drain_has_its_list() {
    simulate(|sim| {
        let db = open(&disk());
        let drained = sim.hold("ranged.drained");
        let index = deleted(&db, Structure::Lsm, true);
        drained.wait_reached();
        let listed = sim.hold("lsm.read_listed");
        let (d, i) = (db.clone(), index.clone());
        let reader = spawn("reader", move || d.begin().unwrap().get(&i, &[50]).unwrap());
        listed.wait_reached();
        drained.open();
        while !db.settle_for(std::time::Duration::from_secs(5)).unwrap() {}
        assert_eq!(index.stats().deleted_ranges, 0);
        listed.open();
        assert_eq!(reader.join().unwrap(), None);
    });
}

/// Who reads the newest beside a commit that deletes a range and puts a key of it anew has the old row or the new one, and waits for it: it was there before, and is
/// there behind. Guard: a range is listed behind what its commit puts.
#[test]
fn a_key_that_is_put_anew_is_not_passed_over() {
    for structure in [Structure::Btree, Structure::Betree, Structure::Lsm] {
        simulate(move |sim| {
            let db = open(&disk());
            let index = db.create_index("i", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
            put(&db, &index, b"k", b"old", Durability::Write).unwrap();
            let gate = sim.hold("commit.ranges");
            let (d, i) = (db.clone(), index.clone());
            let writer = spawn("writer", move || {
                let mut tx = d.begin().unwrap();
                tx.delete_range(&i, ..).unwrap();
                tx.put(&i, b"k", b"new").unwrap();
                tx.commit().unwrap();
            });
            gate.wait_reached();
            let (d, i) = (db.clone(), index.clone());
            let reader = spawn("reader", move || {
                // Without locks on ranges, which would wait for what is about to be put.
                let tx = d.begin_with(Isolation::ReadCommitted).unwrap();
                tx.range_locked(&i, .., LockMode::Shared).unwrap().collect().unwrap()
            });
            sleep(50);
            gate.open();
            assert_eq!(reader.join().unwrap(), [(b"k".to_vec(), b"new".to_vec())]);
            writer.join().unwrap();
        });
    }
}

/// Who has deleted a range sees all of what those committed who had something there before, though it is not visible yet (A17).
fn sees_who_was_there(sim: &Handle, db: &Database, is_beside: bool, write: impl FnOnce(&mut Transaction, &Index)) {
    let (gap, index) = (db.create_index("gap", small_nodes()).unwrap(), db.create_index("i", small_nodes()).unwrap());
    let mut tx = db.begin().unwrap();
    write(&mut tx, &index);
    tx.put(&gap, b"told", b"").unwrap();
    let looked = sim.hold("deleting.looked");
    let deleter = {
        let (d, i, g) = (db.clone(), index.clone(), gap.clone());
        move || {
            let mut tx = d.begin().unwrap();
            tx.delete_range(&i, ..[0, 0, 0, 9].as_slice()).unwrap();
            tx.get(&g, b"told").unwrap()
        }
    };
    let gate = sim.hold("commit.logged");
    let (d, g) = (db.clone(), gap.clone());
    let slow = spawn("slow", move || put(&d, &g, b"k", b"", Durability::Buffered));
    gate.wait_reached();
    let mut looks = None;
    if is_beside {
        looks = Some(spawn("deleter", deleter.clone()));
        looked.wait_reached();
    }
    let owner = spawn("owner", move || tx.commit_with(Durability::Buffered).map(drop));
    sleep(500);
    assert!(!owner.is_finished(), "applied, and not visible yet");
    looked.open();
    let looks = looks.unwrap_or_else(|| spawn("deleter", deleter));
    sleep(50);
    gate.open();
    assert_eq!(looks.join().unwrap(), Some(Vec::new()), "half of a commit");
    owner.join().unwrap().unwrap();
    slow.join().unwrap().unwrap();
}

/// Guard: the look at the table says who has released a lock before.
#[test]
fn a17_who_deletes_a_range_sees_what_was_committed_there() {
    simulate(|sim| {
        let db = open(&disk());
        sees_who_was_there(sim, &db, false, |tx, i| tx.put(i, &[0, 0, 0, 1], b"").unwrap());
    });
}

/// Guard: `left_by_folded` behind the look at what is folded, for who ended between the looks.
#[test]
fn a17_who_deletes_a_range_sees_what_was_folded_there() {
    simulate(|sim| {
        let db = Database::open("/db", Options { budget_bytes: 1 << 20, ..options(&disk()) }).unwrap();
        sees_who_was_there(sim, &db, true, |tx, i| {
            (0..4000u32).for_each(|n| tx.put(i, &n.to_be_bytes(), &[1; 500]).unwrap());
        });
    });
}

/// More keys come into a range than are noted for those who hop, with the commit that deletes it or behind it. Guards: who finds no room for a key says that what
/// was written is not known, in `update_with` and in `note_written`.
#[test]
fn more_than_can_be_noted_is_found() {
    for structure in [Structure::Btree, Structure::Betree, Structure::Lsm] {
        for at_once in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let db = Database::open(dir.path(), Options { background: false, ..Options::default() }).unwrap();
            let index = db.create_index("i", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
            put(&db, &index, b"old", b"", Durability::Write).unwrap();
            let mut tx = db.begin().unwrap();
            tx.delete_range(&index, ..).unwrap();
            if !at_once {
                tx.commit().unwrap();
                tx = db.begin().unwrap();
            }
            (0..TOO_MANY).for_each(|n| tx.put(&index, &n.to_be_bytes(), b"new").unwrap());
            tx.commit().unwrap();
            let tx = db.begin().unwrap();
            assert_eq!(tx.range(&index, ..).unwrap().collect().unwrap().len(), TOO_MANY as usize);
            assert_eq!(tx.range_back(&index, ..).unwrap().collect().unwrap().len(), TOO_MANY as usize);
        }
    }
}

/// A range is deleted beside one who has locked another that reaches into it, and has met nothing: the lowest key, which is the range's place among the writes, was not
/// there, so who puts it waits. Guard: a place is not taken for a key that is there.
#[test]
fn the_place_of_a_range_comes_into_what_others_have_locked() {
    for structure in [Structure::Btree, Structure::Betree, Structure::Lsm] {
        simulate(move |sim| {
            let db = open(&disk());
            let index = db.create_index("i", IndexOptions { structure, ..IndexOptions::default() }).unwrap();
            let published = sim.hold("deleting.published");
            let (d, i) = (db.clone(), index.clone());
            let deleter = spawn("deleter", move || {
                let mut tx = d.begin().unwrap();
                tx.delete_range(&i, [42u8].as_slice()..[60u8].as_slice()).unwrap();
                tx.put(&i, &[42], b"new").unwrap();
                tx.commit().unwrap();
            });
            published.wait_reached();
            let reader = db.begin().unwrap();
            let range = [28u8].as_slice()..[43u8].as_slice();
            assert!(reader.range_locked(&index, range, LockMode::Shared).unwrap().collect().unwrap().is_empty());
            published.open();
            sleep(100);
            let found = || db.begin().unwrap().get(&index, &[42]).unwrap();
            assert_eq!(found(), None, "what is locked stays as it was");
            drop(reader);
            deleter.join().unwrap();
            assert_eq!(found(), Some(b"new".to_vec()));
        });
    }
}
