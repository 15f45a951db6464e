//! Who is about while the rows of tables change their structure over and over: [`crate::rows_anew_random`].

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rows_anew_random::*;
use crate::support::*;
use trefoil::{
    ALL, ChangeOptions, Database, Error, LockMode, Locking, TableChanges, Transaction, TransactionOptions, Value,
};
use vfs::fault::{Action, Class, Rule};
use vfs::random::Rng;

fn key(id: u64) -> [Value<'static>; 1] {
    [Value::U64(id)]
}

fn rest(rng: &mut Rng, most: u64) {
    if rng.chance(0.5) {
        sleep(rng.below(most.max(1)));
    }
}

/// One operation on a row of the writer's own; the view is what it should see.
fn step(
    life: &Life,
    tx: &mut Transaction,
    view: &mut Model,
    ids: std::ops::Range<u64>,
    rng: &mut Rng,
) -> Result<(), Error> {
    let id = ids.start + rng.below(ROWS);
    let t = life.table(id);
    let new = [Value::U64(id), Value::U32(rng.below(40) as u32)];
    let Value::U32(colour) = new[1] else { unreachable!() };
    let shown = |row: Option<Vec<Value<'static>>>| row.map(|row| row[1].clone());
    let wanted = view.get(&id).map(|colour| Value::U32(*colour));
    match rng.below(12) {
        0 | 1 => {
            let there = tx.insert_if_absent(t, &new)?.is_some();
            assert_eq!(there, wanted.is_some(), "row {id}");
            view.entry(id).or_insert(colour);
        }
        2 | 3 => {
            let there = tx.update(t, &new)?;
            assert_eq!(there, wanted.is_some(), "row {id}");
            view.entry(id).and_modify(|is| *is = colour);
        }
        4 => {
            let there = tx.replace(t, &new)?;
            assert_eq!(there, usize::from(wanted.is_some()), "row {id}");
            view.insert(id, colour);
        }
        5 | 6 => {
            let there = tx.delete_row(t, &key(id))?;
            assert_eq!(there, wanted.is_some(), "row {id}");
            view.remove(&id);
        }
        7 => assert_eq!(shown(tx.get_row(t, &key(id))?), wanted, "row {id}"),
        8 => {
            let how = if rng.chance(0.5) { Locking::EXCLUSIVE } else { Locking::SHARED };
            assert_eq!(shown(tx.get_row_locked(t, &key(id), how)?), wanted, "row {id} under a lock");
        }
        9 | 10 => {
            let is_locked = rng.chance(0.6);
            let bounds = (key(ids.start), key(ids.end - 1));
            let range = (Bound::Included(&bounds.0[..]), Bound::Included(&bounds.1[..]));
            let mut rows = if is_locked { tx.scan_locked(t, range, LockMode::Shared)? } else { tx.scan(t, range)? };
            let (mut found, pause) = (Model::new(), rng.chance(0.3));
            while let Some(row) = rows.next()? {
                let (Value::U64(id), Value::U32(colour)) = (&row[0], &row[1]) else { panic!("{row:?}") };
                found.insert(*id, *colour);
                if pause && rng.chance(0.1) {
                    sleep(rng.below(300));
                }
            }
            let wanted: Model = view.iter().filter(|(of, _)| *of % 2 == id % 2).map(|(id, c)| (*id, *c)).collect();
            assert_eq!(found, wanted, "own rows of {} (locked: {is_locked})", id % 2);
        }
        _ => {
            let (savepoint, before) = (tx.savepoint(), view.clone());
            for id in ids.start..ids.start + 3 {
                let row = [Value::U64(id), Value::U32(colour)];
                tx.replace(life.table(id), &row)?;
                view.insert(id, colour);
            }
            if rng.chance(0.5) {
                tx.rollback_to(savepoint)?;
                *view = before;
            }
        }
    }
    Ok(())
}

/// Decides what the writer has prepared.
fn decide(life: &Life, w: usize, xid: &[u8], count: u64, rng: &mut Rng) -> bool {
    let commits = rng.chance(0.6);
    loop {
        let done = if commits { life.db.commit_prepared(xid).map(drop) } else { life.db.rollback_prepared(xid) };
        match done {
            Ok(()) if commits => life.done.known[w].store(count, Ordering::SeqCst),
            Ok(()) => drop(life.done.all[w].lock().pop()),
            Err(_) if life.is_over() => return false,
            Err(Error::DiskFull { .. } | Error::LockTimeout { .. }) => {
                sleep(20);
                continue;
            }
            Err(error) => panic!("a decision: {error}"),
        }
        return true;
    }
}

/// Commits the transaction, at once or in two phases; false if it is over.
fn end(life: &Life, tx: Transaction, (w, count): (usize, u64), view: Model, rng: &mut Rng) -> bool {
    life.done.all[w].lock().push(view);
    let take_back = || drop(life.done.all[w].lock().pop());
    if rng.chance(0.2) {
        let xid = format!("{w}-{count}").into_bytes();
        match tx.prepare(&xid) {
            Ok(()) => {}
            Err(_) if life.is_over() => return false,
            outcome => {
                life.may_fail(outcome, "prepare");
                take_back();
                return true;
            }
        }
        let most = if rng.chance(0.05) { 5000 } else { 100 };
        rest(rng, most);
        return decide(life, w, &xid, count, rng);
    }
    match tx.commit() {
        Ok(_) => life.done.known[w].store(count, Ordering::SeqCst),
        Err(_) if life.is_over() => return false,
        outcome => {
            life.may_fail(outcome, "commit");
            take_back();
        }
    }
    true
}

/// Transactions of a writer.
pub fn write(life: &Life, w: usize, rng: &mut Rng) {
    let ids = w as u64 * APART..(w as u64 + 1) * APART;
    while !life.is_over() {
        let before = life.done.all[w].lock().last().unwrap().clone();
        let count = life.done.known[w].load(Ordering::SeqCst) + 1;
        let (mut view, is_slow) = (before.clone(), rng.chance(0.15));
        let how = TransactionOptions { snapshot_isolation: rng.chance(0.4), ..Default::default() };
        let Some(mut tx) = life.may_fail(life.db.begin_with(how), "begin") else { continue };
        let steps = if rng.chance(0.1) { 60 } else { 6 };
        let mut outcome = Ok(());
        for _ in 0..rng.below(steps) {
            outcome = step(life, &mut tx, &mut view, ids.clone(), rng);
            if outcome.is_err() {
                break;
            }
            if is_slow {
                rest(rng, 400);
            }
        }
        let at = ids.start + COUNT;
        let outcome = outcome.and_then(|()| {
            view.insert(at, count as u32);
            tx.replace(life.table(at), &[Value::U64(at), Value::U32(count as u32)])
        });
        if life.may_fail(outcome, "a statement").is_none() {
            continue;
        }
        if is_slow {
            rest(rng, 1000);
        }
        if rng.chance(0.1) {
            tx.rollback();
            continue;
        }
        if !end(life, tx, (w, count), view, rng) {
            return;
        }
        rest(rng, 30);
    }
}

/// Changes of definitions of one of the tables.
pub fn change(life: &Life, n: usize, rng: &mut Rng) {
    let t = &life.tables[n];
    while !life.is_over() {
        let left = Arc::new(AtomicU64::new(rng.below(60)));
        let goes_on = move || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        let goes_on = rng.chance(0.3).then(|| Arc::new(goes_on) as Arc<dyn Fn() -> bool + Send + Sync>);
        let lock_timeout = Some(std::time::Duration::from_secs(3)).filter(|_| rng.chance(0.7));
        let db = life.db.changing(ChangeOptions { goes_on, lock_timeout, ..ChangeOptions::default() });
        let what = rng.below(10);
        let outcome = match what {
            0..=4 => db.change_table_rows(t, settings(rng)),
            5 | 6 => db.begin_table_rows(t, settings(rng)).and_then(|change| {
                rest(rng, 500);
                match rng.below(3) {
                    0 => Ok(()),
                    1 => change.finish(&TableChanges::new()),
                    _ if t.schema().indexes().is_empty() => change.finish(&TableChanges::new()),
                    _ => change.finish(&TableChanges::new().drop_index("by_colour")),
                }
            }),
            7 => match t.schema().indexes().is_empty() {
                true => db.create_table_indexes(t, vec![by_colour().with_options(settings(rng))]),
                false if rng.chance(0.5) => db.drop_table_index(t, "by_colour"),
                false => db.rebuild_index(t, "by_colour"),
            },
            8 => {
                let name = t.name().to_owned();
                let to = if name.ends_with('2') { name[..1].to_owned() } else { format!("{name}2") };
                db.rename_table(&name, &to)
            }
            _ => Ok(()),
        };
        if what < 7 {
            life.done.changes[usize::from(outcome.is_err())].fetch_add(1, Ordering::SeqCst);
        }
        match outcome {
            Ok(())
            | Err(
                Error::LockTimeout { .. } | Error::Cancelled | Error::HeldByPrepared { .. } | Error::DiskFull { .. },
            ) => {}
            Err(_) if life.is_over() => return,
            Err(error) => panic!("a change: {error}"),
        }
        rest(rng, 200);
    }
}

/// A table that goes again and again while its rows are read as they were, and as they are.
pub fn come_and_go(life: &Life, rng: &mut Rng) {
    while !life.is_over() {
        let outcome = come_and_go_once(life, rng);
        match outcome {
            Ok(()) | Err(Error::LockTimeout { .. } | Error::DiskFull { .. }) => {}
            Err(_) if life.is_over() => return,
            Err(error) => panic!("a table that goes: {error}"),
        }
        match life.db.drop_table("v") {
            Ok(()) | Err(Error::NotFound { .. } | Error::LockTimeout { .. } | Error::DiskFull { .. }) => {}
            Err(_) if life.is_over() => return,
            Err(error) => panic!("a drop: {error}"),
        }
        rest(rng, 1000);
    }
}

fn come_and_go_once(life: &Life, rng: &mut Rng) -> Result<(), Error> {
    let db = &life.db;
    if db.table("v").is_ok() {
        return Ok(());
    }
    let t =
        trefoil::Schema::builder().column("id", trefoil::ColumnType::U64).column("colour", trefoil::ColumnType::U32);
    let t = db.create_table("v", t.primary_key(&["id"]).primary_options(settings(rng)).build()?)?;
    let mut rows = 150 + rng.below(200);
    insert(db, &t, 0..rows)?;
    let mut snapshots = Vec::new();
    for _ in 0..2 + rng.below(4) {
        snapshots.push((db.snapshot()?, rows));
        insert(db, &t, rows..rows + 10)?;
        rows += 10;
        match db.change_table_rows(&t, settings(rng)) {
            Ok(()) | Err(Error::LockTimeout { .. }) => {}
            Err(error) => return Err(error),
        }
        if rng.chance(0.5) {
            snapshots.remove(rng.index(snapshots.len()));
        }
    }
    snapshots.push((db.snapshot()?, rows));
    let mut cursors = Vec::new();
    for (snapshot, rows) in &snapshots {
        let mut cursor = snapshot.scan(&t, ALL)?;
        cursor.next()?;
        cursors.push((cursor, *rows));
    }
    // Snapshots hold rows, cursors hold more.
    for _ in 0..rng.below(3) {
        if cursors.len() > 1 {
            drop(cursors.remove(rng.index(cursors.len())));
        }
    }
    rest(rng, 1000);
    drop(t);
    match rng.below(3) {
        0 => db.drop_table("v")?,
        1 => drop(db.truncate_table("v")?),
        _ => {}
    }
    rest(rng, 2000);
    for (mut cursor, rows) in cursors {
        let mut found = 1;
        while cursor.next()?.is_some() {
            found += 1;
        }
        assert_eq!(found, rows, "rows of a table that goes");
    }
    Ok(())
}

/// Snapshots that are kept for a while, and see the same then.
pub fn look(life: &Life, rng: &mut Rng) {
    while !life.is_over() {
        let known = life.done.known();
        let Some(snapshot) = life.may_fail(life.db.snapshot(), "a snapshot") else { return };
        let read_now = rng.chance(0.6);
        let read = |what: &str| {
            let rows = life.may_fail(rows_of(&snapshot, &life.tables), what)?;
            life.done.check(&rows, known, what);
            Some(rows)
        };
        let first = if read_now { read("a snapshot") } else { None };
        let most = if rng.chance(0.2) { 3000 } else { 300 };
        rest(rng, most);
        let second = read("a snapshot later");
        if let (Some(first), Some(second)) = (first, second) {
            assert_eq!(first, second);
        }
        rest(rng, 100);
    }
}

/// Checkpoints, upkeep, full disks, backups.
pub fn tend(life: &Life, rng: &mut Rng, lives: u64) {
    let mut copies: Vec<String> = Vec::new();
    while !life.is_over() {
        rest(rng, 300);
        match rng.below(8) {
            0..=2 => drop(life.may_fail(life.db.checkpoint(), "a checkpoint")),
            3 => drop(life.may_fail(life.db.settle(), "upkeep")),
            4 => {
                let full = Rule::new(Action::StorageFull).on(Class::Write).path("/db/MANIFEST").forever();
                life.disk.faults().add(full);
                sleep(rng.below(200));
                life.disk.faults().clear();
            }
            5 | 6 if copies.len() < 4 => {
                let known = life.done.known();
                let (n, base) = (copies.len(), copies.last().cloned());
                let dir = format!("/copy-{lives}-{n}");
                let backup = life.db.backup().rate_bytes(if rng.chance(0.5) { u64::MAX } else { 4 << 20 });
                let made = match &base {
                    Some(base) => backup.since(base).to(&dir),
                    None => backup.to(&dir),
                };
                if life.may_fail(made, "a backup").is_none() {
                    continue;
                }
                copies.push(dir);
                if rng.chance(0.5) {
                    let to = format!("/restored-{lives}-{n}");
                    let restored = Database::restore(&copies, &to, options(&life.disk));
                    if life.may_fail(restored, "a restore").is_none() {
                        continue;
                    }
                    let Some(copy) = life.may_fail(Database::open(&to, options(&life.disk)), "a copy") else {
                        continue;
                    };
                    look_at(life, copy, known);
                }
            }
            _ => {}
        }
    }
}

/// A copy shows one moment.
fn look_at(life: &Life, copy: Database, known: [u64; WRITERS]) {
    let look = || {
        for set in copy.prepared()? {
            copy.rollback_prepared(&set.xid)?;
        }
        let tables = tables(&copy);
        life.done.check(&rows_of(&copy.snapshot()?, &tables)?, known, "a copy");
        for (name, report) in copy.verify()? {
            assert!(report.problems.is_empty() || life.is_over(), "{name}: {:?}", report.problems);
        }
        Ok(())
    };
    let outcome: Result<(), Error> = look();
    life.may_fail(outcome, "a copy");
}
