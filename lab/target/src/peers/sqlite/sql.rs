//! The statements of one table.

use std::sync::OnceLock;

use crate::row::{IndexSet, Secondary};

/// Statements on a table; those on its indexes exist once the indexes do.
pub struct Sql {
    name: String,
    pub create_table: String,
    pub insert: String,
    pub delete_smallest: String,
    pub delete_range: String,
    pub get: String,
    pub point: String,
    pub min_key: String,
    pub max_key: String,
    pub scan: String,
    indexes: OnceLock<[Indexed; 3]>,
}

/// Statements on one index. Each names it, so that another plan is an error and not a slow answer.
pub struct Indexed {
    pub columns: usize,
    /// From a value of the first column on.
    pub from: String,
    /// Behind a value of the first column.
    pub above: String,
    /// All entries and keys.
    pub scan: String,
}

impl Sql {
    /// The statements on table number `table`.
    pub fn new(table: u32) -> Sql {
        let name = format!("pi{}", table + 1);
        Sql {
            create_table: format!(
                "CREATE TABLE {name} (transactionid INTEGER PRIMARY KEY, dateandtime INTEGER, cashregisterid INTEGER \
                 NOT NULL, customerid INTEGER NOT NULL, productid INTEGER NOT NULL, price INTEGER NOT NULL, data BLOB)"
            ),
            insert: format!("INSERT INTO {name} VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"),
            delete_smallest: format!(
                "DELETE FROM {name} WHERE transactionid IN (SELECT transactionid FROM {name} WHERE transactionid >= ?1 \
                 ORDER BY transactionid LIMIT ?2)"
            ),
            delete_range: format!("DELETE FROM {name} WHERE transactionid >= ?1 AND transactionid < ?2"),
            get: format!("SELECT * FROM {name} WHERE transactionid = ?1"),
            point: format!("SELECT productid, data FROM {name} WHERE transactionid = ?1"),
            min_key: format!("SELECT min(transactionid) FROM {name}"),
            max_key: format!("SELECT max(transactionid) FROM {name}"),
            scan: format!("SELECT * FROM {name} ORDER BY transactionid"),
            indexes: OnceLock::new(),
            name,
        }
    }

    fn columns(set: IndexSet, index: Secondary) -> String {
        set.columns(index).iter().map(|column| column.name()).collect::<Vec<_>>().join(", ")
    }

    fn index_name(&self, index: Secondary) -> String {
        format!("{}_{}", self.name, index.name())
    }

    /// The statements that create the indexes.
    pub fn create_indexes(&self, set: IndexSet) -> [String; 3] {
        Secondary::ALL.map(|index| {
            format!("CREATE INDEX {} ON {} ({})", self.index_name(index), self.name, Sql::columns(set, index))
        })
    }

    /// From here on the indexes exist.
    pub fn index(&self, set: IndexSet) -> Result<(), &'static str> {
        let indexes = Secondary::ALL.map(|index| {
            let columns = Sql::columns(set, index);
            let first = set.columns(index)[0].name();
            let source = format!("FROM {} INDEXED BY {}", self.name, self.index_name(index));
            let range = |compare: &str| {
                format!("SELECT {columns} {source} WHERE {first} {compare} ?1 ORDER BY {columns} LIMIT ?2")
            };
            Indexed {
                columns: set.columns(index).len(),
                from: range(">="),
                above: range(">"),
                scan: format!("SELECT {columns}, transactionid {source} ORDER BY {columns}, transactionid"),
            }
        });
        self.indexes.set(indexes).map_err(|_| "the indexes exist already")
    }

    /// The statements on an index.
    pub fn indexed(&self, index: Secondary) -> Result<&Indexed, &'static str> {
        self.indexes.get().map(|indexes| &indexes[index.position()]).ok_or("the table has no secondary indexes")
    }
}
