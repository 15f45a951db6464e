//! The tree behind the seam: what all modules share, and [`Tree`], which hands each call to its module.

use std::any::Any;
use std::ops::Bound;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use base::{CommitTs, Corruption, GcView, Result};
use crossbeam_utils::CachePadded;
use index::{
    Batch, Cursor, Direction, Index, IndexEnv, IndexShape, IndexState, IndexStats, KeyRange, LogGate, Progress, ReadAt,
    Reservation, Reserved, Upkeep, VerifyReport, VisitBlock,
};
use store::epoch::{self, Guard};
use store::{ExtentId, Frame, Funds, Run, Weights};
use vfs::sync::{Condvar, Mutex};

use crate::cursor::TreeCursor;
use crate::dead::Places;
use crate::filling::Fillings;
use crate::handle::{Child, InnerHandle, InnerNode, InnerRecord, InnerState, LeafHandle, LeafState};
use crate::image::{Fence, Image};
use crate::node::{Inner, NODE_BYTES_MAX, NODE_BYTES_MIN};
use crate::reserve::Room;
use crate::runs::Runs;
use crate::state::State;
use crate::stats::Counters;
use crate::structure::Structure;
use crate::tickets::{Tickets, thread_place};

/// Pointers to the tree on lines of their own: a cursor counts on its thread's.
pub(crate) type Hand = Arc<CachePadded<Arc<Core>>>;

const HANDS: usize = 16;

/// What all modules of one tree share.
pub(crate) struct Core {
    pub env: IndexEnv,
    /// For handles made later.
    pub me: Weak<Core>,
    /// Stays for the life of the tree; what it holds grows and shrinks.
    pub root: Arc<InnerHandle>,
    pub structure: Mutex<Structure>,
    pub tickets: Tickets,
    pub runs: Runs,
    pub purge: Places,
    /// Leaves on disk with many messages.
    pub full: Places,
    /// Leaves on disk that are dead, if their messages delete what they seem to.
    pub seem_dead: Places,
    /// Messages on disk, by inner node.
    pub fillings: Fillings,
    /// One flush at a time.
    pub flushing: Mutex<()>,
    /// Highest timestamp among what a flush has under way, 0 if there is none. Raised under the leaf's latch; Release, when the
    /// segment is in place: who reads 0 finds it there.
    pub flushing_newest: AtomicU64,
    /// Where the next flush for want of memory begins.
    pub flush_at: Mutex<Fence>,
    /// Leaves that fell under a quarter.
    pub thin: Places,
    /// Leaves that were written with as many dead entries as live ones.
    pub stale: Places,
    /// What everybody saw at the last step of maintenance, undrained runs counted as readers. Relaxed: for statistics.
    pub seen_by_all: AtomicU64,
    pub counters: Counters,
    /// Writes that ended.
    pub landed: Landed,
    /// One checkpoint at a time.
    pub checkpointing: Mutex<()>,
    /// The number of the last one that began.
    pub last_checkpoint: Mutex<u64>,
    /// The image that the last checkpoint's state names.
    pub root_image: Mutex<Option<Arc<Image>>>,
    /// One maintenance step at a time.
    pub upkeep: Mutex<crate::maintenance::Plan>,
}

/// Tells those who wait that some write has ended.
#[derive(Debug, Default)]
pub(crate) struct Landed {
    count: Mutex<u64>,
    wake: Condvar,
}

impl Landed {
    pub fn announce(&self) {
        *self.count.lock() += 1;
        self.wake.notify_all();
    }

    /// Waits until `condition`, which some announced event changes, is false.
    pub fn wait_while(&self, condition: impl Fn() -> bool) {
        let mut count = self.count.lock();
        while condition() {
            self.wake.wait(&mut count);
        }
    }
}

impl Core {
    /// Memory of an ordinary leaf, as charged and told to the cache, in bytes.
    pub fn page_bytes(&self) -> u64 {
        self.env.options.node_bytes as u64 + LEAF_EXTRA_BYTES
    }

    /// A frame for a leaf.
    pub fn page_frame(&self) -> Frame {
        self.env.cache.frame(self.env.options.node_bytes)
    }
}

impl Drop for Core {
    /// The leaves let their pages go at once. The inner nodes go with the epoch, which may be long after: they are in the bag
    /// of the thread that drops the tree, and one that does nothing more never empties it. Four databases opened and closed one
    /// after the other held 3 GiB, the pages of all of them.
    fn drop(&mut self) {
        let_go_of_pages(&self.root, &epoch::pin());
    }
}

/// Nobody uses the tree any more.
fn let_go_of_pages(handle: &InnerHandle, guard: &Guard) {
    // A tree of a simulation may be dropped after it.
    let Some(InnerState::Loaded(node)) = handle.cell.load_here(guard) else { return };
    for child in node.keys.children() {
        match child {
            Child::Inner(inner) => let_go_of_pages(inner, guard),
            Child::Leaf(leaf) => {
                let mut slot = leaf.latch.write();
                drop((std::mem::replace(&mut slot.state, LeafState::Obsolete), slot.pending.take()));
            }
        }
    }
}

/// What a leaf in memory takes besides its page, about.
const LEAF_EXTRA_BYTES: u64 = 256;

/// A B-tree: one index.
pub struct Tree {
    core: Arc<Core>,
    hands: Vec<Hand>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("id", &self.core.env.id).finish_non_exhaustive()
    }
}

impl Tree {
    /// Opens a tree from its state in the manifest, or a new one without. Reads nothing but the files of attached runs:
    /// nodes are loaded when they are first needed.
    ///
    /// # Errors
    /// A damaged or newer state; faults of opening runs; a node size outside the limits.
    pub fn open(env: IndexEnv, state: Option<&[u8]>) -> Result<Arc<Tree>> {
        let node_bytes = env.options.node_bytes;
        if !(NODE_BYTES_MIN..=NODE_BYTES_MAX).contains(&node_bytes) {
            let limit = if node_bytes < NODE_BYTES_MIN { NODE_BYTES_MIN } else { NODE_BYTES_MAX };
            return Err(base::Fault::Limit {
                what: "size of a node, in bytes",
                limit: limit as u64,
                got: node_bytes as u64,
            });
        }
        let state = state.map(State::decode).transpose()?;
        let named = state.as_ref().map_or(&[][..], |state| &state.runs);
        let runs = Runs::open(&env.runs, named, env.read_only);
        let runs = runs.map_err(|fault| fault.of_index(env.id))?;
        let core = Arc::new_cyclic(|me| Core {
            root_image: Mutex::default(),
            root: Arc::new(root(&env, me, state.as_ref())),
            me: me.clone(),
            counters: Counters::new(state.as_ref()),
            runs,
            env,
            structure: Mutex::default(),
            tickets: Tickets::new(),
            purge: Places::default(),
            full: Places::default(),
            seem_dead: Places::default(),
            fillings: Fillings::default(),
            flushing: Mutex::default(),
            flushing_newest: AtomicU64::new(0),
            flush_at: Mutex::default(),
            thin: Places::default(),
            stale: Places::default(),
            seen_by_all: AtomicU64::new(0),
            landed: Landed::default(),
            checkpointing: Mutex::default(),
            last_checkpoint: Mutex::new(0),
            upkeep: Mutex::default(),
        });
        *core.root_image.lock() = core.root.record.lock().image.clone();
        let hands = (0..HANDS).map(|_| Arc::new(CachePadded::new(core.clone()))).collect();
        Ok(Arc::new(Tree { core, hands }))
    }

    /// A drawing of the tree as it is in memory, one line for each node: for tests and tools.
    #[must_use]
    pub fn draw(&self) -> String {
        self.core.draw()
    }

    /// A corruption says which index it was met in, also if it lies in a run file.
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|fault| fault.of_index(self.core.env.id))
    }

    fn hand(&self) -> &Hand {
        &self.hands[thread_place() % HANDS]
    }
}

/// The root handle: cold with the image that the state names, or over one EMPTY slot.
fn root(env: &IndexEnv, me: &Weak<Core>, state: Option<&State>) -> InnerHandle {
    let low = Fence::from([]);
    let Some(state) = state else {
        let slot = Child::Leaf(Arc::new(LeafHandle::empty(me.clone(), low, None)));
        let keys = Inner::single(slot);
        let charge = env.cache.budget().charge(store::Class::Inner, keys.bytes() as u64);
        let root = InnerState::Loaded(InnerNode { level: 1, keys, _charge: charge });
        let root = InnerHandle::new(root, Some(CommitTs::ZERO), InnerRecord::default());
        root.note_change();
        return root;
    };
    let image = Image::adopt(&env.space, &state.root, low, None).share();
    let record = InnerRecord { composed: Some(image.block.clone()), image: Some(image), ..InnerRecord::default() };
    InnerHandle::new(InnerState::Cold, state.root.dead_from, record)
}

impl Index for Tree {
    fn reserve_from(&self, batch: &Batch, funds: &mut Funds) -> Result<Option<Reservation>> {
        self.named(self.core.reserve(self.hand(), batch, funds))
    }

    fn apply(&self, batch: &Batch, reserved: Box<dyn Reserved>, ts: CommitTs, view: &GcView) {
        let reserved: Box<dyn Any + Send> = reserved.into_any();
        let mut room = reserved.downcast::<Room>().expect("a reservation of this tree");
        self.core.counters.add_changes(batch.len() as u64, batch.bytes() as u64);
        self.core.apply(batch, &mut room, ts, view);
    }

    fn attach(&self, run: Run, ts: CommitTs) {
        if self.core.env.read_only {
            self.core.runs.note_newest(ts);
        }
        self.core.counters.add_changes(run.len(), run.content_bytes());
        self.core.runs.attach(run, ts);
    }

    fn expect_late(&self, ts: Option<CommitTs>) {
        self.core.runs.expect_late(ts);
    }

    fn get_many(&self, at: ReadAt, keys: &[&[u8]], found: &mut dyn FnMut(usize, CommitTs, &[u8])) -> Result<()> {
        self.named(self.core.get_many(at, keys, found))
    }

    fn cursor(&self, at: ReadAt, range: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) -> Box<dyn Cursor> {
        Box::new(TreeCursor::new(self.hand().clone(), at, KeyRange::new(range), direction))
    }

    fn clear_away(&self, upkeep: &Upkeep<'_>, _ts: CommitTs, entries: u64) -> Result<u64> {
        self.named(self.core.clear_away(self.hand(), upkeep, entries))
    }

    fn maintain(&self, upkeep: &Upkeep<'_>) -> Result<Progress> {
        self.named(self.core.maintain(self.hand(), upkeep))
    }

    fn relieve(&self, log: &dyn LogGate) -> Result<u64> {
        self.named(self.core.relieve(log))
    }

    fn checkpoint(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.named(self.core.checkpoint(upkeep))
    }

    fn checkpoint_written(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.named(self.core.checkpoint_written(upkeep))
    }

    fn weigh(&self, weights: &mut Weights) -> Result<()> {
        self.named(self.core.weigh_extents(weights))
    }

    fn evacuate(&self, extents: &[ExtentId], upkeep: &Upkeep<'_>) -> Result<()> {
        self.named(self.core.evacuate(extents, upkeep))
    }

    fn shape(&self) -> Result<IndexShape> {
        self.named(self.core.shape())
    }

    fn stats(&self) -> IndexStats {
        self.core.stats()
    }

    fn estimate(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<u64> {
        self.named(self.core.estimate(&KeyRange::new(range)))
    }

    fn split_keys(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        self.named(self.core.split_keys(count))
    }

    fn verify(&self) -> Result<VerifyReport> {
        self.core.verify()
    }

    fn reach(&self, visit: &mut VisitBlock<'_>) -> Result<Vec<Corruption>> {
        self.core.reach(visit)
    }

    fn destroy(&self) -> Result<()> {
        self.named(self.core.destroy())
    }
}
