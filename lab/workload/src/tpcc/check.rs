//! What is looked at beside the conditions while nothing runs: that rows come in order, that tables into which nothing is
//! inserted have as many as at the load, that each secondary index has exactly the entries that the rows call for, and after
//! the load that every row is as it was made.

use lab_target::TargetError;
use lab_target::tpcc::{Session, Table, hash};

use super::conditions::{Expected, broken};
use super::plan::Size;
use crate::sequence::RunError;

/// What the tables hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Rows of all tables.
    pub rows: u64,
    /// Sum of the hashes of all rows.
    pub hash: u64,
}

/// Looks at the conditions in one snapshot.
///
/// # Errors
/// `Violated` names all that do not hold.
pub fn conditions(session: &mut dyn Session, size: Size, expected: &Expected) -> Result<(), RunError> {
    session.begin(true)?;
    let all = broken(session, size, expected)?;
    session.commit()?;
    let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
    if texts.is_empty() { Ok(()) } else { Err(RunError::Violated(texts.join("; "))) }
}

/// Looks at all rows and entries.
///
/// # Errors
/// `Violated` names the first table that is wrong.
pub fn contents(session: &mut dyn Session, size: Size) -> Result<Holds, RunError> {
    let mut holds = Holds::default();
    session.begin(true)?;
    for table in Table::ALL {
        one_table(session, (*table, size.rows(*table)), &mut holds)?.map_err(RunError::Violated)?;
    }
    session.commit()?;
    Ok(holds)
}

fn one_table(
    session: &mut dyn Session,
    (table, should_be): (Table, Option<i64>),
    holds: &mut Holds,
) -> Result<Result<(), String>, TargetError> {
    let definition = table.definition();
    let (columns, entry): (Vec<usize>, _) = ((0..definition.columns.len()).collect(), definition.entry_columns());
    let (mut rows, mut called_for, mut last, mut disorder) = (0u64, 0u64, None, None);
    session.scan(table, (&[], &[]), &columns, &mut |row| {
        let key = definition.key_of(row);
        if last.is_some_and(|last| last >= key) {
            disorder.get_or_insert(key);
        }
        last = Some(key);
        rows += 1;
        holds.hash = holds.hash.wrapping_add(hash(table, row));
        called_for = called_for.wrapping_add(hash(table, entry.iter().map(|column| &row[*column])));
    })?;
    holds.rows += rows;
    if let Some(key) = disorder {
        return Ok(Err(format!("{}: {key:?} is out of order", definition.name)));
    }
    if let Some(should_be) = should_be.filter(|should_be| *should_be != rows as i64) {
        return Ok(Err(format!("{}: {rows} rows, should be {should_be}", definition.name)));
    }
    if definition.index.is_none() {
        return Ok(Ok(()));
    }
    let (mut entries, mut found) = (0u64, 0u64);
    session.scan_index(table, &[], &mut |cells| {
        entries += 1;
        found = found.wrapping_add(hash(table, cells));
    })?;
    Ok(match (entries == rows, found == called_for) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("index of {}: the entries are not those that the rows call for", definition.name)),
        (false, _) => Err(format!("index of {}: {entries} entries for {rows} rows", definition.name)),
    })
}
