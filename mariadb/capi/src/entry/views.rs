// SPDX-License-Identifier: GPL-2.0-only
//! Of `capi.h`: tables of INFORMATION_SCHEMA.

use std::ptr::null;
use std::sync::Arc;

use super::{close, give, text};
use crate::abi::{Text, ViewColumn, ViewValue};
use crate::database::Engine;
use crate::failure::{Failure, guard, quietly};
use crate::information::{self, Rows};

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_view_column(view: Text, n: u32, out: &mut ViewColumn) -> u8 {
    let mut is_there = 0;
    quietly(|| {
        let column = text(view).and_then(information::view).ok().and_then(|view| view.column(n as usize));
        if let Some(column) = column {
            let (name, length, kind) = (column.name.as_ptr(), column.length, column.kind as u8);
            *out = ViewColumn { name, length, kind, reserved: [0; 3] };
            is_there = 1;
        }
    });
    is_there
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_view_open(
    db: &Arc<Engine>,
    view: Text,
    out: &mut *mut Rows,
    why: Option<&mut Failure>,
) -> i32 {
    guard(why, || give(out, information::view(text(view)?)?.open(db)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_view_next(rows: &mut Rows) -> *const ViewValue {
    let mut row: *const ViewValue = null();
    quietly(|| row = rows.next().map_or(null(), <[ViewValue]>::as_ptr));
    row
}

#[unsafe(no_mangle)]
pub extern "C" fn trefoil_view_close(rows: *mut Rows) {
    close(rows);
}
