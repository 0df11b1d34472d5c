//! Peers for the tests of the mail area: clients, an authentication server, scripted mail servers.

use super::wait;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than any step takes; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn new(port: u16) -> Client {
        let stream = wait("a connection", || TcpStream::connect(("127.0.0.1", port)));
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time-out");
        stream.set_nodelay(true).expect("no delay");
        Client { reader: BufReader::new(stream) }
    }
    /// Reads the greeting.
    pub fn greeted(port: u16) -> Client {
        let mut client = Client::new(port);
        let greeting = client.line();
        assert!(!greeting.is_empty(), "a greeting");
        client
    }
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.reader.get_mut().write_all(bytes.as_ref()).expect("written");
    }
    /// Without the line end; empty at the end of the connection.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let _ = self.reader.read_until(b'\n', &mut line);
        String::from_utf8_lossy(&line).trim_end().to_string()
    }
    /// Returns the reply to a command.
    pub fn ask(&mut self, command: &str) -> String {
        self.send(format!("{command}\r\n"));
        self.line()
    }
    /// Reads until the connection ends.
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.reader.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }
    pub fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }
}

/// A server on a free port, with a thread per connection.
pub fn server(act: impl Fn(BufReader<TcpStream>) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let act = Arc::new(act);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let act = act.clone();
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let _ = stream.set_nodelay(true);
                act(BufReader::new(stream));
            });
        }
    });
    port
}

/// Reads a line; `None` at the end.
pub fn line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    match reader.read_until(b'\n', &mut line) {
        Ok(1..) => Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_string()),
        _ => None,
    }
}

pub fn say(reader: &mut BufReader<TcpStream>, text: &str) {
    let _ = reader.get_mut().write_all(text.as_bytes());
}

/// Lines that peers received, in order.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub fn note(&self, text: String) {
        self.0.lock().expect("alive").push(text);
    }
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("alive"))
    }
    pub fn count(&self) -> usize {
        self.0.lock().expect("alive").len()
    }
}

/// Sends the result of `answer` unchanged and closes the connection.
pub fn auth(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> (u16, Told) {
    let told = Told::default();
    let keep = told.clone();
    let port = server(move |mut reader| {
        let mut head = String::new();
        while let Some(line) = line(&mut reader).filter(|line| !line.is_empty()) {
            head += &format!("{line}\n");
        }
        let answer = answer(&head);
        keep.note(head);
        say(&mut reader, &answer);
    });
    (port, told)
}

/// Permits the login.
pub fn pass_to(port: u16, more: &str) -> String {
    format!("HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: {port}\r\n{more}\r\n")
}

/// An IMAP server that accepts all logins and commands. `capability`: it sends its capabilities first.
pub fn imap_server(capability: bool) -> (u16, Told) {
    let told = Told::default();
    let keep = told.clone();
    let port = server(move |mut reader| {
        say(&mut reader, "* OK ready\r\n");
        let mut tag = String::new();
        for part in ["login", "user", "password"] {
            let Some(text) = line(&mut reader) else { return };
            if part == "login" {
                tag = text.split(' ').next().unwrap_or_default().to_string();
            }
            keep.note(text);
            let before = if capability { "* CAPABILITY X\r\n" } else { "" };
            say(&mut reader, &if part == "password" { format!("{before}{tag} OK in\r\n") } else { "+ go\r\n".into() });
        }
        while let Some(text) = line(&mut reader) {
            keep.note(text.clone());
            say(&mut reader, &format!("{} OK echo\r\n", text.split(' ').next().unwrap_or_default()));
            if text.ends_with("LOGOUT") {
                return;
            }
        }
    });
    (port, told)
}

/// A POP3 server that accepts all commands.
pub fn pop3_server() -> (u16, Told) {
    let told = Told::default();
    let keep = told.clone();
    let port = server(move |mut reader| {
        say(&mut reader, "+OK ready\r\n");
        while let Some(text) = line(&mut reader) {
            keep.note(text.clone());
            say(&mut reader, &format!("+OK {}\r\n", text.split(' ').next().unwrap_or_default()));
            if text == "QUIT" {
                return;
            }
        }
    });
    (port, told)
}

/// An SMTP server that accepts all commands, and notes a PROXY protocol header.
pub fn smtp_server() -> (u16, Told) {
    let told = Told::default();
    let keep = told.clone();
    let port = server(move |mut reader| {
        say(&mut reader, "220-hello\r\n220 ready\r\n");
        while let Some(text) = line(&mut reader) {
            keep.note(text.clone());
            let word = text.split(' ').next().unwrap_or_default().to_ascii_uppercase();
            say(
                &mut reader,
                match word.as_str() {
                    "PROXY" => "",
                    "EHLO" => "250-me\r\n250 SIZE\r\n",
                    "XCLIENT" => "220 again\r\n",
                    "AUTH" => "235 in\r\n",
                    "QUIT" => "221 bye\r\n",
                    _ => "250 ok\r\n",
                },
            );
            if word == "QUIT" {
                return;
            }
        }
    });
    (port, told)
}
