//! What may not be called: the operating system outside `vfs`, `unwrap` outside tests, `unsafe` outside the
//! files that are known for it.

use super::Findings;
use crate::tree::Tree;

/// Doors to the operating system other than `vfs`. A prefix covers what is below it.
const DOORS: [&str; 16] = [
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::Condvar",
    "std::sync::Barrier",
    "std::sync::mpsc",
    "std::collections::hash_map::RandomState",
    "parking_lot",
    "rustix",
    "rand",
];

/// Behind a door, but neither waiting nor asking anybody.
const HARMLESS: [&str; 1] = ["std::thread::panicking"];

/// The engine reaches files, threads, waits, clock and randomness through `vfs` alone, so that the simulator
/// can schedule and break them.
pub fn banned(tree: &Tree, findings: &mut Findings) {
    for (path, source) in &tree.sources {
        // The command line is a program of its own, on top of the engine.
        if !path.starts_with("crates/") || path.starts_with("crates/cli/") {
            continue;
        }
        let mut places: Vec<(usize, String)> = source.uses();
        for door in DOORS {
            let path_into = if door.contains("::") { door.to_owned() } else { format!("{door}::") };
            let inside = source.find(&path_into).into_iter();
            let inside = inside.filter(|at| !HARMLESS.iter().any(|h| source.code[*at..].starts_with(h)));
            places.extend(inside.map(|at| (at, door.to_owned())));
        }
        let mut found: Vec<(usize, &str)> = places
            .iter()
            .filter(|(at, _)| !source.is_test(*at))
            .filter_map(|(at, path)| Some((source.line(*at), door_of(path)?)))
            .collect();
        found.sort_unstable();
        found.dedup();
        for (line, door) in found {
            findings.add("door", path, line, path, format!("{door} outside vfs"));
        }
    }
}

/// The door that a path leads through, if any.
fn door_of(path: &str) -> Option<&'static str> {
    let path = path.trim_start_matches("::");
    DOORS.into_iter().find(|door| path.strip_prefix(door).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
}

/// A fault is an error; an invariant is an `expect` that states it.
pub fn unwraps(tree: &Tree, findings: &mut Findings) {
    for (path, source) in &tree.sources {
        for at in source.find(".unwrap()").into_iter().filter(|at| !source.is_test(*at)) {
            findings.add("unwrap", path, source.line(at), path, "unwrap outside tests");
        }
    }
}

/// `unsafe` only in the files that `xtask/allow.txt` lists, one small file a crate.
pub fn unsafe_code(tree: &Tree, findings: &mut Findings) {
    for (path, source) in &tree.sources {
        for at in source.find("unsafe") {
            findings.add("unsafe", path, source.line(at), path, "unsafe in a file not known for it");
        }
    }
}
