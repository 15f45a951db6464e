//! Tests of the simulator and its disk, one program: a program for each file would compile and link the same again.

mod common;
mod disk;
mod disk_use;
mod planted;
mod simulator;
