//! What the progress line shows, once a second as Prometheus text: `metrics.prom` of a run under way, which `lab serve` hands
//! to a collector, and `--metrics FILE` for a collector of text files.
//!
//! The files are written whole and renamed into place. Totals are those of the step, so they begin at 0 with each step, as a
//! counter does whose process was started again.

use std::path::PathBuf;

use lab_workload::Tick;

/// What the numbers are of.
pub struct Labels<'a> {
    /// The target, by its name.
    pub target: &'a str,
    /// The step.
    pub step: &'a str,
    /// Tables, clients, repetition.
    pub case: [u32; 3],
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The text of one moment.
pub fn text(labels: &Labels<'_>, tick: &Tick) -> String {
    let [tables, clients, repeat] = labels.case;
    let common = format!(
        "target=\"{}\",step=\"{}\",tables=\"{tables}\",clients=\"{clients}\",repeat=\"{repeat}\"",
        escaped(labels.target),
        escaped(labels.step)
    );
    let mut out = String::new();
    let mut family = |name: &str, kind: &str, about: &str, samples: &[(&str, f64)]| {
        out.push_str(&format!("# HELP lab_{name} {about}\n# TYPE lab_{name} {kind}\n"));
        for (of, value) in samples {
            let of = if of.is_empty() { String::new() } else { format!(",kind=\"{of}\"") };
            out.push_str(&format!("lab_{name}{{{common}{of}}} {value}\n"));
        }
    };
    let kinds = ["insert", "delete", "query"];
    let by_kind = |values: [u64; 3], scale: f64| -> Vec<(&str, f64)> {
        kinds.iter().zip(values).map(|(kind, value)| (*kind, value as f64 * scale)).collect()
    };
    family(
        "operations_total",
        "counter",
        "Rows inserted, rows deleted and queries of the step.",
        &by_kind(tick.totals, 1.0),
    );
    family("worst_seconds", "gauge", "The slowest statement of the last second.", &by_kind(tick.worst_us, 1e-6));
    if let Some(us) = tick.p99_us {
        family("p99_seconds", "gauge", "99 % of the statements of the last second.", &[("", us as f64 * 1e-6)]);
    }
    family("stalls_total", "counter", "Spans of 50 ms and more without a completion.", &[("", tick.stalls as f64)]);
    family("step_seconds", "gauge", "Since the step began.", &[("", tick.elapsed_secs)]);
    family("step_done_ratio", "gauge", "Share of the step that is done.", &[("", tick.done)]);
    out
}

/// Writes the files; one that cannot be written does not end a run.
pub fn write(paths: &[PathBuf], text: &str) {
    for path in paths {
        let _ = crate::folder::write_whole(path, text);
    }
}

/// The value of the first sample of a family in such a text.
pub fn value_of(text: &str, name: &str) -> Option<f64> {
    let is_its = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
    text.lines().find(is_its)?.rsplit_once(' ')?.1.parse().ok()
}

/// The texts of several runs as one: each family once, a sample told from the others' by its run.
pub fn merged(texts: &[(String, String)]) -> String {
    let mut families: Vec<(String, String, String)> = Vec::new();
    for (run, text) in texts {
        let label = format!("run=\"{}\",", escaped(run));
        for line in text.lines() {
            let heading = line.strip_prefix("# ").and_then(|rest| rest.split(' ').nth(1));
            let name = heading.or_else(|| line.split('{').next()).unwrap_or_default();
            let place = families.iter().position(|(family, ..)| family == name).unwrap_or_else(|| {
                families.push((name.to_owned(), String::new(), String::new()));
                families.len() - 1
            });
            let (_, headings, samples) = &mut families[place];
            match heading {
                Some(_) if headings.lines().any(|other| other == line) => {}
                Some(_) => headings.push_str(&format!("{line}\n")),
                None => samples.push_str(&format!("{}\n", line.replacen('{', &format!("{{{label}"), 1))),
            }
        }
    }
    let mut out = format!("# HELP lab_runs Runs under way.\n# TYPE lab_runs gauge\nlab_runs {}\n", texts.len());
    families.iter().for_each(|(_, headings, samples)| out.push_str(&format!("{headings}{samples}")));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_has_its_labels_and_names_are_escaped() {
        let tick = Tick { totals: [7, 5, 3], worst_us: [2_000, 0, 1], p99_us: Some(1_500), ..Tick::default() };
        let labels = Labels { target: "a\"b\\c", step: "l.i1", case: [1, 2, 3] };
        let text = text(&labels, &tick);
        let sample = "lab_operations_total{target=\"a\\\"b\\\\c\",step=\"l.i1\",tables=\"1\",clients=\"2\",repeat=\"3\",kind=\"delete\"} 5\n";
        assert!(text.contains(sample), "{text}");
        assert!(text.contains("kind=\"insert\"} 0.002\n") && text.contains("lab_p99_seconds{"), "{text}");
        let of = |mark: &str| text.lines().filter(|line| line.starts_with(mark)).count();
        assert_eq!((of("# HELP"), of("# TYPE"), of("lab_")), (6, 6, 10));
        assert_eq!((value_of(&text, "lab_p99_seconds"), value_of(&text, "lab_p99")), (Some(0.0015), None));
    }

    #[test]
    fn two_runs_share_their_families_and_keep_their_samples_apart() {
        let labels = Labels { target: "model", step: "l.i0", case: [1, 1, 1] };
        let [one, two] = [4, 9].map(|rows| text(&labels, &Tick { totals: [rows, 0, 0], ..Tick::default() }));
        let merged = merged(&[("a\"b".into(), one), ("c".into(), two)]);
        let count = |mark: &str| merged.matches(mark).count();
        assert_eq!(
            (count("# TYPE lab_operations_total"), count("{run=\"a\\\"b\",target="), count("{run=\"c\",")),
            (1, 9, 9)
        );
        let lines: Vec<&str> = merged.lines().collect();
        let heading = lines.iter().position(|line| *line == "# TYPE lab_operations_total counter").unwrap();
        let of_family =
            lines[heading + 1..].iter().take_while(|line| line.starts_with("lab_operations_total{")).count();
        assert_eq!((of_family, lines[2]), (6, "lab_runs 2"));
        assert!(super::merged(&[]).ends_with("lab_runs 0\n"));
    }
}
