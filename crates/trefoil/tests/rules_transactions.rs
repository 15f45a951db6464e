//! Statements and large transactions: what an error leaves, what a deadlock ends, and what a crash keeps. Every
//! test says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;

use crate::support::*;
use trefoil::{ALL, Database, Durability, Error, LockMode, Options, Transaction, Value};

/// What a transaction sees in its table.
fn rows(tx: &Transaction, table: &trefoil::Table) -> usize {
    let mut rows = tx.scan(table, ALL).unwrap();
    let mut count = 0;
    while rows.next().unwrap().is_some() {
        count += 1;
    }
    count
}

/// A statement that fails in its third row leaves neither of the first two. Guard: `Transaction::statement`.
#[test]
fn an_insert_that_fails_late_leaves_nothing() {
    simulate(|_| {
        let db = open(&disk());
        let t = table(&db, "t");
        let mut tx = db.begin().unwrap();
        tx.insert(&t, &row(9)).unwrap();
        let bad = [row(1), row(2), [Value::U64(3), Value::U64(3)]];
        assert!(matches!(tx.insert_many(&t, &bad), Err(Error::InvalidArgument(_))));
        assert_eq!(rows(&tx, &t), 1);
        tx.commit().unwrap();
        assert_eq!(rows(&db.begin().unwrap(), &t), 1);
        sound(&db);
    });
}

/// A delete over a range that meets a lock late takes back what it has deleted. The first row is deleted by another
/// transaction that commits while this one waits, so a second look is needed; that meets the lock of a third.
/// Guard: `Transaction::statement`.
#[test]
fn a_delete_that_times_out_late_leaves_nothing() {
    simulate(|_| {
        let db = open(&disk());
        let t = table(&db, "t");
        insert(&db, &t, 0..3).unwrap();
        let mut first = db.begin().unwrap();
        first.delete_row(&t, &[Value::U64(0)]).unwrap();
        let mut third = db.begin().unwrap();
        assert!(third.update(&t, &[Value::U64(2), Value::U32(99)]).unwrap());
        let (d, handle) = (db.clone(), t.clone());
        let deleter = spawn("deleter", move || {
            let mut tx = d.begin().unwrap();
            let error = tx.delete_first(&handle, ALL, 2).unwrap_err();
            assert!(matches!(error, Error::LockTimeout { .. }), "{error}");
            tx.commit().unwrap();
        });
        sleep(100);
        first.commit().unwrap();
        deleter.join().unwrap();
        third.commit().unwrap();
        assert_eq!(rows(&db.begin().unwrap(), &t), 2, "row 1 was deleted by a statement that failed");
        sound(&db);
    });
}

/// The victim of a deadlock is over: it commits nothing, reads nothing, and takes no lock or gate that nobody would
/// release. Guard: `Transaction::check_running`.
#[test]
fn after_a_deadlock_a_transaction_refuses_further_use() {
    simulate(|_| {
        let db = open(&disk());
        let (i, t) = (index(&db, "i"), table(&db, "t"));
        insert(&db, &t, 0..3).unwrap();
        let mut survivor = db.begin().unwrap();
        for n in 0..10u8 {
            survivor.put(&i, &[n], b"survivor").unwrap();
        }
        let (d, handle, rows_of) = (db.clone(), i.clone(), t.clone());
        let victim = spawn("victim", move || {
            let mut tx = d.begin().unwrap();
            tx.put(&handle, b"x", b"victim").unwrap();
            let savepoint = tx.savepoint();
            sleep(100);
            let error = tx.put(&handle, &[0], b"victim").unwrap_err();
            assert!(matches!(error, Error::Deadlock { .. }), "{error}");
            assert!(tx.put(&handle, b"y", b"victim").is_err());
            assert!(tx.get_locked(&handle, b"y", LockMode::Exclusive).is_err());
            assert!(tx.get(&handle, b"y").is_err());
            assert!(tx.rollback_to(savepoint).is_err());
            assert!(tx.insert(&rows_of, &row(7)).is_err());
            assert!(tx.commit().is_err(), "a commit of nothing must not look like success");
        });
        sleep(50);
        survivor.put(&i, b"x", b"survivor").unwrap();
        victim.join().unwrap();
        survivor.commit().unwrap();
        put(&db, &i, b"y", b"free", Durability::Sync).expect("its lock was released");
        db.create_table_indexes(&t, vec![by_colour()]).expect("its gate was left");
        assert_eq!(get(&db, &i, b"x").unwrap(), b"survivor");
    });
}

/// A savepoint ends when the transaction goes back to an earlier one, also if it has written past its place again since.
/// Guard: `Rollbacks::stands`.
#[test]
fn a_savepoint_ends_with_an_earlier_one() {
    simulate(|_| {
        let db = open(&disk());
        let i = index(&db, "i");
        let mut tx = db.begin().unwrap();
        let early = tx.savepoint();
        for n in 0..5u8 {
            tx.put(&i, &[n], b"first").unwrap();
        }
        let late = tx.savepoint();
        tx.rollback_to(early).unwrap();
        for n in 0..9u8 {
            tx.put(&i, &[n], b"second").unwrap();
        }
        let error = tx.rollback_to(late).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert_eq!(tx.range(&i, ..).unwrap().collect().unwrap().len(), 9, "nothing was undone");
        tx.rollback_to(early).unwrap();
        assert!(tx.range(&i, ..).unwrap().collect().unwrap().is_empty());
    });
}

/// A14: a large transaction is a run file: one entry a key, nothing that was rolled back, durable before its record,
/// removed when nothing needs it. Guards: `batches` takes the net of the write set; the registry removes a run
/// only when neither the log nor a state names it.
#[test]
fn a14_a_large_transaction_is_its_net_effect() {
    simulate(|_| {
        let disk = disk();
        let runs = |disk| Options { inline_batch_bytes: 100, ..options(disk) };
        let db = Database::open("/db", runs(&disk)).unwrap();
        let i = index(&db, "i");
        let mut tx = db.begin().unwrap();
        for n in 0..300u32 {
            tx.put(&i, &n.to_be_bytes(), b"first").unwrap();
        }
        let savepoint = tx.savepoint();
        for n in 200..400u32 {
            tx.put(&i, &n.to_be_bytes(), b"rolled back").unwrap();
        }
        tx.rollback_to(savepoint).unwrap();
        for n in 0..100u32 {
            tx.put(&i, &n.to_be_bytes(), b"second").unwrap();
        }
        tx.commit_with(Durability::Sync).unwrap();
        let expected: Entries = (0..300u32)
            .map(|n| (n.to_be_bytes().to_vec(), if n < 100 { b"second".to_vec() } else { b"first".to_vec() }))
            .collect();
        assert_eq!(all(&db, &i), expected);
        drop(i);
        let disk = cut(&disk, db);
        let db = Database::open("/db", runs(&disk)).unwrap();
        let i = db.index("i").unwrap();
        assert_eq!(all(&db, &i), expected);
        db.settle().unwrap();
        db.checkpoint().unwrap();
        assert_eq!(run_files(&disk), 0, "drained and named by nothing");
        assert_eq!(all(&db, &i), expected);
        sound(&db);
    });
}

/// A14: a run whose record never came is removed at the next open. Guard: `RunRegistry::after_recovery`.
#[test]
fn a14_a_run_without_a_record_is_removed() {
    simulate(|sim| {
        let disk = disk();
        let runs = |disk| Options { inline_batch_bytes: 100, ..options(disk) };
        let db = Database::open("/db", runs(&disk)).unwrap();
        let i = index(&db, "i");
        let gate = sim.hold("wal.reserved");
        let d = db.clone();
        let writer = spawn("writer", move || fill(&d, &i, 0, 100, 10));
        gate.wait_reached();
        assert_eq!(run_files(&disk), 1);
        disk.power_cut(3);
        gate.open();
        writer.join().unwrap().unwrap_err();
        let disk = cut(&disk, db);
        let db = Database::open("/db", runs(&disk)).unwrap();
        assert_eq!(run_files(&disk), 0);
        assert!(all(&db, &db.index("i").unwrap()).is_empty());
    });
}

/// A13: what lies behind the end of the log belongs to a life that is over. The first life leaves a tail in many
/// states, the second writes over its positions and is cut before anything else happens; the third must find the
/// second. Guard: the new life's incarnation and positions (`WalStart::after`).
#[test]
fn a13_second_life_does_not_replay_the_first() {
    for seed in 0..24 {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let i = db.create_index("i", small_nodes_of(seed)).unwrap();
            put(&db, &i, b"synced", b"1", Durability::Sync).unwrap();
            for n in 0..6u8 {
                put(&db, &i, &[n], &vec![n; 700], Durability::Write).unwrap();
            }
            disk.power_cut(seed);
            drop((i, db));
            let disk = disk.reboot_as(seed);
            let db = open(&disk);
            let i = db.index("i").unwrap();
            let mut expected = all(&db, &i);
            assert!(expected.iter().any(|(key, _)| key == b"synced"));
            for n in 0..expected.len() as u8 {
                put(&db, &i, &[n], b"second life", Durability::Sync).unwrap();
                expected.retain(|(key, _)| *key != [n]);
                expected.push((vec![n], b"second life".to_vec()));
            }
            expected.sort();
            drop(i);
            let db = open(&cut(&disk, db));
            assert_eq!(all(&db, &db.index("i").unwrap()), expected, "seed {seed}");
            sound(&db);
        });
    }
}

/// A14: a large transaction commits while a checkpoint has composed everything: its run file is named by the log above the
/// floor and by no state. Guard: the registry compares with the floor.
#[test]
fn a14_a_run_file_stays_while_the_log_names_it() {
    simulate(|sim| {
        let disk = disk();
        let runs = |disk| Options { inline_batch_bytes: 100, ..options(disk) };
        let db = Database::open("/db", runs(&disk)).unwrap();
        let i = index(&db, "i");
        put(&db, &i, b"k", b"v", Durability::Sync).unwrap();
        let gate = sim.hold("checkpoint.composed");
        let d = db.clone();
        let checkpoint = spawn("checkpoint", move || d.checkpoint());
        gate.wait_reached();
        fill(&db, &i, 0, 100, 20).unwrap();
        gate.open();
        checkpoint.join().unwrap().unwrap();
        drop(i);
        let db = Database::open("/db", runs(&cut(&disk, db))).unwrap();
        assert_eq!(all(&db, &db.index("i").unwrap()).len(), 101);
        sound(&db);
    });
}

/// A14: the power goes again after recovery has looked through the run files and before its checkpoint is published: the
/// next recovery replays the same records. Guard: recovery keeps the files that replayed records name.
#[test]
fn a14_a_run_file_stays_until_recovery_is_over() {
    simulate(|sim| {
        let disk = disk();
        let runs = |disk| Options { inline_batch_bytes: 100, ..options(disk) };
        let db = Database::open("/db", runs(&disk)).unwrap();
        let i = index(&db, "i");
        fill(&db, &i, 0, 100, 20).unwrap();
        drop(i);
        let disk = cut(&disk, db);
        let gate = sim.hold("checkpoint.before_publish");
        let again = runs(&disk);
        let opening = spawn("opening", move || Database::open("/db", again).map(|_| ()));
        gate.wait_reached();
        disk.power_cut(5);
        gate.open();
        assert!(opening.join().unwrap().is_err());
        let disk = disk.reboot();
        let db = Database::open("/db", runs(&disk)).unwrap();
        assert_eq!(all(&db, &db.index("i").unwrap()).len(), 100);
        sound(&db);
    });
}

/// A6: a delete that is not durable is collected, and the leaf without the row is written and checkpointed; after a
/// power cut the row is there, or the record of the delete is. The record also writes `told`, which is how
/// one sees that it was found. Write-back's wait for the log and the checkpoint's stand in for each other here; the next
/// test has the first alone.
#[test]
fn a6_a_collected_delete_and_its_record_are_found_together() {
    for pause in [0, 5, 40, 120] {
        simulate(move |sim| {
            let disk = disk();
            let db = open(&disk);
            let (i, told) = (index(&db, "i"), index(&db, "told"));
            fill(&db, &i, 0, 5, 10).unwrap();
            db.checkpoint().unwrap();
            put(&db, &i, b"dirty", b"1", Durability::Sync).unwrap();
            let gate = sim.hold("checkpoint.composed");
            let delete = |key: u32| {
                let mut tx = db.begin().unwrap();
                assert!(tx.delete(&i, &key.to_be_bytes()).unwrap());
                tx.put(&told, &key.to_be_bytes(), b"").unwrap();
                tx.commit_with(Durability::Buffered).unwrap();
            };
            delete(0);
            sleep(pause);
            delete(1);
            let d = db.clone();
            let checkpoint = spawn("checkpoint", move || d.checkpoint());
            gate.wait_reached();
            delete(2);
            gate.open();
            checkpoint.join().unwrap().unwrap();
            drop((i, told));
            let db = open(&cut(&disk, db));
            for key in 0..3u32 {
                let there = get(&db, &db.index("i").unwrap(), &key.to_be_bytes()).is_some();
                let told = get(&db, &db.index("told").unwrap(), &key.to_be_bytes()).is_some();
                assert!(there != told, "row {key} there: {there}, its delete there: {told}");
            }
            sound(&db);
        });
    }
}

/// A6: a checkpoint has composed one index; a transaction that nobody made durable changes it and another one, which is
/// written after that. A power cut: the transaction is in both or in neither. Guard: blocks wait for the log, in
/// `Engine::make_durable`.
#[test]
fn a6_a_block_does_not_outrun_the_transaction_in_it() {
    simulate(|sim| {
        let disk = disk();
        let db = open(&disk);
        let (first, second) = (index(&db, "first"), index(&db, "second"));
        for i in [&first, &second] {
            put(&db, i, b"k", b"old", Durability::Sync).unwrap();
        }
        // The catalog's, the first index's, the second's.
        let mut gate = sim.hold("tree.checkpoint_begun");
        let d = db.clone();
        let checkpoint = spawn("checkpoint", move || d.checkpoint());
        for _ in 0..2 {
            gate.wait_reached();
            let next = sim.hold("tree.checkpoint_begun");
            gate.open();
            gate = next;
        }
        gate.wait_reached();
        let (d, i, j) = (db.clone(), first.clone(), second.clone());
        let mut tx = d.begin().unwrap();
        tx.put(&i, b"k", b"new").unwrap();
        tx.put(&j, b"k", b"new").unwrap();
        tx.commit_with(Durability::Buffered).unwrap();
        gate.open();
        checkpoint.join().unwrap().unwrap();
        drop((i, j, d, first, second));
        let db = open(&cut(&disk, db));
        let value = |name| get(&db, &db.index(name).unwrap(), b"k").unwrap();
        assert_eq!(value("first"), value("second"), "half a transaction");
        sound(&db);
    });
}

/// P6: replay keeps the order of each key, whatever was a record, what a run file, and what a checkpoint had.
/// Guards: F of each index; batches in log order; nothing is collected before the end.
#[test]
fn p6_replay_keeps_the_order_of_each_key() {
    for seed in 0..12 {
        simulate(move |_| {
            let disk = disk();
            let mixed = |disk| Options { inline_batch_bytes: 300, ..options(disk) };
            let db = Database::open("/db", mixed(&disk)).unwrap();
            let i = db.create_index("i", small_nodes_of(seed)).unwrap();
            let mut rng = vfs::random::Rng::new(seed);
            let mut model = BTreeMap::new();
            for n in 0..60u32 {
                let mut tx = db.begin().unwrap();
                for _ in 0..[2, 3, 40][rng.index(3)] {
                    let key = rng.below(50).to_be_bytes().to_vec();
                    if rng.chance(0.4) {
                        tx.delete(&i, &key).unwrap();
                        model.remove(&key);
                    } else {
                        tx.put(&i, &key, &n.to_be_bytes()).unwrap();
                        model.insert(key, n.to_be_bytes().to_vec());
                    }
                }
                tx.commit_with(Durability::Write).unwrap();
                if rng.chance(0.05) {
                    db.checkpoint().unwrap();
                }
            }
            disk.process_kill();
            drop((i, db));
            let disk = disk.reboot();
            let db = Database::open("/db", mixed(&disk)).unwrap();
            assert!(db.stats().replayed_operations > 0);
            assert_eq!(all(&db, &db.index("i").unwrap()), model.into_iter().collect::<Entries>(), "seed {seed}");
            db.settle().unwrap();
            sound(&db);
        });
    }
}
