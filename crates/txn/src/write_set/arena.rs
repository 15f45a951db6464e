//! Bytes of keys and values, appended and cut back at the end only. Chunks double from 1 KiB to 256 KiB, so a small
//! transaction is small and a large one never copies what it has (a single growing `Vec` would hold three times its
//! size while it moves).

const CHUNK_BYTES_MIN: usize = 1024;
const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// Where some bytes start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    chunk: u32,
    at: u32,
}

#[derive(Debug, Default)]
pub(super) struct Arena {
    /// Every chunk has its full capacity from the start and is never moved.
    chunks: Vec<Vec<u8>>,
    reserved_bytes: usize,
}

impl Arena {
    /// Appends a key and, right behind it, a value.
    pub(super) fn append(&mut self, key: &[u8], value: &[u8]) -> Place {
        let bytes = key.len() + value.len();
        if self.chunks.last().is_none_or(|last| last.capacity() - last.len() < bytes) {
            let doubled = self.chunks.last().map_or(CHUNK_BYTES_MIN, |last| 2 * last.capacity());
            let chunk = Vec::with_capacity(doubled.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).max(bytes));
            self.reserved_bytes += chunk.capacity();
            self.chunks.push(chunk);
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        // An empty chunk takes any record; a record starts beyond 0 only in a chunk of at most CHUNK_BYTES_MAX or
        // behind nothing, so `at` fits.
        let place = Place { chunk: number as u32, at: chunk.len() as u32 };
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(value);
        place
    }

    /// `bytes` bytes that start `skip` behind `place`.
    pub(super) fn get(&self, place: Place, skip: usize, bytes: usize) -> &[u8] {
        let start = place.at as usize + skip;
        &self.chunks[place.chunk as usize][start..start + bytes]
    }

    /// Drops `place` and everything appended after it.
    pub(super) fn cut(&mut self, place: Place) {
        for dropped in self.chunks.drain(place.chunk as usize + 1..) {
            self.reserved_bytes -= dropped.capacity();
        }
        self.chunks[place.chunk as usize].truncate(place.at as usize);
    }

    /// Bytes in the first chunk.
    pub(super) fn first_bytes(&self) -> usize {
        self.chunks.first().map_or(0, Vec::len)
    }

    pub(super) fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }

    /// Forgets everything; keeps the first chunk.
    pub(super) fn clear(&mut self) {
        self.chunks.truncate(1);
        self.chunks.iter_mut().for_each(Vec::clear);
        if self.chunks.first().is_some_and(|first| first.capacity() > CHUNK_BYTES_MAX) {
            self.chunks.clear();
        }
        self.reserved_bytes = self.chunks.iter().map(Vec::capacity).sum();
    }
}
