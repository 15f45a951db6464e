//! Packages of Debian with all that they need, the C library included: asked for against an empty machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{empty, failed, put, run};
use crate::api::Result;

/// Packages between two lines of progress.
const TOLD_EVERY: usize = 10;

/// Brings the packages of a release and unpacks them.
pub fn fetch((name, release, packages): (&str, &str, &[&str]), folder: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
    let client = Client::new(release, folder)?;
    say(&format!("{name}: reading the lists of {release}"));
    run(client.command("apt-get").args(["-q", "-y", "update"]), &mut |_| ())?;
    let install = |first: &str| {
        let mut command = client.command("apt-get");
        command.args(["-q", "-y", first, "install", "--no-install-recommends"]).args(packages);
        command
    };
    let mut count = 0;
    let asked = run(&mut install("--simulate"), &mut |line| count += usize::from(line.starts_with("Inst ")));
    asked.map_err(|error| {
        failed(format!(
            "{name} is not in {release} as this machine's package sources have it ({error}); another mirror of the same \
             distribution may, or dir=DIRECTORY with programs of your own"
        ))
    })?;
    say(&format!("{name}: {count} packages"));
    let mut there = 0;
    run(&mut install("--download-only"), &mut |line| {
        if line.starts_with("Get:") {
            there += 1;
            if there % TOLD_EVERY == 0 {
                say(&format!("{name}: {there} of {count} packages"));
            }
        }
    })?;
    say(&format!("{name}: unpacking"));
    let part = folder.join("root.part");
    empty(&part)?;
    let debs = fs::read_dir(folder.join("debs")).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    for deb in debs.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|own| own == "deb"))
    {
        run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&part), &mut |_| ())?;
    }
    put(&part, &folder.join("root"))
}

/// The machine's package client with lists of its own.
struct Client {
    options: Vec<String>,
}

impl Client {
    fn new(release: &str, folder: &Path) -> Result<Client> {
        let wrong = |error: std::io::Error| failed(format!("{}: {error}", folder.display()));
        let path = |name: &str| folder.join(name).display().to_string();
        for name in ["apt/sources", "apt/lists/partial", "apt/cache", "debs/partial"] {
            fs::create_dir_all(folder.join(name)).map_err(wrong)?;
        }
        fs::write(folder.join("apt/status"), "").map_err(wrong)?;
        fs::write(folder.join("apt/sources/release.list"), source(&machine()?, release)?).map_err(wrong)?;
        let options = [
            "Dir::Etc::SourceList=/dev/null".to_owned(),
            format!("Dir::Etc::SourceParts={}", path("apt/sources")),
            format!("Dir::State::Lists={}", path("apt/lists")),
            format!("Dir::State::status={}", path("apt/status")),
            format!("Dir::Cache={}", path("apt/cache")),
            format!("Dir::Cache::archives={}", path("debs")),
            "APT::Sandbox::User=".to_owned(),
            "Debug::NoLocking=1".to_owned(),
            "Acquire::Retries=3".to_owned(),
        ];
        Ok(Client { options: options.into() })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
        command.args(self.options.iter().flat_map(|option| ["-o", option]));
        command
    }
}

/// The files that name this machine's package sources.
fn machine() -> Result<Vec<String>> {
    let folder = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| path.extension().is_some_and(|own| own == "list" || own == "sources");
    let mut files: Vec<PathBuf> = folder.filter(is_one).collect();
    files.push("/etc/apt/sources.list".into());
    let texts: Vec<String> = files.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    match texts.is_empty() {
        true => {
            Err(failed("this machine has no package sources of apt, as Debian has them: give dir=DIRECTORY".into()))
        }
        false => Ok(texts),
    }
}

/// The machine's main source, of another release.
fn source(texts: &[String], release: &str) -> Result<String> {
    let all = texts.iter().flat_map(|text| lines(text).into_iter().chain(stanzas(text)));
    // Of updates and security there are suites of their own, with something behind the release's name.
    let main =
        all.filter(|source| !source.suite.contains(['-', '/'])).find(|source| source.components.contains("main"));
    let main = main.ok_or_else(|| {
        failed("no source of whole releases is among this machine's package sources: give dir=DIRECTORY".into())
    })?;
    let signed = main.signed_by.map_or(String::new(), |file| format!("[signed-by={file}] "));
    Ok(format!("deb {signed}{} {release} main\n", main.uri))
}

#[derive(Debug, PartialEq, Eq)]
struct Listed {
    uri: String,
    suite: String,
    components: String,
    signed_by: Option<String>,
}

/// Sources of the form with one line each.
fn lines(text: &str) -> Vec<Listed> {
    let of_line = |line: &str| {
        let rest = line.split('#').next()?.trim().strip_prefix("deb ")?.trim();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let mut words = rest.split_whitespace();
        let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
        Some(Listed {
            uri: words.next()?.into(),
            suite: words.next()?.into(),
            components: words.collect::<Vec<_>>().join(" "),
            signed_by: signed_by.map(str::to_owned),
        })
    };
    text.lines().filter_map(of_line).collect()
}

/// Sources of the form with paragraphs; each suite of one is a source.
fn stanzas(text: &str) -> Vec<Listed> {
    let text: String = text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let mut all = Vec::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            stanza.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
        };
        let is_off = field("Enabled").is_some_and(|value| value == "no");
        if !field("Types").is_some_and(|types| types.split_whitespace().any(|kind| kind == "deb")) || is_off {
            continue;
        }
        let (uris, components) = (field("URIs").unwrap_or_default(), field("Components").unwrap_or_default());
        for suite in field("Suites").unwrap_or_default().split_whitespace() {
            let uri = uris.split_whitespace().next().unwrap_or_default().to_owned();
            // A key may stand in the file itself.
            let signed_by = field("Signed-By").filter(|file| file.starts_with('/'));
            all.push(Listed { uri, suite: suite.into(), components: components.clone(), signed_by });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_own_source_of_another_release() {
        let paragraphs = "Types: deb deb-src\n# an old one\nURIs: http://mirror.invalid/security\nSuites: bookworm-security\n\
                          Components: main\n\nTypes: deb\nURIs: http://mirror.invalid/debian\nSuites: bookworm-updates bookworm\n\
                          Components: main contrib\nSigned-By: /keys/a.gpg\n";
        let wanted = "deb [signed-by=/keys/a.gpg] http://mirror.invalid/debian sid main\n";
        assert_eq!(source(&[paragraphs.into()], "sid").unwrap(), wanted);
        let line = "deb-src http://mirror.invalid/debian bookworm main\n\
                    deb [arch=amd64 signed-by=/keys/a.gpg] http://mirror.invalid/debian bookworm main # mine\n";
        assert_eq!(source(&[line.into()], "sid").unwrap(), wanted);
        let other = "deb http://mirror.invalid/tool stable/ tool\n# deb http://mirror.invalid/debian bookworm main\n";
        assert!(source(&[other.into()], "sid").unwrap_err().to_string().contains("dir=DIRECTORY"));
    }
}
