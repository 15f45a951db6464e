// SPDX-License-Identifier: GPL-2.0-only
//! Columns of all types, and values that meet each other: few, and alike.

use crate::Collation;
use crate::chance::Chance;

/// Texts that collations see as equal or neighbours: case, accents, blanks and what sorts below them, contractions,
/// expansions, what is ignored, and characters beyond the first plane.
pub const TEXTS: [&str; 48] = [
    "",
    " ",
    "  ",
    "a",
    "A",
    "a ",
    "a\t",
    "a\u{1}",
    "a b",
    "a  b",
    "a!",
    "ab",
    "aB",
    "AB ",
    "abc",
    "abcd",
    "abcdefgh",
    "á",
    "Á",
    "ä",
    "ae",
    "Ä b",
    "b",
    "B",
    "ch",
    "cH",
    "c",
    "cz",
    "h",
    "i",
    "ı",
    "İ",
    "ß",
    "ss",
    "s s",
    "z",
    "Ž",
    "ž",
    "æ",
    "ø",
    "0",
    "10",
    "9",
    "_",
    "%",
    "я",
    "Я",
    "\u{1F333}",
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Number,
    Time,
    /// Bytes or text: may have a front in a key.
    String,
    /// A BLOB or TEXT must have one.
    Long,
    Other,
}

pub struct Column {
    pub name: String,
    pub kind: Kind,
    pub nullable: bool,
    pub definition: String,
    /// Its text has a collation.
    pub is_text: bool,
    values: Vec<String>,
}

fn column(kind: Kind, definition: &str, values: &[&str]) -> Column {
    let values = values.iter().map(|v| (*v).to_owned()).collect();
    Column { name: String::new(), kind, nullable: false, definition: definition.to_owned(), is_text: false, values }
}

fn quoted(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| format!("'{value}'")).collect()
}

fn plain(chance: &mut Chance) -> Column {
    let quote = |kind, definition: &str, values: &[&str]| {
        let quoted = quoted(values);
        column(kind, definition, &quoted.iter().map(String::as_str).collect::<Vec<_>>())
    };
    match chance.below(22) {
        0 => column(Kind::Number, "TINYINT", &["-128", "-1", "0", "1", "2", "127"]),
        1 => column(Kind::Number, "SMALLINT UNSIGNED", &["0", "1", "255", "256", "65535"]),
        2 => column(Kind::Number, "MEDIUMINT", &["-8388608", "-2", "0", "3", "8388607"]),
        3 | 4 => column(Kind::Number, "INT", &["-5", "0", "1", "2", "3", "4", "2147483647"]),
        5 => column(Kind::Number, "BIGINT UNSIGNED", &["0", "7", "9223372036854775808", "18446744073709551615"]),
        6 => column(Kind::Number, "BIGINT", &["-9223372036854775808", "-1", "0", "1", "5", "9223372036854775807"]),
        7 => column(Kind::Number, "FLOAT", &["-1.5e0", "-0e0", "0e0", "0.1e0", "2.25e0", "1e30"]),
        8 => column(Kind::Number, "DOUBLE", &["-1e300", "-0.25e0", "0e0*-1e0", "0e0", "1e-300", "3e0"]),
        9 => column(Kind::Number, "DECIMAL(9,2)", &["-9999999.99", "-0.01", "0.00", "0.01", "1.10", "12.34"]),
        10 => column(Kind::Number, "DECIMAL(38,10)", &["-99999999999999999999.5", "-1", "0", "0.0000000001", "7.7"]),
        11 => quote(Kind::Time, "DATE", &["1000-01-01", "2024-02-29", "2024-03-01", "9999-12-31"]),
        12 => quote(Kind::Time, "TIME(3)", &["-838:59:59", "-00:00:00.001", "00:00:00", "12:34:56.789"]),
        13 => quote(Kind::Time, "DATETIME(6)", &["1000-01-01 00:00:00", "2024-01-01 00:00:00.000001", "2024-01-01"]),
        14 => quote(Kind::Time, "TIMESTAMP(2) NULL", &["1970-01-02 00:00:01", "2024-01-01 01:02:03.45", "2030-01-01"]),
        15 => column(Kind::Number, "YEAR", &["1901", "1999", "2000", "2155", "0"]),
        16 => quote(Kind::Other, "ENUM('b','a','B2')", &["a", "b", "B2"]),
        17 => quote(Kind::Other, "SET('x','y','z')", &["", "x", "y,z", "x,z"]),
        18 => column(Kind::Number, "BIT(11)", &["0", "1", "255", "256", "2047"]),
        19 => quote(
            Kind::Other,
            "UUID",
            &["00000000-0000-11ef-8000-000000000000", "ffffffff-0000-11ee-8000-000000000001"],
        ),
        20 => quote(Kind::Other, "INET6", &["::", "::1", "fe80::1", "::ffff:1.2.3.4"]),
        _ => quote(Kind::Other, "INET4", &["0.0.0.0", "1.2.3.4", "255.0.0.1"]),
    }
}

/// As a literal that no character set of the connection changes.
pub fn literal(text: &str) -> String {
    match text {
        "" => "''".to_owned(),
        text => format!("_utf8mb4 0x{}", text.bytes().map(|byte| format!("{byte:02X}")).collect::<String>()),
    }
}

/// Of weights in several levels: the server sorts TEXT by the first alone, and compares CHAR that is not padded otherwise in an
/// index than in a condition.
fn has_levels(collation: &Collation) -> bool {
    collation.name.contains("_uca1400_") && (collation.name.contains("_as_") || collation.name.ends_with("_cs"))
}

fn text(chance: &mut Chance, collations: &[Collation]) -> Column {
    let collation = chance.of(collations);
    let of = format!("CHARACTER SET {} COLLATE {}", collation.charset, collation.name);
    let varied = if has_levels(collation) { 2 + chance.below(3) } else { chance.below(6) };
    let (kind, definition) = match varied {
        0 | 1 => (Kind::String, format!("CHAR({}) {of}", 4 + chance.below(8))),
        2..=4 => (Kind::String, format!("VARCHAR({}) {of}", 8 + chance.below(60))),
        _ => (Kind::Long, format!("TEXT {of}")),
    };
    let values = (0..14).map(|_| literal(chance.word(&TEXTS))).collect();
    Column { values, is_text: true, ..column(kind, &definition, &[]) }
}

fn binary(chance: &mut Chance) -> Column {
    let (kind, definition) = match chance.below(6) {
        // Longer than a node of any size.
        5 => {
            let values = ["''", "'a'", "'ab'", "'b'", "'bb'", "REPEAT('ab', 35000)"];
            return column(Kind::Long, "LONGBLOB", &values);
        }
        0 => (Kind::String, format!("BINARY({})", 3 + chance.below(6))),
        1 | 2 => (Kind::String, format!("VARBINARY({})", 8 + chance.below(20))),
        3 => (Kind::Long, "BLOB".to_owned()),
        _ => (Kind::Long, "TINYBLOB".to_owned()),
    };
    column(
        kind,
        &definition,
        &["''", "0x00", "0x0000", "'a'", "'a '", "0x6100", "0x61FF", "'ab'", "'abc'", "0xFF", "0xFF00"],
    )
}

impl Column {
    pub fn any(chance: &mut Chance, name: &str, collations: &[Collation]) -> Self {
        let mut it = match chance.below(20) {
            0..=8 => plain(chance),
            9..=16 => text(chance, collations),
            _ => binary(chance),
        };
        it.name = name.to_owned();
        it.nullable = it.definition.ends_with("NULL") || chance.percent(50);
        if !it.nullable {
            it.definition.push_str(" NOT NULL");
        }
        it
    }

    pub fn has_front(&self) -> bool {
        matches!(self.kind, Kind::String | Kind::Long)
    }

    /// One of its values, as a literal.
    pub fn value(&self, chance: &mut Chance) -> String {
        match self.nullable && chance.percent(12) {
            true => "NULL".to_owned(),
            false => chance.of(&self.values).clone(),
        }
    }

    /// A value that is there.
    pub fn present(&self, chance: &mut Chance) -> String {
        chance.of(&self.values).clone()
    }

    fn is_huge(&self) -> bool {
        self.definition.starts_with("LONGBLOB")
    }

    /// As it was written.
    pub fn shown(&self) -> String {
        match self.kind {
            Kind::Long if self.is_huge() => self.weight(&self.name),
            Kind::String | Kind::Long => format!("HEX({})", self.name),
            _ if self.definition.starts_with("BIT") => format!("{}+0", self.name),
            _ => self.name.clone(),
        }
    }

    /// What of it decides in its order: the same for values that are equal.
    pub fn weight(&self, expression: &str) -> String {
        match self.is_text {
            true => format!("HEX(WEIGHT_STRING({expression} AS CHAR(12)))"),
            false if self.is_huge() => format!("CONCAT(LENGTH({expression}), LEFT({expression}, 2))"),
            false if self.has_front() => format!("HEX({expression})"),
            false if self.definition.starts_with("BIT") || self.definition.starts_with("DOUBLE") => {
                format!("{expression}+0")
            }
            false if self.definition.starts_with("FLOAT") => format!("{expression}+0"),
            false => expression.to_owned(),
        }
    }
}
