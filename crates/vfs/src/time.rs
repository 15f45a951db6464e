//! The monotonic clock.

use std::sync::OnceLock;
use std::time::Duration;

use crate::sim::context;

/// A moment of the monotonic clock (simulated inside a simulation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        Self(simulated().unwrap_or_else(|| START.get_or_init(std::time::Instant::now).elapsed()))
    }

    /// Time since then.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

impl std::ops::Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d))
    }
}

/// Time since 1970. It may jump, back too: whoever decides by it has to bear that.
#[must_use]
pub fn unix_time() -> Duration {
    /// Where simulations begin: 2026-01-01.
    const SIMULATED_START: Duration = Duration::from_secs(1_767_225_600);
    match simulated() {
        Some(elapsed) => {
            let shift = context::with(|thread| thread.state().unix_shift_seconds).unwrap_or(0);
            let by = Duration::from_secs(shift.unsigned_abs());
            let now = SIMULATED_START + elapsed;
            if shift < 0 { now.saturating_sub(by) } else { now + by }
        }
        None => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default(),
    }
}

/// Reading the clock takes time, so that a loop which waits for a moment comes to its end.
fn simulated() -> Option<Duration> {
    context::with(|thread| {
        let mut state = thread.state();
        state.pass(thread.shared.config.step_time.as_nanos() as u64);
        Duration::from_nanos(state.now_nanos)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_outside_a_simulation() {
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(before.elapsed() >= Duration::from_millis(2));
        assert!(Instant::now() - before >= Duration::from_millis(2));
        assert_eq!(before - Instant::now(), Duration::ZERO);
        assert!(before + Duration::from_secs(60) > Instant::now());
        assert!(unix_time() > Duration::from_secs(1_700_000_000));
    }
}
