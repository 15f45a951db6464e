//! Numbers 1..=n of which a few come often: number i in proportion to i^-s, by rejection inversion (Hörmann and
//! Derflinger 1996), which takes no table and a little over one draw.

use crate::random::Random;

/// sysbench's own exponent.
pub const EXPONENT: f64 = 0.8;

/// A distribution over 1..=n.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    numbers: u64,
    exponent: f64,
    /// The integral of x^-s at 1.5 less the weight of 1, and at n + 0.5.
    from: f64,
    to: f64,
    /// Below this distance from its number, a draw is accepted at once.
    near: f64,
}

impl Zipf {
    /// Over 1..=n, with an exponent that is not 1.
    #[must_use]
    pub fn new(numbers: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { numbers, exponent, from: 0.0, to: 0.0, near: 0.0 };
        zipf.from = zipf.integral(1.5) - 1.0;
        zipf.to = zipf.integral(numbers as f64 + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    fn weight(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    fn integral(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn inverse(&self, y: f64) -> f64 {
        (1.0 + y * (1.0 - self.exponent)).max(0.0).powf(1.0 / (1.0 - self.exponent))
    }

    /// The next number.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let share = (random.draw() >> 11) as f64 / (1u64 << 53) as f64;
            let area = self.to + share * (self.from - self.to);
            let x = self.inverse(area);
            let number = ((x + 0.5) as u64).clamp(1, self.numbers);
            let at = number as f64;
            if at - x <= self.near || area >= self.integral(at + 0.5) - self.weight(at) {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_proportion_to_their_weight() {
        let (numbers, draws) = (1_000u64, 400_000);
        let zipf = Zipf::new(numbers, EXPONENT);
        let mut random = Random::new(3, 0);
        let mut counts = vec![0u64; numbers as usize + 1];
        (0..draws).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
        let all: f64 = (1..=numbers).map(|i| (i as f64).powf(-EXPONENT)).sum();
        for i in [1u64, 2, 3, 10, 100] {
            let expected = (i as f64).powf(-EXPONENT) / all * f64::from(draws);
            let found = counts[i as usize] as f64;
            assert!((found - expected).abs() < 6.0 * expected.sqrt(), "{i}: {found} of {expected}");
        }
        let tail: u64 = counts[501..].iter().sum();
        let expected = (501..=numbers).map(|i| (i as f64).powf(-EXPONENT)).sum::<f64>() / all * f64::from(draws);
        assert!((tail as f64 - expected).abs() < 6.0 * expected.sqrt(), "{tail} of {expected}");
        assert_eq!((counts[0], Zipf::new(1, EXPONENT).draw(&mut random)), (0, 1));
    }
}
