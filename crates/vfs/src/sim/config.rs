//! What a simulation is asked to do.

use std::time::Duration;

/// How a simulation runs. The defaults find most things; a test states only what it needs.
#[derive(Debug, Clone)]
pub struct Config {
    /// How the next thread is chosen.
    pub strategy: Strategy,
    /// Places with their own odds of a switch; the first match counts.
    pub biases: Vec<Bias>,
    /// Scheduling points after which a run counts as a livelock.
    pub steps_max: u64,
    /// Simulated time a scheduling point takes. Time must move while threads run, or a loop that waits for a
    /// moment would never see it.
    pub step_time: Duration,
    /// Odds that a wait on a condition variable returns at once without having been notified.
    pub spurious_wakeup: f64,
    /// What `vfs::thread::cores` answers.
    pub cores: usize,
    /// How many of the last scheduling points a failure shows.
    pub trace_tail: usize,
    /// Keeps all simulated threads on one core of the machine, so that handing over costs no wake-up of another
    /// core.
    pub pinned: bool,
    /// Does not print panics of simulated threads where they happen; the failure still carries them.
    pub quiet: bool,
    /// Real time without a scheduling point after which the run counts as stuck outside the simulator's sight.
    pub stuck_after: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            strategy: Strategy::Mixed,
            biases: Vec::new(),
            steps_max: 5_000_000,
            step_time: Duration::from_nanos(100),
            spurious_wakeup: 0.0,
            cores: 4,
            trace_tail: 60,
            pinned: true,
            quiet: false,
            stuck_after: Duration::from_secs(120),
        }
    }
}

impl Config {
    /// Adds a bias: at points whose name starts with `prefix`, the running thread is preempted with this
    /// probability. Built-in points are named `sync.*`, `thread.*` and `io.*`.
    #[must_use]
    pub fn bias(mut self, prefix: &str, switch: f64) -> Self {
        self.biases.push(Bias { prefix: prefix.to_owned(), switch });
        self
    }

    /// The same with another strategy.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }
}

/// How the next thread is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strategy {
    /// At each scheduling point another thread, any of them, with probability `switch`.
    Random {
        /// Odds of a switch at a scheduling point.
        switch: f64,
    },
    /// Each thread has a random priority and the highest one that can run does; at each scheduling point, with
    /// probability `change`, the running thread falls behind all others. So some threads are very slow for a long
    /// time, which uniform choice almost never shows. After Burckhardt, Kothari, Musuvathi, Nagarakatte: A
    /// Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, ASPLOS 2010, with change points drawn as
    /// the run goes because its length is not known before.
    Priorities {
        /// Odds of falling behind at a scheduling point.
        change: f64,
    },
    /// One of the above with one of several odds, by seed.
    Mixed,
}

/// A place with its own odds of a switch.
#[derive(Debug, Clone, PartialEq)]
pub struct Bias {
    /// Names of scheduling points that start with this.
    pub prefix: String,
    /// Odds of a preemption there.
    pub switch: f64,
}
