//! Backends that answer with their port, and clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// A backend of one test. Its threads end with the process of the tests.
pub struct Backend {
    pub port: u16,
}

impl Backend {
    pub fn start() -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                std::thread::spawn(move || answer(stream, port));
            }
        });
        Backend { port }
    }
}

fn answer(stream: TcpStream, port: u16) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    let mut line = String::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        if line == "\r\n" {
            let body = port.to_string();
            write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok()?;
        }
    }
}

#[derive(Debug)]
pub struct BackendAnswer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// A client that keeps its connection, if it can.
pub struct KeepaliveClient {
    port: u16,
    connection: Option<BufReader<TcpStream>>,
}

impl KeepaliveClient {
    pub fn new(port: u16) -> KeepaliveClient {
        KeepaliveClient { port, connection: None }
    }

    /// Sends a request and reads its response.
    pub fn get(&mut self, host: &str) -> Result<BackendAnswer, String> {
        let error = |error: std::io::Error| format!("{host}: {error}");
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).map_err(error)?),
        };
        write!(connection.get_mut(), "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").map_err(error)?;
        let mut head = String::new();
        loop {
            let start = head.len();
            if connection.read_line(&mut head).map_err(error)? == 0 {
                return Err(format!("{host}: the connection ends without a response: {head}"));
            }
            if &head[start..] == "\r\n" {
                break;
            }
        }
        let field = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let length = field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        connection.read_exact(&mut body).map_err(error)?;
        if field("connection").as_deref() != Some("close") {
            self.connection = Some(connection);
        }
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Ok(BackendAnswer { status, body: String::from_utf8_lossy(&body).into_owned(), head })
    }
}
