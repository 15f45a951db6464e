//! The random numbers and texts of the specification (clauses 2.1.6, 4.3.2 and 4.3.3).

use super::plan::Size;
use crate::random::Random;

/// Digits of a last name.
const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// What a tenth of the items and of the stock say.
pub const ORIGINAL: &[u8] = b"ORIGINAL";
/// Last names.
pub const NAMES: i64 = 1_000;

/// The constants of the non-uniform numbers: of the last names of the load, of those of the run, of customers, of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    load_names: i64,
    run_names: i64,
    customers: i64,
    items: i64,
}

impl Constants {
    /// Those of a seed. Names of load and run are as far apart as the specification wants.
    #[must_use]
    pub fn new(seed: u64) -> Constants {
        let mut random = Random::new(seed, 0x6e75_7261_6e64);
        let load_names = uniform(&mut random, 0, 255 - 119);
        let apart = loop {
            let drawn = uniform(&mut random, 65, 119);
            if drawn != 96 && drawn != 112 {
                break drawn;
            }
        };
        let (customers, items) = (uniform(&mut random, 0, 1_023), uniform(&mut random, 0, 8_191));
        Constants { load_names, run_names: load_names + apart, customers, items }
    }

    /// Number of the last name of a customer of the load: the first thousand have all of them.
    pub fn name_of_load(&self, random: &mut Random, customer: i64) -> i64 {
        if customer <= NAMES { customer - 1 } else { nonuniform(random, 255, (0, NAMES - 1), self.load_names) }
    }

    /// Number of a last name that somebody asks for: of one that there is, where there are fewer customers than names.
    pub fn name(&self, random: &mut Random, size: &Size) -> i64 {
        nonuniform(random, 255, (0, NAMES - 1), self.run_names) % size.customers.min(NAMES)
    }

    /// A customer of a district.
    pub fn customer(&self, random: &mut Random, size: &Size) -> i64 {
        nonuniform(random, 1_023, (1, size.customers), self.customers)
    }

    /// An item.
    pub fn item(&self, random: &mut Random, size: &Size) -> i64 {
        nonuniform(random, 8_191, (1, size.items), self.items)
    }
}

/// Uniform from one number to another, both included.
pub fn uniform(random: &mut Random, from: i64, to: i64) -> i64 {
    from + random.below_wide((to - from + 1) as u64) as i64
}

/// Whether something happens that happens so many times in a hundred.
pub fn percent(random: &mut Random, percent: i64) -> bool {
    uniform(random, 1, 100) <= percent
}

fn nonuniform(random: &mut Random, a: i64, (from, to): (i64, i64), c: i64) -> i64 {
    let drawn = uniform(random, 0, a) | uniform(random, from, to);
    (drawn + c) % (to - from + 1) + from
}

/// A last name.
#[must_use]
pub fn last_name(number: i64) -> Vec<u8> {
    let digits = [number / 100 % 10, number / 10 % 10, number % 10];
    digits.iter().flat_map(|digit| SYLLABLES[*digit as usize].bytes()).collect()
}

/// Letters and digits.
pub fn text(random: &mut Random, from: i64, to: i64) -> Vec<u8> {
    let length = uniform(random, from, to);
    (0..length).map(|_| LETTERS[random.below(LETTERS.len() as u32) as usize]).collect()
}

/// Digits.
pub fn digits(random: &mut Random, length: i64) -> Vec<u8> {
    (0..length).map(|_| b'0' + random.below(10) as u8).collect()
}

/// What an item or a stock says: one in ten has [`ORIGINAL`] somewhere in it.
pub fn data(random: &mut Random) -> Vec<u8> {
    let mut out = text(random, 26, 50);
    if percent(random, 10) {
        let at = random.below((out.len() - ORIGINAL.len() + 1) as u32) as usize;
        out[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
    out
}

/// Whether it says so.
#[must_use]
pub fn is_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|part| part == ORIGINAL)
}

/// A number of the load for each customer of a district, all different.
pub fn permutation(random: &mut Random, count: i64) -> Vec<i64> {
    let mut out: Vec<i64> = (1..=count).collect();
    shuffle(random, &mut out);
    out
}

/// Every order of the values equally likely.
pub fn shuffle<T>(random: &mut Random, values: &mut [T]) {
    for last in (1..values.len()).rev() {
        values.swap(last, random.below(last as u32 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { warehouses: 1, items: 100_000, customers: 3_000 };

    #[test]
    fn names_are_those_of_the_specification() {
        assert_eq!(last_name(371), b"PRICALLYOUGHT");
        assert_eq!(last_name(0), b"BARBARBAR");
        let constants = Constants::new(1);
        let mut random = Random::new(1, 1);
        assert_eq!(constants.name_of_load(&mut random, 1_000), 999);
        let apart: Vec<i64> = (0..500).map(Constants::new).map(|c| c.run_names - c.load_names).collect();
        assert!(apart.iter().all(|apart| (65..=119).contains(apart) && *apart != 96 && *apart != 112));
        assert!((0..500).map(Constants::new).all(|c| c.run_names <= 255 && c.load_names >= 0));
        let few = Size { customers: 30, ..SIZE };
        assert!((0..1_000).all(|_| constants.name(&mut random, &few) < 30));
    }

    #[test]
    fn nonuniform_numbers_are_in_range_and_not_uniform() {
        let constants = Constants::new(7);
        let mut random = Random::new(7, 0);
        let mut counts = vec![0u32; 3_001];
        (0..300_000).for_each(|_| counts[constants.customer(&mut random, &SIZE) as usize] += 1);
        assert_eq!(counts[0], 0);
        assert!(*counts.iter().max().unwrap() > 600, "some come far more often than a hundred times");
        assert!((0..10_000).all(|_| (1..=100_000).contains(&constants.item(&mut random, &SIZE))));
    }

    #[test]
    fn one_in_ten_is_original_and_a_permutation_has_all() {
        let mut random = Random::new(3, 0);
        let original = (0..10_000).filter(|_| is_original(&data(&mut random))).count();
        assert!((900..1_100).contains(&original), "{original}");
        let mut all = permutation(&mut random, 3_000);
        assert_ne!(all[..20], (1..=20).collect::<Vec<i64>>());
        all.sort_unstable();
        assert_eq!(all, (1..=3_000).collect::<Vec<i64>>());
        assert_eq!((text(&mut random, 24, 24).len(), digits(&mut random, 16).len()), (24, 16));
    }
}
