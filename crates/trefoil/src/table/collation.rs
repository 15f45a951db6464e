//! What orders text that is not ordered by its bytes.

use std::fmt;
use std::sync::Arc;

use base::{Fault, Result};

use super::column::Column;

/// Orders text: for letters of either case alike, for accents, for the rules of a language. What collations there are, and the
/// numbers they have, is the program's; the database keeps a column's number ([`SchemaBuilder::collate`]) and asks here for
/// the bytes that stand for a text in a key. Given to a database by
/// [`Options::collations`](crate::Options::collations).
///
/// For one collation the same text has the same sort key for ever: what is stored is not looked at again. When a rule changes,
/// it is another collation, with another number.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// use std::sync::Arc;
/// use trefoil::{Collations, ColumnType, Database, Error, Options, Schema, Value};
///
/// /// Number 1: letters of either case are alike.
/// struct Mine;
///
/// impl Collations for Mine {
///     fn sort_key(&self, collation: u32, text: &[u8], characters: Option<u32>, out: &mut Vec<u8>) -> trefoil::Result<()> {
///         if collation != 1 {
///             return Err(Error::InvalidArgument("there is no such collation".into()));
///         }
///         let length = characters.map_or(text.len(), |n| text.len().min(n as usize)); // a byte each
///         out.extend(text[..length].to_ascii_lowercase());
///         Ok(())
///     }
/// }
///
/// let options = Options { collations: Some(Arc::new(Mine)), ..Options::default() };
/// let db = Database::open(dir.path(), options)?;
/// let users = Schema::builder().column("name", ColumnType::Text).collate("name", 1).primary_key(&["name"]);
/// let users = db.create_table("users", users.build()?)?;
/// let mut tx = db.begin()?;
/// tx.insert(&users, &["Ada".into()])?;
/// assert!(matches!(tx.insert(&users, &["ADA".into()]), Err(Error::DuplicateKey(_))));
/// assert_eq!(tx.get_row(&users, &["ada".into()])?, Some(vec!["Ada".into()])); // as it was written
/// # Ok::<(), trefoil::Error>(())
/// ```
///
/// [`SchemaBuilder::collate`]: crate::SchemaBuilder::collate
pub trait Collations: Send + Sync {
    /// Appends the sort key of a text, or of its first `characters`. Of two texts, the one whose sort key is less comes first,
    /// the bytes compared as they stand, a beginning before what goes on; texts with one sort key are one key.
    ///
    /// # Errors
    /// If there is no such collation, or the text is none of its characters. Whoever needs the key gets
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) with column, collation and this.
    ///
    /// ```
    /// # use trefoil::Collations;
    /// struct Bytes;
    ///
    /// impl Collations for Bytes {
    ///     fn sort_key(&self, _: u32, text: &[u8], characters: Option<u32>, out: &mut Vec<u8>) -> trefoil::Result<()> {
    ///         out.extend(text.iter().take(characters.map_or(usize::MAX, |n| n as usize)));
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut key = Vec::new();
    /// Bytes.sort_key(1, b"tree", Some(2), &mut key)?;
    /// assert_eq!(key, b"tr");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    fn sort_key(&self, collation: u32, text: &[u8], characters: Option<u32>, out: &mut Vec<u8>) -> crate::Result<()>;

    /// How many characters a text has. Needed where a foreign key says how many have room
    /// ([`ForeignKey::room_in_characters`](crate::ForeignKey::room_in_characters)), otherwise never asked.
    ///
    /// # Errors
    /// As [`Collations::sort_key`]; one that does not count.
    ///
    /// ```
    /// # use trefoil::Collations;
    /// struct Utf8;
    ///
    /// impl Collations for Utf8 {
    ///     fn sort_key(&self, _: u32, text: &[u8], _: Option<u32>, out: &mut Vec<u8>) -> trefoil::Result<()> {
    ///         out.extend(text);
    ///         Ok(())
    ///     }
    ///     fn characters(&self, _: u32, text: &[u8]) -> trefoil::Result<usize> {
    ///         Ok(String::from_utf8_lossy(text).chars().count())
    ///     }
    /// }
    ///
    /// assert_eq!(Utf8.characters(1, "Löß".as_bytes())?, 3);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    fn characters(&self, collation: u32, text: &[u8]) -> crate::Result<usize> {
        let _ = text;
        Err(crate::Error::InvalidArgument(format!("collation {collation} counts no characters")))
    }
}

/// The collations of the database that a schema belongs to, if it was opened with any. No part of what a schema says: two
/// schemas are the same with different ones.
#[derive(Clone, Default)]
pub(super) struct Provider(pub Option<Arc<dyn Collations>>);

impl PartialEq for Provider {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Provider {}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "given" } else { "none" })
    }
}

impl Provider {
    /// How many characters a value of `column` has.
    pub fn characters(&self, column: &Column, collation: u32, text: &[u8]) -> Result<usize> {
        let failed = |why: &dyn fmt::Display| {
            Fault::Invalid(format!("characters of column {:?} are not counted: {why}", column.name))
        };
        let Some(collations) = &self.0 else {
            return Err(failed(&"the database was opened without collations (`Options::collations`)"));
        };
        collations.characters(collation, text).map_err(|error| failed(&error))
    }

    /// Appends the sort key of a value of `column`.
    pub fn sort_key(
        &self,
        column: &Column,
        (collation, characters): (u32, Option<u32>),
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let failed = |why: &dyn fmt::Display| {
            Fault::Invalid(format!("no sort key for column {:?} in collation {collation}: {why}", column.name))
        };
        let Some(collations) = &self.0 else {
            return Err(failed(&"the database was opened without collations (`Options::collations`)"));
        };
        collations.sort_key(collation, text, characters, out).map_err(|error| failed(&error))
    }
}
