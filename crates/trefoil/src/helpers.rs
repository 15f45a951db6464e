//! Threads that help a large commit with step 4 of the pipeline: its indexes are applied side by side.
//!
//! A commit of many rows in several indexes spends most of its time in leaves that are in no near cache. Whoever commits
//! puts the shares into a queue, wakes helpers that have nothing else to do, and works through the queue like them; it
//! never waits for a helper to begin, only, at the end, for shares that one is in the middle of. So on a machine
//! whose cores are all busy a commit loses a wake-up, and on one with an idle core it takes half the time.
//!
//! Rule A1 makes this simple: apply does no I/O and cannot fail, and shares are of different indexes. The commit is marked
//! applied after the last of them, as ever.
//!
//! Invariant: a helper's `busy` is set by whoever calls it, before its slot is filled, and cleared by the helper, after the
//! slot was emptied: a slot is never filled twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{CommitTs, GcView};
use crossbeam_utils::CachePadded;
use vfs::sync::{Condvar, Mutex};

use crate::commit::Share;
use crate::options::Options;

/// Helpers of a database, at most: a commit has few large shares.
const HELPERS_MAX: usize = 3;
/// The helpers of a database.
pub struct Helpers {
    helpers: Vec<CachePadded<Helper>>,
    /// Operations from which a commit asks for help.
    operations_min: usize,
}

#[derive(Default)]
struct Helper {
    /// Acquire by whoever sets it, Release by the helper: the slot is empty by then.
    busy: AtomicBool,
    slot: Mutex<Slot>,
    filled: Condvar,
}

#[derive(Default)]
struct Slot {
    work: Option<Arc<Work>>,
    stop: bool,
}

/// One commit's shares.
struct Work {
    queue: Mutex<Queue>,
    finished: Condvar,
    ts: CommitTs,
    view: Arc<GcView>,
}

struct Queue {
    waiting: Vec<Share>,
    /// Shares that somebody is in the middle of.
    under_way: usize,
    /// One of them ended in a panic.
    panicked: bool,
}

impl Helpers {
    /// As many as there are cores beside the committer's; none if there is no background at all.
    pub fn new(options: &Options) -> Self {
        let threads = options.background && !options.read_only && options.parallel_apply_from < usize::MAX;
        let count = if threads { (vfs::thread::cores() - 1).min(HELPERS_MAX) } else { 0 };
        let helpers = (0..count).map(|_| CachePadded::default()).collect();
        Self { helpers, operations_min: options.parallel_apply_from }
    }

    /// How many there are; each needs a thread that runs [`Helpers::help`].
    pub fn count(&self) -> usize {
        self.helpers.len()
    }

    /// Applies every share, with help if there are several and they are large.
    pub fn apply_all(&self, shares: Vec<Share>, ts: CommitTs, view: Arc<GcView>) {
        let operations: usize = shares.iter().map(Share::operations).sum();
        if self.helpers.is_empty() || shares.len() < 2 || operations < self.operations_min {
            shares.into_iter().for_each(|share| share.apply(ts, &view));
            return;
        }
        let others = shares.len() - 1;
        let queue = Queue { waiting: shares, under_way: 0, panicked: false };
        let work = Arc::new(Work { queue: Mutex::new(queue), finished: Condvar::new(), ts, view });
        let idle = self.helpers.iter().filter(|helper| helper.take());
        idle.take(others).for_each(|helper| helper.give(&work));
        work.run();
        work.wait();
    }

    /// Body of the thread of helper `n`: until [`Helpers::stop`].
    pub fn help(&self, n: usize) {
        let helper = &self.helpers[n];
        while let Some(work) = helper.next() {
            work.run();
            drop(work);
            helper.busy.store(false, Ordering::Release);
        }
    }

    /// Ends every [`Helpers::help`].
    pub fn stop(&self) {
        for helper in &self.helpers {
            helper.slot.lock().stop = true;
            helper.filled.notify_all();
        }
    }
}

impl Helper {
    /// True if it had nothing to do: it is the caller's now.
    fn take(&self) -> bool {
        // Looked at first: who finds it busy writes no line that others read.
        !self.busy.load(Ordering::Relaxed) && !self.busy.swap(true, Ordering::Acquire)
    }

    fn give(&self, work: &Arc<Work>) {
        self.slot.lock().work = Some(work.clone());
        self.filled.notify_one();
    }

    /// Waits for work; none at the end.
    fn next(&self) -> Option<Arc<Work>> {
        let mut slot = self.slot.lock();
        loop {
            if let Some(work) = slot.work.take() {
                return Some(work);
            }
            if slot.stop {
                return None;
            }
            self.filled.wait(&mut slot);
        }
    }
}

impl Work {
    /// Applies shares until none waits.
    fn run(&self) {
        loop {
            let share = {
                let mut queue = self.queue.lock();
                let Some(share) = queue.waiting.pop() else { return };
                queue.under_way += 1;
                share
            };
            let _under_way = UnderWay(self);
            share.apply(self.ts, &self.view);
        }
    }

    /// Waits for the shares that helpers are in the middle of.
    fn wait(&self) {
        let mut queue = self.queue.lock();
        while queue.under_way > 0 {
            self.finished.wait(&mut queue);
        }
        assert!(!queue.panicked, "a helper panicked in the middle of this commit");
    }
}

/// A share under way, also in a panic: the committer must not wait for ever.
struct UnderWay<'a>(&'a Work);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.under_way -= 1;
        queue.panicked |= std::thread::panicking();
        if queue.under_way == 0 {
            self.0.finished.notify_all();
        }
    }
}
