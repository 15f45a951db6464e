// SPDX-License-Identifier: GPL-2.0-only
//! What an administrator sees: numbers for SHOW STATUS, and a text that says what they mean.

use std::ffi::{CStr, c_char};
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use trefoil::{Deadlock, LockEdge, Stats};

use crate::database::Engine;

/// One number of SHOW STATUS. The name ends with a zero and lives as long as the program.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Number {
    pub(crate) name: *const c_char,
    pub(crate) value: u64,
}

const _: () = assert!(size_of::<Number>() == 16);

/// Ends of transactions of this server.
#[derive(Debug, Default)]
pub struct Ends {
    pub commits: AtomicU64,
    pub rollbacks: AtomicU64,
}

impl Ends {
    pub fn count(of: &AtomicU64) {
        of.fetch_add(1, Ordering::Relaxed);
    }
}

/// All of SHOW STATUS, as of one moment.
pub fn numbers(engine: &Engine) -> Vec<Number> {
    let stats = engine.db.stats();
    let mut all = memory(&stats);
    all.extend(storage(&stats));
    all.extend(log(&stats));
    all.extend(transactions(engine, &stats));
    all.into_iter().map(|(name, value)| Number { name: name.as_ptr(), value }).collect()
}

type Named = (&'static CStr, u64);

fn used(stats: &Stats, class: &str) -> u64 {
    stats.memory.iter().find(|(name, _)| *name == class).map_or(0, |(_, bytes)| *bytes)
}

fn memory(stats: &Stats) -> Vec<Named> {
    vec![
        (c"buffer_limit_bytes", stats.budget_bytes),
        (c"buffer_bytes", stats.memory.iter().map(|(_, bytes)| bytes).sum()),
        (c"buffer_page_bytes", used(stats, "frames") + used(stats, "inner") + used(stats, "outlines")),
        (c"buffer_dirty_bytes", stats.cache.dirty_bytes),
        (c"buffer_message_bytes", used(stats, "buffers")),
        (c"buffer_write_set_bytes", used(stats, "write_sets")),
        (c"buffer_lock_bytes", used(stats, "locks")),
        (c"buffer_log_bytes", used(stats, "log")),
        (c"buffer_waits", stats.cache.waits),
        (c"pages", stats.cache.pages),
        (c"pages_evicted", stats.cache.evicted_pages),
        (c"pages_read", stats.indexes.iter().map(|(_, of)| of.loads + of.uncached_reads).sum()),
        (c"pages_written", stats.cache.written_pages),
    ]
}

fn storage(stats: &Stats) -> Vec<Named> {
    vec![
        (c"data_file_bytes", stats.space.file_bytes),
        (c"data_free_bytes", stats.space.free_bytes + stats.space.dead_bytes),
        (c"data_read_bytes", stats.space.read_bytes),
        (c"data_written_bytes", stats.space.written_bytes),
        (c"checkpoints", stats.checkpoints),
        (c"disk_full", stats.disk_full),
        (c"gc_debt_bytes", gc_debt(stats)),
        (c"gc_paid_bytes", stats.indexes.iter().map(|(_, of)| of.gc_paid_bytes).sum()),
        (c"indexes", stats.indexes.len() as u64),
        (c"indexes_damaged", (stats.damaged.len() + stats.quarantined.len()) as u64),
        (c"runs", stats.indexes.iter().map(|(_, of)| of.runs).sum()),
    ]
}

fn log(stats: &Stats) -> Vec<Named> {
    vec![
        (c"log_appended_bytes", stats.log.appended_bytes),
        (c"log_disk_bytes", stats.log.disk_bytes),
        (c"log_replayed_operations", stats.replayed_operations),
        (c"log_room_waits", stats.log.room_waits),
        (c"log_sync_time_us", stats.log.sync_time.as_micros() as u64),
        (c"log_syncs", stats.log.syncs),
        (c"log_written_bytes", stats.log.written_bytes),
    ]
}

fn transactions(engine: &Engine, stats: &Stats) -> Vec<Named> {
    vec![
        (c"apply_reads_left_out", engine.reads_left_out.load(Ordering::Relaxed)),
        (c"commit_delays", stats.delays.iter().map(|of| of.count).sum()),
        (c"commit_delay_time_us", stats.delays.iter().map(|of| of.sum_us).sum()),
        (c"commits", engine.ends.commits.load(Ordering::Relaxed)),
        (c"deadlocks", stats.locks.deadlocks),
        (c"lock_timeouts", stats.locks.timeouts),
        (c"lock_wait_time_us", stats.locks.wait_nanos / 1000),
        (c"lock_waiting", stats.locks.waiting),
        (c"lock_waits", stats.locks.waits),
        (c"prepared", stats.prepared),
        (c"rollbacks", engine.ends.rollbacks.load(Ordering::Relaxed)),
        (c"spills", stats.spills),
    ]
}

fn gc_debt(stats: &Stats) -> u64 {
    stats.indexes.iter().map(|(_, of)| of.gc_debt_bytes).sum()
}

/// SHOW ENGINE TREFOIL STATUS: sections, each with a sentence on what its numbers mean.
pub fn report(engine: &Engine) -> String {
    let stats = engine.db.stats();
    let (waits, deadlocks) = (engine.db.lock_waits(), engine.db.deadlocks());
    let mut text = String::new();
    let sections = [
        transactions_section(engine, &stats, &waits),
        deadlock_section(&stats, deadlocks.first()),
        memory_section(&stats),
        log_section(&stats),
        collection_section(&stats),
        storage_section(&stats),
    ];
    for section in sections {
        text.push_str(&section.unwrap_or_default());
        text.push('\n');
    }
    text
}

type Section = Result<String, fmt::Error>;

fn head(text: &mut String, title: &str, meaning: &str) -> fmt::Result {
    writeln!(text, "{title}\n{}\n{meaning}", "-".repeat(title.len()))
}

fn transactions_section(engine: &Engine, stats: &Stats, waits: &[LockEdge]) -> Section {
    let mut text = String::new();
    head(
        &mut text,
        "TRANSACTIONS",
        "What commits and who waits for whom. A wait that lasts is ended by the end of the transaction waited for: see \
         PROCESSLIST, KILL it if it has been forgotten. Prepared transactions wait for XA COMMIT or XA ROLLBACK and \
         keep their locks: XA RECOVER lists them.",
    )?;
    let ends = &engine.ends;
    writeln!(text, "Commits {}", ends.commits.load(Ordering::Relaxed))?;
    writeln!(text, "Rollbacks {}", ends.rollbacks.load(Ordering::Relaxed))?;
    writeln!(text, "Prepared, not decided {}", stats.prepared)?;
    writeln!(text, "Moved to files for want of memory {}", stats.spills)?;
    let locks = &stats.locks;
    writeln!(text, "Lock waits {}, of them timed out {}", locks.waits, locks.timeouts)?;
    writeln!(text, "Longest lock wait {} ms", locks.wait_nanos_max / 1_000_000)?;
    writeln!(text, "Waiting now {}", locks.waiting)?;
    for wait in waits {
        writeln!(text, "  {}, for {} ms", edge(wait), wait.waited.as_millis())?;
    }
    for delay in stats.delays.iter().filter(|delay| delay.count > 0) {
        let (reason, count, worst) = (delay.reason, delay.count, delay.worst_us / 1000);
        writeln!(text, "Commits that waited for the background ({reason}) {count}, the longest {worst} ms")?;
    }
    Ok(text)
}

fn deadlock_section(stats: &Stats, latest: Option<&Deadlock>) -> Section {
    let mut text = String::new();
    head(
        &mut text,
        "LATEST DEADLOCK",
        "Transactions that waited for each other in a circle; one was rolled back with error 1213 and is to be \
         repeated. Transactions that change rows in one order do not meet so.",
    )?;
    writeln!(text, "Deadlocks {}", stats.locks.deadlocks)?;
    if let Some(latest) = latest {
        writeln!(text, "{} s ago:", latest.ago.as_secs())?;
        text.push_str(&circle(latest));
    }
    Ok(text)
}

/// A deadlock, a line for each that waited.
pub fn circle(deadlock: &Deadlock) -> String {
    let mut text = String::new();
    for wait in &deadlock.edges {
        text.push_str("  ");
        text.push_str(&edge(wait));
        text.push('\n');
    }
    text.push_str("  ");
    text.push_str(&format!("transaction {} was rolled back\n", deadlock.victim));
    text
}

fn edge(wait: &LockEdge) -> String {
    let LockEdge { waiter, blocker, index, key, mode, on_range, .. } = wait;
    let what = if *on_range { "to insert into a range that is locked" } else { "to lock" };
    let key: String = key.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
    format!("transaction {waiter} waits for {blocker} {what}: {index}, key {key}, {mode:?}")
}

fn memory_section(stats: &Stats) -> Section {
    let mut text = String::new();
    head(
        &mut text,
        "MEMORY",
        "All memory of the engine is below trefoil_buffer_size. If waits for memory grow, or pages are read again and \
         again, it is too small for the pages in use or for large transactions.",
    )?;
    writeln!(text, "Limit {} bytes", stats.budget_bytes)?;
    for (class, bytes) in &stats.memory {
        writeln!(text, "  {class} {bytes}")?;
    }
    writeln!(
        text,
        "Messages and memtables are flushed beyond {} bytes, pages have the rest",
        stats.buffered_aim_bytes
    )?;
    writeln!(text, "Changed, not written back {} bytes", stats.cache.dirty_bytes)?;
    let reads: u64 = stats.indexes.iter().map(|(_, of)| of.loads + of.uncached_reads).sum();
    let cache = &stats.cache;
    writeln!(
        text,
        "Pages {}, read {reads}, written {}, evicted {}",
        cache.pages, cache.written_pages, cache.evicted_pages
    )?;
    writeln!(text, "Waits for memory {}, the longest {} ms", cache.waits, cache.wait_worst_us / 1000)?;
    Ok(text)
}

fn log_section(stats: &Stats) -> Section {
    let mut text = String::new();
    head(
        &mut text,
        "LOG",
        "Commits are appended and synced in groups: syncs well below commits mean that groups form. The time of a sync \
         is the disk's. If waits for room grow, raise trefoil_log_capacity.",
    )?;
    let log = &stats.log;
    writeln!(text, "Appended {} bytes, written {} bytes", log.appended_bytes, log.written_bytes)?;
    let average = log.sync_time.as_micros().checked_div(u128::from(log.syncs)).unwrap_or_default();
    writeln!(text, "Syncs {}, {average} us each", log.syncs)?;
    writeln!(text, "On disk {} bytes in {} files", log.disk_bytes, log.segment_files)?;
    writeln!(text, "Waits for room {}, the longest {} ms", log.room_waits, log.room_wait_worst.as_millis())?;
    writeln!(text, "Checkpoints {}", stats.checkpoints)?;
    writeln!(text, "Operations repeated when the server started {}", stats.replayed_operations)?;
    Ok(text)
}

fn collection_section(stats: &Stats) -> Section {
    let mut text = String::new();
    head(
        &mut text,
        "GARBAGE COLLECTION",
        "Old versions of rows go once no snapshot needs them. If the oldest snapshot stays behind, a transaction is \
         open that has read: old versions pile up and reads slow down until it ends. Debt is what the background can \
         collect now and has not.",
    )?;
    let behind = stats.visible.0.saturating_sub(stats.oldest_snapshot.0);
    writeln!(text, "Newest commit {}", stats.visible.0)?;
    writeln!(text, "Oldest snapshot {}, behind by {behind} bytes of log", stats.oldest_snapshot.0)?;
    writeln!(text, "Debt {} bytes", gc_debt(stats))?;
    let dead: u64 = stats.indexes.iter().map(|(_, of)| of.dead_versions).sum();
    writeln!(text, "Old versions {dead}")?;
    Ok(text)
}

fn storage_section(stats: &Stats) -> Section {
    let mut text = String::new();
    head(
        &mut text,
        "STORAGE",
        "The data file. What is free is used again before the file grows. A damaged key is not read: ALTER TABLE that \
         drops it and adds it again makes it anew; damaged rows are only read: dump the table.",
    )?;
    let space = &stats.space;
    writeln!(text, "File {} bytes, live {}, free {}", space.file_bytes, space.live_bytes, space.free_bytes)?;
    writeln!(text, "Read {} bytes, written {} bytes", space.read_bytes, space.written_bytes)?;
    writeln!(text, "Steps that met a full disk {}", stats.disk_full)?;
    writeln!(text, "Indexes {}", stats.indexes.len())?;
    for name in stats.damaged.iter().chain(&stats.quarantined) {
        writeln!(text, "  damaged: {name}")?;
    }
    Ok(text)
}
