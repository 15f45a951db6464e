//! Charts of a page as files of their own, for documents that cannot hold a page: the first chart of each section, with the
//! colours that it needs.

use crate::html::escaped;

/// How a chart looks by itself: the part of the page's style sheet that charts use.
const STYLE: &str = "<style>\
    :root { --ink: #1b1f24; --rule: #d9dde2; --page: #ffffff; --c0: #2563a8; --c1: #c2571a; --c2: #2a8a4a; --c3: #8b3fa8; --c4: #a88a12; \
    --c5: #128a96; --c6: #b02a5b; --c7: #5b6470; }\
    svg { background: var(--page); } text { fill: var(--ink); font: 12px system-ui, sans-serif; } .heading { font-weight: 600; } \
    .end { text-anchor: end; } .middle { text-anchor: middle; } .grid { stroke: var(--rule); stroke-width: 1; } \
    .line { fill: none; stroke: currentColor; stroke-width: 1.8; } .fill { fill: currentColor; } \
    .c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); } \
    .c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }</style>";
const CHART: &str = "<figure class=\"chart\"><svg ";

/// A chart as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// What the section is called.
    pub section: String,
    /// The picture.
    pub svg: String,
}

/// The first chart of each section of a page.
#[must_use]
pub fn charts(page: &str) -> Vec<Chart> {
    page.split("<h2").skip(1).filter_map(first_of).collect()
}

fn first_of(section: &str) -> Option<Chart> {
    let (_, heading) = section.split_once('>')?;
    let (heading, body) = heading.split_once("</h2>")?;
    let from = body.find(CHART)? + CHART.len();
    let svg = &body[from..from + body[from..].find("</svg>")?];
    let (attributes, drawing) = svg.split_once('>')?;
    Some(Chart {
        section: plain(heading),
        svg: format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {attributes}>{STYLE}{drawing}</svg>\n"),
    })
}

/// A heading without its marks.
fn plain(html: &str) -> String {
    let mut out = String::new();
    let mut within = false;
    for letter in html.chars() {
        match letter {
            '<' => within = true,
            '>' => within = false,
            letter if !within => out.push(letter),
            _ => (),
        }
    }
    ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"]
        .iter()
        .zip(["&", "<", ">", "\"", "'"])
        .fold(out, |text, (coded, letter)| if escaped(letter) == *coded { text.replace(coded, letter) } else { text })
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_chart_of_each_section_is_a_picture_by_itself() {
        let chart = crate::chart::bars("rows", &[("a < b".into(), 1.0, "1".into())]);
        let other = chart.replace("rows", "later");
        let page = format!("<h2 id=\"a\">l.i0 &amp; <i>more</i></h2>{chart}{other}<h2>no chart</h2><p></p>");
        let found = charts(&page);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].section, "l.i0 & more");
        let svg = &found[0].svg;
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt; b") && svg.contains("<style>") && !svg.contains("later"), "{svg}");
    }
}
