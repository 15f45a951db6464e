// SPDX-License-Identifier: GPL-2.0-only
//! A table of the server as a schema of the engine, and its records and keys as values.
//!
//! Columns stand in the order of the server's; a table without a primary key has one more, the number of the row. The
//! server's primary key is the engine's; its other keys are secondary indexes under their own names, in their order.
//! What a column or a key part needs beyond that is decided here and in `field`, nowhere else.

use trefoil::{Compression, IndexOptions, IndexSchema, OwnedValue, Schema, Structure, Value};

use crate::abi;
use crate::failure::{Code, Failure, Result};
use crate::field::Field;
use crate::raw::{Definition, Record};

/// The column of row numbers. Names of the server's columns do not end with a space.
const ROW_NUMBER: &str = "row ";
const KEY_BYTES_MAX: usize = 3072;
/// In front of a row's reference: the length of its primary key.
pub const REF_HEAD_BYTES: usize = 2;

/// Which index of the engine a key of the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The rows in their own order.
    Rows,
    /// A secondary index.
    Secondary(usize),
}

/// How a table of the server lies in one of the engine.
#[derive(Debug)]
pub struct Layout {
    fields: Vec<Field>,
    /// A record of the default values.
    defaults: Vec<u8>,
    /// For each key of the server.
    keys: Vec<KeyLayout>,
    /// Fields of the primary key; none: rows have numbers.
    primary: Option<Vec<usize>>,
    pub schema: Schema,
    ref_bytes: usize,
}

#[derive(Debug)]
struct KeyLayout {
    way: Way,
    fields: Vec<usize>,
    name: String,
}

impl Layout {
    pub fn new(from: &Definition<'_>) -> Result<Self> {
        let record_length = from.defaults.len();
        let fields = from.fields.iter().map(|(name, field)| Field::new(name, field, record_length));
        let mut fields = fields.collect::<Result<Vec<_>>>()?;
        let mut keys = Vec::new();
        for (n, (name, parts, _)) in from.keys.iter().enumerate() {
            let parts: Vec<usize> = parts.iter().map(|&part| part as usize).collect();
            for &part in &parts {
                let field = fields.get_mut(part);
                field.ok_or_else(|| Failure::definition(&format!("key `{name}` has no column {part}")))?.keyed = true;
            }
            let before = n - usize::from(from.primary.is_some_and(|primary| primary < n));
            let way = if from.primary == Some(n) { Way::Rows } else { Way::Secondary(before) };
            keys.push(KeyLayout { way, fields: parts, name: (*name).to_owned() });
        }
        let primary = from.primary.and_then(|n| keys.get(n)).map(|key| key.fields.clone());
        let key_bytes = primary.as_ref().map_or(8, |of| of.iter().map(|&n| fields[n].key_bytes_max()).sum());
        let ref_bytes = REF_HEAD_BYTES + key_bytes.min(KEY_BYTES_MAX);
        let schema = schema(from, &fields, &keys)?;
        Ok(Self { fields, defaults: from.defaults.to_vec(), keys, primary, schema, ref_bytes })
    }

    pub fn record_bytes(&self) -> usize {
        self.defaults.len()
    }

    pub fn ref_bytes(&self) -> usize {
        self.ref_bytes
    }

    pub fn has_row_numbers(&self) -> bool {
        self.primary.is_none()
    }

    /// The engine's index of key `n` of the server; -1 is the rows.
    pub fn way(&self, key: i32) -> Result<Way> {
        match usize::try_from(key) {
            Err(_) => Ok(Way::Rows),
            Ok(n) => Ok(self.keys.get(n).ok_or_else(|| Failure::definition("no such key"))?.way),
        }
    }

    /// The name of an index of the engine.
    pub fn index_name(&self, n: usize) -> &str {
        self.schema.indexes()[n].name()
    }

    /// The number of the key whose index of the engine has this name.
    pub fn key_number(&self, index: &str) -> Option<usize> {
        let is_it = |key: &KeyLayout| match key.way {
            Way::Rows => index == "primary",
            Way::Secondary(_) => key.name == index,
        };
        self.keys.iter().position(is_it)
    }

    /// The first column of a key, for the numbers of AUTO_INCREMENT.
    pub fn first_field(&self, key: u32) -> Result<&Field> {
        let first = self.keys.get(key as usize).and_then(|key| key.fields.first());
        first.map(|&n| &self.fields[n]).ok_or_else(|| Failure::definition("no such key"))
    }

    /// The values of a record, and the number of its row if it has one.
    pub fn values<'a>(&self, record: Record<'a>, row: u64) -> Vec<Value<'a>> {
        let mut values = Vec::with_capacity(self.fields.len() + 1);
        values.extend(self.fields.iter().map(|field| field.value(record)));
        if self.has_row_numbers() {
            values.push(Value::U64(row));
        }
        values
    }

    /// The primary key of a record.
    pub fn primary_values<'a>(&self, record: Record<'a>, row: u64) -> Vec<Value<'a>> {
        match &self.primary {
            Some(fields) => fields.iter().map(|&n| self.fields[n].value(record)).collect(),
            None => vec![Value::U64(row)],
        }
    }

    /// Where a record stands in an index: the values of its entry, the primary key's behind the index's own.
    pub fn entry_values(&self, way: Way, record: Record<'_>, row: u64) -> Vec<OwnedValue> {
        let mut values = Vec::new();
        if let Way::Secondary(n) = way {
            values.extend(self.schema.index_columns(n).iter().map(|&c| self.fields[c].value(record).into_owned()));
        }
        values.extend(self.primary_values(record, row).into_iter().map(Value::into_owned));
        values
    }

    /// A row as a record. Returns the row's number.
    pub fn put(&self, values: &[Value<'_>], record: &mut [u8], blobs: &mut Vec<Box<[u8]>>) -> Result<u64> {
        record.copy_from_slice(&self.defaults);
        for (field, value) in self.fields.iter().zip(values) {
            field.put(value, record, blobs)?;
        }
        match values.get(self.fields.len()) {
            Some(Value::U64(row)) => Ok(*row),
            _ => Ok(0),
        }
    }

    /// An entry of a secondary index as a record: other columns than its own and the primary key's have their defaults.
    /// Returns the row's number.
    pub fn put_entry(
        &self,
        n: usize,
        values: &[Value<'_>],
        record: &mut [u8],
        blobs: &mut Vec<Box<[u8]>>,
    ) -> Result<u64> {
        let columns = self.schema.index_columns(n);
        let (own, primary) = values.split_at(columns.len());
        let row = self.put_primary(primary, record, blobs)?;
        for (&column, value) in columns.iter().zip(own) {
            self.fields[column].put(value, record, blobs)?;
        }
        Ok(row)
    }

    /// A primary key as a record: other columns have their defaults. Returns the row's number.
    pub fn put_primary(&self, values: &[Value<'_>], record: &mut [u8], blobs: &mut Vec<Box<[u8]>>) -> Result<u64> {
        record.copy_from_slice(&self.defaults);
        match (&self.primary, values) {
            (Some(fields), _) => {
                for (&n, value) in fields.iter().zip(values) {
                    self.fields[n].put(value, record, blobs)?;
                }
                Ok(0)
            }
            (None, [Value::U64(row)]) => Ok(*row),
            _ => Err(Failure::definition("a row has no number")),
        }
    }

    /// The values in the first parts of a key, as the server hands it over.
    pub fn key_values(&self, key: i32, image: &[u8]) -> Result<Vec<OwnedValue>> {
        let broken = || Failure::definition("a key does not fit its index");
        let of = usize::try_from(key).ok().and_then(|n| self.keys.get(n)).ok_or_else(broken)?;
        let (mut values, mut rest) = (Vec::with_capacity(of.fields.len()), image);
        for &n in &of.fields {
            if rest.is_empty() {
                break;
            }
            let (value, behind) = self.fields[n].key_value(rest).ok_or_else(broken)?;
            values.push(value.into_owned());
            rest = behind;
        }
        if rest.is_empty() { Ok(values) } else { Err(broken()) }
    }

    /// A reference of a row from its primary key: filled up, and the length at the end, so that references compare as
    /// bytes.
    pub fn put_ref(&self, primary: &[Value<'_>], out: &mut [u8]) -> Result<()> {
        let mut key = Vec::new();
        self.schema.primary_prefix(primary, &mut key).map_err(trefoil::Error::from)?;
        let (slot, head) = out.split_at_mut(self.ref_bytes - REF_HEAD_BYTES);
        if key.len() > slot.len() {
            return Err(Failure::new(Code::TooLong, "the primary key is longer than 3072 bytes"));
        }
        slot[..key.len()].copy_from_slice(&key);
        slot[key.len()..].fill(0);
        head.copy_from_slice(&(key.len() as u16).to_be_bytes());
        Ok(())
    }

    /// The primary key in a reference.
    pub fn ref_values<'a>(&self, reference: &'a [u8]) -> Result<Vec<Value<'a>>> {
        let (slot, head) = reference.split_at(self.ref_bytes - REF_HEAD_BYTES);
        let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let key = slot.get(..length).ok_or_else(|| Failure::definition("a row reference is broken"))?;
        Ok(self.schema.decode_primary_key(key).map_err(trefoil::Error::from)?)
    }
}

fn schema(from: &Definition<'_>, fields: &[Field], keys: &[KeyLayout]) -> Result<Schema> {
    let name = |n: usize| from.fields[n].0;
    let mut schema = Schema::builder();
    for ((name, _), field) in from.fields.iter().zip(fields) {
        schema = match field.is_nullable() {
            true => schema.nullable(name, field.column_type()),
            false => schema.column(name, field.column_type()),
        };
    }
    if from.primary.is_none() {
        schema = schema.column(ROW_NUMBER, trefoil::ColumnType::U64).primary_key(&[ROW_NUMBER]);
    }
    for (key, (key_name, _, options)) in keys.iter().zip(&from.keys) {
        let columns: Vec<&str> = key.fields.iter().map(|&n| name(n)).collect();
        let settings = index_options(options)?;
        schema = match key.way {
            Way::Rows => schema.primary_key(&columns).primary_options(settings),
            Way::Secondary(_) => {
                let index = IndexSchema::new(key_name, &columns).with_options(settings);
                schema.index(if options.unique != 0 { index.unique() } else { index })
            }
        };
    }
    Ok(schema.build().map_err(trefoil::Error::from)?)
}

fn index_options(from: &abi::Key) -> Result<IndexOptions> {
    let unknown = |what: &str| Failure::new(Code::Unsupported, &format!("{what} unknown to this engine"));
    let structure = match from.structure {
        0 => Structure::Auto,
        1 => Structure::Btree,
        2 => Structure::Betree,
        3 => Structure::Lsm,
        _ => return Err(unknown("a structure")),
    };
    let compression = match from.compression {
        0 => Compression::Lz4,
        1 => Compression::None,
        2 => Compression::Zstd,
        _ => return Err(unknown("a compression")),
    };
    Ok(IndexOptions { structure, compression, node_bytes: from.node_size as usize })
}
