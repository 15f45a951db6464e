//! Child handles: the one place where everything changeable about a node is kept.
//!
//! An inner node is an immutable key array with pointers to handles; replacing the node shares the handles and
//! never copies them, so no slot update can be lost between two versions of a parent [A2].
//!
//! # Leaf handle
//!
//! ```text
//!  Empty ──put──► Resident ◄──publish── Loading ◄──first reader── Cold
//!    ▲               │  └────────────evict (clean, unpinned)────────▲   (also from Parked, and to it and back: `park`)
//!    └──unlink───────┤ (also from Cold, without reading)
//!                    └──merge──► Obsolete (absorbed by its left neighbour; also a folded EMPTY slot)
//! ```
//!
//! Invariants:
//! 1. `low` never changes: a split keeps the left half in the handle, a merge is always into the left neighbour.
//!    So whoever arrives by an old parent has to check one fence only, `high`.
//! 2. `Resident` ⇒ the leaf holds every version applied in `[low, high)`, except what attached runs hold.
//! 3. `Resident::oldest_unwritten >= LeafRecord::oldest_unwritten`: the copy under the latch only spares the record's
//!    mutex; the record is the truth.
//! 4. `Empty` ⇒ no image, nothing unwritten, `dead_from` = 0. `Cold` or `Loading` ⇒ an image, nothing unwritten.
//! 5. `dead_from` = T ⇒ no snapshot at or above T sees anything in the leaf [A25].
//! 6. `last_reserved` is at least the ticket of every running commit that reserved a key of the range [A1].
//! 7. Image, segments and `pending` together say what the leaf says, unless it is dirty (`LeafRecord::is_dirty`): that needs
//!    the leaf in memory. So a leaf that is not dirty leaves memory as it is, whatever is pending; and a leaf in memory has
//!    everything: the three were put together under the latch [A10].
//! 8. `LeafRecord::oldest_pending` is the lowest timestamp in `pending`; `Empty` or `Obsolete` ⇒ nothing is pending.
//! 9. `Empty`, or in memory without an image ⇒ what segments hold for the range is void.
//!
//! Latch order: leaf latch → structure latch → record mutex (innermost). Two leaf latches are only ever held by a
//! thread that took the second one without waiting.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::CommitTs;
use index::ReadAt;
use store::{Block, Cache, Charge, Class, EpochCell, LeftAt, LeftMark, Slabs, allocated};
use vfs::sync::{Condvar, Mutex, RwLock};

use crate::image::{Fence, Image};
use crate::messages::Pending;
use crate::node::{Inner, Leaf};
use crate::segment::SegmentBlock;
use crate::tree::Core;

/// Memory of a leaf that is not in memory, in bytes: its handle and a short fence. Image and block are charged by
/// themselves.
pub(crate) const LEAF_BYTES: u64 = allocated(2 * size_of::<usize>() + size_of::<LeafHandle>()) + FENCE_BYTES;
/// The same of an inner node.
pub(crate) const INNER_BYTES: u64 = allocated(2 * size_of::<usize>() + size_of::<InnerHandle>()) + FENCE_BYTES;
const FENCE_BYTES: u64 = allocated(2 * size_of::<usize>() + 16);

/// Value of `dead_from` for a node that may hold live entries.
const ALIVE: u64 = u64::MAX;
/// While a marker looks at what lies below: alive for everybody else.
const JUDGED: u64 = u64::MAX - 1;

/// "Everything below is dead for snapshots at or above T", or alive. Readers look without a latch.
#[derive(Debug)]
pub(crate) struct DeadMark(AtomicU64);

impl DeadMark {
    pub fn new(from: Option<CommitTs>) -> Self {
        Self(AtomicU64::new(from.map_or(ALIVE, |ts| ts.0)))
    }

    /// SeqCst here, in `set` and in `judge`: the marker says that it judges an inner node and then looks at the children's
    /// marks; a put clears a leaf's mark and then the inner ones. Of the two, at least one sees the other [A25].
    pub fn get(&self) -> Option<CommitTs> {
        let from = self.0.load(Ordering::SeqCst);
        (from < JUDGED).then_some(CommitTs(from))
    }

    pub fn set(&self, from: Option<CommitTs>) {
        let from = from.map_or(ALIVE, |ts| ts.0);
        if self.0.load(Ordering::SeqCst) != from {
            self.0.store(from, Ordering::SeqCst);
        }
    }

    /// Sets the mark to what `look` finds; false if it finds none, or the mark was cleared meanwhile. Nobody hops over a node
    /// that was alive until that is certain. One at a time.
    pub fn judge(&self, look: impl FnOnce() -> Option<CommitTs>) -> bool {
        let mut before = self.0.load(Ordering::SeqCst);
        if before >= JUDGED {
            before = JUDGED;
            self.0.store(JUDGED, Ordering::SeqCst);
        }
        let from = look();
        let to = from.map_or(ALIVE, |ts| ts.0);
        let stands = self.0.compare_exchange(before, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        stands && from.is_some()
    }

    /// May a reader at `at` hop over the node, who needs every tombstone above `needed_above`?
    pub fn hides_from(&self, at: ReadAt, needed_above: CommitTs) -> bool {
        // Acquire, with the store in `set`: enough for one reader, who only needs what its snapshot covers.
        let from = self.0.load(Ordering::Acquire);
        let hidden = match at {
            ReadAt::Newest => true,
            ReadAt::Snapshot(s) => s.0 >= from,
        };
        from < JUDGED && hidden && from <= needed_above.0
    }
}

/// A child of an inner node.
#[derive(Debug, Clone)]
pub(crate) enum Child {
    Leaf(Arc<LeafHandle>),
    Inner(Arc<InnerHandle>),
}

impl Child {
    pub fn mark(&self) -> &DeadMark {
        match self {
            Child::Leaf(leaf) => &leaf.mark,
            Child::Inner(inner) => &inner.mark,
        }
    }
}

/// A leaf, in memory or not.
pub(crate) struct LeafHandle {
    pub low: Fence,
    pub latch: RwLock<LeafSlot>,
    pub record: Mutex<LeafRecord>,
    pub mark: DeadMark,
    /// Second chance of the cache's clock. Relaxed: a hint.
    referenced: AtomicBool,
    /// Somebody read it since it was last written. Relaxed: a hint.
    read: AtomicBool,
    /// Reads that found it on disk while memory was short, counted anew from each that loads it. Relaxed: a hint.
    uncached_reads: AtomicU8,
    /// The same of reads that found its image packed, in one turn of the balance, and which that is. Relaxed: a hint.
    packed_reads: AtomicU32,
    /// When it last left memory.
    left: LeftMark,
    last_reserved: AtomicU64,
    /// The tree, for the cache, which knows pages only.
    pub core: Weak<Core>,
}

/// What the leaf latch protects.
pub(crate) struct LeafSlot {
    pub high: Option<Fence>,
    pub state: LeafState,
    /// What came since image and segments: while the leaf was not in memory, or while that was little.
    pub pending: Option<Box<Pending>>,
}

/// Where a leaf is.
pub(crate) enum LeafState {
    /// Nowhere: the range holds nothing. A put makes a fresh leaf here, without I/O [A8].
    Empty,
    /// On disk: `LeafRecord::image`.
    Cold,
    /// On its way into memory; one thread reads, the others wait.
    Loading(Arc<Arrival>),
    /// In memory.
    Resident(Box<Resident>),
    /// In memory as it was when it was last read: as COLD, but loaded without I/O (`park`).
    Parked(Box<Resident>),
    /// No longer part of the tree: start again from the root.
    Obsolete,
}

/// A leaf in memory.
pub(crate) struct Resident {
    pub leaf: Leaf,
    /// At least the record's value; spares its mutex.
    pub oldest_unwritten: CommitTs,
    /// What was collected from the leaf, with what hid it, is at or below this, and every image is complete through at least
    /// this: so it does not come back from a segment [A5]. That of the image at first.
    pub through: CommitTs,
    /// Live keys and entries that the counts have for the leaf beyond what they have for image and segments, about.
    pub beyond_image: (i64, i64),
    /// There is an image, or one is on its way: what is applied may be pending beside the leaf.
    pub has_image: bool,
    /// Changes that became messages since a reader came.
    pub unread_writes: u8,
    /// Blocks of large values and chains that the leaf, or its last image, names. By offset.
    pub beside: BTreeMap<u64, Arc<Block>>,
    pub charge: Charge,
}

impl Resident {
    /// A leaf that lacks nothing of its image, if it has one, which is complete through `through`.
    pub fn new(leaf: Leaf, through: CommitTs, charge: Charge) -> Self {
        let (beside, oldest_unwritten) = (BTreeMap::new(), CommitTs::MAX);
        Self {
            leaf,
            oldest_unwritten,
            through,
            beyond_image: (0, 0),
            has_image: false,
            unread_writes: 0,
            beside,
            charge,
        }
    }

    /// The counts were changed by so many live keys and entries of the leaf.
    pub fn note_counted(&mut self, live: i64, entries: i64) {
        self.beyond_image.0 += live;
        self.beyond_image.1 += entries;
    }

    /// Live keys and entries that the counts have for image and segments.
    pub fn counted_on_disk(&self) -> (i64, i64) {
        let stats = self.leaf.stats();
        (i64::from(stats.live) - self.beyond_image.0, i64::from(stats.entries) - self.beyond_image.1)
    }

    /// Something was dropped by a view with this floor: all up to there was applied. And it is at or below the highest
    /// timestamp of the leaf, to which the log will be durable before an image is written.
    pub fn note_collected(&mut self, floor: CommitTs) {
        self.through = self.through.max(floor.min(self.leaf.stats().max_ts));
    }
}

/// What is on disk of a leaf, and what is not. Innermost mutex.
#[derive(Debug)]
pub(crate) struct LeafRecord {
    /// The newest image; none if the leaf was never written. If it absorbed another one since, ZERO is unwritten [A8].
    pub image: Option<Arc<Image>>,
    /// The block that the parent's last image names: of `image`, or of the one before.
    pub composed: Option<Arc<Block>>,
    /// Lowest timestamp that the image may lack; MAX = clean. ZERO = lacks something of unknown age.
    pub oldest_unwritten: CommitTs,
    /// The same for the write in flight, which will have it.
    pub oldest_in_flight: CommitTs,
    /// Lowest timestamp of the pending messages that are in no segment; MAX if there are none.
    pub oldest_pending: CommitTs,
    /// While the leaf is not in memory: live keys and entries that the counts have for segments, as far as it is known. All of it if the leaf
    /// is marked as dead: then it died in memory, or segments have nothing that its image lacks.
    added: (i32, i32),
    pub in_flight: bool,
    /// The parent's last image has a slot that starts at `low`.
    pub in_parent_image: bool,
    /// The last load met damage, of the image or of a segment: whoever only keeps the tree in shape does not try again.
    pub is_damaged: bool,
}

impl LeafRecord {
    pub fn clean(image: Option<Arc<Image>>) -> Self {
        Self {
            image,
            composed: None,
            oldest_unwritten: CommitTs::MAX,
            oldest_in_flight: CommitTs::MAX,
            oldest_pending: CommitTs::MAX,
            added: (0, 0),
            in_flight: false,
            in_parent_image: false,
            is_damaged: false,
        }
    }

    /// True if messages that came late are pending, and the leaf, which would have to be loaded for them, is damaged: the log
    /// keeps them.
    pub fn is_stuck(&self) -> bool {
        self.is_damaged && self.image.as_ref().is_some_and(|image| image.complete_through() >= self.oldest_pending)
    }

    /// The leaf leaves memory: live keys and entries that the counts have for image and segments.
    pub fn set_counted(&mut self, (live, entries): (i64, i64)) {
        let image = self.counted_for_image();
        self.added = (0, 0);
        self.note_added(live - image.0, entries - image.1);
    }

    /// Messages of the leaf, which is not in memory, went into segments.
    pub fn note_added(&mut self, surplus: i64, count: i64) {
        let add = |to: &mut i32, n: i64| *to = to.saturating_add(n.clamp(i32::MIN.into(), i32::MAX.into()) as i32);
        add(&mut self.added.0, surplus);
        add(&mut self.added.1, count);
    }

    /// Live keys and entries that the counts have for image and segments, if the leaf is not in memory and marked as dead.
    pub fn counted(&self) -> (i64, i64) {
        let image = self.counted_for_image();
        (image.0 + i64::from(self.added.0), image.1 + i64::from(self.added.1))
    }

    fn counted_for_image(&self) -> (i64, i64) {
        self.image.as_ref().map_or((0, 0), |image| (image.live as i64, image.entries as i64))
    }

    /// Lowest timestamp that no complete image has.
    pub fn oldest(&self) -> CommitTs {
        self.oldest_unwritten.min(self.oldest_in_flight)
    }

    pub fn is_dirty(&self) -> bool {
        self.oldest() != CommitTs::MAX || self.in_flight
    }
}

/// Threads that wait for a load.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    done: Mutex<bool>,
    wake: Condvar,
}

impl Arrival {
    pub fn wait(&self) {
        let mut done = self.done.lock();
        while !*done {
            self.wake.wait(&mut done);
        }
    }

    pub fn announce(&self) {
        *self.done.lock() = true;
        self.wake.notify_all();
    }
}

impl LeafHandle {
    pub fn new(core: Weak<Core>, low: Fence, high: Option<Fence>, state: LeafState, record: LeafRecord) -> Self {
        let dead = match (&state, &record.image) {
            (LeafState::Empty, _) => Some(CommitTs::ZERO),
            (LeafState::Cold, Some(image)) => image.dead_from,
            _ => None,
        };
        Self {
            low,
            latch: RwLock::new(LeafSlot { high, state, pending: None }),
            record: Mutex::new(record),
            mark: DeadMark::new(dead),
            referenced: AtomicBool::new(true),
            read: AtomicBool::new(false),
            uncached_reads: AtomicU8::new(0),
            packed_reads: AtomicU32::new(0),
            left: LeftMark::default(),
            last_reserved: AtomicU64::new(0),
            core,
        }
    }

    /// An EMPTY slot.
    pub fn empty(core: Weak<Core>, low: Fence, high: Option<Fence>) -> Self {
        Self::new(core, low, high, LeafState::Empty, LeafRecord::clean(None))
    }

    /// It left memory.
    pub fn note_left(&self, at: LeftAt) {
        self.left.set(at);
    }

    /// So many bytes of its image are read from disk.
    pub fn note_image_read(&self, cache: &Cache, image: &Image, bytes: u64) {
        let left = image.outline.get().map(|outline| outline.packed.left()).unwrap_or_default();
        cache.note_page_read(self.left.get().later(left), bytes);
    }

    /// What its image is complete through, if it has one.
    pub fn complete_through(&self) -> Option<CommitTs> {
        self.record.lock().image.as_ref().map(|image| image.complete_through())
    }

    /// Notes a use. Reads first: on a hot leaf the line stays shared.
    #[inline]
    pub fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that it is read.
    #[inline]
    pub fn note_read(&self) {
        self.touch();
        if !self.read.load(Ordering::Relaxed) {
            self.read.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a read that finds it on disk; false for every `loaded_at`-th one.
    pub fn may_stay_on_disk(&self, loaded_at: u8) -> bool {
        let reads = self.uncached_reads.load(Ordering::Relaxed) + 1;
        self.uncached_reads.store(reads % loaded_at, Ordering::Relaxed);
        reads < loaded_at
    }

    /// The same of a read that finds its image packed, of those in one turn.
    pub fn may_stay_packed(&self, turn: u32, loaded_at: u8) -> bool {
        let (turn, last) = (turn << u8::BITS, self.packed_reads.load(Ordering::Relaxed));
        let loaded_at = u32::from(loaded_at);
        let reads = if last & !0xff == turn { (last & 0xff) + 1 } else { 1 };
        self.packed_reads.store(turn | (reads % loaded_at), Ordering::Relaxed);
        reads < loaded_at
    }

    /// Its image is packed.
    pub fn note_packed(&self) {
        self.uncached_reads.store(0, Ordering::Relaxed);
    }

    pub fn take_read(&self) -> bool {
        self.read.load(Ordering::Relaxed) && self.read.swap(false, Ordering::Relaxed)
    }

    pub fn take_referenced(&self) -> bool {
        self.referenced.load(Ordering::Relaxed) && self.referenced.swap(false, Ordering::Relaxed)
    }

    /// Pins for every commit whose ticket is at most `ticket`. Under the leaf latch, shared or not.
    pub fn reserve_for(&self, ticket: u64) {
        // Relaxed: ordered by the leaf latch, which the evictor takes exclusively before it looks.
        self.last_reserved.fetch_max(ticket, Ordering::Relaxed);
    }

    pub fn last_reserved(&self) -> u64 {
        self.last_reserved.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for LeafHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeafHandle({})", base::bytes::printable(&self.low))
    }
}

impl LeafSlot {
    /// True if `key`, known to be at or above the lower fence, is in the range.
    #[inline]
    pub fn is_below_high(&self, key: &[u8]) -> bool {
        self.high.as_deref().is_none_or(|high| key < high)
    }

    pub fn resident(&self) -> Option<&Resident> {
        match &self.state {
            LeafState::Resident(resident) => Some(resident),
            _ => None,
        }
    }

    pub fn resident_mut(&mut self) -> Option<&mut Resident> {
        match &mut self.state {
            LeafState::Resident(resident) => Some(resident),
            _ => None,
        }
    }
}

/// An inner node. Loaded at the first descent and then kept: inner nodes are not evicted yet.
#[derive(Debug)]
pub(crate) struct InnerHandle {
    /// Replaced under the structure latch only; read under an epoch guard.
    pub cell: EpochCell<InnerState>,
    /// Something below differs from the image. Cleared by the checkpoint BEFORE it looks at the children; set
    /// after the change, lowest first [A9].
    changed: AtomicBool,
    pub mark: DeadMark,
    /// Highest timestamp that justified an unlink or a merge below [A6].
    log_need: AtomicU64,
    pub record: Mutex<InnerRecord>,
    /// For what is pending beside leaves below, which has them: it is flushed together, so that whole slabs become free. Weak, since
    /// the node may outlive the cache (`Core::drop`).
    slabs: Mutex<Weak<Slabs>>,
}

/// An inner node as descents find it.
#[derive(Debug)]
pub(crate) enum InnerState {
    /// On disk.
    Cold,
    /// In memory.
    Loaded(InnerNode),
    /// Absorbed by a neighbour or by the root: start again.
    Obsolete,
}

/// An inner node in memory. Its buffer is in [`InnerRecord`]: it stays when the node is replaced.
#[derive(Debug)]
pub(crate) struct InnerNode {
    /// Height above the leaves, at least 1.
    pub level: u8,
    pub keys: Inner<Child>,
    /// Held as long as the node.
    pub _charge: Charge,
}

/// What is on disk of an inner node. Changed under the structure latch.
#[derive(Debug, Default)]
pub(crate) struct InnerRecord {
    pub image: Option<Arc<Image>>,
    /// The block that the parent's last image names: of `image`, or of one before.
    pub composed: Option<Arc<Block>>,
    /// What the last composed image of this node names and the next one will not.
    pub retired: Vec<Retired>,
    /// The buffer: messages for leaves below, on disk. At level 1 only.
    pub segments: Vec<Arc<SegmentBlock>>,
    /// Those that the last composed image names.
    pub composed_segments: Vec<Arc<SegmentBlock>>,
    /// Number of the last checkpoint for whose F the image is complete.
    pub seen: u64,
    /// Grows when the node absorbs another one: an image composed before is then worth nothing.
    pub absorptions: u64,
    /// Grows with each change of the children.
    pub edition: u64,
    /// That of which `image` is, and what its children say of their parent's last image; none if they are of another one.
    pub image_edition: Option<u64>,
    pub in_parent_image: bool,
}

/// The block of a child that was unlinked or absorbed, and where the child began: a node that is split leaves to its right
/// half what lies there, since one half may be composed anew while the other still has the image that names the block.
#[derive(Debug)]
pub(crate) struct Retired {
    pub low: Fence,
    pub block: Arc<Block>,
}

impl InnerRecord {
    /// The child that began at `low` is gone; the parent's last image names this block of it, if any.
    pub fn retire(&mut self, low: &Fence, composed: Option<Arc<Block>>) {
        self.retired.extend(composed.map(|block| Retired { low: low.clone(), block }));
    }
}

impl InnerHandle {
    pub fn new(state: InnerState, dead_from: Option<CommitTs>, record: InnerRecord) -> Self {
        Self {
            cell: EpochCell::new(state),
            changed: AtomicBool::new(false),
            mark: DeadMark::new(dead_from),
            log_need: AtomicU64::new(0),
            record: Mutex::new(record),
            slabs: Mutex::default(),
        }
    }

    /// Memory for what is pending beside leaves below; beside those that another node gets, as long as they have it.
    pub fn slabs(&self, core: &Core) -> Arc<Slabs> {
        let mut slabs = self.slabs.lock();
        slabs.upgrade().unwrap_or_else(|| {
            let new = core.env.cache.slabs(Class::Buffers, core.env.options.node_bytes);
            *slabs = Arc::downgrade(&new);
            new
        })
    }

    pub fn note_change(&self) {
        // SeqCst, with `take_changed`: a change noted after the checkpoint took the flag stays noted, one noted
        // before is seen in the children, which it looks at afterwards. Read first: the line stays shared.
        if !self.changed.load(Ordering::SeqCst) {
            self.changed.store(true, Ordering::SeqCst);
        }
    }

    pub fn is_changed(&self) -> bool {
        self.changed.load(Ordering::SeqCst)
    }

    pub fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::SeqCst)
    }

    /// The node's next image waits for the log up to `ts`.
    pub fn raise_log_need(&self, ts: CommitTs) {
        // Relaxed: written and read under the structure latch.
        self.log_need.fetch_max(ts.0, Ordering::Relaxed);
    }

    pub fn log_need(&self) -> CommitTs {
        CommitTs(self.log_need.load(Ordering::Relaxed))
    }
}
