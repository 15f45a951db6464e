//! Ranges of typed keys, and the byte ranges they stand for.

use std::ops::Bound;
use std::sync::Arc;

use base::limits::KEY_BYTES_MAX;

use crate::entry::{IndexEntry, Stage, TableShape};
use crate::error::{Error, Result};
use crate::table::key::{self, KEY_BYTES_USUAL};
use crate::table::{Schema, Value};

/// A range over the first columns of a key: each bound gives values of as many columns as it likes, from the
/// first on, and stands for all keys that begin with them. So the same values as both bounds, included, are
/// everything under them.
///
/// Bounds are in the order of the key: with a column that is descending there, the lower bound has the larger value. They
/// stand for what the key has of their values: with the front of a column, or one that has a collation, for every value that
/// is the same there.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, IndexSchema, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
/// # let people = db.create_table("people", schema)?;
/// # let mut tx = db.begin()?;
/// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
/// #     tx.insert(&people, &[id.into(), name.into()])?;
/// # }
/// # tx.commit()?;
/// use std::ops::Bound;
/// use trefoil::{Value, ValueRange};
///
/// let (from, to) = ([Value::from("B")], [Value::from("F")]);
/// let b_to_f: ValueRange = (Bound::Included(&from), Bound::Excluded(&to));
/// let tx = db.begin()?;
/// let mut entries = tx.scan_index(&people, "by_name", b_to_f)?; // `by_name` has two columns, name and id
/// assert_eq!(entries.next()?, Some(vec!["Edith".into(), 3i64.into()]));
/// assert_eq!(entries.next()?, None);
/// # Ok::<(), trefoil::Error>(())
/// ```
pub type ValueRange<'a> = (Bound<&'a [Value<'a>]>, Bound<&'a [Value<'a>]>);

/// Every key: no bound on either side.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, IndexSchema, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
/// # let people = db.create_table("people", schema)?;
/// # let mut tx = db.begin()?;
/// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
/// #     tx.insert(&people, &[id.into(), name.into()])?;
/// # }
/// # tx.commit()?;
/// let tx = db.begin()?;
/// let mut rows = tx.scan(&people, trefoil::ALL)?;
/// let mut count = 0;
/// while rows.next_key()?.is_some() {
///     count += 1;
/// }
/// assert_eq!(count, 3);
/// # Ok::<(), trefoil::Error>(())
/// ```
pub const ALL: ValueRange<'static> = (Bound::Unbounded, Bound::Unbounded);

pub(crate) fn whole_key(schema: &Schema, values: &[Value<'_>]) -> Result<Vec<u8>> {
    let columns = schema.primary_key().len();
    if values.len() != columns {
        let counts = format!("the primary key has {columns} columns, {} values were given", values.len());
        return Err(Error::InvalidArgument(counts));
    }
    let mut key = Vec::with_capacity(KEY_BYTES_USUAL);
    schema.primary_prefix(values, &mut key)?;
    Ok(key)
}

pub(crate) fn index_number(shape: &TableShape, name: &str) -> Result<usize> {
    // A transaction that has written to the table keeps the shape it found: meanwhile the index has come, or was dropped, or has
    // a successor.
    let has_come = |entry: &Arc<IndexEntry>| entry.name() == name && entry.stage() == Stage::Public;
    match shape.def.schema.index_number(name) {
        Some(n) if shape.secondaries[n].dropped_at().is_none() || shape.primary.dropped_at().is_some() => Ok(n),
        None if !shape.maintained.indexes.iter().any(has_come) => {
            Err(Error::NotFound { kind: "index", name: format!("{}.{name}", shape.def.name) })
        }
        _ => Err(Error::DefinitionChanged { name: name.to_owned() }),
    }
}

pub(crate) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

pub(crate) fn primary_range(schema: &Schema, range: ValueRange<'_>) -> Result<KeyRange> {
    key_range(range, |values, out| schema.primary_prefix(values, out))
}

pub(crate) fn index_range(schema: &Schema, n: usize, range: ValueRange<'_>) -> Result<KeyRange> {
    key_range(range, |values, out| schema.index_prefix(n, values, out))
}

/// A bound's values stand for all keys that begin with them: "after" them means behind the last such key.
fn key_range(
    range: ValueRange<'_>,
    prefix: impl Fn(&[Value<'_>], &mut Vec<u8>) -> base::Result<()>,
) -> Result<KeyRange> {
    let bound = |values: &[Value<'_>], behind: bool, open: fn(Vec<u8>) -> Bound<Vec<u8>>| -> Result<Bound<Vec<u8>>> {
        let mut key = Vec::with_capacity(KEY_BYTES_USUAL);
        prefix(values, &mut key)?;
        if behind && !key::successor(&mut key) {
            return Ok(Bound::Unbounded);
        }
        Ok(open(key))
    };
    let low = match range.0 {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(values) => bound(values, false, Bound::Included)?,
        Bound::Excluded(values) => match bound(values, true, Bound::Included)? {
            // Nothing lies behind: a bound above every key.
            Bound::Unbounded => Bound::Excluded(vec![u8::MAX; KEY_BYTES_MAX]),
            behind => behind,
        },
    };
    let high = match range.1 {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(values) => bound(values, true, Bound::Excluded)?,
        Bound::Excluded(values) => bound(values, false, Bound::Excluded)?,
    };
    Ok((low, high))
}

pub(crate) fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}
