//! `make soak`: the simulator and the killed processes in turns, with seeds that were never tried, until the time is
//! over. Where it stands is kept in `target/soak`, so that the next soak goes on; what failed is in its log, with the
//! command that plays it again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::cargo;

/// The first seed of the first soak: above those of `make test`.
const FIRST: u64 = 1_000_000;
/// Seeds and kills of one turn: some minutes.
const SEEDS: u64 = 1000;
const KILLS: u64 = 50;

/// Turns for `seconds`; true if nothing failed. A turn that began is finished.
pub fn run(root: &Path, seconds: u64) -> bool {
    let mut build = cargo(&["build", "--workspace", "--bins", "--locked", "--profile", "sim"]);
    if !succeeds(build.current_dir(root)) {
        return false;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let target = root.join(target);
    let folder = target.join("soak");
    match turns(&target.join("sim"), &folder, Duration::from_secs(seconds)) {
        Ok(failures) => failures == 0,
        Err(error) => {
            println!("soak: {}: {error}", folder.display());
            false
        }
    }
}

fn turns(programs: &Path, folder: &Path, time: Duration) -> std::io::Result<u64> {
    fs::create_dir_all(folder)?;
    let place = folder.join("next");
    let mut log = OpenOptions::new().create(true).append(true).open(folder.join("log.txt"))?;
    let mut next = fs::read_to_string(&place).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(FIRST);
    let (began, mut failures) = (Instant::now(), 0);
    while began.elapsed() < time {
        for (program, verb, count) in
            [("trefoil-sim", "seeds", SEEDS), ("trefoil-histories", "seeds", SEEDS), ("trefoil-crash", "kills", KILLS)]
        {
            let (count, seed) = (count.to_string(), next.to_string());
            let output =
                Command::new(programs.join(program)).args([verb, &count, &seed]).stdin(Stdio::null()).output()?;
            let ok = output.status.success();
            let line = format!("{} {program} {verb} {count} {seed}", if ok { "passed" } else { "FAILED" });
            println!("{line}");
            writeln!(log, "{line}")?;
            if !ok {
                failures += 1;
                log.write_all(&output.stdout)?;
                log.write_all(&output.stderr)?;
            }
        }
        next += SEEDS;
        fs::write(&place, next.to_string())?;
    }
    let whole = began.elapsed().as_secs();
    println!("soak: {whole} s, {failures} failures; {}", folder.join("log.txt").display());
    Ok(failures)
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}
