//! A write comes into the write set: its row is locked, and there is room for it.

use std::sync::Arc;

use base::limits::VALUE_BYTES_MAX;

use super::{Transaction, promise};
use crate::entry::IndexEntry;
use crate::error::{Error, Result};
use crate::options::IndexOptions;

impl Transaction {
    /// Adds an operation to the write set, or on an error does nothing; the row is locked.
    pub(crate) fn write(&mut self, entry: &Arc<IndexEntry>, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.write_known(entry, key, value, false)
    }

    /// The same; with `is_absent` the newest committed state with the own writes on top is known to have nothing of the key, and will until the end of
    /// the transaction [A15].
    pub(crate) fn write_known(
        &mut self,
        entry: &Arc<IndexEntry>,
        key: &[u8],
        value: Option<&[u8]>,
        is_absent: bool,
    ) -> Result<()> {
        self.check_running()?;
        self.engine.check_key(entry, key)?;
        if let Some(value) = value
            && value.len() as u64 > VALUE_BYTES_MAX
        {
            let got = value.len() as u64;
            return Err(Error::Limit { what: "length of a value in bytes", limit: VALUE_BYTES_MAX, got });
        }
        // While only the reserve of the disk is left, work is refused here, never later (P4).
        let owed = self.owed_by_write(entry, key, value);
        match value {
            None => self.check_room_to_delete(entry, owed)?,
            Some(_) => self.engine.check_room_for(owed)?,
        }
        self.write_let_in(entry, key, value, is_absent)
    }

    /// The same of what is let in, or takes the place of what was.
    pub(super) fn write_let_in(
        &mut self,
        entry: &Arc<IndexEntry>,
        key: &[u8],
        value: Option<&[u8]>,
        is_absent: bool,
    ) -> Result<()> {
        let owed = self.owed_by_write(entry, key, value);
        self.spill_again()?;
        if !self.is_writer.replace(true) {
            self.engine.writers.enter(self.id, &self.writes);
        }
        let (before, bytes) = self.enter_write(entry, key, value, is_absent)?;
        self.promise.get_mut().add(&self.engine.promised, before, owed);
        let touched = self.touched.get_mut();
        match touched.binary_search_by_key(&entry.id(), |other| other.id()) {
            // Who has written holds a lock, which keeps him in the gate, and there his tables keep their shape.
            Ok(at) => debug_assert!(Arc::ptr_eq(&touched[at], entry), "one entry for each index"),
            Err(at) => touched.insert(at, entry.clone()),
        }
        self.charge_writes(bytes).inspect_err(|_| {
            self.lock_again(before);
            self.writes.rollback_to(before);
            self.promise.get_mut().take_back(&self.engine.promised, before);
        })
    }

    /// Deletes from a tree are let in where other writes are refused.
    pub(super) fn check_room_to_delete(&self, entry: &IndexEntry, owed: u64) -> Result<()> {
        if !entry.frees_what_is_deleted() {
            return Ok(self.engine.check_room_for(owed)?);
        }
        let is_cancelled = || self.locks.borrow().owner.canceller().is_cancelled();
        self.engine.check_room_to_delete(owed, || if is_cancelled() { Err(Error::Cancelled) } else { Ok(()) })
    }

    fn owed_by_write(&self, entry: &IndexEntry, key: &[u8], value: Option<&[u8]>) -> u64 {
        let payload_bytes = (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        let (writes, reserve_bytes) = (self.writes.position().0, self.engine.options.disk_reserve_bytes);
        let owed =
            |options: &IndexOptions| promise::owed_by(payload_bytes, options.leaf_bytes(), writes, reserve_bytes);
        owed(&entry.def.options) + entry.twin.as_ref().map_or(0, |twin| owed(&twin.options))
    }
}
