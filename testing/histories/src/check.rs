//! What a history must keep, whatever the level; and the dependencies between its transactions.
//!
//! 1. What was rolled back is nowhere (G1a); of what a transaction wrote all is seen or nothing (G1b); nothing comes from
//!    nowhere.
//! 2. Every list that was ever seen is a beginning of the longest one, and begins with what was there at first. What was told to be committed is in it, once, and is
//!    still there afterwards. After a crash an end of the longest may be gone: of what was not told.
//! 3. The dependencies have no cycle that the level forbids.
//!
//! Reads of what the reader itself has written tell nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{self, Edge, Why};
use crate::record::{Id, Key, Level, Life, Op, Outcome, State, Txn};

/// Node of what was there before.
const BEFORE: usize = 0;

/// What a life was made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that committed.
    pub committed: usize,
    /// Dependencies between them.
    pub edges: usize,
    /// It has a cycle that the level allows.
    pub cycles: usize,
}

/// Checks one life at a level.
///
/// # Errors
/// What is wrong with it.
pub fn check(life: &Life, level: Level) -> Result<Counts, String> {
    let history = History::of(life)?;
    let edges = history.edges()?;
    let plain = |node: usize| node != BEFORE && is_snapshot(&life.txns[node - 1]);
    if let Some(cycle) = graph::forbidden(life.txns.len() + 1, &edges, level, &plain) {
        let told = cycle.iter().map(|(node, why)| match node {
            0 => format!("what was there before -{why:?}->"),
            n => format!("{:?} -{why:?}->", life.txns[n - 1]),
        });
        return Err(format!("a cycle that {level:?} forbids:\n{}", told.collect::<Vec<_>>().join("\n")));
    }
    let all = graph::forbidden(life.txns.len() + 1, &edges, Level::Serializable, &|_| true);
    let committed = history.is_committed.iter().filter(|is| **is).count();
    Ok(Counts { committed, edges: edges.len(), cycles: usize::from(all.is_some()) })
}

/// It read as of one moment, and did nothing else.
fn is_snapshot(txn: &Txn) -> bool {
    txn.plain && txn.ops.iter().all(|op| matches!(op, Op::Read { .. } | Op::Get { .. }))
}

struct History<'a> {
    life: &'a Life,
    /// Who appended or wrote it: a node.
    owner: BTreeMap<Id, usize>,
    /// What must be nowhere.
    never: BTreeSet<Id>,
    /// By transaction: it committed, as far as anybody can tell.
    is_committed: Vec<bool>,
    /// The longest that was seen of each list.
    orders: BTreeMap<Key, Vec<Id>>,
}

/// Reads of others' writes: reader, key and what was seen.
fn lists_seen(life: &Life) -> impl Iterator<Item = (usize, Key, &[Id])> {
    life.txns.iter().enumerate().flat_map(|(n, txn)| {
        let mut own = BTreeSet::new();
        txn.ops.iter().filter_map(move |op| match op {
            Op::Append { key, before, .. } => own.insert(*key).then_some((n + 1, *key, before.as_slice())),
            Op::Read { key, list } => (!own.contains(key)).then_some((n + 1, *key, list.as_slice())),
            Op::Write { .. } | Op::Get { .. } => None,
        })
    })
}

fn registers_seen(life: &Life) -> impl Iterator<Item = (usize, Key, Option<Id>)> {
    life.txns.iter().enumerate().flat_map(|(n, txn)| {
        let mut own = BTreeSet::new();
        txn.ops.iter().filter_map(move |op| match op {
            Op::Write { key, .. } => {
                own.insert(*key);
                None
            }
            Op::Get { key, id } => (!own.contains(key)).then_some((n + 1, *key, *id)),
            Op::Append { .. } | Op::Read { .. } => None,
        })
    })
}

/// What a transaction did to each list: ids in order.
fn appends(txn: &Txn) -> BTreeMap<Key, Vec<Id>> {
    let mut all: BTreeMap<Key, Vec<Id>> = BTreeMap::new();
    for op in &txn.ops {
        if let Op::Append { key, id, .. } = op {
            all.entry(*key).or_default().push(*id);
        }
    }
    all
}

/// What it left in each register.
fn writes(txn: &Txn) -> BTreeMap<Key, Id> {
    txn.ops.iter().filter_map(|op| if let Op::Write { key, id } = op { Some((*key, *id)) } else { None }).collect()
}

impl<'a> History<'a> {
    fn of(life: &'a Life) -> Result<Self, String> {
        let before = life.before.lists.values().flatten().chain(life.before.registers.values());
        let mut owner: BTreeMap<Id, usize> = before.map(|id| (*id, BEFORE)).collect();
        let mut never = BTreeSet::new();
        for (n, txn) in life.txns.iter().enumerate() {
            let ids = txn.ops.iter().filter_map(|op| match op {
                Op::Append { id, .. } | Op::Write { id, .. } => Some(*id),
                Op::Read { .. } | Op::Get { .. } => None,
            });
            for id in ids {
                owner.insert(id, n + 1);
                if txn.outcome == Outcome::RolledBack {
                    never.insert(id);
                }
            }
            never.extend(&txn.undone);
        }
        let mut history = Self { life, owner, never, is_committed: Vec::new(), orders: BTreeMap::new() };
        history.find_orders()?;
        history.find_committed()?;
        history.check_whole()?;
        history.check_after()?;
        Ok(history)
    }

    fn owner_of(&self, id: Id, by: usize) -> Result<usize, String> {
        if self.never.contains(&id) {
            return Err(format!("G1a: {by} saw {id}, which was rolled back"));
        }
        self.owner.get(&id).copied().ok_or_else(|| format!("{by} saw {id}, which nobody wrote"))
    }

    fn find_orders(&mut self) -> Result<(), String> {
        let stored = self.life.after.lists.iter().map(|(key, list)| (BEFORE, *key, list.as_slice()));
        let all: Vec<_> = stored.chain(lists_seen(self.life)).collect();
        for (_, key, list) in &all {
            let longest = self.orders.entry(*key).or_default();
            if list.len() > longest.len() {
                *longest = list.to_vec();
            }
        }
        for (by, key, list) in all {
            let order = &self.orders[&key];
            if !order.starts_with(list) {
                return Err(format!("list {key} has two orders: {by} saw {list:?}, another {order:?}"));
            }
            let before = self.life.before.lists.get(&key).map_or(&[][..], Vec::as_slice);
            if !list.starts_with(before) {
                return Err(format!("list {key} was {before:?} from the start: {by} saw {list:?}"));
            }
            list.iter().try_for_each(|id| self.owner_of(*id, by).map(|_| ()))?;
        }
        Ok(())
    }

    fn find_committed(&mut self) -> Result<(), String> {
        let life = self.life;
        let mut seen: BTreeSet<usize> = self.orders.values().flatten().map(|id| self.owner[id]).collect();
        let after = life.after.registers.values().map(|id| (BEFORE, *id));
        let read = registers_seen(life).filter_map(|(by, _, id)| id.map(|id| (by, id)));
        for (by, id) in after.chain(read) {
            seen.insert(self.owner_of(id, by)?);
        }
        let committed = |(n, txn): (usize, &Txn)| match txn.outcome {
            Outcome::Committed(_) => true,
            Outcome::RolledBack => false,
            Outcome::Unknown => seen.contains(&(n + 1)),
        };
        self.is_committed = life.txns.iter().enumerate().map(committed).collect();
        Ok(())
    }

    /// All or nothing of each transaction, in one piece, once.
    fn check_whole(&self) -> Result<(), String> {
        for (n, txn) in self.life.txns.iter().enumerate().filter(|(n, _)| self.is_committed[*n]) {
            for (key, ids) in appends(txn) {
                let order = self.orders.get(&key).map_or(&[][..], Vec::as_slice);
                let Some(at) = order.iter().position(|id| *id == ids[0]) else {
                    if txn.outcome == Outcome::Unknown && !self.survived(txn) {
                        // Seen, lost, and nobody had looked at this list.
                        continue;
                    }
                    return Err(format!("{ids:?} of list {key} was committed by {}, and is not in {order:?}", n + 1));
                };
                if order.get(at..at + ids.len()) != Some(ids.as_slice()) {
                    return Err(format!("{ids:?} was appended to list {key} in one piece, which is {order:?}"));
                }
            }
        }
        for (by, key, list) in lists_seen(self.life) {
            let (last, next) = (list.last(), self.orders[&key].get(list.len()));
            let Some((last, next)) = last.zip(next).map(|(last, next)| (self.owner[last], self.owner[next])) else {
                continue;
            };
            if last == next && last != BEFORE && last != by {
                return Err(format!("G1b: {by} saw {list:?} of list {key}, a part of what {last} appended"));
            }
        }
        for (by, key, id) in registers_seen(self.life) {
            let Some(id) = id else { continue };
            let owner = self.owner[&id];
            if owner != BEFORE && writes(&self.life.txns[owner - 1]).get(&key) != Some(&id) {
                return Err(format!("G1b: {by} saw {id} in register {key}, which was overwritten by its writer"));
            }
        }
        Ok(())
    }

    /// What was told to be committed is still there.
    fn check_after(&self) -> Result<(), String> {
        for (key, order) in &self.orders {
            let after = self.life.after.lists.get(key).map_or(&[][..], Vec::as_slice);
            for lost in &order[after.len()..] {
                let stays = match self.owner[lost] {
                    BEFORE => true,
                    n => self.counts(n) || self.survived(&self.life.txns[n - 1]),
                };
                if stays || !self.life.crashed {
                    return Err(format!("{lost} is lost: list {key} was {order:?} and is {after:?}"));
                }
            }
        }
        for key in self.life.txns.iter().flat_map(|txn| writes(txn).into_keys()).collect::<BTreeSet<_>>() {
            let after = self.life.after.registers.get(&key);
            let by = after.map_or(BEFORE, |id| self.owner[id]);
            if by != BEFORE && self.life.txns[by - 1].outcome == Outcome::Unknown {
                continue;
            }
            let newest =
                self.register_versions(key).last().map_or(self.life.before.registers.get(&key).copied(), |v| Some(v.1));
            if after.copied() != newest {
                return Err(format!("{newest:?} is lost: register {key} is {after:?}"));
            }
        }
        Ok(())
    }

    /// Something of it is there afterwards.
    fn survived(&self, txn: &Txn) -> bool {
        let State { lists, registers } = &self.life.after;
        let in_list = |(key, ids): (Key, Vec<Id>)| lists.get(&key).is_some_and(|list| list.contains(&ids[0]));
        let in_register = |(key, id): (Key, Id)| registers.get(&key) == Some(&id);
        appends(txn).into_iter().any(in_list) || writes(txn).into_iter().any(in_register)
    }

    /// What committed transactions left in a register, by commit timestamp; only those that know theirs.
    fn register_versions(&self, key: Key) -> Vec<(usize, Id)> {
        let of = |(n, txn): (usize, &Txn)| match (txn.outcome, writes(txn).get(&key)) {
            (Outcome::Committed(ts), Some(id)) => Some((ts, n + 1, *id)),
            _ => None,
        };
        let mut all: Vec<_> = self.life.txns.iter().enumerate().filter_map(of).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, n, id)| (n, id)).collect()
    }

    fn edges(&self) -> Result<Vec<Edge>, String> {
        let mut edges = Vec::new();
        for order in self.orders.values() {
            let owners: Vec<usize> = order.iter().map(|id| self.owner[id]).collect();
            edges.extend(owners.windows(2).map(|pair| (pair[0], pair[1], Why::Write)));
        }
        for (by, key, list) in lists_seen(self.life).filter(|(by, ..)| self.counts(*by)) {
            let wrote = list.last().map_or(BEFORE, |id| self.owner[id]);
            edges.push((wrote, by, Why::Read));
            if let Some(next) = self.orders.get(&key).and_then(|order| order.get(list.len())) {
                edges.push((by, self.owner[next], Why::AntiDependency));
            }
        }
        let keys: BTreeSet<Key> = registers_seen(self.life).map(|(_, key, _)| key).collect();
        for key in keys {
            let versions = self.register_versions(key);
            edges.extend(versions.windows(2).map(|pair| (pair[0].0, pair[1].0, Why::Write)));
            let is_known =
                self.life.txns.iter().all(|txn| txn.outcome != Outcome::Unknown || !writes(txn).contains_key(&key));
            for (by, _, id) in registers_seen(self.life).filter(|(by, of, _)| *of == key && self.counts(*by)) {
                let wrote = id.map_or(BEFORE, |id| self.owner[&id]);
                edges.push((wrote, by, Why::Read));
                let at = versions.iter().position(|(n, _)| *n == wrote).map_or(0, |at| at + 1);
                // Beside writers whose place is not known the next one is not known either.
                if let Some((next, _)) = versions.get(at).filter(|_| is_known) {
                    edges.push((by, *next, Why::AntiDependency));
                }
            }
        }
        self.order_by_time(&mut edges);
        edges.retain(|(from, to, _)| from != to);
        Ok(edges)
    }

    /// Its reads are of a transaction that was told to have committed: those of others may be of anything.
    fn counts(&self, node: usize) -> bool {
        matches!(self.life.txns[node - 1].outcome, Outcome::Committed(_))
    }

    fn order_by_time(&self, edges: &mut Vec<Edge>) {
        let told = |n: &usize| self.counts(*n + 1);
        for a in (0..self.life.txns.len()).filter(told) {
            for b in (0..self.life.txns.len()).filter(told) {
                if self.life.txns[a].ended < self.life.txns[b].began {
                    edges.push((a + 1, b + 1, Why::Time));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn txn(ops: Vec<Op>, outcome: Outcome) -> Txn {
        Txn { ops, undone: Vec::new(), outcome, xid: None, began: 0, ended: u64::MAX, plain: true }
    }

    fn append(key: Key, id: Id, before: &[Id]) -> Op {
        Op::Append { key, id, before: before.to_vec() }
    }

    fn read(key: Key, list: &[Id]) -> Op {
        Op::Read { key, list: list.to_vec() }
    }

    fn committed(ts: u64, ops: Vec<Op>) -> Txn {
        txn(ops, Outcome::Committed(ts))
    }

    fn life(txns: Vec<Txn>, lists: &[(Key, &[Id])]) -> Life {
        let lists = lists.iter().map(|(key, list)| (*key, list.to_vec())).collect();
        Life { txns, after: State { lists, ..State::default() }, ..Life::default() }
    }

    fn wrong(life: &Life, level: Level) -> String {
        check(life, level).expect_err("it is wrong")
    }

    #[test]
    fn a_sound_history_is_sound_at_every_level() {
        let a = committed(10, vec![append(1, 1, &[]), append(1, 2, &[1]), read(1, &[1, 2])]);
        let b = committed(20, vec![read(2, &[]), append(1, 3, &[1, 2]), Op::Write { key: 9, id: 4 }]);
        let c = txn(vec![append(1, 5, &[1, 2, 3])], Outcome::RolledBack);
        let mut sound = life(vec![a, b, c], &[(1, &[1, 2, 3])]);
        sound.after.registers.insert(9, 4);
        for level in [Level::ReadCommitted, Level::RepeatableRead, Level::Snapshot, Level::Serializable] {
            let counts = check(&sound, level).expect("sound");
            assert_eq!((counts.committed, counts.cycles), (2, 0));
        }
    }

    #[test]
    fn what_is_wrong_at_every_level_is_found() {
        let level = Level::ReadCommitted;
        let aborted = txn(vec![append(1, 1, &[])], Outcome::RolledBack);
        let reader = |list: &[Id]| committed(30, vec![read(1, list)]);
        assert!(wrong(&life(vec![aborted, reader(&[1])], &[]), level).contains("G1a"));
        let two = || committed(10, vec![append(1, 1, &[]), append(1, 2, &[1])]);
        assert!(wrong(&life(vec![two(), reader(&[1])], &[(1, &[1, 2])]), level).contains("G1b"));
        assert!(wrong(&life(vec![two(), reader(&[2, 1])], &[(1, &[1, 2])]), level).contains("two orders"));
        assert!(wrong(&life(vec![two()], &[]), level).contains("is not in"));
        assert!(wrong(&life(vec![two()], &[(1, &[1, 2, 7])]), level).contains("nobody wrote"));
        assert!(wrong(&life(vec![two(), reader(&[1, 2])], &[]), level).contains("is lost"));
        let mut undone = two();
        undone.undone = vec![8];
        assert!(wrong(&life(vec![undone, reader(&[1, 2, 8])], &[(1, &[1, 2])]), level).contains("G1a"));
        let mut stale = life(vec![reader(&[])], &[(1, &[5])]);
        stale.before = stale.after.clone();
        assert!(wrong(&stale, level).contains("from the start"));
        let write = |ts, id| committed(ts, vec![Op::Write { key: 3, id }]);
        let mut lost = life(vec![write(10, 1), write(20, 2)], &[]);
        lost.after.registers.insert(3, 1);
        assert!(wrong(&lost, level).contains("is lost: register"));
        let twice = committed(10, vec![Op::Write { key: 3, id: 1 }, Op::Write { key: 3, id: 2 }]);
        let mut middle = life(vec![twice, committed(20, vec![Op::Get { key: 3, id: Some(1) }])], &[]);
        middle.after.registers.insert(3, 2);
        assert!(wrong(&middle, level).contains("G1b"));
    }

    #[test]
    fn a_crash_may_take_what_was_not_told() {
        let unknown = || txn(vec![append(1, 1, &[]), append(2, 2, &[])], Outcome::Unknown);
        let mut crashed = life(vec![unknown(), committed(20, vec![read(1, &[1])])], &[]);
        assert!(wrong(&crashed, Level::ReadCommitted).contains("is lost"), "it did not crash");
        crashed.crashed = true;
        assert_eq!(check(&crashed, Level::Serializable).expect("sound").committed, 2);
        crashed.txns[0].outcome = Outcome::Committed(10);
        assert!(wrong(&crashed, Level::ReadCommitted).contains("was committed"), "it was told");
        let half = Life { crashed: true, ..life(vec![unknown()], &[(1, &[1])]) };
        assert!(wrong(&half, Level::ReadCommitted).contains("was committed"), "all of it is there, or nothing");
        let seen = vec![unknown(), committed(20, vec![read(2, &[2])])];
        let half = Life { crashed: true, ..life(seen, &[(1, &[1])]) };
        assert!(wrong(&half, Level::ReadCommitted).contains("is lost"), "seen, and half of it is there");
    }

    #[test]
    fn cycles_are_judged_by_level() {
        // Write skew: each appends where the other has read.
        let skew = |plain| {
            let mut txns = vec![
                committed(10, vec![read(2, &[]), append(1, 1, &[])]),
                committed(11, vec![read(1, &[]), append(2, 2, &[])]),
            ];
            txns.iter_mut().for_each(|txn| txn.plain = plain);
            life(txns, &[(1, &[1]), (2, &[2])])
        };
        assert_eq!(check(&skew(false), Level::Snapshot).expect("allowed").cycles, 1);
        assert!(wrong(&skew(false), Level::Serializable).contains("AntiDependency"));
        // A reader between the two appends of one transaction.
        let both = || committed(10, vec![append(1, 1, &[]), append(2, 2, &[])]);
        let torn = life(vec![both(), committed(0, vec![read(1, &[1]), read(2, &[])])], &[(1, &[1]), (2, &[2])]);
        assert_eq!(check(&torn, Level::ReadCommitted).expect("allowed").cycles, 1);
        assert!(wrong(&torn, Level::RepeatableRead).contains("forbids"));
        // It began after the other was told, and did not see it.
        let mut late = life(vec![both(), committed(0, vec![read(1, &[])])], &[(1, &[1]), (2, &[2])]);
        (late.txns[0].ended, late.txns[1].began) = (5, 6);
        assert!(wrong(&late, Level::RepeatableRead).contains("Time"));
    }
}
