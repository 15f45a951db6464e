//! Messages: changes of a leaf that is not in memory, until it is.
//!
//! A message is a version, (key, ts, put or delete), so it is idempotent: a leaf that has it already does not change
//! (decision D3). Where a message may be:
//!
//! 1. in [`Pending`], beside the leaf's state, under its latch: appended as commits come, in no order;
//! 2. in a segment of the buffer above the leaf, on disk (`segment`, `flush`): sorted, immutable;
//! 3. in the leaf, once it is loaded (`settle`).
//!
//! From 1 to 2 it is copied before it is removed; from 2 to 3 it is copied, and becomes void when the leaf's image is complete
//! through its timestamp. So what a loader finds is never too little, and finding it twice changes nothing.

use base::CommitTs;
use base::bytes::{Reader, put_bytes, put_varint};
use index::Op;
use store::{Budget, Charge, Class, Grant};

use crate::node::max_inline_bytes;

/// One message, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub key: &'a [u8],
    pub ts: CommitTs,
    pub op: Op<'a>,
}

/// Messages in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// For each: key (length, bytes), value (length + 1, or 0 for a delete, and bytes), timestamp (8 bytes).
    log: Vec<u8>,
    pub count: u64,
    /// Puts less deletes: what they may add to the live keys.
    pub surplus: i64,
    /// Lowest and highest timestamp; MAX and ZERO if there is none.
    pub oldest: Option<CommitTs>,
    pub newest: CommitTs,
}

impl Messages {
    pub fn push(&mut self, message: Message<'_>) {
        put_bytes(&mut self.log, message.key);
        match message.op {
            Op::Delete => put_varint(&mut self.log, 0),
            Op::Put(value) => {
                put_varint(&mut self.log, value.len() as u64 + 1);
                self.log.extend_from_slice(value);
            }
        }
        self.log.extend_from_slice(&message.ts.0.to_le_bytes());
        self.count += 1;
        self.surplus += if matches!(message.op, Op::Put(_)) { 1 } else { -1 };
        self.oldest = Some(self.oldest.map_or(message.ts, |oldest| oldest.min(message.ts)));
        self.newest = self.newest.max(message.ts);
    }

    pub fn append(&mut self, other: &Messages) {
        self.log.extend_from_slice(&other.log);
        self.count += other.count;
        self.surplus += other.surplus;
        self.oldest = self.oldest.into_iter().chain(other.oldest).min();
        self.newest = self.newest.max(other.newest);
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.log.len()
    }

    /// Memory held.
    pub fn memory_bytes(&self) -> u64 {
        self.log.capacity() as u64
    }

    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        self.iter_from(0)
    }

    /// Those behind the first so many bytes.
    fn iter_from(&self, bytes: usize) -> impl Iterator<Item = Message<'_>> {
        let mut r = Reader::new(&self.log[bytes..]);
        std::iter::from_fn(move || read(&mut r))
    }
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

/// Logs that grow, and go in another order than they came in, leave gaps in the allocator's pages: one byte for so many. Of 128 MiB
/// of them 70 MiB more were measured.
const GAPS_SHARE: u64 = 2;

/// The messages of one leaf that are in no segment.
#[derive(Debug)]
pub(crate) struct Pending {
    pub open: Messages,
    /// On their way into a segment; removed when that is in the buffer, if the leaf is still COLD.
    pub flushing: Option<std::sync::Arc<Messages>>,
    /// Bytes of `open` that a PARKED leaf has.
    in_leaf: usize,
    charge: Charge,
}

impl Pending {
    pub fn new(budget: &Budget) -> Self {
        Self { open: Messages::default(), flushing: None, in_leaf: 0, charge: budget.charge(Class::Buffers, 0) }
    }

    /// Adds one, from granted memory as long as that lasts.
    pub fn push(&mut self, message: Message<'_>, grant: &mut Option<Grant>) {
        self.open.push(message);
        let now = self.memory_bytes();
        if let Some(more) = now.checked_sub(self.charge.bytes()).filter(|more| *more > 0) {
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

    fn memory_bytes(&self) -> u64 {
        let logs = self.open.memory_bytes() + self.flushing.as_ref().map_or(0, |flushing| flushing.memory_bytes());
        size_of::<Self>() as u64 + logs + logs / GAPS_SHARE
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
    pub fn start_flush(&mut self) -> std::sync::Arc<Messages> {
        let mut all = std::mem::take(&mut self.open);
        self.in_leaf = 0;
        if let Some(before) = self.flushing.take() {
            all.append(&before);
        }
        let all = std::sync::Arc::new(all);
        self.flushing = Some(all.clone());
        self.charge.set(self.memory_bytes());
        all
    }

    /// The same for what is newer than `through`, if there is something; the rest stays.
    pub fn start_flush_above(&mut self, through: CommitTs) -> Option<std::sync::Arc<Messages>> {
        let (mut late, mut newer) = (Messages::default(), Messages::default());
        for message in self.parts().flat_map(Messages::iter) {
            if message.ts > through { newer.push(message) } else { late.push(message) }
        }
        self.open = late;
        self.flushing = (newer.count > 0).then(|| std::sync::Arc::new(newer));
        self.charge.set(self.memory_bytes());
        self.flushing.clone()
    }

    /// What was flushed is in a segment. False if it is not pending any more.
    pub fn end_flush(&mut self, flushed: &std::sync::Arc<Messages>) -> bool {
        let is_pending = self.flushing.as_ref().is_some_and(|flushing| std::sync::Arc::ptr_eq(flushing, flushed));
        if is_pending {
            self.flushing = None;
            self.charge.set(self.memory_bytes());
        }
        is_pending
    }
}
