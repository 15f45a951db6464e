//! Range reads: what the structure gives out, less what the list hides.
//!
//! A cursor hops: from where it stands in deleted ranges it goes on behind them, or at the next key that was written there since. It looks
//! for that at its beginning, and when the last entry that the structure gave out was hidden.
//!
//! A reader of the newest takes the list anew at each call, and keeps those before: that a range was deleted stays true, and the structure may
//! hand out what it had copied before the deletes of that range came to it.

use std::ops::Bound;
use std::sync::Arc;

use base::{CommitTs, Result};

use super::list::List;
use super::{Shared, moment};
use crate::damaged::just_above;
use crate::{Cursor, Direction, EntryBatch, KeyRange, ReadAt, Skips};

/// A cursor over an index with deleted ranges.
pub(super) struct RangedCursor {
    shared: Arc<Shared>,
    at: ReadAt,
    direction: Direction,
    /// What was not given out yet.
    rest: KeyRange,
    lists: Vec<Arc<List>>,
    /// None before the first call, and where it hops.
    inner: Option<Box<dyn Cursor>>,
    looks: bool,
    skips: Option<Skips>,
}

impl RangedCursor {
    pub fn new(shared: Arc<Shared>, at: ReadAt, range: KeyRange, direction: Direction) -> Self {
        let lists = if shared.is_quiet() { Vec::new() } else { vec![shared.list()] };
        Self { shared, at, direction, rest: range, lists, inner: None, looks: true, skips: None }
    }

    fn take_list(&mut self) {
        if self.shared.is_quiet() {
            return;
        }
        let list = self.shared.list();
        if self.lists.last().is_none_or(|last| !Arc::ptr_eq(last, &list)) {
            self.lists.retain(|list| !list.is_empty());
            self.lists.push(list);
        }
    }

    fn hides(&self, key: &[u8], ts: CommitTs) -> bool {
        self.lists.iter().any(|list| list.hides(key, ts, moment(self.at)))
    }

    /// Hops, if there is somewhere to hop to. False if nothing is left.
    fn hop(&mut self) -> bool {
        if self.shared.is_quiet() {
            return true;
        }
        // The list of now: what was written is noted for what is in it.
        let list = self.shared.list.read();
        if list.is_empty() {
            return true;
        }
        let (written, at) = (self.shared.written.lock(), moment(self.at));
        let target = match self.direction {
            Direction::Forward => {
                let from = match &self.rest.low {
                    Bound::Included(key) => key.clone(),
                    Bound::Excluded(key) => just_above(key),
                    Bound::Unbounded => Vec::new(),
                };
                list.next_seen(from.clone(), at, &written).map(|to| (to != from).then_some(Bound::Included(to)))
            }
            Direction::Backward => {
                let from = match &self.rest.high {
                    Bound::Included(key) => Some(just_above(key)),
                    Bound::Excluded(key) => Some(key.clone()),
                    Bound::Unbounded => None,
                };
                let to = list.next_seen_below(from.clone(), at, &written);
                Some(if to == from { None } else { to.map(Bound::Excluded) })
            }
        };
        match target {
            None => return false,
            Some(None) => return true,
            Some(Some(bound)) => match self.direction {
                Direction::Forward => self.rest.low = bound,
                Direction::Backward => self.rest.high = bound,
            },
        }
        self.inner = None;
        !self.rest.is_empty()
    }
}

impl Cursor for RangedCursor {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        if self.at == ReadAt::Newest {
            self.take_list();
        }
        if std::mem::take(&mut self.looks) && !self.hop() {
            // Whoever asks again gets the same.
            self.looks = true;
            return Ok(false);
        }
        let inner = match &mut self.inner {
            Some(inner) => inner,
            none => {
                let mut inner = self.shared.inner.cursor(self.at, self.rest.bounds(), self.direction);
                self.skips.iter().for_each(|skips| inner.skip_damaged(skips.clone()));
                none.insert(inner)
            }
        };
        let more = inner.fill(out, max)?;
        // Where nothing is listed nobody hops, and where the cursor stands need not be known.
        if let Some(last) = out.len().checked_sub(1)
            && self.lists.iter().any(|list| !list.is_empty())
        {
            let key = out.key(last);
            self.looks = self.hides(key, out.ts(last));
            let bound = Bound::Excluded(key.to_vec());
            match self.direction {
                Direction::Forward => self.rest.low = bound,
                Direction::Backward => self.rest.high = bound,
            }
            out.retain(|key, ts| !self.hides(key, ts));
        }
        Ok(more)
    }

    fn skip_damaged(&mut self, skips: Skips) {
        self.inner.iter_mut().for_each(|inner| inner.skip_damaged(skips.clone()));
        self.skips = Some(skips);
    }
}
