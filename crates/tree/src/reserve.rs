//! Step 1b of a commit: everything `apply` can need, before the commit has an LSN [A1].
//!
//! Steps: (1) a ticket is taken; (2) the batch is walked in key order (`survey`): each leaf it touches notes the ticket under
//! its shared latch, and is counted if it is cold or may split; (3) past [`COLD_LEAVES_MAX`] cold leaves the
//! batch is too cold; (4) the memory that is needed comes from the commit's funds; if they have too little, the ticket is
//! released, and the commit waits and starts again: nobody waits for memory while pinning any, in this index or another
//! one; (5) the cold leaves are loaded with that memory and the ticket held.
//!
//! After that, every leaf of the batch is in memory or EMPTY, and what could change that (eviction) asks the
//! tickets. Other commits may split the leaves and fill EMPTY slots: the new leaves inherit the ticket's note.
//!
//! Inner nodes on the way are loaded and stay. The leaves are remembered for `apply`, which finds most of them as they were.

use std::any::Any;
use std::sync::Arc;

use base::{CommitTs, Fault, Result};
use index::{Batch, Reservation, Reserved};
use store::{Class, Funds, Grant};

use crate::handle::{LeafHandle, LeafState};
use crate::node::max_key_bytes;
use crate::survey::Walked;
use crate::tickets::Ticket;
use crate::tree::{Core, Hand};

/// A commit waits for at most so many leaves; more are attached as a run.
pub(crate) const COLD_LEAVES_MAX: usize = 64;
/// Largest batch that is applied directly, in bytes.
pub(crate) const DIRECT_BYTES_MAX: usize = 1 << 20;
/// A commit whose messages may take more than one in so many bytes of the budget is attached as a run.
const MESSAGES_SHARE: u64 = 8;
/// Room for one batch.
pub(crate) struct Room {
    hand: Hand,
    ticket: Ticket,
    pub grant: Option<Grant>,
    pub leaves: Vec<Known>,
    /// Of a leaf in memory.
    leaf_bytes: u64,
}

/// What a commit gets.
pub(crate) enum Found {
    Room(Room),
    /// Too many cold leaves, or messages beside too many leaves.
    TooCold,
    /// The funds have too little.
    TooLittle,
}

/// Where an operation of the batch, and those behind it, belonged when this was looked up.
pub(crate) struct Known {
    pub first: usize,
    pub leaf: Arc<LeafHandle>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.hand.tickets.release(&self.ticket);
    }
}

impl Reserved for Room {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn held_bytes(&self) -> u64 {
        self.leaves.len() as u64 * self.leaf_bytes + self.grant.as_ref().map_or(0, Grant::bytes)
    }
}

impl Core {
    pub(crate) fn reserve(&self, hand: &Hand, batch: &Batch, funds: &mut Funds) -> Result<Option<Reservation>> {
        if batch.bytes() > DIRECT_BYTES_MAX && !(batch.len() == 1 && funds.are_in_place()) {
            return Ok(Some(Reservation::TooCold));
        }
        Ok(match self.reserve_room(hand, batch, COLD_LEAVES_MAX, None, funds)? {
            Found::Room(room) => Some(Reservation::Direct(Box::new(room))),
            Found::TooCold => Some(Reservation::TooCold),
            Found::TooLittle => None,
        })
    }

    /// With the timestamp of a run that is drained: where that is too late for a segment, the leaf is loaded first, since
    /// neither the run nor the log has an entry any more that is drained.
    pub(crate) fn reserve_room(
        &self,
        hand: &Hand,
        batch: &Batch,
        cold_max: usize,
        drained: Option<CommitTs>,
        funds: &mut Funds,
    ) -> Result<Found> {
        self.check_keys(batch)?;
        let mut grant = None;
        loop {
            let mut room = Room {
                hand: hand.clone(),
                ticket: self.tickets.take(),
                grant: grant.take(),
                leaves: Vec::new(),
                leaf_bytes: self.page_bytes(),
            };
            let (ticket, message_bytes_max) = (room.ticket.number, self.message_bytes_max());
            let survey = self.survey(&Walked { batch, ticket, cold_max, message_bytes_max }, drained)?;
            if survey.cold.len() > cold_max || (batch.len() > 1 && survey.message_bytes > self.message_bytes_max()) {
                return Ok(Found::TooCold);
            }
            let (needed, granted) = (survey.bytes(self.page_bytes()), room.grant.as_ref().map_or(0, Grant::bytes));
            if needed > granted {
                let more = funds.take(&self.env.cache, Class::Frames, needed - granted);
                let Some(more) = more else { return Ok(Found::TooLittle) };
                match &mut room.grant {
                    Some(grant) => grant.add(more),
                    None => room.grant = Some(more.into()),
                }
            }
            self.counters.add_cold_visits(survey.cold.len() as u64);
            for leaf in &survey.cold {
                self.load_leaf(leaf, room.grant.as_mut())?;
            }
            // A leaf whose loading another thread began is cold again after that thread's fault.
            let missing = |leaf: &Arc<LeafHandle>| {
                matches!(leaf.latch.read().state, LeafState::Cold | LeafState::Parked(_) | LeafState::Loading(_))
            };
            if survey.cold.iter().any(missing) {
                grant = room.grant.take();
                continue;
            }
            self.counters.add_visits(survey.leaves.len() as u64);
            room.leaves = survey.leaves;
            return Ok(Found::Room(room));
        }
    }

    /// A commit of several operations takes no more memory than this for messages.
    fn message_bytes_max(&self) -> usize {
        (self.env.cache.budget().limit() / MESSAGES_SHARE) as usize
    }

    fn check_keys(&self, batch: &Batch) -> Result<()> {
        let limit = max_key_bytes(self.env.options.node_bytes);
        match batch.iter().map(|(key, _)| key.len()).max() {
            Some(longest) if longest > limit => {
                Err(Fault::Limit { what: "length of a key, in bytes", limit: limit as u64, got: longest as u64 })
            }
            _ => Ok(()),
        }
    }
}
