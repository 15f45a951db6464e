//! P4: whatever makes more dirty than there is space for, and wherever a checkpoint in rounds is cut off, what was committed is there.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;

use crate::support::*;
use trefoil::{Database, Durability, Error, Index, IndexOptions, Options, Structure};
use vfs::random::Rng;
use vfs::sim::{Handle, SimDisk};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Seeds of which each comes to rounds, and has a place for all of it in the end.
const SEEDS: [u64; 3] = [30_046, 30_063, 30_087];

/// Of so many rows one is short.
const ROWS_PER_SHORT: u32 = 7;
const POINTS: [&str; 5] = ["between_rounds", "evacuates", "published", "composed", "before_publish"];

struct World {
    seed: u64,
    rng: Rng,
    options: Options,
    /// Of both indexes, by number of the index and key.
    rows: Rows,
    prepared: Option<Rows>,
}

fn chance(rng: &mut Rng, of: u64) -> bool {
    rng.below(of) == 0
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len / 8).flat_map(|_| rng.u64().to_be_bytes()).collect()
}

fn indexes(db: &Database) -> [Index; 2] {
    ["zero", "one"].map(|name| db.index(name).unwrap())
}

fn split(key: &[u8]) -> (usize, &[u8]) {
    (usize::from(key[0]), &key[1..])
}

impl World {
    fn new(seed: u64, disk: &SimDisk) -> Self {
        let mut rng = Rng::new(seed);
        let budget_bytes = [2 << 20, 6 << 20, 16 << 20, 16 << 20][rng.below(4) as usize];
        let data_bytes_max = Some([4 << 20, 6 << 20, 8 << 20][rng.below(3) as usize]);
        let disk_reserve_bytes = [256 << 10, 384 << 10, 512 << 10][rng.below(3) as usize];
        let options = Options { budget_bytes, data_bytes_max, disk_reserve_bytes, ..options(disk) };
        World { seed, rng, options, rows: Rows::new(), prepared: None }
    }

    /// Two indexes that fill the data file, and a little room.
    fn begin(&mut self) -> Database {
        let db = Database::open("/db", self.options.clone()).unwrap();
        let structures = [Structure::Btree, Structure::Betree, Structure::Btree, Structure::Lsm];
        for name in ["zero", "one", "spare"] {
            let structure = structures[self.rng.below(4) as usize];
            let node_bytes = [4096, 8192][self.rng.below(2) as usize];
            db.create_index(name, IndexOptions { structure, node_bytes, ..IndexOptions::default() }).unwrap();
        }
        let spare = db.index("spare").unwrap();
        for n in 0..self.rng.below(150) as u32 {
            put(&db, &spare, &n.to_be_bytes(), &bytes(&mut self.rng, 2000), Durability::Write).unwrap();
        }
        drop(spare);
        self.fill_up(&db);
        self.checkpoint(&db);
        db.drop_index("spare").unwrap();
        sleep(500);
        self.checkpoint(&db);
        db
    }

    fn fill_up(&mut self, db: &Database) {
        let indexes = indexes(db);
        let (in_order, two) = (chance(&mut self.rng, 2), chance(&mut self.rng, 2));
        let has_large = chance(&mut self.rng, 5);
        let mut number = 0u32;
        loop {
            let (mut tx, mut some) = (db.begin().unwrap(), Rows::new());
            for _ in 0..50 {
                number += 1;
                let key = if in_order { number } else { number.wrapping_mul(2_654_435_761) };
                let len = match number {
                    n if n.is_multiple_of(ROWS_PER_SHORT) => 8,
                    n if has_large && n.is_multiple_of(50) => 9000,
                    _ => 400,
                };
                let of = if two { number % 2 } else { 0 } as usize;
                let (key, value) = (key.to_be_bytes().to_vec(), bytes(&mut self.rng, len));
                match tx.put(&indexes[of], &key, &value) {
                    Ok(()) => _ = some.insert([&[of as u8], key.as_slice()].concat(), value),
                    Err(Error::DiskFull { .. }) => return,
                    Err(error) => panic!("seed {}: {error}", self.seed),
                }
            }
            match tx.commit_with(Durability::Write) {
                Ok(_) => self.rows.append(&mut some),
                Err(Error::DiskFull { .. }) => return,
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        }
    }

    fn refuse(&mut self, what: &str, error: &Error) {
        assert!(matches!(error, Error::DiskFull { .. } | Error::Limit { .. }), "seed {}: {what}: {error:?}", self.seed);
    }

    fn checkpoint(&mut self, db: &Database) {
        // Merges are refused what is kept for checkpoints.
        let done = if chance(&mut self.rng, 2) { db.settle().or_else(|_| db.checkpoint()) } else { db.checkpoint() };
        if let Err(error) = done {
            self.refuse("checkpoint", &error);
        }
    }

    /// A transaction that changes next to every leaf, or prepares to, or deletes a range.
    fn change(&mut self, db: &Database) {
        let indexes = indexes(db);
        let mut tx = db.begin().unwrap();
        if chance(&mut self.rng, 12) {
            let (of, share) = (self.rng.below(2) as usize, self.rng.below(3) as usize + 1);
            let mine: Vec<&Vec<u8>> = self.rows.keys().filter(|key| split(key).0 == of).collect();
            if mine.len() < 2 {
                return;
            }
            let (low, high) = (
                mine[mine.len() / 4].clone(),
                mine[(mine.len() / 4 + mine.len() / 4 * share).min(mine.len() - 1)].clone(),
            );
            match tx.delete_range(&indexes[of], split(&low).1..split(&high).1) {
                Ok(()) => {}
                Err(Error::DiskFull { .. } | Error::LockTimeout { .. }) => return,
                Err(error) => panic!("seed {}: {error:?}", self.seed),
            }
            tx.commit().unwrap();
            self.rows.retain(|key, _| *key < low || *key >= high);
            return;
        }
        let (mut changed, deletes, every) =
            (Rows::new(), chance(&mut self.rng, 10), [1, 1, 1, 2][self.rng.below(4) as usize]);
        let length = if chance(&mut self.rng, 6) { 5000 } else { 8 };
        for (key, value) in self.rows.iter().filter(|(_, value)| value.len() == 8) {
            if !chance(&mut self.rng, every) {
                continue;
            }
            let (of, name) = split(key);
            let value: Vec<u8> = if chance(&mut self.rng, 50) {
                bytes(&mut self.rng, length)
            } else {
                value.iter().map(|b| b.wrapping_add(1)).collect()
            };
            let done =
                if deletes { tx.delete(&indexes[of], name).map(drop) } else { tx.put(&indexes[of], name, &value) };
            match done {
                Ok(()) => _ = changed.insert(key.clone(), if deletes { Vec::new() } else { value }),
                Err(Error::DiskFull { .. } | Error::LockTimeout { .. } | Error::Limit { .. }) => return,
                Err(error) => panic!("seed {}: {error:?}", self.seed),
            }
        }
        if self.prepared.is_none() && chance(&mut self.rng, 3) {
            match tx.prepare(b"xid") {
                Ok(_) => self.prepared = Some(changed),
                Err(Error::DiskFull { .. }) => {}
                Err(error) => panic!("seed {}: {error:?}", self.seed),
            }
            return;
        }
        match tx.commit() {
            Ok(_) => self.take(changed),
            Err(Error::DiskFull { .. }) => {}
            Err(error) => panic!("seed {}: {error:?}", self.seed),
        }
    }

    fn take(&mut self, changed: Rows) {
        for (key, value) in changed {
            if value.is_empty() { _ = self.rows.remove(&key) } else { _ = self.rows.insert(key, value) }
        }
    }

    fn decide(&mut self, db: &Database) {
        let Some(changed) = self.prepared.take() else { return };
        if chance(&mut self.rng, 3) {
            db.rollback_prepared(b"xid").unwrap();
        } else {
            db.commit_prepared(b"xid").unwrap();
            self.take(changed);
        }
    }

    fn is_whole(&self, db: &Database) {
        for (of, index) in indexes(db).iter().enumerate() {
            let found = all(db, index);
            let wanted = self.rows.iter().filter(|(key, _)| split(key).0 == of);
            assert!(
                found.iter().map(|(k, v)| (&k[..], v)).eq(wanted.map(|(k, v)| (&k[1..], v))),
                "seed {}: other rows of {of} than were committed",
                self.seed
            );
        }
    }

    /// Cuts the power somewhere in a checkpoint, or in the opening behind it, and opens.
    fn cut(&mut self, sim: &Handle, disk: SimDisk, db: Database) -> (SimDisk, Database) {
        let point = |rng: &mut Rng| format!("checkpoint.{}", POINTS[rng.below(5) as usize]);
        let gate = sim.hold_nth(&point(&mut self.rng), self.rng.below(4));
        let checkpoint = spawn("checkpoint", move || drop(db.settle()));
        while !gate.is_reached() && !checkpoint.is_finished() {
            sleep(1);
        }
        disk.power_cut(self.rng.below(1000));
        gate.open();
        checkpoint.join().unwrap();
        let mut disk = disk.reboot();
        loop {
            self.options.vfs = std::sync::Arc::new(disk.clone());
            if chance(&mut self.rng, 2) {
                let gate = sim.hold_nth(&point(&mut self.rng), self.rng.below(4));
                let options = self.options.clone();
                let opening = spawn("opening", move || drop(Database::open("/db", options)));
                while !gate.is_reached() && !opening.is_finished() {
                    sleep(1);
                }
                disk.power_cut(self.rng.below(1000));
                gate.open();
                opening.join().unwrap();
                disk = disk.reboot();
                continue;
            }
            match Database::open("/db", self.options.clone()) {
                Ok(db) => return (disk, db),
                Err(error) => {
                    self.refuse("opening", &error);
                    self.options.data_bytes_max = self.options.data_bytes_max.map(|max| max + (1 << 20));
                }
            }
        }
    }
}

fn sound_if(db: &Database) {
    if db.checkpoint().is_ok() {
        sound(db);
    }
}

fn history(sim: &Handle, seed: u64) {
    let mut disk = disk();
    let mut world = World::new(seed, &disk);
    let mut db = world.begin();
    world.is_whole(&db);
    for _ in 0..8 {
        let held = chance(&mut world.rng, 3).then(|| (db.snapshot().unwrap(), world.rows.clone()));
        for _ in 0..=world.rng.below(2) {
            world.change(&db);
            if chance(&mut world.rng, 3) {
                world.decide(&db);
            }
            if chance(&mut world.rng, 3) {
                sleep(200);
            }
        }
        match world.rng.below(3) {
            0 => {
                drop(held);
                (disk, db) = world.cut(sim, disk, db);
            }
            _ => {
                world.checkpoint(&db);
                if let Some((snapshot, rows)) = held {
                    for (of, index) in indexes(&db).iter().enumerate() {
                        let found = snapshot.range(index, ..).unwrap().collect().unwrap();
                        let wanted = rows.iter().filter(|(key, _)| split(key).0 == of);
                        assert!(
                            found.iter().map(|(k, v)| (&k[..], &v[..])).eq(wanted.map(|(k, v)| (&k[1..], &v[..]))),
                            "seed {seed}: snapshot"
                        );
                    }
                }
            }
        }
        world.is_whole(&db);
    }
    sound_if(&db);
    world.decide(&db);
    (disk, db) = world.cut(sim, disk, db);
    world.is_whole(&db);
    sound_if(&db);
    drop((db, disk));
}

/// Guards: all that is said of rounds (docs/RECOVERY.md).
#[test]
fn p4_rounds_at_random() {
    for seed in SEEDS {
        simulate_long_by(seed, move |sim| history(sim, seed));
    }
}
