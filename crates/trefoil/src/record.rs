//! What the log carries: one record per commit, all its operations grouped by index (decision D5); and of a commit in two
//! phases two, the second of which is small.
//!
//! A commit record's payload: varint number of indexes, then per index: id u32, form u8, and
//! form 0 (inline): varint number of operations, each: varint key length, key, varint (value length + 1, or 0
//! for a delete), value; form 1 (run): the run's description as `store` encodes it, already durable when the
//! record is written (rule A14).
//!
//! A prepare record: xid bytes, when it was written (milliseconds since 1970, u64), then as a commit record. The record that
//! commits or rolls back what was prepared: the end of its prepare record u64, xid bytes, varint number of indexes, each
//! id u32, ascending: those that it changes. They let recovery tell a prepare record that is not needed any more from one
//! that is missing.

use base::bytes::{Reader, put_bytes, put_varint};
use base::{Fault, IndexId, Lsn, Result};
use index::{Batch, BatchBuilder, Op, Span};
use store::RunMeta;

/// Record kinds. The numbers are stored.
pub const KIND_COMMIT: u8 = 1;
/// The write set of a prepared transaction.
pub const KIND_PREPARE: u8 = 2;
/// A prepared transaction is committed, at the end of this record.
pub const KIND_COMMIT_PREPARED: u8 = 3;
/// A prepared transaction is rolled back.
pub const KIND_ROLLBACK_PREPARED: u8 = 4;

/// A commit that deletes ranges: a number of indexes (varint), for each id u32, number of ranges (varint), the ranges; then as [`KIND_COMMIT`].
/// Everything in a range is deleted that is older than the commit.
pub const KIND_COMMIT_RANGED: u8 = 5;

const FORM_INLINE: u8 = 0;
const FORM_RUN: u8 = 1;
const VARINT_BYTES_MAX: usize = 10;

/// What a commit does to one index.
#[derive(Debug, Clone)]
pub enum Change {
    /// Operations in the record.
    Inline(Batch),
    /// Operations in a run file.
    Run(RunMeta),
}

/// What a prepare record says beside the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepare {
    /// The name its owner gave it.
    pub xid: Vec<u8>,
    /// When it was prepared, in milliseconds since 1970.
    pub since_ms: u64,
}

/// What a record says that ends a prepared transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The end of its prepare record.
    pub prepare: Lsn,
    /// Its name.
    pub xid: Vec<u8>,
    /// The indexes it changes, ascending.
    pub indexes: Vec<IndexId>,
}

/// Starts a record that names `indexes` indexes.
pub fn begin(out: &mut Vec<u8>, indexes: usize) {
    put_varint(out, indexes as u64);
}

/// What stands in a prepare record before [`begin`].
pub fn put_prepare(out: &mut Vec<u8>, xid: &[u8], since_ms: u64) {
    put_bytes(out, xid);
    out.extend_from_slice(&since_ms.to_le_bytes());
}

/// The record that ends a prepared transaction; what its parts are, [`Decision`] says.
pub fn encode_decision(prepare: Lsn, xid: &[u8], indexes: impl ExactSizeIterator<Item = IndexId>) -> Vec<u8> {
    let mut out = Vec::with_capacity(decision_bytes(xid, indexes.len()));
    out.extend_from_slice(&prepare.0.to_le_bytes());
    put_bytes(&mut out, xid);
    put_varint(&mut out, indexes.len() as u64);
    indexes.for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
    out
}

/// What such a record takes, at most.
pub fn decision_bytes(xid: &[u8], indexes: usize) -> usize {
    size_of::<Lsn>() + VARINT_BYTES_MAX + xid.len() + VARINT_BYTES_MAX + indexes * size_of::<IndexId>()
}

/// What [`put_inline`] appends, about.
pub fn inline_bytes(batch: &Batch) -> usize {
    batch.bytes() + 8 * batch.len() + 32
}

/// Appends operations.
pub fn put_inline(out: &mut Vec<u8>, id: IndexId, batch: &Batch) {
    out.extend_from_slice(&id.0.to_le_bytes());
    out.push(FORM_INLINE);
    put_varint(out, batch.len() as u64);
    for (key, op) in batch.iter() {
        put_bytes(out, key);
        match op {
            Op::Delete => put_varint(out, 0),
            Op::Put(value) => {
                put_varint(out, value.len() as u64 + 1);
                out.extend_from_slice(value);
            }
        }
    }
}

/// Appends a run.
pub fn put_run(out: &mut Vec<u8>, id: IndexId, meta: &RunMeta) {
    out.extend_from_slice(&id.0.to_le_bytes());
    out.push(FORM_RUN);
    let mut bytes = Vec::new();
    meta.encode(&mut bytes);
    put_bytes(out, &bytes);
}

/// Reads a commit record found at `at`; `wanted` chooses the indexes to decode.
pub fn decode(payload: &[u8], at: Lsn, mut wanted: impl FnMut(IndexId) -> bool) -> Result<Vec<(IndexId, Change)>> {
    decode_changes(&mut Reader::new(payload), &mut wanted).ok_or_else(|| malformed(at, "commit record"))
}

/// What stands in a record of a commit that deletes ranges before [`begin`].
pub fn put_ranges(out: &mut Vec<u8>, ranges: &[(IndexId, &[Span])]) {
    put_varint(out, ranges.len() as u64);
    for (id, spans) in ranges {
        out.extend_from_slice(&id.0.to_le_bytes());
        put_varint(out, spans.len() as u64);
        spans.iter().for_each(|span| span.encode(out));
    }
}

/// Ranges, and the changes behind them.
pub type Ranged = (Vec<(IndexId, Vec<Span>)>, Vec<(IndexId, Change)>);

/// Reads the record, found at `at`, of a commit that deletes ranges; `wanted` chooses the indexes to decode.
pub fn decode_ranged(payload: &[u8], at: Lsn, mut wanted: impl FnMut(IndexId) -> bool) -> Result<Ranged> {
    let mut r = Reader::new(payload);
    let mut read = || {
        let mut ranges = Vec::new();
        for _ in 0..r.varint()? {
            let (id, mut spans) = (IndexId(r.u32()?), Vec::new());
            for _ in 0..r.varint()? {
                spans.push(Span::decode(&mut r)?);
            }
            if wanted(id) {
                ranges.push((id, spans));
            }
        }
        Some((ranges, decode_changes(&mut r, &mut wanted)?))
    };
    read().ok_or_else(|| malformed(at, "commit record with ranges"))
}

/// Reads a prepare record found at `at`.
pub fn decode_prepare(payload: &[u8], at: Lsn) -> Result<(Prepare, Vec<(IndexId, Change)>)> {
    let mut r = Reader::new(payload);
    let mut read = || {
        let prepare = Prepare { xid: r.bytes()?.to_vec(), since_ms: r.u64()? };
        Some((prepare, decode_changes(&mut r, &mut |_| true)?))
    };
    read().ok_or_else(|| malformed(at, "prepare record"))
}

/// Reads the record that ends a prepared transaction, found at `at`.
pub fn decode_decision(payload: &[u8], at: Lsn) -> Result<Decision> {
    let mut r = Reader::new(payload);
    let mut read = || {
        let (prepare, xid, mut indexes) = (Lsn(r.u64()?), r.bytes()?.to_vec(), Vec::new());
        for _ in 0..r.varint()? {
            indexes.push(IndexId(r.u32()?));
        }
        (r.is_empty() && indexes.is_sorted()).then_some(Decision { prepare, xid, indexes })
    };
    read().ok_or_else(|| malformed(at, "decision about a prepared transaction"))
}

fn malformed(at: Lsn, what: &'static str) -> Fault {
    Fault::corrupt("log", at.0, what, "a well-formed record under a good checksum", "a malformed one")
}

fn decode_changes(r: &mut Reader<'_>, wanted: &mut dyn FnMut(IndexId) -> bool) -> Option<Vec<(IndexId, Change)>> {
    let mut changes = Vec::new();
    for _ in 0..r.varint()? {
        let id = IndexId(r.u32()?);
        let keep = wanted(id);
        match r.u8()? {
            FORM_INLINE => {
                let batch = decode_batch(r, keep)?;
                if keep {
                    changes.push((id, Change::Inline(batch)));
                }
            }
            FORM_RUN => {
                let bytes = r.bytes()?;
                let meta = RunMeta::decode(&mut Reader::new(bytes))?;
                if keep {
                    changes.push((id, Change::Run(meta)));
                }
            }
            _ => return None,
        }
    }
    r.is_empty().then_some(changes)
}

fn decode_batch(r: &mut Reader<'_>, keep: bool) -> Option<Batch> {
    let mut builder = BatchBuilder::new();
    let mut last: Option<&[u8]> = None;
    for _ in 0..r.varint()? {
        let key = r.bytes()?;
        if last.is_some_and(|last| last >= key) {
            return None;
        }
        last = Some(key);
        let op = match r.length()? {
            0 => Op::Delete,
            n => Op::Put(r.take(n - 1)?),
        };
        if keep {
            builder.push(key, op);
        }
    }
    Some(builder.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_and_filters() {
        let mut b = BatchBuilder::new();
        b.push(b"a", Op::Put(b""));
        b.push(b"b", Op::Delete);
        b.push(b"c", Op::Put(b"value"));
        let batch = b.finish();
        let mut out = Vec::new();
        begin(&mut out, 2);
        put_inline(&mut out, IndexId(3), &batch);
        put_inline(&mut out, IndexId(4), &batch);
        let all = decode(&out, Lsn(0), |_| true).expect("decodes");
        assert_eq!(all.len(), 2);
        let Change::Inline(back) = &all[0].1 else { panic!("inline") };
        assert!(back.iter().eq(batch.iter()));
        assert_eq!(decode(&out, Lsn(0), |id| id == IndexId(4)).expect("decodes").len(), 1);
        for cut in 0..out.len() {
            assert!(decode(&out[..cut], Lsn(0), |_| true).is_err(), "cut {cut}");
        }
    }

    #[test]
    fn ranges_come_back_and_filter() {
        let mut b = BatchBuilder::new();
        b.push(b"b", Op::Put(b"1"));
        let spans = [Span { low: Vec::new(), high: Some(b"c".to_vec()) }, Span { low: b"x".to_vec(), high: None }];
        let mut out = Vec::new();
        put_ranges(&mut out, &[(IndexId(3), &spans), (IndexId(4), &spans[1..])]);
        begin(&mut out, 1);
        put_inline(&mut out, IndexId(3), &b.finish());
        let (ranges, changes) = decode_ranged(&out, Lsn(0), |_| true).expect("decodes");
        assert_eq!(ranges, [(IndexId(3), spans.to_vec()), (IndexId(4), spans[1..].to_vec())]);
        assert_eq!(changes.len(), 1);
        let (ranges, changes) = decode_ranged(&out, Lsn(0), |id| id == IndexId(4)).expect("decodes");
        assert_eq!((ranges.len(), changes.len()), (1, 0));
        for cut in 0..out.len() {
            assert!(decode_ranged(&out[..cut], Lsn(0), |_| true).is_err(), "cut {cut}");
        }
    }

    #[test]
    fn what_is_prepared_and_decided_comes_back() {
        let mut b = BatchBuilder::new();
        b.push(b"a", Op::Put(b"1"));
        let prepare = Prepare { xid: b"branch 7".to_vec(), since_ms: 1_767_225_600_000 };
        let mut out = Vec::new();
        put_prepare(&mut out, &prepare.xid, prepare.since_ms);
        begin(&mut out, 1);
        put_inline(&mut out, IndexId(3), &b.finish());
        let (back, changes) = decode_prepare(&out, Lsn(0)).expect("decodes");
        assert_eq!((back, changes.len()), (prepare, 1));
        let decision = Decision { prepare: Lsn(64), xid: b"branch 7".to_vec(), indexes: vec![IndexId(3), IndexId(9)] };
        let bytes = encode_decision(decision.prepare, &decision.xid, decision.indexes.iter().copied());
        assert!(bytes.len() <= decision_bytes(&decision.xid, decision.indexes.len()));
        assert_eq!(decode_decision(&bytes, Lsn(0)).expect("decodes"), decision);
        for cut in 0..out.len().max(bytes.len()) {
            assert!(decode_prepare(&out[..cut.min(out.len() - 1)], Lsn(0)).is_err(), "cut {cut}");
            assert!(decode_decision(&bytes[..cut.min(bytes.len() - 1)], Lsn(0)).is_err(), "cut {cut}");
        }
    }
}
