//! Typed rows over ordered byte keys: what the columns of a table are, and how a row becomes entries of its indexes.
//!
//! | module | owns |
//! |---|---|
//! | [`value`] | one column's value |
//! | `collation` | what orders text that its bytes do not order |
//! | `column` | a column and its type |
//! | `index_schema` | a secondary index, as it is described |
//! | `foreign_key` | a foreign key, as it is described |
//! | [`schema`] | columns, primary key, secondary indexes |
//! | `parts` | the checks of a schema, and what follows from it |
//! | `schema_codec` | its form in the catalog |
//! | `rows` | rows as entries of the primary index |
//! | `entries` | entries of secondary indexes |
//! | `row` | the bytes of a row beside its primary key |
//! | `versions` | which columns rows of each version store |
//! | `changes` | columns added, dropped, renamed and moved |
//! | `typed` | the types' encodings read, and tuples of them |
//! | `way` | where one column is in most rows |
//! | `key` | bytes whose order is the order of values |
//! | `part` | a column in a key: descending, the front of it, collated |
//!
//! A row with primary key P and other columns V is the entry `key(P) → row(V)` of the primary index, and per secondary
//! index with columns I the entry `key(I), key(P) → nothing`. So the entries of a secondary never repeat, its columns
//! and the primary key are read without the row, and the bytes behind the columns of an entry are the key of its row.
//! Columns that a key cannot give back, because it has the front of them or what a collation makes of them, are in the row
//! although the primary key has them, and stand in the value of an entry. The value of an entry of a clustering index is V.
//!
//! All decoders take hostile bytes: they return a fault, they never panic, and they reserve no memory on the word of a
//! length that the bytes at hand cannot bear out.

mod builder;
mod changes;
mod collation;
mod column;
mod entries;
mod foreign_key;
mod fuzzing;
mod index_schema;
#[doc(hidden)]
pub mod key;
mod part;
mod parts;
mod row;
mod rows;
pub mod schema;
mod schema_codec;
mod typed;
pub mod value;
mod versions;
mod visitor;
mod way;

pub use builder::SchemaBuilder;
pub use changes::TableChanges;
pub use collation::Collations;
pub use column::{Column, ColumnType};
pub use foreign_key::{ForeignKey, ReferenceAction};
#[doc(hidden)]
pub use fuzzing::fuzz;
pub use index_schema::{IndexSchema, KeyPart};
pub use schema::Schema;
pub use typed::{FromColumn, FromRow, Timestamp};
pub use value::{OwnedValue, Value};
pub use visitor::RowVisitor;
