//! Writers: transactions of random operations, with savepoints taken back, on what is always there and on what comes
//! and goes.

use std::collections::BTreeMap;
use std::ops::Bound;

use trefoil::{Error, Index, Isolation, LockMode, Locking, Value};
use vfs::random::Rng;

use super::doing::Doing;
use super::{Shared, Step, deserts, groups, phases, step, sweep};
use crate::history::{self, Map};
use crate::world::{Extra, KEYS, PLAIN, SPARE, World, flat, range};

/// A writer's life.
pub fn write(world: &World, history: &Shared, rng: &mut Rng) {
    for _ in 0..world.sizes.transactions {
        if world.sizes.prepares && rng.chance(0.4) && step(phases::decide(world, history, rng)) == Step::Over {
            return;
        }
        let is_desert = world.sizes.deserts && rng.chance(0.2);
        let result = match rng.below(24) {
            _ if is_desert => deserts::desert(world, history, rng),
            0..=7 => groups::count(world, history, rng),
            8 => sweep::sweep(world, history, rng),
            _ => transaction(world, history, rng),
        };
        if step(result) == Step::Over {
            return;
        }
    }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn read(
    doing: &Doing<'_>,
    n: usize,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    locked: Option<Locking>,
) -> Result<Entries, Error> {
    let index = &doing.world.plain[n];
    match locked {
        None => doing.tx.range(index, range)?.collect(),
        Some(locking) => doing.tx.range_locked(index, range, locking)?.collect(),
    }
}

/// A range of a plain index, read before the first write.
struct Before {
    n: usize,
    low: Vec<u8>,
    high: Vec<u8>,
    entries: Entries,
    locked: Option<Locking>,
}

fn transaction(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let isolation = match rng.below(10) {
        0..=3 => Isolation::ReadCommitted,
        4..=8 => Isolation::RepeatableRead,
        _ => Isolation::Serializable,
    };
    let mut doing = Doing::begin(world, history, isolation)?;
    let before = if rng.chance(0.3) { Some(look(&doing, rng, None)?) } else { None };
    let locked = if rng.chance(0.1) { Some(look(&doing, rng, Some(Locking::SHARED))?) } else { None };
    let operations = if rng.chance(0.1) { 40 } else { 1 + rng.below(6) };
    part(&mut doing, rng, operations, 0)?;
    doing.check_own()?;
    for before in before.iter().chain(&locked) {
        look_again(&doing, before)?;
    }
    if rng.chance(0.1) {
        doing.tx.rollback();
        return Ok(());
    }
    doing.commit(history, rng)
}

/// Operations; some are parts that are taken back, with parts in them. Locks taken in those stay, reads under them too.
fn part(doing: &mut Doing<'_>, rng: &mut Rng, operations: u64, depth: u32) -> Result<(), Error> {
    for _ in 0..operations {
        if depth < 3 && rng.chance(0.1) {
            let (savepoint, before) = (doing.tx.savepoint(), (doing.writes.clone(), doing.ranges.clone()));
            for _ in 0..1 + rng.below(2) {
                let operations = 1 + rng.below(4);
                part(doing, rng, operations, depth + 1)?;
                doing.tx.rollback_to(savepoint)?;
                (doing.writes, doing.ranges) = before.clone();
            }
            continue;
        }
        match operation(doing, rng) {
            // The statement did nothing, the transaction may go on.
            Err(Error::LockTimeout { .. } | Error::Dropped { .. }) if rng.chance(0.5) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Bytes that hardly compress.
pub fn value(rng: &mut Rng, max: u64) -> Vec<u8> {
    let n = rng.below(max) as usize;
    let byte = rng.u64() as u8;
    (0..n).map(|i| byte.wrapping_add(i as u8)).collect()
}

/// More than memory takes, and then little again: what was written is in files, the locks are folded, and what commits is as
/// small as ever.
fn spill(doing: &mut Doing<'_>, rng: &mut Rng) -> Result<(), Error> {
    let world = doing.world;
    let n = rng.index(PLAIN);
    let bytes = 16 << 10;
    let keys: Vec<u64> = (0..world.sizes.budget_bytes / 4 / bytes + 3).map(|_| rng.below(KEYS)).collect();
    for (length, chance) in [(bytes, 1.0), (world.sizes.value_bytes_max, 0.9)] {
        for key in &keys {
            if rng.chance(chance) {
                let least = if length == bytes { bytes / 2 } else { 0 };
                let value = vec![rng.u64() as u8; (least + rng.below(length)) as usize];
                doing.put(Map::Plain(n), &world.plain[n], &key.to_be_bytes(), value)?;
            } else {
                doing.delete(Map::Plain(n), &world.plain[n], &key.to_be_bytes())?;
            }
        }
    }
    Ok(())
}

fn operation(doing: &mut Doing<'_>, rng: &mut Rng) -> Result<(), Error> {
    let world = doing.world;
    if world.sizes.budget_bytes <= 1 << 20 && rng.chance(0.02) {
        return spill(doing, rng);
    }
    if let Some(index) = &world.counters
        && rng.chance(0.3)
    {
        return counter(doing, index, rng);
    }
    let key = rng.below(KEYS);
    let max = world.sizes.value_bytes_max;
    let n = rng.index(PLAIN);
    let (mut map, mut handle) = match rng.below(8) {
        0..=4 => (Map::Plain(n), Extra::Index(world.plain[n].clone())),
        _ => (Map::Table, Extra::Table(world.table.clone())),
    };
    if rng.chance(0.1)
        && let Some(extra) = world.some_extra(rng)
    {
        (map, handle) = extra;
    }
    let bytes = key.to_be_bytes();
    match handle {
        Extra::Index(index) if rng.chance(0.05) => {
            let most = if rng.chance(0.2) { KEYS } else { 8 };
            let high = (key + 1 + rng.below(most)).min(KEYS).to_be_bytes();
            doing.delete_range(map, &index, &bytes, &high)
        }
        Extra::Index(index) => match rng.below(11) {
            0..=5 => doing.put(map, &index, &bytes, value(rng, max)),
            6..=7 => doing.delete(map, &index, &bytes),
            8 => {
                let mode = if rng.chance(0.5) { LockMode::Shared } else { LockMode::Exclusive };
                let locking = if rng.chance(0.5) { Locking::from(mode) } else { Locking::from(mode).skip_locked() };
                let high = (key + 1 + rng.below(5)).to_be_bytes();
                doing.range_locked(map, &index, (&bytes, &high), locking)
            }
            _ => {
                let mode = if rng.chance(0.3) { LockMode::Shared } else { LockMode::Exclusive };
                let mut value = doing.get_locked(map, &index, &bytes, mode)?.unwrap_or_default();
                value.truncate(max as usize);
                value.push(rng.u64() as u8);
                doing.put(map, &index, &bytes, value)
            }
        },
        Extra::Table(table) => {
            let (a, b) = (world.sizes.some_a(rng), value(rng, max));
            let row = [Value::U64(key), Value::U32(a), Value::Bytes(b.into()), Value::U32(SPARE.1)];
            match rng.below(8) {
                0..=1 => doing.insert(map, &table, &row),
                2..=3 => doing.update(map, &table, &row),
                4 => doing.upsert(map, &table, &row),
                5 => doing.replace(map, &table, &row),
                _ => doing.delete_row(map, &table, key),
            }
        }
    }
}

/// Few keys, so that several add to one at a time.
fn counter(doing: &mut Doing<'_>, index: &Index, rng: &mut Rng) -> Result<(), Error> {
    let (key, number) = (rng.below(8).to_be_bytes(), rng.below(100) as i64 - 50);
    match rng.below(20) {
        0 => doing.set(index, &key, number),
        1 => doing.delete(Map::Counters, index, &key),
        2 => doing.read_counter(index, &key, LockMode::Shared),
        3 => doing.read_counter(index, &key, LockMode::Exclusive),
        _ => doing.add(index, &key, number),
    }
}

/// With `locked` its rows are locked, and nothing may come up between them.
fn look(doing: &Doing<'_>, rng: &mut Rng, locked: Option<Locking>) -> Result<Before, Error> {
    let n = rng.index(PLAIN);
    let (a, b) = (rng.below(KEYS), rng.below(KEYS));
    let (low, high) = (a.min(b).to_be_bytes().to_vec(), (a.max(b) + 1).to_be_bytes().to_vec());
    let entries = read(doing, n, range(&low, &high), locked)?;
    Ok(Before { n, low, high, entries, locked })
}

/// From REPEATABLE READ on a range is what it was, with the own writes on top, both ways.
fn look_again(doing: &Doing<'_>, before: &Before) -> Result<(), Error> {
    if doing.isolation < Isolation::RepeatableRead {
        return Ok(());
    }
    let mut expected: BTreeMap<Vec<u8>, Vec<u8>> = before.entries.iter().cloned().collect();
    expected.retain(|key, _| !history::has(&doing.ranges, Map::Plain(before.n), key));
    for ((_, key), value) in doing.writes.iter().filter(|((map, _), _)| *map == Map::Plain(before.n)) {
        if *key < before.low || *key >= before.high {
            continue;
        }
        match value {
            Some(value) => expected.insert(key.clone(), value.clone()),
            None => expected.remove(key),
        };
    }
    let expected: Vec<_> = expected.into_iter().collect();
    let index = &doing.world.plain[before.n];
    let up = read(doing, before.n, range(&before.low, &before.high), before.locked)?;
    assert!(up == expected, "upwards a transaction sees {up:?} instead of {expected:?}");
    if before.locked.is_some() {
        return Ok(());
    }
    let mut down = doing.tx.range_back(index, range(&before.low, &before.high))?.collect()?;
    down.reverse();
    assert!(down == expected, "downwards a transaction sees {down:?} instead of {expected:?}");
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let mut rows = doing.tx.scan(&doing.world.table, trefoil::ALL)?;
    while let Some(row) = rows.next()? {
        up.push(flat(&row));
    }
    let mut rows = doing.tx.scan_back(&doing.world.table, trefoil::ALL)?;
    while let Some(row) = rows.next()? {
        down.push(flat(&row));
    }
    down.reverse();
    assert!(up == down, "rows upwards {up:?}, downwards {down:?}");
    Ok(())
}
