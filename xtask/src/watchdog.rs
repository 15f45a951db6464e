//! Ends a part that hangs: its process and everything it started, once it is said which those were and what they did.
//!
//! Children stay in the terminal's process group, so that Ctrl-C reaches all of them; so whoever is to be ended is
//! found through `/proc`, by parent.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a part may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// In all: far beyond the longest part on a slow machine.
    pub whole: Duration,
    /// Without a word: whatever a part does, it says something more often.
    pub silence: Duration,
}

/// Those of every part.
pub const LIMITS: Limits = Limits { whole: Duration::from_secs(40 * 60), silence: Duration::from_secs(10 * 60) };

/// What is said of a part that had to be ended; then follow lines on what ran.
pub const ENDED: &str = "it was ended. What ran (state, CPU seconds, where in the kernel):";

/// While it lives, process `id` has its [`Limits`] to end.
pub struct Watchdog {
    heard: Option<Sender<()>>,
    thread: Option<JoinHandle<Option<String>>>,
}

impl Watchdog {
    /// Watches the process.
    pub fn new(id: u32, limits: Limits) -> Self {
        let (heard, hears) = mpsc::channel();
        Self { heard: Some(heard), thread: Some(std::thread::spawn(move || watch(id, limits, &hears))) }
    }

    /// It has said something.
    pub fn hear(&self) {
        let _ = self.heard.as_ref().map(|heard| heard.send(()));
    }

    /// Ends with the process: why it had to be ended and what ran then, if it had to.
    pub fn close(mut self) -> Option<String> {
        drop(self.heard.take());
        self.thread.take().and_then(|thread| thread.join().ok()).flatten()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.heard.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(id: u32, limits: Limits, hears: &Receiver<()>) -> Option<String> {
    let end = Instant::now() + limits.whole;
    let why = loop {
        let left = end.saturating_duration_since(Instant::now());
        match hears.recv_timeout(left.min(limits.silence)) {
            Ok(()) if !left.is_zero() => {}
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if left > limits.silence => {
                break format!("no word for {} seconds", limits.silence.as_secs());
            }
            _ => break format!("no end after {} seconds", limits.whole.as_secs()),
        }
    };
    let all = with_descendants(id, &parents());
    let ran: Vec<String> = all.iter().filter_map(|id| told(*id)).collect();
    let _ = Command::new("kill").arg("-KILL").args(all.iter().map(u32::to_string)).status();
    Some(format!("{why}: {ENDED}\n{}", ran.join("\n")))
}

/// A line on a process: what it is, whether it works or waits, and where in the kernel.
fn told(id: u32) -> Option<String> {
    let read = |what: &str| std::fs::read_to_string(format!("/proc/{id}/{what}")).ok();
    let stat = read("stat")?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|n| n.parse::<u64>().ok()).unwrap_or_default();
    let seconds = (ticks(11) + ticks(12)) / 100;
    let words = read("cmdline")?.replace('\0', " ");
    let words: String = words.chars().take(160).collect();
    let place = read("wchan").unwrap_or_default();
    Some(format!("  {id} of {} {} {seconds} {place} {words}", fields.get(1)?, fields.first()?))
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
    fn who_says_nothing_or_does_not_end_is_ended_with_its_children() {
        let limits = Limits { whole: Duration::from_secs(2), silence: Duration::from_millis(300) };
        let shell = |script: &str| Command::new("sh").args(["-c", script]).spawn().expect("a shell");
        let mut silent = shell("sleep 77 & wait");
        let watchdog = Watchdog::new(silent.id(), limits);
        assert!(!silent.wait().expect("ends").success());
        let said = watchdog.close().expect("it was ended");
        assert!(said.starts_with("no word") && said.contains("sleep 77"), "{said}");

        let mut endless = shell("sleep 78");
        let watchdog = Watchdog::new(endless.id(), limits);
        while endless.try_wait().expect("is asked").is_none() {
            watchdog.hear();
            std::thread::sleep(Duration::from_millis(20));
        }
        let said = watchdog.close().expect("it was ended");
        assert!(said.starts_with("no end after 2"), "{said}");

        let mut quick = shell("true");
        let watchdog = Watchdog::new(quick.id(), LIMITS);
        assert!(quick.wait().expect("ends").success());
        assert_eq!(watchdog.close(), None);
    }

    #[test]
    fn this_process_has_a_parent() {
        assert!(parents().contains_key(&std::process::id()));
    }
}
