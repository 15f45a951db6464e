//! The prepared transactions of a database, and what a checkpoint keeps for them (rule A7).
//!
//! A set is in one of three states: being prepared (its record is in the log and not durable yet: nobody is told of it),
//! prepared, and being decided (somebody is about to commit it or roll it back).
//!
//! Two things outlive the state in which they are needed. The log from the prepare record on, until the set is decided and
//! the commit lies at or below F of every structure of an index that it touched, of which rows that are made anew have two: [`Registry::kept`] says so to each checkpoint. And the
//! files of a set whose shares are all run files, which the manifest names in place of the log.
//!
//! Order: a set is registered before its prepare record is marked applied, and leaves `sets` for `decided` before its
//! commit record is. A checkpoint reads the applied prefix first: what it does not find here lies above that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::bytes::printable;
use base::{CommitTs, IndexId, Lsn, TxnId};
use index::Batch;
use store::RunMeta;
use store::run::Run;
use vfs::sync::Mutex;

use crate::entry::IndexEntry;
use crate::error::{Error, Result};
use crate::manifest::SavedSet;
use crate::transaction::Held;

/// What never changes about a prepared transaction.
#[derive(Debug)]
pub struct Brief {
    /// Its name.
    pub xid: Vec<u8>,
    /// Its number in this life.
    pub transaction: TxnId,
    /// When it was prepared, since 1970.
    pub since: Duration,
    /// Where its prepare record begins.
    pub start: Lsn,
    /// And ends: its identity in the log.
    pub end: Lsn,
    /// Keys that it writes.
    pub writes: u64,
    /// What the background gets to write for it.
    pub bytes: u64,
    /// Bytes of the record that will decide it: the log keeps space for them (P4).
    pub decision_bytes: usize,
}

/// One index's share of a prepared set.
#[derive(Clone)]
pub struct SetShare {
    /// The index.
    pub entry: Arc<IndexEntry>,
    /// Where the operations are.
    pub form: Form,
    /// Its file has only deletes, as far as known.
    pub only_deletes: bool,
    /// Keys and values in its file, in the life that wrote it.
    pub content_bytes: Option<u64>,
}

/// Where operations are.
#[derive(Clone)]
pub enum Form {
    /// In memory, and in the prepare record.
    Inline(Arc<Batch>),
    /// In a run file, durable.
    File(RunMeta),
}

impl SetShare {
    /// In a file that was just written.
    pub fn of_file(entry: Arc<IndexEntry>, run: &Run, meta: RunMeta) -> Self {
        let (only_deletes, content_bytes) = (run.has_only_deletes(), Some(run.content_bytes()));
        Self { entry, form: Form::File(meta), only_deletes, content_bytes }
    }

    fn file(&self) -> Option<(IndexId, RunMeta)> {
        match &self.form {
            Form::Inline(_) => None,
            Form::File(meta) => Some((self.entry.id(), meta.clone())),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Preparing,
    Prepared,
    Deciding,
}

struct Set {
    brief: Arc<Brief>,
    shares: Vec<SetShare>,
    state: State,
    /// None in a database that is only read.
    held: Option<Held>,
}

/// A set that was committed, while an index that it touched may need it again.
pub struct Decided {
    /// What is known of it.
    pub brief: Arc<Brief>,
    /// Its commit.
    pub ts: CommitTs,
    /// The indexes it changed.
    pub indexes: Vec<IndexId>,
    /// Its run files, if the manifest can name the set.
    pub files: Option<Vec<(IndexId, RunMeta)>>,
}

#[derive(Default)]
struct Inner {
    /// By name; none while the prepare record is being written.
    sets: BTreeMap<Vec<u8>, Option<Set>>,
    decided: Vec<Decided>,
}

/// The prepared transactions of a database.
#[derive(Default)]
pub struct Registry(Mutex<Inner>);

/// What a checkpoint keeps for prepared transactions.
pub struct Kept {
    /// The log from here on.
    pub floor: Lsn,
    /// What the manifest names.
    pub sets: Vec<SavedSet>,
}

impl Registry {
    /// Takes a name.
    pub fn claim(&self, xid: &[u8]) -> Result<()> {
        let mut inner = self.0.lock();
        if inner.sets.contains_key(xid) {
            return Err(Error::AlreadyExists { kind: "prepared transaction", name: printable(xid) });
        }
        inner.sets.insert(xid.to_vec(), None);
        Ok(())
    }

    /// Gives a name back, and what was registered under it.
    pub fn withdraw(&self, xid: &[u8]) -> Option<Held> {
        self.0.lock().sets.remove(xid).flatten().and_then(|set| set.held)
    }

    /// Registers a set under its name: its record is in the log, and is not marked applied yet.
    pub fn register(&self, brief: Brief, shares: Vec<SetShare>, held: Option<Held>, durable: bool) {
        let state = if durable { State::Prepared } else { State::Preparing };
        let set = Set { brief: Arc::new(brief), shares, state, held };
        self.0.lock().sets.insert(set.brief.xid.clone(), Some(set));
    }

    /// Its record is durable: from now on it is told of.
    pub fn durable(&self, xid: &[u8]) {
        if let Some(Some(set)) = self.0.lock().sets.get_mut(xid) {
            set.state = State::Prepared;
        }
    }

    /// What is prepared, by name.
    pub fn list(&self) -> Vec<Arc<Brief>> {
        let inner = self.0.lock();
        let told = inner.sets.values().flatten().filter(|set| set.state != State::Preparing);
        told.map(|set| set.brief.clone()).collect()
    }

    /// From now on it is the caller's to decide; [`Registry::undecide`] gives it back.
    pub fn decide(&self, xid: &[u8]) -> Result<(Arc<Brief>, Vec<SetShare>)> {
        let mut inner = self.0.lock();
        let set = inner.sets.get_mut(xid).and_then(Option::as_mut).filter(|set| set.state != State::Preparing);
        let set = set.ok_or_else(|| Error::NotFound { kind: "prepared transaction", name: printable(xid) })?;
        if set.state == State::Deciding {
            let why = format!("the prepared transaction {} is being committed or rolled back already", printable(xid));
            return Err(Error::InvalidArgument(why));
        }
        set.state = State::Deciding;
        Ok((set.brief.clone(), set.shares.clone()))
    }

    /// It was not decided.
    pub fn undecide(&self, xid: &[u8]) {
        self.durable(xid);
    }

    /// It is committed at `ts` and applied; its record is not marked so yet.
    pub fn committed(&self, xid: &[u8], ts: CommitTs) -> Option<Held> {
        let mut inner = self.0.lock();
        let set = inner.sets.remove(xid).flatten().expect("who decides has the set");
        let indexes = set.shares.iter().map(|share| share.entry.id()).collect();
        let files = set.shares.iter().map(SetShare::file).collect();
        inner.decided.push(Decided { brief: set.brief, ts, indexes, files });
        set.held
    }

    /// Sets that were committed in an earlier life, and replayed.
    pub fn were_committed(&self, sets: Vec<Decided>) {
        self.0.lock().decided.extend(sets);
    }

    /// A prepared transaction that keeps definitions of this table, or the plain index of this number, as they are.
    pub fn keeper(&self, id: IndexId) -> Option<String> {
        let inner = self.0.lock();
        let keeps = |set: &&Set| {
            set.held.as_ref().is_some_and(|held| held.keeps(id)) || set.shares.iter().any(|s| s.entry.id() == id)
        };
        inner.sets.values().flatten().find(keeps).map(|set| printable(&set.brief.xid))
    }

    /// Bytes that come into the indexes once they are committed.
    pub fn owed_bytes(&self) -> u64 {
        let inner = self.0.lock();
        let shares = inner.sets.values().flatten().flat_map(|set| &set.shares);
        let bytes_of = |form: &Form| match form {
            Form::Inline(batch) => batch.bytes() as u64,
            Form::File(meta) => meta.bytes,
        };
        shares.map(|share| bytes_of(&share.form)).sum()
    }

    /// What a checkpoint keeps: `skips` has the F of each structure, with the index whose operations it takes.
    pub fn kept(&self, skips: &[(IndexId, Lsn)]) -> Kept {
        let mut kept = Kept { floor: Lsn::MAX, sets: Vec::new() };
        let inner = self.0.lock();
        for set in inner.sets.values().flatten() {
            kept.add(&set.brief, set.shares.iter().map(SetShare::file).collect());
        }
        for decided in inner.decided.iter().filter(|decided| decided.is_needed(skips)) {
            kept.add(&decided.brief, decided.files.clone());
        }
        kept
    }

    /// The checkpoint is durable: of decided sets, those are forgotten that none needs any more. Not before: the next one may be of an
    /// older F.
    pub fn forget_unneeded(&self, skips: &[(IndexId, Lsn)]) {
        self.0.lock().decided.retain(|decided| decided.is_needed(skips));
    }

    /// Sets with operations in memory that were prepared before `before`.
    pub fn old(&self, before: Lsn) -> Vec<(Arc<Brief>, Vec<SetShare>)> {
        let inner = self.0.lock();
        let is_old = |set: &&Set| {
            let inline = set.shares.iter().any(|share| matches!(share.form, Form::Inline(_)));
            set.state == State::Prepared && set.brief.start < before && inline
        };
        inner.sets.values().flatten().filter(is_old).map(|set| (set.brief.clone(), set.shares.clone())).collect()
    }

    /// The operations of a set are in run files now, unless somebody decides it meanwhile: then false.
    pub fn rewritten(&self, brief: &Brief, shares: Vec<SetShare>) -> bool {
        let mut inner = self.0.lock();
        let set = inner.sets.get_mut(&brief.xid).and_then(Option::as_mut);
        let Some(set) = set.filter(|set| set.brief.end == brief.end && set.state == State::Prepared) else {
            return false;
        };
        set.shares = shares;
        if let Some(held) = &mut set.held {
            held.keep_keys();
        }
        true
    }

    /// The database goes away: what is prepared is found again.
    pub fn take_all(&self) -> Vec<Held> {
        let sets = std::mem::take(&mut self.0.lock().sets);
        sets.into_values().flatten().filter_map(|set| set.held).collect()
    }
}

impl Decided {
    fn is_needed(&self, skips: &[(IndexId, Lsn)]) -> bool {
        let needs = |id: &IndexId| skips.iter().any(|(other, skip)| other == id && *skip < self.ts.as_lsn());
        self.indexes.iter().any(needs)
    }
}

impl Kept {
    fn add(&mut self, brief: &Brief, files: Option<Vec<(IndexId, RunMeta)>>) {
        match files {
            Some(shares) => {
                let since_ms = brief.since.as_millis() as u64;
                self.sets.push(SavedSet { prepare: brief.end, xid: brief.xid.clone(), since_ms, shares });
            }
            None => self.floor = self.floor.min(brief.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided() -> Decided {
        let brief = Brief {
            xid: b"x".to_vec(),
            transaction: TxnId::ZERO,
            since: Duration::ZERO,
            start: Lsn(700),
            end: Lsn(800),
            writes: 1,
            bytes: 1,
            decision_bytes: 1,
        };
        Decided { brief: Arc::new(brief), ts: CommitTs(950), indexes: vec![IndexId(5)], files: None }
    }

    /// Rows that are made anew are in two structures, and either may be found with the next manifest: what was committed stays while
    /// one of them needs it.
    #[test]
    fn a7_a_set_stays_while_either_structure_of_its_rows_needs_it() {
        let registry = Registry::default();
        registry.were_committed(vec![decided()]);
        let floor = |skips: &[u64]| {
            let skips: Vec<_> = skips.iter().map(|skip| (IndexId(5), Lsn(*skip))).collect();
            registry.kept(&skips).floor
        };
        assert_eq!(floor(&[1000, 900]), Lsn(700));
        assert_eq!(floor(&[1000, 950]), Lsn::MAX);
    }

    /// What a checkpoint does without that was not published the next one may need: it may be of an older F. Guard: sets are forgotten once it is durable.
    #[test]
    fn a7_a_set_is_forgotten_once_a_checkpoint_without_it_is_durable() {
        let registry = Registry::default();
        registry.were_committed(vec![decided()]);
        let floor = |skip: u64| registry.kept(&[(IndexId(5), Lsn(skip))]).floor;
        assert_eq!(floor(950), Lsn::MAX);
        assert_eq!(floor(900), Lsn(700), "that one was not published");
        registry.forget_unneeded(&[(IndexId(5), Lsn(950))]);
        assert_eq!(floor(900), Lsn::MAX);
    }
}
