//! Dead entries are a debt that writers wait for (decision D11), unless an open snapshot still needs them: no waiting of
//! theirs could pay that.

use std::sync::Arc;
use std::time::Duration;

use trefoil::{Database, DelayStats, Durability, Index, IndexOptions, Options, Structure};
use vfs::RealVfs;
use vfs::fault::{Action, Class, FaultVfs, Faults, Rule};
use vfs::time::Instant;

const BUDGET_BYTES: u64 = 8 << 20;
/// Twice as many bytes of leaves as make writers wait, and far more than memory.
const ROWS: u64 = 80_000;
const ROWS_PER_TRANSACTION: u64 = 400;
const VALUE_BYTES: usize = 150;

struct Bench {
    db: Database,
    index: Index,
    faults: Faults,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(structure: Structure) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let vfs = FaultVfs::new(RealVfs);
        let faults = vfs.faults().clone();
        let vfs = Arc::new(vfs);
        let options =
            Options { budget_bytes: BUDGET_BYTES, durability: Durability::Buffered, vfs, ..Options::default() };
        let db = Database::open(dir.path(), options).expect("opens");
        let index = db.create_index("rows", IndexOptions { structure, ..IndexOptions::default() }).expect("created");
        Self { db, index, faults, _dir: dir }
    }

    /// One sweep over all keys, in order; `each` changes one of them. Between transactions, `look` looks.
    fn sweep(&self, each: impl Fn(&mut trefoil::Transaction, u64), mut look: impl FnMut()) {
        for from in (0..ROWS).step_by(ROWS_PER_TRANSACTION as usize) {
            let mut tx = self.db.begin().expect("begins");
            (from..from + ROWS_PER_TRANSACTION).for_each(|i| each(&mut tx, i));
            tx.commit().expect("commits");
            look();
        }
    }

    fn put_all(&self, value: u8) {
        self.sweep(|tx, i| tx.put(&self.index, &i.to_be_bytes(), &[value; VALUE_BYTES]).expect("fits"), || ());
    }

    fn gc_delay(&self) -> DelayStats {
        let delays = self.db.stats().delays;
        *delays.iter().find(|delay| delay.reason == "gc").expect("a reason")
    }

    /// A device that takes its time to read.
    fn slow_reads(&self, each: Duration) {
        self.faults.add(Rule::new(Action::Slow(each)).on(Class::Read).path("data").forever());
    }
}

#[test]
fn what_a_snapshot_pins_delays_nobody_until_it_ends() {
    pinned_until_a_snapshot_ends(Structure::Btree, ROWS / 10);
}

/// What messages on disk hide is collected when they are merged, and they may be half as much as the leaves.
#[test]
fn what_a_snapshot_pins_below_messages_delays_nobody_until_it_ends() {
    pinned_until_a_snapshot_ends(Structure::Betree, ROWS * 11 / 20);
}

fn pinned_until_a_snapshot_ends(structure: Structure, dead_at_rest: u64) {
    let bench = Bench::new(structure);
    bench.put_all(1);
    let snapshot = bench.db.snapshot().expect("taken");
    bench.put_all(2);
    bench.db.checkpoint().expect("a checkpoint");
    bench.slow_reads(Duration::from_millis(2));
    // Long enough for many looks and many steps of the background.
    let hot = bench.db.create_index("hot", IndexOptions::default()).expect("created");
    let put = |i: u64| {
        let mut tx = bench.db.begin().expect("begins");
        tx.put(&hot, &(i % 100).to_be_bytes(), &[1; 100]).expect("fits");
        let asked = Instant::now();
        tx.commit().expect("commits");
        asked.elapsed()
    };
    let began = Instant::now();
    let mut i = 0;
    while began.elapsed() < Duration::from_secs(2) {
        put(i);
        i += 1;
    }
    let pinned = bench.index.stats();
    // What waits as a message counts as a key of its own.
    assert!(pinned.dead_versions >= ROWS * 9 / 10, "nothing was pinned: {pinned:?}");
    assert_eq!((pinned.gc_debt_bytes, bench.gc_delay().count), (0, 0), "{pinned:?}");
    assert_eq!(snapshot.get(&bench.index, &7u64.to_be_bytes()).expect("read").as_deref(), Some(&[1; VALUE_BYTES][..]));
    drop(snapshot);
    // Now it can be paid, and is.
    let (mut most, mut longest, ended) = (0, Duration::ZERO, Instant::now());
    while bench.index.stats().dead_versions > dead_at_rest {
        longest = longest.max(put(i));
        i += 1;
        most = most.max(bench.index.stats().gc_debt_bytes);
        assert!(ended.elapsed() < Duration::from_secs(100), "not collected: {:?}", bench.index.stats());
    }
    println!("{most} B of debt, gone in {:?}, longest {longest:?}, {:?}", ended.elapsed(), bench.gc_delay());
    assert!(most > 8 << 20, "{most} bytes of debt");
    assert!(bench.gc_delay().count > 0, "nobody waited: {:?}", bench.db.stats().delays);
    assert!(longest < Duration::from_secs(2), "a commit took {longest:?}");
    bench.db.close().expect("closes");
}

/// The same debt delays nobody below a limit, and everybody above one that is set meanwhile. Guard: `lag` asks for it.
#[test]
fn a_limit_says_from_which_debt_on_writers_wait() {
    let bench = Bench::new(Structure::Auto);
    bench.put_all(1);
    let snapshot = bench.db.snapshot().expect("taken");
    bench.put_all(2);
    bench.db.checkpoint().expect("a checkpoint");
    bench.slow_reads(Duration::from_millis(10));
    let hot = bench.db.create_index("hot", IndexOptions::default()).expect("created");
    bench.db.set_gc_debt_limit(1 << 30);
    drop(snapshot);
    let debt_after = |enough: Duration, until: &dyn Fn() -> bool| {
        let (began, mut most) = (Instant::now(), 0);
        while began.elapsed() < enough && !until() {
            let mut tx = bench.db.begin().expect("begins");
            tx.put(&hot, b"key", &[1; 100]).expect("fits");
            tx.commit().expect("commits");
            most = most.max(bench.index.stats().gc_debt_bytes);
        }
        most
    };
    let most = debt_after(Duration::from_secs(1), &|| false);
    assert!(most > 8 << 20, "{most} bytes of debt");
    assert_eq!(bench.gc_delay().count, 0, "below the limit");
    bench.db.set_gc_debt_limit(64 << 10);
    debt_after(Duration::from_secs(60), &|| bench.gc_delay().count > 0);
    assert!(bench.gc_delay().count > 0, "nobody waited: {:?}", bench.index.stats());
    bench.db.close().expect("closes");
}

#[test]
fn debt_stays_bounded_when_as_much_is_deleted_as_inserted() {
    let bench = Bench::new(Structure::Auto);
    let key = |i: u64, generation: u64| [i.to_be_bytes(), generation.to_be_bytes()].concat();
    let (mut most_debt, mut most_dead, mut slowest) = (0, 0, Duration::ZERO);
    for generation in 0..4 {
        // A reader that begins and ends with each generation: what it held back becomes due at once.
        let reader = bench.db.snapshot().expect("taken");
        bench.sweep(
            |tx, i| {
                tx.put(&bench.index, &key(i, generation), &[1; VALUE_BYTES]).expect("fits");
                if generation > 0 {
                    tx.delete(&bench.index, &key(i, generation - 1)).expect("fits");
                }
            },
            || {
                let stats = bench.index.stats();
                most_debt = most_debt.max(stats.gc_debt_bytes);
                most_dead = most_dead.max(stats.dead_versions);
                let asked = Instant::now();
                let tx = bench.db.begin().expect("begins");
                let mut cursor = tx.range(&bench.index, ..).expect("a cursor");
                assert!(cursor.next().expect("readable").is_some(), "an entry");
                slowest = slowest.max(asked.elapsed());
            },
        );
        drop(reader);
        if generation == 0 {
            bench.slow_reads(Duration::from_millis(2));
        }
    }
    let delays = bench.db.stats().delays;
    println!("{most_debt} B of debt, {most_dead} dead, first key in {slowest:?}, {delays:?}");
    assert!(bench.gc_delay().count > 0, "nobody waited: {delays:?}");
    assert!(most_debt < 64 << 20, "{most_debt} bytes of debt");
    assert!(most_dead < 4 * ROWS, "{most_dead} dead versions of {ROWS} rows");
    assert!(slowest < Duration::from_secs(1), "the first key was found in {slowest:?}");
    bench.db.close().expect("closes");
}
