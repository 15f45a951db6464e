// SPDX-License-Identifier: GPL-2.0-only
//! Pointers of the server as slices. What a pointer promises is promised once, where it comes in; what is made of it
//! carries that along as its type.

use std::ffi::c_void;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use trefoil::ChangeOptions;

use crate::abi;
use crate::cursor::{self, Start};
use crate::failure::{Failure, Result};
use crate::table::OpenTable;

/// A row in the server's format, and the blobs that it points to.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    bytes: &'a [u8],
    blobs: Blobs<'a>,
}

/// Where the blobs are that a row points to.
#[derive(Clone, Copy)]
enum Blobs<'a> {
    /// Where it points to.
    Promised,
    /// Among these.
    Kept(&'a [Box<[u8]>]),
}

impl<'a> Record<'a> {
    /// # Safety
    /// `ptr` is a record of `len` bytes of the table whose layout it is read with; it and the blobs that it points to are
    /// not written to for `'a`.
    pub unsafe fn new(ptr: *const u8, len: usize) -> Self {
        // SAFETY: promised by the caller.
        Self { bytes: unsafe { bytes(ptr, len) }, blobs: Blobs::Promised }
    }

    /// Its bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The blob of `len` bytes whose address stands at `at`.
    pub fn blob(self, at: usize, len: usize) -> &'a [u8] {
        let address = self.bytes[at..].first_chunk().map_or(0, |word| usize::from_ne_bytes(*word));
        match self.blobs {
            // SAFETY: whoever made the record promised that its blobs are there, as long as their lengths say.
            Blobs::Promised => unsafe { bytes(address as *const u8, len) },
            Blobs::Kept(blobs) => {
                let kept = blobs.iter().find(|blob| blob.as_ptr() as usize == address && blob.len() == len);
                kept.map_or(&[], |blob| blob)
            }
        }
    }

    /// A row that points to some of these blobs, or to none that is read.
    pub fn with_blobs(bytes: &'a [u8], blobs: &'a [Box<[u8]>]) -> Self {
        Self { bytes, blobs: Blobs::Kept(blobs) }
    }
}

/// # Safety
/// `ptr` is null, or `len` bytes that are not written to for `'a`.
pub unsafe fn bytes<'a, T>(ptr: *const T, len: usize) -> &'a [T] {
    if ptr.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { slice::from_raw_parts(ptr, len) }
}

/// # Safety
/// `ptr` is `len` places that nobody else uses for `'a`.
pub unsafe fn slots<'a, T>(ptr: *mut T, len: usize) -> &'a mut [T] {
    // SAFETY: promised by the caller.
    unsafe { slice::from_raw_parts_mut(ptr, len) }
}

/// # Safety
/// As [`bytes`].
pub unsafe fn text<'a>(text: abi::Text) -> Result<&'a str> {
    // SAFETY: promised by the caller.
    let bytes = unsafe { bytes(text.ptr.cast::<u8>(), text.len) };
    std::str::from_utf8(bytes).map_err(|_| Failure::definition("a name is not UTF-8"))
}

/// The other way, for the time of a call.
pub fn to_text(text: &str) -> abi::Text {
    abi::Text { ptr: text.as_ptr().cast(), len: text.len() }
}

/// The server's answer whether the row of an entry is wanted. It looks at the record that it hands over for the time of a
/// step.
#[derive(Clone, Copy)]
pub struct Judge {
    call: abi::JudgeCall,
    with: *mut c_void,
    /// It looks at references of rows too.
    pub wants_refs: bool,
}

impl Judge {
    pub fn new(seek: &abi::Seek) -> Option<Self> {
        seek.judge.map(|call| Self { call, with: seek.judge_with, wants_refs: seek.judges_refs != 0 })
    }

    /// Its answer of the entry that stands in the record, of the row with that reference if it wants it.
    pub fn ask(self, tag: Tag, reference: Option<&[u8]>) -> i32 {
        (self.call)(self.with, tag.0, reference.map_or(std::ptr::null(), <[u8]>::as_ptr))
    }
}

/// What the server knows a range by: handed back as it came, never followed.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Tag(*mut c_void);

impl Tag {
    pub fn new(seek: &abi::Seek) -> Self {
        Self(seek.tag)
    }
}

/// Where many ranges come from.
#[derive(Clone, Copy)]
pub struct RangeSource {
    call: extern "C" fn(*mut c_void, &mut abi::Seek) -> i32,
    with: *mut c_void,
}

impl RangeSource {
    pub fn new(call: extern "C" fn(*mut c_void, &mut abi::Seek) -> i32, with: *mut c_void) -> Self {
        Self { call, with }
    }

    /// The next one; none behind the last.
    pub fn next(self, table: &OpenTable) -> Result<Option<Start>> {
        let mut seek = abi::Seek::default();
        if (self.call)(self.with, &mut seek) != 0 {
            return Ok(None);
        }
        // SAFETY: what the server fills in is there until it is asked again.
        let given = unsafe { SeekBytes::new(&seek) };
        cursor::start(table, &seek, &given).map(Some)
    }
}

/// The bytes that a seek points to.
pub struct SeekBytes<'a> {
    /// The two keys of the range, as far as they are given.
    pub parts: Option<&'a [u8]>,
    pub end: Option<&'a [u8]>,
    /// Bits of the columns that are read; none: all are.
    pub reads: &'a [u8],
}

impl<'a> SeekBytes<'a> {
    /// # Safety
    /// As [`bytes`] for each pointer of `seek` with its length.
    pub unsafe fn new(seek: &abi::Seek) -> Self {
        // SAFETY: promised by the caller.
        let (parts, end, reads) = unsafe {
            (
                bytes(seek.image, seek.image_length),
                bytes(seek.end, seek.end_length),
                bytes(seek.reads, seek.reads_length as usize),
            )
        };
        Self { parts: (!seek.image.is_null()).then_some(parts), end: (!seek.end.is_null()).then_some(end), reads }
    }
}

/// The server's answer whether a change of a definition goes on.
struct Wanted {
    call: extern "C" fn(*mut c_void) -> i32,
    of: *mut c_void,
}

// SAFETY: any thread may ask, as `capi.h` says.
unsafe impl Send for Wanted {}
// SAFETY: likewise.
unsafe impl Sync for Wanted {}

impl Wanted {
    fn ask(&self) -> bool {
        (self.call)(self.of) != 0
    }
}

/// How long a change waits. Whoever is asked is there until the change is done.
pub fn patience(from: Option<&abi::Patience>) -> ChangeOptions {
    let Some(from) = from else { return ChangeOptions::default() };
    let wanted = from.goes_on.map(|call| Wanted { call, of: from.of });
    ChangeOptions {
        unchecked_foreign_keys: from.unchecked_foreign_keys != 0,
        lock_timeout: Some(Duration::from_millis(from.lock_timeout_ms)),
        goes_on: wanted.map(|wanted| -> Arc<dyn Fn() -> bool + Send + Sync> { Arc::new(move || wanted.ask()) }),
        ..ChangeOptions::default()
    }
}

/// A place for a record. The server reads it between two calls of [`Slot::write`].
#[derive(Clone, Copy)]
pub struct Slot {
    ptr: *mut u8,
    len: usize,
}

impl Slot {
    /// # Safety
    /// `ptr` is `len` places that only the caller's thread uses while the slot is, and no other reference is there to while it
    /// is written.
    pub unsafe fn new(ptr: *mut u8, len: usize) -> Self {
        Self { ptr, len }
    }

    pub fn write<T>(self, put: impl FnOnce(&mut [u8]) -> T) -> T {
        // SAFETY: promised to `new`.
        put(unsafe { slots(self.ptr, self.len) })
    }
}

/// A foreign key that comes.
pub struct NewForeign<'a> {
    /// Empty: it has none.
    pub name: &'a str,
    pub parent: &'a str,
    pub columns: Vec<&'a str>,
    pub parent_columns: Vec<&'a str>,
    pub on_delete: u8,
    pub on_update: u8,
}

/// What becomes of a table's foreign keys.
pub struct ForeignChange<'a> {
    /// The table's name as its users know it.
    pub label: &'a str,
    /// The table whose place it takes, with what that has.
    pub like: Option<&'a str>,
    pub added: Vec<NewForeign<'a>>,
    pub dropped: Vec<&'a str>,
    pub unchecked: bool,
}

/// # Safety
/// All pointers in it are as `capi.h` says, for `'a`.
pub unsafe fn foreign_change<'a>(from: &'a abi::ForeignChange) -> Result<ForeignChange<'a>> {
    // SAFETY: promised by the caller, for each of the pointers.
    unsafe {
        let texts = |ptr: *const abi::Text, count: u32| -> Result<Vec<&'a str>> {
            bytes(ptr, count as usize).iter().map(|name| text(*name)).collect()
        };
        let added = bytes(from.added, from.added_count as usize).iter().map(|one| {
            Ok(NewForeign {
                name: text(one.name)?,
                parent: text(one.parent)?,
                columns: texts(one.columns, one.count)?,
                parent_columns: texts(one.parent_columns, one.count)?,
                on_delete: one.on_delete,
                on_update: one.on_update,
            })
        });
        let like = text(from.like)?;
        Ok(ForeignChange {
            label: text(from.label)?,
            like: (!like.is_empty()).then_some(like),
            added: added.collect::<Result<_>>()?,
            dropped: texts(from.dropped, from.dropped_count)?,
            unchecked: from.unchecked != 0,
        })
    }
}

/// The server's table in Rust's types.
pub struct Definition<'a> {
    pub fields: Vec<(&'a str, &'a abi::Field)>,
    pub keys: Vec<(&'a str, &'a [abi::Part], &'a abi::Key)>,
    pub defaults: &'a [u8],
    pub primary: Option<usize>,
    pub hidden: &'a abi::Key,
}

/// # Safety
/// All pointers in it are as `capi.h` says, for `'a`.
pub unsafe fn definition<'a>(from: &'a abi::Definition) -> Result<Definition<'a>> {
    // SAFETY: promised by the caller, for each of the pointers.
    unsafe {
        let fields = bytes(from.fields, from.field_count as usize);
        let keys = bytes(from.keys, from.key_count as usize);
        Ok(Definition {
            fields: fields.iter().map(|f| Ok((text(f.name)?, f))).collect::<Result<_>>()?,
            keys: keys
                .iter()
                .map(|k| Ok((text(k.name)?, bytes(k.parts, (k.part_count + k.extended) as usize), k)))
                .collect::<Result<_>>()?,
            defaults: bytes(from.defaults, from.record_length as usize),
            primary: usize::try_from(from.primary).ok(),
            hidden: &from.hidden,
        })
    }
}
