//! Bodies of fuzz targets: the decoders on hostile bytes.

use base::CommitTs;

use crate::block::DataBlock;
use crate::run::decode_index;
use crate::state::State;

/// The payload of a data block.
pub fn data_block(bytes: &[u8]) {
    let Ok(block) = DataBlock::parse(bytes.to_vec()) else { return };
    let mut key = Vec::new();
    for i in 0..block.len() {
        block.key_into(i, &mut key);
        assert!(block.is_of(i, &key));
        assert_eq!(block.seek(&key, block.version(i).1.ts), i);
    }
    block.seek(bytes, CommitTs(0));
}

/// The payload of an index block.
pub fn index_block(bytes: &[u8]) {
    let _ = decode_index(bytes);
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
