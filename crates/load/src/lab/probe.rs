//! One question to one server, to see that all of them serve the same thing before anything is timed.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use figures::rng::Rng;
use rustls::{ClientConnection, StreamOwned};
use serde::{Deserialize, Serialize};

use crate::engine::job::Tls;
use crate::engine::request::{Expect, Fnv, Prepared, RequestSpec};
use crate::engine::session::Variables;
use crate::engine::tls;
use crate::protocol::h1::{H1, HeadCache};
use crate::protocol::{Encoded, Event, Protocol as _};

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub status: u16,
    /// Bytes of the body, its FNV-1a hash, bytes of the head.
    pub length: u64,
    pub hash: String,
    pub head: u64,
}

/// Asks once over a fresh connection.
///
/// # Errors
/// A sentence when there is no complete answer within five seconds.
pub fn ask(address: SocketAddr, host: &str, tls_spec: Option<&Tls>, spec: &RequestSpec) -> Result<Seen, String> {
    fetch(address, host, tls_spec, spec).map(|(seen, _)| seen)
}

/// The same, with the beginning of the body.
///
/// # Errors
/// As [`ask`].
pub fn fetch(
    address: SocketAddr,
    host: &str,
    tls_spec: Option<&Tls>,
    spec: &RequestSpec,
) -> Result<(Seen, Vec<u8>), String> {
    let limit = Duration::from_secs(5);
    let stream = TcpStream::connect_timeout(&address, limit).map_err(|e| e.to_string())?;
    stream
        .set_read_timeout(Some(limit))
        .and_then(|()| stream.set_write_timeout(Some(limit)))
        .map_err(|e| e.to_string())?;
    // The hash wants the body; with an expectation that wants it the protocol shows it.
    let shown = RequestSpec { expect: Expect { contains: Some(String::new()), ..Expect::default() }, ..spec.clone() };
    let request = Prepared::new(&shown, host, &[], false)?;
    match tls_spec {
        None => exchange(stream, &request),
        Some(tls_spec) => {
            let client = tls::client(tls_spec, host.split(':').next().unwrap_or(host), &[b"http/1.1"])?;
            let connection = ClientConnection::new(client.config, client.name).map_err(|e| e.to_string())?;
            exchange(StreamOwned::new(connection, stream), &request)
        }
    }
}

/// So much of a body is kept.
const BODY_MAX: usize = 4 * 1024 * 1024;

fn exchange(mut stream: impl std::io::Read + std::io::Write, request: &Prepared) -> Result<(Seen, Vec<u8>), String> {
    let mut body = Vec::new();
    let (mut h1, mut cache, mut output) = (H1::new(), HeadCache::default(), Vec::new());
    let bytes = match h1.submit(request, 0, &Variables::default(), &mut Rng::new(1), &mut output) {
        Encoded::Ready(bytes) => bytes.to_vec(),
        Encoded::Written => output,
    };
    stream.write_all(&bytes).and_then(|()| stream.flush()).map_err(|e| e.to_string())?;
    let (mut buffer, mut fnv) = (vec![0; 65536], Fnv::default());
    let seen = |a: crate::protocol::Answer, fnv: Fnv| Seen {
        status: a.status,
        length: a.body,
        hash: format!("{:016x}", fnv.0),
        head: a.overhead,
    };
    loop {
        let n = stream.read(&mut buffer).map_err(|e| e.to_string())?;
        if n == 0 {
            let answer = h1.end_of_input().map_err(|c| c.word().to_string())?;
            return answer.map(|a| (seen(a, fnv), body)).ok_or_else(|| "no answer".into());
        }
        let mut at = 0;
        while at < n || h1.is_due() {
            let step = h1.receive(&buffer[at..n], &mut cache).map_err(|c| c.word().to_string())?;
            match step.event {
                Event::More => {}
                Event::Body { range, .. } => {
                    let bytes = &buffer[at..n][range];
                    fnv.update(bytes);
                    body.extend_from_slice(&bytes[..bytes.len().min(BODY_MAX - body.len().min(BODY_MAX))]);
                }
                Event::Answer(answer) => return Ok((seen(answer, fnv), body)),
            }
            at += step.consumed;
        }
    }
}
