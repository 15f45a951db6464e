//! A private server: its own data directory below the run's, a unix socket in a short path, no network. It ends with this
//! value, whatever ends that, and with this process: a shell beside it waits for the end of a pipe that only this process
//! holds, and kills it then.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};

use super::binaries::{Binaries, Install};
use super::made;
use crate::api::{Result, TargetError};

/// A socket's path has at most 107 bytes.
const SOCKET_PATH_MAX: usize = 107;
const START_LIMIT: Duration = Duration::from_secs(180);
const STOP_LIMIT: Duration = Duration::from_secs(120);
/// A server's log, beside its data.
pub const ERROR_LOG: &str = "error.log";
/// Lines of the error log that are shown when it does not start.
const TAIL: usize = 15;
const POLL: Duration = Duration::from_millis(30);

pub fn failed(what: String) -> TargetError {
    TargetError::Failed(format!("server: {what}"))
}

pub fn io(what: &str, path: &Path) -> impl Fn(std::io::Error) -> TargetError {
    let text = format!("cannot {what} {}", path.display());
    move |error| failed(format!("{text}: {error}"))
}

/// A server that runs.
pub struct Private {
    child: Child,
    watchdog: Child,
    sockets: PathBuf,
    log: PathBuf,
    stop: Signal,
    /// Its data directory.
    pub data: PathBuf,
    /// The option file that it was started with.
    pub options: String,
}

/// What belongs to a server beside its process.
pub struct Parts {
    /// A directory for its socket, removed at the end.
    pub sockets: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// Its data directory.
    pub data: PathBuf,
    /// The option file that it was started with.
    pub options: String,
    /// How it is told to end in good order.
    pub stop: Signal,
}

impl Private {
    /// Starts a server; `command` is one of [`when_watched`].
    pub fn launch(mut command: Command, parts: Parts) -> Result<Private> {
        // A Ctrl-C is for the lab, which stops the server when it has stopped asking it.
        command.process_group(0).stdin(Stdio::piped());
        gone(&parts.data)?;
        let watchdog = watchdog().map_err(|error| failed(format!("no watchdog: {error}")))?;
        let child = command.spawn().map_err(|error| failed(format!("cannot start sh: {error}")))?;
        let Parts { sockets, log, data, options, stop } = parts;
        let mut server = Private { child, watchdog, sockets, log, stop, data, options };
        let number = server.child.id();
        let told = server.watchdog.stdin.as_mut().map_or(Ok(()), |pipe| writeln!(pipe, "{number}"));
        told.map_err(|error| failed(format!("no watchdog: {error}")))?;
        let go = server.child.stdin.take().map_or(Ok(()), |mut pipe| writeln!(pipe));
        go.map_err(|error| failed(format!("cannot start it: {error}")))?;
        Ok(server)
    }

    /// Makes a data directory in `dir` and starts a server on it. `has_innodb` is false where its files are in somebody's way,
    /// `listens` where it is asked through its socket alone.
    pub fn start(
        binaries: &Binaries,
        dir: &Path,
        settings: &str,
        (has_innodb, listens): (bool, bool),
    ) -> Result<Private> {
        // A path in an option file or on the command line of a server is best a whole one.
        let dir = fs::canonicalize(dir).map_err(io("find", dir))?;
        let (data, options, temporary) = (dir.join("data"), dir.join("server.cnf"), dir.join("tmp"));
        // A server that starts removes what it takes for remains in this directory, also those of a server that runs.
        fs::create_dir_all(&temporary).map_err(io("make", &temporary))?;
        // After a crash it is there already.
        if !data.join("mysql").exists() {
            made::made(&binaries.server, "data", &data, || install(binaries, &dir, &data))?;
            if !has_innodb {
                forget_innodb(&data)?;
            }
        }
        let sockets = short_directory()?;
        fs::write(&options, settings).map_err(io("write", &options))?;
        let log = dir.join(ERROR_LOG);
        let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut command = when_watched(&binaries.server);
        command.arg(path("defaults-file", &options));
        command.args([path("basedir", &binaries.base), path("datadir", &data), path("log-error", &log)]);
        command.args([path("socket", &sockets.join("socket")), path("pid-file", &sockets.join("pid"))]);
        command.arg(path("tmpdir", &temporary));
        command.args(binaries.messages.iter().map(|messages| path("lc-messages-dir", messages)));
        command.args(binaries.plugins.iter().map(|plugins| path("plugin-dir", plugins)));
        command.args((!listens).then_some("--skip-networking")).args(user().map(|user| format!("--user={user}")));
        with_libraries(&mut command, binaries);
        // What is said before it has opened its log, by the shell or the loader.
        let early = fs::OpenOptions::new().create(true).append(true).open(&log).map_err(io("write", &log))?;
        command.stdout(Stdio::null()).stderr(early);
        Private::launch(command, Parts { sockets, log, data, options: settings.to_owned(), stop: Signal::TERM })
    }

    /// The directory of its socket.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.sockets.join("socket")
    }

    /// Calls `connect` until it succeeds or the server is gone.
    pub fn wait<T, E: std::fmt::Display>(&mut self, connect: impl Fn() -> Result<T, E>) -> Result<T> {
        let began = Instant::now();
        loop {
            let error = match connect() {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(failed(format!("it did not start ({status}); its log ends with\n{}", self.tail())));
            }
            if began.elapsed() > START_LIMIT {
                return Err(failed(format!("it does not answer ({error}); its log ends with\n{}", self.tail())));
            }
            std::thread::sleep(POLL);
        }
    }

    /// The end of its log.
    pub fn tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Lines of its log that warn of a setting.
    pub fn warnings(&self) -> Vec<String> {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter(|line| super::knobs::is_told_to_be_void(line)).map(str::to_owned).collect()
    }

    /// Ends it in good order.
    pub fn stop(&mut self) -> Result<()> {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let process = Pid::from_raw(self.child.id() as i32);
            let _ = process.map(|process| kill_process(process, self.stop));
            let began = Instant::now();
            while self.child.try_wait().is_ok_and(|status| status.is_none()) {
                if began.elapsed() > STOP_LIMIT {
                    return Err(failed(format!("it did not stop; its log ends with\n{}", self.tail())));
                }
                std::thread::sleep(POLL);
            }
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(format!("it ended with {status}; its log ends with\n{}", self.tail()))),
            Err(error) => Err(failed(format!("it cannot be waited for: {error}"))),
        }
    }
}

impl Drop for Private {
    /// Whatever is left of it is killed; nobody is there to be told of an error.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let _ = fs::remove_dir_all(&self.sockets);
    }
}

/// Waits for the end of a server that was killed on this directory: each of its processes works in it.
pub fn gone(data: &Path) -> Result<()> {
    let works_there = |entry: &fs::DirEntry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data);
    let began = Instant::now();
    while fs::read_dir("/proc").into_iter().flatten().flatten().any(|entry| works_there(&entry)) {
        if began.elapsed() > STOP_LIMIT {
            return Err(failed(format!("another server works in {}", data.display())));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// A server that begins when it is told to on its standard input: a shell becomes it, so the number stays. One that nobody
/// can tell any more, whose lab ended before its watchdog knew the number, never begins.
pub fn when_watched(program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "read -r _ || exit; exec \"$0\" \"$@\" </dev/null"]).arg(program);
    command
}

/// Kills the server whose number it reads when this process is gone without having done so.
fn watchdog() -> std::io::Result<Child> {
    let mut command = Command::new("sh");
    command
        .args(["-c", "read -r server || exit; read -r _; kill -KILL \"$server\""])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn()
}

/// Makes a data directory.
fn install(binaries: &Binaries, dir: &Path, data: &Path) -> Result<()> {
    let log = dir.join("install.log");
    let out = fs::File::create(&log).map_err(io("write", &log))?;
    let err = out.try_clone().map_err(io("write", &log))?;
    let mut command = match &binaries.install {
        Install::Copy(from) => return made::copy(from, data),
        Install::Program(program) => {
            let mut command = Command::new(program);
            command.arg("--no-defaults");
            if binaries.version >= (10, 4) {
                command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
            }
            command.stdin(Stdio::null());
            command
        }
        Install::ByItself => {
            let mut command = Command::new(&binaries.server);
            command.args(["--no-defaults", "--initialize-insecure", "--secure-file-priv="]).stdin(Stdio::null());
            command
        }
        Install::Bootstrap(folder) => {
            let mut command = Command::new(&binaries.server);
            command.args(["--no-defaults", "--bootstrap", "--default-storage-engine=MyISAM"]);
            fs::create_dir_all(data.join("mysql")).map_err(io("make", data))?;
            command.stdin(system_tables(folder, dir)?);
            command
        }
    };
    command.arg(format!("--basedir={}", binaries.base.display())).arg(format!("--datadir={}", data.display()));
    command.arg(format!("--tmpdir={}", dir.join("tmp").display()));
    let tells = matches!(binaries.install, Install::Program(_));
    command
        .args(binaries.messages.iter().filter(|_| !tells).map(|path| format!("--lc-messages-dir={}", path.display())));
    command.args(user().map(|user| format!("--user={user}")));
    with_libraries(&mut command, binaries);
    let program = PathBuf::from(command.get_program());
    let status = command.stdout(out).stderr(err).status().map_err(io("start", &program))?;
    if status.success() {
        return Ok(());
    }
    // The script ends with a page of advice.
    let text = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let errors: Vec<&str> = text.lines().filter(|line| line.to_lowercase().contains("error")).take(TAIL).collect();
    let (program, log) = (program.display(), log.display());
    Err(failed(format!("{program} failed ({status}), its log is {log}:\n{}", errors.join("\n"))))
}

/// The statements that make the system's tables, as the server reads them at its first start.
fn system_tables(folder: &Path, dir: &Path) -> Result<fs::File> {
    let mut text = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\n".to_owned();
    for name in ["mysql_system_tables.sql", "mysql_system_tables_data.sql", "fill_help_tables.sql"] {
        match fs::read(folder.join(name)) {
            Ok(sql) => text.push_str(&String::from_utf8_lossy(&sql)),
            // Help is not needed.
            Err(_) if name.starts_with("fill") => (),
            Err(error) => return Err(io("read", &folder.join(name))(error)),
        }
        text.push('\n');
    }
    let file = dir.join("bootstrap.sql");
    fs::write(&file, text).map_err(io("write", &file))?;
    fs::File::open(&file).map_err(io("read", &file))
}

/// The files of an engine that will not run: they would count as the other's.
fn forget_innodb(data: &Path) -> Result<()> {
    let of_innodb = |name: &str| {
        ["ibdata", "ib_logfile", "ib_buffer_pool", "undo0", "ibtmp"].iter().any(|own| name.starts_with(own))
    };
    for entry in fs::read_dir(data).map_err(io("read", data))?.flatten() {
        if entry.file_name().to_str().is_some_and(of_innodb) {
            fs::remove_file(entry.path()).map_err(io("remove", &entry.path()))?;
        }
    }
    Ok(())
}

/// The administrator has to be named: a server does not run as that by itself.
fn user() -> Option<&'static str> {
    getuid().is_root().then_some("root")
}

pub fn with_libraries(command: &mut Command, binaries: &Binaries) {
    let own = std::env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty());
    let all = binaries.libraries.iter().cloned().chain(own.map(PathBuf::from));
    let all: Vec<String> = all.map(|path| path.display().to_string()).collect();
    if !all.is_empty() {
        command.env("LD_LIBRARY_PATH", all.join(":"));
    }
}

/// A directory of this process's own for the socket.
pub fn short_directory() -> Result<PathBuf> {
    // Hands out numbers: relaxed.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let name = format!("lab-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let temporary = std::env::temp_dir().join(&name);
        let is_short = temporary.as_os_str().len() + "/socket".len() <= SOCKET_PATH_MAX;
        let path = if is_short { temporary } else { Path::new("/tmp").join(name) };
        match fs::DirBuilder::new().create(&path) {
            // Left by a process that was killed and had this one's number.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map_err(io("make", &path)).map(|()| path),
        }
    }
}

/// An option file.
pub fn option_file(settings: &[(String, String)], include: Option<&Path>) -> Result<String> {
    let mut out = Vec::new();
    let wrote = (|| {
        // The group that MySQL and every MariaDB reads.
        writeln!(out, "[mysqld]")?;
        settings.iter().try_for_each(|(name, value)| writeln!(out, "{name}={value}"))?;
        // Read behind the rest, so it has the last word.
        include.map_or(Ok(()), |path| writeln!(out, "!include {}", path.display()))
    })();
    wrote.map_err(|error| failed(error.to_string()))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_left_by_another_process_of_this_number_is_passed_over() {
        let first = short_directory().unwrap();
        let name = first.file_name().unwrap().to_str().unwrap().to_owned();
        let (process, number) = name.rsplit_once('-').unwrap();
        // Other tests of this process ask, too: some of the next are there already.
        let next = number.parse::<u32>().unwrap() + 1;
        let left: Vec<PathBuf> = (next..next + 8).map(|n| first.with_file_name(format!("{process}-{n}"))).collect();
        let left: Vec<PathBuf> = left.into_iter().filter(|path| fs::create_dir(path).is_ok()).collect();
        let second = short_directory().unwrap();
        assert!(second != first && !left.contains(&second) && second.is_dir(), "{}", second.display());
        left.iter().chain([&first, &second]).for_each(|path| fs::remove_dir(path).unwrap());
    }

    /// Whether a program that tells its number ended well and told the number of the shell that waited.
    fn begun(told: &str) -> (bool, bool) {
        let mut command = when_watched(Path::new("/bin/sh"));
        command.args(["-c", "echo $$"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let number = format!("{}\n", child.id());
        child.stdin.take().unwrap().write_all(told.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), output.stdout == number.as_bytes())
    }

    #[test]
    fn a_server_begins_when_it_is_watched_and_not_without() {
        assert_eq!(begun("\n"), (true, true));
        assert_eq!(begun(""), (false, false));
    }
}
