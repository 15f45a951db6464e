//! Rows given column by column.

use super::value::Value;

/// What takes the columns of a row one by one, without a list of values: [`RowRef::visit`](crate::RowRef::visit).
///
/// Columns have the numbers of their table, from 0. Each that is wanted comes once, those of the primary key first.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, IndexSchema, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
/// # let people = db.create_table("people", schema)?;
/// # let mut tx = db.begin()?;
/// # tx.insert(&people, &[1i64.into(), "Ada".into()])?;
/// # tx.commit()?;
/// use trefoil::{RowVisitor, Value};
///
/// /// Bytes of the texts of a row.
/// struct Length(usize);
///
/// impl RowVisitor for Length {
///     fn value(&mut self, _column: usize, value: &Value<'_>) {
///         if let Value::Text(text) = value {
///             self.0 += text.len();
///         }
///     }
/// }
///
/// let tx = db.begin()?;
/// let mut rows = tx.scan(&people, trefoil::ALL)?;
/// let mut length = Length(0);
/// while let Some(row) = rows.next_row()? {
///     row.visit(&mut length)?;
/// }
/// assert_eq!(length.0, "Ada".len());
/// # Ok::<(), trefoil::Error>(())
/// ```
pub trait RowVisitor {
    /// Columns that it does not want are passed over.
    #[inline]
    fn wants(&self, _column: usize) -> bool {
        true
    }

    /// A column, of whatever type. What is not implemented apart comes here.
    fn value(&mut self, column: usize, value: &Value<'_>);

    /// NULL.
    #[inline]
    fn null(&mut self, column: usize) {
        self.value(column, &Value::Null);
    }

    /// Of type `I64`.
    #[inline]
    fn i64(&mut self, column: usize, number: i64) {
        self.value(column, &Value::I64(number));
    }

    /// Of type `I32`.
    #[inline]
    fn i32(&mut self, column: usize, number: i32) {
        self.value(column, &Value::I32(number));
    }

    /// Of type `U64`.
    #[inline]
    fn u64(&mut self, column: usize, number: u64) {
        self.value(column, &Value::U64(number));
    }

    /// Of type `U32`.
    #[inline]
    fn u32(&mut self, column: usize, number: u32) {
        self.value(column, &Value::U32(number));
    }

    /// Of type `Bytes` or `Fixed`.
    #[inline]
    fn bytes(&mut self, column: usize, bytes: &[u8]) {
        self.value(column, &Value::from(bytes));
    }
}
