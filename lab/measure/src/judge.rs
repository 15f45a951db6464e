//! Is one side faster than the other, or is it noise?
//!
//! Measurements of one side are repetitions of one number (a rate, a response time, a cost), few of them: five to ten.
//!
//! 1. Logarithms: noise of a measurement is a factor, and a ratio of two sides becomes a difference of means.
//! 2. The difference gets a 95 % interval without the assumption that both sides are equally noisy (B. L. Welch, "The
//!    generalization of 'Student's' problem when several different population variances are involved", Biometrika 34,
//!    1947). Repetitions of the sides that took turns may drift together: that widens the interval of both and moves
//!    the difference of neither.
//! 3. A comparison has many ratios, and one in twenty of them would lie outside its interval by chance. A difference
//!    is therefore claimed only if its probability under "no difference", corrected for all ratios of the comparison
//!    (S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6,
//!    1979), is below 5 %: a comparison of a thing with itself claims nothing in at least 95 of 100.
//! 4. An interval wholly within the margin says *same* (D. J. Schuirmann, "A comparison of the two one-sided tests
//!    procedure …", Journal of Pharmacokinetics and Biopharmaceutics 15, 1987), even if the difference is certain.
//!    What is neither claimed nor same is *unclear*: more repetitions may tell.
//!
//! Why not ranks: with five against five the most extreme order of ranks has a probability of 0.8 %, which no
//! correction for fifty ratios survives. The price is that a machine with two speeds, one of which happened to be on
//! for all repetitions of one side, is taken for a difference.

use serde::{Deserialize, Serialize};

use crate::student;

/// Intervals miss the true ratio this often.
const MISSED: f64 = 0.05;
/// A comparison claims something wrong this often if the noise is what it is taken for. The promise is 5 %: the rest is
/// for noise that is not.
const WRONG: f64 = 0.02;
/// With fewer repetitions of either side nothing is claimed: a machine that is three times as slow for one turn in ten
/// is so for all three repetitions of one side, and none of the other, often enough to be met.
pub const LEAST_REPEATS: usize = 5;
/// Standard deviation, as a factor, below which no measurement is believed to be: repetitions that agree by chance
/// must not make an interval of no width.
const LEAST_NOISE: f64 = 0.005;

/// What the repetitions of two sides say about the ratio of new to base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Repetitions of the side that has fewer.
    pub repeats: usize,
    /// Geometric mean of the base.
    pub base: f64,
    /// Geometric mean of the new side.
    pub new: f64,
    /// New by base.
    pub ratio: f64,
    /// 95 % interval of the ratio; `None` with a single repetition of either.
    pub interval: Option<(f64, f64)>,
    /// Probability of such a ratio, or one further from 1, if there is no difference.
    pub p: Option<f64>,
}

/// What is claimed about a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The new side is better.
    Better,
    /// The new side is worse.
    Worse,
    /// No difference that matters.
    Same,
    /// Cannot be told from these repetitions.
    Unclear,
}

impl Verdict {
    /// The word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "same",
            Verdict::Unclear => "unclear",
        }
    }
}

fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (count - 1.0).max(1.0))
}

/// Estimates the ratio; `None` where there is none, because a side has no value or one that is not above 0.
/// All values 0 on both sides is a ratio of 1.
#[must_use]
pub fn estimate(base: &[f64], new: &[f64]) -> Option<Estimate> {
    let repeats = base.len().min(new.len());
    if repeats == 0 {
        return None;
    }
    if base.iter().chain(new).all(|value| *value == 0.0) {
        let known = repeats > 1;
        let interval = known.then_some((1.0, 1.0));
        return Some(Estimate { repeats, base: 0.0, new: 0.0, ratio: 1.0, interval, p: known.then_some(1.0) });
    }
    if base.iter().chain(new).any(|value| *value <= 0.0 || !value.is_finite()) {
        return None;
    }
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let (base_mean, base_variance) = mean_and_variance(&logs(base));
    let (new_mean, new_variance) = mean_and_variance(&logs(new));
    let difference = new_mean - base_mean;
    let (base_mean, new_mean) = (base_mean.exp(), new_mean.exp());
    let ratio = difference.exp();
    let mut made = Estimate { repeats, base: base_mean, new: new_mean, ratio, interval: None, p: None };
    if repeats > 1 {
        let of_mean = |variance: f64, count: usize| variance.max(LEAST_NOISE * LEAST_NOISE) / count as f64;
        let (left, right) = (of_mean(base_variance, base.len()), of_mean(new_variance, new.len()));
        let share = |part: f64, count: usize| part * part / (count - 1) as f64;
        let freedom = (left + right).powi(2) / (share(left, base.len()) + share(right, new.len()));
        let error = (left + right).sqrt();
        let reach = student::quantile(MISSED, freedom) * error;
        made.interval = Some(((difference - reach).exp(), (difference + reach).exp()));
        made.p = Some(student::beyond(difference / error, freedom));
    }
    Some(made)
}

/// The probabilities corrected for their number (Holm), in the order given.
#[must_use]
pub fn corrected(probabilities: &[f64]) -> Vec<f64> {
    let mut rising: Vec<usize> = (0..probabilities.len()).collect();
    rising.sort_by(|left, right| probabilities[*left].total_cmp(&probabilities[*right]));
    let mut out = vec![1.0; probabilities.len()];
    let mut so_far = 0.0f64;
    for (place, which) in rising.into_iter().enumerate() {
        so_far = so_far.max((probabilities[which] * (probabilities.len() - place) as f64).min(1.0));
        out[which] = so_far;
    }
    out
}

/// Judges one ratio: `p` is its corrected probability, `margin` (0.05 = 5 %) what does not matter.
#[must_use]
pub fn verdict(estimate: &Estimate, p: f64, higher_is_better: bool, margin: f64) -> Verdict {
    let Some((low, high)) = estimate.interval.filter(|_| estimate.repeats >= LEAST_REPEATS) else {
        return Verdict::Unclear;
    };
    if low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin {
        return Verdict::Same;
    }
    match p < WRONG {
        false => Verdict::Unclear,
        true if (estimate.ratio > 1.0) == higher_is_better => Verdict::Better,
        true => Verdict::Worse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_by_hand() {
        // Logs 0, ln 1.1, ln 1.21 against 1 more: differences of a known size and spread.
        let base = [1.0, 1.1, 1.21];
        let new: Vec<f64> = base.iter().map(|value| value * 2.0).collect();
        let made = estimate(&base, &new).unwrap();
        assert!((made.ratio - 2.0).abs() < 1e-12 && (made.base - 1.1).abs() < 1e-12);
        // s = ln 1.1, standard error s·sqrt(2/3), four degrees of freedom: t = 2.776.
        let reach = 2.7764 * 1.1f64.ln() * (2.0f64 / 3.0).sqrt();
        let (low, high) = made.interval.unwrap();
        assert!((low.ln() - (2f64.ln() - reach)).abs() < 1e-4 && (high.ln() - (2f64.ln() + reach)).abs() < 1e-4);
    }

    #[test]
    fn few_zero_and_missing_values() {
        assert_eq!(estimate(&[], &[1.0]), None);
        assert_eq!(estimate(&[0.0, 1.0], &[1.0, 1.0]), None);
        let one = estimate(&[2.0], &[4.0]).unwrap();
        assert_eq!((one.ratio, one.interval, one.p), (2.0, None, None));
        assert_eq!(verdict(&one, 0.0, true, 0.05), Verdict::Unclear);
        let three = estimate(&[1.0; 3], &[9.0; 3]).unwrap();
        assert_eq!(verdict(&three, 0.0, true, 0.05), Verdict::Unclear);
        let zeroes = estimate(&[0.0; 5], &[0.0; 5]).unwrap();
        assert_eq!(verdict(&zeroes, 1.0, true, 0.05), Verdict::Same);
        // Repetitions that agree to the last digit still have an interval.
        let (low, high) = estimate(&[5.0; 5], &[5.0; 5]).unwrap().interval.unwrap();
        assert!(low < 0.995 && high > 1.005 && high < 1.01);
    }

    #[test]
    fn probabilities_are_corrected_for_their_number() {
        let out = corrected(&[0.04, 0.01, 0.03]);
        assert!((out[1] - 0.03).abs() < 1e-12 && (out[2] - 0.06).abs() < 1e-12 && (out[0] - 0.06).abs() < 1e-12);
        assert!(corrected(&[]).is_empty());
    }

    #[test]
    fn direction_and_margin() {
        let made = |low: f64, high: f64| Estimate {
            repeats: 5,
            base: 1.0,
            new: (low * high).sqrt(),
            ratio: (low * high).sqrt(),
            interval: Some((low, high)),
            p: None,
        };
        assert_eq!(verdict(&made(1.1, 1.3), 0.01, true, 0.05), Verdict::Better);
        assert_eq!(verdict(&made(1.1, 1.3), 0.01, false, 0.05), Verdict::Worse);
        assert_eq!(verdict(&made(1.1, 1.3), 0.06, true, 0.05), Verdict::Unclear);
        assert_eq!(verdict(&made(1.01, 1.04), 0.01, true, 0.05), Verdict::Same);
        assert_eq!(verdict(&made(0.9, 1.04), 0.8, true, 0.05), Verdict::Unclear);
    }
}
