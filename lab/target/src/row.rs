//! The insert benchmark's row and its three secondary indexes.
//!
//! A [`Batch`] keeps the fixed columns of its rows in one vector and all `data` text in another, so that making a
//! row allocates nothing. The primary key (`transactionid`) is never part of a row: the engine hands it out, as an
//! auto-increment column does.

use serde::{Deserialize, Serialize};

/// One row without its key; the text is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowView<'a> {
    /// Seconds since 1970, the same for every row of a statement.
    pub dateandtime: i64,
    /// Uniform in 0..1000.
    pub cashregisterid: i32,
    /// Uniform in 0..100 000.
    pub customerid: i32,
    /// Uniform in 0..10 000.
    pub productid: i32,
    /// Uniform in 0..500; where the column is a FLOAT, hundredths.
    pub price: i32,
    /// The `data` column.
    pub data: &'a [u8],
}

impl RowView<'_> {
    /// A hash of the key and every column. Sums of these hashes do not depend on the order of the rows.
    #[must_use]
    pub fn hash(&self, transactionid: u64) -> u64 {
        let mut state = mix(transactionid ^ 0x9e37_79b9_7f4a_7c15);
        state = mix(state ^ self.dateandtime as u64);
        state = mix(state ^ ((self.cashregisterid as u64) << 32 | u64::from(self.customerid as u32)));
        state = mix(state ^ ((self.productid as u64) << 32 | u64::from(self.price as u32)));
        for chunk in self.data.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            state = mix(state ^ u64::from_le_bytes(word));
        }
        mix(state ^ self.data.len() as u64)
    }
}

/// A 64-bit finaliser: every input bit reaches every output bit (the mixing step of SplitMix64).
#[must_use]
pub fn mix(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[derive(Clone, Copy, Debug)]
struct Fixed {
    dateandtime: i64,
    cashregisterid: i32,
    customerid: i32,
    productid: i32,
    price: i32,
    text_at: u32,
    text_length: u32,
}

/// The rows of one INSERT statement.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    rows: Vec<Fixed>,
    text: Vec<u8>,
}

impl Batch {
    /// An empty batch with room for `rows` rows.
    #[must_use]
    pub fn with_capacity(rows: usize) -> Batch {
        Batch { rows: Vec::with_capacity(rows), text: Vec::with_capacity(rows * 20) }
    }

    /// Forgets the rows, keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.text.clear();
    }

    /// Rows in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the batch has no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends a row.
    pub fn push(&mut self, row: RowView<'_>) {
        self.push_with(row, |text| text.extend_from_slice(row.data));
    }

    /// Appends a row whose `data` is not `row.data` but what `write` appends to the batch's text.
    pub fn push_with(&mut self, row: RowView<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        let text_at = self.text.len();
        write(&mut self.text);
        self.rows.push(Fixed {
            dateandtime: row.dateandtime,
            cashregisterid: row.cashregisterid,
            customerid: row.customerid,
            productid: row.productid,
            price: row.price,
            text_at: u32::try_from(text_at).expect("a batch's text is far below 4 GiB"),
            text_length: (self.text.len() - text_at) as u32,
        });
    }

    /// The row at `position`.
    #[must_use]
    pub fn get(&self, position: usize) -> RowView<'_> {
        let fixed = &self.rows[position];
        let from = fixed.text_at as usize;
        RowView {
            dateandtime: fixed.dateandtime,
            cashregisterid: fixed.cashregisterid,
            customerid: fixed.customerid,
            productid: fixed.productid,
            price: fixed.price,
            data: &self.text[from..from + fixed.text_length as usize],
        }
    }

    /// All rows in order.
    pub fn iter(&self) -> impl Iterator<Item = RowView<'_>> {
        (0..self.rows.len()).map(|position| self.get(position))
    }
}

/// A column that takes part in a secondary index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// `dateandtime`.
    DateAndTime,
    /// `cashregisterid`.
    CashRegisterId,
    /// `customerid`.
    CustomerId,
    /// `productid`.
    ProductId,
    /// `price`.
    Price,
}

impl Column {
    /// The column's name in SQL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Column::DateAndTime => "dateandtime",
            Column::CashRegisterId => "cashregisterid",
            Column::CustomerId => "customerid",
            Column::ProductId => "productid",
            Column::Price => "price",
        }
    }

    /// The column's value in a row.
    #[must_use]
    pub fn of(self, row: &RowView<'_>) -> i64 {
        match self {
            Column::DateAndTime => row.dateandtime,
            Column::CashRegisterId => i64::from(row.cashregisterid),
            Column::CustomerId => i64::from(row.customerid),
            Column::ProductId => i64::from(row.productid),
            Column::Price => i64::from(row.price),
        }
    }
}

/// What kind of column `price` is. Its values are whole numbers for the driver in either case: of a FLOAT they are hundredths,
/// which servers get and give as such a number, and embedded engines keep in the same 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Price {
    /// A whole number, since December 2023.
    #[default]
    Int,
    /// A FLOAT with two decimals, which goes up with `customerid`, until then.
    Float,
}

/// The three secondary indexes, all non-unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secondary {
    /// `marketsegment`.
    Market,
    /// `registersegment`.
    Register,
    /// `pdc`: price, date, customer.
    Pdc,
}

impl Secondary {
    /// All three, in the order in which they are created.
    pub const ALL: [Secondary; 3] = [Secondary::Market, Secondary::Register, Secondary::Pdc];

    /// The index's name suffix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Secondary::Market => "marketsegment",
            Secondary::Register => "registersegment",
            Secondary::Pdc => "pdc",
        }
    }

    /// Position in [`Secondary::ALL`].
    #[must_use]
    pub fn position(self) -> usize {
        match self {
            Secondary::Market => 0,
            Secondary::Register => 1,
            Secondary::Pdc => 2,
        }
    }
}

/// The index columns of one entry, in index order; unused places are 0.
pub type Entry = [i64; 3];

/// Which definition of the three indexes is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexSet {
    /// Until December 2023.
    #[serde(rename = "2017")]
    Y2017,
    /// Since December 2023.
    #[serde(rename = "2023")]
    Y2023,
}

impl IndexSet {
    /// The columns of an index, in order.
    #[must_use]
    pub fn columns(self, index: Secondary) -> &'static [Column] {
        use Column::{CashRegisterId, CustomerId, DateAndTime, Price, ProductId};
        match (self, index) {
            (IndexSet::Y2017, Secondary::Market) => &[Price, CustomerId],
            (IndexSet::Y2017, Secondary::Register) => &[CashRegisterId, Price, CustomerId],
            (IndexSet::Y2023, Secondary::Market) => &[ProductId, CustomerId, Price],
            (IndexSet::Y2023, Secondary::Register) => &[CashRegisterId, CustomerId, Price],
            (_, Secondary::Pdc) => &[Price, DateAndTime, CustomerId],
        }
    }

    /// The index columns of a row.
    #[must_use]
    pub fn entry(self, index: Secondary, row: &RowView<'_>) -> Entry {
        let mut entry = [0; 3];
        for (place, column) in entry.iter_mut().zip(self.columns(index)) {
            *place = column.of(row);
        }
        entry
    }
}

/// A hash of an index entry with the key it points at; sums do not depend on order.
#[must_use]
pub fn entry_hash(entry: &Entry, transactionid: u64) -> u64 {
    let mut state = mix(transactionid ^ 0x2545_f491_4f6c_dd1d);
    for value in entry {
        state = mix(state ^ *value as u64);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: RowView<'static> = RowView {
        dateandtime: 1_700_000_000,
        cashregisterid: 7,
        customerid: 12_345,
        productid: 9_876,
        price: 499,
        data: b"aaaaaaaXYZ",
    };

    #[test]
    fn the_two_index_sets_have_the_published_columns() {
        assert_eq!(IndexSet::Y2023.entry(Secondary::Market, &ROW), [9_876, 12_345, 499]);
        assert_eq!(IndexSet::Y2023.entry(Secondary::Register, &ROW), [7, 12_345, 499]);
        assert_eq!(IndexSet::Y2023.entry(Secondary::Pdc, &ROW), [499, 1_700_000_000, 12_345]);
        assert_eq!(IndexSet::Y2017.entry(Secondary::Market, &ROW), [499, 12_345, 0]);
        assert_eq!(IndexSet::Y2017.entry(Secondary::Register, &ROW), [7, 499, 12_345]);
        assert_eq!(IndexSet::Y2017.entry(Secondary::Pdc, &ROW), [499, 1_700_000_000, 12_345]);
    }

    #[test]
    fn the_hash_sees_every_column_and_the_key() {
        let base = ROW.hash(1);
        assert_ne!(base, ROW.hash(2));
        assert_ne!(base, RowView { dateandtime: ROW.dateandtime + 1, ..ROW }.hash(1));
        assert_ne!(base, RowView { cashregisterid: 8, ..ROW }.hash(1));
        assert_ne!(base, RowView { customerid: 12_346, ..ROW }.hash(1));
        assert_ne!(base, RowView { productid: 9_877, ..ROW }.hash(1));
        assert_ne!(base, RowView { price: 498, ..ROW }.hash(1));
        assert_ne!(base, RowView { data: b"aaaaaaaXYz", ..ROW }.hash(1));
        assert_ne!(RowView { data: b"a\0", ..ROW }.hash(1), RowView { data: b"a", ..ROW }.hash(1));
    }

    #[test]
    fn a_batch_gives_back_what_was_pushed() {
        let mut batch = Batch::with_capacity(2);
        batch.push(ROW);
        batch.push(RowView { data: b"", price: 0, ..ROW });
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.get(0), ROW);
        assert_eq!(batch.get(1).data, b"");
        assert_eq!(batch.iter().map(|row| row.price).collect::<Vec<_>>(), [499, 0]);
        batch.clear();
        assert!(batch.is_empty());
    }
}
