//! Increments to backups: what they leave out, what they refuse, and that what is restored is what was there.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::*;
use trefoil::{CommitTs, Database, Error, Options};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::{Config, SimDisk, Simulation};
use vfs::{OpenHow, Vfs};

pub(crate) fn vfs_of(disk: &SimDisk) -> Arc<dyn Vfs> {
    Arc::new(disk.clone())
}

/// Entries that no codec makes much smaller.
pub(crate) fn noise(db: &Database, index: &str, keys: std::ops::Range<u32>, seed: u64) {
    let index = db.index(index).unwrap();
    let mut rng = vfs::random::Rng::new(seed);
    let keys: Vec<u32> = keys.collect();
    for some in keys.chunks(50) {
        let mut tx = db.begin().unwrap();
        for n in some {
            let value: Vec<u8> = (0..100).flat_map(|_| rng.u64().to_le_bytes()).collect();
            tx.put(&index, &n.to_be_bytes(), &value).unwrap();
        }
        tx.commit().unwrap();
    }
}

/// Bytes of blocks in a backup.
fn blocks(disk: &SimDisk, dir: &str) -> u64 {
    let of = |name: &str| {
        let path = format!("{dir}/{name}");
        let vfs = vfs_of(disk);
        vfs.open(Path::new(&path), OpenHow::default()).map_or(0, |file| file.len().unwrap())
    };
    of("data.trefoil") + of("extents.trefoil")
}

/// The database in its next life.
fn again(db: Database, disk: &SimDisk) -> Database {
    db.close().unwrap();
    drop(db);
    open(disk)
}

pub(crate) fn restored(disk: &SimDisk, backups: &[&str], to: &str) -> (CommitTs, Database) {
    let moment = Database::restore(backups, to, options(disk)).unwrap();
    let db = Database::open(to, Options { create: false, ..options(disk) }).unwrap();
    sound(&db);
    (moment, db)
}

pub(crate) fn refused(disk: &SimDisk, backups: &[&str], says: &str) {
    let error = Database::restore(backups, "/nowhere", options(disk)).unwrap_err();
    assert!(error.to_string().contains(says), "{backups:?}: {error}");
    let opened = Database::open("/nowhere", Options { create: false, ..options(disk) });
    assert!(matches!(opened, Err(Error::NotADatabase { .. })), "{backups:?}");
}

/// A full backup and four increments, through lives of the database, a new index, a dropped one, and checkpoints: each moment comes
/// back as it was, and of what was not written since nothing is copied. Guards: an extent's generation is that of its last
/// publication; a generation of another life counts for nothing; the newest backup that has an extent is taken.
#[test]
fn each_increment_shows_its_moment() {
    simulate(|_| {
        let disk = disk();
        let mut db = open(&disk);
        for name in ["still", "moves", "goes"] {
            index(&db, name);
            noise(&db, name, 0..600, 1);
        }
        let (mut dirs, mut moments, mut states) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..5u32 {
            let dir = format!("/copy/{round}");
            let moment = match dirs.last() {
                None => db.backup().to(&dir),
                Some(base) => db.backup().since(base).to(&dir),
            };
            moments.push(moment.unwrap());
            states.push(
                db.names().0.iter().map(|name| (name.clone(), all(&db, &db.index(name).unwrap()))).collect::<Vec<_>>(),
            );
            dirs.push(dir);
            noise(&db, "moves", round * 40..round * 40 + 60, u64::from(round) + 7);
            match round {
                0 => drop(index(&db, "comes")),
                1 => {
                    // A life ends.
                    noise(&db, "comes", 0..100, 3);
                    db = again(db, &disk);
                }
                2 => db.drop_index("goes").unwrap(),
                _ => noise(&db, "comes", 0..300, u64::from(round)),
            }
            (0..3).for_each(|_| db.checkpoint().unwrap());
        }
        for count in 1..=5 {
            let backups: Vec<&str> = dirs[..count].iter().map(String::as_str).collect();
            let (moment, copy) = restored(&disk, &backups, &format!("/restored/{count}"));
            assert_eq!(moment, moments[count - 1]);
            for (name, entries) in &states[count - 1] {
                assert_eq!(&all(&copy, &copy.index(name).unwrap()), entries, "{name} of {count}");
            }
            assert_eq!(copy.names().0.len(), states[count - 1].len());
        }
        let full = blocks(&disk, &dirs[0]);
        for dir in &dirs[1..] {
            let part = blocks(&disk, dir);
            assert!(part < full / 2, "{dir}: {part} bytes of blocks, {full} in the full backup");
        }
    });
}

/// Of blocks that nothing was written to the increment has none; in the life of the base they are not even read. Guard: the base's
/// generation is used.
#[test]
fn what_is_known_to_be_the_same_is_not_read() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        index(&db, "i");
        noise(&db, "i", 0..1000, 1);
        // Nothing is left to the background: what it writes beside the increment is read for it.
        db.settle().unwrap();
        db.checkpoint().unwrap();
        db.backup().to("/copy/full").unwrap();
        let data_cannot_be_read =
            || disk.faults().add(Rule::new(Action::Eio).on(Class::Read).path("/db/data.trefoil").forever());
        data_cannot_be_read();
        db.backup().since("/copy/full").to("/copy/same").unwrap();
        disk.faults().clear();
        let db = again(db, &disk);
        data_cannot_be_read();
        let error = db.backup().since("/copy/full").to("/copy/later").unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "another life knows nothing of the base's: {error}");
        disk.faults().clear();
        // Whoever else met the fault has found damage.
        let db = again(db, &disk);
        db.backup().since("/copy/full").to("/copy/later").unwrap();
        let total = blocks(&disk, "/copy/full");
        for increment in ["/copy/same", "/copy/later"] {
            assert!(blocks(&disk, increment) < total / 4, "{increment}: {} of {total}", blocks(&disk, increment));
            let (_, copy) = restored(&disk, &["/copy/full", increment], &increment.replace("copy", "restored"));
            assert_eq!(all(&copy, &copy.index("i").unwrap()), all(&db, &db.index("i").unwrap()));
        }
    });
}

/// While the base is copied, and while the increment is, writers write everything anew and checkpoints come: what was placed before
/// the base's manifest and published behind it is in the increment. Guard: a publication raises the extent's generation.
#[test]
fn what_is_written_beside_a_backup_is_in_the_next() {
    for seed in 0..12 {
        Simulation::new(seed, Config { steps_max: 20_000_000, ..Config::default() }).run(|sim| {
            let disk = disk();
            let small = Options { budget_bytes: 1 << 20, ..options(&disk) };
            let db = Database::open("/db", small).unwrap();
            index(&db, "i");
            noise(&db, "i", 0..400, 1);
            let done = Arc::new(AtomicBool::new(false));
            let writer = {
                let (db, done, seed) = (db.clone(), done.clone(), sim.seed());
                spawn("writer", move || {
                    for round in 0.. {
                        let from = (round * 37 + seed as u32 * 11) % 400;
                        noise(&db, "i", from..from + 30, u64::from(round) + 2);
                        if round % 3 == 0 {
                            db.checkpoint().unwrap();
                        }
                        if done.load(Ordering::SeqCst) {
                            return;
                        }
                    }
                })
            };
            db.backup().to("/copy/0").unwrap();
            for n in 1..4 {
                sleep(1);
                db.backup().since(&format!("/copy/{}", n - 1)).to(format!("/copy/{n}")).unwrap();
            }
            done.store(true, Ordering::SeqCst);
            writer.join().unwrap();
            // A full one of the same state, and an increment to it that shows the same.
            db.backup().since("/copy/3").to("/copy/4").unwrap();
            let (_, copy) = restored(&disk, &["/copy/0", "/copy/1", "/copy/2", "/copy/3", "/copy/4"], "/restored/4");
            assert_eq!(all(&copy, &copy.index("i").unwrap()), all(&db, &db.index("i").unwrap()));
            drop(restored(&disk, &["/copy/0", "/copy/1", "/copy/2"], "/restored/2"));
        });
    }
}

/// Guards: the chain is looked at, link by link; another database's is no base; a base that lived on is none.
#[test]
fn what_does_not_belong_together_is_refused() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        index(&db, "i");
        for (n, base) in [(0, None), (1, Some("/copy/0")), (2, Some("/copy/1")), (3, None), (4, Some("/copy/3"))] {
            noise(&db, "i", n * 10..n * 10 + 200, u64::from(n));
            let backup = db.backup();
            base.map_or(backup, |base| backup.since(base)).to(format!("/copy/{n}")).unwrap();
        }
        let other = Database::open("/other", options(&disk)).unwrap();
        other.backup().to("/copy/other").unwrap();
        refused(&disk, &["/copy/1"], "no full backup");
        refused(&disk, &["/copy/0", "/copy/2"], "one is missing between them");
        refused(&disk, &["/copy/0", "/copy/1", "/copy/4"], "different backups");
        refused(&disk, &["/copy/0", "/copy/2", "/copy/1"], "in the order in which they were made");
        refused(&disk, &["/copy/0", "/copy/3"], "holds a full backup");
        refused(&disk, &["/copy/other", "/copy/1"], "another database");
        refused(&disk, &["/db"], "no file BACKUP");
        refused(&disk, &[], "needs a backup");
        // An increment is no database, and nothing makes one of it.
        for create in [false, true] {
            let opened = Database::open("/copy/1", Options { create, ..options(&disk) });
            assert!(
                matches!(&opened, Err(Error::NotADatabase { why, .. }) if why.contains("incremental")),
                "{:?}",
                opened.err()
            );
        }
        let to_base = |base: &str, says: &str| {
            let error = db.backup().since(base).to("/copy/never").unwrap_err();
            assert!(error.to_string().contains(says), "{base}: {error}");
        };
        to_base("/copy/other", "another database");
        to_base("/db", "no file BACKUP");
        to_base("/nothing", "no file BACKUP");
        let lived_on = Database::open("/copy/3", options(&disk)).unwrap();
        for seed in 90..96 {
            noise(&lived_on, "i", 0..300, seed);
            lived_on.checkpoint().unwrap();
        }
        lived_on.close().unwrap();
        to_base("/copy/3", "opened as a database");
        refused(&disk, &["/copy/3", "/copy/4"], "opened since it was made");
        drop(restored(&disk, &["/copy/0", "/copy/1", "/copy/2"], "/restored/2"));
    });
}

/// A base that somebody opened to write, and that came to no checkpoint of its own, is as good as another database: an increment to it
/// would be found worthless when it is needed. One that is only read stays what it was. Guard: the base's log is looked at.
#[test]
fn a_base_that_was_opened_and_not_checkpointed_is_refused() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        index(&db, "i");
        noise(&db, "i", 0..300, 1);
        db.backup().to("/copy/0").unwrap();
        drop(Database::open("/copy/0", Options { read_only: true, ..options(&disk) }).unwrap());
        db.backup().since("/copy/0").to("/copy/1").unwrap();
        disk.faults().add(Rule::new(Action::Eio).on(Class::Write).path("/copy/0/MANIFEST").forever());
        Database::open("/copy/0", options(&disk)).map(|copy| noise(&copy, "i", 0..10, 2)).ok();
        assert!(disk.faults().fired() > 0, "no checkpoint was kept from it");
        disk.faults().clear();
        let error = db.backup().since("/copy/0").to("/copy/2").unwrap_err();
        assert!(error.to_string().contains("opened as a database"), "{error}");
    });
}

/// Each file of the base and of the increment, cut, changed in one byte, or gone: told, by its name, or of no account. Guards: the
/// sums of extents and of files are looked at; the description has a checksum.
#[test]
fn damage_anywhere_is_told() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        index(&db, "i");
        noise(&db, "i", 0..300, 1);
        db.checkpoint().unwrap();
        db.backup().to("/copy/0").unwrap();
        noise(&db, "i", 100..200, 2);
        db.checkpoint().unwrap();
        noise(&db, "i", 200..210, 3);
        db.backup().since("/copy/0").to("/copy/1").unwrap();
        let vfs = vfs_of(&disk);
        let (mut tried, mut told) = (0, 0);
        let mut rng = vfs::random::Rng::new(5);
        for dir in ["/copy/1", "/copy/0"] {
            for below in ["", "/wal", "/runs"] {
                for name in vfs.list(Path::new(&format!("{dir}{below}"))).unwrap() {
                    if name == "wal" || name == "runs" {
                        continue;
                    }
                    let path = format!("{dir}{below}/{name}");
                    let how = OpenHow { write: true, ..OpenHow::default() };
                    let Ok(file) = vfs.open(Path::new(&path), how) else { continue };
                    let mut whole = vec![0; file.len().unwrap() as usize];
                    file.read_at(&mut whole, 0).unwrap();
                    for _ in 0..6 {
                        let at = rng.below(whole.len() as u64);
                        file.write_at(&[whole[at as usize] ^ 1], at).unwrap();
                        tried += 1;
                        match Database::restore(&["/copy/0", "/copy/1"], "/nowhere", options(&disk)) {
                            Err(Error::Corrupt(why)) => {
                                assert!(why.to_string().contains(&path), "{path} at {at}: {why}");
                                told += 1;
                            }
                            Err(other) => panic!("{path} at {at}: {other}"),
                            // What the increment has anew, and the base's own log, nobody needs.
                            Ok(_) => {
                                assert!(dir == "/copy/0", "{path} at {at}");
                                let copy = Database::open("/nowhere", options(&disk)).unwrap();
                                assert_eq!(all(&copy, &copy.index("i").unwrap()), all(&db, &db.index("i").unwrap()));
                                copy.close().unwrap();
                                remove_all(&vfs, "/nowhere");
                            }
                        }
                        file.write_at(&[whole[at as usize]], at).unwrap();
                    }
                }
            }
        }
        assert!(told * 3 > tried && told > 12, "{told} of {tried}");
        for gone in ["/copy/1/extents.trefoil", "/copy/0/data.trefoil", "/copy/1/BACKUP", "/copy/0/BACKUP"] {
            vfs.rename(Path::new(gone), Path::new(&format!("{gone}.away"))).unwrap();
            let error = Database::restore(&["/copy/0", "/copy/1"], "/nowhere", options(&disk)).unwrap_err();
            assert!(error.to_string().contains(gone.rsplit('/').next().unwrap()), "{gone}: {error}");
            vfs.rename(Path::new(&format!("{gone}.away")), Path::new(gone)).unwrap();
        }
        drop(restored(&disk, &["/copy/0", "/copy/1"], "/restored"));
    });
}

fn remove_all(vfs: &Arc<dyn Vfs>, dir: &str) {
    for dir in [format!("{dir}/wal"), format!("{dir}/runs"), dir.to_owned()] {
        for name in vfs.list(Path::new(&dir)).unwrap() {
            let _ = vfs.remove(&Path::new(&dir).join(name));
        }
    }
}

/// Each write and each sync of an increment, and of a restore, fails once, also for want of space: what is left is neither a backup nor
/// a database, and the same place is good for the next try. Guards: the description is written last; what was copied is removed.
#[test]
fn what_is_cut_short_is_nothing() {
    for (action, class) in
        [(Action::Eio, Class::Write), (Action::StorageFull, Class::Write), (Action::Eio, Class::Sync)]
    {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            index(&db, "i");
            noise(&db, "i", 0..300, 1);
            db.backup().to("/copy/0").unwrap();
            noise(&db, "i", 0..100, 2);
            db.checkpoint().unwrap();
            let cut = |path: &str, what: &mut dyn FnMut() -> Result<CommitTs, Error>| {
                for nth in 1.. {
                    let fired = disk.faults().fired();
                    disk.faults().add(Rule::new(action).on(class).path(path).nth(nth));
                    let done = what();
                    if disk.faults().fired() == fired {
                        disk.faults().clear();
                        done.unwrap();
                        assert!(nth > 2, "several were failed");
                        return;
                    }
                    let error = done.unwrap_err();
                    if matches!(action, Action::StorageFull) {
                        assert!(matches!(error, Error::DiskFull { .. } | Error::Io { .. }), "{error}");
                    }
                    let opened = Database::open(path, Options { create: false, ..options(&disk) });
                    assert!(matches!(opened, Err(Error::NotADatabase { .. })), "after {nth}");
                    let found = Database::restore(&["/copy/0", path], "/nowhere", options(&disk));
                    assert!(matches!(found, Err(Error::InvalidArgument(_))), "after {nth}: {found:?}");
                }
            };
            cut("/copy/1", &mut || db.backup().since("/copy/0").to("/copy/1"));
            cut("/restored", &mut || Database::restore(&["/copy/0", "/copy/1"], "/restored", options(&disk)));
            let copy = Database::open("/restored", options(&disk)).unwrap();
            assert_eq!(all(&copy, &copy.index("i").unwrap()), all(&db, &db.index("i").unwrap()));
            sound(&copy);
            sound(&db);
        });
    }
}

/// Each operation of a class, or of all, that a copy needs at `what` fails once.
fn each_fails_at(what: &str, action: Action, class: Option<Class>) {
    let disk = disk();
    let quiet = Options { inline_batch_bytes: 600, background: false, ..options(&disk) };
    let db = Database::open("/db", quiet).unwrap();
    index(&db, "i");
    noise(&db, "i", 0..100, 1);
    let make = |to: &str| match to {
        "/copy/0" => db.backup().rate_bytes(u64::MAX).to(to),
        "/copy/1" => db.backup().rate_bytes(u64::MAX).since("/copy/0").to(to),
        _ => Database::restore(&["/copy/0", "/copy/1"], to, options(&disk)),
    };
    for before in ["/copy/0", "/copy/1"].iter().take_while(|before| **before != what) {
        noise(&db, "i", 0..10, 2);
        make(before).unwrap();
    }
    for nth in 0.. {
        if what != "/restored" {
            // In a run file.
            noise(&db, "i", 0..2, 3 + nth);
            db.settle().unwrap();
        }
        let fired = disk.faults().fired();
        let rule = Rule::new(action).path(what).nth(nth);
        disk.faults().add(class.map_or(rule.clone(), |class| rule.on(class)));
        let done = make(what);
        let has_fired = disk.faults().fired() > fired;
        disk.faults().clear();
        let shown = format!("{what}, {action:?} at operation {nth} of {class:?}: {done:?}");
        if !has_fired {
            done.expect(&shown);
            assert!(nth > 0 || class == Some(Class::Allocate), "nothing was tried: {shown}");
            break;
        }
        let error = done.expect_err(&shown);
        assert!(class.is_none() || matches!(error, Error::DiskFull { .. }), "{shown}");
        for dir in [what.to_owned(), format!("{what}/wal"), format!("{what}/runs")] {
            let left = vfs_of(&disk).list(Path::new(&dir)).unwrap_or_default();
            assert!(left.iter().all(|name| dir == what && (name == "wal" || name == "runs")), "{shown}: {left:?}");
        }
    }
    if what != "/copy/1" {
        sound(&Database::open(what, Options { create: false, ..options(&disk) }).unwrap());
    }
    sound(&db);
}

/// Whichever operation of a full backup, of an increment or of a restore fails, the first one too: nothing is left, and the same place is
/// good for the next try. If it is for want of space, that is told, whatever was written. Guards: the mark goes when what comes behind it
/// fails; run files, the header and what is synced are looked at as blocks are.
#[test]
fn whichever_operation_fails_the_same_place_is_good_for_the_next_try() {
    let growing = [
        Class::Open,
        Class::Write,
        Class::Sync,
        Class::SetLen,
        Class::Allocate,
        Class::Rename,
        Class::CreateDir,
        Class::SyncDir,
    ];
    let mut cases: Vec<_> = growing.map(|class| (Action::StorageFull, Some(class))).into();
    cases.push((Action::Eio, None));
    for (action, class) in cases {
        for what in ["/copy/0", "/copy/1", "/restored"] {
            simulate(move |_| each_fails_at(what, action, class));
        }
    }
}

/// The power is cut at each write of a full backup, of an increment and of a restore: what is left is no database, also not for who would
/// create one there, or it is all there. Guard: the mark.
#[test]
fn nothing_is_created_where_a_copy_was_cut_short() {
    for what in ["/copy/0", "/copy/1", "/restored"] {
        for nth in 1.. {
            let disk = disk();
            let (cut, cut_at) = (disk.clone(), what);
            Simulation::new(nth, Config { steps_max: 20_000_000, ..Config::default() }).run(move |_| {
                let db = open(&cut);
                index(&db, "i");
                noise(&db, "i", 0..100, 1);
                cut.faults().add(Rule::new(Action::PowerCut(nth)).on(Class::Write).path(cut_at).nth(nth));
                let done = db.backup().to("/copy/0");
                let done = done.and_then(|_| db.backup().since("/copy/0").to("/copy/1"));
                let _ = done.and_then(|_| Database::restore(&["/copy/0", "/copy/1"], "/restored", options(&cut)));
                drop(db);
            });
            if disk.faults().fired() == 0 {
                assert!(nth > 2, "{what}: several were cut");
                break;
            }
            let left = disk.reboot();
            simulate(move |_| {
                if !vfs_of(&left).exists(Path::new(what)).unwrap()
                    || vfs_of(&left).list(Path::new(what)).unwrap().is_empty()
                {
                    return;
                }
                let opened = Database::open(what, Options { create: true, ..options(&left) });
                assert!(matches!(&opened, Err(Error::NotADatabase { .. })), "{what}, write {nth}: {:?}", opened.err());
            });
        }
    }
}

/// What others do in the directory of a backup that is being made does not matter to it. Guard: only what who lets the moment come
/// writes belongs to it.
#[test]
fn what_others_put_beside_a_backup_does_not_matter() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        index(&db, "i");
        noise(&db, "i", 0..100, 1);
        let vfs = vfs_of(&disk);
        let write = |name: &str| {
            let how = OpenHow { write: true, create: true, ..OpenHow::default() };
            vfs.open(Path::new(name), how).unwrap().write_at(b"7", 0).unwrap();
        };
        let is_first = std::cell::Cell::new(true);
        let look = |_: trefoil::BackupProgress| {
            if is_first.replace(false) {
                vfs.create_dir_all(Path::new("/copy/0/frm")).unwrap();
                write("/copy/0/notes");
            }
            std::ops::ControlFlow::Continue(())
        };
        let around = |moment: &mut trefoil::BackupMoment<'_>| {
            moment.come();
            assert!(moment.wait());
            write("/copy/0/place");
            std::ops::ControlFlow::Continue(())
        };
        db.backup().watch(&look).moment(&around).to("/copy/0").unwrap();
        vfs.remove(Path::new("/copy/0/notes")).unwrap();
        let (_, copy) = restored(&disk, &["/copy/0"], "/restored");
        assert_eq!(all(&copy, &copy.index("i").unwrap()), all(&db, &db.index("i").unwrap()));
        assert!(vfs.exists(Path::new("/restored/place")).unwrap());
    });
}
