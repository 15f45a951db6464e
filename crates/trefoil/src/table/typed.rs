//! Rows and entries read as tuples of Rust's own types, with no [`Value`] between.
//!
//! What a tuple expects is a number known when the program is compiled, what a table has is one known when its schema is
//! built ([`signature`]): comparing the two is the whole check, once a row. Behind it every column is read by code made
//! for its type.
//!
//! The encodings of the types are read here and nowhere else, both in a key (module `key` says what they look like) and
//! in a row (module `row`).

use std::borrow::Cow;

use base::bytes::Reader;

use super::column::{Column, ColumnType};
use super::key;
use super::row::{self, Fields};
use super::value::Value;

/// Columns of the largest tuple.
pub const TUPLE_MAX: usize = 16;
const CODE_BITS: u32 = 8;
const NULLABLE: u8 = 1 << 7;
/// Width of the widest array that stands for a column: what is left of a code.
const FIXED_MAX: u8 = 112;
/// The code of a column of fixed width is so much more than the width.
const FIXED: u8 = NULLABLE - 1 - FIXED_MAX;
const _: () = assert!(TUPLE_MAX as u32 * CODE_BITS <= u128::BITS && FIXED >= ColumnType::Fixed(0).number());

/// Number of a list of columns: [`CODE_BITS`] for each, the first lowest: its type, never 0, and whether it may be
/// NULL. 0 if they are more than [`TUPLE_MAX`], or no type of Rust stands for one of them.
pub(super) fn signature<'c>(columns: impl ExactSizeIterator<Item = &'c Column> + Clone) -> u128 {
    if columns.len() > TUPLE_MAX || columns.clone().any(|c| code(c) == 0) {
        return 0;
    }
    columns.enumerate().fold(0, |all, (i, c)| all | at(code(c), i))
}

/// [`FromColumn::CODE`] of the type that reads this column; 0 if there is none.
pub(super) fn code(column: &Column) -> u8 {
    match column.column_type {
        ColumnType::Fixed(width) if width > FIXED_MAX => 0,
        some => type_code(some) | if column.nullable { NULLABLE } else { 0 },
    }
}

const fn type_code(column_type: ColumnType) -> u8 {
    match column_type {
        ColumnType::Fixed(width) => FIXED + width,
        other => other.number(),
    }
}

const fn at(code: u8, place: usize) -> u128 {
    (code as u128) << (CODE_BITS * place as u32)
}

/// Microseconds since 1970-01-01 00:00 UTC: a column of type [`ColumnType::Timestamp`] in a tuple ([`FromRow`]).
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::{ColumnType, Schema, Timestamp, Value};
///
/// let schema = Schema::builder().column("at", ColumnType::Timestamp).primary_key(&["at"]).build()?;
/// let events = db.create_table("events", schema)?;
/// let mut tx = db.begin()?;
/// tx.insert(&events, &[Value::Timestamp(1_700_000_000_000_000)])?;
/// let mut rows = tx.scan(&events, trefoil::ALL)?;
/// assert_eq!(rows.next_as()?, Some((Timestamp(1_700_000_000_000_000),)));
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that stands for a column in a tuple, see [`FromRow`].
///
/// | column | type |
/// |---|---|
/// | `I64`, `I32`, `U64`, `U32`, `F64`, `Bool` | `i64`, `i32`, `u64`, `u32`, `f64`, `bool` |
/// | `Timestamp` | [`Timestamp`] |
/// | `Text`, `Bytes` | `Cow<str>`, `Cow<[u8]>` |
/// | `Fixed(N)`, up to 112 bytes | `[u8; N]` |
/// | one that may be NULL | `Option` of it |
///
/// ```
/// fn number<'a, T: trefoil::FromColumn<'a>>() {}
/// number::<Option<std::borrow::Cow<'_, str>>>();
/// ```
pub trait FromColumn<'a>: Sized + sealed::Sealed {
    #[doc(hidden)]
    const CODE: u8;
    /// What NULL is, if it may be.
    #[doc(hidden)]
    const NULL: Option<Self>;
    #[doc(hidden)]
    fn from_key(key: &mut Reader<'a>) -> Option<Self>;
    #[doc(hidden)]
    fn from_row(row: &mut Fields<'a>) -> Option<Self>;
    #[doc(hidden)]
    fn from_value(value: Value<'a>) -> Option<Self>;
}

/// A type that is not an `Option`.
#[doc(hidden)]
pub trait NotNull {}

/// A row, or an entry of an index, as a tuple of up to sixteen columns, each a [`FromColumn`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # use trefoil::{ColumnType, IndexSchema, Schema};
/// # let schema = Schema::builder().column("id", ColumnType::I64).column("name", ColumnType::Text);
/// # let schema = schema.primary_key(&["id"]).index(IndexSchema::new("by_name", &["name"])).build()?;
/// # let people = db.create_table("people", schema)?;
/// # let mut tx = db.begin()?;
/// # for (id, name) in [(1i64, "Ada"), (2, "Grace"), (3, "Edith")] {
/// #     tx.insert(&people, &[id.into(), name.into()])?;
/// # }
/// # tx.commit()?;
/// use std::borrow::Cow;
///
/// let tx = db.begin()?;
/// let mut rows = tx.scan(&people, trefoil::ALL)?;
/// let mut letters = 0;
/// while let Some((_id, name)) = rows.next_as::<(i64, Cow<'_, str>)>()? {
///     letters += name.len();
/// }
/// assert_eq!(letters, "AdaGraceEdith".len());
/// # Ok::<(), trefoil::Error>(())
/// ```
pub trait FromRow<'a>: Sized + sealed::Sealed {
    #[doc(hidden)]
    const SIGNATURE: u128;
    /// From an encoded key that holds all of it.
    #[doc(hidden)]
    fn from_key(key: &mut Reader<'a>) -> Option<Self>;
    /// The first `columns` from a key, the others from a row.
    #[doc(hidden)]
    fn from_entry(key: &mut Reader<'a>, columns: usize, row: &mut Fields<'a>) -> Option<Self>;
    #[doc(hidden)]
    fn from_values(values: &mut dyn Iterator<Item = Value<'a>>) -> Option<Self>;
}

/// `$type` is the column type of that name, read from a key and from a row like this.
macro_rules! column {
    ($type:ty, $name:ident, |$key:ident| $from_key:expr, |$row:ident| $from_row:expr) => {
        impl<'a> FromColumn<'a> for $type {
            const CODE: u8 = type_code(ColumnType::$name);
            const NULL: Option<Self> = None;
            #[inline(always)]
            fn from_key($key: &mut Reader<'a>) -> Option<Self> {
                $from_key
            }
            #[inline(always)]
            fn from_row(row: &mut Fields<'a>) -> Option<Self> {
                let $row = &mut row.reader;
                $from_row
            }
            fn from_value(value: Value<'a>) -> Option<Self> {
                if let Value::$name(it) = value { Some(it.into()) } else { None }
            }
        }
    };
}

column!(i64, I64, |k| Some((key::be_u64(k)? ^ key::SIGN_64) as i64), |r| r.varint().map(row::unzigzag));
column!(i32, I32, |k| Some((key::be_u32(k)? ^ key::SIGN_32) as i32), |r| {
    i32::try_from(row::unzigzag(r.varint()?)).ok()
});
column!(u64, U64, |k| key::be_u64(k), |r| r.varint());
column!(u32, U32, |k| key::be_u32(k), |r| u32::try_from(r.varint()?).ok());
column!(f64, F64, |k| Some(f64::from_bits(key::value_bits(key::be_u64(k)?))), |r| r.u64().map(f64::from_bits));
column!(Timestamp, Timestamp, |k| i64::from_key(k).map(Timestamp), |r| Some(Timestamp(r.u64()? as i64)));
column!(bool, Bool, |k| boolean(k), |r| boolean(r));
column!(Cow<'a, [u8]>, Bytes, |k| key::take_string(k), |r| r.bytes().map(Cow::Borrowed));
column!(Cow<'a, str>, Text, |k| text(key::take_string(k)?), |r| text(Cow::Borrowed(r.bytes()?)));

impl<'a, const N: usize> FromColumn<'a> for [u8; N] {
    const CODE: u8 = {
        assert!(N > 0 && N <= FIXED_MAX as usize, "wider columns are read as values");
        type_code(ColumnType::Fixed(N as u8))
    };
    const NULL: Option<Self> = None;
    #[inline(always)]
    fn from_key(key: &mut Reader<'a>) -> Option<Self> {
        key.take(N)?.try_into().ok()
    }
    #[inline(always)]
    fn from_row(row: &mut Fields<'a>) -> Option<Self> {
        row.reader.take(N)?.try_into().ok()
    }
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Bytes(it) = value { (*it).try_into().ok() } else { None }
    }
}

impl<const N: usize> sealed::Sealed for [u8; N] {}
impl<const N: usize> NotNull for [u8; N] {}

macro_rules! not_null {
    ($($type:ty)+) => { $(impl sealed::Sealed for $type {} impl NotNull for $type {})+ };
}

not_null!(i64 i32 u64 u32 f64 bool Timestamp Cow<'_, [u8]> Cow<'_, str>);

impl From<i64> for Timestamp {
    fn from(micros: i64) -> Self {
        Timestamp(micros)
    }
}

fn boolean(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

#[inline]
fn text(bytes: Cow<'_, [u8]>) -> Option<Cow<'_, str>> {
    match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

impl<T> sealed::Sealed for Option<T> {}

impl<'a, T: FromColumn<'a> + NotNull> FromColumn<'a> for Option<T> {
    const CODE: u8 = T::CODE | NULLABLE;
    const NULL: Option<Self> = Some(None);
    #[inline(always)]
    fn from_key(key: &mut Reader<'a>) -> Option<Self> {
        if key::take_null(key)? { Some(None) } else { T::from_key(key).map(Some) }
    }
    #[inline(always)]
    fn from_row(row: &mut Fields<'a>) -> Option<Self> {
        if row.next_is_null() { Some(None) } else { T::from_row(row).map(Some) }
    }
    fn from_value(value: Value<'a>) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::from_value(value).map(Some) }
    }
}

macro_rules! tuple {
    ($($place:tt $name:ident)+) => {
        impl<$($name),+> sealed::Sealed for ($($name,)+) {}
        impl<'a, $($name: FromColumn<'a>),+> FromRow<'a> for ($($name,)+) {
            const SIGNATURE: u128 = 0 $(| at($name::CODE, $place))+;
            #[inline(always)]
            fn from_key(key: &mut Reader<'a>) -> Option<Self> {
                Some(($($name::from_key(key)?,)+))
            }
            #[inline(always)]
            fn from_entry(key: &mut Reader<'a>, columns: usize, row: &mut Fields<'a>) -> Option<Self> {
                Some(($(if $place < columns { $name::from_key(key)? } else { $name::from_row(row)? },)+))
            }
            fn from_values(values: &mut dyn Iterator<Item = Value<'a>>) -> Option<Self> {
                Some(($($name::from_value(values.next()?)?,)+))
            }
        }
    };
}

tuple!(0 A);
tuple!(0 A 1 B);
tuple!(0 A 1 B 2 C);
tuple!(0 A 1 B 2 C 3 D);
tuple!(0 A 1 B 2 C 3 D 4 E);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F 6 G);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F 6 G 7 H);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F 6 G 7 H 8 I);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F 6 G 7 H 8 I 9 J);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F 6 G 7 H 8 I 9 J 10 K);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F 6 G 7 H 8 I 9 J 10 K 11 L);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F 6 G 7 H 8 I 9 J 10 K 11 L 12 M);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F 6 G 7 H 8 I 9 J 10 K 11 L 12 M 13 N);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F 6 G 7 H 8 I 9 J 10 K 11 L 12 M 13 N 14 O);
tuple!(0 A 1 B 2 C 3 D 4 E 5 F 6 G 7 H 8 I 9 J 10 K 11 L 12 M 13 N 14 O 15 P);
