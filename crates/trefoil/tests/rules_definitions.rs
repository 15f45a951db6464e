//! The rules of definition changes: index builds, drops, and what a crash in the middle leaves. Every test says
//! which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::support::*;
use trefoil::{ALL, Database, Durability, Error, Options};
use vfs::fault::{Action, Class, Rule};

/// A16f: an index over existing rows survives a crash right after it became public; nothing of it is in the log.
/// Guard: the checkpoint before the catalog record covers the new index.
#[test]
fn a16f_a_built_index_is_durable_before_it_is_named() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let t = table(&db, "t");
        insert(&db, &t, 0..500).unwrap();
        db.create_table_indexes(&t, vec![by_colour()]).unwrap();
        assert_eq!(indexed(&db, &t), 500);
        insert(&db, &t, 500..520).unwrap();
        let db = open(&cut(&disk, db));
        assert_eq!(indexed(&db, &db.table("t").unwrap()), 520);
        sound(&db);
    });
}

/// A16f: a crash between build and catalog record leaves the table as it was, and the blocks come back.
#[test]
fn a16f_an_index_that_was_never_named_is_freed() {
    for point in ["ddl.built", "checkpoint.composed", "checkpoint.published", "ddl.registered"] {
        simulate(move |sim| {
            let disk = disk();
            let db = open(&disk);
            let t = table(&db, "t");
            insert(&db, &t, 0..500).unwrap();
            let gate = sim.hold(point);
            let (d, handle) = (db.clone(), t.clone());
            let build = spawn("build", move || d.create_table_indexes(&handle, vec![by_colour()]));
            gate.wait_reached();
            disk.power_cut(5);
            gate.open();
            assert!(build.join().unwrap().is_err());
            let db = open(&cut(&disk, db));
            let t = db.table("t").unwrap();
            assert!(t.schema().index_number("by_colour").is_none(), "{point}");
            sound(&db);
            insert(&db, &t, 500..510).unwrap();
            db.create_table_indexes(&t, vec![by_colour()]).unwrap();
            assert_eq!(indexed(&db, &t), 510);
            let used = db.stats().space.live_bytes;
            db.close().unwrap();
            drop(db);
            assert!(used < 200 << 10, "{point}: {used} bytes are live");
        });
    }
}

/// A16a: a transaction with writes in the table is waited for. Guard: the table's gate.
#[test]
fn a16a_a_build_waits_for_writers_and_sees_their_rows() {
    simulate(|_| {
        let db = open(&disk());
        let t = table(&db, "t");
        let mut writer = db.begin().unwrap();
        writer.insert(&t, &row(1)).unwrap();
        let error = db.create_table_indexes(&t, vec![by_colour()]).unwrap_err();
        assert!(matches!(error, Error::LockTimeout { .. }), "{error}");
        let (d, handle) = (db.clone(), t.clone());
        let build = spawn("build", move || d.create_table_indexes(&handle, vec![by_colour()]));
        sleep(100);
        writer.insert(&t, &row(2)).unwrap();
        writer.commit().unwrap();
        build.join().unwrap().unwrap();
        assert_eq!(indexed(&db, &t), 2);
        sound(&db);
    });
}

/// A16a: a writer leaves the gate when its commit is applied; the build waits until it can be seen, too. Guard:
/// the wait for `visible` in `Online::now`.
#[test]
fn a16a_a_build_sees_rows_that_were_applied_above_a_gap() {
    simulate(|sim| {
        let db = open(&disk());
        let (gap, t) = (index(&db, "gap"), table(&db, "t"));
        // Behind its own record in the catalog, for which it waits.
        let begun = sim.hold("build.numbered");
        let (d, handle) = (db.clone(), t.clone());
        let build = spawn("build", move || d.create_table_indexes(&handle, vec![by_colour()]));
        begun.wait_reached();
        let gate = sim.hold("commit.logged");
        let (d, i) = (db.clone(), gap.clone());
        let low = spawn("low", move || put(&d, &i, b"k", b"low", Durability::Buffered));
        gate.wait_reached();
        let (d, handle) = (db.clone(), t.clone());
        let writer = spawn("writer", move || insert(&d, &handle, 0..10));
        sleep(50);
        begun.open();
        sleep(50);
        gate.open();
        for thread in [low, writer, build] {
            thread.join().unwrap().unwrap();
        }
        assert_eq!(indexed(&db, &t), 10);
        sound(&db);
    });
}

/// A16c: a snapshot from before the build would miss rows and is told so. Guard: `check_snapshot`.
#[test]
fn a16c_an_older_snapshot_does_not_use_the_index() {
    simulate(|_| {
        let db = open(&disk());
        let t = table(&db, "t");
        insert(&db, &t, 0..10).unwrap();
        let old = db.snapshot().unwrap();
        let mut tx = db.begin().unwrap();
        tx.delete_row(&t, &[trefoil::Value::U64(3)]).unwrap();
        tx.commit().unwrap();
        db.create_table_indexes(&t, vec![by_colour()]).unwrap();
        let refused = old.scan_index(&t, "by_colour", ALL).map(|_| ()).unwrap_err();
        assert!(matches!(refused, Error::DefinitionChanged { .. }), "{refused}");
        assert!(refused.is_retryable());
        assert_eq!(indexed(&db, &t), 9);
    });
}

/// A build that fails leaves neither files nor blocks, and can be tried again. Guards: `Spilled`, `forget_new`.
#[test]
fn a_build_that_fails_leaves_nothing() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let t = table(&db, "t");
        for n in 0..80 {
            insert(&db, &t, n * 1000..(n + 1) * 1000).unwrap();
        }
        let before = run_files(&disk);
        // Entries of 80,000 rows are more than one chunk: the first run is written, the second one's sync fails.
        disk.faults().add(Rule::new(Action::Eio).on(Class::Sync).path("run-").nth(1));
        let error = db.create_table_indexes(&t, vec![by_colour()]).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert_eq!(disk.faults().fired(), 1);
        assert!(run_files(&disk) <= before, "the broken run is left");
        assert!(t.schema().index_number("by_colour").is_none());
        db.create_table_indexes(&t, vec![by_colour()]).unwrap();
        assert_eq!(indexed(&db, &t), 80_000);
        db.settle().unwrap();
        assert_eq!(run_files(&disk), 0, "the builds and the inserts leave no run");
    });
}

/// A20, A26: an index is not freed under a cursor that reads it, however late its snapshot. The cursor begins when
/// the drop is committed and the handle does not know it yet. Guard: the cursor holds the index's entry.
#[test]
fn a20_a_dropped_index_is_not_freed_under_a_cursor() {
    for late in [false, true] {
        simulate(move |sim| {
            let db = Database::open("/db", Options { budget_bytes: 1 << 20, ..options(&disk()) }).unwrap();
            let (i, other) = (index(&db, "i"), index(&db, "other"));
            for n in 0..20 {
                fill(&db, &i, n * 100, (n + 1) * 100, 100).unwrap();
            }
            db.settle().unwrap();
            let gate = sim.hold(if late { "ddl.dropped" } else { "ddl.none" });
            let early = db.snapshot().unwrap();
            let d = db.clone();
            let mut drop_it = Some(spawn("drop", move || d.drop_index("i")));
            if late {
                gate.wait_reached();
            }
            let snapshot = if late {
                drop(early);
                db.snapshot().unwrap()
            } else {
                early
            };
            let Ok(mut cursor) = snapshot.range(&i, ..) else { panic!("the handle does not know yet") };
            let mut count = usize::from(cursor.advance().unwrap());
            drop(i);
            gate.open();
            drop_it.take().unwrap().join().unwrap().unwrap();
            for n in 0..20 {
                fill(&db, &other, n * 100, (n + 1) * 100, 100).unwrap();
                db.settle().unwrap();
            }
            while cursor.advance().unwrap() {
                assert_eq!(cursor.entry().1.len(), 100);
                count += 1;
            }
            assert_eq!(count, 2000);
        });
    }
}

/// A20, P9: a manifest that still names an index dropped meanwhile counts its blocks. Guard: `free_dropped` waits
/// for the checkpoint.
#[test]
fn a20_a_manifest_counts_the_blocks_of_an_index_dropped_meanwhile() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let (i, other) = (index(&db, "i"), index(&db, "other"));
        for n in 0..20 {
            fill(&db, &i, n * 100, (n + 1) * 100, 100).unwrap();
        }
        db.settle().unwrap();
        let gate = sim.hold("checkpoint.composed");
        let d = db.clone();
        let checkpoint = spawn("checkpoint", move || d.checkpoint());
        gate.wait_reached();
        db.drop_index("i").unwrap();
        drop(i);
        sleep(500);
        gate.open();
        checkpoint.join().unwrap().unwrap();
        fill(&db, &other, 0, 100, 100).unwrap();
        let db = open(&cut(&disk, db));
        assert_eq!(db.names().0, ["other"]);
        sound(&db);
        db.settle().unwrap();
        db.settle().unwrap();
        let live = db.stats().space.live_bytes;
        assert!(live < 100 << 10, "{live} bytes are live after the drop");
        let other = db.index("other").unwrap();
        fill(&db, &other, 0, 3000, 100).unwrap();
        db.settle().unwrap();
        assert_eq!(all(&db, &other).len(), 3000);
        sound(&db);
    });
}

/// P9: the drop is committed, a snapshot still holds the index, a checkpoint is taken, the power is cut. Whoever opens
/// that manifest frees the blocks. Guard: a checkpoint names dropped indexes until they are freed.
#[test]
fn p9_an_index_dropped_and_not_freed_yet_is_freed_after_a_crash() {
    simulate(|_| {
        let disk = disk();
        let db = open(&disk);
        let (big, kept) = (index(&db, "big"), index(&db, "kept"));
        fill(&db, &kept, 0, 10, 10).unwrap();
        for n in 0..20 {
            fill(&db, &big, n * 100, n * 100 + 100, 200).unwrap();
        }
        db.checkpoint().unwrap();
        let before = db.stats().space.live_bytes;
        let snapshot = db.snapshot().unwrap();
        db.drop_index("big").unwrap();
        sleep(500);
        db.checkpoint().unwrap();
        assert!(db.stats().space.live_bytes > before / 2, "a snapshot may read it");
        let copy = disk.clone();
        copy.power_cut(3);
        drop((snapshot, big, db));
        let db = open(&copy.reboot());
        db.checkpoint().unwrap();
        let space = db.stats().space;
        assert!(space.live_bytes < before / 4 && space.held_bytes < before / 4, "{before}: {space:?}");
        assert_eq!(all(&db, &db.index("kept").unwrap()).len(), 10);
    });
}

/// A26: drop and create under the same name, the power cut at every I/O: the name stands for the old index with all
/// its entries, for none, or for the new one. Guards: the catalog is replayed first; operations of ids it does not
/// know are skipped; their states are freed.
#[test]
fn a26_drop_and_create_across_crashes() {
    let mut ended = false;
    for n in 0..60 {
        let fired = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let out = fired.clone();
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let old = index(&db, "name");
            fill(&db, &old, 0, 100, 10).unwrap();
            if n % 2 == 0 {
                db.checkpoint().unwrap();
            }
            fill(&db, &old, 100, 200, 10).unwrap();
            disk.faults().add(Rule::new(Action::PowerCut(n)).nth(n));
            let change = || -> Result<(), Error> {
                db.drop_index("name")?;
                let new = db.create_index("name", small_nodes())?;
                fill(&db, &new, 1000, 1100, 10)?;
                db.checkpoint()
            };
            let outcome = change();
            out.store(disk.faults().fired(), std::sync::atomic::Ordering::Relaxed);
            disk.power_cut(n);
            drop(old);
            drop(db);
            for _ in 0..2 {
                let disk = disk.reboot();
                let db = open(&disk);
                let found = match db.index("name") {
                    Ok(index) => all(&db, &index).len(),
                    Err(Error::NotFound { .. }) => 0,
                    Err(error) => panic!("{error}"),
                };
                let expected: &[usize] = if outcome.is_ok() { &[100] } else { &[0, 100, 200] };
                assert!(expected.contains(&found), "{found} entries, cut at {n}: {outcome:?}");
                sound(&db);
                db.close().unwrap();
            }
        });
        ended |= fired.load(std::sync::atomic::Ordering::Relaxed) == 0;
    }
    assert!(ended, "the cuts reach the end");
}

/// A26: the catalog is replayed before run files are looked at, so its changes never become one. Guard:
/// `prepare_all` puts them in the record.
#[test]
fn a26_a_change_of_definitions_is_never_a_run_file() {
    simulate(|_| {
        let disk = disk();
        let all_runs = |disk| Options { inline_batch_bytes: 0, ..options(disk) };
        let db = Database::open("/db", all_runs(&disk)).unwrap();
        let t = table(&db, "t");
        insert(&db, &t, 0..10).unwrap();
        let disk = cut(&disk, db);
        let db = Database::open("/db", all_runs(&disk)).unwrap();
        db.create_table_indexes(&db.table("t").unwrap(), vec![by_colour()]).unwrap();
        let db = open(&cut(&disk, db));
        assert_eq!(indexed(&db, &db.table("t").unwrap()), 10);
        sound(&db);
    });
}

/// A26: whoever still has a handle of a dropped index is refused, and writes nothing that recovery would have to skip.
/// Guard: `bury` marks the entry.
#[test]
fn a26_a_handle_of_a_dropped_index_is_refused() {
    simulate(|_| {
        let db = open(&disk());
        let i = index(&db, "i");
        fill(&db, &i, 0, 10, 10).unwrap();
        db.drop_index("i").unwrap();
        let mut tx = db.begin().unwrap();
        assert!(matches!(tx.put(&i, b"k", b"v"), Err(Error::Dropped { .. })));
        assert!(matches!(tx.get(&i, b"k"), Err(Error::Dropped { .. })));
        assert!(matches!(db.snapshot().unwrap().range(&i, ..), Err(Error::Dropped { .. })));
    });
}
