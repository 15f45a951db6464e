//! Random lock histories on real threads against a naive table: holders are compatible at every moment, and every
//! wait ends (a lost wake-up or an unresolved deadlock would hang the test).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use base::{CommitTs, IndexId, TxnId};
use trefoil_txn::{LockOutcome, LockOwner, LockRequest, Locks, Mode};

const KEYS: usize = 6;

/// Per key: number of shared holders, or -1 for an exclusive one.
type Naive = [AtomicI64; KEYS];

fn enter(naive: &Naive, key: usize, held: Option<Mode>, mode: Mode) {
    let after = match (held, mode) {
        (None, Mode::Shared) => naive[key].fetch_add(1, Ordering::SeqCst) + 1,
        (None, Mode::Exclusive) => naive[key].fetch_sub(1, Ordering::SeqCst) - 1,
        (Some(_), _) => naive[key].fetch_sub(2, Ordering::SeqCst) - 2,
    };
    let ok = if mode == Mode::Shared { after >= 1 } else { after == -1 };
    assert!(ok, "key {key}: {after} after {held:?} to {mode:?}");
}

fn leave(naive: &Naive, held: &mut [Option<Mode>; KEYS]) {
    for (key, mode) in held.iter_mut().enumerate() {
        match mode.take() {
            Some(Mode::Shared) => naive[key].fetch_sub(1, Ordering::SeqCst),
            Some(Mode::Exclusive) => naive[key].fetch_add(1, Ordering::SeqCst),
            None => 0,
        };
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
        let mode = if dice.roll(3) == 0 { Mode::Shared } else { Mode::Exclusive };
        let timeout = [None, None, None, Some(Duration::ZERO), Some(Duration::from_micros(300))][dice.roll(5) as usize];
        let request = LockRequest { index: IndexId(1), key: &[key as u8], mode, timeout, weight: step as usize };
        match locks.lock(&mut owner, &request) {
            LockOutcome::Granted { seen, fresh, .. } => {
                assert_eq!(fresh, held[key].is_none());
                if held[key].is_none_or(|held| held < mode) {
                    enter(naive, key, held[key], mode);
                    held[key] = Some(mode);
                }
                assert!(seen.0 >= newest[key].load(Ordering::SeqCst), "A17");
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
    for key in (0..KEYS).filter(|key| held[*key] == Some(Mode::Exclusive)) {
        newest[key].store(txn, Ordering::SeqCst);
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
