//! Cycles of dependencies.

use crate::record::Level;

/// Why one transaction comes after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It replaced what the other had written.
    Write,
    /// It read what the other had written.
    Read,
    /// It replaced what the other had read.
    AntiDependency,
    /// It began when the other had ended.
    Time,
}

/// A dependency: from, to, why.
pub type Edge = (usize, usize, Why);

/// A cycle that `level` forbids: nodes in order, each with why the next one comes after it.
///
/// READ COMMITTED forbids cycles without anti-dependencies (G0, G1c). REPEATABLE READ also those in which all
/// anti-dependencies are of transactions that only read a snapshot (`plain`). Snapshot isolation forbids every cycle in which
/// no two anti-dependencies follow each other (G-single among them; Fekete and others, "Making Snapshot Isolation
/// Serializable", 2005). SERIALIZABLE forbids all.
#[must_use]
pub fn forbidden(
    nodes: usize,
    edges: &[Edge],
    level: Level,
    plain: &dyn Fn(usize) -> bool,
) -> Option<Vec<(usize, Why)>> {
    let counts = |edge: &&Edge| match (level, edge.2) {
        (_, Why::Write | Why::Read | Why::Time) | (Level::Snapshot | Level::Serializable, _) => true,
        (Level::RepeatableRead, Why::AntiDependency) => plain(edge.0),
        (Level::ReadCommitted, Why::AntiDependency) => false,
    };
    // A place is a node and, under snapshot isolation, whether an anti-dependency led there: none may follow it then.
    let mut out = vec![Vec::new(); 2 * nodes];
    for &(from, to, why) in edges.iter().filter(counts) {
        let bent = level == Level::Snapshot && why == Why::AntiDependency;
        out[2 * from].push((2 * to + usize::from(bent), why));
        if !bent {
            out[2 * from + 1].push((2 * to, why));
        }
    }
    cycle(&out).map(|places| places.into_iter().map(|(place, why)| (place / 2, why)).collect())
}

/// Any cycle, by a depth-first search without recursion.
fn cycle(out: &[Vec<(usize, Why)>]) -> Option<Vec<(usize, Why)>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Colour {
        New,
        OnPath,
        Done,
    }
    let mut colours = vec![Colour::New; out.len()];
    for start in 0..out.len() {
        if colours[start] != Colour::New {
            continue;
        }
        // Each with the edge that is followed next.
        let mut path = vec![(start, 0)];
        colours[start] = Colour::OnPath;
        while let Some((place, next)) = path.last_mut() {
            let Some(&(to, _)) = out[*place].get(*next) else {
                colours[*place] = Colour::Done;
                path.pop();
                continue;
            };
            *next += 1;
            match colours[to] {
                Colour::New => {
                    colours[to] = Colour::OnPath;
                    path.push((to, 0));
                }
                Colour::OnPath => {
                    let first = path.iter().position(|(place, _)| *place == to).expect("it is on the path");
                    return Some(path[first..].iter().map(|&(place, next)| (place, out[place][next - 1].1)).collect());
                }
                Colour::Done => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: Why = Why::Write;
    const R: Why = Why::Read;
    const A: Why = Why::AntiDependency;

    /// Which levels forbid it, the first node being a plain reader.
    fn verdicts(edges: &[Edge]) -> [bool; 4] {
        [Level::ReadCommitted, Level::RepeatableRead, Level::Snapshot, Level::Serializable]
            .map(|level| forbidden(4, edges, level, &|node| node == 0).is_some())
    }

    #[test]
    fn levels_forbid_what_they_should() {
        assert_eq!(verdicts(&[(0, 1, W), (1, 2, R), (0, 2, A)]), [false; 4]);
        assert_eq!(verdicts(&[(0, 1, W), (1, 0, W)]), [true; 4], "G0");
        assert_eq!(verdicts(&[(0, 1, W), (1, 2, R), (2, 0, R)]), [true; 4], "G1c");
        assert_eq!(verdicts(&[(0, 1, A), (1, 0, R)]), [false, true, true, true], "G-single of a plain reader");
        assert_eq!(verdicts(&[(1, 2, A), (2, 1, W)]), [false, false, true, true], "a lost update");
        assert_eq!(verdicts(&[(1, 2, A), (2, 1, A)]), [false, false, false, true], "write skew");
        assert_eq!(
            verdicts(&[(1, 2, A), (2, 3, W), (3, 1, A)]),
            [false, false, false, true],
            "two that follow each other"
        );
        assert_eq!(verdicts(&[(1, 2, A), (2, 3, W), (3, 0, A), (0, 1, W)]), [false, false, true, true], "two apart");
        let path = forbidden(4, &[(3, 1, R), (1, 2, W), (2, 3, W)], Level::ReadCommitted, &|_| false).expect("a cycle");
        assert_eq!(path.len(), 3);
    }
}
