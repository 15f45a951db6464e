//! What all threads of a step measured, added up.

use lab_measure::clock::seconds;
use lab_measure::record::{ClientRecord, CostsAt, LevelsAt, MinKeyRecord};
use lab_measure::stall::{Gaps, Lateness, Span, common_spans};
use lab_measure::thread_time::ThreadTimes;
use lab_measure::{Difference, KindTotals, Recorder, Series, Snapshot};

use crate::feed::Pace;
use crate::worker::{Asked, Written};

/// What all threads of a step measured together.
#[derive(Debug, Default)]
pub struct Totals {
    /// Length.
    pub secs: f64,
    /// By kind, in the order of [`lab_measure::Kind::ALL`].
    pub kinds: [KindTotals; 3],
    /// Second by second of each client, in the same order.
    pub of_clients: Vec<[Series; 3]>,
    /// Where the threads' time went, in the same order.
    pub threads: [ThreadTimes; 3],
    /// Stalls.
    pub stalls: Vec<Span>,
    /// The longest stall or lateness.
    pub stall_longest_ns: u64,
    /// Per client.
    pub clients: Vec<ClientRecord>,
    /// Look-ups of the smallest key.
    pub min_key: MinKeyRecord,
    /// The kernel's counters.
    pub kernel: Difference,
    /// Of a load that ends when so many rows are in.
    pub last_quarter: Option<LastQuarter>,
    /// Once a second, of an engine that has levels.
    pub levels: Vec<LevelsAt>,
    /// The same, of an engine that tells its indexes' costs.
    pub costs: Vec<CostsAt>,
    /// Largest resident memory seen.
    pub rss_bytes: u64,
    /// Deletes that found fewer rows than asked.
    pub short_deletes: u64,
    /// Seconds of the pace that were late.
    pub late_seconds: u64,
    /// The step was ended by the time limit.
    pub cut_short: bool,
}

/// A load from the first second at whose start three quarters of its rows were in.
#[derive(Debug, Default)]
pub struct LastQuarter {
    /// When it began, from the start of the step.
    pub from_secs: f64,
    /// Rows inserted in it.
    pub rows: u64,
    /// The counters of the engine's process.
    pub kernel: Difference,
}

impl LastQuarter {
    /// `samples` are counters with the rows until then, in order; `rows` are all of the load, which may have been cut short.
    pub(crate) fn of(samples: &[(Snapshot, u64)], rows: u64, start_ns: u64, end: &Snapshot) -> Option<LastQuarter> {
        let (begin, before) = samples.iter().find(|(_, done)| *done >= rows - rows / 4)?;
        let from_secs = seconds(begin.at_ns - start_ns);
        Some(LastQuarter { from_secs, rows: rows - before, kernel: end.since(begin) })
    }
}

/// What one client's threads brought.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) inserted: Option<Written>,
    pub(crate) deleted: Option<Written>,
    pub(crate) pace: Option<(Pace, u64)>,
    pub(crate) asked: Option<Asked>,
}

/// How a step's measurements are read.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// Statements have intended starts.
    pub(crate) paced: bool,
    /// Deletes go beside the inserts.
    pub(crate) deletes: bool,
    /// The step ends with its last query.
    pub(crate) alone: bool,
    /// Where measuring began.
    pub(crate) from_ns: u64,
}

/// Adds up what all clients brought.
pub(crate) fn add_up(totals: &mut Totals, collected: Vec<Collected>, terms: Terms) {
    let mut adder = Adder { totals, terms, end_ns: terms.from_ns, switches: 0, gaps: Vec::new(), lateness: Vec::new() };
    collected.into_iter().for_each(|brought| adder.client(brought));
    adder.finish();
}

/// Adds up what the threads of a load wrote.
pub(crate) fn add_written(totals: &mut Totals, written: Vec<Written>, from_ns: u64) {
    let collected = written.into_iter().map(|written| Collected { inserted: Some(written), ..Collected::default() });
    add_up(totals, collected.collect(), Terms { paced: false, deletes: false, alone: false, from_ns });
}

/// Adds up what the threads of a timed step asked.
pub(crate) fn add_asked(totals: &mut Totals, asked: impl Iterator<Item = Option<Asked>>, from_ns: u64) {
    let collected = asked.map(|asked| Collected { asked, ..Collected::default() });
    add_up(totals, collected.collect(), Terms { paced: false, deletes: false, alone: true, from_ns });
}

struct Adder<'a> {
    totals: &'a mut Totals,
    terms: Terms,
    /// The end of the last insert, delete or paced second of any client, or of the last query where nobody writes.
    end_ns: u64,
    /// Context switches of the driver's threads.
    switches: u64,
    gaps: Vec<Gaps>,
    lateness: Vec<Lateness>,
}

impl Adder<'_> {
    fn client(&mut self, brought: Collected) {
        self.totals.of_clients.push(Default::default());
        let mut record = ClientRecord::default();
        let mut end_ns = self.terms.from_ns;
        if let Some(written) = brought.inserted {
            record.inserted = written.recorder.totals.amount;
            end_ns = end_ns.max(written.end_ns);
            self.recorder(written.recorder, written.switches);
        }
        if let Some(deleted) = brought.deleted {
            self.totals.short_deletes += deleted.short_deletes;
            add_probes(&mut self.totals.min_key, &deleted.probes_ns);
            record.deleted = deleted.recorder.totals.amount;
            end_ns = end_ns.max(deleted.end_ns);
            self.recorder(deleted.recorder, deleted.switches);
        }
        if let Some((pace, pace_end_ns)) = brought.pace {
            end_ns = end_ns.max(pace_end_ns);
            self.pace(&pace);
        }
        if let Some(asked) = brought.asked {
            record.queries = asked.recorder.totals.amount;
            record.fetched = asked.fetched;
            if self.terms.alone {
                end_ns = end_ns.max(asked.end_ns);
            }
            self.recorder(asked.recorder, asked.switches);
        }
        record.secs = (end_ns - self.terms.from_ns) as f64 / 1e9;
        self.end_ns = self.end_ns.max(end_ns);
        self.totals.clients.push(record);
    }

    fn recorder(&mut self, recorder: Recorder, switches: u64) {
        self.totals.kinds[recorder.kind as usize].merge(&recorder.totals);
        if let Some(client) = self.totals.of_clients.last_mut() {
            client[recorder.kind as usize].merge(&recorder.totals.series);
        }
        self.totals.threads[recorder.kind as usize].add(&recorder.times);
        self.gaps.push(recorder.gaps);
        self.lateness.push(recorder.lateness);
        self.switches += switches;
    }

    /// Statements that were never issued count as late ones, of inserts and of deletes.
    fn pace(&mut self, pace: &Pace) {
        let totals = &mut *self.totals;
        totals.late_seconds += pace.late_seconds;
        for kind in 0..=usize::from(self.terms.deletes) {
            totals.kinds[kind].intended.get_or_insert_default().merge(&pace.lost);
        }
        let lost_ns = (pace.lost.max_us().unwrap_or(0.0) * 1e3) as u64;
        totals.stall_longest_ns = totals.stall_longest_ns.max(lost_ns);
    }

    fn finish(mut self) {
        let length_ns = self.end_ns - self.terms.from_ns;
        let totals = self.totals;
        totals.secs = length_ns as f64 / 1e9;
        totals.kernel.process_switches = totals.kernel.process_switches.map(|engine| engine + self.switches);
        let of_clients = totals.of_clients.iter_mut().flatten();
        totals
            .kinds
            .iter_mut()
            .map(|kind| &mut kind.series)
            .chain(of_clients)
            .for_each(|series| series.cover(length_ns));
        if self.terms.paced {
            let worst = self.lateness.iter().map(|lateness| lateness.largest_ns).max().unwrap_or(0);
            totals.stall_longest_ns = totals.stall_longest_ns.max(worst);
            totals.stalls = self.lateness.into_iter().flat_map(|lateness| lateness.stalls).collect();
        } else {
            self.gaps.iter_mut().for_each(|gaps| gaps.finished(length_ns));
            (totals.stalls, totals.stall_longest_ns) = common_spans(&self.gaps);
        }
    }
}

fn add_probes(record: &mut MinKeyRecord, probes_ns: &[u64]) {
    for (place, probe_ns) in probes_ns.iter().enumerate() {
        let probe_ms = *probe_ns as f64 / 1e6;
        let slot = if place == 0 { &mut record.first_ms } else { &mut record.later_max_ms };
        *slot = Some(slot.unwrap_or(0.0).max(probe_ms));
        record.count += 1;
        record.total_ms += probe_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_quarter_begins_with_the_second_behind_three_quarters() {
        let at = |at_ns| Snapshot { at_ns, ..Snapshot::default() };
        let samples: Vec<_> = (1..=5).map(|second| (at(7 + second * 1_000_000_000), second * 20)).collect();
        let end = at(7 + 5_500_000_000);
        let quarter = LastQuarter::of(&samples, 110, 7, &end).unwrap();
        assert_eq!((quarter.from_secs, quarter.rows, quarter.kernel.secs), (5.0, 10, 0.5));
        let quarter = LastQuarter::of(&samples, 104, 7, &end).unwrap();
        assert_eq!((quarter.from_secs, quarter.rows, quarter.kernel.secs), (4.0, 24, 1.5));
        assert!(LastQuarter::of(&[], 104, 7, &end).is_none(), "shorter than a second");
    }

    #[test]
    fn the_first_look_up_of_the_smallest_key_is_kept_apart() {
        let mut record = MinKeyRecord::default();
        add_probes(&mut record, &[5_000_000, 1_000_000, 3_000_000]);
        add_probes(&mut record, &[2_000_000]);
        assert_eq!((record.first_ms, record.later_max_ms), (Some(5.0), Some(3.0)));
        assert_eq!((record.count, record.total_ms), (4, 11.0));
    }
}
