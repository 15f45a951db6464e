//! Random lock histories on real threads against a naive table: holders are compatible at every moment, and every
//! wait ends (a lost wake-up or an unresolved deadlock would hang the test).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use base::{CommitTs, IndexId, TxnId};
use trefoil_txn::{LockOutcome, LockOwner, LockRequest, Locks, Mode};

const KEYS: usize = 6;

/// Per key: number of shared holders, or of those who add times [`ADDS`], or -1 for an exclusive one.
type Naive = [AtomicI64; KEYS];

const ADDS: i64 = 1000;

fn count(mode: Mode) -> i64 {
    match mode {
        Mode::Shared => 1,
        Mode::Increment => ADDS,
        Mode::Exclusive => -1,
    }
}

fn join(held: Option<Mode>, mode: Mode) -> Mode {
    if held.is_none_or(|held| held == mode) { mode } else { Mode::Exclusive }
}

fn enter(naive: &Naive, key: usize, held: Option<Mode>, mode: Mode) {
    let change = count(mode) - held.map_or(0, count);
    let after = naive[key].fetch_add(change, Ordering::SeqCst) + change;
    let ok = match mode {
        Mode::Shared => (1..ADDS).contains(&after),
        Mode::Increment => after >= ADDS && after % ADDS == 0,
        Mode::Exclusive => after == -1,
    };
    assert!(ok, "key {key}: {after} after {held:?} to {mode:?}");
}

fn leave(naive: &Naive, held: &mut [Option<Mode>; KEYS]) {
    for (key, mode) in held.iter_mut().enumerate() {
        naive[key].fetch_sub(mode.take().map_or(0, count), Ordering::SeqCst);
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn transaction(locks: &Locks, naive: &Naive, newest: &[AtomicU64; KEYS], txn: u64, dice: &mut Dice) {
    let mut owner = LockOwner::new(TxnId(txn));
    let mut held = [None; KEYS];
    for step in 0..1 + dice.roll(5) {
        let key = dice.roll(KEYS as u64) as usize;
        let mode = [Mode::Shared, Mode::Increment, Mode::Exclusive, Mode::Exclusive][dice.roll(4) as usize];
        let timeout = [None, None, None, Some(Duration::ZERO), Some(Duration::from_micros(300))][dice.roll(5) as usize];
        let request = LockRequest { index: IndexId(1), key: &[key as u8], mode, timeout, weight: step as usize };
        match locks.lock(&mut owner, &request) {
            LockOutcome::Granted { seen, fresh, .. } => {
                assert_eq!(fresh, held[key].is_none());
                let now = join(held[key], mode);
                if held[key] != Some(now) {
                    enter(naive, key, held[key], now);
                    held[key] = Some(now);
                }
                // Others may add, and commit, at the same time.
                let others_add = now == Mode::Increment;
                assert!(others_add || seen.0 >= newest[key].load(Ordering::SeqCst), "A17");
            }
            LockOutcome::Timeout if timeout.is_some() => {}
            LockOutcome::Deadlock { who } => {
                assert!(timeout != Some(Duration::ZERO) && who.victim == TxnId(txn) && who.edges.len() >= 2);
                let closed = who.edges.iter().zip(who.edges.iter().cycle().skip(1)).all(|(a, b)| a.blocker == b.waiter);
                assert!(closed, "{who}");
                break;
            }
            other => panic!("{other:?}"),
        }
        if dice.roll(4) == 0 {
            vfs::thread::yield_now();
        }
    }
    for key in (0..KEYS).filter(|key| matches!(held[*key], Some(Mode::Increment | Mode::Exclusive))) {
        newest[key].fetch_max(txn, Ordering::SeqCst);
    }
    leave(naive, &mut held);
    locks.release_all(&mut owner, Some(CommitTs(txn)));
}

#[test]
fn random_histories_on_real_threads() {
    let locks = Arc::new(Locks::new());
    let shared: Arc<(Naive, [AtomicU64; KEYS], AtomicU64)> = Arc::default();
    let threads: Vec<_> = (0..6u64)
        .map(|t| {
            let (locks, shared) = (locks.clone(), shared.clone());
            let body = move || {
                let mut dice = Dice(0x1234_5678_9abc + t * 7919);
                for _ in 0..2000 {
                    let txn = shared.2.fetch_add(1, Ordering::SeqCst) + 1;
                    transaction(&locks, &shared.0, &shared.1, txn, &mut dice);
                }
            };
            vfs::thread::spawn("client", body).expect("thread")
        })
        .collect();
    for t in threads {
        t.join().expect("no panic");
    }
    let stats = locks.stats();
    assert!(stats.waiting == 0 && stats.waits > 0 && stats.deadlocks > 0, "{stats:?}");
}
