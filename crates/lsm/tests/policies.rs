//! What only comparisons switch, and compression by level: by how much each tells. The figures are the same each time:
//! `cargo test -p trefoil-lsm --test all policies:: -- --nocapture --test-threads 1` prints them.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]
#![allow(clippy::disallowed_types, reason = "blocks are looked at as they lie in the file")]

use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::load::{self, KEPT_UP, Load, bench, by_level};
use crate::support;
use index::{Direction, Index, IndexEnv, LevelCompression, MergePolicy, ReadAt, Shape};
use store::Compression::{self, Lz4, None as Plain, Zstd};
use store::{BlockKind, BlockRef, codec};
use trefoil_lsm::Lsm;

/// `shape`, `compaction_pri`: bytes that are merged.
#[test]
fn shape_and_priority_tell_by_bytes() {
    let mut written = Vec::new();
    for (shape, least_overlap) in
        [(Shape::Leveled, true), (Shape::Leveled, false), (Shape::Lazy, true), (Shape::Universal, true)]
    {
        let policy = MergePolicy { least_overlap, ..MergePolicy::default() };
        let (loaded, _) = load::load(&bench(shape, Plain, policy), &KEPT_UP);
        loaded.print(&format!("{shape:?}, compaction_pri {}", if least_overlap { "min_overlap" } else { "none" }));
        written.push(loaded.merged_bytes());
    }
    let [with, without, lazy, universal] = written[..] else { unreachable!("four loads") };
    assert!(with * 33 < without * 32, "{with} with the least overlap first, {without} without");
    assert!(with > lazy && lazy > universal, "{written:?}");
}

/// `l0_l0`: while a long merge has the base, flushes are merged among themselves, so that a look-up meets fewer of them. Half as many steps
/// as keep up.
#[test]
fn merges_at_the_top_tell_by_runs_to_look_at() {
    let fast = Load { rounds: 800, steps: (1, 2), ..KEPT_UP };
    let of = |shape: Shape| {
        [true, false].map(|merges_at_top| {
            let policy = MergePolicy { merges_at_top, ..MergePolicy::default() };
            let (loaded, _) = load::load(&bench(shape, Plain, policy), &fast);
            loaded.print(&format!("{shape:?}, l0_l0 {}", if merges_at_top { "on" } else { "off" }));
            loaded
        })
    };
    let [with, without] = of(Shape::Leveled);
    // 9 and 16 when this was written.
    assert!(with.most_at_top * 4 < without.most_at_top * 3, "{} and {}", with.most_at_top, without.most_at_top);
    // 21.8 and 27.8 MB.
    let bytes = [with, without].map(|loaded| loaded.merged_bytes());
    assert!(bytes[0] * 8 < bytes[1] * 7, "{bytes:?} merged");
    // There they trade the one for the other, by a twentieth: 13.5 MB in 13 strands at most, and 13.0 in 14.
    let [with, without] = of(Shape::Universal);
    assert_ne!(with.merged_bytes(), without.merged_bytes());
}

/// `separated_bytes`: values from so many bytes on lie apart, so that merges write their names alone; and on disk each takes a block.
#[test]
fn values_apart_tell_by_bytes() {
    let [together, apart] = [None, Some(128)].map(|separated_bytes| {
        let policy = MergePolicy { separated_bytes, ..MergePolicy::default() };
        let (loaded, _) = load::load(&bench(Shape::Leveled, Plain, policy), &KEPT_UP);
        loaded.print(&format!("separated_bytes {separated_bytes:?}"));
        loaded
    });
    assert!(
        apart.merged_bytes() * 2 < together.merged_bytes(),
        "{} and {}",
        apart.merged_bytes(),
        together.merged_bytes()
    );
    assert!(
        apart.stats.disk_bytes > together.stats.disk_bytes,
        "{} and {}",
        apart.stats.disk_bytes,
        together.stats.disk_bytes
    );
}

/// Compression by level: what it saves on disk and what it makes of what is written.
#[test]
fn compression_by_level_tells_by_bytes() {
    for shape in [Shape::Lazy, Shape::Leveled] {
        let of = |top, middle, bottom| {
            let (loaded, _) = load::load(&bench(shape, Plain, by_level(top, middle, bottom)), &KEPT_UP);
            loaded.print(&format!("{shape:?}, {top:?}/{middle:?}/{bottom:?}"));
            let bottom = loaded.stats.levels[7];
            (bottom.disk_bytes / bottom.versions, loaded.stats.traffic.written_bytes())
        };
        let [plain, lz4, zstd] = [Plain, Lz4, Zstd].map(|all| of(all, all, all));
        let mixed = of(Plain, Lz4, Zstd);
        of(Lz4, Lz4, Zstd);
        println!("{shape:?}: bytes of a version at the bottom: plain {}, LZ4 {}, zstd {}", plain.0, lz4.0, zstd.0);
        assert!(zstd.0 < lz4.0 && lz4.0 < plain.0, "{shape:?}: {zstd:?} {lz4:?} {plain:?}");
        assert!(mixed.0 <= zstd.0 + zstd.0 / 50, "{shape:?}: the bottom is as with zstd alone: {mixed:?} {zstd:?}");
        assert!(mixed.1 < plain.1 && zstd.1 < mixed.1, "{shape:?}: written {zstd:?} {mixed:?} {plain:?}");
    }
}

fn small_env(dir: &Path, budget_bytes: u64, shape: Shape, policy: MergePolicy, saved: Option<&[u8]>) -> IndexEnv {
    let mut env = support::env_of(dir, 1024, budget_bytes, saved);
    (env.options.shape, env.options.policy) = (shape, policy);
    env
}

/// Kind and compression of a block as they stand in its header, and whether it is what the codec makes of its payload with `wanted`: what does not
/// shrink is stored as it is.
fn look_at(dir: &Path, env: &IndexEnv, at: BlockRef, wanted: impl Fn(BlockKind) -> Compression) -> (Compression, bool) {
    let mut header = [0; 40];
    std::fs::File::open(dir.join(env.space.file_name())).unwrap().read_exact_at(&mut header, at.offset).unwrap();
    let kind = if header[3] == BlockKind::Overflow as u8 { BlockKind::Overflow } else { BlockKind::Run };
    let (mut payload, mut anew) = (Vec::new(), Vec::new());
    env.space.read(at, kind, env.id, &mut payload).unwrap();
    codec::seal(kind, env.id, wanted(kind), &payload, &[], &mut anew).unwrap();
    (Compression::from_stored(header[4]).unwrap(), anew[4] == header[4] && anew.len() == at.stored_bytes as usize)
}

/// The level of each block with what was found: runs come in the order in which they are drawn.
fn all_blocks(
    dir: &Path,
    env: &IndexEnv,
    index: &Lsm,
    wanted: impl Fn(u8, BlockKind) -> Compression,
) -> Vec<(u8, Compression, bool)> {
    let blocks = support::blocks(index);
    let drawing = index.draw();
    let level = |line: &str| line.strip_prefix("run level ").map(|rest| rest[..1].parse::<u8>().unwrap());
    let mut levels = drawing.lines().filter_map(level);
    let (mut found, mut at_level, mut was_top) = (Vec::new(), 0, false);
    for (at, name) in blocks {
        let is_top = name.starts_with("the index of run");
        if is_top && !was_top {
            at_level = levels.next().expect("as many runs as are drawn");
        }
        was_top = is_top;
        let (compression, is_as_wanted) = look_at(dir, env, at, |kind| wanted(at_level, kind));
        found.push((at_level, compression, is_as_wanted));
    }
    assert_eq!(levels.next(), None, "every run has an index");
    found
}

/// As `by_level(Plain, Lz4, Zstd)` has it.
fn mixed(level: u8, kind: BlockKind) -> Compression {
    match (level, kind) {
        (7, _) | (_, BlockKind::Overflow) => Zstd,
        (0, _) => Plain,
        _ => Lz4,
    }
}

/// Rows that compress to half, and a few that are too large for a block.
fn value(n: u32) -> Vec<u8> {
    let mut rng = vfs::random::Rng::new(u64::from(n));
    let words = if n.is_multiple_of(997) { 300 } else { 5 };
    (0..words).flat_map(|_| [rng.u64(), 7]).flat_map(u64::to_le_bytes).collect()
}

/// Every block of a level, of data and of indexes, is compressed as its level's are; large values as the bottom's.
#[test]
fn each_level_is_compressed_as_it_should_be() {
    for shape in [Shape::Lazy, Shape::Leveled, Shape::Universal] {
        let dir = tempfile::tempdir().unwrap();
        let env = small_env(dir.path(), 1 << 20, shape, by_level(Plain, Lz4, Zstd), None);
        let index = Lsm::open(env.clone(), None).unwrap();
        let mut rng = vfs::random::Rng::new(3);
        let mut seen = [0; 3];
        for ts in 1..=120u64 {
            let keys: std::collections::BTreeSet<u32> = (0..400).map(|_| rng.below(40_000) as u32).collect();
            support::put(&index, ts * 16, keys.into_iter(), value);
            support::flush(&index);
            for _ in 0..30 {
                let _ = index.maintain(&support::upkeep()).unwrap();
            }
            // Nobody else makes room for the next rows.
            support::evict(&env);
            if ts % 6 != 5 {
                continue;
            }
            for (level, compression, is_as_wanted) in all_blocks(dir.path(), &env, &index, mixed) {
                assert!(is_as_wanted, "{shape:?}: a block of level {level} is {compression:?}");
                seen[compression as usize] += 1;
            }
            support::evict(&env);
        }
        assert!(seen.iter().all(|blocks| *blocks > 20), "{shape:?}: {seen:?} blocks of each");
        assert!(index.verify().unwrap().problems.is_empty());
    }
}

/// What is ascending is moved to the bottom as it is if it is compressed alike there, and written anew if it is not.
#[test]
fn a_run_of_another_compression_is_not_moved() {
    let load = |policy: MergePolicy| {
        let dir = tempfile::tempdir().unwrap();
        let env = small_env(dir.path(), 512 << 10, Shape::Leveled, policy, None);
        let index = Lsm::open(env.clone(), None).unwrap();
        for round in 0..60u32 {
            support::put(&index, u64::from(round + 1) * 16, round * 500..(round + 1) * 500, value);
            support::flush(&index);
            support::settle(&index);
            support::evict(&env);
        }
        let bottom = index.stats().levels[7];
        let all = all_blocks(dir.path(), &env, &index, |_, _| Zstd);
        let mut at_bottom = all.iter().filter(|(level, ..)| *level == 7);
        assert!(at_bottom.clone().count() > 100, "{:?}", index.stats().levels);
        assert!(at_bottom.all(|(_, _, is_as_wanted)| *is_as_wanted), "the bottom is as it should be");
        (bottom.moved_bytes, bottom.merged_bytes)
    };
    let (moved, merged) = load(by_level(Zstd, Zstd, Zstd));
    assert!(moved > 0 && merged * 10 < moved, "{moved} moved, {merged} merged");
    let (moved, merged) = load(by_level(Plain, Lz4, Zstd));
    assert!(merged > 0 && moved < merged, "{moved} moved, {merged} merged");
}

/// A database is opened with other policies each time: what lies there is read, taken over, moved and merged beside what is written now.
#[test]
fn runs_of_other_policies_are_sound() {
    let dir = tempfile::tempdir().unwrap();
    let turns = [
        by_level(Lz4, Lz4, Lz4),
        by_level(Plain, Lz4, Zstd),
        by_level(Zstd, Plain, Lz4),
        by_level(Plain, Plain, Plain),
        MergePolicy::default(),
    ];
    let (mut saved, mut rows) = (None::<(Vec<u8>, Vec<u8>)>, 0);
    let mut mixed = 0;
    for (turn, policy) in turns.into_iter().enumerate() {
        let shape = [Shape::Leveled, Shape::Lazy, Shape::Universal][turn % 3];
        let env = small_env(dir.path(), 4 << 20, shape, policy, saved.as_ref().map(|(_, space)| space.as_slice()));
        let index = Lsm::open(env.clone(), saved.as_ref().map(|(state, _)| state.as_slice())).unwrap();
        for round in 0..12u64 {
            let ts = (turn as u64 * 100 + round * 2 + 1) * 16;
            support::put(&index, ts, rows..rows + 600, value);
            rows += 600;
            support::flush(&index);
            // Over what lies there already, whatever it is compressed with.
            support::put(&index, ts + 16, (0..rows).step_by(211), value);
            support::flush(&index);
            if round % 3 == 2 {
                support::settle(&index);
            }
        }
        assert_eq!(support::keys(&index, ReadAt::Newest, Direction::Forward), (0..rows).collect::<Vec<_>>());
        assert!(index.verify().unwrap().problems.is_empty());
        let mut kinds: Vec<Compression> = all_blocks(dir.path(), &env, &index, |_, _| Plain)
            .iter()
            .filter(|(level, ..)| *level == 7)
            .map(|found| found.1)
            .collect();
        kinds.sort_by_key(|compression| *compression as u8);
        kinds.dedup();
        mixed += usize::from(kinds.len() > 1);
        saved = Some(support::checkpoint(&env, &index));
        env.space.close();
    }
    assert!(mixed > 0, "the bottom never had blocks of two compressions beside each other");
}

/// The default, whatever the index is compressed with: decision 0012.
#[test]
fn all_levels_are_compressed_alike() {
    for compression in [Plain, Lz4, Zstd] {
        let of = LevelCompression::of(compression);
        assert_eq!((of.top, of.middle, of.bottom), (compression, compression, compression));
    }
}
