//! A comparison for a CI system: JUnit XML, and lines that annotate a build.

use lab_measure::judge::Verdict;

use super::Line;
use super::printed::sentence;
use crate::outcome::Failure;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// One suite a pair of sides, one case a number of a step: worse fails, unclear is skipped. Conditions of `--fail-on` are a
/// suite of their own with one case.
pub fn junit(lines: &[Line], verdict: &Result<(), Failure>) -> String {
    let mut suites: Vec<(String, Vec<&Line>)> = Vec::new();
    for line in lines {
        let name = format!("{} by {}", line.target, line.base);
        match suites.iter_mut().find(|(known, _)| *known == name) {
            Some((_, of_suite)) => of_suite.push(line),
            None => suites.push((name, vec![line])),
        }
    }
    let failures = |of_suite: &[&Line]| of_suite.iter().filter(|line| line.verdict == Verdict::Worse).count();
    let skipped = |of_suite: &[&Line]| of_suite.iter().filter(|line| line.verdict == Verdict::Unclear).count();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (name, of_suite) in &suites {
        out.push_str(&format!(
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
            escaped(name),
            of_suite.len(),
            failures(of_suite),
            skipped(of_suite)
        ));
        for line in of_suite {
            let case = format!("{} {}", line.step, line.metric);
            let text = escaped(&sentence(line));
            let within = match line.verdict {
                Verdict::Worse => format!("<failure message=\"{text}\"/>"),
                Verdict::Unclear => format!("<skipped message=\"{text}\"/>"),
                Verdict::Better | Verdict::Same => format!("<system-out>{text}</system-out>"),
            };
            out.push_str(&format!(
                "    <testcase classname=\"{}\" name=\"{}\">{within}</testcase>\n",
                escaped(name),
                escaped(&case)
            ));
        }
        out.push_str("  </testsuite>\n");
    }
    let failed = verdict.as_ref().err().map(ToString::to_string);
    out.push_str(&format!(
        "  <testsuite name=\"conditions\" tests=\"1\" failures=\"{}\">\n    <testcase classname=\"conditions\" name=\"fail-on\">{}</testcase>\n  </testsuite>\n",
        usize::from(failed.is_some()),
        failed.map(|text| format!("<failure message=\"{}\"/>", escaped(&text).replace('\n', "&#10;"))).unwrap_or_default()
    ));
    out + "</testsuites>\n"
}

/// Workflow commands: an error for each condition that was exceeded, a warning for each number that is worse, a notice for
/// each that is better.
pub fn annotations(lines: &[Line], verdict: &Result<(), Failure>) -> String {
    let one_line = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let mut out = String::new();
    if let Err(failure) = verdict {
        out.push_str(&format!("::error title=lab compare::{}\n", one_line(&failure.to_string())));
    }
    for line in lines {
        let command = match line.verdict {
            Verdict::Worse => "warning",
            Verdict::Better => "notice",
            Verdict::Same | Verdict::Unclear => continue,
        };
        out.push_str(&format!("::{command} title={} {}::{}\n", line.step, line.metric, one_line(&sentence(line))));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(metric: &'static str, verdict: Verdict) -> Line {
        Line {
            base: "a<b".into(),
            target: "c&d".into(),
            tables: 1,
            clients: 1,
            step: "l.i1".into(),
            metric,
            base_repeats: 5,
            repeats: 5,
            base_mean: Some(1.0),
            mean: Some(2.0),
            ratio: Some(2.0),
            ratio_low: Some(1.9),
            ratio_high: Some(2.1),
            p: Some(0.001),
            verdict,
        }
    }

    #[test]
    fn worse_fails_unclear_is_skipped_and_names_are_escaped() {
        let lines = [line("p99_us", Verdict::Worse), line("ips_av", Verdict::Unclear), line("qps_av", Verdict::Better)];
        let text = junit(&lines, &Err(Failure::Regression("beyond 'x<1%'\nand more".into())));
        assert!(text.contains("name=\"c&amp;d by a&lt;b\" tests=\"3\" failures=\"1\" skipped=\"1\""), "{text}");
        assert!(text.contains("<failure message=\"beyond 'x&lt;1%'&#10;and more\"/>"), "{text}");
        assert!(!junit(&lines[2..], &Ok(())).contains("<failure"));
        let text = annotations(&lines, &Err(Failure::Regression("1%\n2".into())));
        let commands: Vec<&str> = text.lines().map(|line| line.split("::").nth(1).unwrap_or_default()).collect();
        assert_eq!(commands, ["error title=lab compare", "warning title=l.i1 p99_us", "notice title=l.i1 qps_av"]);
        assert!(text.contains("::1%25%0A2\n"), "{text}");
    }
}
