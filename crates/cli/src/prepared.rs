//! `trefoil prepared`, `trefoil commit`, `trefoil rollback`.
//!
//! A name is printed and read as text if it is made of visible ASCII, otherwise as `0x` and hexadecimal digits.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::{Failure, Format, Opened};

/// Which way a prepared transaction is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Committed.
    Commit,
    /// Rolled back.
    Rollback,
}

/// Lists what is prepared: one line each.
pub(crate) fn list(database: &Opened, format: Format, out: &mut impl Write) -> Result<(), Failure> {
    let opened = database.open_to_read()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for waiting in opened.prepared()? {
        let (xid, writes, lsn) = (shown(&waiting.xid), waiting.writes, waiting.lsn.0);
        match format {
            Format::Text => {
                let age = age(now.saturating_sub(waiting.since));
                writeln!(out, "{xid}\tprepared {age} ago\t{writes} writes\tposition {lsn}")?;
            }
            Format::Json => {
                let since_ms = waiting.since.as_millis() as u64;
                writeln!(out, "{}", json!({"xid": xid, "since_ms": since_ms, "writes": writes, "lsn": lsn}))?;
            }
        }
    }
    Ok(opened.close()?)
}

/// Commits or rolls back what is prepared under a name.
pub(crate) fn decide(database: &Opened, name: &str, decision: Decision, out: &mut impl Write) -> Result<(), Failure> {
    let xid =
        read(name).ok_or_else(|| Failure::Usage(format!("{name:?} is no name: 0x and an even number of digits")))?;
    let opened = database.open()?;
    let known: Vec<_> = opened.prepared()?.iter().map(|waiting| shown(&waiting.xid)).collect();
    if !known.contains(&shown(&xid)) {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Failure::Usage(format!("no prepared transaction {name}; there are: {known}")));
    }
    let done = match decision {
        Decision::Commit => opened.commit_prepared(&xid).map(|_| "committed")?,
        Decision::Rollback => opened.rollback_prepared(&xid).map(|()| "rolled back")?,
    };
    opened.close()?;
    writeln!(out, "{}: {name} is {done}", database.path().display())?;
    Ok(())
}

/// A name for people and for [`read`].
fn shown(xid: &[u8]) -> String {
    match std::str::from_utf8(xid) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.starts_with("0x") => text.to_owned(),
        _ => xid.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}")),
    }
}

fn read(name: &str) -> Option<Vec<u8>> {
    let Some(digits) = name.strip_prefix("0x") else { return Some(name.as_bytes().to_vec()) };
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if digits.len().is_multiple_of(2) { digits.as_bytes().chunks(2).map(pair).collect() } else { None }
}

/// A time for people, in its two largest units.
fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ages_for_people() {
        for xid in [b"order-7".as_slice(), b"two words", &[0, 255], b"0x12", "käse".as_bytes()] {
            assert_eq!(read(&shown(xid)).as_deref(), Some(xid), "{}", shown(xid));
        }
        assert_eq!((shown(b"order-7"), shown(&[0, 255])), ("order-7".to_owned(), "0x00ff".to_owned()));
        assert_eq!((read("0x1"), read("0xzz")), (None, None));
        let ages = [7, 61, 3600, 180_000].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["7 s", "1 min 1 s", "1 h 0 min", "2 d 2 h"]);
    }
}
