//! What somebody may have meant.

/// How many letters have to be changed, left out or added; two neighbours that changed places are one change.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut rows = vec![(0..=right.len()).collect::<Vec<usize>>()];
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let mut least = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

/// The known name that is nearest, if it is near: a third of its letters may differ.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let with_distance = known.iter().map(|name| (distance(&word.to_lowercase(), &name.to_lowercase()), *name));
    let (letters, name) = with_distance.min()?;
    (letters <= (name.chars().count().max(word.chars().count()) / 3).max(1)).then_some(name)
}

/// `did you mean …?`, or all there are.
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "there are none".into(),
        None => format!("there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["settle", "scan.pk1", "trefoil", "rows"];
        for (word, meant) in [("setlte", "settle"), ("scan.pk", "scan.pk1"), ("Trefoli", "trefoil"), ("row", "rows")] {
            assert_eq!(nearest(word, &known), Some(meant), "{word}");
        }
        assert_eq!(nearest("postgres", &known), None);
        assert_eq!(did_you_mean("x", &["a long name", "b long name"]), "there are a long name, b long name");
        assert_eq!((distance("ab", "ba"), distance("", "abc"), distance("same", "same")), (1, 3, 0));
    }
}
