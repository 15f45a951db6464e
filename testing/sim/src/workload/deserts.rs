//! Deserts: nearly all of an index is deleted, read while nothing is there, and put back in part: what readers learn of where nothing is must not
//! hide what comes after.

use trefoil::{Error, Isolation};
use vfs::random::Rng;

use super::Shared;
use super::doing::Doing;
use super::write::value;
use crate::history::{Map, Observation};
use crate::world::{Extra, KEYS, PLAIN, World, entries, entries_back, range};

/// One, and what comes back to it.
pub fn desert(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let n = rng.index(PLAIN);
    let (map, index) = (Map::Plain(n), &world.plain[n]);
    let mut doing = Doing::begin(world, history, Isolation::ReadCommitted)?;
    let left = [0.0, 0.02, 0.1][rng.index(3)];
    // The keys of groups agree with each other: they are left alone.
    let (low, high) = (0u64.to_be_bytes(), KEYS.to_be_bytes());
    if rng.chance(0.4) {
        doing.delete_range(map, index, &low, &high)?;
    } else {
        for (key, _) in doing.tx.range(index, range(&low, &high))?.collect()? {
            if !rng.chance(left) {
                doing.delete(map, index, &key)?;
            }
        }
    }
    doing.commit(history, rng)?;
    look(world, history, rng, n)?;
    for _ in 0..1 + rng.below(3) {
        let mut doing = Doing::begin(world, history, Isolation::ReadCommitted)?;
        for _ in 0..1 + rng.below(3) {
            let key = rng.below(KEYS).to_be_bytes();
            let value = value(rng, world.sizes.value_bytes_max);
            doing.put(map, index, &key, value)?;
        }
        doing.commit(history, rng)?;
        look(world, history, rng, n)?;
    }
    Ok(())
}

/// All of it, as of now, both ways or one.
fn look(world: &World, history: &Shared, rng: &mut Rng, n: usize) -> Result<(), Error> {
    let snapshot = world.db.snapshot()?;
    let handle = Extra::Index(world.plain[n].clone());
    let reads = [entries, entries_back];
    for read in &reads[rng.index(2)..] {
        let (low, high) = (Vec::new(), Vec::new());
        let entries = read(&snapshot, &handle, &low, &high)?;
        history.lock().observations.push(Observation { ts: snapshot.ts(), map: Map::Plain(n), low, high, entries });
    }
    Ok(())
}
