//! The rows of the load (clause 4.3.3), in parts that threads take in any order: each is made of the seed and its own
//! number alone.

use lab_target::tpcc::{Cell, Row, Table};

use super::draw::{Constants, data, digits, last_name, percent, permutation, text, uniform};
use super::plan::{DISTRICTS, Size};
use crate::random::Random;

/// Rows handed on at a time: one transaction of the load.
pub const LOAD_ROWS: usize = 2_000;
/// When everything was loaded, in microseconds: of all targets alike.
const THEN: i64 = 1_700_000_000_000_000;

/// A part of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All items.
    Items,
    /// A warehouse, its districts and its stock.
    Warehouse(i64),
    /// Customers, payments and orders of a district.
    District(i64, i64),
}

/// All parts, the long ones first.
#[must_use]
pub fn parts(size: &Size) -> Vec<Part> {
    let warehouses = (1..=size.warehouses).map(Part::Warehouse);
    let districts = size.districts().map(|(warehouse, district)| Part::District(warehouse, district));
    warehouses.chain([Part::Items]).chain(districts).collect()
}

/// About how many rows all parts have.
#[must_use]
pub fn rows_expected(size: &Size) -> u64 {
    let of_district = size.customers * 13 + size.customers - size.delivered() + 1;
    (size.items + size.warehouses * (1 + size.items + DISTRICTS * of_district)) as u64
}

/// Where rows go; a batch is of one table.
pub type Sink<'s, E> = &'s mut dyn FnMut(Table, Vec<Row>) -> Result<(), E>;

/// Makes the rows of parts.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    size: Size,
    constants: Constants,
    seed: u64,
}

/// Hands on rows of one table in batches.
struct Batches<'b, 's, E> {
    table: Table,
    rows: Vec<Row>,
    sink: &'b mut Sink<'s, E>,
}

impl<E> Batches<'_, '_, E> {
    fn push(&mut self, row: Row) -> Result<(), E> {
        self.rows.push(row);
        if self.rows.len() == LOAD_ROWS { self.finish() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), E> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() { Ok(()) } else { (self.sink)(self.table, rows) }
    }
}

/// Hands on all rows of one table.
fn all<E>(table: Table, rows: impl Iterator<Item = Row>, mut sink: Sink<'_, E>) -> Result<(), E> {
    let mut batches = Batches { table, rows: Vec::new(), sink: &mut sink };
    for row in rows {
        batches.push(row)?;
    }
    batches.finish()
}

impl Population {
    /// That of a seed.
    #[must_use]
    pub fn new(size: Size, seed: u64) -> Population {
        Population { size, constants: Constants::new(seed), seed }
    }

    /// Makes a part.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn make<E>(&self, part: Part, sink: Sink<'_, E>) -> Result<(), E> {
        let number = match part {
            Part::Items => 0,
            Part::Warehouse(warehouse) => warehouse << 8,
            Part::District(warehouse, district) => warehouse << 8 | district,
        };
        let mut random = Random::new(self.seed, 0x7470_6363_0000_0000 ^ number as u64);
        match part {
            Part::Items => all(Table::Item, (1..=self.size.items).map(|id| item(&mut random, id)), sink),
            Part::Warehouse(id) => self.warehouse(&mut random, id, sink),
            Part::District(warehouse, id) => {
                self.customers(&mut random, warehouse, id, sink)?;
                self.orders(&mut random, warehouse, id, sink)
            }
        }
    }

    fn warehouse<E>(&self, random: &mut Random, id: i64, sink: Sink<'_, E>) -> Result<(), E> {
        let paid = self.size.customers * 1_000;
        let mut row: Row = vec![id.into(), text(random, 6, 10).into()];
        row.extend(address(random));
        row.extend([uniform(random, 0, 2_000).into(), (paid * DISTRICTS).into()]);
        sink(Table::Warehouse, vec![row])?;
        let next = self.size.customers + 1;
        let district = |number: i64| {
            let mut row: Row = vec![id.into(), number.into(), text(random, 6, 10).into()];
            row.extend(address(random));
            row.extend([uniform(random, 0, 2_000), paid, next].map(Cell::Number));
            row
        };
        sink(Table::District, (1..=DISTRICTS).map(district).collect())?;
        let stock = |item: i64| {
            let mut row: Row = vec![id.into(), item.into(), uniform(random, 10, 100).into()];
            row.extend((0..DISTRICTS).map(|_| Cell::from(text(random, 24, 24))));
            row.extend([0i64, 0, 0].map(Cell::Number));
            row.push(data(random).into());
            row
        };
        all(Table::Stock, (1..=self.size.items).map(stock), sink)
    }

    /// Customers with a payment each.
    fn customers<E>(&self, random: &mut Random, warehouse: i64, district: i64, sink: Sink<'_, E>) -> Result<(), E> {
        let customer = |id: i64| self.customer(random, warehouse, district, id);
        all(Table::Customer, (1..=self.size.customers).map(customer), &mut *sink)?;
        let before = ((warehouse - 1) * DISTRICTS + district - 1) * self.size.customers;
        let history = |id: i64| {
            let numbers = [before + id, id, district, warehouse, district, warehouse, THEN, 1_000];
            let mut row: Row = numbers.map(Cell::Number).into();
            row.push(text(random, 12, 24).into());
            row
        };
        all(Table::History, (1..=self.size.customers).map(history), sink)
    }

    fn customer(&self, random: &mut Random, warehouse: i64, district: i64, id: i64) -> Row {
        let last = last_name(self.constants.name_of_load(random, id));
        let mut row: Row = vec![warehouse.into(), district.into(), id.into()];
        row.extend([text(random, 8, 16).into(), b"OE".to_vec().into(), last.into()]);
        row.extend(address(random));
        let credit = if percent(random, 10) { b"BC" } else { b"GC" };
        row.extend([digits(random, 16).into(), THEN.into(), credit.to_vec().into()]);
        row.extend([5_000_000, uniform(random, 0, 5_000), -1_000, 1_000, 1, 0].map(Cell::Number));
        row.push(text(random, 300, 500).into());
        row
    }

    /// Orders with their lines, one for each customer; the last three of ten are not delivered.
    fn orders<E>(&self, random: &mut Random, warehouse: i64, district: i64, mut sink: Sink<'_, E>) -> Result<(), E> {
        let (customers, last) = (permutation(random, self.size.customers), self.size.delivered());
        let batch = |table| (table, Vec::new());
        let [mut orders, mut lines, mut queue] = [Table::Orders, Table::OrderLine, Table::NewOrders].map(batch);
        for (id, customer) in (1..).zip(customers) {
            let is_delivered = id <= last;
            let (count, carrier) = (uniform(random, 5, 15), uniform(random, 1, 10));
            let mut row: Row = [warehouse, district, id, customer, THEN].map(Cell::Number).into();
            row.push(if is_delivered { carrier.into() } else { Cell::Null });
            row.extend([count, 1].map(Cell::Number));
            orders.1.push(row);
            for number in 1..=count {
                let item = uniform(random, 1, self.size.items);
                let mut row: Row = [warehouse, district, id, number, item, warehouse].map(Cell::Number).into();
                row.push(if is_delivered { THEN.into() } else { Cell::Null });
                let amount = if is_delivered { 0 } else { uniform(random, 1, 999_999) };
                row.extend([5i64.into(), amount.into(), text(random, 24, 24).into()]);
                lines.1.push(row);
            }
            if !is_delivered {
                queue.1.push([warehouse, district, id].map(Cell::Number).into());
            }
            for (table, rows) in [&mut orders, &mut lines, &mut queue] {
                if rows.len() >= LOAD_ROWS {
                    sink(*table, std::mem::take(rows))?;
                }
            }
        }
        [orders, lines, queue].into_iter().try_for_each(|(table, rows)| all(table, rows.into_iter(), &mut sink))
    }
}

fn item(random: &mut Random, id: i64) -> Row {
    let image = uniform(random, 1, 10_000);
    let (name, price) = (text(random, 14, 24), uniform(random, 100, 10_000));
    vec![id.into(), image.into(), name.into(), price.into(), data(random).into()]
}

/// Two streets, city, state and zip.
fn address(random: &mut Random) -> [Cell<'static>; 5] {
    let [street, other, city] = [(10, 20), (10, 20), (10, 20)].map(|(from, to)| text(random, from, to));
    let zip = [digits(random, 4), b"11111".to_vec()].concat();
    [street, other, city, text(random, 2, 2), zip].map(Cell::from)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use lab_target::tpcc::{customer, hash, stock};

    use super::*;

    fn made(size: Size, seed: u64) -> BTreeMap<Table, Vec<Row>> {
        let mut out: BTreeMap<Table, Vec<Row>> = BTreeMap::new();
        for part in parts(&size) {
            let mut sink = |table: Table, rows: Vec<Row>| -> Result<(), Infallible> {
                assert!(rows.len() <= LOAD_ROWS + 15);
                out.entry(table).or_default().extend(rows);
                Ok(())
            };
            Population::new(size, seed).make(part, &mut sink).unwrap();
        }
        out
    }

    #[test]
    fn every_row_fits_its_table_and_the_counts_are_those_of_the_specification() {
        let size = Size { warehouses: 2, items: 500, customers: 3_000 };
        let rows = made(size, 1);
        for table in Table::ALL {
            let columns = table.definition().columns.len();
            assert!(rows[table].iter().all(|row| row.len() == columns), "{table:?}");
        }
        let count = |table: Table| rows[&table].len();
        assert_eq!([Table::Item, Table::Warehouse, Table::District, Table::Stock].map(count), [500, 2, 20, 1_000]);
        assert_eq!([Table::Customer, Table::History, Table::Orders].map(count), [60_000; 3]);
        assert_eq!(count(Table::NewOrders), 18_000);
        let lines = count(Table::OrderLine);
        assert!((590_000..610_000).contains(&lines), "{lines}");
        let all: usize = rows.values().map(Vec::len).sum();
        assert!((all as f64 / rows_expected(&size) as f64 - 1.0).abs() < 0.02);
        let bad = rows[&Table::Customer].iter().filter(|row| row[customer::CREDIT].text() == b"BC").count();
        assert!((5_500..6_500).contains(&bad), "{bad} of 60000 are a tenth");
        assert!(rows[&Table::Customer].iter().all(|row| (300..=500).contains(&row[customer::DATA].text().len())));
        assert!(rows[&Table::Stock].iter().all(|row| row[stock::DIST_10].text().len() == 24));
    }

    #[test]
    fn a_seed_makes_the_same_rows_again_and_another_makes_others() {
        let size = Size { warehouses: 1, items: 100, customers: 30 };
        let sum = |seed| {
            let hash_all =
                |(table, rows): (Table, Vec<Row>)| rows.iter().map(|row| hash(table, row)).collect::<Vec<_>>();
            made(size, seed).into_iter().flat_map(hash_all).fold(0u64, u64::wrapping_add)
        };
        assert_eq!(sum(1), sum(1));
        assert_ne!(sum(1), sum(2));
    }
}
