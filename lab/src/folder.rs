//! The run folder. Everything in it is written whole and renamed into place, so an interrupted run is readable.
//!
//! ```text
//! run.json            plan, setup, targets as they described themselves, environment, finished turns, state
//! results.json        one object per step and repetition (the same as --format json)
//! steps/*.json        one record per step: series, histograms, counters
//! progress.tsv        one line a second, the insert benchmark's 17 columns behind turn and step; whoever writes the run
//!                     holds it, so that others can tell a run under way from one that was killed
//! metrics.prom        while the run is under way: what `--metrics` writes
//! log.txt             what happened when
//! report.html         the report
//! sampled/            with `--sample`: the run folder of a repetition whose stacks were sampled, and the stacks
//! ```

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lab_measure::environment::Environment;
use lab_measure::record::StepRecord;
use lab_measure::result::{SCHEMA, StepResult};
use lab_target::{Description, DiskLimits, Durability, IoMode};
use lab_workload::AnyPlan;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::outcome::Failure;

/// Where runs are kept unless told otherwise.
pub const RUNS: &str = "bench-results";
/// One line a second.
pub const PROGRESS: &str = "progress.tsv";
/// How often, and how far apart, a writer asks for a run that somebody looks at.
const HOLD_TRIES: u32 = 200;
const HOLD_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
/// The running numbers of a run under way.
pub const METRICS: &str = "metrics.prom";

/// Why numbers of a sampled run are not used.
pub const SAMPLED: &str = "stacks were sampled meanwhile, so its numbers are no measurement";

/// What every target was opened with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetupRecord {
    /// When a commit is safe.
    pub durability: Durability,
    /// Memory of the engine.
    pub budget_bytes: Option<u64>,
    /// Direct or buffered.
    pub io: Option<IoMode>,
    /// Compression.
    pub compression: Option<String>,
    /// A disk that is slower or smaller than the machine's.
    #[serde(default)]
    pub disk: DiskLimits,
    /// What the drive may write in its life.
    #[serde(default)]
    pub drive_rated_bytes: Option<u64>,
    /// The disk's rates by a control group, as they were read back.
    #[serde(default)]
    pub disk_group: Option<String>,
    /// Memory of everything together, as it was read back.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
}

/// One target, one case, one repetition: all steps on a fresh database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Position of the target on the command line.
    pub target: usize,
    /// Position of the case in the plan.
    pub case: usize,
    /// The repetition, from 1.
    pub repeat: u32,
}

impl Turn {
    /// How the names of its step files begin.
    fn prefix(self) -> String {
        format!("t{:02}-c{:02}-r{:02}-", self.target + 1, self.case + 1, self.repeat)
    }

    /// The turn that a step file's name tells.
    pub fn of_file(name: &str) -> Option<Turn> {
        let mut parts = name.split('-');
        let mut number = |letter: char| parts.next()?.strip_prefix(letter)?.parse::<usize>().ok();
        let (target, case, repeat) = (number('t')?, number('c')?, number('r')?);
        Some(Turn { target: target.checked_sub(1)?, case: case.checked_sub(1)?, repeat: repeat as u32 })
    }
}

/// How far a run got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Under way, or killed.
    Running,
    /// All turns are done.
    Done,
    /// Ended by the user.
    Interrupted,
    /// Ended by an error.
    Failed,
}

/// `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// The layout of the folder.
    pub schema: String,
    /// When the run began, UTC.
    pub began: String,
    /// The command line.
    pub command: Vec<String>,
    /// The workload.
    pub workload: String,
    /// The options, resolved.
    pub plan: AnyPlan,
    /// What every target was opened with.
    pub setup: SetupRecord,
    /// Target strings.
    pub targets: Vec<String>,
    /// What each target said about itself, once it was open.
    pub described: Vec<Option<Description>>,
    /// Repetitions.
    pub repeat: u32,
    /// The machine.
    pub environment: Environment,
    /// Turns that are done.
    pub turns_done: Vec<Turn>,
    /// How far it got.
    pub state: State,
    /// Why it ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Names of the targets in tables, where a plan gives them some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Whether stacks were sampled meanwhile: such numbers are no measurement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_sampled: bool,
    /// Targets of a plan that were not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// A target that was not run, or not to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its position among the targets.
    pub target: usize,
    /// Why.
    pub why: String,
    /// Whether it could not be had; otherwise it failed.
    pub was_missing: bool,
}

impl RunRecord {
    /// The name of a target in tables.
    pub fn name_of<'a>(&'a self, target: &'a str) -> &'a str {
        let place = self.targets.iter().position(|text| text == target);
        place.and_then(|place| self.names.get(place)).map_or(target, String::as_str)
    }
}

/// A run folder that is being written.
#[derive(Debug)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
}

impl Folder {
    /// Makes the folder; refuses one that already holds a run.
    pub fn create(path: &Path) -> Result<Folder, Failure> {
        if path.join("run.json").exists() {
            return Err(Failure::Usage(format!(
                "{} already holds a run; choose another --out, or go on with --resume",
                path.display()
            )));
        }
        fs::create_dir_all(path.join("steps")).map_err(|error| Failure::io("make", path, &error))?;
        Ok(Folder { path: path.to_path_buf() })
    }

    /// Opens a folder that holds a run.
    pub fn open(path: &Path) -> Result<(Folder, RunRecord), Failure> {
        let file = path.join("run.json");
        if !file.exists() {
            let what = if path.exists() { "holds no run: run.json is not there" } else { "does not exist" };
            return Err(Failure::Failed(format!("{} {what}; `lab list` shows the runs there are", path.display())));
        }
        let record: serde_json::Value = read_json(&file)?;
        let schema = record.get("schema").and_then(|schema| schema.as_str()).unwrap_or("none");
        if schema != SCHEMA {
            return Err(Failure::Failed(format!(
                "{} has schema {schema}, this lab reads {SCHEMA}: read it with the lab that wrote it, or run it again",
                path.display()
            )));
        }
        let damaged = |error| Failure::Failed(format!("{} is damaged: {error}", file.display()));
        Ok((Folder { path: path.to_path_buf() }, serde_json::from_value(record).map_err(damaged)?))
    }

    /// Writes `run.json`.
    pub fn write_run(&self, record: &RunRecord) -> Result<(), Failure> {
        write_json(&self.path.join("run.json"), record)
    }

    /// Writes `results.json`.
    pub fn write_results(&self, results: &[StepResult]) -> Result<(), Failure> {
        write_json(&self.path.join("results.json"), &results)
    }

    /// Writes the record of a step; the same place in the plan writes the same file.
    pub fn write_step(&self, turn: Turn, place: usize, record: &StepRecord) -> Result<(), Failure> {
        let name = format!("{}{place:02}-{}.json", turn.prefix(), record.result.step.replace('.', ""));
        write_json(&self.path.join("steps").join(name), record)
    }

    /// Removes what an unfinished turn left.
    pub fn forget_turn(&self, turn: Turn) -> Result<(), Failure> {
        let prefix = turn.prefix();
        for file in step_files(&self.path)? {
            if file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)) {
                fs::remove_file(&file).map_err(|error| Failure::io("remove", &file, &error))?;
            }
        }
        Ok(())
    }

    /// Appends to a text file of the folder; a log that cannot be written does not end a run.
    pub fn append(&self, name: &str, line: &str) {
        let file = fs::OpenOptions::new().create(true).append(true).open(self.path.join(name));
        if let Ok(mut file) = file {
            let _ = writeln!(file, "{line}");
        }
    }

    /// Holds the run as being under way until what is returned is dropped, or its process ends however it ends; nothing on a
    /// file system without locks. Whoever looks holds it for a moment, and together with others who look; two writers do not.
    pub fn hold(&self) -> Result<Option<fs::File>, Failure> {
        let file = fs::OpenOptions::new().create(true).append(true).open(self.path.join(PROGRESS));
        let Ok(file) = file else { return Ok(None) };
        for _ in 0..HOLD_TRIES {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(HOLD_PAUSE),
                Err(_) => return Ok(None),
            }
        }
        Err(Failure::Usage(format!(
            "{} is under way in another process: wait for its end, or end it",
            self.path.display()
        )))
    }

    /// Appends to the log.
    pub fn log(&self, text: &str) {
        self.append("log.txt", &format!("{} {text}", utc_now()));
    }
}

/// Whether some process writes this run now.
pub fn is_under_way(run: &Path) -> bool {
    let held = |file: &fs::File| rustix::fs::flock(file, FlockOperation::NonBlockingLockShared);
    fs::File::open(run.join(PROGRESS)).is_ok_and(|file| held(&file) == Err(rustix::io::Errno::WOULDBLOCK))
}

/// How far a run got, in a word: one that says it is running, and that no process writes, was killed.
pub fn state_in_a_word(state: State, is_under_way: bool) -> &'static str {
    match state {
        State::Running if is_under_way => "running",
        State::Running | State::Interrupted => "interrupted",
        State::Done => "done",
        State::Failed => "failed",
    }
}

/// The files of all steps, in the order of turns and steps.
pub fn step_files(run: &Path) -> Result<Vec<PathBuf>, Failure> {
    let steps = run.join("steps");
    let mut files = Vec::new();
    for entry in fs::read_dir(&steps).map_err(|error| Failure::io("list", &steps, &error))? {
        let path = entry.map_err(|error| Failure::io("list", &steps, &error))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// All step records of a run, in the order of turns and steps.
pub fn read_steps(run: &Path) -> Result<Vec<StepRecord>, Failure> {
    step_files(run)?.iter().map(|file| read_json(file)).collect()
}

/// Reads a JSON file.
pub fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::io("read", path, &error))?;
    serde_json::from_str(&text).map_err(|error| Failure::Failed(format!("{} is damaged: {error}", path.display())))
}

/// Writes a JSON file whole.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).expect("records hold only text, numbers and lists");
    write_whole(path, &text)
}

/// Writes a file under another name and renames it into place.
pub fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    let temporary = path.with_extension("tmp");
    let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| Failure::io("write", path, &error))
}

/// Seconds since 1970.
pub fn epoch_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `2026-01-31T12:34:56Z`.
pub fn utc_now() -> String {
    utc(epoch_secs())
}

fn utc(secs: u64) -> String {
    let (days, rest) = (secs / 86_400, secs % 86_400);
    let (year, month, day) = civil(days as i64);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

/// Date of a day counted from 1970-01-01, by eras of 400 years that begin on the first of March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_look_do_not_see_each_other_and_two_do_not_write() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder { path: dir.path().to_path_buf() };
        assert!(!is_under_way(dir.path()));
        fs::write(dir.path().join(PROGRESS), "").unwrap();
        let looks = fs::File::open(dir.path().join(PROGRESS)).unwrap();
        rustix::fs::flock(&looks, FlockOperation::NonBlockingLockShared).unwrap();
        assert!(!is_under_way(dir.path()), "another look is no writer");
        drop(looks);
        let held = folder.hold().unwrap();
        assert!(held.is_some() && is_under_way(dir.path()));
        assert!(folder.hold().is_err_and(|failure| failure.to_string().contains("another process")));
        drop(held);
        assert!(!is_under_way(dir.path()));
    }

    #[test]
    fn a_run_that_nobody_writes_is_not_running() {
        assert_eq!(state_in_a_word(State::Running, true), "running");
        assert_eq!(state_in_a_word(State::Running, false), "interrupted");
        assert_eq!(state_in_a_word(State::Done, false), "done");
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_690_848_000), "2023-08-01T00:00:00Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
