//! Data directories of private servers, made once by each program and copied from then on: making one takes seconds of
//! processor time, and every turn of a run wants a fresh one.
//!
//! 1. What the same program made before is copied out of the cache.
//! 2. Otherwise it is made in its place, and copied into the cache under another name, then renamed: whoever looks finds all of
//!    it or nothing. A cache that cannot be written to is nobody's trouble.
//!
//! A directory belongs to a program by its path, its size, its time of change and how it was asked.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::fetch;
use super::private::io;
use crate::api::Result;

/// Below the cache of servers.
const FOLDER: &str = "made";
/// A server's own number, which no two shall have.
const OWN: &str = "auto.cnf";

/// Makes `data` by `make`, or copies what it made before. `how`: whatever else the outcome hangs on.
pub fn made(program: &Path, how: &str, data: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
    let Some(kept) = place_of(program, how) else { return make() };
    if kept.is_dir() {
        let _ = fs::remove_dir_all(data);
        return copy(&kept, data);
    }
    make()?;
    let part = kept.with_extension(format!("part-{}", std::process::id()));
    let is_kept = kept.parent().is_some_and(|folder| fs::create_dir_all(folder).is_ok())
        && copy(data, &part).is_ok()
        && fs::rename(&part, &kept).is_ok();
    if !is_kept {
        let _ = fs::remove_dir_all(&part);
    }
    Ok(())
}

fn place_of(program: &Path, how: &str) -> Option<PathBuf> {
    let about = fs::metadata(program).ok()?;
    let mut state = DefaultHasher::new();
    (program, about.len(), about.mtime(), about.mtime_nsec(), how).hash(&mut state);
    Some(fetch::cache().join(FOLDER).join(format!("{:016x}", state.finish())))
}

/// Copies a folder with its permissions; who may give files away keeps their owners.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let about = fs::metadata(from).map_err(io("read", from))?;
    fs::create_dir_all(to).map_err(io("make", to))?;
    for entry in fs::read_dir(from).map_err(io("read", from))?.flatten().filter(|entry| entry.file_name() != OWN) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target)?;
            continue;
        }
        fs::copy(&source, &target).map_err(io("copy", &source))?;
        if let Ok(file) = fs::metadata(&source) {
            let _ = chown(&target, Some(file.uid()), Some(file.gid()));
        }
    }
    fs::set_permissions(to, fs::Permissions::from_mode(about.mode() & 0o7777)).map_err(io("make", to))?;
    let _ = chown(to, Some(about.uid()), Some(about.gid()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_copied_until_the_program_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (program, data) = (dir.path().join("initdb"), dir.path().join("data"));
        fs::write(&program, "1").unwrap();
        let mut times = 0;
        let mut turn = |how: &str| {
            let make = || {
                times += 1;
                fs::create_dir_all(data.join("empty")).unwrap();
                fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
                fs::write(data.join(OWN), "number").unwrap();
                fs::write(data.join("file"), times.to_string()).map_err(io("write", &data))
            };
            made(&program, how, &data, make).unwrap();
            assert!(data.join("empty").is_dir());
            assert_eq!(fs::metadata(&data).unwrap().mode() & 0o777, 0o700);
            fs::read_to_string(data.join("file")).unwrap()
        };
        assert_eq!([turn("a"), turn("a"), turn("b")], ["1", "1", "2"]);
        // What a copy lacks.
        assert_eq!(turn("a"), "1");
        assert!(!data.join(OWN).exists());
        let before = ["a", "b"].map(|how| place_of(&program, how).unwrap());
        fs::write(&program, "22").unwrap();
        let make = || fs::create_dir_all(&data).map_err(io("make", &data));
        fs::remove_dir_all(&data).unwrap();
        made(&program, "a", &data, make).unwrap();
        assert!(!data.join("file").exists(), "the program is another one");
        for place in before.iter().chain(&place_of(&program, "a")) {
            fs::remove_dir_all(place).unwrap();
        }
    }
}
