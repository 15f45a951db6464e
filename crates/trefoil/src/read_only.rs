//! A database that is opened only to be read ([`Options::read_only`](crate::Options::read_only)): the directory stays as
//! it is, byte for byte.
//!
//! 1. Everything goes through [`vfs::ReadOnlyVfs`], which refuses changes: what follows is what makes none necessary.
//! 2. The log is replayed into memory. Dirty pages stay there ([`crate::background::evict`]), runs stay attached: so what
//!    the log holds has to fit the budget. No life of the log begins ([`wal::Wal::read_only`]), no checkpoint ends recovery.
//! 3. What a recovery would put in order on disk is left: files and states that nothing names, and secondary indexes that
//!    turned out to be damaged, which are set aside for this opening alone.
//!
//! Whoever wants to change something is refused with [`Error::ReadOnly`] before anything is asked of the parts below
//! ([`Engine::check_not_read_only`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Fault;
use wal::WalEnd;

use crate::catalog::Role;
use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::open::replay;
use crate::quarantine;

/// Steps 2 and 3.
pub fn recover(engine: &Arc<Engine>, manifest: &Manifest, log_end: &WalEnd) -> Result<()> {
    let replayed = replay(engine, manifest, log_end, &|| Ok(())).map_err(|fault| match fault {
        Fault::Limit { limit, got, .. } => Error::Limit { what: TOO_LONG_A_LOG, limit, got },
        other => other.into(),
    });
    engine.runs.as_found(&engine.layout)?;
    // To be listed: whoever only reads takes no locks.
    replayed?.1.restore(engine)?;
    engine.recovering.store(false, Ordering::Release);
    let noted = |entry: &Arc<IndexEntry>| entry.is_noted() && matches!(entry.def.role, Role::Secondary(_));
    engine.all_indexes().iter().filter(|entry| noted(entry)).for_each(|entry| set_aside(engine, entry));
    Ok(())
}

const TOO_LONG_A_LOG: &str = "memory for what the log holds, which a read-only opening keeps there \
                              (open it with a larger Options::budget_bytes), in bytes,";

/// What was not replayed into a damaged index is not in it.
fn set_aside(engine: &Engine, damaged: &Arc<IndexEntry>) {
    let stub = quarantine::entry(&damaged.def);
    let mut names = engine.names.write();
    names.tables.values().for_each(|table| table.put_secondary(&stub));
    names.indexes.insert(stub.id(), stub);
}
