//! Row locks by schedules: who gets what, and how each wait ends.

use std::sync::Arc;
use std::time::Duration;

use base::{CommitTs, IndexId, TxnId};
use trefoil_txn::locks::Deadlock;
use trefoil_txn::{LockOutcome, LockOwner, LockRequest, Locks, Mode};
use vfs::thread::JoinHandle;

const S: Mode = Mode::Shared;
const X: Mode = Mode::Exclusive;
const I: Mode = Mode::Increment;

/// A wait that nobody ends fails its test instead of hanging it.
const LONG: Duration = Duration::from_secs(20);

fn request(key: &str, mode: Mode) -> LockRequest<'_> {
    LockRequest { index: IndexId(1), key: key.as_bytes(), mode, timeout: Some(LONG), weight: 0 }
}

fn at_once(locks: &Locks, owner: &mut LockOwner, key: &str, mode: Mode) -> bool {
    let request = LockRequest { timeout: Some(Duration::ZERO), ..request(key, mode) };
    matches!(locks.lock(owner, &request), LockOutcome::Granted { .. })
}

fn owner(txn: u64) -> LockOwner {
    LockOwner::new(TxnId(txn))
}

/// Starts a request on a thread of its own and returns when it is in the queue. A victim rolls back there.
fn waits(
    locks: &Arc<Locks>,
    mut owner: LockOwner,
    key: &'static str,
    mode: Mode,
    weight: usize,
) -> JoinHandle<(LockOwner, LockOutcome)> {
    let before = locks.stats().waiting;
    let table = locks.clone();
    let thread = vfs::thread::spawn("waiter", move || {
        let outcome = table.lock(&mut owner, &LockRequest { weight, ..request(key, mode) });
        if matches!(outcome, LockOutcome::Deadlock { .. }) {
            table.release_all(&mut owner, None);
        }
        (owner, outcome)
    });
    until(|| locks.stats().waiting > before);
    thread.expect("thread")
}

fn until(done: impl Fn() -> bool) {
    while !done() {
        vfs::thread::sleep(Duration::from_micros(200));
    }
}

fn seen(outcome: &LockOutcome) -> CommitTs {
    match outcome {
        LockOutcome::Granted { seen, .. } => *seen,
        other => panic!("granted, not {other:?}"),
    }
}

fn deadlock(outcome: LockOutcome) -> Box<Deadlock> {
    match outcome {
        LockOutcome::Deadlock { who } => who,
        other => panic!("a deadlock, not {other:?}"),
    }
}

/// A21: those who add share a lock with each other and with nobody else. Guards: `Mode::conflicts`; `Mode::join`: who reads and adds
/// has it exclusively.
#[test]
fn a21_those_who_add_share_with_each_other_only() {
    let locks = Locks::new();
    let (mut a, mut b, mut c) = (owner(1), owner(2), owner(3));
    assert!(at_once(&locks, &mut a, "k", I) && at_once(&locks, &mut b, "k", I));
    assert!(!at_once(&locks, &mut c, "k", S) && !at_once(&locks, &mut c, "k", X));
    assert!(!at_once(&locks, &mut a, "k", S), "b adds, too");
    locks.release_all(&mut b, None);
    let raised = locks.lock(&mut a, &request("k", S));
    assert!(matches!(raised, LockOutcome::Granted { fresh: false, raised: Some(Mode::Increment), .. }));
    assert_eq!(locks.mode_of(&a, IndexId(1), b"k"), Some(X));
    assert!(!at_once(&locks, &mut c, "k", I));
    locks.lower_one(&a, IndexId(1), b"k", I);
    assert!(at_once(&locks, &mut c, "k", I));
    assert_eq!(locks.mode_of(&b, IndexId(1), b"k"), None);
    locks.release_all(&mut a, None);
    locks.release_all(&mut c, None);
}

/// A21: two who add and then want to read wait for each other, which is found. Guards: `Mode::conflicts` in `expand` and `blocks`.
#[test]
fn a21_two_who_add_and_read_are_a_deadlock() {
    let locks = Arc::new(Locks::new());
    let (mut a, mut b) = (owner(1), owner(2));
    assert!(at_once(&locks, &mut a, "k", I) && at_once(&locks, &mut b, "k", I));
    let first = waits(&locks, a, "k", X, 0);
    let second = locks.lock(&mut b, &LockRequest { weight: 1, ..request("k", S) });
    let (_, outcome) = first.join().expect("thread");
    let deadlock = deadlock(outcome);
    assert_eq!(deadlock.victim, TxnId(1));
    assert!(matches!(second, LockOutcome::Granted { raised: Some(Mode::Increment), .. }), "{second:?}");
    locks.release_all(&mut b, None);
}

#[test]
fn an_owner_has_its_lock_once() {
    let locks = Locks::new();
    let (mut a, mut b) = (owner(1), owner(2));
    let fresh = |outcome| matches!(outcome, LockOutcome::Granted { fresh: true, .. });
    assert!(fresh(locks.lock(&mut a, &request("k", S))));
    assert!(!fresh(locks.lock(&mut a, &request("k", S))));
    assert!(at_once(&locks, &mut b, "k", S));
    assert!(!at_once(&locks, &mut a, "k", X), "b holds it too");
    locks.release_all(&mut b, None);
    assert!(!fresh(locks.lock(&mut a, &request("k", X))), "an upgrade is not a fresh lock");
    assert!(!at_once(&locks, &mut b, "k", S));
    assert_eq!(a.len(), 1);
    locks.release_all(&mut a, None);
    assert!(at_once(&locks, &mut b, "k", X));
    locks.release_all(&mut b, None);
}

#[test]
fn keys_of_any_length_are_told_apart() {
    let locks = Locks::new();
    let mut a = owner(1);
    let long = "x".repeat(3000);
    for key in ["", "a", "aaaaaaaa", "aaaaaaaaa", &long[..22], &long[..23], &long] {
        assert!(matches!(locks.lock(&mut a, &request(key, X)), LockOutcome::Granted { fresh: true, .. }));
        let other = LockRequest { index: IndexId(2), ..request(key, X) };
        assert!(matches!(locks.lock(&mut a, &other), LockOutcome::Granted { fresh: true, .. }));
    }
    assert_eq!(a.len(), 14);
    assert!(locks.bytes() > 0);
    locks.release_all(&mut a, None);
}

#[test]
fn memory_is_given_back() {
    let locks = Locks::new();
    let mut a = owner(1);
    for i in 0..300_000u32 {
        let request = LockRequest { key: &i.to_be_bytes(), ..request("", X) };
        assert!(matches!(locks.lock(&mut a, &request), LockOutcome::Granted { fresh: true, .. }));
    }
    let bytes = locks.bytes() + a.bytes();
    assert!(bytes < 300_000 * 160, "{} bytes a lock", bytes / 300_000);
    locks.release_all(&mut a, Some(CommitTs(160)));
    assert!(locks.bytes() < 1 << 20, "{} bytes", locks.bytes());
}

#[test]
fn one_lock_is_given_back_early() {
    let locks = Locks::new();
    let (mut a, mut b) = (owner(1), owner(2));
    assert!(at_once(&locks, &mut a, "k", X) && at_once(&locks, &mut a, "l", X));
    locks.release_one(&mut a, IndexId(1), b"k");
    locks.release_one(&mut a, IndexId(1), b"not held");
    assert!(at_once(&locks, &mut b, "k", X));
    assert!(!at_once(&locks, &mut b, "l", X));
    locks.release_one(&mut a, IndexId(1), b"k");
    assert!(!at_once(&locks, &mut a, "k", X), "b's lock is b's");
    locks.release_all(&mut a, None);
    locks.release_all(&mut b, None);
}

#[test]
fn a17_the_next_owner_learns_the_commit() {
    let locks = Arc::new(Locks::new());
    let (mut first, mut second) = (owner(1), owner(2));
    assert!(at_once(&locks, &mut first, "header", X));
    locks.release_all(&mut first, Some(CommitTs(1120)));
    // By taking a free lock.
    assert_eq!(seen(&locks.lock(&mut second, &request("header", X))), CommitTs(1120));
    assert_eq!(locks.seen(IndexId(1), b"header"), CommitTs(1120));
    // By waiting for it.
    let waiter = waits(&locks, owner(3), "header", X, 0);
    locks.release_all(&mut second, Some(CommitTs(1200)));
    let (mut third, outcome) = waiter.join().expect("no panic");
    assert_eq!(seen(&outcome), CommitTs(1200));
    // An older commit that is late, and a rollback, do not hide it.
    locks.release_all(&mut third, Some(CommitTs(1184)));
    assert!(at_once(&locks, &mut third, "header", X));
    locks.release_all(&mut third, None);
    assert_eq!(seen(&locks.lock(&mut third, &request("header", S))), CommitTs(1200));
    locks.release_all(&mut third, None);
}

#[test]
fn waits_end_by_time_and_by_cancellation() {
    let locks = Arc::new(Locks::new());
    let (mut a, mut b) = (owner(1), owner(2));
    assert!(at_once(&locks, &mut a, "k", X));
    let short = LockRequest { timeout: Some(Duration::from_millis(20)), ..request("k", X) };
    assert!(matches!(locks.lock(&mut b, &short), LockOutcome::Timeout));
    assert_eq!((locks.stats().timeouts, locks.stats().waiting), (1, 0));

    let canceller = b.canceller();
    let waiter = waits(&locks, b, "k", X, 0);
    canceller.cancel();
    let (mut b, outcome) = waiter.join().expect("no panic");
    assert!(matches!(outcome, LockOutcome::Cancelled));
    assert!(matches!(locks.lock(&mut b, &request("k", X)), LockOutcome::Cancelled), "until it is cleared");
    assert!(at_once(&locks, &mut b, "free", X));
    b.clear_cancelled();
    let waiter = waits(&locks, b, "k", X, 0);
    locks.release_all(&mut a, None);
    let (mut b, outcome) = waiter.join().expect("no panic");
    assert_eq!(seen(&outcome), CommitTs::ZERO);
    locks.release_all(&mut b, None);
}

#[test]
fn p2_the_smallest_write_set_is_the_victim() {
    for (weight_a, weight_b) in [(5, 1), (1, 5), (3, 3)] {
        let locks = Arc::new(Locks::new());
        let (mut a, mut b) = (owner(1), owner(2));
        assert!(at_once(&locks, &mut a, "k", X) && at_once(&locks, &mut b, "l", X));
        let first = waits(&locks, a, "l", X, weight_a);
        let outcome_b = locks.lock(&mut b, &LockRequest { weight: weight_b, ..request("k", X) });
        let who = if weight_b <= weight_a {
            locks.release_all(&mut b, None);
            let (mut a, outcome) = first.join().expect("no panic");
            seen(&outcome);
            locks.release_all(&mut a, None);
            let who = deadlock(outcome_b);
            assert_eq!(who.victim, TxnId(2), "the younger of equals");
            who
        } else {
            seen(&outcome_b);
            locks.release_all(&mut b, None);
            let who = deadlock(first.join().expect("no panic").1);
            assert_eq!(who.victim, TxnId(1));
            who
        };
        let text = format!(
            "deadlock ended by rolling back transaction {}: 2 waits for 1 (exclusive lock on index 1 key k); \
             1 waits for 2 (exclusive lock on index 1 key l)",
            who.victim
        );
        assert_eq!(who.to_string(), text);
        assert_eq!(locks.stats().deadlocks, 1);
    }
}

#[test]
fn p2_a_prepared_transaction_is_never_the_victim() {
    let locks = Arc::new(Locks::new());
    let (mut a, mut b) = (owner(1), owner(2));
    assert!(at_once(&locks, &mut a, "k", X) && at_once(&locks, &mut b, "l", X));
    a.set_prepared();
    let first = waits(&locks, a, "l", X, 0);
    let outcome = locks.lock(&mut b, &LockRequest { weight: 1000, ..request("k", X) });
    assert_eq!(deadlock(outcome).victim, TxnId(2));
    locks.release_all(&mut b, None);
    let (mut a, _) = first.join().expect("no panic");
    locks.release_all(&mut a, None);
}

/// Off, a deadlock lasts until one of the two has waited long enough; turned on, those who wait already are looked at.
/// Guards: the flag in `resolve`; the search in `search_deadlocks`.
#[test]
fn p2_a_search_that_is_off_leaves_a_deadlock_until_it_is_on() {
    let locks = Arc::new(Locks::new());
    let (mut a, mut b) = (owner(1), owner(2));
    assert!(at_once(&locks, &mut a, "k", X) && at_once(&locks, &mut b, "l", X));
    locks.search_deadlocks(false);
    let first = waits(&locks, a, "l", X, 0);
    let short = LockRequest { timeout: Some(Duration::from_millis(20)), ..request("k", X) };
    assert!(matches!(locks.lock(&mut b, &short), LockOutcome::Timeout));
    assert_eq!(locks.stats().deadlocks, 0);
    let second = waits(&locks, b, "k", X, 9);
    locks.search_deadlocks(true);
    assert_eq!(deadlock(first.join().expect("no panic").1).victim, TxnId(1));
    let (mut b, outcome) = second.join().expect("no panic");
    seen(&outcome);
    locks.release_all(&mut b, None);
}

#[test]
fn p2_two_upgrades_of_one_key() {
    let locks = Arc::new(Locks::new());
    let (mut a, mut b) = (owner(1), owner(2));
    assert!(at_once(&locks, &mut a, "k", S) && at_once(&locks, &mut b, "k", S));
    let first = waits(&locks, a, "k", X, 9);
    assert_eq!(deadlock(locks.lock(&mut b, &request("k", X))).edges.len(), 2);
    locks.release_all(&mut b, None);
    let (mut a, outcome) = first.join().expect("no panic");
    seen(&outcome);
    assert!(!at_once(&locks, &mut b, "k", S), "a holds it exclusively now");
    locks.release_all(&mut a, None);
}

/// The cycle runs through a waiter that holds nothing anybody waits for: c's shared request stands behind b's exclusive
/// one, b waits for a's shared lock, a waits for c. Without edges to earlier waiters it would last until a timeout.
#[test]
fn p2_a_cycle_through_an_earlier_waiter() {
    let locks = Arc::new(Locks::new());
    let (mut a, mut c, mut d) = (owner(1), owner(3), owner(4));
    assert!(at_once(&locks, &mut a, "k", S) && at_once(&locks, &mut c, "l", X));
    let b = waits(&locks, owner(2), "k", X, 5);
    // From now on nobody passes b for longer than 5 ms.
    assert!(at_once(&locks, &mut d, "k", S));
    vfs::thread::sleep(Duration::from_millis(6));
    assert!(!at_once(&locks, &mut c, "k", S), "c would pass b");
    let c = waits(&locks, c, "k", S, 5);
    let who = deadlock(locks.lock(&mut a, &request("l", X)));
    let cycle: Vec<_> = who.edges.iter().map(|e| (e.waiter.0, e.blocker.0)).collect();
    assert_eq!(cycle, [(1, 3), (3, 2), (2, 1)]);
    locks.release_all(&mut a, None);
    locks.release_all(&mut d, None);
    for waiter in [b, c] {
        let (mut owner, outcome) = waiter.join().expect("no panic");
        seen(&outcome);
        locks.release_all(&mut owner, None);
    }
}

/// Owner i holds key i and asks for key i + 1, all at once: somebody searches last and finds the whole ring.
#[test]
fn p2_a_ring_closed_by_many_at_once() {
    const RING: u64 = 6;
    for round in 0..200 {
        let locks = Arc::new(Locks::new());
        let threads: Vec<_> = (0..RING)
            .map(|i| {
                let mut owner = owner(i + 1);
                assert!(at_once(&locks, &mut owner, &i.to_string(), X));
                (i, owner)
            })
            .collect();
        let threads = threads.into_iter().map(|(i, mut owner)| {
            let locks = locks.clone();
            let body = move || {
                let next = ((i + 1) % RING).to_string();
                let outcome = locks.lock(&mut owner, &LockRequest { weight: i as usize, ..request(&next, X) });
                locks.release_all(&mut owner, None);
                matches!(outcome, LockOutcome::Deadlock { .. })
            };
            vfs::thread::spawn("ring", body).expect("thread")
        });
        let threads: Vec<_> = threads.collect();
        let victims: Vec<_> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
        // A slow starter may find its lock free because the ring was never closed.
        assert!(victims.iter().filter(|v| **v).count() <= 1, "round {round}: {victims:?}");
        assert!(victims[1..].iter().all(|v| !v), "round {round}: only the lightest: {victims:?}");
    }
}
