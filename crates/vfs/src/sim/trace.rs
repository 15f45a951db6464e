//! What happened: a hash over everything, and the last points for people.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::panic::Location;

use super::chooser::ThreadId;
use crate::random::mix;

/// Where a thread is: the name of a scheduling point and the line that called it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) line: &'static Location<'static>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}:{}", self.name, self.line.file(), self.line.line())
    }
}

#[derive(Debug)]
struct Event {
    thread: ThreadId,
    now_nanos: u64,
    place: Place,
    remark: String,
    hash: u64,
}

/// The hash is over names, lines and the thread that ran, never over addresses, which differ from run to run.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    tail: VecDeque<Event>,
    tail_max: usize,
}

impl Trace {
    pub(crate) fn new(seed: u64, tail_max: usize) -> Self {
        Self { hash: mix(seed), tail: VecDeque::with_capacity(tail_max.min(1024)), tail_max }
    }

    /// A thread came to a scheduling point at this simulated time.
    pub(crate) fn point(&mut self, thread: ThreadId, now_nanos: u64, place: Place) {
        self.value(hash_of(place.name.as_bytes()) ^ (u64::from(place.line.line()) << 32) ^ thread as u64);
        if self.tail_max == 0 {
            return;
        }
        if self.tail.len() == self.tail_max {
            self.tail.pop_front();
        }
        self.tail.push_back(Event { thread, now_nanos, place, remark: String::new(), hash: self.hash });
    }

    /// Says more about the last point, for people.
    pub(crate) fn remark(&mut self, text: impl FnOnce() -> String) {
        if let Some(event) = self.tail.back_mut() {
            event.remark = text();
        }
    }

    /// Something else that two runs of one seed must agree on.
    pub(crate) fn value(&mut self, value: u64) {
        self.hash = mix(self.hash.rotate_left(5) ^ value);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The last points, one a line.
    pub(crate) fn tail(&self, name_of: impl Fn(ThreadId) -> String) -> String {
        self.tail.iter().map(|event| event.line(&name_of)).collect()
    }

    /// Where two runs of one seed part, if both were recorded from the start: what they had in common last, and
    /// what came next in each.
    pub(crate) fn parting(&self, other: &Self, name_of: impl Fn(ThreadId) -> String) -> String {
        const SHOWN: usize = 20;
        let common = self.tail.iter().zip(&other.tail).take_while(|(a, b)| a.hash == b.hash).count();
        let mut out = String::from("both:\n");
        out.extend(self.tail.range(common.saturating_sub(SHOWN)..common).map(|event| event.line(&name_of)));
        for (run, trace) in [("first", self), ("second", other)] {
            let _ = writeln!(out, "then, in the {run} run:");
            out.extend(trace.tail.iter().skip(common).take(5).map(|event| event.line(&name_of)));
        }
        out
    }
}

impl Event {
    fn line(&self, name_of: impl Fn(ThreadId) -> String) -> String {
        let Self { thread, now_nanos, place, remark, .. } = self;
        let micros = *now_nanos as f64 / 1e3;
        if remark.is_empty() {
            format!("  {micros:>12.3} us  {:<20} {place}\n", name_of(*thread))
        } else {
            format!("  {micros:>12.3} us  {:<20} {} {remark}\n", name_of(*thread), place.name)
        }
    }
}

/// FNV-1a: names are short and the value is mixed again.
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3))
}
