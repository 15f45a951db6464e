//! Commits in two phases: transactions are prepared, and decided later by whoever comes by, in this life or the next.

use std::time::Duration;

use trefoil::{Durability, Error};
use vfs::random::Rng;

use super::Shared;
use super::doing::Doing;
use crate::history::{Acknowledged, Commit, Current, History, Map, Prepared, Stage};
use crate::world::{Extra, World};

impl Doing<'_> {
    /// First phase; the journal's row is the last write.
    pub fn prepare(self, history: &Shared) -> Result<(), Error> {
        let Self { world, mut tx, mut writes, current_reads, id, .. } = self;
        let xid = id.to_be_bytes();
        tx.put(&world.journal, &xid, b"")?;
        writes.insert((Map::Journal, xid.to_vec()), Some(Vec::new()));
        history.lock().prepared.insert(id, Prepared { writes, current_reads, stage: Stage::Unknown });
        let result = tx.prepare(&xid);
        let mut history = history.lock();
        match &result {
            Ok(()) => history.prepared.get_mut(&id).expect("it was put there").stage = Stage::Prepared,
            Err(Error::CommitOutcomeUnknown { .. }) => {}
            Err(_) => drop(history.prepared.remove(&id)),
        }
        result
    }
}

/// Second phase of one that is prepared, if there is any.
pub fn decide(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let Some(id) = choose(history, rng) else { return Ok(()) };
    match rng.below(10) {
        0..=2 => rollback(world, history, id),
        3..=6 => commit(world, history, id),
        _ => ordered(world, history, id, rng),
    }
}

/// All that are prepared are decided.
pub fn decide_all(world: &World, history: &Shared, rng: &mut Rng) {
    while !history.lock().prepared.is_empty() {
        decide(world, history, rng).expect("nothing is wrong with the disk");
    }
}

fn choose(history: &Shared, rng: &mut Rng) -> Option<u64> {
    let mut history = history.lock();
    let all: Vec<u64> =
        history.prepared.iter().filter(|(_, p)| p.stage == Stage::Prepared).map(|(id, _)| *id).collect();
    let id = *all.get(rng.index(all.len().max(1)))?;
    history.prepared.get_mut(&id).expect("it is there").stage = Stage::Deciding;
    Some(id)
}

fn undecided(history: &Shared, id: u64) {
    history.lock().prepared.get_mut(&id).expect("it is there").stage = Stage::Prepared;
}

fn commit(world: &World, history: &Shared, id: u64) -> Result<(), Error> {
    match world.db.commit_prepared(&id.to_be_bytes()) {
        Ok(ts) => {
            let seen = world.db.snapshot();
            committed(&mut history.lock(), id, ts, Acknowledged::Synced);
            let there = seen?.get(&world.journal, &id.to_be_bytes())?;
            assert!(there.is_some(), "the commit of {id} at {ts} is not seen");
            Ok(())
        }
        Err(Error::CommitOutcomeUnknown { ts, cause }) => {
            committed(&mut history.lock(), id, ts, Acknowledged::Unknown);
            Err(Error::CommitOutcomeUnknown { ts, cause })
        }
        Err(error) => {
            undecided(history, id);
            Err(error)
        }
    }
}

/// As a server with a log of its own does: some are finished late, some by whoever waits.
fn ordered(world: &World, history: &Shared, id: u64, rng: &mut Rng) -> Result<(), Error> {
    let xid = id.to_be_bytes();
    let ready = world.db.ready_prepared(&xid).inspect_err(|_| undecided(history, id))?;
    if rng.chance(0.2) {
        drop(ready);
        undecided(history, id);
        return Ok(());
    }
    vfs::thread::sleep(Duration::from_micros(rng.below(500)));
    let ordered = ready.order();
    let snapshot = world.db.snapshot_after_reserved();
    committed(&mut history.lock(), id, ordered.ts(), Acknowledged::Buffered);
    vfs::thread::sleep(Duration::from_micros(rng.below(500)));
    if rng.chance(0.5) {
        let ts = ordered.ts();
        assert_eq!(ordered.finish(Durability::Buffered)?, ts);
    }
    let there = snapshot?.get(&world.journal, &xid)?;
    assert!(there.is_some(), "what was ordered before a snapshot is not seen");
    Ok(())
}

fn rollback(world: &World, history: &Shared, id: u64) -> Result<(), Error> {
    let result = world.db.rollback_prepared(&id.to_be_bytes());
    match &result {
        Ok(()) => drop(history.lock().prepared.remove(&id)),
        Err(Error::CommitOutcomeUnknown { .. }) => {
            history.lock().prepared.get_mut(&id).expect("it is there").stage = Stage::Unknown;
        }
        Err(_) => undecided(history, id),
    }
    result
}

fn committed(history: &mut History, id: u64, ts: base::CommitTs, acknowledged: Acknowledged) {
    let Prepared { writes, current_reads, .. } = history.prepared.remove(&id).expect("it is there");
    history.commits.push(Commit { id, ts, ranges: Vec::new(), writes, current_reads, acknowledged, prepared: true });
}

/// After a reopen, before the commits that are gone leave the history: what must be prepared is, with the locks of what it
/// wrote, and nothing else.
pub fn recovered(history: &mut History, world: &World, is_there: impl Fn(u64) -> bool) {
    let listed = world.db.prepared().expect("open");
    let mut listed: Vec<u64> =
        listed.iter().map(|p| u64::from_be_bytes(p.xid.as_slice().try_into().expect("a number"))).collect();
    let gone: Vec<Commit> = history.commits.extract_if(.., |c| c.prepared && !is_there(c.id)).collect();
    for Commit { id, writes, current_reads, .. } in gone {
        history.prepared.insert(id, Prepared { writes, current_reads, stage: Stage::Prepared });
    }
    history.prepared.retain(|id, prepared| {
        assert!(!is_there(*id), "{id} was never committed");
        let found = listed.iter().position(|other| other == id).map(|at| listed.swap_remove(at));
        assert!(found.is_some() || prepared.stage == Stage::Unknown, "{id} was prepared and is lost: {prepared:?}");
        prepared.stage = Stage::Prepared;
        // What it only read is not locked any more.
        let writes = &prepared.writes;
        let wrote = |(map, key, _): &(Map, Vec<u8>, Current)| writes.contains_key(&(*map, key.clone()));
        prepared.current_reads.retain(wrote);
        found.is_some()
    });
    assert!(listed.is_empty(), "prepared, and nobody knows: {listed:?}");
    for (id, prepared) in &history.prepared {
        for (map, key) in prepared.writes.keys().filter(|(map, _)| matches!(map, Map::Plain(_))) {
            let Some(Extra::Index(index)) = world.handle(*map) else { continue };
            let tx = world.db.begin().expect("open");
            let locked = tx.get_locked(&index, key, trefoil::Locking::SHARED.no_wait());
            assert!(
                matches!(locked, Err(Error::LockBusy { .. })),
                "{id} has no lock on {key:?} of {map:?}: {locked:?}"
            );
        }
    }
}
