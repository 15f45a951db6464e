//! The clients of a step, each by itself: its rate second by second, in tenths of the step, and what most of its seconds reach.
//!
//! Nothing for one client, whose rate is that of all. Of many, those that did least and most are shown; the run folder has all.

use lab_measure::{Kind, Series};

use crate::chart::{Fold, Trace, over_time};
use crate::html::{Table, grouped};
use crate::lines::{Entry, Lines};
use crate::section::complete;
use crate::tenths::{self, LEAST_SECS};

/// So many are drawn.
const DRAWN: usize = 8;
/// So many have a row.
const LISTED: usize = 16;

/// A client's number, from 1, and its seconds.
type Client = (usize, Vec<u64>);

/// The part of a step's section.
#[must_use]
pub fn part(lines: &Lines<'_>, step: &str) -> String {
    let mut out = String::new();
    for kind in [Kind::Query, Kind::Insert, Kind::Delete] {
        for (line, entry) in lines.with(step) {
            let clients = clients(entry, kind, |series| &series.counts);
            let title = format!("{step}: {} of each client, second by second: {}", tenths::unit(kind), line.name);
            out.push_str(&chart(&title, &chosen(clients.clone(), DRAWN), Fold::Mean));
            let worst = self::clients(entry, kind, |series| &series.worst_us);
            let drawn: Vec<usize> = chosen(clients.clone(), DRAWN).iter().map(|(number, _)| *number).collect();
            let worst: Vec<Client> = worst.into_iter().filter(|(number, _)| drawn.contains(number)).collect();
            let title = format!("{step}: worst {} of each client in each second, µs: {}", kind.name(), line.name);
            out.push_str(&chart(&title, &worst, Fold::Largest));
            out.push_str(&table(&line.name, kind, clients));
        }
    }
    if out.is_empty() { out } else { format!("<h3>Clients</h3>\n{out}") }
}

/// Complete seconds of each client; nothing where there is one, or where a second is not complete.
fn clients(entry: &Entry<'_>, kind: Kind, of: impl Fn(&Series) -> &Vec<u64>) -> Vec<Client> {
    let all = entry.record.by_client.iter().zip(1..);
    let all = all.filter_map(|(series, number)| Some((number, complete(of(series.get(kind.name())?), entry))));
    let all: Vec<Client> = all.filter(|(_, counts)| counts.len() > 1).collect();
    if all.len() > 1 { all } else { Vec::new() }
}

/// All in their order, or of many the halves that did least and most.
fn chosen(mut clients: Vec<Client>, most: usize) -> Vec<Client> {
    if clients.len() > most {
        clients.sort_by_key(|(_, counts)| counts.iter().sum::<u64>());
        clients.drain(most / 2..clients.len() - most / 2);
        clients.sort_unstable();
    }
    clients
}

fn chart(title: &str, clients: &[Client], fold: Fold) -> String {
    let trace = |(place, (number, values)): (usize, &Client)| Trace {
        name: format!("client {number}"),
        place,
        values: values.iter().map(|value| *value as f64).collect(),
    };
    over_time(title, &clients.iter().enumerate().map(trace).collect::<Vec<_>>(), fold)
}

/// Nothing for steps of less than ten complete seconds.
fn table(name: &str, kind: Kind, clients: Vec<Client>) -> String {
    let count = clients.len();
    let shown = chosen(clients, LISTED);
    if shown.iter().all(|(_, counts)| counts.len() < LEAST_SECS) {
        return String::new();
    }
    let which = if count > shown.len() { format!(", those of {count} that did least and most") } else { String::new() };
    let caption = format!(
        "{name}, {} of each client in each tenth of the step, and in most of its seconds{which}",
        tenths::unit(kind)
    );
    let headings: Vec<String> = ["client", "in all"].map(String::from).into_iter().chain(tenths::headings()).collect();
    let mut table = Table::new(&caption, &headings.iter().map(String::as_str).collect::<Vec<_>>());
    for (number, counts) in shown {
        let all = grouped(counts.iter().sum::<u64>() as f64);
        table.plain_row(&number.to_string(), std::iter::once(all).chain(tenths::cells(&counts)));
    }
    table.finished()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_those_that_did_least_and_most_are_shown() {
        let clients =
            |count: usize| (1..=count).map(|number| (number, vec![number as u64 * 7 % 20; 3])).collect::<Vec<_>>();
        assert_eq!(chosen(clients(8), 8), clients(8));
        // Of 1 to 9, times 7 modulo 20: 7 14 1 8 15 2 9 16 3.
        let numbers: Vec<usize> = chosen(clients(9), 4).iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [3, 5, 6, 8]);
    }
}
