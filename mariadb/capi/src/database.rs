// SPDX-License-Identifier: GPL-2.0-only
//! The one database of a server, and what is counted for its tables as long as it is open.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trefoil::{Database, Durability, Options};

use crate::abi;
use crate::failure::Result;
use crate::layout::Layout;
use crate::raw::Definition;

/// The database behind the handlerton.
pub struct Engine {
    pub db: Database,
    /// By the name of the table. They outlive its last handler: a transaction may have taken numbers that no
    /// committed row shows yet.
    counters: Mutex<BTreeMap<String, Arc<Counters>>>,
}

/// Numbers given out for one table. 0: not looked up yet.
#[derive(Debug, Default)]
pub struct Counters {
    /// The next row number of a table without a primary key.
    pub row: AtomicU64,
    /// The next number of AUTO_INCREMENT.
    pub auto: AtomicU64,
}

impl Engine {
    pub fn open(directory: &str, options: &abi::Options) -> Result<Self> {
        let options = Options {
            budget_bytes: options.buffer_size,
            log_capacity_bytes: options.log_capacity,
            disk_reserve_bytes: options.disk_reserve,
            checkpoint_replay: Duration::from_secs(options.checkpoint_replay_seconds),
            ..Options::default()
        };
        Ok(Self { db: Database::open(directory, options)?, counters: Mutex::default() })
    }

    pub fn create_table(&self, name: &str, definition: &Definition<'_>, auto_increment: u64) -> Result<()> {
        let layout = Layout::new(definition)?;
        self.db.create_table(name, layout.schema)?;
        self.counters(name).auto.store(auto_increment, Ordering::Relaxed);
        Ok(())
    }

    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.db.drop_table(name)?;
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }

    pub fn counters(&self, name: &str) -> Arc<Counters> {
        let mut all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(name.to_owned()).or_default().clone()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // What could not be written at the end is in the log.
        drop(self.db.close());
    }
}

/// As `capi.h` numbers them.
pub fn durability(n: u8) -> Durability {
    match n {
        2 => Durability::Buffered,
        1 => Durability::Write,
        _ => Durability::Sync,
    }
}
