//! Planted bugs that the simulator must find, and correct code in which it must find nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::common::{join_all, quiet, spawn};
use vfs::sim::{self, Config, Failure, FailureKind, Handle};
use vfs::sync::{Condvar, Mutex, RwLock, RwLockWriteGuard};
use vfs::thread;

fn first_failure(seeds: u64, body: impl Fn(&Handle) + Send + Sync + 'static) -> Box<Failure> {
    sim::explore(0..seeds, &quiet(), body).expect_err("the planted bug is found")
}

#[test]
fn finds_a_lost_update() {
    let failure = first_failure(100, |_| {
        let value = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let value = Arc::clone(&value);
                spawn("adder", move || {
                    let read = value.load(Ordering::SeqCst);
                    thread::point("adder.between");
                    value.store(read + 1, Ordering::SeqCst);
                })
            })
            .collect();
        join_all(threads);
        assert_eq!(value.load(Ordering::SeqCst), 2, "an update is lost");
    });
    assert_eq!(failure.kind, FailureKind::Panic);
    assert!(failure.message.contains("an update is lost"), "{failure}");
    assert!(failure.to_string().contains("adder.between at "), "{failure}");
}

/// The flag is looked at before the mutex is taken, and the notifier does not take it at all: it may set the flag
/// and notify between the look and the wait.
#[test]
fn finds_a_lost_wakeup() {
    let failure = first_failure(300, |_| {
        let shared = Arc::new((AtomicBool::new(false), Mutex::new(()), Condvar::new()));
        let other = Arc::clone(&shared);
        let notifier = spawn("notifier", move || {
            other.0.store(true, Ordering::SeqCst);
            other.2.notify_one();
        });
        let mut guard = shared.1.lock();
        if !shared.0.load(Ordering::SeqCst) {
            shared.2.wait(&mut guard);
        }
        drop(guard);
        join_all([notifier]);
    });
    assert_eq!(failure.kind, FailureKind::Deadlock);
    assert!(failure.threads.contains("waits to be notified"), "{failure}");
}

#[test]
fn finds_it_on_several_cores_too() {
    let body = |_: &Handle| {
        let value = Arc::new(AtomicU32::new(0));
        let other = Arc::clone(&value);
        let adder = spawn("adder", move || {
            let read = other.load(Ordering::SeqCst);
            thread::point("adder.between");
            other.store(read + 1, Ordering::SeqCst);
        });
        value.fetch_add(1, Ordering::SeqCst);
        join_all([adder]);
        assert_eq!(value.load(Ordering::SeqCst), 2, "an update is lost");
    };
    let failure = sim::explore_parallel(2, 0..500, &quiet(), body).expect_err("the planted bug is found");
    let again = sim::explore([failure.seed], &quiet(), body).expect_err("its seed shows it again");
    assert_eq!((again.seed, &again.trace), (failure.seed, &failure.trace));
    let explored = sim::explore_parallel(2, 5..105, &Config::default(), |_| thread::point("nothing"));
    assert_eq!(explored.expect("no seed fails").runs, 100);
}

#[test]
fn a_correct_hand_over_loses_no_wakeup() {
    let explored = sim::explore(0..300, &Config::default(), |_| {
        let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let consumers: Vec<_> = (0..3)
            .map(|_| {
                let shared = Arc::clone(&shared);
                spawn("consumer", move || {
                    let mut queue = shared.0.lock();
                    shared.1.wait_while(&mut queue, |queue| queue.is_empty());
                    queue.pop();
                })
            })
            .collect();
        for n in 0..3 {
            shared.0.lock().push(n);
            shared.1.notify_one();
        }
        join_all(consumers);
        assert!(shared.0.lock().is_empty());
    });
    assert!(explored.expect("no seed fails").steps > 300 * 20);
}

#[test]
fn finds_a_deadlock_and_says_who_holds_what() {
    let failure = first_failure(200, |_| {
        let locks = Arc::new((Mutex::new(()), Mutex::new(())));
        let other = Arc::clone(&locks);
        let left = spawn("left", move || {
            let _first = other.0.lock();
            let _second = other.1.lock();
        });
        let right = spawn("right", move || {
            let _first = locks.1.lock();
            let _second = locks.0.lock();
        });
        join_all([left, right]);
    });
    assert_eq!(failure.kind, FailureKind::Deadlock);
    assert!(failure.threads.contains("waits for a lock held by left"), "{failure}");
    assert!(failure.threads.contains("waits for a lock held by right"), "{failure}");
    assert!(failure.threads.contains("sync.lock at crates/vfs/tests/planted.rs:"), "{failure}");
}

#[test]
fn finds_the_reader_that_reads_again_behind_a_writer() {
    let failure = first_failure(300, |_| {
        let lock = Arc::new(RwLock::new(0));
        let other = Arc::clone(&lock);
        let writer = spawn("writer", move || *other.write() += 1);
        let (first, second) = (lock.read(), lock.read());
        assert_eq!(*first, *second);
        drop((first, second));
        join_all([writer]);
    });
    assert_eq!(failure.kind, FailureKind::Deadlock);
    assert!(failure.threads.contains("behind the writer writer"), "{failure}");
}

#[test]
fn readers_and_writers_exclude_each_other() {
    let explored = sim::explore(0..100, &Config::default(), |_| {
        let shared = Arc::new((RwLock::new((0u32, 0u32)), AtomicU32::new(0)));
        let threads: Vec<_> = (0..5)
            .map(|n| {
                let shared = Arc::clone(&shared);
                spawn("thread", move || {
                    for _ in 0..5 {
                        if n < 2 {
                            let mut pair = shared.0.write();
                            pair.0 += 1;
                            thread::point("pair.torn");
                            pair.1 += 1;
                            let pair = RwLockWriteGuard::downgrade(pair);
                            assert_eq!(pair.0, pair.1);
                        } else if let Some(pair) = shared.0.try_read() {
                            shared.1.fetch_add(1, Ordering::SeqCst);
                            thread::point("pair.read");
                            assert_eq!(pair.0, pair.1);
                            shared.1.fetch_sub(1, Ordering::SeqCst);
                        } else {
                            let pair = shared.0.read();
                            assert_eq!(pair.0, pair.1);
                        }
                    }
                })
            })
            .collect();
        join_all(threads);
        assert_eq!(*shared.0.read(), (10, 10));
    });
    explored.expect("no seed fails");
}

#[test]
fn two_readers_are_in_at_once_in_some_run() {
    let failure = first_failure(200, |_| {
        let shared = Arc::new((RwLock::new(()), AtomicU32::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                spawn("reader", move || {
                    let _shared = shared.0.read();
                    let before = shared.1.fetch_add(1, Ordering::SeqCst);
                    thread::point("reader.in");
                    assert_eq!(before, 0, "two readers");
                    shared.1.fetch_sub(1, Ordering::SeqCst);
                })
            })
            .collect();
        join_all(threads);
    });
    assert!(failure.message.contains("two readers"), "{failure}");
}
