//! The invariants, looked at while nothing runs, after the load and after each test that writes.
//!
//! 1. rows in a table = rows before + inserted − deleted
//! 2. the index has exactly the entries that the rows call for: equal number, and equal sums of hashes of (k, id)
//! 3. rows and entries come in order
//! 4. the text of each row is one of that row
//! 5. the sum of `k` = the sum before + every `k + 1` + `k` of inserted rows, where no row was replaced or deleted
//! 6. after the load every row is as it was made
//!
//! After the last step the engine's own check runs too.

use lab_target::sysbench::{Row, Session};

use super::rows::{entry_hash, hash, is_c_of};
use crate::sequence::RunError;

/// What a table should hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Rows; below 0 where more deletes were reported than there were rows.
    pub rows: i64,
    /// Sum of `k`, where it is known.
    pub sum: Option<i64>,
    /// Sum of the hashes of all rows, where it is known.
    pub hash: Option<u64>,
}

/// What it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Rows.
    pub rows: u64,
    /// Sum of `k`.
    pub sum: i64,
    /// Sum of the hashes of all rows.
    pub hash: u64,
}

/// Looks at a table and its index.
///
/// # Errors
/// `Violated` names the first invariant that does not hold.
pub fn check(session: &mut dyn Session, table: u32, expected: Expected) -> Result<Holds, RunError> {
    let broken = |what: String| Err(RunError::Violated(format!("table {}: {what}", table + 1)));
    let mut holds = Holds::default();
    let (mut entries, mut last, mut stranger) = (0u64, None, None);
    session.scan_rows(table, &mut |row: &Row| {
        holds.rows += 1;
        holds.sum += i64::from(row.k);
        holds.hash = holds.hash.wrapping_add(hash(row));
        entries = entries.wrapping_add(entry_hash(row.k, row.id));
        if last.is_some_and(|last| last >= row.id) || !is_c_of(&row.c, table, row.id) {
            stranger.get_or_insert(row.id);
        }
        last = Some(row.id);
    })?;
    if let Some(id) = stranger {
        return broken(format!("id {id} is out of order, or has a text that is not its own"));
    }
    if holds.rows as i64 != expected.rows {
        return broken(format!("{} rows should be there, {} are", expected.rows, holds.rows));
    }
    if expected.hash.is_some_and(|hash| hash != holds.hash) {
        return broken("a row does not hold what was sent".into());
    }
    if let Some(sum) = expected.sum.filter(|sum| *sum != holds.sum) {
        return broken(format!("the sum of k should be {sum}, it is {}: an update was lost", holds.sum));
    }
    let (mut count, mut found, mut before, mut disorder) = (0u64, 0u64, None, None);
    session.scan_index(table, &mut |k, id| {
        count += 1;
        found = found.wrapping_add(entry_hash(k, id));
        if before.is_some_and(|before| before >= (k, id)) {
            disorder.get_or_insert((k, id));
        }
        before = Some((k, id));
    })?;
    match disorder {
        Some((k, id)) => broken(format!("index k: entry {k} of id {id} is out of order")),
        None if count != holds.rows => broken(format!("index k: {count} entries for {} rows", holds.rows)),
        None if found != entries => broken("index k: the entries are not those that the rows call for".into()),
        None => Ok(holds),
    }
}
