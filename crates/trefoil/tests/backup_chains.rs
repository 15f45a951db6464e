//! A chain of increments through all that may happen between two links, link by link, beside another chain of the same database: power
//! cuts that lose what was not synced, checkpoints that fail, indexes that are damaged and made anew, tables that come again under
//! their name, rows that change their structure, prepared transactions, runs, space that is given back, versions that expire.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::increments::{noise, vfs_of};
use crate::quarantine::{delete, rot_at};
use crate::support::damage::block_of;
use crate::support::*;
use trefoil::{ALL, CommitTs, Database, Durability, Error, IndexOptions, Options, Structure, Value};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::{Config, DiskConfig, SimDisk, Simulation};
use vfs::time::Instant;

const TTL: u64 = 600;
/// The number of the first table's index.
const BY_COLOUR: u32 = 2;

/// Everything that may be read.
#[derive(Debug, PartialEq, Clone)]
struct State {
    indexes: BTreeMap<String, Entries>,
    tables: BTreeMap<String, Vec<Vec<Value<'static>>>>,
    prepared: Vec<Vec<u8>>,
    set_aside: Vec<String>,
}

fn state(db: &Database) -> State {
    let (indexes, tables) = db.names();
    let snapshot = db.snapshot().unwrap();
    let rows = |name: &String| {
        let table = db.table(name).unwrap();
        let (mut rows, mut cursor) = (Vec::new(), snapshot.scan(&table, ALL).unwrap());
        while let Some(row) = cursor.next().unwrap() {
            rows.push(row.into_iter().map(Value::into_owned).collect());
        }
        rows
    };
    State {
        tables: tables.iter().map(|name| (name.clone(), rows(name))).collect(),
        indexes: indexes.iter().map(|name| (name.clone(), all(db, &db.index(name).unwrap()))).collect(),
        prepared: db.prepared().unwrap().into_iter().map(|set| set.xid).collect(),
        set_aside: db.stats().quarantined,
    }
}

/// A backup of a chain, and what it shows.
struct Link {
    at: CommitTs,
    made: Instant,
    state: State,
}

struct World {
    disk: SimDisk,
    db: Option<Database>,
    chains: [Vec<Link>; 2],
}

fn settings(disk: &SimDisk) -> Options {
    Options { inline_batch_bytes: 600, vfs: vfs_of(disk), ..options(disk) }
}

fn structured(structure: Structure) -> IndexOptions {
    let node_bytes = if structure == Structure::Lsm { 4096 } else { 512 };
    IndexOptions { structure, node_bytes, ..small_nodes() }
}

fn dir(chain: usize, n: usize) -> String {
    format!("/copy/{}{n}", ["a", "b"][chain])
}

impl World {
    fn new(disk: SimDisk) -> Self {
        let db = Database::open("/db", settings(&disk)).unwrap();
        let rows = table(&db, "rows");
        db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
        (0..1500).step_by(100).for_each(|id| insert(&db, &rows, id..id + 100).unwrap());
        for (name, structure) in [("btree", Structure::Btree), ("betree", Structure::Betree), ("lsm", Structure::Lsm)] {
            db.create_index(name, structured(structure)).unwrap();
            noise(&db, name, 0..200, 1);
        }
        let expiring = IndexOptions { ttl_seconds: Some(TTL), ..structured(Structure::Lsm) };
        db.create_index("expires", expiring).unwrap();
        noise(&db, "expires", 0..100, 2);
        Self { disk, db: Some(db), chains: Default::default() }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    /// Adds a link to a chain.
    fn link(&mut self, chain: usize) {
        let n = self.chains[chain].len();
        let base = n.checked_sub(1).map(|n| dir(chain, n));
        let backup = self.db().backup().rate_bytes(u64::MAX);
        let at = base.as_ref().map_or(backup, |base| backup.since(base)).to(dir(chain, n)).unwrap();
        let state = state(self.db());
        self.chains[chain].push(Link { at, made: Instant::now(), state });
    }

    /// Some of everything is written anew; the last is not synced.
    fn write(&self, round: u32) {
        let db = self.db();
        for (name, keys) in [("btree", 150), ("betree", 40), ("lsm", 90), ("expires", 30)] {
            let from = round * 31 % 150;
            noise(db, name, from..from + keys, u64::from(round) + 100);
        }
        let rows = db.table("rows").unwrap();
        insert(db, &rows, u64::from(round) * 1000 + 5000..u64::from(round) * 1000 + 5040).unwrap();
        put(db, &db.index("btree").unwrap(), b"unsynced", &round.to_be_bytes(), Durability::Buffered).unwrap();
    }

    fn checkpoint(&self) {
        self.db().settle().unwrap();
        self.db().checkpoint().unwrap();
    }

    /// What was not synced may be lost.
    fn cut(&mut self) {
        self.disk = cut(&self.disk, self.db.take().unwrap());
        self.db = Some(Database::open("/db", settings(&self.disk)).unwrap());
    }

    fn close(&mut self) {
        self.db.take().unwrap().close().unwrap();
    }

    fn open(&mut self) {
        self.db = Some(Database::open("/db", settings(&self.disk)).unwrap());
    }

    /// A checkpoint has written its blocks and its state, and finds no room for its manifest.
    fn fail_checkpoint(&self) {
        self.disk.faults().add(Rule::new(Action::StorageFull).on(Class::Write).path("/db/MANIFEST").forever());
        for round in 50..53 {
            self.write(round);
            assert!(matches!(self.db().checkpoint(), Err(Error::DiskFull { .. })));
        }
        let refused = self.db().backup().since(&dir(0, self.chains[0].len() - 1)).to("/copy/never");
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
        self.disk.faults().clear();
        self.write(53);
    }

    /// The table's index is damaged and set aside.
    fn damage(&mut self) {
        self.checkpoint();
        self.close();
        rot_at(&self.disk, block_of(&self.disk, BY_COLOUR, (0, 0)).offset);
        self.open();
        let rows = self.db().table("rows").unwrap();
        let met = (0..1500).find(|id| {
            let is_there = self.db().stats().quarantined.is_empty();
            is_there && delete(self.db(), &rows, *id).is_ok() && !self.db().stats().quarantined.is_empty()
        });
        assert!(met.is_some() || !self.db().stats().quarantined.is_empty(), "nobody met the damage");
    }

    fn rebuild(&self) {
        self.db().rebuild_index(&self.db().table("rows").unwrap(), "by_colour").unwrap();
    }

    /// The same names, other contents.
    fn come_again(&self, rows: Range<u64>) {
        let db = self.db();
        if db.table("again").is_ok() {
            db.drop_table("again").unwrap();
            db.drop_index("passing").unwrap();
        }
        insert(db, &table(db, "again"), rows.clone()).unwrap();
        index(db, "passing");
        noise(db, "passing", 0..1000, rows.start);
        self.checkpoint();
    }

    /// Rows get another structure, beside a link.
    fn change_rows(&mut self, structure: Structure) {
        let db = self.db().clone();
        let change = spawn("change", move || {
            let rows = db.table("rows").unwrap();
            db.change_table_rows(&rows, structured(structure)).unwrap();
        });
        self.link(0);
        change.join().unwrap();
    }

    fn prepare(&self, xid: &[u8], key: &[u8]) {
        let db = self.db();
        let mut tx = db.begin().unwrap();
        for name in ["btree", "betree", "lsm"] {
            tx.put(&db.index(name).unwrap(), key, &[7; 300]).unwrap();
        }
        tx.prepare(xid).unwrap();
    }

    fn give_space_back(&self) {
        let before = self.db().stats().space.file_bytes;
        self.db().drop_table("again").unwrap();
        self.db().drop_index("passing").unwrap();
        (0..3).for_each(|_| self.checkpoint());
        sleep(60_000);
        let after = self.db().stats().space.file_bytes;
        assert!(after < before, "{before} bytes of the file, {after} behind it");
    }

    fn delete_ranges(&self) {
        let db = self.db();
        let mut tx = db.begin().unwrap();
        for name in ["btree", "betree", "lsm"] {
            let (low, high) = (20u32.to_be_bytes(), 90u32.to_be_bytes());
            tx.delete_range(&db.index(name).unwrap(), &low[..]..&high[..]).unwrap();
        }
        tx.commit().unwrap();
    }

    /// Each link of a chain, restored with those before it, shows what it was made of.
    fn judge(&self, chain: usize) {
        for (n, link) in self.chains[chain].iter().enumerate() {
            let backups: Vec<String> = (0..=n).map(|n| dir(chain, n)).collect();
            let to = format!("/restored/{chain}/{n}");
            assert_eq!(Database::restore(&backups, &to, settings(&self.disk)).unwrap(), link.at, "{to}");
            let copy = Database::open(&to, Options { create: false, ..settings(&self.disk) }).unwrap();
            let (mut found, mut wanted) = (state(&copy), link.state.clone());
            if link.made.elapsed() > Duration::from_secs(TTL - 100) {
                [&mut found, &mut wanted].into_iter().for_each(|state| drop(state.indexes.remove("expires")));
            }
            for (name, entries) in &wanted.indexes {
                assert!(found.indexes.get(name) == Some(entries), "{name} of {to}");
            }
            assert!(found == wanted, "{to}");
            let problems = copy.verify().unwrap().into_iter().flat_map(|(_, report)| report.problems);
            let others: Vec<_> = problems.filter(|problem| problem.what != "quarantined index").collect();
            assert!(others.is_empty(), "{to}: {others:?}");
        }
    }
}

type Event = fn(&mut World);

const EVENTS: [Event; 17] = [
    |world| world.cut(),
    |world| world.fail_checkpoint(),
    |world| world.come_again(0..500),
    |world| world.prepare(b"first", b"prepared"),
    |world| world.cut(),
    |world| world.damage(),
    |world| world.come_again(100..300),
    |world| world.rebuild(),
    |world| assert!(world.db().commit_prepared(b"first").is_ok()),
    |world| world.delete_ranges(),
    |world| world.prepare(b"second", b"never"),
    |world| world.change_rows(Structure::Lsm),
    |world| world.db().rollback_prepared(b"second").unwrap(),
    |world| world.give_space_back(),
    |world| {
        sleep(2 * TTL * 1000);
        world.checkpoint();
    },
    |world| world.come_again(700..900),
    |world| {
        world.change_rows(Structure::Btree);
        world.close();
        world.open();
    },
];

fn run(seed: u64) {
    Simulation::new(seed, Config { steps_max: 400_000_000, ..Config::default() }).run(move |_| {
        let mut world = World::new(SimDisk::new(DiskConfig::seed(seed)));
        (0..2).for_each(|chain| world.link(chain));
        for (n, event) in EVENTS.into_iter().enumerate() {
            if !(n as u64 + seed).is_multiple_of(3) {
                world.checkpoint();
            }
            event(&mut world);
            world.write(n as u32);
            world.link(0);
            if (n as u64 + seed).is_multiple_of(2) {
                world.link(1);
            }
        }
        (0..2).for_each(|chain| world.judge(chain));
    });
}

/// Guards: those of an extent's generation, of the links' order, and of what a manifest names.
#[test]
fn a_chain_through_everything_shows_each_of_its_moments() {
    (0..2).for_each(run);
}
