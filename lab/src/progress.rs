//! What is shown while a run goes on: one bar on a terminal, one plain line an interval otherwise. Always on stderr.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lab_measure::record::StepRecord;
use lab_workload::Tick;

use crate::table::{brief_count, brief_us};

/// Seconds between two plain lines.
const PLAIN_INTERVAL_SECS: f64 = 5.0;
const BAR_PARTS: u64 = 1_000;

/// The display.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    shown_at: Mutex<f64>,
}

impl Progress {
    /// A bar if stderr is a terminal, plain lines otherwise, nothing when quiet.
    pub fn new(quiet: bool) -> Progress {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let colour =
                if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) { "" } else { ".green" };
            let template = format!("{{prefix:>7}} [{{bar:16{colour}}}] {{wide_msg}}");
            let bar = ProgressBar::new(BAR_PARTS);
            bar.set_style(
                ProgressStyle::with_template(&template).expect("the template is a constant").progress_chars("=> "),
            );
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Progress { bar, quiet, shown_at: Mutex::new(0.0) }
    }

    /// A line that stays.
    pub fn say(&self, text: &str) {
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    /// A step begins.
    pub fn begins(&self, step: &str) {
        *self.shown_at.lock().expect("no thread panics while it shows") = 0.0;
        if let Some(bar) = &self.bar {
            bar.set_prefix(step.to_owned());
            bar.set_position(0);
            bar.set_message("starting");
        }
    }

    /// A phase without numbers.
    pub fn phase(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
        }
    }

    /// A second went by.
    pub fn tick(&self, step: &str, tick: &Tick) {
        let line = line_of(tick);
        if let Some(bar) = &self.bar {
            bar.set_position((tick.done.clamp(0.0, 1.0) * BAR_PARTS as f64) as u64);
            bar.set_message(line);
            return;
        }
        let mut shown_at = self.shown_at.lock().expect("no thread panics while it shows");
        if tick.elapsed_secs - *shown_at + 0.5 >= PLAIN_INTERVAL_SECS {
            *shown_at = tick.elapsed_secs;
            self.say(&format!("{step:>7} {:>4.0}%  {line}", tick.done * 100.0));
        }
    }

    /// A step is done.
    pub fn finished(&self, record: &StepRecord) {
        let result = &record.result;
        let unit = if result.is_query_step() { "queries/s" } else { "rows/s" };
        let rate = result.main_rate().map(|rate| format!("{:>9} {unit:<9} ", brief_count(rate))).unwrap_or_default();
        let mut text = format!("{:>7} done  {rate}in {:.1} s", result.step, result.throughput.secs.unwrap_or(0.0));
        if let (Some(p99), Some(max)) = (result.responses.p99_us, result.responses.max_us) {
            text.push_str(&format!("  p99 {} max {}", brief_us(p99), brief_us(max)));
        }
        if let Some(stall) = result.steadiness.stall_max_ms {
            text.push_str(&format!("  longest stall {}", brief_us(stall * 1e3)));
        }
        if let Some(first) = result.steadiness.min_key_ms {
            text.push_str(&format!("  min-key {}", brief_us(first * 1e3)));
        }
        self.say(&text);
    }

    /// Takes the bar off the screen.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line_of(tick: &Tick) -> String {
    let names = ["ins", "del", "qry"];
    let mut parts = Vec::new();
    for (name, amount) in names.iter().zip(tick.interval) {
        if amount > 0 {
            parts.push(format!("{name} {}/s", brief_count(amount as f64 / tick.interval_secs.max(1e-9))));
        }
    }
    if let Some(p99) = tick.p99_us {
        parts.push(format!("p99 {}", brief_us(p99 as f64)));
    }
    parts.push(format!("worst {}", brief_us(*tick.worst_us.iter().max().unwrap_or(&0) as f64)));
    parts.push(format!("stalls {}", tick.stalls));
    if tick.done > 0.0 && tick.done < 1.0 {
        parts.push(format!("eta {:.0}s", tick.elapsed_secs * (1.0 - tick.done) / tick.done));
    }
    parts.join("  ")
}

/// The 17 columns of the insert benchmark's progress line, tab-separated.
pub fn columns_of(tick: &Tick) -> String {
    let rate = |amount: u64, secs: f64| format!("{:.0}", amount as f64 / secs.max(1e-9));
    let mut columns = vec![format!("{:.1}", tick.interval_secs), format!("{:.1}", tick.elapsed_secs)];
    for kind in 0..3 {
        columns.push(rate(tick.interval[kind], tick.interval_secs));
        columns.push(rate(tick.totals[kind], tick.elapsed_secs));
    }
    columns.extend(tick.worst_us.iter().map(u64::to_string));
    columns.extend(tick.totals.iter().map(u64::to_string));
    // Nothing is ever tried again.
    columns.extend(["0", "0", "0"].map(String::from));
    columns.join("\t")
}

/// Heading of `progress.tsv`.
pub const COLUMNS_HEADING: &str = "turn\tstep\ti_sec\tt_sec\ti_ips\tt_ips\ti_dps\tt_dps\ti_qps\tt_qps\tmax_i_us\t\
    max_d_us\tmax_q_us\tt_ins\tt_del\tt_query\tretry_i\tretry_d\tretry_q";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_line_has_seventeen_columns() {
        let tick = Tick {
            elapsed_secs: 2.0,
            interval_secs: 1.0,
            done: 0.5,
            totals: [400, 200, 0],
            interval: [100, 50, 0],
            worst_us: [1_500, 7, 0],
            p99_us: Some(900),
            stalls: 1,
        };
        let columns = columns_of(&tick);
        assert_eq!(columns.split('\t').count(), 17);
        assert_eq!(COLUMNS_HEADING.split('\t').count(), 19);
        assert!(columns.starts_with("1.0\t2.0\t100\t200\t50\t100\t0\t0\t1500\t7\t0\t400\t200\t0\t"), "{columns}");
        let line = line_of(&tick);
        assert!(line.contains("ins 100/s") && line.contains("eta 2s") && line.contains("p99 900us"), "{line}");
    }
}
