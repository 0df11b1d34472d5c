//! Origins that answer by a script.

use crate::parse::{OriginScript, ScriptLine, Then};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[derive(Default)]
struct State {
    left: VecDeque<ScriptLine>,
    wrong: Vec<String>,
}

/// Ends with the program that runs the case.
pub struct Origin {
    pub name: String,
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl Origin {
    /// # Errors
    /// No free port.
    pub fn start(script: &OriginScript, patience: Duration) -> Result<Origin, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        // The script may contain its own address as `{NAME}`.
        let own = format!("{{{}}}", script.name);
        let address = format!("127.0.0.1:{port}");
        let line = |answer: &ScriptLine| ScriptLine { reads: answer.reads.replace(&own, &address), ..answer.clone() };
        let state = State { left: script.lines.iter().map(line).collect(), wrong: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                let _ = stream.set_read_timeout(Some(patience));
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Ok(Origin { name: script.name.clone(), port, state })
    }
    pub fn wrong(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let never =
            |a: &ScriptLine| format!("line {}: origin {} was never asked for \"{}\"", a.line, self.name, a.reads);
        state.wrong.iter().cloned().chain(state.left.iter().map(never)).collect()
    }
}

/// Answers one connection's requests; each takes the script's next line.
fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let (mut bytes, mut buf) = (Vec::new(), [0; 16 * 1024]);
    loop {
        while let Some(length) = whole(&bytes) {
            let request = String::from_utf8_lossy(&bytes[..length]).into_owned();
            bytes.drain(..length);
            let answer = {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(answer) = state.left.pop_front() else {
                    state.wrong.push(format!("the script has no answer left for {request:?}"));
                    return;
                };
                if !request.contains(&answer.reads) {
                    state.wrong.push(format!("line {}: {request:?} does not hold {:?}", answer.line, answer.reads));
                }
                answer
            };
            let _ = stream.write_all(&answer.sends);
            match answer.then {
                Then::Keeps => {}
                Then::Closes => return,
                Then::Resets => {
                    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                    return;
                }
            }
        }
        match stream.read(&mut buf) {
            Ok(n @ 1..) => bytes.extend_from_slice(&buf[..n]),
            _ => return,
        }
    }
}

/// Returns the length of the first request, if it is complete.
fn whole(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    if head.contains("\r\ntransfer-encoding: chunked\r\n") {
        return bytes[end..].windows(5).position(|w| w == b"0\r\n\r\n").map(|at| end + at + 5);
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let all = end + length.unwrap_or(0);
    (bytes.len() >= all).then_some(all)
}
