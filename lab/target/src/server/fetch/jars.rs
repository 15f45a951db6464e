//! Servers inside files of Maven's registry, which applications start for their tests: brought and checked by its client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::binaries::find;
use super::{DEPTH, empty, executable, failed, put, run};
use crate::api::Result;

/// Brings a file and unpacks it into the form that every installation has: `bin`, `share`, and if it comes with it `data`.
pub fn fetch((name, artifact): (&str, &str), folder: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
    say(&format!("{name}: asking Maven for {artifact}"));
    let (all, part) = (folder.join("all"), folder.join("root.part"));
    empty(&all)?;
    empty(&part)?;
    let mut command = Command::new("mvn");
    // A checksum that is wrong is an error.
    command.current_dir(folder).args(["--quiet", "--batch-mode", "--strict-checksums", "dependency:unpack"]);
    command.arg(format!("-Dartifact={artifact}")).arg(format!("-DoutputDirectory={}", all.display()));
    run(&mut command, &mut |_| ())?;
    say(&format!("{name}: unpacking"));
    let of_this_machine = |path: &PathBuf| {
        let text = path.to_string_lossy().to_lowercase();
        text.contains("linux") && !text.contains("i386")
    };
    let server = find(&all, DEPTH, &|name| name == "mysqld" || name == "mariadbd").into_iter().find(of_this_machine);
    let server = server.ok_or_else(|| failed(format!("{artifact} holds no server for this machine")))?;
    let wrong = |error: std::io::Error| failed(format!("{}: {error}", folder.display()));
    match server.parent().filter(|parent| parent.ends_with("bin")).and_then(Path::parent) {
        // A whole installation.
        Some(base) => {
            fs::remove_dir(&part).and_then(|()| fs::rename(base, &part)).map_err(wrong)?;
        }
        // Programs by system, and files for all of them in archives beside it.
        None => {
            fs::create_dir_all(part.join("bin")).map_err(wrong)?;
            fs::rename(&server, part.join("bin/mysqld")).map_err(wrong)?;
            let beside = server.parent().and_then(Path::parent).unwrap_or(&all);
            unpack(&beside.join("share_dir.jar"), &part)?;
            unpack(&beside.join("data_dir.jar"), &part.join("data"))?;
            let _ = fs::remove_dir_all(part.join("data/META-INF"));
        }
    }
    // An archive of this kind keeps no permissions.
    let folders = ["bin", "scripts"].map(|folder| fs::read_dir(part.join(folder)));
    for program in folders.into_iter().flatten().flatten().flatten() {
        executable(&program.path())?;
    }
    fs::remove_dir_all(&all).map_err(wrong)?;
    put(&part, &folder.join("root"))
}

fn unpack(archive: &Path, place: &Path) -> Result<()> {
    fs::create_dir_all(place).map_err(|error| failed(format!("{}: {error}", place.display())))?;
    let unzip = run(Command::new("unzip").arg("-q").arg("-o").arg(archive).arg("-d").arg(place), &mut |_| ());
    // It comes with the same kit as the client.
    unzip.or_else(|_| run(Command::new("jar").current_dir(place).arg("xf").arg(archive), &mut |_| ()))
}
