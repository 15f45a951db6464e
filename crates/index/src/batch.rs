//! Sorted entries on their way in ([`Batch`]) and out ([`EntryBatch`]), each in one allocation.

use base::CommitTs;

/// What a commit does to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// The key has this value.
    Put(&'a [u8]),
    /// The key is gone.
    Delete,
}

impl<'a> Op<'a> {
    /// The value; none for a delete.
    #[must_use]
    pub fn value(self) -> Option<&'a [u8]> {
        match self {
            Op::Put(value) => Some(value),
            Op::Delete => None,
        }
    }

    /// Bytes of the value; 0 for a delete.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        match self {
            Op::Put(v) => v.len(),
            Op::Delete => 0,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    key_bytes: u32,
    /// 0 for a delete.
    value_bytes: u32,
    delete: bool,
    fresh: bool,
}

/// Operations of one commit on one index: ascending keys, each once.
///
/// ```
/// use trefoil_index::{BatchBuilder, Op};
/// let mut builder = BatchBuilder::new();
/// builder.push(b"apple", Op::Put(b"red"));
/// builder.push(b"plum", Op::Delete);
/// let batch = builder.finish();
/// assert_eq!((batch.len(), batch.op(0)), (2, Op::Put(b"red")));
/// assert_eq!((batch.find(b"plum"), batch.find(b"pear")), (Ok(1), Err(1)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Builds a [`Batch`].
#[derive(Debug, Default)]
pub struct BatchBuilder(Batch);

impl BatchBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty builder with room for so many operations, and so many bytes of their keys and values.
    #[must_use]
    pub fn with_capacity(operations: usize, bytes: usize) -> Self {
        Self(Batch { bytes: Vec::with_capacity(bytes), places: Vec::with_capacity(operations) })
    }

    /// Appends an operation.
    ///
    /// # Panics
    /// If `key` is not above the last one.
    pub fn push(&mut self, key: &[u8], op: Op<'_>) {
        self.push_as(key, op, false);
    }

    /// Appends a put of a key of which its writer knows that nothing is alive, in the newest committed state and of his own [A15]. A structure may use
    /// that, and whoever passes the operation on may forget it.
    ///
    /// # Panics
    /// If `key` is not above the last one.
    pub fn push_fresh(&mut self, key: &[u8], value: &[u8]) {
        self.push_as(key, Op::Put(value), true);
    }

    fn push_as(&mut self, key: &[u8], op: Op<'_>, fresh: bool) {
        assert!(self.0.last_key().is_none_or(|last| last < key), "keys of a batch ascend");
        let start = self.0.bytes.len();
        self.0.bytes.extend_from_slice(key);
        let (value_bytes, delete) = match op {
            Op::Put(v) => {
                self.0.bytes.extend_from_slice(v);
                (u32::try_from(v.len()).expect("the engine limits values to 4 GiB - 1"), false)
            }
            Op::Delete => (0, true),
        };
        let key_bytes = u32::try_from(key.len()).expect("the engine limits keys to 48 KiB");
        self.0.places.push(Place { start, key_bytes, value_bytes, delete, fresh });
    }

    /// The finished batch.
    #[must_use]
    pub fn finish(self) -> Batch {
        self.0
    }
}

impl Batch {
    /// Number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The `i`-th key.
    #[must_use]
    pub fn key(&self, i: usize) -> &[u8] {
        let p = self.places[i];
        &self.bytes[p.start..p.start + p.key_bytes as usize]
    }

    /// The `i`-th operation.
    #[must_use]
    pub fn op(&self, i: usize) -> Op<'_> {
        let p = self.places[i];
        if p.delete {
            return Op::Delete;
        }
        let start = p.start + p.key_bytes as usize;
        Op::Put(&self.bytes[start..start + p.value_bytes as usize])
    }

    /// True if it was appended by [`BatchBuilder::push_fresh`].
    #[must_use]
    pub fn is_fresh(&self, i: usize) -> bool {
        self.places[i].fresh
    }

    /// All operations, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Op<'_>)> {
        (0..self.len()).map(|i| (self.key(i), self.op(i)))
    }

    /// The place of `key`, or where it would stand.
    ///
    /// # Errors
    /// The place at which `key` could be inserted.
    pub fn find(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        let at = self.partition_point(|k| k < key);
        if at < self.len() && self.key(at) == key { Ok(at) } else { Err(at) }
    }

    /// How many keys, from the first, satisfy `low`, which holds for a prefix of the keys.
    #[must_use]
    pub fn partition_point(&self, mut low: impl FnMut(&[u8]) -> bool) -> usize {
        self.places.partition_point(|p| low(&self.bytes[p.start..p.start + p.key_bytes as usize]))
    }

    fn last_key(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|i| self.key(i))
    }
}

impl AsRef<Batch> for Batch {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Batch {}

impl<'a> FromIterator<(&'a [u8], Op<'a>)> for Batch {
    /// # Panics
    /// If the keys do not ascend.
    fn from_iter<I: IntoIterator<Item = (&'a [u8], Op<'a>)>>(ops: I) -> Self {
        let mut builder = BatchBuilder::new();
        ops.into_iter().for_each(|(key, op)| builder.push(key, op));
        builder.finish()
    }
}

/// An entry copied out of an index.
#[derive(Debug, Clone, Copy)]
struct Copied {
    start: usize,
    ts: CommitTs,
    value_bytes: u32,
    key_bytes: u16,
    /// Bytes between key and value.
    gap: u8,
    tombstone: bool,
}

/// What lies together on a leaf: from the front `key_bytes` of a key behind what all keys of the leaf start with, `gap`
/// bytes that are nobody's, `value_bytes` of the value, and whatever follows.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// All that.
    pub bytes: &'a [u8],
    /// Bytes of the key.
    pub key_bytes: usize,
    /// Bytes between key and value.
    pub gap: u8,
    /// Bytes of the value.
    pub value_bytes: usize,
}

/// Longest [`Prefix`] that is copied without a call.
const PADDED: usize = 16;

/// What the keys of a leaf start with, with room behind it if it is short.
#[derive(Debug, Clone, Copy)]
pub struct Prefix<'a> {
    bytes: &'a [u8],
    padded: [u8; PADDED],
}

impl<'a> Prefix<'a> {
    /// To be made once a leaf.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut padded = [0; PADDED];
        padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self { bytes, padded }
    }
}

/// What [`append`] copies at most to take it off again.
const LONGEST_CHUNK: usize = 128;

/// Appends `from[..n]`. A copy of a length known beforehand is a few instructions, one of any length is a call: so what
/// is short is copied with what follows, which is then taken off.
#[inline(always)]
fn append(to: &mut Vec<u8>, from: &[u8], n: usize) {
    let end = to.len() + n;
    if let Some(chunk) = from.first_chunk::<64>()
        && n <= chunk.len()
    {
        to.extend_from_slice(chunk);
        to.truncate(end);
    } else if let Some(chunk) = from.first_chunk::<LONGEST_CHUNK>()
        && n <= chunk.len()
    {
        to.extend_from_slice(chunk);
        to.truncate(end);
    } else {
        to.extend_from_slice(&from[..n]);
    }
}

fn lengths(key: usize, value: usize) -> (u16, u32) {
    let key = u16::try_from(key).expect("the engine limits keys to 48 KiB");
    (key, u32::try_from(value).expect("the engine limits values to 4 GiB - 1"))
}

/// One call gives out no more than that, and the entry that passes it: about what a thousand rows of a kilobyte take.
const ENOUGH_BYTES: usize = 1 << 20;

/// Entries copied out of an index, in cursor order.
#[derive(Debug, Default)]
pub struct EntryBatch {
    bytes: Vec<u8>,
    entries: Vec<Copied>,
}

impl EntryBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all entries, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Bytes of memory that it has, full or not.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Copied>()
    }

    /// True if a source has given out what one call asks for: so many entries, or a megabyte. Values are as long as they are, and each source of
    /// a merge reads ahead.
    #[must_use]
    #[inline]
    pub fn has_enough(&self, max: usize) -> bool {
        self.entries.len() >= max || self.bytes.len() >= ENOUGH_BYTES
    }

    /// Keeps the entries of which `wanted` is true.
    pub fn retain(&mut self, mut wanted: impl FnMut(&[u8], CommitTs) -> bool) {
        let Self { bytes, entries } = self;
        entries.retain(|e| wanted(&bytes[e.start..e.start + e.key_bytes as usize], e.ts));
    }

    /// Keeps the live entries.
    pub fn drop_tombstones(&mut self) {
        self.entries.retain(|e| !e.tombstone);
    }

    /// Appends a live entry.
    pub fn push(&mut self, key: &[u8], value: &[u8], ts: CommitTs) {
        self.push_any(key, Some(value), ts);
    }

    /// Appends an entry or, with no value, a tombstone (for merging).
    pub fn push_any(&mut self, key: &[u8], value: Option<&[u8]>, ts: CommitTs) {
        self.push_split(&[], key, value, ts);
    }

    /// Appends an entry, or a tombstone, whose key lies in two pieces.
    #[inline]
    pub fn push_split(&mut self, prefix: &[u8], suffix: &[u8], value: Option<&[u8]>, ts: CommitTs) {
        let start = self.bytes.len();
        let key_bytes = prefix.len() + suffix.len();
        let value_bytes = value.map_or(0, <[u8]>::len);
        self.bytes.reserve(key_bytes + value_bytes);
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(suffix);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let (key_bytes, value_bytes) = lengths(key_bytes, value_bytes);
        self.entries.push(Copied { start, key_bytes, value_bytes, ts, gap: 0, tombstone: value.is_none() });
    }

    /// Makes room for so many entries and bytes.
    pub fn reserve(&mut self, entries: usize, bytes: usize) {
        self.entries.reserve(entries);
        self.bytes.reserve(bytes + LONGEST_CHUNK);
    }

    /// Appends a live entry that lies in one piece but for the start of its key.
    ///
    /// # Panics
    /// If the piece is shorter than it says.
    #[inline]
    pub fn push_piece(&mut self, prefix: &Prefix<'_>, piece: Piece<'_>, ts: CommitTs) {
        let start = self.bytes.len();
        let key_bytes = prefix.bytes.len() + piece.key_bytes;
        if prefix.bytes.len() <= PADDED {
            self.bytes.extend_from_slice(&prefix.padded);
            self.bytes.truncate(start + prefix.bytes.len());
        } else {
            self.bytes.extend_from_slice(prefix.bytes);
        }
        append(&mut self.bytes, piece.bytes, piece.key_bytes + usize::from(piece.gap) + piece.value_bytes);
        let (key_bytes, value_bytes) = lengths(key_bytes, piece.value_bytes);
        self.entries.push(Copied { start, key_bytes, value_bytes, ts, gap: piece.gap, tombstone: false });
    }

    /// Appends an entry whose value lies in several pieces, or a tombstone.
    pub fn push_parts<'a>(&mut self, key: &[u8], value: Option<impl IntoIterator<Item = &'a [u8]>>, ts: CommitTs) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let tombstone = value.is_none();
        for part in value.into_iter().flatten() {
            self.bytes.extend_from_slice(part);
        }
        let (key_bytes, value_bytes) = lengths(key.len(), self.bytes.len() - start - key.len());
        self.entries.push(Copied { start, key_bytes, value_bytes, ts, gap: 0, tombstone });
    }

    /// Number of entries.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The `i`-th key.
    #[must_use]
    #[inline]
    pub fn key(&self, i: usize) -> &[u8] {
        let e = self.entries[i];
        &self.bytes[e.start..e.start + usize::from(e.key_bytes)]
    }

    /// The `i`-th value (empty for a tombstone).
    #[must_use]
    #[inline]
    pub fn value(&self, i: usize) -> &[u8] {
        self.entry(i).1
    }

    /// The `i`-th key and value (empty for a tombstone).
    #[must_use]
    #[inline]
    pub fn entry(&self, i: usize) -> (&[u8], &[u8]) {
        let e = &self.entries[i];
        let (key, rest) = self.bytes[e.start..].split_at(usize::from(e.key_bytes));
        (key, &rest[usize::from(e.gap)..][..e.value_bytes as usize])
    }

    /// The `i`-th entry's commit timestamp.
    #[must_use]
    #[inline]
    pub fn ts(&self, i: usize) -> CommitTs {
        self.entries[i].ts
    }

    /// True if the `i`-th entry is a tombstone.
    #[must_use]
    #[inline]
    pub fn is_tombstone(&self, i: usize) -> bool {
        self.entries[i].tombstone
    }

    /// All entries: key, value (none for a tombstone), timestamp.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Option<&[u8]>, CommitTs)> {
        (0..self.len()).map(|i| (self.key(i), (!self.is_tombstone(i)).then(|| self.value(i)), self.ts(i)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_back_what_went_in() {
        let ops: [(&[u8], Op<'_>); 4] =
            [(b"", Op::Put(b"empty key")), (b"a", Op::Put(b"")), (b"b", Op::Delete), (b"b\0", Op::Put(&[7; 300]))];
        let batch: Batch = ops.into_iter().collect();
        assert!(batch.iter().eq(ops));
        assert_eq!(batch.bytes(), 9 + 1 + 1 + 2 + 300);
        assert_eq!(ops.map(|(k, _)| batch.find(k)), [Ok(0), Ok(1), Ok(2), Ok(3)]);
        assert_eq!((batch.find(b"a\0"), batch.find(b"z")), (Err(2), Err(4)));
        assert_eq!(batch.op(1).value_bytes(), 0);
        assert_eq!(batch, batch.clone());
    }

    #[test]
    #[should_panic(expected = "ascend")]
    fn a_key_twice_is_a_bug() {
        let mut b = BatchBuilder::new();
        b.push(b"a", Op::Delete);
        b.push(b"a", Op::Put(b"1"));
    }

    #[test]
    fn an_empty_value_is_no_tombstone() {
        let mut e = EntryBatch::new();
        e.push(b"k", b"", CommitTs(16));
        e.push_any(b"l", None, CommitTs(32));
        e.push_parts(b"m", Some([b"ab".as_slice(), b"", b"c"]), CommitTs(48));
        let all: Vec<_> = e.iter().collect();
        assert_eq!(all[0], (b"k".as_slice(), Some(b"".as_slice()), CommitTs(16)));
        assert_eq!(all[1], (b"l".as_slice(), None, CommitTs(32)));
        assert_eq!(all[2], (b"m".as_slice(), Some(b"abc".as_slice()), CommitTs(48)));
        assert_eq!(e.len(), 3);
        e.clear();
        assert!(e.is_empty());
    }

    /// Of every length about those at which another way of copying begins, and with nothing behind it.
    #[test]
    fn a_piece_is_a_key_and_a_value_whatever_lies_behind_it() {
        let leaf: Vec<u8> = (0..255).collect();
        let mut e = EntryBatch::new();
        let mut pushed = Vec::new();
        for prefix in [0, 1, PADDED - 1, PADDED, PADDED + 1, 40] {
            let start = Prefix::new(&leaf[..prefix]);
            for bytes in (10..20).chain(60..70).chain(120..140).chain([255]) {
                for from in [0, leaf.len() - bytes] {
                    let piece = Piece { bytes: &leaf[from..], key_bytes: 3, gap: 4, value_bytes: bytes - 7 };
                    e.push_piece(&start, piece, CommitTs(bytes as u64));
                    let key = [&leaf[..prefix], &leaf[from..from + 3]].concat();
                    pushed.push((key, leaf[from + 7..from + bytes].to_vec(), CommitTs(bytes as u64)));
                }
            }
        }
        let found = e.iter().map(|(key, value, ts)| (key.to_vec(), value.expect("a put").to_vec(), ts));
        assert!(found.eq(pushed));
    }
}
