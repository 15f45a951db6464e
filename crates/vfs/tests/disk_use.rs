//! The simulated disk: that it works as a disk, and fails by plan.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use crate::common::{join_all, quiet, spawn};
use vfs::fault::{Action, Class, Gone, Rule};
use vfs::random::Rng;
use vfs::sim::{Config, DiskConfig, SimDisk, Simulation};
use vfs::{AlignedBuf, File, OpenHow, Vfs};

const NEW: OpenHow = OpenHow { write: true, create: true, create_new: false, direct: false };
const SECTOR: usize = 4096;

fn disk() -> SimDisk {
    SimDisk::new(DiskConfig::default())
}

/// A file whose name is durable.
fn file(disk: &SimDisk, path: &str) -> Arc<dyn File> {
    let file = disk.open(Path::new(path), NEW).expect("a new file");
    disk.sync_dir(Path::new("/")).expect("the root can be synced");
    file
}

fn contents(disk: &SimDisk, path: &str) -> Vec<u8> {
    disk.contents(Path::new(path)).expect("the file is there")
}

#[test]
fn agrees_with_a_vector_of_bytes() {
    for seed in 0..60 {
        let (disk, mut rng, mut model) = (disk(), Rng::new(seed), Vec::new());
        let file = file(&disk, "/a");
        for _ in 0..60 {
            let (offset, len) = (rng.index(30_000), rng.index(10_000));
            let end = offset + len;
            match rng.below(6) {
                0 => {
                    file.set_len(offset as u64).unwrap();
                    model.resize(offset, 0);
                }
                1 => {
                    file.punch(offset as u64, len as u64).unwrap();
                    let end = end.min(model.len());
                    model.get_mut(offset..end).into_iter().for_each(|part| part.fill(0));
                }
                2 if len > 0 => {
                    file.allocate(offset as u64, len as u64).unwrap();
                    model.resize(model.len().max(end), 0);
                }
                3 => file.sync().unwrap(),
                _ => {
                    let bytes = vec![rng.u64() as u8 | 1; len];
                    file.write_at(&bytes, offset as u64).unwrap();
                    if len > 0 {
                        model.resize(model.len().max(end), 0);
                        model[offset..end].copy_from_slice(&bytes);
                    }
                }
            }
            assert_eq!(file.len().unwrap(), model.len() as u64, "seed {seed}");
            let mut part = vec![9; len];
            match (model.get(offset..end), file.read_at(&mut part, offset as u64)) {
                (Some(expected), Ok(())) => assert_eq!(part, expected, "seed {seed}"),
                (None, Err(error)) => assert_eq!(error.kind(), ErrorKind::UnexpectedEof),
                (expected, result) => panic!("seed {seed}: {result:?}, expected {:?}", expected.map(<[u8]>::len)),
            }
        }
        assert_eq!(contents(&disk, "/a"), model);
        file.sync().unwrap();
        disk.power_cut(seed);
        assert_eq!(contents(&disk.reboot(), "/a"), model, "synced, so there; seed {seed}");
    }
}

#[test]
fn space_is_finite_and_allocation_keeps_its_word() {
    let disk = SimDisk::new(DiskConfig { capacity_bytes: 10 * SECTOR as u64, ..DiskConfig::default() });
    let (first, second) = (file(&disk, "/a"), file(&disk, "/b"));
    first.allocate(0, 6 * SECTOR as u64).unwrap();
    assert_eq!(second.allocate(0, 5 * SECTOR as u64).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(second.len().unwrap(), 0, "nothing happened");
    let full = second.write_at(&[1; 5 * SECTOR], 0).unwrap_err();
    assert_eq!((full.kind(), second.len().unwrap()), (ErrorKind::StorageFull, 4 * SECTOR as u64));
    assert_eq!(disk.free_bytes(Path::new("/")).unwrap(), 0);
    first.write_at(&[2; 6 * SECTOR], 0).expect("allocated before");
    first.punch(SECTOR as u64, 2 * SECTOR as u64).unwrap();
    assert_eq!(disk.free_bytes(Path::new("/")).unwrap(), 2 * SECTOR as u64);
    second.write_at(&[1; 6 * SECTOR], 0).unwrap();
    disk.remove(Path::new("/b")).unwrap();
    assert_eq!(disk.used_bytes(), 10 * SECTOR as u64, "still open");
    second.read_at(&mut [0; SECTOR], 0).expect("still readable");
    drop(second);
    assert_eq!(disk.used_bytes(), 4 * SECTOR as u64);
    first.set_len(1).unwrap();
    assert_eq!(disk.used_bytes(), SECTOR as u64);
    disk.set_capacity(SECTOR as u64);
    assert_eq!(first.write_at(&[1], SECTOR as u64).unwrap_err().kind(), ErrorKind::StorageFull);
}

/// After a failed sync a later one may report success and yet not have saved what the first one should have.
#[test]
fn a_failed_sync_may_lose_what_later_syncs_report_safe() {
    let lost = (0..40u64).filter(|seed| {
        let disk = SimDisk::new(DiskConfig::seed(*seed));
        let file = file(&disk, "/a");
        file.write_at(&[1; SECTOR], 0).unwrap();
        disk.faults().add(Rule::new(Action::Eio).on(Class::Sync));
        file.sync().unwrap_err();
        assert_eq!(contents(&disk, "/a"), [1; SECTOR], "readers still see it");
        file.sync().expect("the second one succeeds");
        disk.power_cut(0);
        contents(&disk.reboot(), "/a") != [1; SECTOR]
    });
    let lost = lost.count();
    assert!((2..38).contains(&lost), "{lost} of 40");
}

#[test]
fn a_failed_change_of_names_may_have_happened() {
    let outcomes: BTreeSet<_> = (0..40u64)
        .map(|seed| {
            let disk = SimDisk::new(DiskConfig::seed(seed));
            file(&disk, "/a");
            disk.faults().add(Rule::new(Action::Eio).on(Class::Rename).path("b"));
            disk.rename(Path::new("/a"), Path::new("/b")).unwrap_err();
            disk.list(Path::new("/")).unwrap()
        })
        .collect();
    assert_eq!(outcomes.into_iter().flatten().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn writes_that_lie_and_bits_that_rot() {
    let disk = disk();
    let file = file(&disk, "/a");
    file.write_at(&[0; 3 * SECTOR], 0).unwrap();
    disk.faults().add(Rule::new(Action::Lost).on(Class::Write));
    file.write_at(&[1; SECTOR], 0).unwrap();
    assert_eq!(contents(&disk, "/a"), [0; 3 * SECTOR]);
    disk.faults().add(Rule::new(Action::Misdirected(SECTOR as u64)).on(Class::Write));
    file.write_at(&[1; SECTOR], 0).unwrap();
    assert_eq!(contents(&disk, "/a"), [[0; SECTOR], [1; SECTOR], [0; SECTOR]].concat());
    disk.faults().add(Rule::new(Action::FlipBit).on(Class::Read));
    let mut buf = [0; SECTOR];
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!(buf.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
    file.sync().unwrap();
    disk.flip_bit(Path::new("/a"), 8 * 5 + 3).unwrap();
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!((buf[5], buf[6]), (8, 0));
    disk.power_cut(1);
    let next = disk.reboot();
    assert_eq!(contents(&next, "/a")[5], 8, "at rest");
    assert_eq!(next.flip_bit(Path::new("/a"), 1 << 40).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(next.flip_bit(Path::new("/b"), 0).unwrap_err().kind(), ErrorKind::NotFound);
    disk.faults().add(Rule::new(Action::Lost).on(Class::Sync));
}

#[test]
fn a_lost_sync_saves_nothing() {
    let disk = disk();
    let file = file(&disk, "/a");
    file.write_at(&[1; SECTOR], 0).unwrap();
    disk.faults().add(Rule::new(Action::Lost).on(Class::Sync));
    file.sync().unwrap();
    assert!(disk.unsynced() > 0);
    file.sync().unwrap();
    assert_eq!(disk.unsynced(), 0);
}

#[test]
fn direct_files_want_alignment() {
    let direct = OpenHow { direct: true, ..NEW };
    let disk = disk();
    let file = disk.open(Path::new("/a"), direct).unwrap();
    assert!(file.is_direct());
    let buf = AlignedBuf::zeroed(2 * SECTOR);
    file.write_at(&buf, 0).unwrap();
    for (part, offset) in [(&buf[..100], 0), (&buf[..SECTOR], 512), (&buf[8..8 + SECTOR], 0)] {
        assert_eq!(file.write_at(part, offset).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let buffered = SimDisk::new(DiskConfig { direct: false, ..DiskConfig::default() });
    let file = buffered.open(Path::new("/a"), direct).unwrap();
    assert!(!file.is_direct());
    file.write_at(b"odd", 1).unwrap();
}

#[test]
fn names_and_locks_follow_the_rules() {
    let disk = disk();
    let kind = |result: io::Result<()>| result.expect_err("not allowed").kind();
    assert_eq!(kind(disk.open(Path::new("/x/a"), NEW).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(disk.open(Path::new("/a"), OpenHow::default()).map(drop)), ErrorKind::NotFound);
    disk.create_dir_all(Path::new("/x")).unwrap();
    disk.open(Path::new("x/a"), OpenHow { create_new: true, ..NEW }).unwrap();
    assert_eq!(
        kind(disk.open(Path::new("/x/a"), OpenHow { create_new: true, ..NEW }).map(drop)),
        ErrorKind::AlreadyExists
    );
    assert_eq!(kind(disk.open(Path::new("/x"), NEW).map(drop)), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.rename(Path::new("/x/a"), Path::new("/a"))), ErrorKind::CrossesDevices);
    assert_eq!(kind(disk.create_dir_all(Path::new("/x/a/b"))), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.remove(Path::new("/x/b"))), ErrorKind::NotFound);
    let reader = disk.open(Path::new("/x/../x/./a"), OpenHow::default()).unwrap();
    assert_eq!(kind(reader.write_at(b"a", 0)), ErrorKind::PermissionDenied);
    let held = disk.lock(Path::new("/x/LOCK")).unwrap();
    assert_eq!(kind(disk.lock(Path::new("/x/LOCK")).map(drop)), ErrorKind::WouldBlock);
    drop(held);
    disk.lock(Path::new("/x/LOCK")).unwrap();
    assert_eq!(disk.list(Path::new("/x")).unwrap(), ["LOCK", "a"]);
}

/// A log of records of one sector: appends and syncs until the disk is gone, returns how many were acknowledged.
fn append_all(disk: &SimDisk, records: u8) -> u8 {
    let run = |acknowledged: &mut u8| -> io::Result<()> {
        let file = disk.open(Path::new("/log"), NEW)?;
        disk.sync_dir(Path::new("/"))?;
        for n in 0..records {
            file.write_at(&[n + 1; SECTOR], u64::from(n) * SECTOR as u64)?;
            file.sync()?;
            *acknowledged = n + 1;
        }
        Ok(())
    };
    let mut acknowledged = 0;
    if let Err(error) = run(&mut acknowledged) {
        assert!(Gone::is(&error), "{error}");
    }
    acknowledged
}

fn recovered(disk: &SimDisk) -> u8 {
    let bytes = disk.contents(Path::new("/log")).unwrap_or_default();
    let whole = |(n, sector): &(usize, &[u8])| *sector == [*n as u8 + 1; SECTOR];
    bytes.chunks(SECTOR).enumerate().take_while(whole).count() as u8
}

/// A cut at every operation, each with many outcomes: what was acknowledged is there.
#[test]
fn a_log_that_syncs_survives_a_cut_anywhere() {
    let mut more_than_acknowledged = 0;
    for n in 0.. {
        let disk = SimDisk::new(DiskConfig::seed(n));
        disk.faults().add(Rule::new(Action::PowerCut(n)).nth(n));
        let acknowledged = append_all(&disk, 6);
        if !disk.is_off() {
            assert_eq!(acknowledged, 6);
            break;
        }
        for seed in 0..50 {
            let found = recovered(&disk.reboot_as(seed));
            assert!(found >= acknowledged, "operation {n}, seed {seed}: {found} of {acknowledged}");
            more_than_acknowledged += u32::from(found > acknowledged);
        }
    }
    assert!(more_than_acknowledged > 0, "what was not synced survives too, now and then");
}

#[test]
fn a_simulation_with_a_disk_is_deterministic_and_its_trace_sees_contents() {
    let run = |seed: u64, byte: u8| {
        Simulation::new(seed, Config::default()).run(move |_| {
            let disk = SimDisk::new(DiskConfig::seed(seed));
            disk.faults().add(Rule::new(Action::Eio).on(Class::Write).nth(30));
            disk.faults().add(Rule::new(Action::PowerCut(seed)).nth(60));
            let threads: Vec<_> = (0..4u64)
                .map(|n| {
                    let disk = disk.clone();
                    spawn("writer", move || {
                        let write = || -> io::Result<()> {
                            let file = disk.open(Path::new(&format!("/{n}")), NEW)?;
                            for round in 0..10 {
                                file.write_at(&[byte; 3 * SECTOR], round * 100)?;
                                file.sync()?;
                            }
                            Ok(())
                        };
                        // A thread may be done before the cut; most meet the failing write or the cut.
                        let _ = write();
                    })
                })
                .collect();
            join_all(threads);
            let found = disk.reboot();
            found.files().into_iter().map(|(path, _)| (found.contents(&path).unwrap(), path)).collect::<Vec<_>>()
        })
    };
    for seed in 0..20 {
        assert_eq!(run(seed, 1), run(seed, 1), "seed {seed}");
        assert_ne!(run(seed, 1).trace_hash, run(seed, 2).trace_hash);
    }
}

/// A reader of several sectors may see half of a write that is going on.
#[test]
fn a_reader_may_see_half_a_write() {
    let failure = vfs::sim::explore(0..200, &quiet(), |sim| {
        let disk = SimDisk::new(DiskConfig::seed(sim.seed()));
        let file = file(&disk, "/a");
        file.write_at(&[1; 4 * SECTOR], 0).unwrap();
        let other = Arc::clone(&file);
        let writer = spawn("writer", move || other.write_at(&[2; 4 * SECTOR], 0).unwrap());
        let mut buf = [0; 4 * SECTOR];
        file.read_at(&mut buf, 0).unwrap();
        assert!(buf.iter().all(|byte| *byte == buf[0]), "half old, half new");
        join_all([writer]);
    });
    assert!(failure.expect_err("some seed shows it").message.contains("half old"));
}

#[test]
fn io_takes_simulated_time() {
    let report = Simulation::new(4, Config::default()).run(|_| {
        let file = file(&disk(), "/a");
        (0..100).for_each(|_| file.sync().unwrap());
    });
    let millis = report.elapsed.as_millis();
    assert!((10..200).contains(&millis), "100 syncs of about 0.3 ms took {millis} ms");
}
