// SPDX-License-Identifier: GPL-2.0-only
//! One table, what changes it and what is asked of it.

use std::fmt::Write;

use crate::Collation;
use crate::chance::Chance;
use crate::column::Column;

const CHANGES: usize = 60;
const QUERIES: usize = 40;

struct Part {
    column: usize,
    front: Option<usize>,
    descending: bool,
}

struct Key {
    /// None: the primary key.
    name: Option<String>,
    parts: Vec<Part>,
    unique: bool,
}

struct Table {
    columns: Vec<Column>,
    keys: Vec<Key>,
    partitions: &'static str,
}

pub fn round(seed: u64, collations: &[Collation]) -> String {
    let mut chance = Chance::new(seed);
    let table = Table::any(&mut chance, collations);
    let mut sql = format!("SELECT 'round {seed}' AS '';\nSET sql_mode = '{}';\n", modes(&mut chance));
    let (switch, level) =
        (chance.word(&["mrr=off", "mrr=on", "mrr=on,mrr_sort_keys=on"]), chance.word(&["2", "6", "8"]));
    writeln!(sql, "SET optimizer_switch = '{switch}', join_cache_level = {level};").ok();
    writeln!(sql, "{};", table.create()).ok();
    for _ in 0..4 {
        table.insert(&mut chance, "INSERT IGNORE", 12, &mut sql);
    }
    let mut in_transaction = false;
    for n in 0..CHANGES {
        match chance.below(12) {
            0 if in_transaction => writeln!(sql, "{};", chance.word(&["COMMIT", "ROLLBACK"])).ok(),
            0 => writeln!(sql, "START TRANSACTION;").ok(),
            1 if in_transaction => writeln!(sql, "SAVEPOINT s;").ok(),
            2 if in_transaction => writeln!(sql, "ROLLBACK TO s;").ok(),
            _ => None,
        };
        in_transaction = match sql.rsplit('\n').nth(1) {
            Some("START TRANSACTION;") => true,
            Some("COMMIT;" | "ROLLBACK;") => false,
            _ => in_transaction,
        };
        table.change(&mut chance, &mut sql);
        if n % 10 == 9 {
            table.everything(&mut sql);
        }
    }
    writeln!(sql, "COMMIT;").ok();
    for n in 0..QUERIES {
        if n == QUERIES / 2 {
            table.alter(&mut chance, &mut sql);
        }
        table.query(&mut chance, &mut sql);
    }
    for key in 0..table.keys.len() {
        writeln!(sql, "SELECT COUNT(*) FROM t {};", table.forced(Some(key))).ok();
    }
    writeln!(sql, "CHECK TABLE t; DROP TABLE t;").ok();
    sql
}

fn modes(chance: &mut Chance) -> &'static str {
    chance.word(&["", "STRICT_TRANS_TABLES", "NO_ENGINE_SUBSTITUTION", "PAD_CHAR_TO_FULL_LENGTH"])
}

impl Table {
    fn any(chance: &mut Chance, collations: &[Collation]) -> Self {
        let count = 3 + chance.below(5);
        let columns: Vec<Column> = (0..count).map(|n| Column::any(chance, &format!("c{n}"), collations)).collect();
        let mut table = Self { columns, keys: Vec::new(), partitions: "" };
        let fixed: Vec<usize> = (0..count).filter(|&n| !table.columns[n].nullable).collect();
        if !fixed.is_empty() && chance.percent(75) {
            let count = 1 + chance.below(2);
            let parts = chance.some(fixed.len(), count).into_iter().map(|n| fixed[n]).collect::<Vec<_>>();
            table.add_key(chance, None, parts, true);
        }
        for n in 0..1 + chance.below(4) {
            let parts = 1 + chance.below(3);
            let (parts, unique) = (chance.some(table.columns.len(), parts), chance.percent(30));
            table.add_key(chance, Some(format!("k{n}")), parts, unique);
        }
        // By all of the one key that is unique, which has no fronts: rows move when it is changed.
        let (unique, others): (Vec<&Key>, Vec<&Key>) = table.keys.iter().partition(|key| key.unique);
        if let ([Key { name: None, parts, .. }], true) = (&unique[..], !others.is_empty() && chance.percent(60))
            && parts.iter().all(|part| part.front.is_none())
        {
            table.partitions = " PARTITION BY KEY() PARTITIONS 3";
        }
        table
    }

    fn add_key(&mut self, chance: &mut Chance, name: Option<String>, columns: Vec<usize>, unique: bool) {
        let part = |column: usize| {
            let of = &self.columns[column];
            let must = of.kind == crate::column::Kind::Long;
            let front = (must || (of.has_front() && chance.percent(35))).then(|| 1 + chance.below(3));
            Part { column, front, descending: chance.percent(30) }
        };
        let parts = columns.into_iter().map(part).collect();
        self.keys.push(Key { name, parts, unique });
    }

    fn part(&self, part: &Part) -> String {
        let front = part.front.map_or(String::new(), |length| format!("({length})"));
        format!("{}{front}{}", self.columns[part.column].name, if part.descending { " DESC" } else { "" })
    }

    fn key(&self, key: &Key) -> String {
        let parts = key.parts.iter().map(|part| self.part(part)).collect::<Vec<_>>().join(", ");
        // Of partitioned tables the server lets keys have no options.
        let is_whole = self.partitions.is_empty();
        match &key.name {
            // Options are for the engine that has them, see `differential.sh`.
            None => {
                let structure = match (key.parts.len(), self.columns.len() % 2) {
                    _ if !is_whole => "",
                    (1, _) => "",
                    (_, 0) => " STRUCTURE=btree",
                    (_, _) => " STRUCTURE=lsm",
                };
                format!("PRIMARY KEY ({parts}){structure}")
            }
            Some(name) => {
                let clustering = if is_whole && name.ends_with(['1', '3']) { " CLUSTERING=1" } else { "" };
                let structure = match name.as_bytes() {
                    [.., b'2'] if is_whole => " STRUCTURE=lsm",
                    [.., b'3'] if is_whole => " STRUCTURE=btree",
                    _ => "",
                };
                format!("{}KEY {name} ({parts}){clustering}{structure}", if key.unique { "UNIQUE " } else { "" })
            }
        }
    }

    fn create(&self) -> String {
        let columns = self.columns.iter().map(|column| format!("{} {}", column.name, column.definition));
        let keys = self.keys.iter().map(|key| self.key(key));
        format!("CREATE TABLE t ({}){}", columns.chain(keys).collect::<Vec<_>>().join(", "), self.partitions)
    }

    /// An order that leaves no choice between rows that differ.
    fn total_order(&self) -> String {
        self.columns.iter().map(Column::shown).collect::<Vec<_>>().join(", ")
    }

    fn everything(&self, sql: &mut String) {
        let all = self.total_order();
        writeln!(sql, "SELECT {all} FROM t ORDER BY {all};").ok();
    }

    fn row(&self, chance: &mut Chance) -> String {
        let values: Vec<String> = self.columns.iter().map(|column| column.value(chance)).collect();
        format!("({})", values.join(", "))
    }

    fn insert(&self, chance: &mut Chance, verb: &str, rows: usize, sql: &mut String) {
        let rows: Vec<String> = (0..1 + chance.below(rows)).map(|_| self.row(chance)).collect();
        let returning = self.returning(chance);
        writeln!(sql, "{verb} INTO t VALUES {}{returning}; SHOW WARNINGS;", rows.join(", ")).ok();
    }

    fn returning(&self, chance: &mut Chance) -> String {
        if chance.percent(20) { format!(" RETURNING {}", self.total_order()) } else { String::new() }
    }

    /// Rows of the table itself, changed or not: what is read is not what is being written.
    fn insert_own(&self, chance: &mut Chance, sql: &mut String) {
        let (verb, order, limit) = (chance.word(&["INSERT IGNORE", "REPLACE", "INSERT"]), self.total_order(), 8);
        let list = self.columns.iter().map(|column| match chance.percent(40) {
            true => column.value(chance),
            false => column.name.clone(),
        });
        let (list, condition) = (list.collect::<Vec<_>>().join(", "), self.condition(chance));
        let select = format!("SELECT {list} FROM t WHERE {condition} ORDER BY {order} LIMIT {limit}");
        let update = match (verb, self.assignments(chance)) {
            ("INSERT", set) => format!(" ON DUPLICATE KEY UPDATE t.{set}").replace(", ", ", t."),
            _ => String::new(),
        };
        writeln!(sql, "{verb} INTO t {select}{update}; SHOW WARNINGS;").ok();
    }

    /// In any order, along any key: a row that moves ahead in it is not met again.
    fn update_along(&self, chance: &mut Chance, sql: &mut String) {
        let n = chance.below(self.columns.len());
        let is_unique = |key: &Key| key.unique && key.parts.iter().any(|part| part.column == n);
        if self.keys.iter().any(is_unique) {
            return;
        }
        let key = chance.below(self.keys.len());
        let (value, forced) = (self.columns[n].value(chance), self.forced(Some(key)));
        let condition = self.condition_of(chance, Some(key));
        writeln!(sql, "UPDATE IGNORE t {forced} SET {} = {value} WHERE {condition};", self.columns[n].name).ok();
    }

    /// `column = value, …`
    fn assignments(&self, chance: &mut Chance) -> String {
        let count = 1 + chance.below(2);
        let columns = chance.some(self.columns.len(), count);
        let set = columns.into_iter().map(|n| format!("{} = {}", self.columns[n].name, self.columns[n].value(chance)));
        set.collect::<Vec<_>>().join(", ")
    }

    fn change(&self, chance: &mut Chance, sql: &mut String) {
        let order = self.total_order();
        match chance.below(12) {
            10 => self.insert_own(chance, sql),
            11 => self.update_along(chance, sql),
            0 | 1 => self.insert(chance, "INSERT", 3, sql),
            2 => self.insert(chance, "INSERT IGNORE", 6, sql),
            3 => self.insert(chance, "REPLACE", 3, sql),
            4 | 5 => {
                let (row, set) = (self.row(chance), self.assignments(chance));
                writeln!(sql, "INSERT INTO t VALUES {row} ON DUPLICATE KEY UPDATE {set}; SHOW WARNINGS;").ok();
            }
            6..=8 => {
                let ignore = if chance.percent(40) { "IGNORE " } else { "" };
                let (set, condition, limit) = (self.assignments(chance), self.condition(chance), 1 + chance.below(4));
                let rest = format!("SET {set} WHERE {condition} ORDER BY {order} LIMIT {limit}");
                writeln!(sql, "UPDATE {ignore}t {rest}; SHOW WARNINGS;").ok();
            }
            _ => {
                let (condition, limit, returning) =
                    (self.condition(chance), 1 + chance.below(3), self.returning(chance));
                writeln!(
                    sql,
                    "DELETE FROM t WHERE {condition} ORDER BY {order} LIMIT {limit}{returning}; SHOW WARNINGS;"
                )
                .ok();
            }
        }
    }

    fn alter(&self, chance: &mut Chance, sql: &mut String) {
        let parts = chance.some(self.columns.len(), 2);
        let columns = parts.iter().map(|&n| {
            let front = if self.columns[n].has_front() { "(2)" } else { "" };
            format!("{}{front}", self.columns[n].name)
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        let how = if self.partitions.is_empty() { chance.word(&["COPY", "INPLACE", "INPLACE"]) } else { "COPY" };
        writeln!(sql, "ALTER TABLE t ADD KEY late ({columns}), ALGORITHM={how};").ok();
        if how == "INPLACE" {
            let structure = chance.word(&["lsm", "btree", "betree"]);
            writeln!(sql, "ALTER TABLE t STRUCTURE={structure};").ok();
        }
        self.everything(sql);
    }

    fn condition(&self, chance: &mut Chance) -> String {
        let both = chance.percent(30);
        let first = self.comparison(chance, None);
        match both {
            true => format!("({first}) {} ({})", chance.word(&["AND", "AND", "OR"]), self.comparison(chance, None)),
            false => first,
        }
    }

    fn comparison(&self, chance: &mut Chance, column: Option<usize>) -> String {
        let n = column.unwrap_or_else(|| chance.below(self.columns.len()));
        let column = &self.columns[n];
        let (name, value, other) = (&column.name, column.present(chance), column.present(chance));
        match chance.below(14) {
            0 => format!("{name} IS NULL"),
            1 => format!("{name} IS NOT NULL"),
            2 => format!("{name} <=> {}", column.value(chance)),
            3 => format!("{name} BETWEEN {value} AND {other}"),
            4 => format!("{name} IN ({value}, {other}, {})", column.present(chance)),
            5 if column.is_text => format!("{name} LIKE CONCAT({value}, '%')"),
            6 => format!("{name} > {value} AND {name} < {other}"),
            7 => format!("{name} <> {value}"),
            _ => format!("{name} {} {value}", chance.word(&["=", "<", "<=", "=", ">", ">=", "="])),
        }
    }

    fn forced(&self, key: Option<usize>) -> String {
        let name = key.map(|n| self.keys[n].name.clone().unwrap_or_else(|| "PRIMARY".to_owned()));
        name.map_or(String::new(), |name| format!("FORCE INDEX ({name})"))
    }

    /// Of a column that the key has, more often than not.
    fn condition_of(&self, chance: &mut Chance, key: Option<usize>) -> String {
        let Some(parts) = key.map(|n| &self.keys[n].parts).filter(|_| chance.percent(80)) else {
            return self.condition(chance);
        };
        let count = 1 + chance.below(parts.len());
        let each = parts.iter().take(count).map(|part| self.comparison(chance, Some(part.column)));
        each.collect::<Vec<_>>().join(" AND ")
    }

    fn query(&self, chance: &mut Chance, sql: &mut String) {
        let key = chance.percent(75).then(|| chance.below(self.keys.len()));
        let (forced, condition, order) = (self.forced(key), self.condition_of(chance, key), self.total_order());
        let n = key.map_or_else(|| chance.below(self.columns.len()), |n| self.keys[n].parts[0].column);
        let (name, weight) = (&self.columns[n].name, |expression: &str| self.columns[n].weight(expression));
        match chance.below(10) {
            0..=2 => writeln!(sql, "SELECT {order} FROM t {forced} WHERE {condition} ORDER BY {order};"),
            3 | 4 => {
                let (list, by) = self.key_order(chance, key, n);
                let limit = if chance.percent(50) { format!(" LIMIT {}", 1 + chance.below(8)) } else { String::new() };
                writeln!(sql, "SELECT {list} FROM t {forced} WHERE {condition} ORDER BY {by}{limit};")
            }
            5 => {
                let (least, most) = (weight(&format!("MIN({name})")), weight(&format!("MAX({name})")));
                let counts = format!("COUNT({name}), COUNT(DISTINCT {name})");
                let filter = if chance.percent(40) { String::new() } else { format!(" WHERE {condition}") };
                writeln!(sql, "SELECT {least}, {most}, {counts} FROM t {forced}{filter};")
            }
            6 => {
                let group = weight(&format!("MIN({name})"));
                let filter = if chance.percent(50) { String::new() } else { format!(" WHERE {condition}") };
                writeln!(sql, "SELECT {group} AS g, COUNT(*) FROM t {forced}{filter} GROUP BY {name} ORDER BY g, 2;")
            }
            7 => {
                let columns: Vec<_> = match key {
                    Some(n) => self.keys[n].parts.iter().map(|part| self.columns[part.column].name.clone()).collect(),
                    None => vec![name.clone()],
                };
                let columns = columns.join(", ");
                writeln!(sql, "SELECT COUNT(*) FROM (SELECT DISTINCT {columns} FROM t {forced}) d;")
            }
            8 => {
                let equal = chance.word(&["=", "<=>"]);
                let forced = self.forced(key);
                writeln!(sql, "SELECT COUNT(*) FROM t a JOIN t b {forced} ON a.{name} {equal} b.{name};")
            }
            _ => {
                // A condition of both, of the key that the join reads by or of others.
                let (outer, forced) = (chance.word(&["STRAIGHT_JOIN", "LEFT JOIN"]), self.forced(key));
                let other = &self.columns[chance.below(self.columns.len())].name;
                let on = format!("a.{name} = b.{name} AND (a.{other} IS NULL OR b.{name} IS NOT NULL)");
                let all: Vec<String> = self.columns.iter().map(|column| format!("COUNT(b.{})", column.name)).collect();
                writeln!(sql, "SELECT COUNT(*), {} FROM t a {outer} t b {forced} ON {on};", all.join(", "))
            }
        }
        .ok();
    }

    /// Weights of a key's columns, and the order that it has, or the other way round.
    fn key_order(&self, chance: &mut Chance, key: Option<usize>, n: usize) -> (String, String) {
        let back = chance.percent(50);
        let parts: Vec<(usize, bool)> = match key {
            Some(key) => self.keys[key].parts.iter().map(|part| (part.column, part.descending)).collect(),
            None => vec![(n, false)],
        };
        let weights = parts.iter().map(|&(n, _)| self.columns[n].weight(&self.columns[n].name));
        let by = parts.iter().map(|&(n, descending)| {
            format!("{}{}", self.columns[n].name, if descending != back { " DESC" } else { "" })
        });
        (weights.collect::<Vec<_>>().join(", "), by.collect::<Vec<_>>().join(", "))
    }
}
