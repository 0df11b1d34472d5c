//! The scripted servers: one port for each session, so that connections of sessions stay apart.

use super::script::{FrameMove, Move};
use crate::frames::transcript::Transcript;
use crate::frames::wire;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Lets the proxy process the octets before.
const PAUSE: Duration = Duration::from_millis(15);
/// A request's rest arrives within this time, if the proxy sends it at all.
const REST: Duration = Duration::from_millis(150);
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers of a session's server.
#[derive(Clone, Debug, Default)]
pub struct Scripts {
    pub opening: Vec<FrameMove>,
    /// By the number of the request; the last one answers further requests.
    pub answers: Vec<Vec<FrameMove>>,
}

#[derive(Default)]
struct PeerState {
    scripts: Scripts,
    /// Requests that have been answered.
    asked: usize,
    connections: usize,
    /// Requests in the order of their arrival.
    requests: Vec<(Arc<Mutex<Transcript>>, u32)>,
}

pub struct Peer {
    pub port: u16,
    shared: Arc<Mutex<PeerState>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peer {
    /// # Errors
    /// No socket.
    pub fn start() -> std::io::Result<Peer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Mutex::new(PeerState::default()));
        let state = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let transcript = Arc::new(Mutex::new(Transcript::of_client()));
                locked(&state).connections += 1;
                let state = state.clone();
                std::thread::spawn(move || {
                    // The proxy sees a broken connection as the end.
                    let _ = serve(stream, &state, &transcript);
                });
            }
        });
        Ok(Peer { port, shared })
    }
    pub fn prepare(&self, scripts: &Scripts) {
        *locked(&self.shared) = PeerState { scripts: scripts.clone(), ..PeerState::default() };
    }
    /// Returns the requests that arrived, and the number of connections.
    pub fn text(&self) -> String {
        let shared = locked(&self.shared);
        let mut out = String::new();
        for (transcript, id) in &shared.requests {
            out += &format!("  request\n    {}\n", locked(transcript).request(*id));
        }
        out + &format!("  connections: {}\n", shared.connections)
    }
}

/// A connection, and the frames that have arrived.
struct PeerLink<'a> {
    stream: TcpStream,
    transcript: &'a Mutex<Transcript>,
    /// Requests without an answer.
    requests: Vec<u32>,
}

impl PeerLink<'_> {
    /// Reads what arrives within a time; `false`: the end.
    fn read(&mut self, within: Duration) -> std::io::Result<bool> {
        let mut buf = vec![0; 32 * 1024];
        self.stream.set_read_timeout(Some(within))?;
        let n = match self.stream.read(&mut buf) {
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                return Ok(true);
            }
            Err(e) => return Err(e),
        };
        let mut transcript = locked(self.transcript);
        for (kind, _, stream, _) in transcript.feed(buf.get(..n).unwrap_or_default()) {
            if kind == wire::HEADERS && !self.requests.contains(&stream) {
                self.requests.push(stream);
            }
        }
        Ok(n > 0)
    }
    fn has_ended(&self, stream: u32) -> bool {
        locked(self.transcript).has_ended(stream)
    }
}

fn serve(stream: TcpStream, shared: &Mutex<PeerState>, transcript: &Arc<Mutex<Transcript>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut link = PeerLink { stream, transcript, requests: Vec::new() };
    let mut answered = 0;
    loop {
        if !link.read(PATIENCE)? {
            return Ok(());
        }
        while let Some(id) = link.requests.get(answered).copied() {
            let steps = {
                let mut shared = locked(shared);
                let answers = &shared.scripts.answers;
                let mut steps = if answered == 0 { shared.scripts.opening.clone() } else { Vec::new() };
                steps.extend(
                    answers.get(shared.asked.min(answers.len().saturating_sub(1))).cloned().unwrap_or_default(),
                );
                shared.asked += 1;
                shared.requests.push((transcript.clone(), id));
                steps
            };
            answered += 1;
            if !answer(&mut link, id, &steps)? {
                return Ok(());
            }
        }
    }
}

/// Sends an answer; `false`: the connection ends.
fn answer(link: &mut PeerLink, id: u32, steps: &[FrameMove]) -> std::io::Result<bool> {
    let mut out = Vec::new();
    for step in steps {
        match &step.act {
            Move::Close => {
                link.stream.write_all(&out)?;
                return Ok(false);
            }
            Move::Pause => {
                link.stream.write_all(&std::mem::take(&mut out))?;
                std::thread::park_timeout(PAUSE);
            }
            Move::Await => {
                link.stream.write_all(&std::mem::take(&mut out))?;
                let mut waits = REST.as_millis() / PAUSE.as_millis();
                while !link.has_ended(id) && waits > 0 {
                    if !link.read(PAUSE)? {
                        return Ok(false);
                    }
                    waits -= 1;
                }
            }
            act => out.extend(act.bytes(id)),
        }
    }
    link.stream.write_all(&out)?;
    Ok(true)
}
