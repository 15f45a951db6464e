// SPDX-License-Identifier: GPL-2.0-only
//! The C functions of `capi.h`. Each turns what comes in into Rust's types and calls on; none lets a panic out.
//!
//! What all of them ask of the caller is in `capi.h`: handles come from here and are used until they are closed, a
//! session and a cursor by one thread at a time; pointers are to what their names say, for the time of the call.

#![allow(missing_docs, reason = "the contract is capi.h, one for all")]

use std::ffi::c_void;
use std::sync::Arc;

use crate::abi::{BeginOptions, Definition, Lock, Options, Seek, TableStats, Text, Xid};
use crate::alter::{self, Alter};
use crate::crash;
use crate::cursor::{self, Cursor, Step};
use crate::database::{Engine, durability};
use crate::failure::{Code, Done, Failure, Result, guard, quietly};
use crate::raw::{self, Record, Slot};
use crate::session::{CancelSlot, Session};
use crate::status::{self, Number};
use crate::table::OpenTable;
use crate::write;

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

/// The two keys of a range, as far as they are given.
fn ends<'a>(seek: &Seek) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
    let parts = (!seek.image.is_null()).then(|| bytes(seek.image, seek.image_length));
    (parts, (!seek.end.is_null()).then(|| bytes(seek.end, seek.end_length)))
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
pub extern "C" fn trefoil_sync(db: &Arc<Engine>, why: Option<&mut Failure>) -> i32 {
    crash::point("to_sync");
    guard(why, || Ok(db.db.sync().map(|()| Done::Ok)?))
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
pub extern "C" fn trefoil_table_create(
    db: &Arc<Engine>,
    name: Text,
    definition: &Definition,
    auto_increment: u64,
    why: Option<&mut Failure>,
) -> i32 {
    let definition = || self::definition(definition);
    guard(why, || db.create_table(text(name)?, &definition()?, auto_increment).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_drop(
    db: &Arc<Engine>,
    name: Text,
    of: Option<&mut Session>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let name = text(name)?;
        match of {
            Some(session) => session.drop_table(name)?,
            None => db.drop_table(name)?,
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
    out: &mut *mut Alter,
    builds: &mut u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let from: Vec<_> = numbers(from, to.field_count).iter().map(|&n| usize::try_from(n).ok()).collect();
        let alter = Alter::plan(table, &definition(to)?, &from)?;
        *builds = u8::from(alter.builds());
        give(out, alter)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_alter_build(
    session: &Session,
    alter: &mut Alter,
    record: *mut u8,
    why: Option<&mut Failure>,
) -> i32 {
    let length = alter.record_bytes();
    guard(why, || alter.build(session, bytes_mut(record, length)).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_alter_commit(alter: &Alter, why: Option<&mut Failure>) -> i32 {
    guard(why, || alter.commit().map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_alter_undo(alter: &Alter, why: Option<&mut Failure>) -> i32 {
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
pub extern "C" fn trefoil_table_rename(db: &Arc<Engine>, from: Text, to: Text, why: Option<&mut Failure>) -> i32 {
    guard(why, || db.rename_table(text(from)?, text(to)?).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_tables_drop(db: &Arc<Engine>, prefix: Text, why: Option<&mut Failure>) -> i32 {
    guard(why, || db.drop_tables(text(prefix)?).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_truncate(table: &mut Arc<OpenTable>, why: Option<&mut Failure>) -> i32 {
    guard(why, || {
        *table = Arc::new(table.truncate()?);
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_table_check(
    session: &Session,
    table: &Arc<OpenTable>,
    thorough: u8,
    say: extern "C" fn(*mut c_void, Text),
    to: *mut c_void,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let slot = session.cancel_slot();
        let problems =
            table.check(thorough != 0, &|| !slot.is_cancelled(), |problem| say(to, raw::to_text(problem)))?;
        match problems {
            0 => Ok(Done::Ok),
            n => Err(Failure::new(Code::Corrupt, &format!("{n} found wrong in table {}", table.table.name()))),
        }
    })
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
        let (parts, end) = ends(range);
        *rows = table.estimate(&cursor::start(table, range, parts, end)?)?;
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
    count: u64,
    first: &mut u64,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        *first = table.reserve_auto(key, offset, increment, count)?;
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

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_session_open(
    db: &Arc<Engine>,
    out: &mut *mut Session,
    canceller: &mut *mut Arc<CancelSlot>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let session = Session::new(db);
        give(canceller, session.cancel_slot())?;
        give(out, session)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_session_close(session: *mut Session, canceller: *mut Arc<CancelSlot>) {
    close(session);
    close(canceller);
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_cancel(canceller: &Arc<CancelSlot>) {
    quietly(|| canceller.cancel());
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_statement(session: &mut Session, options: &BeginOptions, why: Option<&mut Failure>) -> i32 {
    guard(why, || session.begin_statement(options).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_statement_end(session: &mut Session) {
    quietly(|| session.end_statement());
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_statement_undo(session: &mut Session, why: Option<&mut Failure>) -> i32 {
    guard(why, || session.undo_statement().map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_commit(session: &mut Session, how: u8, why: Option<&mut Failure>) -> i32 {
    guard(why, || {
        let outcome = session.commit(durability(how));
        session.drop_temporary();
        outcome.map(|()| Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_rollback(session: &mut Session, why: Option<&mut Failure>) -> i32 {
    guard(why, || {
        let outcome = session.rollback();
        session.drop_temporary();
        outcome.map(|()| Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_snapshot(session: &Session, why: Option<&mut Failure>) -> i32 {
    guard(why, || session.snapshot().map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_prepare(session: &mut Session, xid: &Xid, to_order: u8, why: Option<&mut Failure>) -> i32 {
    guard(why, || session.prepare(xid.name(), to_order != 0).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_order(session: &mut Session) {
    quietly(|| session.order());
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_prepared(db: &Arc<Engine>, skip: u32, out: *mut Xid, room: u32) -> u32 {
    let mut count = 0;
    quietly(|| count = db.prepared(skip as usize, slots(out, room)) as u32);
    count
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_decide(db: &Arc<Engine>, xid: &Xid, commit: u8, why: Option<&mut Failure>) -> i32 {
    guard(why, || db.decide(xid.name(), commit != 0).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_savepoint(session: &mut Session, out: &mut u64, why: Option<&mut Failure>) -> i32 {
    guard(why, || {
        *out = session.savepoint()?;
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_savepoint_undo(session: &mut Session, savepoint: u64, why: Option<&mut Failure>) -> i32 {
    guard(why, || session.undo_to(savepoint).map(|()| Done::Ok))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_savepoint_release(session: &mut Session, savepoint: u64) {
    quietly(|| session.release(savepoint));
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_cursor_open(table: &Arc<OpenTable>) -> *mut Cursor {
    Box::into_raw(Box::new(Cursor::new(table.clone())))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_cursor_close(cursor: *mut Cursor) {
    close(cursor);
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_cursor_attach(cursor: &mut Cursor, table: &Arc<OpenTable>) {
    quietly(|| cursor.attach(table));
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_cursor_reset(cursor: &mut Cursor) {
    quietly(|| cursor.reset());
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_find(
    session: &mut Session,
    cursor: &mut Cursor,
    seek: &Seek,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let (parts, end) = ends(seek);
        let start = cursor::start(&cursor.table, seek, parts, end)?;
        cursor.start(session, start);
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_step(
    session: &mut Session,
    cursor: &mut Cursor,
    to: u8,
    record: *mut u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let step = match to {
            0 => Step::First,
            1 => Step::Next,
            2 => Step::NextSame,
            _ => Step::Previous,
        };
        let record = slot(record, &cursor.table);
        cursor.step(session, step, record)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_read_ref(
    session: &mut Session,
    cursor: &mut Cursor,
    reference: *const u8,
    lock: Lock,
    record: *mut u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let table = cursor.table.clone();
        let key = table.layout.ref_values(bytes(reference, table.layout.ref_bytes()))?;
        let record = bytes_mut(record, table.layout.record_bytes());
        cursor.read(session, &key, cursor::locking(lock), record)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_position(
    cursor: &Cursor,
    record: *const u8,
    reference: *mut u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let layout = &cursor.table.layout;
        let key = layout.primary_values(self::record(record, &cursor.table), cursor.row);
        layout.put_ref(&key, bytes_mut(reference, layout.ref_bytes()))?;
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_unlock_row(session: &Session) {
    quietly(|| session.unlock_row());
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_insert(
    session: &mut Session,
    cursor: &mut Cursor,
    record: *const u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let record = self::record(record, &cursor.table);
        write::insert(session, cursor, record).map(|()| Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_update(
    session: &mut Session,
    cursor: &mut Cursor,
    old: *const u8,
    record: *const u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let (old, new) = (self::record(old, &cursor.table), self::record(record, &cursor.table));
        write::update(session, cursor, old, new)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_delete(
    session: &mut Session,
    cursor: &mut Cursor,
    record: *const u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let record = self::record(record, &cursor.table);
        write::delete(session, cursor, record).map(|()| Done::Ok)
    })
}
