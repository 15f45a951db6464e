//! One cell a second: how much was done, and the worst response that ended in it.

use serde::{Deserialize, Serialize};

use crate::clock::SECOND_NS;

/// Per-second counts and worst responses, from the start of the measured span.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Rows or queries completed in each second.
    pub counts: Vec<u64>,
    /// The worst response that completed in each second, in microseconds (rounded up).
    pub worst_us: Vec<u64>,
}

impl Series {
    /// Adds `amount` completed `at_ns` after the start, `response_ns` after it began.
    pub fn record(&mut self, at_ns: u64, amount: u64, response_ns: u64) {
        let second = (at_ns / SECOND_NS) as usize;
        if self.counts.len() <= second {
            self.counts.resize(second + 1, 0);
            self.worst_us.resize(second + 1, 0);
        }
        self.counts[second] += amount;
        self.worst_us[second] = self.worst_us[second].max(response_ns.div_ceil(1_000));
    }

    /// Adds another thread's series.
    pub fn merge(&mut self, other: &Series) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
            self.worst_us.resize(other.counts.len(), 0);
        }
        for (second, count) in other.counts.iter().enumerate() {
            self.counts[second] += count;
            self.worst_us[second] = self.worst_us[second].max(other.worst_us[second]);
        }
    }

    /// Makes the series cover exactly the whole seconds of `length_ns`, plus the last part of a second if any.
    pub fn cover(&mut self, length_ns: u64) {
        let cells = length_ns.div_ceil(SECOND_NS) as usize;
        if self.counts.len() < cells {
            self.counts.resize(cells, 0);
            self.worst_us.resize(cells, 0);
        }
    }

    /// The counts of the seconds that were complete when the span of `length_ns` ended.
    #[must_use]
    pub fn whole(&self, length_ns: u64) -> &[u64] {
        let cells = ((length_ns / SECOND_NS) as usize).min(self.counts.len());
        &self.counts[..cells]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_counted_and_merged() {
        let mut series = Series::default();
        series.record(10, 5, 1_500);
        series.record(SECOND_NS - 1, 5, 900);
        series.record(2 * SECOND_NS, 7, 10);
        assert_eq!(series.counts, [10, 0, 7]);
        assert_eq!(series.worst_us, [2, 0, 1]);
        let mut other = Series::default();
        other.record(3 * SECOND_NS, 1, 3_000);
        series.merge(&other);
        assert_eq!(series.counts, [10, 0, 7, 1]);
        assert_eq!(series.whole(3 * SECOND_NS + 5), [10, 0, 7]);
        series.cover(5 * SECOND_NS + 1);
        assert_eq!(series.counts.len(), 6);
    }
}
