//! Keys of a batch that memory does not decide: they go to the disk together.
//!
//! 1. They are gathered, with what memory said of them and with the keys behind them, to some number or size: a wave.
//! 2. Attached runs are asked key by key; if what they have is large it is answered, with all of the following, before more is asked for. Then strands, the one with the newest versions first, each for all keys that are still open.
//! 3. In a run the keys of one partition take one look at its index block, and all of them ask their filters before any data block is read.
//! 4. Data blocks come in the order of keys. One that is not in memory is read together with the next ones that are wanted, as far as they lie
//!    next to each other in the file. Each is opened once, whatever number of keys it has; what no key wants is not read.
//! 5. Keys are answered in their order; only then a large value of a strand is read, one at a time.
//!
//! A fault ends a batch at its key, as if keys were read one by one: those before it are answered, and nobody looks at those behind it any more. So
//! of each step the first fault is the one of the lowest key, and of all steps the last one is.
//!
//! No other thread helps: what a wave waits for is mostly one read for each few keys, and who wakes a thread for a part of them has nearly read it.

use std::sync::Arc;

use base::bytes::printable;
use base::{CommitTs, Fault, Result};
use store::KeyHash;

use crate::block::DataBlock;
use crate::index_block::IndexBlock;
use crate::lsm::{Core, Sources};
use crate::read::Best;
use crate::run::Run;
use crate::slot::{Slot, ahead_bytes, read_ahead};
use crate::strand::Strand;
use crate::top::Top;

/// Keys of a wave, at most.
const WAVE_KEYS: usize = 256;
/// Bytes of values that wait, about, at most, beside those of the last wave's key.
const WAVE_BYTES: usize = 1 << 20;

/// Keys that wait for the disk, or for one before them that does; ascending.
#[derive(Default)]
pub(crate) struct Wave<'k> {
    keys: Vec<Waiting<'k>>,
    bytes: usize,
}

struct Waiting<'k> {
    /// Its place in the batch.
    place: usize,
    key: &'k [u8],
    hash: KeyHash,
    best: Best,
    /// Not all that is in memory was enough.
    is_open: bool,
}

impl Waiting<'_> {
    /// True if a source with versions up to `newest` may have a newer one.
    fn asks(&self, newest: CommitTs) -> bool {
        self.is_open && self.best.is_older_than(newest)
    }
}

impl<'k> Wave<'k> {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.keys.len() >= WAVE_KEYS || self.bytes >= WAVE_BYTES
    }

    /// Adds the next key, with what was found so far.
    #[cold]
    pub fn push(&mut self, place: usize, key: &'k [u8], best: Best, is_open: bool) {
        self.bytes += best.bytes();
        self.keys.push(Waiting { place, key, hash: KeyHash::of(key), best, is_open });
    }
}

/// A fault, and which of the keys that were looked for met it.
struct Met {
    at: usize,
    fault: Fault,
}

impl Core {
    /// Reads what a wave waits for, and answers it.
    #[cold]
    pub(crate) fn finish(
        &self,
        sources: &Sources,
        at: CommitTs,
        wave: &mut Wave<'_>,
        found: &mut dyn FnMut(usize, CommitTs, &[u8]),
    ) -> Result<()> {
        let Wave { mut keys, .. } = std::mem::take(wave);
        while !keys.is_empty() {
            let (asked, mut outcome) = read_attached(sources, at, &mut keys);
            let rest = keys.split_off(asked);
            for strand in &sources.strands {
                if let Err(Met { at, fault }) = self.read_strand(strand, at, &mut keys) {
                    keys.truncate(at);
                    outcome = Err(fault);
                }
            }
            for Waiting { place, key, best, .. } in &keys {
                let handed = best.hand_out(&self.env, |ts, value| found(*place, ts, value));
                handed.map_err(|fault| fault.in_index(self.env.id, || printable(key)))?;
            }
            outcome?;
            keys = rest;
        }
        Ok(())
    }

    fn read_strand(&self, strand: &Strand, at: CommitTs, keys: &mut [Waiting<'_>]) -> Result<(), Met> {
        let mut from = 0;
        while let Some(first) = first_asking(keys, from, strand.newest) {
            from = first + 1;
            if let Some(run) = strand.run_of(keys[first].key) {
                from = first + keys[first..].partition_point(|waiting| *waiting.key <= *run.info.max_key);
                self.read_run(run, at, &mut keys[first..from]).map_err(behind(first))?;
            }
        }
        Ok(())
    }

    /// Of keys that a run may have.
    fn read_run(&self, run: &Run, at: CommitTs, keys: &mut [Waiting<'_>]) -> Result<(), Met> {
        let newest = run.info.newest;
        let Some(mut first) = first_asking(keys, 0, newest).filter(|_| run.info.oldest <= at) else { return Ok(()) };
        let top = run.top(&self.env).map_err(|fault| Met { at: first, fault })?;
        // Where the key goes on that the last partition did not decide.
        let mut goes_on = None;
        loop {
            // One that the run begins with may be newer there than what is looked for.
            let partition = goes_on.or_else(|| top.partition_of(keys[first].key, at)).unwrap_or(0);
            let is_of = |waiting: &Waiting<'_>| top.partition_of(waiting.key, at) <= Some(partition);
            let past = first + keys[first..].partition_point(is_of);
            let open = self.read_partition(top, partition, (at, newest), &mut keys[first..past]);
            let open = open.map_err(behind(first))?;
            goes_on = open.map(|_| partition + 1);
            let next = open.map_or(past, |open| first + open);
            first = match first_asking(keys, next, newest) {
                Some(first) => first,
                None => return Ok(()),
            };
        }
    }

    /// Of keys of one partition, of which the first one asks. The one with which the next partition begins, if this does not decide it.
    fn read_partition(
        &self,
        top: &Top,
        partition: usize,
        (at, newest): (CommitTs, CommitTs),
        keys: &mut [Waiting<'_>],
    ) -> Result<Option<usize>, Met> {
        let index = top.partitions[partition].share(&self.env).map_err(|fault| Met { at: 0, fault })?;
        let asking = keys.iter().enumerate().filter(|(_, waiting)| waiting.asks(newest));
        let spots: Vec<_> = asking.map(|(n, waiting)| (n, index.spot(waiting.key, waiting.hash, at))).collect();
        let mut wanted: Vec<_> = spots.iter().filter_map(|(n, spot)| spot.wants(&index, keys[*n].key)).collect();
        wanted.dedup();
        let mut blocks = Blocks { core: self, index: &index, wanted, opened: Vec::new() };
        let next = top.partitions.get(partition + 1).map(|next| &*next.info.key);
        for (n, spot) in spots {
            let Waiting { key, best, .. } = &mut keys[n];
            let open = |slot| blocks.open(slot);
            let is_decided = spot.find(&index, key, at, open, |version| best.offer(version.ts, version.value));
            if !is_decided.map_err(|fault| Met { at: n, fault })? && next == Some(*key) {
                return Ok(Some(n));
            }
        }
        Ok(None)
    }
}

/// The first key from a place on that asks a source with versions up to `newest`.
fn first_asking(keys: &[Waiting<'_>], from: usize, newest: CommitTs) -> Option<usize> {
    (from..keys.len()).find(|n| keys[*n].asks(newest))
}

/// For what was met among the keys from a place on.
fn behind(first: usize) -> impl FnOnce(Met) -> Met {
    move |met| Met { at: first + met.at, ..met }
}

/// Asks attached runs for the first keys, until what has been found is large enough to be answered. How many keys that were; a fault is of the
/// next one.
fn read_attached(sources: &Sources, at: CommitTs, keys: &mut [Waiting<'_>]) -> (usize, Result<()>) {
    let mut bytes = 0;
    for (n, waiting) in keys.iter_mut().enumerate() {
        for attached in sources.attached.iter().filter(|attached| attached.ts <= at) {
            if waiting.asks(attached.ts) {
                match attached.run.get(waiting.key) {
                    Ok(Some(value)) => waiting.best.offer(attached.ts, value.as_deref().into()),
                    Ok(None) => {}
                    Err(fault) => return (n, Err(fault)),
                }
            }
        }
        bytes += waiting.best.bytes();
        if bytes >= WAVE_BYTES {
            return (n + 1, Ok(()));
        }
    }
    (keys.len(), Ok(()))
}

/// Data blocks of one index block, as keys of a wave come to them: ascending.
struct Blocks<'a> {
    core: &'a Core,
    index: &'a IndexBlock,
    /// Those that keys want, ascending, as far as is known before any was read.
    wanted: Vec<usize>,
    /// The last one that was asked for, and what was read together with it.
    opened: Vec<(usize, Arc<DataBlock>)>,
}

impl Blocks<'_> {
    fn open(&mut self, at: usize) -> Result<Arc<DataBlock>> {
        self.opened.retain(|(slot, _)| *slot >= at);
        if let Some((_, block)) = self.opened.iter().find(|(slot, _)| *slot == at) {
            return Ok(block.clone());
        }
        let place = Slot { index: self.index, at };
        match place.resident() {
            Some(block) => self.opened.push((at, block)),
            None => self.read(place)?,
        }
        Ok(self.opened.last().expect("just opened").1.clone())
    }

    /// Reads a block, and keeps it and what came with it in memory, if there is room. It is the last one of `opened`.
    fn read(&mut self, place: Slot<'_>) -> Result<()> {
        let env = &self.core.env;
        let is_opened = |slot: usize| self.opened.iter().any(|(opened, _)| *opened == slot);
        let more = &self.wanted[self.wanted.partition_point(|slot| *slot <= place.at)..];
        let more = more.iter().copied().take_while(|slot| !is_opened(*slot));
        self.core.counters.count_point_block();
        place.note_read(env);
        let blocks = read_ahead(env, place, more.clone(), ahead_bytes(env))?;
        for _ in 1..blocks.len() {
            self.core.counters.count_point_block();
        }
        self.core.counters.add_read_ahead(blocks.len() as u64 - 1);
        let read: Vec<_> = std::iter::once(place.at).chain(more).zip(blocks).collect();
        for (at, block) in read.into_iter().rev() {
            let slot = Slot { at, ..place };
            if at != place.at {
                slot.note_read(env);
            }
            slot.keep(env, &block);
            self.opened.push((at, block));
        }
        Ok(())
    }
}
