// SPDX-License-Identifier: GPL-2.0-only
//! Rows read ahead, as packed records of the server.

use std::cell::Cell;

use trefoil::RowRef;

use crate::column_set::ColumnSet;
use crate::cursor::BATCH_BYTES_MAX;
use crate::filling::Filling;
use crate::layout::Layout;
use crate::raw::{Record, Slot};
use crate::reads::Met;

/// A thread keeps no more between two scans, whichever handlers they are of: what some hundred rows take.
const SPARE_BYTES_MAX: usize = 32 << 10;

thread_local! {
    /// Of the batch that was dropped last.
    static SPARE: Cell<(Vec<u8>, Vec<Row>)> = Cell::default();
}

/// Records one behind another. Their blobs live as long as the batch is not cleared.
///
/// Each is made in a record of the server's, the same one until the batch is cleared: columns that are not wanted have the defaults
/// there from the first row on. It begins in the memory of the one that its thread dropped last.
pub struct Batch {
    /// Packed.
    records: Vec<u8>,
    rows: Vec<Row>,
    blobs: Vec<Box<[u8]>>,
    blob_bytes: usize,
    /// Of the rows that records were made of: all columns of them.
    read_bytes: usize,
}

#[derive(Clone, Copy)]
struct Row {
    /// Where its record begins.
    start: usize,
    /// Its number, if the table has them.
    number: u64,
}

impl Default for Batch {
    fn default() -> Self {
        // A thread that ends has none any more.
        let (records, rows) = SPARE.try_with(Cell::take).unwrap_or_default();
        Self { records, rows, blobs: Vec::new(), blob_bytes: 0, read_bytes: 0 }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let kept = self.records.capacity() + self.rows.capacity() * size_of::<Row>();
        if (1..=SPARE_BYTES_MAX).contains(&kept) {
            self.clear();
            let left = (std::mem::take(&mut self.records), std::mem::take(&mut self.rows));
            let _ = SPARE.try_with(|spare| spare.set(left));
        }
    }
}

impl Batch {
    pub fn clear(&mut self) {
        self.records.clear();
        self.rows.clear();
        self.blobs.clear();
        self.blob_bytes = 0;
        self.read_bytes = 0;
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.records.len() + self.blob_bytes
    }

    /// How many rows to read next, behind `now`: twice as many, `most` at most, and of large rows fewer.
    pub fn rows_next(&self, now: usize, most: usize) -> usize {
        let each = self.read_bytes.max(self.bytes()) / self.len().max(1);
        (now * 2).min(most).min(BATCH_BYTES_MAX / each.max(1)).max(1)
    }

    /// Adds what is wanted of a row, which is made in `record`.
    pub fn push_row(&mut self, layout: &Layout, wanted: &ColumnSet, row: RowRef<'_>, record: Slot) -> Result<(), Met> {
        self.read_bytes += row.bytes();
        self.push(layout, wanted, record, |filling| row.visit(filling))
    }

    /// The same of what `visit` gives.
    #[inline]
    pub fn push(
        &mut self,
        layout: &Layout,
        wanted: &ColumnSet,
        record: Slot,
        visit: impl FnOnce(&mut Filling<'_>) -> trefoil::Result<()>,
    ) -> Result<(), Met> {
        let (start, blobs) = (self.records.len(), self.blobs.len());
        record.write(|record| {
            if self.rows.is_empty() {
                layout.put_defaults(record);
            }
            let number = layout.put(wanted, record, &mut self.blobs, visit)?;
            layout.packing().pack(record, &mut self.records);
            self.rows.push(Row { start, number });
            Ok::<_, Met>(())
        })?;
        self.blob_bytes += self.blobs[blobs..].iter().map(|blob| blob.len()).sum::<usize>();
        Ok(())
    }

    /// Record number `at` into `record`; returns the number of its row.
    pub fn get(&self, layout: &Layout, at: usize, record: &mut [u8]) -> u64 {
        let Row { start, number } = self.rows[at];
        layout.packing().unpack(&self.records[start..], record);
        number
    }

    /// The same to read keys from.
    pub fn read<T>(&self, layout: &Layout, at: usize, with: impl FnOnce(Record<'_>, u64) -> T) -> T {
        if layout.packing().is_whole() {
            let Row { start, number } = self.rows[at];
            let record = &self.records[start..][..layout.record_bytes()];
            return with(Record::with_blobs(record, &self.blobs), number);
        }
        let mut record = vec![0; layout.record_bytes()];
        let number = self.get(layout, at, &mut record);
        with(Record::with_blobs(&record, &self.blobs), number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards: `rows_next` looks at what was read, wanted or not.
    #[test]
    fn of_large_rows_fewer_are_read_at_once() {
        let row = Row { start: 0, number: 0 };
        let mut batch = Batch::default();
        (batch.rows, batch.records) = (vec![row; 4], vec![0; 400]);
        assert_eq!((batch.rows_next(4, 1024), batch.rows_next(1000, 1024)), (8, 1024));
        batch.read_bytes = 4 * (100 << 10);
        assert_eq!((batch.rows_next(4, 1024), batch.rows_next(8, 1024)), (8, 10));
        batch.read_bytes = 4 * (5 << 20);
        assert_eq!(batch.rows_next(4, 1024), 1);
    }
    /// Guards: the memory is taken up again, empty; not that of a long scan.
    #[test]
    fn a_short_scan_leaves_its_memory_to_the_next_and_a_long_one_does_not() {
        let mut batch = Batch::default();
        batch.records.extend([1; 20_000]);
        drop(batch);
        let mut batch = Batch::default();
        assert!(batch.len() == 0 && batch.bytes() == 0 && batch.records.capacity() >= 20_000);
        batch.records.extend([1; SPARE_BYTES_MAX + 1]);
        drop(batch);
        assert_eq!(Batch::default().records.capacity(), 0);
    }
}
