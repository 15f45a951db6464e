//! What the sysbench tests ask of an engine.
//!
//! [`Tables`] are `sbtest1..T`: `id INTEGER PRIMARY KEY, k INTEGER, c CHAR(120), pad CHAR(60)`, an index on `k`. A
//! [`Session`] is one connection, owned by one thread: a statement outside [`Session::begin`] … [`Session::commit`] is a
//! transaction of its own.
//!
//! Rules every adapter keeps:
//! 1. A statement that returns `Ok` has happened completely, together with all others of its transaction or not at all.
//! 2. The index on `k` is kept by the engine, or by the adapter within the same transaction. What it covers is read from
//!    it alone.
//! 3. A write acts on the newest committed row under a lock, and `k = k + 1` loses nobody's change. Plain reads of a
//!    transaction see one snapshot.
//! 4. [`TargetError::Retry`](crate::TargetError::Retry) means: a deadlock, a lock wait or a conflict; the whole
//!    transaction can be run again after [`Session::rollback`]. Nothing is run again silently.

use crate::api::Result;

/// Characters of `c`: ten groups of eleven digits.
pub const C_BYTES: usize = 119;
/// Characters of `pad`: five groups.
pub const PAD_BYTES: usize = 59;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The primary key.
    pub id: i32,
    /// The indexed number.
    pub k: i32,
    /// The first text.
    pub c: [u8; C_BYTES],
    /// The second.
    pub pad: [u8; PAD_BYTES],
}

/// The column of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The primary key.
    Id,
    /// The indexed number.
    K,
}

/// What is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The column of the condition: covered by its index.
    Key,
    /// That and `c`.
    KeyAndC,
    /// `c` alone.
    C,
    /// `k`, in a condition on the primary key.
    K,
}

/// What a query found in a row.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The selected number. In an IN list on `id` always the `id`; otherwise 0 where none is selected.
    pub number: i32,
    /// `c` where it is selected, else empty.
    pub c: &'a [u8],
}

/// What becomes of the texts of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing.
    AsTheyCome,
    /// `ORDER BY c`.
    Sorted,
    /// `DISTINCT c ORDER BY c`.
    Distinct,
}

/// The tables of a run.
pub trait Tables: Send + Sync {
    /// Creates table number `table` with its primary key only.
    fn create_table(&self, table: u32) -> Result<()>;

    /// Creates the index on `k` of a table that holds rows already.
    fn create_index(&self, table: u32) -> Result<()>;

    /// Opens a connection; all tables exist by then.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
}

/// One connection.
pub trait Session: Send {
    /// Begins a transaction.
    fn begin(&mut self) -> Result<()>;

    /// Commits it.
    fn commit(&mut self) -> Result<()>;

    /// Rolls back the transaction that was begun, if there is one.
    fn rollback(&mut self);

    /// Inserts rows as one statement.
    fn load(&mut self, table: u32, rows: &[Row]) -> Result<()>;

    /// `SELECT c WHERE id = ?`: says whether there is such a row. `found` must not call the engine.
    fn point(&mut self, table: u32, id: i32, found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// `SELECT … WHERE on BETWEEN from AND to`, in the order of `on` where its index covers what is selected. `each` must not
    /// call the engine.
    fn between(
        &mut self,
        table: u32,
        on: On,
        from: i32,
        to: i32,
        select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()>;

    /// `SELECT … WHERE on IN (keys)`; the keys are sorted and different. `each` must not call the engine.
    fn in_list(
        &mut self,
        table: u32,
        on: On,
        keys: &[i32],
        select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()>;

    /// Reads `c` of every row.
    fn scan(&mut self, table: u32, each: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// `UPDATE … SET k = k + 1 WHERE id = ?`: says whether there is such a row.
    fn update_k(&mut self, table: u32, id: i32) -> Result<bool>;

    /// `UPDATE … SET k = k + 1 WHERE id BETWEEN from AND to`, outside of a transaction: how many such rows there are. An engine
    /// without SQL does it row by row in a transaction.
    fn update_k_between(&mut self, table: u32, from: i32, to: i32) -> Result<u64> {
        let mut rows = 0;
        self.begin()?;
        for id in from..=to {
            rows += u64::from(self.update_k(table, id)?);
        }
        self.commit()?;
        Ok(rows)
    }

    /// `UPDATE … SET c = ? WHERE id IN (ids)`, sorted and different: returns how many such rows there are.
    fn update_c(&mut self, table: u32, ids: &[i32], c: &[u8; C_BYTES]) -> Result<usize>;

    /// `DELETE … WHERE id = ?`: says whether there was such a row.
    fn delete(&mut self, table: u32, id: i32) -> Result<bool>;

    /// Inserts a row; an `id` that exists is an error.
    fn insert(&mut self, table: u32, row: &Row) -> Result<()>;

    /// Reads all rows in the order of `id`, for the checks.
    fn scan_rows(&mut self, table: u32, each: &mut dyn FnMut(&Row)) -> Result<()>;

    /// Reads the index in its order, for the checks: `k` and `id`.
    fn scan_index(&mut self, table: u32, each: &mut dyn FnMut(i32, i32)) -> Result<()>;

    /// `SELECT … WHERE LENGTH(c) < 0`: how many rows were looked at, and how many of them have a `c` of another length than
    /// it should be. An engine without SQL counts what it reads.
    fn look_at_all(&mut self, table: u32) -> Result<(u64, u64)> {
        let (mut rows, mut wrong) = (0, 0);
        self.scan(table, &mut |c| {
            rows += 1;
            wrong += u64::from(c.len() != C_BYTES);
        })?;
        Ok((rows, wrong))
    }

    /// `SELECT COUNT(c) WHERE id BETWEEN from AND to`. An engine without SQL counts what it reads.
    fn count_c(&mut self, table: u32, from: i32, to: i32) -> Result<u64> {
        let mut rows = 0;
        self.between(table, On::Id, from, to, Select::C, &mut |row| rows += u64::from(!row.c.is_empty()))?;
        Ok(rows)
    }

    /// `SELECT SUM(k) WHERE id BETWEEN from AND to`: how many rows, and the sum. An engine without SQL adds up what it
    /// reads.
    fn sum_k(&mut self, table: u32, from: i32, to: i32) -> Result<(u64, i64)> {
        let (mut rows, mut sum) = (0, 0);
        self.between(table, On::Id, from, to, Select::K, &mut |found| {
            rows += 1;
            sum += i64::from(found.number);
        })?;
        Ok((rows, sum))
    }

    /// `SELECT c WHERE id BETWEEN from AND to`, ordered or not; `out` is cleared first. An engine without SQL sorts what it
    /// reads.
    fn texts(&mut self, table: u32, from: i32, to: i32, order: Order, out: &mut Vec<[u8; C_BYTES]>) -> Result<()> {
        out.clear();
        self.between(table, On::Id, from, to, Select::C, &mut |found| out.extend(text_of(found.c)))?;
        if order != Order::AsTheyCome {
            out.sort_unstable();
        }
        if order == Order::Distinct {
            out.dedup();
        }
        Ok(())
    }
}

/// A text as an array; of another length it is none, and its row will be missed.
#[must_use]
pub fn text_of<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    text.try_into().ok()
}
