//! What must be there, and whether every reader saw one moment.
//!
//! The log is sequential, so what a crash leaves is a prefix of the commits by timestamp: everything acknowledged as
//! durable against this kind of crash, and of the others some, each whole or absent. The journal (a row per
//! transaction, written by the transaction itself) says how long the prefix is; every map must then be exactly what
//! the prefix makes it.
//!
//! What was prepared is there if and only if it was committed; otherwise it is prepared still, unless it was rolled back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use base::CommitTs;
use base::bytes::printable;
use model::Model;
use trefoil::{ALL, Database, Error};

use crate::history::{Acknowledged, Current, History, Map};
use crate::workload::phases;
use crate::world::{Extra, World, check_secondaries};

/// How the last life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Closed, or the process ended: everything acknowledged but `Buffered` commits is there.
    Process,
    /// Closed in order: everything is there.
    Closed,
    /// The power was cut: what was acknowledged as synced is there.
    Power,
}

/// Checks every observation against the models; for the end of a life.
pub fn observations(history: &History) {
    let models = history.models();
    for seen in &history.observations {
        let high = if seen.high.is_empty() { Bound::Unbounded } else { Bound::Excluded(seen.high.as_slice()) };
        let expected: Vec<_> = models.get(&seen.map).map_or_else(Vec::new, |m| {
            m.range(seen.ts, (Bound::Included(&seen.low), high)).map(|e| (e.key, e.value)).collect()
        });
        assert!(
            expected == seen.entries,
            "a reader at {} of {:?} from {} to {} saw {}",
            seen.ts,
            seen.map,
            printable(&seen.low),
            printable(&seen.high),
            difference(&expected, &seen.entries)
        );
    }
    for commit in &history.commits {
        for (map, key, said) in &commit.current_reads {
            let before = CommitTs(commit.ts.0 - 1);
            let newest = models.get(map).and_then(|m| m.get(before, key)).map(|e| e.value);
            let right = match said {
                Current::Is(value) => newest == *value,
                Current::Exists(there) => newest.is_some() == *there,
                Current::Begins(with) => newest.as_ref().is_some_and(|value| value.starts_with(with)),
            };
            assert!(
                right,
                "transaction {} at {} read {said:?} of {map:?} under its lock, {newest:?} was newest: a lost update",
                commit.id, commit.ts
            );
        }
    }
}

/// No two rows of the table had one value of column `a` at any moment.
pub fn distinct(history: &History) {
    let mut commits: Vec<_> = history.commits.iter().collect();
    commits.sort_unstable_by_key(|commit| commit.ts);
    let mut rows: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    for commit in commits {
        for ((_, key), value) in commit.writes.iter().filter(|((map, _), _)| *map == Map::Table) {
            match value {
                Some(value) => rows.insert(key, &value[..size_of::<u32>()]),
                None => rows.remove(key.as_slice()),
            };
        }
        let values: BTreeSet<_> = rows.values().collect();
        assert!(values.len() == rows.len(), "rows of one value since {}: {rows:?}", commit.ts);
    }
}

/// After a reopen: trims the history to what is there and checks that it is what must be there. Of the indexes it reads
/// the journal only.
pub fn recovered(history: &mut History, world: &World, ending: Ending) {
    let present: BTreeSet<u64> = world
        .all(Map::Journal)
        .into_iter()
        .map(|(key, _)| u64::from_be_bytes(key.try_into().expect("a journal key is a number")))
        .collect();
    let last = history.commits.iter().filter(|c| present.contains(&c.id)).map(|c| c.ts).max();
    let last = last.unwrap_or(CommitTs::ZERO);
    for commit in &history.commits {
        let there = present.contains(&commit.id);
        let must = match (ending, commit.acknowledged) {
            (Ending::Closed, Acknowledged::Unknown) => false,
            (Ending::Closed, _) | (_, Acknowledged::Synced) => true,
            (Ending::Process, Acknowledged::Written) => true,
            _ => false,
        };
        assert!(
            there || !must,
            "lost: transaction {} at {}, {:?}, {ending:?}",
            commit.id,
            commit.ts,
            commit.acknowledged
        );
        assert!(
            there || commit.ts > last,
            "transaction {} at {} is missing although a later one at {last} is there",
            commit.id,
            commit.ts
        );
    }
    phases::recovered(history, world, |id| present.contains(&id));
    let known: BTreeSet<u64> = history.commits.iter().map(|c| c.id).collect();
    assert!(present.is_subset(&known), "rows of transactions that never committed: {:?}", present.difference(&known));
    history.commits.retain(|c| present.contains(&c.id));
    history.observations.clear();
    definitions(history, world);
}

/// After that: everything is what the history makes it, and sound.
pub fn whole(history: &History, world: &World) {
    contents(history, world);
    sound(&world.db);
}

/// Every map holds exactly what the commits left.
pub fn contents(history: &History, world: &World) {
    let models = history.models();
    for map in world.maps() {
        let expected = models.get(&map).map_or_else(Vec::new, newest);
        let found = world.all(map);
        assert!(expected == found, "{map:?} holds {}", difference(&expected, &found));
    }
    let snapshot = world.db.snapshot().expect("open");
    check_secondaries(&snapshot, &world.table).expect("readable");
}

/// Reads everything; the first fault met.
pub fn readable(world: &World) -> Result<(), Error> {
    let snapshot = world.db.snapshot()?;
    for index in world.plain.iter().chain(&world.wide).chain(&world.counters).chain([&world.journal]) {
        snapshot.range(index, ..)?.collect()?;
    }
    let mut rows = snapshot.scan(&world.table, ALL)?;
    while rows.next()?.is_some() {}
    for index in world.table.schema().indexes() {
        let mut entries = snapshot.scan_index(&world.table, index.name(), ALL)?;
        while entries.next()?.is_some() {}
    }
    Ok(())
}

/// Definition changes are there or not, as a whole. What is there gets its handle.
fn definitions(history: &mut History, world: &World) {
    for (name, state) in &mut history.extra {
        let found = if name.starts_with("table") {
            world.db.table(name).map(Extra::Table)
        } else {
            world.db.index(name).map(Extra::Index)
        };
        let found = match found {
            Ok(handle) => Some(handle),
            Err(Error::NotFound { .. }) => None,
            Err(other) => panic!("{name}: {other}"),
        };
        let there = found.is_some();
        assert!(state.there.is_none_or(|must| must == there), "{name}: there: {there}, must be: {:?}", state.there);
        state.there = Some(there);
        if let Some(handle) = found {
            world.extras.lock().insert(name.clone(), (state.creation, handle));
        }
    }
    let schema = world.table.schema();
    history.added.retain(|name, must| {
        let there = schema.index_number(name).is_some();
        assert!(must.is_none_or(|must| must == there), "index {name} of the table: there: {there}, must be: {must:?}");
        *must = Some(true);
        there
    });
}

/// `verify` finds nothing.
pub fn sound(db: &Database) {
    for (name, report) in db.verify().expect("verify runs") {
        assert!(report.problems.is_empty(), "verify of {name}: {:#?}", report.problems);
    }
}

fn newest(model: &Model) -> Vec<(Vec<u8>, Vec<u8>)> {
    model.range(CommitTs::MAX, (Bound::Unbounded, Bound::Unbounded)).map(|e| (e.key, e.value)).collect()
}

/// The first differences, for people.
fn difference(expected: &[(Vec<u8>, Vec<u8>)], found: &[(Vec<u8>, Vec<u8>)]) -> String {
    let missing = expected.iter().filter(|e| !found.contains(e));
    let extra = found.iter().filter(|e| !expected.contains(e));
    let show = |(k, v): &(Vec<u8>, Vec<u8>)| format!("{} = {}", printable(k), printable(v));
    let missing: Vec<_> = missing.take(5).map(show).collect();
    let extra: Vec<_> = extra.take(5).map(show).collect();
    format!("{} entries instead of {}; missing {missing:?}; not expected {extra:?}", found.len(), expected.len())
}
