//! Each fuzz body for a moment, or for `TREFOIL_FUZZ_SECONDS`, on seeded bytes: made up, and mutations of those
//! before. A body that panics shows the seed; `TREFOIL_FUZZ_SEED` replays it.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "not part of the engine, never simulated")]

use std::time::{Duration, Instant};

use fuzz_bodies::{ALL, Body};
use vfs::random::Rng;

const POOL: usize = 64;

/// Bytes as decoders like them least: small numbers, long runs, single extremes.
fn made_up(random: &mut Rng) -> Vec<u8> {
    let longest = [8, 64, 400, 9_000][random.index(4)];
    let most = [2, 5, 17, 256][random.index(4)];
    (0..random.below(longest)).map(|_| random.below(most) as u8).collect()
}

/// An earlier input with something changed, cut, doubled or put in.
fn mutated(random: &mut Rng, pool: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = pool[random.index(pool.len())].clone();
    for _ in 0..1 + random.below(4) {
        let at = random.index(bytes.len() + 1);
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.u64() as u8),
            2 => bytes.splice(at..at, [0xff; 9]).for_each(drop),
            3 => {
                let other = &pool[random.index(pool.len())];
                let piece = other[..random.index(other.len() + 1)].to_vec();
                bytes.splice(at..at, piece).for_each(drop);
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => bytes.push(random.below(4) as u8),
        }
    }
    bytes.truncate(20_000);
    bytes
}

fn one(body: Body, seed: u64, pool: &mut Vec<Vec<u8>>) {
    let mut random = Rng::new(seed);
    let bytes = if pool.is_empty() || random.below(3) == 0 { made_up(&mut random) } else { mutated(&mut random, pool) };
    body(&bytes);
    if pool.len() < POOL {
        pool.push(bytes);
    } else {
        let place = random.index(POOL);
        pool[place] = bytes;
    }
}

/// The same seeds in the same order give the same inputs, so a seed replays with all those before it.
fn run(name: &str, body: Body, time: Duration) {
    let last = std::env::var("TREFOIL_FUZZ_SEED").ok().and_then(|s| s.parse::<u64>().ok());
    let (start, mut pool) = (Instant::now(), Vec::new());
    for seed in 0.. {
        let goes_on = last.map_or_else(|| start.elapsed() < time, |last| seed <= last);
        if !goes_on {
            return;
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one(body, seed, &mut pool)));
        assert!(outcome.is_ok(), "{name} fails: replay with TREFOIL_FUZZ_SEED={seed}");
    }
}

#[test]
fn bodies_survive() {
    let seconds = std::env::var("TREFOIL_FUZZ_SECONDS").ok().and_then(|s| s.parse::<f64>().ok()).unwrap_or(0.2);
    for (name, body) in ALL {
        run(name, body, Duration::from_secs_f64(seconds));
        println!("{name}");
    }
}

#[test]
fn each_body_has_its_target() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz_targets");
    let mut targets: Vec<String> = std::fs::read_dir(dir)
        .expect("the targets are there")
        .map(|e| e.expect("a readable entry").file_name().to_string_lossy().trim_end_matches(".rs").to_owned())
        .collect();
    let mut bodies: Vec<String> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    targets.sort();
    bodies.sort();
    assert_eq!(targets, bodies);
}
