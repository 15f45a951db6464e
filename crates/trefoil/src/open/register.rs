//! From the catalog's rows to open indexes and tables, each structure from its state in the manifest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CommitTs, Fault, IndexId};
use index::{Direction, EntryBatch, ReadAt};

use crate::catalog::{self, IndexDef, Role, Row, TableDef};
use crate::engine::Engine;
use crate::entry::{IndexEntry, Names, TableEntry, TableShape};
use crate::error::{Error, Result};
use crate::manifest::Manifest;
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
        if let Some(Said::Settings(options)) = names.indexes.get(&def.id).and_then(|rows| rows.said()) {
            def.schema = def.schema.with_primary_options(options);
        }
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
fn open_entry(engine: &Engine, mut def: IndexDef, state: Option<&[u8]>) -> Result<Arc<IndexEntry>> {
    if def.quarantined {
        return Ok(quarantine::entry(&def));
    }
    let (said, state) = match state.map(Said::split).transpose()? {
        Some((said, state)) => (said, Some(state)),
        None => (None, None),
    };
    if let Some(Said::Settings(options)) = said {
        def.options = options;
    }
    match engine.open_structure(&def, state) {
        Ok(index) => {
            let entry = IndexEntry::new(def, index, CommitTs::ZERO);
            entry.say(said);
            Ok(entry)
        }
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
