//! Keeps the threads of one simulation on one core: handing the baton over is then a switch on that core, and not a
//! wake-up of another one, which costs several times as much. OS threads that run simulations take cores in turn, so
//! that two of them do not share one.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

thread_local! {
    /// The turn of this OS thread, once it has run a simulation.
    static TURN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The core for simulations started by this OS thread; none if the machine does not tell.
pub(super) fn choose_core() -> Option<usize> {
    // No partner: the number only spreads threads over cores.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let allowed = sched_getaffinity(None).ok()?;
    let cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let turn = TURN.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
    TURN.set(Some(turn));
    cores.get(turn % cores.len().max(1)).copied()
}

/// Moves this OS thread; where that is not permitted it stays where it is, which is only slower.
pub(super) fn to_core(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}
