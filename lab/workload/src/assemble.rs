//! From the totals of a step to the record that is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use lab_measure::formula::{Columns, Facts, fairness_pct, rate_percentile, sla_rate};
use lab_measure::record::StepRecord;
use lab_measure::result::{Costs, LastQuarter, Repeat, Responses, SCHEMA, Space, Steadiness, StepResult, Throughput};
use lab_measure::stall::{Span, slow_seconds};
use lab_measure::{Difference, Kind, Series};
use lab_target::{Counters, Description, Sizes};

use crate::check::Checked;
use crate::plan::{Case, QueryKind, Step, Work};
use crate::totals::Totals;

/// Most stalls that are kept one by one.
const KEPT_STALLS: usize = 100;
const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * 1024.0;

/// What is the same for all steps of a run on a target.
#[derive(Clone, Debug)]
pub struct About {
    /// The target string.
    pub target: String,
    /// What the target says about itself.
    pub description: Description,
    /// The repetition, from 1.
    pub repeat: u32,
    /// Tables and clients.
    pub case: Case,
    /// Resident memory before the target was opened.
    pub rss_before_open_bytes: Option<u64>,
    /// What the drive may write in its life.
    pub drive_rated_bytes: Option<u64>,
}

/// What was read before and after the step.
#[derive(Clone, Debug)]
pub struct Around {
    /// The engine's counters before.
    pub counters_before: Counters,
    /// The engine's counters after.
    pub counters_after: Counters,
    /// Bytes on disk after.
    pub sizes: Sizes,
    /// The invariants.
    pub checked: Checked,
}

/// What kind of step it was.
#[derive(Clone, Debug)]
pub struct StepKind {
    /// The workload.
    pub workload: &'static str,
    /// The step's name.
    pub name: String,
    /// Whether operations are queries.
    pub is_query_step: bool,
    /// Whether it was made of statements, whose gaps are stalls.
    pub has_statements: bool,
    /// Whether it ends when so many rows are written, so that clients can be unequally slow.
    pub to_fixed_rows: bool,
    /// The pace, in rows a second and client.
    pub paced_at: Option<u64>,
    /// The rate that has to be kept, over all clients, and whether deletes have to keep it too.
    pub agreed: Option<(f64, bool)>,
}

impl StepKind {
    /// Of a load, or of a step that ends by the clock.
    pub(crate) fn plain(workload: &'static str, name: &str, is_query_step: bool) -> StepKind {
        StepKind {
            workload,
            name: name.to_owned(),
            is_query_step,
            has_statements: true,
            to_fixed_rows: false,
            paced_at: None,
            agreed: None,
        }
    }

    /// Of a step of the insert benchmark; `work` is `None` for the index build and for scans.
    #[must_use]
    pub fn of(step: Step, work: Option<Work>, clients: u32) -> StepKind {
        let asks = work.is_some_and(|work| work.query.is_some());
        let agreed = match step {
            Step::Query(kind @ (QueryKind::Range | QueryKind::Points | QueryKind::Range2017), rate) => {
                Some((sla_rate(clients, rate), kind != QueryKind::Range2017))
            }
            _ => None,
        };
        StepKind {
            workload: "ibench",
            name: step.name(),
            is_query_step: matches!(step, Step::Query(..)),
            has_statements: work.is_some(),
            to_fixed_rows: work.is_some() && !asks,
            paced_at: work.and_then(|work| work.pace),
            agreed,
        }
    }
}

/// Makes the record of a step.
#[must_use]
pub fn record(about: &About, step: StepKind, totals: Totals, around: Around) -> StepRecord {
    let facts = facts(&step, &totals, &around.sizes);
    let cores = facts.cpus;
    let result = StepResult {
        schema: SCHEMA.into(),
        target: about.target.clone(),
        version: about.description.version.clone(),
        config: about.description.config.clone(),
        workload: step.workload.into(),
        step: step.name.clone(),
        tables: about.case.tables,
        clients: about.case.clients,
        cores,
        repeat: Repeat::Number(about.repeat),
        sla_met: sla_met(&step, &facts),
        invariants: around.checked.verdict.clone(),
        checksum: around.checked.checksum.clone(),
        throughput: throughput(&facts, &totals),
        responses: responses(&step, &totals),
        costs: costs(&facts, step.has_statements),
        space: space(&facts, around.checked.rows),
        steadiness: Steadiness {
            drive_life_years: drive_life_years(about, &totals.kernel, &around),
            ..steadiness(&step, &totals, &around.counters_after)
        },
        last_quarter: last_quarter(&totals).unwrap_or_default(),
        transactions: Default::default(),
    };
    let tag = format!("{}.{}", about.description.engine, about.description.config);
    let mut stalls: Vec<Span> = totals.stalls.clone();
    stalls.sort_by_key(|span| std::cmp::Reverse(span.length_ns()));
    stalls.truncate(KEPT_STALLS);
    let used: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| totals.kinds[*kind as usize].statements > 0).collect();
    let by_kind = |of: &dyn Fn(usize) -> Series| {
        used.iter().map(|kind| (kind.name().to_owned(), of(*kind as usize))).collect::<BTreeMap<_, _>>()
    };
    StepRecord {
        schema: SCHEMA.into(),
        columns: Columns::of(&facts, &tag),
        rss_before_open_bytes: about.rss_before_open_bytes,
        paced_at: step.paced_at,
        transactions: Default::default(),
        series: by_kind(&|kind| totals.kinds[kind].series.clone()),
        by_client: totals.of_clients.iter().map(|client| by_kind(&|kind| client[kind].clone())).collect(),
        histograms: used.iter().map(|kind| (kind.name().to_owned(), totals.kinds[*kind as usize].kept())).collect(),
        threads: Kind::ALL
            .into_iter()
            .filter(|kind| totals.threads[*kind as usize].threads > 0)
            .map(|kind| (kind.name().to_owned(), totals.threads[kind as usize]))
            .collect(),
        stalls,
        notes: notes(&totals, &around.checked, &result),
        clients: totals.clients,
        min_key: totals.min_key,
        kernel: totals.kernel,
        settle: None,
        counters_before: around.counters_before,
        counters_after: around.counters_after,
        size_classes: around.sizes.classes,
        levels: totals.levels,
        costs: totals.costs,
        result,
    }
}

impl StepKind {
    fn main(&self) -> Kind {
        if self.is_query_step { Kind::Query } else { Kind::Insert }
    }
}

fn facts(step: &StepKind, totals: &Totals, sizes: &Sizes) -> Facts {
    let (is_query_step, main) = (step.is_query_step, step.main());
    Facts {
        is_query_step,
        secs: totals.secs,
        rows: totals.kinds[Kind::Insert as usize].amount,
        deleted: totals.kinds[Kind::Delete as usize].amount,
        queries: totals.kinds[Kind::Query as usize].amount,
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
        kernel: totals.kernel.clone(),
        data_bytes: sizes.data_bytes,
        total_bytes: sizes.total_bytes,
        rss_bytes: (totals.rss_bytes > 0).then_some(totals.rss_bytes),
        largest_response_secs: totals.kinds[main as usize].service.max_us().map(|us| us / 1e6),
        first_client: totals.of_clients.first().map(|client| client[main as usize].clone()).unwrap_or_default(),
    }
}

fn sla_met(step: &StepKind, facts: &Facts) -> Option<bool> {
    let (wanted, with_deletes) = step.agreed?;
    let deletes = facts.deleted as f64 / facts.secs.max(1e-9);
    Some(facts.insert_rate() >= wanted && (!with_deletes || deletes >= wanted))
}

fn throughput(facts: &Facts, totals: &Totals) -> Throughput {
    let length_ns = (totals.secs * 1e9) as u64;
    let percentile = |kind: Kind| {
        let kind = &totals.kinds[kind as usize];
        (kind.statements > 0).then(|| rate_percentile(kind.series.whole(length_ns), 99.0)).flatten()
    };
    let done = |kind: Kind| totals.kinds[kind as usize].statements > 0;
    let inserts = !facts.is_query_step || done(Kind::Insert);
    Throughput {
        rows: inserts.then_some(facts.rows as f64),
        ops: Some(if facts.is_query_step { facts.queries } else { facts.rows } as f64),
        secs: Some(facts.secs),
        ips_av: inserts.then(|| facts.insert_rate()),
        ips_99: percentile(Kind::Insert),
        dps_av: done(Kind::Delete).then(|| facts.deleted as f64 / facts.secs.max(1e-9)),
        qps_av: facts.is_query_step.then(|| facts.query_rate()),
        qps_99: percentile(Kind::Query),
        tpm: None,
        nopm: None,
        // An error ends the run, so a step that has a number had none of either.
        aborts: done(Kind::Insert).then_some(0.0),
        retries: done(Kind::Insert).then_some(0.0),
    }
}

fn last_quarter(totals: &Totals) -> Option<LastQuarter> {
    let quarter = totals.last_quarter.as_ref().filter(|quarter| quarter.rows > 0)?;
    let (kernel, rows) = (&quarter.kernel, quarter.rows as f64);
    let seconds = totals.kinds[Kind::Insert as usize].series.whole((totals.secs * 1e9) as u64);
    let whole = seconds.get(quarter.from_secs.ceil() as usize..).unwrap_or_default();
    Some(LastQuarter {
        last_quarter_secs: Some(kernel.secs),
        last_quarter_ips_av: Some(rows / kernel.secs.max(1e-9)),
        last_quarter_ips_99: rate_percentile(whole, 99.0),
        last_quarter_cpu_us_per_insert: kernel.process_cpu_secs.map(|secs| secs * 1e6 / rows),
        last_quarter_wkb_per_insert: kernel.process_write_bytes.map(|bytes| bytes as f64 / KIB / rows),
    })
}

fn responses(step: &StepKind, totals: &Totals) -> Responses {
    let quantile = |kind: Kind, share: f64| totals.kinds[kind as usize].service.quantile_us(share);
    let largest = |kind: Kind| totals.kinds[kind as usize].service.max_us();
    let intended = |kind: Kind| totals.kinds[kind as usize].intended.as_ref()?.quantile_us(0.99);
    let main = step.main();
    Responses {
        insert_p50_us: quantile(Kind::Insert, 0.5),
        insert_p99_us: quantile(Kind::Insert, 0.99),
        insert_p999_us: quantile(Kind::Insert, 0.999),
        insert_max_us: largest(Kind::Insert),
        insert_intended_p99_us: intended(Kind::Insert),
        delete_p50_us: quantile(Kind::Delete, 0.5),
        delete_p99_us: quantile(Kind::Delete, 0.99),
        delete_p999_us: quantile(Kind::Delete, 0.999),
        delete_max_us: largest(Kind::Delete),
        delete_intended_p99_us: intended(Kind::Delete),
        query_p50_us: quantile(Kind::Query, 0.5),
        query_p99_us: quantile(Kind::Query, 0.99),
        query_p999_us: quantile(Kind::Query, 0.999),
        query_max_us: largest(Kind::Query),
        p50_us: quantile(main, 0.5),
        p99_us: quantile(main, 0.99),
        p999_us: quantile(main, 0.999),
        max_us: largest(main),
    }
}

/// Bytes and processor time of the engine's process, reads of the device; see [`lab_measure::result`].
fn costs(facts: &Facts, has_statements: bool) -> Costs {
    let kernel = &facts.kernel;
    let (inserts, queries) = (facts.rows as f64, facts.queries as f64);
    let operations = if facts.is_query_step { queries } else { inserts };
    let per = |amount: Option<f64>, count: f64| amount.filter(|_| count > 0.0).map(|amount| amount / count);
    let number = |count: Option<u64>| count.map(|count| count as f64);
    let kib = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / KIB);
    let mib_a_second = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / MIB / kernel.secs.max(1e-9));
    let reads = number(kernel.disk_reads);
    let (read_kib, write_kib) = (kib(kernel.process_read_bytes), kib(kernel.process_write_bytes));
    let cpu_us = kernel.process_cpu_secs.map(|secs| secs * 1e6);
    let in_query_step = |value: Option<f64>| value.filter(|_| facts.is_query_step);
    let in_load_step = |value: Option<f64>| value.filter(|_| !facts.is_query_step);
    Costs {
        reads_per_insert: in_load_step(per(reads, inserts)),
        rkb_per_insert: in_load_step(per(read_kib, inserts)),
        wkb_per_insert: per(write_kib, inserts),
        cpu_us_per_insert: in_load_step(per(cpu_us, inserts)),
        reads_per_query: in_query_step(per(reads, queries)),
        rkb_per_query: in_query_step(per(read_kib, queries)),
        cpu_us_per_query: in_query_step(per(cpu_us, queries)),
        rkb_per_op: per(read_kib, operations),
        wkb_per_op: per(write_kib, operations),
        cpu_us_per_op: per(cpu_us, operations),
        reads_per_s: reads.map(|reads| reads / kernel.secs.max(1e-9)),
        rmb_per_s: mib_a_second(kernel.process_read_bytes),
        wmb_per_s: mib_a_second(kernel.process_write_bytes),
        cpu_pct: kernel.host_cpu_pct,
        cs_per_op: per(number(kernel.process_switches), operations).filter(|_| has_statements),
        cores_cpu_pct: None,
        client_cpu_us_per_op: per(kernel.driver_cpu_secs.map(|secs| secs * 1e6), operations),
    }
}

fn space(facts: &Facts, rows: Option<u64>) -> Space {
    let number = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    Space {
        data_bytes: number(facts.data_bytes),
        total_bytes: number(facts.total_bytes),
        size_bytes: number(facts.total_bytes),
        bytes_per_row: number(facts.data_bytes).zip(rows).filter(|(_, r)| *r > 0).map(|(b, r)| b / r as f64),
        rss_bytes: number(facts.rss_bytes),
    }
}

fn steadiness(step: &StepKind, totals: &Totals, counters: &Counters) -> Steadiness {
    let secs: Vec<f64> = totals.clients.iter().map(|client| client.secs).collect();
    let length_ns = (totals.secs * 1e9) as u64;
    let to_fixed_rows = step.to_fixed_rows;
    let measured = step.has_statements.then_some(());
    let slow = slow_seconds(totals.kinds[step.main() as usize].series.whole(length_ns));
    Steadiness {
        stalls: measured.map(|()| totals.stalls.len() as f64),
        stall_max_ms: measured.map(|()| totals.stall_longest_ns as f64 / 1e6),
        stall_secs: measured.and(slow).map(|secs| secs as f64),
        fairness_pct: to_fixed_rows.then(|| fairness_pct(&secs)).flatten(),
        client_secs_min: to_fixed_rows.then(|| secs.iter().copied().reduce(f64::min)).flatten(),
        client_secs_max: to_fixed_rows.then(|| secs.iter().copied().reduce(f64::max)).flatten(),
        min_key_ms: totals.min_key.first_ms,
        min_key_max_ms: totals.min_key.later_max_ms,
        gc_debt: counters.get("gc_debt").map(|debt| *debt as f64),
        drive_life_years: None,
    }
}

const SECONDS_A_YEAR: f64 = 365.25 * 86_400.0;

/// By what the engine says that it wrote, if it does, else by what the kernel counted for the process.
fn drive_life_years(about: &About, kernel: &Difference, around: &Around) -> Option<f64> {
    let sum = |counters: &Counters| -> Option<u64> {
        let written = counters.iter().filter(|(name, _)| name.starts_with("written."));
        written.map(|(_, bytes)| *bytes).reduce(|left, right| left + right)
    };
    let told = sum(&around.counters_after).map(|after| after - sum(&around.counters_before).unwrap_or(0).min(after));
    let bytes = told.or(kernel.process_write_bytes).filter(|bytes| *bytes > 0)?;
    Some(about.drive_rated_bytes? as f64 / (bytes as f64 / kernel.secs.max(1e-9) * SECONDS_A_YEAR))
}

fn notes(totals: &Totals, checked: &Checked, result: &StepResult) -> Vec<String> {
    let mut notes = Vec::new();
    if totals.cut_short {
        notes.push("ended by --max-seconds before all rows were inserted".into());
    }
    if totals.short_deletes > 0 {
        notes.push(format!("{} deletes found fewer rows than they asked for", totals.short_deletes));
    }
    if totals.late_seconds > 0 {
        notes.push(format!("{} seconds of the pace were late", totals.late_seconds));
    }
    if result.sla_met == Some(false) {
        notes.push("the background rate was missed".into());
    }
    if checked.verdict != "ok" {
        notes.push(checked.verdict.clone());
    }
    notes
}

/// Adds what a settle right after a load cost to that load, and takes the sizes after it.
pub fn add_settle(record: &mut StepRecord, span: Difference, drained: Duration, sizes: &Sizes, counters: Counters) {
    let throughput = &record.result.throughput;
    let both = record.kernel.plus(&span);
    let facts = Facts {
        secs: throughput.secs.unwrap_or(0.0),
        rows: throughput.rows.unwrap_or(0.0) as u64,
        kernel: both,
        data_bytes: sizes.data_bytes,
        total_bytes: sizes.total_bytes,
        rss_bytes: record.result.space.rss_bytes.map(|bytes| bytes as u64),
        ..Facts::default()
    };
    let with_debt = costs(&facts, record.result.costs.cs_per_op.is_some());
    // Rates a second stay those of the step itself; what an operation costs includes the debt it left.
    let alone = record.result.costs.clone();
    record.result.costs = Costs {
        reads_per_s: alone.reads_per_s,
        rmb_per_s: alone.rmb_per_s,
        wmb_per_s: alone.wmb_per_s,
        cpu_pct: alone.cpu_pct,
        ..with_debt
    };
    let rows =
        record.result.space.data_bytes.zip(record.result.space.bytes_per_row).map(|(bytes, a_row)| bytes / a_row);
    record.result.space = space(&facts, rows.map(|rows| rows.round() as u64));
    record.columns.dbgb1 = sizes.data_bytes.map(|bytes| bytes as f64 / (1u64 << 30) as f64);
    record.columns.dbgb2 = sizes.total_bytes.map(|bytes| bytes as f64 / (1u64 << 30) as f64);
    record.settle = Some(span);
    record.size_classes = sizes.classes.clone();
    record.result.steadiness.gc_debt = counters.get("gc_debt").map(|debt| *debt as f64);
    record.counters_after = counters;
    record.notes.push(format!("costs and sizes include a settle that drained in {:.1} s", drained.as_secs_f64()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_quarter_is_of_its_own_rows_and_seconds() {
        let kernel = Difference {
            secs: 12.5,
            process_cpu_secs: Some(0.002),
            process_write_bytes: Some(102_400),
            ..Difference::default()
        };
        let mut totals = Totals { secs: 20.5, ..Totals::default() };
        let series = &mut totals.kinds[Kind::Insert as usize].series;
        // Slow where it does not count; of its own seconds, 8 to 19, one is slow.
        (0..20).for_each(|second| series.record(second * 1_000_000_000, if second < 8 { 1 } else { 100 + second }, 0));
        totals.last_quarter = Some(crate::totals::LastQuarter { from_secs: 7.9, rows: 1_000, kernel });
        let quarter = last_quarter(&totals).unwrap();
        assert_eq!(quarter.last_quarter_ips_av, Some(80.0));
        assert_eq!(quarter.last_quarter_ips_99, Some(108.0));
        assert_eq!(quarter.last_quarter_cpu_us_per_insert, Some(2.0));
        assert_eq!(quarter.last_quarter_wkb_per_insert, Some(0.1));
        assert!(last_quarter(&Totals::default()).is_none());
    }

    #[test]
    fn a_drive_lives_as_long_as_its_rated_volume_lasts() {
        let about = About {
            target: "a".into(),
            description: Description::default(),
            repeat: 1,
            case: Case { tables: 1, clients: 1, cores: None },
            rss_before_open_bytes: None,
            drive_rated_bytes: Some(31_557_600 * 1_000),
        };
        let kernel = Difference { secs: 10.0, process_write_bytes: Some(2_000), ..Difference::default() };
        let around = |before: u64, after: u64| Around {
            counters_before: Counters::from([("written.log".into(), before)]),
            counters_after: Counters::from([("written.data".into(), after), ("reads".into(), 9)]),
            sizes: Sizes::default(),
            checked: Checked::default(),
        };
        // 1 000 bytes in 10 s, as the engine says, and 2 000, as the kernel does: 100 and 200 a second.
        assert_eq!(drive_life_years(&about, &kernel, &around(500, 1_500)), Some(10.0));
        let silent = Around { counters_before: Counters::new(), counters_after: Counters::new(), ..around(0, 0) };
        assert_eq!(drive_life_years(&about, &kernel, &silent), Some(5.0));
        assert_eq!(drive_life_years(&about, &kernel, &around(500, 500)), None, "nothing was written");
        let unrated = About { drive_rated_bytes: None, ..about };
        assert_eq!(drive_life_years(&unrated, &kernel, &silent), None);
    }
}
