//! Bars and lines as SVG. Colours are classes of the style sheet, so that light, dark and print share one drawing;
//! values are in `<title>` elements, which browsers show as tooltips without any script.

use crate::html::{escaped, short};

pub(crate) const WIDTH: f64 = 860.0;
pub(crate) const LEFT: f64 = 74.0;
pub(crate) const RIGHT: f64 = 12.0;
/// Most points a line is drawn with; longer series are folded.
pub(crate) const MOST_POINTS: usize = 600;
/// Colours the style sheet has.
const COLOURS: usize = 8;

/// The class of line or bar number `place`.
#[must_use]
pub fn colour_class(place: usize) -> String {
    format!("c{}", place % COLOURS)
}

/// Horizontal bars: (name, value, text shown).
#[must_use]
pub fn bars(title: &str, rows: &[(String, f64, String)]) -> String {
    const NAMES: f64 = 250.0;
    const BAR: f64 = 20.0;
    let height = rows.len() as f64 * (BAR + 6.0) + 30.0;
    let most = rows.iter().map(|(_, value, _)| *value).fold(0.0, f64::max).max(1e-12);
    let mut out = opened(title, height);
    for (place, (name, value, text)) in rows.iter().enumerate() {
        let y = 26.0 + place as f64 * (BAR + 6.0);
        let width = (WIDTH - NAMES - 110.0) * (value / most).max(0.0);
        let shown: String =
            if name.chars().count() > 38 { name.chars().take(37).chain(['…']).collect() } else { name.clone() };
        out.push_str(&format!(
            "<g><title>{}: {}</title><text class=\"end\" x=\"{:.0}\" y=\"{:.1}\">{}</text>\
             <rect class=\"fill {}\" x=\"{NAMES:.0}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR:.0}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>\n",
            escaped(name),
            escaped(text),
            NAMES - 6.0,
            y + 14.5,
            escaped(&shown),
            colour_class(place),
            NAMES + width + 5.0,
            y + 14.5,
            escaped(text),
        ));
    }
    out + "</svg></figure>\n"
}

pub(crate) fn opened(title: &str, height: f64) -> String {
    format!(
        "<figure class=\"chart\"><svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{0}\">\n\
         <text class=\"heading\" x=\"4\" y=\"14\">{0}</text>\n",
        escaped(title)
    )
}

/// One line of a chart over time.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Name in the legend.
    pub name: String,
    /// Position of its colour.
    pub place: usize,
    /// One value a second; no number where nothing is known yet.
    pub values: Vec<f64>,
}

/// How long series are folded into fewer points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The mean, for rates.
    Mean,
    /// The largest, for response times.
    Largest,
}

fn folded(values: &[f64], fold: Fold) -> (usize, Vec<f64>) {
    let step = values.len().div_ceil(MOST_POINTS).max(1);
    let fold = |chunk: &[f64]| match fold {
        Fold::Mean => {
            let known = || chunk.iter().filter(|value| !value.is_nan());
            known().sum::<f64>() / known().count() as f64
        }
        Fold::Largest => chunk.iter().copied().fold(0.0, f64::max),
    };
    (step, values.chunks(step).map(fold).collect())
}

/// A round number of about a fifth of `most`.
pub(crate) fn tick(most: f64) -> f64 {
    let raw = (most / 5.0).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    let factor = raw / power;
    power
        * if factor <= 1.0 {
            1.0
        } else if factor <= 2.0 {
            2.0
        } else if factor <= 5.0 {
            5.0
        } else {
            10.0
        }
}

/// Lines over time, all on one axis from 0 to 1.2 times the largest value.
#[must_use]
pub fn over_time(title: &str, traces: &[Trace], fold: Fold) -> String {
    const HEIGHT: f64 = 240.0;
    const TOP: f64 = 24.0;
    let bottom = HEIGHT - 24.0;
    let longest = traces.iter().map(|trace| trace.values.len()).max().unwrap_or(0);
    let most = traces.iter().flat_map(|trace| &trace.values).copied().fold(0.0, f64::max);
    if longest == 0 || most <= 0.0 {
        return String::new();
    }
    let top_value = 1.2 * most;
    let x_of = |second: f64| LEFT + (WIDTH - LEFT - RIGHT) * second / (longest as f64).max(1.0);
    let y_of = |value: f64| bottom - (bottom - TOP) * value / top_value;
    let mut out = opened(title, HEIGHT + legend_height(traces));
    let step = tick(top_value);
    let mut value = 0.0;
    while value <= top_value {
        let y = y_of(value);
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"end\" x=\"{:.0}\" y=\"{:.1}\">{}</text>\n",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            short(value)
        ));
        value += step;
    }
    out.push_str(&format!(
        "<text class=\"end\" x=\"{:.0}\" y=\"{:.0}\">seconds</text>\n",
        WIDTH - RIGHT,
        bottom + 16.0
    ));
    let every = tick(longest as f64).max(1.0);
    let mut second = 0.0;
    // The last tenth of the axis belongs to its name.
    while second <= longest as f64 * 0.9 {
        out.push_str(&format!(
            "<text class=\"middle\" x=\"{:.1}\" y=\"{:.0}\">{second:.0}</text>\n",
            x_of(second),
            bottom + 16.0
        ));
        second += every;
    }
    for trace in traces {
        out.push_str(&polyline(trace, fold, &x_of, &y_of));
    }
    out.push_str(&legend(traces, HEIGHT + 8.0));
    out + "</svg></figure>\n"
}

fn polyline(trace: &Trace, fold: Fold, x_of: &dyn Fn(f64) -> f64, y_of: &dyn Fn(f64) -> f64) -> String {
    let (step, values) = folded(&trace.values, fold);
    let mut points = String::new();
    let mut dots = String::new();
    for (place, value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        let x = x_of((place as f64 + 0.5) * step as f64);
        points.push_str(&format!("{x:.1},{:.1} ", y_of(*value)));
        // A handful of points is easier to see, and to ask, as dots.
        if values.len() <= 60 {
            dots.push_str(&format!(
                "<circle class=\"fill {}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2.6\"><title>{}, second {}: {}</title></circle>",
                colour_class(trace.place),
                y_of(*value),
                escaped(&trace.name),
                place * step + 1,
                short(*value)
            ));
        }
    }
    format!(
        "<polyline class=\"line {}\" points=\"{}\"><title>{}</title></polyline>{dots}\n",
        colour_class(trace.place),
        points.trim_end(),
        escaped(&trace.name)
    )
}

const LEGEND_ROW: f64 = 18.0;

pub(crate) fn legend_height(traces: &[Trace]) -> f64 {
    traces.len().div_ceil(2) as f64 * LEGEND_ROW + 4.0
}

pub(crate) fn legend(traces: &[Trace], from: f64) -> String {
    let mut out = String::new();
    for (place, trace) in traces.iter().enumerate() {
        let x = LEFT + (place % 2) as f64 * (WIDTH - LEFT) / 2.0;
        let y = from + (place / 2) as f64 * LEGEND_ROW;
        out.push_str(&format!(
            "<rect class=\"fill {}\" x=\"{x:.0}\" y=\"{:.1}\" width=\"12\" height=\"12\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\">{}</text>\n",
            colour_class(trace.place),
            y - 8.0,
            x + 17.0,
            y + 2.5,
            escaped(&trace.name)
        ));
    }
    out
}

/// Shares at which the response-time curve is drawn, with their labels.
pub const SHARES: [(f64, &str); 7] =
    [(0.0, "min"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99"), (1.0, "max")];

/// Response times by percentile on a logarithmic axis; each trace has one value (µs) per entry of [`SHARES`].
#[must_use]
pub fn by_percentile(title: &str, traces: &[Trace]) -> String {
    const HEIGHT: f64 = 230.0;
    const TOP: f64 = 34.0;
    let bottom = HEIGHT - 24.0;
    let values = || traces.iter().flat_map(|trace| &trace.values).copied().filter(|value| *value > 0.0);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if most <= 0.0 {
        return String::new();
    }
    let (low, high) = (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0));
    let x_of = |place: f64| LEFT + 20.0 + (WIDTH - LEFT - RIGHT - 60.0) * place / (SHARES.len() - 1) as f64;
    let y_of = |value: f64| bottom - (bottom - TOP) * (value.max(1e-3).log10() - low).max(0.0) / (high - low);
    let mut out = opened(title, HEIGHT + legend_height(traces));
    for power in low as i32..=high as i32 {
        let value = 10f64.powi(power);
        let y = y_of(value);
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"end\" x=\"{:.0}\" y=\"{:.1}\">{}</text>\n",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            crate::html::time_us(value)
        ));
    }
    for (place, (_, label)) in SHARES.iter().enumerate() {
        let x = x_of(place as f64);
        out.push_str(&format!("<text class=\"middle\" x=\"{x:.1}\" y=\"{:.0}\">{label}</text>\n", bottom + 16.0));
    }
    for trace in traces {
        let mut points = String::new();
        let mut dots = String::new();
        for (place, value) in trace.values.iter().enumerate() {
            let (x, y) = (x_of(place as f64), y_of(*value));
            points.push_str(&format!("{x:.1},{y:.1} "));
            dots.push_str(&format!(
                "<circle class=\"fill {}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}, {}: {}</title></circle>",
                colour_class(trace.place),
                escaped(&trace.name),
                SHARES[place].1,
                crate::html::time_us(*value)
            ));
        }
        let class = colour_class(trace.place);
        out.push_str(&format!("<polyline class=\"line {class}\" points=\"{}\"/>{dots}\n", points.trim_end()));
    }
    out.push_str(&legend(traces, HEIGHT + 8.0));
    out + "</svg></figure>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_are_folded_by_mean_or_largest() {
        let values: Vec<f64> = (0..1_800).map(f64::from).collect();
        let (step, mean) = folded(&values, Fold::Mean);
        assert_eq!((step, mean.len(), mean[0]), (3, 600, 1.0));
        assert_eq!(folded(&values, Fold::Largest).1[0], 2.0);
        assert_eq!(folded(&values[..5], Fold::Mean), (1, vec![0.0, 1.0, 2.0, 3.0, 4.0]));
    }

    #[test]
    fn axes_have_round_ticks_and_headroom() {
        assert_eq!([tick(120.0), tick(1.0), tick(60_000.0)], [50.0, 0.2, 20_000.0]);
        let trace = Trace { name: "a<b".into(), place: 0, values: vec![100.0, 50.0] };
        let svg = over_time("t", std::slice::from_ref(&trace), Fold::Mean);
        assert!(svg.contains("a&lt;b") && svg.contains("<polyline") && !svg.contains("NaN"));
        assert_eq!(over_time("t", &[Trace { values: vec![0.0], ..trace }], Fold::Mean), "");
    }

    #[test]
    fn percentile_curves_survive_zero_and_one_value() {
        let trace = Trace { name: "a".into(), place: 9, values: vec![0.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0] };
        let svg = by_percentile("t", &[trace]);
        assert!(svg.contains("class=\"line c1\"") && !svg.contains("NaN") && !svg.contains("inf"));
    }
}
