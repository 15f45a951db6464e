//! The same statements of TPC-C on the model and on other targets give the same answers; transactions that meet keep the
//! rules of `lab_target::tpcc`.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::time::Duration;

use lab_target::row::mix;
use lab_target::tpcc::{Cell, Kind, Row, Session, Table, key, new_orders, orders};
use lab_target::{DiskLimits, Durability, Setup, Target, TargetError, TargetSpec, registry};

/// Tables with an index of numbers, with one of texts, with none. Numbers of a primary key are never below 0.
const TABLES: [Table; 4] = [Table::Orders, Table::Customer, Table::OrderLine, Table::NewOrders];

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

/// Engines whose transactions run side by side.
fn engines() -> Vec<&'static str> {
    let mut all = vec!["trefoil:node_size=4096"];
    if cfg!(feature = "rocksdb") {
        all.push("rocksdb:txn=pessimistic");
    }
    all
}

/// Servers take seconds to start and are not on every machine: parts of `make test` ask for them.
fn servers(wanted: &str) -> &'static [&'static str] {
    match wanted {
        _ if std::env::var_os(wanted).is_none() => &[],
        "TREFOIL_SERVERS" => &["server:mariadb?engine=trefoil", "server:mariadb?engine=innodb&protocol=text"],
        "TREFOIL_POSTGRES" => &["server:postgres", "server:postgres?protocol=text"],
        _ => &["server:mysql?version=9.7&engine=innodb"],
    }
}

/// A directory that another user may enter: PostgreSQL does not run for the administrator.
fn room() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A few numbers of a sequence that never ends, and whether values are to be such as SQL has.
struct Dice(u64, bool);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % bound
    }

    fn small(&mut self) -> i64 {
        self.below(4) as i64
    }

    /// Few values, so that entries differ in their last columns only; zeros in texts are part of them.
    fn cell(&mut self, kind: Kind) -> Cell<'static> {
        let is_sql = self.1;
        match kind {
            Kind::MaybeInt | Kind::MaybeTime if self.below(3) == 0 => Cell::Null,
            Kind::Text => {
                let texts: [&[u8]; 6] = match is_sql {
                    false => [b"", b"A", b"AB", b"A\0", b"A\0\xff", b"\xff\xff"],
                    true => [b"", b"A", b"AB", b"a", b"a'\\\"?", b"~~"],
                };
                texts[self.below(6) as usize].to_vec().into()
            }
            Kind::Int | Kind::MaybeInt => [-1, 0, 3, 255, 256, i64::from(i32::MIN)][self.below(6) as usize].into(),
            Kind::Time | Kind::MaybeTime if is_sql => {
                [-1, 0, 1_700_000_000_000_001, 1_700_000_000_500_000, 4_000_000_000_000_000][self.below(5) as usize]
                    .into()
            }
            _ => [-1, 0, 3, i64::MAX, i64::MIN][self.below(5) as usize].into(),
        }
    }

    fn row(&mut self, table: Table) -> Row {
        let definition = table.definition();
        let column = |(place, (_, kind)): (usize, &(&str, Kind))| match place < definition.key {
            true => Cell::Number(self.small()),
            false => self.cell(*kind),
        };
        definition.columns.iter().enumerate().map(column).collect()
    }
}

fn owned(cells: &[Cell<'_>]) -> Row {
    cells.iter().map(Cell::owned).collect()
}

/// What a statement answered.
fn statement(choice: u64, dice: &mut Dice, session: &mut dyn Session) -> String {
    let table = TABLES[dice.below(TABLES.len() as u64) as usize];
    let definition = table.definition();
    let numbers: Vec<i64> = (0..definition.key).map(|_| dice.small()).collect();
    let begins = &numbers[..dice.below(definition.key as u64 + 1) as usize];
    let columns: Vec<usize> = (0..3).map(|_| dice.below(definition.columns.len() as u64) as usize).collect();
    let mut found = Vec::new();
    match choice {
        0 | 1 => {
            // A row that exists is refused, and what went before it stays.
            return match session.insert(table, &[dice.row(table)]) {
                Ok(()) => "inserted".into(),
                Err(TargetError::Failed(_)) => "exists".into(),
                Err(other) => panic!("{other}"),
            };
        }
        2 => {
            let keys = [key(&numbers), definition.key_of(&dice.row(table))];
            let there = session.get(table, &keys, &columns, &mut |place, row| found.push((place, owned(row)))).unwrap();
            assert_eq!(there, found.len());
            found.sort();
        }
        3 => {
            let new = dice.row(table);
            let indexed = definition.index.unwrap_or_default();
            let changed = session.update(table, key(&numbers), &mut |row| {
                found.push((0, owned(row)));
                for column in (definition.key..row.len()).filter(|column| !indexed.contains(column)) {
                    row[column] = new[column].clone();
                }
            });
            return format!("{} {found:?}", changed.unwrap());
        }
        4 => return format!("{}", session.delete(table, key(&numbers)).unwrap()),
        5 => return format!("{:?}", session.take_first(table, begins).unwrap()),
        6 => {
            let range = (begins, &begins[..begins.len().min(1)]);
            session.scan(table, range, &columns, &mut |row| found.push((0, owned(row)))).unwrap();
        }
        _ if definition.index.is_none() => {}
        _ => {
            let row = dice.row(table);
            let prefix: Row = definition.index.unwrap().iter().map(|column| row[*column].clone()).collect();
            let prefix = &prefix[..dice.below(prefix.len() as u64 + 1) as usize];
            session.scan_index(table, prefix, &mut |entry| found.push((0, owned(entry)))).unwrap();
            let mut last = Vec::new();
            let there = session.last_entry(table, prefix, &mut |entry| last.push((0, owned(entry)))).unwrap();
            assert_eq!((there, last.first()), (!found.is_empty(), found.last()), "{table:?} {prefix:?}");
        }
    }
    format!("{found:?}")
}

fn contents(session: &mut dyn Session) -> Vec<Row> {
    let mut all = Vec::new();
    session.begin(true).unwrap();
    for table in TABLES {
        let columns: Vec<usize> = (0..table.definition().columns.len()).collect();
        session.scan(table, (&[], &[]), &columns, &mut |row| all.push(owned(row))).unwrap();
        if table.definition().index.is_some() {
            session.scan_index(table, &[], &mut |entry| all.push(owned(entry))).unwrap();
        }
    }
    session.commit().unwrap();
    all
}

#[test]
fn every_target_answers_as_the_model_does() {
    answers_of(&engines(), 1_500);
}

#[test]
fn every_server_answers_as_the_model_does() {
    answers_of(servers("TREFOIL_SERVERS"), 120);
}

#[test]
fn postgres_answers_as_the_model_does() {
    answers_of(servers("TREFOIL_POSTGRES"), 120);
}

#[test]
fn mysql_answers_as_the_model_does() {
    answers_of(servers("TREFOIL_MYSQL"), 120);
}

fn answers_of(targets: &[&str], transactions: usize) {
    for target in targets {
        let (dir, model_dir, is_sql) = (room(), room(), target.starts_with("server"));
        let (engine, model) = (open(target, dir.path()), open("model", model_dir.path()));
        let (engine, model) = (engine.tpcc().unwrap(), model.tpcc().unwrap());
        engine.create().unwrap();
        model.create().unwrap();
        let mut sides = [engine.session().unwrap(), model.session().unwrap()];
        let (mut dice, mut inserted) = (Dice(2, is_sql), 0);
        for number in 0..transactions {
            let (only_reads, statements) = (dice.below(4) == 0, dice.below(12));
            sides.iter_mut().for_each(|session| session.begin(only_reads).unwrap());
            let mut is_over = false;
            for _ in 0..statements {
                let choice = if only_reads { [2, 6, 7][dice.below(3) as usize] } else { dice.below(8) };
                let seed = dice.below(u64::MAX);
                let answers =
                    sides.each_mut().map(|session| statement(choice, &mut Dice(seed, is_sql), session.as_mut()));
                assert_eq!(answers[0], answers[1], "{target}: transaction {number}, choice {choice}");
                inserted += usize::from(answers[0] == "inserted");
                // There an error is the end of its transaction.
                is_over = answers[0] == "exists" && target.starts_with("server:postgres");
                if is_over {
                    break;
                }
            }
            match dice.below(4) {
                _ if is_over => sides.iter_mut().for_each(|session| session.rollback()),
                0 => sides.iter_mut().for_each(|session| session.rollback()),
                _ => sides.iter_mut().for_each(|session| session.commit().unwrap()),
            }
        }
        let [left, right] = sides.each_mut().map(|session| contents(session.as_mut()));
        assert_eq!(left, right, "{target}");
        assert!(
            left.len() > transactions.min(400) / 4 && inserted > transactions / 3,
            "{target}: {} rows and entries, {inserted} inserts",
            left.len()
        );
    }
}

/// Rows of one district.
fn filled(session: &mut dyn Session) {
    session.begin(false).unwrap();
    for order in 1..=5 {
        session.insert(Table::NewOrders, &[[1, 1, order].map(Cell::Number).into()]).unwrap();
        let row = [1, 1, order, 7, 0, 1, 5, 1].map(Cell::Number);
        session.insert(Table::Orders, &[row.into()]).unwrap();
    }
    session.commit().unwrap();
}

fn queue(session: &mut dyn Session) -> Vec<i64> {
    let mut all = Vec::new();
    session.scan(Table::NewOrders, (&[1], &[1]), &[new_orders::ORDER], &mut |row| all.push(row[0].number())).unwrap();
    all
}

/// Rule 3: what a transaction reads stays as it was at its first read, whoever commits; what it changes is the newest.
#[test]
fn plain_reads_see_one_snapshot_and_changes_the_newest() {
    snapshots_of(&engines(), &[true, false]);
}

#[test]
fn plain_reads_on_a_server_see_one_snapshot_and_changes_the_newest() {
    snapshots_of(servers("TREFOIL_SERVERS"), &[true, false]);
}

/// What writes there sees the newest rows with plain reads too.
#[test]
fn plain_reads_on_postgres_see_one_snapshot() {
    snapshots_of(servers("TREFOIL_POSTGRES"), &[true]);
}

fn snapshots_of(targets: &[&str], kinds: &[bool]) {
    for target in targets {
        let dir = room();
        let engine = open(target, dir.path());
        let tables = engine.tpcc().unwrap();
        tables.create().unwrap();
        filled(tables.session().unwrap().as_mut());
        for only_reads in kinds.iter().copied() {
            let (mut reader, mut writer) = (tables.session().unwrap(), tables.session().unwrap());
            reader.begin(only_reads).unwrap();
            let lines = |session: &mut dyn Session| {
                let mut found = None;
                let columns = [orders::LINES];
                session
                    .get(Table::Orders, &[key(&[1, 1, 3])], &columns, &mut |_, row| found = Some(row[0].number()))?;
                Ok::<_, TargetError>(found.unwrap())
            };
            let before = (lines(reader.as_mut()).unwrap(), queue(reader.as_mut()));
            writer.begin(false).unwrap();
            let raise = &mut |row: &mut [Cell<'_>]| row[orders::LINES] = (row[orders::LINES].number() + 1).into();
            assert!(writer.update(Table::Orders, key(&[1, 1, 3]), raise).unwrap());
            assert!(writer.take_first(Table::NewOrders, &[1, 1]).unwrap().is_some());
            writer.commit().unwrap();
            assert_eq!((lines(reader.as_mut()).unwrap(), queue(reader.as_mut())), before, "{target}");
            if !only_reads {
                assert!(reader.update(Table::Orders, key(&[1, 1, 3]), raise).unwrap());
                assert_eq!(lines(reader.as_mut()).unwrap(), before.0 + 2, "{target}: on top of the newest");
                assert_eq!(reader.take_first(Table::NewOrders, &[1, 1]).unwrap().unwrap()[2], before.1[1], "{target}");
            }
            reader.commit().unwrap();
        }
    }
}

/// Rule 3: two that want the first row get different ones, the later after the earlier has committed; and of two that insert
/// one key one is told that it exists.
#[test]
fn nobody_takes_what_another_takes_and_no_key_comes_twice() {
    turns_of(&engines());
}

#[test]
fn nobody_takes_what_another_takes_on_a_server() {
    turns_of(servers("TREFOIL_SERVERS"));
}

#[test]
fn nobody_takes_what_another_takes_on_postgres() {
    turns_of(servers("TREFOIL_POSTGRES"));
}

fn turns_of(targets: &[&str]) {
    for target in targets {
        let dir = room();
        let engine = open(target, dir.path());
        let tables = engine.tpcc().unwrap();
        tables.create().unwrap();
        filled(tables.session().unwrap().as_mut());
        let mut first = tables.session().unwrap();
        first.begin(false).unwrap();
        assert_eq!(first.take_first(Table::NewOrders, &[1, 1]).unwrap().unwrap()[2], 1);
        let row: Row = [1, 1, 9].map(Cell::Number).into();
        first.insert(Table::NewOrders, std::slice::from_ref(&row)).unwrap();
        std::thread::scope(|scope| {
            let later = [false, true].map(|inserts| {
                let (tables, row) = (&tables, &row);
                scope.spawn(move || {
                    let mut session = tables.session().unwrap();
                    session.begin(false).unwrap();
                    let taken = if inserts {
                        session.insert(Table::NewOrders, std::slice::from_ref(row)).map(|()| 9)
                    } else {
                        session.take_first(Table::NewOrders, &[1, 1]).map(|taken| taken.unwrap()[2])
                    };
                    session.commit().unwrap();
                    taken
                })
            });
            std::thread::sleep(Duration::from_millis(100));
            assert!(later.iter().all(|thread| !thread.is_finished()), "{target}: they wait");
            first.commit().unwrap();
            let [taken, inserted] = later.map(|thread| thread.join().unwrap());
            assert_eq!(taken.unwrap(), 2, "{target}");
            assert!(matches!(inserted, Err(TargetError::Failed(_))), "{target}: {inserted:?}");
        });
    }
}

/// What was committed is there when the tables are found again, and what was not is not.
#[test]
fn tables_are_found_again() {
    found_again_on(&engines());
}

#[test]
fn tables_of_a_server_are_found_again() {
    found_again_on(servers("TREFOIL_SERVERS"));
}

#[test]
fn tables_of_postgres_are_found_again() {
    found_again_on(&servers("TREFOIL_POSTGRES")[..servers("TREFOIL_POSTGRES").len().min(1)]);
}

fn found_again_on(targets: &[&str]) {
    for target in targets {
        let dir = room();
        {
            let engine = open(target, dir.path());
            let tables = engine.tpcc().unwrap();
            tables.create().unwrap();
            let mut session = tables.session().unwrap();
            filled(session.as_mut());
            session.begin(false).unwrap();
            session.take_first(Table::NewOrders, &[1, 1]).unwrap();
            drop(session);
            drop(tables);
            engine.close().unwrap();
        }
        let engine = open(target, dir.path());
        let tables = engine.tpcc().unwrap();
        tables.attach().unwrap();
        let mut session = tables.session().unwrap();
        session.begin(true).unwrap();
        assert_eq!(queue(session.as_mut()), [1, 2, 3, 4, 5], "{target}");
        let mut last = 0;
        assert!(
            session.last_entry(Table::Orders, &[1, 1, 7].map(Cell::Number), &mut |e| last = e[3].number()).unwrap()
        );
        assert_eq!(last, 5, "{target}");
        assert!(!session.last_entry(Table::Customer, &[], &mut |_| ()).unwrap(), "{target}");
    }
}
