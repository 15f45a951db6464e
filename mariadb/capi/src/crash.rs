// SPDX-License-Identifier: GPL-2.0-only
//! Places where tests let the server die, as by SIGKILL: `TREFOIL_CRASH_AT=NAME:COUNT` names one and which time it is
//! reached. `TREFOIL_CRASH_AT=/FILE`: the same, from when the file is there, which goes then; so a test needs no other server for
//! each place. `TREFOIL_PAUSE_AT=NAME:MILLISECONDS` lets whoever comes to a place stand there for so long, so that others meet him.
//! In builds with debug assertions (the profile `sim`) alone; `mariadb/test/kills.sh` lists the names.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A place, and how often it is passed before the process dies there; or how many milliseconds it takes to pass it.
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

/// What is asked for, and since when.
struct Asked {
    by: Option<String>,
    wanted: OnceLock<Option<Wanted>>,
}

impl Asked {
    fn new(by: Option<String>) -> Self {
        Self { by, wanted: OnceLock::new() }
    }

    fn wanted(&self) -> Option<&Wanted> {
        let by = self.by.as_ref()?;
        if self.wanted.get().is_none() {
            let text = if by.starts_with('/') { &take(by)? } else { by };
            return self.wanted.get_or_init(|| Wanted::parse(text)).as_ref();
        }
        self.wanted.get()?.as_ref()
    }
}

/// What a file says, to the one of all who look that takes it away.
fn take(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    std::fs::remove_file(path).ok()?;
    Some(text.trim().to_owned())
}

/// A place that a test may ask for.
pub fn point(name: &str) {
    static ASKED: OnceLock<Asked> = OnceLock::new();
    static PAUSE: OnceLock<Option<Wanted>> = OnceLock::new();
    if !cfg!(debug_assertions) {
        return;
    }
    let pause = PAUSE.get_or_init(|| Wanted::parse(&std::env::var("TREFOIL_PAUSE_AT").ok()?));
    if let Some(pause) = pause.as_ref().filter(|pause| pause.name == name) {
        std::thread::sleep(Duration::from_millis(pause.left.load(Ordering::Relaxed)));
    }
    let asked = ASKED.get_or_init(|| Asked::new(std::env::var("TREFOIL_CRASH_AT").ok()));
    if asked.wanted().is_some_and(|wanted| wanted.is_now(name)) {
        // Nobody is told, nothing is written: as if the machine's memory were gone.
        let killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        killed.expect("a process may end itself");
    }
}

/// The engine's own places, of which these few are asked for.
pub fn point_of_rows(name: &'static str) {
    if name.starts_with("rows.") {
        point(name);
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

    #[test]
    fn a_file_asks_from_when_it_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("at").display().to_string();
        let asked = Asked::new(Some(path.clone()));
        assert!(asked.wanted().is_none());
        std::fs::write(&path, "ordered:2\n").expect("a file");
        let met =
            ["ordered", "prepared", "ordered"].map(|name| asked.wanted().is_some_and(|wanted| wanted.is_now(name)));
        assert_eq!(met, [false, false, true]);
        assert!(!std::path::Path::new(&path).exists());
    }
}
