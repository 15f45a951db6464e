//! Rows as entries: from values to the keys and bytes of a table's indexes, and back.
//!
//! Every method that fills `out` clears it first. Values are given in the order of the columns they stand for; they are
//! checked, so that nothing malformed gets into a key.

use std::borrow::Borrow;

use base::bytes::{Reader, printable};
use base::limits::KEY_BYTES_MAX;
use base::{Fault, Result};

use super::column::{Column, ColumnType};
use super::key::KEY_BYTES_USUAL;
use super::part::{Image, Part};
use super::parts::Place;
use super::row;
use super::schema::Schema;
use super::typed::{FromColumn, FromRow};
use super::value::Value;
use super::versions::Layout;
use super::visitor::RowVisitor;

impl Schema {
    /// True outcome if `values` are a row: one for each column, of its type, NULL only where it may be. What
    /// `Transaction::insert` would say, without a transaction.
    ///
    /// # Errors
    /// `Invalid`, naming the column.
    ///
    /// ```
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// schema.check(&[1i64.into(), "Ada".into()])?;
    /// let fault = schema.check(&["Ada".into(), 1i64.into()]).expect_err("in the wrong order");
    /// assert!(fault.to_string().contains("id"), "{fault}");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn check(&self, values: &[Value<'_>]) -> Result<()> {
        if values.len() != self.columns().len() {
            let counts = format!("the table has {} columns, the row {} values", self.columns().len(), values.len());
            return Err(Fault::Invalid(counts));
        }
        self.columns().iter().zip(values).try_for_each(|(column, value)| check_value(column, value))
    }
}

// The encodings, for the engine; public for tests of the format.
#[doc(hidden)]
impl Schema {
    /// The primary key of a row given whole.
    ///
    /// # Errors
    /// `Invalid` if the values are not a row; `Limit` if the key is too long.
    pub fn primary_key_of_row(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.check(values)?;
        out.clear();
        out.reserve(KEY_BYTES_USUAL);
        self.primary_parts().iter().try_for_each(|part| self.put_part(out, part, &values[part.column]))?;
        check_length(out)
    }

    /// The start of a primary key from the values of its first columns; all of them: the key.
    ///
    /// # Errors
    /// `Invalid` if there are more values than columns or one does not fit; `Limit`.
    pub fn primary_prefix(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.prefix(self.primary_parts().iter(), values, out)
    }

    /// The start of a key of secondary index `n` from the values of its first columns, the primary key's behind them.
    ///
    /// # Errors
    /// `Invalid` if there are more values than columns or one does not fit; `Limit`.
    pub fn index_prefix(&self, n: usize, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.prefix(self.entry_parts(n), values, out)
    }

    /// The value that the primary index stores for a row given whole.
    ///
    /// # Errors
    /// `Invalid` if the values are not a row.
    pub fn row_value(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.check(values)?;
        out.clear();
        let stored = self.0.derived.stored.iter().map(|&n| (&self.columns()[n], &values[n]));
        out.reserve(row::bytes_max(stored.clone().map(|(_, value)| value)));
        row::put(out, self.0.derived.version, stored);
        Ok(())
    }

    /// True if a stored row says the same as `new`, one of the newest version: whatever version it is of itself.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed.
    pub fn says_the_same(&self, primary: &[u8], row: &[u8], new: &[u8]) -> Result<bool> {
        if row == new || row::version(row) == Some(self.0.derived.version) {
            return Ok(row == new);
        }
        let mut again = Vec::new();
        self.row_value(&self.decode_row(primary, row)?, &mut again)?;
        Ok(again == new)
    }

    /// All values of a stored row, in the order of the columns.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed.
    pub fn decode_row<'a>(&self, primary: &'a [u8], row: &'a [u8]) -> Result<Vec<Value<'a>>> {
        let mut values = Vec::with_capacity(self.columns().len());
        values.resize_with(self.columns().len(), || Value::Null);
        self.take_primary(primary, &mut values).ok_or_else(|| malformed("primary key", primary))?;
        self.take_stored(row, &mut values).ok_or_else(|| self.unreadable(row))?;
        Ok(values)
    }

    /// Gives each column of a stored row to `visitor`: those that the key holds, then the others. Nothing is allocated, but for
    /// rows that are older than some column.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed; some columns may have been given.
    #[inline]
    pub fn visit_row(&self, primary: &[u8], row: &[u8], visitor: &mut impl RowVisitor) -> Result<()> {
        self.visit_primary(primary, visitor).ok_or_else(|| malformed("primary key", primary))?;
        self.visit_stored(row, visitor).ok_or_else(|| self.unreadable(row))
    }

    /// The values in a primary key that holds all of them, in key order.
    ///
    /// # Errors
    /// `Corrupt` if the key is malformed; `Invalid` if it does not hold all of them.
    pub fn decode_primary_key<'a>(&self, primary: &'a [u8]) -> Result<Vec<Value<'a>>> {
        if !self.primary_parts().iter().all(Part::holds) {
            return Err(Fault::Invalid("the primary key does not hold its columns: they are in the row".into()));
        }
        self.decode_primary_key_of(primary, &[])
    }

    /// The values of the primary key's columns in a stored row, in key order.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed.
    pub fn decode_primary_key_of<'a>(&self, primary: &'a [u8], row: &'a [u8]) -> Result<Vec<Value<'a>>> {
        let parts = self.primary_parts();
        if parts.iter().all(Part::holds) {
            let mut reader = Reader::new(primary);
            let mut values = Vec::with_capacity(parts.len());
            let read = parts.iter().try_for_each(|part| {
                values.push(part.take(&mut reader, &self.columns()[part.column])?);
                Some(())
            });
            return read
                .filter(|()| reader.is_empty())
                .map(|()| values)
                .ok_or_else(|| malformed("primary key", primary));
        }
        self.pick(self.primary_key(), primary, row).ok_or_else(|| self.unreadable(row))
    }

    /// Gives the columns of the primary key, which may be in the stored row, to `visitor`.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed; some columns may have been given.
    #[inline]
    pub fn visit_primary_key(&self, primary: &[u8], row: &[u8], visitor: &mut impl RowVisitor) -> Result<()> {
        if self.primary_parts().iter().all(Part::holds) {
            return self.visit_primary(primary, visitor).ok_or_else(|| malformed("primary key", primary));
        }
        let values = self.decode_primary_key_of(primary, row)?;
        self.primary_key().iter().zip(&values).for_each(|(&column, value)| visitor.value(column, value));
        Ok(())
    }

    /// A stored row as a tuple.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed; `Invalid` if the tuple's types are not the columns'.
    #[inline(always)]
    pub fn decode_row_as<'a, T: FromRow<'a>>(&self, primary: &'a [u8], row: &'a [u8]) -> Result<T> {
        let (key_columns, derived) = (self.0.primary.len(), &self.0.derived);
        if T::SIGNATURE != derived.signature {
            return Err(misread(self.columns().iter()));
        }
        let stored = || row::Columns::new(row, derived.version, &derived.nullable_stored)?.all(derived.stored.len());
        match if derived.key_leads { stored() } else { None } {
            Some(mut fields) => {
                let mut key = Reader::new(primary);
                let read = T::from_entry(&mut key, key_columns, &mut fields);
                let whole = key.is_empty() && fields.reader.is_empty();
                read.filter(|_| whole).ok_or_else(|| malformed("row", row))
            }
            // The key's columns are not the first ones, or the row is older than some column.
            None => self.decode_any_row_as(primary, row),
        }
    }

    #[inline(never)]
    fn decode_any_row_as<'a, T: FromRow<'a>>(&self, primary: &'a [u8], row: &'a [u8]) -> Result<T> {
        self.decode_row(primary, row).and_then(as_tuple)
    }

    /// One column of a stored row; those behind it are not looked at.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed up to it; `Invalid` if there is no such column or its type is another.
    #[inline(always)]
    pub fn decode_column_as<'a, T: FromColumn<'a>>(
        &self,
        column: usize,
        primary: &'a [u8],
        row: &'a [u8],
    ) -> Result<T> {
        if let Some((code, Place::Stored(_, Some(way)))) = self.0.derived.places.get(column)
            && *code == T::CODE
            && let Some(mut fields) = way.follow(row)
            && let Some(value) = T::from_row(&mut fields)
        {
            return Ok(value);
        }
        self.decode_any_column_as(column, primary, row)
    }

    #[inline(never)]
    fn decode_any_column_as<'a, T: FromColumn<'a>>(
        &self,
        column: usize,
        primary: &'a [u8],
        row: &'a [u8],
    ) -> Result<T> {
        let place = match self.0.derived.places.get(column) {
            Some((code, place)) if *code == T::CODE => place,
            Some(_) => return Err(misread(self.columns()[column..].iter().take(1))),
            None => return Err(Fault::Invalid(format!("there is no column {column}"))),
        };
        let read = match place {
            Place::Key(n) => self.key_column(*n, primary),
            Place::Stored(n, _) => match self.old_layout(row) {
                Some((version, layout)) => layout.column(version, row, column),
                None => self.stored_column(*n, row),
            },
        };
        read.ok_or_else(|| self.unreadable(row))
    }

    /// What a row stores, if it is older than the newest version.
    fn old_layout(&self, row: &[u8]) -> Option<(u8, &Layout)> {
        let version = row::version(row)?;
        self.0.derived.old.get(usize::from(version)).map(|layout| (version, layout))
    }

    /// Why a stored row cannot be read: it is of a version that came behind this schema, or no row.
    #[cold]
    pub(super) fn unreadable(&self, row: &[u8]) -> Fault {
        match row::version(row) {
            Some(version) if version > self.0.derived.version => Fault::Changed,
            _ => malformed("row", row),
        }
    }

    /// The `n`-th column that rows store, of any row of the newest version.
    fn stored_column<'a, T: FromColumn<'a>>(&self, n: usize, row: &'a [u8]) -> Option<T> {
        let derived = &self.0.derived;
        let mut stored = row::Columns::new(row, derived.version, &derived.nullable_stored)?;
        for &before in &derived.stored[..n] {
            stored.skip(&self.columns()[before])?;
        }
        stored.next_as()
    }

    #[inline]
    fn key_column<'a, T: FromColumn<'a>>(&self, n: usize, primary: &'a [u8]) -> Option<T> {
        let mut key = Reader::new(primary);
        let (before, rest) = self.primary_parts().split_at(n);
        for part in before {
            self.skip_part(&mut key, part)?;
        }
        let part = rest.first()?;
        if part.is_plain() {
            return T::from_key(&mut key);
        }
        T::from_value(part.take(&mut key, &self.columns()[part.column])?)
    }

    /// Values of some columns of a row.
    pub(crate) fn columns_of<'a>(&self, columns: &[usize], primary: &'a [u8], row: &'a [u8]) -> Result<Vec<Value<'a>>> {
        self.pick(columns, primary, row).ok_or_else(|| self.unreadable(row))
    }

    /// Appends the key of some columns, whole and ascending.
    pub(crate) fn put_plain_key(&self, columns: &[usize], values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        for (&column, value) in columns.iter().zip(values) {
            check_value(&self.columns()[column], value)?;
            let image = self.columns()[column].collation.map_or(Image::Whole, |number| Image::Collated(number, None));
            self.put_part(out, &Part { column, descending: false, image }, value)?;
        }
        Ok(())
    }

    /// True if values of some columns are one key.
    pub(crate) fn same_key(&self, columns: &[usize], a: &[Value<'_>], b: &[Value<'_>]) -> Result<bool> {
        if a.iter().chain(b).any(Value::is_null) {
            return Ok(false);
        }
        let (mut first, mut second) = (Vec::new(), Vec::new());
        self.put_plain_key(columns, a, &mut first)?;
        self.put_plain_key(columns, b, &mut second)?;
        Ok(first == second)
    }

    /// True if these are the columns of the primary key, whole, in order.
    pub(crate) fn has_whole_primary_key(&self, columns: &[usize]) -> bool {
        self.primary_key() == columns && self.primary_key_parts().all(|part| part.front_length().is_none())
    }

    pub(super) fn primary_parts(&self) -> &[Part] {
        &self.0.derived.primary_parts
    }

    #[inline]
    pub(super) fn put_part(&self, out: &mut Vec<u8>, part: &Part, value: &Value<'_>) -> Result<()> {
        part.put(out, &self.columns()[part.column], value, &self.0.collations)
    }

    #[inline]
    pub(super) fn skip_part(&self, reader: &mut Reader<'_>, part: &Part) -> Option<()> {
        part.skip(reader, &self.columns()[part.column])
    }

    /// The values of these columns of a row, read in one pass that passes over the others and ends with the last of them.
    pub(super) fn pick<'a>(&self, wanted: &[usize], primary: &'a [u8], row: &'a [u8]) -> Option<Vec<Value<'a>>> {
        let mut values = Vec::with_capacity(wanted.len());
        values.resize_with(wanted.len(), || Value::Null);
        let mut left = wanted.len();
        let mut reader = Reader::new(primary);
        for part in self.primary_parts() {
            match wanted.iter().position(|&w| w == part.column).filter(|_| part.holds()) {
                Some(at) => (values[at], left) = (part.take(&mut reader, &self.columns()[part.column])?, left - 1),
                None => self.skip_part(&mut reader, part)?,
            }
        }
        if left == 0 {
            return Some(values);
        }
        if let Some((version, layout)) = self.old_layout(row) {
            layout.read(version, row, |c| wanted.iter().position(|&w| w == c), &mut values)?;
            return Some(values);
        }
        let columns = self.0.derived.stored.iter().map(|&c| &self.columns()[c]);
        let mut stored = row::Columns::new(row, self.0.derived.version, &self.0.derived.nullable_stored)?;
        for (&c, column) in self.0.derived.stored.iter().zip(columns) {
            if left == 0 {
                break;
            }
            match wanted.iter().position(|&w| w == c) {
                Some(at) => (values[at], left) = (stored.next(column)?, left - 1),
                None => stored.skip(column)?,
            }
        }
        Some(values)
    }

    fn take_primary<'a>(&self, primary: &'a [u8], values: &mut [Value<'a>]) -> Option<()> {
        let mut reader = Reader::new(primary);
        for part in self.primary_parts() {
            if part.holds() {
                values[part.column] = part.take(&mut reader, &self.columns()[part.column])?;
            } else {
                self.skip_part(&mut reader, part)?;
            }
        }
        reader.is_empty().then_some(())
    }

    fn take_stored<'a>(&self, row: &'a [u8], values: &mut [Value<'a>]) -> Option<()> {
        let newest = row::Columns::new(row, self.0.derived.version, &self.0.derived.nullable_stored);
        let Some(mut stored) = newest else {
            let (version, layout) = self.old_layout(row)?;
            return layout.read(version, row, Some, values);
        };
        for &n in &self.0.derived.stored {
            values[n] = stored.next(&self.columns()[n])?;
        }
        stored.is_empty().then_some(())
    }

    #[inline]
    fn visit_primary(&self, primary: &[u8], visitor: &mut impl RowVisitor) -> Option<()> {
        let mut reader = Reader::new(primary);
        for part in self.primary_parts() {
            if part.holds() && visitor.wants(part.column) {
                part.give(&mut reader, &self.columns()[part.column], visitor)?;
            } else {
                self.skip_part(&mut reader, part)?;
            }
        }
        reader.is_empty().then_some(())
    }

    #[inline]
    fn visit_stored(&self, row: &[u8], visitor: &mut impl RowVisitor) -> Option<()> {
        let derived = &self.0.derived;
        let Some(mut stored) = row::Columns::new(row, derived.version, &derived.nullable_stored) else {
            return self.visit_old(row, visitor);
        };
        for &n in &derived.stored {
            match visitor.wants(n) {
                true => stored.give(n, &self.columns()[n], visitor)?,
                false => stored.skip(&self.columns()[n])?,
            }
        }
        stored.is_empty().then_some(())
    }

    /// The same of a row that is older than the newest version.
    #[inline(never)]
    fn visit_old(&self, row: &[u8], visitor: &mut impl RowVisitor) -> Option<()> {
        let mut values = Vec::new();
        values.resize_with(self.columns().len(), || Value::Null);
        let (version, layout) = self.old_layout(row)?;
        layout.read(version, row, Some, &mut values)?;
        for &n in &self.0.derived.stored {
            if visitor.wants(n) {
                visitor.value(n, &values[n]);
            }
        }
        Some(())
    }

    fn prefix<'p>(
        &self,
        mut parts: impl Iterator<Item = &'p Part>,
        values: &[Value<'_>],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.clear();
        out.reserve(KEY_BYTES_USUAL);
        for value in values {
            let too_many = || Fault::Invalid(format!("{} values are more than the key has columns", values.len()));
            let part = parts.next().ok_or_else(too_many)?;
            check_value(&self.columns()[part.column], value)?;
            self.put_part(out, part, value)?;
        }
        check_length(out)
    }
}

pub(super) fn check_value(column: &Column, value: &Value<'_>) -> Result<()> {
    match value.column_type() {
        Some(found) if found == column.column_type => Ok(()),
        Some(_) if is_of_width(column.column_type, value) => Ok(()),
        None if column.nullable => Ok(()),
        None => Err(Fault::Invalid(format!("column {:?} may not be NULL", column.name))),
        Some(found) => {
            let Column { name, column_type, .. } = column;
            let length = if let Value::Bytes(bytes) = value { format!(" of {}", bytes.len()) } else { String::new() };
            Err(Fault::Invalid(format!("column {name:?} is {column_type:?}, the value is {found:?}{length}")))
        }
    }
}

/// True if the column is of fixed width, and the value of that.
fn is_of_width(column_type: ColumnType, value: &Value<'_>) -> bool {
    matches!((column_type, value), (ColumnType::Fixed(width), Value::Bytes(bytes)) if bytes.len() == usize::from(width))
}

pub(super) fn as_tuple<'a, T: FromRow<'a>>(values: Vec<Value<'a>>) -> Result<T> {
    Ok(T::from_values(&mut values.into_iter()).expect("the signatures agree"))
}

#[cold]
pub(super) fn misread<'c>(columns: impl Iterator<Item = &'c Column>) -> Fault {
    let name = |c: &Column| format!("{} {:?}{}", c.name, c.column_type, if c.nullable { " or NULL" } else { "" });
    let columns: Vec<String> = columns.map(name).collect();
    Fault::Invalid(format!("the tuple's types are not those of the columns ({})", columns.join(", ")))
}

pub(super) fn check_length(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(Fault::Limit { what: "bytes of an encoded key", limit: KEY_BYTES_MAX as u64, got: key.len() as u64 })
}

/// These bytes were under a good checksum: damage in memory, or another schema.
#[cold]
pub(super) fn malformed(what: &'static str, bytes: impl Borrow<[u8]>) -> Fault {
    Fault::corrupt("table", 0, what, "the columns of the table", printable(bytes.borrow()))
}
