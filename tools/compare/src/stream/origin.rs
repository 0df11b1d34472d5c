//! The server behind: it answers lines, and datagrams.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Runs in background threads until the process ends.
pub struct StreamOrigin {
    pub port: u16,
    pub udp: u16,
}

impl StreamOrigin {
    /// # Errors
    /// No socket.
    pub fn start() -> std::io::Result<StreamOrigin> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream));
            }
        });
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let udp = socket.local_addr()?.port();
        std::thread::spawn(move || {
            let mut buf = [0; 2048];
            while let Ok((n, from)) = socket.recv_from(&mut buf) {
                let answer = [b"got ", without_port(buf.get(..n).unwrap_or_default()).as_slice()].concat();
                let _ = socket.send_to(&answer, from);
            }
        });
        Ok(StreamOrigin { port, udp })
    }
}

/// `bye` ends the connection, `long N` returns N octets, other lines are echoed.
fn serve(stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let Ok(mut out) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let answer = match reader.read_until(b'\n', &mut line) {
            Ok(1..) if line == b"bye\n" => return,
            Ok(1..) => match line.strip_prefix(b"long ").map(|n| String::from_utf8_lossy(n).trim().parse()) {
                Some(Ok(n)) => vec![b'x'; n],
                _ => [b"got ", without_port(&line).as_slice()].concat(),
            },
            // Answers the received bytes although no more arrive.
            _ => {
                let _ = out.write_all(b"the end");
                return;
            }
        };
        if out.write_all(&answer).is_err() {
            return;
        }
    }
}

/// A header of the PROXY protocol has ports that are chance.
fn without_port(line: &[u8]) -> Vec<u8> {
    let mut words: Vec<&[u8]> = line.split(|c| *c == b' ').collect();
    if line.starts_with(b"PROXY TCP4 127.")
        && let Some(ports) = words.get_mut(4..)
    {
        ports.fill(b"PORT");
    }
    words.join(&b' ')
}
