//! What a record has of TPC-C beside what every record has.

use lab_measure::histogram::Latency;
use lab_measure::record::StepRecord;
use lab_measure::result::OfTransaction;

use super::client::{Brought, OfKind};
use super::transactions::Transaction;

/// Adds transactions a minute and what was measured of each kind.
pub(super) fn add(record: &mut StepRecord, brought: &[Brought]) {
    let secs = record.result.throughput.secs.filter(|secs| *secs > 0.0);
    let (mut all, mut retries) = (0, 0);
    let mut reasons = std::collections::BTreeMap::<&str, u64>::new();
    for (transaction, name, _) in Transaction::MIX {
        let mut sum = OfKind::default();
        for session in brought {
            let of_kind = &session.kinds[transaction as usize];
            sum.responses.merge(&of_kind.responses);
            sum.rolled_back += of_kind.rolled_back;
            for (reason, count) in &of_kind.retries {
                *reasons.entry(*reason).or_default() += count;
                *sum.retries.entry(*reason).or_default() += count;
            }
        }
        let count = sum.responses.count();
        all += count;
        retries += sum.retries.values().sum::<u64>();
        if transaction == Transaction::NewOrder {
            let committed = (count - sum.rolled_back) as f64;
            record.result.throughput.nopm = secs.map(|secs| committed * 60.0 / secs);
        }
        record.result.transactions.insert(name.to_owned(), of_transaction(&sum));
        record.transactions.insert(name.to_owned(), sum.responses.kept());
    }
    let result = &mut record.result;
    result.throughput.tpm = secs.map(|secs| all as f64 * 60.0 / secs);
    // One that came to no end would have ended the run.
    result.throughput.aborts = Some(0.0);
    result.throughput.retries = Some(retries as f64);
    let busy = record.kernel.process_cpu_secs.filter(|_| record.kernel.secs > 0.0);
    let cores = f64::from(result.cores.max(1));
    result.costs.cores_cpu_pct = busy.map(|busy| 100.0 * busy / (record.kernel.secs * cores));
    if !reasons.is_empty() {
        let told: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        record.notes.push(format!("run again: {}", told.join(", ")));
    }
}

fn of_transaction(kind: &OfKind) -> OfTransaction {
    let quantile = |share| Latency::quantile_us(&kind.responses, share);
    OfTransaction {
        count: Some(kind.responses.count() as f64),
        rolled_back: Some(kind.rolled_back as f64),
        retries: Some(kind.retries.values().sum::<u64>() as f64),
        p50_us: quantile(0.5),
        p90_us: quantile(0.9),
        p95_us: quantile(0.95),
        p99_us: quantile(0.99),
        max_us: kind.responses.max_us(),
    }
}
