//! What a planner of queries asks of a table: how many rows, how many in a range, how many different values.
//!
//! Counts of rows and bytes are kept by the indexes and cost nothing; a range is estimated by two descents; different
//! values are counted from samples and kept with the index until a tenth of its keys has changed.

use std::sync::Arc;

use index::IndexStats;

use crate::distinct::Sampler;
use crate::entry::{IndexEntry, TableShape};
use crate::error::{Error, Result};
use crate::handle::Table;
use crate::rows::{ValueRange, as_slice, index_number, index_range, primary_range};

/// Changes that are too few to count again for.
const CHANGES_MIN: u64 = 16;

/// Counts and sizes of a table, estimates while others write: [`Table::stats`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, IndexSchema, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
/// # let people = db.create_table("people", schema)?;
/// # let mut tx = db.begin()?;
/// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
/// #     tx.insert(&people, &[id.into(), name.into()])?;
/// # }
/// # tx.commit()?;
/// let trefoil::TableStats { rows, primary, indexes, .. } = people.stats();
/// assert_eq!((rows, primary.leaves), (3, 1));
/// assert_eq!(indexes[0].live_keys, 3);
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TableStats {
    /// Rows.
    pub rows: u64,
    /// The index that holds the rows.
    pub primary: IndexStats,
    /// The secondary indexes, in the order of the schema.
    pub indexes: Vec<IndexStats>,
}

/// Different values of an index's columns, as they were counted.
pub(crate) struct Distinct {
    counts: Arc<[u64]>,
    /// Keys, and changes so far, at that moment.
    keys: u64,
    changes: u64,
}

impl Table {
    /// Counts and sizes now. It costs nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// assert_eq!(people.stats().rows, 0);
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// assert_eq!(people.stats().rows, 0); // nothing of a transaction counts before its commit
    /// tx.commit()?;
    /// assert_eq!(people.stats().rows, 1);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> TableStats {
        let shape = self.0.shape();
        let primary = shape.primary.index.stats();
        let indexes = shape.secondaries.iter().map(|entry| entry.index.stats()).collect();
        TableStats { rows: keys(&primary), primary, indexes }
    }

    /// About how many committed rows have their key in a range: of the primary key, or of a secondary index by its name.
    /// Exact if the range is short, within a factor of two as a rule; at least 1 unless there is nothing in the range for
    /// anybody, deleted rows that somebody may still see included. It reads what looking up both ends reads.
    ///
    /// # Errors
    /// `NotFound` for the index, `InvalidArgument` if the bounds do not fit it, `Dropped`, `Quarantined`, `Io`, `Corrupt`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut tx = db.begin()?;
    /// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
    /// #     tx.insert(&people, &[id.into(), name.into()])?;
    /// # }
    /// # tx.commit()?;
    /// use std::ops::Bound;
    ///
    /// let from = ["B".into()];
    /// assert_eq!(people.estimate_rows(Some("by_name"), (Bound::Included(&from), Bound::Unbounded))?, 2);
    /// assert_eq!(people.estimate_rows(None, trefoil::ALL)?, 3);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn estimate_rows(&self, index: Option<&str>, range: ValueRange<'_>) -> Result<u64> {
        let shape = self.0.shape();
        let (entry, number) = find(&shape, index)?;
        let schema = &shape.def.schema;
        let (low, high) = match number {
            Some(n) => index_range(schema, n, range)?,
            None => primary_range(schema, range)?,
        };
        Ok(entry.read(entry.index.estimate((as_slice(&low), as_slice(&high))))?)
    }

    /// For 1, 2 … columns of an index, about how many different values they have, NULLs counted as one value: of the
    /// primary key, or of a secondary index by its name, whose columns the primary key's follow. Counted from samples when
    /// it is first asked for, and again once a tenth of the keys has changed.
    ///
    /// # Errors
    /// As [`Table::estimate_rows`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// let mut tx = db.begin()?;
    /// for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Grace")] {
    ///     tx.insert(&people, &[id.into(), name.into()])?;
    /// }
    /// tx.commit()?;
    /// assert_eq!(*people.distinct(Some("by_name"))?, [2, 3]); // names, and names with their numbers
    /// assert_eq!(*people.distinct(None)?, [3]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn distinct(&self, index: Option<&str>) -> Result<Arc<[u64]>> {
        let shape = self.0.shape();
        let (entry, number) = find(&shape, index)?;
        let stats = entry.index.stats();
        let kept = entry.distinct.read().clone();
        if let Some(kept) = kept {
            let changes = stats.changes.saturating_sub(kept.changes);
            // One counts; the others go on with what there is.
            if changes <= CHANGES_MIN + kept.keys / 10 || entry.counting.try_lock().is_none() {
                return Ok(kept.counts.clone());
            }
        }
        count(&shape, entry, number)
    }

    /// Counts different values anew, of all indexes.
    ///
    /// # Errors
    /// As [`Table::estimate_rows`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, IndexSchema, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// assert_eq!(*people.distinct(None)?, [0]);
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// tx.commit()?;
    /// assert_eq!(*people.distinct(None)?, [0]); // not yet a reason to count again
    /// people.analyze()?;
    /// assert_eq!(*people.distinct(None)?, [1]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn analyze(&self) -> Result<()> {
        let shape = self.0.shape();
        shape.primary.check()?;
        count(&shape, &shape.primary, None)?;
        for (n, entry) in shape.secondaries.iter().enumerate().filter(|(_, entry)| !entry.is_quarantined()) {
            count(&shape, entry, Some(n))?;
        }
        Ok(())
    }
}

/// The index of this name, or the primary one.
fn find<'s>(shape: &'s TableShape, index: Option<&str>) -> Result<(&'s Arc<IndexEntry>, Option<usize>)> {
    let number = index.map(|name| index_number(shape, name)).transpose()?;
    let entry = number.map_or(&shape.primary, |n| &shape.secondaries[n]);
    entry.check()?;
    Ok((entry, number))
}

fn count(shape: &TableShape, entry: &IndexEntry, number: Option<usize>) -> Result<Arc<[u64]>> {
    let _one = entry.counting.lock();
    let stats = entry.index.stats();
    let keys = keys(&stats);
    let counted = Sampler { index: &*entry.index, schema: &shape.def.schema, number, keys }.count();
    if matches!(counted, Err(Error::Corrupt(_))) {
        entry.note_damage();
    }
    let counts: Arc<[u64]> = counted?.into();
    let distinct = Distinct { counts: counts.clone(), keys, changes: stats.changes };
    *entry.distinct.write() = Some(Arc::new(distinct));
    Ok(counts)
}

/// Live keys, those of runs included.
fn keys(stats: &IndexStats) -> u64 {
    stats.live_keys.saturating_add_signed(stats.run_keys)
}
