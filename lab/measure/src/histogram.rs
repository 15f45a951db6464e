//! Latencies: a mergeable high-dynamic-range histogram, and the classes of the insert benchmark's tables.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Below this many nanoseconds latencies are not told apart.
const LOWEST_NS: u64 = 128;
/// Above this (about an hour) they are counted as this.
const HIGHEST_NS: u64 = 4_000_000_000_000;
/// Decimal digits that survive.
const DIGITS: u8 = 3;

/// A histogram of latencies in nanoseconds: 0.1 % wide classes from 128 ns to an hour, exact count, merge by adding.
#[derive(Clone, Debug)]
pub struct Latency {
    counts: Histogram<u64>,
    max_ns: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        let counts =
            Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS).expect("the constant bounds are valid bounds");
        Latency { counts, max_ns: 0 }
    }
}

impl Latency {
    /// Adds one latency.
    pub fn record(&mut self, ns: u64) {
        self.counts.saturating_record(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds everything another histogram counted.
    pub fn merge(&mut self, other: &Latency) {
        self.counts.add(&other.counts).expect("all histograms have the same bounds");
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many latencies were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The latency in microseconds that `share` (0..=1) of all did not exceed; `None` when nothing was recorded.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        (self.count() > 0).then(|| self.counts.value_at_quantile(share).min(self.max_ns) as f64 / 1e3)
    }

    /// The largest latency in microseconds, exact.
    #[must_use]
    pub fn max_us(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.max_ns as f64 / 1e3)
    }

    /// The occupied classes, for keeping and for merging later.
    #[must_use]
    pub fn kept(&self) -> KeptLatency {
        let counts =
            self.counts.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
        KeptLatency { unit: "ns".into(), max: self.max_ns, counts }
    }
}

/// A histogram as it is kept: (largest value of the class, count), rising.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLatency {
    /// Unit of the values.
    pub unit: String,
    /// Largest latency, exact.
    pub max: u64,
    /// Value and count of each occupied class.
    pub counts: Vec<(u64, u64)>,
}

impl KeptLatency {
    /// The histogram again.
    #[must_use]
    pub fn restored(&self) -> Latency {
        let mut latency = Latency::default();
        for (value, count) in &self.counts {
            latency.counts.saturating_record_n(*value, *count);
        }
        latency.max_ns = self.max;
        latency
    }
}

/// Inclusive upper bounds of the response-time classes, in microseconds; the last class is open.
pub const CLASS_BOUNDS_US: [u64; 9] = [256, 1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000];

/// Headings of the classes.
pub const CLASS_NAMES: [&str; 10] = ["256us", "1ms", "4ms", "16ms", "64ms", "256ms", "1s", "4s", "16s", "gt"];

/// The insert benchmark's response-time histogram: nine classes and `gt`, plus the maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    /// Responses per class.
    pub counts: [u64; 10],
    /// The largest response time in nanoseconds.
    pub max_ns: u64,
}

impl Classes {
    /// Adds one response.
    pub fn record(&mut self, ns: u64) {
        let class = CLASS_BOUNDS_US.iter().position(|bound| ns <= bound * 1_000).unwrap_or(CLASS_BOUNDS_US.len());
        self.counts[class] += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Classes) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Responses in all classes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Share of each class in percent.
    #[must_use]
    pub fn percents(&self) -> [f64; 10] {
        let total = self.total().max(1) as f64;
        self.counts.map(|count| 100.0 * count as f64 / total)
    }

    /// A share as the tables print it: blank for none, `nonzero` for one that rounds to nothing, else three decimals.
    #[must_use]
    pub fn printed(count: u64, total: u64) -> String {
        if count == 0 {
            return String::new();
        }
        let text = format!("{:.3}", 100.0 * count as f64 / total.max(1) as f64);
        if text == "0.000" { "nonzero".into() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_histograms_equal_one_histogram_of_everything() {
        let (mut left, mut right, mut whole) = (Latency::default(), Latency::default(), Latency::default());
        for value in 0..20_000u64 {
            let ns = value * value % 7_000_003 + 200;
            if value % 3 == 0 {
                left.record(ns)
            } else {
                right.record(ns)
            }
            whole.record(ns);
        }
        left.merge(&right);
        assert_eq!(left.kept(), whole.kept());
        assert_eq!(left.kept().restored().kept(), whole.kept());
        for share in [0.0, 0.5, 0.99, 0.999, 1.0] {
            assert_eq!(left.quantile_us(share), whole.quantile_us(share));
        }
    }

    #[test]
    fn quantiles_are_within_a_thousandth() {
        let mut latency = Latency::default();
        (1..=100_000u64).for_each(|us| latency.record(us * 1_000));
        let p99 = latency.quantile_us(0.99).unwrap();
        assert!((p99 - 99_000.0).abs() / 99_000.0 < 0.001, "{p99}");
        assert_eq!(latency.max_us(), Some(100_000.0));
        assert_eq!(Latency::default().quantile_us(0.5), None);
    }

    #[test]
    fn class_bounds_are_inclusive() {
        let mut classes = Classes::default();
        classes.record(256_000);
        classes.record(256_001);
        classes.record(1_000_000);
        classes.record(16_000_000_000);
        classes.record(16_000_000_001);
        assert_eq!(classes.counts, [1, 2, 0, 0, 0, 0, 0, 0, 1, 1]);
        let mut twice = classes;
        twice.merge(&classes);
        assert_eq!(twice.total(), 10);
        assert_eq!(twice.percents()[1], 40.0);
    }

    #[test]
    fn shares_print_blank_nonzero_or_three_decimals() {
        assert_eq!(Classes::printed(0, 10), "");
        assert_eq!(Classes::printed(1, 1_000_000), "nonzero");
        assert_eq!(Classes::printed(1, 3), "33.333");
    }
}
