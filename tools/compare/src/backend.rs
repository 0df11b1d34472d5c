//! The server behind the proxies: fixed responses, and an echo of the request. Tells the gateway protocols by the first byte.

use crate::peers::Peer;
use crate::{documents, gateway};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs in background threads until the process ends.
pub struct Backend {
    pub port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    /// For HTTP/2, gRPC and TLS.
    pub peer: Option<Peer>,
}

impl Backend {
    /// # Errors
    /// No socket.
    pub fn start() -> std::io::Result<Backend> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let notes = notes.clone();
                std::thread::spawn(move || serve(stream, port, &notes));
            }
        });
        Ok(Backend { port, seen, peer: None })
    }
    /// Drops recorded requests.
    pub fn forget(&self) {
        if let Ok(mut seen) = self.seen.lock() {
            seen.clear();
        }
    }
}

/// Answers request after request of one connection.
fn serve(stream: TcpStream, port: u16, seen: &Mutex<Vec<String>>) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let Ok(mut out) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    match reader.fill_buf().map(|bytes| bytes.first().copied()) {
        // Methods of HTTP have capital letters.
        Ok(Some(first)) if !first.is_ascii_uppercase() => {
            // The client sees a broken connection as the end.
            let _ = gateway::serve_connection(first, &mut reader, &mut out);
            return;
        }
        Ok(Some(_)) => {}
        Ok(None) | Err(_) => return,
    }
    let mut count = 0;
    loop {
        let mut head = String::new();
        loop {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(n) if n > 0 => {}
                _ => return,
            }
            head += &String::from_utf8_lossy(&line);
            if line == b"\r\n" {
                break;
            }
        }
        let lower = head.to_ascii_lowercase();
        let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        if let Ok(mut seen) = seen.lock() {
            seen.push(head.clone());
        }
        count += 1;
        let answer = match slice_query(&head) {
            Some(query) => documents::slice_response(query, &head, count),
            None => answer(&head, &body, port),
        };
        let last = lower.contains("connection: close") || lower.contains(" http/1.0\r\n");
        if out.write_all(&answer).is_err() || last {
            return;
        }
    }
}

/// Returns the query of a request for the resource that is served in slices.
fn slice_query(head: &str) -> Option<&str> {
    let target = head.split(' ').nth(1)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    path.ends_with("/sliced").then_some(query)
}

fn answer(head: &str, body: &[u8], port: u16) -> Vec<u8> {
    let (method, target) = (head.split(' ').next().unwrap_or(""), head.split(' ').nth(1).unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    let name = path.rsplit('/').next().unwrap_or("");
    let (status, fields, text) = match name {
        "redirect" => ("302 Found", format!("Location: http://127.0.0.1:{port}/to?x\r\nX-Powered-By: b\r\n"), String::new()),
        "relative" => ("301 Moved", "Location: /relative/to\r\n".into(), "moved".into()),
        "cookie" => (
            "200 OK",
            "Set-Cookie: one=1; domain=example.com; path=/\r\nSet-Cookie: two=2; Path=/x\r\nContent-Type: text/html\r\n".into(),
            "cookies, hello hello".into(),
        ),
        "error" => ("500 Own Error", "Content-Type: text/plain\r\nX-Powered-By: b\r\n".into(), "an error".into()),
        "missing" => ("404 Not Found", "Content-Type: text/html\r\n".into(), "not here".into()),
        "page" => (
            "200 OK",
            "Server: behind\r\nETag: \"page\"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: text/html\r\n\
             Accept-Ranges: bytes\r\nX-Powered-By: b\r\n"
                .into(),
            "hello, page".into(),
        ),
        "accel" => ("200 OK", "X-Accel-Redirect: /a/x.html\r\n".into(), "not seen".into()),
        "chunked" => {
            let chunked = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n\
                 5\r\nhello\r\n6\r\n, bits\r\n0\r\n\r\n";
            return chunked.into();
        }
        _ => {
            let body = String::from_utf8_lossy(body);
            ("200 OK", "Content-Type: text/plain\r\nVary: X\r\n".into(), format!("{head}{body}"))
        }
    };
    let shown = if method == "HEAD" { "" } else { &text };
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{shown}", text.len()).into_bytes()
}
