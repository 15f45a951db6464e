//! What the simulator tests share; each uses some of it.

#![allow(dead_code, reason = "compiled into each test program, which uses some of it")]

use vfs::sim::Config;
use vfs::thread;

/// Failures are expected and not printed.
pub fn quiet() -> Config {
    Config { quiet: true, ..Config::default() }
}

/// Starts a thread that returns nothing.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(name, body).expect("an OS thread can be started")
}

/// Waits for all of them.
pub fn join_all(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().expect("a panic ends the simulation before"));
}
