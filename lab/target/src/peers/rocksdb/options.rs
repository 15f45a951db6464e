//! The engine's settings, from the terms of the run.

use std::fs;
use std::path::PathBuf;

use ::rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DataBlockIndexType, Options, WriteOptions,
};

use super::{BUDGET_BYTES_DEFAULT, Durability, Result, Setup, TargetError};
use crate::api::IoMode;

/// Write buffers that may exist: one being filled, the others being flushed.
pub const WRITE_BUFFERS: u64 = 4;
/// Bits a key of a filter.
pub const FILTER_BITS: u32 = 10;
/// Bytes of a block before compression.
pub const BLOCK_BYTES: usize = 16 << 10;

/// What the settings depend on.
pub struct Tuned {
    pub budget_bytes: u64,
    pub write_buffer_bytes: u64,
    pub wal_bytes_max: u64,
    pub background_jobs: i32,
    pub direct: bool,
    pub durability: Durability,
    /// One for all levels, or the engine at its best: little at the top, Zstandard at the bottom.
    compression: Option<DBCompressionType>,
    dir: PathBuf,
}

impl Tuned {
    pub fn new(setup: &Setup) -> Result<Tuned> {
        let compression = match setup.compression.as_deref() {
            None => None,
            Some("none") => Some(DBCompressionType::None),
            Some("lz4") => Some(DBCompressionType::Lz4),
            // At its best: what lies at the bottom is most of it, and the levels above are rewritten soon.
            Some("zstd") => None,
            Some(other) => {
                return Err(TargetError::Usage(format!("rocksdb: compression `{other}` is none of none, lz4, zstd")));
            }
        };
        let budget_bytes = setup.budget_bytes.unwrap_or(BUDGET_BYTES_DEFAULT);
        let write_buffer_bytes = (budget_bytes / 4 / WRITE_BUFFERS).clamp(1 << 20, 128 << 20);
        let processors = std::thread::available_parallelism().map_or(2, |count| count.get() as i32);
        Ok(Tuned {
            budget_bytes,
            write_buffer_bytes,
            wal_bytes_max: WRITE_BUFFERS * write_buffer_bytes,
            background_jobs: processors.max(2),
            direct: setup.io == Some(IoMode::Direct),
            durability: setup.durability,
            compression,
            dir: setup.dir.clone(),
        })
    }

    /// As the engine wrote it into its newest file of options.
    pub fn compression_in_force(&self) -> Option<String> {
        let names =
            fs::read_dir(&self.dir).ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let newest = names.filter(|name| name.starts_with("OPTIONS-") && !name.ends_with(".dbtmp")).max()?;
        let text = fs::read_to_string(self.dir.join(newest)).ok()?;
        let value = |key: &str| {
            let mut pairs = text.lines().filter_map(|line| line.trim().split_once('='));
            pairs.find(|(name, value)| *name == key && !value.is_empty()).map(|(_, value)| value.to_owned())
        };
        let levels = value("compression_per_level").or_else(|| value("compression"))?;
        Some(format!("levels {levels}, bottom {}", value("bottommost_compression")?))
    }

    pub fn options(&self) -> Options {
        let cache_bytes = self.budget_bytes.saturating_sub(WRITE_BUFFERS * self.write_buffer_bytes);
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_lru_cache(cache_bytes as usize));
        table.set_block_size(BLOCK_BYTES);
        table.set_bloom_filter(f64::from(FILTER_BITS), false);
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        // A filter of one piece, of a file of millions of keys, is larger than a shard of the cache: then each look-up reads it.
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_partition_filters(true);
        table.set_pin_top_level_index_and_filter(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(self.write_buffer_bytes as usize);
        options.set_max_write_buffer_number(WRITE_BUFFERS as i32);
        options.set_max_total_wal_size(self.wal_bytes_max);
        options.set_max_background_jobs(self.background_jobs);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_bytes_per_sync(1 << 20);
        options.set_use_direct_reads(self.direct);
        options.set_use_direct_io_for_flush_and_compaction(self.direct);
        match self.compression {
            Some(one) => options.set_compression_type(one),
            None => {
                let (none, lz4) = (DBCompressionType::None, DBCompressionType::Lz4);
                options.set_compression_per_level(&[none, none, lz4, lz4, lz4, lz4, lz4]);
                options.set_bottommost_compression_type(DBCompressionType::Zstd);
            }
        }
        options
    }

    pub fn write_options(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.durability == Durability::Sync);
        options
    }
}
