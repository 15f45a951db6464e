// SPDX-License-Identifier: GPL-2.0-only
//! Reading: where a scan of one handler is, and how it goes on.
//!
//! A scan is a range of an index whose near end moves behind the row given out last. To fill a batch:
//! 1. read rows of the range in its order, at most as many as wanted, under locks if asked for; along a secondary index
//!    entries that the server's condition does not want are passed over, and where an entry has all that is wanted its row
//!    is not read;
//! 2. keep them as records.
//!
//! The batch is given out row by row. When the session has written to the table since it was filled, what is left of it is
//! forgotten and the range read again behind the last row; but not for writes of the very row that was given out last. Where
//! foreign keys may write other rows with a row (`foreign::acts_on_others`) any table may have been written to, and behind what takes
//! rows back, too (`writes`).
//!
//! A scan that locks takes one row at a time, unless the server will ask for all: then a batch, of which the engine locks
//! what nobody else has.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;

use trefoil::{Entries, Judged, LockMode, Locking, OwnedValue, Transaction, Value, ValueRange};

use crate::abi;
use crate::batch::Batch;
use crate::column_set::ColumnSet;
use crate::failure::{Done, Failure, Result};
use crate::layout::Way;
use crate::ranges::Ranges;
use crate::raw::{Judge, RangeSource, SeekBytes, Slot, Tag};
use crate::reads::{Met, judged, read_rows};
use crate::session::Session;
use crate::table::OpenTable;
use crate::writes::Moment;

/// Of a table that is written to between its rows few are read for nothing.
pub const BATCH_ROWS_FIRST: usize = 4;
/// Where the server will ask for all rows of a range, and none is locked, or for as many as it says: a range of a hundred is read in one piece, not five.
const BATCH_ROWS_ALL: usize = 128;
const BATCH_ROWS_MAX: usize = 1024;
/// Of those, locked ahead.
const LOCKED_ROWS_MAX: usize = 256;
pub const BATCH_BYTES_MAX: usize = 1 << 20;

type Values = Vec<OwnedValue>;

/// What a handler reads with.
pub struct Cursor {
    pub table: Arc<OpenTable>,
    scan: Option<Scan>,
    ranges: Option<Ranges>,
    /// Those of a row read by its reference.
    blobs: Vec<Box<[u8]>>,
    /// Room for the key of a row whose reference is asked for: a sort asks for one row after another.
    pub key: Vec<u8>,
    /// The number of the row read or written last.
    pub row: u64,
    /// The session's number of the call that read last.
    pub last_read: u64,
    /// How many rows the table has more since the statement began, if any of them was changed.
    changed: Option<i64>,
}

struct Scan {
    way: Way,
    is_forward: bool,
    /// Records get no more than the index has.
    only_key: bool,
    wanted: ColumnSet,
    /// So many more rows the server will ask for, as far as there are; of all nobody knows how many.
    sure: usize,
    judge: Option<Judge>,
    tag: Tag,
    /// Rows of others are shown before they are waited for.
    shows: bool,
    /// The row given out last is only shown: read again next, unless it is passed.
    is_shown: bool,
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
    /// The last step led past the last row: there it stays, and whoever turns comes by that row again.
    is_past: bool,
    rows_next: usize,
    /// What was read ahead is what would be read at this moment of the session's writes.
    read_at: Moment,
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
    /// Columns of a whole row that records get.
    pub wanted: ColumnSet,
    pub sure: usize,
    pub judge: Option<Judge>,
    /// For the judge, and of many ranges to tell their rows apart.
    pub tag: Tag,
    pub shows: bool,
    pub low: Bound<Values>,
    pub high: Bound<Values>,
    pub locking: Option<Locking>,
}

/// The server closes some of its tables within a statement, and they have changed rows.
impl Drop for Cursor {
    fn drop(&mut self) {
        self.reset();
    }
}

impl Cursor {
    pub fn new(table: Arc<OpenTable>) -> Self {
        Self {
            table,
            scan: None,
            ranges: None,
            blobs: Vec::new(),
            key: Vec::new(),
            row: 0,
            last_read: 0,
            changed: None,
        }
    }

    /// Reads `table` from now on: it may have taken the place of the one before.
    pub fn attach(&mut self, table: &Arc<OpenTable>) {
        if !Arc::ptr_eq(&self.table, table) {
            self.reset();
            self.table = table.clone();
        }
    }

    /// Rows came, went, or were changed. The table is told, with the time, at the end of the statement: all who write to it share what is told.
    pub fn changed(&mut self, rows: i64) {
        *self.changed.get_or_insert(0) += rows;
    }

    /// The statement is over: forgets the scan and what was read ahead.
    pub fn reset(&mut self) {
        if let Some(rows) = self.changed.take() {
            self.table.changed(rows);
        }
        self.scan = None;
        self.ranges = None;
        self.blobs.clear();
    }

    /// Begins to read many ranges.
    pub fn start_ranges(&mut self, source: RangeSource) {
        self.ranges = Some(Ranges::new(source));
    }

    /// The next row of many ranges into `record`, and the tag of its range into `tag`.
    pub fn step_ranges(&mut self, session: &mut Session, record: Slot, tag: &mut Tag) -> Result<Done> {
        let ranges = self.ranges.as_mut().ok_or_else(|| Failure::definition("no ranges are read"))?;
        let Some((row, of)) = ranges.step(&self.table, session, record)? else { return Ok(Done::End) };
        (self.row, *tag) = (row, of);
        Ok(Done::Ok)
    }

    /// The row given out last is another's, and not locked.
    pub fn is_shown(&self) -> bool {
        self.scan.as_ref().is_some_and(|scan| scan.is_shown)
    }

    /// The rows that come next are those with the parts asked for, and no others.
    pub fn is_exact(&self) -> bool {
        self.scan.as_ref().is_some_and(|scan| scan.is_exact)
    }

    /// It is not wanted. False if there was none.
    pub fn pass_shown(&mut self) -> bool {
        self.scan.as_mut().is_some_and(|scan| std::mem::take(&mut scan.is_shown))
    }

    pub fn start(&mut self, session: &Session, start: Start) {
        let batch = self.scan.take().map_or_else(Batch::default, |scan| scan.batch);
        let Start { way, is_forward, is_exact, only_key, wanted, sure, judge, tag, shows, low, high, locking } = start;
        let mut scan = Scan {
            way,
            is_forward,
            only_key,
            wanted,
            sure,
            judge,
            tag,
            shows,
            is_shown: false,
            locking,
            low,
            high,
            is_exact,
            batch,
            given: 0,
            is_last: false,
            is_past: false,
            rows_next: match (sure, &locking) {
                (0, _) | (usize::MAX, Some(_)) => BATCH_ROWS_FIRST,
                _ => BATCH_ROWS_ALL,
            },
            read_at: session.writes().now(),
        };
        scan.batch.clear();
        self.scan = Some(scan);
    }

    /// The next row of the scan into `record`.
    pub fn step(&mut self, session: &mut Session, step: Step, record: Slot) -> Result<Done> {
        let scan = self.scan.as_mut().ok_or_else(|| Failure::definition("no scan is under way"))?;
        if scan.stays_past(step) {
            return Ok(Done::End);
        }
        scan.turn(&self.table, session, step);
        if scan.given == scan.batch.len() {
            if !scan.is_last {
                scan.fill(&self.table, session, record)?;
            }
            if scan.given == scan.batch.len() {
                scan.is_past = true;
                return Ok(Done::End);
            }
        }
        scan.is_past = false;
        self.row = record.write(|record| scan.batch.get(&self.table.layout, scan.given, record));
        scan.given += 1;
        scan.sure = scan.sure.saturating_sub(1);
        Ok(Done::Ok)
    }

    /// The row with this primary key was written, and nothing else of the table since `before`. If it is the one given out last,
    /// what was read ahead stays as it is.
    pub fn wrote(&mut self, key: &[Value<'_>], before: Moment, session: &Session) {
        let Some(scan) = self.scan.as_mut().filter(|scan| scan.read_at == before && scan.given > 0) else { return };
        let layout = &self.table.layout;
        let is_it = scan.batch.read(layout, scan.given - 1, |given, row| *layout.primary_values(given, row) == *key);
        if is_it {
            scan.read_at = session.writes().now();
        }
    }

    /// What was read ahead, unless the table was written to since, is what would be read at the moment that is returned: now.
    pub fn settle(&mut self, session: &Session) -> Moment {
        if let Some(scan) = &mut self.scan {
            scan.settle(&self.table, session);
        }
        session.writes().now()
    }

    /// The row with this primary key into `record`.
    pub fn read(
        &mut self,
        session: &mut Session,
        key: &[Value<'_>],
        locking: Option<Locking>,
        record: &mut [u8],
    ) -> Result<Done> {
        self.blobs.clear();
        let (layout, all, mut number) = (&self.table.layout, ColumnSet::default(), None);
        let outcome = read_rows(session.tx()?, &self.table, &[key], locking, |_, row| {
            layout.put_defaults(record);
            number = Some(layout.put(&all, record, &mut self.blobs, |filling| row.visit(filling))?);
            Ok(())
        });
        session.met_or(outcome)?;
        let Some(number) = number else { return Ok(Done::NotFound) };
        self.row = number;
        Ok(Done::Ok)
    }
}

impl Start {
    /// The primary key that the range is.
    pub fn whole_key(&self) -> Option<&[OwnedValue]> {
        match &self.low {
            Bound::Included(key) if self.is_exact => Some(key),
            _ => None,
        }
    }

    /// The range is one primary key.
    pub fn is_whole_key(&self, table: &OpenTable) -> bool {
        matches!(self.way, Way::Rows)
            && self.whole_key().is_some_and(|key| key.len() == table.layout.schema.primary_key().len())
    }
}

impl Scan {
    fn turns(&self, step: Step) -> bool {
        step != Step::First && self.is_forward != (step != Step::Previous)
    }

    /// The range is at its end: a step on leads nowhere, whatever was written there meanwhile.
    fn stays_past(&self, step: Step) -> bool {
        self.is_past && !self.is_exact && !self.turns(step)
    }

    /// Makes the scan go where the step leads, from the row given out last, or from the end that it is at.
    fn turn(&mut self, table: &OpenTable, session: &Session, step: Step) {
        let turns = self.turns(step);
        let widens = self.is_exact && matches!(step, Step::Next | Step::Previous);
        if turns && self.is_past && !self.is_exact {
            let (near, far) = match self.is_forward {
                true => (&mut self.low, &mut self.high),
                false => (&mut self.high, &mut self.low),
            };
            *near = std::mem::replace(far, Bound::Unbounded);
            self.given = 0;
        }
        if !self.settle(table, session) || turns {
            self.move_behind_given(table);
            self.batch.clear();
            self.given = 0;
            self.is_last = false;
            self.rows_next = BATCH_ROWS_FIRST;
        }
        if turns {
            // The bound that moved is where the other direction starts.
            let behind = if self.is_forward { &mut self.low } else { &mut self.high };
            let start = std::mem::replace(behind, Bound::Unbounded);
            (self.low, self.high) = if self.is_forward { (Bound::Unbounded, start) } else { (start, Bound::Unbounded) };
            self.is_forward = !self.is_forward;
        }
        if widens {
            *(if self.is_forward { &mut self.high } else { &mut self.low }) = Bound::Unbounded;
            self.is_last = false;
        }
        self.is_exact &= !turns && !widens;
        self.read_at = session.writes().now();
    }

    /// True if what was read ahead is what would be read now.
    fn settle(&mut self, table: &OpenTable, session: &Session) -> bool {
        let writes = session.writes();
        let is_good = !writes.reached(table.number(), self.read_at);
        if is_good {
            self.read_at = writes.now();
        }
        is_good
    }

    /// The near end of the range moves behind the row given out last, or to it if it was only shown.
    fn move_behind_given(&mut self, table: &OpenTable) {
        if self.given == 0 {
            return;
        }
        let (layout, way) = (&table.layout, self.way);
        let values = self.batch.read(layout, self.given - 1, |record, row| layout.entry_values(way, record, row));
        let place = if self.is_shown { Bound::Included(values) } else { Bound::Excluded(values) };
        *(if self.is_forward { &mut self.low } else { &mut self.high }) = place;
    }

    fn fill(&mut self, table: &OpenTable, session: &mut Session, record: Slot) -> Result<()> {
        self.move_behind_given(table);
        self.batch.clear();
        self.given = 0;
        while self.batch.len() == 0 && !self.is_last {
            let outcome = self.fill_once(table, session, record);
            session.met_or(outcome)?;
        }
        self.rows_next = self.batch.rows_next(self.rows_next, BATCH_ROWS_MAX);
        Ok(())
    }

    fn fill_once(&mut self, table: &OpenTable, session: &Session, record: Slot) -> Result<(), Met> {
        // A lock that is taken ahead is one that the server would have asked for.
        let may_lock = if session.gives_locks_back() { 1 } else { self.sure.clamp(1, LOCKED_ROWS_MAX) };
        let wanted = if self.locking.is_none() { self.rows_next } else { self.rows_next.min(may_lock) };
        let tx = session.tx()?;
        match self.way {
            Way::Rows if self.is_exact && self.is_whole_key(table) => self.fill_row(table, tx, record),
            Way::Rows => self.fill_rows(table, tx, wanted, record),
            Way::Secondary(n) if self.only_key => self.fill_keys(table, tx, n, wanted, record),
            Way::Secondary(n) => self.fill_along(table, tx, n, wanted, record),
        }
    }

    /// The range is one primary key.
    fn is_whole_key(&self, table: &OpenTable) -> bool {
        let columns = table.layout.schema.primary_key().len();
        matches!(&self.low, Bound::Included(key) if key.len() == columns)
    }

    fn fill_row(&mut self, table: &OpenTable, tx: &Transaction, record: Slot) -> Result<(), Met> {
        self.is_last = true;
        let (Bound::Included(key), batch) = (&self.low, &mut self.batch) else { return Ok(()) };
        let (layout, wanted) = (&table.layout, &self.wanted);
        read_rows(tx, table, &[key], self.locking, |_, row| batch.push_row(layout, wanted, row, record))?;
        if self.locking.is_some() && batch.len() == 0 {
            // READ COMMITTED keeps no place free where there is no row.
            tx.unlock_row();
        }
        Ok(())
    }

    fn fill_rows(&mut self, table: &OpenTable, tx: &Transaction, wanted: usize, record: Slot) -> Result<(), Met> {
        let range = range(&self.low, &self.high);
        let rows = match (self.locking, self.is_forward) {
            (None, true) => tx.scan(&table.table, range),
            (None, false) => tx.scan_back(&table.table, range),
            (Some(how), true) => tx.scan_locked(&table.table, range, how),
            (Some(how), false) => tx.scan_back_locked(&table.table, range, how),
        };
        let mut rows = rows?.expect(wanted);
        // What was shown and is wanted is waited for.
        if self.shows && !std::mem::take(&mut self.is_shown) {
            rows = rows.show_locked();
        }
        while self.batch.len() < wanted && self.batch.bytes() < BATCH_BYTES_MAX {
            let Some(row) = rows.next_row()? else {
                self.is_last = true;
                break;
            };
            self.batch.push(&table.layout, &self.wanted, record, |filling| match self.only_key {
                true => row.visit_key(filling),
                false => row.visit(filling),
            })?;
            self.is_shown = rows.is_shown();
        }
        Ok(())
    }

    /// Entries alone: a snapshot has those of its moment, and a lock of an entry is its row's.
    fn fill_keys(
        &mut self,
        table: &OpenTable,
        tx: &Transaction,
        n: usize,
        wanted: usize,
        record: Slot,
    ) -> Result<(), Met> {
        let (layout, failed) = (&table.layout, Cell::new(None));
        let mut entries = self.entries(table, tx, n)?.expect(wanted);
        while self.batch.len() < wanted && self.batch.bytes() < BATCH_BYTES_MAX {
            let Some(entry) = entries.next_entry()? else {
                self.is_last = true;
                break;
            };
            let judge = self.judge.map(|judge| judged(layout, (judge, self.tag), record, entry, &failed));
            match judge.unwrap_or(Ok(Judged::Take))? {
                Judged::Take => {
                    self.batch.push(layout, &self.wanted, record, |filling| entry.visit(filling))?;
                }
                Judged::Pass => {
                    tx.unlock_row();
                }
                Judged::End => {
                    self.is_last = true;
                    break;
                }
            }
        }
        failed.take().map_or(Ok(()), |failure| Err(Met::Own(failure)))
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

    fn fill_along(
        &mut self,
        table: &OpenTable,
        tx: &Transaction,
        n: usize,
        wanted: usize,
        record: Slot,
    ) -> Result<(), Met> {
        let (layout, index, range) = (&table.layout, table.layout.index_name(n), range(&self.low, &self.high));
        let rows = match (self.locking, self.is_forward) {
            (None, true) => tx.scan_index_rows(&table.table, index, range),
            (None, false) => tx.scan_index_rows_back(&table.table, index, range),
            (Some(how), true) => tx.scan_index_rows_locked(&table.table, index, range, how),
            (Some(how), false) => tx.scan_index_rows_back_locked(&table.table, index, range, how),
        };
        let failed = Cell::new(None);
        let at = &failed;
        let mut rows = rows?.expect(wanted);
        if let (Some(judge), tag) = (self.judge, self.tag) {
            rows = rows.filter(move |entry| judged(layout, (judge, tag), record, entry, at));
        }
        while self.batch.len() < wanted && self.batch.bytes() < BATCH_BYTES_MAX {
            let Some(row) = rows.next_row()? else {
                self.is_last = true;
                break;
            };
            self.batch.push_row(layout, &self.wanted, row, record)?;
        }
        drop(rows);
        failed.take().map_or(Ok(()), |failure| Err(Met::Own(failure)))
    }
}

pub fn range<'a>(low: &'a Bound<Values>, high: &'a Bound<Values>) -> ValueRange<'a> {
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
pub fn start(table: &OpenTable, seek: &abi::Seek, given: &SeekBytes<'_>) -> Result<Start> {
    let layout = &table.layout;
    let values = |image: Option<&[u8]>| image.map(|image| layout.key_values(seek.key, image)).transpose();
    let (way, locking) = (layout.way(seek.key)?, locking(seek.lock));
    let (parts, end) = (values(given.parts)?, values(given.end)?);
    let wanted = layout.wanted(way, given.reads);
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
    let (is_exact, judge) = (seek.how == 0 || seek.how == 3, Judge::new(seek));
    let (only_key, shows) = (seek.only_key != 0, seek.shows_locked != 0);
    let (sure, tag) = (usize::try_from(seek.sure).unwrap_or(usize::MAX), Tag::new(seek));
    Ok(Start { way, is_forward, is_exact, only_key, wanted, sure, judge, tag, shows, low, high, locking })
}
