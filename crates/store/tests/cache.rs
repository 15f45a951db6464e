//! Eviction, write-back and grants, with made-up pages.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{self, Scratch, noise, options};
use crate::faulty::{Faults, FaultyVfs};
use base::{CommitTs, Fault, GcView, Lsn, Poison, Result};
use trefoil_store::{
    Block, Budget, Cache, CacheOptions, Charge, Class, Evict, Funds, LogGate, Page, PageWrite, Space, WriteEnv,
};
use vfs::sync::Mutex;

const PAGE: u64 = 1024;

#[derive(Default)]
struct State {
    charge: Option<Charge>,
    dirty: bool,
    pinned: bool,
    writing: bool,
    block: Option<Arc<Block>>,
    failed: Option<Fault>,
}

struct FakePage {
    id: u64,
    cache: Arc<Cache>,
    referenced: AtomicBool,
    log_need: AtomicU64,
    tried: AtomicU64,
    state: Mutex<State>,
}

impl FakePage {
    fn load(cache: &Arc<Cache>, id: u64, charge: Charge) -> Arc<Self> {
        let page = Self::new(cache, id, charge);
        let weak: std::sync::Weak<FakePage> = Arc::downgrade(&page);
        cache.insert(weak, PAGE);
        page
    }

    fn new(cache: &Arc<Cache>, id: u64, charge: Charge) -> Arc<Self> {
        Arc::new(Self {
            id,
            cache: cache.clone(),
            referenced: AtomicBool::new(false),
            log_need: AtomicU64::new(0),
            tried: AtomicU64::new(0),
            state: Mutex::new(State { charge: Some(charge), ..State::default() }),
        })
    }

    fn dirty(self: Arc<Self>, log_need: u64) -> Arc<Self> {
        self.state.lock().dirty = true;
        self.log_need.store(log_need, Ordering::SeqCst);
        self.cache.note_dirty(PAGE);
        self
    }

    fn is_resident(&self) -> bool {
        self.state.lock().charge.is_some()
    }

    fn is_written(&self) -> bool {
        self.state.lock().block.is_some()
    }
}

impl Page for FakePage {
    fn take_referenced(&self) -> bool {
        self.referenced.swap(false, Ordering::SeqCst)
    }

    fn try_evict(&self) -> Evict {
        self.tried.fetch_add(1, Ordering::SeqCst);
        let Some(mut state) = self.state.try_lock() else { return Evict::Busy };
        match () {
            () if state.charge.is_none() => Evict::Gone,
            () if state.pinned || state.writing => Evict::Busy,
            () if state.dirty => Evict::Dirty,
            () => {
                state.charge = None;
                Evict::Evicted
            }
        }
    }

    fn begin_write(self: Arc<Self>, _env: &WriteEnv) -> Result<Option<PageWrite>> {
        let mut state = self.state.lock();
        if !state.dirty || state.writing || state.charge.is_none() {
            return Ok(None);
        }
        state.writing = true;
        drop(state);
        let page = self.clone();
        let done = move |result: Result<Vec<Arc<Block>>>| {
            let mut state = page.state.lock();
            state.writing = false;
            match result {
                Ok(mut blocks) => {
                    assert_eq!(blocks.len(), 2, "the blocks of this page, and no other's");
                    state.block = blocks.pop();
                    state.dirty = false;
                    page.cache.note_clean(PAGE);
                }
                Err(fault) => state.failed = Some(fault),
            }
        };
        let log_need = Lsn(self.log_need.load(Ordering::SeqCst));
        Ok(Some(PageWrite {
            blocks: vec![noise(self.id * 2, 300), noise(self.id * 2 + 1, 300)],
            log_need,
            done: Box::new(done),
        }))
    }

    fn log_need_hint(&self) -> Lsn {
        Lsn(self.log_need.load(Ordering::SeqCst))
    }
}

#[derive(Default)]
struct Log {
    durable: AtomicU64,
    asked: AtomicU64,
    broken: AtomicBool,
    /// Writes to the data file seen while the log was not durable yet.
    faults: Option<Arc<Faults>>,
    writes_at_ask: AtomicU64,
}

impl LogGate for Log {
    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::SeqCst))
    }

    fn make_durable(&self, lsn: Lsn) -> Result<()> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(faults) = &self.faults {
            self.writes_at_ask.store(faults.writes.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        if self.broken.load(Ordering::SeqCst) {
            return Err(Fault::Unsupported("a broken log".to_owned()));
        }
        self.durable.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }
}

fn env() -> WriteEnv {
    WriteEnv { view: GcView::new(CommitTs(0), Vec::new()), applied: Lsn(0), durable: Lsn(0) }
}

struct Bench {
    _dir: Scratch,
    cache: Arc<Cache>,
    space: Space,
    log: Log,
    faults: Arc<Faults>,
}

/// A budget of `pages` pages, 4 of which are kept ready.
fn bench(name: &str, pages: u64) -> Bench {
    let dir = Scratch::new(name);
    let vfs = FaultyVfs::new(1 << 40);
    let space = Space::open(Arc::new(vfs.clone()), dir.path(), options(), None, Poison::new()).unwrap();
    let cache = Arc::new(Cache::new(Budget::new(pages * PAGE), cache_options()));
    let log = Log { faults: Some(vfs.0.clone()), ..Log::default() };
    Bench { _dir: dir, cache, space, log, faults: vfs.0 }
}

fn cache_options() -> CacheOptions {
    CacheOptions {
        page_bytes: PAGE,
        ready_pages: 4,
        grant_timeout: Duration::from_millis(200),
        ..CacheOptions::default()
    }
}

impl Bench {
    fn load(&self, id: u64) -> Arc<FakePage> {
        let charge = self.cache.grant(PAGE).unwrap().take(PAGE);
        FakePage::load(&self.cache, id, charge)
    }

    fn step(&self) -> Result<trefoil_store::StepReport> {
        self.cache.step(&env(), &self.log, &self.space)
    }
}

fn resident(pages: &[Arc<FakePage>]) -> Vec<u64> {
    pages.iter().filter(|p| p.is_resident()).map(|p| p.id).collect()
}

#[test]
fn a_referenced_page_gets_a_second_chance() {
    let b = bench("second-chance", 64);
    let pages: Vec<_> = (0..64).map(|id| b.load(id)).collect();
    pages.iter().filter(|p| p.id % 2 == 0).for_each(|p| p.referenced.store(true, Ordering::SeqCst));
    let report = b.step().unwrap();
    assert_eq!((report.evicted_pages, report.evicted_bytes, report.more), (4, 4 * PAGE, false));
    assert!(resident(&pages).len() == 60 && pages.iter().all(|p| p.is_resident() || p.id % 2 == 1));
    // With nothing else left, pages that lost their bit go too.
    let grant = b.cache.budget().charge(Class::Frames, 60 * PAGE);
    while b.step().unwrap().evicted_pages > 0 {}
    assert!(resident(&pages).is_empty(), "{:?}", resident(&pages));
    drop(grant);
    assert_eq!((b.cache.stats().pages, b.cache.stats().evicted_pages), (0, 64));
}

/// A page that its owner lets go counts as others do that leave.
#[test]
fn what_is_let_go_counts_as_evicted() {
    let b = bench("let-go", 64);
    let page = b.load(1);
    b.cache.let_go(&*page);
    b.cache.let_go(&*page);
    assert_eq!((page.is_resident(), b.cache.stats().evicted_pages), (false, 1));
}

/// What nobody has read goes before what somebody has, however long ago. Guard: `insert_spare` is `insert`.
#[test]
fn a_spare_page_leaves_first() {
    let b = bench("spare", 2048);
    let read: Vec<_> = (0..1024).map(|id| b.load(id)).collect();
    let spare: Vec<_> = (1024..2048)
        .map(|id| {
            let page = FakePage::new(&b.cache, id, b.cache.grant(PAGE).unwrap().into_charge());
            let weak: std::sync::Weak<FakePage> = Arc::downgrade(&page);
            b.cache.insert_spare(weak, PAGE);
            page
        })
        .collect();
    spare.iter().step_by(2).for_each(|page| page.referenced.store(true, Ordering::SeqCst));
    let evicted = b.step().unwrap().evicted_pages as usize;
    assert!(evicted > 0, "memory is short");
    assert_eq!((resident(&read).len(), resident(&spare).len()), (1024, 1024 - evicted));
    assert!(spare.iter().step_by(2).all(|page| page.is_resident()), "these were read");
}

#[test]
fn nothing_is_done_while_memory_is_plenty() {
    let b = bench("plenty", 64);
    let pages: Vec<_> = (0..40).map(|id| b.load(id).dirty(0)).collect();
    assert!(b.cache.stats().dirty_bytes == 40 * PAGE && !pages.is_empty());
    drop(pages);
    let b = bench("plenty2", 64);
    let pages: Vec<_> = (0..20).map(|id| b.load(id).dirty(0)).collect();
    assert_eq!(b.step().unwrap(), trefoil_store::StepReport::default());
    assert_eq!(resident(&pages).len(), 20);
    assert!(!b.cache.wait_for_work(Duration::from_millis(1)));
}

#[test]
fn a6_the_log_is_durable_before_a_page_is_written() {
    let b = bench("a6", 32);
    let pages: Vec<_> = (0..32).map(|id| b.load(id).dirty(100 + id)).collect();
    let before = b.faults.writes.load(Ordering::SeqCst);
    while b.cache.budget().free() < 4 * PAGE {
        assert!(b.step().unwrap().advanced());
    }
    assert!(b.log.asked.load(Ordering::SeqCst) > 0 && b.faults.writes.load(Ordering::SeqCst) > before);
    assert_eq!(b.log.writes_at_ask.load(Ordering::SeqCst), before, "the log first");
    let durable = b.log.durable.load(Ordering::SeqCst);
    assert!(pages.iter().all(|p| !p.is_written() || p.log_need.load(Ordering::SeqCst) <= durable));
    assert!(pages.iter().all(|p| p.is_resident() || p.is_written()), "what was dirty is written before it goes");
}

#[test]
fn a6_without_the_log_no_page_is_written() {
    let b = bench("a6-broken", 32);
    let pages: Vec<_> = (0..32).map(|id| b.load(id).dirty(100)).collect();
    let before = b.faults.writes.load(Ordering::SeqCst);
    b.log.broken.store(true, Ordering::SeqCst);
    assert!(matches!(b.step(), Err(Fault::Unsupported(_))));
    assert_eq!(b.faults.writes.load(Ordering::SeqCst), before);
    assert_eq!(resident(&pages).len(), 32, "all stay, dirty");
    assert!(pages.iter().any(|p| p.state.lock().failed.is_some()), "those concerned were told");
    assert!(pages.iter().all(|p| p.state.lock().dirty && !p.state.lock().writing));
    b.log.broken.store(false, Ordering::SeqCst);
    assert!(b.step().unwrap().advanced(), "and can be written later: no place was lost");
    assert_eq!(b.cache.stats().pages, resident(&pages).len() as u64);
}

#[test]
fn pages_that_need_no_wait_for_the_log_go_first() {
    let b = bench("prefer-durable", 32);
    b.log.durable.store(50, Ordering::SeqCst);
    let pages: Vec<_> = (0..32).map(|id| b.load(id).dirty(if id % 4 == 3 { 100 } else { 50 })).collect();
    let report = b.step().unwrap();
    assert!(report.written_pages > 0);
    assert_eq!(b.log.asked.load(Ordering::SeqCst), 0);
    assert!(pages.iter().all(|p| p.id % 4 != 3 || !p.is_written()));
}

#[test]
fn a_failed_write_reaches_its_pages() {
    let b = bench("failed-write", 32);
    let pages: Vec<_> = (0..32).map(|id| b.load(id).dirty(0)).collect();
    b.faults.writes_fail.store(true, Ordering::SeqCst);
    assert!(b.step().is_err());
    assert!(pages.iter().any(|p| p.state.lock().failed.is_some()));
    assert!(pages.iter().all(|p| p.is_resident() && !p.state.lock().writing));
}

#[test]
fn too_much_dirty_is_written_although_memory_is_plenty() {
    let b = bench("write-ahead", 100);
    let clean: Vec<_> = (0..20).map(|id| b.load(id)).collect();
    let pages: Vec<_> = (20..70).map(|id| b.load(id).dirty(0)).collect();
    assert!(b.cache.wait_for_work(Duration::from_secs(5)));
    while b.cache.stats().dirty_bytes > 40 * PAGE {
        assert!(b.step().unwrap().written_pages > 0);
    }
    assert_eq!((resident(&clean).len(), resident(&pages).len()), (20, 50), "nothing is evicted for it");
    assert!(!b.cache.wait_for_work(Duration::from_millis(1)));
}

#[test]
fn pinned_and_forgotten_pages() {
    let b = bench("pinned", 32);
    let mut pages: Vec<_> = (0..32).map(|id| b.load(id)).collect();
    pages.iter().for_each(|p| p.state.lock().pinned = true);
    let report = b.step().unwrap();
    assert!(!report.advanced() && report.more && report.busy_pages > 0);
    let start = vfs::time::Instant::now();
    assert!(b.cache.wait_for_work(Duration::from_secs(5)), "there is something to do");
    let waited = start.elapsed();
    assert!(waited < Duration::from_secs(1) && waited > Duration::from_micros(500), "soon, but it does not spin");
    // Pages whose owner is gone, or that left memory by themselves, lose their place.
    pages.truncate(20);
    for page in &pages[..10] {
        page.state.lock().charge = None;
    }
    let held = b.cache.budget().charge(Class::Frames, 22 * PAGE);
    b.step().unwrap();
    assert_eq!(b.cache.stats().pages, 10);
    drop(held);
}

#[test]
fn d10_a_grant_waits_and_is_refused_in_the_end() {
    let b = bench("grant-refused", 32);
    let held = b.cache.grant(30 * PAGE).unwrap();
    let start = vfs::time::Instant::now();
    let refused = b.cache.grant(3 * PAGE);
    assert!(matches!(refused, Err(Fault::Limit { got, .. }) if got == 3 * PAGE), "{refused:?}");
    assert!(start.elapsed() >= Duration::from_millis(200));
    let stats = b.cache.stats();
    assert_eq!((stats.waits, stats.refused), (1, 1));
    assert!(stats.wait_worst_us >= 200_000 && stats.wait_sum_us >= stats.wait_worst_us);
    assert!(matches!(b.cache.grant(33 * PAGE), Err(Fault::Limit { limit, .. }) if limit == 32 * PAGE), "at once");
    drop(held);
    assert_eq!(b.cache.grant(32 * PAGE).unwrap().bytes(), 32 * PAGE);
}

#[test]
fn a_grant_is_taken_piece_by_piece() {
    let b = bench("grant-take", 32);
    let mut grant = b.cache.grant(10 * PAGE).unwrap();
    let first = grant.take(3 * PAGE);
    assert_eq!((first.bytes(), grant.bytes(), b.cache.budget().used(Class::Frames)), (3 * PAGE, 7 * PAGE, 10 * PAGE));
    assert!(grant.try_take(8 * PAGE).is_none());
    drop(grant);
    assert_eq!(b.cache.budget().total(), 3 * PAGE, "what was not taken is given back");
    assert_eq!(first.class(), Class::Frames);
}

#[test]
fn other_classes_do_not_empty_the_cache() {
    let b = bench("floor", 64);
    let pages: Vec<_> = (0..10).map(|id| b.load(id)).collect();
    let _write_sets = b.cache.budget().charge(Class::WriteSets, 54 * PAGE);
    // Nothing is free: pages go down to their floor of an eighth, and no further for what others want.
    while b.step().unwrap().evicted_pages > 0 {}
    assert_eq!(resident(&pages).len(), 8);
    assert!(b.cache.charge_waiting(Class::WriteSets, 4 * PAGE).is_err());
    assert_eq!(resident(&pages).len(), 8);
    // A page may replace a page.
    let cache = b.cache.clone();
    let waiter = vfs::thread::spawn("waiter", move || cache.grant(3 * PAGE).map(|g| g.bytes())).unwrap();
    while !waiter_done(&b.cache) {
        b.step().unwrap();
    }
    assert_eq!(waiter.join().unwrap().unwrap(), 3 * PAGE);
}

/// Guard: who would keep a page and does not wait is heard.
#[test]
fn pages_at_their_floor_take_turns() {
    let b = bench("turns", 64);
    let mut pages: Vec<_> = (0..8).map(|id| b.load(id)).collect();
    let _write_sets = b.cache.budget().charge(Class::WriteSets, 56 * PAGE);
    assert_eq!(b.step().unwrap().evicted_pages, 0, "at the floor, and nobody asks");
    for id in 8..40 {
        assert!(b.cache.try_grant_or_wish(PAGE).is_none(), "all is taken");
        assert_eq!(b.step().unwrap().evicted_pages, 1);
        let grant = b.cache.try_grant_or_wish(PAGE).expect("the place of another");
        pages.push(FakePage::load(&b.cache, id, grant.into_charge()));
        assert_eq!((resident(&pages).len(), b.step().unwrap().evicted_pages), (8, 0));
    }
    assert!(pages[..8].iter().all(|page| !page.is_resident()), "the clock went around");
}

/// Nothing can be evicted, and nobody writes. Guard: in each slice a waiter goes around twice, and no further (histories 106, 133, 205, 366, 372,
/// 458).
#[test]
fn who_waits_in_vain_goes_around_twice_a_slice() {
    let b = bench("in-vain", 32);
    let pages: Vec<_> = (0..8).map(|id| b.load(id).dirty(1)).collect();
    let _held = b.cache.grant(24 * PAGE).unwrap();
    assert!(b.cache.grant(PAGE).is_err(), "refused in the end");
    let slices = b.cache.stats().wait_worst_us / 20_000 + 1;
    for page in &pages {
        let tried = page.tried.load(Ordering::SeqCst);
        assert!((1..=2 * slices).contains(&tried), "page {} in {slices} slices: {tried} times", page.id);
    }
}

/// A log that takes its time, until it is let go.
struct SlowLog {
    log: Log,
    is_asked: AtomicBool,
    may_go_on: AtomicBool,
}

impl LogGate for SlowLog {
    fn durable(&self) -> Lsn {
        self.log.durable()
    }

    fn make_durable(&self, lsn: Lsn) -> Result<()> {
        self.is_asked.store(true, Ordering::SeqCst);
        while !self.may_go_on.load(Ordering::SeqCst) {
            vfs::thread::sleep(Duration::from_millis(1));
        }
        self.log.make_durable(lsn)
    }
}

/// The worker waits for the log with a batch of dirty pages while somebody wants memory, and clean pages stand behind that batch. Guard: the first
/// waiter evicts after a slice in vain.
#[test]
fn who_waits_for_memory_evicts_what_is_clean_while_the_worker_waits_for_the_log() {
    let mut b = bench("slow-log", 64);
    let options = CacheOptions { batch_pages: 4, grant_timeout: Duration::from_secs(20), ..cache_options() };
    b.cache = Arc::new(Cache::new(Budget::new(64 * PAGE), options));
    let dirty: Vec<_> = (0..30).map(|id| b.load(id).dirty(1)).collect();
    let clean: Vec<_> = (30..60).map(|id| b.load(id)).collect();
    let log = SlowLog { log: Log::default(), is_asked: AtomicBool::new(false), may_go_on: AtomicBool::new(false) };
    let (log, b) = (Arc::new(log), Arc::new(b));
    let worker = {
        let (log, b) = (log.clone(), b.clone());
        let body = move || {
            while !log.may_go_on.load(Ordering::SeqCst) {
                if b.cache.wait_for_work(Duration::from_millis(20)) {
                    b.cache.step(&env(), &*log, &b.space).unwrap();
                }
            }
        };
        vfs::thread::spawn("worker", body).unwrap()
    };
    let mut held = Vec::new();
    while !log.is_asked.load(Ordering::SeqCst) || held.len() < 20 {
        held.push(b.cache.grant(PAGE).expect("clean pages make room"));
        assert!(held.len() <= 30, "the worker meets a dirty page");
    }
    assert!(!log.may_go_on.load(Ordering::SeqCst) && dirty.iter().all(|page| page.is_resident()));
    assert!(clean.iter().filter(|page| !page.is_resident()).count() >= held.len() - 4);
    assert!(b.cache.stats().wait_worst_us < 5_000_000, "{:?}", b.cache.stats());
    log.may_go_on.store(true, Ordering::SeqCst);
    worker.join().unwrap();
}

fn waiter_done(cache: &Cache) -> bool {
    vfs::thread::sleep(Duration::from_millis(1));
    cache.stats().waits >= 2
}

#[test]
fn a_large_grant_is_not_passed_for_ever_by_small_ones() {
    use vfs::sim::{Config, explore};
    explore(0..50, &Config::default(), |_| {
        let cache = Arc::new(Cache::new(Budget::new(32 * PAGE), CacheOptions::default()));
        let small_done = Arc::new(AtomicU64::new(0));
        let crowd: Vec<_> = (0..4)
            .map(|_| {
                let (cache, done) = (cache.clone(), small_done.clone());
                let body = move || {
                    for _ in 0..100 {
                        let grant = cache.grant(8 * PAGE).unwrap();
                        vfs::thread::sleep(Duration::from_micros(50));
                        drop(grant);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                };
                vfs::thread::spawn("small", body).unwrap()
            })
            .collect();
        let grant = cache.grant(32 * PAGE).unwrap();
        assert!(small_done.load(Ordering::SeqCst) < 200, "the large one had its turn");
        drop(grant);
        crowd.into_iter().for_each(|t| t.join().unwrap());
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Two indexes of a commit find memory, a third one does not, a fourth is asked all the same. Guards: nothing is given from then on, all that
/// was asked for is waited for, and classes are kept apart.
#[test]
fn d10_funds_are_waited_for_in_one_piece() {
    let bench = bench("funds", 16);
    let (cache, budget) = (&bench.cache, bench.cache.budget());
    let used = |class| budget.used(class) / PAGE;
    let hog = budget.try_charge(Class::Work, 10 * PAGE).unwrap();
    let mut funds = Funds::default();
    let pages = funds.take(cache, Class::Frames, PAGE).expect("there is room");
    let messages = funds.take(cache, Class::Buffers, 2 * PAGE).expect("there is room");
    assert_eq!((used(Class::Frames), used(Class::Buffers)), (1, 2));
    assert!(funds.take(cache, Class::Buffers, 4 * PAGE).is_none(), "13 of 16 are taken");
    assert!(funds.take(cache, Class::Frames, PAGE).is_none(), "there is room, but the others lack more");
    drop((pages, messages, hog));
    funds.wait().unwrap();
    assert_eq!(budget.total() / PAGE, 8, "all four");
    let hog = budget.try_charge(Class::Frames, 8 * PAGE).unwrap();
    let asked = [(Class::Frames, 1), (Class::Buffers, 2), (Class::Buffers, 4), (Class::Frames, 1)];
    let taken = asked.map(|(class, pages)| funds.take(cache, class, pages * PAGE).expect("waited for"));
    assert_eq!((used(Class::Frames), used(Class::Buffers)), (8 + 2, 6));
    assert!(funds.take(cache, Class::Frames, PAGE).is_none(), "more than it waited for");
    drop((taken, hog));
    // Pages take what is left to them, also where they are waited for with buffers. Of this wait, what is left of the one before is no part.
    let hog = budget.try_charge(Class::WriteSets, 7 * PAGE).unwrap();
    funds.wait().unwrap();
    assert_eq!((used(Class::Frames), used(Class::Buffers)), (3, 6));
    drop((funds, hog));
    assert_eq!(budget.total(), 0);
    // Of what is asked for more than was waited for, the rest comes from the budget.
    let hog = budget.try_charge(Class::Frames, 16 * PAGE).unwrap();
    let mut funds = Funds::default();
    assert!(funds.take(cache, Class::Frames, 2 * PAGE).is_none());
    drop(hog);
    funds.wait().unwrap();
    assert_eq!(funds.take(cache, Class::Frames, 3 * PAGE).map(|taken| taken.bytes()), Some(3 * PAGE));
    assert_eq!(budget.total(), 0);
    assert!(!Funds::default().are_asked_too_much());
    for (pages, is_too_much, is_refused) in [(8, false, false), (9, true, false), (17, true, true)] {
        let hog = budget.try_charge(Class::Frames, 16 * PAGE).unwrap();
        let mut funds = Funds::default();
        assert!(funds.take(cache, Class::Frames, pages * PAGE).is_none());
        assert_eq!(funds.are_asked_too_much(), is_too_much, "{pages} pages");
        drop(hog);
        assert_eq!(funds.wait().is_err(), is_refused, "{pages} pages");
    }
}

/// Threads load, use and dirty pages under a small budget, a background thread makes room: everybody gets on, and
/// the limit holds at every moment.
#[test]
fn d10_the_limit_holds_while_threads_compete() {
    use vfs::sim::{Config, explore};
    explore(0..150, &Config::default(), |sim| {
        let dir = Scratch::new(&format!("compete-{}", sim.seed()));
        let options = CacheOptions { grant_timeout: Duration::from_secs(10), ..cache_options() };
        let cache = Arc::new(Cache::new(Budget::new(24 * PAGE), options));
        let space = Space::open(common::real(), dir.path(), common::options(), None, Poison::new()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let worker = {
            let (cache, stop) = (cache.clone(), stop.clone());
            let body = move || {
                let log = Log::default();
                while !stop.load(Ordering::SeqCst) {
                    cache.wait_for_work(Duration::from_millis(50));
                    cache.step(&env(), &log, &space).unwrap();
                }
            };
            vfs::thread::spawn("background", body).unwrap()
        };
        let users: Vec<_> = (0..4u64)
            .map(|n| {
                let (cache, mut rng) = (cache.clone(), sim.rng());
                let body = move || {
                    let mut pages = Vec::new();
                    for i in 0..20 {
                        let count = 1 + rng.below(6);
                        let mut grant = cache.grant(count * PAGE).unwrap();
                        assert!(cache.budget().peak() <= cache.budget().limit(), "the limit holds");
                        for _ in 0..rng.below(count + 1) {
                            let page = FakePage::load(&cache, n * 1000 + i, grant.take(PAGE));
                            pages.push(if rng.chance(0.5) { page.dirty(i) } else { page });
                        }
                        if rng.chance(0.3) && !pages.is_empty() {
                            pages[rng.index(pages.len())].referenced.store(true, Ordering::SeqCst);
                        }
                    }
                };
                vfs::thread::spawn("user", body).unwrap()
            })
            .collect();
        users.into_iter().for_each(|u| u.join().unwrap());
        stop.store(true, Ordering::SeqCst);
        cache.wake_worker();
        worker.join().unwrap();
        assert_eq!(cache.budget().total(), 0, "the pages went with their owners");
        let stats = cache.stats();
        assert!(stats.wait_worst_us < 1_000_000, "nobody starves: {stats:?}");
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}
