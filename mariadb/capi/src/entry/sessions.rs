// SPDX-License-Identifier: GPL-2.0-only
//! Of `capi.h`: connections, their statements and transactions.

use std::ffi::c_void;
use std::sync::Arc;

use super::{close, give, slots};
use crate::abi::{BeginOptions, Xid};
use crate::database::{Engine, durability};
use crate::failure::{Done, Failure, guard, quietly};
use crate::session::{CancelSlot, Session};

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_session_open(
    db: &Arc<Engine>,
    thread: u64,
    connection: *mut c_void,
    out: &mut *mut Session,
    canceller: &mut *mut Arc<CancelSlot>,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || {
        let session = Session::new(db, thread, connection);
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
pub extern "C" fn trefoil_prepare(
    session: &mut Session,
    xid: &Xid,
    to_order: u8,
    durable: u8,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || session.prepare(xid.name(), to_order != 0, durability(durable)).map(|()| Done::Ok))
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
pub extern "C" fn trefoil_holds_nothing(session: &Session) -> u8 {
    let mut nothing = false;
    quietly(|| nothing = session.holds_nothing());
    u8::from(nothing)
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_savepoint_release(session: &mut Session, savepoint: u64) {
    quietly(|| session.release(savepoint));
}
