//! One new type for each identifier, so that a log position is never passed where an index is meant.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);
        impl $name {
            /// The smallest value.
            pub const ZERO: Self = Self(0);
            /// The largest value.
            pub const MAX: Self = Self(<$inner>::MAX);
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A position in the logical, uncompressed record stream of the log, in bytes. Always a multiple of
    /// [`crate::limits::LSN_UNIT`].
    Lsn,
    u64
);
id!(
    /// The moment a commit takes effect: the LSN just past its commit record. A snapshot `s` sees exactly
    /// the versions with `ts <= s`.
    CommitTs,
    u64
);
id!(
    /// One ordered map. 0 is the catalog. Never reused.
    IndexId,
    u32
);
id!(
    /// A running transaction, unique within one life of the process.
    TxnId,
    u64
);

impl IndexId {
    /// The catalog.
    pub const CATALOG: Self = Self(0);
}

impl Lsn {
    /// The commit timestamp of a commit record that ends here.
    #[must_use]
    pub const fn as_commit_ts(self) -> CommitTs {
        CommitTs(self.0)
    }
}

impl CommitTs {
    /// The log must be durable to this position before a consequence of this commit may reach a data file.
    #[must_use]
    pub const fn as_lsn(self) -> Lsn {
        Lsn(self.0)
    }
}
