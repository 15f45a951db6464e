//! The invariants of the insert benchmark, checked after each step while nothing runs.
//!
//! 1. rows in a table = rows inserted − rows deleted
//! 2. each index has exactly the entries that the rows call for: equal number, and equal sums of hashes of (entry, key)
//! 3. tables and indexes come in order, and the smallest and largest key looked up are those of the full scan
//! 4. where keys are handed out without gaps, the deleted rows are the smallest ones
//! 5. where in addition each client has its own table, every column of every row is what was sent
//!
//! After the last step the engine's own check runs too.

use lab_target::row::entry_hash;
use lab_target::{IndexSet, Secondary, Session, Target};

use crate::sequence::RunError;
use crate::step::Client;

/// What a check found when all was well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// `"ok"`, or why nothing was checked.
    pub verdict: String,
    /// Rows in all tables.
    pub rows: Option<u64>,
    /// Checksum of all rows in all tables, where keys do not depend on timing.
    pub checksum: Option<String>,
}

/// What a full scan of a table found.
#[derive(Debug, Default)]
struct Scanned {
    rows: u64,
    min: Option<u64>,
    max: Option<u64>,
    hash: u64,
    out_of_order: Option<u64>,
    entries: [u64; 3],
}

/// Checks every table. `indexes` is `None` before the indexes are created.
///
/// # Errors
/// `Violated` names the first invariant that does not hold; anything else is a failure to look.
pub fn check(target: &dyn Target, clients: &mut [Client], indexes: Option<IndexSet>) -> Result<Checked, RunError> {
    if !target.ability().stores_rows {
        return Ok(Checked { verdict: "not checked: the target stores no rows".into(), ..Checked::default() });
    }
    let tables = clients.iter().map(|client| client.table).max().map_or(0, |table| table + 1);
    let mut session = target.session()?;
    let (mut rows, mut hash) = (0, 0u64);
    let mut comparable = true;
    for table in 0..tables {
        let mut owners: Vec<&mut Client> = clients.iter_mut().filter(|client| client.table == table).collect();
        let scanned = scan(session.as_mut(), table, indexes)?;
        let sum = |of: fn(&Client) -> u64| owners.iter().map(|client| of(client)).sum();
        let (inserted, deleted) = (sum(|client| client.inserted), sum(|client| client.deleted));
        let dense = target.ability().dense_keys;
        check_table(session.as_mut(), table, &scanned, (inserted, deleted), dense)?;
        if let ([owner], true) = (owners.as_mut_slice(), dense && scanned.rows > 0) {
            let gone = owner.replay.hash_of_first(deleted).expect("no more rows are deleted than were made");
            if scanned.hash != owner.inserted_hash.wrapping_sub(gone) {
                return Err(RunError::Violated(format!("table {}: a row does not hold what was sent", table + 1)));
            }
        }
        if let Some(set) = indexes {
            for index in Secondary::ALL {
                check_index(session.as_mut(), table, index, set, &scanned)?;
            }
        }
        rows += scanned.rows;
        hash = hash.wrapping_add(lab_target::row::mix(scanned.hash ^ u64::from(table)));
        comparable &= owners.len() == 1;
    }
    let checksum = comparable.then(|| format!("{hash:016x}"));
    Ok(Checked { verdict: "ok".into(), rows: Some(rows), checksum })
}

/// Checks the first table by what was done to it in all: rows, keys, index entries, then the engine's own check.
///
/// # Errors
/// As those of [`check`].
pub fn check_counts(target: &dyn Target, counts: (u64, u64), set: IndexSet) -> Result<(), RunError> {
    if target.ability().stores_rows {
        let mut session = target.session()?;
        let scanned = scan(session.as_mut(), 0, Some(set))?;
        check_table(session.as_mut(), 0, &scanned, counts, target.ability().dense_keys)?;
        Secondary::ALL.into_iter().try_for_each(|index| check_index(session.as_mut(), 0, index, set, &scanned))?;
    }
    verify(target)
}

/// The engine's own check of its structures.
pub fn verify(target: &dyn Target) -> Result<(), RunError> {
    if !target.ability().stores_rows {
        return Ok(());
    }
    target.verify().map_err(|error| RunError::Violated(format!("the engine's own check: {error}")))
}

fn scan(session: &mut dyn Session, table: u32, indexes: Option<IndexSet>) -> Result<Scanned, RunError> {
    let mut out = Scanned::default();
    session.scan_table(table, &mut |key, row| {
        out.rows += 1;
        if out.max.is_some_and(|max| max >= key) {
            out.out_of_order.get_or_insert(key);
        }
        out.min.get_or_insert(key);
        out.max = Some(key);
        out.hash = out.hash.wrapping_add(row.hash(key));
        if let Some(set) = indexes {
            for index in Secondary::ALL {
                let sum = &mut out.entries[index.position()];
                *sum = sum.wrapping_add(entry_hash(&set.entry(index, &row), key));
            }
        }
    })?;
    Ok(out)
}

fn check_table(
    session: &mut dyn Session,
    table: u32,
    scanned: &Scanned,
    (inserted, deleted): (u64, u64),
    dense: bool,
) -> Result<(), RunError> {
    let broken = |what: String| Err(RunError::Violated(format!("table {}: {what}", table + 1)));
    if deleted > inserted || scanned.rows != inserted - deleted {
        return broken(format!("{inserted} rows inserted, {deleted} deleted, but {} are there", scanned.rows));
    }
    if let Some(key) = scanned.out_of_order {
        return broken(format!("key {key} is out of order"));
    }
    let (min, max) = (session.min_key(table)?, session.max_key(table)?);
    if (min, max) != (scanned.min, scanned.max) {
        let scanned = (scanned.min, scanned.max);
        return broken(format!("smallest and largest key are {scanned:?} in a scan, {:?} when looked up", (min, max)));
    }
    if !dense || scanned.rows == 0 {
        return Ok(());
    }
    if (min, max) != (Some(deleted + 1), Some(inserted)) {
        return broken(format!("keys {} to {inserted} should be left, but {min:?} to {max:?} are", deleted + 1));
    }
    Ok(())
}

fn check_index(
    session: &mut dyn Session,
    table: u32,
    index: Secondary,
    set: IndexSet,
    scanned: &Scanned,
) -> Result<(), RunError> {
    let broken = |what: String| Err(RunError::Violated(format!("table {}, index {}: {what}", table + 1, index.name())));
    let (mut entries, mut hash, mut last, mut out_of_order) = (0u64, 0u64, None, None);
    let columns = set.columns(index).len();
    session.scan_index(table, index, &mut |entry, key| {
        entries += 1;
        hash = hash.wrapping_add(entry_hash(&entry, key));
        if last.is_some_and(|last| last >= (entry, key)) {
            out_of_order.get_or_insert((entry, key));
        }
        last = Some((entry, key));
    })?;
    if let Some((entry, key)) = out_of_order {
        return broken(format!("entry {:?} of key {key} is out of order", &entry[..columns]));
    }
    if entries != scanned.rows {
        return broken(format!("{entries} entries for {} rows", scanned.rows));
    }
    if hash != scanned.entries[index.position()] {
        return broken("the entries are not those that the rows call for".into());
    }
    Ok(())
}
