//! One column's value: borrowed from a row or a caller, or owned.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use base::bytes::printable;

use super::column::ColumnType;

/// A value, or NULL. Text and bytes are borrowed where they can be.
///
/// ```
/// use trefoil::Value;
/// let name = Value::from("Ada");
/// assert_eq!(name, Value::Text("Ada".into()));
/// assert!(Value::Null < name);
/// ```
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// No value. Below all others.
    Null,
    /// Signed, 64 bits.
    I64(i64),
    /// Signed, 32 bits.
    I32(i32),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Unsigned, 32 bits.
    U32(u32),
    /// IEEE 754 double. Ordered by its total order: -NaN, -∞ … -0, +0 … +∞, NaN.
    F64(f64),
    /// UTF-8, ordered by bytes.
    Text(Cow<'a, str>),
    /// Bytes, of a column of type `Bytes` or `Fixed`.
    Bytes(Cow<'a, [u8]>),
    /// Microseconds since 1970-01-01 00:00 UTC.
    Timestamp(i64),
    /// False below true.
    Bool(bool),
}

/// A value that borrows nothing: what `get_row` returns.
///
/// ```
/// use trefoil::{OwnedValue, Value};
///
/// fn greeting(name: &str) -> OwnedValue {
///     Value::from(format!("hello {name}")) // outlives `name`
/// }
/// assert_eq!(greeting("Ada"), "hello Ada".into());
/// ```
pub type OwnedValue = Value<'static>;

impl<'a> Value<'a> {
    /// Its type; none for NULL. Of bytes it is `Bytes`, also of those that fit a column of fixed width.
    ///
    /// ```
    /// use trefoil::{ColumnType, Value};
    ///
    /// assert_eq!(Value::from(7u32).column_type(), Some(ColumnType::U32));
    /// assert_eq!(Value::Null.column_type(), None); // fits every nullable column
    /// ```
    #[must_use]
    pub fn column_type(&self) -> Option<ColumnType> {
        Some(match self {
            Value::Null => return None,
            Value::I64(_) => ColumnType::I64,
            Value::I32(_) => ColumnType::I32,
            Value::U64(_) => ColumnType::U64,
            Value::U32(_) => ColumnType::U32,
            Value::F64(_) => ColumnType::F64,
            Value::Text(_) => ColumnType::Text,
            Value::Bytes(_) => ColumnType::Bytes,
            Value::Timestamp(_) => ColumnType::Timestamp,
            Value::Bool(_) => ColumnType::Bool,
        })
    }

    /// True for NULL.
    ///
    /// ```
    /// use trefoil::Value;
    ///
    /// assert!(Value::from(None::<i64>).is_null());
    /// assert!(!Value::from(Some(0i64)).is_null());
    /// ```
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The same value, borrowing nothing; text and bytes are copied.
    ///
    /// ```
    /// use trefoil::Value;
    ///
    /// let line = String::from("Ada,1815");
    /// let name = line.split(',').next().map(|field| Value::from(field).into_owned());
    /// drop(line);
    /// assert_eq!(name, Some(Value::from("Ada")));
    /// ```
    #[must_use]
    pub fn into_owned(self) -> OwnedValue {
        match self {
            Value::Null => Value::Null,
            Value::I64(n) => Value::I64(n),
            Value::I32(n) => Value::I32(n),
            Value::U64(n) => Value::U64(n),
            Value::U32(n) => Value::U32(n),
            Value::F64(n) => Value::F64(n),
            Value::Text(s) => Value::Text(Cow::Owned(s.into_owned())),
            Value::Bytes(b) => Value::Bytes(Cow::Owned(b.into_owned())),
            Value::Timestamp(n) => Value::Timestamp(n),
            Value::Bool(b) => Value::Bool(b),
        }
    }

    /// The same value, borrowing from this one.
    ///
    /// ```
    /// use trefoil::{OwnedValue, Value};
    ///
    /// let row: Vec<OwnedValue> = vec![1i64.into(), String::from("Ada").into()];
    /// let key: [Value; 1] = [row[1].as_borrowed()]; // no copy of the text
    /// assert_eq!(key[0], row[1]);
    /// ```
    #[must_use]
    pub fn as_borrowed(&self) -> Value<'_> {
        match self {
            Value::Text(s) => Value::Text(Cow::Borrowed(s)),
            Value::Bytes(b) => Value::Bytes(Cow::Borrowed(b)),
            other => other.clone().into_owned(),
        }
    }
}

/// For messages: text in quotes, bytes as [`base::bytes::printable`] shows them, timestamps in microseconds.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::I64(n) | Value::Timestamp(n) => write!(f, "{n}"),
            Value::I32(n) => write!(f, "{n}"),
            Value::U64(n) => write!(f, "{n}"),
            Value::U32(n) => write!(f, "{n}"),
            Value::F64(n) => write!(f, "{n:?}"),
            Value::Text(s) => write!(f, "{s:?}"),
            Value::Bytes(b) => f.write_str(&printable(b)),
            Value::Bool(b) => write!(f, "{b}"),
        }
    }
}

/// The order of encoded keys: NULL, then by value; of different types, which no column mixes, by type.
impl Ord for Value<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::I64(a), Value::I64(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
            (Value::I32(a), Value::I32(b)) => a.cmp(b),
            (Value::U64(a), Value::U64(b)) => a.cmp(b),
            (Value::U32(a), Value::U32(b)) => a.cmp(b),
            (Value::F64(a), Value::F64(b)) => a.total_cmp(b),
            (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (a, b) => a.column_type().map(ColumnType::number).cmp(&b.column_type().map(ColumnType::number)),
        }
    }
}

impl PartialOrd for Value<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value<'_> {}

macro_rules! from {
    ($($variant:ident: $from:ty),*) => {
        $(impl<'a> From<$from> for Value<'a> {
            fn from(v: $from) -> Self {
                Value::$variant(v.into())
            }
        })*
    };
}
from!(I64: i64, I32: i32, U64: u64, U32: u32, F64: f64, Bool: bool);
from!(Text: &'a str, Text: String, Bytes: &'a [u8], Bytes: Vec<u8>);

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(v: Option<T>) -> Self {
        v.map_or(Value::Null, Into::into)
    }
}
