//! A plain index that each transaction empties and fills anew, all of it at once: after a kill it holds one round, whole, and none older than was acknowledged.

use std::time::Duration;

use trefoil::{Database, Durability, Error, IndexOptions};
use vfs::random::Rng;

use crate::child::report;

const NAME: &str = "rounds";

/// Fills it until the process is killed.
pub fn work(db: &Database, options: IndexOptions, numbers: &mut Rng) {
    let index = match db.create_index(NAME, options) {
        Err(Error::AlreadyExists { .. }) => db.index(NAME),
        made => made,
    };
    let index = index.expect("there is one");
    loop {
        let mut tx = db.begin().expect("open");
        let last = tx.range(&index, ..).and_then(|mut all| Ok(all.next()?.map(|(_, value)| value.to_vec())));
        let round = last.expect("readable").map_or(0, |value| round_of(&value).0 + 1);
        tx.delete_range(&index, ..).expect("nobody else is there");
        let count = 1 + if numbers.below(8) == 0 { numbers.below(2000) } else { numbers.below(60) };
        let value = format!("{round} {count}");
        for _ in 0..count {
            // Some twice, and most of them where the round before had some.
            tx.put(&index, &numbers.below(4000).to_be_bytes(), value.as_bytes()).expect("put");
        }
        let there = tx.range(&index, ..).and_then(trefoil::Cursor::collect).expect("readable").len();
        let value = format!("{round} {there}");
        let all = tx.range(&index, ..).and_then(trefoil::Cursor::collect).expect("readable");
        for (key, _) in &all {
            tx.put(&index, key, value.as_bytes()).expect("put");
        }
        let durability = if numbers.below(2) == 0 { Durability::Sync } else { Durability::Write };
        tx.commit_with(durability).expect("commits");
        report(format_args!("round {round}"));
        std::thread::sleep(Duration::from_micros(numbers.below(3000)));
    }
}

/// Its number, and how many entries it has.
fn round_of(value: &[u8]) -> (u64, usize) {
    let text = std::str::from_utf8(value).expect("text");
    let (round, count) = text.split_once(' ').expect("two numbers");
    (round.parse().expect("a number"), count.parse().expect("a number"))
}

/// It holds one round.
pub fn check(db: &Database, acknowledged: Option<u64>) -> Result<(), String> {
    let index = match db.index(NAME) {
        Err(Error::NotFound { .. }) if acknowledged.is_none() => return Ok(()),
        found => found.map_err(|e| e.to_string())?,
    };
    let tx = db.begin().map_err(|e| e.to_string())?;
    let up = tx.range(&index, ..).and_then(trefoil::Cursor::collect).map_err(|e| e.to_string())?;
    let mut down = tx.range_back(&index, ..).and_then(trefoil::Cursor::collect).map_err(|e| e.to_string())?;
    down.reverse();
    if up != down {
        return Err(format!("{NAME}: {} entries upwards, {} downwards", up.len(), down.len()));
    }
    let Some((_, first)) = up.first() else {
        return acknowledged.map_or(Ok(()), |last| Err(format!("{NAME} is empty, round {last} was acknowledged")));
    };
    let (round, count) = round_of(first);
    if let Some((key, other)) = up.iter().find(|(_, value)| value != first) {
        return Err(format!("{NAME} has round {round}, and at {key:?} {:?}", round_of(other)));
    }
    if up.len() != count || acknowledged.is_some_and(|last| round < last) {
        return Err(format!(
            "{NAME} has {} of {count} entries of round {round}, {acknowledged:?} was acknowledged",
            up.len()
        ));
    }
    Ok(())
}
