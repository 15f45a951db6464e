//! Definition changes and checkpoints beside the others.

use std::time::Duration;

use trefoil::{ColumnType, Compression, Error, IndexOptions, Isolation, Shape, Structure, TableChanges, Value};
use vfs::random::Rng;

use super::doing::Doing;
use super::write::value;
use super::{Shared, Step, step};
use crate::history::{ExtraState, Map};
use crate::world::{Extra, SPARE, World, schema, secondary};

/// Names of what comes and goes: indexes, and a table.
const NAMES: [&str; 4] = ["extra0", "extra1", "extra2", "table3"];
/// Secondary indexes the table may get beside its own.
const ADDED: [&str; 2] = ["added0", "one_a_added"];

/// The life of the thread that changes definitions.
pub fn manage(world: &World, history: &Shared, rng: &mut Rng) {
    for _ in 0..3 + rng.below(3) {
        vfs::thread::sleep(Duration::from_micros(rng.below(5000)));
        let result = match rng.below(13) {
            0 => world.db.checkpoint(),
            1 => world.db.settle(),
            2..=3 => add(world, history, rng),
            4 => renew(world, rng),
            5 => take_away(world, history, rng),
            12 => alter(world),
            n => change(world, history, NAMES[rng.index(NAMES.len())], n > 6, rng),
        };
        if step(result) == Step::Over {
            return;
        }
    }
}

/// The life of a thread that makes one checkpoint after the other.
pub fn checkpoint(world: &World, _: &Shared, rng: &mut Rng) {
    for _ in 0..world.sizes.checkpoints {
        if step(world.db.checkpoint()) == Step::Over {
            return;
        }
        vfs::thread::sleep(Duration::from_micros(rng.below(300)));
    }
}

/// Makes what is not there; drops what is, if it may.
fn change(world: &World, history: &Shared, name: &str, may_drop: bool, rng: &mut Rng) -> Result<(), Error> {
    let there = history.lock().extra.get(name).map_or(Some(false), |extra| extra.there);
    match there {
        Some(false) => create(world, history, name, rng),
        Some(true) if may_drop => drop_one(world, history, name),
        _ => Ok(()),
    }
}

/// Makes an index or table and fills it.
fn create(world: &World, history: &Shared, name: &str, rng: &mut Rng) -> Result<(), Error> {
    let creation = history.lock().number();
    let note = |there| history.lock().extra.insert(name.to_owned(), ExtraState { creation, there });
    note(None);
    let made = if name.starts_with("table") {
        world.db.create_table(name, schema(&world.sizes)).map(Extra::Table)
    } else {
        world.db.create_index(name, world.sizes.plain_options()).map(Extra::Index)
    };
    note(certain(&made, true));
    let handle = made?;
    world.extras.lock().insert(name.to_owned(), (creation, handle.clone()));
    let mut doing = Doing::begin(world, history, Isolation::ReadCommitted)?;
    let (map, max) = (Map::Extra(creation), world.sizes.value_bytes_max.max(60));
    for key in 0..10 + rng.below(40) {
        match &handle {
            Extra::Index(index) => doing.put(map, index, &key.to_be_bytes(), value(rng, max))?,
            Extra::Table(table) => {
                let (a, b) = (world.sizes.some_a(rng), value(rng, max));
                let row = [Value::U64(key), Value::U32(a), Value::Bytes(b.into()), Value::U32(SPARE.1)];
                doing.insert(map, table, &row)?;
            }
        }
    }
    doing.commit(history, rng)?;
    match &handle {
        Extra::Table(table) if rng.chance(0.5) => {
            // Its handle may be the last that is left of it: building goes on under a drop too.
            world.db.create_table_indexes(table, vec![secondary(&world.sizes, "late")])
        }
        _ => Ok(()),
    }
}

fn drop_one(world: &World, history: &Shared, name: &str) -> Result<(), Error> {
    let note = |there| history.lock().extra.get_mut(name).expect("it was made").there = there;
    note(None);
    let handle = world.extras.lock().remove(name);
    let result = match &handle {
        Some((_, Extra::Table(_))) => world.db.drop_table(name),
        _ => world.db.drop_index(name),
    };
    let state = certain(&result, false);
    note(state);
    if state == Some(true)
        && let Some(handle) = handle
    {
        world.extras.lock().insert(name.to_owned(), handle);
    }
    result
}

/// Adds indexes to the table under load, in one pass.
fn add(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let mut missing = ADDED.to_vec();
    {
        let mut history = history.lock();
        missing.retain(|name| !history.added.contains_key(*name));
        missing.truncate(1 + rng.index(2));
        history.added.extend(missing.iter().map(|name| ((*name).to_owned(), None)));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let new = missing.iter().map(|name| secondary(&world.sizes, name)).collect();
    let result = world.db.create_table_indexes(&world.table, new);
    let state = certain(&result, true);
    let mut history = history.lock();
    for name in missing {
        if state == Some(false) {
            history.added.remove(name);
        } else {
            history.added.insert(name.to_owned(), state);
        }
    }
    result
}

/// Makes an index of the table anew under load, perhaps with other settings.
fn renew(world: &World, rng: &mut Rng) -> Result<(), Error> {
    let schema = world.table.schema();
    let index = &schema.indexes()[rng.index(schema.indexes().len())];
    if rng.chance(0.5) {
        return world.db.rebuild_index(&world.table, index.name());
    }
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd][rng.index(3)];
    let mut options = IndexOptions { compression, ..world.sizes.index_options() };
    // Where there are Bε-trees, an index is one now, and a B-tree then.
    if options.structure == Structure::Betree && rng.chance(0.5) {
        options.structure = Structure::Btree;
    }
    if options.structure == Structure::Lsm && rng.chance(0.5) {
        options.structure = if rng.chance(0.5) { Structure::Btree } else { Structure::Betree };
        options.shape = Shape::default();
    }
    world.db.change_table_index(&world.table, index.name(), options)
}

/// Rows get another version under load, and look as before.
fn alter(world: &World) -> Result<(), Error> {
    let (name, value) = SPARE;
    let changes = TableChanges::new().drop_column(name).add_column(name, ColumnType::U32, value.into());
    world.db.alter_table(&world.table, &changes)
}

/// Drops an index that was added to the table, under load.
fn take_away(world: &World, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
    let there: Vec<String> = history.lock().added.keys().cloned().collect();
    if there.is_empty() {
        return Ok(());
    }
    let name = &there[rng.index(there.len())];
    history.lock().added.insert(name.clone(), None);
    let result = world.db.drop_table_index(&world.table, name);
    let mut history = history.lock();
    match &result {
        Ok(()) | Err(Error::NotFound { .. }) => drop(history.added.remove(name)),
        other => drop(history.added.insert(name.clone(), certain(other, false))),
    }
    drop(history);
    result
}

/// What is certain after a definition change that should leave it `there`.
fn certain<T>(result: &Result<T, Error>, there: bool) -> Option<bool> {
    match result {
        Ok(_) => Some(there),
        Err(
            Error::DiskFull { .. } | Error::LockTimeout { .. } | Error::HeldByPrepared { .. } | Error::DuplicateKey(_),
        ) => Some(!there),
        Err(_) => None,
    }
}
