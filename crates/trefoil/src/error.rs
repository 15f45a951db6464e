//! The one public error.

use std::fmt;

use base::{CommitTs, Corruption, Fault};

use crate::table::{ForeignKey, OwnedValue, Value};

/// Result of the public API: its errors are [`Error`] unless another type is named.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// use trefoil::{Index, Transaction};
///
/// fn count(tx: &Transaction, index: &Index) -> trefoil::Result<usize> {
///     Ok(tx.range(index, ..)?.collect()?.len())
/// }
/// assert_eq!(count(&db.begin()?, &fruit)?, 0);
/// # Ok::<(), trefoil::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, by what the caller can do about it.
///
/// | do this | on these |
/// |---|---|
/// | run the transaction again ([`Error::is_retryable`]) | `Deadlock`, `LockTimeout`, `LockBusy`, `SnapshotConflict`, `DefinitionChanged` |
/// | choose another name or key | `DuplicateKey`, `AlreadyExists`, `NotFound` |
/// | ask for something else | `InvalidArgument`, `Limit`, `Unsupported` |
/// | get the handle again, or stop | `Dropped`, `Closed` |
/// | open it otherwise | `ReadOnly` |
/// | make room | `DiskFull` |
/// | do what the cancelling thread wanted | `Cancelled` |
/// | reopen, then look | `CommitOutcomeUnknown`, `Poisoned` |
/// | decide the prepared transaction | `HeldByPrepared` |
/// | look at the path, or take another version | `NotADatabase`, `Locked`, `NewerFormat`, `UpgradeRequired` |
/// | rebuild the index | `Quarantined` |
/// | save what can be read | `Damaged` |
/// | look at the disk | `Corrupt`, `Io` |
///
/// A statement that fails leaves nothing half done and the transaction goes on; only `Deadlock` rolls it back.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, IndexSchema, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
/// # let people = db.create_table("people", schema)?;
/// # let mut tx = db.begin()?;
/// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
/// #     tx.insert(&people, &[id.into(), name.into()])?;
/// # }
/// # tx.commit()?;
/// use trefoil::Error;
///
/// let mut tx = db.begin()?;
/// match tx.insert(&people, &[1i64.into(), "Alan".into()]) {
///     Err(Error::DuplicateKey(taken)) => assert_eq!(taken.index, "primary"),
///     other => panic!("Ada has this number: {other:?}"),
/// }
/// tx.insert(&people, &[4i64.into(), "Alan".into()])?; // the statement failed, not the transaction
/// tx.commit()?;
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction was chosen to break a deadlock; it was rolled back.
    #[error("deadlock: {cycle}; the transaction was rolled back, run it again")]
    Deadlock {
        /// Who waited for whom, on which index and key.
        cycle: String,
    },
    /// A row lock was not granted in time. The transaction goes on; the statement did nothing.
    #[error("lock wait timeout after {waited_ms} ms on index {index}, key {key}; try again or roll back")]
    LockTimeout {
        /// The index.
        index: String,
        /// The key, printable.
        key: String,
        /// How long the wait was, in milliseconds.
        waited_ms: u64,
    },
    /// A row is locked by another transaction, and the read was not to wait:
    /// [`Locking::no_wait`](crate::Locking::no_wait). The transaction goes on; the statement did nothing.
    #[error("key {key} of index {index} is locked by another transaction (NOWAIT)")]
    LockBusy {
        /// The index.
        index: String,
        /// The key, printable.
        key: String,
    },
    /// The statement waited for a lock, or to delete on a full disk, and another thread ended that: [`Canceller::cancel`](crate::Canceller::cancel). The
    /// transaction goes on; the statement did nothing. Or another thread ended the build of an index:
    /// [`IndexBuild::cancel`](crate::IndexBuild::cancel); nothing of it stays.
    #[error("another thread cancelled the wait for a lock or for room on the disk, or the build of an index")]
    Cancelled,
    /// The transaction has [`TransactionOptions::snapshot_isolation`](crate::TransactionOptions::snapshot_isolation), and the
    /// row it wanted to write or lock was changed after its snapshot. The statement did nothing; the same transaction will
    /// meet it again, a new one will not.
    #[error("key {key} of index {index} was changed after the transaction's snapshot; run the transaction again")]
    SnapshotConflict {
        /// The index.
        index: String,
        /// The key, printable.
        key: String,
    },
    /// Another row has the primary key, or the value of a unique index, that a row should get. The statement did nothing,
    /// the transaction goes on.
    #[error("{0}")]
    DuplicateKey(Box<Duplicate>),
    /// The commit was handed to the log, then the log failed: after reopening it is there whole or not at all.
    /// Do not retry blindly. While the database is poisoned, reads may show it.
    #[error("the outcome of the commit at {ts} is unknown: {cause}; reopen and look")]
    CommitOutcomeUnknown {
        /// Its timestamp.
        ts: CommitTs,
        /// What failed.
        cause: String,
    },
    /// Writes are refused since an earlier fault; verified reads go on. Reopen the database.
    #[error("the database refuses writes since an earlier fault: {cause}; reopen it")]
    Poisoned {
        /// The first cause.
        cause: String,
    },
    /// The database was opened to be read: [`Options::read_only`](crate::Options::read_only).
    #[error("the database is opened read-only (Options::read_only); open it without that option to change it")]
    ReadOnly,
    /// No disk space for what was asked. Reads, drops and smaller work go on; it resumes by itself.
    #[error("disk full: no space left for {what}: {remedy}")]
    DiskFull {
        /// What the space was for.
        what: String,
        /// What the operator can do.
        remedy: String,
    },
    /// Bytes on disk are not what was written.
    #[error("{0}")]
    Corrupt(Box<Corruption>),
    /// The path does not hold a database.
    #[error("{path} is not a Trefoil database: {why}")]
    NotADatabase {
        /// The path.
        path: String,
        /// What was found.
        why: String,
    },
    /// Another process, or another handle of this one, has the database open.
    #[error("{path} is open in another process; close it there first")]
    Locked {
        /// The path.
        path: String,
    },
    /// The database was written by a newer version of Trefoil.
    #[error("{path} has format {found}, this build reads up to {supported}; open it with a newer version")]
    NewerFormat {
        /// The path.
        path: String,
        /// Format found.
        found: u32,
        /// Format supported.
        supported: u32,
    },
    /// The database was written by an older version and must be upgraded first.
    #[error(
        "{path} has format {found}, {supported} is needed; `trefoil upgrade` of a release that knows both brings it there"
    )]
    UpgradeRequired {
        /// The path.
        path: String,
        /// Format found.
        found: u32,
        /// Format supported.
        supported: u32,
    },
    /// A limit was passed.
    #[error("{what} is {got}, the limit is {limit}")]
    Limit {
        /// What is limited, with its unit.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// What was asked for.
        got: u64,
    },
    /// Not there yet, or not possible with these options.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// An argument makes no sense.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// No index or table of this name.
    #[error("no {kind} named {name:?}")]
    NotFound {
        /// "index" or "table".
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("{kind} {name:?} exists already")]
    AlreadyExists {
        /// "index" or "table".
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A prepared transaction has written to the table or index, and its definition cannot change before that is decided:
    /// [`Database::commit_prepared`](crate::Database::commit_prepared),
    /// [`Database::rollback_prepared`](crate::Database::rollback_prepared).
    #[error("{name:?} is held by the prepared transaction {xid}; commit it or roll it back first")]
    HeldByPrepared {
        /// The table or index.
        name: String,
        /// The transaction's name, printable.
        xid: String,
    },
    /// The index or table behind this handle was dropped.
    #[error("{name:?} was dropped")]
    Dropped {
        /// Its name.
        name: String,
    },
    /// The index is damaged and was set aside: its table is read and written without it. Make it anew:
    /// [`Database::rebuild_index`](crate::Database::rebuild_index).
    #[error(
        "index {index:?} is damaged and quarantined; rebuild it from its table: Database::rebuild_index, or \
         `trefoil rebuild DATABASE TABLE.{index}`"
    )]
    Quarantined {
        /// Its name.
        index: String,
    },
    /// Damage was met in the rows of a table, or in a plain index: it is only read since, and everything else goes on. Save
    /// what can be read (`trefoil dump --salvage`), then restore a backup or drop it.
    #[error(
        "{name} is only read since damage was met in it: {damage}; save what can be read with `trefoil dump DATABASE \
         --salvage`, then restore a backup or drop it"
    )]
    Damaged {
        /// Its name; `TABLE.primary` for a table's rows.
        name: String,
        /// What was met.
        damage: Box<Corruption>,
    },
    /// The index was built after this transaction's snapshot was taken, so it would miss rows; or it came, was made anew or
    /// dropped after the transaction had written to its table; or the table's columns were changed while it was read.
    #[error("{name:?} was made, changed or dropped beside this transaction; run the transaction again")]
    DefinitionChanged {
        /// Its name.
        name: String,
    },
    /// A row would have no parent, or rows their parent no longer: [`ForeignKey`](crate::ForeignKey). The statement did
    /// nothing; the transaction goes on.
    #[error("{0}")]
    ForeignKey(Box<ForeignKeyFailure>),
    /// A foreign key cannot be as it is described: its parent is missing, has no index on the columns, or has others.
    #[error("foreign key {constraint:?} is refused: {why}")]
    ForeignKeyRefused {
        /// Its name.
        constraint: String,
        /// What is wrong.
        why: String,
    },
    /// A table, a column or an index is to go that a foreign key needs. Drop the foreign key first.
    #[error("foreign key {constraint:?} of table {table:?} needs {what}; drop the foreign key first")]
    NeededByForeignKey {
        /// What is needed.
        what: String,
        /// The foreign key.
        constraint: String,
        /// The table that has it.
        table: String,
    },
    /// The database behind this handle was closed.
    #[error("the database is closed")]
    Closed,
    /// The operating system refused.
    #[error("{op} {path}: {message}")]
    Io {
        /// What was tried.
        op: &'static str,
        /// The file.
        path: String,
        /// The system's words.
        message: String,
    },
}

/// What a foreign key found: [`ForeignKeyFailure::kind`].
///
/// ```
/// use trefoil::{Error, ForeignKeyFailureKind};
///
/// fn is_orphan(error: &Error) -> bool {
///     matches!(error, Error::ForeignKey(failure) if failure.kind == ForeignKeyFailureKind::NoParent)
/// }
/// assert!(!is_orphan(&Error::Closed));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignKeyFailureKind {
    /// No row of the parent has the key.
    NoParent,
    /// Rows have the parent that was to go, or to change its key.
    HasChildren,
    /// Cascades went deeper than 15 tables, or rows.
    TooDeep,
}

/// Which foreign key was broken, and by what: [`Error::ForeignKey`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::{ColumnType, ForeignKey, IndexSchema, Schema};
///
/// let people = Schema::builder().column("id", ColumnType::I64).nullable("boss", ColumnType::I64).primary_key(&["id"]);
/// let people = people.index(IndexSchema::new("by_boss", &["boss"]));
/// let people = people.foreign_key(ForeignKey::new("boss", &["boss"], "people", &["id"])).build()?;
/// let people = db.create_table("people", people)?;
/// let error = db.begin()?.insert(&people, &[1i64.into(), 2i64.into()]).expect_err("nobody has number 2");
/// assert_eq!(error.to_string(), "foreign key \"boss\" of people: people has no row with (id) = (2)");
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ForeignKeyFailure {
    /// What was found.
    pub kind: ForeignKeyFailureKind,
    /// The foreign key.
    pub constraint: ForeignKey,
    /// The table that has it.
    pub table: String,
    /// The values of its columns.
    pub key: Vec<OwnedValue>,
}

impl fmt::Display for ForeignKeyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, constraint, table, key } = self;
        let (parent, key) = (constraint.parent(), shown(key));
        write!(f, "foreign key {:?} of {table}: ", constraint.name())?;
        match kind {
            ForeignKeyFailureKind::NoParent => {
                write!(f, "{parent} has no row with ({}) = {key}", constraint.parent_columns().join(", "))
            }
            ForeignKeyFailureKind::HasChildren => {
                write!(f, "a row with ({}) = {key} needs that row of {parent}", constraint.columns().join(", "))
            }
            ForeignKeyFailureKind::TooDeep => write!(f, "cascades are deeper than 15, at a row of {parent} with {key}"),
        }
    }
}

/// What a row cannot have because another one has it: [`Error::DuplicateKey`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::{ColumnType, IndexSchema, Schema};
///
/// let schema = Schema::builder().column("id", ColumnType::I64).column("mail", ColumnType::Text).primary_key(&["id"]);
/// let schema = schema.index(IndexSchema::new("by_mail", &["mail"]).unique()).build()?;
/// let users = db.create_table("users", schema)?;
/// let mut tx = db.begin()?;
/// tx.insert(&users, &[7i64.into(), "ada@example.org".into()])?;
/// let error = tx.insert(&users, &[8i64.into(), "ada@example.org".into()]).expect_err("Ada has it");
/// assert_eq!(error.to_string(), r#"duplicate key ("ada@example.org") in users.by_mail: row (7) has it"#);
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Duplicate {
    /// The table.
    pub table: String,
    /// The unique index; `primary` for the primary key.
    pub index: String,
    /// The values of its columns.
    pub key: Vec<OwnedValue>,
    /// The primary key of the row that has them.
    pub row: Vec<OwnedValue>,
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, index, key, row } = self;
        write!(f, "duplicate key {} in {table}.{index}: row {} has it", shown(key), shown(row))
    }
}

fn shown(values: &[OwnedValue]) -> String {
    let all: Vec<String> = values.iter().map(Value::to_string).collect();
    format!("({})", all.join(", "))
}

impl Error {
    /// True if the same transaction, run again, may succeed: deadlock, a row that stays locked or was changed, a
    /// changed definition.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// use std::time::Duration;
    /// use trefoil::{Database, IndexOptions, Options};
    ///
    /// let db = Database::open(dir.path(), Options { lock_timeout: Duration::from_millis(1), ..Options::default() })?;
    /// # let fruit = db.create_index("fruit", IndexOptions::default())?;
    /// let (mut first, mut second) = (db.begin()?, db.begin()?);
    /// first.put(&fruit, b"apple", b"12")?;
    /// let error = second.put(&fruit, b"apple", b"13").expect_err("the row is locked");
    /// assert!(error.is_retryable(), "{error}");
    /// first.commit()?;
    /// second.put(&fruit, b"apple", b"13")?;
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::Deadlock { .. }
                | Error::LockTimeout { .. }
                | Error::LockBusy { .. }
                | Error::SnapshotConflict { .. }
                | Error::DefinitionChanged { .. }
        )
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Io { op, path, message, .. } => Error::Io { op, path, message },
            Fault::NoSpace { what, remedy } => Error::DiskFull { what, remedy },
            Fault::Corrupt(c) => Error::Corrupt(c),
            Fault::Poisoned(cause) => Error::Poisoned { cause: cause.to_string() },
            Fault::Limit { what, limit, got } => Error::Limit { what, limit, got },
            Fault::Invalid(why) => Error::InvalidArgument(why),
            Fault::Changed => Error::DefinitionChanged { name: "the table".to_owned() },
            Fault::Unsupported(what) => Error::Unsupported(what),
            Fault::Format { path, found, supported, .. } if found > supported => {
                Error::NewerFormat { path, found, supported }
            }
            Fault::Format { path, found, supported, .. } => Error::UpgradeRequired { path, found, supported },
            other => Error::Io { op: "engine", path: String::new(), message: other.to_string() },
        }
    }
}
