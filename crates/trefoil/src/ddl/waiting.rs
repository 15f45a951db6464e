//! Whom a change of a table's definition waits for: nobody else waits meanwhile.
//!
//! 1. **Other changes of the same table**: it takes its turn ([`Turn`](crate::gate::Turn)), and keeps it to its end. Whatever
//!    is read of the definition from there on stays so; a table that was dropped or renamed meanwhile is found to be so.
//! 2. **Writers**, if it cannot go beside them: its gate is closed, and those inside leave. For one that is prepared, which may
//!    take days, it is not kept closed: that would keep every other writer of the table out. Nor is it for good for others: it is
//!    opened for a moment after a second, after two more, after four, and so on, until less would be left than the next of these.
//!    Of several tables all are closed and opened together. Schedule: T1 is inside, T2 comes to the closed gate, T1 waits for T2,
//!    for a row or because T2 commits first on a replica; nobody knows of that ring, and it ends when T2 is let in.
//! 3. **The step in the catalog**, a commit: one at a time in the whole database ([`Steps`](crate::gate::Steps)). A backup holds
//!    steps up for long: a gate is opened again until it is over.
//!
//! 1 and 2 take as long as [`ChangeOptions`] say. Each wait looks every [`LOOK`] whether the change is still wanted.
//!
//! Who wants to write meanwhile waits at the gate ([`WaitForChange`]), or for a parent whose name is about to be that of another
//! table: as long as for a row.

use std::sync::Arc;
use std::time::Duration;

use txn::locks::{Canceller, WaitNews};
use vfs::time::Instant;

use crate::engine::Engine;
use crate::entry::TableEntry;
use crate::error::{Error, Result};
use crate::gate::{GateClosed, Step, Taken};
use crate::options::ChangeOptions;

/// How often who waits looks whether he still should. As long is a gate closed while a prepared transaction is inside.
pub const LOOK: Duration = Duration::from_millis(50);

/// And as long it is open in between, unless that is decided.
const OPEN: Duration = Duration::from_secs(1);

/// For so long at first is a gate closed for writers that do not leave. It gets longer, so that it is closed for as long as the
/// longest of them takes in the end.
const CLOSED: Duration = Duration::from_secs(1);

/// The wait of one change.
pub struct Wait<'a> {
    options: &'a ChangeOptions,
    timeout: Duration,
    began: Instant,
}

impl<'a> Wait<'a> {
    /// It begins now.
    pub fn new(options: &'a ChangeOptions, or_timeout: Duration) -> Self {
        Self { options, timeout: options.lock_timeout.unwrap_or(or_timeout), began: Instant::now() }
    }

    /// Another one of the same change.
    pub fn again(&self) -> Self {
        Self { began: Instant::now(), ..*self }
    }

    /// What the change was asked for with.
    pub fn options(&self) -> &ChangeOptions {
        self.options
    }

    /// For so long it may still last.
    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.began.elapsed())
    }

    /// True once it has lasted as long as it may.
    pub fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// How long to wait before the next look, however long it has lasted; an error if it is not wanted any more.
    pub fn look(&self) -> Result<Duration> {
        self.options.check().map(|()| LOOK)
    }

    /// The same, and an error if it has lasted as long as it may.
    pub(super) fn look_in_time(&self, why: impl FnOnce() -> Error) -> Result<Duration> {
        self.options.check()?;
        let left = self.left();
        if left.is_zero() { Err(why()) } else { Ok(left.min(LOOK)) }
    }

    /// It has lasted too long.
    pub fn timeout(&self, table: &TableEntry, what: &str) -> Error {
        let waited_ms = self.timeout.as_millis() as u64;
        Error::LockTimeout { index: table.name().to_owned(), key: what.to_owned(), waited_ms }
    }
}

/// The other side: the wait of a transaction for a change of a definition. What ends its waits for rows ends this one: its time
/// limit, and who cancels it.
pub struct WaitForChange {
    engine: Arc<Engine>,
    canceller: Canceller,
    timeout: Duration,
    began: Instant,
}

impl WaitForChange {
    /// It begins now.
    pub fn new(engine: &Arc<Engine>, canceller: Canceller, timeout: Duration) -> Self {
        engine.locks.tell(WaitNews::Begins);
        Self { engine: engine.clone(), canceller, timeout, began: Instant::now() }
    }

    /// How long to wait for the table of this name before the next look, or why no longer.
    pub fn look(&self, table: &str) -> Result<Duration> {
        self.engine.check_open()?;
        if self.canceller.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let left = self.timeout.saturating_sub(self.began.elapsed());
        if left.is_zero() {
            let (key, waited_ms) = ("(the whole table, which is being changed)", self.timeout.as_millis() as u64);
            return Err(Error::LockTimeout { index: table.to_owned(), key: key.to_owned(), waited_ms });
        }
        Ok(left.min(LOOK))
    }
}

impl Drop for WaitForChange {
    fn drop(&mut self) {
        self.engine.locks.tell(WaitNews::Ends);
    }
}

impl Engine {
    /// 1.
    pub fn turn_of(&self, table: &TableEntry, wait: &Wait<'_>) -> Result<Taken> {
        let wait = wait.again();
        let why = || wait.timeout(table, "(the whole table, whose definition is being changed)");
        table.changes.take(|| wait.look_in_time(why))
    }

    /// 1, with the table that has this name by then.
    pub fn turn_at(&self, name: &str, wait: &Wait<'_>) -> Result<(Arc<TableEntry>, Taken)> {
        loop {
            let table = self.table_named(name)?;
            let turn = self.turn_of(&table, wait)?;
            if self.table_named(name)?.id == table.id {
                return Ok((table, turn));
            }
        }
    }

    /// 2 and 3: the table's gate is closed, nobody is inside, and the catalog may be changed.
    pub fn step_alone<'a>(
        &'a self,
        table: &'a TableEntry,
        why: &str,
        wait: &Wait<'_>,
    ) -> Result<(Vec<GateClosed<'a>>, Step<'a>)> {
        self.step_alone_in(&[(table, why)], wait)
    }

    /// The same of several tables, each with what is said of the wait for its writers. None of them is closed while another one is
    /// opened for a moment, nor while the catalog is kept: who waits there would still be kept out, and so a ring would be.
    pub fn step_alone_in<'a>(
        &'a self,
        tables: &[(&'a TableEntry, &str)],
        wait: &Wait<'_>,
    ) -> Result<(Vec<GateClosed<'a>>, Step<'a>)> {
        loop {
            let closed = self.close_gates(tables, &wait.again())?;
            if let Some(step) = self.steps.take_unless_kept() {
                return Ok((closed, step));
            }
            drop(closed);
            drop(self.steps.take(|| wait.look())?);
        }
    }

    /// 1 and 2, and no change: whoever has written to it is done.
    pub fn wait_for_writers(&self, table: &TableEntry, wait: &Wait<'_>) -> Result<()> {
        self.check_open()?;
        let _turn = self.turn_of(table, wait)?;
        self.close_gates(&[(table, "(the whole table, to be read as it will stay)")], wait).map(drop)
    }

    /// 2, of all these tables at once: each time they are closed one behind the other, and opened together.
    fn close_gates<'a>(&self, tables: &[(&'a TableEntry, &str)], wait: &Wait<'_>) -> Result<Vec<GateClosed<'a>>> {
        let prepared = || tables.iter().try_for_each(|(table, _)| self.check_unprepared(table.name(), table.id));
        let mut closed_for = CLOSED;
        loop {
            let opened = Instant::now();
            while let Err(held) = prepared()
                && opened.elapsed() < OPEN
            {
                vfs::thread::sleep(wait.look_in_time(|| held)?);
            }
            let closing = Instant::now();
            // Less would be left behind it than the next time takes: then it is this one's, at least half of the whole wait.
            if closed_for > CLOSED && wait.left() < closed_for * 3 {
                closed_for = wait.left();
            }
            let mut opens = false;
            let close = |&(table, why): &(&'a TableEntry, &str)| {
                table.gate.close(|| match prepared() {
                    Err(held) if closing.elapsed() >= LOOK => Err(held),
                    Ok(()) if closing.elapsed() >= closed_for => {
                        opens = true;
                        Err(wait.timeout(table, why))
                    }
                    held => wait.look_in_time(|| held.err().unwrap_or_else(|| wait.timeout(table, why))),
                })
            };
            let closed: Result<Vec<_>> = tables.iter().map(close).collect();
            match closed {
                Err(Error::HeldByPrepared { .. }) if !wait.is_over() => {}
                Err(late) if opens => {
                    vfs::thread::sleep(wait.look_in_time(|| late)?);
                    closed_for *= 2;
                }
                done => return done,
            }
        }
    }
}
