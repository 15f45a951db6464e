//! Which address gets what.
//!
//! | address | answer |
//! |---|---|
//! | `/` | the runs, with `?q=` those that have all of its words |
//! | `/run/RUN` | a run or plan: what it is, its tables, its files |
//! | `/report/RUN` | its report; made for the answer if the run has none yet |
//! | `/compare?run=RUN&run=RUN` | as `lab compare`, with one run its targets; `&base=RUN`, `&base=TARGET`, `&target=N` |
//! | `/explain?run=RUN&run=RUN` | as `lab explain` |
//! | `/live`, `/live/RUN`, `/live.json?run=RUN` | a run under way, and its numbers |
//! | `/metrics` | the running numbers, for Prometheus |
//! | `/file/RUN/FILE` | a text file of a run folder |

use std::net::IpAddr;
use std::path::PathBuf;

use super::http::Head;
use super::place::{LARGEST_FILE_BYTES, Refused, below, decoded, sound};
use super::secrets::Secrets;
use super::{history, live, pages};
use crate::compare::Base;
use crate::outcome::Failure;
use crate::run::plan::expanded;

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
    pub body: String,
    /// Whether it is a page that a run wrote, and not one of this server.
    pub is_of_run: bool,
}

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl Answer {
    fn of(kind: &'static str, body: String) -> Answer {
        Answer { status: 200, kind, body, is_of_run: false }
    }

    /// A page that says why there is nothing else.
    pub fn refused(status: u16, why: &str) -> Answer {
        Answer { status, ..Answer::of(HTML, pages::refused(why)) }
    }

    /// Everything before the body.
    pub fn head(&self) -> String {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            413 => "Content Too Large",
            422 => "Unprocessable Content",
            431 => "Request Header Fields Too Large",
            _ => "Internal Server Error",
        };
        // Scripts are the pages' own; nothing comes from elsewhere, and nobody frames it.
        let policy = match self.is_of_run {
            true => "sandbox; default-src 'none'; style-src 'unsafe-inline'; script-src 'none'; img-src data:",
            false => {
                "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                 img-src data:; form-action 'self'"
            }
        };
        let allow = if self.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Content-Security-Policy: {policy}; base-uri 'none'; frame-ancestors 'none'\r\n\
             X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n{allow}\r\n",
            self.status,
            self.kind,
            self.body.len()
        )
    }
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
    pub fn answer(&self, head: &Head) -> Answer {
        if let Some(host) = head.host.as_deref().filter(|host| !is_answered(host, self.is_loopback)) {
            let names = if self.is_loopback { "localhost and 127.0.0.1" } else { "its address in numbers" };
            return Answer::refused(403, &format!("this server answers to {names} alone, not to {host}"));
        }
        if head.site.as_deref() == Some("cross-site") {
            return Answer::refused(403, "a page of another site asked for this; type the address to see it");
        }
        let (path, query) = head.address.split_once('?').unwrap_or((&head.address, ""));
        match (decoded(path, false), Query::of(query)) {
            (Some(path), Some(query)) => {
                let answer = self.routed(&path, &query).unwrap_or_else(|answer| answer);
                let body = Secrets::of(&self.concerned(&path, &query)).hidden(answer.body);
                Answer { body, ..answer }
            }
            _ => Answer::refused(400, "this address is no text"),
        }
    }

    /// The folders of the runs and plans that an answer can be of.
    fn concerned(&self, path: &str, query: &Query) -> Vec<PathBuf> {
        let mut found = Vec::new();
        match path.trim_start_matches('/').split_once('/') {
            Some((_, name)) => found.extend(below(&self.root, name)),
            // The list, the running numbers and what is under way are of all.
            None if query.all("run").is_empty() => {
                let children = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
                found.extend(children.map(|child| child.path()));
            }
            None => {}
        }
        let named = query.all("run").into_iter().chain(query.all("base"));
        found.extend(named.filter_map(|name| below(&self.root, name).ok()));
        let mut folders = Vec::new();
        for path in found {
            // A file and a part are of the run or plan that they lie in.
            for folder in path.ancestors().take_while(|folder| *folder != self.root) {
                if sound(&self.root, folder, false).is_ok() {
                    folders.push(folder.to_path_buf());
                    folders.extend(expanded(&[folder.to_path_buf()]).unwrap_or_default());
                }
            }
        }
        folders.sort();
        folders.dedup();
        folders
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
                let base = self.base(query)?;
                return Ok(Answer::of(HTML, pages::compare(&self.root, &runs, base).map_err(unable)?));
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
                let body = pages::report(&path).map_err(failed)?;
                Ok(Answer { is_of_run: true, ..Answer::of(HTML, body) })
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
        if !path.join("run.json").exists() && !crate::run::plan::is_plan(&path) {
            return Err(Answer::refused(404, &format!("{name} is no run")));
        }
        sound(&self.root, &path, true).map_err(|why| Answer::refused(403, &why))?;
        Ok((name.to_owned(), path))
    }

    /// What is compared with: a run below the folder, or a target. Nothing else becomes a path.
    fn base(&self, query: &Query) -> Result<Option<Base>, Answer> {
        if let Some(number) = query.first("target") {
            let number = number.parse().map_err(|_| Answer::refused(422, "targets are numbered from 1"))?;
            return Ok(Some(Base::Number(number)));
        }
        let Some(name) = query.first("base") else { return Ok(None) };
        Ok(Some(match below(&self.root, name) {
            Ok(_) => Base::Run(self.run(name)?.1),
            Err(_) => Base::Target(name.to_owned()),
        }))
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
        let text = text.map_err(|error| Answer::refused(500, &format!("{name}: {error}")))?;
        Ok(Answer { is_of_run: true, ..Answer::of(kind, text) })
    }
}

/// Whether a server is answered for under a name: a name that is no address may be led anywhere by whom it belongs to.
fn is_answered(host: &str, is_loopback: bool) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let name = without_port.trim_start_matches('[').trim_end_matches(']');
    let address = name.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| !is_loopback || address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for name in ["localhost", "localhost:7878", "127.0.0.1:1", "[::1]:7878", "[::1]", "LOCALHOST:1", "127.0.0.2"] {
            assert!(is_answered(name, true) && is_answered(name, false), "{name}");
        }
        for name in ["example.invalid", "example.invalid:7878", "localhost.example.invalid", ""] {
            assert!(!is_answered(name, true) && !is_answered(name, false), "{name}");
        }
        assert_eq!((is_answered("10.0.0.1:7878", true), is_answered("10.0.0.1:7878", false)), (false, true));
    }
}
