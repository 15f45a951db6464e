//! A schema in the catalog.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | schema format: 1; 2 once rows have several versions; 3 with what neither of them knows; 4 with a clustering index; 5 with an index that is a Bε-tree; 8 with one that is a log-structured merge tree; 9 with a foreign key |
//! | varint, then per column | number of columns; name (varint length, bytes), type (1), of fixed width its width (1), flags (1: bit 0 = nullable, bit 1 = the number of a collation follows, varint) |
//! | varint, then parts | number of parts of the primary key; the parts |
//! | settings | of the primary index |
//! | varint, then per index | number of indexes; name, flags (1: bit 0 = unique, from format 4 on bit 1 = clustering), number of parts, the parts, settings |
//! | versions | in format 2: [`super::versions`]; from format 3 on behind a byte that says whether they are there |
//! | varint, then per foreign key | from format 9 on: their number; name, parent (varint length, bytes each), actions on DELETE and UPDATE (1 each), number of columns, for each its number (varint), the parent's (varint length, bytes), the most bytes of a value that a cascade may put there (varint) |
//!
//! A part of a key is a column's number (varint), from format 3 on with flags behind it (1: bit 0 = descending, bit 1 = the length
//! of its front follows, varint). Settings are structure (1), compression (1), node size in bytes (varint). Unknown formats, types, flags and settings
//! are refused: they come from a newer version or from damage. Decoding ends in the checks of the builder.

use base::bytes::{Reader, put_bytes, put_varint};
use base::{Fault, Result};
use store::Compression;

use super::column::{Column, ColumnType};
use super::foreign_key::{FOREIGN_KEYS_MAX, ForeignKey};
use super::index_schema::{IndexSchema, PartOptions};
use super::parts::Parts;
use super::schema::{COLUMNS_MAX, INDEXES_MAX, KEY_COLUMNS_MAX, Schema};
use super::versions::Versions;
use crate::options::{IndexOptions, Structure};

/// The schema format written while all rows are of version 0.
const FORMAT: u8 = 1;
/// The one with what rows of each version store.
const FORMAT_VERSIONS: u8 = 2;
/// The one with columns of fixed width, collations, and keys of columns descending or the front of them.
const FORMAT_KEYS: u8 = 3;
/// The one with indexes that have the whole row.
const FORMAT_CLUSTERING: u8 = 4;
/// The one with Bε-trees.
const FORMAT_BETREE: u8 = 5;
/// Since this indexes may be log-structured merge trees.
const FORMAT_LSM: u8 = 8;
/// The one with foreign keys.
const FORMAT_FOREIGN_KEYS: u8 = 9;
const NULLABLE: u8 = 1;
const COLLATED: u8 = 2;
const UNIQUE: u8 = 1;
const CLUSTERING: u8 = 2;
const DESCENDING: u8 = 1;
const FRONT: u8 = 2;

// For the catalog; public for tests of the format.
#[doc(hidden)]
impl Schema {
    /// The format that a database must have to hold it: that of its form in the catalog.
    #[must_use]
    pub fn format(&self) -> u32 {
        self.0.format().into()
    }

    /// Its form in the catalog.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let parts = &*self.0;
        let format = parts.format();
        let mut out = vec![format];
        put_varint(&mut out, parts.columns.len() as u64);
        for column in &parts.columns {
            put_bytes(&mut out, column.name.as_bytes());
            column.column_type.encode(&mut out);
            let nullable = if column.nullable { NULLABLE } else { 0 };
            out.push(nullable | if column.collation.is_some() { COLLATED } else { 0 });
            column.collation.iter().for_each(|&collation| put_varint(&mut out, collation.into()));
        }
        put_key(&mut out, format, &parts.primary, &parts.primary_parts);
        put_options(&mut out, &parts.primary_options);
        put_varint(&mut out, parts.indexes.len() as u64);
        for (index, columns) in parts.indexes.iter().zip(&parts.derived.index_columns) {
            put_bytes(&mut out, index.name.as_bytes());
            let unique = if index.unique { UNIQUE } else { 0 };
            out.push(unique | if index.clustering { CLUSTERING } else { 0 });
            put_key(&mut out, format, columns, &index.parts);
            put_options(&mut out, &index.options);
        }
        if format >= FORMAT_KEYS {
            out.push(u8::from(parts.versions.is_some()));
        }
        if let Some(versions) = &parts.versions {
            versions.encode(&mut out);
        }
        if format >= FORMAT_FOREIGN_KEYS {
            put_varint(&mut out, parts.foreign_keys.len() as u64);
            for foreign in &parts.foreign_keys {
                let number = |name| self.column_number(name).expect("a foreign key has columns of its table");
                let columns: Vec<_> = foreign.columns().iter().map(|name| number(name)).collect();
                foreign.encode(&columns, &mut out);
            }
        }
        out
    }

    /// Reads what [`Schema::encode`] wrote.
    ///
    /// # Errors
    /// `Format` if a newer version wrote it; `Corrupt` if it is malformed; whatever a builder would say of it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if let Some(&found) = bytes.first().filter(|&&format| {
            !(FORMAT..=FORMAT_BETREE).contains(&format) && format < FORMAT_LSM || format > FORMAT_FOREIGN_KEYS
        }) {
            let remedy = "open the database with the version that wrote it".to_owned();
            let supported = u32::from(FORMAT_FOREIGN_KEYS);
            return Err(Fault::Format { path: "catalog schema".to_owned(), found: found.into(), supported, remedy });
        }
        let mut reader = Reader::new(bytes);
        let parts = take_parts(&mut reader);
        // What a format does not know is not written in it.
        let parts = parts.filter(|parts| reader.is_empty() && bytes.first().is_some_and(|&f| f >= parts.format()));
        let at = (bytes.len() - reader.rest().len()) as u64;
        let damage = || {
            Fault::corrupt(
                "catalog",
                at,
                "schema",
                "a schema of format 1 to 5, 8 or 9",
                format!("{} bytes", bytes.len()),
            )
        };
        parts.ok_or_else(damage)?.checked()
    }
}

impl Parts {
    /// The oldest schema format that can say all of it.
    fn format(&self) -> u8 {
        if !self.foreign_keys.is_empty() {
            return FORMAT_FOREIGN_KEYS;
        }
        let mut options = self.indexes.iter().map(|index| &index.options).chain([&self.primary_options]);
        if options.clone().any(|options| options.structure == Structure::Lsm) {
            return FORMAT_LSM;
        }
        if options.any(|options| options.structure == Structure::Betree) {
            return FORMAT_BETREE;
        }
        if self.indexes.iter().any(|index| index.clustering) {
            return FORMAT_CLUSTERING;
        }
        let is_fixed = |column_type: ColumnType| matches!(column_type, ColumnType::Fixed(_));
        let mut dropped = self.versions.iter().flat_map(|versions| versions.dropped.values());
        let is_new = |column: &Column| is_fixed(column.column_type) || column.collation.is_some();
        let mut parts = self.indexes.iter().flat_map(|index| &index.parts).chain(&self.primary_parts);
        if self.columns.iter().any(is_new)
            || dropped.any(|kind| is_fixed(kind.column_type))
            || parts.any(|part| *part != PartOptions::default())
        {
            return FORMAT_KEYS;
        }
        if self.versions.is_some() { FORMAT_VERSIONS } else { FORMAT }
    }
}

fn put_key(out: &mut Vec<u8>, format: u8, numbers: &[usize], parts: &[PartOptions]) {
    put_varint(out, numbers.len() as u64);
    for (&n, part) in numbers.iter().zip(parts) {
        put_varint(out, n as u64);
        if format >= FORMAT_KEYS {
            let descending = if part.descending { DESCENDING } else { 0 };
            out.push(descending | if part.front.is_some() { FRONT } else { 0 });
            part.front.iter().for_each(|&length| put_varint(out, length.into()));
        }
    }
}

fn put_options(out: &mut Vec<u8>, options: &IndexOptions) {
    out.extend_from_slice(&[options.structure_number(), options.compression as u8]);
    put_varint(out, options.node_bytes as u64);
}

fn take_parts(reader: &mut Reader<'_>) -> Option<Parts> {
    let format = reader.u8()?;
    let columns = take_many(reader, COLUMNS_MAX, |reader| {
        let name = take_name(reader)?;
        let column_type = ColumnType::decode(reader)?;
        let flags = reader.u8().filter(|flags| flags & !(NULLABLE | COLLATED) == 0)?;
        let collation = if flags & COLLATED != 0 { Some(take_u32(reader)?) } else { None };
        Some(Column { name, column_type, nullable: flags & NULLABLE != 0, collation })
    })?;
    let (primary, primary_parts) = take_key(reader, format)?.into_iter().unzip();
    let primary_options = take_options(reader)?;
    let indexes = take_many(reader, INDEXES_MAX, |reader| {
        let name = take_name(reader)?;
        let known = if format >= FORMAT_CLUSTERING { UNIQUE | CLUSTERING } else { UNIQUE };
        let flags = reader.u8().filter(|flags| flags & !known == 0)?;
        let (numbers, parts): (Vec<usize>, _) = take_key(reader, format)?.into_iter().unzip();
        let names = numbers.into_iter().map(|n| columns.get(n).map(|column| column.name.clone()));
        let columns = names.collect::<Option<_>>()?;
        let (unique, clustering) = (flags & UNIQUE != 0, flags & CLUSTERING != 0);
        Some(IndexSchema { name, unique, clustering, columns, parts, options: take_options(reader)? })
    })?;
    let versions = match format {
        FORMAT => None,
        FORMAT_KEYS.. if !take_flag(reader, 1)? => None,
        _ => Some(Versions::decode(reader, columns.len())?),
    };
    let foreign_keys = match format {
        FORMAT_FOREIGN_KEYS.. => take_many(reader, FOREIGN_KEYS_MAX, |reader| {
            ForeignKey::decode(reader, |n| columns.get(n).map(|column: &Column| column.name.clone()))
        })?,
        _ => Vec::new(),
    };
    let (collations, derived) = Default::default();
    Some(Parts {
        columns,
        primary,
        primary_parts,
        primary_options,
        indexes,
        foreign_keys,
        versions,
        collations,
        derived,
    })
}

fn take_many<T>(
    reader: &mut Reader<'_>,
    max: usize,
    mut one: impl FnMut(&mut Reader<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = reader.length().filter(|&n| n <= max)?;
    (0..count).map(|_| one(reader)).collect()
}

fn take_key(reader: &mut Reader<'_>, format: u8) -> Option<Vec<(usize, PartOptions)>> {
    take_many(reader, KEY_COLUMNS_MAX, |reader| {
        let (n, mut part) = (reader.length()?, PartOptions::default());
        if format >= FORMAT_KEYS {
            let flags = reader.u8().filter(|flags| flags & !(DESCENDING | FRONT) == 0)?;
            part.descending = flags & DESCENDING != 0;
            part.front = if flags & FRONT != 0 { Some(take_u32(reader)?) } else { None };
        }
        Some((n, part))
    })
}

fn take_u32(reader: &mut Reader<'_>) -> Option<u32> {
    reader.varint()?.try_into().ok()
}

fn take_name(reader: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(reader.bytes()?.to_vec()).ok()
}

fn take_flag(reader: &mut Reader<'_>, flag: u8) -> Option<bool> {
    let flags = reader.u8()?;
    (flags & !flag == 0).then_some(flags & flag != 0)
}

fn take_options(reader: &mut Reader<'_>) -> Option<IndexOptions> {
    let (structure, shape) = IndexOptions::of_structure_number(reader.u8()?)?;
    let compression = Compression::from_stored(reader.u8()?)?;
    Some(IndexOptions { structure, compression, node_bytes: reader.length()?, shape, ..IndexOptions::default() })
}
