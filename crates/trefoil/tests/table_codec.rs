//! Rows and keys: what goes in comes back, keys are ordered as values, hostile bytes end in a fault.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use base::Fault;
use proptest::prelude::*;
use trefoil::table::{OwnedValue, fuzz, key};
use trefoil::{
    ColumnType, IndexOptions, IndexSchema, KeyPart, RowVisitor, Schema, Structure, TableChanges, Timestamp, Value,
};

const TYPES: [ColumnType; 11] = [
    ColumnType::I64,
    ColumnType::I32,
    ColumnType::U64,
    ColumnType::U32,
    ColumnType::F64,
    ColumnType::Text,
    ColumnType::Bytes,
    ColumnType::Timestamp,
    ColumnType::Bool,
    ColumnType::Fixed(1),
    ColumnType::Fixed(3),
];

/// Bytes with many zeroes, FF and shared beginnings.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff), Just(b'a'), any::<u8>()], 0..6)
}

fn i64s() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), -3i64..3, Just(i64::MIN), Just(i64::MAX)]
}

fn value(column_type: ColumnType) -> BoxedStrategy<OwnedValue> {
    match column_type {
        ColumnType::I64 => i64s().prop_map(Value::I64).boxed(),
        ColumnType::I32 => i64s().prop_map(|n| Value::I32(n as i32)).boxed(),
        ColumnType::U64 => i64s().prop_map(|n| Value::U64(n as u64)).boxed(),
        ColumnType::U32 => i64s().prop_map(|n| Value::U32(n as u32)).boxed(),
        ColumnType::F64 => {
            let special = vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN];
            let special = proptest::sample::select(special);
            prop_oneof![any::<u64>().prop_map(f64::from_bits), -2.0f64..2.0, special].prop_map(Value::F64).boxed()
        }
        ColumnType::Text => "[a\u{0}b\u{7f}\u{e9}\u{10ffff}]{0,6}".prop_map(|s| Value::Text(s.into())).boxed(),
        ColumnType::Bytes => bytes().prop_map(|b| Value::Bytes(b.into())).boxed(),
        ColumnType::Timestamp => i64s().prop_map(Value::Timestamp).boxed(),
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Fixed(width) => {
            let byte = prop_oneof![Just(0u8), Just(1), Just(0xff), any::<u8>()];
            proptest::collection::vec(byte, usize::from(width)).prop_map(|b| Value::Bytes(b.into())).boxed()
        }
    }
}

fn value_or_null(column_type: ColumnType, nullable: bool) -> BoxedStrategy<OwnedValue> {
    if nullable { prop_oneof![1 => Just(Value::Null), 4 => value(column_type)].boxed() } else { value(column_type) }
}

fn columns() -> impl Strategy<Value = Vec<(ColumnType, bool)>> {
    proptest::collection::vec((proptest::sample::select(TYPES.to_vec()), any::<bool>()), 1..12)
}

/// A table of these columns: the first is the primary key, with the last as far as it may be; all are indexed.
fn schema(columns: &[(ColumnType, bool)]) -> Schema {
    let names: Vec<String> = (0..columns.len()).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut builder = Schema::builder();
    for (n, &(column_type, nullable)) in columns.iter().enumerate() {
        let nullable = nullable && n > 0;
        builder =
            if nullable { builder.nullable(names[n], column_type) } else { builder.column(names[n], column_type) };
    }
    let last = names.len() - 1;
    let primary = if last > 0 && !columns[last].1 { vec![names[last], names[0]] } else { vec![names[0]] };
    let structure = if columns.len().is_multiple_of(4) { Structure::Betree } else { Structure::Btree };
    let options =
        IndexOptions { structure, compression: store::Compression::Zstd, node_bytes: 4096, ..IndexOptions::default() };
    let backward: Vec<&str> = names.iter().rev().copied().collect();
    let indexed = IndexSchema::new("backward", &backward);
    builder
        .primary_key(&primary)
        .index(IndexSchema::new("all", &names).with_options(options))
        .index(if columns.len().is_multiple_of(3) { indexed.clustering() } else { indexed })
        .build()
        .expect("a valid schema")
}

/// A table of these columns, collated where they can be; keys of them descending, and of fronts.
fn schema_of_parts(columns: &[(ColumnType, bool)]) -> Schema {
    let is_string = |n: usize| matches!(columns[n].0, ColumnType::Text | ColumnType::Bytes);
    let mut builder = Schema::builder();
    for (n, &(column_type, nullable)) in columns.iter().enumerate() {
        let name = format!("c{n}");
        builder =
            if nullable && n > 0 { builder.nullable(&name, column_type) } else { builder.column(&name, column_type) };
        builder = if is_string(n) && n % 2 == 0 { builder.collate(&name, 300) } else { builder };
    }
    let part = |n: usize| {
        let part = KeyPart::new(&format!("c{n}"));
        let part = if n.is_multiple_of(3) { part.descending() } else { part };
        if is_string(n) && n % 4 < 2 { part.front(2) } else { part }
    };
    builder
        .primary_key_of([part(0)])
        .index(IndexSchema::of_parts("all", (0..columns.len()).rev().map(part)).unique())
        .build()
        .expect("a valid schema")
}

fn tables() -> impl Strategy<Value = (Schema, Vec<OwnedValue>, Vec<OwnedValue>)> {
    columns().prop_flat_map(|columns| {
        let row: Vec<_> =
            columns.iter().enumerate().map(|(n, &(t, nullable))| value_or_null(t, nullable && n > 0)).collect();
        (Just(schema(&columns)), row.clone(), row)
    })
}

/// What a row gives column by column.
#[derive(Default)]
struct Given(BTreeMap<usize, OwnedValue>);

impl RowVisitor for Given {
    fn value(&mut self, column: usize, value: &Value<'_>) {
        assert!(self.0.insert(column, value.clone().into_owned()).is_none(), "column {column} comes once");
    }
}

/// Every second column of a row.
struct Half(Given, usize);

impl RowVisitor for Half {
    fn wants(&self, column: usize) -> bool {
        column % 2 == self.1
    }

    fn value(&mut self, column: usize, value: &Value<'_>) {
        assert!(self.wants(column), "nobody wants column {column}");
        self.0.value(column, value);
    }
}

/// A row decoded, visited, and visited for half of its columns: all give the same.
fn decoded<'a>(schema: &Schema, key: &'a [u8], row: &'a [u8]) -> base::Result<Vec<Value<'a>>> {
    let (values, mut given) = (schema.decode_row(key, row), Given::default());
    let visited = schema.visit_row(key, row, &mut given);
    match (&values, &visited) {
        (Ok(values), Ok(())) => {
            assert!(given.0.keys().copied().eq(0..values.len()), "each column comes");
            assert!(given.0.values().eq(values), "{:?} as {values:?}", given.0);
            for odd in 0..2 {
                let mut half = Half(Given::default(), odd);
                schema.visit_row(key, row, &mut half).expect("what can be decoded can be passed over");
                let wanted = values.iter().cloned().enumerate().filter(|(n, _)| n % 2 == odd);
                assert!(half.0.0.into_iter().eq(wanted), "half of {values:?}");
            }
        }
        (Err(a), Err(b)) => assert_eq!(format!("{a:?}"), format!("{b:?}")),
        _ => panic!("decoded {values:?}, visited {visited:?}"),
    }
    values
}

fn pick<'a>(values: &[Value<'a>], columns: impl Iterator<Item = usize>) -> Vec<Value<'a>> {
    columns.map(|n| values[n].clone()).collect()
}

/// Reads column `n` as the Rust type that stands for `wanted`.
fn typed_column(
    schema: &Schema,
    n: usize,
    wanted: (ColumnType, bool),
    primary: &[u8],
    row: &[u8],
) -> base::Result<OwnedValue> {
    macro_rules! read {
        ($type:ty, $value:expr) => {
            if wanted.1 {
                let read = schema.decode_column_as::<Option<$type>>(n, primary, row)?;
                read.map_or(Value::Null, $value).into_owned()
            } else {
                ($value)(schema.decode_column_as::<$type>(n, primary, row)?).into_owned()
            }
        };
    }
    Ok(match wanted.0 {
        ColumnType::I64 => read!(i64, Value::I64),
        ColumnType::I32 => read!(i32, Value::I32),
        ColumnType::U64 => read!(u64, Value::U64),
        ColumnType::U32 => read!(u32, Value::U32),
        ColumnType::F64 => read!(f64, Value::F64),
        ColumnType::Text => read!(Cow<'_, str>, Value::Text),
        ColumnType::Bytes => read!(Cow<'_, [u8]>, Value::Bytes),
        ColumnType::Timestamp => read!(Timestamp, |t: Timestamp| Value::Timestamp(t.0)),
        ColumnType::Bool => read!(bool, Value::Bool),
        ColumnType::Fixed(1) => read!([u8; 1], |b: [u8; 1]| Value::Bytes(b.to_vec().into())),
        ColumnType::Fixed(3) => read!([u8; 3], |b: [u8; 3]| Value::Bytes(b.to_vec().into())),
        ColumnType::Fixed(_) => unreachable!("there is no such column"),
    })
}

/// A row of [`wide`]: every type, three of them NULL at times, the last one added later.
type Wide<'a> =
    (i64, i32, u64, u32, f64, bool, Option<Cow<'a, str>>, Option<Cow<'a, [u8]>>, Option<Timestamp>, Option<u32>);

/// An entry of its index, with the primary key.
type Entry<'a, A, B> = (Option<Cow<'a, [u8]>>, Option<Cow<'a, str>>, Option<Timestamp>, A, B);

fn number(value: &Value<'_>) -> i64 {
    match value {
        Value::I64(n) => *n,
        Value::I32(n) => i64::from(*n),
        other => panic!("{other:?} is no number"),
    }
}

fn wide(key_leads: bool, last: bool) -> Schema {
    let builder = Schema::builder()
        .column("i64", ColumnType::I64)
        .column("i32", ColumnType::I32)
        .column("u64", ColumnType::U64)
        .column("u32", ColumnType::U32)
        .column("f64", ColumnType::F64)
        .column("bool", ColumnType::Bool)
        .nullable("text", ColumnType::Text)
        .nullable("bytes", ColumnType::Bytes)
        .nullable("at", ColumnType::Timestamp);
    let builder = if last { builder.nullable("last", ColumnType::U32) } else { builder };
    let key = if key_leads { ["i64", "i32"] } else { ["i32", "i64"] };
    builder.primary_key(&key).index(IndexSchema::new("index", &["bytes", "text", "at"])).build().expect("valid")
}

fn every_type() -> impl Strategy<Value = Vec<OwnedValue>> {
    use ColumnType::{Bool, Bytes, F64, I32, I64, Text, Timestamp, U32, U64};
    let plain = [I64, I32, U64, U32, F64, Bool].map(value);
    let nullable = [Text, Bytes, Timestamp, U32].map(|t| value_or_null(t, true));
    plain.into_iter().chain(nullable).collect::<Vec<_>>()
}

fn opt<'a, T>(value: Option<T>, make: impl FnOnce(T) -> Value<'a>) -> Value<'a> {
    value.map_or(Value::Null, make)
}

fn values_of(row: Wide<'_>) -> Vec<Value<'_>> {
    let (i64, i32, u64, u32, f64, bool, text, bytes, at, last) = row;
    vec![
        Value::I64(i64),
        Value::I32(i32),
        Value::U64(u64),
        Value::U32(u32),
        Value::F64(f64),
        Value::Bool(bool),
        opt(text, Value::Text),
        opt(bytes, Value::Bytes),
        opt(at, |at| Value::Timestamp(at.0)),
        opt(last, Value::U32),
    ]
}

proptest! {
    #[test]
    fn rows_and_entries_come_back((schema, row, _) in tables()) {
        let (mut primary, mut stored, mut entry, mut again) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        schema.primary_key_of_row(&row, &mut primary).expect("a row");
        schema.row_value(&row, &mut stored).expect("a row");
        prop_assert_eq!(&decoded(&schema, &primary, &stored).expect("decodes"), &row);
        prop_assert_eq!(schema.decode_primary_key(&primary).expect("decodes"),
            pick(&row, schema.primary_key().iter().copied()));
        for n in 0..schema.indexes().len() {
            schema.index_key_of_row(n, &primary, &row, &mut entry).expect("a row");
            schema.secondary_key(n, &primary, &stored, &mut again).expect("a stored row");
            prop_assert_eq!(&entry, &again);
            prop_assert_eq!(schema.primary_key_of(n, &entry).expect("an entry"), &primary[..]);
            let values = pick(&row, schema.entry_columns(n));
            prop_assert_eq!(&schema.decode_entry(n, &entry, &[]).expect("decodes"), &values);
            for count in 0..=values.len() {
                schema.index_prefix(n, &values[..count], &mut again).expect("a prefix");
                prop_assert!(entry.starts_with(&again));
            }
        }
    }

    #[test]
    fn typed_columns_are_the_values((schema, row, _) in tables()) {
        let (mut primary, mut stored) = (Vec::new(), Vec::new());
        schema.primary_key_of_row(&row, &mut primary).expect("a row");
        schema.row_value(&row, &mut stored).expect("a row");
        for (n, column) in schema.columns().iter().enumerate() {
            for other in TYPES {
                for nullable in [false, true] {
                    let read = typed_column(&schema, n, (other, nullable), &primary, &stored);
                    if (other, nullable) == (column.column_type, column.nullable) {
                        prop_assert_eq!(read.expect("its own type"), row[n].clone());
                    } else {
                        prop_assert!(matches!(read, Err(Fault::Invalid(_))));
                    }
                }
            }
        }
        prop_assert!(schema.decode_column_as::<i64>(schema.columns().len(), &primary, &stored).is_err());
    }

    /// A column is found by a way of its own: it must not see a row where there is none, or another one.
    #[test]
    fn a_column_of_a_damaged_row_is_that_of_the_row((schema, row, _) in tables(), at: u16, to: u8, cut: bool) {
        let (mut primary, mut stored) = (Vec::new(), Vec::new());
        schema.primary_key_of_row(&row, &mut primary).expect("a row");
        schema.row_value(&row, &mut stored).expect("a row");
        let at = usize::from(at) % stored.len();
        if cut { stored.truncate(at) } else { stored[at] = to }
        let whole = decoded(&schema, &primary, &stored);
        for (n, column) in schema.columns().iter().enumerate() {
            let read = typed_column(&schema, n, (column.column_type, column.nullable), &primary, &stored);
            match &whole {
                Ok(values) => prop_assert_eq!(&read.expect("a row"), &values[n]),
                Err(_) if at == 0 && !schema.primary_key().contains(&n) => prop_assert!(read.is_err()),
                Err(_) => {}
            }
        }
    }

    #[test]
    fn tuples_are_the_values(columns in every_type(), leads: bool, shorter: bool) {
        let (schema, row) = (wide(leads, true), columns);
        let writer = if shorter { wide(leads, false) } else { schema.clone() };
        let kept = writer.columns().len();
        let (mut primary, mut stored, mut entry) = (Vec::new(), Vec::new(), Vec::new());
        writer.primary_key_of_row(&row[..kept], &mut primary).expect("a row");
        writer.row_value(&row[..kept], &mut stored).expect("a row");
        let expected = decoded(&schema, &primary, &stored).expect("decodes");
        let tuple: Wide<'_> = schema.decode_row_as(&primary, &stored).expect("decodes");
        prop_assert_eq!(&values_of(tuple), &expected);
        schema.index_key_of_row(0, &primary, &row, &mut entry).expect("a row");
        let values = schema.decode_entry(0, &entry, &[]).expect("decodes");
        if leads {
            let (bytes, text, at, i64, i32) =
                schema.decode_entry_as::<Entry<'_, i64, i32>>(0, &entry, &[]).expect("decodes");
            let read = [opt(bytes, Value::Bytes), opt(text, Value::Text), opt(at, |at| Value::Timestamp(at.0))];
            prop_assert_eq!((&read[..], i64, i32), (&values[..3], number(&values[3]), number(&values[4]) as i32));
        } else {
            let wrong = schema.decode_entry_as::<Entry<'_, i64, i32>>(0, &entry, &[]);
            prop_assert!(matches!(wrong, Err(Fault::Invalid(_))));
            prop_assert!(schema.decode_entry_as::<Entry<'_, i32, i64>>(0, &entry, &[]).is_ok());
        }
        // Every cut is seen.
        for cut in 0..stored.len() {
            let read: base::Result<Wide<'_>> = schema.decode_row_as(&primary, &stored[..cut]);
            prop_assert_eq!(read.is_ok(), decoded(&schema, &primary, &stored[..cut]).is_ok());
        }
        stored.push(0);
        prop_assert!(schema.decode_row_as::<Wide<'_>>(&primary, &stored).is_err());
    }

    #[test]
    fn keys_are_ordered_as_values((schema, a, b) in tables()) {
        let (mut key_a, mut key_b, mut none) = (Vec::new(), Vec::new(), Vec::new());
        schema.primary_key_of_row(&a, &mut none).expect("a row");
        for n in 0..schema.indexes().len() {
            schema.index_key_of_row(n, &[], &a, &mut key_a).expect("a row");
            schema.index_key_of_row(n, &[], &b, &mut key_b).expect("a row");
            let columns = || schema.index_columns(n).iter().copied();
            prop_assert_eq!(key_a.cmp(&key_b), pick(&a, columns()).cmp(&pick(&b, columns())));
            // The prefix of one value and its successor enclose exactly the entries with that value.
            let first = pick(&a, columns().take(1));
            schema.index_prefix(n, &first, &mut none).expect("a prefix");
            let same = b[columns().next().expect("a column")].cmp(&first[0]) == Ordering::Equal;
            let mut end = none.clone();
            let bounded = key::successor(&mut end);
            prop_assert_eq!(key_b >= none && (!bounded || key_b < end), same);
        }
    }

    #[test]
    fn single_values_are_ordered(t in 0usize..TYPES.len(), nullable: bool, seed in any::<(u64, u64)>()) {
        let schema = schema(&[(ColumnType::Bool, false), (TYPES[t], nullable), (ColumnType::Bool, true)]);
        let column = &schema.columns()[1];
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let strategy = value_or_null(TYPES[t], nullable);
        for _ in 0..(seed.0 ^ seed.1) % 16 {
            let a = strategy.new_tree(&mut runner).expect("a value").current();
            let b = strategy.new_tree(&mut runner).expect("a value").current();
            let (mut key_a, mut key_b) = (Vec::new(), Vec::new());
            key::put(&mut key_a, column, &a);
            key::put(&mut key_b, column, &b);
            prop_assert_eq!(key_a.cmp(&key_b), a.cmp(&b), "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn schemas_come_back(columns in columns()) {
        let schema = schema(&columns);
        prop_assert_eq!(Schema::decode(&schema.encode()).expect("decodes"), schema);
    }

    #[test]
    fn hostile_bytes_never_panic(
        columns in columns(),
        has_parts: bool,
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let schema = if has_parts { schema_of_parts(&columns) } else { schema(&columns) };
        let is_new = has_parts || columns.iter().any(|c| matches!(c.0, ColumnType::Fixed(_)));
        let has = |is: fn(&IndexSchema) -> bool| schema.indexes().iter().any(is);
        let betree = has(|index| index.options().structure == Structure::Betree);
        let clustering = if has(IndexSchema::is_clustering) { 4 } else if is_new { 3 } else { 1 };
        prop_assert_eq!(schema.format(), if betree { 5 } else { clustering });
        prop_assert_eq!(Schema::decode(&schema.encode()).expect("decodes"), schema.clone());
        let encoded = schema.encode();
        // A schema that decodes, then garbage for it.
        if let Ok(cut) = u8::try_from(encoded.len()) {
            fuzz(&[&[cut], &encoded[..], &bytes].concat());
        }
        // Garbage that resembles a schema.
        let mut damaged = encoded;
        for pair in bytes.chunks_exact(2).take(3) {
            let at = usize::from(pair[0]) % damaged.len();
            damaged[at] = pair[1];
        }
        let _ = Schema::decode(&damaged);
        let cut = bytes.len().min(damaged.len());
        let _ = Schema::decode(&damaged[..cut]);
        let _ = Schema::decode(&bytes);
    }

    #[test]
    fn damaged_rows_never_panic((schema, row, _) in tables(), damage in any::<(u16, u8, u16)>()) {
        let (mut primary, mut stored) = (Vec::new(), Vec::new());
        schema.primary_key_of_row(&row, &mut primary).expect("a row");
        schema.row_value(&row, &mut stored).expect("a row");
        for bytes in [&mut primary, &mut stored] {
            let at = usize::from(damage.0) % bytes.len();
            bytes[at] = damage.1;
            bytes.truncate(bytes.len() - usize::from(damage.2) % 3 % bytes.len());
        }
        let _ = decoded(&schema, &primary, &stored);
        for n in 0..schema.indexes().len() {
            let _ = schema.decode_entry(n, &primary, &stored);
            let _ = schema.primary_key_of(n, &stored);
        }
    }
}

fn people() -> Schema {
    Schema::builder()
        .column("id", ColumnType::I64)
        .column("name", ColumnType::Text)
        .nullable("born", ColumnType::Timestamp)
        .primary_key(&["id"])
        .build()
        .expect("a valid schema")
}

/// The parts of keys, drawn to the byte.
#[test]
fn parts_are_as_documented() {
    let columns = Schema::builder()
        .column("day", ColumnType::Fixed(2))
        .nullable("name", ColumnType::Text)
        .column("path", ColumnType::Bytes);
    let parts = [KeyPart::new("name").descending(), KeyPart::new("path").front(1)];
    let schema = columns.primary_key_of([KeyPart::new("day").descending()]).index(IndexSchema::of_parts("i", parts));
    let schema = schema.build().expect("valid");
    let row = [Value::Bytes(vec![1, 0].into()), "a\0".into(), Value::Bytes(b"xyz".into())];
    let [mut primary, mut stored, mut entry, mut beside] = [const { Vec::new() }; 4];
    schema.primary_key_of_row(&row, &mut primary).expect("a row");
    schema.row_value(&row, &mut stored).expect("a row");
    schema.index_key_of_row(0, &primary, &row, &mut entry).expect("a row");
    schema.entry_value_of_row(0, &row, &mut beside).expect("a row");
    assert_eq!(primary, [0xfe, 0xff]);
    assert_eq!(stored, [1, 2, 0, 2, b'a', 0, 3, b'x', b'y', b'z']);
    assert_eq!(entry, [&[0xfe, !b'a', 0xff, 0x00, 0xff, 0xff, b'x', 0, 0], &primary[..]].concat());
    assert_eq!(beside, [3, b'x', b'y', b'z']);
    let expected = [
        &[3, 3][..], // format, columns
        &[3, b'd', b'a', b'y', 10, 2, 0],
        &[4, b'n', b'a', b'm', b'e', 6, 1],
        &[4, b'p', b'a', b't', b'h', 7, 0],
        &[1, 0, 1, 0, 1, 0],                         // primary key, settings
        &[1, 1, b'i', 0, 2, 1, 1, 2, 2, 1, 0, 1, 0], // indexes
        &[0],                                        // no versions
    ];
    assert_eq!(schema.encode(), expected.concat());
    let collated =
        schema.with_changes(&TableChanges::new().add_column("c", ColumnType::Text, "".into()).collate("c", 300));
    let encoded = collated.expect("valid").encode();
    assert!(encoded.windows(6).any(|bytes| bytes == [1, b'c', 6, 2, 0xac, 0x02]), "{encoded:?}");
}

/// The formats, drawn to the byte.
#[test]
fn bytes_are_as_documented() {
    let schema = people().with_index(IndexSchema::new("by_name", &["born", "name"])).expect("fits");
    let row = [Value::I64(-2), Value::from("a\0b"), Value::Null];
    let (mut primary, mut stored, mut entry) = (Vec::new(), Vec::new(), Vec::new());
    schema.primary_key_of_row(&row, &mut primary).expect("a row");
    schema.row_value(&row, &mut stored).expect("a row");
    schema.index_key_of_row(0, &primary, &row, &mut entry).expect("a row");
    assert_eq!(primary, [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(stored, [1, 2, 0b1, 3, b'a', 0, b'b']);
    assert_eq!(entry, [&[0, b'a', 0, 0xff, b'b', 0, 0], &primary[..]].concat());
    let expected = [
        &[1, 3][..],
        &[2, b'i', b'd', 1, 0],
        &[4, b'n', b'a', b'm', b'e', 6, 0],
        &[4, b'b', b'o', b'r', b'n', 8, 1],
        &[1, 0, 0, 1, 0],
        &[1, 7, b'b', b'y', b'_', b'n', b'a', b'm', b'e', 0, 2, 2, 1, 0, 1, 0],
    ];
    assert_eq!(schema.encode(), expected.concat());
}

#[test]
fn a_row_from_before_a_column_was_added_reads_null() {
    let (mut primary, mut stored) = (Vec::new(), Vec::new());
    let row = [Value::I64(1), Value::from("Ada"), Value::Timestamp(9)];
    people().primary_key_of_row(&row, &mut primary).expect("a row");
    people().row_value(&row, &mut stored).expect("a row");
    let wider = Schema::builder()
        .column("id", ColumnType::I64)
        .column("name", ColumnType::Text)
        .nullable("born", ColumnType::Timestamp)
        .nullable("died", ColumnType::Timestamp)
        .primary_key(&["id"]);
    let values = decoded(&wider.clone().build().expect("valid"), &primary, &stored).expect("decodes").len();
    assert_eq!(values, 4);
    let strict = wider.column("rank", ColumnType::I32).build().expect("valid");
    assert!(decoded(&strict, &primary, &stored).is_err(), "a column that is never NULL cannot be absent");
}

fn says(outcome: base::Result<Schema>, words: &str) {
    let fault = outcome.expect_err(words).to_string();
    assert!(fault.contains(words), "{fault}");
}

#[test]
fn schemas_that_make_no_sense_are_refused() {
    let table = || Schema::builder().column("a", ColumnType::I64).nullable("b", ColumnType::Text);
    says(table().build(), "needs a primary key");
    says(table().primary_key(&["c"]).build(), "no column \"c\"");
    says(table().primary_key(&["b"]).build(), "may not be nullable");
    says(table().primary_key(&["a", "a"]).build(), "twice");
    says(table().column("a", ColumnType::Bool).primary_key(&["a"]).build(), "names are \"a\"");
    let with = |index| table().primary_key(&["a"]).index(index).build();
    says(with(IndexSchema::new("i", &[])), "at least one column");
    says(with(IndexSchema::new("", &["b"])), "needs a name");
    says(with(IndexSchema::new("i", &["x"])), "no column \"x\"");
    let schema = with(IndexSchema::new("i", &["b"])).expect("valid");
    says(schema.with_index(IndexSchema::new("i", &["a"])), "names are \"i\"");
    assert_eq!(schema.without_index(0).indexes(), &[]);
    let many = (0..1025).fold(Schema::builder(), |s, n| s.column(&n.to_string(), ColumnType::Bool));
    says(many.primary_key(&["0"]).build(), "limit is 1024");
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let (schema, mut out) = (people(), Vec::new());
    let says = |values: &[Value<'_>], words: &str| {
        let fault = schema.check(values).expect_err(words).to_string();
        assert!(fault.contains(words), "{fault}");
    };
    says(&[Value::I64(1)], "3 columns, the row 1 values");
    says(&[Value::Null, Value::from("a"), Value::Null], "\"id\" may not be NULL");
    says(&[Value::I32(1), Value::from("a"), Value::Null], "\"id\" is I64, the value is I32");
    assert!(schema.primary_prefix(&[Value::I64(1), Value::I64(2)], &mut out).is_err());
    let by_name = schema.with_index(IndexSchema::new("by_name", &["name"])).expect("fits");
    let long = [Value::I64(1), Value::Text("x".repeat(48 << 10).into()), Value::Null];
    let fault = by_name.index_key_of_row(0, &[], &long, &mut out).expect_err("too long");
    assert!(matches!(fault, Fault::Limit { got: 49154, .. }), "{fault}");
}

#[test]
fn a_newer_schema_format_is_named() {
    let mut bytes = people().encode();
    for newer in [6, 10] {
        bytes[0] = newer as u8;
        assert!(matches!(Schema::decode(&bytes), Err(Fault::Format { found, supported: 9, .. }) if found == newer));
    }
    assert!(matches!(Schema::decode(&[]), Err(Fault::Corrupt(_))));
}

/// The example of docs/formats/table.md: version 1 drops "name" and adds "age".
fn altered() -> Schema {
    let changes = TableChanges::new().drop_column("name").add_column("age", ColumnType::U32, 7u32.into());
    people().with_changes(&changes).expect("it fits")
}

#[test]
fn rows_of_two_versions_are_read_as_documented() {
    let schema = altered();
    let (mut key, mut row) = (Vec::new(), Vec::new());
    let values = [Value::I64(-2), Value::Null, Value::U32(7)];
    schema.primary_key_of_row(&values, &mut key).expect("a row");
    schema.row_value(&values, &mut row).expect("a row");
    assert_eq!(row, [2, 2, 1, 7]);
    let before = [1, 2, 1, 3, b'a', 0, b'b'];
    for row in [&row[..], &before] {
        assert_eq!(decoded(&schema, &key, row).expect("a row"), values);
        assert_eq!(schema.decode_column_as::<u32>(2, &key, row).expect("a row"), 7);
        assert_eq!(schema.decode_row_as::<(i64, Option<Timestamp>, u32)>(&key, row).expect("a row"), (-2, None, 7));
    }
    assert!(schema.says_the_same(&key, &before, &row).expect("rows"));
    assert_eq!(Schema::decode(&schema.encode()).expect("a schema"), schema);
    assert!(matches!(decoded(&schema, &key, &[3, 2, 1, 7]), Err(Fault::Changed)), "of a version to come");
    for no_row in [&[0, 2, 1, 7][..], &[241, 2, 1, 7], &[1, 2, 1, 7], &before[..6], &[]] {
        assert!(matches!(decoded(&schema, &key, no_row), Err(Fault::Corrupt(_))), "{no_row:?}");
    }
}

/// Of rows that do not store it no column has a value that the primary key has already: damage that says so is refused, and not
/// read in place of the key. Guard: `Versions::check`.
#[test]
fn a_remembered_value_does_not_take_the_place_of_a_key() {
    let changes = TableChanges::new().drop_column("name").add_nullable("age", ColumnType::U32, 7u32.into());
    let schema = people().with_changes(&changes).expect("it fits");
    let (mut key, before) = (Vec::new(), [1, 2, 1, 3, b'a', 0, b'b']);
    schema.primary_key_of_row(&[Value::I64(-2), Value::Null, Value::Null], &mut key).expect("a row");
    let whole = schema.encode();
    let mut refused = 0;
    for at in (0..whole.len()).filter(|&at| whole[at] == 3) {
        let mut bytes = whole.clone();
        bytes[at] = 0;
        match Schema::decode(&bytes)
            .map(|schema| decoded(&schema, &key, &before).map(|row| row[0].clone().into_owned()))
        {
            Ok(Ok(id)) => assert_eq!(id, Value::I64(-2), "byte {at}"),
            Ok(Err(_)) => {}
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0);
}

/// Each byte of a schema with versions changed, and of rows below it: a fault, or what comes back the same.
#[test]
fn hostile_versions_end_in_a_fault() {
    let schema = altered().encode();
    let tail = [&[0x7f, 0xff, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xfe, 1, 2, 1, 3, b'a', 0, b'b']].concat();
    let whole = [&[schema.len() as u8][..], &schema, &tail].concat();
    for at in 0..whole.len() {
        for byte in 0..=u8::MAX {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            fuzz(&bytes);
        }
        fuzz(&whole[..at]);
    }
}
