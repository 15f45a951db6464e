//! Snapshots, replay, what the garbage collector may take.

use std::ops::Bound;

use super::{deletes, key, puts, value};
use crate::ReadAt;
use crate::conformance::{Bench, Verdict, World, ensure};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// Rule 3 of the seam: each snapshot sees its own versions, whatever is collected around it.
pub fn each_snapshot_sees_its_own(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    for round in 0..12 {
        world.commit(&puts((0..120).filter(|i| i % (round + 1) == 0), round))?;
        world.commit(&deletes((0..120).filter(|i| i % (round + 5) == 1)))?;
        if round % 2 == 0 {
            world.snapshot();
        }
        world.settle()?;
        world.check()?;
    }
    while !world.snapshots.is_empty() {
        world.release(world.snapshots.len() / 2);
        world.settle()?;
        world.evict()?;
        world.check()?;
    }
    Ok(())
}

/// Rule 1 of the seam, decision D3: the same commits again change nothing, before and after a checkpoint.
pub fn applying_again_changes_nothing(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..150, 0))?;
    world.commit(&deletes(20..60))?;
    world.commit(&puts(40..200, 1))?;
    let at = world.snapshot();
    world.commit(&deletes(0..10))?;
    world.apply_again()?;
    world.check()?;
    world.checkpoint()?;
    world.apply_again()?;
    world.check()?;
    world.evict()?;
    world.apply_again()?;
    world.check_range(ReadAt::Snapshot(at), ALL)?;
    world.crash_durably()?;
    world.apply_again()?;
    world.check()
}

/// Rule 4 of the seam, decision D4: a version that a snapshot sees stays, however many came since.
pub fn a_long_snapshot_pins_its_version_only(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..20, 0))?;
    let at = world.snapshot();
    for round in 1..2_000 {
        world.commit(&puts([round % 20], round))?;
    }
    world.settle()?;
    world.checkpoint()?;
    world.evict()?;
    world.check_range(ReadAt::Snapshot(at), ALL)?;
    world.check()?;
    let entries = world.index().verify()?.entries;
    // Two versions a key are needed; each key may hold some that are waiting to be collected.
    ensure!(entries <= 20 * 40, "{entries} versions are left of 20 keys with one snapshot");
    Ok(())
}

/// Rule A27: a key with thousands of versions that are all needed, between ordinary keys.
pub fn a27_one_key_larger_than_a_leaf(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..30, 0))?;
    let mut seen = Vec::new();
    for round in 1..1_500 {
        world.commit(&puts([15], round))?;
        seen.push(world.snapshot());
    }
    for at in seen.iter().step_by(97) {
        world.check_keys(ReadAt::Snapshot(*at), &[&key(14), &key(15), &key(16)])?;
    }
    world.checkpoint()?;
    world.evict()?;
    for at in seen.iter().step_by(131) {
        world.check_range(ReadAt::Snapshot(*at), (Bound::Included(&key(10)), Bound::Excluded(&key(20))))?;
    }
    world.check_range(ReadAt::Newest, ALL)?;
    world.check_verify()?;
    // The snapshots end: the versions may go, the newest stays.
    world.snapshots.clear();
    for round in 1_500..1_510 {
        world.commit(&puts([15], round))?;
    }
    world.settle()?;
    world.evict()?;
    world.checkpoint()?;
    world.check()?;
    let entries = world.index().verify()?.entries;
    ensure!(entries < 200, "{entries} versions are left of 30 keys without a snapshot");
    Ok(())
}

/// A hot key without snapshots does not grow.
pub fn a_hot_key_stays_small(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    for round in 0..5_000 {
        world.put(b"hot", &value(0, round))?;
        if round % 1_000 == 0 {
            world.checkpoint()?;
        }
    }
    world.check()?;
    let entries = world.index().verify()?.entries;
    ensure!(entries < 100, "{entries} versions of one key without a snapshot");
    Ok(())
}

/// A delete takes away what is visible now, not what an older snapshot sees; afterwards nothing is left.
pub fn deletes_leave_nothing(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..300, 0))?;
    world.checkpoint()?;
    let at = world.snapshot();
    for from in (0..300).step_by(30) {
        world.commit(&deletes(from..from + 30))?;
    }
    world.check()?;
    world.check_range(ReadAt::Snapshot(at), ALL)?;
    world.release(0);
    world.settle()?;
    world.checkpoint()?;
    world.evict()?;
    world.settle()?;
    world.check()?;
    let left = world.index().stats();
    ensure!(left.live_keys == 0, "{} live keys in an empty index", left.live_keys);
    world.commit(&puts(100..120, 1))?;
    world.check()?;
    world.crash_durably()?;
    world.check()
}

/// Rule A5: a delete that was collected with what it hid does not come undone when the page is read again.
pub fn a5_a_collected_delete_stays(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..100, 0))?;
    world.checkpoint()?;
    world.evict()?;
    for i in (0..100).step_by(2) {
        world.delete(&key(i))?;
        // Further writes of the neighbourhood, at views that let the pair go.
        world.put(&key(i + 1), &value(i + 1, 1))?;
    }
    world.settle()?;
    world.evict()?;
    world.check()?;
    world.checkpoint()?;
    world.evict()?;
    world.check()?;
    world.crash_durably()?;
    world.check()
}
