//! Blocks that were just written stay in memory while there is room: reads are counted.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::{ALL, env, evict, flush, keys, put, settle};
use index::{Direction, Index, ReadAt};
use trefoil_lsm::Lsm;

const ROWS: u32 = 20_000;

fn value(n: u32) -> Vec<u8> {
    n.to_le_bytes().repeat(10)
}

fn scan(index: &Lsm) -> u64 {
    let before = index.stats().loads;
    assert_eq!(keys(index, ReadAt::Newest, Direction::Forward).len() as u32, ROWS);
    index.stats().loads - before
}

/// Behind flushes and merges a reader reads nothing; behind an eviction everything, once. Guards: `written` in `Writer::end_block`, `adopt_cell`.
#[test]
fn what_was_written_is_in_memory_while_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let surroundings = env(dir.path(), 1024, 64 << 20);
    let index = Lsm::open(surroundings.clone(), None).unwrap();
    for round in 0..8 {
        put(&index, 16 * (1 + u64::from(round)), (round..ROWS).step_by(8), value);
        flush(&index);
    }
    assert_eq!(scan(&index), 0, "flushed");
    settle(&index);
    assert!(index.stats().levels[1..].iter().any(|level| level.merged_bytes > 0), "{}", index.draw());
    assert_eq!(scan(&index), 0, "merged");
    evict(&surroundings);
    let all = scan(&index);
    assert!(all >= index.stats().leaves, "{all}");
    assert_eq!(scan(&index), 0, "what was read stays as before");
}

/// What a merge takes over unread stays where it is in memory. Guard: `Parts::cell` in `Input::parts`.
#[test]
fn what_is_taken_over_stays_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let surroundings = env(dir.path(), 1024, 64 << 20);
    let index = Lsm::open(surroundings.clone(), None).unwrap();
    put(&index, 16, 0..ROWS, value);
    flush(&index);
    settle(&index);
    evict(&surroundings);
    let all = scan(&index);
    assert!(all > 100);
    // A few rows at one place, so often that they are merged with the rest.
    for n in 0..4 {
        put(&index, 1024 + 16 * n, 9000..9010, value);
        flush(&index);
    }
    index.cursor(ReadAt::Newest, ALL, Direction::Forward);
    let before: u64 = index.stats().levels.iter().map(|level| level.moved_bytes).sum();
    settle(&index);
    let moved = index.stats().levels.iter().map(|level| level.moved_bytes).sum::<u64>() - before;
    assert!(moved > 0, "nothing was taken over: {}", index.draw());
    assert_eq!(scan(&index), 0);
}

/// Two runs whose keys take turns, so many of each: what the merge of them takes over.
fn taken_over_in_turns(rows: u32) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let index = Lsm::open(env(dir.path(), 1024, 64 << 20), None).unwrap();
    for turn in 0..2 {
        put(&index, 16 * (1 + u64::from(turn)), (0..ROWS).filter(|n| n / rows % 2 == turn), value);
        flush(&index);
    }
    // So that these are merged: a few of each more.
    for n in 0..4 {
        put(&index, 1024 + 16 * n, (0..ROWS).step_by(rows as usize), value);
        flush(&index);
    }
    settle(&index);
    let levels = index.stats().levels;
    assert!(levels.iter().any(|level| level.merged_bytes > 0), "{}", index.draw());
    assert_eq!(scan(&index), 0);
    levels.iter().map(|level| level.moved_bytes).sum()
}

/// Guard: `Merge::is_stretch`. A row takes 60 bytes, about.
#[test]
fn few_blocks_between_others_are_not_taken_over() {
    assert_eq!(taken_over_in_turns(100), 0);
    assert!(taken_over_in_turns(2000) > 0);
}

/// Nothing leaves memory, now or soon, for what nobody asked for. (`written`, `try_grant_spare` and the end of a partition each see to it: it does not fail for want
/// of one of the first two.)
#[test]
fn what_was_written_takes_what_is_free_and_no_more() {
    const BUDGET: u64 = 8 << 20;
    let dir = tempfile::tempdir().unwrap();
    let surroundings = env(dir.path(), 1024, BUDGET);
    let index = Lsm::open(surroundings.clone(), None).unwrap();
    for round in 0..40u32 {
        put(&index, 16 * (1 + u64::from(round)), round * 5000..(round + 1) * 5000, value);
        flush(&index);
    }
    let budget = surroundings.cache.budget();
    let kept = budget.used(store::Class::Frames);
    assert!(kept > BUDGET / 8, "{kept} bytes are kept");
    assert!(budget.free() + (256 << 10) > BUDGET / 4, "{} of {BUDGET} bytes are free", budget.free());
}
