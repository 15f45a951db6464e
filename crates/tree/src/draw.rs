//! A drawing of the tree as it is in memory, for tests and tools. Nothing is loaded for it.
//!
//! ```text
//! inner - .. end  unwritten
//!   leaf - .. f  5 entries, 5 live, clean
//!   EMPTY f .. n
//!   leaf n .. end  cold, 7 entries, dead from 160
//! ```

use std::fmt::Write;

use base::CommitTs;
use base::bytes::printable;
use store::epoch;

use crate::handle::{Child, DeadMark, InnerHandle, InnerState, LeafHandle, LeafState};
use crate::image::Image;
use crate::tree::Core;

impl Core {
    pub(crate) fn draw(&self) -> String {
        let mut out = String::new();
        draw_inner(&self.root, b"", None, 0, &mut out);
        out
    }
}

fn line(out: &mut String, depth: usize, what: &str, low: &[u8], high: Option<&[u8]>, facts: &[String]) {
    let low = if low.is_empty() { "-".to_owned() } else { printable(low) };
    let high = high.map_or("end".to_owned(), printable);
    let facts = facts.join(", ");
    let gap = if facts.is_empty() { "" } else { "  " };
    let _ = writeln!(out, "{:1$}{what} {low} .. {high}{gap}{facts}", "", depth * 2);
}

fn draw_inner(handle: &InnerHandle, low: &[u8], high: Option<&[u8]>, depth: usize, out: &mut String) {
    let guard = epoch::pin();
    let mut facts = Vec::new();
    if matches!(handle.cell.load(&guard), InnerState::Cold) {
        facts.push("cold".to_owned());
    }
    let record = handle.record.lock();
    match (&record.image, handle.is_changed()) {
        (None, _) => facts.push("no image".to_owned()),
        (Some(_), true) => facts.push("changed".to_owned()),
        (Some(_), false) => {}
    }
    if !record.retired.is_empty() {
        facts.push(format!("{} retired", record.retired.len()));
    }
    drop(record);
    if handle.log_need() > CommitTs::ZERO {
        facts.push(format!("needs the log to {}", handle.log_need()));
    }
    facts.extend(dead(&handle.mark));
    line(out, depth, "inner", low, high, &facts);
    let InnerState::Loaded(node) = handle.cell.load(&guard) else { return };
    for (i, child) in node.keys.children().iter().enumerate() {
        let (low, high) = node.keys.fence_of(i);
        match child {
            Child::Inner(inner) => draw_inner(inner, &low, high.as_deref(), depth + 1, out),
            Child::Leaf(leaf) => draw_leaf(leaf, depth + 1, out),
        }
    }
}

fn draw_leaf(handle: &LeafHandle, depth: usize, out: &mut String) {
    let slot = handle.latch.read();
    let high = slot.high.as_deref();
    let record = handle.record.lock();
    let mut facts = Vec::new();
    let what = match &slot.state {
        LeafState::Empty => "EMPTY",
        LeafState::Obsolete => "OBSOLETE",
        LeafState::Cold | LeafState::Parked(_) | LeafState::Loading(_) => {
            facts.push("cold".to_owned());
            facts.extend(record.image.as_ref().map(|image| counts(image.entries, image.live)));
            "leaf"
        }
        LeafState::Resident(resident) => {
            let stats = resident.leaf.stats();
            facts.push(counts(stats.entries.into(), stats.live.into()));
            facts.push(if record.is_dirty() { "dirty" } else { "clean" }.to_owned());
            "leaf"
        }
    };
    let whole = |image: &std::sync::Arc<Image>| image.is_whole(&handle.low, high);
    match &record.image {
        // More of it, or less: a split shares, a merge outdates.
        Some(image) if !whole(image) => facts.push("image of another range".to_owned()),
        None if what == "leaf" => facts.push("no image".to_owned()),
        _ => {}
    }
    if what == "leaf" {
        facts.extend(dead(&handle.mark));
    }
    line(out, depth, what, &handle.low, high, &facts);
}

fn counts(entries: u64, live: u64) -> String {
    format!("{entries} entries, {live} live")
}

fn dead(mark: &DeadMark) -> Option<String> {
    mark.get().map(|ts| format!("dead from {ts}"))
}
