//! Locks of keys that foreign keys refer to, taken again after a restart for what is prepared: nothing in the log says which they
//! were, so they follow from what it writes (rules F1 and F2 of [`crate::rows`]' foreign keys).
//!
//! 1. Exclusively, for all that is prepared: keys that come or go with rows of a parent, as far as they are not primary keys, which
//!    have the locks of their rows by then.
//! 2. Shared: keys that new or changed rows of a child refer to.
//!
//! Whichever another one has is left: before the restart both held theirs, so this one did not hold it. It may be one lock more than
//! before (of a row written without checks): somebody waits for nothing, never the other way round.

use std::sync::Arc;

use base::Result;
use index::ReadAt;
use txn::Mode;

use super::registry::{Form, SetShare};
use crate::catalog::Role;
use crate::engine::Engine;
use crate::entry::{IndexEntry, TableEntry, TableShape};
use crate::foreign;
use crate::rows::name_of;
use crate::table::{OwnedValue, Schema, Value};
use crate::transaction::Held;

/// A list of columns, and where it is looked for: a table's own, or its parent's.
struct Reference {
    own: Vec<usize>,
    parent: Arc<TableShape>,
    columns: Vec<usize>,
    /// To be entered.
    table: Option<Arc<TableEntry>>,
}

/// Step 1, or with [`Mode::Shared`] step 2, for one transaction.
pub fn retake(engine: &Arc<Engine>, held: &mut Held, shares: &[SetShare], mode: Mode) -> Result<()> {
    for share in shares.iter().filter(|share| share.entry.def.role == Role::Primary) {
        let table = engine.names.read().tables.values().find(|table| table.id == share.entry.id()).cloned();
        let Some(table) = table else { continue };
        let references = match mode {
            Mode::Shared => upwards(engine, &table),
            _ => downwards(engine, &table),
        };
        if references.is_empty() {
            continue;
        }
        let shape = table.shape();
        match &share.form {
            Form::Inline(batch) => {
                for (key, op) in batch.iter() {
                    one(engine, held, (&share.entry, &shape.def.schema), &references, (key, op.value()), mode)?;
                }
            }
            Form::File(meta) => {
                let run = engine.open_run(meta)?;
                let mut cursor = run.cursor();
                let mut more = cursor.seek_first()?;
                while more {
                    let value = cursor.value()?;
                    let (key, value) = (cursor.key(), value.as_deref());
                    one(engine, held, (&share.entry, &shape.def.schema), &references, (key, value), mode)?;
                    more = cursor.next()?;
                }
            }
        }
    }
    Ok(())
}

fn downwards(engine: &Engine, table: &Arc<TableEntry>) -> Vec<Reference> {
    let parent = table.shape();
    let lists = foreign::referenced(&engine.names.read(), table.name(), &parent.def.schema);
    let others = lists.into_iter().filter(|columns| !parent.def.schema.has_whole_primary_key(columns));
    others.map(|columns| Reference { own: columns.clone(), parent: parent.clone(), columns, table: None }).collect()
}

fn upwards(engine: &Engine, table: &Arc<TableEntry>) -> Vec<Reference> {
    let (names, shape) = (engine.names.read(), table.shape());
    let reference = |(foreign, parent, columns): (crate::ForeignKey, Arc<TableShape>, Vec<usize>)| {
        let own = foreign.columns().iter().map(|name| shape.def.schema.column_number(name)).collect::<Option<_>>()?;
        Some(Reference { own, parent, columns, table: names.tables.get(foreign.parent()).cloned() })
    };
    foreign::bound(&names, table, shape.def.schema.foreign_keys()).into_iter().filter_map(reference).collect()
}

fn one(
    engine: &Arc<Engine>,
    held: &mut Held,
    (entry, schema): (&IndexEntry, &Schema),
    references: &[Reference],
    (key, value): (&[u8], Option<&[u8]>),
    mode: Mode,
) -> Result<()> {
    let mut before = None;
    entry.index.get_many(ReadAt::Newest, &[key], &mut |_, _, value| before = Some(value.to_vec()))?;
    for Reference { own, parent, columns, table } in references {
        let values = |stored: &[u8]| -> Result<Vec<OwnedValue>> {
            Ok(schema.columns_of(own, key, stored)?.into_iter().map(Value::into_owned).collect())
        };
        let old = before.as_deref().map(values).transpose()?;
        let new = value.map(values).transpose()?;
        if old == new {
            continue;
        }
        let old = old.filter(|_| mode != Mode::Shared);
        for values in [old, new].into_iter().flatten().filter(|values| !values.iter().any(Value::is_null)) {
            // Without the collations of the key nobody writes to these tables.
            let Ok(name) = name_of(&parent.def.schema, columns, &values) else { continue };
            held.lock_reference(engine, parent.primary.id(), &name, mode);
            table.iter().for_each(|table| held.enter(table));
        }
    }
    Ok(())
}
