//! A small HTTP client over plain sockets: enough to see whether a request was answered, and with what.

#![allow(dead_code, reason = "every test file uses another part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Kept for several requests.
pub struct Client {
    stream: BufReader<TcpStream>,
    /// The server announced that it closes.
    pub closing: bool,
}

impl Client {
    pub fn connect(port: u16) -> Result<Client, String> {
        Client::of(TcpStream::connect(("127.0.0.1", port)).map_err(|e| format!("connect: {e}"))?)
    }

    pub fn of(stream: TcpStream) -> Result<Client, String> {
        stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(Client { stream: BufReader::new(stream), closing: false })
    }

    /// Asks for `/`; status and body.
    pub fn get(&mut self) -> Result<(u16, String), String> {
        self.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    }

    /// Sends a request; status and body.
    pub fn ask(&mut self, request: &str) -> Result<(u16, String), String> {
        let (status, _, body) = self.exchange(request)?;
        Ok((status, body))
    }

    /// Sends a request; status and head.
    pub fn ask_for_head(&mut self, request: &str) -> Result<(u16, String), String> {
        let (status, head, _) = self.exchange(request)?;
        Ok((status, head))
    }

    /// Sends a request; status, head and body.
    pub fn ask_for_all(&mut self, request: &str) -> Result<(u16, String, String), String> {
        self.exchange(request)
    }

    fn exchange(&mut self, request: &str) -> Result<(u16, String, String), String> {
        self.stream.get_mut().write_all(request.as_bytes()).map_err(|e| format!("write: {e}"))?;
        let mut line = String::new();
        let next = |line: &mut String, stream: &mut BufReader<TcpStream>| {
            line.clear();
            match stream.read_line(line) {
                Ok(0) => Err("the connection was closed".to_string()),
                Ok(_) => Ok(()),
                Err(e) => Err(format!("read: {e}")),
            }
        };
        next(&mut line, &mut self.stream)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or(format!("no status: {line}"))?;
        let (mut head, mut length, mut chunked) = (line.clone(), 0, false);
        loop {
            next(&mut line, &mut self.stream)?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("connection") {
                self.closing = value.trim() == "close";
            } else if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(|_| format!("length: {line}"))?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = true;
            }
            head.push_str(&line.replace("\r\n", "\n"));
        }
        let mut body = Vec::new();
        while chunked {
            next(&mut line, &mut self.stream)?;
            let size = usize::from_str_radix(line.trim(), 16).map_err(|_| format!("chunk: {line}"))?;
            let start = body.len();
            body.resize(start + size, 0);
            self.stream.read_exact(&mut body[start..]).map_err(|e| format!("chunk: {e}"))?;
            next(&mut line, &mut self.stream)?;
            chunked = size > 0;
        }
        if length > 0 {
            body.resize(length, 0);
            self.stream.read_exact(&mut body).map_err(|e| format!("body: {e}"))?;
        }
        Ok((status, head, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Returns the socket; all responses must have been read.
    pub fn into_inner(self) -> TcpStream {
        self.stream.into_inner()
    }

    /// Tells whether the peer has closed, after all its bytes are read.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.fill_buf(), Ok([]) | Err(_))
    }
}

/// Sends one request on a new connection.
pub fn get(port: u16) -> Result<(u16, String), String> {
    Client::connect(port)?.ask("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

/// Reads until the received bytes contain the text.
pub fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&got).contains(text) {
        let n = stream.read(&mut buffer).expect("readable");
        assert!(n > 0, "ended early: {}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&buffer[..n]);
    }
    String::from_utf8_lossy(&got).into_owned()
}
