//! The adviser against what it advises: what it says of the other structure, and what that then costs under the same stream.
//!
//! `TREFOIL_ADVISE_SCALE=8` makes memory, index and stream eight times as large.

#![allow(clippy::disallowed_methods, reason = "the scale comes from the environment")]

use trefoil::{Advice, Database, Durability, IndexOptions, Options, Structure};

/// A bijection of numbers that scatters them, twice for sixteen bytes.
fn scattered(i: u64) -> u64 {
    let i = (i ^ (i >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let i = (i ^ (i >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    i ^ (i >> 32)
}

fn sixteen(first: u64, second: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..].copy_from_slice(&second.to_be_bytes());
    key
}

/// Keys and values of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    /// As a secondary index: small entries, changed anywhere.
    Random,
    /// As a primary index: rows of a hundred bytes, appended.
    Sequential,
}

impl Shape {
    fn rows(self) -> u64 {
        match self {
            Self::Random => 700_000,
            Self::Sequential => 250_000,
        }
    }

    /// Keys that are looked up beside so many changes.
    fn reads(self, changes: u64) -> u64 {
        match self {
            Self::Random => changes / 5,
            Self::Sequential => changes / 25,
        }
    }

    fn key(self, row: u64) -> [u8; 16] {
        match self {
            Self::Random => sixteen(scattered(row), scattered(scattered(row))),
            Self::Sequential => sixteen(row, 7),
        }
    }

    fn value(self, n: u64) -> Vec<u8> {
        let words = match self {
            Self::Random => 1,
            Self::Sequential => 10,
        };
        (0..words).flat_map(|i| scattered(n * 16 + i).to_be_bytes()).collect()
    }
}

/// What the adviser says at the end of a stream of so many changes, with the space that it measured on average.
fn observe(shape: Shape, structure: Structure, changes: u64) -> Advice {
    let scale: u64 = std::env::var("TREFOIL_ADVISE_SCALE").map_or(1, |scale| scale.parse().expect("a number"));
    let (rows, changes) = (shape.rows() * scale, changes * scale);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options { budget_bytes: (8 << 20) * scale, durability: Durability::Buffered, ..Options::default() };
    let db = Database::open(dir.path(), options).expect("opens");
    let index = db.create_index("i", IndexOptions { structure, ..IndexOptions::default() }).expect("created");
    let mut n = 0;
    let mut put = |keys: &[[u8; 16]]| {
        for some in keys.chunks(20) {
            let mut tx = db.begin().expect("begins");
            for key in some {
                n += 1;
                tx.put(&index, key, &shape.value(n)).expect("fits");
            }
            tx.commit().expect("commits");
        }
    };
    let mut keys: Vec<_> = (0..rows).map(|row| shape.key(row)).collect();
    keys.sort_unstable();
    put(&keys);
    drop(keys);
    let rounds = 24;
    let reads = shape.reads(changes) / rounds;
    let (mut before, mut space, mut last) = (db.stats(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // The first quarter is to forget the load.
        if round == rounds / 4 {
            db.checkpoint().expect("writes");
            before = db.stats();
        }
        let of_round = round * changes / rounds..(round + 1) * changes / rounds;
        let key = |i| match shape {
            Shape::Random => shape.key(scattered(i ^ (1 << 40)) % rows),
            Shape::Sequential => shape.key(rows + i),
        };
        put(&of_round.map(key).collect::<Vec<_>>());
        for i in 0..reads {
            let key = shape.key(scattered((round * reads + i) ^ (1 << 50)) % rows);
            assert!(db.begin().expect("begins").get(&index, &key).expect("readable").is_some());
        }
        if round + 1 == rounds {
            // What is written later was counted before the window, too.
            db.checkpoint().expect("writes");
        }
        last = db.advise_since(&before).expect("readable");
        if round >= rounds / 4 {
            space.push(last[0].measured.space.expect("something is on disk"));
        }
    }
    assert_eq!(last.len(), 1, "one index");
    let mut advice = last.remove(0);
    advice.measured.space = Some(space.iter().sum::<f64>() / space.len() as f64);
    assert!(advice.notes.is_empty(), "{advice:?}");
    advice
}

/// Checks what `from` says of the structure of `to`.
fn check(shape: Shape, from: &Advice, to: &Advice) -> Vec<String> {
    let (says, is) = (&from.predicted, &to.measured);
    let all = [("write", says.write, is.write), ("read", says.read, is.read), ("space", says.space, is.space)];
    let mut wrong = Vec::new();
    for (what, says, is) in all {
        let (says, is) = (says.expect("predicted"), is.expect("measured"));
        let line = format!(
            "{shape:?} {:?} -> {:?}, {what}: predicted {says:.3}, measured {is:.3}, {:+.1} %",
            from.structure,
            to.structure,
            (says / is - 1.0) * 100.0
        );
        println!("{line}");
        if (says / is - 1.0).abs() > Advice::ERROR {
            wrong.push(line);
        }
    }
    wrong
}

fn both_ways(shape: Shape, changes_btree: u64, changes_betree: u64) -> (Advice, Advice) {
    let btree = observe(shape, Structure::Btree, changes_btree);
    let betree = observe(shape, Structure::Betree, changes_betree);
    println!("{btree:?}\n{betree:?}");
    let wrong = [check(shape, &btree, &betree), check(shape, &betree, &btree)].concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
    (btree, betree)
}

/// A Bε-tree gets more of the same stream, so that its buffers are filled and emptied several times.
#[test]
fn small_entries_at_random_cost_what_was_predicted() {
    let (btree, betree) = both_ways(Shape::Random, 32_000, 1_000_000);
    assert!(btree.verdict().starts_with("betree: writes / "), "{}", btree.verdict());
    assert!(betree.verdict().starts_with("btree: writes x "), "{}", betree.verdict());
}

#[test]
fn rows_in_key_order_cost_what_was_predicted() {
    let (btree, betree) = both_ways(Shape::Sequential, 150_000, 150_000);
    assert_eq!((btree.verdict(), betree.verdict()), ("nothing to gain".to_owned(), "nothing to gain".to_owned()));
}
