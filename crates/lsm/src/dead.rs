//! Dead spans [A25, C7]: ranges of keys of which nothing is visible from some timestamp on. Cursors hop over them, so that who reads behind
//! a mass delete does not pass over what was deleted until a merge has dropped it, whatever snapshots are open.
//!
//! A span says: *the newest version of every key in it is a delete, at or below `from`*. Then nobody whose snapshot is at or above `from`
//! sees anything there. Deletes keep it true, and so does whatever flushes, merges or collects; only a put makes it false.
//!
//! Who learns one ([`explore`](crate::explore)): (1) sets a watch on the keys from its beginning on; (2) takes the list of sources; (3) reads the
//! newest versions of that, whatever snapshot he has himself, as far as they are deletes; (4) under the latch, takes the watch back, and
//! the span ends below the lowest key that was put meanwhile. Who puts: (a) puts the version where readers look; (b) under the latch, cuts its key out of
//! the span that has it, and tells the watches; (c) only then the commit is marked applied.
//!
//! So of a put and a learner at least one sees the other: if (b) comes before (1), the list has the version, and (3) ends there; between
//! (1) and (4), the watch knows; behind (4), the span is cut before any snapshot has the commit. Orders that would not do:
//!
//! > (b) before (a): the put finds no span and no watch; a learner goes through 1 to 4 and finds nothing; the version comes. The row is missed.
//!
//! > A learner that reads as of his own snapshot: what was put above it, before his watch, he does not see; newer readers miss it.
//!
//! Entries that come late [A4] and attached runs are puts like others: the first go through (a) and (b), of the second the whole range is cut
//! out. Most of the time there is neither span nor watch, and a put sees that without a latch: (a), fence, look; (1), fence, (2).
//!
//! The spans of a checkpoint are in its state as far as all they say lies at or below its F: what is above is replayed, puts cut them. They are
//! copied behind the list: whatever the list has was cut out of them before it got there.
//!
//! Invariants: spans do not overlap; `known` = spans + watches; `bytes` is what the spans' keys take.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use base::CommitTs;
use index::damaged::just_above;
use store::Charge;
use vfs::sync::{Mutex, RwLock};

/// Spans of an index, at most: beyond that those that touch become one, and of the rest those go that spare least.
const SPANS_MAX: usize = 1024;
/// Bytes of their keys, at most.
const SPANS_BYTES_MAX: usize = 128 << 10;
/// Hints, at most; beyond that the oldest is forgotten.
const HINTS_MAX: usize = 64;

/// A range of keys of which nothing is visible from a timestamp on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its first key.
    pub low: Vec<u8>,
    /// The key that it ends before; none: it has no end.
    pub high: Option<Vec<u8>>,
    pub from: CommitTs,
    /// About how many entries a reader need not pass over.
    pub worth: u64,
}

/// The rest of a span, by its first key.
#[derive(Debug)]
struct Rest {
    high: Option<Box<[u8]>>,
    from: CommitTs,
    worth: u64,
}

/// Keys that were deleted together, and between which little else may be: where it may pay to look.
#[derive(Debug)]
pub(crate) struct Hint {
    pub low: Vec<u8>,
    /// The last key.
    pub last: Vec<u8>,
    /// Of whose commit, and how many.
    pub ts: CommitTs,
    pub deletes: u64,
}

#[derive(Debug)]
struct Spans {
    by_low: BTreeMap<Box<[u8]>, Rest>,
    /// By number: from which key on, and the lowest key that was put there since.
    watches: BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)>,
    next_watch: u64,
    bytes: usize,
    /// A part of a span that is worth less is forgotten.
    worth_min: u64,
    charge: Charge,
    /// The most that there were.
    #[cfg(test)]
    most: usize,
}

/// What is known of one index.
#[derive(Debug)]
pub(crate) struct DeadSpans {
    /// Spans and watches. SeqCst fences between this and versions in memtables, see above.
    known: AtomicUsize,
    spans: RwLock<Spans>,
    hints: Mutex<VecDeque<Hint>>,
    /// Who looks whether anything lies in them: in which round, and where he goes on; none at its end.
    looked: Mutex<(u64, Option<Vec<u8>>)>,
}

/// A watch on the keys from one on; it ends when this is dropped.
pub(crate) struct Watch<'a> {
    dead: &'a DeadSpans,
    number: u64,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut spans = self.dead.spans.write();
        spans.watches.remove(&self.number);
        self.dead.count(&mut spans);
    }
}

/// The order of ends: none is behind all keys.
fn is_before(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

impl DeadSpans {
    /// `charge` is what they are charged to. What a cut leaves of a span is kept if it is worth `worth_min`.
    pub fn new(charge: Charge, known: Vec<Span>, worth_min: u64) -> Self {
        let spans = Spans {
            by_low: BTreeMap::new(),
            watches: BTreeMap::new(),
            next_watch: 0,
            bytes: 0,
            worth_min,
            charge,
            #[cfg(test)]
            most: 0,
        };
        let this = Self {
            known: AtomicUsize::new(0),
            spans: RwLock::new(spans),
            hints: Mutex::default(),
            looked: Mutex::default(),
        };
        let mut spans = this.spans.write();
        known.into_iter().for_each(|span| spans.add(span));
        this.count(&mut spans);
        drop(spans);
        this
    }

    fn count(&self, spans: &mut Spans) {
        let bytes = (spans.bytes + spans.by_low.len() * 128) as u64;
        // All indexes share the budget: who changes nothing leaves it alone.
        if bytes != spans.charge.bytes() {
            spans.charge.set(bytes);
        }
        self.known.store(spans.by_low.len() + spans.watches.len(), Ordering::SeqCst);
    }

    /// True if there is neither span nor watch.
    fn is_idle(&self) -> bool {
        self.known.load(Ordering::Relaxed) == 0
    }

    /// Watches the keys from `low` on. Whoever looks at sources behind this sees what was put before, or the watch is told.
    pub fn watch(&self, low: &[u8]) -> Watch<'_> {
        let mut spans = self.spans.write();
        spans.next_watch += 1;
        let number = spans.next_watch;
        spans.watches.insert(number, (low.to_vec(), None));
        self.count(&mut spans);
        drop(spans);
        // Partner: the fence of `note_puts`.
        fence(Ordering::SeqCst);
        Watch { dead: self, number }
    }

    /// A span was found dead while it was watched from its beginning on; but for what was put meanwhile. Its deletes lie below `bare`. What is
    /// behind them is a span of its own that spares nothing: rows are appended there, and cut that one once, not the deletes' again and again.
    pub fn learn(&self, watch: Watch<'_>, mut span: Span, bare: &[u8]) {
        let mut spans = self.spans.write();
        let (low, put) = spans.watches.get(&watch.number).expect("it ends with its owner");
        debug_assert!(*low <= span.low, "a span is watched from its beginning on");
        if let Some(put) = put.as_ref().filter(|put| is_before(put, span.high.as_deref())) {
            span.high = Some(put.clone());
        }
        if is_before(&span.low, span.high.as_deref()) {
            let high = span.high.clone();
            let behind = is_before(bare, high.as_deref()) && span.low.as_slice() < bare;
            let behind = behind.then(|| Span { low: bare.to_vec(), high, from: span.from, worth: 0 });
            if behind.is_some() {
                span.high = Some(bare.to_vec());
            }
            spans.add(span);
            behind.into_iter().for_each(|behind| spans.add(behind));
            spans.bound();
        }
        drop(spans);
        // Counts, too.
        drop(watch);
    }

    /// Keys were put, ascending, and are where readers look; their commit is not marked applied.
    pub fn note_puts<'a>(&self, keys: impl Iterator<Item = &'a [u8]> + Clone) {
        // Partner: the fence of `watch`.
        fence(Ordering::SeqCst);
        if self.is_idle() {
            return;
        }
        let is_met = {
            let spans = self.spans.read();
            keys.clone().any(|key| spans.is_met(key))
        };
        if is_met {
            let mut spans = self.spans.write();
            // After each: a batch may cut a span thousands of times.
            keys.for_each(|key| {
                spans.cut(key, &just_above(key));
                spans.bound();
            });
            self.count(&mut spans);
        }
    }

    /// The same of all keys from one to another.
    pub fn note_range(&self, first: &[u8], last: &[u8]) {
        fence(Ordering::SeqCst);
        if self.is_idle() {
            return;
        }
        let mut spans = self.spans.write();
        spans.cut(first, &just_above(last));
        spans.bound();
        self.count(&mut spans);
    }

    /// Where a reader at `at` who comes to `key` may go on, if `key` is in a dead span: `Some(None)` if nothing is behind it.
    #[expect(clippy::option_option, reason = "no span; a span without an end; a span with one")]
    pub fn behind(&self, key: &[u8], at: CommitTs) -> Option<Option<Vec<u8>>> {
        if self.is_idle() {
            return None;
        }
        let spans = self.spans.read();
        let mut place: Option<&[u8]> = None;
        loop {
            let (_, rest) = spans.of(place.unwrap_or(key)).filter(|(_, rest)| rest.from <= at)?;
            match rest.high.as_deref() {
                None => return Some(None),
                Some(high) => place = Some(high),
            }
            let next = place.expect("just set");
            if spans.of(next).is_none_or(|(_, rest)| rest.from > at) {
                return Some(Some(next.to_vec()));
            }
        }
    }

    /// Where a reader at `at` who goes down from `below` may go on: the key below which he looks next, if what lies just below is dead.
    pub fn below(&self, below: &Bound<Vec<u8>>, at: CommitTs) -> Option<Vec<u8>> {
        if self.is_idle() {
            return None;
        }
        let spans = self.spans.read();
        let mut low = spans.just_below(below, at)?;
        // Those that touch, too.
        while let Some(next) = spans.just_below(&Bound::Excluded(low.to_vec()), at) {
            low = next;
        }
        Some(low.to_vec())
    }

    /// True if a span has the key, from whatever moment on.
    pub fn has(&self, key: &[u8]) -> bool {
        self.spans.read().of(key).is_some()
    }

    /// All spans.
    pub fn copy(&self) -> Vec<Span> {
        let spans = self.spans.read();
        spans.by_low.iter().map(|(low, rest)| rest.span(low)).collect()
    }

    /// Number of spans.
    pub fn len(&self) -> usize {
        self.spans.read().by_low.len()
    }

    /// Many keys of a range were deleted: somebody may look whether all of it is dead.
    pub fn hint(&self, hint: Hint) {
        let mut hints = self.hints.lock();
        while hints.len() >= HINTS_MAX {
            hints.pop_front();
        }
        hints.push_back(hint);
    }

    /// A hint that was not followed to its end is followed first; the last one is forgotten for it if they are many.
    pub fn hint_again(&self, hint: Hint) {
        let mut hints = self.hints.lock();
        hints.truncate(HINTS_MAX - 1);
        hints.push_front(hint);
    }

    /// The hint of one commit.
    pub fn take_hint_of(&self, ts: CommitTs) -> Option<Hint> {
        let mut hints = self.hints.lock();
        let at = hints.iter().rposition(|hint| hint.ts == ts)?;
        hints.remove(at)
    }

    pub fn take_hint(&self) -> Option<Hint> {
        self.hints.lock().pop_front()
    }

    /// The next span that nobody has asked for since `round` began; each once.
    pub fn next_unlooked(&self, round: u64) -> Option<Span> {
        if self.is_idle() {
            return None;
        }
        let mut looked = self.looked.lock();
        if looked.0 != round {
            *looked = (round, Some(Vec::new()));
        }
        let spans = self.spans.read();
        let from = looked.1.take()?;
        let mut left = spans.by_low.range::<[u8], _>((Bound::Included(from.as_slice()), Bound::Unbounded));
        // Those that spare nothing belong to the one before.
        let (low, rest) = left.find(|(_, rest)| rest.worth > 0)?;
        looked.1 = Some(just_above(low));
        Some(rest.span(low))
    }

    /// Forgets a span, if it is as it was, and one behind it that spares nothing: rows that are appended would cut that, but for it this one.
    pub fn forget(&self, span: &Span) {
        let mut spans = self.spans.write();
        if spans.by_low.get(span.low.as_slice()).is_none_or(|rest| rest.span(&span.low) != *span) {
            return;
        }
        spans.remove(&span.low);
        if let Some(high) = &span.high
            && spans.by_low.get(high.as_slice()).is_some_and(|rest| rest.worth == 0)
        {
            spans.remove(high);
        }
        self.count(&mut spans);
    }

    /// Forgets everything: the index is taken apart.
    pub fn clear(&self) {
        self.hints.lock().clear();
        let mut spans = self.spans.write();
        spans.by_low.clear();
        spans.bytes = 0;
        self.count(&mut spans);
    }
}

impl Rest {
    fn span(&self, low: &[u8]) -> Span {
        Span {
            low: low.to_vec(),
            high: self.high.as_ref().map(|high| high.to_vec()),
            from: self.from,
            worth: self.worth,
        }
    }
}

impl Spans {
    /// The span that has a key.
    fn of(&self, key: &[u8]) -> Option<(&[u8], &Rest)> {
        let (low, rest) = self.by_low.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        is_before(key, rest.high.as_deref()).then_some((&**low, rest))
    }

    /// Where the span begins that reaches up to `below`, or over it.
    fn just_below(&self, below: &Bound<Vec<u8>>, at: CommitTs) -> Option<&[u8]> {
        let (low, rest) = match below {
            Bound::Unbounded => self.by_low.iter().next_back().filter(|(_, rest)| rest.high.is_none()),
            Bound::Included(key) => {
                let last =
                    self.by_low.range::<[u8], _>((Bound::Unbounded, Bound::Included(key.as_slice()))).next_back();
                last.filter(|(_, rest)| is_before(key, rest.high.as_deref()))
            }
            Bound::Excluded(key) => {
                let last =
                    self.by_low.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key.as_slice()))).next_back();
                last.filter(|(_, rest)| rest.high.as_deref().is_none_or(|high| high >= key.as_slice()))
            }
        }?;
        (rest.from <= at).then_some(low)
    }

    /// True if a put of this key is news: to the span that has it, or to a watch. One that heard of a put below learns nothing from here on.
    fn is_met(&self, key: &[u8]) -> bool {
        let is_news = |(low, put): &(Vec<u8>, Option<Vec<u8>>)| low.as_slice() <= key && is_before(key, put.as_deref());
        self.watches.values().any(is_news) || self.of(key).is_some()
    }

    fn insert(&mut self, low: Box<[u8]>, rest: Rest) {
        self.bytes += low.len() + rest.high.as_ref().map_or(0, |high| high.len());
        #[cfg(test)]
        {
            self.most = self.most.max(self.by_low.len() + 1);
        }
        let before = self.by_low.insert(low, rest);
        debug_assert!(before.is_none(), "spans do not overlap");
    }

    /// Inserts a part of a span, if it spares enough.
    fn keep(&mut self, low: Box<[u8]>, rest: Rest) {
        if rest.worth >= self.worth_min {
            self.insert(low, rest);
        }
    }

    fn remove(&mut self, low: &[u8]) -> Option<Rest> {
        let (low, rest) = self.by_low.remove_entry(low)?;
        self.bytes -= low.len() + rest.high.as_ref().map_or(0, |high| high.len());
        Some(rest)
    }

    /// Adds what no span has yet. What one has keeps its moment: an older reader may hop over that, too.
    fn add(&mut self, span: Span) {
        let mut low = span.low;
        let mut worth = span.worth;
        loop {
            while let Some((_, rest)) = self.of(&low) {
                let Some(behind) = rest.high.as_deref().filter(|behind| is_before(behind, span.high.as_deref())) else {
                    return;
                };
                low = behind.to_vec();
            }
            let next = self.by_low.range::<[u8], _>((Bound::Excluded(low.as_slice()), Bound::Unbounded)).next();
            let next = next.map(|(next, _)| next.to_vec()).filter(|next| is_before(next, span.high.as_deref()));
            let high = next.clone().or_else(|| span.high.clone());
            self.join(low, Rest { high: high.map(Vec::into_boxed_slice), from: span.from, worth });
            // The entries were seen once.
            worth = 0;
            match next {
                Some(next) => low = next,
                None => return,
            }
        }
    }

    /// Inserts a span, as one with the span before it if that ends where it begins, at the same moment, and both spare something or neither
    /// does.
    fn join(&mut self, mut low: Vec<u8>, mut rest: Rest) {
        let before = self.by_low.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(low.as_slice()))).next_back();
        let before = before.filter(|(_, before)| before.high.as_deref() == Some(&low) && before.from == rest.from);
        let before = before.filter(|(_, before)| (before.worth > 0) == (rest.worth > 0));
        if let Some(first) = before.map(|(first, _)| first.to_vec()) {
            rest.worth += self.remove(&first).map_or(0, |before| before.worth);
            low = first;
        }
        self.insert(low.into(), rest);
    }

    /// `[first, end)` is not dead any more; watches hear of it.
    fn cut(&mut self, first: &[u8], end: &[u8]) {
        for (low, put) in self.watches.values_mut().filter(|(low, _)| low.as_slice() < end) {
            let first = if first < low.as_slice() { low.as_slice() } else { first };
            if put.as_deref().is_none_or(|put| first < put) {
                *put = Some(first.to_vec());
            }
        }
        let at = self.of(first).map(|(low, _)| low.to_vec());
        let met = self.by_low.range::<[u8], _>((Bound::Included(first), Bound::Excluded(end)));
        let met: Vec<Vec<u8>> = at.into_iter().chain(met.map(|(low, _)| low.to_vec())).collect();
        for low in met {
            // One that begins at `first` is met twice.
            let Some(Rest { high, from, worth }) = self.remove(&low) else { continue };
            let share = share_below(&low, first, high.as_deref());
            if low.as_slice() < first {
                let worth = (worth as f64 * share) as u64;
                self.keep(low.into(), Rest { high: Some(first.into()), from, worth });
            }
            if is_before(end, high.as_deref()) {
                let worth = (worth as f64 * (1.0 - share)) as u64;
                self.keep(end.into(), Rest { high, from, worth });
            }
        }
    }

    /// Keeps them few.
    fn bound(&mut self) {
        let is_over = |this: &Self, parts: usize| {
            this.by_low.len() > SPANS_MAX / 4 * parts || this.bytes > SPANS_BYTES_MAX / 4 * parts
        };
        if !is_over(self, 4) {
            return;
        }
        let mut joined: Vec<(Box<[u8]>, Rest)> = Vec::with_capacity(self.by_low.len());
        for (low, rest) in std::mem::take(&mut self.by_low) {
            match joined.last_mut() {
                Some((_, before)) if before.high.as_ref() == Some(&low) => {
                    *before =
                        Rest { high: rest.high, from: before.from.max(rest.from), worth: before.worth + rest.worth };
                }
                _ => joined.push((low, rest)),
            }
        }
        // Not just below the bound: the next ones need room.
        joined.sort_by_key(|(_, rest)| rest.worth);
        self.bytes = 0;
        for (low, rest) in joined.into_iter().rev() {
            self.insert(low, rest);
            if is_over(self, 3) {
                return;
            }
        }
    }
}

/// The part of a span below a key of it, about: by the bytes behind what its ends have in common, as a number. Where it
/// has no end, what was deleted lies below what is put: rows are appended behind it.
fn share_below(low: &[u8], key: &[u8], high: Option<&[u8]>) -> f64 {
    let Some(high) = high else { return 1.0 };
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let number = |bytes: &[u8]| {
        let mut number = [0; 8];
        let behind = bytes.get(common..).unwrap_or_default();
        let n = behind.len().min(8);
        number[..n].copy_from_slice(&behind[..n]);
        u64::from_be_bytes(number) as f64
    };
    let (low, key, high) = (number(low), number(key), number(high));
    if high > low { ((key - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
}

#[cfg(test)]
mod tests;
