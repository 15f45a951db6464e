//! Rows, entries and keys as the engine's typed values, and back.

use trefoil::Value;

use crate::api::{Result, TargetError};
use crate::row::{Entry, RowView};

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

/// The key and the row behind values.
pub(super) fn row_of<'a>(values: &'a [Value<'_>]) -> Result<(u64, RowView<'a>)> {
    match values {
        [
            Value::I64(key),
            Value::Timestamp(micros),
            Value::I32(cashregisterid),
            Value::I32(customerid),
            Value::I32(productid),
            Value::I32(price),
            Value::Text(data),
        ] => {
            let row = RowView {
                dateandtime: micros / MICROS,
                cashregisterid: *cashregisterid,
                customerid: *customerid,
                productid: *productid,
                price: *price,
                data: data.as_bytes(),
            };
            Ok((*key as u64, row))
        }
        other => Err(surprise("a row", other)),
    }
}

/// The entry and the key behind an index entry's values: the index columns, then the primary key.
pub(super) fn entry_of(values: &[Value<'_>]) -> Result<(Entry, u64)> {
    let Some((Value::I64(key), columns)) = values.split_last() else {
        return Err(surprise("an index entry", values));
    };
    let mut entry = Entry::default();
    if columns.len() > entry.len() {
        return Err(surprise("an index entry", values));
    }
    for (place, value) in entry.iter_mut().zip(columns) {
        *place = match value {
            Value::I32(number) => i64::from(*number),
            Value::Timestamp(micros) => micros / MICROS,
            _ => return Err(surprise("an index entry", values)),
        };
    }
    Ok((entry, *key as u64))
}

/// The only value of a key.
pub(super) fn key_of(values: Option<Vec<Value<'_>>>) -> Result<Option<u64>> {
    match values.as_deref() {
        None => Ok(None),
        Some([Value::I64(key)]) => Ok(Some(*key as u64)),
        Some(other) => Err(surprise("a key", other)),
    }
}
