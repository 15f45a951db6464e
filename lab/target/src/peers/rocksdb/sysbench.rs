//! The tables of sysbench with pessimistic transactions.
//!
//! A table is two trees: rows under their ids, and an index of (k, id) without values. The index is kept here, in the
//! transaction of the row. A write locks its row and reads it under the lock, and locks every key that it writes.
//!
//! A transaction begins with its first statement: if that reads, it sees one snapshot from then on, and a write of a row
//! that has changed since is a conflict; if that writes, it acts on what is newest. A statement by itself does the latter.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ::rocksdb::{DBPinnableSlice, Transaction, WriteBatchWithTransaction, WriteOptions};

use super::transactional::{Each, Locking, judged, walk};
use super::{Rocks, bounded, wrong};
use crate::api::{Result, TargetError};
use crate::sysbench::{C_BYTES, Found, On, PAD_BYTES, Row, Select, Session, Tables, text_of};

/// Bytes of a key of a row, and of the index.
const ROW_KEY: usize = 8;
const ENTRY_KEY: usize = 12;
/// Bytes of a row: `k`, `c`, `pad`.
const ROW_BYTES: usize = 4 + C_BYTES + PAD_BYTES;
/// Keys of one batch of an index build.
const BUILD_KEYS: usize = 10_000;

fn rows_prefix(table: u32) -> [u8; 4] {
    (table * 2).to_be_bytes()
}

fn entries_prefix(table: u32) -> [u8; 4] {
    (table * 2 + 1).to_be_bytes()
}

/// Numbers in keys are in their order: none is negative.
fn row_key(table: u32, id: i32) -> [u8; ROW_KEY] {
    let mut key = [0; ROW_KEY];
    key[..4].copy_from_slice(&rows_prefix(table));
    key[4..].copy_from_slice(&id.to_be_bytes());
    key
}

fn entry_key(table: u32, k: i32, id: i32) -> [u8; ENTRY_KEY] {
    let mut key = [0; ENTRY_KEY];
    key[..4].copy_from_slice(&entries_prefix(table));
    key[4..8].copy_from_slice(&k.to_be_bytes());
    key[8..].copy_from_slice(&id.to_be_bytes());
    key
}

fn number(bytes: &[u8]) -> i32 {
    bytes.try_into().map_or(0, i32::from_be_bytes)
}

fn value_of(row: &Row) -> [u8; ROW_BYTES] {
    let mut value = [0; ROW_BYTES];
    value[..4].copy_from_slice(&row.k.to_be_bytes());
    value[4..4 + C_BYTES].copy_from_slice(&row.c);
    value[4 + C_BYTES..].copy_from_slice(&row.pad);
    value
}

fn row_of(id: i32, value: &[u8]) -> Result<Row> {
    let texts = value.get(4..).and_then(|texts| texts.split_at_checked(C_BYTES));
    let row = texts.and_then(|(c, pad)| Some(Row { id, k: number(&value[..4]), c: text_of(c)?, pad: text_of(pad)? }));
    row.ok_or_else(|| TargetError::Failed(format!("rocksdb: id {id} came back with {} bytes", value.len())))
}

/// `c` of a stored row.
fn c_of(value: &[u8]) -> &[u8] {
    value.get(4..4 + C_BYTES).unwrap_or_default()
}

/// The tables of a run: whether each has its index.
pub struct RocksTables<'a> {
    rocks: &'a Rocks<Locking>,
    indexed: RwLock<Vec<AtomicBool>>,
}

impl<'a> RocksTables<'a> {
    pub fn new(rocks: &'a Rocks<Locking>) -> RocksTables<'a> {
        RocksTables { rocks, indexed: RwLock::default() }
    }

    fn is_indexed(&self, table: u32) -> bool {
        let tables = self.indexed.read().expect("no thread panics while it holds the list");
        // Acquire: pairs with the release of the index build.
        tables.get(table as usize).is_some_and(|indexed| indexed.load(Ordering::Acquire))
    }
}

impl Tables for RocksTables<'_> {
    fn create_table(&self, table: u32) -> Result<()> {
        let mut tables = self.indexed.write().expect("no thread panics while it holds the list");
        let count = tables.len().max(table as usize + 1);
        tables.resize_with(count, AtomicBool::default);
        Ok(())
    }

    fn create_index(&self, table: u32) -> Result<()> {
        let mut entries = Vec::new();
        let mut pairs = self.rocks.database.raw_iterator_opt(bounded(entries_prefix(table).to_vec()));
        walk(&mut pairs, &row_key(table, 0), &mut |key, value| {
            entries.push((number(&value[..4]), number(&key[4..])));
            Ok(())
        })?;
        entries.sort_unstable();
        for part in entries.chunks(BUILD_KEYS) {
            let mut batch = WriteBatchWithTransaction::<true>::default();
            part.iter().for_each(|(k, id)| batch.put(entry_key(table, *k, *id), []));
            self.rocks.database.write_opt(batch, &self.rocks.tuned.write_options()).map_err(wrong)?;
        }
        let tables = self.indexed.read().expect("no thread panics while it holds the list");
        tables[table as usize].store(true, Ordering::Release);
        Ok(())
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let write_options = self.rocks.tuned.write_options();
        Ok(Box::new(Connection { all: self, write_options, begun: false, transaction: None }))
    }
}

struct Connection<'a> {
    all: &'a RocksTables<'a>,
    write_options: WriteOptions,
    begun: bool,
    /// The transaction that was begun, from its first statement on, and whether it has a snapshot.
    transaction: Option<(Transaction<'a, Locking>, bool)>,
}

impl<'a> Connection<'a> {
    /// The first statement of a transaction begins it.
    fn enter(&mut self, reads: bool) {
        if self.begun && self.transaction.is_none() {
            self.transaction = Some((self.all.rocks.transaction(&self.write_options, reads), reads));
        }
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.enter(true);
        let hand = |value: Option<DBPinnableSlice<'_>>| {
            value.as_deref().inspect(|value| found(value));
            value.is_some()
        };
        let there = match &self.transaction {
            Some((transaction, true)) => transaction.snapshot().get_pinned(key).map(hand),
            Some((transaction, false)) => transaction.get_pinned(key).map(hand),
            None => self.all.rocks.database.get_pinned(key).map(hand),
        };
        there.map_err(judged)
    }

    /// Keys and values from one key up to another.
    fn walk(&mut self, from: &[u8], end: Vec<u8>, each: Each<'_>) -> Result<()> {
        self.enter(true);
        match &self.transaction {
            Some((transaction, true)) => {
                let snapshot = transaction.snapshot();
                walk(&mut snapshot.raw_iterator_opt(bounded(end)), from, each)
            }
            Some((transaction, false)) => walk(&mut transaction.raw_iterator_opt(bounded(end)), from, each),
            None => walk(&mut self.all.rocks.database.raw_iterator_opt(bounded(end)), from, each),
        }
    }

    /// Writes in the transaction that was begun, else in one of its own.
    fn writing<R>(&mut self, run: impl FnOnce(&Transaction<'a, Locking>) -> Result<R>) -> Result<R> {
        self.enter(false);
        if let Some((transaction, _)) = &self.transaction {
            return run(transaction);
        }
        let transaction = self.all.rocks.transaction(&self.write_options, false);
        let result = run(&transaction)?;
        transaction.commit().map_err(judged)?;
        Ok(result)
    }

    /// Entries with `k` from one number to another.
    fn entries(&mut self, table: u32, (from, to): (i32, i32), each: &mut dyn FnMut(i32, i32)) -> Result<()> {
        let end = entry_key(table, to.saturating_add(1), 0).to_vec();
        self.walk(&entry_key(table, from, 0), end, &mut |key, _| {
            each(number(&key[4..8]), number(&key[8..]));
            Ok(())
        })
    }

    /// What a condition on `k` found in the index, and what it takes of the rows.
    fn on_k(
        &mut self,
        table: u32,
        ranges: impl Iterator<Item = (i32, i32)>,
        select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        let mut found = Vec::new();
        for range in ranges {
            self.entries(table, range, &mut |k, id| match select {
                Select::Key | Select::K => each(Found { number: k, c: &[] }),
                Select::C | Select::KeyAndC => found.push((k, id)),
            })?;
        }
        for (k, id) in found {
            self.get(&row_key(table, id), &mut |value| each(Found { number: k, c: c_of(value) }))?;
        }
        Ok(())
    }
}

/// The row under its lock.
fn locked(transaction: &Transaction<'_, Locking>, table: u32, id: i32) -> Result<Option<Row>> {
    let value = transaction.get_pinned_for_update(row_key(table, id), true).map_err(judged)?;
    value.map(|value| row_of(id, &value)).transpose()
}

fn insert_into(transaction: &Transaction<'_, Locking>, table: u32, row: &Row, indexed: bool) -> Result<()> {
    if locked(transaction, table, row.id)?.is_some() {
        return Err(TargetError::Failed(format!("rocksdb: id {} exists", row.id)));
    }
    transaction.put(row_key(table, row.id), value_of(row)).map_err(judged)?;
    if indexed {
        transaction.put(entry_key(table, row.k, row.id), []).map_err(judged)?;
    }
    Ok(())
}

impl Session for Connection<'_> {
    fn begin(&mut self) -> Result<()> {
        self.begun = true;
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.begun = false;
        match self.transaction.take() {
            Some((transaction, _)) => transaction.commit().map_err(judged),
            None => Ok(()),
        }
    }

    /// Dropped without a commit, the transaction is rolled back.
    fn rollback(&mut self) {
        (self.begun, self.transaction) = (false, None);
    }

    fn load(&mut self, table: u32, rows: &[Row]) -> Result<()> {
        let indexed = self.all.is_indexed(table);
        self.writing(|transaction| rows.iter().try_for_each(|row| insert_into(transaction, table, row, indexed)))
    }

    fn point(&mut self, table: u32, id: i32, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.get(&row_key(table, id), &mut |value| found(c_of(value)))
    }

    fn between(
        &mut self,
        table: u32,
        on: On,
        from: i32,
        to: i32,
        select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        if on == On::K {
            return self.on_k(table, [(from, to)].into_iter(), select, each);
        }
        let end = row_key(table, to.saturating_add(1)).to_vec();
        self.walk(&row_key(table, from), end, &mut |key, value| {
            let id = number(&key[4..]);
            each(match select {
                Select::Key => Found { number: id, c: &[] },
                Select::KeyAndC => Found { number: id, c: c_of(value) },
                Select::C => Found { number: 0, c: c_of(value) },
                Select::K => Found { number: number(&value[..4]), c: &[] },
            });
            Ok(())
        })
    }

    fn in_list(
        &mut self,
        table: u32,
        on: On,
        keys: &[i32],
        select: Select,
        each: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        if on == On::K {
            return self.on_k(table, keys.iter().map(|key| (*key, *key)), select, each);
        }
        for id in keys {
            self.get(&row_key(table, *id), &mut |value| match select {
                Select::Key => each(Found { number: *id, c: &[] }),
                Select::K => each(Found { number: number(&value[..4]), c: &[] }),
                Select::C | Select::KeyAndC => each(Found { number: *id, c: c_of(value) }),
            })?;
        }
        Ok(())
    }

    fn scan(&mut self, table: u32, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.walk(&row_key(table, 0), entries_prefix(table).to_vec(), &mut |_, value| {
            each(c_of(value));
            Ok(())
        })
    }

    fn update_k(&mut self, table: u32, id: i32) -> Result<bool> {
        self.writing(|transaction| {
            let Some(old) = locked(transaction, table, id)? else { return Ok(false) };
            let new = Row { k: old.k + 1, ..old.clone() };
            transaction.put(row_key(table, id), value_of(&new)).map_err(judged)?;
            transaction.delete(entry_key(table, old.k, id)).map_err(judged)?;
            transaction.put(entry_key(table, new.k, id), []).map_err(judged)?;
            Ok(true)
        })
    }

    fn update_c(&mut self, table: u32, ids: &[i32], c: &[u8; C_BYTES]) -> Result<usize> {
        self.writing(|transaction| {
            let mut there = 0;
            for id in ids {
                let Some(old) = locked(transaction, table, *id)? else { continue };
                transaction.put(row_key(table, *id), value_of(&Row { c: *c, ..old })).map_err(judged)?;
                there += 1;
            }
            Ok(there)
        })
    }

    fn delete(&mut self, table: u32, id: i32) -> Result<bool> {
        self.writing(|transaction| {
            let Some(old) = locked(transaction, table, id)? else { return Ok(false) };
            transaction.delete(row_key(table, id)).map_err(judged)?;
            transaction.delete(entry_key(table, old.k, id)).map_err(judged)?;
            Ok(true)
        })
    }

    fn insert(&mut self, table: u32, row: &Row) -> Result<()> {
        let indexed = self.all.is_indexed(table);
        self.writing(|transaction| insert_into(transaction, table, row, indexed))
    }

    fn scan_rows(&mut self, table: u32, each: &mut dyn FnMut(&Row)) -> Result<()> {
        self.walk(&row_key(table, 0), entries_prefix(table).to_vec(), &mut |key, value| {
            each(&row_of(number(&key[4..]), value)?);
            Ok(())
        })
    }

    fn scan_index(&mut self, table: u32, each: &mut dyn FnMut(i32, i32)) -> Result<()> {
        self.walk(&entry_key(table, 0, 0), rows_prefix(table + 1).to_vec(), &mut |key, _| {
            each(number(&key[4..8]), number(&key[8..]));
            Ok(())
        })
    }
}
