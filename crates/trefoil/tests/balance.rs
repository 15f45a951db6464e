//! Memory goes to where a little more of it spares more: messages get more than their least where pages never fit, and not where these
//! nearly do.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;

use crate::support::*;
use trefoil::{Database, Durability, Index, IndexOptions, Options, Structure};
use vfs::random::Rng;
use vfs::sync::Mutex;

const VALUE_BYTES: u64 = 200;

struct Table {
    db: Database,
    index: Index,
    keys: u64,
    rng: Rng,
}

impl Table {
    /// A Bε-tree with so many bytes of rows, of which little compresses.
    fn of(bytes: u64) -> Self {
        let options = Options { log_capacity_bytes: 64 << 20, ..options(&disk()) };
        let db = Database::open("/db", options).unwrap();
        let index = db
            .create_index(
                "i",
                IndexOptions { structure: Structure::Betree, node_bytes: 32 << 10, ..Default::default() },
            )
            .unwrap();
        let mut table = Self { db, index, keys: bytes / VALUE_BYTES, rng: Rng::new(7) };
        for from in (0..table.keys).step_by(500) {
            table.put((from..table.keys.min(from + 500)).collect());
        }
        table
    }

    fn put(&mut self, keys: Vec<u64>) {
        let mut tx = self.db.begin().unwrap();
        for key in keys {
            let value: Vec<u8> = (0..VALUE_BYTES / 8).flat_map(|_| self.rng.u64().to_le_bytes()).collect();
            tx.put(&self.index, &key.to_be_bytes(), &value).unwrap();
        }
        tx.commit_with(Durability::Buffered).unwrap();
    }

    /// Reads and changes of keys all over, so many of each 20 times a second. Returns the share of the budget beyond which is flushed, in the end.
    fn run(&mut self, seconds: u64, (reads, changes): (usize, usize)) -> f64 {
        for _ in 0..seconds * 20 {
            for _ in 0..reads {
                let key = self.rng.below(self.keys).to_be_bytes();
                assert!(self.db.begin().unwrap().get(&self.index, &key).unwrap().is_some());
            }
            let keys = (0..changes).map(|_| self.rng.below(self.keys)).collect();
            self.put(keys);
            sleep(50);
        }
        let stats = self.db.stats();
        stats.buffered_aim_bytes as f64 / stats.budget_bytes as f64
    }
}

fn share_after(bytes: u64, seconds: u64, reads_and_changes: (usize, usize)) -> f64 {
    let share = Arc::new(Mutex::new(0.0));
    let found = share.clone();
    simulate(move |_| {
        let mut table = Table::of(bytes);
        *found.lock() = table.run(seconds, reads_and_changes);
        table.db.close().unwrap();
    });
    *share.lock()
}

#[test]
fn messages_get_no_more_where_pages_nearly_fit() {
    let share = share_after(6 << 20, 10, (100, 20));
    assert!(share <= 0.25, "{share} of the budget is for messages");
}

#[test]
fn messages_get_memory_where_pages_never_fit() {
    let share = share_after(40 << 20, 25, (50, 50));
    assert!(share > 0.3, "{share} of the budget is for messages");
}

/// Where the basements of a leaf lie is kept in mind, whatever else an open database holds, and one of them is read. Guard: outlines are a class of their own.
#[test]
fn look_ups_of_leaves_on_disk_read_a_basement() {
    simulate(|_| {
        let db = Database::open("/db", options(&disk())).unwrap();
        let index = db.create_index("i", IndexOptions { structure: Structure::Betree, ..Default::default() }).unwrap();
        let (keys, value) =
            (200_000_u64, |key: u64| [key.to_be_bytes(), (key * 7).to_be_bytes(), [7; 8], [8; 8]].concat());
        for from in (0..keys).step_by(500) {
            let mut tx = db.begin().unwrap();
            (from..from + 500).for_each(|key| tx.put(&index, &key.to_be_bytes(), &value(key)).unwrap());
            tx.commit_with(Durability::Buffered).unwrap();
        }
        db.checkpoint().unwrap();
        let read_bytes = || {
            let before = db.stats().space.read_bytes;
            for key in (0..keys).step_by(500) {
                let found = db.begin().unwrap().get(&index, &key.to_be_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&*value(key)));
            }
            db.stats().space.read_bytes - before
        };
        let (first, second) = (read_bytes(), read_bytes());
        assert!(second < first / 3 * 2, "{second} bytes were read, and {first} before basements were known");
        db.close().unwrap();
    });
}
