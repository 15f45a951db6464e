//! Exit codes: 0 ok · 1 run failed · 2 usage · 3 regression beyond threshold · 4 an invariant was violated ·
//! 5 agreed rate missed (opt-in) · 130 interrupted.

use std::fmt;

use lab_target::TargetError;
use lab_workload::{PlanError, RunError};

/// The run failed.
pub const FAILED: u8 = 1;
/// The command line is wrong, or asks for what is not built.
pub const USAGE: u8 = 2;
/// A number is worse than a threshold allows.
pub const REGRESSION: u8 = 3;
/// An invariant was violated.
pub const VIOLATED: u8 = 4;
/// The agreed rate was missed and `--require-sla` was given.
pub const SLA_MISSED: u8 = 5;
/// Interrupted; partial results are kept.
pub const INTERRUPTED: u8 = 130;

/// Why the program ends without success.
#[derive(Debug)]
pub enum Failure {
    /// Something failed.
    Failed(String),
    /// The user asked for something impossible.
    Usage(String),
    /// A number is worse than a threshold allows.
    Regression(String),
    /// An invariant was violated.
    Violated(String),
    /// The agreed rate was missed.
    SlaMissed(String),
    /// Interrupted.
    Interrupted(String),
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) => FAILED,
            Failure::Usage(_) => USAGE,
            Failure::Regression(_) => REGRESSION,
            Failure::Violated(_) => VIOLATED,
            Failure::SlaMissed(_) => SLA_MISSED,
            Failure::Interrupted(_) => INTERRUPTED,
        }
    }

    /// What another process of this program ended with.
    pub fn of_code(code: u8, text: String) -> Failure {
        match code {
            USAGE => Failure::Usage(text),
            REGRESSION => Failure::Regression(text),
            VIOLATED => Failure::Violated(text),
            SLA_MISSED => Failure::SlaMissed(text),
            INTERRUPTED => Failure::Interrupted(text),
            _ => Failure::Failed(text),
        }
    }

    /// A file or folder could not be used.
    pub fn io(what: &str, path: &std::path::Path, error: &std::io::Error) -> Failure {
        Failure::Failed(format!("cannot {what} {}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(text)
            | Failure::Usage(text)
            | Failure::Regression(text)
            | Failure::Violated(text)
            | Failure::SlaMissed(text)
            | Failure::Interrupted(text) => formatter.write_str(text),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        let text = error.to_string();
        match error {
            RunError::Plan(_) => Failure::Usage(text),
            RunError::Target(error) => error.into(),
            RunError::Violated(_) => Failure::Violated(text),
            RunError::Interrupted => Failure::Interrupted(text),
        }
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Failure {
        let text = error.to_string();
        match error {
            TargetError::Usage(_) | TargetError::Unsupported(_) => Failure::Usage(text),
            TargetError::Failed(_) | TargetError::Retry(_) => Failure::Failed(text),
        }
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        Failure::Usage(error.to_string())
    }
}
