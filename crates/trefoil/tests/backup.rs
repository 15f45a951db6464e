//! Hot backups: under load, beside changes of definitions, cut short; each opened and looked at.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::*;
use trefoil::{Backup, CommitTs, Database, Durability, Error, Index, Options};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::{Config, DiskConfig, SimDisk, explore};
use vfs::sync::Mutex;
use vfs::time::Instant;

/// Commits by timestamp: which transaction.
type Commits = Arc<Mutex<BTreeMap<CommitTs, u64>>>;

/// Transaction `n`: eight entries in each of two indexes, over those of an earlier transaction.
fn write(db: &Database, indexes: &[Index; 2], writer: u64, n: u64) -> Result<CommitTs, Error> {
    let mut tx = db.begin()?;
    for index in indexes {
        for i in 0..8 {
            let key = format!("{writer}/{:03}", (n * 5 + i) % 100);
            tx.put(index, key.as_bytes(), format!("{n:06}/{}", "x".repeat((n % 40) as usize)).as_bytes())?;
        }
    }
    tx.commit_with(if n.is_multiple_of(3) { Durability::Sync } else { Durability::Buffered })
}

/// What the database holds once `commits` and nothing else have happened.
fn expected(commits: &BTreeMap<CommitTs, u64>, writer_of: impl Fn(u64) -> (u64, u64)) -> Entries {
    let mut all = BTreeMap::new();
    for number in commits.values() {
        let (writer, n) = writer_of(*number);
        for i in 0..8 {
            let key = format!("{writer}/{:03}", (n * 5 + i) % 100);
            all.insert(key.into_bytes(), format!("{n:06}/{}", "x".repeat((n % 40) as usize)).into_bytes());
        }
    }
    all.into_iter().collect()
}

fn open_copy(disk: &SimDisk) -> Database {
    Database::open("/copy/of", Options { create: false, ..options(disk) }).unwrap()
}

/// Writers, the background and a backup, interleaved by seed: the copy holds exactly the commits at or below the moment
/// that the call returned. Guards: commits are copied up to one durable position of the log, and named by it; what an inner
/// node has retired is divided with it (seed 100).
#[test]
fn a_backup_under_load_shows_one_moment() {
    let explored = explore((0..30).chain(98..102), &Config { steps_max: 20_000_000, ..Config::default() }, |sim| {
        let disk = disk();
        let small = Options { budget_bytes: 1 << 20, inline_batch_bytes: 600, ..options(&disk) };
        let db = Database::open("/db", small.clone()).unwrap();
        let indexes = [index(&db, "a"), index(&db, "b")];
        let (commits, done) = (Commits::default(), Arc::new(AtomicBool::new(false)));
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (db, indexes, commits, done) = (db.clone(), indexes.clone(), commits.clone(), done.clone());
                let skew = sim.seed() % 7;
                spawn("writer", move || {
                    for n in 0.. {
                        let ts = write(&db, &indexes, writer, n).unwrap();
                        commits.lock().insert(ts, writer * 1_000_000 + n);
                        if done.load(Ordering::SeqCst) && n > 20 {
                            return;
                        }
                        if n % (skew + 2) == 0 {
                            vfs::thread::sleep(std::time::Duration::from_micros(50));
                        }
                    }
                })
            })
            .collect();
        let checkpoints = {
            let (db, done) = (db.clone(), done.clone());
            spawn("checkpoints", move || {
                while !done.load(Ordering::SeqCst) {
                    db.checkpoint().unwrap();
                    sleep(1);
                }
            })
        };
        sleep(2 + sim.seed() % 5);
        let at = db.checkpoint_to("/copy/of").unwrap();
        // The source goes on for a while, over what the copy was made of.
        sleep(3);
        done.store(true, Ordering::SeqCst);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        checkpoints.join().unwrap();
        let copy = open_copy(&disk);
        let mut commits = commits.lock().clone();
        let later = commits.split_off(&CommitTs(at.0 + 1));
        assert!(!commits.is_empty() && !later.is_empty(), "the backup began and ended in the middle");
        let expected = expected(&commits, |number| (number / 1_000_000, number % 1_000_000));
        for name in ["a", "b"] {
            assert_eq!(all(&copy, &copy.index(name).unwrap()), expected, "{name} at {at}");
        }
        sound(&copy);
        sound(&db);
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
}

/// A database without a commit since its checkpoint, and one that is empty.
#[test]
fn a_quiet_database_is_copied_as_it_is() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        db.checkpoint_to("/copy/of").unwrap();
        assert!(open_copy(&disk).names().0.is_empty());
        let i = index(&db, "i");
        fill(&db, &i, 0, 100, 30).unwrap();
        db.checkpoint().unwrap();
        db.checkpoint_to("/second").unwrap();
        let before = all(&db, &i);
        fill(&db, &i, 50, 150, 10).unwrap();
        let copy = Database::open("/second", options(&disk)).unwrap();
        assert_eq!(all(&copy, &copy.index("i").unwrap()), before);
        // A copy of the copy, after it has lived on.
        fill(&copy, &copy.index("i").unwrap(), 100, 120, 5).unwrap();
        copy.checkpoint_to("/third").unwrap();
        let third = Database::open("/third", options(&disk)).unwrap();
        assert_eq!(all(&third, &third.index("i").unwrap()).len(), 120);
        sound(&third);
    });
}

/// An index built beside a backup is in neither its blocks nor its log. Guard: the build waits.
#[test]
fn definitions_wait_for_a_backup() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let rows = table(&db, "rows");
        insert(&db, &rows, 0..200).unwrap();
        let gate = sim.hold("backup.begun");
        let backup = {
            let db = db.clone();
            spawn("backup", move || db.checkpoint_to("/copy/of").unwrap())
        };
        gate.wait_reached();
        let build = {
            let (db, rows) = (db.clone(), rows.clone());
            spawn("build", move || db.create_table_indexes(&rows, vec![by_colour()]).unwrap())
        };
        sleep(100);
        assert!(!build.is_finished());
        insert(&db, &rows, 200..220).unwrap();
        gate.open();
        backup.join().unwrap();
        build.join().unwrap();
        assert_eq!(indexed(&db, &rows), 220);
        let copy = open_copy(&disk);
        sound(&copy);
        assert_eq!(copy.table("rows").unwrap().schema().indexes().len(), 0);
    });
}

/// Bytes that no codec makes smaller.
fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = vfs::random::Rng::new(seed);
    (0..len / 8).flat_map(|_| rng.u64().to_le_bytes()).collect()
}

/// Commits keys `0..1000` with values that no codec makes smaller.
fn noise(db: &Database, index: &Index, seed: u64) {
    for from in (0..1000u32).step_by(100) {
        let mut tx = db.begin().unwrap();
        for n in from..from + 100 {
            tx.put(index, &n.to_be_bytes(), &random_bytes(seed << 32 | u64::from(n), 800)).unwrap();
        }
        tx.commit().unwrap();
    }
}

/// While the backup copies, all that it is to copy is written anew, over and over, and the index is dropped. Guards: the
/// pin, without which the old blocks' places are used again; the hold on the log; that drops wait.
#[test]
fn what_is_overwritten_during_a_backup_is_in_it() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let big = index(&db, "big");
        noise(&db, &big, 0);
        let gate = sim.hold("backup.copying");
        let backup = {
            let db = db.clone();
            spawn("backup", move || db.checkpoint_to("/copy/of").unwrap())
        };
        gate.wait_reached();
        for round in 1..5 {
            noise(&db, &big, round);
            db.checkpoint().unwrap();
        }
        let newest = all(&db, &big);
        let drop_it = {
            let db = db.clone();
            spawn("drop", move || db.drop_index("big").unwrap())
        };
        sleep(50);
        gate.open();
        backup.join().unwrap();
        drop_it.join().unwrap();
        let copy = open_copy(&disk);
        assert_eq!(all(&copy, &copy.index("big").unwrap()), newest);
        sound(&copy);
    });
}

/// Guards: a rate bounds the copy from both sides; without one the copy rests three times as long as it works.
#[test]
fn a_backup_keeps_its_pace() {
    simulate(|_| {
        let times = [1_000, 1_000, 20, 20].map(Duration::from_micros);
        let disk = SimDisk::new(DiskConfig { times, ..DiskConfig::seed(7) });
        let db = Database::open("/db", options(&disk)).unwrap();
        // Blocks enough, so that they are most of it.
        ["a", "b", "c", "d"].iter().for_each(|name| noise(&db, &index(&db, name), 0));
        db.checkpoint().unwrap();
        let timed = |backup: Backup<'_>, to: &str| {
            let began = Instant::now();
            backup.to(to).unwrap();
            began.elapsed()
        };
        let free = timed(db.backup().rate_bytes(u64::MAX), "/free");
        let usual = timed(db.backup(), "/usual");
        let times = usual.as_secs_f64() / free.as_secs_f64();
        assert!((2.5..4.5).contains(&times), "{free:?} without rests, {usual:?} with them");
        let at_rate = timed(db.backup().rate_bytes(100_000), "/rate");
        let least = Duration::from_secs_f64(db.stats().space.live_bytes as f64 / 1e5) - Duration::from_millis(200);
        assert!((least..least * 3 / 2).contains(&at_rate), "{at_rate:?}, {least:?} were the least");
        for copy in ["/free", "/usual", "/rate"] {
            sound(&Database::open(copy, options(&disk)).unwrap());
        }
    });
}

/// A backup so slow that all of the log would pile up behind it. Guard: the hold on it moves on during rests.
#[test]
fn the_log_goes_on_beside_a_slow_backup() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let big = index(&db, "big");
        noise(&db, &big, 0);
        let backup = {
            let db = db.clone();
            spawn("backup", move || db.backup().rate_bytes(1_000).to("/copy/of").unwrap())
        };
        sleep(100);
        // Four times what the log may keep, in commits that go through it, and a piece takes a minute.
        for n in 0..1_000 {
            put(&db, &big, &[n as u8], &random_bytes(n, 4_096), Durability::Write).unwrap();
        }
        sleep(200);
        db.checkpoint().unwrap();
        let kept = db.stats().log.disk_bytes;
        assert!(kept <= 2 << 20, "{kept} bytes of log are kept");
        assert!(!backup.is_finished());
        backup.join().unwrap();
        let copy = open_copy(&disk);
        assert_eq!(all(&copy, &copy.index("big").unwrap()), all(&db, &big));
        sound(&copy);
    });
}

/// A place that holds something is refused untouched; a backup cut short is no database; the source is none the worse.
#[test]
fn a_backup_that_fails_leaves_no_database() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let i = index(&db, "i");
        fill(&db, &i, 0, 500, 100).unwrap();
        let error = db.checkpoint_to("/db").unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument(why) if why.contains("empty or new directory")), "{error}");
        for nth in 1.. {
            let path = format!("/copy-{nth}");
            let fired = disk.faults().fired();
            disk.faults().add(Rule::new(Action::Eio).on(Class::Write).path(&path).nth(nth));
            let done = db.checkpoint_to(&path);
            if disk.faults().fired() == fired {
                done.unwrap();
                assert!(nth > 3, "several writes were failed");
                break;
            }
            assert!(done.is_err(), "write {nth}");
            let opened = Database::open(&path, Options { create: false, ..options(&disk) });
            assert!(matches!(opened, Err(Error::NotADatabase { .. })), "after write {nth}");
            fill(&db, &i, 0, 20, 10).unwrap();
        }
        // What the failed ones held is let go.
        db.checkpoint().unwrap();
        sound(&db);
    });
}

/// Whoever watches a backup sees it grow, and ends it: nothing of it is left, and the same place is good for the next one.
/// Guards: the watcher is asked; what was copied is removed.
#[test]
fn a_backup_that_is_cancelled_leaves_nothing() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        noise(&db, &index(&db, "big"), 0);
        let seen = std::cell::Cell::new(0);
        let look = |progress: trefoil::BackupProgress| {
            assert!(seen.get() <= progress.copied_bytes && progress.copied_bytes <= progress.total_bytes);
            seen.set(progress.copied_bytes);
            if progress.copied_bytes > progress.total_bytes / 2 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let ended = db.backup().watch(&look).to("/copy/of");
        assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
        assert!(seen.get() > 0);
        let vfs: Arc<dyn trefoil::Vfs> = Arc::new(disk.clone());
        for dir in ["/copy/of", "/copy/of/wal", "/copy/of/runs"] {
            let left = vfs.list(std::path::Path::new(dir)).unwrap();
            assert!(left.iter().all(|name| ["wal", "runs"].iter().any(|dir| name.ends_with(dir))), "{dir}: {left:?}");
        }
        db.checkpoint_to("/copy/next").unwrap();
        sound(&Database::open("/copy/next", options(&disk)).unwrap());
        sound(&db);
    });
}

/// A backup that waits until another one is through is asked for, too, and makes nothing. Guard: the watcher is asked while it waits.
#[test]
fn a_backup_that_waits_for_another_one_is_cancelled() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        noise(&db, &index(&db, "big"), 0);
        let gate = sim.hold("backup.begun");
        let first = {
            let db = db.clone();
            spawn("first", move || db.checkpoint_to("/copy/first").unwrap())
        };
        gate.wait_reached();
        let (began, asked) = (Instant::now(), std::cell::Cell::new(0));
        let look = |_| {
            asked.set(asked.get() + 1);
            if asked.get() < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let ended = db.backup().watch(&look).to("/copy/second");
        assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
        assert!(!first.is_finished() && began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let vfs: Arc<dyn trefoil::Vfs> = Arc::new(disk.clone());
        assert!(!vfs.exists(std::path::Path::new("/copy/second")).unwrap());
        gate.open();
        first.join().unwrap();
        db.checkpoint_to("/copy/second").unwrap();
    });
}

/// Who waits for his moment while commits write many times what the log may keep: none of them waits for the backup. Guard: the
/// log is copied while he waits.
#[test]
fn the_log_goes_on_beside_a_backup_that_waits_for_its_moment() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let big = index(&db, "big");
        noise(&db, &big, 0);
        let around = |moment: &mut trefoil::BackupMoment<'_>| {
            let writer = {
                let (db, big) = (db.clone(), big.clone());
                spawn("writer", move || {
                    for n in 0..1_000 {
                        put(&db, &big, &[n as u8], &random_bytes(n, 4_096), Durability::Write).unwrap();
                    }
                })
            };
            let began = Instant::now();
            while !writer.is_finished() {
                assert!(began.elapsed() < Duration::from_secs(30), "the writer waits for room in the log");
                assert!(moment.wait());
                sleep(300);
            }
            writer.join().unwrap();
            moment.come();
            ControlFlow::Continue(())
        };
        db.backup().moment(&around).to("/copy/of").unwrap();
        let copy = open_copy(&disk);
        assert_eq!(all(&copy, &copy.index("big").unwrap()), all(&db, &big));
        sound(&copy);
    });
}

/// A copy that fails while somebody waits for the moment ends his wait, and says why. Guard: what went wrong is kept.
#[test]
fn a_backup_that_fails_before_its_moment_says_why() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let big = index(&db, "big");
        noise(&db, &big, 0);
        let around = |moment: &mut trefoil::BackupMoment<'_>| {
            disk.faults().add(Rule::new(Action::Eio).on(Class::Write).path("/copy/of").forever());
            for n in 0..1_000 {
                if !moment.wait() {
                    return ControlFlow::Break(());
                }
                put(&db, &big, &[n as u8], &random_bytes(n, 4_096), Durability::Write).unwrap();
            }
            panic!("the log was not copied");
        };
        let error = db.backup().moment(&around).to("/copy/of").unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        disk.faults().clear();
        sound(&db);
    });
}

/// Run files in a directory, with their lengths.
fn runs_in(disk: &SimDisk, dir: &str) -> Vec<u64> {
    let of = |path: &std::path::Path| path.starts_with(dir) && path.to_string_lossy().contains("run-");
    disk.files().into_iter().filter(|(path, _)| of(path)).map(|(_, bytes)| bytes).collect()
}

/// A transaction has written a part of what memory cannot hold to a file, which is longer than it will be, when the copy comes to that,
/// and the file is cut to its length between two pieces: it is named by nothing that is copied, and the backup goes on. Guard: of a file
/// that has become shorter meanwhile there is no more to be copied.
#[test]
fn a_run_file_that_is_cut_while_it_is_copied_does_not_end_a_backup() {
    simulate(|sim| {
        let disk = disk();
        // Nobody else cuts a file before the backup does.
        let db = Database::open("/db", Options { budget_bytes: 1 << 20, background: false, ..options(&disk) }).unwrap();
        let i = index(&db, "i");
        fill(&db, &i, 0, 100, 100).unwrap();
        let before = all(&db, &i);
        (0..2).for_each(|_| db.settle().unwrap());
        assert_eq!(runs_in(&disk, "/db"), [0; 0]);
        // The first is that of the new file to nothing.
        let gate = sim.hold_nth("io.set_len", 1);
        let writer = {
            let (db, i) = (db.clone(), i.clone());
            spawn("writer", move || {
                let mut tx = db.begin().unwrap();
                for n in 1000..2000u32 {
                    tx.put(&i, &n.to_be_bytes(), &random_bytes(u64::from(n), 800)).unwrap();
                }
                tx.commit().unwrap();
            })
        };
        gate.wait_reached();
        let whole = runs_in(&disk, "/db");
        assert!(matches!(whole[..], [bytes] if bytes > 2 << 20), "{whole:?}");
        let look = |_| {
            if !runs_in(&disk, "/copy/of").is_empty() {
                gate.open();
                while runs_in(&disk, "/db").contains(&whole[0]) {
                    sleep(1);
                }
            }
            ControlFlow::Continue(())
        };
        let moment = db.backup().rate_bytes(u64::MAX).watch(&look).to("/copy/of").unwrap();
        let copied = runs_in(&disk, "/copy/of");
        assert!(matches!(copied[..], [bytes] if (1..whole[0]).contains(&bytes)), "{copied:?} of {whole:?}");
        writer.join().unwrap();
        assert_eq!(Database::restore(&["/copy/of"], "/restored", options(&disk)).unwrap(), moment);
        for dir in ["/restored", "/copy/of"] {
            let copy = Database::open(dir, Options { create: false, ..options(&disk) }).unwrap();
            assert_eq!(all(&copy, &copy.index("i").unwrap()), before);
            assert_eq!(runs_in(&disk, dir), [0; 0], "{dir}");
            sound(&copy);
        }
        assert_eq!(all(&db, &i).len(), 1100);
        sound(&db);
    });
}
