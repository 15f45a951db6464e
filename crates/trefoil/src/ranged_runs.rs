//! Run files that deleted ranges are drained to ([`index::Ranged`]): no log record names them, a checkpoint does.
//!
//! A file is kept while it is written. Once it is attached, each checkpoint that begins names it or finds it drained; one that has begun before may
//! not know of it. So it counts as named by a commit that is behind all those: the floor of none of them is above it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::limits::LSN_UNIT;
use base::{CommitTs, Result};
use index::RunFiles;
use index::ranged::RunMaker;
use store::{Compression, Run, RunMeta, RunWriter};
use txn::Visible;

use crate::runs::RunRegistry;

/// Makes them, for one index.
pub struct RangedRuns {
    /// Where they lie.
    pub files: RunFiles,
    /// As the index is.
    pub compression: Compression,
    /// The next number.
    pub next: Arc<AtomicU64>,
    /// All run files.
    pub registry: Arc<RunRegistry>,
    /// What is applied.
    pub visible: Arc<Visible>,
}

impl RunMaker for RangedRuns {
    fn create(&self) -> Result<(u64, RunWriter)> {
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        self.registry.begun(id);
        let made = RunWriter::create(self.files.vfs.clone(), &self.files.dir, id, self.compression);
        match made {
            Ok(writer) => Ok((id, writer)),
            Err(fault) => {
                drop(self.abandoned(id));
                Err(fault)
            }
        }
    }

    fn open(&self, meta: &RunMeta) -> Result<Run> {
        Run::open(&*self.files.vfs, &self.files.dir, meta)
    }

    fn attached(&self, id: u64) {
        self.registry.named(id, CommitTs(self.visible.visible().0 + LSN_UNIT));
    }

    fn abandoned(&self, id: u64) -> Result<()> {
        let removed = store::run::remove(&*self.files.vfs, &self.files.dir, id);
        self.registry.forget(id);
        removed
    }
}
