//! Tests of transactions as a whole, one program: a program for each file would compile and link the same again.

mod areas;
mod folded;
mod locks;
mod locks_model;
mod ranges;
mod simulated;
mod standing;
mod waits;
mod write_set_model;
