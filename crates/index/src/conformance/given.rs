//! What the engine gives an index: the log's durable mark, and run files for deleted ranges.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Fault, Lsn, Result};
use store::run::{Run, RunMeta, RunWriter};

use crate::LogGate;
use crate::ranged::RunMaker;

/// The log's durable mark. Relaxed throughout: a world has one thread, or joins the others before it looks.
#[derive(Debug, Default)]
pub struct Gate {
    durable: AtomicU64,
    refuses: AtomicBool,
}

impl Gate {
    /// From now on nothing is made durable any more.
    pub fn refuse(&self, refuse: bool) {
        self.refuses.store(refuse, Ordering::Relaxed);
    }
}

impl LogGate for Gate {
    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Relaxed))
    }

    fn make_durable(&self, lsn: Lsn) -> Result<()> {
        if lsn > self.durable() && self.refuses.load(Ordering::Relaxed) {
            return Err(Fault::Poisoned("the log refuses as told".into()));
        }
        self.durable.fetch_max(lsn.0, Ordering::Relaxed);
        Ok(())
    }
}

/// Run files that ranges are drained to, beside those of commits.
pub(super) struct Runs {
    pub vfs: Arc<dyn vfs::Vfs>,
    pub dir: PathBuf,
    pub next: Arc<AtomicU64>,
}

impl RunMaker for Runs {
    fn create(&self) -> Result<(u64, RunWriter)> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        Ok((id, RunWriter::create(self.vfs.clone(), &self.dir, id, store::Compression::Lz4)?))
    }

    fn open(&self, meta: &RunMeta) -> Result<Run> {
        Run::open(&*self.vfs, &self.dir, meta)
    }

    fn attached(&self, _id: u64) {}

    fn abandoned(&self, id: u64) -> Result<()> {
        store::run::remove(&*self.vfs, &self.dir, id)
    }
}
