//! What a user of the library can name teaches its use: every public item has an example that runs.
//!
//! What is public: (1) what the root names with `pub use`, and what stands in its `pub mod`s; (2) inherent methods and
//! constants of those types, in whatever file. `#[doc(hidden)]` takes an item, a module or an `impl` out. An item of
//! another crate has its example at the `pub use`, where the library's names can be used.
//!
//! Lines, not syntax: rustfmt puts items at the left edge and members one step to the right.

use std::collections::BTreeSet;

use super::Findings;
use crate::source::{Source, is_word};
use crate::tree::Tree;

const ROOM: &str = "crates/trefoil/src/";
const KINDS: [&str; 8] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];
const REMEDY: &str = "write one in a ``` block that runs, or make it pub(crate)";

/// Every public item of the library has an example in its documentation.
pub fn examples(tree: &Tree, findings: &mut Findings) {
    let mut names = BTreeSet::new();
    exports(tree, &format!("{ROOM}lib.rs"), &mut names, findings);
    for (path, source) in tree.sources.iter().filter(|(p, s)| p.starts_with(ROOM) && !s.all_test) {
        for item in items(source) {
            let public = names.contains(item.owner.as_deref().unwrap_or(&item.name));
            if public && !item.docs.hidden && !item.docs.example {
                let of = item.owner.as_ref().map_or(String::new(), |owner| format!("{owner}::"));
                let what = format!("`{of}{}` is public and has no example: {REMEDY}", item.name);
                findings.add("example", path, item.line, &format!("{path}:{}", item.name), what);
            }
        }
    }
}

/// Collects the names that `path` makes public; items of other crates are judged here.
fn exports(tree: &Tree, path: &str, names: &mut BTreeSet<String>, findings: &mut Findings) {
    let Some(source) = tree.sources.get(path) else { return };
    let root = path.strip_suffix("lib.rs").map_or_else(|| path.trim_end_matches(".rs").to_owned() + "/", str::to_owned);
    let file = |module: &str| {
        let beside = [format!("{root}{module}.rs"), format!("{root}{module}/mod.rs")];
        beside.into_iter().find(|p| tree.sources.contains_key(p))
    };
    let lines: Vec<&str> = source.text.lines().collect();
    for (at, target) in source.uses() {
        let line = source.line(at);
        let docs = Docs::above(&lines, line - 1);
        if !lines[line - 1].starts_with("pub use ") || docs.hidden {
            continue;
        }
        let (first, last) =
            (target.split("::").next().unwrap_or(&target), target.rsplit("::").next().unwrap_or(&target));
        if last == "*" {
            findings.add("example", path, line, path, format!("`{target}`: name what is public, one by one"));
        } else if file(first).is_some() {
            names.insert(last.to_owned());
        } else if !docs.example || lines[line - 1].contains('{') {
            let what = format!("`{target}` is public and has no example: give it a `pub use` of its own and {REMEDY}");
            findings.add("example", path, line, &format!("{path}:{last}"), what);
        }
    }
    for (i, line) in lines.iter().enumerate() {
        let Some(module) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';')) else { continue };
        let Some(below) = file(module).filter(|_| !Docs::above(&lines, i).hidden) else { continue };
        names.extend(items(&tree.sources[&below]).into_iter().filter(|i| i.owner.is_none()).map(|i| i.name));
        exports(tree, &below, names, findings);
    }
}

/// An item with `pub` and nothing narrower.
struct Item {
    name: String,
    /// The type that it is a member of, if it is one.
    owner: Option<String>,
    /// From 1.
    line: usize,
    docs: Docs,
}

/// Items at the left edge, and members of inherent `impl`s that are not hidden.
fn items(source: &Source) -> Vec<Item> {
    let lines: Vec<&str> = source.text.lines().collect();
    let (mut found, mut owner, mut at) = (Vec::new(), None, 0);
    for (i, line) in source.code.split('\n').enumerate() {
        let test = source.is_test(at);
        at += line.len() + 1;
        if line.starts_with("impl") && !Docs::above(&lines, i).hidden {
            owner = type_of(line);
        } else if line.starts_with('}') {
            owner = None;
        }
        let member = line.strip_prefix("    ").filter(|_| owner.is_some());
        let Some(name) = name_of(member.unwrap_or(line)).filter(|_| !test) else { continue };
        let owner = member.and(owner.clone());
        found.push(Item { name, owner, line: i + 1, docs: Docs::above(&lines, i) });
    }
    found
}

/// The type of an inherent `impl`.
fn type_of(line: &str) -> Option<String> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let close = rest.find(|c| {
            depth += i32::from(c == '<') - i32::from(c == '>');
            depth == 0
        })?;
        rest = &rest[close + 1..];
    }
    let name: String = rest.trim_start().chars().take_while(|c| is_word(*c)).collect();
    (!rest.contains(" for ") && !name.is_empty()).then_some(name)
}

/// The name of the public item that a line begins.
fn name_of(line: &str) -> Option<String> {
    let words: Vec<&str> = line.strip_prefix("pub ")?.split_whitespace().collect();
    // The last kind counts: `const fn` is a function.
    let kind = words.iter().take(4).rposition(|word| KINDS.contains(word))?;
    let name: String = words.get(kind + 1)?.chars().take_while(|c| is_word(*c)).collect();
    (!name.is_empty()).then_some(name)
}

/// What stands above an item.
#[derive(Default)]
struct Docs {
    hidden: bool,
    /// A block of code that is compiled and run.
    example: bool,
}

impl Docs {
    fn above(lines: &[&str], item: usize) -> Self {
        let mut docs = Self::default();
        let above = lines[..item].iter().rev().map(|line| line.trim());
        let above: Vec<&str> = above.take_while(|line| line.starts_with("///") || line.starts_with("#[")).collect();
        docs.hidden = above.contains(&"#[doc(hidden)]");
        let fences = above.iter().rev().filter_map(|line| line.trim_start_matches('/').trim().strip_prefix("```"));
        docs.example = fences.step_by(2).any(|kind| kind.is_empty() || kind == "rust");
        docs
    }
}
