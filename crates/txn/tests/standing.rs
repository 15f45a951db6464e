//! Random schedules of a few locks, looked at each time all is quiet: nobody sleeps who could have the lock, nobody waits in a
//! ring, and who gets what is given back is who stands first by a naive table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::{CommitTs, IndexId, TxnId};
use trefoil_txn::locks::{Canceller, WaitNews};
use trefoil_txn::{LockOutcome, LockOwner, LockRequest, Locks, Mode};
use vfs::random::Rng;
use vfs::sim::{Config, Simulation};
use vfs::sync::Mutex;
use vfs::thread::spawn;

const SEEDS: u64 = 60;
const STEPS: u64 = 40;
const KEYS: u64 = 2;
const INDEX: IndexId = IndexId(1);

fn conflict(a: Mode, b: Mode) -> bool {
    a == Mode::Exclusive || a != b
}

/// What a transaction waits for.
#[derive(Debug, Clone, Copy)]
struct Wait {
    key: u64,
    mode: Mode,
    /// Its place among those who hold the key already, by arrival; none: it holds nothing, and stands by its age.
    upgrade: Option<u64>,
    /// With a time limit.
    is_short: bool,
}

impl Wait {
    fn place(&self, age: u64) -> (bool, u64) {
        (self.upgrade.is_none(), self.upgrade.unwrap_or(age))
    }
}

/// A transaction. Its number is its age.
struct Client {
    /// None while a thread waits with it.
    owner: Option<LockOwner>,
    canceller: Canceller,
    held: BTreeMap<u64, Mode>,
    waits: Option<Wait>,
    /// Keys that it gave back: if it comes again it stands behind others, for as long as any of those who waited then are there.
    gave_back: BTreeSet<u64>,
}

impl Client {
    fn new(age: u64) -> Self {
        let owner = LockOwner::new(TxnId(age));
        let (held, gave_back) = Default::default();
        Self { canceller: owner.canceller(), owner: Some(owner), held, waits: None, gave_back }
    }
}

type Answer = (u64, LockOwner, LockOutcome);

struct World {
    locks: Arc<Locks>,
    clients: BTreeMap<u64, Client>,
    answers: Arc<Mutex<Vec<Answer>>>,
    /// Those whose wait goes on behind their spin.
    parked: Arc<AtomicUsize>,
    arrivals: u64,
    rng: Rng,
    /// Grants, and what was given back while others waited for it.
    granted: u64,
    handed_on: u64,
}

impl World {
    fn new(rng: Rng) -> Self {
        let (locks, parked) = (Arc::new(Locks::new()), Arc::new(AtomicUsize::new(0)));
        let counted = parked.clone();
        locks.report_waits(Box::new(move |news| {
            match news {
                WaitNews::Begins => counted.fetch_add(1, Ordering::SeqCst),
                WaitNews::Ends => counted.fetch_sub(1, Ordering::SeqCst),
                WaitNews::Blocked(_) => 0,
            };
            None
        }));
        Self {
            locks,
            clients: BTreeMap::new(),
            answers: Arc::default(),
            parked,
            arrivals: 0,
            rng,
            granted: 0,
            handed_on: 0,
        }
    }

    fn begin(&mut self) -> u64 {
        let age = loop {
            // Mostly younger than those who are there.
            let age = 1 + 100 * self.arrivals + self.rng.below(800);
            if !self.clients.contains_key(&age) {
                break age;
            }
        };
        self.clients.insert(age, Client::new(age));
        age
    }

    fn ask(&mut self, age: u64) {
        let key = self.rng.below(KEYS);
        let mode = [Mode::Shared, Mode::Shared, Mode::Shared, Mode::Increment, Mode::Exclusive][self.rng.index(5)];
        let timeouts = [None, None, None, None, Some(Duration::ZERO), Some(Duration::from_millis(4))];
        let timeout = timeouts[self.rng.index(timeouts.len())];
        let client = self.clients.get_mut(&age).expect("it runs");
        if client.gave_back.contains(&key) {
            return;
        }
        let held = client.held.get(&key).copied();
        let wanted = held.map_or(mode, |held| if held == mode { mode } else { Mode::Exclusive });
        self.arrivals += 1;
        let upgrade = held.map(|_| self.arrivals);
        client.waits = Some(Wait { key, mode: wanted, upgrade, is_short: timeout.is_some() });
        let mut owner = client.owner.take().expect("it waits for nothing");
        let (locks, answers, weight) = (self.locks.clone(), self.answers.clone(), self.rng.index(3));
        let body = move || {
            let ask = LockRequest { index: INDEX, key: &key.to_be_bytes(), mode, timeout, weight };
            let outcome = locks.lock(&mut owner, &ask);
            answers.lock().push((age, owner, outcome));
        };
        spawn("client", body).expect("a thread starts");
    }

    fn end(&mut self, age: u64) {
        let mut client = self.clients.remove(&age).expect("it runs");
        self.locks.release_all(client.owner.as_mut().expect("it waits for nothing"), Some(CommitTs(age)));
    }

    /// Until nobody does anything, but for those whose time runs out.
    fn settle(&mut self) {
        loop {
            while self.parked.load(Ordering::SeqCst) + self.answers.lock().len() < self.waits().count() {
                // Somebody spins.
                vfs::thread::sleep(Duration::from_micros(2));
            }
            vfs::thread::sleep(Duration::from_millis(1));
            let answers = std::mem::take(&mut *self.answers.lock());
            if answers.is_empty() {
                return;
            }
            for (age, owner, outcome) in answers {
                let client = self.clients.get_mut(&age).expect("it waits");
                let wait = client.waits.take().expect("it waits");
                owner.clear_cancelled();
                client.owner = Some(owner);
                match outcome {
                    LockOutcome::Granted { .. } => {
                        client.held.insert(wait.key, wait.mode);
                        self.granted += 1;
                    }
                    LockOutcome::Deadlock { .. } => self.end(age),
                    LockOutcome::Timeout | LockOutcome::Cancelled => {}
                }
            }
        }
    }

    fn waits(&self) -> impl Iterator<Item = (u64, Wait)> {
        self.clients.iter().filter_map(|(age, client)| Some((*age, client.waits?)))
    }

    /// Who is in the way of a waiter: who holds the key, or stands before it.
    fn blockers(&self, age: u64, wait: Wait) -> BTreeSet<u64> {
        let holds = |client: &Client| client.held.get(&wait.key).is_some_and(|held| conflict(*held, wait.mode));
        let stands = |other: u64, client: &Client| {
            client
                .waits
                .is_some_and(|w| w.key == wait.key && conflict(w.mode, wait.mode) && w.place(other) < wait.place(age))
        };
        let others = self.clients.iter().filter(|(other, _)| **other != age);
        others.filter(|(other, client)| holds(client) || stands(**other, client)).map(|(other, _)| *other).collect()
    }

    fn check(&self) {
        let edges = self.locks.waits();
        for key in 0..KEYS {
            let held: Vec<Mode> = self.clients.values().filter_map(|client| client.held.get(&key).copied()).collect();
            assert!(held.len() < 2 || held.iter().all(|mode| !conflict(*mode, held[0])), "key {key}: {held:?}");
        }
        for (age, wait) in self.waits() {
            let blockers = self.blockers(age, wait);
            assert!(!blockers.is_empty(), "{age} sleeps, and could have {wait:?}");
            // The time of others may be over.
            if !wait.is_short {
                let of_it = edges.iter().filter(|edge| edge.waiter.0 == age);
                let shown: BTreeSet<u64> = of_it.map(|edge| edge.blocker.0).collect();
                assert!(
                    shown.is_subset(&blockers) && !shown.is_empty(),
                    "in the way of {age}: {shown:?}, {blockers:?}"
                );
            }
        }
        // Without rings: who waits only for those who go on goes on, and so forth.
        let mut left: BTreeMap<u64, Wait> = self.waits().collect();
        while let Some(goes_on) =
            left.iter().find(|(age, wait)| self.blockers(**age, **wait).iter().all(|b| !left.contains_key(b)))
        {
            let age = *goes_on.0;
            left.remove(&age);
        }
        assert!(left.is_empty(), "they wait for each other: {left:?}");
    }

    /// One key is given back, or a whole transaction ends, and nobody comes: those who stand first get it.
    fn give_back(&mut self, age: u64) {
        let one = self.rng.chance(0.3);
        let key = self.clients[&age].held.keys().next().copied();
        match key.filter(|_| one) {
            Some(key) => {
                let client = self.clients.get_mut(&age).expect("it runs");
                client.held.remove(&key);
                client.gave_back.insert(key);
                self.locks.release_one(client.owner.as_mut().expect("it runs"), INDEX, &key.to_be_bytes());
            }
            None => self.end(age),
        }
        let mut left: Vec<(u64, Wait)> = self.waits().collect();
        left.sort_by_key(|(age, wait)| wait.place(*age));
        let mut held: Vec<(u64, u64, Mode)> = Vec::new();
        for (age, client) in &self.clients {
            held.extend(client.held.iter().map(|(key, mode)| (*age, *key, *mode)));
        }
        let mut expect = Vec::new();
        for (at, (age, wait)) in left.iter().enumerate() {
            let stands = |mode: Mode, key: u64| key == wait.key && conflict(mode, wait.mode);
            let before = left[..at].iter().any(|(age, w)| !expect.contains(age) && stands(w.mode, w.key));
            let is_held = held.iter().any(|(other, key, mode)| other != age && stands(*mode, *key));
            if !before && !is_held {
                expect.push(*age);
                held.push((*age, wait.key, wait.mode));
            }
        }
        self.handed_on += u64::from(!expect.is_empty());
        let waiting: Vec<u64> = left.iter().map(|(age, _)| *age).collect();
        self.settle();
        let got = waiting.iter().filter(|age| self.clients.get(age).is_none_or(|client| client.waits.is_none()));
        let missing: Vec<_> = expect.iter().filter(|age| !got.clone().any(|other| other == *age)).collect();
        assert!(missing.is_empty(), "{missing:?} stand first of {left:?}");
    }

    fn step(&mut self) {
        let idle: Vec<u64> = self.clients.iter().filter(|(_, c)| c.owner.is_some()).map(|(age, _)| *age).collect();
        let waiting: Vec<u64> = self.waits().map(|(age, _)| age).collect();
        let picked = if idle.is_empty() { 0 } else { idle[self.rng.index(idle.len())] };
        match self.rng.below(8) {
            0 if !waiting.is_empty() => self.clients[&waiting[self.rng.index(waiting.len())]].canceller.cancel(),
            1 => vfs::thread::sleep(Duration::from_millis(6)),
            2 | 3 if !idle.is_empty() => {
                self.settle();
                if self.clients.get(&picked).is_some_and(|client| client.owner.is_some()) {
                    self.give_back(picked);
                }
            }
            // Others come while it is given back.
            4 if !idle.is_empty() => self.end(picked),
            _ if idle.is_empty() || self.rng.chance(0.4) && self.clients.len() < 9 => {
                let age = self.begin();
                self.ask(age);
            }
            _ => self.ask(picked),
        }
    }
}

/// Guards: `place_of` looks at the age, and not at that of an upgrade.
#[test]
fn c2_nobody_sleeps_who_could_have_the_lock() {
    let mut totals = (0, 0);
    for seed in 0..SEEDS {
        let config = Config { spurious_wakeup: 0.05, cores: 1 + seed as usize % 2, ..Config::default() };
        let config = if seed.is_multiple_of(3) { config.bias("locks.", 0.7) } else { config };
        let history = |sim: &vfs::sim::Handle| {
            let mut world = World::new(sim.rng());
            for _ in 0..STEPS {
                world.step();
                if world.rng.chance(0.6) {
                    world.settle();
                    world.check();
                }
            }
            world.settle();
            while let Some(age) = world.clients.iter().find(|(_, c)| c.owner.is_some()).map(|(age, _)| *age) {
                world.end(age);
                world.settle();
                world.check();
            }
            assert!(world.clients.is_empty() && world.locks.stats().waiting == 0);
            (world.granted, world.handed_on)
        };
        let (granted, handed_on) = Simulation::new(seed, config).run(history).value;
        totals = (totals.0 + granted, totals.1 + handed_on);
    }
    assert!(totals.0 > 10 * SEEDS && totals.1 > SEEDS, "grants, and locks handed on: {totals:?}");
}
