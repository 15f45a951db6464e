//! One self-contained page of one or more runs: opens offline, readable and printable, light and dark, no script.
//!
//! | module | owns |
//! |---|---|
//! | [`colour`] | the rules that colour table cells |
//! | [`lines`] | what a row of the tables is: one target in one case, its repetitions folded into their median |
//! | [`html`] | escaping, tables, numbers |
//! | [`chart`] | bars and lines as SVG |
//! | [`stack`] | stacked bars and areas as SVG |
//! | [`contention`] | the tables of sysbench |
//! | [`orders`] | the tables and charts of TPC-C |
//! | [`study`] | the tables of a plan |
//! | [`summary`] | the tables over all steps |
//! | [`section`] | one step |
//! | [`tenths`] | a rate in tenths of a step |
//! | [`clients`] | the clients of a step, each by itself |
//! | [`flame`] | flame graphs of sampled repetitions |
//! | [`device`] | the device in a step, as iostat has it |
//! | [`levels`] | log-structured merge trees in a step |
//! | [`amplification`] | what each index cost in a step |
//! | [`appendix`] | environment, configuration, counters |

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use lab_measure::environment::Environment;
use lab_measure::record::StepRecord;

pub mod amplification;
pub mod appendix;
pub mod chart;
pub mod clients;
pub mod colour;
pub mod contention;
pub mod device;
pub mod flame;
pub mod gallery;
pub mod html;
pub mod levels;
pub mod lines;
pub mod orders;
pub mod section;
pub mod stack;
pub mod study;
pub mod summary;
pub mod tenths;

use html::escaped;
use lines::Lines;

/// A target of a run.
#[derive(Clone, Debug, Default)]
pub struct TargetInfo {
    /// The target string.
    pub text: String,
    /// The engine's version.
    pub version: String,
    /// Every setting as it was in force.
    pub settings: BTreeMap<String, String>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The run folder.
    pub name: String,
    /// When it began.
    pub began: String,
    /// The command line.
    pub command: String,
    /// How far it got.
    pub state: String,
    /// Rows of the load.
    pub rows: u64,
    /// The plan in words.
    pub settings: Vec<(String, String)>,
    /// The targets.
    pub targets: Vec<TargetInfo>,
    /// The machine.
    pub environment: Environment,
    /// All steps.
    pub steps: Vec<StepRecord>,
    /// Stacks of a sampled repetition, if there was one.
    pub flames: Vec<flame::Flame>,
}

/// The page.
#[must_use]
pub fn page(runs: &[Run]) -> String {
    page_of(runs, None)
}

/// The page of a plan's runs, the tables of its study first.
#[must_use]
pub fn page_of(runs: &[Run], study: Option<&study::Study>) -> String {
    let lines = Lines::of(runs);
    let title = study.map_or_else(|| title_of(runs, &lines), |study| study.title.clone());
    let mut body = format!("<h1>{}</h1>\n", escaped(&title));
    body.push_str(&introduction(runs, &lines));
    body.push_str(&contents(runs, &lines, study.is_some()));
    body.push_str(&study.map(study::section).unwrap_or_default());
    body.push_str(&summary::section(&lines));
    body.push_str(&contention::section(runs));
    body.push_str(&orders::section(runs));
    for step in &lines.steps {
        body.push_str(&section::section(&lines, step));
        body.push_str(&flame::section(runs, step));
    }
    body.push_str(&appendix::section(runs, &lines));
    document(&title, &colour::shade_styles(), &body)
}

/// A whole page in the report's looks: more rules of style, and the body as HTML.
#[must_use]
pub fn document(title: &str, styles: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>\n{}{styles}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escaped(title),
        include_str!("style.css"),
    )
}

fn title_of(runs: &[Run], lines: &Lines<'_>) -> String {
    let rows = runs.iter().map(|run| run.rows).max().unwrap_or(0);
    let docs = if rows >= 1_000_000 && rows % 100_000 == 0 {
        format!("{}M docs", rows as f64 / 1e6)
    } else {
        format!("{} docs", html::grouped(rows as f64))
    };
    let mut clients: Vec<u32> = lines.all.iter().map(|line| line.clients).collect();
    clients.sort_unstable();
    clients.dedup();
    let clients: Vec<String> = clients.iter().map(u32::to_string).collect();
    let has = |workload: &str| has_workload(runs, workload);
    let known = [("ibench", "Insert benchmark"), ("sysbench", "sysbench"), ("tpcc", "TPC-C")];
    let names: Vec<&str> = known.iter().filter(|(workload, _)| has(workload)).map(|(_, name)| *name).collect();
    let name = if names.is_empty() { known[0].1.to_owned() } else { names.join(" and ") };
    format!("{name}: {docs} and {} client(s)", clients.join(", "))
}

fn has_workload(runs: &[Run], workload: &str) -> bool {
    runs.iter().flat_map(|run| &run.steps).any(|record| record.result.workload == workload)
}

fn introduction(runs: &[Run], lines: &Lines<'_>) -> String {
    let mut out = String::new();
    if let Some(run) = runs.first() {
        let machine = &run.environment;
        let storage = machine
            .mount
            .as_ref()
            .map_or_else(|| "unknown storage".to_owned(), |mount| format!("{} on {}", mount.filesystem, mount.source));
        let memory = machine.memory_bytes as f64 / (1u64 << 30) as f64;
        out.push_str(&format!(
            "<p>{}, {} processors, {memory:.1} GiB of memory, {}, {}. Built as {} from commit <code>{}</code>.</p>\n",
            escaped(&machine.cpu),
            machine.cores,
            escaped(&storage),
            escaped(&machine.kernel),
            escaped(&machine.build),
            escaped(&machine.commit),
        ));
    }
    for run in runs.iter().filter(|run| run.state != "done") {
        out.push_str(&format!(
            "<p class=\"warn\">Run <code>{}</code> is {}: only its finished steps are shown.</p>\n",
            escaped(&run.name),
            escaped(&run.state)
        ));
    }
    let builds = runs.iter().filter(|run| run.environment.build == "debug").count();
    if builds > 0 {
        out.push_str("<p class=\"warn\">Built without optimisation: the numbers say nothing about the engine.</p>\n");
    }
    if has_workload(runs, "sysbench") {
        out.push_str(
            "<p>Tests of sysbench: <b>load</b> in rows/s, all others in queries/s, begin and commit included; a response is \
             that of an event, which is one query or one transaction.</p>\n",
        );
    }
    if has_workload(runs, "tpcc") {
        out.push_str(
            "<p>TPC-C: <b>load</b> in rows/s, <b>run</b> and <b>snapshot</b> in transactions/s; in <b>snapshot</b> the twelve \
             consistency conditions are checked beside the transactions, in <b>crash</b> after their process was killed.</p>\n",
        );
    }
    if lines.steps.iter().all(|step| !step.starts_with("l.") && !step.starts_with('q')) && !lines.steps.is_empty() {
        return out;
    }
    out.push_str(
        "<p>Steps: <b>l.i0</b> load in key order, <b>l.x</b> create three indexes, <b>l.i1</b> and <b>l.i2</b> \
         inserts with as many deletes, 50 and 5 rows a transaction, <b>qrN</b> range and <b>qpN</b> point queries \
         beside N inserts/s and deletes/s a client. Rates are rows/s in l.* and queries/s in q*.</p>\n",
    );
    out
}

fn contents(runs: &[Run], lines: &Lines<'_>, has_study: bool) -> String {
    let study = if has_study { "<a href=\"#study\">The study's tables</a> · " } else { "" };
    let mut out = format!("<nav>{study}<a href=\"#summary\">Summary</a>");
    if has_workload(runs, "sysbench") {
        out.push_str(" · <a href=\"#contention\">Rates by clients and tables</a>");
    }
    if has_workload(runs, "tpcc") {
        out.push_str(" · <a href=\"#orders\">Transactions a minute</a>");
    }
    for step in &lines.steps {
        out.push_str(&format!(" · <a href=\"#{}\">{}</a>", html::anchor(step), escaped(step)));
    }
    out.push_str(" · <a href=\"#appendix\">Appendix</a></nav>\n");
    out
}
