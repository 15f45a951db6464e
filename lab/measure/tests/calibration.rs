//! A comparison of a thing with itself claims nothing in at least 95 of 100, whatever the noise looks like; a true
//! difference of 20 % is found. Every noise is drawn from a fixed seed.

// A test outside the engine: a failed unwrap is a failed test.
#![allow(clippy::unwrap_used)]

use lab_measure::judge::{Verdict, corrected, estimate, verdict};

/// Comparisons a shape.
const COMPARISONS: u64 = 200;
const STEPS: usize = 10;
const METRICS: usize = 8;
const MARGIN: f64 = 0.05;

/// Uniform and normal numbers from a seed (the mixing function of SplitMix64).
struct Dice(u64);

impl Dice {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (left, right) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * left.ln()).sqrt() * (2.0 * std::f64::consts::PI * right).cos()
    }

    fn chance(&mut self, share: f64) -> bool {
        self.uniform() < share
    }
}

/// One number: `turn` counts the turns of both sides, `shared` is a factor that all numbers of the turn have.
type Shape = fn(&mut Dice, turn: usize, shared: f64) -> f64;

const SHAPES: &[(&str, Shape)] = &[
    ("normal, 3 %", |dice, _, _| 100.0 * (1.0 + 0.03 * dice.normal())),
    ("lognormal, 30 %", |dice, _, _| 100.0 * (0.3 * dice.normal()).exp()),
    ("all numbers of a turn move together", |_, _, shared| 100.0 * (0.05 * shared).exp()),
    // Student's t with two degrees of freedom: no variance.
    ("heavy tails", |dice, _, _| {
        let scale = ((dice.normal().powi(2) + dice.normal().powi(2)) / 2.0).sqrt();
        100.0 * (0.03 * dice.normal() / scale.max(1e-9)).exp()
    }),
    ("one in ten is three times as slow", |dice, _, _| {
        let slow = if dice.chance(0.1) { 3.0 } else { 1.0 };
        100.0 * slow * (0.02 * dice.normal()).exp()
    }),
    (
        "two speeds, one in five",
        |dice, _, _| if dice.chance(0.2) { 150.0 } else { 100.0 } * (1.0 + 0.01 * dice.normal()),
    ),
    ("a drift of 5 % a turn", |dice, turn, _| 100.0 * (0.05 * turn as f64 + 0.03 * dice.normal()).exp()),
    ("whole steps of a few", |dice, _, _| (4.0 + dice.normal()).round().max(1.0)),
    ("all alike", |_, _, _| 100.0),
];

/// How the lab interleaves: forwards and backwards in turns, so that a steady drift does not favour a side.
fn side_of(turn: usize) -> usize {
    (turn + turn / 2) % 2
}

/// All verdicts of one comparison of two sides with `n` repetitions, the second `factor` times the first.
fn compared(dice: &mut Dice, n: usize, factor: f64, shape: Shape) -> Vec<Verdict> {
    let shared: Vec<f64> = (0..2 * n).map(|_| dice.normal()).collect();
    let mut estimates = Vec::new();
    for _ in 0..STEPS * METRICS {
        let mut sides = [Vec::new(), Vec::new()];
        for (turn, shared) in shared.iter().enumerate() {
            let value = shape(dice, turn, *shared);
            sides[side_of(turn)].push(if side_of(turn) == 1 { value * factor } else { value });
        }
        estimates.push(estimate(&sides[0], &sides[1]).unwrap());
    }
    let probabilities: Vec<f64> = estimates.iter().map(|estimate| estimate.p.unwrap()).collect();
    let corrected = corrected(&probabilities);
    estimates.iter().zip(corrected).map(|(estimate, p)| verdict(estimate, p, true, MARGIN)).collect()
}

fn claims(verdicts: &[Verdict]) -> bool {
    verdicts.iter().any(|verdict| matches!(verdict, Verdict::Better | Verdict::Worse))
}

#[test]
fn a_thing_compared_with_itself_claims_nothing_in_95_of_100() {
    for (number, (name, shape)) in SHAPES.iter().enumerate() {
        for n in [3, 5, 8] {
            let mut dice = Dice(number as u64 * 1_000 + n as u64);
            let wrong = (0..COMPARISONS).filter(|_| claims(&compared(&mut dice, n, 1.0, *shape))).count();
            assert!(
                wrong as u64 * 100 <= COMPARISONS * 5,
                "{name}, n = {n}: {wrong} of {COMPARISONS} comparisons of the same thing claim a difference"
            );
        }
    }
}

#[test]
fn a_difference_of_20_percent_is_found_with_five_repetitions_and_3_percent_noise() {
    let shape = SHAPES[0].1;
    for (factor, expected) in [(1.2, Verdict::Better), (1.0 / 1.2, Verdict::Worse)] {
        let mut dice = Dice(7);
        let (mut found, mut all) = (0, 0);
        for _ in 0..COMPARISONS {
            let verdicts = compared(&mut dice, 5, factor, shape);
            found += verdicts.iter().filter(|verdict| **verdict == expected).count();
            all += verdicts.len();
        }
        assert!(found * 100 >= all * 95, "{found} of {all} ratios of {factor} are {expected:?}");
    }
}

#[test]
fn sides_that_do_not_differ_are_called_the_same_when_the_noise_is_small() {
    let mut dice = Dice(11);
    let shape: Shape = |dice, _, _| 100.0 * (1.0 + 0.01 * dice.normal());
    let verdicts: Vec<Verdict> = (0..50).flat_map(|_| compared(&mut dice, 5, 1.0, shape)).collect();
    let same = verdicts.iter().filter(|verdict| **verdict == Verdict::Same).count();
    assert!(same * 100 >= verdicts.len() * 95, "{same} of {}", verdicts.len());
}
