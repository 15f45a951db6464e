//! The rules of the house that no compiler checks. Each rule is a function from the tree to findings; a
//! finding names the file, the line and the rule. Exceptions stand in `xtask/allow.txt` with their reason,
//! and an exception that is no longer needed is a finding itself.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::tree::Tree;

mod allow;
mod calls;
mod documents;
mod examples;
mod layers;
mod sizes;
#[cfg(test)]
mod tests;
mod text;

/// Something against a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// File, from the root.
    pub path: String,
    /// Line, from 1; 0 for the whole file.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.what)
    }
}

/// Findings, collected.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
    allow: allow::Allow,
}

impl Findings {
    /// Reports a finding, unless it is allowed under `name` (a path, or `path:function`).
    fn add(&mut self, rule: &'static str, path: &str, line: usize, name: &str, what: impl Into<String>) {
        if !self.allow.takes(rule, name) {
            self.list.push(Finding { path: path.to_owned(), line, rule, what: what.into() });
        }
    }
}

type Rule = fn(&Tree, &mut Findings);

const RULES: [Rule; 15] = [
    layers::imports,
    sizes::files,
    sizes::functions,
    sizes::handler,
    sizes::dead_files,
    calls::banned,
    calls::unwraps,
    calls::unsafe_code,
    text::leftovers,
    text::machine_paths,
    text::early_readers,
    text::same_functions,
    documents::links,
    documents::invariants,
    examples::examples,
];

/// Runs all rules over `tree`.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Findings { list: Vec::new(), allow: allow::Allow::read(tree) };
    for rule in RULES {
        rule(tree, &mut findings);
    }
    let Findings { mut list, allow } = findings;
    list.extend(allow.leftover());
    list.sort();
    list
}

/// Prints what is wrong with the checkout at `root`; true if nothing is.
pub fn report(root: &Path) -> bool {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: {}: {error}", root.display());
            return false;
        }
    };
    let findings = check(&tree);
    let mut per_rule: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in &findings {
        println!("{finding}");
        *per_rule.entry(finding.rule).or_default() += 1;
    }
    let sum: Vec<String> = per_rule.iter().map(|(rule, n)| format!("{rule} {n}")).collect();
    println!("tidy: {} files, {} findings {}", tree.files.len(), findings.len(), sum.join(", "));
    findings.is_empty()
}
