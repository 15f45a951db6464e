//! What rows of each version of a table store.
//!
//! Columns are added, dropped and moved without touching a row: a row says its version, and the schema remembers what rows
//! of each version store, as numbers that columns get once and keep. So a stored column is found by its number wherever
//! the table has it by now, passed over if the table has it no more, and a column that came later has the value
//! remembered for it. A row is written in the newest version.
//!
//! A table whose columns were never changed has no [`Versions`]: its rows are of version 0, and store its columns.
//!
//! Invariants, checked by [`Versions::check`]: rows of the newest version store the table's columns that the primary key does
//! not hold, in their order; what rows of an older one store is such a column of the table or dropped, each once; a
//! column that some rows do not store may be NULL or has a value for them, and none that the primary key holds has one: its
//! value is the key's.

use std::collections::{BTreeMap, BTreeSet};

use base::bytes::{Reader, put_bytes, put_varint};
use base::{Fault, Result};

use super::column::{Column, ColumnType};
use super::parts::Parts;
use super::row::{self, Columns, Kind, VERSIONS_MAX};
use super::schema::COLUMNS_MAX;
use super::typed::FromColumn;
use super::value::Value;

const NULLABLE: u8 = 1;

/// The number of a column: of its table, never given twice.
pub(super) type ColumnId = u32;

/// What rows of each version store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Versions {
    /// The columns of the table, in its order.
    pub ids: Vec<ColumnId>,
    /// All numbers ever given are below.
    pub next_id: ColumnId,
    /// What rows have that do not store the column, encoded as in a row; NULL if it is not here.
    pub values: BTreeMap<ColumnId, Vec<u8>>,
    /// Columns that the table has no more, and rows of some version store.
    pub dropped: BTreeMap<ColumnId, Kind>,
    /// For each version, the columns that its rows store.
    pub stored: Vec<Vec<ColumnId>>,
}

impl Versions {
    /// Of a table whose columns were never changed.
    pub(super) fn first(parts: &Parts) -> Self {
        let ids: Vec<ColumnId> = (0..parts.columns.len() as ColumnId).collect();
        let stored = stored(&ids, &parts.held());
        let next_id = ids.len() as ColumnId;
        Self { ids, next_id, values: BTreeMap::new(), dropped: BTreeMap::new(), stored: vec![stored] }
    }

    /// The newest version.
    pub(super) fn newest(&self) -> u8 {
        u8::try_from(self.stored.len() - 1).expect("versions are limited")
    }

    /// A number for a new column.
    pub(super) fn new_id(&mut self) -> Result<ColumnId> {
        let id = self.next_id;
        let limit = || Fault::Limit {
            what: "columns that a table ever had (copy its rows into a new table)",
            limit: ColumnId::MAX.into(),
            got: u64::from(id) + 1,
        };
        self.next_id = id.checked_add(1).ok_or_else(limit)?;
        Ok(id)
    }

    /// A new version, if rows are to store other columns than before.
    pub(super) fn advance(&mut self, held: &[usize]) -> Result<()> {
        let stored = stored(&self.ids, held);
        if self.stored.last() == Some(&stored) {
            return Ok(());
        }
        if self.stored.len() == VERSIONS_MAX {
            let what = "versions of a table's rows (copy the rows into a new table, which begins anew)";
            return Err(Fault::Limit { what, limit: VERSIONS_MAX as u64, got: VERSIONS_MAX as u64 + 1 });
        }
        self.stored.push(stored);
        Ok(())
    }

    /// The invariants.
    pub(super) fn check(&self, columns: &[Column], held: &[usize]) -> Result<()> {
        let invalid = |why: &str| Err(Fault::Invalid(format!("the versions of the table's rows: {why}")));
        let distinct: BTreeSet<_> = self.ids.iter().chain(self.dropped.keys()).collect();
        if self.ids.len() != columns.len() || distinct.len() != self.ids.len() + self.dropped.len() {
            return invalid("a column has no number of its own");
        }
        if distinct.last().is_some_and(|id| **id >= self.next_id) {
            return invalid("a column has a number that was not given yet");
        }
        if self.stored.is_empty() || self.stored.len() > VERSIONS_MAX {
            return invalid("too many");
        }
        if self.stored.last() != Some(&stored(&self.ids, held)) {
            return invalid("the newest does not store the table's columns");
        }
        let newest: BTreeSet<_> = self.stored.last().into_iter().flatten().collect();
        for ids in &self.stored {
            let here: BTreeSet<_> = ids.iter().collect();
            if here.len() != ids.len() || here.iter().any(|id| !newest.contains(id) && !self.dropped.contains_key(id)) {
                return invalid("one stores a column twice, or one that is not known");
            }
            for (column, id) in columns.iter().zip(&self.ids) {
                let absent = newest.contains(id) && !here.contains(id);
                if absent && !column.nullable && !self.values.contains_key(id) {
                    return invalid("one does not store a column that has no value otherwise");
                }
            }
        }
        for (id, bytes) in &self.values {
            let column = self.ids.iter().position(|i| i == id).filter(|n| !held.contains(n)).map(|n| &columns[n]);
            if column.is_none_or(|column| row::read_value(bytes, column.column_type).is_none()) {
                return invalid("a value is not one of its column");
            }
        }
        Ok(())
    }

    /// How rows of the versions before the newest are read.
    pub(super) fn layouts(&self, columns: &[Column]) -> Vec<Layout> {
        let places: BTreeMap<ColumnId, usize> = self.ids.iter().enumerate().map(|(n, id)| (*id, n)).collect();
        let older = &self.stored[..self.stored.len() - 1];
        older.iter().map(|ids| self.layout(ids, &places, columns)).collect()
    }

    fn layout(&self, ids: &[ColumnId], places: &BTreeMap<ColumnId, usize>, columns: &[Column]) -> Layout {
        let field = |id: &ColumnId| match places.get(id) {
            Some(&n) => (Kind::from(&columns[n]), Some(n as u16)),
            None => (self.dropped[id], None),
        };
        let fields: Vec<_> = ids.iter().map(field).collect();
        let mut nullable = vec![0];
        for (kind, _) in &fields {
            nullable.push(nullable[nullable.len() - 1] + usize::from(kind.nullable));
        }
        let here: BTreeSet<_> = ids.iter().collect();
        let filled = self.values.iter().filter(|(id, _)| !here.contains(id)).map(|(id, bytes)| {
            let n = places[id];
            (n, columns[n].column_type, bytes.clone())
        });
        Layout { filled: filled.collect(), fields, nullable }
    }

    /// Appends its form in the catalog.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.next_id));
        self.ids.iter().for_each(|&id| put_varint(out, u64::from(id)));
        put_varint(out, self.values.len() as u64);
        for (id, bytes) in &self.values {
            put_varint(out, u64::from(*id));
            put_bytes(out, bytes);
        }
        put_varint(out, self.dropped.len() as u64);
        for (id, kind) in &self.dropped {
            put_varint(out, u64::from(*id));
            kind.column_type.encode(out);
            out.push(if kind.nullable { NULLABLE } else { 0 });
        }
        put_varint(out, self.stored.len() as u64);
        for ids in &self.stored {
            let runs: Vec<&[ColumnId]> = ids.chunk_by(|a, b| a.checked_add(1) == Some(*b)).collect();
            put_varint(out, runs.len() as u64);
            for run in runs {
                put_varint(out, u64::from(run[0]));
                put_varint(out, run.len() as u64);
            }
        }
    }

    /// Reads what [`Versions::encode`] wrote, of a table of so many columns. `None` on malformed bytes.
    pub(super) fn decode(reader: &mut Reader<'_>, columns: usize) -> Option<Self> {
        let next_id = take_id(reader)?;
        let ids = (0..columns).map(|_| take_id(reader)).collect::<Option<Vec<_>>>()?;
        let mut values = BTreeMap::new();
        for _ in 0..reader.length().filter(|&n| n <= COLUMNS_MAX)? {
            values.insert(take_id(reader)?, reader.bytes()?.to_vec());
        }
        let mut dropped = BTreeMap::new();
        for _ in 0..reader.length().filter(|&n| n <= VERSIONS_MAX * COLUMNS_MAX)? {
            let (id, column_type) = (take_id(reader)?, ColumnType::decode(reader)?);
            let flags = reader.u8().filter(|flags| flags & !NULLABLE == 0)?;
            dropped.insert(id, Kind { column_type, nullable: flags != 0 });
        }
        let versions = reader.length().filter(|&n| (1..=VERSIONS_MAX).contains(&n))?;
        let stored = (0..versions).map(|_| take_stored(reader)).collect::<Option<_>>()?;
        Some(Self { ids, next_id, values, dropped, stored })
    }
}

/// The columns that the primary key does not hold.
fn stored(ids: &[ColumnId], held: &[usize]) -> Vec<ColumnId> {
    ids.iter().enumerate().filter(|(n, _)| !held.contains(n)).map(|(_, id)| *id).collect()
}

fn take_id(reader: &mut Reader<'_>) -> Option<ColumnId> {
    ColumnId::try_from(reader.varint()?).ok()
}

fn take_stored(reader: &mut Reader<'_>) -> Option<Vec<ColumnId>> {
    let mut ids = Vec::new();
    for _ in 0..reader.length().filter(|&n| n <= COLUMNS_MAX)? {
        let (first, length) = (take_id(reader)?, take_id(reader)?);
        let end = first.checked_add(length)?;
        if length == 0 || ids.len() + length as usize > COLUMNS_MAX {
            return None;
        }
        ids.extend(first..end);
    }
    Some(ids)
}

/// How rows of an older version are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// What they store, in order; the number that the column has in the table now, none if it was dropped.
    fields: Vec<(Kind, Option<u16>)>,
    /// How many of the first `n` may be NULL, for every `n`.
    nullable: Vec<usize>,
    /// What they do not store and is not NULL: number of the column, and its value as in a row.
    filled: Vec<(usize, ColumnType, Vec<u8>)>,
}

impl Layout {
    /// The values of a row of version `version`, each put where `slot` wants the column of its number; the others are passed
    /// over. Where nothing is put, the column is NULL. `None` on malformed bytes.
    pub(super) fn read<'a>(
        &self,
        version: u8,
        row: &'a [u8],
        slot: impl Fn(usize) -> Option<usize>,
        values: &mut [Value<'a>],
    ) -> Option<()> {
        let mut stored = Columns::new(row, version, &self.nullable)?;
        for &(kind, column) in &self.fields {
            match column.and_then(|n| slot(n.into())) {
                Some(at) => values[at] = stored.next(kind)?,
                None => stored.skip(kind)?,
            }
        }
        for (column, column_type, bytes) in &self.filled {
            if let Some(at) = slot(*column) {
                values[at] = row::read_value(bytes, *column_type)?.into_owned();
            }
        }
        stored.is_empty().then_some(())
    }

    /// The column of this number, which is not in the primary key.
    pub(super) fn column<'a, T: FromColumn<'a>>(&self, version: u8, row: &'a [u8], wanted: usize) -> Option<T> {
        let mut stored = Columns::new(row, version, &self.nullable)?;
        for &(kind, column) in &self.fields {
            if column.map(usize::from) == Some(wanted) {
                return stored.next_as();
            }
            stored.skip(kind)?;
        }
        match self.filled.iter().find(|(column, ..)| *column == wanted) {
            Some((_, column_type, bytes)) => T::from_value(row::read_value(bytes, *column_type)?.into_owned()),
            None => T::NULL,
        }
    }
}
