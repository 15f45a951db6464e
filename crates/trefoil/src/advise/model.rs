//! The model: pure arithmetic. Symbols and sources are in `docs/ADVISE.md`.

use index::{IndexShape, IndexTraffic};

use super::Amplification;

/// Written again by cleaning, for what a B-tree's leaves write at random: the least that `tree::clean` moves.
const CLEANED: f64 = 1.25;
/// A leaf is drained of messages of so much of what it takes: buffers may hold half (`tree::drain`), and more comes while a
/// drain goes on; measured were 0.48 to 0.69.
const DRAINED_SHARE: f64 = 0.6;
/// On average they hold: a little more than half of that; measured were 0.29 to 0.40.
const BUFFERED_SHARE: f64 = 0.33;
/// Messages in memory take so much of the budget before they are flushed: what the share comes to where leaves are changed at random
/// (decision 0019).
const MEMORY_SHARE: f64 = 0.5;
/// What a message takes in memory besides key and value: lengths and timestamp; and slabs, for what they have not filled.
const MESSAGE_BYTES: f64 = 11.0;
const SLAB_SLACK: f64 = 1.1;
/// Of the look-ups of a key in a filter, so many say yes for nothing (`store::filter`).
const FILTER_WRONG: f64 = 0.02;
/// Of the look-ups that find a leaf on disk, so many load it (`tree::uncached`).
const LOADED_SHARE: f64 = 1.0 / 8.0;
/// Messages in one block (`tree::flush`).
const BLOCK_BYTES: f64 = 16384.0;
/// Fewer changes at random than this leave no buffers behind.
const RANDOM_LEAST: f64 = 0.02;
/// With more of its leaves in memory, what an index writes depends on the times of checkpoints, which the model does not know.
const RESIDENT_MOST: f64 = 0.5;
/// Fewer changes, or reads, say nothing.
const COUNT_LEAST: u64 = 1000;

/// What is known of an index. Bytes.
#[derive(Debug, Clone)]
pub(super) struct Measurement {
    pub buffered: bool,
    pub changes: u64,
    pub traffic: IndexTraffic,
    pub shape: IndexShape,
    pub live_bytes: f64,
    pub leaves: f64,
    pub resident: f64,
    pub node_bytes: f64,
    pub other_node_bytes: f64,
    /// Of the whole database: pages, messages, the cap.
    pub frames: f64,
    pub buffers: f64,
    pub budget: f64,
}

impl Measurement {
    pub fn measured(&self) -> Amplification {
        let t = &self.traffic;
        let on_disk = (self.shape.leaf_bytes + self.shape.segment_bytes) as f64;
        Amplification {
            write: self.enough_changes().then(|| t.written_bytes() as f64 / t.ingested_bytes.max(1) as f64),
            read: self.enough_reads().then(|| t.point_blocks as f64 / t.point_reads as f64),
            space: (self.live_bytes > 0.0 && on_disk > 0.0).then(|| on_disk / self.live_bytes),
        }
    }

    pub fn predicted(&self, notes: &mut Vec<&'static str>) -> Amplification {
        if !self.enough_changes() {
            notes.push("fewer than 1000 changes measured: no prediction of writes, and of what buffers would take or make read");
        }
        if !self.enough_reads() {
            notes.push("fewer than 1000 point reads measured: no prediction of reads");
        }
        let (now, then) = (self.resident_share(), self.other_resident_share());
        if now.max(then) > RESIDENT_MOST {
            notes.push("more than half of it is in memory: no prediction");
            return Amplification::default();
        }
        if self.shape.leaf_bytes == 0 || self.live_bytes <= 0.0 {
            notes.push("nothing of it is on disk yet: no prediction");
            return Amplification::default();
        }
        let changes = self.enough_changes();
        Amplification {
            write: changes.then(|| self.write()),
            read: ((changes || self.buffered) && self.enough_reads()).then(|| self.read()),
            space: (changes || self.buffered).then(|| self.space()),
        }
    }

    /// Why what is measured has no number, of an index of which nothing is predicted.
    pub fn note_what_is_missing(&self, notes: &mut Vec<&'static str>) {
        if !self.enough_changes() {
            notes.push("fewer than 1000 changes measured: what is written for them is not told");
        }
        if !self.enough_reads() {
            notes.push("fewer than 1000 point reads measured: what is read for them is not told");
        }
        if notes.iter().any(|note| note.starts_with("damaged")) {
            return;
        }
        if self.shape.leaf_bytes == 0 {
            notes.push("nothing of it is on disk yet: no space");
        } else if self.live_bytes <= 0.0 {
            notes.push("no key was found that lives: no space");
        }
    }

    fn enough_changes(&self) -> bool {
        self.changes >= COUNT_LEAST
    }

    fn enough_reads(&self) -> bool {
        self.traffic.point_reads >= COUNT_LEAST
    }

    /// c
    fn resident_share(&self) -> f64 {
        (self.resident / self.leaves.max(1.0)).min(1.0)
    }

    /// c of the other structure: what pages take now goes with the messages, or has to make room for them. A buffer that is
    /// filled and emptied takes half of its limit on average.
    fn other_resident_share(&self) -> f64 {
        let messages = self.budget * MEMORY_SHARE / 2.0;
        let frames = if self.buffered { self.frames + self.buffers } else { (self.frames - messages).max(0.0) };
        self.resident_share() * frames / self.frames.max(1.0)
    }

    /// Leaves that a change finds on disk, for one change, if none were in memory; at most those that it visits.
    fn random_visits(&self) -> f64 {
        let per_change = |n: u64| n as f64 / self.changes.max(1) as f64;
        (per_change(self.traffic.cold_visits) / (1.0 - self.resident_share())).min(per_change(self.traffic.visits))
    }

    /// f: the share of changes that hit leaves at random.
    fn random_share(&self) -> f64 {
        (self.random_visits() * self.changes as f64 / self.traffic.visits.max(1) as f64).min(1.0)
    }

    /// a: what leaves take on disk for a live byte. That is also what a stream in key order writes, and what messages take.
    fn leaf_space(&self) -> f64 {
        self.shape.leaf_bytes as f64 / self.live_bytes
    }

    /// e: bytes of one change.
    fn change_bytes(&self) -> f64 {
        self.traffic.ingested_bytes as f64 / self.changes.max(1) as f64
    }

    fn write(&self) -> f64 {
        let (e, f, a) = (self.change_bytes().max(1.0), self.random_share(), self.leaf_space());
        let beside = self.traffic.beside_bytes as f64 / self.traffic.ingested_bytes.max(1) as f64;
        let at_random = if self.buffered {
            let leaf_bytes = self.shape.leaf_bytes as f64 / self.leaves.max(1.0);
            let block = leaf_bytes * self.other_node_bytes / self.node_bytes;
            // Half of what is in memory is dirty: there a change costs nothing more.
            let written = self.random_visits() * (1.0 - self.other_resident_share() / 2.0);
            written * CLEANED * block / e
        } else {
            f * a * (1.0 + 1.0 / DRAINED_SHARE)
        };
        at_random + (1.0 - f) * a + beside
    }

    fn read(&self) -> f64 {
        let cold = self.traffic.cold_reads as f64 / self.traffic.point_reads.max(1) as f64;
        let at_random = (cold / (1.0 - self.resident_share())).min(1.0) * (1.0 - self.other_resident_share());
        let beside = if self.buffered { 0.0 } else { self.blocks_beside(at_random) };
        at_random * (1.0 + beside)
    }

    /// X: blocks of messages that are read beside a leaf on disk, of which so many are read for one look-up. A block is read by
    /// the first that comes to it; then its filter turns away who looks for what it does not have. Who finds his key in a block
    /// does not read the leaf. Who loads the leaf reads all.
    fn blocks_beside(&self, at_random: f64) -> f64 {
        let layers = self.layers();
        let reads = (self.traffic.point_reads as f64 * at_random).max(1.0);
        let messages = self.random_share() * self.changes as f64;
        let blocks = (messages * (self.change_bytes() + MESSAGE_BYTES) / BLOCK_BYTES).max(1.0);
        let first = blocks / reads * (1.0 - (-layers * reads / blocks).exp());
        (first + FILTER_WRONG * layers) * (1.0 - LOADED_SHARE) + layers * LOADED_SHARE
    }

    /// L: blocks of messages over a leaf: what the buffer above holds, in flushes of what memory takes.
    fn layers(&self) -> f64 {
        if self.random_share() < RANDOM_LEAST {
            return 0.0;
        }
        let e = self.change_bytes();
        // Larger leaves are fewer, and larger nodes above them hold more of them.
        let bottoms = (self.shape.bottoms as f64 * (self.node_bytes / self.other_node_bytes).powi(2)).max(1.0);
        let flushes = self.budget * MEMORY_SHARE / ((e + MESSAGE_BYTES) * SLAB_SLACK) * e * self.leaf_space();
        // Nodes take turns: the one whose turn it is has gathered twice the average.
        let of_a_node = flushes * 2.0 / (bottoms + 1.0);
        BUFFERED_SHARE * self.shape.leaf_bytes as f64 / bottoms / of_a_node
    }

    fn space(&self) -> f64 {
        let more = !self.buffered && self.random_share() >= RANDOM_LEAST;
        self.leaf_space() * if more { 1.0 + BUFFERED_SHARE } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index that was changed and read enough, and of which something is on disk.
    fn enough() -> Measurement {
        Measurement {
            buffered: false,
            changes: COUNT_LEAST,
            traffic: IndexTraffic { point_reads: COUNT_LEAST, ..IndexTraffic::default() },
            shape: IndexShape { leaf_bytes: 4096, ..IndexShape::default() },
            live_bytes: 4000.0,
            leaves: 1.0,
            resident: 0.0,
            node_bytes: 4096.0,
            other_node_bytes: 4096.0,
            frames: 0.0,
            buffers: 0.0,
            budget: 1.0,
        }
    }

    /// Guards: each note, and what it asks: it is there if its number is missing, and only then.
    #[test]
    fn each_number_that_is_missing_has_its_reason() {
        let check = |of: Measurement, before: &[&'static str], missing: usize, reason: &str| {
            let mut notes = before.to_vec();
            of.note_what_is_missing(&mut notes);
            let Amplification { write, read, space } = of.measured();
            for (n, number) in [write, read, space].into_iter().enumerate() {
                assert_eq!(number.is_none(), n == missing, "{n}: {of:?}");
            }
            let told = notes[before.len()..].join("; ");
            assert!(if reason.is_empty() { told.is_empty() } else { told.starts_with(reason) }, "{told}, not {reason}");
            assert!(notes.len() <= before.len() + 1, "{notes:?}");
        };
        let none = usize::MAX;
        check(enough(), &[], none, "");
        check(Measurement { changes: COUNT_LEAST - 1, ..enough() }, &[], 0, "fewer than 1000 changes");
        let few = IndexTraffic { point_reads: COUNT_LEAST - 1, ..IndexTraffic::default() };
        check(Measurement { traffic: few, ..enough() }, &[], 1, "fewer than 1000 point reads");
        let nothing = || Measurement { shape: IndexShape::default(), live_bytes: 0.0, ..enough() };
        check(nothing(), &[], 2, "nothing of it is on disk yet");
        check(Measurement { live_bytes: 0.0, ..enough() }, &[], 2, "no key was found that lives");
        check(nothing(), &["damaged: what it takes on disk cannot be told"], 2, "");
    }
}
