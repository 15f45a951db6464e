//! Which entry of a shard is whose: numbers of entries by half of a key's hash.
//!
//! Open addressing with linear probing, each number beside its half of the hash: that a key has no entry, as most that are locked, is seen
//! in one or two cache lines, and no entry is read for it. What is removed leaves no mark: those behind it move up (Knuth, The Art of
//! Computer Programming, volume 3, 6.4, algorithm R).
//!
//! Invariants: at most three quarters of the slots are taken; between the slot where a half wants to be and where it is none is empty.

/// As if an entry had the largest number, which none has.
const EMPTY: u64 = u64::MAX;
const SLOTS_MIN: usize = 16;

/// A table of them. None of its methods looks at entries.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Half of a hash above, number of its entry below; a power of two of them, or none.
    slots: Vec<u64>,
    used: usize,
}

impl Numbers {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }

    /// The first with this half of a hash that is the one.
    pub fn find(&self, half: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.used == 0 {
            return None;
        }
        let mut at = self.home(half);
        while self.slots[at] != EMPTY {
            let (other, number) = unpack(self.slots[at]);
            if other == half && is_it(number) {
                return Some(number);
            }
            at = self.behind(at);
        }
        None
    }

    pub fn insert(&mut self, half: u32, number: u32) {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            let size = (2 * self.slots.len()).max(SLOTS_MIN);
            let old = std::mem::replace(&mut self.slots, vec![EMPTY; size]);
            old.into_iter().filter(|slot| *slot != EMPTY).for_each(|slot| self.put(slot));
        }
        self.put(u64::from(half) << 32 | u64::from(number));
        self.used += 1;
    }

    /// Removes one that is there.
    pub fn remove(&mut self, half: u32, number: u32) {
        let slot = u64::from(half) << 32 | u64::from(number);
        let mut hole = self.home(half);
        while self.slots[hole] != slot {
            assert_ne!(self.slots[hole], EMPTY, "what is removed is there");
            hole = self.behind(hole);
        }
        let mut at = self.behind(hole);
        while self.slots[at] != EMPTY {
            let wanted = self.home(unpack(self.slots[at]).0);
            // The hole is not before the slot where it wants to be.
            if self.distance(wanted, at) >= self.distance(hole, at) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.behind(at);
        }
        self.slots[hole] = EMPTY;
        self.used -= 1;
    }

    fn put(&mut self, slot: u64) {
        let mut at = self.home(unpack(slot).0);
        while self.slots[at] != EMPTY {
            at = self.behind(at);
        }
        self.slots[at] = slot;
    }

    fn home(&self, half: u32) -> usize {
        half as usize & (self.slots.len() - 1)
    }

    fn behind(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }
}

fn unpack(slot: u64) -> (u32, u32) {
    ((slot >> 32) as u32, slot as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Halves of a few values, so that they want the same slots, those at the end among them. Guards: those behind what is removed move up,
    /// but not before the slot where they want to be.
    #[test]
    fn numbers_are_found_whatever_was_removed() {
        let mut random = 1_u64;
        let mut below = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % n
        };
        for most in [3, 12, 100, 1000] {
            let (mut numbers, mut model) = (Numbers::default(), BTreeMap::new());
            for step in 0..20_000_u32 {
                let number = below(most) as u32;
                match model.remove(&number) {
                    Some(half) => numbers.remove(half, number),
                    None => {
                        let half = (below(7) * 5 + 12) as u32 | (below(3) as u32) << 31;
                        numbers.insert(half, number);
                        model.insert(number, half);
                    }
                }
                assert_eq!(numbers.len(), model.len());
                let number = below(most) as u32;
                let half = model.get(&number).copied();
                assert_eq!(
                    numbers.find(half.unwrap_or(12), |other| other == number).is_some(),
                    half.is_some(),
                    "{step}"
                );
                assert!(numbers.slots.iter().filter(|slot| **slot != EMPTY).count() * 4 <= numbers.slots.len() * 3);
            }
        }
    }
}
