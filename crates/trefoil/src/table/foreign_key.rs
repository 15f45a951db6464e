//! A foreign key as it is described: part of the definition of the table that has it, the child. The parent is bound by its
//! name, and may be missing.

use base::bytes::{Reader, put_bytes, put_varint};
use base::{Fault, Result};

use super::parts::Parts;
use super::schema::{KEY_COLUMNS_MAX, NAME_BYTES_MAX, Schema};
use super::value::Value;

/// Most foreign keys of a table.
pub(super) const FOREIGN_KEYS_MAX: usize = 64;
/// Longest name of a table.
const TABLE_NAME_BYTES_MAX: usize = 640;

/// What becomes of rows whose parent is deleted, or gets another key.
///
/// ```
/// use trefoil::{ForeignKey, ReferenceAction};
///
/// let owner = ForeignKey::new("owner", &["owner_id"], "people", &["id"]).on_delete(ReferenceAction::Cascade);
/// assert_eq!((owner.deletes(), owner.updates()), (ReferenceAction::Cascade, ReferenceAction::Restrict));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ReferenceAction {
    /// The parent stays as it is: an error.
    #[default]
    Restrict = 0,
    /// The same, by the other name that SQL has for it.
    NoAction = 1,
    /// They are deleted too, or get the new key.
    Cascade = 2,
    /// Their columns become NULL.
    SetNull = 3,
}

impl ReferenceAction {
    fn of_number(number: u8) -> Option<Self> {
        [Self::Restrict, Self::NoAction, Self::Cascade, Self::SetNull]
            .into_iter()
            .find(|action| *action as u8 == number)
    }
}

/// That what some columns of a table hold is there in another table, its parent, or in itself. A row with a NULL among them
/// needs no parent. Needs a database of format 9.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// use trefoil::{ColumnType, Error, ForeignKey, IndexSchema, ReferenceAction, Schema};
///
/// let people = Schema::builder().column("id", ColumnType::I64).primary_key(&["id"]);
/// let people = db.create_table("people", people.build()?)?;
/// let owner = ForeignKey::new("owner", &["owner_id"], "people", &["id"]).on_delete(ReferenceAction::Cascade);
/// let dogs = Schema::builder().column("name", ColumnType::Text).column("owner_id", ColumnType::I64);
/// let dogs = dogs.primary_key(&["name"]).index(IndexSchema::new("by_owner", &["owner_id"])).foreign_key(owner);
/// let dogs = db.create_table("dogs", dogs.build()?)?;
///
/// let mut tx = db.begin()?;
/// assert!(matches!(tx.insert(&dogs, &["Rex".into(), 1i64.into()]), Err(Error::ForeignKey(_)))); // nobody has number 1
/// tx.insert(&people, &[1i64.into()])?;
/// tx.insert(&dogs, &["Rex".into(), 1i64.into()])?;
/// tx.delete_row(&people, &[1i64.into()])?;
/// assert_eq!(tx.get_row(&dogs, &["Rex".into()])?, None); // with its owner
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    pub(super) name: String,
    pub(super) columns: Vec<String>,
    pub(super) parent: String,
    pub(super) parent_columns: Vec<String>,
    pub(super) on_delete: ReferenceAction,
    pub(super) on_update: ReferenceAction,
    /// For each column what a cascade may put there at most.
    pub(super) room: Vec<Room>,
}

/// The most of a value that has room in a column; 0: any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Room {
    bytes: u32,
    /// Of text with a collation.
    characters: u32,
}

impl Room {
    /// One of bytes alone as it was before there was one of characters.
    fn number(self) -> u64 {
        u64::from(self.characters) << 32 | u64::from(self.bytes)
    }

    fn of_number(number: u64) -> Self {
        Self { bytes: number as u32, characters: (number >> 32) as u32 }
    }
}

impl ForeignKey {
    /// Of these columns, which refer to those of the parent, in this order; both actions are
    /// [`ReferenceAction::Restrict`]. Child and parent each need an index that begins with the columns.
    ///
    /// ```
    /// use trefoil::ForeignKey;
    ///
    /// let line = ForeignKey::new("line_order", &["shop", "order"], "orders", &["shop", "number"]);
    /// assert_eq!((line.columns()[1].as_str(), line.parent_columns()[1].as_str()), ("order", "number"));
    /// ```
    #[must_use]
    pub fn new(name: &str, columns: &[&str], parent: &str, parent_columns: &[&str]) -> Self {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        Self {
            name: name.to_owned(),
            columns: owned(columns),
            parent: parent.to_owned(),
            parent_columns: owned(parent_columns),
            on_delete: ReferenceAction::default(),
            on_update: ReferenceAction::default(),
            room: vec![Room::default(); columns.len()],
        }
    }

    /// With what becomes of a row when its parent is deleted.
    ///
    /// ```
    /// use trefoil::{ForeignKey, ReferenceAction};
    ///
    /// let boss = ForeignKey::new("boss", &["boss"], "people", &["id"]).on_delete(ReferenceAction::SetNull);
    /// assert_eq!(boss.deletes(), ReferenceAction::SetNull);
    /// ```
    #[must_use]
    pub fn on_delete(mut self, action: ReferenceAction) -> Self {
        self.on_delete = action;
        self
    }

    /// With what becomes of a row when its parent gets another key.
    ///
    /// ```
    /// use trefoil::{ForeignKey, ReferenceAction};
    ///
    /// let boss = ForeignKey::new("boss", &["boss"], "people", &["id"]).on_update(ReferenceAction::Cascade);
    /// assert_eq!(boss.updates(), ReferenceAction::Cascade);
    /// ```
    #[must_use]
    pub fn on_update(mut self, action: ReferenceAction) -> Self {
        self.on_update = action;
        self
    }

    /// With the most bytes of a value that a cascade may put into each column, for a caller whose columns are narrower than
    /// the table's; 0: any. A longer one is an error of whoever changes the parent.
    ///
    /// ```
    /// use trefoil::ForeignKey;
    ///
    /// let short = ForeignKey::new("code", &["code"], "codes", &["code"]).room(&[3]);
    /// assert_ne!(short, ForeignKey::new("code", &["code"], "codes", &["code"]));
    /// ```
    #[must_use]
    pub fn room(mut self, bytes: &[u32]) -> Self {
        self.room.resize(bytes.len(), Room::default());
        self.room.iter_mut().zip(bytes).for_each(|(room, &bytes)| room.bytes = bytes);
        self
    }

    /// The same in characters, for text with a collation, which counts them ([`Collations::characters`](crate::Collations)); 0: any.
    ///
    /// ```
    /// use trefoil::ForeignKey;
    ///
    /// let of_bytes = ForeignKey::new("code", &["code"], "codes", &["code"]).room(&[12]);
    /// assert_ne!(of_bytes.clone().room_in_characters(&[3]), of_bytes);
    /// ```
    #[must_use]
    pub fn room_in_characters(mut self, characters: &[u32]) -> Self {
        self.room.resize(characters.len(), Room::default());
        self.room.iter_mut().zip(characters).for_each(|(room, &characters)| room.characters = characters);
        self
    }

    /// Its name.
    ///
    /// ```
    /// assert_eq!(trefoil::ForeignKey::new("boss", &["boss"], "people", &["id"]).name(), "boss");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names of its columns, in the child.
    ///
    /// ```
    /// assert_eq!(trefoil::ForeignKey::new("boss", &["boss"], "people", &["id"]).columns(), ["boss"]);
    /// ```
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Name of the parent.
    ///
    /// ```
    /// assert_eq!(trefoil::ForeignKey::new("boss", &["boss"], "people", &["id"]).parent(), "people");
    /// ```
    #[must_use]
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// Names of the columns that it refers to.
    ///
    /// ```
    /// assert_eq!(trefoil::ForeignKey::new("boss", &["boss"], "people", &["id"]).parent_columns(), ["id"]);
    /// ```
    #[must_use]
    pub fn parent_columns(&self) -> &[String] {
        &self.parent_columns
    }

    /// What [`ForeignKey::on_delete`] set.
    ///
    /// ```
    /// use trefoil::{ForeignKey, ReferenceAction};
    ///
    /// assert_eq!(ForeignKey::new("boss", &["boss"], "people", &["id"]).deletes(), ReferenceAction::Restrict);
    /// ```
    #[must_use]
    pub fn deletes(&self) -> ReferenceAction {
        self.on_delete
    }

    /// What [`ForeignKey::on_update`] set.
    ///
    /// ```
    /// use trefoil::{ForeignKey, ReferenceAction};
    ///
    /// assert_eq!(ForeignKey::new("boss", &["boss"], "people", &["id"]).updates(), ReferenceAction::Restrict);
    /// ```
    #[must_use]
    pub fn updates(&self) -> ReferenceAction {
        self.on_update
    }

    /// True if both have one name and refer from the same to the same, whatever follows from that.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let says = |it: &Self| (it.name.clone(), it.columns.clone(), it.parent.clone(), it.parent_columns.clone());
        says(self) == says(other)
    }

    /// True if a value has room in column `n` of its columns.
    fn has_bytes(&self, n: usize, value: &Value<'_>) -> bool {
        let bytes = match self.room[n].bytes {
            0 => return true,
            bytes => bytes as usize,
        };
        let bits = 8 * bytes.min(8) as u32;
        match value {
            Value::Text(text) => text.len() <= bytes,
            Value::Bytes(given) => given.len() <= bytes,
            Value::I64(n) => bits == 64 || (-(1i64 << (bits - 1))..1i64 << (bits - 1)).contains(n),
            Value::I32(n) => bits >= 32 || (-(1i32 << (bits - 1))..1i32 << (bits - 1)).contains(n),
            Value::U64(n) => bits == 64 || *n < 1u64 << bits,
            Value::U32(n) => bits >= 32 || *n < 1u32 << bits,
            _ => true,
        }
    }

    /// What cannot be of any table.
    fn check_words(&self) -> Result<()> {
        let names = || std::iter::once(&self.name).chain(&self.columns).chain(&self.parent_columns);
        if names().any(|name| name.is_empty() || name.len() > NAME_BYTES_MAX) {
            return Err(Fault::Invalid(format!("a name of foreign key {:?} is empty or too long", self.name)));
        }
        if self.parent.is_empty() || self.parent.len() > TABLE_NAME_BYTES_MAX {
            return Err(Fault::Invalid(format!("foreign key {:?} has no parent's name, or a too long one", self.name)));
        }
        let counts = [self.parent_columns.len(), self.room.len()];
        if self.columns.is_empty() || counts != [self.columns.len(); 2] || self.columns.len() > KEY_COLUMNS_MAX {
            let why = "needs one to 32 columns and as many of the parent";
            return Err(Fault::Invalid(format!("foreign key {:?} {why}", self.name)));
        }
        Ok(())
    }

    pub(super) fn encode(&self, columns: &[usize], out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        put_bytes(out, self.parent.as_bytes());
        out.extend_from_slice(&[self.on_delete as u8, self.on_update as u8]);
        put_varint(out, columns.len() as u64);
        for ((&n, parent), &room) in columns.iter().zip(&self.parent_columns).zip(&self.room) {
            put_varint(out, n as u64);
            put_bytes(out, parent.as_bytes());
            put_varint(out, room.number());
        }
    }

    /// `name_of`: of a column of the child.
    pub(super) fn decode(reader: &mut Reader<'_>, name_of: impl Fn(usize) -> Option<String>) -> Option<Self> {
        let text = |reader: &mut Reader<'_>| String::from_utf8(reader.bytes()?.to_vec()).ok();
        let (name, parent) = (text(reader)?, text(reader)?);
        let on_delete = ReferenceAction::of_number(reader.u8()?)?;
        let on_update = ReferenceAction::of_number(reader.u8()?)?;
        let count = reader.length().filter(|&n| n <= KEY_COLUMNS_MAX)?;
        let (mut columns, mut parent_columns, mut room) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            columns.push(name_of(reader.length()?)?);
            parent_columns.push(text(reader)?);
            room.push(Room::of_number(reader.varint()?));
        }
        Some(Self { name, columns, parent, parent_columns, on_delete, on_update, room })
    }
}

impl Parts {
    /// Invariant: each foreign key has an index of its table that begins with its columns.
    pub(super) fn check_foreign_keys(&self, index_columns: &[Vec<usize>]) -> Result<()> {
        if self.foreign_keys.len() > FOREIGN_KEYS_MAX {
            let (limit, got) = (FOREIGN_KEYS_MAX as u64, self.foreign_keys.len() as u64);
            return Err(Fault::Limit { what: "foreign keys of a table", limit, got });
        }
        for (at, foreign) in self.foreign_keys.iter().enumerate() {
            foreign.check_words()?;
            let invalid = |why: &str| Err(Fault::Invalid(format!("foreign key {:?} {why}", foreign.name)));
            if self.foreign_keys[..at].iter().any(|other| other.name == foreign.name) {
                return invalid("is there twice");
            }
            let columns = foreign.columns.iter().map(|name| self.number(name)).collect::<Result<Vec<_>>>()?;
            if (1..columns.len()).any(|n| columns[..n].contains(&columns[n])) {
                return invalid("has a column twice");
            }
            let sets_null = [foreign.on_delete, foreign.on_update].contains(&ReferenceAction::SetNull);
            if sets_null && columns.iter().any(|&n| !self.columns[n].nullable) {
                return invalid("sets a column to NULL that may not be NULL");
            }
            if self.index_over(&columns, index_columns, |_| true).is_none() {
                return invalid("needs an index that begins with its columns");
            }
        }
        Ok(())
    }

    /// An index that begins with these columns, whole, the primary key or a `usable` one; none inside: the
    /// primary key.
    fn index_over(
        &self,
        columns: &[usize],
        all: &[Vec<usize>],
        usable: impl Fn(usize) -> bool,
    ) -> Option<Option<usize>> {
        let begins = |own: &[usize], parts: &[super::index_schema::PartOptions]| {
            own.starts_with(columns) && parts[..columns.len()].iter().all(|part| part.front.is_none())
        };
        if begins(&self.primary, &self.primary_parts) {
            return Some(None);
        }
        let mut indexes = self.indexes.iter().zip(all).enumerate();
        let found = indexes.find(|(n, (index, own))| usable(*n) && begins(own, &index.parts));
        found.map(|(n, _)| Some(n))
    }
}

impl Schema {
    /// True if a value has room in column `n` of the columns of one of its foreign keys.
    pub(crate) fn has_room(&self, foreign: &ForeignKey, n: usize, value: &Value<'_>) -> Result<bool> {
        let (limit, column) = (foreign.room[n].characters, self.column_number(&foreign.columns[n]));
        let column = column.map(|n| &self.columns()[n]);
        let counted = column.and_then(|column| Some((column, column.collation?))).filter(|_| limit > 0);
        let (Some((column, collation)), true) = (counted, foreign.has_bytes(n, value)) else {
            return Ok(foreign.has_bytes(n, value));
        };
        match value {
            Value::Text(text) => {
                Ok(self.0.collations.characters(column, collation, text.as_bytes())? <= limit as usize)
            }
            Value::Bytes(bytes) => Ok(self.0.collations.characters(column, collation, bytes)? <= limit as usize),
            _ => Ok(true),
        }
    }

    /// Its foreign keys.
    ///
    /// ```
    /// use trefoil::{ColumnType, ForeignKey, IndexSchema, Schema};
    ///
    /// let people = Schema::builder().column("id", ColumnType::I64).nullable("boss", ColumnType::I64).primary_key(&["id"]);
    /// let people = people.index(IndexSchema::new("by_boss", &["boss"]));
    /// let people = people.foreign_key(ForeignKey::new("boss", &["boss"], "people", &["id"])).build()?;
    /// assert_eq!(people.foreign_keys()[0].parent(), "people");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn foreign_keys(&self) -> &[ForeignKey] {
        &self.0.foreign_keys
    }

    /// With other foreign keys.
    pub(crate) fn with_foreign_keys(&self, foreign_keys: Vec<ForeignKey>) -> Result<Self> {
        let mut parts = Parts::clone(&self.0);
        parts.foreign_keys = foreign_keys;
        parts.checked()
    }

    /// With foreign keys to another name of a parent; none if none goes there.
    pub(crate) fn with_parent_renamed(&self, from: &str, to: &str) -> Option<Self> {
        self.with_each_foreign_key(|foreign| {
            let is_it = foreign.parent == from;
            if is_it {
                to.clone_into(&mut foreign.parent);
            }
            is_it
        })
    }

    /// The same for a column of the parent.
    pub(crate) fn with_parent_column_renamed(&self, parent: &str, from: &str, to: &str) -> Option<Self> {
        self.with_each_foreign_key(|foreign| {
            let mut changed = false;
            for name in foreign.parent_columns.iter_mut().filter(|name| foreign.parent == parent && *name == from) {
                to.clone_into(name);
                changed = true;
            }
            changed
        })
    }

    fn with_each_foreign_key(&self, mut change: impl FnMut(&mut ForeignKey) -> bool) -> Option<Self> {
        let mut parts = Parts::clone(&self.0);
        let changed = parts.foreign_keys.iter_mut().map(&mut change).fold(false, |any, one| any | one);
        changed.then(|| parts.checked().expect("other names of a parent fit any child"))
    }

    /// A foreign key that would be without an index if index `n` went.
    pub(crate) fn foreign_key_on(&self, n: usize) -> Option<&ForeignKey> {
        self.0.foreign_keys.iter().find(|foreign| {
            let columns: Vec<_> = foreign.columns.iter().filter_map(|name| self.column_number(name)).collect();
            self.0.index_over(&columns, &self.0.derived.index_columns, |other| other != n).is_none()
        })
    }

    /// An index that begins with these columns, whole; none inside: the primary key.
    pub(crate) fn index_over(&self, columns: &[usize]) -> Option<Option<usize>> {
        self.index_over_of(columns, |_| true)
    }

    /// The same, of the secondary ones that are `usable`.
    pub(crate) fn index_over_of(&self, columns: &[usize], usable: impl Fn(usize) -> bool) -> Option<Option<usize>> {
        self.0.index_over(columns, &self.0.derived.index_columns, usable)
    }
}
