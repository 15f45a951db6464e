//! The page from a fixture: what it holds, that it is self-contained, and that a real browser draws it.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

use std::io::Write;
use std::process::Command;

use lab_measure::formula::Columns;
use lab_measure::record::{ClientRecord, StepRecord};
use lab_measure::recorder::KindTotals;
use lab_measure::stall::Span;
use lab_report::{Run, TargetInfo, page};

/// A step of a target that is `factor` times as fast as the base.
fn step(target: &str, name: &str, factor: f64, kept: bool) -> StepRecord {
    let is_query = name.starts_with('q');
    let mut record = StepRecord::default();
    let mut kinds = vec![("insert", 50_000.0 * factor)];
    if name != "l.i0" {
        kinds.push(("delete", 50_000.0 * factor));
    }
    if is_query {
        kinds.push(("query", 150_000.0 * factor));
        record.paced_at = Some(100);
    }
    for (kind, rate) in kinds {
        let mut totals = KindTotals::default();
        for second in 0..12u64 {
            for part in 0..10u64 {
                let ns = ((second * 37 + part * 11) % 97 + 1) * 20_000;
                totals.service.record(ns);
                totals.classes.record(ns);
                totals.series.record(second * 1_000_000_000 + part, rate as u64 / 10 + second * 100, ns);
            }
        }
        totals.intended = (is_query && kind == "insert").then(|| totals.service.clone());
        totals.statements = 120;
        record.series.insert(kind.into(), totals.series.clone());
        record.first_client.insert(kind.into(), totals.series.clone());
        record.histograms.insert(kind.into(), totals.kept());
    }
    record.stalls = vec![Span { from_ns: 1_000_000_000, to_ns: 1_080_000_000 }];
    record.clients = vec![ClientRecord::default(); 2];
    record.columns = Columns { ips: Some(50_000.0 * factor), tag: target.into(), ..Columns::default() };
    record.counters_before.insert("written.log".into(), 1 << 20);
    record.counters_after.insert("written.log".into(), 3 << 20);
    record.counters_after.insert("written.data".into(), 2 << 20);
    record.kernel.process_write_bytes = Some(5 << 20);
    record.notes = vec!["a <note> & more".into()];
    let result = &mut record.result;
    (result.target, result.step, result.clients, result.tables) = (target.into(), name.into(), 2, 2);
    result.throughput.secs = Some(12.0);
    result.throughput.ips_av = Some(if is_query { 200.0 * factor.min(1.0) } else { 50_000.0 * factor });
    result.throughput.qps_av = is_query.then_some(150_000.0 * factor);
    result.sla_met = is_query.then_some(kept);
    result.steadiness.stall_max_ms = Some(80.0);
    result.steadiness.min_key_ms = (name != "l.i0").then_some(0.4);
    result.steadiness.client_secs_min = Some(10.0);
    result.steadiness.client_secs_max = Some(11.0);
    result.steadiness.fairness_pct = Some(10.0);
    record
}

fn fixture() -> Run {
    let steps = ["l.i0", "l.i1", "qr100"];
    let targets = [("trefoil", 1.0, true), ("slow<er>", 0.5, false), ("faster", 1.5, true)];
    Run {
        name: "fixture".into(),
        rows: 10_000_000,
        state: "done".into(),
        command: "lab run ibench \"x\"".into(),
        targets: targets
            .iter()
            .map(|(text, ..)| TargetInfo { text: (*text).into(), ..TargetInfo::default() })
            .collect(),
        steps: targets
            .iter()
            .flat_map(|(target, factor, kept)| steps.map(|name| step(target, name, *factor, *kept)))
            .collect(),
        ..Run::default()
    }
}

#[test]
fn the_page_holds_every_part() {
    let html = page(&[fixture()]);
    for part in [
        "Insert benchmark: 10M docs and 2 client(s)",
        "Absolute: rows/s",
        "Relative to the first row",
        "Background inserts/s",
        "First look-up of the smallest key",
        "Fairness",
        "l.i1: continue load with 50 inserts per transaction",
        "qr100: range queries with 100 insert/s per client",
        "Response times: query",
        "from the intended start",
        "21 columns",
        "prefers-color-scheme: dark",
        "@media print",
        "Appendix",
        "Engine counters",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(html.contains("slow&lt;er&gt;") && !html.contains("slow<er>"));
    assert!(html.contains("a &lt;note&gt; &amp; more"));
    assert!(!html.contains("NaN") && !html.contains(">inf"));
}

#[test]
fn cells_are_coloured_by_the_rules() {
    let html = page(&[fixture()]);
    let row = |caption: &str, name: &str| {
        let table = html.split_once(caption).unwrap().1.split_once("</table>").unwrap().0;
        let name = format!("<th scope=\"row\">{name}</th>");
        table.split_once(&name).unwrap().1.split_once("</tr>").unwrap().0.to_owned()
    };
    // l.i0 and l.i1: 25k..75k, a quarter is 12.5k. In qr100 the slow one missed its rate, and is red before gray.
    assert_eq!(row("Absolute:", "slow&lt;er&gt;").matches("class=\"red\"").count(), 3);
    assert_eq!(row("Absolute:", "faster").matches("class=\"green\"").count(), 3);
    assert!(!row("Absolute:", "trefoil").contains("class"));
    assert_eq!(row("Relative to", "slow&lt;er&gt;").matches("class=\"yellow\">0.50").count(), 3);
    assert_eq!(row("Relative to", "faster").matches("class=\"blue\">1.50").count(), 3);
    assert!(row("Background", "slow&lt;er&gt;").contains("class=\"red\""));
    // 2 MiB of log and 2 MiB of data; the kernel counted 5 MiB.
    let written = row("Bytes written by cause", "trefoil");
    assert_eq!(written.matches("2.0\u{202f}MiB").count(), 2, "{written}");
    assert!(written.contains("4.0\u{202f}MiB") && written.contains("-20.0 %"), "{written}");
    assert!(row("Background", "target").contains("<td class=\"gray\">200</td>"));
}

#[test]
fn nothing_leaves_the_file() {
    let html = page(&[fixture()]);
    for outside in ["http://", "https://", "<script", "@import", "url(", "src="] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn an_empty_run_still_makes_a_page() {
    let html = page(&[Run { state: "interrupted".into(), ..Run::default() }]);
    assert!(html.contains("No step was finished") && html.contains("is interrupted"));
}

/// Draws the page in headless Chromium: it must parse to the same tables and charts, and log nothing.
#[test]
fn a_real_browser_draws_it() {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found =
        names.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success()));
    let Some(browser) = found else {
        assert!(
            !std::env::var("TREFOIL_REQUIRE").unwrap_or_default().split(',').any(|part| part == "chromium"),
            "TREFOIL_REQUIRE asks for chromium, which is not installed"
        );
        // Straight to the stream: the test harness swallows what a passing test prints.
        let _ = writeln!(std::io::stderr(), "skipped: the report in a browser, install chromium");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    let html = page(&[fixture()]);
    std::fs::write(&file, &html).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    for element in ["<svg", "<polyline", "<table", "<circle", "<tr"] {
        let (sent, drawn) = (html.matches(element).count(), dom.matches(element).count());
        assert!(sent > 0 && sent == drawn, "{element}: {sent} in the file, {drawn} in the browser");
    }
    assert!(!log.contains("CONSOLE"), "{log}");
}
