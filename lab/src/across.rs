//! What is said over several results: that all targets hold the same rows, and medians of repetitions.

use lab_measure::result::{Repeat, StepResult, median};

use crate::outcome::Failure;

/// The same plan and seed leave the same rows on every target.
pub fn compare_checksums(results: &[StepResult]) -> Result<(), Failure> {
    for (place, result) in results.iter().enumerate() {
        let same_step = |other: &&StepResult| (&other.step, other.case()) == (&result.step, result.case());
        for other in results[..place].iter().filter(same_step) {
            if let (Some(mine), Some(theirs)) = (&result.checksum, &other.checksum)
                && mine != theirs
            {
                return Err(Failure::Violated(format!(
                    "an invariant was violated: after {} `{}` holds other rows ({mine}) than `{}` ({theirs})",
                    result.step, result.target, other.target
                )));
            }
        }
    }
    Ok(())
}

/// All results, with medians behind the repetitions of each step.
pub fn with_medians(results: Vec<StepResult>, repeat: u32) -> Vec<StepResult> {
    if repeat < 2 {
        return results;
    }
    let key = |result: &StepResult| (result.target.clone(), result.case(), result.step.clone());
    let mut keys = Vec::new();
    for result in &results {
        if !keys.contains(&key(result)) {
            keys.push(key(result));
        }
    }
    let mut all = results;
    for wanted in keys {
        let group: Vec<StepResult> = all
            .iter()
            .filter(|result| key(result) == wanted && matches!(result.repeat, Repeat::Number(_)))
            .cloned()
            .collect();
        if group.len() > 1 {
            all.extend(median(&group));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(target: &str, step: &str, repeat: u32, checksum: Option<&str>) -> StepResult {
        StepResult {
            target: target.into(),
            step: step.into(),
            repeat: Repeat::Number(repeat),
            checksum: checksum.map(String::from),
            ..StepResult::default()
        }
    }

    #[test]
    fn other_rows_on_another_target_are_a_violation() {
        let same = [result("a", "l.i0", 1, Some("1")), result("b", "l.i0", 1, Some("1")), result("c", "l.i0", 1, None)];
        assert!(compare_checksums(&same).is_ok());
        let other =
            [result("a", "l.i0", 1, Some("1")), result("a", "l.i1", 1, Some("2")), result("b", "l.i1", 1, Some("3"))];
        let failure = compare_checksums(&other).unwrap_err();
        assert_eq!(failure.code(), crate::outcome::VIOLATED);
        assert!(failure.to_string().contains("after l.i1"), "{failure}");
    }

    #[test]
    fn medians_follow_the_repetitions() {
        let results = vec![result("a", "l.i0", 1, None), result("b", "l.i0", 1, None), result("a", "l.i0", 2, None)];
        let all = with_medians(results.clone(), 2);
        assert_eq!((all.len(), all[3].target.as_str()), (4, "a"));
        assert_eq!(with_medians(results, 1).len(), 3);
    }
}
