//! The anomaly matrix: which of the known anomalies each isolation level lets happen. Scripts and expectations are in
//! `anomalies.txt`.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use trefoil::{Database, Error, Index, Isolation, LockMode, Transaction, TransactionOptions};
use vfs::sync::Mutex;

const MATRIX: &str = include_str!("anomalies.txt");
const LEVELS: [(&str, Isolation, bool); 5] = [
    ("ru", Isolation::ReadUncommitted, false),
    ("rc", Isolation::ReadCommitted, false),
    ("rr", Isolation::RepeatableRead, false),
    ("si", Isolation::RepeatableRead, true),
    ("ser", Isolation::Serializable, false),
];

/// A line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    session: usize,
    words: Vec<String>,
    /// Answers by which the anomaly shows; none: any answer.
    wanted: Vec<String>,
}

#[derive(Debug, Clone)]
struct Anomaly {
    name: String,
    steps: Vec<Step>,
    /// By level: if it happens in InnoDB, and here.
    expected: BTreeMap<String, (bool, bool)>,
}

fn parse(text: &str) -> Vec<Anomaly> {
    let mut all: Vec<Anomaly> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0] == "anomaly" {
            all.push(Anomaly { name: words[1].into(), steps: Vec::new(), expected: BTreeMap::new() });
            continue;
        }
        let anomaly = all.last_mut().expect("a name comes first");
        let Ok(session) = words[0].parse() else {
            for cell in words.chunks(2) {
                let yes = |word| match word {
                    "yes" => true,
                    "no" => false,
                    _ => panic!("{line}"),
                };
                let (innodb, here) = cell[1].split_once('/').unwrap_or((cell[1], cell[1]));
                anomaly.expected.insert(cell[0].into(), (yes(innodb), yes(here)));
            }
            continue;
        };
        let (statement, answer) = line.split_once("->").unwrap_or((line, ""));
        let wanted = answer.split('|').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect();
        let words = statement.split_whitespace().skip(1).map(str::to_owned).collect();
        anomaly.steps.push(Step { session, words, wanted });
    }
    all
}

fn number(word: &str) -> u8 {
    word.parse().unwrap()
}

fn rows(tx: &Transaction, test: &Index) -> Result<Vec<(u8, u8)>, Error> {
    Ok(tx.range(test, ..)?.collect()?.into_iter().map(|(key, value)| (key[0], value[0])).collect())
}

fn shown(values: impl Iterator<Item = u8>) -> String {
    let words: Vec<String> = values.map(|value| value.to_string()).collect();
    if words.is_empty() { "none".into() } else { words.join(" ") }
}

/// Runs one statement; a commit takes the transaction.
fn run(slot: &mut Option<Transaction>, test: &Index, words: &[String]) -> Result<String, Error> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let tx = slot.as_mut().expect("a session runs until it ends");
    match words[..] {
        ["read", key] => Ok(shown(tx.get(test, &[number(key)])?.into_iter().map(|value| value[0]))),
        ["all"] => Ok(shown(rows(tx, test)?.into_iter().map(|(_, value)| value))),
        ["count", value] => Ok(rows(tx, test)?.iter().filter(|row| row.1 == number(value)).count().to_string()),
        ["set", key, value] => {
            if tx.get_locked(test, &[number(key)], LockMode::Exclusive)?.is_some() {
                tx.put(test, &[number(key)], &[number(value)])?;
            }
            Ok("ok".into())
        }
        ["insert", key, value] => tx.put(test, &[number(key)], &[number(value)]).map(|()| "ok".into()),
        ["delete", value] => {
            let mut found = Vec::new();
            let mut cursor = tx.range_locked(test, .., LockMode::Exclusive)?;
            while let Some((key, now)) = cursor.next()? {
                if now[0] == number(value) {
                    found.push(key[0]);
                } else {
                    tx.unlock_row();
                }
            }
            drop(cursor);
            for key in &found {
                tx.delete(test, &[*key])?;
            }
            Ok(shown(found.into_iter()))
        }
        ["commit"] => slot.take().unwrap().commit().map(|_| "ok".into()),
        ["abort"] => {
            slot.take().unwrap().rollback();
            Ok("ok".into())
        }
        _ => panic!("{words:?}"),
    }
}

type Answers = Arc<Mutex<BTreeMap<usize, String>>>;

/// A session of its own thread: does what comes into its queue, until it has ended and the script is over.
fn session(db: &Database, options: TransactionOptions, queue: &Queue, answers: &Answers) {
    let test = db.index("test").unwrap();
    let mut tx = Some(db.begin_with(options).unwrap());
    loop {
        let next = queue.lock().pop_front();
        match next {
            None => sleep(1),
            Some(None) => return,
            Some(Some((n, words))) if tx.is_some() => match run(&mut tx, &test, &words) {
                Ok(answer) => drop(answers.lock().insert(n, answer)),
                Err(Error::Deadlock { .. } | Error::SnapshotConflict { .. }) => tx = None,
                Err(other) => panic!("{words:?}: {other}"),
            },
            Some(Some(_)) => {}
        }
    }
}

type Queue = Arc<Mutex<VecDeque<Option<(usize, Vec<String>)>>>>;

/// True if the anomaly happens.
fn happens(anomaly: &Anomaly, isolation: Isolation, snapshot_isolation: bool) -> bool {
    let db = open(&disk());
    let test = index(&db, "test");
    for (key, value) in [(1, 10), (2, 20)] {
        put(&db, &test, &[key], &[value], trefoil::Durability::Sync).unwrap();
    }
    let lock_timeout = Some(Duration::from_secs(3600));
    let options = TransactionOptions { isolation: Some(isolation), snapshot_isolation, lock_timeout };
    let answers = Answers::default();
    let queues: Vec<Queue> = (0..3).map(|_| Queue::default()).collect();
    let threads = queues.iter().map(|queue| {
        let (db, queue, answers) = (db.clone(), queue.clone(), answers.clone());
        spawn("session", move || session(&db, options, &queue, &answers))
    });
    let threads: Vec<_> = threads.collect();
    for (n, step) in anomaly.steps.iter().enumerate() {
        queues[step.session - 1].lock().push_back(Some((n, step.words.clone())));
        // Time to do it, or to wait.
        sleep(20);
    }
    sleep(100);
    queues.iter().for_each(|queue| queue.lock().push_back(None));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    sound(&db);
    let answers = answers.lock();
    let mut wanted = anomaly.steps.iter().enumerate().filter(|(_, step)| !step.wanted.is_empty());
    wanted.all(|(n, step)| answers.get(&n).is_some_and(|answer| step.wanted.contains(answer)))
}

/// Every anomaly on every level, as the file says; what differs from InnoDB is stricter.
#[test]
fn anomalies_happen_where_the_matrix_says() {
    let matrix = parse(MATRIX);
    assert_eq!(matrix.len(), 12);
    let wrong = Arc::new(Mutex::new(Vec::new()));
    for anomaly in matrix {
        for (level, isolation, snapshot_isolation) in LEVELS {
            let (innodb, expected) = anomaly.expected[level];
            assert!(innodb || !expected, "{} at {level}: weaker than InnoDB", anomaly.name);
            let (anomaly, wrong) = (anomaly.clone(), wrong.clone());
            simulate(move |_| {
                let found = happens(&anomaly, isolation, snapshot_isolation);
                if found != expected {
                    wrong.lock().push(format!("{} at {level} happens: {found}", anomaly.name));
                }
            });
        }
    }
    let wrong = wrong.lock();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
