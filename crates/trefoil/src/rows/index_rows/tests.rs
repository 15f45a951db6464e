use super::*;
use crate::{ALL, ColumnType, Database, IndexSchema, LockMode, Options, Schema, Table, Value};

const ROWS: u64 = 400;

/// Long ones among short ones, in another order along the index than along the rows.
fn length(id: u64) -> usize {
    if id.is_multiple_of(5) { 200_000 } else { 100 }
}

fn filled(dir: &std::path::Path) -> Result<(Database, Table)> {
    let db = Database::open(dir, Options::default())?;
    let schema = Schema::builder().column("id", ColumnType::U64).column("k", ColumnType::U64);
    let schema = schema.column("text", ColumnType::Bytes).primary_key(&["id"]);
    let whole = IndexSchema::new("whole", &["k"]).clustering();
    let table = db.create_table("t", schema.index(IndexSchema::new("k", &["k"])).index(whole).build()?)?;
    let mut tx = db.begin()?;
    for id in 0..ROWS {
        tx.insert(&table, &[id.into(), (id * 37 % ROWS).into(), Value::from(&vec![id as u8; length(id)][..])])?;
    }
    tx.commit()?;
    Ok((db, table))
}

/// However many rows are expected, a megabyte of them and one more is in memory, and all come in the order of the entries. Guards:
/// `read` reads no more than fit, and goes on behind them; `fill` stops where the entries have the rows.
#[test]
fn of_long_rows_a_megabyte_is_read_ahead() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (db, table) = filled(dir.path())?;
    let tx = db.begin()?;
    for (index, locked) in [("k", false), ("k", true), ("whole", false)] {
        let rows = match locked {
            true => tx.scan_index_rows_locked(&table, index, ALL, LockMode::Shared)?,
            false => tx.scan_index_rows(&table, index, ALL)?,
        };
        let (mut rows, mut next) = (rows.expect(1024), 0);
        while let Some(row) = rows.next_row()? {
            let values = row.values()?;
            let Value::U64(id) = values[0] else { panic!("a number") };
            assert_eq!((&values[1], &values[2]), (&next.into(), &Value::from(&vec![id as u8; length(id)][..])));
            assert!(rows.rows.len() < BYTES_MAX + 210_000, "{index}: {} bytes are kept", rows.rows.len());
            next += 1;
        }
        assert_eq!(next, ROWS);
    }
    Ok(())
}

/// Guard: `FOUND_BYTES_MAX`. Without it the last row is locked, and all are in memory.
#[test]
fn of_long_rows_a_megabyte_is_locked_ahead() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (db, table) = filled(dir.path())?;
    let tx = db.begin()?;
    let mut rows = tx.scan_locked(&table, ALL, LockMode::Exclusive)?.expect(1024);
    assert!(rows.next_row()?.is_some());
    let other = db.begin()?;
    let no_wait = Locking::EXCLUSIVE.no_wait();
    assert!(other.get_row_locked(&table, &[1u64.into()], no_wait).is_err());
    assert!(other.get_row_locked(&table, &[(ROWS - 1).into()], no_wait).is_ok());
    drop(other);
    let mut left = ROWS - 1;
    while rows.next_row()?.is_some() {
        left -= 1;
    }
    assert_eq!(left, 0);
    Ok(())
}
