//! Parts of a write set that were moved out of memory (rules A14, P7).
//!
//! The set is a list of layers, oldest first, and the part in memory that is being written behind them. A layer holds
//! the operations of a stretch of positions: first as the memory it was in, then as run files, one for each index. A
//! run's entry is a key with all operations of the layer on it, newest first, each with its position: so a savepoint
//! that lies within a spilled layer can still be gone back to.
//!
//! Going back cuts: operations of a layer from its `cut` on are never looked at again. Positions are given out again
//! from there, by what is written next, in later layers; a cut only ever sinks, so no position means two operations.
//!
//! Layers are merged eight to one, as their level says, so that a read asks few of them. Runs that do not overlap, as
//! ascending keys give, are only put side by side.
//!
//! The files belong to the transaction alone: nothing durable names them, they are not synced, and what a crash leaves
//! of them is removed when the database is opened. Errors of theirs fail a statement and poison nothing (B7).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use base::bytes::{Reader, put_varint};
use base::{Fault, IndexId, Result};
use store::{Run, RunMeta, RunWriter};

use super::filter::Filter;
use super::merged::{Histories, RunsCursor};
use super::{Seq, WriteSet, Written};

/// Layers of one level that are merged into one of the next.
const FAN_IN: usize = 8;
/// Runs side by side that one index of a layer has at most: each keeps a file open.
const RUNS_MAX: usize = FAN_IN;

/// Where spilled writes go.
pub trait SpillFiles: Send + Sync + fmt::Debug {
    /// Starts a run file that nothing names.
    ///
    /// # Errors
    /// Those of making a file.
    fn create(&self) -> Result<(u64, RunWriter)>;

    /// Opens a file that was written.
    ///
    /// # Errors
    /// Those of reading it.
    fn open(&self, meta: &RunMeta) -> Result<Run>;

    /// Removes a file that was created, whether it was finished or not.
    fn remove(&self, id: u64);

    /// Single keys of this index are looked up often: a filter is worth its memory.
    fn is_looked_up(&self, index: IndexId) -> bool;
}

/// A file, removed with the last who has it.
#[derive(Debug)]
struct RunFile {
    id: u64,
    files: Arc<dyn SpillFiles>,
}

impl Drop for RunFile {
    fn drop(&mut self) {
        self.files.remove(self.id);
    }
}

/// Operations on one index in a run file.
#[derive(Debug)]
pub(super) struct SpilledRun {
    pub(super) run: Run,
    /// Positions in the file count from here.
    base: u64,
    filter: Filter,
    _file: RunFile,
}

impl SpilledRun {
    /// The newest operation on `key` before `view`, given to `with`. False if there is none.
    fn get(&self, key: &[u8], view: Seq, with: &mut dyn FnMut(Written<'_>)) -> Result<bool> {
        if !self.filter.may_have(key) {
            return Ok(false);
        }
        let Some(list) = self.run.get(key)?.flatten() else { return Ok(false) };
        Ok(self.seen(&list, view)?.map(with).is_some())
    }

    /// Of the operations in an entry, the newest before `view`.
    pub(super) fn seen<'a>(&self, list: &'a [u8], view: Seq) -> Result<Option<Written<'a>>> {
        for operation in self.operations(list) {
            let (seq, written) = operation?;
            if seq < view {
                return Ok(Some(written));
            }
        }
        Ok(None)
    }

    /// The operations in an entry, newest first.
    pub(super) fn operations<'a>(&self, list: &'a [u8]) -> impl Iterator<Item = Result<(Seq, Written<'a>)>> + use<'a> {
        let (base, mut rest) = (self.base, Reader::new(list));
        let malformed = || Fault::corrupt("spilled writes", 0, "entry", "operations", "something else");
        std::iter::from_fn(move || (!rest.is_empty()).then(|| operation(&mut rest, base).ok_or_else(malformed)))
    }

    fn memory_bytes(&self) -> u64 {
        self.run.memory_bytes() + self.filter.bytes() as u64 + size_of::<Self>() as u64
    }
}

fn operation<'a>(rest: &mut Reader<'a>, base: u64) -> Option<(Seq, Written<'a>)> {
    let seq = Seq(base + rest.varint()?);
    let written = match rest.length()? {
        0 => Written::Delete,
        n => Written::Put(rest.take(n - 1)?),
    };
    Some((seq, written))
}

/// Writes a [`SpilledRun`].
struct SpillWriter {
    writer: RunWriter,
    file: RunFile,
    base: u64,
    filter: Filter,
    list: Vec<u8>,
}

impl SpillWriter {
    fn new(files: &Arc<dyn SpillFiles>, base: Seq, filter: Filter) -> Result<Self> {
        let (id, writer) = files.create()?;
        Ok(Self { writer, file: RunFile { id, files: files.clone() }, base: base.0, filter, list: Vec::new() })
    }

    /// Takes an operation of the next key, newest first.
    fn push(&mut self, seq: Seq, written: Written<'_>) {
        put_varint(&mut self.list, seq.0 - self.base);
        match written {
            Written::Delete => put_varint(&mut self.list, 0),
            Written::Put(value) => {
                put_varint(&mut self.list, value.len() as u64 + 1);
                self.list.extend_from_slice(value);
            }
        }
    }

    /// Ends the operations of `key`; without any, the key is left out.
    fn add(&mut self, key: &[u8]) -> Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        self.filter.add(key);
        self.writer.add(key, Some(&self.list))?;
        self.list.clear();
        Ok(())
    }

    fn finish(self) -> Result<SpilledRun> {
        let meta = self.writer.finish_temporary()?;
        let run = self.file.files.open(&meta)?;
        Ok(SpilledRun { run, base: self.base, filter: self.filter, _file: self.file })
    }
}

type Files = BTreeMap<IndexId, Vec<Arc<SpilledRun>>>;

/// Operations of a stretch of positions.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// Position of its first operation.
    pub(super) from: Seq,
    /// Operations from here on were taken back.
    pub(super) cut: Seq,
    /// Merged so often.
    pub(super) level: u32,
    pub(super) data: Data,
}

#[derive(Debug, Clone)]
pub(super) enum Data {
    Memory(Arc<WriteSet>),
    /// Of each index, runs that do not overlap, ascending.
    Files(Arc<Files>),
}

impl Layer {
    pub(super) fn of_memory(set: WriteSet) -> Self {
        Self { from: set.base(), cut: Seq::LATEST, level: 0, data: Data::Memory(Arc::new(set)) }
    }

    /// The newest operation on `key` before `view`, given to `with`. False if there is none.
    pub(super) fn get(&self, index: IndexId, key: &[u8], view: Seq, with: &mut dyn FnMut(Written<'_>)) -> Result<bool> {
        let view = view.min(self.cut);
        if view <= self.from {
            return Ok(false);
        }
        match &self.data {
            Data::Memory(set) => Ok(set.get(index, key, view).map(with).is_some()),
            Data::Files(_) => {
                let runs = self.runs(index);
                let at = runs.partition_point(|run| run.run.key_range().is_some_and(|(_, max)| max < key));
                runs.get(at).map_or(Ok(false), |run| run.get(key, view, with))
            }
        }
    }

    /// Runs of an index, ascending; none while the layer is in memory.
    pub(super) fn runs(&self, index: IndexId) -> &[Arc<SpilledRun>] {
        match &self.data {
            Data::Memory(_) => &[],
            Data::Files(files) => files.get(&index).map_or(&[], Vec::as_slice),
        }
    }

    pub(super) fn indexes(&self) -> Vec<IndexId> {
        match &self.data {
            Data::Memory(set) => set.indexes().map(|(index, _)| index).collect(),
            Data::Files(files) => files.keys().copied().collect(),
        }
    }

    /// What is kept of it when it was taken back: all that it ever held, cut off since or not. It is merged anew.
    pub(super) fn released(&self) -> Self {
        Self { cut: Seq::LATEST, level: 0, ..self.clone() }
    }

    /// The same operations, if perhaps not the same cut.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.data, &other.data) {
            (Data::Memory(a), Data::Memory(b)) => Arc::ptr_eq(a, b),
            (Data::Files(a), Data::Files(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    fn filter_bytes(&self) -> usize {
        match &self.data {
            Data::Memory(_) => 0,
            Data::Files(files) => files.values().flatten().map(|run| run.filter.bytes()).sum(),
        }
    }
}

/// Memory of layers, in bytes; what several of them have counts once.
pub(super) fn memory_bytes<'a>(layers: impl Iterator<Item = &'a Layer>) -> u64 {
    let mut parts = BTreeMap::new();
    for layer in layers {
        match &layer.data {
            Data::Memory(set) => drop(parts.insert(Arc::as_ptr(set).addr(), set.bytes() as u64)),
            Data::Files(files) => {
                parts.extend(files.values().flatten().map(|run| (Arc::as_ptr(run).addr(), run.memory_bytes())));
            }
        }
    }
    parts.values().sum()
}

/// Memory that filters of a write set may take, beside what `layers` have.
pub(super) fn filter_room<'a>(layers: impl IntoIterator<Item = &'a Layer>, bytes_max: usize) -> usize {
    bytes_max.saturating_sub(layers.into_iter().map(Layer::filter_bytes).sum())
}

/// Moves a layer from memory to files.
pub(super) fn written_out(layer: &Layer, files: &Arc<dyn SpillFiles>, mut filter_room: usize) -> Result<Layer> {
    let Data::Memory(set) = &layer.data else { return Ok(layer.clone()) };
    let mut out = Files::new();
    for (index, keys) in set.indexes() {
        let filter = new_filter(files, index, keys as u64, &mut filter_room);
        let mut writer = SpillWriter::new(files, layer.from, filter)?;
        for (key, operations) in set.histories(index, layer.cut) {
            operations.for_each(|(seq, written)| writer.push(seq, written));
            writer.add(key)?;
        }
        out.insert(index, vec![Arc::new(writer.finish()?)]);
    }
    Ok(Layer { data: Data::Files(Arc::new(out)), ..layer.clone() })
}

/// The newest layers that are to become one, if there are enough of a level.
pub(super) fn due(layers: &[Layer]) -> Option<&[Layer]> {
    let level = layers.last()?.level;
    let first = layers.len().checked_sub(FAN_IN)?;
    let same = |layer: &Layer| layer.level == level && matches!(layer.data, Data::Files(_));
    layers[first..].iter().all(same).then(|| &layers[first..])
}

/// What a merged layer says of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Say {
    /// All operations on it.
    Operations,
    /// That it was written.
    Written,
}

/// One layer in place of several, oldest first; if operations are kept, of neighbours.
pub(super) fn merge(layers: &[Layer], files: &Arc<dyn SpillFiles>, mut filter_room: usize, say: Say) -> Result<Layer> {
    let (first, last) = (&layers[0], layers.last().expect("some layers are merged"));
    let mut indexes: Vec<IndexId> = layers.iter().flat_map(Layer::indexes).collect();
    indexes.sort_unstable();
    indexes.dedup();
    let mut out = Files::new();
    for index in indexes {
        let runs = match side_by_side(layers, index) {
            Some(runs) => runs,
            None => {
                let keys = layers.iter().flat_map(|layer| layer.runs(index)).map(|run| run.run.len()).sum();
                let filter = new_filter(files, index, keys, &mut filter_room);
                let writer = SpillWriter::new(files, first.from, filter)?;
                vec![Arc::new(merge_runs(layers, index, writer, say)?)]
            }
        };
        out.insert(index, runs);
    }
    Ok(Layer { from: first.from, cut: last.cut, level: last.level + 1, data: Data::Files(Arc::new(out)) })
}

fn new_filter(files: &Arc<dyn SpillFiles>, index: IndexId, keys: u64, room: &mut usize) -> Filter {
    if !files.is_looked_up(index) {
        return Filter::default();
    }
    let filter = Filter::new(keys, *room);
    *room -= filter.bytes();
    filter
}

/// The runs of the layers in key order, if none overlap, there are few, and none has operations that a cut hides: the
/// merged layer has but one cut, the last one's.
fn side_by_side(layers: &[Layer], index: IndexId) -> Option<Vec<Arc<SpilledRun>>> {
    let (_, before) = layers.split_last()?;
    if before.iter().any(|layer| layer.cut != Seq::LATEST) {
        return None;
    }
    let mut runs: Vec<_> = layers.iter().flat_map(|layer| layer.runs(index)).filter(|r| !r.run.is_empty()).collect();
    runs.sort_unstable_by(|a, b| a.run.key_range().cmp(&b.run.key_range()));
    let apart = |pair: &[&Arc<SpilledRun>]| {
        pair[0].run.key_range().zip(pair[1].run.key_range()).is_some_and(|((_, max), (min, _))| max < min)
    };
    (runs.len() <= RUNS_MAX && runs.windows(2).all(apart)).then(|| runs.into_iter().cloned().collect())
}

fn merge_runs(layers: &[Layer], index: IndexId, mut writer: SpillWriter, say: Say) -> Result<SpilledRun> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let cursors = layers.iter().rev().map(|layer| (RunsCursor::new(layer.runs(index), all, false), layer.cut));
    let mut histories = Histories::new(cursors)?;
    while let Some(key) = histories.next_key() {
        let key = key.to_vec();
        histories.take(&key, &mut |seq, written| {
            if say == Say::Operations {
                writer.push(seq, written);
            }
        })?;
        if say == Say::Written {
            writer.push(layers[0].from, Written::Delete);
        }
        writer.add(&key)?;
    }
    writer.finish()
}
