//! How fast a backup goes: rests, or a rate; and who watches it. Why: [`super`].

use std::ops::ControlFlow;
use std::time::Duration;

use base::Fault;
use vfs::time::Instant;

use super::BackupProgress;

/// Pause for each unit of time that a piece took.
const REST: u32 = 3;
/// The longest pause after a piece: a disk that hung for a moment is not left alone for long.
const REST_MAX: Duration = Duration::from_secs(1);
/// A close is seen, and the log is looked at, after so long.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a rate that was not used up may catch up with.
const CREDIT: Duration = Duration::from_millis(100);

pub type Watch<'a> = &'a dyn Fn(BackupProgress) -> ControlFlow<()>;

/// When the next piece may be copied.
pub struct Pace<'a> {
    rate_bytes: Option<u64>,
    watch: Option<Watch<'a>>,
    pub progress: BackupProgress,
    /// The watcher has ended it.
    pub cancelled: bool,
    /// When the piece now being copied began.
    began: Instant,
    /// When all pieces so far are paid for, at the rate.
    paid: Instant,
}

impl<'a> Pace<'a> {
    pub fn new(rate_bytes: Option<u64>, watch: Option<Watch<'a>>) -> Self {
        let now = Instant::now();
        Pace { rate_bytes, watch, progress: BackupProgress::default(), cancelled: false, began: now, paid: now }
    }

    pub fn ask(&mut self) -> base::Result<()> {
        self.cancelled |= self.watch.is_some_and(|watch| watch(self.progress).is_break());
        if self.cancelled { Err(Fault::Unsupported("a backup that was cancelled".into())) } else { Ok(()) }
    }

    /// The piece begins now; what was done before is not counted.
    pub fn start(&mut self) {
        self.began = Instant::now();
    }

    /// Waits as long as a piece of so many bytes asks for, and calls `look` in between; the next one begins then.
    pub fn rest(&mut self, bytes: u64, look: &mut dyn FnMut() -> base::Result<()>) -> base::Result<()> {
        let now = Instant::now();
        let until = match self.rate_bytes {
            None => now + (now - self.began).saturating_mul(REST).min(REST_MAX),
            Some(rate) => {
                // The clock may be younger than the credit.
                let idle = now - self.paid;
                let from = if idle > CREDIT { self.paid + (idle - CREDIT) } else { self.paid };
                self.paid = from + Duration::from_secs_f64(bytes as f64 / rate as f64);
                self.paid
            }
        };
        loop {
            look()?;
            self.ask()?;
            let left = until - Instant::now();
            if left.is_zero() {
                break;
            }
            vfs::thread::sleep(left.min(LOOK_EVERY));
        }
        self.start();
        Ok(())
    }
}
