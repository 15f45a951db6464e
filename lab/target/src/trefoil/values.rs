//! Rows, entries and keys as the engine's typed values, and back.

use std::borrow::Cow;

use trefoil::{Entries, Timestamp, Value};

use crate::api::{Result, TargetError};
use crate::row::{Column, Entry, RowView};

/// `dateandtime` is kept in microseconds.
const MICROS: i64 = 1_000_000;

/// The values of a row, in the order of the columns.
pub(super) fn values_of(key: u64, row: RowView<'_>) -> Result<[Value<'_>; 7]> {
    let data = std::str::from_utf8(row.data).map_err(|_| TargetError::Failed("the data is not text".into()))?;
    Ok([
        Value::I64(key as i64),
        Value::Timestamp(row.dateandtime * MICROS),
        Value::I32(row.cashregisterid),
        Value::I32(row.customerid),
        Value::I32(row.productid),
        Value::I32(row.price),
        Value::from(data),
    ])
}

fn surprise(what: &str, values: &[Value<'_>]) -> TargetError {
    TargetError::Failed(format!("trefoil: {what} came back as {values:?}"))
}

/// Number of the column `customerid`.
pub(super) const CUSTOMERID: usize = 3;

/// The columns of a row, in their order.
pub(super) type Columns<'a> = (i64, Option<Timestamp>, i32, i32, i32, i32, Option<Cow<'a, str>>);

/// The key and the row in these columns.
#[inline]
pub(super) fn row_of<'a>(columns: &'a Columns<'_>) -> (u64, RowView<'a>) {
    let (key, time, cashregisterid, customerid, productid, price, data) = columns;
    let row = RowView {
        dateandtime: seconds(*time),
        cashregisterid: *cashregisterid,
        customerid: *customerid,
        productid: *productid,
        price: *price,
        data: data.as_deref().unwrap_or_default().as_bytes(),
    };
    (*key as u64, row)
}

fn seconds(time: Option<Timestamp>) -> i64 {
    time.map_or(0, |Timestamp(micros)| micros / MICROS)
}

/// The next entry of the index with these columns, and the key in it.
#[inline]
pub(super) fn next_entry(entries: &mut Entries<'_>, columns: &[Column]) -> Result<Option<(Entry, u64)>> {
    Ok(match columns {
        [_, _] => entries.next_as::<(i32, i32, i64)>()?.map(|(a, b, key)| ([a.into(), b.into(), 0], key as u64)),
        [_, Column::DateAndTime, _] => entries
            .next_as::<(i32, Option<Timestamp>, i32, i64)>()?
            .map(|(a, b, c, key)| ([a.into(), seconds(b), c.into()], key as u64)),
        _ => entries
            .next_as::<(i32, i32, i32, i64)>()?
            .map(|(a, b, c, key)| ([a.into(), b.into(), c.into()], key as u64)),
    })
}

/// The only value of a key.
pub(super) fn key_of(values: Option<Vec<Value<'_>>>) -> Result<Option<u64>> {
    match values.as_deref() {
        None => Ok(None),
        Some([Value::I64(key)]) => Ok(Some(*key as u64)),
        Some(other) => Err(surprise("a key", other)),
    }
}
