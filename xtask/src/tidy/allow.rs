//! Exceptions: lines `rule name reason…` in `xtask/allow.txt`.

use std::cell::Cell;

use super::Finding;
use crate::tree::Tree;

const FILE: &str = "xtask/allow.txt";

/// The list of exceptions, and which were used.
#[derive(Debug, Default)]
pub struct Allow {
    entries: Vec<Entry>,
    wrong: Vec<Finding>,
}

#[derive(Debug)]
struct Entry {
    rule: String,
    name: String,
    line: usize,
    used: Cell<bool>,
}

impl Allow {
    /// Reads the list; no file, no exceptions.
    pub fn read(tree: &Tree) -> Self {
        let mut allow = Self::default();
        for (i, text) in tree.texts.get(FILE).map_or("", String::as_str).lines().enumerate() {
            let words: Vec<&str> = text.split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                [rule, name, _reason, ..] => allow.entries.push(Entry {
                    rule: (*rule).to_owned(),
                    name: (*name).to_owned(),
                    line: i + 1,
                    used: Cell::new(false),
                }),
                _ => allow.wrong.push(finding(i + 1, "a line is `rule name reason`")),
            }
        }
        allow
    }

    /// True if the list has an exception from `rule` for `name`. A name ending in `/` covers a folder.
    pub fn takes(&self, rule: &str, name: &str) -> bool {
        let mut taken = false;
        for entry in self.entries.iter().filter(|e| e.rule == rule) {
            if entry.name == name || (entry.name.ends_with('/') && name.starts_with(&entry.name)) {
                entry.used.set(true);
                taken = true;
            }
        }
        taken
    }

    /// Malformed lines and exceptions that nothing needed.
    pub fn leftover(self) -> Vec<Finding> {
        let mut found = self.wrong;
        for entry in self.entries.iter().filter(|e| !e.used.get()) {
            found.push(finding(entry.line, &format!("`{} {}` excuses nothing: remove it", entry.rule, entry.name)));
        }
        found
    }
}

fn finding(line: usize, what: &str) -> Finding {
    Finding { path: FILE.to_owned(), line, rule: "allow", what: what.to_owned() }
}
