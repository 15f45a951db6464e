// SPDX-License-Identifier: GPL-2.0-only
//! Who does what now, and who is in whose way.

use std::collections::BTreeMap;
use std::sync::Arc;

use trefoil::{LockEdge, LockMode};

use super::{INDEX, KEY_CHARACTERS, Kind, Names, Row, SCHEMA, TABLE, Value, View, column, hex, number, text};
use crate::database::Engine;
use crate::failure::Result;
use crate::watch::{Running, seconds};

/// Of so many locks a list is still read.
const LOCKS_MAX: usize = 10_000;

pub const TRX: View = View {
    name: "TREFOIL_TRX",
    columns: &[
        number(c"TRX_ID"),
        text(c"TRX_STATE", 10),
        column(c"TRX_STARTED", Kind::Time),
        number(c"TRX_SECONDS"),
        number(c"TRX_THREAD_ID"),
        column(c"TRX_QUERY", Kind::Query),
        text(c"TRX_ISOLATION_LEVEL", 16),
        number(c"TRX_ROWS_LOCKED"),
        number(c"TRX_ROWS_WRITTEN"),
        number(c"TRX_SNAPSHOT"),
        number(c"TRX_SNAPSHOT_BEHIND_BYTES"),
        number(c"WAITS_FOR_TRX_ID"),
        number(c"WAITS_FOR_THREAD_ID"),
        number(c"WAITS_MS"),
        text(c"TRX_XID", 280),
    ],
    rows: transactions,
};

pub const LOCKS: View = View {
    name: "TREFOIL_LOCKS",
    columns: &[
        number(c"TRX_ID"),
        number(c"THREAD_ID"),
        SCHEMA,
        TABLE,
        INDEX,
        text(c"LOCK_TYPE", 5),
        text(c"LOCK_MODE", 9),
        text(c"LOCK_KEY", KEY_CHARACTERS),
        text(c"LOCK_KEY_END", KEY_CHARACTERS),
        number(c"WAITERS"),
    ],
    rows: locks,
};

pub const LOCK_WAITS: View = View {
    name: "TREFOIL_LOCK_WAITS",
    columns: &[
        number(c"WAITING_TRX_ID"),
        number(c"WAITING_THREAD_ID"),
        column(c"WAITING_QUERY", Kind::Query),
        number(c"WAITED_MS"),
        number(c"BLOCKING_TRX_ID"),
        number(c"BLOCKING_THREAD_ID"),
        column(c"BLOCKING_QUERY", Kind::Query),
        SCHEMA,
        TABLE,
        INDEX,
        text(c"LOCK_TYPE", 5),
        text(c"LOCK_MODE", 9),
        text(c"LOCK_KEY", KEY_CHARACTERS),
    ],
    rows: lock_waits,
};

pub const DEADLOCKS: View = View {
    name: "TREFOIL_DEADLOCKS",
    columns: &[
        number(c"DEADLOCK"),
        column(c"ENDED", Kind::Time),
        number(c"ROLLED_BACK_TRX_ID"),
        number(c"WAITING_TRX_ID"),
        number(c"BLOCKING_TRX_ID"),
        SCHEMA,
        TABLE,
        INDEX,
        text(c"LOCK_TYPE", 5),
        text(c"LOCK_MODE", 9),
        text(c"LOCK_KEY", KEY_CHARACTERS),
        number(c"WAITED_MS"),
    ],
    rows: deadlocks,
};

pub const GC: View = View {
    name: "TREFOIL_GC",
    columns: &[
        number(c"DEBT_BYTES"),
        number(c"PAID_BYTES"),
        number(c"OLD_VERSIONS"),
        number(c"NEWEST_COMMIT"),
        number(c"SNAPSHOTS"),
        number(c"OLDEST_SNAPSHOT"),
        number(c"OLDEST_SNAPSHOT_BEHIND_BYTES"),
        text(c"HOLDER", 12),
        number(c"HOLDER_TRX_ID"),
        number(c"HOLDER_THREAD_ID"),
        number(c"HOLDER_SECONDS"),
        column(c"HOLDER_QUERY", Kind::Query),
    ],
    rows: collection,
};

/// Connections by the numbers of their transactions.
fn threads(running: &[Running]) -> BTreeMap<u64, u64> {
    running.iter().filter_map(|of| Some((of.transaction, of.thread?))).collect()
}

fn transactions(engine: &Arc<Engine>) -> Result<Vec<Row>> {
    // Waits before sessions: who is named in a wait has begun by then.
    let waits = engine.db.lock_waits();
    let prepared = engine.db.prepared()?;
    let running = engine.watch.running();
    let threads = threads(&running);
    let newest = engine.db.stats().visible.0;
    let now = seconds();
    let wait_of = |id| -> [Value; 3] {
        let edge = waits.iter().find(|edge| edge.waiter == id);
        let thread = edge.and_then(|edge| threads.get(&edge.blocker).copied());
        [edge.map(|edge| edge.blocker).into(), thread.into(), edge.map(millis).into()]
    };
    let mut rows: Vec<Row> = Vec::new();
    for of in &running {
        let is_waiting = waits.iter().any(|edge| edge.waiter == of.transaction);
        let mut row: Row = vec![
            of.transaction.into(),
            (if is_waiting { "LOCK WAIT" } else { "RUNNING" }).into(),
            of.began.into(),
            now.saturating_sub(of.began).into(),
            of.thread.into(),
            of.thread.into(),
            of.isolation.into(),
            of.rows_locked.into(),
            of.rows_written.into(),
            of.snapshot.into(),
            of.snapshot.map(|snapshot| newest.saturating_sub(snapshot)).into(),
        ];
        row.extend(wait_of(of.transaction));
        row.push(Value::Null);
        rows.push(row);
    }
    for of in prepared {
        let began = of.since.as_secs();
        let mut row: Row =
            vec![of.transaction.into(), "PREPARED".into(), began.into(), now.saturating_sub(began).into()];
        // Nobody's connection has it any more; its rows are counted with their entries in keys.
        row.extend([Value::Null, Value::Null, Value::Null, Value::Null, of.writes.into()]);
        row.extend([Value::Null, Value::Null, Value::Null, Value::Null, Value::Null]);
        row.push(of.xid.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into());
        rows.push(row);
    }
    Ok(rows)
}

fn locks(engine: &Arc<Engine>) -> Result<Vec<Row>> {
    let locks = engine.db.locks(LOCKS_MAX);
    let (names, threads) = (Names::new(engine), threads(&engine.watch.running()));
    let row = |lock: &trefoil::RowLock| -> Row {
        let mut row: Row = vec![lock.transaction.into(), threads.get(&lock.transaction).copied().into()];
        row.extend(names.place(&lock.index));
        row.extend([lock_type(lock.is_range), mode(lock.mode), hex(&lock.key).into()]);
        row.extend([lock.end.as_deref().map(hex).into(), (!lock.is_range).then_some(lock.waiters as u64).into()]);
        row
    };
    Ok(locks.iter().map(row).collect())
}

fn lock_waits(engine: &Arc<Engine>) -> Result<Vec<Row>> {
    let waits = engine.db.lock_waits();
    let (names, threads) = (Names::new(engine), threads(&engine.watch.running()));
    let who = |id: u64| -> [Value; 2] { [id.into(), threads.get(&id).copied().into()] };
    let row = |edge: &LockEdge| -> Row {
        let ([waiter, thread], [blocker, its]) = (who(edge.waiter), who(edge.blocker));
        let mut row = vec![waiter, thread.clone(), thread, millis(edge).into(), blocker, its.clone(), its];
        row.extend(names.place(&edge.index));
        row.extend([lock_type(edge.on_range), mode(edge.mode), hex(&edge.key).into()]);
        row
    };
    Ok(waits.iter().map(row).collect())
}

fn deadlocks(engine: &Arc<Engine>) -> Result<Vec<Row>> {
    let (names, now) = (Names::new(engine), seconds());
    let mut rows = Vec::new();
    for (n, deadlock) in engine.db.deadlocks().iter().enumerate() {
        for edge in &deadlock.edges {
            let ended = now.saturating_sub(deadlock.ago.as_secs());
            let mut row: Row = vec![(n as u64 + 1).into(), ended.into(), deadlock.victim.into()];
            row.extend([edge.waiter.into(), edge.blocker.into()]);
            row.extend(names.place(&edge.index));
            row.extend([lock_type(edge.on_range), mode(edge.mode), hex(&edge.key).into(), millis(edge).into()]);
            rows.push(row);
        }
    }
    Ok(rows)
}

fn collection(engine: &Arc<Engine>) -> Result<Vec<Row>> {
    let running = engine.watch.running();
    let stats = engine.db.stats();
    let newest = stats.visible.0;
    let oldest = stats.snapshots.first().map(|ts| ts.0);
    let sum = |of: fn(&trefoil::IndexStats) -> u64| stats.indexes.iter().map(|(_, index)| of(index)).sum::<u64>();
    // Others than sessions have snapshots for a while: builds of keys, estimates, backups.
    let holder = running.iter().filter(|of| of.snapshot.is_some()).min_by_key(|of| of.snapshot);
    let holder = holder.filter(|of| oldest.is_none_or(|oldest| of.snapshot <= Some(oldest)));
    let who = match (holder, oldest) {
        (Some(_), _) => "transaction",
        (None, Some(_)) => "engine",
        (None, None) => "nobody",
    };
    let since = holder.map(|of| seconds().saturating_sub(of.began));
    Ok(vec![vec![
        sum(|index| index.gc_debt_bytes).into(),
        sum(|index| index.gc_paid_bytes).into(),
        sum(|index| index.dead_versions).into(),
        newest.into(),
        (stats.snapshots.len() as u64).into(),
        oldest.into(),
        oldest.map(|oldest| newest.saturating_sub(oldest)).into(),
        who.into(),
        holder.map(|of| of.transaction).into(),
        holder.and_then(|of| of.thread).into(),
        since.into(),
        holder.and_then(|of| of.thread).into(),
    ]])
}

fn millis(edge: &LockEdge) -> u64 {
    edge.waited.as_millis() as u64
}

fn lock_type(is_range: bool) -> Value {
    (if is_range { "RANGE" } else { "ROW" }).into()
}

fn mode(mode: LockMode) -> Value {
    match mode {
        LockMode::Shared => "SHARED",
        LockMode::Increment => "INCREMENT",
        LockMode::Exclusive => "EXCLUSIVE",
    }
    .into()
}
