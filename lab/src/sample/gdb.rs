//! Stacks without perf: gdb is asked for those of all threads, again and again while a step runs.
//!
//! The process stands still for each look, so the samples are few, and they are of the clock on the wall: threads that wait
//! are seen as well. What gdb says goes to a file: a pipe that is full would wait for the process that waits for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab_measure::procfs::Runs;

const GDB: &str = "gdb";
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Frames of a stack.
const DEPTH: &str = "128";

/// What was seen: stacks with their numbers, and the first thing that went wrong.
type Seen = (BTreeMap<String, u64>, Option<String>);

/// Looks at the processes of an engine until it is told to end.
#[derive(Debug)]
pub struct Looks {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Looks {
    /// Begins.
    pub fn at(runs: Runs, said: PathBuf) -> Looks {
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let mut seen = (BTreeMap::new(), None);
            while !told.load(Ordering::Relaxed) {
                for process in runs.processes() {
                    if let Err(why) = look(process, &said, &mut seen.0) {
                        seen.1.get_or_insert(why);
                    }
                }
                std::thread::sleep(PAUSE);
            }
            seen
        });
        Looks { ends, thread }
    }

    /// Ends behind the look that is under way; the stacks, or why there are none.
    pub fn end(self) -> Result<BTreeMap<String, u64>, String> {
        self.ends.store(true, Ordering::Relaxed);
        let (stacks, wrong) = self.thread.join().expect("no look panics");
        match wrong {
            // Of processes that come and go one may be gone before it is looked at.
            Some(why) if stacks.is_empty() => Err(why),
            _ => Ok(stacks),
        }
    }
}

/// Whether gdb may look at another process here: at one that sleeps.
pub fn check() -> Result<(), String> {
    let mut sleeper = Command::new("/bin/sleep").arg("10").spawn().map_err(|error| format!("sleep: {error}"))?;
    let seen = asked(sleeper.id(), Stdio::piped());
    let _ = sleeper.kill();
    let _ = sleeper.wait();
    let output = seen.map_err(|error| format!("gdb: {error}"))?;
    let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() && said.contains("#0 ") {
        return Ok(());
    }
    let why = complaint.lines().find(|line| line.contains("ptrace")).unwrap_or("it told no stack");
    Err(format!("gdb: {}", why.trim()))
}

fn asked(process: u32, out: Stdio) -> std::io::Result<std::process::Output> {
    let mut command = Command::new(GDB);
    command.args(["-batch", "-nx", "-p", &process.to_string(), "-ex", "set print frame-arguments none"]);
    command.arg("-ex").arg(format!("thread apply all -s backtrace {DEPTH}"));
    command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).output()
}

fn look(process: u32, said: &Path, stacks: &mut BTreeMap<String, u64>) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("gdb: {error}");
    let output = asked(process, Stdio::from(fs::File::create(said).map_err(wrong)?)).map_err(wrong)?;
    let text = fs::read(said).map_err(wrong)?;
    let before = stacks.values().sum::<u64>();
    count(&String::from_utf8_lossy(&text), stacks);
    if stacks.values().sum::<u64>() == before {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("gdb told no stack: {}", complaint.lines().last().unwrap_or_default().trim()));
    }
    Ok(())
}

/// Adds the stacks of one look, from the outermost frame to the innermost; not that of the thread that looks.
fn count(text: &str, stacks: &mut BTreeMap<String, u64>) {
    let mut frames: Vec<String> = Vec::new();
    let mut end = |frames: &mut Vec<String>| {
        frames.reverse();
        let is_own = frames.iter().any(|frame| frame.contains("sample/gdb.rs") || frame.contains("sample::gdb::"));
        if !frames.is_empty() && !is_own {
            *stacks.entry(frames.join(";")).or_default() += 1;
        }
        frames.clear();
    };
    for line in text.lines() {
        match line.starts_with('#').then(|| frame_of(line)).flatten() {
            Some(frame) => frames.push(frame),
            None => end(&mut frames),
        }
    }
    end(&mut frames);
}

/// `#3  0x00ab in name (…) at path/file.rs:7` is `name path/file.rs`: names of inlined functions lack their modules.
fn frame_of(line: &str) -> Option<String> {
    let (_, frame) = line.split_once(' ')?;
    let frame = frame.trim_start();
    let frame = frame.strip_prefix("0x").and_then(|rest| rest.split_once(" in ")).map_or(frame, |(_, rest)| rest);
    let (name, behind) = frame.split_once(" (")?;
    let place = behind.rsplit_once(" at ").map(|(_, place)| place.rsplit_once(':').map_or(place, |(file, _)| file));
    let name = name.replace(';', ":");
    Some(place.map_or(name.clone(), |place| format!("{name} {}", place.replace(';', ":"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_a_stack_for_each_thread_but_its_own() {
        let text = "Using host libthread_db\n0x0 in wait () from /lib/libc.so.6\n\nThread 3 (LWP 7):\n\
                    #0  0x00ab in wait () from /lib/libc.so.6\n#1  range<u64; 2> (...) at lab/target/src/trefoil.rs:389\n\
                    #2  0x00cd in main ()\n\nThread 2 (LWP 6):\n#0  0x00 in wait4 ()\n\
                    #1  look (...) at lab/src/sample/gdb.rs:9\n\nThread 1 (LWP 5):\n#0  0x0f in main ()\n[Inferior 1 detached]\n";
        let mut stacks = BTreeMap::new();
        count(text, &mut stacks);
        count(text, &mut stacks);
        let found: Vec<(&str, u64)> = stacks.iter().map(|(stack, number)| (stack.as_str(), *number)).collect();
        assert_eq!(found, [("main", 2), ("main;range<u64: 2> lab/target/src/trefoil.rs;wait", 2)]);
    }
}
