// SPDX-License-Identifier: GPL-2.0-only
//! What stands for values in keys where their bytes do not order them: text by the server's collations, FLOAT and DOUBLE.
//!
//! The server makes weights of a text, level by level; one text comes before another where its weights do, the levels one
//! behind another. What is left to do here is the end of a level:
//!
//! | a level | its bytes |
//! |---|---|
//! | the only one, not padded | the weights |
//! | not padded, others follow | the weights, then a weight of 0, less than any |
//! | padded: a text goes on with blanks without end | the weights, each stretch of blanks in another form; so is the end |
//!
//! A stretch of blanks is one blank and a sign. As long as another text has blanks too, whether it is the lesser depends on
//! what comes behind the shorter stretch:
//!
//! | behind the stretch | sign |
//! |---|---|
//! | something less than a blank | how many blanks: the fewer, the less |
//! | nothing: the end | 80 |
//! | something greater | the number inverted: the fewer, the greater |
//!
//! So `a`, `a ` and `a  ` are one key, behind `a` with a tab and before `a b`, and nothing is filled up to a length.

use std::sync::OnceLock;

use trefoil::{Collations, Error, Result};

use crate::abi;

/// Numbers of collations that are not the server's: of FLOAT and DOUBLE, as they lie in its records.
pub const FLOAT: u32 = 1 << 31;
pub const DOUBLE: u32 = FLOAT + 1;

/// The server's numbers are below; above them the characters of a CHAR whose blanks at the end count.
const IDS: u32 = 1 << 16;
/// More than the server has.
const KNOWN_MAX: usize = 1 << 13;
const END: u8 = 0x80;
/// Bytes of a sign, each 0 twice.
const SIGN_BYTES_MAX: usize = 1 + 2 * size_of::<u32>();
/// Longer stretches of blanks have their length in four bytes.
const STRETCH_MAX: usize = 0x7E;

/// The number that the engine knows a column's collation by.
pub fn number(id: u32, characters: u32) -> u32 {
    debug_assert!(id < IDS && characters < FLOAT / IDS, "as the server has them");
    id | (characters * IDS)
}

/// The server's collations.
pub struct Server {
    calls: abi::Collations,
    known: Vec<OnceLock<Option<Box<Known>>>>,
}

/// What is asked once of a collation.
struct Known {
    about: abi::Collation,
    /// The weights of a blank in each level.
    blanks: [Vec<u8>; 8],
}

impl Server {
    pub fn new(calls: abi::Collations) -> Self {
        Self { calls, known: (0..KNOWN_MAX).map(|_| OnceLock::new()).collect() }
    }

    fn known(&self, id: u32) -> Option<&Known> {
        let ask = || {
            let mut about = abi::Collation::default();
            if (self.calls.describe)(id, &mut about) == 0 {
                return None;
            }
            let blank = &about.space[..usize::from(about.space_length).min(4)];
            let weights = |level: usize| {
                let mut weights = Vec::new();
                if about.levels & 1 << level != 0 {
                    self.weights(id, level as u8, blank, &mut weights);
                }
                weights
            };
            Some(Box::new(Known { about, blanks: std::array::from_fn(weights) }))
        };
        self.known.get(id as usize)?.get_or_init(ask).as_deref()
    }

    /// Bytes of the longest character of a column with this collation.
    pub fn longest(&self, number: u32) -> usize {
        self.known(number % IDS).map_or(1, |known| usize::from(known.about.longest).max(1))
    }

    /// Most bytes of the key of a text of so many characters, each 0 twice, as it stands in keys.
    pub fn key_bytes_max(&self, number: u32, characters: usize) -> usize {
        match number {
            FLOAT => return 2 * 4,
            DOUBLE => return 2 * 8,
            _ => {}
        }
        let (id, mut zeros) = (number % IDS, 0);
        let Some(known) = self.known(id) else { return 0 };
        let bytes = (self.calls.weights_max)(id, characters, &mut zeros);
        // A sign for each blank, and the end of a level.
        let level = |blank: &Vec<u8>| if blank.is_empty() { 0 } else { characters + 2 * blank.len() + SIGN_BYTES_MAX };
        bytes + zeros + known.blanks.iter().map(level).sum::<usize>()
    }

    /// Appends the weights of a text in a level.
    fn weights(&self, id: u32, level: u8, text: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let mut room = 4 * text.len() + 16;
        loop {
            out.resize(start + room, 0);
            let slot = &mut out[start..];
            let written = (self.calls.weights)(id, level, text.as_ptr(), text.len(), slot.as_mut_ptr(), room);
            if written < room {
                out.truncate(start + written);
                return;
            }
            room *= 2;
        }
    }

    /// What was promised of the key's length.
    fn is_bounded(&self, number: u32, text: &[u8], characters: Option<u32>, key: &[u8]) -> bool {
        let mut found = 0;
        (self.calls.front)(number % IDS, text.as_ptr(), text.len(), usize::MAX, &mut found);
        // A CHAR is filled up.
        let all = found.max((number / IDS) as usize);
        let characters = characters.map_or(all, |n| all.min(n as usize));
        let zeros = key.iter().filter(|&&byte| byte == 0).count();
        key.len() + zeros <= self.key_bytes_max(number, characters)
    }

    fn text_key(&self, number: u32, text: &[u8], characters: Option<u32>, out: &mut Vec<u8>) -> Option<()> {
        let (id, length) = (number % IDS, (number / IDS) as usize);
        let known = self.known(id)?;
        let about = &known.about;
        let blank = &about.space[..usize::from(about.space_length).min(4)];
        let wanted = characters.map_or(usize::MAX, |n| n as usize);
        let (mut text, mut filled) = (text, Vec::new());
        if characters.is_some() || length > 0 {
            let mut found = 0;
            let wanted = if length > 0 { wanted.min(length) } else { wanted };
            let bytes = (self.calls.front)(id, text.as_ptr(), text.len(), wanted, &mut found);
            text = text.get(..bytes)?;
            if length > 0 && found < wanted {
                filled.extend_from_slice(text);
                (found..wanted).for_each(|_| filled.extend_from_slice(blank));
                text = &filled;
            }
        }
        if about.in_passes != 0 {
            while let Some(rest) = text.strip_suffix(blank) {
                text = rest;
            }
            self.weights(id, 0, text, out);
            return Some(());
        }
        // Of CHAR with blanks that count no level goes on with more of them: it has them all.
        let padded = if length > 0 { 0 } else { about.padded };
        let mut weights = Vec::new();
        for level in (0..8u8).filter(|level| about.levels & 1 << level != 0) {
            weights.clear();
            self.weights(id, level, text, &mut weights);
            let blank = &known.blanks[usize::from(level)];
            if padded & 1 << level != 0 && !blank.is_empty() {
                put_padded(&weights, blank, out);
                continue;
            }
            out.extend_from_slice(&weights);
            if about.levels >> level > 1 {
                out.resize(out.len() + blank.len().max(1), 0);
            }
        }
        Some(())
    }
}

impl Collations for Server {
    fn characters(&self, collation: u32, text: &[u8]) -> Result<usize> {
        let id = collation % IDS;
        if collation >= FLOAT || self.known(id).is_none() {
            return Err(Error::InvalidArgument(format!("the server has no collation {id}")));
        }
        let mut found = 0;
        (self.calls.front)(id, text.as_ptr(), text.len(), usize::MAX, &mut found);
        Ok(found)
    }

    fn sort_key(&self, collation: u32, text: &[u8], characters: Option<u32>, out: &mut Vec<u8>) -> Result<()> {
        let done = match collation {
            FLOAT => text.try_into().ok().map(|bits| out.extend(order_32(f32::from_le_bytes(bits)))),
            DOUBLE => text.try_into().ok().map(|bits| out.extend(order_64(f64::from_le_bytes(bits)))),
            number if number < FLOAT => {
                let start = out.len();
                let done = self.text_key(number, text, characters, out);
                debug_assert!(done.is_none() || self.is_bounded(number, text, characters, &out[start..]));
                done
            }
            _ => None,
        };
        done.ok_or_else(|| Error::InvalidArgument(format!("the server has no collation {}", collation % IDS)))
    }
}

/// In the order of the numbers; 0 and -0 are one.
fn order_32(n: f32) -> [u8; 4] {
    let bits = if n == 0.0 { 0 } else { n.to_bits() };
    (if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }).to_be_bytes()
}

fn order_64(n: f64) -> [u8; 8] {
    let bits = if n == 0.0 { 0 } else { n.to_bits() };
    (if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }).to_be_bytes()
}

/// Weights of a text that goes on with blanks without end.
fn put_padded(weights: &[u8], blank: &[u8], out: &mut Vec<u8>) {
    let mut units = weights.chunks(blank.len()).peekable();
    loop {
        let mut stretch = 0;
        while units.next_if_eq(&blank).is_some() {
            stretch += 1;
        }
        let Some(next) = units.next() else { break };
        if stretch > 0 {
            out.extend_from_slice(blank);
            put_sign(stretch, next > blank, out);
        }
        out.extend_from_slice(next);
    }
    out.extend_from_slice(blank);
    out.push(END);
}

fn put_sign(stretch: usize, before_greater: bool, out: &mut Vec<u8>) {
    let start = out.len();
    if stretch <= STRETCH_MAX {
        out.push(stretch as u8);
    } else {
        out.push(STRETCH_MAX as u8 + 1);
        out.extend_from_slice(&u32::try_from(stretch).unwrap_or(u32::MAX).to_be_bytes());
    }
    if before_greater {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared as if both went on with blanks.
    fn padded_order(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        let longest = a.len().max(b.len());
        let at = |text: &[u8], n: usize| text.get(n).copied().unwrap_or(b' ');
        (0..longest).map(|n| at(a, n)).cmp((0..longest).map(|n| at(b, n)))
    }

    fn key(text: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        put_padded(text, b" ", &mut key);
        key
    }

    /// Guards: the signs of stretches, and the one of the end.
    #[test]
    fn padded_texts_are_ordered_as_if_they_went_on_with_blanks() {
        let mut texts = vec![Vec::new()];
        for _ in 0..6 {
            let longer = texts.iter().flat_map(|text| b"\t !b".iter().map(|&c| [text, &[c][..]].concat()));
            let longer: Vec<Vec<u8>> = longer.collect();
            texts = [vec![Vec::new()], longer].concat();
        }
        texts.extend([126, 127, 128, 70_000].map(|n| vec![b' '; n]));
        for n in [125, 126, 127, 128, 129, 300, 70_000] {
            texts.push([&vec![b' '; n][..], b"a"].concat());
            texts.push([&vec![b' '; n][..], b"\t"].concat());
        }
        let keys: Vec<Vec<u8>> = texts.iter().map(|text| key(text)).collect();
        let step = 1.max(texts.len() / 600);
        for (a, key_a) in texts.iter().zip(&keys).step_by(step) {
            for (b, key_b) in texts.iter().zip(&keys).rev().take(400).chain(texts.iter().zip(&keys).step_by(step)) {
                assert!(key_a.cmp(key_b) == padded_order(a, b), "{} and {}", a.escape_ascii(), b.escape_ascii());
            }
        }
        assert_eq!(key(b"a"), key(b"a   "));
    }

    #[test]
    fn numbers_are_ordered_and_zero_is_one() {
        let numbers = [f64::MIN, -1.5, -f64::MIN_POSITIVE, 0.0, f64::MIN_POSITIVE, 1.0, f64::MAX];
        assert!(numbers.is_sorted_by(|a, b| order_64(*a) < order_64(*b)));
        assert!(numbers.iter().map(|n| order_32(*n as f32)).is_sorted());
        assert_eq!(order_64(-0.0), order_64(0.0));
        assert_eq!(order_32(-0.0), order_32(0.0));
    }
}
