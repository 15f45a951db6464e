//! Nodes as pure data: no locks, no I/O, no threads, no clock.
//!
//! | module | owns |
//! |---|---|
//! | [`leaf`] | [`Leaf`]: the leaf in memory, its fields, counts and invariants |
//! | `read` | search, look-up, iteration over visible versions |
//! | `insert` | one operation into a leaf, with write-time collection of that key's versions |
//! | `collect` | whole-leaf collection by one GC view |
//! | `split` | where a leaf splits, split and merge |
//! | [`side`], `chain` | large values and version chains kept beside the page |
//! | `image` | a leaf as portable bytes |
//! | `basement` | parts of an image, and point reads that need one of them |
//! | [`inner`] | [`Inner`]: the immutable key array with its children |
//! | [`descriptor`] | what a parent's image says about a child; an inner node as portable bytes |
//! | [`key`] | prefix, head, separator arithmetic |
//! | `page` | the slotted page under a leaf |
//! | [`fuzzing`] | fuzz bodies: plain functions over hostile bytes |
//!
//! Bytes are drawn in `docs/formats/node.md`.

pub mod descriptor;
pub mod fuzzing;
pub mod inner;
pub mod key;
pub mod leaf;
pub mod side;

mod basement;
mod chain;
mod collect;
mod counters;
mod image;
mod insert;
mod page;
mod read;
mod search;
mod split;

pub(crate) use basement::{ImageLookup, Outline, Payload, look_up_in_image};
pub use descriptor::{ChildDescriptor, InnerImage, NodeDescriptor, NodeKind, SegmentDescriptor};
pub use inner::Inner;
pub use key::Key;
pub(crate) use key::common_prefix_bytes;
pub use leaf::{Applied, Dropped, Insert, Item, Leaf, LeafStats, Lookup, SplitPoint, Value};
pub use side::{OverflowValue, SideId, Unwritten};

use base::limits::KEY_BYTES_MAX;

/// Smallest node size, in bytes; for tests. Users get 4 KiB and more.
pub const NODE_BYTES_MIN: usize = 512;
/// Largest node size, in bytes.
pub const NODE_BYTES_MAX: usize = 64 * 1024;

/// Longest key that a node of this size takes, in bytes: the promise to the user, less in the tiny nodes of tests.
#[must_use]
pub const fn max_key_bytes(node_bytes: usize) -> usize {
    let three_quarters = node_bytes / 4 * 3;
    if three_quarters < KEY_BYTES_MAX { three_quarters } else { KEY_BYTES_MAX }
}

/// Longest value that is kept inside a leaf, in bytes; longer ones go beside it. At most a quarter node, and
/// so that a leaf always has room for one key with its two newest versions and a chain.
#[must_use]
pub const fn max_inline_bytes(node_bytes: usize, key_bytes: usize) -> usize {
    let quarter = node_bytes / 4;
    let half_rest = node_bytes.saturating_sub(key_bytes + 64) / 2;
    if quarter < half_rest { quarter } else { half_rest }
}

/// Bytes of a leaf's image from which on a basement ends. In the tiny nodes of tests so few that there are some.
#[must_use]
pub const fn basement_bytes(node_bytes: usize) -> usize {
    if node_bytes < 4096 { node_bytes / 4 } else { 16 << 10 }
}

/// Bytes of a leaf's page that a new entry needs at most, slot included.
#[must_use]
pub const fn entry_bytes_max(node_bytes: usize, key_bytes: usize, value_bytes: usize) -> usize {
    let inline = value_bytes <= max_inline_bytes(node_bytes, key_bytes);
    let value_bytes = if inline { value_bytes } else { page::SIDE_BYTES };
    page::SLOT_BYTES + page::key_bytes_of(key_bytes) + page::HEADER_BYTES + value_bytes
}
