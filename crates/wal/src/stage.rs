//! One leader at a time; the others wait for its group.
//!
//! Both stages of the log, write and sync, work nearly the same way:
//!
//! 1. Whoever needs a position reached and finds nobody at work leads: it does the work for everybody.
//! 2. Whoever finds a leader takes a seat with the position it needs; where the work takes microseconds, it spins as long
//!    first.
//! 3. A leader that leaves wakes those whose position is reached, all of them, each on its own seat, and before
//!    that the first of the others. Where the work is long, that one leads the next group. Where it is short, whoever
//!    comes first does: a thread that runs would do all the work in the time the woken one needs to wake, and would
//!    otherwise have to sleep behind it, and the next behind that.
//!
//! Nobody is forgotten: if there are seats, somebody leads, or the first of them has been woken to look. And a leader
//! works for all who were seated before it began.
//!
//! Why not a mutex held through the work: its waiters would be let in one by one, each only to find that its
//! work is done. Why not one condition variable: everybody would wake for every group.
//!
//! After a fault all are woken; they find the poison and none leads again. Where nobody was at work when it fell, the one
//! who was woken to look wakes the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::{Lsn, Poison};
use crossbeam_utils::CachePadded;
use vfs::sync::{Condvar, Mutex};
use vfs::thread;
use vfs::time::Instant;

/// Turns of spinning behind a leader of short work: about as long as the work takes.
const SPIN_TURNS: u32 = 200;

/// A stage of the log's pipeline and how far it has come.
pub(crate) struct Stage {
    /// Stored with Release by the leader, loaded with Acquire by whoever asks how far the stage is.
    reached: CachePadded<AtomicU64>,
    /// Somebody leads. Written under `state`; without it a hint.
    led: AtomicBool,
    state: Mutex<State>,
    poison: Poison,
    /// Turns of spinning before a seat is taken; none where the work is long.
    spin_turns: u32,
    /// How long all together sat. A statistic: relaxed.
    waited_nanos: AtomicU64,
}

#[derive(Default)]
struct State {
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
    /// A stage whose work takes milliseconds.
    pub(crate) fn long(start: Lsn, poison: Poison) -> Self {
        let reached = CachePadded::new(AtomicU64::new(start.0));
        Self {
            reached,
            led: AtomicBool::new(false),
            state: Mutex::default(),
            poison,
            spin_turns: 0,
            waited_nanos: AtomicU64::new(0),
        }
    }

    /// A stage whose work takes microseconds.
    pub(crate) fn short(start: Lsn, poison: Poison) -> Self {
        Self { spin_turns: if thread::cores() > 1 { SPIN_TURNS } else { 0 }, ..Self::long(start, poison) }
    }

    /// How long all who were not leaders sat, together.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_nanos.load(Ordering::Relaxed))
    }

    /// How far the stage has come.
    pub(crate) fn reached(&self) -> Lsn {
        Lsn(self.reached.load(Ordering::Acquire))
    }

    /// Leads if nobody does, otherwise waits for the current leader or to become the next one.
    /// With [`Lsn::MAX`] it ends only in leadership or a fault.
    pub(crate) fn enter(&self, upto: Lsn) -> Turn<'_> {
        loop {
            self.spin(upto);
            let mut state = self.state.lock();
            if self.reached() >= upto {
                return Turn::Look;
            }
            if self.poison.cause().is_some() {
                // Nobody leads again. If nobody leads now either, the others counted on the one who was woken to look.
                if !self.led.load(Ordering::Relaxed) {
                    state.seats.drain(..).for_each(|(_, seat)| seat.call(Call::Look));
                }
                return Turn::Look;
            }
            if !self.led.swap(true, Ordering::Relaxed) {
                return Turn::Lead(self.lead_freely(&state));
            }
            let seat = Arc::new(Seat::default());
            state.seats.push_back((upto, seat.clone()));
            drop(state);
            let began = Instant::now();
            let call = seat.wait();
            let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.waited_nanos.fetch_add(nanos, Ordering::Relaxed);
            if let Call::Lead(company) = call {
                return Turn::Lead(Lead { stage: self, handed_over: true, company });
            }
        }
    }

    /// Until the position is reached or nobody leads, but not for long.
    fn spin(&self, upto: Lsn) {
        for _ in 0..self.spin_turns {
            if self.reached() >= upto || !self.led.load(Ordering::Relaxed) {
                return;
            }
            thread::spin();
        }
    }

    /// Leads if nobody does. Never after a fault: a leader that failed has left a hole, and one after it that
    /// wrote behind the hole would call it written.
    pub(crate) fn try_lead(&self) -> Option<Lead<'_>> {
        let state = self.state.lock();
        if self.poison.cause().is_some() || self.led.swap(true, Ordering::Relaxed) {
            return None;
        }
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
        let hands_over = next.is_some() && self.spin_turns == 0;
        self.led.store(hands_over, Ordering::Relaxed);
        let company = state.seats.len() + woken.len() + 1;
        state.company = company;
        drop(state);
        if let Some((_, seat)) = next {
            seat.call(if hands_over { Call::Lead(company) } else { Call::Look });
        }
        for seat in woken {
            seat.call(Call::Look);
        }
    }
}

impl Seat {
    fn wait(&self) -> Call {
        let mut call = self.call.lock();
        while *call == Call::Wait {
            self.called.wait(&mut call);
        }
        *call
    }

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
        let stage = Arc::new(Stage::long(Lsn(0), Poison::new()));
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
        assert!(!stage.led.load(Ordering::Relaxed));
    }

    /// Short work: whoever runs leads. Under many interleavings everybody comes back with its position reached, and
    /// somebody leads though another was woken for it. Guard: `leave` wakes the first whom it has not reached.
    #[test]
    fn short_work_is_done_by_whoever_runs_and_for_everybody() {
        let mut overtaken = 0;
        for seed in 0..60 {
            let config = vfs::sim::Config { cores: 2 + seed as usize % 2, ..vfs::sim::Config::default() };
            let ran = vfs::sim::Simulation::new(seed, config).run(|_| {
                let stage = Arc::new(Stage::short(Lsn(0), Poison::new()));
                let (end, overtaken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
                let clients: Vec<_> = (0..5)
                    .map(|_| {
                        let (stage, end, overtaken) = (stage.clone(), end.clone(), overtaken.clone());
                        let body = move || {
                            for _ in 0..6 {
                                let upto = Lsn(end.fetch_add(16, Ordering::SeqCst) + 16);
                                while stage.reached() < upto {
                                    let Turn::Lead(lead) = stage.enter(upto) else { continue };
                                    thread::point("test.leads");
                                    let all = Lsn(end.load(Ordering::SeqCst));
                                    thread::sleep(std::time::Duration::from_micros(upto.0 % 5 * 1000));
                                    lead.reach(all);
                                    let waits = stage.state.lock().seats.iter().any(|(upto, _)| *upto > all);
                                    overtaken.fetch_add(u64::from(waits), Ordering::SeqCst);
                                }
                            }
                        };
                        thread::spawn("client", body).expect("a thread")
                    })
                    .collect();
                clients.into_iter().for_each(|client| client.join().expect("no panic"));
                assert!(!stage.led.load(Ordering::Relaxed) && stage.state.lock().seats.is_empty());
                overtaken.load(Ordering::SeqCst)
            });
            overtaken += ran.value;
        }
        assert!(overtaken > 20, "leaders that left somebody behind: {overtaken}");
    }

    /// A fault of the store falls when one has been woken to look and nobody is at work. Guard: that one wakes the rest.
    #[test]
    fn a_fault_between_two_leaders_wakes_everybody() {
        for seed in 0..60 {
            let config = vfs::sim::Config { cores: 2, ..vfs::sim::Config::default() };
            vfs::sim::Simulation::new(seed, config).run(|_| {
                let poison = Poison::new();
                let stage = Arc::new(Stage::short(Lsn(0), poison.clone()));
                let first = lead(stage.enter(Lsn(16))).expect("nobody leads");
                let waiters: Vec<_> = (0..3)
                    .map(|_| {
                        let stage = stage.clone();
                        let body = move || while matches!(stage.enter(Lsn(64)), Turn::Lead(_)) {};
                        thread::spawn("waiter", body).expect("a thread")
                    })
                    .collect();
                while stage.waiting() < 3 {
                    thread::sleep(std::time::Duration::from_millis(1));
                }
                drop(first);
                poison.set(Fault::Unsupported("a test".into()));
                waiters.into_iter().for_each(|waiter| waiter.join().expect("no panic"));
            });
        }
    }

    #[test]
    fn a_fault_wakes_everybody() {
        let poison = Poison::new();
        let stage = Arc::new(Stage::long(Lsn(0), poison.clone()));
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
