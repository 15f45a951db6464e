// SPDX-License-Identifier: GPL-2.0-only
//! What connections do, for others to look at: each session writes down how its transaction stands, whoever asks reads it.
//!
//! A session writes at its statements and reads, without a lock; what is read of it may be of two moments that lie next to
//! each other. Relaxed throughout: numbers for people.
//!
//! One thing of it is more: whose locks a transaction holds. The server is told of a connection that is in another's way, and may
//! look at all that this one does then; so its transaction does not end, and the connection is not closed, while it is told
//! ([`Watch::tell`]). Nothing is waited for under `Face::told`, by neither side.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use trefoil::{Isolation, Transaction};

/// Of one connection.
#[derive(Debug, Default)]
pub struct Face {
    /// The server's number of the connection; 0: of several.
    thread: u64,
    /// The same as the server's pointer; 0: of several.
    connection: usize,
    /// The transaction whose locks are this connection's, prepared or not; 0: none.
    holds: AtomicU64,
    /// Held while the server is told of `holds`, and when that ends.
    told: Mutex<()>,
    /// The transaction; 0: none runs.
    transaction: AtomicU64,
    /// Seconds since 1970.
    began: AtomicU64,
    isolation: AtomicU8,
    rows_locked: AtomicU64,
    rows_written: AtomicU64,
    /// 0: none was taken.
    snapshot: AtomicU64,
}

/// A transaction that runs, as of one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The connection, if it is one's.
    pub thread: Option<u64>,
    pub transaction: u64,
    pub began: u64,
    pub isolation: &'static str,
    pub rows_locked: u64,
    pub rows_written: u64,
    pub snapshot: Option<u64>,
}

const ISOLATIONS: [&str; 4] = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

impl Face {
    pub fn begin(&self, tx: &Transaction, isolation: Isolation) {
        let number = match isolation {
            Isolation::ReadUncommitted => 0,
            Isolation::ReadCommitted => 1,
            Isolation::RepeatableRead => 2,
            Isolation::Serializable => 3,
        };
        self.isolation.store(number, Ordering::Relaxed);
        self.began.store(seconds(), Ordering::Relaxed);
        self.rows_written.store(0, Ordering::Relaxed);
        self.look(tx);
        self.transaction.store(tx.id(), Ordering::Relaxed);
        self.holds.store(tx.id(), Ordering::Relaxed);
    }

    /// The transaction is about to end, or has been ended: from now on nobody is told of it.
    pub fn let_go(&self) {
        if self.holds.load(Ordering::Relaxed) != 0 {
            let _told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            self.holds.store(0, Ordering::Relaxed);
        }
    }

    /// How it stands now.
    pub fn look(&self, tx: &Transaction) {
        self.rows_locked.store(tx.rows_locked(), Ordering::Relaxed);
        self.snapshot.store(tx.snapshot_ts().map_or(0, |ts| ts.0), Ordering::Relaxed);
    }

    pub fn wrote(&self) {
        self.rows_written.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.transaction.store(0, Ordering::Relaxed);
        self.snapshot.store(0, Ordering::Relaxed);
    }

    fn running(&self) -> Option<Running> {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let some = |n: u64| (n != 0).then_some(n);
        Some(Running {
            thread: some(self.thread),
            transaction: some(load(&self.transaction))?,
            began: load(&self.began),
            isolation: ISOLATIONS[usize::from(self.isolation.load(Ordering::Relaxed))],
            rows_locked: load(&self.rows_locked),
            rows_written: load(&self.rows_written),
            snapshot: some(load(&self.snapshot)),
        })
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Faces>);

#[derive(Debug, Default)]
struct Faces {
    next: u64,
    all: BTreeMap<u64, Arc<Face>>,
}

impl Watch {
    /// Of a connection that comes, and the number to leave by.
    pub fn enter(&self, thread: u64, connection: *mut c_void) -> (u64, Arc<Face>) {
        let face = Arc::new(Face { thread, connection: connection as usize, ..Face::default() });
        let mut faces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faces.next += 1;
        let number = faces.next;
        faces.all.insert(number, face.clone());
        (number, face)
    }

    pub fn leave(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all.remove(&number);
    }

    /// Calls `tell` with the connection that has the locks of `transaction`, unless that has ended; it does not end, nor is the
    /// connection closed, until this returns.
    pub fn tell(&self, transaction: u64, tell: impl FnOnce(*mut c_void)) {
        let faces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = faces.all.values().find(|face| face.holds.load(Ordering::Relaxed) == transaction).cloned();
        drop(faces);
        let Some(face) = found.filter(|face| face.connection != 0) else { return };
        let _told = face.told.lock().unwrap_or_else(PoisonError::into_inner);
        if face.holds.load(Ordering::Relaxed) == transaction {
            tell(face.connection as *mut c_void);
        }
    }

    /// Transactions that run now, in the order of their numbers.
    pub fn running(&self) -> Vec<Running> {
        let faces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running: Vec<_> = faces.all.values().filter_map(|face| face.running()).collect();
        drop(faces);
        running.sort_by_key(|of| of.transaction);
        running
    }
}

/// Now, since 1970.
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
