//! What has to hold, as pure functions of the seconds that were kept.

use std::fmt;

use serde::Serialize;

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

/// Deletes at the rate of inserts, behind inserts alone.
pub fn gc_debt(alone: &[Second], seconds: &[Second]) -> Vec<Condition> {
    let (inserted, deleted) = (sum(seconds, |s| s.inserted), sum(seconds, |s| s.deleted));
    let kept_up = deleted as f64 / inserted.max(1) as f64;
    let worst = most(seconds, |s| s.min_key_us) as f64 / 1e3;
    let (middle, last) = (&seconds[seconds.len() / 3..seconds.len() * 2 / 3], &seconds[seconds.len() * 2 / 3..]);
    let (before, after) = (most(middle, |s| s.dead), most(last, |s| s.dead));
    let slack = DEAD_SECONDS * ENTRIES_A_ROW * deleted / seconds.len().max(1) as u64;
    let (rate, rate_alone) = (average(seconds), average(alone));
    vec![
        at_least("deletes as a share of inserts", kept_up, 0.98),
        Condition {
            what: "dead versions do not grow",
            asked: format!("at most {} in the last third", before + slack),
            found: format!("at most {before} in the middle third, {after} in the last"),
            holds: after <= before + slack,
        },
        at_most("the slowest look-up of the smallest key, ms", worst, 10.0),
        at_least("rows/s as a share of those without deletes", rate / rate_alone.max(1.0), 0.9),
    ]
}

/// Close to the highest rate.
pub fn soak(plan: &Plan, outcome: &Outcome, seconds: &[Second]) -> Vec<Condition> {
    let asked = outcome.rate.unwrap_or(0.0);
    let slow = sum(seconds, |s| s.slow) as f64 / sum(seconds, |s| s.statements).max(1) as f64;
    let size = outcome.disk_size.unwrap_or(0).max(1) as f64;
    let last = seconds.last().copied().unwrap_or_default();
    let full = 100.0 * last.disk_bytes as f64 / size;
    let mut all = vec![
        at_least("rows/s as a share of those asked for", average(seconds) / asked.max(1.0), 0.99),
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
            found: format!("{full:.0} of {} MiB", size as u64 >> 20),
            holds: (full - plan.full as f64).abs() <= 10.0,
        },
    ];
    if let (Some(before), Some(budget)) = (outcome.memory_before, outcome.budget_bytes) {
        let grown = most(seconds, |s| s.resident_bytes).saturating_sub(before);
        let most = budget + (budget / 20).max(32 << 20);
        all.push(at_most("resident memory grew by, MiB", (grown >> 20) as f64, (most >> 20) as f64));
    }
    all
}

/// Rows a second of the second half of a search: by then the first memory is used up.
pub fn highest_rate(seconds: &[Second]) -> f64 {
    average(&seconds[seconds.len() / 2..])
}

/// What will be on disk when so many rows more are there than were filled, by what a search added.
pub fn disk_bytes(filled_bytes: u64, search: &[Second], rows: f64) -> u64 {
    let added = search.last().map_or(0, |last| last.disk_bytes.saturating_sub(filled_bytes));
    let a_row = added as f64 / sum(search, |s| s.inserted).max(1) as f64;
    filled_bytes + (a_row * rows) as u64
}

fn at_least(what: &'static str, found: f64, asked: f64) -> Condition {
    Condition { what, asked: format!("at least {asked}"), found: format!("{found:.3}"), holds: found >= asked }
}

fn at_most(what: &'static str, found: f64, asked: f64) -> Condition {
    Condition { what, asked: format!("at most {asked}"), found: format!("{found:.3}"), holds: found <= asked }
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
            dead: 9000,
            disk_bytes: 100_000_000 + second * 1_000_000,
            resident_bytes: 300 << 20,
        };
        (1..=60).map(second).collect()
    }

    fn missed(conditions: &[Condition]) -> Vec<&'static str> {
        conditions.iter().filter(|condition| !condition.holds).map(|condition| condition.what).collect()
    }

    #[test]
    fn each_condition_of_gc_debt_is_missed_by_its_own_fault() {
        let alone = sound();
        let with = |change: fn(&mut Second)| {
            let mut seconds = sound();
            seconds.iter_mut().for_each(change);
            missed(&gc_debt(&alone, &seconds))
        };
        assert!(with(|_| ()).is_empty());
        assert_eq!(with(|s| s.deleted = 970), ["deletes as a share of inserts"]);
        assert_eq!(with(|s| s.dead = 4000 * s.second), ["dead versions do not grow"]);
        assert!(with(|s| s.dead = 300 * s.second).is_empty(), "within a few seconds' worth");
        assert_eq!(
            with(|s| s.min_key_us = if s.second == 3 { 10_001 } else { 5 }),
            ["the slowest look-up of the smallest key, ms"]
        );
        let slower = with(|s| (s.inserted, s.deleted) = (890, 890));
        assert_eq!(slower, ["rows/s as a share of those without deletes"]);
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
        };
        let outcome = Outcome {
            attempt: 1,
            filled_bytes: 0,
            disk_size: Some(160_000_000 * 100 / 85),
            rate: Some(1000.0),
            memory_before: Some(100 << 20),
            budget_bytes: Some(200 << 20),
        };
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
        assert_eq!(with(|s| s.disk_bytes = 130_000_000), ["the disk at the end, percent full"]);
        assert_eq!(with(|s| s.resident_bytes = 333 << 20), ["resident memory grew by, MiB"]);
    }

    #[test]
    fn a_disk_is_sized_by_what_a_search_wrote() {
        let mut seconds = sound();
        assert_eq!(disk_bytes(100_000_000, &seconds, 120_000.0), 220_000_000, "60 MB for 60 000 rows");
        seconds[..30].iter_mut().for_each(|second| second.inserted = 5000);
        assert_eq!(highest_rate(&seconds), 1000.0, "its second half counts");
    }
}
