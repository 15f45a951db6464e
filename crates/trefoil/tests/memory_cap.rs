//! The memory cap as the operating system sees it (decision D10): the process's highest resident memory, less what it
//! had before the database was opened, is at most the budget and the larger of a twentieth of it and 32 MiB.
//!
//! A program of its own, which starts itself for each structure: resident memory is the whole process's.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "asks the operating system what the engine cannot know")]

use trefoil::{Database, Durability, IndexOptions, Options, Structure};

const BUDGET_BYTES: u64 = 64 << 20;
const ROWS: u64 = 800_000;
const ROWS_PER_TRANSACTION: u64 = 100;
const VALUE_BYTES: usize = 300;

/// A line of `/proc/self/status`, in bytes.
fn status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux shows a process's status");
    let line = status.lines().find(|line| line.starts_with(name)).expect("a line of the status");
    line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") << 10
}

/// Scatters consecutive numbers over the key space (a bijection: an odd factor, then a shift folded in).
fn scattered(i: u64) -> [u8; 8] {
    let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).to_be_bytes()
}

/// Names the structure to a process of its own.
const STRUCTURE: &str = "TREFOIL_MEMORY_CAP_STRUCTURE";

/// Guard, of runs: blocks lie in frames of the cache (`DataBlock::parse`), memtables in an arena of such (`Memtable::new`).
#[test]
fn resident_memory_keeps_to_the_budget_when_data_is_several_times_as_large() {
    let structures = [("betree", Structure::Betree), ("lsm", Structure::Lsm)];
    if let Ok(asked) = std::env::var(STRUCTURE) {
        let (_, structure) = structures.iter().find(|(name, _)| *name == asked).expect("one of them");
        return fill(*structure);
    }
    let name = "resident_memory_keeps_to_the_budget_when_data_is_several_times_as_large";
    for (structure, _) in structures {
        let program = std::env::current_exe().expect("this one");
        let mut one = std::process::Command::new(program);
        let output = one.args(["--exact", name, "--nocapture"]).env(STRUCTURE, structure).output().expect("starts");
        let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        println!("{told}");
        assert!(output.status.success() && told.contains("grew by"), "{structure}: {told}");
    }
}

fn fill(structure: Structure) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let before = status_bytes("VmRSS:");
    let options = Options { budget_bytes: BUDGET_BYTES, durability: Durability::Buffered, ..Options::default() };
    let db = Database::open(dir.path(), options).expect("opens");
    let random = db.create_index("random", IndexOptions { structure, ..IndexOptions::default() }).expect("created");
    let ordered = db.create_index("ordered", IndexOptions { structure, ..IndexOptions::default() }).expect("created");
    let mut value = [0u8; VALUE_BYTES];
    for first in (0..ROWS).step_by(ROWS_PER_TRANSACTION as usize) {
        let mut tx = db.begin().expect("begins");
        for i in first..first + ROWS_PER_TRANSACTION {
            // Half of it does not compress.
            for (at, piece) in value[..VALUE_BYTES / 2].chunks_exact_mut(8).enumerate() {
                piece.copy_from_slice(&scattered(i * 64 + at as u64));
            }
            tx.put(&ordered, &i.to_be_bytes(), &value).expect("fits");
            tx.put(&random, &scattered(i), &value[..60]).expect("fits");
        }
        tx.commit().expect("commits");
    }
    let tx = db.begin().expect("begins");
    for i in (0..ROWS).step_by(40) {
        assert!(tx.get(&random, &scattered(i)).expect("readable").is_some(), "row {i}");
    }
    drop(tx);
    let (peak, stats) = (status_bytes("VmHWM:"), db.stats());
    assert!(stats.space.live_bytes > 2 * BUDGET_BYTES, "the data did not outgrow the budget: {stats:?}");
    // Besides the frames there is what is held from open to close.
    // A leaf on disk has a handle, a fence, an image and a block in memory.
    let leaves = if structure == Structure::Lsm { 0 } else { random.stats().leaves + ordered.stats().leaves };
    for (class, least) in [("log", 1 << 20), ("work", 1 << 20), ("inner", leaves * 360)] {
        let charged = stats.memory.iter().find(|(name, _)| *name == class).map_or(0, |(_, bytes)| *bytes);
        assert!(charged >= least, "{class}: {charged} bytes are charged");
    }
    let limit = BUDGET_BYTES + (BUDGET_BYTES / 20).max(32 << 20);
    let grown = peak - before;
    println!("{structure:?} grew by {} MiB of {} MiB", grown >> 20, limit >> 20);
    assert!(grown <= limit, "resident memory grew by {grown} bytes, allowed {limit}: {stats:?}");
    db.close().expect("closes");
}
