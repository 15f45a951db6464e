//! Ranges deleted whole: [`crate::Ranged`] around the structure.

use std::ops::Bound;

use super::{key, puts};
use crate::conformance::world::{Way, World, Write, read_all};
use crate::conformance::{Bench, Verdict, ensure};
use crate::{Direction, KeyRange, ReadAt, Span};

const KEYS: usize = 600;

fn span(low: usize, high: usize) -> Span {
    Span { low: key(low), high: Some(key(high)) }
}

fn delete(world: &mut World<'_>, low: usize, high: usize) -> Verdict {
    world.commit_ranges(Way::Apply, &[span(low, high)], &[]).map(drop)
}

/// Everything is read before the drain, at each step of it, and behind it, with a snapshot of before open.
fn check_while_it_drains(world: &mut World<'_>) -> Verdict {
    world.check()?;
    world.sync_log()?;
    for step in 0..100_000 {
        if !world.maintain()?.more {
            break;
        }
        if step % 16 == 0 {
            world.check()?;
        }
    }
    world.check()
}

/// Points, ranges both ways, snapshots of before and behind.
pub fn a_deleted_range_hides_what_is_older(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..KEYS, 0))?;
    world.snapshot();
    delete(&mut world, 100, 400)?;
    world.snapshot();
    let low = key(150);
    world.check_range(ReadAt::Newest, (Bound::Included(&low), Bound::Unbounded))?;
    check_while_it_drains(&mut world)?;
    world.release(0);
    world.settle()?;
    world.check()
}

/// Puts into the range, before the drain and behind it, are seen, also by readers who hop.
pub fn what_comes_later_stays(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..KEYS, 0))?;
    delete(&mut world, 0, 500)?;
    for way in [Way::Apply, Way::Memory, Way::File] {
        let first = way as usize * 100;
        world.commit_by(way, &puts((first..first + 90).step_by(30), 1))?;
        world.snapshot();
        world.delete(&key(first + 30))?;
        world.check()?;
    }
    check_while_it_drains(&mut world)?;
    world.commit(&puts((0..500).step_by(7), 2))?;
    world.settle()?;
    world.check()
}

/// What the commit itself puts there is newer than the range, and stays when it is drained; what was there before is gone.
pub fn a_commit_may_put_into_what_it_deletes(bench: &Bench) -> Verdict {
    for way in [Way::Apply, Way::Memory, Way::File] {
        let mut world = World::new(bench)?;
        world.commit(&puts(0..KEYS, 0))?;
        let mut writes: Vec<Write> = puts((90..300).step_by(10), 1);
        writes.push((key(195), None));
        writes.sort();
        world.commit_ranges(way, &[span(100, 200), span(250, 260)], &writes)?;
        world.snapshot();
        world.check()?;
        // They are not collected before the drain has seen them.
        world.commit(&puts((90..300).step_by(20), 2))?;
        world.release(0);
        world.settle()?;
        check_while_it_drains(&mut world)?;
        world.crash_durably()?;
        world.check()?;
        world.settle()?;
        world.check()?;
    }
    Ok(())
}

/// A crash at each stage: in the log only, in the manifest, drained in part, drained.
pub fn deleted_ranges_outlive_a_crash(bench: &Bench) -> Verdict {
    for stage in 0..6 {
        let mut world = World::new(bench)?;
        world.commit(&puts(0..KEYS, 0))?;
        if stage % 2 == 0 {
            world.checkpoint()?;
        }
        delete(&mut world, 50, 550)?;
        world.commit(&puts([60, 300, 540], 1))?;
        if stage >= 1 {
            world.checkpoint()?;
        }
        if stage >= 3 {
            world.maintain()?;
        }
        if stage == 4 {
            world.settle()?;
        }
        if stage == 5 {
            world.settle()?;
            world.checkpoint()?;
        }
        world.crash_durably()?;
        world.check()?;
        world.settle()?;
        world.check()?;
        world.checkpoint()?;
        world.crash_durably()?;
        world.check()?;
        let left = world.index().stats().deleted_ranges;
        ensure!(left == 0, "stage {stage}: {left} ranges are named although they were drained");
    }
    Ok(())
}

/// A checkpoint names a range only if the log is durable to it; and what the log loses was not deleted.
pub fn a6_a_deleted_range_does_not_outrun_its_record(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..KEYS, 0))?;
    world.checkpoint()?;
    delete(&mut world, 0, 300)?;
    world.settle()?;
    let left = world.index().stats().deleted_ranges;
    ensure!(left == 1, "a range was drained before the log was durable to it");
    world.gate.refuse(true);
    let refused = world.checkpoint();
    ensure!(refused.is_err(), "a checkpoint named a range that the log may lose");
    world.gate.refuse(false);
    world.crash()?;
    world.check()?;
    delete(&mut world, 0, 300)?;
    world.checkpoint()?;
    world.crash()?;
    let mut rest = world.index().cursor(ReadAt::Newest, (Bound::Unbounded, Bound::Unbounded), Direction::Forward);
    let entries = read_all(&mut *rest, Direction::Forward, 100)?;
    drop(rest);
    ensure!(entries.len() == KEYS - 300, "the checkpoint made the log durable to the range: {}", entries.len());
    world.check()
}

/// Ranges that overlap, deleted at different times, with puts between, and snapshots between all of them.
pub fn ranges_over_ranges(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..KEYS, 0))?;
    for (round, (low, high)) in [(100, 300), (200, 400), (50, 250), (0, KEYS), (220, 230)].into_iter().enumerate() {
        world.snapshot();
        delete(&mut world, low, high)?;
        world.snapshot();
        world.commit(&puts((0..KEYS).step_by(9 + round), round + 1))?;
    }
    world.check()?;
    world.checkpoint()?;
    world.crash_durably()?;
    for _ in 0..3 {
        world.snapshot();
        world.commit(&puts((0..KEYS).step_by(11), 9))?;
        world.delete_range((Bound::Unbounded, Bound::Excluded(key(300).as_slice())))?;
    }
    check_while_it_drains(&mut world)
}

/// A cursor of the newest that has begun sees nothing of what is deleted meanwhile, whether there was another range before or not, drained since or not.
pub fn who_reads_on_sees_nothing_of_it(bench: &Bench) -> Verdict {
    for (direction, is_listed) in [Direction::Forward, Direction::Backward]
        .into_iter()
        .flat_map(|direction| [(direction, false), (direction, true)])
    {
        let mut world = World::new(bench)?;
        world.commit(&puts(0..KEYS, 0))?;
        if is_listed {
            delete(&mut world, 590, 595)?;
        }
        let mut cursor = world.index().cursor(ReadAt::Newest, (Bound::Unbounded, Bound::Unbounded), direction);
        let (mut found, mut out) = (Vec::new(), crate::EntryBatch::new());
        let mut read = |found: &mut Vec<Vec<u8>>, most: usize| -> Verdict<bool> {
            let more = cursor.fill(&mut out, most)?;
            found.extend((0..out.len()).map(|i| out.key(i).to_vec()));
            Ok(more)
        };
        read(&mut found, 5)?;
        delete(&mut world, 100, 400)?;
        read(&mut found, 5)?;
        world.sync_log()?;
        world.settle()?;
        delete(&mut world, 450, 500)?;
        for _ in 0..10 * KEYS {
            if !read(&mut found, 7)? {
                break;
            }
        }
        found.sort();
        let gone =
            |n: &usize| (100..400).contains(n) || (450..500).contains(n) || (is_listed && (590..595).contains(n));
        let expected: Vec<_> = (0..KEYS).filter(|n| !gone(n)).map(key).collect();
        ensure!(found == expected, "{direction:?}: {} keys of {}", found.len(), expected.len());
    }
    Ok(())
}

/// What a cursor of the newest had copied before a range was deleted it does not give out, also when the range was drained since and others are listed.
/// Guard: the lists of before are kept.
pub fn what_was_copied_before_is_not_given_out(bench: &Bench) -> Verdict {
    for direction in [Direction::Forward, Direction::Backward] {
        let mut world = World::new(bench)?;
        world.commit(&puts(0..KEYS, 0))?;
        let mut cursor = world.index().cursor(ReadAt::Newest, (Bound::Unbounded, Bound::Unbounded), direction);
        let mut out = crate::EntryBatch::new();
        cursor.fill(&mut out, 5)?;
        let mut found: Vec<Vec<u8>> = (0..out.len()).map(|i| out.key(i).to_vec()).collect();
        delete(&mut world, 8, KEYS - 8)?;
        cursor.fill(&mut out, 1)?;
        found.extend((0..out.len()).map(|i| out.key(i).to_vec()));
        // Where what is written is not known, nothing stays listed for who hops.
        world.commit_ranges(Way::File, &[span(KEYS, KEYS + 1)], &puts([KEYS], 0))?;
        world.sync_log()?;
        world.settle()?;
        delete(&mut world, KEYS, KEYS + 1)?;
        for _ in 0..10 * KEYS {
            let more = cursor.fill(&mut out, 7)?;
            found.extend((0..out.len()).map(|i| out.key(i).to_vec()));
            if !more {
                break;
            }
        }
        found.sort();
        let expected: Vec<_> = (0..8).chain(KEYS - 8..KEYS).map(key).collect();
        ensure!(found == expected, "{direction:?}: {} keys of {}", found.len(), expected.len());
    }
    Ok(())
}

/// Who asks again at the end gets nothing again. Guard: who finds nothing to hop to looks again.
pub fn the_end_stays_the_end(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..KEYS, 0))?;
    world.delete_range((Bound::Included(key(400).as_slice()), Bound::Unbounded))?;
    world.delete_range((Bound::Unbounded, Bound::Excluded(key(200).as_slice())))?;
    let (low, high) = (key(450), key(150));
    let ranges = [
        (Direction::Forward, (Bound::Included(low.as_slice()), Bound::Unbounded)),
        (Direction::Backward, (Bound::Unbounded, Bound::Excluded(high.as_slice()))),
        // The range of the cursor ends within the deleted one, too.
        (Direction::Forward, (Bound::Included(low.as_slice()), Bound::Excluded(b"table/row/000460".as_slice()))),
        (Direction::Backward, (Bound::Included(b"table/row/000140".as_slice()), Bound::Excluded(high.as_slice()))),
    ];
    for (direction, range) in ranges {
        for at in [ReadAt::Newest, ReadAt::Snapshot(world.end().as_commit_ts())] {
            let (mut cursor, mut out) = (world.index().cursor(at, range, direction), crate::EntryBatch::new());
            for call in 0..4 {
                let more = cursor.fill(&mut out, 3)?;
                ensure!(
                    !more && out.is_empty(),
                    "{direction:?} {at:?}, call {call}: {} entries, more: {more}",
                    out.len()
                );
            }
        }
    }
    Ok(())
}

/// The first key behind a deleted range takes as much reading as a look at a key, also if some were put there since.
pub fn cursors_hop_over_a_deleted_range(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    for first in (0..6000).step_by(500) {
        world.commit(&puts(first..first + 500, 0))?;
    }
    world.sync_log()?;
    world.settle()?;
    world.checkpoint()?;
    delete(&mut world, 100, 5900)?;
    world.put(&key(3000), b"put since")?;
    world.evict()?;
    for (range, direction, wanted) in
        [((100, 6000), Direction::Forward, [3000, 5900]), ((0, 5900), Direction::Backward, [3000, 99])]
    {
        let range = KeyRange { low: Bound::Included(key(range.0)), high: Bound::Excluded(key(range.1)) };
        let before = world.watch.operations();
        let mut cursor = world.index().cursor(ReadAt::Snapshot(world.end().as_commit_ts()), range.bounds(), direction);
        let (mut found, mut out, mut calls) = (Vec::new(), crate::EntryBatch::new(), 0);
        while found.len() < 2 {
            let more = cursor.fill(&mut out, 1)?;
            found.extend((0..out.len()).map(|i| out.key(i).to_vec()));
            calls += 1;
            ensure!(more && calls < 32, "{direction:?}: {} entries in {calls} calls", found.len());
        }
        ensure!(found == wanted.map(key), "{direction:?}: {found:?}");
        let asked = world.watch.operations() - before;
        ensure!(asked < 100, "{direction:?}: {asked} operations on the disk to get over a deleted range");
    }
    Ok(())
}

/// In the end nothing is left of it: neither the range nor what it hid.
pub fn a_deleted_range_is_drained(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..KEYS, 0))?;
    delete(&mut world, 0, KEYS)?;
    world.sync_log()?;
    for _ in 0..4 {
        world.settle()?;
        world.checkpoint()?;
    }
    let stats = world.index().stats();
    ensure!(stats.deleted_ranges == 0 && stats.runs == 0, "{} ranges, {} runs", stats.deleted_ranges, stats.runs);
    ensure!(world.index().estimate((Bound::Unbounded, Bound::Unbounded))? < 10, "an estimate counts what is deleted");
    world.check()
}
