//! What the log carries: one record per commit, all its operations grouped by index (decision D5).
//!
//! A commit record's payload: varint number of indexes, then per index: id u32, form u8, and
//! form 0 (inline): varint number of operations, each: varint key length, key, varint (value length + 1, or 0
//! for a delete), value; form 1 (run): the run's description as `store` encodes it, already durable when the
//! record is written (rule A14).

use base::bytes::{Reader, put_bytes, put_varint};
use base::{Fault, IndexId, Lsn, Result};
use index::{Batch, BatchBuilder, Op};
use store::RunMeta;

/// Record kinds. The numbers are stored.
pub const KIND_COMMIT: u8 = 1;

const FORM_INLINE: u8 = 0;
const FORM_RUN: u8 = 1;

/// What a commit does to one index.
#[derive(Debug, Clone)]
pub enum Change {
    /// Operations in the record.
    Inline(Batch),
    /// Operations in a run file.
    Run(RunMeta),
}

/// Starts a record that names `indexes` indexes.
pub fn begin(out: &mut Vec<u8>, indexes: usize) {
    out.clear();
    put_varint(out, indexes as u64);
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
    decode_inner(payload, &mut wanted).ok_or_else(|| {
        Fault::corrupt("log", at.0, "commit record", "a well-formed record under a good checksum", "a malformed one")
    })
}

fn decode_inner(payload: &[u8], wanted: &mut dyn FnMut(IndexId) -> bool) -> Option<Vec<(IndexId, Change)>> {
    let mut r = Reader::new(payload);
    let mut changes = Vec::new();
    for _ in 0..r.varint()? {
        let id = IndexId(r.u32()?);
        let keep = wanted(id);
        match r.u8()? {
            FORM_INLINE => {
                let batch = decode_batch(&mut r, keep)?;
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
}
