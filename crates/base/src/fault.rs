//! What can go wrong below the public API. Outcomes (not found, conflict) are return types, never faults;
//! bugs are assertions.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use crate::IndexId;

/// Result of everything that touches a file or a limit.
pub type Result<T, E = Fault> = std::result::Result<T, E>;

/// A fault: clonable, because the first one is kept and handed to everybody who asks later.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The operating system refused.
    #[error("{op} {path}: {message}")]
    Io {
        /// What was tried: "read", "write", "sync", "open", …
        op: &'static str,
        /// The file.
        path: String,
        /// The kind, for callers that look at it.
        kind: io::ErrorKind,
        /// The system's own words.
        message: String,
    },
    /// Space could not be allocated. Legal only in allocation, never from a write into allocated space.
    #[error("no space left for {what}: {remedy}")]
    NoSpace {
        /// What the space was for.
        what: String,
        /// What the operator can do.
        remedy: String,
    },
    /// Bytes on disk are not what was written.
    #[error("{0}")]
    Corrupt(Box<Corruption>),
    /// The database refuses writes since an earlier fault, which is kept.
    #[error("the database refuses writes since an earlier fault: {0}; reopen it")]
    Poisoned(Arc<str>),
    /// A limit of the format was passed.
    #[error("{what} is {got}, the limit is {limit}")]
    Limit {
        /// What is limited, with its unit.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// What was asked for.
        got: u64,
    },
    /// An argument makes no sense: a value of another type than its column, a schema without a primary key.
    #[error("invalid argument: {0}")]
    Invalid(String),
    /// Not built yet, or not possible with these options.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// What was read is newer than the definition it was read with.
    #[error("the definition was changed meanwhile")]
    Changed,
    /// Written by another format version.
    #[error("{path} has format {found}, this build reads {supported}: {remedy}")]
    Format {
        /// The file.
        path: String,
        /// Format found.
        found: u32,
        /// Format supported.
        supported: u32,
        /// What the operator can do.
        remedy: String,
    },
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The file; empty if it is not bytes of one place that are wrong, but entries that do not agree.
    pub file: String,
    /// Byte offset in the file, where one is known.
    pub offset: Option<u64>,
    /// The index the bytes belong to, where known.
    pub index: Option<IndexId>,
    /// The key range concerned, printable, where known.
    pub key_range: Option<String>,
    /// What is wrong, in a few words: "block checksum", "frame length", …
    pub what: &'static str,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("corruption")?;
        if !self.file.is_empty() {
            write!(f, " in {}", self.file)?;
        }
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        if let Some(index) = self.index {
            write!(f, ", index {index}")?;
        }
        if let Some(range) = &self.key_range {
            write!(f, ", keys {range}")?;
        }
        write!(f, ": {}: expected {}, found {}", self.what, self.expected, self.found)
    }
}

impl Corruption {
    /// Entries or counts of an index that do not agree; `file` and `offset` may be set by who knows them.
    #[must_use]
    pub fn of_index(
        index: IndexId,
        key_range: impl Into<Option<String>>,
        what: &'static str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Self {
            file: String::new(),
            offset: None,
            index: Some(index),
            key_range: key_range.into(),
            what,
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// Names the place of the bytes.
    #[must_use]
    pub fn at(mut self, file: impl fmt::Display, offset: impl Into<Option<u64>>) -> Self {
        (self.file, self.offset) = (file.to_string(), offset.into());
        self
    }
}

impl From<Corruption> for Fault {
    fn from(c: Corruption) -> Self {
        Fault::Corrupt(Box::new(c))
    }
}

impl Fault {
    /// Wraps an error of the operating system.
    #[must_use]
    pub fn io(op: &'static str, path: impl fmt::Display, error: &io::Error) -> Self {
        Fault::Io { op, path: path.to_string(), kind: error.kind(), message: error.to_string() }
    }

    /// Corruption with a place and a pair of expected and found.
    #[must_use]
    pub fn corrupt(
        file: impl fmt::Display,
        offset: u64,
        what: &'static str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Fault::from(Corruption {
            file: file.to_string(),
            offset: Some(offset),
            index: None,
            key_range: None,
            what,
            expected: expected.to_string(),
            found: found.to_string(),
        })
    }

    /// What a read met, as damage: a sector that cannot be read is no better than one that was changed.
    ///
    /// # Errors
    /// Any other fault comes back.
    pub fn into_damage(self) -> Result<Box<Corruption>> {
        match self {
            Fault::Corrupt(damage) => Ok(damage),
            Fault::Io { op: "read", path, message, .. } => Ok(Box::new(Corruption {
                file: path,
                offset: None,
                index: None,
                key_range: None,
                what: "block",
                expected: "one that can be read".to_owned(),
                found: message,
            })),
            other => Err(other),
        }
    }

    /// Adds the index to a corruption that was found below it.
    #[must_use]
    pub fn of_index(mut self, index: IndexId) -> Self {
        if let Fault::Corrupt(c) = &mut self {
            c.index.get_or_insert(index);
        }
        self
    }

    /// Adds the index and key range to a corruption that was found below the index.
    #[must_use]
    pub fn in_index(mut self, index: IndexId, key_range: impl FnOnce() -> String) -> Self {
        if let Fault::Corrupt(c) = &mut self {
            c.index.get_or_insert(index);
            if c.key_range.is_none() {
                c.key_range = Some(key_range());
            }
        }
        self
    }
}

/// The latch of decision D12: after the first failed write or sync, writes are refused until the database
/// is reopened. The first cause is kept. Shared by the log, the store and the engine of one database.
#[derive(Debug, Clone, Default)]
pub struct Poison(Arc<Latch>);

/// Who is told the first cause. Whoever lets the latch fall calls it, with whatever locks he holds.
pub type TellPoison = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
struct Latch {
    cause: OnceLock<Arc<str>>,
    tell: Option<TellPoison>,
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl Poison {
    /// A latch that has not fallen.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same; `tell` is called once, when it falls.
    #[must_use]
    pub fn telling(tell: Option<TellPoison>) -> Self {
        Self(Arc::new(Latch { cause: OnceLock::new(), tell }))
    }

    /// Lets the latch fall; the first cause is kept, and told. Returns the fault unchanged, for `map_err`.
    pub fn set(&self, fault: Fault) -> Fault {
        if !matches!(fault, Fault::Poisoned(_)) {
            let cause: Arc<str> = fault.to_string().into();
            // Of two threads at once one is the first.
            if self.0.cause.set(cause.clone()).is_ok()
                && let Some(tell) = &self.0.tell
            {
                tell(&cause);
            }
        }
        fault
    }

    /// `Err(Fault::Poisoned)` after the latch has fallen.
    ///
    /// # Errors
    /// The first cause.
    pub fn check(&self) -> Result<()> {
        match self.0.cause.get() {
            None => Ok(()),
            Some(cause) => Err(Fault::Poisoned(cause.clone())),
        }
    }

    /// The first cause, if the latch has fallen.
    #[must_use]
    pub fn cause(&self) -> Option<Arc<str>> {
        self.0.cause.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// D12. Guards: only who lets it fall tells; what is refused since is no cause.
    #[test]
    fn the_first_cause_is_kept_and_told_once() {
        let told = Arc::new(AtomicU64::new(0));
        let count = told.clone();
        let tell = move |cause: &str| {
            assert_eq!(cause, "unsupported: the first");
            count.fetch_add(1, Ordering::Relaxed);
        };
        let poison = Poison::telling(Some(Arc::new(tell)));
        poison.set(Fault::Poisoned("another database's".into()));
        assert!(poison.check().is_ok());
        for cause in ["the first", "the second"] {
            poison.clone().set(Fault::Unsupported(cause.into()));
        }
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert_eq!(poison.cause().as_deref(), Some("unsupported: the first"));
    }
}
