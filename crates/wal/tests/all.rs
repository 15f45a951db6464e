//! Tests of the log as a whole, one program: a program for each file would compile and link the same again.

mod append;
mod crash;
mod fuzz;
mod recovery;
mod sim_disk;
mod simulated;
mod support;
