//! What `trefoil:…` may be given, and the engine's options made of it.

use std::time::Duration;

use trefoil::{Compression, Options, Structure};

use crate::api::{Durability, IoMode, Result, Setup, TargetError};
use crate::spec::TargetSpec;

const PARAMETERS: &[&str] = &[
    "structure",
    "pk",
    "secondary",
    "compression",
    "node_size",
    "log_capacity",
    "checkpoint_replay",
    "extent",
    "inline_batch",
    "parallel_apply",
];

/// What `trefoil:…` was given; `None` = the engine's own default.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    pub(super) primary: Structure,
    pub(super) secondary: Structure,
    compression: Option<Compression>,
    pub(super) node_bytes: Option<u64>,
    log_capacity_bytes: Option<u64>,
    checkpoint_replay_secs: Option<u64>,
    extent_bytes: Option<u64>,
    inline_batch_bytes: Option<u64>,
    parallel_apply_from: Option<u64>,
}

impl Parameters {
    /// Reads them out of a target string and refuses what is left over.
    pub(super) fn parse(mut spec: TargetSpec) -> Result<Parameters> {
        let both = spec.take("structure");
        let primary = spec.take("pk").or_else(|| both.clone());
        let secondary = spec.take("secondary").or(both);
        let parameters = Parameters {
            primary: structure(&spec, primary.as_deref())?,
            secondary: structure(&spec, secondary.as_deref())?,
            compression: spec.take("compression").as_deref().map(compression).transpose()?,
            node_bytes: spec.take_bytes("node_size")?,
            log_capacity_bytes: spec.take_bytes("log_capacity")?,
            checkpoint_replay_secs: spec.take_number("checkpoint_replay")?,
            extent_bytes: spec.take_bytes("extent")?,
            inline_batch_bytes: spec.take_bytes("inline_batch")?,
            parallel_apply_from: spec.take_number("parallel_apply")?,
        };
        spec.finish(PARAMETERS)?;
        Ok(parameters)
    }

    /// The target's own, else that of the run, else the engine's.
    pub(super) fn compression(&self, setup: &Setup) -> Result<Compression> {
        let of_the_run = setup.compression.as_deref().map(compression).transpose()?;
        Ok(self.compression.or(of_the_run).unwrap_or_default())
    }

    /// The engine's options under the terms of the run.
    pub(super) fn options(&self, setup: &Setup) -> Options {
        let mut options = Options { durability: durability(setup.durability), ..Options::default() };
        let set = |place: &mut u64, value: Option<u64>| *place = value.unwrap_or(*place);
        set(&mut options.budget_bytes, setup.budget_bytes);
        set(&mut options.log_capacity_bytes, self.log_capacity_bytes);
        set(&mut options.extent_bytes, self.extent_bytes);
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

fn structure(spec: &TargetSpec, name: Option<&str>) -> Result<Structure> {
    match name {
        None | Some("auto") => Ok(Structure::Auto),
        Some("btree") => Ok(Structure::Btree),
        Some("betree") => Ok(Structure::Betree),
        Some("lsm") => Ok(Structure::Lsm),
        Some(other) => {
            Err(TargetError::Usage(format!("target `{spec}`: structure `{other}` is none of auto, btree, betree, lsm")))
        }
    }
}

fn durability(wanted: Durability) -> trefoil::Durability {
    match wanted {
        Durability::Sync => trefoil::Durability::Sync,
        Durability::Write => trefoil::Durability::Write,
        Durability::Buffered => trefoil::Durability::Buffered,
    }
}

/// Compression by name.
fn compression(name: &str) -> Result<Compression> {
    match name {
        "none" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4),
        "zstd" => Ok(Compression::Zstd),
        other => Err(TargetError::Usage(format!("compression {other}: trefoil has none, lz4 and zstd"))),
    }
}

/// The name of a compression.
pub(super) fn name_of(compression: Compression) -> String {
    format!("{compression:?}").to_lowercase()
}
