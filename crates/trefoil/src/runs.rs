//! Which run files are still needed.
//!
//! A run file is written and synced before the log record that names it (rule A14). It is needed while its
//! transaction may still commit, while a log record that recovery could replay names it, and while a state in
//! the manifest names it. A checkpoint removes the others: those whose commit lies at or below the log floor
//! and which no published state names. Files that nothing names after recovery are removed there.

use std::collections::BTreeMap;

use base::{CommitTs, Lsn, Result};
use vfs::sync::Mutex;

use crate::layout::Layout;

/// Run files on disk, by number, with the commit that named them (`None` while it is under way).
#[derive(Debug, Default)]
pub struct RunRegistry(Mutex<BTreeMap<u64, Option<CommitTs>>>);

impl RunRegistry {
    /// A file is being written.
    pub fn begun(&self, id: u64) {
        self.0.lock().insert(id, None);
    }

    /// A durable file is named by the commit at `ts`.
    pub fn named(&self, id: u64, ts: CommitTs) {
        self.0.lock().insert(id, Some(ts));
    }

    /// True unless nobody ever named the file, or it was removed: a file that is there is known.
    pub fn knows(&self, id: u64) -> bool {
        self.0.lock().contains_key(&id)
    }

    /// The transaction failed, or the build is over.
    pub fn abandoned(&self, layout: &Layout, id: u64) -> Result<()> {
        let removed = store::run::remove(&*layout.vfs, &layout.runs(), id);
        self.0.lock().remove(&id);
        removed
    }

    /// Its file is gone, or never was.
    pub fn forget(&self, id: u64) {
        self.0.lock().remove(&id);
    }

    /// Removes what neither the log from `floor` on nor a published state names.
    pub fn remove_unnamed(&self, layout: &Layout, floor: Lsn, named: &[u64]) -> Result<()> {
        let gone: Vec<u64> = {
            let runs = self.0.lock();
            let old = |ts: &Option<CommitTs>| ts.is_some_and(|ts| ts.as_lsn() <= floor);
            runs.iter().filter(|(id, ts)| old(ts) && !named.contains(id)).map(|(id, _)| *id).collect()
        };
        gone.into_iter().try_for_each(|id| self.abandoned(layout, id))
    }

    /// Of a database that is only read: all that are there are let be.
    pub fn as_found(&self, layout: &Layout) -> Result<()> {
        let ids = store::run::list(&*layout.vfs, &layout.runs())?;
        ids.into_iter().for_each(|id| self.named(id, CommitTs::ZERO));
        Ok(())
    }

    /// After recovery: removes files that neither a state nor a replayed record named; `keep` holds those
    /// that were, each with its commit.
    pub fn after_recovery(&self, layout: &Layout, keep: &BTreeMap<u64, CommitTs>) -> Result<()> {
        for id in store::run::list(&*layout.vfs, &layout.runs())? {
            match keep.get(&id) {
                Some(ts) => self.named(id, *ts),
                None => store::run::remove(&*layout.vfs, &layout.runs(), id)?,
            }
        }
        Ok(())
    }
}
