//! The rules of commit, visibility and space at the level of the engine, each as a named schedule on a simulated
//! disk. Every test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::sync::Arc;

use crate::support::*;
use trefoil::{Database, Durability, Error, IndexOptions, Isolation, LockMode, Options, Structure};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::SimDisk;
use vfs::sync::Mutex;

/// A1: what a commit needs is got before its place in the log, all or nothing. Guards: the run file is written
/// before `append`; `commit_batches` removes the files of a commit that came to nothing.
#[test]
fn a1_a_commit_that_cannot_write_its_run_leaves_no_trace() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open("/db", Options { inline_batch_bytes: 100, ..options(&disk) }).unwrap();
        let (a, b) = (index(&db, "a"), index(&db, "b"));
        let before = db.stats().log.appended_bytes;
        disk.faults().add(Rule::new(Action::Eio).on(Class::Sync).path("run-").nth(1));
        let mut tx = db.begin().unwrap();
        for n in 0..50u32 {
            tx.put(&a, &n.to_be_bytes(), b"value").unwrap();
            tx.put(&b, &n.to_be_bytes(), b"value").unwrap();
        }
        let error = tx.commit().unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert_eq!(disk.faults().fired(), 1);
        assert_eq!(db.stats().log.appended_bytes, before, "nothing was logged");
        assert_eq!(run_files(&disk), 0, "neither the whole run nor the broken one is left");
        assert!(all(&db, &a).is_empty() && all(&db, &b).is_empty());
        fill(&db, &a, 0, 50, 5).unwrap();
        let db = Database::open("/db", options(&cut(&disk, db))).unwrap();
        assert_eq!(all(&db, &db.index("a").unwrap()).len(), 50);
        assert!(all(&db, &db.index("b").unwrap()).is_empty());
        sound(&db);
    });
}

/// A7b: the applied prefix is read before any index is asked what it has. Guard: `Engine::upkeep`, whose
/// `applied` is `visible` and not the log's end.
#[test]
fn a7b_idle_index_does_not_trim_an_unapplied_commit() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let (idle, busy) = (index(&db, "idle"), index(&db, "busy"));
        put(&db, &idle, b"old", b"1", Durability::Sync).unwrap();
        db.checkpoint().unwrap();
        let gate = sim.hold("commit.logged");
        let (d, i) = (db.clone(), idle.clone());
        let late = spawn("late", move || put(&d, &i, b"late", b"2", Durability::Sync));
        gate.wait_reached();
        // This one syncs the log, the record of the other with it, and waits to become visible.
        let (d, b) = (db.clone(), busy.clone());
        let other = spawn("other", move || put(&d, &b, b"busy", b"3", Durability::Sync));
        sleep(50);
        db.checkpoint().unwrap();
        disk.power_cut(3);
        gate.open();
        let _ = (late.join().unwrap(), other.join().unwrap());
        let db = open(&cut(&disk, db));
        assert_eq!(get(&db, &db.index("busy").unwrap(), b"busy").unwrap(), b"3");
        assert_eq!(get(&db, &db.index("idle").unwrap(), b"late").unwrap(), b"2", "trimmed before it was applied");
        assert_eq!(get(&db, &db.index("idle").unwrap(), b"old").unwrap(), b"1");
    });
}

/// A6: a commit to an index that was dropped meanwhile, and freed with it, makes no block wait for its record; yet the
/// manifest's floor lies above it, and a log that ends below is refused. Guard: a checkpoint waits for the log up to its
/// floor.
#[test]
fn a6_the_log_is_durable_up_to_the_floor() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let (kept, gone) = (index(&db, "kept"), index(&db, "gone"));
        put(&db, &kept, b"k", b"1", Durability::Sync).unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&gone, b"k", b"1").unwrap();
        db.drop_index("gone").unwrap();
        tx.commit_with(Durability::Buffered).unwrap();
        drop(gone);
        db.settle().unwrap();
        let db = open(&cut(&disk, db));
        assert_eq!(get(&db, &db.index("kept").unwrap(), b"k").unwrap(), b"1");
        sound(&db);
    });
}

/// A12: nothing is seen before everything below it is applied, and what a snapshot sees does not change. Guard:
/// `commit_batches` marks the range after it has applied.
#[test]
fn a12_nothing_is_seen_above_a_commit_that_is_not_applied() {
    // Before its turn to apply, and in it.
    for point in ["commit.logged", "tree.before_leaf"] {
        simulate(move |sim| {
            let db = open(&disk());
            let (a, b) = (index(&db, "a"), index(&db, "b"));
            let gate = sim.hold(point);
            let (d, i) = (db.clone(), a.clone());
            let low = spawn("low", move || put(&d, &i, b"k", b"low", Durability::Buffered));
            gate.wait_reached();
            let (d, i) = (db.clone(), b.clone());
            let high = spawn("high", move || put(&d, &i, b"k", b"high", Durability::Buffered));
            sleep(50);
            let snapshot = db.snapshot().unwrap();
            assert!(!high.is_finished(), "the reply waits for everything below");
            assert_eq!(snapshot.get(&b, b"k").unwrap(), None);
            assert_eq!(snapshot.get(&a, b"k").unwrap(), None);
            gate.open();
            low.join().unwrap().unwrap();
            high.join().unwrap().unwrap();
            assert_eq!(snapshot.get(&a, b"k").unwrap(), None, "a snapshot does not change");
            assert_eq!(snapshot.get(&b, b"k").unwrap(), None, "a snapshot does not change");
            assert_eq!(get(&db, &a, b"k").unwrap(), b"low");
            assert_eq!(get(&db, &b, b"k").unwrap(), b"high");
        });
    }
}

/// A17: whoever gets a lock sees with its next plain read what the lock's last owner committed. Guards: locks are
/// released with the commit's timestamp; `Transaction::read_at` waits for what the locks have shown.
#[test]
fn a17_a_plain_read_after_a_lock_sees_the_releaser() {
    simulate(|sim| {
        let db = open(&disk());
        let (gap, items) = (index(&db, "gap"), index(&db, "items"));
        let gate = sim.hold("commit.logged");
        let (d, i) = (db.clone(), gap.clone());
        let low = spawn("low", move || put(&d, &i, b"k", b"low", Durability::Buffered));
        gate.wait_reached();
        let (d, i) = (db.clone(), items.clone());
        let releaser = spawn("releaser", move || {
            let mut tx = d.begin().unwrap();
            tx.put(&i, b"header", b"1 item").unwrap();
            tx.put(&i, b"item", b"spoon").unwrap();
            tx.commit_with(Durability::Buffered).map(|_| ())
        });
        sleep(50);
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let (d, i) = (db.clone(), items.clone());
            let reader = spawn("reader", move || {
                let tx = d.begin_with(isolation).unwrap();
                assert_eq!(tx.get_locked(&i, b"header", LockMode::Exclusive).unwrap().unwrap(), b"1 item");
                tx.get(&i, b"item").unwrap()
            });
            sleep(50);
            if isolation == Isolation::RepeatableRead {
                gate.open();
            }
            // The first one is joined by the next turn's lock wait, and by the end.
            let _reader_runs_on = spawn("joins", move || assert_eq!(reader.join().unwrap().unwrap(), b"spoon"));
        }
        low.join().unwrap().unwrap();
        releaser.join().unwrap().unwrap();
        sleep(2000);
    });
}

/// A23: a commit whose record was handed to a log that failed is neither done nor not done: it is there whole or
/// not at all. Guard: `finish_commit` names the outcome.
#[test]
fn a23_commit_outcome_unknown() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let (a, b) = (index(&db, "a"), index(&db, "b"));
        put(&db, &a, b"k", b"1", Durability::Sync).unwrap();
        disk.faults().add(Rule::new(Action::Eio).on(Class::Sync).path("wal"));
        let mut tx = db.begin().unwrap();
        tx.put(&a, b"k", b"2").unwrap();
        tx.put(&b, b"k", b"2").unwrap();
        let error = tx.commit_with(Durability::Sync).unwrap_err();
        assert!(matches!(error, Error::CommitOutcomeUnknown { .. }), "{error}");
        assert!(!error.is_retryable());
        let error = put(&db, &a, b"k", b"3", Durability::Sync).unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        assert!(matches!(db.create_index("c", small_nodes()), Err(Error::Poisoned { .. })));
        assert!(get(&db, &a, b"k").is_some(), "reads go on");
        assert!(db.close().is_err(), "what was promised is not certain, and close says so");
        let db = open(&cut(&disk, db));
        let found = (get(&db, &db.index("a").unwrap(), b"k"), get(&db, &db.index("b").unwrap(), b"k"));
        let (old, new) = (b"1".to_vec(), b"2".to_vec());
        assert!(found == (Some(old), None) || found == (Some(new.clone()), Some(new)), "{found:?}");
    });
}

/// D12: from when writes are refused is told once, with the first cause, also if nobody asks: what a commit
/// did not wait for, the background cannot sync. Guard: the options reach the latch (`Poison::telling`).
#[test]
fn d12_the_first_cause_is_told_once() {
    simulate(|_| {
        let disk = disk();
        let told = Arc::new(Mutex::new(Vec::new()));
        let all_told = told.clone();
        let on_poison = move |cause: &str| all_told.lock().push(cause.to_owned());
        let db = Database::open("/db", Options { on_poison: Some(Arc::new(on_poison)), ..options(&disk) }).unwrap();
        let a = index(&db, "a");
        put(&db, &a, b"k", b"1", Durability::Sync).unwrap();
        assert!(told.lock().is_empty());
        disk.faults().add(Rule::new(Action::Eio).on(Class::Sync).path("wal").forever());
        put(&db, &a, b"k", b"2", Durability::Buffered).unwrap();
        sleep(2000);
        assert_eq!(told.lock().len(), 1);
        disk.faults().add(Rule::new(Action::Eio).forever());
        let Err(Error::Poisoned { cause }) = db.checkpoint() else { panic!("writes are not refused") };
        assert!(cause.starts_with("sync ") && cause.contains("wal"), "{cause}");
        assert!(db.close().is_err());
        assert_eq!(*told.lock(), [cause]);
    });
}

/// `Buffered` means within a second. The committer is held between its record and its reply while the log thread
/// looks. Guard: the log thread asks what was promised, not whether the log grew.
#[test]
fn a_buffered_commit_is_durable_within_a_second() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        sleep(1000);
        let gate = sim.hold("commit.applied");
        let (d, handle) = (db.clone(), i.clone());
        let writer = spawn("writer", move || put(&d, &handle, b"k", b"v", Durability::Buffered));
        gate.wait_reached();
        sleep(900);
        gate.open();
        writer.join().unwrap().unwrap();
        sleep(1000);
        let db = open(&cut(&disk, db));
        assert_eq!(get(&db, &db.index("i").unwrap(), b"k").unwrap(), b"v");
    });
}

/// P7: what memory cannot hold goes to files, and a write that is refused, because they cannot grow, is not in the
/// transaction. Guard: `Transaction::write` takes the write back.
#[test]
fn p7_a_refused_write_is_not_in_the_transaction() {
    simulate(|_| {
        let disk = disk();
        let db = Database::open("/db", Options { budget_bytes: 1 << 20, ..options(&disk) }).unwrap();
        let i = index(&db, "i");
        let mut tx = db.begin().unwrap();
        let value = vec![7; 10_000];
        let mut n = 0u32;
        while db.stats().spills < 3 {
            tx.put(&i, &n.to_be_bytes(), &value).unwrap();
            n += 1;
        }
        disk.faults().add(Rule::new(Action::StorageFull).on(Class::Allocate).forever());
        let error = loop {
            match tx.put(&i, &n.to_be_bytes(), &value) {
                Ok(()) => n += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        assert_eq!(tx.get(&i, &n.to_be_bytes()).unwrap(), None, "the refused write");
        assert_eq!(tx.range(&i, ..).unwrap().collect().unwrap().len(), n as usize);
        disk.faults().clear();
        tx.commit().unwrap();
        assert_eq!(all(&db, &i).len(), n as usize);
    });
}

/// P7: transactions that run share the limit, and none is refused: those that have written much move it to files. Guards:
/// `charge_writes` charges, counts what others have, and spills; `finish` gives back.
#[test]
fn p7_write_sets_share_the_budget() {
    simulate(|_| {
        let db = Database::open("/db", Options { budget_bytes: 1 << 20, ..options(&disk()) }).unwrap();
        let i = index(&db, "i");
        let value = |n: u8| vec![n; 10_000];
        let mut several: Vec<_> = (0..3).map(|_| db.begin().unwrap()).collect();
        for n in 0..60u8 {
            for (tag, tx) in several.iter_mut().enumerate() {
                tx.put(&i, &[tag as u8, n], &value(n)).unwrap();
                assert!(charged(&db, "write_sets") <= 600_000, "{} after {n}", charged(&db, "write_sets"));
            }
        }
        assert!(db.stats().spills >= 3, "1.8 MB are in memory");
        for (tag, tx) in several.iter().enumerate() {
            assert_eq!(tx.get(&i, &[tag as u8, 7]).unwrap(), Some(value(7)));
            let own = tx.range_back(&i, ..).unwrap().collect().unwrap();
            assert!(own.iter().rev().map(|(key, _)| key[1]).eq(0..60));
        }
        several.pop().unwrap().rollback();
        several.into_iter().for_each(|tx| assert!(tx.commit().is_ok()));
        assert_eq!(charged(&db, "write_sets"), 0);
        assert_eq!(all(&db, &i).len(), 120);
    });
}

/// P7: after a deadlock the victim's handle still exists, but its write set is given back. Guard: `Transaction::finish`.
#[test]
fn p7_the_victim_of_a_deadlock_gives_its_memory_back() {
    simulate(|_| {
        let db = open(&disk());
        let i = index(&db, "i");
        let (mut victim, mut other) = (db.begin().unwrap(), db.begin().unwrap());
        victim.put(&i, b"a", &[7; 200_000]).unwrap();
        other.put(&i, b"b", b"1").unwrap();
        (0..20u8).for_each(|n| other.put(&i, &[n], b"heavier").unwrap());
        let handle = i.clone();
        let waiter = spawn("waiter", move || {
            other.put(&handle, b"a", b"1").unwrap();
            other.commit().unwrap();
        });
        sleep(20);
        let error = victim.put(&i, b"b", b"1").unwrap_err();
        assert!(matches!(error, Error::Deadlock { .. }), "{error}");
        waiter.join().unwrap();
        assert_eq!(charged(&db, "write_sets"), 0);
        drop(victim);
    });
}

/// A commit over too many cold leaves is kept in memory as a run: in the budget as long as it is there. Guards: `prepare`
/// charges it, the run holds the charge.
#[test]
fn a_run_in_memory_is_charged_until_it_is_drained() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        (0..10).for_each(|n| fill(&db, &i, n * 1000, (n + 1) * 1000, 20).unwrap());
        db.checkpoint().unwrap();
        let db = Database::open("/db", Options { background: false, ..options(&cut(&disk, db)) }).unwrap();
        let i = db.index("i").unwrap();
        let mut tx = db.begin().unwrap();
        (0..200u32).for_each(|n| tx.put(&i, &(n * 50).to_be_bytes(), b"cold").unwrap());
        tx.commit().unwrap();
        assert!(charged(&db, "runs") >= 200 * 8, "{}", charged(&db, "runs"));
        db.settle().unwrap();
        assert_eq!(charged(&db, "runs"), 0);
        assert_eq!(all(&db, &i).iter().filter(|(_, value)| value == b"cold").count(), 200);
    });
}

/// A log segment is a quarter of the log at most, in whole sectors whatever the log's size. Guard: `segment_bytes` rounds.
#[test]
fn any_log_capacity_opens() {
    for odd in [1, 4096, 5000, (16 << 10) - 1, 16 << 10] {
        simulate(move |_| {
            let disk = disk();
            let odd = |disk: &SimDisk| Options {
                log_capacity_bytes: (1 << 20) + odd,
                log_segment_bytes: 64 << 20,
                ..options(disk)
            };
            let db = Database::open("/db", odd(&disk)).unwrap();
            let i = index(&db, "i");
            fill(&db, &i, 0, 500, 100).unwrap();
            let db = Database::open("/db", odd(&cut(&disk, db))).unwrap();
            assert_eq!(all(&db, &db.index("i").unwrap()).len(), 500);
        });
    }
}

/// A value beyond the limit is refused by its length alone: the bytes are zero pages that nobody ever touches.
#[test]
fn limits_are_checked_before_anything_is_copied() {
    simulate(|_| {
        let db = open(&disk());
        let i = index(&db, "i");
        let mut tx = db.begin().unwrap();
        let huge = vec![0; usize::try_from(base::limits::VALUE_BYTES_MAX).unwrap() + 1];
        let error = tx.put(&i, b"k", &huge).unwrap_err();
        assert!(matches!(error, Error::Limit { limit: base::limits::VALUE_BYTES_MAX, .. }), "{error}");
        let long = vec![0; base::limits::KEY_BYTES_MAX + 1];
        assert!(matches!(tx.put(&i, &long, b""), Err(Error::Limit { .. })));
        tx.put(&i, b"k", b"v").unwrap();
        tx.commit().unwrap();
        assert_eq!(all(&db, &i), [(b"k".to_vec(), b"v".to_vec())]);
    });
}

/// D10: more messages than there is memory, and no step of upkeep: who waits for memory gets it. Guard: `Engine::relieve`.
#[test]
fn d10_messages_make_room_without_upkeep() {
    simulate(|_| {
        let disk = disk();
        let quiet = || Options { background: false, log_capacity_bytes: 64 << 20, ..options(&disk) };
        let small = || Options { budget_bytes: 2 << 20, ..quiet() };
        let db = Database::open("/db", quiet()).unwrap();
        let rows = db
            .create_index(
                "rows",
                IndexOptions { structure: trefoil::Structure::Betree, node_bytes: 4096, ..small_nodes() },
            )
            .unwrap();
        (0..4000).step_by(100).for_each(|from| fill(&db, &rows, from, from + 100, 400).unwrap());
        db.settle().unwrap();
        db.close().unwrap();
        drop((db, rows));
        let db = Database::open("/db", small()).unwrap();
        let rows = db.index("rows").unwrap();
        let mut most = 0;
        for n in 0..8000u32 {
            put(&db, &rows, &(n * 1237 % 4000).to_be_bytes(), &[n as u8; 300], Durability::Buffered).unwrap();
            most = most.max(charged(&db, "buffers"));
        }
        assert!(most > 200 << 10, "{most} bytes of messages at most");
        put(&db, &rows, &1u32.to_be_bytes(), b"last", Durability::Sync).unwrap();
        let truth = || (4000..8000u32).map(|n| ((n * 1237 % 4000).to_be_bytes().to_vec(), vec![n as u8; 300]));
        let mut truth: std::collections::BTreeMap<_, _> = truth().collect();
        truth.insert(1u32.to_be_bytes().to_vec(), b"last".to_vec());
        let is_right = |db: &Database| all(db, &db.index("rows").unwrap()).into_iter().eq(truth.clone());
        let disk = cut(&disk, db);
        let db = Database::open("/db", Options { budget_bytes: 1 << 20, ..options(&disk) }).unwrap();
        assert!(is_right(&db), "behind the replay");
    });
}

/// D10: the memtable that has most makes room, not the first one with something in it: that would write a run for every few rows of its
/// index. Guard: `Engine::relieve` asks who has how much.
#[test]
fn d10_the_largest_memtable_makes_room() {
    simulate(|_| {
        let disk = disk();
        let quiet =
            Options { background: false, log_capacity_bytes: 64 << 20, budget_bytes: 2 << 20, ..options(&disk) };
        let db = Database::open("/db", quiet).unwrap();
        let lsm = IndexOptions { structure: Structure::Lsm, ..small_nodes() };
        let [few, many] = ["few", "many"].map(|name| db.create_index(name, lsm).unwrap());
        for n in 0..30_000u32 {
            put(&db, &many, &n.to_be_bytes(), &[n as u8; 300], Durability::Buffered).unwrap();
            if n % 40 == 0 {
                put(&db, &few, &n.to_be_bytes(), b"few", Durability::Buffered).unwrap();
            }
        }
        let (few, many) = (few.stats(), many.stats());
        let runs = |stats: &trefoil::IndexStats| stats.levels.iter().map(|level| level.runs).sum::<u64>();
        assert!(runs(&many) >= 2, "{many:?}");
        assert!(runs(&few) <= 1, "{} runs of {} keys", runs(&few), few.live_keys);
    });
}
