//! The threads of one life: writers, readers, definition changes, checkpoints.
//!
//! | module | owns |
//! |---|---|
//! | [`doing`] | a transaction under way, and how it ends |
//! | [`mod@write`] | transactions of random operations, with savepoints |
//! | [`groups`] | counters that must agree under a row lock |
//! | [`deserts`] | an index that is emptied, and put back in part |
//! | [`sweep`] | commits all over the wide index |
//! | [`read`] | snapshots held for a while or for long, cursors both ways |
//! | [`manage`] | definition changes, checkpoints |
//!
//! Every thread runs until its share is done or the database refuses. What it did goes into the shared history the
//! moment it knows; the history is judged when all threads have ended.

pub mod deserts;
pub mod doing;
pub mod groups;
pub mod manage;
pub mod phases;
pub mod read;
pub mod sweep;
pub mod write;

use std::sync::Arc;

use trefoil::Error;
use vfs::sync::Mutex;

use crate::history::History;

/// The history, shared by the threads of a life.
pub type Shared = Arc<Mutex<History>>;

/// What a step of a thread came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The next one may come.
    Done,
    /// The disk is gone or the database refuses.
    Over,
}

/// Takes the errors that belong to the workload; others are a failure.
pub fn step(result: Result<(), Error>) -> Step {
    match result {
        Ok(()) => Step::Done,
        // A read that fails in the background makes what it was for only read, until the next life.
        Err(
            Error::Poisoned { .. }
            | Error::CommitOutcomeUnknown { .. }
            | Error::Io { .. }
            | Error::Damaged { .. }
            | Error::Closed,
        ) => Step::Over,
        Err(
            Error::Deadlock { .. }
            | Error::LockTimeout { .. }
            | Error::DiskFull { .. }
            | Error::DuplicateKey(_)
            // A read failed, and rows cannot be told to be distinct until the next life.
            | Error::Quarantined { .. }
            | Error::HeldByPrepared { .. }
            | Error::NotFound { .. }
            | Error::Limit { .. }
            | Error::DefinitionChanged { .. }
            | Error::Dropped { .. },
        ) => Step::Done,
        Err(error) => panic!("not an error of this workload: {error}"),
    }
}
