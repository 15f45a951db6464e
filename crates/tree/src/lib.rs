//! The B-tree, and the ground plan of the Bε-tree (ENGINE.md section 4).
//!
//! | module | owns |
//! |---|---|
//! | [`node`] | nodes as pure data: the leaf, the inner node, their images |
//! | [`tree`] | what all modules share, and [`Tree`], the index behind the seam |
//! | `handle` | child handles: everything changeable about a node |
//! | `image` | a node as it is on disk, as an owned thing |
//! | `descent` | from the root to a latched leaf; the way up from a leaf |
//! | `structure` | replacing inner nodes: splits, folds, merges, the root |
//! | `tickets`, `reserve`, `survey`, `apply` | a commit: pins, step 1b, its leaves, step 3 |
//! | `abreast` | several leaves of a commit are waited for at once |
//! | `read`, `uncached` | point reads; those of leaves that stay on disk |
//! | `scan`, `cursor` | leaves as a sorted source; range reads, runs merged in |
//! | `load`, `page` | disk → memory; eviction and write-back |
//! | `runs` | attached runs, their drain, what they hold back |
//! | `dead`, `purge` | dead marks; unlinking without reading |
//! | `merge`, `collect`, `clean` | under-filled leaves; leaves that are mostly dead; blocks in extents that are mostly free |
//! | `maintenance` | bounded background steps: drain, purge, merge, collect, clean |
//! | `messages`, `segment` | messages for leaves that are not in memory; those on disk |
//! | `settle` | messages into a leaf that was loaded |
//! | `flush`, `drain` | from memory into segments; from segments into leaves |
//! | `filling` | which node is drained next |
//! | `checkpoint`, `compose`, `state` | the fuzzy checkpoint; an inner node's image; what the manifest keeps |
//! | `verify`, `reach` | checks; what the last checkpoint's images reach |
//! | `destroy` | taking a tree apart |
//! | `estimate` | how many keys lie in a range, without reading them |
//! | `stats`, `draw` | counts; a drawing |

#![forbid(unsafe_code)]

mod abreast;
mod ahead;
mod apply;
mod buffered;
mod checkpoint;
mod clean;
mod collect;
mod compose;
mod cursor;
mod dead;
mod descent;
mod destroy;
mod drain;
mod draw;
mod estimate;
mod evacuate;
mod filling;
mod flush;
mod handle;
mod image;
mod load;
mod maintenance;
mod merge;
mod messages;
pub mod node;
mod page;
mod park;
mod purge;
mod reach;
mod read;
mod reserve;
mod runs;
mod scan;
mod segment;
mod settle;
mod state;
mod stats;
mod structure;
mod survey;
mod tickets;
pub mod tree;
mod uncached;
mod verify;

#[doc(hidden)]
pub use state::{root_of, with_root};
pub use tree::Tree;
