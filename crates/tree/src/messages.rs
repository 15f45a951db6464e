//! Messages: changes of a leaf that is not in memory, until it is.
//!
//! A message is a version, (key, ts, put or delete), so it is idempotent: a leaf that has it already does not change
//! (decision D3). Where a message may be:
//!
//! 1. in [`Pending`], beside the leaf's state, under its latch: appended as commits come, in no order, to parts of slabs that the
//!    leaves below one inner node share: they are flushed together;
//! 2. in a segment of the buffer above the leaf, on disk (`segment`, `flush`): sorted, immutable;
//! 3. in the leaf, once it is loaded (`settle`).
//!
//! From 1 to 2 it is copied before it is removed; from 2 to 3 it is copied, and becomes void when the leaf's image is complete
//! through its timestamp. So what a loader finds is never too little, and finding it twice changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::CommitTs;
use base::bytes::Reader;
use index::Op;
use store::{Budget, Charge, Class, Grant, SlabPart, Slabs, allocated, prefetch, prefetch_at};

/// A leaf that has little pending gets the smallest parts of a slab, then larger ones: up to so many in a slab, unless one message
/// needs more.
const PARTS_PER_SLAB: usize = 8;

use crate::node::max_inline_bytes;

/// One message, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub key: &'a [u8],
    pub ts: CommitTs,
    pub op: Op<'a>,
}

/// Messages in the order in which they came: those in `heap`, then those in `parts`.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Gathered for a moment. For each: key (length, bytes), value (length + 1, or 0 for a delete, and bytes), timestamp (8 bytes).
    heap: Vec<u8>,
    /// What is pending, in the same form, each message whole in one part: it neither moves nor leaves gaps in a heap when it goes.
    parts: Vec<SlabPart>,
    /// Address behind what was written last. Only to ask for its line ahead.
    end: usize,
    bytes: usize,
    pub count: u64,
    /// Puts less deletes: what they may add to the live keys.
    pub surplus: i64,
    /// Lowest and highest timestamp; MAX and ZERO if there is none.
    pub oldest: Option<CommitTs>,
    pub newest: CommitTs,
    /// Of what is on its way: its segment is in the buffer. Set under the structure latch.
    is_placed: AtomicBool,
}

impl Messages {
    pub fn note_placed(&self) {
        self.is_placed.store(true, Ordering::Release);
    }

    pub fn is_placed(&self) -> bool {
        self.is_placed.load(Ordering::Acquire)
    }

    /// Adds one, in memory of the allocator's, which nobody charges: for what is looked at and dropped.
    pub fn push(&mut self, message: Message<'_>) {
        let (at, bytes) = (self.heap.len(), written_bytes(&message));
        self.heap.resize(at + bytes, 0);
        write(&message, &mut self.heap[at..]);
        self.note(&message, bytes);
    }

    /// Adds one in memory of `slabs`, from granted memory as long as that lasts. True if more memory was needed.
    fn push_pending(&mut self, message: Message<'_>, slabs: &Arc<Slabs>, grant: &mut Option<Grant>) -> bool {
        let bytes = written_bytes(&message);
        let room = self.parts.last_mut().and_then(|part| part.append(bytes));
        let grows = room.is_none();
        let fill = |room: &mut [u8]| {
            write(&message, room);
            room.as_ptr_range().end.addr()
        };
        self.end = match room {
            Some(room) => fill(room),
            None => {
                let wish = (self.bytes / 2).min(slabs.slab_bytes() / PARTS_PER_SLAB);
                let mut part = slabs.take(bytes, wish, grant);
                let end = fill(part.append(bytes).expect("as many were asked for"));
                self.parts.push(part);
                end
            }
        };
        self.note(&message, bytes);
        grows
    }

    /// What the next one that is pending will touch.
    pub fn prefetch_end(&self) {
        if let Some(part) = self.parts.last() {
            prefetch(part);
            prefetch_at(self.end);
        }
    }

    fn note(&mut self, message: &Message<'_>, bytes: usize) {
        self.bytes += bytes;
        self.count += 1;
        self.surplus += if matches!(message.op, Op::Put(_)) { 1 } else { -1 };
        self.oldest = Some(self.oldest.map_or(message.ts, |oldest| oldest.min(message.ts)));
        self.newest = self.newest.max(message.ts);
    }

    /// Takes over all of another one that is pending, behind its own.
    fn append(&mut self, other: Messages) {
        debug_assert!(other.heap.is_empty(), "what is pending is in parts");
        self.end = other.end;
        self.parts.extend(other.parts);
        self.bytes += other.bytes;
        self.count += other.count;
        self.surplus += other.surplus;
        self.oldest = self.oldest.into_iter().chain(other.oldest).min();
        self.newest = self.newest.max(other.newest);
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the list of parts takes; the parts are charged as slabs.
    fn list_bytes(&self) -> u64 {
        allocated(self.parts.capacity() * size_of::<SlabPart>())
    }

    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        self.iter_from(0)
    }

    /// Those behind the first so many bytes.
    fn iter_from(&self, mut bytes: usize) -> impl Iterator<Item = Message<'_>> {
        let logs = std::iter::once(&*self.heap).chain(self.parts.iter().map(|part| &**part));
        logs.flat_map(move |log| {
            let passed = bytes.min(log.len());
            bytes -= passed;
            let mut r = Reader::new(&log[passed..]);
            std::iter::from_fn(move || read(&mut r))
        })
    }
}

fn written_bytes(message: &Message<'_>) -> usize {
    let value = match message.op {
        Op::Delete => 1,
        Op::Put(value) => varint_bytes(value.len() as u64 + 1) + value.len(),
    };
    varint_bytes(message.key.len() as u64) + message.key.len() + value + size_of::<CommitTs>()
}

/// Fills `out`, which is as long as it takes.
fn write(message: &Message<'_>, out: &mut [u8]) {
    let out = write_varint(out, message.key.len() as u64);
    let out = write_bytes(out, message.key);
    let out = match message.op {
        Op::Delete => write_varint(out, 0),
        Op::Put(value) => write_bytes(write_varint(out, value.len() as u64 + 1), value),
    };
    out.copy_from_slice(&message.ts.0.to_le_bytes());
}

fn write_bytes<'a>(out: &'a mut [u8], bytes: &[u8]) -> &'a mut [u8] {
    let (front, rest) = out.split_at_mut(bytes.len());
    front.copy_from_slice(bytes);
    rest
}

/// As [`base::bytes::put_varint`].
fn write_varint(out: &mut [u8], n: u64) -> &mut [u8] {
    let mut bytes = [0; 10];
    let count = varint_bytes(n);
    for (i, byte) in bytes[..count].iter_mut().enumerate() {
        *byte = (n >> (7 * i)) as u8 | 0x80;
    }
    bytes[count - 1] &= 0x7f;
    write_bytes(out, &bytes[..count])
}

fn varint_bytes(n: u64) -> usize {
    (n | 1).ilog2() as usize / 7 + 1
}

fn read<'a>(r: &mut Reader<'a>) -> Option<Message<'a>> {
    let key = r.bytes()?;
    let op = match r.length()?.checked_sub(1) {
        None => Op::Delete,
        Some(bytes) => Op::Put(r.take(bytes)?),
    };
    Some(Message { key, op, ts: CommitTs(r.u64()?) })
}

/// Longer keys are in no message: an inner node says of each block of messages the first key and the last one, and has to fit into
/// a block itself.
const MESSAGE_KEY_BYTES_MAX: usize = 1 << 10;

/// True if such an operation may be a message. Others, with values too long for a leaf too, go into the leaf in memory.
pub(crate) fn may_be_message(node_bytes: usize, key: &[u8], op: Op<'_>) -> bool {
    key.len() <= MESSAGE_KEY_BYTES_MAX && op.value_bytes() <= max_inline_bytes(node_bytes, key.len())
}

/// All messages by key, the newest of a key first, each once.
pub(crate) fn sorted<'a>(sources: impl IntoIterator<Item = &'a Messages>) -> Vec<Message<'a>> {
    in_order(sources.into_iter().flat_map(Messages::iter).collect())
}

fn in_order(mut all: Vec<Message<'_>>) -> Vec<Message<'_>> {
    // Of sorted sources: the stable sort merges them.
    all.sort_by(|a, b| a.key.cmp(b.key).then(b.ts.cmp(&a.ts)));
    all.dedup_by(|a, b| a.ts == b.ts && a.key == b.key);
    all
}

/// What messages of `bytes` for one leaf may take at most, beside so many that are pending there, and besides one slab for all leaves
/// below an inner node. Each part is there because a message did not fit into the one before it, so parts are at most twice as long
/// together, save the last one; the same holds of slabs and the parts in them, unless all of these are small beside a slab.
pub(crate) fn reserved_bytes(bytes: usize, pending_bytes: usize, node_bytes: usize) -> usize {
    let (granule, large) = (Slabs::granule_bytes(node_bytes), node_bytes / PARTS_PER_SLAB);
    // A flush may have taken what is pending meanwhile.
    let last = ((pending_bytes / 2).min(large) + granule).max(2 * granule + bytes);
    let parts = 2 * bytes + last;
    let gaps = if bytes <= large { parts / PARTS_PER_SLAB } else { parts };
    let slabs = (parts + gaps) * Slabs::charged_bytes(node_bytes) as usize / node_bytes;
    let list = 2 * size_of::<SlabPart>() * (4 + parts / granule);
    slabs + list + allocated(size_of::<Pending>()) as usize
}

/// Of messages on their way into a segment, without the list of parts.
const SHARED_BYTES: u64 = allocated(2 * size_of::<usize>() + size_of::<Messages>());

/// The messages of one leaf that are in no segment.
#[derive(Debug)]
pub(crate) struct Pending {
    pub open: Messages,
    /// On their way into a segment; removed when that is in the buffer, by the flush or by who has loaded the leaf.
    pub flushing: Option<Arc<Messages>>,
    /// Bytes of `open` that a PARKED leaf has.
    in_leaf: usize,
    slabs: Arc<Slabs>,
    /// What this takes, with the lists of parts.
    charge: Charge,
}

impl Pending {
    /// Of a leaf below the node that has these slabs.
    pub fn new(slabs: Arc<Slabs>, budget: &Budget) -> Self {
        let charge = budget.charge(Class::Buffers, 0);
        Self { open: Messages::default(), flushing: None, in_leaf: 0, slabs, charge }
    }

    /// Adds one, from granted memory as long as that lasts.
    pub fn push(&mut self, message: Message<'_>, grant: &mut Option<Grant>) {
        if !self.open.push_pending(message, &self.slabs, grant) {
            return;
        }
        if let Some(more) = self.memory_bytes().checked_sub(self.charge.bytes()).filter(|more| *more > 0) {
            match grant.as_mut().and_then(|grant| grant.try_take(more)) {
                Some(granted) => self.charge.merge(granted),
                None => self.charge.grow(more),
            }
        }
    }

    /// The leaf has all of it.
    pub fn note_in_leaf(&mut self) {
        self.in_leaf = self.open.bytes();
    }

    /// What a PARKED leaf lacks, in order.
    pub fn not_in_leaf(&self) -> Vec<Message<'_>> {
        in_order(self.open.iter_from(self.in_leaf).collect())
    }

    /// Without the slabs, which charge for themselves.
    fn memory_bytes(&self) -> u64 {
        let flushing = self.flushing.as_ref().map_or(0, |flushing| SHARED_BYTES + flushing.list_bytes());
        allocated(size_of::<Self>()) + self.open.list_bytes() + flushing
    }

    pub fn oldest(&self) -> CommitTs {
        self.parts().filter_map(|part| part.oldest).min().unwrap_or(CommitTs::MAX)
    }

    pub fn newest(&self) -> CommitTs {
        self.parts().map(|part| part.newest).max().unwrap_or_default()
    }

    pub fn count(&self) -> u64 {
        self.parts().map(|part| part.count).sum()
    }

    pub fn surplus(&self) -> i64 {
        self.parts().map(|part| part.surplus).sum()
    }

    pub fn bytes(&self) -> usize {
        self.parts().map(Messages::bytes).sum()
    }

    pub fn parts(&self) -> impl Iterator<Item = &Messages> {
        self.flushing.as_deref().into_iter().chain([&self.open])
    }

    /// Everything is on its way into a segment from now on, also what was before and did not get there.
    pub fn start_flush(&mut self) -> Arc<Messages> {
        let mut all = std::mem::take(&mut self.open);
        self.in_leaf = 0;
        match self.flushing.take().map(Arc::try_unwrap) {
            None => {}
            Some(Ok(before)) => all.append(before),
            // The flush that failed has not let go of them yet.
            Some(Err(before)) => before.iter().for_each(|message| {
                all.push_pending(message, &self.slabs, &mut None);
            }),
        }
        let all = Arc::new(all);
        self.flushing = Some(all.clone());
        self.charge.set(self.memory_bytes());
        all
    }

    /// The same for what is newer than `through`, if there is something; the rest stays.
    pub fn start_flush_above(&mut self, through: CommitTs) -> Option<Arc<Messages>> {
        if self.newest() <= through {
            return None;
        }
        let (mut late, mut newer) = (Messages::default(), Messages::default());
        for message in self.parts().flat_map(Messages::iter) {
            let part = if message.ts > through { &mut newer } else { &mut late };
            part.push_pending(message, &self.slabs, &mut None);
        }
        self.open = late;
        self.flushing = (newer.count > 0).then(|| Arc::new(newer));
        self.charge.set(self.memory_bytes());
        self.flushing.clone()
    }

    /// What is in a segment already.
    pub fn placed(&self) -> Option<Arc<Messages>> {
        self.flushing.clone().filter(|messages| messages.is_placed())
    }

    /// What was flushed is in a segment. False if it is not pending any more.
    pub fn end_flush(&mut self, flushed: &Arc<Messages>) -> bool {
        let is_pending = self.flushing.as_ref().is_some_and(|flushing| Arc::ptr_eq(flushing, flushed));
        if is_pending {
            self.flushing = None;
            self.charge.set(self.memory_bytes());
        }
        is_pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Cache, CacheOptions};
    use vfs::random::Rng;

    type Owned = (Vec<u8>, u64, Option<Vec<u8>>);

    fn budget_and_slabs(node_bytes: usize) -> (Cache, Arc<Slabs>) {
        let cache = Cache::new(Budget::new(64 << 20), CacheOptions::default());
        let slabs = cache.slabs(Class::Buffers, node_bytes);
        (cache, slabs)
    }

    fn message(of: &Owned) -> Message<'_> {
        let op = of.2.as_deref().map_or(Op::Delete, Op::Put);
        Message { key: &of.0, ts: CommitTs(of.1), op }
    }

    /// Mostly short, some longer than a granule, few longer than a slab.
    fn draw(rng: &mut Rng, node_bytes: usize) -> Owned {
        let most = [40, 40, 300, node_bytes / 2, 3 * node_bytes][rng.index(5)];
        let bytes = |rng: &mut Rng, most: usize| (0..rng.index(most + 1)).map(|_| rng.below(256) as u8).collect();
        (bytes(rng, 30), rng.below(100), rng.chance(0.8).then(|| bytes(rng, most)))
    }

    fn is_same(messages: &Messages, model: &[Owned]) {
        assert!(messages.iter().eq(model.iter().map(message)));
        assert_eq!(messages.count, model.len() as u64);
        assert_eq!(messages.surplus, model.iter().map(|m| if m.2.is_some() { 1 } else { -1 }).sum::<i64>());
        assert_eq!(messages.oldest, model.iter().map(|m| CommitTs(m.1)).min());
        assert_eq!(messages.newest, model.iter().map(|m| CommitTs(m.1)).max().unwrap_or_default());
        assert_eq!(messages.bytes(), model.iter().map(|m| written_bytes(&message(m))).sum::<usize>());
    }

    /// Beside one leaf, against lists: whatever is added, set on its way and removed, and if a flush that failed still has some.
    #[test]
    fn what_is_pending_is_what_came() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let node_bytes = [512, 4096, 16 << 10][rng.index(3)];
            let (cache, slabs) = budget_and_slabs(node_bytes);
            let mut pending = Pending::new(slabs.clone(), cache.budget());
            let (mut open, mut flushing, mut in_leaf): (Vec<Owned>, Option<Vec<Owned>>, usize) = (Vec::new(), None, 0);
            let mut held = Vec::new();
            open.push((b"first".to_vec(), 1, None));
            pending.push(message(&open[0]), &mut None);
            for _ in 0..600 {
                match rng.below(40) {
                    0 => {
                        open.extend(flushing.take().unwrap_or_default());
                        flushing = Some(std::mem::take(&mut open));
                        in_leaf = 0;
                        held.push(pending.start_flush());
                    }
                    1 => {
                        // Often near the newest: if nothing is newer than that, nothing changes.
                        let through = if rng.chance(0.5) { 95 + rng.below(5) } else { rng.below(100) };
                        let flushed = pending.start_flush_above(CommitTs(through));
                        let is_newer = flushing.iter().flatten().chain(&open).any(|m| m.1 > through);
                        assert_eq!(flushed.is_some(), is_newer);
                        if is_newer {
                            let all: Vec<Owned> = flushing.take().into_iter().flatten().chain(open.drain(..)).collect();
                            let (newer, late): (Vec<_>, Vec<_>) = all.into_iter().partition(|m| m.1 > through);
                            (open, flushing) = (late, Some(newer));
                        }
                        held.extend(flushed);
                        pending.note_in_leaf();
                        in_leaf = open.len();
                    }
                    2 | 3 => held.clear(),
                    4 => {
                        let last = held.last().cloned().unwrap_or_default();
                        let ends = pending.flushing.as_ref().is_some_and(|flushing| Arc::ptr_eq(flushing, &last));
                        assert_eq!(pending.end_flush(&last), ends);
                        flushing = flushing.filter(|_| !ends);
                    }
                    5 => {
                        pending.note_in_leaf();
                        in_leaf = open.len();
                    }
                    _ => {
                        open.push(draw(&mut rng, node_bytes));
                        pending.push(message(&open[open.len() - 1]), &mut None);
                    }
                }
                is_same(&pending.open, &open);
                assert_eq!(pending.flushing.is_some(), flushing.is_some());
                if let Some(model) = &flushing {
                    is_same(pending.flushing.as_ref().expect("as the model"), model);
                }
                assert_eq!(pending.not_in_leaf(), in_order(open[in_leaf..].iter().map(message).collect()));
                let listed: usize = pending.parts().map(|part| part.parts.capacity()).sum();
                let taken = size_of::<Pending>() + listed * size_of::<SlabPart>();
                assert!(pending.charge.bytes() >= taken as u64, "{} of {taken}", pending.charge.bytes());
            }
            drop((pending, held));
            assert_eq!(cache.budget().total(), 0);
        }
    }

    #[test]
    fn lengths_are_written_as_everywhere() {
        for n in (0..64).flat_map(|shift| [(1_u64 << shift) - 1, 1 << shift, (1 << shift) + 1]).chain([u64::MAX]) {
            let mut expected = Vec::new();
            base::bytes::put_varint(&mut expected, n);
            let mut out = vec![0; varint_bytes(n)];
            assert!(write_varint(&mut out, n).is_empty());
            assert_eq!(out, expected, "{n}");
        }
    }

    /// What a commit reserves covers what it takes, besides a slab for all leaves of a node, when it comes alone. Each message has the
    /// allowance of `reserve`.
    #[test]
    fn a1_what_is_reserved_covers_what_is_taken() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let node_bytes = [512, 4096, 16 << 10, 64 << 10][rng.index(4)];
            let (cache, slabs) = budget_and_slabs(node_bytes);
            let mut leaves: Vec<Option<Pending>> = (0..1 + rng.index(50)).map(|_| None).collect();
            let most = [20, 100, node_bytes / 8, node_bytes / 2][rng.index(4)];
            for _ in 0..30 {
                let before = cache.budget().total();
                let mut reserved = Slabs::charged_bytes(node_bytes) as usize;
                for leaf in &mut leaves {
                    if rng.chance(0.3) {
                        continue;
                    }
                    let batch: Vec<Owned> =
                        (0..1 + rng.index(6)).map(|n| (vec![n as u8; 8], 1, Some(vec![0; rng.index(most)]))).collect();
                    let bytes = batch.iter().map(|(key, _, value)| key.len() + value.as_ref().map_or(0, Vec::len) + 40);
                    reserved +=
                        reserved_bytes(bytes.sum(), leaf.as_ref().map_or(0, |leaf| leaf.open.bytes()), node_bytes);
                    let pending = leaf.get_or_insert_with(|| Pending::new(slabs.clone(), cache.budget()));
                    batch.iter().for_each(|one| pending.push(message(one), &mut None));
                }
                let taken = cache.budget().total() - before;
                assert!(taken <= reserved as u64, "seed {seed}: {taken} of {reserved}");
                for leaf in leaves.iter_mut().filter(|_| rng.chance(0.2)) {
                    *leaf = None;
                }
            }
        }
    }
}
