//! Scripted origins on real sockets, and a name server.

#![allow(dead_code, reason = "every test file uses another part")]

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval at which a blocked thread checks for the end of the test.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum size of a request.
const REQUEST_MAX: usize = 64 << 20;

pub struct Talk<'a> {
    pub stream: TcpStream,
    /// Index of the connection, from 0.
    pub number: usize,
    over: &'a AtomicBool,
    buf: Vec<u8>,
}

impl Talk<'_> {
    /// Reads the next request and drops its body. Returns the head; `None` at the end.
    pub fn request(&mut self) -> Option<String> {
        let end = loop {
            if let Some(at) = self.buf.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.buf[..end]).into_owned();
        self.buf.drain(..end);
        let lower = head.to_ascii_lowercase();
        let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length: usize = length.and_then(|n| n.trim().parse().ok()).unwrap_or(0);
        while self.buf.len() < length {
            self.more()?;
        }
        self.buf.drain(..length);
        Some(head)
    }
    /// Reads until the closure returns the length of a complete request.
    pub fn until(&mut self, whole: impl Fn(&[u8]) -> Option<usize>) -> Option<Vec<u8>> {
        loop {
            if let Some(n) = whole(&self.buf) {
                return Some(self.buf.drain(..n).collect());
            }
            self.more()?;
        }
    }
    pub fn some(&mut self) -> Option<Vec<u8>> {
        self.more()?;
        Some(std::mem::take(&mut self.buf))
    }
    fn more(&mut self) -> Option<()> {
        let mut some = [0; 16 * 1024];
        loop {
            if self.over.load(Ordering::Relaxed) || self.buf.len() > REQUEST_MAX {
                return None;
            }
            match self.stream.read(&mut some) {
                Ok(0) => return None,
                Ok(n) => {
                    self.buf.extend_from_slice(&some[..n]);
                    return Some(());
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return None,
            }
        }
    }
    /// Sends; `false` if not all bytes were sent.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.over.load(Ordering::Relaxed) {
                return false;
            }
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return false,
            }
        }
        true
    }
    /// Sends single bytes.
    pub fn send_slowly(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| self.send(&[*byte]))
    }
    /// Waits until the other side has closed or the test is over.
    pub fn hang(&mut self) {
        while self.more().is_some() {}
    }
    /// Reads nothing more until the test is over.
    pub fn ignore(&self) {
        while !self.is_over() {
            super::pace(LOOK);
        }
    }
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
    /// Ends with RST instead of FIN.
    pub fn reset(self) {
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// An origin on a free port, with a thread per connection that runs a closure.
pub struct Origin {
    pub port: u16,
    pub connections: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl Origin {
    pub fn new(act: impl Fn(Talk<'_>) + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind(("127.0.0.1", testkit::free_port())).expect("a port");
        Origin::on(listener, act)
    }
    pub fn on(listener: TcpListener, act: impl Fn(Talk<'_>) + Send + Sync + 'static) -> Origin {
        let port = listener.local_addr().expect("address").port();
        // Also ends `accept`.
        socket2::SockRef::from(&listener).set_read_timeout(Some(LOOK)).expect("a timeout");
        let (over, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (its_over, its_connections, act) = (over.clone(), connections.clone(), Arc::new(act));
        let accept = move || {
            let mut threads: Vec<JoinHandle<()>> = Vec::new();
            while !its_over.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else { continue };
                let _ = stream.set_nodelay(true);
                let _ = stream.set_read_timeout(Some(LOOK));
                let _ = stream.set_write_timeout(Some(LOOK));
                let number = its_connections.fetch_add(1, Ordering::Relaxed);
                let (over, act) = (its_over.clone(), act.clone());
                threads.retain(|thread| !thread.is_finished());
                threads.push(std::thread::spawn(move || act(Talk { stream, number, over: &over, buf: Vec::new() })));
            }
            drop(listener);
            for thread in threads {
                let _ = thread.join();
            }
        };
        Origin { port, connections, over, listener: Some(std::thread::spawn(accept)) }
    }
    /// Answers every request with a closure's bytes; a connection ends when they are empty.
    pub fn answering(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Origin {
        Origin::new(move |mut talk| {
            while let Some(request) = talk.request() {
                let bytes = answer(&request);
                if bytes.is_empty() || !talk.send(&bytes) {
                    return;
                }
            }
        })
    }
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

/// With a `Content-Length`.
pub fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A name server over UDP that knows A records only.
pub struct NameServer {
    pub port: u16,
    names: Arc<Mutex<HashMap<String, Vec<Ipv4Addr>>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    pub fn new() -> NameServer {
        let socket = UdpSocket::bind(("127.0.0.1", testkit::free_port())).expect("a port");
        let port = socket.local_addr().expect("address").port();
        socket.set_read_timeout(Some(LOOK)).expect("timeout");
        let names: Arc<Mutex<HashMap<String, Vec<Ipv4Addr>>>> = Arc::default();
        let over = Arc::new(AtomicBool::new(false));
        let (its_names, its_over) = (names.clone(), over.clone());
        let serve = move || {
            let mut buf = [0; 512];
            while !its_over.load(Ordering::Relaxed) {
                let Ok((n, from)) = socket.recv_from(&mut buf) else { continue };
                let answer = answer(&buf[..n], &its_names.lock().expect("names"));
                let _ = socket.send_to(&answer, from);
            }
        };
        NameServer { port, names, over, thread: Some(std::thread::spawn(serve)) }
    }
    pub fn set(&self, name: &str, addresses: &[Ipv4Addr]) {
        self.names.lock().expect("names").insert(name.into(), addresses.to_vec());
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(question: &[u8], names: &HashMap<String, Vec<Ipv4Addr>>) -> Vec<u8> {
    let (mut name, mut at) = (Vec::new(), 12);
    while let Some(length) = question.get(at).map(|n| usize::from(*n)).filter(|n| *n > 0) {
        if let Some(label) = question.get(at + 1..at + 1 + length) {
            name.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        }
        at += 1 + length;
    }
    let is_a = question.get(at + 1..at + 3) == Some(&[0, 1]);
    let known = names.get(&name.join("."));
    let found: &[Ipv4Addr] = known.filter(|_| is_a).map_or(&[], Vec::as_slice);
    let mut out = question.get(..2).unwrap_or(&[0, 0]).to_vec();
    out.extend_from_slice(&[0x81, if known.is_some() { 0x80 } else { 0x83 }, 0, 1, 0, found.len() as u8, 0, 0, 0, 0]);
    out.extend_from_slice(question.get(12..at + 5).unwrap_or_default());
    for address in found {
        // The name is the question's; class IN, one second.
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        out.extend_from_slice(&address.octets());
    }
    out
}
