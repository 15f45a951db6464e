//! What recovery accepts, what it refuses, and what it names.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use crate::support::{
    DATABASE, Dice, Disk, Kept, SMALL, append, corruption, fresh, next_life, open, payload, recover, recover_from,
};
use base::limits::SECTOR_BYTES;
use base::{Fault, Lsn};
use trefoil_wal::format::{Decoded, SegmentHeader};
use trefoil_wal::{DatabaseId, Incarnation, ManifestMark, SegmentId, Wal, WalOptions, WalStart};

const FIRST: &str = "wal-0000000001.log";

fn mark(durable: Lsn) -> ManifestMark {
    ManifestMark { durable, incarnation: Incarnation(1) }
}

/// A log of one segment with a frame in each block from the second on: `groups` synced one by one.
fn one_frame_a_block(disk: &Disk, groups: u64) -> (Wal, Vec<Kept>) {
    let wal = fresh(disk, SMALL);
    let mut kept = Vec::new();
    for i in 0..groups {
        kept.push(append(&wal, i as u8, &payload(i, 200)));
        wal.sync_all().unwrap();
    }
    (wal, kept)
}

/// Offset of the frame of record `i` in [`one_frame_a_block`].
fn frame_of(i: usize) -> usize {
    (i + 1) * SECTOR_BYTES
}

/// A log of groups of several records, some of them sharing a block, in one segment.
fn small_log(disk: &Disk) -> (Wal, Vec<Kept>) {
    let wal = fresh(disk, WalOptions { segment_bytes: 96 * 1024, ..SMALL });
    let mut kept = Vec::new();
    for i in 0..24u64 {
        kept.push(append(&wal, i as u8, &payload(i, (i * 53 % 400) as usize)));
        match i % 6 {
            1 | 3 => wal.write_to(wal.end()).unwrap(),
            5 => wal.sync_all().unwrap(),
            _ => {}
        }
    }
    // One compressed group at the end.
    kept.extend((0..6).map(|i| append(&wal, i, &[i; 900])));
    wal.sync_all().unwrap();
    (wal, kept)
}

fn used_bytes(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1)
}

#[test]
fn an_empty_directory_is_an_empty_log() {
    let (found, end) = recover_from(&Disk::new(), Lsn(64), ManifestMark::default()).unwrap();
    assert_eq!((found.len(), end.end, end.next_incarnation), (0, Lsn(64), Incarnation(1)));
    let fault = recover_from(&Disk::new(), Lsn(64), mark(Lsn(80))).unwrap_err();
    assert_eq!(corruption(fault), ("/".into(), 0));
}

#[test]
fn recovery_starts_where_it_is_asked_to() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    let kept: Vec<Kept> = (0..300).map(|i| append(&wal, 1, &payload(i, 900))).collect();
    wal.sync_all().unwrap();
    assert!(wal.stats().segments > 2);
    for first in [0, 1, 77, 78, 200, 299, 300] {
        let from = kept.get(first).map_or(wal.end(), |record| record.start);
        let (found, end) = recover_from(&disk, from, mark(wal.durable())).unwrap();
        assert_eq!((found, end.end), (kept[first..].to_vec(), wal.end()));
    }
}

#[test]
fn trimmed_segments_are_not_missed() {
    let disk = Disk::new();
    let wal = fresh(&disk, WalOptions { capacity_bytes: 0, ..SMALL });
    let kept: Vec<Kept> = (0..300).map(|i| append(&wal, 1, &payload(i, 900))).collect();
    wal.sync_all().unwrap();
    let before = disk.segment_names().len();
    wal.trim(kept[200].start).unwrap();
    assert!(disk.segment_names().len() < before, "files above the capacity are removed");
    assert_eq!(recover_from(&disk, kept[200].start, mark(wal.durable())).unwrap().0, kept[200..]);
    let fault = recover_from(&disk, kept[0].start, mark(wal.durable())).unwrap_err();
    assert!(matches!(fault, Fault::Corrupt(_)), "{fault}");
}

/// Cuts a small log at each of its bytes: what lies wholly before the cut is there, nothing else is, and with the
/// manifest's word for what was durable the loss is refused.
#[test]
fn a_tail_torn_at_any_byte_ends_the_log() {
    let disk = Disk::new();
    let (wal, kept) = small_log(&disk);
    let whole = disk.read(FIRST);
    let durable = kept[11].end;
    for cut in SECTOR_BYTES..used_bytes(&whole) {
        let mut torn = whole.clone();
        torn[cut..].fill(0);
        disk.overwrite(FIRST, torn);
        let (found, end) = recover(&disk).unwrap();
        assert_eq!(found, kept[..found.len()], "cut at {cut}");
        assert_eq!(end.end, found.last().map_or(Lsn::ZERO, |record| record.end));
        assert!(end.end < wal.end(), "cut at {cut}: something is lost");
        match recover_from(&disk, Lsn::ZERO, mark(durable)) {
            Ok((again, _)) => assert!(end.end >= durable && again == found),
            Err(fault) => {
                let (file, offset) = corruption(fault);
                assert!(end.end < durable && file == format!("/{FIRST}"));
                assert!(offset as usize <= cut.next_multiple_of(SECTOR_BYTES), "cut at {cut}: {offset}");
            }
        }
    }
    disk.overwrite(FIRST, whole);
    assert_eq!(recover(&disk).unwrap().0, kept);
}

/// Flips a bit in each byte of a log that is wholly below the manifest's mark.
#[test]
fn a_flipped_bit_below_the_mark_is_refused_or_harmless() {
    let disk = Disk::new();
    let (wal, kept) = small_log(&disk);
    let whole = disk.read(FIRST);
    let mut dice = Dice::new(11);
    let mut refused = 0;
    for at in 0..used_bytes(&whole) + SECTOR_BYTES {
        let mut bad = whole.clone();
        bad[at] ^= 1 << dice.roll(8);
        disk.overwrite(FIRST, bad);
        match recover_from(&disk, Lsn::ZERO, mark(wal.durable())) {
            Ok((found, end)) => assert_eq!((found, end.end), (kept.clone(), wal.end()), "byte {at}"),
            Err(fault) => {
                let (file, offset) = corruption(fault);
                assert!(file == format!("/{FIRST}") && offset as usize <= at, "byte {at}: {file} {offset}");
                refused += 1;
            }
        }
    }
    let stored: u64 = kept.iter().map(|record| record.end.0 - record.start.0).sum();
    assert!(refused > SECTOR_BYTES && refused as u64 > stored / 2, "{refused} of {stored}");
}

/// Rule A13 c: damage below a durable mark that is found later in the log, without the manifest's help.
#[test]
fn a13_c_a_bad_frame_below_a_later_mark_is_corruption() {
    let disk = Disk::new();
    let (_, kept) = one_frame_a_block(&disk, 6);
    let whole = disk.read(FIRST);
    for i in 0..6 {
        let mut bad = whole.clone();
        bad[frame_of(i) + 100] ^= 1;
        disk.overwrite(FIRST, bad);
        if i < 5 {
            // The next frame was written when this one was durable, and says so.
            assert_eq!(corruption(recover(&disk).unwrap_err()), (format!("/{FIRST}"), frame_of(i) as u64));
        } else {
            assert_eq!(recover(&disk).unwrap().0, kept[..5], "nobody can know better");
        }
    }
}

/// Rule A13 c, across lives: a later life has begun behind the frame and crashed before it wrote one of its own. That
/// it began there says that everything below was durable, to whoever has no manifest that says so.
#[test]
fn a13_c_a_bad_frame_below_a_later_life_is_corruption() {
    let disk = Disk::new();
    let (wal, kept) = one_frame_a_block(&disk, 3);
    let (found, end) = recover_from(&disk, Lsn::ZERO, mark(wal.durable())).unwrap();
    assert_eq!((&found, end.durable), (&kept, end.end));
    drop(wal);
    drop(open(&disk, SMALL, next_life(&end)));
    assert_eq!(recover(&disk).unwrap().0, kept);
    let mut bad = disk.read(FIRST);
    bad[frame_of(2) + 100] ^= 1;
    disk.overwrite(FIRST, bad);
    assert_eq!(corruption(recover(&disk).unwrap_err()), (format!("/{FIRST}"), frame_of(2) as u64));
}

/// Rule A13 c, the other half: a lost frame before an intact one is a normal crash if neither was durable.
#[test]
fn a13_c_a_bad_frame_before_a_good_one_may_be_a_normal_crash() {
    let disk = Disk::new();
    let (wal, kept) = one_frame_a_block(&disk, 2);
    append(&wal, 8, &payload(8, 5000));
    wal.write_to(wal.end()).unwrap();
    append(&wal, 9, &payload(9, 300));
    wal.write_to(wal.end()).unwrap();
    let mut torn = disk.read(FIRST);
    torn[frame_of(2)..frame_of(3)].fill(0);
    disk.overwrite(FIRST, torn);
    let (found, end) = recover_from(&disk, Lsn::ZERO, mark(wal.durable())).unwrap();
    assert_eq!((found, end.end), (kept, wal.durable()));
    assert!(end.next_first_lsn >= wal.end(), "above what the lost life wrote");
}

/// Rule A13 a: a torn record at X, an intact one behind it; the next life writes up to exactly where the intact
/// one starts, and crashes. The old record must not be replayed.
#[test]
fn a13_a_a_stale_tail_is_never_replayed() {
    let disk = Disk::new();
    let (wal, kept) = one_frame_a_block(&disk, 2);
    append(&wal, 0xbb, &payload(7, 5000));
    wal.write_to(wal.end()).unwrap();
    let stale = append(&wal, 0xcc, b"stale");
    wal.write_to(wal.end()).unwrap();
    drop(wal);
    let mut torn = disk.read(FIRST);
    torn[frame_of(2)..frame_of(3)].fill(0);
    disk.overwrite(FIRST, torn);

    let (_, end) = recover(&disk).unwrap();
    // The worst a next life could do is to continue at the very end.
    let start = WalStart { first_lsn: end.end, ..next_life(&end) };
    let second = open(&disk, SMALL, start);
    let mut all = kept;
    all.push(append(&second, 2, &payload(8, (stale.start.0 - end.end.0) as usize - 8)));
    assert_eq!(second.end(), stale.start, "the second life ends where the stale record starts");
    second.sync_all().unwrap();
    drop(second);
    let (found, end) = recover(&disk).unwrap();
    assert_eq!(found, all);
    assert_eq!((end.end, end.next_incarnation), (stale.start, Incarnation(3)));

    let third = open(&disk, SMALL, next_life(&end));
    all.push(append(&third, 3, b"third"));
    third.sync_all().unwrap();
    assert_eq!(recover(&disk).unwrap().0, all);
    assert!(third.first_lsn() > stale.end);
}

/// Rule A13 a, across segments: dead segments of an earlier life stay dead, whatever the next life does.
#[test]
fn a13_a_a_dead_segment_is_never_replayed() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    let mut all: Vec<Kept> = (0..5).map(|i| append(&wal, 1, &payload(i, 500))).collect();
    wal.sync_all().unwrap();
    (0..250).for_each(|i| drop(append(&wal, 0xdd, &payload(i, 500))));
    wal.write_to(wal.end()).unwrap();
    assert_eq!(wal.stats().segments, 2);
    drop(wal);
    let mut torn = disk.read(FIRST);
    torn[2 * SECTOR_BYTES..3 * SECTOR_BYTES].fill(0);
    disk.overwrite(FIRST, torn);
    for life in 2..6u32 {
        let (found, end) = recover(&disk).unwrap();
        assert_eq!((&found, end.next_incarnation), (&all, Incarnation(life)));
        let wal = open(&disk, SMALL, next_life(&end));
        if life % 2 == 0 {
            all.push(append(&wal, life as u8, b"of a later life"));
            wal.sync_all().unwrap();
        }
    }
    assert_eq!(recover(&disk).unwrap().0, all);
}

/// A tail that only the system's cache held is accepted after a process crash; a power cut in the next life must
/// not take it back.
#[test]
fn an_accepted_tail_is_durable_before_the_next_life_starts() {
    for seed in 0..50 {
        let disk = Disk::new();
        let (wal, mut kept) = one_frame_a_block(&disk, 2);
        kept.push(append(&wal, 3, &payload(3, 6000)));
        wal.write_to(wal.end()).unwrap();
        drop(wal);
        let (found, end) = recover(&disk).unwrap();
        assert_eq!(found, kept);
        let second = open(&disk, SMALL, next_life(&end));
        kept.push(append(&second, 4, b"builds on it"));
        second.sync_all().unwrap();
        let after = disk.after_power_cut(&mut Dice::new(seed));
        assert_eq!(recover(&after).unwrap().0, kept);
    }
}

/// Rule A13 d: positions count what was appended, not what is on disk.
#[test]
fn a13_d_positions_are_logical() {
    let disk = Disk::new();
    let wal = fresh(&disk, WalOptions { segment_bytes: 1 << 20, ring_bytes: 1 << 17, ..SMALL });
    let first = append(&wal, 1, &[0; 50_000]);
    wal.sync_all().unwrap();
    let second = append(&wal, 1, b"x");
    wal.sync_all().unwrap();
    assert_eq!((first.end.0 - first.start.0, second.start), (50_016, first.end));
    assert!(wal.stats().written_bytes < 10_000);
    assert_eq!(recover(&disk).unwrap().0, [first, second]);
}

/// Rule A13 b: no two frames have the same incarnation and number, over all lives and segments.
#[test]
fn a13_b_frame_numbers_never_repeat_within_a_life() {
    let disk = Disk::new();
    let mut start = WalStart::fresh(DATABASE);
    for _ in 0..3 {
        let wal = open(&disk, SMALL, start);
        for i in 0..40 {
            append(&wal, 1, &payload(i, 3000));
            wal.sync_all().unwrap();
        }
        assert!(wal.stats().segments > 1);
        start = next_life(&recover(&disk).unwrap().1);
    }
    let mut seen = std::collections::BTreeSet::new();
    for name in disk.segment_names() {
        let bytes = disk.read(&name);
        for header in bytes[SECTOR_BYTES..].chunks_exact(64).filter(|chunk| chunk.starts_with(b"TfWF")) {
            assert!(seen.insert(header[32..44].to_vec()), "number and incarnation are used twice in {name}");
        }
    }
    assert!(seen.len() >= 120);
}

#[test]
fn a_missing_segment_in_the_middle_is_named() {
    let disk = Disk::new();
    let wal = fresh(&disk, SMALL);
    for i in 0..300 {
        append(&wal, 1, &payload(i, 900));
        if i % 8 == 0 {
            wal.sync_all().unwrap();
        }
    }
    wal.sync_all().unwrap();
    let names = disk.segment_names();
    assert!(names.len() >= 4);
    for missing in 1..names.len() - 1 {
        let copy = disk.copy();
        vfs::Vfs::remove(&copy, &Path::new("/").join(&names[missing])).unwrap();
        let fault = recover(&copy).unwrap_err();
        assert!(fault.to_string().contains(&names[missing + 1]), "{fault}");
        assert_eq!(corruption(fault).0, format!("/{}", names[missing - 1]));
    }
    // The last one is missed if the manifest knows of it, the first one if it is asked for.
    let copy = disk.copy();
    vfs::Vfs::remove(&copy, &Path::new("/").join(names.last().unwrap())).unwrap();
    assert!(matches!(recover_from(&copy, Lsn::ZERO, mark(wal.durable())), Err(Fault::Corrupt(_))));
    let copy = disk.copy();
    vfs::Vfs::remove(&copy, &Path::new("/").join(&names[0])).unwrap();
    assert!(matches!(recover_from(&copy, wal.first_lsn(), ManifestMark::default()), Err(Fault::Corrupt(_))));
}

#[test]
fn a_truncated_segment_is_refused() {
    let disk = Disk::new();
    let _ = one_frame_a_block(&disk, 3);
    let whole = disk.read(FIRST);
    for len in [0, 100, SECTOR_BYTES, 2 * SECTOR_BYTES, whole.len() - 1, whole.len() + 4096] {
        let mut cut = whole.clone();
        cut.resize(len, 0);
        disk.overwrite(FIRST, cut);
        let fault = recover(&disk).unwrap_err();
        assert!(fault.to_string().contains("length of the log segment"), "{fault}");
    }
}

#[test]
fn another_database_is_refused() {
    let disk = Disk::new();
    let _ = one_frame_a_block(&disk, 3);
    let other = DatabaseId(*b"another database");
    let recovered =
        trefoil_wal::recover(&disk, Path::new("/"), other, Lsn::ZERO, ManifestMark::default(), &mut |_| Ok(()));
    let fault = recovered.unwrap_err();
    assert!(fault.to_string().contains("database of the log segment"), "{fault}");
    let start = WalStart { incarnation: Incarnation(9), ..WalStart::fresh(other) };
    let opened = Wal::open(disk.vfs(), Path::new("/"), SMALL, start, base::Poison::new());
    assert!(matches!(opened.err(), Some(Fault::Corrupt(_))));
}

#[test]
fn a_newer_format_is_named_as_such() {
    let disk = Disk::new();
    let _ = one_frame_a_block(&disk, 3);
    let mut bytes = disk.read(FIRST);
    bytes[8] = 2;
    bytes[12..16].fill(0);
    let crc = base::checksum::crc32c(&bytes[..SECTOR_BYTES]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    disk.overwrite(FIRST, bytes);
    let fault = recover(&disk).unwrap_err();
    assert!(matches!(fault, Fault::Format { found: 2, supported: 1, .. }), "{fault}");
}

/// A header that was damaged after its segment was in use: the frames behind it give it away.
#[test]
fn a_damaged_header_is_not_taken_for_a_spare() {
    let disk = Disk::new();
    let (wal, _) = one_frame_a_block(&disk, 3);
    let mut bytes = disk.read(FIRST);
    bytes[40] ^= 4;
    disk.overwrite(FIRST, bytes);
    let fault = recover_from(&disk, wal.first_lsn(), ManifestMark::default()).unwrap_err();
    assert!(matches!(fault, Fault::Corrupt(_)), "{fault}");
}

#[test]
fn an_old_life_under_a_new_one_is_refused_at_open() {
    let disk = Disk::new();
    let _ = one_frame_a_block(&disk, 1);
    let opened = Wal::open(disk.vfs(), Path::new("/"), SMALL, WalStart::fresh(DATABASE), base::Poison::new());
    assert!(matches!(opened.err(), Some(Fault::Corrupt(_))));
}

/// A spare made ahead by an earlier life is started by the next one instead of making a file.
#[test]
fn spares_of_an_earlier_life_are_used() {
    let disk = Disk::new();
    let (wal, _) = one_frame_a_block(&disk, 2);
    while wal.prepare().unwrap() {}
    assert_eq!(disk.segment_names().len(), 2);
    let (found, end) = recover_from(&disk, Lsn::ZERO, mark(wal.durable())).unwrap();
    drop(wal);
    assert_eq!(found.len(), 2);
    let wal = open(&disk, SMALL, next_life(&end));
    assert_eq!((disk.segment_names().len(), wal.stats().segment_files), (2, 2));
    let bytes = disk.read(&SegmentId(3).file_name());
    let Decoded::Valid(header) = SegmentHeader::decode(&bytes) else { panic!("a header") };
    assert_eq!((header.continues_at, header.incarnation), (end.end, Incarnation(2)));
}

#[test]
fn the_visitor_can_refuse() {
    let disk = Disk::new();
    let _ = one_frame_a_block(&disk, 3);
    let mut seen = 0;
    let recovered =
        trefoil_wal::recover(&disk, Path::new("/"), DATABASE, Lsn::ZERO, ManifestMark::default(), &mut |_| {
            seen += 1;
            if seen == 2 { Err(Fault::Unsupported("record".into())) } else { Ok(()) }
        });
    assert!(matches!(recovered, Err(Fault::Unsupported(_))));
    assert_eq!(seen, 2);
}
