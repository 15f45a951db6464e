//! Reserve and apply, checkpoints, the log's mark, faults.

use std::ops::Bound;

use base::GcView;

use super::{deletes, key, puts, value};
use crate::conformance::world::{Way, batch_of};
use crate::conformance::{Bench, Verdict, World, ensure};
use crate::{LogGate, ReadAt, Reservation, Upkeep};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// Rule A1: after `reserve`, `apply` does no file operation (every commit of the suite checks that), and goes
/// through although the disk fails everything meanwhile.
pub fn a1_apply_needs_no_disk(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..500, 0))?;
    world.checkpoint()?;
    world.evict()?;
    let batch = batch_of(&puts((0..500).step_by(50), 1));
    let Reservation::Direct(reserved) = world.index().reserve(&batch)? else {
        ensure!(false, "ten keys on a machine at rest are not too cold");
        return Ok(());
    };
    // Everything else may leave memory; what is reserved may not.
    world.evict()?;
    world.watch.fail_reads(true);
    world.watch.fail_writes(true);
    let view = world.view();
    let ts = base::CommitTs(world.end().0 + 16);
    let before = world.watch.operations();
    world.index().apply(&batch, reserved, ts, &view);
    ensure!(world.watch.operations() == before, "apply went to the disk");
    world.watch.fail_reads(false);
    world.watch.fail_writes(false);
    world.adopt(ts, batch);
    world.check()?;
    world.crash_durably()?;
    world.check()
}

/// Rule A1: a reservation that is dropped leaves nothing behind, not even its pins.
pub fn a1_a_dropped_reservation_leaves_nothing(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts((0..500).step_by(2), 0))?;
    world.checkpoint()?;
    world.evict()?;
    for round in 0..200 {
        let batch = batch_of(&puts([round, round + 250, 9_000 + round], 1));
        drop(world.index().reserve(&batch)?);
    }
    world.check()?;
    world.evict()?;
    let frames = world.held_bytes();
    let allowed = 2 * bench.options.node_bytes as u64;
    ensure!(frames <= allowed, "{frames} bytes of frames stay after every reservation was dropped");
    world.crash_durably()?;
    world.check()
}

/// Rule A1: a reservation that meets a fault fails as a whole; the index goes on.
pub fn a1_reserve_is_all_or_nothing(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..800, 0))?;
    world.checkpoint()?;
    world.evict()?;
    world.watch.fail_reads(true);
    let batch = batch_of(&puts((0..800).step_by(100), 1));
    let before = world.watch.reads();
    let failed = world.index().reserve(&batch).is_err();
    let read = world.watch.reads() > before;
    world.watch.fail_reads(false);
    ensure!(!read || failed, "reserve read, the read failed, reserve did not");
    world.check()?;
    world.commit(&puts((0..800).step_by(100), 1))?;
    world.check()
}

/// A commit of thousands of keys, scattered over cold leaves, gets through in one of the two ways.
pub fn a1_a_large_cold_commit_gets_through(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..3_000, 0))?;
    world.checkpoint()?;
    world.evict()?;
    let before = world.snapshot();
    let mut writes = puts((0..3_000).step_by(3), 1);
    writes.extend(deletes((0..3_000).filter(|i| i % 15 == 1)));
    world.commit(&writes)?;
    world.check_range(ReadAt::Newest, ALL)?;
    world.check_range(ReadAt::Snapshot(before), ALL)?;
    world.settle()?;
    world.check()?;
    world.crash_durably()?;
    world.check()
}

/// A fault while reading is an error of the read, not a wrong answer, and passes.
pub fn a_failed_read_is_an_error(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..400, 0))?;
    world.checkpoint()?;
    world.evict()?;
    let resident = world.cache.stats().pages;
    world.watch.fail_reads(true);
    let failed = world.check_range(ReadAt::Newest, ALL).is_err();
    let keys: Vec<Vec<u8>> = (0..400).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let points = world.check_keys(ReadAt::Newest, &keys).is_err();
    world.watch.fail_reads(false);
    ensure!(failed && points, "everything was evicted ({resident} pages left), every read failed, nobody noticed");
    world.check()
}

/// Decision D12: a fault while writing back refuses writes from then on; what is in memory stays, and is read.
pub fn a_failed_write_loses_nothing(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..400, 0))?;
    world.checkpoint()?;
    world.commit(&puts((0..400).step_by(3), 1))?;
    world.commit(&deletes((0..400).step_by(7)))?;
    world.watch.fail_writes(true);
    let failed = world.evict().is_err();
    world.watch.fail_writes(false);
    ensure!(failed, "write-back of dirty pages succeeds on a disk that fails every write");
    // Later attempts are refused, or succeed; they do not count the failed one as done.
    let _ = world.evict();
    let _ = world.evict();
    world.check()?;
    world.crash_durably()?;
    world.check()
}

/// Rule A6: a run whose record the log lost is in no manifest either.
pub fn a6_a_run_does_not_outrun_its_record(bench: &Bench) -> Verdict {
    for way in [Way::Memory, Way::File] {
        for steps in [0, 2] {
            let mut world = World::new(bench)?;
            world.commit(&puts(0..50, 0))?;
            world.sync_log()?;
            world.commit_by(way, &puts(0..100, 1))?;
            for _ in 0..steps {
                world.maintain()?;
            }
            world.checkpoint()?;
            world.crash()?;
            world.check()?;
            world.settle()?;
            world.check()?;
        }
    }
    Ok(())
}

/// Rule 5 of the seam: a checkpoint and the log above its skip position are the whole index.
pub fn a_checkpoint_and_the_log_are_everything(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    for round in 0..10 {
        world.commit(&puts((0..300).filter(|i| (i + round) % 4 == 0), round))?;
        world.commit(&deletes((0..300).filter(|i| (i + round) % 11 == 0)))?;
        if round % 3 == 0 {
            world.checkpoint()?;
        }
        if round % 4 == 1 {
            world.evict()?;
        }
        world.crash_durably()?;
        world.check()?;
    }
    Ok(())
}

/// Checkpoints move the skip position on; one of an index at rest skips everything.
pub fn checkpoints_move_on(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    for round in 0..5 {
        world.commit(&puts(0..200, round))?;
        world.settle()?;
        world.checkpoint()?;
        world.settle()?;
        let gate = world.gate.clone();
        let upkeep = Upkeep { view: world.view(), applied: world.end(), log: &*gate, tight: false };
        let state = world.index().checkpoint(&upkeep)?;
        ensure!(state.skip == world.end(), "at rest at {}, the checkpoint skips up to {}", world.end(), state.skip);
        world.checkpoint()?;
    }
    Ok(())
}

/// Rule A6: what a manifest holds was durable in the log before, also what is only missing because it was collected.
pub fn a6_nothing_outruns_the_log(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..100, 0))?;
    world.gate.make_durable(world.end())?;
    world.checkpoint()?;
    // Deleted, collected, written back, unlinked; the log knows of it in memory only, until somebody asks it.
    world.commit(&deletes(0..100))?;
    world.commit(&puts(200..220, 0))?;
    world.settle()?;
    world.evict()?;
    world.settle()?;
    world.checkpoint()?;
    world.crash()?;
    world.check()
}

/// Rule A6: without the log there is no checkpoint, or one of what was durable.
pub fn a6_a_log_that_refuses_stops_the_checkpoint(bench: &Bench) -> Verdict {
    for evict in [false, true] {
        let mut world = World::new(bench)?;
        world.commit(&puts(0..100, 0))?;
        world.gate.make_durable(world.end())?;
        world.checkpoint()?;
        world.commit(&deletes(0..50))?;
        world.commit(&puts(50..80, 1))?;
        world.settle()?;
        world.gate.refuse(true);
        if evict {
            // Write-back fails or waits; either way nothing may reach the disk before its log.
            let _ = world.evict();
        }
        // A refusal is in order; a success is judged by what a crash leaves.
        let _ = world.checkpoint();
        world.crash()?;
        world.check()?;
    }
    Ok(())
}

/// Rule D7: a failed checkpoint leaves the last one as it was, and the next one succeeds.
pub fn a_failed_checkpoint_costs_nothing(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..300, 0))?;
    world.checkpoint()?;
    world.commit(&puts((0..300).step_by(2), 1))?;
    world.gate.refuse(true);
    let gate = world.gate.clone();
    let failed = world
        .index()
        .checkpoint(&Upkeep { view: world.view(), applied: world.end(), log: &*gate, tight: false })
        .is_err();
    world.gate.refuse(false);
    ensure!(failed, "a checkpoint of commits that the log refuses to keep");
    world.check()?;
    world.commit(&puts((0..300).step_by(3), 2))?;
    world.checkpoint()?;
    world.crash_durably()?;
    world.check()
}

/// Replay from a manifest that is older than what lies on disk: pages written back since are not reachable, and
/// their space is taken again without harm.
pub fn write_back_after_a_checkpoint_is_not_needed(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..300, 0))?;
    world.checkpoint()?;
    for round in 1..4 {
        world.commit(&puts((0..300).filter(|i| i % 3 != 0), round))?;
        world.commit(&deletes((0..300).filter(|i| i % 7 == round)))?;
        world.settle()?;
        world.evict()?;
        world.crash_durably()?;
        world.check()?;
    }
    world.checkpoint()?;
    world.check()
}

/// A run that was attached, drained, and whose drain is in no manifest yet.
pub fn a_crash_between_drain_and_checkpoint(bench: &Bench) -> Verdict {
    for way in [Way::Memory, Way::File] {
        let mut world = World::new(bench)?;
        world.commit(&puts(0..100, 0))?;
        world.checkpoint()?;
        world.commit_by(way, &puts((0..200).step_by(2), 1))?;
        world.checkpoint()?;
        world.settle()?;
        world.commit(&deletes((0..200).step_by(4)))?;
        world.settle()?;
        world.evict()?;
        world.crash_durably()?;
        world.check()?;
        world.settle()?;
        world.check()?;
    }
    Ok(())
}

/// Replay with the view that keeps everything, as recovery does (rule P6), then life with a narrow one.
pub fn p6_replay_collects_nothing(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    for round in 0..20 {
        world.put(&key(1), &value(1, round))?;
        world.delete(&key(2))?;
        world.put(&key(2), &value(2, round))?;
    }
    world.delete(&key(2))?;
    world.crash_durably()?;
    ensure!(world.view() != GcView::keep_all(), "the log is not empty");
    world.check()?;
    world.commit(&puts(1..3, 99))?;
    world.settle()?;
    world.check()
}
