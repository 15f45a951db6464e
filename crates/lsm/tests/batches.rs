//! Batches of keys that have to go to the disk: what is read for them, and that they are answered as if they were read one by one.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test panics on what it does not expect, and breaks files behind the engine's back"
)]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::support::{blocks, checkpoint, env_of, env_on, evict, flush, key, put};
use base::{CommitTs, GcView};
use index::conformance::watch::{Watch, Watched};
use index::{Batch, Expiry, Index, IndexEnv, Op, ReadAt, Reservation};
use store::{BlockRef, Class, Compression};
use trefoil_lsm::Lsm;
use vfs::random::Rng;

const VALUE: [u8; 40] = [7; 40];

/// An index of one run, opened anew, of which nothing but its index blocks is in memory.
fn opened(dir: &Path, rows: u32, budget_bytes: u64) -> (IndexEnv, Arc<Lsm>, Arc<Watch>) {
    let env = env_of(dir, 1024, 64 << 20, None);
    let index = Lsm::open(env.clone(), None).unwrap();
    put(&index, 16, 0..rows, |_| VALUE.to_vec());
    flush(&index);
    let (state, saved) = checkpoint(&env, &index);
    drop((index, env));
    let watch = Arc::new(Watch::default());
    let vfs = Arc::new(Watched::new(Arc::new(vfs::RealVfs), watch.clone()));
    let env = env_on(vfs, dir, 1024, budget_bytes, Some(&saved));
    let index = Lsm::open(env.clone(), Some(&state)).unwrap();
    let absent: Vec<Vec<u8>> = (0..rows).step_by(40).map(|n| [&key(n)[..], &[0]].concat()).collect();
    let absent: Vec<&[u8]> = absent.iter().map(Vec::as_slice).collect();
    index.get_many(ReadAt::Newest, &absent, &mut |_, _, _| panic!("nobody has it")).unwrap();
    let stats = index.stats();
    assert!(stats.loads * 20 < stats.leaves, "filters spare them: {} of {}", stats.loads, stats.leaves);
    evict_data(&env, &index);
    (env, index, watch)
}

/// Data blocks leave with their index blocks; those come back.
fn evict_data(env: &IndexEnv, index: &Lsm) {
    let loads = index.stats().loads;
    if loads > 0 {
        evict(env);
        index.split_keys(1000).unwrap();
    }
}

/// What a batch took: data blocks, reads of them, reads of the file.
fn cost(index: &Lsm, watch: &Watch, rows: &[u32]) -> (u64, u64, u64) {
    let (before, reads) = (index.stats(), watch.reads());
    assert_eq!(get(index, ReadAt::Newest, rows).unwrap().len(), rows.len());
    let stats = index.stats();
    let loads = stats.loads - before.loads;
    assert_eq!(stats.traffic.since(&before.traffic).point_blocks, loads);
    (loads, loads - (stats.read_ahead - before.read_ahead), watch.reads() - reads)
}

type Found = Vec<(usize, CommitTs, Vec<u8>)>;

/// What a batch finds; what it found before a fault, and that.
fn get(index: &Lsm, at: ReadAt, rows: &[u32]) -> Result<Found, (Found, String)> {
    let keys: Vec<_> = rows.iter().map(|n| key(*n)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
    let mut found = Vec::new();
    match index.get_many(at, &keys, &mut |i, ts, value| found.push((i, ts, value.to_vec()))) {
        Ok(()) => Ok(found),
        Err(fault) => Err((found, fault.to_string())),
    }
}

/// The same of keys that are read one by one, up to a fault.
fn get_each(index: &Lsm, at: ReadAt, rows: &[u32]) -> Result<Found, (Found, String)> {
    let mut all = Vec::new();
    for (i, n) in rows.iter().enumerate() {
        match get(index, at, &[*n]) {
            Ok(found) => all.extend(found.into_iter().map(|(_, ts, value)| (i, ts, value))),
            Err((_, fault)) => return Err((all, fault)),
        }
    }
    Ok(all)
}

/// Guards: what is wanted is read ahead (`Blocks::read`); nothing that is not wanted is.
#[test]
fn a_batch_reads_what_it_wants_once_and_neighbours_in_one_read() {
    const ROWS: u32 = 40_000;
    let dir = tempfile::tempdir().unwrap();
    let (_env, index, watch) = opened(dir.path(), ROWS, 256 << 20);
    let in_block = u64::from(ROWS) / index.stats().leaves;
    let few: Vec<u32> = (1000..1200).collect();
    let (loads, reads, of_file) = cost(&index, &watch, &few);
    eprintln!("{in_block} rows a block; 200 neighbours: {loads} blocks in {reads} reads");
    assert!(loads <= 200 / in_block + 2, "{loads} blocks");
    assert_eq!((reads, of_file), (1, 1), "one behind the other");
    assert_eq!(cost(&index, &watch, &few), (0, 0, 0), "from memory");
    // Each third, and two places far from each other.
    let spread: Vec<u32> = (5000..5300).step_by(3).chain((9000..9300).step_by(3)).collect();
    let (loads, reads, of_file) = cost(&index, &watch, &spread);
    assert!(loads <= 2 * (300 / in_block + 2), "{loads} blocks");
    assert_eq!((reads, of_file), (2, 2), "two places");
    // What lies between is not wanted.
    let far: Vec<u32> = (20_000..ROWS).step_by(500).collect();
    let (loads, reads, _) = cost(&index, &watch, &far);
    assert_eq!((loads, reads), (far.len() as u64, far.len() as u64));
    let cold = index.stats().traffic.cold_reads;
    assert!(cold >= (few.len() + spread.len() + far.len()) as u64, "{cold}");
}

/// All blocks of a run, over the ends of partitions, where keys are that begin the next one; at last by keys of which each begins a block.
/// Guards: a block that begins with its key is known to be wanted (`Spot::wants`); a block that several keys want is wanted once.
#[test]
fn a_batch_of_everything_reads_each_block_once() {
    let dir = tempfile::tempdir().unwrap();
    let (env, index, watch) = opened(dir.path(), 30_000, 256 << 20);
    for step in [1, 2, 20] {
        evict_data(&env, &index);
        let (loads, reads, _) = cost(&index, &watch, &(0..30_000).step_by(step).collect::<Vec<_>>());
        let leaves = index.stats().leaves;
        eprintln!("each {step}. row: {loads} of {leaves} blocks in {reads} reads");
        assert_eq!(loads, leaves);
        assert!(reads * 8 < loads, "{reads} reads of {loads} blocks");
    }
}

/// Guard: what a batch has opened it keeps until its keys are through it (`Blocks::opened`).
#[test]
fn a_block_is_read_once_though_memory_has_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let (env, index, watch) = opened(dir.path(), 20_000, 64 << 20);
    let _pressure = env.cache.budget().charge(Class::Frames, env.cache.budget().limit());
    let rows: Vec<u32> = (3000..3200).collect();
    let (loads, reads, _) = cost(&index, &watch, &rows);
    assert!(loads < 20 && reads < 4, "{loads} blocks in {reads} reads");
    let (again, ..) = cost(&index, &watch, &rows);
    assert_eq!(again, loads, "nothing stayed");
    let before = index.stats().loads;
    get_each(&index, ReadAt::Newest, &rows).unwrap();
    assert!(index.stats().loads - before >= rows.len() as u64, "one by one each key reads");
}

/// A run in a file.
fn run_file(env: &IndexEnv, dir: &Path, id: u64, rows: impl Iterator<Item = ([u8; 4], Option<Vec<u8>>)>) -> store::Run {
    let mut writer = store::RunWriter::create(env.runs.vfs.clone(), dir, id, Compression::None).unwrap();
    rows.for_each(|(key, value)| writer.add(&key, value.as_deref()).unwrap());
    let meta = writer.finish().unwrap();
    store::Run::open(&*env.runs.vfs, dir, &meta).unwrap()
}

/// Guards: `WAVE_KEYS` and `WAVE_BYTES`: what waits to be handed out is bounded.
#[test]
fn a_large_batch_is_answered_in_waves() {
    let dir = tempfile::tempdir().unwrap();
    let (env, index, _watch) = opened(dir.path(), 20_000, 256 << 20);
    let loads_at_first = |rows: &[u32]| {
        let keys: Vec<_> = rows.iter().map(|n| key(*n)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
        let before = index.stats().loads;
        let mut first = None;
        index.get_many(ReadAt::Newest, &keys, &mut |_, _, _| _ = first.get_or_insert(index.stats().loads)).unwrap();
        (first.unwrap() - before, index.stats().loads - before)
    };
    let (first, all) = loads_at_first(&(0..10_000).collect::<Vec<_>>());
    assert!(first * 20 < all, "{first} of {all} blocks before the first key is answered");
    evict_data(&env, &index);
    // Values in memory wait behind a key that is on disk.
    (100..180).for_each(|n| put(&index, 32, n..n + 1, |_| vec![9; 40_000]));
    let rows: Vec<u32> = (0..1).chain(100..180).chain((10_000..20_000).step_by(200)).collect();
    let (first, all) = loads_at_first(&rows);
    assert!(first <= 2 && all > 40, "{first} of {all}");
    // So do those of an attached run in a file, of which nothing is known before it is asked.
    evict_data(&env, &index);
    let rows = (200..280).map(|n| (key(n), Some(vec![9; 40_000])));
    index.attach(run_file(&env, dir.path(), 1, rows), CommitTs(64));
    let rows: Vec<u32> = (200..280).chain((10_100..20_000).step_by(200)).collect();
    let (first, all) = loads_at_first(&rows);
    assert!(first == 0 && all > 40, "{first} of {all}");
}

/// What was written, by key: newest last.
type Model = BTreeMap<u32, BTreeMap<CommitTs, Option<Vec<u8>>>>;

const KEYS: u32 = 300;

fn value(rng: &mut Rng) -> Option<Vec<u8>> {
    let bytes = match rng.below(10) {
        0 | 1 => return None,
        2 => 1500,
        3 => 0,
        _ => 5 + rng.index(60),
    };
    Some((0..bytes).map(|_| rng.below(256) as u8).collect())
}

/// One commit, of neighbours or of keys from everywhere, applied or attached, in memory or in a file.
fn commit(env: &IndexEnv, dir: &Path, index: &Lsm, ts: u64, model: &mut Model, rng: &mut Rng) {
    let mut rows: BTreeMap<u32, Option<Vec<u8>>> = BTreeMap::new();
    let (from, step) = (rng.below(KEYS.into()) as u32, [1, 7][rng.index(2)]);
    for n in 0..1 + rng.below(40) as u32 {
        rows.insert((from + n * step) % KEYS, value(rng));
    }
    for (n, value) in &rows {
        model.entry(*n).or_default().insert(CommitTs(ts), value.clone());
    }
    let rows = rows.into_iter().map(|(n, value)| (key(n), value));
    match rng.below(8) {
        0 => index.attach(store::Run::from_sorted(rows), CommitTs(ts)),
        1 => index.attach(run_file(env, dir, ts, rows), CommitTs(ts)),
        _ => {
            let rows: Vec<_> = rows.collect();
            let batch: Batch = rows
                .iter()
                .map(|(key, value)| (key.as_slice(), value.as_ref().map_or(Op::Delete, |value| Op::Put(value))))
                .collect();
            let Reservation::Direct(room) = index.reserve(&batch).unwrap() else { panic!("small") };
            index.apply(&batch, room, CommitTs(ts), &GcView::keep_all());
        }
    }
    if rng.below(4) == 0 {
        flush(index);
    }
}

/// An index of every kind of source.
fn made(dir: &Path, seed: u64, expiry: Option<Arc<Expiry>>, commits: u64) -> (IndexEnv, Arc<Lsm>, Model, Rng) {
    let (mut rng, mut model) = (Rng::new(seed), Model::new());
    let env = IndexEnv { expiry, ..env_of(dir, [512, 2048][rng.index(2)], 64 << 20, None) };
    let index = Lsm::open(env.clone(), None).unwrap();
    for n in 1..=commits {
        commit(&env, dir, &index, n * 16, &mut model, &mut rng);
    }
    (env, index, model, rng)
}

/// Ascending, some twice, some that are not there; neighbours or from everywhere.
fn asked(rng: &mut Rng) -> Vec<u32> {
    let (from, among) = (rng.below(KEYS.into()) as u32, [KEYS, 40, 8][rng.index(3)]);
    let mut rows: Vec<u32> = (0..2 + rng.index(60)).map(|_| from + rng.below(among.into()) as u32).collect();
    rows.sort_unstable();
    rows
}

fn expected(model: &Model, at: CommitTs, cut: CommitTs, rows: &[u32]) -> Found {
    let newest = |n: &u32| model.get(n)?.range(..=at).next_back();
    let found = rows.iter().enumerate().filter_map(|(i, n)| Some((i, newest(n)?)));
    found.filter(|(_, (ts, _))| **ts > cut).filter_map(|(i, (ts, value))| Some((i, *ts, value.clone()?))).collect()
}

/// Guards: the cut goes to the disk with what memory found (`Best` in `Wave::push`); a version that begins the next block, or the next partition; the order of
/// strands; a large value is read when its key is answered.
#[test]
fn a_batch_is_answered_as_the_model_says_and_as_its_keys_one_by_one() {
    for seed in 0..40 {
        let dir = tempfile::tempdir().unwrap();
        let expiry = (seed % 2 == 0).then(|| Expiry::new(1000));
        let (env, index, model, mut rng) = made(dir.path(), seed, expiry.clone(), 60);
        let last = 61 * 16;
        if let Some(expiry) = &expiry {
            // All at or below 320 has expired for who reads from `last` on.
            expiry.take(CommitTs(16), expiry.next(CommitTs(15), 1_000_000, false));
            expiry.take(CommitTs(321), expiry.next(CommitTs(320), 1_000_000, false));
            expiry.take(CommitTs(last - 8), expiry.next(CommitTs(last - 9), 2_100_000, false));
            expiry.take(CommitTs(last), expiry.next(CommitTs(last - 1), 2_200_000, false));
        }
        for round in 0..60 {
            if round % 3 == 0 {
                evict(&env);
            }
            let rows = asked(&mut rng);
            let at = match rng.below(3) {
                0 => ReadAt::Newest,
                _ => ReadAt::Snapshot(CommitTs(1 + rng.below(last + 100))),
            };
            let cut = expiry.as_ref().map_or(CommitTs::ZERO, |expiry| expiry.cut(at));
            let moment = if let ReadAt::Snapshot(ts) = at { ts } else { CommitTs(u64::MAX) };
            let found = get(&index, at, &rows).unwrap();
            assert_eq!(found, expected(&model, moment, cut, &rows), "seed {seed} round {round} {at:?} {rows:?}");
            assert_eq!(found, get_each(&index, at, &rows).unwrap(), "seed {seed} round {round}");
        }
    }
}

fn break_block(env: &IndexEnv, at: BlockRef) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(env.space.file_name()).unwrap();
    let (mut byte, place) = ([0], at.offset + u64::from(at.stored_bytes) / 2);
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], place).unwrap();
}

/// Guards: a fault ends a batch at its key, and a later one at a lower key counts (`Core::finish`).
#[test]
fn a_batch_meets_damage_as_its_keys_do_one_by_one() {
    let (mut faults, mut behind_some) = (0, 0);
    for seed in 0..40 {
        let dir = tempfile::tempdir().unwrap();
        let (env, index, _, mut rng) = made(dir.path(), seed, None, 60);
        let blocks: Vec<_> = blocks(&index).into_iter().filter(|(_, name)| !name.contains("of run")).collect();
        for _ in 0..1 + rng.index(3) {
            break_block(&env, blocks[rng.index(blocks.len())].0);
        }
        for round in 0..40 {
            let rows = asked(&mut rng);
            evict(&env);
            let each = get_each(&index, ReadAt::Newest, &rows);
            evict(&env);
            let found = get(&index, ReadAt::Newest, &rows);
            assert_eq!(found, each, "seed {seed} round {round}: {rows:?}");
            if let Err((found, _)) = found {
                faults += 1;
                behind_some += u32::from(!found.is_empty());
            }
        }
    }
    eprintln!("{faults} batches met damage, {behind_some} of them behind keys that they answered");
    assert!(faults > 100 && behind_some > 50, "{faults} and {behind_some}");
}

/// A read of neighbours fails as a whole. Guard: then the first of them is read alone (`read_ahead`).
#[test]
fn a_block_that_cannot_be_read_costs_none_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (env, index, _watch) = opened(dir.path(), 2000, 64 << 20);
    let mut data: Vec<_> = blocks(&index).into_iter().filter(|(_, name)| name.starts_with("data")).collect();
    data.sort_by_key(|(at, _)| at.offset);
    let file = std::fs::OpenOptions::new().write(true).open(env.space.file_name()).unwrap();
    file.set_len(data[data.len() / 2].0.offset + 1).unwrap();
    let rows: Vec<u32> = (0..2000).collect();
    let found = get(&index, ReadAt::Newest, &rows);
    assert_eq!(found, get_each(&index, ReadAt::Newest, &rows));
    let (found, fault) = found.unwrap_err();
    assert!((900..1100).contains(&found.len()), "{} keys, then {fault}", found.len());
}

/// A disk that reads nothing: keys that memory has are answered, up to the first one that it has not.
#[test]
fn a_batch_that_cannot_read_answers_what_lies_before() {
    let dir = tempfile::tempdir().unwrap();
    let (_env, index, watch) = opened(dir.path(), 2000, 64 << 20);
    put(&index, 32, 0..10, |_| b"in memory".to_vec());
    watch.fail_reads(true);
    let (found, fault) = get(&index, ReadAt::Newest, &(0..2000).collect::<Vec<_>>()).unwrap_err();
    assert_eq!(found.len(), 10);
    assert!(fault.contains("as told"), "{fault}");
    watch.fail_reads(false);
    assert_eq!(get(&index, ReadAt::Newest, &(0..2000).collect::<Vec<_>>()).unwrap().len(), 2000);
}
