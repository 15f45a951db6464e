//! What `trefoil:…` may be given, and the engine's options made of it.

use std::time::Duration;

use trefoil::comparing::Policies;
use trefoil::{Compression, Options};

use super::policies::{self, Kind, compression};
use crate::api::{Durability, IoMode, Result, Setup};
use crate::spec::TargetSpec;

/// What `trefoil:…` was given; `None` = the engine's own default.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    /// Of what holds the rows.
    pub(super) rows: Kind,
    pub(super) secondary: Kind,
    pub(super) node_bytes: Option<u64>,
    delayed_write_rate: Option<u64>,
    log_capacity_bytes: Option<u64>,
    checkpoint_replay_secs: Option<u64>,
    extent_bytes: Option<u64>,
    inline_batch_bytes: Option<u64>,
    parallel_apply_from: Option<u64>,
    gc_debt_limit_bytes: Option<u64>,
    io_budget_bytes: Option<u64>,
    background_threads: Option<u64>,
}

impl Parameters {
    /// Reads them out of a target string and refuses what is left over.
    pub(super) fn parse(mut spec: TargetSpec) -> Result<Parameters> {
        let (rows, secondary) = policies::kinds(&mut spec)?;
        let parameters = Parameters {
            rows,
            secondary,
            node_bytes: spec.take_bytes("node_size")?,
            delayed_write_rate: policies::controller(&mut spec)?,
            log_capacity_bytes: spec.take_bytes("log_capacity")?,
            checkpoint_replay_secs: spec.take_number("checkpoint_replay")?,
            extent_bytes: spec.take_bytes("extent")?,
            inline_batch_bytes: spec.take_bytes("inline_batch")?,
            parallel_apply_from: spec.take_number("parallel_apply")?,
            gc_debt_limit_bytes: spec.take_bytes("gc_debt_limit")?,
            io_budget_bytes: spec.take_bytes("io_budget")?,
            background_threads: spec.take_number("background_threads")?,
        };
        let known = policies::known();
        spec.finish(&known.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(parameters)
    }

    /// That of indexes whose compression the target string does not say: that of the run, else the engine's.
    pub(super) fn compression(setup: &Setup) -> Result<Compression> {
        Ok(setup.compression.as_deref().map(compression).transpose()?.unwrap_or_default())
    }

    /// What is switched to be compared with.
    pub(super) fn policies(&self) -> Policies {
        Policies {
            rows: self.rows.merges,
            secondary: self.secondary.merges,
            delayed_write_rate: self.delayed_write_rate,
        }
    }

    /// The engine's options under the terms of the run.
    pub(super) fn options(&self, setup: &Setup) -> Options {
        let mut options = Options { durability: durability(setup.durability), ..Options::default() };
        let set = |place: &mut u64, value: Option<u64>| *place = value.unwrap_or(*place);
        set(&mut options.budget_bytes, setup.budget_bytes);
        set(&mut options.log_capacity_bytes, self.log_capacity_bytes);
        set(&mut options.extent_bytes, self.extent_bytes);
        set(&mut options.gc_debt_limit_bytes, self.gc_debt_limit_bytes);
        set(&mut options.io_budget_bytes, self.io_budget_bytes);
        if let Some(threads) = self.background_threads {
            options.background_threads = threads as usize;
        }
        // A segment may be at most a quarter of the log.
        options.log_segment_bytes = options.log_segment_bytes.min(options.log_capacity_bytes / 4);
        if let Some(seconds) = self.checkpoint_replay_secs {
            options.checkpoint_replay = Duration::from_secs(seconds);
        }
        if let Some(bytes) = self.inline_batch_bytes {
            options.inline_batch_bytes = bytes as usize;
        }
        if let Some(operations) = self.parallel_apply_from {
            options.parallel_apply_from = if operations == 0 { usize::MAX } else { operations as usize };
        }
        if let Some(io) = setup.io {
            options.direct_io = io == IoMode::Direct;
        }
        options
    }
}

fn durability(wanted: Durability) -> trefoil::Durability {
    match wanted {
        Durability::Sync => trefoil::Durability::Sync,
        Durability::Write => trefoil::Durability::Write,
        Durability::Buffered => trefoil::Durability::Buffered,
    }
}
