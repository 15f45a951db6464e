//! What watches a step while its threads run, every 20 ms: stalls, once a second memory and the watcher's numbers, the
//! end of the warm-up, and whether it is time to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab_measure::procfs::{Process, Runs};
use lab_measure::record::{CostsAt, LevelsAt};
use lab_measure::{Clock, Kind, LiveCell, LiveTotals, Snapshot};
use lab_target::Target;

use crate::crew::Crew;
use crate::sequence::Watcher;
use crate::totals::{LastQuarter, Totals};

const POLL: Duration = Duration::from_millis(20);

/// What a run shares with all its steps, whatever the workload.
pub struct Stage<'a> {
    /// The run's clock.
    pub clock: Clock,
    /// `major:minor` of the device that holds the database.
    pub device: Option<String>,
    /// What is measured.
    pub target: &'a dyn Target,
    /// Where the engine runs.
    pub engine: Runs,
    /// Set from outside to end the run; read every 20 ms.
    pub interrupt: &'a AtomicBool,
    /// Who is told.
    pub watcher: &'a dyn Watcher,
}

impl Stage<'_> {
    /// The kernel's counters.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.clock, self.device.as_deref(), self.engine)
    }

    /// Whether the run was ended from outside.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}

const SECOND_NS: u64 = 1_000_000_000;

/// Progress of a step, once a second.
#[derive(Clone, Debug, Default)]
pub struct Tick {
    /// Seconds since the step began.
    pub elapsed_secs: f64,
    /// Share of the step that is done.
    pub done: f64,
    /// Seconds since the last tick.
    pub interval_secs: f64,
    /// Rows inserted, rows deleted, queries: so far.
    pub totals: [u64; 3],
    /// The same in this interval.
    pub interval: [u64; 3],
    /// Worst response of each kind in this interval, in microseconds.
    pub worst_us: [u64; 3],
    /// 99th percentile of the step's main kind in this interval, in microseconds.
    pub p99_us: Option<u64>,
    /// Stalls of 50 ms and more so far, as seen every 20 ms.
    pub stalls: u64,
}

/// What is known of a step before it begins.
pub(crate) struct Outlook {
    /// Its name.
    pub(crate) name: String,
    /// Unmeasured nanoseconds at the start.
    pub(crate) warmup_ns: u64,
    /// Length of a step that ends by the clock, the warm-up included.
    pub(crate) alone_ns: Option<u64>,
    /// The longest it may take; 0 = no limit.
    pub(crate) limit_ns: u64,
    /// Whether statements have intended starts.
    pub(crate) paced: bool,
    /// What it is about.
    pub(crate) main: Kind,
    /// How long it takes, if that is known.
    pub(crate) planned_secs: Option<f64>,
    /// Statements of its main kind by all clients, otherwise.
    pub(crate) statements: u64,
}

impl Outlook {
    /// Of a load of so many statements.
    pub(crate) fn load(name: &str, statements: u64) -> Outlook {
        Outlook {
            name: name.to_owned(),
            warmup_ns: 0,
            alone_ns: None,
            limit_ns: 0,
            paced: false,
            main: Kind::Insert,
            planned_secs: None,
            statements,
        }
    }

    /// Of so many measured seconds.
    pub(crate) fn timed(name: &str, warmup: u64, seconds: u64, max_seconds: u64) -> Outlook {
        Outlook {
            warmup_ns: warmup * SECOND_NS,
            alone_ns: Some((warmup + seconds) * SECOND_NS),
            limit_ns: max_seconds * SECOND_NS,
            main: Kind::Query,
            planned_secs: Some((warmup + seconds) as f64),
            ..Outlook::load(name, 0)
        }
    }
}

/// The live cells of one client.
#[derive(Clone, Default)]
pub(crate) struct Cells(pub(crate) [Arc<LiveCell>; 3]);

/// What the coordinator keeps while the threads run.
pub(crate) struct Coordinator<'a> {
    stage: &'a Stage<'a>,
    outlook: Outlook,
    cells: &'a [Cells],
    begin: Snapshot,
    rss_bytes: u64,
    cut_short: bool,
    stalls: u64,
    last: [LiveTotals; 3],
    last_tick_ns: u64,
    /// Of a load, once a second: the counters of the engine's process, and the rows so far.
    samples: Vec<(Snapshot, u64)>,
    /// Once a second, of an engine that has levels.
    levels: Vec<LevelsAt>,
    /// The same of an engine that tells its indexes' costs: every so many ticks.
    costs: Vec<CostsAt>,
    costs_every: u64,
    ticks: u64,
}

/// More moments than these are thinned out: twice as many as a chart has points.
const COSTS_MAX: usize = 1200;

impl<'a> Coordinator<'a> {
    pub(crate) fn new(stage: &'a Stage<'a>, outlook: Outlook, cells: &'a [Cells]) -> Coordinator<'a> {
        Coordinator {
            stage,
            outlook,
            cells,
            begin: Snapshot::default(),
            rss_bytes: 0,
            cut_short: false,
            stalls: 0,
            last: Default::default(),
            last_tick_ns: 0,
            samples: Vec::new(),
            levels: Vec::new(),
            costs: Vec::new(),
            costs_every: 1,
            ticks: 0,
        }
    }

    fn live(&self) -> [LiveTotals; 3] {
        let mut totals: [LiveTotals; 3] = Default::default();
        for cells in self.cells {
            for (total, cell) in totals.iter_mut().zip(&cells.0) {
                total.add(cell);
            }
        }
        totals
    }

    /// Measuring begins, so many seconds into the step.
    fn begin(&mut self, secs: f64) {
        self.costs.clear();
        self.take_costs(secs);
        self.begin = self.stage.snapshot();
    }

    /// Starts the crew, and watches until every thread is gone; `close` tells them to go.
    pub(crate) fn watch(&mut self, crew: &Crew, close: impl Fn()) {
        let mut warm = self.outlook.warmup_ns == 0;
        // Nobody has done anything yet.
        self.begin(0.0);
        crew.start(&self.stage.clock);
        let start_ns = self.begin.at_ns;
        self.last_tick_ns = start_ns;
        let (mut moved_ns, mut seen, mut stalled) = (start_ns, 0, false);
        while crew.threads() > 0 {
            std::thread::sleep(POLL);
            let now_ns = self.stage.clock.now_ns();
            if !warm && now_ns - start_ns >= self.outlook.warmup_ns {
                warm = true;
                self.begin((now_ns - start_ns) as f64 / 1e9);
            }
            let live = self.live();
            let statements = live.iter().map(|kind| kind.statements).sum();
            if statements != seen {
                (seen, moved_ns, stalled) = (statements, now_ns, false);
            } else if !self.outlook.paced && !stalled && now_ns - moved_ns >= lab_measure::stall::STALL_NS {
                (stalled, self.stalls) = (true, self.stalls + 1);
            }
            if now_ns - self.last_tick_ns >= 1_000_000_000 {
                self.tick(now_ns, start_ns, live);
            }
            let limit_ns = self.outlook.limit_ns;
            if limit_ns > 0 && now_ns - start_ns > limit_ns && !self.cut_short {
                self.cut_short = true;
                close();
            }
            let is_over = self.outlook.alone_ns.is_some_and(|length_ns| now_ns - start_ns >= length_ns);
            if is_over || self.stage.is_interrupted() {
                close();
            }
        }
        self.sample_rss();
        self.take_costs((self.stage.clock.now_ns() - start_ns) as f64 / 1e9);
    }

    fn take_costs(&mut self, secs: f64) {
        let indexes = self.stage.target.costs();
        if !indexes.is_empty() {
            self.costs.push(CostsAt { secs, indexes });
        }
        if self.costs.len() > COSTS_MAX {
            let mut place = 0;
            self.costs.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.costs_every *= 2;
        }
    }

    fn sample_rss(&mut self) {
        self.rss_bytes = self.rss_bytes.max(Process::of(self.stage.engine).map_or(0, |process| process.rss_bytes));
    }

    fn tick(&mut self, now_ns: u64, start_ns: u64, live: [LiveTotals; 3]) {
        self.sample_rss();
        let main = self.outlook.main as usize;
        let worst_us = Kind::ALL.map(|kind| {
            self.cells.iter().map(|cells| cells.0[kind as usize].take_worst_ns()).max().unwrap_or(0) / 1_000
        });
        let elapsed_secs = (now_ns - start_ns) as f64 / 1e9;
        // The statements of a paced second come in a burst: there, time is the better measure.
        let done = match self.outlook.planned_secs {
            Some(planned_secs) => elapsed_secs / planned_secs,
            None => live[main].statements as f64 / self.outlook.statements.max(1) as f64,
        };
        let tick = Tick {
            elapsed_secs,
            done: done.min(1.0),
            interval_secs: (now_ns - self.last_tick_ns) as f64 / 1e9,
            totals: Kind::ALL.map(|kind| live[kind as usize].amount),
            interval: Kind::ALL.map(|kind| live[kind as usize].amount - self.last[kind as usize].amount),
            worst_us,
            p99_us: live[main].p99_ns_since(&self.last[main]).map(|ns| ns / 1_000),
            stalls: self.stalls,
        };
        self.stage.watcher.tick(&self.outlook.name, &tick);
        self.levels.extend(self.stage.target.levels().map(|levels| LevelsAt { secs: elapsed_secs, ..levels }));
        self.ticks += 1;
        if self.ticks.is_multiple_of(self.costs_every) {
            self.take_costs(elapsed_secs);
        }
        if self.outlook.statements > 0 && self.outlook.main == Kind::Insert {
            self.sample(live[main].amount);
        }
        self.last = live;
        self.last_tick_ns = now_ns;
    }

    fn sample(&mut self, rows: u64) {
        let (at_ns, process) = (self.stage.clock.now_ns(), Process::of(self.stage.engine));
        self.samples.push((Snapshot { at_ns, process, ..Snapshot::default() }, rows));
    }

    pub(crate) fn finish(self, totals: &mut Totals, end: &Snapshot) {
        totals.kernel = end.since(&self.begin);
        let rows = self.live()[Kind::Insert as usize].amount;
        totals.last_quarter = LastQuarter::of(&self.samples, rows, self.begin.at_ns, end);
        totals.rss_bytes = self.rss_bytes;
        totals.levels = self.levels;
        totals.costs = self.costs;
        totals.cut_short = self.cut_short;
    }
}
