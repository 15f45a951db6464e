//! Ends a part that hangs: its process and everything it started.
//!
//! Children stay in the terminal's process group, so that Ctrl-C reaches all of them; so whoever is to be ended is
//! found through `/proc`, by parent.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Far beyond the longest part on a slow machine.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// While it lives, process `id` has [`LIMIT`] to end.
pub struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches the process.
    pub fn new(id: u32) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                println!("no end after {} minutes: it is ended", LIMIT.as_secs() / 60);
                let all: Vec<String> = with_descendants(id, &parents()).iter().map(u32::to_string).collect();
                let _ = Command::new("kill").arg("-KILL").args(all).status();
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Each process of the machine with its parent.
fn parents() -> BTreeMap<u32, u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    let ids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| Some((id, parent(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?))).collect()
}

/// The parent in a line of `/proc/ID/stat`; the program's name, in parentheses, may hold anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The process and everything below it, parents first.
fn with_descendants(id: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![id];
    let mut at = 0;
    while at < found.len() {
        let above = found[at];
        found.extend(parents.iter().filter(|(_, parent)| **parent == above).map(|(child, _)| *child));
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found() {
        assert_eq!(parent("12 (a) b) S 7 12 12 0"), Some(7));
        let parents = BTreeMap::from([(2, 1), (3, 2), (4, 2), (5, 3), (9, 8)]);
        assert_eq!(with_descendants(2, &parents), [2, 3, 4, 5]);
    }

    #[test]
    fn this_process_has_a_parent() {
        assert!(parents().contains_key(&std::process::id()));
    }
}
