// SPDX-License-Identifier: GPL-2.0-only
//! Lines of the server's error log: what helps, in words of who runs a server, and how often.

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::failure::Code;

/// As long as the disk is full, or writes are refused, every statement that writes would have a line.
const REST: Duration = Duration::from_secs(60);

/// Of a cause: the server cuts a line at 1,000 bytes, and what helps comes behind it.
const CAUSE_BYTES: usize = 500;

static FULL: Mutex<Option<Instant>> = Mutex::new(None);
static READ_ONLY: Mutex<Option<Instant>> = Mutex::new(None);
/// Whoever plans a query asks such a key, too.
static SET_ASIDE: Mutex<Option<Instant>> = Mutex::new(None);

/// The line for the moment from which writes are refused.
pub fn refusal(cause: &str) -> String {
    let most = (0..=cause.len().min(CAUSE_BYTES)).rev().find(|&end| cause.is_char_boundary(end)).unwrap_or(0);
    let cause = &cause[..most];
    format!(
        "writes are refused from now on: {cause}; what would change tables of the engine, or their definitions, is refused, reading \
         goes on; mend what is named (disk, mount, quota), then restart the server: it recovers from its log"
    )
}

/// What helps, as the end of a line; none if no line is due.
pub fn line_due(code: i32) -> Option<&'static CStr> {
    let now = Instant::now();
    let is_due = |of: &Mutex<_>| is_due(&mut of.lock().unwrap_or_else(PoisonError::into_inner), now).then_some(());
    match code {
        c if c == Code::Full as i32 => is_due(&FULL)?,
        c if c == Code::ReadOnly as i32 => is_due(&READ_ONLY)?,
        c if c == Code::SetAside as i32 => is_due(&SET_ASIDE)?,
        _ => {}
    }
    Some(remedy(code))
}

/// True once in [`REST`].
fn is_due(last: &mut Option<Instant>, now: Instant) -> bool {
    if last.is_some_and(|last| now.duration_since(last) < REST) {
        return false;
    }
    *last = Some(now);
    true
}

fn remedy(code: i32) -> &'static CStr {
    match code {
        c if c == Code::Full as i32 => {
            c"; make room on the disk of the data directory, then writes go on by themselves"
        }
        c if c == Code::ReadOnly as i32 => c"; mend what is named (disk, mount, quota), then restart the server",
        c if c == Code::Definition as i32 => {
            c"; FLUSH TABLES and try again; if it stays, .frm and engine are of two times: restore both from one backup"
        }
        c if c == Code::Corrupt as i32 => {
            c"; CHECK TABLE says where; REPAIR TABLE makes keys anew, for rows restore a backup, and look at the disk"
        }
        c if c == Code::SetAside as i32 => c"; REPAIR TABLE makes it anew, and look at the disk",
        c if c == Code::Panic as i32 => c"; restart the server, and report the lines above",
        _ => c"",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guard: the rest between two lines.
    #[test]
    fn a_line_is_due_once_a_minute() {
        let (mut last, now) = (None, Instant::now());
        let due = [0, 1, 59, 60, 61, 120].map(|second| is_due(&mut last, now + Duration::from_secs(second)));
        assert_eq!(due, [true, false, false, true, false, true]);
    }

    /// Guard: the cause is cut, not what helps.
    #[test]
    fn a_long_cause_leaves_room_for_what_helps() {
        let line = refusal(&"\u{e4}".repeat(400));
        assert!(line.len() < 1000 && line.ends_with("it recovers from its log"), "{line}");
    }
}
