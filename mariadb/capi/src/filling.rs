// SPDX-License-Identifier: GPL-2.0-only
//! A row of the engine into a record of the server, column by column, as it is decoded.

use trefoil::{RowVisitor, Value};

use crate::column_set::ColumnSet;
use crate::failure::{Failure, Result};
use crate::field::Field;

pub struct Filling<'a> {
    /// Columns of the server; one behind them is the number of the row.
    pub fields: &'a [Field],
    pub wanted: &'a ColumnSet,
    pub record: &'a mut [u8],
    pub blobs: &'a mut Vec<Box<[u8]>>,
    pub number: u64,
    /// The first value that did not fit.
    pub failure: Option<Box<Failure>>,
}

impl Filling<'_> {
    #[inline]
    fn put(&mut self, column: usize, put: impl FnOnce(&Field, &mut [u8], &mut Vec<Box<[u8]>>) -> Result<()>) {
        let Some(field) = self.fields.get(column) else { return };
        if let Err(failure) = put(field, self.record, self.blobs) {
            self.failure.get_or_insert(failure);
        }
    }
}

impl RowVisitor for Filling<'_> {
    #[inline]
    fn wants(&self, column: usize) -> bool {
        self.wanted.has(column)
    }

    fn value(&mut self, column: usize, value: &Value<'_>) {
        match *value {
            Value::U64(number) => self.u64(column, number),
            _ => self.put(column, |field, record, blobs| field.put(value, record, blobs)),
        }
    }

    #[inline]
    fn null(&mut self, column: usize) {
        self.put(column, |field, record, _| field.put_null(record));
    }

    #[inline]
    fn i64(&mut self, column: usize, number: i64) {
        self.put(column, |field, record, _| field.put_signed(number, record));
    }

    #[inline]
    fn i32(&mut self, column: usize, number: i32) {
        self.put(column, |field, record, _| field.put_signed(number.into(), record));
    }

    #[inline]
    fn u64(&mut self, column: usize, number: u64) {
        if column == self.fields.len() {
            self.number = number;
        }
        self.put(column, |field, record, _| field.put_unsigned(number, record));
    }

    #[inline]
    fn u32(&mut self, column: usize, number: u32) {
        self.put(column, |field, record, _| field.put_unsigned(number.into(), record));
    }

    #[inline]
    fn bytes(&mut self, column: usize, bytes: &[u8]) {
        self.put(column, |field, record, blobs| field.put_bytes(bytes, record, blobs));
    }
}
