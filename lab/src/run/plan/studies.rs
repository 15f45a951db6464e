//! The plans of the five studies, as `plans/` has them. They are part of the program, so that an installed lab has them too.

use std::path::Path;

use super::source::Source;

/// Names and texts.
const STUDIES: [(&str, &str); 5] = [
    ("seed-000", include_str!("../../../../plans/seed-000.toml")),
    ("seed-001", include_str!("../../../../plans/seed-001.toml")),
    ("seed-002", include_str!("../../../../plans/seed-002.toml")),
    ("seed-003", include_str!("../../../../plans/seed-003.toml")),
    ("seed-004", include_str!("../../../../plans/seed-004.toml")),
];

/// The plan that a word names which is no file.
pub fn named(word: &Path) -> Option<Source> {
    let (name, text) = STUDIES.iter().find(|(name, _)| word == Path::new(name))?;
    Some(Source { name: (*name).to_owned(), text: (*text).to_owned() })
}

/// Name and title of each.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    STUDIES.iter().map(|(name, text)| {
        let title = text.lines().find_map(|line| line.strip_prefix("title = \"")).unwrap_or_default();
        (*name, title.trim_end_matches('"'))
    })
}

/// The plan that is called as a file is that is not there.
pub fn like(file: &Path) -> Option<&'static str> {
    let stem = file.file_stem()?;
    STUDIES.iter().map(|(name, _)| *name).find(|name| stem == *name)
}
