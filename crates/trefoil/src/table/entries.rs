//! Entries of secondary indexes: from values and stored rows to their keys and values, and back.
//!
//! The value of an entry has the columns that its key does not give back. Of a clustering index it is the row as the primary
//! index stores it, of whatever version: both are written together, so a row is read from either.

use base::Result;
use base::bytes::Reader;

use super::key::KEY_BYTES_USUAL;
use super::part::{Image, Part};
use super::row;
use super::rows::{as_tuple, check_length, malformed, misread};
use super::schema::Schema;
use super::typed::FromRow;
use super::value::Value;
use super::visitor::RowVisitor;

#[doc(hidden)]
impl Schema {
    /// The entry of secondary index `n` for a row given whole, with its primary key.
    ///
    /// # Errors
    /// `Invalid` if the values are not a row; `Limit` if the key is too long.
    pub fn index_key_of_row(&self, n: usize, primary: &[u8], values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.check(values)?;
        out.clear();
        out.reserve(KEY_BYTES_USUAL + primary.len());
        self.index_parts(n).iter().try_for_each(|part| self.put_part(out, part, &values[part.column]))?;
        out.extend_from_slice(primary);
        check_length(out)
    }

    /// The value of that entry: the columns that its key does not give back, or the row. Nothing if it gives back all.
    ///
    /// # Errors
    /// `Invalid` if the values are not a row.
    pub fn entry_value_of_row(&self, n: usize, values: &[Value<'_>], out: &mut Vec<u8>) -> Result<()> {
        if self.indexes()[n].is_clustering() {
            return self.row_value(values, out);
        }
        self.check(values)?;
        out.clear();
        row::put_columns(out, self.beside(n).iter().map(|&c| (&self.columns()[c], &values[c])));
        Ok(())
    }

    /// The entry of secondary index `n` for a stored row.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed.
    pub fn secondary_key(&self, n: usize, primary: &[u8], row: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let values = self.pick(self.index_columns(n), primary, row).ok_or_else(|| self.unreadable(row))?;
        out.clear();
        out.reserve(KEY_BYTES_USUAL + primary.len());
        self.index_parts(n).iter().zip(&values).try_for_each(|(part, value)| self.put_part(out, part, value))?;
        out.extend_from_slice(primary);
        check_length(out)
    }

    /// The value of that entry.
    ///
    /// # Errors
    /// `Corrupt` if key or row is malformed.
    pub fn secondary_value(&self, n: usize, primary: &[u8], row: &[u8], out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        if self.indexes()[n].is_clustering() {
            out.extend_from_slice(row);
            return Ok(());
        }
        let beside = self.beside(n);
        if beside.is_empty() {
            return Ok(());
        }
        let values = self.pick(beside, primary, row).ok_or_else(|| self.unreadable(row))?;
        row::put_columns(out, beside.iter().map(|&c| &self.columns()[c]).zip(&values));
        Ok(())
    }

    /// False if the key of an entry of secondary index `n` cannot be made here: it needs a collation, and the database was
    /// opened without any.
    pub fn makes_keys_of(&self, n: usize) -> bool {
        self.0.collations.0.is_some() || !self.index_parts(n).iter().any(|p| matches!(p.image, Image::Collated(..)))
    }

    /// The primary key in an entry of secondary index `n`.
    ///
    /// # Errors
    /// `Corrupt` if the entry is malformed.
    pub fn primary_key_of<'a>(&self, n: usize, entry: &'a [u8]) -> Result<&'a [u8]> {
        let mut reader = Reader::new(entry);
        let skipped = self.index_parts(n).iter().try_for_each(|part| self.skip_part(&mut reader, part));
        skipped.map(|()| reader.rest()).ok_or_else(|| malformed("index entry", entry))
    }

    /// Columns in the key of an entry: of secondary index `n` and of the primary key, or of the primary key alone.
    pub(crate) fn key_columns(&self, n: Option<usize>) -> usize {
        n.map_or(0, |n| self.index_parts(n).len()) + self.primary_parts().len()
    }

    /// How many columns, from the first, two keys of an index have the same.
    ///
    /// # Errors
    /// `Corrupt` if a key is malformed.
    pub(crate) fn same_columns(&self, n: Option<usize>, a: &[u8], b: &[u8]) -> Result<usize> {
        let same_bytes = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let mut reader = Reader::new(a);
        let own = n.map_or(&[][..], |n| self.index_parts(n));
        for (columns, part) in own.iter().chain(self.primary_parts()).enumerate() {
            self.skip_part(&mut reader, part).ok_or_else(|| malformed("index entry", a))?;
            if a.len() - reader.rest().len() > same_bytes {
                return Ok(columns);
            }
        }
        Ok(own.len() + self.primary_parts().len())
    }

    /// Where the first columns of a key of an index end.
    ///
    /// # Errors
    /// `Corrupt` if the key is malformed.
    pub(crate) fn columns_end(&self, n: Option<usize>, columns: usize, key: &[u8]) -> Result<usize> {
        let mut reader = Reader::new(key);
        let own = n.map_or(&[][..], |n| self.index_parts(n));
        for part in own.iter().chain(self.primary_parts()).take(columns) {
            self.skip_part(&mut reader, part).ok_or_else(|| malformed("index entry", key))?;
        }
        Ok(key.len() - reader.rest().len())
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
        for part in self.index_parts(n) {
            has_null |= part.is_null(reader.rest(), &self.columns()[part.column]);
            self.skip_part(&mut reader, part).ok_or_else(|| malformed("index entry", entry))?;
        }
        Ok((!has_null).then(|| &entry[..entry.len() - reader.rest().len()]))
    }

    /// The values in an entry of secondary index `n`: of its columns, then of the primary key's, see
    /// [`Schema::entry_columns`]. A query that wants no others needs no row.
    ///
    /// # Errors
    /// `Corrupt` if the entry is malformed.
    pub fn decode_entry<'a>(&self, n: usize, entry: &'a [u8], value: &'a [u8]) -> Result<Vec<Value<'a>>> {
        let refused = || match self.indexes()[n].is_clustering() {
            true => self.unreadable(value),
            false => malformed("index entry", entry),
        };
        self.take_entry(n, entry, value).ok_or_else(refused)
    }

    /// Gives the columns of an entry of secondary index `n` to `visitor`: what [`Schema::decode_entry`] has.
    ///
    /// # Errors
    /// `Corrupt` if the entry is malformed; some columns may have been given.
    #[inline]
    pub fn visit_entry(&self, n: usize, entry: &[u8], value: &[u8], visitor: &mut impl RowVisitor) -> Result<()> {
        if !self.0.derived.is_plain[n] {
            let values = self.decode_entry(n, entry, value)?;
            self.entry_columns(n).zip(&values).for_each(|(column, value)| visitor.value(column, value));
            return Ok(());
        }
        let (mut reader, columns) = (Reader::new(entry), self.columns());
        let given = self.entry_parts(n).try_for_each(|part| part.give(&mut reader, &columns[part.column], visitor));
        given.filter(|()| reader.is_empty() && value.is_empty()).ok_or_else(|| malformed("index entry", entry))
    }

    /// An entry of secondary index `n` as a tuple: its columns, then the primary key's.
    ///
    /// # Errors
    /// `Corrupt` if the entry is malformed; `Invalid` if the tuple's types are not the columns'.
    #[inline(always)]
    pub fn decode_entry_as<'a, T: FromRow<'a>>(&self, n: usize, entry: &'a [u8], value: &'a [u8]) -> Result<T> {
        if T::SIGNATURE != self.0.derived.entry_signatures[n] {
            return Err(misread(self.entry_columns(n).map(|c| &self.columns()[c])));
        }
        if !self.0.derived.is_plain[n] {
            return self.decode_any_entry_as(n, entry, value);
        }
        let mut key = Reader::new(entry);
        T::from_key(&mut key).filter(|_| key.is_empty()).ok_or_else(|| malformed("index entry", entry))
    }

    #[inline(never)]
    fn decode_any_entry_as<'a, T: FromRow<'a>>(&self, n: usize, entry: &'a [u8], value: &'a [u8]) -> Result<T> {
        self.decode_entry(n, entry, value).and_then(as_tuple)
    }

    /// Numbers of the columns in an entry of secondary index `n`, in order: its own, then the primary key's.
    pub fn entry_columns(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        self.index_columns(n).iter().chain(self.primary_key()).copied()
    }

    /// True if rows that differ in these values, and not in their primary key, may have other entries of index `n`.
    pub(crate) fn entry_differs(&self, n: usize, before: &[Value<'_>], after: &[Value<'_>]) -> bool {
        let mut columns = self.index_columns(n).iter().chain(self.beside(n));
        self.indexes()[n].is_clustering() || columns.any(|&c| before[c] != after[c])
    }

    pub(super) fn index_parts(&self, n: usize) -> &[Part] {
        &self.0.derived.index_parts[n]
    }

    /// The parts of an entry of secondary index `n`: its own, then the primary key's.
    pub(super) fn entry_parts(&self, n: usize) -> impl Iterator<Item = &Part> {
        self.index_parts(n).iter().chain(self.primary_parts())
    }

    /// Numbers of the columns that the key of an entry of secondary index `n` does not give back.
    fn beside(&self, n: usize) -> &[usize] {
        &self.0.derived.beside[n]
    }

    /// The values of an entry: those that parts of the key hold, then those beside it; a column that is twice in the key and
    /// held once has its value from there.
    fn take_entry<'a>(&self, n: usize, entry: &'a [u8], value: &'a [u8]) -> Option<Vec<Value<'a>>> {
        let mut reader = Reader::new(entry);
        let mut values = Vec::with_capacity(self.index_columns(n).len() + self.primary_key().len());
        for part in self.entry_parts(n) {
            if part.holds() {
                values.push(part.take(&mut reader, &self.columns()[part.column])?);
            } else {
                self.skip_part(&mut reader, part)?;
                values.push(Value::Null);
            }
        }
        if self.0.derived.is_plain[n] {
            return (reader.is_empty() && value.is_empty()).then_some(values);
        }
        let beside = self.beside(n);
        let besides = if self.indexes()[n].is_clustering() {
            let primary = self.primary_key_of(n, entry).ok()?;
            self.pick(beside, primary, value)?
        } else {
            let nullable = beside.iter().filter(|&&c| self.columns()[c].nullable).count();
            let mut columns = row::Columns::behind_head(Reader::new(value), beside.len(), nullable)?;
            let read = beside.iter().map(|&c| columns.next(&self.columns()[c])).collect::<Option<Vec<_>>>()?;
            columns.is_empty().then_some(read)?
        };
        for (&c, column_value) in beside.iter().zip(besides) {
            for (part, value) in self.entry_parts(n).zip(&mut values).filter(|(part, _)| part.column == c) {
                debug_assert!(!part.holds(), "what is held is not beside");
                *value = column_value.clone();
            }
        }
        for i in 0..values.len() {
            let part = self.entry_parts(n).nth(i).filter(|part| !part.holds() && !beside.contains(&part.column));
            if let Some(part) = part {
                let held = self.entry_parts(n).position(|other| other.column == part.column && other.holds())?;
                values[i] = values[held].clone();
            }
        }
        reader.is_empty().then_some(values)
    }
}
