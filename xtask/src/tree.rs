//! The checkout: its files, its crates, and which Rust file is reached from which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::{Source, is_test_attribute, is_word};

/// Everything the rules look at, read once.
#[derive(Debug, Default)]
pub struct Tree {
    /// Paths of all files, from the root, with `/`.
    pub files: BTreeSet<String>,
    /// Directories.
    pub dirs: BTreeSet<String>,
    /// Rust files by path.
    pub sources: BTreeMap<String, Source>,
    /// Texts of all other files that are UTF-8: documents, manifests, scripts.
    pub texts: BTreeMap<String, String>,
    /// Rust files that no crate reaches.
    pub dead: Vec<String>,
}

/// Not part of the source: build output, run results, hidden folders.
const SKIPPED: [&str; 7] =
    [".git", "target", "bench-results", "fuzz/target", "fuzz/corpus", "fuzz/artifacts", "fuzz/coverage"];

impl Tree {
    /// Reads the checkout at `root`.
    pub fn read(root: &Path) -> std::io::Result<Self> {
        let mut tree = Self::default();
        tree.walk(root, "")?;
        tree.mark_reached();
        Ok(tree)
    }

    fn walk(&mut self, root: &Path, dir: &str) -> std::io::Result<()> {
        for entry in std::fs::read_dir(root.join(dir))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if !SKIPPED.contains(&path.as_str()) {
                    self.walk(root, &path)?;
                    self.dirs.insert(path);
                }
            } else if kind.is_file() && name != ".git" {
                self.read_file(root, path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, root: &Path, path: String) -> std::io::Result<()> {
        if let Ok(text) = String::from_utf8(std::fs::read(root.join(&path))?) {
            if path.ends_with(".rs") {
                self.sources.insert(path.clone(), Source::new(path.clone(), text));
            } else {
                self.texts.insert(path.clone(), text);
            }
        }
        self.files.insert(path);
        Ok(())
    }

    /// Folders that hold a crate, with the crate's package name.
    pub fn crates(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (path, text) in &self.texts {
            let Some(dir) = path.strip_suffix("/Cargo.toml") else { continue };
            let name = text.lines().find_map(|l| l.strip_prefix("name = ")).unwrap_or_default();
            if text.contains("[package]") {
                found.push((dir.to_owned(), name.trim_matches('"').to_owned()));
            }
        }
        found
    }

    /// Follows `mod x;` from the crate roots. What is reached only under `#[cfg(test)]` is test code.
    fn mark_reached(&mut self) {
        let mut queue: Vec<(String, bool)> =
            self.sources.keys().filter(|p| self.is_crate_root(p)).map(|p| (p.clone(), false)).collect();
        let mut reached: BTreeMap<String, bool> = BTreeMap::new();
        while let Some((path, test)) = queue.pop() {
            if reached.get(&path).is_some_and(|was_test| test || !was_test) {
                continue;
            }
            reached.insert(path.clone(), test);
            let source = &self.sources[&path];
            for (name, own_path, in_test) in modules(source) {
                let test = test || in_test;
                let found = candidates(&path, &name, own_path.as_deref(), self.is_crate_root(&path));
                queue.extend(found.into_iter().filter(|p| self.sources.contains_key(p)).map(|p| (p, test)));
            }
        }
        for (path, source) in &mut self.sources {
            match reached.get(path) {
                None => self.dead.push(path.clone()),
                Some(test) => source.all_test |= *test,
            }
        }
    }

    fn is_crate_root(&self, path: &str) -> bool {
        let Some((dir, name)) = path.rsplit_once('/') else { return false };
        let Some((above, last)) = dir.rsplit_once('/') else { return name == "build.rs" };
        let is_crate = |d: &str| self.files.contains(&format!("{d}/Cargo.toml"));
        match last {
            "src" => matches!(name, "lib.rs" | "main.rs") && is_crate(above),
            "tests" => is_crate(above) && self.is_test_program(above, name.trim_end_matches(".rs")),
            "benches" | "examples" | "fuzz_targets" => is_crate(above),
            "bin" => above.strip_suffix("/src").is_some_and(is_crate),
            _ => name == "build.rs" && is_crate(dir),
        }
    }

    /// Every file of `tests` is one, unless the manifest says which are.
    fn is_test_program(&self, dir: &str, stem: &str) -> bool {
        let manifest = self.texts.get(&format!("{dir}/Cargo.toml")).map_or("", String::as_str);
        !manifest.contains("\nautotests = false\n") || manifest.contains(&format!("[[test]]\nname = \"{stem}\"\n"))
    }
}

/// `mod name;` declarations: name, `#[path]` if any, whether under a test attribute.
fn modules(source: &Source) -> Vec<(String, Option<String>, bool)> {
    let mut found = Vec::new();
    for at in source.find("mod") {
        let rest = source.code[at + 3..].trim_start();
        let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
        if name.is_empty() || !rest[name.len()..].trim_start().starts_with(';') {
            continue;
        }
        let (mut own_path, mut test) = (None, source.is_test(at));
        let head = source.text[..at].trim_end_matches(|c: char| is_word(c) || c.is_whitespace() || "()".contains(c));
        for line in head.lines().rev().map(str::trim).take_while(|l| l.starts_with("#[") || l.starts_with("//")) {
            let inner = line.trim_start_matches("#[").trim_end_matches(']');
            test |= is_test_attribute(inner);
            if let Some(quoted) = inner.strip_prefix("path = ") {
                own_path = Some(quoted.trim_matches('"').to_owned());
            }
        }
        found.push((name, own_path, test));
    }
    found
}

/// Where the file of `mod name;` in `path` may be.
fn candidates(path: &str, name: &str, own_path: Option<&str>, is_root: bool) -> Vec<String> {
    let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
    if let Some(own) = own_path {
        return vec![normalise(&format!("{dir}/{own}"))];
    }
    let base =
        if is_root || file == "mod.rs" { dir.to_owned() } else { format!("{dir}/{}", file.trim_end_matches(".rs")) };
    vec![format!("{base}/{name}.rs"), format!("{base}/{name}/mod.rs")]
}

/// Resolves `.` and `..`.
pub fn normalise(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}
