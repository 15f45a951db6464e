//! Waits for row locks as people meet them: how long they are, and what is shown of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{IndexId, TxnId};
use trefoil_txn::locks::{TOLD_MAX, WaitNews};
use trefoil_txn::{LockOutcome, LockOwner, LockRequest, Locks, Mode};
use vfs::random::Rng;
use vfs::sim::{Config, Simulation};
use vfs::sync::Mutex;
use vfs::thread::{JoinHandle, spawn};
use vfs::time::Instant;

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    spawn(name, body).expect("thread")
}

fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().expect("a panic ends the simulation"));
}

/// None is longer than so many times the mean.
fn are_near_their_mean(waits: &[Duration], times: u32) {
    let (longest, sum) = (*waits.iter().max().expect("waits"), waits.iter().sum::<Duration>());
    let mean = sum / u32::try_from(waits.len()).expect("some");
    assert!(longest <= mean * times, "the longest wait is {longest:?}, the mean {mean:?}");
}

/// Fairness on a hot row: of clients that come back at once, and some that take their time, nobody waits twenty times as
/// long as all on average.
#[test]
fn c2_the_longest_wait_on_a_hot_row_is_near_the_mean() {
    for seed in 0..6 {
        Simulation::new(seed, Config { cores: 1 + seed as usize % 2, ..Config::default() }).run(move |_| {
            let locks = Arc::new(Locks::new());
            let waits = Arc::new(Mutex::new(Vec::new()));
            let begun = Arc::new(AtomicU64::new(0));
            let clients = (1..=12u64).map(|client| {
                let (locks, waits, begun) = (locks.clone(), waits.clone(), begun.clone());
                let mut rng = Rng::new(seed * 100 + client);
                start("client", move || {
                    for _ in 0..150 {
                        let mut owner = LockOwner::new(TxnId(begun.fetch_add(1, Ordering::Relaxed)));
                        let ask = LockRequest {
                            index: IndexId(1),
                            key: b"hot",
                            mode: Mode::Exclusive,
                            timeout: None,
                            weight: 0,
                        };
                        let began = Instant::now();
                        assert!(matches!(locks.lock(&mut owner, &ask), LockOutcome::Granted { .. }));
                        waits.lock().push(began.elapsed());
                        vfs::thread::sleep(Duration::from_micros(300 + rng.below(400)));
                        locks.release_all(&mut owner, None);
                        if client % 4 == 0 {
                            vfs::thread::sleep(Duration::from_micros(rng.below(2000)));
                        }
                    }
                })
            });
            join(clients.collect());
            are_near_their_mean(&waits.lock(), 20);
        });
    }
}

/// A queue of rows of which each client takes the first: who has waited for a row that is gone by then asks for the next one,
/// to which others have come at once meanwhile. Nobody waits four times as long as all on average. Guard: waiters stand by age.
#[test]
fn c2_who_waited_for_a_row_that_is_gone_does_not_begin_anew() {
    for seed in 0..6 {
        Simulation::new(seed, Config { cores: 1 + seed as usize % 2, ..Config::default() }).run(move |_| {
            let (locks, waits) = (Arc::new(Locks::new()), Arc::new(Mutex::new(Vec::new())));
            let (begun, first) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let clients = (1..=12u64).map(|client| {
                let (locks, waits, begun, first) = (locks.clone(), waits.clone(), begun.clone(), first.clone());
                let mut rng = Rng::new(seed * 100 + client);
                start("client", move || {
                    for _ in 0..100 {
                        let mut owner = LockOwner::new(TxnId(begun.fetch_add(1, Ordering::Relaxed)));
                        let began = Instant::now();
                        take_first(&locks, &mut owner, &first);
                        waits.lock().push(began.elapsed());
                        vfs::thread::sleep(Duration::from_micros(500 + rng.below(1000)));
                        first.fetch_add(1, Ordering::SeqCst);
                        locks.release_all(&mut owner, None);
                        vfs::thread::sleep(Duration::from_micros(rng.below(2000)));
                    }
                })
            });
            join(clients.collect());
            are_near_their_mean(&waits.lock(), 4);
        });
    }
}

/// Locks the first row there is; what is gone stays locked.
fn take_first(locks: &Locks, owner: &mut LockOwner, first: &AtomicU64) {
    loop {
        let row = first.load(Ordering::SeqCst);
        let key = row.to_be_bytes();
        let ask = LockRequest { index: IndexId(1), key: &key, mode: Mode::Exclusive, timeout: None, weight: 0 };
        assert!(matches!(locks.lock(owner, &ask), LockOutcome::Granted { .. }));
        if first.load(Ordering::SeqCst) == row {
            return;
        }
    }
}

/// Who waits for whom is listed while it lasts, holders and those before in the queue; the last deadlocks are kept, each
/// with the key that either side waits for, the newest first. Guards: `waits` looks at all who are in the way; `resolve`
/// keeps what it ended, `Kept::keep` the last.
#[test]
fn waits_and_deadlocks_are_listed() {
    Simulation::new(1, Config::default()).run(|_| {
        let locks = Arc::new(Locks::new());
        let ask = |key: &'static [u8], mode| LockRequest { index: IndexId(7), key, mode, timeout: None, weight: 0 };
        let lock = |owner: &mut LockOwner, key, mode| locks.lock(owner, &ask(key, mode));
        let (mut a, mut b) = (LockOwner::new(TxnId(1)), LockOwner::new(TxnId(2)));
        assert!(matches!(lock(&mut a, b"row", Mode::Shared), LockOutcome::Granted { .. }));
        assert!(matches!(lock(&mut b, b"row", Mode::Shared), LockOutcome::Granted { .. }));
        assert_eq!(locks.waits(), []);
        let waiters: Vec<_> = [3, 4]
            .map(|txn| {
                let locks_of = locks.clone();
                let waiter = start("waiter", move || {
                    let mut owner = LockOwner::new(TxnId(txn));
                    assert!(matches!(
                        locks_of.lock(&mut owner, &ask(b"row", Mode::Exclusive)),
                        LockOutcome::Granted { .. }
                    ));
                    locks_of.release_all(&mut owner, None);
                });
                vfs::thread::sleep(Duration::from_millis(10));
                waiter
            })
            .into();
        let waits = locks.waits();
        let edges: Vec<_> = waits.iter().map(|e| (e.waiter.0, e.blocker.0)).collect();
        assert_eq!(edges, [(3, 1), (3, 2), (4, 1), (4, 2), (4, 3)]);
        assert!(waits.iter().all(|e| e.index == IndexId(7) && e.key == b"row" && e.waited.as_millis() >= 10));
        locks.release_all(&mut a, None);
        locks.release_all(&mut b, None);
        join(waiters);
        assert_eq!(locks.waits(), []);
        let rounds = trefoil_txn::locks::DEADLOCKS_KEPT as u64 + 3;
        for n in 0..rounds {
            let mut first = LockOwner::new(TxnId(100 + 2 * n));
            assert!(matches!(lock(&mut first, b"first", Mode::Exclusive), LockOutcome::Granted { .. }));
            let locks_of = locks.clone();
            let other = start("other", move || {
                let mut second = LockOwner::new(TxnId(101 + 2 * n));
                let _ = locks_of.lock(&mut second, &ask(b"second", Mode::Exclusive));
                let outcome = locks_of.lock(&mut second, &ask(b"first", Mode::Shared));
                assert!(matches!(outcome, LockOutcome::Deadlock { .. }), "the younger one: {outcome:?}");
                locks_of.release_all(&mut second, None);
            });
            vfs::thread::sleep(Duration::from_millis(10));
            assert!(matches!(lock(&mut first, b"second", Mode::Exclusive), LockOutcome::Granted { .. }));
            locks.release_all(&mut first, None);
            join(vec![other]);
        }
        let kept = locks.deadlocks();
        assert_eq!(kept.len(), trefoil_txn::locks::DEADLOCKS_KEPT);
        assert!(kept.is_sorted_by_key(|(ago, _)| *ago), "the newest first");
        for (n, (_, deadlock)) in (0..rounds).rev().zip(&kept) {
            assert_eq!(deadlock.victim, TxnId(101 + 2 * n));
            let mut sides: Vec<_> = deadlock.edges.iter().map(|e| (e.waiter.0 - 2 * n, e.key.as_slice())).collect();
            sides.sort_unstable();
            assert_eq!(sides, [(100, &b"second"[..]), (101, &b"first"[..])]);
        }
    });
}

/// Who waits tells who is in the way, also of one who took the lock behind its back, and whoever hears it may end that one: no
/// latch is held. Guard: `Locks::sleep` looks again.
#[test]
fn who_is_in_the_way_is_told_while_the_wait_lasts() {
    for seed in 0..20 {
        Simulation::new(seed, Config { cores: 2, ..Config::default() }).run(|_| {
            let locks = Arc::new(Locks::new());
            let ask = |mode| LockRequest { index: IndexId(7), key: b"row", mode, timeout: None, weight: 0 };
            let later = Arc::new(Mutex::new(None::<LockOwner>));
            let heard = Arc::new(Mutex::new(Vec::new()));
            let (weak, ends, hears) = (Arc::downgrade(&locks), later.clone(), heard.clone());
            locks.report_waits(Box::new(move |news| {
                match news {
                    WaitNews::Blocked(by) => hears.lock().push(by.iter().map(|txn| txn.0).collect()),
                    WaitNews::Begins => hears.lock().push(vec![]),
                    WaitNews::Ends => hears.lock().push(vec![0]),
                }
                if matches!(news, WaitNews::Blocked([TxnId(2)])) {
                    let (locks, owner) = (weak.upgrade().expect("somebody waits"), ends.lock().take());
                    locks.release_all(&mut owner.expect("it is ended once"), None);
                }
                Some(Duration::from_millis(20))
            }));
            let mut first = LockOwner::new(TxnId(1));
            assert!(matches!(locks.lock(&mut first, &ask(Mode::Shared)), LockOutcome::Granted { .. }));
            let of_waiter = locks.clone();
            let waiter = start("waiter", move || {
                let mut owner = LockOwner::new(TxnId(3));
                assert!(matches!(of_waiter.lock(&mut owner, &ask(Mode::Exclusive)), LockOutcome::Granted { .. }));
                of_waiter.release_all(&mut owner, None);
            });
            while heard.lock().len() < 2 {
                vfs::thread::sleep(Duration::from_millis(1));
            }
            let mut second = LockOwner::new(TxnId(2));
            assert!(matches!(locks.lock(&mut second, &ask(Mode::Shared)), LockOutcome::Granted { .. }), "ahead of it");
            *later.lock() = Some(second);
            locks.release_all(&mut first, None);
            // Nobody wakes it: it has to look by itself.
            join(vec![waiter]);
            let heard = heard.lock();
            let expect: [Vec<u64>; 4] = [vec![], vec![1], vec![2], vec![0]];
            assert_eq!(*heard, expect);
        });
    }
}

/// Of many in the way some are told at a time, and all of them in turns: one whom the wait is never told of may be the one who has to
/// give way. Guards: `blockers` takes `TOLD_MAX`, and skips those told before.
#[test]
fn of_many_in_the_way_all_are_told_in_turns() {
    Simulation::new(1, Config { cores: 2, ..Config::default() }).run(|_| {
        let locks = Arc::new(Locks::new());
        let ask = |mode| LockRequest { index: IndexId(7), key: b"row", mode, timeout: None, weight: 0 };
        let heard = Arc::new(Mutex::new(Vec::<Vec<u64>>::new()));
        let hears = heard.clone();
        locks.report_waits(Box::new(move |news| {
            if let WaitNews::Blocked(by) = news {
                hears.lock().push(by.iter().map(|txn| txn.0).collect());
            }
            Some(Duration::from_millis(20))
        }));
        let count = 2 * TOLD_MAX as u64 + 10;
        let mut holders: Vec<_> = (1..=count).map(|txn| LockOwner::new(TxnId(txn))).collect();
        for holder in &mut holders {
            assert!(matches!(locks.lock(holder, &ask(Mode::Shared)), LockOutcome::Granted { .. }));
        }
        let of_waiter = locks.clone();
        let waiter = start("waiter", move || {
            let mut owner = LockOwner::new(TxnId(1000));
            assert!(matches!(of_waiter.lock(&mut owner, &ask(Mode::Exclusive)), LockOutcome::Granted { .. }));
            of_waiter.release_all(&mut owner, None);
        });
        while heard.lock().len() < 4 {
            vfs::thread::sleep(Duration::from_millis(1));
        }
        holders.iter_mut().for_each(|holder| locks.release_all(holder, None));
        join(vec![waiter]);
        let heard = heard.lock();
        assert!(heard.iter().all(|told| told.len() <= TOLD_MAX));
        let mut told = heard[..3].concat();
        told.sort_unstable();
        assert!(told.into_iter().eq(1..=count), "each once");
        assert_eq!(heard[3], heard[0], "and from the beginning");
    });
}

/// Who is rolled back finds the deadlock in the list: it is written to the error log then.
#[test]
fn a_deadlock_is_listed_before_its_victim_knows() {
    for seed in 0..600 {
        Simulation::new(seed, Config { cores: 2, ..Config::default() }).run(|_| {
            let locks = Arc::new(Locks::new());
            let ask = |key| LockRequest { index: IndexId(7), key, mode: Mode::Exclusive, timeout: None, weight: 0 };
            let mut older = LockOwner::new(TxnId(1));
            assert!(matches!(locks.lock(&mut older, &ask(b"first")), LockOutcome::Granted { .. }));
            let locks_of = locks.clone();
            let victim = start("victim", move || {
                let mut younger = LockOwner::new(TxnId(2));
                assert!(matches!(locks_of.lock(&mut younger, &ask(b"second")), LockOutcome::Granted { .. }));
                let outcome = locks_of.lock(&mut younger, &ask(b"first"));
                assert!(matches!(outcome, LockOutcome::Deadlock { .. }), "the younger one: {outcome:?}");
                let victims: Vec<_> = locks_of.deadlocks().iter().map(|(_, deadlock)| deadlock.victim).collect();
                assert_eq!(victims, [TxnId(2)]);
                locks_of.release_all(&mut younger, None);
            });
            // It waits by then, so the older one is who finds the cycle.
            vfs::thread::sleep(Duration::from_millis(10));
            assert!(matches!(locks.lock(&mut older, &ask(b"second")), LockOutcome::Granted { .. }));
            locks.release_all(&mut older, None);
            join(vec![victim]);
        });
    }
}
