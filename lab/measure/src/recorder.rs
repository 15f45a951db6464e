//! One thread's measurements of one kind of statement. Nothing here is shared but the live cell.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::histogram::{Classes, KeptLatency, Latency};
use crate::live::LiveCell;
use crate::series::Series;
use crate::stall::{Gaps, Lateness};
use crate::thread_time::{Mark, ThreadTimes};

/// The kinds of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A multi-row insert.
    Insert,
    /// A multi-row delete.
    Delete,
    /// A range or point query.
    Query,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::Insert, Kind::Delete, Kind::Query];

    /// The kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Insert => "insert",
            Kind::Delete => "delete",
            Kind::Query => "query",
        }
    }
}

/// What all threads of one kind measured together.
#[derive(Clone, Debug, Default)]
pub struct KindTotals {
    /// Rows or queries.
    pub amount: u64,
    /// Statements.
    pub statements: u64,
    /// Time of execute and fetch.
    pub service: Latency,
    /// Time from the intended start, in rate mode.
    pub intended: Option<Latency>,
    /// The classes of the tables.
    pub classes: Classes,
    /// Per second.
    pub series: Series,
}

impl KindTotals {
    /// Adds another thread's totals.
    pub fn merge(&mut self, other: &KindTotals) {
        self.amount += other.amount;
        self.statements += other.statements;
        self.service.merge(&other.service);
        self.classes.merge(&other.classes);
        self.series.merge(&other.series);
        if let Some(more) = &other.intended {
            self.intended.get_or_insert_default().merge(more);
        }
    }

    /// As it is kept in the run folder.
    #[must_use]
    pub fn kept(&self) -> KeptKind {
        KeptKind {
            amount: self.amount,
            statements: self.statements,
            service: self.service.kept(),
            intended: self.intended.as_ref().map(Latency::kept),
            classes: self.classes,
        }
    }
}

/// The totals of one kind as they are kept; the series are kept beside them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KeptKind {
    /// Rows or queries.
    pub amount: u64,
    /// Statements.
    pub statements: u64,
    /// Service time.
    pub service: KeptLatency,
    /// From the intended start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intended: Option<KeptLatency>,
    /// The classes of the tables.
    pub classes: Classes,
}

/// The measurements of one thread.
#[derive(Debug)]
pub struct Recorder {
    /// What was measured.
    pub kind: Kind,
    /// The sums.
    pub totals: KindTotals,
    /// Gaps between completions.
    pub gaps: Gaps,
    /// Lateness against the intended starts.
    pub lateness: Lateness,
    live: Arc<LiveCell>,
    from_ns: u64,
    /// This thread when measuring began.
    mark: Mark,
    /// A warm-up is going on.
    is_warming: bool,
    statements_ns: u64,
    /// Where the thread's time went, once it is finished.
    pub times: ThreadTimes,
}

impl Recorder {
    /// Made on the thread that it is for. A recorder that ignores statements which began before `from_ns` (the warm-up), except for the live numbers.
    #[must_use]
    pub fn new(kind: Kind, live: Arc<LiveCell>, from_ns: u64) -> Recorder {
        Recorder {
            kind,
            totals: KindTotals::default(),
            gaps: Gaps::default(),
            lateness: Lateness::default(),
            live,
            from_ns,
            mark: Mark::now(),
            is_warming: false,
            statements_ns: 0,
            times: ThreadTimes::default(),
        }
    }

    /// The thread is done: says where its time went. Called on the thread itself.
    pub fn finish(&mut self) {
        self.times = self.mark.until_now(self.statements_ns);
    }

    /// A statement ran from `begin_ns` to `end_ns` and did `amount`; in rate mode it was meant to start at
    /// `intended_ns`. A statement issued before its intended start counts from when it was issued.
    pub fn record(&mut self, begin_ns: u64, end_ns: u64, amount: u64, intended_ns: Option<u64>) {
        let response_ns = end_ns - begin_ns;
        self.live.record(amount, response_ns);
        if begin_ns < self.from_ns {
            self.is_warming = true;
            return;
        }
        if std::mem::take(&mut self.is_warming) {
            self.mark = Mark::now();
        } else {
            self.statements_ns += response_ns;
        }
        let at_ns = end_ns - self.from_ns;
        self.totals.amount += amount;
        self.totals.statements += 1;
        self.totals.service.record(response_ns);
        self.totals.classes.record(response_ns);
        self.totals.series.record(at_ns, amount, response_ns);
        self.gaps.completed(at_ns);
        if let Some(intended_ns) = intended_ns {
            let intended_ns = intended_ns.min(begin_ns);
            self.totals.intended.get_or_insert_default().record(end_ns - intended_ns);
            self.lateness.completed(intended_ns.saturating_sub(self.from_ns), at_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_is_left_out_and_lost_time_is_counted() {
        let mut recorder = Recorder::new(Kind::Insert, Arc::default(), 1_000);
        recorder.record(500, 1_500, 10, Some(500));
        recorder.record(1_500, 3_500, 10, Some(1_200));
        recorder.record(4_000, 5_000, 10, Some(9_000));
        assert_eq!((recorder.totals.amount, recorder.totals.statements), (20, 2));
        let intended = recorder.totals.intended.as_ref().unwrap();
        assert_eq!(intended.max_us(), Some(2.3));
        assert_eq!(recorder.totals.service.max_us(), Some(2.0));
        let mut sum = KindTotals::default();
        sum.merge(&recorder.totals);
        sum.merge(&recorder.totals);
        assert_eq!((sum.amount, sum.intended.unwrap().count()), (40, 4));
    }
}
