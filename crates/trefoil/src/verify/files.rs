//! The files beside the indexes: header, manifest, run files, log; and the accounts of the data file.

use std::collections::BTreeMap;

use base::{Corruption, Fault, IndexId, Lsn};
use index::VerifyReport;
use store::Census;
use vfs::sync::MutexGuard;

use crate::engine::{Engine, Published};
use crate::error::Result;
use crate::manifest::Manifest;
use crate::quarantine::Lost;
use crate::record;

/// Header, manifest, run files and log, as a next open would find them.
pub(super) fn files(engine: &Engine) -> Result<(String, VerifyReport)> {
    let mut report = VerifyReport::default();
    if let Err(error) = engine.layout.check_header() {
        super::note(&mut report, error)?;
    }
    if let Err(fault) = engine.space.check_header() {
        report.note(fault)?;
    }
    let awaited = engine.await_checkpoint();
    let published = engine.checkpoint.lock();
    drop(awaited);
    match manifest(engine, &published) {
        Ok(manifest) => {
            // As for a backup: it is not trimmed under the reader.
            let held = engine.held_log.hold(manifest.log_floor);
            run_files(engine, &manifest, &mut report)?;
            drop(published);
            if let Err(fault) = log(engine, manifest.log_floor, &mut report.entries) {
                report.note(fault)?;
            }
            drop(held);
        }
        Err(fault) => report.note(fault)?,
    }
    Ok(("files".to_owned(), report))
}

/// The newest manifest, read again.
fn manifest(engine: &Engine, published: &MutexGuard<'_, Published>) -> base::Result<Manifest> {
    let (vfs, dir) = (&engine.layout.vfs, &engine.layout.dir);
    let wrong = |what, expected: String, found: String| Fault::corrupt(dir.display(), 0, what, expected, found);
    let Some(manifest) = Manifest::newest(vfs, dir)? else {
        return Err(wrong("manifest", format!("generation {}", published.generation), "none".to_owned()));
    };
    if manifest.generation != published.generation {
        let (expected, found) = (published.generation.to_string(), manifest.generation.to_string());
        return Err(wrong("generation of the manifest", expected, found));
    }
    if manifest.database_id != engine.layout.database_id {
        let (expected, found) = (engine.layout.database_id.to_string(), manifest.database_id.to_string());
        return Err(wrong("database id of the manifest", expected, found));
    }
    Ok(manifest)
}

/// Each file that is named is there, each that is there is named.
fn run_files(engine: &Engine, manifest: &Manifest, report: &mut VerifyReport) -> Result<()> {
    let dir = engine.layout.runs();
    let there = store::run::list(&*engine.layout.vfs, &dir)?;
    for entry in &manifest.indexes {
        for id in entry.runs.iter().filter(|id| there.binary_search(id).is_err()) {
            let place = dir.display();
            report
                .add(|| Corruption::of_index(entry.id, None, "run file", format!("run {id}"), "none").at(place, None));
        }
    }
    let prepared = manifest.prepared.iter().flat_map(|set| &set.shares);
    for (index, meta) in prepared.filter(|(_, meta)| there.binary_search(&meta.id).is_err()) {
        let found = format!("run {} of a prepared transaction", meta.id);
        report.add(|| Corruption::of_index(*index, None, "run file", found, "none").at(dir.display(), None));
    }
    for id in there {
        // A file goes before its entry in the registry: one that went meanwhile is not there any more.
        let still = || store::run::list(&*engine.layout.vfs, &dir).is_ok_and(|now| now.contains(&id));
        if !engine.runs.knows(id) && still() {
            let fault = Fault::corrupt(dir.display(), 0, "run file", "one that somebody names", format!("run {id}"));
            report.note(fault)?;
        }
    }
    Ok(())
}

/// Reads what is durable and a next open would replay; counts the records.
fn log(engine: &Engine, floor: Lsn, records: &mut u64) -> base::Result<()> {
    engine.wal.verify(floor, &mut |found| {
        *records += 1;
        match found.kind.0 {
            record::KIND_COMMIT => record::decode(found.payload, found.end, |_| true).map(|_| ()),
            record::KIND_COMMIT_RANGED => record::decode_ranged(found.payload, found.end, |_| true).map(|_| ()),
            record::KIND_PREPARE => record::decode_prepare(found.payload, found.end).map(|_| ()),
            record::KIND_COMMIT_PREPARED | record::KIND_ROLLBACK_PREPARED => {
                record::decode_decision(found.payload, found.end).map(|_| ())
            }
            _ => Ok(()),
        }
    })
}

/// No block has two owners, and each extent holds exactly what is counted. Counts are compared only if everything could
/// be read: the blocks that an unreadable node names are not known; nor those that one named which is gone, until a
/// checkpoint has looked for them. Nor behind a checkpoint that found no space: what it composed is counted, and not there.
pub(super) fn space(engine: &Engine, all_readable: bool) -> Result<(String, VerifyReport)> {
    let mut report = VerifyReport::default();
    let awaited = engine.await_checkpoint();
    let no_checkpoint = engine.checkpoint.lock();
    drop(awaited);
    let mut census = Census::new(&engine.space);
    let mut all_readable = all_readable && no_checkpoint.lost == Lost::None && !no_checkpoint.is_behind;
    for entry in engine.upkept_indexes() {
        let id = entry.id();
        let problems = entry.index.reach(&mut |at, _| {
            report.nodes += 1;
            census.add(at, id);
        })?;
        all_readable &= problems.is_empty();
        // What is damaged in a dropped index is nobody's loss.
        if entry.dropped_at().is_none() {
            problems.into_iter().for_each(|problem| report.add(|| problem));
        }
    }
    shared(engine, &census.shared(), &mut report)?;
    if all_readable {
        for extent in census.miscounted() {
            let what = if extent.counted > extent.named { "leaked bytes of an extent" } else { "bytes of an extent" };
            let expected = format!("{} that indexes name", extent.named);
            let found = format!("{} counted", extent.counted);
            report.note(Fault::corrupt(engine.space.file_name(), extent.offset, what, expected, found))?;
        }
    }
    Ok(("data file".to_owned(), report))
}

/// Names the owners of blocks that share bytes, in a second walk.
fn shared(engine: &Engine, offsets: &[u64], report: &mut VerifyReport) -> Result<()> {
    if offsets.is_empty() {
        return Ok(());
    }
    let mut owners: BTreeMap<u64, Vec<(IndexId, String)>> = BTreeMap::new();
    for entry in engine.upkept_indexes() {
        let name = engine.index_name(&entry);
        entry.index.reach(&mut |at, who| {
            if offsets.binary_search(&at.offset).is_ok() {
                owners.entry(at.offset).or_default().push((entry.id(), format!("{} of {name}", who())));
            }
        })?;
    }
    let mut owners = owners.into_iter().peekable();
    while let Some((offset, mut who)) = owners.next() {
        // Of two blocks that begin at different places, one problem at the first.
        if who.len() == 1
            && let Some((_, others)) = owners.next_if(|(_, others)| others.len() == 1)
        {
            who.extend(others);
        }
        let index = who[0].0;
        let found: Vec<String> = who.into_iter().map(|(_, who)| who).collect();
        let problem = Corruption::of_index(index, None, "owners of a block", "one", found.join(" and "));
        report.add(|| problem.at(engine.space.file_name(), offset));
    }
    Ok(())
}
