//! Tests of log-structured merge trees as a whole, one program: a program for each file would compile and link the same again.

mod batches;
mod conformance;
mod damage;
mod dead;
mod estimates;
mod expiry;
mod guards;
#[path = "support/load.rs"]
mod load;
mod partitions;
mod policies;
mod prefixes;
mod reading;
mod schedules;
mod shapes;
mod single_deletes;
mod subcompactions;
mod support;
mod written;
