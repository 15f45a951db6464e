//! What happens at the seams of rows that get another structure (rule A16).

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::rows_anew::*;
use crate::support::*;
use trefoil::{Durability, Error, Structure, TransactionOptions, Value};
use vfs::fault::{Action, Class, Rule};

/// A switch that a full disk refuses leaves a moment in which the checkpoint has the new structure for the rows: what is committed in it
/// is not lost, whatever checkpoint comes in it. Guard: new is written until no checkpoint has it for the rows any more.
#[test]
fn a_commit_beside_a_switch_that_goes_back_is_kept() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let disk = disk();
            let options = options(&disk);
            let db = open(&disk);
            let (t, mut model) = made_of(&db, from);
            let switch = sim.hold("ddl.registered");
            let back = sim.hold("rows.given_up");
            let changing = change(&db, &t, to);
            switch.wait_reached();
            disk.faults().add(Rule::new(Action::StorageFull).on(Class::Write).path("MANIFEST").forever());
            switch.open();
            back.wait_reached();
            disk.faults().clear();
            work(&db, &t, &mut model, 600);
            db.checkpoint().unwrap();
            disk.power_cut(1);
            back.open();
            assert!(changing.join().unwrap().is_err());
            drop(t);
            let (_disk, db, t) = again(&disk, db, &options);
            are(&db, &t, &model);
        });
    }
}

/// Under snapshot isolation a row that nobody has changed is written by a transaction from before the change as by any other, and one
/// that somebody has changed is not. Guard: who looks for the newest version is told when it was written.
#[test]
fn a_snapshot_from_before_writes_what_nobody_has_changed() {
    for (from, to) in ways() {
        simulate(move |_| {
            let db = open(&disk());
            let (t, _) = made_of(&db, from);
            let how = TransactionOptions { snapshot_isolation: true, ..Default::default() };
            let mut tx = db.begin_with(how).unwrap();
            assert!(tx.get_row(&t, &[Value::U64(1)]).unwrap().is_some());
            delete(&db, &t, 2);
            insert(&db, &t, 2..3).unwrap();
            db.change_table_rows(&t, of(to)).unwrap();
            delete(&db, &t, 3);
            insert(&db, &t, 3..4).unwrap();
            for id in [2, 3] {
                let refused = tx.update(&t, &[Value::U64(id), Value::U32(9)]);
                assert!(matches!(refused, Err(Error::SnapshotConflict { .. })), "{id}: {refused:?}");
            }
            let done = tx.update(&t, &[Value::U64(1), Value::U32(9)]);
            assert!(matches!(done, Ok(true)), "{done:?}");
            tx.commit().unwrap();
        });
    }
}

/// Rows that come late into an LSM tree hold its F below the snapshot of the build, behind a checkpoint that had more. The log from there on is gone, and nothing
/// of the build is in it. Guard: what is being built asks for no log that the manifest before did without.
#[test]
fn a16f_what_comes_late_asks_for_no_log_that_is_gone() {
    simulate(|sim| {
        let disk = disk();
        let options = options(&disk);
        let db = open(&disk);
        let t = table_of(&db, "t", of(Structure::Btree));
        insert(&db, &t, 0..600).unwrap();
        let other = db.create_index("other", small_nodes()).unwrap();
        let first = sim.hold_nth("build.batch", 1);
        let changing = change(&db, &t, Structure::Lsm);
        first.wait_reached();
        for n in 0..300u32 {
            put(&db, &other, &n.to_be_bytes(), &[n as u8; 4000], Durability::Write).unwrap();
        }
        db.checkpoint().unwrap();
        let sealed = sim.hold("lsm.checkpoint_sealed");
        let checkpoint = {
            let db = db.clone();
            spawn("checkpoint", move || drop(db.checkpoint()))
        };
        sealed.wait_reached();
        let second = sim.hold("build.batch");
        first.open();
        second.wait_reached();
        sealed.open();
        checkpoint.join().unwrap();
        disk.power_cut(1);
        second.open();
        assert!(changing.join().unwrap().is_err());
        drop((t, other));
        let (_disk, db, t) = again(&disk, db, &options);
        assert_eq!(seen(&db.snapshot().unwrap(), &t).unwrap().len(), 600);
    });
}
