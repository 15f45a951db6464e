//! Which leaf of a memtable has a key.
//!
//! By the first eight bytes of the leaves' lowest keys, as one number: a search compares numbers that lie next to each other, and looks
//! at a key itself only among leaves that begin with the same eight bytes.
//!
//! Invariants: the first leaf is that of the empty key; lowest keys ascend, each once; a group has the leaves of its head and is never
//! empty.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::Latched;

/// A leaf and its lowest key.
#[derive(Debug)]
pub(super) struct Place {
    pub low: Box<[u8]>,
    pub leaf: Latched,
}

#[derive(Debug)]
pub(super) struct Directory(BTreeMap<u64, Vec<Place>>);

/// The first eight bytes, in the order of keys: zeros stand behind a shorter one, which may make two of them equal.
fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let n = key.len().min(8);
    bytes[..n].copy_from_slice(&key[..n]);
    u64::from_be_bytes(bytes)
}

impl Directory {
    pub fn new() -> Self {
        Self(BTreeMap::from([(0, vec![Place { low: Box::from([]), leaf: Latched::default() }])]))
    }

    /// The leaf that has `key`.
    pub fn at(&self, key: &[u8]) -> &Place {
        self.last_where(head(key), |low| low <= key).expect("a leaf of the empty key")
    }

    /// The last leaf that begins below the bound.
    pub fn below(&self, bound: Bound<&[u8]>) -> Option<&Place> {
        match bound {
            Bound::Unbounded => self.0.values().next_back().and_then(|group| group.last()),
            Bound::Included(key) => Some(self.at(key)),
            Bound::Excluded(key) => self.last_where(head(key), |low| low < key),
        }
    }

    /// The leaf behind the one that begins at `low`.
    pub fn after(&self, low: &[u8]) -> Option<&Place> {
        let head = head(low);
        let group = self.0.get(&head).into_iter().flatten();
        let mut behind = group.skip_while(|place| &*place.low <= low);
        behind.next().or_else(|| self.0.range((Bound::Excluded(head), Bound::Unbounded)).next().map(|(_, g)| &g[0]))
    }

    /// From the one that has `key` on.
    pub fn from(&self, key: &[u8]) -> impl Iterator<Item = &Place> {
        std::iter::successors(Some(self.at(key)), |place| self.after(&place.low))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        self.0.values().flatten()
    }

    /// The leaf that begins at `low`.
    pub fn get(&self, low: &[u8]) -> Option<&Place> {
        Some(self.at(low)).filter(|place| &*place.low == low)
    }

    /// A new leaf; none begins at `low`.
    pub fn insert(&mut self, low: Box<[u8]>, leaf: Latched) {
        let group = self.0.entry(head(&low)).or_default();
        let at = group.partition_point(|place| place.low < low);
        group.insert(at, Place { low, leaf });
    }

    /// The last of those of which `is_before` says so: of all below the head and, of the head, of some first ones.
    fn last_where(&self, head: u64, is_before: impl Fn(&[u8]) -> bool) -> Option<&Place> {
        for (found, group) in self.0.range(..=head).rev() {
            if *found < head {
                return group.last();
            }
            if let Some(last) = group.partition_point(|place| is_before(&place.low)).checked_sub(1) {
                return Some(&group[last]);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use vfs::random::Rng;

    use super::*;

    /// Keys that share heads, that are shorter than one, and that end in zeros.
    fn key(rng: &mut Rng) -> Vec<u8> {
        let front: &[u8] =
            [&b""[..], b"\0", b"12345678", b"123456789", b"\xff\xff\xff\xff\xff\xff\xff\xff"][rng.index(5)];
        let behind = (0..rng.index(4)).map(|_| [0, 1, 255][rng.index(3)]);
        front.iter().copied().chain(behind).collect()
    }

    #[test]
    fn it_is_an_ordered_map() {
        let mut rng = Rng::new(7);
        for _ in 0..50 {
            let (mut directory, mut model) = (Directory::new(), BTreeMap::from([(Vec::new(), ())]));
            for _ in 0..rng.index(80) {
                let low = key(&mut rng);
                if model.insert(low.clone(), ()).is_none() {
                    directory.insert(low.into(), Latched::default());
                }
            }
            let lows = |places: &mut dyn Iterator<Item = &Place>| places.map(|p| p.low.to_vec()).collect::<Vec<_>>();
            assert_eq!(lows(&mut directory.iter()), model.keys().cloned().collect::<Vec<_>>());
            for _ in 0..200 {
                let key = key(&mut rng);
                let upto =
                    |bound| model.range::<[u8], _>((Bound::Unbounded, bound)).next_back().map(|(low, ())| &**low);
                let found = |place: Option<&Place>| place.map(|place| place.low.to_vec());
                for bound in [Bound::Included(&key[..]), Bound::Excluded(&key), Bound::Unbounded] {
                    assert_eq!(found(directory.below(bound)).as_deref(), upto(bound));
                }
                let at = upto(Bound::Included(&key)).expect("the empty key");
                assert_eq!(&*directory.at(&key).low, at);
                assert_eq!(directory.get(&key).is_some(), model.contains_key(&key));
                let from: Vec<_> = model
                    .range::<[u8], _>((Bound::Included(at), Bound::Unbounded))
                    .map(|(low, ())| low.clone())
                    .collect();
                assert_eq!(found(directory.after(at)), from.get(1).cloned());
                assert_eq!(lows(&mut directory.from(&key)), from);
            }
        }
    }
}
