//! What is left of a process that was killed in the middle of transactions.
//!
//! 1. [`counts`] of the sound database, before it is closed.
//! 2. Another process opens it and runs [`sessions`], which tell every acknowledged commit in a line on its way out.
//! 3. It is killed; the lines that arrived whole are [`Acknowledged`].
//! 4. The database is opened again and [`check`]ed: the conditions, rows and entries, and that what was acknowledged is
//!    there. Beside that there can be what was under way: a transaction of each session.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use lab_measure::{Clock, Kind, LiveCell, Recorder};
use lab_target::tpcc::{Key, Session, Table, history, key, new_orders, orders};
use lab_target::{Target, TargetError};

use super::check::{conditions, contents};
use super::client;
use super::conditions::Expected;
use super::plan::{DISTRICTS, Plan, Size};
use super::transactions::Transactions;
use super::world::{Counts, Deed, World};
use crate::check::verify;
use crate::random::Random;
use crate::sequence::RunError;
use crate::worker::WorkerError;

/// What the killed process says when its sessions begin.
pub const READY: &str = "ready";
/// Keys of payments of the other process are apart from those of the run.
const LIFE: i64 = 1;

/// What a killed process had acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged {
    /// Its transactions.
    pub transactions: u64,
    /// What they did.
    pub deeds: Vec<Deed>,
}

impl Acknowledged {
    /// Reads lines that arrived whole; a last one without an end is none.
    ///
    /// # Errors
    /// `Failed` if a line makes no sense.
    pub fn parse(text: &str) -> Result<Acknowledged, TargetError> {
        let mut out = Acknowledged::default();
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let strange = || TargetError::Failed(format!("the killed process said `{}`", line.trim_end()));
            let mut words = line.split_whitespace();
            while let Some(word) = words.next() {
                let mut number = || words.next().and_then(|word| word.parse::<usize>().ok()).ok_or_else(strange);
                out.deeds.push(match word {
                    "o" => Deed::Ordered { place: number()?, order: number()? as i64 },
                    "d" => Deed::Delivered { place: number()? },
                    "p" => Deed::Paid { place: number()? },
                    _ => return Err(strange()),
                });
            }
            out.transactions += 1;
        }
        Ok(out)
    }

    /// Orders among them.
    #[must_use]
    pub fn orders(&self) -> Vec<Key> {
        let order = |deed: &Deed| match deed {
            Deed::Ordered { place, order } => {
                let place = *place as i64;
                Some(key(&[place / DISTRICTS + 1, place % DISTRICTS + 1, *order]))
            }
            _ => None,
        };
        self.deeds.iter().filter_map(order).collect()
    }
}

fn line_of(deeds: &[Deed]) -> String {
    let word = |deed: &Deed| match deed {
        Deed::Ordered { place, order } => format!("o {place} {order} "),
        Deed::Delivered { place } => format!("d {place} "),
        Deed::Paid { place } => format!("p {place} "),
    };
    deeds.iter().map(word).chain(["\n".to_owned()]).collect()
}

/// What was done since the load, as the tables have it.
///
/// # Errors
/// Those of the engine.
pub fn counts(target: &dyn Target, plan: &Plan) -> Result<Counts, TargetError> {
    let tables = target.tpcc()?;
    tables.attach()?;
    let mut session = tables.session()?;
    let size = plan.size();
    session.begin(true)?;
    let ordered = rows_by_district(session.as_mut(), &size, Table::Orders, [orders::WAREHOUSE, orders::DISTRICT])?;
    let waiting =
        rows_by_district(session.as_mut(), &size, Table::NewOrders, [new_orders::WAREHOUSE, new_orders::DISTRICT])?;
    let paid = rows_by_district(session.as_mut(), &size, Table::History, [history::WAREHOUSE, history::DISTRICT])?;
    session.commit()?;
    let less = |counts: Vec<u64>, loaded: i64| counts.into_iter().map(|count| count - loaded as u64).collect();
    let delivered = ordered.iter().zip(&waiting).map(|(all, waiting)| all - waiting).collect();
    Ok(Counts {
        delivered: less(delivered, size.delivered()),
        ordered: less(ordered, size.customers),
        paid: less(paid, size.customers),
    })
}

fn rows_by_district(
    session: &mut dyn Session,
    size: &Size,
    table: Table,
    columns: [usize; 2],
) -> Result<Vec<u64>, TargetError> {
    let mut out = vec![0; (size.warehouses * DISTRICTS) as usize];
    session.scan(table, (&[], &[]), &columns, &mut |row| {
        if let Some(place) = size.place(row[0].number(), row[1].number()) {
            out[place] += 1;
        }
    })?;
    Ok(out)
}

/// Runs transactions on a database that has the tables, until the process ends, and tells what was acknowledged.
///
/// # Errors
/// Why it could not go on.
pub fn sessions(target: &dyn Target, plan: &Plan, clients: u32, out: impl Write + Send) -> Result<(), RunError> {
    let tables = target.tpcc()?;
    tables.attach()?;
    let world = World::new(plan.size(), plan.seed, true, LIFE);
    let (clock, stop, out) = (Clock::start(), AtomicBool::new(false), Mutex::new(out));
    let say = |line: &str| {
        let mut out = out.lock().expect("no thread panics while it writes a line");
        let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| WorkerError::Failed(format!("nobody listens: {error}")))
    };
    say(&format!("{READY}\n"))?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|number| {
                let (tables, world, clock, stop, say) = (&tables, &world, &clock, &stop, &say);
                scope.spawn(move || -> Result<(), RunError> {
                    let mut session = tables.session()?;
                    let random = Random::new(plan.seed, 0x6b69_0000_0000_0000 | u64::from(number));
                    let recorder = Recorder::new(Kind::Query, LiveCell::default().into(), 0);
                    let transactions = Transactions::new(world, number, random);
                    let told = |deeds: &[Deed]| say(&line_of(deeds));
                    client::run(transactions, session.as_mut(), clock, (recorder, 0), stop, &told)?;
                    Ok(())
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(), RunError>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<()>, RunError>>().map(|_| ())
    })
}

/// Looks at a database that was opened again after its process was killed. `may_lose` is for a durability that does not
/// promise to survive that.
///
/// # Errors
/// `Violated` names what is wrong.
pub fn check(
    target: &dyn Target,
    plan: &Plan,
    (before, acknowledged): (&Counts, &Acknowledged),
    (clients, may_lose): (u32, bool),
) -> Result<(), RunError> {
    let tables = target.tpcc()?;
    tables.attach()?;
    let mut session = tables.session()?;
    let mut all = before.clone();
    acknowledged.deeds.iter().for_each(|deed| all.add(*deed));
    let begun = all.plus(clients.into());
    let expected = Expected { done: if may_lose { before.clone() } else { all }, begun };
    let after = |error: RunError| match error {
        RunError::Violated(what) => RunError::Violated(format!("after the process was killed: {what}")),
        other => other,
    };
    conditions(session.as_mut(), plan.size(), &expected).map_err(after)?;
    contents(session.as_mut(), plan.size()).map_err(after)?;
    let orders = acknowledged.orders();
    session.begin(true)?;
    let there = session.get(Table::Orders, &orders, &[orders::ID], &mut |_, _| ())?;
    session.commit()?;
    if !may_lose && there != orders.len() {
        let what = format!("{there} of {} acknowledged orders are there", orders.len());
        return Err(after(RunError::Violated(what)));
    }
    drop(session);
    verify(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_again_and_half_a_line_is_none() {
        let deeds = [Deed::Ordered { place: 13, order: 3_001 }, Deed::Delivered { place: 2 }, Deed::Paid { place: 0 }];
        let text = line_of(&deeds) + &line_of(&[]) + "o 1";
        let read = Acknowledged::parse(&text).unwrap();
        assert_eq!((read.transactions, read.deeds.as_slice()), (2, &deeds[..]));
        assert_eq!(read.orders(), [[2, 4, 3_001, 0]]);
        assert!(Acknowledged::parse("x 1\n").is_err() && Acknowledged::parse("o 1\n").is_err());
    }
}
