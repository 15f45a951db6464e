//! Gates: how a named test replays one schedule, step by step.

use std::panic::Location;
use std::sync::Arc;

use super::context::{Shared, with};
use super::scheduler::{GateState, WaitOn};
use super::trace::Place;

/// Stops the next thread that comes to the scheduling point of this name, until the gate is opened. Later threads
/// pass. Dropping the gate opens it.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
/// use vfs::sim::{Config, Simulation};
///
/// Simulation::new(1, Config::default()).run(|sim| {
///     let gate = sim.hold("example.between");
///     let value = Arc::new(AtomicU32::new(0));
///     let other = Arc::clone(&value);
///     let slow = vfs::thread::spawn("slow", move || {
///         let read = other.load(Ordering::SeqCst);
///         vfs::thread::point("example.between");
///         other.store(read + 1, Ordering::SeqCst);
///     })?;
///     gate.wait_reached();
///     value.fetch_add(10, Ordering::SeqCst);
///     gate.open();
///     slow.join().expect("a panic would have ended the simulation");
///     assert_eq!(value.load(Ordering::SeqCst), 1, "the ten are lost, every time");
///     Ok::<(), std::io::Error>(())
/// }).value?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a dropped gate is open"]
pub struct Gate {
    shared: Arc<Shared>,
    index: usize,
}

impl Gate {
    pub(super) fn new(shared: &Arc<Shared>, name: &str, skip: u64) -> Self {
        let mut state = shared.state.lock();
        state.gates.push(GateState { name: name.to_owned(), skip, open: false, held: None });
        Self { shared: Arc::clone(shared), index: state.gates.len() - 1 }
    }

    /// Waits until a thread is held.
    #[track_caller]
    pub fn wait_reached(&self) {
        let line = Location::caller();
        let inside = with(|thread| {
            while !self.is_reached() {
                thread.wait(Place { name: "gate.wait", line }, WaitOn::GateReached(self.index), None);
            }
        });
        assert!(inside.is_some(), "only a simulated thread can wait at a gate");
    }

    /// True if a thread is, or was, held.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.shared.state.lock().gates[self.index].held.is_some()
    }

    /// Lets the held thread go on.
    pub fn open(&self) {
        let mut state = self.shared.state.lock();
        state.gates[self.index].open = true;
        state.wake(WaitOn::Gate(self.index));
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}
