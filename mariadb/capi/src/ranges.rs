// SPDX-License-Identifier: GPL-2.0-only
//! Reading many ranges of a key, whose rows the server wants one range behind another. To fill a batch:
//! 1. ask for ranges, as many as rows are wanted;
//! 2. read: rows whose primary keys are given whole all at once; along a secondary index the entries of one range behind
//!    another, then the rows of all at once; other ranges of primary keys one by one;
//! 3. keep the rows as records, each with its range. A range that is not read to its end is the first of the next batch.
//!
//! When the session has written to the table since, what is left of a batch is forgotten, as that of a scan (`cursor`), and the ranges
//! are read again behind the row given out last: until then they are kept.
//!
//! Nothing here locks: what locks is read range by range (`cursor`).

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Bound;

use trefoil::{OwnedValue, Transaction, ValueRange};

use crate::batch::Batch;
use crate::cursor::{self, BATCH_BYTES_MAX, Start, range};
use crate::failure::Result;
use crate::layout::Way;
use crate::raw::{RangeSource, Slot, Tag};
use crate::reads::{Met, judged, read_rows};
use crate::session::Session;
use crate::table::OpenTable;
use crate::writes::Moment;

/// Who asks for many ranges wants most of their rows.
const BATCH_ROWS_FIRST: usize = 64;
const BATCH_ROWS_MAX: usize = 4096;

/// What is left of the ranges, and the rows read ahead.
pub struct Ranges {
    source: RangeSource,
    /// Asked for, those of the batch first.
    rest: VecDeque<Start>,
    /// How many of them the batch has to their ends.
    read: usize,
    /// The server has no more.
    is_last: bool,
    batch: Batch,
    /// In the order to give out: places in the batch, and in `rest` those of their ranges.
    order: Vec<(usize, usize)>,
    given: usize,
    rows_next: usize,
    /// The batch is what would be read at this moment of the session's writes.
    read_at: Moment,
}

impl Ranges {
    pub fn new(source: RangeSource) -> Self {
        let (rest, batch, order, read_at) = Default::default();
        let (read, given, rows_next) = (0, 0, BATCH_ROWS_FIRST);
        Self { source, rest, read, is_last: false, batch, order, given, rows_next, read_at }
    }

    /// The next row into `record`; its number and its range's tag.
    pub fn step(&mut self, table: &OpenTable, session: &mut Session, record: Slot) -> Result<Option<(u64, Tag)>> {
        let is_good = self.order.is_empty() || !session.writes().reached(table.number(), self.read_at);
        if !is_good || self.given == self.order.len() {
            self.go_on(table, is_good);
            self.fill(table, session, record)?;
        }
        let Some(&(place, range)) = self.order.get(self.given) else { return Ok(None) };
        self.given += 1;
        let row = record.write(|record| self.batch.get(&table.layout, place, record));
        Ok(Some((row, self.rest[range].tag)))
    }

    /// What is left begins behind the batch, or if that is not good any more, behind the row of it that was given out last.
    fn go_on(&mut self, table: &OpenTable, is_good: bool) {
        let mut done = if is_good { self.read } else { 0 };
        if let Some((place, range)) = self.given.checked_sub(1).map(|last| self.order[last]) {
            let start = &mut self.rest[range];
            done = done.max(range + usize::from(start.is_whole_key(table)));
            if done == range {
                let (layout, way) = (&table.layout, start.way);
                let values = self.batch.read(layout, place, |record, row| layout.entry_values(way, record, row));
                start.low = Bound::Excluded(values);
            }
        }
        self.rest.drain(..done);
        self.read = 0;
        self.batch.clear();
        self.order.clear();
        self.given = 0;
        if !is_good {
            self.rows_next = cursor::BATCH_ROWS_FIRST;
        }
    }

    fn fill(&mut self, table: &OpenTable, session: &mut Session, record: Slot) -> Result<()> {
        self.read_at = session.writes().now();
        while self.order.is_empty() {
            self.rest.drain(..std::mem::take(&mut self.read));
            self.ask(table)?;
            let Some(first) = self.rest.front() else { break };
            let tx = session.tx()?;
            let outcome = match first.way {
                Way::Rows if first.is_whole_key(table) => self.fill_points(table, tx, record),
                Way::Rows => self.fill_rows(table, tx, record),
                Way::Secondary(n) => self.fill_along(table, tx, n, record),
            };
            session.met_or(outcome)?;
        }
        self.rows_next = self.batch.rows_next(self.rows_next, BATCH_ROWS_MAX);
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

    fn fill_points(&mut self, table: &OpenTable, tx: &Transaction, record: Slot) -> Result<(), Met> {
        let points = self.rest.iter().take(self.rows_next).take_while(|start| start.is_whole_key(table));
        let keys: Vec<&[OwnedValue]> = points.filter_map(Start::whole_key).collect();
        let Some(Start { wanted, .. }) = self.rest.front() else { return Ok(()) };
        let (mut places, batch) = (vec![None; keys.len()], &mut self.batch);
        read_rows(tx, table, &keys, None, |at, row| {
            places[at] = Some(batch.len());
            batch.push_row(&table.layout, wanted, row, record)
        })?;
        self.read = places.len();
        self.order.extend(places.iter().enumerate().filter_map(|(range, place)| Some(((*place)?, range))));
        Ok(())
    }

    fn fill_rows(&mut self, table: &OpenTable, tx: &Transaction, record: Slot) -> Result<(), Met> {
        let Some(start) = self.rest.front() else { return Ok(()) };
        let mut rows = tx.scan(&table.table, range(&start.low, &start.high))?.expect(self.rows_next);
        while self.batch.len() < self.rows_next && self.batch.bytes() < BATCH_BYTES_MAX {
            let Some(row) = rows.next_row()? else {
                self.read = 1;
                break;
            };
            self.order.push((self.batch.len(), 0));
            self.batch.push_row(&table.layout, &start.wanted, row, record)?;
        }
        Ok(())
    }

    fn fill_along(&mut self, table: &OpenTable, tx: &Transaction, n: usize, record: Slot) -> Result<(), Met> {
        let Some(Start { wanted, .. }) = self.rest.front() else { return Ok(()) };
        let (layout, index) = (&table.layout, table.layout.index_name(n));
        let ranges = self.rest.iter().take(self.rows_next).map(|start| range(&start.low, &start.high));
        let ranges: Vec<ValueRange<'_>> = ranges.collect();
        let failed = Cell::new(None);
        let (at, rest) = (&failed, &self.rest);
        let mut rows = tx.scan_index_ranges(&table.table, index, &ranges)?.expect(self.rows_next);
        if rest.front().is_some_and(|start| start.judge.is_some()) {
            rows = rows.filter_ranges(move |number, entry| {
                let Start { judge, tag, .. } = &rest[number];
                judge.map_or(Ok(trefoil::Judged::Take), |judge| judged(layout, (judge, *tag), record, entry, at))
            });
        }
        while self.batch.len() < self.rows_next && self.batch.bytes() < BATCH_BYTES_MAX {
            let Some(row) = rows.next_row()? else {
                self.read = ranges.len();
                break;
            };
            self.batch.push_row(layout, wanted, row, record)?;
            self.read = rows.range();
            self.order.push((self.batch.len() - 1, self.read));
        }
        drop(rows);
        failed.take().map_or(Ok(()), |failure| Err(Met::Own(failure)))
    }
}
