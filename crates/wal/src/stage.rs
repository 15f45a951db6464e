//! One leader at a time; the others wait for its group.
//!
//! Both stages of the log, write and sync, work the same way:
//!
//! 1. Whoever needs a position reached and finds nobody at work leads: it does the work for everybody.
//! 2. Whoever finds a leader takes a seat with the position it needs.
//! 3. A leader that leaves wakes those whose position is reached, all of them, each on its own seat, and before
//!    that the first of the others, who leads the next group.
//!
//! Why not a mutex held through the work: its waiters would be let in one by one, each only to find that its
//! work is done. Why not one condition variable: everybody would wake for every group.
//!
//! After a fault all are woken; they find the poison and none leads again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Lsn, Poison};
use crossbeam_utils::CachePadded;
use vfs::sync::{Condvar, Mutex};

/// A stage of the log's pipeline and how far it has come.
pub(crate) struct Stage {
    /// Stored with Release by the leader, loaded with Acquire by whoever asks how far the stage is.
    reached: CachePadded<AtomicU64>,
    state: Mutex<State>,
    poison: Poison,
}

#[derive(Default)]
struct State {
    led: bool,
    /// How many waited when the last leader left, the next leader not counted, and how many it released, itself
    /// included.
    company: usize,
    seats: VecDeque<(Lsn, Arc<Seat>)>,
}

#[derive(Default)]
struct Seat {
    call: Mutex<Call>,
    called: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Call {
    #[default]
    Wait,
    Look,
    Lead(usize),
}

/// What [`Stage::enter`] ended with.
pub(crate) enum Turn<'a> {
    /// The caller leads until it drops this.
    Lead(Lead<'a>),
    /// The position may be reached, or a fault has happened: look.
    Look,
}

/// Leadership of a stage.
pub(crate) struct Lead<'a> {
    stage: &'a Stage,
    /// True if the leader waited for a leader before it.
    pub(crate) handed_over: bool,
    /// How many would wait for this leader if all came back that the one before it released, itself included.
    pub(crate) company: usize,
}

impl Stage {
    pub(crate) fn new(start: Lsn, poison: Poison) -> Self {
        Self { reached: CachePadded::new(AtomicU64::new(start.0)), state: Mutex::default(), poison }
    }

    /// How far the stage has come.
    pub(crate) fn reached(&self) -> Lsn {
        Lsn(self.reached.load(Ordering::Acquire))
    }

    /// Leads if nobody does, otherwise waits for the current leader or to become the next one.
    /// With [`Lsn::MAX`] it ends only in leadership or a fault.
    pub(crate) fn enter(&self, upto: Lsn) -> Turn<'_> {
        let mut state = self.state.lock();
        if self.reached() >= upto || self.poison.cause().is_some() {
            return Turn::Look;
        }
        if !state.led {
            state.led = true;
            return Turn::Lead(self.lead_freely(&state));
        }
        let seat = Arc::new(Seat::default());
        state.seats.push_back((upto, seat.clone()));
        drop(state);
        let mut call = seat.call.lock();
        while *call == Call::Wait {
            seat.called.wait(&mut call);
        }
        match *call {
            Call::Lead(company) => Turn::Lead(Lead { stage: self, handed_over: true, company }),
            _ => Turn::Look,
        }
    }

    /// Leads if nobody does. Never after a fault: a leader that failed has left a hole, and one after it that
    /// wrote behind the hole would call it written.
    pub(crate) fn try_lead(&self) -> Option<Lead<'_>> {
        let mut state = self.state.lock();
        if state.led || self.poison.cause().is_some() {
            return None;
        }
        state.led = true;
        Some(self.lead_freely(&state))
    }

    /// Whoever finds nobody at work was itself released by the last leader, most likely.
    fn lead_freely(&self, state: &State) -> Lead<'_> {
        Lead { stage: self, handed_over: false, company: state.company.saturating_sub(1) }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().seats.len()
    }

    fn leave(&self) {
        let mut state = self.state.lock();
        let reached = if self.poison.cause().is_some() { Lsn::MAX } else { self.reached() };
        // Drained from the front in order of arrival, so that the first who is left is the one who waited longest.
        let mut woken = Vec::new();
        state.seats.retain(|(upto, seat)| {
            let waits = *upto > reached;
            if !waits {
                woken.push(seat.clone());
            }
            waits
        });
        let next = state.seats.pop_front();
        state.led = next.is_some();
        let company = state.seats.len() + woken.len() + 1;
        state.company = company;
        drop(state);
        if let Some((_, seat)) = next {
            seat.call(Call::Lead(company));
        }
        for seat in woken {
            seat.call(Call::Look);
        }
    }
}

impl Seat {
    fn call(&self, call: Call) {
        *self.call.lock() = call;
        self.called.notify_one();
    }
}

impl Lead<'_> {
    /// The stage has come this far; seen by everybody at once, the seats are called when leadership ends.
    pub(crate) fn reach(&self, lsn: Lsn) {
        debug_assert!(lsn >= self.stage.reached());
        self.stage.reached.store(lsn.0, Ordering::Release);
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.stage.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Fault;

    fn lead(turn: Turn<'_>) -> Option<Lead<'_>> {
        match turn {
            Turn::Lead(lead) => Some(lead),
            Turn::Look => None,
        }
    }

    #[test]
    fn a_group_is_woken_and_one_of_the_rest_leads() {
        let stage = Arc::new(Stage::new(Lsn(0), Poison::new()));
        let first = lead(stage.enter(Lsn(16))).expect("nobody leads");
        assert!(stage.try_lead().is_none());
        let waiters: Vec<_> = [32u64, 48, 64]
            .map(|upto| {
                let stage = stage.clone();
                vfs::thread::spawn("waiter", move || {
                    while stage.reached() < Lsn(upto) {
                        if let Turn::Lead(lead) = stage.enter(Lsn(upto)) {
                            lead.reach(Lsn(64));
                        }
                    }
                })
                .expect("a thread")
            })
            .into();
        while stage.state.lock().seats.len() < 3 {
            vfs::thread::sleep(std::time::Duration::from_millis(1));
        }
        first.reach(Lsn(16));
        drop(first);
        for waiter in waiters {
            waiter.join().expect("no panic");
        }
        assert!(!stage.state.lock().led);
    }

    #[test]
    fn a_fault_wakes_everybody() {
        let poison = Poison::new();
        let stage = Arc::new(Stage::new(Lsn(0), poison.clone()));
        let first = lead(stage.enter(Lsn(16))).expect("nobody leads");
        let waiter = {
            let stage = stage.clone();
            vfs::thread::spawn("waiter", move || matches!(stage.enter(Lsn::MAX), Turn::Look)).expect("a thread")
        };
        while stage.state.lock().seats.is_empty() {
            vfs::thread::sleep(std::time::Duration::from_millis(1));
        }
        poison.set(Fault::Unsupported("a test".into()));
        drop(first);
        assert!(waiter.join().expect("no panic"));
        assert!(matches!(stage.enter(Lsn(16)), Turn::Look));
    }
}
