//! Scripts with drawings: verbs in, the tree's structure out. `TREFOIL_REWRITE=1` writes what came out into the files.
//!
//! | verb | does |
//! |---|---|
//! | `node N` | an empty tree with nodes of N bytes |
//! | `put K.. VALUE_BYTES` | one commit: puts |
//! | `rows FROM TO STEP VALUE_BYTES` | one commit for each: puts key00FROM, … |
//! | `delete K..`, `delete-rows FROM TO STEP` | one commit: deletes |
//! | `tick` | a commit elsewhere: the view moves on |
//! | `snapshot`, `release` | holds the view back; lets go |
//! | `checkpoint`, `checkpoint-at BACK` | a checkpoint; one whose F lies so many commits back |
//! | `evict` | everything that may leaves memory |
//! | `maintain` | until nothing is left to do |
//! | `reopen`, `reopen-only` | from the last manifest, with replay or without |
//! | `keys` | the keys of a scan |
//! | `draw` | the tree |

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fmt::Write;
use std::path::Path;

use crate::common::{self, Rig, Setup};
use base::Lsn;
use index::{Index, Upkeep};

struct Player {
    rig: Rig,
}

fn row(n: u64) -> Vec<u8> {
    format!("k{n:03}").into_bytes()
}

fn numbers(words: &[&str]) -> Vec<u64> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

fn rows(n: &[u64]) -> impl Iterator<Item = u64> {
    (n[0]..n[1]).step_by(n[2] as usize)
}

impl Player {
    /// Carries out one line; returns what it shows.
    fn play(mut self, line: &str) -> (Self, String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (verb, args) = words.split_first().unwrap();
        let mut out = String::new();
        match *verb {
            "put" => {
                let (bytes, keys) = args.split_last().unwrap();
                let value = vec![b'v'; bytes.parse().unwrap()];
                self.rig.commit(keys.iter().map(|key| (key.as_bytes().to_vec(), Some(value.clone()))).collect());
            }
            "rows" => {
                let n = numbers(args);
                rows(&n).for_each(|i| {
                    self.rig.put(row(i), vec![b'v'; n[3] as usize]);
                });
            }
            "delete" => {
                self.rig.commit(args.iter().map(|key| (key.as_bytes().to_vec(), None)).collect());
            }
            "delete-rows" => {
                self.rig.commit(rows(&numbers(args)).map(|i| (row(i), None)).collect());
            }
            "tick" => {
                self.rig.now.fetch_add(16, std::sync::atomic::Ordering::SeqCst);
            }
            "snapshot" => self.rig.snapshots.lock().push(self.rig.now()),
            "release" => self.rig.snapshots.lock().clear(),
            "checkpoint" => {
                self.rig.checkpoint();
            }
            "checkpoint-at" => {
                let applied = Lsn(self.rig.now().0 - 16 * args[0].parse::<u64>().unwrap());
                let upkeep = Upkeep { applied, view: self.rig.view(), log: &*self.rig.log, tight: false };
                let state = self.rig.tree.checkpoint(&upkeep).unwrap();
                *self.rig.manifest.lock() =
                    common::Manifest { state: Some(state.bytes), space: self.rig.space.save(), skip: state.skip };
                self.rig.space.checkpoint_durable();
            }
            "evict" => self.rig.evict_all(),
            "maintain" => self.rig.maintain_fully(),
            "reopen" => self.rig = self.rig.reopen(true),
            "reopen-only" => self.rig = self.rig.reopen(false),
            "keys" => {
                let keys = self.rig.keys();
                let keys: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
                writeln!(out, "{}", keys.join(" ")).unwrap();
            }
            "draw" => out = self.rig.tree.draw(),
            other => panic!("no verb {other}"),
        }
        self.rig.verify();
        (self, out)
    }
}

/// Lines of a script start with `>`, comments with `#`; all others are what came out.
fn run(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut played = String::new();
    let mut player: Option<Player> = None;
    for line in text.lines() {
        if line.starts_with('#') || line.is_empty() {
            writeln!(played, "{line}").unwrap();
        } else if let Some(command) = line.strip_prefix("> ") {
            writeln!(played, "{line}").unwrap();
            if let Some(node_bytes) = command.strip_prefix("node ") {
                let node_bytes = node_bytes.parse().unwrap();
                let setup = Setup { node_bytes, extent_bytes: 64 << 10, ..Setup::default() };
                player = Some(Player { rig: Rig::new(setup) });
                continue;
            }
            let (after, out) = player.take().expect("a script starts with `node`").play(command);
            player = Some(after);
            played += &out;
        }
    }
    if played == text {
        return;
    }
    if std::env::var("TREFOIL_REWRITE").is_ok() {
        std::fs::write(path, played).unwrap();
        return;
    }
    let at = played.lines().zip(text.lines()).take_while(|(a, b)| a == b).count();
    let (now, before) = (played.lines().nth(at), text.lines().nth(at));
    panic!("{}:{}: expected {before:?}, got {now:?}; TREFOIL_REWRITE=1 rewrites the file", path.display(), at + 1);
}

fn script(name: &str) {
    run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name));
}

#[test]
fn splits() {
    script("splits.txt");
}

#[test]
fn merges() {
    script("merges.txt");
}

#[test]
fn unlinking() {
    script("unlinking.txt");
}

#[test]
fn dead_spans() {
    script("dead_spans.txt");
}

#[test]
fn images() {
    script("images.txt");
}
