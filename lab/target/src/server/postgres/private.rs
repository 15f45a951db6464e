//! A private server of PostgreSQL: where its programs are, its data directory, its start. It refuses to run for the
//! administrator, for whom another user of the machine has to do it.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Signal, getuid};

use super::super::binaries::{self, fetched};
use super::super::made;
use super::super::parameters::Product;
use super::super::private::{ERROR_LOG, Parts, Private, failed, gone, io, short_directory, when_watched};
use crate::api::Result;

/// Part of a socket's name.
pub const PORT: u16 = 5432;
/// Where distributions keep the programs of each version.
const INSTALLED: &str = "/usr/lib/postgresql";
const DEPTH: usize = 7;
/// Users of the machine who own nothing.
const NOBODIES: [&str; 2] = ["postgres", "nobody"];

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    bin: PathBuf,
}

impl Programs {
    /// Finds them: in a directory, in fetched packages, or, where none are wanted, what the machine has.
    pub fn find(version: Option<&str>, dir: Option<&Path>) -> Result<Programs> {
        let root = match (dir, version) {
            (Some(dir), _) => fs::canonicalize(dir).map_err(|error| failed(format!("{}: {error}", dir.display())))?,
            (None, None) => match installed() {
                Some(bin) => return Ok(Programs { bin }),
                None => fetched(Product::Postgres, None)?,
            },
            (None, version) => fetched(Product::Postgres, version)?,
        };
        let found = binaries::find(&root, DEPTH, &|name| name == "initdb");
        let bin = found.iter().filter_map(|path| path.parent()).find(|bin| bin.join("postgres").is_file());
        let missing = || failed(format!("there is no initdb with postgres beside it below {}", root.display()));
        Ok(Programs { bin: bin.ok_or_else(missing)?.to_owned() })
    }
}

/// The programs of the newest version that is installed.
pub fn installed() -> Option<PathBuf> {
    newest(Path::new(INSTALLED))
}

fn newest(folder: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(folder).ok()?.flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let numbered = versions.filter_map(|entry| Some((number(&entry.path())?, entry.path().join("bin"))));
    let whole = numbered.filter(|(_, bin)| bin.join("initdb").is_file() && bin.join("postgres").is_file());
    whole.max_by_key(|(number, _)| *number).map(|(_, bin)| bin)
}

/// Somebody else than the administrator.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// Of the user.
    pub uid: u32,
    /// Of the group.
    pub gid: u32,
}

/// Who runs the server: nobody in particular if the lab does not run for the administrator.
pub fn user(wanted: Option<&str>) -> Result<Option<User>> {
    if !getuid().is_root() {
        return Ok(None);
    }
    let accounts = fs::read_to_string("/etc/passwd").map_err(io("read", Path::new("/etc/passwd")))?;
    let of = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let number = |place: usize| line.split(':').nth(place)?.parse::<u32>().ok();
        Some(User { uid: number(2)?, gid: number(3)? }).filter(|user| user.uid != 0)
    };
    let found = match wanted {
        Some(name) => of(name),
        None => NOBODIES.iter().find_map(|name| of(name)),
    };
    found.map(Some).ok_or_else(|| {
        failed(format!(
            "PostgreSQL does not run for the administrator, and there is no other user {}: name one, user=NAME, or run \
             the lab as somebody else",
            wanted.unwrap_or("postgres or nobody")
        ))
    })
}

/// Whether a user may go down to a folder.
fn may_reach(path: &Path, user: User) -> Result<()> {
    for folder in path.ancestors() {
        let Ok(about) = fs::metadata(folder) else { continue };
        let bit = match (about.uid() == user.uid, about.gid() == user.gid) {
            (true, _) => 0o100,
            (_, true) => 0o010,
            _ => 0o001,
        };
        if about.mode() & bit == 0 {
            return Err(failed(format!(
                "PostgreSQL does not run for the administrator, and user number {} cannot enter {}: chmod o+x it, give \
                 --dir or dir= elsewhere, or run the lab as somebody else",
                user.uid,
                folder.display()
            )));
        }
    }
    Ok(())
}

fn for_user(mut command: Command, user: Option<User>, dir: &Path) -> Command {
    command.current_dir(dir).stdin(Stdio::null());
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// Whether a server could be started with its programs and its data below these folders.
pub fn may_start(folders: &[&Path]) -> Result<()> {
    match user(None)? {
        Some(user) => folders.iter().try_for_each(|folder| may_reach(folder, user)),
        None => Ok(()),
    }
}

/// Makes a data directory in `dir`, if there is none, and starts a server on it.
pub fn start(programs: &Programs, dir: &Path, options: &str, (role, wanted): (&str, Option<&str>)) -> Result<Private> {
    let dir = fs::canonicalize(dir).map_err(io("find", dir))?;
    let user = user(wanted)?;
    if let Some(user) = user {
        may_reach(&dir, user)?;
        may_reach(&programs.bin, user)?;
    }
    let data = dir.join("data");
    let own = |path: &Path| match user {
        Some(User { uid, gid }) => chown(path, Some(uid), Some(gid)).map_err(io("give away", path)),
        None => Ok(()),
    };
    if !data.join("PG_VERSION").exists() {
        // For each user one of his own, who owns it.
        let how = format!("{role} of {:?}", user.map(|user| user.uid));
        made::made(&programs.bin.join("initdb"), &how, &data, || {
            fs::create_dir_all(&data).map_err(io("make", &data))?;
            own(&data)?;
            install(programs, user, &dir, &data, role)
        })?;
        let file = data.join("postgresql.conf");
        let text = fs::read_to_string(&file).map_err(io("read", &file))?;
        fs::write(&file, format!("{text}\n{options}")).map_err(io("write", &file))?;
    }
    // A killed one that nobody has asked for its end yet counts as alive for the next one, which finds its number here.
    gone(&data)?;
    let _ = fs::remove_file(data.join("postmaster.pid"));
    let sockets = short_directory()?;
    own(&sockets)?;
    let log = dir.join(ERROR_LOG);
    let file = fs::OpenOptions::new().create(true).append(true).open(&log).map_err(io("write", &log))?;
    let program = programs.bin.join("postgres");
    let mut command = for_user(when_watched(&program), user, &dir);
    command.arg("-D").arg(&data).arg("-k").arg(&sockets).args(["-p", &PORT.to_string()]);
    command.stdout(Stdio::null()).stderr(file);
    // A smart end waits for connections; a fast one does not.
    Private::launch(command, Parts { sockets, log, data, options: options.to_owned(), stop: Signal::INT })
}

fn install(programs: &Programs, user: Option<User>, dir: &Path, data: &Path, role: &str) -> Result<()> {
    let program = programs.bin.join("initdb");
    let mut command = for_user(Command::new(&program), user, dir);
    command.arg("-D").arg(data).args(["-U", role, "--auth=trust", "--encoding=LATIN1", "--locale=C"]);
    command.args(["--data-checksums", "--no-sync"]);
    let output = command.output().map_err(io("start", &program))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("rror") || line.contains("FATAL")).collect();
    Err(failed(format!("{} failed ({}): {}", program.display(), output.status, lines.join("; "))))
}
