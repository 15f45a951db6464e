//! How a rate went through a step: its mean in each tenth, and what so many of the seconds reach.

use lab_measure::Kind;
use lab_measure::formula::rate_percentile;

use crate::html::{Table, rate};
use crate::lines::Lines;

/// Seconds below which a tenth is none.
pub(crate) const LEAST_SECS: usize = 10;
/// Rates that so many percent of the seconds reach.
const PERCENTS: [f64; 5] = [50.0, 75.0, 90.0, 95.0, 99.0];

/// The tables of a step, one for each kind of statement; nothing for steps of less than ten complete seconds.
#[must_use]
pub fn part(lines: &Lines<'_>, step: &str) -> String {
    let mut out = String::new();
    for kind in [Kind::Query, Kind::Insert, Kind::Delete] {
        let mut rows = Vec::new();
        for (line, entry) in lines.with(step) {
            let secs = entry.record.result.throughput.secs.unwrap_or(0.0) as usize;
            let Some(series) = entry.record.series_of(kind) else { continue };
            let counts = &series.counts[..secs.min(series.counts.len())];
            if counts.len() >= LEAST_SECS {
                rows.push((line.name.clone(), cells(counts)));
            }
        }
        if rows.is_empty() {
            continue;
        }
        let headings: Vec<String> = std::iter::once("target".to_owned()).chain(headings()).collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let caption = format!("{} in each tenth of the step, and in most of its seconds", unit(kind));
        let mut table = Table::new(&caption, &headings);
        rows.into_iter().for_each(|(name, cells)| table.plain_row(&name, cells));
        out.push_str(&table.finished());
    }
    out
}

/// What is counted a second.
pub(crate) fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Query => "queries/s",
        Kind::Insert => "inserts/s",
        Kind::Delete => "deletes/s",
    }
}

/// Of [`cells`].
pub(crate) fn headings() -> impl Iterator<Item = String> {
    let tenths = (1..=10).map(|tenth| format!("{tenth}/10"));
    tenths.chain(PERCENTS.map(|percent| format!("{percent} % reach")))
}

/// A series of at least ten seconds.
pub(crate) fn cells(counts: &[u64]) -> Vec<String> {
    let low = PERCENTS.map(|percent| rate_percentile(counts, percent).map(rate).unwrap_or_default());
    means(counts).map(rate).into_iter().chain(low).collect()
}

/// Means of ten parts of a series of at least ten seconds, which differ by a second at most.
fn means(counts: &[u64]) -> [f64; 10] {
    std::array::from_fn(|tenth| {
        let part = &counts[tenth * counts.len() / 10..(tenth + 1) * counts.len() / 10];
        part.iter().sum::<u64>() as f64 / part.len() as f64
    })
}

#[cfg(test)]
mod tests {
    use super::means;

    #[test]
    fn every_second_is_in_one_tenth() {
        let counts: Vec<u64> = (0..25).collect();
        let found = means(&counts);
        assert_eq!((found[0], found[1], found[9]), (0.5, 3.0, 23.0));
        assert_eq!(means(&[7; 10]), [7.0; 10]);
    }
}
