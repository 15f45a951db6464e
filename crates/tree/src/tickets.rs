//! Pins of step 1b without a count per leaf: tickets [A1].
//!
//! A commit that reserves leaves takes a ticket and writes its number into each leaf's `last_reserved` (a maximum,
//! under the leaf's latch). A leaf may leave memory only if `last_reserved` is below the oldest ticket still held.
//! Releasing is one store, however many leaves were reserved; a split's right half copies `last_reserved`.
//!
//! Taking: (1) the slot goes from FREE to PENDING; (2) the number is drawn; (3) it is stored in the slot.
//! Asking for the oldest: (1) NEXT is loaded; (2) the slots are scanned; a PENDING slot answers "nothing may leave".
//!
//! Why NEXT is loaded first: the evictor scans, finds no slot taken; a commit takes ticket 7 and reserves leaf L
//! with it; the evictor loads NEXT = 8 and throws L out under the commit. Loaded before the scan, NEXT is at most
//! the number of any ticket whose PENDING the scan missed.
//!
//! Slots come in chunks that are appended and never removed, so that any number of commits may hold tickets and
//! nobody waits for one (waiting here while holding a ticket of another index could be a deadlock).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

const FREE: u64 = 0;
const PENDING: u64 = 1;
/// The first number drawn: above the two marks.
const FIRST: u64 = 2;
const CHUNK_SLOTS: usize = 16;

/// The tickets of one tree.
#[derive(Debug)]
pub(crate) struct Tickets {
    next: CachePadded<AtomicU64>,
    /// An answer of `oldest` given before: the oldest ticket only rises.
    known_oldest: CachePadded<AtomicU64>,
    first: Chunk,
}

#[derive(Debug, Default)]
struct Chunk {
    slots: [CachePadded<AtomicU64>; CHUNK_SLOTS],
    next: OnceLock<Box<Chunk>>,
}

/// A ticket held. Give it back with [`Tickets::release`].
#[derive(Debug)]
pub(crate) struct Ticket {
    pub number: u64,
    slot: usize,
}

impl Tickets {
    pub fn new() -> Self {
        Self {
            next: CachePadded::new(AtomicU64::new(FIRST)),
            known_oldest: CachePadded::new(AtomicU64::new(0)),
            first: Chunk::default(),
        }
    }

    pub fn take(&self) -> Ticket {
        // SeqCst from PENDING to the draw, with the load and the scan in `oldest`: see the module's schedule.
        let (slot, place) = self.claim();
        vfs::thread::point("tree.ticket_pending");
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        vfs::thread::point("tree.ticket_drawn");
        place.store(number, Ordering::SeqCst);
        Ticket { number, slot }
    }

    pub fn release(&self, ticket: &Ticket) {
        let mut chunk = &self.first;
        for _ in 0..ticket.slot / CHUNK_SLOTS {
            chunk = chunk.next.get().expect("a ticket's chunk exists");
        }
        // Release, with the scan in `oldest`: whatever was done under the ticket comes before the eviction.
        chunk.slots[ticket.slot % CHUNK_SLOTS].store(FREE, Ordering::Release);
    }

    /// True if no ticket numbered `last_reserved` or lower is held. Conservative.
    pub fn is_released(&self, last_reserved: u64) -> bool {
        last_reserved < self.known_oldest.load(Ordering::Acquire) || last_reserved < self.oldest()
    }

    /// No ticket below this is held, nor ever will be. 0 if that cannot be told now.
    fn oldest(&self) -> u64 {
        let mut oldest = self.next.load(Ordering::SeqCst);
        vfs::thread::point("tree.ticket_scan");
        let mut chunk = &self.first;
        loop {
            for slot in &chunk.slots {
                match slot.load(Ordering::SeqCst) {
                    FREE => {}
                    PENDING => return 0,
                    number => oldest = oldest.min(number),
                }
            }
            match chunk.next.get() {
                Some(next) => chunk = next,
                None => break,
            }
        }
        vfs::thread::point("tree.ticket_scanned");
        self.known_oldest.fetch_max(oldest, Ordering::AcqRel);
        oldest
    }

    fn claim(&self) -> (usize, &AtomicU64) {
        // Threads start at different places, so that they seldom meet on a line.
        let start = thread_place() % CHUNK_SLOTS;
        let (mut chunk, mut base) = (&self.first, 0);
        loop {
            for i in 0..CHUNK_SLOTS {
                let at = (start + i) % CHUNK_SLOTS;
                let slot = &chunk.slots[at];
                if slot.load(Ordering::Relaxed) == FREE
                    && slot.compare_exchange(FREE, PENDING, Ordering::SeqCst, Ordering::Relaxed).is_ok()
                {
                    return (base + at, slot);
                }
            }
            chunk = chunk.next.get_or_init(Box::default);
            base += CHUNK_SLOTS;
        }
    }
}

/// A number that differs between threads, mostly; inside a simulation it follows from the seed.
pub(crate) fn thread_place() -> usize {
    vfs::thread::number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_ticket_held_decides() {
        let tickets = Tickets::new();
        let a = tickets.take();
        let b = tickets.take();
        assert!(!tickets.is_released(a.number));
        assert!(tickets.is_released(a.number - 1), "leaves reserved before any ticket held");
        tickets.release(&b);
        assert!(!tickets.is_released(b.number), "a younger ticket is covered by the older one");
        tickets.release(&a);
        assert!(tickets.is_released(b.number));
    }

    /// A commit takes a ticket while the evictor looks, before and after its scan; the evictor looks while a commit has
    /// drawn its number and not stored it.
    #[test]
    fn a1_next_is_loaded_before_the_slots() {
        use std::sync::Arc;
        use vfs::sim::{Config, Simulation};
        Simulation::new(1, Config::default()).run(|sim| {
            let tickets = Arc::new(Tickets::new());
            for point in ["tree.ticket_scan", "tree.ticket_scanned", "tree.ticket_drawn"] {
                // The number that the commit draws.
                let number = tickets.next.load(Ordering::SeqCst);
                let gate = sim.hold(point);
                let (asking, taking) = (tickets.clone(), tickets.clone());
                let ask = move || asking.is_released(number);
                let take = move || taking.take();
                let ticket = if point != "tree.ticket_drawn" {
                    let asked = vfs::thread::spawn("evictor", ask).unwrap();
                    gate.wait_reached();
                    let ticket = take();
                    gate.open();
                    assert!(!asked.join().unwrap(), "taken after the evictor began to look");
                    ticket
                } else {
                    let taken = vfs::thread::spawn("commit", take).unwrap();
                    gate.wait_reached();
                    assert!(!ask(), "a ticket whose number is not in its slot yet");
                    gate.open();
                    taken.join().unwrap()
                };
                assert_eq!(ticket.number, number);
                assert!(!tickets.is_released(number));
                tickets.release(&ticket);
                assert!(tickets.is_released(number));
            }
        });
    }

    #[test]
    fn any_number_of_tickets() {
        let tickets = Tickets::new();
        let held: Vec<_> = (0..100).map(|_| tickets.take()).collect();
        assert!(!tickets.is_released(held[99].number));
        for t in &held[1..] {
            tickets.release(t);
        }
        assert!(!tickets.is_released(held[0].number));
        tickets.release(&held[0]);
        assert!(tickets.is_released(held[99].number));
    }
}
