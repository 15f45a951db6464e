//! HTTP as far as pages need it: one request a connection, its head read up to a size and a time, never a body, and the
//! connection closed behind the answer.
//!
//! Nobody can hold a worker: each wait of a connection is short, what is waited for in all has a limit, and every wait looks
//! whether the server is to end. What a client claims is never a size of memory. A connection that cannot be accepted, or a
//! page that panics, is one that is not answered, and nothing else.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::answer::Answer;

/// Requests answered at a time.
const WORKERS: usize = 8;
/// Connections that wait for a worker; what comes on top is closed.
const WAITING: usize = 64;
/// The longest head.
const LARGEST_HEAD_BYTES: usize = 8 << 10;
/// A head that is not whole by then is not waited for.
const HEAD_WITHIN: Duration = Duration::from_secs(3);
/// A client that takes nothing of its answer for so long is gone.
const STALLED: Duration = Duration::from_secs(3);
/// A client that has not taken all of it by then is, too.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// How often a wait looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// What is read and thrown away behind an answer, so that the client still sees it.
const DRAINED_BYTES: usize = 64 << 10;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// `GET` or another.
    pub method: String,
    /// Path and query.
    pub address: String,
    /// Under which name this server was asked.
    pub host: Option<String>,
    /// Where a browser says that the request comes from.
    pub site: Option<String>,
}

/// Why there is no head.
#[derive(Debug, PartialEq, Eq)]
enum Unread {
    /// Nobody waits for an answer.
    Gone,
    /// What is answered.
    Refused(u16, &'static str),
}

/// Answers until it is to end.
pub fn answer_all(listener: &TcpListener, ends: &AtomicBool, answer: &(dyn Fn(&Head) -> Answer + Sync)) {
    let (sender, receiver) = sync_channel::<TcpStream>(WAITING);
    let receiver = Mutex::new(receiver);
    let is_closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(stream) = next(&receiver) {
                    // A panic is said by its hook; the client sees its connection closed.
                    let _ = catch_unwind(AssertUnwindSafe(|| respond(stream, ends, answer)));
                }
            });
        }
        scope.spawn(|| wake(listener, ends, &is_closed));
        while !ends.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((stream, _)) => drop(sender.try_send(stream)),
                // A client that left again, or no room for one more file: both pass.
                Err(_) => std::thread::sleep(LOOK),
            }
        }
        is_closed.store(true, Ordering::Relaxed);
        drop(sender);
    });
}

fn next(receiver: &Mutex<Receiver<TcpStream>>) -> Option<TcpStream> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Waits for the end, then asks for a connection, so that whoever waits for one looks.
fn wake(listener: &TcpListener, ends: &AtomicBool, is_closed: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    let Ok(mut address) = listener.local_addr() else { return };
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        _ => {}
    }
    while !is_closed.load(Ordering::Relaxed) {
        let _ = TcpStream::connect_timeout(&SocketAddr::new(address.ip(), address.port()), LOOK);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Answers the request of one connection; whoever does not wait for the answer is nobody's trouble.
fn respond(mut stream: TcpStream, ends: &AtomicBool, answer: &(dyn Fn(&Head) -> Answer + Sync)) {
    let set = stream.set_read_timeout(Some(LOOK)).and_then(|()| stream.set_write_timeout(Some(LOOK)));
    if set.is_err() {
        return;
    }
    let read = read_head(&mut stream, ends).and_then(|text| head_of(&text));
    let (made, is_head_only, is_whole) = match &read {
        Ok(head) if matches!(head.method.as_str(), "GET" | "HEAD") => {
            let made = catch_unwind(AssertUnwindSafe(|| answer(head)));
            let made = made
                .unwrap_or_else(|_| Answer::refused(500, "this page failed: what failed is on the server's terminal"));
            (made, head.method == "HEAD", true)
        }
        Ok(_) => (Answer::refused(405, "only GET and HEAD: nothing can be changed here"), false, false),
        Err(Unread::Refused(status, why)) => (Answer::refused(*status, why), false, false),
        Err(Unread::Gone) => return,
    };
    let mut bytes = made.head().into_bytes();
    if !is_head_only {
        bytes.extend_from_slice(made.body.as_bytes());
    }
    if write_all(&mut stream, &bytes, ends).is_ok() && !is_whole {
        drain(&mut stream, ends);
    }
}

/// Whether a wait is only over for now.
fn is_a_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn read_head(stream: &mut impl Read, ends: &AtomicBool) -> Result<String, Unread> {
    let began = Instant::now();
    let mut bytes = Vec::with_capacity(1 << 10);
    let mut piece = [0; 1 << 10];
    loop {
        if let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            bytes.truncate(end);
            return String::from_utf8(bytes).map_err(|_| Unread::Refused(400, "this request is no text"));
        }
        if bytes.len() >= LARGEST_HEAD_BYTES {
            return Err(Unread::Refused(431, "a request has 8 KiB at most"));
        }
        if began.elapsed() > HEAD_WITHIN {
            return Err(Unread::Refused(408, "the request did not come in time"));
        }
        if ends.load(Ordering::Relaxed) {
            return Err(Unread::Gone);
        }
        let room = piece.len().min(LARGEST_HEAD_BYTES - bytes.len());
        match stream.read(&mut piece[..room]) {
            Ok(0) => return Err(Unread::Gone),
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if is_a_wait(&error) => {}
            Err(_) => return Err(Unread::Gone),
        }
    }
}

fn head_of(text: &str) -> Result<Head, Unread> {
    const BAD: Unread = Unread::Refused(400, "this is no request of HTTP/1");
    let mut lines = text.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, address, version] = words.as_slice() else { return Err(BAD) };
    if !address.starts_with('/') || !version.starts_with("HTTP/1.") {
        return Err(BAD);
    }
    let mut head = Head { method: (*method).into(), address: (*address).into(), host: None, site: None };
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(BAD)?;
        let place = match name.to_ascii_lowercase().as_str() {
            "host" => &mut head.host,
            "sec-fetch-site" => &mut head.site,
            _ => continue,
        };
        // Two of them would be believed by one reader and not by the other.
        if place.replace(value.trim().to_owned()).is_some() {
            return Err(BAD);
        }
    }
    Ok(head)
}

fn write_all(stream: &mut impl Write, mut bytes: &[u8], ends: &AtomicBool) -> io::Result<()> {
    let began = Instant::now();
    let mut moved = began;
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                moved = Instant::now();
            }
            Err(error) if is_a_wait(&error) => {}
            Err(error) => return Err(error),
        }
        let is_late = moved.elapsed() > STALLED || began.elapsed() > ANSWERED_WITHIN || ends.load(Ordering::Relaxed);
        if is_late && !bytes.is_empty() {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// What was sent and not read would take the answer away from the client as the connection closes.
fn drain(stream: &mut TcpStream, ends: &AtomicBool) {
    let began = Instant::now();
    let mut piece = [0; 1 << 10];
    let mut left = DRAINED_BYTES;
    let _ = stream.shutdown(Shutdown::Write);
    while left > 0 && began.elapsed() < LOOK * 2 && !ends.load(Ordering::Relaxed) {
        match stream.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => left = left.saturating_sub(count),
            Err(error) if is_a_wait(&error) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_sent_and_nothing_else_is_one() {
        let head = head_of("GET /a?b=c HTTP/1.1\r\nhOsT: localhost:1 \r\nAccept: x:y\r\nSec-Fetch-Site: none").unwrap();
        assert_eq!((head.method.as_str(), head.address.as_str()), ("GET", "/a?b=c"));
        assert_eq!((head.host.as_deref(), head.site.as_deref()), (Some("localhost:1"), Some("none")));
        for text in
            ["", "GET /", "GET / HTTP/2", "GET http://h/ HTTP/1.1", "GET / HTTP/1.1\r\nno name", "GET  / HTTP/1.1"]
        {
            assert!(matches!(head_of(text), Err(Unread::Refused(400, _))), "{text:?}");
        }
        assert!(head_of("GET / HTTP/1.1\r\nHost: a\r\nhost: b").is_err());
    }

    #[test]
    fn a_head_has_an_end_in_size() {
        let ends = AtomicBool::new(false);
        assert!(matches!(read_head(&mut io::repeat(b'x'), &ends), Err(Unread::Refused(431, _))));
        assert_eq!(read_head(&mut &b"GET / HTTP/1.1\r\n\r\nrest"[..], &ends).as_deref(), Ok("GET / HTTP/1.1"));
        assert_eq!(read_head(&mut &b"GET /"[..], &ends), Err(Unread::Gone));
    }
}
