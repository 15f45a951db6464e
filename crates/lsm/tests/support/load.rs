//! A seeded load of one index, and what it cost: the steps do not depend on time, so neither do the figures.

#![allow(dead_code, clippy::unwrap_used, reason = "a test panics on what it does not expect, and uses what it needs")]

use index::conformance::world::World;
use index::conformance::{Bench, Complaint};
use index::{IndexStats, LevelCompression, MergePolicy, Shape};
use store::Compression;
use trefoil_lsm::Lsm;
use vfs::random::Rng;

pub fn done<T>(verdict: Result<T, Complaint>) -> T {
    verdict.unwrap_or_else(|complaint| panic!("{}", complaint.0))
}

/// Blocks of 4 KiB and a budget of 4 MiB, so that some megabytes make all levels.
pub fn bench(shape: Shape, compression: Compression, policy: MergePolicy) -> Bench {
    let mut bench = Bench::new(|env, state| Ok(Lsm::open(env, state)?));
    bench.options.node_bytes = 4096;
    bench.options.compression = compression;
    bench.options.shape = shape;
    bench.options.policy = policy;
    bench.budget_bytes = 4 << 20;
    bench.relieves = true;
    bench
}

pub fn by_level(top: Compression, middle: Compression, bottom: Compression) -> MergePolicy {
    MergePolicy { compression: Some(LevelCompression { top, middle, bottom }), ..MergePolicy::default() }
}

/// Half of a value is words, the other half numbers that nobody can foresee.
pub fn row(n: u64, rng: &mut Rng) -> (Vec<u8>, Option<Vec<u8>>) {
    const WORDS: [&str; 8] = ["tea ", "sugar ", "flour ", "butter ", "paper ", "lamp ", "chair ", "table "];
    let mut value = Vec::new();
    while value.len() < 100 {
        value.extend_from_slice(WORDS[rng.below(8) as usize].as_bytes());
    }
    value.extend((0..12).flat_map(|_| rng.u64().to_le_bytes()));
    (key(n), Some(value))
}

pub fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

/// What is loaded.
pub struct Load {
    /// Commits of 32 rows.
    pub rounds: u64,
    /// So many steps of maintenance behind every so many commits.
    pub steps: (u64, u64),
    /// Keys are below this, at random.
    pub keys: u64,
}

pub const KEPT_UP: Load = Load { rounds: 1200, steps: (3, 1), keys: 12_000 };

pub struct Loaded {
    pub stats: IndexStats,
    /// The most runs of level 0, and of all levels, that may have one key, behind any commit.
    pub most_at_top: u64,
    pub most_strands: u64,
}

impl Loaded {
    pub fn merged_bytes(&self) -> u64 {
        self.stats.levels.iter().map(|level| level.merged_bytes).sum()
    }

    pub fn print(&self, what: &str) {
        println!(
            "{what:<36} flushed {:>9} merged {:>10} moved {:>9} written/ingested {:.2} on disk {:>8} strands {:>2}, of level 0 {:>2}",
            self.stats.traffic.segment_bytes,
            self.merged_bytes(),
            self.stats.levels.iter().map(|level| level.moved_bytes).sum::<u64>(),
            self.stats.write_amplification().unwrap(),
            self.stats.disk_bytes,
            self.most_strands,
            self.most_at_top,
        );
    }
}

/// Random rows, a checkpoint now and then, and everything in shape at the end.
pub fn load<'b>(bench: &'b Bench, load: &Load) -> (Loaded, World<'b>) {
    let mut world = done(World::new(bench));
    let mut rng = Rng::new(7);
    let (mut most_at_top, mut most_strands) = (0, 0);
    for round in 0..load.rounds {
        let batch: Vec<_> = (0..32)
            .map(|_| {
                let key = rng.below(load.keys);
                row(key, &mut rng)
            })
            .collect();
        done(world.commit(&batch));
        if round % load.steps.1 == 0 {
            (0..load.steps.0).for_each(|_| _ = done(world.maintain()));
        }
        if round % 8 == 0 {
            done(world.checkpoint());
            done(world.evict());
        }
        let levels = world.index().stats().levels;
        most_at_top = most_at_top.max(levels[0].strands);
        most_strands = most_strands.max(levels.iter().map(|level| level.strands).sum());
    }
    done(world.settle());
    let stats = world.index().stats();
    (Loaded { stats, most_at_top, most_strands }, world)
}
