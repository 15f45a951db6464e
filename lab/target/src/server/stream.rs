//! The bytes between here and a server: a unix socket, or a connection over the network, encrypted or not.
//!
//! A read of a unix socket waits by `poll` first. Who sleeps in the read itself is woken twice a statement: Linux also wakes
//! readers when the server has taken what was sent, to say that there is room again. `poll` names what it waits for and sleeps
//! on; the call more costs less than a third of a wake-up.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use super::tls::{self, Secured, Tls};

/// How long whoever is asked over the network may take to answer, until it has let in: another service than a database may listen
/// there and say nothing. A statement may take as long as it takes.
const ENTRY_LIMIT: Duration = Duration::from_secs(20);

/// A connection.
pub enum Stream {
    /// Over the network.
    Tcp(TcpStream),
    /// Over the network, encrypted.
    Secured(Box<Secured>),
    /// On this machine.
    Unix(UnixStream),
}

impl Stream {
    /// By a file of this machine.
    pub fn local(path: &Path) -> io::Result<Stream> {
        UnixStream::connect(path).map(Stream::Unix)
    }

    /// Over the network, not encrypted yet. Until [`Stream::is_let_in`] silence is an error.
    pub fn remote(host: &str, port: u16) -> io::Result<Stream> {
        Stream::within(host, port, ENTRY_LIMIT)
    }

    fn within(host: &str, port: u16, limit: Duration) -> io::Result<Stream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, limit) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(limit))?;
                    return Ok(Stream::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// From here on an answer may take as long as it takes.
    pub fn is_let_in(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(None),
            Stream::Secured(stream) => stream.get_ref().set_read_timeout(None),
            Stream::Unix(_) => Ok(()),
        }
    }

    /// Encrypted from here on, as both sides have agreed.
    pub fn secured(self, tls: &Tls, host: &str) -> io::Result<Stream> {
        match self {
            Stream::Tcp(stream) => Ok(Stream::Secured(Box::new(tls::secured(tls, host, stream)?))),
            other => Ok(other),
        }
    }

    /// Whether nobody on the way reads what is said.
    pub fn is_private(&self) -> bool {
        !matches!(self, Stream::Tcp(_))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer).map_err(in_words),
            Stream::Secured(stream) => stream.read(buffer).map_err(in_words),
            Stream::Unix(stream) => {
                retry_on_intr(|| poll(&mut [PollFd::new(&*stream, PollFlags::IN)], None))?;
                stream.read(buffer)
            }
        }
    }
}

/// The system's own words for a limit of time are `Resource temporarily unavailable`.
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "it says nothing"),
        _ => error,
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buffer),
            Stream::Secured(stream) => stream.write(buffer),
            Stream::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.flush(),
            Stream::Secured(stream) => stream.flush(),
            Stream::Unix(stream) => stream.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleeps of this thread in calls of the kernel.
    fn sleeps() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse().unwrap()
    }

    /// Somebody who listens and says nothing, for whom a run would wait for ever.
    #[test]
    fn a_server_that_says_nothing_is_an_error_until_it_has_let_in() {
        let listens = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listens.local_addr().unwrap().port();
        let mut stream = Stream::within("127.0.0.1", port, Duration::from_millis(50)).unwrap();
        let error = stream.read(&mut [0]).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::TimedOut, "it says nothing".to_owned()));
        let (mut other, _) = listens.accept().unwrap();
        stream.is_let_in().unwrap();
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            other.write_all(b"a").unwrap();
        });
        assert_eq!(stream.read(&mut [0]).unwrap(), 1);
        late.join().unwrap();
    }

    /// An answer that comes a moment after the question was taken: one sleep for both.
    #[test]
    fn a_question_taken_wakes_nobody_who_waits_for_the_answer() {
        const QUESTIONS: u64 = 50;
        let (own, mut other) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let mut question = [0; 8];
            while other.read_exact(&mut question).is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(1));
                other.write_all(&question).unwrap();
            }
        });
        let mut stream = Stream::Unix(own);
        let before = sleeps();
        for _ in 0..QUESTIONS {
            let mut answer = [0; 8];
            stream.write_all(b"question").unwrap();
            stream.read_exact(&mut answer).unwrap();
        }
        let slept = sleeps() - before;
        drop(stream);
        server.join().unwrap();
        assert!((QUESTIONS / 2..QUESTIONS * 3 / 2).contains(&slept), "{slept} sleeps for {QUESTIONS} answers");
    }
}
