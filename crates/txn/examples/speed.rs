//! What the hot paths of this crate cost: `cargo run --release -p trefoil-txn --example speed`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::limits::LSN_UNIT;
use base::{IndexId, Lsn, TxnId};
use trefoil_txn::{LockOutcome, LockOwner, LockRequest, Locks, Mode, Snapshots, Visible, WriteSet};
use vfs::time::Instant;

fn report(what: &str, times: u32, took: Duration) {
    println!("{what:<58} {:>8.1} ns", took.as_nanos() as f64 / f64::from(times));
}

fn scatter(i: u32) -> [u8; 8] {
    u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn write_sets() {
    let mut set = WriteSet::new();
    let rounds = 2000;
    let start = Instant::now();
    for round in 0..rounds {
        for i in 0..100u32 {
            set.put(IndexId(1), &u64::from(round * 100 + i).to_be_bytes(), &[7; 40]).expect("put");
            set.put(IndexId(2), &scatter(round * 100 + i), b"").expect("put");
        }
        set.clear();
    }
    report("write set: 100 appends + 100 random inserts, each", rounds * 200, start.elapsed());
    for count in [100_000, 1_000_000] {
        let start = Instant::now();
        for i in 0..count {
            set.put(IndexId(2), &scatter(i), b"").expect("put");
        }
        report(&format!("write set: random insert, {count} keys"), count, start.elapsed());
        println!("{:<58} {:>8} bytes", "write set: memory a key", set.bytes() / count as usize);
        set.clear();
    }
}

fn lock_all(locks: &Locks, owner: &mut LockOwner, keys: impl Iterator<Item = [u8; 8]>) {
    for key in keys {
        let request = LockRequest { index: IndexId(1), key: &key, mode: Mode::Exclusive, timeout: None, weight: 0 };
        assert!(matches!(locks.lock(owner, &request), LockOutcome::Granted { .. }));
    }
}

fn row_locks() {
    let locks = Locks::new();
    let rounds = 5000;
    let start = Instant::now();
    for round in 0..rounds {
        let mut owner = LockOwner::new(TxnId(round.into()));
        lock_all(&locks, &mut owner, (0..100).map(|i| scatter(round * 100 + i)));
        locks.release_all(&mut owner, None);
    }
    report("lock + release, 100 keys a transaction", rounds * 100, start.elapsed());
    let in_order = |i: u32| u64::from(i).to_be_bytes();
    for (order, key) in [("scattered", scatter as fn(u32) -> [u8; 8]), ("in order", in_order)] {
        let start = Instant::now();
        let mut owner = LockOwner::new(TxnId(1));
        lock_all(&locks, &mut owner, (0..1_000_000).map(key));
        println!("{:<58} {:>8} bytes", "lock memory", (locks.bytes() + owner.bytes()) / 1_000_000);
        locks.release_all(&mut owner, None);
        report(&format!("lock + release, 1 M keys {order}, a transaction"), 1_000_000, start.elapsed());
    }
}

fn hot_row(threads: u64) {
    let locks = Arc::new(Locks::new());
    let rounds = 200_000 / threads;
    let start = Instant::now();
    let clients: Vec<_> = (0..threads)
        .map(|t| {
            let locks = locks.clone();
            let body = move || {
                for i in 0..rounds {
                    let mut owner = LockOwner::new(TxnId(t << 32 | i));
                    lock_all(&locks, &mut owner, std::iter::once(*b"hot row "));
                    for _ in 0..50 {
                        std::hint::black_box(&owner);
                    }
                    locks.release_all(&mut owner, None);
                }
            };
            vfs::thread::spawn("client", body).expect("thread")
        })
        .collect();
    clients.into_iter().for_each(|c| c.join().expect("no panic"));
    report(&format!("one hot row, {threads} threads, a transaction"), 200_000, start.elapsed());
    println!("    {:?}", locks.stats());
}

fn snapshots(threads: u32) {
    let visible = Arc::new(Visible::new(Lsn(0), 1 << 20));
    let snapshots = Arc::new(Snapshots::new(visible.clone()));
    let start = Instant::now();
    let readers: Vec<_> = (0..threads)
        .map(|_| {
            let snapshots = snapshots.clone();
            let body = move || (0..1_000_000).for_each(|_| drop(std::hint::black_box(snapshots.take())));
            vfs::thread::spawn("reader", body).expect("thread")
        })
        .collect();
    readers.into_iter().for_each(|r| r.join().expect("no panic"));
    report(&format!("snapshot taken and dropped, {threads} threads, per thread"), 1_000_000, start.elapsed());
    let start = Instant::now();
    for _ in 0..1_000_000 {
        std::hint::black_box(snapshots.view());
    }
    report("published GC view", 1_000_000, start.elapsed());
    let next = AtomicU64::new(0);
    let start = Instant::now();
    for _ in 0..1_000_000 {
        let at = next.fetch_add(LSN_UNIT, Ordering::Relaxed);
        visible.mark_applied(Lsn(at), Lsn(at + LSN_UNIT));
    }
    report("mark applied", 1_000_000, start.elapsed());
    let start = Instant::now();
    for i in 0..10_000u64 {
        visible.mark_applied(visible.visible().as_lsn(), Lsn(visible.visible().0 + (i % 3 + 1) * LSN_UNIT));
        std::hint::black_box(snapshots.refresh_view());
    }
    report("GC view built and published", 10_000, start.elapsed());
}

fn main() {
    write_sets();
    row_locks();
    [1, 2, 16].into_iter().for_each(hot_row);
    [1, 2].into_iter().for_each(snapshots);
}
