//! Rows written without a look at what stands there: for whoever has a row whole from elsewhere and knows of its place, as a replica
//! has it from the log of its primary. A tree with messages and an LSM tree take such a write without reading a leaf or a run.
//!
//! Where it is sound (decision 0017): the row is all that its table keeps of it. Then what was there says nothing of what has to be
//! written, and whatever was there, the table is whole afterwards. An entry of a secondary index is found by what the row was, a child
//! by what its parent had; of a row that is not what the writer takes it for entries would stay behind. So tables with either are
//! left to who looks.

use std::sync::Arc;

use super::range::whole_key;
use crate::entry::TableShape;
use crate::error::Result;
use crate::handle::Table;
use crate::table::Value;
use crate::transaction::Transaction;

impl Transaction {
    /// Writes a row, whether there is one with its primary key or not, and reads nothing of the table. The row is locked until the
    /// end of the transaction. False, and nothing is done, if the table keeps more of a row than the row: secondary indexes, foreign
    /// keys of its own or of others to it. Then [`Transaction::update`] looks at what there is.
    ///
    /// # Errors
    /// `InvalidArgument` if the values do not fit the schema; as [`Transaction::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let people = db.create_table("people", schema.primary_key(&["id"]).build()?)?;
    /// let mut tx = db.begin()?;
    /// assert!(tx.put_row(&people, &[1i64.into(), "Ada".into()])?);
    /// assert!(tx.put_row(&people, &[1i64.into(), "Ada Lovelace".into()])?);
    /// assert_eq!(tx.get_row(&people, &[1i64.into()])?.map(|row| row[1].clone()), Some("Ada Lovelace".into()));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn put_row(&mut self, table: &Table, row: &[Value<'_>]) -> Result<bool> {
        self.statement(|tx| {
            let Some(shape) = tx.open_unread(table)? else { return Ok(false) };
            let [mut key, mut value] = [const { Vec::new() }; 2];
            shape.def.schema.primary_key_of_row(row, &mut key)?;
            shape.def.schema.row_value(row, &mut value)?;
            tx.wait_for_ranges(&shape.primary, &key)?;
            tx.lock_for_write(&shape.primary, &key)?;
            tx.write(&shape.primary, &key, Some(&value))?;
            Ok(true)
        })
    }

    /// Removes the row with this primary key if there is one, and reads nothing of the table. False, and nothing is done, where
    /// [`Transaction::put_row`] does nothing; then [`Transaction::delete_row`] looks.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # use trefoil::{ColumnType, Schema};
    /// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
    /// # let people = db.create_table("people", schema.primary_key(&["id"]).build()?)?;
    /// let mut tx = db.begin()?;
    /// tx.insert(&people, &[1i64.into(), "Ada".into()])?;
    /// assert!(tx.remove_row(&people, &[1i64.into()])?);
    /// assert_eq!(tx.get_row(&people, &[1i64.into()])?, None);
    /// assert!(tx.remove_row(&people, &[1i64.into()])?); // nobody has looked whether it is there
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn remove_row(&mut self, table: &Table, primary_key: &[Value<'_>]) -> Result<bool> {
        self.statement(|tx| {
            let Some(shape) = tx.open_unread(table)? else { return Ok(false) };
            let key = whole_key(&shape.def.schema, primary_key)?;
            tx.lock_for_write(&shape.primary, &key)?;
            tx.write(&shape.primary, &key, None)?;
            Ok(true)
        })
    }

    /// The table's shape if its rows are all that it keeps of them. Behind its gate, where nobody gives it an index or refers to it.
    fn open_unread(&mut self, table: &Table) -> Result<Option<Arc<TableShape>>> {
        let shape = self.open_table(&table.0, true)?;
        let is_alone = shape.maintained.indexes.is_empty()
            && shape.maintained.schema.foreign_keys().is_empty()
            && self.engine.names.read().children(table.0.name()).is_empty();
        Ok(is_alone.then_some(shape))
    }
}
