//! Where the time of an operation went, in parts that add up to it.
//!
//! **The whole** is the time of all threads of the step's main kind (those that insert in load steps, those that query in
//! query steps) by its operations: with c clients in a closed loop c / rate.
//!
//! **The parts**, each by operation:
//!
//! 1. *driver*: outside of statements, not waiting for the other side: rows are made, answers are looked at.
//! 2. *other side*: waiting for deletes to follow, or for the pace.
//! 3. *reads*, *writes*, *log sync*: calls of the file layer on these threads, processor time within them included.
//! 4. *log company*, *log room*, *row locks*, *frames*, *delay: REASON*: waits that the engine counts for all of its callers
//!    together. These threads are charged with the share that their statements have of all statements' time.
//! 5. *foreground processor*: processor time of these threads, less that of the driver and of file calls. Of a server, what
//!    the driver takes within statements.
//! 6. *server processor*: of a server its process's, by the same share, at most what is left.
//! 7. *processor queue*: ready to run without a processor, at most what is left: a wait that ends in 3 or 4 is in there too.
//! 8. *unexplained*: what is left: latches, condition variables, the network.
//!
//! 1 to 8 are the whole by construction, so what makes them true is that 8 is small. It is negative where 4 counts what
//! another part has counted already.
//!
//! **Beside the time** is what costs something without being waited for by these threads: background processor time, bytes,
//! and the share of the time that lies in stalls, in which whatever part was waited for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::StepRecord;

/// How the part of what is left is called.
pub const UNEXPLAINED: &str = "unexplained";

/// Waits that engines count, in microseconds: the counter, and its part.
const WAITS: &[(&str, &str)] = &[
    ("log.company_wait_us", "log company"),
    ("log.room_wait_us", "log room"),
    ("locks.wait_us", "row locks"),
    ("cache.wait_us", "frames"),
];

/// The time of an operation in a step, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// The whole.
    pub total_us: f64,
    /// The parts.
    pub parts: BTreeMap<String, f64>,
    /// What is beside the time: name and amount by operation.
    pub beside: BTreeMap<String, f64>,
}

/// Splits the time of an operation; `None` where threads were not measured, or nothing was done.
#[must_use]
pub fn split(record: &StepRecord) -> Option<Split> {
    let kind = if record.result.is_query_step() { "query" } else { "insert" };
    let times = record.threads.get(kind)?;
    let operations = record.histograms.get(kind).map(|kept| kept.amount as f64).filter(|amount| *amount > 0.0)?;
    let all_statements: f64 = record.threads.values().map(|times| times.statement_us).sum();
    let share = if all_statements > 0.0 { times.statement_us / all_statements } else { 0.0 };
    let mut parts = BTreeMap::new();
    let mut left_us = times.wall_us;
    let mut part = |name: &str, us: f64, left_us: &mut f64| {
        *left_us -= us;
        *parts.entry(name.to_owned()).or_insert(0.0) += us / operations;
    };
    let driver_us = (times.wall_us - times.statement_us - times.partner_us).max(0.0);
    part("driver", driver_us, &mut left_us);
    part("other side", times.partner_us, &mut left_us);
    part("reads", times.read_us, &mut left_us);
    part("writes", times.write_us, &mut left_us);
    part("log sync", times.sync_us, &mut left_us);
    part("delay: pause", times.pause_us, &mut left_us);
    for (name, us) in waits(record) {
        part(&name, us * share, &mut left_us);
    }
    // The driver neither blocks nor waits of its own accord: its time is processor time, as far as there was any.
    let driver_cpu_us = driver_us.min(times.cpu_us);
    let foreground_us = (times.cpu_us - driver_cpu_us - times.file_cpu_us).max(0.0);
    part("foreground processor", foreground_us, &mut left_us);
    let process_cpu_us = record.kernel.process_cpu_secs.map(|secs| secs * 1e6);
    let is_server = record.kernel.driver_cpu_secs.is_some();
    if let Some(us) = process_cpu_us.filter(|_| is_server) {
        let us = (us * share).min(left_us.max(0.0));
        part("server processor", us, &mut left_us);
    }
    let queue_us = times.run_queue_us.unwrap_or(0.0).min(left_us.max(0.0));
    part("processor queue", queue_us, &mut left_us);
    let rest = left_us;
    part(UNEXPLAINED, rest, &mut left_us);
    let total_us = times.wall_us / operations;
    Some(Split { total_us, parts, beside: beside(record, operations, is_server) })
}

/// What the engine counted as waited in the step.
fn waits(record: &StepRecord) -> Vec<(String, f64)> {
    let change = |name: &str| {
        let after = record.counters_after.get(name).copied()?;
        Some(after.saturating_sub(record.counters_before.get(name).copied().unwrap_or(0)) as f64)
    };
    let named = WAITS.iter().filter_map(|(counter, part)| Some(((*part).to_owned(), change(counter)?)));
    let delays = record.counters_after.keys().filter_map(|name| {
        let reason = name.strip_prefix("delays.")?.strip_suffix(".us")?;
        Some((format!("delay: {reason}"), change(name)?))
    });
    // A server counts in milliseconds.
    let locks = change("Innodb_row_lock_time").map(|ms| ("row locks".to_owned(), ms * 1e3));
    named.chain(delays).chain(locks).collect()
}

fn beside(record: &StepRecord, operations: f64, is_server: bool) -> BTreeMap<String, f64> {
    let mut beside = BTreeMap::new();
    let mut put = |name: &str, amount: Option<f64>| {
        if let Some(amount) = amount {
            beside.insert(name.to_owned(), amount / operations);
        }
    };
    let kernel = &record.kernel;
    let threads_cpu_us: f64 = record.threads.values().map(|times| times.cpu_us).sum();
    let background_us = kernel.process_cpu_secs.map(|secs| (secs * 1e6 - threads_cpu_us).max(0.0));
    put("background processor us", background_us.filter(|_| !is_server));
    put("read KB", kernel.process_read_bytes.map(|bytes| bytes as f64 / 1024.0));
    put("written KB", kernel.process_write_bytes.map(|bytes| bytes as f64 / 1024.0));
    let threads: Vec<_> = record.threads.values().collect();
    put("reads", Some(threads.iter().map(|times| times.reads).sum()));
    put("writes", Some(threads.iter().map(|times| times.writes).sum()));
    put("syncs", Some(threads.iter().map(|times| times.syncs).sum()));
    let stalled_ns: u64 = record.stalls.iter().map(crate::stall::Span::length_ns).sum();
    put("in stalls us", Some(stalled_ns as f64 / 1e3 * f64::from(record.result.clients)));
    beside
}

/// The mean of several repetitions: parts still add up.
#[must_use]
pub fn mean(splits: &[Split]) -> Option<Split> {
    let count = splits.len() as f64;
    let mut out =
        Split { total_us: splits.iter().map(|split| split.total_us).sum::<f64>() / count, ..Split::default() };
    for split in splits {
        for (sum, more) in [(&mut out.parts, &split.parts), (&mut out.beside, &split.beside)] {
            more.iter().for_each(|(name, us)| *sum.entry(name.clone()).or_insert(0.0) += us / count);
        }
    }
    (!splits.is_empty()).then_some(out)
}

/// A part of a difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The part.
    pub part: String,
    /// Microseconds an operation in the first run.
    pub before_us: f64,
    /// In the second.
    pub after_us: f64,
    /// The second less the first.
    pub change_us: f64,
}

/// The parts of the difference of two steps, the largest change first.
#[must_use]
pub fn changes(before: &Split, after: &Split) -> Vec<Change> {
    let names: std::collections::BTreeSet<&String> = before.parts.keys().chain(after.parts.keys()).collect();
    let of = |split: &Split, name: &String| split.parts.get(name).copied().unwrap_or(0.0);
    let mut all: Vec<Change> = names
        .into_iter()
        .map(|name| {
            let (before_us, after_us) = (of(before, name), of(after, name));
            Change { part: name.clone(), before_us, after_us, change_us: after_us - before_us }
        })
        .filter(|change| change.before_us != 0.0 || change.after_us != 0.0)
        .collect();
    all.sort_by(|left, right| right.change_us.abs().total_cmp(&left.change_us.abs()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::KeptKind;
    use crate::thread_time::ThreadTimes;

    fn record(sync_us: f64, locks_us: u64) -> StepRecord {
        let mut record = StepRecord::default();
        record.result.step = "l.i1".into();
        record.result.clients = 1;
        record.histograms.insert("insert".into(), KeptKind { amount: 10, ..KeptKind::default() });
        let times = ThreadTimes {
            threads: 1,
            wall_us: 1_000.0 + sync_us,
            statement_us: 800.0 + sync_us,
            cpu_us: 500.0,
            run_queue_us: Some(1_000.0),
            sync_us,
            syncs: 1.0,
            ..ThreadTimes::default()
        };
        record.threads.insert("insert".into(), times);
        record.threads.insert("delete".into(), ThreadTimes { statement_us: 800.0 + sync_us, ..times });
        record.counters_before.insert("locks.wait_us".into(), 50);
        record.counters_after.insert("locks.wait_us".into(), 50 + locks_us);
        record.counters_after.insert("delays.runs.us".into(), 20);
        record
    }

    #[test]
    fn the_parts_are_the_whole() {
        let split = split(&record(0.0, 200)).unwrap();
        assert!((split.parts.values().sum::<f64>() - split.total_us).abs() < 1e-9 && split.total_us == 100.0);
        // Half of what all statements waited for is these threads'.
        assert_eq!((split.parts["row locks"], split.parts["delay: runs"]), (10.0, 1.0));
        // 20 of the driver, 30 of the foreground; the queue takes the rest and not more.
        assert_eq!((split.parts["driver"], split.parts["foreground processor"]), (20.0, 30.0));
        assert!((split.parts["processor queue"] - 39.0).abs() < 1e-9 && split.parts[UNEXPLAINED].abs() < 1e-9);
    }

    #[test]
    fn the_largest_change_is_first_and_changes_add_up() {
        let (before, after) = (split(&record(0.0, 200)).unwrap(), split(&record(2_000.0, 240)).unwrap());
        let changes = changes(&before, &after);
        assert_eq!(changes[0].part, "log sync");
        let sum: f64 = changes.iter().map(|change| change.change_us).sum();
        assert!((sum - (after.total_us - before.total_us)).abs() < 1e-9);
        let both = mean(&[before.clone(), after.clone()]).unwrap();
        assert_eq!(both.total_us, (before.total_us + after.total_us) / 2.0);
        assert!(split(&StepRecord::default()).is_none());
    }
}
