//! The tests: names, what each does, and the order in which they run.
//!
//! A name is that of a test, with a number of rows behind a dot where there is a choice (`read-only.100`), and a label
//! behind another for a test that runs more than once (`point-query.pre`): `.pre` before any write, `.post` at the end,
//! `.warm` and `.warmpre` to fill caches, measured but left out of the tables of rates.

use lab_target::sysbench::{On, Order};

use crate::plan::PlanError;

/// What one event of a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// `c` of one row.
    PointQuery,
    /// `c` of every row of one table.
    Scan,
    /// 101 rows, of the index alone or not.
    Range {
        /// The condition's column.
        on: On,
        /// Whether the index covers it.
        covered: bool,
    },
    /// A hundred random keys.
    Points {
        /// The condition's column.
        on: On,
        /// Whether the index covers it.
        covered: bool,
    },
    /// `c` of ten random rows is set to the same text.
    UpdateInlist,
    /// `k + 1` of one row.
    UpdateIndex,
    /// `k + 1` of many rows behind one another, and a second's pause.
    UpdateRate {
        /// How many.
        rows: i32,
    },
    /// `c` of one row.
    UpdateNonindex,
    /// `c` of the row with id 1.
    UpdateOne,
    /// `c` of one row, of which a few come often.
    UpdateZipf,
    /// One transaction: index update, other update, a delete and an insert of the same row.
    WriteOnly,
    /// One transaction: ten points, four ranges, the writes of `WriteOnly`.
    ReadWrite {
        /// Rows of a range.
        rows: i32,
    },
    /// One transaction: ten points, four ranges.
    ReadOnly {
        /// Rows of a range.
        rows: i32,
    },
    /// One transaction: ten points, one range.
    ReadOnlyOne {
        /// Which of the four.
        range: RangeForm,
        /// Rows of it.
        rows: i32,
    },
    /// `COUNT(c)` of a range.
    Count {
        /// Rows of it.
        rows: i32,
    },
    /// `c` of random rows.
    RandomPoints {
        /// How many.
        rows: i32,
    },
    /// `c` of the same rows each time.
    HotPoints {
        /// How many.
        rows: i32,
    },
    /// One random row, which does not come back.
    Delete,
    /// One row behind the last.
    Insert,
}

/// The four ranges of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeForm {
    /// `c`.
    Texts(Order),
    /// `SUM(k)`.
    Sum,
}

impl RangeForm {
    /// In the order of a transaction.
    pub const ALL: [RangeForm; 4] = [
        RangeForm::Texts(Order::AsTheyCome),
        RangeForm::Sum,
        RangeForm::Texts(Order::Sorted),
        RangeForm::Texts(Order::Distinct),
    ];
}

/// The tests in the order of today, a settle where the original settles.
pub const TODAY: &[&str] = &[
    "point-query.warm",
    "scan.warmpre",
    "point-query.pre",
    "range-notcovered-si.pre",
    "update-inlist",
    "update-index",
    "update-nonindex",
    "update-one",
    "update-zipf",
    "write-only",
    "read-write.10",
    "read-write.100",
    "settle",
    "scan.warm",
    "scan",
    "read-only.10",
    "read-only.100",
    "read-only.10000",
    "read-only-simple",
    "read-only-sum",
    "read-only-order",
    "read-only-distinct",
    "read-only-count",
    "point-query",
    "random-points.10",
    "random-points.100",
    "random-points.1000",
    "hot-points",
    "points-covered-pk",
    "points-notcovered-pk",
    "range-covered-pk",
    "range-notcovered-pk",
    "points-covered-si.warm",
    "points-covered-si",
    "points-notcovered-si",
    "range-covered-si",
    "range-notcovered-si",
    "delete",
    "insert",
];

/// Reads before any write, which the original has and leaves out unless told otherwise; they come behind `point-query.pre`.
const BEFORE_WRITES: &[&str] = &[
    "random-points.10.pre",
    "random-points.100.pre",
    "random-points.1000.pre",
    "read-only.10.pre",
    "read-only.100.pre",
    "read-only.10000.pre",
    "points-covered-pk.pre",
    "points-notcovered-pk.pre",
    "points-covered-si.pre",
    "points-notcovered-si.pre",
    "range-covered-pk.pre",
    "range-notcovered-pk.pre",
    "range-covered-si.pre",
];

/// The 43rd name of the original, in none of its sequences: most of its time is a pause.
const UPDATE_RATE: &str = "update-rate";

/// Every test that the original runs by name: those of today, and those that it leaves out.
#[must_use]
pub fn all() -> Vec<&'static str> {
    let behind = 1 + TODAY.iter().position(|name| *name == "point-query.pre").expect("it is one of today's");
    let (before, after) = TODAY.split_at(behind);
    [before, BEFORE_WRITES, after].concat()
}

/// The tests in the order of 2017.
pub const OF_2017: &[&str] = &[
    "point-query.warmpre",
    "point-query.pre",
    "read-only.100.pre",
    "scan.pre",
    "update-inlist",
    "update-one",
    "update-index",
    "update-nonindex",
    "delete",
    "read-write.100",
    "read-write.10000",
    "read-only.100",
    "read-only.10000",
    "point-query",
    "random-points.100",
    "hot-points",
    "scan.post",
    "insert",
];

/// Labels of tests that run more than once.
const LABELS: &[&str] = &["pre", "post", "warm", "warmpre"];
/// Rows of the ranges of `read-only-simple` and its like.
const ONE_RANGE_ROWS: i32 = 1_000;
/// Rows of `update-rate`.
const RATE_ROWS: i32 = 1_000;
/// Rows of `hot-points`.
const HOT_ROWS: i32 = 100;

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All rows of all tables, then the indexes.
    Load,
    /// Bring the engine to rest.
    Settle,
    /// A test.
    Test(Test),
}

impl Step {
    /// Reads a step's name.
    pub fn parse(name: &str) -> Result<Step, PlanError> {
        let stranger = || {
            let today = TODAY.iter().map(|name| base_of(name)).filter(|name| *name != "settle");
            let mut known: Vec<&str> = today.chain([UPDATE_RATE]).collect();
            known.sort_unstable();
            known.dedup();
            PlanError::Usage(format!(
                "no test is called `{name}`; there are {} and settle; NAME.ROWS where there is a choice, for example \
                 read-only.100, and NAME.pre, .post, .warm for the same test once more",
                known.join(", ")
            ))
        };
        match name {
            "load" => return Ok(Step::Load),
            "settle" => return Ok(Step::Settle),
            _ => {}
        }
        let mut parts = name.split('.');
        let base = parts.next().unwrap_or_default();
        let mut next = parts.next();
        let rows = next.and_then(|part| part.parse::<i32>().ok()).filter(|rows| *rows > 0);
        if rows.is_some() {
            next = parts.next();
        }
        if next.is_some_and(|label| !LABELS.contains(&label)) || parts.next().is_some() {
            return Err(stranger());
        }
        test_of(base, rows).map(Step::Test).ok_or_else(stranger)
    }

    /// Whether rows may be gone after it.
    #[must_use]
    pub fn deletes(&self) -> bool {
        *self == Step::Test(Test::Delete)
    }

    /// Whether `k` of rows may be another after it, or in the middle of it.
    #[must_use]
    pub fn changes_k(&self) -> bool {
        matches!(
            self,
            Step::Test(Test::UpdateIndex | Test::UpdateRate { .. } | Test::WriteOnly | Test::ReadWrite { .. })
        )
    }

    /// Whether rows are put back with another `k` than they had.
    #[must_use]
    pub fn replaces_rows(&self) -> bool {
        matches!(self, Step::Test(Test::WriteOnly | Test::ReadWrite { .. }))
    }

    /// Whether it leaves everything as it was.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        !self.deletes()
            && !self.changes_k()
            && !matches!(
                self,
                Step::Load
                    | Step::Test(
                        Test::UpdateInlist | Test::UpdateNonindex | Test::UpdateOne | Test::UpdateZipf | Test::Insert
                    )
            )
    }
}

/// The name without rows and label.
#[must_use]
pub fn base_of(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

fn test_of(base: &str, rows: Option<i32>) -> Option<Test> {
    let one = |range| Test::ReadOnlyOne { range, rows: rows.unwrap_or(ONE_RANGE_ROWS) };
    let fixed = match base {
        "read-write" => return Some(Test::ReadWrite { rows: rows? }),
        "read-only" => return Some(Test::ReadOnly { rows: rows? }),
        "random-points" => return Some(Test::RandomPoints { rows: rows? }),
        "read-only-simple" => return Some(one(RangeForm::ALL[0])),
        "read-only-sum" => return Some(one(RangeForm::ALL[1])),
        "read-only-order" => return Some(one(RangeForm::ALL[2])),
        "read-only-distinct" => return Some(one(RangeForm::ALL[3])),
        "read-only-count" => return Some(Test::Count { rows: rows.unwrap_or(ONE_RANGE_ROWS) }),
        UPDATE_RATE => return Some(Test::UpdateRate { rows: rows.unwrap_or(RATE_ROWS) }),
        "hot-points" => return Some(Test::HotPoints { rows: rows.unwrap_or(HOT_ROWS) }),
        "point-query" => Test::PointQuery,
        "scan" => Test::Scan,
        "update-inlist" => Test::UpdateInlist,
        "update-index" => Test::UpdateIndex,
        "update-nonindex" => Test::UpdateNonindex,
        "update-one" => Test::UpdateOne,
        "update-zipf" => Test::UpdateZipf,
        "write-only" => Test::WriteOnly,
        "points-covered-pk" => Test::Points { on: On::Id, covered: true },
        "points-notcovered-pk" => Test::Points { on: On::Id, covered: false },
        "points-covered-si" => Test::Points { on: On::K, covered: true },
        "points-notcovered-si" => Test::Points { on: On::K, covered: false },
        "range-covered-pk" => Test::Range { on: On::Id, covered: true },
        "range-notcovered-pk" => Test::Range { on: On::Id, covered: false },
        "range-covered-si" => Test::Range { on: On::K, covered: true },
        "range-notcovered-si" => Test::Range { on: On::K, covered: false },
        "delete" => Test::Delete,
        "insert" => Test::Insert,
        _ => return None,
    };
    // There is no choice of rows in these.
    rows.is_none().then_some(fixed)
}

/// Names as they were typed, those with a choice of rows and none made standing for all of today's.
#[must_use]
pub fn spelled_out(typed: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for name in typed.iter().map(|name| name.trim()) {
        let of_base =
            |known: &&&str| base_of(known) == name && known.len() > name.len() && test_of(name, None).is_none();
        let choices: Vec<String> = TODAY.iter().filter(of_base).map(|known| (*known).to_owned()).collect();
        if choices.is_empty() { names.push(name.to_owned()) } else { names.extend(choices) }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_test_and_strangers_are_refused() {
        for name in TODAY.iter().chain(OF_2017) {
            assert!(Step::parse(name).is_ok(), "{name}");
        }
        assert_eq!(Step::parse("read-only.7.pre"), Ok(Step::Test(Test::ReadOnly { rows: 7 })));
        assert_eq!(Step::parse("point-query.warm"), Ok(Step::Test(Test::PointQuery)));
        assert_eq!(Step::parse("update-rate"), Ok(Step::Test(Test::UpdateRate { rows: 1_000 })));
        assert_eq!(Step::parse("update-rate.10.post"), Ok(Step::Test(Test::UpdateRate { rows: 10 })));
        for wrong in ["read-only", "read-only.0", "insert.5", "scan.again", "scan.pre.pre", "point-queries", ""] {
            let complaint = Step::parse(wrong).unwrap_err().to_string();
            assert!(complaint.contains("hot-points"), "{wrong}: {complaint}");
        }
    }

    /// The script of the original knows 43 names, and never runs `update-rate`.
    #[test]
    fn all_of_them_are_the_42_names_of_the_original() {
        let without_rows = |name: &&str| -> String {
            let is_number = |part: &&str| part.parse::<u32>().is_ok();
            name.split('.').filter(|part| !is_number(part)).collect::<Vec<_>>().join(".")
        };
        let mut names: Vec<String> = all().iter().map(without_rows).filter(|name| name != "settle").collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 42, "{names:?}");
        assert!(all().iter().all(|name| Step::parse(name).is_ok()));
        let written = |name: &&str| Step::parse(name).is_ok_and(|step| !step.only_reads());
        let first = all().iter().position(written);
        assert!(BEFORE_WRITES.iter().all(|name| all().iter().position(|other| other == name) < first));
    }

    #[test]
    fn a_name_without_its_choice_stands_for_all_of_them() {
        let typed = ["random-points", "hot-points", "read-only.5"].map(String::from);
        let names = spelled_out(&typed);
        assert_eq!(names, ["random-points.10", "random-points.100", "random-points.1000", "hot-points", "read-only.5"]);
    }

    #[test]
    fn what_a_step_leaves_behind() {
        let step = |name: &str| Step::parse(name).unwrap();
        assert!(step("delete").deletes() && !step("write-only").deletes());
        assert!(step("update-index").changes_k() && !step("update-index").replaces_rows());
        assert!(step("read-write.10").replaces_rows() && !step("update-one").changes_k());
        for name in TODAY {
            let writes = ["update", "write", "read-write", "delete", "insert"];
            let writes = writes.iter().any(|word| name.starts_with(word));
            assert_eq!(step(name).only_reads(), !writes, "{name}");
        }
    }
}
