//! The only door to the operating system: files, sync, clock, randomness, threads and waits (decision D9).
//!
//! | module | owns |
//! |---|---|
//! | [`mod@file`] | the `Vfs` and `File` traits, aligned buffers |
//! | [`real`] | the machine's own file system |
//! | [`mod@read_only`] | another file system, through which nothing is changed |
//! | [`fault`] | operations that fail by plan, before any file system |
//! | [`sim`] | the deterministic simulator: scheduler, time, a disk that keeps no more than it promises |
//! | [`sync`] | `Mutex`, `RwLock`, `Condvar`: the waits, as the simulator's scheduler sees them |
//! | [`thread`] | spawning, joining, yielding, sleeping |
//! | [`time`] | the monotonic clock |
//! | [`random`] | randomness |

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the one door to the operating system: what clippy.toml bans elsewhere is wrapped here"
)]

pub mod fault;
pub mod file;
pub mod random;
pub mod read_only;
pub mod real;
pub mod sim;
pub mod sync;
pub mod thread;
pub mod time;

pub use file::{AlignedBuf, File, FileLock, OpenHow, Vfs};
pub use read_only::ReadOnlyVfs;
pub use real::RealVfs;
