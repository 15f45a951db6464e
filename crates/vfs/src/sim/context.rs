//! A simulated thread: a real OS thread that runs only while it holds the baton.
//!
//! How the rest of the crate asks: [`active`] (one relaxed load) is false when no simulation runs in the process;
//! otherwise [`with`] looks whether this OS thread is simulated.
//!
//! The life of a simulated thread: (1) the OS thread starts, puts itself into `CURRENT` before any other
//! thread-local value is made, and waits for the baton; (2) the body runs; (3) its thread-local values are
//! destroyed, last made first, still holding the baton, so that what their destructors do is scheduled too; (4) the
//! destructor of `CURRENT` ends the simulated thread and hands over. Each simulated thread gets a fresh OS thread:
//! a reused one would bring thread-local values of an earlier simulation along, and runs of one seed would differ.
//!
//! After a panic, a deadlock or a livelock nobody gets the baton any more: the OS threads of a failed simulation
//! stay asleep until the process ends. Unwinding them instead would run destructors that wait for each other.

use std::any::Any;
use std::cell::OnceCell;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::baton::Baton;
use super::chooser::ThreadId;
use super::config::Config;
use super::scheduler::{FailureKind, State, Wait, WaitOn};
use super::trace::Place;

/// How many simulations run in this process. Written only when one starts or ends; padded, because every lock of
/// the engine reads it.
pub(super) static SIMULATIONS: CachePadded<AtomicUsize> = CachePadded::new(AtomicUsize::new(0));

thread_local! {
    static CURRENT: Slot = const { Slot(OnceCell::new()) };
}

struct Slot(OnceCell<Arc<SimThread>>);

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            thread.finish();
        }
    }
}

/// True if a simulation runs somewhere in this process.
#[inline]
pub(crate) fn active() -> bool {
    // Relaxed: a simulated OS thread is started after the count was raised and sees it by that; others may see
    // either value, and ask `CURRENT`.
    SIMULATIONS.load(Ordering::Relaxed) != 0
}

/// Calls `body` if this OS thread is simulated.
#[inline]
pub(crate) fn with<R>(body: impl FnOnce(&Arc<SimThread>) -> R) -> Option<R> {
    if active() { with_current(body) } else { None }
}

#[cold]
fn with_current<R>(body: impl FnOnce(&Arc<SimThread>) -> R) -> Option<R> {
    CURRENT.try_with(|slot| slot.0.get().map(body)).ok().flatten()
}

/// How a simulation ended.
pub(crate) enum End {
    Finished,
    Failed { kind: FailureKind, message: String, thread: String },
}

/// What the threads of one simulation share.
pub(crate) struct Shared {
    pub(crate) seed: u64,
    pub(crate) config: Config,
    pub(crate) state: Mutex<State>,
    pub(super) end: Mutex<Option<End>>,
    pub(super) ended: Condvar,
    pub(super) os_threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    pub(super) core: Option<usize>,
    /// What other crates keep for each simulation, by type.
    pub(super) locals: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Shared {
    /// The first end counts.
    pub(super) fn end(&self, end: End) {
        self.end.lock().get_or_insert(end);
        self.ended.notify_all();
    }
}

const NOBODY: &str = "no thread can run and none waits for a moment";

/// One simulated thread.
pub(crate) struct SimThread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: ThreadId,
    baton: Arc<Baton>,
    /// Set by the panic hook and read by the same thread: the next scheduling point ends the simulation.
    panicked: AtomicBool,
    panic_message: Mutex<Option<String>>,
}

impl SimThread {
    pub(crate) fn seed(&self) -> u64 {
        self.shared.seed
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.state().random.u64()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    /// A scheduling point.
    pub(crate) fn point(&self, name: &'static str, line: &'static Location<'static>) {
        let state = self.state();
        self.point_in(state, Place { name, line });
    }

    /// A scheduling point, with the state already locked.
    pub(crate) fn point_in<'s>(&'s self, mut state: MutexGuard<'s, State>, place: Place) {
        state = self.step(state, place);
        if state.chooser.preempts(self.id, place.name) {
            self.hand_over(state);
        }
    }

    /// Another thread runs, if there is one.
    pub(crate) fn spin(&self, line: &'static Location<'static>) {
        let mut state = self.step(self.state(), Place { name: "thread.spin", line });
        state.let_time_pass();
        state.chooser.lower(self.id);
        self.hand_over(state);
    }

    /// Waits; true if the deadline passed.
    pub(crate) fn wait(&self, place: Place, on: WaitOn, timeout_nanos: Option<u64>) -> bool {
        let state = self.step(self.state(), place);
        self.wait_in(state, on, timeout_nanos)
    }

    /// Waits, with the state already locked and the step counted; true if the deadline passed.
    pub(crate) fn wait_in(&self, mut state: MutexGuard<'_, State>, on: WaitOn, timeout_nanos: Option<u64>) -> bool {
        let deadline = timeout_nanos.map(|nanos| state.now_nanos.saturating_add(nanos));
        state.block(self.id, Wait { on, deadline });
        self.hand_over(state);
        self.state().threads[self.id].timed_out
    }

    /// Counts a step and stops at a gate. Returns with the state locked.
    pub(crate) fn step<'s>(&'s self, mut state: MutexGuard<'s, State>, place: Place) -> MutexGuard<'s, State> {
        // Relaxed: set by this very thread.
        if self.panicked.load(Ordering::Relaxed) {
            drop(state);
            self.fail(FailureKind::Panic, self.take_panic_message());
        }
        if let Err(kind) = state.step(self.id, place) {
            drop(state);
            self.fail(kind, format!("more than {} scheduling points", self.shared.config.steps_max));
        }
        if !state.gates.is_empty() {
            state = self.stop_at_gate(state, place.name);
        }
        state
    }

    /// Lets the chosen thread run and waits until this one is chosen.
    fn hand_over(&self, mut state: MutexGuard<'_, State>) {
        match state.next() {
            Ok(next) if next == self.id => {}
            Ok(next) => {
                let baton = pass_to(&mut state, next);
                drop(state);
                baton.give();
                self.baton.wait();
            }
            Err(kind) => {
                drop(state);
                self.fail(kind, NOBODY.to_owned());
            }
        }
    }

    /// Ends the simulation; nobody runs after this.
    fn fail(&self, kind: FailureKind, message: String) -> ! {
        self.report(kind, message);
        loop {
            self.baton.wait();
        }
    }

    /// Step (4) of a thread's life.
    fn finish(&self) {
        if self.panicked.load(Ordering::Relaxed) {
            return self.report(FailureKind::Panic, self.take_panic_message());
        }
        let mut state = self.state();
        state.remove_thread(self.id);
        if state.live.is_empty() {
            drop(state);
            return self.shared.end(End::Finished);
        }
        match state.next() {
            Ok(next) => {
                let baton = pass_to(&mut state, next);
                drop(state);
                baton.give();
            }
            Err(kind) => {
                drop(state);
                self.report(kind, NOBODY.to_owned());
            }
        }
    }

    fn report(&self, kind: FailureKind, message: String) {
        let thread = self.state().threads[self.id].name.clone();
        self.shared.end(End::Failed { kind, message, thread });
    }

    fn take_panic_message(&self) -> String {
        self.panic_message.lock().take().unwrap_or_else(|| "panicked".to_owned())
    }

    /// Called by the panic hook, on this thread. True if the panic shall be printed too.
    pub(super) fn note_panic(&self, message: String) -> bool {
        self.panic_message.lock().get_or_insert(message);
        self.panicked.store(true, Ordering::Relaxed);
        !self.shared.config.quiet
    }

    fn stop_at_gate<'s>(&'s self, mut state: MutexGuard<'s, State>, name: &str) -> MutexGuard<'s, State> {
        let found = state.gates.iter().position(|gate| !gate.open && gate.held.is_none() && gate.name == name);
        let Some(index) = found else { return state };
        if state.gates[index].skip > 0 {
            state.gates[index].skip -= 1;
            return state;
        }
        state.gates[index].held = Some(self.id);
        state.wake(WaitOn::GateReached(index));
        while !state.gates[index].open {
            self.wait_in(state, WaitOn::Gate(index), None);
            state = self.state();
        }
        state
    }
}

fn pass_to(state: &mut State, next: ThreadId) -> Arc<Baton> {
    state.switches += 1;
    state.current = next;
    state.trace.value(next as u64);
    Arc::clone(&state.threads[next].baton)
}

/// What a simulated thread does. Boxed, or all that starts threads would be compiled once for each closure of each test.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// Starts a simulated thread. It can run from now on, but does not before it is chosen.
pub(super) fn start(shared: &Arc<Shared>, name: &str, body: Body) -> io::Result<(ThreadId, Arc<Baton>)> {
    let (id, baton) = shared.state.lock().add_thread(name);
    let thread = Arc::new(SimThread {
        shared: Arc::clone(shared),
        id,
        baton: Arc::clone(&baton),
        panicked: AtomicBool::new(false),
        panic_message: Mutex::new(None),
    });
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || run_thread(thread, body));
    match started {
        Ok(handle) => shared.os_threads.lock().push(handle),
        Err(error) => {
            shared.state.lock().remove_thread(id);
            return Err(error);
        }
    }
    Ok((id, baton))
}

fn run_thread(thread: Arc<SimThread>, body: Body) {
    CURRENT.with(|slot| assert!(slot.0.set(Arc::clone(&thread)).is_ok(), "a fresh OS thread is nobody yet"));
    // The first thread moves; those it starts inherit its core.
    if let (0, Some(core)) = (thread.id, thread.shared.core) {
        super::pin::to_core(core);
    }
    thread.baton.wait();
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        thread.note_panic(super::run::message_of(payload.as_ref()));
        // A payload's destructor is foreign code: not run.
        std::mem::forget(payload);
        thread.fail(FailureKind::Panic, thread.take_panic_message());
    }
}
