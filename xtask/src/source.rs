//! Rust text as the rules see it: comments and the contents of literals blanked, lines kept, and the line
//! ranges of tests and functions. A lexer, not a parser: it also sees into macro bodies, where a parser
//! sees a token heap.

use std::ops::Range;

/// One Rust file.
#[derive(Debug)]
pub struct Source {
    /// Path from the root, with `/`.
    pub path: String,
    /// As written.
    pub text: String,
    /// Comments and literal contents replaced by spaces; newlines kept, so offsets and lines agree.
    pub code: String,
    /// Byte ranges of items under `#[test]` or `#[cfg(test)]`.
    tests: Vec<Range<usize>>,
    /// The whole file is test code.
    pub all_test: bool,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// First line of the signature, from 1.
    pub line: usize,
    /// Lines from the signature to the closing brace.
    pub lines: usize,
    /// Where it starts, in bytes.
    pub at: usize,
}

impl Source {
    /// Reads `text`.
    pub fn new(path: String, text: String) -> Self {
        let code = blank(&text);
        let tests = test_ranges(&code);
        let name = path.rsplit('/').next().unwrap_or_default();
        let all_test = path.contains("/tests/")
            || path.contains("/benches/")
            || path.starts_with("testing/")
            || path.starts_with("fuzz/")
            || name == "tests.rs"
            || name.ends_with("_tests.rs")
            || code.contains("#![cfg(test)]");
        Self { path, text, code, tests, all_test }
    }

    /// True if the byte at `at` belongs to test code.
    pub fn is_test(&self, at: usize) -> bool {
        self.all_test || self.tests.iter().any(|r| r.contains(&at))
    }

    /// The line of a byte, from 1.
    pub fn line(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count() + 1
    }

    /// Byte offsets at which `word` stands in the code, not as part of a longer identifier.
    pub fn find(&self, word: &str) -> Vec<usize> {
        self.code.match_indices(word).map(|(at, _)| at).filter(|&at| stands_alone(&self.code, at, word)).collect()
    }

    /// All functions that have a body.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for at in self.find("fn") {
            let after = &self.code[at + 2..];
            let name: String = after.trim_start().chars().take_while(|c| is_word(*c)).collect();
            let Some(body) = (!name.is_empty()).then(|| body_of(&self.code, at)).flatten() else { continue };
            let line = self.line(at);
            found.push(Function { name, line, lines: self.line(body.end - 1) - line + 1, at });
        }
        found
    }

    /// Every path imported by `use`, with groups written out: `use a::{b, c::d}` gives `a::b` and `a::c::d`.
    pub fn uses(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for at in self.find("use") {
            let Some(end) = self.code[at..].find(';') else { continue };
            for path in expand(&self.code[at + 3..at + end]) {
                found.push((at, path));
            }
        }
        found
    }
}

/// True for characters of identifiers.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn stands_alone(code: &str, at: usize, word: &str) -> bool {
    let before = code[..at].chars().next_back();
    let after = code[at + word.len()..].chars().next();
    let first_is_word = word.chars().next().is_some_and(is_word);
    let last_is_word = word.chars().next_back().is_some_and(is_word);
    let joined = |is_word_there: bool, next: Option<char>| is_word_there && next.is_some_and(is_word);
    !joined(first_is_word, before) && !joined(last_is_word, after)
}

/// Replaces comments and the contents of string and character literals by spaces.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if raw_hashes(bytes, at).is_some() => raw_end(bytes, at),
            b'\'' => char_end(bytes, at),
            _ => at,
        };
        if end == at {
            at += 1;
            continue;
        }
        for b in &mut out[at..end] {
            if *b != b'\n' {
                *b = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(out).expect("only whole characters were blanked")
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// For `r"`, `r#"`, … at `at`: how many hashes.
fn raw_hashes(bytes: &[u8], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|i| bytes[i]);
    let prefix = before.is_none_or(|b| !(b.is_ascii_alphanumeric() || b == b'_') || b == b'b' || b == b'c');
    let hashes = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
    (prefix && bytes.get(at + 1 + hashes) == Some(&b'"')).then_some(hashes)
}

fn raw_end(bytes: &[u8], at: usize) -> usize {
    let hashes = raw_hashes(bytes, at).expect("the caller has seen the start");
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let start = at + hashes + 2;
    bytes[start..].windows(close.len()).position(|w| w == close).map_or(bytes.len(), |n| start + n + close.len())
}

/// The end of a character literal, or `at` itself for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at + 1..];
    let Some(first) = rest.first() else { return at };
    if *first == b'\\' {
        return rest[2.min(rest.len())..].iter().position(|b| *b == b'\'').map_or(bytes.len(), |n| at + n + 4);
    }
    let width = match first {
        0x00..=0x7f => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    if rest.get(width) == Some(&b'\'') { at + width + 2 } else { at }
}

/// The body of the item that starts at `at`, with its braces; none if the item ends in a semicolon.
fn body_of(code: &str, at: usize) -> Option<Range<usize>> {
    let mut depth = 0;
    for (i, b) in code.bytes().enumerate().skip(at) {
        match b {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(i..closing(code, i)),
            _ => {}
        }
    }
    None
}

/// Just past the brace that closes the one at `open`.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (i, b) in code.bytes().enumerate().skip(open) {
        match b {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

fn test_ranges(code: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for (at, _) in code.match_indices("#[") {
        let Some(end) = code[at..].find(']').map(|n| at + n + 1) else { continue };
        if is_test_attribute(&code[at + 2..end - 1]) {
            let item = skip_attributes(code, end);
            let stop = body_of(code, item).map_or_else(|| code[item..].find(';').map_or(item, |n| item + n), |b| b.end);
            ranges.push(at..stop);
        }
    }
    ranges
}

/// True for `test`, `cfg(test)`, `cfg(all(test, …))` and the like, not for `cfg(not(test))`.
pub fn is_test_attribute(attribute: &str) -> bool {
    let words: Vec<&str> = attribute.split(|c| !is_word(c)).filter(|w| !w.is_empty()).collect();
    match words.as_slice() {
        ["test"] => true,
        ["cfg", rest @ ..] => rest.contains(&"test") && !rest.contains(&"not"),
        _ => false,
    }
}

fn skip_attributes(code: &str, mut at: usize) -> usize {
    loop {
        let rest = &code[at..];
        at += rest.len() - rest.trim_start().len();
        if !code[at..].starts_with("#[") {
            return at;
        }
        match code[at..].find(']') {
            Some(n) => at += n + 1,
            None => return code.len(),
        }
    }
}

/// Writes out the groups of a use tree.
fn expand(tree: &str) -> Vec<String> {
    let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(open) = tree.find('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_owned()];
    };
    let prefix = tree[..open].trim();
    let inside = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    split_top(inside).into_iter().flat_map(expand).map(|p| format!("{prefix}{p}")).collect()
}

/// Splits at the commas outside braces.
fn split_top(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, b) in list.bytes().enumerate() {
        match b {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&list[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.into_iter().map(str::trim).filter(|p| !p.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("crates/x/src/lib.rs".into(), text.into())
    }

    #[test]
    fn literals_and_comments_are_blank() {
        let s = source(
            "let a = \"x.unwrap()\"; // y.unwrap()\n/* /* z */ unwrap */ let c = '\"'; let l: &'static str = r#\"un\"wrap\"#;",
        );
        assert!(!s.code.contains("unwrap"));
        assert!(s.code.contains("'static str"));
        assert_eq!(s.code.len(), s.text.len());
        assert_eq!(source("let q = '\\''; x.unwrap()").find("unwrap").len(), 1);
        assert_eq!(source("let q = b'\"'; x.unwrap(); let z = '\\u{41}'; y.unwrap()").find("unwrap").len(), 2);
    }

    #[test]
    fn tests_are_known() {
        let s = source("fn a() { b.unwrap() }\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n fn c() { d.unwrap() }\n}\n");
        let at = s.find("unwrap");
        assert_eq!(at.iter().map(|a| s.is_test(*a)).collect::<Vec<_>>(), [false, true]);
        assert!(!is_test_attribute("cfg(not(test))"));
    }

    #[test]
    fn functions_have_lengths() {
        let s = source("trait T { fn no_body(&self); }\nfn one(a: [u8; 3]) -> u8\nwhere A: B\n{\n  if x { y }\n}\n");
        let f = s.functions();
        assert_eq!(f.len(), 1);
        assert_eq!((f[0].name.as_str(), f[0].line, f[0].lines), ("one", 2, 5));
    }

    #[test]
    fn use_groups_are_written_out() {
        let s = source("use std::{fs, sync::{Arc, Mutex as M}};\nuse a::b;");
        let paths: Vec<_> = s.uses().into_iter().map(|(_, p)| p).collect();
        assert_eq!(paths, ["std::fs", "std::sync::Arc", "std::sync::Mutex", "a::b"]);
    }
}
