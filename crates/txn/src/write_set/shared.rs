//! The whole write set of a transaction, for itself and for those who look into it.

use std::ops::{Bound, Deref};
use std::sync::Arc;

use base::{IndexId, Result};
use vfs::sync::Mutex;

use super::layers::{self, Data, Layer, Say, SpillFiles};
use super::merged::{Bounds, Entry, Merged};
use super::{Seq, WriteSet, Written};

/// A write set that others may look into: what is in memory, and behind it what was moved to files.
///
/// The transaction takes the mutex for each operation and each batch of a cursor; it is uncontended until somebody probes.
/// It is innermost: nothing is taken under it, and no file is read. What was moved never changes; it is looked at outside.
///
/// Only the transaction itself writes, spills and rolls back: between two holds of the mutex nothing changes under it.
#[derive(Debug, Default)]
pub struct SharedWriteSet {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    memory: WriteSet,
    /// Oldest first. Each ends where the next begins, the last where `memory` begins.
    layers: Layers,
    /// Taken back, but what was written there stays locked. Each once, and eight merged to one as layers are.
    released: Vec<Layer>,
}

/// Of most transactions none: then there is nothing to allocate.
#[derive(Debug, Default, Clone)]
struct Layers(Option<Arc<Vec<Layer>>>);

impl Deref for Layers {
    type Target = [Layer];

    fn deref(&self) -> &[Layer] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl From<Vec<Layer>> for Layers {
    fn from(layers: Vec<Layer>) -> Self {
        Self((!layers.is_empty()).then(|| Arc::new(layers)))
    }
}

/// Some writes in key order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Keys, each with what was written last; nothing: it was deleted.
    pub entries: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// There may be more behind the last one.
    pub more: bool,
}

impl SharedWriteSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes, in memory. Nothing else may be taken within `write`.
    pub fn write<T>(&self, write: impl FnOnce(&mut WriteSet) -> T) -> T {
        write(&mut self.inner.lock().memory)
    }

    /// The position behind the last operation.
    #[must_use]
    pub fn position(&self) -> Seq {
        self.inner.lock().memory.position()
    }

    /// Takes back everything written since `savepoint`. [`SharedWriteSet::wrote`] still knows of it, as far as it was not in
    /// memory any more.
    ///
    /// # Panics
    /// If `savepoint` lies beyond the current position.
    pub fn rollback_to(&self, savepoint: Seq) {
        let mut inner = self.inner.lock();
        if savepoint >= inner.memory.base() {
            inner.memory.rollback_to(savepoint);
            return;
        }
        inner.memory = WriteSet::starting_at(savepoint);
        let mut kept = inner.layers.to_vec();
        let mut gone = kept.split_off(kept.partition_point(|layer| layer.from < savepoint));
        if let Some(last) = kept.last_mut() {
            gone.insert(0, last.clone());
            last.cut = last.cut.min(savepoint);
        }
        for layer in gone {
            if !inner.released.iter().any(|other| other.is_same(&layer)) {
                inner.released.push(layer.released());
            }
        }
        inner.layers = kept.into();
    }

    /// Keys in memory that were written since `savepoint`, some twice.
    #[must_use]
    pub fn keys_since(&self, savepoint: Seq) -> Vec<(IndexId, Vec<u8>)> {
        self.inner.lock().memory.keys_since(savepoint)
    }

    /// Gives what was written to `key` before `view` to `with`. False if nothing was.
    ///
    /// # Errors
    /// Faults of reading a run file; also of the other reads.
    pub fn get(&self, index: IndexId, key: &[u8], view: Seq, mut with: impl FnMut(Written<'_>)) -> Result<bool> {
        let inner = self.inner.lock();
        if let Some(written) = inner.memory.get(index, key, view) {
            with(written);
            return Ok(true);
        }
        if inner.layers.is_empty() {
            return Ok(false);
        }
        let layers = inner.layers.clone();
        drop(inner);
        for layer in layers.iter().rev() {
            if layer.get(index, key, view, &mut with)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if something was written to `key` before `view`, if only to delete it.
    ///
    /// # Errors
    /// As [`SharedWriteSet::get`].
    pub fn contains(&self, index: IndexId, key: &[u8], view: Seq) -> Result<bool> {
        self.get(index, key, view, |_| {})
    }

    /// From now on the set in memory says which keys were written, not what.
    pub fn keep_keys(&self) {
        let mut inner = self.inner.lock();
        let mut keys = WriteSet::starting_at(inner.memory.base());
        for (index, _) in inner.memory.indexes() {
            for (key, _) in inner.memory.net(index) {
                keys.delete(index, key).expect("fewer and shorter operations than there are");
            }
        }
        inner.memory = keys;
    }

    /// True if something was written to `key`, or with `front` to a key that begins with it: now, or taken back when it was
    /// in memory no more.
    ///
    /// # Errors
    /// As [`SharedWriteSet::get`].
    pub fn wrote(&self, index: IndexId, key: &[u8], front: bool) -> Result<bool> {
        if self.has_in_memory(index, key, front) {
            return Ok(true);
        }
        let layers: Vec<Layer> = {
            let inner = self.inner.lock();
            inner.released.iter().chain(inner.layers.iter()).cloned().collect()
        };
        if !front {
            let mut there = layers.iter().map(|layer| layer.get(index, key, Seq::LATEST, &mut |_| {}));
            return there.find(|there| !matches!(there, Ok(false))).unwrap_or(Ok(false));
        }
        let range = (Bound::Included(key), Bound::Unbounded);
        let mut merged = Merged::new(&layers, Vec::new(), index, range, Seq::LATEST, false);
        Ok(merged.advance()? && merged.entry().0.starts_with(key))
    }

    /// True if something was written to a key in `range`: now, or taken back when it was in memory no more.
    ///
    /// # Errors
    /// As [`SharedWriteSet::get`].
    pub fn wrote_in(&self, index: IndexId, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<bool> {
        let layers: Vec<Layer> = {
            let inner = self.inner.lock();
            if inner.memory.range(index, range, Seq::LATEST).next().is_some() {
                return Ok(true);
            }
            inner.released.iter().chain(inner.layers.iter()).cloned().collect()
        };
        Merged::new(&layers, Vec::new(), index, range, Seq::LATEST, false).advance()
    }

    /// True if something was written to `key`, or with `front` to a key that begins with it, and is still in memory.
    #[must_use]
    pub fn has_in_memory(&self, index: IndexId, key: &[u8], front: bool) -> bool {
        let inner = self.inner.lock();
        let first = inner.memory.range(index, (Bound::Included(key), Bound::Unbounded), Seq::LATEST).next();
        first.is_some_and(|(found, _)| if front { found.starts_with(key) } else { found == key })
    }

    /// Keys in `range` and what was written to them before `view`, from the lower end; with `backward` from the upper one.
    /// Ends behind `entries_max` keys or `bytes_max` bytes of values.
    ///
    /// # Errors
    /// As [`SharedWriteSet::get`].
    pub fn copy(
        &self,
        index: IndexId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        view: Seq,
        backward: bool,
        (entries_max, bytes_max): (usize, usize),
    ) -> Result<Copied> {
        let inner = self.inner.lock();
        let mut copied = Copied::default();
        let mut bytes = 0;
        let mut rest = inner.memory.range(index, range, view);
        loop {
            if copied.entries.len() >= entries_max || bytes >= bytes_max {
                copied.more = true;
                break;
            }
            let next = if backward { rest.next_back() } else { rest.next() };
            let Some((key, written)) = next else { break };
            let value = if let Written::Put(value) = written { Some(value.to_vec()) } else { None };
            bytes += value.as_ref().map_or(0, Vec::len);
            copied.entries.push((key.to_vec(), value));
        }
        if inner.layers.is_empty() {
            return Ok(copied);
        }
        let layers = inner.layers.clone();
        drop(inner);
        merge_in(&layers, copied, index, range, view, backward, (entries_max, bytes_max))
    }

    /// The net effect on an index, in key order, at the end of the transaction: nothing is written any more. With each operation comes whether it is a
    /// fresh put: none is once anything was moved to files, since what is in memory does not know what was written there.
    ///
    /// # Errors
    /// As [`SharedWriteSet::get`], and those of `with`.
    pub fn net<E: From<base::Fault>>(
        &self,
        index: IndexId,
        mut with: impl FnMut(&[u8], Written<'_>, bool) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let inner = self.inner.lock();
        if inner.layers.is_empty() {
            return inner.memory.net_fresh(index).try_for_each(|(key, written, fresh)| with(key, written, fresh));
        }
        drop(inner);
        self.freeze();
        let layers = self.inner.lock().layers.clone();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut merged = Merged::new(&layers, Vec::new(), index, all, Seq::LATEST, false);
        while merged.advance()? {
            let (key, value) = merged.entry();
            with(key, value.as_ref().map_or(Written::Delete, |value| Written::Put(value)), false)?;
        }
        Ok(())
    }

    /// How many keys an index's net effect has in memory, and about how many bytes with the values, of few.
    #[must_use]
    pub fn room_of_net(&self, index: IndexId) -> (usize, usize) {
        self.inner.lock().memory.room_of_net(index)
    }

    /// True if a part of what was written to this index is in files.
    #[must_use]
    pub fn is_spilled(&self, index: IndexId) -> bool {
        self.inner.lock().layers.iter().any(|layer| !layer.runs(index).is_empty())
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let inner = self.inner.lock();
        let (layers, released, memory) = (inner.layers.clone(), inner.released.clone(), inner.memory.bytes());
        drop(inner);
        memory as u64 + layers::memory_bytes(layers.iter().chain(&released))
    }

    /// Moves what is in memory to files; filters take at most `filter_bytes`. If it fails, everything is still there, and
    /// the next call tries again.
    ///
    /// # Errors
    /// Those of writing and reading run files.
    pub fn spill(&self, files: &Arc<dyn SpillFiles>, filter_bytes: usize) -> Result<()> {
        self.freeze();
        let mut layers = self.inner.lock().layers.to_vec();
        let released = self.inner.lock().released.clone();
        for n in 0..layers.len() {
            if matches!(layers[n].data, Data::Memory(_)) {
                let room = layers::filter_room(layers.iter().chain(&released), filter_bytes);
                layers[n] = layers::written_out(&layers[n], files, room)?;
                self.replace_layers(&layers);
                vfs::thread::point("write_set.spilled");
            }
        }
        while let Some(due) = layers::due(&layers) {
            let kept = &layers[..layers.len() - due.len()];
            let room = layers::filter_room(kept.iter().chain(&released), filter_bytes);
            let merged = layers::merge(due, files, room, Say::Operations)?;
            layers.truncate(kept.len());
            layers.push(merged);
            self.replace_layers(&layers);
            vfs::thread::point("write_set.merged");
        }
        self.spill_released(released, files, layers::filter_room(&layers, filter_bytes))
    }

    /// What was taken back, as [`SharedWriteSet::spill`] does with what was not.
    fn spill_released(&self, mut released: Vec<Layer>, files: &Arc<dyn SpillFiles>, filter_bytes: usize) -> Result<()> {
        for n in 0..released.len() {
            if matches!(released[n].data, Data::Memory(_)) {
                let room = layers::filter_room(&released, filter_bytes);
                released[n] = layers::written_out(&released[n], files, room)?;
            }
        }
        while let Some(due) = layers::due(&released) {
            let kept = released.len() - due.len();
            let room = layers::filter_room(&released[..kept], filter_bytes);
            let merged = layers::merge(due, files, room, Say::Written)?;
            released.truncate(kept);
            released.push(merged);
        }
        let old = std::mem::replace(&mut self.inner.lock().released, released);
        drop(old);
        Ok(())
    }

    /// Files that are in no layer any more are removed behind the mutex.
    fn replace_layers(&self, layers: &[Layer]) {
        let old = std::mem::replace(&mut self.inner.lock().layers, layers.to_vec().into());
        drop(old);
    }

    /// Forgets everything; keeps a little memory for the next transaction.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.memory.clear();
        let dropped = (std::mem::take(&mut inner.layers), std::mem::take(&mut inner.released));
        drop(inner);
        // Files are removed outside the mutex.
        drop(dropped);
    }

    /// Makes a layer of what is in memory.
    fn freeze(&self) {
        let mut inner = self.inner.lock();
        if inner.memory.is_empty() {
            return;
        }
        let next = WriteSet::starting_at(inner.memory.position());
        let frozen = Layer::of_memory(std::mem::replace(&mut inner.memory, next));
        Arc::make_mut(inner.layers.0.get_or_insert_default()).push(frozen);
    }
}

/// Merges entries copied out of the memory, as many as were wanted, with the layers behind it.
fn merge_in(
    layers: &[Layer],
    memory: Copied,
    index: IndexId,
    range: Bounds<'_>,
    view: Seq,
    backward: bool,
    (entries_max, bytes_max): (usize, usize),
) -> Result<Copied> {
    let more = memory.more;
    let mut merged = Merged::new(layers, memory.entries, index, range, view, backward);
    let (mut copied, mut bytes) = (Copied::default(), 0);
    while merged.advance()? {
        let (key, value): &Entry = merged.entry();
        // Reached with the last that was copied, if not before: what lies behind it in memory hides nothing given out here.
        if copied.entries.len() >= entries_max || bytes >= bytes_max {
            copied.more = true;
            return Ok(copied);
        }
        bytes += value.as_ref().map_or(0, Vec::len);
        copied.entries.push((key.clone(), value.clone()));
    }
    copied.more = more;
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIMARY: IndexId = IndexId(7);

    #[test]
    fn a22_others_see_pending_keys() {
        let shared = SharedWriteSet::new();
        shared.write(|set| set.delete(PRIMARY, b"m")).expect("delete");
        let within = |low: &'static [u8], high: &'static [u8]| {
            let range = (Bound::Included(low), Bound::Excluded(high));
            !shared.copy(PRIMARY, range, Seq::LATEST, false, (1, 1)).expect("copy").entries.is_empty()
        };
        assert!(within(b"a", b"z"));
        assert!(within(b"m", b"n"));
        assert!(!within(b"a", b"m"));
        assert!(!within(b"z", b"a"), "an inverted range is empty");
    }
}
