//! What a history is: the transactions of one life of a database, and what was there before and after it.

use std::collections::BTreeMap;

/// A list or a register.
pub type Key = u8;
/// What is appended or written: never the same twice.
pub type Id = u32;

/// An isolation level, as the checks know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// READ COMMITTED, and READ UNCOMMITTED.
    ReadCommitted,
    /// REPEATABLE READ, whose writes act on the newest committed version.
    RepeatableRead,
    /// REPEATABLE READ in which that version must be the snapshot's.
    Snapshot,
    /// SERIALIZABLE.
    Serializable,
}

/// Something a transaction did, and what it saw by that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Appended to a list, which was `before` under the lock of its row.
    Append {
        /// The list.
        key: Key,
        /// What was appended.
        id: Id,
        /// What was there, own appends included.
        before: Vec<Id>,
    },
    /// Read a list; one that is not there is empty.
    Read {
        /// The list.
        key: Key,
        /// What was there.
        list: Vec<Id>,
    },
    /// Wrote a register, whatever it was.
    Write {
        /// The register.
        key: Key,
        /// What was written.
        id: Id,
    },
    /// Read a register.
    Get {
        /// The register.
        key: Key,
        /// What was there.
        id: Option<Id>,
    },
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was told so, with this timestamp.
    Committed(u64),
    /// It was rolled back.
    RolledBack,
    /// A crash came between; what was prepared then is decided before the next life begins.
    Unknown,
}

/// A transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Txn {
    /// In order, without what a savepoint took back.
    pub ops: Vec<Op>,
    /// What was taken back.
    pub undone: Vec<Id>,
    /// How it ended.
    pub outcome: Outcome,
    /// The name it was prepared under, if it came so far.
    pub xid: Option<Id>,
    /// Moments of its begin and of its end, on one clock for all.
    pub began: u64,
    /// See `began`.
    pub ended: u64,
    /// It locked nothing: it is a snapshot.
    pub plain: bool,
}

/// What a database holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The lists that are not empty.
    pub lists: BTreeMap<Key, Vec<Id>>,
    /// The registers that were written.
    pub registers: BTreeMap<Key, Id>,
}

/// What happened from an opening to the end, or to a crash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Life {
    /// As it was opened.
    pub before: State,
    /// In no order.
    pub txns: Vec<Txn>,
    /// As it was found afterwards, before what was prepared is decided.
    pub after: State,
    /// It ended with a crash: what was not told to be committed may be gone.
    pub crashed: bool,
}
