// SPDX-License-Identifier: GPL-2.0-only
//! The C functions of `capi.h`. Each turns what comes in into Rust's types and calls on; none lets a panic out.
//!
//! What all of them ask of the caller is in `capi.h`: handles come from here and are used until they are closed, a
//! session and a cursor by one thread at a time; pointers are to what their names say, for the time of the call.

#![allow(missing_docs, reason = "the contract is capi.h, one for all")]

mod rows;
mod sessions;
mod views;

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use trefoil::BackupMoment;

use crate::abi::{Definition, Foreign, ForeignChange, Key, Options, Patience, Seek, Settings, TableStats, Text};
use crate::alter::{self, Alter};
use crate::crash;
use crate::cursor;
use crate::database::Engine;
use crate::error_log;
use crate::failure::{Code, Done, Failure, Result, guard, quietly};
use crate::foreign;
use crate::layout;
use crate::raw::{self, Record, SeekBytes, Slot};
use crate::session::Session;
use crate::status::{self, Number};
use crate::table::OpenTable;

fn give<T>(out: &mut *mut T, it: T) -> Result<Done> {
    *out = Box::into_raw(Box::new(it));
    Ok(Done::Ok)
}

fn close<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: it was made by `give`, and the caller uses it no more.
        quietly(|| drop(unsafe { Box::from_raw(handle) }));
    }
}

/// What a C function is handed is as `capi.h` says for the time of the call: the helpers below rest on that, and are for
/// nothing else.
fn text<'a>(from: Text) -> Result<&'a str> {
    // SAFETY: a text of the caller's.
    unsafe { raw::text(from) }
}

fn definition(from: &Definition) -> Result<raw::Definition<'_>> {
    // SAFETY: its pointers are as long as their counts say.
    unsafe { raw::definition(from) }
}

fn foreign_change(from: &ForeignChange) -> Result<raw::ForeignChange<'_>> {
    // SAFETY: its pointers are as long as their counts say.
    unsafe { raw::foreign_change(from) }
}

fn bytes<'a>(ptr: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: bytes of the caller's, not written to meanwhile.
    unsafe { raw::bytes(ptr, len) }
}

fn bytes_mut<'a>(ptr: *mut u8, len: usize) -> &'a mut [u8] {
    // SAFETY: a buffer of the caller's, of the length that the table asks for.
    unsafe { raw::slots(ptr, len) }
}

fn numbers<'a>(ptr: *const i32, count: u32) -> &'a [i32] {
    // SAFETY: numbers of the caller's, that many.
    unsafe { raw::bytes(ptr, count as usize) }
}

fn slot(ptr: *mut u8, table: &OpenTable) -> Slot {
    // SAFETY: a record's place of the caller's, for the time of the call.
    unsafe { Slot::new(ptr, table.layout.record_bytes()) }
}

fn slots<'a, T>(ptr: *mut T, room: u32) -> &'a mut [T] {
    // SAFETY: room of the caller's for that many.
    unsafe { raw::slots(ptr, room as usize) }
}

fn counts_mut<'a>(ptr: *mut u64, room: u32) -> &'a mut [u64] {
    // SAFETY: room of the caller's for that many.
    unsafe { raw::slots(ptr, room as usize) }
}

fn seek_bytes<'a>(seek: &Seek) -> SeekBytes<'a> {
    // SAFETY: keys of the caller's and bits of its columns, not written to meanwhile.
    unsafe { SeekBytes::new(seek) }
}

fn record<'a>(ptr: *const u8, table: &OpenTable) -> Record<'a> {
    // SAFETY: a record of this table, with its blobs.
    unsafe { Record::new(ptr, table.layout.record_bytes()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_open(options: &Options, out: &mut *mut Arc<Engine>, why: Option<&mut Failure>) -> i32 {
    guard(why, || give(out, Arc::new(Engine::open(text(options.directory)?, options)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_close(db: *mut Arc<Engine>) {
    close(db);
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_report_waits(db: &Arc<Engine>, report: extern "C" fn(u8, *mut c_void) -> u32) {
    quietly(|| db.report_waits(report));
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_line_due(code: i32) -> *const c_char {
    error_log::line_due(code).map_or(std::ptr::null(), std::ffi::CStr::as_ptr)
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_sync(db: &Arc<Engine>, why: Option<&mut Failure>) -> i32 {
    guard(why, || Ok(db.db.sync().map(|()| Done::Ok)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_backup(
    db: &Arc<Engine>,
    directory: Text,
    rate: u64,
    goes_on: extern "C" fn(*mut c_void, u64, u64) -> u8,
    at_moment: extern "C" fn(*mut c_void, &mut BackupMoment<'_>, Text) -> u8,
    with: *mut c_void,
    why: Option<&mut Failure>,
) -> i32 {
    let goes_on = |done, total| goes_on(with, done, total) != 0;
    let at_moment = |moment: &mut BackupMoment<'_>, to: &str| at_moment(with, moment, raw::to_text(to)) != 0;
    guard(why, || db.backup(text(directory)?, rate, &goes_on, &at_moment).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_moment_come(moment: &mut BackupMoment<'_>) {
    quietly(|| moment.come());
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_moment_wait(moment: &mut BackupMoment<'_>) -> u8 {
    let mut goes_on = false;
    quietly(|| goes_on = moment.wait());
    u8::from(goes_on)
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_set(db: &Arc<Engine>, settings: &Settings) {
    quietly(|| db.set(settings));
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_checkpoint(db: &Arc<Engine>, why: Option<&mut Failure>) -> i32 {
    crash::point("to_rotate");
    let synced = guard(why, || Ok(db.db.sync().map(|()| Done::Ok)?));
    crash::point("rotated");
    synced
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_numbers(db: &Arc<Engine>, out: *mut Number, room: u32) -> u32 {
    let mut count = 0;
    quietly(|| {
        let numbers = status::numbers(db);
        for (slot, number) in slots(out, room).iter_mut().zip(&numbers) {
            *slot = *number;
        }
        count = numbers.len().min(room as usize) as u32;
    });
    count
}

/// As much of a text as there is room for; its length.
fn copy_text(out: *mut u8, room: usize, text: impl FnOnce() -> String) -> usize {
    let mut length = 0;
    quietly(|| {
        let text = text();
        length = text.len().min(room);
        bytes_mut(out, length).copy_from_slice(&text.as_bytes()[..length]);
    });
    length
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_report(db: &Arc<Engine>, out: *mut u8, room: usize) -> usize {
    copy_text(out, room, || status::report(db))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_latest_deadlock(db: &Arc<Engine>, out: *mut u8, room: usize) -> usize {
    copy_text(out, room, || db.db.deadlocks().first().map(status::circle).unwrap_or_default())
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_key_fit(key: &mut Key, why: Option<&mut Failure>) -> i32 {
    guard(why, || layout::fit(key).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_create(
    db: &Arc<Engine>,
    name: Text,
    definition: &Definition,
    auto_increment: u64,
    foreign: &ForeignChange,
    wait: Option<&Patience>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let (definition, foreign) = (self::definition(definition)?, foreign_change(foreign)?);
        let wait = raw::patience(wait);
        db.create_table(text(name)?, &definition, &foreign, auto_increment, wait).map(|()| Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_foreign_each(
    db: &Arc<Engine>,
    name: Text,
    is_parent: u8,
    show: extern "C" fn(*mut c_void, &Foreign),
    to: *mut c_void,
) -> u32 {
    let mut count = 0;
    quietly(|| {
        if let Ok(name) = text(name) {
            count = foreign::each(&db.db, name, is_parent != 0, |one| show(to, one)) as u32;
        }
    });
    count
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_drop(
    db: &Arc<Engine>,
    name: Text,
    of: Option<&mut Session>,
    wait: Option<&Patience>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let (name, mut options) = (text(name)?, raw::patience(wait));
        if wait.is_some_and(|wait| wait.drops_database != 0) {
            options.unchecked_foreign_keys |= foreign::is_needed_by_its_database_alone(&db.db, name);
        }
        match of {
            Some(session) => session.drop_table(name, options)?,
            None => db.drop_table(name, options)?,
        }
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_leftovers_drop(db: &Arc<Engine>, why: Option<&mut Failure>) -> i32 {
    guard(why, || db.drop_leftovers().map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_alter_plan(
    table: &Arc<OpenTable>,
    to: &Definition,
    from: *const i32,
    foreign: &ForeignChange,
    out: &mut *mut Alter,
    builds: &mut u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let from: Vec<_> = numbers(from, to.field_count).iter().map(|&n| usize::try_from(n).ok()).collect();
        let alter = Alter::plan(table, &definition(to)?, &from, &foreign_change(foreign)?)?;
        *builds = alter.builds();
        give(out, alter)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_alter_build(
    alter: &mut Alter,
    record: *mut u8,
    wait: Option<&Patience>,
    why: Option<&mut Failure>,
) -> i32 {
    let length = alter.record_bytes();
    guard(why, || alter.build(raw::patience(wait), bytes_mut(record, length)).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_alter_commit(alter: &mut Alter, wait: Option<&Patience>, why: Option<&mut Failure>) -> i32 {
    guard(why, || alter.commit(raw::patience(wait)).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_alter_undo(alter: &mut Alter, why: Option<&mut Failure>) -> i32 {
    guard(why, || alter.undo().map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_alter_close(alter: *mut Alter) {
    close(alter);
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_definition_id(db: &Arc<Engine>, name: Text, id: &mut u64, why: Option<&mut Failure>) -> i32 {
    guard(why, || {
        *id = db.definition_id(text(name)?)?;
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_definition_id(table: &Arc<OpenTable>) -> u64 {
    let mut id = 0;
    quietly(|| id = alter::definition_id(&table.table.schema()));
    id
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_rename(
    db: &Arc<Engine>,
    from: Text,
    to: Text,
    label: Text,
    new_label: Text,
    wait: Option<&Patience>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let labels = (text(label)?, text(new_label)?);
        db.rename_table((text(from)?, text(to)?), labels, raw::patience(wait)).map(|()| Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_tables_drop(
    db: &Arc<Engine>,
    prefix: Text,
    wait: Option<&Patience>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || db.drop_tables(text(prefix)?, &raw::patience(wait)).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_truncate(
    table: &mut Arc<OpenTable>,
    wait: Option<&Patience>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        *table = Arc::new(table.truncate(raw::patience(wait))?);
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_wait(
    table: &Arc<OpenTable>,
    wait: Option<&Patience>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        table.wait_for_writers(raw::patience(wait))?;
        Ok(Done::Ok)
    })
}

/// Tells how much of about how much is done, and asks whether the statement goes on.
fn telling(
    session: &Session,
    report: extern "C" fn(*mut c_void, u64, u64),
    to: *mut c_void,
) -> impl Fn(u64, u64) -> bool {
    let slot = session.cancel_slot();
    move |done, total| {
        report(to, done, total);
        !slot.is_cancelled()
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_check(
    session: &Session,
    table: &Arc<OpenTable>,
    thorough: u8,
    say: extern "C" fn(*mut c_void, Text),
    report: extern "C" fn(*mut c_void, u64, u64),
    to: *mut c_void,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let problems =
            table.check(thorough != 0, &telling(session, report, to), |problem| say(to, raw::to_text(problem)))?;
        match problems {
            0 => Ok(Done::Ok),
            n => Err(Failure::new(Code::Corrupt, &format!("{n} found wrong in table {}", table.table.name()))),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_repair(
    session: &Session,
    table: &Arc<OpenTable>,
    thorough: u8,
    say: extern "C" fn(*mut c_void, Text),
    report: extern "C" fn(*mut c_void, u64, u64),
    to: *mut c_void,
    wait: Option<&Patience>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        table.repair(thorough != 0, &telling(session, report, to), raw::patience(wait), |what| {
            say(to, raw::to_text(what))
        })?;
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_building(table: &Arc<OpenTable>, done: &mut u64, total: &mut u64) -> u8 {
    let mut building = None;
    quietly(|| building = table.building());
    if let Some((rows, of)) = building {
        (*done, *total) = (rows, of);
    }
    u8::from(building.is_some())
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_open(
    db: &Arc<Engine>,
    name: Text,
    definition: &Definition,
    out: &mut *mut Arc<OpenTable>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || give(out, Arc::new(OpenTable::open(db, text(name)?, &self::definition(definition)?)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_close(table: *mut Arc<OpenTable>) {
    close(table);
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_ref_length(table: &Arc<OpenTable>) -> u32 {
    table.layout.ref_bytes() as u32
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_compare_refs(table: &Arc<OpenTable>, a: *const u8, b: *const u8) -> i32 {
    let (length, mut order) = (table.layout.ref_bytes(), 0);
    quietly(|| order = table.layout.compare_refs(bytes(a, length), bytes(b, length)) as i32);
    order
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_stat(table: &Arc<OpenTable>, out: &mut TableStats) {
    quietly(|| *out = table.stats());
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_estimate(
    table: &Arc<OpenTable>,
    range: &Seek,
    rows: &mut u64,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        *rows = table.estimate(&cursor::start(table, range, &seek_bytes(range))?)?;
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_distinct(
    table: &Arc<OpenTable>,
    key: u32,
    out: *mut u64,
    room: u32,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let counts = table.distinct(key)?;
        counts_mut(out, room).iter_mut().zip(counts.iter()).for_each(|(slot, count)| *slot = *count);
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_analyze(table: &Arc<OpenTable>, why: Option<&mut Failure>) -> i32 {
    guard(why, || table.analyze().map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_auto_reserve(
    table: &Arc<OpenTable>,
    key: u32,
    offset: u64,
    increment: u64,
    count: &mut u64,
    first: &mut u64,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let wanted = std::mem::take(count);
        (*first, *count) = table.reserve_auto(key, offset, increment, wanted)?;
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_auto_raise(table: &Arc<OpenTable>, key: u32, used: u64, why: Option<&mut Failure>) -> i32 {
    guard(why, || table.raise_auto(key, used).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_auto_next(
    table: &Arc<OpenTable>,
    key: u32,
    next: &mut u64,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        *next = table.next_auto(key)?;
        Ok(Done::Ok)
    })
}
