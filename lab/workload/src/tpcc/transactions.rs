//! The five transactions (clauses 2.4 to 2.8): what is drawn for each, its statements, and whether their answers are
//! right.
//!
//! What is drawn stays the same when a transaction has to be run again. The lines of an order are worked off in the order
//! of their stock, so that two orders do not wait for each other. Delivery is one transaction over all districts.

use std::time::{SystemTime, UNIX_EPOCH};

use lab_target::TargetError;
use lab_target::tpcc::{
    Cell, Key, Row, Session, Table, customer, district, item, key, order_line, orders, stock, warehouse,
};

use super::draw::{is_original, last_name, percent, uniform};
use super::plan::DISTRICTS;
use super::world::{Deed, World};
use crate::random::Random;
use crate::worker::WorkerError;

/// The longest text of a customer.
const DATA_BYTES: usize = 500;
/// Orders that a stock level looks at.
const RECENT: i64 = 20;

/// The transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// An order is taken.
    NewOrder,
    /// A customer pays.
    Payment,
    /// What became of a customer's last order.
    OrderStatus,
    /// The oldest new order of each district is delivered.
    Delivery,
    /// How many recently sold items are scarce.
    StockLevel,
}

impl Transaction {
    /// All of them, with how many there are in a hundred.
    pub const MIX: [(Transaction, &'static str, usize); 5] = [
        (Transaction::NewOrder, "new-order", 45),
        (Transaction::Payment, "payment", 43),
        (Transaction::OrderStatus, "order-status", 4),
        (Transaction::Delivery, "delivery", 4),
        (Transaction::StockLevel, "stock-level", 4),
    ];
}

/// Why a transaction did not come to its end.
#[derive(Clone, Debug)]
pub enum Stopped {
    /// A deadlock, a lock wait or a conflict: run it again.
    Again(String),
    /// The run is over.
    Worker(WorkerError),
}

impl From<TargetError> for Stopped {
    fn from(error: TargetError) -> Stopped {
        match error {
            TargetError::Retry(why) => Stopped::Again(why),
            other => Stopped::Worker(other.into()),
        }
    }
}

type Result<T, E = Stopped> = std::result::Result<T, E>;

/// A line that is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    supply: i64,
    item: i64,
    quantity: i64,
}

/// Whom a payment or a question is about.
#[derive(Clone, Copy, Debug)]
enum Who {
    Id(i64),
    Name(i64),
}

/// What was drawn for a transaction.
#[derive(Clone, Debug)]
pub struct Input {
    /// Which one.
    pub transaction: Transaction,
    district: i64,
    who: Who,
    /// The customer's own warehouse and district.
    home: (i64, i64),
    amount: i64,
    lines: Vec<Line>,
    /// The last line names an item that there is not.
    unused_item: bool,
}

/// Makes the transactions of one session.
pub struct Transactions<'a> {
    world: &'a World,
    warehouse: i64,
    district: i64,
    random: Random,
    deeds: Vec<Deed>,
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

fn wrong<T>(what: String) -> Result<T> {
    Err(Stopped::Worker(WorkerError::Wrong(what)))
}

impl<'a> Transactions<'a> {
    /// Those of session number `number`: its warehouse is that number modulo all, and its district for stock levels the next.
    #[must_use]
    pub fn new(world: &'a World, number: u32, random: Random) -> Transactions<'a> {
        let number = i64::from(number);
        let (warehouse, district) =
            (number % world.size.warehouses + 1, number / world.size.warehouses % DISTRICTS + 1);
        Transactions { world, warehouse, district, random, deeds: Vec::new() }
    }

    /// The session's random numbers.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// What the last transaction did, once it has been committed.
    #[must_use]
    pub fn deeds(&self) -> &[Deed] {
        &self.deeds
    }

    /// Another warehouse than its own, where there is one.
    fn other_warehouse(&mut self) -> i64 {
        let drawn = uniform(&mut self.random, 1, self.world.size.warehouses - 1);
        drawn + i64::from(drawn >= self.warehouse)
    }

    /// Draws what a transaction is about.
    pub fn draw(&mut self, transaction: Transaction) -> Input {
        let world = self.world;
        let size = &world.size;
        let (mut home, many) = ((self.warehouse, uniform(&mut self.random, 1, DISTRICTS)), size.warehouses > 1);
        let district = match transaction {
            Transaction::StockLevel => self.district,
            _ => home.1,
        };
        let by_name = matches!(transaction, Transaction::Payment | Transaction::OrderStatus);
        let who = if by_name && percent(&mut self.random, 60) {
            Who::Name(world.constants.name(&mut self.random, size))
        } else {
            Who::Id(world.constants.customer(&mut self.random, size))
        };
        // With one warehouse it is that one's customers who pay in another district.
        if transaction == Transaction::Payment && percent(&mut self.random, 15) {
            let warehouse = if many { self.other_warehouse() } else { self.warehouse };
            home = (warehouse, uniform(&mut self.random, 1, DISTRICTS));
        }
        let amount = match transaction {
            Transaction::Payment => uniform(&mut self.random, 100, 500_000),
            Transaction::StockLevel => uniform(&mut self.random, 10, 20),
            _ => uniform(&mut self.random, 1, 10),
        };
        let mut input = Input { transaction, district, who, home, amount, lines: Vec::new(), unused_item: false };
        if transaction == Transaction::NewOrder {
            self.draw_lines(&mut input, many);
        }
        input
    }

    fn draw_lines(&mut self, input: &mut Input, many: bool) {
        let (world, count) = (self.world, uniform(&mut self.random, 5, 15));
        for _ in 0..count {
            let item = world.constants.item(&mut self.random, &world.size);
            let is_remote = many && percent(&mut self.random, 1);
            let supply = if is_remote { self.other_warehouse() } else { self.warehouse };
            input.lines.push(Line { supply, item, quantity: uniform(&mut self.random, 1, 10) });
        }
        input.lines.sort_unstable();
        input.unused_item = percent(&mut self.random, 1);
        if let Some(last) = input.lines.last_mut().filter(|_| input.unused_item) {
            last.item = world.size.items + 1;
        }
    }

    /// Runs a transaction; says whether it was committed, and not rolled back because an item is not there.
    ///
    /// # Errors
    /// `Again` after a deadlock and its like: the caller rolls back and runs it again.
    pub fn run(&mut self, input: &Input, session: &mut dyn Session) -> Result<bool> {
        self.deeds.clear();
        let only_reads = matches!(input.transaction, Transaction::OrderStatus | Transaction::StockLevel);
        session.begin(only_reads)?;
        let goes_on = match input.transaction {
            Transaction::NewOrder => self.new_order(input, session)?,
            Transaction::Payment => self.payment(input, session).map(|()| true)?,
            Transaction::OrderStatus => self.order_status(input, session).map(|()| true)?,
            Transaction::Delivery => self.delivery(input, session).map(|()| true)?,
            Transaction::StockLevel => self.stock_level(input, session).map(|()| true)?,
        };
        if !goes_on {
            session.rollback();
            return Ok(false);
        }
        self.world.begin(&self.deeds);
        match session.commit() {
            Ok(()) => self.world.acknowledge(&self.deeds),
            Err(error) => {
                self.world.take_back(&self.deeds);
                return Err(error.into());
            }
        }
        Ok(true)
    }

    fn place(&self, warehouse: i64, district: i64) -> usize {
        self.world.size.place(warehouse, district).expect("districts are drawn from those that there are")
    }

    /// Some columns of a row that has to be there.
    fn row(&self, session: &mut dyn Session, table: Table, key: Key, columns: &[usize]) -> Result<Row> {
        let mut row = None;
        session.get(table, &[key], columns, &mut |_, cells| row = Some(cells.iter().map(Cell::owned).collect()))?;
        row.map_or_else(|| wrong(format!("{table:?} {key:?} is not there")), Ok)
    }

    /// Changes a row that has to be there.
    fn change(
        &self,
        session: &mut dyn Session,
        table: Table,
        key: Key,
        mut change: impl FnMut(&mut [Cell<'_>]),
    ) -> Result<()> {
        match session.update(table, key, &mut change)? {
            true => Ok(()),
            false => wrong(format!("{table:?} {key:?} is not there to be changed")),
        }
    }

    fn new_order(&mut self, input: &Input, session: &mut dyn Session) -> Result<bool> {
        let (warehouse, district) = (self.warehouse, input.district);
        let Who::Id(customer) = input.who else { return wrong("an order is placed by number".into()) };
        let (mut order, mut of_district) = (0, 0);
        self.change(session, Table::District, key(&[warehouse, district]), |row| {
            (order, of_district) = (row[district::NEXT_ORDER].number(), row[district::TAX].number());
            row[district::NEXT_ORDER] = Cell::Number(order + 1);
        })?;
        let tax = self.row(session, Table::Warehouse, key(&[warehouse]), &[warehouse::TAX])?[0].number() + of_district;
        let columns = [customer::DISCOUNT, customer::LAST, customer::CREDIT];
        let buyer = self.row(session, Table::Customer, key(&[warehouse, district, customer]), &columns)?;
        let is_local = input.lines.iter().all(|line| line.supply == warehouse);
        let mut row: Row = [warehouse, district, order, customer, now()].map(Cell::Number).into();
        row.extend([Cell::Null, (input.lines.len() as i64).into(), i64::from(is_local).into()]);
        session.insert(Table::Orders, &[row])?;
        session.insert(Table::NewOrders, &[[warehouse, district, order].map(Cell::Number).into()])?;
        let mut rows = Vec::new();
        for (number, line) in (1..).zip(&input.lines) {
            let unused = input.unused_item && number == input.lines.len() as i64;
            rows.extend(self.line(session, (district, order, number), *line, unused)?);
        }
        session.insert(Table::OrderLine, &rows)?;
        let sum: i64 = rows.iter().map(|row| row[order_line::AMOUNT].number()).sum();
        std::hint::black_box(sum * (10_000 - buyer[0].number()) / 10_000 * (10_000 + tax) / 10_000);
        // Everything but the line of the unused item was done (clause 2.4.2.3).
        if input.unused_item {
            return Ok(false);
        }
        self.deeds.push(Deed::Ordered { place: self.place(warehouse, district), order });
        Ok(true)
    }

    /// Takes a line's quantity from the stock, and makes its row; none if there is no such item.
    fn line(
        &self,
        session: &mut dyn Session,
        (district, order, number): (i64, i64, i64),
        line: Line,
        unused: bool,
    ) -> Result<Option<Row>> {
        let (mut price, mut item_is_original) = (0, false);
        let columns = [item::PRICE, item::NAME, item::DATA];
        let there = session.get(Table::Item, &[key(&[line.item])], &columns, &mut |_, row| {
            (price, item_is_original) = (row[0].number(), is_original(row[2].text()));
        })?;
        if unused {
            return if there > 0 && self.world.answers { wrong("an unused item is there".into()) } else { Ok(None) };
        }
        if there == 0 {
            return wrong(format!("item {} is not there", line.item));
        }
        let is_remote = line.supply != self.warehouse;
        let mut dist = Vec::new();
        let mut brand = b'G';
        self.change(session, Table::Stock, key(&[line.supply, line.item]), |row| {
            let left = row[stock::QUANTITY].number() - line.quantity;
            row[stock::QUANTITY] = Cell::Number(if left >= 10 { left } else { left + 91 });
            for (column, more) in [(stock::YTD, line.quantity), (stock::ORDERS, 1), (stock::REMOTE, is_remote.into())] {
                row[column] = Cell::Number(row[column].number() + more);
            }
            dist = row[stock::DIST_01 + district as usize - 1].text().to_vec();
            brand = if item_is_original && is_original(row[stock::DATA].text()) { b'B' } else { b'G' };
        })?;
        std::hint::black_box(brand);
        let mut row: Row = [self.warehouse, district, order, number, line.item, line.supply].map(Cell::Number).into();
        row.extend([Cell::Null, line.quantity.into(), (line.quantity * price).into(), dist.into()]);
        Ok(Some(row))
    }

    /// The customer's number: by name the middle one of all with that name, by their first names.
    fn customer(&self, session: &mut dyn Session, input: &Input) -> Result<i64> {
        let (warehouse, district) = input.home;
        let name = match input.who {
            Who::Id(id) => return Ok(id),
            Who::Name(number) => last_name(number),
        };
        let mut ids = Vec::new();
        let prefix = [warehouse.into(), district.into(), name.as_slice().into()];
        session.scan_index(Table::Customer, &prefix, &mut |entry| ids.push(entry[4].number()))?;
        match ids.len() {
            0 => wrong(format!("district {warehouse}/{district} has nobody called {}", String::from_utf8_lossy(&name))),
            count => Ok(ids[count.div_ceil(2) - 1]),
        }
    }

    fn payment(&mut self, input: &Input, session: &mut dyn Session) -> Result<()> {
        let (warehouse, district, amount) = (self.warehouse, input.district, input.amount);
        let (home, home_district) = input.home;
        let (mut name, mut of_district) = (Vec::new(), Vec::new());
        self.change(session, Table::Warehouse, key(&[warehouse]), |row| {
            row[warehouse::YTD] = Cell::Number(row[warehouse::YTD].number() + amount);
            name = row[warehouse::NAME].text().to_vec();
        })?;
        self.change(session, Table::District, key(&[warehouse, district]), |row| {
            row[district::YTD] = Cell::Number(row[district::YTD].number() + amount);
            of_district = row[district::NAME].text().to_vec();
        })?;
        let customer = self.customer(session, input)?;
        self.change(session, Table::Customer, key(&[home, home_district, customer]), |row| {
            let changes = [(customer::BALANCE, -amount), (customer::YTD_PAYMENT, amount), (customer::PAYMENTS, 1)];
            changes.iter().for_each(|(column, more)| row[*column] = Cell::Number(row[*column].number() + more));
            if row[customer::CREDIT].text() == b"BC" {
                let whence = format!("{customer} {home_district} {home} {district} {warehouse} {amount}|");
                let mut data = [whence.as_bytes(), row[customer::DATA].text()].concat();
                data.truncate(DATA_BYTES);
                row[customer::DATA] = data.into();
            }
        })?;
        let hidden = self.world.history_key();
        let numbers = [hidden, customer, home_district, home, district, warehouse, now(), amount];
        let mut row: Row = numbers.map(Cell::Number).into();
        row.push([name.as_slice(), b"    ", &of_district].concat().into());
        session.insert(Table::History, &[row])?;
        self.deeds.push(Deed::Paid { place: self.place(warehouse, district) });
        Ok(())
    }

    fn order_status(&mut self, input: &Input, session: &mut dyn Session) -> Result<()> {
        let (warehouse, district) = input.home;
        let customer = self.customer(session, input)?;
        let columns = [customer::BALANCE, customer::FIRST, customer::MIDDLE, customer::LAST];
        self.row(session, Table::Customer, key(&[warehouse, district, customer]), &columns)?;
        let prefix = [warehouse, district, customer].map(Cell::Number);
        let mut order = None;
        session.last_entry(Table::Orders, &prefix, &mut |entry| order = Some(entry[3].number()))?;
        let Some(order) = order else {
            return wrong(format!("customer {warehouse}/{district}/{customer} has no order"));
        };
        let columns = [orders::DATE, orders::CARRIER, orders::LINES];
        let row = self.row(session, Table::Orders, key(&[warehouse, district, order]), &columns)?;
        let prefix = [warehouse, district, order];
        let (mut lines, mut delivered) = (0, 0);
        let columns =
            [order_line::ITEM, order_line::SUPPLY, order_line::QUANTITY, order_line::AMOUNT, order_line::DELIVERED];
        session.scan(Table::OrderLine, (&prefix, &prefix), &columns, &mut |line| {
            lines += 1;
            delivered += i64::from(!line[4].is_null());
        })?;
        let should_be = if row[1].is_null() { 0 } else { lines };
        if self.world.answers && (lines != row[2].number() || delivered != should_be) {
            return wrong(format!("order {prefix:?}: {lines} lines, {delivered} delivered, of {:?}", row[2]));
        }
        Ok(())
    }

    fn delivery(&mut self, input: &Input, session: &mut dyn Session) -> Result<()> {
        let (warehouse, carrier, date) = (self.warehouse, input.amount, now());
        for district in 1..=DISTRICTS {
            let Some(taken) = session.take_first(Table::NewOrders, &[warehouse, district])? else { continue };
            let order = taken[2];
            let (mut customer, mut lines, mut was_carried) = (0, 0, false);
            self.change(session, Table::Orders, key(&[warehouse, district, order]), |row| {
                (customer, lines) = (row[orders::CUSTOMER].number(), row[orders::LINES].number());
                was_carried = !row[orders::CARRIER].is_null();
                row[orders::CARRIER] = Cell::Number(carrier);
            })?;
            if was_carried && self.world.answers {
                return wrong(format!("order {warehouse}/{district}/{order} is delivered twice"));
            }
            let mut sum = 0;
            for number in 1..=lines {
                self.change(session, Table::OrderLine, key(&[warehouse, district, order, number]), |row| {
                    sum += row[order_line::AMOUNT].number();
                    row[order_line::DELIVERED] = Cell::Number(date);
                })?;
            }
            self.change(session, Table::Customer, key(&[warehouse, district, customer]), |row| {
                row[customer::BALANCE] = Cell::Number(row[customer::BALANCE].number() + sum);
                row[customer::DELIVERIES] = Cell::Number(row[customer::DELIVERIES].number() + 1);
            })?;
            self.deeds.push(Deed::Delivered { place: self.place(warehouse, district) });
        }
        Ok(())
    }

    fn stock_level(&mut self, input: &Input, session: &mut dyn Session) -> Result<()> {
        let (warehouse, district) = (self.warehouse, input.district);
        let row = self.row(session, Table::District, key(&[warehouse, district]), &[district::NEXT_ORDER])?;
        let next = row[0].number();
        let (low, high) = ([warehouse, district, (next - RECENT).max(1)], [warehouse, district, next - 1]);
        let mut items = Vec::new();
        session.scan(Table::OrderLine, (&low, &high), &[order_line::ITEM], &mut |row| items.push(row[0].number()))?;
        items.sort_unstable();
        items.dedup();
        let keys: Vec<Key> = items.iter().map(|item| key(&[warehouse, *item])).collect();
        let mut scarce = 0;
        let there = session.get(Table::Stock, &keys, &[stock::QUANTITY], &mut |_, row| {
            scarce += u64::from(row[0].number() < input.amount);
        })?;
        std::hint::black_box(scarce);
        if there != keys.len() {
            return wrong(format!("warehouse {warehouse} has {there} of {} items", keys.len()));
        }
        Ok(())
    }
}
