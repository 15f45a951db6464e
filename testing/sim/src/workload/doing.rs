//! A transaction under way: what it did so far, for the model, and how it ends.

use trefoil::{Durability, Error, Index, Isolation, LockMode, Locking, Table, Transaction, Value};
use vfs::random::Rng;

use super::Shared;
use crate::history::{Acknowledged, Commit, Current, Map, Writes};
use crate::world::{Extra, World, flat};

/// What a transaction under way has done.
pub struct Doing<'a> {
    /// Where.
    pub world: &'a World,
    /// The engine's.
    pub tx: Transaction,
    /// What its plain reads see.
    pub isolation: Isolation,
    /// The last write on each key, without those that were taken back.
    pub writes: Writes,
    /// What it read under locks before it wrote there.
    pub current_reads: Vec<(Map, Vec<u8>, Current)>,
    /// Its number.
    id: u64,
}

impl<'a> Doing<'a> {
    /// Begins one.
    pub fn begin(world: &'a World, history: &Shared, isolation: Isolation) -> Result<Self, Error> {
        let id = history.lock().number();
        let tx = world.db.begin_with(isolation)?;
        Ok(Self { world, tx, isolation, writes: Writes::new(), current_reads: Vec::new(), id })
    }

    /// Sets a key.
    pub fn put(&mut self, map: Map, index: &Index, key: &[u8], value: Vec<u8>) -> Result<(), Error> {
        self.tx.put(index, key, &value)?;
        self.writes.insert((map, key.to_vec()), Some(value));
        Ok(())
    }

    /// Removes a key, there or not.
    pub fn delete(&mut self, map: Map, index: &Index, key: &[u8]) -> Result<(), Error> {
        let there = self.tx.delete(index, key)?;
        self.note_existence(map, key, there);
        if there {
            self.writes.insert((map, key.to_vec()), None);
        }
        Ok(())
    }

    /// Locks a key and reads it.
    pub fn get_locked(
        &mut self,
        map: Map,
        index: &Index,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Option<Vec<u8>>, Error> {
        let value = self.tx.get_locked(index, key, mode)?;
        self.note_value(map, key, value.clone());
        Ok(value)
    }

    /// Locks what is there in a range and reads it; some readers skip what others have locked.
    pub fn range_locked(
        &mut self,
        map: Map,
        index: &Index,
        (low, high): (&[u8], &[u8]),
        locking: Locking,
    ) -> Result<(), Error> {
        for (key, value) in self.tx.range_locked(index, low..high, locking)?.collect()? {
            self.note_value(map, &key, Some(value));
        }
        Ok(())
    }

    /// Under its lock a key had this value.
    fn note_value(&mut self, map: Map, key: &[u8], value: Option<Vec<u8>>) {
        match self.writes.get(&(map, key.to_vec())) {
            Some(own) => assert_eq!(*own, value, "a current read sees the own write"),
            None => self.current_reads.push((map, key.to_vec(), Current::Is(value))),
        }
    }

    /// Inserts a row, unless it is there.
    pub fn insert(&mut self, map: Map, table: &Table, row: &[Value<'_>; 3]) -> Result<(), Error> {
        let (key, value) = flat(row);
        match self.tx.insert(table, row) {
            Ok(()) => {
                self.note_existence(map, &key, false);
                self.writes.insert((map, key), Some(value));
            }
            Err(Error::DuplicateKey { .. }) => self.note_existence(map, &key, true),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Replaces a row, if it is there.
    pub fn update(&mut self, map: Map, table: &Table, row: &[Value<'_>; 3]) -> Result<(), Error> {
        let (key, value) = flat(row);
        let there = self.tx.update(table, row)?;
        self.note_existence(map, &key, there);
        if there {
            self.writes.insert((map, key), Some(value));
        }
        Ok(())
    }

    /// Deletes a row, if it is there.
    pub fn delete_row(&mut self, map: Map, table: &Table, id: u64) -> Result<(), Error> {
        let there = self.tx.delete_row(table, &[Value::U64(id)])?;
        let key = id.to_be_bytes();
        self.note_existence(map, &key, there);
        if there {
            self.writes.insert((map, key.to_vec()), None);
        }
        Ok(())
    }

    /// Under its lock a statement found the key there or not.
    fn note_existence(&mut self, map: Map, key: &[u8], there: bool) {
        match self.writes.get(&(map, key.to_vec())) {
            Some(own) => assert_eq!(own.is_some(), there, "a statement on {key:?} of {map:?} sees the own write"),
            None => self.current_reads.push((map, key.to_vec(), Current::Exists(there))),
        }
    }

    /// A transaction sees its own writes.
    pub fn check_own(&self) -> Result<(), Error> {
        for ((map, key), expected) in &self.writes {
            // Dropped meanwhile, perhaps.
            let Some(handle) = self.world.handle(*map) else { continue };
            let found = match &handle {
                Extra::Index(index) => self.tx.get(index, key)?,
                Extra::Table(table) => {
                    let id = u64::from_be_bytes(key.as_slice().try_into().expect("eight bytes"));
                    self.tx.get_row(table, &[Value::U64(id)])?.map(|row| flat(&row).1)
                }
            };
            assert_eq!(found, *expected, "own write on {key:?} of {map:?}");
        }
        Ok(())
    }

    /// Commits with a durability drawn. Whoever was told so finds it: the next snapshot of the same thread sees it.
    pub fn commit(self, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
        let (durability, acknowledged) = match rng.below(3) {
            0 => (Durability::Sync, Acknowledged::Synced),
            1 => (Durability::Write, Acknowledged::Written),
            _ => (Durability::Buffered, Acknowledged::Buffered),
        };
        self.commit_with(history, durability, acknowledged)
    }

    /// Commits; the journal's row is the last write.
    pub fn commit_with(
        self,
        history: &Shared,
        durability: Durability,
        acknowledged: Acknowledged,
    ) -> Result<(), Error> {
        let Self { world, mut tx, mut writes, current_reads, id, .. } = self;
        let row = id.to_be_bytes();
        tx.put(&world.journal, &row, b"")?;
        writes.insert((Map::Journal, row.to_vec()), Some(Vec::new()));
        let result = tx.commit_with(durability);
        let (ts, acknowledged) = match &result {
            Ok(ts) => (*ts, acknowledged),
            Err(Error::CommitOutcomeUnknown { ts, .. }) => (*ts, Acknowledged::Unknown),
            Err(error) => return Err(error.clone()),
        };
        // Nothing between the reply and the snapshot.
        let seen = if result.is_ok() { Some(world.db.snapshot()) } else { None };
        history.lock().commits.push(Commit { id, ts, writes, current_reads, acknowledged });
        result?;
        let snapshot = seen.expect("it was acknowledged")?;
        assert!(snapshot.get(&world.journal, &row)?.is_some(), "the commit at {ts} is not seen at {}", snapshot.ts());
        Ok(())
    }
}
