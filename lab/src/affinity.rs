//! The processors that this process may use: every thread it has, and by inheritance every thread it will have.

use std::fs;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::outcome::Failure;

/// How many this thread may use.
pub fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// While it lives, the process uses fewer processors.
#[derive(Debug)]
pub struct Restricted {
    before: CpuSet,
}

impl Restricted {
    /// The first `cores` of those that this thread may use.
    pub fn to(cores: u32) -> Result<Restricted, Failure> {
        let failed = |error: rustix::io::Errno| Failure::Failed(format!("cannot choose processors: {error}"));
        let before = sched_getaffinity(None).map_err(failed)?;
        let mut chosen = CpuSet::new();
        let all = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu)).take(cores as usize);
        all.for_each(|cpu| chosen.set(cpu));
        if chosen.count() < cores {
            return Err(Failure::Usage(format!("--cores {cores}: this process may use {}", before.count())));
        }
        apply(&chosen).map_err(failed)?;
        Ok(Restricted { before })
    }
}

impl Drop for Restricted {
    fn drop(&mut self) {
        // What was permitted before is permitted again.
        let _ = apply(&self.before);
    }
}

/// Threads that end meanwhile are passed over.
fn apply(set: &CpuSet) -> rustix::io::Result<()> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for task in tasks {
        let Some(pid) = task.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        match sched_setaffinity(Some(pid), set) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, but of the whole process: other tests may be slower for it, not wrong.
    #[test]
    fn threads_that_are_there_and_those_that_come_are_restricted_for_a_while() {
        let all = available();
        let (send, wait) = std::sync::mpsc::channel::<()>();
        let (told, heard) = std::sync::mpsc::channel();
        let there = std::thread::spawn(move || {
            told.send(()).unwrap();
            wait.recv().unwrap();
            available()
        });
        heard.recv().unwrap();
        let restricted = Restricted::to(1).unwrap();
        assert_eq!((available(), std::thread::spawn(available).join().unwrap()), (1, 1));
        send.send(()).unwrap();
        assert_eq!(there.join().unwrap(), 1);
        drop(restricted);
        assert_eq!(available(), all);
        assert!(Restricted::to(1 << 20).is_err());
    }
}
