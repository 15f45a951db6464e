//! Rooms of a size one can look over.

use super::Findings;
use crate::tree::Tree;

/// Longest file of code, in lines.
const FILE_LINES_MAX: usize = 600;
/// Longest function, in lines: a screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines of MariaDB's handler, all files together, stay below: it passes calls on, and the rest is Rust.
const HANDLER_LINES_MAX: usize = 4000;

/// No file of code above 600 lines.
pub fn files(tree: &Tree, findings: &mut Findings) {
    for (path, source) in tree.sources.iter().filter(|(_, s)| !s.all_test) {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            findings.add("file-lines", path, 0, path, format!("{lines} lines, the limit is {FILE_LINES_MAX}"));
        }
    }
}

/// No function above 70 lines.
pub fn functions(tree: &Tree, findings: &mut Findings) {
    for (path, source) in tree.sources.iter().filter(|(_, s)| !s.all_test) {
        for f in source.functions() {
            if f.lines > FUNCTION_LINES_MAX && !source.is_test(f.at) {
                let what = format!("`{}` has {} lines, the limit is {FUNCTION_LINES_MAX}", f.name, f.lines);
                findings.add("function-lines", path, f.line, &format!("{path}:{}", f.name), what);
            }
        }
    }
}

/// MariaDB's handler stays small.
pub fn handler(tree: &Tree, findings: &mut Findings) {
    const DIR: &str = "mariadb/handler";
    let files =
        tree.texts.iter().filter(|(path, _)| path.starts_with(DIR) && path.as_bytes().get(DIR.len()) == Some(&b'/'));
    let lines: usize = files.map(|(_, text)| text.lines().count()).sum();
    if lines >= HANDLER_LINES_MAX {
        let what = format!(
            "{lines} lines in all, they must be fewer than {HANDLER_LINES_MAX}: what is no call of the server is Rust"
        );
        findings.add("handler-lines", DIR, 0, DIR, what);
    }
}

/// No Rust file outside every crate.
pub fn dead_files(tree: &Tree, findings: &mut Findings) {
    for path in &tree.dead {
        findings.add("dead-file", path, 0, path, "no `mod` reaches this file");
    }
}
