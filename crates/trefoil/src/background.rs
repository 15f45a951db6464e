//! The threads that keep the database in shape.
//!
//! | thread | does | lane |
//! |---|---|---|
//! | `trefoil-writeback`, several | frames ready before anyone needs one, dirty pages to disk | urgent |
//! | `trefoil-upkeep`, several | draining, purging, merging, cleaning in bounded steps; frees dropped indexes | merge |
//! | `trefoil-checkpoint` | a checkpoint when the log behind the last one nears its bound; free space back to the file system | merge |
//! | `trefoil-evict` | alone in a database that is only read: frames ready, nothing to disk | urgent |
//! | `trefoil-log` | syncs what `Buffered` commits left, within a second; makes log segments ahead of their use | urgent |
//!
//! [`Lanes`] says how many the several are. Workers of the urgent lane each take pages of their own. The steps of one index
//! come one after the other, so workers of the merge lane are busy with different indexes: each begins elsewhere in the
//! list, and passes by those that another one has in hand (`IndexEntry::in_hand`). Only the first of them looks after
//! indexes that were dropped: they are freed when nobody else holds their entries.
//!
//! One that finds nothing to do goes on with what others have begun ([`index::Index::assist`]): merges of log-structured merge trees, of which a
//! large one is cut in two for it. So does a thread of the urgent lane that has nothing to do, while commits are held back or none come: with two threads
//! in all it is the second one that merges.
//!
//! A fault in one of them poisons the database, except a full disk or full memory, which are tried again, and damage that is
//! read in an index, which concerns that index alone ([`crate::quarantine`]). None of them holds a
//! latch that another waits for while it waits, and each looks at `Signal` between bounded steps, so that `close` is prompt.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Fault, Lsn};
use index::{Assisted, LogGate, Upkeep};
use store::Class;
use vfs::sync::{Condvar, Mutex};
use vfs::thread::JoinHandle;
use vfs::time::Instant;

use crate::controller::FREE_SECONDS;
use crate::due::LOG_REST;
use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::options::Options;
use crate::pace::Paced;
use crate::quarantine;

/// How often the log is looked at, beside what is made for it.
const LOG_LOOK: Duration = Duration::from_millis(200);
/// What an index has less of in memory goes to disk last, in bytes.
const WORTH_RELIEVING_BYTES: u64 = 64 << 10;

/// Asks the threads to stop, or to look again now.
#[derive(Default)]
pub struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignalState {
    stop: bool,
    upkeep: bool,
    checkpoint: bool,
}

/// What a thread may be woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Purging or draining has work.
    Upkeep,
    /// The log is near its bound.
    Checkpoint,
    /// Nothing but the end.
    Stop,
}

impl Signal {
    /// Wakes the threads concerned.
    pub fn wake(&self, what: Wake) {
        let mut state = self.state.lock();
        match what {
            Wake::Upkeep => state.upkeep = true,
            Wake::Checkpoint => state.checkpoint = true,
            Wake::Stop => state.stop = true,
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Sleeps until woken for `what` or `timeout`. True if it is time to stop.
    fn wait(&self, what: Wake, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        let wanted = |s: &mut SignalState| match what {
            Wake::Upkeep => std::mem::take(&mut s.upkeep),
            Wake::Checkpoint => std::mem::take(&mut s.checkpoint),
            Wake::Stop => false,
        };
        if !state.stop && !wanted(&mut state) {
            self.changed.wait_for(&mut state, timeout);
            wanted(&mut state);
        }
        state.stop
    }

    /// True once it is time to stop.
    pub fn stopping(&self) -> bool {
        self.state.lock().stop
    }
}

/// Threads of the two lanes that [`Options::background_threads`] counts: together at least two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes {
    /// Of the urgent lane: write-back.
    pub urgent: usize,
    /// Of the merge lane: upkeep.
    pub merge: usize,
}

impl Lanes {
    /// The fewest and the most threads that may be asked for.
    pub const RANGE: std::ops::RangeInclusive<usize> = 2..=64;
    /// The most that are taken if nobody asks.
    const DEFAULT_MAX: usize = 8;

    /// One in four is urgent. Unless it is said how many: one for two cores, since commits and reads want the others.
    pub fn new(options: &Options) -> Self {
        let threads = match options.background_threads {
            0 => (vfs::thread::cores() / 2).clamp(*Self::RANGE.start(), Self::DEFAULT_MAX),
            asked => asked,
        };
        let urgent = (threads / 4).max(1);
        Self { urgent, merge: threads - urgent }
    }

    /// Threads that may have a batch of pages in hand: these, and the checkpoint's.
    pub fn writers(self) -> u64 {
        (self.urgent + self.merge + 1) as u64
    }
}

/// The running threads.
#[derive(Default)]
pub struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    /// Starts one.
    pub fn start(
        &self,
        name: &'static str,
        engine: &Arc<Engine>,
        body: impl FnOnce(&Engine) + Send + 'static,
    ) -> base::Result<()> {
        let engine = engine.clone();
        let handle =
            vfs::thread::spawn(name, move || body(&engine)).map_err(|e| Fault::io("start thread", name, &e))?;
        self.0.lock().push(handle);
        Ok(())
    }

    /// Waits for all; a panic in one of them goes on here.
    pub fn join(&self) {
        for handle in std::mem::take(&mut *self.0.lock()) {
            if let Err(panic) = handle.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Keeps a thread's loop going after a fault: a full disk is tried again, anything else poisons.
fn tolerate(engine: &Engine, result: base::Result<()>) {
    match result {
        Ok(()) | Err(Fault::Poisoned(_)) => {}
        Err(Fault::NoSpace { .. }) => {
            engine.counters.disk_full.fetch_add(1, Ordering::Relaxed);
            engine.signal.wait(Wake::Stop, Duration::from_millis(100));
        }
        // Memory was short for as long as a grant waits: nothing is damaged, and what holds it will let go.
        Err(Fault::Limit { .. }) => drop(engine.signal.wait(Wake::Stop, Duration::from_millis(100))),
        Err(fault) => {
            engine.poison.set(fault);
            engine.wake_the_waiting();
        }
    }
}

/// Body of `trefoil-writeback`.
pub fn writeback(engine: &Engine) {
    let mut eased = false;
    let mut help = Help::default();
    while !engine.signal.stopping() {
        if !engine.may_write() {
            // What is clean makes room first; whoever waits then still asks for more.
            let makes_room = engine.cache.evict_step().advanced();
            let hurries = engine.write_back_hurries();
            if !hurries || (makes_room && !eased) {
                eased = hurries;
                engine.signal.wait(Wake::Stop, HELD_UP);
                continue;
            }
        }
        eased = false;
        let worked = engine.write_back_step();
        let idle = matches!(worked, Ok(false));
        tolerate(engine, worked.map(|_| ()));
        let helped = idle && help.give(engine);
        if !helped && (idle || engine.poison.cause().is_some()) {
            engine.cache.wait_for_work(Duration::from_millis(20));
        }
    }
}

/// What a thread of the urgent lane does for merges while it has nothing to do.
#[derive(Default)]
struct Help {
    /// Not before this, and so long after it if there still is nothing.
    again: Option<(Instant, Duration)>,
}

impl Help {
    /// True if something was done. While no commits come, and there is nothing, it looks ever more seldom.
    fn give(&mut self, engine: &Engine) -> bool {
        let lag = engine.controller.lag(engine.opened.elapsed());
        // Commits come, and are not held back: they want the processor.
        if lag.is_some_and(|lag| lag < FREE_SECONDS) || !engine.may_assist() {
            return false;
        }
        let (now, waited) = (Instant::now(), self.again.filter(|_| lag.is_none()));
        if waited.is_some_and(|(again, _)| now < again) {
            return false;
        }
        match engine.assist() {
            Ok(true) => {
                self.again = None;
                return true;
            }
            // A full disk, or memory: those who keep the index up meet it again, and wait. Pages may use the reserve.
            Ok(false) | Err(Fault::NoSpace { .. } | Fault::Limit { .. }) => {}
            Err(fault) => tolerate(engine, Err(fault)),
        }
        let pause = waited.map_or(HELP_PAUSES.0, |(_, pause)| (2 * pause).min(HELP_PAUSES.1));
        self.again = Some((now + pause, pause));
        false
    }
}

/// Body of `trefoil-evict`, the only thread of a database that is only read: keeps frames ready, writes nothing.
pub fn evict(engine: &Engine) {
    while !engine.signal.stopping() {
        let report = engine.cache.evict_step();
        if !(report.more && report.advanced()) {
            engine.cache.wait_for_work(Duration::from_millis(20));
        }
    }
}

/// Body of `trefoil-upkeep` number `worker` of so many: backs off from 1 to 50 ms while there is nothing to do.
pub fn upkeep(engine: &Engine, worker: usize, workers: usize) {
    let mut pause = Duration::from_millis(1);
    loop {
        // Whatever holds up the rest: what expires is how space comes back.
        if worker == 0 && engine.poison.cause().is_none() {
            tolerate(engine, engine.keep_time_if_can().map(drop));
        }
        if engine.draining_waits() {
            if engine.signal.wait(Wake::Stop, HELD_UP) {
                return;
            }
            continue;
        }
        let worked = if engine.poison.cause().is_some() { Ok(false) } else { engine.upkeep_share(worker, workers) };
        let more = matches!(worked, Ok(true));
        tolerate(engine, worked.map(|_| ()));
        if more {
            pause = Duration::from_millis(1);
            if engine.signal.stopping() {
                return;
            }
            continue;
        }
        if engine.signal.wait(Wake::Upkeep, pause) {
            return;
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Body of `trefoil-checkpoint`.
pub fn checkpoint(engine: &Engine) {
    let (mut rest, mut last) = (LogRest::new(engine), Instant::now());
    let mut given = Instant::now();
    while !engine.signal.wait(Wake::Checkpoint, Duration::from_millis(100)) {
        // Commits that come slowly would take long to make one due, and all of the log from a faster time would be kept until then.
        let wanted = engine.log_rest();
        let usual = wanted.as_secs_f64() / last.elapsed().max(wanted).as_secs_f64() * engine.log_behind() as f64;
        let slow_bytes = usual as u64 / SLOW_SHARE;
        let rests = rest.look(engine, slow_bytes, wanted);
        if engine.poison.cause().is_some() {
            continue;
        }
        let is_asked = engine.deletes_want_checkpoint(last.elapsed());
        if is_asked
            || engine.checkpoint_due()
            || engine.space_is_due(last.elapsed())
            || (rests && engine.log_is_worth_trimming())
        {
            // What the log grows by while a checkpoint works lies behind it, and is not of a faster time.
            let (begun, end) = (Instant::now(), engine.wal.end().0);
            let result = engine.checkpoint_at_leisure();
            let goes_on_resting = rests && result.is_ok() && engine.wal.end().0 - end <= slow_bytes;
            tolerate(engine, result);
            // Whether it came to an end or not: on a full disk the next one is as far off.
            (rest, last) = (LogRest::new(engine), begun);
            if goes_on_resting {
                // What it freed would be kept for steady work, for as long again; now goes what goes in a moment.
                tolerate(engine, engine.give_space_back(false));
                given = Instant::now();
            }
        } else if engine.space_waits.load(Ordering::Relaxed) && given.elapsed() >= GIVE_BACK_REST {
            tolerate(engine, engine.give_space_back(true));
            given = Instant::now();
        } else if rests && given.elapsed() >= LOG_REST {
            // What is kept for steady work is not wanted while there is next to none.
            tolerate(engine, engine.give_space_back(false));
            given = Instant::now();
        }
    }
}

/// Body of `trefoil-log`.
pub fn log(engine: &Engine) {
    let (mut rest, mut looked) = (LogRest::new(engine), Instant::now());
    let mut is_making = false;
    loop {
        if !is_making {
            engine.wal.wait_until_wanted(LOG_LOOK.saturating_sub(looked.elapsed()));
        }
        if engine.signal.stopping() {
            return;
        }
        if looked.elapsed() >= LOG_LOOK {
            // A commit is counted after its record is appended: whatever is counted lies below the end that is
            // synced. Whether the log grew since the last look says nothing: the count may come a look later.
            if engine.counters.buffered.swap(0, Ordering::AcqRel) > 0 {
                tolerate(engine, engine.wal.sync_all());
            }
            // What was trimmed is kept to be used again only while it is: of one segment in that time a new one is soon made. A segment that is being
            // made would be begun anew, again and again.
            if rest.look(engine, engine.segment_bytes(), engine.log_rest()) && !is_making {
                tolerate(engine, engine.wal.give_back().map(|_| ()));
            }
            // From here: what comes next has as long, however long this took.
            looked = Instant::now();
        }
        // At once when it is wanted: whoever finds no room in the log makes a segment himself, and waits for the disk. Commits may use
        // them up as fast: what else is due comes in between.
        let mut segments = engine.wal.prepare();
        while matches!(segments, Ok(true)) && !engine.signal.stopping() && looked.elapsed() < LOG_LOOK {
            segments = engine.wal.prepare();
        }
        is_making = matches!(segments, Ok(true));
        tolerate(engine, segments.map(|_| ()));
    }
}

/// Whether commits come, and how fast.
struct LogRest {
    end: Lsn,
    since: Instant,
}

impl LogRest {
    fn new(engine: &Engine) -> Self {
        Self { end: engine.wal.end(), since: Instant::now() }
    }

    /// True if the log has grown by no more than so many bytes for so long.
    fn look(&mut self, engine: &Engine, allowed: u64, wanted: Duration) -> bool {
        let end = engine.wal.end();
        if end.0 - self.end.0 > allowed {
            *self = Self { end, since: Instant::now() };
        }
        self.since.elapsed() >= wanted
    }
}

/// An index that a worker has in hand.
struct InHand<'a>(&'a AtomicBool);

impl<'a> InHand<'a> {
    /// None if another worker has it.
    fn take(flag: &'a AtomicBool) -> Option<Self> {
        // Partner: the store of `drop`. The structure has a lock of its own; this only keeps workers from waiting for it.
        if flag.swap(true, Ordering::Acquire) { None } else { Some(Self(flag)) }
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Engine {
    /// One step of the urgent lane. True if something was done.
    pub fn write_back_step(&self) -> base::Result<bool> {
        let upkeep = self.upkeep();
        let env = store::WriteEnv { view: upkeep.view.clone(), applied: upkeep.applied, durable: upkeep.log.durable() };
        let report = self.cache.step(&env, self, &self.space)?;
        if !report.advanced() && self.cache.is_waited_for_in_vain() && self.relieve()? {
            self.cache.note_freed();
            return Ok(true);
        }
        Ok(report.more && report.advanced())
    }

    /// No page can make room: what holds memory beside pages is brought to disk. Upkeep does that, too, before it comes to this;
    /// but its step may be what waits, and during the replay of the log there is none. True if something was done.
    fn relieve(&self) -> base::Result<bool> {
        if self.poison.cause().is_some() {
            return Ok(false);
        }
        let mut entries = self.kept_up_indexes();
        // What dropped ones have comes back with them.
        entries.retain(|entry| entry.dropped_at().is_none());
        // Who has most goes first, and who is known to have little last: a small run costs every reader as much as a large one.
        entries.sort_by_cached_key(|entry| {
            let bytes = entry.index.relievable_bytes();
            let rank = match bytes {
                WORTH_RELIEVING_BYTES.. => 0,
                0 => 1,
                _ => 2,
            };
            (rank, Reverse(bytes))
        });
        for entry in entries {
            if quarantine::enduring(&entry, || entry.index.relieve(self))? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Everything that may leave memory does.
    pub fn shed_memory(&self) -> base::Result<()> {
        // As pages: for other classes the cache leaves pages a floor.
        let _pressure = self.budget.charge(Class::Frames, self.budget.limit());
        // Others make pages dirty meanwhile: it has to end.
        for _ in 0..SHEDDING_STEPS {
            if !self.write_back_step()? {
                break;
            }
        }
        Ok(())
    }

    /// One step of the merge lane over every index. True if there is more to do now.
    pub fn upkeep_step(&self) -> base::Result<bool> {
        // First: on a full disk the rest fails, and what was dropped, or has expired, is how space comes back.
        self.free_dropped()?;
        let mut more = self.keep_time_if_can()?;
        let entries = self.kept_up_indexes();
        self.seal_the_largest(&entries);
        for entry in entries {
            more |= self.maintain(&entry)?;
        }
        self.after_upkeep();
        Ok(more)
    }

    /// The same by worker number `worker` of so many, as far as no other one is about it.
    fn upkeep_share(&self, worker: usize, workers: usize) -> base::Result<bool> {
        let mut more = false;
        if worker == 0 {
            self.free_dropped()?;
        }
        let mut entries = self.kept_up_indexes();
        entries.retain(|entry| worker == 0 || entry.dropped_at().is_none());
        let first = entries.len() * worker / workers;
        entries.rotate_left(first);
        for entry in &entries {
            self.seal_the_largest(&entries);
            if let Some(_in_hand) = InHand::take(&entry.in_hand) {
                more |= self.maintain(entry)?;
                // Before others' merges go on.
                let mut steps = FLUSH_STEPS;
                while steps > 0 && self.flush_hurries(entry) && !self.signal.stopping() {
                    more |= self.maintain(entry)?;
                    steps -= 1;
                }
            }
        }
        if worker == 0 {
            self.after_upkeep();
        }
        // Nothing but what others have in hand.
        Ok(more || (workers > 1 && self.assist()?))
    }

    /// True if there is a background that may write.
    fn may_assist(&self) -> bool {
        self.options.background && !self.recovering.load(Ordering::Acquire) && self.may_write()
    }

    /// A piece of a merge that other threads have begun; if there is none, one index is asked to divide what it has in hand. True if something was done.
    fn assist(&self) -> base::Result<bool> {
        let mut entries = self.upkept_indexes();
        entries.retain(|entry| entry.is_kept_up() && entry.dropped_at().is_none());
        let paced = Paced::new(self);
        let upkeep = Upkeep { log: &paced, ..self.upkeep() };
        for may_split in [false, true] {
            for entry in &entries {
                match quarantine::enduring(entry, || entry.index.assist(&upkeep, may_split))? {
                    Assisted::Nothing => {}
                    Assisted::Asked => return Ok(false),
                    Assisted::Step => {
                        paced.give_way();
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    fn kept_up_indexes(&self) -> Vec<Arc<IndexEntry>> {
        let mut entries = self.upkept_indexes();
        entries.retain(|entry| entry.is_kept_up());
        self.space.expect_cleaners(entries.len());
        entries
    }

    /// A step for one index. True if there is more to do now.
    pub fn maintain(&self, entry: &IndexEntry) -> base::Result<bool> {
        let paced = Paced::new(self);
        let upkeep = Upkeep { log: &paced, ..self.upkeep() };
        vfs::thread::point("background.maintain");
        let progress = quarantine::enduring(entry, || entry.index.maintain(&upkeep))?;
        paced.give_way();
        if progress.entries > 0 {
            self.upkept.store(true, Ordering::Relaxed);
        }
        Ok(progress.more)
    }

    fn after_upkeep(&self) {
        if !self.recovering.load(Ordering::Acquire) {
            // What fails here is tried again at the next step; what poisons has done so.
            let _ = self.try_quarantine_noted();
        }
    }

    /// True while write-back is held up: draining would only add to what it has to write.
    fn draining_waits(&self) -> bool {
        let ahead = self.cache.dirty_bytes() > self.cache.dirty_limit();
        ahead
            && self.budget.used(Class::Runs) < self.budget.limit() / 16
            && !self.may_write()
            && !self.write_back_hurries()
    }

    /// After the poison has fallen, nobody may wait for a commit that will not come.
    pub fn wake_the_waiting(&self) {
        self.visible.fail_all(&self.poison);
    }
}

/// Steps in which memory is shed, at most.
const SHEDDING_STEPS: usize = 100;

/// An index whose flush hurries takes so many steps more than others.
const FLUSH_STEPS: usize = 8;

/// Write-back that is held up looks again after so long.
const HELD_UP: Duration = Duration::from_millis(5);

/// The file is held up for a tenth of the time in which much space goes back to the file system.
const GIVE_BACK_REST: Duration = Duration::from_millis(2250);

/// Few are those that make the log longer by at most one in so many bytes of what came in the same time since the last checkpoint: a log that
/// grows steadily is left to the checkpoints that are due.
const SLOW_SHARE: u64 = 4;

/// While no commits come, a thread of the urgent lane looks for merges after so long, at first and at most.
const HELP_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(320));
