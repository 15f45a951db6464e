//! From the name in an address to a file below the folder of runs.
//!
//! Two walls: a name has no part that is `..`, empty or absolute; and what it leads to, every link followed, lies below the
//! folder. The second alone would do for what exists; the first says no without asking the disk. What is read of a run beside
//! what was named, its records and parts, meets the second wall and a limit of size before any of it is read.

use std::path::{Component, Path, PathBuf};

/// Larger files are for other programs.
pub const LARGEST_FILE_BYTES: u64 = 32 << 20;
/// All records of the steps of a run.
const LARGEST_STEPS_BYTES: u64 = 512 << 20;
/// Files that are read whole, and folders of such, in a run's or a plan's.
const READ: [&str; 5] = ["run.json", "plan.json", "results.json", "metrics.prom", "report.html"];
const FOLDERS: [&str; 3] = ["steps", "sampled", "sampled/flames"];

/// Why there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not there.
    Missing,
    /// It is not below the folder.
    Outside,
}

/// The file or folder with this name.
pub fn below(root: &Path, name: &str) -> Result<PathBuf, Refused> {
    let mut parts = Path::new(name).components();
    if name.is_empty() || name.contains('\0') || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(Refused::Outside);
    }
    let path = root.join(name);
    let whole = path.canonicalize().map_err(|_| Refused::Missing)?;
    if whole.starts_with(root) && whole != root { Ok(path) } else { Err(Refused::Outside) }
}

/// Whether all that is read of a run or plan lies below the folder, and is of a size that can be read; otherwise why not.
pub fn sound(root: &Path, run: &Path, with_steps: bool) -> Result<(), String> {
    checked(root, run)?;
    for name in READ {
        checked(root, &run.join(name))?;
    }
    // Of this only the end is read.
    is_inside(root, &run.join("progress.tsv"))?;
    for name in FOLDERS.iter().filter(|_| with_steps) {
        let mut total = 0;
        for file in listed(root, &run.join(name))? {
            total += checked(root, &file)?;
        }
        if total > LARGEST_STEPS_BYTES {
            return Err(format!("{} has {} MiB: read it with lab show", shown(root, &run.join(name)), total >> 20));
        }
    }
    for part in listed(root, &run.join("parts"))? {
        sound(root, &part, with_steps)?;
    }
    Ok(())
}

fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn listed(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, String> {
    is_inside(root, folder)?;
    Ok(std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect())
}

/// What is not there is nowhere else.
fn is_inside(root: &Path, path: &Path) -> Result<(), String> {
    match path.canonicalize() {
        Ok(whole) if !whole.starts_with(root) || whole == root => {
            Err(format!("{} leads outside of the folder of runs", shown(root, path)))
        }
        _ => Ok(()),
    }
}

/// The bytes of a file; none of a folder or of what is not there.
fn checked(root: &Path, path: &Path) -> Result<u64, String> {
    is_inside(root, path)?;
    let Ok(meta) = std::fs::metadata(path) else { return Ok(0) };
    if meta.is_dir() {
        return Ok(0);
    }
    match (meta.is_file(), meta.len()) {
        (false, _) => Err(format!("{} is no file", shown(root, path))),
        (true, bytes) if bytes > LARGEST_FILE_BYTES => {
            Err(format!("{} has {} MiB: read it where it is", shown(root, path), bytes >> 20))
        }
        (true, bytes) => Ok(bytes),
    }
}

/// Text of an address as it was before it was put there; `None` if it is no text.
pub fn decoded(text: &str, plus_is_space: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                (high * 16 + low) as u8
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

/// Text as it stands in an address; slashes stay.
pub fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("runs").canonicalize().unwrap_or_else(|_| {
            std::fs::create_dir_all(dir.path().join("runs/a/parts/b")).unwrap();
            dir.path().join("runs").canonicalize().unwrap()
        });
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("a/link")).unwrap();
        std::os::unix::fs::symlink("a", root.join("latest")).unwrap();
        assert_eq!(below(&root, "a/parts/b"), Ok(root.join("a/parts/b")));
        assert_eq!(below(&root, "latest"), Ok(root.join("latest")), "a link to a run is that run");
        assert_eq!(below(&root, "a/absent"), Err(Refused::Missing));
        for name in ["../secret", "a/../../secret", "a/..", "/etc/passwd", "a/link", "", ".", "a\0", "a/../a"] {
            assert_eq!(below(&root, name), Err(Refused::Outside), "{name:?}");
        }
    }

    #[test]
    fn what_is_read_of_a_run_lies_inside_and_has_a_size() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("runs");
        std::fs::create_dir_all(root.join("a/parts/b/steps")).unwrap();
        std::fs::create_dir_all(dir.path().join("other")).unwrap();
        let root = root.canonicalize().unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::fs::write(root.join("a/run.json"), "{}").unwrap();
        let run = root.join("a");
        assert_eq!(sound(&root, &run, true), Ok(()));
        for place in
            ["report.html", "results.json", "progress.tsv", "parts/b/steps/1.json", "parts/b/run.json", "parts/c"]
        {
            std::os::unix::fs::symlink(dir.path().join("secret"), run.join(place)).unwrap();
            assert!(sound(&root, &run, true).is_err_and(|why| why.contains("outside")), "{place}");
            std::fs::remove_file(run.join(place)).unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("other"), run.join("steps")).unwrap();
        assert!(sound(&root, &run, true).is_err() && sound(&root, &run, false).is_ok());
        std::fs::remove_file(run.join("steps")).unwrap();
        std::fs::File::create(run.join("report.html")).unwrap().set_len(LARGEST_FILE_BYTES + 1).unwrap();
        assert!(sound(&root, &run, true).is_err_and(|why| why.contains("32 MiB")));
    }

    #[test]
    fn names_come_back_as_they_were() {
        for text in ["a b/c+d", "100 % ü", "server:mariadb?engine=innodb&x=\"y\""] {
            assert_eq!(decoded(&encoded(text), true).as_deref(), Some(text));
        }
        assert_eq!(decoded("a+b%2Fc", true).as_deref(), Some("a b/c"));
        assert_eq!(decoded("a+b", false).as_deref(), Some("a+b"));
        assert_eq!((decoded("%4", true), decoded("%zz", true), decoded("%ff", true)), (None, None, None));
    }
}
