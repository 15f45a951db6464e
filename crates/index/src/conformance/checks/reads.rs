//! Points, ranges, bounds, directions, sizes of keys and values.

use std::ops::Bound;

use base::limits::KEY_BYTES_MAX;
use vfs::random::Rng;

use super::{deletes, key, puts, value};
use crate::conformance::world::{Way, Write, read_all};
use crate::conformance::{Bench, Verdict, World, ensure};
use crate::{Direction, EntryBatch, IndexOptions, ReadAt};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// An empty index answers, in every way one can ask.
pub fn an_empty_index_answers(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.check_range(ReadAt::Newest, ALL)?;
    world.check_keys(ReadAt::Newest, &[b"", b"a"])?;
    world.check_keys(ReadAt::Newest, &[])?;
    world.settle()?;
    world.checkpoint()?;
    world.crash()?;
    world.check()
}

/// Ascending, descending and random inserts, until the structure is several levels high.
pub fn inserts_in_any_order(bench: &Bench) -> Verdict {
    let count = 1500;
    let mut shuffled: Vec<usize> = (0..count).collect();
    let mut random = Rng::new(11);
    for i in (1..count).rev() {
        shuffled.swap(i, random.index(i + 1));
    }
    for order in [(0..count).collect::<Vec<_>>(), (0..count).rev().collect(), shuffled] {
        let mut world = World::new(bench)?;
        for chunk in order.chunks(7) {
            world.commit(&puts(chunk.iter().copied(), 0))?;
        }
        world.check()?;
        let live = world.index().stats().live_keys;
        ensure!(live.abs_diff(count as u64) <= count as u64 / 10, "{live} live keys instead of {count}");
    }
    Ok(())
}

/// Included, excluded and open bounds, on keys that are there and between them, both ways.
pub fn bounds_are_kept_both_ways(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts((0..200).map(|i| i * 2), 0))?;
    world.commit(&deletes((0..200).step_by(10)))?;
    let mut random = Rng::new(3);
    for round in 0..300 {
        let bound = |random: &mut Rng| match random.below(5) {
            0 | 1 => Bound::Included(key(random.index(402))),
            2 | 3 => Bound::Excluded(key(random.index(402))),
            _ => Bound::Unbounded,
        };
        let (low, high) = (bound(&mut random), bound(&mut random));
        // Inverted and empty ranges included: they answer with nothing.
        world.check_range(ReadAt::Newest, (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice)))?;
        if round == 150 {
            world.evict()?;
        }
    }
    Ok(())
}

/// Estimates of ranges are within a factor of two, and say nothing only where nothing is; the index is cut in parts of like
/// size. Whether what is there has been drained, checkpointed, evicted or not.
pub fn estimates_are_near(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    let mut random = Rng::new(17);
    ensure!(world.index().estimate(ALL)? == 0, "something in an empty index");
    world.commit(&puts((0..3000).map(|i| i * 2), 0))?;
    world.commit(&deletes((2000..3000).step_by(4)))?;
    world.commit(&deletes(5000..5500))?;
    for round in 0..400 {
        let (a, b) = (random.index(6000), random.index(6000));
        let (low, high) = (key(a.min(b)), key(a.max(b)));
        let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        let cursor = &mut *world.index().cursor(ReadAt::Newest, range, Direction::Forward);
        let exact = read_all(cursor, Direction::Forward, 500)?.len() as u64;
        let estimate = world.index().estimate(range)?;
        let is_near = estimate <= 2 * exact + 4 && exact <= 2 * estimate + 4 && (estimate > 0 || exact == 0);
        ensure!(is_near, "{estimate} instead of {exact} from {a} to {b}, round {round}");
        match round {
            100 => world.settle()?,
            200 => world.checkpoint()?,
            300 => world.evict()?,
            _ => {}
        }
    }
    let cuts = world.index().split_keys(10)?;
    ensure!((5..=20).contains(&cuts.len()) && cuts.is_sorted(), "{} cuts", cuts.len());
    for pair in cuts.windows(2) {
        let between = world.index().estimate((Bound::Included(&pair[0]), Bound::Excluded(&pair[1])))?;
        ensure!(between < 1500, "{between} entries between two cuts");
    }
    Ok(())
}

/// Calls for one entry at a time, and for more than there are, give the same.
pub fn a_cursor_gives_what_is_asked(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    world.commit(&puts(0..300, 0))?;
    for direction in [Direction::Forward, Direction::Backward] {
        let one = read_all(&mut *world.index().cursor(ReadAt::Newest, ALL, direction), direction, 1)?;
        let many = read_all(&mut *world.index().cursor(ReadAt::Newest, ALL, direction), direction, 10_000)?;
        ensure!(one == many && one.len() == 300, "{direction:?}: {} and {} entries", one.len(), many.len());
    }
    let mut cursor = world.index().cursor(ReadAt::Newest, ALL, Direction::Forward);
    let mut out = EntryBatch::new();
    while cursor.fill(&mut out, 64)? {}
    ensure!(!cursor.fill(&mut out, 64)? && out.is_empty(), "a cursor goes on after its end");
    Ok(())
}

/// However many entries are asked for, one call gives out a megabyte of values, and the one that passes it. Guard: `EntryBatch::has_enough`.
pub fn a_cursor_gives_a_megabyte_at_once(bench: &Bench) -> Verdict {
    const COUNT: usize = 48;
    const BYTES: usize = 50_000;
    for way in [Way::Apply, Way::File] {
        let mut world = World::new(bench)?;
        for n in 0..COUNT {
            world.commit_by(way, &[(key(n), Some(vec![n as u8; BYTES]))])?;
        }
        if way == Way::Apply {
            world.settle()?;
            world.evict()?;
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let mut cursor = world.index().cursor(ReadAt::Newest, ALL, direction);
            let (mut found, mut out) = (0, EntryBatch::new());
            loop {
                let more = cursor.fill(&mut out, 10_000)?;
                let bytes: usize = (0..out.len()).map(|i| out.value(i).len()).sum();
                ensure!(bytes <= (1 << 20) + BYTES, "{way:?}, {direction:?}: {bytes} bytes at once");
                found += out.len();
                if !more {
                    break;
                }
            }
            ensure!(found == COUNT, "{way:?}, {direction:?}: {found} entries");
        }
    }
    Ok(())
}

/// A cursor at a snapshot does not see what is committed while it runs, wherever it stands.
pub fn a_cursor_stays_at_its_snapshot(bench: &Bench) -> Verdict {
    for direction in [Direction::Forward, Direction::Backward] {
        let mut world = World::new(bench)?;
        world.commit(&puts(0..400, 0))?;
        let at = world.snapshot();
        let expected: Vec<_> = world.model.range(at, ALL).collect();
        let mut cursor = world.index().cursor(ReadAt::Snapshot(at), ALL, direction);
        let (mut found, mut out) = (Vec::new(), EntryBatch::new());
        for round in 1.. {
            let more = cursor.fill(&mut out, 10)?;
            found.extend(out.iter().map(|(k, v, ts)| (k.to_vec(), v.map(<[u8]>::to_vec), ts)));
            if !more {
                break;
            }
            // Splits before and behind it, deletes, whole leaves gone, pages evicted under it.
            world.commit(&puts((0..400).step_by(3), round))?;
            world.commit(&puts((round * 1000)..(round * 1000 + 20), round))?;
            world.commit(&deletes((round * 9 % 400)..(round * 9 % 400 + 30)))?;
            if round % 5 == 0 {
                world.settle()?;
                world.evict()?;
            }
        }
        if direction == Direction::Backward {
            found.reverse();
        }
        let expected: Vec<_> = expected.into_iter().map(|e| (e.key, Some(e.value), e.ts)).collect();
        ensure!(found == expected, "{direction:?}: {} entries instead of {}", found.len(), expected.len());
        world.check()?;
    }
    Ok(())
}

/// The empty key, one-byte keys, keys that are prefixes of each other, the longest in the smallest nodes that a
/// user may choose, in those by default, in the largest.
pub fn keys_of_every_size(bench: &Bench) -> Verdict {
    [4096, 16 << 10, 64 << 10].into_iter().try_for_each(|node_bytes| keys_of_every_size_in(bench, node_bytes))
}

fn keys_of_every_size_in(bench: &Bench, node_bytes: usize) -> Verdict {
    let longest = KEY_BYTES_MAX.min(node_bytes / 4 * 3);
    let mut world = World::with(bench, IndexOptions { node_bytes, ..bench.options })?;
    let mut writes: Vec<Write> = vec![(Vec::new(), Some(b"the empty key".to_vec()))];
    let lengths = [1, 2, 3, 100, 255, 256, 1000, 8190, 8191, 8192, longest - 1, longest];
    for n in lengths.into_iter().filter(|&n| n <= longest) {
        for last in [0, 1, 127, 128, 255] {
            let mut key = vec![b'p'; n];
            key[n - 1] = last;
            writes.push((key, Some(vec![last; 5])));
        }
    }
    for chunk in writes.chunks(4) {
        world.commit(chunk)?;
    }
    world.check()?;
    world.checkpoint()?;
    world.evict()?;
    world.check()?;
    let gone: Vec<Write> = writes.iter().step_by(2).map(|(k, _)| (k.clone(), None)).collect();
    world.commit(&gone)?;
    world.settle()?;
    world.crash_durably()?;
    world.check()
}

/// Empty values, values around every size at which a structure may change its mind, values of a megabyte.
pub fn values_of_every_size(bench: &Bench) -> Verdict {
    let mut world = World::new(bench)?;
    let node = bench.options.node_bytes;
    let sizes =
        [0, 1, node / 4 - 1, node / 4, node / 4 + 1, node - 1, node, node * 3, 65_535, 65_536, 300_000, 1 << 20];
    for (i, size) in sizes.into_iter().enumerate() {
        world.commit(&[(key(i * 2), Some(patterned(size, i))), (key(i * 2 + 1), Some(value(i, 0)))])?;
    }
    world.check()?;
    world.checkpoint()?;
    world.evict()?;
    world.check()?;
    // Long becomes short, short becomes long, long becomes gone.
    let at = world.snapshot();
    for (i, size) in sizes.into_iter().rev().enumerate() {
        let next = (i % 4 != 3).then(|| patterned(size, i + 50));
        world.commit(&[(key(i * 2), next)])?;
    }
    world.check()?;
    world.check_range(ReadAt::Snapshot(at), ALL)?;
    world.settle()?;
    world.evict()?;
    world.check()?;
    world.checkpoint()?;
    world.crash_durably()?;
    world.check()
}

/// Bytes that neither compress to nothing nor repeat.
fn patterned(size: usize, seed: usize) -> Vec<u8> {
    let mut random = Rng::new(seed as u64);
    (0..size).map(|_| random.below(97) as u8).collect()
}
