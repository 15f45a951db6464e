//! Lives of a log on the simulated disk, under the simulated scheduler: cuts, kills, errors and full disks at any
//! operation, recovery included.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;

use crate::support::{DATABASE, Dice, Kept, SMALL, payload};
use base::{Fault, Lsn, Poison, Result};
use trefoil_wal::{ManifestMark, RecordKind, Wal, WalEnd, WalOptions, WalStart, recover};
use vfs::Vfs;
use vfs::fault::{Action, Class, Rule};
use vfs::sim::{Config, DiskConfig, Handle, SimDisk, Simulation, explore};
use vfs::sync::Mutex;
use vfs::thread::spawn;

const DIR: &str = "/db";

/// What the test knows; it stands in for the manifest and for the clients.
#[derive(Default, Clone)]
struct Known {
    /// Everything appended that is not known to be lost.
    records: Vec<Kept>,
    /// Acknowledged as durable, and as handed to the system.
    synced: Lsn,
    written: Lsn,
    /// What the manifest says.
    floor: Lsn,
    mark: ManifestMark,
}

fn read(disk: &SimDisk, known: &Known) -> Result<(Vec<Kept>, WalEnd)> {
    let mut found = Vec::new();
    let end = recover(disk, Path::new(DIR), DATABASE, known.floor, known.mark, &mut |record| {
        let payload = record.payload.to_vec();
        found.push(Kept { start: record.start, end: record.end, kind: record.kind, payload });
        Ok(())
    })?;
    Ok((found, end))
}

/// Recovers, checks what is found against what was promised, and forgets what is lost.
fn check(disk: &SimDisk, known: &mut Known, killed_only: bool) -> Result<WalEnd> {
    let (found, end) = read(disk, known)?;
    let promised = if killed_only { known.written.max(known.synced) } else { known.synced };
    known.records.sort_by_key(|record| record.start);
    let lost = known.records.iter().find(|record| record.end <= promised && record.end > end.end);
    assert_eq!(lost, None, "promised up to {promised}, found up to {}", end.end);
    let expected = known.records.iter().filter(|record| record.end > known.floor && record.end <= end.end);
    assert!(found.iter().eq(expected), "what is found is what was appended");
    known.records.retain(|record| record.end <= end.end);
    known.synced = known.synced.max(end.durable);
    Ok(end)
}

/// Works until all is done or a fault shows.
fn work(wal: &Wal, shared: &Mutex<Known>, dice: &mut Dice, steps: u64) -> Result<()> {
    for _ in 0..steps {
        let len = [30, 400, 2000, 6000][dice.roll(4) as usize];
        let bytes = payload(dice.roll(1 << 30), dice.roll(len) as usize);
        let grant = match wal.reserve_space(bytes.len()) {
            Err(Fault::NoSpace { .. }) => continue,
            other => other?,
        };
        let kind = RecordKind(dice.roll(250) as u8);
        let (start, end) = wal.append(grant, kind, &bytes);
        shared.lock().records.push(Kept { start, end, kind, payload: bytes });
        match dice.roll(9) {
            0..=2 => {
                wal.sync_to(end)?;
                let mut known = shared.lock();
                known.synced = known.synced.max(end);
            }
            3 | 4 => {
                wal.write_to(end)?;
                let mut known = shared.lock();
                known.written = known.written.max(end);
            }
            5 => wal.relieve()?,
            6 => drop(wal.prepare()),
            7 if dice.roll(3) == 0 => {
                // A checkpoint. The manifest is there before anything is trimmed.
                let durable = wal.durable();
                let mut known = shared.lock();
                known.floor = known.floor.max(durable);
                known.mark = ManifestMark { durable: known.floor, incarnation: wal.incarnation() };
                let floor = known.floor;
                drop(known);
                wal.trim(floor)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// One life with three threads. True if it opened.
fn live(disk: &SimDisk, known: &mut Known, start: WalStart, options: WalOptions, dice: &mut Dice) -> bool {
    let Ok(wal) = Wal::open(Arc::new(disk.clone()), Path::new(DIR), options, start, Poison::new()) else {
        return false;
    };
    // An open log promises to stand on what it found.
    known.synced = known.synced.max(start.end);
    let shared = Arc::new(Mutex::new(std::mem::take(known)));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (wal, shared, mut dice) = (wal.clone(), shared.clone(), Dice::new(dice.roll(1 << 40)));
            spawn("worker", move || drop(work(&wal, &shared, &mut dice, 25))).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    *known = shared.lock().clone();
    true
}

fn plan(disk: &SimDisk, dice: &mut Dice) {
    let action = match dice.roll(8) {
        0..=2 => Action::PowerCut(dice.roll(1 << 40)),
        3 | 4 => Action::Kill,
        5 => Action::Eio,
        6 => Action::StorageFull,
        _ => return,
    };
    let reach = [10, 60, 300][dice.roll(3) as usize];
    let nth = dice.roll(reach);
    let rule = Rule::new(action).nth(nth);
    disk.faults().add(match (action, dice.roll(3)) {
        (Action::StorageFull, _) => rule.on(Class::Allocate).nth(dice.roll(3)),
        (_, 0) => rule.on(Class::Sync).nth(nth / 8),
        (_, 1) => rule.on(Class::Write).nth(nth / 2),
        _ => rule,
    });
}

/// Turns the disk off, if the plan has not done so. True if only the process died.
fn turn_off(disk: &SimDisk, dice: &mut Dice) -> bool {
    if disk.is_off() {
        // Which of the two it was does not matter to the promise that holds for both.
        return false;
    }
    let kill = dice.roll(2) == 0;
    if kill {
        disk.process_kill()
    } else {
        disk.power_cut(dice.roll(1 << 40))
    }
    kill
}

fn lives(sim: &Handle) {
    let mut dice = Dice::new(sim.seed());
    let mut disk = SimDisk::new(DiskConfig::seed(sim.seed()));
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let mut known = Known::default();
    let mut killed_only = false;
    for life in 0..5 {
        let options = WalOptions { ring_bytes: 16384 << dice.roll(2), segment_bytes: 128 * 1024, ..SMALL };
        let end = check(&disk, &mut known, killed_only).unwrap_or_else(|fault| panic!("life {life}: {fault}"));
        let is_new = disk.files().is_empty();
        let start = if is_new { WalStart::fresh(DATABASE) } else { WalStart::after(DATABASE, &end) };
        plan(&disk, &mut dice);
        live(&disk, &mut known, start, options, &mut dice);
        killed_only = turn_off(&disk, &mut dice);
        if !killed_only && dice.roll(2) == 0 {
            // Cut again while the next life reads and opens: at most what was lost before is lost.
            let broken = disk.reboot();
            let mut before = known.clone();
            if let Ok(end) = check(&broken, &mut before, false) {
                broken.faults().add(Rule::new(Action::PowerCut(dice.roll(1 << 40))).nth(dice.roll(25)));
                let start = WalStart::after(DATABASE, &end);
                let opened = Wal::open(Arc::new(broken.clone()), Path::new(DIR), options, start, Poison::new());
                if opened.is_ok() {
                    // It has promised to stand on what it found.
                    known = before;
                    known.synced = known.synced.max(end.end);
                }
                drop(opened);
                broken.power_cut(dice.roll(1 << 40));
                disk = broken.reboot();
                continue;
            }
        }
        disk = disk.reboot();
    }
    check(&disk, &mut known, killed_only).unwrap_or_else(|fault| panic!("at the end: {fault}"));
}

#[test]
fn lives_with_faults_keep_what_they_promised() {
    explore(0..400, &Config::default().bias("wal.", 0.2), lives).unwrap_or_else(|failure| panic!("{failure}"));
}

/// A sync fails, and the system forgets that the pages are dirty. The tail is read from its cache and accepted; the
/// next life builds on it and acknowledges; a power cut must not take the tail away.
#[test]
fn a_tail_that_a_failed_sync_left_behind_is_made_durable_by_the_next_life() {
    let mut tails = 0;
    for seed in 0..40 {
        let report = Simulation::new(seed, Config::default()).run(move |sim| {
            let disk = SimDisk::new(DiskConfig::seed(sim.seed()));
            disk.create_dir_all(Path::new(DIR)).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            let open = |start| Wal::open(Arc::new(disk.clone()), Path::new(DIR), SMALL, start, Poison::new()).unwrap();
            let mut known = Known::default();
            let append = |wal: &Wal, known: &mut Known| {
                let bytes = payload(seed + known.records.len() as u64, 900);
                let (start, end) = wal.append(wal.reserve_space(900).unwrap(), RecordKind(1), &bytes);
                known.records.push(Kept { start, end, kind: RecordKind(1), payload: bytes });
                end
            };
            let first = open(WalStart::fresh(DATABASE));
            let end = append(&first, &mut known);
            first.sync_to(end).unwrap();
            disk.faults().add(Rule::new(Action::Eio).on(Class::Sync));
            let end = append(&first, &mut known);
            assert!(first.sync_to(end).is_err());
            drop(first);
            disk.faults().clear();

            let found = check(&disk, &mut known, false).unwrap();
            let tail = found.end == end;
            let second = open(WalStart::after(DATABASE, &found));
            let end = append(&second, &mut known);
            second.sync_to(end).unwrap();
            known.synced = end;
            disk.power_cut(seed);
            check(&disk.reboot(), &mut known, false).unwrap_or_else(|fault| panic!("{fault}"));
            tail
        });
        tails += u64::from(report.value);
    }
    assert!(tails > 10, "the tail was accepted {tails} times");
}
