//! Documents that do not rot: what they name exists.

use super::Findings;
use crate::source::Source;
use crate::tree::{Tree, normalise};

const INVARIANTS: &str = "docs/INVARIANTS.md";

/// Folders a path of ours starts with.
const ROOMS: [&str; 8] = ["crates/", "lab/", "testing/", "xtask/", "docs/", "fuzz/", "mariadb/", ".ci/"];

/// Links and paths in documents lead somewhere. `path/file.rs::item` names an item in the file.
pub fn links(tree: &Tree, findings: &mut Findings) {
    for (path, text) in tree.texts.iter().filter(|(p, _)| is_document(p)) {
        let mut fenced = false;
        for (i, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            let quoted = line.split('`').skip(1).step_by(2);
            let named = quoted.filter(|q| !fenced && ROOMS.iter().any(|r| q.starts_with(r)));
            for name in named {
                if let Err(what) = resolve(tree, name) {
                    findings.add("doc-link", path, i + 1, path, what);
                }
            }
            for target in link_targets(line) {
                let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
                let full = normalise(&format!("{dir}/{target}"));
                if !tree.files.contains(&full) && !tree.dirs.contains(&full) {
                    findings.add("doc-link", path, i + 1, path, format!("link to {target}: no such file"));
                }
            }
        }
    }
}

fn is_document(path: &str) -> bool {
    path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/'))
}

fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.filter(|t| !t.is_empty() && !t.contains("://") && !t.starts_with("mailto:"))
}

fn resolve(tree: &Tree, name: &str) -> Result<(), String> {
    let name = name.split_whitespace().next().unwrap_or_default().trim_end_matches('/');
    let (path, item) = name.split_once("::").map_or((name, None), |(p, i)| (p, Some(i)));
    if path.contains(['*', '<', 'N']) {
        return Ok(());
    }
    if !tree.files.contains(path) && !tree.dirs.contains(path) {
        return Err(format!("`{path}`: no such file"));
    }
    let Some(item) = item else { return Ok(()) };
    let Some(source) = tree.sources.get(path) else { return Err(format!("`{name}`: not a Rust file")) };
    let last = item.trim_end_matches("()").rsplit("::").next().unwrap_or_default();
    if defines(source, last) { Ok(()) } else { Err(format!("`{path}` has no item `{last}`")) }
}

/// True if the file defines an item, method, field or variant of this name.
fn defines(source: &Source, name: &str) -> bool {
    const KINDS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];
    source.find(name).into_iter().any(|at| {
        let before = source.code[..at].trim_end();
        let line_start = source.code[..at].rfind('\n').map_or(0, |n| n + 1);
        let opens_line = source.code[line_start..at].trim().trim_start_matches("pub").is_empty();
        KINDS.iter().any(|k| before.ends_with(k)) || opens_line
    })
}

/// The table of invariants: each row `| number | relation | asserted in | tests |` has a number of its own
/// and at least one test, and each test named there exists.
pub fn invariants(tree: &Tree, findings: &mut Findings) {
    let Some(text) = tree.texts.get(INVARIANTS) else {
        findings.add("invariant", INVARIANTS, 0, INVARIANTS, "missing");
        return;
    };
    let mut numbers: Vec<&str> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let is_row = line.starts_with('|') && cells.len() == 4 && is_number(cells[0]);
        if !is_row {
            continue;
        }
        if numbers.contains(&cells[0]) {
            findings.add("invariant", INVARIANTS, i + 1, cells[0], format!("{} stands twice", cells[0]));
        }
        numbers.push(cells[0]);
        let tests: Vec<&str> = cells[3].split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            findings.add("invariant", INVARIANTS, i + 1, cells[0], format!("{} names no test", cells[0]));
        }
        for test in tests.iter().filter(|t| !has_test(tree, t)) {
            findings.add("invariant", INVARIANTS, i + 1, cells[0], format!("{}: no test `{test}`", cells[0]));
        }
    }
}

/// A letter and digits: `A12`, `P9`, `T3`.
fn is_number(cell: &str) -> bool {
    let digits = cell.trim_start_matches(|c: char| c.is_ascii_uppercase());
    !digits.is_empty() && digits.len() < cell.len() && digits.chars().all(|c| c.is_ascii_digit())
}

/// True if some test function, or some named check of the conformance suite, has this name.
fn has_test(tree: &Tree, name: &str) -> bool {
    let name = name.trim_end_matches("()").rsplit("::").next().unwrap_or_default();
    let definition = format!("fn {name}");
    tree.sources.values().any(|s| {
        let checks = s.path.contains("/conformance");
        s.find(&definition).into_iter().any(|at| checks || s.is_test(at))
    })
}
