//! The folder of a proof.
//!
//! | file | is |
//! |---|---|
//! | `plan.json` | what was asked; another plan in the same folder is refused |
//! | `seconds.tsv` | a line for each second, appended; those of an attempt that was broken off stay |
//! | `done-PART.json` | written when the part is done: which attempt counts, and what it began with |
//! | `verdict.json` | the conditions |
//! | `database` | of the part under way; removed when the next one begins |

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::judge::Condition;
use super::{Part, Seconds};
use crate::cli::{Endure, Proof};
use crate::outcome::Failure;

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        }
    }
}

/// What a part that is done began with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Which lines count.
    pub attempt: u64,
    /// Bytes on disk before the first second.
    pub filled_bytes: u64,
    /// The disk, if it was a small one.
    pub disk_size: Option<u64>,
    /// Rows a second that were asked for.
    pub rate: Option<f64>,
    /// Resident memory of the process before the database was opened.
    pub memory_before: Option<u64>,
    /// Memory of the engine, as far as it says.
    pub budget_bytes: Option<u64>,
}

/// What one second came to.
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
    pub dead: u64,
    pub disk_bytes: u64,
    pub resident_bytes: u64,
}

const HEAD: &str = "part\tattempt\tsecond\tinserted\tdeleted\tstatements\tslow\tworst_us\tmin_key_us\tdead\tdisk_bytes\tresident_bytes";

impl Second {
    fn numbers(&self) -> [u64; 10] {
        let Self {
            second,
            inserted,
            deleted,
            statements,
            slow,
            worst_us,
            min_key_us,
            dead,
            disk_bytes,
            resident_bytes,
        } = *self;
        [second, inserted, deleted, statements, slow, worst_us, min_key_us, dead, disk_bytes, resident_bytes]
    }

    fn of(numbers: [u64; 10]) -> Self {
        let [second, inserted, deleted, statements, slow, worst_us, min_key_us, dead, disk_bytes, resident_bytes] =
            numbers;
        Self { second, inserted, deleted, statements, slow, worst_us, min_key_us, dead, disk_bytes, resident_bytes }
    }

    /// Part, attempt and second of a line; none of the head, and of a line that was cut off.
    fn parse(line: &str) -> Option<(&str, u64, Self)> {
        let mut fields = line.split('\t');
        let (part, attempt) = (fields.next()?, fields.next()?.parse().ok()?);
        let numbers: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some((part, attempt, Self::of(numbers.try_into().ok()?)))
    }
}

/// The folder.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one, or that of the same plan.
    pub fn open(path: &Path, plan: &Plan) -> Result<Folder, Failure> {
        fs::create_dir_all(path).map_err(|error| Failure::io("make", path, &error))?;
        let folder = Folder(path.to_path_buf());
        match folder.read::<Plan>("plan.json")? {
            Some(kept) if kept != *plan => {
                return Err(Failure::Usage(format!(
                    "{} holds a proof with other options (plan.json): give those, or another --out",
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
        let numbers: Vec<String> = second.numbers().iter().map(u64::to_string).collect();
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

    /// A part that is done.
    pub fn done(&self, part: &str) -> Result<Part, Failure> {
        let lacks = || Failure::Failed(format!("{}: part {part} is not done", self.0.display()));
        let outcome = self.outcome(part)?.ok_or_else(lacks)?;
        let mut seconds = Seconds::default();
        self.lines(|name, attempt, second| {
            if name == part && attempt == outcome.attempt {
                seconds.push(second);
            }
        })?;
        if seconds.is_empty() { Err(lacks()) } else { Ok((outcome, seconds)) }
    }

    /// The conditions, in the end.
    pub fn keep_verdict(&self, conditions: &[Condition]) -> Result<(), Failure> {
        self.write("verdict.json", &conditions)
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
