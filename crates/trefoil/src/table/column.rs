//! A column of a table and its type.

use base::bytes::Reader;

/// Type of a column. A value fits only the column of its own type. The number is stored in the catalog.
///
/// ```
/// use trefoil::{ColumnType, Schema, Value};
///
/// let events = Schema::builder().column("at", ColumnType::Timestamp).column("what", ColumnType::Text);
/// let events = events.primary_key(&["at"]).build()?;
/// events.check(&[Value::Timestamp(1_700_000_000_000_000), "started".into()])?; // microseconds
/// assert!(events.check(&[Value::I64(1_700_000_000), "started".into()]).is_err()); // no silent conversion
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// Signed, 64 bits.
    I64,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 64 bits.
    U64,
    /// Unsigned, 32 bits.
    U32,
    /// IEEE 754 double.
    F64,
    /// UTF-8.
    Text,
    /// Bytes.
    Bytes,
    /// Microseconds since 1970-01-01 00:00 UTC, signed 64 bits.
    Timestamp,
    /// False or true.
    Bool,
    /// Exactly so many bytes, 1 to 255, as [`Value::Bytes`](crate::Value::Bytes). They are their own key: no longer there
    /// than they are, compared as they stand. For what has an order-preserving form of one length: decimal numbers, dates,
    /// addresses.
    ///
    /// ```
    /// use trefoil::{ColumnType, Schema, Value};
    ///
    /// let days = Schema::builder().column("day", ColumnType::Fixed(3)).primary_key(&["day"]).build()?;
    /// assert!(days.check(&[Value::Bytes(vec![0x0f, 0xd1, 0x62].into())]).is_ok());
    /// assert!(days.check(&[Value::Bytes(vec![0x0f, 0xd1].into())]).is_err()); // too short
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    Fixed(u8),
}

impl ColumnType {
    const FIXED: u8 = 10;

    /// The number that is stored for it.
    pub(super) const fn number(self) -> u8 {
        match self {
            ColumnType::I64 => 1,
            ColumnType::I32 => 2,
            ColumnType::U64 => 3,
            ColumnType::U32 => 4,
            ColumnType::F64 => 5,
            ColumnType::Text => 6,
            ColumnType::Bytes => 7,
            ColumnType::Timestamp => 8,
            ColumnType::Bool => 9,
            ColumnType::Fixed(_) => Self::FIXED,
        }
    }

    /// Appends its form in the catalog: the number, and the length of one of fixed width.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(self.number());
        if let ColumnType::Fixed(bytes) = self {
            out.push(bytes);
        }
    }

    /// Reads what [`ColumnType::encode`] wrote. `None` on malformed bytes.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        use ColumnType::{Bool, Bytes, F64, I32, I64, Text, Timestamp, U32, U64};
        match reader.u8()? {
            Self::FIXED => reader.u8().filter(|&bytes| bytes > 0).map(ColumnType::Fixed),
            n => [I64, I32, U64, U32, F64, Text, Bytes, Timestamp, Bool].into_iter().find(|t| t.number() == n),
        }
    }
}

/// A column, as [`Schema::columns`](crate::Schema::columns) shows it; made by
/// [`SchemaBuilder::column`](crate::SchemaBuilder::column) and
/// [`SchemaBuilder::nullable`](crate::SchemaBuilder::nullable).
///
/// ```
/// # use trefoil::{ColumnType, IndexSchema, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
/// let column = &schema.columns()[1];
/// assert_eq!((column.name.as_str(), column.column_type), ("name", ColumnType::Text));
/// assert!(!column.nullable); // `SchemaBuilder::column`; `nullable` makes one that is
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
    /// May be NULL.
    pub nullable: bool,
    /// The collation that its text is ordered by in keys; by its bytes if there is none.
    pub collation: Option<u32>,
}
