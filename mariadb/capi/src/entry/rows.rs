// SPDX-License-Identifier: GPL-2.0-only
//! Of `capi.h`: rows read and written.

use std::ffi::c_void;
use std::sync::Arc;

use super::{bytes, bytes_mut, close, seek_bytes, slot};
use crate::abi::{Lock, Seek};
use crate::cursor::{self, Cursor, Step};
use crate::failure::{Done, Failure, guard, quietly};
use crate::raw::{RangeSource, Tag};
use crate::session::Session;
use crate::table::OpenTable;
use crate::write;

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
        let start = cursor::start(&cursor.table, seek, &seek_bytes(seek))?;
        if seek.claims != 0 {
            session.next_read();
            write::claim(session, &cursor.table, &start)?;
        }
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
        cursor.last_read = session.next_read();
        cursor.step(session, step, record)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_find_ranges(
    cursor: &mut Cursor,
    next: extern "C" fn(*mut c_void, &mut Seek) -> i32,
    with: *mut c_void,
) {
    quietly(|| cursor.start_ranges(RangeSource::new(next, with)));
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_step_ranges(
    session: &mut Session,
    cursor: &mut Cursor,
    record: *mut u8,
    tag: &mut Tag,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let record = slot(record, &cursor.table);
        cursor.last_read = session.next_read();
        cursor.step_ranges(session, record, tag)
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
        cursor.last_read = session.next_read();
        cursor.read(session, &key, cursor::locking(lock), record)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_position(
    cursor: &mut Cursor,
    record: *const u8,
    reference: *mut u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let layout = &cursor.table.layout;
        let key = layout.primary_values(super::record(record, &cursor.table), cursor.row);
        layout.put_ref(&key, &mut cursor.key, bytes_mut(reference, layout.ref_bytes()))?;
        Ok(Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_is_shown(cursor: &Cursor) -> u8 {
    u8::from(cursor.is_shown())
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_is_exact(cursor: &Cursor) -> u8 {
    u8::from(cursor.is_exact())
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_unlock_row(session: &Session, cursor: &mut Cursor) {
    quietly(|| {
        if !cursor.pass_shown() {
            session.unlock_row(cursor.last_read);
        }
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_insert(
    session: &mut Session,
    cursor: &mut Cursor,
    record: *const u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let record = super::record(record, &cursor.table);
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
        let (old, new) = (super::record(old, &cursor.table), super::record(record, &cursor.table));
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
        let record = super::record(record, &cursor.table);
        write::delete(session, cursor, record).map(|()| Done::Ok)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_apply_update(
    session: &mut Session,
    cursor: &mut Cursor,
    reference: *const u8,
    record: *const u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let key = cursor.table.layout.ref_values(bytes(reference, cursor.table.layout.ref_bytes()))?;
        write::apply_update(session, cursor, &key, super::record(record, &cursor.table))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_apply_delete(
    session: &mut Session,
    cursor: &mut Cursor,
    reference: *const u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let key = cursor.table.layout.ref_values(bytes(reference, cursor.table.layout.ref_bytes()))?;
        write::apply_delete(session, cursor, &key)
    })
}
