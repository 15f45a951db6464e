//! The load of one part: threads that insert, one that deletes, and a look once a second.
//!
//! A statement inserts [`ROWS`] rows. With a rate each has its moment, and its time counts from then, so that one that comes late
//! because of the one before it is late. The deleter takes the oldest rows, as many as were inserted, and never more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lab_target::{Batch, IndexSet, Session, Target, TargetError};
use lab_workload::rows::{ROWS_PER_SECOND, RowMaker, text_pool};

use super::SEED;
use super::keep::Second;
use crate::outcome::Failure;

/// Rows of a statement.
const ROWS: u32 = 50;
/// A statement that is back later than this after it was due is slow.
const SLOW: Duration = Duration::from_millis(20);
/// The engine may write so long what filled it before a part begins.
const SETTLE: Duration = Duration::from_secs(60);

/// What a part is to do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub seconds: u64,
    pub clients: u32,
    /// Rows a second of all clients; none: as fast as possible.
    pub rate: Option<f64>,
    pub deletes: bool,
    /// A snapshot is held open from the first second to the last.
    pub holds: bool,
}

/// A target under a part's load.
pub struct Load<'a> {
    target: &'a dyn Target,
    work: Work,
    interrupt: Arc<AtomicBool>,
    counts: Counts,
    stop: AtomicBool,
}

/// Of the second under way, taken by the look at its end; `inserted_ever` and `deleted_ever` are of the part. Relaxed: numbers.
#[derive(Debug, Default)]
struct Counts {
    inserted: AtomicU64,
    deleted: AtomicU64,
    statements: AtomicU64,
    slow: AtomicU64,
    worst_us: AtomicU64,
    inserted_ever: AtomicU64,
}

impl<'a> Load<'a> {
    pub fn new(target: &'a dyn Target, work: Work, interrupt: Arc<AtomicBool>) -> Self {
        Self { target, work, interrupt, counts: Counts::default(), stop: AtomicBool::new(false) }
    }

    /// A table of so many rows with its three indexes. Returns the bytes on disk.
    pub fn fill(&self, rows: u64) -> Result<u64, Failure> {
        self.target.create_table(0)?;
        self.target.create_indexes(0, IndexSet::Y2017)?;
        let (mut session, mut maker) = (self.target.session()?, RowMaker::new(SEED, 0, text_pool(SEED)));
        let mut batch = Batch::with_capacity(ROWS as usize);
        let mut left = rows;
        while left > 0 {
            self.check()?;
            let some = left.min(u64::from(ROWS)) as u32;
            maker.fill(&mut batch, some, ROWS_PER_SECOND);
            session.insert(0, &batch)?;
            left -= u64::from(some);
        }
        drop(session);
        self.target.settle(SETTLE)?;
        self.disk_bytes()
    }

    /// All of the part; `each` gets every second.
    pub fn drive(&self, each: impl FnMut(Second) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut held = self.target.session()?;
        if self.work.holds {
            held.hold_begin(0)?;
        }
        let result = std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..self.work.clients).map(|client| scope.spawn(move || self.insert(client))).collect();
            let deleter = self.work.deletes.then(|| scope.spawn(|| self.delete()));
            let looked = self.look(each);
            self.stop.store(true, Ordering::Relaxed);
            let ended = clients.into_iter().chain(deleter).map(|thread| thread.join().expect("no client panics"));
            let ended: Vec<Result<(), TargetError>> = ended.collect();
            looked.and(ended.into_iter().collect::<Result<(), TargetError>>().map_err(Failure::from))
        });
        if self.work.holds {
            held.hold_end()?;
        }
        result
    }

    fn check(&self) -> Result<(), Failure> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted("interrupted; the same command goes on with it".into()));
        }
        Ok(())
    }

    /// A look each second.
    fn look(&self, mut each: impl FnMut(Second) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut session = self.target.session()?;
        let begun = Instant::now();
        for second in 1..=self.work.seconds {
            let end = Duration::from_secs(second);
            while let left = end.saturating_sub(begun.elapsed())
                && !left.is_zero()
            {
                self.check()?;
                if self.stop.load(Ordering::Relaxed) {
                    // A client failed, and says why.
                    return Ok(());
                }
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
            each(self.second(second, &mut *session)?)?;
        }
        Ok(())
    }

    fn second(&self, second: u64, session: &mut dyn Session) -> Result<Second, Failure> {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let counts = &self.counts;
        let (inserted, deleted) = (take(&counts.inserted), take(&counts.deleted));
        let (statements, slow, worst_us) = (take(&counts.statements), take(&counts.slow), take(&counts.worst_us));
        let begun = Instant::now();
        session.min_key(0)?;
        let min_key_us = begun.elapsed().as_micros() as u64;
        Ok(Second {
            second,
            inserted,
            deleted,
            statements,
            slow,
            worst_us,
            min_key_us,
            dead: self.target.counters()?.get("gc_debt").copied().unwrap_or(0),
            disk_bytes: self.disk_bytes()?,
            resident_bytes: resident_bytes().unwrap_or(0),
        })
    }

    fn insert(&self, client: u32) -> Result<(), TargetError> {
        let result = self.insert_until_end(client);
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        result
    }

    fn insert_until_end(&self, client: u32) -> Result<(), TargetError> {
        // Client 0 filled the table.
        let (mut session, mut maker) = (self.target.session()?, RowMaker::new(SEED, client + 1, text_pool(SEED)));
        let mut batch = Batch::with_capacity(ROWS as usize);
        let rate = self.work.rate.map(|rate| rate / f64::from(self.work.clients));
        let begun = Instant::now();
        for statement in 0u64.. {
            let due = rate.map(|rate| Duration::from_secs_f64(statement as f64 * f64::from(ROWS) / rate));
            if let Some(left) = due.map(|due| due.saturating_sub(begun.elapsed())).filter(|left| !left.is_zero()) {
                std::thread::sleep(left);
            }
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            maker.fill(&mut batch, ROWS, ROWS_PER_SECOND);
            let from = due.unwrap_or_else(|| begun.elapsed());
            session.insert(0, &batch)?;
            self.counts.note_insert(begun.elapsed().saturating_sub(from));
        }
        Ok(())
    }

    fn delete(&self) -> Result<(), TargetError> {
        let result = self.delete_until_end();
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        result
    }

    fn delete_until_end(&self) -> Result<(), TargetError> {
        let mut session = self.target.session()?;
        let (mut from, mut deleted) = (1, 0);
        while !self.stop.load(Ordering::Relaxed) {
            if deleted >= self.counts.inserted_ever.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            let gone = u64::from(session.delete_smallest(0, from, ROWS)?);
            from += u64::from(ROWS);
            deleted += gone;
            self.counts.deleted.fetch_add(gone, Ordering::Relaxed);
        }
        Ok(())
    }

    fn disk_bytes(&self) -> Result<u64, Failure> {
        let sizes = self.target.sizes()?;
        let beside: u64 = ["log", "runs"].iter().filter_map(|class| sizes.classes.get(*class)).sum();
        Ok(sizes.data_bytes.unwrap_or(0) + beside)
    }
}

impl Counts {
    fn note_insert(&self, took: Duration) {
        self.inserted.fetch_add(u64::from(ROWS), Ordering::Relaxed);
        self.inserted_ever.fetch_add(u64::from(ROWS), Ordering::Relaxed);
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.slow.fetch_add(u64::from(took > SLOW), Ordering::Relaxed);
        self.worst_us.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
    }
}

/// Resident memory of this process, which has the engine in it.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// The engine's memory, as it says or as was asked.
pub fn budget_of(target: &dyn Target, asked: Option<u64>) -> Option<u64> {
    let said = target.describe().settings.get("budget").and_then(|text| text.parse().ok());
    asked.or(said)
}
