//! The twelve consistency conditions (clause 3.3.2), looked at in one snapshot, whoever writes meanwhile. All that do not
//! hold are named, because what breaks one often breaks others.
//!
//! For warehouse `w` and district `d`:
//! 1. W_YTD = sum of D_YTD
//! 2. D_NEXT_O_ID - 1 = largest O_ID = largest NO_O_ID, the last where the district has new orders
//! 3. largest NO_O_ID - smallest NO_O_ID + 1 = new orders of `d`
//! 4. sum of O_OL_CNT = order lines of `d`
//! 5. an order has no carrier exactly if it is among the new orders
//! 6. O_OL_CNT of an order = its lines
//! 7. a line has no delivery date exactly if its order has no carrier
//! 8. W_YTD = sum of H_AMOUNT of `w`
//! 9. D_YTD = sum of H_AMOUNT of `d`
//! 10. C_BALANCE = sum of OL_AMOUNT of delivered lines - sum of H_AMOUNT of the customer
//! 11. orders - new orders of `d` = those that the load delivers, and deliveries since
//! 12. C_BALANCE + C_YTD_PAYMENT = sum of OL_AMOUNT of delivered lines of the customer
//!
//! Beside them: orders, deliveries and payments since the load are as many as were acknowledged, and no more than were
//! begun; in 11 that is part of the condition. And what a warehouse's stock says was ordered of it since the load (quantity,
//! lines, lines of others) is what the lines say: none of the twelve sees a change of the stock that is lost.

use std::ops::RangeInclusive;

use lab_target::TargetError;
use lab_target::tpcc::{Session, Table, customer, district, history, new_orders, order_line, orders, stock, warehouse};

use super::plan::{DISTRICTS, Size};
use super::world::Counts;

/// What was done since the load: at least this, at most that.
#[derive(Clone, Debug)]
pub struct Expected {
    /// At least.
    pub done: Counts,
    /// At most.
    pub begun: Counts,
}

impl Expected {
    /// Exactly this.
    #[must_use]
    pub fn exactly(counts: Counts) -> Expected {
        Expected { done: counts.clone(), begun: counts }
    }
}

/// What does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The condition; 0 for what was acknowledged and is not there.
    pub condition: u32,
    /// Where it was first seen, and what is there.
    pub text: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.condition {
            0 => formatter.write_str(&self.text),
            condition => write!(formatter, "condition {condition}: {}", self.text),
        }
    }
}

/// Looks at the conditions within the transaction that `session` has begun.
///
/// # Errors
/// Those of the engine.
pub fn broken(session: &mut dyn Session, size: Size, expected: &Expected) -> Result<Vec<Broken>, TargetError> {
    let mut checker = Checker { size, expected, broken: Vec::new(), sums: Sums::new(size) };
    checker.read_history(session)?;
    checker.warehouses(session)?;
    for place in 0..checker.sums.districts.len() {
        checker.district(session, place)?;
    }
    checker.stock(session)?;
    checker.broken.sort_by_key(|broken| broken.condition);
    Ok(checker.broken)
}

/// A district as its own row has it, and what payments say.
#[derive(Clone, Copy, Debug, Default)]
struct District {
    ytd: i64,
    next: i64,
    paid: i64,
    payments: u64,
}

struct Sums {
    districts: Vec<District>,
    /// What each customer paid, district by district.
    customers: Vec<i64>,
    /// By warehouse of the payment, whatever its district.
    warehouses: Vec<i64>,
    /// By warehouse that supplies: quantity, lines and lines of other warehouses since the load.
    supplied: Vec<[i64; 3]>,
}

impl Sums {
    fn new(size: Size) -> Sums {
        let districts = (size.warehouses * DISTRICTS) as usize;
        Sums {
            districts: vec![District::default(); districts],
            customers: vec![0; districts * size.customers as usize],
            warehouses: vec![0; size.warehouses as usize],
            supplied: vec![[0; 3]; size.warehouses as usize],
        }
    }
}

struct Order {
    id: i64,
    customer: i64,
    carried: bool,
    lines: i64,
    /// Lines that were found.
    found: i64,
}

struct Checker<'e> {
    size: Size,
    expected: &'e Expected,
    broken: Vec<Broken>,
    sums: Sums,
}

impl Checker<'_> {
    /// Notes a condition once, where it was first seen.
    fn expect(&mut self, holds: bool, condition: u32, text: impl FnOnce() -> String) {
        if !holds && self.broken.iter().all(|broken| broken.condition != condition) {
            self.broken.push(Broken { condition, text: text() });
        }
    }

    fn customer_at(&self, place: usize, id: i64) -> Option<usize> {
        let there = (1..=self.size.customers).contains(&id);
        there.then(|| place * self.size.customers as usize + (id - 1) as usize)
    }

    fn read_history(&mut self, session: &mut dyn Session) -> Result<(), TargetError> {
        let columns = [
            history::WAREHOUSE,
            history::DISTRICT,
            history::AMOUNT,
            history::CUSTOMER_WAREHOUSE,
            history::CUSTOMER_DISTRICT,
            history::CUSTOMER,
        ];
        session.scan(Table::History, (&[], &[]), &columns, &mut |row| {
            let [warehouse, district, amount, of_warehouse, of_district, customer] =
                std::array::from_fn(|place| row[place].number());
            if let Some(sum) = self.sums.warehouses.get_mut((warehouse - 1) as usize) {
                *sum += amount;
            }
            if let Some(place) = self.size.place(warehouse, district) {
                self.sums.districts[place].paid += amount;
                self.sums.districts[place].payments += 1;
            }
            let of = self.size.place(of_warehouse, of_district);
            if let Some(customer) = of.and_then(|place| self.customer_at(place, customer)) {
                self.sums.customers[customer] += amount;
            }
        })
    }

    /// Conditions 1, 8 and 9.
    fn warehouses(&mut self, session: &mut dyn Session) -> Result<(), TargetError> {
        let mut ytd = vec![None; self.size.warehouses as usize];
        session.scan(Table::Warehouse, (&[], &[]), &[warehouse::ID, warehouse::YTD], &mut |row| {
            if let Some(place) = ytd.get_mut((row[0].number() - 1) as usize) {
                *place = Some(row[1].number());
            }
        })?;
        let (size, columns) = (self.size, [district::WAREHOUSE, district::ID, district::YTD, district::NEXT_ORDER]);
        session.scan(Table::District, (&[], &[]), &columns, &mut |row| {
            if let Some(place) = size.place(row[0].number(), row[1].number()) {
                let district = &mut self.sums.districts[place];
                (district.ytd, district.next) = (row[2].number(), row[3].number());
            }
        })?;
        for (place, ytd) in ytd.into_iter().enumerate() {
            let id = place + 1;
            let of_districts: i64 = self
                .sums
                .districts
                .iter()
                .skip(place * DISTRICTS as usize)
                .take(DISTRICTS as usize)
                .map(|d| d.ytd)
                .sum();
            let paid = self.sums.warehouses[place];
            self.expect(ytd == Some(of_districts), 1, || {
                format!("warehouse {id}: {ytd:?}, its districts {of_districts}")
            });
            self.expect(ytd == Some(paid), 8, || format!("warehouse {id}: {ytd:?}, its payments {paid}"));
        }
        for (place, (warehouse, id)) in size.districts().enumerate() {
            let District { ytd, paid, .. } = self.sums.districts[place];
            self.expect(ytd == paid, 9, || format!("district {warehouse}/{id}: {ytd}, its payments {paid}"));
        }
        Ok(())
    }

    fn district(&mut self, session: &mut dyn Session, place: usize) -> Result<(), TargetError> {
        let (warehouse, id) = (place as i64 / DISTRICTS + 1, place as i64 % DISTRICTS + 1);
        let name = format!("district {warehouse}/{id}");
        let prefix = [warehouse, id];
        let mut queue = Vec::new();
        session.scan(Table::NewOrders, (&prefix, &prefix), &[new_orders::ORDER], &mut |row| {
            queue.push(row[0].number());
        })?;
        let mut all: Vec<Order> = Vec::new();
        let columns = [orders::ID, orders::CUSTOMER, orders::CARRIER, orders::LINES];
        session.scan(Table::Orders, (&prefix, &prefix), &columns, &mut |row| {
            let (id, customer, lines) = (row[0].number(), row[1].number(), row[3].number());
            all.push(Order { id, customer, carried: !row[2].is_null(), lines, found: 0 });
        })?;
        self.numbers(place, &name, &all, &queue);
        let delivered = self.lines(session, &prefix, &name, &mut all)?;
        self.customers(session, place, &name, &delivered)
    }

    /// Conditions 2, 3, 5 and 11, and what was acknowledged.
    fn numbers(&mut self, place: usize, name: &str, all: &[Order], queue: &[i64]) {
        let District { next, payments, .. } = self.sums.districts[place];
        let (last, last_new) = (all.last().map_or(0, |order| order.id), queue.last().copied());
        self.expect(next - 1 == last && last_new.is_none_or(|new| new == last), 2, || {
            format!("{name}: next order {next}, last order {last}, last new order {last_new:?}")
        });
        let span = queue.first().map_or(0, |first| queue[queue.len() - 1] - first + 1);
        self.expect(span == queue.len() as i64, 3, || format!("{name}: {} new orders over {span}", queue.len()));
        let waiting: Vec<i64> = all.iter().filter(|order| !order.carried).map(|order| order.id).collect();
        self.expect(waiting == queue, 5, || {
            let odd =
                waiting.iter().find(|id| !queue.contains(id)).or_else(|| queue.iter().find(|id| !waiting.contains(id)));
            format!("{name}: order {odd:?}")
        });
        let (done, begun) = (&self.expected.done, &self.expected.begun);
        let range = |of: fn(&Counts) -> &Vec<u64>, loaded: i64| -> RangeInclusive<u64> {
            of(done)[place] + loaded as u64..=of(begun)[place] + loaded as u64
        };
        let delivered = range(|counts| &counts.delivered, self.size.delivered());
        let ordered = range(|counts| &counts.ordered, self.size.customers);
        let paid = range(|counts| &counts.paid, self.size.customers);
        let count = (all.len() as u64).wrapping_sub(queue.len() as u64);
        self.expect(delivered.contains(&count), 11, || format!("{name}: {count} delivered, should be {delivered:?}"));
        let count = all.len() as u64;
        self.expect(ordered.contains(&count), 0, || format!("{name}: {count} orders, should be {ordered:?}"));
        self.expect(paid.contains(&payments), 0, || format!("{name}: {payments} payments, should be {paid:?}"));
    }

    /// Conditions 4, 6 and 7. Returns what was delivered to each customer.
    fn lines(
        &mut self,
        session: &mut dyn Session,
        prefix: &[i64],
        name: &str,
        all: &mut [Order],
    ) -> Result<Vec<i64>, TargetError> {
        let mut delivered = vec![0; self.size.customers as usize];
        let (mut count, mut at, mut stray, mut undated) = (0, 0, None, None);
        let (loaded, supplied) = (self.size.customers, &mut self.sums.supplied);
        let columns =
            [order_line::ORDER, order_line::DELIVERED, order_line::AMOUNT, order_line::SUPPLY, order_line::QUANTITY];
        session.scan(Table::OrderLine, (prefix, prefix), &columns, &mut |row| {
            let (id, is_delivered) = (row[0].number(), !row[1].is_null());
            count += 1;
            let supplier = row[3].number();
            if let Some(sums) = supplied.get_mut((supplier - 1) as usize).filter(|_| id > loaded) {
                *sums = add(*sums, [row[4].number(), 1, i64::from(supplier != prefix[0])]);
            }
            while all.get(at).is_some_and(|order| order.id < id) {
                at += 1;
            }
            let Some(order) = all.get_mut(at).filter(|order| order.id == id) else {
                stray.get_or_insert(id);
                return;
            };
            order.found += 1;
            if is_delivered != order.carried {
                undated.get_or_insert(id);
            }
            if let Some(sum) = delivered.get_mut((order.customer - 1) as usize).filter(|_| is_delivered) {
                *sum += row[2].number();
            }
        })?;
        let told: i64 = all.iter().map(|order| order.lines).sum();
        self.expect(told == count, 4, || format!("{name}: {count} lines, its orders say {told}"));
        let odd = all.iter().find(|order| order.lines != order.found).map(|order| order.id).or(stray);
        self.expect(odd.is_none(), 6, || format!("{name}: order {odd:?}"));
        self.expect(undated.is_none(), 7, || format!("{name}: order {undated:?}"));
        Ok(delivered)
    }

    /// What was ordered of each warehouse.
    fn stock(&mut self, session: &mut dyn Session) -> Result<(), TargetError> {
        let mut told = vec![[0; 3]; self.size.warehouses as usize];
        let columns = [stock::WAREHOUSE, stock::YTD, stock::ORDERS, stock::REMOTE];
        session.scan(Table::Stock, (&[], &[]), &columns, &mut |row| {
            if let Some(sums) = told.get_mut((row[0].number() - 1) as usize) {
                *sums = add(*sums, [row[1].number(), row[2].number(), row[3].number()]);
            }
        })?;
        for (place, told) in told.into_iter().enumerate() {
            let (warehouse, supplied) = (place + 1, self.sums.supplied[place]);
            self.expect(told == supplied, 0, || {
                format!("stock of warehouse {warehouse}: {told:?} ordered, by the lines {supplied:?}")
            });
        }
        Ok(())
    }

    /// Conditions 10 and 12.
    fn customers(
        &mut self,
        session: &mut dyn Session,
        place: usize,
        name: &str,
        delivered: &[i64],
    ) -> Result<(), TargetError> {
        let (warehouse, id) = (place as i64 / DISTRICTS + 1, place as i64 % DISTRICTS + 1);
        let prefix = [warehouse, id];
        let mut all = Vec::new();
        let columns = [customer::ID, customer::BALANCE, customer::YTD_PAYMENT];
        session.scan(Table::Customer, (&prefix, &prefix), &columns, &mut |row| {
            all.push([row[0].number(), row[1].number(), row[2].number()]);
        })?;
        for (id, delivered) in (1..).zip(delivered) {
            let paid = self.customer_at(place, id).map_or(0, |at| self.sums.customers[at]);
            let found = all.get(id as usize - 1).copied().filter(|row| row[0] == id);
            let balance = found.map(|row| row[1]);
            self.expect(balance == Some(delivered - paid), 10, || {
                format!("{name}, customer {id}: {balance:?}, delivered {delivered}, paid {paid}")
            });
            let both = found.map(|row| row[1] + row[2]);
            self.expect(both == Some(*delivered), 12, || {
                format!("{name}, customer {id}: balance and payments {both:?}, delivered {delivered}")
            });
        }
        Ok(())
    }
}

fn add(one: [i64; 3], other: [i64; 3]) -> [i64; 3] {
    std::array::from_fn(|place| one[place] + other[place])
}
