// SPDX-License-Identifier: GPL-2.0-only
//! What lies on disk, what was written and read for it, and what was waited for.

use std::sync::Arc;

use trefoil::{Advice, Compression, IndexHealth, IndexInfo, IndexStats, Shape, Stats, Structure};

use super::{INDEX, Kind, Names, Row, SCHEMA, TABLE, Value, View, column, number, place, text};
use crate::database::Engine;
use crate::failure::Result;

pub const INDEXES: View = View {
    name: "TREFOIL_INDEXES",
    columns: &[
        SCHEMA,
        TABLE,
        INDEX,
        text(c"STRUCTURE", 6),
        text(c"SHAPE", 9),
        text(c"COMPRESSION", 4),
        number(c"NODE_SIZE"),
        text(c"STATE", 9),
        number(c"LIVE_KEYS"),
        number(c"DEAD_VERSIONS"),
        number(c"DISK_BYTES"),
        number(c"MEMORY_BYTES"),
        number(c"LEAVES"),
        number(c"LEAVES_IN_MEMORY"),
        number(c"HEIGHT"),
        number(c"RUNS_ATTACHED"),
        number(c"CHANGES"),
        number(c"CHANGED_BYTES"),
        number(c"WRITTEN_BYTES"),
        number(c"LEAF_BYTES"),
        number(c"INNER_BYTES"),
        number(c"MESSAGE_BYTES"),
        number(c"FLUSHED_BYTES"),
        number(c"MERGED_BYTES"),
        number(c"LARGE_VALUE_BYTES"),
        column(c"WRITE_AMPLIFICATION", Kind::Ratio),
        number(c"POINT_READS"),
        number(c"POINT_READ_BLOCKS"),
        column(c"READ_AMPLIFICATION", Kind::Ratio),
        column(c"SPACE_AMPLIFICATION", Kind::Ratio),
        number(c"GC_DEBT_BYTES"),
    ],
    rows: indexes,
};

pub const ADVICE: View = View {
    name: "TREFOIL_ADVICE",
    columns: &[
        SCHEMA,
        TABLE,
        INDEX,
        text(c"STRUCTURE", 6),
        text(c"OTHER_STRUCTURE", 6),
        number(c"CHANGES"),
        number(c"POINT_READS"),
        column(c"WRITE_AMPLIFICATION", Kind::Ratio),
        column(c"READ_AMPLIFICATION", Kind::Ratio),
        column(c"SPACE_AMPLIFICATION", Kind::Ratio),
        column(c"OTHER_WRITE_AMPLIFICATION", Kind::Ratio),
        column(c"OTHER_READ_AMPLIFICATION", Kind::Ratio),
        column(c"OTHER_SPACE_AMPLIFICATION", Kind::Ratio),
        text(c"VERDICT", 128),
        text(c"NOTES", 512),
    ],
    rows: advice,
};

pub const LEVELS: View = View {
    name: "TREFOIL_LEVELS",
    columns: &[
        SCHEMA,
        TABLE,
        INDEX,
        number(c"LEVEL"),
        number(c"RUNS"),
        number(c"STRANDS"),
        number(c"DISK_BYTES"),
        number(c"VERSIONS"),
        number(c"LIVE_KEYS"),
        number(c"DELETED_KEYS"),
        number(c"MERGED_BYTES"),
    ],
    rows: levels,
};

pub const IO: View = View {
    name: "TREFOIL_IO",
    columns: &[text(c"FILE", 4), text(c"OPERATION", 5), text(c"CAUSE", 32), number(c"BYTES"), number(c"COUNT")],
    rows: traffic,
};

pub const STALLS: View = View {
    name: "TREFOIL_STALLS",
    columns: &[
        text(c"REASON", 16),
        text(c"WHO_WAITS", 32),
        number(c"COUNT"),
        number(c"SUM_US"),
        number(c"WORST_US"),
        text(c"REMEDY", 160),
    ],
    rows: stalls,
};

fn structure(of: Structure) -> &'static str {
    match of {
        Structure::Auto | Structure::Btree => "btree",
        Structure::Betree => "betree",
        Structure::Lsm => "lsm",
    }
}

fn compression(of: Compression) -> &'static str {
    match of {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    }
}

fn shape(of: Shape) -> &'static str {
    match of {
        Shape::Lazy => "lazy",
        Shape::Leveled => "leveled",
        Shape::Universal => "universal",
    }
}

/// Why blocks of an index are written, as `TREFOIL_IO` says it.
const CAUSES: [&str; 6] = ["leaves", "inner nodes", "messages", "flushes", "merges", "large values"];

/// Bytes by cause; none of what its structure does not do.
fn by_cause(index: &IndexInfo) -> [Option<u64>; CAUSES.len()] {
    let (structure, of) = (index.options.structure, &index.stats.traffic);
    let (is_lsm, is_buffered) = (structure == Structure::Lsm, structure == Structure::Betree);
    [
        (!is_lsm).then_some(of.leaf_bytes),
        (!is_lsm).then_some(of.inner_bytes),
        is_buffered.then_some(of.segment_bytes),
        is_lsm.then_some(of.segment_bytes),
        is_lsm.then_some(of.leaf_bytes),
        (!is_lsm).then_some(of.beside_bytes),
    ]
}

fn indexes(engine: &Arc<Engine>) -> Result<Vec<Row>> {
    Ok(engine.db.indexes().iter().map(index).collect())
}

fn index(of: &IndexInfo) -> Row {
    let (options, stats, traffic) = (&of.options, &of.stats, &of.stats.traffic);
    let is_lsm = options.structure == Structure::Lsm;
    let mut row = place(of.table.as_deref(), &of.name).to_vec();
    row.extend([
        structure(options.structure).into(),
        is_lsm.then(|| shape(options.shape)).into(),
        compression(options.compression).into(),
        (stats.node_bytes > 0).then_some(stats.node_bytes).into(),
        match of.health {
            IndexHealth::SetAside => "set aside",
            IndexHealth::Damaged => "damaged",
            _ => "sound",
        }
        .into(),
    ]);
    row.extend([stats.live_keys, stats.dead_versions, stats.disk_bytes, stats.memory_bytes].map(Value::from));
    row.extend([stats.leaves, stats.resident_leaves, u64::from(stats.height), stats.runs].map(Value::from));
    row.extend([stats.changes, traffic.ingested_bytes, traffic.written_bytes()].map(Value::from));
    row.extend(by_cause(of).map(Value::from));
    row.push(stats.write_amplification().into());
    row.extend([traffic.point_reads, traffic.point_blocks].map(Value::from));
    row.extend([stats.read_amplification(), stats.space_amplification()].map(Value::from));
    row.push(stats.gc_debt_bytes.into());
    row
}

fn advice(engine: &Arc<Engine>) -> Result<Vec<Row>> {
    let advice = engine.db.advise()?;
    let names = Names::new(engine);
    let row = |of: &Advice| -> Row {
        let mut row = names.place(&of.index).to_vec();
        let other = (of.other != of.structure).then(|| structure(of.other));
        row.extend([structure(of.structure).into(), other.into()]);
        row.extend([of.changes.into(), of.point_reads.into()]);
        for costs in [&of.measured, &of.predicted] {
            row.extend([costs.write.into(), costs.read.into(), costs.space.into()]);
        }
        row.extend([of.verdict().into(), of.notes.join("; ").into()]);
        row
    };
    Ok(advice.iter().map(row).collect())
}

fn levels(engine: &Arc<Engine>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for of in engine.db.indexes().iter().filter(|of| of.options.structure == Structure::Lsm) {
        for (n, level) in of.stats.levels.iter().enumerate().filter(|(_, level)| level.runs + level.merged_bytes > 0) {
            let mut row = place(of.table.as_deref(), &of.name).to_vec();
            row.extend([n as u64, level.runs, level.strands, level.disk_bytes, level.versions].map(Value::from));
            row.extend([level.live_keys, level.deleted_keys, level.merged_bytes].map(Value::from));
            rows.push(row);
        }
    }
    Ok(rows)
}

fn traffic(engine: &Arc<Engine>) -> Result<Vec<Row>> {
    let (stats, indexes) = (engine.db.stats(), engine.db.indexes());
    let sum = |of: fn(&IndexStats) -> u64| -> u64 { indexes.iter().map(|index| of(&index.stats)).sum() };
    let mut data = CAUSES.map(|cause| (cause, 0));
    for index in &indexes {
        data.iter_mut().zip(by_cause(index)).for_each(|((_, sum), bytes)| *sum += bytes.unwrap_or(0));
    }
    let known: u64 = data.iter().map(|(_, bytes)| bytes).sum();
    let row = |file: &str, operation: &str, cause: &str, bytes: Option<u64>, count: Option<u64>| -> Row {
        vec![file.into(), operation.into(), cause.into(), bytes.into(), count.into()]
    };
    let mut rows: Vec<Row> =
        data.iter().map(|(cause, bytes)| row("data", "write", cause, Some(*bytes), None)).collect();
    let (total, log) = (stats.space.written_bytes, &stats.log);
    // Checkpoints, the catalog, indexes that are gone.
    rows.push(row("data", "write", "other", Some(total.saturating_sub(known)), None));
    rows.push(row("data", "write", "all", Some(total), None));
    let (loads, blocks) = (sum(|of| of.loads), sum(|of| of.traffic.point_blocks));
    rows.push(row("data", "read", "leaves loaded", None, Some(loads)));
    rows.push(row("data", "read", "blocks of look-ups", None, Some(blocks)));
    rows.push(row("data", "read", "all", Some(stats.space.read_bytes), None));
    rows.push(row("log", "write", "commits", Some(log.written_bytes), Some(log.frames)));
    rows.push(row("log", "write", "new segments", Some(log.filled_bytes), None));
    rows.push(row("log", "sync", "all", None, Some(log.syncs)));
    Ok(rows)
}

/// What a commit that waits for the background runs ahead of, and what helps.
fn remedy(reason: &str) -> &'static str {
    match reason {
        "runs" => {
            "large transactions are merged too slowly: raise trefoil_background_threads, trefoil_io_budget; smaller ones"
        }
        "buffers" => {
            "memtables and messages are written too slowly: raise trefoil_buffer_size, trefoil_background_threads"
        }
        "drains" => "messages reach their pages too slowly: raise trefoil_background_threads, trefoil_buffer_size",
        "dirty" => "pages are written back too slowly: raise trefoil_io_budget, trefoil_buffer_size; a faster disk",
        "log" => "the log fills before checkpoints end: raise trefoil_log_capacity",
        "gc" => {
            "old versions, or levels, wait to be merged: TREFOIL_GC, TREFOIL_LEVELS; raise trefoil_background_threads, \
             trefoil_gc_debt_limit"
        }
        "space" => "cleaning of the data file falls behind: raise trefoil_io_budget; more room on the disk",
        _ => "",
    }
}

fn stalls(engine: &Arc<Engine>) -> Result<Vec<Row>> {
    let Stats { delays, cache, log, locks, .. } = &engine.db.stats();
    let row = |reason: &str, who: &str, numbers: [u64; 3], remedy: &str| -> Row {
        let mut row: Row = vec![reason.into(), who.into()];
        row.extend(numbers.map(Value::from));
        row.push(remedy.into());
        row
    };
    let of_commits =
        |of: &trefoil::DelayStats| row(of.reason, "commits", [of.count, of.sum_us, of.worst_us], remedy(of.reason));
    let mut rows: Vec<Row> = delays.iter().map(of_commits).collect();
    let room = [log.room_waits, log.room_wait_time.as_micros() as u64, log.room_wait_worst.as_micros() as u64];
    let waits = [locks.waits, locks.wait_nanos / 1000, locks.wait_nanos_max / 1000];
    let memory = [cache.waits, cache.wait_sum_us, cache.wait_worst_us];
    rows.push(row("memory", "reads and writes", memory, "pages in use do not fit: raise trefoil_buffer_size"));
    rows.push(row("log room", "commits", room, "the log is full: raise trefoil_log_capacity"));
    rows.push(row("row locks", "statements", waits, "TREFOIL_LOCK_WAITS says who waits for whom now"));
    Ok(rows)
}
