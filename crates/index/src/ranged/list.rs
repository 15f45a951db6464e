//! The deleted ranges of one index, and which of them hides a version.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use base::CommitTs;

use crate::Span;

/// A range that a commit deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deleted {
    pub span: Span,
    pub ts: CommitTs,
    /// All keys that came to be there since are noted in [`Written`].
    pub is_known: bool,
    /// What it hides is deleted key by key, in a run that is attached: it is kept for whoever hops.
    pub is_drained: bool,
}

/// Part of the keys, all under the same ranges.
#[derive(Debug)]
struct Fragment {
    span: Span,
    /// Timestamps of the ranges, newest first, each once, and whether one with it is known.
    stamps: Vec<(CommitTs, bool)>,
}

/// The ranges of one moment. Replaced as a whole.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// Oldest first.
    pub all: Vec<Deleted>,
    /// Ascending, disjoint.
    fragments: Vec<Fragment>,
    /// Memory, in bytes.
    pub bytes: u64,
}

impl List {
    pub fn new(mut all: Vec<Deleted>) -> Self {
        all.sort_by_key(|deleted| deleted.ts);
        let fragments = cut(&all);
        let of_span = |span: &Span| span.low.len() + span.high.as_ref().map_or(0, Vec::len);
        let of_ranges = all.iter().map(|deleted| size_of::<Deleted>() + of_span(&deleted.span));
        let of_fragments = fragments
            .iter()
            .map(|fragment| size_of::<Fragment>() + of_span(&fragment.span) + size_of_val(fragment.stamps.as_slice()));
        let bytes = of_ranges.chain(of_fragments).sum::<usize>() as u64;
        Self { all, fragments, bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that are to be drained, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &Deleted> {
        self.all.iter().filter(|deleted| !deleted.is_drained)
    }

    /// The one rule of visibility: a version is deleted by a range over its key that is newer, and that the reader at `at` sees. A version
    /// of the same commit was put behind the delete, and stays.
    pub fn hides(&self, key: &[u8], version: CommitTs, at: CommitTs) -> bool {
        let over = self.over(key).and_then(|fragment| fragment.stamps.iter().find(|(ts, _)| *ts <= at));
        over.is_some_and(|(ts, _)| version < *ts)
    }

    fn over(&self, key: &[u8]) -> Option<&Fragment> {
        let at = self.fragments.partition_point(|fragment| fragment.span.low.as_slice() <= key);
        self.fragments[..at].last().filter(|fragment| fragment.span.contains(key))
    }

    /// True if somebody may hop over one of them.
    pub fn has_known(&self) -> bool {
        self.all.iter().any(|deleted| deleted.is_known)
    }

    /// True if some range has the key.
    pub fn covers(&self, key: &[u8]) -> bool {
        self.over(key).is_some()
    }

    /// True if some range may have a key between these, both included.
    pub fn meets(&self, low: &[u8], high: &[u8]) -> bool {
        let at = self.fragments.partition_point(|fragment| fragment.span.low.as_slice() <= high);
        self.fragments[..at].last().is_some_and(|last| last.span.high.as_ref().is_none_or(|end| end.as_slice() > low))
    }

    /// The lowest key at or above `from` that a reader at `at` may see something of, as far as ranges and what was written into them say;
    /// none if there is none.
    pub fn next_seen(&self, mut from: Vec<u8>, at: CommitTs, written: &Written) -> Option<Vec<u8>> {
        while let Some(fragment) = self.over(&from).filter(|fragment| fragment.is_hollow(at)) {
            let high = fragment.span.high.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            if let Some(key) = written.keys.range::<[u8], _>((Bound::Included(from.as_slice()), high)).next() {
                return Some(key.clone());
            }
            from = fragment.span.high.clone()?;
        }
        Some(from)
    }

    /// The same downwards: a bound that everything lies below which is below `from` (none: the end) and may be seen.
    pub fn next_seen_below(&self, mut from: Option<Vec<u8>>, at: CommitTs, written: &Written) -> Option<Vec<u8>> {
        loop {
            let behind = match &from {
                Some(from) => self.fragments.partition_point(|fragment| fragment.span.low < *from),
                None => self.fragments.len(),
            };
            let reaches = |fragment: &&Fragment| match (&fragment.span.high, &from) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(high), Some(from)) => high >= from,
            };
            let below = self.fragments[..behind].last().filter(reaches);
            let Some(fragment) = below.filter(|fragment| fragment.is_hollow(at)) else { return from };
            let low = Bound::Included(fragment.span.low.as_slice());
            let high = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            if let Some(key) = written.keys.range::<[u8], _>((low, high)).next_back() {
                return Some(crate::damaged::just_above(key));
            }
            from = Some(fragment.span.low.clone());
        }
    }
}

impl Fragment {
    /// Whoever reads at `at` sees nothing there but what is noted as written.
    fn is_hollow(&self, at: CommitTs) -> bool {
        self.stamps.iter().any(|(ts, is_known)| *is_known && *ts <= at)
    }
}

/// Cuts the keys at the ends of all ranges.
fn cut(all: &[Deleted]) -> Vec<Fragment> {
    let mut events: BTreeMap<&[u8], (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (i, deleted) in all.iter().enumerate() {
        events.entry(&deleted.span.low).or_default().0.push(i);
        if let Some(high) = &deleted.span.high {
            events.entry(high).or_default().1.push(i);
        }
    }
    let (mut fragments, mut open): (Vec<Fragment>, BTreeSet<usize>) = (Vec::new(), BTreeSet::new());
    let mut points = events.iter().peekable();
    while let Some((low, (begun, ended))) = points.next() {
        open.retain(|i| !ended.contains(i));
        open.extend(begun);
        if !open.is_empty() {
            let high = points.peek().map(|(high, _)| high.to_vec());
            let mut stamps: Vec<(CommitTs, bool)> = Vec::new();
            // They ascend by timestamp. Those of one commit say the same: however they lie over each other, they take no more than one.
            for deleted in open.iter().rev().map(|i| &all[*i]) {
                match stamps.last_mut() {
                    Some((ts, is_known)) if *ts == deleted.ts => *is_known |= deleted.is_known,
                    _ => stamps.push((deleted.ts, deleted.is_known)),
                }
            }
            stamps.shrink_to_fit();
            fragments.push(Fragment { span: Span { low: low.to_vec(), high }, stamps });
        }
    }
    fragments
}

/// Leaves out what is to be drained and lies within what is newer, where nobody reads as of between the two.
pub(crate) fn leave_out_covered(all: &mut Vec<Deleted>) {
    // Disjoint, not touching: from each of these keys to below that one, or to the end.
    let mut newer: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    all.sort_by_key(|deleted| std::cmp::Reverse(deleted.ts));
    all.retain(|deleted| {
        if deleted.is_drained {
            return true;
        }
        let Span { mut low, mut high } = deleted.span.clone();
        let ends_above = |end: &Option<Vec<u8>>, key: &Vec<u8>| end.as_ref().is_none_or(|end| end >= key);
        if let Some((start, end)) = newer.range::<Vec<u8>, _>(..=&low).next_back() {
            let holds = match (end, &high) {
                (None, _) => true,
                (Some(end), Some(high)) => end >= high,
                (Some(_), None) => false,
            };
            if holds {
                return false;
            }
            if ends_above(end, &low) {
                low.clone_from(start);
            }
        }
        while let Some((start, end)) = newer.range::<Vec<u8>, _>(&low..).next() {
            if !ends_above(&high, start) {
                break;
            }
            high = match (high, end) {
                (Some(high), Some(end)) => Some(high.max(end.clone())),
                _ => None,
            };
            let start = start.clone();
            newer.remove(&start);
        }
        newer.insert(low, high);
        true
    });
}

/// Keys that were written into listed ranges since those were listed.
#[derive(Debug, Default)]
pub(crate) struct Written {
    keys: BTreeSet<Vec<u8>>,
    bytes: usize,
}

/// Memory for them; past it nobody hops any more until the list is empty.
const WRITTEN_BYTES_MAX: usize = 256 << 10;
/// Memory of a key beside its bytes.
const KEY_BYTES: usize = 48;

impl Written {
    /// False if there is no room.
    #[must_use]
    pub fn note(&mut self, key: &[u8]) -> bool {
        if !self.keys.contains(key) {
            self.bytes += key.len() + KEY_BYTES;
            if self.bytes > WRITTEN_BYTES_MAX {
                return false;
            }
            self.keys.insert(key.to_vec());
        }
        true
    }

    /// Memory, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::random::Rng;

    fn range(low: u8, high: Option<u8>, ts: u64, is_known: bool) -> Deleted {
        let span = Span { low: vec![low], high: high.map(|high| vec![high]) };
        Deleted { span, ts: CommitTs(ts), is_known, is_drained: false }
    }

    /// Against looking at each range by itself.
    #[test]
    fn a_list_says_what_its_ranges_say() {
        let mut rng = Rng::new(11);
        for _ in 0..2000 {
            let all: Vec<_> = (0..rng.below(6))
                .map(|_| {
                    let low = rng.below(20) as u8;
                    let high = (rng.below(5) > 0).then(|| low + 1 + rng.below(8) as u8);
                    range(low, high, 16 * (1 + rng.below(8)), rng.below(3) > 0)
                })
                .collect();
            let list = List::new(all.clone());
            let mut written = Written::default();
            for _ in 0..rng.below(4) {
                assert!(written.note(&[rng.below(30) as u8]));
            }
            let at = CommitTs(rng.below(160));
            let may_see = |key: u8| {
                let hollow = |d: &Deleted| d.span.contains(&[key]) && d.is_known && d.ts <= at;
                !all.iter().any(hollow) || written.keys.contains(&[key][..])
            };
            for key in 0..32u8 {
                let version = CommitTs(rng.below(160));
                let hidden = all.iter().any(|d| d.span.contains(&[key]) && d.ts <= at && version < d.ts);
                assert_eq!(list.hides(&[key], version, at), hidden, "{key} {version:?} {at:?} {all:?}");
                let high = key + rng.below(5) as u8;
                let meets = all.iter().any(|d| d.span.meets(&Span { low: vec![key], high: Some(vec![high, 0]) }));
                assert!(list.meets(&[key], &[high]) || !meets, "{key}..={high} {all:?}");
                let up = list.next_seen(vec![key], at, &written).map(|key| key[0]);
                assert_eq!(up.map(|up| up.min(32)), (key..64).find(|k| may_see(*k)).map(|up| up.min(32)), "{all:?}");
                let down = list.next_seen_below(Some(vec![key]), at, &written).expect("a bound stays one");
                let first = (0..key).rev().find(|k| may_see(*k));
                // Everything that may be seen lies below the bound, and it is no higher than it has to be.
                let lowest = if down.is_empty() { 0 } else { down[0] + u8::from(down.len() > 1) };
                assert!(first.is_none_or(|first| first < lowest), "{key}: {down:?} {first:?} {all:?}");
                assert!(lowest <= key && (lowest == 0 || may_see(lowest - 1)), "{key}: {down:?} {first:?} {all:?}");
            }
        }
    }

    /// Whatever a reader of behind all of them does not see, he does not see without those that were left out.
    #[test]
    fn covered_ranges_are_left_out() {
        let mut rng = Rng::new(5);
        for _ in 0..2000 {
            let all: Vec<_> = (0..1 + rng.below(8))
                .map(|n| {
                    let low = rng.below(20) as u8;
                    range(low, (rng.below(6) > 0).then(|| low + 1 + rng.below(10) as u8), 16 * (n + 1), false)
                })
                .collect();
            let mut fewer = all.clone();
            leave_out_covered(&mut fewer);
            let covered = |d: &&Deleted| {
                let holds = |key: u8| all.iter().any(|o| o.ts > d.ts && o.span.contains(&[key]));
                !(0..64).any(|key| d.span.contains(&[key]) && !holds(key))
            };
            assert_eq!(fewer.len(), all.len() - all.iter().filter(covered).count(), "{all:?}");
            let (list, short) = (List::new(all), List::new(fewer));
            for key in 0..64u8 {
                let version = CommitTs(rng.below(160));
                assert_eq!(list.hides(&[key], version, CommitTs::MAX), short.hides(&[key], version, CommitTs::MAX));
            }
        }
        // One that grows is one.
        let mut nested: Vec<_> = (1..200u8).map(|n| range(0, Some(n), 16 * u64::from(n), false)).collect();
        leave_out_covered(&mut nested);
        assert_eq!(nested.len(), 1);
    }

    /// Guard: ranges of one commit are one stamp.
    #[test]
    fn ranges_of_one_commit_take_memory_each_once() {
        let nested = |ts: fn(u8) -> u64| List::new((1..=200u8).map(|n| range(0, Some(n), ts(n), true)).collect()).bytes;
        let (one_commit, many) = (nested(|_| 16), nested(|n| 16 * u64::from(n)));
        assert!(one_commit < 200 * 200 && many > 200 * 200 / 2 * 16, "{one_commit} {many}");
    }

    #[test]
    fn what_was_written_is_bounded() {
        let mut written = Written::default();
        let room = (0..1u32 << 20).take_while(|n| written.note(&n.to_be_bytes())).count();
        assert!(room > 1000 && written.bytes <= WRITTEN_BYTES_MAX + 64);
        written.clear();
        assert!(written.note(b"again"));
    }
}
