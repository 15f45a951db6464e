//! The log under the deterministic scheduler: named schedules, and random ones by seed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Dice, Disk, Kept, SMALL, append, fresh, payload, recover_from};
use base::Lsn;
use trefoil_wal::{Incarnation, ManifestMark, WalOptions};
use vfs::sim::{Config, Simulation, explore};
use vfs::sync::Mutex;
use vfs::thread::{sleep, spawn};

/// Rule A12: A reserves its range and is preempted before it has copied anything; B reserves the next range, copies
/// it, and asks for it to be written. Nothing of B may be called written until A has copied.
#[test]
fn a12_a_gap_holds_the_written_prefix() {
    Simulation::new(1, Config::default()).run(|sim| {
        let disk = Disk::new();
        let wal = fresh(&disk, SMALL);
        let gate = sim.hold("wal.reserved");
        let (log_a, log_b) = (wal.clone(), wal.clone());
        let a = spawn("a", move || append(&log_a, 1, b"a sleeps in between")).unwrap();
        gate.wait_reached();
        let b = append(&wal, 2, b"b");
        let to_b = b.end;
        let writer = spawn("writer", move || log_b.write_to(to_b).unwrap()).unwrap();
        // In many steps: the writer spins for a while before it sleeps, and is to be found asleep.
        (0..200).for_each(|_| sleep(Duration::from_millis(5)));
        assert_eq!((wal.written(), writer.is_finished()), (wal.first_lsn(), false), "the gap holds the prefix");
        assert!(wal.end() >= b.end);
        gate.open();
        let a = a.join().unwrap();
        writer.join().unwrap();
        assert_eq!((a.start, a.end), (wal.first_lsn(), b.start));
        assert_eq!(recover_from(&disk, Lsn::ZERO, ManifestMark::default()).unwrap().0, [a, b]);
    });
}

/// Rule A19: a sync that is about to start must not share a block with a write that is in flight. The write of the
/// second record is held between taking its place and writing; the sync of the first one waits for it.
#[test]
fn a19_a_sync_waits_for_the_write_that_shares_its_block() {
    Simulation::new(2, Config::default()).run(|sim| {
        let disk = Disk::new();
        let wal = fresh(&disk, SMALL);
        let first = append(&wal, 1, b"first");
        wal.write_to(first.end).unwrap();
        let second = append(&wal, 2, b"second");
        let gate = sim.hold("wal.taken");
        let (log_w, log_s) = (wal.clone(), wal.clone());
        let write = spawn("write", move || log_w.write_to(second.end).unwrap()).unwrap();
        gate.wait_reached();
        let sync = spawn("sync", move || log_s.sync_to(first.end).unwrap()).unwrap();
        sleep(Duration::from_secs(1));
        gate.open();
        write.join().unwrap();
        sync.join().unwrap();
        assert_eq!(disk.violations(), Vec::<String>::new());
        assert!(wal.durable() >= first.end);
    });
}

/// A thread that is about to wait for a sync looks how much waits to be written. Between its two loads others append, write and
/// sync: an end that was loaded first would lie below what is written by then.
#[test]
fn what_waits_to_be_written_is_never_less_than_nothing() {
    Simulation::new(5, Config::default()).run(|sim| {
        let disk = Disk::new();
        let wal = fresh(&disk, SMALL);
        let first = append(&wal, 1, b"first");
        let gate = sim.hold("wal.unwritten");
        let log = wal.clone();
        let slow = spawn("slow", move || log.sync_to(first.end).unwrap()).unwrap();
        gate.wait_reached();
        let second = append(&wal, 2, b"second");
        wal.sync_to(second.end).unwrap();
        assert!(wal.written() >= second.end);
        gate.open();
        slow.join().unwrap();
        assert_eq!(recover_from(&disk, Lsn::ZERO, ManifestMark::default()).unwrap().0, [first, second]);
    });
}

/// A thread that has found no fault is preempted; a write fails meanwhile; the thread goes on and finds the write
/// stage free. It must not write behind the hole, and so call the hole written.
#[test]
fn nobody_writes_behind_a_failed_write() {
    Simulation::new(3, Config::default()).run(|sim| {
        let disk = Disk::new();
        let wal = fresh(&disk, WalOptions { segment_bytes: 1 << 20, ..SMALL });
        let records: Vec<Kept> = (0..12).map(|i| append(&wal, 1, &payload(i, 900))).collect();
        let gate = sim.hold("wal.relieve");
        let helper = wal.clone();
        let helper = spawn("helper", move || drop(helper.relieve())).unwrap();
        gate.wait_reached();
        disk.fail_write_after(0);
        assert!(wal.write_to(records[0].end).is_err());
        disk.repair();
        gate.open();
        helper.join().unwrap();
        assert_eq!(wal.written(), wal.first_lsn());
        assert!(wal.write_to(records[0].end).is_err() && wal.sync_to(records[0].end).is_err());
    });
}

/// T asks for more than there is; between adding its bytes and taking them back it is preempted. S asks for what
/// there is room for, finds T's bytes in the way, and sleeps. T must wake S when it takes its bytes back.
#[test]
fn a_failed_grant_wakes_whom_it_misled() {
    Simulation::new(4, Config::default()).run(|sim| {
        let wal = fresh(&Disk::new(), SMALL);
        let (a, b) = (wal.reserve_space(8000).unwrap(), wal.reserve_space(4000).unwrap());
        let gate = sim.hold("wal.room.added");
        let (log_t, log_s) = (wal.clone(), wal.clone());
        let t = spawn("t", move || drop(log_t.reserve_space(8000).unwrap())).unwrap();
        gate.wait_reached();
        let s = spawn("s", move || drop(log_s.reserve_space(4000).unwrap())).unwrap();
        sleep(Duration::from_secs(1));
        gate.open();
        s.join().unwrap();
        assert!(!t.is_finished());
        drop((a, b));
        t.join().unwrap();
    });
}

/// A waiter for room looks, is preempted, and the release comes before it sleeps: the wake-up is not lost.
#[test]
fn a_release_between_look_and_sleep_is_seen() {
    let config = Config::default().bias("wal.", 0.5);
    let body = |_: &vfs::sim::Handle| {
        let wal = fresh(&Disk::new(), SMALL);
        let threads: Vec<_> = (0..3)
            .map(|t| {
                let wal = wal.clone();
                spawn("holder", move || {
                    for i in 0..6u64 {
                        let grant = wal.reserve_space(7000).unwrap();
                        if (t + i) % 3 != 0 {
                            wal.append(grant, trefoil_wal::RecordKind(1), &[3; 7000]);
                        }
                    }
                })
                .unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    };
    explore(0..300, &config, body).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Appenders, syncers, a preparer and a trimmer in all orders; power is cut at a random sync as well as at the end.
#[test]
fn random_schedules_lose_nothing_and_never_hang() {
    let config = Config { spurious_wakeup: 0.05, ..Config::default() }.bias("wal.", 0.3);
    let body = |sim: &vfs::sim::Handle| {
        let mut dice = Dice::new(sim.seed());
        let disk = Disk::new();
        let wal = fresh(&disk, WalOptions { ring_bytes: 4096 << dice.roll(3), ..SMALL });
        let kept = Arc::new(Mutex::new(Vec::<Kept>::new()));
        let floor = Arc::new(Mutex::new(wal.first_lsn()));
        disk.set_note([0, wal.first_lsn().0]);
        disk.copy_before_syncs();
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let (wal, kept, disk, floor) = (wal.clone(), kept.clone(), disk.clone(), floor.clone());
                let mut dice = Dice::new(sim.seed() * 7 + t);
                spawn("appender", move || {
                    for i in 0..25 {
                        let len = dice.roll([20, 300, 1900][i % 3]) as usize;
                        let record = append(&wal, t as u8, &payload(t * 100 + i as u64, len));
                        kept.lock().push(record.clone());
                        match dice.roll(8) {
                            0..=2 => {
                                wal.sync_to(record.end).unwrap();
                                assert!(wal.durable() >= record.end);
                            }
                            3 => wal.write_to(record.end).unwrap(),
                            4 => wal.relieve().unwrap(),
                            5 => drop(wal.prepare().unwrap()),
                            6 => {
                                let mut floor = floor.lock();
                                *floor = wal.durable();
                                disk.raise_note([floor.0, floor.0]);
                                wal.trim(*floor).unwrap();
                            }
                            _ => {}
                        }
                        disk.raise_note([wal.durable().0, 0]);
                    }
                })
                .unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut kept = std::mem::take(&mut *kept.lock());
        kept.sort_by_key(|record| record.start);
        assert!(kept.windows(2).all(|pair| pair[0].end == pair[1].start), "ranges are contiguous");
        let copies = disk.take_copies();
        let copy = &copies[dice.roll(copies.len() as u64) as usize];
        for broken in [disk.after_power_cut(&mut dice), copy.after_power_cut(&mut dice)] {
            let [acknowledged, floor] = broken.note();
            let mark = ManifestMark { durable: Lsn(floor), incarnation: Incarnation(1) };
            let (found, end) = recover_from(&broken, Lsn(floor), mark).unwrap();
            assert!(kept.iter().all(|record| record.end.0 > acknowledged || record.end <= end.end));
            let expected = kept.iter().filter(|record| record.end.0 > floor && record.end <= end.end);
            assert!(found.iter().eq(expected));
        }
    };
    explore(0..400, &config, body).unwrap_or_else(|failure| panic!("{failure}"));
}

/// A disk that breaks at a random write or sync: all threads end, with the fault.
#[test]
fn random_schedules_with_a_fault_never_hang() {
    let config = Config::default().bias("wal.", 0.3);
    let body = |sim: &vfs::sim::Handle| {
        let mut dice = Dice::new(sim.seed());
        let disk = Disk::new();
        let wal = fresh(&disk, WalOptions { ring_bytes: 4096, ..SMALL });
        if dice.roll(2) == 0 {
            disk.fail_write_after(dice.roll(40) as usize);
        } else {
            disk.fail_sync_after(dice.roll(20) as usize);
        }
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let wal = wal.clone();
                spawn("appender", move || {
                    for i in 0..60u64 {
                        let Ok(grant) = wal.reserve_space(700) else { return };
                        let (_, end) = wal.append(grant, trefoil_wal::RecordKind(1), &[t as u8; 700]);
                        let done = if (t + i).is_multiple_of(3) { wal.write_to(end) } else { wal.sync_to(end) };
                        if done.is_err() {
                            assert!(wal.reserve_space(1).is_err(), "poisoned");
                        }
                    }
                })
                .unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(wal.reserve_space(1).is_err(), "the fault has shown");
        assert_eq!(wal.sync_all().is_err(), wal.durable() < wal.end());
    };
    explore(0..300, &config, body).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Nobody makes segments ahead. One finds the ring full and is about to wait for a release; the one who releases took the last space. Guard: who
/// waits for room looks whether there is space.
#[test]
fn whoever_waits_for_room_makes_the_segment() {
    let config = Config::default().bias("wal.room", 0.5);
    let body = |_: &vfs::sim::Handle| {
        let wal = fresh(&Disk::new(), WalOptions { ring_bytes: 4096, ..SMALL });
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let wal = wal.clone();
                spawn("appender", move || {
                    for i in 0..60u64 {
                        let grant = wal.reserve_space(700).unwrap();
                        let (start, end) = wal.append(grant, trefoil_wal::RecordKind(1), &[t as u8; 700]);
                        if (t + i).is_multiple_of(3) {
                            wal.write_to(end).unwrap()
                        } else {
                            wal.sync_to(end).unwrap()
                        }
                        wal.trim(start.min(wal.durable())).unwrap();
                    }
                })
                .unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    };
    explore(0..500, &config, body).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Threads that do nothing but commit share each sync, all of them: they do not split into two halves that take
/// turns. And threads that come back late do not hold up the others for long.
#[test]
fn committers_gather_for_one_sync() {
    for (think, syncs, millis) in [(0, 26, 28), (700, 75, 95)] {
        let report = Simulation::new(3, Config::default()).run(move |_| {
            let disk = Disk::new();
            let wal = fresh(&disk, SMALL);
            disk.set_sync_time(Duration::from_millis(1));
            let threads: Vec<_> = (0..8u64)
                .map(|t| {
                    let wal = wal.clone();
                    spawn("committer", move || {
                        for i in 0..20u64 {
                            let record = append(&wal, 1, b"a commit");
                            wal.sync_to(record.end).unwrap();
                            sleep(Duration::from_micros(think * ((t * 7 + i * 3) % 8)));
                        }
                    })
                    .unwrap()
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            wal.stats().syncs
        });
        assert!(report.value <= syncs, "{} syncs", report.value);
        assert!(report.elapsed <= Duration::from_millis(millis), "{:?}", report.elapsed);
    }
}
