//! Passwords of targets, which run folders of today hold none of, and those of before may.
//!
//! Two walls: the targets of the runs that an answer is of are known, so what stands before the `@` of their addresses is
//! hidden in every form that text has in an answer; and whatever else looks like `://user:password@` is hidden too.

use std::path::{Path, PathBuf};

use lab_report::html::escaped;
use lab_target::secret::{masked, user_and_password};
use serde_json::Value;

use super::place::encoded;
use crate::folder::read_json;

/// What is hidden, and what stands there instead.
#[derive(Debug, Default)]
pub struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// Those of runs and plans by their folders.
    pub fn of(folders: &[PathBuf]) -> Secrets {
        let mut known: Vec<(String, String)> =
            folders.iter().flat_map(|folder| targets_of(folder)).flat_map(|target| pairs_of(&target)).collect();
        // The longest first: one may be the beginning of another.
        known.sort_by(|left, right| right.0.len().cmp(&left.0.len()).then_with(|| left.cmp(right)));
        known.dedup();
        Secrets(known)
    }

    /// The text without passwords.
    pub fn hidden(&self, text: String) -> String {
        let known = self.0.iter().fold(text, |text, (secret, instead)| match text.contains(secret.as_str()) {
            true => text.replace(secret.as_str(), instead),
            false => text,
        });
        masked(&known)
    }
}

/// Target strings of a run's and a plan's records; a record that cannot be read has none.
fn targets_of(folder: &Path) -> Vec<String> {
    let read = |name: &str| read_json::<Value>(&folder.join(name)).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let run = read("run.json");
    let mut all: Vec<String> = run["targets"].as_array().into_iter().flatten().filter_map(text).collect();
    let plan = read("plan.json");
    for part in plan["parts"].as_array().into_iter().flatten() {
        let rows = part["rows"].as_array().into_iter().flatten();
        all.extend(rows.filter_map(|row| text(&row["target"])));
    }
    all
}

/// User and password of a target in every form: as it is, in HTML, in JSON, in both, in an address.
fn pairs_of(target: &str) -> Vec<(String, String)> {
    let Some((user, password)) = user_and_password(target) else { return Vec::new() };
    let (secret, instead) = (format!("{user}:{password}@"), format!("{user}:***@"));
    let json = |text: &str| Value::from(text).to_string().trim_matches('"').to_owned();
    let forms: [&dyn Fn(&str) -> String; 7] = [
        &|text| text.to_owned(),
        &|text| escaped(text),
        &|text| json(text),
        &|text| escaped(&json(text)),
        &|text| json(text).replace('<', "\\u003c"),
        &|text| encoded(text),
        &|text| encoded(text).replace('/', "%2F"),
    ];
    forms.iter().map(|form| (form(&secret), form(&instead))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_password_is_hidden_in_every_form() {
        let target = "mysql://root:s'e\"c<r&e@t@h/d?engine=innodb";
        let dir = tempfile::tempdir().unwrap();
        let record = serde_json::json!({ "targets": [target, "model", "mysql://root@h/d"] });
        std::fs::write(dir.path().join("run.json"), record.to_string()).unwrap();
        let secrets = Secrets::of(&[dir.path().to_path_buf(), dir.path().join("absent")]);
        let json = Value::from(target).to_string();
        for text in [
            target.to_owned(),
            escaped(target),
            json.clone(),
            escaped(&json),
            json.replace('<', "\\u003c"),
            encoded(target),
        ] {
            let hidden = secrets.hidden(text.clone());
            assert!(text.contains("c") && hidden.contains("root"), "{hidden}");
            for piece in ["s'e", "c<r", "s&#39;e", "s%27e", "e@t", "e%40t", "s\\\"", "c\\u003cr", "cr"] {
                assert!(!hidden.contains(piece), "{piece} in {hidden} of {text}");
            }
        }
        assert_eq!(secrets.hidden("mysql://root@h/d".into()), "mysql://root@h/d");
    }
}
