//! Rows of TPC-C as bytes: keys in the order of their columns, and values.
//!
//! A key begins with a byte for its tree: the rows of a table, or the entries of its index. Numbers in keys are big-endian with
//! the sign bit turned; a text ends in two zeros, and a zero within is followed by 255. No column of a key can be none.
//! A value has the columns that the key of a row lacks: numbers little-endian, a byte before those that can be none, texts
//! behind their length. An entry has no value.

use std::borrow::Cow;

use crate::api::{Result, TargetError};
use crate::tpcc::{Cell, Definition, Kind, Table};

/// The byte of a table's rows.
fn rows(table: Table) -> u8 {
    table as u8 * 2
}

/// The byte of its entries.
fn entries(table: Table) -> u8 {
    rows(table) + 1
}

/// The key of a row, or its beginning, of the first columns.
pub fn row_key(table: Table, key: &[i64]) -> Vec<u8> {
    let mut out = vec![rows(table)];
    for ((_, kind), number) in table.definition().columns.iter().zip(key) {
        push_key(*kind, &Cell::Number(*number), &mut out);
    }
    out
}

/// The key of an entry, or its beginning: cells of the first of these columns.
pub fn entry_key<'c, 'd: 'c>(
    table: Table,
    columns: &[usize],
    cells: impl IntoIterator<Item = &'c Cell<'d>>,
) -> Vec<u8> {
    let mut out = vec![entries(table)];
    for (column, cell) in columns.iter().zip(cells) {
        push_key(table.definition().columns[*column].1, cell, &mut out);
    }
    out
}

/// Behind all keys that begin with this one.
pub fn behind(mut prefix: Vec<u8>) -> Vec<u8> {
    while prefix.pop_if(|byte| *byte == u8::MAX).is_some() {}
    *prefix.last_mut().expect("the byte of a tree is not the largest") += 1;
    prefix
}

fn push_key(kind: Kind, cell: &Cell<'_>, out: &mut Vec<u8>) {
    match kind {
        Kind::Int | Kind::MaybeInt => out.extend((cell.number() as i32 ^ i32::MIN).to_be_bytes()),
        Kind::Long | Kind::Time | Kind::MaybeTime => out.extend((cell.number() ^ i64::MIN).to_be_bytes()),
        Kind::Text => {
            for byte in cell.text() {
                out.push(*byte);
                if *byte == 0 {
                    out.push(u8::MAX);
                }
            }
            out.extend([0, 0]);
        }
    }
}

/// The value of a row.
pub fn value_of(definition: &Definition, row: &[Cell<'_>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    for ((_, kind), cell) in definition.columns.iter().zip(row).skip(definition.key) {
        if matches!(kind, Kind::MaybeInt | Kind::MaybeTime) {
            out.push(u8::from(!cell.is_null()));
            if cell.is_null() {
                continue;
            }
        }
        match kind {
            Kind::Int | Kind::MaybeInt => out.extend((cell.number() as i32).to_le_bytes()),
            Kind::Long | Kind::Time | Kind::MaybeTime => out.extend(cell.number().to_le_bytes()),
            Kind::Text => {
                out.extend((cell.text().len() as u16).to_le_bytes());
                out.extend_from_slice(cell.text());
            }
        }
    }
    out
}

/// The first `count` columns of a row.
pub fn cells_of<'r>(table: Table, key: &'r [u8], value: &'r [u8], count: usize) -> Result<Vec<Cell<'r>>> {
    let definition = table.definition();
    let (mut key, mut value) = (key.get(1..).unwrap_or_default(), value);
    let cell = |(place, (_, kind)): (usize, &(&str, Kind))| match place < definition.key {
        true => key_cell(*kind, &mut key),
        false => value_cell(*kind, &mut value),
    };
    let cells = definition.columns.iter().enumerate().take(count).map(cell).collect::<Option<_>>();
    cells.ok_or_else(|| broken(definition, "row"))
}

/// Some columns of a row.
pub fn some_of<'r>(table: Table, key: &'r [u8], value: &'r [u8], columns: &[usize]) -> Result<Vec<Cell<'r>>> {
    let mut all = cells_of(table, key, value, columns.iter().max().map_or(0, |last| last + 1))?;
    match columns {
        // The same column can be asked for twice.
        [column] => Ok(vec![all.swap_remove(*column)]),
        _ => Ok(columns.iter().map(|column| all[*column].clone()).collect()),
    }
}

/// The cells of an entry with these columns.
pub fn entry_of<'r>(table: Table, columns: &[usize], key: &'r [u8]) -> Result<Vec<Cell<'r>>> {
    let (definition, mut key) = (table.definition(), key.get(1..).unwrap_or_default());
    let cells = columns.iter().map(|column| key_cell(definition.columns[*column].1, &mut key)).collect::<Option<_>>();
    cells.ok_or_else(|| broken(definition, "entry"))
}

fn broken(definition: &Definition, what: &str) -> TargetError {
    TargetError::Failed(format!("rocksdb: an {what} of {} cannot be read", definition.name))
}

fn front<'r>(bytes: &mut &'r [u8], count: usize) -> Option<&'r [u8]> {
    let (head, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(head)
}

fn first<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    front(bytes, N)?.try_into().ok()
}

fn key_cell<'r>(kind: Kind, bytes: &mut &'r [u8]) -> Option<Cell<'r>> {
    Some(match kind {
        Kind::Int | Kind::MaybeInt => Cell::Number((i32::from_be_bytes(first(bytes)?) ^ i32::MIN).into()),
        Kind::Long | Kind::Time | Kind::MaybeTime => Cell::Number(i64::from_be_bytes(first(bytes)?) ^ i64::MIN),
        Kind::Text => Cell::Text(key_text(bytes)?),
    })
}

/// A text as it stands, unless there is a zero within.
fn key_text<'r>(bytes: &mut &'r [u8]) -> Option<Cow<'r, [u8]>> {
    let mut text: Cow<'r, [u8]> = Cow::Borrowed(&[]);
    loop {
        let zero = bytes.iter().position(|byte| *byte == 0)?;
        let (part, next) = (front(bytes, zero)?, first::<2>(bytes)?[1]);
        if text.is_empty() && next == 0 {
            return Some(Cow::Borrowed(part));
        }
        text.to_mut().extend_from_slice(part);
        match next {
            0 => return Some(text),
            _ => text.to_mut().push(0),
        }
    }
}

fn value_cell<'r>(kind: Kind, bytes: &mut &'r [u8]) -> Option<Cell<'r>> {
    if matches!(kind, Kind::MaybeInt | Kind::MaybeTime) && first::<1>(bytes)? == [0] {
        return Some(Cell::Null);
    }
    Some(match kind {
        Kind::Int | Kind::MaybeInt => Cell::Number(i32::from_le_bytes(first(bytes)?).into()),
        Kind::Long | Kind::Time | Kind::MaybeTime => Cell::Number(i64::from_le_bytes(first(bytes)?)),
        Kind::Text => {
            let length = u16::from_le_bytes(first(bytes)?);
            Cell::Text(Cow::Borrowed(front(bytes, length.into())?))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::{Row, customer, orders};

    fn customer(last: &[u8], first: &[u8], id: i64) -> Row {
        let columns = customer::DEFINITION.columns.iter().enumerate();
        let cell = |(place, (_, kind)): (usize, &(&str, Kind))| match (place, kind) {
            (customer::LAST, _) => last.to_vec().into(),
            (customer::FIRST, _) => first.to_vec().into(),
            (customer::ID, _) => id.into(),
            (_, Kind::Text) => vec![b'x'; place].into(),
            _ => Cell::Number(-(place as i64)),
        };
        columns.map(cell).collect()
    }

    #[test]
    fn rows_come_back_and_torn_ones_do_not() {
        let row = customer(b"BARBARBAR", b"", 3);
        let (key, value) = (row_key(Table::Customer, &[0, -1, 3]), value_of(&customer::DEFINITION, &row));
        assert_eq!(cells_of(Table::Customer, &key, &value, row.len()).unwrap(), row);
        assert_eq!(some_of(Table::Customer, &key, &value, &[20, 0, 20]).unwrap()[2], row[20]);
        assert!(cells_of(Table::Customer, &key, &value[..value.len() - 1], row.len()).is_err());
        assert!(cells_of(Table::Customer, &key[..9], &value, row.len()).is_err());
        for carrier in [Cell::Null, Cell::Number(-7)] {
            let mut order: Row = [1, 2, 3, 4, 5, 6, 7, 8].map(Cell::Number).into();
            order[orders::CARRIER] = carrier;
            let (key, value) = (row_key(Table::Orders, &[1, 2, 3]), value_of(&orders::DEFINITION, &order));
            assert_eq!(cells_of(Table::Orders, &key, &value, 8).unwrap(), order);
        }
    }

    #[test]
    fn entries_are_in_the_order_of_their_cells() {
        let texts: [&[u8]; 7] = [b"", b"\0", b"\0\xff", b"A", b"A\0", b"AB", b"\xff\xff"];
        let columns = customer::DEFINITION.entry_columns();
        let mut all: Vec<Vec<Cell<'_>>> = Vec::new();
        for (last, first) in texts.iter().flat_map(|last| texts.iter().map(move |first| (last, first))) {
            for id in [i64::from(i32::MIN), -1, 0, 255, 256] {
                let row = customer(last, first, id);
                all.push(columns.iter().map(|column| row[*column].clone()).collect());
            }
        }
        all.sort();
        let keys: Vec<Vec<u8>> = all.iter().map(|cells| entry_key(Table::Customer, &columns, cells)).collect();
        assert!(keys.is_sorted());
        for (cells, key) in all.iter().zip(&keys) {
            assert_eq!(entry_of(Table::Customer, &columns, key).unwrap(), *cells);
            assert!(entry_of(Table::Customer, &columns, &key[..key.len() - 1]).is_err());
            let begins = entry_key(Table::Customer, &columns, &cells[..3]);
            assert!(key.starts_with(&begins) && *key < behind(begins));
        }
        assert_eq!(behind(vec![4, 255, 255]), [5]);
    }
}
