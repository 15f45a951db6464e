//! A transaction under way: what it did so far, for the model, and how it ends.

use std::collections::BTreeSet;
use std::ops::Bound;

use index::counter::Counter;
use trefoil::{Duplicate, Durability, Error, Index, Isolation, LockMode, Locking, Table, Transaction, Upserted, Value};
use vfs::random::Rng;

use super::Shared;
use crate::history::{self, Acknowledged, Commit, Current, Map, Range, Writes};
use crate::world::{Extra, Unique, World, flat};

/// What a transaction under way has done.
pub struct Doing<'a> {
    /// Where.
    pub world: &'a World,
    /// The engine's.
    pub tx: Transaction,
    /// What its plain reads see.
    pub isolation: Isolation,
    /// Ranges deleted, without those that were taken back.
    pub ranges: Vec<Range>,
    /// The last write on each key, without those that were taken back.
    pub writes: Writes,
    /// What it read under locks before it wrote there.
    pub current_reads: Vec<(Map, Vec<u8>, Current)>,
    /// Its number.
    pub id: u64,
}

impl<'a> Doing<'a> {
    /// Begins one.
    pub fn begin(world: &'a World, history: &Shared, isolation: Isolation) -> Result<Self, Error> {
        let id = history.lock().number();
        let tx = world.db.begin_with(isolation)?;
        let (ranges, writes, current_reads) = Default::default();
        Ok(Self { world, tx, isolation, ranges, writes, current_reads, id })
    }

    /// Sets a key.
    pub fn put(&mut self, map: Map, index: &Index, key: &[u8], value: Vec<u8>) -> Result<(), Error> {
        self.tx.put(index, key, &value)?;
        self.writes.insert((map, key.to_vec()), Some(value));
        Ok(())
    }

    /// Adds to a counter.
    pub fn add(&mut self, index: &Index, key: &[u8], delta: i64) -> Result<(), Error> {
        self.tx.add(index, key, delta)?;
        let change = self.writes.entry((Map::Counters, key.to_vec()));
        change
            .and_modify(|own| *own = Some(own_counter(own).plus(delta).encode().to_vec()))
            .or_insert_with(|| Some(Counter::Delta(delta).encode().to_vec()));
        Ok(())
    }

    /// Sets a counter.
    pub fn set(&mut self, index: &Index, key: &[u8], sum: i64) -> Result<(), Error> {
        self.tx.put(index, key, &sum.to_le_bytes())?;
        self.writes.insert((Map::Counters, key.to_vec()), Some(Counter::Sum(sum).encode().to_vec()));
        Ok(())
    }

    /// Locks a counter and reads it. What it was before own additions is known if it was there.
    pub fn read_counter(&mut self, index: &Index, key: &[u8], mode: LockMode) -> Result<(), Error> {
        let value = self.tx.get_locked(index, key, mode)?;
        let Some(own) = self.writes.get(&(Map::Counters, key.to_vec())) else {
            self.note_value(Map::Counters, key, value);
            return Ok(());
        };
        let expected = own.as_ref().map(|_| own_counter(own));
        match (expected, value) {
            (None, None) => {}
            (Some(Counter::Sum(sum)), Some(value)) => assert_eq!(sum.to_le_bytes()[..], value, "its own sum"),
            (Some(Counter::Delta(_)), Some(_)) => {}
            (expected, value) => panic!("{expected:?} is written, {value:?} was read"),
        }
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

    /// Removes all keys from `low` on, below `high`.
    pub fn delete_range(&mut self, map: Map, index: &Index, low: &[u8], high: &[u8]) -> Result<(), Error> {
        self.tx.delete_range(index, low..high)?;
        let range = (map, low.to_vec(), high.to_vec());
        let own =
            self.writes.iter_mut().filter(|((map, key), _)| history::has(std::slice::from_ref(&range), *map, key));
        own.for_each(|(_, value)| *value = None);
        self.ranges.push(range);
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
            None if history::has(&self.ranges, map, key) => assert_eq!(value, None, "it has deleted the range"),
            None => self.current_reads.push((map, key.to_vec(), Current::Is(value))),
        }
    }

    /// Inserts a row, unless it is there.
    pub fn insert(&mut self, map: Map, table: &Table, row: &[Value<'_>; 4]) -> Result<(), Error> {
        let (key, value) = flat(row);
        match self.tx.insert(table, row) {
            Ok(()) => {
                self.note_existence(map, &key, false);
                self.writes.insert((map, key), Some(value));
            }
            Err(Error::DuplicateKey(taken)) => {
                self.note_existence(map, &key, taken.index == "primary");
                self.note_taken(map, &taken);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Replaces a row, if it is there.
    pub fn update(&mut self, map: Map, table: &Table, row: &[Value<'_>; 4]) -> Result<(), Error> {
        let (key, value) = flat(row);
        let old = self.tx.get_row_locked(table, &row[..1], LockMode::Exclusive)?.map(|old| flat(&old).1);
        match self.tx.update(table, row) {
            Err(Error::DuplicateKey(taken)) => {
                self.note_existence(map, &key, true);
                self.note_taken(map, &taken);
                return Ok(());
            }
            there => assert_eq!(there?, old.is_some()),
        }
        self.note_value(map, &key, old.clone());
        // If it was the same nothing is written: a snapshot from before that row goes on not to see it.
        if old.is_some_and(|old| old != value) {
            self.writes.insert((map, key), Some(value));
        }
        Ok(())
    }

    /// Inserts a row, or gives the one that is in its way the same last column.
    pub fn upsert(&mut self, map: Map, table: &Table, row: &[Value<'_>; 4]) -> Result<(), Error> {
        let (mut old, mut new) = (None, flat(row));
        let upserted = self.tx.insert_or_update(table, row, |there| {
            old = Some(flat(there));
            there[2] = row[2].as_borrowed().into_owned();
            new = flat(there);
        })?;
        match old {
            None => {
                assert_eq!(upserted, Upserted::Inserted);
                self.note_existence(map, &new.0, false);
            }
            Some((key, value)) => {
                assert_eq!(upserted == Upserted::Unchanged, value == new.1);
                self.note_value(map, &key, Some(value));
                // Nothing is written: a snapshot from before that row goes on not to see it.
                if upserted == Upserted::Unchanged {
                    return Ok(());
                }
            }
        }
        self.writes.insert((map, new.0), Some(new.1));
        Ok(())
    }

    /// Puts a row in place of those that are in its way: under locks on what may come there they are known before.
    pub fn replace(&mut self, map: Map, table: &Table, row: &[Value<'_>; 4]) -> Result<(), Error> {
        // Where nobody inserts into what was read, and no index comes meanwhile.
        if self.isolation < Isolation::RepeatableRead || self.world.sizes.unique == Unique::Added {
            return Ok(());
        }
        let (key, value) = flat(row);
        let mut there = BTreeSet::new();
        for index in table.schema().indexes().iter().filter(|index| index.is_unique()) {
            let same = (Bound::Included(&row[1..2]), Bound::Included(&row[1..2]));
            let mut entries = self.tx.scan_index_locked(table, index.name(), same, LockMode::Exclusive)?;
            while let Some(entry) = entries.next()? {
                let Value::U64(id) = entry[1] else { panic!("not an entry: {entry:?}") };
                there.insert(id.to_be_bytes().to_vec());
            }
        }
        for key in &there {
            self.note_existence(map, key, true);
        }
        let old = self.tx.get_row_locked(table, &row[..1], LockMode::Exclusive)?;
        self.note_value(map, &key, old.as_ref().map(|old| flat(old).1));
        there.extend(old.map(|_| key.clone()));
        assert_eq!(self.tx.replace(table, row)?, there.len(), "{there:?} are in the way of {row:?}");
        self.writes.extend(there.into_iter().map(|key| ((map, key), None)));
        self.writes.insert((map, key), Some(value));
        Ok(())
    }

    /// Under locks a statement found a row in its way.
    fn note_taken(&mut self, map: Map, taken: &Duplicate) {
        let ([Value::U64(id)], [key]) = (&taken.row[..], &taken.key[..]) else { panic!("{taken}") };
        let Value::U32(a) = key else { return };
        let (row, begins) = (id.to_be_bytes(), a.to_be_bytes());
        match self.writes.get(&(map, row.to_vec())) {
            Some(own) => assert!(own.as_ref().is_some_and(|own| own.starts_with(&begins)), "{taken}: it has {own:?}"),
            None => self.current_reads.push((map, row.to_vec(), Current::Begins(begins.to_vec()))),
        }
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
            None if history::has(&self.ranges, map, key) => assert!(!there, "it has deleted the range"),
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
            if *map == Map::Counters {
                let sum =
                    |value: &Vec<u8>| Counter::Sum(i64::from_le_bytes(value[..].try_into().expect("eight bytes")));
                let is_right = match (expected.as_ref().map(|_| own_counter(expected)), found.as_ref().map(sum)) {
                    (Some(Counter::Delta(_)), Some(_)) => true,
                    (own, found) => own == found,
                };
                assert!(is_right, "own change {expected:?} of counter {key:?}: {found:?}");
                continue;
            }
            assert_eq!(found, *expected, "own write on {key:?} of {map:?}");
        }
        Ok(())
    }

    /// Commits with a durability drawn. Whoever was told so finds it: the next snapshot of the same thread sees it.
    pub fn commit(self, history: &Shared, rng: &mut Rng) -> Result<(), Error> {
        if self.world.sizes.prepares && self.ranges.is_empty() && rng.chance(0.25) {
            return self.prepare(history);
        }
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
        let Self { world, mut tx, ranges, mut writes, current_reads, id, .. } = self;
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
        history.lock().commits.push(Commit { id, ts, ranges, writes, current_reads, acknowledged, prepared: false });
        result?;
        let snapshot = seen.expect("it was acknowledged")?;
        assert!(snapshot.get(&world.journal, &row)?.is_some(), "the commit at {ts} is not seen at {}", snapshot.ts());
        Ok(())
    }
}

/// What a transaction has made of a counter; deleted, it is 0.
fn own_counter(own: &Option<Vec<u8>>) -> Counter {
    own.as_ref().map_or(Counter::Sum(0), |own| Counter::decode(own).expect("a change of a counter"))
}
