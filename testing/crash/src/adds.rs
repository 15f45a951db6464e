//! Counters: each transaction adds to some, and says in a row of its own what it added. After a kill each counter is the sum of what the rows say, to the
//! last delta: none is lost, none counts twice; and the rows acknowledged are there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trefoil::{Database, Durability, Error, Index, IndexOptions, Locking, Structure, Transaction};
use vfs::random::Rng;

use crate::child::report;

const COUNTERS: &str = "counters";
/// What was added, by a number of the transaction.
const ADDED: &str = "added";
/// Some hot, most of them not.
const NAMES: u64 = 3000;

fn index(db: &Database, name: &str, options: IndexOptions) -> Index {
    let index = match db.create_index(name, options) {
        Err(Error::AlreadyExists { .. }) => db.index(name),
        made => made,
    };
    index.expect("there is one")
}

/// Both, made if they are not there. There are no counters in an index of runs.
pub fn indexes(db: &Database, options: IndexOptions) -> (Index, Index) {
    let structure = match options.structure {
        Structure::Lsm => Structure::Betree,
        other => other,
    };
    let counters = IndexOptions { structure, counters: true, node_bytes: 4096, ..IndexOptions::default() };
    (index(db, ADDED, options), index(db, COUNTERS, counters))
}

/// Adds until the process is killed.
pub fn work(db: &Database, (added, counters): &(Index, Index), numbers: &mut Rng) {
    loop {
        let id = numbers.u64();
        let mut tx = db.begin().expect("open");
        let deltas = match numbers.below(8) {
            0 => set(&mut tx, counters, numbers),
            _ => Ok(add(&mut tx, counters, numbers)),
        };
        match deltas {
            Ok(deltas) => {
                tx.put(added, &id.to_be_bytes(), &deltas).expect("put");
                let durability = if numbers.below(2) == 0 { Durability::Sync } else { Durability::Write };
                tx.commit_with(durability).expect("commits");
                report(format_args!("added {id}"));
            }
            Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        std::thread::sleep(Duration::from_micros(numbers.below(2000)));
    }
}

/// Adds to a few, now and then to so many that they become a run; to one of them twice.
fn add(tx: &mut Transaction, counters: &Index, numbers: &mut Rng) -> Vec<u8> {
    let count = if numbers.below(30) == 0 { 900 } else { 1 + numbers.below(6) };
    let mut deltas = Vec::new();
    for _ in 0..count {
        let name = if numbers.below(3) == 0 { numbers.below(5) } else { numbers.below(NAMES) };
        for _ in 0..1 + numbers.below(2) {
            let delta = numbers.below(2001) as i64 - 1000;
            tx.add(counters, &name.to_be_bytes(), delta).expect("added");
            push(&mut deltas, name, delta);
        }
    }
    deltas
}

/// Sets one, or deletes it, behind all who add to it.
fn set(tx: &mut Transaction, counters: &Index, numbers: &mut Rng) -> Result<Vec<u8>, Error> {
    let name = numbers.below(5);
    let before = tx.get_locked(counters, &name.to_be_bytes(), Locking::EXCLUSIVE)?;
    let before = before.map_or(0, |value| number(&value));
    let mut deltas = Vec::new();
    if numbers.below(2) == 0 {
        tx.delete(counters, &name.to_be_bytes())?;
        push(&mut deltas, name, -before);
    } else {
        let to = numbers.below(1000) as i64;
        tx.put(counters, &name.to_be_bytes(), &to.to_le_bytes())?;
        push(&mut deltas, name, to - before);
    }
    Ok(deltas)
}

fn push(deltas: &mut Vec<u8>, name: u64, delta: i64) {
    deltas.extend(name.to_be_bytes());
    deltas.extend(delta.to_le_bytes());
}

fn number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("eight bytes"))
}

/// What the rows say was added to each counter.
fn said(rows: &[(Vec<u8>, Vec<u8>)]) -> BTreeMap<u64, i64> {
    let mut sums = BTreeMap::new();
    for delta in rows.iter().flat_map(|(_, deltas)| deltas.chunks(16)) {
        *sums.entry(name(&delta[..8])).or_default() += number(&delta[8..]);
    }
    sums
}

fn name(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("eight bytes"))
}

/// The counters are what the rows say, and the rows `acknowledged` are there.
pub fn check(db: &Database, acknowledged: &BTreeSet<u64>) -> Result<(), String> {
    let (added, counters) = match (db.index(ADDED), db.index(COUNTERS)) {
        (Ok(added), Ok(counters)) => (added, counters),
        (Err(Error::NotFound { .. }), _) | (_, Err(Error::NotFound { .. })) if acknowledged.is_empty() => return Ok(()),
        (Err(error), _) | (_, Err(error)) => return Err(error.to_string()),
    };
    let tx = db.begin().map_err(|e| e.to_string())?;
    let all = |index| tx.range(index, ..).and_then(trefoil::Cursor::collect).map_err(|e| e.to_string());
    let (rows, there) = (all(&added)?, all(&counters)?);
    let mut down = tx.range_back(&counters, ..).and_then(trefoil::Cursor::collect).map_err(|e| e.to_string())?;
    down.reverse();
    if there != down {
        return Err(format!("{COUNTERS}: {} upwards, {} downwards, or others", there.len(), down.len()));
    }
    let ids: BTreeSet<u64> = rows.iter().map(|(key, _)| name(key)).collect();
    if let Some(lost) = acknowledged.difference(&ids).next() {
        return Err(format!("what {lost} added was acknowledged and is lost"));
    }
    let mut sums = said(&rows);
    for (key, value) in &there {
        let (found, said) = (number(value), sums.remove(&name(key)).unwrap_or(0));
        if found != said {
            return Err(format!("counter {} is {found}, the {} rows say {said}", name(key), rows.len()));
        }
    }
    // One that was deleted is not there, and counts as 0.
    match sums.into_iter().find(|(_, said)| *said != 0) {
        Some((name, said)) => Err(format!("counter {name} is not there, the rows say {said}")),
        None => Ok(()),
    }
}
