//! Who may import whom: `layers.toml` against the manifests.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use crate::tree::Tree;

const FILE: &str = "layers.toml";
const RULE: &str = "layers";

/// For each folder of a crate: the folders it may import, in code (`[layers]`) and in tests also (`[tests]`).
#[derive(Debug, Default)]
struct Layers {
    code: BTreeMap<String, Vec<String>>,
    tests: BTreeMap<String, Vec<String>>,
}

/// Every dependency between our own crates must stand in `layers.toml`, and every crate must.
pub fn imports(tree: &Tree, findings: &mut Findings) {
    let Some(text) = tree.texts.get(FILE) else {
        findings.add(RULE, FILE, 0, FILE, "missing");
        return;
    };
    let layers = parse(text);
    let short = short_names(tree);
    for (dir, _) in tree.crates() {
        let manifest = format!("{dir}/Cargo.toml");
        let Some(allowed) = layers.code.get(&dir) else {
            findings.add(RULE, FILE, 0, &manifest, format!("{dir} is not listed"));
            continue;
        };
        for (line, dependency, is_test) in dependencies(&tree.texts[&manifest]) {
            let Some(target) = short.get(&dependency).filter(|t| **t != dir) else { continue };
            let in_tests = is_test && layers.tests.get(&dir).is_some_and(|t| t.contains(target));
            if !allowed.contains(target) && !in_tests {
                let kind = if is_test { "tests of " } else { "" };
                findings.add(RULE, &manifest, line, &manifest, format!("{kind}{dir} may not import {target}"));
            }
        }
    }
    let known: BTreeSet<String> = tree.crates().into_iter().map(|(dir, _)| dir).collect();
    for (dir, targets) in layers.code.iter().chain(&layers.tests) {
        for name in targets.iter().chain([dir]).filter(|n| !known.contains(*n)) {
            findings.add(RULE, FILE, 0, name, format!("{name} is no crate"));
        }
    }
}

/// The subset of TOML that the file uses: sections and `"name" = ["a", "b"]`, one entry a line.
fn parse(text: &str) -> Layers {
    let mut layers = Layers::default();
    let mut in_tests = false;
    for line in text.lines().map(|l| l.split('#').next().unwrap_or_default().trim()) {
        if line.starts_with('[') {
            in_tests = line == "[tests]";
        } else if let Some((name, list)) = line.split_once('=') {
            let list = list.trim().trim_matches(['[', ']']);
            let targets = list.split(',').map(|t| t.trim().trim_matches('"').to_owned()).filter(|t| !t.is_empty());
            let map = if in_tests { &mut layers.tests } else { &mut layers.code };
            map.insert(name.trim().trim_matches('"').to_owned(), targets.collect());
        }
    }
    layers
}

/// Names under which manifests import our crates: the package names, and the short names of the workspace.
fn short_names(tree: &Tree) -> BTreeMap<String, String> {
    let mut names: BTreeMap<String, String> = tree.crates().into_iter().map(|(dir, name)| (name, dir)).collect();
    for line in tree.texts.get("Cargo.toml").map_or("", String::as_str).lines() {
        let Some((name, rest)) = line.split_once('=') else { continue };
        if let Some((_, path)) = rest.split_once("path = \"") {
            let dir = path.split('"').next().unwrap_or_default();
            names.insert(name.trim().to_owned(), dir.to_owned());
        }
    }
    names
}

/// Dependencies of a manifest: line, name, whether for tests only: among the dev-dependencies, or optional (a feature
/// for tests).
fn dependencies(manifest: &str) -> Vec<(usize, String, bool)> {
    let (mut found, mut section) = (Vec::new(), "");
    for (i, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            let table = section.rsplit_once("dependencies.");
            if let Some((kind, name)) = table {
                found.push((i + 1, name.to_owned(), kind.ends_with("dev-")));
            }
        } else if section.ends_with("dependencies") && !line.is_empty() && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            let is_test = section.ends_with("dev-dependencies") || line.contains("optional = true");
            found.push((i + 1, name.to_owned(), is_test));
        }
    }
    found
}
