//! Backups where little is left to chance: a log that reaches back over lives, a source whose disk is full, a copy that lives on, a place
//! in which one was cut short; and what is given back when one is over.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crate::increments::{noise, refused, restored, vfs_of};
use crate::support::*;
use trefoil::{BackupProgress, CommitTs, Database, Durability, Error, Index, Options};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::{Config, Gate, SimDisk, Simulation};
use vfs::thread::JoinHandle;
use vfs::time::Instant;

const XID: &[u8] = b"order 7";

fn contents(db: &Database, name: &str) -> Entries {
    all(db, &db.index(name).unwrap())
}

/// A backup that stands still while it copies, until the gate is opened.
fn held_backup(sim: &vfs::sim::Handle, db: &Database, to: &str) -> (Gate, JoinHandle<Result<CommitTs, Error>>) {
    let gate = sim.hold("backup.copying");
    let (db, to) = (db.clone(), to.to_owned());
    let backup = spawn("backup", move || db.backup().rate_bytes(u64::MAX).to(to));
    gate.wait_reached();
    (gate, backup)
}

/// What is prepared, and finds no room for run files in the life behind a power cut, keeps the log from the earlier life on. A copy of
/// that opens, as does an increment to it, and has what is prepared; also if nothing was written in this life. Guards: what a life
/// wrote is copied into a segment of its own; a life without a record ends where it begins.
#[test]
fn a_log_that_reaches_back_over_lives_is_copied() {
    for writes in [0, 3] {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let i = index(&db, "i");
            put(&db, &i, b"before", b"1", Durability::Sync).unwrap();
            let mut tx = db.begin().unwrap();
            tx.put(&i, b"prepared", b"2").unwrap();
            tx.prepare(XID).unwrap();
            put(&db, &i, b"behind", b"3", Durability::Sync).unwrap();
            drop(i);
            let disk = cut(&disk, db);
            for class in [Class::Write, Class::Allocate] {
                disk.faults().add(Rule::new(Action::StorageFull).on(class).path("/db/runs").forever());
            }
            let db = open(&disk);
            assert!(disk.faults().fired() > 0, "the set had room");
            let i = db.index("i").unwrap();
            (0..writes).for_each(|n| put(&db, &i, &[n], b"4", Durability::Sync).unwrap());
            db.backup().to("/copy/0").unwrap();
            put(&db, &i, b"increment", b"5", Durability::Sync).unwrap();
            db.backup().since("/copy/0").to("/copy/1").unwrap();
            for (backups, more) in [(&["/copy/0"][..], 0), (&["/copy/0", "/copy/1"], 1)] {
                let (_, copy) = restored(&disk, backups, &format!("/restored/{more}"));
                let i = copy.index("i").unwrap();
                assert_eq!(all(&copy, &i).len(), 2 + usize::from(writes) + more);
                copy.commit_prepared(XID).unwrap();
                assert_eq!(get(&copy, &i, b"prepared").unwrap(), b"2");
                sound(&copy);
            }
        });
    }
}

/// Run files and log that were kept for a backup go when it is over, though nobody writes any more and no checkpoint is due. Guard: what
/// was left for it is looked at.
#[test]
fn what_a_backup_kept_goes_when_it_is_over() {
    simulate(|sim| {
        let disk = disk();
        let db = Database::open("/db", Options { inline_batch_bytes: 600, ..options(&disk) }).unwrap();
        index(&db, "i");
        noise(&db, "i", 0..300, 1);
        (0..2).for_each(|_| db.settle().and_then(|()| db.checkpoint()).unwrap());
        let runs = |dir: &str| disk.files().iter().filter(|(path, _)| path.starts_with(format!("{dir}/runs"))).count();
        assert_eq!(runs("/db"), 0);
        let (gate, backup) = held_backup(sim, &db, "/copy");
        let i = db.index("i").unwrap();
        noise(&db, "i", 0..300, 2);
        (0..600u32).for_each(|n| put(&db, &i, &n.to_be_bytes(), &[n as u8; 500], Durability::Write).unwrap());
        (0..2).for_each(|_| db.settle().and_then(|()| db.checkpoint()).unwrap());
        let segments = db.stats().log.segments;
        assert!(runs("/db") > 3 && segments > 1, "{} run files, {segments} segments are kept", runs("/db"));
        gate.open();
        backup.join().unwrap().unwrap();
        sleep(60_000);
        let segments = db.stats().log.segments;
        assert!(runs("/db") == 0 && segments == 1, "{} run files, {segments} segments", runs("/db"));
        let (_, copy) = restored(&disk, &["/copy"], "/restored");
        assert_eq!(contents(&copy, "i"), contents(&db, "i"));
    });
}

/// `verify` looks at all files beside a backup, and what that holds stays held. Guards: it does not wait until definitions may change; each
/// who needs the log lets go for himself.
#[test]
fn verify_does_not_wait_for_a_backup() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        noise(&db, "i", 0..300, 1);
        let (gate, backup) = held_backup(sim, &db, "/copy");
        let verify = {
            let db = db.clone();
            spawn("verify", move || sound(&db))
        };
        let began = Instant::now();
        while !verify.is_finished() && began.elapsed() < Duration::from_secs(20) {
            sleep(10);
        }
        let waited = (!verify.is_finished()).then(|| began.elapsed());
        // Several times what the log keeps: the copy needs it from its manifest on.
        for n in 0..1_000u32 {
            put(&db, &i, &n.to_be_bytes(), &[n as u8; 2_000], Durability::Write).unwrap();
        }
        db.checkpoint().unwrap();
        gate.open();
        backup.join().unwrap().unwrap();
        verify.join().unwrap();
        assert_eq!(waited, None, "it waits for the backup");
        let (_, copy) = restored(&disk, &["/copy"], "/restored");
        assert_eq!(contents(&copy, "i"), contents(&db, "i"));
    });
}

/// Writes everything anew, with checkpoints, until it is refused for want of space; how often that was done.
fn rewrite_until_full(db: &Database, rounds: u64) -> Option<u64> {
    let index = db.index("i").unwrap();
    for round in 0..rounds {
        let mut rng = vfs::random::Rng::new(round + 10);
        for n in 0..400u32 {
            let value: Vec<u8> = (0..100).flat_map(|_| rng.u64().to_le_bytes()).collect();
            match put(db, &index, &n.to_be_bytes(), &value, Durability::Write) {
                Ok(()) => {}
                Err(Error::DiskFull { .. }) => return Some(round),
                Err(error) => panic!("{error}"),
            }
        }
        match db.checkpoint() {
            Ok(()) | Err(Error::DiskFull { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    None
}

fn goes_on_writing(db: &Database, index: &Index, what: &str) {
    let began = Instant::now();
    while let Err(error) = put(db, index, b"again", b"1", Durability::Sync) {
        assert!(matches!(error, Error::DiskFull { .. }), "{what}: {error}");
        assert!(began.elapsed() < Duration::from_secs(20), "{what}: writes are refused");
        sleep(100);
    }
    assert_eq!(rewrite_until_full(db, 6), None, "{what}: what was held is usable again");
}

/// Beside a backup the data file comes to its limit, since what is copied is not written over: writers are told so, as without one, the
/// backup comes to its end, or is cancelled, and what it held is there for them, without a checkpoint that anybody asked for. Guard:
/// the pin ends with the copy of the blocks, however that ends.
#[test]
fn a_full_data_file_beside_a_backup() {
    for is_cancelled in [false, true] {
        simulate(move |sim| {
            let disk = disk();
            let limited = Options { budget_bytes: 1 << 20, data_bytes_max: Some(4 << 20), ..options(&disk) };
            let db = Database::open("/db", limited.clone()).unwrap();
            let i = index(&db, "i");
            assert_eq!(rewrite_until_full(&db, 6), None, "without a backup there is room");
            let gate = sim.hold("backup.copying");
            let backup = {
                let db = db.clone();
                spawn("backup", move || {
                    let look = |at: BackupProgress| match is_cancelled && at.copied_bytes > at.total_bytes / 2 {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    };
                    db.backup().rate_bytes(u64::MAX).watch(&look).to("/copy")
                })
            };
            gate.wait_reached();
            assert!(rewrite_until_full(&db, 60).is_some(), "nothing is held");
            let before = contents(&db, "i");
            gate.open();
            let done = backup.join().unwrap();
            assert!(if is_cancelled { matches!(done, Err(Error::Cancelled)) } else { done.is_ok() }, "{done:?}");
            goes_on_writing(&db, &i, "behind the backup");
            if !is_cancelled {
                let (_, copy) = restored(&disk, &["/copy"], "/restored");
                assert_eq!(contents(&copy, "i"), before);
            }
            drop(i);
            let disk = cut(&disk, db);
            let db = Database::open("/db", Options { vfs: vfs_of(&disk), ..limited }).unwrap();
            sound(&db);
        });
    }
}

/// The disk that has both becomes full by the copy: the backup ends, what it copied goes, and writers go on by themselves. Guard: what was
/// copied is removed.
#[test]
fn a_backup_that_fills_the_disk_of_its_source() {
    for base in [None, Some("/copy/0")] {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let i = index(&db, "i");
            noise(&db, "i", 0..600, 1);
            db.backup().to("/copy/0").unwrap();
            noise(&db, "i", 0..600, 2);
            db.settle().unwrap();
            db.checkpoint().unwrap();
            let used = disk.used_bytes();
            disk.set_capacity(used + (300 << 10));
            let backup = db.backup();
            let error = base.map_or(backup, |base| backup.since(base)).to("/copy/1").unwrap_err();
            assert!(matches!(&error, Error::DiskFull { .. }) && error.to_string().contains("/copy/1"), "{error}");
            let began = Instant::now();
            while put(&db, &i, b"again", b"1", Durability::Sync).is_err() {
                assert!(began.elapsed() < Duration::from_secs(20), "writes are refused");
                sleep(100);
            }
            disk.set_capacity(u64::MAX / 2);
            db.backup().since("/copy/0").to("/copy/1").unwrap();
            let (_, copy) = restored(&disk, &["/copy/0", "/copy/1"], "/restored");
            assert_eq!(contents(&copy, "i"), contents(&db, "i"));
            sound(&db);
        });
    }
}

/// A chain is restored, and both the database and the copy live on from there, at the same positions of the log, with the same generations.
/// An increment of either to a link of either leaves out what is the same byte by byte, and shows its own moment; a chain that is
/// mixed is refused. Guard: a generation of another life counts for nothing.
#[test]
fn a_copy_that_lives_on_and_its_original_have_chains_of_their_own() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        index(&db, "i");
        noise(&db, "i", 0..600, 1);
        db.backup().to("/copy/0").unwrap();
        noise(&db, "i", 0..100, 2);
        db.backup().since("/copy/0").to("/copy/1").unwrap();
        let (_, twin) = restored(&disk, &["/copy/0", "/copy/1"], "/twin");
        let mut wanted = Vec::new();
        let mut link = |of: &Database, base: &str, to: &str| {
            of.backup().since(base).to(to).unwrap();
            wanted.push((to.to_owned(), contents(of, "i")));
        };
        for (of, seed) in [(&db, 3), (&twin, 4)] {
            for n in 0..4 {
                noise(of, "i", n * 20..n * 20 + 200, u64::from(n) * 10 + seed);
                of.settle().unwrap();
                of.checkpoint().unwrap();
            }
        }
        link(&db, "/copy/1", "/copy/of-db");
        link(&twin, "/copy/1", "/copy/of-twin");
        noise(&db, "i", 300..340, 5);
        noise(&twin, "i", 320..360, 6);
        // Each to the other's.
        link(&twin, "/copy/of-db", "/copy/twin-of-db");
        link(&db, "/copy/of-twin", "/copy/db-of-twin");
        link(&db, "/copy/twin-of-db", "/copy/last");
        let chains: [&[&str]; 5] = [
            &["/copy/of-db"],
            &["/copy/of-twin"],
            &["/copy/of-db", "/copy/twin-of-db"],
            &["/copy/of-twin", "/copy/db-of-twin"],
            &["/copy/of-db", "/copy/twin-of-db", "/copy/last"],
        ];
        for (n, (chain, (to, entries))) in chains.into_iter().zip(&wanted).enumerate() {
            let backups: Vec<&str> = ["/copy/0", "/copy/1"].into_iter().chain(chain.iter().copied()).collect();
            assert_eq!(backups.last(), Some(&to.as_str()));
            let (_, copy) = restored(&disk, &backups, &format!("/restored/{n}"));
            assert_eq!(&contents(&copy, "i"), entries, "{backups:?}");
        }
        refused(&disk, &["/copy/0", "/copy/1", "/copy/of-twin", "/copy/twin-of-db"], "different backups");
        refused(&disk, &["/copy/0", "/copy/of-db"], "one is missing between them");
    });
}

/// What is made in a place, from what is there.
fn make(disk: &SimDisk, db: &Database, to: &str) -> Result<CommitTs, Error> {
    match to {
        "/copy/0" => db.backup().rate_bytes(u64::MAX).to(to),
        "/copy/1" => db.backup().rate_bytes(u64::MAX).since("/copy/0").to(to),
        _ => Database::restore(&["/copy/0", "/copy/1"], to, options(disk)),
    }
}

/// The power is cut in operation `nth` of making `what`. False if it has fewer.
fn cut_in(what: &'static str, nth: u64) -> bool {
    let disk = disk();
    let cut = disk.clone();
    Simulation::new(nth, Config { steps_max: 20_000_000, ..Config::default() }).run(move |_| {
        let db = Database::open("/db", Options { background: false, ..options(&cut) }).unwrap();
        index(&db, "i");
        noise(&db, "i", 0..100, 1);
        for to in ["/copy/0", "/copy/1", "/restored"] {
            if to == what {
                cut.faults().add(Rule::new(Action::PowerCut(nth)).path(what).nth(nth));
            }
            let done = make(&cut, &db, to);
            if to == what {
                break;
            }
            done.unwrap();
            noise(&db, "i", 0..20, 2);
        }
        drop(db);
    });
    if disk.faults().fired() == 0 {
        return false;
    }
    let left = disk.reboot();
    simulate(move |_| judge_cut(&left, what, &format!("{what}, operation {nth}")));
    true
}

/// What is left is nothing, or all of it, or refused by whoever comes upon it; and cleared it is as good as new.
fn judge_cut(disk: &SimDisk, what: &str, shown: &str) {
    let db = open(disk);
    let entries = contents(&db, "i");
    sound(&db);
    let vfs = vfs_of(disk);
    let names = vfs.list(Path::new(what)).unwrap_or_default();
    let is_free = names.iter().all(|name| name == "wal" || name == "runs");
    let described = names.iter().any(|name| name == "BACKUP");
    let opened = Database::open(what, Options { read_only: true, create: false, ..options(disk) });
    match &opened {
        Ok(copy) => assert_eq!(contents(copy, "i"), entries, "{shown}"),
        Err(error) => assert!(matches!(error, Error::NotADatabase { .. }), "{shown}: {error}"),
    }
    drop(opened);
    if what != "/restored" {
        let chain: &[&str] = if what == "/copy/0" { &["/copy/0"] } else { &["/copy/0", "/copy/1"] };
        let outcomes =
            [db.backup().since(what).to("/copy/next"), Database::restore(chain, "/elsewhere", options(disk))];
        for outcome in outcomes {
            match outcome {
                Ok(_) => assert!(described, "{shown}"),
                Err(error) => {
                    assert!(!described && matches!(error, Error::InvalidArgument(_)), "{shown}: {error}");
                }
            }
        }
        if described {
            let copy = Database::open("/elsewhere", options(disk)).unwrap();
            assert_eq!(contents(&copy, "i"), entries, "{shown}");
        }
    }
    let again = make(disk, &db, what);
    if !is_free {
        let error = again.unwrap_err();
        assert!(error.to_string().contains("empty or new directory"), "{shown}: {error}");
        assert_eq!(vfs.list(Path::new(what)).unwrap(), names, "{shown}");
        for dir in [format!("{what}/wal"), format!("{what}/runs"), what.to_owned()] {
            for name in vfs.list(Path::new(&dir)).unwrap_or_default() {
                let _ = vfs.remove(&Path::new(&dir).join(name));
            }
        }
        make(disk, &db, what).unwrap_or_else(|error| panic!("{shown}: {error}"));
    } else {
        again.unwrap_or_else(|error| panic!("{shown}: {error}"));
    }
    let backups: &[&str] = if what == "/copy/0" { &["/copy/0"] } else { &["/copy/0", "/copy/1"] };
    let (_, copy) = restored(disk, backups, "/again");
    assert_eq!(contents(&copy, "i"), entries, "{shown}");
}

/// Whichever operation of a full backup, of an increment or of a restore the power is cut in: the database is there, what is left of the copy
/// is no database and no base, or is whole, the place is refused untouched unless it is empty, and cleared it takes the next one.
/// Guards: the mark; the description and the header come last.
#[test]
fn whichever_operation_is_cut_short_nobody_takes_what_is_left_for_a_copy() {
    for what in ["/copy/0", "/copy/1", "/restored"] {
        let tried = (0..).take_while(|nth| cut_in(what, *nth)).count();
        assert!(tried > 20, "{what}: {tried} operations");
    }
}
