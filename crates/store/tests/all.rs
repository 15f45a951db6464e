//! Tests of the store as a whole, one program: a program for each file would compile and link the same again.
//!
//! The model check of atomics is a program of its own (`Cargo.toml`).

mod cache;
mod codec;
mod common;
mod crash;
mod disk_full;
#[path = "common/faulty.rs"]
mod faulty;
mod hostile;
mod lot;
mod run_estimate;
mod runs;
mod space;
