//! Which address gets what.
//!
//! | address | answer |
//! |---|---|
//! | `/` | the runs, with `?q=` those that have all of its words |
//! | `/run/RUN` | a run or plan: what it is, its tables, its files |
//! | `/report/RUN` | its report; made for the answer if the run has none yet |
//! | `/compare?run=RUN&run=RUN` | as `lab compare`; with one run its targets; `&base=` as `--base` |
//! | `/explain?run=RUN&run=RUN` | as `lab explain` |
//! | `/live`, `/live/RUN`, `/live.json?run=RUN` | a run under way, and its numbers |
//! | `/metrics` | the running numbers, for Prometheus |
//! | `/file/RUN/FILE` | a text file of a run folder |

use std::net::IpAddr;
use std::path::PathBuf;

use super::pages;
use super::place::{Refused, below, decoded};
use super::{history, live};
use crate::outcome::Failure;

/// Larger files are for other programs.
const LARGEST_FILE_BYTES: u64 = 32 << 20;
/// Files of a run folder that are shown; data of a database are not.
const SHOWN: [&str; 8] = ["json", "tsv", "txt", "toml", "cnf", "html", "svg", "prom"];

/// What is served.
#[derive(Debug)]
pub struct Site {
    /// The folder of runs, every link followed.
    pub root: PathBuf,
    /// Whether only this machine is meant to read.
    pub is_loopback: bool,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The type of the body.
    pub kind: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl Answer {
    fn of(kind: &'static str, body: String) -> Answer {
        Answer { status: 200, kind, body: masked(body).into_bytes() }
    }

    /// A page that says why there is nothing else.
    pub fn refused(status: u16, why: &str) -> Answer {
        Answer { status, ..Answer::of(HTML, pages::refused(why)) }
    }
}

/// Hides passwords of targets, wherever they stand: `://user:password@`.
fn masked(text: String) -> String {
    let ends = |letter: char| letter.is_whitespace() || "/\"'<>?&".contains(letter);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(place) = rest.find("://") {
        let (before, behind) = rest.split_at(place + 3);
        out.push_str(before);
        let place = &behind[..behind.find(ends).unwrap_or(behind.len())];
        rest = behind;
        if let Some((user, _)) = place.rsplit_once('@').and_then(|(user, _)| user.split_once(':')) {
            out.push_str(&format!("{user}:***"));
            rest = &behind[place.rfind('@').unwrap_or(0)..];
        }
    }
    out.push_str(rest);
    out
}

/// The parts of a query, decoded.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(text: &str) -> Option<Query> {
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            Some((decoded(key, true)?, decoded(value, true)?))
        };
        text.split('&').filter(|part| !part.is_empty()).map(pair).collect::<Option<Vec<_>>>().map(Query)
    }

    fn all(&self, wanted: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(key, value)| key == wanted && !value.is_empty())
            .map(|(_, value)| value.as_str())
            .collect()
    }

    fn first(&self, wanted: &str) -> Option<&str> {
        self.all(wanted).first().copied()
    }
}

impl Site {
    /// The answer to a request.
    pub fn answer(&self, address: &str, host: Option<&str>) -> Answer {
        if self.is_loopback && !host.is_none_or(is_loopback_name) {
            return Answer::refused(403, "this server answers to localhost and 127.0.0.1 alone");
        }
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        match (decoded(path, false), Query::of(query)) {
            (Some(path), Some(query)) => self.routed(&path, &query).unwrap_or_else(|answer| answer),
            _ => Answer::refused(400, "this address is no text"),
        }
    }

    fn routed(&self, path: &str, query: &Query) -> Result<Answer, Answer> {
        let failed = |failure: Failure| Answer::refused(500, &failure.to_string());
        // What was asked for cannot be had: the page says why.
        let unable = |failure: Failure| Answer::refused(422, &failure.to_string());
        match path {
            "/" => {
                let search = query.first("q").unwrap_or("");
                let (entries, unreadable) = history::entries(&self.root, search).map_err(failed)?;
                return Ok(Answer::of(HTML, pages::list(&entries, &unreadable, search)));
            }
            "/metrics" => {
                let text = live::metrics_text(&self.root).map_err(failed)?;
                return Ok(Answer::of("text/plain; version=0.0.4; charset=utf-8", text));
            }
            "/live.json" => {
                let (name, _) = self.run(query.first("run").unwrap_or(""))?;
                return Ok(Answer::of(JSON, live::view(&self.root, &name).map_err(failed)?.to_string()));
            }
            "/live" => {
                let names = history::under_way(&self.root).map_err(failed)?;
                return match names.as_slice() {
                    [only] => self.live(only),
                    _ => Ok(Answer::of(HTML, pages::lives(&names))),
                };
            }
            "/compare" => {
                let runs = self.runs(query, 1)?;
                return Ok(Answer::of(HTML, pages::compare(&self.root, &runs, query.first("base")).map_err(unable)?));
            }
            "/explain" => {
                let runs = self.runs(query, 2)?;
                return Ok(Answer::of(HTML, pages::explain(&self.root, &runs).map_err(unable)?));
            }
            _ => {}
        }
        match path.trim_start_matches('/').split_once('/') {
            Some(("run", name)) => {
                let (name, path) = self.run(name)?;
                Ok(Answer::of(HTML, pages::run(&path, &name).map_err(failed)?))
            }
            Some(("report", name)) => {
                let (_, path) = self.run(name)?;
                Ok(Answer::of(HTML, pages::report(&path).map_err(failed)?))
            }
            Some(("live", name)) => self.live(name),
            Some(("file", name)) => self.file(name),
            _ => Err(Answer::refused(404, "there is no such page")),
        }
    }

    fn live(&self, name: &str) -> Result<Answer, Answer> {
        let (name, _) = self.run(name)?;
        let view = live::view(&self.root, &name).map_err(|failure| Answer::refused(422, &failure.to_string()))?;
        Ok(Answer::of(HTML, pages::live(&view)))
    }

    fn place(&self, name: &str) -> Result<PathBuf, Answer> {
        below(&self.root, name).map_err(|refused| match refused {
            Refused::Missing => Answer::refused(404, &format!("there is no {name} here")),
            Refused::Outside => Answer::refused(403, "nothing outside of the folder of runs is shown"),
        })
    }

    /// A run or plan by its name.
    fn run(&self, name: &str) -> Result<(String, PathBuf), Answer> {
        let name = name.trim_end_matches('/');
        let path = self.place(name)?;
        match path.join("run.json").exists() || crate::run::plan::is_plan(&path) {
            true => Ok((name.to_owned(), path)),
            false => Err(Answer::refused(404, &format!("{name} is no run"))),
        }
    }

    fn runs(&self, query: &Query, least: usize) -> Result<Vec<String>, Answer> {
        let names = query.all("run").into_iter().map(|name| Ok(self.run(name)?.0)).collect::<Result<Vec<_>, _>>()?;
        if names.len() < least {
            let wanted = if least == 1 { "a run" } else { "two runs" };
            return Err(Answer::refused(422, &format!("choose {wanted} in the list of runs first")));
        }
        Ok(names)
    }

    fn file(&self, name: &str) -> Result<Answer, Answer> {
        let path = self.place(name)?;
        let ending = path.extension().map(|ending| ending.to_string_lossy().into_owned()).unwrap_or_default();
        let size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        if !path.is_file() || !SHOWN.contains(&ending.as_str()) {
            return Err(Answer::refused(404, &format!("{name} is no text file of a run")));
        }
        if size > LARGEST_FILE_BYTES {
            return Err(Answer::refused(413, &format!("{name} has {} MiB: read it where it is", size >> 20)));
        }
        let kind = match ending.as_str() {
            "json" => JSON,
            "html" => HTML,
            _ => TEXT,
        };
        let text = std::fs::read_to_string(&path);
        text.map(|text| Answer::of(kind, text)).map_err(|error| Answer::refused(500, &format!("{name}: {error}")))
    }
}

/// Whether a name that a browser asks for is one of this machine's own.
fn is_loopback_name(host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let name = without_port.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_wherever_they_stand() {
        let hidden = |text: &str| masked(text.to_owned());
        assert_eq!(
            hidden("a mysql://root:s@e:c@host:3306/db?engine=innodb, b \"postgres://me:x@h/d\""),
            "a mysql://root:***@host:3306/db?engine=innodb, b \"postgres://me:***@h/d\""
        );
        for text in ["mysql://root@host:3306/db", "http://127.0.0.1:80/ a:b@c", "no address", "x://"] {
            assert_eq!(hidden(text), text);
        }
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for name in ["localhost", "localhost:7878", "127.0.0.1:1", "[::1]:7878", "[::1]", "LOCALHOST:1", "127.0.0.2"] {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in ["example.invalid", "example.invalid:7878", "10.0.0.1:7878", "localhost.example.invalid", ""] {
            assert!(!is_loopback_name(name), "{name}");
        }
    }
}
