//! Counters that must agree: each group has a head, which is locked, and items, which are read plainly.
//!
//! Whoever holds the head's lock is alone in the group, so what it reads in the items afterwards is what the lock's
//! last owner left there, if its snapshot waits for what the lock has shown (rule A17). Every read under READ
//! COMMITTED, and the first under REPEATABLE READ, takes such a snapshot.

use trefoil::{Error, Isolation, LockMode};
use vfs::random::Rng;

use super::Shared;
use super::doing::Doing;
use crate::history::Map;
use crate::world::{World, range};

/// Groups: few, so that locks are handed over.
const GROUPS: u64 = 2;
/// Items of each, in the other plain index.
const ITEMS: u64 = 3;
/// Keys from here on belong to the groups.
const FIRST_KEY: u64 = 1 << 32;

/// One more for every counter of a group.
pub fn count(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let isolation = if rng.chance(0.7) { Isolation::ReadCommitted } else { Isolation::RepeatableRead };
    let mut doing = Doing::begin(world, history, isolation)?;
    let group = FIRST_KEY + rng.below(GROUPS) * 64;
    let item = |n: u64| (group + n).to_be_bytes();
    if isolation == Isolation::ReadCommitted && rng.chance(0.5) {
        // A snapshot from before the lock.
        doing.tx.get(&world.plain[1], &item(0))?;
    }
    let head = doing.get_locked(Map::Plain(0), &world.plain[0], &group.to_be_bytes(), LockMode::Exclusive)?;
    let items = if rng.chance(0.5) {
        (0..ITEMS).map(|n| doing.tx.get(&world.plain[1], &item(n))).collect::<Result<Vec<_>, _>>()?
    } else {
        let (low, high) = (item(0), item(ITEMS));
        let found = if rng.chance(0.5) {
            doing.tx.range(&world.plain[1], range(&low, &high))?.collect()?
        } else {
            doing.tx.range_back(&world.plain[1], range(&low, &high))?.collect()?
        };
        assert!(found.len() as u64 == if head.is_some() { ITEMS } else { 0 }, "{found:?} under {head:?}");
        found.into_iter().map(|(_, value)| Some(value)).collect()
    };
    assert!(
        items.iter().all(|item| *item == head),
        "group {group}: the head under its lock is {head:?}, the items are {items:?}"
    );
    let counter = head.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().expect("a counter"))) + 1;
    let value = counter.to_be_bytes().to_vec();
    doing.put(Map::Plain(0), &world.plain[0], &group.to_be_bytes(), value.clone())?;
    for n in 0..ITEMS {
        doing.put(Map::Plain(1), &world.plain[1], &item(n), value.clone())?;
    }
    doing.commit(history, rng)
}
