//! A run's options, and what each step does.

use std::fmt;

use lab_measure::result::StepResult;
use lab_target::{IndexSet, Price, Secondary};
use serde::{Deserialize, Serialize};

/// Rows a statement in l.i0 and l.x, and in all of the 2017 form.
const LOAD_ROWS: u32 = 100;
/// Rows a statement in l.i1 and the query steps.
const WIDE_ROWS: u32 = 50;
/// Rows a statement in l.i2.
const NARROW_ROWS: u32 = 5;
/// Index look-ups of the smallest key are repeated after this many deletes.
pub const RESYNC_STATEMENTS: u64 = 1_000;
/// Keys in an IN list, and rows of a range query.
pub const ROWS_PER_QUERY: u32 = 10;
/// Point queries look up the largest key after this many queries.
pub const MAX_KEY_REFRESH: u64 = 100;
/// Queries between two looks at the stop flag.
pub const STOP_CHECK: u64 = 16;

/// Why a plan makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// A wrong option.
    Usage(String),
    /// An option that this build does not have yet.
    Unsupported(String),
}

impl fmt::Display for PlanError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Usage(text) => formatter.write_str(text),
            PlanError::Unsupported(text) => write!(formatter, "unsupported: {text}"),
        }
    }
}

/// How a delete statement chooses its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeleteForm {
    /// The n smallest keys from m on (since April 2024).
    Limit,
    /// Keys in m..m+n (May 2023 to April 2024).
    Range,
}

/// What the query threads ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// Covering ranges on one of the three secondary indexes.
    Range,
    /// IN lists on the primary key.
    Points,
    /// As `Range`, beside inserts of 100 rows and no deletes: the 2017 form.
    Range2017,
    /// One row by its key, with nothing beside it.
    Gets,
}

/// What a full scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The rows in key order, right after the load: debts of the load are being paid.
    FirstRows,
    /// A secondary index in its order, covering.
    Index(Secondary),
    /// The rows once more.
    SecondRows,
}

/// A step of the 2023 or of the 2017 form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `l.i0`: load in key order, primary key only.
    LoadPrimary,
    /// `l.x`: create the secondary indexes.
    BuildIndexes,
    /// `l.i1`: inserts and deletes, 50 rows each.
    InsertWide,
    /// `l.i2`: inserts and deletes, 5 rows each.
    InsertNarrow,
    /// `settle`: bring the engine to rest.
    Settle,
    /// `qr100` …: queries beside inserts and deletes at a rate; `gets`, whose rate is 0: nobody writes.
    Query(QueryKind, u64),
    /// `load`: load in key order with the secondary indexes there from the start.
    Load,
    /// `scan.pk1` …: every row or entry of all tables, one thread a table.
    Scan(Scan),
}

impl Step {
    /// The steps of the 2023 form in order.
    pub const FORM_2023: [Step; 11] = [
        Step::LoadPrimary,
        Step::BuildIndexes,
        Step::InsertWide,
        Step::InsertNarrow,
        Step::Settle,
        Step::Query(QueryKind::Range, 100),
        Step::Query(QueryKind::Points, 100),
        Step::Query(QueryKind::Range, 500),
        Step::Query(QueryKind::Points, 500),
        Step::Query(QueryKind::Range, 1_000),
        Step::Query(QueryKind::Points, 1_000),
    ];

    /// The steps of the 2017 form in order.
    pub const FORM_2017: [Step; 9] = [
        Step::Load,
        Step::Scan(Scan::FirstRows),
        Step::Scan(Scan::Index(Secondary::Market)),
        Step::Scan(Scan::Index(Secondary::Register)),
        Step::Scan(Scan::Index(Secondary::Pdc)),
        Step::Scan(Scan::SecondRows),
        Step::Query(QueryKind::Range2017, 1_000),
        Step::Query(QueryKind::Range2017, 100),
        Step::Query(QueryKind::Gets, 0),
    ];

    /// Reads a step's name.
    pub fn parse(name: &str) -> Result<Step, PlanError> {
        let rate = |digits: &str| digits.parse::<u64>().ok().filter(|rate| *rate > 0);
        match name {
            "l.i0" => Ok(Step::LoadPrimary),
            "l.x" => Ok(Step::BuildIndexes),
            "l.i1" => Ok(Step::InsertWide),
            "l.i2" => Ok(Step::InsertNarrow),
            "settle" => Ok(Step::Settle),
            "load" => Ok(Step::Load),
            "scan.pk1" => Ok(Step::Scan(Scan::FirstRows)),
            "scan.market" => Ok(Step::Scan(Scan::Index(Secondary::Market))),
            "scan.register" => Ok(Step::Scan(Scan::Index(Secondary::Register))),
            "scan.pdc" => Ok(Step::Scan(Scan::Index(Secondary::Pdc))),
            "scan.pk2" => Ok(Step::Scan(Scan::SecondRows)),
            "gets" => Ok(Step::Query(QueryKind::Gets, 0)),
            _ => {
                let kinds = [("qr", QueryKind::Range), ("qp", QueryKind::Points), ("q", QueryKind::Range2017)];
                let query = kinds.iter().find_map(|(prefix, kind)| {
                    name.strip_prefix(prefix).and_then(rate).map(|rate| Step::Query(*kind, rate))
                });
                query.ok_or_else(|| {
                    PlanError::Usage(format!(
                        "no step is called `{name}`; the steps of the 2023 form are l.i0 l.x l.i1 l.i2 settle qrN qpN \
                         (N = background inserts a second and client, for example qr100), those of the 2017 form \
                         load scan.pk1 scan.market scan.register scan.pdc scan.pk2 qN gets, and settle"
                    ))
                })
            }
        }
    }

    /// The step's name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Step::LoadPrimary => "l.i0".into(),
            Step::BuildIndexes => "l.x".into(),
            Step::InsertWide => "l.i1".into(),
            Step::InsertNarrow => "l.i2".into(),
            Step::Settle => "settle".into(),
            Step::Query(QueryKind::Range, rate) => format!("qr{rate}"),
            Step::Query(QueryKind::Points, rate) => format!("qp{rate}"),
            Step::Query(QueryKind::Range2017, rate) => format!("q{rate}"),
            Step::Query(QueryKind::Gets, _) => "gets".into(),
            Step::Load => "load".into(),
            Step::Scan(Scan::FirstRows) => "scan.pk1".into(),
            Step::Scan(Scan::Index(Secondary::Market)) => "scan.market".into(),
            Step::Scan(Scan::Index(Secondary::Register)) => "scan.register".into(),
            Step::Scan(Scan::Index(Secondary::Pdc)) => "scan.pdc".into(),
            Step::Scan(Scan::SecondRows) => "scan.pk2".into(),
        }
    }

    /// Whether rows are loaded: the costs of such a step include the debt paid in a settle right after it.
    #[must_use]
    pub fn is_load(self) -> bool {
        !matches!(self, Step::Settle | Step::Query(..) | Step::Scan(_))
    }
}

/// How many tables and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Tables; client number c works on table c modulo this.
    pub tables: u32,
    /// Clients.
    pub clients: u32,
    /// Processors that the run may use; none = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
}

impl Case {
    /// Whether a result is of this case.
    #[must_use]
    pub fn is_of(&self, result: &StepResult) -> bool {
        (self.tables, self.clients) == (result.tables, result.clients)
            && self.cores.is_none_or(|cores| cores == result.cores)
    }
}

/// The options of a run, resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Rows of l.i0, all clients together.
    pub rows: u64,
    /// Rows of l.i1.
    pub rows_i1: u64,
    /// Rows of l.i2.
    pub rows_i2: u64,
    /// Length of each timed step.
    pub seconds: u64,
    /// Unmeasured seconds before each timed step.
    pub warmup: u64,
    /// The longest a step may take; 0 = no limit.
    pub max_seconds: u64,
    /// The shortest settle.
    pub settle_seconds: u64,
    /// Step names in order.
    pub steps: Vec<String>,
    /// Tables and clients, one run of all steps each.
    pub cases: Vec<Case>,
    /// Which indexes.
    pub index_set: IndexSet,
    /// How rows to delete are chosen.
    pub delete_form: DeleteForm,
    /// Pace of l.i0, l.i1 and l.i2 in rows a second and client; 0 = as fast as possible.
    pub inserts_per_second: u64,
    /// Length of the transactions that hold a snapshot beside each step from l.i1 on; 0 = none.
    pub htap_seconds: u64,
    /// The seed of all rows and queries.
    pub seed: u64,
    /// What kind of column `price` is.
    #[serde(default)]
    pub price: Price,
}

/// What the threads of one client do in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Rows a statement.
    pub rows: u32,
    /// Insert statements, and as many deletes.
    pub statements: u64,
    /// Whether there is a deleter.
    pub deletes: bool,
    /// The pace, in rows a second.
    pub pace: Option<u64>,
    /// What query threads ask.
    pub query: Option<QueryKind>,
    /// Unmeasured nanoseconds at the start.
    pub warmup_ns: u64,
    /// Length of a step in which nobody writes, the warm-up included; others end when everything is written.
    pub alone_ns: Option<u64>,
}

impl Work {
    /// How long the step takes, or its statements at their pace, in seconds.
    #[must_use]
    pub fn planned_secs(&self) -> Option<f64> {
        if let Some(length_ns) = self.alone_ns {
            return Some(length_ns as f64 / 1e9);
        }
        let a_second = self.pace?.div_ceil(u64::from(self.rows.max(1))).max(1);
        Some((self.statements as f64 / a_second as f64).max(1.0))
    }
}

impl Plan {
    /// The steps.
    pub fn parsed_steps(&self) -> Result<Vec<Step>, PlanError> {
        self.steps.iter().map(|name| Step::parse(name)).collect()
    }

    /// Checks what the types do not.
    pub fn check(&self) -> Result<(), PlanError> {
        let usage = |text: String| Err(PlanError::Usage(text));
        let steps = self.parsed_steps()?;
        if !matches!(steps.first(), Some(Step::LoadPrimary | Step::Load)) {
            return usage("the first step has to be l.i0 or load: it creates and fills the tables".into());
        }
        for (place, step) in steps.iter().enumerate() {
            let before = |wanted: Step| steps[..place].contains(&wanted);
            match step {
                Step::LoadPrimary | Step::BuildIndexes | Step::Load if before(*step) => {
                    return usage(format!("step {} is given twice", step.name()));
                }
                Step::LoadPrimary | Step::Load if place > 0 => {
                    return usage(format!("step {} can only be the first: there is one load", step.name()));
                }
                Step::BuildIndexes if before(Step::Load) => {
                    return usage("step l.x after load: its indexes are there from the start".into());
                }
                Step::Query(QueryKind::Gets, _) => {}
                Step::InsertWide | Step::InsertNarrow | Step::Query(..) | Step::Scan(Scan::Index(_))
                    if !before(Step::BuildIndexes) && !before(Step::Load) =>
                {
                    return usage(format!("step {} needs the indexes of l.x before it", step.name()));
                }
                _ => {}
            }
        }
        if self.rows == 0 || self.seconds == 0 {
            return usage("--rows and --seconds have to be at least 1".into());
        }
        for case in &self.cases {
            if case.clients == 0 || case.tables == 0 {
                return usage("--clients and --tables have to be at least 1".into());
            }
            if case.tables > case.clients {
                return usage(format!(
                    "{} tables for {} clients: a client works on one table, so there are 1 to {} tables",
                    case.tables, case.clients, case.clients
                ));
            }
        }
        Ok(())
    }

    /// What one client does in a step; `None` for steps that are not made of statements alone.
    #[must_use]
    pub fn work(&self, step: Step, clients: u32) -> Option<Work> {
        let each = |rows: u64, per_statement: u32| rows.div_ceil(u64::from(clients)).div_ceil(u64::from(per_statement));
        let pace = (self.inserts_per_second > 0).then_some(self.inserts_per_second);
        let narrowed = |rows: u32, pace: Option<u64>| pace.map_or(rows, |pace| rows.min(pace.max(1) as u32));
        let load = |all_rows: u64, rows: u32, deletes: bool| {
            let rows = narrowed(rows, pace);
            Work { rows, statements: each(all_rows, rows), deletes, pace, query: None, warmup_ns: 0, alone_ns: None }
        };
        match step {
            Step::LoadPrimary | Step::Load => Some(load(self.rows, LOAD_ROWS, false)),
            Step::InsertWide => Some(load(self.rows_i1, WIDE_ROWS, true)),
            Step::InsertNarrow => Some(load(self.rows_i2, NARROW_ROWS, true)),
            Step::Query(QueryKind::Gets, _) => Some(Work {
                rows: 1,
                statements: 0,
                deletes: false,
                pace: None,
                query: Some(QueryKind::Gets),
                warmup_ns: self.warmup * 1_000_000_000,
                alone_ns: Some((self.seconds + self.warmup) * 1_000_000_000),
            }),
            Step::Query(kind, rate) => {
                let is_old = kind == QueryKind::Range2017;
                let rows = narrowed(if is_old { LOAD_ROWS } else { WIDE_ROWS }, Some(rate));
                let a_second = rate.div_ceil(u64::from(rows));
                Some(Work {
                    rows,
                    statements: a_second * (self.seconds + self.warmup),
                    deletes: !is_old,
                    pace: Some(rate),
                    query: Some(kind),
                    warmup_ns: self.warmup * 1_000_000_000,
                    alone_ns: None,
                })
            }
            Step::BuildIndexes | Step::Settle | Step::Scan(_) => None,
        }
    }

    /// Rows that each client adds in l.x before the indexes are created.
    #[must_use]
    pub fn rows_before_indexes(&self) -> u32 {
        LOAD_ROWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(steps: &[&str]) -> Plan {
        Plan {
            rows: 1_000,
            rows_i1: 500,
            rows_i2: 125,
            seconds: 10,
            warmup: 2,
            max_seconds: 0,
            settle_seconds: 2,
            steps: steps.iter().map(|step| step.to_string()).collect(),
            cases: vec![Case { tables: 1, clients: 1, cores: None }],
            index_set: IndexSet::Y2023,
            delete_form: DeleteForm::Limit,
            inserts_per_second: 0,
            htap_seconds: 0,
            seed: 1,
            price: Price::Int,
        }
    }

    #[test]
    fn names_round_trip_and_strangers_are_refused() {
        for step in Step::FORM_2023.into_iter().chain(Step::FORM_2017) {
            assert_eq!(Step::parse(&step.name()), Ok(step));
        }
        assert_eq!(Step::parse("qr250"), Ok(Step::Query(QueryKind::Range, 250)));
        assert!(matches!(Step::parse("scan.pk3"), Err(PlanError::Usage(_))));
        assert!(matches!(Step::parse("qr0"), Err(PlanError::Usage(_))));
        assert!(matches!(Step::parse("l.i9"), Err(PlanError::Usage(text)) if text.contains("qr100")));
    }

    #[test]
    fn the_order_of_steps_is_checked() {
        assert!(plan(&["l.i0", "l.x", "l.i1", "settle", "l.i2", "settle", "qr100"]).check().is_ok());
        assert!(plan(&["load", "scan.pk1", "scan.pdc", "settle", "q100", "l.i1"]).check().is_ok());
        assert!(plan(&["l.i0", "scan.pk1", "gets"]).check().is_ok());
        for wrong in [&["load", "l.x"][..], &["l.i0", "scan.pdc"], &["l.i0", "load"], &["scan.pk1"]] {
            assert!(plan(wrong).check().is_err(), "{wrong:?}");
        }
        for wrong in [&["l.x"][..], &["l.i0", "l.i1"], &["l.i0", "l.x", "l.x"], &["l.i0", "qr100"], &[]] {
            assert!(plan(wrong).check().is_err(), "{wrong:?}");
        }
        let mut few = plan(&["l.i0"]);
        few.cases = vec![Case { tables: 8, clients: 4, cores: None }];
        assert!(few.check().is_err());
    }

    #[test]
    fn statements_are_as_the_original_counts_them() {
        let plan = plan(&["l.i0"]);
        let work = |step, clients| plan.work(step, clients).unwrap();
        // The last statement may overshoot: 1 000 rows over 3 clients are 334 rows, 4 statements of 100.
        assert_eq!(work(Step::LoadPrimary, 3).statements, 4);
        assert_eq!((work(Step::InsertWide, 1).statements, work(Step::InsertNarrow, 1).statements), (10, 25));
        let query = work(Step::Query(QueryKind::Range, 100), 1);
        assert_eq!((query.rows, query.statements, query.pace), (50, 24, Some(100)));
        assert_eq!((query.planned_secs(), work(Step::LoadPrimary, 1).planned_secs()), (Some(12.0), None));
        let old = work(Step::Query(QueryKind::Range2017, 1_000), 1);
        assert_eq!((old.rows, old.statements, old.deletes), (100, 120, false));
        let gets = work(Step::Query(QueryKind::Gets, 0), 1);
        assert_eq!((gets.statements, gets.deletes, gets.pace, gets.planned_secs()), (0, false, None, Some(12.0)));
        // A pace below the statement narrows the statement.
        assert_eq!(work(Step::Query(QueryKind::Points, 20), 1).rows, 20);
        assert!(!work(Step::LoadPrimary, 1).deletes && work(Step::InsertNarrow, 1).deletes);
    }
}
