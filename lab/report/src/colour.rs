//! The rules that colour table cells. They are the insert benchmark's own; colours are given as classes, and the
//! style sheet holds the values: red `#FF9A9A`, green `#81FFA6`, gray `#D7D7D7`, yellow `#FFDD81`, blue `#81FFF9`.

/// Colour of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// None.
    Plain,
    /// Bad.
    Red,
    /// Good.
    Green,
    /// Missed the agreed rate.
    Gray,
    /// More than 5 % under the base.
    Yellow,
    /// More than 5 % over the base.
    Blue,
}

impl Cell {
    /// The class, or nothing.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Cell::Plain => "",
            Cell::Red => "red",
            Cell::Green => "green",
            Cell::Gray => "gray",
            Cell::Yellow => "yellow",
            Cell::Blue => "blue",
        }
    }
}

/// A column whose lowest value reaches this share of its highest has no red.
const CLOSE: f64 = 0.8;

/// A column of the absolute table: (value, whether the agreed rate was kept). The lowest is taken over all rows, the
/// highest over the rows that kept the rate; a quarter of the range from either end is red or green.
#[must_use]
pub fn absolute(column: &[(f64, bool)]) -> Vec<Cell> {
    let min = column.iter().map(|(value, _)| *value).reduce(f64::min);
    let max = column.iter().filter(|(_, kept)| *kept).map(|(value, _)| *value).reduce(f64::max);
    column
        .iter()
        .map(|(value, kept)| {
            // Where no row kept the rate there is no highest value to compare with.
            let (Some(min), Some(max)) = (min, max) else { return Cell::Gray };
            let quarter = (max - min) / 4.0;
            if *value <= min + quarter && min < CLOSE * max {
                Cell::Red
            } else if !kept {
                Cell::Gray
            } else if *value >= max - quarter {
                Cell::Green
            } else {
                Cell::Plain
            }
        })
        .collect()
}

/// A cell of the relative table: compared as a whole percentage of the base, so 0.945 and 1.055 are the edges.
#[must_use]
pub fn relative(ratio: f64) -> Cell {
    match (100.0 * ratio).round() {
        percent if percent < 95.0 => Cell::Yellow,
        percent if percent > 105.0 => Cell::Blue,
        _ => Cell::Plain,
    }
}

/// A cell of the table of background rates.
#[must_use]
pub fn background(rate: f64, wanted: f64) -> Cell {
    if rate < 0.95 * wanted { Cell::Red } else { Cell::Plain }
}

/// The maximum column of a response-time table, where less is better: the top quarter of the range is red (unless
/// all are close), the bottom quarter green.
#[must_use]
pub fn largest(column: &[f64]) -> Vec<Cell> {
    let min = column.iter().copied().fold(f64::INFINITY, f64::min);
    let max = column.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let quarter = (max - min) / 4.0;
    column
        .iter()
        .map(|value| match *value {
            value if value >= max - quarter && min < CLOSE * max => Cell::Red,
            value if value <= min + quarter => Cell::Green,
            _ => Cell::Plain,
        })
        .collect()
}

/// Levels of gray in a response-time table.
const SHADES: usize = 21;

/// The class of a share in percent: one level every 5 %.
#[must_use]
pub fn shade(percent: f64) -> String {
    format!("s{}", ((percent / 5.0) as usize).min(SHADES - 1))
}

/// The styles of the levels: white to `#d6d6d6`, and the same steps upwards from the dark page.
#[must_use]
pub fn shade_styles() -> String {
    let mut light = String::new();
    let mut dark = String::from("@media screen and (prefers-color-scheme: dark) {\n");
    for level in 0..SHADES {
        let down =
            |from: usize, to: usize| (from * (SHADES - 1 - level) + to * level + (SHADES - 1) / 2) / (SHADES - 1);
        let value = down(0xff, 0xd6);
        light.push_str(&format!("td.s{level} {{ background: #{value:02x}{value:02x}{value:02x}; }}\n"));
        let value = down(0x16, 0x4a);
        dark.push_str(&format!("td.s{level} {{ background: #{value:02x}{value:02x}{value:02x}; }}\n"));
    }
    dark.push_str("}\n");
    light + &dark
}

#[cfg(test)]
mod tests {
    use super::Cell::{Blue, Gray, Green, Plain, Red, Yellow};
    use super::*;

    fn kept(values: &[f64]) -> Vec<(f64, bool)> {
        values.iter().map(|value| (*value, true)).collect()
    }

    #[test]
    fn a_quarter_from_either_end_is_red_or_green() {
        // Range 20..100, a quarter is 20: red up to 40, green from 80.
        let column = kept(&[20.0, 40.0, 41.0, 79.0, 80.0, 100.0]);
        assert_eq!(absolute(&column), [Red, Red, Plain, Plain, Green, Green]);
    }

    #[test]
    fn a_column_of_close_values_has_no_red() {
        assert_eq!(absolute(&kept(&[80.0, 90.0, 100.0])), [Plain, Plain, Green]);
        assert_eq!(absolute(&kept(&[79.0, 100.0])), [Red, Green]);
        assert_eq!(absolute(&kept(&[5.0])), [Green]);
    }

    #[test]
    fn a_missed_rate_is_gray_and_does_not_set_the_highest_value() {
        // 200 missed the rate: the highest is 100, the lowest 10, a quarter 22.5. Red comes before gray.
        let column = [(10.0, true), (30.0, false), (50.0, false), (100.0, true), (200.0, false)];
        assert_eq!(absolute(&column), [Red, Red, Gray, Green, Gray]);
        assert_eq!(absolute(&[(10.0, false), (90.0, false)]), [Gray, Gray]);
        assert!(absolute(&[]).is_empty());
    }

    #[test]
    fn relative_cells_are_compared_as_whole_percentages() {
        let cases = [(0.944, Yellow), (0.946, Plain), (1.0, Plain), (1.054, Plain), (1.056, Blue), (2.0, Blue)];
        for (ratio, cell) in cases {
            assert_eq!(relative(ratio), cell, "{ratio}");
        }
    }

    #[test]
    fn background_rates_are_red_below_95_percent() {
        assert_eq!(background(94.9, 100.0), Red);
        assert_eq!(background(95.0, 100.0), Plain);
    }

    #[test]
    fn large_maxima_are_red() {
        assert_eq!(largest(&[1.0, 2.0, 5.0]), [Green, Green, Red]);
        assert_eq!(largest(&[4.5, 5.0]), [Green, Plain]);
    }

    #[test]
    fn shades_go_from_white_to_their_gray() {
        assert_eq!(
            (shade(0.0), shade(4.99), shade(5.0), shade(100.0)),
            ("s0".into(), "s0".into(), "s1".into(), "s20".into())
        );
        let styles = shade_styles();
        assert!(
            styles.contains("td.s0 { background: #ffffff; }") && styles.contains("td.s20 { background: #d6d6d6; }")
        );
    }
}
