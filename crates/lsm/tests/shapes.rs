//! Levels of many runs: what they answer while they are merged piece by piece, what that costs, and what it takes in space.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;

use index::conformance::world::World;
use index::conformance::{Bench, Complaint};
use index::{LEVELS, MergePolicy, ReadAt, Shape, Subcompactions};
use store::Compression;
use trefoil_lsm::Lsm;
use vfs::random::Rng;

const SHAPES: [Shape; 3] = [Shape::Lazy, Shape::Leveled, Shape::Universal];

/// Blocks so small, and a budget so small, that a megabyte makes some hundred runs.
fn bench(shape: Shape) -> Bench {
    let mut bench = Bench::new(|env, state| Ok(Lsm::open(env, state)?));
    bench.options.node_bytes = 4096;
    bench.options.compression = Compression::None;
    bench.options.shape = shape;
    bench.budget_bytes = 4 << 20;
    bench.relieves = true;
    bench
}

fn done<T>(verdict: Result<T, Complaint>) -> T {
    verdict.unwrap_or_else(|complaint| panic!("{}", complaint.0))
}

fn row(n: u64, value_bytes: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let value = (0..value_bytes).map(|i| (n.wrapping_mul(31) + i * 7) as u8).collect();
    (format!("{n:08}").into_bytes(), Some(value))
}

/// Random rows, maintenance in the middle of merges, checkpoints, crashes: every read is as in the model.
#[test]
fn levels_of_many_runs_answer_as_a_map() {
    for (shape, seed) in SHAPES.into_iter().zip(1..) {
        let bench = bench(shape);
        let mut world = done(World::new(&bench));
        let mut rng = Rng::new(seed);
        let mut most = 0;
        for round in 0..320u64 {
            let rows: Vec<_> = (0..100)
                .map(|_| {
                    let mut row = row(rng.below(10_000), 100 + rng.below(400));
                    row.1 = row.1.filter(|_| !rng.chance(0.3));
                    row
                })
                .collect();
            // Nobody else makes room for them.
            if world.held_bytes() > bench.budget_bytes / 4 {
                done(world.evict());
            }
            done(world.commit(&rows));
            for _ in 0..rng.below(14) {
                done(world.maintain());
            }
            most = most.max(runs_of(&world));
            match round % 80 {
                20 => drop(world.snapshot()),
                50 => done(world.checkpoint()),
                60 => done(world.crash_durably()),
                70 => done(world.settle()),
                79 => done(world.check()),
                _ => {}
            }
        }
        done(world.settle());
        done(world.check());
        // The second one lets go of what the first still named.
        (0..2).for_each(|_| done(world.checkpoint()));
        assert_eq!(world.space.stats().held_bytes, world.index().stats().disk_bytes, "{shape:?}: nothing but the runs");
        assert!(most > 20, "{shape:?}: at most {most} runs");
    }
}

fn runs_of(world: &World<'_>) -> usize {
    world.index().stats().levels.iter().map(|level| level.runs as usize).sum()
}

/// What a load cost.
#[derive(Debug)]
struct Cost {
    flushed_bytes: u64,
    merged_bytes: u64,
    most_strands: u64,
}

/// The keys of one row after the other.
type Keys = fn(&mut Rng, u64) -> u64;
const RANDOM: Keys = |rng, _| rng.below(12_000);
const ASCENDING: Keys = |_, n| n;
/// Half of the writes go to a twelfth of the keys, anywhere.
const UNEVEN: Keys = |rng, n| if n % 2 == 0 { rng.below(12_000) } else { 5000 + rng.below(1000) };

/// Some thousand commits of rows, with time to merge about what the shape asks, and a checkpoint now and then.
fn load(shape: Shape, policy: MergePolicy, keys: Keys) -> Cost {
    load_of(7, shape, policy, keys)
}

fn load_of(seed: u64, shape: Shape, policy: MergePolicy, keys: Keys) -> Cost {
    let mut bench = bench(shape);
    bench.options.policy = policy;
    let mut world = done(World::new(&bench));
    let mut rng = Rng::new(seed);
    let mut most_strands = 0;
    for round in 0..1200u64 {
        let batch: Vec<_> = (0..32).map(|i| row(keys(&mut rng, round * 32 + i), 200)).collect();
        done(world.commit(&batch));
        for _ in 0..3 {
            done(world.maintain());
        }
        if round % 8 == 0 {
            done(world.checkpoint());
            done(world.evict());
        }
        let levels = world.index().stats().levels;
        // No run reaches over another of its level, where the shape wants one strand.
        let single = if shape == Shape::Lazy { &levels[LEVELS - 1..] } else { &levels[1..] };
        assert!(single.iter().all(|level| level.strands <= 1), "{shape:?}: {levels:?}");
        most_strands = levels.iter().map(|level| level.strands).sum::<u64>().max(most_strands);
    }
    done(world.settle());
    let stats = world.index().stats();
    let merged_bytes = stats.levels.iter().map(|level| level.merged_bytes).sum();
    assert_eq!(merged_bytes, stats.traffic.leaf_bytes);
    Cost { flushed_bytes: stats.traffic.segment_bytes, merged_bytes, most_strands }
}

/// Bytes are written by one thread at steps that do not depend on time: the figures are the same each time.
#[test]
fn shapes_trade_writing_against_strands() {
    let policy = MergePolicy::default();
    let [leveled, lazy, universal] =
        [Shape::Leveled, Shape::Lazy, Shape::Universal].map(|shape| load(shape, policy, RANDOM));
    // 4.9, 3.0 and 2.0 times what was flushed when this was written; 6, 8 and 9 strands.
    assert!(leveled.merged_bytes > lazy.merged_bytes * 5 / 4, "{leveled:?} {lazy:?}");
    assert!(lazy.merged_bytes > universal.merged_bytes * 5 / 4, "{lazy:?} {universal:?}");
    assert!(leveled.most_strands < lazy.most_strands && lazy.most_strands <= universal.most_strands);
    assert!(universal.most_strands <= 12, "{universal:?}");
}

#[test]
fn what_is_ascending_is_written_once() {
    for shape in SHAPES {
        let cost = load(shape, MergePolicy::default(), ASCENDING);
        assert!(cost.merged_bytes * 50 < cost.flushed_bytes, "{shape:?}: {cost:?}");
        assert!(cost.most_strands <= 4, "{shape:?}: {cost:?}");
    }
}

#[test]
fn least_overlap_saves_writing() {
    // Of three loads 5.6 and 1.2 in a hundred when this was written.
    for (keys, least_share) in [(RANDOM, 33), (UNEVEN, 200)] {
        let [with, without] = [true, false].map(|least_overlap| {
            let policy = MergePolicy { least_overlap, ..MergePolicy::default() };
            (7..10).map(|seed| load_of(seed, Shape::Leveled, policy, keys).merged_bytes).sum::<u64>()
        });
        assert!(with * least_share < without * (least_share - 1), "{with} with, {without} without");
    }
}

/// Four flushes over a bottom of a hundred runs: the sources give way as they are merged.
#[test]
fn a_merge_of_the_bottom_needs_little_more_space() {
    needs_little_more_space(Subcompactions::On);
}

/// Guard: no part holds on to what another one has given back.
#[test]
fn nor_does_it_in_parts() {
    needs_little_more_space(Subcompactions::Always);
}

fn needs_little_more_space(subcompactions: Subcompactions) {
    for shape in SHAPES {
        let mut bench = bench(shape);
        bench.options.policy.subcompactions = subcompactions;
        bench.budget_bytes = 8 << 20;
        let mut world = done(World::new(&bench));
        for n in 0..16_000 / 100 {
            // Nobody else makes room for them.
            if world.held_bytes() > bench.budget_bytes / 2 {
                done(world.settle());
            }
            done(world.commit(&(0..100).map(|i| row(n * 100 + i, 400)).collect::<Vec<_>>()));
        }
        done(world.settle());
        done(world.evict());
        done(world.settle());
        let mut rng = Rng::new(3);
        for _ in 0..4 {
            for _ in 0..15 {
                done(world.commit(&(0..100).map(|_| row(rng.below(16_000), 400)).collect::<Vec<_>>()));
            }
            done(world.evict());
        }
        done(world.checkpoint());
        let before = world.space.stats().held_bytes;
        let (mut most, mut steps) = (before, 0);
        while done(world.maintain()).more {
            steps += 1;
            done(world.checkpoint());
            most = world.space.stats().held_bytes.max(most);
        }
        // Each block is written once more, so all of it would be there twice; 410 KB of 9.3 MB when this was written.
        assert!(steps > 50 && most - before < before / 10, "{shape:?}: {before}, {most} in {steps} steps");
        done(world.check_verify());
    }
}

/// Three flushes over each other, which no shape merges. Ranges that begin in all three pay for one strand, once; without them nothing is
/// written.
#[test]
fn ranges_pay_for_one_strand() {
    for shape in SHAPES {
        let bench = bench(shape);
        let mut world = done(World::new(&bench));
        for round in 0..3 {
            done(world.commit(&(0..400).map(|n| row(3 * n + round, 200)).collect::<Vec<_>>()));
            done(world.evict());
        }
        done(world.settle());
        let stats = world.index().stats();
        assert_eq!((stats.height, stats.traffic.leaf_bytes), (3, 0), "{shape:?}");
        // Each costs two strands too many, at 64 bytes.
        let due = stats.disk_bytes.div_ceil(2 * 64);
        let read = |world: &mut World<'_>, times: u64| {
            for n in 0..times {
                let (low, high) = (row(n % 1200, 0).0, row(n % 1200 + 10, 0).0);
                let range = (Bound::Included(&*low), Bound::Excluded(&*high));
                done(world.check_range(ReadAt::Newest, range));
            }
            done(world.settle());
            let stats = world.index().stats();
            (stats.height, stats.traffic.leaf_bytes)
        };
        // A check reads both ways, and goes on until there is nothing left.
        assert_eq!(read(&mut world, due / 8), (3, 0), "{shape:?}");
        let (strands, written) = read(&mut world, due);
        assert!(strands == 1 && written > stats.disk_bytes / 2, "{shape:?}: {strands}, {written}");
        assert_eq!(read(&mut world, due), (1, written), "{shape:?}");
        // What was paid for once is not paid for again.
        done(world.commit(&(0..400).map(|n| row(3 * n, 200)).collect::<Vec<_>>()));
        done(world.evict());
        assert_eq!(read(&mut world, 10), (2, written), "{shape:?}");
        done(world.check());
    }
}

/// What is merged lies at both ends: no run that comes of it may reach over what stays in the middle.
#[test]
fn no_run_reaches_over_what_stays() {
    let bench = bench(Shape::Leveled);
    let mut world = done(World::new(&bench));
    for n in 0..60 {
        done(world.commit(&(0..100).map(|i| row((n * 100 + i) * 1009 % 6000, 200)).collect::<Vec<_>>()));
        if n % 15 == 14 {
            done(world.evict());
        }
    }
    done(world.settle());
    let bottom = |world: &World<'_>| world.index().stats().levels[LEVELS - 1];
    assert!(bottom(&world).runs > 10 && bottom(&world).strands == 1);
    // Into the gaps that a run of the bottom leaves at its ends, and less than a run.
    for from in [0, 5800] {
        for _ in 0..4 {
            done(world.commit(&(from..from + 150).map(|n| row(n, 100)).collect::<Vec<_>>()));
            done(world.evict());
        }
    }
    done(world.settle());
    assert_eq!((world.index().stats().levels[0].runs, bottom(&world).strands), (0, 1));
    done(world.check());
}

/// A merge is cut before a key whose versions fill many blocks of each of its sources: what is left of them counts it once.
#[test]
fn a_cut_before_a_key_of_many_blocks() {
    let bench = bench(Shape::Lazy);
    let mut world = done(World::new(&bench));
    let hot = 50_000;
    let mut rng = Rng::new(5);
    for _ in 0..4 {
        for _ in 0..120 {
            let mut rows: Vec<_> = (0..12).map(|_| row(rng.below(4000), 200)).collect();
            rows.push(row(hot, 100));
            rows.push(row(hot + 1 + rng.below(500), 200));
            done(world.commit(&rows));
            world.snapshot();
        }
        done(world.evict());
    }
    while done(world.maintain()).more {
        let report = world.index().verify().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
    let levels = world.index().stats().levels;
    assert!(levels[0].runs == 0 && levels[LEVELS - 1].runs > 8, "{levels:?}");
    done(world.crash_durably());
    done(world.check_verify());
    done(world.check_points(index::ReadAt::Newest));
}
