//! The same statements on the model and on the embedded engine give the same answers.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::time::Duration;

use lab_target::row::mix;
use lab_target::{
    Batch, DiskLimits, Durability, IndexSet, IoMode, RangeQuery, RowView, Secondary, Session, Setup, Target,
    TargetSpec, registry,
};

fn setup(dir: &std::path::Path) -> Setup {
    Setup {
        dir: dir.to_path_buf(),
        durability: Durability::Write,
        budget_bytes: Some(16 << 20),
        io: Some(IoMode::Buffered),
        compression: Some("lz4".into()),
        disk: DiskLimits::default(),
        seed: 1,
        price: lab_target::Price::Int,
    }
}

fn open(text: &str, dir: &std::path::Path) -> Box<dyn Target> {
    registry::open(&TargetSpec::parse(text).unwrap(), &setup(dir)).unwrap()
}

/// Servers of MariaDB take seconds to start and are not on every machine: the part `lab-servers` asks for them.
fn servers_are_wanted() -> bool {
    std::env::var_os("TREFOIL_SERVERS").is_some()
}

/// A directory that another user may enter: PostgreSQL does not run for the administrator.
fn room() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A few numbers of a sequence that never ends.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % bound
    }
}

fn batch(dice: &mut Dice) -> Batch {
    let mut batch = Batch::default();
    for _ in 0..=dice.below(20) {
        let data = "abcdefghij".repeat(dice.below(3) as usize);
        batch.push(RowView {
            // Few values, so that entries differ in their keys only.
            dateandtime: 1_690_848_000 + dice.below(3) as i64,
            cashregisterid: dice.below(5) as i32,
            customerid: dice.below(7) as i32,
            productid: dice.below(5) as i32,
            price: dice.below(4) as i32,
            data: data.as_bytes(),
        });
    }
    batch
}

fn rows_of(session: &mut dyn Session) -> Vec<(u64, u64)> {
    let (mut rows, mut customers, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    session
        .scan_table(0, &mut |key, row| {
            rows.push((key, row.hash(key)));
            customers.push(row.customerid);
        })
        .unwrap();
    session.scan_customers(0, &mut |customerid| alone.push(customerid)).unwrap();
    assert_eq!(alone, customers, "one column is that of the rows");
    rows
}

fn entries_of(session: &mut dyn Session, index: Secondary) -> Vec<([i64; 3], u64)> {
    let mut entries = Vec::new();
    session.scan_index(0, index, &mut |entry, key| entries.push((entry, key))).unwrap();
    entries
}

/// One statement on both sides; every answer is compared.
fn one_statement(dice: &mut Dice, sides: &mut [Box<dyn Session>; 2], indexed: bool) {
    let [left, right] = sides;
    match dice.below(if indexed { 8 } else { 5 }) {
        0 | 1 => {
            let batch = batch(dice);
            assert_eq!(left.insert(0, &batch).unwrap(), right.insert(0, &batch).unwrap());
        }
        2 => {
            let (from, count) = (dice.below(200), dice.below(12) as u32 + 1);
            let (one, other) = (left.delete_smallest(0, from, count), right.delete_smallest(0, from, count));
            assert_eq!(one.unwrap(), other.unwrap());
        }
        3 => {
            let from = dice.below(300);
            let to = from + dice.below(10);
            assert_eq!(left.delete_range(0, from, to).unwrap(), right.delete_range(0, from, to).unwrap());
        }
        4 => {
            assert_eq!(left.min_key(0).unwrap(), right.min_key(0).unwrap());
            assert_eq!(left.max_key(0).unwrap(), right.max_key(0).unwrap());
        }
        5 => {
            let query = RangeQuery {
                index: Secondary::ALL[dice.below(3) as usize],
                first: dice.below(6) as i64,
                strict: dice.below(2) == 1,
                limit: dice.below(20) as u32 + 1,
            };
            let (mut one, mut other) = (Vec::new(), vec![[9; 3]]);
            left.range(0, query, &mut one).unwrap();
            right.range(0, query, &mut other).unwrap();
            assert_eq!(one, other, "{query:?}");
        }
        6 => {
            let key = dice.below(400);
            let (mut one, mut other) = (None, None);
            let found = left.get(0, key, &mut |key, row| one = Some((key, row.hash(key)))).unwrap();
            assert_eq!(found, right.get(0, key, &mut |key, row| other = Some((key, row.hash(key)))).unwrap());
            assert_eq!((found, one), (one.is_some(), other), "{key}");
        }
        _ => {
            let mut keys: Vec<u64> = (0..dice.below(12)).map(|_| dice.below(400)).collect();
            keys.sort_unstable();
            keys.dedup();
            let (mut one, mut other) = (Vec::new(), Vec::new());
            left.points(0, &keys, &mut one).unwrap();
            right.points(0, &keys, &mut other).unwrap();
            assert_eq!(one, other, "{keys:?}");
        }
    }
}

/// The same statements on the model and on the target, which is given back to be asked more, with its directory.
fn agree(target: &str, set: IndexSet, seed: u64) -> (Box<dyn Target>, tempfile::TempDir) {
    let dir = room();
    let targets = [open("model", dir.path()), open(target, dir.path())];
    let mut dice = Dice(seed);
    targets.iter().for_each(|target| target.create_table(0).unwrap());
    let mut sides = [targets[0].session().unwrap(), targets[1].session().unwrap()];
    assert_eq!((sides[1].min_key(0).unwrap(), sides[1].max_key(0).unwrap()), (None, None));
    (0..60).for_each(|_| one_statement(&mut dice, &mut sides, false));
    targets.iter().for_each(|target| target.create_indexes(0, set).unwrap());
    for round in 0..4 {
        sides[1].hold_begin(0).unwrap();
        (0..150).for_each(|_| one_statement(&mut dice, &mut sides, true));
        sides[1].hold_end().unwrap();
        if round == 2 {
            targets[1].settle(Duration::from_secs(60)).unwrap();
        }
        assert_eq!(rows_of(sides[0].as_mut()), rows_of(sides[1].as_mut()));
        for index in Secondary::ALL {
            assert_eq!(entries_of(sides[0].as_mut(), index), entries_of(sides[1].as_mut(), index), "{index:?}");
        }
    }
    assert!(!rows_of(sides[0].as_mut()).is_empty());
    drop(sides);
    targets[1].verify().unwrap();
    assert!(targets[1].sizes().unwrap().data_bytes.unwrap() > 0);
    let [_, target] = targets;
    (target, dir)
}

#[test]
fn the_engine_answers_as_the_model_does() {
    for (set, seed, text) in [
        (IndexSet::Y2023, 1, "trefoil:structure=btree,node_size=4096"),
        (IndexSet::Y2017, 2, "trefoil:structure=btree,node_size=4096"),
        (IndexSet::Y2023, 1, "trefoil:structure=betree,node_size=4096"),
        (IndexSet::Y2017, 2, "trefoil:pk=btree,secondary=betree"),
    ] {
        let (target, _dir) = agree(text, set, seed);
        let counters = target.counters().unwrap();
        assert!(counters["log.appended_bytes"] > 0 && counters.contains_key("gc_debt"));
        target.close().unwrap();
    }
}

/// What a target was given goes before what the run was given, and what is reported is what the catalog has.
#[test]
fn compression_is_read_back() {
    for (text, of_the_run, wanted, config) in [
        ("trefoil", None, "lz4", "auto"),
        ("trefoil", Some("zstd"), "zstd", "auto-zstd"),
        ("trefoil:compression=none", Some("zstd"), "none", "auto-none"),
    ] {
        let dir = room();
        let compression = of_the_run.map(str::to_owned);
        let setup = Setup { compression, ..setup(dir.path()) };
        let target = registry::open(&TargetSpec::parse(text).unwrap(), &setup).unwrap();
        target.create_table(0).unwrap();
        target.create_indexes(0, IndexSet::Y2017).unwrap();
        let description = target.describe();
        assert_eq!(
            (description.settings["compression"].as_str(), description.config.as_str()),
            (wanted, config),
            "{text}"
        );
        target.close().unwrap();
    }
    let wrong = TargetSpec::parse("trefoil:compression=brotli").unwrap();
    assert!(matches!(registry::check(&wrong), Err(lab_target::TargetError::Usage(what)) if what.contains("zstd")));
}

/// The structure is part of the configuration's name, and the size of nodes is what the indexes have, asked for or not.
#[test]
fn structure_and_node_size_are_read_back() {
    for (text, config, node_size) in [
        ("trefoil:structure=btree", "btree", "16384"),
        ("trefoil:structure=betree", "betree", "65536"),
        ("trefoil:structure=betree,node_size=8192", "betree", "8192"),
        ("trefoil:pk=btree,secondary=betree", "btree+betree", "16384 and 65536"),
    ] {
        let dir = room();
        let target = open(text, dir.path());
        target.create_table(0).unwrap();
        target.create_indexes(0, IndexSet::Y2017).unwrap();
        let description = target.describe();
        let found = (description.config.as_str(), description.settings["node_size"].as_str());
        assert_eq!(found, (config, node_size), "{text}");
        target.close().unwrap();
    }
}

/// Rows that repeat themselves are smaller the more is done about them.
#[test]
fn compression_is_felt() {
    let bytes = ["none", "lz4", "zstd"].map(|name| {
        let dir = room();
        let target = open(&format!("trefoil:compression={name}"), dir.path());
        target.create_table(0).unwrap();
        let (mut dice, mut session) = (Dice(5), target.session().unwrap());
        for _ in 0..2_000 {
            session.insert(0, &batch(&mut dice)).unwrap();
        }
        drop(session);
        target.settle(Duration::from_secs(60)).unwrap();
        let live = target.sizes().unwrap().classes["live"];
        target.close().unwrap();
        live
    });
    assert!(bytes[0] > bytes[1] && bytes[1] > bytes[2], "{bytes:?}");
}

/// The peers of this build, with the parameters that change how they run.
fn peers() -> Vec<&'static str> {
    let built = lab_target::peers::PEERS.iter().filter(|(_, _, built)| *built).map(|(name, ..)| *name);
    built.flat_map(|name| if name == "rocksdb" { vec![name, "rocksdb:txn=pessimistic"] } else { vec![name] }).collect()
}

const SERVERS: [&str; 3] = [
    "server:mariadb?engine=trefoil",
    "server:mariadb?engine=innodb&protocol=text",
    "server:mariadb?engine=trefoil&protocol=text",
];

#[test]
fn every_server_answers_as_the_model_does() {
    if !servers_are_wanted() {
        return;
    }
    for (server, set, seed) in
        [(SERVERS[0], IndexSet::Y2023, 5), (SERVERS[1], IndexSet::Y2017, 6), (SERVERS[2], IndexSet::Y2017, 7)]
    {
        let (target, _dir) = agree(server, set, seed);
        let description = target.describe();
        assert!(description.version.contains("MariaDB"), "{description:?}");
        let at_commit =
            description.settings.iter().find(|(name, _)| name.contains("flush_log_at") && name.ends_with("commit"));
        assert_eq!(at_commit.map(|(_, value)| value.as_str()), Some("2"), "{:?}", description.settings);
        let lab_measure::procfs::Runs::Beside(process) = target.runs() else { panic!("it has a process of its own") };
        let of_server = format!("/proc/{process}");
        assert!(std::path::Path::new(&of_server).exists());
        target.close().unwrap();
        drop(target);
        assert!(!std::path::Path::new(&of_server).exists(), "{server}: its server is left");
    }
}

/// What a forced index is on other servers is left to the planner's settings there: it has to come to the same.
#[test]
fn postgres_answers_as_the_model_does() {
    if std::env::var_os("TREFOIL_POSTGRES").is_none() {
        return;
    }
    for (server, set, seed) in
        [("server:postgres", IndexSet::Y2023, 8), ("server:postgres?protocol=text", IndexSet::Y2017, 9)]
    {
        let (target, _dir) = agree(server, set, seed);
        let description = target.describe();
        assert!(description.version.starts_with(|first: char| first.is_ascii_digit()), "{description:?}");
        assert_eq!(description.settings["shared_buffers"], "16MB");
        // Durability write: at commit to the operating system, never synced.
        let (fsync, at_commit) = (&description.settings["fsync"], &description.settings["synchronous_commit"]);
        assert_eq!((fsync.as_str(), at_commit.as_str()), ("off", "on"));
        let lab_measure::procfs::Runs::Family(process) = target.runs() else { panic!("it has a process a connection") };
        target.settle(Duration::from_secs(5)).unwrap();
        target.verify().unwrap();
        let (sizes, counters) = (target.sizes().unwrap(), target.counters().unwrap());
        assert!(sizes.total_bytes.unwrap() > sizes.data_bytes.unwrap() && sizes.data_bytes.unwrap() > 1 << 20);
        assert!(counters.contains_key("gc_debt") && counters["pg_stat_wal.wal_bytes"] > 0, "{counters:?}");
        target.close().unwrap();
        drop(target);
        assert!(!std::path::Path::new(&format!("/proc/{process}")).exists(), "{server}: its server is left");
    }
}

#[test]
fn mysql_answers_as_the_model_does() {
    if std::env::var_os("TREFOIL_MYSQL").is_none() {
        return;
    }
    let (target, _dir) = agree("server:mysql?version=9.7&engine=innodb", IndexSet::Y2023, 10);
    assert!(target.describe().version.starts_with("9.7"), "{:?}", target.describe());
    target.close().unwrap();
}

#[test]
fn every_peer_answers_as_the_model_does() {
    for peer in peers() {
        for (set, seed) in [(IndexSet::Y2023, 3), (IndexSet::Y2017, 4)] {
            let (target, _dir) = agree(peer, set, seed);
            let description = target.describe();
            assert!(description.version.starts_with(|first: char| first.is_ascii_digit()), "{description:?}");
            assert_eq!(description.settings["durability"], "write");
            let compression = &description.settings["compression"];
            assert!(!peer.starts_with("rocksdb") || compression.contains("kLZ4Compression"), "{compression}");
            target.close().unwrap();
        }
    }
}

#[test]
fn every_peer_takes_deletes_of_the_same_rows_by_turns() {
    const DELETERS: u32 = 3;
    const STATEMENTS: u32 = 60;
    let mut targets = peers();
    targets.extend(["trefoil", "model"]);
    for text in targets {
        let dir = room();
        let target = open(text, dir.path());
        let mut dice = Dice(7);
        target.create_table(0).unwrap();
        target.create_indexes(0, IndexSet::Y2023).unwrap();
        let mut session = target.session().unwrap();
        let mut last = 0;
        while last < u64::from(DELETERS * STATEMENTS * 5) + 100 {
            let batch = batch(&mut dice);
            last = session.insert(0, &batch).unwrap() + batch.len() as u64 - 1;
        }
        // Deleters on the same rows, an inserter behind them.
        let deleted: u32 = std::thread::scope(|scope| {
            let delete = |mut session: Box<dyn Session>| {
                (0..STATEMENTS).map(|_| session.delete_smallest(0, 0, 5).unwrap()).sum::<u32>()
            };
            let threads: Vec<_> =
                (0..DELETERS).map(|_| target.session().unwrap()).map(|own| scope.spawn(move || delete(own))).collect();
            for _ in 0..STATEMENTS {
                let batch = batch(&mut dice);
                last = session.insert(0, &batch).unwrap() + batch.len() as u64 - 1;
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(deleted, DELETERS * STATEMENTS * 5, "{text}");
        let left: Vec<u64> = rows_of(session.as_mut()).into_iter().map(|(key, _)| key).collect();
        assert!(left.iter().copied().eq(u64::from(deleted) + 1..=last), "{text}: {deleted} deleted, left {left:?}");
        for index in Secondary::ALL {
            let mut keys: Vec<u64> = entries_of(session.as_mut(), index).into_iter().map(|(_, key)| key).collect();
            keys.sort_unstable();
            assert!(keys == left, "{text}: {index:?} and the rows differ");
        }
        drop(session);
        target.close().unwrap();
    }
}

#[test]
fn errors_of_the_engine_keep_their_kind() {
    use lab_target::TargetError;
    let dir = room();
    let setup = |compression: &str, budget: u64| Setup {
        dir: dir.path().to_path_buf(),
        durability: Durability::Sync,
        budget_bytes: Some(budget),
        io: None,
        compression: Some(compression.into()),
        disk: DiskLimits::default(),
        seed: 1,
        price: lab_target::Price::Int,
    };
    let spec = TargetSpec::parse("trefoil").unwrap();
    let complaint = |setup: &Setup| registry::open(&spec, setup).err().unwrap();
    assert!(matches!(complaint(&setup("brotli", 64 << 20)), TargetError::Usage(_)));
    assert!(matches!(complaint(&setup("none", 1)), TargetError::Usage(_)));
    let target = registry::open(&spec, &setup("none", 64 << 20)).unwrap();
    assert!(matches!(complaint(&setup("none", 64 << 20)), TargetError::Failed(text) if text.contains("open")));
    assert!(matches!(target.session().unwrap().min_key(3), Err(TargetError::Failed(_))));
}
