//! Who runs next: a pure function of the seed, the strategy and the threads that can run.

use super::config::{Config, Strategy};
use crate::random::Rng;

/// Index of a simulated thread, in order of creation.
pub(crate) type ThreadId = usize;

/// Chooses by seed.
#[derive(Debug)]
pub(crate) struct Chooser {
    rng: Rng,
    policy: Policy,
    biases: Vec<(String, f64)>,
}

#[derive(Debug)]
enum Policy {
    Random {
        switch: f64,
    },
    /// `ranks[thread]`: the highest runs. `lowest` only falls; whoever takes it is behind all others.
    Priorities {
        change: f64,
        ranks: Vec<i64>,
        lowest: i64,
    },
}

impl Chooser {
    pub(crate) fn new(mut rng: Rng, config: &Config) -> Self {
        let policy = match resolve(config.strategy, &mut rng) {
            Strategy::Priorities { change } => Policy::Priorities { change, ranks: Vec::new(), lowest: 0 },
            Strategy::Random { switch } => Policy::Random { switch },
            Strategy::Mixed => unreachable!("resolve gives a plain strategy"),
        };
        let biases = config.biases.iter().map(|b| (b.prefix.clone(), b.switch)).collect();
        Self { rng, policy, biases }
    }

    /// A thread begins.
    pub(crate) fn born(&mut self, thread: ThreadId) {
        if let Policy::Priorities { ranks, .. } = &mut self.policy {
            debug_assert_eq!(ranks.len(), thread);
            ranks.push(self.rng.below(1 << 40) as i64);
        }
    }

    /// At a scheduling point of `current`: should it be preempted? Under priorities this lowers it.
    pub(crate) fn preempts(&mut self, current: ThreadId, name: &str) -> bool {
        let own = match self.policy {
            Policy::Random { switch } => switch,
            Policy::Priorities { change, .. } => change,
        };
        let odds = self.biases.iter().find(|(prefix, _)| name.starts_with(prefix.as_str())).map_or(own, |b| b.1);
        let preempted = self.rng.chance(odds);
        if preempted {
            self.lower(current);
        }
        // Under priorities a thread that was woken in the meantime may outrank the current one.
        preempted || matches!(self.policy, Policy::Priorities { .. })
    }

    /// Puts a thread behind all others, where the strategy has an order.
    pub(crate) fn lower(&mut self, thread: ThreadId) {
        if let Policy::Priorities { ranks, lowest, .. } = &mut self.policy {
            *lowest -= 1;
            ranks[thread] = *lowest;
        }
    }

    /// The next thread among those that can run, which are not none. `current`, if it can run, is among them, and
    /// under random choice it is not taken again while there is another.
    pub(crate) fn pick(&mut self, runnable: &[ThreadId], current: ThreadId) -> ThreadId {
        match &self.policy {
            Policy::Random { .. } => {
                let others = runnable.iter().filter(|t| **t != current).count();
                if others == 0 {
                    return current;
                }
                let nth = self.rng.index(others);
                *runnable.iter().filter(|t| **t != current).nth(nth).expect("nth is below their count")
            }
            Policy::Priorities { ranks, .. } => *runnable.iter().max_by_key(|t| ranks[**t]).expect("someone can run"),
        }
    }

    /// One of several equal choices that are not who runs next: which waiter is notified.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.rng.index(len)
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.rng.chance(probability)
    }
}

fn resolve(strategy: Strategy, rng: &mut Rng) -> Strategy {
    const SWITCH: [f64; 4] = [0.02, 0.1, 0.3, 0.6];
    const CHANGE: [f64; 4] = [0.001, 0.005, 0.02, 0.1];
    if strategy != Strategy::Mixed {
        return strategy;
    }
    if rng.chance(0.5) {
        Strategy::Random { switch: SWITCH[rng.index(SWITCH.len())] }
    } else {
        Strategy::Priorities { change: CHANGE[rng.index(CHANGE.len())] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chooser(strategy: Strategy) -> Chooser {
        let mut chooser = Chooser::new(Rng::new(3), &Config::default().strategy(strategy));
        (0..4).for_each(|t| chooser.born(t));
        chooser
    }

    #[test]
    fn random_takes_everyone_and_never_the_same_again() {
        let mut chooser = chooser(Strategy::Random { switch: 0.5 });
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[chooser.pick(&[0, 1, 2, 3], 1)] += 1;
        }
        assert!(seen[1] == 0 && seen.iter().filter(|n| **n > 200).count() == 3, "{seen:?}");
        assert_eq!(chooser.pick(&[1], 1), 1);
    }

    #[test]
    fn the_lowered_thread_runs_last() {
        let mut chooser = chooser(Strategy::Priorities { change: 0.0 });
        let first = chooser.pick(&[0, 1, 2, 3], 0);
        assert_eq!(chooser.pick(&[0, 1, 2, 3], 0), first, "the order stays");
        chooser.lower(first);
        assert_ne!(chooser.pick(&[0, 1, 2, 3], first), first);
        assert_eq!(chooser.pick(&[first], first), first);
        let second = (first + 1) % 4;
        chooser.lower(second);
        assert_eq!(chooser.pick(&[first, second], second), first, "behind those that fell behind before");
        chooser.lower(first);
        assert_eq!(chooser.pick(&[first, second], first), second);
    }

    #[test]
    fn a_bias_overrides_the_odds() {
        let config = Config::default().strategy(Strategy::Random { switch: 0.0 }).bias("wal.", 1.0);
        let mut chooser = Chooser::new(Rng::new(3), &config);
        assert!(chooser.preempts(0, "wal.reserved") && !chooser.preempts(0, "tree.split"));
    }
}
