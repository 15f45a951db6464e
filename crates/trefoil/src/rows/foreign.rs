//! Foreign keys while rows are written: rows of children look for their parents, rows of parents for their children. What
//! becomes of the children is in [`super::cascade`].
//!
//! A key that is referred to has one lock, whoever has it: of a whole primary key the lock of its row, of other columns a name of
//! their values in the parent's primary index ([`name_of`]). Rules:
//! - F1: whoever writes a row with a key in it locks the key *shared*, then looks for it in what is committed by then, with the own
//!   writes on top, and keeps the lock until the end.
//! - F2: whoever removes a key, or adds one, locks it *exclusively* before writing, and keeps that; who removes it then looks for
//!   children in what is committed by then, with the own writes on top.
//! - F3: both are inside the gates of both tables, so that either's definition, which says what the key is called, stays.
//!
//! ```text
//! T1 deletes the parent p                          T2 inserts a child of p
//! F2: locks p, writes, finds no child
//!                                                  F1: wants p shared: waits
//! commits                                          looks: p is gone: error                 (T1 rolls back: p is there)
//!
//!                                                  F1: locks p shared, finds it, writes
//! F2: wants p: waits
//!                                                  commits, or is prepared: T1 waits on
//! looks: finds the child: error, or acts on it     (T2 rolls back: finds none)
//! ```
//!
//! Without F1's lock both find what they look for, and both commit: a child without a parent. Children that are there by then and
//! that others are changing are a matter of their row locks: they are locked and looked at again [P3].
//!
//! No range is locked. Nobody can bring in a child of p beside whoever has p, but who leaves the columns of the foreign key as
//! they are locks nothing of p, and moves the entry within p's range if the index has more columns. So children, and the key of a
//! parent, are looked for at one moment [`Transaction::moment`]: in the newest, an entry that goes from ahead of a scan to behind
//! it is missed.
//!
//! What is prepared has its locks again after a restart: [`crate::prepared`] takes them from what it writes.
//!
//! The order is InnoDB's: a row is written, then its parents are looked for, so that it may be its own; row by row.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use index::{Direction, ReadAt};

use crate::entry::{TableEntry, TableShape};
use crate::error::{Error, ForeignKeyFailure, ForeignKeyFailureKind, Result};
use crate::foreign;
use crate::locking::Locking;
use crate::table::{ForeignKey, OwnedValue, Schema, Value, key};
use crate::transaction::Transaction;

/// What the name of a key that is not a primary key begins with.
const NAME: &[u8] = b"\xFFforeign\0";
/// How often who waits for a table that takes a parent's name looks whether it is there.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// A foreign key of a child, as it is now, and its parent, if there is one.
struct Upward {
    foreign: ForeignKey,
    parent: Option<Arc<TableEntry>>,
    /// There is none, and another one is about to take its name.
    comes: bool,
}

/// The lock of a key that is referred to, in the parent's primary index.
pub(crate) fn name_of(parent: &Schema, columns: &[usize], values: &[Value<'_>]) -> base::Result<Vec<u8>> {
    let mut name = Vec::new();
    if parent.has_whole_primary_key(columns) {
        parent.primary_prefix(values, &mut name)?;
        return Ok(name);
    }
    name.extend_from_slice(NAME);
    name.push(columns.len() as u8);
    columns.iter().for_each(|&n| name.extend_from_slice(&(n as u16).to_be_bytes()));
    parent.put_plain_key(columns, values, &mut name)?;
    Ok(name)
}

/// Values of some columns of a row that is stored.
pub(super) fn values_of(schema: &Schema, columns: &[usize], key: &[u8], stored: &[u8]) -> Result<Vec<OwnedValue>> {
    Ok(schema.columns_of(columns, key, stored)?.into_iter().map(Value::into_owned).collect())
}

/// Numbers of a foreign key's columns.
pub(super) fn columns_in(child: &Schema, foreign: &ForeignKey) -> Option<Vec<usize>> {
    foreign.columns().iter().map(|name| child.column_number(name)).collect()
}

pub(super) fn failure(
    kind: ForeignKeyFailureKind,
    foreign: &ForeignKey,
    child: &TableEntry,
    key: &[Value<'_>],
) -> Error {
    let key = key.iter().cloned().map(Value::into_owned).collect();
    let (constraint, table) = (foreign.clone(), child.name().to_owned());
    Error::ForeignKey(Box::new(ForeignKeyFailure { kind, constraint, table, key }))
}

impl Transaction {
    /// Foreign keys are kept (which is so at first) or not: neither are parents looked for then, nor children. What is written so
    /// is not checked later on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// use trefoil::{ColumnType, ForeignKey, IndexSchema, Schema};
    ///
    /// let people = Schema::builder().column("id", ColumnType::I64).nullable("boss", ColumnType::I64).primary_key(&["id"]);
    /// let people = people.index(IndexSchema::new("by_boss", &["boss"]));
    /// let people = people.foreign_key(ForeignKey::new("boss", &["boss"], "people", &["id"])).build()?;
    /// let people = db.create_table("people", people)?;
    /// let mut tx = db.begin()?;
    /// tx.set_foreign_key_checks(false);
    /// tx.insert(&people, &[1i64.into(), 2i64.into()])?; // number 2 comes later
    /// tx.set_foreign_key_checks(true);
    /// tx.insert(&people, &[2i64.into(), 2i64.into()])?;
    /// assert!(tx.insert(&people, &[3i64.into(), 4i64.into()]).is_err());
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn set_foreign_key_checks(&mut self, checked: bool) {
        self.foreign_key_checks = checked;
    }

    /// True if writes of this transaction may meet a foreign key.
    pub(super) fn keeps_foreign_keys(&self) -> bool {
        self.foreign_key_checks && self.engine.has_foreign_keys.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// F1 for a row that was written, in the place of `old` if there was one: a foreign key whose columns stay as they are is not
    /// looked at.
    pub(super) fn check_parents(
        &mut self,
        shape: &TableShape,
        old: Option<(&[u8], &[u8])>,
        row: &[Value<'_>],
    ) -> Result<()> {
        if !self.keeps_foreign_keys() {
            return Ok(());
        }
        let table = self.entry_of(shape);
        let schema = &shape.maintained.schema;
        let mut upwards = self.upwards(&table);
        for n in 0..upwards.len() {
            let Some(columns) = columns_in(schema, &upwards[n].foreign) else { continue };
            let values: Vec<Value<'_>> = columns.iter().map(|&n| row[n].clone()).collect();
            if values.iter().any(Value::is_null) {
                continue;
            }
            if let Some((key, stored)) = old
                && schema.columns_of(&columns, key, stored)? == values
            {
                continue;
            }
            let parent = self.enter_parent(&table, &mut upwards, n)?;
            self.check_parent(&table, schema, (&upwards[n].foreign, parent), &values)?;
        }
        Ok(())
    }

    fn check_parent(
        &mut self,
        table: &TableEntry,
        schema: &Schema,
        (foreign, parent): (&ForeignKey, Option<Arc<TableShape>>),
        values: &[Value<'_>],
    ) -> Result<()> {
        let orphan = || failure(ForeignKeyFailureKind::NoParent, foreign, table, values);
        let parent = parent.ok_or_else(orphan)?;
        let columns = foreign::bind(foreign, schema, &parent.def.schema).map_err(|_| orphan())?;
        let name = name_of(&parent.def.schema, &columns, values)?;
        self.lock_to_keep(&parent.primary, &name, Locking::SHARED)?;
        vfs::thread::point("foreign.parent_locked");
        let moment = self.moment()?;
        if self.has_key(&parent, &columns, values, ReadAt::Snapshot(moment.ts()))? { Ok(()) } else { Err(orphan()) }
    }

    /// F3 for the parent of foreign key `n`: the table that has its name while this transaction is inside the gate; none if there
    /// is none. What is known of foreign keys and parents is that of then.
    ///
    /// A table that leaves its name to another one (ALTER TABLE by a copy) does so when nobody is inside; who comes in behind that
    /// finds the other one. In between the name is missing, which is waited for: outside of the table of before, whose drop would
    /// wait for this transaction.
    fn enter_parent(
        &mut self,
        table: &TableEntry,
        upwards: &mut Vec<Upward>,
        n: usize,
    ) -> Result<Option<Arc<TableShape>>> {
        let mut wait = None;
        loop {
            let mut entered = None;
            let Upward { foreign, parent, comes } = &upwards[n];
            match parent {
                Some(parent) => {
                    let was_inside = self.is_inside(parent);
                    match self.open_table(parent, true) {
                        Ok(shape) if was_inside => return Ok(Some(shape)),
                        Ok(_) | Err(Error::Dropped { .. }) => {}
                        Err(error) => return Err(error),
                    }
                    entered = Some(parent.clone()).filter(|_| !was_inside);
                }
                None if *comes => {
                    let next = wait.get_or_insert_with(|| self.wait_for_change()).look(foreign.parent())?;
                    vfs::thread::sleep(next.min(BETWEEN_LOOKS));
                }
                None => return Ok(None),
            }
            vfs::thread::point("foreign.parent_entered");
            *upwards = self.upwards(table);
            let now = upwards[n].parent.as_ref().map(|parent| parent.id);
            if let Some(before) = entered.filter(|before| now != Some(before.id)) {
                self.leave_table(&before);
            }
        }
    }

    /// The table's foreign keys, each with the table that has the parent's name in the same moment.
    fn upwards(&self, table: &TableEntry) -> Vec<Upward> {
        let names = self.engine.names.read();
        let shape = table.shape();
        let upward = |foreign: &ForeignKey| {
            let parent = names.tables.get(foreign.parent()).cloned();
            Upward { foreign: foreign.clone(), parent, comes: names.left.contains_key(foreign.parent()) }
        };
        shape.def.schema.foreign_keys().iter().map(upward).collect()
    }

    /// True if a row, with the own writes on top, has these values.
    fn has_key(&self, shape: &Arc<TableShape>, columns: &[usize], values: &[Value<'_>], at: ReadAt) -> Result<bool> {
        Ok(!self.rows_with(shape, columns, values, at, None, 1)?.is_empty())
    }

    /// Primary keys of rows, with the own writes on top, that have these values: at most `limit`, behind an entry. Each with the
    /// entry by which it was found.
    pub(super) fn rows_with(
        &self,
        shape: &Arc<TableShape>,
        columns: &[usize],
        values: &[Value<'_>],
        at: ReadAt,
        behind: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let schema = &shape.def.schema;
        // One that was set aside is passed if there is another one.
        let usable = schema.index_over_of(columns, |n| shape.secondaries[n].check().is_ok());
        let n = usable.or_else(|| schema.index_over(columns)).expect("a foreign key has an index on either side");
        let (entry, mut low) = (n.map_or(&shape.primary, |n| &shape.secondaries[n]), Vec::new());
        match n {
            None => schema.primary_prefix(values, &mut low)?,
            Some(n) => schema.index_prefix(n, values, &mut low)?,
        }
        let mut end = low.clone();
        let high = if key::successor(&mut end) { Bound::Excluded(end.as_slice()) } else { Bound::Unbounded };
        let low = behind.map_or(Bound::Included(low.as_slice()), Bound::Excluded);
        let range = (low, high);
        let cursor = match at {
            ReadAt::Newest => self.cursor_newest(entry, range, Direction::Forward)?,
            ReadAt::Snapshot(_) => {
                entry.check_snapshot(at)?;
                self.cursor_where(entry, at, None, range, Direction::Forward)
            }
        };
        let mut cursor = cursor.expect(limit.min(64));
        let mut found = Vec::new();
        while found.len() < limit && cursor.advance()? {
            let (entry, _) = cursor.entry();
            let row = n.map_or(Ok(entry), |n| schema.primary_key_of(n, entry))?;
            found.push((row.to_vec(), entry.to_vec()));
        }
        Ok(found)
    }

    /// F2 before a row is written: keys other than primary keys that others may refer to, which come or go with it. A primary key
    /// is locked with its row.
    pub(super) fn lock_referenced(
        &mut self,
        shape: &TableShape,
        old: Option<(&[u8], &[u8])>,
        new: Option<&[Value<'_>]>,
    ) -> Result<()> {
        if !self.keeps_foreign_keys() {
            return Ok(());
        }
        let schema = &shape.def.schema;
        let mut names = Vec::new();
        for columns in self.referenced(&self.entry_of(shape), shape) {
            let old = old.map(|(key, stored)| values_of(schema, &columns, key, stored)).transpose()?;
            let new = new.map(|row| columns.iter().map(|&n| row[n].clone()).collect::<Vec<_>>());
            if old == new {
                continue;
            }
            for values in [old, new].into_iter().flatten().filter(|values| !values.iter().any(Value::is_null)) {
                names.push(name_of(schema, &columns, &values)?);
            }
        }
        names.sort_unstable();
        names.dedup();
        names.iter().try_for_each(|name| self.lock_to_keep(&shape.primary, name, Locking::EXCLUSIVE).map(drop))
    }

    /// Columns of a table that foreign keys refer to, but for the whole primary key.
    fn referenced(&self, table: &TableEntry, shape: &TableShape) -> Vec<Vec<usize>> {
        let all = foreign::referenced(&self.engine.names.read(), table.name(), &shape.def.schema);
        all.into_iter().filter(|columns| !shape.def.schema.has_whole_primary_key(columns)).collect()
    }

    /// The first row of a table that has no parent by these foreign keys, which have the names of now. Nobody writes to any of the tables meanwhile.
    pub(crate) fn first_orphan(&self, table: &Arc<TableEntry>, keys: &[ForeignKey]) -> Result<Option<Error>> {
        let shape = table.shape();
        let bound = foreign::bound(&self.engine.names.read(), table, keys);
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = self.cursor_newest(&shape.primary, everything, Direction::Forward)?;
        while cursor.advance()? {
            let (key, stored) = cursor.entry();
            for (foreign, parent, columns) in &bound {
                let Some(own) = columns_in(&shape.def.schema, foreign) else { continue };
                let values = shape.def.schema.columns_of(&own, key, stored)?;
                if !values.iter().any(Value::is_null) && !self.has_key(parent, columns, &values, ReadAt::Newest)? {
                    return Ok(Some(failure(ForeignKeyFailureKind::NoParent, foreign, table, &values)));
                }
            }
        }
        Ok(None)
    }
}
