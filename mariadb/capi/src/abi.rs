// SPDX-License-Identifier: GPL-2.0-only
//! What both sides of the boundary know: `mariadb/capi/include/capi.h` in Rust.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

/// UTF-8, not ended by a zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    pub(crate) ptr: *const c_char,
    pub(crate) len: usize,
}

/// What the server hears of a wait for a row lock: it begins,
pub const WAIT_BEGINS: u8 = 0;
/// this connection is in its way,
pub const WAIT_BLOCKED: u8 = 1;
/// it is over.
pub const WAIT_ENDS: u8 = 2;

/// What may be set anew at any time.
#[repr(C)]
pub struct Settings {
    pub(crate) io_budget: u64,
    pub(crate) gc_debt_limit: u64,
    pub(crate) deadlock_detect: u8,
    pub(crate) reserved: [u8; 7],
}

/// How the database is opened.
#[repr(C)]
pub struct Options {
    pub(crate) directory: Text,
    pub(crate) buffer_size: u64,
    pub(crate) log_capacity: u64,
    pub(crate) disk_reserve: u64,
    pub(crate) checkpoint_replay_seconds: u64,
    pub(crate) collations: Collations,
    pub(crate) background_threads: u64,
    pub(crate) settings: Settings,
    pub(crate) writes_refused: extern "C" fn(Text),
}

/// How a collation orders text.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Collation {
    pub(crate) levels: u8,
    pub(crate) padded: u8,
    pub(crate) in_passes: u8,
    pub(crate) space_length: u8,
    pub(crate) space: [u8; 4],
    pub(crate) longest: u8,
    pub(crate) reserved: [u8; 3],
}

/// The server's collations.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Collations {
    pub(crate) describe: extern "C" fn(u32, &mut Collation) -> u8,
    pub(crate) weights: extern "C" fn(u32, u8, *const u8, usize, *mut u8, usize) -> usize,
    pub(crate) front: extern "C" fn(u32, *const u8, usize, usize, &mut usize) -> usize,
    pub(crate) weights_max: extern "C" fn(u32, usize, &mut usize) -> usize,
}

/// A column of the server's record.
#[repr(C)]
pub struct Field {
    pub(crate) name: Text,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) null_offset: u32,
    pub(crate) null_bit: u8,
    pub(crate) kind: u8,
    pub(crate) length_bytes: u8,
    pub(crate) pad_length: u8,
    pub(crate) pad: [u8; 4],
    pub(crate) collation: u32,
    pub(crate) characters: u32,
    pub(crate) number: u32,
}

/// A part of a key.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub(crate) field: u32,
    pub(crate) length: u32,
    pub(crate) front: u32,
    pub(crate) descending: u32,
}

/// A flag of a key: the server keeps its values unique.
pub const CLAIMED: u8 = 1;
/// It has the whole row.
pub const CLUSTERING: u8 = 2;

/// What a change of a table builds: keys, or rows and perhaps keys.
pub const BUILDS_KEYS: u8 = 1;
/// The rows, and perhaps keys.
pub const BUILDS_ROWS: u8 = 2;

/// A key of the server's table.
#[repr(C)]
pub struct Key {
    pub(crate) name: Text,
    pub(crate) parts: *const Part,
    pub(crate) part_count: u32,
    pub(crate) unique: u8,
    pub(crate) structure: u8,
    pub(crate) compression: u8,
    pub(crate) flags: u8,
    pub(crate) node_size: u32,
    pub(crate) extended: u32,
    pub(crate) shape: u8,
}

/// A table of the server.
#[repr(C)]
pub struct Definition {
    pub(crate) fields: *const Field,
    pub(crate) keys: *const Key,
    pub(crate) defaults: *const u8,
    pub(crate) field_count: u32,
    pub(crate) key_count: u32,
    pub(crate) primary: i32,
    pub(crate) record_length: u32,
    pub(crate) hidden: Key,
}

/// A foreign key.
#[repr(C)]
pub struct Foreign {
    pub(crate) name: Text,
    pub(crate) table: Text,
    pub(crate) parent: Text,
    pub(crate) parent_key: Text,
    pub(crate) columns: *const Text,
    pub(crate) parent_columns: *const Text,
    pub(crate) count: u32,
    pub(crate) nullable: u32,
    pub(crate) parent_nullable: u32,
    pub(crate) on_delete: u8,
    pub(crate) on_update: u8,
    pub(crate) reserved: [u8; 2],
}

/// What becomes of a table's foreign keys.
#[repr(C)]
pub struct ForeignChange {
    pub(crate) label: Text,
    pub(crate) like: Text,
    pub(crate) added: *const Foreign,
    pub(crate) dropped: *const Text,
    pub(crate) added_count: u32,
    pub(crate) dropped_count: u32,
    pub(crate) unchecked: u8,
    pub(crate) reserved: [u8; 7],
}

/// Counts for the optimiser.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TableStats {
    pub(crate) rows: u64,
    pub(crate) data_bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) row_node_bytes: u64,
    pub(crate) changed_at: i64,
}

/// What a transaction begins with.
#[repr(C)]
pub struct BeginOptions {
    pub(crate) isolation: u8,
    pub(crate) snapshot_isolation: u8,
    pub(crate) unchecked_foreign_keys: u8,
    pub(crate) reserved: [u8; 5],
    pub(crate) lock_timeout_ms: u64,
}

/// How long a change of a definition waits, and whether it is still wanted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Patience {
    pub(crate) lock_timeout_ms: u64,
    pub(crate) goes_on: Option<extern "C" fn(*mut c_void) -> i32>,
    pub(crate) of: *mut c_void,
    pub(crate) unchecked_foreign_keys: u8,
    pub(crate) drops_database: u8,
    pub(crate) reserved: [u8; 6],
}

/// The name of a prepared transaction.
#[repr(C)]
pub struct Xid {
    pub(crate) length: u32,
    pub(crate) bytes: [u8; 140],
}

impl Xid {
    pub(crate) fn name(&self) -> &[u8] {
        &self.bytes[..(self.length as usize).min(self.bytes.len())]
    }
}

/// How rows that are read are locked.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Lock {
    pub(crate) mode: u8,
    pub(crate) wait: u8,
}

/// Asked with what the seek says, its tag, and the row's reference or null.
pub(crate) type JudgeCall = extern "C" fn(*mut c_void, *mut c_void, *const u8) -> i32;

/// Where a scan starts.
#[repr(C)]
pub struct Seek {
    pub(crate) image: *const u8,
    pub(crate) image_length: usize,
    pub(crate) end: *const u8,
    pub(crate) end_length: usize,
    pub(crate) key: i32,
    pub(crate) how: u8,
    pub(crate) end_is: u8,
    pub(crate) lock: Lock,
    pub(crate) only_key: u8,
    pub(crate) claims: u8,
    pub(crate) judges_refs: u8,
    pub(crate) shows_locked: u8,
    pub(crate) reads_length: u32,
    pub(crate) sure: u64,
    pub(crate) judge: Option<JudgeCall>,
    pub(crate) judge_with: *mut c_void,
    pub(crate) tag: *mut c_void,
    pub(crate) reads: *const u8,
}

impl Default for Seek {
    fn default() -> Self {
        Self {
            image: null(),
            image_length: 0,
            end: null(),
            end_length: 0,
            key: 0,
            how: 0,
            end_is: 0,
            lock: Lock { mode: 0, wait: 0 },
            only_key: 0,
            claims: 0,
            judges_refs: 0,
            shows_locked: 0,
            reads_length: 0,
            sure: 0,
            judge: None,
            judge_with: null_mut(),
            tag: null_mut(),
            reads: null(),
        }
    }
}

/// A column of a table of INFORMATION_SCHEMA.
#[repr(C)]
pub struct ViewColumn {
    pub(crate) name: *const c_char,
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) reserved: [u8; 3],
}

/// What stands in one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ViewValue {
    pub(crate) is_null: u8,
    pub(crate) reserved: [u8; 7],
    pub(crate) number: u64,
    pub(crate) ratio: f64,
    pub(crate) text: Text,
}

const _: () = assert!(size_of::<ViewColumn>() == 16);
const _: () = assert!(size_of::<ViewValue>() == 40);
const _: () = assert!(size_of::<Settings>() == 24);
const _: () = assert!(size_of::<Options>() == 120);
const _: () = assert!(size_of::<Field>() == 48);
const _: () = assert!(size_of::<Part>() == 16);
const _: () = assert!(size_of::<Collation>() == 12);
const _: () = assert!(size_of::<Key>() == 48);
const _: () = assert!(size_of::<Definition>() == 88);
const _: () = assert!(size_of::<TableStats>() == 40);
const _: () = assert!(size_of::<BeginOptions>() == 16);
const _: () = assert!(size_of::<Patience>() == 32);
const _: () = assert!(size_of::<Foreign>() == 96);
const _: () = assert!(size_of::<ForeignChange>() == 64);
const _: () = assert!(size_of::<Seek>() == 88);
const _: () = assert!(size_of::<Xid>() == 144);
