//! `EpochCell` under every interleaving of its memory operations, as far as a bound on preemptions allows. Built and
//! run apart, since the atomics of `crossbeam-epoch` are replaced by the model checker's:
//!
//! `RUSTFLAGS="--cfg crossbeam_loom" cargo test --profile model -p trefoil-store --test epoch_loom --target-dir target/loom`
#![allow(unexpected_cfgs, reason = "set by hand")]
#![cfg(crossbeam_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use trefoil_store::EpochCell;
use trefoil_store::epoch::pin;

/// Says when it is dropped; a reader that still sees it then came too late.
struct Watched {
    number: u32,
    dropped: Arc<AtomicBool>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        assert!(!self.dropped.swap(true, Ordering::SeqCst), "dropped once");
    }
}

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}

fn watched(number: u32) -> Watched {
    Watched { number, dropped: Arc::new(AtomicBool::new(false)) }
}

#[test]
fn a_reader_never_holds_a_dropped_value() {
    model(|| {
        let cell = Arc::new(EpochCell::new(watched(0)));
        let reader = {
            let cell = cell.clone();
            thread::spawn(move || {
                let guard = pin();
                let value = cell.load(&guard);
                assert!(!value.dropped.load(Ordering::SeqCst));
                assert!(value.number <= 1);
                assert!(!value.dropped.load(Ordering::SeqCst));
            })
        };
        cell.replace(watched(1));
        // Push the collector on as far as it goes.
        for _ in 0..3 {
            pin().flush();
        }
        reader.join().expect("the reader does not panic");
        assert_eq!(cell.load(&pin()).number, 1);
    });
}
