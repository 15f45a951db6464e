//! Who deletes much clears it away before his reply [C7]. With the guard that a test names removed, it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::*;
use trefoil::{Database, Durability, Index, Options};

const ROWS: u32 = 3_000;
const LEFT: u32 = 10;

/// Nothing is drained but by commits. Changes of more than `inline_batch_bytes` become run files.
fn filled(inline_batch_bytes: usize) -> (Database, Index) {
    let db = Database::open("/db", Options { background: false, inline_batch_bytes, ..options(&disk()) }).unwrap();
    let i = index(&db, "i");
    for from in (0..ROWS).step_by(10) {
        fill(&db, &i, from, from + 10, 8).unwrap();
    }
    (db, i)
}

/// Deletes all but the last rows; of some gives the value back if it is not to be only deletes.
fn delete(db: &Database, i: &Index, only: bool) -> trefoil::Transaction {
    let mut tx = db.begin().unwrap();
    for n in 0..ROWS - LEFT {
        tx.delete(i, &n.to_be_bytes()).unwrap();
    }
    if !only {
        tx.put(i, &0u32.to_be_bytes(), b"again").unwrap();
    }
    tx
}

fn check(db: &Database, i: &Index, runs: u64, left: u32, way: &str) {
    assert_eq!(i.stats().runs, runs, "{way}");
    assert_eq!(all(db, i).len(), left as usize, "{way}");
    sound(db);
}

/// A run of deletes is in the leaves when its commit returns, whichever way it was committed; one with a put is left to the
/// background. Guards: `Engine::clear_away` in `commit_with` and in `finish_ordered`, `SetShare::only_deletes`,
/// `note_only_deletes` in `write_run`.
#[test]
fn c7_a_commit_clears_away_what_it_deleted() {
    simulate(|_| {
        let (db, i) = filled(300);
        delete(&db, &i, true).commit().unwrap();
        check(&db, &i, 0, LEFT, "commit");

        let (db, i) = filled(300);
        delete(&db, &i, false).commit().unwrap();
        check(&db, &i, 1, LEFT + 1, "a put among them");

        let (db, i) = filled(300);
        delete(&db, &i, true).prepare(b"1").unwrap();
        db.commit_prepared(b"1").unwrap();
        check(&db, &i, 0, LEFT, "prepared");

        let (db, i) = filled(300);
        delete(&db, &i, true).prepare(b"1").unwrap();
        let ordered = db.ready_prepared(b"1").unwrap().order();
        ordered.finish(Durability::Buffered).unwrap();
        check(&db, &i, 0, LEFT, "ordered");
    });
}

/// Who began before reads all of it, and goes on to, from the middle of what is cleared away.
#[test]
fn readers_from_before_see_what_is_cleared_away() {
    simulate(|_| {
        let (db, i) = filled(300);
        let before = db.begin().unwrap();
        let mut forward = before.range(&i, ..).unwrap();
        let mut backward = before.range_back(&i, ..).unwrap();
        for n in 0..ROWS / 2 {
            assert_eq!(forward.next().unwrap().unwrap().0, n.to_be_bytes());
            assert_eq!(backward.next().unwrap().unwrap().0, (ROWS - 1 - n).to_be_bytes());
        }
        delete(&db, &i, true).commit().unwrap();
        assert_eq!(forward.collect().unwrap().len() as u32, ROWS - ROWS / 2);
        assert_eq!(backward.collect().unwrap().len() as u32, ROWS - ROWS / 2);
        check(&db, &i, 0, LEFT, "newer readers");
    });
}
