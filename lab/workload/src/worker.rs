//! The threads of one client. Each owns its session and its measurements; a client's threads share a feed, the
//! smallest key still expected, and a stop flag.
//!
//! - **inserter**: makes the rows of the next statement, then times one multi-row insert.
//! - **deleter**: looks up the smallest key once, then times deletes of as many rows as a statement inserts, m += n.
//!   In the limit form the key is looked up again every 1 000 statements.
//! - **query thread**: closed loop; one of the three range queries at random, or an IN list of ten keys in [m, max), or
//!   one key that exists.
//! - **snapshot holder**: opens a transaction, reads a row, holds it, commits, repeats.
//!
//! Answers of queries are checked while they come: bounds, order, number.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lab_measure::{Clock, Recorder, procfs::thread_switches};
use lab_target::{Batch, Entry, IndexSet, PointRow, Price, RangeQuery, Secondary, Session, TargetError};

use crate::feed::{Feed, Side, sleep_until};
use crate::plan::{DeleteForm, MAX_KEY_REFRESH, QueryKind, RESYNC_STATEMENTS, ROWS_PER_QUERY, STOP_CHECK, Work};
use crate::random::Random;
use crate::rows::{CASH_REGISTERS, MAX_HUNDREDTHS, MAX_PRICE, PRODUCTS, ROWS_PER_SECOND, RowMaker, could_be_made};

/// Why a worker gave up.
#[derive(Clone, Debug)]
pub enum WorkerError {
    /// The engine returned an error: it ends the run.
    Failed(String),
    /// The engine gave a wrong answer.
    Wrong(String),
}

impl From<TargetError> for WorkerError {
    fn from(error: TargetError) -> WorkerError {
        WorkerError::Failed(error.to_string())
    }
}

/// What the threads of one client share during a step.
#[derive(Debug)]
pub struct Shared<'a> {
    /// Coupling and pace.
    pub feed: Feed,
    /// The smallest key still expected (m). Written by the deleter, read by query threads; nothing else hangs on it.
    pub min_key: AtomicU64,
    /// Set when inserter and deleter are done. Read by query threads and the snapshot holder.
    pub stop: AtomicBool,
    /// The client's table.
    pub table: u32,
    /// What to do.
    pub work: Work,
    /// The run's clock.
    pub clock: &'a Clock,
    /// What kind of column `price` is.
    pub price: Price,
}

/// What an inserter or deleter hands back.
#[derive(Debug)]
pub struct Written {
    /// The measurements.
    pub recorder: Recorder,
    /// Rows written or deleted, the warm-up included.
    pub rows: u64,
    /// Statements, the warm-up included.
    pub statements: u64,
    /// Sum of the hashes of the inserted rows under the keys the engine gave them.
    pub hash: u64,
    /// First look-up of the smallest key and all later ones, in nanoseconds.
    pub probes_ns: Vec<u64>,
    /// Deletes that found fewer rows than they should.
    pub short_deletes: u64,
    /// When the last statement ended.
    pub end_ns: u64,
    /// Context switches of the thread.
    pub switches: u64,
}

impl Written {
    pub(crate) fn new(recorder: Recorder) -> Written {
        Written {
            recorder,
            rows: 0,
            statements: 0,
            hash: 0,
            probes_ns: Vec::new(),
            short_deletes: 0,
            end_ns: 0,
            switches: 0,
        }
    }
}

/// The inserter.
pub fn insert(
    shared: &Shared<'_>,
    session: &mut dyn Session,
    maker: &mut RowMaker,
    recorder: Recorder,
) -> Result<Written, WorkerError> {
    let rows = shared.work.rows;
    let rows_per_second = shared.work.pace.unwrap_or(ROWS_PER_SECOND);
    let mut batch = Batch::with_capacity(rows as usize);
    let mut out = Written::new(recorder);
    while let Some(intended_ns) = shared.feed.next(Side::Insert) {
        maker.fill(&mut batch, rows, rows_per_second);
        let begin_ns = shared.clock.now_ns();
        let first_key = session.insert(shared.table, &batch)?;
        let end_ns = shared.clock.now_ns();
        out.recorder.record(begin_ns, end_ns, u64::from(rows), intended_ns);
        out.rows += u64::from(rows);
        out.statements += 1;
        out.end_ns = end_ns;
        out.hash = (first_key..).zip(batch.iter()).fold(out.hash, |sum, (key, row)| sum.wrapping_add(row.hash(key)));
    }
    out.recorder.finish();
    out.switches = thread_switches().unwrap_or(0);
    Ok(out)
}

/// The deleter.
pub fn delete(
    shared: &Shared<'_>,
    session: &mut dyn Session,
    form: DeleteForm,
    recorder: Recorder,
) -> Result<Written, WorkerError> {
    let rows = shared.work.rows;
    let mut out = Written::new(recorder);
    let mut from = probe_min(shared, session, &mut out)?;
    while let Some(intended_ns) = shared.feed.next(Side::Delete) {
        if form == DeleteForm::Limit && out.statements > 0 && out.statements.is_multiple_of(RESYNC_STATEMENTS) {
            from = probe_min(shared, session, &mut out)?;
        }
        let begin_ns = shared.clock.now_ns();
        let deleted = match form {
            DeleteForm::Limit => session.delete_smallest(shared.table, from, rows)?,
            DeleteForm::Range => session.delete_range(shared.table, from, from + u64::from(rows))?,
        };
        let end_ns = shared.clock.now_ns();
        if deleted > rows {
            return Err(WorkerError::Wrong(format!("a delete of {rows} rows says it deleted {deleted}")));
        }
        out.recorder.record(begin_ns, end_ns, u64::from(deleted), intended_ns);
        out.short_deletes += u64::from(deleted < rows);
        out.rows += u64::from(deleted);
        out.statements += 1;
        out.end_ns = end_ns;
        from += u64::from(rows);
        // Pairs with the relaxed load in `points`: only a hint where live keys begin.
        shared.min_key.store(from, Ordering::Relaxed);
    }
    out.recorder.finish();
    out.switches = thread_switches().unwrap_or(0);
    Ok(out)
}

fn probe_min(shared: &Shared<'_>, session: &mut dyn Session, out: &mut Written) -> Result<u64, WorkerError> {
    let begin_ns = shared.clock.now_ns();
    let key = session.min_key(shared.table)?.unwrap_or(1);
    out.probes_ns.push(shared.clock.now_ns() - begin_ns);
    shared.min_key.store(key, Ordering::Relaxed);
    Ok(key)
}

/// What a query thread hands back.
#[derive(Debug)]
pub struct Asked {
    /// The measurements.
    pub recorder: Recorder,
    /// Rows fetched.
    pub fetched: u64,
    /// When the last query ended.
    pub end_ns: u64,
    /// Context switches of the thread.
    pub switches: u64,
}

/// The query thread.
pub fn query(
    shared: &Shared<'_>,
    session: &mut dyn Session,
    kind: QueryKind,
    set: IndexSet,
    mut random: Random,
    recorder: Recorder,
) -> Result<Asked, WorkerError> {
    let mut out = Asked { recorder, fetched: 0, end_ns: 0, switches: 0 };
    let mut entries = Vec::with_capacity(ROWS_PER_QUERY as usize);
    let mut points = Points::default();
    let gets = if kind == QueryKind::Gets { Gets::of(shared, session)? } else { Gets::default() };
    let mut asked = 0u64;
    // Pairs with the relaxed store of the coordinator; the thread is joined afterwards.
    while !(asked.is_multiple_of(STOP_CHECK) && shared.stop.load(Ordering::Relaxed)) {
        let (begin_ns, end_ns, rows) = match kind {
            QueryKind::Range | QueryKind::Range2017 => range(shared, session, set, &mut random, &mut entries)?,
            QueryKind::Points => points.ask(shared, session, &mut random, asked)?,
            QueryKind::Gets => gets.ask(shared, session, &mut random)?,
        };
        out.recorder.record(begin_ns, end_ns, 1, None);
        out.fetched += rows as u64;
        out.end_ns = end_ns;
        asked += 1;
    }
    out.recorder.finish();
    out.switches = thread_switches().unwrap_or(0);
    Ok(out)
}

/// Hundredths of a FLOAT that queries begin at are multiples of this.
const QUARTER: u32 = 25;

fn range(
    shared: &Shared<'_>,
    session: &mut dyn Session,
    set: IndexSet,
    random: &mut Random,
    entries: &mut Vec<Entry>,
) -> Result<(u64, u64, usize), WorkerError> {
    let index = Secondary::ALL[random.below(3) as usize];
    let (bound, unit) = match (index, set, shared.price) {
        (Secondary::Market, IndexSet::Y2023, _) => (PRODUCTS, 1),
        (Secondary::Register, ..) => (CASH_REGISTERS, 1),
        (Secondary::Market | Secondary::Pdc, _, Price::Int) => (MAX_PRICE, 1),
        // Quarters are the same in decimals and in binary, so that every engine compares alike.
        (Secondary::Market | Secondary::Pdc, _, Price::Float) => (MAX_HUNDREDTHS / QUARTER, QUARTER),
    };
    let first = i64::from(random.below(bound) * unit);
    let strict = index == Secondary::Register;
    let begin_ns = shared.clock.now_ns();
    session.range(shared.table, RangeQuery { index, first, strict, limit: ROWS_PER_QUERY }, entries)?;
    let end_ns = shared.clock.now_ns();
    let least = first + i64::from(strict);
    let in_order = entries.windows(2).all(|pair| pair[0] <= pair[1]);
    if entries.len() > ROWS_PER_QUERY as usize || !in_order || entries.first().is_some_and(|entry| entry[0] < least) {
        let what = format!("{} from {least}: {entries:?} is out of bounds or order", index.name());
        return Err(WorkerError::Wrong(what));
    }
    Ok((begin_ns, end_ns, entries.len()))
}

/// State of a thread that asks point queries.
#[derive(Default)]
struct Points {
    max_key: u64,
    keys: Vec<u64>,
    rows: Vec<PointRow>,
}

impl Points {
    fn ask(
        &mut self,
        shared: &Shared<'_>,
        session: &mut dyn Session,
        random: &mut Random,
        asked: u64,
    ) -> Result<(u64, u64, usize), WorkerError> {
        if asked.is_multiple_of(MAX_KEY_REFRESH) {
            self.max_key = session.max_key(shared.table)?.unwrap_or(1);
        }
        // Pairs with the deleter's store: a stale value only asks for keys that are gone.
        let from = shared.min_key.load(Ordering::Relaxed);
        let span = self.max_key.saturating_sub(from).max(1);
        self.keys.clear();
        self.keys.extend((0..ROWS_PER_QUERY).map(|_| from + random.below_wide(span)));
        let begin_ns = shared.clock.now_ns();
        session.points(shared.table, &self.keys, &mut self.rows)?;
        let end_ns = shared.clock.now_ns();
        let asked_for = |row: &PointRow| self.keys.contains(&row.transactionid) && !row.data.is_empty();
        if self.rows.len() > self.keys.len() || !self.rows.iter().all(asked_for) {
            let what = format!("keys {:?}: the answer {:?} was not asked for", self.keys, self.rows);
            return Err(WorkerError::Wrong(what));
        }
        Ok((begin_ns, end_ns, self.rows.len()))
    }
}

/// The keys of a table that nobody writes to: all from the least to the largest.
#[derive(Default)]
struct Gets {
    least: u64,
    keys: u64,
}

impl Gets {
    fn of(shared: &Shared<'_>, session: &mut dyn Session) -> Result<Gets, WorkerError> {
        let (least, largest) = (session.min_key(shared.table)?, session.max_key(shared.table)?);
        let (Some(least), Some(largest)) = (least, largest) else {
            return Err(WorkerError::Wrong(format!("table {} has no rows to look up", shared.table + 1)));
        };
        Ok(Gets { least, keys: largest - least + 1 })
    }

    fn ask(
        &self,
        shared: &Shared<'_>,
        session: &mut dyn Session,
        random: &mut Random,
    ) -> Result<(u64, u64, usize), WorkerError> {
        let key = self.least + random.below_wide(self.keys);
        let mut sound = false;
        let begin_ns = shared.clock.now_ns();
        let found = session.get(shared.table, key, &mut |transactionid, row| {
            sound = transactionid == key && could_be_made(&row, shared.price);
        })?;
        let end_ns = shared.clock.now_ns();
        match found && sound {
            true => Ok((begin_ns, end_ns, 1)),
            false if found => Err(WorkerError::Wrong(format!("key {key}: not the row that was inserted"))),
            false => Err(WorkerError::Wrong(format!("key {key}: no row, and nobody deleted it"))),
        }
    }
}

/// The snapshot holder: returns how many transactions it held.
pub fn hold(shared: &Shared<'_>, session: &mut dyn Session, seconds: u64) -> Result<u64, WorkerError> {
    let mut held = 0;
    // Pairs with the relaxed store of the coordinator; the thread is joined afterwards.
    while !shared.stop.load(Ordering::Relaxed) {
        session.hold_begin(shared.table)?;
        let until_ns = shared.clock.now_ns() + seconds * 1_000_000_000;
        sleep_until(shared.clock, until_ns, || shared.stop.load(Ordering::Relaxed));
        session.hold_end()?;
        held += 1;
    }
    Ok(held)
}
