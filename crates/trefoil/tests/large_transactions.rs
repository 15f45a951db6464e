//! Transactions larger than memory: their writes in files, their locks folded (rules A14, B1, P7). Every test says which
//! guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::time::Duration;

use crate::support::*;
use trefoil::{Database, Durability, Error, Index, Isolation, LockMode, Locking, Options, Transaction};
use vfs::sim::{DiskConfig, SimDisk};
use vfs::time::Instant;

const NOW: Locking = Locking::EXCLUSIVE.no_wait();
/// So many rows of 500 bytes are 2 MB, twice the budget.
const ROWS: u32 = 4000;

/// A budget of 1 MiB: writes spill past 256 KiB, locks fold past 64 KiB.
fn open_small(disk: &SimDisk) -> Database {
    Database::open("/db", Options { budget_bytes: 1 << 20, ..options(disk) }).unwrap()
}

fn write(tx: &mut Transaction, i: &Index, range: std::ops::Range<u32>, value: u8) {
    for n in range {
        // An order that meets all of the keys early.
        let key = n * 1009 % ROWS;
        tx.put(i, &key.to_be_bytes(), &[value; 500]).unwrap();
    }
}

/// Values of the keys that are there, by first byte.
fn counts(db: &Database, i: &Index) -> [usize; 4] {
    let mut counts = [0; 4];
    all(db, i).iter().for_each(|(_, value)| counts[usize::from(value[0])] += 1);
    counts
}

fn is_busy<T>(result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::LockBusy { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

/// A14: of each key the newest operation commits, once, and what was rolled back does not: rows written in part before and
/// in part after a savepoint, all of it in files. Guards: `Layer::cut`, the order of layers.
#[test]
fn a14_a_savepoint_within_what_was_spilled() {
    simulate(|_| {
        let disk = disk();
        let db = open_small(&disk);
        let i = index(&db, "i");
        let mut tx = db.begin().unwrap();
        write(&mut tx, &i, 0..ROWS, 1);
        write(&mut tx, &i, 0..ROWS / 2, 2);
        let savepoint = tx.savepoint();
        write(&mut tx, &i, 0..ROWS, 3);
        assert!(db.stats().spills > 8, "it spilled, and layers were merged");
        assert_eq!(tx.range(&i, ..).unwrap().collect().unwrap().len(), ROWS as usize);
        tx.rollback_to(savepoint).unwrap();
        let key = (ROWS / 2) * 1009 % ROWS;
        assert_eq!(tx.get(&i, &key.to_be_bytes()).unwrap().unwrap()[0], 1);
        tx.delete(&i, &key.to_be_bytes()).unwrap();
        tx.commit().unwrap();
        let half = ROWS as usize / 2;
        assert_eq!(counts(&db, &i), [0, half - 1, half, 0]);
        sound(&db);
        let db = open_small(&cut(&disk, db));
        let i = db.index("i").unwrap();
        assert_eq!(counts(&db, &i), [0, half - 1, half, 0], "after a power cut");
    });
}

/// A14: a transaction that did not commit leaves neither rows nor files, dropped or cut off by a crash. Guards: `RunFile`
/// removes, `RunRegistry::after_recovery`.
#[test]
fn a14_files_of_a_transaction_go_with_it() {
    simulate(|_| {
        let disk = disk();
        let db = open_small(&disk);
        let i = index(&db, "i");
        let mut tx = db.begin().unwrap();
        write(&mut tx, &i, 0..ROWS, 1);
        assert!(run_files(&disk) > 0);
        tx.rollback();
        assert_eq!(run_files(&disk), 0);
        let mut tx = db.begin().unwrap();
        write(&mut tx, &i, 0..ROWS, 1);
        disk.power_cut(3);
        drop(tx);
        drop((i, db));
        let disk = disk.reboot();
        let db = open_small(&disk);
        let i = db.index("i").unwrap();
        assert_eq!(counts(&db, &i), [0; 4]);
        assert_eq!(run_files(&disk), 0);
        sound(&db);
    });
}

/// B1: what was written stays locked when the lock itself is given up. Guards: `folded_by` asks memory and files;
/// `left_by_folded` (A17): the next owner's snapshot has what it met.
#[test]
fn b1_written_rows_stay_locked_without_a_lock() {
    simulate(|_| {
        let db = open_small(&disk());
        let i = index(&db, "i");
        let mut tx = db.begin().unwrap();
        write(&mut tx, &i, 0..ROWS, 1);
        assert!(charged(&db, "locks") < 100_000, "{}", charged(&db, "locks"));
        let other = db.begin().unwrap();
        for key in (0..ROWS).step_by(97) {
            assert!(is_busy(other.get_locked(&i, &key.to_be_bytes(), NOW)), "{key}");
        }
        assert_eq!(other.range_locked(&i, .., Locking::SHARED.skip_locked()).unwrap().collect().unwrap(), []);
        let (d, handle) = (db.clone(), i.clone());
        let waiter = spawn("waiter", move || {
            let mut next = d.begin().unwrap();
            let value = next.get_locked(&handle, &7u32.to_be_bytes(), LockMode::Exclusive).unwrap().unwrap();
            next.put(&handle, &7u32.to_be_bytes(), &[value[0] + 1; 3]).unwrap();
            // A plain read of another row of the same commit.
            let seen = next.get(&handle, &8u32.to_be_bytes()).unwrap();
            next.commit().unwrap();
            (Instant::now(), seen.map(|value| value[0]))
        });
        sleep(100);
        let committed = Instant::now();
        tx.commit().unwrap();
        let (done, seen) = waiter.join().unwrap();
        assert!(done >= committed);
        assert_eq!((get(&db, &i, &7u32.to_be_bytes()).unwrap(), seen), (vec![2; 3], Some(1)));
        assert!(!is_busy(other.get_locked(&i, &9u32.to_be_bytes(), NOW)), "the end frees all");
    });
}

/// B1: rows that were only read are folded too, shared or exclusive as they were locked, and none is lost. Guards: spans in
/// `stands_against`, their mode, the question when a lock is raised.
#[test]
fn b1_rows_that_were_read_stay_locked_as_spans() {
    simulate(|_| {
        let db = open_small(&disk());
        let i = index(&db, "i");
        fill(&db, &i, 0, ROWS, 10).unwrap();
        let reader = db.begin().unwrap();
        let mut other = db.begin().unwrap();
        let most = (ROWS - 500).to_be_bytes();
        assert_eq!(other.get_locked(&i, &5u32.to_be_bytes(), LockMode::Shared).unwrap().unwrap(), [5; 10]);
        let read = reader.range_locked(&i, ..most.as_slice(), LockMode::Shared).unwrap().collect().unwrap();
        assert_eq!(read.len(), ROWS as usize - 500);
        assert!(charged(&db, "locks") < 150_000, "{}", charged(&db, "locks"));
        for key in (0..ROWS - 500).step_by(17).map(u32::to_be_bytes) {
            assert!(is_busy(other.get_locked(&i, &key, NOW)));
            assert!(!is_busy(other.get_locked(&i, &key, Locking::SHARED.no_wait())));
        }
        assert!(!is_busy(other.get_locked(&i, &(ROWS - 9).to_be_bytes(), NOW)));
        other.put(&i, &(ROWS - 9).to_be_bytes(), b"free").unwrap();
        // What both hold shared, neither may write alone.
        let (d, handle) = (db.clone(), i.clone());
        let raiser = spawn("raiser", move || {
            let raised = other.put(&handle, &5u32.to_be_bytes(), b"mine");
            assert!(matches!(raised, Ok(()) | Err(Error::Deadlock { .. })));
            drop(d);
            Instant::now()
        });
        sleep(100);
        let released = Instant::now();
        reader.commit().unwrap();
        assert!(raiser.join().unwrap() >= released, "it wrote under the reader's lock");
    });
}

/// B1: a lock that two large transactions stand against is raised when both have ended, and not by asking twice. Guard:
/// `Locks::lower_one`.
#[test]
fn b1_a_lock_is_raised_when_all_who_share_it_have_ended() {
    simulate(|_| {
        let db = open_small(&disk());
        let i = index(&db, "i");
        fill(&db, &i, 0, ROWS, 10).unwrap();
        let key = 5u32.to_be_bytes();
        let mut other = db.begin_with(Isolation::ReadCommitted).unwrap();
        assert!(other.get_locked(&i, &key, LockMode::Shared).unwrap().is_some());
        let readers: Vec<_> = (0..2).map(|_| db.begin().unwrap()).collect();
        for reader in &readers {
            for n in 0..ROWS / 2 {
                assert!(reader.get_locked(&i, &n.to_be_bytes(), LockMode::Shared).unwrap().is_some());
            }
        }
        for _ in 0..2 {
            assert!(is_busy(other.get_locked(&i, &key, NOW)), "asked again, it has it");
            let shared = db.begin().unwrap().get_locked(&i, &key, Locking::SHARED.no_wait());
            assert!(!is_busy(shared), "what could not be raised is still shared");
        }
        assert!(matches!(other.put(&i, &key, b"mine"), Err(Error::LockTimeout { .. })));
        assert!(matches!(other.put(&i, &key, b"mine"), Err(Error::LockTimeout { .. })), "a second try needs it too");
        let raiser = spawn("raiser", move || other.put(&i, &key, b"mine").map(|()| Instant::now()).unwrap());
        let mut released = Instant::now();
        for reader in readers {
            sleep(100);
            released = Instant::now();
            reader.commit().unwrap();
        }
        assert!(raiser.join().unwrap() >= released, "it wrote under the second reader's lock");
    });
}

/// B1: whoever waits for one large transaction and then for the next waits once: one time limit for all of it. Guard:
/// `Patience`.
#[test]
fn b1_a_wait_for_folded_locks_has_one_time_limit() {
    simulate(|_| {
        let db = open_small(&disk());
        let i = index(&db, "i");
        fill(&db, &i, 0, ROWS, 10).unwrap();
        let readers: Vec<_> = (0..3).map(|_| db.begin().unwrap()).collect();
        for reader in &readers {
            for n in 0..ROWS / 2 {
                assert!(reader.get_locked(&i, &n.to_be_bytes(), LockMode::Shared).unwrap().is_some());
            }
        }
        let (d, handle) = (db.clone(), i.clone());
        let waiter = spawn("waiter", move || {
            let (began, mut tx) = (Instant::now(), d.begin().unwrap());
            let put = tx.put(&handle, &5u32.to_be_bytes(), b"mine");
            assert!(matches!(put, Err(Error::LockTimeout { .. })), "{put:?}");
            began.elapsed()
        });
        for reader in readers {
            sleep(300);
            reader.commit().unwrap();
        }
        let waited = waiter.join().unwrap();
        assert!(waited < Duration::from_millis(600), "{waited:?}");
    });
}

/// B1: a large transaction has what it wrote, whatever lies in the spans of another, and whoever looks at it meanwhile.
/// Guards: `Transaction::has_folded` when a span covers the row, and when the lock is held for a moment.
#[test]
fn b1_a_row_between_those_of_another_stays_with_its_writer() {
    simulate(|sim| {
        let db = open_small(&disk());
        let i = index(&db, "i");
        for n in (0..ROWS).step_by(2) {
            put(&db, &i, &n.to_be_bytes(), b"even", Durability::Buffered).unwrap();
        }
        let begin = || db.begin_with(Isolation::ReadCommitted).unwrap();
        let (mut odd, even) = (begin(), begin());
        for n in (0..ROWS).step_by(2) {
            odd.put(&i, &(n + 1).to_be_bytes(), b"odd").unwrap();
        }
        let key = 7u32.to_be_bytes();
        let gate = sim.hold("locks.probing");
        let (d, handle) = (db.clone(), i.clone());
        let prober = spawn("prober", move || is_busy(d.begin().unwrap().get_locked(&handle, &key, NOW)));
        gate.wait_reached();
        assert!(odd.get_locked(&i, &key, NOW).unwrap().is_some(), "its own row");
        gate.open();
        assert!(prober.join().unwrap());
        for n in (0..ROWS).step_by(2) {
            even.get_locked(&i, &n.to_be_bytes(), LockMode::Exclusive).unwrap();
        }
        assert!(is_busy(begin().get_locked(&i, &3u32.to_be_bytes(), NOW)));
        odd.put(&i, &key, b"odd again").unwrap();
        even.commit().unwrap();
        odd.commit().unwrap();
        assert_eq!(get(&db, &i, &key).unwrap(), b"odd again");
    });
}

/// B1: going back to a savepoint does not unlock: neither what is in memory nor what is in files. Guards: `lock_again`,
/// `SharedWriteSet::released`.
#[test]
fn b1_what_was_taken_back_stays_locked() {
    // Small values: the locks are folded long before the writes spill.
    for bytes in [500, 10] {
        simulate(move |_| {
            let db = open_small(&disk());
            let i = index(&db, "i");
            let mut tx = db.begin().unwrap();
            let savepoint = tx.savepoint();
            let rows = if bytes == 10 { 2000 } else { ROWS };
            (0..rows).for_each(|n| tx.put(&i, &n.to_be_bytes(), &vec![1; bytes]).unwrap());
            assert_eq!(db.stats().spills > 0, bytes == 500);
            tx.rollback_to(savepoint).unwrap();
            let other = db.begin().unwrap();
            for key in (0..rows).step_by(7) {
                assert!(is_busy(other.get_locked(&i, &key.to_be_bytes(), NOW)), "{key}");
            }
            tx.commit().unwrap();
            assert!(!is_busy(other.get_locked(&i, &0u32.to_be_bytes(), NOW)));
        });
    }
}

/// A17: who locks a row after the end of a large transaction, and did not wait for it, sees with its next plain read all of
/// that commit. Guard: `left_by_folded`.
#[test]
fn a17_a_plain_read_after_a_folded_lock_sees_its_commit() {
    simulate(|sim| {
        let db = open_small(&disk());
        let (gap, i) = (index(&db, "gap"), index(&db, "i"));
        let mut tx = db.begin().unwrap();
        write(&mut tx, &i, 0..ROWS, 1);
        let gate = sim.hold("commit.logged");
        let (d, handle) = (db.clone(), gap.clone());
        let low = spawn("low", move || put(&d, &handle, b"k", b"low", Durability::Buffered));
        gate.wait_reached();
        let large = spawn("large", move || tx.commit_with(Durability::Buffered).map(|_| ()));
        sleep(500);
        assert!(!large.is_finished(), "applied, and not visible yet");
        let (d, handle) = (db.clone(), i.clone());
        let reader = spawn("reader", move || {
            let tx = d.begin().unwrap();
            assert!(tx.get_locked(&handle, &7u32.to_be_bytes(), NOW).unwrap().is_some());
            tx.get(&handle, &8u32.to_be_bytes()).unwrap()
        });
        sleep(50);
        gate.open();
        assert!(reader.join().unwrap().is_some(), "half of a commit");
        low.join().unwrap().unwrap();
        large.join().unwrap().unwrap();
    });
}

/// Two large transactions that want each other's rows are a deadlock, found at once. Guard: the wait for a folded lock is an
/// edge (P2).
#[test]
fn p2_large_transactions_deadlock_like_small_ones() {
    simulate(|_| {
        let db = open_small(&disk());
        let i = index(&db, "i");
        let mut several: Vec<_> = (0..2).map(|_| db.begin().unwrap()).collect();
        for (half, tx) in several.iter_mut().enumerate() {
            for n in 0..ROWS / 2 {
                tx.put(&i, &(half as u32 * ROWS + n).to_be_bytes(), &[1; 300]).unwrap();
            }
        }
        let large = |(half, mut tx): (usize, Transaction)| {
            let i = i.clone();
            spawn("large", move || {
                let theirs = ((1 - half) as u32 * ROWS + 3).to_be_bytes();
                match tx.put(&i, &theirs, b"mine") {
                    Ok(()) => tx.commit().is_ok(),
                    Err(Error::Deadlock { .. }) => false,
                    Err(other) => panic!("{other}"),
                }
            })
        };
        let began = Instant::now();
        let threads: Vec<_> = several.into_iter().enumerate().map(large).collect();
        let committed = threads.into_iter().map(|t| usize::from(t.join().unwrap())).sum::<usize>();
        assert_eq!(committed, 1, "one of the two ends it");
        assert!(began.elapsed() < Duration::from_millis(400), "found, not timed out");
        assert_eq!(all(&db, &i).len(), ROWS as usize / 2 + 1);
    });
}

/// A range read finds what a large transaction is about to insert and waits for it. Guard: `Writers::pending` looks into files.
#[test]
fn a22_pending_keys_are_found_in_files() {
    simulate(|_| {
        let db = open_small(&disk());
        let i = index(&db, "i");
        put(&db, &i, &(ROWS + 1).to_be_bytes(), b"last", Durability::Sync).unwrap();
        let mut tx = db.begin().unwrap();
        write(&mut tx, &i, 0..ROWS, 1);
        let reader = db.begin().unwrap();
        let low = 0u32.to_be_bytes();
        let first = reader.range_locked(&i, low.as_slice().., NOW).and_then(|mut rows| rows.next().map(|_| ()));
        assert!(is_busy(first), "it passed over rows that are about to be");
        tx.commit().unwrap();
        let rows = db.begin().unwrap().range_locked(&i, low.as_slice().., NOW).unwrap().collect().unwrap();
        assert_eq!(rows.len(), ROWS as usize + 1);
    });
}

/// B7, P7: a large transaction on a disk that fills up keeps within its memory however often it is refused, and has all that it was told it has; what it took comes back with its end. Guard:
/// `Transaction::spill_failed`.
#[test]
fn b7_a_large_transaction_that_is_refused_stays_small() {
    simulate(|_| {
        let disk = SimDisk::new(DiskConfig { capacity_bytes: 16 << 20, ..DiskConfig::seed(7) });
        let db = open_small(&disk);
        let (i, spare) = (index(&db, "i"), index(&db, "spare"));
        fill(&db, &spare, 0, 1000, 100).unwrap();
        let mut tx = db.begin().unwrap();
        let (mut written, mut refused) = (Vec::new(), 0);
        for n in 0u32.. {
            let mut random = vfs::random::Rng::new(n.into());
            let value: Vec<u8> = (0..250).flat_map(|_| random.u64().to_be_bytes()).collect();
            match tx.put(&i, &n.to_be_bytes(), &value) {
                Ok(()) => written.push(n),
                Err(Error::DiskFull { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
            if refused == 300 {
                break;
            }
        }
        assert!(written.len() > 1000, "{}", written.len());
        assert!(charged(&db, "write_sets") < 700_000, "{} bytes", charged(&db, "write_sets"));
        db.checkpoint().expect("it has the reserve");
        db.drop_index("spare").expect("drops go on");
        drop(spare);
        let found = tx.range(&i, ..).unwrap().collect().unwrap();
        assert!(
            found.iter().map(|(key, _)| key.as_slice()).eq(written.iter().map(|n| n.to_be_bytes()).collect::<Vec<_>>())
        );
        tx.rollback();
        sleep(500);
        put(&db, &i, b"again", b"1", Durability::Sync).expect("resumes by itself");
        sound(&db);
    });
}

/// A7: files of what is prepared keep nobody from opening the database again, in the same process. Guard: `Spilled` holds
/// the engine weakly.
#[test]
fn a7_a_large_prepared_transaction_does_not_keep_the_database() {
    simulate(|_| {
        let disk = disk();
        for closed in [false, true] {
            let db = open_small(&disk);
            let name = if closed { "i" } else { "j" };
            let i = index(&db, name);
            let mut tx = db.begin().unwrap();
            write(&mut tx, &i, 0..ROWS, 1);
            tx.prepare(name.as_bytes()).unwrap();
            if closed {
                db.close().unwrap();
            }
            drop((i, db));
            let db = open_small(&disk);
            db.commit_prepared(name.as_bytes()).unwrap();
            assert_eq!(counts(&db, &db.index(name).unwrap()), [0, ROWS as usize, 0, 0]);
        }
    });
}

/// A7: a prepared transaction larger than memory: its locks and its rows survive a crash, and its commit. Guards: a spilled
/// share becomes a run file of the prepare record; `Held::shrink_if_large`.
#[test]
fn a7_a_large_transaction_is_prepared() {
    simulate(|_| {
        let disk = disk();
        let db = open_small(&disk);
        let i = index(&db, "i");
        let mut tx = db.begin().unwrap();
        write(&mut tx, &i, 0..ROWS, 1);
        tx.prepare(b"large").unwrap();
        let locked = |db: &Database, i: &Index| {
            assert!(charged(db, "locks") < 150_000, "{}", charged(db, "locks"));
            assert!(charged(db, "write_sets") < 300_000, "{}", charged(db, "write_sets"));
            let other = db.begin().unwrap();
            for key in (0..ROWS).step_by(101) {
                assert!(is_busy(other.get_locked(i, &key.to_be_bytes(), NOW)), "{key}");
            }
        };
        locked(&db, &i);
        drop(i);
        let disk = cut(&disk, db);
        let db = open_small(&disk);
        let i = db.index("i").unwrap();
        locked(&db, &i);
        db.commit_prepared(b"large").unwrap();
        assert!(!is_busy(db.begin().unwrap().get_locked(&i, &7u32.to_be_bytes(), NOW)));
        assert_eq!(counts(&db, &i), [0, ROWS as usize, 0, 0]);
        drop(i);
        let db = open_small(&cut(&disk, db));
        assert_eq!(counts(&db, &db.index("i").unwrap()), [0, ROWS as usize, 0, 0]);
        sound(&db);
    });
}
