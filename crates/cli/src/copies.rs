//! `trefoil backup`, `trefoil restore` and `trefoil upgrade`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use trefoil::{Database, Error, Options, Upgraded};

use crate::{Failure, Opened};

/// The file that makes a directory a database: copied last.
const HEADER: &str = "TREFOIL";
/// The file in which a backup says what it is made of.
const DESCRIPTION: &str = "BACKUP";

/// Copies a database that no other process has open: as fast as it goes, unless a rate is named.
pub(crate) fn backup(
    database: &Opened,
    to: &Path,
    rate_bytes: Option<u64>,
    since: Option<PathBuf>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let opened = database.open()?;
    let backup = opened.backup().rate_bytes(rate_bytes.unwrap_or(u64::MAX));
    let moment = match &since {
        Some(base) => backup.since(base),
        None => backup,
    };
    let moment = moment.to(to)?;
    opened.close()?;
    let since = since.map(|base| format!(", since {}", base.display())).unwrap_or_default();
    writeln!(out, "{}: backup of {} as of {moment}{since}", to.display(), database.path().display())?;
    Ok(())
}

/// `100m` = 100 MiB a second.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<u64>().ok().filter(|number| *number > 0);
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("`{text}` is not a number of bytes above 0, such as 100m (k, m, g = KiB, MiB, GiB)"))
}

/// Makes a database of backups where it shall be, opens it there and checks everything.
pub(crate) fn restore(backups: &[PathBuf], database: &Opened, out: &mut impl Write) -> Result<(), Failure> {
    let to = database.path();
    match backups {
        [one] if !is_described(one) => copy_backup(one, database)?,
        _ => {
            eprintln!("copying {} backups to {}", backups.len(), to.display());
            Database::restore(backups, to, database.options())?;
            backups.iter().next_back().map_or(Ok(()), |last| copy_beside(last, to))?;
        }
    }
    eprintln!("checking {}", to.display());
    let opened = Database::open(to, Options { create: false, ..database.options() })?;
    let problems: usize = opened.verify()?.iter().map(|(_, report)| report.problems.len()).sum();
    if problems > 0 {
        let text = format!("{problems} problems in {}; trefoil verify names them", to.display());
        return Err(Failure::Damaged(text));
    }
    let (indexes, tables) = opened.names();
    opened.close()?;
    writeln!(out, "{}: ok, {} tables and {} plain indexes", to.display(), tables.len(), indexes.len())?;
    Ok(())
}

/// What others have put into the backup's directory, and is not there yet.
fn copy_beside(from: &Path, to: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(from).map_err(|e| failed("read", from, &e))? {
        let entry = entry.map_err(|e| failed("read", from, &e))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = matches!(name.as_str(), HEADER | DESCRIPTION | "LOCK" | "data.trefoil" | "extents.trefoil");
        if is_ours || name.starts_with("MANIFEST-") || target.exists() {
            continue;
        }
        if path.is_dir() { copy_dir(&path, &target)? } else { copy_file(&path, &target)? }
    }
    sync(to)
}

/// Whether it says what it is made of, and was not opened since: what has lived on is a database like any other.
fn is_described(backup: &Path) -> bool {
    backup.join(DESCRIPTION).is_file() && !backup.join("LOCK").exists()
}

/// A backup of a release that described none, or a database that nobody has open: copied as it is.
fn copy_backup(from: &Path, database: &Opened) -> Result<(), Failure> {
    let to = database.path();
    if !from.join(HEADER).is_file() {
        return Err(Failure::Failed(format!("{} is no backup: it has no file {HEADER}", from.display())));
    }
    let used = to.exists() && fs::read_dir(to).map_err(|e| failed("read", to, &e))?.next().is_some();
    if used {
        let text = format!("{} is not empty; move it away first, a restore overwrites nothing", to.display());
        return Err(Failure::Failed(text));
    }
    // Whoever has it open would write meanwhile. What was never opened has no lock, and gets none.
    let kept =
        from.join("LOCK").exists().then(|| Database::open(from, Options { read_only: true, ..database.options() }));
    if let Some(Err(locked @ Error::Locked { .. })) = kept {
        return Err(locked.into());
    }
    eprintln!("copying {} to {}", from.display(), to.display());
    copy_dir(from, to)?;
    copy_file(&from.join(HEADER), &to.join(HEADER))?;
    sync(to)
}

/// Brings a database to the newest format.
pub(crate) fn upgrade(database: &Opened, out: &mut impl Write) -> Result<(), Failure> {
    let path = database.path().display();
    let Upgraded { from, to } = Database::upgrade(database.path(), database.options())?;
    if from == to {
        writeln!(out, "{path}: already at format {to}")?;
    } else {
        writeln!(
            out,
            "{path}: upgraded from format {from} to {to}; releases that know only {from} refuse it from now on"
        )?;
    }
    Ok(())
}

/// Everything but the header and the lock, synced.
fn copy_dir(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to).map_err(|e| failed("create", to, &e))?;
    for entry in fs::read_dir(from).map_err(|e| failed("read", from, &e))? {
        let entry = entry.map_err(|e| failed("read", from, &e))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_dir(&path, &target)?;
        } else if entry.file_name() != HEADER && entry.file_name() != "LOCK" {
            copy_file(&path, &target)?;
        }
    }
    sync(to)
}

fn copy_file(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::copy(from, to).map_err(|e| failed("copy to", to, &e))?;
    sync(to)
}

fn sync(path: &Path) -> Result<(), Failure> {
    fs::File::open(path).and_then(|file| file.sync_all()).map_err(|e| failed("sync", path, &e))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot {what} {}: {error}", path.display()))
}
