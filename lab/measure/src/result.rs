//! The keys of `--format json`: one object per step and repetition. A missing key was not measured; it is never 0.
//!
//! Bytes and processor time of the `*_per_*` keys are those of this process (an embedded engine and its driver share
//! it), which other programs on the machine cannot disturb; counts of reads and the seeds' own 21 columns
//! ([`crate::formula::Columns`]) are those of the device and the machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the layout of results, steps and runs. It changes when a key changes its meaning or goes away.
pub const SCHEMA: &str = "trefoil-lab/1";

/// A repetition, or the median over all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Repeat {
    /// The number of the repetition, from 1.
    Number(u32),
    /// `"median"`.
    Name(String),
}

impl Default for Repeat {
    fn default() -> Repeat {
        Repeat::Number(1)
    }
}

/// Makes a group of numeric keys: each optional, left out when not measured, and reachable by position for medians.
macro_rules! keys {
    ($(#[$about:meta])* $name:ident { $($(#[doc = $doc:literal])+ $key:ident),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[doc = $doc])+ #[serde(default, skip_serializing_if = "Option::is_none")] pub $key: Option<f64>,)+
        }

        impl $name {
            /// Names of the keys.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($key)),+];

            /// What each key is, as the reference tells.
            pub const ABOUT: &'static [(&'static str, &'static str)] = &[$((stringify!($key), concat!($($doc),+))),+];

            /// Every key with its value.
            #[must_use]
            pub fn values(&self) -> Vec<(&'static str, Option<f64>)> {
                vec![$((stringify!($key), self.$key)),+]
            }

            /// Every value, to be changed in place.
            pub fn values_mut(&mut self) -> Vec<&mut Option<f64>> {
                vec![$(&mut self.$key),+]
            }
        }
    };
}

keys! {
    /// Rates.
    Throughput {
        /// Rows inserted.
        rows,
        /// Operations: rows in load steps, queries in query steps.
        ops,
        /// Seconds.
        secs,
        /// Inserts a second.
        ips_av,
        /// The insert rate that 99 % of the seconds reach.
        ips_99,
        /// Deletes a second.
        dps_av,
        /// Queries a second.
        qps_av,
        /// The query rate that 99 % of the seconds reach.
        qps_99,
        /// Transactions a minute.
        tpm,
        /// New orders a minute.
        nopm,
        /// Statements that gave up.
        aborts,
        /// Statements tried again.
        retries,
    }
}

keys! {
    /// Response times in microseconds, per statement.
    Responses {
        /// Median insert.
        insert_p50_us,
        /// 99 % of the inserts.
        insert_p99_us,
        /// 99.9 % of the inserts.
        insert_p999_us,
        /// Slowest insert.
        insert_max_us,
        /// 99 % of the inserts, from the intended start.
        insert_intended_p99_us,
        /// Median delete.
        delete_p50_us,
        /// 99 % of the deletes.
        delete_p99_us,
        /// 99.9 % of the deletes.
        delete_p999_us,
        /// Slowest delete.
        delete_max_us,
        /// 99 % of the deletes, from the intended start.
        delete_intended_p99_us,
        /// Median query.
        query_p50_us,
        /// 99 % of the queries.
        query_p99_us,
        /// 99.9 % of the queries.
        query_p999_us,
        /// Slowest query.
        query_max_us,
        /// Median of the step's own kind of operation.
        p50_us,
        /// 99 % of the step's own kind of operation.
        p99_us,
        /// 99.9 % of the step's own kind of operation.
        p999_us,
        /// Slowest of the step's own kind of operation.
        max_us,
    }
}

keys! {
    /// What an operation, or a second, costs.
    Costs {
        /// Device reads an insert.
        reads_per_insert,
        /// KB read an insert.
        rkb_per_insert,
        /// KB written an insert, in query steps too.
        wkb_per_insert,
        /// Processor microseconds an insert.
        cpu_us_per_insert,
        /// Device reads a query.
        reads_per_query,
        /// KB read a query.
        rkb_per_query,
        /// Processor microseconds a query.
        cpu_us_per_query,
        /// KB read an operation.
        rkb_per_op,
        /// KB written an operation.
        wkb_per_op,
        /// Processor microseconds an operation.
        cpu_us_per_op,
        /// Device reads a second.
        reads_per_s,
        /// MB read a second.
        rmb_per_s,
        /// MB written a second.
        wmb_per_s,
        /// Processor use of the machine, in percent of all processors.
        cpu_pct,
        /// Processor use of this process, in percent of the processors that it may use.
        cores_cpu_pct,
        /// Context switches of this process an operation.
        cs_per_op,
        /// Processor microseconds of the client an operation, where client and server are apart.
        client_cpu_us_per_op,
    }
}

keys! {
    /// Space.
    Space {
        /// Bytes of tables and indexes on disk.
        data_bytes,
        /// Bytes on disk with logs.
        total_bytes,
        /// The same as `total_bytes`.
        size_bytes,
        /// `data_bytes` by rows in the tables.
        bytes_per_row,
        /// Largest resident memory of this process during the step.
        rss_bytes,
    }
}

keys! {
    /// How steady and how fair.
    Steadiness {
        /// Stalls of 50 ms and more.
        stalls,
        /// The longest span without a completion; in paced steps the largest lateness.
        stall_max_ms,
        /// Seconds under half the median rate.
        stall_secs,
        /// How much longer the slowest client took than the fastest.
        fairness_pct,
        /// The fastest client.
        client_secs_min,
        /// The slowest client.
        client_secs_max,
        /// The first look-up of the smallest key.
        min_key_ms,
        /// The slowest later look-up of the smallest key.
        min_key_max_ms,
        /// Dead versions and tombstones at the end, as the engine counts them.
        gc_debt,
        /// Years until the drive has written its rated volume, if that was named, at this rate.
        drive_life_years,
    }
}

keys! {
    /// Of a load: from the moment when three quarters of its rows were in to its end, without what was settled afterwards.
    LastQuarter {
        /// Seconds.
        last_quarter_secs,
        /// Inserts a second.
        last_quarter_ips_av,
        /// The insert rate that 99 % of the seconds reach.
        last_quarter_ips_99,
        /// Processor microseconds an insert.
        last_quarter_cpu_us_per_insert,
        /// KB written an insert.
        last_quarter_wkb_per_insert,
    }
}

keys! {
    /// One kind of transaction; times in microseconds.
    OfTransaction {
        /// Those that came to their end, rolled back ones included.
        count,
        /// Those that ended with a rollback as they should.
        rolled_back,
        /// How often one was run again.
        retries,
        /// Median.
        p50_us,
        /// 90 % of them.
        p90_us,
        /// 95 % of them.
        p95_us,
        /// 99 % of them.
        p99_us,
        /// The slowest.
        max_us,
    }
}

/// One line of the result: a step of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// The layout of this object.
    pub schema: String,
    /// The target string.
    pub target: String,
    /// The engine's version.
    pub version: String,
    /// Short name of the configuration.
    pub config: String,
    /// The workload.
    pub workload: String,
    /// The step.
    pub step: String,
    /// Tables.
    pub tables: u32,
    /// Clients.
    pub clients: u32,
    /// Processors.
    pub cores: u32,
    /// The repetition.
    pub repeat: Repeat,
    /// Whether the wanted rate was kept, in paced steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla_met: Option<bool>,
    /// `"ok"`, or why nothing was checked.
    pub invariants: String,
    /// Order-independent checksum of all rows, for comparing targets; left out where keys depend on timing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Rates.
    #[serde(flatten)]
    pub throughput: Throughput,
    /// Response times.
    #[serde(flatten)]
    pub responses: Responses,
    /// Costs.
    #[serde(flatten)]
    pub costs: Costs,
    /// Space.
    #[serde(flatten)]
    pub space: Space,
    /// Steadiness.
    #[serde(flatten)]
    pub steadiness: Steadiness,
    /// The end of a load.
    #[serde(flatten)]
    pub last_quarter: LastQuarter,
    /// By name, where a workload has several kinds of transactions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub transactions: BTreeMap<String, OfTransaction>,
}

impl StepResult {
    /// Whether operations are queries.
    #[must_use]
    pub fn is_query_step(&self) -> bool {
        match self.workload.as_str() {
            "sysbench" | "tpcc" => self.step != "load",
            _ => self.step.starts_with('q') || self.step == "gets",
        }
    }

    /// What tells runs of one target apart: tables, clients, and the processors where a run may be restricted to some.
    #[must_use]
    pub fn case(&self) -> (u32, u32, Option<u32>) {
        (self.tables, self.clients, (self.workload == "tpcc").then_some(self.cores))
    }

    /// The case as it is added to a name.
    #[must_use]
    pub fn case_name(&self) -> String {
        match self.case() {
            (tables, clients, None) => format!("{clients}c {tables}t"),
            (warehouses, clients, Some(cores)) => format!("{clients}c {warehouses}w {cores} cores"),
        }
    }

    /// Queries a second in query steps, inserts a second elsewhere: the number of the summary tables.
    #[must_use]
    pub fn main_rate(&self) -> Option<f64> {
        if self.is_query_step() { self.throughput.qps_av } else { self.throughput.ips_av }
    }

    /// Every numeric key with its value, in the order of the groups.
    #[must_use]
    pub fn numbers(&self) -> Vec<(&'static str, Option<f64>)> {
        let mut all = self.throughput.values();
        all.extend(self.responses.values());
        all.extend(self.costs.values());
        all.extend(self.space.values());
        all.extend(self.steadiness.values());
        all.extend(self.last_quarter.values());
        all
    }

    fn numbers_mut(&mut self) -> Vec<&mut Option<f64>> {
        let mut all = self.throughput.values_mut();
        all.extend(self.responses.values_mut());
        all.extend(self.costs.values_mut());
        all.extend(self.space.values_mut());
        all.extend(self.steadiness.values_mut());
        all.extend(self.last_quarter.values_mut());
        all
    }
}

/// Whether more of a key is better; `None` for keys that are neither good nor bad (how many rows there were).
#[must_use]
pub fn more_is_better(key: &str) -> Option<bool> {
    match key {
        "rows" | "ops" => None,
        "last_quarter_ips_av" | "last_quarter_ips_99" => Some(true),
        "ips_av" | "ips_99" | "dps_av" | "qps_av" | "qps_99" | "tpm" | "nopm" | "drive_life_years" => Some(true),
        _ => Some(false),
    }
}

/// The median over the repetitions of one step, key by key: the middle value, or the mean of the two middle ones.
/// A key that one repetition lacks is left out. `None` without repetitions.
#[must_use]
pub fn median(repetitions: &[StepResult]) -> Option<StepResult> {
    let mut out = repetitions.first()?.clone();
    out.repeat = Repeat::Name("median".into());
    let met = |result: &StepResult| result.sla_met;
    out.sla_met = repetitions.iter().map(met).reduce(|left, right| Some(left? && right?)).flatten();
    let columns: Vec<Vec<Option<f64>>> =
        repetitions.iter().map(|result| result.numbers().into_iter().map(|(_, value)| value).collect()).collect();
    for (place, value) in out.numbers_mut().into_iter().enumerate() {
        let all: Option<Vec<f64>> = columns.iter().map(|column| column[place]).collect();
        *value = all.map(middle);
    }
    for (name, of_kind) in &mut out.transactions {
        for (place, value) in of_kind.values_mut().into_iter().enumerate() {
            let of_repetition = |result: &StepResult| result.transactions.get(name)?.values()[place].1;
            *value = repetitions.iter().map(of_repetition).collect::<Option<Vec<f64>>>().map(middle);
        }
    }
    if repetitions.iter().any(|result| result.checksum != out.checksum) {
        out.checksum = None;
    }
    Some(out)
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_is_absent_and_never_zero() {
        let result = StepResult { step: "l.i0".into(), ..StepResult::default() };
        let json = serde_json::to_value(&result).unwrap();
        let object = json.as_object().unwrap();
        assert!(!object.contains_key("ips_av") && !object.contains_key("sla_met"));
        assert_eq!(object["repeat"], 1);
        let back: StepResult = serde_json::from_value(json).unwrap();
        assert_eq!(back, result);
    }

    #[test]
    fn every_documented_key_exists() {
        let documented = "rows ops secs ips_av ips_99 dps_av qps_av qps_99 tpm nopm aborts retries \
            insert_p50_us insert_p99_us insert_p999_us insert_max_us delete_p50_us delete_p99_us delete_p999_us \
            delete_max_us query_p50_us query_p99_us query_p999_us query_max_us insert_intended_p99_us \
            delete_intended_p99_us reads_per_insert rkb_per_insert wkb_per_insert cpu_us_per_insert reads_per_query \
            rkb_per_query cpu_us_per_query reads_per_s rmb_per_s wmb_per_s cpu_pct cs_per_op client_cpu_us_per_op \
            data_bytes total_bytes bytes_per_row rss_bytes stalls stall_max_ms stall_secs fairness_pct \
            client_secs_min client_secs_max min_key_ms min_key_max_ms gc_debt drive_life_years cores_cpu_pct \
            rkb_per_op wkb_per_op cpu_us_per_op p50_us p99_us p999_us max_us size_bytes \
            last_quarter_secs last_quarter_ips_av last_quarter_ips_99 last_quarter_cpu_us_per_insert \
            last_quarter_wkb_per_insert";
        let mut full = StepResult::default();
        full.numbers_mut().into_iter().for_each(|value| *value = Some(1.0));
        full.sla_met = Some(true);
        let json = serde_json::to_value(&full).unwrap();
        for key in documented.split_whitespace() {
            assert!(json.get(key).is_some(), "{key}");
        }
        for key in ["target", "version", "config", "workload", "step", "tables", "clients", "cores", "repeat"] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert!(json.get("sla_met").is_some() && json.get("invariants").is_some());
    }

    #[test]
    fn medians_are_taken_key_by_key() {
        let with = |ips: f64, sla: bool| {
            let mut result = StepResult { sla_met: Some(sla), ..StepResult::default() };
            result.throughput.ips_av = Some(ips);
            result
        };
        let mut odd = [with(3.0, true), with(1.0, true), with(2.0, false)];
        let all = median(&odd).unwrap();
        assert_eq!((all.throughput.ips_av, all.sla_met), (Some(2.0), Some(false)));
        assert_eq!(all.repeat, Repeat::Name("median".into()));
        assert_eq!(median(&odd[..2]).unwrap().throughput.ips_av, Some(2.0));
        odd[1].throughput.ips_av = None;
        assert_eq!(median(&odd).unwrap().throughput.ips_av, None);
        assert!(median(&[]).is_none());
    }

    /// What is written twice is read as the same number. Guard: the feature `float_roundtrip` of `serde_json`.
    #[test]
    fn a_number_that_was_written_comes_back() {
        for number in
            [2.2737367543826898e-9, 9.999999999999787, 9.999999999999789, 1.0 / 3.0, f64::MIN_POSITIVE, f64::MAX]
        {
            let text = serde_json::to_string(&number).unwrap();
            assert_eq!(serde_json::from_str::<f64>(&text).unwrap().to_bits(), f64::to_bits(number), "{text}");
        }
    }
}
