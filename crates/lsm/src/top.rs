//! The upper level of a run's index: its partitions, in order. In memory as long as the run is, once it was first needed.

use std::sync::Arc;

use base::CommitTs;
use base::bytes::{Reader, put_varint};
use store::Block;

use crate::partition::{NamedPartition, Partition};

const TOP_FORMAT: u8 = 1;

/// The partitions of a run.
#[derive(Debug, Clone)]
pub(crate) struct Top {
    pub partitions: Box<[Arc<Partition>]>,
    /// The blocks that name them.
    pub blocks: Box<[Arc<Block>]>,
}

impl Top {
    /// The last partition that begins at or before (`key`, `ts`); none if the run begins behind it.
    pub fn partition_of(&self, key: &[u8], ts: CommitTs) -> Option<usize> {
        let is_before = |partition: &Arc<Partition>| {
            let info = &partition.info;
            *info.key < *key || (*info.key == *key && info.ts >= ts)
        };
        self.partitions.partition_point(is_before).checked_sub(1)
    }

    /// A manifest names all of it.
    pub fn publish(&self) {
        self.partitions.iter().for_each(|partition| partition.publish());
        for block in &self.blocks {
            block.publish();
        }
    }

    /// One that did is gone.
    pub fn unpublish(&self) {
        self.partitions.iter().for_each(|partition| partition.unpublish());
        for block in &self.blocks {
            block.unpublish();
        }
    }
}

impl Top {
    /// Bytes of blocks that no other run has.
    pub fn bytes_alone(&self) -> u64 {
        let parts = self.partitions.iter().filter(|partition| Arc::strong_count(partition) == 1);
        let blocks = self.blocks.iter().filter(|block| Arc::strong_count(block) == 1);
        parts.map(|partition| partition.bytes_alone()).sum::<u64>()
            + blocks.map(|block| block.stored_bytes()).sum::<u64>()
    }
}

/// Builds the payload of one top block.
#[derive(Debug, Default)]
pub(crate) struct TopBuilder {
    bytes: Vec<u8>,
    count: u64,
}

impl TopBuilder {
    pub fn payload_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn push(&mut self, partition: &Partition) {
        partition.encode(&mut self.bytes);
        self.count += 1;
    }

    /// The payload, if it has anything; the builder is empty afterwards.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let mut out = Vec::with_capacity(self.bytes.len() + 16);
        out.push(TOP_FORMAT);
        put_varint(&mut out, std::mem::take(&mut self.count));
        out.append(&mut self.bytes);
        Some(out)
    }
}

/// What a top block names.
///
/// # Errors
/// A sentence that says what is wrong with the bytes.
pub(crate) fn decode_top(bytes: &[u8]) -> Result<Vec<NamedPartition>, String> {
    let mut r = Reader::new(bytes);
    let mut decode = || {
        if r.u8()? != TOP_FORMAT {
            return None;
        }
        let mut named = Vec::new();
        for _ in 0..r.length()? {
            named.push(NamedPartition::decode(&mut r)?);
        }
        r.is_empty().then_some(named)
    };
    let named = decode().ok_or("run: a block of its top does not hold")?;
    if is_ascending(&named) { Ok(named) } else { Err("run: a block of its top does not ascend".to_owned()) }
}

/// True if these come one behind the other.
pub(crate) fn is_ascending(named: &[NamedPartition]) -> bool {
    named.windows(2).all(|pair| {
        let (a, b) = (&pair[0].info, &pair[1].info);
        a.key < b.key || (a.key == b.key && a.ts > b.ts)
    })
}

#[cfg(test)]
mod tests {
    use base::CommitTs;
    use store::BlockRef;

    use super::*;
    use crate::partition::PartitionInfo;

    /// The payload of a top block of some partitions; encoded by hand, since there is no space to own blocks in.
    fn built() -> Vec<u8> {
        let mut out = vec![TOP_FORMAT, 3];
        for n in 0..3u8 {
            let at = BlockRef { offset: u64::from(n) << 20, stored_bytes: 9, crc: 1 };
            out.extend_from_slice(&[2, b'k', n, 40 + n, u8::from(n == 2)]);
            at.encode(&mut out);
            out.extend_from_slice(&[7, 30, 20, 5, 2, 1, 99, 3, 4]);
        }
        out
    }

    #[test]
    fn what_is_named_comes_back() {
        let named = decode_top(&built()).expect("sound");
        let info = PartitionInfo {
            key: [b'k', 2].into(),
            ts: CommitTs(42),
            continues: true,
            index: BlockRef { offset: 2 << 20, stored_bytes: 9, crc: 1 },
            slots: 7,
            entries: 30,
            live: 20,
            deleted: 5,
        };
        assert_eq!((named.len(), &named[2].info, named[2].bytes.sum()), (3, &info, 103));
    }

    #[test]
    fn damaged_bytes_are_found_or_name_others() {
        let bytes = built();
        for i in 0..bytes.len() {
            assert!(decode_top(&bytes[..i]).is_err(), "cut at {i}");
            let mut bad = bytes.clone();
            bad[i] ^= 1 << (i % 8);
            if let Ok(named) = decode_top(&bad) {
                assert!(is_ascending(&named));
            }
        }
    }
}
