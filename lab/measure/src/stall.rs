//! Stalls: spans in which no operation of any client completed.
//!
//! Each thread notes the gaps between its own completions that are long enough to matter; nothing is shared while it
//! runs. Afterwards a span is free of completions exactly when every thread has a gap over it, so the common spans
//! are the intersection of all threads' gaps. A thread that ended early has one last gap up to the end.

use serde::{Deserialize, Serialize};

/// Gaps below this are not kept one by one.
const NOTED_NS: u64 = 1_000_000;
/// A span at least this long is a stall.
pub const STALL_NS: u64 = 50_000_000;

/// A span of time, in nanoseconds since the start of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First nanosecond.
    pub from_ns: u64,
    /// One past the last.
    pub to_ns: u64,
}

impl Span {
    /// How long it is.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// One thread's gaps between completions.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    last_ns: u64,
    longest_ns: u64,
    noted: Vec<Span>,
}

impl Gaps {
    /// An operation completed.
    pub fn completed(&mut self, at_ns: u64) {
        let gap = at_ns.saturating_sub(self.last_ns);
        if gap >= NOTED_NS {
            self.noted.push(Span { from_ns: self.last_ns, to_ns: at_ns });
        }
        self.longest_ns = self.longest_ns.max(gap);
        self.last_ns = at_ns;
    }

    /// The step ended.
    pub fn finished(&mut self, at_ns: u64) {
        self.completed(at_ns.max(self.last_ns));
    }
}

/// The spans of all threads together in which nothing completed, and the longest of them.
#[must_use]
pub fn common_spans(threads: &[Gaps]) -> (Vec<Span>, u64) {
    let Some(first) = threads.first() else { return (Vec::new(), 0) };
    let mut common = first.noted.clone();
    for thread in &threads[1..] {
        common = intersect(&common, &thread.noted);
    }
    // Below the noted length only a bound is known: no common gap is longer than the shortest longest one.
    let bound = threads.iter().map(|thread| thread.longest_ns).min().unwrap_or(0).min(NOTED_NS);
    let longest = common.iter().map(Span::length_ns).max().unwrap_or(bound);
    common.retain(|span| span.length_ns() >= STALL_NS);
    (common, longest)
}

/// Both lists are sorted and free of overlaps; so is the answer.
fn intersect(left: &[Span], right: &[Span]) -> Vec<Span> {
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < left.len() && j < right.len() {
        let from_ns = left[i].from_ns.max(right[j].from_ns);
        let to_ns = left[i].to_ns.min(right[j].to_ns);
        if from_ns < to_ns {
            out.push(Span { from_ns, to_ns });
        }
        if left[i].to_ns < right[j].to_ns { i += 1 } else { j += 1 }
    }
    out
}

/// Stalls of a paced thread: runs of statements that ended at least [`STALL_NS`] after they were meant to start.
#[derive(Clone, Debug, Default)]
pub struct Lateness {
    /// The largest lateness.
    pub largest_ns: u64,
    /// Runs of late statements.
    pub stalls: Vec<Span>,
    late: bool,
}

impl Lateness {
    /// A statement meant to start at `intended_ns` ended at `end_ns`.
    pub fn completed(&mut self, intended_ns: u64, end_ns: u64) {
        let late_ns = end_ns.saturating_sub(intended_ns);
        self.largest_ns = self.largest_ns.max(late_ns);
        let late = late_ns >= STALL_NS;
        match (late, self.late, self.stalls.last_mut()) {
            (true, true, Some(span)) => span.to_ns = span.to_ns.max(end_ns),
            (true, ..) => self.stalls.push(Span { from_ns: intended_ns, to_ns: end_ns }),
            _ => {}
        }
        self.late = late;
    }
}

/// Whole seconds whose count is under half the median of all.
#[must_use]
pub fn slow_seconds(counts: &[u64]) -> Option<u64> {
    if counts.is_empty() {
        return None;
    }
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let median = sorted[sorted.len() / 2] as f64;
    Some(counts.iter().filter(|count| (**count as f64) < median / 2.0).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn thread(completions: &[u64], end: u64) -> Gaps {
        let mut gaps = Gaps::default();
        completions.iter().for_each(|at| gaps.completed(at * MS));
        gaps.finished(end * MS);
        gaps
    }

    #[test]
    fn a_stall_is_common_to_all_threads() {
        // One thread is silent over 100..400, the other over 200..500: together nothing completes in 200..400.
        let one = thread(&[50, 100, 400, 440, 480, 520, 560], 600);
        let other = thread(&[40, 80, 120, 160, 200, 500, 540, 580], 600);
        let (stalls, longest) = common_spans(&[one, other]);
        assert_eq!(stalls, [Span { from_ns: 200 * MS, to_ns: 400 * MS }]);
        assert_eq!(longest, 200 * MS);
    }

    #[test]
    fn one_busy_thread_is_enough_to_have_no_stall() {
        let busy: Vec<u64> = (1..600).collect();
        let (stalls, longest) = common_spans(&[thread(&busy, 600), thread(&[], 600)]);
        assert_eq!((stalls.len(), longest), (0, MS));
    }

    #[test]
    fn a_late_run_is_one_stall() {
        let mut lateness = Lateness::default();
        lateness.completed(0, 2 * MS);
        lateness.completed(10 * MS, 300 * MS);
        lateness.completed(20 * MS, 310 * MS);
        lateness.completed(300 * MS, 312 * MS);
        lateness.completed(400 * MS, 460 * MS);
        assert_eq!(lateness.stalls.len(), 2);
        assert_eq!(lateness.largest_ns, 290 * MS);
        assert_eq!(lateness.stalls[0], Span { from_ns: 10 * MS, to_ns: 310 * MS });
    }

    #[test]
    fn slow_seconds_are_under_half_the_median() {
        assert_eq!(slow_seconds(&[100, 100, 49, 50, 100, 0]), Some(2));
        assert_eq!(slow_seconds(&[]), None);
    }
}
