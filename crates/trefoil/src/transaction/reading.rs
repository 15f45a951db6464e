//! Where a transaction reads, and how its own writes come on top.

use std::ops::Bound;
use std::sync::Arc;

use index::{Direction, ReadAt};
use txn::Snapshot as Slot;
use txn::write_set::{Seq, Written};

use super::Transaction;
use crate::cursor::Cursor;
use crate::entry::IndexEntry;
use crate::error::Result;
use crate::options::Isolation;

impl Transaction {
    /// Where plain reads read.
    pub(crate) fn read_at(&self) -> Result<(ReadAt, Option<Slot>)> {
        self.check_running()?;
        self.engine.check_open()?;
        if let Some(slot) = self.snapshot.get() {
            return Ok((ReadAt::Snapshot(slot.ts()), None));
        }
        self.engine.visible.wait_for(self.seen.get())?;
        let slot = self.engine.snapshots.take();
        let at = ReadAt::Snapshot(slot.ts());
        match self.isolation {
            Isolation::ReadCommitted => Ok((at, Some(slot))),
            Isolation::RepeatableRead => {
                let _ = self.snapshot.set(slot);
                Ok((at, None))
            }
        }
    }

    /// Plain point reads of ascending keys, own writes first. Returns how many were found.
    pub(crate) fn read(
        &self,
        entry: &IndexEntry,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize> {
        entry.check()?;
        let (at, _slot) = self.read_at()?;
        entry.check_snapshot(at)?;
        self.read_merged(entry, at, keys, found)
    }

    /// Current point reads of ascending keys, own writes first: what a write acts on.
    pub(crate) fn read_newest(
        &self,
        entry: &IndexEntry,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize> {
        entry.check()?;
        self.read_merged(entry, ReadAt::Newest, keys, found)
    }

    fn read_merged(
        &self,
        entry: &IndexEntry,
        at: ReadAt,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize> {
        let mut count = 0;
        if !self.touched.contains_key(&entry.id()) {
            entry.index.get_many(at, keys, &mut |i, _, value| {
                count += 1;
                found(i, value);
            })?;
            return Ok(count);
        }
        let (mut rest, mut places) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        for (i, key) in keys.iter().enumerate() {
            match self.writes.get(entry.id(), key, Seq::LATEST) {
                Some(Written::Put(value)) => {
                    count += 1;
                    found(i, value);
                }
                Some(Written::Delete) => {}
                None => {
                    rest.push(*key);
                    places.push(i);
                }
            }
        }
        entry.index.get_many(at, &rest, &mut |i, _, value| {
            count += 1;
            found(places[i], value);
        })?;
        Ok(count)
    }

    pub(crate) fn cursor<'a>(
        &'a self,
        entry: &Arc<IndexEntry>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Cursor<'a>> {
        entry.check()?;
        let (at, slot) = self.read_at()?;
        entry.check_snapshot(at)?;
        Ok(self.cursor_at(entry, at, slot, range, direction))
    }

    /// A cursor over the newest applied versions, for statements that lock what they find.
    pub(crate) fn cursor_newest<'a>(
        &'a self,
        entry: &Arc<IndexEntry>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Cursor<'a>> {
        entry.check()?;
        Ok(self.cursor_at(entry, ReadAt::Newest, None, range, direction))
    }

    fn cursor_at<'a>(
        &'a self,
        entry: &Arc<IndexEntry>,
        at: ReadAt,
        slot: Option<Slot>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Cursor<'a> {
        let own = self.touched.contains_key(&entry.id()).then(|| self.writes.range(entry.id(), range, Seq::LATEST));
        Cursor::new(entry, at, range, slot, own, direction)
    }
}
