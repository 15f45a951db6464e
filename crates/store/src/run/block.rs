//! The inside of a run file's blocks: sorted entries, keys without the prefix they share with the one before,
//! whole keys at restarts. Drawn in `docs/formats/run.md`.
//!
//! Bytes are checked once, in [`RunBlock::parse`], which walks every entry; a `RunBlock` is the proof, so that
//! moving within it cannot fail. Invariants of a `RunBlock`: keys strictly ascend; entries fill
//! `payload[1..entries_end]`; each restart is the start of an entry with a whole key, the first is the first entry;
//! level 0 holds puts and deletes, levels above hold children, and at least one.

use std::ops::Range;

use base::bytes::{Reader, put_varint};

use crate::BlockRef;

/// Entries from one whole key to the next.
const RESTART_INTERVAL: u32 = 16;
/// First byte of a block that is a piece of a large value.
pub(super) const LEVEL_PIECE: u8 = 255;
/// First byte of a block that lists the pieces of a large value.
pub(super) const LEVEL_LIST: u8 = 254;

const TAG_DELETE: u8 = 0;
const TAG_INLINE: u8 = 1;
const TAG_PIECE: u8 = 2;
const TAG_LIST: u8 = 3;
const TAG_CHILD: u8 = 4;

/// What stands beside a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Delete,
    /// The value, in the payload.
    Inline(Range<usize>),
    /// A large value in blocks of its own: one piece, or a list of pieces.
    Far {
        bytes: u64,
        list: bool,
        at: BlockRef,
    },
    /// A block of the level below. The key is at or above its last and below the next one's first.
    Child(BlockRef),
}

/// What to put beside a key.
pub(super) enum NewBody<'a> {
    Delete,
    Inline(&'a [u8]),
    Far { bytes: u64, list: bool, at: BlockRef },
    Child(BlockRef),
}

/// Builds the payload of one block.
pub(super) struct BlockBuilder {
    level: u8,
    payload: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: u32,
    last_key: Vec<u8>,
    count: u32,
}

impl BlockBuilder {
    pub(super) fn new(level: u8) -> Self {
        let payload = vec![level];
        Self { level, payload, restarts: Vec::new(), since_restart: 0, last_key: Vec::new(), count: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Bytes of the payload if it ended now.
    pub(super) fn bytes(&self) -> usize {
        self.payload.len() + (self.restarts.len() + 1) * 4
    }

    pub(super) fn push(&mut self, key: &[u8], body: &NewBody<'_>) {
        let restart = self.count == 0 || self.since_restart == RESTART_INTERVAL;
        let shared = if restart { 0 } else { shared_bytes(&self.last_key, key) };
        if restart {
            self.restarts.push(u32::try_from(self.payload.len()).expect("a block is far below 4 GiB"));
            self.since_restart = 0;
        }
        self.since_restart += 1;
        self.count += 1;
        put_varint(&mut self.payload, shared as u64);
        put_varint(&mut self.payload, (key.len() - shared) as u64);
        self.payload.extend_from_slice(&key[shared..]);
        self.push_body(body);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
    }

    fn push_body(&mut self, body: &NewBody<'_>) {
        let out = &mut self.payload;
        match body {
            NewBody::Delete => out.push(TAG_DELETE),
            NewBody::Inline(value) => {
                out.push(TAG_INLINE);
                base::bytes::put_bytes(out, value);
            }
            NewBody::Far { bytes, list, at } => {
                out.push(if *list { TAG_LIST } else { TAG_PIECE });
                put_varint(out, *bytes);
                at.encode(out);
            }
            NewBody::Child(at) => {
                out.push(TAG_CHILD);
                at.encode(out);
            }
        }
    }

    /// The finished payload; the builder starts anew.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut payload = std::mem::replace(&mut self.payload, vec![self.level]);
        for restart in &self.restarts {
            payload.extend_from_slice(&restart.to_le_bytes());
        }
        payload.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        self.restarts.clear();
        self.last_key.clear();
        (self.since_restart, self.count) = (0, 0);
        payload
    }
}

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// A checked block.
#[derive(Debug)]
pub(super) struct RunBlock {
    payload: Vec<u8>,
    entries_end: usize,
    restarts: Vec<u32>,
}

/// A place in a block: one entry, its key put together.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    start: usize,
    next: usize,
    pub(super) key: Vec<u8>,
    pub(super) body: Body,
}

impl Default for Spot {
    fn default() -> Self {
        Self { start: 0, next: 0, key: Vec::new(), body: Body::Delete }
    }
}

impl RunBlock {
    /// Checks a payload that must be of `level`.
    pub(super) fn parse(payload: Vec<u8>, level: u8) -> Result<Self, &'static str> {
        if payload.first() != Some(&level) {
            return Err("another level");
        }
        let Some((front, count)) = payload.split_last_chunk::<4>() else { return Err("no restart count") };
        let count = u32::from_le_bytes(*count) as usize;
        let Some(entries_end) = front.len().checked_sub(count.saturating_mul(4)).filter(|end| *end >= 1) else {
            return Err("more restarts than bytes");
        };
        let restarts = front[entries_end..]
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes(b.try_into().expect("chunks of four")))
            .collect();
        let block = Self { payload, entries_end, restarts };
        block.check(level)?;
        Ok(block)
    }

    fn check(&self, level: u8) -> Result<(), &'static str> {
        let mut spot = Spot { next: 1, ..Spot::default() };
        let mut restarts = self.restarts.iter().copied().peekable();
        let mut last = Vec::new();
        while spot.next < self.entries_end {
            let start = spot.next;
            self.read_entry(start, &mut spot).ok_or("an entry past its end")?;
            let whole = self.payload[start] == 0;
            if restarts.next_if_eq(&(start as u32)).is_some() {
                if !whole {
                    return Err("a restart without a whole key");
                }
            } else if start == 1 {
                return Err("no restart at the first entry");
            }
            if start > 1 && last >= spot.key {
                return Err("keys that do not ascend");
            }
            if matches!(spot.body, Body::Child(_)) != (level > 0) {
                return Err("an entry of another level");
            }
            last.clone_from(&spot.key);
        }
        if restarts.next().is_some() {
            return Err("a restart beside the entries");
        }
        if level > 0 && self.restarts.is_empty() {
            return Err("no child");
        }
        Ok(())
    }

    /// Reads the entry at `start`, whose shared prefix is at the front of `spot.key`. `None` on malformed bytes.
    fn read_entry(&self, start: usize, spot: &mut Spot) -> Option<()> {
        let mut r = Reader::new(&self.payload[start..self.entries_end]);
        let shared = r.length()?;
        let unshared = r.length()?;
        if shared > spot.key.len() || unshared > super::KEY_BYTES_MAX - shared.min(super::KEY_BYTES_MAX) {
            return None;
        }
        let suffix = r.take(unshared)?;
        let body = match r.u8()? {
            TAG_DELETE => Body::Delete,
            TAG_INLINE => {
                let bytes = r.bytes()?.len();
                let end = self.entries_end - r.rest().len();
                Body::Inline(end - bytes..end)
            }
            tag @ (TAG_PIECE | TAG_LIST) => {
                Body::Far { bytes: r.varint()?, list: tag == TAG_LIST, at: BlockRef::decode(&mut r)? }
            }
            TAG_CHILD => Body::Child(BlockRef::decode(&mut r)?),
            _ => return None,
        };
        spot.key.truncate(shared);
        spot.key.extend_from_slice(suffix);
        spot.start = start;
        spot.next = self.entries_end - r.rest().len();
        spot.body = body;
        Some(())
    }

    fn step(&self, start: usize, spot: &mut Spot) -> bool {
        if start >= self.entries_end {
            return false;
        }
        self.read_entry(start, spot).expect("the block was checked entry by entry");
        true
    }

    pub(super) fn inline(&self, range: &Range<usize>) -> &[u8] {
        &self.payload[range.clone()]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.payload.capacity() + self.restarts.capacity() * 4
    }

    /// How many entries it has, to one restart.
    pub(super) fn entries(&self) -> u64 {
        self.restarts.len() as u64 * u64::from(RESTART_INTERVAL)
    }

    /// How many entries lie before one, to one restart.
    pub(super) fn entries_before(&self, spot: &Spot) -> u64 {
        let restarts = self.restarts.partition_point(|restart| (*restart as usize) < spot.start);
        restarts as u64 * u64::from(RESTART_INTERVAL)
    }

    /// Moves to the first entry; false if there is none. After false, `spot` is meaningless.
    pub(super) fn first(&self, spot: &mut Spot) -> bool {
        self.step(1, spot)
    }

    pub(super) fn last(&self, spot: &mut Spot) -> bool {
        let Some(&restart) = self.restarts.last() else { return false };
        self.step(restart as usize, spot);
        while spot.next < self.entries_end {
            self.step(spot.next, spot);
        }
        true
    }

    pub(super) fn next(&self, spot: &mut Spot) -> bool {
        self.step(spot.next, spot)
    }

    pub(super) fn prev(&self, spot: &mut Spot) -> bool {
        let end = spot.start;
        let before = self.restarts.partition_point(|restart| (*restart as usize) < end);
        let Some(restart) = before.checked_sub(1).map(|i| self.restarts[i] as usize) else { return false };
        self.step(restart, spot);
        while spot.next < end {
            self.step(spot.next, spot);
        }
        true
    }

    /// Moves to the first entry at or above `key`.
    pub(super) fn seek(&self, key: &[u8], spot: &mut Spot) -> bool {
        let at_or_below = self.restarts.partition_point(|restart| self.whole_key(*restart) <= key);
        let restart = at_or_below.checked_sub(1).map_or(1, |i| self.restarts[i] as usize);
        let mut found = self.step(restart, spot);
        while found && spot.key.as_slice() < key {
            found = self.step(spot.next, spot);
        }
        found
    }

    /// The key of the entry at a restart, where nothing is shared.
    fn whole_key(&self, restart: u32) -> &[u8] {
        let mut r = Reader::new(&self.payload[restart as usize..self.entries_end]);
        let key = r.length().and_then(|_shared| r.bytes());
        key.expect("the block was checked entry by entry")
    }
}

/// See [`crate::fuzzing::run_block`].
pub(crate) fn fuzz(data: &[u8]) {
    let Some((&level, _)) = data.split_first() else { return };
    let Ok(block) = RunBlock::parse(data.to_vec(), level) else { return };
    let mut spot = Spot::default();
    let mut keys = Vec::new();
    let mut found = block.first(&mut spot);
    while found {
        if let Body::Inline(range) = &spot.body {
            let _ = block.inline(range);
        }
        keys.push(spot.key.clone());
        found = block.next(&mut spot);
    }
    assert!(keys.is_sorted_by(|a, b| a < b));
    let mut found = block.last(&mut spot);
    for key in keys.iter().rev() {
        assert!(found && spot.key == *key);
        found = block.prev(&mut spot);
    }
    assert!(!found);
    for key in keys.iter().take(50) {
        assert!(block.seek(key, &mut spot) && spot.key == *key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(keys: &[Vec<u8>], level: u8) -> Vec<u8> {
        let mut builder = BlockBuilder::new(level);
        for (i, key) in keys.iter().enumerate() {
            let at = BlockRef { offset: i as u64, stored_bytes: 50, crc: 7 };
            match (level, i % 3) {
                (1.., _) => builder.push(key, &NewBody::Child(at)),
                (_, 0) => builder.push(key, &NewBody::Delete),
                (_, 1) => builder.push(key, &NewBody::Inline(&key[..key.len() / 2])),
                _ => builder.push(key, &NewBody::Far { bytes: 9000, list: i % 2 == 0, at }),
            }
        }
        let bytes = builder.bytes();
        let payload = builder.finish();
        assert_eq!(payload.len(), bytes, "the builder knows its size");
        payload
    }

    fn keys(count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|i| format!("prefix/{:04}", i * 2).into_bytes()).collect()
    }

    #[test]
    fn every_size_around_the_restarts() {
        for count in 0..70 {
            let payload = build(&keys(count), 0);
            fuzz(&payload);
            let block = RunBlock::parse(payload, 0).unwrap();
            let mut spot = Spot::default();
            for probe in 0..count * 2 + 2 {
                let key = format!("prefix/{probe:04}").into_bytes();
                let expected = keys(count).into_iter().find(|k| *k >= key);
                assert_eq!(block.seek(&key, &mut spot).then(|| spot.key.clone()), expected);
            }
        }
    }

    #[test]
    fn damage_is_refused_or_harmless() {
        for level in [0, 1] {
            let good = build(&keys(40), level);
            assert!(RunBlock::parse(good.clone(), 1 - level).is_err());
            let mut refused = 0;
            for i in 0..good.len() {
                for bit in 0..8 {
                    let mut bad = good.clone();
                    bad[i] ^= 1 << bit;
                    refused += u32::from(RunBlock::parse(bad.clone(), level).is_err());
                    fuzz(&bad);
                }
                fuzz(&good[..i]);
            }
            assert!(refused as usize > good.len(), "{refused} of {}", good.len() * 8);
        }
        assert!(RunBlock::parse(build(&[], 1), 1).is_err(), "an index block has children");
        let mut swapped = keys(3);
        swapped.swap(0, 2);
        assert!(RunBlock::parse(build(&swapped, 0), 0).is_err());
    }
}
