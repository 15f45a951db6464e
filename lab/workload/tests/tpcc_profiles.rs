//! What the transactions of TPC-C ask of an engine, counted: shares and profiles are those of the specification.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::collections::BTreeMap;

use lab_target::tpcc::{Cell, Key, Row, Session, Table, history, order_line, orders};
use lab_target::{DiskLimits, Durability, Setup, Target, TargetError, TargetSpec, registry};
use lab_workload::random::Random;
use lab_workload::tpcc::Size;
use lab_workload::tpcc::transactions::{Transaction, Transactions};
use lab_workload::tpcc::world::World;

type Result<T> = std::result::Result<T, TargetError>;

/// A session that notes what one transaction inserts, reads through an index and looks up.
struct Noting<'s> {
    inner: Box<dyn Session + 's>,
    inserted: BTreeMap<Table, Vec<Row>>,
    entries: u32,
    last_entries: u32,
    looked_up: Vec<(Table, usize)>,
}

impl Session for Noting<'_> {
    fn begin(&mut self, only_reads: bool) -> Result<()> {
        (self.entries, self.last_entries) = (0, 0);
        self.inserted.clear();
        self.looked_up.clear();
        self.inner.begin(only_reads)
    }

    fn commit(&mut self) -> Result<()> {
        self.inner.commit()
    }

    fn rollback(&mut self) {
        self.inner.rollback();
    }

    fn insert(&mut self, table: Table, rows: &[Row]) -> Result<()> {
        self.inserted.entry(table).or_default().extend(rows.iter().cloned());
        self.inner.insert(table, rows)
    }

    fn get(
        &mut self,
        table: Table,
        keys: &[Key],
        columns: &[usize],
        found: &mut dyn FnMut(usize, &[Cell<'_>]),
    ) -> Result<usize> {
        self.looked_up.push((table, keys.len()));
        self.inner.get(table, keys, columns, found)
    }

    fn update(&mut self, table: Table, key: Key, change: &mut dyn FnMut(&mut [Cell<'_>])) -> Result<bool> {
        self.inner.update(table, key, change)
    }

    fn delete(&mut self, table: Table, key: Key) -> Result<bool> {
        self.inner.delete(table, key)
    }

    fn take_first(&mut self, table: Table, prefix: &[i64]) -> Result<Option<Key>> {
        self.inner.take_first(table, prefix)
    }

    fn scan(
        &mut self,
        table: Table,
        range: (&[i64], &[i64]),
        columns: &[usize],
        each: &mut dyn FnMut(&[Cell<'_>]),
    ) -> Result<()> {
        self.inner.scan(table, range, columns, each)
    }

    fn scan_index(&mut self, table: Table, prefix: &[Cell<'_>], each: &mut dyn FnMut(&[Cell<'_>])) -> Result<()> {
        self.entries += 1;
        self.inner.scan_index(table, prefix, each)
    }

    fn last_entry(&mut self, table: Table, prefix: &[Cell<'_>], found: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool> {
        self.last_entries += 1;
        self.inner.last_entry(table, prefix, found)
    }
}

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

/// Runs `count` of a transaction of the second warehouse, where there is one, on an engine that keeps nothing.
fn run(warehouses: i64, transaction: Transaction, count: u32, mut each: impl FnMut(bool, &Noting<'_>)) {
    let target = open("null", std::path::Path::new("."));
    let tables = target.tpcc().unwrap();
    let inner = tables.session().unwrap();
    let mut session = Noting { inner, inserted: BTreeMap::new(), entries: 0, last_entries: 0, looked_up: Vec::new() };
    let world = World::new(Size { warehouses, items: 100_000, customers: 3_000 }, 5, false, 0);
    let mut transactions = Transactions::new(&world, 1, Random::new(5, 5));
    for _ in 0..count {
        let input = transactions.draw(transaction);
        let is_committed = transactions.run(&input, &mut session).unwrap();
        each(is_committed, &session);
    }
}

fn number(row: &Row, column: usize) -> i64 {
    row[column].number()
}

/// Clauses 2.4.1 and 2.4.2.3: one in a hundred is rolled back, with everything done but the line of the unused item; one line
/// in a hundred comes from another warehouse; 5 to 15 lines.
#[test]
fn new_orders_have_their_lines_and_their_rollbacks() {
    for warehouses in [1, 4] {
        let (mut all, mut rolled_back, mut remote) = (0u32, 0u32, 0u32);
        run(warehouses, Transaction::NewOrder, 10_000, |is_committed, session| {
            let (order, lines) = (&session.inserted[&Table::Orders][0], &session.inserted[&Table::OrderLine]);
            let count = number(order, orders::LINES);
            assert!((5..=15).contains(&count) && session.inserted[&Table::NewOrders].len() == 1);
            assert_eq!(lines.len() as i64, count - i64::from(!is_committed));
            let others =
                lines.iter().filter(|line| number(line, order_line::SUPPLY) != number(order, orders::WAREHOUSE));
            let others = others.count() as u32;
            assert!(!is_committed || number(order, orders::ALL_LOCAL) == i64::from(others == 0));
            assert!(lines.iter().all(|line| (1..=10).contains(&number(line, order_line::QUANTITY))));
            (all, remote) = (all + lines.len() as u32, remote + others);
            rolled_back += u32::from(!is_committed);
        });
        assert!((70..130).contains(&rolled_back), "{rolled_back} of 10000");
        assert!((97_000..103_000).contains(&all), "{all} lines");
        let share = f64::from(remote) / f64::from(all);
        assert!(if warehouses == 1 { remote == 0 } else { (0.008..0.012).contains(&share) }, "{share} are remote");
    }
}

/// Clause 2.5.1: 15 % pay elsewhere, where there is one warehouse in any of its districts; 60 % are known by name; 1.00 to
/// 5000.00.
#[test]
fn payments_come_from_other_districts_and_by_name() {
    for warehouses in [1, 4] {
        let (mut by_name, mut other_warehouse, mut other_district) = (0u32, 0, 0);
        run(warehouses, Transaction::Payment, 10_000, |_, session| {
            let row = &session.inserted[&Table::History][0];
            by_name += session.entries;
            let is_other = |one, other| u32::from(number(row, one) != number(row, other));
            other_warehouse += is_other(history::CUSTOMER_WAREHOUSE, history::WAREHOUSE);
            other_district += is_other(history::CUSTOMER_DISTRICT, history::DISTRICT);
            assert!((100..=500_000).contains(&number(row, history::AMOUNT)));
        });
        assert!((5_800..6_200).contains(&by_name), "{by_name} by name");
        let wanted = if warehouses == 1 { 0..1 } else { 1_400..1_600 };
        assert!(wanted.contains(&other_warehouse), "{other_warehouse} of another warehouse");
        assert!((1_230..1_470).contains(&other_district), "{other_district} of another district: 15 % times 9 of 10");
    }
}

/// Clause 2.6: 60 % are known by name; of the orders the last one is found without looking at those before.
#[test]
fn order_status_reads_the_last_order() {
    let mut by_name = 0;
    run(1, Transaction::OrderStatus, 5_000, |_, session| {
        assert_eq!(session.last_entries, 1);
        by_name += session.entries;
    });
    assert!((2_850..3_150).contains(&by_name), "{by_name} by name");
}

/// Clause 2.8: items of the last twenty orders, each once, whose stock at home is below the threshold.
#[test]
fn stock_level_asks_for_each_item_once() {
    let dir = tempfile::tempdir().unwrap();
    let target = open("model", dir.path());
    let tables = target.tpcc().unwrap();
    let mut session = tables.session().unwrap();
    session.begin(false).unwrap();
    let texts = |count: usize| vec![Cell::from(b"x".to_vec()); count];
    let district = [vec![1.into(), 2.into()], texts(6), [0, 0, 41].map(Cell::Number).into()].concat();
    session.insert(Table::District, &[district]).unwrap();
    for (order, item) in (1..=40).flat_map(|order| [1, order / 4 + 2].map(|item| (order, item))) {
        let number = if item == 1 { 1 } else { 2 };
        let line = [[1, 2, order, number, item, 1, 0, 5, 5].map(Cell::Number).to_vec(), texts(1)].concat();
        session.insert(Table::OrderLine, &[line]).unwrap();
    }
    for item in 1..=20 {
        let row = [[1, item, 5].map(Cell::Number).to_vec(), texts(10), [0, 0, 0].map(Cell::Number).into(), texts(1)];
        session.insert(Table::Stock, &[row.concat()]).unwrap();
    }
    session.commit().unwrap();
    let mut session =
        Noting { inner: session, inserted: BTreeMap::new(), entries: 0, last_entries: 0, looked_up: Vec::new() };
    let world = World::new(Size { warehouses: 1, items: 20, customers: 40 }, 5, true, 0);
    let mut transactions = Transactions::new(&world, 1, Random::new(5, 5));
    let input = transactions.draw(Transaction::StockLevel);
    assert!(transactions.run(&input, &mut session).unwrap());
    // Orders 21 to 40 have item 1, and 7 to 12 by fours.
    assert_eq!(session.looked_up, [(Table::District, 1), (Table::Stock, 7)]);
}
