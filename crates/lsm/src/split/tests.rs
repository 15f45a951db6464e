//! Halves of a run have what the run had; a merge that is cut in two gives what it gives in one piece, version by version.

use std::ops::Range;

use base::CommitTs;
use index::{IndexEnv, Subcompactions};
use store::AllocScope;
use vfs::random::Rng;

use super::*;
use crate::Lsm;
use crate::writer::NewValue;

#[path = "../../tests/support/mod.rs"]
mod support;

/// Key, timestamp, value, whether it is fresh.
type Version = (Vec<u8>, CommitTs, Option<Vec<u8>>, bool);

/// All versions of runs, in the order of their keys.
fn versions(env: &Env, runs: &[Arc<Run>]) -> Vec<Version> {
    let mut all = Vec::new();
    for run in runs {
        let mut input = Input::runs(env, vec![run.clone()]).expect("sound");
        while input.stands() {
            let (value, is_fresh) = input
                .with_value(env, |value, is_fresh| {
                    let bytes = match value {
                        NewValue::Delete => None,
                        NewValue::Bytes(bytes) => Some(bytes.to_vec()),
                        // A large one is told by where it lies: it is never copied.
                        NewValue::Kept { pieces, .. } => Some(format!("{:?}", pieces[0].at()).into_bytes()),
                    };
                    Ok((bytes, is_fresh))
                })
                .expect("sound");
            all.push((input.key().to_vec(), input.ts(), value, is_fresh));
            input.advance(env).expect("sound");
        }
    }
    all
}

fn key(n: u64) -> Vec<u8> {
    // Of several lengths, so that one may be what another begins with.
    format!("{:04}", n / 3).into_bytes().into_iter().chain(vec![b'x'; (n % 3) as usize]).collect()
}

/// A run of some of these keys; of some of them so many versions that they fill blocks, none below `ts`.
fn random_run(env: &Env, rng: &mut Rng, level: u8, (keys, ts): (Range<u64>, u64)) -> Arc<Run> {
    let mut writer = Writer::new(env, level, AllocScope::Ordinary);
    let one_in = 1 + rng.below(6);
    for n in keys.clone() {
        if n > keys.start && rng.below(one_in) > 0 {
            continue;
        }
        let count = if rng.below(20) == 0 { 1 + rng.below(60) } else { 1 + rng.below(2) };
        for i in (0..count).rev() {
            let large = vec![n as u8; 700];
            let small = vec![i as u8; rng.below(40) as usize];
            let value = match rng.below(12) {
                0..4 => NewValue::Delete,
                4 => NewValue::Bytes(&large),
                _ => NewValue::Bytes(&small),
            };
            let is_fresh = matches!(value, NewValue::Bytes(bytes) if bytes.len() < 100) && rng.below(3) == 0;
            writer.push(&key(n), CommitTs(ts + 16 * i), value, is_fresh).expect("there is room");
        }
    }
    writer.finish(CommitTs(ts + 2000)).expect("there is room").0.expect("the first key is in it")
}

/// Runs that lie side by side.
fn random_strand(env: &Env, rng: &mut Rng, level: u8, (keys, ts): (u64, u64)) -> Vec<Arc<Run>> {
    let mut bounds: Vec<u64> = (0..rng.below(4)).map(|_| rng.below(keys)).chain([0, keys]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    bounds.windows(2).map(|pair| random_run(env, rng, level, (pair[0]..pair[1], ts))).collect()
}

fn env(dir: &std::path::Path) -> IndexEnv {
    support::env(dir, 512, 1 << 20)
}

/// Guard: the key at which a run is cut lies, with all its versions, in the upper half.
#[test]
fn halves_have_what_the_run_had() {
    let mut rng = Rng::new(31);
    for round in 0..60 {
        let dir = tempfile::tempdir().expect("a directory");
        let env = env(dir.path());
        let keys = 1 + rng.below(if round % 4 == 0 { 3000 } else { 200 });
        let run = random_run(&env, &mut rng, 3, (0..keys, 16));
        let whole = versions(&env, std::slice::from_ref(&run));
        for _ in 0..6 {
            let cut = key(rng.below(keys + 3));
            let ((low, high), bytes) = halves(&env, &run, &cut).expect("there is room");
            assert!(bytes > 0);
            let halves: Vec<_> = low.iter().chain(&high).cloned().collect();
            assert_eq!(versions(&env, &halves), whole);
            assert!(low.as_ref().is_none_or(|low| low.info.max_key < cut), "{round}: {:?}", low.map(|low| low.keys()));
            assert!(high.as_ref().is_none_or(|high| high.info.min_key >= cut));
            let sum = |of: fn(&Run) -> u64| halves.iter().map(|run| of(run)).sum::<u64>();
            assert_eq!(sum(|run| run.info.entries), run.info.entries);
            assert_eq!(sum(|run| run.info.live), run.info.live);
            assert_eq!(sum(|run| run.info.deleted), run.info.deleted);
            assert!(halves.iter().all(|half| half.info.log_need == run.info.log_need && half.info.level == 3));
        }
    }
}

/// The same runs in an index of its own, of which some are merged to the bottom; what there is then, and how often a merge was cut.
fn merged(seed: u64, subcompactions: Subcompactions) -> (Vec<Version>, Vec<Version>, u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut env = env(dir.path());
    env.options.policy.subcompactions = subcompactions;
    let mut rng = Rng::new(seed);
    let index = Lsm::open(env.clone(), None).expect("empty");
    let core = &index.core;
    let keys = 20 + rng.below(1500);
    let strands = 2 + rng.below(5);
    let runs: Vec<_> = (0..strands).flat_map(|n| random_strand(&env, &mut rng, 0, (keys, 16 + 2000 * n))).collect();
    // Older than all, and of no merge: tombstones over its keys stay.
    let outside: Vec<_> = (0..rng.below(2)).flat_map(|_| random_strand(&env, &mut rng, 5, (keys, 1))).collect();
    core.update(|sources| {
        sources.runs = runs.iter().chain(&outside).cloned().collect();
        sources.arrange();
    });
    let mut snapshots: Vec<_> = (0..rng.below(4)).map(|_| CommitTs(rng.below(8000))).collect();
    snapshots.sort_unstable();
    let view = GcView::new(CommitTs(rng.below(20_000)), snapshots);
    let (late, sources) = core.late_and_sources();
    let mut plan = core.plan.lock();
    let job = core.job_of_runs(&sources, late, &view, (runs, 6, false)).expect("sound");
    if !core.split(&mut plan, &job, &view).expect("sound") {
        plan.push(job);
    }
    drop(plan);
    loop {
        let plan = core.plan.lock();
        // Not always the one that was gone on with before.
        let at_rest = plan.jobs.len() as u64;
        if at_rest == 0 {
            break;
        }
        core.go_on(plan, rng.below(at_rest) as usize, &view).expect("sound");
    }
    let sources = core.sources();
    let (mut bottom, others): (Vec<_>, Vec<_>) = sources.runs.iter().cloned().partition(|run| run.info.level == 6);
    bottom.sort_by(|a, b| a.info.min_key.cmp(&b.info.min_key));
    assert!(bottom.windows(2).all(|pair| pair[0].info.max_key < pair[1].info.min_key), "{}", core.draw());
    (versions(&env, &bottom), versions(&env, &others), core.stats().split_merges)
}

#[test]
fn a_merge_in_parts_gives_what_it_gives_in_one_piece() {
    let mut splits = 0;
    for seed in 0..60 {
        let (whole, outside, unsplit) = merged(seed, Subcompactions::Off);
        let (parts, same, split) = merged(seed, Subcompactions::Always);
        assert_eq!(unsplit, 0);
        assert_eq!(outside, same, "seed {seed}");
        // Where large values lie is nobody's business here.
        let told = |versions: Vec<Version>| -> Vec<Version> {
            let told = |value: Vec<u8>| if value.starts_with(b"BlockRef") { b"large".to_vec() } else { value };
            versions.into_iter().map(|(key, ts, value, fresh)| (key, ts, value.map(told), fresh)).collect()
        };
        assert_eq!(told(parts), told(whole), "seed {seed}");
        splits += split;
    }
    assert!(splits > 60, "{splits} merges were cut, each where it began");
}
