// SPDX-License-Identifier: GPL-2.0-only
//! The one database of a server, and what is counted for its tables as long as it is open.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trefoil::{BackupMoment, BackupProgress, ChangeOptions, Database, Durability, Error, LockWaitNews, Options};

use crate::abi;
use crate::alter;
use crate::collation;
use crate::crash;
use crate::error_log;
use crate::failure::{Code, Failure, Result};
use crate::foreign::{self, Rooms};
use crate::key_bytes::Room;
use crate::layout::Layout;
use crate::numbers::{Next, Numbers};
use crate::raw::{self, Definition, ForeignChange};
use crate::shedding::Shedding;
use crate::status::Ends;
use crate::watch::Watch;
use crate::writes::TableNumber;

/// The database behind the handlerton.
pub struct Engine {
    pub db: Database,
    /// By the name of the table. They outlive its last handler: a transaction may have taken numbers that no
    /// committed row shows yet.
    counters: Mutex<BTreeMap<String, Arc<Counters>>>,
    /// How many have had counters.
    tables: AtomicU64,
    /// What of them outlives the server.
    pub numbers: Numbers,
    pub ends: Ends,
    /// Of rows that a replica applies: see [`crate::write::apply_update`].
    pub reads_left_out: AtomicU64,
    pub watch: Arc<Watch>,
    /// For the keys of tables.
    pub room: Room,
    shedding: Option<Shedding>,
    /// What a killed server was changing is finished, or undone.
    is_recovered: AtomicBool,
}

/// Numbers of one table, and those given out for it.
#[derive(Debug)]
pub struct Counters {
    /// Its own: two handlers with the same one read and write the same rows.
    pub table: TableNumber,
    /// The next row number of a table without a primary key. 0: not looked up yet.
    pub row: AtomicU64,
    /// The next number of AUTO_INCREMENT.
    pub auto: Next,
    /// When rows were last changed, in seconds since 1970; 0: not since the database was opened.
    pub changed_at: AtomicI64,
}

impl Counters {
    fn new(table: TableNumber) -> Self {
        let (row, auto, changed_at) = Default::default();
        Self { table, row, auto, changed_at }
    }
}

impl Engine {
    pub fn open(directory: &str, options: &abi::Options) -> Result<Self> {
        trefoil::fuzzing::at_points(crash::point_of_rows);
        let collations = Arc::new(collation::Server::new(options.collations));
        let writes_refused = options.writes_refused;
        let options = Options {
            budget_bytes: options.buffer_size,
            log_capacity_bytes: options.log_capacity,
            disk_reserve_bytes: options.disk_reserve,
            collations: Some(collations.clone()),
            on_poison: Some(Arc::new(move |cause| writes_refused(raw::to_text(&error_log::refusal(cause))))),
            checkpoint_replay: Duration::from_secs(options.checkpoint_replay_seconds),
            background_threads: usize::try_from(options.background_threads).unwrap_or(usize::MAX),
            io_budget_bytes: options.settings.io_budget,
            gc_debt_limit_bytes: options.settings.gc_debt_limit,
            deadlock_detect: options.settings.deadlock_detect != 0,
            ..Options::default()
        };
        let db = Database::open(directory, options)?;
        let room = Room::new(&db, &collations);
        Self::new(db, room)
    }

    fn new(db: Database, room: Room) -> Result<Self> {
        let (numbers, shedding) = (Numbers::open(&db)?, Shedding::start(&db));
        Ok(Self {
            numbers,
            db,
            counters: Mutex::default(),
            tables: AtomicU64::default(),
            ends: Ends::default(),
            reads_left_out: AtomicU64::default(),
            watch: Arc::default(),
            room,
            shedding,
            is_recovered: AtomicBool::default(),
        })
    }

    pub fn set(&self, settings: &abi::Settings) {
        self.db.set_deadlock_detect(settings.deadlock_detect != 0);
        self.db.set_gc_debt_limit(settings.gc_debt_limit);
        self.db.set_io_budget(settings.io_budget);
    }

    /// From now on the server hears of waits for row locks. See `capi.h`.
    pub fn report_waits(&self, report: extern "C" fn(u8, *mut c_void) -> u32) {
        let watch = self.watch.clone();
        self.db.report_lock_waits(move |news| match news {
            LockWaitNews::Begins => match report(abi::WAIT_BEGINS, std::ptr::null_mut()) {
                0 => None,
                again_ms => Some(Duration::from_millis(u64::from(again_ms))),
            },
            LockWaitNews::Blocked(by) => {
                for &transaction in by {
                    watch.tell(transaction, |connection| _ = report(abi::WAIT_BLOCKED, connection));
                }
                None
            }
            LockWaitNews::Ends => {
                report(abi::WAIT_ENDS, std::ptr::null_mut());
                None
            }
        });
    }

    pub fn create_table(
        &self,
        name: &str,
        definition: &Definition<'_>,
        foreign: &ForeignChange<'_>,
        auto_increment: u64,
        wait: ChangeOptions,
    ) -> Result<()> {
        let layout = Layout::new(definition, &self.room)?;
        layout.check_keys(&self.room)?;
        crash::point("create");
        let schema =
            foreign.apply(&self.db, name, layout.schema, &Rooms { definition, collations: &self.room.collations })?;
        let options = ChangeOptions {
            unchecked_foreign_keys: foreign.unchecked,
            takes_place_of: foreign.like.map(str::to_owned),
            ..wait
        };
        let table = self.db.changing(options).create_table(name, schema)?;
        crash::point("created");
        // A temporary one is made within transactions, which read it.
        if !is_temporary(name) {
            self.db.hide_from_older_snapshots(&table)?;
        }
        self.counters(name).auto.reset(&self.numbers, name, auto_increment)
    }

    pub fn drop_table(&self, name: &str, wait: ChangeOptions) -> Result<()> {
        crash::point("drop");
        let mut wait = if is_of_change(name) { to_its_end(wait) } else { wait };
        wait.unchecked_foreign_keys |= self.gives_way(name);
        self.db.changing(wait).drop_table(name)?;
        crash::point("dropped");
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.numbers.keep(name, 0)
    }

    /// True while the server finishes what one before it was changing, if a copy is there whose place this table may have: the server
    /// drops it, and gives its name, to which others refer, to the copy.
    fn gives_way(&self, name: &str) -> bool {
        let database = |name: &str| name.len() - last_part(name).len();
        let is_its_copy = |copy: &String| is_copy(copy) && copy[..database(copy)] == name[..database(name)];
        !self.is_recovered.load(Ordering::Relaxed) && self.db.names().1.iter().any(is_its_copy)
    }

    /// The number of a table's definition.
    pub fn definition_id(&self, name: &str) -> Result<u64> {
        Ok(alter::definition_id(&self.db.table(name)?.schema()))
    }

    /// Drops temporary tables that a server before this one left behind, and what its changes of tables had built.
    pub fn drop_leftovers(&self) -> Result<()> {
        self.is_recovered.store(true, Ordering::Relaxed);
        let (_, tables) = self.db.names();
        let mut outcome = Ok(());
        for name in tables.iter().filter(|name| is_temporary(name)) {
            // One that waits for what is prepared keeps no other one.
            outcome = outcome.and(self.drop_table(name, at_once()));
        }
        for name in tables.iter().filter(|name| !is_temporary(name)) {
            outcome = outcome.and(alter::drop_built(&self.db, &self.db.table(name)?));
        }
        outcome
    }

    /// Drops the tables whose names begin with `prefix`.
    pub fn drop_tables(&self, prefix: &str, wait: &ChangeOptions) -> Result<()> {
        let (_, tables) = self.db.names();
        let mut tables = tables.iter().filter(|name| name.starts_with(prefix));
        tables.try_for_each(|name| {
            let unchecked = wait.unchecked_foreign_keys || foreign::is_needed_by_its_database_alone(&self.db, name);
            self.drop_table(name, ChangeOptions { unchecked_foreign_keys: unchecked, ..wait.clone() })
        })
    }

    /// `labels`: the table's names in the server's words, with which foreign keys begin that were given none.
    pub fn rename_table(
        &self,
        (from, to): (&str, &str),
        (label, new_label): (&str, &str),
        wait: ChangeOptions,
    ) -> Result<()> {
        // Under both names meanwhile: whichever the table has after a crash, its number is there.
        self.counters(from).auto.keep_exactly(&self.numbers, from)?;
        self.numbers.keep(to, self.numbers.kept(from)?)?;
        crash::point("rename");
        // Of a change by a copy: what refers to the table goes on doing so by its name.
        let is_of_change = is_of_change(from) || is_of_change(to);
        let unchecked = wait.unchecked_foreign_keys || is_of_change;
        // Of a table that others refer to: a child's writer holds the key of its parent in the table of before, and who removes that
        // key from the copy would not meet him. So none is inside when the name goes, and who comes finds the copy.
        let is_left = is_backup(to) && !self.db.references_to(from).is_empty();
        let wait = if is_left { wait } else { to_its_end(wait) };
        let renaming = self.db.changing(ChangeOptions {
            leave_references: is_of_change,
            unchecked_foreign_keys: unchecked,
            without_writers: is_left,
            ..wait
        });
        renaming.rename_table(from, to).map_err(|error| match error {
            // Others wait for a table of that name, and this one is not fit.
            Error::NeededByForeignKey { .. } => Failure::new(Code::ForeignRefused, &error.to_string()),
            _ => error.into(),
        })?;
        let table = self.db.table(to)?;
        let changes = foreign::renamed(&table.schema(), label, new_label);
        if !is_of_change && !table.schema().foreign_keys().is_empty() {
            renaming.alter_table(&table, &changes)?;
        }
        crash::point("renamed");
        // Its rows were copied later than a snapshot may be.
        if is_copy(from) {
            self.db.hide_from_older_snapshots(&self.db.table(to)?)?;
        }
        self.numbers.keep(from, 0)?;
        let mut all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = all.remove(from) {
            all.insert(to.to_owned(), counters);
        }
        Ok(())
    }

    pub fn counters(&self, name: &str) -> Arc<Counters> {
        let mut all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || Arc::new(Counters::new(TableNumber(self.tables.fetch_add(1, Ordering::Relaxed))));
        all.entry(name.to_owned()).or_insert_with(made).clone()
    }
}

impl Engine {
    /// Names of what is prepared into `out`, without the first `skip`; how many.
    pub fn prepared(&self, skip: usize, out: &mut [abi::Xid]) -> usize {
        let prepared = self.db.prepared().unwrap_or_default();
        let mut count = 0;
        for (waiting, slot) in prepared.iter().skip(skip).zip(out) {
            slot.length = waiting.xid.len() as u32;
            slot.bytes[..waiting.xid.len()].copy_from_slice(&waiting.xid);
            count += 1;
        }
        count
    }

    /// Commits what is prepared, or rolls it back.
    pub fn decide(&self, xid: &[u8], commit: bool) -> Result<()> {
        crash::point("to_decide");
        let decided = match commit {
            true => self.db.commit_prepared(xid).map(|_| ()),
            false => self.db.rollback_prepared(xid),
        };
        decided.map_err(|error| match error {
            Error::NotFound { .. } => Failure::new(Code::NoXid, &error.to_string()),
            other => other.into(),
        })
    }
}

impl Engine {
    /// A hot backup, at most `rate` bytes a second; 0: as fast as it goes. `what` is the directory that it goes to; or that,
    /// ` SINCE `, and the directory of the backup to which it is an increment. `goes_on` is told meanwhile how far it is, and
    /// asked; `at_moment` lets the moment come that the backup shows, is told the directory, and answers the same.
    pub fn backup(
        &self,
        what: &str,
        rate: u64,
        goes_on: &dyn Fn(u64, u64) -> bool,
        at_moment: &dyn Fn(&mut BackupMoment<'_>, &str) -> bool,
    ) -> Result<()> {
        let (dir, base) = target_and_base(what);
        let path = Path::new(dir);
        if let Some(relative) = [Some(dir), base].into_iter().flatten().find(|dir| !Path::new(dir).is_absolute()) {
            let why = format!("no backup in '{dir}': name '{relative}' with its whole path, from / on");
            return Err(Failure::new(Code::Failed, &why));
        }
        let is_new = !path.exists();
        let is_empty = is_new || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        let or_end = |is_wanted| if is_wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let watch = |at: BackupProgress| or_end(goes_on(at.copied_bytes, at.total_bytes));
        let around = |moment: &mut BackupMoment<'_>| or_end(at_moment(moment, dir));
        let backup = self.db.backup().rate_bytes(if rate == 0 { u64::MAX } else { rate });
        let backup = base.map_or(backup, |base| backup.since(base));
        let failed = match backup.watch(&watch).moment(&around).to(path) {
            Ok(_) => return Ok(()),
            Err(failed) => failed,
        };
        if is_empty {
            // What is not empty stays.
            let made = [path.join("wal"), path.join("runs")].into_iter().chain(is_new.then(|| path.to_owned()));
            made.for_each(|dir| drop(fs::remove_dir(dir)));
        }
        match failed {
            Error::Cancelled => Err(failed.into()),
            Error::InvalidArgument(_) | Error::Corrupt(_) if base.is_some() => {
                Err(Failure::new(Code::Failed, &format!("no backup in '{dir}': {failed}")))
            }
            _ => Err(Failure::new(
                Code::Failed,
                &format!("no backup in '{dir}': {failed}; name a new or empty directory that the server may write to"),
            )),
        }
    }
}

/// The two directories of an increment; of a full backup the one.
fn target_and_base(what: &str) -> (&str, Option<&str>) {
    match what.rsplit_once(" SINCE ") {
        Some((dir, base)) => (dir.trim_end(), Some(base.trim_start())),
        None => (what, None),
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shedding = None;
        for (name, counters) in &*self.counters.lock().unwrap_or_else(PoisonError::into_inner) {
            // Otherwise some numbers are left out.
            drop(counters.auto.keep_exactly(&self.numbers, name));
        }
        // What could not be written at the end is in the log.
        drop(self.db.close());
    }
}

/// For what nobody is to wait for.
pub fn at_once() -> ChangeOptions {
    ChangeOptions { lock_timeout: Some(Duration::ZERO), ..ChangeOptions::default() }
}

/// A step of a statement that is not wanted any more when it comes: the server takes back what that has done, or brings it to an
/// end, and has no other way if it is refused.
fn to_its_end(wait: ChangeOptions) -> ChangeOptions {
    let goes_on = wait.goes_on.filter(|goes_on| goes_on());
    ChangeOptions { goes_on, ..wait }
}

/// The name of a table without its database.
fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// True for a name that the server gives a table while it changes one: the copy, or what was copied.
fn is_of_change(name: &str) -> bool {
    is_copy(name) || is_backup(name)
}

/// True for the name of a table whose place a copy takes.
fn is_backup(name: &str) -> bool {
    last_part(name).starts_with("#sql-backup-")
}

/// True for the name of a temporary table. No user's table has it: in their names this character is encoded.
pub fn is_temporary(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.starts_with("#sql-temptable-"))
}

/// True for the name that a copy has until it takes the place of what was copied: a table, or a partition.
fn is_copy(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.starts_with("#sql-alter-") || last.contains("#TMP#")
}

/// As `capi.h` numbers them.
pub fn durability(n: u8) -> Durability {
    match n {
        2 => Durability::Buffered,
        1 => Durability::Write,
        _ => Durability::Sync,
    }
}

#[cfg(test)]
pub mod tests {
    use trefoil::{ColumnType, Schema};

    use super::*;
    use crate::key_bytes;

    pub fn engine() -> (tempfile::TempDir, Engine) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let db = Database::open(dir.path(), Options::default()).expect("it opens");
        let room = key_bytes::tests::room(&db);
        (dir, Engine::new(db, room).expect("its index is made"))
    }

    fn tables_after(names: &[&str], drop: impl FnOnce(&Engine) -> Result<()>) -> Vec<String> {
        let (_dir, engine) = engine();
        for name in names {
            let schema =
                Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build().expect("a schema");
            engine.db.create_table(name, schema).expect("it is new");
        }
        drop(&engine).expect("they are there");
        engine.db.names().1
    }

    #[test]
    fn temporary_tables_of_the_server_before_are_dropped() {
        let names = ["/tmp/#sql-temptable-1-2-3", "d/#sql-alter-1-2", "d/t", "tmp/#sql-temptable-9"];
        assert_eq!(tables_after(&names, Engine::drop_leftovers), ["d/#sql-alter-1-2", "d/t"]);
    }

    /// A start that finishes a change by a copy drops the parent whose place the copy has next; others it keeps. Guard: `gives_way`.
    #[test]
    fn a_parent_gives_way_to_its_copy_while_a_start_finishes_the_change() {
        let (_dir, engine) = engine();
        let id = || Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]);
        let make = |name, schema| engine.db.create_table(name, schema).expect("it is new");
        for name in ["d/p", "e/p", "d/#sql-alter-1-2"] {
            make(name, id().build().expect("a schema"));
        }
        for (child, parent) in [("d/c", "d/p"), ("e/c", "e/p")] {
            let refers = trefoil::ForeignKey::new("of", &["id"], parent, &["id"]);
            make(child, id().foreign_key(refers).build().expect("a schema"));
        }
        engine.drop_table("e/p", at_once()).expect_err("no copy is there in its database");
        engine.drop_table("d/p", at_once()).expect("it gives way");
        engine.rename_table(("d/#sql-alter-1-2", "d/p"), ("p", "p"), at_once()).expect("the name is free");
        make("d/#sql-alter-3-4", id().build().expect("a schema"));
        engine.drop_leftovers().expect("there are none");
        engine.drop_table("d/p", at_once()).expect_err("it is needed");
    }

    /// What the server takes back of a statement that was ended waits as long as it must. Guard: `to_its_end`.
    #[test]
    fn what_an_ended_statement_takes_back_is_not_refused() {
        let (_dir, engine) = engine();
        let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build().expect("a schema");
        let make = |name| engine.db.create_table(name, schema.clone()).expect("it is new");
        let (before, copy) = (make("d/#sql-backup-1-2"), make("d/#sql-alter-1-2"));
        let mut writer = engine.db.begin().expect("it begins");
        for table in [&before, &copy] {
            writer.insert(table, &[1i64.into()]).expect("it is new");
        }
        let ended = || ChangeOptions {
            goes_on: Some(Arc::new(|| false)),
            lock_timeout: Some(Duration::from_secs(60)),
            ..ChangeOptions::default()
        };
        let refused = engine.db.changing(ended()).drop_table("d/#sql-alter-1-2");
        assert!(matches!(refused, Err(Error::Cancelled)), "{refused:?}");
        std::thread::scope(|scope| {
            let changes = trefoil::TableChanges::new().add_nullable("more", ColumnType::Text, trefoil::Value::Null);
            let (db, table) = (&engine.db, &before);
            let turn = scope.spawn(move || db.alter_table(table, &changes));
            let own = "d/#sql-backup-1-2";
            while engine.db.changing(at_once()).rename_table(own, own).is_ok() {
                std::thread::yield_now();
            }
            let back = scope.spawn(|| engine.rename_table(("d/#sql-backup-1-2", "d/t"), ("t", "t"), ended()));
            let gone = scope.spawn(|| engine.drop_table("d/#sql-alter-1-2", ended()));
            std::thread::sleep(Duration::from_millis(200));
            assert!(!back.is_finished() && !gone.is_finished());
            writer.rollback();
            turn.join().expect("no panic").expect("the writer left");
            assert!(back.join().expect("no panic").is_ok() && gone.join().expect("no panic").is_ok());
        });
        assert_eq!(engine.db.names().1, ["d/t"]);
    }

    #[test]
    fn tables_of_one_database_are_dropped() {
        assert_eq!(
            tables_after(&["d/t", "d/u", "d2/t"], |engine| engine.drop_tables("d/", &ChangeOptions::default())),
            ["d2/t"]
        );
    }
}
