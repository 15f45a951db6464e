//! Which runs are merged next: a pure function of what is known of them.
//!
//! The shape is lazy: one large run at the bottom, above it levels of at most three runs, each level of larger ones. So what is
//! ingested is written once for each level and, with the bottom, about as often as the bottom is larger than what lies above it may be;
//! and there are few runs to look at for one key.
//!
//! In this order:
//! 1. Deletes: if what is deleted is much of what lives, and everybody sees it, what everybody sees is merged, and both are gone.
//! 2. Four runs or more above the bottom that together have a third of what it has: everything is merged.
//! 3. Four runs of one level above the bottom: they become one of the next level. The lowest level first: it fills fastest.
//!
//! Runs of a merge under way are left out; while it is one of the bottom only (3) is chosen, so that runs do not pile up meanwhile.

/// Runs of a level that are merged.
const LEVEL_RUNS: usize = 4;
/// What lies above the bottom may have one in so many bytes of what the bottom has.
const UPPER_SHARE: u64 = 3;
/// Deleted keys, or versions beside the newest, for one live one: one in so many.
const DEAD_SHARE: u64 = 4;

/// What the choice goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub level: u8,
    pub bytes: u64,
    pub entries: u64,
    pub live: u64,
    /// Everybody sees all of it, and nothing older lies outside of such runs, or comes.
    pub is_settled: bool,
    /// A merge has it.
    pub is_busy: bool,
}

/// What is to be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Which of the candidates, ascending.
    pub inputs: Vec<usize>,
    /// Of the run that they become.
    pub level: u8,
}

/// The next merge; none if everything is in shape.
pub(crate) fn choose(runs: &[Candidate]) -> Option<Choice> {
    let bottom = (0..runs.len()).max_by_key(|i| (runs[*i].bytes, *i))?;
    let is_free = runs.iter().all(|run| !run.is_busy);
    let upper: u64 = runs.iter().map(|run| run.bytes).sum::<u64>() - runs[bottom].bytes;
    let to_bottom = |inputs: Vec<usize>| {
        let highest = (0..runs.len()).filter(|i| *i != bottom).map(|i| runs[i].level).max();
        let level = highest.map_or(0, |level| level.saturating_add(1)).max(runs[bottom].level).max(1);
        Some(Choice { inputs, level })
    };
    if is_free && runs[bottom].is_settled && is_mostly_dead(runs) {
        return to_bottom((0..runs.len()).filter(|i| runs[*i].is_settled).collect());
    }
    if is_free && runs.len() > LEVEL_RUNS && upper.saturating_mul(UPPER_SHARE) >= runs[bottom].bytes {
        return to_bottom((0..runs.len()).collect());
    }
    let mut levels: Vec<u8> = runs.iter().map(|run| run.level).collect();
    levels.sort_unstable();
    levels.dedup();
    levels.into_iter().find_map(|level| {
        let is_in = |i: &usize| *i != bottom && runs[*i].level == level && !runs[*i].is_busy;
        let inputs: Vec<_> = (0..runs.len()).filter(is_in).collect();
        (inputs.len() >= LEVEL_RUNS).then(|| Choice { inputs, level: level.saturating_add(1) })
    })
}

/// Bytes of runs that lie on a level beyond twice as many as are merged: what readers wait for.
pub(crate) fn debt(runs: impl Iterator<Item = (u8, u64)>) -> u64 {
    let mut seen: Vec<(u8, usize)> = Vec::new();
    let is_beyond = |(level, bytes): (u8, u64)| {
        let at = seen.iter().position(|(other, _)| *other == level).unwrap_or_else(|| {
            seen.push((level, 0));
            seen.len() - 1
        });
        seen[at].1 += 1;
        (seen[at].1 > 2 * LEVEL_RUNS).then_some(bytes)
    };
    runs.filter_map(is_beyond).sum()
}

fn is_mostly_dead(runs: &[Candidate]) -> bool {
    let live: u64 = runs.iter().map(|run| run.live).sum();
    // Of the runs whose dead versions can be collected.
    let dead: u64 = runs.iter().filter(|run| run.is_settled).map(|run| run.entries - run.live).sum();
    dead > 0 && dead.saturating_mul(DEAD_SHARE) >= live
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(level: u8, bytes: u64) -> Candidate {
        Candidate { level, bytes, entries: bytes, live: bytes, is_settled: true, is_busy: false }
    }

    /// A drawing of the runs with what is chosen: `level:bytes`, `*` for an input, and the level of what comes of it.
    fn drawn(runs: &[Candidate]) -> String {
        let choice = choose(runs);
        let is_input = |i| choice.as_ref().is_some_and(|choice| choice.inputs.contains(&i));
        let mut words: Vec<String> = runs
            .iter()
            .enumerate()
            .map(|(i, run)| format!("{}{}:{}", if is_input(i) { "*" } else { "" }, run.level, run.bytes))
            .collect();
        if let Some(choice) = &choice {
            words.push(format!("-> {}", choice.level));
        }
        words.join(" ")
    }

    #[test]
    fn a_few_runs_are_left_alone() {
        assert_eq!(choose(&[]), None);
        assert_eq!(drawn(&[run(0, 10)]), "0:10");
        assert_eq!(drawn(&[run(0, 10), run(0, 10), run(0, 10), run(0, 10)]), "0:10 0:10 0:10 0:10");
    }

    #[test]
    fn a_level_becomes_one_run_of_the_next() {
        let runs = [run(0, 10), run(0, 10), run(0, 10), run(0, 10), run(1, 40), run(3, 2000)];
        assert_eq!(drawn(&runs), "*0:10 *0:10 *0:10 *0:10 1:40 3:2000 -> 1");
        let runs = [run(0, 10), run(1, 40), run(1, 40), run(1, 40), run(1, 40), run(3, 2000)];
        assert_eq!(drawn(&runs), "0:10 *1:40 *1:40 *1:40 *1:40 3:2000 -> 2");
    }

    #[test]
    fn the_bottom_is_merged_when_a_third_lies_above() {
        let runs = [run(0, 10), run(0, 10), run(0, 10), run(0, 10), run(2, 120)];
        assert_eq!(drawn(&runs), "*0:10 *0:10 *0:10 *0:10 *2:120 -> 2");
        let runs = [run(0, 10), run(0, 10), run(0, 10), run(0, 10), run(2, 121)];
        assert_eq!(drawn(&runs), "*0:10 *0:10 *0:10 *0:10 2:121 -> 1");
        let runs = [run(0, 10), run(0, 10), run(0, 10), run(2, 30)];
        assert_eq!(drawn(&runs), "0:10 0:10 0:10 2:30");
    }

    #[test]
    fn deletes_that_everybody_sees_call_for_a_merge() {
        let deletes = Candidate { live: 0, ..run(0, 30) };
        assert_eq!(drawn(&[deletes, run(1, 100)]), "*0:30 *1:100 -> 1");
        let unseen = Candidate { is_settled: false, ..deletes };
        assert_eq!(drawn(&[unseen, run(1, 100)]), "0:30 1:100");
        assert_eq!(drawn(&[unseen, deletes, run(1, 100)]), "0:30 *0:30 *1:100 -> 1", "without what comes in");
        let pinned = Candidate { is_settled: false, ..run(1, 100) };
        assert_eq!(drawn(&[deletes, pinned]), "0:30 1:100", "a dump reads what was deleted");
        assert_eq!(drawn(&[Candidate { live: 0, ..run(0, 5) }, run(1, 100)]), "0:5 1:100", "too few");
        assert_eq!(drawn(&[Candidate { live: 50, ..run(1, 100) }]), "*1:100 -> 1", "alone");
    }

    #[test]
    fn what_piles_up_is_a_debt() {
        assert_eq!(debt((0..8).map(|n| (0, n))), 0);
        assert_eq!(debt((0..10).map(|n| (0, n)).chain([(1, 100)])), 17);
    }

    #[test]
    fn while_the_bottom_is_merged_levels_are() {
        let busy = |run| Candidate { is_busy: true, ..run };
        let mut runs = vec![run(0, 10); 4];
        runs.extend([busy(run(0, 10)), busy(run(1, 40)), busy(run(2, 60))]);
        assert_eq!(drawn(&runs), "*0:10 *0:10 *0:10 *0:10 0:10 1:40 2:60 -> 1");
    }
}
