//! Flame graphs: where the processor's time of a sampled repetition went, and of two, what changed.
//!
//! A stack is text, frames from the outermost to the innermost with `;` between; samples with the same stack are counted. A
//! frame's width is its share of all samples; below it stands who called it. A difference is drawn with the widths of the second
//! run and the colours of the change: red has a larger share than before, blue a smaller one. Without any script: what a
//! frame is stands in its title.

use std::collections::BTreeMap;

use crate::Run;
use crate::html::escaped;

const WIDTH: f64 = 1160.0;
const ROW: f64 = 17.0;
/// Frames that are thinner are left out, with what they called.
const LEAST_WIDTH: f64 = 0.8;
/// About what a letter takes.
const LETTER: f64 = 6.4;
/// Frames of a stack that are drawn, from the outermost in: a recursion without an end has no picture.
const DEEPEST: usize = 256;
/// A change of this share is as red, or as blue, as it gets.
const FULL_CHANGE: f64 = 0.10;

/// Samples of one step of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flame {
    /// The target, by its name.
    pub target: String,
    /// Tables and clients in words, where there are several.
    pub case: String,
    /// The position of the case in its run, from 1.
    pub number: usize,
    /// The step.
    pub step: String,
    /// How often each stack was met.
    pub stacks: BTreeMap<String, u64>,
}

/// Stacks as a file has them: a line each, the count behind the last space.
#[must_use]
pub fn parsed(text: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for (stack, count) in text.lines().filter_map(|line| line.rsplit_once(' ')) {
        if let Ok(count) = count.parse::<u64>() {
            *stacks.entry(stack.to_owned()).or_default() += count;
        }
    }
    stacks
}

/// Stacks as a file has them.
#[must_use]
pub fn folded(stacks: &BTreeMap<String, u64>) -> String {
    stacks.iter().map(|(stack, count)| format!("{stack} {count}\n")).collect()
}

/// A frame with everything it called, as shares of all samples now and before.
#[derive(Debug, Default)]
struct Frame {
    now: f64,
    before: f64,
    samples: u64,
    called: BTreeMap<String, Frame>,
}

impl Frame {
    fn add(&mut self, stacks: &BTreeMap<String, u64>, is_before: bool) {
        let all = stacks.values().sum::<u64>().max(1) as f64;
        for (stack, count) in stacks {
            let share = *count as f64 / all;
            let mut frame = &mut *self;
            frame.count(share, *count, is_before);
            for name in stack.split(';').take(DEEPEST) {
                frame = frame.called.entry(name.to_owned()).or_default();
                frame.count(share, *count, is_before);
            }
        }
    }

    fn count(&mut self, share: f64, samples: u64, is_before: bool) {
        if is_before {
            self.before += share;
        } else {
            self.now += share;
            self.samples += samples;
        }
    }

    fn depth(&self) -> usize {
        let drawn = self.called.values().filter(|frame| frame.now * WIDTH >= LEAST_WIDTH);
        drawn.map(|frame| 1 + frame.depth()).max().unwrap_or(0)
    }
}

/// The graph as a picture that stands by itself; with `before`, of the difference.
#[must_use]
pub fn drawn(title: &str, now: &BTreeMap<String, u64>, before: Option<&BTreeMap<String, u64>>) -> String {
    let mut root = Frame::default();
    root.add(now, false);
    if let Some(before) = before {
        root.add(before, true);
    }
    let height = (root.depth() + 1) as f64 * ROW + 2.0;
    let mut out = format!(
        "<svg class=\"flame\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n",
        escaped(title)
    );
    draw(&mut out, ("all", &root), (0.0, height - ROW), before.is_some());
    out + "</svg>\n"
}

fn draw(out: &mut String, (name, frame): (&str, &Frame), (x, y): (f64, f64), is_difference: bool) {
    let width = frame.now * WIDTH;
    let change = frame.now - frame.before;
    let fill = if is_difference { colour_of_change(change) } else { colour_of_name(name) };
    let points = if is_difference { format!(", {:+.1} points", change * 100.0) } else { String::new() };
    out.push_str(&format!(
        "<g><title>{}: {:.1} %, {} samples{points}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
         fill=\"{fill}\"/>",
        escaped(name),
        frame.now * 100.0,
        frame.samples,
        (width - 0.4).max(0.4),
        ROW - 1.0,
    ));
    let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
    if letters >= 3 {
        let short = short(name);
        let cut: String = short.chars().take(letters).collect();
        out.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:#1b1f24;font:11px sans-serif\">{}</text>",
            x + 3.0,
            y + ROW - 5.0,
            escaped(&cut)
        ));
    }
    out.push_str("</g>\n");
    let mut left = x;
    for (name, called) in &frame.called {
        if called.now * WIDTH >= LEAST_WIDTH {
            draw(out, (name, called), (left, y - ROW), is_difference);
        }
        left += called.now * WIDTH;
    }
}

/// A name without its generics and without all but its last two parts.
fn short(name: &str) -> String {
    let (mut plain, mut depth) = (String::new(), 0usize);
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let parts: Vec<&str> = plain.split("::").filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { name.to_owned() } else { parts[parts.len().saturating_sub(2)..].join("::") }
}

/// The same name has the same colour, from yellow to orange.
fn colour_of_name(name: &str) -> String {
    let sum = name.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    format!("#ff{:02x}{:02x}", 150 + (sum >> 4) % 90, 70 + sum % 50)
}

/// White where nothing changed.
fn colour_of_change(change: f64) -> String {
    let faded = (255.0 - 170.0 * (change.abs() / FULL_CHANGE).min(1.0)) as u8;
    if change >= 0.0 { format!("#ff{faded:02x}{faded:02x}") } else { format!("#{faded:02x}{faded:02x}ff") }
}

/// The graphs of a step, as far as some were taken.
#[must_use]
pub fn section(runs: &[Run], step: &str) -> String {
    let mut out = String::new();
    for flame in runs.iter().flat_map(|run| &run.flames).filter(|flame| flame.step == step) {
        let samples: u64 = flame.stacks.values().sum();
        let title = format!("{} {}, {step}: {samples} samples", flame.target, flame.case);
        out.push_str(&format!(
            "<details><summary>Where the processor's time went: {}, of a repetition of its own that is in no number</summary>\n\
             <figure class=\"chart\">{}</figure></details>\n",
            escaped(&title),
            drawn(&title, &flame.stacks, None)
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs.iter().map(|(stack, count)| ((*stack).to_owned(), *count)).collect()
    }

    /// Title and width of every frame.
    fn frames(svg: &str) -> Vec<(String, f64)> {
        let frame = |part: &str| {
            let title = part.split("</title>").next()?.to_owned();
            let width = part.split(" width=\"").nth(1)?.split('"').next()?.parse().ok()?;
            Some((title, width))
        };
        svg.split("<title>").skip(1).filter_map(frame).collect()
    }

    #[test]
    fn widths_are_shares_and_thin_frames_are_left_out() {
        let svg = drawn("t", &stacks(&[("a;b", 750), ("a;c<d>", 249), ("a;thin", 0), ("e", 1)]), None);
        let found = frames(&svg);
        let of = |title: &str| found.iter().find(|(name, _)| name == title).map(|(_, width)| *width);
        assert_eq!(of("all: 100.0 %, 1000 samples"), Some(1159.6));
        assert_eq!(of("a: 99.9 %, 999 samples"), Some(1158.4));
        assert_eq!(of("b: 75.0 %, 750 samples"), Some(869.6));
        assert!(of("c&lt;d&gt;: 24.9 %, 249 samples").is_some() && !svg.contains("thin"), "{svg}");
        assert!(svg.contains(">c</text>"), "a name is short where it stands, whole in its title");
    }

    #[test]
    fn a_difference_is_red_where_the_share_grew_and_blue_where_it_shrank() {
        let svg = drawn("t", &stacks(&[("a", 60), ("b", 40)]), Some(&stacks(&[("a", 5), ("b", 5)])));
        assert!(svg.contains("a: 60.0 %, 60 samples, +10.0 points") && svg.contains("fill=\"#ff5555\""), "{svg}");
        assert!(svg.contains("b: 40.0 %, 40 samples, -10.0 points") && svg.contains("fill=\"#5555ff\""), "{svg}");
        let same = drawn("t", &stacks(&[("a", 6)]), Some(&stacks(&[("a", 600)])));
        assert!(same.contains("+0.0 points") && !same.contains("#5555ff") && same.contains("#ffffff"), "{same}");
    }

    #[test]
    fn a_stack_without_an_end_is_cut() {
        let deep = vec!["f"; 200_000].join(";");
        let svg = drawn("t", &stacks(&[(&deep, 1)]), None);
        assert_eq!(frames(&svg).len(), DEEPEST + 1);
    }

    #[test]
    fn stacks_are_read_as_they_were_written() {
        let all = stacks(&[("a b;c", 3), ("d", 1)]);
        assert_eq!(parsed(&folded(&all)), all);
        assert_eq!(parsed("no count\na 1\na 2\n"), stacks(&[("a", 3)]));
    }

    #[test]
    fn colours_are_colours() {
        for name in ["a", "main", "core::ptr::read", ""] {
            let colour = colour_of_name(name);
            assert!(colour.len() == 7 && u32::from_str_radix(&colour[1..], 16).is_ok(), "{name}: {colour}");
        }
    }
}
