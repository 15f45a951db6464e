//! Readers: snapshots held for a while and read more than once, some over several checkpoints and drops.

use std::time::Duration;

use trefoil::Error;
use vfs::random::Rng;

use super::{Shared, Step, step};
use crate::history::{Map, Observation};
use crate::world::{Extra, KEYS, PLAIN, WIDE_KEYS, World, check_secondaries, entries, entries_back};

/// A reader's life.
pub fn read(world: &World, history: &Shared, rng: &mut Rng) {
    for _ in 0..world.sizes.transactions {
        if step(observe(world, history, rng)) == Step::Over {
            return;
        }
    }
}

/// The life of a reader that takes its time.
pub fn read_long(world: &World, history: &Shared, rng: &mut Rng) {
    for _ in 0..2 {
        if step(observe_long(world, history, rng)) == Step::Over {
            return;
        }
    }
}

fn observe(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let snapshot = world.db.snapshot()?;
    for _ in 0..1 + rng.below(3) {
        let (map, handle) = some_map(world, rng);
        let keys = if map == Map::Wide { WIDE_KEYS } else { KEYS };
        let (a, b) = (rng.below(keys), rng.below(keys));
        let (low, high) = (a.min(b).to_be_bytes().to_vec(), (a.max(b) + 1).to_be_bytes().to_vec());
        let read = if rng.chance(0.5) { entries } else { entries_back };
        let entries = read(&snapshot, &handle, &low, &high)?;
        history.lock().observations.push(Observation { ts: snapshot.ts(), map, low, high, entries });
        if let Extra::Table(table) = &handle {
            check_secondaries(&snapshot, table)?;
        }
        vfs::thread::sleep(Duration::from_micros(rng.below(3000)));
    }
    Ok(())
}

fn some_map(world: &World, rng: &mut Rng) -> (Map, Extra) {
    let map = match rng.below(8) {
        0 | 1 => Map::Table,
        2 if world.wide.is_some() => Map::Wide,
        3 => {
            if let Some(extra) = world.some_extra(rng) {
                return extra;
            }
            Map::Table
        }
        n => Map::Plain(n as usize % PLAIN),
    };
    (map, world.handle(map).expect("it is always there"))
}

/// A snapshot and a cursor, held over several checkpoints and whatever is dropped meanwhile.
fn observe_long(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let snapshot = world.db.snapshot()?;
    let ts = snapshot.ts();
    let note = |map, entries| {
        let (low, high) = (Vec::new(), Vec::new());
        history.lock().observations.push(Observation { ts, map, low, high, entries });
    };
    let extra = world.some_extra(rng);
    let index = extra.as_ref().and_then(|(map, handle)| match handle {
        Extra::Index(index) => Some((*map, index.clone())),
        Extra::Table(_) => None,
    });
    // The cursor alone keeps an index that is dropped under it: the handle goes.
    drop(extra);
    let mut open = None;
    if let Some((map, index)) = index {
        match snapshot.range(&index, ..) {
            Ok(cursor) => open = Some((map, cursor)),
            Err(Error::Dropped { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let mut seen = Vec::new();
    let checkpoints = rng.chance(0.5);
    for round in 0..2 + rng.below(3) {
        let (map, handle) = some_map(world, rng);
        match entries(&snapshot, &handle, &[], &[]) {
            Ok(entries) => note(map, entries),
            Err(Error::Dropped { .. }) => {}
            Err(error) => return Err(error),
        }
        if round == 1
            && let Some((_, cursor)) = &mut open
            && let Some((key, value)) = cursor.next()?
        {
            seen.push((key.to_vec(), value.to_vec()));
        }
        if checkpoints {
            world.db.checkpoint()?;
        }
        vfs::thread::sleep(Duration::from_micros(rng.below(3000)));
    }
    if let Some((map, cursor)) = open {
        seen.extend(cursor.collect()?);
        note(map, seen);
    }
    for map in [Map::Plain(0), Map::Plain(1), Map::Table] {
        let handle = world.handle(map).expect("it is always there");
        note(map, entries(&snapshot, &handle, &[], &[])?);
    }
    check_secondaries(&snapshot, &world.table)
}
