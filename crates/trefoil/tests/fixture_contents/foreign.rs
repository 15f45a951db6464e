//! Of a fixture: tables with foreign keys, in the state and in the log.

use trefoil::{ColumnType, Database, Error, ForeignKey, IndexSchema, ReferenceAction, Schema, Value};

/// From this on there are foreign keys.
pub const FORMAT_FOREIGN_KEYS: u32 = 9;

/// Rows (id, boss) of a table that refers to itself.
pub fn foreign_schema() -> Schema {
    let boss = ForeignKey::new("boss", &["boss"], "foreign", &["id"]).on_delete(ReferenceAction::Cascade);
    let columns = Schema::builder().column("id", ColumnType::U32).nullable("boss", ColumnType::U32);
    let columns = columns.primary_key(&["id"]).index(IndexSchema::new("by_boss", &["boss"]));
    columns.foreign_key(boss.on_update(ReferenceAction::SetNull).room(&[2])).build().unwrap()
}

pub fn make_foreign(db: &Database) {
    let table = db.create_table("foreign", foreign_schema()).unwrap();
    let mut tx = db.begin().unwrap();
    tx.insert(&table, &[1u32.into(), Value::Null]).unwrap();
    (2u32..20).for_each(|n| tx.insert(&table, &[n.into(), (n / 2).into()]).unwrap());
    tx.commit().unwrap();
}

pub fn judge_foreign(db: &Database) {
    let table = db.table("foreign").unwrap();
    assert_eq!(table.schema(), foreign_schema());
    let mut tx = db.begin().unwrap();
    assert!(matches!(tx.insert(&table, &[20u32.into(), 30u32.into()]), Err(Error::ForeignKey(_))));
    assert!(tx.delete_row(&table, &[2u32.into()]).unwrap());
    assert_eq!(tx.get_row(&table, &[8u32.into()]).unwrap(), None, "it was below 4, which was below 2");
    assert!(tx.get_row(&table, &[6u32.into()]).unwrap().is_some());
}
