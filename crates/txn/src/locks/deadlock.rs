//! Deadlocks: the search of the wait-for graph, and the choice of a victim (P2).
//!
//! The graph is not kept: edges are read from the queues. A waiter has edges to the owners that hold its lock in a
//! conflicting mode, and to earlier waiters that want a conflicting one. Steps, each time an owner starts to wait:
//! 1. it is in its queue and its signal says WAITING (published), fence;
//! 2. breadth-first search from it along owners that wait, taking one shard's latch at a time: the shortest cycle is
//!    found, so nobody is rolled back who only stood beside it;
//! 3. a cycle found is confirmed: every edge is read again, then every signal must be unchanged;
//! 4. the victim is the member with the smallest write set, the youngest among equals, never a prepared one. Its wait
//!    is ended; the search is repeated until no cycle is left or the searcher is the victim.
//!
//! Why every deadlock is found: an edge comes to be when its source starts to wait, when its target does so before it in
//! their queue, or when a running owner takes a lock somebody waits for. Of the members of a cycle, let the last to start
//! waiting search: all edges exist, because owners that wait take nothing, and by the fence of step 1 it sees that all
//! others wait. Two that start together: at least one sees the other.
//!
//! Why none is invented: in step 3 every member has been in one and the same wait since before the moment step 2
//! ended, so it has released and taken nothing; an edge that stands in step 3 stood at that moment.
//!
//! Which edges are walked: an exclusive waiter conflicts with all holders and all earlier waiters, and whatever these
//! earlier waiters wait for are again holders and earlier waiters. So only holders are walked, and earlier waiters
//! looked at only to see whether the searcher is among them. A shared waiter may stand behind others while the lock is held shared,
//! and one who adds while it is held by those who add: then the last of those who are in its way is walked too, and that one
//! conflicts with all holders. A queue of 48 on one hot row costs a search one latch and one look at its holder.
//!
//! The search can be turned off: deadlocks then end by timeout. Whoever turns it on again sets the flag, then searches from
//! all who wait. Who began to wait before that and saw the flag unset was in its queue first, so it is among them.
//!
//! Why no global graph under a mutex: it would be taken by every wait on every core (C9).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use base::TxnId;
use base::bytes::printable;
use vfs::random::HashSet;

use super::Locks;
use super::entry::Mode;
use super::listing::WaitEdge;
use super::owner::{OwnerState, Signal};

/// A cycle of transactions that wait for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// The transaction whose wait was ended.
    pub victim: TxnId,
    /// The cycle: the blocker of each is the waiter of the next.
    pub edges: Vec<WaitEdge>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadlock ended by rolling back transaction {}:", self.victim)?;
        for (i, edge) in self.edges.iter().enumerate() {
            let separator = if i == 0 { "" } else { ";" };
            let mode = match edge.mode {
                _ if edge.on_range => "range",
                Mode::Shared => "shared",
                Mode::Increment => "increment",
                Mode::Exclusive => "exclusive",
            };
            let WaitEdge { waiter, index, blocker, .. } = edge;
            let key = printable(&edge.key);
            write!(f, "{separator} {waiter} waits for {blocker} ({mode} lock on index {index} key {key})")?;
        }
        Ok(())
    }
}

/// A visited owner.
struct Node {
    owner: Arc<OwnerState>,
    /// Its wait when it was visited.
    during: Signal,
    /// Who led here; the start leads to itself.
    parent: usize,
}

/// Step 2 to 4: ends every deadlock that `start`, which has just begun to wait, closes.
pub(super) fn resolve(locks: &Locks, start: &Arc<OwnerState>) {
    // Partner: the same fence of another waiter; between `begin_wait` and the loads of signals.
    fence(Ordering::SeqCst);
    vfs::thread::point("locks.search");
    // Partner: the store in `search_deadlocks`; the shard's latch orders the queue before it.
    if !locks.searches.load(Ordering::Relaxed) {
        return;
    }
    while let Some(cycle) = find_cycle(locks, start) {
        let Some(mut deadlock) = confirm(locks, &cycle) else { continue };
        let candidates = cycle.iter().filter(|node| !node.owner.prepared.load(Ordering::Relaxed));
        let lightest = candidates.min_by_key(|n| (n.owner.weight.load(Ordering::Relaxed), u64::MAX - n.owner.txn.0));
        let victim = lightest.expect("a prepared transaction asks for no lock, so it is in no cycle");
        deadlock.victim = victim.owner.txn;
        victim.owner.condemn(victim.during, &deadlock, |deadlock| {
            locks.stats.deadlocks.fetch_add(1, Ordering::Relaxed);
            locks.deadlocks.keep(deadlock);
        });
        if Arc::ptr_eq(&victim.owner, start) {
            return;
        }
    }
}

impl Locks {
    /// Turns the search for deadlocks on, as it is at first, or off: then they last until one of their waits has a
    /// timeout. Once it is on again those that are there are ended.
    pub fn search_deadlocks(&self, on: bool) {
        if self.searches.swap(on, Ordering::SeqCst) || !on {
            return;
        }
        for slot in &self.shards {
            let waiting = |shard: &super::Shard| -> Vec<_> {
                shard.entries().flat_map(|entry| entry.waiters().map(|waiter| waiter.owner.clone())).collect()
            };
            let waiting = waiting(&slot.shard.lock());
            waiting.iter().filter(|owner| owner.is_waiting()).for_each(|owner| resolve(self, owner));
        }
    }
}

/// A cycle through `start`, from it on; none also if `start` no longer waits.
fn find_cycle(locks: &Locks, start: &Arc<OwnerState>) -> Option<Vec<Node>> {
    let mut nodes = vec![Node { owner: start.clone(), during: start.signal(), parent: 0 }];
    // By address: only looked up in, never walked.
    let mut visited = HashSet::default();
    visited.insert(Arc::as_ptr(start));
    let mut open = VecDeque::from([0]);
    while let Some(at) = open.pop_front() {
        let expansion = expand(locks, &nodes[at], start)?;
        if expansion.closes {
            return Some(trace(nodes, at));
        }
        vfs::thread::point("locks.expanded");
        for owner in expansion.next {
            if visited.insert(Arc::as_ptr(&owner)) {
                let during = owner.signal();
                nodes.push(Node { owner, during, parent: at });
                open.push_back(nodes.len() - 1);
            }
        }
    }
    None
}

struct Expansion {
    /// The node waits for the start itself.
    closes: bool,
    /// Waiting owners that it waits for.
    next: Vec<Arc<OwnerState>>,
}

/// What `node` waits for; nothing if its wait is over. `None` if it is the start whose wait is over.
fn expand(locks: &Locks, node: &Node, start: &Arc<OwnerState>) -> Option<Expansion> {
    let mut found = Expansion { closes: false, next: Vec::new() };
    let is_start = Arc::ptr_eq(&node.owner, start);
    let place = node.owner.place();
    let shard = locks.shard(place.shard).lock();
    let waits = node.during.state() == super::owner::State::Waiting && node.owner.signal() == node.during;
    let at = shard.try_entry(place.entry).and_then(|entry| entry.position(&node.owner)).filter(|_| waits);
    let Some(at) = at else { return if is_start { None } else { Some(found) } };
    let entry = shard.entry(place.entry);
    if !is_start && entry.blocks(at, start) {
        found.closes = true;
        return Some(found);
    }
    let mode = entry.waiters().nth(at).expect("position is in range").mode;
    let mut held = false;
    for (owner, _) in entry.holders().filter(|(o, held)| mode.conflicts(*held) && !Arc::ptr_eq(o, &node.owner)) {
        held = true;
        found.next.extend(Some(owner).filter(|owner| owner.is_waiting()).cloned());
    }
    if !held {
        let before = entry.waiters().take(at).filter(|w| mode.conflicts(w.mode) && w.owner.is_waiting());
        found.next.extend(before.last().map(|w| w.owner.clone()));
    }
    Some(found)
}

/// The path from the start to `last`.
fn trace(nodes: Vec<Node>, last: usize) -> Vec<Node> {
    let mut on_path = vec![last];
    while *on_path.last().expect("not empty") != 0 {
        on_path.push(nodes[*on_path.last().expect("not empty")].parent);
    }
    on_path.reverse();
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    on_path.into_iter().map(|at| nodes[at].take().expect("a path visits a node once")).collect()
}

/// Step 3: the cycle with its keys, if it stands. The victim is filled in by the caller.
fn confirm(locks: &Locks, cycle: &[Node]) -> Option<Deadlock> {
    vfs::thread::point("locks.confirm");
    let mut edges = Vec::with_capacity(cycle.len());
    for (i, node) in cycle.iter().enumerate() {
        let blocker = &cycle[(i + 1) % cycle.len()].owner;
        let place = node.owner.place();
        let shard = locks.shard(place.shard).lock();
        let entry = shard.try_entry(place.entry)?;
        let at = entry.position(&node.owner)?;
        if !entry.blocks(at, blocker) {
            return None;
        }
        edges.push(entry.edge(at, blocker));
    }
    let unchanged = cycle.iter().all(|node| node.owner.signal() == node.during);
    unchanged.then_some(Deadlock { victim: TxnId::ZERO, edges })
}
