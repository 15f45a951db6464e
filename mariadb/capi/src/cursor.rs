// SPDX-License-Identifier: GPL-2.0-only
//! Reading: where a scan of one handler is, and how it goes on.
//!
//! A scan is a range of an index whose near end moves behind the row given out last. To fill a batch:
//! 1. read entries of the range in its order, at most as many as wanted, under locks if asked for;
//! 2. of a secondary index, get their rows, unless only what the entries have is wanted; a row whose entry is not the one
//!    found has changed meanwhile and is left out;
//! 3. keep them as records.
//!
//! The batch is given out row by row. When the session has written since it was filled, what is left of it is forgotten
//! and the range read again behind the last row.

use std::ops::Bound;
use std::sync::Arc;

use trefoil::{Entries, LockMode, Locking, OwnedValue, RowRef, Transaction, Value, ValueRange};

use crate::abi;
use crate::batch::Batch;
use crate::failure::{Done, Failure, Result};
use crate::layout::Way;
use crate::session::Session;
use crate::table::OpenTable;

const BATCH_ROWS_FIRST: usize = 4;
const BATCH_ROWS_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 1 << 20;

type Values = Vec<OwnedValue>;

/// What a handler reads with.
pub struct Cursor {
    pub table: Arc<OpenTable>,
    scan: Option<Scan>,
    /// A row read by its reference, with its blobs.
    single: Batch,
    /// The number of the row read or written last.
    pub row: u64,
}

struct Scan {
    way: Way,
    is_forward: bool,
    /// Records get no more than the index has.
    only_key: bool,
    locking: Option<Locking>,
    low: Bound<Values>,
    high: Bound<Values>,
    /// Both bounds are the parts that were asked for: a step past their rows opens the range.
    is_exact: bool,
    batch: Batch,
    /// Rows of the batch given out.
    given: usize,
    /// Nothing is left behind the batch.
    is_last: bool,
    rows_next: usize,
    /// The session's writes when the batch was filled.
    writes: u64,
}

/// Which row a step leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To where the scan starts.
    First,
    Next,
    /// The next one with the parts asked for.
    NextSame,
    Previous,
}

/// Where a scan starts, in values.
pub struct Start {
    pub way: Way,
    pub is_forward: bool,
    pub is_exact: bool,
    pub only_key: bool,
    pub low: Bound<Values>,
    pub high: Bound<Values>,
    pub locking: Option<Locking>,
}

impl Cursor {
    pub fn new(table: Arc<OpenTable>) -> Self {
        Self { table, scan: None, single: Batch::default(), row: 0 }
    }

    /// Reads `table` from now on: it may have taken the place of the one before.
    pub fn attach(&mut self, table: &Arc<OpenTable>) {
        if !Arc::ptr_eq(&self.table, table) {
            self.reset();
            self.table = table.clone();
        }
    }

    /// Forgets the scan and what was read ahead.
    pub fn reset(&mut self) {
        self.scan = None;
        self.single.clear();
    }

    pub fn start(&mut self, session: &Session, start: Start) {
        let batch = self.scan.take().map_or_else(Batch::default, |scan| scan.batch);
        let Start { way, is_forward, is_exact, only_key, low, high, locking } = start;
        let mut scan = Scan {
            way,
            is_forward,
            only_key,
            locking,
            low,
            high,
            is_exact,
            batch,
            given: 0,
            is_last: false,
            rows_next: BATCH_ROWS_FIRST,
            writes: session.writes(),
        };
        scan.batch.clear();
        self.scan = Some(scan);
    }

    /// The next row of the scan into `record`.
    pub fn step(&mut self, session: &mut Session, step: Step, record: &mut [u8]) -> Result<Done> {
        let scan = self.scan.as_mut().ok_or_else(|| Failure::definition("no scan is under way"))?;
        scan.turn(&self.table, session, step);
        if scan.given == scan.batch.len() {
            if scan.is_last {
                return Ok(Done::End);
            }
            scan.fill(&self.table, session)?;
            if scan.batch.len() == 0 {
                return Ok(Done::End);
            }
        }
        let (bytes, row) = scan.batch.get(&self.table.layout, scan.given);
        record.copy_from_slice(bytes);
        scan.given += 1;
        self.row = row;
        Ok(Done::Ok)
    }

    /// The row with this primary key into `record`.
    pub fn read(
        &mut self,
        session: &mut Session,
        key: &[Value<'_>],
        locking: Option<Locking>,
        record: &mut [u8],
    ) -> Result<Done> {
        self.single.clear();
        let (table, single) = (&self.table, &mut self.single);
        let layout = &table.layout;
        let outcome = read_rows(session.tx()?, table, &[key], locking, |_, values| {
            single.push(layout, |record, blobs| layout.put(values, record, blobs))
        });
        session.met_or(outcome)?;
        if self.single.len() == 0 {
            return Ok(Done::NotFound);
        }
        let (bytes, row) = self.single.get(&self.table.layout, 0);
        record.copy_from_slice(bytes);
        self.row = row;
        Ok(Done::Ok)
    }
}

impl Scan {
    /// Makes the scan go where the step leads, from the row given out last.
    fn turn(&mut self, table: &OpenTable, session: &Session, step: Step) {
        let turns = step != Step::First && self.is_forward != (step != Step::Previous);
        let widens = self.is_exact && matches!(step, Step::Next | Step::Previous);
        if turns || self.writes != session.writes() {
            self.move_behind_given(table);
            self.batch.clear();
            self.given = 0;
            self.is_last = false;
        }
        if turns {
            // The bound that moved is where the other direction starts.
            let behind = if self.is_forward { &mut self.low } else { &mut self.high };
            let start = std::mem::replace(behind, Bound::Unbounded);
            (self.low, self.high) = if self.is_forward { (Bound::Unbounded, start) } else { (start, Bound::Unbounded) };
            self.is_forward = !self.is_forward;
            self.rows_next = BATCH_ROWS_FIRST;
        }
        if widens {
            *(if self.is_forward { &mut self.high } else { &mut self.low }) = Bound::Unbounded;
            self.is_last = false;
        }
        self.is_exact &= !turns && !widens;
        self.writes = session.writes();
    }

    /// The near end of the range moves behind the row given out last.
    fn move_behind_given(&mut self, table: &OpenTable) {
        if self.given == 0 {
            return;
        }
        let (record, row) = self.batch.record(&table.layout, self.given - 1);
        let place = Bound::Excluded(table.layout.entry_values(self.way, record, row));
        *(if self.is_forward { &mut self.low } else { &mut self.high }) = place;
    }

    fn fill(&mut self, table: &OpenTable, session: &mut Session) -> Result<()> {
        self.move_behind_given(table);
        self.batch.clear();
        self.given = 0;
        while self.batch.len() == 0 && !self.is_last {
            let outcome = self.fill_once(table, session);
            session.met_or(outcome)?;
        }
        self.rows_next = (self.rows_next * 2).min(BATCH_ROWS_MAX);
        Ok(())
    }

    fn fill_once(&mut self, table: &OpenTable, session: &Session) -> Result<(), Met> {
        // A lock is taken for the row that is asked for, and for no other.
        let wanted = if self.locking.is_some() { 1 } else { self.rows_next };
        let tx = session.tx()?;
        match self.way {
            Way::Rows if self.is_exact && self.is_whole_key(table) => self.fill_row(table, tx),
            Way::Rows => self.fill_rows(table, tx, wanted),
            Way::Secondary(n) if self.only_key => self.fill_keys(table, tx, n, wanted),
            Way::Secondary(n) => self.fill_entries(table, tx, n, wanted, session.reads_what_is_committed_now()),
        }
    }

    /// The range is one primary key.
    fn is_whole_key(&self, table: &OpenTable) -> bool {
        let columns = table.layout.schema.primary_key().len();
        matches!(&self.low, Bound::Included(key) if key.len() == columns)
    }

    fn fill_row(&mut self, table: &OpenTable, tx: &Transaction) -> Result<(), Met> {
        self.is_last = true;
        let (Bound::Included(key), batch) = (&self.low, &mut self.batch) else { return Ok(()) };
        read_rows(tx, table, &[key], self.locking, |_, values| {
            batch.push(&table.layout, |record, blobs| table.layout.put(values, record, blobs))
        })?;
        if self.locking.is_some() && batch.len() == 0 {
            // READ COMMITTED keeps no place free where there is no row.
            tx.unlock_row();
        }
        Ok(())
    }

    fn fill_rows(&mut self, table: &OpenTable, tx: &Transaction, wanted: usize) -> Result<(), Met> {
        let range = range(&self.low, &self.high);
        let rows = match (self.locking, self.is_forward) {
            (None, true) => tx.scan(&table.table, range),
            (None, false) => tx.scan_back(&table.table, range),
            (Some(how), true) => tx.scan_locked(&table.table, range, how),
            (Some(how), false) => tx.scan_back_locked(&table.table, range, how),
        };
        let mut rows = rows?.expect(wanted);
        while self.batch.len() < wanted && self.batch.bytes() < BATCH_BYTES_MAX {
            let layout = &table.layout;
            if self.only_key {
                let Some(key) = rows.next_key()? else {
                    self.is_last = true;
                    break;
                };
                self.batch.push(layout, |record, blobs| layout.put_primary(&key, record, blobs))?;
                continue;
            }
            let Some(row) = rows.next_row()? else {
                self.is_last = true;
                break;
            };
            let values = row.values()?;
            self.batch.push(layout, |record, blobs| layout.put(&values, record, blobs))?;
        }
        Ok(())
    }

    /// Entries alone: a snapshot has those of its moment, and a lock of an entry is its row's.
    fn fill_keys(&mut self, table: &OpenTable, tx: &Transaction, n: usize, wanted: usize) -> Result<(), Met> {
        let mut entries = self.entries(table, tx, n)?.expect(wanted);
        while self.batch.len() < wanted && self.batch.bytes() < BATCH_BYTES_MAX {
            let Some(entry) = entries.next()? else {
                self.is_last = true;
                break;
            };
            self.batch.push(&table.layout, |record, blobs| table.layout.put_entry(n, &entry, record, blobs))?;
        }
        Ok(())
    }

    fn entries<'a>(&self, table: &OpenTable, tx: &'a Transaction, n: usize) -> trefoil::Result<Entries<'a>> {
        let (index, range) = (table.layout.index_name(n), range(&self.low, &self.high));
        match (self.locking, self.is_forward) {
            (None, true) => tx.scan_index(&table.table, index, range),
            (None, false) => tx.scan_index_back(&table.table, index, range),
            (Some(how), true) => tx.scan_index_locked(&table.table, index, range, how),
            (Some(how), false) => tx.scan_index_back_locked(&table.table, index, range, how),
        }
    }

    fn fill_entries(
        &mut self,
        table: &OpenTable,
        tx: &Transaction,
        n: usize,
        wanted: usize,
        may_differ: bool,
    ) -> Result<(), Met> {
        let (mut entries, mut found) =
            (self.entries(table, tx, n)?.expect(wanted), Vec::<Values>::with_capacity(wanted));
        while found.len() < wanted {
            let Some(entry) = entries.next()? else {
                self.is_last = true;
                break;
            };
            found.push(entry.into_iter().map(Value::into_owned).collect());
        }
        drop(entries);
        let columns = table.layout.schema.index_columns(n);
        let keys: Vec<&[Value<'_>]> = found.iter().map(|entry| &entry[columns.len()..]).collect();
        // Rows come in the order of their keys; they are given out in that of the entries.
        let mut rows: Vec<Option<Values>> = vec![None; found.len()];
        read_rows(tx, table, &keys, self.locking, |at, values| {
            if !may_differ || columns.iter().zip(&found[at]).all(|(&c, value)| values[c] == *value) {
                rows[at] = Some(values.iter().map(|value| value.clone().into_owned()).collect());
            }
            Ok(())
        })?;
        for row in rows.iter().flatten() {
            self.batch.push(&table.layout, |record, blobs| table.layout.put(row, record, blobs))?;
        }
        if let (0, false, Some(last)) = (self.batch.len(), self.is_last, found.pop()) {
            // All have changed meanwhile.
            *(if self.is_forward { &mut self.low } else { &mut self.high }) = Bound::Excluded(last);
        }
        Ok(())
    }
}

/// An error of the engine, which may have ended the transaction, or of this crate.
pub enum Met {
    Engine(trefoil::Error),
    Own(Box<Failure>),
}

impl From<trefoil::Error> for Met {
    fn from(error: trefoil::Error) -> Self {
        Met::Engine(error)
    }
}

impl From<Box<Failure>> for Met {
    fn from(failure: Box<Failure>) -> Self {
        Met::Own(failure)
    }
}

impl Session {
    fn met_or<T>(&mut self, outcome: Result<T, Met>) -> Result<T> {
        match outcome {
            Ok(it) => Ok(it),
            Err(Met::Own(failure)) => Err(failure),
            Err(Met::Engine(error)) => self.met(Err(error)),
        }
    }
}

/// Calls `with` for the rows that have one of these primary keys.
fn read_rows(
    tx: &Transaction,
    table: &OpenTable,
    keys: &[&[Value<'_>]],
    locking: Option<Locking>,
    mut with: impl FnMut(usize, &[Value<'_>]) -> Result<()>,
) -> Result<(), Met> {
    let mut outcome = Ok(());
    let Some(locking) = locking else {
        tx.get_rows(&table.table, keys, |at, row: RowRef<'_>| {
            if outcome.is_ok() {
                outcome = with(at, &row.values()?);
            }
            Ok(())
        })?;
        return Ok(outcome?);
    };
    for (at, key) in keys.iter().enumerate() {
        if let Some(row) = tx.get_row_locked(&table.table, key, locking)? {
            with(at, &row)?;
        }
    }
    Ok(())
}

fn range<'a>(low: &'a Bound<Values>, high: &'a Bound<Values>) -> ValueRange<'a> {
    (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice))
}

/// As `capi.h` numbers it; none: a plain read.
pub fn locking(lock: abi::Lock) -> Option<Locking> {
    let mode = match lock.mode {
        1 => LockMode::Shared,
        2 => LockMode::Exclusive,
        _ => return None,
    };
    let waiting = Locking::from(mode);
    Some(match lock.wait {
        1 => waiting.no_wait(),
        2 => waiting.skip_locked(),
        _ => waiting,
    })
}

/// Where a scan starts, from what the server asks for: `how` as `capi.h` numbers it.
pub fn start(table: &OpenTable, seek: &abi::Seek, parts: Option<&[u8]>, end: Option<&[u8]>) -> Result<Start> {
    let layout = &table.layout;
    let values = |image: Option<&[u8]>| image.map(|image| layout.key_values(seek.key, image)).transpose();
    let (way, locking) = (layout.way(seek.key)?, locking(seek.lock));
    let (parts, end) = (values(parts)?, values(end)?);
    let is_forward = seek.how < 3;
    let (near, far): (fn(Values) -> Bound<Values>, _) = match seek.how {
        0 | 3 => (Bound::Included, parts.clone().map_or(Bound::Unbounded, Bound::Included)),
        1 | 4 => (Bound::Included, Bound::Unbounded),
        _ => (Bound::Excluded, Bound::Unbounded),
    };
    let near = parts.map_or(Bound::Unbounded, near);
    let far = match (end, seek.end_is) {
        (Some(end), 1) if far == Bound::Unbounded => Bound::Included(end),
        (Some(end), 2) if far == Bound::Unbounded => Bound::Excluded(end),
        _ => far,
    };
    let (low, high) = if is_forward { (near, far) } else { (far, near) };
    let (is_exact, only_key) = (seek.how == 0 || seek.how == 3, seek.only_key != 0);
    Ok(Start { way, is_forward, is_exact, only_key, low, high, locking })
}
