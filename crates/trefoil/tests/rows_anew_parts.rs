//! The rows of a table in another structure, in two parts: made anew, then put in their place along with other changes.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::time::Duration;

use crate::rows_anew::*;
use crate::support::*;
use trefoil::{ChangeOptions, Database, Error, IndexSchema, Structure, Table, TableChanges};

/// An index of the same column, for the one that is there to give way to.
fn built_beside(db: &Database, t: &Table) -> TableChanges {
    let beside = IndexSchema::new("beside", &["colour"]).with_options(small_nodes());
    db.create_table_indexes(t, vec![beside]).unwrap();
    TableChanges::new().drop_index("by_colour").rename_index("beside", "by_colour")
}

fn indexes(t: &Table) -> Vec<String> {
    t.schema().indexes().iter().map(|index| index.name().to_owned()).collect()
}

/// Rows that were made anew stand beside those that are there, with all that is written, for as long as nobody wants them; given up,
/// nothing of them is left. Guards: the table is theirs until then; who is given up is no more written to.
#[test]
fn a16_rows_made_anew_are_kept_up_until_they_are_wanted() {
    for (from, to) in ways() {
        simulate(move |_| {
            let disk = disk();
            let db = open(&disk);
            let (t, mut model) = made_of(&db, from);
            let at_once = ChangeOptions { lock_timeout: Some(Duration::ZERO), ..ChangeOptions::default() };
            for is_wanted in [false, true] {
                let changing = db.begin_table_rows(&t, of(to)).unwrap();
                work(&db, &t, &mut model, 500 + 200 * u64::from(is_wanted));
                let other = db.changing(at_once.clone()).drop_table_index(&t, "by_colour");
                assert!(matches!(other, Err(Error::LockTimeout { .. })), "{other:?}");
                assert_eq!((structure(&t), kept_in(&db)), (from, from));
                are(&db, &t, &model);
                if is_wanted {
                    changing.finish(&TableChanges::new()).unwrap();
                } else {
                    drop(changing);
                    assert_eq!((structure(&t), kept_in(&db)), (from, from));
                }
                assert!(beside(&db).is_empty() && db.index_builds().is_empty());
                are(&db, &t, &model);
            }
            drop(t);
            let (_disk, db, t) = again(&disk, db, &options(&disk));
            assert_eq!((structure(&t), kept_in(&db)), (to, to));
            are(&db, &t, &model);
        });
    }
}

/// What changes along with the rows does so in the same commit, or not at all. Guards: the changes are in that commit; writers are
/// waited for before the switch.
#[test]
fn a26_other_changes_come_with_the_rows() {
    for (n, point) in ["ddl.registered", "rows.switched", "build.public"].into_iter().enumerate() {
        simulate(move |sim| {
            let (disk, (from, to)) = (disk(), (Structure::Betree, Structure::Lsm));
            let db = open(&disk);
            let (t, mut model) = made_of(&db, from);
            let changes = built_beside(&db, &t);
            let mut writer = db.begin().unwrap();
            writer.insert(&t, &row(900)).unwrap();
            let at_once = ChangeOptions { lock_timeout: Some(Duration::ZERO), ..ChangeOptions::default() };
            let late = db.changing(at_once.clone()).begin_table_rows(&t, of(to)).unwrap_err();
            assert!(matches!(late, Error::LockTimeout { .. }), "{late}");
            writer.rollback();
            let changing = db.begin_table_rows(&t, of(to)).unwrap();
            let mut writer = db.begin().unwrap();
            writer.insert(&t, &row(900)).unwrap();
            let late = changing.changing(at_once).finish(&changes).unwrap_err();
            assert!(matches!(late, Error::LockTimeout { .. }), "{late}");
            assert_eq!((structure(&t), kept_in(&db), indexes(&t).len()), (from, from, 2));
            writer.commit().unwrap();
            model.insert(900, 900 % 7);
            work(&db, &t, &mut model, 500);
            let changing = db.begin_table_rows(&t, of(to)).unwrap();
            let gate = sim.hold(point);
            let finishing = spawn("finish", move || changing.finish(&changes));
            gate.wait_reached();
            disk.power_cut(n as u64);
            gate.open();
            assert_eq!(finishing.join().unwrap().is_ok(), point == "build.public", "{point}");
            drop(t);
            let (_disk, db, t) = again(&disk, db, &options(&disk));
            let (now, names): (_, &[_]) = match point {
                "build.public" => (to, &["by_colour"]),
                _ => (from, &["by_colour", "beside"]),
            };
            assert_eq!((structure(&t), kept_in(&db)), (now, now), "{point}");
            assert_eq!(indexes(&t), names, "{point}");
            are(&db, &t, &model);
        });
    }
}
