//! The state of one simulation: its threads, their waits, its clock.
//!
//! Exactly one simulated thread runs at a time: `current`, which holds the baton. It alone changes this state, at
//! its scheduling points, so the mutex around it is never contended; it is there because the runner looks in when
//! the simulation ends or is stuck.
//!
//! A scheduling point: (1) count the step, move the clock by `step_time`, record the trace; (2) wake sleepers whose
//! time has come; (3) ask the chooser whether to preempt, and whom to run; (4) hand over the baton. A wait is the
//! same, but the thread is not among those that can run, and if nobody is, the clock jumps to the earliest deadline;
//! if nobody has one either, that is a deadlock.
//!
//! Invariants: `live` holds the threads that have not ended, ascending; `current` is one of them until all have
//! ended; `next_deadline` <= the deadline of every blocked thread.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::baton::Baton;
use super::chooser::{Chooser, ThreadId};
use super::config::Config;
use super::trace::{Place, Trace};
use crate::random::Rng;

/// What tells one lock from another: address and size. The size is needed because a lock may be the first field
/// of what another one protects; the outer is then larger.
pub(crate) type LockKey = (usize, usize);

/// What a blocked thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitOn {
    Lock(LockKey),
    Notify(usize),
    End(ThreadId),
    Time,
    /// Held at the gate with this index.
    Gate(usize),
    /// For some thread to come to the gate with this index.
    GateReached(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) on: WaitOn,
    pub(crate) deadline: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) name: String,
    pub(crate) baton: Arc<Baton>,
    pub(crate) blocked: Option<Wait>,
    /// The last wait ended because its deadline passed.
    pub(crate) timed_out: bool,
    pub(crate) place: Option<Place>,
}

/// Who holds a lock; present only while somebody does or a writer drains readers.
#[derive(Debug, Default)]
pub(crate) struct LockState {
    pub(crate) writer: Option<ThreadId>,
    pub(crate) readers: Vec<ThreadId>,
    /// A writer that waits for the readers to leave: new readers queue behind it, as in `parking_lot`.
    pub(crate) draining: Option<ThreadId>,
}

/// Stops a thread that comes to a point of this name.
#[derive(Debug)]
pub(crate) struct GateState {
    pub(crate) name: String,
    /// How many threads pass before.
    pub(crate) skip: u64,
    pub(crate) open: bool,
    pub(crate) held: Option<ThreadId>,
}

/// Why a simulation cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A simulated thread panicked.
    Panic,
    /// No thread can run and none waits for a moment.
    Deadlock,
    /// More scheduling points than allowed.
    Livelock,
    /// No scheduling point for long: a thread blocks where the simulator cannot see it, or computes for ever.
    Stuck,
    /// Two runs of the seed differ; only `Simulation::run_twice` notices.
    Diverged,
}

pub(crate) struct State {
    pub(crate) threads: Vec<Thread>,
    pub(crate) live: Vec<ThreadId>,
    pub(crate) current: ThreadId,
    pub(crate) chooser: Chooser,
    pub(crate) random: Rng,
    pub(crate) now_nanos: u64,
    /// By how much the time of day was set ahead, or back, in seconds.
    pub(crate) unix_shift_seconds: i64,
    pub(crate) steps: u64,
    pub(crate) switches: u64,
    pub(crate) trace: Trace,
    pub(crate) locks: HashMap<LockKey, LockState>,
    pub(crate) gates: Vec<GateState>,
    next_deadline: u64,
    runnable: Vec<ThreadId>,
    step_nanos: u64,
    steps_max: u64,
}

impl State {
    pub(crate) fn new(seed: u64, config: &Config) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            threads: Vec::new(),
            live: Vec::new(),
            current: 0,
            chooser: Chooser::new(rng.fork(), config),
            random: rng.fork(),
            now_nanos: 0,
            unix_shift_seconds: 0,
            steps: 0,
            switches: 0,
            trace: Trace::new(seed, config.trace_tail),
            locks: HashMap::new(),
            gates: Vec::new(),
            next_deadline: u64::MAX,
            runnable: Vec::new(),
            step_nanos: config.step_time.as_nanos() as u64,
            steps_max: config.steps_max,
        }
    }

    /// A thread is there; it can run.
    pub(crate) fn add_thread(&mut self, name: &str) -> (ThreadId, Arc<Baton>) {
        let id = self.threads.len();
        let baton = Arc::new(Baton::default());
        self.threads.push(Thread {
            name: name.to_owned(),
            baton: Arc::clone(&baton),
            blocked: None,
            timed_out: false,
            place: None,
        });
        self.live.push(id);
        self.chooser.born(id);
        (id, baton)
    }

    /// A thread has ended: whoever joins it can run.
    pub(crate) fn remove_thread(&mut self, id: ThreadId) {
        self.live.retain(|t| *t != id);
        self.wake(WaitOn::End(id));
    }

    /// Step (1) and (2) of a scheduling point.
    pub(crate) fn step(&mut self, thread: ThreadId, place: Place) -> Result<(), FailureKind> {
        debug_assert_eq!(thread, self.current, "only the holder of the baton comes to a scheduling point");
        self.steps += 1;
        self.threads[thread].place = Some(place);
        self.trace.point(thread, self.now_nanos, place);
        self.pass(self.step_nanos);
        if self.steps > self.steps_max { Err(FailureKind::Livelock) } else { Ok(()) }
    }

    /// Moves the clock on.
    pub(crate) fn pass(&mut self, nanos: u64) {
        self.now_nanos += nanos;
        if self.now_nanos >= self.next_deadline {
            self.wake_due();
        }
    }

    /// Blocks a thread; it goes on after [`State::wake`] or the deadline.
    pub(crate) fn block(&mut self, thread: ThreadId, wait: Wait) {
        self.next_deadline = self.next_deadline.min(wait.deadline.unwrap_or(u64::MAX));
        let thread = &mut self.threads[thread];
        thread.blocked = Some(wait);
        thread.timed_out = false;
    }

    /// Wakes every thread that waits for this.
    pub(crate) fn wake(&mut self, on: WaitOn) {
        for id in &self.live {
            if self.threads[*id].blocked.is_some_and(|wait| wait.on == on) {
                self.threads[*id].blocked = None;
            }
        }
    }

    /// Wakes one of the threads that wait for this, by seed.
    pub(crate) fn wake_one(&mut self, on: WaitOn) {
        let waits = |id: &&ThreadId| self.threads[**id].blocked.is_some_and(|wait| wait.on == on);
        let count = self.live.iter().filter(waits).count();
        if count > 0 {
            let nth = self.chooser.index(count);
            let id = *self.live.iter().filter(waits).nth(nth).expect("nth is below their count");
            self.threads[id].blocked = None;
        }
    }

    fn wake_due(&mut self) {
        self.next_deadline = u64::MAX;
        for id in &self.live {
            let thread = &mut self.threads[*id];
            match thread.blocked.and_then(|wait| wait.deadline) {
                Some(deadline) if deadline <= self.now_nanos => {
                    thread.blocked = None;
                    thread.timed_out = true;
                }
                Some(deadline) => self.next_deadline = self.next_deadline.min(deadline),
                None => {}
            }
        }
    }

    /// The next thread to run, when `current` cannot or shall not go on. Time jumps if nobody can run.
    pub(crate) fn next(&mut self) -> Result<ThreadId, FailureKind> {
        loop {
            let Self { runnable, live, threads, .. } = self;
            runnable.clear();
            runnable.extend(live.iter().filter(|id| threads[**id].blocked.is_none()));
            if !runnable.is_empty() {
                return Ok(self.chooser.pick(&self.runnable, self.current));
            }
            if self.next_deadline == u64::MAX {
                return Err(FailureKind::Deadlock);
            }
            self.now_nanos = self.now_nanos.max(self.next_deadline);
            self.wake_due();
        }
    }

    /// `current` is alone able to run and spins: let the sleepers' time come.
    pub(crate) fn let_time_pass(&mut self) {
        let only_one = self.live.iter().filter(|id| self.threads[**id].blocked.is_none()).count() == 1;
        if only_one && self.next_deadline != u64::MAX {
            self.now_nanos = self.now_nanos.max(self.next_deadline);
            self.wake_due();
        }
    }

    /// Where every live thread is, one a line.
    pub(crate) fn threads_report(&self) -> String {
        let mut out = String::new();
        for id in &self.live {
            let thread = &self.threads[*id];
            let doing = match thread.blocked {
                None if *id == self.current => "running".to_owned(),
                None => "can run".to_owned(),
                Some(wait) => self.describe(wait),
            };
            let _ = write!(out, "  {:<20} {doing}", thread.name);
            if let Some(place) = thread.place {
                let _ = write!(out, ", after {place}");
            }
            let held = self.locks_held_by(*id);
            if held > 0 {
                let _ = write!(out, ", holding {held} lock{}", if held == 1 { "" } else { "s" });
            }
            out.push('\n');
        }
        out
    }

    fn describe(&self, wait: Wait) -> String {
        let mut text = match wait.on {
            WaitOn::Lock(key) => match self.locks.get(&key) {
                None => "waits for a lock".to_owned(),
                Some(lock) => {
                    let holders: Vec<_> =
                        lock.writer.iter().chain(&lock.readers).map(|t| self.threads[*t].name.as_str()).collect();
                    let before = lock.draining.map(|t| format!(", behind the writer {}", self.threads[t].name));
                    format!("waits for a lock held by {}{}", holders.join(" and "), before.unwrap_or_default())
                }
            },
            WaitOn::Notify(_) => "waits to be notified".to_owned(),
            WaitOn::End(thread) => format!("waits for the end of {}", self.threads[thread].name),
            WaitOn::Time => "sleeps".to_owned(),
            WaitOn::Gate(gate) => format!("is held at the gate {}", self.gates[gate].name),
            WaitOn::GateReached(gate) => format!("waits for a thread to reach the gate {}", self.gates[gate].name),
        };
        if let Some(deadline) = wait.deadline {
            let _ = write!(text, " until {:.3} us", deadline as f64 / 1e3);
        }
        text
    }

    fn locks_held_by(&self, id: ThreadId) -> usize {
        self.locks.values().filter(|lock| lock.writer == Some(id) || lock.readers.contains(&id)).count()
    }
}
