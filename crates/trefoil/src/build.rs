//! Building secondary indexes over the rows of a table: one pass, sorted, applied in key order.
//!
//! 1. A cursor runs over the primary index at snapshot `s`; each row gives one entry per new index.
//! 2. Entries gather in memory up to a share of the budget; when it is full they are sorted and written as a
//!    run file.
//! 3. The sorted chunks are merged and applied in key order at timestamp `s`, which fills leaves from left to
//!    right. Nothing is logged: the caller runs a checkpoint before it names the index. Two rows with one value of a unique
//!    index stand side by side here: that ends the build.
//!
//! The table's writers go on (rule A16): what they change after `s` they change in the new index too, above what is added
//! here. Whoever reads the index reads as of `s` or later.
//!
//! Rows that get another structure ([`copy_rows`]) are in their order already: they are read and applied.

use std::borrow::Cow;
use std::ops::{Bound, Range};
use std::sync::Arc;

use base::bytes::{Reader, put_bytes};
use base::limits::KEY_BYTES_MAX;
use base::{CommitTs, GcView, Result};
use index::{BatchBuilder, Direction, EntryBatch, Index, Op, ReadAt, Reservation};
use store::{Funds, Run, RunWriter};
use txn::SnapshotSlot;

use crate::builds::Progress;
use crate::engine::Engine;
use crate::entry::{IndexEntry, TableShape};
use crate::rows::duplicate;
use crate::table::Schema;

/// Entries applied at a time.
const BATCH_ENTRIES: usize = 256;
/// And bytes of them, if they are several.
const BATCH_BYTES: usize = 512 << 10;
const _: () = assert!(KEY_BYTES_MAX < BATCH_BYTES);

/// Deletes, as of `s`, the entries that no row had at `s`: a writer that keeps the index up has put them there, and one that came
/// in before and does not has taken them from their row.
fn sweep(
    engine: &Engine,
    shape: &TableShape,
    (schema, n): (&Schema, usize),
    entry: &IndexEntry,
    s: CommitTs,
) -> crate::Result<()> {
    let (at, all) = (ReadAt::Snapshot(s), (Bound::Unbounded, Bound::Unbounded));
    let mut entries = entry.index.cursor(at, all, Direction::Forward);
    let (mut batch, mut wanted) = (EntryBatch::new(), Vec::new());
    loop {
        let more = entries.fill(&mut batch, 1024)?;
        for i in 0..batch.len() {
            let (key, mut row) = (batch.key(i), None);
            let primary = schema.primary_key_of(n, key)?;
            shape.primary.index.get_many(at, &[primary], &mut |_, _, value| row = Some(value.to_vec()))?;
            wanted.clear();
            if let Some(row) = row {
                schema.secondary_key(n, primary, &row, &mut wanted)?;
            }
            if wanted != key {
                delete_at(entry, key, s)?;
            }
        }
        engine.check_writable()?;
        if !more {
            return Ok(());
        }
    }
}

fn delete_at(entry: &IndexEntry, key: &[u8], s: CommitTs) -> Result<()> {
    let mut one = BatchBuilder::new();
    one.push(key, Op::Delete);
    let one = one.finish();
    let Reservation::Direct(reserved) = entry.index.reserve(&one)? else { unreachable!("one entry is in one leaf") };
    entry.index.apply(&one, reserved, s, &GcView::keep_all());
    Ok(())
}

/// The same of rows that are made anew: deletes, as of `s`, those that were not there.
fn sweep_rows(
    engine: &Engine,
    old: &dyn Index,
    new: &IndexEntry,
    s: CommitTs,
    progress: &Progress,
) -> crate::Result<()> {
    let at = ReadAt::Snapshot(s);
    let mut rows = new.index.cursor(at, (Bound::Unbounded, Bound::Unbounded), Direction::Forward);
    let mut batch = EntryBatch::new();
    loop {
        let more = rows.fill(&mut batch, 1024)?;
        for key in (0..batch.len()).map(|i| batch.key(i)) {
            let mut is_there = false;
            old.get_many(at, &[key], &mut |_, _, _| is_there = true)?;
            if !is_there {
                delete_at(new, key, s)?;
            }
        }
        vfs::thread::point("build.sweeping");
        engine.check_writable()?;
        progress.check()?;
        if !more {
            return Ok(());
        }
    }
}

/// Puts the rows that the snapshot sees in `old` into `new`, at its timestamp.
pub fn copy_rows(
    engine: &Engine,
    old: &dyn Index,
    new: &Arc<IndexEntry>,
    snapshot: SnapshotSlot,
    progress: &Arc<Progress>,
) -> crate::Result<()> {
    let s = snapshot.ts();
    sweep_rows(engine, old, new, s, progress)?;
    vfs::thread::point("build.swept");
    let mut applier = Applier::new(new, s, progress);
    let mut rows = old.cursor(ReadAt::Snapshot(s), (Bound::Unbounded, Bound::Unbounded), Direction::Forward);
    let mut batch = EntryBatch::new();
    loop {
        let more = rows.fill(&mut batch, 1024)?;
        for (key, value) in (0..batch.len()).map(|i| batch.entry(i)) {
            engine.check_key(new, key)?;
            applier.push(key, value)?;
        }
        engine.check_writable()?;
        progress.read(batch.len())?;
        if !more {
            break;
        }
    }
    applier.apply_rest()
}

/// Builds `new`, the indexes with these `numbers` in `schema`, from the rows that the snapshot sees.
pub fn build(
    engine: &Engine,
    shape: &TableShape,
    (schema, numbers): (&Schema, &[usize]),
    new: &[Arc<IndexEntry>],
    snapshot: SnapshotSlot,
    progress: &Arc<Progress>,
) -> crate::Result<()> {
    let s = snapshot.ts();
    for (n, entry) in numbers.iter().zip(new) {
        sweep(engine, shape, (schema, *n), entry, s)?;
    }
    // Those that came before have their share already.
    let sharers = new.len().max(1) * engine.builds.lock().len().max(1);
    let chunk_bytes = (engine.options.budget_bytes as usize / 8 / sharers).max(1 << 20);
    let mut sorters: Vec<Sorter> = new.iter().map(|_| Sorter::new(chunk_bytes)).collect();
    let mut files = Spilled { engine, ids: Vec::new() };
    let mut charge = engine.budget.charge(store::Class::Work, 0);
    let mut rows =
        shape.primary.index.cursor(ReadAt::Snapshot(s), (Bound::Unbounded, Bound::Unbounded), Direction::Forward);
    let mut batch = EntryBatch::new();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    loop {
        let more = rows.fill(&mut batch, 1024)?;
        for i in 0..batch.len() {
            for ((n, sorter), entry) in numbers.iter().zip(&mut sorters).zip(new) {
                schema.secondary_key(*n, batch.key(i), batch.value(i), &mut key)?;
                engine.check_key(entry, &key)?;
                schema.secondary_value(*n, batch.key(i), batch.value(i), &mut value)?;
                sorter.push(&key, &value);
                if sorter.is_full() {
                    sorter.spill(engine, &mut files.ids)?;
                }
            }
        }
        charge.set(sorters.iter().map(Sorter::memory_bytes).sum::<usize>() as u64);
        engine.check_writable()?;
        progress.read(batch.len())?;
        if !more {
            break;
        }
    }
    // What writers change meanwhile is theirs: nobody else needs the rows of that moment.
    drop((rows, snapshot));
    vfs::thread::point("build.read");
    // One thread per index sorts and applies. Whatever becomes of one of them, none outlives the build: they ask whether it is
    // still wanted.
    let mut threads = Vec::new();
    for ((sorter, entry), n) in sorters.into_iter().zip(new).zip(numbers) {
        let (mut applier, mut distinct) =
            (Applier::new(entry, s, progress), Distinct::new(&shape.def.name, schema, *n));
        let work = move || sorter.finish(&mut applier, &mut distinct);
        threads.push(vfs::thread::spawn("trefoil-build", work).map_err(|e| base::Fault::io("start", "a thread", &e)));
    }
    let ended: Vec<_> = threads.into_iter().map(|thread| thread.map(vfs::thread::JoinHandle::join)).collect();
    let results = ended.into_iter().map(|ended| ended?.expect("a build does not panic"));
    let spilled: Vec<Vec<Run>> = results.collect::<crate::Result<_>>()?;
    drop(spilled);
    Ok(())
}

/// Looks through a built index, as of a snapshot: no two rows have one value.
pub fn verify(
    engine: &Engine,
    table: &str,
    (schema, n): (&Schema, usize),
    entry: &IndexEntry,
    snapshot: &SnapshotSlot,
    progress: &Progress,
) -> crate::Result<()> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut entries = entry.index.cursor(ReadAt::Snapshot(snapshot.ts()), all, Direction::Forward);
    let (mut batch, mut distinct) = (EntryBatch::new(), Distinct::new(table, schema, n));
    loop {
        let more = entries.fill(&mut batch, 1024)?;
        (0..batch.len()).try_for_each(|i| distinct.pass(batch.key(i), batch.value(i)))?;
        engine.check_writable()?;
        progress.check()?;
        entry.check_build()?;
        if !more {
            return Ok(());
        }
    }
}

/// Looks at ascending entries of an index: no two rows have one value, if it is unique.
struct Distinct {
    table: String,
    schema: Schema,
    n: usize,
    /// The last entry with a value of its own, the length of the value, and what is stored with the entry.
    last: Vec<u8>,
    value_bytes: usize,
    stored: Vec<u8>,
}

impl Distinct {
    fn new(table: &str, schema: &Schema, n: usize) -> Self {
        Self {
            table: table.to_owned(),
            schema: schema.clone(),
            n,
            last: Vec::new(),
            value_bytes: 0,
            stored: Vec::new(),
        }
    }

    fn pass(&mut self, entry: &[u8], stored: &[u8]) -> crate::Result<()> {
        let Some(value) = self.schema.unique_value(self.n, entry)? else { return Ok(()) };
        if !self.last.is_empty() && self.last[..self.value_bytes] == *value {
            let row = &self.last[self.value_bytes..];
            return Err(crate::Error::DuplicateKey(Box::new(duplicate(
                &self.table,
                &self.schema,
                Some(self.n),
                (value, row, &self.stored),
            )?)));
        }
        self.value_bytes = value.len();
        self.last.clear();
        self.last.extend_from_slice(entry);
        self.stored.clear();
        self.stored.extend_from_slice(stored);
        Ok(())
    }
}

/// The run files of one build, removed at its end, however it ends: a build that failed for want of space must
/// not keep any.
struct Spilled<'a> {
    engine: &'a Engine,
    ids: Vec<u64>,
}

impl Drop for Spilled<'_> {
    fn drop(&mut self) {
        // Nothing names them; what cannot be removed now, the next open removes.
        self.ids.iter().for_each(|id| drop(self.engine.runs.abandoned(&self.engine.layout, *id)));
    }
}

/// Gathers entries and gives them back sorted. Keys end in the primary key, so none repeats.
struct Sorter {
    /// For each entry its key, the length of its value (varint), the value.
    bytes: Vec<u8>,
    /// (first eight key bytes big-endian, start, length of the key): most comparisons never touch the bytes.
    places: Vec<(u64, u32, u32)>,
    chunk_bytes: usize,
    spilled: Vec<Run>,
}

impl Sorter {
    fn new(chunk_bytes: usize) -> Self {
        let chunk_bytes = chunk_bytes.min(u32::MAX as usize / 2);
        Self { bytes: Vec::new(), places: Vec::new(), chunk_bytes, spilled: Vec::new() }
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let mut head = [0u8; 8];
        let n = key.len().min(8);
        head[..n].copy_from_slice(&key[..n]);
        let start = u32::try_from(self.bytes.len()).expect("a chunk is below 4 GiB");
        self.places.push((u64::from_be_bytes(head), start, key.len() as u32));
        self.bytes.extend_from_slice(key);
        put_bytes(&mut self.bytes, value);
    }

    fn is_full(&self) -> bool {
        self.memory_bytes() >= self.chunk_bytes
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.places.len() * 16
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |&(_, start, len): &(u64, u32, u32)| &bytes[start as usize..(start + len) as usize];
        self.places.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a).cmp(key(b))));
    }

    fn key(&self, i: usize) -> &[u8] {
        let (_, start, len) = self.places[i];
        &self.bytes[start as usize..(start + len) as usize]
    }

    fn value(&self, i: usize) -> &[u8] {
        let (_, start, len) = self.places[i];
        Reader::new(&self.bytes[(start + len) as usize..]).bytes().expect("it was put there")
    }

    fn spill(&mut self, engine: &Engine, files: &mut Vec<u64>) -> Result<()> {
        self.sort();
        let id = engine.next_run.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        engine.runs.begun(id);
        files.push(id);
        let (vfs, dir) = (engine.layout.vfs.clone(), engine.layout.runs());
        let mut writer = RunWriter::create(vfs, &dir, id, store::Compression::Lz4)?;
        for i in 0..self.places.len() {
            writer.add(self.key(i), Some(self.value(i)))?;
        }
        let meta = writer.finish()?;
        self.spilled.push(engine.open_run(&meta)?);
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }

    /// Sorts, merges and applies; returns the spilled runs, for removal.
    fn finish(mut self, applier: &mut Applier, distinct: &mut Distinct) -> crate::Result<Vec<Run>> {
        self.sort();
        let mut cursors = Vec::new();
        for run in &self.spilled {
            let mut cursor = run.cursor();
            cursor.seek_first()?;
            cursors.push(cursor);
        }
        let mut next = 0;
        loop {
            // The fewest of few: a chunk is an eighth of the budget, so there are rarely more than ten.
            let mut least: Option<(&[u8], usize)> = (next < self.places.len()).then(|| (self.key(next), usize::MAX));
            for (i, cursor) in cursors.iter().enumerate() {
                if cursor.is_valid() && least.is_none_or(|(l, _)| cursor.key() < l) {
                    least = Some((cursor.key(), i));
                }
            }
            let Some((key, source)) = least else { break };
            let value = match source {
                usize::MAX => Cow::Borrowed(self.value(next)),
                i => cursors[i].value()?.expect("entries are put, not deleted"),
            };
            distinct.pass(key, &value)?;
            applier.push(key, &value)?;
            match source {
                usize::MAX => next += 1,
                i => {
                    cursors[i].next()?;
                }
            }
        }
        applier.apply_rest()?;
        drop(cursors);
        Ok(self.spilled)
    }
}

/// Applies ascending keys at one timestamp, unlogged: a key that is there at that timestamp stays as it is, and newer
/// versions that writers have put there stay above it.
struct Applier {
    entry: Arc<IndexEntry>,
    s: CommitTs,
    progress: Arc<Progress>,
    /// Keys and values, one behind the other, and where each key and each value ends.
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Applier {
    fn new(entry: &Arc<IndexEntry>, s: CommitTs, progress: &Arc<Progress>) -> Self {
        let (entry, progress) = (entry.clone(), progress.clone());
        Self { entry, s, progress, bytes: Vec::new(), ends: Vec::new() }
    }

    fn push(&mut self, key: &[u8], value: &[u8]) -> crate::Result<()> {
        if !self.ends.is_empty() && self.bytes.len() + key.len() + value.len() > BATCH_BYTES {
            self.apply_rest()?;
        }
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
        if self.ends.len() >= BATCH_ENTRIES { self.apply_rest() } else { Ok(()) }
    }

    fn apply_rest(&mut self) -> crate::Result<()> {
        vfs::thread::point("build.batch");
        self.entry.check_build()?;
        self.put(0..self.ends.len())?;
        self.progress.added(self.ends.len())?;
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }

    /// Nothing is attached as a run: in memory it would have no record, and drop out of the checkpoint (rule A16f).
    fn put(&self, some: Range<usize>) -> Result<()> {
        let mut batch = BatchBuilder::new();
        for i in some.clone() {
            let (start, (key_end, end)) = (if i == 0 { 0 } else { self.ends[i - 1].1 }, self.ends[i]);
            batch.push(&self.bytes[start..key_end], Op::Put(&self.bytes[key_end..end]));
        }
        let batch = batch.finish();
        if batch.is_empty() {
            return Ok(());
        }
        match self.entry.index.reserve_with(&batch, Funds::in_place())? {
            Reservation::Direct(reserved) => self.entry.index.apply(&batch, reserved, self.s, &GcView::keep_all()),
            // Writers have made leaves all over the index, or it is large. One entry is put in place, so this ends.
            Reservation::TooCold => {
                assert!(some.len() > 1, "one entry is put in place");
                let middle = some.start + some.len() / 2;
                self.put(some.start..middle)?;
                self.put(middle..some.end)?;
            }
        }
        Ok(())
    }
}
