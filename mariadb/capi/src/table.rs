// SPDX-License-Identifier: GPL-2.0-only
//! An open table: shared by all its handlers.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trefoil::{ALL, ChangeOptions, Database, OwnedValue, Table, Value};

use crate::abi::TableStats;
use crate::crash;
use crate::cursor::Start;
use crate::database::{Counters, Engine};
use crate::failure::{Code, Failure, Result, check_sound};
use crate::foreign;
use crate::key_bytes::Room;
use crate::layout::{Layout, Way};
use crate::numbers::Numbers;
use crate::raw::Definition;
use crate::writes::TableNumber;

/// Statistics of the engine are read again after this.
const STATS_AGE_MAX: Duration = Duration::from_secs(1);

/// A table of the server that some handler has open.
pub struct OpenTable {
    pub table: Table,
    pub layout: Arc<Layout>,
    /// As it was opened: nobody has a table open while it is renamed.
    name: String,
    pub db: Database,
    numbers: Numbers,
    counters: Arc<Counters>,
    stats: Mutex<Option<(Instant, TableStats)>>,
    /// Rows written since the statistics were read, less those deleted.
    grown: AtomicI64,
    /// For keys that it gets.
    pub room: Room,
}

/// Entries that the engine checks between two questions whether it is to go on.
const CHECKED_AT_ONCE: u64 = 1024;

impl OpenTable {
    pub fn open(engine: &Engine, name: &str, definition: &Definition<'_>) -> Result<Self> {
        let mut layout = Layout::new(definition, &engine.room)?;
        let table = engine.db.table(name)?;
        // The table's own has the collations.
        layout.adopt(table.schema())?;
        let layout = Arc::new(layout);
        let (counters, grown, stats) = (engine.counters(name), AtomicI64::new(0), Mutex::default());
        let name = name.to_owned();
        let (db, numbers) = (engine.db.clone(), engine.numbers.clone());
        let room = engine.room.clone();
        Ok(Self { table, layout, name, db, numbers, counters, stats, grown, room })
    }

    /// Of the table, the same for all that have it open.
    pub fn number(&self) -> TableNumber {
        self.counters.table
    }

    /// With a row of it others may be written, of whatever tables.
    pub fn acts_on_others(&self) -> bool {
        foreign::acts_on_others(&self.db, self.table.name())
    }

    /// The number of a new row.
    pub fn next_row(&self) -> Result<u64> {
        if self.counters.row.load(Ordering::Relaxed) == 0 {
            let tx = self.db.begin()?;
            let mut last = tx.scan_back(&self.table, ALL)?.expect(1);
            let used = match last.next_key()?.as_deref() {
                Some([Value::U64(row)]) => *row,
                _ => 0,
            };
            // Numbers of what is prepared show in no row yet. Each has taken more than a byte of the log.
            let free = self.db.snapshot()?.ts().0.max(used) + 1;
            self.counters.row.compare_exchange(0, free, Ordering::Relaxed, Ordering::Relaxed).ok();
        }
        Ok(self.counters.row.fetch_add(1, Ordering::Relaxed))
    }

    /// The next number of AUTO_INCREMENT, by key number `key`, which begins with that column.
    pub fn next_auto(&self, key: u32) -> Result<u64> {
        let auto = &self.counters.auto;
        if auto.get() == 0 {
            let kept = self.numbers.kept(&self.name)?;
            // Rows may have come in by other ways than the server's.
            auto.start(kept.max(self.largest(key)?.saturating_add(1)), kept);
        }
        Ok(auto.get())
    }

    /// The largest number that a key begins with; 0 if there is none above.
    fn largest(&self, key: u32) -> Result<u64> {
        let (field, descending) = self.layout.first_field(key)?;
        let tx = self.db.begin()?;
        let first = match (self.layout.way(key as i32)?, descending) {
            (Way::Rows, false) => first_of(tx.scan_back(&self.table, ALL)?.expect(1).next_key()?),
            (Way::Rows, true) => first_of(tx.scan(&self.table, ALL)?.expect(1).next_key()?),
            (Way::Secondary(n), _) => {
                let index = self.layout.index_name(n);
                let entries = match descending {
                    false => tx.scan_index_back(&self.table, index, ALL)?,
                    true => tx.scan_index(&self.table, index, ALL)?,
                };
                first_of(entries.expect(1).next()?)
            }
        };
        Ok(first.map_or(0, |value| field.whole_number(&value)))
    }

    /// Takes `count` numbers of the row `offset`, `offset` + `increment` …, or fewer if there are no more; returns the first, and how many.
    pub fn reserve_auto(&self, key: u32, offset: u64, increment: u64, count: u64) -> Result<(u64, u64)> {
        let increment = increment.max(1);
        let mut next = self.next_auto(key)?;
        loop {
            let Some(first) = align(next, offset, increment).filter(|&first| first < u64::MAX) else {
                return Err(Failure::new(Code::TooLong, "the numbers of AUTO_INCREMENT are used up"));
            };
            let count = count.clamp(1, (u64::MAX - 1 - first) / increment + 1);
            let behind = first.saturating_add(increment.saturating_mul(count));
            match self.counters.auto.take(&self.numbers, &self.name, next, behind)? {
                None => return Ok((first, count)),
                Some(now) => next = now,
            }
        }
    }

    /// Notes that `used` is taken.
    pub fn raise_auto(&self, key: u32, used: u64) -> Result<()> {
        self.next_auto(key)?;
        self.counters.auto.raise(&self.numbers, &self.name, used)
    }

    /// Empties the table. It is another one of the engine's then: this one's place is taken by what is returned.
    pub fn truncate(&self, wait: ChangeOptions) -> Result<Self> {
        check_sound()?;
        crash::point("truncate");
        let table = self.db.changing(wait).truncate_table(&self.name)?;
        crash::point("truncated");
        self.counters.auto.reset(&self.numbers, &self.name, 1)?;
        let (layout, name, counters) = (self.layout.clone(), self.name.clone(), self.counters.clone());
        let (grown, stats) = (AtomicI64::new(0), Mutex::default());
        let (db, numbers) = (self.db.clone(), self.numbers.clone());
        let room = self.room.clone();
        Ok(Self { table, layout, name, db, numbers, counters, stats, grown, room })
    }

    /// Until nobody has rows in it that are not committed.
    pub fn wait_for_writers(&self, wait: ChangeOptions) -> Result<()> {
        Ok(self.db.changing(wait).wait_for_writers(&self.table)?)
    }

    /// Checks the indexes, and if it is `thorough` the rows against them. What is wrong goes to `say`; how much is.
    /// `goes_on` is told how much of about how much is done, and asked.
    pub fn check(
        &self,
        thorough: bool,
        goes_on: &dyn Fn(u64, u64) -> bool,
        mut say: impl FnMut(&str),
    ) -> Result<usize> {
        let mut problems = 0;
        for (what, report) in self.db.verify_table(&self.table, thorough, &self.asked(thorough, goes_on))? {
            problems += report.problems.len();
            report.problems.iter().for_each(|problem| say(&format!("{what}: {problem}")));
        }
        Ok(problems)
    }

    /// The same, and keys in which something is wrong are made anew from the rows, which `say` is told.
    pub fn repair(
        &self,
        thorough: bool,
        goes_on: &dyn Fn(u64, u64) -> bool,
        wait: ChangeOptions,
        mut say: impl FnMut(&str),
    ) -> Result<()> {
        check_sound()?;
        let made = self.db.changing(wait).repair_table(&self.table, thorough, &self.asked(thorough, goes_on))?;
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).take();
        made.iter().for_each(|key| say(&format!("key {key} was made anew from the rows")));
        Ok(())
    }

    /// The engine asks at each index, and at each so many of its entries.
    fn asked<'a>(&self, thorough: bool, goes_on: &'a dyn Fn(u64, u64) -> bool) -> impl Fn() -> bool + 'a {
        let stats = self.table.stats();
        let indexes = stats.indexes.iter().chain([&stats.primary]);
        let batches = indexes.map(|index| 1 + if thorough { index.live_keys / CHECKED_AT_ONCE } else { 0 });
        let (total, asked) = (batches.sum::<u64>(), Cell::new(0));
        move || {
            asked.set(asked.get() + 1);
            goes_on(asked.get().min(total), total)
        }
    }

    /// How many rows of about how many are in the keys that are built for it now.
    pub fn building(&self) -> Option<(u64, u64)> {
        let builds = self.db.index_builds();
        let build = builds.iter().find(|build| build.table() == self.name)?;
        // The last step is known by no number.
        let total = build.rows_estimated().max(build.rows_read()) + 1;
        Some((build.rows_read(), total))
    }

    /// Rows came, went, or were changed, by a statement.
    pub fn changed(&self, rows: i64) {
        self.grown.fetch_add(rows, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.counters.changed_at.store(now as i64, Ordering::Relaxed);
    }

    pub fn stats(&self) -> TableStats {
        let mut kept = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, stats) = match kept.take().filter(|(at, _)| at.elapsed() < STATS_AGE_MAX) {
            Some(young) => kept.insert(young),
            None => {
                self.grown.store(0, Ordering::Relaxed);
                kept.insert((Instant::now(), self.read_stats()))
            }
        };
        let rows = stats.rows.saturating_add_signed(self.grown.load(Ordering::Relaxed));
        TableStats { rows, changed_at: self.counters.changed_at.load(Ordering::Relaxed), ..*stats }
    }

    fn read_stats(&self) -> TableStats {
        let stats = self.table.stats();
        let bytes = |of: &trefoil::IndexStats| of.disk_bytes.max(of.memory_bytes);
        // Rows that are not in nodes yet will be in as many as the others.
        let in_nodes = (stats.primary.leaves * stats.primary.node_bytes) as f64;
        let share = stats.rows as f64 / stats.primary.live_keys.max(1) as f64;
        let row_node_bytes = if share < 100.0 { (in_nodes * share) as u64 } else { 3 * stats.primary.run_bytes };
        TableStats {
            rows: stats.rows,
            data_bytes: bytes(&stats.primary),
            index_bytes: stats.indexes.iter().map(bytes).sum(),
            row_node_bytes,
            changed_at: 0,
        }
    }

    /// About how many committed rows a scan would meet.
    pub fn estimate(&self, start: &Start) -> Result<u64> {
        let index = match start.way {
            Way::Rows => None,
            Way::Secondary(n) => Some(self.layout.index_name(n)),
        };
        let range = (start.low.as_ref().map(Vec::as_slice), start.high.as_ref().map(Vec::as_slice));
        Ok(self.table.estimate_rows(index, range)?)
    }

    /// Different values of the first columns of a key.
    pub fn distinct(&self, key: u32) -> Result<Arc<[u64]>> {
        let index = match self.layout.way(key as i32)? {
            Way::Rows => None,
            Way::Secondary(n) => Some(self.layout.index_name(n)),
        };
        Ok(self.table.distinct(index)?)
    }

    /// Counts everything anew.
    pub fn analyze(&self) -> Result<()> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(self.table.analyze()?)
    }
}

fn first_of(values: Option<Vec<Value<'_>>>) -> Option<OwnedValue> {
    values?.into_iter().next().map(Value::into_owned)
}

/// The first of `offset`, `offset` + `increment` … at or above `n`.
fn align(n: u64, offset: u64, increment: u64) -> Option<u64> {
    if n <= offset {
        return Some(offset);
    }
    let steps = (n - offset).div_ceil(increment);
    steps.checked_mul(increment)?.checked_add(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_offset_and_increment() {
        assert_eq!(align(1, 1, 1), Some(1));
        assert_eq!(align(5, 1, 1), Some(5));
        assert_eq!(align(5, 2, 10), Some(12));
        assert_eq!(align(12, 2, 10), Some(12));
        assert_eq!(align(u64::MAX, 1, 10), None);
    }
}
