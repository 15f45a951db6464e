//! Randomness: the machine's own, or the simulation's by seed. Not for secrets.
//!
//! Also the hash maps of the engine: the standard ones visit their entries in another order in every process, which
//! would make two runs of one seed differ. These differ from process to process too (a chosen order cannot be
//! attacked), but inside a simulation the order follows from the seed.

use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::OnceLock;

use crate::sim::context;

/// A random number.
#[must_use]
pub fn u64() -> u64 {
    context::with(|thread| thread.random_u64())
        .unwrap_or_else(|| std::collections::hash_map::RandomState::new().build_hasher().finish())
}

/// A hash map whose order the simulator knows. Made with `HashMap::default()`.
pub type HashMap<K, V> = std::collections::HashMap<K, V, HashState>;

/// A hash set whose order the simulator knows. Made with `HashSet::default()`.
pub type HashSet<K> = std::collections::HashSet<K, HashState>;

/// The hasher of [`HashMap`] and [`HashSet`].
#[derive(Debug, Clone, Copy)]
pub struct HashState(u64);

impl Default for HashState {
    fn default() -> Self {
        static PROCESS: OnceLock<u64> = OnceLock::new();
        match context::with(|thread| thread.seed()) {
            Some(seed) => Self(seed),
            None => {
                Self(*PROCESS.get_or_init(|| std::collections::hash_map::RandomState::new().build_hasher().finish()))
            }
        }
    }
}

impl BuildHasher for HashState {
    type Hasher = DefaultHasher;
    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// A small generator with a seed: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
/// OOPSLA 2014). The same seed gives the same numbers, everywhere and for ever: recorded seeds depend on it.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator for this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        // The high half of a product: biased by at most end / 2^64.
        ((u128::from(self.u64()) * u128::from(end)) >> 64) as u64
    }

    /// An index into something of `len` elements, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits are what an f64 holds exactly.
        ((self.u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A generator of its own, whose numbers do not depend on how many this one gives later.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.u64())
    }
}

/// The finaliser of SplitMix64: spreads every input bit over all output bits.
#[must_use]
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(
            [rng.u64(), rng.u64(), rng.u64()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn bounds_and_odds() {
        let mut rng = Rng::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[rng.index(10)] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        let hits = (0..10_000).filter(|_| rng.chance(0.1)).count();
        assert!((800..1200).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| rng.chance(1.0)) && !(0..1000).any(|_| rng.chance(0.0)));
    }

    #[test]
    fn outside_a_simulation_numbers_differ() {
        assert_ne!(u64(), u64());
        let mut map: HashMap<u32, u32> = HashMap::default();
        map.insert(1, 2);
        assert_eq!(map.get(&1), Some(&2));
    }
}
