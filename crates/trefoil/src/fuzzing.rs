//! Fuzz bodies: plain functions that take any bytes and must never panic.

/// A row of the catalog.
pub fn catalog_row(bytes: &[u8]) {
    for key in [crate::catalog::index_key(base::IndexId(1)), crate::catalog::table_key(base::IndexId(1))] {
        let _ = crate::catalog::decode_row(&key, bytes);
    }
}

/// A commit record.
pub fn commit_record(bytes: &[u8]) {
    let _ = crate::record::decode(bytes, base::Lsn::ZERO, |_| true);
}

/// A manifest file, its checksum made right so that the payload is reached.
pub fn manifest(bytes: &[u8]) {
    let _ = crate::manifest::Manifest::decode("fuzz", bytes);
    let _ = crate::manifest::Manifest::decode_payload(bytes);
}

/// Schemas, rows and keys.
pub fn table(bytes: &[u8]) {
    crate::table::fuzz(bytes);
}
