//! One event of a test: its statements, on one table chosen at random, and whether their answers are right.
//!
//! What is known of the answers depends on what has been written so far ([`Known`]). Rows that nobody deletes are all
//! there: a point finds its row, a range its number of rows, whoever replaces rows beside it. As long as `k` is as loaded,
//! sums are known. A text always shows of which row it is ([`super::rows`]).

use std::sync::atomic::{AtomicI32, Ordering};

use lab_target::TargetError;
use lab_target::sysbench::{C_BYTES, On, Order, Select, Session};

use super::catalogue::{RangeForm, Test};
use super::rows::{c_of, is_c_of, k_of, made};
use super::zipf::{EXPONENT, Zipf};
use crate::random::Random;
use crate::worker::WorkerError;

/// Points of a transaction.
const POINTS: usize = 10;
/// Rows of an IN-list update.
const INLIST: usize = 10;
/// Keys of the covered and not covered points.
const MANY_POINTS: usize = 100;
/// The last of a range's rows is so far behind its first.
const RANGE_SPAN: i32 = 100;

/// What is known of the tables while a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Answers can be looked at.
    pub answers: bool,
    /// Every row that was loaded is there.
    pub all_there: bool,
    /// No other row is.
    pub none_added: bool,
    /// Nobody has written `k`.
    pub k_as_loaded: bool,
    /// No two rows have the same `c`.
    pub texts_differ: bool,
}

/// What all clients of a step share.
#[derive(Debug)]
pub struct World {
    /// Seed of the rows.
    pub seed: u64,
    /// Tables.
    pub tables: u32,
    /// Rows of one as loaded.
    pub table_rows: u64,
    /// The next id of each table. It only hands out numbers: relaxed.
    pub next_id: Vec<AtomicI32>,
    /// What is known of them.
    pub known: Known,
}

/// Why an event did not come to its end.
#[derive(Clone, Debug)]
pub enum Stopped {
    /// A deadlock, a lock wait or a conflict: run it again.
    Again,
    /// The run is over.
    Worker(WorkerError),
}

impl From<TargetError> for Stopped {
    fn from(error: TargetError) -> Stopped {
        match error {
            TargetError::Retry(_) => Stopped::Again,
            other => Stopped::Worker(other.into()),
        }
    }
}

/// What an event did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Statements, begin and commit included.
    pub queries: u64,
    /// Rows that queries found.
    pub found: u64,
    /// The table.
    pub table: u32,
    /// Rows more.
    pub rows: i64,
    /// What `k` of all rows together is more, as far as that is known.
    pub sum: i64,
}

type Result<T, E = Stopped> = std::result::Result<T, E>;

fn wrong<T>(what: String) -> Result<T> {
    Err(Stopped::Worker(WorkerError::Wrong(what)))
}

/// Makes the events of one client.
pub struct Events<'a> {
    world: &'a World,
    number: u32,
    random: Random,
    zipf: Zipf,
    keys: Vec<i32>,
    texts: Vec<[u8; C_BYTES]>,
    done: Done,
}

impl<'a> Events<'a> {
    /// Those of client number `number`.
    #[must_use]
    pub fn new(world: &'a World, number: u32, random: Random) -> Events<'a> {
        let zipf = Zipf::new(world.table_rows, EXPONENT);
        Events { world, number, random, zipf, keys: Vec::new(), texts: Vec::new(), done: Done::default() }
    }

    /// Runs one event.
    ///
    /// # Errors
    /// `Again` after a deadlock and its like: the caller rolls back and starts another event.
    pub fn run(&mut self, test: Test, session: &mut dyn Session) -> Result<Done> {
        let table = match test {
            Test::Scan => self.number % self.world.tables,
            _ => self.random.below(self.world.tables),
        };
        self.done = Done { table, ..Done::default() };
        match test {
            Test::ReadWrite { .. } | Test::ReadOnly { .. } | Test::ReadOnlyOne { .. } | Test::WriteOnly => {
                session.begin()?;
                self.transaction(test, session)?;
                session.commit()?;
                self.done.queries += 2;
            }
            _ => self.statement(test, session)?,
        }
        Ok(self.done)
    }

    fn transaction(&mut self, test: Test, session: &mut dyn Session) -> Result<()> {
        let (ranges, rows): (&[RangeForm], i32) = match &test {
            Test::ReadWrite { rows } | Test::ReadOnly { rows } => (&RangeForm::ALL, *rows),
            Test::ReadOnlyOne { range, rows } => (std::slice::from_ref(range), *rows),
            _ => (&[], 0),
        };
        if !ranges.is_empty() {
            (0..POINTS).try_for_each(|_| self.point(session))?;
        }
        ranges.iter().try_for_each(|form| self.range(*form, rows, session))?;
        if matches!(test, Test::ReadWrite { .. } | Test::WriteOnly) {
            self.writes(session)?;
        }
        Ok(())
    }

    fn statement(&mut self, test: Test, session: &mut dyn Session) -> Result<()> {
        match test {
            Test::PointQuery => self.point(session),
            Test::Scan => self.scan(session),
            Test::Count { rows } => self.count(rows, session),
            Test::Range { on, covered } => self.covered_range(on, covered, session),
            Test::Points { on, covered } => {
                self.choose_keys(MANY_POINTS);
                self.points(on, if covered { Select::Key } else { Select::KeyAndC }, session)
            }
            Test::RandomPoints { rows } => {
                self.choose_keys(rows as usize);
                self.points(On::Id, Select::C, session)
            }
            Test::HotPoints { rows } => {
                let middle = (self.world.table_rows / 2) as i32;
                self.keys.clear();
                self.keys.extend(middle + 1..=middle + rows);
                self.points(On::Id, Select::C, session)
            }
            Test::UpdateIndex => self.raise_k(session),
            Test::UpdateRate { rows } => self.raise_many(rows, session),
            Test::UpdateInlist => {
                self.choose_keys(INLIST);
                let c = c_of(&mut self.random, self.done.table, 0);
                self.set_c(&c, session)
            }
            Test::UpdateNonindex => {
                let id = self.random_id();
                self.set_c_of(id, session)
            }
            Test::UpdateOne => self.set_c_of(1, session),
            Test::UpdateZipf => {
                let id = self.zipf.draw(&mut self.random) as i32;
                self.set_c_of(id, session)
            }
            Test::Delete => {
                let id = self.random_id();
                self.delete(id, session).map(|_| ())
            }
            Test::Insert => {
                let id = self.world.next_id[self.done.table as usize].fetch_add(1, Ordering::Relaxed);
                self.insert(id, session)
            }
            Test::ReadWrite { .. } | Test::ReadOnly { .. } | Test::ReadOnlyOne { .. } | Test::WriteOnly => Ok(()),
        }
    }

    fn random_id(&mut self) -> i32 {
        1 + self.random.below_wide(self.world.table_rows) as i32
    }

    /// Different random keys in their order; a few fewer than wanted where the same came twice.
    fn choose_keys(&mut self, keys: usize) {
        self.keys.clear();
        for _ in 0..keys {
            let key = self.random_id();
            self.keys.push(key);
        }
        self.keys.sort_unstable();
        self.keys.dedup();
    }

    /// Whether a range of ids can have so many rows.
    fn fits(&self, from: i32, to: i32, rows: u64) -> bool {
        let known = &self.world.known;
        let loaded = (self.world.table_rows as i32).min(to) - from + 1;
        let least = if known.all_there { loaded } else { 0 };
        let most = if known.none_added { loaded } else { to - from + 1 };
        !known.answers || (least as u64..=most as u64).contains(&rows)
    }

    fn point(&mut self, session: &mut dyn Session) -> Result<()> {
        let (table, id, known) = (self.done.table, self.random_id(), self.world.known);
        let mut sound = true;
        let there = session.point(table, id, &mut |c| sound = !known.answers || is_c_of(c, table, id))?;
        self.done.queries += 1;
        self.done.found += u64::from(there);
        match (there, sound) {
            (true, false) => wrong(format!("table {}, id {id}: not a text of this row", table + 1)),
            (false, _) if known.answers && known.all_there => {
                wrong(format!("table {}, id {id}: no row, and nobody deleted it", table + 1))
            }
            _ => Ok(()),
        }
    }

    fn range(&mut self, form: RangeForm, rows: i32, session: &mut dyn Session) -> Result<()> {
        let from = self.random_id();
        let (table, to) = (self.done.table, from.saturating_add(rows - 1));
        self.done.queries += 1;
        match form {
            RangeForm::Sum => {
                let (found, sum) = session.sum_k(table, from, to)?;
                self.done.found += found;
                let sound = self.fits(from, to, found) && self.sum_fits(from, to, found, sum);
                if sound { Ok(()) } else { self.wrong_range(from, to, &format!("{found} rows with the sum {sum}")) }
            }
            RangeForm::Texts(order) => {
                session.texts(table, from, to, order, &mut self.texts)?;
                self.done.found += self.texts.len() as u64;
                let sound = !self.world.known.answers || self.texts_fit(from, to, order);
                if sound { Ok(()) } else { self.wrong_range(from, to, &format!("{} texts", self.texts.len())) }
            }
        }
    }

    fn wrong_range(&self, from: i32, to: i32, found: &str) -> Result<()> {
        wrong(format!("table {}, ids {from} to {to}: {found} cannot be", self.done.table + 1))
    }

    fn sum_fits(&self, from: i32, to: i32, rows: u64, sum: i64) -> bool {
        let (world, known) = (self.world, &self.world.known);
        let is_known = known.k_as_loaded && known.all_there && known.none_added;
        if !known.answers || !is_known {
            return !known.answers || sum >= rows as i64;
        }
        let last = to.min(world.table_rows as i32);
        let k = |id| i64::from(k_of(world.seed, self.done.table, id, world.table_rows));
        sum == (from..=last).map(k).sum::<i64>()
    }

    fn texts_fit(&self, from: i32, to: i32, order: Order) -> bool {
        let (texts, known) = (&self.texts, &self.world.known);
        let count = texts.len() as u64;
        let table = self.done.table;
        match order {
            Order::AsTheyCome => {
                // The first and the last: ids have no gaps then.
                let ends = [(texts.first(), from), (texts.last(), from + texts.len() as i32 - 1)];
                let is_of = |(text, id): (Option<&[u8; C_BYTES]>, i32)| text.is_none_or(|c| is_c_of(c, table, id));
                self.fits(from, to, count) && (!known.all_there || ends.into_iter().all(is_of))
            }
            Order::Sorted => self.fits(from, to, count) && texts.is_sorted(),
            Order::Distinct => {
                let fewer = !known.texts_differ && count > 0 && count <= (to - from) as u64 + 1;
                (fewer || self.fits(from, to, count)) && texts.windows(2).all(|pair| pair[0] < pair[1])
            }
        }
    }

    fn count(&mut self, rows: i32, session: &mut dyn Session) -> Result<()> {
        let from = self.random_id();
        let to = from.saturating_add(rows - 1);
        let found = session.count_c(self.done.table, from, to)?;
        (self.done.queries, self.done.found) = (1, found);
        if self.fits(from, to, found) { Ok(()) } else { self.wrong_range(from, to, &format!("{found} rows")) }
    }

    /// 101 numbers of one of the columns.
    fn covered_range(&mut self, on: On, covered: bool, session: &mut dyn Session) -> Result<()> {
        let (table, from, known) = (self.done.table, self.random_id(), self.world.known);
        let to = from.saturating_add(RANGE_SPAN);
        let select = if covered { Select::Key } else { Select::KeyAndC };
        let (mut found, mut last, mut sound) = (0u64, from, true);
        session.between(table, on, from, to, select, &mut |row| {
            found += 1;
            let in_order = on == On::K && !covered || row.number >= last;
            last = row.number;
            let text = match (covered, on) {
                (true, _) => true,
                (false, On::Id) => is_c_of(row.c, table, row.number),
                (false, On::K) => row.c.len() == C_BYTES,
            };
            sound &= (from..=to).contains(&row.number) && in_order && text;
        })?;
        (self.done.queries, self.done.found) = (1, found);
        let counted = on == On::K || self.fits(from, to, found);
        if !known.answers || (sound && counted) {
            return Ok(());
        }
        wrong(format!("table {}, {on:?} {from} to {to}: {found} rows, or one of them, cannot be", table + 1))
    }

    fn points(&mut self, on: On, select: Select, session: &mut dyn Session) -> Result<()> {
        let (table, known, keys) = (self.done.table, self.world.known, &self.keys);
        let (mut found, mut sound) = (0u64, true);
        session.in_list(table, on, keys, select, &mut |row| {
            found += 1;
            let text = match (select, on) {
                (Select::Key | Select::K, _) => true,
                (Select::C | Select::KeyAndC, On::Id) => is_c_of(row.c, table, row.number),
                (Select::C | Select::KeyAndC, On::K) => row.c.len() == C_BYTES,
            };
            sound &= text && keys.binary_search(&row.number).is_ok();
        })?;
        (self.done.queries, self.done.found) = (1, found);
        let wanted = keys.len() as u64;
        let counted = on == On::K || found == wanted || (!known.all_there && found < wanted);
        if !known.answers || (sound && counted) {
            return Ok(());
        }
        wrong(format!("table {}, {wanted} keys of {on:?}: {found} rows, or one of them, cannot be", table + 1))
    }

    fn scan(&mut self, session: &mut dyn Session) -> Result<()> {
        let (table, known) = (self.done.table, self.world.known);
        let (rows, wrong_length) = session.look_at_all(table)?;
        (self.done.queries, self.done.found) = (1, rows);
        let loaded = self.world.table_rows;
        let counted = (!known.all_there || rows >= loaded) && (!known.none_added || rows <= loaded);
        if !known.answers || (wrong_length == 0 && counted) {
            return Ok(());
        }
        wrong(format!("table {}: a scan found {rows} rows of {loaded}, {wrong_length} without their text", table + 1))
    }

    fn there(&self, id: i32, there: bool) -> Result<()> {
        if there || !self.world.known.answers || !self.world.known.all_there {
            return Ok(());
        }
        wrong(format!("table {}, id {id}: no row to write, and nobody deleted it", self.done.table + 1))
    }

    fn raise_k(&mut self, session: &mut dyn Session) -> Result<()> {
        let id = self.random_id();
        let there = session.update_k(self.done.table, id)?;
        self.done.queries += 1;
        self.done.sum += i64::from(there);
        self.there(id, there)
    }

    /// `k + 1` of so many rows from a random one on; fewer at the end of the table.
    fn raise_many(&mut self, rows: i32, session: &mut dyn Session) -> Result<()> {
        let from = self.random_id();
        let to = from.saturating_add(rows - 1).min(self.world.table_rows as i32);
        let there = session.update_k_between(self.done.table, from, to)?;
        self.done.queries += 1;
        self.done.sum += there as i64;
        if self.fits(from, to, there) { Ok(()) } else { self.wrong_range(from, to, &format!("{there} rows updated")) }
    }

    fn set_c_of(&mut self, id: i32, session: &mut dyn Session) -> Result<()> {
        self.keys.clear();
        self.keys.push(id);
        let c = c_of(&mut self.random, self.done.table, id);
        self.set_c(&c, session)
    }

    fn set_c(&mut self, c: &[u8; C_BYTES], session: &mut dyn Session) -> Result<()> {
        let there = session.update_c(self.done.table, &self.keys, c)?;
        self.done.queries += 1;
        self.there(self.keys[0], there == self.keys.len())
    }

    fn delete(&mut self, id: i32, session: &mut dyn Session) -> Result<bool> {
        let there = session.delete(self.done.table, id)?;
        self.done.queries += 1;
        self.done.rows -= i64::from(there);
        Ok(there)
    }

    fn insert(&mut self, id: i32, session: &mut dyn Session) -> Result<()> {
        let (table, k) = (self.done.table, self.random_id());
        session.insert(table, &made(&mut self.random, table, id, k))?;
        self.done.queries += 1;
        self.done.rows += 1;
        self.done.sum += i64::from(k);
        Ok(())
    }

    /// The four writes of a transaction.
    fn writes(&mut self, session: &mut dyn Session) -> Result<()> {
        self.raise_k(session)?;
        let id = self.random_id();
        self.set_c_of(id, session)?;
        let id = self.random_id();
        let there = self.delete(id, session)?;
        self.there(id, there)?;
        self.insert(id, session)
    }
}
