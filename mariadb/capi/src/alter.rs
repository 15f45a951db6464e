// SPDX-License-Identifier: GPL-2.0-only
//! A table changed in place, to another definition of the server's.
//!
//! 1. **Planned**: what the engine has to do so that its table is as the new definition says: indexes to build; columns
//!    added, dropped, renamed, moved; indexes dropped and renamed. The same changes of a schema show whether the outcome is
//!    what is wanted: if it is not, or a row would have to be written anew, the server copies the table.
//! 2. **Built**: if the rows get other settings, whoever needs those of before an earlier change is waited for first. New indexes, beside
//!    writers, under names that no key of the server has. Definitions leave them out: until 3 the table is as it was, and whoever finds
//!    them without a change under way drops them. Then the rows with other settings, beside the ones that are there.
//! 3. **Committed**: everything else, the names, and with them the rows, in one commit of the engine's. Before it a crash leaves the
//!    old definition, behind it the new one; [`definition_id`] tells the server which. Along with rows nothing but keys is changed.

use std::sync::Arc;

use trefoil::{
    ChangeOptions, Database, Duplicate, Error, IndexOptions, IndexSchema, KeyPart, RowsChange, Schema, Structure,
    Table, TableChanges,
};

use crate::abi;
use crate::crash;
use crate::failure::{Code, Failure, Result, check_sound};
use crate::foreign::{self, Rooms};
use crate::layout::Layout;
use crate::raw::{Definition, ForeignChange};
use crate::table::OpenTable;

/// A change that is under way.
pub struct Alter {
    table: Arc<OpenTable>,
    /// As it will be.
    layout: Layout,
    /// Numbers of keys whose indexes are built, and those.
    builds: Vec<(usize, IndexSchema)>,
    /// Settings that the rows get, if it is others.
    rows: Option<IndexOptions>,
    /// The rows with those, once they are made.
    made: Option<RowsChange>,
    changes: TableChanges,
    /// What a record that was filled points to.
    blobs: Vec<Box<[u8]>>,
}

/// What an index is beside its name: as it is compared. Unique, clustering, its parts and settings.
type Shape = (bool, bool, Vec<KeyPart>, IndexOptions);

/// A name for a moment. Names of the server's keys, and of columns, do not end with a space; those of what is built end with one.
fn passing_name(n: usize) -> String {
    format!("{n}  ")
}

/// The name of an index between its build and the commit.
fn building_name(key: &str) -> String {
    format!("{key} ")
}

pub fn is_building(index: &IndexSchema) -> bool {
    index.name().ends_with(' ')
}

/// The name of the key that an index of this name is built to be.
pub fn name_to_be(name: &str) -> Option<&str> {
    name.strip_suffix(' ')
}

/// A number of the definition without what is being built: another one once a change is committed, the same until then.
pub fn definition_id(schema: &Schema) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    finished(schema).encode().iter().fold(0xcbf2_9ce4_8422_2325, hash)
}

/// Without indexes that are being built, or were when the server died.
fn finished(schema: &Schema) -> Schema {
    let building = (0..schema.indexes().len()).rev().filter(|&n| is_building(&schema.indexes()[n]));
    building.fold(schema.clone(), |schema, n| schema.without_index(n))
}

/// Drops what a change that never ended has built.
pub fn drop_built(db: &Database, table: &Table) -> Result<()> {
    let schema = table.schema();
    let mut built = schema.indexes().iter().filter(|index| is_building(index));
    Ok(built.try_for_each(|index| db.drop_table_index(table, index.name()))?)
}

impl Alter {
    /// Step 1. `from`: of each column the number of the one that it was, none if it is added.
    pub fn plan(
        table: &Arc<OpenTable>,
        to: &Definition<'_>,
        from: &[Option<usize>],
        foreign: &ForeignChange<'_>,
    ) -> Result<Self> {
        let layout = Layout::new(to, &table.room)?;
        layout.check_keys(&table.room)?;
        let old = finished(&table.table.schema());
        let columns = Columns::new(&old, &layout.schema, from)?;
        let of = (&table.db, table.table.name());
        let rooms = Rooms { definition: to, collations: &table.room.collations };
        foreign.check_added(of, &old, &layout.schema, &rooms)?;
        let mut plan = Plan::default();
        plan.indexes(&old, &layout, &columns)?;
        plan.columns(&old, &layout, &columns);
        let wanted = layout.schema.primary_options();
        let rows = Some(wanted).filter(|&wanted| !is_kept_so(table, old.primary_options(), wanted));
        if rows.is_some() && (plan.is_more || !foreign.added.is_empty() || !foreign.dropped.is_empty()) {
            return Err(unfit(
                "settings of the rows change in place by themselves, or with keys that are added or made anew",
            ));
        }
        let Plan { builds, changes, .. } = plan;
        let loses_column = foreign::loses_column(of, &old, &columns, foreign);
        let index = foreign::needed_index(of, &old, &columns, &layout.schema, foreign);
        // As InnoDB: without checks the column is named, by the server where it makes a copy.
        if let Some(index) = index.filter(|_| !(loses_column && foreign.unchecked)) {
            return Err(Failure::new(Code::IndexNeeded, &index));
        }
        if loses_column {
            return Err(unfit("a column goes that a foreign key needs"));
        }
        let changes = foreign.in_place(of, (&old, &columns, &layout.schema), &rooms, changes)?;
        let all = builds.iter().try_fold(old, |schema, (_, index)| schema.with_index(index.clone()));
        let outcome = all.and_then(|schema| schema.with_changes(&changes)).map_err(Error::from)?;
        check_outcome(&outcome, &layout.schema)?;
        Ok(Self { table: table.clone(), layout, builds, rows, made: None, changes, blobs: Vec::new() })
    }

    pub fn record_bytes(&self) -> usize {
        self.layout.record_bytes()
    }

    /// What takes as long as there are rows.
    pub fn builds(&self) -> u8 {
        match (self.rows, self.builds.is_empty()) {
            (Some(_), _) => abi::BUILDS_ROWS,
            (None, false) => abi::BUILDS_KEYS,
            (None, true) => 0,
        }
    }

    /// Step 2. If two rows have one value of a unique key, that goes to `record`.
    pub fn build(&mut self, wait: ChangeOptions, record: &mut [u8]) -> Result<()> {
        check_sound()?;
        let (db, table) = (&self.table.db.changing(wait), &self.table.table);
        drop_built(db, table)?;
        if self.rows.is_some() {
            db.wait_for_former_rows(table)?;
        }
        if !self.builds.is_empty() {
            let indexes = self.builds.iter().map(|(_, index)| index.clone()).collect();
            crash::point("alter.build");
            let built = db.create_table_indexes(table, indexes);
            crash::point("alter.built");
            match built {
                Err(Error::DuplicateKey(taken)) => return Err(self.show(&taken, record)?),
                built => built?,
            }
        }
        if let Some(rows) = self.rows {
            crash::point("alter.rows");
            self.made = Some(db.begin_table_rows(table, rows)?);
            crash::point("alter.made");
        }
        Ok(())
    }

    /// Puts the value into a record of the new definition.
    fn show(&mut self, taken: &Duplicate, record: &mut [u8]) -> Result<Box<Failure>> {
        let failure = Box::<Failure>::from(Error::DuplicateKey(Box::new(taken.clone())));
        let Some((key, _)) = self.builds.iter().find(|(_, index)| index.name() == taken.index) else {
            return Ok(failure);
        };
        self.layout.put_key(*key, &taken.key, record, &mut self.blobs)?;
        Ok(failure.of_key(*key))
    }

    /// Step 3.
    pub fn commit(&mut self, wait: ChangeOptions) -> Result<()> {
        check_sound()?;
        crash::point("alter.commit");
        match self.made.take() {
            Some(rows) => rows.changing(wait).finish(&self.changes)?,
            None => self.table.db.changing(wait).alter_table(&self.table.table, &self.changes)?,
        }
        crash::point("alter.committed");
        Ok(())
    }

    /// Back to before.
    pub fn undo(&mut self) -> Result<()> {
        self.made = None;
        drop_built(&self.table.db, &self.table.table)
    }
}

/// Where columns go.
pub struct Columns<'a> {
    /// Name before and name behind, of those that stay.
    stay: Vec<(&'a str, &'a str)>,
    gone: Vec<&'a str>,
    /// Numbers of those that are added, in the new definition.
    added: Vec<usize>,
}

impl<'a> Columns<'a> {
    fn new(old: &'a Schema, new: &'a Schema, from: &[Option<usize>]) -> Result<Self> {
        let names = |schema: &'a Schema| schema.columns().iter().map(|column| column.name.as_str());
        let (old, new): (Vec<_>, Vec<_>) = (names(old).collect(), names(new).collect());
        let mut this = Self { stay: Vec::new(), gone: Vec::new(), added: Vec::new() };
        for (n, &name) in new.iter().enumerate() {
            // Row numbers stay what they are.
            let from = from.get(n).copied().unwrap_or_else(|| old.iter().position(|other| *other == name));
            match from {
                Some(n) => this.stay.push((old.get(n).ok_or_else(|| unfit("no such column"))?, name)),
                None => this.added.push(n),
            }
        }
        let stays = |name: &&str| this.stay.iter().any(|(before, _)| before == name);
        this.gone = old.into_iter().filter(|name| !stays(name)).collect();
        Ok(this)
    }

    /// Columns under the new names; none if one goes.
    pub fn names_after(&self, columns: &[String]) -> Option<Vec<String>> {
        let after =
            |name: &String| self.stay.iter().find(|(before, _)| before == name).map(|(_, after)| (*after).to_owned());
        columns.iter().map(after).collect()
    }

    /// A part of a key under the new names; none if its column goes.
    fn after(&self, part: &KeyPart) -> Option<KeyPart> {
        let (_, name) = self.stay.iter().find(|(before, _)| *before == part.column())?;
        Some(with_column(part, name))
    }

    fn before(&self, part: &KeyPart) -> Option<KeyPart> {
        let (name, _) = self.stay.iter().find(|(_, after)| *after == part.column())?;
        Some(with_column(part, name))
    }
}

fn with_column(part: &KeyPart, name: &str) -> KeyPart {
    let mut to = KeyPart::new(name);
    if let Some(length) = part.front_length() {
        to = to.front(length);
    }
    if part.is_descending() { to.descending() } else { to }
}

#[derive(Default)]
struct Plan {
    builds: Vec<(usize, IndexSchema)>,
    changes: TableChanges,
    /// There is more than keys that are built, some of them in the place of those of the same name.
    is_more: bool,
}

impl Plan {
    fn change(&mut self, make: impl FnOnce(TableChanges) -> TableChanges) {
        self.changes = make(std::mem::take(&mut self.changes));
    }

    /// An index that is the same stays, one that is the same under another name gets it; others are dropped and built.
    fn indexes(&mut self, old: &Schema, layout: &Layout, columns: &Columns<'_>) -> Result<()> {
        let shape = |index: &IndexSchema, parts| -> Shape {
            (index.is_unique(), index.is_clustering(), parts, index.options())
        };
        let after = |index: &IndexSchema| {
            let parts: Option<Vec<_>> = index.parts().map(|part| columns.after(&part)).collect();
            parts.map(|parts| shape(index, parts))
        };
        let mut there: Vec<_> = old.indexes().iter().map(|index| (index.name(), after(index))).collect();
        let mut wanted: Vec<_> =
            layout.indexes().map(|(key, index)| (key, index, Some(shape(index, index.parts().collect())))).collect();
        wanted.retain(|(_, index, wanted)| {
            let same = there.iter().position(|(name, shape)| *name == index.name() && shape == wanted);
            same.map(|n| there.remove(n)).is_none()
        });
        let mut renamed = Vec::new();
        wanted.retain(|(key, index, wanted)| {
            let Some(same) = there.iter().position(|(_, shape)| shape == wanted) else { return true };
            renamed.push((there.remove(same).0, *key, index.name()));
            false
        });
        there.iter().for_each(|(name, _)| self.change(|all| all.drop_index(name)));
        let is_made_anew = |name: &str| wanted.iter().any(|(_, index, _)| index.name() == name);
        self.is_more |= !renamed.is_empty() || !there.iter().all(|(name, _)| is_made_anew(name));
        // Two may change names.
        renamed.iter().for_each(|(name, key, _)| self.change(|all| all.rename_index(name, &passing_name(*key))));
        renamed.iter().for_each(|(_, key, to)| self.change(|all| all.rename_index(&passing_name(*key), to)));
        for (key, index, _) in wanted {
            let parts: Option<Vec<_>> = index.parts().map(|part| columns.before(&part)).collect();
            let parts =
                parts.ok_or_else(|| unfit("an index on a column that is added along with it is built by a copy"))?;
            let name = building_name(index.name());
            let built = IndexSchema::of_parts(&name, parts).with_options(index.options());
            let built = if index.is_clustering() { built.clustering() } else { built };
            self.builds.push((key, if index.is_unique() { built.unique() } else { built }));
            self.change(|all| all.rename_index(&name, index.name()));
        }
        Ok(())
    }

    fn columns(&mut self, old: &Schema, layout: &Layout, columns: &Columns<'_>) {
        let new = layout.schema.columns();
        self.is_more |= old.columns() != new;
        columns.gone.iter().for_each(|name| self.change(|all| all.drop_column(name)));
        let renamed = || columns.stay.iter().enumerate().filter(|(_, (before, after))| before != after);
        renamed().for_each(|(n, (before, _))| self.change(|all| all.rename_column(before, &passing_name(n))));
        renamed().for_each(|(n, (_, after))| self.change(|all| all.rename_column(&passing_name(n), after)));
        let behind = |name: &str| columns.stay.iter().find(|(before, _)| *before == name).map(|(_, after)| *after);
        let mut order: Vec<&str> = old.columns().iter().filter_map(|column| behind(&column.name)).collect();
        for &n in &columns.added {
            let (column, value) = (&new[n], layout.default_value(n));
            order.push(&column.name);
            self.change(|all| match column.nullable {
                true => all.add_nullable(&column.name, column.column_type, value),
                false => all.add_column(&column.name, column.column_type, value),
            });
            if let Some(collation) = column.collation {
                self.change(|all| all.collate(&column.name, collation));
            }
        }
        for (n, column) in new.iter().enumerate() {
            let Some(at) = order.iter().position(|name| *name == column.name).filter(|&at| at != n) else { continue };
            let name = order.remove(at);
            order.insert(n, name);
            self.change(|all| if n == 0 { all.move_first(name) } else { all.move_after(name, &new[n - 1].name) });
        }
    }
}

/// The rows are kept with the settings that are wanted, whatever the words for them.
fn is_kept_so(table: &OpenTable, said: IndexOptions, wanted: IndexOptions) -> bool {
    let named = Some(table.table.name());
    let kept =
        || table.db.indexes().into_iter().find(|index| index.table.as_deref() == named && index.name == "primary");
    said == wanted
        || kept().is_some_and(|rows| {
            let is_meant = wanted.structure == Structure::Auto && rows.options.structure == Structure::Betree;
            rows.options == if is_meant { IndexOptions { structure: Structure::Betree, ..wanted } } else { wanted }
        })
}

/// What the changes come to is what is wanted, but for the settings of the rows.
fn check_outcome(outcome: &Schema, wanted: &Schema) -> Result<()> {
    if outcome.columns() != wanted.columns() {
        return Err(unfit(
            "a column changes its type, its collation, or whether it may be NULL: rows are written anew",
        ));
    }
    let primary = |schema: &Schema| schema.primary_key_parts().collect::<Vec<_>>();
    if primary(outcome) != primary(wanted) {
        return Err(unfit("the primary key changes: rows are written anew"));
    }
    let is_there = |index: &IndexSchema| outcome.indexes().contains(index);
    if outcome.indexes().len() != wanted.indexes().len() || !wanted.indexes().iter().all(is_there) {
        return Err(unfit("an index does not come out as it is wanted"));
    }
    Ok(())
}

fn unfit(why: &str) -> Box<Failure> {
    Failure::new(Code::Unsupported, why)
}
