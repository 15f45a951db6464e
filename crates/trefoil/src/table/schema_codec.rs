//! A schema in the catalog.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | schema format: 1, or 2 once rows have several versions |
//! | varint, then per column | number of columns; name (varint length, bytes), type (1), flags (1: bit 0 = nullable) |
//! | varint, then varints | number of columns of the primary key; their numbers |
//! | settings | of the primary index |
//! | varint, then per index | number of indexes; name, flags (1: bit 0 = unique), number of columns, their numbers, settings |
//! | versions | in format 2: [`super::versions`] |
//!
//! Settings are structure (1), compression (1), node size in bytes (varint). Unknown formats, types, flags and settings
//! are refused: they come from a newer version or from damage. Decoding ends in the checks of the builder.

use base::bytes::{Reader, put_bytes, put_varint};
use base::{Fault, Result};
use store::Compression;

use super::schema::{
    COLUMNS_MAX, Column, ColumnType, Derived, INDEXES_MAX, IndexSchema, KEY_COLUMNS_MAX, Parts, Schema,
};
use super::versions::Versions;
use crate::options::{IndexOptions, Structure};

/// The schema format written while all rows are of version 0.
const FORMAT: u8 = 1;
/// The one with what rows of each version store.
const FORMAT_VERSIONS: u8 = 2;
const NULLABLE: u8 = 1;
const UNIQUE: u8 = 1;

// For the catalog; public for tests of the format.
#[doc(hidden)]
impl Schema {
    /// Its form in the catalog.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let parts = &*self.0;
        let mut out = vec![if parts.versions.is_some() { FORMAT_VERSIONS } else { FORMAT }];
        put_varint(&mut out, parts.columns.len() as u64);
        for column in &parts.columns {
            put_bytes(&mut out, column.name.as_bytes());
            out.push(column.column_type as u8);
            out.push(if column.nullable { NULLABLE } else { 0 });
        }
        put_numbers(&mut out, &parts.primary);
        put_options(&mut out, &parts.primary_options);
        put_varint(&mut out, parts.indexes.len() as u64);
        for (index, columns) in parts.indexes.iter().zip(&parts.derived.index_columns) {
            put_bytes(&mut out, index.name.as_bytes());
            out.push(if index.unique { UNIQUE } else { 0 });
            put_numbers(&mut out, columns);
            put_options(&mut out, &index.options);
        }
        if let Some(versions) = &parts.versions {
            versions.encode(&mut out);
        }
        out
    }

    /// Reads what [`Schema::encode`] wrote.
    ///
    /// # Errors
    /// `Format` if a newer version wrote it; `Corrupt` if it is malformed; whatever a builder would say of it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if let Some(&found) = bytes.first().filter(|&&format| !(FORMAT..=FORMAT_VERSIONS).contains(&format)) {
            let remedy = "open the database with the version that wrote it".to_owned();
            let supported = u32::from(FORMAT_VERSIONS);
            return Err(Fault::Format { path: "catalog schema".to_owned(), found: found.into(), supported, remedy });
        }
        let mut reader = Reader::new(bytes);
        let parts = take_parts(&mut reader).filter(|_| reader.is_empty());
        let at = (bytes.len() - reader.rest().len()) as u64;
        let damage =
            || Fault::corrupt("catalog", at, "schema", "a schema of format 1 or 2", format!("{} bytes", bytes.len()));
        parts.ok_or_else(damage)?.checked()
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[usize]) {
    put_varint(out, numbers.len() as u64);
    numbers.iter().for_each(|&n| put_varint(out, n as u64));
}

fn put_options(out: &mut Vec<u8>, options: &IndexOptions) {
    let structure = match options.structure {
        Structure::Auto => 0,
        Structure::Btree => 1,
        Structure::Betree => 2,
        Structure::Lsm => 3,
    };
    out.extend_from_slice(&[structure, options.compression as u8]);
    put_varint(out, options.node_bytes as u64);
}

fn take_parts(reader: &mut Reader<'_>) -> Option<Parts> {
    let format = reader.u8()?;
    let columns = take_many(reader, COLUMNS_MAX, |reader| {
        let name = take_name(reader)?;
        let column_type = ColumnType::from_stored(reader.u8()?)?;
        let nullable = take_flag(reader, NULLABLE)?;
        Some(Column { name, column_type, nullable })
    })?;
    let primary = take_numbers(reader)?;
    let primary_options = take_options(reader)?;
    let indexes = take_many(reader, INDEXES_MAX, |reader| {
        let name = take_name(reader)?;
        let unique = take_flag(reader, UNIQUE)?;
        let names = take_numbers(reader)?.into_iter().map(|n| columns.get(n).map(|column| column.name.clone()));
        Some(IndexSchema { name, unique, columns: names.collect::<Option<_>>()?, options: take_options(reader)? })
    })?;
    let versions = match format {
        FORMAT => None,
        _ => Some(Versions::decode(reader, columns.len())?),
    };
    Some(Parts { columns, primary, primary_options, indexes, versions, derived: Derived::default() })
}

fn take_many<T>(
    reader: &mut Reader<'_>,
    max: usize,
    mut one: impl FnMut(&mut Reader<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = reader.length().filter(|&n| n <= max)?;
    (0..count).map(|_| one(reader)).collect()
}

fn take_numbers(reader: &mut Reader<'_>) -> Option<Vec<usize>> {
    take_many(reader, KEY_COLUMNS_MAX, |reader| reader.length())
}

fn take_name(reader: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(reader.bytes()?.to_vec()).ok()
}

fn take_flag(reader: &mut Reader<'_>, flag: u8) -> Option<bool> {
    let flags = reader.u8()?;
    (flags & !flag == 0).then_some(flags & flag != 0)
}

fn take_options(reader: &mut Reader<'_>) -> Option<IndexOptions> {
    let structure = match reader.u8()? {
        0 => Structure::Auto,
        1 => Structure::Btree,
        2 => Structure::Betree,
        3 => Structure::Lsm,
        _ => return None,
    };
    let compression = Compression::from_stored(reader.u8()?)?;
    Some(IndexOptions { structure, compression, node_bytes: reader.length()? })
}
