//! Space, memory, what is left after much was deleted.

use std::ops::Bound;

use super::{deletes, key, puts, value};
use crate::conformance::world::{Way, read_all};
use crate::conformance::{Bench, Verdict, World, ensure};
use crate::{Direction, EntryBatch, ReadAt};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// A destroyed index holds no block.
pub fn destroy_frees_all_space(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    let empty = world.space.stats().held_bytes;
    world.commit(&puts(0..1_000, 0))?;
    world.commit(&[(key(5), Some(vec![7; 200_000]))])?;
    world.checkpoint()?;
    world.commit(&puts((0..1_000).step_by(2), 1))?;
    world.commit_by(Way::File, &puts(2_000..2_100, 0))?;
    world.evict()?;
    ensure!(world.space.stats().held_bytes > empty, "a thousand rows on no block");
    world.index().destroy()?;
    let mut named = 0;
    let problems = world.index().reach(&mut |_, _| named += 1)?;
    ensure!(named == 0 && problems.is_empty(), "{named} blocks are named after destroy: {problems:?}");
    world.forget_index();
    let held = world.space.stats().held_bytes;
    ensure!(held == empty, "{held} bytes are held after destroy, {empty} before the first row");
    let used = world.held_bytes();
    ensure!(used == 0, "{used} bytes of frames are charged after destroy");
    Ok(())
}

/// The same rows written a hundred times take the space of a few times.
pub fn space_does_not_grow_with_rewrites(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    let mut early = 0;
    for round in 0..60 {
        world.commit(&puts(0..300, round))?;
        world.settle()?;
        world.checkpoint()?;
        if round == 10 {
            early = world.space.stats().held_bytes;
        }
    }
    let late = world.space.stats().held_bytes;
    ensure!(late <= early * 3 / 2, "{early} bytes held after ten rewrites, {late} after sixty");
    world.check()
}

/// Rule P9: the counts that a manifest saves are exactly what it reaches, so an index opened from it and destroyed
/// leaves nothing.
pub fn p9_saved_counts_are_what_is_reached(bench: &Bench) -> Verdict {
    for rounds in [1, 4, 8] {
        let mut world = World::new(bench)?;
        let empty = world.space.stats().held_bytes;
        for round in 0..rounds {
            world.commit(&puts((0..400).filter(|i| i % (round + 1) == 0), round))?;
            world.commit(&deletes((0..400).filter(|i| i % 9 == round)))?;
            world.settle()?;
            world.checkpoint()?;
            world.evict()?;
        }
        world.crash_durably()?;
        world.check()?;
        world.index().destroy()?;
        world.forget_index();
        let held = world.space.stats().held_bytes;
        ensure!(held == empty, "{held} bytes are held after reopening and destroying, {empty} at first");
    }
    Ok(())
}

/// Rule A8: ranges that were deleted, unlinked and filled again, beside cold neighbours, show no old row.
pub fn a8_unlinked_ranges_stay_dead(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..1_000, 0))?;
    world.checkpoint()?;
    world.evict()?;
    for round in 0..5 {
        let from = round * 150;
        world.commit(&deletes(from..from + 200))?;
        world.settle()?;
        world.evict()?;
        world.check()?;
        world.checkpoint()?;
        // A few new rows in the middle of nowhere, and at its edges.
        world.commit(&puts([from, from + 77, from + 199], round + 1))?;
        world.settle()?;
        world.check()?;
        world.evict()?;
        world.crash_durably()?;
        world.check()?;
    }
    Ok(())
}

/// Rule A25: a scan that found a desert does not hide a row that comes afterwards; an older snapshot still sees
/// what was there.
pub fn a25_rows_put_into_a_desert_are_seen(bench: &Bench) -> Verdict {
    for old_snapshot in [false, true] {
        let mut world = World::new(bench)?;
        world.commit(&puts(0..1_500, 0))?;
        world.checkpoint()?;
        let before = world.end().as_commit_ts();
        if old_snapshot {
            world.snapshot();
        }
        world.commit(&deletes(100..1_400))?;
        for at in [ReadAt::Newest, ReadAt::Snapshot(world.end().as_commit_ts())] {
            world.check_range(at, ALL)?;
        }
        for i in [100, 700, 701, 1_399] {
            world.put(&key(i), &value(i, 1))?;
            world.check_range(ReadAt::Newest, ALL)?;
            world.check_range(ReadAt::Newest, (Bound::Excluded(&key(99)), Bound::Unbounded))?;
            world.check_keys(ReadAt::Newest, &[&key(i - 1), &key(i), &key(i + 1)])?;
        }
        if old_snapshot {
            world.check_range(ReadAt::Snapshot(before), ALL)?;
        }
        world.evict()?;
        world.check()?;
        world.checkpoint()?;
        world.crash_durably()?;
        world.check()?;
    }
    Ok(())
}

/// Rule C7: the first key after a mass delete is found without reading what was deleted.
pub fn c7_the_first_key_behind_a_desert(bench: &Bench) -> Verdict {
    for old_snapshot in [false, true] {
        let mut world = World::new(bench)?;
        world.commit(&puts(0..3_000, 0))?;
        world.checkpoint()?;
        if old_snapshot {
            world.snapshot();
        }
        for from in (0..2_900).step_by(100) {
            world.commit(&deletes(from..from + 100))?;
        }
        world.checkpoint()?;
        world.evict()?;
        let before = world.watch.reads();
        let first = first_key(&world)?;
        ensure!(first == Some(key(2_900)), "the first key is {first:?}");
        let reads = world.watch.reads() - before;
        let leaves = world.index().stats().leaves;
        ensure!(reads <= 20, "{reads} reads for the first key; {leaves} leaves; snapshot open: {old_snapshot}");
        world.settle()?;
        world.check()?;
    }
    Ok(())
}

fn first_key(world: &World<'_>) -> Verdict<Option<Vec<u8>>> {
    let mut cursor = world.index().cursor(ReadAt::Newest, ALL, Direction::Forward);
    let mut out = EntryBatch::new();
    while cursor.fill(&mut out, 1)? {
        if !out.is_empty() {
            break;
        }
    }
    Ok((!out.is_empty()).then(|| out.key(0).to_vec()))
}

/// Memory follows the budget: what was evicted gave its frames back, and is there again when asked for.
pub fn eviction_gives_memory_back(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..2_000, 0))?;
    let full = world.held_bytes();
    ensure!(full > 0, "two thousand rows without a frame");
    world.evict()?;
    let rest = world.held_bytes();
    ensure!(rest <= full / 10, "{full} bytes of frames before eviction, {rest} after");
    world.check()?;
    let entries =
        read_all(&mut *world.index().cursor(ReadAt::Newest, ALL, Direction::Forward), Direction::Forward, 100)?.len();
    ensure!(entries == 2_000, "{entries} rows after eviction");
    Ok(())
}
