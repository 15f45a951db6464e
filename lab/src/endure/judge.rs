//! What has to hold, as pure functions of the seconds that were kept.

use std::fmt;

use serde::Serialize;

use super::Part;
use super::keep::{Outcome, Plan, Reads, Second, Snapshot};

/// Of one attempt of a part, in order.
pub type Seconds = Vec<Second>;

/// One condition, and what was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Condition {
    pub what: &'static str,
    pub asked: String,
    pub found: String,
    pub holds: bool,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.holds { "holds " } else { "MISSED" };
        write!(f, "{verdict}  {:<44} {} (asked {})", self.what, self.found, self.asked)
    }
}

/// Index entries of a row: each of them dies with it.
const ENTRIES_A_ROW: u64 = 4;
/// Dead versions may lie about for so many seconds' worth of deletes.
const DEAD_SECONDS: u64 = 5;

/// Deletes at the rate of inserts, behind inserts alone; each with what it began with.
pub fn gc_debt((began_alone, alone): &Part, (began, seconds): &Part) -> Vec<Condition> {
    let (inserted, deleted) = (sum(seconds, |s| s.inserted), sum(seconds, |s| s.deleted));
    let kept_up = deleted as f64 / inserted.max(1) as f64;
    let worst = most(seconds, |s| s.min_key_us) as f64 / 1e3;
    let slack = (DEAD_SECONDS * ENTRIES_A_ROW * deleted / seconds.len().max(1) as u64) as f64;
    let grown = growth(&seconds[seconds.len() / 3..], |s| s.dead);
    let sizes = mean_rows(began.filled_rows, seconds) / mean_rows(began_alone.filled_rows, alone).max(1.0);
    let (rate, rate_alone) = (average(seconds), average(alone));
    vec![
        at_least("deletes as a share of inserts", kept_up, 0.98),
        at_most("dead versions grew in the last two thirds by", grown, slack),
        at_most("the slowest look-up of the smallest key, ms", worst, 10.0),
        at_least("rows/s as a share of those without deletes", rate / rate_alone.max(1.0), 0.9),
        Condition {
            what: "mean rows of the table as a share of those",
            asked: "0.9 to 1.1".into(),
            found: format!("{sizes:.3}"),
            holds: (0.9..=1.1).contains(&sizes),
        },
    ]
}

/// Rows of the table, on average over the seconds.
pub fn mean_rows(filled: u64, seconds: &[Second]) -> f64 {
    let (mut rows, mut all) = (filled as f64, 0.0);
    for second in seconds {
        let next = rows + second.inserted as f64 - second.deleted as f64;
        all += (rows + next) / 2.0;
        rows = next;
    }
    all / seconds.len().max(1) as f64
}

/// By how much a straight line through all of it (least squares) grows from the first second to the last; none if a second lacks it.
fn growth(seconds: &[Second], of: fn(&Second) -> Option<u64>) -> Option<f64> {
    let values: Vec<f64> = seconds.iter().map(|second| of(second).map(|value| value as f64)).collect::<Option<_>>()?;
    let count = values.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, values.iter().sum::<f64>() / count);
    let places = || values.iter().enumerate().map(|(place, value)| (place as f64 - middle, value - mean));
    let (along, spread) = places().fold((0.0, 0.0), |(along, spread), (x, y)| (along + x * y, spread + x * x));
    // One second has no slope.
    (spread > 0.0).then(|| along / spread * (count - 1.0))
}

/// Close to the highest rate, which the first part has found.
pub fn soak(plan: &Plan, search: &Part, (outcome, seconds): &Part) -> Vec<Condition> {
    let slow = sum(seconds, |s| s.slow) as f64 / sum(seconds, |s| s.statements).max(1) as f64;
    let rate = average(seconds);
    let mut all = vec![
        at_least("rows/s as a share of those asked for", outcome.rate.map(|asked| rate / asked.max(1.0)), 0.99),
        at_most("inserts back later than 20 ms, percent", 100.0 * slow, 0.1),
        at_most("the slowest insert, ms", most(seconds, |s| s.worst_us) as f64 / 1e3, 100.0),
        at_least("rows/s of 99 % of the seconds, of the average", slowest_percent(seconds) / rate.max(1.0), 0.7),
        at_least(
            "the disk at its emptiest, percent full",
            emptiest(outcome, seconds),
            (plan.full - plan.full.min(5)) as f64,
        ),
        memory(outcome, seconds),
        snapshot(outcome),
    ];
    all.extend(reads(plan, &search.0, outcome));
    all.extend(costs(plan, &search.1, seconds));
    all
}

/// A disk is looked at once a second, its ballast included.
fn emptiest(outcome: &Outcome, seconds: &[Second]) -> Option<f64> {
    let taken: Vec<u64> = seconds.iter().map(|second| second.taken_bytes).collect::<Option<_>>()?;
    Some(100.0 * taken.into_iter().min()? as f64 / outcome.disk_size.filter(|size| *size > 0)? as f64)
}

fn memory(outcome: &Outcome, seconds: &[Second]) -> Condition {
    // One second without it, and it was not measured.
    let peaks: Option<Vec<u64>> = seconds.iter().map(|second| second.peak_bytes).collect();
    let peak = peaks.and_then(|peaks| peaks.into_iter().max());
    let grown = peak.zip(outcome.memory_before).map(|(peak, before)| (peak.saturating_sub(before) >> 20) as f64);
    match outcome.budget_bytes.map(|budget| ((budget + (budget / 20).max(32 << 20)) >> 20) as f64) {
        Some(allowed) => at_most(MEMORY, grown, allowed),
        None => Condition {
            what: MEMORY,
            asked: "at most the budget, which is not known: give --budget".into(),
            found: not_measured(),
            holds: false,
        },
    }
}

/// Somebody deleted what it sees, all but a statement or two, and it still sees all of it and nothing else.
fn snapshot(outcome: &Outcome) -> Condition {
    let filled = outcome.filled_rows;
    let sees_all = |seen: &Snapshot| seen.first == seen.last && seen.first.0 == filled;
    let found = outcome.snapshot.map(|seen| {
        let (first, last, deleted) = (seen.first.0, seen.last.0, seen.deleted);
        let same = if first == last && seen.first.1 != seen.last.1 { ", others" } else { "" };
        format!("{first}, at the end {last}{same}, {deleted} of them deleted")
    });
    Condition {
        what: SNAPSHOT,
        asked: format!("{filled} each time, at least nine tenths deleted"),
        found: found.unwrap_or_else(not_measured),
        holds: outcome.snapshot.is_some_and(|seen| sees_all(&seen) && seen.deleted >= filled - filled / 10),
    }
}

/// Reads behind the last second, beside the bounds or half of those behind the search.
fn reads(plan: &Plan, search: &Outcome, outcome: &Outcome) -> [Condition; 2] {
    let judged = |what, bound: Option<f64>, of: fn(&Reads) -> f64| {
        let asked = bound.or(search.reads.as_ref().map(|reads| of(reads) / 2.0));
        let found = outcome.reads.as_ref().map(of);
        match asked {
            Some(asked) => at_least(what, found, asked.round()),
            None => Condition { what, asked: not_measured(), found: not_measured(), holds: false },
        }
    };
    [judged(RANGES, plan.bounds.ranges, |reads| reads.ranges), judged(POINTS, plan.bounds.points, |reads| reads.points)]
}

/// What a row takes, beside the bounds or the second half of the search: by then the first memory is used up.
fn costs(plan: &Plan, search: &[Second], seconds: &[Second]) -> [Condition; 2] {
    let judged = |what, bound: Option<f64>, more: f64, of: fn(&Second) -> Option<u64>| {
        let asked = bound.or(a_row(&search[search.len() / 2..], of).map(|found| found * more));
        match asked {
            Some(asked) => at_most(what, a_row(seconds, of), (asked * 10.0).ceil() / 10.0),
            None => Condition { what, asked: not_measured(), found: not_measured(), holds: false },
        }
    };
    [judged(BYTES, plan.bounds.bytes_a_row, 2.0, |s| s.written), judged(CPU, plan.bounds.cpu_a_row, 1.5, |s| s.cpu_us)]
}

/// By row; one second without it, and it was not measured.
fn a_row(seconds: &[Second], of: fn(&Second) -> Option<u64>) -> Option<f64> {
    let all: u64 = seconds.iter().map(of).sum::<Option<u64>>()?;
    Some(all as f64 / sum(seconds, |s| s.inserted).max(1) as f64)
}

const SNAPSHOT: &str = "rows that the snapshot sees";
const RANGES: &str = "ten-row ranges/s behind it";
const POINTS: &str = "look-ups by key/s behind it";
const BYTES: &str = "bytes written a row";
const CPU: &str = "processor time a row, driver included, µs";
const MEMORY: &str = "resident memory grew at its peak by, MiB";

/// Rows a second of the second half of a search: by then the first memory is used up.
pub fn highest_rate(seconds: &[Second]) -> f64 {
    average(&seconds[seconds.len() / 2..])
}

/// What will be on disk when so many rows more are there than were filled, by what a search added; none where it was not measured.
pub fn disk_bytes(filled_bytes: Option<u64>, search: &[Second], rows: f64) -> Option<u64> {
    let filled = filled_bytes?;
    let added = search.last()?.disk_bytes?.saturating_sub(filled);
    let a_row = added as f64 / sum(search, |s| s.inserted).max(1) as f64;
    Some(filled + (a_row * rows) as u64)
}

fn at_least(what: &'static str, found: impl Into<Option<f64>>, asked: f64) -> Condition {
    compared(what, found.into(), format!("at least {asked}"), |found| found >= asked)
}

fn at_most(what: &'static str, found: impl Into<Option<f64>>, asked: f64) -> Condition {
    compared(what, found.into(), format!("at most {asked}"), |found| found <= asked)
}

/// What was not measured does not hold.
fn compared(what: &'static str, found: Option<f64>, asked: String, holds: impl Fn(f64) -> bool) -> Condition {
    let text = found.map_or_else(not_measured, |found| format!("{found:.3}"));
    Condition { what, asked, found: text, holds: found.is_some_and(holds) }
}

fn not_measured() -> String {
    "not measured".into()
}

fn sum(seconds: &[Second], of: fn(&Second) -> u64) -> u64 {
    seconds.iter().map(of).sum()
}

fn most(seconds: &[Second], of: fn(&Second) -> u64) -> u64 {
    seconds.iter().map(of).max().unwrap_or(0)
}

fn average(seconds: &[Second]) -> f64 {
    sum(seconds, |s| s.inserted) as f64 / seconds.len().max(1) as f64
}

/// What 99 % of the seconds reach.
fn slowest_percent(seconds: &[Second]) -> f64 {
    let mut rates: Vec<u64> = seconds.iter().map(|s| s.inserted).collect();
    rates.sort_unstable();
    rates.get(rates.len() / 100).copied().unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Bounds, Proof};

    /// A minute without a fault.
    fn sound() -> Seconds {
        let second = |second| Second {
            second,
            inserted: 1000,
            deleted: 1000,
            statements: 20,
            slow: 0,
            worst_us: 5000,
            min_key_us: 300,
            dead: Some(9000),
            disk_bytes: Some(100_000_000 + second * 1_000_000),
            peak_bytes: Some(300 << 20),
            cpu_us: Some(9_000),
            written: Some(300_000),
            taken_bytes: Some(160_000_000),
        };
        (1..=60).map(second).collect()
    }

    fn outcome(filled_rows: u64) -> Outcome {
        Outcome {
            attempt: 1,
            filled_rows,
            filled_bytes: Some(0),
            disk_size: Some(160_000_000 * 100 / 85),
            rate: Some(1000.0),
            memory_before: Some(100 << 20),
            budget_bytes: Some(200 << 20),
            settings: Default::default(),
            process: 1,
            snapshot: Some(Snapshot { first: (filled_rows, 7), last: (filled_rows, 7), deleted: filled_rows }),
            reads: Some(Reads { ranges: 1000.0, points: 2000.0 }),
        }
    }

    fn plan() -> Plan {
        Plan {
            proof: Proof::Soak,
            target: "trefoil".into(),
            seconds: 60,
            search_seconds: 60,
            rows: 0,
            clients: 1,
            budget_bytes: None,
            share: 95,
            full: 85,
            read_seconds: 1,
            bounds: Bounds::default(),
            commit: String::new(),
            host: String::new(),
        }
    }

    fn missed(conditions: &[Condition]) -> Vec<&'static str> {
        conditions.iter().filter(|condition| !condition.holds).map(|condition| condition.what).collect()
    }

    #[test]
    fn each_condition_of_gc_debt_is_missed_by_its_own_fault() {
        // It grows by 60 000 rows: the other is as large as it is on average.
        let mut alone = (outcome(1_000_000), sound());
        alone.1.iter_mut().for_each(|second| second.deleted = 0);
        let with = |change: fn(&mut Second)| {
            let mut seconds = sound();
            seconds.iter_mut().for_each(change);
            missed(&gc_debt(&alone, &(outcome(1_030_000), seconds)))
        };
        assert!(with(|_| ()).is_empty());
        assert_eq!(with(|s| s.deleted = 970), ["deletes as a share of inserts"]);
        let grew = ["dead versions grew in the last two thirds by"];
        assert_eq!(with(|s| s.dead = Some(1000 * s.second)), grew);
        // A quarter more in the last third than in the middle one, of much: no slack for that.
        assert_eq!(with(|s| s.dead = Some(1_000_000 + 5000 * s.second)), grew);
        assert!(with(|s| s.dead = Some(300 * s.second)).is_empty(), "within a few seconds' worth");
        assert!(with(|s| s.dead = Some(9000 + s.second % 2 * 90_000)).is_empty(), "up and down");
        assert_eq!(with(|s| s.dead = if s.second == 3 { None } else { s.dead }), [""; 0], "in the first third");
        assert_eq!(with(|s| s.dead = None), grew);
        assert_eq!(
            with(|s| s.min_key_us = if s.second == 3 { 10_001 } else { 5 }),
            ["the slowest look-up of the smallest key, ms"]
        );
        let slower = with(|s| (s.inserted, s.deleted) = (890, 890));
        assert_eq!(slower, ["rows/s as a share of those without deletes"]);
        let small = missed(&gc_debt(&alone, &(outcome(500_000), sound())));
        assert_eq!(small, ["mean rows of the table as a share of those"]);
    }

    #[test]
    fn each_condition_of_a_soak_is_missed_by_its_own_fault() {
        let plan = plan();
        let (outcome, search) = (outcome(1000), (outcome(1000), sound()));
        let with = |change: fn(&mut Second)| {
            let mut seconds = sound();
            seconds.iter_mut().for_each(change);
            missed(&soak(&plan, &search, &(outcome.clone(), seconds)))
        };
        assert!(with(|_| ()).is_empty());
        assert_eq!(with(|s| s.inserted = 985), ["rows/s as a share of those asked for"]);
        assert_eq!(with(|s| s.slow = u64::from(s.second == 9) * 2), ["inserts back later than 20 ms, percent"]);
        assert!(with(|s| s.slow = u64::from(s.second == 9)).is_empty(), "one of 1200");
        assert_eq!(with(|s| s.worst_us = 100_000 + u64::from(s.second == 9)), ["the slowest insert, ms"]);
        let dip = with(|s| s.inserted = if s.second == 9 { 690 } else { 1010 });
        assert_eq!(dip, ["rows/s of 99 % of the seconds, of the average"]);
        let emptier = ["the disk at its emptiest, percent full"];
        assert_eq!(with(|s| s.taken_bytes = Some(if s.second == 9 { 150_000_000 } else { 160_000_000 })), emptier);
        assert!(with(|s| s.taken_bytes = Some(180_000_000)).is_empty(), "a fuller one is harder");
        assert_eq!(with(|s| s.written = Some(601_000)), [BYTES]);
        assert_eq!(with(|s| s.cpu_us = Some(13_700)), [CPU]);
        assert!(with(|s| (s.written, s.cpu_us) = (Some(599_000), Some(13_400))).is_empty());
        assert_eq!(with(|s| s.peak_bytes = if s.second == 9 { Some(333 << 20) } else { s.peak_bytes }), [MEMORY]);
        // What was not measured is missed, each by itself.
        assert_eq!(with(|s| s.peak_bytes = s.peak_bytes.filter(|_| s.second != 9)), [MEMORY]);
        assert_eq!(with(|s| s.taken_bytes = s.taken_bytes.filter(|_| s.second != 9)), emptier);
        assert_eq!(with(|s| s.written = s.written.filter(|_| s.second != 9)), [BYTES]);
        assert_eq!(with(|s| s.cpu_us = s.cpu_us.filter(|_| s.second != 9)), [CPU]);
        let without = |change: fn(&mut Outcome)| {
            let mut outcome = outcome.clone();
            change(&mut outcome);
            missed(&soak(&plan, &search, &(outcome, sound())))
        };
        assert_eq!(without(|o| o.budget_bytes = None), [MEMORY]);
        assert_eq!(without(|o| o.memory_before = None), [MEMORY]);
        assert_eq!(without(|o| o.disk_size = None), emptier);
        assert_eq!(without(|o| o.rate = None), ["rows/s as a share of those asked for"]);
        let seen = |first, last, deleted| Some(Snapshot { first, last, deleted });
        assert_eq!(without(|o| o.snapshot = None), [SNAPSHOT]);
        for wrong in [
            seen((1000, 7), (999, 7), 1000),
            seen((1000, 7), (1000, 8), 1000),
            seen((1050, 7), (1050, 7), 1000),
            seen((1000, 7), (1000, 7), 899),
        ] {
            let mut outcome = outcome.clone();
            outcome.snapshot = wrong;
            assert_eq!(missed(&soak(&plan, &search, &(outcome, sound()))), [SNAPSHOT], "{wrong:?}");
        }
        assert_eq!(without(|o| o.reads = None), [RANGES, POINTS]);
        assert_eq!(without(|o| o.reads = Some(Reads { ranges: 499.0, points: 1000.0 })), [RANGES]);
        assert_eq!(without(|o| o.reads = Some(Reads { ranges: 500.0, points: 999.0 })), [POINTS]);
    }

    #[test]
    fn bounds_of_ones_own_come_before_what_the_search_found() {
        let bounds =
            Bounds { bytes_a_row: Some(299.9), cpu_a_row: Some(8.9), ranges: Some(1001.0), points: Some(2001.0) };
        let part = (outcome(1000), sound());
        let judged = |bounds| missed(&soak(&Plan { bounds, ..plan() }, &part, &part));
        assert_eq!(judged(bounds), [RANGES, POINTS, BYTES, CPU]);
        assert!(judged(Bounds::default()).is_empty());
        let mut unknown = part.clone();
        (unknown.0.reads, unknown.1[59].written, unknown.1[59].cpu_us) = (None, None, None);
        assert_eq!(missed(&soak(&plan(), &unknown, &part)), [RANGES, POINTS, BYTES, CPU], "nothing to hold it to");
    }

    #[test]
    fn a_disk_is_sized_by_what_a_search_wrote() {
        let mut seconds = sound();
        assert_eq!(disk_bytes(Some(100_000_000), &seconds, 120_000.0), Some(220_000_000), "60 MB for 60 000 rows");
        seconds[..30].iter_mut().for_each(|second| second.inserted = 5000);
        assert_eq!(highest_rate(&seconds), 1000.0, "its second half counts");
    }
}
