// SPDX-License-Identifier: GPL-2.0-only
//! Reading many ranges of a key, whose rows the server wants one range behind another. To fill a batch:
//! 1. ask for ranges, as many as rows are wanted;
//! 2. read: rows whose primary keys are given whole all at once; along a secondary index the entries of one range behind
//!    another, then the rows of all at once; other ranges of primary keys one by one;
//! 3. keep the rows as records, each with its range's tag. A range that is not read to its end is the first of the next batch.
//!
//! Nothing here locks: what locks is read range by range (`cursor`).

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Bound;

use trefoil::{OwnedValue, Transaction, ValueRange};

use crate::batch::Batch;
use crate::cursor::{BATCH_BYTES_MAX, Met, Start, judged, range, read_rows};
use crate::failure::Result;
use crate::layout::Way;
use crate::raw::{RangeSource, Slot, Tag};
use crate::session::Session;
use crate::table::OpenTable;

/// Who asks for many ranges wants most of their rows.
const BATCH_ROWS_FIRST: usize = 64;
const BATCH_ROWS_MAX: usize = 4096;

/// What is left of the ranges, and the rows read ahead.
pub struct Ranges {
    source: RangeSource,
    /// Asked for and not read to their ends.
    rest: VecDeque<Start>,
    /// The server has no more.
    is_last: bool,
    batch: Batch,
    /// In the order to give out: places in the batch.
    order: Vec<(usize, Tag)>,
    given: usize,
    rows_next: usize,
}

impl Ranges {
    pub fn new(source: RangeSource) -> Self {
        let (rest, batch, order) = Default::default();
        Self { source, rest, is_last: false, batch, order, given: 0, rows_next: BATCH_ROWS_FIRST }
    }

    /// The next row, its number and its range's tag.
    pub fn step(
        &mut self,
        table: &OpenTable,
        session: &mut Session,
        record: Slot,
    ) -> Result<Option<(&[u8], u64, Tag)>> {
        if self.given == self.order.len() {
            self.fill(table, session, record)?;
        }
        let Some((place, tag)) = self.order.get(self.given) else { return Ok(None) };
        self.given += 1;
        let (bytes, row) = self.batch.get(&table.layout, *place);
        Ok(Some((bytes, row, *tag)))
    }

    fn fill(&mut self, table: &OpenTable, session: &mut Session, record: Slot) -> Result<()> {
        self.batch.clear();
        self.order.clear();
        self.given = 0;
        while self.order.is_empty() {
            self.ask(table)?;
            let Some(first) = self.rest.front() else { break };
            let tx = session.tx()?;
            let outcome = match first.way {
                Way::Rows if first.is_whole_key(table) => self.fill_points(table, tx),
                Way::Rows => self.fill_rows(table, tx),
                Way::Secondary(n) => self.fill_along(table, tx, n, record),
            };
            session.met_or(outcome)?;
        }
        // Of large rows fewer.
        let each = self.batch.bytes() / self.batch.len().max(1);
        self.rows_next = (self.rows_next * 2).min(BATCH_ROWS_MAX).min(BATCH_BYTES_MAX / each.max(1)).max(1);
        Ok(())
    }

    /// Step 1.
    fn ask(&mut self, table: &OpenTable) -> Result<()> {
        while !self.is_last && self.rest.len() < self.rows_next {
            match self.source.next(table)? {
                Some(start) => self.rest.push_back(start),
                None => self.is_last = true,
            }
        }
        Ok(())
    }

    fn fill_points(&mut self, table: &OpenTable, tx: &Transaction) -> Result<(), Met> {
        let points = self.rest.iter().take(self.rows_next).take_while(|start| start.is_whole_key(table));
        let keys: Vec<&[OwnedValue]> = points.filter_map(Start::whole_key).collect();
        let (mut places, batch) = (vec![None; keys.len()], &mut self.batch);
        read_rows(tx, table, &keys, None, |at, values| {
            places[at] = Some(batch.len());
            batch.push(&table.layout, |record, blobs| table.layout.put(values, record, blobs))
        })?;
        for (place, start) in places.iter().zip(self.rest.drain(..places.len())) {
            self.order.extend(place.map(|place| (place, start.tag)));
        }
        Ok(())
    }

    fn fill_rows(&mut self, table: &OpenTable, tx: &Transaction) -> Result<(), Met> {
        let Some(start) = self.rest.front() else { return Ok(()) };
        let mut rows = tx.scan(&table.table, range(&start.low, &start.high))?.expect(self.rows_next);
        while self.batch.len() < self.rows_next && self.batch.bytes() < BATCH_BYTES_MAX {
            let Some(row) = rows.next_row()? else {
                drop(rows);
                self.rest.pop_front();
                return Ok(());
            };
            let values = row.values()?;
            self.order.push((self.batch.len(), start.tag));
            self.batch.push(&table.layout, |record, blobs| table.layout.put(&values, record, blobs))?;
        }
        drop(rows);
        self.go_on_behind_last(table, 0);
        Ok(())
    }

    fn fill_along(&mut self, table: &OpenTable, tx: &Transaction, n: usize, record: Slot) -> Result<(), Met> {
        let (layout, index) = (&table.layout, table.layout.index_name(n));
        let ranges: Vec<ValueRange<'_>> = self.rest.iter().map(|start| range(&start.low, &start.high)).collect();
        let failed = Cell::new(None);
        let (at, rest) = (&failed, &self.rest);
        let mut rows = tx.scan_index_ranges(&table.table, index, &ranges)?.expect(self.rows_next);
        if rest.front().is_some_and(|start| start.judge.is_some()) {
            rows = rows.filter_ranges(move |number, entry| {
                let Start { judge, tag, .. } = &rest[number];
                judge.map_or(trefoil::Judged::Take, |judge| judged(layout, n, (judge, *tag), record, entry, at))
            });
        }
        let mut last = None;
        while self.batch.len() < self.rows_next && self.batch.bytes() < BATCH_BYTES_MAX {
            let Some(row) = rows.next_row()? else {
                last = None;
                break;
            };
            let values = row.values()?;
            self.batch.push(layout, |record, blobs| layout.put(&values, record, blobs))?;
            let number = rows.range();
            self.order.push((self.batch.len() - 1, self.rest[number].tag));
            last = Some(number);
        }
        drop(rows);
        if let Some(failure) = failed.take() {
            return Err(Met::Own(failure));
        }
        match last {
            Some(number) => self.go_on_behind_last(table, number),
            None => self.rest.clear(),
        }
        Ok(())
    }

    /// The last row of the batch lies in that range.
    fn go_on_behind_last(&mut self, table: &OpenTable, number: usize) {
        self.rest.drain(..number);
        if let (Some(start), Some(last)) = (self.rest.front_mut(), self.batch.len().checked_sub(1)) {
            let (record, row) = self.batch.record(&table.layout, last);
            start.low = Bound::Excluded(table.layout.entry_values(start.way, record, row));
        }
    }
}
