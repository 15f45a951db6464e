//! The simulated disk: that it keeps what it promises over power cuts, and breaks the rest.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::common::{join_all, spawn};
use vfs::fault::Gone;
use vfs::sim::{Config, DiskConfig, SimDisk, Simulation};
use vfs::{File, OpenHow, Vfs};

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

/// Everything that is found in some of 500 cuts of what `body` did.
fn found_after<T: Ord>(body: impl Fn(&SimDisk), look: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    let disk = disk();
    body(&disk);
    disk.power_cut(0);
    (0..500).map(|seed| look(&disk.reboot_as(seed))).collect()
}

#[test]
fn what_was_synced_stays_and_what_was_not_may_be_anything() {
    let found = found_after(
        |disk| {
            let file = file(disk, "/a");
            file.write_at(&[1; 3 * SECTOR], 0).unwrap();
            file.sync().unwrap();
            file.write_at(&[2; SECTOR], SECTOR as u64).unwrap();
            file.write_at(&[3; SECTOR], SECTOR as u64).unwrap();
        },
        |disk| contents(disk, "/a"),
    );
    assert!(found.iter().all(|bytes| bytes[..SECTOR] == [1; SECTOR] && bytes[2 * SECTOR..] == [1; SECTOR]));
    for whole in [1, 2, 3] {
        assert!(found.iter().any(|bytes| bytes[SECTOR..2 * SECTOR] == [whole; SECTOR]), "{whole} never survived");
    }
    assert!(found.len() > 10, "the sector is torn in some cuts: {}", found.len());
}

#[test]
fn sectors_of_one_write_survive_one_by_one_and_later_writes_without_earlier_ones() {
    let found = found_after(
        |disk| {
            let file = file(disk, "/a");
            file.allocate(0, 4 * SECTOR as u64).unwrap();
            file.sync().unwrap();
            file.write_at(&[1; 2 * SECTOR], 0).unwrap();
            file.write_at(&[2; 2 * SECTOR], 2 * SECTOR as u64).unwrap();
        },
        |disk| {
            contents(disk, "/a").chunks(SECTOR).map(|sector| sector == [sector[0].max(1); SECTOR]).collect::<Vec<_>>()
        },
    );
    for wanted in [[true, false, true, true], [false, false, true, true], [true, true, false, false], [false; 4]] {
        assert!(found.contains(wanted.as_slice()), "{wanted:?} never came up");
    }
}

/// Rule A19: a sector that holds durable bytes and is written again may lose them.
#[test]
fn a19_appending_into_a_durable_sector_endangers_it() {
    let damaged = |start: u64| {
        let found = found_after(
            |disk| {
                let file = file(disk, "/a");
                file.write_at(&[1; 1000], 0).unwrap();
                file.sync().unwrap();
                file.write_at(&[2; 1000], start).unwrap();
            },
            |disk| contents(disk, "/a")[..1000] == [1; 1000],
        );
        found.contains(&false)
    };
    assert!(damaged(1000), "the tear of the second write damages the first");
    assert!(!damaged(SECTOR as u64), "on a fresh sector it cannot");
}

#[test]
fn lengths_survive_or_not() {
    let lengths = found_after(
        |disk| {
            let file = file(disk, "/a");
            file.write_at(&[1; 100], 0).unwrap();
            file.sync().unwrap();
            file.allocate(0, 3 * SECTOR as u64).unwrap();
            file.set_len(50).unwrap();
        },
        |disk| contents(disk, "/a").len(),
    );
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [50, 100, 3 * SECTOR]);
}

#[test]
fn names_are_durable_only_after_sync_dir() {
    let names = |disk: &SimDisk| disk.list(Path::new("/")).unwrap();
    let create = |disk: &SimDisk| {
        let file = disk.open(Path::new("/a"), NEW).unwrap();
        file.write_at(&[1; 10], 0).unwrap();
        file.sync().unwrap();
    };
    let found = found_after(create, names);
    assert_eq!(found.len(), 2, "there or not there: {found:?}");
    let found = found_after(
        |disk| {
            create(disk);
            disk.sync_dir(Path::new("/")).unwrap();
        },
        |disk| (names(disk), contents(disk, "/a")),
    );
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(vec!["a".to_owned()], vec![1; 10])]);
}

#[test]
fn a_sync_of_a_directory_promises_only_what_came_before_it() {
    for seed in 0..50 {
        Simulation::new(seed, Config::default()).run(move |sim| {
            let disk = SimDisk::new(DiskConfig::seed(seed));
            disk.open(Path::new("/before"), NEW).unwrap();
            let gate = sim.hold("io.sync_dir.busy");
            let other = disk.clone();
            let syncer = spawn("syncer", move || other.sync_dir(Path::new("/")).unwrap());
            gate.wait_reached();
            disk.open(Path::new("/while"), NEW).unwrap();
            gate.open();
            join_all([syncer]);
            disk.power_cut(0);
            let names: BTreeSet<_> = (0..50).map(|cut| disk.reboot_as(cut).files().len()).collect();
            assert_eq!(names.into_iter().collect::<Vec<_>>(), [1, 2], "seed {seed}");
        });
    }
}

#[test]
fn changes_of_names_survive_in_order() {
    let found = found_after(
        |disk| {
            file(disk, "/MANIFEST-1");
            disk.open(Path::new("/MANIFEST-2.tmp"), NEW).unwrap();
            disk.rename(Path::new("/MANIFEST-2.tmp"), Path::new("/MANIFEST-2")).unwrap();
            disk.remove(Path::new("/MANIFEST-1")).unwrap();
        },
        |disk| disk.list(Path::new("/")).unwrap().join(" "),
    );
    let expected = ["MANIFEST-1", "MANIFEST-1 MANIFEST-2", "MANIFEST-1 MANIFEST-2.tmp", "MANIFEST-2"];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_file_is_lost_with_its_directory() {
    let found = found_after(
        |disk| {
            disk.create_dir_all(Path::new("/x/y")).unwrap();
            disk.open(Path::new("/x/y/a"), NEW).unwrap();
            disk.sync_dir(Path::new("/x/y")).unwrap();
            disk.sync_dir(Path::new("/x")).unwrap();
        },
        |disk| disk.exists(Path::new("/x/y/a")).unwrap(),
    );
    assert_eq!(found.len(), 2, "x itself was never synced into the root");
}

#[test]
fn a_lost_removal_brings_the_contents_back() {
    let found = found_after(
        |disk| {
            let file = file(disk, "/a");
            file.write_at(&[7; 10], 0).unwrap();
            file.sync().unwrap();
            drop(file);
            disk.remove(Path::new("/a")).unwrap();
            assert_eq!(disk.used_bytes(), 0, "the space is free at once");
        },
        |disk| disk.contents(Path::new("/a")).ok(),
    );
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [None, Some(vec![7; 10])]);
}

#[test]
fn after_a_kill_all_is_there_but_not_yet_safe() {
    let disk = disk();
    let file = file(&disk, "/a");
    file.write_at(&[0; SECTOR], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[1; SECTOR], 0).unwrap();
    let lock = disk.lock(Path::new("/LOCK")).unwrap();
    disk.process_kill();
    assert!(Gone::is(&file.write_at(&[2; SECTOR], 0).unwrap_err()) && disk.is_off());
    let next = disk.reboot();
    assert_eq!(contents(&next, "/a"), [1; SECTOR]);
    next.lock(Path::new("/LOCK")).expect("the dead process holds no lock");
    drop(lock);
    next.power_cut(0);
    let found: BTreeSet<_> = (0..200).map(|seed| contents(&next.reboot_as(seed), "/a")).collect();
    assert!(found.contains([0; SECTOR].as_slice()) && found.contains([1; SECTOR].as_slice()), "still unsynced");
}

#[test]
fn a_cut_stops_everything_and_the_image_does_not_change() {
    let disk = disk();
    let open = file(&disk, "/a");
    open.write_at(&[1; 8 * SECTOR], 0).unwrap();
    disk.remove(Path::new("/a")).unwrap();
    disk.power_cut(9);
    disk.power_cut(10);
    let gone = |result: io::Result<()>| assert!(Gone::is(&result.expect_err("the power is off")));
    gone(open.sync());
    gone(open.read_at(&mut [0; 4], 0));
    gone(disk.open(Path::new("/a"), NEW).map(drop));
    gone(disk.remove(Path::new("/a")));
    gone(disk.sync_dir(Path::new("/")));
    let before = disk.reboot().contents(Path::new("/a")).ok();
    drop(open);
    let after = disk.reboot().contents(Path::new("/a")).ok();
    assert_eq!(before, after);
    assert_eq!(after, disk.reboot_as(9).contents(Path::new("/a")).ok(), "the first cut counts");
}

/// A write that comes while a sync runs is not promised by it; one that came before is.
#[test]
fn a_sync_promises_only_what_came_before_it() {
    let mut later_write_lost = 0;
    for seed in 0..300 {
        let run = Simulation::new(seed, Config::default()).run(move |_| {
            let disk = SimDisk::new(DiskConfig::seed(seed));
            let file = file(&disk, "/a");
            file.write_at(&[1; SECTOR], 0).unwrap();
            let other = Arc::clone(&file);
            let writer = spawn("writer", move || drop(other.write_at(&[2; SECTOR], SECTOR as u64)));
            file.sync().unwrap();
            let written_before_the_sync_returned = file.len().unwrap() > SECTOR as u64;
            disk.power_cut(seed);
            drop(writer);
            let found = contents(&disk.reboot(), "/a");
            assert_eq!(found[..SECTOR], [1; SECTOR]);
            written_before_the_sync_returned && found.get(SECTOR..) != Some(&[2; SECTOR])
        });
        later_write_lost += u32::from(run.value);
    }
    assert!(later_write_lost > 5, "{later_write_lost}");
}

/// However often a sector is rewritten while a sync runs, what it held when the sync began is safe.
#[test]
fn a_sync_keeps_its_promise_under_rewrites() {
    for seed in 0..100 {
        Simulation::new(seed, Config::default()).run(move |sim| {
            let disk = SimDisk::new(DiskConfig { torn_writes: false, ..DiskConfig::seed(seed) });
            let file = file(&disk, "/a");
            let version = move |disk: &SimDisk| contents(disk, "/a").first().copied().unwrap_or(0);
            (1..=5).for_each(|n| file.write_at(&[n; SECTOR], 0).unwrap());
            let gate = sim.hold("io.sync.busy");
            let other = Arc::clone(&file);
            let syncer = spawn("syncer", move || other.sync().unwrap());
            gate.wait_reached();
            (6..=30).for_each(|n| file.write_at(&[n; SECTOR], 0).unwrap());
            gate.open();
            join_all([syncer]);
            disk.power_cut(0);
            let found: BTreeSet<_> = (0..50).map(|cut| version(&disk.reboot_as(cut))).collect();
            assert!(found.first() >= Some(&5), "lost what was synced: {found:?}");
            assert!(found.first() < Some(&30), "what came while the sync ran is safe, but was not promised");
        });
    }
}
