//! Commits that wait for memory.

use trefoil::{IndexOptions, Structure};

use crate::support::{Entries, all, disk, open, simulate, sleep, sound, spawn};

const ROWS: u64 = 6000;
const VALUE_BYTES: usize = 1000;

/// Two commits of leaves on disk, in two indexes each. Memory is enough for either, and for what both need in their first index, but not for one of
/// them beside what the other one has of its first. Guard: a commit gives back what it has of other indexes before it waits.
#[test]
fn a1_commits_do_not_wait_for_memory_that_others_hold_and_wait_with() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let make = |name| {
            let of = IndexOptions { structure: Structure::Btree, node_bytes: 64 << 10, ..IndexOptions::default() };
            db.create_index(name, of).unwrap()
        };
        let filled = [make("a"), make("b")];
        for first in (0..ROWS).step_by(200) {
            let mut tx = db.begin().unwrap();
            for n in first..first + 200 {
                filled.iter().for_each(|index| tx.put(index, &n.to_be_bytes(), &[1; VALUE_BYTES]).unwrap());
            }
            tx.commit().unwrap();
        }
        let stats = filled[0].stats();
        let rows_of_a_leaf = ROWS / stats.leaves;
        drop(filled);
        // Large commits are runs at first.
        db.settle().unwrap();
        db.close().unwrap();
        drop(db);
        // No leaf is in memory.
        let db = open(&disk);
        let free = db.stats().budget_bytes - db.stats().memory.iter().map(|(_, bytes)| bytes).sum::<u64>();
        // Each may take a page for itself and one for a half that is split off: two fifths of what is free in each index.
        let leaves = free / (2 * stats.node_bytes) * 2 / 5;
        assert!((10..60).contains(&leaves), "{leaves} leaves");
        let commit = |first: u64| {
            let db = db.clone();
            move || {
                let mut tx = db.begin().unwrap();
                for name in ["a", "b"] {
                    let index = db.index(name).unwrap();
                    (0..leaves).for_each(|n| {
                        let key = first + n * rows_of_a_leaf * 2;
                        tx.put(&index, &key.to_be_bytes(), &[2; 100]).unwrap();
                    });
                }
                tx.commit().map(|_| ())
            }
        };
        let (reserved, waits) = (sim.hold("commit.reserved"), sim.hold("cache.funds_wait"));
        let one = spawn("one", commit(0));
        reserved.wait_reached();
        let other = spawn("other", commit(rows_of_a_leaf));
        waits.wait_reached();
        waits.open();
        sleep(5);
        reserved.open();
        one.join().unwrap().unwrap();
        other.join().unwrap().unwrap();
        let changed = |entries: Entries| entries.iter().filter(|(_, value)| value[0] == 2).count() as u64;
        for name in ["a", "b"] {
            assert_eq!(changed(all(&db, &db.index(name).unwrap())), 2 * leaves, "{name}");
        }
        sound(&db);
        db.close().unwrap();
    });
}
