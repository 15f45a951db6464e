//! A plan's file with the place of everything in it, so that a mistake can be named with its line and its remedy.
//!
//! Keys are taken out of a section one by one; what is left over at the end is a mistake.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::near::did_you_mean;
use crate::outcome::Failure;

/// The text of a file, and its name in messages.
#[derive(Debug)]
pub struct Source {
    /// As it was named.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// A value and its bytes in the file.
#[derive(Clone, Debug)]
pub struct Located {
    /// Where it begins.
    pub at: usize,
    /// Where it ends.
    pub end: usize,
    /// What it is.
    pub value: Value,
}

/// What a key can have.
#[derive(Clone, Debug)]
pub enum Value {
    /// A text, or a number as it is written.
    Word(String),
    /// `true` or `false`.
    Flag(bool),
    /// Several.
    List(Vec<Located>),
    /// Keys of their own.
    Section(Section),
}

/// Keys with their places.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Where it begins.
    pub at: usize,
    /// By name: where the key begins, and what it has.
    pub keys: BTreeMap<String, (usize, Located)>,
}

impl Source {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Source, Failure> {
        let text = fs::read_to_string(path).map_err(|error| Failure::io("read", path, &error))?;
        Ok(Source { name: path.display().to_string(), text })
    }

    /// A mistake at a place.
    pub fn mistake(&self, at: usize, what: impl Display) -> Failure {
        let line = 1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count();
        Failure::Usage(format!("{}:{line}: {what}", self.name))
    }

    /// The file as one section.
    pub fn parsed(&self) -> Result<Section, Failure> {
        match DeTable::parse(&self.text) {
            Ok(table) => self.section(0, table.into_inner()),
            Err(error) => Err(self.mistake(error.span().map_or(0, |span| span.start), error.message())),
        }
    }

    fn section(&self, at: usize, table: DeTable<'_>) -> Result<Section, Failure> {
        let mut keys = BTreeMap::new();
        for (key, value) in table {
            let (key_at, value) = (key.span().start, self.located(value)?);
            keys.insert(key.into_inner().into_owned(), (key_at, value));
        }
        Ok(Section { at, keys })
    }

    fn located(&self, value: Spanned<DeValue<'_>>) -> Result<Located, Failure> {
        let span = value.span();
        Ok(Located { at: span.start, end: span.end, value: self.value(span.start, value.into_inner())? })
    }

    fn value(&self, at: usize, value: DeValue<'_>) -> Result<Value, Failure> {
        Ok(match value {
            DeValue::String(text) => Value::Word(text.into_owned()),
            DeValue::Integer(number) if number.radix() == 10 => Value::Word(number.as_str().replace('_', "")),
            DeValue::Float(number) => Value::Word(number.as_str().replace('_', "")),
            DeValue::Boolean(flag) => Value::Flag(flag),
            DeValue::Array(items) => {
                Value::List(items.into_iter().map(|item| self.located(item)).collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => Value::Section(self.section(at, table)?),
            DeValue::Integer(_) | DeValue::Datetime(_) => {
                return Err(self.mistake(at, "neither a text, a decimal number, true, false, a list nor a section"));
            }
        })
    }
}

impl Located {
    /// A text or a number.
    pub fn word(&self, source: &Source, key: &str) -> Result<String, Failure> {
        match &self.value {
            Value::Word(text) => Ok(text.clone()),
            _ => Err(source.mistake(self.at, format!("`{key}` has to be one text or number"))),
        }
    }

    /// Several texts or numbers, each with its place; a single one is a list of one.
    pub fn words(&self, source: &Source, key: &str) -> Result<Vec<(usize, String)>, Failure> {
        match &self.value {
            Value::List(list) => list.iter().map(|item| Ok((item.at, item.word(source, key)?))).collect(),
            _ => Ok(vec![(self.at, self.word(source, key)?)]),
        }
    }
}

impl Section {
    /// Takes a key out.
    pub fn take(&mut self, key: &str) -> Option<Located> {
        self.keys.remove(key).map(|(_, value)| value)
    }

    /// Takes a text or a number out.
    pub fn take_word(&mut self, source: &Source, key: &str) -> Result<Option<String>, Failure> {
        self.take(key).map(|value| value.word(source, key)).transpose()
    }

    /// Takes a text out that has to be there.
    pub fn need_word(&mut self, source: &Source, key: &str, what: &str) -> Result<String, Failure> {
        let missing = || source.mistake(self.at, format!("{what} needs a `{key}`"));
        let value = self.keys.remove(key).ok_or_else(missing)?;
        value.1.word(source, key)
    }

    /// Takes a list of texts out.
    pub fn take_words(&mut self, source: &Source, key: &str) -> Result<Option<Vec<(usize, String)>>, Failure> {
        self.take(key).map(|value| value.words(source, key)).transpose()
    }

    /// Takes a section out; an empty one where there is none.
    pub fn take_section(&mut self, source: &Source, key: &str) -> Result<Section, Failure> {
        match self.take(key) {
            None => Ok(Section { at: self.at, ..Section::default() }),
            Some(Located { value: Value::Section(section), at, .. }) => Ok(Section { at, ..section }),
            Some(other) => Err(source.mistake(other.at, format!("`{key}` has to be a section: [{key}]"))),
        }
    }

    /// Takes the sections of `[[key]]` out.
    pub fn take_sections(&mut self, source: &Source, key: &str) -> Result<Vec<Section>, Failure> {
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        let wrong = |at| source.mistake(at, format!("`{key}` has to be one or more sections: [[{key}]]"));
        let Value::List(list) = value.value else { return Err(wrong(value.at)) };
        let section = |item: Located| match item.value {
            Value::Section(section) => Ok(Section { at: item.at, ..section }),
            _ => Err(wrong(item.at)),
        };
        list.into_iter().map(section).collect()
    }

    /// Refuses what nobody has taken.
    pub fn finish(&self, source: &Source, what: &str, known: &[&str]) -> Result<(), Failure> {
        match self.keys.iter().min_by_key(|(_, (at, _))| *at) {
            None => Ok(()),
            Some((key, (at, _))) => {
                Err(source.mistake(*at, format!("{what} has no key `{key}`; {}", did_you_mean(key, known))))
            }
        }
    }
}
