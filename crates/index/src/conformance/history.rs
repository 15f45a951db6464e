//! Random histories: drawn by a seed, run against the model, shrunk when they fail, printed as a picture.
//!
//! 1. A seed draws a profile (how many keys, how long values, which steps how often) and then the steps.
//! 2. The steps run in a world; reads compare with the model as they go, and everything is read at the end.
//! 3. A failing history is shrunk: runs of steps are left out, then single writes, as long as it still fails.
//! 4. What is left is drawn: one line a step, one column a key.
//!
//! A history replays with `TREFOIL_HISTORIES=SEED..SEED+1`. Steps name snapshots by place, so that a history with
//! steps left out is a history still.

use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Write as _;
use std::ops::{Bound, Range};

use base::CommitTs;
use vfs::random::Rng;

use super::world::{Way, Write};
use super::{Bench, Complaint, Verdict, World, guarded};
use crate::{KeyRange, ReadAt, Span};

/// A key's number, and what is written: bytes of the value, or none for a delete.
pub type SmallWrite = (u16, Option<u32>);

/// One step of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A commit.
    Commit(Way, Vec<SmallWrite>),
    /// A range is deleted, between bounds as those of a range that is read, and behind that something is written by the same commit.
    Delete(Way, u16, u16, Vec<SmallWrite>),
    /// A snapshot is taken.
    Snapshot,
    /// The n-th open snapshot ends, counted around.
    Release(u8),
    /// One range is read at one place, both ways: place, bounds (odd random exclude), `u16::MAX` for open.
    Range(u8, u16, u16),
    /// Everything is read.
    Check,
    /// One maintenance step.
    Maintain,
    /// Maintenance to the end.
    Settle,
    /// Everything is written back and evicted.
    Evict,
    /// A checkpoint.
    Checkpoint,
    /// The log becomes durable.
    SyncLog,
    /// The process dies; the log holds what is durable.
    Crash,
    /// All commits are applied again.
    ApplyAgain,
}

/// A failing history.
#[derive(Debug)]
pub struct Failure {
    /// The seed it was drawn from.
    pub seed: u64,
    /// What is left after shrinking.
    pub steps: Vec<Step>,
    /// Steps before shrinking.
    pub drawn: usize,
    /// What went wrong.
    pub complaint: Complaint,
    /// The picture.
    pub picture: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, kept, drawn) = (self.seed, self.steps.len(), self.drawn);
        writeln!(f, "history of seed {seed} fails: {}", self.complaint)?;
        writeln!(f, "replay with TREFOIL_HISTORIES={seed}..{}; {kept} of {drawn} steps are needed:", seed + 1)?;
        f.write_str(&self.picture)
    }
}

/// Seeds to run: `TREFOIL_HISTORIES=n` for the first n, `TREFOIL_HISTORIES=a..b` for some, else the first `count`.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "an option of the test, read before it starts")]
pub fn seeds(count: u64) -> Range<u64> {
    let asked = std::env::var("TREFOIL_HISTORIES").unwrap_or_default();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match asked.split_once("..") {
        Some((low, high)) => number(low).unwrap_or(0)..number(high).unwrap_or(count),
        None => 0..number(&asked).unwrap_or(count),
    }
}

/// Runs the histories of many seeds.
///
/// # Errors
/// The first that fails, shrunk and drawn.
pub fn run_many(bench: &Bench, seeds: Range<u64>) -> Result<(), Box<Failure>> {
    for seed in seeds {
        let steps = draw_steps(seed);
        if let Err(complaint) = run(bench, &steps) {
            return Err(Box::new(explain(bench, seed, steps, complaint)));
        }
    }
    Ok(())
}

/// Runs one history.
pub fn run(bench: &Bench, steps: &[Step]) -> Verdict {
    run_traced(bench, steps, &mut Vec::new())
}

/// Runs one history; `trace` gets the timestamp of each step that has one.
fn run_traced(bench: &Bench, steps: &[Step], trace: &mut Vec<Option<CommitTs>>) -> Verdict {
    guarded(|| {
        let mut world = World::new(bench)?;
        for (i, step) in steps.iter().enumerate() {
            let ts = one_step(&mut world, bench.key_bytes_max(), i, step)
                .map_err(|c| Complaint(format!("step {}: {c}", i + 1)))?;
            trace.push(ts);
        }
        world.check()?;
        world.crash_durably()?;
        world.check()
    })
}

fn one_step(world: &mut World<'_>, longest: usize, number: usize, step: &Step) -> Verdict<Option<CommitTs>> {
    match step {
        Step::Commit(way, writes) => return world.commit_by(*way, &written_by(number, longest, writes)).map(Some),
        Step::Delete(way, low, high, writes) => {
            let range = KeyRange { low: bound(*low, longest), high: bound(*high, longest) };
            let spans = if range.is_empty() { Vec::new() } else { vec![Span::of(&range)] };
            let writes = written_by(number, longest, writes);
            // A run of nothing is none.
            let way = if writes.is_empty() { Way::Apply } else { *way };
            return world.commit_ranges(way, &spans, &writes).map(Some);
        }
        Step::Snapshot => return Ok(Some(world.snapshot())),
        Step::Release(n) if !world.snapshots.is_empty() => {
            let at = usize::from(*n) % world.snapshots.len();
            let ts = world.snapshots[at];
            world.release(at);
            return Ok(Some(ts));
        }
        Step::Release(_) => {}
        Step::Range(place, low, high) => {
            let places = world.snapshots.len() + 2;
            let at = match usize::from(*place) % places {
                0 => ReadAt::Newest,
                1 => ReadAt::Snapshot(world.end().as_commit_ts()),
                n => ReadAt::Snapshot(world.snapshots[n - 2]),
            };
            let (low, high) = (bound(*low, longest), bound(*high, longest));
            world.check_range(at, (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice)))?;
        }
        Step::Check => world.check()?,
        Step::Maintain => drop(world.maintain()?),
        Step::Settle => world.settle()?,
        Step::Evict => world.evict()?,
        Step::Checkpoint => world.checkpoint()?,
        Step::SyncLog => world.sync_log()?,
        Step::Crash => world.crash()?,
        Step::ApplyAgain => world.apply_again()?,
    }
    Ok(None)
}

fn written_by(number: usize, longest: usize, writes: &[SmallWrite]) -> Vec<Write> {
    writes.iter().map(|(k, v)| (key(*k, longest), v.map(|bytes| value(number, *k, bytes)))).collect()
}

/// Keys of a history: the empty one, some of the longest, the rest in a family with a long common prefix.
fn key(number: u16, longest: usize) -> Vec<u8> {
    match number {
        0 => Vec::new(),
        n if n % 97 == 50 => [vec![b'l'; longest - 2], n.to_be_bytes().to_vec()].concat(),
        n => format!("family/member/{n:05}").into_bytes(),
    }
}

fn value(step: usize, key: u16, bytes: u32) -> Vec<u8> {
    let text = format!("step {} key {key} ", step + 1).into_bytes();
    text.into_iter().cycle().take(bytes as usize).collect()
}

fn bound(number: u16, longest: usize) -> Bound<Vec<u8>> {
    match number {
        u16::MAX => Bound::Unbounded,
        n if n % 2 == 1 => Bound::Excluded(key(n / 2, longest)),
        n => Bound::Included(key(n / 2, longest)),
    }
}

/// One of the choices, each as often as its weight says.
fn weighted<T: Copy>(random: &mut Rng, choices: &[(u64, T)]) -> T {
    let mut at = random.below(choices.iter().map(|(weight, _)| weight).sum());
    for (weight, choice) in choices {
        if at < *weight {
            return *choice;
        }
        at -= weight;
    }
    unreachable!("the weights add up")
}

/// What a history is made of.
struct Profile {
    keys: u64,
    writes: u64,
    /// Longest ordinary value, and how seldom a long one comes.
    value_bytes: u64,
    long_one_in: u64,
    weights: Vec<(u64, u8)>,
}

fn profile(random: &mut Rng) -> Profile {
    let mut weights: Vec<(u64, u8)> = (0..13).map(|kind| (1 + random.below(4), kind)).collect();
    // Commits most of all; some histories lack one kind of step entirely.
    weights[0].0 = 20 + random.below(20);
    let without = random.index(24);
    if let Some(weight) = weights.get_mut(without).filter(|w| w.1 != 0) {
        weight.0 = 0;
    }
    Profile {
        keys: [3, 12, 60, 400, 2_000][random.index(5)],
        writes: [1, 4, 12, 60][random.index(4)],
        value_bytes: [8, 40, 200][random.index(3)],
        long_one_in: [20, 200, 100_000][random.index(3)],
        weights,
    }
}

/// The steps of a seed.
#[must_use]
pub fn draw_steps(seed: u64) -> Vec<Step> {
    let mut random = Rng::new(seed);
    let profile = profile(&mut random);
    let count = 20 + random.index(100);
    (0..count).map(|_| draw_step(&mut random, &profile)).collect()
}

/// The steps that some bytes stand for, at most a hundred: for fuzzers, which learn what each byte does.
#[must_use]
pub fn steps_from(bytes: &[u8]) -> Vec<Step> {
    let mut bytes = bytes.iter().copied();
    let mut steps = Vec::new();
    while let Some(kind) = bytes.next() {
        if steps.len() == 100 {
            break;
        }
        let mut next = || bytes.next().unwrap_or_default();
        steps.push(match kind % 25 {
            13 => Step::Snapshot,
            14 => Step::Release(next()),
            15 => Step::Range(next(), u16::from(next()), u16::from(next())),
            16 => Step::Check,
            17 => Step::Maintain,
            18 => Step::Settle,
            19 => Step::Evict,
            20 => Step::Checkpoint,
            21 => Step::SyncLog,
            22 => Step::Crash,
            23 => Step::ApplyAgain,
            24 => {
                let way = [Way::Apply, Way::Memory, Way::File][usize::from(next() % 3)];
                let (low, high, put) = (u16::from(next()), u16::from(next()), u16::from(next()));
                Step::Delete(way, low, high, (0..put % 3).map(|i| (put + i, Some(9))).collect())
            }
            commit => {
                let way = [Way::Memory, Way::File, Way::Apply][usize::from(commit).min(2)];
                let (count, first, stride) = (1 + next() % 40, u16::from(next()), u16::from(next() % 8));
                let bytes = next();
                let value = (bytes % 4 != 0).then_some(u32::from(bytes) * u32::from(bytes) / 16);
                Step::Commit(way, (0..u16::from(count)).map(|i| (first * 4 + i * stride, value)).collect())
            }
        });
    }
    steps
}

fn draw_step(random: &mut Rng, profile: &Profile) -> Step {
    match weighted(random, &profile.weights) {
        0 => Step::Commit(
            weighted(random, &[(8, Way::Apply), (1, Way::Memory), (1, Way::File)]),
            draw_writes(random, profile),
        ),
        1 => Step::Snapshot,
        2 => Step::Release(random.below(256) as u8),
        3 => {
            let mut bound = || if random.below(4) == 0 { u16::MAX } else { random.below(profile.keys * 2) as u16 };
            let (low, high) = (bound(), bound());
            Step::Range(random.below(256) as u8, low, high)
        }
        4 => Step::Check,
        5 => Step::Maintain,
        6 => Step::Settle,
        7 => Step::Evict,
        8 => Step::Checkpoint,
        9 => Step::SyncLog,
        10 => Step::Crash,
        11 => {
            let mut bound = || if random.below(5) == 0 { u16::MAX } else { random.below(profile.keys * 2) as u16 };
            let (one, other) = (bound(), bound());
            // Open on one side or the other, or on both.
            let (low, high) = match (one, other) {
                (u16::MAX, _) | (_, u16::MAX) => (one, other),
                _ => (one.min(other), one.max(other)),
            };
            let way = weighted(random, &[(8, Way::Apply), (1, Way::Memory), (1, Way::File)]);
            let writes = if random.below(2) == 0 { Vec::new() } else { draw_writes(random, profile) };
            Step::Delete(way, low, high, writes)
        }
        _ => Step::ApplyAgain,
    }
}

/// Writes of one commit: scattered, or a stretch of neighbours, or a stretch that is deleted.
fn draw_writes(random: &mut Rng, profile: &Profile) -> Vec<SmallWrite> {
    let count = 1 + random.below(profile.writes);
    let start = random.below(profile.keys);
    let kind = random.below(6);
    (0..count)
        .map(|i| {
            let key = if kind < 3 { random.below(profile.keys) } else { (start + i) % profile.keys };
            let bytes = match random.below(profile.long_one_in) == 0 {
                true => random.below(30_000),
                false => random.below(profile.value_bytes),
            };
            let delete = kind == 5 || random.below(4) == 0;
            (key as u16, (!delete).then_some(bytes as u32))
        })
        .collect()
}

/// Shrinks and draws.
fn explain(bench: &Bench, seed: u64, steps: Vec<Step>, complaint: Complaint) -> Failure {
    let drawn = steps.len();
    let (steps, complaint) = shrink(bench, steps, complaint);
    let mut trace = Vec::new();
    let complaint = run_traced(bench, &steps, &mut trace).err().unwrap_or(complaint);
    let picture = picture(&steps, &trace);
    Failure { seed, steps, drawn, complaint, picture }
}

/// Tries to leave out, in ever smaller pieces, first steps, then writes (delta debugging: Zeller and Hildebrandt,
/// "Simplifying and isolating failure-inducing input", 2002).
fn shrink(bench: &Bench, mut steps: Vec<Step>, mut complaint: Complaint) -> (Vec<Step>, Complaint) {
    let mut tries = 500;
    let mut fails = |steps: &[Step]| {
        if tries == 0 {
            return None;
        }
        tries -= 1;
        run(bench, steps).err()
    };
    let mut piece = steps.len();
    while piece > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + piece).min(steps.len()));
            match fails(&fewer) {
                Some(c) => (steps, complaint) = (fewer, c),
                None => at += piece,
            }
        }
        piece /= 2;
    }
    for i in 0..steps.len() {
        let (Step::Commit(_, writes) | Step::Delete(_, _, _, writes)) = &steps[i] else { continue };
        for at in (0..writes.len()).rev() {
            let mut fewer = steps.clone();
            let is_commit = matches!(fewer[i], Step::Commit(..));
            let (Step::Commit(_, writes) | Step::Delete(_, _, _, writes)) = &mut fewer[i] else { break };
            if is_commit && writes.len() == 1 {
                break;
            }
            writes.remove(at);
            if let Some(c) = fails(&fewer) {
                (steps, complaint) = (fewer, c);
            }
        }
    }
    (steps, complaint)
}

/// Columns of the picture; further keys are listed beside it.
const COLUMNS: usize = 12;

/// One line a step, one column a key: `+n` a put of n bytes, `-` a delete.
#[must_use]
pub fn picture(steps: &[Step], trace: &[Option<CommitTs>]) -> String {
    let keys: BTreeSet<u16> = steps.iter().flat_map(written).map(|(k, _)| *k).collect();
    let columns: Vec<u16> = keys.into_iter().take(COLUMNS).collect();
    let mut out = format!("{:>4} {:<22} {:>8}", "step", "", "ts");
    for key in &columns {
        let _ = write!(out, " {:>7}", format!("k{key}"));
    }
    out.push('\n');
    for (i, step) in steps.iter().enumerate() {
        let ts = trace.get(i).copied().flatten().map_or(String::new(), |ts| format!("@{ts}"));
        let _ = write!(out, "{:>4} {:<22} {ts:>8}", i + 1, title(step));
        for key in &columns {
            let cell = written(step).iter().rev().find(|(k, _)| k == key).map_or(String::new(), cell);
            let _ = write!(out, " {cell:>7}");
        }
        let others = written(step).iter().filter(|(k, _)| !columns.contains(k)).count();
        if others > 0 {
            let _ = write!(out, "  and {others} more");
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

fn written(step: &Step) -> &[SmallWrite] {
    match step {
        Step::Commit(_, writes) | Step::Delete(_, _, _, writes) => writes,
        _ => &[],
    }
}

fn cell((_, value): &SmallWrite) -> String {
    value.map_or("-".to_owned(), |bytes| format!("+{bytes}"))
}

fn title(step: &Step) -> String {
    let side = |n: u16| match n {
        u16::MAX => "..".to_owned(),
        n if n % 2 == 1 => format!("k{} excl.", n / 2),
        n => format!("k{}", n / 2),
    };
    match step {
        Step::Commit(Way::Apply, _) => "commit".into(),
        Step::Commit(Way::Memory, _) => "attach run".into(),
        Step::Commit(Way::File, _) => "attach run file".into(),
        Step::Delete(way, low, high, _) => format!("delete {} to {} {way:?}", side(*low), side(*high)),
        Step::Range(_, low, high) => format!("range {} to {}", side(*low), side(*high)),
        Step::Release(_) => "release".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}
