//! What a schema is made of, its checks, and what follows from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Fault, Result};

use super::collation::Provider;
use super::column::{Column, ColumnType};
use super::foreign_key::ForeignKey;
use super::index_schema::{IndexSchema, PartOptions};
use super::part::{Image, Part, is_string};
use super::schema::{COLUMNS_MAX, INDEXES_MAX, KEY_COLUMNS_MAX, NAME_BYTES_MAX, Schema};
use super::typed;
use super::versions::{Layout, Versions};
use super::way::Way;
use crate::options::IndexOptions;

/// Everything about a schema; behind an `Arc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) columns: Vec<Column>,
    /// Numbers of the primary key's columns, in key order.
    pub(super) primary: Vec<usize>,
    /// What else there is to say of them.
    pub(super) primary_parts: Vec<PartOptions>,
    pub(super) primary_options: IndexOptions,
    pub(super) indexes: Vec<IndexSchema>,
    pub(super) foreign_keys: Vec<ForeignKey>,
    /// What rows of each version store, once there are several.
    pub(super) versions: Option<Versions>,
    pub(super) collations: Provider,
    pub(super) derived: Derived,
}

/// Where a column is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// The so many-th of the primary key.
    Key(usize),
    /// The so many-th of a stored row, and the way there.
    Stored(usize, Option<Way>),
}

/// What follows from the rest of a schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Derived {
    /// The version that rows are written in.
    pub version: u8,
    /// What rows of the versions before store.
    pub old: Vec<Layout>,
    /// Numbers of the columns that the primary key does not hold, ascending: what a row stores.
    pub stored: Vec<usize>,
    /// How many of the first `n` stored columns may be NULL, for every `n`.
    pub nullable_stored: Vec<usize>,
    /// The parts of the primary key.
    pub primary_parts: Vec<Part>,
    /// Per index, the numbers of its columns.
    pub index_columns: Vec<Vec<usize>>,
    /// Per index, its parts.
    pub index_parts: Vec<Vec<Part>>,
    /// Per index, the numbers of the columns that are in its entries and no part of them holds: what the value of an entry
    /// stores.
    pub beside: Vec<Vec<usize>>,
    /// Per index, whether there is nothing to its entries but what module `key` does, and nothing in their values.
    pub is_plain: Vec<bool>,
    /// Numbers of the unique indexes, ascending.
    pub unique: Vec<usize>,
    /// Of which type each column is ([`typed::code`]), and where.
    pub places: Vec<(u8, Place)>,
    /// What a tuple must be to be read from a row ([`typed::signature`]).
    pub signature: u128,
    /// The same for an entry of each index: its columns, then the primary key's.
    pub entry_signatures: Vec<u128>,
    /// The columns of the primary key are the first of the table, in its order, whole and ascending.
    pub key_leads: bool,
}

impl Parts {
    /// Checks the invariants and fills in what is derived.
    pub(super) fn checked(mut self) -> Result<Schema> {
        limit("columns of a table", COLUMNS_MAX, self.columns.len())?;
        if let Some(column) = self.columns.iter().find(|column| column.column_type == ColumnType::Fixed(0)) {
            return invalid(format!("column {:?} is 0 bytes wide", column.name));
        }
        let collates = |column: &&Column| column.collation.is_some() && !is_string(column.column_type);
        if let Some(column) = self.columns.iter().find(collates) {
            return invalid(format!("column {:?} is {:?} and has no collation", column.name, column.column_type));
        }
        limit("secondary indexes of a table", INDEXES_MAX, self.indexes.len())?;
        check_names("column", self.columns.iter().map(|c| c.name.as_str()))?;
        check_names("index", self.indexes.iter().map(|i| i.name.as_str()))?;
        if self.primary.is_empty() {
            return invalid("a table needs a primary key of at least one column");
        }
        self.check_key("the primary key", &self.primary, &self.primary_parts)?;
        if let Some(&n) = self.primary.iter().find(|&&n| self.columns[n].nullable) {
            return invalid(format!("column {:?} of the primary key may not be nullable", self.columns[n].name));
        }
        let mut index_columns = Vec::new();
        for index in &self.indexes {
            if index.columns.is_empty() {
                return invalid(format!("index {:?} needs at least one column", index.name));
            }
            let numbers: Result<Vec<usize>> = index.columns.iter().map(|name| self.number(name)).collect();
            let numbers = numbers?;
            self.check_key(&format!("index {:?}", index.name), &numbers, &index.parts)?;
            index_columns.push(numbers);
        }
        self.check_foreign_keys(&index_columns)?;
        self.versions.as_ref().map_or(Ok(()), |versions| versions.check(&self.columns, &self.held()))?;
        self.derived = self.derive(index_columns);
        Ok(Schema(Arc::new(self)))
    }

    pub(super) fn derive(&self, index_columns: Vec<Vec<usize>>) -> Derived {
        let held = self.held();
        let stored: Vec<usize> = (0..self.columns.len()).filter(|n| !held.contains(n)).collect();
        let primary_parts = self.parts(&self.primary, &self.primary_parts);
        let index_parts: Vec<_> =
            index_columns.iter().zip(&self.indexes).map(|(columns, index)| self.parts(columns, &index.parts)).collect();
        let is_plain = |parts: &Vec<Part>| parts.iter().chain(&primary_parts).all(Part::is_plain);
        let beside = |parts: &Vec<Part>| {
            let all: Vec<_> = parts.iter().chain(&primary_parts).collect();
            let held = |n: usize| all.iter().any(|part| part.column == n && part.holds());
            let mut columns: Vec<usize> = all.iter().map(|part| part.column).filter(|n| !held(*n)).collect();
            let mut seen = BTreeSet::new();
            columns.retain(|n| seen.insert(*n));
            columns
        };
        let mut nullable_stored = vec![0];
        for &n in &stored {
            nullable_stored.push(nullable_stored[nullable_stored.len() - 1] + usize::from(self.columns[n].nullable));
        }
        let entry = |columns: &Vec<usize>| {
            let all: Vec<_> = columns.iter().chain(&self.primary).map(|&n| &self.columns[n]).collect();
            typed::signature(all.into_iter())
        };
        let version = self.versions.as_ref().map_or(0, Versions::newest);
        let stored_columns: Vec<&Column> = stored.iter().map(|&n| &self.columns[n]).collect();
        let place = |n: usize| match self.primary.iter().position(|&key| key == n && held.contains(&n)) {
            Some(at) => Place::Key(at),
            None => {
                let at = stored.partition_point(|&s| s < n);
                Place::Stored(at, Way::new(version, &stored_columns, at))
            }
        };
        Derived {
            version,
            old: self.versions.as_ref().map_or_else(Vec::new, |versions| versions.layouts(&self.columns)),
            places: self.columns.iter().enumerate().map(|(n, column)| (typed::code(column), place(n))).collect(),
            signature: typed::signature(self.columns.iter()),
            entry_signatures: index_columns.iter().map(entry).collect(),
            unique: (0..self.indexes.len()).filter(|&n| self.indexes[n].unique).collect(),
            key_leads: self.primary.iter().copied().eq(0..self.primary.len())
                && primary_parts.iter().all(Part::is_plain),
            is_plain: index_parts.iter().zip(&self.indexes).map(|(p, i)| is_plain(p) && !i.clustering).collect(),
            beside: index_parts.iter().map(beside).collect(),
            primary_parts,
            index_parts,
            stored,
            nullable_stored,
            index_columns,
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|c| c.name == name);
        found.ok_or_else(|| Fault::Invalid(format!("there is no column {name:?}")))
    }

    /// The parts of a key of these columns.
    fn parts(&self, columns: &[usize], options: &[PartOptions]) -> Vec<Part> {
        let part = |(&column, options): (&usize, &PartOptions)| {
            let image = match (self.columns[column].collation, options.front) {
                (None, None) => Image::Whole,
                (None, Some(length)) => Image::Front(length),
                (Some(collation), characters) => Image::Collated(collation, characters),
            };
            Part { column, descending: options.descending, image }
        };
        columns.iter().zip(options).map(part).collect()
    }

    /// Numbers of the columns whose values the primary key gives back.
    pub(super) fn held(&self) -> Vec<usize> {
        self.parts(&self.primary, &self.primary_parts)
            .iter()
            .filter(|part| part.holds())
            .map(|part| part.column)
            .collect()
    }

    /// Existing columns, each once, not too many; a front of what has one.
    fn check_key(&self, what: &str, columns: &[usize], parts: &[PartOptions]) -> Result<()> {
        limit("columns of a key", KEY_COLUMNS_MAX, columns.len())?;
        let mut seen = BTreeSet::new();
        for (&n, part) in columns.iter().zip(parts) {
            let Some(column) = self.columns.get(n) else { return invalid(format!("{what} has no column {n}")) };
            if !seen.insert(n) {
                return invalid(format!("{what} has column {:?} twice", column.name));
            }
            if part.front.is_some_and(|length| length == 0 || !is_string(column.column_type)) {
                return invalid(format!("{what} cannot have the front of column {:?}", column.name));
            }
        }
        Ok(())
    }
}

fn invalid<T>(why: impl Into<String>) -> Result<T> {
    Err(Fault::Invalid(why.into()))
}

fn limit(what: &'static str, limit: usize, got: usize) -> Result<()> {
    if got <= limit {
        return Ok(());
    }
    Err(Fault::Limit { what, limit: limit as u64, got: got as u64 })
}

fn check_names<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        limit("bytes of a name", NAME_BYTES_MAX, name.len())?;
        if name.is_empty() {
            return invalid(format!("a {what} needs a name"));
        }
        if !seen.insert(name) {
            return invalid(format!("two of the table's {what} names are {name:?}"));
        }
    }
    Ok(())
}
