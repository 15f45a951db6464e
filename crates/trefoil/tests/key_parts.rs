//! Keys of columns descending, the front of them, or collated, against a naive model: rows in a list, compared value by value.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test on real files panics on what it does not expect"
)]

use std::cmp::Ordering;
use std::ops::Bound;

use crate::support::collation::{NOCASE, open_collating};
use proptest::prelude::*;
use trefoil::{
    ColumnType, Database, Error, IndexOptions, IndexSchema, KeyPart, Locking, OwnedValue, Schema, Structure, Table,
    TableChanges, Upserted, Value,
};

type Row = Vec<OwnedValue>;

// ---- the model --------------------------------------------------------------------------------------------------

fn bytes_of<'a>(value: &'a Value<'_>) -> &'a [u8] {
    match value {
        Value::Text(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// As the collation says, one character after the other.
fn compare_padded(a: &[u8], b: &[u8]) -> Ordering {
    let at = |text: &[u8], i: usize| text.get(i).map_or(b' ', u8::to_ascii_uppercase);
    (0..a.len().max(b.len())).map(|i| at(a, i).cmp(&at(b, i))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

fn front_of<'a>(value: &'a Value<'_>, length: Option<u32>) -> &'a [u8] {
    let bytes = bytes_of(value);
    let characters = length.map_or(usize::MAX, |n| n as usize);
    match value {
        Value::Text(text) => &bytes[..text.char_indices().nth(characters).map_or(bytes.len(), |(at, _)| at)],
        _ => &bytes[..bytes.len().min(characters)],
    }
}

fn compare_part(schema: &Schema, part: &KeyPart, a: &Value<'_>, b: &Value<'_>) -> Ordering {
    let column = &schema.columns()[schema.column_number(part.column()).unwrap()];
    let order = if a.is_null() || b.is_null() {
        b.is_null().cmp(&a.is_null())
    } else if column.collation.is_some() {
        compare_padded(front_of(a, part.front_length()), front_of(b, part.front_length()))
    } else if part.front_length().is_some() {
        front_of(a, part.front_length()).cmp(front_of(b, part.front_length()))
    } else {
        a.cmp(b)
    };
    if part.is_descending() { order.reverse() } else { order }
}

/// Compares as many values as the shorter has.
fn compare(schema: &Schema, parts: &[KeyPart], a: &[Value<'_>], b: &[Value<'_>]) -> Ordering {
    let orders = parts.iter().zip(a.iter().zip(b)).map(|(part, (a, b))| compare_part(schema, part, a, b));
    orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn values(schema: &Schema, parts: &[KeyPart], row: &[OwnedValue]) -> Row {
    parts.iter().map(|part| row[schema.column_number(part.column()).unwrap()].clone()).collect()
}

struct Model {
    schema: Schema,
    rows: Vec<Row>,
}

impl Model {
    fn primary(&self) -> Vec<KeyPart> {
        self.schema.primary_key_parts().collect()
    }

    /// The parts of an entry of an index; of the primary index without one.
    fn entry(&self, n: Option<usize>) -> Vec<KeyPart> {
        n.map(|n| self.schema.indexes()[n].parts().collect::<Vec<_>>())
            .into_iter()
            .flatten()
            .chain(self.primary())
            .collect()
    }

    fn has_same(&self, parts: &[KeyPart], a: &[OwnedValue], b: &[OwnedValue]) -> bool {
        compare(&self.schema, parts, &values(&self.schema, parts, a), &values(&self.schema, parts, b)).is_eq()
    }

    /// The places of rows that a new one conflicts with, in the order they are looked for; none twice.
    fn conflicts(&self, row: &[OwnedValue]) -> Vec<usize> {
        let keys = self.schema.indexes().iter().filter(|index| index.is_unique()).map(|index| index.parts().collect());
        let mut found = Vec::new();
        for (at, parts) in std::iter::once(self.primary()).chain(keys).enumerate() {
            if at > 0 && values(&self.schema, &parts, row).iter().any(Value::is_null) {
                continue;
            }
            let same = (0..self.rows.len()).find(|&i| self.has_same(&parts, &self.rows[i], row));
            found.extend(same.filter(|i| !found.contains(i)));
        }
        found
    }

    /// The rows in the order of a key.
    fn sorted(&self, n: Option<usize>) -> Vec<Row> {
        let parts = self.entry(n);
        let mut rows = self.rows.clone();
        let key = |row: &Row| values(&self.schema, &parts, row);
        rows.sort_by(|a, b| compare(&self.schema, &parts, &key(a), &key(b)));
        rows
    }

    fn position_of(&self, row: &[OwnedValue]) -> Option<usize> {
        let parts = self.primary();
        (0..self.rows.len()).find(|&i| self.has_same(&parts, &self.rows[i], row))
    }
}

// ---- schemas and rows -------------------------------------------------------------------------------------------

const COLUMNS: [(&str, ColumnType, bool); 7] = [
    ("n", ColumnType::I32, false),
    ("t", ColumnType::Text, false),
    ("b", ColumnType::Bytes, false),
    ("f", ColumnType::Fixed(2), false),
    ("x", ColumnType::Text, true),
    ("y", ColumnType::I64, true),
    ("v", ColumnType::U32, false),
];
/// Columns that may be in a primary key are in front.
const KEYS: usize = 4;

fn value_of(n: usize) -> BoxedStrategy<OwnedValue> {
    let text = || "[aAbB \t\u{0}]{0,4}".prop_map(|s| Value::Text(s.into()));
    match COLUMNS[n].0 {
        "n" => (-2i32..3).prop_map(Value::I32).boxed(),
        "t" => text().boxed(),
        "b" => {
            let byte = prop_oneof![Just(0u8), Just(b'a'), Just(b'A'), Just(0xff), Just(b' ')];
            proptest::collection::vec(byte, 0..4).prop_map(|b| Value::Bytes(b.into())).boxed()
        }
        "f" => (0u8..2, prop_oneof![Just(0u8), Just(0xff)]).prop_map(|(a, b)| Value::Bytes(vec![a, b].into())).boxed(),
        "x" => prop_oneof![1 => Just(Value::Null), 4 => text()].boxed(),
        "y" => prop_oneof![1 => Just(Value::Null), 3 => (-1i64..2).prop_map(Value::I64)].boxed(),
        _ => (0u32..3).prop_map(Value::U32).boxed(),
    }
}

fn rows() -> impl Strategy<Value = Row> {
    (0..COLUMNS.len()).map(value_of).collect::<Vec<_>>()
}

fn parts(columns: usize) -> impl Strategy<Value = Vec<KeyPart>> {
    let numbers: Vec<usize> = (0..columns).collect();
    proptest::sample::subsequence(numbers, 1..=3.min(columns)).prop_shuffle().prop_flat_map(|numbers| {
        let part = |n: usize| {
            let is_string = matches!(COLUMNS[n].1, ColumnType::Text | ColumnType::Bytes | ColumnType::Fixed(_));
            (any::<bool>(), any::<bool>(), 1u32..3).prop_map(move |(descending, has_front, front)| {
                let part = KeyPart::new(COLUMNS[n].0);
                let part = if descending { part.descending() } else { part };
                if has_front && is_string { part.front(front) } else { part }
            })
        };
        numbers.into_iter().map(part).collect::<Vec<_>>()
    })
}

fn options() -> impl Strategy<Value = IndexOptions> {
    any::<bool>().prop_map(|betree| {
        let structure = if betree { Structure::Betree } else { Structure::Btree };
        IndexOptions { structure, node_bytes: 4096, ..IndexOptions::default() }
    })
}

fn indexes(name: &'static str) -> impl Strategy<Value = IndexSchema> {
    let kinds = (proptest::bool::weighted(0.3), any::<bool>(), options());
    (parts(COLUMNS.len()), kinds).prop_map(move |(parts, (unique, clustering, options))| {
        let index = IndexSchema::of_parts(name, parts).with_options(options);
        let index = if clustering { index.clustering() } else { index };
        if unique { index.unique() } else { index }
    })
}

fn schemas() -> impl Strategy<Value = Schema> {
    (parts(KEYS), options(), indexes("first"), indexes("second"), any::<[bool; 4]>()).prop_map(
        |(primary, options, first, second, collated)| {
            let mut builder = Schema::builder();
            for (name, column_type, nullable) in COLUMNS {
                builder =
                    if nullable { builder.nullable(name, column_type) } else { builder.column(name, column_type) };
            }
            for (name, _) in ["t", "b", "x", "f"].into_iter().zip(collated).filter(|(_, collated)| *collated) {
                builder = builder.collate(name, NOCASE);
            }
            builder.primary_key_of(primary).primary_options(options).index(first).index(second).build().unwrap()
        },
    )
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Row),
    Update(Row),
    Replace(Row),
    Upsert(Row),
    Delete(Row),
    /// Undone.
    Tried(Row),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => rows().prop_map(Step::Insert),
        3 => rows().prop_map(Step::Update),
        1 => rows().prop_map(Step::Replace),
        2 => rows().prop_map(Step::Upsert),
        2 => rows().prop_map(Step::Delete),
        1 => rows().prop_map(Step::Tried),
    ];
    proptest::collection::vec(step, 1..40)
}

/// A bound: values of some first columns, and whether it is included.
type End = Option<(Row, bool)>;

fn run(db: &Database, table: &Table, model: &mut Model, step: &Step) {
    let mut tx = db.begin().unwrap();
    let duplicate = |model: &Model, error: &Error, row: &Row| {
        let Error::DuplicateKey(taken) = error else { panic!("{error}") };
        // Whose it is, as it was written.
        let there = model.conflicts(row).into_iter().map(|i| values(&model.schema, &model.primary(), &model.rows[i]));
        assert!(there.into_iter().any(|key| key == taken.row), "{error}");
    };
    match step {
        Step::Insert(row) => match (tx.insert(table, row), model.conflicts(row).is_empty()) {
            (Ok(()), true) => model.rows.push(row.clone()),
            (Err(error), false) => duplicate(model, &error, row),
            (done, _) => panic!("{done:?}"),
        },
        Step::Update(row) => {
            let at = model.position_of(row);
            let others = model.conflicts(row).into_iter().filter(|i| Some(*i) != at).count();
            match (tx.update(table, row), at) {
                (Ok(false), None) => {}
                (Ok(true), Some(at)) if others == 0 => model.rows[at].clone_from(row),
                (Err(Error::DuplicateKey(_)), Some(_)) if others > 0 => {}
                (done, at) => panic!("{done:?} {at:?}"),
            }
        }
        Step::Replace(row) => {
            let mut gone = model.conflicts(row);
            assert_eq!(tx.replace(table, row).unwrap(), gone.len());
            gone.sort_unstable();
            gone.iter().rev().for_each(|&i| drop(model.rows.remove(i)));
            model.rows.push(row.clone());
        }
        Step::Upsert(row) => {
            let conflicts = model.conflicts(row);
            let done = tx.insert_or_update(table, row, |there| there[6] = row[6].clone());
            match conflicts.first() {
                None => {
                    assert_eq!(done.unwrap(), Upserted::Inserted);
                    model.rows.push(row.clone());
                }
                Some(&at) => {
                    let mut changed = model.rows[at].clone();
                    changed[6].clone_from(&row[6]);
                    if model.conflicts(&changed).iter().any(|i| *i != at) {
                        assert!(matches!(done, Err(Error::DuplicateKey(_))), "{done:?}");
                    } else {
                        let same = changed == model.rows[at];
                        assert_eq!(done.unwrap(), if same { Upserted::Unchanged } else { Upserted::Updated });
                        model.rows[at] = changed;
                    }
                }
            }
        }
        Step::Delete(row) => {
            let at = model.position_of(row);
            let deleted = tx.delete_row(table, &values(&model.schema, &model.primary(), row)).unwrap();
            assert_eq!(deleted, at.is_some());
            at.into_iter().for_each(|at| drop(model.rows.remove(at)));
        }
        Step::Tried(row) => {
            tx.replace(table, row).unwrap();
            tx.rollback();
            return;
        }
    }
    tx.commit().unwrap();
}

/// All that is read, in every order, is what the model has.
fn judge(db: &Database, table: &Table, model: &Model, ends: &[(End, End)]) {
    let tx = db.begin().unwrap();
    let primary = model.primary();
    for row in &model.rows {
        let found = tx.get_row(table, &values(&model.schema, &primary, row)).unwrap();
        assert_eq!(found.as_ref(), Some(row));
    }
    let all = [(None, None)];
    for (low, high) in all.iter().chain(ends) {
        for n in std::iter::once(None).chain((0..model.schema.indexes().len()).map(Some)) {
            judge_range(&tx, table, model, n, (low, high));
        }
    }
    for (name, report) in db.verify().unwrap() {
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
    }
}

fn judge_range(tx: &trefoil::Transaction, table: &Table, model: &Model, n: Option<usize>, (low, high): (&End, &End)) {
    let (schema, parts) = (&model.schema, model.entry(n));
    // The bounds have values of all columns: of those of this key as many as there are, or the first.
    let cut = |end: &End| {
        end.as_ref().map(|(row, included)| {
            let count = 1 + row.len() % parts.len();
            (values(schema, &parts[..count], &row[..COLUMNS.len()]), *included)
        })
    };
    let (low, high) = (cut(low), cut(high));
    fn bound(end: &Option<(Row, bool)>) -> Bound<&[Value<'_>]> {
        match end {
            None => Bound::Unbounded,
            Some((values, true)) => Bound::Included(values),
            Some((values, false)) => Bound::Excluded(values),
        }
    }
    let is_in = |key: &Row| {
        let low = low.as_ref().is_none_or(|(low, included)| match compare(schema, &parts, key, low) {
            Ordering::Equal => *included,
            order => order.is_gt(),
        });
        let high = high.as_ref().is_none_or(|(high, included)| match compare(schema, &parts, key, high) {
            Ordering::Equal => *included,
            order => order.is_lt(),
        });
        low && high
    };
    let wanted: Vec<Row> = model.sorted(n).into_iter().filter(|row| is_in(&values(schema, &parts, row))).collect();
    let range = (bound(&low), bound(&high));
    macro_rules! collect {
        ($cursor:expr) => {{
            let (mut cursor, mut found) = ($cursor.unwrap(), Vec::new());
            while let Some(values) = cursor.next().unwrap() {
                found.push(values.into_iter().map(Value::into_owned).collect::<Row>());
            }
            found
        }};
    }
    let (forward, mut backward, locked) = match n {
        None => (
            collect!(tx.scan(table, range)),
            collect!(tx.scan_back(table, range)),
            collect!(tx.scan_locked(table, range, Locking::SHARED)),
        ),
        Some(n) => {
            let name = schema.indexes()[n].name();
            (
                collect!(tx.scan_index(table, name, range)),
                collect!(tx.scan_index_back(table, name, range)),
                collect!(tx.scan_index_locked(table, name, range, Locking::SHARED)),
            )
        }
    };
    if let Some(n) = n {
        let name = schema.indexes()[n].name();
        let mut rows = tx.scan_index_rows(table, name, range).unwrap();
        let mut locked = tx.scan_index_rows_locked(table, name, range, Locking::SHARED).unwrap();
        for row in &wanted {
            assert_eq!(&rows.next_row().unwrap().unwrap().values().unwrap(), row, "{range:?} of {parts:?}, rows");
            assert_eq!(
                &locked.next_row().unwrap().unwrap().values().unwrap(),
                row,
                "{range:?} of {parts:?}, rows locked"
            );
        }
        assert!(rows.next_row().unwrap().is_none() && locked.next_row().unwrap().is_none());
    }
    let wanted: Vec<Row> = match n {
        None => wanted,
        Some(_) => wanted.iter().map(|row| values(schema, &parts, row)).collect(),
    };
    assert_eq!(forward, wanted, "{range:?} of {parts:?}");
    backward.reverse();
    assert_eq!(backward, wanted, "{range:?} of {parts:?}, backward");
    assert_eq!(locked, wanted, "{range:?} of {parts:?}, locked");
    if n.is_none() {
        let mut rows = tx.scan(table, range).unwrap();
        for row in &wanted {
            assert_eq!(rows.next_key().unwrap(), Some(values(schema, &parts, row)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_keys_are_as_in_the_model(
        schema in schemas(),
        steps in steps(),
        more in steps(),
        added in indexes("added"),
        ends in proptest::collection::vec((proptest::option::of((rows(), any::<bool>())),
            proptest::option::of((rows(), any::<bool>()))), 4),
        longer in any::<[bool; 8]>(),
    ) {
        // A bound with one more value than the row has columns is of another number of the key's columns.
        let mut ends = ends;
        for ((low, high), longer) in ends.iter_mut().zip(longer.chunks(2)) {
            low.iter_mut().filter(|_| longer[0]).for_each(|(row, _)| row.push(Value::Null));
            high.iter_mut().filter(|_| longer[1]).for_each(|(row, _)| row.push(Value::Null));
        }
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model { schema: schema.clone(), rows: Vec::new() };
        let db = open_collating(dir.path());
        let table = db.create_table("table", schema.clone()).unwrap();
        steps.iter().for_each(|step| run(&db, &table, &mut model, step));
        judge(&db, &table, &model, &ends);
        let unique: Vec<KeyPart> = added.parts().collect();
        let doubled = added.is_unique() && model.rows.iter().enumerate().any(|(i, row)| {
            let has_null = values(&schema, &unique, row).iter().any(Value::is_null);
            !has_null && model.rows[..i].iter().any(|other| model.has_same(&unique, row, other))
        });
        match db.create_table_indexes(&table, vec![added.clone()]) {
            Ok(()) => {
                prop_assert!(!doubled);
                model.schema = schema.with_index(added).unwrap();
            }
            Err(Error::DuplicateKey(_)) => prop_assert!(doubled),
            Err(error) => panic!("{error}"),
        }
        drop(table);
        db.close().unwrap();
        drop(db);
        let db = open_collating(dir.path());
        let table = db.table("table").unwrap();
        prop_assert_eq!(&table.schema(), &model.schema);
        judge(&db, &table, &model, &ends);
        more.iter().for_each(|step| run(&db, &table, &mut model, step));
        judge(&db, &table, &model, &ends);
        // Behind the others, so that all columns have the numbers they had.
        let change = TableChanges::new().add_nullable("late", ColumnType::Text, "late".into()).rename_column("v", "w");
        if model.schema.indexes().iter().flat_map(IndexSchema::columns).all(|column| column != "v") {
            db.alter_table(&table, &change).unwrap();
            model.schema = model.schema.with_changes(&change).unwrap();
            model.rows.iter_mut().for_each(|row| row.push("late".into()));
            judge(&db, &table, &model, &[]);
        }
    }
}
