//! The moment that a backup shows, for who keeps an order of commits beside the database.

use std::path::Path;

use base::Lsn;

use super::{LogCopy, RUNS_ONLY};
use crate::engine::Engine;
use crate::error::{Error, Result};

/// The moment that a backup shows, about to come: [`Backup::moment`](super::Backup::moment).
///
/// ```
/// use std::ops::ControlFlow;
/// use std::sync::{Mutex, TryLockError};
///
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
/// let order = Mutex::new(7);
/// let around = |moment: &mut trefoil::BackupMoment<'_>| {
///     while let Err(TryLockError::WouldBlock) = order.try_lock().map(|_place| moment.come()) {
///         if !moment.wait() {
///             return ControlFlow::Break(());
///         }
///     }
///     ControlFlow::Continue(())
/// };
/// db.backup().moment(&around).to(dir.path().join("monday"))?;
/// # Ok::<(), trefoil::Error>(())
/// ```
pub struct BackupMoment<'a> {
    engine: &'a Engine,
    dir: &'a Path,
    log: &'a mut LogCopy,
    ask: &'a mut dyn FnMut() -> base::Result<()>,
    end: Option<Result<Lsn>>,
    failed: Option<Error>,
}

impl<'a> BackupMoment<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        dir: &'a Path,
        log: &'a mut LogCopy,
        ask: &'a mut dyn FnMut() -> base::Result<()>,
    ) -> Self {
        Self { engine, dir, log, ask, end: None, failed: None }
    }

    /// Lets it come: all that was committed before is in the backup, nothing that is committed behind. Takes one sync of the log. A
    /// second call counts for nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// use std::ops::ControlFlow;
    ///
    /// let around = |moment: &mut trefoil::BackupMoment<'_>| {
    ///     moment.come();
    ///     ControlFlow::Continue(())
    /// };
    /// db.backup().moment(&around).to(dir.path().join("monday"))?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn come(&mut self) {
        if self.end.is_none() {
            self.end = Some(self.engine.wal.settle().map_err(Error::from));
        }
    }

    /// For who waits until he may let it come, and holds nobody up just then: to be called a few times a second. The log that has grown
    /// meanwhile is copied, so that commits do not come to wait for room in it; and the watcher is asked. False: the backup cannot go on,
    /// so there is nothing to wait for; whatever is answered then it ends with what went wrong. Behind the moment one call lets the log go,
    /// for who has more to do.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path().join("fruit.db"), trefoil::Options::default())?;
    /// use std::ops::ControlFlow;
    ///
    /// let others = std::cell::Cell::new(3);
    /// let around = |moment: &mut trefoil::BackupMoment<'_>| {
    ///     while others.get() > 0 && moment.wait() {
    ///         others.set(others.get() - 1); // they leave one by one
    ///     }
    ///     moment.come();
    ///     ControlFlow::Continue(())
    /// };
    /// db.backup().moment(&around).to(dir.path().join("monday"))?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn wait(&mut self) -> bool {
        if self.failed.is_none() {
            let done = (self.ask)().and_then(|()| match &self.end {
                None => self.engine.look(self.dir, self.log),
                Some(Ok(end)) => {
                    self.engine.copy_log(self.dir, self.log, *end)?;
                    self.log.hold.move_to(RUNS_ONLY);
                    Ok(())
                }
                Some(Err(_)) => Ok(()),
            });
            self.failed = done.err().map(Error::from);
        }
        self.failed.is_none()
    }

    /// What came of it: no end if nobody let it come.
    pub(super) fn end(self) -> Result<Option<Lsn>> {
        match self.failed {
            Some(failed) => Err(failed),
            None => self.end.transpose(),
        }
    }
}

impl std::fmt::Debug for BackupMoment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackupMoment").field("has_come", &self.end.is_some()).finish_non_exhaustive()
    }
}
