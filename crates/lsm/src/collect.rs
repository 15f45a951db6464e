//! What is kept of one key's versions: the interval rule (decision D4) and the rule of single deletes [A15], as functions of values.
//!
//! # Single deletes
//!
//! A put is *fresh* if its writer knew that nothing of its key was alive. A delete and the fresh put that it deletes go together, at any level, if
//! nobody may see the put: what is below them is dead as it is. Any other delete is a tombstone that stays over whatever may be older.
//!
//! Invariant: *the next older version of a fresh put, wherever it lies, is a delete, or there is none.* It holds when the put is applied. Each step keeps
//! it:
//!
//! - A fresh put and its delete go: what was above the delete has now below it what was below the put, which is dead.
//! - A put goes since nobody may see it: no fresh put stands on a put.
//! - A delete goes, superseded: a fresh put may stand on it. Schedule: put@10, delete@15, fresh put@20. Below put@20 the delete is as good as gone,
//!   nobody sees it, and goes; delete@30 comes, takes put@20 with it, and put@10 is back. So it goes only if nothing is below it, or if the one above it is known:
//!   then that one is plain from now on ([`Fate::Plain`]).
//!
//! Where no put ever is fresh ([`IndexOptions::single_deletes`]) a superseded delete goes at once. *The next* is known if nothing else has a version between the two, nor a copy of either ([`Around::is_apart`]): behind a replay there may be two of a
//! version, of which the one that comes from the log is plain. Of copies that meet it does not matter which is kept. Where it is not known deletes stay a little longer.
//!
//! # What has expired
//!
//! Nobody sees anything at or below the cut of all readers ([`index::expiry`]), nor will anybody: all of that goes, and what is above is judged as if nothing
//! were below. In the invariant a version at or below the cut is as good as none: a fresh put may stand on it.

use std::sync::Arc;

use base::{CommitTs, GcView};
use index::IndexOptions;
use index::expiry::has_expired;

use crate::run::Run;
use crate::strand::{Strand, strands};

/// What a version says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    Delete,
    Put,
    /// A put of a key of which nothing was alive.
    Fresh,
}

/// What becomes of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    /// A fresh put stays, as any other put.
    Plain,
    Goes,
}

/// What is known of the versions of a key that are not judged.
pub(crate) trait Around {
    /// Somebody may see a version, the next newer one being `newer`.
    fn keeps(&self, ts: CommitTs, newer: CommitTs) -> bool;
    /// Nothing else has, or will have, a version from `older` up to `newer`.
    fn is_apart(&self, older: CommitTs, newer: CommitTs) -> bool;
    /// Something else may have an older version.
    fn may_have_older(&self, ts: CommitTs) -> bool;
}

/// Judges versions of one key, newest first, each timestamp once.
pub(crate) fn judge(around: &impl Around, versions: &[(CommitTs, Says)], fates: &mut Vec<Fate>) {
    fates.clear();
    fates.resize(versions.len(), Fate::Stays);
    // Mostly of one version.
    if versions.windows(2).all(|pair| around.keeps(pair[1].0, pair[0].0)) {
        return;
    }
    // Places of those that stay so far, the newest of them last.
    let mut staying: Vec<usize> = Vec::with_capacity(versions.len());
    for i in (0..versions.len()).rev() {
        let (ts, mut says) = versions[i];
        let mut stays = true;
        while let Some(&last) = staying.last()
            && !around.keeps(versions[last].0, ts)
        {
            let (older, below) = (versions[last].0, versions[last].1);
            let is_fresh = below == Says::Fresh && fates[last] == Fate::Stays;
            match below {
                Says::Put | Says::Fresh if says == Says::Delete && is_fresh && around.is_apart(older, ts) => {
                    stays = false;
                }
                Says::Put | Says::Fresh => {}
                Says::Delete if staying.len() == 1 && !around.may_have_older(older) => {}
                Says::Delete if around.is_apart(older, ts) => {
                    if says == Says::Fresh {
                        (says, fates[i]) = (Says::Put, Fate::Plain);
                    }
                }
                Says::Delete => break,
            }
            fates[last] = Fate::Goes;
            staying.pop();
            if !stays {
                break;
            }
        }
        if stays {
            staying.push(i);
        } else {
            fates[i] = Fate::Goes;
        }
    }
}

/// What a pass does not see.
#[derive(Debug, Clone)]
pub(crate) struct Elsewhere {
    /// Nothing at or below this is in memory, or may arrive.
    below: CommitTs,
    /// Runs, by strands: of each one run at most may have a key, and it is asked for every pair that goes.
    strands: Vec<Strand>,
}

impl Elsewhere {
    pub fn new(below: CommitTs, runs: &[Arc<Run>]) -> Self {
        Self { below, strands: strands(runs) }
    }

    /// Runs that may have versions of the key at or below a timestamp.
    fn runs_of(&self, key: &[u8], ts: CommitTs) -> impl Iterator<Item = &Arc<Run>> {
        self.strands.iter().filter_map(|strand| strand.run_of(key)).filter(move |run| run.info.oldest <= ts)
    }

    /// False if whatever is older than this of the key is in the pass, or has expired.
    fn may_have_older(&self, key: &[u8], ts: CommitTs, expired: CommitTs) -> bool {
        ts > self.below || self.runs_of(key, ts).any(|run| !has_expired(run.info.newest, expired))
    }

    /// True if all of the key from one timestamp to the other is in the pass.
    fn is_apart(&self, key: &[u8], older: CommitTs, newer: CommitTs) -> bool {
        newer <= self.below && !self.runs_of(key, newer).any(|run| run.info.newest >= older)
    }
}

/// What may be collected in one pass.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    view: GcView,
    /// All at or below has expired for everybody.
    expired: CommitTs,
    elsewhere: Elsewhere,
    /// Puts may be fresh.
    single_deletes: bool,
}

/// One key in it.
struct OfKey<'a>(&'a Collection, &'a [u8]);

impl Around for OfKey<'_> {
    fn keeps(&self, ts: CommitTs, newer: CommitTs) -> bool {
        self.0.view.keeps(ts, Some(newer))
    }

    fn is_apart(&self, older: CommitTs, newer: CommitTs) -> bool {
        !self.0.single_deletes || self.0.elsewhere.is_apart(self.1, older, newer)
    }

    fn may_have_older(&self, ts: CommitTs) -> bool {
        self.0.may_have_older(self.1, ts)
    }
}

impl Collection {
    /// Drops superseded versions by `view`, and tombstones at or below its floor, of which nothing older is `elsewhere`: the
    /// pass sees all that is older.
    pub fn new(view: GcView, elsewhere: Elsewhere) -> Self {
        Self { view, expired: CommitTs::ZERO, elsewhere, single_deletes: true }
    }

    /// Drops what has expired for all readers, too: what lies at or below `cut`.
    pub fn expiring(self, cut: CommitTs) -> Self {
        Self { expired: cut, ..self }
    }

    /// What lies at or below has expired for all readers.
    pub fn expired(&self) -> CommitTs {
        self.expired
    }

    /// False if whatever is older than this of the key is in the pass, or has expired.
    fn may_have_older(&self, key: &[u8], ts: CommitTs) -> bool {
        self.elsewhere.may_have_older(key, ts, self.expired)
    }

    /// Of an index whose puts never are fresh no superseded delete is kept for their sake.
    pub fn of(self, options: &IndexOptions) -> Self {
        Self { single_deletes: options.single_deletes, ..self }
    }

    /// Drops nothing.
    pub fn nothing() -> Self {
        Self::new(GcView::keep_all(), Elsewhere::new(CommitTs::ZERO, &[]))
    }

    /// What becomes of a key's versions; they come newest first, each timestamp once.
    ///
    /// 1. What has expired goes.
    /// 2. What nobody may see goes, as far as the rule of single deletes lets it ([`judge`]).
    /// 3. Then the oldest go while they are tombstones: over nothing older they are the same as no entry.
    pub fn judge(&self, key: &[u8], versions: &[(CommitTs, Says)], fates: &mut Vec<Fate>) {
        let all = versions.len();
        let alive = versions.partition_point(|(ts, _)| !has_expired(*ts, self.expired));
        let versions = versions.split_at(alive).0;
        judge(&OfKey(self, key), versions, fates);
        for (fate, (ts, says)) in fates.iter_mut().zip(versions).rev() {
            if *fate == Fate::Goes {
                continue;
            }
            if *says != Says::Delete || *ts > self.view.floor() || self.may_have_older(key, *ts) {
                break;
            }
            *fate = Fate::Goes;
        }
        fates.resize(all, Fate::Goes);
    }
}

#[cfg(test)]
mod tests;
