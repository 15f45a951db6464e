//! Locks, visibility and snapshots under the deterministic simulator. A lost wake-up or a deadlock that nobody
//! resolves ends a run with `Deadlock`, because then no thread can go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{CommitTs, Fault, IndexId, Lsn, Poison, TxnId};
use trefoil_txn::locks::{Canceller, Deadlock, WaitEdge};
use trefoil_txn::{LockOutcome, LockOwner, LockRequest, Locks, Mode, Snapshots, Visible};
use vfs::random::Rng;
use vfs::sim::{Config, Handle, Simulation, Strategy};
use vfs::sync::Mutex;
use vfs::thread::{JoinHandle, spawn};

const SEEDS: u64 = 400;

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    spawn(name, body).expect("thread")
}

fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().expect("a panic ends the simulation"));
}

/// With one core nobody spins before it parks.
fn config(seed: u64) -> Config {
    let config = Config { spurious_wakeup: 0.05, cores: 1 + seed as usize % 2, ..Config::default() };
    if seed.is_multiple_of(3) { config.bias("locks.", 0.7).bias("visible.", 0.7) } else { config }
}

fn explore(seeds: u64, config: impl Fn(u64) -> Config, body: impl Fn(&Handle) + Clone + Send + Sync + 'static) {
    for seed in 0..seeds {
        let body = body.clone();
        Simulation::new(seed, config(seed)).run(move |sim| body(sim));
    }
}

fn request(key: u64, mode: Mode, timeout: Option<Duration>) -> ([u8; 8], Mode, Option<Duration>) {
    (key.to_be_bytes(), mode, timeout)
}

/// Who holds and who waits for what, kept by the clients themselves.
#[derive(Default)]
struct Naive {
    held: BTreeMap<(u64, u64), Mode>,
    waiting: BTreeMap<u64, (u64, Mode)>,
    granted: u64,
    victims: Vec<TxnId>,
}

fn conflict(a: Mode, b: Mode) -> bool {
    a == Mode::Exclusive || a != b
}

fn both(a: Mode, b: Mode) -> Mode {
    if a == b { a } else { Mode::Exclusive }
}

impl Naive {
    fn wait(&mut self, txn: u64, key: u64, mode: Mode) {
        let mode = self.held.get(&(key, txn)).map_or(mode, |held| both(*held, mode));
        self.waiting.insert(txn, (key, mode));
    }

    fn grant(&mut self, txn: u64, key: u64, mode: Mode) {
        self.waiting.remove(&txn);
        let others = self.held.range((key, 0)..(key + 1, 0)).filter(|((_, owner), _)| *owner != txn);
        for ((_, owner), held) in others {
            assert!(!conflict(mode, *held), "{txn} and {owner} hold key {key}");
        }
        let held = self.held.entry((key, txn)).or_insert(mode);
        *held = both(mode, *held);
        self.granted += 1;
    }

    fn end(&mut self, txn: u64) {
        self.waiting.remove(&txn);
        self.held.retain(|(_, owner), _| *owner != txn);
    }

    /// Every member waits, for something that the next one holds or waits for. Where it no longer does, either another
    /// member was the victim of another cycle, found at the same time, and has rolled back; or the victim was in the
    /// way as an earlier waiter only, and others pass it from its verdict on.
    fn check_deadlock(&mut self, who: &Deadlock) {
        assert!(who.edges.len() >= 2 && who.edges.iter().any(|e| e.waiter == who.victim), "{who}");
        let next = who.edges.iter().cycle().skip(1);
        assert!(who.edges.iter().zip(next).all(|(edge, next)| edge.blocker == next.waiter), "{who}");
        let stands = who.edges.iter().all(|edge| self.stands(edge));
        let mut others = who.edges.iter().filter(|e| e.waiter != who.victim);
        let in_the_way = who.edges.iter().find(|e| e.blocker == who.victim).expect("a cycle");
        let only_before = !self.holds(in_the_way);
        assert!(stands || only_before || others.any(|e| self.victims.contains(&e.waiter)), "{who}");
        self.victims.push(who.victim);
    }

    fn stands(&self, edge: &WaitEdge) -> bool {
        let key = u64::from_be_bytes(edge.key[..].try_into().expect("eight bytes"));
        let waits = self.waiting.get(&edge.waiter.0) == Some(&(key, edge.mode));
        let before = self.waiting.get(&edge.blocker.0).is_some_and(|w| w.0 == key && conflict(w.1, edge.mode));
        waits && (self.holds(edge) || before)
    }

    fn holds(&self, edge: &WaitEdge) -> bool {
        let key = u64::from_be_bytes(edge.key[..].try_into().expect("eight bytes"));
        self.held.get(&(key, edge.blocker.0)).is_some_and(|held| conflict(*held, edge.mode))
    }
}

struct Client {
    locks: Arc<Locks>,
    naive: Arc<Mutex<Naive>>,
    rng: Rng,
    keys: u64,
    /// Waits may time out or be cancelled.
    impatient: bool,
    cancellers: Arc<Mutex<Vec<Canceller>>>,
}

impl Client {
    fn transaction(&mut self, txn: u64) {
        let mut owner = LockOwner::new(TxnId(txn));
        if self.impatient {
            self.cancellers.lock().push(owner.canceller());
        }
        for step in 0..1 + self.rng.below(4) {
            let key = self.rng.below(self.keys);
            let mode =
                [Mode::Shared, Mode::Shared, Mode::Increment, Mode::Exclusive, Mode::Exclusive][self.rng.index(5)];
            let timeout = if !self.impatient || self.rng.chance(0.5) {
                None
            } else {
                Some(Duration::from_micros([0, 3, 40][self.rng.index(3)]))
            };
            if !self.lock(&mut owner, request(key, mode, timeout), step) {
                break;
            }
            vfs::thread::point("test.statement");
            if self.rng.chance(0.2) {
                // A row that was looked at and not wanted.
                let key = self.rng.below(self.keys);
                self.naive.lock().held.remove(&(key, txn));
                self.locks.release_one(&mut owner, IndexId(1), &key.to_be_bytes());
            }
        }
        self.naive.lock().end(txn);
        self.locks.release_all(&mut owner, Some(CommitTs(txn * 16)));
    }

    fn lock(&self, owner: &mut LockOwner, ask: ([u8; 8], Mode, Option<Duration>), weight: u64) -> bool {
        let (bytes, mode, timeout) = ask;
        let (key, txn) = (u64::from_be_bytes(bytes), owner.txn().0);
        self.naive.lock().wait(txn, key, mode);
        let request = LockRequest { index: IndexId(1), key: &bytes, mode, timeout, weight: weight as usize };
        let outcome = self.locks.lock(owner, &request);
        let mut naive = self.naive.lock();
        match outcome {
            LockOutcome::Granted { fresh, .. } => {
                assert_eq!(fresh, !naive.held.contains_key(&(key, txn)));
                naive.grant(txn, key, mode);
                true
            }
            LockOutcome::Deadlock { who } => {
                assert_eq!(who.victim, TxnId(txn));
                if !self.impatient {
                    naive.check_deadlock(&who);
                }
                false
            }
            LockOutcome::Timeout => {
                assert!(timeout.is_some());
                naive.waiting.remove(&txn);
                true
            }
            LockOutcome::Cancelled => {
                assert!(self.impatient);
                naive.waiting.remove(&txn);
                owner.clear_cancelled();
                true
            }
        }
    }
}

/// Runs clients; returns grants and deadlocks.
fn lock_history(sim: &Handle, clients: u64, keys: u64, impatient: bool) -> (u64, u64) {
    let locks = Arc::new(Locks::new());
    let naive = Arc::new(Mutex::new(Naive::default()));
    let (next, cancellers) = (Arc::new(AtomicU64::new(1)), Arc::new(Mutex::new(Vec::new())));
    let mut threads = Vec::new();
    for _ in 0..clients {
        let (locks, naive, cancellers) = (locks.clone(), naive.clone(), cancellers.clone());
        let mut client = Client { locks, naive, rng: sim.rng(), keys, impatient, cancellers };
        let next = next.clone();
        threads.push(start("client", move || {
            (0..6).for_each(|_| client.transaction(next.fetch_add(1, Ordering::SeqCst)));
        }));
    }
    if impatient {
        let mut rng = sim.rng();
        threads.push(start("canceller", move || {
            for _ in 0..20 {
                vfs::thread::sleep(Duration::from_micros(20));
                let cancellers = cancellers.lock();
                if !cancellers.is_empty() {
                    cancellers[rng.index(cancellers.len())].cancel();
                }
            }
        }));
    }
    join(threads);
    let naive = naive.lock();
    assert!(naive.held.is_empty() && locks.stats().waiting == 0);
    (naive.granted, naive.victims.len() as u64)
}

#[test]
fn every_wait_ends_and_every_deadlock_is_one() {
    let mut totals = (0, 0);
    for seed in 0..SEEDS {
        let run = move |sim: &Handle| lock_history(sim, 3 + seed % 3, 2 + seed % 4, false);
        let (granted, deadlocks) = Simulation::new(seed, config(seed)).run(run).value;
        totals = (totals.0 + granted, totals.1 + deadlocks);
    }
    assert!(totals.0 > 20 * SEEDS && totals.1 > SEEDS / 4, "grants and deadlocks: {totals:?}");
}

#[test]
fn timeouts_and_cancellations_lose_nothing() {
    for seed in 0..SEEDS {
        Simulation::new(seed, config(seed)).run(|sim| lock_history(sim, 4, 3, true));
    }
}

#[test]
fn one_seed_is_one_history() {
    for seed in 0..20 {
        let run = |sim: &Handle| lock_history(sim, 4, 3, true);
        Simulation::new(seed, config(seed)).run_twice(run).unwrap_or_else(|failure| panic!("{failure}"));
        Simulation::new(seed, config(seed)).run_twice(readers_and_views).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// A cycle whose edges were true one after another but never at once:
///
/// ```text
/// a holds 3, b holds 1, c holds 2, e holds 4; c waits for 4, b waits for 2
/// a waits for 1: searches, a -> b -> c, sleeps
///                  e releases 4; c has it, gives 2 back early (b has it and waits no more), waits for 3
/// a goes on: c -> a. A cycle, but b does not wait; or it waits for 5, which f holds.
/// ```
#[test]
fn p2_a_deadlock_that_never_was() {
    for b_waits_again in [false, true] {
        Simulation::new(1, Config { cores: 1, ..Config::default() })
            .run(move |sim| a_deadlock_that_never_was(sim, b_waits_again));
    }
}

fn a_deadlock_that_never_was(sim: &Handle, b_waits_again: bool) {
    let locks = Arc::new(Locks::new());
    let ask =
        |key: &'static [u8]| LockRequest { index: IndexId(1), key, mode: Mode::Exclusive, timeout: None, weight: 0 };
    let lock = move |locks: &Locks, owner: &mut LockOwner, key| {
        let outcome = locks.lock(owner, &ask(key));
        assert!(matches!(outcome, LockOutcome::Granted { .. }), "{outcome:?}");
    };
    let owners = [(1, b"3"), (2, b"1"), (3, b"2"), (4, b"4"), (5, b"5")].map(|(txn, key)| {
        let mut owner = LockOwner::new(TxnId(txn));
        lock(&locks, &mut owner, key);
        owner
    });
    let [mut a, mut b, mut c, mut e, mut f] = owners;
    let settle = || vfs::thread::sleep(Duration::from_millis(1));
    let table = locks.clone();
    let third = start("c", move || {
        lock(&table, &mut c, b"4");
        table.release_one(&mut c, IndexId(1), b"2");
        lock(&table, &mut c, b"3");
        table.release_all(&mut c, None);
    });
    settle();
    let (table, b_goes_on) = (locks.clone(), Arc::new(Mutex::new(())));
    let (held, b_waits_here) = (b_goes_on.lock(), b_goes_on.clone());
    let second = start("b", move || {
        lock(&table, &mut b, b"2");
        if b_waits_again {
            lock(&table, &mut b, b"5");
        }
        drop(b_waits_here.lock());
        table.release_all(&mut b, None);
    });
    settle();
    let at_itself = sim.hold("locks.expanded");
    let table = locks.clone();
    let first = start("a", move || {
        lock(&table, &mut a, b"1");
        table.release_all(&mut a, None);
    });
    at_itself.wait_reached();
    let at_b = sim.hold("locks.expanded");
    at_itself.open();
    at_b.wait_reached();
    locks.release_all(&mut e, None);
    settle();
    assert_eq!(locks.stats().waiting, 2 + u64::from(b_waits_again), "a and c wait, b does not, or for another");
    at_b.open();
    settle();
    locks.release_all(&mut f, None);
    drop(held);
    join(vec![first, second, third]);
    assert_eq!(locks.stats().deadlocks, 0);
}

/// A waiter that was offered the lock and sleeps is passed for five milliseconds and not longer, whether the time
/// passes while the lock is held or while it is free, and however many wait behind it.
#[test]
fn c2_nobody_is_passed_for_long() {
    let cases = [(1, 500, 0, 9..=11), (1, 0, 500, 9..=11), (1, 0, 6000, 1..=1), (40, 500, 0, 9..=11)];
    for (waiters, while_held, while_free, times) in cases {
        Simulation::new(1, Config::default()).run(move |sim| {
            let passed = passed_until_it_is_their_turn(sim, waiters, while_held, while_free);
            assert!(times.contains(&passed), "passed {passed} times, not {times:?}");
        });
    }
}

/// Nor by elder ones that give the lock back each time and come again, though it is shared. Guards: `release_one` notes who
/// gave it back, `place_of` looks at that.
#[test]
fn c2_nobody_is_passed_for_long_by_elder_ones_that_come_again() {
    Simulation::new(1, Config::default()).run(|sim| {
        let locks = Arc::new(Locks::new());
        let ask = |mode, timeout| LockRequest { index: IndexId(1), key: b"hot", mode, timeout, weight: 0 };
        let lock = |owner: &mut LockOwner, timeout| locks.lock(owner, &ask(Mode::Shared, timeout));
        let mut elders = [1, 2].map(|txn| LockOwner::new(TxnId(txn)));
        assert!(matches!(lock(&mut elders[0], None), LockOutcome::Granted { .. }));
        let slow = sim.hold("locks.woken");
        let of_waiter = locks.clone();
        let waiter = start("waiter", move || {
            let mut owner = LockOwner::new(TxnId(3));
            assert!(matches!(of_waiter.lock(&mut owner, &ask(Mode::Exclusive, None)), LockOutcome::Granted { .. }));
            of_waiter.release_all(&mut owner, None);
        });
        vfs::thread::sleep(Duration::from_millis(1));
        let mut passed = 0;
        // One of them has it at each moment.
        while matches!(lock(&mut elders[1 - passed % 2], Some(Duration::ZERO)), LockOutcome::Granted { .. }) {
            vfs::thread::sleep(Duration::from_micros(500));
            locks.release_one(&mut elders[passed % 2], IndexId(1), b"hot");
            passed += 1;
            assert!(passed < 100, "passed for {passed} half milliseconds");
        }
        locks.release_one(&mut elders[passed % 2], IndexId(1), b"hot");
        slow.open();
        join(vec![waiter]);
        assert!((9..=13).contains(&passed), "passed {passed} times");
    });
}

/// Rule A17 on the third way to a lock: one who was passed for long has it handed over while it sleeps.
#[test]
fn a17_a_lock_handed_over_tells_the_commit() {
    Simulation::new(1, Config::default()).run(|sim| {
        let locks = Arc::new(Locks::new());
        let ask = |timeout| LockRequest { index: IndexId(1), key: b"hot", mode: Mode::Exclusive, timeout, weight: 0 };
        let mut runner = LockOwner::new(TxnId(1000)); // the youngest: it passes others
        assert!(matches!(locks.lock(&mut runner, &ask(None)), LockOutcome::Granted { .. }));
        let slow = sim.hold("locks.woken");
        let waiter = {
            let locks = locks.clone();
            start("waiter", move || {
                let mut owner = LockOwner::new(TxnId(2));
                let LockOutcome::Granted { seen, .. } = locks.lock(&mut owner, &ask(None)) else { panic!("granted") };
                assert_eq!(seen, CommitTs(1200), "the commit of the one who handed it over");
                locks.release_all(&mut owner, None);
            })
        };
        while locks.stats().waiting == 0 {
            vfs::thread::spin();
        }
        locks.release_all(&mut runner, None);
        slow.wait_reached();
        assert!(matches!(locks.lock(&mut runner, &ask(Some(Duration::ZERO))), LockOutcome::Granted { .. }));
        vfs::thread::sleep(Duration::from_millis(6));
        locks.release_all(&mut runner, Some(CommitTs(1200)));
        let taken = locks.lock(&mut runner, &ask(Some(Duration::ZERO)));
        assert!(matches!(taken, LockOutcome::Timeout), "the waiter has it: {taken:?}");
        slow.open();
        join(vec![waiter]);
    });
}

fn passed_until_it_is_their_turn(sim: &Handle, waiters: u64, while_held: u64, while_free: u64) -> u32 {
    let locks = Arc::new(Locks::new());
    let ask = |timeout| LockRequest { index: IndexId(1), key: b"hot", mode: Mode::Exclusive, timeout, weight: 0 };
    let mut runner = LockOwner::new(TxnId(1000)); // the youngest: it passes others
    assert!(matches!(locks.lock(&mut runner, &ask(None)), LockOutcome::Granted { .. }));
    let slow = sim.hold("locks.woken");
    let waiting = (0..waiters).map(|n| {
        let locks = locks.clone();
        start("waiter", move || {
            let mut owner = LockOwner::new(TxnId(2 + n));
            assert!(matches!(locks.lock(&mut owner, &ask(None)), LockOutcome::Granted { .. }));
            locks.release_all(&mut owner, None);
        })
    });
    let waiting = waiting.collect();
    while locks.stats().waiting < waiters {
        vfs::thread::spin();
    }
    locks.release_all(&mut runner, None);
    slow.wait_reached();
    let mut passed = 0;
    while matches!(locks.lock(&mut runner, &ask(Some(Duration::ZERO))), LockOutcome::Granted { .. }) {
        passed += 1;
        vfs::thread::sleep(Duration::from_micros(while_held));
        locks.release_all(&mut runner, None);
        vfs::thread::sleep(Duration::from_micros(while_free));
        assert!(passed < 100, "passed for {passed} half milliseconds");
    }
    slow.open();
    join(waiting);
    assert!(matches!(locks.lock(&mut runner, &ask(Some(Duration::ZERO))), LockOutcome::Granted { .. }));
    locks.release_all(&mut runner, None);
    passed
}

/// Guard: the spin comes behind the start of the clock.
#[test]
fn a_spin_is_part_of_the_wait() {
    Simulation::new(1, Config { cores: 2, ..Config::default() }).run(|_| {
        let locks = Locks::new();
        let timeout = Some(Duration::from_micros(3));
        let ask = LockRequest { index: IndexId(1), key: b"k", mode: Mode::Exclusive, timeout, weight: 0 };
        let (mut holder, mut owner) = (LockOwner::new(TxnId(1)), LockOwner::new(TxnId(2)));
        assert!(matches!(locks.lock(&mut holder, &ask), LockOutcome::Granted { .. }));
        let began = vfs::time::Instant::now();
        assert!(matches!(locks.lock(&mut owner, &ask), LockOutcome::Timeout));
        let (took, waited) = (began.elapsed(), owner.waited());
        assert!(took - waited < waited / 10, "took {took:?}, of which it waited {waited:?}");
        locks.release_all(&mut holder, None);
    });
}

/// A wait that only its cancellation can end.
#[test]
fn no_cancellation_is_lost() {
    let body = |_: &Handle| {
        let locks = Arc::new(Locks::new());
        let ask = LockRequest { index: IndexId(1), key: b"k", mode: Mode::Exclusive, timeout: None, weight: 0 };
        let (mut holder, mut owner) = (LockOwner::new(TxnId(1)), LockOwner::new(TxnId(2)));
        assert!(matches!(locks.lock(&mut holder, &ask), LockOutcome::Granted { .. }));
        let canceller = owner.canceller();
        let waiter = {
            let locks = locks.clone();
            start("waiter", move || assert!(matches!(locks.lock(&mut owner, &ask), LockOutcome::Cancelled)))
        };
        canceller.cancel();
        join(vec![waiter]);
        locks.release_all(&mut holder, None);
    };
    explore(SEEDS, config, body);
}

/// The lower of two reserved ranges belongs to a thread that sleeps before it marks it (the schedule of A12).
#[test]
fn a12_a_sleeping_committer_holds_visible() {
    Simulation::new(1, Config::default()).run(|sim| {
        let visible = Arc::new(Visible::new(Lsn(0), 4096));
        let sleeper = sim.hold("visible.mark");
        let committer = {
            let visible = visible.clone();
            start("committer", move || visible.mark_applied(Lsn(0), Lsn(112)))
        };
        sleeper.wait_reached();
        visible.mark_applied(Lsn(112), Lsn(208));
        assert_eq!(visible.visible(), CommitTs(0));
        sleeper.open();
        visible.wait_for(CommitTs(208)).expect("not poisoned");
        join(vec![committer]);
    });
}

/// Committers that wait for each other, and a fault in some of the runs.
#[test]
fn nobody_waits_for_ever_for_visible() {
    let body = |sim: &Handle| {
        let visible = Arc::new(Visible::new(Lsn(0), 1 << 14));
        let next = Arc::new(AtomicU64::new(0));
        let fails = sim.seed().is_multiple_of(4);
        let mut threads: Vec<_> = (0..4)
            .map(|_| {
                let (visible, next, mut rng) = (visible.clone(), next.clone(), sim.rng());
                start("committer", move || {
                    for _ in 0..6 {
                        let bytes = 16 * (1 + rng.below(4));
                        let at = next.fetch_add(bytes, Ordering::SeqCst);
                        if fails && rng.chance(0.1) {
                            // The log is broken: this range will never be marked.
                            return;
                        }
                        visible.mark_applied(Lsn(at), Lsn(at + bytes));
                        if visible.wait_for(CommitTs(at + bytes)).is_err() {
                            assert!(fails);
                            return;
                        }
                        assert!(visible.visible().0 >= at + bytes);
                    }
                })
            })
            .collect();
        if fails {
            let (visible, mut rng) = (visible.clone(), sim.rng());
            threads.push(start("log", move || {
                vfs::thread::sleep(Duration::from_micros(rng.below(20)));
                let poison = Poison::new();
                poison.set(Fault::Unsupported("broken".into()));
                visible.fail_all(&poison);
            }));
        }
        join(threads);
        assert!(fails || visible.visible().0 == next.load(Ordering::SeqCst));
    };
    explore(SEEDS, config, body);
}

/// A reader that has loaded `visible` and sleeps before it stores it in its slot (the schedule of A11).
#[test]
fn a11_a_sleeping_reader_is_not_passed() {
    Simulation::new(1, Config::default()).run(|sim| {
        let snapshots = Arc::new(Snapshots::new(Arc::new(Visible::new(Lsn(0), 4096))));
        let sleeper = sim.hold("snapshot.loaded");
        let reader = {
            let snapshots = snapshots.clone();
            start("reader", move || {
                let mine = snapshots.take();
                let view = snapshots.view();
                assert!(mine.ts() >= view.floor() || view.snapshots().contains(&mine.ts()), "{mine:?} {view:?}");
            })
        };
        sleeper.wait_reached();
        snapshots.visible().mark_applied(Lsn(0), Lsn(208));
        assert_eq!(snapshots.refresh_view().floor(), CommitTs(0));
        sleeper.open();
        join(vec![reader]);
        assert_eq!(snapshots.refresh_view().floor(), CommitTs(208));
    });
}

/// Readers that take, double and drop snapshots against commits and views: whatever is held is in every view made
/// meanwhile.
fn readers_and_views(sim: &Handle) {
    let snapshots = Arc::new(Snapshots::new(Arc::new(Visible::new(Lsn(0), 1 << 14))));
    let mut threads: Vec<_> = (0..3)
        .map(|_| {
            let (snapshots, mut rng) = (snapshots.clone(), sim.rng());
            start("reader", move || {
                let mut held = Vec::new();
                for _ in 0..25 {
                    vfs::thread::point("test.reader");
                    match rng.below(5) {
                        0 | 1 => held.push(snapshots.take()),
                        2 if !held.is_empty() => {
                            let from: &trefoil_txn::SnapshotSlot = &held[rng.index(held.len())];
                            held.push(snapshots.take_at(from.ts()).expect("a live snapshot can be doubled"));
                        }
                        _ if !held.is_empty() => drop(held.swap_remove(rng.index(held.len()))),
                        _ => {}
                    }
                    let view = snapshots.view();
                    for mine in &held {
                        let kept = mine.ts() >= view.floor() || view.snapshots().contains(&mine.ts());
                        assert!(kept, "{mine:?} {view:?}");
                    }
                }
            })
        })
        .collect();
    let mut rng = sim.rng();
    threads.push(start("commits and views", move || {
        for i in 0..30 {
            snapshots.visible().mark_applied(Lsn(i * 16), Lsn(i * 16 + 16));
            if rng.chance(0.6) {
                snapshots.refresh_view();
            }
        }
    }));
    join(threads);
}

#[test]
fn views_keep_what_readers_hold() {
    explore(SEEDS, config, readers_and_views);
}

/// With many clients on few keys and fair scheduling, no wait is out of proportion.
#[test]
fn waits_are_bounded_under_fair_scheduling() {
    let fair = |seed| {
        let strategy = Strategy::Random { switch: 0.3 };
        Config { strategy, step_time: Duration::from_micros(5), ..config(seed) }
    };
    let body = |_: &Handle| {
        let locks = Arc::new(Locks::new());
        let threads = (0..5u64).map(|t| {
            let locks = locks.clone();
            start("client", move || {
                for i in 0..15 {
                    let mut owner = LockOwner::new(TxnId(t * 1000 + i));
                    let ask =
                        LockRequest { index: IndexId(1), key: b"hot", mode: Mode::Exclusive, timeout: None, weight: 0 };
                    assert!(matches!(locks.lock(&mut owner, &ask), LockOutcome::Granted { .. }));
                    vfs::thread::point("test.work");
                    locks.release_all(&mut owner, None);
                }
            })
        });
        join(threads.collect());
        let worst = Duration::from_nanos(locks.stats().wait_nanos_max);
        assert!(worst < Duration::from_millis(100), "{worst:?}");
    };
    explore(40, fair, body);
}
