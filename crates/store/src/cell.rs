//! Something that was read from disk, while the cache has room for it: a page of the cache, always clean.
//!
//! A hit writes nothing that others read: what is there is looked at under an epoch guard, and the reference bit is set only if it is
//! not. Whoever wants to keep it beyond the guard takes a share.
//!
//! The charge goes when the value is told to leave, the value a moment later, when nobody looks at it any more: so who makes room knows at
//! once that there is some.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Result;
use vfs::sync::Mutex;

use crate::epoch::{self, Guard};
use crate::{Cache, Charge, EpochCell, Evict, Grant, LeftAt, LeftMark, Page, PageWrite, WriteEnv};

/// What a cell and its place in the cache take beside the value, in bytes, about.
const CELL_BYTES: u64 = 160;

/// A place for one value.
#[derive(Debug)]
pub struct Cell<T: Send + Sync + 'static> {
    /// Changed by who has `charge`; there is a value if and only if there is a charge.
    value: EpochCell<Option<Arc<T>>>,
    charge: Mutex<Option<Charge>>,
    /// Relaxed: a hint for the cache.
    is_referenced: AtomicBool,
    /// When it last left memory.
    left: LeftMark,
}

impl<T: Send + Sync + 'static> Cell<T> {
    /// An empty one.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            value: EpochCell::new(None),
            charge: Mutex::new(None),
            is_referenced: AtomicBool::new(false),
            left: LeftMark::default(),
        })
    }

    /// The value, if it is in memory.
    #[must_use]
    pub fn get<'g>(&self, guard: &'g Guard) -> Option<&'g Arc<T>> {
        let value = self.value.load(guard).as_ref()?;
        // Read first, so that hits write nothing.
        if !self.is_referenced.load(Ordering::Relaxed) {
            self.is_referenced.store(true, Ordering::Relaxed);
        }
        Some(value)
    }

    /// A share of the value, if it is in memory.
    #[must_use]
    pub fn share(&self) -> Option<Arc<T>> {
        self.get(&epoch::pin()).cloned()
    }

    /// A value of so many bytes is read from disk.
    pub fn note_read(&self, cache: &Cache, bytes: u64) {
        cache.note_page_read(self.left.get(), bytes);
    }

    /// Keeps a value of so many bytes in memory, if there is room.
    pub fn keep(self: &Arc<Self>, cache: &Cache, value: &Arc<T>, bytes: u64) {
        if self.hold(value, bytes, |bytes| cache.try_grant_or_wish(bytes)) {
            let this: Arc<dyn Page> = self.clone();
            cache.insert(Arc::downgrade(&this), bytes + CELL_BYTES);
        }
    }

    /// Bytes to be granted for a value of so many.
    #[must_use]
    pub const fn bytes_for(bytes: u64) -> u64 {
        bytes + CELL_BYTES
    }

    /// Keeps a value in memory for which there is a grant of [`Cell::bytes_for`] its bytes, unless there is one.
    pub fn keep_granted(self: &Arc<Self>, cache: &Cache, value: &Arc<T>, grant: Grant) {
        let bytes = grant.bytes();
        if self.hold(value, 0, |_| Some(grant)) {
            let this: Arc<dyn Page> = self.clone();
            cache.insert(Arc::downgrade(&this), bytes);
        }
    }

    /// When it last left memory.
    #[must_use]
    pub fn left(&self) -> LeftAt {
        self.left.get()
    }

    /// Keeps a value that nobody has asked for yet, if nothing has to leave memory for it; it leaves before what has been read.
    pub fn keep_spare(self: &Arc<Self>, cache: &Cache, value: &Arc<T>, bytes: u64) {
        if self.hold(value, bytes, |bytes| cache.try_grant_spare(bytes)) {
            let this: Arc<dyn Page> = self.clone();
            cache.insert_spare(Arc::downgrade(&this), bytes + CELL_BYTES);
        }
    }

    /// Puts a value in, if there is none and its bytes are granted. True if it was put in: it needs a place in the clock.
    fn hold(&self, value: &Arc<T>, bytes: u64, grant: impl FnOnce(u64) -> Option<Grant>) -> bool {
        let mut charge = self.charge.lock();
        if charge.is_some() {
            return false;
        }
        let Some(grant) = grant(Self::bytes_for(bytes)) else { return false };
        *charge = Some(grant.into_charge());
        self.value.replace(Some(value.clone()));
        true
    }
}

impl<T: Send + Sync + 'static> Page for Cell<T> {
    fn take_referenced(&self) -> bool {
        self.is_referenced.swap(false, Ordering::Relaxed)
    }

    fn try_evict(&self) -> Evict {
        let Some(mut charge) = self.charge.try_lock() else { return Evict::Busy };
        if charge.take().is_none() {
            return Evict::Gone;
        }
        self.value.replace(None);
        Evict::Evicted
    }

    fn note_left(&self, at: LeftAt) {
        self.left.set(at);
    }

    fn begin_write(self: Arc<Self>, _env: &WriteEnv) -> Result<Option<PageWrite>> {
        Ok(None)
    }

    fn is_dirty_hint(&self) -> bool {
        false
    }
}
