//! The adviser: what each index writes, reads and takes on disk for what its user sees, and of trees what the same would be with the other
//! structure. It measures and computes; it changes nothing. The model and how far it was tested: `docs/ADVISE.md`.

use std::ops::Bound;

use base::Fault;
use index::{IndexShape, IndexStats};
use store::Class;

use crate::database::Database;
use crate::engine::Engine;
use crate::entry::IndexEntry;
use crate::error::Result;
use crate::options::{IndexOptions, Structure};
use crate::stats::Stats;

mod model;

/// What an index costs. Each number is missing where it was not measured, or where the model does not reach.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # db.create_index("fruit", trefoil::IndexOptions::default())?;
/// let advice = &db.advise()?[0];
/// assert_eq!(advice.measured, trefoil::Amplification::default()); // nothing was written, read or stored
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Amplification {
    /// Bytes written to the data file for one byte of keys and values that came in. Without the log and run files, which all
    /// structures write alike, and without blocks of large values that were written before.
    pub write: Option<f64>,
    /// Blocks read from disk for one key that is looked up.
    pub read: Option<f64>,
    /// Bytes on disk for one byte of live keys and values. Of a Bε-tree, keys that are in its messages only do not count as live:
    /// it does not know which of them are new. Of a log-structured merge tree, those in memory do.
    pub space: Option<f64>,
}

/// What the adviser says of one index: [`Database::advise`].
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
/// # db.create_index("fruit", trefoil::IndexOptions::default())?;
/// for advice in db.advise()? {
///     println!("{}: {}", advice.index, advice.verdict());
///     advice.notes.iter().for_each(|note| println!("  {note}"));
/// }
/// # Ok::<(), trefoil::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// Its name, `TABLE.INDEX` for one of a table.
    pub index: String,
    /// How it is stored.
    pub structure: Structure,
    /// The tree that is compared with it. The model is of trees: of a log-structured merge tree this is what it is, and nothing is predicted.
    pub other: Structure,
    /// Changes in the time that was measured.
    pub changes: u64,
    /// Keys looked up in that time.
    pub point_reads: u64,
    /// What it costs as it is.
    pub measured: Amplification,
    /// What it would cost with the other structure, about: see [`Advice::ERROR`].
    pub predicted: Amplification,
    /// Why numbers are missing, for people.
    pub notes: Vec<&'static str>,
}

impl Advice {
    /// The share by which a prediction may miss what is measured after a conversion. What it was held against, and where it was
    /// not: `docs/ADVISE.md`.
    ///
    /// ```
    /// assert_eq!(trefoil::Advice::ERROR, 0.25);
    /// ```
    pub const ERROR: f64 = 0.25;

    /// What the other structure would do, for people. "nothing to gain" if all that is known differs by no more than the
    /// prediction may be wrong.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// assert_eq!(db.advise()?[0].verdict(), "not enough measured");
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    #[must_use]
    pub fn verdict(&self) -> String {
        let (now, then) = (&self.measured, &self.predicted);
        let of = [("writes", now.write, then.write), ("reads", now.read, then.read), ("space", now.space, then.space)];
        let known: Vec<_> = of.iter().filter_map(|(what, now, then)| Some((what, (*now)?, (*then)?))).collect();
        let differs: Vec<_> = known.iter().filter_map(|(what, now, then)| differs(what, *now, *then)).collect();
        if self.other == self.structure {
            return "compared with none".to_owned();
        }
        match (differs.is_empty(), known.len()) {
            (false, _) => format!("{}: {}", name(self.other), differs.join(", ")),
            (true, 3) => "nothing to gain".to_owned(),
            (true, _) => "not enough measured".to_owned(),
        }
    }
}

fn differs(what: &str, now: f64, then: f64) -> Option<String> {
    let (less, more) = (now / then, then / now);
    // What is hardly anything either way is no reason.
    if !less.is_finite() || !more.is_finite() || now.max(then) < 0.05 {
        return None;
    }
    match (less > 1.0 + Advice::ERROR, more > 1.0 + Advice::ERROR) {
        (true, _) => Some(format!("{what} / {less:.1}")),
        (_, true) => Some(format!("{what} x {more:.1}")),
        _ => None,
    }
}

/// As users write it.
pub(crate) fn name(structure: Structure) -> &'static str {
    match structure {
        Structure::Auto | Structure::Btree => "btree",
        Structure::Betree => "betree",
        Structure::Lsm => "lsm",
    }
}

impl Database {
    /// What each index costs since the database was opened, and what a tree would with the other structure. Counts start at zero at
    /// each open: just behind it only space is known. Reads the inner nodes of all indexes and a few leaves; changes nothing.
    ///
    /// # Errors
    /// `Io`, what reading gives. Damage of an index is one of its notes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # for (k, v) in [("apple", "12"), ("pear", "7"), ("plum", "30")] {
    /// #     tx.put(&fruit, k.as_bytes(), v.as_bytes())?;
    /// # }
    /// # tx.commit()?;
    /// use trefoil::Structure;
    ///
    /// let advice = &db.advise()?[0];
    /// assert_eq!((&*advice.index, advice.changes, advice.other), ("fruit", 3, Structure::Btree));
    /// assert_eq!(advice.predicted.write, None); // three fruits are not enough to say
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn advise(&self) -> Result<Vec<Advice>> {
        self.advise_since(&Stats::default())
    }

    /// The same for the time since `before`, which [`Database::stats`] gave: an hour of the day, or what comes after a load.
    ///
    /// # Errors
    /// As [`Database::advise`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = trefoil::Database::open(dir.path(), trefoil::Options::default())?;
    /// # let fruit = db.create_index("fruit", trefoil::IndexOptions::default())?;
    /// # let mut tx = db.begin()?;
    /// # tx.put(&fruit, b"apple", b"12")?;
    /// # tx.commit()?;
    /// let before = db.stats();
    /// assert_eq!(db.advise_since(&before)?[0].changes, 0);
    /// # Ok::<(), trefoil::Error>(())
    /// ```
    pub fn advise_since(&self, before: &Stats) -> Result<Vec<Advice>> {
        let engine = self.engine();
        engine.check_open()?;
        let entries = engine.all_indexes();
        // The catalog's structure is nobody's choice.
        let asked = |entry: &&std::sync::Arc<IndexEntry>| !entry.def.quarantined && entry.id().0 != 0;
        entries.iter().filter(asked).map(|entry| engine.advice(entry, before)).collect()
    }
}

/// Entries are sampled at so many places of an index, and at its beginning, so many at each.
const PLACES: usize = 16;
const ENTRIES_PER_PLACE: usize = 50;
/// Where nothing lives, so many steps of a cursor are taken for one place.
const STEPS_PER_PLACE: usize = 64;

impl Engine {
    fn advice(&self, entry: &IndexEntry, before: &Stats) -> Result<Advice> {
        let name = self.index_name(entry);
        let stats = entry.index.stats();
        let earlier =
            before.indexes.iter().find(|(other, _)| *other == name).map(|(_, stats)| *stats).unwrap_or_default();
        let mut notes = Vec::new();
        let (shape, live_bytes) = match self.stored(entry, &stats) {
            Err(Fault::Corrupt(_)) => {
                notes.push("damaged: what it takes on disk cannot be told");
                (IndexShape::default(), 0.0)
            }
            stored => stored?,
        };
        let options = entry.def.options;
        let buffered = options.structure == Structure::Betree;
        let (structure, other) = match options.structure {
            Structure::Lsm => (Structure::Lsm, Structure::Lsm),
            Structure::Betree => (Structure::Betree, Structure::Btree),
            Structure::Auto | Structure::Btree => (Structure::Btree, Structure::Betree),
        };
        let to = IndexOptions { structure: other, ..options }.resolve()?;
        let measurement = model::Measurement {
            buffered,
            changes: stats.changes.saturating_sub(earlier.changes),
            traffic: stats.traffic.since(&earlier.traffic),
            shape,
            live_bytes,
            leaves: stats.leaves as f64,
            resident: stats.resident_leaves as f64,
            node_bytes: stats.node_bytes as f64,
            other_node_bytes: to.node_bytes as f64,
            frames: self.budget.used(Class::Frames) as f64,
            buffers: self.budget.used(Class::Buffers) as f64,
            budget: self.budget.limit() as f64,
        };
        let measured = measurement.measured();
        let predicted = if structure == Structure::Lsm {
            notes.push("the model is of trees: no prediction");
            measurement.note_what_is_missing(&mut notes);
            Amplification::default()
        } else if notes.is_empty() {
            measurement.predicted(&mut notes)
        } else {
            Amplification::default()
        };
        let (changes, point_reads) = (measurement.changes, measurement.traffic.point_reads);
        Ok(Advice { index: name, structure, other, changes, point_reads, measured, predicted, notes })
    }

    /// What an index has on disk, and bytes of what lives of it.
    fn stored(&self, entry: &IndexEntry, stats: &IndexStats) -> base::Result<(IndexShape, f64)> {
        let shape = entry.index.shape()?;
        let is_lsm = entry.def.options.structure == Structure::Lsm;
        let sample = sample(&*entry.index, is_lsm)?;
        // Attached runs are in the sample and its counts, and not in those of the whole.
        let live_keys = match (is_lsm, stats.runs) {
            (true, 0) => stats.live_keys as f64 * sample.live_share(),
            (true, _) => stats.live_keys as f64,
            (false, _) => shape.live_keys as f64,
        };
        Ok((shape, live_keys * sample.entry_bytes()))
    }
}

/// Live entries at a few places.
fn sample(index: &dyn index::Index, has_runs: bool) -> base::Result<Sample> {
    let mut starts = index.split_keys(PLACES)?;
    if starts.is_empty() {
        starts.push(Vec::new());
    }
    // Attached runs have keys of their own.
    let places = starts.len().min(PLACES + 1);
    let starts: Vec<&[u8]> = (0..places).map(|i| &*starts[i * starts.len() / places]).collect();
    let (mut sample, mut batch) = (Sample::default(), index::EntryBatch::new());
    for (i, start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).map_or(Bound::Unbounded, |end| Bound::Excluded(*end));
        let range = (Bound::Included(*start), end);
        let mut cursor = index.cursor(index::ReadAt::Newest, range, index::Direction::Forward);
        let mut steps = 0;
        while cursor.fill(&mut batch, ENTRIES_PER_PLACE)? && batch.is_empty() && steps < STEPS_PER_PLACE {
            steps += 1;
        }
        let Some(last) = batch.len().checked_sub(1) else { continue };
        let bytes: usize = batch.iter().map(|(key, value, ..)| key.len() + value.map_or(0, <[u8]>::len)).sum();
        let looked_at = (Bound::Included(batch.key(0)), Bound::Included(batch.key(last)));
        // Of trees their leaves' counts say it.
        let counted = if has_runs { index.estimate(looked_at)? } else { 0 };
        sample.add(Place { keys: index.estimate(range)?, looked_at: batch.len(), bytes, counted });
    }
    Ok(sample)
}

/// From one place of an index to the next.
struct Place {
    /// Keys there, by the index's own counts.
    keys: u64,
    /// Live entries that were looked at, and their bytes.
    looked_at: usize,
    bytes: usize,
    /// As many are they by the index's own counts; 0 if it was not asked.
    counted: u64,
}

/// Live entries of an index at a few places. Each stands for what lies from it to the next one.
#[derive(Debug, Default)]
struct Sample {
    /// By the index's own counts.
    keys: f64,
    /// Of these live.
    live: f64,
    /// In bytes.
    bytes: f64,
}

impl Sample {
    fn add(&mut self, place: Place) {
        let looked_at = place.looked_at as f64;
        let keys = (place.keys as f64).max(looked_at);
        let live = keys * looked_at / looked_at.max(place.counted as f64);
        self.keys += keys;
        self.live += live;
        self.bytes += live * place.bytes as f64 / looked_at;
    }

    /// Bytes of one that lives.
    fn entry_bytes(&self) -> f64 {
        if self.live > 0.0 { self.bytes / self.live } else { 0.0 }
    }

    /// How many keys live, of those that the counts of a log-structured merge tree take for live: one that lies in several runs counts in each.
    fn live_share(&self) -> f64 {
        if self.keys > 0.0 { self.live / self.keys } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Sample};

    /// Guard: places are weighed by the keys that they stand for, as these are counted.
    #[test]
    fn a_place_stands_for_what_lies_to_the_next_one() {
        // Half of the keys in four runs, half in one: places lie by blocks of all.
        let mut sample = Sample::default();
        (0..8).for_each(|_| sample.add(Place { keys: 1_000, looked_at: 50, bytes: 5_000, counted: 200 }));
        (0..2).for_each(|_| sample.add(Place { keys: 1_000, looked_at: 50, bytes: 5_000, counted: 50 }));
        assert!((sample.live_share() - 0.4).abs() < 1e-9, "{sample:?}");
        // Half of them large: places lie by bytes.
        let mut sample = Sample::default();
        (0..20).for_each(|_| sample.add(Place { keys: 50, looked_at: 50, bytes: 50_000, counted: 0 }));
        sample.add(Place { keys: 1_000, looked_at: 50, bytes: 2_500, counted: 0 });
        assert!((sample.entry_bytes() - 525.0).abs() < 1e-9 && sample.live_share() >= 1.0, "{sample:?}");
    }
}
