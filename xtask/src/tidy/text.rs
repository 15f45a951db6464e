//! What must not stand in any text.

use std::collections::BTreeMap;

use super::Findings;
use crate::source::Source;
use crate::tree::Tree;

/// Marks of unfinished work. Written in two halves so that this file does not hold them.
fn marks() -> [String; 4] {
    [["FIX", "ME"], ["TO", "DO"], ["X", "XX"], ["HA", "CK"]].map(|halves| halves.concat())
}

/// Nothing unfinished, nothing skipped.
pub fn leftovers(tree: &Tree, findings: &mut Findings) {
    for (path, source) in &tree.sources {
        for call in ["todo!", "unimplemented!", "#[ignore", "dbg!"] {
            for at in source.find(call) {
                findings.add("unfinished", path, source.line(at), path, call);
            }
        }
        for mark in marks() {
            for (at, _) in source.text.match_indices(&mark).filter(|(at, _)| is_mark(source, *at, &mark)) {
                findings.add("unfinished", path, source.line(at), path, mark.as_str());
            }
        }
    }
}

/// In a comment, and a word of its own.
fn is_mark(source: &Source, at: usize, mark: &str) -> bool {
    let around = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let alone = around(source.text[..at].chars().next_back()) && around(source.text[at + mark.len()..].chars().next());
    alone && source.code[at..at + mark.len()].trim().is_empty()
}

/// No path of the machine it was written on.
pub fn machine_paths(tree: &Tree, findings: &mut Findings) {
    let roots = ["work", "farm", "home", "root", "Users"].map(|name| format!("/{name}/"));
    let sources = tree.sources.iter().map(|(path, s)| (path, &s.text));
    for (path, text) in sources.chain(&tree.texts) {
        for (i, line) in text.lines().enumerate() {
            for root in &roots {
                for (at, _) in line.match_indices(root.as_str()) {
                    let before = line[..at].chars().next_back();
                    if !before.is_some_and(|c| c.is_alphanumeric() || "_./-}".contains(c)) {
                        findings.add("machine-path", path, i + 1, path, line.trim());
                    }
                }
            }
        }
    }
}

/// No reader that leaves before its pipe ends. Under `pipefail` what writes into it then fails for the closed pipe, now and
/// then: a match that was found looks like none.
pub fn early_readers(tree: &Tree, findings: &mut Findings) {
    let is_script = |path: &str, text: &str| path.ends_with(".sh") || text.starts_with("#!/usr/bin/env bash");
    for (path, text) in tree.texts.iter().filter(|(path, text)| is_script(path, text)) {
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#')) {
            let line = line.replace("||", ";");
            let mut words = line.split('|').skip(1).filter_map(|right| right.trim_start().strip_prefix("grep "));
            if words.any(|after| after.split_whitespace().take_while(|word| word.starts_with('-')).any(is_quiet)) {
                findings.add("early-reader", path, i + 1, path, "`| grep -q`: take the text first, then look in it");
            }
        }
    }
}

fn is_quiet(option: &str) -> bool {
    option == "--quiet" || !option.starts_with("--") && option.contains('q')
}

/// Each function of MariaDB's scripts has a name of its own: `mariadb.sh` sources all of them, and the last one would count.
pub fn same_functions(tree: &Tree, findings: &mut Findings) {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.starts_with("mariadb/") && path.ends_with(".sh")) {
        for (i, line) in text.lines().enumerate() {
            let Some((name, _)) = line.split_once("() {") else { continue };
            if name.chars().all(|c| c.is_alphanumeric() || c == '_')
                && let Some(other) = known.insert(name, path)
            {
                findings.add("same-function", path, i + 1, name, format!("{name} is in {other} already"));
            }
        }
    }
}
