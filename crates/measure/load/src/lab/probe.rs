//! One request to a server, to check before timing that all serve equal content.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use figures::rng::Rng;
use rustls::{ClientConnection, StreamOwned};
use serde::{Deserialize, Serialize};

use crate::engine::failure::LoadFailure;
use crate::engine::job::Job;
use crate::engine::request::{Expect, Fnv, PreparedRequest, RequestSpec};
use crate::engine::session::SessionVariables;
use crate::engine::tls;
use crate::protocol::h1::H1;
use crate::protocol::h2::H2;
use crate::protocol::h3::H3;
use crate::protocol::{ClientProtocol, EncodedRequest, Event};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResponse {
    pub status: u16,
    /// Bytes of the body, its FNV-1a hash, bytes of the head.
    pub length: u64,
    pub hash: String,
    pub head: u64,
}

/// Requests once over a fresh connection in the job's protocol. Fails without a complete answer within five seconds.
pub fn probe_once(job: &Job, spec: &RequestSpec) -> Result<ProbeResponse, String> {
    fetch_body(job, spec).map(|(seen, _)| seen)
}

/// [`probe_once`] with the start of the body.
pub fn fetch_body(job: &Job, spec: &RequestSpec) -> Result<(ProbeResponse, Vec<u8>), String> {
    let limit = Some(LIMIT);
    // An expectation makes the protocol show the body, for its hash.
    let shown = RequestSpec { expect: Expect { contains: Some(String::new()), ..Expect::default() }, ..spec.clone() };
    let request = PreparedRequest::new(&shown, &job.target.authority(), &job.headers, false)?;
    if job.http3.is_some() {
        return exchange_datagrams(&request.for_http3(), job);
    }
    if let Some(path) = &job.target.unix {
        let stream = UnixStream::connect(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let limits = stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit));
        return limits.map_err(|e| e.to_string()).and_then(|()| speak(stream, request, job));
    }
    let stream = TcpStream::connect_timeout(&job.target.address, LIMIT).map_err(|e| e.to_string())?;
    let limits = stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit));
    limits.map_err(|e| e.to_string()).and_then(|()| speak(stream, request, job))
}

fn speak<S: Read + Write>(stream: S, request: PreparedRequest, job: &Job) -> Result<(ProbeResponse, Vec<u8>), String> {
    match job.http2 {
        None => secure::<H1, S>(stream, &request, job),
        Some(_) => secure::<H2, S>(stream, &request.for_http2(job.target.tls.is_some()), job),
    }
}

fn secure<P: ClientProtocol, S: Read + Write>(
    stream: S,
    request: &PreparedRequest,
    job: &Job,
) -> Result<(ProbeResponse, Vec<u8>), String> {
    let Some(spec) = &job.target.tls else { return exchange::<P>(stream, request, job) };
    let client = tls::client_config(spec, &job.target.host, &[P::NAME])?;
    let connection = ClientConnection::new(client.config, client.name).map_err(|e| e.to_string())?;
    exchange::<P>(StreamOwned::new(connection, stream), request, job)
}

/// Drives an HTTP/3 connection for one request.
fn exchange_datagrams(request: &PreparedRequest, job: &Job) -> Result<(ProbeResponse, Vec<u8>), String> {
    let say = |e: std::io::Error| e.to_string();
    let local = match job.target.address.ip() {
        ip if ip.is_loopback() => ip,
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((local, 0)).and_then(|s| s.connect(job.target.address).map(|()| s)).map_err(say)?;
    let mut shared = H3::shared(job, std::slice::from_ref(request))?;
    let (mut core, start, mut buffer) = (H3::new(&shared), Instant::now(), vec![0; 65536]);
    let now = || start.elapsed().as_nanos() as u64;
    core.begin(&mut shared, now()).map_err(|class| class.word().to_string())?;
    let (mut submitted, mut fnv, mut body) = (false, Fnv::default(), Vec::new());
    let result = loop {
        if core.is_established() && !std::mem::replace(&mut submitted, true) {
            core.submit(request, 0, &SessionVariables::default(), &mut Rng::new(1), &mut Vec::new());
        }
        send_datagrams(&mut core, &socket, now())?;
        let left = LIMIT.saturating_sub(start.elapsed());
        if left.is_zero() {
            let why = core.complaint().map(|why| tls::explain_error(&why));
            break Err(why.unwrap_or_else(|| "no answer over HTTP/3 (UDP) within 5 s".into()));
        }
        let wait = core.deadline().map_or(left, |at| Duration::from_nanos(at.saturating_sub(now())).min(left));
        socket.set_read_timeout(Some(wait.max(Duration::from_millis(1)))).map_err(say)?;
        match socket.recv(&mut buffer) {
            Ok(n) => core.take_in(&buffer[..n], now()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => core.expire(now()),
            Err(e) => break Err(e.to_string()),
        }
        let mut answer = None;
        while core.is_due() && answer.is_none() {
            let step = core.receive(&[], &mut shared);
            answer = match step
                .map_err(|class| core.complaint().map_or_else(|| class.word().into(), |why| tls::explain_error(&why)))?
                .event
            {
                Event::Answer(answer) => Some(Ok(answer)),
                Event::Failed { class, .. } => Some(Err(class.word().to_string())),
                Event::Unprocessed { .. } => Some(Err("the server did not process the request".into())),
                Event::More | Event::Body { .. } | Event::Began { .. } | Event::Room | Event::Send(_) => None,
            };
        }
        let Some(answer) = answer else { continue };
        break answer.map(|answer| {
            core.take_body(&mut body);
            fnv.update(&body);
            body.truncate(BODY_MAX);
            let hash = format!("{:016x}", fnv.0);
            (ProbeResponse { status: answer.status, length: answer.body, hash, head: answer.overhead }, body)
        });
    };
    core.close(now());
    send_datagrams(&mut core, &socket, now())?;
    result
}

fn send_datagrams(core: &mut H3, socket: &UdpSocket, now: u64) -> Result<(), String> {
    loop {
        let segment = core.next_datagrams(now);
        let Some(datagram) = core.output().chunks(segment.max(1)).next() else { return Ok(()) };
        let n = socket.send(datagram).map_err(|e| e.to_string())?;
        core.advance(n);
    }
}

const LIMIT: Duration = Duration::from_secs(5);
const BODY_MAX: usize = 4 * 1024 * 1024;

fn exchange<P: ClientProtocol>(
    mut stream: impl Read + Write,
    request: &PreparedRequest,
    job: &Job,
) -> Result<(ProbeResponse, Vec<u8>), String> {
    let mut body = Vec::new();
    let mut shared = P::shared(job, std::slice::from_ref(request))?;
    let (mut core, mut output) = (P::new(&shared), Vec::new());
    let bytes = match core.submit(request, 0, &SessionVariables::default(), &mut Rng::new(1), &mut output) {
        EncodedRequest::Ready(bytes) => bytes.to_vec(),
        EncodedRequest::Written => output,
        EncodedRequest::Kept => Vec::new(),
        EncodedRequest::Unsendable => return Err(LoadFailure::Message.word().into()),
    };
    let words = |e: std::io::Error| match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no answer within {} s", LIMIT.as_secs()),
        _ => tls::explain_error(&e.to_string()),
    };
    stream.write_all(&bytes).and_then(|()| stream.flush()).map_err(words)?;
    let (mut buffer, mut fnv) = (vec![0; 65536], Fnv::default());
    let seen = |a: crate::protocol::ResponseSummary, fnv: Fnv| ProbeResponse {
        status: a.status,
        length: a.body,
        hash: format!("{:016x}", fnv.0),
        head: a.overhead,
    };
    loop {
        while !core.output().is_empty() {
            let n = stream.write(core.output()).map_err(words)?;
            core.advance(n);
        }
        stream.flush().map_err(words)?;
        let n = stream.read(&mut buffer).map_err(words)?;
        if n == 0 {
            let answer = core.end_of_input().map_err(|c| c.word().to_string())?;
            return answer.map(|a| (seen(a, fnv), body)).ok_or_else(|| "no answer".into());
        }
        let mut at = 0;
        while at < n || core.is_due() {
            let step = core.receive(&buffer[at..n], &mut shared).map_err(|class| match core.complaint() {
                Some(why) => format!("{} ({why})", class.word()),
                None => class.word().to_string(),
            })?;
            match step.event {
                Event::More => {}
                Event::Body { range, .. } => {
                    let bytes = &buffer[at..n][range];
                    fnv.update(bytes);
                    body.extend_from_slice(&bytes[..bytes.len().min(BODY_MAX - body.len().min(BODY_MAX))]);
                }
                Event::Answer(answer) => {
                    if P::MULTIPLEXED {
                        core.take_body(&mut body);
                        fnv.update(&body);
                        body.truncate(BODY_MAX);
                    }
                    return Ok((seen(answer, fnv), body));
                }
                Event::Failed { class, .. } => return Err(class.word().into()),
                Event::Unprocessed { .. } => return Err("the server did not process the request".into()),
                Event::Began { .. } | Event::Room | Event::Send(_) => {}
            }
            at += step.consumed;
        }
    }
}
