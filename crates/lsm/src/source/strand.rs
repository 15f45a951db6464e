//! The runs of a strand one after the other: a run is looked at when the cursor comes to it.

use std::collections::VecDeque;
use std::sync::Arc;

use base::Result;
use index::expiry::has_expired;
use index::merge::Source;
use index::{Direction, EntryBatch};

use super::{Look, RunSource};
use crate::run::Run;
use crate::strand::Strand;

/// A strand.
pub(crate) struct StrandSource {
    look: Arc<Look>,
    current: Option<RunSource>,
    /// In the cursor's direction.
    rest: VecDeque<Arc<Run>>,
}

impl StrandSource {
    pub fn new(look: Arc<Look>, strand: &Strand) -> Self {
        let range = &look.range;
        let from = strand.runs.partition_point(|run| range.is_below(&run.info.max_key));
        let past = strand.runs.partition_point(|run| !range.is_above(&run.info.min_key));
        let met = strand.runs.get(from..past).unwrap_or_default().iter();
        let met = met.filter(|run| run.info.oldest <= look.at && !has_expired(run.info.newest, look.cut)).cloned();
        let rest = match look.direction {
            Direction::Forward => met.collect(),
            Direction::Backward => met.rev().collect(),
        };
        Self { look, current: None, rest }
    }

    /// True if it has nothing for the reader.
    pub fn is_empty(&self) -> bool {
        self.current.is_none() && self.rest.is_empty()
    }
}

impl Source for StrandSource {
    fn fill(&mut self, out: &mut EntryBatch, max: usize) -> Result<bool> {
        out.clear();
        while out.is_empty() {
            if self.current.is_none() {
                let Some(run) = self.rest.pop_front() else { return Ok(false) };
                self.current = Some(RunSource::new(self.look.clone(), run));
            }
            let run = self.current.as_mut().expect("just there");
            if !run.fill(out, max)? {
                self.current = None;
            }
        }
        Ok(!self.is_empty())
    }
}
