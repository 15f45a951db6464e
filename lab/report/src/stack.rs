//! Stacked bars and stacked areas over time as SVG: what a whole is made of.

use crate::chart::{LEFT, MOST_POINTS, RIGHT, Trace, WIDTH, colour_class, legend, legend_height, opened, tick};
use crate::html::{escaped, short};

/// Horizontal bars of parts: (name, value of each part, text shown behind the bar). Parts of nothing are left out.
#[must_use]
pub fn bars(title: &str, parts: &[String], rows: &[(String, Vec<f64>, String)]) -> String {
    const NAMES: f64 = 250.0;
    const BAR: f64 = 20.0;
    let most = rows.iter().map(|(_, values, _)| values.iter().sum::<f64>()).fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let height = rows.len() as f64 * (BAR + 6.0) + 30.0;
    let traces = named(parts);
    let mut out = opened(title, height + legend_height(&traces));
    for (row, (name, values, text)) in rows.iter().enumerate() {
        let y = 26.0 + row as f64 * (BAR + 6.0);
        let shown: String =
            if name.chars().count() > 38 { name.chars().take(37).chain(['…']).collect() } else { name.clone() };
        out.push_str(&format!(
            "<g><title>{}: {}</title><text class=\"end\" x=\"{:.0}\" y=\"{:.1}\">{}</text>",
            escaped(name),
            escaped(text),
            NAMES - 6.0,
            y + 14.5,
            escaped(&shown)
        ));
        let mut x = NAMES;
        for (place, value) in values.iter().enumerate() {
            let width = (WIDTH - NAMES - 110.0) * value / most;
            // Thinner than it can be seen.
            if width < 0.6 {
                continue;
            }
            out.push_str(&format!(
                "<rect class=\"fill {}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR:.0}\"><title>{}: {}</title></rect>",
                colour_class(place),
                escaped(&parts[place]),
                crate::html::size(*value)
            ));
            x += width;
        }
        out.push_str(&format!("<text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>\n", x + 5.0, y + 14.5, escaped(text)));
    }
    out.push_str(&legend(&traces, height + 8.0));
    out + "</svg></figure>\n"
}

fn named(parts: &[String]) -> Vec<Trace> {
    let named = |(place, name): (usize, &String)| Trace { name: name.clone(), place, values: Vec::new() };
    parts.iter().enumerate().map(named).collect()
}

/// Areas over time, one upon the other, the first lowest; each has one value for each moment of `seconds`. Nothing for less than two.
#[must_use]
pub fn over_time(title: &str, seconds: &[f64], traces: &[Trace]) -> String {
    const HEIGHT: f64 = 240.0;
    const TOP: f64 = 24.0;
    let bottom = HEIGHT - 24.0;
    // Of long series every so many; sizes do not jump between two of them.
    let step = seconds.len().div_ceil(MOST_POINTS).max(1);
    let moments: Vec<usize> = (0..seconds.len()).step_by(step).collect();
    let whole = |at: usize| traces.iter().map(|trace| trace.values[at]).sum::<f64>();
    let most = moments.iter().map(|at| whole(*at)).fold(0.0, f64::max);
    if moments.len() < 2 || most <= 0.0 {
        return String::new();
    }
    let (first, last) = (seconds[moments[0]], seconds[moments[moments.len() - 1]]);
    let top_value = 1.2 * most;
    let x_of = |second: f64| LEFT + (WIDTH - LEFT - RIGHT) * (second - first) / (last - first).max(1e-9);
    let y_of = |value: f64| bottom - (bottom - TOP) * value / top_value;
    let mut out = opened(title, HEIGHT + legend_height(traces));
    out.push_str(&axes(top_value, (first, last), &y_of, bottom));
    let mut below = vec![0.0; moments.len()];
    for trace in traces {
        let above: Vec<f64> = moments.iter().zip(&below).map(|(at, below)| below + trace.values[*at]).collect();
        let upper = moments.iter().zip(&above).map(|(at, value)| (seconds[*at], *value));
        let lower = moments.iter().zip(&below).rev().map(|(at, value)| (seconds[*at], *value));
        let point = |(second, value): (f64, f64)| format!("{:.1},{:.1}", x_of(second), y_of(value));
        let points: Vec<String> = upper.chain(lower).map(point).collect();
        let (largest, name) = (trace.values.iter().copied().fold(0.0, f64::max), escaped(&trace.name));
        if largest > 0.0 {
            out.push_str(&format!(
                "<polygon class=\"fill {}\" points=\"{}\"><title>{name}, at most {}</title></polygon>\n",
                colour_class(trace.place),
                points.join(" "),
                crate::html::size(largest)
            ));
        }
        below = above;
    }
    out.push_str(&legend(traces, HEIGHT + 8.0));
    out + "</svg></figure>\n"
}

fn axes(top_value: f64, (first, last): (f64, f64), y_of: &dyn Fn(f64) -> f64, bottom: f64) -> String {
    let mut out = String::new();
    // Round in the unit that is shown.
    let unit = [1u64 << 30, 1 << 20, 1 << 10].into_iter().map(|unit| unit as f64).find(|unit| top_value > *unit);
    let unit = unit.unwrap_or(1.0);
    let (step, mut value) = (unit * tick(top_value / unit), 0.0);
    while value <= top_value {
        let y = y_of(value);
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"end\" x=\"{:.0}\" y=\"{:.1}\">{}</text>\n",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            crate::html::size(value)
        ));
        value += step;
    }
    for (x, anchor, second) in [(LEFT, "start", first), (WIDTH - RIGHT, "end", last)] {
        out.push_str(&format!(
            "<text style=\"text-anchor:{anchor}\" x=\"{x:.0}\" y=\"{:.0}\">{} s</text>\n",
            bottom + 16.0,
            short(second)
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_stand_one_upon_the_other() {
        let trace = |name: &str, place, values: [f64; 2]| Trace { name: name.into(), place, values: values.into() };
        let traces = [trace("a<b", 0, [10.0, 20.0]), trace("c", 1, [10.0, 20.0]), trace("none", 2, [0.0, 0.0])];
        let svg = over_time("t", &[1.0, 2.0], &traces);
        let points =
            |class: &str| svg.split_once(&format!("fill {class}\" points=\"")).unwrap().1.split_once('"').unwrap().0;
        // 48 is the top at 24, 0 the bottom at 216: 40 of it are at 56, 20 at 136, 10 at 176.
        assert_eq!(points("c0"), "74.0,176.0 848.0,136.0 848.0,216.0 74.0,216.0");
        assert_eq!(points("c1"), "74.0,136.0 848.0,56.0 848.0,136.0 74.0,176.0");
        assert_eq!(svg.matches("<polygon").count(), 2);
        assert!(svg.contains("a&lt;b") && !svg.contains("NaN"));
        assert_eq!(over_time("t", &[1.0], &[trace("a", 0, [1.0, 1.0])]), "", "one moment is no time");
    }

    #[test]
    fn bars_are_as_long_as_their_parts() {
        let parts = ["flush".to_owned(), "merge".to_owned(), "move".to_owned()];
        let rows = [
            ("a".to_owned(), vec![100.0, 300.0, 0.0], "400 B".to_owned()),
            ("b".to_owned(), vec![0.0; 3], "".to_owned()),
        ];
        let svg = bars("t", &parts, &rows);
        let rects: Vec<&str> = svg.split("<rect class=\"fill ").skip(1).collect();
        assert!(rects[0].starts_with("c0\" x=\"250.0\" y=\"26.0\" width=\"125.0\""), "{}", rects[0]);
        assert!(rects[1].starts_with("c1\" x=\"375.0\" y=\"26.0\" width=\"375.0\""), "{}", rects[1]);
        assert_eq!(rects.len(), 2 + 3, "two parts, three in the legend");
        assert_eq!(bars("t", &parts, &rows[1..]), "");
    }
}
