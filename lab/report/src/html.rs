//! Escaping, tables and numbers.

use crate::colour::Cell;

/// Text as HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A name that can be linked to.
#[must_use]
pub fn anchor(text: &str) -> String {
    text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

/// A whole number in groups of three digits.
#[must_use]
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    if value < 0.0 && digits != "0" { format!("-{out}") } else { out }
}

/// A rate: whole above 100, with decimals below.
#[must_use]
pub fn rate(value: f64) -> String {
    match value {
        _ if value >= 100.0 => grouped(value),
        _ if value >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// A time given in microseconds.
#[must_use]
pub fn time_us(us: f64) -> String {
    match us {
        _ if us >= 1e6 => format!("{:.2}\u{202f}s", us / 1e6),
        _ if us >= 1e3 => format!("{:.1}\u{202f}ms", us / 1e3),
        _ if us >= 10.0 => format!("{us:.0}\u{202f}µs"),
        _ => format!("{us:.2}\u{202f}µs"),
    }
}

/// Bytes in binary units.
#[must_use]
pub fn size(bytes: f64) -> String {
    match bytes {
        _ if bytes >= (1u64 << 30) as f64 => format!("{:.2}\u{202f}GiB", bytes / (1u64 << 30) as f64),
        _ if bytes >= (1u64 << 20) as f64 => format!("{:.1}\u{202f}MiB", bytes / (1u64 << 20) as f64),
        _ => format!("{:.1}\u{202f}KiB", bytes / 1024.0),
    }
}

/// A number with three significant digits or so.
#[must_use]
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => grouped(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        0.0 => "0".into(),
        _ => format!("{value:.3}"),
    }
}

/// A table that grows row by row.
#[derive(Debug)]
pub struct Table {
    text: String,
}

impl Table {
    /// A table with a caption and headings, if any; the first heading is that of the row names.
    #[must_use]
    pub fn new(caption: &str, headings: &[&str]) -> Table {
        let mut text = format!(
            "<figure><figcaption>{0}</figcaption>\n<div class=\"scroll\"><table aria-label=\"{0}\">\n",
            escaped(caption)
        );
        if !headings.is_empty() {
            text.push_str("<thead><tr>");
            for heading in headings {
                text.push_str(&format!("<th scope=\"col\">{}</th>", escaped(heading)));
            }
            text.push_str("</tr></thead>\n");
        }
        text.push_str("<tbody>\n");
        Table { text }
    }

    /// Adds a row of (text, class).
    pub fn row(&mut self, name: &str, cells: impl IntoIterator<Item = (String, String)>) {
        self.text.push_str(&format!("<tr><th scope=\"row\">{}</th>", escaped(name)));
        for (text, class) in cells {
            let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
            self.text.push_str(&format!("<td{class}>{}</td>", escaped(&text)));
        }
        self.text.push_str("</tr>\n");
    }

    /// Adds a row without colours.
    pub fn plain_row(&mut self, name: &str, cells: impl IntoIterator<Item = String>) {
        self.row(name, cells.into_iter().map(|cell| (cell, String::new())));
    }

    /// The finished table.
    #[must_use]
    pub fn finished(self) -> String {
        self.text + "</tbody></table></div></figure>\n"
    }
}

/// A coloured cell.
#[must_use]
pub fn coloured(text: String, cell: Cell) -> (String, String) {
    (text, cell.class().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out() {
        let mut table = Table::new("a<b", &["x\"y"]);
        table.plain_row("<script>", ["&".to_owned()]);
        let text = table.finished();
        assert!(text.contains("a&lt;b") && text.contains("x&quot;y") && text.contains("&lt;script&gt;"));
        assert!(text.contains("<td>&amp;</td>") && !text.contains("<script>"));
        assert_eq!(anchor("l.i0 x"), "l-i0-x");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(1_234_567.4), "1\u{202f}234\u{202f}567");
        assert_eq!((grouped(999.0), grouped(-1_000.0)), ("999".into(), "-1\u{202f}000".into()));
        assert_eq!((time_us(0.5), time_us(1_500.0)), ("0.50\u{202f}µs".into(), "1.5\u{202f}ms".into()));
        assert_eq!((size(512.0), size(3.0 * 1_073_741_824.0)), ("0.5\u{202f}KiB".into(), "3.00\u{202f}GiB".into()));
    }
}
