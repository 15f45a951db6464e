//! `--fail-on`: `STEP.NUMBER<-5%` or `STEP.NUMBER>20%`; a step of `*` is every step.

use std::fmt;

use lab_measure::result::more_is_better;

use super::sides::known_metrics;
use crate::outcome::Failure;

/// A change that is too much.
#[derive(Clone, Debug)]
pub struct Threshold {
    text: String,
    step: String,
    metric: &'static str,
    falls: bool,
    /// Ratio at the threshold.
    ratio: f64,
}

/// A number by its name, or by the short form of it.
pub fn metric(name: &str) -> Result<&'static str, Failure> {
    let long = match name {
        "ips" => "ips_av",
        "dps" => "dps_av",
        "qps" => "qps_av",
        "p50" => "p50_us",
        "p99" => "p99_us",
        "p999" => "p999_us",
        "max" => "max_us",
        "cpu" => "cpu_us_per_op",
        "size" => "total_bytes",
        "rss" => "rss_bytes",
        other => other,
    };
    known_metrics()
        .into_iter()
        .find(|known| *known == long)
        .ok_or_else(|| Failure::Usage(format!("no number is called `{name}`; `lab compare --metrics all` prints all")))
}

impl Threshold {
    /// Reads one condition.
    pub fn parse(text: &str) -> Result<Threshold, Failure> {
        let usage = |what: &str| Failure::Usage(format!("--fail-on '{text}': {what}"));
        let place = text.find(['<', '>']).ok_or_else(|| usage("no < or >; example: l.i1.ips<-5%"))?;
        let (name, limit) = (text[..place].trim(), text[place + 1..].trim());
        let (step, short) = name.rsplit_once('.').ok_or_else(|| usage("no step; example: l.i1.ips<-5%, *.p99>20%"))?;
        let number = limit.strip_suffix('%').ok_or_else(|| usage("the limit is a change in percent; example: <-5%"))?;
        let percent: f64 = number.trim().parse().map_err(|_| usage("the limit is not a number"))?;
        let falls = text.as_bytes()[place] == b'<';
        if (falls && !(-100.0..=0.0).contains(&percent)) || (!falls && !(0.0..=1e6).contains(&percent)) {
            return Err(usage("a fall is written <-N%, a rise >N%"));
        }
        let metric = metric(short)?;
        match more_is_better(metric) {
            None => return Err(usage("that number is neither good nor bad")),
            Some(better) if better != falls => {
                let (good, bad) = if falls { ("<-", ">") } else { (">", "<-") };
                return Err(usage(&format!("{good}N% of that number is an improvement; a regression is {bad}N%")));
            }
            Some(_) => {}
        }
        Ok(Threshold { text: text.into(), step: step.into(), metric, falls, ratio: 1.0 + percent / 100.0 })
    }

    /// Whether it is about a number of a step.
    pub fn covers(&self, step: &str, metric: &str) -> bool {
        (self.step == "*" || self.step == step) && self.metric == metric
    }

    /// Whether a ratio is beyond it.
    pub fn is_beyond(&self, ratio: f64) -> bool {
        if self.falls { ratio < self.ratio } else { ratio > self.ratio }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read() {
        let threshold = Threshold::parse("l.i1.ips<-5%").unwrap();
        assert!(threshold.covers("l.i1", "ips_av") && !threshold.covers("l.i2", "ips_av"));
        assert!(threshold.is_beyond(0.94) && !threshold.is_beyond(0.96));
        let threshold = Threshold::parse("*.p99_us > 20%").unwrap();
        assert!(threshold.covers("qr100", "p99_us") && threshold.is_beyond(1.21) && !threshold.is_beyond(1.19));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("l.i1.ips", "no < or >"),
            ("ips<-5%", "no step"),
            ("l.i1.ips<-5", "in percent"),
            ("l.i1.ips<5%", "written <-N%"),
            ("l.i1.ips<-x%", "not a number"),
            ("l.i1.speed<-5%", "no number is called `speed`"),
            ("l.i1.ips>5%", "is an improvement"),
            ("l.i1.p99<-5%", "is an improvement"),
            ("l.i1.rows<-5%", "neither good nor bad"),
        ] {
            let complaint = Threshold::parse(text).unwrap_err().to_string();
            assert!(complaint.contains(words), "{text}: {complaint}");
        }
    }
}
