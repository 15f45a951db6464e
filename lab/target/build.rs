//! Puts the versions of the peers that are built in into the program, as the lock file has them: their crates do not
//! all tell.

// A build script runs on the real machine, before anything of the engine exists.
#![allow(clippy::disallowed_methods)]

const LOCK: &str = "../../Cargo.lock";
const PACKAGES: [&str; 4] = ["fjall", "heed", "redb", "librocksdb-sys"];

fn main() {
    let lock = std::fs::read_to_string(LOCK).unwrap_or_default();
    for package in PACKAGES {
        let version = version(&lock, package).unwrap_or("unknown");
        let name = package.to_uppercase().replace('-', "_");
        println!("cargo:rustc-env=LAB_{name}_VERSION={version}");
    }
    println!("cargo:rerun-if-changed={LOCK}");
    println!("cargo:rerun-if-changed=build.rs");
}

/// The version that follows a package's name.
fn version<'l>(lock: &'l str, package: &str) -> Option<&'l str> {
    let (_, entry) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    entry.split_once('"').map(|(version, _)| version)
}
