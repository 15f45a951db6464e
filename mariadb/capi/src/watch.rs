// SPDX-License-Identifier: GPL-2.0-only
//! What connections do, for others to look at: each session writes down how its transaction stands, whoever asks reads it.
//!
//! A session writes at its statements and reads, without a lock; what is read of it may be of two moments that lie next to
//! each other. Relaxed throughout: numbers for people.
//!
//! One thing of it is more: whose locks a transaction holds. The server is told of a connection that is in another's way, and may
//! look at all that this one does then; so its transaction does not end, and the connection is not closed, while it is told
//! ([`Watch::tell`]). Nothing is waited for under `Face::told`, by neither side. Where hundreds wait for one row each of them tells of
//! dozens: so a transaction leaves a note of whose it is, in a place of its number, and all connections are looked through only for one
//! whose note was overwritten, and once for one that is nobody's, such as one that was prepared before the server started.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use trefoil::{Isolation, Transaction};

/// Places for notes; a power of two.
const NOTES: usize = 4096;

/// Where the note of a transaction is. Those that begin one after the other do not share a cache line.
fn note_of(transaction: u64) -> usize {
    (transaction.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - NOTES.ilog2())) as usize
}

/// Of one connection.
#[derive(Debug, Default)]
pub struct Face {
    /// Its number in [`Watch`], and where it notes that.
    number: u64,
    notes: Arc<[AtomicU64]>,
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
        self.note(tx.id());
    }

    fn note(&self, transaction: u64) {
        if let Some(note) = self.notes.get(note_of(transaction)) {
            note.store(self.number, Ordering::Relaxed);
        }
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
#[derive(Debug)]
pub struct Watch {
    faces: Mutex<Faces>,
    /// Numbers of connections, by [`note_of`] a transaction; 0: none. What is there may be out of date.
    notes: Arc<[AtomicU64]>,
    /// Numbers of transactions that no connection had, in the same places.
    nobodys: Box<[AtomicU64]>,
    /// How often all connections were looked through.
    looks: AtomicU64,
}

#[derive(Debug, Default)]
struct Faces {
    next: u64,
    all: BTreeMap<u64, Arc<Face>>,
}

impl Faces {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Default for Watch {
    fn default() -> Self {
        let notes = (0..NOTES).map(|_| AtomicU64::new(0)).collect();
        let nobodys = (0..NOTES).map(|_| AtomicU64::new(0)).collect();
        Self { faces: Mutex::default(), notes, nobodys, looks: AtomicU64::new(0) }
    }
}

impl Watch {
    fn faces(&self) -> MutexGuard<'_, Faces> {
        self.faces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a connection that comes, and the number to leave by.
    pub fn enter(&self, thread: u64, connection: *mut c_void) -> (u64, Arc<Face>) {
        let mut faces = self.faces();
        let (number, notes) = (faces.next(), self.notes.clone());
        let face = Arc::new(Face { number, notes, thread, connection: connection as usize, ..Face::default() });
        faces.all.insert(number, face.clone());
        (number, face)
    }

    pub fn leave(&self, number: u64) {
        self.faces().all.remove(&number);
    }

    /// Calls `tell` with the connection that has the locks of `transaction`, unless that has ended; it does not end, nor is the
    /// connection closed, until this returns.
    pub fn tell(&self, transaction: u64, tell: impl FnOnce(*mut c_void)) {
        let has_it = |face: &Arc<Face>| face.holds.load(Ordering::Relaxed) == transaction;
        // A connection has it from before it takes locks, or never: what is nobody's stays so.
        let nobodys = &self.nobodys[note_of(transaction)];
        if nobodys.load(Ordering::Relaxed) == transaction {
            return;
        }
        let noted = self.notes[note_of(transaction)].load(Ordering::Relaxed);
        let faces = self.faces();
        let found = faces.all.get(&noted).filter(|face| has_it(face)).cloned().or_else(|| {
            self.looks.fetch_add(1, Ordering::Relaxed);
            let found = faces.all.values().find(|face| has_it(face)).cloned();
            match &found {
                Some(face) => face.note(transaction),
                None => nobodys.store(transaction, Ordering::Relaxed),
            }
            found
        });
        drop(faces);
        let Some(face) = found.filter(|face| face.connection != 0) else { return };
        let _told = face.told.lock().unwrap_or_else(PoisonError::into_inner);
        if face.holds.load(Ordering::Relaxed) == transaction {
            tell(face.connection as *mut c_void);
        }
    }

    /// Transactions that run now, in the order of their numbers.
    pub fn running(&self) -> Vec<Running> {
        let faces = self.faces();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is in the way is found without a look at all connections, and once with one if his note was overwritten. Guards: a
    /// transaction notes whose it is; who was looked for notes it again; a note is believed only if the connection says so;
    /// that one is nobody's is remembered.
    #[test]
    fn whose_a_transaction_is_is_noted() {
        let (_dir, engine) = crate::database::tests::engine();
        let watch = &engine.watch;
        let open = |n: usize| {
            let (_, face) = watch.enter(n as u64, std::ptr::without_provenance_mut(n));
            let tx = engine.db.begin().expect("it begins");
            face.begin(&tx, Isolation::RepeatableRead);
            (face, tx)
        };
        let mut all: Vec<_> = (1..=300).map(open).collect();
        let told = |tx: &Transaction| {
            let mut told = None;
            watch.tell(tx.id(), |connection| told = Some(connection.addr()));
            told
        };
        for (n, (_, tx)) in all.iter().enumerate() {
            assert_eq!(told(tx), Some(n + 1));
        }
        let met = watch.looks.load(Ordering::Relaxed);
        assert!(met < 30, "{met} of 300 share a note with another one");
        // One that has run for so long that others have its note.
        let last = all[299].0.number;
        watch.notes.iter().for_each(|note| note.store(last, Ordering::Relaxed));
        for _ in 0..10 {
            assert_eq!(told(&all[0].1), Some(1));
        }
        assert_eq!(watch.looks.load(Ordering::Relaxed), met + 1);
        // One that is no connection's, asked for by each who waits for it.
        let alone = engine.db.begin().expect("it begins");
        for _ in 0..10 {
            assert_eq!(told(&alone), None);
        }
        assert_eq!(watch.looks.load(Ordering::Relaxed), met + 2);
        let (face, tx) = all.swap_remove(0);
        face.let_go();
        assert_eq!(told(&tx), None, "nobody is told of who has ended");
    }
}
