//! From a grant to durable bytes: order, gaps, groups, room, faults.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Disk, Event, Kept, SMALL, append, fresh, payload, recover, recover_from};
use base::{Fault, Lsn};
use trefoil_wal::{ManifestMark, RecordKind, Wal, WalOptions, WalStats};
use vfs::Vfs;
use vfs::sync::Mutex;
use vfs::thread::{sleep, spawn};

#[test]
fn what_is_synced_is_found_again() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    let mut kept = Vec::new();
    for (i, len) in [0, 1, 7, 8, 9, 100, 4096, 8000].into_iter().enumerate() {
        kept.push(append(&wal, i as u8, &payload(i as u64, len)));
        if i % 3 == 0 {
            wal.sync_all().unwrap();
        }
    }
    wal.sync_all().unwrap();
    assert_eq!((wal.durable(), wal.written()), (wal.end(), wal.end()));
    let (found, end) = recover(&disk).unwrap();
    assert_eq!(found, kept);
    assert_eq!(end.end, wal.end());
    assert!(end.next_first_lsn > end.end && end.next_incarnation > wal.incarnation());
}

#[test]
fn a_compressed_group_comes_back() {
    let disk = Disk::new();
    let wal = fresh(&disk, WalOptions { segment_bytes: 1 << 20, ring_bytes: 1 << 17, ..SMALL });
    let kept: Vec<Kept> = (0..60).map(|i| append(&wal, i, &[i; 1000])).collect();
    wal.sync_all().unwrap();
    let stats = wal.stats();
    assert!(stats.compressed_frames == stats.frames && stats.written_bytes < stats.appended_bytes / 4, "{stats:?}");
    assert_eq!(recover(&disk).unwrap().0, kept);
}

/// A grant holds room, not a position: nobody waits for it.
#[test]
fn a_grant_that_is_not_appended_holds_nobody_back() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    let first = append(&wal, 1, b"first");
    let late = wal.reserve_space(32).unwrap();
    wal.sync_all().unwrap();
    assert_eq!(wal.durable(), first.end);
    wal.append(late, RecordKind(2), &[2; 32]);
    assert_eq!(wal.written(), first.end, "an append writes nothing");
    wal.write_to(wal.end()).unwrap();
    assert_eq!((wal.written(), wal.durable()), (wal.end(), first.end));
}

/// Rule A12 with threads: whatever is reported durable at any moment is a prefix without a hole, record by record.
#[test]
fn a12_eight_threads_leave_contiguous_ranges() {
    let disk = Disk::new();
    let wal = fresh(&disk, WalOptions { segment_bytes: 256 * 1024, capacity_bytes: 64 << 20, ring_bytes: 32 * 1024 });
    let kept = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..8u64)
        .map(|t| {
            let (wal, kept) = (wal.clone(), kept.clone());
            let body = move || {
                let mut mine = Vec::new();
                for i in 0..400u64 {
                    let len = ((t * 131 + i * 17) % 700) as usize;
                    let record = append(&wal, t as u8, &payload(t * 1000 + i, len));
                    match i % 4 {
                        0 => wal.sync_to(record.end).unwrap(),
                        1 => wal.write_to(record.end).unwrap(),
                        _ => {}
                    }
                    if i % 4 == 0 {
                        assert!(wal.durable() >= record.end);
                    }
                    mine.push(record);
                }
                kept.lock().extend(mine);
            };
            spawn("appender", body).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    wal.sync_all().unwrap();
    let mut kept = std::mem::take(&mut *kept.lock());
    kept.sort_by_key(|record| record.start);
    assert!(kept.windows(2).all(|pair| pair[0].end == pair[1].start), "ranges are contiguous");
    assert_eq!((kept[0].start, kept[kept.len() - 1].end), (wal.first_lsn(), wal.end()));
    assert_eq!(recover(&disk).unwrap().0, kept);
    let stats = wal.stats();
    assert!(stats.segments > 2 && stats.syncs < 8 * 100 + 20, "commits share syncs: {stats:?}");
}

/// Rule A19 for the log: no write touches a sector that a sync has made durable.
#[test]
fn a19_a_durable_sector_is_never_written_again() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    let mut lone = 0;
    for i in 0..300u64 {
        let record = append(&wal, 1, &payload(i, (i * 37 % 900) as usize));
        match i % 5 {
            0 | 3 => wal.write_to(record.end).unwrap(),
            1 => wal.sync_to(record.end).unwrap(),
            _ => {}
        }
        let trimmed = wal.durable();
        if i % 50 == 49 {
            wal.trim(trimmed).unwrap();
        }
        lone += 1;
    }
    assert_eq!(lone, 300);
    assert_eq!(disk.violations(), Vec::<String>::new());
    assert!(wal.stats().recycled_segments > 0, "segments were used again: {:?}", wal.stats());
}

/// At rest the log keeps what is ready for the next records, and no more; records go on behind it.
#[test]
fn what_was_trimmed_is_given_back() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    let fill = |from: u64| {
        for i in from..from + 200 {
            let record = append(&wal, 1, &payload(i, 900));
            wal.sync_to(record.end).unwrap();
        }
    };
    fill(0);
    let full = wal.stats();
    wal.trim(wal.durable()).unwrap();
    let trimmed = wal.stats();
    assert!(trimmed.segment_files > trimmed.segments + trimmed.spare_segments, "nothing to give back: {trimmed:?}");
    assert!(wal.give_back().unwrap());
    let rest = wal.stats();
    assert_eq!(rest.segment_files, rest.segments + rest.spare_segments, "{rest:?}");
    assert!(rest.disk_bytes < full.disk_bytes, "{rest:?} after {full:?}");
    assert!(!wal.give_back().unwrap(), "there is nothing more");
    let behind = wal.end();
    fill(200);
    let end = wal.end();
    drop(wal);
    let records = recover_from(&disk, behind, ManifestMark::default()).unwrap().0;
    assert!(records.last().is_some_and(|last| last.end == end));
    assert_eq!(records.iter().filter(|record| record.start >= behind).count(), 200);
}

/// One that was begun is not gone on with while trimmed ones are used again: at rest it goes, too.
#[test]
fn a_segment_that_is_half_made_is_given_back() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    let half_made = || disk.list(Path::new("/")).unwrap().iter().filter(|name| name.ends_with(".tmp")).count();
    let others = |stats: &WalStats| stats.segments + stats.spare_segments;
    let mut i = 0;
    let mut add = || {
        i += 1;
        let record = append(&wal, 1, &payload(i, 900));
        wal.sync_to(record.end).unwrap();
    };
    (0..200).for_each(|_| add());
    while wal.prepare().unwrap() {}
    while !wal.prepare().unwrap() {
        add();
    }
    let begun = wal.stats();
    assert_eq!((half_made(), begun.segment_files), (1, others(&begun) + 1), "{begun:?}");
    wal.trim(wal.durable()).unwrap();
    while wal.prepare().unwrap() {}
    assert!(wal.stats().recycled_segments > begun.recycled_segments, "nothing was used again");
    assert_eq!(half_made(), 1, "something else was gone on with");
    assert!(wal.give_back().unwrap());
    let rest = wal.stats();
    assert_eq!((half_made(), rest.segment_files), (0, others(&rest)), "{rest:?}");
    let behind = wal.end();
    (0..200).for_each(|_| add());
    drop(wal);
    assert_eq!(recover_from(&disk, behind, ManifestMark::default()).unwrap().0.len(), 200);
}

/// Commits that are only handed to the system share blocks until a sync closes them.
#[test]
fn small_writes_share_a_block_until_a_sync() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    let offset_of_last_write = || match disk.events().into_iter().rev().find(|e| matches!(e, Event::Write { .. })) {
        Some(Event::Write { offset, .. }) => offset,
        _ => panic!("nothing was written"),
    };
    let mut offsets = Vec::new();
    for step in 0..4 {
        let record = append(&wal, 1, &[7; 40]);
        if step == 2 {
            wal.sync_to(record.end).unwrap()
        } else {
            wal.write_to(record.end).unwrap()
        }
        offsets.push(offset_of_last_write());
    }
    assert_eq!(offsets, [4096, 4096 + 128, 4096 + 256, 8192]);
    assert_eq!(recover(&disk).unwrap().0.len(), 4);
}

#[test]
fn a_full_ring_is_written_out_by_whoever_needs_room() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    let kept: Vec<Kept> = (0..200).map(|i| append(&wal, 3, &payload(i, 600))).collect();
    assert!(wal.written() > wal.first_lsn() && wal.end().0 - wal.written().0 <= SMALL.ring_bytes);
    assert!(wal.stats().room_waits > 0);
    wal.sync_all().unwrap();
    assert_eq!(recover(&disk).unwrap().0, kept);
}

#[test]
fn relief_writes_before_the_ring_is_full() {
    let wal = fresh(&Disk::new(), WalOptions { segment_bytes: 1 << 20, ..SMALL });
    for i in 0..100 {
        append(&wal, 3, &payload(i, 500));
        wal.relieve().unwrap();
    }
    assert!(wal.written() > wal.first_lsn());
    assert_eq!(wal.stats().room_waits, 0);
}

#[test]
fn a_grant_that_is_dropped_or_not_used_up_gives_its_room_back() {
    let wal = fresh(&Disk::new(), WalOptions { segment_bytes: 1 << 20, ..SMALL });
    for _ in 0..100 {
        drop(wal.reserve_space(8000).unwrap());
        let grant = wal.reserve_space(8000).unwrap();
        wal.append(grant, RecordKind(1), b"short");
    }
    assert_eq!(wal.stats().room_waits, 0);
    assert!(matches!(wal.reserve_space(8185), Err(Fault::Limit { .. })));
    assert!(wal.reserve_space(wal.payload_bytes_max()).is_ok());
}

/// A grant waits for room that another thread's grant holds, and gets it when that one is dropped.
#[test]
fn a_waiter_gets_the_room_of_a_dropped_grant() {
    let wal = fresh(&Disk::new(), SMALL);
    let first = wal.reserve_space(8000).unwrap();
    let second = wal.reserve_space(8000).unwrap();
    let got = Arc::new(AtomicBool::new(false));
    let waiter = {
        let (wal, got) = (wal.clone(), got.clone());
        spawn("waiter", move || {
            append(&wal, 1, &[1; 4000]);
            got.store(true, Ordering::SeqCst);
        })
        .unwrap()
    };
    sleep(Duration::from_millis(20));
    assert!(!got.load(Ordering::SeqCst), "there is no room");
    drop(first);
    waiter.join().unwrap();
    drop(second);
}

/// Rule B7: a full disk shows in the grant, as an ordinary error; the reserve is for those who must not fail.
#[test]
fn a_full_disk_refuses_grants_and_nothing_else() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    disk.set_full(true);
    let mut kept = Vec::new();
    let fault = loop {
        match wal.reserve_space(1000) {
            Ok(grant) => {
                let (start, end) = wal.append(grant, RecordKind(1), &[5; 1000]);
                kept.push(Kept { start, end, kind: RecordKind(1), payload: vec![5; 1000] });
                wal.sync_to(end).unwrap();
            }
            Err(fault) => break fault,
        }
    };
    assert!(matches!(fault, Fault::NoSpace { .. }), "{fault}");
    assert!(kept.len() > 5);
    let grant = wal.reserve_space_privileged(1000).expect("the reserve is kept for this");
    let (start, end) = wal.append(grant, RecordKind(2), &[6; 1000]);
    wal.sync_to(end).unwrap();
    kept.push(Kept { start, end, kind: RecordKind(2), payload: vec![6; 1000] });
    disk.set_full(false);
    kept.push(append(&wal, 3, &[7; 1000]));
    wal.sync_all().unwrap();
    assert_eq!(recover(&disk).unwrap().0, kept);
}

#[test]
fn segments_are_made_ahead_and_used_again() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    while wal.prepare().unwrap() {}
    assert_eq!(wal.stats().spare_segments, 1, "a segment of space beside the reserve is ready: {:?}", wal.stats());
    for i in 0..2000 {
        let record = append(&wal, 1, &payload(i, 700));
        if i % 10 == 0 {
            wal.sync_to(record.end).unwrap();
            wal.trim(record.start).unwrap();
            while wal.prepare().unwrap() {}
        }
    }
    let stats = wal.stats();
    assert!(stats.disk_bytes <= SMALL.capacity_bytes && stats.recycled_segments > 5, "{stats:?}");
    assert_eq!(disk.segment_names().len() as u64, stats.segment_files);
}

fn everybody_fails(disk: &Disk, wal: &Wal) {
    let acknowledged = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..8)
        .map(|t| {
            let (wal, acknowledged) = (wal.clone(), acknowledged.clone());
            let body = move || {
                for i in 0..200 {
                    let Ok(grant) = wal.reserve_space(500) else { break };
                    let (_, end) = wal.append(grant, RecordKind(1), &[t; 500]);
                    let is_synced = i % 2 == 0;
                    let done = if is_synced { wal.sync_to(end) } else { wal.write_to(end) };
                    if done.is_ok() && is_synced {
                        acknowledged.fetch_max(end.0, Ordering::SeqCst);
                    }
                }
                assert!(matches!(wal.reserve_space(1), Err(Fault::Poisoned(_))));
            };
            spawn("appender", body).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let durable = wal.durable();
    assert!(durable.0 >= acknowledged.load(Ordering::SeqCst));
    assert!(wal.sync_to(durable).is_ok() && wal.sync_all().is_err());
    let (found, end) = recover(&disk.copy()).unwrap();
    assert!(
        (end.end >= durable || durable == wal.first_lsn()) && found.iter().all(|record| record.payload.len() == 500)
    );
}

#[test]
fn after_a_failed_write_everybody_gets_the_fault_and_nobody_hangs() {
    for writes in [0, 1, 7, 30] {
        let disk = Disk::new();
        let wal = fresh(&disk, SMALL);
        disk.fail_write_after(writes);
        everybody_fails(&disk, &wal);
    }
}

#[test]
fn after_a_failed_sync_everybody_gets_the_fault_and_nobody_hangs() {
    for syncs in [0, 1, 5] {
        let disk = Disk::new();
        let wal = fresh(&disk, SMALL);
        disk.fail_sync_after(syncs);
        everybody_fails(&disk, &wal);
        assert_eq!(wal.durable() == wal.first_lsn(), syncs == 0);
    }
}

#[test]
fn positions_are_multiples_of_the_unit() {
    let wal = fresh(&Disk::new(), SMALL);
    let record = append(&wal, 1, b"x");
    assert_eq!((record.start, record.end), (Lsn(4096), Lsn(4112)));
}
