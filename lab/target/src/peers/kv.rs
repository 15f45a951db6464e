//! A target on top of any ordered key-value store with transactions.
//!
//! A table is four trees: the rows under their numbers, and one tree for each secondary index. An engine implements
//! [`Store`]; statements, key hand-out, index keeping and index builds are here, once for all engines.
//!
//! A statement is one [`Store::write`] or [`Store::read`]. Keys are handed out by a counter a table, so two inserts
//! never have a key in common. Two deletes on one table may want the same rows: an engine whose write transactions
//! run one at a time needs nothing, of the others [`Store::PARALLEL_WRITES`] says so, and deletes of a table then take
//! turns under `KvTable::deletes`, from their look-up to their commit.
//!
//! Latches: the list of tables, released before anything else; then `deletes`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use super::keys::{
    IndexKey, customer_of, encode_row, index_bound, index_entry, index_key, primary, primary_of, row_of,
};
use crate::api::{Ability, Counters, Description, PointRow, RangeQuery, Result, Session, Sizes, Target, TargetError};
use crate::row::{Batch, Entry, IndexSet, RowView, Secondary};
use crate::{sysbench, tpcc};

/// Trees of a table.
pub const TREES: usize = 4;
/// The tree of the rows; an index is one behind its [`Secondary::position`].
pub const ROWS: usize = 0;
/// Keys of one transaction of an index build.
const BUILD_KEYS: usize = 10_000;

/// The tree of an index.
fn tree_of(index: Secondary) -> usize {
    index.position() + 1
}

/// Names of a table's trees.
#[must_use]
pub fn tree_names(table: u32) -> [String; TREES] {
    let name = |suffix: &str| format!("pi{}_{suffix}", table + 1);
    [name("rows"), name(Secondary::ALL[0].name()), name(Secondary::ALL[1].name()), name(Secondary::ALL[2].name())]
}

/// What a read transaction can be asked; a tree is a number below [`TREES`].
pub trait Reader {
    /// Hands the value of a key to `found`; says whether there is one.
    fn get(&self, tree: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Hands keys and values from `from` on to `each`, in order, until it says `false`. An empty `to` is no bound.
    fn scan(&self, tree: usize, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;

    /// Hands the largest key to `found`, if there is one.
    fn last(&self, tree: usize, found: &mut dyn FnMut(&[u8])) -> Result<()>;
}

/// What a write transaction can be asked besides. Whether it reads its own writes is left open: nothing here does.
pub trait Writer: Reader {
    /// Stores a key that must not exist; `false` = it does, and the transaction is given up.
    fn insert_new(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Stores a key.
    fn put(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<()>;

    /// Stores a key of a sorted stretch: most often the largest so far.
    fn append(&mut self, tree: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(tree, key, value)
    }

    /// Removes a key that exists.
    fn delete(&mut self, tree: usize, key: &[u8]) -> Result<()>;
}

/// An open engine.
pub trait Store: Send + Sync + 'static {
    /// The four trees of a table.
    type Trees: Send + Sync + 'static;

    /// Whether write transactions of several threads run side by side.
    const PARALLEL_WRITES: bool;

    /// Creates the trees of a table.
    fn create(&self, table: u32) -> Result<Self::Trees>;

    /// Runs `run` in a read transaction: one snapshot throughout.
    fn read<R>(&self, trees: &Self::Trees, run: impl FnOnce(&dyn Reader) -> Result<R>) -> Result<R>;

    /// Looks up one row in a read transaction of its own, or by whatever the engine has that does less and is as right.
    fn get(&self, trees: &Self::Trees, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.read(trees, |reader| reader.get(ROWS, key, found))
    }

    /// Runs `run` in a write transaction and commits it with the durability of the run; an error rolls it back.
    fn write<R>(&self, trees: &Self::Trees, run: impl FnOnce(&mut dyn Writer) -> Result<R>) -> Result<R>;

    /// As [`Target::sysbench`].
    fn sysbench(&self) -> Result<Box<dyn sysbench::Tables + '_>> {
        let engine = self.describe().engine;
        Err(TargetError::Unsupported(format!("`{engine}` has no adapter for sysbench")))
    }

    /// As [`Target::tpcc`].
    fn tpcc(&self) -> Result<Box<dyn tpcc::Tables + '_>> {
        let engine = self.describe().engine;
        Err(TargetError::Unsupported(format!("`{engine}` has no adapter for TPC-C")))
    }

    /// As [`Target::describe`].
    fn describe(&self) -> Description;

    /// As [`Target::settle`].
    fn settle(&self, limit: Duration) -> Result<()>;

    /// As [`Target::sizes`].
    fn sizes(&self) -> Result<Sizes>;

    /// As [`Target::counters`].
    fn counters(&self) -> Result<Counters>;

    /// As [`Target::verify`].
    fn verify(&self) -> Result<()>;
}

struct KvTable<S: Store> {
    trees: S::Trees,
    /// The last key handed out. It only hands out numbers: relaxed.
    keys: AtomicU64,
    /// The indexes, once they exist.
    set: OnceLock<IndexSet>,
    deletes: Mutex<()>,
}

/// The target.
pub struct KvTarget<S: Store> {
    store: Arc<S>,
    tables: RwLock<Vec<Arc<KvTable<S>>>>,
    /// Keys that an index build sorts in memory at a time.
    sort_keys: usize,
}

impl<S: Store> KvTarget<S> {
    /// A target without tables. An index build sorts in an eighth of the budget at a time.
    pub fn new(store: S, budget_bytes: u64) -> KvTarget<S> {
        let sort_keys = (budget_bytes / 8) as usize / size_of::<IndexKey>();
        KvTarget { store: Arc::new(store), tables: RwLock::default(), sort_keys: sort_keys.max(BUILD_KEYS) }
    }

    fn tables(&self) -> Vec<Arc<KvTable<S>>> {
        self.tables.read().expect("no thread panics while it holds the list").clone()
    }

    /// Fills one index from the rows: sorted stretches, each stored in order.
    fn build(&self, table: &KvTable<S>, set: IndexSet, index: Secondary) -> Result<()> {
        let mut from = Some(0);
        while let Some(least) = from {
            from = None;
            let mut stretch: Vec<IndexKey> = Vec::new();
            self.store.read(&table.trees, |reader| {
                rows(reader, least, u64::MAX, |key, row| {
                    if stretch.len() == self.sort_keys {
                        from = Some(key);
                        return false;
                    }
                    stretch.push(index_key(set, index, &row, key));
                    true
                })
            })?;
            stretch.sort_unstable();
            for part in stretch.chunks(BUILD_KEYS) {
                self.store.write(&table.trees, |writer| {
                    part.iter().try_for_each(|key| writer.append(tree_of(index), key, &[]))
                })?;
            }
        }
        Ok(())
    }
}

fn table_of<S: Store>(tables: &[Arc<KvTable<S>>], table: u32) -> Result<&Arc<KvTable<S>>> {
    tables.get(table as usize).ok_or_else(|| TargetError::Failed(format!("no table {table}")))
}

/// Hands rows with keys in `from..to` to `each`, in order, until it says `false`.
fn rows(reader: &dyn Reader, from: u64, to: u64, mut each: impl FnMut(u64, RowView<'_>) -> bool) -> Result<()> {
    let mut wrong = None;
    reader.scan(ROWS, &primary(from), &primary(to), &mut |key, value| match primary_of(key)
        .and_then(|key| Ok((key, row_of(value)?)))
    {
        Ok((key, row)) => each(key, row),
        Err(error) => {
            wrong = Some(error);
            false
        }
    })?;
    wrong.map_or(Ok(()), Err)
}

/// Hands the entries of an index to `each`, in order, until it says `false`.
fn entries(
    reader: &dyn Reader,
    set: IndexSet,
    index: Secondary,
    from: &[u8],
    mut each: impl FnMut(Entry, u64) -> bool,
) -> Result<()> {
    let mut wrong = None;
    reader.scan(tree_of(index), from, &[], &mut |key, _| match index_entry(set, index, key) {
        Ok((entry, key)) => each(entry, key),
        Err(error) => {
            wrong = Some(error);
            false
        }
    })?;
    wrong.map_or(Ok(()), Err)
}

impl<S: Store> Target for KvTarget<S> {
    fn describe(&self) -> Description {
        let mut description = self.store.describe();
        description.settings.insert("index_build_sort_keys".into(), self.sort_keys.to_string());
        description
    }

    fn ability(&self) -> Ability {
        Ability { stores_rows: true, dense_keys: true }
    }

    fn create_table(&self, table: u32) -> Result<()> {
        let mut tables = self.tables.write().expect("no thread panics while it holds the list");
        while tables.len() <= table as usize {
            let trees = self.store.create(tables.len() as u32)?;
            tables.push(Arc::new(KvTable {
                trees,
                keys: AtomicU64::new(0),
                set: OnceLock::new(),
                deletes: Mutex::default(),
            }));
        }
        Ok(())
    }

    fn create_indexes(&self, table: u32, set: IndexSet) -> Result<()> {
        let tables = self.tables();
        let table = table_of(&tables, table)?;
        Secondary::ALL.iter().try_for_each(|index| self.build(table, set, *index))?;
        table.set.set(set).map_err(|_| TargetError::Failed("the indexes exist already".into()))
    }

    fn sysbench(&self) -> Result<Box<dyn sysbench::Tables + '_>> {
        self.store.sysbench()
    }

    fn tpcc(&self) -> Result<Box<dyn tpcc::Tables + '_>> {
        self.store.tpcc()
    }

    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(KvSession {
            store: self.store.clone(),
            tables: self.tables(),
            value: Vec::new(),
            index_keys: Vec::new(),
            held: None,
        }))
    }

    fn settle(&self, limit: Duration) -> Result<()> {
        self.store.settle(limit)
    }

    fn sizes(&self) -> Result<Sizes> {
        self.store.sizes()
    }

    fn counters(&self) -> Result<Counters> {
        self.store.counters()
    }

    fn verify(&self) -> Result<()> {
        self.store.verify()
    }

    /// The engine closes when the target is dropped: nothing else refers to it by then.
    fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// A snapshot held by a thread of its own, because a read transaction may be bound to its thread and scope.
struct Held {
    release: Sender<()>,
    thread: JoinHandle<Result<()>>,
}

struct KvSession<S: Store> {
    store: Arc<S>,
    tables: Vec<Arc<KvTable<S>>>,
    value: Vec<u8>,
    index_keys: Vec<IndexKey>,
    held: Option<Held>,
}

impl<S: Store> KvSession<S> {
    /// Removes up to `count` rows with keys in `from..to`, and their index keys.
    fn delete(&mut self, table: u32, from: u64, to: u64, count: usize) -> Result<u32> {
        let table = table_of(&self.tables, table)?;
        let _turn = S::PARALLEL_WRITES
            .then(|| table.deletes.lock().map_err(|_| TargetError::Failed("a delete of this table panicked".into())))
            .transpose()?;
        self.store.write(&table.trees, |writer| {
            let mut keys = Vec::with_capacity(count);
            let index_keys: &mut Vec<IndexKey> = &mut self.index_keys;
            index_keys.clear();
            let set = table.set.get();
            rows(writer, from, to, |key, row| {
                keys.push(primary(key));
                if let Some(set) = set {
                    index_keys.extend(Secondary::ALL.iter().map(|index| index_key(*set, *index, &row, key)));
                }
                keys.len() < count
            })?;
            keys.iter().try_for_each(|key| writer.delete(ROWS, key))?;
            in_order(index_keys, |tree, key| writer.delete(tree, key))?;
            Ok(keys.len() as u32)
        })
    }
}

/// Hands index keys that alternate between the three indexes to `each`, index by index and in order.
fn in_order(keys: &mut [IndexKey], mut each: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
    let mut of_one: Vec<IndexKey> = Vec::with_capacity(keys.len() / Secondary::ALL.len());
    for index in Secondary::ALL {
        of_one.clear();
        of_one.extend(keys.iter().skip(index.position()).step_by(Secondary::ALL.len()));
        of_one.sort_unstable();
        of_one.iter().try_for_each(|key| each(tree_of(index), key))?;
    }
    Ok(())
}

fn set_of<S: Store>(table: &KvTable<S>) -> Result<IndexSet> {
    table.set.get().copied().ok_or_else(|| TargetError::Failed("the table has no secondary indexes".into()))
}

impl<S: Store> Session for KvSession<S> {
    fn insert(&mut self, table: u32, rows: &Batch) -> Result<u64> {
        let table = table_of(&self.tables, table)?;
        let first = table.keys.fetch_add(rows.len() as u64, Ordering::Relaxed) + 1;
        let (value, index_keys) = (&mut self.value, &mut self.index_keys);
        index_keys.clear();
        self.store.write(&table.trees, |writer| {
            for (key, row) in (first..).zip(rows.iter()) {
                value.clear();
                encode_row(&row, value);
                if !writer.insert_new(ROWS, &primary(key), value)? {
                    return Err(TargetError::Failed(format!("duplicate key {key}")));
                }
                if let Some(set) = table.set.get() {
                    index_keys.extend(Secondary::ALL.iter().map(|index| index_key(*set, *index, &row, key)));
                }
            }
            in_order(index_keys, |tree, key| writer.put(tree, key, &[]))
        })?;
        Ok(first)
    }

    fn delete_smallest(&mut self, table: u32, from: u64, count: u32) -> Result<u32> {
        if count == 0 {
            return Ok(0);
        }
        self.delete(table, from, u64::MAX, count as usize)
    }

    fn delete_range(&mut self, table: u32, from: u64, to: u64) -> Result<u32> {
        if from >= to {
            return Ok(0);
        }
        self.delete(table, from, to, (to - from) as usize)
    }

    fn range(&mut self, table: u32, query: RangeQuery, out: &mut Vec<Entry>) -> Result<()> {
        out.clear();
        let table = table_of(&self.tables, table)?;
        let set = set_of(table)?;
        let limit = query.limit as usize;
        let Some(bound) = index_bound(set, query.index, query.first, query.strict).filter(|_| limit > 0) else {
            return Ok(());
        };
        self.store.read(&table.trees, |reader| {
            entries(reader, set, query.index, &bound, |entry, _| {
                out.push(entry);
                out.len() < limit
            })
        })
    }

    fn get(&mut self, table: u32, key: u64, found: &mut dyn FnMut(u64, RowView<'_>)) -> Result<bool> {
        let table = table_of(&self.tables, table)?;
        let mut wrong = None;
        let there = self.store.get(&table.trees, &primary(key), &mut |value| match row_of(value) {
            Ok(row) => found(key, row),
            Err(error) => wrong = Some(error),
        })?;
        wrong.map_or(Ok(there), Err)
    }

    fn points(&mut self, table: u32, keys: &[u64], out: &mut Vec<PointRow>) -> Result<()> {
        let table = table_of(&self.tables, table)?;
        let (mut found, mut wrong) = (0, None);
        self.store.read(&table.trees, |reader| {
            for key in keys {
                reader.get(ROWS, &primary(*key), &mut |value| match row_of(value) {
                    Ok(row) => {
                        // The rows of the last answer are overwritten, so that their text is not allocated again.
                        if found == out.len() {
                            out.push(PointRow::default());
                        }
                        let place: &mut PointRow = &mut out[found];
                        (place.transactionid, place.productid) = (*key, row.productid);
                        place.data.clear();
                        place.data.extend_from_slice(row.data);
                        found += 1;
                    }
                    Err(error) => wrong = Some(error),
                })?;
            }
            Ok(())
        })?;
        out.truncate(found);
        wrong.map_or(Ok(()), Err)
    }

    fn min_key(&mut self, table: u32) -> Result<Option<u64>> {
        let table = table_of(&self.tables, table)?;
        self.store.read(&table.trees, |reader| {
            let mut least = None;
            reader.scan(ROWS, &[], &[], &mut |key, _| {
                least = Some(primary_of(key));
                false
            })?;
            least.transpose()
        })
    }

    fn max_key(&mut self, table: u32) -> Result<Option<u64>> {
        let table = table_of(&self.tables, table)?;
        self.store.read(&table.trees, |reader| {
            let mut largest = None;
            reader.last(ROWS, &mut |key| largest = Some(primary_of(key)))?;
            largest.transpose()
        })
    }

    fn hold_begin(&mut self, table: u32) -> Result<()> {
        self.hold_end()?;
        let (store, table) = (self.store.clone(), table_of(&self.tables, table)?.clone());
        let (began, begun): (Sender<()>, Receiver<()>) = channel();
        let (release, released): (Sender<()>, Receiver<()>) = channel();
        let thread = std::thread::spawn(move || {
            store.read(&table.trees, |reader| {
                reader.scan(ROWS, &[], &[], &mut |_, _| false)?;
                // Either side may be gone: then there is no one to tell, or nothing to wait for.
                let _ = began.send(());
                let _ = released.recv();
                Ok(())
            })
        });
        self.held = Some(Held { release, thread });
        // A thread that failed hangs up instead, and says why at its end.
        begun.recv().or_else(|_| self.hold_end())
    }

    fn hold_end(&mut self) -> Result<()> {
        let Some(Held { release, thread }) = self.held.take() else { return Ok(()) };
        drop(release);
        thread.join().unwrap_or_else(|_| Err(TargetError::Failed("the holder of the snapshot panicked".into())))
    }

    fn scan_table(&mut self, table: u32, each: &mut dyn FnMut(u64, RowView<'_>)) -> Result<()> {
        let table = table_of(&self.tables, table)?;
        self.store.read(&table.trees, |reader| {
            rows(reader, 0, u64::MAX, |key, row| {
                each(key, row);
                true
            })
        })
    }

    fn scan_customers(&mut self, table: u32, each: &mut dyn FnMut(i32)) -> Result<()> {
        let table = table_of(&self.tables, table)?;
        let mut wrong = None;
        self.store.read(&table.trees, |reader| {
            reader.scan(ROWS, &[], &[], &mut |_, value| match customer_of(value) {
                Ok(customerid) => {
                    each(customerid);
                    true
                }
                Err(error) => {
                    wrong = Some(error);
                    false
                }
            })
        })?;
        wrong.map_or(Ok(()), Err)
    }

    fn scan_index(&mut self, table: u32, index: Secondary, each: &mut dyn FnMut(Entry, u64)) -> Result<()> {
        let table = table_of(&self.tables, table)?;
        let set = set_of(table)?;
        self.store.read(&table.trees, |reader| {
            entries(reader, set, index, &[], |entry, key| {
                each(entry, key);
                true
            })
        })
    }
}

/// A session that is dropped lets go of its snapshot; what the thread has to say is of no use any more.
impl<S: Store> Drop for KvSession<S> {
    fn drop(&mut self) {
        let _ = self.hold_end();
    }
}

/// Settings in the form of a description.
pub fn settings<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
