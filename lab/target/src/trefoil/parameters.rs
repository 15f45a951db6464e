//! What `trefoil:…` may be given, and the engine's options made of it.

use std::time::Duration;

use trefoil::{Compression, Options, Structure};

use crate::api::{Durability, IoMode, Result, Setup, TargetError};
use crate::spec::TargetSpec;

const PARAMETERS: &[&str] =
    &["structure", "pk", "secondary", "node_size", "log_capacity", "checkpoint_replay", "extent", "inline_batch"];

/// What `trefoil:…` was given; `None` = the engine's own default.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    pub(super) primary: Structure,
    pub(super) secondary: Structure,
    pub(super) node_bytes: Option<u64>,
    log_capacity_bytes: Option<u64>,
    checkpoint_replay_secs: Option<u64>,
    extent_bytes: Option<u64>,
    inline_batch_bytes: Option<u64>,
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
            node_bytes: spec.take_bytes("node_size")?,
            log_capacity_bytes: spec.take_bytes("log_capacity")?,
            checkpoint_replay_secs: spec.take_number("checkpoint_replay")?,
            extent_bytes: spec.take_bytes("extent")?,
            inline_batch_bytes: spec.take_bytes("inline_batch")?,
        };
        spec.finish(PARAMETERS)?;
        Ok(parameters)
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
        Some(name @ ("betree" | "lsm")) => {
            Err(TargetError::Unsupported(format!("target `{spec}`: structure {name} is not built into the engine yet")))
        }
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
pub(super) fn compression(name: Option<&str>) -> Result<Compression> {
    match name {
        None => Ok(Compression::default()),
        Some("none") => Ok(Compression::None),
        Some("lz4") => Ok(Compression::Lz4),
        Some("zstd") => Ok(Compression::Zstd),
        Some(other) => Err(TargetError::Usage(format!("--compression {other}: trefoil has none, lz4 and zstd"))),
    }
}
