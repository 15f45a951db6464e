//! Scripts: flushes and deletes in, what is chosen and carried out step by step, drawn.
//!
//! Keys are letters; a run's bytes lie evenly over its letters. A drawing has a line for each level: `letters:bytes` of each run, `*` before
//! those that are chosen, then what is done with them.

use super::*;

const FLUSH: u64 = 40;
const RUN: u64 = 20;

#[derive(Debug, Clone)]
struct Run {
    level: u8,
    /// First letter, last letter.
    keys: ([u8; 1], [u8; 1]),
    bytes: u64,
    /// Of the bytes as versions; the others live.
    dead: u64,
    ts: (u64, u64),
    is_busy: bool,
    is_unpurged: bool,
}

struct Script {
    shape: Shape,
    policy: MergePolicy,
    runs: Vec<Run>,
    size_bytes: u64,
    settled: u64,
    expired: u64,
    limit: Option<u8>,
    range_bytes: u64,
    /// Bytes that merges wrote.
    written: u64,
    now: u64,
}

impl Script {
    fn new(shape: Shape) -> Self {
        let policy = MergePolicy::default();
        let runs = Vec::new();
        let (settled, limit) = (u64::MAX, None);
        Self { shape, policy, runs, size_bytes: 0, settled, expired: 0, limit, range_bytes: 0, written: 0, now: 1 }
    }

    /// Runs as they are drawn: `level letters:bytes`, the oldest first.
    fn with(mut self, runs: &str) -> Self {
        for word in runs.split(", ") {
            let (level, rest) = word.split_once(' ').expect("a level and a run");
            self.add(level.parse().expect("a number"), rest, 0);
        }
        self
    }

    fn add(&mut self, level: u8, run: &str, dead: u64) {
        let (keys, bytes) = run.split_once(':').expect("letters and bytes");
        let keys = keys.as_bytes();
        let (first, last) = (keys[0], keys[keys.len() - 1]);
        let ts = (self.now, self.now);
        self.now += 1;
        let bytes = bytes.parse().expect("a number");
        self.runs.push(Run { level, keys: ([first], [last]), bytes, dead, ts, is_busy: false, is_unpurged: false });
    }

    fn flush(&mut self, run: &str) -> &mut Self {
        self.add(0, run, 0);
        self
    }

    /// Nothing but deletes.
    fn delete(&mut self, run: &str) -> &mut Self {
        let bytes = run.split_once(':').expect("letters and bytes").1.parse().expect("a number");
        self.add(0, run, bytes);
        self
    }

    fn choice(&mut self) -> Option<Choice> {
        let candidates: Vec<Candidate<'_>> = self
            .runs
            .iter()
            .map(|run| Candidate {
                level: run.level,
                bytes: run.bytes,
                entries: run.bytes,
                live: run.bytes - run.dead,
                keys: (&run.keys.0, &run.keys.1),
                oldest: CommitTs(run.ts.0),
                newest: CommitTs(run.ts.1),
                is_busy: run.is_busy,
                is_unpurged: run.is_unpurged,
            })
            .collect();
        let of_level = |level| self.runs.iter().filter(|run| run.level == level).map(|run| run.bytes).sum::<u64>();
        let size_bytes = damped(self.size_bytes, (1..=BOTTOM).map(of_level).max().unwrap_or(0));
        let choice = choose(&Situation {
            runs: &candidates,
            shape: self.shape,
            policy: self.policy,
            compression: LevelCompression::of(Compression::Lz4),
            flush_bytes: FLUSH,
            run_bytes: RUN,
            size_bytes,
            range_bytes: self.range_bytes,
            settled: CommitTs(self.settled),
            expired: CommitTs(self.expired),
            limit: self.limit,
        });
        self.size_bytes = size_bytes;
        choice
    }

    /// Carries it out as the worker would. Of a purge nothing dead is left, nor anything that lay below it.
    fn carry_out(&mut self, choice: &Choice) {
        let (inputs, level, is_purge) = match choice {
            Choice::Move { input, level } => {
                self.runs[*input].level = *level;
                return;
            }
            Choice::Merge { inputs, level, is_purge, .. } => (inputs, *level, *is_purge),
        };
        let mut letters = [0f64; 128];
        let mut covered = [false; 128];
        for run in inputs.iter().map(|i| &self.runs[*i]) {
            let (first, last) = (usize::from(run.keys.0[0]), usize::from(run.keys.1[0]));
            let all = (last - first + 1) as f64;
            for letter in first..=last {
                let live = (run.bytes - run.dead) as f64 - if is_purge { run.dead as f64 } else { -(run.dead as f64) };
                letters[letter] += live / all;
                covered[letter] = true;
            }
        }
        let ts = inputs.iter().map(|i| self.runs[*i].ts).fold((u64::MAX, 0), |a, b| (a.0.min(b.0), a.1.max(b.1)));
        let mut i = 0;
        self.runs.retain(|_| (!inputs.contains(&i), i += 1).0);
        let ends: Vec<usize> =
            self.runs.iter().filter(|run| run.level == level).map(|run| usize::from(run.keys.0[0])).collect();
        let mut open: Option<(usize, usize, f64)> = None;
        for letter in 0..=128 {
            let bytes = if letter < 128 && covered[letter] { letters[letter].max(0.0) } else { 0.0 };
            let is_end = open.is_some_and(|(.., bytes)| letter == 128 || ends.contains(&letter) || bytes >= RUN as f64);
            if is_end && let Some((first, last, sum)) = open.take() {
                let (keys, bytes) = (([first as u8], [last as u8]), sum.round() as u64);
                self.written += bytes;
                self.runs.push(Run { level, keys, bytes, dead: 0, ts, is_busy: false, is_unpurged: false });
            }
            if bytes > 0.1 {
                open = Some(open.map_or((letter, letter, bytes), |(first, _, sum)| (first, letter, sum + bytes)));
            }
        }
    }

    /// One line for each level, with what is chosen.
    fn draw(&self, choice: Option<&Choice>) -> String {
        let chosen = |i: usize| match choice {
            Some(Choice::Merge { inputs, .. }) => inputs.contains(&i),
            Some(Choice::Move { input, .. }) => *input == i,
            None => false,
        };
        let mut lines = Vec::new();
        for level in 0..=BOTTOM {
            let mut words: Vec<(_, String)> = (0..self.runs.len())
                .filter(|i| self.runs[*i].level == level)
                .map(|i| {
                    let run = &self.runs[i];
                    let (first, last) = (run.keys.0[0] as char, run.keys.1[0] as char);
                    let mark = if chosen(i) { "*" } else { "" };
                    ((first, i), format!("{mark}{first}{last}:{}", run.bytes))
                })
                .collect();
            words.sort();
            if !words.is_empty() {
                let words: Vec<_> = words.into_iter().map(|(_, word)| word).collect();
                lines.push(format!("{level}| {}", words.join(" ")));
            }
        }
        lines.push(match choice {
            Some(Choice::Merge { level, is_purge: true, .. }) => format!("purge -> {level}"),
            Some(Choice::Merge { level, is_for_ranges: true, .. }) => format!("merge for ranges -> {level}"),
            Some(Choice::Merge { level, .. }) => format!("merge -> {level}"),
            Some(Choice::Move { level, .. }) => format!("move -> {level}"),
            None => "-".to_owned(),
        });
        lines.join("\n")
    }

    /// What is chosen now, without doing it.
    fn asked(&mut self) -> String {
        let choice = self.choice();
        self.draw(choice.as_ref())
    }

    /// One step: the drawing with what is chosen, which is then done.
    fn step(&mut self) -> String {
        let choice = self.choice();
        let drawn = self.draw(choice.as_ref());
        choice.iter().for_each(|choice| self.carry_out(choice));
        drawn
    }

    /// Steps until nothing is due.
    fn settle(&mut self) -> usize {
        for steps in 0..1000 {
            match self.choice() {
                Some(choice) => self.carry_out(&choice),
                None => return steps,
            }
        }
        panic!("no end:\n{}", self.asked());
    }
}

fn drawn(expected: &str, found: &str) {
    let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
    assert_eq!(expected.join("\n"), found, "found:\n{found}");
}

#[test]
fn a_few_runs_are_left_alone() {
    for shape in [Shape::Lazy, Shape::Leveled, Shape::Universal] {
        let mut script = Script::new(shape);
        assert_eq!(script.choice(), None);
        script.flush("az:40").flush("az:40").flush("az:40");
        drawn("0| az:40 az:40 az:40\n-", &script.asked());
    }
}

#[test]
fn lazy_makes_four_strands_one_of_the_next_level() {
    let mut script = Script::new(Shape::Lazy).with("7 az:2000, 1 az:80, 0 az:40, 0 az:40, 0 az:40, 0 az:40");
    drawn("0| *az:40 *az:40 *az:40 *az:40\n1| az:80\n7| az:2000\nmerge -> 1", &script.asked());
    script.runs[5].is_busy = true;
    drawn("0| az:40 az:40 az:40 az:40\n1| az:80\n7| az:2000\n-", &script.asked());
}

#[test]
fn lazy_merges_the_bottom_when_a_third_lies_above() {
    let mut script = Script::new(Shape::Lazy).with("7 am:240, 7 nz:240, 0 al:40, 0 al:40, 0 al:40, 0 al:40");
    drawn("0| *al:40 *al:40 *al:40 *al:40\n7| *am:240 nz:240\nmerge -> 7", &script.step());
    drawn(
        "7| aa:32 bb:32 cc:32 dd:32 ee:32 ff:32 gg:32 hh:32 ii:32 jj:32 kk:32 ll:32 mm:18 nz:240\n-",
        &script.asked(),
    );
    let mut script = Script::new(Shape::Lazy).with("7 az:481, 0 az:40, 0 az:40, 0 az:40, 0 az:40");
    drawn("0| *az:40 *az:40 *az:40 *az:40\n7| az:481\nmerge -> 1", &script.asked());
}

#[test]
fn lazy_takes_what_is_ascending_as_it_is() {
    let mut script = Script::new(Shape::Lazy);
    for run in ["ac:40", "df:40", "gi:40", "jl:40", "mo:40", "pr:40"] {
        script.flush(run);
        script.settle();
    }
    drawn("0| jl:40 mo:40 pr:40\n7| ac:40 df:40 gi:40\n-", &script.asked());
    assert_eq!(script.written, 0);
}

/// The same load: how often it is written, and how many strands there are to look at in the end.
#[test]
fn shapes_trade_writing_against_strands() {
    let costs = [Shape::Leveled, Shape::Lazy, Shape::Universal].map(|shape| {
        let mut script = Script::new(shape);
        let mut most = 0;
        for _ in 0..200 {
            script.flush("Az:40");
            script.settle();
            let levels = (0..=BOTTOM).map(|level| {
                lay_apart(
                    &script
                        .runs
                        .iter()
                        .filter(|run| run.level == level)
                        .map(|run| (&run.keys.0[..], &run.keys.1[..]))
                        .collect::<Vec<_>>(),
                )
                .len()
            });
            most = levels.sum::<usize>().max(most);
        }
        (shape, script.written / (200 * 40), most)
    });
    assert_eq!(costs, [(Shape::Leveled, 7, 6), (Shape::Lazy, 4, 9), (Shape::Universal, 3, 8)]);
}

#[test]
fn leveled_gives_each_level_a_tenth_of_the_next() {
    let said = |size| {
        let targets = leveled::Targets::of(size, FLUSH);
        (targets.base, (targets.base..BOTTOM).map(|level| targets.bytes(level)).collect::<Vec<_>>())
    };
    assert_eq!(said(0), (7, vec![]));
    assert_eq!(said(160), (7, vec![]));
    assert_eq!(said(161), (6, vec![80]), "no less than half of what comes at once");
    assert_eq!(said(20_000), (4, vec![80, 200, 2000]));
    assert_eq!(said(u64::MAX).0, 1, "no end of levels");
}

#[test]
fn sizes_move_slowly() {
    assert_eq!(damped(0, 5000), 5000);
    assert_eq!((damped(1000, 5000), damped(1000, 10), damped(1000, 1050)), (1101, 900, 1050));
    assert_eq!(damped(3, 100), 4, "however small");
}

#[test]
fn leveled_puts_level_zero_into_the_base() {
    let mut script = Script::new(Shape::Leveled).with("7 az:100, 0 ac:40, 0 bd:40, 0 ad:40, 0 ad:40, 0 xz:5");
    // What overlaps nothing goes as it is.
    let mut other = Script::new(Shape::Leveled).with("7 am:100, 0 ac:40, 0 bd:40, 0 ad:40, 0 ad:40, 0 xz:5");
    drawn("0| *ac:40 *ad:40 *ad:40 *bd:40 *xz:5\n7| *az:100\nmerge -> 7", &script.asked());
    drawn("0| ac:40 ad:40 ad:40 bd:40 *xz:5\n7| am:100\nmove -> 7", &other.step());
    drawn("0| *ac:40 *ad:40 *ad:40 *bd:40\n7| *am:100 xz:5\nmerge -> 7", &other.asked());
}

#[test]
fn leveled_gives_the_run_below_which_least_lies() {
    let runs = "7 ac:400, 7 df:100, 7 gz:1200, 6 ac:100, 6 df:100, 6 gh:120";
    let mut script = Script::new(Shape::Leveled).with(runs);
    drawn("6| ac:100 *df:100 gh:120\n7| ac:400 *df:100 gz:1200\nmerge -> 7", &script.asked());
    script.policy.least_overlap = false;
    drawn("6| ac:100 df:100 *gh:120\n7| ac:400 df:100 *gz:1200\nmerge -> 7", &script.asked());
    // Of equals the one with the most dead, then the oldest.
    let runs = "7 ac:500, 7 df:500, 7 gi:500, 6 ac:100, 6 df:100, 6 gi:100";
    let mut script = Script::new(Shape::Leveled).with(runs);
    script.settled = 0;
    drawn("6| *ac:100 df:100 gi:100\n7| *ac:500 df:500 gi:500\nmerge -> 7", &script.asked());
    script.runs[3].ts = (9, 9);
    drawn("6| ac:100 *df:100 gi:100\n7| ac:500 *df:500 gi:500\nmerge -> 7", &script.asked());
    script.runs[5].dead = 40;
    drawn("6| ac:100 df:100 *gi:100\n7| ac:500 df:500 *gi:500\nmerge -> 7", &script.asked());
    script.runs[2].keys = (*b"k", *b"z");
    drawn("6| ac:100 df:100 *gi:100\n7| ac:500 df:500 kz:500\nmove -> 7", &script.asked());
}

/// A long merge has the base: flushes pile up, and are merged among themselves.
#[test]
fn leveled_merges_at_the_top_while_the_base_is_busy() {
    let runs = "7 az:1500, 6 al:50, 6 mz:50, 0 az:40, 0 az:40, 0 az:40, 0 az:40";
    let mut script = Script::new(Shape::Leveled).with(runs);
    drawn("0| *az:40 *az:40 *az:40 *az:40\n6| *al:50 *mz:50\n7| az:1500\nmerge -> 6", &script.asked());
    script.runs[0].is_busy = true;
    script.runs[1].is_busy = true;
    script.limit = Some(7);
    drawn("0| *az:40 *az:40 *az:40 *az:40\n6| al:50 mz:50\n7| az:1500\nmerge -> 0", &script.asked());
    script.policy.merges_at_top = false;
    drawn("0| az:40 az:40 az:40 az:40\n6| al:50 mz:50\n7| az:1500\n-", &script.asked());
}

#[test]
fn universal_merges_strands_of_one_size() {
    let mut script = Script::new(Shape::Universal).with("7 az:700, 6 az:300, 5 az:150, 0 az:40, 0 az:40, 0 az:40");
    drawn("0| az:40 az:40 az:40\n5| az:150\n6| az:300\n7| az:700\n-", &script.asked());
    script.flush("az:40");
    drawn("0| *az:40 *az:40 *az:40 *az:40\n5| *az:150\n6| *az:300\n7| *az:700\nmerge -> 7", &script.asked());
    let mut script = Script::new(Shape::Universal).with("7 az:900, 6 az:500, 0 az:40, 0 az:40, 0 az:40, 0 az:40");
    drawn("0| *az:40 *az:40 *az:40 *az:40\n6| az:500\n7| az:900\nmerge -> 5", &script.asked());
    let mut script = Script::new(Shape::Universal).with("7 az:200, 6 az:500, 0 az:40, 0 az:40, 0 az:40, 0 az:40");
    drawn("0| *az:40 *az:40 *az:40 *az:40\n6| *az:500\n7| *az:200\nmerge -> 7", &script.asked());
}

#[test]
fn deletes_that_everybody_sees_call_for_a_merge() {
    for shape in [Shape::Lazy, Shape::Leveled, Shape::Universal] {
        let deleted = || {
            let mut script = Script::new(shape).with("7 ac:50, 7 df:50, 7 gz:500");
            script.delete("de:20");
            script
        };
        let mut script = deleted();
        drawn("0| *de:20\n7| ac:50 *df:50 gz:500\npurge -> 7", &script.step());
        drawn("7| ac:50 df:30 gz:500\n-", &script.asked());
        let mut script = deleted();
        script.settled = 3;
        drawn("0| de:20\n7| ac:50 df:50 gz:500\n-", &script.asked());
        let mut script = deleted();
        // A dump reads what was deleted.
        script.runs[1].ts = (2, 9);
        script.settled = 8;
        drawn("0| de:20\n7| ac:50 df:50 gz:500\n-", &script.asked());
        let mut script = deleted();
        // What comes in is left out.
        script.flush("ee:5");
        script.settled = 4;
        drawn("0| *de:20 ee:5\n7| ac:50 *df:50 gz:500\npurge -> 7", &script.asked());
        let mut script = deleted();
        script.runs[3].is_unpurged = true;
        drawn("0| de:20\n7| ac:50 df:50 gz:500\n-", &script.asked());
        let mut script = Script::new(shape).with("7 ac:50, 7 df:500");
        drawn("0| de:20\n7| ac:50 df:500\n-", &script.delete("de:20").asked());
        let mut script = Script::new(shape).with("7 ac:100");
        script.runs[0].dead = 50;
        drawn("7| *ac:100\npurge -> 7", &script.asked());
    }
}

#[test]
fn small_runs_side_by_side_become_larger_ones() {
    let mut script =
        Script::new(Shape::Leveled).with("7 aa:20, 7 bb:3, 7 cc:3, 7 dd:3, 7 ee:3, 7 ff:3, 7 gg:3, 7 hh:3, 7 zz:3");
    drawn("7| aa:20 *bb:3 *cc:3 *dd:3 *ee:3 *ff:3 *gg:3 *hh:3 *zz:3\nmerge -> 7", &script.step());
    drawn("7| aa:20 bh:21 zz:3\n-", &script.asked());
}

/// Ranges that began in several strands pay for one.
#[test]
fn ranges_pay_for_one_strand() {
    for shape in [Shape::Lazy, Shape::Leveled, Shape::Universal] {
        let mut script = Script::new(shape).with("7 am:2000, 7 nz:2000, 0 al:40, 0 bl:40");
        script.range_bytes = 2079;
        drawn("0| al:40 bl:40\n7| am:2000 nz:2000\n-", &script.asked());
        script.range_bytes = 2080;
        drawn("0| *al:40 *bl:40\n7| *am:2000 nz:2000\nmerge for ranges -> 7", &script.asked());
        script.limit = Some(5);
        assert_eq!(script.choice(), None, "beside another merge");
        script.limit = None;
        script.runs[2].is_busy = true;
        assert_eq!(script.choice(), None, "a run that another merge has");
        script.runs[2].is_busy = false;
        script.step();
        script.range_bytes = u64::MAX;
        assert_eq!(script.choice().map(|choice| choice.level()), None, "one strand is what was wanted");
    }
}

#[test]
fn what_piles_up_is_a_debt() {
    let strands = |count: u64| (1..=count).map(|n| (0, n)).collect::<Vec<_>>();
    assert_eq!(debt(&strands(8), Shape::Lazy, FLUSH), 0);
    assert_eq!(debt(&strands(10), Shape::Lazy, FLUSH), 19);
    let levels = [(6, 1000), (7, 2000)];
    assert_eq!((debt(&levels, Shape::Lazy, FLUSH), debt(&levels, Shape::Leveled, FLUSH)), (0, 600));
}

/// A dense run is purged, but not with the whole bottom, which a small run over all of it would bring along.
#[test]
fn a_purge_counts_all_that_it_rewrites() {
    let bottom = "7 ab:20, 7 cd:20, 7 ef:20, 7 gh:20, 7 ij:20, 7 kl:20";
    for (upper, is_purged) in [("", true), (", 0 az:2", false)] {
        let mut script = Script::new(Shape::Lazy).with(&format!("{bottom}{upper}"));
        script.runs[1].dead = 17;
        let choice = script.choice();
        assert_eq!(matches!(choice, Some(Choice::Merge { is_purge: true, .. })), is_purged, "{choice:?}");
    }
}
