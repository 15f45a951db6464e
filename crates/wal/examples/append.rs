//! What the log costs: nanoseconds an append, by the clock and of processor time (which a busy machine does not
//! stretch), and syncs a second against a bare write and sync of one block.
//!
//! Files go to `target/wal-append` and are removed at the end.
//!
//! ```text
//! cargo run --release -p trefoil-wal --example append
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::Poison;
use trefoil_wal::{DatabaseId, RecordKind, Wal, WalOptions, WalStart};
use vfs::time::Instant;
use vfs::{OpenHow, RealVfs, Vfs};

const SECONDS: Duration = Duration::from_secs(2);

fn main() {
    let dir = PathBuf::from("target/wal-append");
    RealVfs.create_dir_all(&dir).expect("the directory can be made");
    println!("into the ring, without I/O:");
    for (bytes, threads) in [(100, 1), (100, 2), (10 * 1024, 1), (10 * 1024, 2)] {
        copy_only(&dir, bytes, threads);
    }
    println!("appended and written, nobody waits for a sync:");
    for (bytes, threads) in [(100, 1), (100, 2), (10 * 1024, 1), (10 * 1024, 2)] {
        appends(&dir, bytes, threads);
    }
    println!("each append handed to the system:");
    for threads in [1, 2] {
        waits(&dir, threads, "writes", Wal::write_to);
    }
    println!("each append durable:");
    bare(&dir);
    for threads in [1, 2, 4, 16] {
        waits(&dir, threads, "syncs", Wal::sync_to);
    }
    empty(&dir);
}

fn empty(dir: &Path) {
    for name in RealVfs.list(dir).expect("the directory can be read") {
        RealVfs.remove(&dir.join(name)).expect("the file can be removed");
    }
}

fn open(dir: &Path, options: WalOptions) -> Wal {
    empty(dir);
    let start = WalStart::fresh(DatabaseId([1; 16]));
    let wal = Wal::open(Arc::new(RealVfs), dir, options, start, Poison::new()).expect("the log opens");
    while wal.prepare().expect("a spare can be made") {}
    wal
}

/// Calls, time by the clock, processor time of all threads.
#[derive(Default)]
struct Took {
    calls: u64,
    clock: Duration,
    processor: Duration,
}

/// Processor time of the calling thread; zero where the system does not say.
fn processor_time() -> Duration {
    let Ok(file) = RealVfs.open(Path::new("/proc/thread-self/schedstat"), OpenHow::default()) else {
        return Duration::ZERO;
    };
    // It has no length: the longest read that succeeds is all of it.
    let text = (1..64).rev().find_map(|len| {
        let mut bytes = vec![0; len];
        file.read_at(&mut bytes, 0).ok().and_then(|()| String::from_utf8(bytes).ok())
    });
    let nanos = text.as_deref().and_then(|text| text.split(' ').next()).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Runs `body` on so many threads.
fn run(threads: usize, body: impl Fn(usize) -> u64 + Send + Sync + 'static) -> Took {
    let body = Arc::new(body);
    let began = Instant::now();
    let running: Vec<_> = (0..threads)
        .map(|t| {
            let body = body.clone();
            vfs::thread::spawn("append", move || {
                let before = processor_time();
                (body(t), processor_time().saturating_sub(before))
            })
            .expect("a thread starts")
        })
        .collect();
    let mut took = Took::default();
    for thread in running {
        let (calls, processor) = thread.join().expect("no panic");
        took.calls += calls;
        took.processor += processor;
    }
    took.clock = began.elapsed();
    took
}

fn report(bytes: usize, threads: usize, took: &Took) {
    let nanos = took.clock.as_nanos() as f64 * threads as f64 / took.calls as f64;
    let processor = took.processor.as_nanos() as f64 / took.calls as f64;
    let rate = took.calls as f64 * bytes as f64 / took.clock.as_secs_f64() / 1e9;
    let peak = bytes as f64 / processor;
    print!("  {bytes:>6} B x {threads} threads: {nanos:>7.0} ns an append by the clock, {rate:.2} GB/s in all");
    println!("; {processor:>7.0} ns of processor time, {peak:.2} GB/s");
}

/// Fills a large ring once, so that nothing but grant, position, copy and mark is measured.
fn copy_only(dir: &Path, bytes: usize, threads: usize) {
    let ring_bytes = 64 << 20;
    let options = WalOptions { segment_bytes: 4 << 30, ring_bytes, ..WalOptions::default() };
    let mut sum = Took::default();
    empty(dir);
    let start = WalStart::fresh(DatabaseId([1; 16]));
    let wal = Wal::open(Arc::new(RealVfs), dir, options, start, Poison::new()).expect("the log opens");
    for round in 0..4 {
        let each = (48 << 20) / (bytes as u64 + 24) / threads as u64;
        let log = wal.clone();
        let took = run(threads, move |t| {
            let payload = varied(bytes, t as u64);
            for _ in 0..each {
                let grant = log.reserve_space(bytes).expect("there is room");
                log.append(grant, RecordKind(1), &payload);
            }
            each
        });
        wal.write_to(wal.end()).expect("the log can be written");
        if round > 0 {
            sum.calls += took.calls;
            sum.clock += took.clock;
            sum.processor += took.processor;
        }
    }
    report(bytes, threads, &sum);
}

fn varied(bytes: usize, seed: u64) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 56) as u8).collect()
}

fn appends(dir: &Path, bytes: usize, threads: usize) {
    let wal = open(dir, WalOptions::default());
    let log = wal.clone();
    let took = run(threads, move |t| {
        let payload = varied(bytes, t as u64);
        let (began, mut calls) = (Instant::now(), 0);
        while calls % 64 != 0 || began.elapsed() < SECONDS {
            let grant = log.reserve_space(bytes).expect("there is room");
            log.append(grant, RecordKind(1), &payload);
            log.relieve().expect("the log can be written");
            if calls % 1024 == 0 {
                log.trim(log.written()).expect("segments can be trimmed");
            }
            calls += 1;
        }
        calls
    });
    report(bytes, threads, &took);
    let stats = wal.stats();
    println!(
        "           waits for room: {}, worst {:.1} ms; {:.2} bytes on disk a byte",
        stats.room_waits,
        stats.room_wait_worst.as_secs_f64() * 1e3,
        stats.written_bytes as f64 / stats.appended_bytes as f64
    );
}

fn waits(dir: &Path, threads: usize, what: &str, wait: fn(&Wal, base::Lsn) -> base::Result<()>) {
    let wal = open(dir, WalOptions::default());
    let log = wal.clone();
    let Took { calls, clock, .. } = run(threads, move |t| {
        let payload = varied(100, t as u64);
        let (began, mut calls) = (Instant::now(), 0);
        while began.elapsed() < SECONDS {
            let grant = log.reserve_space(100).expect("there is room");
            let (_, end) = log.append(grant, RecordKind(1), &payload);
            wait(&log, end).expect("the log can be written");
            calls += 1;
        }
        calls
    });
    let stats = wal.stats();
    println!(
        "  100 B x {threads} threads: {:>8.0} {what}/s, {:.0} bytes on disk each, {:.2} in a frame, {:.0} us a sync",
        calls as f64 / clock.as_secs_f64(),
        stats.written_bytes as f64 / calls as f64,
        calls as f64 / stats.frames as f64,
        stats.sync_time.as_secs_f64() * 1e6 / stats.syncs.max(1) as f64,
    );
}

/// What the machine does without a log: one block written and synced, in a file that was filled before.
fn bare(dir: &Path) {
    let how = OpenHow { write: true, create: true, ..OpenHow::default() };
    let path = dir.join("bare");
    let file = RealVfs.open(&path, how).expect("the file opens");
    let block = vec![1; 4096];
    let blocks = 64 << 8;
    file.allocate(0, blocks * 4096).expect("there is space");
    (0..blocks).for_each(|i| file.write_at(&block, i * 4096).expect("it can be written"));
    file.sync().expect("it can be synced");
    let (began, mut calls) = (Instant::now(), 0);
    while began.elapsed() < SECONDS {
        file.write_at(&block, calls % blocks * 4096).expect("it can be written");
        file.sync().expect("it can be synced");
        calls += 1;
    }
    println!("  bare write and sync:  {:>8.0} syncs/s", calls as f64 / began.elapsed().as_secs_f64());
    drop(file);
}
