//! Did a setting take? What the option file asks for beside what the server says is in force.
//!
//! A server may round a value, take another one for the rest of its life, or, where the name begins with `loose_`, have no such
//! variable and say nothing: whoever measures a knob that way measures nothing. What differs becomes a note of the target.

use std::collections::BTreeMap;
use std::fs;

/// Groups of an option file that a server reads.
const GROUPS: [&str; 4] = ["mysqld", "mariadb", "mariadbd", "server"];

/// A setting as a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    value: String,
    /// A server that has no such variable may go on.
    is_loose: bool,
}

/// The settings of an option file by the names of their variables, what stands later has the last word; included files too.
fn asked(text: &str) -> BTreeMap<String, Asked> {
    let (mut all, mut is_read) = (BTreeMap::new(), true);
    for line in text.lines().map(str::trim) {
        if let Some(group) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            // Groups of one version: `mariadb-10.11`.
            is_read = GROUPS.iter().any(|name| group == *name || group.starts_with(&format!("{name}-")));
        } else if let Some(path) = line.strip_prefix("!include ") {
            all.extend(asked(&fs::read_to_string(path.trim()).unwrap_or_default()));
        } else if let (true, Some((name, value))) = (is_read, line.split_once('=')) {
            let name = name.trim().to_lowercase().replace('-', "_");
            if !name.starts_with(['#', ';']) {
                let value = value.trim().trim_matches(['"', '\'']).to_owned();
                let loose = name.strip_prefix("loose_");
                all.insert(loose.unwrap_or(&name).to_owned(), Asked { value, is_loose: loose.is_some() });
            }
        }
    }
    all
}

/// A value as servers say it, whichever way it was written.
fn normal(value: &str) -> String {
    let lower = value.trim().to_lowercase();
    let power = match lower.chars().last() {
        Some('k') => 10,
        Some('m') => 20,
        Some('g') => 30,
        Some('t') => 40,
        _ => 0,
    };
    let digits = if power == 0 { lower.as_str() } else { &lower[..lower.len() - 1] };
    match (digits.parse::<f64>(), lower.as_str()) {
        (Ok(number), _) => (number * f64::from(2).powi(power)).to_string(),
        (_, "on" | "true" | "yes") => "1".into(),
        (_, "off" | "false" | "no") => "0".into(),
        _ => lower,
    }
}

/// Settings that are not in force as they were asked for, in words.
pub fn without_effect(options: &str, in_force: &BTreeMap<String, String>) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, Asked { value, is_loose }) in asked(options) {
        match in_force.get(&name) {
            // `log_bin=name` is ON: there is nothing to compare.
            Some(found) if matches!(found.as_str(), "ON" | "OFF") && !matches!(normal(&value).as_str(), "0" | "1") => {}
            Some(found) if normal(found) == normal(&value) => {}
            Some(found) => notes.push(format!("{name}: {value} was asked for, {found} is in force")),
            // An option without a variable, which a server that did not know it would have refused.
            None if !is_loose => {}
            None => notes.push(format!("{name}: the server has no such variable, so it has no effect")),
        }
    }
    notes
}

/// Whether a line of a server's log says that a setting is old or does nothing. MariaDB takes options that it had once, says this
/// and has no variable for them.
pub fn is_told_to_be_void(line: &str) -> bool {
    let words = ["deprecated", "ignored", "was removed", "does nothing"];
    line.contains("[Warning]") && words.iter().any(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_force(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_knob_that_took_is_silent_and_one_that_did_not_is_told() {
        let options = "[mysqld]\ninnodb_log_file_size=4M\ninnodb-doublewrite = off\nbinlog_format='row'\n# a=1\nratio=0.50\n\
                       log_bin=binlog\nplugin_load_add=ha_x.so\n[client]\nport=1\n";
        let took = [
            ("innodb_log_file_size", "4194304"),
            ("innodb_doublewrite", "OFF"),
            ("binlog_format", "ROW"),
            ("ratio", "0.500000"),
            ("log_bin", "ON"),
            ("port", "0"),
        ];
        assert_eq!(without_effect(options, &in_force(&took)), Vec::<String>::new());
        let mut other = in_force(&took);
        other.insert("innodb_log_file_size".into(), "8388608".into());
        other.insert("innodb_doublewrite".into(), "ON".into());
        let told = without_effect(options, &other);
        assert_eq!(
            told,
            [
                "innodb_doublewrite: off was asked for, ON is in force",
                "innodb_log_file_size: 4M was asked for, 8388608 is in force"
            ]
        );
    }

    #[test]
    fn lines_about_settings_are_told_from_others() {
        for line in [
            "2026-01-01 0:00:00 0 [Warning] 'innodb-page-cleaners' was removed. It does nothing now and exists only for my.cnf",
            "0 [Warning] [MY-011068] [Server] The syntax 'x' is deprecated and will be removed in a future release.",
            "0 [Warning] innodb_open_files 300 should not be greater than 32; ignored",
        ] {
            assert!(is_told_to_be_void(line), "{line}");
        }
        assert!(!is_told_to_be_void("0 [Note] InnoDB: 10.11.18 started; it does nothing yet"));
        assert!(!is_told_to_be_void("0 [Warning] Aborted connection 4"));
    }

    #[test]
    fn a_loose_name_that_nobody_knows_has_no_effect_and_the_last_word_counts() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("own.cnf");
        std::fs::write(&file, "[mariadb-10.11]\nloose_no_such_thing=7\nloose-known=2\n").unwrap();
        let options = format!("[mysqld]\nknown=1\n!include {}\n", file.display());
        let told = without_effect(&options, &in_force(&[("known", "2")]));
        assert_eq!(told, ["no_such_thing: the server has no such variable, so it has no effect"]);
    }
}
