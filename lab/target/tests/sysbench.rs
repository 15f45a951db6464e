//! The same statements of sysbench on the model and on other targets give the same answers.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use lab_target::row::mix;
use lab_target::sysbench::{C_BYTES, On, Order, PAD_BYTES, Row, Select, Session, Tables};
use lab_target::{DiskLimits, Durability, Setup, Target, TargetError, TargetSpec, registry};

/// Ids are below this, and half of them there at first.
const IDS: u64 = 60;

fn open(text: &str, dir: &std::path::Path) -> Box<dyn Target> {
    let setup = Setup {
        dir: dir.to_path_buf(),
        durability: Durability::Write,
        budget_bytes: None,
        io: None,
        compression: None,
        disk: DiskLimits::default(),
        seed: 1,
        price: lab_target::Price::Int,
    };
    registry::open(&TargetSpec::parse(text).unwrap(), &setup).unwrap()
}

/// Servers of MariaDB take seconds to start and are not on every machine: the part `lab-servers` asks for them.
fn servers_are_wanted() -> bool {
    std::env::var_os("TREFOIL_SERVERS").is_some()
}

const POSTGRES: [&str; 2] = ["server:postgres", "server:postgres?protocol=text"];

/// PostgreSQL is on other machines than those: the part `postgres` asks for it.
fn postgres() -> &'static [&'static str] {
    if std::env::var_os("TREFOIL_POSTGRES").is_some() { &POSTGRES } else { &[] }
}

/// The part `mysql` asks for it.
fn mysql() -> &'static [&'static str] {
    if std::env::var_os("TREFOIL_MYSQL").is_some() { &["server:mysql?version=9.7&engine=innodb"] } else { &[] }
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

    fn row(&mut self, id: i32) -> Row {
        let letter = b'a' + self.below(20) as u8;
        // Few values, so that entries differ in their ids only.
        Row { id, k: 1 + self.below(9) as i32, c: [letter; C_BYTES], pad: [letter; PAD_BYTES] }
    }
}

/// What a statement answered, in an order that is the same on all targets.
fn statement(choice: u64, dice: &mut Dice, session: &mut dyn Session) -> String {
    let table = dice.below(2) as u32;
    let (id, other) = (dice.below(IDS) as i32, dice.below(IDS) as i32);
    let (from, to) = (id.min(other), id.max(other));
    let on = if dice.below(2) == 0 { On::Id } else { On::K };
    let select =
        [Select::Key, Select::KeyAndC, Select::C, Select::K][dice.below(if on == On::Id { 4 } else { 2 }) as usize];
    let mut found = Vec::new();
    match choice {
        0 => {
            let there = session.point(table, id, &mut |c| found.push((0, c.first().copied()))).unwrap();
            assert_eq!(there, !found.is_empty());
        }
        1 => {
            session
                .between(table, on, from, to, select, &mut |row| found.push((row.number, row.c.first().copied())))
                .unwrap();
            // Not in an order of its own where the rows are fetched through the index.
            if on == On::K && select == Select::KeyAndC {
                found.sort();
            }
        }
        2 => {
            let keys: Vec<i32> = if from == to { vec![id] } else { vec![from, to] };
            session
                .in_list(table, on, &keys, select, &mut |row| found.push((row.number, row.c.first().copied())))
                .unwrap();
            found.sort();
        }
        3 => {
            let order = [Order::AsTheyCome, Order::Sorted, Order::Distinct][dice.below(3) as usize];
            let mut texts = Vec::new();
            session.texts(table, from, to, order, &mut texts).unwrap();
            return format!("{:?} {:?}", session.sum_k(table, from, to).unwrap(), texts);
        }
        4 => return format!("{}", session.update_k(table, id).unwrap()),
        5 => {
            let ids: Vec<i32> = if from == to { vec![id] } else { vec![from, to] };
            let c = dice.row(0).c;
            return format!("{}", session.update_c(table, &ids, &c).unwrap());
        }
        6 => return format!("{}", session.delete(table, id).unwrap()),
        _ => {
            let row = dice.row(id);
            // A row that exists is refused, and in a transaction what went before it stays.
            return match session.insert(table, &row) {
                Ok(()) => "inserted".into(),
                Err(TargetError::Failed(_)) => "exists".into(),
                Err(other) => panic!("{other}"),
            };
        }
    }
    format!("{found:?}")
}

fn contents(session: &mut dyn Session) -> (Vec<Row>, Vec<(i32, i32)>, usize) {
    let (mut rows, mut entries, mut scanned) = (Vec::new(), Vec::new(), 0);
    for table in 0..2 {
        session.scan_rows(table, &mut |row| rows.push(row.clone())).unwrap();
        session.scan_index(table, &mut |k, id| entries.push((k, id))).unwrap();
        session.scan(table, &mut |c| scanned += usize::from(c.len() == C_BYTES)).unwrap();
    }
    (rows, entries, scanned)
}

fn filled(tables: &dyn Tables) -> Box<dyn Session + '_> {
    let mut dice = Dice(1);
    for table in 0..2 {
        tables.create_table(table).unwrap();
    }
    let mut session = tables.session().unwrap();
    for table in 0..2 {
        let rows: Vec<Row> = (0..IDS as i32).step_by(2).map(|id| dice.row(id)).collect();
        session.load(table, &rows).unwrap();
        tables.create_index(table).unwrap();
    }
    drop(session);
    tables.session().unwrap()
}

#[test]
fn every_target_answers_as_the_model_does() {
    let mut targets = vec!["trefoil:node_size=4096"];
    if cfg!(feature = "rocksdb") {
        targets.push("rocksdb:txn=pessimistic");
    }
    answers_of(&targets);
}

#[test]
fn every_server_answers_as_the_model_does() {
    if !servers_are_wanted() {
        return;
    }
    answers_of(&["server:mariadb?engine=trefoil", "server:mariadb?engine=innodb&protocol=text"]);
}

#[test]
fn postgres_answers_as_the_model_does() {
    answers_of(postgres());
}

#[test]
fn mysql_answers_as_the_model_does() {
    answers_of(mysql());
}

fn answers_of(targets: &[&str]) {
    for target in targets {
        let (dir, model_dir) = (room(), room());
        let (engine, model) = (open(target, dir.path()), open("model", model_dir.path()));
        let (engine, model) = (engine.sysbench().unwrap(), model.sysbench().unwrap());
        let mut sides = [filled(&*engine), filled(&*model)];
        let mut dice = Dice(2);
        let mut inside = false;
        for number in 0..6_000 {
            let choice = dice.below(16);
            let seed = dice.0;
            let answers = sides.each_mut().map(|session| match (choice, inside) {
                (8, false) => session.begin().map(|()| String::new()).unwrap(),
                (9, true) => session.commit().map(|()| String::new()).unwrap(),
                (10, true) => {
                    session.rollback();
                    String::new()
                }
                _ => statement(choice % 8, &mut Dice(seed), session.as_mut()),
            });
            inside = match (choice, inside) {
                (8, false) => true,
                (9 | 10, true) => false,
                _ => inside,
            };
            assert_eq!(answers[0], answers[1], "{target}: statement {number}, choice {choice}");
            // There an error is the end of its transaction.
            if inside && answers[0] == "exists" && target.starts_with("server:postgres") {
                sides.iter_mut().for_each(|session| session.rollback());
                inside = false;
            }
        }
        sides.iter_mut().for_each(|session| session.rollback());
        let [left, right] = sides.each_mut().map(|session| contents(session.as_mut()));
        assert_eq!(left, right, "{target}");
        assert!(left.0.len() > 20 && left.1.len() == left.0.len() && left.2 == left.0.len());
    }
}

/// Four threads raise the same number, in transactions that have looked at it before.
#[test]
fn nobody_s_change_is_lost() {
    let mut targets = vec!["model", "trefoil"];
    if cfg!(feature = "rocksdb") {
        targets.push("rocksdb:txn=pessimistic");
    }
    raised_on(&targets);
}

#[test]
fn nobody_s_change_is_lost_on_a_server() {
    if !servers_are_wanted() {
        return;
    }
    raised_on(&["server:mariadb?engine=innodb", "server:mariadb?engine=trefoil&binlog=on"]);
}

#[test]
fn postgres_loses_nobody_s_change() {
    raised_on(postgres());
}

fn raised_on(targets: &[&str]) {
    for target in targets {
        let dir = room();
        let open = open(target, dir.path());
        let tables = open.sysbench().unwrap();
        let before = filled(&*tables).sum_k(0, 0, 0).unwrap().1;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut session = tables.session().unwrap();
                    let mut done = 0;
                    while done < 100 {
                        session.begin().unwrap();
                        let raised = session.sum_k(0, 0, 0).and_then(|_| session.update_k(0, 0));
                        match raised.and_then(|there| session.commit().map(|()| there)) {
                            Ok(there) => done += u32::from(there),
                            Err(TargetError::Retry(_)) => session.rollback(),
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
        });
        let mut session = tables.session().unwrap();
        assert_eq!(session.sum_k(0, 0, 0).unwrap(), (1, before + 400), "{target}");
        let mut entries = 0;
        session.scan_index(0, &mut |k, id| entries += u32::from(id == 0 && i64::from(k) == before + 400)).unwrap();
        assert_eq!(entries, 1, "{target}");
    }
}

/// Two transactions that want each other's rows: one is told to run again, and then both get what they wanted.
#[test]
fn a_deadlock_is_a_reason_to_run_again() {
    let mut targets = vec!["trefoil"];
    if cfg!(feature = "rocksdb") {
        targets.push("rocksdb:txn=pessimistic");
    }
    deadlock_on(&targets);
}

#[test]
fn a_deadlock_on_a_server_is_a_reason_to_run_again() {
    if !servers_are_wanted() {
        return;
    }
    deadlock_on(&["server:mariadb?engine=trefoil", "server:mariadb?engine=innodb&protocol=text"]);
}

#[test]
fn postgres_tells_a_deadlock_as_a_reason_to_run_again() {
    deadlock_on(postgres().get(..1).unwrap_or_default());
}

fn deadlock_on(targets: &[&str]) {
    for target in targets {
        let dir = room();
        let open = open(target, dir.path());
        let tables = open.sysbench().unwrap();
        let before = filled(&*tables).sum_k(0, 0, 2).unwrap().1;
        let barrier = std::sync::Barrier::new(2);
        let refused: usize = std::thread::scope(|scope| {
            let threads = [(0, 2), (2, 0)].map(|(first, second)| {
                let (tables, barrier) = (&tables, &barrier);
                scope.spawn(move || {
                    let mut session = tables.session().unwrap();
                    session.begin().unwrap();
                    assert!(session.update_k(0, first).unwrap());
                    barrier.wait();
                    let mut refused = 0;
                    let mut done = session.update_k(0, second);
                    done = done.and_then(|there| session.commit().map(|()| there));
                    while let Err(error) = done {
                        assert!(matches!(error, TargetError::Retry(_)), "{target}: {error}");
                        refused += 1;
                        session.rollback();
                        session.begin().unwrap();
                        // Also what went before it.
                        done = session.update_k(0, first).and_then(|_| session.update_k(0, second));
                        done = done.and_then(|there| session.commit().map(|()| there));
                    }
                    refused
                })
            });
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(refused >= 1, "{target}: nobody was refused");
        assert_eq!(tables.session().unwrap().sum_k(0, 0, 2).unwrap(), (2, before + 4), "{target}");
    }
}
