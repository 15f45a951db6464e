//! Range locks under the deterministic simulator: nothing slips between a reader's publishing, probing and reading (A22).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use base::{IndexId, TxnId};
use trefoil_txn::{Ranges, SharedWriteSet, Writers};
use vfs::random::Rng;
use vfs::sim::{Config, Simulation};
use vfs::sync::Mutex;
use vfs::thread::{JoinHandle, spawn};

const INDEX: IndexId = IndexId(1);
const SEEDS: u64 = 600;

struct World {
    ranges: Ranges,
    writers: Writers,
    applied: Mutex<BTreeSet<Vec<u8>>>,
}

impl World {
    /// One look at a range, as a locking read takes it.
    fn look(&self, own: &Arc<SharedWriteSet>, low: u8, high: u8) -> BTreeSet<Vec<u8>> {
        let range = (Bound::Included(&[low][..]), Bound::Excluded(&[high][..]));
        self.ranges.lock(TxnId(1), range);
        vfs::thread::point("published");
        let mut seen: BTreeSet<_> =
            self.writers.pending(INDEX, range, own, 100, false).expect("memory").keys.into_iter().collect();
        vfs::thread::point("probed");
        seen.extend(self.applied.lock().range::<[u8], _>(range).cloned());
        seen
    }

    /// Writes a key, applies it and is gone; false if somebody's range is in the way.
    fn insert(&self, txn: u64, key: u8) -> bool {
        let (txn, set, key) = (TxnId(txn), Arc::new(SharedWriteSet::new()), [key]);
        self.writers.enter(txn, &set);
        let added = self.ranges.write(txn, &key, &set, |writes| {
            vfs::thread::point("admitted");
            writes.put(INDEX, &key, b"").map(drop).expect("put");
        });
        vfs::thread::point("written");
        if added.is_ok() {
            self.applied.lock().insert(key.to_vec());
            vfs::thread::point("applied");
        }
        self.writers.leave(txn, &set);
        added.is_ok()
    }
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    spawn(name, body).expect("thread")
}

/// Inserters that come and go beside a reader that takes its range in two pieces: what was admitted into a piece was seen by the
/// first look at it, and no later look sees more. Guard: `Ranges::write` asks under the mutex that the probe takes.
#[test]
fn a22_nothing_slips_between_publishing_and_reading() {
    for seed in 0..SEEDS {
        Simulation::new(seed, Config::default()).run(move |_| {
            let (ranges, writers, applied) = Default::default();
            let world = Arc::new(World { ranges, writers, applied });
            let admitted = Arc::new(Mutex::new(BTreeSet::new()));
            let mut rng = Rng::new(seed);
            let inserters: Vec<_> = (2..5u64)
                .map(|txn| {
                    let (world, admitted) = (world.clone(), admitted.clone());
                    let keys = [rng.below(20) as u8, rng.below(20) as u8];
                    start("inserter", move || {
                        for (n, key) in keys.into_iter().enumerate() {
                            if world.insert(10 * txn + n as u64, key) {
                                admitted.lock().insert(vec![key]);
                            }
                        }
                    })
                })
                .collect();
            let own = Arc::new(SharedWriteSet::new());
            let mut first = world.look(&own, 0, 10);
            first.extend(world.look(&own, 10, 20));
            inserters.into_iter().for_each(|thread| thread.join().expect("a panic ends the simulation"));
            assert_eq!(world.look(&own, 0, 20), first, "a phantom");
            assert!(admitted.lock().iter().all(|key| first.contains(key)));
            world.ranges.unlock(TxnId(1));
            assert!(world.insert(99, 7), "the range is gone");
        });
    }
}
