//! Bodies of fuzz targets: the decoders on hostile bytes.

use base::CommitTs;
use store::FramePool;

use crate::block::DataBlock;
use crate::index_block::IndexBlock;
use crate::state::State;
use crate::top::decode_top;

/// The payload of a data block.
pub fn data_block(bytes: &[u8]) {
    let Ok(block) = DataBlock::parse(bytes.to_vec(), &FramePool::new(1 << 20, 0)) else { return };
    let mut key = Vec::new();
    for i in 0..block.len() {
        block.key_into(i, &mut key);
        assert!(block.is_of(i, &key));
        assert_eq!(block.seek(&key, block.version(i).1.ts), i);
    }
    block.seek(bytes, CommitTs(0));
}

/// The payload of an index block, and of a top block.
pub fn index_block(bytes: &[u8]) {
    let _ = decode_top(bytes);
    let Ok(index) = IndexBlock::parse(bytes, &FramePool::new(1 << 20, 0)) else { return };
    for (i, named) in index.iter().enumerate() {
        assert_eq!(index.first_behind(named.key, named.ts), i + 1);
        assert!(named.blocks().count() > 0 && named.entries > 0);
        let _ = named.may_have(store::KeyHash::of(bytes));
    }
}

/// The state in the manifest, with the checksum that these bytes would have.
pub fn state(bytes: &[u8]) {
    let _ = State::decode(bytes);
    let mut sealed = bytes.to_vec();
    sealed.extend_from_slice(&base::checksum::crc32c(bytes).to_le_bytes());
    if let Ok(state) = State::decode(&sealed) {
        assert!(State::decode(&state.encode()).is_ok());
    }
}
