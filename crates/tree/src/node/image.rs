//! A leaf as portable bytes, and back.
//!
//! Layout in `docs/formats/node.md`. Keys are coded as what they share with the key before and the rest,
//! timestamps relative to the smallest one, in units of the largest power of two that divides all differences
//! (log positions are multiples of 16). An image knows its own key prefix but not its fences: it stays valid while
//! splits shrink them, and decoding trims to the fences of today [A8]. The decoded page strips a prefix that is
//! no shorter than the image's, so it never needs more bytes than the encoded one.
//!
//! Decoding trusts nothing: lengths, order, kinds, counts and room are checked; memory is taken only for bytes that
//! are there.

use std::sync::Arc;

use base::CommitTs;
use base::bytes::{Reader, printable, put_bytes, put_varint};
use store::{BlockRef, Frame};

use super::chain::Chain;
use super::descriptor::{put_refs, read_refs};
use super::key::common_prefix_bytes;
use super::leaf::Leaf;
use super::page::{Kind, NewEntry};
use super::side::OverflowValue;
use super::{max_inline_bytes, max_key_bytes};

/// Format of a leaf image.
const LEAF_FORMAT: u8 = 1;
/// Bit of the kind byte: an older version of the key before.
const OLDER_BIT: u8 = 4;
/// Largest unit of timestamps, as a power of two.
const UNIT_MAX: u32 = 32;

impl Leaf {
    /// Appends the portable image.
    ///
    /// # Panics
    /// If something is [`Self::unwritten`], or a chain was not installed.
    pub fn encode_image(&self, out: &mut Vec<u8>) {
        assert!(self.side.is_stored(), "what is beside the page is written first");
        let (base, unit) = self.timestamp_base();
        out.push(LEAF_FORMAT);
        put_varint(out, self.max_ts.0);
        put_varint(out, base.0);
        out.push(unit as u8);
        put_bytes(out, &self.prefix);
        put_varint(out, self.page.len() as u64);
        put_varint(out, u64::from(self.entries));
        put_varint(out, u64::from(self.live));
        let mut last: &[u8] = &[];
        for i in 0..self.page.len() {
            let slot = self.page.slot(i);
            let older = if slot.is_older() { OLDER_BIT } else { 0 };
            out.push(slot.kind() as u8 | older);
            if !slot.is_older() {
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
        let mut decoder = Decoder::start(bytes).ok_or("leaf image: the header does not hold")?;
        if decoder.key.len() > leaf.prefix.len() {
            // Every key of the image starts with its prefix, every key that stays also with the fences' prefix.
            leaf.prefix = decoder.key.as_slice().into();
        }
        let mut place = Place::Below;
        for i in 0..decoder.slots {
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
        if (decoder.counted_entries, decoder.counted_live) != (decoder.entries, decoder.live) {
            return Err(format!(
                "leaf image: {} entries and {} live keys, expected {} and {}",
                decoder.counted_entries, decoder.counted_live, decoder.entries, decoder.live
            ));
        }
        if leaf.is_empty() {
            leaf.prefix = lo[..leaf.fence_prefix_bytes()].into();
        }
        leaf.max_ts = decoder.max_ts;
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

/// What an image says of a key.
pub(crate) enum ImageLookup<'a> {
    /// The newest version that is visible: its value, none for a tombstone.
    Version(CommitTs, Option<&'a [u8]>),
    Absent,
    /// What is visible lies beside the image, or may.
    Beside,
}

/// The newest version of `key` at or below `limit`, without making a page of the image. The order is checked as far as it is read.
///
/// # Errors
/// A sentence that says what is wrong with the bytes.
pub(crate) fn look_up_in_image<'a>(bytes: &'a [u8], key: &[u8], limit: CommitTs) -> Result<ImageLookup<'a>, String> {
    let mut decoder = Decoder::start(bytes).ok_or("leaf image: the header does not hold")?;
    let (mut place, mut is_at_key) = (Place::Below, false);
    for i in 0..decoder.slots {
        let Some(entry) = decoder.entry() else { return Err(format!("leaf image: entry {i} does not hold")) };
        if let Some(what) = decoder.check_order(&entry) {
            return Err(format!("leaf image: entry {i}: {what}"));
        }
        if !entry.older {
            if is_at_key {
                break;
            }
            place.follow(&decoder, &[], Some(key));
            is_at_key = !place.is_inside() && decoder.key == key;
            if !place.is_inside() && !is_at_key {
                break;
            }
        }
        match entry.content {
            _ if !is_at_key => {}
            Content::Chain(..) => return Ok(ImageLookup::Beside),
            _ if entry.ts > limit => {}
            Content::Put(value) => return Ok(ImageLookup::Version(entry.ts, Some(value))),
            Content::Tombstone => return Ok(ImageLookup::Version(entry.ts, None)),
            Content::Overflow(..) => return Ok(ImageLookup::Beside),
        }
    }
    Ok(ImageLookup::Absent)
}

enum Content<'a> {
    Put(&'a [u8]),
    Tombstone,
    Overflow(u64, Arc<[BlockRef]>),
    Chain(u32, u64, Arc<[BlockRef]>),
}

struct Decoded<'a> {
    kind: Kind,
    older: bool,
    ts: CommitTs,
    content: Content<'a>,
}

/// Where the key last read lies. Keys ascend, so this moves on and never back.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Below the lower fence.
    Below,
    /// Within the fences, with this many bytes in common with the upper one.
    Inside(usize),
    /// At or above the upper fence.
    Above,
}

impl Place {
    fn is_inside(self) -> bool {
        matches!(self, Place::Inside(_))
    }

    /// Takes in the next key. Inside, the key before agrees with `hi` in `common` bytes and then is smaller. The
    /// new key, which rose at byte `shared`, is thus above `hi` if it rose earlier than there, below if later.
    #[inline]
    fn follow(&mut self, decoder: &Decoder<'_>, lo: &[u8], hi: Option<&[u8]>) {
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

/// What was read so far.
struct Decoder<'a> {
    reader: Reader<'a>,
    max_ts: CommitTs,
    base: CommitTs,
    unit: u32,
    prefix_bytes: usize,
    slots: u64,
    entries: u64,
    live: u64,
    /// The whole key of the entry before, the image's prefix included.
    key: Vec<u8>,
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
}

impl<'a> Decoder<'a> {
    fn start(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != LEAF_FORMAT {
            return None;
        }
        let max_ts = CommitTs(reader.varint()?);
        let base = CommitTs(reader.varint()?);
        let unit = u32::from(reader.u8()?);
        let prefix = reader.bytes()?;
        let (slots, entries, live) = (reader.varint()?, reader.varint()?, reader.varint()?);
        (unit <= UNIT_MAX && prefix.len() <= base::limits::KEY_BYTES_MAX).then_some(Decoder {
            reader,
            max_ts,
            base,
            unit,
            prefix_bytes: prefix.len(),
            slots,
            entries,
            live,
            key: prefix.to_vec(),
            started: false,
            rose: false,
            shared: 0,
            rest: &[],
            last_ts: CommitTs::ZERO,
            last_kind: Kind::Put,
            counted_entries: 0,
            counted_live: 0,
        })
    }

    #[inline(always)]
    /// Reads the next entry; its key is in `self.key` afterwards.
    fn entry(&mut self) -> Option<Decoded<'a>> {
        let r = &mut self.reader;
        let bits = r.u8()?;
        if bits & !(OLDER_BIT | 3) != 0 {
            return None;
        }
        let (kind, older) = (Kind::from_bits(u64::from(bits)), bits & OLDER_BIT != 0);
        if older && !self.started {
            return None;
        }
        if !older {
            let shared = self.prefix_bytes.checked_add(r.length()?)?;
            let rest = r.bytes()?;
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
    fn check_order(&mut self, entry: &Decoded<'_>) -> Option<&'static str> {
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
