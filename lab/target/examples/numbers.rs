//! Numbers of docs/PERFORMANCE.md that the insert benchmark does not give. Each command prints what it measured, five
//! rounds in turns where two things are compared.
//!
//! ```text
//! cargo run --release -p lab-target --example numbers -- COMMAND DIR
//!
//! sync-updates   one-row updates under Sync, 1 and 16 clients, beside a bare loop of 4 KiB append + fdatasync
//! gets           point look-ups in memory, 1 and 2 threads
//! deletes        half of 1 M rows deleted in transactions of 100: the first min-key, and later ones
//! backup         four writers, with and without a backup under way
//! recovery       opening a database that died with 1 GiB of log behind its checkpoint
//! ```

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program outside the engine")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trefoil::{Database, Durability, Index, IndexOptions, Options};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(3);
const ROWS: u64 = 1_000_000;
const ROWS_PER_TRANSACTION: u64 = 100;
const VALUE: [u8; 100] = [b'v'; 100];

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, dir] = arguments.as_slice() else {
        return Err("usage: numbers sync-updates|gets|deletes|backup|recovery DIR".into());
    };
    let dir = PathBuf::from(dir);
    fs::create_dir_all(&dir)?;
    match command.as_str() {
        "sync-updates" => sync_updates(&dir),
        "gets" => gets(&dir),
        "deletes" => deletes(&dir),
        "backup" => backup(&dir),
        "recovery" => recovery(&dir),
        // The halves that die.
        "deletes-half" => deletes_half(&dir),
        "log-half" => log_half(&dir),
        other => Err(format!("no command {other}").into()),
    }
}

fn fresh(dir: &Path, name: &str) -> Outcome<PathBuf> {
    let path = dir.join(name);
    match fs::remove_dir_all(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(path),
    }
}

fn open(path: &Path) -> Outcome<Database> {
    Ok(Database::open(path, Options { budget_bytes: 1 << 30, ..Options::default() })?)
}

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

fn fill(db: &Database, index: &Index, rows: u64) -> Outcome {
    for first in (0..rows).step_by(ROWS_PER_TRANSACTION as usize) {
        let mut tx = db.begin()?;
        for i in first..first + ROWS_PER_TRANSACTION {
            tx.put(index, &key(i), &VALUE)?;
        }
        tx.commit_with(Durability::Buffered)?;
    }
    Ok(())
}

/// Numbers that scatter over `0..below`.
fn scattered(i: u64, below: u64) -> u64 {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % below
}

/// How often a second `threads` threads get `work` done in one round. `work` gets the thread and how often it ran there.
fn rate(threads: u64, work: impl Fn(u64, u64) -> Outcome + Sync) -> f64 {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, done, work) = (&stop, &done, &work);
            scope.spawn(move || {
                let mut times = 0;
                while !stop.load(Ordering::Relaxed) {
                    work(thread, times).expect("the work can be done");
                    times += 1;
                }
                done.fetch_add(times, Ordering::Relaxed);
            });
        }
        std::thread::sleep(ROUND);
        stop.store(true, Ordering::Relaxed);
    });
    done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

/// Median, least and most.
fn spread(mut rates: Vec<f64>) -> (f64, String) {
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    (median, format!("{median:.2} [{:.2}-{:.2}]", rates[0], rates[rates.len() - 1]))
}

fn sync_updates(dir: &Path) -> Outcome {
    let db = open(&fresh(dir, "sync-updates")?)?;
    let index = db.create_index("rows", IndexOptions::default())?;
    fill(&db, &index, 100_000)?;
    let bare = dir.join("bare");
    let update = |thread: u64, i: u64| -> Outcome {
        let mut tx = db.begin()?;
        tx.put(&index, &key(scattered(i * 16 + thread, 100_000)), &VALUE)?;
        tx.commit_with(Durability::Sync)?;
        Ok(())
    };
    let (mut appends, mut one, mut sixteen) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let file = fs::File::create(&bare)?;
        appends.push(rate(1, |_, _| {
            (&file).write_all(&[7; 4096])?;
            Ok(file.sync_data()?)
        }));
        one.push(rate(1, update));
        sixteen.push(rate(16, update));
    }
    let ((bare_rate, bare_text), (one_rate, one_text), (many_rate, many_text)) =
        (spread(appends), spread(one), spread(sixteen));
    println!("append 4 KiB + fdatasync   {bare_text} /s");
    println!("1 client                   {one_text} /s, {:.2} of the bare loop", one_rate / bare_rate);
    println!("16 clients                 {many_text} /s, {:.1} of 1 client", many_rate / one_rate);
    fs::remove_file(&bare)?;
    Ok(db.close()?)
}

fn gets(dir: &Path) -> Outcome {
    let db = open(&fresh(dir, "gets")?)?;
    let index = db.create_index("rows", IndexOptions::default())?;
    fill(&db, &index, ROWS)?;
    let snapshots = [db.snapshot()?, db.snapshot()?];
    let get = |thread: u64, i: u64| -> Outcome {
        let found = snapshots[thread as usize].get(&index, &key(scattered(2 * i + thread, ROWS)))?;
        assert!(found.is_some());
        Ok(())
    };
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(rate(1, get));
        two.push(rate(2, get));
    }
    let ((one_rate, one_text), (two_rate, two_text)) = (spread(one), spread(two));
    println!("1 thread    {one_text} gets/s\n2 threads   {two_text} gets/s, {:.2} of 1 thread", two_rate / one_rate);
    drop(snapshots);
    Ok(db.close()?)
}

/// The first key, and how long it took to find.
fn min_key(db: &Database, index: &Index) -> Outcome<(u64, Duration)> {
    let began = Instant::now();
    let snapshot = db.snapshot()?;
    let mut cursor = snapshot.range(index, ..)?.expect(1);
    let found = cursor.next()?.map(|(key, _)| u64::from_be_bytes(key.try_into().expect("eight bytes")));
    Ok((found.expect("half of the rows are there"), began.elapsed()))
}

fn probe(what: &str, db: &Database, index: &Index) -> Outcome {
    let (found, first) = min_key(db, index)?;
    assert_eq!(found, ROWS / 2);
    let mut worst = Duration::ZERO;
    for _ in 0..100 {
        worst = worst.max(min_key(db, index)?.1);
    }
    println!("{what:<28} first {:.3} ms, later at most {:.3} ms", first.as_secs_f64() * 1e3, worst.as_secs_f64() * 1e3);
    Ok(())
}

fn delete_half(db: &Database, index: &Index) -> Outcome {
    for first in (0..ROWS / 2).step_by(ROWS_PER_TRANSACTION as usize) {
        let mut tx = db.begin()?;
        for i in first..first + ROWS_PER_TRANSACTION {
            tx.delete(index, &key(i))?;
        }
        tx.commit_with(Durability::Write)?;
    }
    Ok(())
}

fn deletes(dir: &Path) -> Outcome {
    for old_snapshot in [false, true] {
        let db = open(&fresh(dir, "deletes")?)?;
        let index = db.create_index("rows", IndexOptions::default())?;
        fill(&db, &index, ROWS)?;
        let snapshot = old_snapshot.then(|| db.snapshot()).transpose()?;
        delete_half(&db, &index)?;
        probe(if old_snapshot { "an old snapshot open" } else { "no snapshot" }, &db, &index)?;
        if let Some(snapshot) = snapshot {
            assert!(snapshot.get(&index, &key(0))?.is_some(), "the snapshot sees what was deleted since");
        }
        db.close()?;
    }
    let path = fresh(dir, "deletes")?;
    die("deletes-half", &path)?;
    let db = open(&path)?;
    let index = db.index("rows")?;
    probe("after a crash", &db, &index)?;
    Ok(db.close()?)
}

/// Runs this program again, which kills itself.
fn die(command: &str, path: &Path) -> Outcome {
    let status = Command::new(std::env::current_exe()?).args([command.as_ref(), path.as_os_str()]).status()?;
    if status.success() { Err("it should have died".into()) } else { Ok(()) }
}

fn deletes_half(path: &Path) -> Outcome {
    let db = open(path)?;
    let index = db.create_index("rows", IndexOptions::default())?;
    fill(&db, &index, ROWS)?;
    delete_half(&db, &index)?;
    std::process::abort();
}

fn backup(dir: &Path) -> Outcome {
    let db = open(&fresh(dir, "backup")?)?;
    let index = db.create_index("rows", IndexOptions::default())?;
    fill(&db, &index, ROWS)?;
    db.checkpoint()?;
    let copy = dir.join("copy");
    let write = |thread: u64, i: u64| -> Outcome {
        let mut tx = db.begin()?;
        for row in 0..10 {
            tx.put(&index, &key(scattered((i * 10 + row) * 4 + thread, ROWS)), &VALUE)?;
        }
        tx.commit_with(Durability::Write)?;
        Ok(())
    };
    let (mut alone, mut beside, mut backups) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(rate(4, write));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs::remove_dir_all(&copy);
                    let began = Instant::now();
                    db.checkpoint_to(&copy).expect("a backup");
                    backups.push(began.elapsed().as_secs_f64());
                }
            });
            beside.push(rate(4, write));
            stop.store(true, Ordering::Relaxed);
        });
    }
    let ((alone_rate, alone_text), (beside_rate, beside_text)) = (spread(alone), spread(beside));
    println!("4 writers                   {alone_text} transactions/s");
    println!(
        "one backup after another    {beside_text}, {:.2} of that; {} s each",
        beside_rate / alone_rate,
        spread(backups).1
    );
    let restored = open(&copy)?;
    let rows = restored.index("rows")?.stats().live_keys;
    println!("the last copy opens; {rows} rows");
    restored.close()?;
    Ok(db.close()?)
}

/// Without background nothing is written but the log, which grows to 1 GiB behind the only checkpoint.
fn log_half(path: &Path) -> Outcome {
    let options =
        Options { budget_bytes: 6 << 30, log_capacity_bytes: 8 << 30, background: false, ..Options::default() };
    let db = Database::open(path, options)?;
    let index = db.create_index("rows", IndexOptions::default())?;
    let began = db.stats().log.appended_bytes;
    let mut i = 0;
    while db.stats().log.appended_bytes - began < 1 << 30 {
        let mut tx = db.begin()?;
        for _ in 0..ROWS_PER_TRANSACTION {
            tx.put(&index, &key(scattered(i, 1 << 40)), &VALUE)?;
            i += 1;
        }
        tx.commit_with(Durability::Write)?;
    }
    std::process::abort();
}

fn recovery(dir: &Path) -> Outcome {
    let path = fresh(dir, "recovery")?;
    die("log-half", &path)?;
    let began = Instant::now();
    let db = open(&path)?;
    println!(
        "opened in {:.1} s; {} operations replayed",
        began.elapsed().as_secs_f64(),
        db.stats().replayed_operations
    );
    Ok(db.close()?)
}
