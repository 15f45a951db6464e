//! The row that was read last for its change: whoever changes it does not look for it again.
//!
//! What makes it so: its lock is exclusive and held until the end, or until [`Transaction::unlock_row`], and nobody has written since, this
//! transaction among them. So a note of where its writes ended says whether it still is what a look would find. What takes writes
//! back moves that end to where it was before, and takes the note away, as what gives the lock back does.

use std::cell::{Cell, RefCell};

use base::IndexId;
use txn::write_set::Seq;

use super::{CHARGE_STEP_BYTES, Transaction};
use crate::entry::IndexEntry;

/// A row as it is stored.
#[derive(Default)]
pub(crate) struct StoredRow {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// The row read last, and whether it holds.
#[derive(Default)]
pub(super) struct LastRow {
    row: RefCell<StoredRow>,
    /// If it holds: the index of rows, and where the writes ended.
    at: Cell<Option<(IndexId, Seq)>>,
    /// Of reads, and of what takes a row away: a row is kept if nothing came since it was read.
    turn: Cell<u64>,
}

impl LastRow {
    /// It holds no longer.
    pub(super) fn forget(&self) {
        self.at.set(None);
        self.turn.set(self.turn.get() + 1);
    }
}

impl Transaction {
    /// Room for a row that will be read, instead of the one before, and what to say when it is kept.
    pub(crate) fn row_to_keep(&self, key: Vec<u8>) -> (StoredRow, u64) {
        self.last_row.forget();
        let mut row = self.last_row.row.take();
        row.value.clear();
        (StoredRow { key, ..row }, self.last_row.turn.get())
    }

    /// Keeps a row that is locked exclusively, unless it is so long that its memory would have to be charged.
    pub(crate) fn keep_row(&self, entry: &IndexEntry, row: StoredRow, turn: u64) {
        if self.last_row.turn.get() == turn && (row.value.capacity() as u64) < CHARGE_STEP_BYTES {
            self.last_row.at.set(Some((entry.id(), self.writes.position())));
            self.last_row.row.replace(row);
        }
    }

    /// What is stored for a row that is to be changed, if it was the one read last; its lock is not given back any more.
    pub(crate) fn take_last_row(&mut self, entry: &IndexEntry, key: &[u8]) -> Option<Vec<u8>> {
        let row = self.last_row.row.get_mut();
        if self.last_row.at.get() != Some((entry.id(), self.writes.position())) || row.key != key {
            return None;
        }
        let value = std::mem::take(&mut row.value);
        self.last_row.forget();
        self.locks.get_mut().loose = None;
        Some(value)
    }
}
