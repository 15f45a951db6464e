//! Values of an index of counters [A21]: what a counter is, or what is added to what it was.
//!
//! A commit that adds does not look at what is there: its version says what is added. A read adds up, from the version it sees down
//! to one that says what the counter is, or to nothing, which is 0. A structure makes sums of such versions in place, and need not:
//!
//! 1. Only what nothing can come below any more is summed up: versions at or below the floor of a view that is capped as rule 4 of
//!    the crate says.
//! 2. No version is dropped unless the next newer one is a sum, or a delete.
//!
//! Numbers wrap around at the ends of their range.

/// Bytes of a value: the form, and the number, little-endian.
pub const COUNTER_BYTES: usize = 9;

/// What a version of a counter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// What the counter is.
    Sum(i64),
    /// What is added to what it was.
    Delta(i64),
}

impl Counter {
    /// The version's value.
    #[must_use]
    pub fn encode(self) -> [u8; COUNTER_BYTES] {
        let (form, number) = match self {
            Counter::Sum(number) => (0, number),
            Counter::Delta(number) => (1, number),
        };
        let mut bytes = [form; COUNTER_BYTES];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    /// From a version's value; `None` if it is none of a counter.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let bytes: &[u8; COUNTER_BYTES] = value.try_into().ok()?;
        let number = i64::from_le_bytes(*bytes.last_chunk().expect("nine bytes"));
        match bytes[0] {
            0 => Some(Counter::Sum(number)),
            1 => Some(Counter::Delta(number)),
            _ => None,
        }
    }

    /// What the counter is by this version, above one by which it is `below`.
    #[must_use]
    pub fn over(self, below: i64) -> i64 {
        match self {
            Counter::Sum(sum) => sum,
            Counter::Delta(delta) => below.wrapping_add(delta),
        }
    }

    /// The same with this added.
    #[must_use]
    pub fn plus(self, delta: i64) -> Self {
        match self {
            Counter::Sum(sum) => Counter::Sum(sum.wrapping_add(delta)),
            Counter::Delta(before) => Counter::Delta(before.wrapping_add(delta)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for counter in [Counter::Sum(0), Counter::Sum(i64::MIN), Counter::Delta(-1), Counter::Delta(i64::MAX)] {
            assert_eq!(Counter::decode(&counter.encode()), Some(counter));
        }
        for bad in [&[][..], &[0; 8], &[0; 10], &[2; 9]] {
            assert_eq!(Counter::decode(bad), None, "{bad:?}");
        }
        assert_eq!(Counter::Sum(i64::MAX).plus(1), Counter::Sum(i64::MIN));
        assert_eq!((Counter::Sum(3).over(5), Counter::Delta(1).over(i64::MAX)), (3, i64::MIN));
    }
}
