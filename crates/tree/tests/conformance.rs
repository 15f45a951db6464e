//! The tree under the conformance suite of the seam.

#![allow(clippy::unwrap_used, reason = "a test panics on what it does not expect")]

use index::conformance::Bench;
use trefoil_tree::Tree;

/// The smallest nodes that take the longest keys.
fn bench() -> Bench {
    let mut bench = Bench::new(|env, state| Ok(Tree::open(env, state)?));
    bench.options.node_bytes = 4096;
    bench
}

index::conformance_suite!(bench());

/// The same histories on nodes so small that a few dozen keys make many levels.
#[test]
fn random_histories_on_tiny_nodes() {
    let mut bench = bench();
    bench.options.node_bytes = 512;
    if let Err(failure) = index::conformance::history::run_many(&bench, index::conformance::history::seeds(300)) {
        panic!("{failure}");
    }
}

/// The same suite with message buffers.
mod buffered {
    use super::*;

    fn bench() -> Bench {
        let mut bench = super::bench();
        bench.options.buffered = true;
        bench
    }

    index::conformance_suite!(bench());

    #[test]
    fn random_histories_on_tiny_nodes() {
        let mut bench = bench();
        bench.options.node_bytes = 512;
        if let Err(failure) = index::conformance::history::run_many(&bench, index::conformance::history::seeds(300)) {
            panic!("{failure}");
        }
    }
}
