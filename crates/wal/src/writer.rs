//! Frames: what one group becomes on disk.
//!
//! The writer belongs to whoever leads the write stage. For each frame it
//!
//! 1. copies whole records, as many as are copied contiguously and at most [`GROUP_BYTES`], out of the ring;
//! 2. compresses them if they are more than a block and it pays;
//! 3. finds the place: behind the last frame, or in the next segment if it does not fit;
//! 4. accounts for the space and releases the room of the records, so that appenders go on during the write;
//! 5. writes the frame; the last of the blocks that it starts is filled up with zeroes.
//!
//! Where frames go: a write that follows a sync starts a fresh block ([`Writer::seal`] moves the place to the
//! next boundary), so a sector that holds acknowledged durable bytes is never written again (rule A19). Frames
//! that nobody has synced yet may share a block: the bytes before a frame are not written again, and losing the
//! whole block in a power cut loses nothing that was promised. Without this a commit of 100 bytes under
//! durability `Write` would cost 4 KiB of disk traffic.

use std::sync::Arc;

use base::limits::SECTOR_BYTES;
use base::{Fault, Lsn, Result, checksum};

use crate::format::{
    FRAME_HEADER_BYTES, FrameCompression, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader, block_boundary,
    frame_boundary,
};
use crate::log::Inner;
use crate::record::Records;
use crate::segment::{Segment, Spare};
use crate::stats::Counters;

/// Most bytes of records in a frame, unless one record is longer.
const GROUP_BYTES: u64 = 1 << 20;
/// Payloads up to this are stored as they are.
const COMPRESS_ABOVE_BYTES: usize = SECTOR_BYTES;
/// After a frame that compression did not help, so many are not tried.
const COMPRESSION_PAUSE: u32 = 15;
/// Zeroes written ahead in a segment that was started before it was filled.
const FILL_AHEAD_BYTES: u64 = 1 << 20;

/// State of the write stage's leader.
pub(crate) struct Writer {
    segment: Arc<Segment>,
    /// Where the next frame starts.
    offset: u64,
    /// The file has been written up to here once.
    filled: u64,
    /// Everything below is framed.
    taken: Lsn,
    frame_number: u64,
    /// Segments written to since the last seal.
    unsynced: Vec<Arc<Segment>>,
    /// The frame being made: room for its header, and its payload.
    frame: Vec<u8>,
    /// The same, compressed; the two change places if that pays.
    packed: Vec<u8>,
    compression_pause: u32,
}

impl Writer {
    /// A writer at the start of a segment whose header is written.
    pub(crate) fn new(spare: Spare, start: Lsn, frame_number: u64) -> Self {
        Self {
            segment: spare.segment,
            offset: SEGMENT_HEADER_BYTES,
            filled: spare.filled,
            taken: start,
            frame_number,
            unsynced: Vec::new(),
            frame: Vec::new(),
            packed: Vec::new(),
            compression_pause: 0,
        }
    }

    /// Everything below is framed.
    pub(crate) fn taken(&self) -> Lsn {
        self.taken
    }

    /// Frames and writes whole records from `taken` up to at most `prefix`, which is copied.
    pub(crate) fn write_frame(&mut self, log: &Inner, prefix: Lsn) -> Result<()> {
        let records = self.take_records(log, prefix);
        let compression = self.compress();
        self.place(log)?;
        let header = FrameHeader {
            segment: self.segment.id,
            incarnation: log.start.incarnation,
            number: self.frame_number,
            first_lsn: self.taken,
            durable: log.durable(),
            compression,
            raw_bytes: records.bytes as u32,
            stored_bytes: (self.frame.len() - FRAME_HEADER_BYTES) as u32,
            payload_crc: checksum::crc32c(&self.frame[FRAME_HEADER_BYTES..]),
        };
        header.encode(log.seed, &mut self.frame[..FRAME_HEADER_BYTES]);
        let frame_end = self.offset + self.frame.len() as u64;
        // The rest of a block that has been started is zeroes already.
        let write_end = if frame_end > block_boundary(self.offset) { block_boundary(frame_end) } else { frame_end };
        self.frame.resize((write_end - self.offset) as usize, 0);

        log.room.use_space(self.counted(log, self.offset) - self.counted(log, frame_end));
        log.room.release(records.bytes, records.count);
        self.taken = header.end();
        self.frame_number += 1;
        vfs::thread::point("wal.taken");

        if write_end > self.filled {
            let to = (write_end + FILL_AHEAD_BYTES).min(log.options.segment_bytes);
            self.segment.fill(write_end, to)?;
            Counters::add(&log.counters.filled_bytes, to - write_end);
            self.filled = to;
        }
        let written = self.segment.file.write_at(&self.frame, self.offset);
        written.map_err(|e| Fault::io("write", self.segment.path.display(), &e))?;
        Counters::add(&log.counters.frames, 1);
        Counters::add(&log.counters.compressed_frames, u64::from(compression != FrameCompression::None));
        Counters::add(&log.counters.written_bytes, self.frame.len() as u64);
        self.note_unsynced();
        self.offset = frame_boundary(frame_end);
        Ok(())
    }

    /// Step 1: `frame` becomes room for a header and the records of one group.
    fn take_records(&mut self, log: &Inner, prefix: Lsn) -> Taken {
        let available = prefix.0 - self.taken.0;
        let mut wanted = available.min(GROUP_BYTES).min(log.options.record_bytes_max());
        loop {
            self.frame.resize(FRAME_HEADER_BYTES + wanted as usize, 0);
            log.ring.read(self.taken, &mut self.frame[FRAME_HEADER_BYTES..]);
            let mut records = Records::new(&self.frame[FRAME_HEADER_BYTES..], self.taken);
            let count = records.by_ref().count() as u64;
            let bytes = wanted - records.rest() as u64;
            if count > 0 {
                self.frame.truncate(FRAME_HEADER_BYTES + bytes as usize);
                return Taken { count, bytes };
            }
            // One record longer than a group.
            wanted = records.next_bytes().expect("a record starts where the last one ended");
            assert!(wanted <= available, "the copied prefix ends between records");
        }
    }

    /// Step 2.
    fn compress(&mut self) -> FrameCompression {
        let raw = &self.frame[FRAME_HEADER_BYTES..];
        if raw.len() <= COMPRESS_ABOVE_BYTES {
            return FrameCompression::None;
        }
        if self.compression_pause > 0 {
            self.compression_pause -= 1;
            return FrameCompression::None;
        }
        self.packed.resize(FRAME_HEADER_BYTES + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
        let packed = lz4_flex::block::compress_into(raw, &mut self.packed[FRAME_HEADER_BYTES..]);
        // Less than an eighth is not worth the reader's time.
        match packed {
            Ok(bytes) if bytes <= raw.len() - raw.len() / 8 => {
                self.packed.truncate(FRAME_HEADER_BYTES + bytes);
                std::mem::swap(&mut self.frame, &mut self.packed);
                FrameCompression::Lz4
            }
            _ => {
                self.compression_pause = COMPRESSION_PAUSE;
                FrameCompression::None
            }
        }
    }

    /// Step 3: makes sure that the frame fits where `offset` is.
    fn place(&mut self, log: &Inner) -> Result<()> {
        if self.offset + self.frame.len() as u64 <= log.options.segment_bytes {
            return Ok(());
        }
        debug_assert_eq!(self.counted(log, self.offset), 0, "a frame fits what is counted on");
        let spare = log.pool.promote(self.taken).expect("grants cover a segment to go on in");
        let header = SegmentHeader {
            database: log.start.database,
            segment: spare.segment.id,
            incarnation: log.start.incarnation,
            first_lsn: self.taken,
            continues_at: self.taken,
            segment_bytes: log.options.segment_bytes,
        };
        let written = spare.segment.file.write_at(&header.encode(), 0);
        written.map_err(|e| Fault::io("write", spare.segment.path.display(), &e))?;
        self.segment = spare.segment;
        self.filled = spare.filled;
        self.offset = SEGMENT_HEADER_BYTES;
        self.note_unsynced();
        Ok(())
    }

    /// Bytes from `offset` on that grants count on in the current segment. The block that `offset` lies in does
    /// not count: a seal may close it at any time.
    fn counted(&self, log: &Inner, offset: u64) -> u64 {
        log.options.counted_end().saturating_sub(block_boundary(offset))
    }

    fn note_unsynced(&mut self) {
        if self.unsynced.last().is_none_or(|last| last.id != self.segment.id) {
            self.unsynced.push(self.segment.clone());
        }
    }

    /// Closes the current block and returns the files that a sync of everything written so far must sync.
    pub(crate) fn seal(&mut self) -> Vec<Arc<Segment>> {
        self.offset = block_boundary(self.offset);
        std::mem::take(&mut self.unsynced)
    }
}

/// Records taken out of the ring.
struct Taken {
    count: u64,
    bytes: u64,
}
