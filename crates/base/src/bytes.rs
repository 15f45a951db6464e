//! Byte order of everything stored: little-endian fixed integers and LEB128 variable-length integers,
//! read through a bounded reader that never panics on hostile bytes.

/// Appends `n` as LEB128.
pub fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n as u8) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads from the front of a slice. Every method returns `None` past the end or on a malformed integer.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the front.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True when all was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        if n > self.rest.len() {
            return None;
        }
        let (front, rest) = self.rest.split_at(n);
        self.rest = rest;
        Some(front)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    /// A little-endian `u16`.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.take(2).and_then(|b| b.try_into().ok()).map(u16::from_le_bytes)
    }

    /// A little-endian `u32`.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
    }

    /// A little-endian `u64`.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
    }

    /// A LEB128 integer of at most ten bytes.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        // Most are lengths and small numbers.
        match *self.rest {
            [low, ref rest @ ..] if low < 0x80 => {
                self.rest = rest;
                Some(u64::from(low))
            }
            [low, high, ref rest @ ..] if high < 0x80 => {
                self.rest = rest;
                Some(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            [low, middle, high, ref rest @ ..] if high < 0x80 => {
                self.rest = rest;
                Some(u64::from(low & 0x7f) | u64::from(middle & 0x7f) << 7 | u64::from(high) << 14)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    /// A LEB128 integer that fits a `usize`.
    #[inline]
    pub fn length(&mut self) -> Option<usize> {
        self.varint().and_then(|n| usize::try_from(n).ok())
    }

    /// A length and that many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.length()?;
        self.take(n)
    }
}

/// Printable form of a key for messages: ASCII as it is, the rest as hex, cut at 40 bytes.
#[must_use]
pub fn printable(key: &[u8]) -> String {
    use std::fmt::Write;
    let mut s = String::new();
    for &b in key.iter().take(40) {
        if (0x20..0x7f).contains(&b) && b != b'\\' {
            s.push(b as char);
        } else {
            let _ = write!(s, "\\x{b:02x}");
        }
    }
    if key.len() > 40 {
        let _ = write!(s, "… ({} bytes)", key.len());
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        for n in
            [0, 1, 127, 128, 300, 16_383, 16_384, 2_097_151, 2_097_152, u64::from(u32::MAX), u64::MAX - 1, u64::MAX]
        {
            let mut out = Vec::new();
            put_varint(&mut out, n);
            let mut r = Reader::new(&out);
            assert_eq!(r.varint(), Some(n));
            assert!(r.is_empty());
        }
    }

    #[test]
    fn hostile_bytes_end_in_none() {
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
        assert_eq!(Reader::new(&[0x80]).varint(), None);
        assert_eq!(Reader::new(&[5, 1, 2]).bytes(), None);
        assert_eq!(Reader::new(&[1, 2, 3]).u32(), None);
    }
}
