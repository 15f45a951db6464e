//! Of a fixture: deleted ranges, versions that expire, filters of prefixes; in the state and in the log.

use std::time::Duration;

use trefoil::{Database, Index, IndexOptions, Structure};

/// From this on there are all three.
pub const FORMAT_TEN: u32 = 10;

const STRUCTURES: [(&str, Structure); 3] =
    [("ranges btree", Structure::Btree), ("ranges betree", Structure::Betree), ("ranges lsm", Structure::Lsm)];
/// Here what was put is still alive in a hundred years, and gone in a second.
const LIVES: [(&str, u64); 2] = [("lives long", 100 * 366 * 86_400), ("expires", 1)];
const KEYS: u32 = 120;
const NAME: &str = "prefixes";

fn small(structure: Structure) -> IndexOptions {
    IndexOptions { structure, node_bytes: 4096, ..IndexOptions::default() }
}

fn key(n: u32) -> Vec<u8> {
    format!("device {:02}, reading {n:03}", n / 10).into_bytes()
}

fn put(db: &Database, index: &Index, keys: impl Iterator<Item = u32>, value: &[u8]) {
    let mut tx = db.begin().unwrap();
    keys.for_each(|n| tx.put(index, &key(n), value).unwrap());
    tx.commit().unwrap();
}

fn delete(db: &Database, index: &Index, low: u32, high: u32, puts: &[u32]) {
    let mut tx = db.begin().unwrap();
    tx.delete_range(index, key(low).as_slice()..key(high).as_slice()).unwrap();
    puts.iter().for_each(|n| tx.put(index, &key(*n), b"put behind it").unwrap());
    tx.commit().unwrap();
}

/// Before the database is closed, which commits the clock.
pub fn make_ten_cold(db: &Database) {
    for (name, seconds) in LIVES {
        let options = IndexOptions { ttl_seconds: Some(seconds), ..small(Structure::Lsm) };
        let index = db.create_index(name, options).unwrap();
        put(db, &index, 0..KEYS, name.as_bytes());
    }
    let options = IndexOptions { prefix_bytes: 9, ..small(Structure::Lsm) };
    let index = db.create_index(NAME, options).unwrap();
    put(db, &index, 0..KEYS, &[b'p'; 300]);
    for (name, structure) in STRUCTURES {
        let index = db.create_index(name, small(structure)).unwrap();
        put(db, &index, 0..KEYS, name.as_bytes());
        // Drained by whoever settles before he closes.
        delete(db, &index, 100, 110, &[]);
    }
}

/// Nothing is drained from here on: ranges that the state has.
pub fn make_ten(db: &Database) {
    for (name, _) in STRUCTURES {
        let index = db.index(name).unwrap();
        delete(db, &index, 10, 30, &[12]);
        put(db, &index, [15, 25].into_iter(), b"put since");
    }
}

/// Ranges that the log has.
pub fn make_ten_late(db: &Database) {
    for (name, _) in STRUCTURES {
        delete(db, &db.index(name).unwrap(), 20, 60, &[55]);
    }
    for (name, _) in LIVES {
        put(db, &db.index(name).unwrap(), KEYS..KEYS + 5, name.as_bytes());
    }
    put(db, &db.index(NAME).unwrap(), KEYS..KEYS + 5, &[b'p'; 300]);
}

fn content(db: &Database, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    db.begin().unwrap().range(&db.index(name).unwrap(), ..).and_then(|cursor| cursor.collect()).unwrap()
}

pub fn judge_ten(db: &Database) {
    for (name, _) in STRUCTURES {
        let value = |n: u32| match n {
            12 | 55 => Some(b"put behind it".as_slice()),
            15 => Some(b"put since".as_slice()),
            10..60 | 100..110 => None,
            _ => Some(name.as_bytes()),
        };
        let expected: Vec<_> = (0..KEYS).filter_map(|n| Some((key(n), value(n)?.to_vec()))).collect();
        assert_eq!(content(db, name), expected, "{name}");
    }
    let (long, seconds) = LIVES[0];
    assert_eq!(db.index(long).unwrap().stats().ttl_seconds, seconds);
    let expected: Vec<_> = (0..KEYS + 5).map(|n| (key(n), long.as_bytes().to_vec())).collect();
    assert_eq!(content(db, long), expected);
    let (index, tx) = (db.index(NAME).unwrap(), db.begin().unwrap());
    for device in 0..13 {
        let (low, high) = (format!("device {device:02}"), format!("device {:02}", device + 1));
        let cursor = tx.range(&index, low.as_bytes()..high.as_bytes()).unwrap();
        let expected = (0..KEYS + 5).filter(|n| n / 10 == device).map(key);
        let found = cursor.collect().unwrap();
        assert!(found.iter().map(|(key, _)| key.clone()).eq(expected), "{device}: {found:?}");
    }
}

/// Of a database that was made long ago: what had expired by then is not there when it is opened, what was written last goes when
/// the clock has ticked behind it.
pub fn judge_expired(db: &Database) {
    let (name, _) = LIVES[1];
    let gone = content(db, name);
    assert!(gone.len() <= 5, "{} keys", gone.len());
    for _ in 0..1000 {
        if content(db, name).is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
        db.settle().unwrap();
    }
    panic!("what was written last does not expire");
}
