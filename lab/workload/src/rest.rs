//! An engine at rest: what a settle takes, and what is on disk then.

use std::path::Path;
use std::time::{Duration, Instant};

use lab_measure::disk;
use lab_measure::record::StepRecord;
use lab_target::{Counters, Sizes, Target};

use crate::assemble::{self, Around};
use crate::check::{Checked, verify};
use crate::coordinator::Stage;
use crate::sequence::RunError;

/// The longest a settle may take.
const SETTLE_LIMIT: Duration = Duration::from_secs(1_200);

/// Brings the engine to rest, for `least` at least; what that cost is added to the load right before it. After the last step
/// the engine's own check runs.
pub(crate) fn settle(
    (target, dir): (&dyn Target, &Path),
    stage: &Stage<'_>,
    least: Duration,
    load: Option<StepRecord>,
    is_last: bool,
) -> Result<(), RunError> {
    stage.watcher.phase("settling");
    let began = Instant::now();
    let begin = stage.snapshot();
    target.settle(SETTLE_LIMIT)?;
    let drained = began.elapsed();
    while began.elapsed() < least {
        if stage.is_interrupted() {
            return Err(RunError::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let span = stage.snapshot().since(&begin);
    let (sizes, counters) = (sizes(target, dir)?, target.counters()?);
    if is_last {
        verify(target)?;
    }
    if let Some(mut record) = load {
        assemble::add_settle(&mut record, span, drained, &sizes, counters);
        stage.watcher.finished(&record.result.step, &record);
    }
    Ok(())
}

/// What a step left, and then what a check says of it: the check reads everything and gives the engine time, which are no part
/// of the step.
pub(crate) fn around(
    (target, dir): (&dyn Target, &Path),
    counters_before: Counters,
    check: impl FnOnce() -> Result<Checked, RunError>,
) -> Result<Around, RunError> {
    let (counters_after, sizes) = (target.counters()?, sizes(target, dir)?);
    Ok(Around { counters_before, counters_after, sizes, checked: check()? })
}

/// Sizes as the engine tells them, else what its files occupy.
fn sizes(target: &dyn Target, dir: &Path) -> Result<Sizes, RunError> {
    let mut sizes = target.sizes()?;
    if sizes.total_bytes.is_none() {
        sizes.total_bytes = disk::occupied_bytes(dir).filter(|bytes| *bytes > 0);
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use lab_target::row::{Batch, RowView};
    use lab_target::{DiskLimits, Durability, Setup, TargetSpec, registry};

    use super::*;

    #[test]
    fn what_a_check_does_is_no_part_of_the_step() {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup {
            dir: dir.path().into(),
            durability: Durability::Write,
            budget_bytes: None,
            io: None,
            compression: None,
            disk: DiskLimits::default(),
            seed: 7,
            price: lab_target::Price::Int,
        };
        let target = registry::open(&TargetSpec::parse("model").unwrap(), &setup).unwrap();
        target.create_table(0).unwrap();
        let around = around((&*target, dir.path()), Counters::new(), || {
            let mut rows = Batch::default();
            rows.push(RowView { dateandtime: 1, cashregisterid: 1, customerid: 1, productid: 1, price: 1, data: b"a" });
            target.session()?.insert(0, &rows)?;
            std::fs::write(dir.path().join("file"), [1; 10_000]).unwrap();
            Ok(Checked::default())
        });
        let around = around.unwrap();
        assert_eq!((around.counters_after["rows"], around.sizes.total_bytes), (0, None));
        assert_eq!(target.counters().unwrap()["rows"], 1);
        assert!(sizes(&*target, dir.path()).unwrap().total_bytes.is_some_and(|bytes| bytes > 0));
    }
}
