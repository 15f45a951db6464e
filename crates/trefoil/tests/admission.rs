//! Commits do not run ahead of the background: with far more data than memory, what is attached and not drained stays
//! bounded, and the delays that keep it so are short and have a name (decision D11).

use std::time::Duration;

use trefoil::{Database, Durability, IndexOptions, Options};
use vfs::time::Instant;

const BUDGET_BYTES: u64 = 16 << 20;
/// What one commit may add once it has begun.
const BATCH_BYTES_MAX: u64 = 128 << 10;
const ROWS_PER_TRANSACTION: u64 = 400;

fn scattered(i: u64) -> [u8; 8] {
    let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).to_be_bytes()
}

#[test]
fn runs_stay_bounded_under_a_load_that_touches_cold_leaves() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options { budget_bytes: BUDGET_BYTES, durability: Durability::Buffered, ..Options::default() };
    let db = Database::open(dir.path(), options).expect("opens");
    let index = db.create_index("random", IndexOptions::default()).expect("created");
    let (mut worst_runs, mut worst_memory, mut longest) = (0, 0, Duration::ZERO);
    let mut next = 0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(8) {
        let mut tx = db.begin().expect("begins");
        for i in next..next + ROWS_PER_TRANSACTION {
            tx.put(&index, &scattered(i), &[i as u8; 200]).expect("fits");
        }
        next += ROWS_PER_TRANSACTION;
        let asked = Instant::now();
        tx.commit().expect("commits");
        longest = longest.max(asked.elapsed());
        let stats = db.stats();
        worst_runs = worst_runs.max(index.stats().runs);
        let memory = stats.memory.iter().find(|(class, _)| *class == "runs").map_or(0, |(_, bytes)| *bytes);
        worst_memory = worst_memory.max(memory);
    }
    let stats = db.stats();
    println!("{next} rows, {worst_runs} runs, {worst_memory} B of runs, longest {longest:?}, {:?}", stats.delays);
    // How many there are at once depends on the cores that the background gets; that writers waited is asked next.
    assert!(worst_runs > 3, "the load made no runs: {stats:?}");
    let delay = stats.delays.iter().find(|delay| delay.reason == "runs").expect("a reason");
    assert!(delay.count > 0, "{:?}", stats.delays);
    assert!(longest < Duration::from_secs(5), "a commit took {longest:?}");
    assert!(
        worst_memory > 0 && worst_memory <= BUDGET_BYTES / 8 + BATCH_BYTES_MAX,
        "{worst_memory} bytes of runs in memory; {:?}",
        stats.delays
    );
    db.close().expect("closes");
}
