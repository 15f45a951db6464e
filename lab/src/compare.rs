//! `lab compare`: for each step and number, is one side better, worse or the same, or can it not be told?
//!
//! 1. Sides are made of the runs: one target in one case of one run, its repetitions in order.
//! 2. Every side but the base is set beside the base of the same case. With `--base RUN` that is the same target in
//!    the base run (or the only one there); with `--base TARGET` that target in the same run, else the first that has it.
//!    Only what belongs together is set side by side ([`origin`]): runs of one workload, of two runs of a plan the same part
//!    at the same size, of a plan and a run the part of that size. Parts of one plan never are, unless one of them is named as the base.
//! 3. Every ratio is estimated and all of them are judged together ([`lab_measure::judge`]).
//! 4. Conditions of `--fail-on` are judged by themselves: few ratios are asked for, so smaller differences are certain.

mod ci;
pub mod origin;
pub mod printed;
mod sides;
mod threshold;

use std::path::PathBuf;

use lab_measure::judge::{LEAST_REPEATS, Verdict, corrected, estimate, verdict};
use lab_measure::result::more_is_better;
use serde::Serialize;

use crate::cli::Compare;
use crate::outcome::Failure;
use crate::run::plan::is_plan;
use sides::{Pair, Sides};
use threshold::Threshold;

/// What is compared unless told otherwise; a step's rate is its queries in query steps, its rows elsewhere.
const USUAL: &[&str] = &[
    "ips_av",
    "qps_av",
    "p99_us",
    "cpu_us_per_op",
    "wkb_per_insert",
    "rkb_per_op",
    "total_bytes",
    "stall_max_ms",
    "min_key_ms",
];

/// One number of one step of a side beside the base.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The base.
    pub base: String,
    /// What is set beside it.
    pub target: String,
    /// Tables.
    pub tables: u32,
    /// Clients.
    pub clients: u32,
    /// The step.
    pub step: String,
    /// The number.
    pub metric: &'static str,
    /// Repetitions of the base.
    pub base_repeats: usize,
    /// Repetitions of the other side.
    pub repeats: usize,
    /// Geometric mean of the base; left out, as all below, where there is no ratio: a value of 0 on one side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_mean: Option<f64>,
    /// Geometric mean of the other side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// The other side by the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The 95 % interval of the ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_low: Option<f64>,
    /// Its other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_high: Option<f64>,
    /// Probability of such a ratio without a difference, corrected for the number of ratios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// What is claimed.
    pub verdict: Verdict,
}

/// What is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A run or a plan.
    Run(PathBuf),
    /// A target by its name.
    Target(String),
    /// A target by its position among [`Compared::targets`], from 1.
    Number(usize),
}

impl Base {
    /// As `--base` names it.
    fn named(text: &str) -> Base {
        let path = PathBuf::from(text);
        if path.join("run.json").exists() || is_plan(&path) { Base::Run(path) } else { Base::Target(text.to_owned()) }
    }
}

/// A comparison, and what it was made of.
pub struct Compared {
    /// One number of one step each.
    pub lines: Vec<Line>,
    /// What a reader has to know.
    pub notes: Vec<String>,
    /// The targets of all sides by their names.
    pub targets: Vec<String>,
    sides: Sides,
    pairs: Vec<Pair>,
}

/// Compares runs and plans.
pub fn compared(
    named: &[PathBuf],
    base: Option<&Base>,
    metrics: &[&'static str],
    margin: f64,
) -> Result<Compared, Failure> {
    let mut sources = named.to_vec();
    if let Some(Base::Run(base)) = base
        && !named.iter().any(|run| sides::same_folder(run, base))
    {
        sources.push(base.clone());
    }
    let sides = Sides::read(&sources)?;
    let (pairs, alone) = sides.pairs(base)?;
    let lines = judged(&sides, &pairs, metrics, margin, &|_, _| true);
    if lines.is_empty() {
        return Err(Failure::Failed("the sides have no step with a common number".into()));
    }
    let notes = sides.notes(&pairs).into_iter().chain(alone).collect();
    Ok(Compared { lines, notes, targets: sides.targets(), sides, pairs })
}

/// Runs the command.
pub fn compare(options: &Compare) -> Result<(), Failure> {
    let thresholds = options.fail_on.iter().map(|text| Threshold::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let metrics = wanted(&options.metrics)?;
    let margin = options.margin / 100.0;
    let made = compared(&options.runs, options.base.as_deref().map(Base::named).as_ref(), &metrics, margin)?;
    made.notes.iter().for_each(|note| eprintln!("note: {note}"));
    print!("{}", printed::printed(&made.lines, options.format));
    let verdict = verdict_of(&made.sides, &made.pairs, &thresholds, margin);
    if let Some(path) = &options.junit {
        crate::folder::write_whole(path, &ci::junit(&made.lines, &verdict))?;
    }
    if options.annotations {
        // Beside results, and where a CI system looks for them.
        eprint!("{}", ci::annotations(&made.lines, &verdict));
    }
    verdict
}

/// The numbers to compare by their names; the usual ones if none is named.
pub fn wanted(names: &[String]) -> Result<Vec<&'static str>, Failure> {
    let known = sides::known_metrics();
    if names.is_empty() {
        return Ok(known.into_iter().filter(|name| USUAL.contains(name)).collect());
    }
    if names == ["all"] {
        return Ok(known.into_iter().filter(|name| more_is_better(name).is_some()).collect());
    }
    names.iter().map(|name| threshold::metric(name)).collect()
}

/// Lines of all pairs and steps for the metrics, judged together.
fn judged(
    sides: &Sides,
    pairs: &[Pair],
    metrics: &[&'static str],
    margin: f64,
    wanted: &dyn Fn(&str, &str) -> bool,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut estimates = Vec::new();
    for pair in pairs {
        let (base, new) = (&sides.all[pair.base], &sides.all[pair.new]);
        for step in &base.steps {
            for metric in metrics.iter().copied().filter(|metric| wanted(step, metric)) {
                let (before, after) = (base.values(step, metric), new.values(step, metric));
                // The rate of inserts is set by the pace in query steps: it says nothing.
                let is_paced = metric == "ips_av" && base.is_paced(step);
                if before.is_empty() || after.is_empty() || is_paced {
                    continue;
                }
                let made = estimate(&before, &after);
                estimates.push(made);
                lines.push(Line {
                    base: base.name.clone(),
                    target: new.name.clone(),
                    tables: new.case.0,
                    clients: new.case.1,
                    step: step.clone(),
                    metric,
                    base_repeats: before.len(),
                    repeats: after.len(),
                    base_mean: made.map(|made| made.base),
                    mean: made.map(|made| made.new),
                    ratio: made.map(|made| made.ratio),
                    ratio_low: made.and_then(|made| made.interval).map(|interval| interval.0),
                    ratio_high: made.and_then(|made| made.interval).map(|interval| interval.1),
                    p: None,
                    verdict: Verdict::Unclear,
                });
            }
        }
    }
    let probabilities: Vec<f64> = estimates.iter().flatten().filter_map(|made| made.p).collect();
    let mut corrected = corrected(&probabilities).into_iter();
    for (line, made) in lines.iter_mut().zip(estimates) {
        let Some(made) = made.filter(|made| made.p.is_some()) else { continue };
        line.p = corrected.next();
        let better = more_is_better(line.metric).unwrap_or(false);
        line.verdict = verdict(&made, line.p.unwrap_or(1.0), better, margin);
    }
    lines
}

/// Says which conditions are met, and which cannot be judged.
fn verdict_of(sides: &Sides, pairs: &[Pair], thresholds: &[Threshold], margin: f64) -> Result<(), Failure> {
    if thresholds.is_empty() {
        return Ok(());
    }
    let metrics: Vec<&'static str> = sides::known_metrics();
    let asked = |step: &str, metric: &str| thresholds.iter().any(|threshold| threshold.covers(step, metric));
    let lines = judged(sides, pairs, &metrics, margin, &asked);
    let mut regressions = Vec::new();
    for threshold in thresholds {
        let mut covered = lines.iter().filter(|line| threshold.covers(&line.step, line.metric)).peekable();
        if covered.peek().is_none() {
            return Err(Failure::Usage(format!("--fail-on '{threshold}': no step of these runs has that number")));
        }
        for line in covered {
            let what = printed::sentence(line);
            if line.ratio_low.is_none() || line.base_repeats.min(line.repeats) < LEAST_REPEATS {
                return Err(Failure::Usage(format!(
                    "--fail-on '{threshold}' needs {LEAST_REPEATS} repetitions of each side, none with a value of 0: {what}"
                )));
            }
            let beyond = line.ratio.is_some_and(|ratio| threshold.is_beyond(ratio));
            match line.verdict {
                Verdict::Worse if beyond => regressions.push(format!("{what}, beyond '{threshold}'")),
                Verdict::Unclear if beyond => eprintln!("note: '{threshold}' may be exceeded, repeat more: {what}"),
                _ => {}
            }
        }
    }
    if regressions.is_empty() { Ok(()) } else { Err(Failure::Regression(regressions.join("\nlab: "))) }
}
