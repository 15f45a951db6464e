//! Tables with secondary indexes, and transactions on them.
//!
//! A transaction buffers its writes; committing puts them all at one timestamp. Reads say at which timestamp,
//! and see the transaction's own writes above that. The model judges uniqueness as a current read does: on
//! the newest commits and the own writes; what is null agrees with nothing. Locks, waiting and deadlocks are not modelled: whoever drives the
//! model decides in which order transactions get through, and asks only for what was legal in that order.

use std::collections::BTreeMap;
use std::fmt::Debug;

use base::CommitTs;

/// A row: column values, the primary key among them.
pub type Row<V> = Vec<V>;

/// A secondary index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secondary {
    /// Its columns, in order.
    pub columns: Vec<usize>,
    /// No two rows agree in all of them.
    pub unique: bool,
}

/// What a table looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Columns of the primary key.
    pub primary: Vec<usize>,
    /// Secondary indexes.
    pub secondaries: Vec<Secondary>,
}

/// Why a write was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// A row with this primary key is there.
    DuplicatePrimary,
    /// Another row has the same values in this unique secondary index.
    DuplicateUnique(usize),
    /// No row with this primary key is there.
    NotFound,
}

type Versions<V> = BTreeMap<CommitTs, Option<Row<V>>>;

#[derive(Debug, Clone)]
struct Table<V> {
    shape: Shape,
    rows: BTreeMap<Vec<V>, Versions<V>>,
}

/// A database of tables.
#[derive(Debug, Clone)]
pub struct Tables<V> {
    tables: BTreeMap<u32, Table<V>>,
    is_null: fn(&V) -> bool,
}

impl<V> Default for Tables<V> {
    fn default() -> Self {
        Self::with_nulls(|_| false)
    }
}

impl<V> Tables<V> {
    /// No tables; their columns may hold what is null by this.
    #[must_use]
    pub fn with_nulls(is_null: fn(&V) -> bool) -> Self {
        Self { tables: BTreeMap::new(), is_null }
    }
}

/// Writes of a running transaction. It borrows nothing: pass the database to each call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction<V> {
    /// In order; the newest of a key counts. A savepoint is a length.
    writes: Vec<(u32, Vec<V>, Option<Row<V>>)>,
}

/// Where a read stands.
#[derive(Debug)]
pub struct Reading<'a, V> {
    /// Commits up to here are seen; `CommitTs::MAX` sees the newest.
    pub at: CommitTs,
    /// And the own writes of this transaction.
    pub own: Option<&'a Transaction<V>>,
}

impl<V> Clone for Reading<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Reading<'_, V> {}

impl<V: Clone + Ord + Debug> Tables<V> {
    /// No tables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an empty table.
    pub fn create(&mut self, table: u32, shape: Shape) {
        let before = self.tables.insert(table, Table { shape, rows: BTreeMap::new() });
        assert!(before.is_none(), "table numbers are never reused");
    }

    /// Removes a table.
    pub fn drop_table(&mut self, table: u32) {
        self.tables.remove(&table).expect("a table is dropped once");
    }

    /// What a table looks like.
    #[must_use]
    pub fn shape(&self, table: u32) -> &Shape {
        &self.tables[&table].shape
    }

    /// Makes the transaction's writes visible from `ts` on.
    pub fn commit(&mut self, ts: CommitTs, transaction: Transaction<V>) {
        for (table, key, row) in transaction.writes {
            // The last write of a key at this timestamp replaces the earlier ones.
            self.tables
                .get_mut(&table)
                .expect("tables outlive transactions")
                .rows
                .entry(key)
                .or_default()
                .insert(ts, row);
        }
    }

    /// Forgets every commit after `ts`: what a crash does to what was not durable.
    pub fn forget_after(&mut self, ts: CommitTs) {
        for table in self.tables.values_mut() {
            table.rows.retain(|_, versions| {
                versions.retain(|t, _| *t <= ts);
                !versions.is_empty()
            });
        }
    }

    /// The row with primary key `key`.
    #[must_use]
    pub fn get(&self, reading: Reading<'_, V>, table: u32, key: &[V]) -> Option<Row<V>> {
        if let Some(row) = reading.own.and_then(|t| t.own(table, key)) {
            return row.clone();
        }
        self.tables[&table].rows.get(key)?.range(..=reading.at).next_back()?.1.clone()
    }

    /// All rows, ascending by primary key.
    #[must_use]
    pub fn rows(&self, reading: Reading<'_, V>, table: u32) -> Vec<Row<V>> {
        let mut keys: Vec<&Vec<V>> = self.tables[&table].rows.keys().collect();
        if let Some(transaction) = reading.own {
            keys.extend(transaction.writes.iter().filter(|w| w.0 == table).map(|w| &w.1));
        }
        keys.sort();
        keys.dedup();
        keys.into_iter().filter_map(|key| self.get(reading, table, key)).collect()
    }

    /// All rows as a secondary index shows them: ascending by its columns, then by primary key.
    #[must_use]
    pub fn rows_by(&self, reading: Reading<'_, V>, table: u32, secondary: usize) -> Vec<Row<V>> {
        let shape = self.shape(table);
        let columns = &shape.secondaries[secondary].columns;
        let mut rows = self.rows(reading, table);
        rows.sort_by_key(|row| (project(row, columns), project(row, &shape.primary)));
        rows
    }
}

impl<V: Clone + Ord + Debug> Default for Transaction<V> {
    fn default() -> Self {
        Self { writes: Vec::new() }
    }
}

impl<V: Clone + Ord + Debug> Transaction<V> {
    /// A transaction that has written nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True if it has written nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Adds a row.
    ///
    /// # Errors
    /// The conflict with the newest commits and the own writes.
    pub fn insert(&mut self, tables: &Tables<V>, table: u32, row: Row<V>) -> Result<(), Conflict> {
        match self.conflicts(tables, table, &row).first() {
            Some((conflict, _)) => Err(*conflict),
            None => {
                self.write(tables, table, row);
                Ok(())
            }
        }
    }

    /// What stands in the way of a new row, in the order in which it is looked for: the primary key, then the unique
    /// indexes. With the primary keys of the rows that have it.
    #[must_use]
    pub fn conflicts(&self, tables: &Tables<V>, table: u32, row: &[V]) -> Vec<(Conflict, Vec<V>)> {
        let key = project(row, &tables.shape(table).primary);
        let there = tables.get(self.current(), table, &key).is_some();
        let same_key = there.then_some((Conflict::DuplicatePrimary, key));
        same_key.into_iter().chain(self.taken(tables, table, row)).collect()
    }

    /// Adds a row and removes those in its way; returns how many.
    pub fn replace(&mut self, tables: &Tables<V>, table: u32, row: Row<V>) -> usize {
        let mut keys: Vec<Vec<V>> = self.conflicts(tables, table, &row).into_iter().map(|(_, key)| key).collect();
        keys.sort();
        keys.dedup();
        for key in &keys {
            self.writes.push((table, key.clone(), None));
        }
        self.write(tables, table, row);
        keys.len()
    }

    fn write(&mut self, tables: &Tables<V>, table: u32, row: Row<V>) {
        let key = project(&row, &tables.shape(table).primary);
        self.writes.push((table, key, Some(row)));
    }

    /// Replaces the row that has the primary key of `row`.
    ///
    /// # Errors
    /// `NotFound`, or the conflict in a unique secondary index.
    pub fn update(&mut self, tables: &Tables<V>, table: u32, row: Row<V>) -> Result<(), Conflict> {
        let key = project(&row, &tables.shape(table).primary);
        tables.get(self.current(), table, &key).ok_or(Conflict::NotFound)?;
        if let Some((conflict, _)) = self.taken(tables, table, &row).into_iter().find(|(_, holder)| *holder != key) {
            return Err(conflict);
        }
        self.write(tables, table, row);
        Ok(())
    }

    /// Removes a row; returns what it was.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn delete(&mut self, tables: &Tables<V>, table: u32, key: &[V]) -> Result<Row<V>, Conflict> {
        let row = tables.get(self.current(), table, key).ok_or(Conflict::NotFound)?;
        self.writes.push((table, key.to_vec(), None));
        Ok(row)
    }

    /// A savepoint: what was written so far.
    #[must_use]
    pub fn savepoint(&self) -> usize {
        self.writes.len()
    }

    /// Takes back what was written since the savepoint.
    pub fn rollback_to(&mut self, savepoint: usize) {
        assert!(savepoint <= self.writes.len(), "a savepoint of this transaction, not rolled back itself");
        self.writes.truncate(savepoint);
    }

    /// A read of the newest that sees the own writes.
    #[must_use]
    pub fn current(&self) -> Reading<'_, V> {
        Reading { at: CommitTs::MAX, own: Some(self) }
    }

    /// A read at a snapshot that sees the own writes.
    #[must_use]
    pub fn at(&self, at: CommitTs) -> Reading<'_, V> {
        Reading { at, own: Some(self) }
    }

    fn own(&self, table: u32, key: &[V]) -> Option<&Option<Row<V>>> {
        self.writes.iter().rev().find(|w| w.0 == table && w.1 == key).map(|w| &w.2)
    }

    /// Rows with the values of this one in a unique index, itself among them.
    fn taken(&self, tables: &Tables<V>, table: u32, row: &[V]) -> Vec<(Conflict, Vec<V>)> {
        let shape = tables.shape(table);
        let rows = tables.rows(self.current(), table);
        let mut taken = Vec::new();
        for (i, secondary) in shape.secondaries.iter().enumerate().filter(|(_, s)| s.unique) {
            let value = project(row, &secondary.columns);
            if value.iter().any(tables.is_null) {
                continue;
            }
            let holder = rows.iter().find(|row| project(row, &secondary.columns) == value);
            taken.extend(holder.map(|row| (Conflict::DuplicateUnique(i), project(row, &shape.primary))));
        }
        taken
    }
}

/// A read of what was committed up to `at`.
impl<V> From<CommitTs> for Reading<'_, V> {
    fn from(at: CommitTs) -> Self {
        Self { at, own: None }
    }
}

fn project<V: Clone>(row: &[V], columns: &[usize]) -> Vec<V> {
    columns.iter().map(|c| row[*c].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u32 = 1;

    fn tables() -> Tables<i64> {
        let mut tables = Tables::new();
        let secondaries =
            vec![Secondary { columns: vec![1], unique: false }, Secondary { columns: vec![2], unique: true }];
        tables.create(T, Shape { primary: vec![0], secondaries });
        let mut t = Transaction::new();
        t.insert(&tables, T, vec![1, 50, 100]).unwrap();
        t.insert(&tables, T, vec![2, 40, 200]).unwrap();
        tables.commit(CommitTs(10), t);
        tables
    }

    #[test]
    fn a_commit_is_seen_from_its_timestamp_on() {
        let tables = tables();
        assert!(tables.rows(CommitTs(9).into(), T).is_empty());
        assert_eq!(tables.rows(CommitTs(10).into(), T), [vec![1, 50, 100], vec![2, 40, 200]]);
        assert_eq!(tables.rows_by(CommitTs(10).into(), T, 0), [vec![2, 40, 200], vec![1, 50, 100]]);
    }

    #[test]
    fn own_writes_are_seen_until_rolled_back() {
        let tables = tables();
        let mut t = Transaction::new();
        t.update(&tables, T, vec![1, 60, 100]).unwrap();
        let savepoint = t.savepoint();
        t.delete(&tables, T, &[2]).unwrap();
        assert_eq!(tables.rows(t.current(), T), [vec![1, 60, 100]]);
        assert_eq!(t.delete(&tables, T, &[2]), Err(Conflict::NotFound));
        t.rollback_to(savepoint);
        assert_eq!(tables.rows(t.at(CommitTs::ZERO), T), [vec![1, 60, 100]]);
        assert_eq!(tables.rows(t.current(), T).len(), 2);
    }

    #[test]
    fn uniqueness_is_judged_on_the_newest() {
        let mut tables = tables();
        let mut t = Transaction::new();
        assert_eq!(t.insert(&tables, T, vec![1, 0, 0]), Err(Conflict::DuplicatePrimary));
        assert_eq!(t.insert(&tables, T, vec![3, 0, 200]), Err(Conflict::DuplicateUnique(1)));
        t.delete(&tables, T, &[2]).unwrap();
        t.insert(&tables, T, vec![3, 0, 200]).unwrap();
        tables.commit(CommitTs(20), t);
        assert_eq!(tables.rows(CommitTs(20).into(), T).len(), 2);
        let mut t = Transaction::new();
        assert_eq!(t.update(&tables, T, vec![1, 0, 200]), Err(Conflict::DuplicateUnique(1)));
        t.update(&tables, T, vec![1, 7, 100]).unwrap();
        assert_eq!(t.replace(&tables, T, vec![1, 0, 200]), 2);
        assert_eq!(tables.rows(t.current(), T), [vec![1, 0, 200]]);
        tables.forget_after(CommitTs(10));
        assert_eq!(tables.get(CommitTs(20).into(), T, &[2]), Some(vec![2, 40, 200]));
    }
}
