//! The data file stays within a stated factor of what lives in it, with far more data than memory and every row
//! overwritten again and again: checkpoints and cleaning follow what is written and what is dead (D11, decision 0006).

use trefoil::{Database, Durability, IndexOptions, Options};

const BUDGET_BYTES: u64 = 16 << 20;
const ROWS: u64 = 150_000;
const ROWS_PER_TRANSACTION: u64 = 100;
/// Written over what was loaded: some fifteen times the data.
const OVERWRITTEN_BYTES: u64 = 400 << 20;

/// The promise: three times what lives, and three times what is written between two checkpoints of a small database.
fn file_bytes_max(live_bytes: u64) -> u64 {
    3 * live_bytes + 3 * (32 << 20)
}

/// Scatters consecutive numbers over the key space.
fn scattered(i: u64) -> u64 {
    let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

#[test]
fn the_file_stays_within_a_factor_of_the_data_under_random_overwrites() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options { budget_bytes: BUDGET_BYTES, durability: Durability::Buffered, ..Options::default() };
    let db = Database::open(dir.path(), options).expect("opens");
    let index = db.create_index("random", IndexOptions::default()).expect("created");
    let mut value = [0u8; 300];
    let mut put = |from: u64, row: &dyn Fn(u64) -> u64| {
        let mut tx = db.begin().expect("begins");
        for i in from..from + ROWS_PER_TRANSACTION {
            // Does not compress.
            for (at, piece) in value.chunks_exact_mut(8).enumerate() {
                piece.copy_from_slice(&scattered(i * 64 + at as u64).to_le_bytes());
            }
            tx.put(&index, &row(i).to_be_bytes(), &value).expect("fits");
        }
        tx.commit().expect("commits");
    };
    for from in (0..ROWS).step_by(ROWS_PER_TRANSACTION as usize) {
        put(from, &|i| i);
    }
    db.checkpoint().expect("a checkpoint");
    let loaded = db.stats().space;
    assert!(loaded.live_bytes > 2 * BUDGET_BYTES, "the data did not outgrow the budget: {loaded:?}");
    let (mut next, mut largest) = (ROWS, 0);
    loop {
        put(next, &|i| scattered(i) % ROWS);
        next += ROWS_PER_TRANSACTION;
        let stats = db.stats();
        let space = stats.space;
        largest = largest.max(space.file_bytes);
        assert!(space.file_bytes <= file_bytes_max(space.live_bytes), "{next} rows: {space:?}, {:?}", stats.delays);
        if space.written_bytes > loaded.written_bytes + OVERWRITTEN_BYTES {
            break;
        }
    }
    let stats = db.stats();
    println!("at most {} MiB, {} rows, {:?}, {:?}", largest >> 20, next - ROWS, stats.space, stats.delays);
    assert!(stats.space.moved_bytes > 0, "{:?}", stats.space);
    db.close().expect("closes");
}
