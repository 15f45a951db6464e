//! What becomes of the children of a row that was deleted, or got another key: behind the write of that row, by its transaction,
//! through the same writes as any other change of theirs.
//!
//! Steps, for each foreign key to the table whose values the row had and has no more:
//! 1. find its children ([`Transaction::rows_with`]), in the order of their index: all of them before the first is written, since
//!    what is done to one may move the entry of another; some at a time if none is to be written, of one moment all the same;
//! 2. lock each and look at it again: one that has gone elsewhere meanwhile is passed;
//! 3. refuse, delete them, or write them with other values, and so on for *their* children.
//!
//! As in InnoDB a chain of steps is at most [`DEPTH_MAX`] long, the statement's own change among them, and one that comes back to a
//! table which it has *updated* is refused as if it were RESTRICT; deletes may come back. All of it is undone with its statement.

use std::sync::Arc;

use base::IndexId;
use index::ReadAt;

use super::foreign::{columns_in, failure, values_of};
use crate::entry::{TableEntry, TableShape};
use crate::error::{ForeignKeyFailureKind, Result};
use crate::foreign;
use crate::locking::Locking;
use crate::table::{ForeignKey, OwnedValue, ReferenceAction, Value};
use crate::transaction::Transaction;

/// Longest chain of changes.
const DEPTH_MAX: usize = 15;
/// Children that are looked for at a time, to refuse.
const CHUNK: usize = 256;

/// One change of a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    table: IndexId,
    deletes: bool,
}

fn restricts(action: ReferenceAction) -> bool {
    matches!(action, ReferenceAction::Restrict | ReferenceAction::NoAction)
}

/// Children of one row by one foreign key.
struct Downward<'a> {
    foreign: &'a ForeignKey,
    child: &'a Arc<TableEntry>,
    shape: &'a Arc<TableShape>,
    /// Its columns.
    columns: &'a [usize],
    /// What the row had there.
    old: &'a [OwnedValue],
    /// What it has; none: it is gone.
    new: Option<&'a [OwnedValue]>,
}

impl Transaction {
    /// F2 behind the write of a row: `old` is what was stored, `new` what the row is now.
    pub(super) fn act_on_children(
        &mut self,
        shape: &Arc<TableShape>,
        old: (&[u8], &[u8]),
        new: Option<&[Value<'_>]>,
    ) -> Result<()> {
        if !self.keeps_foreign_keys() {
            return Ok(());
        }
        let table = self.entry_of(shape);
        let children = foreign::downwards(&self.engine.names.read(), table.name());
        if children.is_empty() {
            return Ok(());
        }
        self.steps.push(Step { table: table.id, deletes: new.is_none() });
        let done = children.iter().try_for_each(|(child, foreign)| self.act_on(shape, child, foreign, old, new));
        self.steps.pop();
        done
    }

    fn act_on(
        &mut self,
        parent: &Arc<TableShape>,
        child: &Arc<TableEntry>,
        foreign: &ForeignKey,
        (key, stored): (&[u8], &[u8]),
        new: Option<&[Value<'_>]>,
    ) -> Result<()> {
        let shape = match self.open_table(child, true) {
            Err(crate::Error::Dropped { .. }) => return Ok(()),
            opened => opened?,
        };
        // As it is behind the gate: it may have got other columns while this waited there.
        let foreign = shape.def.schema.foreign_keys().iter().find(|now| now.name() == foreign.name());
        let Some(foreign) = foreign else { return Ok(()) };
        // Of another kind than the parent, since nobody checked: it refers to nothing.
        let Ok(referenced) = foreign::bind(foreign, &shape.def.schema, &parent.def.schema) else { return Ok(()) };
        let Some(columns) = columns_in(&shape.def.schema, foreign) else { return Ok(()) };
        let old = values_of(&parent.def.schema, &referenced, key, stored)?;
        let new = new.map(|row| referenced.iter().map(|&n| row[n].clone().into_owned()).collect::<Vec<_>>());
        if old.iter().any(Value::is_null) || new.as_ref() == Some(&old) {
            return Ok(());
        }
        let action = if new.is_none() { foreign.deletes() } else { foreign.updates() };
        // Its own parent: to RESTRICT a child like another, as in InnoDB.
        if restricts(action)
            && shape.def.id == parent.def.id
            && shape.def.schema.same_key(&columns, &values_of(&shape.def.schema, &columns, key, stored)?, &old)?
        {
            return Err(failure(ForeignKeyFailureKind::HasChildren, foreign, child, &old));
        }
        let (columns, old, new) = (columns.as_slice(), old.as_slice(), new.as_deref());
        self.act_on_rows(&Downward { foreign, child, shape: &shape, columns, old, new })
    }

    fn act_on_rows(&mut self, at: &Downward<'_>) -> Result<()> {
        let action = if at.new.is_none() { at.foreign.deletes() } else { at.foreign.updates() };
        let limit = if restricts(action) { CHUNK } else { usize::MAX };
        let moment = self.moment()?;
        let mut behind: Option<Vec<u8>> = None;
        loop {
            let read = ReadAt::Snapshot(moment.ts());
            let found = self.rows_with(at.shape, at.columns, at.old, read, behind.as_deref(), limit)?;
            let is_last = found.len() < limit;
            vfs::thread::point("foreign.children_found");
            for (key, _) in &found {
                self.act_on_row(at, key)?;
            }
            behind = found.into_iter().last().map(|(_, entry)| entry);
            if is_last {
                return Ok(());
            }
        }
    }

    /// Steps 2 and 3 for one row.
    fn act_on_row(&mut self, at: &Downward<'_>, key: &[u8]) -> Result<()> {
        let action = if at.new.is_none() { at.foreign.deletes() } else { at.foreign.updates() };
        let restricts = restricts(action);
        let locking = if restricts { Locking::SHARED } else { Locking::EXCLUSIVE };
        self.lock_to_keep(&at.shape.primary, key, locking)?;
        let mut stored = None;
        self.read_newest(&at.shape.primary, &[key], &mut |_, value| stored = Some(value.to_vec()))?;
        let schema = &at.shape.def.schema;
        let Some(stored) = stored else { return Ok(()) };
        if !schema.same_key(at.columns, &values_of(schema, at.columns, key, &stored)?, at.old)? {
            return Ok(());
        }
        let refuse = |kind| Err(failure(kind, at.foreign, at.child, at.old));
        let deletes = at.new.is_none() && action == ReferenceAction::Cascade;
        let comes_back = self.steps.iter().any(|step| step.table == at.child.id && !step.deletes);
        if restricts || (!deletes && comes_back) {
            return refuse(ForeignKeyFailureKind::HasChildren);
        }
        if self.steps.len() >= DEPTH_MAX {
            return refuse(ForeignKeyFailureKind::TooDeep);
        }
        if deletes {
            return self.delete_keys(at.shape, &[key.to_vec()]).map(drop);
        }
        let mut row = schema.decode_row(key, &stored)?;
        for (n, &column) in at.columns.iter().enumerate() {
            row[column] = match at.new.filter(|_| action == ReferenceAction::Cascade) {
                Some(new) if !schema.has_room(at.foreign, n, &new[n])? => {
                    return refuse(ForeignKeyFailureKind::HasChildren);
                }
                // NULL at the parent, where the child may not have it.
                Some(new) if new[n].is_null() && !schema.columns()[column].nullable => {
                    return refuse(ForeignKeyFailureKind::HasChildren);
                }
                Some(new) => new[n].clone(),
                None => Value::Null,
            };
        }
        self.write_moved(at.shape, key, &stored, &row).map(drop)
    }
}
