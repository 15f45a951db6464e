//! What every index structure must do, as named checks and as seeded random histories, both judged by the model
//! (a sorted map of versions). Behind the feature `conformance`; a structure's tests call [`conformance_suite!`](crate::conformance_suite).
//!
//! | module | owns |
//! |---|---|
//! | [`world`] | one index with its log, manifest, snapshots and model: what the engine would be around it |
//! | [`watch`] | a file system that counts, fails on demand, and does not wait for the disk |
//! | [`checks`] | the named checks |
//! | [`history`] | random histories: drawn by a seed, run, shrunk, printed |
//!
//! The suite knows nothing of leaves or levels. It asks at the seam, and at the few things a structure shares with
//! the engine: the data file, the cache, the log gate. Crashes here lose memory and the log behind its durable
//! mark; what a power cut does to single sectors is the simulator's matter.
//!
//! ```text
//! fn bench() -> Bench { Bench::new(|env, state| Ok(MyTree::open(env, state)?)) }
//! trefoil_index::conformance_suite!(bench());
//! ```

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use base::limits::KEY_BYTES_MAX;
use base::{Fault, Result};
use store::Compression;

use crate::{Index, IndexEnv, IndexOptions};

pub mod checks;
mod given;
pub mod history;
pub mod watch;
pub mod world;

pub use world::World;

/// Opens an index: from a checkpoint's state, or a new one.
pub type Opener = dyn Fn(IndexEnv, Option<&[u8]>) -> Result<Arc<dyn Index>> + Send + Sync;

/// A fresh, empty directory in some file system. The last value is dropped when the directory may go.
pub type Disk = (Arc<dyn vfs::Vfs>, PathBuf, Box<dyn std::any::Any + Send>);

/// What the suite runs on.
pub struct Bench {
    /// Opens the structure under test.
    pub open: Box<Opener>,
    /// Gives a fresh directory.
    pub disk: Box<dyn Fn() -> Disk + Send + Sync>,
    /// Options of the index. Structures with small nodes may limit keys to three quarters of one; the suite keeps to
    /// that.
    pub options: IndexOptions,
    /// Memory, in bytes; enough that nothing is evicted unless the check asks for it.
    pub budget_bytes: u64,
    /// Much of its memory is in no page of the cache: where the suite evicts, it has that brought to disk as well, as the engine does for
    /// who waits for memory.
    pub relieves: bool,
}

impl Bench {
    /// A bench on the machine's own file system with small nodes, so that few keys make a deep structure.
    pub fn new(open: impl Fn(IndexEnv, Option<&[u8]>) -> Result<Arc<dyn Index>> + Send + Sync + 'static) -> Self {
        Self {
            open: Box::new(open),
            disk: Box::new(watch::scratch),
            options: IndexOptions { compression: Compression::Lz4, node_bytes: 1024, ..IndexOptions::default() },
            budget_bytes: 64 << 20,
            relieves: false,
        }
    }

    /// Longest key for nodes of this size.
    #[must_use]
    pub fn key_bytes_max(&self) -> usize {
        KEY_BYTES_MAX.min(self.options.node_bytes / 4 * 3)
    }
}

/// Something the structure under test does wrong, or a fault where none may be.
#[derive(Debug, Clone)]
pub struct Complaint(pub String);

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Fault> for Complaint {
    #[track_caller]
    fn from(fault: Fault) -> Self {
        Self(format!("{}: fault: {fault}", std::panic::Location::caller()))
    }
}

/// Outcome of a check.
pub type Verdict<T = ()> = std::result::Result<T, Complaint>;

/// Complains unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Complaint(format!(
                "{}:{}: {}", file!(), line!(), format_args!($($message)+)
            )));
        }
    };
}
pub(crate) use ensure;

/// Runs a check; a panic of the structure is a complaint.
pub fn judge(bench: &Bench, check: fn(&Bench) -> Verdict) -> Verdict {
    guarded(|| check(bench))
}

/// Runs `body`; a panic becomes a complaint.
pub(crate) fn guarded(body: impl FnOnce() -> Verdict) -> Verdict {
    // A world that panicked is thrown away whole, so nobody sees it half changed.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        Ok(verdict) => verdict,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Err(Complaint(format!("panic: {text}")))
        }
    }
}

/// Makes one test of each check, and one of random histories. The argument is an expression that gives a
/// [`Bench`].
#[macro_export]
macro_rules! conformance_suite {
    ($bench:expr) => {
        $crate::for_each_check!(conformance_test, $bench);

        /// Random histories, as many as `TREFOIL_HISTORIES` says.
        #[test]
        fn random_histories() {
            let report = $crate::conformance::history::run_many(&$bench, $crate::conformance::history::seeds(300));
            if let Err(failure) = report {
                panic!("{failure}");
            }
        }
    };
}

/// One test of one check; for [`conformance_suite!`](crate::conformance_suite).
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test {
    ($bench:expr, $group:ident, $name:ident) => {
        #[test]
        fn $name() {
            let check = $crate::conformance::checks::$group::$name;
            if let Err(complaint) = $crate::conformance::judge(&$bench, check) {
                panic!("{complaint}");
            }
        }
    };
}
