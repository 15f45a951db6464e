//! The least of several sources, found again with one comparison a level (Knuth, "The Art of Computer Programming", volume 3, 5.4.1).
//!
//! Sources play a knockout tournament: of two the one that comes before wins, and each match remembers who lost it. When the winner of all
//! has moved on, only his own matches are played anew, against those who lost them. A heap looks at two children on each level, and a
//! list at every source.
//!
//! What sources are, and which comes before, is the caller's; ties are won by either. One that has ended comes behind all others.
//!
//! Invariants, while nobody but the winner has moved on since the last [`LoserTree::replay`]: nobody comes before the winner; whoever comes
//! before all but him is among those who lost to him ([`LoserTree::beaten`]).

/// A tournament of sources `0..n`.
///
/// ```
/// use trefoil_index::loser_tree::LoserTree;
///
/// let mut lists = [vec![5, 2], vec![4, 1], vec![3]];
/// let before = |lists: &[Vec<i32>; 3], a: usize, b: usize| match (lists[a].last(), lists[b].last()) {
///     (Some(a), Some(b)) => a < b,
///     (a, _) => a.is_some(),
/// };
/// let mut tree = LoserTree::new(3, |a, b| before(&lists, a, b));
/// let mut merged = Vec::new();
/// while let Some(least) = tree.winner().and_then(|list| lists[list].pop()) {
///     merged.push(least);
///     tree.replay(|a, b| before(&lists, a, b));
/// }
/// assert_eq!(merged, [1, 2, 3, 4, 5]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct LoserTree {
    /// The winner, and of match `i` from 1 on who lost it. Match `i` is between the winners of `2 i` and `2 i + 1`, of which those from `n` on are
    /// the sources themselves: source `s` enters at `s + n`.
    places: Vec<u32>,
}

impl LoserTree {
    /// Of `count` sources; `before` says of two whether the first comes before the second.
    #[must_use]
    pub fn new(count: usize, before: impl Fn(usize, usize) -> bool) -> Self {
        let mut places = vec![0; count];
        // Winners of matches from `i` on; sources behind them.
        let mut winners: Vec<usize> = (0..2 * count).map(|place| place.saturating_sub(count)).collect();
        for i in (1..count).rev() {
            let (first, second) = (winners[2 * i], winners[2 * i + 1]);
            let (winner, loser) = if before(second, first) { (second, first) } else { (first, second) };
            (winners[i], places[i]) = (winner, loser as u32);
        }
        if let [place, ..] = &mut places[..] {
            *place = winners[1] as u32;
        }
        Self { places }
    }

    /// The source before which none comes; none if there are no sources. If all have ended it is one of these.
    #[must_use]
    #[inline]
    pub fn winner(&self) -> Option<usize> {
        self.places.first().map(|winner| *winner as usize)
    }

    /// The winner has moved on, or ended.
    #[inline]
    pub fn replay(&mut self, before: impl Fn(usize, usize) -> bool) {
        let Some(mut winner) = self.winner() else { return };
        let mut at = (winner + self.places.len()) / 2;
        while at > 0 {
            let other = self.places[at] as usize;
            if before(other, winner) {
                self.places[at] = winner as u32;
                winner = other;
            }
            at /= 2;
        }
        self.places[0] = winner as u32;
    }

    /// Those who lost to the winner. Of all others none comes before the first of these.
    #[inline]
    pub fn beaten(&self) -> impl Iterator<Item = usize> {
        let first = self.winner().map_or(0, |winner| (winner + self.places.len()) / 2);
        std::iter::successors(Some(first), |at| Some(at / 2))
            .take_while(|at| *at > 0)
            .map(|at| self.places[at] as usize)
    }
}

#[cfg(test)]
mod tests {
    use vfs::random::Rng;

    use super::*;

    /// Of any number of lists; after each step the winner is least, and the next one is among the beaten.
    #[test]
    fn the_least_comes_out_and_the_next_one_lost_to_it() {
        let mut rng = Rng::new(7);
        for count in (0..20).chain([33, 64, 100]) {
            let list = |rng: &mut Rng| {
                let mut list: Vec<u64> = (0..rng.below(12)).map(|_| rng.below(30)).collect();
                list.sort_by_key(|n| std::cmp::Reverse(*n));
                list
            };
            let mut lists: Vec<Vec<u64>> = (0..count).map(|_| list(&mut rng)).collect();
            let mut expected = lists.concat();
            expected.sort_unstable();
            let before = |lists: &[Vec<u64>], a: usize, b: usize| match (lists[a].last(), lists[b].last()) {
                (Some(a), Some(b)) => a < b,
                (a, _) => a.is_some(),
            };
            let mut tree = LoserTree::new(count, |a, b| before(&lists, a, b));
            for least in expected {
                let winner = tree.winner().expect("something is left");
                let next = (0..count).filter(|other| *other != winner).filter_map(|other| lists[other].last()).min();
                assert_eq!(tree.beaten().filter_map(|other| lists[other].last()).min(), next, "{count} lists");
                assert_eq!(lists[winner].pop(), Some(least), "{count} lists");
                tree.replay(|a, b| before(&lists, a, b));
            }
            assert!(tree.winner().is_none_or(|winner| lists[winner].is_empty()));
        }
    }

    /// The least of a thousand is found again by as many comparisons as there are levels.
    #[test]
    fn as_many_comparisons_as_levels() {
        let compared = std::cell::Cell::new(0);
        let mut heads: Vec<u64> = (0..1024).collect();
        let mut tree = LoserTree::new(heads.len(), |a, b| heads[a] < heads[b]);
        for _ in 0..5000 {
            let winner = tree.winner().expect("a thousand");
            heads[winner] += 1000;
            compared.set(0);
            tree.replay(|a, b| {
                compared.set(compared.get() + 1);
                heads[a] < heads[b]
            });
            assert_eq!(compared.get(), 10);
        }
    }
}
