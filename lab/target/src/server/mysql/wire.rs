//! Packets to and from MariaDB and MySQL: four bytes of head, length and number, then at most 16 MB - 1 of a payload; a longer
//! payload goes on in the next packet.
//!
//! A statement is one write, and its answer as many reads as it has pieces of [`PIECE`]. Both buffers stay with the connection,
//! and a payload is looked at where it was read.

use std::io::{self, Read, Write};
use std::ops::Range;

use super::super::stream::Stream;

/// Bytes that are asked for at a time.
const PIECE: usize = 64 << 10;
/// Length and number of a packet.
const HEAD: usize = 4;
/// A packet of this length goes on in the next one.
const MOST: usize = 0xff_ffff;

/// A connection. Generic for tests alone.
pub struct Wire<S = Stream> {
    /// Where to.
    pub stream: S,
    /// What was read and not taken yet: the bytes of `input` in `unread`.
    input: Vec<u8>,
    unread: Range<usize>,
    /// The payload that was received last, in `input`.
    payload: Range<usize>,
    /// Room for a head, and the payload behind it.
    output: Vec<u8>,
    /// Of the next packet, whoever sends it.
    number: u8,
}

impl<S: Read + Write> Wire<S> {
    /// Nothing is said yet; the server begins.
    pub fn new(stream: S) -> Wire<S> {
        Wire { stream, input: Vec::new(), unread: 0..0, payload: 0..0, output: Vec::new(), number: 0 }
    }

    /// Goes on over another stream. What has come over this one and was not asked for is refused: who listens on the way could have it taken for
    /// what comes encrypted.
    pub fn over<T>(self, change: impl FnOnce(S) -> io::Result<T>) -> io::Result<Wire<T>> {
        let Wire { stream, input, unread, payload, output, number } = self;
        if !unread.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes in clear before what is to be encrypted"));
        }
        Ok(Wire { stream: change(stream)?, input, unread, payload, output, number })
    }

    /// Where the payload of a new command is written.
    pub fn command(&mut self, command: u8) -> &mut Vec<u8> {
        self.number = 0;
        let output = self.reply();
        output.push(command);
        output
    }

    /// Where the payload of an answer to the server is written.
    pub fn reply(&mut self) -> &mut Vec<u8> {
        self.output.clear();
        self.output.extend([0; HEAD]);
        &mut self.output
    }

    /// Sends what was written.
    pub fn send(&mut self) -> io::Result<()> {
        let length = self.output.len() - HEAD;
        if length < MOST {
            let head = head(length, self.next_number());
            self.output[..HEAD].copy_from_slice(&head);
            self.stream.write_all(&self.output)?;
            return self.stream.flush();
        }
        // The last packet is not full, and empty if need be.
        let mut from = HEAD;
        loop {
            let piece = MOST.min(self.output.len() - from);
            let head = head(piece, self.next_number());
            self.stream.write_all(&head)?;
            self.stream.write_all(&self.output[from..from + piece])?;
            from += piece;
            if piece < MOST {
                return self.stream.flush();
            }
        }
    }

    fn next_number(&mut self) -> u8 {
        let number = self.number;
        self.number = number.wrapping_add(1);
        number
    }

    /// Reads the next payload.
    pub fn receive(&mut self) -> io::Result<&[u8]> {
        let mut length = self.packet(0)?;
        let mut whole = length;
        while length == MOST {
            length = self.packet(whole)?;
            whole += length;
        }
        self.payload = self.unread.start..self.unread.start + whole;
        self.unread.start += whole;
        Ok(self.payload())
    }

    /// The payload that was received last.
    pub fn payload(&self) -> &[u8] {
        &self.input[self.payload.clone()]
    }

    /// Has a packet's bytes behind the first `there` of `unread`, its head taken out; tells how many there are.
    fn packet(&mut self, there: usize) -> io::Result<usize> {
        self.fill(there + HEAD)?;
        let at = self.unread.start + there;
        let [low, middle, high, number] = [0, 1, 2, 3].map(|place| self.input[at + place]);
        if number != self.next_number() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "packets out of order"));
        }
        if there == 0 {
            self.unread.start += HEAD;
        } else {
            self.input.copy_within(at + HEAD..self.unread.end, at);
            self.unread.end -= HEAD;
        }
        let length = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        self.fill(there + length)?;
        Ok(length)
    }

    /// Reads until so many bytes are unread.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.unread.len() >= wanted {
            return Ok(());
        }
        let there = self.unread.len();
        self.input.copy_within(self.unread.clone(), 0);
        self.unread = 0..there;
        if self.input.len() < wanted.max(PIECE) {
            self.input.resize(wanted.max(PIECE).next_power_of_two(), 0);
        }
        while self.unread.len() < wanted {
            match self.stream.read(&mut self.input[self.unread.end..]) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it")),
                Ok(read) => self.unread.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn head(length: usize, number: u8) -> [u8; HEAD] {
    let [low, middle, high, ..] = length.to_le_bytes();
    [low, middle, high, number]
}

/// What is left of a payload that is read piece by piece.
#[derive(Clone, Copy)]
pub struct Left<'a>(pub &'a [u8]);

impl<'a> Left<'a> {
    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (bytes, left) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = left;
        Ok(bytes)
    }

    /// So many bytes as an array.
    pub fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| short())
    }

    /// One byte.
    pub fn byte(&mut self) -> io::Result<u8> {
        self.array().map(|[byte]| byte)
    }

    /// A number of one to nine bytes; nothing where it stands for NULL.
    pub fn number(&mut self) -> io::Result<Option<u64>> {
        let (first, mut wide) = (self.byte()?, [0; 8]);
        let width = match first {
            0xfb => return Ok(None),
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            0xff => return Err(io::Error::new(io::ErrorKind::InvalidData, "a length that is none")),
            small => return Ok(Some(small.into())),
        };
        wide[..width].copy_from_slice(self.bytes(width)?);
        Ok(Some(u64::from_le_bytes(wide)))
    }

    /// Bytes behind their number; nothing for NULL.
    pub fn text(&mut self) -> io::Result<Option<&'a [u8]>> {
        let Some(length) = self.number()? else { return Ok(None) };
        self.bytes(usize::try_from(length).map_err(|_| short())?).map(Some)
    }
}

/// Of a payload that ends too early.
pub fn short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer that ends too early")
}

/// Writes a number of one to nine bytes.
pub fn put_number(number: u64, out: &mut Vec<u8>) {
    let wide = number.to_le_bytes();
    match number {
        0..=0xfa => out.push(wide[0]),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend(&wide[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend(&wide[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend(wide);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives what it got, at most `piece` bytes at a time.
    struct Echo {
        bytes: Vec<u8>,
        given: usize,
        piece: usize,
    }

    impl Read for Echo {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.piece).min(self.bytes.len() - self.given);
            buffer[..count].copy_from_slice(&self.bytes[self.given..self.given + count]);
            self.given += count;
            Ok(count)
        }
    }

    impl Write for Echo {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            self.bytes.extend_from_slice(buffer);
            Ok(buffer.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn echo(piece: usize) -> Wire<Echo> {
        Wire::new(Echo { bytes: Vec::new(), given: 0, piece })
    }

    #[test]
    fn payloads_come_as_they_were_sent_in_whatever_pieces() {
        for (piece, lengths) in [
            (1, vec![0, 1, 250]),
            (3, vec![5, 0, 70_000, 1]),
            (usize::MAX, vec![1, PIECE, 0, 3 * PIECE, 7]),
            (1 << 20, vec![9, MOST - 1, 3, MOST, 4, MOST + 1, 2 * MOST, 5]),
        ] {
            let mut wire = echo(piece);
            let of = |length: usize| (0..length).map(|place| (place * 31 + length) as u8).collect::<Vec<u8>>();
            for length in &lengths {
                wire.reply().extend(of(*length));
                wire.send().unwrap();
            }
            wire.number = 0;
            for length in &lengths {
                assert!(*wire.receive().unwrap() == of(*length)[..], "{length} in pieces of {piece}");
                assert_eq!(wire.payload().len(), *length);
            }
            assert_eq!(wire.receive().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    /// Guard: what came before in clear goes with the stream that it came over.
    #[test]
    fn what_nobody_asked_for_is_not_taken_along_to_another_stream() {
        let mut wire = echo(usize::MAX);
        for _ in 0..2 {
            wire.reply().push(7);
            wire.send().unwrap();
        }
        wire.number = 0;
        wire.receive().unwrap();
        assert!(wire.over(Ok).map(|_| ()).unwrap_err().to_string().contains("in clear"));
        let mut wire = echo(usize::MAX);
        wire.command(7);
        wire.send().unwrap();
        wire.number = 0;
        wire.receive().unwrap();
        assert!(wire.over(Ok).is_ok());
    }

    #[test]
    fn a_packet_of_another_answer_is_refused() {
        let mut wire = echo(usize::MAX);
        wire.command(3).push(1);
        wire.send().unwrap();
        wire.number = 1;
        assert!(wire.receive().unwrap_err().to_string().contains("out of order"));
    }

    #[test]
    fn numbers_are_read_as_written_and_what_is_cut_off_is_refused() {
        for number in [0, 0xfa, 0xfb, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(number, &mut bytes);
            let mut left = Left(&bytes);
            assert_eq!((left.number().unwrap(), left.0.len()), (Some(number), 0));
            assert!(Left(&bytes[..bytes.len() - 1]).number().is_err());
        }
        assert_eq!(Left(&[0xfb]).text().unwrap(), None);
        assert_eq!(Left(&[2, 7, 8]).text().unwrap(), Some(&[7, 8][..]));
        assert!(Left(&[3, 7, 8]).text().is_err() && Left(&[0xff]).number().is_err());
    }
}
