//! Tests of trees as a whole, one program: a program for each file would compile and link the same again.
//!
//! What holds times against limits, or is there to measure, is a program of its own (`Cargo.toml`).

mod basics;
mod common;
mod concurrent;
mod conformance;
mod deserts;
mod estimate;
mod gc_debt;
mod node_inner;
mod node_long_keys;
mod node_model;
mod node_rules;
mod node_split;
mod schedules;
mod scripts;
