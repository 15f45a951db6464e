//! The pages, as HTML without anything from elsewhere. Whatever comes from a run is escaped.

use std::path::{Path, PathBuf};

use lab_report::document;
use lab_report::html::{Table, escaped};
use serde_json::Value;

use super::history::{Entry, state_of};
use super::place::encoded;
use crate::cli::{Explain, ExplainFormat};
use crate::compare::{Base, compared, printed, wanted};
use crate::explain::{explained_steps, headline, share};
use crate::folder::{Folder, SAMPLED, is_under_way, read_json};
use crate::outcome::Failure;
use crate::run::plan::{expanded, is_plan, study_of, summary_of};
use crate::table;

/// A difference that does not matter, as `lab compare` has it unless told otherwise.
const MARGIN: f64 = 0.05;

fn page(title: &str, body: &str) -> String {
    let top =
        "<nav><a href=\"/\">Runs</a> · <a href=\"/live\">Under way</a> · <a href=\"/metrics\">Metrics</a></nav>\n";
    document(title, include_str!("serve.css"), &format!("{top}<h1>{}</h1>\n{body}", escaped(title)))
}

fn link(kind: &str, name: &str, text: &str) -> String {
    format!("<a href=\"/{kind}/{}\">{}</a>", encoded(name), escaped(text))
}

/// A table of text, the first row its headings, its cells with classes.
fn table_of(caption: &str, rows: &[Vec<String>], class: &dyn Fn(&str) -> &'static str) -> String {
    let Some((headings, rows)) = rows.split_first() else { return String::new() };
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(caption, &headings);
    for row in rows {
        let cells = row.iter().skip(1).map(|cell| (cell.clone(), class(cell).to_owned()));
        table.row(row.first().map_or("", String::as_str), cells);
    }
    table.finished()
}

fn notes(lines: &[String]) -> String {
    lines.iter().map(|line| format!("<p class=\"note\">{}</p>\n", escaped(line))).collect()
}

/// A page that says why there is nothing else.
pub fn refused(why: &str) -> String {
    page("Not to be had", &format!("<p class=\"warn\">{}</p>\n", escaped(why)))
}

/// The runs.
pub fn list(entries: &[Entry], unreadable: &[String], search: &str) -> String {
    let mut body = format!(
        "<form class=\"search\" action=\"/\"><input name=\"q\" type=\"search\" value=\"{}\" aria-label=\"search\" \
         placeholder=\"target, workload, step, date …\"><button>Search</button></form>\n",
        escaped(search)
    );
    if entries.is_empty() {
        let why = if search.is_empty() {
            "There are no runs here; make one with <code>lab run ibench --rows 100k --seconds 2</code>."
        } else {
            "No run has all of these words. <a href=\"/\">Show all</a>."
        };
        return page("Runs", &format!("{body}<p>{why}</p>\n{}", notes(unreadable)));
    }
    body.push_str(
        "<form action=\"/compare\">\n<p><button>Compare</button> <button formaction=\"/explain\">Explain</button> \
         <span class=\"soft\">two runs or more, the base is the one further down; or the targets of one</span></p>\n\
         <div class=\"scroll\"><table><thead><tr><th></th><th>began</th><th>state</th><th>workload</th><th>size</th>\
         <th>what</th><th>run</th><th></th></tr></thead><tbody>\n",
    );
    for entry in entries {
        let Entry { name, began, state, workload, size, what, .. } = entry;
        let live = if *state == "running" { format!(" · {}", link("live", name, "live")) } else { String::new() };
        // A plan's parts are what is under way.
        let live = if workload == "plan" { live.replace("/live/", "/run/") } else { live };
        body.push_str(&format!(
            "<tr><td><input type=\"checkbox\" name=\"run\" value=\"{0}\" aria-label=\"choose {0}\"></td><td>{1}</td>\
             <td class=\"{2}\">{2}</td><td>{3}</td><td>{4}</td><td class=\"text\">{5}</td><td>{6}</td><td>{7}{live}</td></tr>\n",
            escaped(name),
            escaped(began),
            state,
            escaped(workload),
            escaped(size),
            escaped(what),
            link("run", name, name),
            link("report", name, "report"),
        ));
    }
    body.push_str("</tbody></table></div></form>\n");
    page("Runs", &(body + &notes(unreadable)))
}

/// One run or plan.
pub fn run(path: &Path, name: &str) -> Result<String, Failure> {
    let body = if is_plan(path) { plan_body(path, name)? } else { run_body(path, name)? };
    let files = files_of(path);
    let files: Vec<String> = files.iter().map(|file| link("file", &format!("{name}/{file}"), file)).collect();
    Ok(page(name, &format!("{body}<h2>Files</h2>\n<p>{}</p>\n", files.join(" · "))))
}

/// Files directly in the folder that a person may want to read.
fn files_of(path: &Path) -> Vec<String> {
    let known = ["run.json", "plan.json", "plan.toml", "results.json", "progress.tsv", "log.txt", "report.html"];
    known.iter().filter(|name| path.join(name).exists()).map(|name| (*name).to_owned()).collect()
}

fn facts(rows: &[(&str, String)]) -> String {
    let mut table = Table::new("", &[]);
    rows.iter().for_each(|(name, value)| table.row(name, [(value.clone(), "text".to_owned())]));
    table.finished()
}

fn run_body(path: &Path, name: &str) -> Result<String, Failure> {
    let (_, record) = Folder::open(path)?;
    let environment = &record.environment;
    let mount = environment.mount.as_ref().map(|mount| format!("{} on {}", mount.filesystem, mount.source));
    let mut rows = vec![
        ("state", state_of(path, record.state).to_owned()),
        ("began", record.began.clone()),
        ("command", record.command.join(" ")),
        ("targets", record.targets.join("  ")),
        ("machine", format!("{}, {} processors, {}", environment.cpu, environment.cores, environment.kernel)),
        ("storage", mount.unwrap_or_else(|| "not visible".into())),
        ("commit", format!("{} ({})", environment.commit, environment.build)),
    ];
    rows.extend(record.is_sampled.then(|| ("sampled", SAMPLED.to_owned())));
    rows.extend(record.ended_by.clone().map(|why| ("ended by", why)));
    let live = if is_under_way(path) { format!(" · {}", link("live", name, "live")) } else { String::new() };
    let mut body = format!("<p>{}{live}</p>\n{}", link("report", name, "report"), facts(&rows));
    let name_of = |target: usize| record.targets.get(target).map_or("a target", |text| record.name_of(text));
    let left = record.left_out.iter().map(|left| format!("{} was left out: {}", name_of(left.target), left.why));
    body.push_str(&notes(&left.collect::<Vec<_>>()));
    let file = path.join("results.json");
    let results: Vec<lab_measure::result::StepResult> = if file.exists() { read_json(&file)? } else { Vec::new() };
    if results.is_empty() {
        return Ok(body + "<p>No step is finished yet.</p>\n");
    }
    body.push_str("<h2>Results</h2>\n");
    body.push_str(&table_of("as lab show prints them", &table::rows_of(&results, false), &|_| ""));
    Ok(body)
}

fn plan_body(path: &Path, name: &str) -> Result<String, Failure> {
    let plan = summary_of(path)?;
    let begun = expanded(&[path.to_path_buf()]).unwrap_or_default();
    let scale = plan.scale.clone().unwrap_or_else(|| "as in the plan".into());
    let rows = [("plan", format!("{}: {}", plan.name, plan.title)), ("began", plan.began.clone()), ("scale", scale)];
    let mut body = format!("<p>{}</p>\n{}<h2>Parts</h2>\n<ul>\n", link("report", name, "report"), facts(&rows));
    for (part, title) in &plan.parts {
        let here = begun.iter().find(|path| path.file_name().is_some_and(|name| name.to_string_lossy() == *part));
        let place = format!("{name}/parts/{part}");
        let line = match here {
            Some(path) if is_under_way(path) => {
                format!("{}, {}", link("run", &place, title), link("live", &place, "live"))
            }
            Some(_) => link("run", &place, title),
            None => format!("{}, not begun", escaped(title)),
        };
        body.push_str(&format!("<li>{line}</li>\n"));
    }
    body.push_str("</ul>\n<h2>Tables of the study</h2>\n");
    let (tables, left_out) = study_of(path)?;
    for filled in tables {
        body.push_str(&table_of(&filled.title, &filled.rows, &|_| ""));
        filled.notes.iter().for_each(|note| body.push_str(&format!("<p class=\"soft\">{}</p>\n", escaped(note))));
    }
    Ok(body + &notes(&left_out))
}

/// The report: the file, or where a run has none yet one of its finished steps.
pub fn report(path: &Path) -> Result<String, Failure> {
    let file = path.join("report.html");
    if file.exists() && !is_under_way(path) {
        return std::fs::read_to_string(&file).map_err(|error| Failure::io("read", &file, &error));
    }
    Ok(lab_report::page(&crate::browse::inputs_of(&expanded(&[path.to_path_buf()])?)?))
}

/// Names that a person reads, not where the folder is on the disk.
fn shortened(root: &Path, text: &str) -> String {
    text.replace(&format!("{}/", root.display()), "")
}

/// The older run first: what is chosen comes newest first.
fn oldest_first(root: &Path, names: &[String]) -> Vec<PathBuf> {
    names.iter().rev().map(|name| root.join(name)).collect()
}

/// Runs compared.
pub fn compare(root: &Path, names: &[String], base: Option<Base>) -> Result<String, Failure> {
    let short = |failure: Failure| Failure::Failed(shortened(root, &failure.to_string()));
    let runs = oldest_first(root, names);
    let made = compared(&runs, base.as_ref(), &wanted(&[])?, MARGIN).map_err(short)?;
    let class = |cell: &str| match cell {
        "better" => "green",
        "worse" => "red",
        "same" => "gray",
        _ => "",
    };
    let rows: Vec<Vec<String>> = printed::rows_of(&made.lines)
        .into_iter()
        .map(|row| row.into_iter().map(|cell| shortened(root, &cell)).collect())
        .collect();
    let lines: Vec<String> = made.notes.iter().map(|note| shortened(root, note)).collect();
    let mut body = format!("<p>{}</p>\n{}", escaped(&shortened(root, &printed::summary(&made.lines))), notes(&lines));
    body.push_str(&table_of("ratios with 95 % intervals; the verdicts of lab compare", &rows, &class));
    if let [run] = names {
        // By number: a target may be an address with a password, and stands under other names where it has several cases.
        let against = |(place, target): (usize, &String)| {
            format!("<a href=\"/compare?run={}&amp;target={}\">{}</a>", encoded(run), place + 1, escaped(target))
        };
        let links: Vec<String> = made.targets.iter().enumerate().map(against).collect();
        body.push_str(&format!("<p>Against another: {}</p>\n", links.join(" · ")));
    }
    Ok(page("Compared", &body))
}

/// Two runs explained.
pub fn explain(root: &Path, names: &[String]) -> Result<String, Failure> {
    let runs = oldest_first(root, names);
    let [base, run] = runs.as_slice() else {
        return Err(Failure::Usage("an explanation is of two runs".into()));
    };
    let options = Explain {
        base: base.clone(),
        run: run.clone(),
        base_target: None,
        target: None,
        step: None,
        format: ExplainFormat::Text,
    };
    let (all, lines) =
        explained_steps(&options).map_err(|failure| Failure::Failed(shortened(root, &failure.to_string())))?;
    let mut body =
        format!("<p>From {} to {}.</p>\n", link("run", &names[1], &names[1]), link("run", &names[0], &names[0]));
    body.push_str(&notes(&lines.iter().map(|line| shortened(root, line)).collect::<Vec<_>>()));
    for explained in &all {
        body.push_str(&format!("<h2>{}</h2>\n", escaped(&headline(explained))));
        let mut table = Table::new(
            "parts of the time of an operation",
            &["part", "before, µs", "after, µs", "change, µs", "% of the change"],
        );
        for (place, part) in explained.parts.iter().enumerate() {
            let class = if place == 0 { "yellow" } else { "" };
            let numbers = [part.before_us, part.after_us].map(|us| format!("{us:.2}"));
            let changes = [format!("{:+.2}", part.change_us), format!("{:+.1}", share(explained, part.change_us))];
            table.row(&part.part, numbers.into_iter().chain(changes).map(|text| (text, class.to_owned())));
        }
        body.push_str(&table.finished());
        let beside: Vec<_> = explained.beside.iter().filter(|part| part.before_us.max(part.after_us) > 0.0).collect();
        if !beside.is_empty() {
            let mut table = Table::new("beside the time, an operation", &["cost", "before", "after"]);
            for part in beside {
                table.plain_row(&part.part, [part.before_us, part.after_us].map(|value| format!("{value:.3}")));
            }
            body.push_str(&table.finished());
        }
    }
    Ok(page("Explained", &body))
}

/// Which of the runs under way?
pub fn lives(names: &[String]) -> String {
    if names.is_empty() {
        let body = "<p>No run is under way. This page looks again every five seconds.</p>\n\
                    <meta http-equiv=\"refresh\" content=\"5\">\n";
        return page("Under way", body);
    }
    let lines: String = names.iter().map(|name| format!("<li>{}</li>\n", link("live", name, name))).collect();
    page("Under way", &format!("<ul>\n{lines}</ul>\n"))
}

/// A run under way: the first numbers are in the page, the script asks for the next ones.
pub fn live(view: &Value) -> String {
    let name = view["run"].as_str().unwrap_or_default();
    // Inside a script nothing is escaped but what could end it.
    let first = view.to_string().replace('<', "\\u003c");
    let body = format!(
        "<p id=\"what\"></p>\n<div class=\"numbers\" id=\"numbers\"></div>\n<p id=\"ended\" class=\"note\" hidden></p>\n\
         <figure class=\"chart\"><figcaption>operations a second: <b class=\"k0\">inserts</b> · <b class=\"k1\">deletes</b> · \
         <b class=\"k2\">queries</b>; a red mark is a second without any</figcaption><svg id=\"rates\" role=\"img\" \
         aria-label=\"operations a second\" viewBox=\"0 0 860 220\"></svg></figure>\n\
         <figure class=\"chart\"><figcaption>the slowest of each second, in milliseconds</figcaption><svg id=\"worst\" role=\"img\" \
         aria-label=\"slowest response of each second\" viewBox=\"0 0 860 220\"></svg></figure>\n\
         <h2>Finished steps</h2>\n<div class=\"scroll\"><table><thead><tr><th>target</th><th>step</th><th>rate</th><th>p99</th>\
         <th>longest stall</th></tr></thead><tbody id=\"finished\"></tbody></table></div>\n<p>{} · {}</p>\n\
         <script type=\"application/json\" id=\"first\">{first}</script>\n<script>\n{}</script>\n",
        link("run", name, "the run"),
        link("report", name, "report of the finished steps"),
        include_str!("live.js"),
    );
    page(name, &body)
}
