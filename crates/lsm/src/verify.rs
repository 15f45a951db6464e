//! Checks of everything; what the last checkpoint reaches; taking an index apart.

use std::ops::Bound;
use std::sync::Arc;

use base::bytes::printable;
use base::{CommitTs, Corruption, Fault, Result};
use index::merge::Tombstones;
use index::{EntryBatch, KeyRange, ReadAt, VerifyReport, VisitBlock};
use store::{BlockKind, BlockRef, LotBytes};

use crate::block::Value;
use crate::cursor::begin;
use crate::lsm::Core;
use crate::partition::{NamedPartition, PartitionInfo};
use crate::run::Run;
use crate::slot::Slot;

impl Core {
    /// Reads every block and holds it against what names it.
    pub(crate) fn verify(self: &Arc<Self>) -> Result<VerifyReport> {
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
        // What was flushed and merged meanwhile goes before everything is gone through again.
        drop(sources);
        self.verify_dead(&mut report);
        self.verify_fresh(&mut report)?;
        Ok(report)
    }

    /// What is said to be dead is.
    fn verify_dead(self: &Arc<Self>, report: &mut VerifyReport) {
        for span in self.dead.copy() {
            let high = span.high.map_or(Bound::Unbounded, Bound::Excluded);
            let range = KeyRange { low: Bound::Included(span.low), high };
            let sources = self.sources();
            let mut merge = begin(&self.look(range), &sources, Tombstones::Hide);
            let mut out = EntryBatch::new();
            // What cannot be read was found before.
            while let Ok(more) = merge.fill(&mut out, 256) {
                out.iter().filter(|(key, _, ts)| self.is_hidden(key, *ts)).for_each(|(key, _, ts)| {
                    let (said, found) = ("nothing alive in a dead span".to_owned(), format!("a value at {ts}"));
                    report.add(|| Corruption::of_index(self.env.id, printable(key), "dead span", said, found));
                });
                if !more {
                    break;
                }
            }
        }
    }

    /// True if a value that was found is still the newest of its key, and dead spans hide it.
    fn is_hidden(&self, key: &[u8], ts: CommitTs) -> bool {
        // Who has applied it before has told the spans by now.
        drop(self.sources.write());
        let mut newest = None;
        let is_read = self.get_many(ReadAt::Newest, &[key], &mut |_, found, _| newest = Some(found)).is_ok();
        is_read && newest == Some(ts) && self.dead.has(key) && {
            // Nor was it deleted between the two looks.
            let mut again = None;
            let is_read = self.get_many(ReadAt::Newest, &[key], &mut |_, found, _| again = Some(found)).is_ok();
            is_read && again == newest
        }
    }

    fn verify_run(&self, run: &Run, report: &mut VerifyReport) -> Result<()> {
        // As a reopen would read it, whatever memory has.
        let top = match run.read_top(&self.env).map_err(|fault| fault.of_index(self.env.id)) {
            Ok(top) => top,
            Err(fault) => return report.note(fault),
        };
        let mut check = RunCheck { core: self, run, last: None, sums: (0, 0, 0), is_whole: true };
        for (i, part) in top.iter().enumerate() {
            check.partition(part, top.get(i + 1).map(|next| &next.info), report)?;
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
            run.top_at().iter().for_each(|at| visit(*at, &|| format!("the index of run {}", keys())));
            // As a reopen would read it.
            let parts = match run.read_top(&self.env).map_err(|fault| fault.of_index(self.env.id)) {
                Ok(parts) => parts,
                Err(fault) => {
                    problems.push(*fault.into_damage()?);
                    continue;
                }
            };
            for part in &parts {
                let info = &part.info;
                visit(info.index, &|| format!("the index of data from {}", printable(&info.key)));
                let index = match info.read(&self.env).map_err(|fault| fault.of_index(self.env.id)) {
                    Ok(index) => index,
                    Err(fault) => {
                        problems.push(*fault.into_damage()?);
                        continue;
                    }
                };
                for named in index.iter() {
                    visit(named.block, &|| format!("data from {}", printable(named.key)));
                    named.beside().for_each(|at| visit(at, &|| format!("a value of {}", printable(named.key))));
                }
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
            match run.top(&self.env) {
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
            sources.arrange();
        });
        self.unpublish_all();
        self.dead.clear();
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
    fn partition(
        &mut self,
        part: &NamedPartition,
        next: Option<&PartitionInfo>,
        report: &mut VerifyReport,
    ) -> Result<()> {
        let env = &self.core.env;
        let info = &part.info;
        report.nodes += 1;
        let index = match info.read(env) {
            Ok(index) => index,
            Err(fault) => {
                (self.is_whole, self.last) = (false, None);
                return report.note(fault.of_index(env.id));
            }
        };
        let continues = self.last.as_ref().is_some_and(|(last, _)| **last == *info.key);
        let (before, was_whole) = (self.sums, self.is_whole);
        let is_first = self.last.is_none();
        let mut bytes = LotBytes::default();
        bytes.add(&env.space, info.index);
        for (i, named) in index.iter().enumerate() {
            report.nodes += 1;
            named.blocks().for_each(|at| bytes.add(&env.space, at));
            let next =
                if i + 1 < index.len() { Some(index.first_version(i + 1).0) } else { next.map(|next| &*next.key) };
            self.slot(Slot { index: &index, at: i }, next, report)?;
        }
        let mut wrong = |what: &'static str, expected: String, found: String| {
            report.add(|| {
                Corruption::of_index(env.id, format!("from {}", printable(&info.key)), what, expected, found)
                    .at(env.space.file_name(), info.index.offset)
            });
        };
        if bytes != part.bytes {
            wrong("bytes of a partition", format!("{:?}", part.bytes), format!("{bytes:?}"));
        }
        let sums = (self.sums.0 - before.0, self.sums.1 - before.1, self.sums.2 - before.2);
        let is_whole = was_whole && self.is_whole;
        if is_whole && sums != (info.entries, info.live, info.deleted) {
            wrong(
                "counts of a partition",
                format!("{:?}", (info.entries, info.live, info.deleted)),
                format!("{sums:?}"),
            );
        }
        if is_whole && !is_first && continues != info.continues {
            wrong("whether a key goes on in a partition", info.continues.to_string(), continues.to_string());
        }
        Ok(())
    }

    fn slot(&mut self, slot: Slot<'_>, next: Option<&[u8]>, report: &mut VerifyReport) -> Result<()> {
        let env = &self.core.env;
        let named = slot.named();
        let place = || format!("from {}", printable(named.key));
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
                    .at(env.space.file_name(), named.block.offset)
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
            if !named.may_have(store::KeyHash::of(&key)) {
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
        if (live, deleted) != (named.live, named.deleted) {
            let said = format!("{} live keys, {} deleted", named.live, named.deleted);
            wrong("counts of a block", said, format!("{live} live keys, {deleted} deleted"));
        }
        if !named.beside().eq(beside.iter().copied()) {
            let said = format!("{} blocks", named.beside().count());
            wrong("large values of a block", said, format!("{} blocks", beside.len()));
        }
        if next.is_some_and(|next| *next < *key) {
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
