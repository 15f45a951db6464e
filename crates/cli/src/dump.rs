//! `trefoil dump`.
//!
//! Text: columns separated by tabs; tab, line feed, carriage return and backslash inside a value are written `\t`,
//! `\n`, `\r`, `\\`, bytes that are not printable ASCII in keys, values and byte columns `\xNN`, NULL `\N`. JSON: one
//! object a line; bytes as a string of hex digits.
//!
//! Salvage: what can be read of a damaged table or index; each range of keys that was passed over is one line on stderr.

use std::io::Write;

use serde_json::{Map, Value as Json, json};
use trefoil::{ALL, DamagedRange, Database, Value};

use crate::{Failure, Format, Opened};

/// Prints a table or a plain index as of now.
pub(crate) fn run(
    database: &Opened,
    (table, index): (Option<String>, Option<String>),
    salvage: bool,
    format: Format,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let opened = database.open_to_read()?;
    let (name, dumped) = match (table, index) {
        (Some(name), _) => (format!("{name}.primary"), rows(&opened, &name, salvage, format, out)),
        (None, Some(name)) => (name.clone(), entries(&opened, &name, salvage, format, out)),
        (None, None) => unreachable!("the command line requires one of them"),
    };
    let skipped = dumped.map_err(|failure| match failure {
        Failure::Damaged(text) if !salvage => Failure::Damaged(format!("{text}; --salvage prints what can be read")),
        other => other,
    })?;
    skipped.iter().for_each(|range| eprintln!("trefoil: {name}: {range}"));
    opened.close()?;
    match skipped.len() {
        0 => Ok(()),
        n => Err(Failure::Gaps(format!(
            "{n} ranges of keys of {name} cannot be read in full; rows in them may be missing, or old where it says so"
        ))),
    }
}

fn rows(
    database: &Database,
    name: &str,
    salvage: bool,
    format: Format,
    out: &mut impl Write,
) -> Result<Vec<DamagedRange>, Failure> {
    let table = database.table(name).map_err(|error| known(database, error))?;
    let schema = table.schema();
    let names: Vec<&str> = schema.columns().iter().map(|column| column.name.as_str()).collect();
    if format == Format::Text {
        writeln!(out, "{}", names.join("\t"))?;
    }
    let snapshot = database.snapshot()?;
    let mut rows = snapshot.scan(&table, ALL)?;
    if salvage {
        rows = rows.skip_damaged();
    }
    while let Some(values) = rows.next()? {
        match format {
            Format::Text => {
                let line: Vec<String> = values.iter().map(text).collect();
                writeln!(out, "{}", line.join("\t"))?;
            }
            Format::Json => {
                let object: Map<String, Json> =
                    names.iter().zip(&values).map(|(name, value)| ((*name).to_owned(), json_of(value))).collect();
                writeln!(out, "{}", Json::Object(object))?;
            }
        }
    }
    Ok(rows.skipped().to_vec())
}

fn entries(
    database: &Database,
    name: &str,
    salvage: bool,
    format: Format,
    out: &mut impl Write,
) -> Result<Vec<DamagedRange>, Failure> {
    let index = database.index(name).map_err(|error| known(database, error))?;
    let snapshot = database.snapshot()?;
    let mut cursor = snapshot.range(&index, ..)?;
    if salvage {
        cursor = cursor.skip_damaged();
    }
    while let Some((key, value)) = cursor.next()? {
        match format {
            Format::Text => writeln!(out, "{}\t{}", escaped(key), escaped(value))?,
            Format::Json => writeln!(out, "{}", json!({"key": hex(key), "value": hex(value)}))?,
        }
    }
    Ok(cursor.skipped().to_vec())
}

/// An unknown name, with the known ones.
fn known(database: &Database, error: trefoil::Error) -> Failure {
    let (indexes, tables) = database.names();
    let list = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    match Failure::from(error) {
        Failure::Usage(text) => {
            Failure::Usage(format!("{text}; tables: {}; plain indexes: {}", list(tables), list(indexes)))
        }
        other => other,
    }
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Null => "\\N".into(),
        Value::I64(n) | Value::Timestamp(n) => n.to_string(),
        Value::I32(n) => n.to_string(),
        Value::U64(n) => n.to_string(),
        Value::U32(n) => n.to_string(),
        Value::F64(n) => format!("{n:?}"),
        Value::Bool(b) => b.to_string(),
        Value::Text(s) => s.chars().map(|c| special(c).map_or_else(|| c.to_string(), str::to_owned)).collect(),
        Value::Bytes(b) => escaped(b),
    }
}

fn special(c: char) -> Option<&'static str> {
    Some(match c {
        '\t' => "\\t",
        '\n' => "\\n",
        '\r' => "\\r",
        '\\' => "\\\\",
        _ => return None,
    })
}

fn escaped(bytes: &[u8]) -> String {
    let one = |byte: &u8| match special(char::from(*byte)) {
        Some(text) => text.to_owned(),
        None if (b' '..=b'~').contains(byte) => char::from(*byte).to_string(),
        None => format!("\\x{byte:02x}"),
    };
    bytes.iter().map(one).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json_of(value: &Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::I64(n) | Value::Timestamp(n) => json!(n),
        Value::I32(n) => json!(n),
        Value::U64(n) => json!(n),
        Value::U32(n) => json!(n),
        // JSON has no infinities: those are strings.
        Value::F64(n) if n.is_finite() => json!(n),
        Value::F64(n) => json!(n.to_string()),
        Value::Bool(b) => json!(b),
        Value::Text(s) => json!(s),
        Value::Bytes(b) => json!(hex(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_row_whatever_the_values_hold() {
        let values =
            [Value::Null, Value::from("a\tb\n\\é"), Value::Bytes(b"\x00\xffA".as_slice().into()), Value::F64(0.1)];
        assert_eq!(values.each_ref().map(text), ["\\N", "a\\tb\\n\\\\é", "\\x00\\xffA", "0.1"]);
        assert_eq!(json_of(&Value::F64(f64::INFINITY)), json!("inf"));
    }
}
