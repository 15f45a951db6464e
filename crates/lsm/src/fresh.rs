//! Fresh puts against what lies below them, for `verify` [A15]: the next older version of one, wherever it lies, is a delete, or there is none
//! ([`collect`](crate::collect)). A wrong mark is damage that nobody sees until a delete takes the put with it, and what lay below is back.
//!
//! 1. All sources of one list are gone through side by side, key by key, and what stands wrong there is noted.
//! 2. Of these, what stands wrong in a second list, too, does so.
//!
//! Schedule that asks for the second: a list is taken; a delete of K is attached; a fresh put of K comes into the memtable that the list has. In the list
//! the put stands on what the delete deleted. A list that is taken behind the look at the put has the delete: who put it waited for that.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use base::bytes::printable;
use base::{CommitTs, Corruption, Fault, Result};
use index::expiry::has_expired;
use index::{ReadAt, VerifyReport};

use crate::collect::Says;
use crate::input::Input;
use crate::lsm::{Core, Sources};
use crate::writer::NewValue;

/// A fresh put, and the value that it stands on.
type Wrong = (Vec<u8>, CommitTs, CommitTs);

impl Core {
    /// Reads everything once more. What cannot be read was reported before, and is no reason to doubt what is left.
    pub(crate) fn verify_fresh(&self, report: &mut VerifyReport) -> Result<()> {
        // While old entries come late, the delete below a fresh put may be on its way.
        let is_late = self.late.load(Ordering::Acquire) != u64::MAX;
        if !self.env.options.single_deletes || is_late {
            return Ok(());
        }
        let sources = self.sources();
        vfs::thread::point("lsm.fresh_listed");
        let suspects = self.standing_wrong(&sources)?;
        drop(sources);
        if suspects.is_empty() {
            return Ok(());
        }
        let suspects: BTreeSet<_> = suspects.into_iter().map(|(key, ts, _)| (key, ts)).collect();
        // Whoever applies now is waited for: his list is not newer than this one.
        drop(self.sources.write());
        for (key, ts, below) in self.standing_wrong(&self.sources())? {
            if suspects.contains(&(key.clone(), ts)) {
                let said = format!("a delete, or nothing, below the fresh put at {ts}");
                let found = format!("a value at {below}");
                report.add(|| Corruption::of_index(self.env.id, printable(&key), "fresh put", said, found));
            }
        }
        Ok(())
    }

    /// Step 1. As far as everything can be read: a version that is missing may be the delete.
    fn standing_wrong(&self, sources: &Sources) -> Result<Vec<Wrong>> {
        let mut wrong = Vec::new();
        match self.look_at_all(sources, &mut wrong) {
            Ok(()) | Err(Fault::Corrupt(_)) => Ok(wrong),
            Err(fault) => Err(fault),
        }
    }

    fn look_at_all(&self, sources: &Sources, wrong: &mut Vec<Wrong>) -> Result<()> {
        let mut inputs: Vec<Input> = sources.memtables().map(|table| Input::memtable(table.clone())).collect();
        for attached in &sources.attached {
            inputs.push(Input::attached(attached)?);
        }
        for strand in &sources.strands {
            inputs.push(Input::runs(&self.env, strand.runs.clone())?);
        }
        let (mut key, mut versions) = (Vec::new(), Vec::new());
        loop {
            let standing = inputs.iter().filter(|input| input.stands()).map(Input::key);
            let Some(least) = standing.min() else { return Ok(()) };
            key.clear();
            key.extend_from_slice(least);
            versions.clear();
            for input in &mut inputs {
                while input.stands() && input.key() == key.as_slice() {
                    let ts = input.ts();
                    versions.push((ts, input.with_value(&self.env, |value, is_fresh| Ok(says(&value, is_fresh)))?));
                    input.advance(&self.env)?;
                }
            }
            versions.sort_by_key(|(ts, _)| std::cmp::Reverse(*ts));
            // Whoever put it saw nothing of what had expired.
            let expired = self.cut(ReadAt::Newest);
            for (i, (ts, _)) in versions.iter().enumerate().filter(|(_, (_, says))| *says == Says::Fresh) {
                // Copies of it, or of the one below, say the same.
                let below = versions[i..]
                    .iter()
                    .find(|(older, _)| older < ts)
                    .filter(|(older, _)| !has_expired(*older, expired));
                if let Some((older, _)) = below.filter(|(_, says)| *says != Says::Delete) {
                    wrong.push((key.clone(), *ts, *older));
                }
            }
        }
    }
}

fn says(value: &NewValue<'_>, is_fresh: bool) -> Says {
    match value {
        NewValue::Delete => Says::Delete,
        _ if is_fresh => Says::Fresh,
        _ => Says::Put,
    }
}
