// SPDX-License-Identifier: GPL-2.0-only
//! Memory that is short all the time, so that tables of a few rows are not in it when they are read and written:
//! `TREFOIL_SHED_EVERY=MS` lets everything leave memory that may, so often; every sixteenth time there is a checkpoint as well.
//! In builds with debug assertions (the profile `sim`) alone; `mariadb/test/buffers.sh` and `docs/TESTING.md` say what for.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use trefoil::Database;

/// Between two checkpoints.
const TIMES: u64 = 16;

/// The thread that sheds, until this is dropped.
pub struct Shedding {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Shedding {
    /// None unless it is asked for.
    pub fn start(db: &Database) -> Option<Self> {
        if !cfg!(debug_assertions) {
            return None;
        }
        Some(Self::every(db, interval(&std::env::var("TREFOIL_SHED_EVERY").ok()?)?))
    }

    fn every(db: &Database, interval: Duration) -> Self {
        let (stop, stopped) = channel();
        let db = db.clone();
        let thread = spawn(move || {
            let mut times = 0_u64;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                times += 1;
                // A full disk, a fault: those who write are told.
                drop(db.shed_memory());
                if times.is_multiple_of(TIMES) {
                    drop(db.settle_for(Duration::ZERO));
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Shedding {
    fn drop(&mut self) {
        self.stop = None;
        let ended = self.thread.take().map(JoinHandle::join);
        debug_assert!(!matches!(ended, Some(Err(_))), "shedding memory does not panic");
    }
}

/// None for what is no number of milliseconds above 0.
fn interval(text: &str) -> Option<Duration> {
    text.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use trefoil::{IndexOptions, Options, Stats};

    use super::*;

    /// Classes of memory in which rows are.
    const HOLD_ROWS: [&str; 3] = ["frames", "buffers", "runs"];

    #[test]
    fn what_is_written_leaves_memory_again_and_again() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let db = Database::open(dir.path(), Options::default()).expect("it is new");
        let index = db.create_index("index", IndexOptions::default()).expect("it is new");
        let shedding = Shedding::every(&db, interval("1").expect("a number"));
        for _ in 0..3 {
            let before = db.stats().checkpoints;
            let mut tx = db.begin().expect("it is open");
            tx.put(&index, b"key", b"value").expect("it is written");
            tx.commit().expect("it is committed");
            let holds_some =
                |stats: &Stats| stats.memory.iter().any(|(class, bytes)| HOLD_ROWS.contains(class) && *bytes > 0);
            let (mut stats, started) = (db.stats(), Instant::now());
            while holds_some(&stats) || stats.checkpoints == before {
                assert!(started.elapsed() < Duration::from_secs(120), "still in memory: {:?}", stats.memory);
                std::thread::sleep(Duration::from_millis(1));
                stats = db.stats();
            }
        }
        drop(shedding);
        assert!(["", "0", "x", "-1"].iter().all(|text| interval(text).is_none()));
    }
}
