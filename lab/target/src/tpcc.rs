//! What TPC-C asks of an engine: nine tables, and statements on their rows.
//!
//! The workload writes its transactions once, in terms of these statements; an adapter carries them out. Columns of the
//! primary key come first in a table and are numbers. Amounts of money are hundredths, taxes and discounts
//! ten-thousandths, times microseconds since 1970. `history` has no key of its own, so it has a hidden one.
//!
//! Rules every adapter keeps:
//! 1. All statements of a transaction have happened when [`Session::commit`] returns `Ok`, or none.
//! 2. A secondary index is kept by the engine, or by the adapter within the same transaction.
//! 3. [`Session::update`] and [`Session::take_first`] act on the newest committed row under a lock that is held to the
//!    end of the transaction. Plain reads of a transaction that only reads see one snapshot.
//! 4. [`TargetError::Retry`](crate::TargetError::Retry) means: a deadlock, a lock wait or a conflict; the whole
//!    transaction can be run again after [`Session::rollback`]. Nothing is run again silently.

use std::borrow::Cow;

use crate::api::Result;
use crate::row::mix;

/// A column's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell<'a> {
    /// None.
    Null,
    /// A number or a time.
    Number(i64),
    /// A text of one byte a character.
    Text(Cow<'a, [u8]>),
}

impl Cell<'_> {
    /// The number; 0 for anything else.
    #[must_use]
    pub fn number(&self) -> i64 {
        match self {
            Cell::Number(number) => *number,
            _ => 0,
        }
    }

    /// The text; empty for anything else.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        match self {
            Cell::Text(text) => text,
            _ => &[],
        }
    }

    /// Whether it is none.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Cell::Null)
    }

    /// The same, borrowing nothing.
    #[must_use]
    pub fn owned(&self) -> Cell<'static> {
        match self {
            Cell::Null => Cell::Null,
            Cell::Number(number) => Cell::Number(*number),
            Cell::Text(text) => Cell::Text(Cow::Owned(text.to_vec())),
        }
    }

    /// The same, borrowed from here.
    #[must_use]
    pub fn borrowed(&self) -> Cell<'_> {
        match self {
            Cell::Null => Cell::Null,
            Cell::Number(number) => Cell::Number(*number),
            Cell::Text(text) => Cell::Text(Cow::Borrowed(text)),
        }
    }
}

impl From<i64> for Cell<'_> {
    fn from(number: i64) -> Self {
        Cell::Number(number)
    }
}

impl<'a> From<&'a [u8]> for Cell<'a> {
    fn from(text: &'a [u8]) -> Self {
        Cell::Text(Cow::Borrowed(text))
    }
}

impl From<Vec<u8>> for Cell<'_> {
    fn from(text: Vec<u8>) -> Self {
        Cell::Text(Cow::Owned(text))
    }
}

/// A row: a cell for each column.
pub type Row = Vec<Cell<'static>>;

/// A primary key; columns that a table's key does not have are 0.
pub type Key = [i64; 4];

/// The key made of these columns.
#[must_use]
pub fn key(columns: &[i64]) -> Key {
    let mut key = Key::default();
    key[..columns.len()].copy_from_slice(columns);
    key
}

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number of 32 bits.
    Int,
    /// A number of 64 bits.
    Long,
    /// A time.
    Time,
    /// A text.
    Text,
    /// A number of 32 bits, or none.
    MaybeInt,
    /// A time, or none.
    MaybeTime,
}

/// A table as every engine has it.
#[derive(Debug)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// Columns, those of the primary key first.
    pub columns: &'static [(&'static str, Kind)],
    /// Columns of the primary key.
    pub key: usize,
    /// Columns of its secondary index.
    pub index: Option<&'static [usize]>,
}

impl Definition {
    /// Columns of an entry of the index: its own, then those of the primary key that are not among them.
    #[must_use]
    pub fn entry_columns(&self) -> Vec<usize> {
        let own = self.index.unwrap_or_default();
        own.iter().copied().chain((0..self.key).filter(|column| !own.contains(column))).collect()
    }

    /// The key of a row.
    #[must_use]
    pub fn key_of(&self, row: &[Cell<'_>]) -> Key {
        let mut key = Key::default();
        key.iter_mut().zip(&row[..self.key]).for_each(|(number, cell)| *number = cell.number());
        key
    }
}

/// Makes tables: the numbers of their columns by name, and their definitions.
macro_rules! tables {
    ($($(#[$about:meta])* $table:ident $module:ident, key $key:literal, index $index:expr, {
        $($column:ident $name:literal $kind:ident),+ $(,)?
    })+) => {
        /// The tables.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Table { $($(#[$about])* $table),+ }

        impl Table {
            /// All of them, in the order in which they are loaded.
            pub const ALL: &'static [Table] = &[$(Table::$table),+];

            /// As every engine has it.
            #[must_use]
            pub fn definition(self) -> &'static Definition {
                match self { $(Table::$table => &$module::DEFINITION),+ }
            }
        }

        $($(#[$about])* pub mod $module {
            use super::{Definition, Kind};
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Number { $($column),+ }
            $(#[doc = concat!("Number of the column `", $name, "`.")] pub const $column: usize = Number::$column as usize;)+
            /// The table.
            pub const DEFINITION: Definition = Definition {
                name: stringify!($module),
                columns: &[$(($name, Kind::$kind)),+],
                key: $key,
                index: $index,
            };
        })+
    };
}

tables! {
    /// What is sold.
    Item item, key 1, index None, {
        ID "i_id" Int, IMAGE "i_im_id" Int, NAME "i_name" Text, PRICE "i_price" Long, DATA "i_data" Text,
    }
    /// A warehouse.
    Warehouse warehouse, key 1, index None, {
        ID "w_id" Int, NAME "w_name" Text, STREET_1 "w_street_1" Text, STREET_2 "w_street_2" Text, CITY "w_city" Text,
        STATE "w_state" Text, ZIP "w_zip" Text, TAX "w_tax" Int, YTD "w_ytd" Long,
    }
    /// Ten of each warehouse.
    District district, key 2, index None, {
        WAREHOUSE "d_w_id" Int, ID "d_id" Int, NAME "d_name" Text, STREET_1 "d_street_1" Text,
        STREET_2 "d_street_2" Text, CITY "d_city" Text, STATE "d_state" Text, ZIP "d_zip" Text, TAX "d_tax" Int,
        YTD "d_ytd" Long, NEXT_ORDER "d_next_o_id" Int,
    }
    /// Who buys.
    Customer customer, key 3, index Some(&[WAREHOUSE, DISTRICT, LAST, FIRST]), {
        WAREHOUSE "c_w_id" Int, DISTRICT "c_d_id" Int, ID "c_id" Int, FIRST "c_first" Text, MIDDLE "c_middle" Text,
        LAST "c_last" Text, STREET_1 "c_street_1" Text, STREET_2 "c_street_2" Text, CITY "c_city" Text,
        STATE "c_state" Text, ZIP "c_zip" Text, PHONE "c_phone" Text, SINCE "c_since" Time, CREDIT "c_credit" Text,
        CREDIT_LIMIT "c_credit_lim" Long, DISCOUNT "c_discount" Int, BALANCE "c_balance" Long,
        YTD_PAYMENT "c_ytd_payment" Long, PAYMENTS "c_payment_cnt" Int, DELIVERIES "c_delivery_cnt" Int,
        DATA "c_data" Text,
    }
    /// Payments.
    History history, key 1, index None, {
        HIDDEN "h_hidden" Long, CUSTOMER "h_c_id" Int, CUSTOMER_DISTRICT "h_c_d_id" Int,
        CUSTOMER_WAREHOUSE "h_c_w_id" Int, DISTRICT "h_d_id" Int, WAREHOUSE "h_w_id" Int, DATE "h_date" Time,
        AMOUNT "h_amount" Long, DATA "h_data" Text,
    }
    /// What a warehouse has of an item.
    Stock stock, key 2, index Some(&[ITEM]), {
        WAREHOUSE "s_w_id" Int, ITEM "s_i_id" Int, QUANTITY "s_quantity" Int, DIST_01 "s_dist_01" Text,
        DIST_02 "s_dist_02" Text, DIST_03 "s_dist_03" Text, DIST_04 "s_dist_04" Text, DIST_05 "s_dist_05" Text,
        DIST_06 "s_dist_06" Text, DIST_07 "s_dist_07" Text, DIST_08 "s_dist_08" Text, DIST_09 "s_dist_09" Text,
        DIST_10 "s_dist_10" Text, YTD "s_ytd" Long, ORDERS "s_order_cnt" Int, REMOTE "s_remote_cnt" Int,
        DATA "s_data" Text,
    }
    /// Orders.
    Orders orders, key 3, index Some(&[WAREHOUSE, DISTRICT, CUSTOMER, ID]), {
        WAREHOUSE "o_w_id" Int, DISTRICT "o_d_id" Int, ID "o_id" Int, CUSTOMER "o_c_id" Int, DATE "o_entry_d" Time,
        CARRIER "o_carrier_id" MaybeInt, LINES "o_ol_cnt" Int, ALL_LOCAL "o_all_local" Int,
    }
    /// Orders that are not delivered.
    NewOrders new_orders, key 3, index None, {
        WAREHOUSE "no_w_id" Int, DISTRICT "no_d_id" Int, ORDER "no_o_id" Int,
    }
    /// Their lines.
    OrderLine order_line, key 4, index Some(&[SUPPLY, ITEM]), {
        WAREHOUSE "ol_w_id" Int, DISTRICT "ol_d_id" Int, ORDER "ol_o_id" Int, NUMBER "ol_number" Int,
        ITEM "ol_i_id" Int, SUPPLY "ol_supply_w_id" Int, DELIVERED "ol_delivery_d" MaybeTime,
        QUANTITY "ol_quantity" Int, AMOUNT "ol_amount" Long, DIST "ol_dist_info" Text,
    }
}

/// A number for cells of a row or an entry, to be added up over a table.
#[must_use]
pub fn hash<'c, 'd: 'c>(table: Table, cells: impl IntoIterator<Item = &'c Cell<'d>>) -> u64 {
    let word = |sum: u64, word: u64| mix(sum.rotate_left(7) ^ word);
    cells.into_iter().fold(mix(table as u64), |sum, cell| match cell {
        Cell::Null => word(sum, 1),
        Cell::Number(number) => word(word(sum, 2), *number as u64),
        Cell::Text(text) => text.chunks(8).fold(word(word(sum, 3), text.len() as u64), |sum, part| {
            let mut eight = [0; 8];
            eight[..part.len()].copy_from_slice(part);
            word(sum, u64::from_le_bytes(eight))
        }),
    })
}

/// The tables of a run.
pub trait Tables: Send + Sync {
    /// Creates the nine tables with their secondary indexes.
    fn create(&self) -> Result<()>;

    /// Finds them in a database that has them.
    fn attach(&self) -> Result<()>;

    /// Opens a connection; the tables exist by then.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
}

/// One connection. Every statement is within [`Session::begin`] … [`Session::commit`].
pub trait Session: Send {
    /// Begins a transaction. One that only reads sees one snapshot.
    fn begin(&mut self, only_reads: bool) -> Result<()>;

    /// Commits it.
    fn commit(&mut self) -> Result<()>;

    /// Rolls back the transaction that was begun, if there is one.
    fn rollback(&mut self);

    /// Inserts rows; a key that exists is an error.
    fn insert(&mut self, table: Table, rows: &[Row]) -> Result<()>;

    /// Looks up rows by their keys, without a lock: hands the place of the key and the columns of each row that is
    /// there to `found`, which must not call the engine, and returns how many there are.
    fn get(
        &mut self,
        table: Table,
        keys: &[Key],
        columns: &[usize],
        found: &mut dyn FnMut(usize, &[Cell<'_>]),
    ) -> Result<usize>;

    /// Locks a row and changes it; `change` must not call the engine, nor touch the key or a column of the index. Says
    /// whether there is such a row.
    fn update(&mut self, table: Table, key: Key, change: &mut dyn FnMut(&mut [Cell<'_>])) -> Result<bool>;

    /// Locks and deletes a row; says whether there was one.
    fn delete(&mut self, table: Table, key: Key) -> Result<bool>;

    /// Locks and deletes the row with the smallest key that begins with `prefix`, and returns its key.
    fn take_first(&mut self, table: Table, prefix: &[i64]) -> Result<Option<Key>>;

    /// Reads rows whose keys begin with the first of `range` to the second, both included, in the order of the key, without a lock. `each`
    /// must not call the engine.
    fn scan(
        &mut self,
        table: Table,
        range: (&[i64], &[i64]),
        columns: &[usize],
        each: &mut dyn FnMut(&[Cell<'_>]),
    ) -> Result<()>;

    /// Reads entries of the table's index that begin with `prefix`, in its order, from the index alone:
    /// [`Definition::entry_columns`]. `each` must not call the engine.
    fn scan_index(&mut self, table: Table, prefix: &[Cell<'_>], each: &mut dyn FnMut(&[Cell<'_>])) -> Result<()>;

    /// Reads the last of these entries, and none before it; says whether there is one. `found` must not call the engine.
    fn last_entry(&mut self, table: Table, prefix: &[Cell<'_>], found: &mut dyn FnMut(&[Cell<'_>])) -> Result<bool>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_first_and_entries_name_their_row() {
        for table in Table::ALL {
            let definition = table.definition();
            let is_number = |(_, kind): &(&str, Kind)| matches!(kind, Kind::Int | Kind::Long);
            assert!(definition.columns[..definition.key].iter().all(is_number), "{}", definition.name);
        }
        assert_eq!(customer::DEFINITION.entry_columns(), [0, 1, customer::LAST, customer::FIRST, customer::ID]);
        assert_eq!(stock::DEFINITION.entry_columns(), [stock::ITEM, stock::WAREHOUSE]);
        let line: Vec<Cell<'_>> = (1..=10).map(Cell::Number).collect();
        assert_eq!(order_line::DEFINITION.key_of(&line), [1, 2, 3, 4]);
    }

    #[test]
    fn a_hash_tells_cells_apart() {
        let (null, zero, text) = (Cell::Null, Cell::Number(0), Cell::from(&b""[..]));
        let all = [[&null, &zero], [&zero, &null], [&zero, &zero], [&text, &zero], [&zero, &text]];
        let mut hashes: Vec<u64> = all.into_iter().map(|cells| hash(Table::Item, cells)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), all.len());
    }
}
