//! Ranges deleted whole, and who reads beside the drain.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::*;
use trefoil::{Database, Durability, Index, IndexOptions, LockMode, Options, Structure};

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
