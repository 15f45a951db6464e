//! The schedules that break a naive tree, one test for each rule. Each fails when its guard is taken out.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

mod buffers;
mod counters;
mod damage;
mod fill;
mod filling;
mod images;
mod inner;
mod marks;
mod parked;
mod readers;
mod reservations;
mod rounds;
mod uncached;
mod walker;

use std::sync::Arc;

use crate::common::{Rig, Setup, key};
use vfs::sim::{Config, Handle, Simulation};

fn small() -> Setup {
    Setup { node_bytes: 512, extent_bytes: 64 << 10, ..Setup::default() }
}

/// A rig with `keys` rows, every second number, so that there is room between.
fn filled(setup: Setup, keys: u64) -> Rig {
    let rig = Rig::new(setup);
    for from in (0..keys).step_by(50) {
        rig.commit((from..(from + 50).min(keys)).map(|n| (key(n * 2), Some(b"first".to_vec()))).collect());
    }
    rig
}

fn simulated(body: impl FnOnce(&Handle) + Send + 'static) {
    Simulation::new(1, Config::default()).run(body);
}

fn in_thread(rig: &Arc<Rig>, body: impl FnOnce(&Rig) + Send + 'static) -> vfs::thread::JoinHandle<()> {
    let rig = rig.clone();
    vfs::thread::spawn("other", move || body(&rig)).unwrap()
}

/// Forty rows of which few are left: leaves that are found thin.
fn thin() -> Rig {
    let rig = filled(small(), 40);
    rig.commit((0..39).filter(|n| n % 8 != 0).map(|n| (key(n * 2), None)).collect());
    rig.put("z", "moves the floor");
    // Written, the leaves are collected, and found thin.
    rig.checkpoint();
    rig
}
