//! The statements of the insert benchmark on one table.

use std::sync::OnceLock;

use super::parameters::Engine;
use crate::row::{IndexSet, Secondary};

const COLUMNS: &str = "dateandtime, cashregisterid, customerid, productid, price, data";
/// Smaller than any value of a column: a range from it on is a whole index.
const LEAST: i64 = i32::MIN as i64;

/// Statements on a table; those on its indexes exist once the indexes do.
pub struct Sql {
    name: String,
    pub create_table: String,
    pub delete_smallest: String,
    pub delete_range: String,
    pub get: String,
    pub min_key: String,
    pub max_key: String,
    pub scan: String,
    pub customers: String,
    pub look: String,
    indexes: OnceLock<[Indexed; 3]>,
}

/// Statements on one index, which each of them forces.
pub struct Indexed {
    pub columns: usize,
    /// From a value of the first column on.
    pub from: String,
    /// Behind a value of the first column.
    pub above: String,
    /// All entries and keys, as they come.
    pub scan: String,
    /// How many entries, and how many of them have a column below 0.
    pub look: String,
}

impl Sql {
    /// The statements on table number `table`.
    pub fn new(table: u32, options: &str) -> Sql {
        let name = format!("pi{}", table + 1);
        Sql {
            create_table: format!(
                "CREATE TABLE {name} (transactionid BIGINT NOT NULL AUTO_INCREMENT, dateandtime DATETIME, \
                 cashregisterid INT NOT NULL, customerid INT NOT NULL, productid INT NOT NULL, price INT NOT NULL, \
                 data VARCHAR(4000), PRIMARY KEY (transactionid)) {options}"
            ),
            delete_smallest: format!("DELETE FROM {name} WHERE transactionid >= ? ORDER BY transactionid LIMIT ?"),
            delete_range: format!("DELETE FROM {name} WHERE transactionid >= ? AND transactionid < ?"),
            get: format!("SELECT transactionid, {COLUMNS} FROM {name} WHERE transactionid = ?"),
            min_key: format!("SELECT MIN(transactionid) FROM {name}"),
            max_key: format!("SELECT MAX(transactionid) FROM {name}"),
            scan: format!("SELECT transactionid, {COLUMNS} FROM {name} ORDER BY transactionid"),
            customers: format!("SELECT customerid FROM {name} FORCE INDEX (PRIMARY) ORDER BY transactionid"),
            look: format!(
                "SELECT COUNT(*), COUNT(CASE WHEN customerid < 0 THEN data END) FROM {name} FORCE INDEX (PRIMARY) \
                 WHERE transactionid >= 0"
            ),
            indexes: OnceLock::new(),
            name,
        }
    }

    /// A multi-row insert.
    pub fn insert(&self, rows: usize) -> String {
        format!("INSERT INTO {} ({COLUMNS}) VALUES {}", self.name, repeated("(?,?,?,?,?,?)", rows))
    }

    /// An IN list of keys.
    pub fn points(&self, keys: usize) -> String {
        let keys = repeated("?", keys);
        format!("SELECT transactionid, productid, data FROM {} WHERE transactionid IN ({keys})", self.name)
    }

    fn columns(set: IndexSet, index: Secondary) -> String {
        set.columns(index).iter().map(|column| column.name()).collect::<Vec<_>>().join(", ")
    }

    /// The statements that create the indexes: one, but MyRocks builds each by itself.
    pub fn create_indexes(&self, set: IndexSet, engine: &Engine) -> Vec<String> {
        let add = Secondary::ALL.map(|index| format!("ADD INDEX {} ({})", index.name(), Sql::columns(set, index)));
        match engine {
            Engine::RocksDb => add.iter().map(|add| format!("ALTER TABLE {} {add}", self.name)).collect(),
            _ => vec![format!("ALTER TABLE {} {}", self.name, add.join(", "))],
        }
    }

    /// From here on the indexes exist.
    pub fn index(&self, set: IndexSet) -> Result<(), &'static str> {
        let indexes = Secondary::ALL.map(|index| {
            let columns = Sql::columns(set, index);
            let first = set.columns(index)[0].name();
            let source = format!("FROM {} FORCE INDEX ({})", self.name, index.name());
            let range = |compare: &str| {
                format!("SELECT {columns} {source} WHERE {first} {compare} ? ORDER BY {columns} LIMIT ?")
            };
            let below: Vec<String> =
                set.columns(index).iter().map(|column| format!("{} < 0", column_of(*column))).collect();
            Indexed {
                columns: set.columns(index).len(),
                from: range(">="),
                above: range(">"),
                scan: format!("SELECT {columns}, transactionid {source} WHERE {first} >= {LEAST}"),
                look: format!(
                    "SELECT COUNT(*), COUNT(CASE WHEN {} THEN 1 END) {source} WHERE {first} >= {LEAST}",
                    below.join(" OR ")
                ),
            }
        });
        self.indexes.set(indexes).map_err(|_| "the indexes exist already")
    }

    /// The statements on an index.
    pub fn indexed(&self, index: Secondary) -> Result<&Indexed, &'static str> {
        self.indexes.get().map(|indexes| &indexes[index.position()]).ok_or("the table has no secondary indexes")
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A column as a number: a DATETIME cannot be compared with one.
fn column_of(column: crate::row::Column) -> String {
    match column {
        crate::row::Column::DateAndTime => format!("YEAR({})", column.name()),
        _ => column.name().to_owned(),
    }
}

/// The same piece so many times, between commas.
pub fn repeated(piece: &str, times: usize) -> String {
    let mut all = String::with_capacity((piece.len() + 1) * times);
    for place in 0..times {
        if place > 0 {
            all.push(',');
        }
        all.push_str(piece);
    }
    all
}
