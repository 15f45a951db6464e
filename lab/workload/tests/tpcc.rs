//! Whole small runs of TPC-C: sound ones pass on the model and on the engine; each condition finds what breaks it.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use lab_measure::record::StepRecord;
use lab_target::tpcc::{
    Cell, Row, Session, Table, customer, district, history, key, order_line, orders, stock, warehouse,
};
use lab_target::{DiskLimits, Durability, Setup, Target, TargetSpec, registry};
use lab_workload::rows::text_pool;
use lab_workload::tpcc::check::contents;
use lab_workload::tpcc::conditions::{Broken, Expected, broken};
use lab_workload::tpcc::crash::{Acknowledged, check, counts};
use lab_workload::tpcc::sequence::fill;
use lab_workload::tpcc::world::{Counts, Deed};
use lab_workload::tpcc::{Plan, run_case};
use lab_workload::{Case, Place, RunError, Tick, Watcher};

#[derive(Default)]
struct Collector(Mutex<Vec<StepRecord>>);

impl Watcher for Collector {
    fn begins(&self, _step: &str) {}

    fn tick(&self, _step: &str, _tick: &Tick) {}

    fn finished(&self, _step: &str, record: &StepRecord) {
        let mut records = self.0.lock().unwrap();
        records.retain(|other| other.result.step != record.result.step);
        records.push(record.clone());
    }

    fn phase(&self, _text: &str) {}
}

fn open(target: &str, dir: &Path) -> Box<dyn Target> {
    let setup = Setup {
        dir: dir.into(),
        durability: Durability::Write,
        budget_bytes: None,
        io: None,
        compression: None,
        disk: DiskLimits::default(),
        seed: 7,
        price: lab_target::Price::Int,
    };
    registry::open(&TargetSpec::parse(target).unwrap(), &setup).unwrap()
}

fn plan_of(warehouses: u32, steps: &[&str]) -> Plan {
    Plan {
        warehouses,
        scale: 100,
        seconds: 1,
        warmup: 0,
        max_seconds: 0,
        settle_seconds: 0,
        steps: ["load"].iter().chain(steps).map(|step| (*step).to_owned()).collect(),
        cases: vec![],
        seed: 7,
    }
}

fn run(target: &str, warehouses: u32, clients: u32, steps: &[&str]) -> (Result<(), RunError>, Vec<StepRecord>) {
    let dir = tempfile::tempdir().unwrap();
    let open = open(target, dir.path());
    let place = Place {
        target,
        dir: dir.path(),
        case: Case { tables: warehouses, clients, cores: None },
        repeat: 1,
        text: text_pool(7),
        rss_before_open_bytes: None,
        drive_rated_bytes: None,
    };
    let collector = Collector::default();
    let result = run_case(&*open, &place, &plan_of(warehouses, steps), &AtomicBool::new(false), &collector);
    (result, collector.0.into_inner().unwrap())
}

#[test]
fn the_model_and_the_engine_pass_with_sessions_that_meet() {
    let (result, of_model) = run("model", 2, 3, &["settle", "run", "snapshot"]);
    result.unwrap();
    let (result, records) = run("trefoil:node_size=4096", 2, 3, &["settle", "run", "snapshot"]);
    result.unwrap();
    assert_eq!(records[0].result.checksum, of_model[0].result.checksum, "the same rows after the load");
    let steps: Vec<&str> = records.iter().map(|record| record.result.step.as_str()).collect();
    assert_eq!(steps, ["load", "run", "snapshot"]);
    assert!(records[0].settle.is_some() && records[0].result.checksum.is_some());
    for record in &records[1..] {
        let result = &record.result;
        assert_eq!((result.workload.as_str(), result.invariants.as_str()), ("tpcc", "ok"));
        let (tpm, nopm, secs) =
            (result.throughput.tpm.unwrap(), result.throughput.nopm.unwrap(), result.throughput.secs.unwrap());
        let count = |name: &str| result.transactions[name].count.unwrap();
        let all: f64 = result.transactions.values().map(|kind| kind.count.unwrap()).sum();
        assert!((tpm * secs / 60.0 - all).abs() < 1e-6 * all && result.throughput.ops == Some(all));
        let committed = count("new-order") - result.transactions["new-order"].rolled_back.unwrap();
        assert!((nopm * secs / 60.0 - committed).abs() < 1e-6 * all);
        assert!(result.costs.cores_cpu_pct.is_some() && result.throughput.retries.is_some());
        assert!(
            record.notes.iter().any(|note| note.contains("not of standard size: 1000 items")),
            "{:?}",
            record.notes
        );
        assert!(record.notes.iter().any(|note| note.contains("not tpmC")));
        if all > 500.0 {
            let share = count("payment") / all;
            assert!((0.35..0.5).contains(&share), "{share} of the transactions are payments");
        }
    }
    let told = records[2].notes.iter().find(|note| note.contains("snapshots beside")).unwrap();
    assert!(!told.contains(" in 0 snapshots"), "{told}");
}

#[test]
fn what_is_not_checked_is_not_called_ok() {
    let (result, records) = run("null", 1, 2, &["run"]);
    result.unwrap();
    assert!(records.iter().all(|record| record.result.invariants.starts_with("not checked")));
}

#[test]
fn a_planted_bug_is_caught_and_its_step_has_no_number() {
    for (fault, step, words) in [
        ("flip-value", "load", "after load: a row does not hold what was sent"),
        ("lose-update", "run", "condition 10"),
        ("lose-entry", "run", "entries for"),
        ("lose-delete", "run", "delivered twice"),
        ("panic", "load", "panicked"),
    ] {
        let (result, records) = run(&format!("model:fault={fault}"), 1, 2, &["run"]);
        let text = result.err().map_or_else(String::new, |error| error.to_string());
        assert!(text.contains(words), "{fault}: {text}");
        assert!(records.iter().all(|record| record.result.step != step), "no number for {step}");
    }
}

/// A transaction that is refused in its middle is taken back whole, run again as it was drawn, and counted by reason.
#[test]
fn a_conflict_runs_the_transaction_again_and_is_counted() {
    let (result, records) = run("model:fault=conflict", 1, 2, &["run"]);
    result.unwrap();
    let result = &records[1].result;
    assert!(result.throughput.retries.unwrap() > 0.0 && result.transactions["delivery"].retries.unwrap() > 0.0);
    assert!(records[1].notes.iter().any(|note| note.starts_with("run again: ") && note.ends_with(" conflict")));
}

/// What does not hold after something was done to freshly loaded tables.
fn after(harm: impl FnOnce(&mut dyn Session), expected: impl FnOnce(&mut Counts)) -> Vec<Broken> {
    let dir = tempfile::tempdir().unwrap();
    let target = open("model", dir.path());
    let tables = target.tpcc().unwrap();
    tables.create().unwrap();
    let mut session = tables.session().unwrap();
    let plan = plan_of(1, &["run"]);
    fill(session.as_mut(), &plan).unwrap();
    session.begin(false).unwrap();
    harm(session.as_mut());
    session.commit().unwrap();
    let mut counts = Counts::none(&plan.size());
    expected(&mut counts);
    session.begin(true).unwrap();
    broken(session.as_mut(), plan.size(), &Expected::exactly(counts)).unwrap()
}

fn add(session: &mut dyn Session, table: Table, columns: &[i64], column: usize, more: i64) {
    let there = session.update(table, key(columns), &mut |row| row[column] = Cell::Number(row[column].number() + more));
    assert!(there.unwrap());
}

/// Reads a whole row, to put it back otherwise.
fn row_of(session: &mut dyn Session, table: Table, columns: &[i64]) -> Row {
    let all: Vec<usize> = (0..table.definition().columns.len()).collect();
    let mut row = Row::new();
    session.get(table, &[key(columns)], &all, &mut |_, cells| row = cells.iter().map(Cell::owned).collect()).unwrap();
    row
}

/// Each condition is broken, with as few others as can be: 8 follows from 1 and 9, 12 is broken alone.
#[test]
fn each_condition_finds_what_breaks_it() {
    assert_eq!(after(|_| (), |_| ()), []);
    type Harm = fn(&mut dyn Session);
    let cases: &[(u32, &[u32], Harm)] = &[
        (1, &[1, 9], |session| add(session, Table::District, &[1, 3], district::YTD, 1)),
        (2, &[2], |session| add(session, Table::District, &[1, 3], district::NEXT_ORDER, 1)),
        (3, &[3, 5, 11], |session| assert!(session.delete(Table::NewOrders, key(&[1, 2, 25])).unwrap())),
        (4, &[4, 6], |session| add(session, Table::Orders, &[1, 4, 7], orders::LINES, 1)),
        (5, &[5, 7], |session| {
            session.update(Table::Orders, key(&[1, 5, 30]), &mut |row| row[orders::CARRIER] = 3.into()).unwrap();
        }),
        (6, &[6], |session| {
            add(session, Table::Orders, &[1, 4, 7], orders::LINES, 1);
            add(session, Table::Orders, &[1, 4, 8], orders::LINES, -1);
        }),
        (7, &[7], |session| {
            let change = &mut |row: &mut [Cell<'_>]| row[order_line::DELIVERED] = Cell::Null;
            session.update(Table::OrderLine, key(&[1, 6, 2, 1]), change).unwrap();
        }),
        (8, &[1, 8], |session| add(session, Table::Warehouse, &[1], warehouse::YTD, 1)),
        (9, &[9], |session| {
            add(session, Table::District, &[1, 3], district::YTD, 1);
            add(session, Table::District, &[1, 4], district::YTD, -1);
        }),
        (10, &[10], |session| {
            add(session, Table::Customer, &[1, 7, 9], customer::BALANCE, 5);
            add(session, Table::Customer, &[1, 7, 9], customer::YTD_PAYMENT, -5);
        }),
        (11, &[2, 5, 11], |session| {
            (22..=30).for_each(|order| assert!(session.delete(Table::NewOrders, key(&[1, 8, order])).unwrap()));
            (31..=39).for_each(|order| {
                session.insert(Table::NewOrders, &[[1, 8, order].map(Cell::Number).into()]).unwrap();
            });
            assert!(session.take_first(Table::NewOrders, &[1, 8]).unwrap().is_some());
        }),
        (12, &[12], |session| add(session, Table::Customer, &[1, 9, 9], customer::YTD_PAYMENT, 1)),
    ];
    for (condition, wanted, harm) in cases {
        let found: Vec<u32> = after(harm, |_| ()).iter().map(|broken| broken.condition).collect();
        assert!(found.contains(condition), "condition {condition} was broken, found {found:?}");
        assert_eq!(found, *wanted, "condition {condition}");
    }
}

/// An order that was acknowledged and is not there, as after a lost commit: nothing else is wrong.
#[test]
fn what_was_acknowledged_has_to_be_there() {
    let place = 3;
    let lost = after(|_| (), |counts| counts.add(Deed::Ordered { place, order: 31 }));
    assert!(lost[0].condition == 0 && lost[0].text.contains("district 1/4: 30 orders, should be 31..=31"), "{lost:?}");
    let lost = after(|_| (), |counts| counts.add(Deed::Paid { place }));
    assert!(lost[0].text.contains("district 1/4: 30 payments"), "{lost:?}");
    let lost = after(|_| (), |counts| counts.add(Deed::Delivered { place }));
    assert_eq!(lost.iter().map(|broken| broken.condition).collect::<Vec<_>>(), [11]);
    let strange = after(
        |session| {
            let mut row = row_of(session, Table::History, &[1]);
            row[history::HIDDEN] = Cell::Number(1 << 40);
            row[history::AMOUNT] = Cell::Number(0);
            session.insert(Table::History, &[row]).unwrap();
        },
        |_| (),
    );
    assert!(strange.len() == 1 && strange[0].text.contains("31 payments, should be 30..=30"), "{strange:?}");
}

/// A change of the stock that is lost, which none of the twelve sees; a row that is gone where none is ever deleted.
#[test]
fn stock_says_what_the_lines_say_and_has_all_its_rows() {
    for column in [stock::YTD, stock::ORDERS, stock::REMOTE] {
        let found = after(|session| add(session, Table::Stock, &[1, 7], column, 1), |_| ());
        assert!(found.len() == 1 && found[0].text.contains("stock of warehouse 1"), "{found:?}");
    }
    let target = open("model", Path::new("."));
    let tables = target.tpcc().unwrap();
    let (mut session, plan) = (tables.session().unwrap(), plan_of(1, &["run"]));
    fill(session.as_mut(), &plan).unwrap();
    contents(session.as_mut(), plan.size()).unwrap();
    // The first table that is wrong is named: from the last to the first.
    for (table, row, words) in [
        (Table::Stock, key(&[1, 9]), "stock: 999 rows, should be 1000"),
        (Table::Customer, key(&[1, 2, 9]), "customer: 299 rows, should be 300"),
        (Table::Item, key(&[9]), "item: 999 rows, should be 1000"),
    ] {
        session.begin(false).unwrap();
        assert!(session.delete(table, row).unwrap());
        session.commit().unwrap();
        let error = contents(session.as_mut(), plan.size()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        session.rollback();
    }
}

/// As after a crash that lost what was acknowledged; a durability that may lose it is not blamed.
#[test]
fn an_acknowledged_order_that_a_crash_lost_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let target = open("trefoil", dir.path());
    let plan = plan_of(1, &["run", "crash"]);
    {
        let tables = target.tpcc().unwrap();
        tables.create().unwrap();
        fill(tables.session().unwrap().as_mut(), &plan).unwrap();
    }
    let before = counts(&*target, &plan).unwrap();
    assert_eq!(before, Counts::none(&plan.size()));
    let lost = |said: &str, may_lose: bool| {
        let acknowledged = Acknowledged::parse(said).unwrap();
        let found = check(&*target, &plan, (&before, &acknowledged), (2, may_lose));
        found.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(lost("", false), "");
    let told = lost("o 3 31\n", false);
    assert!(told.contains("process was killed: district 1/4: 30 orders, should be 31..=33"), "{told}");
    assert!(lost("p 3\n", false).contains("30 payments, should be 31..=33"));
    assert!(lost("d 3\n", false).contains("condition 11"));
    assert_eq!(lost("o 3 31\np 3\n", true), "");
}

/// The engine's own check runs after the last step, a settle too, which then is added to no load.
#[test]
fn the_engines_own_check_ends_the_run() {
    for (steps, recorded) in [(&["settle"][..], 1), (&["run"], 1), (&[], 0)] {
        let (result, records) = run("model:fault=damage", 1, 1, steps);
        let text = result.unwrap_err().to_string();
        assert!(text.contains("the engine's own check: model: planted damage"), "{text}");
        assert_eq!(records.len(), recorded, "{records:?}");
        assert!(records.iter().all(|record| record.settle.is_none()));
    }
}
