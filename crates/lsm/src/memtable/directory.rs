//! Which leaf of a memtable has a key, and how many lie between two.
//!
//! Leaves stand in groups of neighbours, so that the lengths of groups say how many there are. A search goes by the first sixteen bytes of the leaves' lowest
//! keys, as one number: of the groups' first leaves, then of those in one group. It compares numbers that lie next to each other, and looks at a key
//! itself only among leaves that begin with the same sixteen bytes.
//!
//! Invariants: the first leaf is that of the empty key; lowest keys ascend, each once; `heads[i]` is the head of `places[i].low`, and `firsts[i]` that of
//! the first leaf of `groups[i]`; no group is empty.

use std::ops::{Bound, Index};

use super::Latched;

/// Leaves of a group, at most: more would have to move for each new one.
const GROUP_MAX: usize = 128;

/// A leaf and its lowest key.
#[derive(Debug)]
pub(super) struct Place {
    pub low: Box<[u8]>,
    pub leaf: Latched,
}

/// Which place it is, until another leaf is put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    group: usize,
    place: usize,
}

#[derive(Debug, Default)]
struct Group {
    heads: Vec<u128>,
    places: Vec<Place>,
}

#[derive(Debug)]
pub(super) struct Directory {
    firsts: Vec<u128>,
    groups: Vec<Group>,
}

/// The first sixteen bytes, in the order of keys: zeros stand behind a shorter one, which may make two of them equal.
fn head(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let n = key.len().min(16);
    bytes[..n].copy_from_slice(&key[..n]);
    u128::from_be_bytes(bytes)
}

/// How many come before, of those whose heads these are: all below the head and, of the head, some first ones.
fn count_before<T>(heads: &[u128], of: &[T], head: u128, is_before: impl Fn(&T) -> bool) -> usize {
    let from = heads.partition_point(|other| *other < head);
    let alike = heads[from..].partition_point(|other| *other == head);
    from + of[from..from + alike].partition_point(is_before)
}

impl Group {
    fn insert(&mut self, at: usize, head: u128, place: Place) {
        self.heads.insert(at, head);
        self.places.insert(at, place);
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self { heads: self.heads.split_off(at), places: self.places.split_off(at) }
    }
}

impl Directory {
    pub fn new() -> Self {
        let mut group = Group::default();
        group.insert(0, 0, Place { low: Box::from([]), leaf: Latched::default() });
        Self { firsts: vec![0], groups: vec![group] }
    }

    /// The leaf that has `key`.
    pub fn at(&self, key: &[u8]) -> At {
        self.last_where(head(key), |low| low <= key).expect("a leaf of the empty key")
    }

    /// The last leaf that begins below the bound.
    pub fn below(&self, bound: Bound<&[u8]>) -> Option<At> {
        match bound {
            Bound::Unbounded => {
                let group = self.groups.len() - 1;
                Some(At { group, place: self.groups[group].places.len() - 1 })
            }
            Bound::Included(key) => Some(self.at(key)),
            Bound::Excluded(key) => self.last_where(head(key), |low| low < key),
        }
    }

    /// The leaf so many behind another one.
    pub fn behind(&self, at: At, count: usize) -> Option<At> {
        let (mut group, mut place) = (at.group, at.place + count);
        while place >= self.groups.get(group)?.places.len() {
            place -= self.groups[group].places.len();
            group += 1;
        }
        Some(At { group, place })
    }

    /// How many leaves further `to` is.
    pub fn steps(&self, from: At, to: At) -> usize {
        let passed: usize = self.groups[from.group..to.group].iter().map(|group| group.places.len()).sum();
        passed + to.place - from.place
    }

    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        self.groups.iter().flat_map(|group| &group.places)
    }

    /// The leaf that begins at `low`.
    pub fn get(&self, low: &[u8]) -> Option<At> {
        Some(self.at(low)).filter(|at| &*self[*at].low == low)
    }

    /// A new leaf; none begins at `low`.
    pub fn insert(&mut self, low: Box<[u8]>, leaf: Latched) {
        let head = head(&low);
        let At { mut group, place } = self.at(&low);
        let mut at = place + 1;
        if self.groups[group].places.len() == GROUP_MAX {
            // Keys that ascend leave full groups behind them.
            let is_end = at == GROUP_MAX && group + 1 == self.groups.len();
            let cut = if is_end { GROUP_MAX } else { GROUP_MAX / 2 };
            let behind = self.groups[group].split_off(cut);
            self.firsts.insert(group + 1, behind.heads.first().copied().unwrap_or(head));
            self.groups.insert(group + 1, behind);
            if at > cut || is_end {
                (group, at) = (group + 1, at - cut);
            }
        }
        self.groups[group].insert(at, head, Place { low, leaf });
    }

    /// The last of those of which `is_before` says so: of all below the head and, of the head, of some first ones.
    fn last_where(&self, head: u128, is_before: impl Fn(&[u8]) -> bool) -> Option<At> {
        let begins_before = |group: &Group| is_before(&group.places[0].low);
        let group = count_before(&self.firsts, &self.groups, head, begins_before).checked_sub(1)?;
        let Group { heads, places } = &self.groups[group];
        let place = count_before(heads, places, head, |place| is_before(&place.low)) - 1;
        Some(At { group, place })
    }
}

impl Index<At> for Directory {
    type Output = Place;

    fn index(&self, At { group, place }: At) -> &Place {
        &self.groups[group].places[place]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use vfs::random::Rng;

    use super::*;

    /// Keys that share heads, that are shorter than one, and that end in zeros.
    fn key(rng: &mut Rng) -> Vec<u8> {
        let front: &[u8] = [&b""[..], b"\0", b"1234567812345678", b"12345678123456789", &[255; 16]][rng.index(5)];
        let behind = (0..rng.index(4)).map(|_| [0, 1, 255][rng.index(3)]);
        front.iter().copied().chain(behind).collect()
    }

    /// What a directory says of `key`, and of the way from the leaf that has it to all others.
    fn check(directory: &Directory, model: &BTreeMap<Vec<u8>, ()>, key: &[u8]) {
        let upto = |bound| model.range::<[u8], _>((Bound::Unbounded, bound)).next_back().map(|(low, ())| &**low);
        let found = |at: Option<At>| at.map(|at| &*directory[at].low);
        for bound in [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded] {
            assert_eq!(found(directory.below(bound)), upto(bound));
        }
        let low = upto(Bound::Included(key)).expect("the empty key");
        let at = directory.at(key);
        assert_eq!(&*directory[at].low, low);
        assert_eq!(directory.get(key).is_some(), model.contains_key(key));
        let from = model.range::<[u8], _>((Bound::Included(low), Bound::Unbounded)).map(|(low, ())| &**low);
        let mut count = 0;
        for (steps, low) in from.enumerate() {
            let behind = directory.behind(at, steps);
            assert_eq!(found(behind), Some(low));
            assert_eq!(behind.map(|behind| directory.steps(at, behind)), Some(steps));
            count = steps + 1;
        }
        assert_eq!(directory.behind(at, count), None);
    }

    #[test]
    fn it_is_an_ordered_map() {
        let mut rng = Rng::new(7);
        for round in 0..50 {
            let (mut directory, mut model) = (Directory::new(), BTreeMap::from([(Vec::new(), ())]));
            for _ in 0..rng.index(80) {
                let low = key(&mut rng);
                if model.insert(low.clone(), ()).is_none() {
                    directory.insert(low.into(), Latched::default());
                }
            }
            // So many that groups are cut: in no order, or each behind all others.
            for n in 0..rng.index(2) as u64 * 700 {
                let n = if round % 4 < 2 { n } else { n.wrapping_mul(0x9E37_79B9_7F4A_7C15) };
                let low = [&[255; 18][..if round % 2 == 0 { 18 } else { 0 }], &n.to_be_bytes()].concat();
                if model.insert(low.clone(), ()).is_none() {
                    directory.insert(low.into(), Latched::default());
                }
            }
            let lows: Vec<_> = directory.iter().map(|place| &*place.low).collect();
            assert_eq!(lows, model.keys().collect::<Vec<_>>());
            for _ in 0..20 {
                check(&directory, &model, &key(&mut rng));
            }
            for low in model.keys().step_by(model.len() / 20 + 1) {
                check(&directory, &model, low);
            }
        }
    }
}
