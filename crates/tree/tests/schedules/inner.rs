//! Inner nodes that split, merge and shrink while a checkpoint walks by, and a power cut behind it [A6, A8, A9].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use index::{Direction, Index, ReadAt};
use vfs::sim::{Config, Handle, Simulation};

use super::{filled, in_thread, simulated, small};
use crate::common::{Numbers, Rig, Write, key};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What all commits make.
fn rows_of(rig: &Rig) -> Rows {
    let mut rows = Rows::new();
    for (key, value) in rig.commits.lock().iter().flat_map(|commit| &commit.writes) {
        match value {
            Some(value) => rows.insert(key.clone(), value.clone()),
            None => rows.remove(key),
        };
    }
    rows
}

/// The power goes: of the log, what was asked for is left, and what the manifest waited for.
fn power_cut(rig: Rig, what: &str) -> Rig {
    let durable = rig.log.asked.load(Ordering::SeqCst).max(rig.manifest.lock().skip.0);
    rig.commits.lock().retain(|commit| commit.ts.0 <= durable);
    rig.now.store(durable, Ordering::SeqCst);
    let expected = rows_of(&rig);
    let rig = rig.reopen(true);
    rig.log.asked.store(durable, Ordering::SeqCst);
    let found = rig.all(ReadAt::Newest, Direction::Forward);
    let found: Rows = found.into_iter().map(|(key, _, value)| (key, value)).collect();
    let lost = expected.iter().find(|(key, _)| !found.contains_key(*key));
    let revived = found.iter().find(|(key, _)| !expected.contains_key(*key));
    assert!(lost.is_none() && revived.is_none(), "{what}: lost {lost:?}, revived {revived:?}");
    assert_eq!(found, expected, "{what}");
    rig.verify();
    rig
}

/// Inner nodes and levels.
fn shape(rig: &Rig) -> (usize, u32) {
    (rig.tree.draw().lines().filter(|line| line.trim_start().starts_with("inner")).count(), rig.tree.stats().height)
}

fn insert_around(rig: &Rig, near: &[u8], numbers: &mut Numbers) {
    let size = 10 + numbers.below(60) as usize;
    let tag = numbers.below(1000);
    let row =
        |n: u64| ([&near[..near.len().min(16)], format!("/{tag:03}{n:04}").as_bytes()].concat(), vec![b'x'; size]);
    let rows: Vec<_> = (0..20 + numbers.below(150)).map(row).collect();
    for some in rows.chunks(10) {
        rig.commit(some.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect());
    }
}

/// Deletes all but some of the rows, a few in each commit, and lets maintenance unlink and merge.
fn delete(rig: &Rig, rows: &[Vec<u8>], numbers: &mut Numbers) {
    let many = numbers.below(rows.len() as u64 + 1) as usize;
    let one_stays_of = [usize::MAX, 7, 40][numbers.below(3) as usize];
    let gone = rows[..many].iter().enumerate().filter(|(i, _)| (i + 1) % one_stays_of != 0);
    let gone: Vec<Write> = gone.map(|(_, key)| (key.clone(), None)).collect();
    for some in gone.chunks(50) {
        rig.commit(some.to_vec());
    }
    rig.put("a", "moves the floor");
    rig.maintain_fully();
}

/// Some changes. `held`: a checkpoint is held, and what it writes is in flight.
fn change(rig: &Rig, numbers: &mut Numbers, held: bool) {
    for _ in 0..=numbers.below(4) {
        let rows: Vec<Vec<u8>> = rows_of(rig).into_keys().collect();
        let from = numbers.below(rows.len() as u64 + 1) as usize;
        match numbers.below(6) {
            0 | 1 => insert_around(rig, &rows.get(from).cloned().unwrap_or_else(|| key(0)), numbers),
            2 | 3 => delete(rig, &rows[from..], numbers),
            4 => {
                let some = rows[from..].iter().step_by(3).take(10);
                rig.commit(some.map(|key| (key.clone(), Some(b"again".to_vec()))).collect());
            }
            _ if !held && rig.cache.stats().pages > 0 => rig.evict_all(),
            _ => rig.maintain_fully(),
        }
    }
}

/// Where the walker is held.
const STOPS: [&str; 5] =
    ["tree.checkpoint_begun", "tree.before_compose", "tree.leaf_written", "tree.inner_written", "file.write"];

/// Six checkpoints with changes before each and while it is held, some with a power cut behind. Returns how often inner
/// nodes became fewer, and the tree lower, while one was held.
fn history(sim: &Handle, seed: u64) -> (u64, u64) {
    let mut numbers = Numbers(seed);
    let mut rig = Rig::new(small());
    let (mut merged, mut lower) = (0, 0);
    change(&rig, &mut numbers, false);
    for round in 0..6 {
        change(&rig, &mut numbers, false);
        let stop = STOPS[numbers.below(STOPS.len() as u64) as usize];
        let gate = sim.hold_nth(stop, numbers.below(12));
        let shared = Arc::new(rig);
        let checkpoint = in_thread(&shared, |rig| drop(rig.checkpoint()));
        // The walker may not come there so often.
        let reached = (0..200).any(|_| {
            vfs::thread::sleep(Duration::from_millis(1));
            gate.is_reached()
        });
        if !reached {
            gate.open();
        }
        let before = shape(&shared);
        change(&shared, &mut numbers, reached);
        let after = shape(&shared);
        merged += u64::from(reached && after.0 < before.0);
        lower += u64::from(reached && after.1 < before.1);
        gate.open();
        checkpoint.join().unwrap();
        rig = Arc::into_inner(shared).unwrap();
        if numbers.one_in(2) {
            rig = power_cut(rig, &format!("seed {seed}, round {round}, held at {stop}: {reached}"));
        }
    }
    (merged, lower)
}

/// `TREFOIL_SEEDS=from..to` says which seeds.
#[test]
fn a6_a8_a9_a_power_cut_behind_changing_inner_nodes() {
    let given = std::env::var("TREFOIL_SEEDS").ok();
    let (from, to) = given.as_deref().and_then(|seeds| seeds.split_once("..")).unwrap_or(("0", "200"));
    let seeds = from.parse::<u64>().unwrap()..to.parse().unwrap();
    let run = |seed| Simulation::new(seed, Config::default()).run(move |sim| history(sim, seed)).value;
    let (merged, lower) = seeds.map(run).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    if given.is_none() {
        assert!(
            merged > 50 && lower > 5,
            "beside walkers, inner nodes merged {merged} times, roots shrank {lower} times"
        );
    }
}

/// A checkpoint has the first inner node N in an image of few slots. Then N's last leaf splits into many; the rows of one
/// of them are deleted, and it is unlinked: N needs the log up to that. N is cut by force, and its right half, over the
/// EMPTY slot, gets an image at once; N itself needs none.
#[test]
fn a6_a_half_that_is_composed_anew_inherits_the_need_of_the_log() {
    simulated(|sim| {
        let rig = filled(small(), 1200);
        let low = |line: &str, what: &str| {
            line.trim_start().strip_prefix(what).map(|rest| rest.split(' ').next().unwrap().to_owned())
        };
        let second = rig.tree.draw().lines().filter_map(|line| low(line, "inner ")).nth(2).unwrap();
        let mine: Vec<_> = rig.keys().into_iter().filter(|key| **key < *second.as_bytes()).collect();
        assert!(mine.len() > 100, "{second}");
        let kept = &mine[mine.len() - 8..];
        rig.commit(mine[..mine.len() - 8].iter().map(|key| (key.clone(), None)).collect());
        rig.put("z", "moves the floor");
        rig.maintain_fully();
        rig.checkpoint();
        rig.put("z", "so that the root has something to write");
        let near = |row: usize, n: u64| [&kept[row][..], format!("/{n:03}").as_bytes()].concat();
        let gate = sim.hold("tree.before_compose");
        let rig = Arc::new(rig);
        let checkpoint = in_thread(&rig, |rig| drop(rig.checkpoint()));
        gate.wait_reached();
        let inner_nodes = shape(&rig).0;
        for n in 0..27 {
            rig.put(near(4, n), [b'x'; 90]);
        }
        assert_eq!(shape(&rig).0, inner_nodes);
        // Exactly the last leaf of N.
        let lows: Vec<_> = rig.tree.draw().lines().filter_map(|line| low(line, "leaf ")).collect();
        let last = lows.iter().rfind(|low| **low < second).unwrap().as_bytes();
        let gone = rig.keys().into_iter().filter(|key| **key >= *last && **key < *second.as_bytes());
        let gone: Vec<Write> = gone.map(|key| (key, None)).collect();
        let deleted = rig.commit(gone);
        rig.put(near(0, 0), "moves the floor");
        rig.maintain_fully();
        for n in 1..60 {
            rig.put(near(0, n), [b'x'; 90]);
            if shape(&rig).0 > inner_nodes {
                break;
            }
        }
        assert_eq!(shape(&rig).0, inner_nodes + 1, "{}", rig.tree.draw());
        gate.open();
        checkpoint.join().unwrap();
        let asked = rig.log.asked.load(Ordering::SeqCst);
        assert!(asked >= deleted.0, "an image lacks rows that {deleted} deleted; the log was asked for {asked}");
        power_cut(Arc::into_inner(rig).unwrap(), "forced cut");
    });
}
