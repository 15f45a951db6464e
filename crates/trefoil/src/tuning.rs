//! What may be set anew while the database is open. What it began with is in [`crate::Options`].

use crate::database::Database;

impl Database {
    /// Sets [`Options::deadlock_detect`](crate::Options::deadlock_detect) anew. Turned on, it finds those too who wait for
    /// each other already.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use std::time::Duration;
    /// use trefoil::{Error, LockMode, TransactionOptions};
    ///
    /// db.set_deadlock_detect(false);
    /// let short = TransactionOptions { lock_timeout: Some(Duration::from_millis(50)), ..Default::default() };
    /// let (first, second) = (db.begin()?, db.begin_with(short)?);
    /// first.get_locked(&fruit, b"apple", LockMode::Exclusive)?;
    /// second.get_locked(&fruit, b"pear", LockMode::Exclusive)?;
    /// std::thread::scope(|s| {
    ///     let first = s.spawn(|| { let first = first; first.get_locked(&fruit, b"pear", LockMode::Exclusive).is_ok() });
    ///     let failed = second.get_locked(&fruit, b"apple", LockMode::Exclusive);
    ///     assert!(matches!(failed, Err(Error::LockTimeout { .. }))); // not `Deadlock`
    ///     second.rollback();
    ///     assert!(first.join().expect("no panic"));
    /// });
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn set_deadlock_detect(&self, on: bool) {
        self.engine().locks.search_deadlocks(on);
    }

    /// Sets [`Options::gc_debt_limit_bytes`](crate::Options::gc_debt_limit_bytes) anew; 0 is the default again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// db.set_gc_debt_limit(1 << 30); // a mass delete tonight shall not slow anybody down
    /// let delays = db.stats().delays;
    /// assert!(delays.iter().any(|delay| delay.reason == "gc" && delay.count == 0));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn set_gc_debt_limit(&self, bytes: u64) {
        self.engine().controller.limit_gc(bytes);
    }

    /// Sets [`Options::io_budget_bytes`](crate::Options::io_budget_bytes) anew; 0 is no bound.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// db.set_io_budget(20 << 20); // others use this disk just now
    /// // …
    /// db.set_io_budget(0);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn set_io_budget(&self, bytes_per_second: u64) {
        self.engine().io_budget.set(bytes_per_second);
    }
}
