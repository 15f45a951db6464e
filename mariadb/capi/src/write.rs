// SPDX-License-Identifier: GPL-2.0-only
//! Rows written.

use std::ops::Bound;

use trefoil::{Error, Locking, Value};

use crate::cursor::{Cursor, Start};
use crate::failure::{Code, Done, Failure, Result};
use crate::foreign;
use crate::layout::Way;
use crate::raw::Record;
use crate::session::Session;
use crate::table::OpenTable;

pub fn insert(session: &mut Session, cursor: &mut Cursor, record: Record<'_>) -> Result<()> {
    let table = &cursor.table;
    let row = if table.layout.has_row_numbers() { table.next_row()? } else { 0 };
    let values = table.layout.values(record, row);
    let outcome = session.tx_mut()?.insert(&table.table, &values);
    met(session, table, outcome)?;
    table.changed(1);
    session.wrote_row();
    cursor.row = row;
    Ok(())
}

/// Of a row whose primary key changes the old one goes and a new one comes.
pub fn update(session: &mut Session, cursor: &mut Cursor, old: Record<'_>, new: Record<'_>) -> Result<Done> {
    let (table, layout) = (&cursor.table, &cursor.table.layout);
    let values = layout.values(new, cursor.row);
    if layout.values(old, cursor.row) == values {
        return Ok(Done::Same);
    }
    let (from, to) = (layout.primary_values(old, cursor.row), layout.primary_values(new, cursor.row));
    let stays = layout.is_same_primary(&from, &to)?;
    give_up(session, table, old, Some(new))?;
    let before = session.writes();
    let tx = session.tx_mut()?;
    let outcome = match stays {
        true => tx.update(&table.table, &values),
        false => tx.move_row(&table.table, &from, &values),
    };
    match met(session, table, outcome)? {
        true => {
            table.changed(0);
            session.wrote_row();
            if !foreign::acts_on_others(&table.db, table.table.name()) {
                cursor.wrote(&from, before, session);
            }
        }
        false => return Err(gone()),
    }
    Ok(Done::Ok)
}

pub fn delete(session: &mut Session, cursor: &mut Cursor, record: Record<'_>) -> Result<()> {
    let table = &cursor.table;
    let key = table.layout.primary_values(record, cursor.row);
    give_up(session, table, record, None)?;
    let acts = foreign::acts_on_others(&table.db, table.table.name());
    let before = session.writes();
    let outcome = session.tx_mut()?.delete_row(&table.table, &key);
    match met(session, table, outcome)? {
        true => {
            table.changed(-1);
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
            return Err(Failure::new(Code::ForeignDuplicate, &format!("{}\n{}", taken.table, taken.index)));
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
