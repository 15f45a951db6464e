// SPDX-License-Identifier: GPL-2.0-only
//! Rows read ahead, as records of the server.

use trefoil::RowRef;

use crate::column_set::ColumnSet;
use crate::layout::Layout;
use crate::raw::Record;
use crate::reads::Met;

/// A handler that nobody reads with keeps no more: the server has one of each table that a connection has used.
const SPARE_BYTES_MAX: usize = 4 << 10;

/// Records one behind another. Their blobs live as long as the batch is not cleared.
#[derive(Default)]
pub struct Batch {
    records: Vec<u8>,
    /// The number of each row, if the table has them.
    rows: Vec<u64>,
    blobs: Vec<Box<[u8]>>,
    blob_bytes: usize,
}

impl Batch {
    pub fn clear(&mut self) {
        self.records.clear();
        self.rows.clear();
        self.blobs.clear();
        self.blob_bytes = 0;
    }

    /// Its memory, for the next one, if that is little.
    pub fn into_spare(mut self) -> Self {
        self.clear();
        if self.records.capacity() > SPARE_BYTES_MAX { Self::default() } else { self }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.records.len() + self.blob_bytes
    }

    /// Adds what is wanted of a row.
    pub fn push_row(&mut self, layout: &Layout, wanted: &ColumnSet, row: RowRef<'_>) -> Result<(), Met> {
        self.push(layout, |record, blobs| layout.put(row, wanted, record, blobs))
    }

    /// Adds the record that `put` makes of one that has the defaults, with its blobs; it returns the row's number.
    #[inline]
    pub fn push<E>(
        &mut self,
        layout: &Layout,
        put: impl FnOnce(&mut [u8], &mut Vec<Box<[u8]>>) -> Result<u64, E>,
    ) -> Result<(), E> {
        let (start, blobs) = (self.records.len(), self.blobs.len());
        self.records.extend_from_slice(layout.defaults());
        let row = put(&mut self.records[start..], &mut self.blobs)?;
        self.blob_bytes += self.blobs[blobs..].iter().map(|blob| blob.len()).sum::<usize>();
        self.rows.push(row);
        Ok(())
    }

    /// Record `at` and the number of its row.
    pub fn get(&self, layout: &Layout, at: usize) -> (&[u8], u64) {
        let bytes = layout.record_bytes();
        (&self.records[at * bytes..][..bytes], self.rows[at])
    }

    /// The same to read keys from.
    pub fn record(&self, layout: &Layout, at: usize) -> (Record<'_>, u64) {
        let (bytes, row) = self.get(layout, at);
        (Record::with_blobs(bytes, &self.blobs), row)
    }
}
