//! Point reads: the newest version among all sources, those with the newest versions first.
//!
//! What has expired for the reader lies at or below his cut ([`index::expiry`]), and so does whatever it hides: a read begins as if a delete had been
//! found there, and passes over what is not above.
//!
//! A read looks in memory first, under one epoch guard for each key: what it meets there it looks at where it is, and writes nothing. Keys that
//! memory does not decide wait, and go to the disk together, without the guard (`batch.rs`); so do those behind them wait, since keys are
//! answered in their order.

use base::{CommitTs, Result};
use index::ReadAt;
use store::epoch::Guard;
use store::{KeyHash, epoch};

use crate::batch::Wave;
use crate::block::{Pieces, Value};
use crate::cursor::moment;
use crate::lsm::{Core, Env, Sources};
use crate::run::OnDisk;
use crate::slot::read_large;

/// The best version found so far.
#[derive(Debug, Default)]
pub(crate) struct Best {
    ts: Option<CommitTs>,
    kind: Kind,
    /// The value, or the addresses of its blocks.
    bytes: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Kind {
    #[default]
    Delete,
    Inline,
    Large {
        value_bytes: u64,
    },
}

impl Best {
    /// Nothing but that all at or below `cut` has expired.
    fn begin(&mut self, cut: CommitTs) {
        self.ts = Some(cut).filter(|cut| *cut > CommitTs::ZERO);
        self.kind = Kind::Delete;
        self.bytes.clear();
    }

    pub fn is_older_than(&self, ts: CommitTs) -> bool {
        self.ts.is_none_or(|best| best < ts)
    }

    pub fn offer(&mut self, ts: CommitTs, value: Value<'_>) {
        if !self.is_older_than(ts) {
            return;
        }
        let (kind, bytes) = match value {
            Value::Delete => (Kind::Delete, [].as_slice()),
            Value::Inline(value) | Value::Fresh(value) => (Kind::Inline, value),
            Value::Large(pieces) => (Kind::Large { value_bytes: pieces.value_bytes }, pieces.refs()),
        };
        (self.ts, self.kind) = (Some(ts), kind);
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }

    /// True if its value is on disk, and only where that lies is known.
    fn is_large(&self) -> bool {
        matches!(self.kind, Kind::Large { .. })
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The version, if that is one with a value.
    fn inline(&self) -> Option<(CommitTs, &[u8])> {
        self.ts.filter(|_| self.kind == Kind::Inline).map(|ts| (ts, self.bytes.as_slice()))
    }

    /// Hands the version out, if it has a value. A large one is read.
    pub fn hand_out(&self, env: &Env, found: impl FnOnce(CommitTs, &[u8])) -> Result<()> {
        match (self.kind, self.ts) {
            (Kind::Inline, Some(ts)) => found(ts, &self.bytes),
            (Kind::Large { value_bytes }, Some(ts)) => {
                found(ts, &read_large(env, Pieces::new(value_bytes, &self.bytes), env.id)?);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Core {
    pub(crate) fn get_many(
        &self,
        at: ReadAt,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, CommitTs, &[u8]),
    ) -> Result<()> {
        debug_assert!(keys.is_sorted(), "keys ascend");
        vfs::thread::point("lsm.reading");
        let sources = self.sources();
        vfs::thread::point("lsm.read_listed");
        // Behind the list: who reads the newest is in no view. Asked for before, the cut may be an old one, by which a put is alive whose delete has expired,
        // and left the list, by the new one.
        let (cut, at) = (self.cut(at), moment(at));
        self.counters.add_point_reads(keys.len() as u64);
        let mut best = Best::default();
        let mut wave = Wave::default();
        for (i, key) in keys.iter().enumerate() {
            best.begin(cut);
            let is_decided = self.get(&sources, key, at, &epoch::pin(), &mut best).is_ok();
            if is_decided && wave.is_empty() && !best.is_large() {
                if let Some((ts, value)) = best.inline() {
                    found(i, ts, value);
                }
                continue;
            }
            if !is_decided || best.is_large() {
                self.counters.count_cold_read();
            }
            wave.push(i, key, std::mem::take(&mut best), !is_decided);
            if wave.is_full() {
                self.finish(&sources, at, &mut wave, found)?;
            }
        }
        if wave.is_empty() { Ok(()) } else { self.finish(&sources, at, &mut wave, found) }
    }

    /// The newest version of all sources, from memory.
    fn get(&self, sources: &Sources, key: &[u8], at: CommitTs, guard: &Guard, best: &mut Best) -> Result<(), OnDisk> {
        for table in sources.memtables() {
            table.get(key, at, |ts, value| best.offer(ts, value.into()));
        }
        for attached in sources.attached.iter().filter(|attached| attached.ts <= at) {
            if !best.is_older_than(attached.ts) {
                continue;
            }
            if attached.run.meta().is_some() {
                return Err(OnDisk);
            }
            // What cannot be read, whoever goes to the disk meets, too.
            if let Some(value) = attached.run.get(key).map_err(|_| OnDisk)? {
                best.offer(attached.ts, value.as_deref().into());
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
            {
                run.get(key, at, guard, |version| best.offer(version.ts, version.value))?;
            }
        }
        Ok(())
    }
}
