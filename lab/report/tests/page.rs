//! The page from a fixture: what it holds, and that it is self-contained. `browser.rs` looks at it in a browser.

// A test outside the engine: real clocks, threads and files; a failed unwrap is a failed test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)]

mod fixture;

use std::collections::BTreeMap;

use fixture::fixture;
use lab_measure::record::{CostsAt, IndexCosts};
use lab_measure::result::Repeat;
use lab_report::{Run, page};

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
        "queries/s in each tenth of the step, and in most of its seconds",
        "99 % reach",
        "qr100: queries/s of each client, second by second: trefoil",
        "qr100: worst query of each client in each second, µs: trefoil",
        "prefers-color-scheme: dark",
        "@media print",
        "Appendix",
        "Engine counters",
        "l.i1: bytes by level, second by second: trefoil",
        "l.i1: sorted runs that a look-up may meet",
        "l.i1: bytes of levels by cause",
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
    // Two indexes: 2 MiB flushed, 1 and 3 merged, 1 moved, of 2 that came in.
    let causes = row("Levels: bytes by cause", "trefoil");
    let cells: Vec<&str> = causes.split("<td>").skip(1).map(|cell| cell.split_once("</td>").unwrap().0).collect();
    let mib = |n: u32| format!("{n}.0\u{202f}MiB");
    assert_eq!(cells, [mib(2), mib(1), mib(3), mib(1), mib(6), mib(2), "3.00".into()], "{causes}");
    assert!(row("slowed down", "trefoil").contains("<td>gc</td><td>200</td><td>1.50</td><td>20.5</td>"));
    assert!(row("Background", "target").contains("<td class=\"gray\">200</td>"));
}

#[test]
fn each_client_has_its_rates_and_one_alone_has_none() {
    let html = page(&[fixture()]);
    let caption =
        "trefoil, queries/s of each client in each tenth of the step, and in most of its seconds</figcaption>";
    let table = html.split_once(caption).expect("a table").1.split_once("</table>").unwrap().0;
    let cells = |client: u32| -> Vec<&str> {
        let row = table
            .split_once(&format!("<th scope=\"row\">{client}</th>"))
            .expect("a row")
            .1
            .split_once("</tr>")
            .unwrap()
            .0;
        row.split("<td>").skip(1).map(|cell| cell.split_once("</td>").unwrap().0).collect()
    };
    // In all, ten tenths, and five rates; the second client does nothing in the first six of twelve seconds.
    let (first, second) = (cells(1), cells(2));
    assert_eq!((first.len(), second.len()), (16, 16), "{table}");
    assert!(second[1..6].iter().all(|rate| *rate == "0.000") && second[6..11] == first[6..11], "{table}");
    assert_eq!(second[15], "0.000", "99 % of the seconds");
    let mut alone = fixture();
    alone.steps.iter_mut().for_each(|record| record.by_client.truncate(1));
    assert!(!page(&[alone]).contains("<h3>Clients</h3>"));
}

#[test]
fn what_has_no_levels_has_no_part_of_them() {
    let mut run = fixture();
    for record in &mut run.steps {
        record.levels.clear();
        let is_of_levels = |name: &str| name.contains(".lsm.") || name.starts_with("delays.");
        record.counters_after.retain(|name, _| !is_of_levels(name));
    }
    let html = page(&[run]);
    assert!(!html.contains("<h3>Levels</h3>") && !html.contains("by level"));
    assert!(page(&[fixture()]).contains("<h3>Levels</h3>"));
}

#[test]
fn what_each_index_cost_is_drawn_and_listed() {
    let html = page(&[fixture()]);
    let of_step = html.split_once("<h2 id=\"l-i1\">").unwrap().1.split_once("<h2").unwrap().0;
    let (charts, table) = of_step.split_once("<h3>Amplification</h3>").unwrap().1.split_once("<figcaption>").unwrap();
    for what in ["bytes written for one that came in", "blocks read for one key", "versions kept for one key"] {
        let title = format!("aria-label=\"l.i1: {what}");
        assert_eq!(charts.matches(&title).count(), 3, "{what}");
    }
    // Nothing came in by the end of the first second of this one, whose keys nobody counts.
    assert!(charts.contains("a.late, second 3: 1.00<") && !charts.contains("a.late, second 2"), "{charts}");
    let (_, versions) = charts.split_once("aria-label=\"l.i1: versions kept").unwrap();
    assert!(!versions.split_once("</svg>").unwrap().0.contains("a.late"), "{versions}");
    // The sums of the step so far, what came before it left out.
    assert!(charts.contains("<title>a.primary, second 11: 3.00</title>"), "{charts}");
    assert!(charts.contains("second 2: 0.500<") && charts.contains("second 3: 1.25<"), "{charts}");
    let row = table.split_once("<th scope=\"row\">trefoil, a.primary</th>").unwrap().1.split_once("</tr>").unwrap().0;
    let cells: Vec<&str> = row.split("<td>").skip(1).map(|cell| cell.split_once("</td>").unwrap().0).collect();
    let expected = ["11.0\u{202f}MiB", "33.0\u{202f}MiB", "3.00", "1\u{202f}100", "550", "0.50", "1.25"];
    assert_eq!(cells, expected);
    assert!(!of_step.contains("a.x"), "of an index that nobody used nothing is told");
    let mut none = fixture();
    none.steps.iter_mut().for_each(|record| record.costs.clear());
    assert!(!page(&[none]).contains("<h3>Amplification</h3>"));
}

/// What is drawn of many: the eight whose keys came in or were looked up most, a look-up for a block of bytes. The table has all of them.
/// Guards: the order by use; look-ups count in it.
#[test]
fn of_many_indexes_those_that_cost_most_are_drawn() {
    let mut run = fixture();
    let costs = |mebibytes: u64, point_reads: u64| IndexCosts {
        ingested_bytes: mebibytes << 20,
        written_bytes: mebibytes << 21,
        point_reads,
        point_blocks: point_reads,
        ..IndexCosts::default()
    };
    let mut indexes: BTreeMap<String, IndexCosts> = (0..9).map(|n| (format!("a.{n}"), costs(n + 1, 0))).collect();
    indexes.insert("b.read".into(), costs(0, 400));
    indexes.insert("b.written".into(), costs(50, 0));
    let began = CostsAt { secs: 0.0, indexes: BTreeMap::new() };
    run.steps.retain(|record| record.result.target == "trefoil");
    let ended = CostsAt { secs: 1.0, indexes: indexes.clone() };
    run.steps.iter_mut().for_each(|record| record.costs = vec![began.clone(), ended.clone()]);
    let html = page(&[run]);
    let of_step = html.split_once("<h2 id=\"l-i1\">").unwrap().1.split_once("<h2").unwrap().0;
    let (charts, table) = of_step.split_once("<h3>Amplification</h3>").unwrap().1.split_once("<figcaption>").unwrap();
    let drawn = |name: &str| charts.contains(&format!("<title>{name}, second 1: "));
    let names: Vec<&String> = indexes.keys().filter(|name| drawn(name)).collect();
    // 400 look-ups are six MiB and a quarter.
    assert_eq!(names, ["a.3", "a.4", "a.5", "a.6", "a.7", "a.8", "b.read", "b.written"], "{charts}");
    let rows: Vec<usize> = indexes.keys().map(|name| table.find(&format!("trefoil, {name}</th>")).unwrap()).collect();
    assert!(rows.is_sorted(), "the table is by names: {rows:?}");
}

#[test]
fn ratios_of_repetitions_have_intervals_and_verdicts() {
    let mut run = fixture();
    let once = run.steps.clone();
    for repeat in 2..=5 {
        run.steps.extend(once.iter().cloned().map(|mut record| {
            record.result.repeat = Repeat::Number(repeat);
            record
        }));
    }
    let html = page(&[run]);
    let table = html.split_once("95 % interval of the ratio").unwrap().1.split_once("</table>").unwrap().0;
    assert_eq!(table.matches("class=\"yellow\">0.50 … 0.50 worse").count(), 3, "{table}");
    assert_eq!(table.matches("better").count(), 3, "{table}");
    assert!(!page(&[fixture()]).contains("95 % interval"));
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

/// Two targets on eight tables and on one.
#[test]
fn ratios_of_sysbench_have_a_section() {
    let mut run = fixture();
    assert!(!page(&[run.clone()]).contains("Rates by clients and tables"));
    run.steps.truncate(0);
    for (target, one) in [("trefoil", 500.0), ("faster", 1_100.0)] {
        for (tables, qps) in [(8, 1_000.0), (1, one)] {
            let mut record = lab_measure::record::StepRecord::default();
            let result = &mut record.result;
            (result.workload, result.step) = ("sysbench".into(), "update-one".into());
            (result.target, result.tables, result.clients) = (target.into(), tables, 48);
            result.throughput.qps_av = Some(qps);
            run.steps.push(record);
        }
    }
    let html = page(&[run]);
    assert!(html.contains("<title>sysbench: 10M docs and 48 client(s)</title>"));
    let table =
        html.split_once("update-one: QPS ratio: 1 table by 8 tables").unwrap().1.split_once("</table>").unwrap().0;
    assert!(table.contains("class=\"yellow\">0.500<") && table.contains("class=\"blue\">1.100<"), "{table}");
    assert!(html.contains("8 tables, trefoil") && !html.contains("<b>l.i0</b>"));
}

#[test]
fn tpcc_has_its_tables_and_charts_by_cores() {
    let of = |cores: u32, clients: u32, tpm: f64| {
        let mut record = lab_measure::record::StepRecord::default();
        let result = &mut record.result;
        (result.workload, result.target, result.step) = ("tpcc".into(), "trefoil".into(), "run".into());
        (result.cores, result.clients, result.tables) = (cores, clients, 1);
        result.throughput.tpm = Some(tpm);
        result.throughput.nopm = Some(tpm * 0.45);
        result.throughput.qps_av = Some(tpm / 60.0);
        result.costs.cores_cpu_pct = Some(90.0 / f64::from(cores));
        result.transactions.insert("delivery".into(), lab_measure::result::OfTransaction::default());
        record
    };
    let steps = vec![of(1, 1, 6_000.0), of(1, 2, 9_000.0), of(2, 2, 15_000.0)];
    let html = page(&[Run { steps, ..Run::default() }]);
    for part in [
        "<h1>TPC-C: ",
        "Transactions a minute by cores, the best number of sessions",
        "trefoil, 1 cores, 2 sessions",
        "trefoil, 2 cores, 2 sessions",
        "Processor use, of the enabled cores",
        "45 %",
        "TPC-C: responses",
        "NOPM is not tpmC",
        "trefoil 2c 1w 2 cores",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("trefoil, 1 cores, 1 sessions"), "only the best is drawn");
    assert!(!html.contains("Steps: <b>l.i0</b>"));
}
