//! A damaged secondary index is set aside and made anew: met by a commit, a reader, the background, recovery; killed in
//! the middle [P10].

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::damage::block_of;
use crate::support::surgery::{DIR, Surgeon, rot};
use crate::support::*;
use trefoil::{ALL, Cursor, Database, Durability, Error, Options, Table, Value};
use vfs::fault::{Action, Class, Rule};
use vfs::sim::SimDisk;

pub(crate) const ROWS: u64 = 1500;
const BY_COLOUR: u32 = 2;

pub(crate) fn quiet(disk: &SimDisk) -> Options {
    Options { background: false, ..options(disk) }
}

/// A table with an index of two levels and more, closed behind a checkpoint.
fn made(disk: &SimDisk) {
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let rows = table(&db, "rows");
    db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
    (0..ROWS).step_by(100).for_each(|id| insert(&db, &rows, id..id + 100).unwrap());
    db.settle().unwrap();
    db.close().unwrap();
}

/// Damages the node of the index.
fn damage(disk: &SimDisk, node: (u8, usize)) {
    damage_in(disk, BY_COLOUR, node);
}

/// Done twice, it is undone.
fn damage_in(disk: &SimDisk, index: u32, node: (u8, usize)) {
    rot_at(disk, block_of(disk, index, node).offset);
}

pub(crate) fn rot_at(disk: &SimDisk, at: u64) {
    rot(disk, &Path::new(DIR).join("data.trefoil"), |bytes| bytes[at as usize + 70] ^= 8);
}

fn damaged(disk: &SimDisk, node: (u8, usize)) -> (Database, Table) {
    made(disk);
    damage(disk, node);
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let rows = db.table("rows").unwrap();
    assert!(db.stats().quarantined.is_empty(), "nobody met it yet");
    (db, rows)
}

pub(crate) fn delete(db: &Database, rows: &Table, id: u64) -> Result<(), Error> {
    let mut tx = db.begin()?;
    assert!(tx.delete_row(rows, &[Value::U64(id)])?);
    tx.commit_with(Durability::Sync).map(|_| ())
}

/// Deletes rows, one a commit, until one of them met the damage. Returns how many are left.
fn delete_until_met(db: &Database, rows: &Table) -> u64 {
    for id in 0..ROWS {
        delete(db, rows, id).unwrap();
        if !db.stats().quarantined.is_empty() {
            return ROWS - id - 1;
        }
    }
    panic!("no commit met the damage");
}

pub(crate) fn count(db: &Database, rows: &Table) -> u64 {
    let snapshot = db.snapshot().unwrap();
    let mut all = snapshot.scan(rows, ALL).unwrap();
    let mut count = 0;
    while all.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// The index is set aside; everything else is in order.
pub(crate) fn set_aside(db: &Database, rows: &Table) {
    assert_eq!(db.stats().quarantined, ["rows.by_colour"]);
    let error = db.snapshot().unwrap().scan_index(rows, "by_colour", ALL).err().unwrap();
    assert!(matches!(&error, Error::Quarantined { index } if index == "by_colour"), "{error}");
    assert!(error.to_string().contains("trefoil rebuild"), "{error}");
    let tx = db.begin().unwrap();
    assert!(matches!(tx.scan_index(rows, "by_colour", ALL), Err(Error::Quarantined { .. })));
    let problems: Vec<_> = db.verify().unwrap().into_iter().flat_map(|(_, report)| report.problems).collect();
    assert!(problems.len() == 1 && problems[0].what == "quarantined index", "{problems:#?}");
}

/// Nothing leaks, the rebuilt index is that of the rows, also after the next open.
pub(crate) fn rebuilt(disk: &SimDisk, db: Database, left: u64) {
    let rows = db.table("rows").unwrap();
    if !db.stats().quarantined.is_empty() {
        db.rebuild_index(&rows, "by_colour").unwrap();
    }
    assert_eq!((count(&db, &rows), indexed(&db, &rows) as u64), (left, left));
    db.settle().unwrap();
    sound(&db);
    insert(&db, &rows, 20_000..20_010).unwrap();
    db.close().unwrap();
    drop((db, rows));
    let db = Database::open(DIR, quiet(disk)).unwrap();
    let rows = db.table("rows").unwrap();
    assert!(db.stats().quarantined.is_empty());
    assert_eq!(indexed(&db, &rows) as u64, left + 10);
    sound(&db);
}

pub(crate) fn reopened(disk: &SimDisk, db: Database) -> (SimDisk, Database) {
    let disk = cut(disk, db);
    let db = Database::open(DIR, quiet(&disk)).unwrap();
    (disk, db)
}

/// Leaf and inner node: below the latter, the blocks that nobody can name any more come back too.
#[test]
fn p10_a_commit_that_meets_damage_goes_on_without_the_index() {
    for node in [(0, 3), (1, 1)] {
        simulate(move |_| {
            let disk = disk();
            let (db, rows) = damaged(&disk, node);
            let left = delete_until_met(&db, &rows);
            set_aside(&db, &rows);
            insert(&db, &rows, 15_000..15_100).unwrap();
            assert_eq!(count(&db, &rows), left + 100);
            db.settle().unwrap();
            set_aside(&db, &rows);
            drop(rows);
            // The log says so, and so do the checkpoints behind it.
            let (disk, db) = reopened(&disk, db);
            set_aside(&db, &db.table("rows").unwrap());
            db.close().unwrap();
            let (disk, db) = reopened(&disk, db);
            set_aside(&db, &db.table("rows").unwrap());
            rebuilt(&disk, db, left + 100);
        });
    }
}

/// The structure was freed, not only forgotten: without the index the data file has no more live bytes than a table that
/// never had it.
#[test]
fn p10_the_blocks_of_a_quarantined_index_come_back() {
    simulate(|_| {
        let disk = disk();
        let (db, rows) = damaged(&disk, (1, 1));
        let before = db.stats().space.live_bytes;
        delete_until_met(&db, &rows);
        db.settle().unwrap();
        db.checkpoint().unwrap();
        let after = db.stats().space.live_bytes;
        assert!(after * 10 < before * 8, "{before} bytes before, {after} after");
    });
}

#[test]
fn p10_readers_and_the_background_leave_word() {
    simulate(|_| {
        let disk = disk();
        let (db, rows) = damaged(&disk, (0, 3));
        let tx = db.begin().unwrap();
        let mut entries = tx.scan_index(&rows, "by_colour", ALL).unwrap();
        let error = loop {
            match entries.next() {
                Ok(entry) => assert!(entry.is_some(), "the reader met no damage"),
                Err(error) => break error,
            }
        };
        let named = matches!(&error, Error::Corrupt(c) if c.index.is_some() && c.key_range.is_some());
        assert!(named, "{error}");
        drop(entries);
        drop(tx);
        // No time for the background to meet it itself.
        assert!(!db.settle_for(Duration::ZERO).unwrap());
        set_aside(&db, &rows);
        drop(rows);
        let (disk, db) = reopened(&disk, db);
        rebuilt(&disk, db, ROWS);
    });
    // A commit over many cold leaves is attached as a run; who drains it meets the damage.
    simulate(|_| {
        let disk = disk();
        let (db, rows) = damaged(&disk, (0, 3));
        let mut tx = db.begin().unwrap();
        for id in (0..ROWS).step_by(2) {
            assert!(tx.delete_row(&rows, &[Value::U64(id)]).unwrap());
        }
        tx.commit().unwrap();
        assert!(db.stats().quarantined.is_empty(), "the commit met it itself: the test shows nothing");
        db.settle().unwrap();
        set_aside(&db, &rows);
        insert(&db, &rows, 15_000..15_001).unwrap();
        rebuilt(&disk, db, ROWS / 2 + 1);
    });
}

/// So does who only asks how much there is: a server that plans its queries by that may never read such an index. Guards:
/// `IndexEntry::read` of `Table::estimate_rows`, the same of a count.
#[test]
fn p10_who_estimates_leaves_word() {
    type Ask = fn(&Table) -> Result<(), Error>;
    let asks: [Ask; 2] = [
        |rows| {
            (0..7).try_for_each(|colour| {
                let colour = [Value::U32(colour)];
                rows.estimate_rows(Some("by_colour"), (Bound::Included(&colour), Bound::Included(&colour))).map(|_| ())
            })
        },
        |rows| rows.distinct(Some("by_colour")).map(|_| ()),
    ];
    for ask in asks {
        simulate(move |_| {
            let disk = disk();
            let (db, rows) = damaged(&disk, (0, 0));
            let met = ask(&rows).unwrap_err();
            assert!(matches!(met, Error::Corrupt(_)), "{met}");
            assert!(!db.settle_for(Duration::ZERO).unwrap());
            set_aside(&db, &rows);
            assert!(matches!(ask(&rows), Err(Error::Quarantined { .. })));
            drop(rows);
            let (disk, db) = reopened(&disk, db);
            rebuilt(&disk, db, ROWS);
        });
    }
}

/// What is set aside, or does not agree with its rows, is made anew; of damaged rows nothing is. Guards: those of
/// `Database::repair_table`.
#[test]
fn p10_a_repair_makes_anew_what_is_wrong() {
    simulate(|_| {
        let disk = disk();
        let (db, rows) = damaged(&disk, (0, 3));
        // Found by the repair itself, before anybody else has met it.
        assert_eq!(db.repair_table(&rows, false, &|| true).unwrap(), ["by_colour"]);
        assert!(db.repair_table(&rows, true, &|| true).unwrap().is_empty(), "all are sound");
        assert!(matches!(db.repair_table(&rows, true, &|| false), Err(Error::Cancelled)));
        assert_eq!((count(&db, &rows), indexed(&db, &rows) as u64), (ROWS, ROWS));
        sound(&db);
        drop(rows);
        let (_, db) = reopened(&disk, db);
        sound(&db);
    });
    simulate(|_| {
        let (db, rows) = damaged(&disk(), (0, 3));
        delete_until_met(&db, &rows);
        set_aside(&db, &rows);
        assert_eq!(db.repair_table(&rows, true, &|| true).unwrap(), ["by_colour"]);
        assert!(db.stats().quarantined.is_empty());
        sound(&db);
    });
    simulate(|_| {
        let disk = disk();
        made(&disk);
        damage(&disk, (0, 3));
        damage_in(&disk, BY_COLOUR - 1, (0, 3));
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let rows = db.table("rows").unwrap();
        let before = db.stats().visible;
        let refused = db.repair_table(&rows, true, &|| true).unwrap_err();
        assert!(matches!(refused, Error::Corrupt(_)), "{refused}");
        assert_eq!(db.stats().visible, before, "nothing was begun");
    });
}

/// A transaction that wrote entries before the quarantine and writes more after it.
#[test]
fn p10_a_transaction_that_began_before_goes_on() {
    simulate(|_| {
        let disk = disk();
        let (db, rows) = damaged(&disk, (0, 3));
        let mut tx = db.begin().unwrap();
        (17_000..17_010).for_each(|id| tx.insert(&rows, &row(id)).unwrap());
        let left = delete_until_met(&db, &rows);
        (17_010..17_020).for_each(|id| tx.insert(&rows, &row(id)).unwrap());
        assert!(tx.update(&rows, &[Value::U64(17_000), Value::U32(5)]).unwrap());
        tx.commit().unwrap();
        assert_eq!(count(&db, &rows), left + 20);
        set_aside(&db, &rows);
        drop(rows);
        let (disk, db) = reopened(&disk, db);
        rebuilt(&disk, db, left + 20);
    });
}

/// The damage is met by recovery: in the replay, in the state, in a run file that the state names.
#[test]
fn p10_damage_met_at_open() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let rows = db.table("rows").unwrap();
        (0..ROWS).step_by(3).for_each(|id| delete(&db, &rows, id).unwrap());
        drop(rows);
        let disk = cut(&disk, db);
        damage(&disk, (0, 3));
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        set_aside(&db, &db.table("rows").unwrap());
        rebuilt(&disk, db, ROWS / 3 * 2);
    });
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let mut surgeon = Surgeon::new(&disk, BY_COLOUR);
        let id = surgeon.id;
        surgeon.manifest.indexes.iter_mut().find(|entry| entry.id == id).unwrap().state[7] ^= 1;
        surgeon.publish();
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        set_aside(&db, &db.table("rows").unwrap());
        let (disk, db) = reopened(&disk, db);
        set_aside(&db, &db.table("rows").unwrap());
        rebuilt(&disk, db, ROWS);
    });
    simulate(|_| {
        let disk = disk();
        let small = || Options { inline_batch_bytes: 1000, ..quiet(&disk) };
        let db = Database::open(DIR, small()).unwrap();
        let rows = table(&db, "rows");
        db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
        insert(&db, &rows, 0..ROWS).unwrap();
        drop(rows);
        let disk = cut(&disk, db);
        // The record names two files, of the rows and of their entries: the shorter one is that of the entries, or equal.
        let runs = disk.files().into_iter().filter(|(path, _)| path.to_string_lossy().contains("run-"));
        let last = runs.map(|(path, _)| path).max().unwrap();
        rot(&disk, &last, |bytes| bytes[100] ^= 1);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        set_aside(&db, &db.table("rows").unwrap());
        rebuilt(&disk, db, ROWS);
    });
}

#[test]
fn p10_killed_in_the_middle_it_is_quarantined_or_made() {
    for point in ["commit.logged", "quarantine.recorded"] {
        simulate(move |sim| {
            let disk = disk();
            let (db, rows) = damaged(&disk, (0, 3));
            let gate = sim.hold(point);
            let (d, handle) = (db.clone(), rows.clone());
            let work = spawn("deletes", move || (0..ROWS).find(|id| delete(&d, &handle, *id).is_err()));
            gate.wait_reached();
            disk.power_cut(5);
            gate.open();
            assert!(work.join().unwrap().is_some());
            drop(rows);
            let disk = { cut(&disk, db) };
            let db = Database::open(DIR, quiet(&disk)).unwrap();
            let rows = db.table("rows").unwrap();
            if db.stats().quarantined.is_empty() {
                let left = count(&db, &rows);
                let met = (ROWS - left..ROWS).find(|id| {
                    delete(&db, &rows, *id).unwrap();
                    !db.stats().quarantined.is_empty()
                });
                assert!(met.is_some());
            }
            set_aside(&db, &rows);
            let left = count(&db, &rows);
            rebuilt(&disk, db, left);
        });
    }
    for point in ["ddl.built", "checkpoint.composed", "checkpoint.published", "rebuild.built", "commit.logged"] {
        simulate(move |sim| {
            let disk = disk();
            let (db, rows) = damaged(&disk, (1, 1));
            let left = delete_until_met(&db, &rows);
            let gate = sim.hold(point);
            let (d, handle) = (db.clone(), rows.clone());
            let work = spawn("rebuild", move || d.rebuild_index(&handle, "by_colour"));
            gate.wait_reached();
            disk.power_cut(5);
            gate.open();
            assert!(work.join().unwrap().is_err(), "{point}");
            drop(rows);
            let disk = cut(&disk, db);
            let db = Database::open(DIR, quiet(&disk)).unwrap();
            if !db.stats().quarantined.is_empty() {
                set_aside(&db, &db.table("rows").unwrap());
            }
            rebuilt(&disk, db, left);
        });
    }
}

/// Readers go on while an index that is in order is rebuilt; older snapshots are told to begin again.
#[test]
fn an_index_in_use_is_rebuilt() {
    simulate(|_| {
        let disk = disk();
        made(&disk);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let rows = db.table("rows").unwrap();
        let old = db.snapshot().unwrap();
        // The rows move behind the snapshot.
        insert(&db, &rows, 15_000..15_001).unwrap();
        trefoil::fuzzing::write_raw(&db, "rows.by_colour", &[0; 12], None).unwrap();
        db.rebuild_index(&rows, "by_colour").unwrap();
        assert!(matches!(old.scan_index(&rows, "by_colour", ALL), Err(Error::DefinitionChanged { .. })));
        drop(old);
        assert!(matches!(db.rebuild_index(&rows, "by_size"), Err(Error::NotFound { .. })));
        drop(rows);
        rebuilt(&disk, db, ROWS + 1);
    });
}

/// A read of the data file fails, after `n` that succeed.
fn unreadable(disk: &SimDisk, n: u64) {
    disk.faults().add(Rule::new(Action::Eio).on(Class::Read).path("data.trefoil").nth(n));
}

/// Plain indexes of equal size, numbers 1, 2, …, closed behind a checkpoint.
fn plain(disk: &SimDisk, names: &[&str]) {
    let db = Database::open(DIR, quiet(disk)).unwrap();
    for name in names {
        let index = index(&db, name);
        (0..3000).step_by(500).for_each(|from| fill(&db, &index, from, from + 500, 20).unwrap());
    }
    db.settle().unwrap();
    db.close().unwrap();
}

/// Of the reads of a run file that the state of a secondary index names, each fails once at open: the index is set aside.
#[test]
fn p10_an_unreadable_run_file_sets_its_index_aside() {
    simulate(|_| {
        for nth in 0.. {
            let disk = disk();
            let db = Database::open(DIR, Options { inline_batch_bytes: 1000, ..quiet(&disk) }).unwrap();
            let rows = table(&db, "rows");
            db.create_table_indexes(&rows, vec![by_colour()]).unwrap();
            insert(&db, &rows, 0..ROWS).unwrap();
            db.checkpoint().unwrap();
            drop((rows, db));
            let runs = disk.files().into_iter().filter(|(path, _)| path.to_string_lossy().contains("run-"));
            let last = runs.map(|(path, _)| path).max().unwrap().to_string_lossy().into_owned();
            disk.faults().add(Rule::new(Action::Eio).on(Class::Read).path(&last).nth(nth));
            let opened = Database::open(DIR, quiet(&disk));
            let fired = disk.faults().fired() > 0;
            disk.faults().clear();
            let db = opened.unwrap_or_else(|error| panic!("read {nth}: {error}"));
            if fired {
                set_aside(&db, &db.table("rows").unwrap());
            }
            rebuilt(&disk, db, ROWS);
            if !fired {
                assert!(nth >= 2, "{nth} reads");
                return;
            }
        }
    });
}

/// The level of the root of index 2, made by `plain`.
const ROOT: (u8, usize) = (2, 0);

/// What cannot be made anew goes on as well as it can: its runs are drained.
#[test]
fn p10_a_reader_of_a_damaged_plain_index_does_not_stop_its_maintenance() {
    simulate(|_| {
        let disk = disk();
        plain(&disk, &["a"]);
        damage_in(&disk, 1, (0, 3));
        let db = Database::open(DIR, Options { inline_batch_bytes: 1000, ..quiet(&disk) }).unwrap();
        let a = db.index("a").unwrap();
        let read = db.begin().unwrap().range(&a, ..).and_then(Cursor::collect);
        assert!(matches!(read, Err(Error::Corrupt(_))));
        let runs = || db.stats().indexes.iter().find(|(name, _)| name == "a").unwrap().1.runs;
        fill(&db, &a, 10_000, 10_100, 20).unwrap();
        assert_eq!(runs(), 1, "nothing to drain: the test shows nothing");
        db.settle().unwrap();
        assert_eq!(runs(), 0);
    });
}

/// A checkpoint that failed has counted leaves of which only a node in memory knows: they are not lost.
#[test]
fn p10_blocks_of_a_checkpoint_that_failed_are_not_taken_for_lost() {
    for extents in [1, 3, 6, 9, 12] {
        simulate(move |_| {
            let disk = disk();
            plain(&disk, &["a", "b"]);
            damage_in(&disk, 2, ROOT);
            let db = Database::open(DIR, quiet(&disk)).unwrap();
            let a = db.index("a").unwrap();
            // Few at a time are written in place: the checkpoint has much to write.
            (0..3000).step_by(50).for_each(|from| fill(&db, &a, from, from + 50, 100).unwrap());
            disk.set_capacity(disk.used_bytes() + (8 << 10) + extents * (64 << 10));
            assert!(matches!(db.checkpoint(), Err(Error::DiskFull { .. })));
            assert!(db.stats().space.written_bytes > 0, "nothing was counted: the test shows nothing");
            disk.set_capacity(u64::MAX);
            db.drop_index("b").unwrap();
            db.settle().unwrap();
            sound(&db);
            (0..3000).step_by(500).for_each(|from| fill(&db, &a, from, from + 500, 24).unwrap());
            db.settle().unwrap();
            drop(a);
            let (_, db) = reopened(&disk, db);
            assert_eq!(all(&db, &db.index("a").unwrap()).len(), 3000);
            sound(&db);
        });
    }
}

/// While another index cannot be walked nothing is reclaimed; it is not forgotten.
#[test]
fn p10_reclaiming_that_was_put_off_is_done_later() {
    simulate(|_| {
        let disk = disk();
        plain(&disk, &["a", "b", "c"]);
        let of_a = block_of(&disk, 1, (1, 1)).offset;
        damage_in(&disk, 2, ROOT);
        rot_at(&disk, of_a);
        let db = Database::open(DIR, quiet(&disk)).unwrap();
        let live = || db.stats().space.live_bytes;
        let before = live();
        db.drop_index("b").unwrap();
        db.settle().unwrap();
        assert_eq!(db.stats().damaged, ["a"], "the upkeep of `a` met its damage");
        assert!(live() * 10 > before * 9, "{before} bytes before, {} after: nothing was put off", live());
        rot_at(&disk, of_a);
        db.drop_index("c").unwrap();
        db.settle().unwrap();
        assert!(live() * 10 < before * 4, "{before} bytes before, {} after", live());
        sound(&db);
    });
}

/// A sector that cannot be read is walked around, in the background and at open; its index is gone anyway.
#[test]
fn p10_an_unreadable_sector_of_a_dropped_index_is_nobodys_loss() {
    for n in 0..12 {
        simulate(move |_| {
            let disk = disk();
            plain(&disk, &["a", "b"]);
            let db = Database::open(DIR, quiet(&disk)).unwrap();
            let before = db.stats().space.live_bytes;
            db.drop_index("b").unwrap();
            unreadable(&disk, n);
            db.settle().unwrap();
            assert_eq!(disk.faults().fired(), 1);
            sound(&db);
            let after = db.stats().space.live_bytes;
            assert!(after * 10 < before * 6, "{before} bytes before, {after} after");
            db.close().unwrap();
        });
    }
}

#[test]
fn p10_an_unreadable_sector_of_a_dropped_index_does_not_fail_the_open() {
    let refused = Arc::new(AtomicU64::new(0));
    for n in 0..16 {
        let refused = refused.clone();
        simulate(move |_| {
            let disk = disk();
            plain(&disk, &["a", "b"]);
            let db = Database::open(DIR, quiet(&disk)).unwrap();
            let before = db.stats().space.live_bytes;
            db.drop_index("b").unwrap();
            let disk = cut(&disk, db);
            unreadable(&disk, n);
            let opened = Database::open(DIR, quiet(&disk));
            assert_eq!(disk.faults().fired(), 1);
            let Ok(db) = opened else {
                // The header, or the catalog.
                refused.fetch_add(1, Ordering::Relaxed);
                return;
            };
            sound(&db);
            let after = db.stats().space.live_bytes;
            assert!(after * 10 < before * 6, "{before} bytes before, {after} after");
        });
    }
    let refused = refused.load(Ordering::Relaxed);
    assert!(refused <= 3, "{refused} of 16");
}

/// Of the reads that a commit needs, each fails once: it goes on without the secondary index, or did not happen.
#[test]
fn p10_a_commit_that_cannot_read_a_sector_goes_on_without_the_index() {
    let aside = Arc::new(AtomicU64::new(0));
    for n in 0..12 {
        let aside = aside.clone();
        simulate(move |_| {
            let disk = disk();
            made(&disk);
            let db = Database::open(DIR, quiet(&disk)).unwrap();
            let rows = db.table("rows").unwrap();
            unreadable(&disk, n);
            let done = delete(&db, &rows, 700);
            disk.faults().clear();
            if db.stats().quarantined.is_empty() {
                sound(&db);
                assert_eq!(count(&db, &rows), ROWS - u64::from(done.is_ok()));
                return;
            }
            aside.fetch_add(1, Ordering::Relaxed);
            done.unwrap();
            set_aside(&db, &rows);
            drop(rows);
            rebuilt(&disk, db, ROWS - 1);
        });
    }
    assert!(aside.load(Ordering::Relaxed) > 0);
}

/// An index that is being built is in no catalog: damage that somebody meets in it fails the build, or sets it aside when
/// its table has it.
#[test]
fn p10_an_index_under_construction_is_not_set_aside() {
    for point in ["ddl.built", "rebuild.built"] {
        simulate(move |sim| {
            let disk = disk();
            let (db, rows) = damaged(&disk, (0, 3));
            let left = delete_until_met(&db, &rows);
            let gate = sim.hold(point);
            let (d, handle) = (db.clone(), rows.clone());
            let work = spawn("rebuild", move || d.rebuild_index(&handle, "by_colour"));
            gate.wait_reached();
            trefoil::fuzzing::note_damage(&db, BY_COLOUR + 1);
            db.settle().unwrap();
            gate.open();
            let built = work.join().unwrap();
            assert_eq!(built.is_ok(), point == "rebuild.built", "{built:?}");
            db.settle().unwrap();
            set_aside(&db, &rows);
            insert(&db, &rows, 15_000..15_010).unwrap();
            drop(rows);
            let (disk, db) = reopened(&disk, db);
            set_aside(&db, &db.table("rows").unwrap());
            rebuilt(&disk, db, left + 10);
        });
    }
}

/// The log fails under the record that sets the index aside: the commit that met the damage did not happen.
#[test]
fn p10_a_quarantine_that_fails_is_not_the_outcome_of_the_commit() {
    simulate(|_| {
        let at = {
            let disk = disk();
            let (db, rows) = damaged(&disk, (0, 3));
            ROWS - delete_until_met(&db, &rows) - 1
        };
        let disk = disk();
        let (db, rows) = damaged(&disk, (0, 3));
        (0..at).for_each(|id| delete(&db, &rows, id).unwrap());
        disk.faults().add(Rule::new(Action::Eio).on(Class::Write).path("wal"));
        let error = delete(&db, &rows, at).unwrap_err();
        assert_eq!(disk.faults().fired(), 1);
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        drop(rows);
        let (_, db) = reopened(&disk, db);
        assert_eq!(count(&db, &db.table("rows").unwrap()), ROWS - at);
    });
}
