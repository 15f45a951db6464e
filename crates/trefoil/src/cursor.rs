//! Reading in order: what a snapshot sees, with a transaction's own writes on top.
//!
//! The structure's cursor copies entries out a batch at a time (16 at first, then twice as many up to 1024,
//! so that a short range does not pay for a long one). On equal keys the own write wins. The transaction is borrowed, so its
//! writes do not change under the cursor; a deadlock that another cursor meets may end it, and then this one ends with an
//! error.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use base::Fault;
use index::damaged::just_above;
use index::{DamagedRange, Direction, ReadAt, Skips, Span, ThreadBatch};

use crate::entry::IndexEntry;
use crate::error::Result;
use crate::transaction::Outside;

mod locking;
mod own;

pub(crate) use locking::LockingScan;
pub(crate) use own::OwnWrites;

const FILL_FIRST: usize = 16;
const FILL_MAX: usize = 1024;

/// Keys and values in key order, ascending or descending. It reads as of when it was made, with the
/// transaction's own writes on top; while it lives, the transaction is borrowed. Entries are lent, not copied:
/// each is good until the next step.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
/// # let mut tx = db.begin()?;
/// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
/// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
/// # }
/// # tx.commit()?;
/// let tx = db.begin()?;
/// let mut cursor = tx.range(&fruit, b"b".as_slice()..)?;
/// assert_eq!(cursor.next()?, Some((&b"pear"[..], &b"7"[..])));
/// assert_eq!(cursor.collect()?, [(b"plum".to_vec(), b"30".to_vec())]); // the rest
/// # Ok::<(), trefoil::Error>(())
/// ```
pub struct Cursor<'a> {
    direction: Direction,
    stored: Box<dyn index::Cursor>,
    batch: ThreadBatch,
    /// The next entry of `batch`.
    position: usize,
    /// Entries to ask for next.
    fill: usize,
    more: bool,
    own: Option<OwnWrites<'a>>,
    /// Entries come from here, locked; then nothing is asked of `stored`.
    locking: Option<Box<LockingScan<'a>>>,
    /// Holds the snapshot of a statement that has one of its own.
    _slot: Option<txn::SnapshotSlot>,
    /// Keeps a dropped index from being freed. The snapshot alone does not: one taken after the drop took effect
    /// and before the handle knew of it is not older than the drop.
    entry: Arc<IndexEntry>,
    /// Where the entry returned last lies.
    current: Source,
    /// Damage is passed over.
    skips: Option<Skips>,
    skipped: Vec<DamagedRange>,
}

#[derive(Clone, Copy)]
enum Source {
    /// Before `position`.
    Stored,
    Own,
    Locked,
}

impl<'a> Cursor<'a> {
    /// Reads `entry`, merged with the transaction's writes in the same range, if there are any.
    pub(crate) fn new(
        entry: &Arc<IndexEntry>,
        at: ReadAt,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        slot: Option<txn::SnapshotSlot>,
        own: Option<OwnWrites<'a>>,
        direction: Direction,
    ) -> Self {
        Self {
            direction,
            stored: entry.index.cursor(at, range, direction),
            batch: ThreadBatch::default(),
            position: 0,
            fill: FILL_FIRST,
            more: true,
            own,
            locking: None,
            _slot: slot,
            entry: entry.clone(),
            current: Source::Stored,
            skips: None,
            skipped: Vec::new(),
        }
    }

    /// Leaves out what is stored in these ranges; own writes are not stored.
    pub(crate) fn outside(self, at: ReadAt, range: (Bound<&[u8]>, Bound<&[u8]>), spans: Vec<Span>) -> Self {
        if spans.is_empty() {
            return self;
        }
        let stored = Box::new(Outside::new(&self.entry, at, range, self.direction, spans));
        Self { stored, ..self }
    }

    /// Reads what `scan` locks.
    pub(crate) fn locking(scan: LockingScan<'a>) -> Self {
        let nothing = (Bound::Included([].as_slice()), Bound::Excluded([].as_slice()));
        let entry = scan.entry().clone();
        let empty = Self::new(&entry, ReadAt::Newest, nothing, None, None, Direction::Forward);
        Self { more: false, locking: Some(Box::new(scan)), ..empty }
    }

    /// What cannot be read is passed over from now on instead of being an error, and listed in [`Cursor::skipped`]: a leaf, all
    /// below an inner node, a large value. Where something is missing, only entries that are known to be the newest are
    /// given out: in a database that is opened read-only those that its log holds. Where it is changes that cannot be read,
    /// of a Bε-tree, entries are given out as they were without them; the range says so (`is_incomplete`). For salvage.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let snapshot = db.snapshot()?;
    /// let mut all = snapshot.range(&fruit, ..)?.skip_damaged();
    /// while let Some((key, _value)) = all.next()? {
    ///     println!("{key:?}");
    /// }
    /// assert!(all.skipped().is_empty()); // nothing is damaged here
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn skip_damaged(mut self) -> Self {
        let skips = Skips::default();
        self.stored.skip_damaged(skips.clone());
        self.skips = Some(skips);
        self
    }

    pub(crate) fn show_locked(mut self) -> Self {
        if let Some(scan) = &mut self.locking {
            scan.show_locked();
        }
        self
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.locking.as_ref().is_some_and(|scan| scan.is_shown())
    }

    pub(crate) fn is_skipping(&self) -> bool {
        self.skips.is_some()
    }

    /// The entry is not what it should be: it was passed over.
    pub(crate) fn pass_entry(&mut self, fault: Fault) -> Result<()> {
        let key = self.entry().0;
        let range = DamagedRange::met(fault, self.entry.id(), key, Some(&just_above(key)))?;
        self.skipped.push(range);
        Ok(())
    }

    /// The ranges of keys passed over so far, in the order met. Empty without [`Cursor::skip_damaged`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// let snapshot = db.snapshot()?;
    /// let mut all = snapshot.range(&fruit, ..)?.skip_damaged();
    /// while all.next()?.is_some() {}
    /// for range in all.skipped() {
    ///     eprintln!("from {:?} on: {}", range.low, range.damage);
    /// }
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn skipped(&self) -> &[DamagedRange] {
        &self.skipped
    }

    /// Says how many entries will be read, 1 to 1024: that many are fetched at once. Without it, 16 at first, then
    /// twice as many each time. Under locks that many are locked at once, as far as nobody else has them; one by one where
    /// what is not wanted is unlocked again ([`Transaction::unlock_row`](crate::Transaction::unlock_row)).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut first = tx.range(&fruit, ..)?.expect(1); // the smallest key, and nothing fetched beyond it
    /// assert_eq!(first.next()?.map(|(key, _)| key), Some(&b"apple"[..]));
    /// assert!(first.next()?.is_some()); // it is a hint, not a limit
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn expect(mut self, entries: usize) -> Self {
        self.fill = entries.clamp(1, FILL_MAX);
        if let Some(scan) = &mut self.locking {
            scan.expect(entries);
        }
        self
    }

    /// Moves to the next entry. False at the end.
    ///
    /// # Errors
    /// What reading blocks can meet: I/O errors and corruption.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut cursor = tx.range(&fruit, ..)?;
    /// let mut bytes = 0;
    /// while cursor.advance()? {
    ///     bytes += cursor.entry().1.len();
    /// }
    /// assert_eq!(bytes, "12".len() + "7".len() + "30".len());
    /// assert!(!cursor.advance()?); // the end stays the end
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[inline(always)]
    pub fn advance(&mut self) -> Result<bool> {
        if self.position < self.batch.len() && self.own.is_none() {
            self.current = Source::Stored;
            self.position += 1;
            return Ok(true);
        }
        self.fill_or_merge()
    }

    /// [`Cursor::advance`], where entries must be fetched first, or compared with the transaction's own writes.
    #[inline(never)]
    fn fill_or_merge(&mut self) -> Result<bool> {
        if let Some(scan) = &mut self.locking {
            self.current = Source::Locked;
            return scan.advance();
        }
        loop {
            while self.position == self.batch.len() && self.more {
                let filled = self.stored.fill(&mut self.batch, self.fill);
                self.more = self.entry.read(filled)?;
                if let Some(skips) = &self.skips {
                    self.skipped.extend(skips.take());
                }
                self.position = 0;
                self.fill = (self.fill * 2).min(FILL_MAX);
            }
            let stored = (self.position < self.batch.len()).then(|| self.batch.key(self.position));
            let own = match &mut self.own {
                Some(own) => own.peek()?,
                None => None,
            };
            let order = match (own, stored) {
                (Some(own), Some(key)) => match self.direction {
                    Direction::Forward => own.cmp(key),
                    Direction::Backward => key.cmp(own),
                },
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Ok(false),
            };
            if order.is_ge() {
                self.current = Source::Stored;
                self.position += 1;
            }
            match &mut self.own {
                // On equal keys the own write wins.
                Some(own) if order.is_le() => {
                    let below = order.is_eq().then(|| self.batch.entry(self.position - 1).1);
                    if own.take(below) {
                        self.current = Source::Own;
                        return Ok(true);
                    }
                }
                _ => return Ok(true),
            }
        }
    }

    /// Key and value that [`Cursor::advance`] has moved to; only after it has answered true.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut last = tx.range_back(&fruit, ..)?;
    /// assert!(last.advance()?);
    /// let (key, value) = last.entry();
    /// assert_eq!((key, value), (&b"plum"[..], &b"30"[..]));
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    #[inline(always)]
    pub fn entry(&self) -> (&[u8], &[u8]) {
        match self.current {
            Source::Stored => self.batch.entry(self.position - 1),
            Source::Own => self.own.as_ref().expect("an own write was returned").last(),
            Source::Locked => self.locking.as_ref().expect("a locked entry was returned").current(),
        }
    }

    /// Moves to the next entry and returns its key and value; none at the end.
    ///
    /// # Errors
    /// As [`Cursor::advance`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let tx = db.begin()?;
    /// let mut cursor = tx.range(&fruit, ..=b"pear".as_slice())?;
    /// let mut names = Vec::new();
    /// while let Some((key, _value)) = cursor.next()? {
    ///     names.push(String::from_utf8_lossy(key).into_owned());
    /// }
    /// assert_eq!(names, ["apple", "pear"]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[allow(clippy::should_implement_trait)] // A lending iterator: the entry borrows the cursor.
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(if self.advance()? { Some(self.entry()) } else { None })
    }

    /// The rest as owned pairs of key and value: all of them in memory, so for short ranges.
    ///
    /// # Errors
    /// As [`Cursor::advance`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// let below = db.begin()?.range_back(&fruit, ..b"plum".as_slice())?.collect()?;
    /// let keys: Vec<&[u8]> = below.iter().map(|(key, _)| key.as_slice()).collect();
    /// assert_eq!(keys, [&b"pear"[..], b"apple"]);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn collect(mut self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        while let Some((key, value)) = self.next()? {
            all.push((key.to_vec(), value.to_vec()));
        }
        Ok(all)
    }
}
