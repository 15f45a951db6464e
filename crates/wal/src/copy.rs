//! A copy of an open log, for a backup.
//!
//! Steps of one call: (1) the log is made durable to its end; (2) the frames between `from` and there are read from the
//! segment files, as recovery reads them, and written at the same positions, under this life's number, to a segment of
//! their own: those of each life to one, since a life begins behind where the one before it ended; (3) the segments are
//! synced. The next call goes on where this one ended, so that the log may be trimmed behind it while a long backup runs.
//!
//! [`Wal::verify`] reads the same frames and keeps nothing.
//!
//! The caller keeps the log from being trimmed above `from` meanwhile. Appends go on.

use std::path::Path;

use base::{Lsn, Result};
use vfs::Vfs;

use crate::format::SegmentId;
use crate::log::Wal;
use crate::record::RecordRef;
use crate::recovery::read_open;
use crate::relog::Copy;

impl Wal {
    /// Makes everything durable and returns its end, at which a copy may end.
    ///
    /// # Errors
    /// A fault of this log's sync, which poisons.
    pub fn settle(&self) -> Result<Lsn> {
        self.sync_all()?;
        Ok(self.durable())
    }

    /// Copies what lies between `from` and `end` into segments of the log in `to`, the first with `number` (from 1), and tells how many:
    /// one, more if it reaches back over lives, none if nothing lies between.
    ///
    /// `from` is a position to which this log was not trimmed, or the end of the copy before; `end` came from
    /// [`Wal::settle`].
    ///
    /// # Errors
    /// Faults of reading this log or of writing the copy.
    pub fn copy_to(&self, to: &Path, from: Lsn, end: Lsn, number: u64) -> Result<u64> {
        if end <= from {
            return Ok(0);
        }
        let (vfs, dir, database) = self.place();
        let mut next = number;
        let mut create = || {
            let id = SegmentId(next);
            next += 1;
            Copy::create(vfs, &to.join(id.file_name()), (database, self.incarnation(), id), end)
        };
        let (mut copy, mut copied_to) = (None::<Copy>, from);
        read_open(vfs, dir, database, (from, end), &mut |frame| {
            if let Some(mut before) = copy.take_if(|copy| copy.end() != frame.header.first_lsn) {
                before.finish()?;
            }
            let into = match &mut copy {
                Some(copy) => copy,
                None => copy.insert(create()?),
            };
            into.add(frame)?;
            copied_to = into.end();
            Ok(())
        })?;
        copy.map_or(Ok(()), |mut last| last.finish())?;
        if copied_to < end {
            // This life has no record yet.
            let mut blank = create()?;
            blank.continue_at(copied_to);
            blank.finish()?;
        }
        Ok(next - number)
    }

    /// Reads what lies between `from` and the end of what is durable, record by record.
    ///
    /// # Errors
    /// Damage; faults of reading. Neither poisons.
    pub fn verify(&self, from: Lsn, visit: &mut dyn FnMut(RecordRef<'_>) -> Result<()>) -> Result<()> {
        let start = self.0.start;
        // Before its first record this life ends where the one before did.
        let end = if self.durable() == start.first_lsn { start.end } else { self.durable() };
        if end <= from {
            return Ok(());
        }
        let (vfs, dir, database) = self.place();
        read_open(vfs, dir, database, (from, end), &mut |frame| frame.show_records(from, visit))
    }

    fn place(&self) -> (&dyn Vfs, &Path, crate::format::DatabaseId) {
        let (vfs, dir) = self.0.pool.place();
        (vfs, dir, self.0.start.database)
    }
}
