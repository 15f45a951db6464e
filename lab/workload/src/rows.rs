//! Rows of the insert benchmark.
//!
//! Every client has its own [`RowMaker`]; the text pool is shared. All columns are uniform and independent, except
//! two things the original takes from its surroundings and a seeded run must not: the random text comes from a pool
//! made of the seed, and `dateandtime` is a clock that ticks with the rows (in paced steps at the pace, otherwise
//! one second every [`ROWS_PER_SECOND`] rows) instead of the wall clock. So one plan and seed give the same rows on
//! every target.

use std::collections::VecDeque;
use std::sync::Arc;

use lab_target::{Batch, Price, RowView};

use crate::random::Random;

/// `cashregisterid` is below this.
pub const CASH_REGISTERS: u32 = 1_000;
/// `customerid` is below this.
pub const CUSTOMERS: u32 = 100_000;
/// `productid` is below this.
pub const PRODUCTS: u32 = 10_000;
/// `price` is below this; a FLOAT is less than so many hundredths above a hundredth of `customerid`.
pub const MAX_PRICE: u32 = 500;
/// A FLOAT is below this, in hundredths.
pub const MAX_HUNDREDTHS: u32 = CUSTOMERS + MAX_PRICE;
/// Length of the text pool.
pub const POOL_BYTES: usize = 4 << 20;
/// Shortest `data`.
pub const DATA_MIN: u32 = 10;
/// Longest `data`.
pub const DATA_MAX: u32 = 20;
/// Three quarters (bytes of a base64 character) of the 50 % that are random.
const RANDOM_SHARE: (u32, u32) = (3, 8);
/// Where the rows' clock starts: 2023-08-01 00:00:00 UTC.
const EPOCH_SECS: i64 = 1_690_848_000;
/// Rows in a second of the rows' clock, in steps without a pace.
pub const ROWS_PER_SECOND: u64 = 100_000;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text pool of a run: 4 MiB of random base64 characters.
#[must_use]
pub fn text_pool(seed: u64) -> Arc<[u8]> {
    let mut random = Random::new(seed, 0x706f_6f6c);
    let mut pool = Vec::with_capacity(POOL_BYTES);
    while pool.len() < POOL_BYTES {
        let mut bits = random.draw();
        for _ in 0..10 {
            pool.push(BASE64[(bits & 63) as usize]);
            bits >>= 6;
        }
    }
    pool.truncate(POOL_BYTES);
    pool.into()
}

/// Makes one client's rows, statement by statement.
#[derive(Clone, Debug)]
pub struct RowMaker {
    random: Random,
    pool: Arc<[u8]>,
    time_us: u64,
    price: Price,
}

impl RowMaker {
    /// The maker of client number `client`.
    #[must_use]
    pub fn new(seed: u64, client: u32, pool: Arc<[u8]>) -> RowMaker {
        RowMaker {
            random: Random::new(seed, 0x726f_7773_0000_0000 | u64::from(client)),
            pool,
            time_us: 0,
            price: Price::Int,
        }
    }

    /// The same with another kind of price.
    #[must_use]
    pub fn with_price(self, price: Price) -> RowMaker {
        RowMaker { price, ..self }
    }

    /// Fills `batch` with the rows of the next statement; the clock ticks by `rows` at `rows_per_second`.
    pub fn fill(&mut self, batch: &mut Batch, rows: u32, rows_per_second: u64) {
        batch.clear();
        let dateandtime = EPOCH_SECS + (self.time_us / 1_000_000) as i64;
        for _ in 0..rows {
            self.push(batch, dateandtime);
        }
        self.time_us += u64::from(rows) * 1_000_000 / rows_per_second.max(1);
    }

    fn push(&mut self, batch: &mut Batch, dateandtime: i64) {
        let random = &mut self.random;
        let mut row = RowView {
            dateandtime,
            cashregisterid: random.below(CASH_REGISTERS) as i32,
            customerid: random.below(CUSTOMERS) as i32,
            productid: random.below(PRODUCTS) as i32,
            price: random.below(MAX_PRICE) as i32,
            data: &[],
        };
        if self.price == Price::Float {
            row.price += row.customerid;
        }
        let length = DATA_MIN + random.below(DATA_MAX - DATA_MIN + 1);
        let random_length = (length * RANDOM_SHARE.0 / RANDOM_SHARE.1) as usize;
        let at = random.below((POOL_BYTES - random_length) as u32) as usize;
        let pool = &self.pool;
        batch.push_with(row, |text| {
            text.resize(text.len() + length as usize - random_length, b'a');
            text.extend_from_slice(&pool[at..at + random_length]);
        });
    }
}

/// Whether a maker could have made this row: every column within its bounds.
#[must_use]
pub fn could_be_made(row: &RowView<'_>, price: Price) -> bool {
    let least_price = if price == Price::Float { row.customerid } else { 0 };
    let below = |value: i32, bound: u32| u32::try_from(value).is_ok_and(|value| value < bound);
    row.dateandtime >= EPOCH_SECS
        && below(row.cashregisterid, CASH_REGISTERS)
        && below(row.customerid, CUSTOMERS)
        && below(row.productid, PRODUCTS)
        && row.price.checked_sub(least_price).is_some_and(|price| below(price, MAX_PRICE))
        && (DATA_MIN as usize..=DATA_MAX as usize).contains(&row.data.len())
        && row.data[0] == b'a'
}

/// A run of equal statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    statements: u64,
    rows: u32,
    rows_per_second: u64,
}

/// Makes the same rows again, later: what was in the rows that have been deleted since.
#[derive(Debug)]
pub struct Replay {
    maker: RowMaker,
    stretches: VecDeque<Stretch>,
    batch: Batch,
    position: usize,
    /// Rows replayed so far.
    replayed: u64,
    /// Sum of the hashes of the replayed rows.
    hash: u64,
}

impl Replay {
    /// A replay of everything `maker` will make from here on.
    #[must_use]
    pub fn of(maker: &RowMaker) -> Replay {
        Replay {
            maker: maker.clone(),
            stretches: VecDeque::new(),
            batch: Batch::default(),
            position: 0,
            replayed: 0,
            hash: 0,
        }
    }

    /// Tells that the maker made `statements` statements.
    pub fn made(&mut self, statements: u64, rows: u32, rows_per_second: u64) {
        self.stretches.push_back(Stretch { statements, rows, rows_per_second });
    }

    /// Replays up to `rows` rows in all and returns the sum of their hashes under keys 1, 2, 3, …;
    /// `None` if so many were never made.
    pub fn hash_of_first(&mut self, rows: u64) -> Option<u64> {
        while self.replayed < rows {
            if self.position == self.batch.len() {
                while self.stretches.front()?.statements == 0 {
                    self.stretches.pop_front();
                }
                let stretch = self.stretches.front_mut()?;
                stretch.statements -= 1;
                self.maker.fill(&mut self.batch, stretch.rows, stretch.rows_per_second);
                self.position = 0;
            }
            self.replayed += 1;
            self.hash = self.hash.wrapping_add(self.batch.get(self.position).hash(self.replayed));
            self.position += 1;
        }
        Some(self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(seed: u64, client: u32, statements: u64) -> u64 {
        let mut maker = RowMaker::new(seed, client, text_pool(seed));
        let (mut batch, mut key, mut hash) = (Batch::default(), 0, 0u64);
        for _ in 0..statements {
            maker.fill(&mut batch, 50, ROWS_PER_SECOND);
            for row in batch.iter() {
                key += 1;
                hash = hash.wrapping_add(row.hash(key));
            }
        }
        hash
    }

    #[test]
    fn the_same_seed_gives_the_same_rows_for_ever() {
        assert_eq!(sum(42, 0, 100), sum(42, 0, 100));
        assert_ne!(sum(42, 0, 100), sum(43, 0, 100));
        assert_ne!(sum(42, 0, 100), sum(42, 1, 100));
        // Frozen: a change here breaks the comparison with every kept run.
        assert_eq!(sum(42, 0, 100), FROZEN, "{:#x}", sum(42, 0, 100));
    }

    const FROZEN: u64 = 0x54af_74b8_e12c_ad13;

    #[test]
    fn columns_have_their_domains_and_the_text_its_shape() {
        let mut maker = RowMaker::new(1, 0, text_pool(1));
        let mut batch = Batch::default();
        maker.fill(&mut batch, 10_000, ROWS_PER_SECOND);
        let (mut lengths, mut random_characters, mut all) = ([0u32; 21], 0usize, 0usize);
        for row in batch.iter() {
            assert!((0..1_000).contains(&row.cashregisterid) && (0..100_000).contains(&row.customerid));
            assert!((0..10_000).contains(&row.productid) && (0..500).contains(&row.price));
            let could = |row: RowView<'_>| could_be_made(&row, Price::Int);
            assert!(could(row) && !could(RowView { data: &row.data[..9], ..row }));
            assert!(!could(RowView { price: 500, ..row }) && !could(RowView { productid: -1, ..row }));
            let length = row.data.len();
            lengths[length] += 1;
            let random_length = length * 3 / 8;
            assert!(row.data[..length - random_length].iter().all(|byte| *byte == b'a'));
            random_characters += random_length;
            all += length;
        }
        assert!(lengths[10..=20].iter().all(|count| (700..1_150).contains(count)), "{lengths:?}");
        assert_eq!((10 * 3 / 8, 15 * 3 / 8, 20 * 3 / 8), (3, 5, 7));
        let share = 1.0 - random_characters as f64 / all as f64;
        assert!((0.62..0.70).contains(&share), "{share}");
    }

    /// As the original had it: half a unit of the customer's number at most, and a FLOAT gives the hundredths back.
    #[test]
    fn a_float_goes_up_with_the_customer() {
        let mut batch = Batch::default();
        RowMaker::new(1, 0, text_pool(1)).with_price(Price::Float).fill(&mut batch, 10_000, ROWS_PER_SECOND);
        for row in batch.iter() {
            assert!((0..500).contains(&(row.price - row.customerid)) && could_be_made(&row, Price::Float));
            assert!(!could_be_made(&RowView { price: row.customerid - 1, ..row }, Price::Float));
            assert_eq!((f64::from((f64::from(row.price) / 100.0) as f32) * 100.0).round(), f64::from(row.price));
        }
    }

    #[test]
    fn every_row_of_a_statement_has_the_same_time_and_the_clock_ticks() {
        let mut maker = RowMaker::new(1, 0, text_pool(1));
        let mut batch = Batch::default();
        maker.fill(&mut batch, 50, 100);
        assert!(batch.iter().all(|row| row.dateandtime == EPOCH_SECS));
        maker.fill(&mut batch, 50, 100);
        assert!(batch.iter().all(|row| row.dateandtime == EPOCH_SECS));
        maker.fill(&mut batch, 50, 100);
        assert!(batch.iter().all(|row| row.dateandtime == EPOCH_SECS + 1));
    }

    #[test]
    fn a_replay_finds_the_same_rows_across_steps() {
        let mut maker = RowMaker::new(9, 3, text_pool(9));
        let mut replay = Replay::of(&maker);
        let mut batch = Batch::default();
        let mut hashes = vec![];
        for (statements, rows, rate) in [(4, 100, ROWS_PER_SECOND), (0, 50, 7), (7, 5, 100)] {
            replay.made(statements, rows, rate);
            for _ in 0..statements {
                maker.fill(&mut batch, rows, rate);
                for row in batch.iter() {
                    hashes.push(row.hash(hashes.len() as u64 + 1));
                }
            }
        }
        let sum = |count: usize| hashes[..count].iter().fold(0u64, |sum, hash| sum.wrapping_add(*hash));
        for count in [0, 1, 99, 100, 101, 400, 401, 435] {
            assert_eq!(replay.hash_of_first(count as u64), Some(sum(count)), "{count}");
        }
        assert_eq!(replay.hash_of_first(436), None);
    }
}
