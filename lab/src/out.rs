//! Results, alone on stdout. `print!` and `println!` of this program do not panic: whoever has read enough (`lab list | head`) ends nothing,
//! and a disk that is full behind `>` is one line and code 1.

use std::fmt;
use std::io::{ErrorKind, Write};

use crate::outcome;

macro_rules! print {
    ($($text:tt)*) => { $crate::out::put(format_args!($($text)*)) };
}

macro_rules! println {
    () => { $crate::out::put(format_args!("\n")) };
    ($($text:tt)*) => { $crate::out::put(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes it at once.
pub fn put(text: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("lab: cannot write to stdout: {error}");
            std::process::exit(outcome::FAILED.into());
        }
        _ => (),
    }
}
