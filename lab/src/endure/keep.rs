//! The folder of a proof.
//!
//! | file | is |
//! |---|---|
//! | `plan.json` | what was asked; another plan in the same folder is refused |
//! | `seconds.tsv` | a line for each second, appended; those of an attempt that was broken off stay |
//! | `done-PART.json` | written when the part is done: which attempt counts, and what it began with |
//! | `verdict.json` | the conditions |
//! | `database` | of the part under way; removed when the next one begins |
//! | `lock` | held while a proof, or a process of one of its parts, is under way |

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::judge::Condition;
use super::{Part, Seconds};
use crate::cli::{Bounds, Endure, Proof};
use crate::outcome::Failure;

/// What was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub proof: Proof,
    pub target: String,
    pub seconds: u64,
    pub search_seconds: u64,
    pub rows: u64,
    pub clients: u32,
    pub budget_bytes: Option<u64>,
    pub share: u64,
    pub full: u64,
    #[serde(default)]
    pub read_seconds: u64,
    #[serde(default)]
    pub bounds: Bounds,
    /// What was built, and where it runs: the parts of one proof are of one build on one machine.
    #[serde(default)]
    pub commit: String,
    #[serde(default)]
    pub host: String,
}

impl Plan {
    /// As the command line has it.
    pub fn of(options: &Endure) -> Plan {
        Plan {
            proof: options.proof,
            target: options.target.clone(),
            seconds: options.seconds,
            search_seconds: options.search_seconds,
            rows: options.rows,
            clients: options.clients,
            budget_bytes: options.budget,
            share: options.share,
            full: options.full,
            read_seconds: options.read_seconds,
            bounds: options.bounds,
            commit: format!("{} {}", env!("LAB_COMMIT"), if cfg!(debug_assertions) { "dev" } else { "release" }),
            host: fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
        }
    }

    /// How many seconds a part has.
    pub fn seconds_of(&self, part: &str) -> u64 {
        if part == "search" { self.search_seconds } else { self.seconds }
    }
}

/// What a part that is done began with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Which lines count.
    pub attempt: u64,
    /// Rows before the first second, and bytes on disk.
    pub filled_rows: u64,
    pub filled_bytes: Option<u64>,
    /// The disk, if it was a small one.
    pub disk_size: Option<u64>,
    /// Rows a second that were asked for.
    pub rate: Option<f64>,
    /// Resident memory of the process before the database was opened.
    pub memory_before: Option<u64>,
    /// Memory of the engine, as far as it says.
    pub budget_bytes: Option<u64>,
    /// What the target said about itself.
    pub settings: BTreeMap<String, String>,
    /// Number of the process that ran it.
    #[serde(default)]
    pub process: u32,
    /// What a snapshot saw that was held all the time.
    #[serde(default)]
    pub snapshot: Option<Snapshot>,
    /// Reads behind the last second.
    #[serde(default)]
    pub reads: Option<Reads>,
}

/// What a snapshot saw in the first moment and in the last: rows, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub first: (u64, u64),
    pub last: (u64, u64),
    /// How many of them were deleted meanwhile.
    pub deleted: u64,
}

/// Operations a second of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    pub ranges: f64,
    pub points: f64,
}

/// In the end.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict<'a> {
    pub conditions: &'a [Condition],
    /// Structures, i/o and the like of the target.
    pub target: &'a BTreeMap<String, String>,
    pub not_covered: &'a str,
}

/// What one second came to; what was not measured is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// From 1.
    pub second: u64,
    /// Rows.
    pub inserted: u64,
    pub deleted: u64,
    /// Statements that insert, and those that were back later than 20 ms after they were due.
    pub statements: u64,
    pub slow: u64,
    /// The slowest, in microseconds.
    pub worst_us: u64,
    /// The look-up of the smallest key.
    pub min_key_us: u64,
    /// Dead versions and tombstones, as the engine counts them.
    pub dead: Option<u64>,
    pub disk_bytes: Option<u64>,
    /// The most that was resident since the part began, its fill included.
    pub peak_bytes: Option<u64>,
    /// Processor time of this process, and bytes that the engine wrote, in the second.
    pub cpu_us: Option<u64>,
    pub written: Option<u64>,
    /// Of a disk with ballast, what is taken of it.
    pub taken_bytes: Option<u64>,
}

/// Numbers of a line behind part and attempt.
const NUMBERS: usize = 13;
const HEAD: &str = "part\tattempt\tsecond\tinserted\tdeleted\tstatements\tslow\tworst_us\tmin_key_us\tdead\tdisk_bytes\tpeak_bytes\t\
                    cpu_us\twritten\ttaken_bytes";

/// In a line: not measured.
const NONE: &str = "-";

impl Second {
    fn numbers(&self) -> [Option<u64>; NUMBERS] {
        let [second, inserted, deleted] = [self.second, self.inserted, self.deleted].map(Some);
        let [statements, slow, worst_us, min_key_us] =
            [self.statements, self.slow, self.worst_us, self.min_key_us].map(Some);
        let (dead, disk, peak) = (self.dead, self.disk_bytes, self.peak_bytes);
        let (cpu, written, taken) = (self.cpu_us, self.written, self.taken_bytes);
        [second, inserted, deleted, statements, slow, worst_us, min_key_us, dead, disk, peak, cpu, written, taken]
    }

    fn of(numbers: [Option<u64>; NUMBERS]) -> Option<Self> {
        let [second, inserted, deleted, statements, slow, worst_us, min_key_us, ..] = numbers;
        let [.., dead, disk_bytes, peak_bytes, cpu_us, written, taken_bytes] = numbers;
        let (second, inserted, deleted) = (second?, inserted?, deleted?);
        let (statements, slow, worst_us, min_key_us) = (statements?, slow?, worst_us?, min_key_us?);
        let told = Self { second, inserted, deleted, statements, slow, worst_us, min_key_us, ..Self::default() };
        Some(Self { dead, disk_bytes, peak_bytes, cpu_us, written, taken_bytes, ..told })
    }

    /// Part, attempt and second of a line; none of the head, and of a line that was cut off.
    fn parse(line: &str) -> Option<(&str, u64, Self)> {
        let mut fields = line.split('\t');
        let (part, attempt) = (fields.next()?, fields.next()?.parse().ok()?);
        let number = |field: &str| if field == NONE { Ok(None) } else { field.parse().map(Some) };
        let numbers: Vec<Option<u64>> = fields.map(number).collect::<Result<_, _>>().ok()?;
        Some((part, attempt, Self::of(numbers.try_into().ok()?)?))
    }
}

/// The folder.
#[derive(Debug)]
pub struct Folder(PathBuf);

/// A process that was killed a moment ago still holds its lock: so often, and so long each time, it is tried.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Nobody else goes on with the proof in the folder while it is held.
pub fn lock(path: &Path) -> Result<File, Failure> {
    fs::create_dir_all(path).map_err(|error| Failure::io("make", path, &error))?;
    let name = path.join("lock");
    let failed = |error: std::io::Error| Failure::io("lock", &name, &error);
    let file = OpenOptions::new().create(true).append(true).open(&name).map_err(failed)?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(failed(error.into())),
        }
    }
    let path = path.display();
    Err(Failure::Usage(format!(
        "{path} is under way in another process: wait for its end, end it, or give another --out"
    )))
}

impl Folder {
    /// A new one, or that of the same plan.
    pub fn open(path: &Path, plan: &Plan) -> Result<Folder, Failure> {
        fs::create_dir_all(path).map_err(|error| Failure::io("make", path, &error))?;
        let folder = Folder(path.to_path_buf());
        match folder.read::<Plan>("plan.json")? {
            Some(kept) if kept != *plan => {
                return Err(Failure::Usage(format!(
                    "{} holds a proof with other options, of another build or of another host (plan.json): give those, or another --out",
                    path.display()
                )));
            }
            Some(_) => {}
            None => folder.write("plan.json", plan)?,
        }
        let lines = folder.0.join("seconds.tsv");
        let is_new = !lines.exists();
        // What was cut off by a crash ends here, so that the next line is whole.
        folder.append_line(if is_new { HEAD } else { "" })?;
        Ok(folder)
    }

    /// A fresh directory for a database.
    pub fn database(&self) -> Result<PathBuf, Failure> {
        let path = self.0.join("database");
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::io("remove", &path, &error)),
            _ => fs::create_dir(&path).map(|()| path.clone()).map_err(|error| Failure::io("make", &path, &error)),
        }
    }

    /// The number of the next attempt of a part.
    pub fn attempt(&self, part: &str) -> Result<u64, Failure> {
        let mut last = 0;
        self.lines(|name, attempt, _| last = if name == part { attempt.max(last) } else { last })?;
        Ok(last + 1)
    }

    /// A second of an attempt.
    pub fn append(&self, part: &str, attempt: u64, second: &Second) -> Result<(), Failure> {
        let text = |number: &Option<u64>| number.map_or_else(|| NONE.to_owned(), |number| number.to_string());
        let numbers: Vec<String> = second.numbers().iter().map(text).collect();
        self.append_line(&format!("{part}\t{attempt}\t{}", numbers.join("\t")))
    }

    fn append_line(&self, line: &str) -> Result<(), Failure> {
        let path = self.0.join("seconds.tsv");
        let write =
            || OpenOptions::new().create(true).append(true).open(&path)?.write_all(format!("{line}\n").as_bytes());
        write().map_err(|error| Failure::io("write", &path, &error))
    }

    fn lines(&self, mut each: impl FnMut(&str, u64, Second)) -> Result<(), Failure> {
        let path = self.0.join("seconds.tsv");
        let failed = |error: std::io::Error| Failure::io("read", &path, &error);
        for line in BufReader::new(File::open(&path).map_err(failed)?).lines() {
            if let Some((part, attempt, second)) = Second::parse(&line.map_err(failed)?) {
                each(part, attempt, second);
            }
        }
        Ok(())
    }

    /// The part is done.
    pub fn note_done(&self, part: &str, outcome: &Outcome) -> Result<(), Failure> {
        self.write(&format!("done-{part}.json"), outcome)
    }

    /// What a part began with, if it is done.
    pub fn outcome(&self, part: &str) -> Result<Option<Outcome>, Failure> {
        self.read(&format!("done-{part}.json"))
    }

    /// A part that is done: all of its seconds, from the first to the last.
    pub fn done(&self, part: &str, of: u64) -> Result<Part, Failure> {
        let failed = |text: &str| Failure::Failed(format!("{}: part {part} {text}", self.0.display()));
        let outcome = self.outcome(part)?.ok_or_else(|| failed("is not done"))?;
        let mut seconds = Seconds::default();
        self.lines(|name, attempt, second| {
            if name == part && attempt == outcome.attempt {
                seconds.push(second);
            }
        })?;
        if seconds.iter().map(|second| second.second).eq(1..=of) {
            Ok((outcome, seconds))
        } else {
            let text = format!(
                "has {} lines in seconds.tsv instead of one for each second from 1 to {of}: remove done-{part}.json and what \
                 came after it, or give another --out",
                seconds.len()
            );
            Err(failed(&text))
        }
    }

    /// The conditions and what goes with them, in the end.
    pub fn keep_verdict(&self, verdict: &Verdict<'_>) -> Result<(), Failure> {
        self.write("verdict.json", verdict)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        let path = self.0.join(name);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| Failure::Failed(format!("{} is damaged: {error}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::io("read", &path, &error)),
        }
    }

    /// Written whole and renamed into place.
    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Failure> {
        let (path, whole) = (self.0.join(name), self.0.join(format!("{name}.new")));
        let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Failed(error.to_string()))?;
        let written = fs::write(&whole, text + "\n").and_then(|()| fs::rename(&whole, &path));
        written.map_err(|error| Failure::io("write", &path, &error))
    }
}

#[cfg(test)]
mod tests {
    // Real files; a failed unwrap is a failed test.
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn second(second: u64) -> Second {
        Second { second, inserted: 50, dead: None, disk_bytes: Some(7), taken_bytes: Some(9), ..Second::default() }
    }

    #[test]
    fn what_was_not_measured_is_none_in_a_line_and_a_part_without_all_its_seconds_is_not_judged() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder(dir.path().to_path_buf());
        let outcome = Outcome {
            attempt: 2,
            filled_rows: 0,
            filled_bytes: None,
            disk_size: None,
            rate: None,
            memory_before: None,
            budget_bytes: None,
            settings: BTreeMap::new(),
            process: 0,
            snapshot: None,
            reads: None,
        };
        folder.append("alone", 1, &second(3)).unwrap();
        [1, 2].iter().for_each(|number| folder.append("alone", 2, &second(*number)).unwrap());
        assert!(folder.done("alone", 2).is_err(), "not done");
        folder.note_done("alone", &outcome).unwrap();
        assert_eq!(folder.done("alone", 2).unwrap().1, [second(1), second(2)]);
        let short = folder.done("alone", 3).unwrap_err().to_string();
        assert!(short.contains("2 lines") && short.contains("1 to 3"), "{short}");
        folder.append("alone", 2, &second(4)).unwrap();
        assert!(folder.done("alone", 3).is_err(), "the third is missing");
    }

    #[test]
    fn a_folder_is_held_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let refused = lock(dir.path()).unwrap_err();
        assert!(matches!(&refused, Failure::Usage(text) if text.contains("another process")), "{refused}");
        drop(held);
        lock(dir.path()).unwrap();
    }
}
