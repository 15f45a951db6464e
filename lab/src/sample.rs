//! `lab run --sample`: one more repetition of every target in every case, in which perf samples the stacks of the engine's
//! process while a step runs, or, where perf is not here or may not, gdb looks at them ([`gdb`]).
//!
//! 1. It is run behind all others into `sampled/` of the run folder, a run folder of its own that is marked as sampled: no
//!    number of it can come among those of the run.
//! 2. perf is started when a step begins and ended when its operations are done, before invariants are looked at.
//! 3. Its stacks become text, `sampled/flames/tNN-cNN-STEP.folded`, which the report draws, and other programs read.
//!
//! perf samples by the processor's clock, so it needs no counters of the hardware, and unwinds by copies of the stack, so it
//! needs no frame pointers.

mod gdb;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab_measure::procfs::Runs;
use lab_report::flame::{Flame, folded, parsed};
use rustix::process::{Pid, Signal, kill_process};

use crate::folder::{RunRecord, Turn};
use crate::outcome::Failure;

/// Where sampled repetitions are, in a run folder.
pub const FOLDER: &str = "sampled";
/// Where their stacks are, in there.
const FLAMES: &str = "flames";
/// Samples a second and thread; no multiple of what else happens so often.
const RATE: &str = "97";
const PERF: &str = "perf";
/// A step has its first connection by then, or none of its own; the others follow.
const CONNECTS_WITHIN: Duration = Duration::from_millis(500);
const CONNECTS_TOGETHER: Duration = Duration::from_millis(100);
/// perf that has not begun by then is not waited for.
const ATTACHES_WITHIN: Duration = Duration::from_secs(5);

/// What perf lacks, as a rule.
const REMEDY: &str = "sysctl kernel.perf_event_paranoid=1 allows it";

/// What stacks are taken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    Perf,
    Gdb,
}

impl Tool {
    /// What its numbers are.
    pub fn in_words(self) -> &'static str {
        match self {
            Tool::Perf => "stacks by perf: samples of the processor's clock",
            Tool::Gdb => {
                "stacks by gdb, as perf may not sample here: looks by the clock on the wall, threads that wait among them"
            }
        }
    }
}

/// At work.
#[derive(Debug)]
enum Running {
    Perf(Child),
    /// perf that begins when the step's connections have their processes.
    Coming(JoinHandle<Result<Child, String>>),
    Gdb(gdb::Looks),
}

/// Samples the steps of a turn.
#[derive(Debug)]
pub struct Sampler {
    flames: PathBuf,
    tool: Tool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runs: Option<Runs>,
    turn: Option<Turn>,
    /// Who samples, and the step that is sampled, whichever comes next.
    running: Option<(Running, Turn, String)>,
    failure: Option<String>,
}

impl Sampler {
    /// A sampler that writes into the folder of sampled repetitions.
    pub fn new(sampled: &Path, tool: Tool) -> Result<Sampler, Failure> {
        let flames = sampled.join(FLAMES);
        fs::create_dir_all(&flames).map_err(|error| Failure::io("make", &flames, &error))?;
        Ok(Sampler { flames, tool, state: Mutex::default() })
    }

    /// Whose stacks are sampled from now on.
    pub fn watch(&self, runs: Runs, turn: Turn) {
        let mut state = self.state();
        state.turn = Some(turn);
        state.runs = (runs != Runs::Elsewhere).then_some(runs);
        if state.runs.is_none() {
            state.failure.get_or_insert("not sampled: an engine on another machine".into());
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it samples")
    }

    fn data(&self) -> PathBuf {
        self.flames.join("perf.data")
    }

    /// What perf says of itself, and what gdb says of stacks.
    fn said(&self) -> PathBuf {
        self.flames.join("perf.txt")
    }

    /// What perf said, with what can be done.
    fn complaint(&self) -> String {
        let said = fs::read_to_string(self.said()).unwrap_or_default();
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
        format!("perf: {} ({REMEDY})", if lines.is_empty() { "it said nothing".into() } else { lines.join(" ") })
    }

    /// A step begins.
    pub fn begins(&self, step: &str) {
        self.ends();
        let mut state = self.state();
        let (Some(runs), Some(turn)) = (state.runs, state.turn) else { return };
        if self.tool == Tool::Gdb {
            state.running = Some((Running::Gdb(gdb::Looks::at(runs, self.said())), turn, step.to_owned()));
            return;
        }
        let (data, said) = (self.data(), self.said());
        if matches!(runs, Runs::Family(_)) {
            let coming = std::thread::spawn(move || {
                until_one_more(runs);
                attached(runs, &data, &said)
            });
            state.running = Some((Running::Coming(coming), turn, step.to_owned()));
            return;
        }
        match attached(runs, &data, &said) {
            Ok(perf) => state.running = Some((Running::Perf(perf), turn, step.to_owned())),
            Err(why) => drop(state.failure.get_or_insert(why)),
        }
    }

    /// The operations of the step are done; nothing if that was said already.
    pub fn ends(&self) {
        let mut state = self.state();
        let Some((running, turn, step)) = state.running.take() else { return };
        let is_perf = !matches!(running, Running::Gdb(_));
        let stacks = match running {
            Running::Gdb(looks) => looks.end(),
            Running::Perf(perf) => self.ended(perf),
            Running::Coming(coming) => {
                coming.join().expect("attaching does not panic").and_then(|perf| self.ended(perf))
            }
        };
        let made = stacks.and_then(|stacks| {
            let file = self.flames.join(file_name(turn, &step));
            fs::write(&file, folded(&stacks)).map_err(|error| format!("{}: {error}", file.display()))
        });
        let _ = fs::remove_file(self.data());
        if let Err(why) = made {
            let complaint = if is_perf { self.complaint() } else { String::new() };
            state.failure.get_or_insert(format!("{step} was not sampled: {why}; {complaint}"));
        }
        let _ = fs::remove_file(self.said());
    }

    /// The stacks of a perf that is told to end.
    fn ended(&self, mut perf: Child) -> Result<BTreeMap<String, u64>, String> {
        // One that has ended has given its number back, and another process may have it.
        if let (Ok(None), Some(process)) = (perf.try_wait(), Pid::from_raw(perf.id() as i32)) {
            let _ = kill_process(process, Signal::INT);
        }
        let _ = perf.wait();
        self.stacks()
    }

    fn stacks(&self) -> Result<BTreeMap<String, u64>, String> {
        let mut command = Command::new(PERF);
        command.args(["script", "--no-inline", "--fields", "comm,ip,sym", "--input"]).arg(self.data());
        let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(stacks_of(&String::from_utf8_lossy(&output.stdout))),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// The first thing that went wrong.
    pub fn take_failure(&self) -> Option<String> {
        self.state().failure.take()
    }
}

/// A run that ends in the middle of a step leaves no perf behind. Of one that is killed perf ends by itself, with the process
/// that it watches: this one, or a server that ends with this one.
impl Drop for Sampler {
    fn drop(&mut self) {
        self.ends();
    }
}

/// perf at work. Threads of the step are seen because those that make them are: perf has to be there first.
fn attached(runs: Runs, data: &Path, said: &Path) -> Result<Child, String> {
    let mut command = Command::new(PERF);
    command.args(["record", "--quiet", "--event=cpu-clock", "--call-graph=dwarf,16384", "--freq", RATE]);
    let processes: Vec<String> = runs.processes().iter().map(u32::to_string).collect();
    command.arg("--pid").arg(processes.join(",")).arg("--output").arg(data);
    let said = fs::File::create(said).map_or_else(|_| Stdio::null(), Stdio::from);
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn();
    let mut perf = started.map_err(|error| format!("perf did not start: {error}"))?;
    let began = Instant::now();
    let is_there = || fs::metadata(data).is_ok_and(|data| data.len() > 0);
    while !is_there() && perf.try_wait().is_ok_and(|ended| ended.is_none()) && began.elapsed() < ATTACHES_WITHIN {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(perf)
}

/// Waits for the processes of the step's connections: of one that begins while perf watches its parent, perf takes samples that have
/// no frames of the program.
fn until_one_more(runs: Runs) {
    let (before, began) = (runs.processes().len(), Instant::now());
    while runs.processes().len() <= before && began.elapsed() < CONNECTS_WITHIN {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(CONNECTS_TOGETHER);
}

fn file_name(turn: Turn, step: &str) -> String {
    format!("t{:02}-c{:02}-{step}.folded", turn.target + 1, turn.case + 1)
}

/// perf if it is here and may sample, else gdb.
pub fn check() -> Result<Tool, Failure> {
    let Err(of_perf) = perf_samples() else { return Ok(Tool::Perf) };
    match gdb::check() {
        Ok(()) => Ok(Tool::Gdb),
        Err(of_gdb) => Err(Failure::Usage(format!("unsupported: --sample: {of_perf}; nor does {of_gdb}"))),
    }
}

fn perf_samples() -> Result<(), String> {
    let tried = Command::new(PERF)
        .args(["record", "--quiet", "--event=cpu-clock", "--output=/dev/null", "--", "true"])
        .stdin(Stdio::null())
        .output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            Err(format!("perf may not sample here ({REMEDY}): {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
        Err(error) => Err(format!("it needs perf, install linux-perf or linux-tools, or gdb: {error}")),
    }
}

/// Stacks of what `perf script` prints: a line with the thread's name, then its frames from the innermost out. The name is left
/// out: perf does not know that of every thread, and a difference wants the same stacks in both runs.
fn stacks_of(text: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    let mut frames: Vec<String> = Vec::new();
    let mut end = |frames: &mut Vec<String>| {
        frames.reverse();
        if !frames.is_empty() {
            *stacks.entry(frames.join(";")).or_default() += 1;
        }
        frames.clear();
    };
    for line in text.lines() {
        if line.starts_with([' ', '\t']) && !line.trim().is_empty() {
            let name = line.trim_start().split_once(' ').map_or("[unknown]", |(_, name)| name.trim());
            frames.push(name.replace(';', ":"));
        } else {
            end(&mut frames);
        }
    }
    end(&mut frames);
    stacks
}

/// All graphs of a run, none if it was not sampled.
pub fn flames_of(run: &Path, record: &RunRecord) -> Vec<Flame> {
    let mut all = Vec::new();
    let entries = fs::read_dir(run.join(FOLDER).join(FLAMES)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    for name in names {
        let Some(flame) = flame_of(record, &name) else { continue };
        let text = fs::read_to_string(run.join(FOLDER).join(FLAMES).join(&name)).unwrap_or_default();
        all.push(Flame { stacks: parsed(&text), ..flame });
    }
    all.retain(|flame| !flame.stacks.is_empty());
    all
}

fn flame_of(record: &RunRecord, name: &str) -> Option<Flame> {
    let mut parts = name.strip_suffix(".folded")?.splitn(3, '-');
    let mut number = |letter: char| parts.next()?.strip_prefix(letter)?.parse::<usize>().ok()?.checked_sub(1);
    let (target, case) = (number('t')?, number('c')?);
    let cases = record.plan.cases();
    let (number, here) = (case + 1, cases.get(case)?);
    let case =
        if cases.len() > 1 { format!("{} clients, {} tables", here.clients, here.tables) } else { String::new() };
    let target = record.name_of(record.targets.get(target)?).to_owned();
    Some(Flame { target, case, number, step: parts.next()?.to_owned(), stacks: BTreeMap::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A settle behind no load is not said to be finished: what is sampled of it stays with its own turn.
    #[test]
    fn what_runs_on_is_filed_under_the_turn_in_which_it_began() {
        let dir = tempfile::tempdir().unwrap();
        let sampler = Sampler::new(dir.path(), Tool::Perf).unwrap();
        let turn = |case| Turn { target: 0, case, repeat: 1 };
        sampler.watch(Runs::Inside, turn(0));
        let ended = Command::new("true").spawn().unwrap();
        sampler.state().running = Some((Running::Perf(ended), turn(0), "settle".into()));
        sampler.watch(Runs::Inside, turn(1));
        assert_eq!(sampler.state().running.as_ref().map(|(_, turn, _)| turn.case), Some(0));
        fs::write(sampler.said(), "  no permission\n\n").unwrap();
        sampler.ends();
        let why = sampler.take_failure().unwrap();
        assert!(why.starts_with("settle was not sampled: "), "{why}");
        assert!(why.contains("perf: no permission (sysctl kernel.perf_event_paranoid=1"), "{why}");
        assert!(sampler.state().running.is_none() && !sampler.said().exists());
    }

    #[test]
    fn stacks_go_from_the_outermost_to_the_innermost_frame() {
        let text = "lab\n\t          8d5330 <A as B>::range\n\t          7893a5 main;1\n\n:71 \n\t 1\n\n:72\n\t 2 <A as B>::range\n\t 3 main;1\n";
        let found = stacks_of(text);
        assert_eq!(found.get("main:1;<A as B>::range"), Some(&2), "{found:?}");
        assert_eq!(found.get("[unknown]"), Some(&1), "{found:?}");
    }
}
