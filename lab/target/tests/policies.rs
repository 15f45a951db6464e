//! What a target string switches of log-structured merge trees is in force, and tells by bytes: in simulated time on a simulated disk, so
//! that the same string has the same figures each time. `cargo test -p lab-target --test policies -- --nocapture` prints them.

// A test outside the engine: a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lab_target::row::mix;
use lab_target::sysbench::{C_BYTES, PAD_BYTES, Row};
use lab_target::trefoil::TrefoilTarget;
use lab_target::{Batch, Counters, DiskLimits, Durability, IndexSet, RowView, Setup, Target, TargetSpec};
use vfs::sim::{Config, DiskConfig, SimDisk, Simulation};

fn open(text: &str, budget_bytes: u64) -> TrefoilTarget {
    let setup = Setup {
        dir: PathBuf::from("/db"),
        durability: Durability::Buffered,
        budget_bytes: Some(budget_bytes),
        io: None,
        compression: Some("none".into()),
        disk: DiskLimits::default(),
        seed: 1,
        price: lab_target::Price::Int,
    };
    let disk = SimDisk::new(DiskConfig::seed(7));
    TrefoilTarget::open_over(TargetSpec::parse(text).unwrap(), &setup, Arc::new(disk)).unwrap()
}

/// The counters after some ten thousand rows with three secondary indexes, a transaction of sixty each millisecond.
fn loaded(text: &str) -> Counters {
    let text = text.to_owned();
    simulated(move || load(&text))
}

fn load(text: &str) -> Counters {
    let target = open(text, 2 << 20);
    target.create_table(0).unwrap();
    target.create_indexes(0, IndexSet::Y2017).unwrap();
    let (mut session, mut batch) = (target.session().unwrap(), Batch::default());
    for round in 0..700u64 {
        batch.clear();
        for n in 0..60 {
            let some = mix(round * 60 + n);
            let data = format!("{some:016x}").repeat(6);
            batch.push(RowView {
                dateandtime: 1_690_848_000 + round as i64,
                cashregisterid: (some % 1_000) as i32,
                customerid: (some >> 10) as i32 & 0xffff,
                productid: (some >> 26) as i32 & 0x3fff,
                price: (some >> 40) as i32 & 0x1ff,
                data: data.as_bytes(),
            });
        }
        session.insert(0, &batch).unwrap();
        vfs::thread::sleep(Duration::from_millis(1));
    }
    drop(session);
    target.settle(Duration::from_secs(600)).unwrap();
    let counters = target.counters().unwrap();
    assert!(target.levels().is_some_and(|levels| levels.bytes.iter().sum::<u64>() > 0), "{text}: no levels");
    target.close().unwrap();
    counters
}

/// Of all indexes whose name has this in it: flushed, merged, on disk.
fn bytes(counters: &Counters, of: &str) -> [u64; 3] {
    let sum = |part: &str| {
        let with = |name: &&String| name.contains(of) && name.contains(part);
        counters.iter().filter(|(name, _)| with(name)).map(|(_, bytes)| bytes).sum()
    };
    [sum(".lsm.flush"), sum(".lsm.merge_"), sum(".level_7.bytes") + sum(".level_0.bytes")]
}

/// In a simulation of its own, so that the same load does the same each time.
fn simulated<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    let config = Config { steps_max: 200_000_000, ..Config::default() };
    Simulation::new(1, config).run(move |_| send.send(body()).unwrap());
    receive.recv().unwrap()
}

/// Rows of sysbench in no order: so many transactions of 32, and a pause behind each.
#[derive(Clone, Copy)]
struct Scattered {
    budget_bytes: u64,
    transactions: u64,
    pause: Duration,
}

/// What they came to.
#[derive(Debug)]
struct Told {
    /// Of all levels of all indexes: merged, and merged within level 0.
    merged: u64,
    merged_at_top: u64,
    /// The most runs of level 0 that a look-up may meet, behind any transaction.
    most_at_top: u64,
    /// Transactions that were slowed down while they came, and for how long in all, in milliseconds.
    delays: u64,
    delayed_ms: u64,
}

fn scattered(text: &str, load: Scattered) -> Told {
    let own = text.to_owned();
    let told = simulated(move || scatter(&own, load));
    println!("{text:<110} {told:?}");
    told
}

fn row(n: u64) -> Row {
    let mut c = [0; C_BYTES];
    c.iter_mut().enumerate().for_each(|(at, byte)| *byte = b'0' + (mix((n << 8) | at as u64) % 10) as u8);
    // An odd factor: each number once.
    let id = (n.wrapping_mul(0x9e37_79b1) & 0x7fff_ffff) as i32;
    Row { id, k: (mix(n) >> 40) as i32, c, pad: [b'-'; PAD_BYTES] }
}

fn scatter(text: &str, load: Scattered) -> Told {
    let target = open(text, load.budget_bytes);
    let tables = target.sysbench().unwrap();
    tables.create_table(0).unwrap();
    tables.create_index(0).unwrap();
    let mut session = tables.session().unwrap();
    let mut most_at_top = 0;
    for transaction in 0..load.transactions {
        let rows: Vec<Row> = (transaction * 32..(transaction + 1) * 32).map(row).collect();
        session.load(0, &rows).unwrap();
        vfs::thread::sleep(load.pause);
        most_at_top = most_at_top.max(target.levels().map_or(0, |levels| levels.strands[0]));
    }
    drop(session);
    let meanwhile = target.counters().unwrap();
    drop(tables);
    target.settle(Duration::from_secs(600)).unwrap();
    let settled = target.counters().unwrap();
    target.close().unwrap();
    let sum = |counters: &Counters, begin: &str, end: &str| -> u64 {
        let of = |name: &str| name.contains(begin) && name.ends_with(end);
        counters.iter().filter(|(name, _)| of(name)).map(|(_, value)| value).sum()
    };
    Told {
        merged: sum(&settled, ".lsm.merge_", ""),
        merged_at_top: sum(&settled, ".lsm.merge_0", ""),
        most_at_top,
        delays: sum(&meanwhile, "delays.", ".count"),
        delayed_ms: sum(&meanwhile, "delays.", ".us") / 1_000,
    }
}

#[test]
fn compression_by_level_tells_by_bytes() {
    let base = "trefoil:structure=lsm,node_size=4k,shape=leveled";
    let usual = bytes(&loaded(base), ".");
    println!("{base:<90} flushed, merged, on disk {usual:?}");
    let text = format!("{base},compression=none/lz4/zstd");
    let compressed = bytes(&loaded(&text), ".");
    println!("{text:<90} flushed, merged, on disk {compressed:?}");
    // 3.5 and 8.1 MB.
    assert!(compressed[2] * 3 < usual[2] * 2, "compression: {compressed:?}, none {usual:?}");
}

/// The background keeps up with it: what it chooses decides, not when.
const SCATTERED: Scattered = Scattered { budget_bytes: 1 << 20, transactions: 800, pause: Duration::from_millis(3) };
const LSM: &str = "trefoil:structure=lsm,node_size=4k";

#[test]
fn shapes_tell_by_bytes() {
    let [leveled, lazy, universal] =
        ["leveled", "lazy", "universal"].map(|shape| scattered(&format!("{LSM},shape={shape}"), SCATTERED).merged);
    // 32.7, 21.1 and 13.0 MB.
    assert!(leveled * 5 > lazy * 6 && lazy * 5 > universal * 6, "{leveled}, {lazy}, {universal} merged");
}

#[test]
fn the_run_that_goes_down_first_tells_by_bytes() {
    let of = |value: &str| scattered(&format!("{LSM},shape=leveled,compaction_pri={value}"), SCATTERED).merged;
    let (with, without) = (of("min_overlap"), of("none"));
    // 32.7 and 43.1 MB.
    assert!(with * 20 < without * 19, "{with} merged by the least overlap, {without} without");
}

/// Where flushes come faster than what lies below can be merged.
#[test]
fn merges_of_flushes_tell_by_runs_to_look_at_and_by_bytes() {
    let fast = Scattered { pause: Duration::from_micros(400), ..SCATTERED };
    let of = |value: &str| scattered(&format!("{LSM},shape=leveled,l0_l0={value}"), fast);
    let (on, off) = (of("on"), of("off"));
    assert_eq!(off.merged_at_top, 0, "flushes were merged among themselves");
    // 7.9 of 26.4 MB; 20 and 27 runs.
    assert!(on.merged_at_top > on.merged / 8, "{on:?}");
    assert!(on.most_at_top < off.most_at_top, "{} and {} runs to look at", on.most_at_top, off.most_at_top);
}

/// Before a background that is far behind, since it may write little. What is owed may come to a MiB: that is the wall.
#[test]
fn controllers_tell_by_delays() {
    let load = Scattered { budget_bytes: 4 << 20, pause: Duration::from_millis(1), ..SCATTERED };
    let of = |value: &str| scattered(&format!("{LSM},io_budget=512k,gc_debt_limit=100k,controller={value}"), load);
    let (debt, slow, fast) = (of("debt"), of("delayed_write_rate:2m"), of("delayed_write_rate:16m"));
    // 203 transactions behind the wall wait 631 ms or 78 ms for their bytes, whatever is owed; of the engine's own, 288 wait for 18.7 s.
    assert!(slow.delays > 100 && fast.delays > 100, "{slow:?}, {fast:?}");
    let each = |told: &Told| told.delayed_ms as f64 / told.delays as f64;
    let ratio = each(&slow) / each(&fast);
    assert!((7.0..9.0).contains(&ratio), "2m by 16m is {ratio}: {slow:?}, {fast:?}");
    assert!(debt.delays > slow.delays && debt.delayed_ms > 10 * slow.delayed_ms, "{debt:?}, {slow:?}");
}

/// What is given for one kind of index is in force for that kind alone.
#[test]
fn a_prefix_is_for_one_kind_of_index() {
    let base = "trefoil:structure=lsm,node_size=4k,shape=leveled";
    let (usual, switched) = (loaded(base), loaded(&format!("{base},secondary.compression=none/lz4/zstd")));
    let rows = |counters: &Counters| bytes(counters, ".primary")[2];
    let all = |counters: &Counters| bytes(counters, ".")[2];
    assert!(rows(&switched) * 10 > rows(&usual) * 9, "the rows are as they were");
    let secondary = |counters: &Counters| all(counters) - rows(counters);
    assert!(secondary(&switched) < secondary(&usual), "the entries are not");
}

#[test]
fn what_is_in_force_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let text = "trefoil:structure=lsm,shape=lazy,secondary.shape=universal,compaction_pri=none,l0_l0=off,\
                secondary.compression=none/lz4/zstd,controller=delayed_write_rate:2m";
    let setup = Setup {
        dir: dir.path().to_path_buf(),
        durability: Durability::Write,
        budget_bytes: None,
        io: None,
        compression: None,
        disk: DiskLimits::default(),
        seed: 1,
        price: lab_target::Price::Int,
    };
    let target = TrefoilTarget::open(TargetSpec::parse(text).unwrap(), &setup).unwrap();
    for _ in 0..2 {
        let description = target.describe();
        let setting = |name: &str| description.settings.get(name).map(String::as_str);
        assert_eq!(setting("shape"), Some("lazy and universal"));
        assert_eq!(setting("controller"), Some("delayed_write_rate:2097152"));
        assert_eq!((setting("pk.compaction_pri"), setting("secondary.l0_l0")), (Some("none"), Some("off")));
        assert_eq!((setting("secondary.compression"), setting("pk.compression")), (Some("none/lz4/zstd"), None));
        let name = "lsm-lazy-nopri-nol0l0+lsm-universal-nopri-nol0l0-none/lz4/zstd-delayed2048k";
        assert_eq!(description.config, name);
        // Once more with tables, as the catalog has them.
        target.create_table(0).unwrap();
        let _ = target.create_indexes(0, IndexSet::Y2017);
    }
    target.close().unwrap();
}
