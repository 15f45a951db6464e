//! The adviser against what it advises: what it says of the other structure, and what that then costs under the same stream.
//!
//! `TREFOIL_ADVISE_SCALE=8` makes memory, index and stream eight times as large.

#![allow(clippy::disallowed_methods, reason = "the scale comes from the environment")]

use trefoil::{Advice, Database, Durability, Index, IndexOptions, Options, Structure};

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

/// One of the indexes of a database, and its part of the stream.
struct Part {
    shape: Shape,
    index: Index,
    rows: u64,
    written: u64,
}

impl Part {
    fn new(db: &Database, name: &str, structure: Structure, shape: Shape) -> Self {
        let index = db.create_index(name, IndexOptions { structure, ..IndexOptions::default() }).expect("created");
        let mut part = Self { shape, index, rows: 0, written: 0 };
        let mut keys: Vec<_> = (0..shape.rows()).map(|row| shape.key(row)).collect();
        keys.sort_unstable();
        keys.chunks(20).for_each(|some| part.put(db, some));
        part.rows = shape.rows();
        part
    }

    fn put(&mut self, db: &Database, keys: &[[u8; 16]]) {
        let mut tx = db.begin().expect("begins");
        for key in keys {
            self.written += 1;
            tx.put(&self.index, key, &self.shape.value(self.written)).expect("fits");
        }
        tx.commit().expect("commits");
    }

    /// Twenty changes, or two of a sequential one; of those one in five is looked up, or one in three.
    fn step(&mut self, db: &Database, n: u64) {
        let (changes, reads) = match self.shape {
            Shape::Random => (20, 4),
            Shape::Sequential => (2, 1),
        };
        let key = |i| match self.shape {
            Shape::Random => self.shape.key(scattered((n * changes + i) ^ (1 << 40)) % self.rows),
            Shape::Sequential => self.shape.key(self.rows + i),
        };
        self.put(db, &(0..changes).map(key).collect::<Vec<_>>());
        if self.shape == Shape::Sequential {
            self.rows += changes;
        }
        for i in 0..reads {
            let key = self.shape.key(scattered((n * reads + i) ^ (1 << 50)) % self.rows);
            assert!(db.begin().expect("begins").get(&self.index, &key).expect("readable").is_some());
        }
    }

    /// As a user does it: a copy beside the one that is there, which is dropped behind it.
    fn convert(self, db: &Database, from: &str, to: &str, structure: Structure) -> Self {
        let index = db.create_index(to, IndexOptions { structure, ..IndexOptions::default() }).expect("created");
        {
            let snapshot = db.snapshot().expect("open");
            let mut all = snapshot.range(&self.index, ..).expect("readable");
            let mut is_through = false;
            while !is_through {
                let mut tx = db.begin().expect("begins");
                for _ in 0..500 {
                    let Some((key, value)) = all.next().expect("readable") else {
                        is_through = true;
                        break;
                    };
                    tx.put(&index, key, value).expect("fits");
                }
                tx.commit().expect("commits");
            }
        }
        db.drop_index(from).expect("drops");
        Self { index, ..self }
    }
}

/// So many steps of all parts in turn, what the adviser says at the end of each index, with the space that it measured on average. The first
/// quarter is to forget what was before.
fn stream(db: &Database, parts: &mut [Part], steps: u64) -> Vec<Advice> {
    let rounds = 24;
    let (mut before, mut space, mut last) = (db.stats(), Vec::new(), Vec::new());
    for round in 0..rounds {
        if round == rounds / 4 {
            db.checkpoint().expect("writes");
            before = db.stats();
        }
        for n in round * steps / rounds..(round + 1) * steps / rounds {
            parts.iter_mut().for_each(|part| part.step(db, n));
        }
        if round + 1 == rounds {
            db.checkpoint().expect("writes");
        }
        last = db.advise_since(&before).expect("readable");
        if round >= rounds / 4 {
            space.push(last.iter().map(|advice| advice.measured.space.expect("on disk")).collect::<Vec<_>>());
        }
    }
    for (i, advice) in last.iter_mut().enumerate() {
        advice.measured.space = Some(space.iter().map(|of| of[i]).sum::<f64>() / space.len() as f64);
    }
    last
}

fn named<'a>(all: &'a [Advice], name: &str) -> &'a Advice {
    all.iter().find(|advice| advice.index == name).expect("it is asked about all")
}

/// Two indexes of one database, a B-tree that is changed at random and a Bε-tree that grows at its end; the adviser says of the first
/// what it would cost as a Bε-tree; it is copied into one, the stream goes on, and that is what it costs.
#[test]
fn one_of_two_indexes_costs_what_was_predicted_once_it_is_converted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options { budget_bytes: 8 << 20, durability: Durability::Buffered, ..Options::default() };
    let db = Database::open(dir.path(), options).expect("opens");
    let entries = Part::new(&db, "entries", Structure::Btree, Shape::Random);
    let mut parts = vec![entries, Part::new(&db, "rows", Structure::Betree, Shape::Sequential)];
    let before = stream(&db, &mut parts, 3_000);
    let entries = parts.remove(0).convert(&db, "entries", "entries2", Structure::Betree);
    parts.insert(0, entries);
    let after = stream(&db, &mut parts, 50_000);
    println!("{before:?}\n{after:?}");
    let (from, to) = (named(&before, "entries"), named(&after, "entries2"));
    assert_eq!((before.len(), after.len()), (2, 2));
    assert_eq!((from.structure, from.other, to.structure), (Structure::Btree, Structure::Betree, Structure::Betree));
    assert!(from.notes.is_empty() && to.notes.is_empty(), "{from:?} {to:?}");
    let there = check(Shape::Random, from, to);
    // What it says of the way back is what it was.
    let back = check(Shape::Random, to, from);
    assert!(there.is_empty() && back.is_empty(), "{there:#?} {back:#?}");
    // The other one stays as it was, and its reads and its space do.
    let (was, is) = (&named(&before, "rows").measured, &named(&after, "rows").measured);
    println!("rows: {was:?} {is:?}");
    for (was, is) in [(was.read, is.read), (was.space, is.space)] {
        let (was, is) = (was.expect("measured"), is.expect("measured"));
        assert!((is / was - 1.0).abs() < Advice::ERROR, "{was} {is}");
    }
}
