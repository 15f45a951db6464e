//! The load of one part: threads that insert, one that deletes, and a look once a second.
//!
//! A statement inserts [`ROWS`] rows. With a rate each has its moment, and its time counts from then, so that one that comes late
//! because of the one before it is late. The deleter takes the oldest rows: as many as were inserted, and never more; or beside a
//! snapshot those that it sees, bit by bit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lab_measure::procfs::Process;
use lab_target::{Batch, IndexSet, Session, Target, TargetError};
use lab_workload::check::check_counts;
use lab_workload::rows::{ROWS_PER_SECOND, RowMaker, text_pool};

use super::SEED;
use super::keep::{Second, Snapshot};
use crate::outcome::Failure;

/// Rows of a statement.
const ROWS: u32 = 50;
/// A statement that is back later than this after it was due is slow.
const SLOW: Duration = Duration::from_millis(20);
const INDEXES: IndexSet = IndexSet::Y2017;
/// The engine may write so long what filled it before a part begins.
const SETTLE: Duration = Duration::from_secs(60);

/// What a part is to do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub seconds: u64,
    pub clients: u32,
    /// Rows a second of all clients; none: as fast as possible.
    pub rate: Option<f64>,
    pub deletes: Deletes,
    /// A snapshot is held open from the first second to the last.
    pub holds: bool,
}

/// Whether rows are deleted, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletes {
    None,
    /// As many as are inserted.
    AsInserted,
    /// Those that were there before, spread over all of the part.
    OfBefore,
}

/// A target under a part's load.
pub struct Load<'a> {
    target: &'a dyn Target,
    /// Rows that it begins with.
    filled: u64,
    work: Work,
    interrupt: Arc<AtomicBool>,
    counts: Counts,
    stop: AtomicBool,
    begun: Instant,
}

/// Of the second under way, taken by the look at its end; what was ever done is of the part. Relaxed: numbers.
#[derive(Debug, Default)]
struct Counts {
    inserted: AtomicU64,
    deleted: AtomicU64,
    statements: AtomicU64,
    slow: AtomicU64,
    worst_us: AtomicU64,
    inserted_ever: AtomicU64,
    deleted_ever: AtomicU64,
    /// Of each client, when the statement that is under way was due, in microseconds since the part began, and one more; 0: none is.
    under_way: Vec<AtomicU64>,
}

impl<'a> Load<'a> {
    pub fn new(target: &'a dyn Target, filled: u64, work: Work, interrupt: Arc<AtomicBool>) -> Self {
        let under_way = (0..work.clients).map(|_| AtomicU64::new(0)).collect();
        let counts = Counts { under_way, ..Counts::default() };
        Self { target, filled, work, interrupt, counts, stop: AtomicBool::new(false), begun: Instant::now() }
    }

    /// A table with its three indexes. Returns the bytes on disk.
    pub fn fill(&self) -> Result<Option<u64>, Failure> {
        self.target.create_table(0)?;
        self.target.create_indexes(0, INDEXES)?;
        let (mut session, mut maker) = (self.target.session()?, RowMaker::new(SEED, 0, text_pool(SEED)));
        let mut batch = Batch::with_capacity(ROWS as usize);
        let mut left = self.filled;
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

    /// All of the part; `each` gets every second, the last one when all clients are back, `behind` comes while the snapshot is still
    /// held. Returns what the snapshot saw, if there was one, and what `behind` did.
    pub fn drive<T>(
        &self,
        mut each: impl FnMut(Second) -> Result<(), Failure>,
        behind: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(Option<Snapshot>, T), Failure> {
        let mut held = self.target.session()?;
        if self.work.holds {
            held.hold_begin(0)?;
        }
        let first = self.held_rows(&mut *held)?;
        self.run(&mut each)?;
        let last = self.held_rows(&mut *held)?;
        let done = behind()?;
        if self.work.holds {
            held.hold_end()?;
        }
        let deleted = self.counts.deleted_ever.load(Ordering::Relaxed).min(self.filled);
        Ok((first.zip(last).map(|(first, last)| Snapshot { first, last, deleted }), done))
    }

    /// What the snapshot sees of the rows that were there before, and of as many keys behind them; none where it is not told.
    fn held_rows(&self, held: &mut dyn Session) -> Result<Option<(u64, u64)>, Failure> {
        if !self.work.holds {
            return Ok(None);
        }
        match held.held_rows(0, 2 * self.filled) {
            Ok(rows) => Ok(Some(rows)),
            Err(TargetError::Unsupported(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Rows, keys and index entries are those that the part leaves, and the engine finds nothing wrong.
    pub fn check_rows(&self) -> Result<(), Failure> {
        let ever = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let inserted = self.filled + ever(&self.counts.inserted_ever);
        Ok(check_counts(self.target, (inserted, ever(&self.counts.deleted_ever)), INDEXES)?)
    }

    fn run(&self, each: &mut dyn FnMut(Second) -> Result<(), Failure>) -> Result<(), Failure> {
        std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..self.work.clients).map(|client| scope.spawn(move || self.insert(client))).collect();
            let deletes = self.work.deletes != Deletes::None;
            let deleter = deletes.then(|| scope.spawn(|| self.delete()));
            let looked = self.look(each);
            self.stop.store(true, Ordering::Relaxed);
            let ended = clients.into_iter().chain(deleter).map(|thread| thread.join().expect("no client panics"));
            let ended: Vec<Result<(), TargetError>> = ended.collect();
            let last = looked?;
            ended.into_iter().collect::<Result<(), TargetError>>()?;
            last.map_or(Ok(()), |last| each(self.counts.with_late(last)))
        })
    }

    fn check(&self) -> Result<(), Failure> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted("interrupted; the same command goes on with it".into()));
        }
        Ok(())
    }

    /// A look each second; the last one is handed back, for what is under way at its end counts too.
    fn look(&self, each: &mut dyn FnMut(Second) -> Result<(), Failure>) -> Result<Option<Second>, Failure> {
        let mut session = self.target.session()?;
        let mut used = Used::now(self.target)?;
        let begun = Instant::now();
        for second in 1..=self.work.seconds {
            let end = Duration::from_secs(second);
            while let left = end.saturating_sub(begun.elapsed())
                && !left.is_zero()
            {
                self.check()?;
                if self.stop.load(Ordering::Relaxed) {
                    // A client failed, and says why.
                    return Ok(None);
                }
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
            let looked = self.second(second, &mut *session, &mut used)?;
            if second == self.work.seconds {
                return Ok(Some(looked));
            }
            each(looked)?;
        }
        Ok(None)
    }

    fn second(&self, second: u64, session: &mut dyn Session, used: &mut Used) -> Result<Second, Failure> {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let counts = &self.counts;
        let (inserted, deleted) = (take(&counts.inserted), take(&counts.deleted));
        let (statements, slow, worst_us) = (take(&counts.statements), take(&counts.slow), take(&counts.worst_us));
        let worst_us = worst_us.max(counts.longest_under_way(self.begun.elapsed()));
        let begun = Instant::now();
        session.min_key(0)?;
        let min_key_us = begun.elapsed().as_micros() as u64;
        let (now, counters) = (Used::now(self.target)?, self.target.counters()?);
        let before = std::mem::replace(used, now);
        let since = |of: fn(&Used) -> Option<u64>| Some(of(used)?.saturating_sub(of(&before)?));
        Ok(Second {
            second,
            inserted,
            deleted,
            statements,
            slow,
            worst_us,
            min_key_us,
            dead: counters.get("gc_debt").copied(),
            disk_bytes: self.disk_bytes()?,
            peak_bytes: peak_bytes(),
            cpu_us: since(|used| used.cpu_us),
            written: since(|used| used.written),
            taken_bytes: counters.get("disk_limit.taken_bytes").copied(),
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
            let under_way = &self.counts.under_way[client as usize];
            under_way.store((begun - self.begun + from).as_micros() as u64 + 1, Ordering::Relaxed);
            session.insert(0, &batch)?;
            under_way.store(0, Ordering::Relaxed);
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
        let (begun, length) = (Instant::now(), Duration::from_secs(self.work.seconds));
        let ever = &self.counts.deleted_ever;
        let mut from = 1;
        while !self.stop.load(Ordering::Relaxed) {
            let allowed = match self.work.deletes {
                Deletes::OfBefore => (self.filled as f64 * begun.elapsed().div_duration_f64(length).min(1.0)) as u64,
                _ => self.counts.inserted_ever.load(Ordering::Relaxed),
            };
            let left = allowed.saturating_sub(ever.load(Ordering::Relaxed));
            // Of rows that were there before what is left in the end is less than a statement.
            if left == 0 || self.work.deletes == Deletes::OfBefore && left < u64::from(ROWS) {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            let gone = u64::from(session.delete_smallest(0, from, ROWS)?);
            from += u64::from(ROWS);
            ever.fetch_add(gone, Ordering::Relaxed);
            self.counts.deleted.fetch_add(gone, Ordering::Relaxed);
        }
        Ok(())
    }

    fn disk_bytes(&self) -> Result<Option<u64>, Failure> {
        let sizes = self.target.sizes()?;
        let beside: u64 = ["log", "runs"].iter().filter_map(|class| sizes.classes.get(*class)).sum();
        Ok(sizes.data_bytes.map(|data| data + beside))
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

    /// How long ago the oldest statement that is under way was due.
    fn longest_under_way(&self, now: Duration) -> u64 {
        let dues = self.under_way.iter().map(|due| due.load(Ordering::Relaxed)).filter(|due| *due > 0);
        dues.map(|due| (now.as_micros() as u64).saturating_sub(due - 1)).max().unwrap_or(0)
    }

    /// The last second with the statements that came back behind its end. Their rows are not of it, their time is.
    fn with_late(&self, last: Second) -> Second {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Second {
            statements: last.statements + read(&self.statements),
            slow: last.slow + read(&self.slow),
            worst_us: last.worst_us.max(read(&self.worst_us)),
            ..last
        }
    }
}

/// What this process and the engine in it have used so far.
struct Used {
    cpu_us: Option<u64>,
    written: Option<u64>,
}

impl Used {
    fn now(target: &dyn Target) -> Result<Used, Failure> {
        let cpu = Process::read().map(|process| ((process.user_secs + process.system_secs) * 1e6) as u64);
        let counters = target.counters()?;
        let causes = counters.iter().filter(|(name, _)| name.starts_with("written."));
        Ok(Used { cpu_us: cpu, written: causes.map(|(_, bytes)| *bytes).reduce(|left, right| left + right) })
    }
}

/// Resident memory of this process, which has the engine in it.
pub fn resident_bytes() -> Option<u64> {
    of_status("VmRSS:")
}

/// The most that was resident since [`forget_peak`].
fn peak_bytes() -> Option<u64> {
    of_status("VmHWM:")
}

/// The peak counts from here on.
pub fn forget_peak() -> Result<(), Failure> {
    let path = std::path::Path::new("/proc/self/clear_refs");
    std::fs::write(path, "5").map_err(|error| Failure::io("reset the peak of memory by", path, &error))
}

fn of_status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// The engine's memory, as it says or as was asked.
pub fn budget_of(target: &dyn Target, asked: Option<u64>) -> Option<u64> {
    let said = target.describe().settings.get("budget").and_then(|text| text.parse().ok());
    asked.or(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_hangs_counts_before_it_is_back_and_when_it_is_back_too_late() {
        let counts = Counts { under_way: vec![AtomicU64::new(0), AtomicU64::new(0)], ..Counts::default() };
        assert_eq!(counts.longest_under_way(Duration::from_secs(9)), 0);
        counts.under_way[1].store(2_000_001, Ordering::Relaxed);
        assert_eq!(counts.longest_under_way(Duration::from_secs(9)), 7_000_000);
        counts.note_insert(Duration::from_secs(8));
        let last = Second { inserted: 50, statements: 1, worst_us: 300, ..Second::default() };
        let late = counts.with_late(last);
        assert_eq!((late.inserted, late.statements, late.slow, late.worst_us), (50, 2, 1, 8_000_000));
    }

    #[test]
    fn a_peak_is_what_was_resident_once() {
        forget_peak().expect("Linux resets it");
        let before = peak_bytes().expect("Linux tells it");
        let held = std::hint::black_box(vec![1u8; 64 << 20]);
        drop(held);
        assert!(peak_bytes() >= Some(before + (60 << 20)), "{:?} behind {before}", peak_bytes());
    }
}
