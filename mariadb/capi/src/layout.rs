// SPDX-License-Identifier: GPL-2.0-only
//! A table of the server as a schema of the engine, and its records and keys as values.
//!
//! Columns stand in the order of the server's; a table without a primary key has one more, the number of the row. The
//! server's primary key is the engine's; its other keys are secondary indexes under their own names, in their order.
//! What a column or a key part needs beyond that is decided here and in `field`, nowhere else.

use std::cmp::Ordering;

use smallvec::{SmallVec, smallvec};
use trefoil::{Compression, IndexOptions, IndexSchema, KeyPart, OwnedValue, Schema, Shape, Structure, Value};

use crate::abi;
use crate::alter;
use crate::column_set::ColumnSet;
use crate::failure::{Code, Failure, Result};
use crate::field::Field;
use crate::filling::Filling;
use crate::key_bytes::Room;
use crate::packed::Packing;
use crate::raw::{Definition, Record};
use crate::reads::Met;

/// The column of row numbers. Names of the server's columns do not end with a space.
const ROW_NUMBER: &str = "row ";
/// Longer primary keys are not taken for references of rows, which are as long as the longest.
const REF_KEY_BYTES_MAX: usize = 3072;
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

/// The values of a primary key, most of which have one or two columns.
pub type PrimaryValues<'a> = SmallVec<[Value<'a>; 2]>;

/// How a table of the server lies in one of the engine.
#[derive(Debug)]
pub struct Layout {
    fields: Vec<Field>,
    /// A record of the default values.
    defaults: Vec<u8>,
    packing: Packing,
    /// That record packed.
    packed_defaults: Vec<u8>,
    /// For each key of the server.
    keys: Vec<KeyLayout>,
    /// The primary key; none: rows have numbers.
    primary: Option<Primary>,
    pub schema: Schema,
    ref_bytes: usize,
    /// How long the keys of each may get.
    key_bytes: Vec<usize>,
}

#[derive(Debug)]
struct KeyLayout {
    way: Way,
    /// Its own parts.
    parts: Vec<Part>,
    /// What the server's keys may go on with: parts of the primary key.
    extended: Vec<Part>,
    name: String,
    /// The server keeps its values unique.
    is_claimed: bool,
}

/// A part of a key.
#[derive(Debug, Clone, Copy)]
struct Part {
    field: usize,
    /// Bytes in the server's key.
    length: usize,
    /// How much of the column, if not all.
    front: Option<u32>,
    descending: bool,
}

#[derive(Debug)]
struct Primary {
    fields: Vec<usize>,
    parts: Vec<Part>,
    /// Its key gives the values back: it is a row's reference. Otherwise that is made of the values.
    holds: bool,
}

impl Layout {
    pub fn new(from: &Definition<'_>, room: &Room) -> Result<Self> {
        let fields = from.fields.iter().map(|(name, field)| Field::new(name, field, from.defaults));
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let mut keys = Vec::new();
        for (n, (name, parts, key)) in from.keys.iter().enumerate() {
            let part = |part: &abi::Part| match fields.get(part.field as usize) {
                Some(_) => Ok(Part::from(part)),
                None => Err(Failure::definition(&format!("key `{name}` has no column {}", part.field))),
            };
            let mut parts = parts.iter().map(part).collect::<Result<Vec<_>>>()?;
            let extended = parts.split_off(parts.len() - key.extended as usize);
            let before = n - usize::from(from.primary.is_some_and(|primary| primary < n));
            let way = if from.primary == Some(n) { Way::Rows } else { Way::Secondary(before) };
            let is_claimed = key.flags & abi::CLAIMED != 0;
            keys.push(KeyLayout { way, parts, extended, name: (*name).to_owned(), is_claimed });
        }
        let primary = from.primary.and_then(|n| keys.get(n)).map(|key| Primary::new(&fields, &key.parts));
        let ref_bytes = REF_HEAD_BYTES + primary.as_ref().map_or(8, |of| of.ref_bytes_max(&fields));
        let bytes_of = |key: &KeyLayout| key.parts.iter().map(|part| part.key_bytes_max(&fields, room)).sum::<usize>();
        let primary_bytes = from.primary.and_then(|n| keys.get(n)).map_or(8, bytes_of);
        let with_primary = |key: &KeyLayout| bytes_of(key) + if key.way == Way::Rows { 0 } else { primary_bytes };
        let key_bytes: Vec<usize> = keys.iter().map(with_primary).collect();
        let schema = schema(from, &fields, &keys, |settings, n| room.fit(settings, key_bytes[n]))?;
        let (packing, mut packed_defaults) = (Packing::new(&fields, from.defaults.len()), Vec::new());
        packing.pack(from.defaults, &mut packed_defaults);
        let defaults = from.defaults.to_vec();
        Ok(Self { fields, defaults, packing, packed_defaults, keys, primary, schema, ref_bytes, key_bytes })
    }

    /// An error if a row could have a key that the engine has no room for.
    pub fn check_keys(&self, room: &Room) -> Result<()> {
        self.keys.iter().zip(&self.key_bytes).try_for_each(|(key, &bytes)| {
            let options = match key.way {
                Way::Rows => self.schema.primary_options(),
                Way::Secondary(n) => self.schema.indexes()[n].options(),
            };
            room.check(&key.name, &options, bytes)
        })
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

    /// Keys that are indexes beside the rows, each with its number.
    pub fn indexes(&self) -> impl Iterator<Item = (usize, &IndexSchema)> {
        self.keys.iter().enumerate().filter_map(|(n, key)| match key.way {
            Way::Rows => None,
            Way::Secondary(index) => Some((n, &self.schema.indexes()[index])),
        })
    }

    /// Of keys whose values the server keeps unique: the names of their indexes, and what a record has there.
    pub fn claimed<'a>(&'a self, record: Record<'a>) -> impl Iterator<Item = (&'a str, Vec<Value<'a>>)> {
        let values =
            move |key: &KeyLayout| key.parts.iter().map(|part| self.fields[part.field].value(record)).collect();
        self.keys.iter().filter(|key| key.is_claimed).map(move |key| (key.name.as_str(), values(key)))
    }

    /// The default value of a column.
    pub fn default_value(&self, n: usize) -> OwnedValue {
        self.fields[n].value(Record::with_blobs(&self.defaults, &[])).into_owned()
    }

    /// The values of a key into a record.
    pub fn put_key(
        &self,
        key: usize,
        values: &[Value<'_>],
        record: &mut [u8],
        blobs: &mut Vec<Box<[u8]>>,
    ) -> Result<()> {
        let Way::Secondary(n) = self.way(key as i32)? else { return Ok(()) };
        let columns = self.schema.index_columns(n);
        columns.iter().zip(values).try_for_each(|(&column, value)| self.fields[column].put(value, record, blobs))
    }

    /// Takes the engine's schema of the table for its own, if that is the same. Its indexes may stand in another order, and it
    /// may have more: those that are being built. Settings may differ: they are the engine's to keep.
    pub fn adopt(&mut self, stored: Schema) -> Result<()> {
        let refused = || Failure::definition("the table of the engine is not as the server defines it");
        let primary = |schema: &Schema| schema.primary_key_parts().collect::<Vec<_>>();
        if stored.columns() != self.schema.columns() || primary(&stored) != primary(&self.schema) {
            return Err(refused());
        }
        for key in &mut self.keys {
            let Way::Secondary(n) = &mut key.way else { continue };
            let wanted = &self.schema.indexes()[*n];
            *n = stored.index_number(wanted.name()).ok_or_else(refused)?;
            let found = &stored.indexes()[*n];
            let kind = |index: &IndexSchema| (index.is_unique(), index.is_clustering());
            if kind(found) != kind(wanted) || !found.parts().eq(wanted.parts()) {
                return Err(refused());
            }
        }
        let kept = stored.indexes().iter().filter(|index| !alter::is_building(index)).count();
        if kept != self.schema.indexes().len() {
            return Err(refused());
        }
        self.schema = stored;
        Ok(())
    }

    /// The first column of a key, for the numbers of AUTO_INCREMENT, and whether the largest come first.
    pub fn first_field(&self, key: u32) -> Result<(&Field, bool)> {
        let first = self.keys.get(key as usize).and_then(|key| key.parts.first());
        first.map(|part| (&self.fields[part.field], part.descending)).ok_or_else(|| Failure::definition("no such key"))
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
    #[inline]
    pub fn primary_values<'a>(&self, record: Record<'a>, row: u64) -> PrimaryValues<'a> {
        match &self.primary {
            Some(primary) => primary.fields.iter().map(|&n| self.fields[n].value(record)).collect(),
            None => smallvec![Value::U64(row)],
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

    /// The default values into a record: what the others are made of.
    pub fn put_defaults(&self, record: &mut [u8]) {
        self.packing.unpack(&self.packed_defaults, record);
    }

    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// The columns that the server's `bits` have, and those of the keys that a scan of an index goes on by.
    pub fn wanted(&self, way: Way, bits: &[u8]) -> ColumnSet {
        let own = match way {
            Way::Rows => &[],
            Way::Secondary(n) => self.schema.index_columns(n),
        };
        let is_key = |n| own.contains(&n) || self.primary.as_ref().is_some_and(|primary| primary.fields.contains(&n));
        let mut wanted = ColumnSet::default();
        for (n, field) in self.fields.iter().enumerate() {
            if !field.is_read(bits) && !is_key(n) {
                wanted.leave_out(n);
            }
        }
        wanted
    }

    /// What `visit` gives and is wanted, into a record of the defaults, which other columns keep. Returns the row's number.
    #[inline]
    pub fn put(
        &self,
        wanted: &ColumnSet,
        record: &mut [u8],
        blobs: &mut Vec<Box<[u8]>>,
        visit: impl FnOnce(&mut Filling<'_>) -> trefoil::Result<()>,
    ) -> Result<u64, Met> {
        let mut filling = Filling { fields: &self.fields, wanted, record, blobs, number: 0, failure: None };
        visit(&mut filling)?;
        match filling.failure {
            None => Ok(filling.number),
            Some(failure) => Err(Met::Own(failure)),
        }
    }

    /// The values of the first columns of an entry, from the first parts of a key as the server hands it over.
    pub fn key_values(&self, key: i32, image: &[u8]) -> Result<Vec<OwnedValue>> {
        let broken = || Failure::definition("a key does not fit its index");
        let of = usize::try_from(key).ok().and_then(|n| self.keys.get(n)).ok_or_else(broken)?;
        let (mut values, mut rest) = (Vec::with_capacity(of.parts.len()), image);
        let mut extended = Vec::new();
        for (n, part) in of.parts.iter().chain(&of.extended).enumerate() {
            if rest.is_empty() {
                break;
            }
            let (value, behind) = self.fields[part.field].key_value(rest, part.length).ok_or_else(broken)?;
            rest = behind;
            if n < of.parts.len() {
                values.push(value.into_owned());
            } else {
                extended.push((part.field, value.into_owned()));
            }
        }
        if !rest.is_empty() {
            return Err(broken());
        }
        if !extended.is_empty() {
            self.put_extended(of, extended, &mut values)?;
        }
        Ok(values)
    }

    /// An entry has all of the primary key behind its own columns, the server's key what is not among them already.
    fn put_extended(
        &self,
        of: &KeyLayout,
        extended: Vec<(usize, OwnedValue)>,
        values: &mut Vec<OwnedValue>,
    ) -> Result<()> {
        let own = values.clone();
        let mut extended = extended.into_iter().peekable();
        for field in self.primary.iter().flat_map(|primary| &primary.fields) {
            let of_own = of.parts.iter().zip(&own).find(|(part, _)| part.field == *field);
            match (extended.next_if(|(next, _)| next == field), of_own) {
                (Some((_, value)), _) => values.push(value),
                (None, Some((_, value))) => values.push(value.clone()),
                (None, None) => break,
            }
        }
        match extended.next() {
            None => Ok(()),
            Some(_) => Err(Failure::definition("a key does not fit its index")),
        }
    }

    /// The same key, as the engine takes it.
    pub fn is_same_primary(&self, a: &[Value<'_>], b: &[Value<'_>]) -> Result<bool> {
        if a == b || self.primary.as_ref().is_none_or(|primary| primary.holds) {
            return Ok(a == b);
        }
        Ok(self.primary_key(a)? == self.primary_key(b)?)
    }

    fn primary_key(&self, values: &[Value<'_>]) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        self.schema.primary_prefix(values, &mut key).map_err(trefoil::Error::from)?;
        Ok(key)
    }

    /// A reference of a row from its primary key: filled up, and the length at the end, so that references compare as
    /// bytes where the key holds its values.
    /// `key` is room for it.
    pub fn put_ref(&self, primary: &[Value<'_>], key: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
        match &self.primary {
            Some(Primary { holds: false, parts, .. }) => {
                key.clear();
                let parts = parts.iter().zip(primary);
                parts.for_each(|(part, value)| self.fields[part.field].put_ref(value, part.length, key));
            }
            _ => self.schema.primary_prefix(primary, key).map_err(trefoil::Error::from)?,
        }
        let (slot, head) = out.split_at_mut(self.ref_bytes - REF_HEAD_BYTES);
        if key.len() > slot.len() {
            return Err(Failure::new(Code::TooLong, "the primary key is longer than its definition lets it be"));
        }
        slot[..key.len()].copy_from_slice(key);
        slot[key.len()..].fill(0);
        head.copy_from_slice(&(key.len() as u16).to_be_bytes());
        Ok(())
    }

    /// The primary key in a reference.
    pub fn ref_values<'a>(&self, reference: &'a [u8]) -> Result<Vec<Value<'a>>> {
        let broken = || Failure::definition("a row reference is broken");
        let (slot, head) = reference.split_at(self.ref_bytes - REF_HEAD_BYTES);
        let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let key = slot.get(..length).ok_or_else(broken)?;
        match &self.primary {
            Some(Primary { holds: false, fields, .. }) => {
                let mut rest = key;
                let values = fields.iter().map(|&n| self.fields[n].take_ref(&mut rest));
                values.collect::<Option<_>>().ok_or_else(broken)
            }
            _ => Ok(self.schema.decode_primary_key(key).map_err(trefoil::Error::from)?),
        }
    }

    /// Two references in the order of their rows.
    pub fn compare_refs(&self, a: &[u8], b: &[u8]) -> Ordering {
        let key = |reference| self.ref_values(reference).and_then(|values| self.primary_key(&values));
        match (a == b, &self.primary) {
            (true, _) => Ordering::Equal,
            (_, Some(Primary { holds: false, .. })) => match (key(a), key(b)) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                _ => a.cmp(b),
            },
            _ => a.cmp(b),
        }
    }
}

impl From<&abi::Part> for Part {
    fn from(from: &abi::Part) -> Self {
        let front = Some(from.front).filter(|&length| length > 0);
        Self { field: from.field as usize, length: from.length as usize, front, descending: from.descending != 0 }
    }
}

impl Part {
    fn key_part(&self, column: &str) -> KeyPart {
        let mut part = KeyPart::new(column);
        if let Some(length) = self.front {
            part = part.front(length);
        }
        if self.descending { part.descending() } else { part }
    }

    /// Bytes of it in a key at most: a string has an end.
    fn key_bytes_max(&self, fields: &[Field], room: &Room) -> usize {
        let field = &fields[self.field];
        let value = match field.collation() {
            Some(collation) => {
                let characters = self.length / room.collations.longest(collation);
                room.collations.key_bytes_max(collation, characters) + 2
            }
            None => field.front_bytes_max(self.length),
        };
        usize::from(field.is_nullable()) + value
    }
}

impl Primary {
    fn new(fields: &[Field], parts: &[Part]) -> Self {
        let holds = |part: &Part| part.front.is_none() && fields[part.field].collation().is_none();
        let numbers: Vec<usize> = parts.iter().map(|part| part.field).collect();
        let bytes = numbers.iter().map(|&n| fields[n].key_bytes_max()).sum::<usize>();
        let holds = bytes <= REF_KEY_BYTES_MAX && parts.iter().all(holds);
        Self { fields: numbers, parts: parts.to_vec(), holds }
    }

    /// Bytes of a row's reference at most, without its head.
    fn ref_bytes_max(&self, fields: &[Field]) -> usize {
        match self.holds {
            true => self.fields.iter().map(|&n| fields[n].key_bytes_max()).sum(),
            false => self.parts.iter().map(|part| fields[part.field].ref_bytes_max(part.length)).sum(),
        }
    }
}
/// `fit` gives settings of key number `n` the nodes that it needs.
fn schema(
    from: &Definition<'_>,
    fields: &[Field],
    keys: &[KeyLayout],
    fit: impl Fn(IndexOptions, usize) -> Result<IndexOptions>,
) -> Result<Schema> {
    let name = |n: usize| from.fields[n].0;
    let mut schema = Schema::builder();
    for ((name, _), field) in from.fields.iter().zip(fields) {
        schema = match field.is_nullable() {
            true => schema.nullable(name, field.column_type()),
            false => schema.column(name, field.column_type()),
        };
        if let Some(collation) = field.collation() {
            schema = schema.collate(name, collation);
        }
    }
    if from.primary.is_none() {
        schema = schema.column(ROW_NUMBER, trefoil::ColumnType::U64).primary_key(&[ROW_NUMBER]);
        schema = schema.primary_options(index_options(from.hidden)?);
    }
    for (n, (key, (key_name, _, options))) in keys.iter().zip(&from.keys).enumerate() {
        let parts = key.parts.iter().map(|part| part.key_part(name(part.field)));
        let settings = fit(index_options(options)?, n)?;
        schema = match key.way {
            Way::Rows => schema.primary_key_of(parts).primary_options(settings),
            Way::Secondary(_) => {
                let index = IndexSchema::of_parts(key_name, parts).with_options(settings);
                let index = if options.flags & abi::CLUSTERING != 0 { index.clustering() } else { index };
                schema.index(if options.unique != 0 { index.unique() } else { index })
            }
        };
    }
    Ok(schema.build().map_err(trefoil::Error::from)?)
}

/// Takes the default for a setting that no index can have, and says which it was; to be asked until there is none.
pub fn fit(key: &mut abi::Key) -> Result<()> {
    let wanted = index_options(key).inspect_err(|_| key.shape = 0)?;
    let structure = IndexOptions { node_bytes: 0, ..wanted };
    structure.check().inspect_err(|_| key.structure = 0)?;
    wanted.check().inspect_err(|_| key.node_size = 0)?;
    Ok(())
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
    let (shape, name) = match from.shape {
        0 => (Shape::default(), None),
        1 => (Shape::Lazy, Some("lazy")),
        2 => (Shape::Leveled, Some("leveled")),
        3 => (Shape::Universal, Some("universal")),
        _ => return Err(unknown("a shape")),
    };
    if let Some(name) = name.filter(|_| structure != Structure::Lsm) {
        let other = format!("{structure:?}").to_lowercase();
        let why = format!(
            "SHAPE={name} is for STRUCTURE=lsm, and this is STRUCTURE={other}; leave it out, or say SHAPE=DEFAULT"
        );
        return Err(Failure::new(Code::Unsupported, &why));
    }
    Ok(IndexOptions { structure, compression, node_bytes: from.node_size as usize, shape, ..IndexOptions::default() })
}
