// SPDX-License-Identifier: GPL-2.0-only
//! Foreign keys: from what the server says of them to the engine's, and back. Which hold, and what follows from them, the engine
//! decides.
//!
//! A foreign key is in the engine's definition of its table. The server says only what a statement adds and drops; a table that is
//! made to take another one's place (ALTER TABLE by a copy) takes over what that one has.

use trefoil::{Database, ForeignKey, ReferenceAction, Schema, TableChanges};

use crate::abi;
use crate::alter::Columns;
use crate::collation::Server;
use crate::failure::{Code, Failure, Result};
use crate::raw::{self, Definition, ForeignChange, NewForeign};

/// Databases are in front of the names of tables.
fn database_of(table: &str) -> &str {
    table.rsplit_once('/').map_or("", |(database, _)| database)
}

/// A name of the server's, whatever its letters' case.
fn column_named(schema: &Schema, name: &str) -> Option<String> {
    let same = |column: &&trefoil::Column| column.name.to_lowercase() == name.to_lowercase();
    schema.columns().iter().find(same).map(|column| column.name.clone())
}

/// The columns of a definition, to say how much of a value a cascade may put into each.
pub struct Rooms<'a> {
    pub definition: &'a Definition<'a>,
    pub collations: &'a Server,
}

impl Rooms<'_> {
    /// Bytes, and characters of text; 0: any.
    fn of(&self, column: &str) -> (u32, u32) {
        let field = self.definition.fields.iter().find(|(name, _)| *name == column).map(|(_, field)| field);
        match field.filter(|field| matches!(field.kind, 1 | 2 | 6 | 7)) {
            Some(field) if field.kind > 2 && field.collation != 0 => {
                (field.length, field.length / self.collations.longest(field.collation) as u32)
            }
            Some(field) => (field.length, 0),
            None => (0, 0),
        }
    }

    fn of_all(&self, columns: &[String]) -> (Vec<u32>, Vec<u32>) {
        columns.iter().map(|column| self.of(column)).unzip()
    }
}

fn refused(text: &str) -> Box<Failure> {
    Failure::new(Code::ForeignRefused, text)
}

impl ForeignChange<'_> {
    /// The schema of a new table with its foreign keys.
    pub fn apply(&self, db: &Database, name: &str, schema: Schema, rooms: &Rooms<'_>) -> Result<Schema> {
        let before = self.like.and_then(|like| db.table(like).ok()).map(|table| table.schema());
        let before = before.as_ref().map_or(&[][..], Schema::foreign_keys);
        let fitted = before.iter().filter(|foreign| !self.drops(foreign.name())).map(|foreign| {
            let (bytes, characters) = rooms.of_all(foreign.columns());
            foreign.clone().room(&bytes).room_in_characters(&characters)
        });
        let stay: Vec<_> = fitted.collect();
        let inherited = stay.iter().cloned().fold(TableChanges::new(), TableChanges::add_foreign_key);
        let kept = schema.with_changes(&inherited).map_err(|_| {
            let name = stay.first().map_or("", ForeignKey::name);
            Failure::new(Code::IndexNeeded, name)
        })?;
        let added = self.added(db, name, &kept, rooms, before)?;
        let changes = added.iter().cloned().fold(TableChanges::new(), TableChanges::add_foreign_key);
        let whole = kept.with_changes(&changes).map_err(|why| refused(&why.to_string()))?;
        self.check_own(&whole, &added)?;
        Ok(whole)
    }

    /// What a copy refers to under the name of the table whose place it takes is the copy: the engine looks at that table.
    fn check_own(&self, schema: &Schema, added: &[ForeignKey]) -> Result<()> {
        let to_itself = schema.foreign_keys().iter().filter(|foreign| self.like == Some(foreign.parent()));
        let looked_at = to_itself.filter(|foreign| !self.unchecked || added.contains(foreign));
        match looked_at.into_iter().find(|foreign| !refers_to(foreign, schema, schema)) {
            Some(foreign) => Err(Failure::new(Code::IndexNeeded, foreign.name())),
            None => Ok(()),
        }
    }

    /// What is added in place is refused before anything is done, in InnoDB's words: a parent that is there and is not fit, one that is
    /// the table itself both as it was and as it will be; NULL for a column that may not be NULL.
    pub fn check_added(
        &self,
        (db, name): (&Database, &str),
        old: &Schema,
        new: &Schema,
        rooms: &Rooms<'_>,
    ) -> Result<()> {
        let added = self.added(db, name, new, rooms, old.foreign_keys())?;
        for (given, foreign) in self.added.iter().zip(&added) {
            let parents = match given.parent == name {
                true => vec![old.clone(), new.clone()],
                false => db.table(given.parent).ok().map(|table| table.schema()).into_iter().collect(),
            };
            if !parents.iter().all(|parent| refers_to(foreign, new, parent)) {
                return Err(Failure::new(Code::ParentUnfit, &format!("{}\n{}", given.parent, given.name)));
            }
            let sets_null = [foreign.deletes(), foreign.updates()].contains(&ReferenceAction::SetNull);
            if sets_null && nullable(Some(new), foreign.columns()).count_ones() as usize != foreign.columns().len() {
                return Err(Failure::new(Code::NeverNull, foreign.name()));
            }
        }
        Ok(())
    }

    /// What a table that is changed in place loses and gets, in this order; a column may get longer.
    pub fn in_place(
        &self,
        (db, name): (&Database, &str),
        (old, columns, new): (&Schema, &Columns<'_>, &Schema),
        rooms: &Rooms<'_>,
        changes: TableChanges,
    ) -> Result<TableChanges> {
        let changes = self.dropped.iter().fold(changes, |changes, name| {
            match old.foreign_keys().iter().find(|foreign| same_name(foreign.name(), name)) {
                Some(foreign) => changes.drop_foreign_key(foreign.name()),
                None => changes,
            }
        });
        let stay = old.foreign_keys().iter().filter(|foreign| !self.drops(foreign.name()));
        let changes = stay.fold(changes, |changes, foreign| match columns.names_after(foreign.columns()) {
            Some(columns) => {
                let (bytes, characters) = rooms.of_all(&columns);
                changes.fit_foreign_key(foreign.name(), &bytes, &characters)
            }
            None => changes,
        });
        let added = self.added(db, name, new, rooms, old.foreign_keys())?;
        Ok(added.into_iter().fold(changes, TableChanges::add_foreign_key))
    }

    fn drops(&self, name: &str) -> bool {
        self.dropped.iter().any(|dropped| same_name(dropped, name))
    }

    fn added(
        &self,
        db: &Database,
        name: &str,
        schema: &Schema,
        rooms: &Rooms<'_>,
        before: &[ForeignKey],
    ) -> Result<Vec<ForeignKey>> {
        let mut next = before.iter().filter_map(|foreign| number_in(foreign.name(), self.label)).max().unwrap_or(0);
        let mut added: Vec<ForeignKey> = Vec::new();
        for new in &self.added {
            let constraint = match new.name {
                "" => {
                    next += 1;
                    format!("{}_ibfk_{next}", self.label)
                }
                given => given.to_owned(),
            };
            let is_here = before.iter().filter(|foreign| !self.drops(foreign.name())).chain(&added);
            if is_here.into_iter().any(|foreign| same_name(foreign.name(), &constraint))
                || self.is_taken(db, name, &constraint)
            {
                return Err(Failure::new(Code::ForeignExists, &constraint));
            }
            added.push(self.one(db, name, schema, rooms, new, &constraint)?);
        }
        Ok(added)
    }

    fn one(
        &self,
        db: &Database,
        name: &str,
        schema: &Schema,
        rooms: &Rooms<'_>,
        new: &NewForeign<'_>,
        constraint: &str,
    ) -> Result<ForeignKey> {
        let own = |column: &&str| {
            column_named(schema, column).ok_or_else(|| refused(&format!("there is no column `{column}`")))
        };
        let columns = new.columns.iter().map(own).collect::<Result<Vec<_>>>()?;
        let is_own = new.parent == name || self.like == Some(new.parent);
        let parent = if is_own { Some(schema.clone()) } else { db.table(new.parent).ok().map(|table| table.schema()) };
        // As they are written there, as far as they are there.
        let other = |column: &&str| {
            let found = parent.as_ref().and_then(|parent| column_named(parent, column));
            found.unwrap_or_else(|| (*column).to_owned())
        };
        let parent_columns: Vec<_> = new.parent_columns.iter().map(other).collect();
        let (bytes, characters) = rooms.of_all(&columns);
        let own: Vec<&str> = columns.iter().map(String::as_str).collect();
        let others: Vec<&str> = parent_columns.iter().map(String::as_str).collect();
        let foreign = ForeignKey::new(constraint, &own, new.parent, &others);
        let foreign = foreign.room(&bytes).room_in_characters(&characters);
        Ok(foreign.on_delete(action(new.on_delete)?).on_update(action(new.on_update)?))
    }

    /// Names of foreign keys are used once in a database.
    fn is_taken(&self, db: &Database, name: &str, constraint: &str) -> bool {
        let database = database_of(self.like.unwrap_or(name));
        let others = db.foreign_keys().into_iter().filter(|(table, _)| table != name && self.like != Some(table));
        others
            .into_iter()
            .any(|(table, foreign)| database_of(&table) == database && same_name(foreign.name(), constraint))
    }
}

fn same_name(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

/// The number in a name that was given to a foreign key of this table which had none.
fn number_in(name: &str, table: &str) -> Option<u64> {
    name.strip_prefix(table)?.strip_prefix("_ibfk_")?.parse().ok()
}

/// Names that foreign keys were given since they had none go with the table's.
pub fn renamed(schema: &Schema, from: &str, to: &str) -> TableChanges {
    schema.foreign_keys().iter().fold(TableChanges::new(), |changes, foreign| match number_in(foreign.name(), from) {
        Some(n) => changes.rename_foreign_key(foreign.name(), &format!("{to}_ibfk_{n}")),
        None => changes,
    })
}

/// As the server numbers them; 0 if the statement does not say.
fn action(number: u8) -> Result<ReferenceAction> {
    Ok(match number {
        0 | 1 => ReferenceAction::Restrict,
        2 => ReferenceAction::NoAction,
        3 => ReferenceAction::Cascade,
        4 => ReferenceAction::SetNull,
        _ => return Err(refused("SET DEFAULT is not supported")),
    })
}

/// The other way.
fn number_of(action: ReferenceAction) -> u8 {
    match action {
        ReferenceAction::Restrict => 1,
        ReferenceAction::NoAction => 2,
        ReferenceAction::Cascade => 3,
        ReferenceAction::SetNull => 4,
    }
}

/// True if all tables that refer to this one are in its database: they go along.
pub fn is_needed_by_its_database_alone(db: &Database, name: &str) -> bool {
    db.references_to(name).iter().all(|(child, _)| database_of(child) == database_of(name))
}

/// True if a write of one row of the table may write others, of whatever tables: what was read ahead does not show them.
pub fn acts_on_others(db: &Database, name: &str) -> bool {
    let acts = |action| matches!(action, ReferenceAction::Cascade | ReferenceAction::SetNull);
    db.any_reference_to(name, |foreign| acts(foreign.deletes()) || acts(foreign.updates()))
}

/// Shows foreign keys of a table, or with `is_parent` those that refer to it, by name; how many.
pub fn each(db: &Database, name: &str, is_parent: bool, mut show: impl FnMut(&abi::Foreign)) -> usize {
    let mut all = match is_parent {
        true => db.references_to(name),
        false => {
            let schema = db.table(name).map(|table| table.schema());
            let own = schema.as_ref().map_or(&[][..], |schema| schema.foreign_keys());
            own.iter().map(|foreign| (name.to_owned(), foreign.clone())).collect()
        }
    };
    all.sort_by(|(_, a), (_, b)| a.name().cmp(b.name()));
    for (child, foreign) in &all {
        let schema_of = |table: &str| db.table(table).ok().map(|table| table.schema());
        let (own, parent) = (schema_of(child), schema_of(foreign.parent()));
        let texts = |names: &[String]| names.iter().map(|name| raw::to_text(name)).collect::<Vec<_>>();
        let (columns, parent_columns) = (texts(foreign.columns()), texts(foreign.parent_columns()));
        let key = parent.as_ref().and_then(|parent| key_over(parent, foreign.parent_columns())).unwrap_or_default();
        show(&abi::Foreign {
            name: raw::to_text(foreign.name()),
            table: raw::to_text(child),
            parent: raw::to_text(foreign.parent()),
            parent_key: raw::to_text(&key),
            columns: columns.as_ptr(),
            parent_columns: parent_columns.as_ptr(),
            count: columns.len() as u32,
            nullable: nullable(own.as_ref(), foreign.columns()),
            parent_nullable: nullable(parent.as_ref(), foreign.parent_columns()),
            on_delete: number_of(foreign.deletes()),
            on_update: number_of(foreign.updates()),
            reserved: [0; 2],
        });
    }
    all.len()
}

/// A bit for each column that may be NULL.
fn nullable(schema: Option<&Schema>, columns: &[String]) -> u32 {
    let Some(schema) = schema else { return 0 };
    let is_nullable = |name: &String| schema.column_number(name).is_some_and(|n| schema.columns()[n].nullable);
    columns.iter().enumerate().filter(|(_, name)| is_nullable(name)).map(|(n, _)| 1 << n).sum()
}

/// An index that a change takes away although a foreign key needs it, of the table or, unless nobody looks, to it.
pub fn needed_index(
    (db, name): (&Database, &str),
    old: &Schema,
    columns: &Columns<'_>,
    new: &Schema,
    change: &ForeignChange<'_>,
) -> Option<String> {
    let own = old.foreign_keys().iter().filter(|foreign| !change.drops(foreign.name())).map(ForeignKey::columns);
    let to_it = if change.unchecked { Vec::new() } else { db.references_to(name) };
    let to_it = to_it.iter().filter(|(child, foreign)| child != name || !change.drops(foreign.name()));
    let all = own.chain(to_it.map(|(_, foreign)| foreign.parent_columns()));
    let is_without =
        |wanted: &&[String]| columns.names_after(wanted).is_none_or(|after| key_over(new, &after).is_none());
    all.filter(is_without).find_map(|wanted| key_over(old, wanted))
}

/// True if a column goes that a foreign key has or refers to, of the table or to it.
pub fn loses_column(
    (db, name): (&Database, &str),
    old: &Schema,
    columns: &Columns<'_>,
    change: &ForeignChange<'_>,
) -> bool {
    let own = old.foreign_keys().iter().filter(|foreign| !change.drops(foreign.name())).map(ForeignKey::columns);
    let to_it = db.references_to(name);
    let to_it = to_it.iter().filter(|(child, foreign)| child != name || !change.drops(foreign.name()));
    let mut all = own.chain(to_it.map(|(_, foreign)| foreign.parent_columns())).flatten();
    all.any(|column| old.column_number(column).is_some() && columns.names_after(std::slice::from_ref(column)).is_none())
}

/// True if the foreign key of a table finds in another, or in the same, what it refers to.
fn refers_to(foreign: &ForeignKey, child: &Schema, parent: &Schema) -> bool {
    let kind = |schema: &Schema, name: &String| {
        let column = &schema.columns()[schema.column_number(name)?];
        Some((column.column_type, column.collation))
    };
    let mut pairs = foreign.columns().iter().zip(foreign.parent_columns());
    pairs.all(|(own, other)| kind(parent, other).is_some() && kind(child, own) == kind(parent, other))
        && key_over(parent, foreign.parent_columns()).is_some()
}

/// The server's name of a key that begins with these columns.
fn key_over(schema: &Schema, columns: &[String]) -> Option<String> {
    let primary: Vec<_> = schema.primary_key().iter().map(|&n| schema.columns()[n].name.clone()).collect();
    if primary.starts_with(columns) {
        return Some("PRIMARY".to_owned());
    }
    let is_whole =
        |index: &&trefoil::IndexSchema| index.parts().take(columns.len()).all(|part| part.front_length().is_none());
    let mut indexes = schema.indexes().iter().filter(|index| index.columns().starts_with(columns));
    indexes.find(is_whole).map(|index| index.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_from_names_of_the_table_alone() {
        assert_eq!(number_in("t_ibfk_12", "t"), Some(12));
        assert_eq!(number_in("t_ibfk_x", "t"), None);
        assert_eq!(number_in("tt_ibfk_1", "t"), None);
        assert_eq!((database_of("d/t"), database_of("t")), ("d", ""));
    }
}
