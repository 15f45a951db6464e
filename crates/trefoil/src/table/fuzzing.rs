//! Schemas, rows and entries made of any bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::collation::Collations;
use super::part::Part;
use super::schema::Schema;
use super::value::{OwnedValue, Value};
use super::visitor::RowVisitor;

/// A collation for fuzzing.
struct Shortened;

impl Collations for Shortened {
    fn sort_key(&self, _: u32, text: &[u8], characters: Option<u32>, out: &mut Vec<u8>) -> crate::Result<()> {
        out.extend(text.iter().take(characters.map_or(3, |n| n as usize % 4)));
        Ok(())
    }
}

/// What a row gives column by column, for columns that are wanted.
struct Given(BTreeMap<usize, OwnedValue>, fn(usize) -> bool);

impl RowVisitor for Given {
    fn wants(&self, column: usize) -> bool {
        self.1(column)
    }

    fn value(&mut self, column: usize, value: &Value<'_>) {
        self.0.insert(column, value.clone().into_owned());
    }
}

/// Entries of a row are the same made of its values and of what is stored, and give its values back.
fn fuzz_entries(schema: &Schema, values: &[Value<'_>], row: &[u8]) {
    let [mut primary, mut entry, mut value, mut again] = [const { Vec::new() }; 4];
    if schema.primary_key_of_row(values, &mut primary).is_err() {
        return; // too long
    }
    for n in 0..schema.indexes().len() {
        if schema.index_key_of_row(n, &primary, values, &mut entry).is_err() {
            continue;
        }
        schema.secondary_key(n, &primary, row, &mut again).expect("a row");
        assert_eq!(again, entry);
        schema.entry_value_of_row(n, values, &mut value).expect("a row");
        schema.secondary_value(n, &primary, row, &mut again).expect("a row");
        assert_eq!(again, value);
        let expected: Vec<_> = schema.entry_columns(n).map(|c| values[c].clone()).collect();
        assert_eq!(schema.decode_entry(n, &entry, &value).expect("an entry"), expected);
        assert_eq!(schema.primary_key_of(n, &entry).expect("an entry"), primary);
    }
}

/// For fuzzing: decodes anything as a schema, and the rest as rows and entries of it. Never panics; what decodes
/// encodes to something that decodes to the same.
pub fn fuzz(bytes: &[u8]) {
    let Some((&cut, rest)) = bytes.split_first() else { return };
    let (schema, data) = rest.split_at(rest.len().min(cut.into()));
    let Ok(schema) = Schema::decode(schema) else { return };
    assert_eq!(Schema::decode(&schema.encode()).as_ref().ok(), Some(&schema), "a schema comes back");
    let schema = schema.with_collations(&Some(Arc::new(Shortened)));
    let (primary, row) = data.split_at(data.len() / 2);
    let mut out = Vec::new();
    let decoded = schema.decode_row(primary, row);
    let [mut given, mut half] =
        [(|_| true) as fn(usize) -> bool, |n| n % 2 == 0].map(|wants| Given(BTreeMap::new(), wants));
    assert_eq!(schema.visit_row(primary, row, &mut given).is_ok(), decoded.is_ok(), "visited as it is decoded");
    if let Ok(values) = decoded {
        assert_eq!(given.0.into_values().collect::<Vec<_>>(), values, "what is visited is what is decoded");
        schema.visit_row(primary, row, &mut half).expect("what is decoded can be passed over");
        assert!(half.0.into_iter().eq(values.iter().cloned().enumerate().filter(|(n, _)| n % 2 == 0)), "half of it");
        schema.row_value(&values, &mut out).expect("what was decoded is a row");
        let again = schema.decode_row(primary, &out).expect("what was encoded is a row");
        assert_eq!(again, values);
        fuzz_entries(&schema, &values, &out);
    }
    for n in 0..schema.indexes().len() {
        let _ = schema.primary_key_of(n, data);
        for (entry, value) in [(data, &[][..]), (primary, row)] {
            let Ok(values) = schema.decode_entry(n, entry, value) else { continue };
            let encoded = schema.index_prefix(n, &values, &mut out);
            let holds = schema.entry_parts(n).all(Part::holds);
            // What stands beside a key may be of another one: then it makes another one.
            assert!(encoded.is_err() || !holds || out == entry, "an entry has one encoding");
        }
    }
}
