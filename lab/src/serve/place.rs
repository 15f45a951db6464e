//! From the name in an address to a file below the folder of runs.
//!
//! Two walls: a name has no part that is `..`, empty or absolute; and what it leads to, every link followed, lies below the
//! folder. The second alone would do for what exists; the first says no without asking the disk.

use std::path::{Component, Path, PathBuf};

/// Why there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not there.
    Missing,
    /// It is not below the folder.
    Outside,
}

/// The file or folder with this name.
pub fn below(root: &Path, name: &str) -> Result<PathBuf, Refused> {
    let mut parts = Path::new(name).components();
    if name.is_empty() || name.contains('\0') || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(Refused::Outside);
    }
    let path = root.join(name);
    let whole = path.canonicalize().map_err(|_| Refused::Missing)?;
    if whole.starts_with(root) && whole != root { Ok(path) } else { Err(Refused::Outside) }
}

/// Text of an address as it was before it was put there; `None` if it is no text.
pub fn decoded(text: &str, plus_is_space: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                (high * 16 + low) as u8
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

/// Text as it stands in an address; slashes stay.
pub fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("runs").canonicalize().unwrap_or_else(|_| {
            std::fs::create_dir_all(dir.path().join("runs/a/parts/b")).unwrap();
            dir.path().join("runs").canonicalize().unwrap()
        });
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("a/link")).unwrap();
        std::os::unix::fs::symlink("a", root.join("latest")).unwrap();
        assert_eq!(below(&root, "a/parts/b"), Ok(root.join("a/parts/b")));
        assert_eq!(below(&root, "latest"), Ok(root.join("latest")), "a link to a run is that run");
        assert_eq!(below(&root, "a/absent"), Err(Refused::Missing));
        for name in ["../secret", "a/../../secret", "a/..", "/etc/passwd", "a/link", "", ".", "a\0", "a/../a"] {
            assert_eq!(below(&root, name), Err(Refused::Outside), "{name:?}");
        }
    }

    #[test]
    fn names_come_back_as_they_were() {
        for text in ["a b/c+d", "100 % ü", "server:mariadb?engine=innodb&x=\"y\""] {
            assert_eq!(decoded(&encoded(text), true).as_deref(), Some(text));
        }
        assert_eq!(decoded("a+b%2Fc", true).as_deref(), Some("a b/c"));
        assert_eq!(decoded("a+b", false).as_deref(), Some("a+b"));
        assert_eq!((decoded("%4", true), decoded("%zz", true), decoded("%ff", true)), (None, None, None));
    }
}
