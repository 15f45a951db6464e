//! Whole small runs on the model: sound ones pass, repeat themselves and agree; planted bugs are caught by name.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use lab_measure::record::StepRecord;
use lab_target::{DiskLimits, Durability, IndexSet, Setup, TargetSpec, registry};
use lab_workload::rows::text_pool;
use lab_workload::{Case, DeleteForm, Place, Plan, RunError, Step, Tick, Watcher, run_case};

#[derive(Default)]
struct Collector {
    records: Mutex<Vec<StepRecord>>,
    ticks: Mutex<Vec<Tick>>,
    interrupt_at: Option<&'static str>,
    interrupt: AtomicBool,
}

impl Watcher for Collector {
    fn begins(&self, _step: &str) {}

    fn tick(&self, step: &str, tick: &Tick) {
        self.ticks.lock().unwrap().push(tick.clone());
        if self.interrupt_at == Some(step) {
            self.interrupt.store(true, Ordering::Relaxed);
        }
    }

    fn finished(&self, _step: &str, record: &StepRecord) {
        let mut records = self.records.lock().unwrap();
        records.retain(|other| other.result.step != record.result.step);
        records.push(record.clone());
    }

    fn phase(&self, _text: &str) {}
}

fn plan(steps: &[&str]) -> Plan {
    Plan {
        price: lab_target::Price::Int,
        rows: 3_000,
        rows_i1: 1_500,
        rows_i2: 400,
        seconds: 1,
        warmup: 0,
        max_seconds: 0,
        settle_seconds: 0,
        steps: steps.iter().map(|step| step.to_string()).collect(),
        cases: vec![],
        index_set: IndexSet::Y2023,
        delete_form: DeleteForm::Limit,
        inserts_per_second: 0,
        htap_seconds: 0,
        seed: 7,
    }
}

fn run(target: &str, plan: &Plan, tables: u32, clients: u32) -> (Result<(), RunError>, Collector) {
    let collector = Collector::default();
    (run_into(target, plan, tables, clients, &collector), collector)
}

fn run_into(target: &str, plan: &Plan, tables: u32, clients: u32, collector: &Collector) -> Result<(), RunError> {
    let dir = tempfile::tempdir().unwrap();
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
    let target = registry::open(&TargetSpec::parse(target).unwrap(), &setup).unwrap();
    let case = Case { tables, clients, cores: None };
    let place = Place {
        target: "test",
        dir: dir.path(),
        case,
        repeat: 1,
        text: text_pool(plan.seed),
        rss_before_open_bytes: None,
        drive_rated_bytes: None,
    };
    run_case(&*target, &place, plan, &collector.interrupt, collector)
}

fn records(collector: Collector) -> Vec<StepRecord> {
    collector.records.into_inner().unwrap()
}

const LOADS: &[&str] = &["l.i0", "l.x", "l.i1", "l.i2"];

#[test]
fn sound_runs_pass_and_repeat_themselves() {
    let plan = plan(LOADS);
    let checksums = |plan: &Plan, clients| {
        let (result, collector) = run("model", plan, clients, clients);
        result.unwrap();
        records(collector).into_iter().map(|record| record.result.checksum.unwrap()).collect::<Vec<_>>()
    };
    let first = checksums(&plan, 2);
    assert_eq!(first.len(), 4);
    assert_eq!(first, checksums(&plan, 2), "the same seed leaves the same rows");
    assert_ne!(first, checksums(&Plan { seed: 8, ..plan.clone() }, 2));
    assert_ne!(first, checksums(&plan, 1));
}

/// The 2017 form: all steps, scans that see every row, and no deletes.
#[test]
fn the_form_of_2017_scans_everything_and_deletes_nothing() {
    let steps: Vec<String> = Step::FORM_2017.iter().map(|step| step.name()).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let plan = Plan { index_set: IndexSet::Y2017, seconds: 1, ..plan(&steps) };
    for (target, tables) in [("model", 1), ("trefoil", 2)] {
        let (result, collector) = run(target, &plan, tables, 2);
        result.unwrap();
        let records = records(collector);
        assert_eq!(records.iter().map(|record| record.result.step.as_str()).collect::<Vec<_>>(), steps);
        for record in &records {
            let result = &record.result;
            match result.step.as_str() {
                "load" => assert_eq!(result.throughput.rows, Some(3_000.0)),
                scan if scan.starts_with("scan.") => {
                    assert_eq!((result.throughput.rows, result.invariants.as_str()), (Some(3_000.0), "ok"), "{scan}");
                }
                "gets" => {
                    let throughput = &result.throughput;
                    assert!(result.main_rate() == throughput.qps_av);
                    assert!(throughput.qps_av.unwrap() > 0.0 && result.responses.query_p50_us.is_some());
                    assert_eq!(
                        (throughput.rows, throughput.ips_av, throughput.dps_av, result.sla_met),
                        (None, None, None, None)
                    );
                    assert!((1.0..1.5).contains(&throughput.secs.unwrap()), "{:?}", throughput.secs);
                    let queries: u64 = record.clients.iter().map(|client| client.queries).sum();
                    let fetched: u64 = record.clients.iter().map(|client| client.fetched).sum();
                    assert_eq!((throughput.ops, queries), (Some(queries as f64), fetched), "each finds one row");
                }
                query => {
                    assert!(result.throughput.qps_av.unwrap() > 0.0 && result.throughput.dps_av.is_none(), "{query}");
                    assert_eq!(record.histograms["insert"].statements, if query == "q1000" { 20 } else { 2 });
                }
            }
        }
    }
}

/// A scan that misses a row says so.
#[test]
fn a_scan_finds_a_lost_entry() {
    let (result, _) = run("model:fault=lose-entry", &plan(&["load", "scan.market"]), 1, 1);
    assert!(matches!(result, Err(RunError::Violated(_))), "{result:?}");
}

/// A look-up that finds another row than the one asked for says so.
#[test]
fn a_get_of_another_row_is_found() {
    let (result, _) = run("model:fault=wrong-get", &plan(&["l.i0", "gets"]), 1, 1);
    assert!(matches!(&result, Err(RunError::Violated(what)) if what.contains("not the row")), "{result:?}");
}

#[test]
fn counts_are_those_of_the_plan() {
    let (result, collector) = run("model", &plan(&["l.i0", "l.x", "l.i1", "settle", "l.i2"]), 1, 1);
    result.unwrap();
    let records = records(collector);
    let of = |step: &str| records.iter().find(|record| record.result.step == step).unwrap();
    assert_eq!(of("l.i0").result.throughput.rows, Some(3_000.0));
    assert_eq!(of("l.x").result.throughput.rows, Some(3_100.0));
    assert_eq!((of("l.i1").clients[0].inserted, of("l.i1").clients[0].deleted), (1_500, 1_500));
    assert_eq!(of("l.i1").histograms["insert"].statements, 30);
    assert_eq!(of("l.i2").histograms["delete"].statements, 80);
    // The settle between them is part of l.i1's costs, and of nothing else.
    assert!(of("l.i1").settle.is_some() && of("l.i2").settle.is_none());
    assert!(of("l.i1").min_key.first_ms.is_some() && of("l.i1").min_key.count == 1);
    assert!(records.iter().all(|record| record.result.invariants == "ok"));
    assert!(of("l.i0").result.steadiness.min_key_ms.is_none(), "nothing deletes in l.i0");
}

#[test]
fn clients_may_share_a_table_in_both_delete_forms() {
    for form in [DeleteForm::Limit, DeleteForm::Range] {
        let plan = Plan { delete_form: form, htap_seconds: 1, ..plan(LOADS) };
        let (result, collector) = run("model", &plan, 1, 3);
        result.unwrap();
        let records = records(collector);
        assert_eq!(records.len(), 4);
        // Keys depend on timing, so contents are not compared.
        assert!(records.iter().all(|record| record.result.checksum.is_none()));
        assert_eq!(records[2].clients.len(), 3);
        assert!(records[2].result.steadiness.fairness_pct.is_some());
    }
}

#[test]
fn query_steps_keep_their_rate_and_count_it() {
    let (result, collector) = run("model", &plan(&["l.i0", "l.x", "qr100", "qp100"]), 1, 1);
    result.unwrap();
    for record in records(collector).iter().skip(2) {
        let step = &record.result.step;
        assert_eq!(record.clients[0].inserted, 100, "{step}");
        assert_eq!(record.result.sla_met, Some(true), "{step}");
        assert!((0.95..1.5).contains(&record.result.throughput.secs.unwrap()), "{step}");
        assert!(record.result.throughput.qps_av.unwrap() > 100.0 && record.clients[0].fetched > 0, "{step}");
        assert!(record.result.responses.insert_intended_p99_us.is_some(), "{step}");
    }
}

#[test]
fn the_old_indexes_work_too() {
    let plan = Plan { index_set: IndexSet::Y2017, ..plan(&["l.i0", "l.x", "l.i1", "qr100"]) };
    run("model", &plan, 1, 1).0.unwrap();
}

#[test]
fn a_planted_bug_is_caught_after_the_step_that_made_it() {
    for (target, step, words) in [
        ("model:fault=lose-delete", "after l.i1", "rows inserted"),
        ("model:fault=lose-entry", "after l.i1", "entries for"),
        ("model:fault=flip-value", "after l.i0", "does not hold what was sent"),
    ] {
        let (result, collector) = run(target, &plan(LOADS), 1, 1);
        match result {
            Err(RunError::Violated(text)) => assert!(text.contains(step) && text.contains(words), "{target}: {text}"),
            other => panic!("{target}: {other:?}"),
        }
        let failed = &step["after ".len()..];
        assert!(records(collector).iter().all(|record| record.result.step != failed), "no number for {failed}");
    }
}

#[test]
fn a_panic_in_one_thread_ends_the_step_and_not_in_a_wait() {
    let (result, _) = run("model:fault=panic", &plan(LOADS), 2, 2);
    assert!(matches!(&result, Err(RunError::Target(error)) if error.to_string().contains("panicked")), "{result:?}");
}

#[test]
fn a_target_that_stores_nothing_is_not_called_ok() {
    let (result, collector) = run("null", &plan(LOADS), 1, 1);
    result.unwrap();
    assert!(records(collector).iter().all(|record| record.result.invariants.starts_with("not checked")));
}

#[test]
fn an_interrupt_ends_a_step_without_a_number() {
    let plan = Plan { seconds: 60, ..plan(&["l.i0", "l.x", "qr100"]) };
    let collector = Collector { interrupt_at: Some("qr100"), ..Collector::default() };
    let result = run_into("model", &plan, 1, 1, &collector);
    assert!(matches!(result, Err(RunError::Interrupted)), "{result:?}");
    assert!(!collector.ticks.lock().unwrap().is_empty());
    assert_eq!(records(collector).len(), 2);
}

#[test]
fn the_time_limit_ends_a_step_and_says_so() {
    let plan = Plan { seconds: 60, max_seconds: 1, ..plan(&["l.i0", "l.x", "qr100"]) };
    let (result, collector) = run("model", &plan, 1, 1);
    result.unwrap();
    let record = records(collector).pop().unwrap();
    assert!(record.result.throughput.secs.unwrap() < 5.0);
    assert!(record.notes.iter().any(|note| note.contains("--max-seconds")), "{:?}", record.notes);
}

#[test]
fn a_missed_rate_is_seen_and_its_lost_time_counted() {
    // 20 statements a second, each 100 ms long: half the rate.
    let plan = plan(&["l.i0", "l.x", "qr1000"]);
    let (result, collector) = run("model:pause_ms=100,pause_every=1", &plan, 1, 1);
    result.unwrap();
    let record = records(collector).pop().unwrap();
    assert_eq!(record.result.sla_met, Some(false));
    let responses = &record.result.responses;
    assert!(responses.insert_p99_us.unwrap() < 300_000.0, "{responses:?}");
    assert!(responses.insert_intended_p99_us.unwrap() > 500_000.0, "{responses:?}");
    assert!(record.result.steadiness.stall_max_ms.unwrap() > 500.0);
    assert!(record.result.steadiness.stalls.unwrap() >= 1.0);
}

#[test]
fn a_stall_without_a_pace_is_seen() {
    // One client: a pause of its inserter stops the deleter eight statements later.
    let plan = Plan { rows: 20_000, ..plan(&["l.i0"]) };
    let (result, collector) = run("model:pause_ms=120,pause_every=150", &plan, 1, 1);
    result.unwrap();
    let record = records(collector).pop().unwrap();
    assert_eq!(record.result.steadiness.stalls, Some(1.0));
    assert!(record.result.steadiness.stall_max_ms.unwrap() >= 120.0);
    assert_eq!(record.stalls.len(), 1);
}

#[test]
fn a_warm_up_is_not_measured() {
    let plan = Plan { warmup: 1, ..plan(&["l.i0", "l.x", "qr100"]) };
    let (result, collector) = run("model", &plan, 1, 1);
    result.unwrap();
    let record = records(collector).pop().unwrap();
    assert_eq!(record.clients[0].inserted, 100, "two seconds ran, one counts");
    assert!(record.result.throughput.secs.unwrap() < 1.6);
}

/// The engine's own check runs after the last step, a settle too, which then is added to no load.
#[test]
fn the_engines_own_check_ends_the_run() {
    for (steps, recorded) in [(&["l.i0", "settle"][..], 1), (&["l.i0", "l.x"], 1)] {
        let (result, collector) = run("model:fault=damage", &plan(steps), 1, 1);
        let records = records(collector);
        let text = result.unwrap_err().to_string();
        assert!(text.contains("the engine's own check: model: planted damage"), "{text}");
        assert_eq!(records.len(), recorded, "{records:?}");
        assert!(records.iter().all(|record| record.settle.is_none()));
    }
}
