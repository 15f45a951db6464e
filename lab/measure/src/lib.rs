//! What the lab measures and how: clocks, histograms, series, stalls, the kernel's counters, and the formulas that
//! make numbers of them.
//!
//! | module | owns |
//! |---|---|
//! | [`clock`] | nanoseconds since the start of the program |
//! | [`histogram`] | mergeable latency histograms, and the ten response-time classes of the insert benchmark |
//! | [`series`] | one cell a second: how many, and the worst response |
//! | [`stall`] | gaps between completions, and the spans common to all threads |
//! | [`live`] | what the progress line reads while threads run |
//! | [`recorder`] | one thread's measurements of one kind of statement |
//! | [`procfs`] | `/proc/stat`; `stat`, `status`, `io` and `task` of the engine's process |
//! | [`disk`] | which device holds a path, and its line in `/proc/diskstats` |
//! | [`snapshot`] | all kernel counters at one moment, and differences of two |
//! | [`formula`] | the insert benchmark's columns and percentiles of rates |
//! | [`judge`] | better, worse, same or unclear: ratios with intervals |
//! | [`student`] | Student's t distribution |
//! | [`result`] | the keys of `--format json` |
//! | [`tpcc`] | the tables of TPC-C: transactions a minute, responses, the best against processors |
//! | [`contention`] | the tables of sysbench: rates by clients, and ratios between numbers of tables |
//! | [`record`] | one step as it is kept in the run folder |
//! | [`environment`] | the machine's fingerprint |
//! | [`study`] | the tables of a plan |
//! | [`thread_time`] | where the time of a thread went |
//! | [`explain`] | where the time of an operation went |

#![forbid(unsafe_code)]
// The lab measures engines from outside, on real clocks, threads and files; the simulator never runs it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod clock;
pub mod contention;
pub mod disk;
pub mod environment;
pub mod explain;
pub mod formula;
pub mod histogram;
pub mod judge;
pub mod live;
pub mod procfs;
pub mod record;
pub mod recorder;
pub mod result;
pub mod series;
pub mod snapshot;
pub mod stall;
pub mod student;
pub mod study;
pub mod thread_time;
pub mod tpcc;

pub use clock::Clock;
pub use histogram::{Classes, Latency};
pub use live::{LiveCell, LiveTotals};
pub use recorder::{Kind, KindTotals, Recorder};
pub use series::Series;
pub use snapshot::{Difference, Snapshot};
