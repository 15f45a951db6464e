//! From the catalog's rows to open indexes and tables, each structure from its state in the manifest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, Fault, IndexId};
use index::{Direction, EntryBatch, ReadAt};

use crate::catalog::{self, IndexDef, Role, Row, TableDef};
use crate::engine::Engine;
use crate::entry::{IndexEntry, Names, TableEntry, TableShape};
use crate::error::{Error, Result};
use crate::manifest::{IndexEntry as SavedIndex, Manifest};
use crate::options::IndexOptions;
use crate::quarantine;
use crate::recovery::Target;
use crate::said::Said;

type KeyValue = (Vec<u8>, Vec<u8>);

fn catalog_rows(catalog: &Arc<dyn index::Index>) -> base::Result<Vec<KeyValue>> {
    use std::ops::Bound::Unbounded;
    let mut cursor = catalog.cursor(ReadAt::Newest, (Unbounded, Unbounded), Direction::Forward);
    let (mut batch, mut rows) = (EntryBatch::new(), Vec::new());
    loop {
        let more = cursor.fill(&mut batch, 256)?;
        rows.extend((0..batch.len()).map(|i| (batch.key(i).to_vec(), batch.value(i).to_vec())));
        if !more {
            return Ok(rows);
        }
    }
}

pub fn read_catalog(catalog: &Target) -> Result<Vec<Row>> {
    let rows = catalog_rows(&catalog.entry.index)?;
    Ok(rows.iter().map(|(key, value)| catalog::decode_row(key, value)).collect::<base::Result<_>>()?)
}

/// The catalog's record decides what the switch of rows came to ([`crate::ddl`]'s `rows`). It has the settings that the manifest says
/// before their state: that is their state, and nothing is said any more. It has others: the record did not come to be, and the
/// manifest is read as before the switch, the two numbers changed back. The log has all that either lacks.
///
/// Other states may have the table for their owner, of changes of before that are not freed yet: the switch gave the highest number.
pub fn take_back_switches(manifest: &mut Manifest, rows: &[Row]) -> Result<()> {
    for row in rows {
        let Row::Index(def) = row else { continue };
        let Some(new) = manifest.indexes.iter().position(|saved| saved.id == def.id) else { continue };
        let (Some(Said::Settings(settings)), state) = Said::split(&manifest.indexes[new].state)? else { continue };
        let state = state.to_vec();
        if settings == def.options {
            manifest.indexes[new].state = state;
            continue;
        }
        let is_of_rows =
            |saved: &SavedIndex| Said::split(&saved.state).is_ok_and(|(said, _)| said == Some(Said::Owner(def.id)));
        let old = manifest.indexes.iter().rposition(is_of_rows).ok_or_else(|| {
            let expected = format!("the state of the rows of index {} from before a switch", def.id);
            Fault::corrupt("manifest", 0, "states of rows", expected, "none")
        })?;
        let before = Said::split(&manifest.indexes[old].state)?.1.to_vec();
        manifest.indexes[old].state = before;
        manifest.indexes[new].state = Said::Owner(def.id).before(&state);
        let other = manifest.indexes[old].id;
        manifest.indexes.swap(old, new);
        (manifest.indexes[new].id, manifest.indexes[old].id) = (def.id, other);
    }
    Ok(())
}

/// Opens the structures of all indexes and registers the names.
pub fn register(engine: &Engine, catalog: Target, rows: Vec<Row>, manifest: &Manifest) -> Result<()> {
    let state_of = |id: IndexId| manifest.indexes.iter().find(|e| e.id == id).map(|e| e.state.as_slice());
    let mut names = Names::default();
    names.indexes.insert(IndexId::CATALOG, catalog.entry);
    let (mut indexes, mut tables, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        match row {
            Row::Index(def) => indexes.push(def),
            Row::Table(def) => tables.push(def),
            Row::Clock(id, tick) => clocks.push((id, tick)),
        }
    }
    for def in indexes {
        let state = state_of(def.id);
        let entry = open_entry(engine, def, state)?;
        if entry.def.role == Role::Plain {
            names.plain.insert(entry.def.name.clone(), entry.clone());
        }
        names.indexes.insert(entry.id(), entry);
    }
    for (id, tick) in clocks {
        // It may have been dropped while its clock ticked.
        if let Some(expiry) = names.indexes.get(&id).and_then(|entry| entry.index.expiry()) {
            engine.clock.go_on_from(tick.ms());
            expiry.restore(tick);
        }
    }
    for mut def in tables {
        def.schema = def.schema.with_collations(&engine.options.collations);
        let shape = shape_of(&names, def)?;
        let name = shape.def.name.clone();
        let table = TableEntry::new(shape);
        names.link(&table);
        names.tables.insert(name, table);
    }
    engine.has_foreign_keys.store(!names.references.is_empty(), Ordering::Relaxed);
    *engine.names.write() = names;
    free_unknown(engine, manifest);
    Ok(())
}

/// The entry of an index; in place of a secondary one that cannot be opened stands a quarantined one.
fn open_entry(engine: &Engine, def: IndexDef, state: Option<&[u8]>) -> Result<Arc<IndexEntry>> {
    if def.quarantined {
        return Ok(quarantine::entry(&def));
    }
    match engine.open_structure(&def, state) {
        Ok(index) => Ok(IndexEntry::new(def, index, CommitTs::ZERO)),
        Err(Error::Corrupt(_) | Error::Io { op: "read", .. }) if matches!(def.role, Role::Secondary(_)) => {
            let entry = quarantine::entry(&def);
            // The catalog does not know yet.
            entry.note_damage();
            Ok(entry)
        }
        Err(error) => Err(error),
    }
}

/// States whose id the catalog does not know belong to a creation that was never committed, or to a drop that was; those
/// of quarantined indexes, to what they were before. Their blocks are freed; nobody misses what cannot be read of them.
fn free_unknown(engine: &Engine, manifest: &Manifest) {
    let mut published = engine.checkpoint.lock();
    for saved in &manifest.indexes {
        if engine.index(saved.id).is_some_and(|entry| !entry.def.quarantined) {
            continue;
        }
        let (said, state) = Said::split(&saved.state).unwrap_or((None, &saved.state));
        let def = IndexDef {
            id: if let Some(Said::Owner(id)) = said { id } else { saved.id },
            name: "(not in the catalog)".into(),
            role: Role::Plain,
            options: IndexOptions::of_unknown(),
            quarantined: false,
        };
        if engine.options.read_only {
            // Nobody needs the space; what is counted of it has no owner.
            published.lost.freed(false);
            continue;
        }
        let freed = engine.open_structure(&def, Some(state)).and_then(|index| Ok(index.destroy()?));
        published.lost.freed(freed.is_ok());
    }
}

fn shape_of(names: &Names, def: TableDef) -> Result<TableShape> {
    let find = |id: IndexId| {
        names.indexes.get(&id).cloned().ok_or_else(|| {
            let found = format!("none with number {id}");
            Fault::corrupt("catalog", 0, "index of a table", format!("one for table {:?}", def.name), found)
        })
    };
    let primary = find(def.id)?;
    let secondaries = def.secondaries.iter().map(|id| find(*id)).collect::<base::Result<Vec<_>>>()?;
    Ok(TableShape::new(def, primary, secondaries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Structure;
    use base::Lsn;

    const ROWS: IndexId = IndexId(3);

    fn of(structure: Structure) -> IndexOptions {
        IndexOptions { structure, ..IndexOptions::default() }
    }

    fn saved(id: u32, state: Vec<u8>) -> SavedIndex {
        SavedIndex { id: IndexId(id), skip: Lsn(u64::from(id) * 16), state, runs: vec![u64::from(id)] }
    }

    /// What is read of a manifest whose rows have said settings; of a catalog that has these, and none of the indexes beside them.
    fn read(beside: Vec<SavedIndex>, catalog: Structure) -> Result<Vec<SavedIndex>> {
        let said = Said::Settings(of(Structure::Lsm)).before(b"new");
        let indexes = [vec![saved(0, b"c".to_vec()), saved(ROWS.0, said)], beside].concat();
        let mut manifest = Manifest { indexes, ..Manifest::default() };
        let (name, role) = ("primary".to_owned(), Role::Primary);
        let def = IndexDef { id: ROWS, name, role, options: of(catalog), quarantined: false };
        take_back_switches(&mut manifest, &[Row::Index(def)])?;
        Ok(manifest.indexes)
    }

    /// Guards: the settings are compared; states, what they lack of the log and their runs change places, not the numbers; the last of
    /// those that the rows own is taken; without one the manifest is refused.
    #[test]
    fn a26_the_catalog_decides_what_a_switch_came_to() {
        let owned = |id, state: &[u8]| saved(id, Said::Owner(ROWS).before(state));
        let other = saved(9, Said::Owner(IndexId(4)).before(b"other"));
        let beside = || vec![owned(5, b"earlier"), owned(8, b"old"), other.clone()];
        let done = read(beside(), Structure::Lsm).expect("it is whole");
        let kept = [vec![saved(0, b"c".to_vec()), saved(ROWS.0, b"new".to_vec())], beside()].concat();
        assert_eq!(done, kept);
        let taken_back = read(beside(), Structure::Btree).expect("it is whole");
        let (old, new) = (saved(8, b"old".to_vec()), owned(3, b"new"));
        let swapped = [
            saved(0, b"c".to_vec()),
            SavedIndex { id: ROWS, ..old },
            owned(5, b"earlier"),
            SavedIndex { id: IndexId(8), ..new },
            other.clone(),
        ];
        assert_eq!(taken_back, swapped);
        assert!(matches!(read(vec![other], Structure::Btree), Err(Error::Corrupt(_))));
    }
}
