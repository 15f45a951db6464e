//! Running a simulation from outside.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::config::Config;
use super::context::{End, SIMULATIONS, Shared, start, with};
use super::gate::Gate;
use super::scheduler::{FailureKind, State};
use crate::random::Rng;

/// A deterministic simulation: the same seed, configuration and body give the same run, decision by decision.
///
/// ```
/// use std::sync::Arc;
/// use vfs::sim::{Config, Simulation};
/// use vfs::sync::Mutex;
///
/// let run = || Simulation::new(42, Config::default()).run(|_sim| {
///     let order = Arc::new(Mutex::new(Vec::new()));
///     let threads: Vec<_> = (0..3).map(|n| {
///         let order = Arc::clone(&order);
///         vfs::thread::spawn("writer", move || order.lock().push(n)).expect("an OS thread can be started")
///     }).collect();
///     threads.into_iter().for_each(|t| t.join().expect("no writer panics"));
///     order.lock().clone()
/// });
/// let (first, second) = (run(), run());
/// assert_eq!(first.value, second.value);
/// assert_eq!(first.trace_hash, second.trace_hash);
/// ```
#[derive(Debug, Clone)]
pub struct Simulation {
    seed: u64,
    config: Config,
}

/// What a simulation gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<T> {
    /// What the body returned.
    pub value: T,
    /// Hash over all scheduling decisions and I/O; equal for equal seeds.
    pub trace_hash: u64,
    /// Scheduling points.
    pub steps: u64,
    /// How often another thread went on.
    pub switches: u64,
    /// Simulated time at the end.
    pub elapsed: Duration,
}

/// How a simulation failed.
#[derive(Debug, Clone, thiserror::Error)]
pub struct Failure {
    /// The seed that shows it again.
    pub seed: u64,
    /// What happened.
    pub kind: FailureKind,
    /// The thread in which it was noticed.
    pub thread: String,
    /// The panic message, or what was noticed.
    pub message: String,
    /// All live threads, where they are and what they wait for.
    pub threads: String,
    /// The last scheduling points, oldest first.
    pub trace: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, kind, thread, message, threads, trace } = self;
        writeln!(f, "simulation with seed {seed} failed: {kind:?} in thread {thread}: {message}")?;
        write!(f, "threads:\n{threads}last scheduling points:\n{trace}seed {seed}: {kind:?}: {message}")
    }
}

impl Simulation {
    /// A simulation to run.
    #[must_use]
    pub fn new(seed: u64, config: Config) -> Self {
        Self { seed, config }
    }

    /// Runs `body` as the first simulated thread and waits until all simulated threads have ended. Panics with the
    /// [`Failure`] if the simulation fails.
    #[track_caller]
    pub fn run<T: Send + 'static>(&self, body: impl FnOnce(&Handle) -> T + Send + 'static) -> Report<T> {
        match self.try_run(body) {
            Ok(report) => report,
            Err(failure) => panic!("{failure}"),
        }
    }

    /// The same, with the failure as a value. The threads of a failed simulation sleep until the process ends, with
    /// all they own.
    pub fn try_run<T: Send + 'static>(
        &self,
        body: impl FnOnce(&Handle) -> T + Send + 'static,
    ) -> Result<Report<T>, Box<Failure>> {
        self.run_to_end(body).map(|(report, _)| report)
    }

    /// Runs `body` twice and compares: an error says where the two runs parted. If it ever fails, something in the
    /// code under test depends on more than the seed: an address, the machine's clock, the order of a standard hash
    /// map, a value that outlives the simulation.
    ///
    /// # Errors
    /// The failure of a run that failed, or one of kind `Diverged`.
    pub fn run_twice<T: PartialEq + Send + 'static>(
        &self,
        body: impl Fn(&Handle) -> T + Clone + Send + 'static,
    ) -> Result<Report<T>, Box<Failure>> {
        let recorded = Self::new(self.seed, Config { trace_tail: usize::MAX, ..self.config.clone() });
        let (first, first_run) = recorded.run_to_end(body.clone())?;
        let (second, second_run) = recorded.run_to_end(body)?;
        if first == second {
            return Ok(first);
        }
        let (first_state, second_state) = (first_run.state.lock(), second_run.state.lock());
        let name_of = |id: usize| first_state.threads[id].name.clone();
        Err(Box::new(Failure {
            seed: self.seed,
            kind: FailureKind::Diverged,
            thread: "main".to_owned(),
            message: "two runs of this seed differ".to_owned(),
            threads: String::new(),
            trace: first_state.trace.parting(&second_state.trace, name_of),
        }))
    }

    fn run_to_end<T: Send + 'static>(
        &self,
        body: impl FnOnce(&Handle) -> T + Send + 'static,
    ) -> Result<(Report<T>, Arc<Shared>), Box<Failure>> {
        let value = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&value);
        let (report, shared) = self.run_body(Box::new(move |handle: &Handle| *slot.lock() = Some(body(handle))))?;
        let Report { value: (), trace_hash, steps, switches, elapsed } = report;
        let value = value.lock().take().expect("the body returned");
        Ok((Report { value, trace_hash, steps, switches, elapsed }, shared))
    }

    fn run_body(&self, body: Box<dyn FnOnce(&Handle) + Send>) -> Result<(Report<()>, Arc<Shared>), Box<Failure>> {
        assert!(with(|_| ()).is_none(), "a simulation inside a simulation");
        catch_panics();
        let running = Running::new();
        let shared = Arc::new(Shared {
            seed: self.seed,
            config: self.config.clone(),
            state: Mutex::new(State::new(self.seed, &self.config)),
            end: Mutex::new(None),
            ended: Condvar::new(),
            os_threads: Mutex::new(Vec::new()),
            core: self.config.pinned.then(super::pin::choose_core).flatten(),
            locals: Mutex::new(Vec::new()),
        });
        let handle = Handle { shared: Arc::clone(&shared) };
        let (_, baton) = start(&shared, "main", Box::new(move || body(&handle)))
            .expect("the machine can start a thread for the simulation");
        baton.give();
        if let Err(failure) = self.wait_for_end(&shared) {
            if failure.kind == FailureKind::Stuck {
                // The stuck thread may go on some day, and must still find itself simulated.
                std::mem::forget(running);
            }
            return Err(failure);
        }
        // In two steps: an ending OS thread does not touch the list, but the lock would be held for long.
        let os_threads = std::mem::take(&mut *shared.os_threads.lock());
        for thread in os_threads {
            thread.join().expect("a simulated thread catches its panics");
        }
        let state = shared.state.lock();
        let report = Report {
            value: (),
            trace_hash: state.trace.hash(),
            steps: state.steps,
            switches: state.switches,
            elapsed: Duration::from_nanos(state.now_nanos),
        };
        drop(state);
        Ok((report, shared))
    }

    fn wait_for_end(&self, shared: &Shared) -> Result<(), Box<Failure>> {
        let mut steps = 0;
        let mut end = shared.end.lock();
        loop {
            match end.take() {
                Some(End::Finished) => return Ok(()),
                Some(End::Failed { kind, message, thread }) => {
                    return Err(Box::new(self.failure(&shared.state.lock(), kind, message, thread)));
                }
                None => {}
            }
            if shared.ended.wait_for(&mut end, self.config.stuck_after).timed_out() && end.is_none() {
                let state = shared.state.lock();
                if state.steps == steps {
                    let thread = state.threads[state.current].name.clone();
                    let message = "no scheduling point for long: it computes without end, or waits outside vfs";
                    return Err(Box::new(self.failure(&state, FailureKind::Stuck, message.to_owned(), thread)));
                }
                steps = state.steps;
            }
        }
    }

    fn failure(&self, state: &State, kind: FailureKind, message: String, thread: String) -> Failure {
        Failure {
            seed: self.seed,
            kind,
            thread,
            message,
            threads: state.threads_report(),
            trace: state.trace.tail(|id| state.threads[id].name.clone()),
        }
    }
}

/// Raises the count of simulations while it lives.
struct Running;

impl Running {
    fn new() -> Self {
        // Relaxed: the simulated threads are started after this, which orders it for them (see `active`).
        SIMULATIONS.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        SIMULATIONS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a simulated thread can ask of its simulation.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// The simulation this thread belongs to.
#[must_use]
pub fn current() -> Option<Handle> {
    with(|thread| Handle { shared: Arc::clone(&thread.shared) })
}

impl Handle {
    /// The seed of the run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// A generator of its own for a part of the test.
    #[must_use]
    pub fn rng(&self) -> Rng {
        self.shared.state.lock().random.fork()
    }

    /// Scheduling points so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.shared.state.lock().steps
    }

    /// Simulated time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.shared.state.lock().now_nanos)
    }

    /// Sets the time of day ahead by so many seconds, or back: what [`crate::time::unix_time`] says. The monotonic clock goes on.
    pub fn shift_unix_time(&self, seconds: i64) {
        self.shared.state.lock().unix_shift_seconds += seconds;
    }

    /// Makes `value` part of the trace hash: something two runs of one seed must agree on.
    pub fn note(&self, value: u64) {
        self.shared.state.lock().trace.value(value);
    }

    /// The simulation's own value of a type, made when first asked for: for what would otherwise be one for the
    /// whole process and so tie simulations to each other.
    pub fn local<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut locals = self.shared.locals.lock();
        if let Some(found) = locals.iter().find_map(|local| Arc::clone(local).downcast().ok()) {
            return found;
        }
        let made = Arc::new(make());
        locals.push(made.clone());
        made
    }

    /// Stops the next thread that comes to the scheduling point `name`.
    pub fn hold(&self, name: &str) -> Gate {
        self.hold_nth(name, 0)
    }

    /// The same, after `skip` threads have passed.
    pub fn hold_nth(&self, name: &str, skip: u64) -> Gate {
        Gate::new(&self.shared, name, skip)
    }
}

/// What [`explore`] saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Explored {
    /// Runs.
    pub runs: u64,
    /// Scheduling points of all runs.
    pub steps: u64,
}

/// Runs `body` once for each seed, and stops at the first failure.
pub fn explore(
    seeds: impl IntoIterator<Item = u64>,
    config: &Config,
    body: impl Fn(&Handle) + Send + Sync + 'static,
) -> Result<Explored, Box<Failure>> {
    let body = Arc::new(body);
    let mut explored = Explored::default();
    for seed in seeds {
        let body = Arc::clone(&body);
        let report = Simulation::new(seed, config.clone()).try_run(move |handle| body(handle))?;
        explored.runs += 1;
        explored.steps += report.steps;
    }
    Ok(explored)
}

/// [`explore`] on several cores at once. The failure returned is one of those found; the seeds that were running on
/// other cores are still finished.
pub fn explore_parallel(
    workers: usize,
    seeds: Range<u64>,
    config: &Config,
    body: impl Fn(&Handle) + Send + Sync + 'static,
) -> Result<Explored, Box<Failure>> {
    let body = Arc::new(body);
    // No partner: a seed is drawn once, and nothing else hangs on it.
    let next = AtomicU64::new(seeds.start);
    let found = AtomicBool::new(false);
    let work = || {
        let mine = std::iter::from_fn(|| {
            // SeqCst although any order would do: the other workers stop soon, not at once.
            let seed = next.fetch_add(1, Ordering::Relaxed);
            (seed < seeds.end && !found.load(Ordering::SeqCst)).then_some(seed)
        });
        let body = Arc::clone(&body);
        explore(mine, config, move |handle| body(handle)).inspect_err(|_| found.store(true, Ordering::SeqCst))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
        let mut all = Explored::default();
        for thread in threads {
            let explored = thread.join().expect("explore returns failures, it does not panic")?;
            all.runs += explored.runs;
            all.steps += explored.steps;
        }
        Ok(all)
    })
}

/// Makes panics of simulated threads known to their simulation, once for the process. Other threads' panics go
/// where they went before.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let line = info.location().map(Location::to_string).unwrap_or_default();
            let message = format!("{} ({line})", message_of(info.payload()));
            let print = with(|thread| {
                let print = thread.note_panic(message);
                if print {
                    eprintln!("in the simulation with seed {}:", thread.seed());
                }
                print
            });
            if print.unwrap_or(true) {
                before(info);
            }
        }));
    });
}

/// The text of a panic.
pub(super) fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("panicked with a value that is no text").to_owned()
}
