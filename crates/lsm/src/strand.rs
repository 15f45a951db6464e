//! Strands: runs of one level that do not overlap, ascending.
//!
//! A level is a list of runs ordered by key, and as many strands as it takes to have no two runs of one overlap. Which runs make a strand
//! is nowhere written down, it follows from their keys: so any choice of merges is sound, and what a reader has to look at for one key
//! is one run of each strand, however the runs came to be.

use std::sync::Arc;

use base::CommitTs;

use crate::run::Run;

/// Runs of one level, none of which overlaps another; at least one.
#[derive(Debug, Clone)]
pub(crate) struct Strand {
    pub level: u8,
    /// Ascending.
    pub runs: Vec<Arc<Run>>,
    /// Of all of them.
    pub newest: CommitTs,
}

impl Strand {
    /// The run that may have `key`.
    pub fn run_of(&self, key: &[u8]) -> Option<&Arc<Run>> {
        let at = self.runs.partition_point(|run| *run.info.max_key < *key);
        self.runs.get(at).filter(|run| *run.info.min_key <= *key)
    }

    /// Bytes on disk.
    pub fn stored_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.info.stored_bytes).sum()
    }
}

/// The strands of some runs, the one with the highest timestamp first.
pub(crate) fn strands(runs: &[Arc<Run>]) -> Vec<Strand> {
    let mut levels: Vec<u8> = runs.iter().map(|run| run.info.level).collect();
    levels.sort_unstable();
    levels.dedup();
    let mut all = Vec::new();
    for level in levels {
        let of_level: Vec<_> = runs.iter().filter(|run| run.info.level == level).collect();
        let keys: Vec<_> = of_level.iter().map(|run| (&*run.info.min_key, &*run.info.max_key)).collect();
        for members in lay_apart(&keys) {
            let runs: Vec<_> = members.into_iter().map(|i| of_level[i].clone()).collect();
            let newest = runs.iter().map(|run| run.info.newest).max().expect("at least one");
            all.push(Strand { level, runs, newest });
        }
    }
    all.sort_by_key(|strand| std::cmp::Reverse(strand.newest));
    all
}

/// Ranges (first key, last key) in as few lists as have no overlap, each ascending: by their places.
pub(crate) fn lay_apart(keys: &[(&[u8], &[u8])]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|i| keys[*i]);
    let mut lists: Vec<Vec<usize>> = Vec::new();
    for i in order {
        match lists.iter_mut().find(|list| list.last().is_some_and(|last| keys[*last].1 < keys[i].0)) {
            Some(list) => list.push(i),
            None => lists.push(vec![i]),
        }
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::random::Rng;

    #[test]
    fn as_many_lists_as_ranges_lie_over_one_key() {
        let mut rng = Rng::new(9);
        for _ in 0..2000 {
            let ranges: Vec<([u8; 1], [u8; 1])> = (0..rng.below(12))
                .map(|_| {
                    let low = rng.below(40) as u8;
                    ([low], [low + rng.below(10) as u8])
                })
                .collect();
            let keys: Vec<(&[u8], &[u8])> = ranges.iter().map(|(low, high)| (&low[..], &high[..])).collect();
            let lists = lay_apart(&keys);
            let deepest = (0..50u8).map(|at| ranges.iter().filter(|(low, high)| low[0] <= at && at <= high[0]).count());
            assert_eq!(lists.len(), deepest.max().unwrap_or(0), "{ranges:?}");
            let mut all: Vec<usize> = lists.iter().flatten().copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..ranges.len()).collect::<Vec<_>>());
            for list in &lists {
                assert!(list.windows(2).all(|pair| keys[pair[0]].1 < keys[pair[1]].0), "{ranges:?}: {lists:?}");
            }
        }
    }
}
