//! Blocks on disk and frames in memory.
//!
//! | module | owns |
//! |---|---|
//! | [`codec`] | decision D8: compress → (room for encryption) → CRC32C over payload and address |
//! | [`space`] | the data file: extents, packed writes, live-byte accounting, freeing, cleaning candidates |
//! | [`parts`] | a part of a block, read without the others |
//! | [`block`] | [`Block`]: a written block as an owned thing whose drop frees it |
//! | [`budget`] | the one memory cap, by class |
//! | [`balance`] | how it is shared between pages and what is buffered |
//! | [`cell`] | a place for what was read, while the cache has room for it |
//! | [`cache`] | second-chance eviction and write-back over pages that others own |
//! | [`lot`] | many blocks as one owned thing |
//! | [`filter`] | which keys a block may have |
//! | [`frame`] | buffers under pages, used again across threads; slabs and arenas that small holders share |
//! | [`run`] | immutable sorted runs, in memory and in files |
//! | `prefetch` | lines asked for before they are needed |
//! | [`epoch`] | `EpochCell`: a value replaced under readers |
//! | [`fuzzing`] | the bodies of the fuzz targets |
//!
//! Unsafe code is in [`epoch`], `prefetch` and `frame/chunk.rs` alone.

#![deny(unsafe_code)]

pub mod balance;
pub mod block;
mod blockio;
pub mod budget;
pub mod cache;
pub mod cell;
pub mod codec;
#[allow(unsafe_code, reason = "dereferences and retires values under epoch guards, behind a safe face")]
#[allow(unexpected_cfgs, reason = "`crossbeam_loom` is set by hand, for tests/epoch_loom.rs")]
pub mod epoch;
pub mod filter;
pub mod frame;
pub mod fuzzing;
pub mod lot;
pub mod parts;
#[allow(unsafe_code, reason = "one instruction, which never faults")]
mod prefetch;
pub mod run;
pub mod space;

pub use balance::{Balance, LeftAt, LeftMark, Sealed};
pub use block::{Block, BlockRef};
pub use budget::{Budget, Charge, Class, OverCommit, allocated};
pub use cache::{
    Cache, CacheOptions, CacheStats, Evict, Funds, Grant, LogGate, Owed, Owing, Page, PageWrite, StepReport, WriteDone,
    WriteEnv,
};
pub use cell::Cell;
pub use codec::{BlockKind, Compression, OpenBlock};
pub use epoch::EpochCell;
pub use filter::{Filter, FilterRef, KeyHash};
pub use frame::arena::{Arena, ArenaPart};
pub use frame::slab::{SlabPart, Slabs};
pub use frame::{Frame, FramePool};
pub use lot::{Lot, LotBytes};
pub use parts::{Packed, Parts};
pub use prefetch::{PREFETCHES, prefetch, prefetch_at};
pub use run::{Run, RunCursor, RunEstimate, RunMeta, RunWriter};
pub use space::{
    AllocScope, Census, CleaningDebt, CopiedExtent, CopyProgress, Earlier, ExtentId, GivenBack, NewBlock, RunDepth,
    Space, SpaceOptions, SpacePin, SpaceStats, Tally, UpdateGroup, Weight, Weights,
};
