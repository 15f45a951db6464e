//! A run in memory: all bytes in one allocation, and a place for each entry.

use crate::Charge;

#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    key_bytes: u32,
    value_bytes: u32,
    delete: bool,
}

#[derive(Debug, Default)]
pub(super) struct MemoryRun {
    bytes: Vec<u8>,
    places: Vec<Place>,
    pub(super) puts: usize,
    /// What the run is charged, given back with it.
    pub(super) charge: Option<Charge>,
}

impl MemoryRun {
    pub(super) fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        assert!(self.len() == 0 || self.key(self.len() - 1) < key, "keys of a run ascend");
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let bytes = value.unwrap_or_default();
        self.bytes.extend_from_slice(bytes);
        self.puts += usize::from(value.is_some());
        self.places.push(Place {
            start,
            key_bytes: u32::try_from(key.len()).expect("the engine limits keys to 3 KiB"),
            value_bytes: u32::try_from(bytes.len()).expect("the engine limits values to 4 GiB - 1"),
            delete: value.is_none(),
        });
    }

    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.places.shrink_to_fit();
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.bytes.capacity() + self.places.capacity() * size_of::<Place>()) as u64
    }

    /// Of keys and values.
    pub(super) fn content_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn key(&self, i: usize) -> &[u8] {
        let p = self.places[i];
        &self.bytes[p.start..p.start + p.key_bytes as usize]
    }

    pub(super) fn value(&self, i: usize) -> Option<&[u8]> {
        let p = self.places[i];
        let start = p.start + p.key_bytes as usize;
        (!p.delete).then(|| &self.bytes[start..start + p.value_bytes as usize])
    }

    /// The first entry at or above `key`; the length if there is none.
    pub(super) fn seek(&self, key: &[u8]) -> usize {
        self.places.partition_point(|p| &self.bytes[p.start..p.start + p.key_bytes as usize] < key)
    }
}
