//! A leaf as portable bytes, and back.
//!
//! Layout in `docs/formats/node.md`. Keys are coded as what they share with the key before and the rest,
//! timestamps relative to the smallest one, in units of the largest power of two that divides all differences
//! (log positions are multiples of 16). An image knows its own key prefix but not its fences: it stays valid while
//! splits shrink them, and decoding trims to the fences of today [A8]. The decoded page strips a prefix that is
//! no shorter than the image's, so it never needs more bytes than the encoded one.
//!
//! A long image is cut into basements, so that a point read decompresses one of them; its front says where they begin
//! (`basement`).
//!
//! Decoding trusts nothing: lengths, order, kinds, counts and room are checked; memory is taken only for bytes that
//! are there.

use std::sync::Arc;

use base::CommitTs;
use base::bytes::{Reader, printable, put_bytes, put_varint};
use store::{BlockRef, Frame};

use super::basement::{Basement, Directory, DirectoryWriter};
use super::chain::Chain;
use super::descriptor::{put_refs, read_refs};
use super::key::common_prefix_bytes;
use super::leaf::Leaf;
use super::page::{Kind, NewEntry};
use super::side::OverflowValue;
use super::{max_inline_bytes, max_key_bytes};

/// Format of a leaf image without basements.
const LEAF_FORMAT: u8 = 1;
/// The same with basements.
const LEAF_FORMAT_BASEMENTS: u8 = 2;
/// Bit of the kind byte: an older version of the key before.
const OLDER_BIT: u8 = 4;
/// Largest unit of timestamps, as a power of two.
const UNIT_MAX: u32 = 32;

impl Leaf {
    /// Appends the portable image, without basements.
    ///
    /// # Panics
    /// If something is [`Self::unwritten`], or a chain was not installed.
    pub fn encode_image(&self, out: &mut Vec<u8>) {
        self.encode_basements(usize::MAX, out);
    }

    /// Appends the portable image. A basement ends with the key behind which it has `basement_bytes`, at least one. Returns
    /// where the image is to be cut so that its front and each basement are alone: nowhere if there is one basement.
    ///
    /// # Panics
    /// As [`Self::encode_image`].
    pub fn encode_basements(&self, basement_bytes: usize, out: &mut Vec<u8>) -> Vec<usize> {
        assert!(self.side.is_stored(), "what is beside the page is written first");
        let (base, unit) = self.timestamp_base();
        let start = out.len();
        out.push(LEAF_FORMAT);
        put_varint(out, self.max_ts.0);
        put_varint(out, base.0);
        out.push(unit as u8);
        put_bytes(out, &self.prefix);
        put_varint(out, self.page.len() as u64);
        put_varint(out, u64::from(self.entries));
        put_varint(out, u64::from(self.live));
        let front_bytes = out.len() - start;
        let mut directory = DirectoryWriter::new(out.len());
        let mut last: &[u8] = &[];
        for i in 0..self.page.len() {
            let slot = self.page.slot(i);
            let is_due = !slot.is_older() && directory.basement_bytes(out.len()) >= basement_bytes.max(1);
            if is_due {
                last = self.page.suffix(slot);
                directory.begin(i, out.len(), last);
            }
            let older = if slot.is_older() { OLDER_BIT } else { 0 };
            out.push(slot.kind() as u8 | older);
            // The first key of a basement is in the directory.
            if !slot.is_older() && !is_due {
                let suffix = self.page.suffix(slot);
                let shared = common_prefix_bytes(last, suffix);
                put_varint(out, shared as u64);
                put_bytes(out, &suffix[shared..]);
                last = suffix;
            }
            if slot.kind() != Kind::Chain {
                put_varint(out, (self.page.ts(slot).0 - base.0) >> unit);
            }
            match slot.kind() {
                Kind::Put => put_bytes(out, self.page.value(slot)),
                Kind::Tombstone => {}
                Kind::Overflow => {
                    let value = self.overflow(self.page.side_id(slot));
                    put_varint(out, value.len_bytes());
                    put_refs(out, value.stored().expect("checked above"));
                }
                Kind::Chain => {
                    let chain = self.side.chain(self.page.side_id(slot));
                    put_varint(out, u64::from(chain.len()));
                    put_varint(out, chain.stored_bytes);
                    put_refs(out, chain.stored.as_ref().expect("checked above"));
                }
            }
        }
        if directory.is_empty() {
            return Vec::new();
        }
        out[start] = LEAF_FORMAT_BASEMENTS;
        directory.insert(out, front_bytes)
    }

    /// The smallest timestamp in the page, and the unit of the differences to it as a power of two.
    fn timestamp_base(&self) -> (CommitTs, u32) {
        let versions = || (0..self.page.len()).map(|i| self.page.slot(i)).filter(|s| s.kind() != Kind::Chain);
        let base = versions().map(|s| self.page.ts(s)).min().unwrap_or(CommitTs::ZERO);
        let bits = versions().fold(0, |bits, s| bits | (self.page.ts(s).0 - base.0));
        (base, bits.trailing_zeros().min(UNIT_MAX))
    }

    /// A leaf for `[lo, hi)` from an image whose fences were these or wider; entries outside are trimmed [A8]. Every
    /// length and the order are checked.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the bytes.
    pub fn decode_image(bytes: &[u8], lo: &[u8], hi: Option<&[u8]>, frame: impl Into<Frame>) -> Result<Leaf, String> {
        let mut leaf = Leaf::new(frame, lo, hi);
        let node_bytes = leaf.node_bytes();
        let front = Front::read(bytes).ok_or("leaf image: the header does not hold")?;
        let mut decoder = Decoder::whole(&front, bytes);
        if decoder.key.len() > leaf.prefix.len() {
            // Every key of the image starts with its prefix, every key that stays also with the fences' prefix.
            leaf.prefix = decoder.key.as_slice().into();
        }
        let mut place = Place::Below;
        for i in 0..front.slots {
            // Matched, not mapped: moving the entry through a chain of options costs more than decoding it.
            let Some(entry) = decoder.entry() else { return Err(format!("leaf image: entry {i} does not hold")) };
            if let Some(what) = decoder.check_order(&entry) {
                return Err(format!("leaf image: entry {i}: {what}"));
            }
            let key = &decoder.key;
            if key.len() > max_key_bytes(node_bytes) {
                return Err(format!("leaf image: entry {i}: a key of {} bytes", key.len()));
            }
            let inline_max = max_inline_bytes(node_bytes, key.len());
            if matches!(entry.content, Content::Put(value) if value.len() > inline_max) {
                return Err(format!("leaf image: entry {i}: a value of more than {inline_max} bytes inside the page"));
            }
            if !entry.older {
                place.follow(&decoder, lo, hi);
            }
            debug_assert_eq!(leaf.covers(key), place.is_inside());
            if place.is_inside() && !leaf.push_decoded(key, &entry) {
                return Err(format!("leaf image: no room from key {} on", printable(key)));
            }
        }
        if !decoder.reader.is_empty() {
            return Err(format!("leaf image: {} bytes too many", decoder.reader.rest().len()));
        }
        if u32::try_from(decoder.counted_entries).is_err() {
            return Err(format!("leaf image: {} entries", decoder.counted_entries));
        }
        if (decoder.counted_entries, decoder.counted_live) != (front.entries, front.live) {
            return Err(format!(
                "leaf image: {} entries and {} live keys, expected {} and {}",
                decoder.counted_entries, decoder.counted_live, front.entries, front.live
            ));
        }
        if leaf.is_empty() {
            leaf.prefix = lo[..leaf.fence_prefix_bytes()].into();
        }
        leaf.max_ts = front.max_ts;
        leaf.recount();
        Ok(leaf)
    }

    fn push_decoded(&mut self, key: &[u8], entry: &Decoded<'_>) -> bool {
        let number;
        let value: &[u8] = match &entry.content {
            Content::Put(value) => value,
            Content::Tombstone => &[],
            Content::Overflow(bytes, refs) => {
                let value = OverflowValue::stored_only(*bytes, refs.clone());
                number = self.side.add_value(value).to_le_bytes();
                &number
            }
            Content::Chain(members, bytes, refs) => {
                number = self.side.add_chain(Chain::cold(*members, *bytes, refs.clone())).to_le_bytes();
                &number
            }
        };
        let suffix = &key[self.prefix.len()..];
        self.page.push(&NewEntry { kind: entry.kind, older: entry.older, front: &[], suffix, ts: entry.ts, value })
    }
}

pub(super) enum Content<'a> {
    Put(&'a [u8]),
    Tombstone,
    Overflow(u64, Arc<[BlockRef]>),
    Chain(u32, u64, Arc<[BlockRef]>),
}

pub(super) struct Decoded<'a> {
    kind: Kind,
    pub(super) older: bool,
    pub(super) ts: CommitTs,
    pub(super) content: Content<'a>,
}

/// Where the key last read lies. Keys ascend, so this moves on and never back.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// Below the lower fence.
    Below,
    /// Within the fences, with this many bytes in common with the upper one.
    Inside(usize),
    /// At or above the upper fence.
    Above,
}

impl Place {
    pub(super) fn is_inside(self) -> bool {
        matches!(self, Place::Inside(_))
    }

    /// Takes in the next key. Inside, the key before agrees with `hi` in `common` bytes and then is smaller. The
    /// new key, which rose at byte `shared`, is thus above `hi` if it rose earlier than there, below if later.
    #[inline]
    pub(super) fn follow(&mut self, decoder: &Decoder<'_>, lo: &[u8], hi: Option<&[u8]>) {
        let key = &decoder.key[..];
        *self = match (*self, hi) {
            (Place::Below, _) if key < lo => Place::Below,
            (Place::Below, None) => Place::Inside(0),
            (Place::Below, Some(hi)) if key < hi => Place::Inside(common_prefix_bytes(key, hi)),
            (Place::Inside(_), None) => Place::Inside(0),
            (Place::Inside(common), Some(_)) if decoder.shared > common => Place::Inside(common),
            (Place::Inside(common), Some(hi)) if decoder.shared == common && *decoder.rest < hi[common..] => {
                Place::Inside(common + common_prefix_bytes(decoder.rest, &hi[common..]))
            }
            _ => Place::Above,
        };
    }
}

/// What an image says before its entries.
pub(super) struct Front<'a> {
    max_ts: CommitTs,
    base: CommitTs,
    unit: u32,
    pub(super) prefix: &'a [u8],
    pub(super) slots: u64,
    entries: u64,
    live: u64,
    /// The basements behind the first.
    pub(super) directory: Directory<'a>,
    /// Bytes of all this.
    pub(super) bytes: usize,
}

impl<'a> Front<'a> {
    /// Of an image, or of the front of one.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let has_basements = match reader.u8()? {
            LEAF_FORMAT => false,
            LEAF_FORMAT_BASEMENTS => true,
            _ => return None,
        };
        let max_ts = CommitTs(reader.varint()?);
        let base = CommitTs(reader.varint()?);
        let unit = u32::from(reader.u8()?);
        let prefix = reader.bytes()?;
        let (slots, entries, live) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let directory = if has_basements { Directory::read(&mut reader, slots)? } else { Directory::default() };
        let bytes = bytes.len() - reader.rest().len();
        let holds = unit <= UNIT_MAX && prefix.len() <= base::limits::KEY_BYTES_MAX;
        holds.then_some(Self { max_ts, base, unit, prefix, slots, entries, live, directory, bytes })
    }
}

/// What was read so far.
pub(super) struct Decoder<'a> {
    pub(super) reader: Reader<'a>,
    max_ts: CommitTs,
    base: CommitTs,
    unit: u32,
    prefix_bytes: usize,
    /// The whole key of the entry before, the image's prefix included.
    pub(super) key: Vec<u8>,
    /// False until the first entry.
    started: bool,
    /// The key rose with the entry just read.
    rose: bool,
    /// The key is the first `shared` bytes of the one before, and `rest`.
    shared: usize,
    rest: &'a [u8],
    last_ts: CommitTs,
    last_kind: Kind,
    counted_entries: u64,
    counted_live: u64,
    /// The slot of the next entry.
    slot: u64,
    /// The basement that begins next; one beyond all slots if none does.
    next: Basement<'a>,
    /// Those behind it.
    directory: Directory<'a>,
    /// Where the reader's bytes end among those of all entries.
    end: usize,
}

impl<'a> Decoder<'a> {
    /// Of all entries of an image.
    fn whole(front: &Front<'a>, image: &'a [u8]) -> Self {
        let mut directory = front.directory;
        let next = directory.next().unwrap_or(Basement::NONE);
        Self::new(front, 0, next, directory, &image[front.bytes..])
    }

    /// Of the entries of one basement.
    pub(super) fn of_basement(front: &Front<'a>, basement: Basement<'a>, bytes: &'a [u8]) -> Self {
        // Of the first one the key stands with the entry.
        let begins = if basement.offset > 0 { basement } else { Basement::NONE };
        let mut decoder = Self::new(front, basement.slot, begins, Directory::default(), bytes);
        decoder.end += basement.offset;
        decoder
    }

    fn new(front: &Front<'a>, slot: u64, next: Basement<'a>, directory: Directory<'a>, bytes: &'a [u8]) -> Self {
        Decoder {
            reader: Reader::new(bytes),
            max_ts: front.max_ts,
            base: front.base,
            unit: front.unit,
            prefix_bytes: front.prefix.len(),
            key: front.prefix.to_vec(),
            started: false,
            rose: false,
            shared: 0,
            rest: &[],
            last_ts: CommitTs::ZERO,
            last_kind: Kind::Put,
            counted_entries: 0,
            counted_live: 0,
            slot,
            next,
            directory,
            end: bytes.len(),
        }
    }

    /// Where a basement begins, behind the first byte of its first entry: the key, as one that follows the key before.
    #[cold]
    fn begin_basement(&mut self) -> Option<(usize, &'a [u8])> {
        let (basement, next) = (self.next, self.directory.next().unwrap_or(Basement::NONE));
        self.next = next;
        let shared = if self.started { common_prefix_bytes(&self.key[self.prefix_bytes..], basement.key) } else { 0 };
        let is_here = self.end - self.reader.rest().len() - 1 == basement.offset;
        is_here.then_some((self.prefix_bytes + shared, &basement.key[shared..]))
    }

    #[inline(always)]
    /// Reads the next entry; its key is in `self.key` afterwards.
    pub(super) fn entry(&mut self) -> Option<Decoded<'a>> {
        let bits = self.reader.u8()?;
        if bits & !(OLDER_BIT | 3) != 0 {
            return None;
        }
        let (kind, older) = (Kind::from_bits(u64::from(bits)), bits & OLDER_BIT != 0);
        let begins = self.slot == self.next.slot;
        if older && (begins || !self.started) {
            return None;
        }
        if !older {
            let (shared, rest) = if begins {
                self.begin_basement()?
            } else {
                (self.prefix_bytes.checked_add(self.reader.length()?)?, self.reader.bytes()?)
            };
            if shared > self.key.len() {
                return None;
            }
            // Shared is all that is shared, so the next byte decides; and `Place` relies on it.
            self.rose = !self.started || rest.first() > self.key.get(shared);
            (self.shared, self.rest) = (shared, rest);
            self.key.truncate(shared);
            self.key.extend_from_slice(rest);
            self.started = true;
        }
        self.slot += 1;
        let r = &mut self.reader;
        let ts = match kind {
            Kind::Chain => CommitTs::ZERO,
            _ => {
                let units = r.varint()?;
                let delta = units.checked_mul(1 << self.unit)?;
                CommitTs(self.base.0.checked_add(delta)?)
            }
        };
        let content = match kind {
            Kind::Put => Content::Put(r.bytes()?),
            Kind::Tombstone => Content::Tombstone,
            Kind::Overflow => Content::Overflow(r.varint()?, read_refs(r)?),
            Kind::Chain => {
                let members = u32::try_from(r.varint()?).ok().filter(|n| *n > 0)?;
                Content::Chain(members, r.varint()?, read_refs(r)?)
            }
        };
        Some(Decoded { kind, older, ts, content })
    }

    /// Counts the entry; says what is wrong with it after the one before.
    #[inline]
    pub(super) fn check_order(&mut self, entry: &Decoded<'_>) -> Option<&'static str> {
        let first_of_key = !entry.older;
        if first_of_key && !self.rose {
            return Some("keys do not ascend");
        }
        if entry.kind == Kind::Chain {
            if first_of_key || self.last_kind == Kind::Chain {
                return Some("a chain without newer versions");
            }
        } else {
            if entry.older && (entry.ts >= self.last_ts || self.last_kind == Kind::Chain) {
                return Some("versions do not descend");
            }
            if entry.ts > self.max_ts {
                return Some("a timestamp above the highest");
            }
        }
        self.last_ts = entry.ts;
        self.last_kind = entry.kind;
        self.counted_entries += match entry.content {
            Content::Chain(members, ..) => u64::from(members),
            _ => 1,
        };
        self.counted_live += u64::from(first_of_key && entry.kind != Kind::Tombstone);
        None
    }
}
