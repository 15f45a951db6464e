//! The tables of a study: rows are its targets by the names that the plan gives them, columns those of the plan.

use lab_measure::study::Filled;

use crate::html::{Table, escaped};

/// What a plan adds to the page of its runs.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// What it is about.
    pub title: String,
    /// What a reader should know.
    pub about: String,
    /// Its tables.
    pub tables: Vec<Filled>,
    /// Configuration, what it is in the study, kind of target, what it becomes there.
    pub knobs: Vec<[String; 4]>,
    /// Targets that were not run, and why.
    pub left_out: Vec<String>,
}

/// The section.
#[must_use]
pub fn section(study: &Study) -> String {
    let mut out = String::from("<h2 id=\"study\">The study's tables</h2>\n");
    for paragraph in study.about.split("\n\n").filter(|text| !text.trim().is_empty()) {
        out.push_str(&format!("<p>{}</p>\n", escaped(paragraph.trim())));
    }
    for line in &study.left_out {
        out.push_str(&format!("<p class=\"warn\">{}</p>\n", escaped(line)));
    }
    study.tables.iter().for_each(|table| out.push_str(&table_of(table)));
    if !study.knobs.is_empty() {
        let mut table = Table::new(
            "What each configuration becomes; a no-op is not run",
            &["config", "in the study", "target", "becomes"],
        );
        for [config, about, family, becomes] in &study.knobs {
            let text = |cell: &String| (cell.clone(), "text".to_owned());
            table.row(config, [text(about), text(family), text(becomes)]);
        }
        out.push_str(&table.finished());
    }
    out
}

fn table_of(filled: &Filled) -> String {
    let Some((headings, rows)) = filled.rows.split_first() else { return String::new() };
    if rows.is_empty() {
        return format!("<p class=\"warn\">{}: no target has these numbers.</p>\n", escaped(&filled.title));
    }
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&filled.title, &headings);
    rows.iter().for_each(|row| table.plain_row(&row[0], row[1..].iter().cloned()));
    let notes: String = filled.notes.iter().map(|note| format!("<p class=\"soft\">{}</p>\n", escaped(note))).collect();
    table.finished() + &notes
}
