//! The deterministic simulator.
//!
//! Inside [`Simulation::run`] everything that goes through this crate is simulated: `sync`, `thread`, `time`,
//! `random`. Exactly one thread runs at a time; who goes on is decided at scheduling points by a generator with a
//! seed. Scheduling points are every acquire and release of a lock, wait and notification, spawn and join, sleep and
//! spin, every I/O of a [`SimDisk`], and [`crate::thread::point`]. Between two of them code runs undisturbed: plain
//! atomics are no scheduling points, put a `point` between two of them whose separation is interesting.
//!
//! Time is simulated: a scheduling point takes `step_time`, and when no thread can run the clock jumps to the
//! earliest deadline, so an hour of sleeping costs nothing.
//!
//! What a simulated thread must not do: wait for another by anything that is not in this crate (it would hold the
//! baton while it sleeps: reported as `Stuck`), or initialise a `OnceLock` with code that contains scheduling
//! points (the same, if another thread comes to it meanwhile), or let behaviour depend on addresses, on the
//! machine's clock or on the order of standard hash maps (runs of one seed would differ).
//!
//! How a test of the engine uses it: the first life opens a database on a [`SimDisk`], lets threads work, and ends at a
//! power cut at some simulated moment, or by plan at the n-th operation ([`crate::fault::Rule`]); the second life opens
//! what is found and compares it with what was acknowledged.
//!
//! ```
//! use std::{path::Path, sync::Arc, time::Duration};
//! use vfs::sim::{Config, DiskConfig, Handle, SimDisk, explore};
//! use vfs::{OpenHow, Vfs, sync::Mutex, thread};
//!
//! const NEW: OpenHow = OpenHow { write: true, create: true, create_new: false, direct: false };
//!
//! /// The engine: appends `n`, and returns when it is durable.
//! fn append(disk: &SimDisk, n: u8) -> std::io::Result<()> {
//!     let file = disk.open(Path::new("/log"), NEW)?;
//!     file.write_at(&[n; 4096], u64::from(n) * 4096)?;
//!     file.sync()?;
//!     disk.sync_dir(Path::new("/"))
//! }
//!
//! fn history(sim: &Handle) {
//!     let disk = SimDisk::new(DiskConfig::seed(sim.seed()));
//!     let acknowledged = Arc::new(Mutex::new(Vec::new()));
//!     let (engine, log) = (disk.clone(), Arc::clone(&acknowledged));
//!     let worker = thread::spawn("worker", move || {
//!         for n in 0..10 {
//!             if append(&engine, n).is_err() { return }
//!             log.lock().push(n);
//!         }
//!     }).expect("a thread can be started");
//!     thread::sleep(Duration::from_micros(sim.rng().below(5_000)));
//!     disk.power_cut(sim.seed());
//!     worker.join().expect("a panic ends the simulation");
//!     let found = disk.reboot().contents(Path::new("/log")).unwrap_or_default();
//!     for n in acknowledged.lock().iter() {
//!         assert_eq!(found.chunks(4096).nth(usize::from(*n)), Some(&[*n; 4096][..]), "lost {n}");
//!     }
//! }
//!
//! explore(0..100, &Config::default(), history).expect("no seed fails");
//! ```
//!
//! | part | owns |
//! |---|---|
//! | `run` | starting a simulation, its report or failure |
//! | `context` | a simulated thread, the thread-local that says so |
//! | `scheduler` | the state: threads, waits, clock |
//! | `chooser` | who runs next: pure |
//! | `locks`, `gate` | waits of each kind |
//! | `baton`, `pin` | handing over between OS threads, cheaply |
//! | `disk` | files that a power cut can damage |
//! | `trace` | the hash of the run, the last points |

mod baton;
mod chooser;
mod config;
pub(crate) mod context;
mod disk;
mod gate;
pub(crate) mod locks;
mod pin;
mod run;
pub(crate) mod scheduler;
pub(crate) mod spawn;
pub(crate) mod trace;

pub use config::{Bias, Config, Strategy};
pub use disk::{DiskConfig, SimDisk};
pub use gate::Gate;
pub use run::{Explored, Failure, Handle, Report, Simulation, current, explore, explore_parallel};
pub use scheduler::FailureKind;
