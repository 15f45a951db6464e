// SPDX-License-Identifier: GPL-2.0-only
//! Places where tests let the server die, as by SIGKILL: `TREFOIL_CRASH_AT=NAME:COUNT` names one and which time it is
//! reached. In builds with debug assertions (the profile `sim`) alone; `mariadb/test/kills.sh` lists the names.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place, and how often it is passed before the process dies there.
struct Wanted {
    name: String,
    left: AtomicU64,
}

impl Wanted {
    fn parse(text: &str) -> Option<Self> {
        let (name, count) = text.split_once(':')?;
        Some(Self { name: name.to_owned(), left: AtomicU64::new(count.parse().ok().filter(|&count| count > 0)?) })
    }

    /// True once, for the last of the times.
    fn is_now(&self, name: &str) -> bool {
        self.name == name && self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

/// A place that a test may ask for.
pub fn point(name: &str) {
    static WANTED: OnceLock<Option<Wanted>> = OnceLock::new();
    if !cfg!(debug_assertions) {
        return;
    }
    let wanted = WANTED.get_or_init(|| Wanted::parse(&std::env::var("TREFOIL_CRASH_AT").ok()?));
    if wanted.as_ref().is_some_and(|wanted| wanted.is_now(name)) {
        // Nobody is told, nothing is written: as if the machine's memory were gone.
        let killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        killed.expect("a process may end itself");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_met_once_at_its_count() {
        let wanted = Wanted::parse("prepared:2").expect("a name and a count");
        let met = ["prepared", "ordered", "prepared", "prepared"].map(|name| wanted.is_now(name));
        assert_eq!(met, [false, false, true, false]);
        assert!(["prepared", "prepared:", "prepared:0", "prepared:x"].iter().all(|text| Wanted::parse(text).is_none()));
    }
}
