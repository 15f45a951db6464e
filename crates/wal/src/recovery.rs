//! The records that a crash left; torn tail told from corruption (rule A13).
//!
//! # Steps
//! 1. Read all segment headers. A file without a valid header for its own number is *blank*: a spare, or one
//!    whose first sync never happened.
//! 2. From the headers: each life's frames, and its segments, are dead from the position on at which a newer life
//!    continues.
//! 3. Start in the last segment that continues at or before `from`, and follow frames: each must start where
//!    the last one ended, be of the segment's own number and life, and pass its checksums. Where there is none,
//!    go on in the next segment if that continues exactly here.
//! 4. What stops the walk is either the torn tail or corruption. It is corruption if anything *later* knows
//!    that the log was durable beyond the stop: the manifest, the header of a later life's segment, or the
//!    durable mark in a frame header found anywhere behind the stop, in this file or a later one, of the same
//!    life or a newer one. A frame header is believed even if its payload is torn: it has its own checksum.
//! 5. Of the accepted records, those up to `durable` are known to be safe. Those behind it may have survived in
//!    the system's cache only: the next life writes them once more before it builds on them (`relog.rs`).
//!
//! Why not "the first bad record ends the log": bit rot would silently drop acknowledged commits. Why not "bad
//! followed by good is corruption": a group may reach the disk while the one before it does not, and nobody was
//! told that either is durable.
//!
//! Nothing is written by recovery. The next life starts a new segment; see [`crate::WalStart::after`].

use std::path::Path;

use base::{Fault, Lsn, Result};
use vfs::Vfs;

use crate::format::{DatabaseId, Decoded, FrameHeader, Incarnation, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentId};
use crate::reader::{SegmentFile, newer_format};
use crate::record::{RecordRef, Records};

/// A life starts at the next multiple of this above everything an earlier life left.
const LIFE_STEP: u64 = 1 << 20;

/// What the manifest knows about the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ManifestMark {
    /// The log was durable to here when the manifest was written.
    pub durable: Lsn,
    /// The newest life then.
    pub incarnation: Incarnation,
}

/// Where the log ends, and where the next life starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalEnd {
    /// Position just past the last record.
    pub end: Lsn,
    /// The log is known to be durable to here; at most `end`.
    pub durable: Lsn,
    /// Number of the next life.
    pub next_incarnation: Incarnation,
    /// Position of its first record: above anything that can be found in the files.
    pub next_first_lsn: Lsn,
}

/// Reads the log in `dir` and shows each record that ends above `from` to `visitor`, in order.
///
/// `from` must be a position to which the log was not trimmed. Records are shown while the log is being read:
/// after an error, what was shown is void.
///
/// # Errors
/// [`Fault::Corrupt`] naming file and offset, if something acknowledged as durable is missing or damaged, or if
/// a segment belongs to another database; [`Fault::Format`] for a newer format; [`Fault::Io`]; whatever the
/// visitor returns.
pub fn recover(
    vfs: &dyn Vfs,
    dir: &Path,
    database: DatabaseId,
    from: Lsn,
    mark: ManifestMark,
    visitor: &mut dyn FnMut(RecordRef<'_>) -> Result<()>,
) -> Result<WalEnd> {
    let segments = open_segments(vfs, dir, database)?;
    let mut walk = Walk::new(dir.display().to_string(), segments, database, from, mark);
    walk.run(&mut |frame| frame.show_records(from, visitor))?;
    Ok(walk.end(mark))
}

/// Shows the frames that end behind `durable`, as [`recover`] has accepted them up to `end`.
pub(crate) fn read_tail(
    vfs: &dyn Vfs,
    dir: &Path,
    database: DatabaseId,
    (durable, end): (Lsn, Lsn),
    visitor: &mut dyn FnMut(Frame<'_>) -> Result<()>,
) -> Result<()> {
    let segments = open_segments(vfs, dir, database)?;
    let mut walk = Walk::new(dir.display().to_string(), segments, database, durable, ManifestMark::default());
    walk.run(&mut |frame| if frame.header.end() > durable { visitor(frame) } else { Ok(()) })?;
    if walk.end != end {
        // What was read from the system's cache a moment ago is not on the disk: opening again tells the truth.
        return Err(Fault::corrupt(&walk.dir, 0, "end of the log, on the second reading", end, walk.end));
    }
    Ok(())
}

/// Shows the frames of an open log that end behind `from` and start before `to`, which is durable. What is being written
/// behind `to` is not looked at, so a frame half written there is no corruption.
pub(crate) fn read_open(
    vfs: &dyn Vfs,
    dir: &Path,
    database: DatabaseId,
    (from, to): (Lsn, Lsn),
    visitor: &mut dyn FnMut(Frame<'_>) -> Result<()>,
) -> Result<()> {
    let segments = open_segments(vfs, dir, database)?;
    let mut walk = Walk::new(dir.display().to_string(), segments, database, from, ManifestMark::default());
    walk.follow_all(&mut |frame| {
        let wanted = frame.header.end() > from && frame.header.first_lsn < to;
        if wanted { visitor(frame) } else { Ok(()) }
    })?;
    // A life that has no record ends where it begins.
    if walk.at < to {
        return Err(Fault::corrupt(&walk.dir, 0, "end of the log", format!("at least {to}"), walk.at));
    }
    Ok(())
}

/// A whole frame.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) header: FrameHeader,
    /// Where the frame before it ended: lower than where this one starts if it is the first of a life.
    pub(crate) continues_at: Lsn,
    /// Its records.
    pub(crate) raw: &'a [u8],
    file: &'a str,
    offset: u64,
}

impl Frame<'_> {
    pub(crate) fn show_records(self, from: Lsn, visitor: &mut dyn FnMut(RecordRef<'_>) -> Result<()>) -> Result<()> {
        let mut records = Records::new(self.raw, self.header.first_lsn);
        for record in records.by_ref() {
            if record.end > from {
                visitor(record)?;
            }
        }
        if records.rest() > 0 {
            let found = format!("{} bytes that are none", records.rest());
            return Err(Fault::corrupt(self.file, self.offset, "records of a log frame", "whole records", found));
        }
        Ok(())
    }
}

struct Found {
    file: SegmentFile,
    /// `None` if the file is blank.
    header: Option<SegmentHeader>,
}

/// Step 1.
fn open_segments(vfs: &dyn Vfs, dir: &Path, database: DatabaseId) -> Result<Vec<Found>> {
    let names = vfs.list(dir).map_err(|e| Fault::io("list", dir.display(), &e))?;
    let mut segments = Vec::new();
    for name in names {
        let Some(id) = SegmentId::from_file_name(&name) else { continue };
        let Some(mut file) = SegmentFile::open(vfs, &dir.join(&name), id)? else { continue };
        let header = check_header(&mut file, database)?;
        segments.push(Found { file, header });
    }
    segments.sort_by_key(|segment| segment.file.id);
    Ok(segments)
}

/// The header that makes the file a segment of this log, if it has one.
fn check_header(file: &mut SegmentFile, database: DatabaseId) -> Result<Option<SegmentHeader>> {
    if file.len() < SEGMENT_HEADER_BYTES {
        let expected = format!("at least {SEGMENT_HEADER_BYTES}");
        return Err(Fault::corrupt(&file.name, 0, "length of the log segment", expected, file.len()));
    }
    let header = match file.header()? {
        Decoded::Valid(header) => header,
        Decoded::Newer(version) => return Err(newer_format(&file.name, version)),
        Decoded::Nothing => return Ok(None),
    };
    if header.database != database {
        return Err(Fault::corrupt(&file.name, 0, "database of the log segment", database, header.database));
    }
    if header.segment != file.id {
        return Ok(None);
    }
    if header.segment_bytes != file.len() {
        return Err(Fault::corrupt(&file.name, 0, "length of the log segment", header.segment_bytes, file.len()));
    }
    Ok(Some(header))
}

/// A position known to have been durable, and who says so.
struct Known {
    lsn: Lsn,
    by: String,
}

impl Known {
    fn raise(&mut self, lsn: Lsn, by: impl FnOnce() -> String) {
        if lsn > self.lsn {
            *self = Self { lsn, by: by() };
        }
    }
}

/// Where the walk stopped: nothing but zeroes lies between the last frame and here.
#[derive(Clone, Copy)]
struct Stop {
    segment: usize,
    offset: u64,
}

struct Walk {
    seed: u32,
    from: Lsn,
    dir: String,
    segments: Vec<Found>,
    /// Where the next frame or segment has to continue.
    at: Lsn,
    /// Where the last frame ended: below `at` if a life has started and written nothing.
    end: Lsn,
    /// The life being followed.
    incarnation: Incarnation,
    stop: Option<Stop>,
    /// The first file in which the search behind the stop found a frame.
    found_in: Option<usize>,
    known_durable: Known,
    /// The highest position seen in any header.
    highest: Lsn,
}

impl Walk {
    fn new(dir: String, segments: Vec<Found>, database: DatabaseId, from: Lsn, mark: ManifestMark) -> Self {
        Self {
            seed: database.checksum_seed(),
            from,
            dir,
            segments,
            at: from,
            end: from,
            incarnation: Incarnation(0),
            stop: None,
            found_in: None,
            known_durable: Known { lsn: mark.durable.max(from), by: "the manifest".into() },
            highest: from,
        }
    }

    fn run(&mut self, visitor: &mut dyn FnMut(Frame<'_>) -> Result<()>) -> Result<()> {
        self.follow_all(visitor)?;
        self.judge()
    }

    fn follow_all(&mut self, visitor: &mut dyn FnMut(Frame<'_>) -> Result<()>) -> Result<()> {
        let mut is_first = true;
        for index in self.first_segment()..self.segments.len() {
            let Some(header) = self.segments[index].header else { continue };
            let limit = self.dead_from(index);
            if header.continues_at >= limit {
                continue;
            }
            if std::mem::take(&mut is_first) {
                self.end = header.continues_at;
            } else if header.continues_at < self.end {
                let what = "position at which the log segment continues";
                return Err(Fault::corrupt(&self.segments[index].file.name, 0, what, self.end, header.continues_at));
            } else if header.continues_at > self.end {
                break;
            }
            self.follow(index, header, limit, visitor)?;
        }
        Ok(())
    }

    /// Step 2: what this segment's life wrote is dead from here on.
    fn dead_from(&self, index: usize) -> Lsn {
        let own = self.segments[index].header.map_or(Incarnation(0), |header| header.incarnation);
        let later = self.segments[index + 1..].iter().filter_map(|segment| segment.header);
        later.filter(|header| header.incarnation > own).map(|header| header.continues_at).min().unwrap_or(Lsn::MAX)
    }

    /// Step 3: the last segment that continues at or before `from` and is not dead; the number of segments if
    /// there is none.
    fn first_segment(&self) -> usize {
        let starts_before = |index: &usize| {
            let header = self.segments[*index].header;
            header.is_some_and(|h| h.continues_at <= self.from && h.continues_at < self.dead_from(*index))
        };
        (0..self.segments.len()).rev().find(starts_before).unwrap_or(self.segments.len())
    }

    /// Follows the frames of one segment.
    fn follow(
        &mut self,
        index: usize,
        header: SegmentHeader,
        limit: Lsn,
        visitor: &mut dyn FnMut(Frame<'_>) -> Result<()>,
    ) -> Result<()> {
        let file = &mut self.segments[index].file;
        let mut raw = Vec::new();
        let mut lsn = header.first_lsn;
        let mut end = SEGMENT_HEADER_BYTES;
        while lsn < limit {
            let wanted = (header.incarnation, lsn);
            let Some((offset, frame)) = next_frame(file, self.seed, end, wanted, &mut raw)? else { break };
            let name = &file.name;
            self.known_durable.raise(frame.durable, || format!("{name} at offset {offset}"));
            visitor(Frame { header: frame, continues_at: self.end, raw: &raw, file: name, offset })?;
            lsn = frame.end();
            self.end = lsn;
            end = offset + frame.frame_bytes();
        }
        (self.at, self.incarnation) = (lsn, header.incarnation);
        self.highest = self.highest.max(lsn);
        self.stop = Some(Stop { segment: index, offset: stop_offset(file, end)? });
        Ok(())
    }

    /// Step 4.
    fn judge(&mut self) -> Result<()> {
        let first = self.stop.map_or(0, |stop| stop.segment);
        for index in first..self.segments.len() {
            let behind_stop = match self.stop {
                Some(stop) if stop.segment == index => stop.offset,
                _ => SEGMENT_HEADER_BYTES,
            };
            let Found { file, header } = &mut self.segments[index];
            if let Some(header) = header.filter(|header| header.incarnation > self.incarnation) {
                self.known_durable.raise(header.continues_at, || format!("the header of {}", file.name));
                self.highest = self.highest.max(header.first_lsn);
            }
            let mut offset = behind_stop;
            while let Some(frame) = file.find_frame_header(self.seed, offset)? {
                self.highest = self.highest.max(frame.header.end());
                self.found_in.get_or_insert(index);
                if frame.header.incarnation >= self.incarnation {
                    let place = || format!("{} at offset {}", file.name, frame.offset);
                    self.known_durable.raise(frame.header.durable, place);
                }
                offset = frame.offset + crate::format::FRAME_ALIGN;
            }
        }
        if self.known_durable.lsn <= self.at {
            return Ok(());
        }
        // Without a segment to start in: the file that has frames and no header, else the directory.
        let (file, offset) = match (self.stop, self.found_in) {
            (Some(stop), _) => (&self.segments[stop.segment].file.name, stop.offset),
            (None, Some(index)) => (&self.segments[index].file.name, 0),
            (None, None) => (&self.dir, 0),
        };
        let expected = format!(
            "the frame at position {}, since the log was durable to {} by {}",
            self.at, self.known_durable.lsn, self.known_durable.by
        );
        Err(Fault::corrupt(file, offset, "log frame", expected, self.describe_hole()))
    }

    /// What is where the next frame should be.
    fn describe_hole(&self) -> String {
        let next = self.stop.map_or(0, |stop| stop.segment + 1);
        let next = self.segments[next.min(self.segments.len())..].iter().find(|segment| segment.header.is_some());
        match next {
            Some(Found { file, header: Some(header) }) => {
                format!("none; the next segment, {}, continues at {}", file.name, header.continues_at)
            }
            _ => "none, and no segment that continues".into(),
        }
    }

    fn end(&self, mark: ManifestMark) -> WalEnd {
        let seen = self.segments.iter().filter_map(|segment| segment.header).map(|header| header.incarnation.0).max();
        let newest = seen.unwrap_or(0).max(mark.incarnation.0);
        let highest = self.highest.max(self.at).max(mark.durable).0;
        WalEnd {
            end: self.end,
            durable: self.known_durable.lsn.min(self.end),
            next_incarnation: Incarnation(newest + 1),
            next_first_lsn: Lsn((highest / LIFE_STEP + 1) * LIFE_STEP),
        }
    }
}

/// The frame behind one that ended at `offset`: at the next frame boundary, or at the next block if a sync has
/// sealed this one.
fn next_frame(
    file: &mut SegmentFile,
    seed: u32,
    offset: u64,
    wanted: (Incarnation, Lsn),
    raw: &mut Vec<u8>,
) -> Result<Option<(u64, FrameHeader)>> {
    let near = crate::format::frame_boundary(offset);
    let far = crate::format::block_boundary(offset);
    if let Some(frame) = file.frame(seed, near, wanted, raw)? {
        return Ok(Some((near, frame)));
    }
    if far == near {
        return Ok(None);
    }
    Ok(file.frame(seed, far, wanted, raw)?.map(|frame| (far, frame)))
}

/// Where the next frame is missing, of the two places where it may be: the nearer one, unless there is nothing.
fn stop_offset(file: &mut SegmentFile, offset: u64) -> Result<u64> {
    let near = crate::format::frame_boundary(offset);
    let far = crate::format::block_boundary(offset);
    let is_empty = file.bytes(near, far - near)?.is_none_or(|bytes| bytes.iter().all(|&byte| byte == 0));
    Ok(if is_empty { far } else { near })
}

/// Recovers from one segment file, for the fuzzers.
pub(crate) fn fuzz_walk(mut file: SegmentFile, database: DatabaseId) {
    let Ok(header) = check_header(&mut file, database) else { return };
    let from = header.map_or(Lsn::ZERO, |header| header.continues_at);
    let segments = vec![Found { file, header }];
    let mut walk = Walk::new("a directory".into(), segments, database, from, ManifestMark::default());
    let mut at = Lsn::ZERO;
    let walked = walk.run(&mut |frame| {
        frame.show_records(from, &mut |record| {
            assert!(record.start >= at && record.end > record.start, "records come in order");
            at = record.end;
            Ok(())
        })
    });
    if walked.is_ok() {
        let end = walk.end(ManifestMark::default());
        assert!(end.durable <= end.end && end.end < end.next_first_lsn);
    }
}
