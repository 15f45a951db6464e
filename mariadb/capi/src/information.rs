// SPDX-License-Identifier: GPL-2.0-only
//! Tables of INFORMATION_SCHEMA: what each is called, what columns it has, what rows are in it now.
//!
//! Here stands everything of them; `handler/information.cc` makes tables of the descriptions and copies values. A table is
//! asked for as a whole: its rows are gathered at once, as values of their own, and handed out one by one afterwards. So
//! nothing of the engine is held while the server stores them, and a row is as old as the question.
//!
//! How true they are: numbers of one index, one session, one lock are of one moment; those of several are gathered one after
//! the other while everybody goes on. Nobody waits for who asks.

mod storage;
mod transactions;

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr::null;
use std::sync::Arc;
use std::vec;

use crate::abi;
use crate::alter;
use crate::database::Engine;
use crate::failure::{Code, Failure, Result};

/// What a column holds, and how the server shows it. As `capi.h` numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Number = 1,
    /// Of at most so many characters.
    Text = 2,
    Ratio = 3,
    /// Seconds since 1970, shown as a time.
    Time = 4,
    /// A piece of the server's path of a table, shown as its name.
    Path = 5,
    /// The number of a connection, shown as the statement that it runs.
    Query = 6,
}

/// A column.
#[derive(Debug)]
pub struct Column {
    pub name: &'static CStr,
    pub kind: Kind,
    pub length: u32,
}

/// A table.
pub struct View {
    name: &'static str,
    columns: &'static [Column],
    rows: fn(&Arc<Engine>) -> Result<Vec<Row>>,
}

/// One value for each column.
pub type Row = Vec<Value>;

/// What stands in a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Number(u64),
    Text(String),
    Ratio(f64),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Value {
    fn from(ratio: f64) -> Self {
        Self::Ratio(ratio)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

const fn column(name: &'static CStr, kind: Kind) -> Column {
    Column { name, kind, length: 0 }
}

const fn number(name: &'static CStr) -> Column {
    column(name, Kind::Number)
}

const fn text(name: &'static CStr, length: u32) -> Column {
    Column { name, kind: Kind::Text, length }
}

/// The three that say which index it is.
const SCHEMA: Column = column(c"TABLE_SCHEMA", Kind::Path);
const TABLE: Column = column(c"TABLE_NAME", Kind::Path);
/// Longer than names of keys are: of one that is being built it says so.
const INDEX: Column = text(c"INDEX_NAME", 80);

static VIEWS: [View; 10] = [
    transactions::TRX,
    transactions::LOCKS,
    transactions::LOCK_WAITS,
    transactions::DEADLOCKS,
    storage::INDEXES,
    storage::ADVICE,
    storage::LEVELS,
    storage::IO,
    storage::STALLS,
    transactions::GC,
];

/// The table of that name.
pub fn view(name: &str) -> Result<&'static View> {
    let found = VIEWS.iter().find(|view| view.name == name);
    found.ok_or_else(|| Failure::new(Code::NoTable, &format!("no view {name}")))
}

impl View {
    pub fn column(&self, n: usize) -> Option<&'static Column> {
        self.columns.get(n)
    }

    pub fn open(&self, engine: &Arc<Engine>) -> Result<Rows> {
        let rows = (self.rows)(engine)?;
        debug_assert!(rows.iter().all(|row| row.len() == self.columns.len()), "{}: a value for each column", self.name);
        Ok(Rows { left: rows.into_iter(), row: Vec::new(), shown: Vec::new() })
    }
}

/// Rows on their way to the server.
pub struct Rows {
    left: vec::IntoIter<Row>,
    row: Row,
    /// The same for C: texts point into `row`.
    shown: Vec<abi::ViewValue>,
}

impl Rows {
    /// The next row, as it is until the next call.
    pub fn next(&mut self) -> Option<&[abi::ViewValue]> {
        self.shown.clear();
        self.row = self.left.next()?;
        self.shown.extend(self.row.iter().map(shown));
        Some(&self.shown)
    }
}

fn shown(value: &Value) -> abi::ViewValue {
    let none =
        abi::ViewValue { is_null: 1, reserved: [0; 7], number: 0, ratio: 0.0, text: abi::Text { ptr: null(), len: 0 } };
    let there = abi::ViewValue { is_null: 0, ..none };
    match value {
        Value::Null => none,
        Value::Number(number) => abi::ViewValue { number: *number, ..there },
        Value::Ratio(ratio) => abi::ViewValue { ratio: *ratio, ..there },
        Value::Text(text) => abi::ViewValue { text: crate::raw::to_text(text), ..there },
    }
}

/// Of the engine's names of indexes: which table of the server, and which key of it.
pub struct Names(BTreeMap<String, (Option<String>, String)>);

impl Names {
    pub fn new(engine: &Engine) -> Self {
        Self(engine.db.indexes().into_iter().map(|index| (index.full_name(), (index.table, index.name))).collect())
    }

    /// Schema, table, key; of what is none of a table, or was dropped meanwhile, only a name.
    pub fn place(&self, index: &str) -> [Value; 3] {
        match self.0.get(index) {
            Some((table, name)) => place(table.as_deref(), name),
            None => place(None, index),
        }
    }
}

/// Schema, table, key.
fn place(table: Option<&str>, index: &str) -> [Value; 3] {
    let Some(table) = table else { return [Value::Null, Value::Null, index.into()] };
    // Temporary tables lie in a directory of their own, which is no schema.
    let (schema, name) = table.rsplit_once('/').unwrap_or(("", table));
    let schema = Some(schema).filter(|schema| !schema.contains('/'));
    let index = match (index, alter::name_to_be(index)) {
        ("primary", _) => "PRIMARY".into(),
        ("primary to be", _) => "PRIMARY (being built)".into(),
        ("former primary", _) => "PRIMARY (as it was)".into(),
        (_, Some(key)) => format!("{key} (being built)"),
        _ => index.to_owned(),
    };
    [schema.into(), name.into(), index.into()]
}

/// A key as it is stored, in hexadecimal; of a long one its beginning.
fn hex(key: &[u8]) -> String {
    key.iter().take(KEY_BYTES_SHOWN).map(|byte| format!("{byte:02x}")).collect()
}

const KEY_BYTES_SHOWN: usize = 64;
const KEY_CHARACTERS: u32 = 2 * KEY_BYTES_SHOWN as u32;

#[cfg(test)]
mod tests {
    use trefoil::{ColumnType, Schema};

    use super::*;

    /// Each value is what its column says. Guard: a column left out of a row, or of another kind.
    #[test]
    fn rows_are_as_their_columns_say() {
        let (_dir, engine) = crate::database::tests::engine();
        let schema = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]).build().expect("a schema");
        let table = engine.db.create_table("d/t", schema).expect("it is new");
        let engine = Arc::new(engine);
        let (_, face) = engine.watch.enter(7, std::ptr::null_mut());
        let mut tx = engine.db.begin().expect("it begins");
        face.begin(&tx, trefoil::Isolation::RepeatableRead);
        tx.insert(&table, &[1i64.into()]).expect("it is new");
        let mut filled = 0;
        for view in &VIEWS {
            let rows = (view.rows)(&engine).unwrap_or_else(|why| panic!("{}: {why:?}", view.name));
            filled += usize::from(!rows.is_empty());
            for row in rows {
                assert_eq!(row.len(), view.columns.len(), "{}", view.name);
                for (value, column) in row.iter().zip(view.columns) {
                    let fits = match value {
                        Value::Null => true,
                        Value::Number(_) => matches!(column.kind, Kind::Number | Kind::Time | Kind::Query),
                        Value::Text(text) => {
                            column.kind == Kind::Path
                                || column.kind == Kind::Text && text.len() <= column.length as usize
                        }
                        Value::Ratio(_) => column.kind == Kind::Ratio,
                    };
                    assert!(fits, "{}.{:?}: {value:?}", view.name, column.name);
                }
            }
        }
        assert_eq!(filled, VIEWS.len() - 3, "all but waits, deadlocks and levels");
    }

    /// Guard: each row of the table in `docs/OPERATING.md`. Where it stands with several others, by its whole name too.
    #[test]
    fn every_column_is_in_the_documents() {
        let page = include_str!("../../../docs/OPERATING.md");
        for view in &VIEWS {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", view.name)));
            let row = row.unwrap_or_else(|| panic!("{} has no row", view.name));
            let of_indexes = ["TABLE_SCHEMA", "TABLE_NAME", "INDEX_NAME"];
            for column in view.columns {
                let name = column.name.to_str().expect("a name in ASCII");
                assert!(
                    row.contains(&format!("`{name}`")) || of_indexes.contains(&name),
                    "{}.{name} is not in docs/OPERATING.md",
                    view.name
                );
            }
        }
    }

    #[test]
    fn places_of_indexes_are_the_servers() {
        let of = |table, index| {
            place(table, index).map(|value| if let Value::Text(text) = value { text } else { "-".into() })
        };
        assert_eq!(of(Some("d/t"), "primary"), ["d", "t", "PRIMARY"]);
        assert_eq!(of(Some("d/t#P#p0"), "k.v"), ["d", "t#P#p0", "k.v"]);
        assert_eq!(of(Some("/tmp/x/#sql-temptable-1"), "k"), ["-", "#sql-temptable-1", "k"]);
        assert_eq!(of(None, "numbers"), ["-", "-", "numbers"]);
        assert_eq!(of(Some("d/t"), "my key "), ["d", "t", "my key (being built)"]);
        assert_eq!(of(Some("d/t"), "primary to be"), ["d", "t", "PRIMARY (being built)"]);
        assert_eq!(of(Some("d/t"), "former primary"), ["d", "t", "PRIMARY (as it was)"]);
    }
}
