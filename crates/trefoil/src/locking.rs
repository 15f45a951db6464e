//! How a locking read locks.

/// How a row is locked: what others may do to it meanwhile.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use trefoil::{LockMode, Locking};
///
/// let (first, second) = (db.begin()?, db.begin()?);
/// first.get_locked(&fruit, b"apple", LockMode::Shared)?;
/// second.get_locked(&fruit, b"apple", LockMode::Shared)?; // shared by both
/// assert!(second.get_locked(&fruit, b"apple", Locking::EXCLUSIVE.no_wait()).is_err());
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Others may lock it shared too; nobody writes it (`LOCK IN SHARE MODE`).
    Shared,
    /// Others may add to it, too; nobody else reads it under a lock or sets it. What
    /// [`Transaction::add`](crate::Transaction::add) takes; locking reads do not.
    Increment,
    /// Nobody else locks or writes it (`FOR UPDATE`). What writes take.
    Exclusive,
}

/// What a locking read does about a row that another transaction has locked.
///
/// ```
/// use trefoil::{LockWait, Locking};
///
/// assert_eq!(Locking::EXCLUSIVE.wait, LockWait::Timeout);
/// assert_eq!(Locking::EXCLUSIVE.skip_locked().wait, LockWait::SkipLocked);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LockWait {
    /// Waits for it, at most [`Options::lock_timeout`](crate::Options::lock_timeout). The default.
    #[default]
    Timeout,
    /// Fails at once with [`Error::LockBusy`](crate::Error::LockBusy).
    NoWait,
    /// Passes the row over, as if it were not there.
    SkipLocked,
}

/// How a locking read locks: mode and wait. A [`LockMode`] alone waits.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let jobs = db.create_index("jobs", trefoil::IndexOptions::default())?;
/// # let mut tx = db.begin()?;
/// # for (k, v) in [("1", "wash"), ("2", "cut"), ("3", "dry")] {
/// #     tx.put(&jobs, k.as_bytes(), v.as_bytes())?;
/// # }
/// # tx.commit()?;
/// use trefoil::Locking;
///
/// let (first, second) = (db.begin()?, db.begin()?);
/// let next = |tx: &trefoil::Transaction| -> trefoil::Result<_> {
///     Ok(tx.range_locked(&jobs, .., Locking::EXCLUSIVE.skip_locked())?.next()?.map(|(_, job)| job.to_vec()))
/// };
/// assert_eq!(next(&first)?, Some(b"wash".to_vec()));
/// assert_eq!(next(&second)?, Some(b"cut".to_vec())); // two workers at one queue
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Locking {
    /// How a row is locked.
    pub mode: LockMode,
    /// What happens where it is locked already.
    pub wait: LockWait,
}

impl Locking {
    /// Shared, waiting.
    ///
    /// ```
    /// use trefoil::{LockMode, Locking};
    ///
    /// assert_eq!(Locking::from(LockMode::Shared), Locking::SHARED);
    /// ```
    pub const SHARED: Self = Self { mode: LockMode::Shared, wait: LockWait::Timeout };

    /// Exclusive, waiting.
    ///
    /// ```
    /// use trefoil::{LockMode, Locking};
    ///
    /// assert_eq!(Locking::from(LockMode::Exclusive), Locking::EXCLUSIVE);
    /// ```
    pub const EXCLUSIVE: Self = Self { mode: LockMode::Exclusive, wait: LockWait::Timeout };

    /// The same, but an error at once where it would wait (`NOWAIT`).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// use trefoil::{Error, Locking};
    ///
    /// let (mut first, second) = (db.begin()?, db.begin()?);
    /// first.put(&fruit, b"apple", b"13")?;
    /// let busy = second.get_locked(&fruit, b"apple", Locking::SHARED.no_wait());
    /// assert!(matches!(busy, Err(Error::LockBusy { .. })));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub const fn no_wait(self) -> Self {
        Self { wait: LockWait::NoWait, ..self }
    }

    /// The same, but rows that others have locked are passed over (`SKIP LOCKED`).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// use trefoil::Locking;
    ///
    /// let (mut first, second) = (db.begin()?, db.begin()?);
    /// first.put(&fruit, b"apple", b"13")?;
    /// let free = second.range_locked(&fruit, .., Locking::SHARED.skip_locked())?.collect()?;
    /// assert_eq!(free.len(), 2); // pear and plum
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub const fn skip_locked(self) -> Self {
        Self { wait: LockWait::SkipLocked, ..self }
    }

    /// The same, but nothing is waited for.
    pub(crate) fn at_once(self) -> Self {
        if self.wait == LockWait::Timeout { self.no_wait() } else { self }
    }
}

impl From<LockMode> for Locking {
    fn from(mode: LockMode) -> Self {
        Self { mode, wait: LockWait::Timeout }
    }
}
