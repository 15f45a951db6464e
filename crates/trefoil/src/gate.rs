//! Who may do something to a table, or to the catalog, and who waits for whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use vfs::sync::{Condvar, Mutex, MutexGuard};
use vfs::time::Instant;

use crate::error::Result;

/// Lets writers of a table in, each until the end of its transaction, and a change of the definition: after they have left,
/// or beside those that come in behind it. Writers are counted on separate cache lines, so that they do not meet,
/// and by halves: who waits for those inside lets the next ones into the other half.
///
/// Schedule that shaped it: a writer counts itself in and then looks at `closed`; the changer sets `closed`
/// and then looks at the counts; both sequentially consistent, so one of them sees the other.
#[derive(Default)]
pub struct WriterGate {
    counts: [[CachePadded<AtomicU64>; WriterGate::SLOTS]; 2],
    /// The half that writers come into.
    half: AtomicUsize,
    closed: AtomicU64,
    /// Somebody waits for writers to leave.
    awaited: AtomicBool,
    mutex: Mutex<()>,
    changed: Condvar,
}

impl WriterGate {
    const SLOTS: usize = 16;

    /// Counts a writer in, waiting while the definition is being changed; `look` as in [`WriterGate::close`]. Returns the slot for
    /// `leave`.
    ///
    /// Here as below whoever waits is asked with nothing held: what it looks at may itself leave a gate, or open one.
    pub fn enter(&self, hint: u64, mut look: impl FnMut() -> Result<Duration>) -> Result<usize> {
        loop {
            let slot = self.half.load(Ordering::SeqCst) * Self::SLOTS + (hint as usize) % Self::SLOTS;
            self.count(slot).fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) == 0 {
                return Ok(slot);
            }
            self.leave(slot);
            while self.closed.load(Ordering::SeqCst) != 0 {
                let next = look()?;
                let mut held = self.mutex.lock();
                if self.closed.load(Ordering::SeqCst) != 0 {
                    self.changed.wait_for(&mut held, next);
                }
            }
        }
    }

    fn count(&self, slot: usize) -> &AtomicU64 {
        &self.counts[slot / Self::SLOTS][slot % Self::SLOTS]
    }

    fn is_empty(&self, half: usize) -> bool {
        self.counts[half].iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }

    /// Counts a writer out.
    pub fn leave(&self, slot: usize) {
        let before = self.count(slot).fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "whoever leaves has entered");
        if self.awaited.load(Ordering::SeqCst) || self.closed.load(Ordering::SeqCst) != 0 {
            let _held = self.mutex.lock();
            self.changed.notify_all();
        }
    }

    /// Waits until all writers have left who were inside when `wait` was new; others go on coming in. False if some have not
    /// left in `timeout`: then it may be asked again. One at a time.
    ///
    /// The half that is not used is waited for first: a wait that was given up may have left some of its writers there.
    pub fn wait_for_writers(&self, wait: &mut GateWait, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut held = self.mutex.lock();
        self.awaited.store(true, Ordering::SeqCst);
        let mut emptied = |half| {
            while !self.is_empty(half) {
                if self.changed.wait_for(&mut held, deadline - Instant::now()) {
                    return self.is_empty(half);
                }
            }
            true
        };
        if wait.0.is_none() {
            let inside = self.half.load(Ordering::SeqCst);
            if emptied(1 - inside) {
                self.half.store(1 - inside, Ordering::SeqCst);
                wait.0 = Some(inside);
            }
        }
        let left = wait.0.is_some_and(emptied);
        self.awaited.store(false, Ordering::SeqCst);
        left
    }

    /// Keeps writers out and waits until those inside have left. Before each wait `look` says how long it may take until it is
    /// asked again, or why not any longer; then writers come in again.
    ///
    /// One at a time: the [`Turn`] of the table is that of who calls it.
    pub fn close(&self, mut look: impl FnMut() -> Result<Duration>) -> Result<GateClosed<'_>> {
        let before = self.closed.swap(1, Ordering::SeqCst);
        debug_assert_eq!(before, 0, "definitions are changed one at a time");
        let closed = GateClosed(self);
        let has_writers = || !(self.is_empty(0) && self.is_empty(1));
        while has_writers() {
            let next = look()?;
            let mut held = self.mutex.lock();
            if has_writers() {
                self.changed.wait_for(&mut held, next);
            }
        }
        Ok(closed)
    }
}

/// A wait for the writers inside: the half they are in, once the next ones come into the other.
#[derive(Default)]
pub struct GateWait(Option<usize>);

/// The gate is closed until this is dropped.
pub struct GateClosed<'a>(&'a WriterGate);

impl Drop for GateClosed<'_> {
    fn drop(&mut self) {
        let _held = self.0.mutex.lock();
        self.0.closed.store(0, Ordering::SeqCst);
        self.0.changed.notify_all();
    }
}

/// One at a time, for as long as it takes: changes of one table's definition, from looking at it to having changed it. Whoever
/// waits is asked now and then whether he still should.
#[derive(Default)]
pub struct Turn {
    taken: Mutex<bool>,
    changed: Condvar,
}

impl Turn {
    /// Waits for the turn; `look` as in [`WriterGate::close`].
    pub fn take(self: &Arc<Self>, mut look: impl FnMut() -> Result<Duration>) -> Result<Taken> {
        let mut next = None;
        loop {
            let mut taken = self.taken.lock();
            if *taken && let Some(next) = next {
                self.changed.wait_for(&mut taken, next);
            }
            if !*taken {
                *taken = true;
                return Ok(Taken(self.clone()));
            }
            drop(taken);
            next = Some(look()?);
        }
    }
}

/// It is somebody's turn until this is dropped.
pub struct Taken(Arc<Turn>);

impl Drop for Taken {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        self.0.changed.notify_all();
    }
}

/// Steps in the catalog, each a commit: one at a time, and none while definitions are to stay as they are, for a copy of the
/// database. A step waits for nobody's transaction, so that nobody waits long for a step.
#[derive(Default)]
pub struct Steps {
    kept: Mutex<bool>,
    changed: Condvar,
}

impl Steps {
    /// Waits for the step; `look` as in [`WriterGate::close`].
    pub fn take(&self, mut look: impl FnMut() -> Result<Duration>) -> Result<Step<'_>> {
        let mut next = None;
        loop {
            let mut kept = self.kept.lock();
            if *kept && let Some(next) = next {
                self.changed.wait_for(&mut kept, next);
            }
            if !*kept {
                return Ok(Step(kept));
            }
            drop(kept);
            next = Some(look()?);
        }
    }

    /// The step, after others at most; none while definitions are kept.
    pub fn take_unless_kept(&self) -> Option<Step<'_>> {
        let kept = self.kept.lock();
        (!*kept).then_some(Step(kept))
    }

    /// Keeps definitions as they are, for one at a time; `look` as in [`WriterGate::close`].
    pub fn keep_if(&self, look: impl FnMut() -> Result<Duration>) -> Result<DefinitionsHeld<'_>> {
        let mut step = self.take(look)?;
        *step.0 = true;
        Ok(DefinitionsHeld(self))
    }
}

/// A step in the catalog.
pub struct Step<'a>(MutexGuard<'a, bool>);

/// Definitions stay as they are until this is dropped.
pub struct DefinitionsHeld<'a>(&'a Steps);

impl Drop for DefinitionsHeld<'_> {
    fn drop(&mut self) {
        *self.0.kept.lock() = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use vfs::sim::{Config, Simulation};

    use super::*;

    #[test]
    fn the_gate_waits_for_writers_and_holds_new_ones_back() {
        let gate = Arc::new(WriterGate::default());
        let enters = |gate: &WriterGate, hint| gate.enter(hint, || Ok(Duration::from_secs(60))).expect("it waits");
        let slot = enters(&gate, 3);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (g, o) = (gate.clone(), order.clone());
        let changer = vfs::thread::spawn("changer", move || {
            let _closed = g.close(|| Ok(Duration::from_secs(60))).expect("the writer leaves");
            o.lock().push("changed");
        })
        .expect("a thread starts");
        while gate.closed.load(Ordering::SeqCst) == 0 {
            vfs::thread::spin();
        }
        let (g, o) = (gate.clone(), order.clone());
        let writer = vfs::thread::spawn("writer", move || {
            let slot = enters(&g, 7);
            o.lock().push("wrote");
            g.leave(slot);
        })
        .expect("a thread starts");
        order.lock().push("left");
        gate.leave(slot);
        changer.join().expect("no panic");
        writer.join().expect("no panic");
        assert_eq!(*order.lock(), ["left", "changed", "wrote"]);
    }

    /// Guard: `look` is called before the mutex is taken, in all four waits. What it does here takes that very mutex.
    #[test]
    fn who_is_asked_while_he_waits_may_open_what_he_waits_for() {
        Simulation::new(1, Config::default()).run(|_| {
            let soon = || Ok(Duration::from_secs(60));
            let gate = WriterGate::default();
            let mut closed = Some(gate.close(soon).expect("nobody is inside"));
            let opens = || {
                closed = None;
                soon()
            };
            let slot = gate.enter(3, opens).expect("it is open by then");
            let mut inside = Some(slot);
            let leaves = || {
                inside.take().into_iter().for_each(|slot| gate.leave(slot));
                soon()
            };
            drop(gate.close(leaves).expect("nobody is inside by then"));
            let turn = Arc::new(Turn::default());
            let mut taken = Some(turn.take(soon).expect("it is nobody's"));
            let ends = || {
                taken = None;
                soon()
            };
            drop(turn.take(ends).expect("it is nobody's by then"));
            let steps = Steps::default();
            let mut kept = Some(steps.keep_if(soon).expect("nobody keeps them"));
            let lets_go = || {
                kept = None;
                soon()
            };
            drop(steps.take(lets_go).expect("definitions are not kept by then"));
        });
    }
}
