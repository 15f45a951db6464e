//! Opening a database: from what lies on disk to the state after the last commit that must be there.
//!
//! 1. The manifest gives the allocator's state, each index's state and F, and the log's floor and durable mark.
//! 2. The catalog (index 0) is opened and its part of the log replayed completely (rule A26). Its final rows
//!    say which indexes exist. States of others are freed; an index without a state was created after the
//!    manifest and starts empty: all its records are above the floor.
//! 3. The other indexes' parts are replayed in chunks, commits with `ts <= F` skipped. A chunk is sorted by (key, ts), so
//!    that each leaf is visited once, and cut in two for two threads. Puts and deletes are keyed by (key, ts), so
//!    replaying one that is there already changes nothing (decision D3). Write-back and upkeep collect beside it: each key keeps the order of the log (rule P6).
//!    Not so a counter's, of which nothing is collected meanwhile (rule A21).
//! 4. A new life of the log begins: higher incarnation, new segment (rule A13). Then a checkpoint, so that a
//!    crash in the new life does not replay the old one again.
//!
//! A crash during recovery leaves the manifest and log as they were, and the next open starts over.
//! What each combination of files means stands in docs/RECOVERY.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{CommitTs, Fault, GcView, IndexId, Lsn, Result};
use index::{Batch, BatchBuilder, Reservation, Span};
use store::{Budget, Charge, Class, Funds, Run, RunMeta};

use crate::entry::IndexEntry;
use crate::quarantine::tolerating;
use crate::record::{self, Change, Decision};
use crate::refused::Refused;

/// Bytes of operations gathered before they are applied: an eighth of the budget, at most so many.
const CHUNK_BYTES_MAX: u64 = 256 << 20;
/// Memory of an operation beside its key and value.
const OPERATION_BYTES: usize = 40;
/// Operations that are worth a second thread. Fixed, like the number of threads, so that a simulated recovery does not
/// depend on the machine.
const SHARED_FROM: usize = 4096;

/// An index being recovered.
#[derive(Clone)]
pub struct Target {
    /// The open index.
    pub entry: Arc<IndexEntry>,
    /// Its F: commits at or below are in its state.
    pub skip: Lsn,
    /// Takes what cannot be applied because of damage. `None`: that is a fault, or sets a secondary index aside.
    pub refused: Option<Arc<Refused>>,
    /// What is replayed stays in memory, and within the budget.
    pub read_only: bool,
}

/// Opens a run file; the flag: one that cannot be read is a run of which every read fails.
pub type OpenRun<'a> = dyn Fn(&RunMeta, bool) -> Result<Run> + 'a;

/// What one commit did to one index.
enum Replayed {
    Batch(Batch),
    Run(Run),
}

/// An operation of a commit: which commit, and which of its operations.
#[derive(Clone, Copy)]
struct Place {
    commit: u32,
    operation: u32,
}

/// Applies commit records to open indexes, in log order per index.
pub struct Replayer<'a> {
    targets: &'a BTreeMap<IndexId, Target>,
    next_index: u32,
    open_run: &'a OpenRun<'a>,
    /// Called between chunks: drains what was attached, so that memory stays bounded.
    settle: &'a dyn Fn() -> Result<()>,
    pending: BTreeMap<IndexId, Vec<(CommitTs, Replayed)>>,
    pending_bytes: u64,
    /// Deleted by the commits gathered: listed together, before what they put.
    ranges: BTreeMap<IndexId, Vec<(CommitTs, Vec<Span>)>>,
    chunk: Charge,
    /// Operations taken so far.
    pub operations: u64,
    /// Run files that replayed records name, with their commits.
    pub runs: BTreeMap<u64, CommitTs>,
    /// One above the highest index number that a catalog row was ever written or removed for: an index that
    /// was created and dropped behind the manifest still has records in the log.
    pub next_catalog_id: u32,
}

impl<'a> Replayer<'a> {
    /// Replays into `targets`. Ids below `next_index` that are not among them were dropped; others are damage.
    pub fn new(
        targets: &'a BTreeMap<IndexId, Target>,
        next_index: u32,
        open_run: &'a OpenRun<'a>,
        settle: &'a dyn Fn() -> Result<()>,
        budget: &Budget,
    ) -> Self {
        Self {
            targets,
            next_index,
            open_run,
            settle,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            ranges: BTreeMap::new(),
            chunk: budget.charge(Class::Work, (budget.limit() / 8).min(CHUNK_BYTES_MAX)),
            operations: 0,
            runs: BTreeMap::new(),
            next_catalog_id: 0,
        }
    }

    /// Takes the commit record that ends at `end`.
    pub fn commit(&mut self, end: Lsn, payload: &[u8]) -> Result<()> {
        let mut unknown = None;
        let changes = record::decode(payload, end, |id| match self.targets.get(&id) {
            Some(target) => end > target.skip,
            None => {
                if id.0 >= self.next_index {
                    unknown = Some(id);
                }
                false
            }
        })?;
        if let Some(id) = unknown {
            return Err(Fault::corrupt("log", end.0, "index number", format!("below {}", self.next_index), id));
        }
        self.take(end, changes)
    }

    /// Takes the record, which ends at `end`, of a commit that deletes ranges.
    pub fn commit_ranged(&mut self, end: Lsn, payload: &[u8]) -> Result<()> {
        let mut unknown = None;
        let (ranges, changes) = record::decode_ranged(payload, end, |id| {
            if self.is_unknown(id) {
                unknown = Some(id);
            }
            self.targets.get(&id).is_some_and(|target| end > target.skip)
        })?;
        if let Some(id) = unknown {
            return Err(Fault::corrupt("log", end.0, "index number", format!("below {}", self.next_index), id));
        }
        for (id, spans) in ranges {
            if self.targets[&id].entry.index.as_ranged().is_none() {
                return Err(Fault::corrupt("log", end.0, "index of deleted ranges", "a plain one", id));
            }
            self.pending_bytes += spans.iter().map(|span| OPERATION_BYTES + span.low.len()).sum::<usize>() as u64;
            self.ranges.entry(id).or_default().push((end.as_commit_ts(), spans));
        }
        self.take(end, changes)
    }

    /// Takes what was prepared before and is committed by the record that ends at `end`: that is its timestamp (rule P6).
    pub fn changes(&mut self, end: Lsn, mut changes: Vec<(IndexId, Change)>) -> Result<()> {
        if let Some((id, _)) = changes.iter().find(|(id, _)| self.is_unknown(*id)) {
            return Err(Fault::corrupt("log", end.0, "index number", format!("below {}", self.next_index), id));
        }
        changes.retain(|(id, _)| self.targets.get(id).is_some_and(|target| end > target.skip));
        self.take(end, changes)
    }

    /// A commit whose prepare record is not there: a fault if an index needs it.
    pub fn check_not_needed(&self, end: Lsn, decision: &Decision) -> Result<()> {
        let needs = |id: &&IndexId| self.is_unknown(**id) || self.targets.get(id).is_some_and(|t| end > t.skip);
        match decision.indexes.iter().find(needs) {
            None => Ok(()),
            Some(id) => {
                let expected = format!("the prepare record that ends at {}, which index {id} needs", decision.prepare);
                Err(Fault::corrupt("log", end.0, "commit of a prepared transaction", expected, "none"))
            }
        }
    }

    fn is_unknown(&self, id: IndexId) -> bool {
        !self.targets.contains_key(&id) && id.0 >= self.next_index
    }

    fn take(&mut self, end: Lsn, changes: Vec<(IndexId, Change)>) -> Result<()> {
        for (id, change) in changes {
            let replayed = match change {
                Change::Inline(batch) => {
                    self.pending_bytes += (batch.bytes() + OPERATION_BYTES * batch.len()) as u64;
                    self.operations += batch.len() as u64;
                    if id == IndexId::CATALOG {
                        self.note_catalog_ids(&batch);
                    }
                    Replayed::Batch(batch)
                }
                Change::Run(meta) => {
                    self.runs.insert(meta.id, end.as_commit_ts());
                    self.operations += meta.entries;
                    // None, if it is damaged and its index can be made anew.
                    let target = &self.targets[&id];
                    let open = || Ok(Some((self.open_run)(&meta, target.refused.is_some())?));
                    match tolerating(&target.entry, open)? {
                        Some(run) => Replayed::Run(run),
                        None => continue,
                    }
                }
            };
            self.pending.entry(id).or_default().push((end.as_commit_ts(), replayed));
        }
        if self.pending_bytes >= self.chunk.bytes() { self.apply_gathered() } else { Ok(()) }
    }

    /// Applies what is gathered.
    pub fn apply_gathered(&mut self) -> Result<()> {
        self.pending_bytes = 0;
        for (id, ranges) in std::mem::take(&mut self.ranges) {
            let ranged = self.targets[&id].entry.index.as_ranged().expect("looked at when they were read");
            // What is put before one of them in the log is hidden by it all the same: its timestamp says so.
            ranged.replay_ranges(ranges);
        }
        for (id, commits) in std::mem::take(&mut self.pending) {
            replay_index(&self.targets[&id], commits)?;
        }
        (self.settle)()
    }

    /// The end of the log: attaches what was refused.
    pub fn finish(&mut self) -> Result<()> {
        self.apply_gathered()?;
        self.targets.values().for_each(Target::attach_refused);
        Ok(())
    }

    fn note_catalog_ids(&mut self, batch: &Batch) {
        for (key, _) in batch.iter() {
            if let Some(id) = key.get(1..5).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes) {
                self.next_catalog_id = self.next_catalog_id.max(id + 1);
            }
        }
    }
}

impl Target {
    /// Room for one operation. It was committed: whoever does more than read puts it in place, however large.
    fn reserve(&self, one: &Batch) -> Result<Reservation> {
        let (index, mut funds) = (&self.entry.index, Funds::default());
        loop {
            match index.reserve_from(one, &mut funds)? {
                Some(reservation) => return Ok(reservation),
                None if self.read_only => funds.wait()?,
                None => funds.wait_or_pass()?,
            }
        }
    }

    fn attach_refused(&self) {
        for (run, ts) in self.refused.iter().flat_map(|refused| refused.take()) {
            self.entry.index.attach(run, ts);
        }
    }
}

/// One index's part of a chunk. A run is attached behind all that is before it in the log and before all that is behind:
///
/// > Run 100 deletes K. Attached and drained before the put K@50 is replayed, it leaves nothing that its tombstone hides;
/// > the tombstone is collected, K@50 comes, K is alive.
fn replay_index(target: &Target, commits: Vec<(CommitTs, Replayed)>) -> Result<()> {
    let mut batches = Vec::new();
    for (ts, replayed) in commits {
        match replayed {
            Replayed::Batch(batch) => batches.push((ts, batch)),
            Replayed::Run(run) => {
                replay_batches(target, std::mem::take(&mut batches))?;
                target.attach_refused();
                target.entry.index.attach(run, ts);
            }
        }
    }
    replay_batches(target, batches)
}

/// Applies commits in the order of keys, those of one key in the order of the log (rule P6).
fn replay_batches(target: &Target, batches: Vec<(CommitTs, Batch)>) -> Result<()> {
    let key = |place: Place| batches[place.commit as usize].1.key(place.operation as usize);
    let mut places = Vec::with_capacity(batches.iter().map(|(_, batch)| batch.len()).sum());
    for (commit, (_, batch)) in batches.iter().enumerate() {
        places.extend((0..batch.len()).map(|operation| Place { commit: commit as u32, operation: operation as u32 }));
    }
    // Commits are in the order of the log already.
    places.sort_unstable_by(|a, b| key(*a).cmp(key(*b)).then(a.commit.cmp(&b.commit)));
    if places.len() < SHARED_FROM {
        return replay_places(target, &batches, &places);
    }
    // All versions of a key are one thread's.
    let middle = places[places.len() / 2];
    let high = places.split_off(places.partition_point(|place| key(*place) < key(middle)));
    let batches = Arc::new(batches);
    let (others, other_target) = (batches.clone(), target.clone());
    let work = move || replay_places(&other_target, &others, &high);
    let other = vfs::thread::spawn("trefoil-replay", work).map_err(|e| Fault::io("start", "a thread", &e))?;
    let mine = replay_places(target, &batches, &places);
    other.join().expect("replay does not panic").and(mine)
}

fn replay_places(target: &Target, batches: &[(CommitTs, Batch)], places: &[Place]) -> Result<()> {
    places.iter().try_for_each(|place| replay_one(target, batches, *place))
}

/// A secondary index that turns out to be damaged is left where it is: it will be quarantined.
fn replay_one(target: &Target, batches: &[(CommitTs, Batch)], place: Place) -> Result<()> {
    let (entry, index) = (&target.entry, &target.entry.index);
    if entry.is_noted() {
        return Ok(());
    }
    let (ts, batch) = &batches[place.commit as usize];
    let (key, op) = (batch.key(place.operation as usize), batch.op(place.operation as usize));
    let refused = target.refused.as_deref();
    if let Some(refused) = refused.filter(|refused| refused.has(key)) {
        return refused.keep(key, op, *ts);
    }
    let mut one = BatchBuilder::new();
    one.push(key, op);
    let one = one.finish();
    let applied = tolerating(entry, || {
        match target.reserve(&one)? {
            Reservation::Direct(reserved) => index.apply(&one, reserved, *ts, &GcView::keep_all()),
            Reservation::TooCold => {
                let run = run_of(&one);
                let charge = refused.map(|refused| refused.charge(one.bytes(), target.read_only)).transpose()?;
                index.attach(charge.map_or(run.clone(), |charge| run.with_charge(charge)), *ts);
            }
        }
        Ok(())
    });
    match (applied, refused) {
        (Err(fault), Some(refused)) => {
            entry.set_damaged(fault.into_damage()?);
            refused.keep(key, op, *ts)
        }
        (applied, _) => applied,
    }
}

/// The same operations as a run in memory.
pub fn run_of(batch: &Batch) -> Run {
    Run::from_sorted(batch.iter().map(|(key, op)| match op {
        index::Op::Put(value) => (key, Some(value)),
        index::Op::Delete => (key, None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use index::Op;

    /// Operations of an index that nobody knows are those of a dropped one if it can have existed, damage otherwise.
    #[test]
    fn a26_operations_of_an_index_that_never_was_are_damage() {
        let (targets, open_run) = (BTreeMap::new(), |_: &RunMeta, _: bool| unreachable!("no run is named"));
        let mut replayer = Replayer::new(&targets, 5, &open_run, &|| Ok(()), &Budget::new(64 << 20));
        let mut batch = BatchBuilder::new();
        batch.push(b"k", Op::Put(b"v"));
        let batch = batch.finish();
        let mut replay = |id| {
            let mut payload = Vec::new();
            record::begin(&mut payload, 1);
            record::put_inline(&mut payload, IndexId(id), &batch);
            replayer.commit(Lsn(64), &payload)
        };
        assert!(replay(4).is_ok());
        assert!(matches!(replay(5), Err(Fault::Corrupt { .. })));
    }
}
