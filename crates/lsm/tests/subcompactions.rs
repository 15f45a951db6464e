//! Merges that several threads have in hand, and that are cut in two for one that has nothing to do.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test panics on what it does not expect, and breaks files behind the engine's back"
)]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{blocks, env, evict, flush, key, keys, put, settle, upkeep};
use base::Fault;
use index::conformance::{Bench, World};
use index::{Assisted, Direction, Index, IndexEnv, ReadAt, Shape, Subcompactions, Upkeep};
use trefoil_lsm::Lsm;
use vfs::random::Rng;
use vfs::sim::{Config, Handle, Simulation};

const ROWS: u32 = 20_000;

/// Four runs over the same keys, the newer ones of fewer.
fn made(env: &IndexEnv, rows: u32) -> Arc<Lsm> {
    let index = Lsm::open(env.clone(), None).unwrap();
    for n in 0..4u64 {
        let value = format!("written in round {n}").repeat(3).into_bytes();
        put(&index, 160 * (n + 1), (0..rows).step_by(1 << n), |_| value.clone());
        flush(&index);
    }
    index
}

/// A merge of runs of blocks of 1 KiB is large if it has 64 of them.
fn simulated(body: impl FnOnce(&Handle, IndexEnv) + Send + 'static) {
    Simulation::new(1, Config::default()).run(|sim| {
        let dir = tempfile::tempdir().unwrap();
        body(sim, env(dir.path(), 1024, 8 << 20));
    });
}

fn in_thread(index: &Arc<Lsm>, body: impl FnOnce(&Lsm) + Send + 'static) -> vfs::thread::JoinHandle<()> {
    let index = index.clone();
    vfs::thread::spawn("other", move || body(&index)).unwrap()
}

fn assert_has(index: &Lsm, rows: u32) {
    assert_eq!(keys(index, ReadAt::Newest, Direction::Forward), (0..rows).collect::<Vec<_>>());
    let report = index.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// One thread has the merge in hand when another one comes: at the next place where that can be the merge is cut in two, and both have a part in hand at
/// the same time.
#[test]
fn a_thread_with_nothing_to_do_gets_a_part() {
    simulated(|sim, env| {
        let index = made(&env, ROWS);
        let gate = sim.hold("lsm.merging");
        let merger = in_thread(&index, settle);
        gate.wait_reached();
        assert_eq!(index.assist(&upkeep(), true).unwrap(), Assisted::Asked, "there is one merge, and it is in hand");
        gate.open();
        // One thread stops with a part in hand; the other one gets on with the rest.
        let split = sim.hold("lsm.split");
        split.wait_reached();
        let gate = sim.hold("lsm.merging");
        split.open();
        gate.wait_reached();
        assert_eq!(index.assist(&upkeep(), false).unwrap(), Assisted::Step, "the other part is at rest");
        gate.open();
        merger.join().unwrap();
        assert_eq!(index.stats().split_merges, 1);
        assert_has(&index, ROWS);
    });
}

/// The only merge is in another thread's hand: who asks whether anything is left is told so, once that step is done.
#[test]
fn busy_is_not_done() {
    simulated(|sim, env| {
        let index = made(&env, ROWS);
        assert!(index.maintain(&upkeep()).unwrap().more, "a merge has begun");
        let gate = sim.hold("lsm.merging");
        let assistant = in_thread(&index, |index| assert_eq!(index.assist(&upkeep(), true).unwrap(), Assisted::Step));
        gate.wait_reached();
        let is_told = Arc::new(AtomicBool::new(false));
        let asker = {
            let is_told = is_told.clone();
            in_thread(&index, move |index| {
                assert!(index.maintain(&upkeep()).unwrap().more);
                is_told.store(true, Ordering::Release);
            })
        };
        vfs::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!is_told.load(Ordering::Acquire), "nobody knows yet");
        gate.open();
        asker.join().unwrap();
        assistant.join().unwrap();
        settle(&index);
        assert_has(&index, ROWS);
    });
}

/// What is small is not worth a second thread.
#[test]
fn a_small_merge_stays_whole() {
    simulated(|sim, env| {
        let index = made(&env, 12_000);
        let gate = sim.hold("lsm.merging");
        let merger = in_thread(&index, settle);
        gate.wait_reached();
        assert_eq!(index.assist(&upkeep(), true).unwrap(), Assisted::Asked);
        gate.open();
        merger.join().unwrap();
        assert_eq!(index.stats().split_merges, 0);
        assert_has(&index, 12_000);
        // Who asked then has gone: a large one later is for nobody.
        for n in 4..8u64 {
            put(&index, 160 * (n + 1), 0..ROWS, |_| b"a row of a large merge".to_vec());
            flush(&index);
        }
        settle(&index);
        assert_eq!(index.stats().split_merges, 0);
        assert_has(&index, ROWS);
    });
}

/// One thread flushes, and the merge waits for it: another one goes on with that.
#[test]
fn a_merge_goes_on_beside_a_flush() {
    simulated(|sim, env| {
        let index = made(&env, ROWS);
        assert!(index.maintain(&upkeep()).unwrap().more, "a merge has begun");
        put(&index, 1600, 0..12_000, |_| vec![7; 100]);
        let gate = sim.hold("lsm.flushed");
        let flusher = in_thread(&index, |index| while index.maintain(&upkeep()).unwrap().more {});
        gate.wait_reached();
        assert_eq!(index.assist(&upkeep(), false).unwrap(), Assisted::Step);
        gate.open();
        flusher.join().unwrap();
        assert_has(&index, ROWS);
    });
}

/// As under a bound on what is written in a second: every other step is none for merges. They go on where they were.
#[test]
fn a_merge_that_has_to_wait_is_not_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    let index = made(&env(dir.path(), 1024, 8 << 20), ROWS);
    let mut steps = 0;
    while index.maintain(&upkeep()).unwrap().more {
        steps += 1;
        assert!(steps < 200, "it begins again and again");
        index.maintain(&Upkeep { tight: true, ..upkeep() }).unwrap();
    }
    assert!(steps > 10, "{steps}");
    assert_has(&index, ROWS);
}

/// On a tight disk nobody helps, nor where that is switched off.
#[test]
fn nobody_helps_who_should_not() {
    for (subcompactions, tight) in [(Subcompactions::On, true), (Subcompactions::Off, false)] {
        let dir = tempfile::tempdir().unwrap();
        let mut env = env(dir.path(), 1024, 8 << 20);
        env.options.policy.subcompactions = subcompactions;
        let index = made(&env, ROWS);
        assert!(index.maintain(&upkeep()).unwrap().more, "a merge is at rest");
        assert_eq!(index.assist(&Upkeep { tight, ..upkeep() }, true).unwrap(), Assisted::Nothing);
    }
}

/// Nobody comes: nothing is cut.
#[test]
fn a_merge_is_cut_for_nobody_who_does_not_come() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path(), 1024, 8 << 20);
    let index = made(&env, ROWS);
    settle(&index);
    assert_eq!(index.stats().split_merges, 0);
    assert_has(&index, ROWS);
}

/// Two threads, and commits, under many schedules.
#[test]
fn two_threads_merge_one_index() {
    for seed in 0..40 {
        Simulation::new(seed, Config::default()).run(|_| {
            let dir = tempfile::tempdir().unwrap();
            let index = made(&env(dir.path(), 512, 4 << 20), 3000);
            let done = Arc::new(AtomicBool::new(false));
            let helper = {
                let done = done.clone();
                in_thread(&index, move |index| {
                    while !done.load(Ordering::Acquire) {
                        if index.assist(&upkeep(), true).unwrap() != Assisted::Step {
                            vfs::thread::sleep(std::time::Duration::from_micros(50));
                        }
                    }
                })
            };
            let merger = in_thread(&index, settle);
            for n in 0..6u64 {
                put(&index, 3200 + 16 * n, (0..3000).filter(|row| u64::from(row % 6) == n), |_| b"again".to_vec());
                flush(&index);
            }
            merger.join().unwrap();
            settle(&index);
            done.store(true, Ordering::Release);
            helper.join().unwrap();
            assert_has(&index, 3000);
        });
    }
}

/// A thread has a part in hand when the index is taken apart: that waits for the step, whose outcome is nobody's, and every block comes back.
#[test]
fn taking_apart_waits_for_what_is_in_hand() {
    simulated(|sim, env| {
        let index = made(&env, ROWS);
        let gate = sim.hold("lsm.merging");
        let merger = in_thread(&index, |index| _ = index.maintain(&upkeep()).unwrap());
        gate.wait_reached();
        let is_gone = Arc::new(AtomicBool::new(false));
        let destroyer = {
            let is_gone = is_gone.clone();
            in_thread(&index, move |index| {
                index.destroy().unwrap();
                is_gone.store(true, Ordering::Release);
            })
        };
        vfs::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!is_gone.load(Ordering::Acquire), "a step is under way");
        gate.open();
        merger.join().unwrap();
        destroyer.join().unwrap();
        assert_eq!(env.space.written_and_live().1, 0, "live bytes");
    });
}

fn always(dir: &Path) -> IndexEnv {
    let mut env = env(dir, 1024, 8 << 20);
    env.options.policy.subcompactions = Subcompactions::Always;
    env
}

/// One part meets a damaged block and is given up; the others go on, and of what the damaged one has nothing is lost but that block.
#[test]
fn damage_in_one_part_is_not_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let env = always(dir.path());
    let index = made(&env, ROWS);
    evict(&env);
    let data: Vec<_> = blocks(&index).into_iter().filter(|(_, name)| name.starts_with("data")).collect();
    let (at, _) = data[data.len() / 3];
    let file = std::fs::OpenOptions::new().read(true).write(true).open(env.space.file_name()).unwrap();
    let (mut byte, place) = ([0], at.offset + u64::from(at.stored_bytes) / 2);
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], place).unwrap();
    let mut faults = 0;
    loop {
        match index.maintain(&upkeep()) {
            Ok(progress) if !progress.more => break,
            Ok(_) => {}
            Err(Fault::Corrupt(_)) => faults += 1,
            Err(fault) => panic!("{fault}"),
        }
        assert!(faults < 3, "it is tried again and again");
    }
    assert!(faults > 0 && index.stats().split_merges > 0);
    let mut unread = 0;
    for n in 0..ROWS {
        match index.get_many(ReadAt::Newest, &[&key(n)], &mut |_, _, _| {}) {
            Ok(()) => {}
            Err(Fault::Corrupt(_)) => unread += 1,
            Err(fault) => panic!("{fault}"),
        }
    }
    assert!(unread > 0 && unread < 40, "{unread} rows of one block");
}

/// A checkpoint, and a crash behind it, after each step of merges that are in parts: what there is is what was committed, and every block is counted.
#[test]
fn a_crash_at_each_step_finds_all_of_it() {
    let mut bench = Bench::new(|env, state| Ok(Lsm::open(env, state)?));
    bench.options.node_bytes = 512;
    bench.options.policy.subcompactions = Subcompactions::Always;
    bench.budget_bytes = 1 << 20;
    bench.relieves = true;
    let done = |verdict: Result<(), index::conformance::Complaint>| verdict.unwrap_or_else(|c| panic!("{}", c.0));
    for (shape, with_checkpoint) in [(Shape::Lazy, true), (Shape::Universal, false)] {
        bench.options.shape = shape;
        let (mut splits, mut steps_max) = (0, 0);
        for steps in 0.. {
            steps_max = steps;
            let mut world = World::new(&bench).map_err(|c| c.0).unwrap();
            let mut rng = Rng::new(5);
            for _ in 0..6 {
                for _ in 0..60 {
                    let write = |rng: &mut Rng| {
                        let value = (rng.below(4) > 0).then(|| vec![7; rng.below(90) as usize]);
                        (rng.below(6000).to_be_bytes().to_vec(), value)
                    };
                    let batch: Vec<_> = (0..40).map(|_| write(&mut rng)).collect();
                    world.commit(&batch).map_err(|c| c.0).unwrap();
                }
                while world.index().relieve(&*world.gate).unwrap() > 0 {}
            }
            done(world.sync_log());
            done(world.checkpoint());
            let mut is_done = false;
            for _ in 0..steps {
                is_done = !world.maintain().map_err(|c| c.0).unwrap().more;
            }
            splits = world.index().stats().split_merges.max(splits);
            // Without one the runs of the manifest before are what there is.
            if with_checkpoint {
                done(world.checkpoint());
            }
            done(world.crash());
            done(world.check());
            done(world.settle());
            done(world.check());
            if is_done {
                break;
            }
        }
        assert!(splits > 0 && steps_max > 8, "{shape:?}: {splits} in {steps_max} steps");
    }
}
