//! The HTTP/1 server behind: it echoes requests, and notes them by the client that its proxy names.

use super::transcript::shown_bytes;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Octets of a large answer.
const LARGE_BYTES: usize = 100_000;
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(5);

type Notes = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// Runs in background threads until the process ends.
pub struct FramesOrigin {
    pub port: u16,
    notes: Notes,
}

impl FramesOrigin {
    /// # Errors
    /// No socket.
    pub fn start() -> std::io::Result<FramesOrigin> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let notes = Notes::default();
        let shared = notes.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let notes = shared.clone();
                std::thread::spawn(move || {
                    // The proxy sees a broken connection as the end.
                    let _ = serve(stream, &notes);
                });
            }
        });
        Ok(FramesOrigin { port, notes })
    }

    /// Drops requests of a client's earlier run.
    pub fn forget(&self, client: &str) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).remove(client);
    }

    /// Removes and returns the requests of a client, in alphabetical order: concurrent streams have none.
    pub fn take(&self, client: &str) -> Vec<String> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = notes.remove(client).unwrap_or_default();
        own.sort();
        own
    }
}

fn serve(stream: TcpStream, notes: &Notes) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut out = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if reader.read_until(b'\n', &mut head)? == 0 {
                return Ok(());
            }
        }
        let text = head.escape_ascii().to_string().replace("\\r\\n", "\r\n");
        let field = |name: &str| {
            let start = format!("{name}: ");
            text.split("\r\n")
                .find(|line| line.to_ascii_lowercase().starts_with(&start))
                .map(|line| &line[start.len()..])
        };
        let client = field("x-from").unwrap_or_default().to_string();
        let note = |body: &str| {
            let lines = text.trim_end().replace("\r\n", "\n      ");
            let words = format!("{lines}\n      body {body}");
            notes.lock().unwrap_or_else(PoisonError::into_inner).entry(client.clone()).or_default().push(words);
        };
        let body = match (field("content-length").and_then(|n| n.parse().ok()), field("transfer-encoding")) {
            (Some(length), _) => {
                let mut body = Vec::new();
                (&mut reader).take(length).read_to_end(&mut body)?;
                if (body.len() as u64) < length {
                    note(&format!("{} and the end", shown_bytes(&body)));
                    return Ok(());
                }
                body
            }
            (None, Some(_)) => match chunks(&mut reader) {
                Ok(body) => body,
                Err(body) => {
                    note(&format!("{} and the end", shown_bytes(&body)));
                    return Ok(());
                }
            },
            (None, None) => Vec::new(),
        };
        note(&shown_bytes(&body));
        let target = text.split(' ').nth(1).unwrap_or_default();
        let name = target.split('?').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let answer = match name {
            "closed" => return Ok(()),
            "short" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789".into(),
            "large" => format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n{}", "l".repeat(LARGE_BYTES)),
            _ => {
                let words = format!("{target} with {} octets", body.len());
                format!("HTTP/1.1 200 OK\r\nX-Behind: b\r\nContent-Length: {}\r\n\r\n{words}", words.len())
            }
        };
        let shown = match text.starts_with("HEAD ") {
            true => answer.split_inclusive("\r\n\r\n").next().unwrap_or_default(),
            false => &answer,
        };
        out.write_all(shown.as_bytes())?;
        if name == "short" || field("connection").is_some_and(|value| value == "close") {
            return Ok(());
        }
    }
}

/// Returns the data of chunks; `Err`: the data before a broken end.
fn chunks(reader: &mut BufReader<TcpStream>) -> Result<Vec<u8>, Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        let size = reader.read_line(&mut line).ok().and_then(|_| u64::from_str_radix(line.trim_end(), 16).ok());
        let Some(size) = size else { return Err(body) };
        let before = body.len() as u64;
        if reader.take(size).read_to_end(&mut body).is_err() || body.len() as u64 - before < size {
            return Err(body);
        }
        let mut end = [0; 2];
        if reader.read_exact(&mut end).is_err() {
            return Err(body);
        }
        if size == 0 {
            return Ok(body);
        }
    }
}
