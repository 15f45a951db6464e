//! Which savepoints still stand.
//!
//! A savepoint is a position in the write set. Going back to an earlier one ends it, even if the write set has grown past
//! its position again since: it would cut a statement in two.

use txn::write_set::Seq;

/// A place in a transaction to roll back to. Taken by [`Transaction::savepoint`](crate::Transaction::savepoint).
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// let mut tx = db.begin()?;
/// let start = tx.savepoint();
/// tx.put(&fruit, b"quince", b"1")?;
/// tx.rollback_to(start)?;
/// tx.rollback_to(start)?; // as often as needed
/// assert_eq!(tx.get(&fruit, b"quince")?, None);
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    pub(super) at: Seq,
    /// Rollbacks before it was taken.
    after: u64,
}

/// The rollbacks of one transaction.
#[derive(Debug, Default)]
pub(super) struct Rollbacks {
    count: u64,
    /// Number and target of each rollback that no later one went below. Both ascend.
    lowest: Vec<(u64, Seq)>,
}

impl Rollbacks {
    pub(super) fn savepoint(&self, at: Seq) -> Savepoint {
        Savepoint { at, after: self.count }
    }

    /// False if the transaction went back behind it since it was taken.
    pub(super) fn stands(&self, savepoint: Savepoint) -> bool {
        let since = self.lowest.partition_point(|(number, _)| *number < savepoint.after);
        self.lowest.get(since).is_none_or(|(_, target)| *target >= savepoint.at)
    }

    pub(super) fn note(&mut self, target: Seq) {
        while self.lowest.last().is_some_and(|(_, last)| *last >= target) {
            self.lowest.pop();
        }
        self.lowest.push((self.count, target));
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_savepoint_ends_with_a_rollback_behind_it() {
        let mut all = Rollbacks::default();
        let (first, second, third) = (all.savepoint(Seq(1)), all.savepoint(Seq(5)), all.savepoint(Seq(9)));
        all.note(Seq(5));
        assert_eq!([first, second, third].map(|s| all.stands(s)), [true, true, false]);
        let again = all.savepoint(Seq(9));
        all.note(Seq(7));
        assert_eq!([first, second, again].map(|s| all.stands(s)), [true, true, false]);
        let later = all.savepoint(Seq(8));
        all.note(Seq(1));
        assert_eq!([first, second, third, later].map(|s| all.stands(s)), [true, false, false, false]);
        assert_eq!(all.lowest.len(), 1);
        assert!(all.stands(all.savepoint(Seq(20))));
    }
}
