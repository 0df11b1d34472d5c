//! One client of cleartext HTTP/2: writes the bytes of its acts, and notes the frames that arrive.

use super::acts::FrameSession;
use super::transcript::Transcript;
use crate::Dice;
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Between two acts: a server that sends nothing for so long waits for the client. On a busy machine a reply may take longer:
/// differences are compared again before they count.
const QUIET: Duration = Duration::from_millis(40);
/// After the last act.
const LAST: Duration = Duration::from_millis(120);
/// Between two parts of a frame.
const PART: Duration = Duration::from_millis(2);
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(4);

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

/// Connects from the client's own address.
///
/// # Errors
/// No connection.
pub fn connect_from(from: u8, port: u16) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 1, 0, from), 0)).into())?;
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Reads until the streams have ended, or nothing comes for `quiet`.
fn settle(socket: &mut TcpStream, transcript: &mut Transcript, awaited: &[u32], quiet: Duration) -> State {
    let mut buf = vec![0; 64 * 1024];
    let _ = socket.set_read_timeout(Some(quiet));
    loop {
        if !awaited.is_empty() && awaited.iter().all(|id| transcript.has_ended(*id)) {
            return State::Open;
        }
        match socket.read(&mut buf) {
            Ok(n @ 1..) => {
                transcript.feed(&buf[..n]);
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return State::Open,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            _ => return State::Closed,
        }
    }
}

fn write(socket: &mut TcpStream, bytes: &[u8], cut: Option<u64>) {
    let Some(seed) = cut else {
        // A server that has closed reads no more.
        let _ = socket.write_all(bytes);
        return;
    };
    const PARTS: usize = 4;
    let mut dice = Dice::new(seed);
    let mut cuts: Vec<usize> = (0..PARTS).map(|_| dice.below(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let mut at = 0;
    for cut in cuts.into_iter().chain([bytes.len()]) {
        let _ = socket.write_all(bytes.get(at..cut).unwrap_or_default());
        at = cut;
        std::thread::park_timeout(PART);
    }
}

/// Runs a session; returns its transcript.
pub fn run_session(session: &FrameSession, port: u16) -> Result<String, String> {
    let mut socket = connect_from(session.from, port).map_err(|e| e.to_string())?;
    let _ = socket.set_write_timeout(Some(PATIENCE));
    let mut transcript = Transcript::of_server();
    let mut state = State::Open;
    let mut waiting = Vec::new();
    for act in &session.acts {
        waiting.extend_from_slice(&act.bytes);
        if act.joined {
            continue;
        }
        write(&mut socket, &std::mem::take(&mut waiting), session.cut);
        state = settle(&mut socket, &mut transcript, &act.awaits, QUIET);
        if state == State::Closed {
            break;
        }
    }
    if state == State::Open {
        write(&mut socket, &waiting, session.cut);
        state = settle(&mut socket, &mut transcript, &[], LAST);
    }
    transcript.say(if state == State::Open { "the connection stays open" } else { "the server closes the connection" });
    Ok(transcript.text())
}
