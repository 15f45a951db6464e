//! Versions as blocks: one stream of entries, cut at block boundaries.

use std::sync::Arc;

use base::bytes::{Reader, put_bytes, put_varint};
use base::{CommitTs, Result};
use store::{Block, BlockKind, NewBlock, UpdateGroup};
use trefoil_index::IndexEnv;

use super::Bug;
use super::versions::Versions;

const BLOCK_BYTES: usize = 64 << 10;

/// Blocks that hold all versions. Each entry: key, timestamp, 0 for a delete or 1 and the value.
pub fn encode(env: &IndexEnv, versions: &Versions, bug: Bug) -> Vec<NewBlock> {
    let forgotten = u64::from(bug == Bug::ImageForgetsTheLast && versions.len() > 300);
    let mut stream = Vec::new();
    for (key, ts, value) in versions.iter().take((versions.len() - forgotten) as usize) {
        put_bytes(&mut stream, key);
        put_varint(&mut stream, ts.0);
        stream.push(u8::from(value.is_some()));
        if let Some(value) = value {
            put_bytes(&mut stream, value);
        }
    }
    // An empty stream is one empty block: an image of nothing is an image.
    let count = stream.len().div_ceil(BLOCK_BYTES).max(1);
    let mut pieces = stream.chunks(BLOCK_BYTES);
    let block = |payload: &[u8]| NewBlock {
        kind: BlockKind::Leaf,
        index: env.id,
        compression: env.options.compression,
        group: UpdateGroup::Warm,
        payload: payload.to_vec(),
        cuts: Vec::new(),
    };
    (0..count).map(|_| block(pieces.next().unwrap_or_default())).collect()
}

/// Reads an image back.
pub fn read(env: &IndexEnv, image: &[Arc<Block>]) -> Result<Versions> {
    let (mut stream, mut payload) = (Vec::new(), Vec::new());
    for block in image {
        env.space.read(block.at(), BlockKind::Leaf, env.id, &mut payload)?;
        stream.extend_from_slice(&payload);
    }
    let mut versions = Versions::default();
    let mut r = Reader::new(&stream);
    while !r.is_empty() {
        let (key, ts, kind) = (r.bytes(), r.varint(), r.u8());
        let value = if kind == Some(1) { r.bytes() } else { None };
        let key = key.expect("the block's checksum was right");
        versions.put(key, CommitTs(ts.expect("the block's checksum was right")), value.map(<[u8]>::to_vec));
    }
    Ok(versions)
}
