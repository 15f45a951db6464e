//! The fuzzy checkpoint, bottom-up, while readers and writers go on.
//!
//! The five steps of [A9]:
//! 1. F is known before anything is looked at: the applied prefix, held below undrained in-memory runs. It only falls
//!    afterwards: below messages that came late for a leaf which is damaged, and so can go nowhere.
//! 2. A node's `changed` flag is taken BEFORE its children are looked at; what changes later sets it again.
//! 3. For each inner node whose flag was set: leaves with something unwritten at or below F are written; then,
//!    under the structure latch, every child is checked again, and if all are complete to F the node's image is composed
//!    from the handles (`compose`). Otherwise only the missing ones are written and the check is repeated.
//! 4. A split gives both halves the old image, so that what was complete stays so, and repeating ends.
//! 5. The root comes last, whatever it is then.
//!
//! `InnerRecord::seen` says for which checkpoint a node's image is complete. A split copies both, an absorption
//! drops the image. A root that grew in mid-walk gives its halves the number of an older one: they are composed first.
//!
//! The image of a node is written without a latch. If the node absorbed another one meanwhile, it is thrown away and
//! the node composed again; if it was split, the image stays right for both halves, trimmed.
//!
//! Inner nodes just above the leaves are written in batches; there is one of the next level for a hundred of them.
//!
//! After a fault, the flags that were taken are set again, and the next checkpoint starts from there.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use base::limits::LSN_UNIT;
use base::{CommitTs, Lsn, Result};
use index::{IndexState, LogGate, Upkeep};
use store::{AllocScope, BlockKind, NewBlock, Page, PageWrite, UpdateGroup, WriteEnv, epoch};

use crate::compose::{Composed, Outcome};
use crate::handle::{Child, InnerHandle, InnerState, LeafHandle};
use crate::image::Image;
use crate::runs::Begun;
use crate::state::State;
use crate::tree::Core;

/// Inner nodes written in one batch.
const NODES_PER_WRITE: usize = 32;

/// One checkpoint under way.
pub(crate) struct Walk<'a> {
    pub core: &'a Core,
    /// F.
    pub skip: Lsn,
    /// What is lacked from then counts as had: the runs of these are named, whether leaves have them or not.
    pub late: BTreeSet<CommitTs>,
    pub number: u64,
    /// Oldest message that stays out of all images, for damage; MAX if there is none.
    pub stuck: Cell<CommitTs>,
    upkeep: &'a Upkeep<'a>,
    /// It is complete to what an earlier one is: for what was written since.
    pub is_of_written: bool,
}

impl Core {
    pub(crate) fn checkpoint(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.checkpoint_by(upkeep, false)
    }

    /// [`index::Index::checkpoint_written`]: F is that of an earlier one, of which leaves have everything, but for what came late.
    pub(crate) fn checkpoint_written(&self, upkeep: &Upkeep<'_>) -> Result<IndexState> {
        self.checkpoint_by(upkeep, true)
    }

    fn checkpoint_by(&self, upkeep: &Upkeep<'_>, is_of_written: bool) -> Result<IndexState> {
        let _one = self.checkpointing.lock();
        let number = {
            let mut last = self.last_checkpoint.lock();
            *last += 1;
            *last
        };
        let Begun { skip, mut named, late } = self.runs.begin_checkpoint(upkeep.applied, is_of_written);
        vfs::thread::point("tree.checkpoint_begun");
        let walk = Walk { core: self, skip, late, number, stuck: Cell::new(CommitTs::MAX), upkeep, is_of_written };
        // A run that the state names outlives the crash: so must the record that made it part of the database.
        let newest_run = named.iter().map(|run| run.ts.as_lsn()).max();
        let root = newest_run.map_or(Ok(()), |need| walk.make_durable(need)).and_then(|()| walk.root());
        // The log holds what is stuck, and all behind it, runs too; that images have more is no harm.
        let skip = skip.min(Lsn(walk.stuck.get().0.saturating_sub(LSN_UNIT)));
        named.retain(|run| run.ts.as_lsn() <= skip);
        let is_complete = root.is_ok() && !is_of_written;
        self.runs.end_checkpoint(is_complete.then(|| (named.clone(), skip)));
        let root = root?;
        let runs = named.iter().map(|run| run.meta.id).collect();
        let (leaves, disk_bytes) = (self.counters.leaves(), self.counters.disk_bytes());
        let state = State { root: root.descriptor(&[], None), leaves, disk_bytes, runs: named };
        Ok(IndexState { bytes: state.encode(), skip, runs })
    }
}

impl Core {
    /// Writes leaves until each was written once since it was asked for.
    pub(crate) fn write_leaves(
        &self,
        leaves: &[Arc<LeafHandle>],
        upkeep: &Upkeep<'_>,
        scope: AllocScope,
    ) -> Result<()> {
        let env = WriteEnv { view: upkeep.view.clone(), applied: upkeep.applied, durable: upkeep.log.durable() };
        for some in leaves.chunks(self.env.cache.batch_pages()) {
            upkeep.log.rest();
            let mut writes = Vec::new();
            for leaf in some {
                match leaf.clone().begin_write(&env) {
                    Ok(write) => writes.extend(write),
                    Err(fault) => {
                        writes.into_iter().for_each(|write: PageWrite| (write.done)(Err(fault.clone())));
                        return Err(fault);
                    }
                }
            }
            self.write_pages(writes, upkeep.log, scope)?;
            // What another thread has in flight shows at the next look.
            for leaf in some {
                self.landed.wait_while(|| leaf.record.lock().in_flight);
            }
        }
        Ok(())
    }

    fn write_pages(&self, writes: Vec<PageWrite>, log: &dyn LogGate, scope: AllocScope) -> Result<()> {
        let Some(need) = writes.iter().map(|write| write.log_need).max() else { return Ok(()) };
        let mut blocks = Vec::new();
        let mut waiting = Vec::with_capacity(writes.len());
        for write in writes {
            waiting.push((write.blocks.len(), write.done));
            blocks.extend(write.blocks);
        }
        match make_durable(log, need).and_then(|()| self.env.space.write_in(scope, blocks)) {
            Ok(written) => {
                let mut written = written.into_iter();
                for (count, done) in waiting {
                    done(Ok(written.by_ref().take(count).collect()));
                }
                Ok(())
            }
            Err(fault) => {
                waiting.into_iter().for_each(|(_, done)| done(Err(fault.clone())));
                Err(fault)
            }
        }
    }
}

/// Rule A6.
fn make_durable(log: &dyn LogGate, need: Lsn) -> Result<()> {
    if log.durable() < need { log.make_durable(need) } else { Ok(()) }
}

impl Walk<'_> {
    /// Step 5: the root's image, complete to F.
    fn root(&self) -> Result<Arc<Image>> {
        let root = self.core.root.clone();
        let composed = if self.needs_image(&root) { self.compose(&root)? } else { None };
        let image = match composed {
            // The image is a picture of the whole tree even if the root grew since: the state can name it.
            Some(composed) => self.write_nodes(vec![(root.clone(), composed)])?.pop().expect("one image was written"),
            // The root is never absorbed.
            None => root.record.lock().image.clone().expect("a node that needs no other image has one"),
        };
        let before = root.record.lock().composed.replace(image.block.clone());
        if !before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &image.block)) {
            self.core.counters.publish(&image.block);
            before.iter().for_each(|before| self.core.counters.unpublish(before));
        }
        *self.core.root_image.lock() = Some(image.clone());
        Ok(image)
    }

    /// Step 2: takes the flag. False if the image is complete to F.
    fn needs_image(&self, handle: &InnerHandle) -> bool {
        let _latched = self.core.latch_structure();
        let changed = handle.take_changed();
        let mut record = handle.record.lock();
        if record.seen == self.number && record.image.is_some() {
            if changed {
                handle.note_change();
            }
            return false;
        }
        if changed || record.image.is_none() {
            return true;
        }
        record.seen = self.number;
        false
    }

    /// Steps 2 to 4 for one node and everything below it. The flag was taken; it is given back on a fault. `None` if
    /// the node was absorbed: whoever has its children now is composed; or if its image is what it would be.
    fn compose(&self, handle: &Arc<InnerHandle>) -> Result<Option<Composed>> {
        self.compose_unguarded(handle).inspect_err(|_| handle.note_change())
    }

    fn compose_unguarded(&self, handle: &Arc<InnerHandle>) -> Result<Option<Composed>> {
        loop {
            // Each time: a flush adds to what the image names.
            self.core.drain_before_composing(handle, self.upkeep)?;
            let below = self.inner_children(handle);
            self.visit_all(&below)?;
            vfs::thread::point("tree.before_compose");
            match self.try_compose(handle) {
                Outcome::Composed(composed) => return Ok(Some(*composed)),
                Outcome::Obsolete | Outcome::Unchanged => return Ok(None),
                Outcome::Leaves(leaves) => {
                    let scope = if self.is_of_written { AllocScope::Reserve } else { AllocScope::Pages };
                    self.core.write_leaves(&leaves, self.upkeep, scope)?;
                }
                Outcome::Messages => drop(self.core.flush(handle, self.upkeep.log)?),
                Outcome::Shared(blocks) => self.core.separate(handle, &blocks, self.upkeep.log)?,
                Outcome::Inner => {}
            }
        }
    }

    fn inner_children(&self, handle: &InnerHandle) -> Vec<Arc<InnerHandle>> {
        let guard = epoch::pin();
        let InnerState::Loaded(node) = handle.cell.load(&guard) else { return Vec::new() };
        let inner = |child: &Child| match child {
            Child::Inner(inner) => Some(inner.clone()),
            Child::Leaf(_) => None,
        };
        node.keys.children().iter().filter_map(inner).collect()
    }

    /// Gives every node that needs one an image, in batches.
    fn visit_all(&self, nodes: &[Arc<InnerHandle>]) -> Result<()> {
        for some in nodes.chunks(NODES_PER_WRITE) {
            self.upkeep.log.rest();
            let mut batch = Vec::new();
            let mut result = Ok(());
            for node in some {
                if result.is_ok() && self.needs_image(node) {
                    match self.compose(node) {
                        Ok(composed) => batch.extend(composed.map(|composed| (node.clone(), composed))),
                        Err(fault) => result = Err(fault),
                    }
                }
            }
            // What was composed is written even if another one failed: its children count on it.
            let written = self.write_nodes(batch);
            result.and(written.map(|_| ()))?;
        }
        Ok(())
    }

    /// Writes composed nodes and gives them their images.
    fn write_nodes(&self, nodes: Vec<(Arc<InnerHandle>, Composed)>) -> Result<Vec<Arc<Image>>> {
        let Some(need) = nodes.iter().map(|(_, composed)| composed.log_need()).max() else { return Ok(Vec::new()) };
        let blocks: Vec<NewBlock> = nodes
            .iter()
            .map(|(_, composed)| self.core.block(BlockKind::Inner, UpdateGroup::Hot, composed.payload.clone()))
            .collect();
        let written = self.make_durable(need).and_then(|()| self.core.env.space.write(blocks));
        let written = written.inspect_err(|_| nodes.iter().for_each(|(handle, _)| handle.note_change()))?;
        self.core.counters.add_written(BlockKind::Inner, &written);
        vfs::thread::point("tree.inner_written");
        let _latched = self.core.latch_structure();
        let images = nodes.into_iter().zip(written).map(|((handle, composed), block)| {
            let (absorptions, edition, image) = (composed.absorptions, composed.edition, composed.into_image(block));
            let mut record = handle.record.lock();
            if record.absorptions == absorptions {
                record.image = Some(image.clone());
                record.image_edition = Some(edition);
                record.seen = self.number;
            } else {
                drop(record);
                handle.note_change();
            }
            image
        });
        Ok(images.collect())
    }

    /// Rule A6.
    fn make_durable(&self, need: Lsn) -> Result<()> {
        make_durable(self.upkeep.log, need)
    }

    /// True if a child lacks nothing at or below F but what runs have that are named.
    pub fn is_complete(&self, oldest_unwritten: CommitTs) -> bool {
        oldest_unwritten.as_lsn() > self.skip || self.late.contains(&oldest_unwritten)
    }
}
