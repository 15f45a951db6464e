//! The conformance suite under test: the reference passes all of it, and each planted bug is found.

use trefoil_index::conformance::{Bench, checks, history, judge};

mod ranged;
mod reference;

use reference::Bug;

fn bench(bug: Bug) -> Bench {
    Bench::new(move |env, state| reference::open(env, state, bug))
}

mod sound {
    use super::{Bug, bench};

    trefoil_index::conformance_suite!(bench(Bug::None));
}

#[test]
fn every_planted_bug_is_found() {
    let checks = checks::all();
    let finds = |bug: Bug, name: &str| {
        let (_, check) = checks.iter().find(|(n, _)| *n == name).expect("a check of this name");
        judge(&bench(bug), *check).is_err()
    };
    let missed: Vec<_> = Bug::ALL.into_iter().filter(|(bug, name)| !finds(*bug, name)).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn random_histories_find_bugs_too() {
    for bug in [Bug::ReadsIgnoreRuns, Bug::GcForgetsSnapshots, Bug::SkipsRunsInMemory, Bug::EvictsDirty] {
        let failure = history::run_many(&bench(bug), 0..200).expect_err("the bug is found");
        assert!(failure.steps.len() <= 12 && failure.steps.len() < failure.drawn, "{bug:?}: {failure}");
    }
}

#[test]
fn a_failing_history_is_shrunk_and_drawn() {
    let failure = history::run_many(&bench(Bug::DrainLosesDeletes), 0..200).expect_err("the bug is found");
    assert!(failure.steps.len() <= 8, "{failure}");
    assert!(failure.steps.len() < failure.drawn, "{failure}");
    // Deletes come to a drain from a run, or from a range.
    let picture = failure.to_string();
    assert!(picture.contains("attach run") || picture.contains("delete k"), "{failure}");
    println!("{failure}");
}

#[test]
fn checks_have_names_of_their_own() {
    let mut names: Vec<_> = checks::all().into_iter().map(|(name, _)| name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
