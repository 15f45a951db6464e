//! Random tables with foreign keys, written to by several transactions side by side, under random schedules: after each commit that
//! anybody sees every row of a child has its parent, and what a transaction alone does is what a model of the rules says.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::*;
use trefoil::{
    ALL, ColumnType, Database, Error, ForeignKey, IndexOptions, IndexSchema, Isolation, Options, ReferenceAction,
    Schema, Structure, Table, Transaction, TransactionOptions, Value,
};
use vfs::sim::{Config, Simulation};

const TABLES: usize = 4;
const KEYS: u64 = 6;
const ACTIONS: [ReferenceAction; 4] =
    [ReferenceAction::Restrict, ReferenceAction::NoAction, ReferenceAction::Cascade, ReferenceAction::SetNull];

/// A foreign key of table `child`: its column `a` or `b`, to the `id` or the `a` of table `parent`.
#[derive(Debug, Clone, Copy)]
struct Link {
    child: usize,
    column: usize,
    parent: usize,
    of: usize,
    delete: ReferenceAction,
    update: ReferenceAction,
}

/// Rows (id, a, b) of each table.
type Rows = Vec<BTreeMap<i64, [Option<i64>; 2]>>;

struct World {
    links: Vec<Link>,
    isolation: Isolation,
    structure: Structure,
}

fn random(below: u64) -> u64 {
    vfs::random::u64() % below
}

fn one_of<T: Copy>(all: &[T]) -> T {
    all[random(all.len() as u64) as usize]
}

impl World {
    fn any() -> Self {
        let mut links: Vec<Link> = Vec::new();
        for child in 0..TABLES {
            for column in 1..=random(3) as usize {
                let parent = random(child as u64 + 1) as usize;
                let of = random(2) as usize;
                // The first table's `a` is what others refer to: nothing that a cascade writes.
                if of == 1 && parent != 0 || child == 0 && column == 1 {
                    continue;
                }
                links.push(Link { child, column, parent, of, delete: one_of(&ACTIONS), update: one_of(&ACTIONS) });
            }
        }
        let isolation = one_of(&[Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable]);
        Self { links, isolation, structure: one_of(&[Structure::Btree, Structure::Betree, Structure::Lsm]) }
    }

    fn make(&self, db: &Database) -> Vec<Table> {
        let options = IndexOptions { structure: self.structure, ..IndexOptions::default() };
        let make = |n: usize| {
            let columns = Schema::builder().column("id", ColumnType::I64).nullable("a", ColumnType::I64);
            let columns = columns.nullable("b", ColumnType::I64).primary_key(&["id"]).primary_options(options);
            let indexes = [("a", vec!["a"]), ("b", vec!["b", "a"])]
                .map(|(name, columns)| IndexSchema::new(name, &columns).with_options(options));
            let columns = indexes.into_iter().fold(columns, |schema, index| schema.index(index));
            let foreign = |(i, link): (usize, &Link)| {
                let (own, other) = (["id", "a", "b"][link.column], ["id", "a"][link.of]);
                let foreign = ForeignKey::new(&format!("f{i}"), &[own], &format!("t{}", link.parent), &[other]);
                foreign.on_delete(link.delete).on_update(link.update)
            };
            let own = self.links.iter().enumerate().filter(|(_, link)| link.child == n).map(foreign);
            let schema = own.fold(columns, |schema, foreign| schema.foreign_key(foreign)).build().unwrap();
            db.create_table(&format!("t{n}"), schema).unwrap()
        };
        (0..TABLES).map(make).collect()
    }

    fn begin(&self, db: &Database) -> Transaction {
        let lock_timeout = Some(Duration::from_millis(50));
        let options = TransactionOptions { isolation: Some(self.isolation), lock_timeout, ..Default::default() };
        db.begin_with(options).unwrap()
    }

    /// Each value of a child is there in its parent.
    fn check(&self, rows: &Rows) {
        for link in &self.links {
            for (id, row) in &rows[link.child] {
                let Some(value) = row[link.column - 1] else { continue };
                let mut parents = rows[link.parent].iter();
                let is_there = parents.any(|(id, row)| if link.of == 0 { *id == value } else { row[0] == Some(value) });
                assert!(is_there, "row {id} of table {} has no parent {value} by {link:?}: {rows:?}", link.child);
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Write {
    Insert(i64, [Option<i64>; 2]),
    Move(i64, i64, [Option<i64>; 2]),
    Delete(i64),
}

impl Write {
    fn any() -> Self {
        let key = || random(KEYS) as i64;
        let value = || (random(3) > 0).then(key);
        match random(5) {
            0..=1 => Self::Insert(key(), [value(), value()]),
            2..=3 => Self::Move(key(), key(), [value(), value()]),
            _ => Self::Delete(key()),
        }
    }

    fn on(self, tx: &mut Transaction, t: &Table) -> Result<bool, Error> {
        let row = |id: i64, rest: [Option<i64>; 2]| [Value::from(id), rest[0].into(), rest[1].into()];
        match self {
            Self::Insert(id, rest) => tx.insert(t, &row(id, rest)).map(|()| true),
            Self::Move(from, to, rest) => tx.move_row(t, &[from.into()], &row(to, rest)),
            Self::Delete(id) => tx.delete_row(t, &[id.into()]),
        }
    }
}

fn read(tx: &Transaction, tables: &[Table]) -> Rows {
    let number = |value: &Value<'_>| if let Value::I64(n) = value { Some(*n) } else { None };
    let one = |t: &Table| {
        let (mut found, mut all) = (BTreeMap::new(), tx.scan(t, ALL).unwrap());
        while let Some(row) = all.next().unwrap() {
            found.insert(number(&row[0]).unwrap(), [number(&row[1]), number(&row[2])]);
        }
        found
    };
    tables.iter().map(one).collect()
}

fn write(world: &World, db: &Database, tables: &[Table]) -> usize {
    let mut refused = 0;
    for _ in 0..12 {
        let mut tx = world.begin(db);
        for _ in 0..1 + random(4) {
            match Write::any().on(&mut tx, &one_of_tables(tables)) {
                Ok(_) | Err(Error::DuplicateKey(_) | Error::LockTimeout { .. }) => {}
                Err(Error::ForeignKey(_)) => refused += 1,
                Err(Error::Deadlock { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
        match random(4) {
            0 => tx.rollback(),
            _ => match tx.commit() {
                Ok(_) | Err(Error::InvalidArgument(_)) => {}
                Err(other) => panic!("{other}"),
            },
        }
    }
    refused
}

fn one_of_tables(tables: &[Table]) -> Table {
    tables[random(tables.len() as u64) as usize].clone()
}

/// Guards: F1, F2, the locks of children, in any of the places that take them; the undoing of a statement.
#[test]
fn random_families_keep_together() {
    let mut refused = 0;
    for seed in 0..60 {
        refused += Simulation::new(seed, Config { steps_max: 20_000_000, ..Config::default() })
            .run(|_| {
                let (world, disk) = (World::any(), disk());
                let db = Database::open("/db", Options { ..options(&disk) }).unwrap();
                let tables = world.make(&db);
                let world = std::sync::Arc::new(world);
                let writers: Vec<_> = (0..3)
                    .map(|_| {
                        let (world, db, tables) = (world.clone(), db.clone(), tables.clone());
                        vfs::thread::spawn("writer", move || write(&world, &db, &tables)).unwrap()
                    })
                    .collect();
                for _ in 0..10 {
                    vfs::thread::sleep(Duration::from_millis(2));
                    let tx = db.begin_with(Isolation::RepeatableRead).unwrap();
                    world.check(&read(&tx, &tables));
                }
                let refused: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
                world.check(&read(&db.begin().unwrap(), &tables));
                let reports = db.verify().unwrap();
                assert!(reports.iter().all(|(_, report)| report.problems.is_empty()), "{reports:?}");
                refused
            })
            .value;
    }
    assert!(refused > 100, "{refused}");
}

/// What the rules say of one write, by trying: none, if it is refused.
fn model(world: &World, rows: &Rows, table: usize, write: Write) -> Option<Rows> {
    let mut rows = rows.clone();
    let (old, new) = match write {
        Write::Insert(id, rest) => (None, Some((id, rest))),
        Write::Move(from, to, rest) => (rows[table].get(&from).map(|row| (from, *row)), Some((to, rest))),
        Write::Delete(id) => (rows[table].get(&id).map(|row| (id, *row)), None),
    };
    change(world, &mut rows, table, old, new, &mut Vec::new()).then_some(rows)
}

type One = (i64, [Option<i64>; 2]);

fn value_of((id, rest): One, of: usize) -> Option<i64> {
    if of == 0 { Some(id) } else { rest[of - 1] }
}

/// A row becomes another one; false if that is refused.
fn change(
    world: &World,
    rows: &mut Rows,
    table: usize,
    old: Option<One>,
    new: Option<One>,
    steps: &mut Vec<(usize, bool)>,
) -> bool {
    if let Some((id, _)) = new
        && old.is_none_or(|(before, _)| before != id)
        && rows[table].contains_key(&id)
    {
        return false;
    }
    if let Some((id, _)) = old {
        rows[table].remove(&id);
    }
    if let Some((id, rest)) = new {
        rows[table].insert(id, rest);
    }
    let is_moved = old.is_some() && old.map(|(id, _)| id) != new.map(|(id, _)| id);
    for link in world.links.iter().filter(|link| link.child == table) {
        let value = |one: Option<One>| one.and_then(|one| value_of(one, link.column));
        if let Some(wanted) = value(new).filter(|wanted| value(old) != Some(*wanted) || is_moved)
            && !rows[link.parent].iter().any(|(id, rest)| value_of((*id, *rest), link.of) == Some(wanted))
        {
            return false;
        }
    }
    steps.push((table, new.is_none()));
    let done = old.is_none_or(|old| {
        world.links.iter().filter(|link| link.parent == table).all(|link| follow(world, rows, link, old, new, steps))
    });
    steps.pop();
    done
}

fn follow(
    world: &World,
    rows: &mut Rows,
    link: &Link,
    old: One,
    new: Option<One>,
    steps: &mut Vec<(usize, bool)>,
) -> bool {
    let (before, after) = (value_of(old, link.of), new.map(|new| value_of(new, link.of)));
    if before.is_none() || after == Some(before) {
        return true;
    }
    let action = if new.is_none() { link.delete } else { link.update };
    let restricts = matches!(action, ReferenceAction::Restrict | ReferenceAction::NoAction);
    if restricts && link.child == link.parent && value_of(old, link.column) == before {
        return false;
    }
    let children: Vec<i64> = rows[link.child]
        .iter()
        .filter(|(id, rest)| value_of((**id, **rest), link.column) == before)
        .map(|(id, _)| *id)
        .collect();
    for id in children {
        let Some(rest) = rows[link.child].get(&id).copied() else { continue };
        if value_of((id, rest), link.column) != before {
            continue;
        }
        let deletes = new.is_none() && action == ReferenceAction::Cascade;
        if restricts
            || (!deletes && steps.iter().any(|(table, deletes)| *table == link.child && !deletes))
            || steps.len() >= 15
        {
            return false;
        }
        let mut changed = rest;
        changed[link.column - 1] = after.flatten().filter(|_| action == ReferenceAction::Cascade);
        let becomes = (!deletes).then_some((id, changed));
        if !change(world, rows, link.child, Some((id, rest)), becomes, steps) {
            return false;
        }
    }
    true
}

/// Guards: what is refused is, what is not is done, row for row: the actions, their order, the chain of steps.
#[test]
fn random_statements_do_what_the_rules_say() {
    let (mut done, mut refused) = (0, 0);
    for seed in 0..40 {
        let (d, r) = Simulation::new(seed, Config { steps_max: 40_000_000, ..Config::default() })
            .run(|_| {
                let (world, disk) = (World::any(), disk());
                let db = Database::open("/db", Options { ..options(&disk) }).unwrap();
                let tables = world.make(&db);
                let mut tx = world.begin(&db);
                let (mut rows, mut done, mut refused): (Rows, _, _) = (vec![BTreeMap::new(); TABLES], 0, 0);
                for _ in 0..120 {
                    let (table, write) = (random(TABLES as u64) as usize, Write::any());
                    let expected = model(&world, &rows, table, write);
                    // Of a row that is not there a move does nothing.
                    let is_there = match write {
                        Write::Insert(..) => true,
                        Write::Move(id, ..) | Write::Delete(id) => rows[table].contains_key(&id),
                    };
                    match (write.on(&mut tx, &tables[table]), is_there) {
                        (Ok(was_there), false) => assert!(!was_there),
                        (Ok(_), true) => (rows, done) = (expected.expect("it is refused"), done + 1),
                        (Err(Error::ForeignKey(_) | Error::DuplicateKey(_)), _) => {
                            assert!(expected.is_none(), "{write:?} of {table} in {rows:?} by {:?}", world.links);
                            refused += 1;
                        }
                        (Err(other), _) => panic!("{other}"),
                    }
                    assert_eq!(read(&tx, &tables), rows, "{write:?} of {table} by {:?}", world.links);
                }
                world.check(&rows);
                tx.commit().unwrap();
                (done, refused)
            })
            .value;
        (done, refused) = (done + d, refused + r);
    }
    assert!(done > 500 && refused > 500, "{done}, {refused}");
}
