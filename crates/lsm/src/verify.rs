//! Checks of everything; what the last checkpoint reaches; taking an index apart.

use std::sync::Arc;

use base::bytes::printable;
use base::{CommitTs, Corruption, Fault, Result};
use index::{VerifyReport, VisitBlock};
use store::{BlockKind, BlockRef};

use crate::block::Value;
use crate::lsm::Core;
use crate::run::Run;
use crate::slot::Slot;

impl Core {
    /// Reads every block and holds it against what names it.
    pub(crate) fn verify(&self) -> Result<VerifyReport> {
        let sources = self.sources();
        let mut report = VerifyReport::default();
        for table in sources.memtables() {
            report.nodes += 1;
            report.entries += table.entries();
        }
        for attached in &sources.attached {
            if let Err(fault) = attached.run.verify() {
                report.note(fault.of_index(self.env.id))?;
            }
            report.entries += attached.run.len();
        }
        for run in &sources.runs {
            self.verify_run(run, &mut report)?;
        }
        Ok(report)
    }

    fn verify_run(&self, run: &Run, report: &mut VerifyReport) -> Result<()> {
        let index = match run.index(&self.env) {
            Ok(index) => index,
            Err(fault) => return report.note(fault.of_index(self.env.id)),
        };
        let mut check = RunCheck { core: self, run, last: None, sums: (0, 0, 0), is_whole: true };
        for (i, slot) in index.slots.iter().enumerate() {
            report.nodes += 1;
            check.slot(slot, index.slots.get(i + 1), report)?;
        }
        let (entries, live, deleted) = check.sums;
        report.entries += entries;
        let info = &run.info;
        if check.is_whole && (entries, live, deleted) != (info.entries, info.live, info.deleted) {
            let said = format!("{} versions, {} live keys, {} deleted", info.entries, info.live, info.deleted);
            let found = format!("{entries} versions, {live} live keys, {deleted} deleted");
            report.add(|| Corruption::of_index(self.env.id, run.keys(), "counts of a run", said, found));
        }
        Ok(())
    }

    /// Shows every block that the last checkpoint's runs name, and returns what is wrong with them.
    pub(crate) fn reach(&self, visit: &mut VisitBlock<'_>) -> Result<Vec<Corruption>> {
        let _no_checkpoint = self.checkpointing.lock();
        let published = self.published.lock().clone();
        let mut problems = Vec::new();
        for run in &published {
            let keys = || run.keys();
            run.index_at().iter().for_each(|at| visit(*at, &|| format!("the index of run {}", keys())));
            // As a reopen would read it.
            let named = match run.read_index(&self.env).map_err(|fault| fault.of_index(self.env.id)) {
                Ok(named) => named,
                Err(fault) => {
                    problems.push(*fault.into_damage()?);
                    continue;
                }
            };
            for slot in &named {
                visit(slot.block, &|| format!("data from {}", printable(&slot.key)));
                slot.beside.iter().for_each(|at| visit(*at, &|| format!("a value of {}", printable(&slot.key))));
            }
        }
        Ok(problems)
    }

    /// Frees every block. What cannot be read is left where it is.
    pub(crate) fn destroy(&self) -> Result<()> {
        self.abandon();
        let sources = self.sources();
        let published = self.published.lock().clone();
        let mut damage = None;
        for run in sources.runs.iter().chain(&published) {
            match run.index(&self.env) {
                Ok(_) => {}
                Err(fault @ (Fault::Corrupt(_) | Fault::Io { .. })) => drop(damage.get_or_insert(fault)),
                Err(fault) => return Err(fault),
            }
        }
        let fresh = self.memtable();
        self.update(|sources| {
            sources.active = fresh;
            sources.sealed.clear();
            sources.attached.clear();
            sources.runs.clear();
        });
        self.unpublish_all();
        damage.map_or(Ok(()), Err)
    }
}

/// A run on its way through `verify`.
struct RunCheck<'a> {
    core: &'a Core,
    run: &'a Run,
    /// The version before.
    last: Option<(Vec<u8>, CommitTs)>,
    /// Versions, live keys, deleted keys.
    sums: (u64, u64, u64),
    /// Every block was read.
    is_whole: bool,
}

impl RunCheck<'_> {
    fn slot(&mut self, slot: &Arc<Slot>, next: Option<&Arc<Slot>>, report: &mut VerifyReport) -> Result<()> {
        let env = &self.core.env;
        let place = || format!("from {}", printable(&slot.key));
        let block = match slot.read(env) {
            Ok(block) => block,
            Err(fault) => {
                self.is_whole = false;
                return report.note(fault.in_index(env.id, place));
            }
        };
        let mut wrong = |what: &'static str, expected: String, found: String| {
            report.add(|| {
                Corruption::of_index(env.id, place(), what, expected, found)
                    .at(env.space.file_name(), slot.block.at().offset)
            });
        };
        let (mut live, mut deleted) = (0, 0);
        let mut beside: Vec<BlockRef> = Vec::new();
        let mut key = Vec::new();
        for i in 0..block.len() {
            block.key_into(i, &mut key);
            let version = block.version(i).1;
            let is_first = self.last.as_ref().is_none_or(|(last, _)| *last != key);
            let ascends = self.last.as_ref().is_none_or(|(last, ts)| *last < key || (*last == key && *ts > version.ts));
            if !ascends {
                wrong("order of a run", "ascending versions".into(), format!("{} at {}", printable(&key), version.ts));
            }
            if !slot.may_have(store::KeyHash::of(&key)) {
                wrong("filter of a run", format!("one with {}", printable(&key)), "one without".into());
            }
            let (oldest, newest) = (self.run.info.oldest, self.run.info.newest);
            if version.ts < oldest || version.ts > newest || *key > *self.run.info.max_key {
                let said = format!("up to {} from {oldest} to {newest}", printable(&self.run.info.max_key));
                wrong("bounds of a run", said, format!("{} at {}", printable(&key), version.ts));
            }
            if is_first {
                if version.value.is_delete() { deleted += 1 } else { live += 1 }
            }
            if let Value::Large(pieces) = version.value {
                beside.extend(pieces.iter());
            }
            self.last = Some((key.clone(), version.ts));
        }
        if (live, deleted) != (slot.live, slot.deleted) {
            let said = format!("{} live keys, {} deleted", slot.live, slot.deleted);
            wrong("counts of a block", said, format!("{live} live keys, {deleted} deleted"));
        }
        if beside != slot.beside.iter().map(|block| block.at()).collect::<Vec<_>>() {
            wrong(
                "large values of a block",
                format!("{} blocks", slot.beside.len()),
                format!("{} blocks", beside.len()),
            );
        }
        if next.is_some_and(|next| *next.key < *key) {
            wrong("first key of the next block", format!("at or above {}", printable(&key)), "a lower one".into());
        }
        self.sums = (self.sums.0 + block.len() as u64, self.sums.1 + u64::from(live), self.sums.2 + u64::from(deleted));
        let mut piece = Vec::new();
        for at in beside {
            if let Err(fault) = env.space.read(at, BlockKind::Overflow, env.id, &mut piece) {
                report.note(fault.in_index(env.id, place))?;
            }
        }
        Ok(())
    }
}
