//! The thread of a session: cards from a shuffled deck until it is told to stop. A transaction that met a deadlock and its
//! like is rolled back and run again as it was drawn; the time that was lost is part of its response.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use lab_measure::histogram::Latency;
use lab_measure::procfs::thread_switches;
use lab_measure::{Clock, Recorder};
use lab_target::tpcc::Session;

use super::draw::shuffle;
use super::transactions::{Stopped, Transaction, Transactions};
use super::world::Deed;
use crate::random::Random;
use crate::worker::{Asked, WorkerError};

/// A shuffled deck of a hundred cards; when it is empty it is shuffled again.
#[derive(Debug, Default)]
pub struct Deck {
    cards: Vec<Transaction>,
}

impl Deck {
    /// The next card.
    pub fn draw(&mut self, random: &mut Random) -> Transaction {
        if self.cards.is_empty() {
            let cards = |(card, _, count): &(Transaction, &str, usize)| std::iter::repeat_n(*card, *count);
            self.cards = Transaction::MIX.iter().flat_map(cards).collect();
            shuffle(random, &mut self.cards);
        }
        self.cards.pop().expect("the deck was filled")
    }
}

/// What was measured of one kind of transaction.
#[derive(Clone, Debug, Default)]
pub struct OfKind {
    /// Response times of all that came to their end.
    pub responses: Latency,
    /// Those that ended with the rollback that the specification wants.
    pub rolled_back: u64,
    /// How often one had to be run again, by reason.
    pub retries: BTreeMap<&'static str, u64>,
}

/// What a session hands back.
#[derive(Debug, Default)]
pub struct Brought {
    /// The measurements of all kinds together: a transaction is a query of the recorder.
    pub asked: Option<Asked>,
    /// By kind, in the order of [`Transaction::MIX`].
    pub kinds: [OfKind; 5],
}

/// The reason, for counting.
#[must_use]
pub fn reason(why: &str) -> &'static str {
    let why = why.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| why.contains(word));
    match () {
        () if says(&["deadlock"]) => "deadlock",
        () if says(&["timeout", "timed out", "waited"]) => "lock wait",
        () if says(&["conflict", "busy"]) => "conflict",
        () => "other",
    }
}

/// Runs transactions of one session. `told` is called with what each did, once its commit was acknowledged, and ends the
/// run with an error.
///
/// # Errors
/// An error of the engine that is no reason to run again, and a wrong answer.
pub fn run(
    mut transactions: Transactions<'_>,
    session: &mut dyn Session,
    clock: &Clock,
    (recorder, from_ns): (Recorder, u64),
    stop: &AtomicBool,
    told: &dyn Fn(&[Deed]) -> Result<(), WorkerError>,
) -> Result<Brought, WorkerError> {
    let mut asked = Asked { recorder, fetched: 0, end_ns: 0, switches: 0 };
    let (mut out, mut deck) = (Brought::default(), Deck::default());
    // Pairs with the relaxed store of the coordinator; the thread is joined afterwards.
    'cards: while !stop.load(Ordering::Relaxed) {
        let card = deck.draw(transactions.random());
        let input = transactions.draw(card);
        let begin_ns = clock.now_ns();
        let counts = begin_ns >= from_ns;
        let of_kind = &mut out.kinds[card as usize];
        let committed = loop {
            match transactions.run(&input, session) {
                Ok(committed) => break committed,
                Err(Stopped::Worker(error)) => return Err(error),
                Err(Stopped::Again(why)) => {
                    session.rollback();
                    if counts {
                        *of_kind.retries.entry(reason(&why)).or_default() += 1;
                    }
                    if stop.load(Ordering::Relaxed) {
                        break 'cards;
                    }
                }
            }
        };
        let end_ns = clock.now_ns();
        asked.recorder.record(begin_ns, end_ns, 1, None);
        asked.end_ns = end_ns;
        if counts {
            of_kind.responses.record(end_ns - begin_ns);
            of_kind.rolled_back += u64::from(!committed);
        }
        if committed {
            told(transactions.deeds())?;
        }
    }
    asked.recorder.finish();
    asked.switches = thread_switches().unwrap_or(0);
    out.asked = Some(asked);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deck_has_the_mix_and_another_order_each_time() {
        let (mut deck, mut random) = (Deck::default(), Random::new(1, 1));
        let mut hundred = || (0..100).map(|_| deck.draw(&mut random)).collect::<Vec<_>>();
        let (first, second) = (hundred(), hundred());
        assert_ne!(first, second);
        for (card, name, count) in Transaction::MIX {
            assert_eq!(first.iter().filter(|drawn| **drawn == card).count(), count, "{name}");
            assert_eq!(second.iter().filter(|drawn| **drawn == card).count(), count, "{name}");
        }
    }

    #[test]
    fn reasons_are_told_apart() {
        assert_eq!(reason("trefoil: deadlock, rolled back"), "deadlock");
        assert_eq!(reason("rocksdb: Operation timed out: Timeout"), "lock wait");
        assert_eq!(reason("rocksdb: Resource busy: "), "conflict");
        assert_eq!(reason("no room"), "other");
    }
}
