// SPDX-License-Identifier: GPL-2.0-only
//! Rows written.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use trefoil::{Error, Locking, Value};

use crate::cursor::{Cursor, Start};
use crate::failure::{Code, Done, Failure, Result};
use crate::layout::Way;
use crate::raw::Record;
use crate::session::Session;
use crate::table::OpenTable;

pub fn insert(session: &mut Session, cursor: &mut Cursor, record: Record<'_>) -> Result<()> {
    let table = &cursor.table;
    let row = if table.layout.has_row_numbers() { table.next_row()? } else { 0 };
    let values = table.layout.values(record, row);
    // No foreign key has others come with a row.
    let outcome = session.tx_to_write(table.number(), false)?.insert(&table.table, &values);
    met(session, table, outcome)?;
    cursor.changed(1);
    session.wrote_row();
    cursor.row = row;
    Ok(())
}

/// Of a row whose primary key changes the old one goes and a new one comes.
pub fn update(session: &mut Session, cursor: &mut Cursor, old: Record<'_>, new: Record<'_>) -> Result<Done> {
    let before = cursor.settle(session);
    let (table, layout) = (&cursor.table, &cursor.table.layout);
    let values = layout.values(new, cursor.row);
    if layout.values(old, cursor.row) == values {
        return Ok(Done::Same);
    }
    let (from, to) = (layout.primary_values(old, cursor.row), layout.primary_values(new, cursor.row));
    let stays = layout.is_same_primary(&from, &to)?;
    give_up(session, table, old, Some(new))?;
    let acts = table.acts_on_others();
    let tx = session.tx_to_write(table.number(), acts)?;
    let outcome = match stays {
        true => tx.update(&table.table, &values),
        false => tx.move_row(&table.table, &from, &values),
    };
    match met(session, table, outcome)? {
        true => {
            cursor.changed(0);
            session.wrote_row();
            if !acts {
                cursor.wrote(&from, before, session);
            }
        }
        false => return Err(gone()),
    }
    Ok(Done::Ok)
}

pub fn delete(session: &mut Session, cursor: &mut Cursor, record: Record<'_>) -> Result<()> {
    let before = cursor.settle(session);
    let table = &cursor.table;
    let key = table.layout.primary_values(record, cursor.row);
    give_up(session, table, record, None)?;
    let acts = table.acts_on_others();
    let outcome = session.tx_to_write(table.number(), acts)?.delete_row(&table.table, &key);
    match met(session, table, outcome)? {
        true => {
            cursor.changed(-1);
            session.wrote_row();
            if !acts {
                cursor.wrote(&key, before, session);
            }
        }
        // Read by the statement, and deleted by it since, with a row that it refers to: InnoDB passes it.
        false if acts => {}
        false => return Err(gone()),
    }
    Ok(())
}

/// A row as the log of a primary has it, in the place of the one with this primary key, which the server has not read. Nobody reads it
/// where the row is all that its table keeps of it; else the engine does, and what the row was is what stands there.
pub fn apply_update(session: &mut Session, cursor: &mut Cursor, key: &[Value<'_>], new: Record<'_>) -> Result<Done> {
    let (table, layout) = (&cursor.table, &cursor.table.layout);
    let (values, to) = (layout.values(new, 0), layout.primary_values(new, 0));
    let stays = layout.is_same_primary(key, &to)?;
    let tx = session.tx_to_write(table.number(), table.acts_on_others())?;
    let is_unread = if stays { tx.put_row(&table.table, &values) } else { Ok(false) };
    let outcome = is_unread.and_then(|is_unread| match (is_unread, stays) {
        (true, _) => Ok(Some(2)),
        (false, true) => tx.update(&table.table, &values).map(|there| there.then_some(1)),
        (false, false) => tx.move_row(&table.table, key, &values).map(|there| there.then_some(1)),
    });
    applied(session, cursor, outcome, 0)
}

/// The same of a row that goes.
pub fn apply_delete(session: &mut Session, cursor: &mut Cursor, key: &[Value<'_>]) -> Result<Done> {
    let table = &cursor.table;
    let tx = session.tx_to_write(table.number(), table.acts_on_others())?;
    let outcome = tx.remove_row(&table.table, key).and_then(|is_unread| match is_unread {
        true => Ok(Some(2)),
        false => tx.delete_row(&table.table, key).map(|there| there.then_some(1)),
    });
    applied(session, cursor, outcome, -1)
}

/// With so many reads left out of the two that a row takes otherwise, the server's and the engine's. None: the row is not there.
fn applied(
    session: &mut Session,
    cursor: &mut Cursor,
    outcome: trefoil::Result<Option<u64>>,
    rows: i64,
) -> Result<Done> {
    let Some(reads) = met(session, &cursor.table, outcome)? else { return Ok(Done::NotFound) };
    session.engine().reads_left_out.fetch_add(reads, Ordering::Relaxed);
    cursor.changed(rows);
    session.wrote_row();
    Ok(Done::Ok)
}

/// Before the server looks for a value that no two rows may have: whoever else wants it waits.
pub fn claim(session: &mut Session, table: &OpenTable, start: &Start) -> Result<()> {
    let (Way::Secondary(n), Bound::Included(values)) = (start.way, &start.low) else { return Ok(()) };
    let outcome = session.tx()?.lock_index_value(&table.table, table.layout.index_name(n), values, Locking::EXCLUSIVE);
    session.met(outcome).map(|_| ())
}

/// Such values that a row loses are locked as well: who looks for them then waits for one thing only.
fn give_up(session: &mut Session, table: &OpenTable, old: Record<'_>, new: Option<Record<'_>>) -> Result<()> {
    let kept: Vec<_> = new.into_iter().flat_map(|new| table.layout.claimed(new)).collect();
    for (index, values) in table.layout.claimed(old) {
        if values.iter().any(Value::is_null) || kept.contains(&(index, values.clone())) {
            continue;
        }
        let outcome = session.tx()?.lock_index_value(&table.table, index, &values, Locking::EXCLUSIVE);
        session.met(outcome)?;
    }
    Ok(())
}

/// The number of the key goes with a duplicate.
fn met<T>(session: &mut Session, table: &OpenTable, outcome: trefoil::Result<T>) -> Result<T> {
    let key = match &outcome {
        Err(Error::DuplicateKey(taken)) if taken.table != table.table.name() => {
            let key = if taken.index == "primary" { "PRIMARY" } else { &taken.index };
            return Err(Failure::new(Code::ForeignDuplicate, &format!("{}\n{key}", taken.table)));
        }
        Err(Error::DuplicateKey(taken)) => table.layout.key_number(&taken.index),
        _ => None,
    };
    session.met(outcome).map_err(|failure| match key {
        Some(key) => failure.of_key(key),
        None => failure,
    })
}

fn gone() -> Box<Failure> {
    Failure::new(Code::Definition, "the row is not there any more")
}
