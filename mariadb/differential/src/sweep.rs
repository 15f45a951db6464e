// SPDX-License-Identifier: GPL-2.0-only
//! Every collation: how its keys order texts, and which they take for equal.

use std::fmt::Write;

use crate::Collation;
use crate::column::{TEXTS, literal};

pub fn sweep(collations: &[Collation]) -> String {
    let mut sql = String::from("SET sql_mode = '';\n");
    let texts: Vec<String> = TEXTS.iter().map(|text| literal(text)).collect();
    for Collation { name, charset } in collations {
        let of = format!("CHARACTER SET {charset} COLLATE {name}");
        let columns = format!("id INT PRIMARY KEY, v VARCHAR(9) {of}, c CHAR(8) {of}, x TEXT {of}");
        let keys = "KEY v (v), KEY c (c DESC), KEY x (x(2)), KEY f (v(1), c(2))";
        let rows: Vec<String> =
            texts.iter().enumerate().map(|(n, text)| format!("({n}, {text}, {text}, {text})")).collect();
        let weight = |column: &str| format!("HEX(WEIGHT_STRING({column} AS CHAR(12)))");
        writeln!(sql, "SELECT '{name}' AS ''; CREATE TABLE s ({columns}, {keys});").ok();
        writeln!(sql, "INSERT IGNORE INTO s VALUES {};", rows.join(", ")).ok();
        for (column, key, by) in [("v", "v", "v"), ("v", "v", "v DESC"), ("c", "c", "c"), ("c", "c", "c DESC")] {
            writeln!(sql, "SELECT {} FROM s FORCE INDEX ({key}) ORDER BY {by};", weight(column)).ok();
        }
        for (column, key) in [("v", "v"), ("c", "c"), ("x", "x"), ("v", "f")] {
            let equal = format!("a.{column} = b.{column}");
            writeln!(sql, "SELECT a.id, GROUP_CONCAT(b.id ORDER BY b.id) FROM s a STRAIGHT_JOIN s b FORCE INDEX ({key}) ON {equal} GROUP BY a.id;").ok();
            for text in ["a", "ch", "ss", "b", " "] {
                let text = literal(text);
                writeln!(
                    sql,
                    "SELECT GROUP_CONCAT(id ORDER BY id) FROM s FORCE INDEX ({key}) WHERE {column} < {text};"
                )
                .ok();
                writeln!(
                    sql,
                    "SELECT GROUP_CONCAT(id ORDER BY id) FROM s FORCE INDEX ({key}) WHERE {column} >= {text};"
                )
                .ok();
            }
        }
        for (column, kind) in [("v", "VARCHAR(9)"), ("c", "CHAR(8)"), ("x", "TEXT")] {
            let front = if column == "x" { "(3)" } else { "" };
            writeln!(sql, "CREATE TABLE u (id INT, {column} {kind} {of} NOT NULL, PRIMARY KEY ({column}{front}));")
                .ok();
            writeln!(sql, "INSERT IGNORE INTO u SELECT id, {column} FROM s ORDER BY id; SELECT id FROM u ORDER BY id; DROP TABLE u;").ok();
        }
        writeln!(sql, "DROP TABLE s;").ok();
    }
    sql
}
