// SPDX-License-Identifier: GPL-2.0-only
//! What a session has written and when, for those who have read ahead.
//!
//! Each write has a number, the moment of it. A batch keeps the moment that it was filled at, and is as good as read anew while its
//! table was not written to since: by none of its handlers in the session, by no cascade, and by nothing that took rows back.

use std::collections::HashMap;

/// A table of the server, whichever of its handlers asks: `database::Counters::table`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableNumber(pub u64);

/// How many writes there were before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

/// The writes of a session. For every table: moment of its last write ≤ now, and it counts if it is behind `all`.
#[derive(Debug, Default)]
pub struct Writes {
    now: Moment,
    /// When last any table may have been written to.
    all: Moment,
    /// When last this one was, if since `all`.
    of: HashMap<TableNumber, Moment>,
}

impl Writes {
    pub fn now(&self) -> Moment {
        self.now
    }

    /// A table is written to, and nothing else by it.
    pub fn one(&mut self, table: TableNumber) {
        self.now.0 += 1;
        self.of.insert(table, self.now);
    }

    /// Any table may be: by a cascade, or because rows are taken back, or read at another moment.
    pub fn any(&mut self) {
        self.now.0 += 1;
        self.all = self.now;
        self.of.clear();
    }

    /// Rows of a table that were read at `then` may be others now.
    pub fn reached(&self, table: TableNumber, then: Moment) -> bool {
        then < self.now && then < self.of.get(&table).copied().unwrap_or(self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_ahead_of_a_table_stands_until_that_table_may_have_been_written_to() {
        let (one, other) = (TableNumber(1), TableNumber(2));
        let mut writes = Writes::default();
        let start = writes.now();
        writes.one(other);
        assert!(!writes.reached(one, start) && writes.reached(other, start) && !writes.reached(other, writes.now()));
        writes.one(one);
        let then = writes.now();
        writes.one(other);
        assert!(writes.reached(one, start) && !writes.reached(one, then), "its own write, and not one behind it");
        writes.any();
        assert!(writes.reached(one, then) && writes.reached(TableNumber(3), then), "tables never named, too");
        let then = writes.now();
        writes.one(one);
        assert!(writes.reached(one, start) && writes.reached(one, then) && !writes.reached(other, then));
        assert!(writes.reached(other, start), "what happened to all is not forgotten behind a write of one");
    }
}
