//! An engine at rest: what a settle takes, and what is on disk then.

use std::path::Path;
use std::time::{Duration, Instant};

use lab_measure::{Difference, disk};
use lab_target::{Sizes, Target};

use crate::coordinator::Stage;
use crate::sequence::RunError;

/// The longest a settle may take.
const SETTLE_LIMIT: Duration = Duration::from_secs(1_200);

/// Brings the engine to rest, for `least` at least. Returns the kernel's counters over it, and when it had drained.
pub(crate) fn settle(
    target: &dyn Target,
    stage: &Stage<'_>,
    least: Duration,
) -> Result<(Difference, Duration), RunError> {
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
    Ok((stage.snapshot().since(&begin), drained))
}

/// Sizes as the engine tells them, else what its files occupy.
pub(crate) fn sizes(target: &dyn Target, dir: &Path) -> Result<Sizes, RunError> {
    let mut sizes = target.sizes()?;
    if sizes.total_bytes.is_none() {
        sizes.total_bytes = disk::occupied_bytes(dir).filter(|bytes| *bytes > 0);
    }
    Ok(sizes)
}
