//! Folded locks under the deterministic simulator (rule B1): whatever is folded when, two transactions never have a key in
//! modes that conflict, every wait ends, and a deadlock that is reported ends one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{IndexId, TxnId};
use trefoil_txn::{KeyNames, LockOutcome, LockOwner, LockRequest, Locks, Mode, SharedWriteSet};
use vfs::random::Rng;
use vfs::sim::{Config, Handle, Simulation};
use vfs::sync::Mutex;
use vfs::thread::spawn;

const SEEDS: u64 = 600;
const INDEX: IndexId = IndexId(1);
const KEYS: u64 = 24;

/// Who has what, by the word of those who got it. An X hides what the same transaction had before.
#[derive(Default)]
struct Held(Mutex<BTreeMap<u64, BTreeMap<u64, Mode>>>);

impl Held {
    fn got(&self, key: u64, txn: u64, mode: Mode) {
        let mut all = self.0.lock();
        let holders = all.entry(key).or_default();
        let held = holders.get(&txn).map_or(mode, |held| if *held == mode { mode } else { Mode::Exclusive });
        holders.insert(txn, held);
        let conflict = holders.len() > 1 && holders.values().any(|held| *held != mode || mode == Mode::Exclusive);
        assert!(!conflict, "key {key}: {holders:?}");
    }

    fn ended(&self, txn: u64) {
        self.0.lock().values_mut().for_each(|holders| holders.retain(|other, _| *other != txn));
    }
}

/// Locks a key as `Transaction::lock_row` does. False after a deadlock.
fn lock(locks: &Locks, owner: &mut LockOwner, writes: &SharedWriteSet, names: KeyNames, key: u64, mode: Mode) -> bool {
    let bytes = key.to_be_bytes();
    let weight = writes.position().0 as usize;
    let request = LockRequest { index: INDEX, key: &bytes, mode, timeout: None, weight };
    loop {
        let (fresh, raised) = match locks.lock(owner, &request) {
            LockOutcome::Granted { fresh, raised, .. } => (fresh, raised),
            LockOutcome::Deadlock { .. } => return false,
            other => panic!("{other:?}"),
        };
        if !fresh && raised.is_none() {
            return true;
        }
        let other = locks.folded_by(owner, INDEX, &bytes, mode, names).expect("all is in memory");
        let own = names == KeyNames::Whole
            && owner.is_folded()
            && writes.wrote(INDEX, &bytes, false).expect("all is in memory");
        let Some(other) = other.filter(|_| !own) else { return true };
        if fresh {
            locks.release_one(owner, INDEX, &bytes);
        } else {
            locks.lower_one(owner, INDEX, &bytes, raised.expect("it is fresh or raised"));
        }
        match locks.wait_for_end(owner, other, (INDEX, &bytes), None, weight) {
            LockOutcome::Granted { .. } => {}
            LockOutcome::Deadlock { .. } => return false,
            other => panic!("{other:?}"),
        }
    }
}

/// Guards: `Locks::keep_before_areas`, and that `Fold::has_in` asks for spans behind the write set.
#[test]
fn what_is_taken_back_beside_an_area_is_waited_for() {
    let (locks, writes) = (Locks::new(), Arc::new(SharedWriteSet::new()));
    let (mut large, mut area) = (LockOwner::new(TxnId(1)), LockOwner::new(TxnId(2)));
    let before = writes.position();
    for key in 0..KEYS {
        assert!(lock(&locks, &mut large, &writes, KeyNames::Whole, key, Mode::Exclusive));
        writes.write(|set| set.put(INDEX, &key.to_be_bytes(), b"")).expect("put");
    }
    locks.fold(&mut large, &writes, |_| KeyNames::Whole);
    let (low, high) = (3u64.to_be_bytes(), 5u64.to_be_bytes());
    let keys = (&low[..], Some(&high[..]));
    let nobodys = Arc::new(SharedWriteSet::new());
    assert!(locks.lock_area(&mut area, &nobodys, INDEX, keys).is_ok());
    assert!(locks.others_in(&area, INDEX, keys).0.is_empty(), "the table has none of them");
    // As a transaction does that goes back to a savepoint.
    for (index, key) in writes.keys_since(before) {
        let request = LockRequest { index, key: &key, mode: Mode::Exclusive, timeout: None, weight: usize::MAX };
        assert!(matches!(locks.lock(&mut large, &request), LockOutcome::Granted { fresh: true, .. }));
        locks.keep_before_areas(&large, index, &key);
    }
    writes.rollback_to(before);
    assert_eq!(locks.folded_in(&area, INDEX, keys).expect("all is in memory"), Some(TxnId(1)));
    [&mut large, &mut area].into_iter().for_each(|owner| locks.release_all(owner, None));
}

fn client(locks: &Locks, held: &Held, names: KeyNames, first: u64, rng: &mut Rng) -> (u64, u64) {
    let adds = usize::from(names == KeyNames::Counters);
    let (mut granted, mut deadlocks) = (0, 0);
    for txn in first..first + 4 {
        let (mut owner, writes) = (LockOwner::new(TxnId(txn)), Arc::new(SharedWriteSet::new()));
        let folds = rng.chance(0.4);
        for _ in 0..2 + rng.below(8) {
            let (key, mode) = (rng.below(KEYS), [Mode::Shared, Mode::Exclusive, Mode::Increment][rng.index(2 + adds)]);
            if !lock(locks, &mut owner, &writes, names, key, mode) {
                deadlocks += 1;
                break;
            }
            granted += 1;
            held.got(key, txn, mode);
            if mode != Mode::Shared && rng.chance(0.7) {
                writes.write(|set| set.put(INDEX, &key.to_be_bytes(), b"")).expect("put");
            }
            if folds && rng.chance(0.4) {
                locks.fold(&mut owner, &writes, |_| names);
            }
        }
        held.ended(txn);
        locks.release_all(&mut owner, None);
    }
    (granted, deadlocks)
}

fn history(sim: &Handle) -> (u64, u64) {
    let (locks, held) = (Arc::new(Locks::new()), Arc::new(Held::default()));
    let mut rng = sim.rng();
    let names = if rng.chance(0.5) { KeyNames::Counters } else { KeyNames::Whole };
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (locks, held, mut rng) = (locks.clone(), held.clone(), rng.fork());
            spawn("client", move || client(&locks, &held, names, 10 * n + 1, &mut rng)).expect("a thread starts")
        })
        .collect();
    let sums = threads.into_iter().map(|thread| thread.join().expect("a panic ends the simulation"));
    let sum = sums.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    vfs::thread::sleep(Duration::from_millis(1));
    assert_eq!(locks.stats().waiting, 0);
    sum
}

#[test]
fn b1_nobody_gets_what_another_has_folded() {
    let mut totals = (0, 0);
    for seed in 0..SEEDS {
        let config = Config { spurious_wakeup: 0.05, cores: 1 + seed as usize % 2, ..Config::default() };
        let config = if seed.is_multiple_of(2) { config.bias("locks.", 0.6) } else { config };
        let (granted, deadlocks) = Simulation::new(seed, config).run(history).value;
        totals = (totals.0 + granted, totals.1 + deadlocks);
    }
    assert!(totals.0 > 30 * SEEDS && totals.1 > SEEDS / 4, "grants and deadlocks: {totals:?}");
}
