//! A table goes, or a change of its rows goes back, while somebody has an entry of the structure that is freed (rule A16). Every test
//! says which guard it stands for: with that guard removed it fails.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use crate::rows_anew::*;
use crate::support::*;
use trefoil::{ALL, Database, Options};
use vfs::fault::{Action, Class, Rule};

/// Takes the blocks of what is gone for something else.
fn fill_again(db: &Database) {
    for n in 0..3 {
        live_bytes(db);
        let more = table(db, &format!("more{n}"));
        insert(db, &more, 0..1000).unwrap();
    }
    live_bytes(db);
}

/// A cursor from the time in which former rows were kept reads the new structure, which has had an entry of its own since these are
/// over. The table is dropped or emptied: the cursor finds every row. Guard: who has the pair has the entry that came in its place.
#[test]
fn a_table_goes_while_a_cursor_has_the_pair_of_its_rows() {
    for (from, to) in ways() {
        for is_emptied in [false, true] {
            simulate(move |_| {
                let db = open(&disk());
                let (t, mut model) = made_of(&db, from);
                let old = db.snapshot().unwrap();
                delete(&db, &t, 1);
                model.remove(&1);
                db.change_table_rows(&t, of(to)).unwrap();
                let now = db.snapshot().unwrap();
                let mut cursor = now.scan(&t, ALL).unwrap();
                assert!(cursor.next().unwrap().is_some());
                drop(old);
                live_bytes(&db);
                drop(t);
                if is_emptied {
                    drop(db.truncate_table("t").unwrap());
                } else {
                    db.drop_table("t").unwrap();
                }
                fill_again(&db);
                let mut rows = 1;
                while cursor.next().unwrap().is_some() {
                    rows += 1;
                }
                assert_eq!(rows, model.len(), "{from:?} {to:?}");
                drop(cursor);
                sound(&db);
            });
        }
    }
}

/// A switch goes back while the background has the structure that had the number of the rows for a moment: its blocks are freed when
/// that lets go of it. Guard: the pair of a switch has the entry that is freed.
#[test]
fn a_switch_goes_back_while_somebody_has_its_pair() {
    for (from, to) in ways() {
        simulate(move |sim| {
            let disk = disk();
            let db = Database::open("/db", Options { background: false, ..options(&disk) }).unwrap();
            let (t, mut model) = made_of(&db, from);
            let before = live_bytes(&db);
            let (switch, back) = (sim.hold("ddl.registered"), sim.hold("rows.given_up"));
            let changing = change(&db, &t, to);
            switch.wait_reached();
            disk.faults().add(Rule::new(Action::StorageFull).on(Class::Write).path("MANIFEST").forever());
            switch.open();
            back.wait_reached();
            disk.faults().clear();
            let gate = sim.hold("background.maintain");
            let other = db.clone();
            let tending = spawn("upkeep", move || other.settle().unwrap());
            gate.wait_reached();
            back.open();
            assert!(changing.join().unwrap().is_err());
            let kept = live_bytes(&db);
            gate.open();
            tending.join().unwrap();
            let freed = live_bytes(&db);
            assert!(kept > before + (4 << 10), "{before} bytes before, {kept} while it is held");
            assert!(freed < before + (2 << 10), "{before} bytes before, {freed} behind it");
            work(&db, &t, &mut model, 600);
            are(&db, &t, &model);
        });
    }
}
