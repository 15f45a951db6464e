//! A checkpoint in rounds, where there is no space for all that is dirty.
//!
//! What is written takes new space, and what it replaces comes back when a manifest is durable that does not name it (rule A20). One transaction
//! may make more leaves dirty than there is space for. So a checkpoint that finds none goes back, and
//!
//! 1. publishes what is written so far, complete to what the manifest before is complete to ([`Complete::AsBefore`]);
//! 2. asks every index what lies in which extent ([`index::Index::weigh`]), and has those emptied that bring most back
//!    ([`store::Space::to_evacuate`]), with the last of the reserve, which write-back leaves alone,
//!    but for what the nodes above need ([`store::AllocScope::Moved`]);
//! 3. does 1 again, and then tries anew.
//!
//! Why it is consistent: an image may have more than F says, in any checkpoint, since replay of what is there changes nothing (decision D3);
//! it must not lack anything at or below F, which is looked at for each leaf. The log stays from the manifest before on: nothing is trimmed, no
//! run file removed, no prepared set forgotten, until a checkpoint that is complete to now.
//!
//! It ends: no extent is emptied twice.

use std::collections::BTreeSet;

use base::{Fault, Result};
use store::{ExtentId, Weights};

use crate::checkpoint::Complete;
use crate::engine::{Engine, Published};
use crate::quarantine;

/// Others write meanwhile: so often is there more after a checkpoint found too little.
const ROUNDS_MAX: u64 = 16;

/// Of an extent that is emptied so much of a hundred may be clean: less would come back than it is worth.
const CLEAN_PERCENT_MAX: u64 = 90;

/// What was done already for one checkpoint.
#[derive(Default)]
pub(crate) struct Way {
    tried: BTreeSet<ExtentId>,
    rounds: u64,
}

impl Engine {
    /// After a checkpoint found no space. True if there may be more now.
    pub(crate) fn make_way(&self, published: &mut Published, way: &mut Way) -> Result<bool> {
        let dirty_bytes = || self.cache.dirty_bytes();
        let (left, dirty) = (self.space.left_bytes()?, dirty_bytes());
        way.rounds += 1;
        // Where pages would find space it is something else that does not.
        if way.rounds > ROUNDS_MAX || self.pages_owed() <= left {
            return Ok(false);
        }
        self.publish_written(published)?;
        loop {
            let extents = self.to_evacuate(&way.tried, CLEAN_PERCENT_MAX)?;
            if extents.is_empty() {
                return Ok(self.space.left_bytes()? > left || dirty_bytes() < dirty);
            }
            way.tried.extend(&extents);
            vfs::thread::point("checkpoint.evacuates");
            self.evacuate_and_publish(published, &extents)?;
            if self.space.left_bytes()? > left + dirty_bytes() {
                return Ok(true);
            }
        }
    }

    /// What finds no space stays where it is.
    pub(crate) fn evacuate_and_publish(&self, published: &mut Published, extents: &[ExtentId]) -> Result<()> {
        let emptied = self.evacuate(extents);
        self.publish_written(published)?;
        match emptied {
            Err(Fault::NoSpace { .. } | Fault::Limit { .. }) => Ok(()),
            other => other,
        }
    }

    fn publish_written(&self, published: &mut Published) -> Result<()> {
        self.publish(published, Complete::AsBefore)?;
        vfs::thread::point("checkpoint.between_rounds");
        Ok(())
    }

    /// Extents with everything in them known, none of `tried`, of which no more than so much of a hundred would be moved and need not be written.
    pub(crate) fn to_evacuate(&self, tried: &BTreeSet<ExtentId>, clean_percent: u64) -> Result<Vec<ExtentId>> {
        let mut weights = Weights::new();
        for entry in self.upkept_indexes().iter().filter(|entry| entry.is_kept_up()) {
            quarantine::enduring(entry, || entry.index.weigh(&mut weights))?;
        }
        self.space.to_evacuate(&weights, tried, clean_percent)
    }

    fn evacuate(&self, extents: &[ExtentId]) -> Result<()> {
        let upkeep = self.upkeep();
        for entry in self.upkept_indexes().iter().filter(|entry| entry.is_kept_up()) {
            quarantine::enduring(entry, || entry.index.evacuate(extents, &upkeep))?;
        }
        Ok(())
    }
}
