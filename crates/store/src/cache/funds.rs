//! Memory for one commit, which may change several indexes [A1].
//!
//! Who holds leaves or memory does not wait for more: others who wait may lack what he holds, and he what they hold. So each index takes
//! what it needs from the commit's funds, or from the budget while nobody waits for memory. Where one finds too little, all that
//! was got is given back; the commit waits, with nothing in hand, for as much as all of them asked for; and they are asked again.

use std::sync::Arc;

use base::Result;

use super::Cache;
use crate::budget::{Charge, Class};

/// What a commit has waited for, and what it is asked for.
#[derive(Default)]
pub struct Funds {
    /// Waited for: of pages, and of other classes.
    charges: Option<(Charge, Charge)>,
    asked: Asked,
    /// Whose memory was too little, since the last wait.
    short_of: Option<Arc<Cache>>,
    /// See [`Funds::in_place`].
    in_place: bool,
}

/// Bytes, since the last wait.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    pub pages: u64,
    pub others: u64,
}

impl Funds {
    /// Of who has no record that a run in memory could stand on: one entry, however large, is put where it belongs, past the budget if
    /// need be ([`Funds::wait_or_pass`]).
    #[must_use]
    pub fn in_place() -> Self {
        Self { in_place: true, ..Self::default() }
    }

    /// True if one entry may not become a run.
    #[must_use]
    pub fn are_in_place(&self) -> bool {
        self.in_place
    }

    /// `bytes` of `class`. `None` if they would have to be waited for, and from then on, until that was done.
    pub fn take(&mut self, cache: &Arc<Cache>, class: Class, bytes: u64) -> Option<Charge> {
        let is_page = class == Class::Frames;
        *(if is_page { &mut self.asked.pages } else { &mut self.asked.others }) += bytes;
        if self.short_of.is_some() {
            return None;
        }
        let own = self.charges.as_mut().map(|(pages, others)| if is_page { pages } else { others });
        let waited_for = own.as_ref().map_or(0, |own| own.bytes().min(bytes));
        let rest = match bytes - waited_for {
            0 => Some(cache.budget().charge(class, 0)),
            rest => cache.try_charge(class, rest),
        };
        let Some(mut taken) = rest else {
            self.short_of = Some(cache.clone());
            return None;
        };
        if let Some(own) = own {
            taken.merge(own.split(waited_for));
        }
        Some(taken)
    }

    /// Waits for all that was asked for. The caller holds nothing of what was taken before.
    ///
    /// # Errors
    /// As [`Cache::grant`].
    pub fn wait(&mut self) -> Result<()> {
        self.charges = None;
        let asked = std::mem::take(&mut self.asked);
        let Some(cache) = self.short_of.take() else { return Ok(()) };
        vfs::thread::point("cache.funds_wait");
        self.charges = Some(cache.wait_for(asked, Class::Buffers)?);
        Ok(())
    }

    /// The same for one entry that has to get where it belongs, since nobody can be refused. Of what it needs, a quarter of the budget is
    /// waited for; the rest passes the limit. Memory stays below budget and entry: what passed the limit before has left by then.
    ///
    /// # Errors
    /// [`base::Fault::Limit`] if a quarter of the budget did not become free for ten seconds.
    pub fn wait_or_pass(&mut self) -> Result<()> {
        let Some(cache) = self.short_of.clone() else { return self.wait() };
        let share = cache.budget().limit() / 4;
        let (pages, others) = (self.asked.pages, self.asked.others);
        self.asked.pages = pages.min(share);
        self.asked.others = others.min(share - self.asked.pages);
        self.wait()?;
        if let Some((of_pages, of_others)) = &mut self.charges {
            of_pages.set(pages);
            of_others.set(others);
        }
        Ok(())
    }

    /// What is asked for, and is not there, is more than half of the budget: to wait for it would be long, or in vain, since not all of the budget can
    /// become free; and all others would wait behind.
    #[must_use]
    pub fn are_asked_too_much(&self) -> bool {
        let asked = self.asked.pages + self.asked.others;
        self.short_of.as_ref().is_some_and(|cache| asked > cache.budget().limit() / 2)
    }
}
