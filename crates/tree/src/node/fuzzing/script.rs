//! Bytes as a script of operations on a row of leaves, against the model.
//!
//! The row stands for a tree: adjacent leaves cover all keys; a full leaf is split and two small ones are
//! merged. Attached runs are played by timestamps that were taken and are not finished: operations arrive late with
//! them, and the GC view is capped below the oldest [A4].

use std::collections::BTreeMap;
use std::sync::Arc;

use base::bytes::Reader;
use base::{CommitTs, GcView};
use index::{Direction, EntryBatch, Op, ReadAt};
use store::{BlockRef, Compression};

use super::super::{Insert, Leaf, Lookup, SideId, Value};
use super::model::{Model, Version, collected};
use super::point::Sealed;

/// Runs a script.
///
/// # Panics
/// If a leaf and the model disagree.
pub fn operations(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    let Some(setup) = r.u8() else { return };
    let node_bytes = [512, 512, 768, 1024, 4096][usize::from(setup % 5)];
    let mut stage = Stage::new(node_bytes, setup >= 128);
    let mut steps = 0;
    while stage.step(&mut r).is_some() {
        steps += 1;
        if steps % 64 == 0 {
            stage.compare();
        }
    }
    stage.compare();
}

/// Contents of a leaf, for comparison.
type Contents = Vec<(Vec<u8>, u64, Option<Vec<u8>>)>;

struct Stage {
    leaves: Vec<Leaf>,
    model: Model,
    disk: BTreeMap<u64, Vec<u8>>,
    /// Few keys: many versions each.
    hot: bool,
    now: u64,
    floor: u64,
    snapshots: Vec<u64>,
    /// Timestamps of attached runs that are not drained.
    runs: Vec<u64>,
    hint: Option<(usize, usize, Vec<u8>)>,
}

impl Stage {
    fn new(node_bytes: usize, hot: bool) -> Self {
        Stage {
            leaves: vec![Leaf::new(node_bytes, &[], None)],
            model: Model::default(),
            disk: BTreeMap::new(),
            hot,
            now: 160,
            floor: 0,
            snapshots: Vec::new(),
            runs: Vec::new(),
            hint: None,
        }
    }

    fn view(&self) -> GcView {
        let view = GcView::new(CommitTs(self.floor), self.snapshots.iter().map(|s| CommitTs(*s)).collect());
        match self.runs.first() {
            Some(run) => view.capped(CommitTs(run - 1)),
            None => view,
        }
    }

    /// One step; `None` when the script is over.
    fn step(&mut self, r: &mut Reader<'_>) -> Option<()> {
        match r.u8()? {
            0..=159 => self.write(r)?,
            160..=175 => self.view_moves(r)?,
            176..=185 => {
                if self.snapshots.len() < 12 {
                    let back = u64::from(r.u8()?) * 16;
                    self.snapshots.push(self.now.saturating_sub(back).max(self.floor));
                }
            }
            186..=195 => {
                if !self.snapshots.is_empty() {
                    let i = usize::from(r.u8()?) % self.snapshots.len();
                    self.snapshots.remove(i);
                }
            }
            196..=205 => {
                self.now += 16;
                self.runs.push(self.now);
            }
            206..=215 => {
                if !self.runs.is_empty() {
                    self.runs.remove(0);
                }
            }
            216..=225 => self.collect(r)?,
            226..=235 => self.merge(r)?,
            236..=245 => self.through_an_image(r)?,
            246..=250 => self.pick(r)?.compact(),
            _ => self.cut_anywhere(r)?,
        }
        Some(())
    }

    fn pick(&mut self, r: &mut Reader<'_>) -> Option<&mut Leaf> {
        let i = usize::from(r.u8()?) % self.leaves.len();
        self.hint = None;
        Some(&mut self.leaves[i])
    }

    fn view_moves(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let back = u64::from(r.u8()?) * 8;
        self.floor = self.floor.max(self.now.saturating_sub(back));
        Some(())
    }

    fn key(&self, r: &mut Reader<'_>) -> Option<Vec<u8>> {
        let (shape, n) = (r.u8()?, r.u8()?);
        if self.hot {
            return Some(vec![b'h', n % 5]);
        }
        let mut key = match shape % 4 {
            0 => vec![],
            1 => b"common/prefix/".to_vec(),
            2 => b"common/prefix/of/some/length/".to_vec(),
            _ => vec![0; usize::from(shape / 16)],
        };
        key.push(n);
        if shape >= 200 {
            key.extend(vec![n; usize::from(shape - 200) * 4]);
        }
        Some(key)
    }

    fn write(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let key = self.key(r)?;
        let (how, size) = (r.u8()?, r.u8()?);
        let ts = match self.runs.len() {
            n if n > 0 && how % 3 == 0 => self.runs[usize::from(how) / 3 % n],
            _ => {
                self.now += 16;
                self.now
            }
        };
        let value = match self.model.get(&key, ts) {
            Some(same) => same.clone(),
            None if how % 4 == 1 => None,
            None => {
                let bytes = if size > 250 { usize::from(size) * 3 } else { usize::from(size % 32) };
                Some((0..bytes).map(|i| (ts as usize + i) as u8).collect())
            }
        };
        self.model.insert(&key, ts, value.clone());
        self.apply(&key, ts, value.as_deref());
        Some(())
    }

    fn apply(&mut self, key: &[u8], ts: u64, value: Option<&[u8]>) {
        let view = self.view();
        let op = value.map_or(Op::Delete, Op::Put);
        for _ in 0..64 {
            let at = self.leaves.iter().rposition(|leaf| leaf.lo() <= key).expect("the first leaf begins with nothing");
            let hint = self.hint.as_ref().filter(|(leaf, _, below)| *leaf == at && **below < *key).map(|h| h.1);
            let before = self.leaves[at].stats();
            match self.leaves[at].insert(key, CommitTs(ts), op, &view, hint) {
                Insert::Done(applied) => {
                    let after = self.leaves[at].stats();
                    assert_eq!(i64::from(after.live) - i64::from(before.live), i64::from(applied.live_delta));
                    assert_eq!(i64::from(after.entries) - i64::from(before.entries), i64::from(applied.entries_delta));
                    assert!(after.max_ts >= before.max_ts && (!applied.stored || after.max_ts.0 >= ts));
                    self.hint = Some((at, applied.hint, key.to_vec()));
                    return;
                }
                Insert::Full => {
                    assert_eq!(self.leaves[at].stats(), before, "a full leaf is unchanged");
                    let edge = at + 2 >= self.leaves.len();
                    let cut = self.leaves[at].choose_split(key, edge);
                    let right = self.leaves[at].split(&cut);
                    assert_eq!(right.lo(), cut.separator);
                    self.leaves.insert(at + 1, right);
                    self.hint = None;
                }
            }
        }
        panic!("no room for a key of {} bytes after 64 splits", key.len());
    }

    fn collect(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let view = self.view();
        let leaf = self.pick(r)?;
        let mut expected = Vec::new();
        for (key, versions) in by_key(leaf) {
            expected
                .extend(collected(&versions, &view).into_iter().map(|(ts, value)| (key.clone(), ts, value.is_some())));
        }
        let before = leaf.stats();
        let dropped = leaf.collect(&view);
        let after = leaf.stats();
        assert_eq!(before.entries - after.entries, dropped.versions);
        assert_eq!((before.live, before.max_ts), (after.live, after.max_ts));
        let mut left = Vec::new();
        leaf.for_each_version(&mut |key, ts, value| left.push((key.to_vec(), ts.0, value.is_some())));
        assert_eq!(left, expected, "collection by {view:?}");
        Some(())
    }

    fn merge(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let i = usize::from(r.u8()?) % self.leaves.len();
        self.hint = None;
        if i + 1 < self.leaves.len() && self.leaves[i].can_merge(&self.leaves[i + 1]) {
            let right = self.leaves.remove(i + 1);
            let bytes = self.leaves[i].merged_bytes(&right);
            self.leaves[i].merge(right);
            assert_eq!(self.leaves[i].used_bytes(), bytes);
        }
        Some(())
    }

    /// Cuts a leaf where no insert asked for it.
    fn cut_anywhere(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let key = self.key(r)?;
        let at = self.leaves.iter().rposition(|leaf| *leaf.lo() <= *key)?;
        self.hint = None;
        if self.leaves[at].search(&key).is_err() && !self.leaves[at].is_empty() {
            let cut = self.leaves[at].choose_split(&key, at + 1 == self.leaves.len());
            let right = self.leaves[at].split(&cut);
            self.leaves.insert(at + 1, right);
        }
        Some(())
    }

    fn through_an_image(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let i = usize::from(r.u8()?) % self.leaves.len();
        let key = self.key(r)?;
        self.hint = None;
        store_side(&mut self.leaves[i], &mut self.disk);
        let leaf = &self.leaves[i];
        let mut image = Vec::new();
        let cuts = leaf.encode_basements(leaf.node_bytes() >> (key.len() % 8), &mut image);
        if leaf.covers(&key) {
            Sealed::new(&image, &cuts, Compression::Lz4).check_key(leaf, &key);
        }
        let whole = load(&image, leaf.lo(), leaf.hi(), leaf.node_bytes(), &self.disk);
        let expected = contents(leaf, &self.disk);
        assert_eq!(contents(&whole, &self.disk), expected);
        assert_eq!(whole.stats().entries, leaf.stats().entries);
        if leaf.covers(&key) && leaf.lo() < &key[..] {
            let left = load(&image, leaf.lo(), Some(&key), leaf.node_bytes(), &self.disk);
            let right = load(&image, &key, leaf.hi(), leaf.node_bytes(), &self.disk);
            let mut halves = contents(&left, &self.disk);
            halves.extend(contents(&right, &self.disk));
            assert_eq!(halves, expected, "a trimmed image holds its part");
            self.leaves[i] = left;
            self.leaves.insert(i + 1, right);
        } else {
            self.leaves[i] = whole;
        }
        Some(())
    }

    /// Everything the view promises, read from the leaves and from the model.
    fn compare(&self) {
        let mut hi: Option<&[u8]> = Some(&[]);
        for leaf in &self.leaves {
            leaf.check().expect("a leaf is sound");
            assert_eq!(Some(leaf.lo()), hi, "leaves cover all keys");
            hi = leaf.hi();
        }
        assert_eq!(hi, None);
        let newest = self.model.visible(u64::MAX);
        assert_eq!(self.leaves.iter().map(|leaf| leaf.stats().live as usize).sum::<usize>(), newest.len());
        let promised = self.snapshots.iter().copied().chain([self.floor, self.now]);
        for s in promised {
            self.compare_at(ReadAt::Snapshot(CommitTs(s)), &self.model.visible(s));
        }
        self.compare_at(ReadAt::Newest, &newest);
    }

    fn compare_at(&self, at: ReadAt, expected: &BTreeMap<Vec<u8>, Version>) {
        let (mut forward, mut backward) = (BTreeMap::new(), Vec::new());
        for leaf in &self.leaves {
            let mut slot = 0;
            while let Some(item) = leaf.next_live(slot..leaf.slots(), at) {
                let value = item.value.map(|value| bytes_of(value, &self.disk));
                forward.insert(item.key.to_vec(), (item.ts.0, value));
                slot = item.next;
            }
        }
        assert_eq!(forward, *expected, "forward at {at:?}");
        for leaf in self.leaves.iter().rev() {
            let mut end = leaf.slots();
            while let Some(item) = leaf.previous_live(0..end, at) {
                backward.push(item.key.to_vec());
                end = item.first;
            }
        }
        assert!(backward.iter().eq(expected.keys().rev()), "backward at {at:?}");
        for leaf in &self.leaves {
            for direction in [Direction::Forward, Direction::Backward] {
                (1..4).for_each(|max| compare_copies(leaf, at, direction, max, expected));
            }
        }
        for (key, (ts, _)) in expected {
            let leaf = self.leaves.iter().rfind(|leaf| *leaf.lo() <= **key).expect("leaves cover all keys");
            assert!(matches!(leaf.get(key, at), Lookup::Found { ts: found, .. } if found.0 == *ts));
        }
    }
}

/// A copy of puts is what stepping shows, ends between keys, and before the first key that is no such put.
fn compare_copies(leaf: &Leaf, at: ReadAt, direction: Direction, max: usize, expected: &BTreeMap<Vec<u8>, Version>) {
    let (mut slots, mut seen) = (0..leaf.slots(), Vec::new());
    loop {
        let mut out = EntryBatch::new();
        slots = leaf.copy_puts(slots, at, direction, &mut out, max);
        assert!(out.len() <= max);
        for (key, value, ts) in out.iter() {
            assert_eq!(expected.get(key), Some(&(ts.0, value.map(<[u8]>::to_vec))), "copied at {at:?}");
            seen.push(key.to_vec());
        }
        if out.len() == max {
            continue;
        }
        let next = match direction {
            Direction::Forward => leaf.next_live(slots.clone(), at),
            Direction::Backward => leaf.previous_live(slots.clone(), at),
        };
        let Some(item) = next else { break };
        seen.push(item.key.to_vec());
        match direction {
            Direction::Forward => slots.start = item.next,
            Direction::Backward => slots.end = item.first,
        }
    }
    if direction == Direction::Backward {
        seen.reverse();
    }
    let there = expected.keys().filter(|key| *leaf.lo() <= ***key && leaf.hi().is_none_or(|hi| ***key < *hi));
    assert!(there.eq(&seen), "{direction:?} by {max} at {at:?}");
}

fn by_key(leaf: &Leaf) -> BTreeMap<Vec<u8>, Vec<Version>> {
    let mut out = BTreeMap::<_, Vec<Version>>::new();
    leaf.for_each_version(&mut |key, ts, value| {
        out.entry(key.to_vec()).or_default().push((ts.0, value.map(|_| Vec::new())));
    });
    out
}

fn bytes_of(value: Value<'_>, disk: &BTreeMap<u64, Vec<u8>>) -> Vec<u8> {
    match value {
        Value::Inline(bytes) => bytes.to_vec(),
        Value::Overflow(value) => match (value.resident(), value.stored()) {
            (Some(bytes), _) => bytes.to_vec(),
            (None, Some(refs)) => from_disk(refs, disk),
            (None, None) => panic!("a value is resident or stored"),
        },
    }
}

fn from_disk(refs: &[BlockRef], disk: &BTreeMap<u64, Vec<u8>>) -> Vec<u8> {
    refs.iter().flat_map(|at| disk[&at.offset].iter().copied()).collect()
}

fn contents(leaf: &Leaf, disk: &BTreeMap<u64, Vec<u8>>) -> Contents {
    let mut out = Vec::new();
    leaf.for_each_version(&mut |key, ts, value| out.push((key.to_vec(), ts.0, value.map(|v| bytes_of(v, disk)))));
    out
}

/// Writes everything beside the page, each payload as one or two blocks.
fn store_side(leaf: &mut Leaf, disk: &mut BTreeMap<u64, Vec<u8>>) {
    let mut rounds = 0;
    loop {
        let unwritten = leaf.unwritten();
        if unwritten.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds <= 2, "large values, then chains");
        for part in unwritten {
            let payload: Arc<[u8]> = part.payload;
            let mut refs = Vec::new();
            for half in payload.chunks(payload.len().div_ceil(2).max(1)) {
                let offset = disk.len() as u64;
                disk.insert(offset, half.to_vec());
                refs.push(BlockRef { offset, stored_bytes: half.len() as u32, crc: 0 });
            }
            assert!(!leaf.set_stored(part.id, part.edition + 1_000_000, refs.clone()), "another edition is refused");
            assert!(leaf.set_stored(part.id, part.edition, refs));
        }
    }
    leaf.release_stored_values();
}

fn load(image: &[u8], lo: &[u8], hi: Option<&[u8]>, node_bytes: usize, disk: &BTreeMap<u64, Vec<u8>>) -> Leaf {
    let mut leaf = Leaf::decode_image(image, lo, hi, node_bytes).expect("an encoded leaf decodes");
    for (id, refs, bytes) in leaf.missing_chains() {
        assert!(matches!(id, SideId::Chain(_)));
        let content = from_disk(&refs, disk);
        assert_eq!(content.len() as u64, bytes);
        leaf.install_chain(id, &content).expect("a stored chain decodes");
    }
    assert!(leaf.missing_chains().is_empty());
    leaf.check().expect("a loaded leaf is sound");
    leaf
}
