// SPDX-License-Identifier: GPL-2.0-only
//! Errors of the engine as codes and texts, and the guard that no panic gets past.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use trefoil::{Error, ForeignKeyFailureKind};

const TEXT_BYTES: usize = 504;

/// Why a call failed, as the handler gets it.
#[repr(C)]
#[derive(Clone)]
pub struct Failure {
    code: i32,
    /// Number of the key that a duplicate has.
    key: i32,
    /// Ends with a zero.
    text: [u8; TEXT_BYTES],
}

const _: () = assert!(size_of::<Failure>() == 512);

/// What came of a call that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// A row, or whatever was asked for.
    Ok,
    /// No more rows.
    End,
    /// No row has the key.
    NotFound,
    /// The row is as it was.
    Same,
}

/// The result of everything behind the C functions.
pub type Result<T, E = Box<Failure>> = std::result::Result<T, E>;

/// The codes, as `capi.h` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Ok = 0,
    End = 1,
    NotFound = 2,
    Duplicate = 3,
    Deadlock = 4,
    LockTimeout = 5,
    Cancelled = 6,
    Changed = 7,
    Full = 8,
    ReadOnly = 9,
    NoTable = 10,
    TableExists = 11,
    Definition = 12,
    Unsupported = 13,
    TooLong = 14,
    Corrupt = 15,
    UnknownOutcome = 16,
    NoXid = 17,
    Failed = 18,
    Panic = 19,
    Same = 20,
    NoParent = 21,
    HasChildren = 22,
    TooDeep = 23,
    Referenced = 24,
    ForeignRefused = 25,
    ForeignExists = 26,
    IndexNeeded = 27,
    ForeignDuplicate = 28,
    SetAside = 29,
    ParentUnfit = 30,
    NeverNull = 31,
    Beside = 32,
}

impl Failure {
    pub fn new(code: Code, text: &str) -> Box<Self> {
        let mut failure = Self { code: code as i32, key: -1, text: [0; TEXT_BYTES] };
        let mut end = text.len().min(TEXT_BYTES - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        failure.text[..end].copy_from_slice(&text.as_bytes()[..end]);
        Box::new(failure)
    }

    /// The same, about key number `key`.
    pub fn of_key(mut self: Box<Self>, key: usize) -> Box<Self> {
        self.key = i32::try_from(key).unwrap_or(-1);
        self
    }

    /// A caller that breaks the contract of the interface, or a table that is not what it was.
    pub fn definition(text: &str) -> Box<Self> {
        Self::new(Code::Definition, text)
    }

    #[cfg(test)]
    pub fn is(&self, code: Code) -> bool {
        self.code == code as i32
    }
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.text.split(|&byte| byte == 0).next().unwrap_or_default();
        write!(f, "{} ({}): {}", self.code, self.key, String::from_utf8_lossy(text))
    }
}

impl From<Error> for Box<Failure> {
    fn from(error: Error) -> Self {
        match &error {
            // The server's words are made of the two.
            Error::ForeignKey(failure) => {
                Failure::new(code(&error), &format!("{}\n{}", failure.table, failure.constraint.name()))
            }
            // What helps comes before the cause: a long path may cost the end. Nobody can open it anew but the server.
            Error::Poisoned { cause } => Failure::new(
                code(&error),
                &format!(
                    "writes are refused until the server is restarted, reading goes on; an earlier fault: {cause}"
                ),
            ),
            Error::CommitOutcomeUnknown { cause, .. } => Failure::new(
                code(&error),
                &format!(
                    "the outcome of the commit is unknown, restart the server and look whether it is there: {cause}"
                ),
            ),
            // The engine's words name its own calls.
            Error::Quarantined { index } => {
                Failure::new(code(&error), &format!("key {index} is damaged, is not used any more"))
            }
            _ => Failure::new(code(&error), &error.to_string()),
        }
    }
}

fn code(error: &Error) -> Code {
    match error {
        Error::Deadlock { .. } => Code::Deadlock,
        Error::LockTimeout { .. } | Error::LockBusy { .. } | Error::HeldByPrepared { .. } => Code::LockTimeout,
        Error::Cancelled => Code::Cancelled,
        Error::SnapshotConflict { .. } => Code::Changed,
        Error::DuplicateKey(_) => Code::Duplicate,
        Error::ForeignKey(failure) => match failure.kind {
            ForeignKeyFailureKind::NoParent => Code::NoParent,
            ForeignKeyFailureKind::HasChildren => Code::HasChildren,
            _ => Code::TooDeep,
        },
        Error::ForeignKeyRefused { .. } => Code::ForeignRefused,
        Error::NeededByForeignKey { .. } => Code::Referenced,
        Error::CommitOutcomeUnknown { .. } => Code::UnknownOutcome,
        Error::Poisoned { .. } | Error::ReadOnly => Code::ReadOnly,
        Error::DiskFull { .. } => Code::Full,
        Error::Corrupt(_) | Error::Damaged { .. } => Code::Corrupt,
        Error::Quarantined { .. } => Code::SetAside,
        Error::Limit { .. } => Code::TooLong,
        Error::Unsupported(_) | Error::InvalidArgument(_) => Code::Unsupported,
        Error::NotFound { .. } | Error::Dropped { .. } => Code::NoTable,
        Error::AlreadyExists { .. } => Code::TableExists,
        Error::DefinitionChanged { .. } => Code::Beside,
        _ => Code::Failed,
    }
}

/// A panic was caught: what it was in the middle of may be half done in memory.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Refuses writes after a panic.
pub fn check_sound() -> Result<()> {
    if PANICKED.load(Ordering::Relaxed) {
        let text = "the engine refuses writes since an internal error; see the error log, restart the server";
        return Err(Failure::new(Code::ReadOnly, text));
    }
    Ok(())
}

/// Runs a call. What it says goes to `why`; a panic ends here.
pub fn guard(why: Option<&mut Failure>, body: impl FnOnce() -> Result<Done>) -> i32 {
    let failed = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(Done::Ok)) => return Code::Ok as i32,
        Ok(Ok(Done::End)) => return Code::End as i32,
        Ok(Ok(Done::NotFound)) => return Code::NotFound as i32,
        Ok(Ok(Done::Same)) => return Code::Same as i32,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            PANICKED.store(true, Ordering::Relaxed);
            Failure::new(Code::Panic, &format!("internal error: {}", said(&panic)))
        }
    };
    let code = failed.code;
    if let Some(why) = why {
        *why = *failed;
    }
    code
}

/// The same for calls that say nothing.
pub fn quietly(body: impl FnOnce()) {
    guard(None, || {
        body();
        Ok(Done::Ok)
    });
}

fn said(panic: &Box<dyn Any + Send>) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guard: `catch_unwind` and the flag that it sets.
    #[test]
    fn a_panic_becomes_a_code_and_writes_are_refused() {
        let mut why = *Failure::new(Code::Ok, "");
        let code = guard(Some(&mut why), || panic!("a test"));
        assert_eq!(code, Code::Panic as i32);
        assert_eq!(format!("{why:?}"), "19 (-1): internal error: a test");
        assert!(check_sound().is_err());
        PANICKED.store(false, Ordering::Relaxed);
        assert!(check_sound().is_ok());
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let failure = Failure::new(Code::Failed, &"ä".repeat(400));
        assert!(format!("{failure:?}").ends_with('ä'));
        assert_eq!(failure.text[TEXT_BYTES - 1], 0);
    }
}
