//! Tables that all sessions share, with one transaction at a time.
//!
//! A session that begins waits until nobody is in a transaction; a statement by itself is one. What a transaction changes it
//! notes, so that a rollback can put it back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use super::{Parameters, Planted};
use crate::api::{Result, TargetError};

/// The tables of a run.
#[derive(Debug)]
pub(super) struct Shared<T> {
    parameters: Parameters,
    tables: Mutex<T>,
    /// Whether somebody is in a transaction. Read and changed under the latch of `tables`: relaxed.
    taken: AtomicBool,
    /// `taken` was cleared.
    free: Condvar,
}

impl<T: Default> Shared<T> {
    pub(super) fn new(parameters: Parameters) -> Shared<T> {
        Shared { parameters, tables: Mutex::default(), taken: AtomicBool::new(false), free: Condvar::new() }
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, T> {
        self.tables.lock().expect("no thread panics while it holds the tables")
    }

    pub(super) fn turns(&self) -> Turns<'_, T> {
        Turns { all: self, fault: self.parameters.fault, inside: false, undo: Vec::new(), statements: 0 }
    }
}

type Undo<T> = Box<dyn FnOnce(&mut T) + Send>;

/// The transactions of a session.
pub(super) struct Turns<'a, T: Default> {
    all: &'a Shared<T>,
    pub(super) fault: Option<Planted>,
    /// In a transaction that was begun.
    inside: bool,
    /// What takes back each change of the transaction.
    undo: Vec<Undo<T>>,
    statements: u64,
}

impl<'a, T: Default> Turns<'a, T> {
    /// The tables, with nobody else in a transaction.
    pub(super) fn alone(&self) -> MutexGuard<'a, T> {
        let waits = |_: &mut T| !self.inside && self.all.taken.load(Ordering::Relaxed);
        self.all.free.wait_while(self.all.tables(), waits).expect("no thread panics while it holds the tables")
    }

    pub(super) fn begin(&mut self) -> Result<()> {
        if self.inside {
            return Err(TargetError::Failed("model: a transaction was begun already".into()));
        }
        let _alone = self.alone();
        self.all.taken.store(true, Ordering::Relaxed);
        self.inside = true;
        Ok(())
    }

    /// A change was made, which `undo` takes back.
    pub(super) fn note(&mut self, undo: impl FnOnce(&mut T) + Send + 'static) {
        if self.inside {
            self.undo.push(Box::new(undo));
        }
    }

    pub(super) fn end(&mut self, put_back: bool) {
        if !self.inside {
            return;
        }
        let mut tables = self.all.tables();
        self.undo.drain(..).rev().filter(|_| put_back).for_each(|undo| undo(&mut tables));
        self.all.taken.store(false, Ordering::Relaxed);
        self.inside = false;
        self.all.free.notify_all();
    }

    /// A statement that may pause or panic, if that is planted.
    pub(super) fn mischief(&mut self) {
        self.all.parameters.mischief(&mut self.statements);
    }

    /// A change that may be refused besides: one of so many.
    pub(super) fn may_conflict(&mut self, every: u64) -> Result<()> {
        self.mischief();
        if self.fault == Some(Planted::Conflict) && self.statements.is_multiple_of(every) {
            return Err(TargetError::Retry("model: planted conflict".into()));
        }
        Ok(())
    }
}

impl<T: Default> Drop for Turns<'_, T> {
    fn drop(&mut self) {
        // A thread that panicked in a transaction lets the others go on to their end.
        if !self.all.tables.is_poisoned() {
            self.end(true);
        }
    }
}
