//! Each part in a process of its own: neither what an allocator keeps nor a peak of memory of one part is seen by the other.
//!
//! It is this program with the same options and the part's name. Its standard input is the lock of the folder, which is held as long as
//! any of both lives; it ends with the process that started it. What it fails with is its output, so that it is told once.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::outcome::{FAILED, Failure};

/// Runs a part to its end.
pub fn run(part: &str, held: &File, interrupt: &AtomicBool) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("part {part} does not start: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).args(["--part", part]);
    let lock = held.try_clone().map_err(failed)?;
    let mut child = command.stdin(lock).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut is_told = false;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if interrupt.load(Ordering::Relaxed) && !std::mem::replace(&mut is_told, true) {
            // A terminal has told it already; a second time it does not wait for its clients.
            let _ = Pid::from_raw(child.id() as i32).map(|pid| kill_process(pid, Signal::INT));
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut said = String::new();
    child.stdout.take().expect("its output was asked for").read_to_string(&mut said).map_err(failed)?;
    match status.code() {
        Some(0) => Ok(()),
        _ if interrupt.load(Ordering::Relaxed) => {
            Err(Failure::Interrupted("interrupted; the same command goes on with it".into()))
        }
        Some(code) => Err(Failure::of_code(u8::try_from(code).unwrap_or(FAILED), said.trim_end().to_owned())),
        None => Err(Failure::Failed(format!(
            "the process of part {part} was killed ({status}): its seconds are kept, and the same command begins it again"
        ))),
    }
}

/// In the other process: does not return.
pub fn child(part: impl FnOnce() -> Result<(), Failure>) -> ! {
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    let result = bound.map_err(|error| Failure::Failed(error.to_string())).and_then(|()| part());
    if let Err(failure) = &result {
        println!("{failure}");
    }
    std::process::exit(i32::from(result.map_or_else(|failure| failure.code(), |()| 0)));
}
