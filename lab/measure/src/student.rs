//! Student's t distribution: the share of it beyond a value, and the value beyond which a share lies.
//!
//! The share is half the regularised incomplete beta function I_x(ν/2, 1/2) at x = ν/(ν + t²), computed by its
//! continued fraction (Abramowitz and Stegun, *Handbook of Mathematical Functions*, 26.5.8 and 26.7.1).

/// Terms of the continued fraction; a few dozen are enough for any degrees of freedom that measurements have.
const TERMS: u32 = 500;
const SMALL: f64 = 1e-300;

/// Logarithm of the gamma function for x > 0: Stirling's series, after the recurrence has made x large enough.
fn ln_gamma(mut x: f64) -> f64 {
    let mut below = 0.0;
    while x < 10.0 {
        below += x.ln();
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1_260.0 - 1.0 / (1_680.0 * square)) / square) / square) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - below
}

/// The continued fraction of I_x(a, b), which converges fast for x < (a + 1)/(a + b + 2).
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    let kept = |value: f64| if value.abs() < SMALL { SMALL } else { value };
    let (mut c, mut d) = (1.0, 1.0 / kept(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for term in 1..=TERMS {
        let m = f64::from(term);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = value;
        for step in [even, odd] {
            d = 1.0 / kept(1.0 + step * d);
            c = kept(1.0 + step / c);
            value *= c * d;
        }
        if (value / before - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

/// How much of the distribution with `freedom` degrees lies at |t| or further from 0, both sides together.
#[must_use]
pub fn beyond(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The value that leaves `share` of the distribution beyond it, both sides together.
#[must_use]
pub fn quantile(share: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while beyond(high, freedom) > share {
        high *= 2.0;
    }
    for _ in 0..48 {
        let middle = (low + high) / 2.0;
        if beyond(middle, freedom) > share { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_quantiles() {
        // Both sides together, from the usual printed tables.
        for (share, freedom, value) in [
            (0.5, 1.0, 1.000),
            (0.05, 1.0, 12.706),
            (0.05, 2.0, 4.303),
            (0.05, 8.0, 2.306),
            (0.01, 8.0, 3.355),
            (0.001, 8.0, 5.041),
            (0.05, 30.0, 2.042),
            (0.001, 120.0, 3.373),
        ] {
            assert!((quantile(share, freedom) - value).abs() < 6e-4, "{share} {freedom}: {}", quantile(share, freedom));
        }
    }

    #[test]
    fn shares_that_have_a_closed_form() {
        for t in [0.0f64, 0.3, 1.0, 5.0, 40.0] {
            let one = 1.0 - 2.0 / std::f64::consts::PI * t.atan();
            let two = 1.0 - t / (2.0 + t * t).sqrt();
            assert!((beyond(t, 1.0) - one).abs() < 1e-9, "{t}");
            assert!((beyond(t, 2.0) - two).abs() < 1e-9, "{t}");
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-10);
        assert!((ln_gamma(6.0) - 120f64.ln()).abs() < 1e-10);
    }
}
