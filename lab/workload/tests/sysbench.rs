//! Whole small runs of sysbench: sound ones pass on the model and on the engine, planted bugs are caught by name.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use lab_measure::record::StepRecord;
use lab_target::{DiskLimits, Durability, Setup, TargetSpec, registry};
use lab_workload::rows::text_pool;
use lab_workload::sysbench::catalogue::TODAY;
use lab_workload::sysbench::{Plan, run_case};
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

fn run(target: &str, tests: &[&str], tables: u32, clients: u32) -> (Result<(), RunError>, Vec<StepRecord>) {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan {
        rows: 600 * u64::from(tables),
        seconds: 1,
        warmup: 0,
        max_seconds: 0,
        settle_seconds: 0,
        steps: ["load", "settle"].iter().chain(tests).map(|step| (*step).to_owned()).collect(),
        cases: vec![],
        seed: 7,
    };
    let setup = Setup {
        dir: dir.path().into(),
        durability: Durability::Write,
        budget_bytes: None,
        io: None,
        compression: None,
        disk: DiskLimits::default(),
        seed: plan.seed,
        price: lab_target::Price::Int,
    };
    let open = registry::open(&TargetSpec::parse(target).unwrap(), &setup).unwrap();
    let place = Place {
        target,
        dir: dir.path(),
        case: Case { tables, clients, cores: None },
        repeat: 1,
        text: text_pool(plan.seed),
        rss_before_open_bytes: None,
        drive_rated_bytes: None,
    };
    let collector = Collector::default();
    let result = run_case(&*open, &place, &plan, &AtomicBool::new(false), &collector);
    (result, collector.0.into_inner().unwrap())
}

/// What all reads and writes of one event do, most of them beside each other.
const MOST: &[&str] = &[
    "read-only.100.pre",
    "update-inlist",
    "update-index",
    "read-write.10",
    "range-notcovered-si",
    "points-notcovered-si",
    "delete",
    "insert",
    "read-only.100",
];

#[test]
fn the_model_passes_with_clients_that_meet() {
    let (result, records) = run("model", MOST, 2, 3);
    result.unwrap();
    assert_eq!(records.len(), 1 + MOST.len());
}

#[test]
fn the_engine_passes_with_clients_that_meet() {
    let (_, model_records) = run("model", &[], 2, 3);
    let (result, records) = run("trefoil:node_size=4096", MOST, 2, 3);
    result.unwrap();
    assert_eq!(records.len(), 1 + MOST.len());
    assert_eq!(records[0].result.checksum, model_records[0].result.checksum, "the same rows after the load");
    for record in &records {
        let result = &record.result;
        assert_eq!((result.workload.as_str(), result.invariants.as_str()), ("sysbench", "ok"));
        if result.step == "load" {
            assert_eq!((result.throughput.rows, result.throughput.ops), (Some(1_200.0), Some(1_200.0)));
            assert!(record.settle.is_some() && !result.is_query_step());
            continue;
        }
        assert!(result.is_query_step() && result.main_rate().unwrap() > 0.0, "{}", result.step);
        let events = record.histograms["query"].statements as f64;
        let statements = match result.step.as_str() {
            step if step.starts_with("read-only") => 16.0,
            "read-write.10" => 20.0,
            _ => 1.0,
        };
        assert_eq!(result.throughput.ops, Some(events * statements), "{}", result.step);
        let (tpm, secs) = (result.throughput.tpm.unwrap(), result.throughput.secs.unwrap());
        assert!((tpm * secs / 60.0 - events).abs() < 1e-6 * events, "{}", result.step);
        assert!(result.throughput.retries.is_some());
    }
}

/// A statement a second and client, many rows of it: the pause is neither a response nor a stall.
#[test]
fn a_rate_of_updates_pauses_and_changes_what_it_says() {
    for target in ["model", "trefoil:node_size=4096"] {
        let (result, records) = run(target, &["update-rate.50", "read-only-sum.50"], 1, 2);
        result.unwrap();
        let record = records.iter().find(|record| record.result.step == "update-rate.50").unwrap();
        let statements = record.histograms["query"].statements;
        assert!((2..=4).contains(&statements), "{target}: {statements} of two clients in a second");
        assert!(record.result.responses.max_us < Some(500_000.0), "{:?}", record.result.responses);
        assert_eq!(record.result.steadiness.stalls, None);
    }
}

/// One second each is too long for a test of every step, so the null target: it answers at once.
#[test]
fn every_test_of_today_runs_and_what_is_not_checked_is_not_called_ok() {
    let few: Vec<&str> = TODAY.iter().copied().step_by(5).collect();
    let (result, records) = run("null", &few, 8, 2);
    result.unwrap();
    assert!(records.iter().all(|record| record.result.invariants.starts_with("not checked")));
    assert!(records.len() >= few.len());
}

#[test]
fn a_planted_bug_is_caught_in_the_test_that_meets_it() {
    for (target, test, words) in [
        ("model:fault=wrong-get", "point-query", "not a text of this row"),
        ("model:fault=short-range", "read-only-sum.50", "rows with the sum"),
        ("model:fault=short-range", "read-only-order.50", "texts cannot be"),
        ("model:fault=short-range", "range-covered-pk", "cannot be"),
        ("model:fault=lose-update", "update-index", "after update-index: table 1: the sum of k should be"),
        ("model:fault=lose-update", "update-rate.20", "after update-rate.20: table 1: the sum of k should be"),
        ("model:fault=lose-entry", "update-index", "entries for"),
        ("model:fault=lose-delete", "delete", "rows should be there"),
        ("model:fault=flip-value", "point-query", "after load: table 1: a row does not hold what was sent"),
    ] {
        let (result, records) = run(target, &[test], 1, 1);
        match result {
            Err(RunError::Violated(text)) => assert!(text.contains(words), "{target}: {text}"),
            other => panic!("{target}: {other:?}"),
        }
        assert!(records.iter().all(|record| record.result.step != test), "no number for {test}");
    }
}

/// Half of a transaction's writes are taken back with it, and another event is started: nothing is lost or done twice.
#[test]
fn a_conflict_starts_the_event_again_and_is_counted() {
    let (result, records) = run("model:fault=conflict", &["write-only", "update-index"], 1, 2);
    result.unwrap();
    assert!(records[1..].iter().all(|record| record.result.throughput.retries.unwrap() > 0.0));
}

#[test]
fn a_panic_in_one_thread_ends_the_step_and_not_in_a_wait() {
    let (result, _) = run("model:fault=panic", &["read-write.10"], 1, 3);
    assert!(matches!(&result, Err(RunError::Target(error)) if error.to_string().contains("panicked")), "{result:?}");
}

/// The engine's own check runs after the last step, a settle too, which then is added to no load.
#[test]
fn the_engines_own_check_ends_the_run() {
    for (tests, recorded) in [(&[][..], 1), (&["read-only.10"], 1), (&["update-index"], 1)] {
        let (result, records) = run("model:fault=damage", tests, 1, 1);
        let text = result.unwrap_err().to_string();
        assert!(text.contains("the engine's own check: model: planted damage"), "{text}");
        assert_eq!(records.len(), recorded, "{records:?}");
        assert_eq!(records[0].settle.is_some(), !tests.is_empty());
    }
}
