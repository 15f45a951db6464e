//! Ranges of typed keys, and the byte ranges they stand for.

use std::ops::Bound;

use base::limits::KEY_BYTES_MAX;

use crate::entry::TableShape;
use crate::error::{Error, Result};
use crate::table::{Schema, Value, key};

/// A range over the first columns of a key: each bound gives values of as many columns as it likes, and
/// stands for all keys that begin with them.
pub type ValueRange<'a> = (Bound<&'a [Value<'a>]>, Bound<&'a [Value<'a>]>);

/// Everything.
pub const ALL: ValueRange<'static> = (Bound::Unbounded, Bound::Unbounded);

pub(crate) fn whole_key(schema: &Schema, values: &[Value<'_>]) -> Result<Vec<u8>> {
    let columns = schema.primary_key().len();
    if values.len() != columns {
        let counts = format!("the primary key has {columns} columns, {} values were given", values.len());
        return Err(Error::InvalidArgument(counts));
    }
    let mut key = Vec::new();
    schema.primary_prefix(values, &mut key)?;
    Ok(key)
}

pub(crate) fn index_number(shape: &TableShape, name: &str) -> Result<usize> {
    let found = shape.def.schema.index_number(name);
    found.ok_or_else(|| Error::NotFound { kind: "index", name: format!("{}.{name}", shape.def.name) })
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
        let mut key = Vec::new();
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
