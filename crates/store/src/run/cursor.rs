//! Moves over a run, both ways.

use std::borrow::Cow;
use std::sync::Arc;

use base::Result;

use super::block::{Body, RunBlock, Spot};
use super::memory::MemoryRun;
use super::reader::{FileRun, child};
use super::window::Window;
use super::{Repr, Run};
use crate::BlockRef;

/// A cursor over a run. It stands on an entry or nowhere; a new one stands nowhere. The moves return whether it
/// stands on an entry afterwards.
pub struct RunCursor {
    at: At,
}

/// Where an entry lies in a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// So many lie before it.
    Entry(u64),
    /// In this block of a file, the root if it is none, that has about so many entries, so many before this one.
    InBlock { at: Option<BlockRef>, entries: u64, before: u64 },
}

impl Place {
    /// That of the entry behind it.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Entry(at) => Self::Entry(at + 1),
            Self::InBlock { at, entries, before } => Self::InBlock { at, entries, before: before + 1 },
        }
    }
}

enum At {
    Memory {
        run: Arc<MemoryRun>,
        at: Option<usize>,
    },
    File(FileCursor),
    /// Every move is this fault.
    Lost(base::Fault),
}

struct FileCursor {
    run: Arc<FileRun>,
    /// From the root down to a data block; empty when standing nowhere.
    path: Vec<(Arc<RunBlock>, Spot)>,
    window: Window,
}

impl RunCursor {
    pub(super) fn new(run: &Run) -> Self {
        let at = match &run.0 {
            Repr::Memory(run) => At::Memory { run: run.clone(), at: None },
            Repr::File(run) => At::File(FileCursor { run: run.clone(), path: Vec::new(), window: Window::default() }),
            Repr::Lost(lost) => At::Lost(lost.1.clone()),
        };
        Self { at }
    }

    /// Moves to the first entry at or above `key`.
    ///
    /// # Errors
    /// Faults of reading; the cursor stands nowhere then. The same for the other moves.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        match &mut self.at {
            At::Memory { run, at } => {
                let i = run.seek(key);
                *at = (i < run.len()).then_some(i);
                Ok(at.is_some())
            }
            At::File(cursor) => cursor.seek(key),
            At::Lost(fault) => Err(fault.clone()),
        }
    }

    /// Moves to the last entry below `key`.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        match &mut self.at {
            At::Memory { run, at } => {
                *at = run.seek(key).checked_sub(1);
                Ok(at.is_some())
            }
            At::File(cursor) => {
                if cursor.seek(key)? {
                    cursor.prev()
                } else {
                    cursor.descend(End::Last)
                }
            }
            At::Lost(fault) => Err(fault.clone()),
        }
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn seek_first(&mut self) -> Result<bool> {
        match &mut self.at {
            At::Memory { run, at } => {
                *at = (run.len() > 0).then_some(0);
                Ok(at.is_some())
            }
            At::File(cursor) => cursor.descend(End::First),
            At::Lost(fault) => Err(fault.clone()),
        }
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn seek_last(&mut self) -> Result<bool> {
        match &mut self.at {
            At::Memory { run, at } => {
                *at = run.len().checked_sub(1);
                Ok(at.is_some())
            }
            At::File(cursor) => cursor.descend(End::Last),
            At::Lost(fault) => Err(fault.clone()),
        }
    }

    /// Moves to the next entry; false at the end, or from nowhere.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    #[allow(clippy::should_implement_trait, reason = "a cursor lends its entries, an iterator cannot")]
    pub fn next(&mut self) -> Result<bool> {
        match &mut self.at {
            At::Memory { run, at } => {
                *at = at.map(|i| i + 1).filter(|i| *i < run.len());
                Ok(at.is_some())
            }
            At::File(cursor) => cursor.next(),
            At::Lost(fault) => Err(fault.clone()),
        }
    }

    /// Moves to the entry before; false at the front, or from nowhere.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn prev(&mut self) -> Result<bool> {
        match &mut self.at {
            At::Memory { at, .. } => {
                *at = at.and_then(|i| i.checked_sub(1));
                Ok(at.is_some())
            }
            At::File(cursor) => cursor.prev(),
            At::Lost(fault) => Err(fault.clone()),
        }
    }

    /// The place of the entry, to count from and to.
    ///
    /// # Panics
    /// If the cursor stands nowhere.
    pub(super) fn place(&self) -> Place {
        match &self.at {
            At::Memory { at, .. } => Place::Entry(at.expect(STANDS) as u64),
            At::File(cursor) => {
                let (block, spot) = cursor.leaf();
                let above = cursor.path.len().checked_sub(2).map(|above| child(&cursor.path[above].1));
                Place::InBlock { at: above, entries: block.entries(), before: block.entries_before(spot) }
            }
            At::Lost(_) => unreachable!("{STANDS}"),
        }
    }

    /// True if the cursor stands on an entry.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        match &self.at {
            At::Memory { at, .. } => at.is_some(),
            At::File(cursor) => !cursor.path.is_empty(),
            At::Lost(_) => false,
        }
    }

    /// The key of the entry.
    ///
    /// # Panics
    /// If the cursor stands nowhere; also [`RunCursor::value`] and [`RunCursor::is_delete`].
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match &self.at {
            At::Memory { run, at } => run.key(at.expect(STANDS)),
            At::File(cursor) => &cursor.leaf().1.key,
            At::Lost(_) => unreachable!("{STANDS}"),
        }
    }

    /// The value of the entry; `None` for a delete. A large value is read now.
    ///
    /// # Errors
    /// Faults of reading a large value.
    pub fn value(&self) -> Result<Option<Cow<'_, [u8]>>> {
        match &self.at {
            At::Memory { run, at } => Ok(run.value(at.expect(STANDS)).map(Cow::Borrowed)),
            At::File(cursor) => {
                let (block, spot) = cursor.leaf();
                Ok(match &spot.body {
                    Body::Inline(range) => Some(Cow::Borrowed(block.inline(range))),
                    Body::Far { bytes, list, at } => Some(Cow::Owned(cursor.run.far(*bytes, *list, *at)?)),
                    Body::Delete | Body::Child(_) => None,
                })
            }
            At::Lost(fault) => Err(fault.clone()),
        }
    }

    /// True if the entry is a delete.
    #[must_use]
    pub fn is_delete(&self) -> bool {
        match &self.at {
            At::Memory { run, at } => run.value(at.expect(STANDS)).is_none(),
            At::File(cursor) => cursor.leaf().1.body == Body::Delete,
            At::Lost(_) => unreachable!("{STANDS}"),
        }
    }
}

const STANDS: &str = "the cursor stands on an entry";

#[derive(Clone, Copy)]
enum End {
    First,
    Last,
}

impl FileCursor {
    fn leaf(&self) -> &(Arc<RunBlock>, Spot) {
        self.path.last().expect(STANDS)
    }

    /// Goes to one end of the run.
    fn descend(&mut self, end: End) -> Result<bool> {
        self.path.clear();
        self.extend(end)
    }

    /// Goes down from the end of the path, or the root, to the first or last entry below it.
    fn extend(&mut self, end: End) -> Result<bool> {
        loop {
            let block = match self.path.last() {
                None => self.run.root.clone(),
                Some((_, spot)) => {
                    let at = child(spot);
                    let level = self.run.meta.height - self.path.len() as u8;
                    match self.block(at, level) {
                        Ok(block) => block,
                        Err(fault) => return self.fail(fault),
                    }
                }
            };
            let mut spot = Spot::default();
            let found = match end {
                End::First => block.first(&mut spot),
                End::Last => block.last(&mut spot),
            };
            if !found {
                // Only an empty run has an empty block: its root.
                self.path.clear();
                return Ok(false);
            }
            self.path.push((block, spot));
            if self.path.len() == usize::from(self.run.meta.height) + 1 {
                return Ok(true);
            }
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.path.clear();
        let mut block = self.run.root.clone();
        for level in (0..=self.run.meta.height).rev() {
            let mut spot = Spot::default();
            if !block.seek(key, &mut spot) {
                // A separator may lie above the last key of its block: the answer is the first of the next.
                return self.leave_block(End::First);
            }
            if level == 0 {
                self.path.push((block, spot));
                return Ok(true);
            }
            let next = match self.block(child(&spot), level - 1) {
                Ok(next) => next,
                Err(fault) => return self.fail(fault),
            };
            self.path.push((block, spot));
            block = next;
        }
        unreachable!("level 0 returns")
    }

    fn next(&mut self) -> Result<bool> {
        let Some((block, spot)) = self.path.last_mut() else { return Ok(false) };
        if block.next(spot) {
            return Ok(true);
        }
        self.path.pop();
        self.leave_block(End::First)
    }

    fn prev(&mut self) -> Result<bool> {
        let Some((block, spot)) = self.path.last_mut() else { return Ok(false) };
        if block.prev(spot) {
            return Ok(true);
        }
        self.path.pop();
        self.leave_block(End::Last)
    }

    /// The block below the path's end is exhausted: moves on in the blocks above, forward to the first of what
    /// follows or backward to the last of what precedes.
    fn leave_block(&mut self, enter: End) -> Result<bool> {
        while let Some((block, spot)) = self.path.last_mut() {
            let moved = match enter {
                End::First => block.next(spot),
                End::Last => block.prev(spot),
            };
            if moved {
                return self.extend(enter);
            }
            self.path.pop();
        }
        Ok(false)
    }

    /// Data blocks come through the window, blocks above are kept by the run.
    fn block(&mut self, at: BlockRef, level: u8) -> Result<Arc<RunBlock>> {
        if level > 0 { self.run.block(at, level) } else { self.window.block(&self.run, at).map(Arc::new) }
    }

    fn fail(&mut self, fault: base::Fault) -> Result<bool> {
        self.path.clear();
        Err(fault)
    }
}
