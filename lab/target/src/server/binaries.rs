//! Where the programs of a server are: in a directory that is named, the pinned packages of `mariadb/mariadb.sh`, or packages
//! that `fetch` brings; and what each version needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use super::parameters::{Engine, Product};
use super::{fetch, private};
use crate::api::{Result, TargetError};

const SCRIPT: &str = "mariadb/mariadb.sh";
/// Folders below a directory of binaries in which a program may lie.
const PROGRAMS: [&str; 6] = ["bin", "sbin", "libexec", "scripts", "usr/sbin", "usr/bin"];
/// How deep libraries are looked for.
const DEPTH: usize = 6;

/// How a data directory is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Install {
    /// By a program beside the server.
    Program(PathBuf),
    /// By the server, which can do it since MySQL 5.7.
    ByItself,
    /// By a server that reads the system's tables from this folder.
    Bootstrap(PathBuf),
    /// It comes with the packages.
    Copy(PathBuf),
}

/// What a private server is started from.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// The server.
    pub server: PathBuf,
    /// How a data directory is made.
    pub install: Install,
    /// The root of the installation.
    pub base: PathBuf,
    /// Messages in English, where the server does not find them by itself.
    pub messages: Option<PathBuf>,
    /// The folder of the engine's plugin.
    pub plugins: Option<PathBuf>,
    /// Folders with libraries that the machine may lack.
    pub libraries: Vec<PathBuf>,
    /// Whether it is MariaDB.
    pub is_mariadb: bool,
    /// Its version: two numbers.
    pub version: (u32, u32),
}

fn failed(what: String) -> TargetError {
    TargetError::Failed(format!("server: {what}"))
}

impl Binaries {
    /// Finds them, fetching and building what belongs to packages.
    pub fn find(product: Product, version: Option<&str>, dir: Option<&Path>, engine: &Engine) -> Result<Binaries> {
        let root = match (dir, product, version) {
            (Some(dir), ..) => fs::canonicalize(dir).map_err(|error| failed(format!("{}: {error}", dir.display())))?,
            (None, Product::MariaDb, None) => pinned(engine)?,
            (None, ..) => fetched(product, version)?,
        };
        let missing = |name: &str| failed(format!("there is no {name} below {}", root.display()));
        let names: &[&str] = if product == Product::MySql { &["mysqld"] } else { &["mariadbd", "mysqld"] };
        let server = program(&root, names).ok_or_else(|| missing(names[0]))?;
        let base = server.parent().and_then(Path::parent).unwrap_or(&root).to_owned();
        let plugins = match engine.plugin() {
            None => None,
            Some(plugin) => {
                let found = find(&root, DEPTH, &|name| name == plugin);
                let folder = found.first().and_then(|path| path.parent()).map(Path::to_owned);
                Some(folder.ok_or_else(|| missing(plugin))?)
            }
        };
        let mut binaries = Binaries {
            install: Install::ByItself,
            messages: [base.join("share/mysql"), base.join("share")].into_iter().find(|path| has_messages(path)),
            libraries: if fetch::brings_its_own_loader(&root) { Vec::new() } else { libraries(&root) },
            server,
            base,
            plugins,
            is_mariadb: true,
            version: (0, 0),
        };
        (binaries.is_mariadb, binaries.version) = binaries.asked_version()?;
        if binaries.is_mariadb != (product == Product::MariaDb) {
            return Err(failed(format!("{} is not {}", binaries.server.display(), product.name())));
        }
        let data = root.join("data/mysql");
        let tables = find(&root, DEPTH, &|name| name == "mysql_system_tables.sql");
        binaries.install = match program(&root, &["mariadb-install-db", "mysql_install_db"]) {
            Some(program) if binaries.is_mariadb => Install::Program(program),
            _ if data.is_dir() => Install::Copy(root.join("data")),
            _ if !binaries.is_mariadb && binaries.version >= (5, 7) => Install::ByItself,
            _ => match tables.first().and_then(|path| path.parent()) {
                Some(folder) => Install::Bootstrap(folder.to_owned()),
                None => return Err(missing("mariadb-install-db")),
            },
        };
        Ok(binaries)
    }

    /// What `--version` says: whether it is MariaDB, and two numbers.
    fn asked_version(&self) -> Result<(bool, (u32, u32))> {
        let mut command = Command::new(&self.server);
        private::with_libraries(&mut command, self);
        let output = command.args(["--no-defaults", "--version"]).stdin(Stdio::null()).output();
        let output = output.map_err(|error| failed(format!("{}: {error}", self.server.display())))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = text.split_whitespace().skip_while(|word| *word != "Ver").nth(1).unwrap_or_default();
        let mut numbers = words.split(|letter: char| !letter.is_ascii_digit()).map_while(|part| part.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) => Ok((text.contains("MariaDB"), (major, minor))),
            _ => Err(failed(format!(
                "{} --version says: {}",
                self.server.display(),
                [text.trim(), String::from_utf8_lossy(&output.stderr).trim()].join(" ")
            ))),
        }
    }

    /// Settings without which a version would do something else than the others.
    pub fn settings(&self, binlog: bool) -> Vec<(String, String)> {
        let mut all: Vec<(&str, &str)> = Vec::new();
        if !self.is_mariadb {
            // Packages name a folder that is not there, and a log that others do not have.
            if self.version >= (5, 7) {
                all.push(("secure_file_priv", ""));
            }
            if self.version >= (8, 0) {
                all.push(("mysqlx", "OFF"));
            }
            if self.version >= (8, 0) && !binlog {
                all.push(("disable_log_bin", "1"));
            }
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

fn has_messages(path: &Path) -> bool {
    path.join("english").is_dir()
}

/// A program by one of these names.
fn program(root: &Path, names: &[&str]) -> Option<PathBuf> {
    let folders = ["", "root"].into_iter().flat_map(|nested| PROGRAMS.map(|folder| root.join(nested).join(folder)));
    let places = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    places.into_iter().find(|path| path.is_file())
}

/// Folders of libraries.
fn libraries(root: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = find(root, DEPTH, &|name| name.starts_with("lib") && name.contains(".so."))
        .iter()
        .filter_map(|path| path.parent().map(Path::to_owned))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The folder of packages that `lab fetch` brings; the version without which none is wanted is the newest.
pub fn fetched(product: Product, version: Option<&str>) -> Result<PathBuf> {
    let wanted = fetch::Wanted::of(product, version)?;
    fetch::fetch(&wanted, &mut |line| eprintln!("fetch: {line}"))
}

/// Files whose name pleases, in folders down to a depth.
pub fn find(dir: &Path, depth: usize, wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
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
    let Some(script) = script() else {
        return match engine {
            // A lab without its checkout: the same version, as anybody may have it.
            Engine::InnoDb => fetched(Product::MariaDb, None),
            _ => Err(failed(format!(
                "engine {} of a private server comes by {SCRIPT}, which is not found from here: run inside the checkout, or name a \
                 directory of binaries with dir=",
                engine.name()
            ))),
        };
    };
    match engine {
        Engine::Trefoil => run(&script, &["build"])?,
        Engine::RocksDb => run(&script, &["fetch", "rocksdb"])?,
        Engine::InnoDb | Engine::Postgres | Engine::Other(_) => run(&script, &["fetch"])?,
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
