//! What a look at the lock table for an area finds.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::BTreeMap;
use std::time::Duration;

use base::{IndexId, TxnId};
use trefoil_txn::{LockOutcome, LockOwner, LockRequest, Locks, Mode};
use vfs::random::Rng;

const INDEXES: u32 = 20;
const KEYS: u64 = 400;

fn key(n: u64) -> Vec<u8> {
    format!("key {n:04}").into_bytes()
}

/// Whoever has locked something in the area, in this index, is found, and nobody else; also where others come and go, and numbers of indexes that are counted
/// together. Guards: entries are counted when they come and when they go; what is vacant is not one of them.
#[test]
fn who_has_locked_something_in_an_area_is_found() {
    let mut rng = Rng::new(17);
    let locks = Locks::new();
    let mut owners: Vec<_> = (1..=4).map(|n| LockOwner::new(TxnId(n))).collect();
    // Who has which keys, exclusively.
    let mut held: BTreeMap<(u32, Vec<u8>), usize> = BTreeMap::new();
    for round in 0..20_000 {
        let who = rng.index(owners.len());
        match rng.below(400) {
            0 => {
                locks.release_all(&mut owners[who], None);
                held.retain(|_, owner| *owner != who);
            }
            1..20 => {
                let (index, low) = (rng.below(u64::from(INDEXES)) as u32, rng.below(KEYS));
                let (low, high) = (key(low), key(low + rng.below(100)));
                let (found, _) = locks.others_in(&owners[who], IndexId(index), (&low, Some(&high)));
                let in_area = held.range((index, low.clone())..(index, high.clone()).max((index, low)));
                let expected: Vec<_> = in_area.filter(|(_, owner)| **owner != who).map(|((_, key), _)| key).collect();
                assert_eq!(found.iter().collect::<Vec<_>>(), expected, "round {round}");
            }
            _ => {
                let (index, key) = (rng.below(u64::from(INDEXES)) as u32, key(rng.below(KEYS)));
                let timeout = Some(Duration::ZERO);
                let request =
                    LockRequest { index: IndexId(index), key: &key, mode: Mode::Exclusive, timeout, weight: 0 };
                let outcome = locks.lock(&mut owners[who], &request);
                let is_free = held.get(&(index, key.clone())).is_none_or(|owner| *owner == who);
                assert_eq!(matches!(outcome, LockOutcome::Granted { .. }), is_free);
                if is_free {
                    held.insert((index, key), who);
                }
            }
        }
    }
    owners.iter_mut().for_each(|owner| locks.release_all(owner, None));
}
