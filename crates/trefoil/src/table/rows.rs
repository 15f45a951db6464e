//! Rows as entries: from values to the keys and bytes of a table's indexes, and back.
//!
//! Every method that fills `out` clears it first. Values are given in the order of the columns they stand for; they are
//! checked, so that nothing malformed gets into a key.

use std::borrow::Borrow;

use base::bytes::{Reader, printable};
use base::limits::KEY_BYTES_MAX;
use base::{Fault, Result};

use super::schema::{Column, Place, Schema};
use super::typed::{FromColumn, FromRow};
use super::value::Value;
use super::versions::Layout;
use super::{key, row};

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
        self.primary_key().iter().for_each(|&n| key::put(out, &self.columns()[n], &values[n]));
        check_length(out)
    }

    /// The start of a primary key from the values of its first columns; all of them: the key.
    ///
    /// # Errors
    /// `Invalid` if there are more values than columns or one does not fit; `Limit`.
    pub fn primary_prefix(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.prefix(self.primary_key().iter().copied(), values, out)
    }

    /// The start of a key of secondary index `n` from the values of its first columns, the primary key's behind them.
    ///
    /// # Errors
    /// `Invalid` if there are more values than columns or one does not fit; `Limit`.
    pub fn index_prefix(&self, n: usize, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.prefix(self.entry_columns(n), values, out)
    }

    /// The value that the primary index stores for a row given whole.
    ///
    /// # Errors
    /// `Invalid` if the values are not a row.
    pub fn row_value(&self, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.check(values)?;
        out.clear();
        let stored = self.0.derived.stored.iter().map(|&n| (&self.columns()[n], &values[n]));
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

    /// The entry of secondary index `n` for a row given whole, with its primary key.
    ///
    /// # Errors
    /// `Invalid` if the values are not a row; `Limit` if the key is too long.
    pub fn index_key_of_row(&self, n: usize, primary: &[u8], values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.check(values)?;
        out.clear();
        self.index_columns(n).iter().for_each(|&c| key::put(out, &self.columns()[c], &values[c]));
        out.extend_from_slice(primary);
        check_length(out)
    }

    /// The entry of secondary index `n` for a stored row.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed.
    pub fn secondary_key(&self, n: usize, primary: &[u8], row: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let values = self.pick(n, primary, row).ok_or_else(|| self.unreadable(row))?;
        out.clear();
        let columns = self.index_columns(n).iter().map(|&c| &self.columns()[c]);
        columns.zip(&values).for_each(|(column, value)| key::put(out, column, value));
        out.extend_from_slice(primary);
        check_length(out)
    }

    /// The primary key in an entry of secondary index `n`.
    ///
    /// # Errors
    /// `Corrupt` if the entry is malformed.
    pub fn primary_key_of<'a>(&self, n: usize, entry: &'a [u8]) -> Result<&'a [u8]> {
        let mut reader = Reader::new(entry);
        let mut columns = self.index_columns(n).iter().map(|&c| &self.columns()[c]);
        let skipped = columns.try_for_each(|column| key::skip(&mut reader, column));
        skipped.map(|()| reader.rest()).ok_or_else(|| malformed("index entry", entry))
    }

    /// Numbers of the unique indexes, ascending.
    pub fn unique_indexes(&self) -> &[usize] {
        &self.0.derived.unique
    }

    /// The value that an entry of unique index `n` has to itself: the entry without the primary key; none if a NULL is in
    /// it, or the index is not unique. No value begins with another one, so none is the whole key of any entry.
    ///
    /// # Errors
    /// `Corrupt` if the entry is malformed.
    pub fn unique_value<'a>(&self, n: usize, entry: &'a [u8]) -> Result<Option<&'a [u8]>> {
        if !self.indexes()[n].is_unique() {
            return Ok(None);
        }
        let mut reader = Reader::new(entry);
        let mut has_null = false;
        for column in self.index_columns(n).iter().map(|&c| &self.columns()[c]) {
            has_null |= column.nullable && key::take_null(&mut Reader::new(reader.rest())) == Some(true);
            key::skip(&mut reader, column).ok_or_else(|| malformed("index entry", entry))?;
        }
        Ok((!has_null).then(|| &entry[..entry.len() - reader.rest().len()]))
    }

    /// All values of a stored row, in the order of the columns.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed.
    pub fn decode_row<'a>(&self, primary: &'a [u8], row: &'a [u8]) -> Result<Vec<Value<'a>>> {
        let mut values = Vec::new();
        values.resize_with(self.columns().len(), || Value::Null);
        self.take_primary(primary, &mut values).ok_or_else(|| malformed("primary key", primary))?;
        self.take_stored(row, &mut values).ok_or_else(|| self.unreadable(row))?;
        Ok(values)
    }

    /// The values in an entry of secondary index `n`: of its columns, then of the primary key's, see
    /// [`Schema::entry_columns`]. A query that wants no others needs no row.
    ///
    /// # Errors
    /// `Corrupt` if the entry is malformed.
    pub fn decode_entry<'a>(&self, n: usize, entry: &'a [u8]) -> Result<Vec<Value<'a>>> {
        let count = self.index_columns(n).len() + self.primary_key().len();
        self.take_key(self.entry_columns(n), count, entry).ok_or_else(|| malformed("index entry", entry))
    }

    /// The values in a primary key, in key order.
    ///
    /// # Errors
    /// `Corrupt` if the key is malformed.
    pub fn decode_primary_key<'a>(&self, primary: &'a [u8]) -> Result<Vec<Value<'a>>> {
        let columns = self.primary_key().iter().copied();
        self.take_key(columns, self.primary_key().len(), primary).ok_or_else(|| malformed("primary key", primary))
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
    fn unreadable(&self, row: &[u8]) -> Fault {
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
        for &before in &self.primary_key()[..n] {
            key::skip(&mut key, &self.columns()[before])?;
        }
        T::from_key(&mut key)
    }

    /// An entry of secondary index `n` as a tuple: its columns, then the primary key's.
    ///
    /// # Errors
    /// `Corrupt` if the entry is malformed; `Invalid` if the tuple's types are not the columns'.
    #[inline(always)]
    pub fn decode_entry_as<'a, T: FromRow<'a>>(&self, n: usize, entry: &'a [u8]) -> Result<T> {
        if T::SIGNATURE != self.0.derived.entry_signatures[n] {
            return Err(misread(self.entry_columns(n).map(|c| &self.columns()[c])));
        }
        let mut key = Reader::new(entry);
        T::from_key(&mut key).filter(|_| key.is_empty()).ok_or_else(|| malformed("index entry", entry))
    }

    /// Numbers of the columns in an entry of secondary index `n`, in order: its own, then the primary key's.
    pub fn entry_columns(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        self.index_columns(n).iter().chain(self.primary_key()).copied()
    }

    /// The values of a whole key of these columns.
    fn take_key<'a>(
        &self,
        columns: impl Iterator<Item = usize>,
        count: usize,
        bytes: &'a [u8],
    ) -> Option<Vec<Value<'a>>> {
        let mut reader = Reader::new(bytes);
        let mut values = Vec::with_capacity(count);
        for c in columns {
            values.push(key::take(&mut reader, &self.columns()[c])?);
        }
        reader.is_empty().then_some(values)
    }

    /// The values of an index's columns, read in one pass that passes over the others and ends with the last of them.
    fn pick<'a>(&self, n: usize, primary: &'a [u8], row: &'a [u8]) -> Option<Vec<Value<'a>>> {
        let wanted = self.index_columns(n);
        let mut values = Vec::with_capacity(wanted.len());
        values.resize_with(wanted.len(), || Value::Null);
        let mut left = wanted.len();
        let mut reader = Reader::new(primary);
        for &c in self.primary_key() {
            let column = &self.columns()[c];
            match wanted.iter().position(|&w| w == c) {
                Some(at) => (values[at], left) = (key::take(&mut reader, column)?, left - 1),
                None => key::skip(&mut reader, column)?,
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
        for &n in self.primary_key() {
            values[n] = key::take(&mut reader, &self.columns()[n])?;
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

    fn prefix(&self, columns: impl Iterator<Item = usize>, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let mut columns = columns.map(|n| &self.columns()[n]);
        for value in values {
            let too_many = || Fault::Invalid(format!("{} values are more than the key has columns", values.len()));
            let column = columns.next().ok_or_else(too_many)?;
            check_value(column, value)?;
            key::put(out, column, value);
        }
        check_length(out)
    }
}

pub(super) fn check_value(column: &Column, value: &Value<'_>) -> Result<()> {
    match value.column_type() {
        Some(found) if found == column.column_type => Ok(()),
        None if column.nullable => Ok(()),
        None => Err(Fault::Invalid(format!("column {:?} may not be NULL", column.name))),
        Some(found) => {
            let Column { name, column_type, .. } = column;
            Err(Fault::Invalid(format!("column {name:?} is {column_type:?}, the value is {found:?}")))
        }
    }
}

fn as_tuple<'a, T: FromRow<'a>>(values: Vec<Value<'a>>) -> Result<T> {
    Ok(T::from_values(&mut values.into_iter()).expect("the signatures agree"))
}

#[cold]
fn misread<'c>(columns: impl Iterator<Item = &'c Column>) -> Fault {
    let name = |c: &Column| format!("{} {:?}{}", c.name, c.column_type, if c.nullable { " or NULL" } else { "" });
    let columns: Vec<String> = columns.map(name).collect();
    Fault::Invalid(format!("the tuple's types are not those of the columns ({})", columns.join(", ")))
}

fn check_length(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(Fault::Limit { what: "bytes of an encoded key", limit: KEY_BYTES_MAX as u64, got: key.len() as u64 })
}

/// These bytes were under a good checksum: damage in memory, or another schema.
#[cold]
fn malformed(what: &'static str, bytes: impl Borrow<[u8]>) -> Fault {
    Fault::corrupt("table", 0, what, "the columns of the table", printable(bytes.borrow()))
}

/// For fuzzing: decodes anything as a schema, and the rest as rows and entries of it. Never panics; what decodes
/// encodes to something that decodes to the same.
pub fn fuzz(bytes: &[u8]) {
    let Some((&cut, rest)) = bytes.split_first() else { return };
    let (schema, data) = rest.split_at(rest.len().min(cut.into()));
    let Ok(schema) = Schema::decode(schema) else { return };
    assert_eq!(Schema::decode(&schema.encode()).as_ref().ok(), Some(&schema), "a schema comes back");
    let (primary, row) = data.split_at(data.len() / 2);
    let mut out = Vec::new();
    if let Ok(values) = schema.decode_row(primary, row) {
        schema.row_value(&values, &mut out).expect("what was decoded is a row");
        let again = schema.decode_row(primary, &out).expect("what was encoded is a row");
        assert_eq!(again, values);
    }
    for n in 0..schema.indexes().len() {
        let _ = schema.primary_key_of(n, data);
        if let Ok(values) = schema.decode_entry(n, data) {
            let encoded = schema.index_prefix(n, &values, &mut out);
            assert!(encoded.is_err() || out == data, "an entry has one encoding");
        }
    }
}
