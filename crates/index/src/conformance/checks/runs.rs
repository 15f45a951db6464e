//! Attached runs before, while and after they are drained (rule A3).

use std::ops::Bound;

use super::{deletes, key, puts};
use crate::ReadAt;
use crate::conformance::world::Way;
use crate::conformance::{Bench, Verdict, World, ensure};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const WAYS: [Way; 2] = [Way::Memory, Way::File];

/// Rule A3: every read merges runs that are not drained, at its own snapshot, and so it goes while they drain.
pub fn a3_every_read_merges_attached_runs(bench: &Bench) -> Verdict {
    for way in WAYS {
        let mut world = World::new(bench)?;
        world.commit(&puts((0..300).step_by(2), 0))?;
        let before = world.snapshot();
        let mut run = puts((0..300).step_by(3), 1);
        run.extend(deletes((0..300).filter(|i| i % 10 == 4)));
        world.commit_by(way, &run)?;
        world.check()?;
        world.check_range(ReadAt::Snapshot(before), ALL)?;
        world.commit(&puts((0..300).step_by(7), 2))?;
        for _ in 0..1_000 {
            world.check()?;
            if !world.maintain()?.more {
                break;
            }
        }
        world.check()?;
        let left = world.index().stats().run_bytes;
        ensure!(left == 0, "{left} bytes of runs are left when maintenance has nothing more to do");
    }
    Ok(())
}

/// Rule A3: a bulk build is a run attached to an empty index.
pub fn a3_a_bulk_build_is_a_run(bench: &Bench) -> Verdict {
    for way in WAYS {
        let mut world = World::new(bench)?;
        world.commit_by(way, &puts(0..2_000, 0))?;
        world.check()?;
        world.settle()?;
        world.check()?;
        world.checkpoint()?;
        world.evict()?;
        world.check()?;
        world.crash_durably()?;
        world.check()?;
    }
    Ok(())
}

/// Several runs over the same keys, in any mixture with direct commits: the newest wins, whoever is drained first.
/// Rule A18: the order is that of the timestamps.
pub fn a18_runs_keep_their_order(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    for round in 0..24 {
        let way = [Way::Memory, Way::Apply, Way::File][round % 3];
        let mut writes = puts((0..60).filter(|i| (i + round) % 3 != 0), round);
        writes.extend(deletes((0..60).filter(|i| (i + round) % 9 == 0)));
        world.commit_by(way, &writes)?;
        if round % 5 == 2 {
            world.snapshot();
        }
        if round % 4 == 3 {
            world.maintain()?;
        }
        world.check()?;
    }
    world.settle()?;
    world.check()?;
    world.crash_durably()?;
    world.check()
}

/// Rule A3: a run drained over newer entries inserts only what is absent, and only at its own timestamp.
pub fn a3_a_drain_does_not_overwrite(bench: &Bench) -> Verdict {
    for way in WAYS {
        let mut world = World::new(bench)?;
        world.commit_by(way, &puts(0..100, 0))?;
        world.commit(&puts((0..100).step_by(2), 1))?;
        world.commit(&deletes((0..100).step_by(5)))?;
        world.settle()?;
        world.check()?;
        world.apply_again()?;
        world.settle()?;
        world.check()?;
    }
    Ok(())
}

/// Rule A4: a delete above a run that is not drained is not collected, or the run's entry would rise from the dead.
pub fn a4_a_delete_above_a_run_waits_for_it(bench: &Bench) -> Verdict {
    for way in WAYS {
        let mut world = World::new(bench)?;
        world.commit(&puts(0..100, 0))?;
        world.checkpoint()?;
        world.commit_by(way, &puts(0..100, 1))?;
        for i in 0..100 {
            world.delete(&key(i))?;
        }
        // Neighbours are written, pages are written back, views move on: every chance to collect.
        world.commit(&puts((0..100).map(|i| i + 200), 2))?;
        world.evict()?;
        world.commit(&puts((0..100).map(|i| i + 400), 2))?;
        world.check()?;
        world.settle()?;
        world.check()?;
        world.evict()?;
        world.check()?;
        world.crash_durably()?;
        world.check()?;
    }
    Ok(())
}

/// Rule A3: a checkpoint keeps runs that are not drained: a file by name, a run in memory by holding the skip
/// position back.
pub fn a3_a_checkpoint_keeps_runs(bench: &Bench) -> Verdict {
    for way in WAYS {
        for steps in [0, 1, 3, 50] {
            let mut world = World::new(bench)?;
            world.commit(&puts(0..200, 0))?;
            world.commit_by(way, &puts((0..400).step_by(2), 1))?;
            world.commit(&puts((0..400).step_by(9), 2))?;
            for _ in 0..steps {
                world.maintain()?;
            }
            world.checkpoint()?;
            world.crash_durably()?;
            world.check()?;
            world.settle()?;
            world.check()?;
            world.checkpoint()?;
            world.crash_durably()?;
            world.check()?;
        }
    }
    Ok(())
}

/// A run that is empty, and one that holds deletes only.
pub fn runs_of_nothing_and_of_deletes(bench: &Bench) -> Verdict {
    for way in WAYS {
        let mut world = World::new(bench)?;
        world.commit_by(way, &[])?;
        world.check()?;
        world.commit(&puts(0..50, 0))?;
        world.commit_by(way, &deletes(10..90))?;
        world.check()?;
        world.settle()?;
        world.evict()?;
        world.check()?;
    }
    Ok(())
}
