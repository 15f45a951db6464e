//! The simulator itself: that it is deterministic, that it finds what is planted, that it says what it found.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "looks at the simulator from outside, by the real clock"
)]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{join_all, quiet, spawn};
use vfs::sim::{self, Config, FailureKind, Handle, Simulation, Strategy};
use vfs::sync::{Condvar, Mutex, RwLock};
use vfs::thread;
use vfs::time::Instant;

/// Six threads that use everything.
fn busy(rounds: u32) -> impl Fn(&Handle) -> u64 + Clone + Send + Sync + 'static {
    move |sim| {
        let shared = Arc::new((Mutex::new(0u64), Condvar::new(), RwLock::new(0u64)));
        let threads: Vec<_> = (0..6u64)
            .map(|n| {
                let shared = Arc::clone(&shared);
                spawn(&format!("busy {n}"), move || {
                    for round in 0..rounds {
                        let mut guard = shared.0.lock();
                        *guard = guard.wrapping_mul(31).wrapping_add(n);
                        if vfs::random::u64().is_multiple_of(8) {
                            shared.1.wait_for(&mut guard, Duration::from_micros(20));
                        }
                        drop(guard);
                        thread::point("busy.between");
                        let seen = *shared.2.read();
                        if round % 16 == n as u32 {
                            *shared.2.write() += seen + 1;
                            shared.1.notify_one();
                        }
                    }
                })
            })
            .collect();
        join_all(threads);
        sim.note(*shared.0.lock());
        *shared.0.lock()
    }
}

#[test]
fn one_seed_gives_one_run() {
    for seed in 0..20 {
        let first = Simulation::new(seed, Config::default()).run(busy(20));
        let second = Simulation::new(seed, Config::default()).run(busy(20));
        assert_eq!(first, second, "seed {seed}");
    }
}

/// What outlives a simulation, here a counter of the process, makes two runs of a seed differ.
#[test]
fn says_where_two_runs_part() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let report = Simulation::new(1, Config::default()).run_twice(busy(5)).expect("nothing but the seed is used");
    assert!(report.steps > 100);
    let failure = Simulation::new(1, Config::default())
        .run_twice(|_| {
            thread::point("same");
            if RUNS.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                thread::point("even");
            }
            thread::point("last");
        })
        .expect_err("the second run takes another way");
    assert_eq!(failure.kind, FailureKind::Diverged);
    let trace = &failure.trace;
    let places = ["same", "in the first run", "even", "in the second run"].map(|text| trace.find(text));
    assert!(places[0].is_some() && places.is_sorted() && trace.rfind("last") > places[3], "{failure}");
}

#[test]
fn many_seeds_give_many_runs() {
    let runs: Vec<_> = (0..200).map(|seed| Simulation::new(seed, Config::default()).run(busy(8))).collect();
    let traces: HashSet<_> = runs.iter().map(|run| run.trace_hash).collect();
    assert_eq!(traces.len(), runs.len());
    let orders: HashSet<_> = runs.iter().map(|run| run.value).collect();
    assert!(orders.len() > 150, "only {} different orders in 200 runs", orders.len());
}

#[test]
fn simulations_run_in_parallel_without_touching_each_other() {
    let alone: Vec<_> = (0..8).map(|seed| Simulation::new(seed, Config::default()).run(busy(10))).collect();
    let together: Vec<_> =
        (0..8).map(|seed| std::thread::spawn(move || Simulation::new(seed, Config::default()).run(busy(10)))).collect();
    for (alone, together) in alone.into_iter().zip(together) {
        assert_eq!(alone, together.join().unwrap());
    }
}

#[test]
fn switching_is_cheap() {
    let config = Config::default().strategy(Strategy::Random { switch: 0.3 });
    let report = Simulation::new(1, config.clone()).run(busy(120));
    assert!(report.steps > 5_000 && report.switches > 1_000, "{report:?}");
    let before = std::time::Instant::now();
    for seed in 0..10 {
        Simulation::new(seed, config.clone()).run(busy(120));
    }
    let each = before.elapsed() / 10;
    println!("{} points, {} switches: {each:?} a run", report.steps, report.switches);
    assert!(each < Duration::from_millis(500), "{each:?} a run, ten times what it should be");
}

#[test]
fn a_thread_that_never_stops_is_a_livelock() {
    let config = Config { steps_max: 1_000, ..quiet() };
    let failure = Simulation::new(1, config)
        .try_run(|_| {
            loop {
                thread::spin();
            }
            #[expect(unreachable_code, reason = "the loop has no end")]
            ()
        })
        .expect_err("1,000 points are soon used up");
    assert_eq!(failure.kind, FailureKind::Livelock);
}

#[test]
fn a_thread_that_waits_outside_is_stuck() {
    let config = Config { stuck_after: Duration::from_millis(50), ..quiet() };
    let failure = Simulation::new(1, config)
        .try_run(|_| {
            let (_sender, receiver) = std::sync::mpsc::channel::<()>();
            receiver.recv().expect("never sent");
        })
        .expect_err("nobody sends");
    assert_eq!(failure.kind, FailureKind::Stuck);
}

#[test]
fn a_panic_anywhere_ends_the_run_with_its_seed() {
    let run = || {
        let simulation = Simulation::new(77, quiet());
        simulation.run(|_| {
            let _ = spawn("worker", || panic!("on purpose"));
            thread::sleep(Duration::from_secs(1));
            unreachable!("the simulation has ended");
        })
    };
    let panic = std::panic::catch_unwind(run).expect_err("the worker's panic");
    let text = panic.downcast_ref::<String>().expect("a formatted panic");
    assert!(text.contains("seed 77") && text.contains("worker: on purpose"), "{text}");
}

/// While a panic unwinds, destructors do not run into waits: the first scheduling point ends the run.
#[test]
fn a_panic_under_a_lock_ends_the_run_too() {
    let failure = Simulation::new(3, quiet())
        .try_run(|_| {
            let lock = Mutex::new(());
            let _held = lock.lock();
            panic!("under the lock");
        })
        .map(|report: sim::Report<()>| report)
        .expect_err("the panic");
    assert!(failure.kind == FailureKind::Panic && failure.message.contains("under the lock"), "{failure}");
    let caught = Simulation::new(3, quiet()).try_run(|_| {
        let _ = std::panic::catch_unwind(|| panic!("caught"));
        thread::point("after");
    });
    assert!(caught.expect_err("a caught panic is a panic").message.contains("caught"));
}

#[test]
fn time_is_simulated() {
    let before = std::time::Instant::now();
    let report = Simulation::new(5, Config::default()).run(|sim| {
        let start = Instant::now();
        let sleeper = spawn("sleeper", || thread::sleep(Duration::from_secs(3600)));
        let pair = (Mutex::new(()), Condvar::new());
        let mut guard = pair.0.lock();
        assert!(pair.1.wait_for(&mut guard, Duration::from_secs(10)));
        drop(guard);
        let waited = start.elapsed();
        assert!(waited >= Duration::from_secs(10) && waited < Duration::from_secs(11), "{waited:?}");
        join_all([sleeper]);
        assert!(sim.elapsed() >= Duration::from_secs(3600));
        let deadline = Instant::now() + Duration::from_micros(50);
        while Instant::now() < deadline {}
        start.elapsed()
    });
    assert!(report.elapsed < Duration::from_secs(3601), "{:?}", report.elapsed);
    assert!(before.elapsed() < Duration::from_secs(30), "an hour of sleep costs nothing");
}

#[test]
fn a_notified_wait_does_not_time_out() {
    sim::explore(0..50, &Config::default(), |_| {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let other = Arc::clone(&shared);
        let notifier = spawn("notifier", move || {
            thread::sleep(Duration::from_millis(1));
            *other.0.lock() = true;
            other.1.notify_all();
        });
        let mut ready = shared.0.lock();
        while !*ready {
            assert!(!shared.1.wait_for(&mut ready, Duration::from_secs(1)));
        }
        drop(ready);
        join_all([notifier]);
    })
    .expect("no seed fails");
}

#[test]
fn waits_wake_for_no_reason_when_asked_to() {
    let config = Config { spurious_wakeup: 0.5, ..quiet() };
    let failure = sim::explore(0..50, &config, |_| {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let other = Arc::clone(&shared);
        let notifier = spawn("notifier", move || {
            thread::sleep(Duration::from_millis(1));
            *other.0.lock() = true;
            other.1.notify_all();
        });
        let mut ready = shared.0.lock();
        if !*ready {
            shared.1.wait(&mut ready);
        }
        assert!(*ready, "woken too early");
        drop(ready);
        join_all([notifier]);
    });
    assert!(failure.expect_err("no loop around the wait").message.contains("woken too early"));
}

#[test]
fn a_spinning_thread_lets_the_others_run() {
    for strategy in [Strategy::Random { switch: 0.0 }, Strategy::Priorities { change: 0.0 }] {
        sim::explore(0..20, &Config::default().strategy(strategy), |_| {
            let flag = Arc::new(AtomicBool::new(false));
            let other = Arc::clone(&flag);
            let setter = spawn("setter", move || {
                thread::sleep(Duration::from_millis(5));
                other.store(true, Ordering::Release);
            });
            while !flag.load(Ordering::Acquire) {
                thread::spin();
            }
            join_all([setter]);
        })
        .map(|explored| assert!(explored.steps < 20 * 100, "time jumps when all others sleep: {explored:?}"))
        .expect("no seed fails");
    }
}

#[test]
fn a_bias_makes_a_rare_switch_common() {
    let lost = |config: Config| {
        let lost = (0..60).filter(|seed| {
            let run = Simulation::new(*seed, config.clone()).run(|_| {
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
                value.load(Ordering::SeqCst)
            });
            run.value == 1
        });
        lost.count()
    };
    let rare = Config::default().strategy(Strategy::Random { switch: 0.01 });
    let common = rare.clone().bias("adder.", 1.0);
    let (rare, common) = (lost(rare), lost(common));
    assert!(rare < 10 && common > 20, "{rare} and {common} of 60");
}

/// Under priorities some runs keep a thread away for a long time although it can run all the while.
#[test]
fn priorities_make_threads_slow() {
    let longest_wait = |strategy| {
        (0..20u64)
            .map(|seed| {
                Simulation::new(seed, Config::default().strategy(strategy))
                    .run(|_| {
                        let counter = Arc::new(AtomicU32::new(0));
                        let other = Arc::clone(&counter);
                        let busy = spawn("busy", move || {
                            for _ in 0..500 {
                                other.fetch_add(1, Ordering::SeqCst);
                                thread::point("busy");
                            }
                        });
                        thread::point("start");
                        let mut longest = 0;
                        for _ in 0..20 {
                            let before = counter.load(Ordering::SeqCst);
                            thread::point("slow");
                            longest = longest.max(counter.load(Ordering::SeqCst) - before);
                        }
                        join_all([busy]);
                        longest
                    })
                    .value
            })
            .max()
    };
    assert!(longest_wait(Strategy::Random { switch: 0.3 }) < Some(100));
    assert!(longest_wait(Strategy::Priorities { change: 0.005 }) > Some(200));
}

#[test]
fn a_gate_replays_one_schedule() {
    for seed in 0..20 {
        Simulation::new(seed, Config::default()).run(|sim| {
            let log = Arc::new(Mutex::new(Vec::new()));
            let gate = sim.hold("writer.middle");
            let other = Arc::clone(&log);
            let writer = spawn("writer", move || {
                other.lock().push("begin");
                thread::point("writer.middle");
                other.lock().push("end");
            });
            gate.wait_reached();
            log.lock().push("between");
            gate.open();
            join_all([writer]);
            assert_eq!(*log.lock(), ["begin", "between", "end"]);
        });
    }
}

#[test]
fn a_gate_can_let_some_pass() {
    Simulation::new(1, Config::default()).run(|sim| {
        let gate = sim.hold_nth("round", 3);
        let rounds = Arc::new(AtomicU32::new(0));
        let other = Arc::clone(&rounds);
        let worker = spawn("worker", move || {
            for _ in 0..5 {
                thread::point("round");
                other.fetch_add(1, Ordering::SeqCst);
            }
        });
        gate.wait_reached();
        assert_eq!(rounds.load(Ordering::SeqCst), 3);
        gate.open();
        join_all([worker]);
        assert_eq!(rounds.load(Ordering::SeqCst), 5);
    });
}

#[test]
fn a_gate_left_shut_is_named_in_the_deadlock() {
    let failure = Simulation::new(1, quiet())
        .try_run(|sim| {
            let _gate = sim.hold("writer.middle");
            join_all([spawn("writer", || thread::point("writer.middle"))]);
        })
        .expect_err("the gate stays shut");
    assert!(failure.threads.contains("is held at the gate writer.middle"), "{failure}");
}

/// Thread-local values are destroyed while the thread still holds the baton.
#[test]
fn destructors_of_thread_locals_are_simulated() {
    struct Leave(Arc<Mutex<u32>>);
    impl Drop for Leave {
        fn drop(&mut self) {
            assert!(sim::current().is_some(), "the destructor runs inside the simulation");
            *self.0.lock() += 1;
            thread::sleep(Duration::from_millis(1));
        }
    }
    thread_local! { static LOCAL: std::cell::RefCell<Option<Leave>> = const { std::cell::RefCell::new(None) } }
    let run = |seed| {
        Simulation::new(seed, Config::default()).run(|_| {
            let left = Arc::new(Mutex::new(0));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let left = Arc::clone(&left);
                    spawn("local", move || LOCAL.set(Some(Leave(left))))
                })
                .collect();
            join_all(threads);
            assert_eq!(*left.lock(), 3, "joined after the destructors");
        })
    };
    (0..20).for_each(|seed| assert_eq!(run(seed), run(seed)));
}

#[test]
fn hash_maps_and_random_numbers_follow_the_seed() {
    let run = |seed| {
        Simulation::new(seed, Config::default())
            .run(|sim| {
                let map: vfs::random::HashMap<u32, ()> = (0..20).map(|n| (n, ())).collect();
                let order: Vec<_> = map.into_keys().collect();
                (order, vfs::random::u64(), sim.rng().u64(), thread::cores(), thread::number(), vfs::time::unix_time())
            })
            .value
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
    assert_ne!(run(1).1, run(2).1);
}

/// A lock that outlives simulations, held by a thread of the real world.
#[test]
fn a_lock_held_outside_is_waited_for() {
    static GLOBAL: Mutex<u32> = Mutex::new(0);
    let held = GLOBAL.lock();
    let inside = std::thread::spawn(|| {
        Simulation::new(1, Config::default()).run(|_| {
            let threads: Vec<_> = (0..3).map(|_| spawn("adder", || *GLOBAL.lock() += 1)).collect();
            join_all(threads);
        });
    });
    std::thread::sleep(Duration::from_millis(20));
    drop(held);
    inside.join().unwrap();
    assert_eq!(*GLOBAL.lock(), 3);
}

#[test]
fn many_short_simulations() {
    let explored = sim::explore(0..2_000, &Config::default(), |_| {
        let value = Arc::new(Mutex::new(0));
        let other = Arc::clone(&value);
        let thread = spawn("adder", move || *other.lock() += 1);
        *value.lock() += 1;
        join_all([thread]);
        assert_eq!(*value.lock(), 2);
    });
    assert_eq!(explored.expect("no seed fails").runs, 2_000);
}
