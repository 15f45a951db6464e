//! What has to hold, as pure functions of the seconds that were kept.

use std::fmt;

use serde::Serialize;

use super::Part;
use super::keep::{Outcome, Plan, Second};

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

/// Close to the highest rate.
pub fn soak(plan: &Plan, outcome: &Outcome, seconds: &[Second]) -> Vec<Condition> {
    let slow = sum(seconds, |s| s.slow) as f64 / sum(seconds, |s| s.statements).max(1) as f64;
    let last = seconds.last().and_then(|second| second.disk_bytes);
    let full = last.zip(outcome.disk_size).map(|(bytes, size)| 100.0 * bytes as f64 / size.max(1) as f64);
    // One second without it, and it was not measured.
    let peaks: Option<Vec<u64>> = seconds.iter().map(|second| second.peak_bytes).collect();
    let peak = peaks.and_then(|peaks| peaks.into_iter().max());
    let grown = peak.zip(outcome.memory_before).map(|(peak, before)| (peak.saturating_sub(before) >> 20) as f64);
    let allowed = outcome.budget_bytes.map(|budget| ((budget + (budget / 20).max(32 << 20)) >> 20) as f64);
    vec![
        at_least(
            "rows/s as a share of those asked for",
            outcome.rate.map(|rate| average(seconds) / rate.max(1.0)),
            0.99,
        ),
        at_most("inserts back later than 20 ms, percent", 100.0 * slow, 0.1),
        at_most("the slowest insert, ms", most(seconds, |s| s.worst_us) as f64 / 1e3, 100.0),
        at_least(
            "rows/s of 99 % of the seconds, of the average",
            slowest_percent(seconds) / average(seconds).max(1.0),
            0.7,
        ),
        Condition {
            what: "the disk at the end, percent full",
            asked: format!("{} to {}", plan.full.saturating_sub(10), (plan.full + 10).min(100)),
            found: full
                .map_or_else(not_measured, |full| format!("{full:.0} of {} MiB", outcome.disk_size.unwrap_or(0) >> 20)),
            holds: full.is_some_and(|full| (full - plan.full as f64).abs() <= 10.0),
        },
        match allowed {
            Some(allowed) => at_most(MEMORY, grown, allowed),
            None => Condition {
                what: MEMORY,
                asked: "at most the budget, which is not known: give --budget".into(),
                found: not_measured(),
                holds: false,
            },
        },
    ]
}

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
    use crate::cli::Proof;

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
        let plan = Plan {
            proof: Proof::Soak,
            target: "trefoil".into(),
            seconds: 60,
            search_seconds: 60,
            rows: 0,
            clients: 1,
            budget_bytes: None,
            share: 95,
            full: 85,
            commit: String::new(),
            host: String::new(),
        };
        let outcome = outcome(0);
        let with = |change: fn(&mut Second)| {
            let mut seconds = sound();
            seconds.iter_mut().for_each(change);
            missed(&soak(&plan, &outcome, &seconds))
        };
        assert!(with(|_| ()).is_empty());
        assert_eq!(with(|s| s.inserted = 985), ["rows/s as a share of those asked for"]);
        assert_eq!(with(|s| s.slow = u64::from(s.second == 9) * 2), ["inserts back later than 20 ms, percent"]);
        assert!(with(|s| s.slow = u64::from(s.second == 9)).is_empty(), "one of 1200");
        assert_eq!(with(|s| s.worst_us = 100_000 + u64::from(s.second == 9)), ["the slowest insert, ms"]);
        let dip = with(|s| s.inserted = if s.second == 9 { 690 } else { 1010 });
        assert_eq!(dip, ["rows/s of 99 % of the seconds, of the average"]);
        assert_eq!(with(|s| s.disk_bytes = Some(130_000_000)), ["the disk at the end, percent full"]);
        assert_eq!(with(|s| s.peak_bytes = if s.second == 9 { Some(333 << 20) } else { s.peak_bytes }), [MEMORY]);
        // What was not measured is missed, each by itself.
        assert_eq!(with(|s| s.peak_bytes = s.peak_bytes.filter(|_| s.second != 9)), [MEMORY]);
        assert_eq!(with(|s| s.disk_bytes = None), ["the disk at the end, percent full"]);
        let without = |change: fn(&mut Outcome)| {
            let mut outcome = outcome.clone();
            change(&mut outcome);
            missed(&soak(&plan, &outcome, &sound()))
        };
        assert_eq!(without(|o| o.budget_bytes = None), [MEMORY]);
        assert_eq!(without(|o| o.memory_before = None), [MEMORY]);
        assert_eq!(without(|o| o.disk_size = None), ["the disk at the end, percent full"]);
        assert_eq!(without(|o| o.rate = None), ["rows/s as a share of those asked for"]);
    }

    #[test]
    fn a_disk_is_sized_by_what_a_search_wrote() {
        let mut seconds = sound();
        assert_eq!(disk_bytes(Some(100_000_000), &seconds, 120_000.0), Some(220_000_000), "60 MB for 60 000 rows");
        seconds[..30].iter_mut().for_each(|second| second.inserted = 5000);
        assert_eq!(highest_rate(&seconds), 1000.0, "its second half counts");
    }
}
