//! Point reads: the newest version among all sources, those with the newest versions first.
//!
//! What has expired for the reader lies at or below his cut ([`index::expiry`]), and so does whatever it hides: a read begins as if a delete had been
//! found there, and passes over what is not above.
//!
//! A read looks in memory first, under one epoch guard for each key: what it meets there it looks at where it is, and writes nothing. Only if
//! that is not enough it begins anew, without the guard, and goes to the disk.

use std::sync::Arc;

use base::{CommitTs, Result};
use index::ReadAt;
use store::{KeyHash, Reach, epoch};

use crate::block::Value;
use crate::cursor::moment;
use crate::lsm::{Core, Sources};
use crate::run::Run;
use crate::slot::read_large;

/// The best version found so far.
#[derive(Default)]
struct Best {
    ts: Option<CommitTs>,
    is_delete: bool,
    value: Vec<u8>,
}

impl Best {
    /// Nothing but that all at or below `cut` has expired.
    fn begin(&mut self, cut: CommitTs) {
        self.ts = Some(cut).filter(|cut| *cut > CommitTs::ZERO);
        self.is_delete = true;
    }

    fn is_older_than(&self, ts: CommitTs) -> bool {
        self.ts.is_none_or(|best| best < ts)
    }

    fn offer(&mut self, ts: CommitTs, value: Option<&[u8]>) {
        if self.is_older_than(ts) {
            self.ts = Some(ts);
            self.is_delete = value.is_none();
            self.value.clear();
            self.value.extend_from_slice(value.unwrap_or_default());
        }
    }
}

impl Core {
    pub(crate) fn get_many(
        &self,
        at: ReadAt,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, CommitTs, &[u8]),
    ) -> Result<()> {
        vfs::thread::point("lsm.reading");
        let sources = self.sources();
        vfs::thread::point("lsm.read_listed");
        // Behind the list: who reads the newest is in no view. Asked for before, the cut may be an old one, by which a put is alive whose delete has expired,
        // and left the list, by the new one.
        let (cut, at) = (self.cut(at), moment(at));
        self.counters.add_point_reads(keys.len() as u64);
        let mut best = Best::default();
        for (i, key) in keys.iter().enumerate() {
            best.begin(cut);
            let is_found = self.get(&sources, key, at, Reach::Memory(&epoch::pin()), &mut best)?;
            if !is_found {
                // No guard is held while somebody waits for the disk.
                self.counters.count_cold_read();
                best.begin(cut);
                self.get(&sources, key, at, Reach::Disk, &mut best)?;
            }
            if let Some(ts) = best.ts.filter(|_| !best.is_delete) {
                found(i, ts, &best.value);
            }
        }
        Ok(())
    }

    /// The newest version of all sources. False if that could not be found out from where the reader may look.
    fn get(&self, sources: &Sources, key: &[u8], at: CommitTs, reach: Reach<'_>, best: &mut Best) -> Result<bool> {
        for table in sources.memtables() {
            table.get(key, at, |ts, value| best.offer(ts, value));
        }
        for attached in sources.attached.iter().filter(|attached| attached.ts <= at) {
            if !best.is_older_than(attached.ts) {
                continue;
            }
            if matches!(reach, Reach::Memory(_)) && attached.run.meta().is_some() {
                return Ok(false);
            }
            if let Some(value) = attached.run.get(key)? {
                best.offer(attached.ts, value.as_deref());
            }
        }
        let key = (key, KeyHash::of(key));
        for strand in &sources.strands {
            // They come by their highest timestamp: what is left is older.
            if !best.is_older_than(strand.newest) {
                break;
            }
            if let Some(run) = strand.run_of(key.0)
                && run.concerns(key.0, at)
                && best.is_older_than(run.info.newest)
                && !self.get_in_run(run, key, at, reach, best)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn get_in_run(
        &self,
        run: &Arc<Run>,
        key: (&[u8], KeyHash),
        at: CommitTs,
        reach: Reach<'_>,
        best: &mut Best,
    ) -> Result<bool> {
        let mut note_read = || self.counters.count_point_block();
        run.get(&self.env, key, at, reach, &mut note_read, |version| {
            if best.is_older_than(version.ts) {
                match (version.value, reach) {
                    (Value::Delete, _) => best.offer(version.ts, None),
                    (Value::Inline(value) | Value::Fresh(value), _) => best.offer(version.ts, Some(value)),
                    (Value::Large(_), Reach::Memory(_)) => return Ok(false),
                    (Value::Large(pieces), Reach::Disk) => {
                        best.offer(version.ts, Some(&read_large(&self.env, pieces, self.env.id)?));
                    }
                }
            }
            Ok(true)
        })
    }
}
