//! The catalog: index 0, changed only by logged transactions (rule A26), and its image in memory.
//!
//! Rows of index 0, by first key byte:
//! `i` + index id (u32 big-endian) → one [`IndexDef`]; `t` + table id → one [`TableDef`]; `c` + id of an index whose versions expire →
//! the last [`Tick`] of its clock. The table id is the id of its primary index. Values start with a format byte.
//!
//! Ids come from one counter that the manifest also keeps, so an id is never used again, whatever became of
//! the transaction that took it.

use base::bytes::{Reader, put_bytes, put_varint};
use base::{Fault, IndexId, Result};
use index::Tick;
use store::Compression;

use crate::options::IndexOptions;
use crate::table::Schema;

const FORMAT: u8 = 1;

/// What an index is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A plain ordered index of the user's.
    Plain,
    /// The rows of a table.
    Primary,
    /// A secondary index of the table whose primary index has this id.
    Secondary(IndexId),
}

/// One index, as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDef {
    /// Its number.
    pub id: IndexId,
    /// Its name: unique among plain indexes, or among the indexes of its table.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Its settings.
    pub options: IndexOptions,
    /// Set aside because it is damaged; secondary indexes only.
    pub quarantined: bool,
}

/// One table, as the catalog knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct TableDef {
    /// Id of its primary index.
    pub id: IndexId,
    /// Its name, unique among tables.
    pub name: String,
    /// Columns and indexes.
    pub schema: Schema,
    /// Ids of the secondary indexes, in the schema's order.
    pub secondaries: Vec<IndexId>,
}

/// Key of an index's row.
#[must_use]
pub fn index_key(id: IndexId) -> [u8; 5] {
    row_key(b'i', id)
}

/// Key of a table's row.
#[must_use]
pub fn table_key(id: IndexId) -> [u8; 5] {
    row_key(b't', id)
}

/// Key of the clock of an index whose versions expire.
#[must_use]
pub fn clock_key(id: IndexId) -> [u8; 5] {
    row_key(b'c', id)
}

fn row_key(kind: u8, id: IndexId) -> [u8; 5] {
    let n = id.0.to_be_bytes();
    [kind, n[0], n[1], n[2], n[3]]
}

impl IndexDef {
    /// What keeps a new index from being like this.
    pub fn check_new(&self) -> crate::Result<()> {
        if self.options.counters && self.role != Role::Plain {
            let why = format!("index {:?} of a table has IndexOptions::counters: only plain indexes may", self.name);
            return Err(crate::Error::InvalidArgument(why));
        }
        if self.options.ttl_seconds.is_some() && self.role != Role::Plain {
            // A row that is written anew is younger than the entries of it that did not change: they would expire without it.
            let why =
                format!("index {:?} of a table with IndexOptions::ttl_seconds: only plain indexes may", self.name);
            return Err(Fault::Unsupported(why).into());
        }
        if self.options.prefix_bytes > 0 && self.role != Role::Plain {
            let why =
                format!("index {:?} of a table with IndexOptions::prefix_bytes: only plain indexes may", self.name);
            return Err(Fault::Unsupported(why).into());
        }
        self.options.check_new()
    }

    /// The row's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (role, table) = match self.role {
            Role::Plain if self.options.counters => (4u8, 0),
            Role::Plain if self.options.has_extras() => (5, 0),
            Role::Plain => (0, 0),
            Role::Primary => (1, 0),
            Role::Secondary(table) if self.quarantined => (3, table.0),
            Role::Secondary(table) => (2, table.0),
        };
        let mut out = vec![FORMAT, role, self.options.structure_number(), self.options.compression as u8];
        put_varint(&mut out, u64::from(table));
        put_varint(&mut out, self.options.node_bytes as u64);
        if role == 5 {
            put_varint(&mut out, self.options.ttl_seconds.unwrap_or(0));
            put_varint(&mut out, self.options.prefix_bytes as u64);
        }
        put_bytes(&mut out, self.name.as_bytes());
        out
    }

    fn decode(id: IndexId, value: &[u8]) -> Option<Self> {
        let mut r = Reader::new(value);
        if r.u8()? != FORMAT {
            return None;
        }
        let (role, structure, compression) = (r.u8()?, r.u8()?, r.u8()?);
        let table = IndexId(u32::try_from(r.varint()?).ok()?);
        let (quarantined, counters, has_extras) = (role == 3, role == 4, role == 5);
        let role = match role {
            0 | 4 | 5 => Role::Plain,
            1 => Role::Primary,
            2 | 3 => Role::Secondary(table),
            _ => return None,
        };
        let (structure, shape) = IndexOptions::of_structure_number(structure)?;
        let compression = match compression {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            _ => return None,
        };
        let node_bytes = r.length()?;
        let (ttl_seconds, prefix_bytes) = if has_extras { (r.varint()?, r.length()?) } else { (0, 0) };
        let ttl_seconds = Some(ttl_seconds).filter(|seconds| *seconds > 0);
        let options = IndexOptions { structure, compression, node_bytes, shape, counters, ttl_seconds, prefix_bytes };
        let name = String::from_utf8(r.bytes()?.to_vec()).ok()?;
        r.is_empty().then_some(Self { id, name, role, options, quarantined })
    }
}

impl TableDef {
    /// The row's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_bytes(&mut out, self.name.as_bytes());
        put_varint(&mut out, self.secondaries.len() as u64);
        for id in &self.secondaries {
            put_varint(&mut out, u64::from(id.0));
        }
        put_bytes(&mut out, &self.schema.encode());
        out
    }

    fn decode(id: IndexId, value: &[u8]) -> Option<Self> {
        let mut r = Reader::new(value);
        if r.u8()? != FORMAT {
            return None;
        }
        let name = String::from_utf8(r.bytes()?.to_vec()).ok()?;
        let mut secondaries = Vec::new();
        for _ in 0..r.varint()? {
            secondaries.push(IndexId(u32::try_from(r.varint()?).ok()?));
        }
        let schema = Schema::decode(r.bytes()?).ok()?;
        (r.is_empty() && schema.indexes().len() == secondaries.len()).then_some(Self { id, name, schema, secondaries })
    }
}

/// A row of the catalog.
#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    /// An index.
    Index(IndexDef),
    /// A table.
    Table(TableDef),
    /// The clock of an index whose versions expire, which may be dropped already.
    Clock(IndexId, Tick),
}

/// Reads a row of index 0.
///
/// # Errors
/// Corruption: the row was under a good checksum, so a malformed one is damage or a newer format.
pub fn decode_row(key: &[u8], value: &[u8]) -> Result<Row> {
    let parse = || {
        let (kind, id) = key.split_first()?;
        let id = IndexId(u32::from_be_bytes(id.try_into().ok()?));
        match kind {
            b'i' => IndexDef::decode(id, value).map(Row::Index),
            b't' => TableDef::decode(id, value).map(Row::Table),
            b'c' => Tick::decode(value).map(|tick| Row::Clock(id, tick)),
            _ => None,
        }
    };
    parse().ok_or_else(|| {
        Fault::corrupt("catalog", 0, "catalog row", "a row of format 1", base::bytes::printable(key))
            .in_index(IndexId::CATALOG, || base::bytes::printable(key))
    })
}
