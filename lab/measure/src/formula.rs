//! The insert benchmark's formulas: percentiles of rates, the 21 columns, the older reports' processor unit, fairness
//! and the rate that must be kept.

use serde::{Deserialize, Serialize};

use crate::clock::SECOND_NS;
use crate::series::Series;
use crate::snapshot::Difference;

/// Percentiles of rates need at least this many intervals.
const LEAST_INTERVALS: usize = 10;
/// Bytes in the seeds' GB.
const GIB: f64 = (1u64 << 30) as f64;
/// Bytes in the seeds' KB.
const KIB: f64 = 1024.0;
/// Share of the wanted rate that keeps the agreement.
pub const SLA_SHARE: f64 = 0.95;

/// The rate that `percent` of all intervals reach or exceed: sorted falling, the element at round(percent/100 × n).
/// The 99th is therefore a low rate, and bigger is better.
#[must_use]
pub fn rate_percentile(counts: &[u64], percent: f64) -> Option<f64> {
    if counts.len() < LEAST_INTERVALS {
        return None;
    }
    let mut falling = counts.to_vec();
    falling.sort_unstable_by(|left, right| right.cmp(left));
    let place = (percent / 100.0 * falling.len() as f64).round() as usize;
    Some(falling[place.clamp(1, falling.len()) - 1] as f64)
}

/// Microseconds of processor time an operation: whole machine, client and engine together.
#[must_use]
pub fn cpu_us_per_operation(cpu_pct: f64, cpus: u32, operations_per_second: f64) -> f64 {
    cpu_pct / 100.0 * f64::from(cpus) * 1e6 / operations_per_second
}

/// The older reports' unit: millionths of a percentage point an operation, not multiplied by the processors.
#[must_use]
pub fn mcpu_per_operation(cpu_pct: f64, operations_per_second: f64) -> f64 {
    1e6 * cpu_pct / operations_per_second
}

/// How much longer the slowest client took than the fastest, in percent.
#[must_use]
pub fn fairness_pct(client_secs: &[f64]) -> Option<f64> {
    let least = client_secs.iter().copied().reduce(f64::min)?;
    let most = client_secs.iter().copied().reduce(f64::max)?;
    (client_secs.len() > 1 && least > 0.0).then(|| 100.0 * (most - least) / least)
}

/// The rate, summed over clients, that a paced step has to reach.
#[must_use]
pub fn sla_rate(clients: u32, rows_per_second: u64) -> f64 {
    (SLA_SHARE * f64::from(clients) * rows_per_second as f64).round()
}

/// What the formulas are fed with.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether operations are queries (q steps) or inserts (load steps).
    pub is_query_step: bool,
    /// Length of the step.
    pub secs: f64,
    /// Rows inserted; in l.x, rows indexed.
    pub rows: u64,
    /// Rows deleted.
    pub deleted: u64,
    /// Queries.
    pub queries: u64,
    /// Processors.
    pub cpus: u32,
    /// Counters over the step.
    pub kernel: Difference,
    /// Size of the tables.
    pub data_bytes: Option<u64>,
    /// Size of everything.
    pub total_bytes: Option<u64>,
    /// Largest resident memory.
    pub rss_bytes: Option<u64>,
    /// The largest response of inserts or queries, in seconds.
    pub largest_response_secs: Option<f64>,
    /// The first client's series of the step's operations.
    pub first_client: Series,
}

impl Facts {
    /// Inserts a second.
    #[must_use]
    pub fn insert_rate(&self) -> f64 {
        self.rows as f64 / self.secs.max(1e-9)
    }

    /// Queries a second.
    #[must_use]
    pub fn query_rate(&self) -> f64 {
        self.queries as f64 / self.secs.max(1e-9)
    }

    /// The rate that per-operation numbers are divided by.
    #[must_use]
    pub fn operation_rate(&self) -> f64 {
        if self.is_query_step { self.query_rate() } else { self.insert_rate() }
    }
}

/// The 21 columns, one row a step and engine. A missing number was not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    /// Rows inserted a second.
    pub ips: Option<f64>,
    /// Queries a second.
    pub qps: Option<f64>,
    /// Reads of the device a second.
    pub rps: Option<f64>,
    /// MB read a second.
    pub rmbps: Option<f64>,
    /// Writes of the device a second.
    pub wps: Option<f64>,
    /// MB written a second.
    pub wmbps: Option<f64>,
    /// Reads an operation.
    pub rpq: Option<f64>,
    /// KB read an operation.
    pub rkbpq: Option<f64>,
    /// Writes an insert, in query steps too.
    pub wpi: Option<f64>,
    /// KB written an insert, in query steps too.
    pub wkbpi: Option<f64>,
    /// Context switches of the machine a second.
    pub csps: Option<f64>,
    /// Processor use of the machine in percent.
    pub cpups: Option<f64>,
    /// Context switches an operation.
    pub cspq: Option<f64>,
    /// Processor microseconds of the machine an operation.
    pub cpupq: Option<f64>,
    /// GB of the tables.
    pub dbgb1: Option<f64>,
    /// GB of everything.
    pub dbgb2: Option<f64>,
    /// GB resident.
    pub rss: Option<f64>,
    /// Largest response in seconds.
    pub maxop: Option<f64>,
    /// Median of the first client's per-second rates.
    pub p50: Option<f64>,
    /// 99th, falling, of the first client's per-second rates.
    pub p99: Option<f64>,
    /// Engine and configuration.
    pub tag: String,
}

/// Names of the columns in the order in which they are printed, and how each is read.
pub const COLUMN_NAMES: [&str; 21] = [
    "ips", "qps", "rps", "rmbps", "wps", "wmbps", "rpq", "rkbpq", "wpi", "wkbpi", "csps", "cpups", "cspq", "cpupq",
    "dbgb1", "dbgb2", "rss", "maxop", "p50", "p99", "tag",
];

impl Columns {
    /// The columns of one step.
    #[must_use]
    pub fn of(facts: &Facts, tag: &str) -> Columns {
        let kernel = &facts.kernel;
        let a_second = |count: Option<u64>| count.map(|count| count as f64 / kernel.secs.max(1e-9));
        let rps = a_second(kernel.disk_reads);
        let wps = a_second(kernel.disk_writes);
        let read_kib = a_second(kernel.disk_read_bytes).map(|bytes| bytes / KIB);
        let write_kib = a_second(kernel.disk_write_bytes).map(|bytes| bytes / KIB);
        let csps = a_second(kernel.host_switches);
        let per = |number: Option<f64>, rate: f64| number.filter(|_| rate > 0.0).map(|number| number / rate);
        let (inserts, operations) = (facts.insert_rate(), facts.operation_rate());
        let length_ns = (facts.secs * SECOND_NS as f64) as u64;
        let gib = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / GIB);
        Columns {
            ips: Some(inserts),
            qps: Some(if facts.is_query_step { facts.query_rate() } else { 0.0 }),
            rps,
            rmbps: read_kib.map(|kib| kib / KIB),
            wps,
            wmbps: write_kib.map(|kib| kib / KIB),
            rpq: per(rps, operations),
            rkbpq: per(read_kib, operations),
            wpi: per(wps, inserts),
            wkbpi: per(write_kib, inserts),
            csps,
            cpups: kernel.host_cpu_pct,
            cspq: per(csps, operations),
            cpupq: kernel
                .host_cpu_pct
                .filter(|_| operations > 0.0)
                .map(|pct| cpu_us_per_operation(pct, facts.cpus, operations)),
            dbgb1: gib(facts.data_bytes),
            dbgb2: gib(facts.total_bytes),
            rss: gib(facts.rss_bytes),
            maxop: facts.largest_response_secs,
            p50: rate_percentile(facts.first_client.whole(length_ns), 50.0),
            p99: rate_percentile(facts.first_client.whole(length_ns), 99.0),
            tag: tag.into(),
        }
    }

    /// A column as it is printed; empty when not measured.
    #[must_use]
    pub fn printed(&self, name: &str) -> String {
        let whole = |number: Option<f64>| number.map(|number| format!("{number:.0}")).unwrap_or_default();
        let fixed = |number: Option<f64>, digits: usize| number.map(|n| format!("{n:.digits$}")).unwrap_or_default();
        match name {
            "ips" => whole(self.ips),
            "qps" => whole(self.qps),
            "rps" => whole(self.rps),
            "rmbps" => fixed(self.rmbps, 1),
            "wps" => whole(self.wps),
            "wmbps" => fixed(self.wmbps, 1),
            "rpq" => fixed(self.rpq, 3),
            "rkbpq" => fixed(self.rkbpq, 3),
            "wpi" => fixed(self.wpi, 3),
            "wkbpi" => fixed(self.wkbpi, 3),
            "csps" => whole(self.csps),
            "cpups" => fixed(self.cpups, 1),
            "cspq" => fixed(self.cspq, 3),
            "cpupq" => fixed(self.cpupq, 1),
            "dbgb1" => fixed(self.dbgb1, 3),
            "dbgb2" => fixed(self.dbgb2, 3),
            "rss" => fixed(self.rss, 3),
            "maxop" => fixed(self.maxop, 3),
            "p50" => whole(self.p50),
            "p99" => whole(self.p99),
            "tag" => self.tag.clone(),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99th_rate_is_a_low_one() {
        let counts: Vec<u64> = (1..=100).collect();
        assert_eq!(rate_percentile(&counts, 99.0), Some(2.0));
        assert_eq!(rate_percentile(&counts, 50.0), Some(51.0));
        assert_eq!(rate_percentile(&counts[..10], 99.0), Some(1.0));
        assert_eq!(rate_percentile(&counts[..9], 99.0), None);
    }

    #[test]
    fn processor_units_match_the_published_rows() {
        // 46.1 % of 4 processors at 132 415 inserts/s is published as 14 µs.
        assert!((cpu_us_per_operation(46.1, 4, 132_415.0) - 13.926).abs() < 0.001);
        // 43.2 % at 17 241 inserts/s is published as 2 507 Mcpu from the unrounded percentage.
        assert!((mcpu_per_operation(43.2, 17_241.0) - 2_505.7).abs() < 0.1);
    }

    #[test]
    fn fairness_and_the_wanted_rate() {
        assert_eq!(fairness_pct(&[10.0, 10.5, 11.0]), Some(10.0));
        assert_eq!(fairness_pct(&[10.0]), None);
        assert_eq!(sla_rate(8, 1_000), 7_600.0);
        assert_eq!(sla_rate(1, 100), 95.0);
        assert_eq!(sla_rate(3, 101), 288.0);
    }

    fn facts() -> Facts {
        let kernel = Difference {
            secs: 10.0,
            host_cpu_pct: Some(50.0),
            host_switches: Some(20_000),
            disk_reads: Some(1_000),
            disk_read_bytes: Some(10 << 20),
            disk_writes: Some(500),
            disk_write_bytes: Some(100 << 20),
            ..Difference::default()
        };
        let first_client = Series { counts: (1..=10).map(|n| n * 100).collect(), worst_us: vec![0; 10] };
        Facts {
            is_query_step: true,
            secs: 10.0,
            rows: 1_000,
            deleted: 1_000,
            queries: 50_000,
            cpus: 4,
            kernel,
            data_bytes: Some(3 << 30),
            total_bytes: None,
            rss_bytes: Some(1 << 29),
            largest_response_secs: Some(0.25),
            first_client,
        }
    }

    #[test]
    fn the_columns_of_a_query_step_by_hand() {
        let columns = Columns::of(&facts(), "trefoil.btree");
        assert_eq!((columns.ips, columns.qps), (Some(100.0), Some(5_000.0)));
        assert_eq!((columns.rps, columns.wps), (Some(100.0), Some(50.0)));
        assert_eq!((columns.rmbps, columns.wmbps), (Some(1.0), Some(10.0)));
        assert_eq!(columns.rpq, Some(0.02));
        assert_eq!(columns.rkbpq, Some(0.2048));
        assert_eq!(columns.wpi, Some(0.5));
        assert_eq!(columns.wkbpi, Some(102.4));
        assert_eq!((columns.csps, columns.cspq), (Some(2_000.0), Some(0.4)));
        assert_eq!(columns.cpupq, Some(400.0));
        assert_eq!((columns.dbgb1, columns.dbgb2, columns.rss), (Some(3.0), None, Some(0.5)));
        assert_eq!((columns.p50, columns.p99), (Some(600.0), Some(100.0)));
        assert_eq!(columns.printed("dbgb2"), "");
        assert!(COLUMN_NAMES.iter().filter(|name| **name != "dbgb2").all(|name| !columns.printed(name).is_empty()));
    }

    #[test]
    fn load_steps_divide_by_inserts() {
        let columns = Columns::of(&Facts { is_query_step: false, ..facts() }, "x");
        assert_eq!(columns.qps, Some(0.0));
        assert_eq!((columns.rpq, columns.cpupq), (Some(1.0), Some(20_000.0)));
    }
}
