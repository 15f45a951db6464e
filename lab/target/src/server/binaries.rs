//! Where the programs of a server are: in a directory that is named, or the pinned packages of `mariadb/mariadb.sh`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use super::parameters::Engine;
use crate::api::{Result, TargetError};

const SCRIPT: &str = "mariadb/mariadb.sh";
/// Folders below a directory of binaries in which a program may lie.
const PROGRAMS: [&str; 6] = ["bin", "sbin", "libexec", "scripts", "usr/sbin", "usr/bin"];
/// How deep libraries are looked for.
const DEPTH: usize = 6;

/// What a private server is started from.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// The server.
    pub server: PathBuf,
    /// What makes a data directory.
    pub install: PathBuf,
    /// The root of the installation.
    pub base: PathBuf,
    /// Messages in English, where the server does not find them by itself.
    pub messages: Option<PathBuf>,
    /// The folder of the engine's plugin.
    pub plugins: Option<PathBuf>,
    /// Folders with libraries that the machine may lack.
    pub libraries: Vec<PathBuf>,
}

fn failed(what: String) -> TargetError {
    TargetError::Failed(format!("server: {what}"))
}

impl Binaries {
    /// Finds them, fetching and building what belongs to the pinned packages.
    pub fn find(dir: Option<&Path>, engine: &Engine) -> Result<Binaries> {
        let root = match dir {
            Some(dir) => std::fs::canonicalize(dir).map_err(|error| failed(format!("{}: {error}", dir.display())))?,
            None => pinned(engine)?,
        };
        let program = |names: &[&str]| {
            let folders =
                ["", "root"].into_iter().flat_map(|nested| PROGRAMS.map(|folder| root.join(nested).join(folder)));
            let places = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
            places.into_iter().find(|path| path.is_file())
        };
        let missing = |name: &str| failed(format!("there is no {name} below {}", root.display()));
        let server = program(&["mariadbd", "mysqld"]).ok_or_else(|| missing("mariadbd"))?;
        let install =
            program(&["mariadb-install-db", "mysql_install_db"]).ok_or_else(|| missing("mariadb-install-db"))?;
        let base = server.parent().and_then(Path::parent).unwrap_or(&root).to_owned();
        let plugins = match engine.plugin() {
            None => None,
            Some(plugin) => {
                let found = find(&root, DEPTH, &|name| name == plugin);
                let folder = found.first().and_then(|path| path.parent()).map(Path::to_owned);
                Some(folder.ok_or_else(|| missing(plugin))?)
            }
        };
        let mut libraries: Vec<PathBuf> = find(&root, DEPTH, &|name| name.starts_with("lib") && name.contains(".so."))
            .iter()
            .filter_map(|path| path.parent().map(Path::to_owned))
            .collect();
        libraries.sort_unstable();
        libraries.dedup();
        let messages = base.join("share/mysql");
        let messages = messages.join("english").is_dir().then_some(messages);
        Ok(Binaries { server, install, base, messages, plugins, libraries })
    }
}

/// Files whose name pleases, in folders down to a depth.
fn find(dir: &Path, depth: usize, wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type());
        if kind.as_ref().is_ok_and(|kind| kind.is_dir()) {
            if depth > 0 && !matches!(entry.file_name().to_str(), Some("debs" | "src" | "suites" | "data" | "objects"))
            {
                found.extend(find(&path, depth - 1, wanted));
            }
        } else if entry.file_name().to_str().is_some_and(wanted) {
            found.push(path);
        }
    }
    found
}

/// The folder of the pinned packages, with what the engine needs: once a process, and by one thread at a time.
fn pinned(engine: &Engine) -> Result<PathBuf> {
    static READY: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());
    let mut ready = READY.lock().map_err(|_| failed("a thread panicked while it fetched MariaDB".into()))?;
    if let Some((_, path)) = ready.iter().find(|(name, _)| name == engine.name()) {
        return Ok(path.clone());
    }
    let path = prepared(engine)?;
    ready.push((engine.name().to_owned(), path.clone()));
    Ok(path)
}

fn prepared(engine: &Engine) -> Result<PathBuf> {
    let script = script().ok_or_else(|| {
        failed(format!("{SCRIPT} is not found from here: run inside the repository, or name a directory with dir="))
    })?;
    match engine {
        Engine::Trefoil => run(&script, &["build"])?,
        Engine::RocksDb => run(&script, &["fetch", "rocksdb"])?,
        Engine::InnoDb | Engine::Other(_) => run(&script, &["fetch"])?,
    };
    Ok(PathBuf::from(run(&script, &["where"])?.trim()))
}

/// The script, looked for upwards from the working directory and from the program.
fn script() -> Option<PathBuf> {
    let places = [std::env::current_dir().ok(), std::env::current_exe().ok()];
    let upwards = places.iter().flatten().flat_map(|place| place.ancestors());
    upwards.map(|folder| folder.join(SCRIPT)).find(|path| path.is_file())
}

fn run(script: &Path, arguments: &[&str]) -> Result<String> {
    let command = format!("{SCRIPT} {}", arguments.join(" "));
    let output = Command::new(script).args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| failed(format!("{command}: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!("{command} failed; what it said is above")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
