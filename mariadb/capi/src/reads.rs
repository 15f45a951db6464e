// SPDX-License-Identifier: GPL-2.0-only
//! Rows by their keys, entries as the server judges them, and the errors that come of both.

use std::cell::Cell;

use trefoil::{EntryRef, Judged, Locking, RowRef, Transaction, Value};

use crate::column_set::ColumnSet;
use crate::failure::{Code, Failure, Result};
use crate::layout::Layout;
use crate::raw::{Judge, Slot, Tag};
use crate::session::Session;
use crate::table::OpenTable;

/// What the server says of an entry.
pub fn judged(
    layout: &Layout,
    (judge, tag): (Judge, Tag),
    record: Slot,
    entry: EntryRef<'_>,
    failed: &Cell<Option<Box<Failure>>>,
) -> trefoil::Result<Judged> {
    // The record points to them while the server looks at it.
    let mut blobs = Vec::new();
    let mut ask = || -> Result<i32, Met> {
        record.write(|record| {
            layout.put_defaults(record);
            layout.put(&ColumnSet::default(), record, &mut blobs, |filling| entry.visit(filling))
        })?;
        if !judge.wants_refs {
            return Ok(judge.ask(tag, None));
        }
        let mut reference = vec![0; layout.ref_bytes()];
        let values = entry.values()?;
        let primary = &values[values.len() - layout.schema.primary_key().len()..];
        layout.put_ref(primary, &mut Vec::new(), &mut reference)?;
        Ok(judge.ask(tag, Some(&reference)))
    };
    match ask() {
        Err(Met::Engine(error)) => return Err(error),
        Err(Met::Own(failure)) => failed.set(Some(failure)),
        Ok(0) => return Ok(Judged::Pass),
        Ok(1) => return Ok(Judged::Take),
        Ok(2) => {}
        Ok(_) => failed.set(Some(Failure::new(Code::Cancelled, "the statement was ended"))),
    }
    Ok(Judged::End)
}

/// An error of the engine, which may have ended the transaction, or of this crate.
pub enum Met {
    Engine(trefoil::Error),
    Own(Box<Failure>),
}

impl From<trefoil::Error> for Met {
    fn from(error: trefoil::Error) -> Self {
        Met::Engine(error)
    }
}

impl From<Box<Failure>> for Met {
    fn from(failure: Box<Failure>) -> Self {
        Met::Own(failure)
    }
}

impl Session {
    pub fn met_or<T>(&mut self, outcome: Result<T, Met>) -> Result<T> {
        match outcome {
            Ok(it) => Ok(it),
            Err(Met::Own(failure)) => Err(failure),
            Err(Met::Engine(error)) => self.met(Err(error)),
        }
    }
}

/// Calls `with` for the rows that have one of these primary keys.
pub fn read_rows(
    tx: &Transaction,
    table: &OpenTable,
    keys: &[&[Value<'_>]],
    locking: Option<Locking>,
    mut with: impl FnMut(usize, RowRef<'_>) -> Result<(), Met>,
) -> Result<(), Met> {
    let mut outcome = Ok(());
    let Some(locking) = locking else {
        tx.get_rows(&table.table, keys, |at, row| {
            if outcome.is_ok() {
                outcome = with(at, row);
            }
            Ok(())
        })?;
        return outcome;
    };
    for (at, key) in keys.iter().enumerate() {
        let read = tx.get_row_locked_with(&table.table, key, locking, |row| Ok(with(at, row)))?;
        read.unwrap_or(Ok(()))?;
    }
    Ok(())
}
